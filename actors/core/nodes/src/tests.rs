//! Tests of the machine on the test's clock, with a writer that applies due updates on demand, pools that keep the
//! written states, and an API server with our ConfigMap.

mod bench;
mod held;
mod modes;
mod notices;
mod properties;
mod recording;
mod server;
mod terms;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use bench::{Bench, LBS, failure, ips, node, pool, taint, uid};
use model::arm::AdminState as State;
use model::draining::AdminUrgency;
use model::object::ResourceVersion;
use model::policy::{Mode, Pause};
use model::report::EventKind;
use model::signals::{DRAINING, OUT_OF_SERVICE, SHUTDOWN};

impl Bench {
    /// The state of a node in its view.
    fn state(&self, n: u8) -> Option<NodeState> {
        let name = NodeName::new(format!("node-{n}"));
        let mut statuses = self.machine.nodes.statuses(&self.machine.records);
        statuses.find(|status| *status.name == name).map(|status| status.state)
    }

    fn is_idle(&self) -> bool {
        self.machine.queue.is_idle()
    }
}

const DOWN: AdminUrgency = AdminUrgency::Down;
const RESTORE: AdminUrgency = AdminUrgency::Restore;

fn all(urgency: AdminUrgency) -> Vec<(String, AdminUrgency)> {
    let pools = ["lb-internal/web", "lb-internal/web-ipv6", "lb/web", "lb/web-ipv6"];
    pools.iter().map(|pool| ((*pool).to_owned(), urgency)).collect()
}

#[test]
fn n1_each_taint_sets_a_node_down_in_all_pools_and_families() {
    for key in [OUT_OF_SERVICE, SHUTDOWN, DRAINING] {
        let mut bench = Bench::new(4);
        assert!(bench.take_due().is_empty() && bench.set.generation == 0);
        bench.deliver(node(2, &[key]));
        assert_eq!(bench.take_due(), all(DOWN), "in the turn of the fact");
        assert_eq!(bench.set.addresses.values().collect::<BTreeSet<_>>(), [&uid("node-2")].into());
        assert!(bench.requested_reads > 0, "unknown pools may contain it");
        bench.run_until_stable();
        assert_eq!(bench.downs(), ips(2).map(|ip| (ip, 2)).into());
        assert!(bench.is_idle() && bench.take_due().is_empty(), "further reads cause no work");
    }
}

#[test]
fn n2_one_due_for_all_nodes_of_a_pool_with_the_oldest_signal() {
    let mut bench = Bench::new(8);
    bench.deliver(node(1, &[SHUTDOWN]));
    let first = bench.due.clone();
    bench.pass(500);
    bench.deliver(node(2, &[SHUTDOWN]));
    assert_eq!(bench.due.len(), 4);
    assert!(bench.due.iter().all(|(pool, due)| due.since == first[pool].since && due.generation == 2));
    bench.write_all();
    assert_eq!(bench.downs().len(), 4);
    bench.observe_all();
    assert!(bench.due.is_empty() && bench.is_idle());
}

#[test]
fn n2_no_drain_and_an_excluded_pool_cause_no_work() {
    let mut bench = Bench::new(3);
    let excluded = pool("lb", "AksOutboundBackendPool");
    bench.azure.insert(excluded.clone(), [(ips(1)[0], State::None)].into());
    bench.observe_all();
    assert_eq!((bench.set.generation, bench.requested_reads), (0, 0));
    bench.deliver(node(1, &[SHUTDOWN]));
    assert!(!bench.due.contains_key(&excluded) && bench.due.len() == 4);
    bench.run_until_stable();
    assert!(bench.is_idle());
}

#[test]
fn n4_the_removal_of_the_last_taint_restores_the_node() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN, OUT_OF_SERVICE]));
    bench.run_until_stable();
    bench.take_due();
    bench.deliver(node(1, &[SHUTDOWN]));
    assert!(bench.take_due().is_empty(), "the removal of one of two restores nothing");
    bench.deliver(node(1, &[]));
    assert_eq!(bench.take_due(), all(RESTORE));
    bench.run_until_stable();
    assert!(bench.downs().is_empty() && bench.is_idle());
    assert!(bench.set.addresses.is_empty() && bench.set.restorable.is_empty(), "no Down of ours is left");
}

#[test]
fn n3_a_taint_removed_halfway_restores_the_written_pools() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.write(&pool("lb", "web"));
    bench.take_due();
    bench.deliver(node(1, &[]));
    assert_eq!(bench.take_due(), [("lb/web".to_owned(), RESTORE)]);
    assert_eq!(bench.due.len(), 1, "pools without a write get no call");
    bench.run_until_stable();
    assert!(bench.downs().is_empty() && bench.is_idle());
    bench.deliver(node(1, &[SHUTDOWN]));
    assert_eq!(bench.take_due(), all(DOWN), "and again");
}

#[test]
fn n3_a_restore_waits_for_a_withdrawn_write_in_flight() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    let web = pool("lb", "web");
    // The write of this pool has begun. The writer answers the withdrawal when it ends.
    let begun = bench.due.remove(&web).expect("due");
    let set = Arc::clone(&bench.set);
    bench.deliver(node(1, &[]));
    let generation = bench.set.generation;
    bench.observe_all();
    bench.observe_all();
    assert!(!bench.is_idle(), "the node is not done, even after a read in the meantime");
    bench.azure.get_mut(&web).expect("a pool").insert(ips(1)[0], State::Down);
    bench.finished(&web, set.generation, None);
    assert_eq!(bench.set.generation, generation);
    bench.withdrawn(&web);
    assert_eq!(begun.urgency, DOWN);
    assert_eq!(bench.due.get(&web).map(|due| due.urgency), Some(RESTORE));
    bench.run_until_stable();
    assert!(bench.downs().is_empty() && bench.is_idle());
}

#[test]
fn n4_a_deleted_node_costs_no_call() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.take_due();
    bench.delete(1);
    bench.observe_all();
    assert!(bench.take_due().is_empty() && bench.set.addresses.is_empty() && bench.set.restorable.is_empty());
    for entries in bench.azure.values_mut() {
        entries.retain(|ip, _| !ips(1).contains(ip));
    }
    bench.observe_all();
    assert!(bench.take_due().is_empty() && bench.is_idle());
}

#[test]
fn n3_a_deleted_node_leaves_the_queue() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.fail(&pool("lb", "web"), 500);
    bench.delete(1);
    assert_eq!(bench.due.len(), 0, "updates without a write are withdrawn");
    bench.take_due();
    bench.pass(60_000);
    bench.observe_all();
    assert!(bench.take_due().is_empty() && bench.is_idle());
}

#[test]
fn s4_dropped_work_is_no_result() {
    let mut bench = Bench::new(2);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.answer_all();
    assert_eq!((bench.state(1), bench.writes), (Some(NodeState::Draining), 1), "only its record was written");
    bench.deliver(node(1, &[]));
    bench.run_until_stable();
    assert!(bench.is_idle(), "no entry of the node is Down");
    assert_eq!(bench.machine.queue.results().success, 0, "the taint was removed before any pool was written");
    // Deleted before any pool was written.
    bench.deliver(node(2, &[SHUTDOWN]));
    bench.delete(2);
    bench.run_until_stable();
    assert!(bench.is_idle());
    assert_eq!(bench.machine.queue.results().success, 0);
}

#[test]
fn s4_a_written_node_is_one_result_down_and_one_back() {
    let mut bench = Bench::new(2);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    assert_eq!(bench.machine.queue.results().success, 1);
    bench.deliver(node(1, &[]));
    bench.run_until_stable();
    assert!(bench.downs().is_empty() && bench.is_idle());
    assert_eq!(bench.machine.queue.results().success, 2);
    // One of its pools is written before the taint goes.
    bench.deliver(node(2, &[SHUTDOWN]));
    bench.write(&pool("lb", "web"));
    bench.deliver(node(2, &[]));
    bench.run_until_stable();
    assert!(bench.downs().is_empty() && bench.is_idle());
    assert_eq!(bench.machine.queue.results().success, 3);
}

#[test]
fn n2_a_node_replaced_under_the_same_name_is_not_down() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.take_due();
    let other = NodeFact { uid: uid("another"), ips: ips(9).into(), ..node(1, &[]) };
    bench.deliver(other);
    assert!(bench.set.addresses.is_empty() && bench.take_due().is_empty());
    assert!(bench.set.restorable.is_empty(), "no node has the old addresses");
}

#[test]
fn n4_a_leftover_down_ends_when_a_new_node_has_the_address() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.take_due();
    // The new node appears before the old object is deleted.
    bench.deliver(NodeFact { ips: ips(1).into(), ..node(9, &[]) });
    assert_eq!(bench.take_due(), all(RESTORE));
    bench.write_all();
    bench.delete(1);
    bench.run_until_stable();
    assert!(bench.downs().is_empty() && bench.is_idle());
}

#[test]
fn n4_a_foreign_down_stays_down() {
    let mut bench = Bench::new(4);
    let web = pool("lb", "web");
    for n in [1, 2] {
        bench.azure.get_mut(&web).expect("a pool").insert(ips(n)[0], State::Down);
    }
    bench.observe_all();
    assert!(bench.take_due().is_empty(), "nor is one reported as ours on a node that does not drain");
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.deliver(node(1, &[]));
    bench.run_until_stable();
    assert_eq!(bench.downs(), [(ips(1)[0], 1), (ips(2)[0], 1)].into());
    assert!(bench.is_idle());
}

#[test]
fn n4_draining_overrides_up_and_an_entry_added_again_goes_down() {
    let mut bench = Bench::new(4);
    let web = pool("lb", "web");
    bench.azure.get_mut(&web).expect("a pool").insert(ips(1)[0], State::Up);
    bench.observe_all();
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    assert_eq!(bench.downs()[&ips(1)[0]], 2);
    bench.take_due();
    bench.azure.get_mut(&web).expect("a pool").insert(ips(1)[0], State::None);
    bench.observe_all();
    assert_eq!(bench.take_due(), [("lb/web".to_owned(), DOWN)]);
    bench.run_until_stable();
    assert!(bench.is_idle());
}

#[test]
fn d3_an_observation_from_before_the_end_of_a_write_is_ignored() {
    let mut bench = Bench::new(4);
    let began = bench.now;
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.pass(5);
    let before = bench.azure.clone();
    bench.write_all();
    bench.take_due();
    let after = std::mem::replace(&mut bench.azure, before);
    bench.observe_at("lb", began);
    assert!(bench.take_due().is_empty() && !bench.is_idle(), "it completes no node");
    bench.azure = after;
    bench.observe_all();
    assert!(bench.is_idle());
}

#[test]
fn n3_failing_pools_are_retried_and_the_others_are_done() {
    let mut bench = Bench::new(4);
    let web = pool("lb", "web");
    bench.deliver(node(1, &[SHUTDOWN]));
    for other in bench.due.keys().filter(|id| **id != web).cloned().collect::<Vec<_>>() {
        bench.write(&other);
    }
    bench.observe_all();
    bench.take_due();
    bench.fail(&web, 500);
    assert!(bench.take_due().is_empty(), "not at once");
    let mut waits = Vec::new();
    while waits.len() < 14 {
        let failed = bench.now;
        while bench.take_due().is_empty() {
            let at = bench.machine.deadline().expect("it is tried again");
            bench.pass(at.since(bench.now).as_millis().try_into().expect("a short time"));
        }
        waits.push(bench.now.since(failed).as_millis());
        assert_eq!(bench.due.keys().collect::<Vec<_>>(), [&web]);
        bench.fail(&web, 500);
    }
    assert_eq!(waits[..6], [5, 10, 20, 40, 80, 160]);
    assert_eq!(waits[12..], [15_000, 15_000], "up to adminState.maxBackoff");
    bench.deliver(node(1, &[]));
    bench.run_until_stable();
    assert!(bench.downs().is_empty() && bench.is_idle());
}

#[test]
fn n4_a_recreated_load_balancer_may_contain_downs() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.deliver(node(1, &[]));
    bench.answer_all();
    for pool in bench.due.keys().filter(|id| id.lb.as_str() == "lb").cloned().collect::<Vec<_>>() {
        bench.write(&pool);
    }
    bench.step_absent("lb-internal");
    bench.observe_at("lb", bench.now);
    bench.pass(60_000);
    bench.answer_all();
    assert_eq!(bench.recorded(), ["node-1"], "its Downs may still be there");
    bench.run_until_stable();
    assert!(bench.downs().is_empty() && bench.recorded().is_empty());
}

#[test]
fn n3_no_node_waits_for_a_load_balancer_that_never_existed() {
    let mut bench = Bench::silent(Role::On, 4);
    bench.azure.retain(|id, _| id.lb.as_str() == "lb");
    (1..=4).for_each(|n| bench.deliver(node(n, &[])));
    bench.observe_at("lb", bench.now);
    bench.step_absent("lb-internal");
    bench.lead(1);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.write_all();
    bench.pass(1);
    bench.observe_at("lb", bench.now);
    assert_eq!(bench.state(1).map(NodeState::as_str), Some("down"));
}

#[test]
fn n3_a_down_does_not_wait_for_the_retry_of_another_node() {
    let mut bench = Bench::new(8);
    let web = pool("lb", "web");
    bench.deliver(node(1, &[SHUTDOWN]));
    for _ in 0..3 {
        bench.fail(&web, 500);
        bench.pass(100);
    }
    bench.fail(&web, 500);
    bench.take_due();
    bench.deliver(node(2, &[SHUTDOWN]));
    assert!(bench.take_due().contains(&("lb/web".to_owned(), DOWN)));
}

#[test]
fn n3_no_node_waits_for_a_pool_that_does_not_exist() {
    let mut bench = Bench::new(4);
    let web = pool("lb", "web");
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.azure.remove(&web);
    bench.fail(&web, 404);
    bench.run_until_stable();
    assert!(bench.is_idle());
}

#[test]
fn n5_at_most_half_of_the_ready_nodes_are_down() {
    let mut bench = Bench::new(6);
    for n in 1..=5 {
        bench.deliver(node(n, &[SHUTDOWN]));
        bench.pass(1);
    }
    let drains = |bench: &Bench| bench.set.addresses.values().collect::<BTreeSet<_>>().len();
    assert_eq!(drains(&bench), 3, "of six");
    bench.deliver(NodeFact { ready: false, ..node(5, &[SHUTDOWN]) });
    assert_eq!(drains(&bench), 4, "a node that is not Ready goes Down immediately");
    bench.delete(1);
    let of_four = (Some(NodeState::Held), 3);
    assert_eq!((bench.state(4), drains(&bench)), of_four, "two of the four that are Ready are Down");
    bench.deliver(node(7, &[]));
    bench.deliver(node(8, &[]));
    bench.deliver(node(9, &[]));
    assert!(bench.set.addresses.values().any(|of| *of == uid("node-4")), "the waiting node is next");
    bench.run_until_stable();
    assert!(bench.is_idle());
}

#[test]
fn w8_a_term_begins_with_known_nodes_and_draining_set() {
    let mut bench = Bench::silent(Role::On, 4);
    bench.observe_all();
    bench.step(In::Opened(Epoch(3)));
    assert_eq!(bench.opened, None);
    bench.step(In::Confirmed(Epoch(2)));
    assert_eq!(bench.opened, None, "these records are from an earlier term");
    bench.step(In::Confirmed(Epoch(3)));
    assert_eq!(bench.opened, Some(Epoch(3)));
    bench.step(In::Opened(Epoch(4)));
    assert_eq!(bench.opened, Some(Epoch(3)));
    bench.step(In::Confirmed(Epoch(5)));
    assert_eq!(bench.opened, Some(Epoch(4)), "newer records suffice");
}

#[test]
fn w8_a_silent_machine_outputs_only_that_a_term_may_begin() {
    let mut bench = Bench::silent(Role::Silent, 4);
    bench.observe_all();
    bench.step(In::Opened(Epoch(3)));
    assert_eq!(bench.opened, Some(Epoch(3)));
    bench.lead(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.observe_all();
    assert_eq!((bench.take_due().len(), bench.requested_reads, bench.set.generation), (0, 0, 0));
    assert_eq!(bench.machine.deadline(), None);
}

#[test]
fn g6_no_drain_begins_on_standby_in_observe_or_while_paused() {
    let stops: [fn(&mut Bench); 3] = [
        |bench| bench.step(In::Leadership(Leadership::Standby)),
        |bench| bench.set_policy(1, OperatorPolicy { mode: Mode::Observe, ..OperatorPolicy::default() }),
        |bench| {
            bench.set_policy(
                1,
                OperatorPolicy { everything: Some(Pause::default()), ..OperatorPolicy::default() },
            )
        },
    ];
    for stop in stops {
        let mut bench = Bench::new(4);
        stop(&mut bench);
        bench.deliver(node(1, &[SHUTDOWN]));
        bench.observe_all();
        bench.pass(60_000);
        assert_eq!((bench.take_due().len(), bench.requested_reads, bench.set.generation), (0, 0, 0));
        bench.lead(2);
        assert_eq!(bench.take_due(), all(DOWN), "it continues by itself");
    }
    let mut bench = Bench::new(4);
    let shop =
        OperatorPolicy { pools: [(pool("lb", "web"), Pause::default())].into(), ..OperatorPolicy::default() };
    bench.set_policy(1, OperatorPolicy { mode: Mode::AddOnly, ..shop });
    bench.deliver(node(1, &[SHUTDOWN]));
    assert_eq!(bench.take_due(), all(DOWN), "pauses of single pools and add-only allow Downs");
}

#[test]
fn w8_a_new_term_posts_its_events_again() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.write(&pool("lb", "web"));
    bench.take_due();
    bench.due.clear();
    bench.step(In::Leadership(Leadership::Standby));
    bench.lead(2);
    assert_eq!(bench.take_due().len(), 3);
    bench.run_until_stable();
    assert_eq!(bench.downs().len(), 2);
    assert!(bench.is_idle());
}

/// Number of requests for a pool within this time, if every write fails.
fn tries(bench: &mut Bench, id: &PoolId, millis: u64) -> usize {
    let (until, mut tries) = (bench.now.plus(Duration::from_millis(millis)), 0);
    while bench.now < until {
        while bench.due.contains_key(id) {
            tries += 1;
            bench.fail(id, 409);
        }
        bench.pass(1);
    }
    tries
}

#[test]
fn s1_many_nodes_cause_as_many_retries_of_a_pool_as_one() {
    let mut bench = Bench::new(40);
    let web = pool("lb", "web");
    for n in 1..=10 {
        bench.deliver(node(n, &[SHUTDOWN]));
        assert!(bench.due.contains_key(&web), "a new update is requested immediately");
        tries(&mut bench, &web, 1_000);
    }
    tries(&mut bench, &web, 60_000);
    assert!(tries(&mut bench, &web, 60_000) <= 5, "each 15 s, and not each node each 15 s");
    assert!(bench.due.values().all(|due| !due.again), "the other pools are requested for the first time");
    while !bench.due.contains_key(&web) {
        bench.pass(1);
    }
    assert!(bench.due[&web].again);
    bench.run_until_stable();
    assert_eq!(bench.downs().len(), 20);
}

#[test]
fn n3_a_down_that_does_not_persist_is_retried_and_reported() {
    let mut bench = Bench::new(4);
    let web = pool("lb", "web");
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    assert_eq!(bench.state(1), Some(NodeState::Down));
    bench.reports.clear();
    let mut writes = 0;
    for _ in 0..600 {
        if bench.due.contains_key(&web) {
            bench.write(&web);
            writes += 1;
        }
        bench.set_foreign(1, State::None);
        bench.observe_all();
        bench.pass(100);
    }
    assert!((8..=16).contains(&writes), "{writes} writes in a minute");
    let told = bench.reports.iter().filter(|report| matches!(report.what, EventKind::AdminFailed { .. }));
    assert_eq!(told.count(), 1, "once");
    bench.pass(15_000);
    bench.run_until_stable();
    assert_eq!(bench.downs().len(), 2);
}

#[test]
fn n5_restoring_nodes_count_until_they_are_restored() {
    let mut bench = Bench::new(6);
    for n in 1..=3 {
        bench.deliver(node(n, &[SHUTDOWN]));
    }
    bench.run_until_stable();
    for n in 1..=3 {
        bench.deliver(node(n, &[]));
    }
    for n in 4..=6 {
        bench.deliver(node(n, &[SHUTDOWN]));
        assert_eq!(bench.state(n), Some(NodeState::Held), "three count as Down until a read shows otherwise");
    }
    bench.deliver(node(1, &[SHUTDOWN]));
    assert_eq!((bench.state(1), bench.drains()), (Some(NodeState::Draining), vec!["node-1"]));
    bench.run_until_stable();
    bench.run_until_stable();
    assert_eq!(bench.drains(), ["node-1", "node-4", "node-5"], "in the order of signals, up to the limit");
    assert_eq!(bench.state(6), Some(NodeState::Held));
}
