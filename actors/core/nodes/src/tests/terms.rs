//! Tests of terms: at the start of a term the records count, not the memory of the process (N4, W8).

use super::*;
use model::object::RequestFailure;

/// Creates a standby with all inputs, whose requests about our ConfigMap wait.
fn standby(nodes: u8) -> Bench {
    let mut bench = Bench::silent(Role::On, nodes);
    for n in 1..=nodes {
        bench.deliver(node(n, &[]));
    }
    bench.observe_all();
    bench.answers = false;
    bench
}

#[test]
fn w8_a_term_begins_after_a_read_of_our_config_map() {
    let mut bench = standby(4);
    assert!(bench.requests.is_empty(), "a standby sends no request");
    bench.step(In::Confirmed(Epoch(1)));
    assert!(matches!(bench.requests.front(), Some((_, ConfigMapRequest::Get))));
    bench.step(In::Opened(Epoch(1)));
    assert_eq!(bench.opened, None);
    // The request in flight is of an older term.
    bench.step(In::Confirmed(Epoch(2)));
    bench.step(In::Opened(Epoch(2)));
    bench.answer();
    assert_eq!(bench.opened, None);
    bench.answer();
    assert_eq!(bench.opened, Some(Epoch(2)));
    bench.step(In::Confirmed(Epoch(3)));
    bench.answer();
    assert_eq!(bench.opened, Some(Epoch(2)), "the Directory is not ready");
    bench.step(In::Opened(Epoch(3)));
    assert_eq!((bench.opened, bench.requests.len()), (Some(Epoch(3)), 0));
}

#[test]
fn w8_no_term_begins_while_our_config_map_is_unreadable() {
    let mut bench = standby(4);
    bench.step(In::Confirmed(Epoch(1)));
    bench.step(In::Opened(Epoch(1)));
    let failures =
        [(RequestFailure::Other("500".into()), 100), (RequestFailure::Denied("403".into()), 15_000)];
    for (failure, after) in failures {
        bench.fail_ask(false, failure);
        bench.pass(after);
        assert_eq!((bench.opened, bench.requests.len()), (None, 1), "the read is retried");
    }
    bench.answer();
    assert_eq!(bench.opened, Some(Epoch(1)));
    assert!(bench.machine.deadline().is_none(), "then nothing is due");
}

#[test]
fn n4_a_successor_acts_on_records_and_signals() {
    let mut bench = Bench::new(10);
    for n in 1..=4 {
        bench.deliver(node(n, &[SHUTDOWN]));
    }
    bench.set_foreign(7, State::Down);
    bench.run_until_stable();
    // While no replica leads, one signal ends, one node is deleted, and another one gets a signal.
    bench.step(In::Leadership(Leadership::Standby));
    bench.deliver(node(2, &[]));
    bench.delete(3);
    bench.deliver(node(6, &[SHUTDOWN]));
    bench.restart(Role::On);
    bench.lead(2);
    let states = [1, 2, 4, 6, 7].map(|n| bench.state(n));
    use NodeState::{Draining, Restoring};
    assert_eq!(states, [Some(Draining), Some(Restoring), Some(Draining), Some(Draining), None]);
    assert_eq!(bench.drains(), ["node-1", "node-4", "node-6"]);
    assert_eq!(bench.state(3), Some(NodeState::Gone));
    bench.run_until_stable();
    let down: Vec<IpAddr> = bench.downs().into_keys().collect();
    let mut expected: Vec<IpAddr> = [1, 3, 4, 6].map(ips).into_iter().flatten().chain([ips(7)[0]]).collect();
    expected.sort();
    assert_eq!(down, expected, "only our Downs are restored");
    assert_eq!(bench.recorded(), ["node-1", "node-3", "node-4", "node-6"]);
}

#[test]
fn n4_the_set_of_recorded_nodes_is_sent_before_the_term_begins() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.restart(Role::On);
    bench.step(In::Confirmed(Epoch(2)));
    assert_eq!((bench.set.generation, bench.opened), (0, None));
    bench.step(In::Opened(Epoch(2)));
    assert_eq!((bench.drains(), bench.opened), (vec!["node-1"], Some(Epoch(2))));
    assert!(
        bench.take_due().is_empty() && bench.requested_reads == 0,
        "nothing more until this process leads"
    );
}

#[test]
fn n4_a_crash_between_record_and_put_costs_no_put() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    assert_eq!((bench.recorded(), bench.due.len()), (vec!["node-1"], 4));
    bench.step(In::Leadership(Leadership::Standby));
    bench.deliver(node(1, &[]));
    bench.restart(Role::On);
    bench.lead(2);
    assert!(bench.take_due().is_empty() && bench.requested_reads == 1, "one read of everything");
    bench.observe_all();
    assert_eq!((bench.recorded(), bench.state(1)), (vec![], None));
    // With the signal, it goes Down without another record.
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    let writes = bench.writes;
    bench.restart(Role::On);
    bench.lead(2);
    assert_eq!((bench.take_due(), bench.writes), (all(DOWN), writes));
}

#[test]
fn n4_new_addresses_from_before_a_term_are_recorded() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    let web = bench.azure.get_mut(&pool("lb", "web")).expect("a pool");
    web.insert(ips(9)[0], State::None);
    bench.step(In::Leadership(Leadership::Standby));
    let mut moved = node(1, &[SHUTDOWN]);
    moved.ips = ips(9).into_iter().collect();
    bench.deliver(moved);
    bench.restart(Role::On);
    bench.lead(2);
    bench.run_until_stable();
    assert_eq!(bench.downs().get(&ips(9)[0]), Some(&1), "{:?}", bench.downs());
}

#[test]
fn n2_a_pool_excluded_later_keeps_no_record() {
    let mut bench = Bench::new(4);
    let shop = pool("lb", "shop");
    bench.azure.insert(shop.clone(), [(ips(1)[0], State::None)].into());
    bench.observe_all();
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.delete(1);
    bench.params.excluded.insert(shop.pool.clone());
    bench.restart(Role::On);
    bench.lead(2);
    bench.azure.retain(|pool, _| *pool == shop);
    bench.run_until_stable();
    assert_eq!((bench.downs().len(), bench.recorded()), (1, vec![]), "its Down has no owner any more");
}

#[test]
fn n4_exceptions_outlive_the_process() {
    let mut bench = Bench::new(4);
    bench.set_foreign(1, State::Down);
    bench.observe_all();
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.restart(Role::On);
    bench.lead(2);
    bench.run_until_stable();
    bench.deliver(node(1, &[]));
    bench.run_until_stable();
    assert_eq!(bench.downs(), [(ips(1)[0], 1)].into());
    assert!(bench.recorded().is_empty());
}

#[test]
fn n4_a_process_that_leads_again_uses_the_records_of_others() {
    let mut bench = Bench::new(8);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.deliver(node(2, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.step(In::Leadership(Leadership::Standby));
    // Another replica has restored node-1, and set node-3 Down.
    for entries in bench.azure.values_mut() {
        for (ip, state) in entries.iter_mut() {
            if ips(1).contains(ip) {
                *state = State::None;
            } else if ips(3).contains(ip) {
                *state = State::Down;
            }
        }
    }
    bench.server.remove("down.uid-of-node-1");
    bench.server.put("down.uid-of-node-3", "node-3\nips: 10.0.0.3 fd00::3\n");
    bench.deliver(node(1, &[]));
    bench.observe_all();
    bench.lead(2);
    assert_eq!(
        [1, 2, 3].map(|n| bench.state(n)),
        [None, Some(NodeState::Draining), Some(NodeState::Restoring)]
    );
    bench.run_until_stable();
    assert_eq!((bench.downs().len(), bench.recorded()), (2, vec!["node-2"]));
    assert!(bench.is_idle());
}

#[test]
fn w8_a_standby_writes_nothing() {
    let mut bench = standby(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.step(In::Confirmed(Epoch(1)));
    bench.answer();
    bench.step(In::Opened(Epoch(1)));
    bench.set_policy(1, OperatorPolicy::default());
    bench.pass(60_000);
    assert_eq!((bench.requests.len(), bench.writes, bench.state(1)), (0, 0, Some(NodeState::Held)));
    bench.step(In::Leadership(Leadership::Leading { epoch: Epoch(1), until: Now::NEVER }));
    assert_eq!((bench.requests.len(), bench.writes), (1, 1));
    // Leadership ends during its write. The successor handles the result.
    bench.step(In::Leadership(Leadership::Standby));
    bench.answer();
    bench.pass(60_000);
    assert_eq!((bench.requests.len(), bench.set.generation), (0, 0));
    // The same if a newer term is confirmed already.
    bench.step(In::Confirmed(Epoch(2)));
    bench.step(In::Leadership(Leadership::Leading { epoch: Epoch(1), until: Now::NEVER }));
    bench.deliver(node(2, &[SHUTDOWN]));
    bench.answer_all();
    assert_eq!((bench.writes, bench.set.generation), (1, 0));
}
