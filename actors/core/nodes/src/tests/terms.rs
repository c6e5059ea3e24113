//! Tests of terms: at the start of a term the records count, not the memory of the process (N4, W8).

use super::*;
use model::object::RequestFailure;

/// Creates a standby with all inputs, whose requests about our ConfigMap wait.
fn standby(nodes: u8) -> Fixture {
    let mut fixture = Fixture::silent(Role::On, nodes);
    for n in 1..=nodes {
        fixture.deliver(node(n, &[]));
    }
    fixture.observe_all();
    fixture.answers = false;
    fixture
}

#[test]
fn w8_a_term_begins_after_a_read_of_our_config_map() {
    let mut fixture = standby(4);
    assert!(fixture.requests.is_empty(), "a standby sends no request");
    fixture.step(In::Confirmed(Epoch(1)));
    assert!(matches!(fixture.requests.front(), Some((_, ConfigMapRequest::Get))));
    fixture.step(In::Opened(Epoch(1)));
    assert_eq!(fixture.opened, None);
    // The request in flight is of an older term.
    fixture.step(In::Confirmed(Epoch(2)));
    fixture.step(In::Opened(Epoch(2)));
    fixture.answer();
    assert_eq!(fixture.opened, None);
    fixture.answer();
    assert_eq!(fixture.opened, Some(Epoch(2)));
    fixture.step(In::Confirmed(Epoch(3)));
    fixture.answer();
    assert_eq!(fixture.opened, Some(Epoch(2)), "the Directory is not ready");
    fixture.step(In::Opened(Epoch(3)));
    assert_eq!((fixture.opened, fixture.requests.len()), (Some(Epoch(3)), 0));
}

#[test]
fn w8_no_term_begins_while_our_config_map_is_unreadable() {
    let mut fixture = standby(4);
    fixture.step(In::Confirmed(Epoch(1)));
    fixture.step(In::Opened(Epoch(1)));
    let failures =
        [(RequestFailure::Other("500".into()), 100), (RequestFailure::Denied("403".into()), 15_000)];
    for (failure, after) in failures {
        fixture.fail_ask(false, failure);
        fixture.pass(after);
        assert_eq!((fixture.opened, fixture.requests.len()), (None, 1), "the read is retried");
    }
    fixture.answer();
    assert_eq!(fixture.opened, Some(Epoch(1)));
    assert!(fixture.machine.deadline().is_none(), "then nothing is due");
}

#[test]
fn n4_a_successor_acts_on_records_and_signals() {
    let mut fixture = Fixture::new(10);
    for n in 1..=4 {
        fixture.deliver(node(n, &[SHUTDOWN]));
    }
    fixture.set_foreign(7, State::Down);
    fixture.run_until_stable();
    // While no replica leads, one signal ends, one node is deleted, and another one gets a signal.
    fixture.step(In::Leadership(Leadership::Standby));
    fixture.deliver(node(2, &[]));
    fixture.delete(3);
    fixture.deliver(node(6, &[SHUTDOWN]));
    fixture.restart(Role::On);
    fixture.lead(2);
    let states = [1, 2, 4, 6, 7].map(|n| fixture.state(n));
    use NodeState::{Draining, Restoring};
    assert_eq!(states, [Some(Draining), Some(Restoring), Some(Draining), Some(Draining), None]);
    assert_eq!(fixture.drains(), ["node-1", "node-4", "node-6"]);
    assert_eq!(fixture.state(3), Some(NodeState::Gone));
    fixture.run_until_stable();
    let down: Vec<IpAddr> = fixture.downs().into_keys().collect();
    let mut expected: Vec<IpAddr> = [1, 3, 4, 6].map(ips).into_iter().flatten().chain([ips(7)[0]]).collect();
    expected.sort();
    assert_eq!(down, expected, "only our Downs are restored");
    assert_eq!(fixture.recorded(), ["node-1", "node-3", "node-4", "node-6"]);
}

#[test]
fn n4_the_set_of_recorded_nodes_is_sent_before_the_term_begins() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.restart(Role::On);
    fixture.step(In::Confirmed(Epoch(2)));
    assert_eq!((fixture.set.generation, fixture.opened), (0, None));
    fixture.step(In::Opened(Epoch(2)));
    assert_eq!((fixture.drains(), fixture.opened), (vec!["node-1"], Some(Epoch(2))));
    assert!(
        fixture.take_due().is_empty() && fixture.requested_reads == 0,
        "nothing more until this process leads"
    );
}

#[test]
fn n4_a_crash_between_record_and_put_costs_no_put() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    assert_eq!((fixture.recorded(), fixture.due.len()), (vec!["node-1"], 4));
    fixture.step(In::Leadership(Leadership::Standby));
    fixture.deliver(node(1, &[]));
    fixture.restart(Role::On);
    fixture.lead(2);
    assert!(fixture.take_due().is_empty() && fixture.requested_reads == 1, "one read of everything");
    fixture.observe_all();
    assert_eq!((fixture.recorded(), fixture.state(1)), (vec![], None));
    // With the signal, it goes Down without another record.
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    let writes = fixture.writes;
    fixture.restart(Role::On);
    fixture.lead(2);
    assert_eq!((fixture.take_due(), fixture.writes), (all(DOWN), writes));
}

#[test]
fn n4_new_addresses_from_before_a_term_are_recorded() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    let web = fixture.azure.get_mut(&pool("lb", "web")).expect("a pool");
    web.insert(ips(9)[0], State::None);
    fixture.step(In::Leadership(Leadership::Standby));
    let mut moved = node(1, &[SHUTDOWN]);
    moved.ips = ips(9).into_iter().collect();
    fixture.deliver(moved);
    fixture.restart(Role::On);
    fixture.lead(2);
    fixture.run_until_stable();
    assert_eq!(fixture.downs().get(&ips(9)[0]), Some(&1), "{:?}", fixture.downs());
}

#[test]
fn n2_a_pool_excluded_later_keeps_no_record() {
    let mut fixture = Fixture::new(4);
    let shop = pool("lb", "shop");
    fixture.azure.insert(shop.clone(), [(ips(1)[0], State::None)].into());
    fixture.observe_all();
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.delete(1);
    fixture.params.excluded.insert(shop.pool.clone());
    fixture.restart(Role::On);
    fixture.lead(2);
    fixture.azure.retain(|pool, _| *pool == shop);
    fixture.run_until_stable();
    assert_eq!((fixture.downs().len(), fixture.recorded()), (1, vec![]), "its Down has no owner any more");
}

#[test]
fn n4_exceptions_outlive_the_process() {
    let mut fixture = Fixture::new(4);
    fixture.set_foreign(1, State::Down);
    fixture.observe_all();
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.restart(Role::On);
    fixture.lead(2);
    fixture.run_until_stable();
    fixture.deliver(node(1, &[]));
    fixture.run_until_stable();
    assert_eq!(fixture.downs(), [(ips(1)[0], 1)].into());
    assert!(fixture.recorded().is_empty());
}

#[test]
fn n4_a_process_that_leads_again_uses_the_records_of_others() {
    let mut fixture = Fixture::new(8);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.deliver(node(2, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.step(In::Leadership(Leadership::Standby));
    // Another replica has restored node-1, and set node-3 Down.
    for entries in fixture.azure.values_mut() {
        for (ip, state) in entries.iter_mut() {
            if ips(1).contains(ip) {
                *state = State::None;
            } else if ips(3).contains(ip) {
                *state = State::Down;
            }
        }
    }
    fixture.server.remove("down.uid-of-node-1");
    fixture.server.put("down.uid-of-node-3", "node-3\nips: 10.0.0.3 fd00::3\n");
    fixture.deliver(node(1, &[]));
    fixture.observe_all();
    fixture.lead(2);
    assert_eq!(
        [1, 2, 3].map(|n| fixture.state(n)),
        [None, Some(NodeState::Draining), Some(NodeState::Restoring)]
    );
    fixture.run_until_stable();
    assert_eq!((fixture.downs().len(), fixture.recorded()), (2, vec!["node-2"]));
    assert!(fixture.is_idle());
}

#[test]
fn w8_a_standby_writes_nothing() {
    let mut fixture = standby(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.step(In::Confirmed(Epoch(1)));
    fixture.answer();
    fixture.step(In::Opened(Epoch(1)));
    fixture.set_policy(1, OperatorPolicy::default());
    fixture.pass(60_000);
    assert_eq!((fixture.requests.len(), fixture.writes, fixture.state(1)), (0, 0, Some(NodeState::Held)));
    fixture.step(In::Leadership(Leadership::Leading { epoch: Epoch(1), until: Now::NEVER }));
    assert_eq!((fixture.requests.len(), fixture.writes), (1, 1));
    // Leadership ends during its write. The successor handles the result.
    fixture.step(In::Leadership(Leadership::Standby));
    fixture.answer();
    fixture.pass(60_000);
    assert_eq!((fixture.requests.len(), fixture.set.generation), (0, 0));
    // The same if a newer term is confirmed already.
    fixture.step(In::Confirmed(Epoch(2)));
    fixture.step(In::Leadership(Leadership::Leading { epoch: Epoch(1), until: Now::NEVER }));
    fixture.deliver(node(2, &[SHUTDOWN]));
    fixture.answer_all();
    assert_eq!((fixture.writes, fixture.set.generation), (1, 0));
}
