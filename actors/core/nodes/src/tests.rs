//! Tests of the machine on the test's clock, with a writer that applies due updates on demand, pools that keep the
//! written states, and an API server with our ConfigMap.

mod fixture;
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
use fixture::{Fixture, LBS, failure, ips, node, pool, taint, uid};
use model::arm::AdminState as State;
use model::draining::AdminUrgency;
use model::object::ResourceVersion;
use model::policy::{Mode, Pause};
use model::report::EventKind;
use model::signals::{DRAINING, OUT_OF_SERVICE, SHUTDOWN};

impl Fixture {
    /// Returns the state of a node in its view.
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
        let mut fixture = Fixture::new(4);
        assert!(fixture.take_due().is_empty() && fixture.set.generation == 0);
        fixture.deliver(node(2, &[key]));
        assert_eq!(fixture.take_due(), all(DOWN), "in the turn of the fact");
        assert_eq!(fixture.set.addresses.values().collect::<BTreeSet<_>>(), [&uid("node-2")].into());
        assert!(fixture.requested_reads > 0, "unknown pools may contain it");
        fixture.run_until_stable();
        assert_eq!(fixture.downs(), ips(2).map(|ip| (ip, 2)).into());
        assert!(fixture.is_idle() && fixture.take_due().is_empty(), "further reads cause no work");
    }
}

#[test]
fn n2_one_due_for_all_nodes_of_a_pool_with_the_oldest_signal() {
    let mut fixture = Fixture::new(8);
    fixture.deliver(node(1, &[SHUTDOWN]));
    let first = fixture.due.clone();
    fixture.pass(500);
    fixture.deliver(node(2, &[SHUTDOWN]));
    assert_eq!(fixture.due.len(), 4);
    assert!(fixture.due.iter().all(|(pool, due)| due.since == first[pool].since && due.generation == 2));
    fixture.write_all();
    assert_eq!(fixture.downs().len(), 4);
    fixture.observe_all();
    assert!(fixture.due.is_empty() && fixture.is_idle());
}

#[test]
fn n2_no_drain_and_an_excluded_pool_cause_no_work() {
    let mut fixture = Fixture::new(3);
    let excluded = pool("lb", "AksOutboundBackendPool");
    fixture.azure.insert(excluded.clone(), [(ips(1)[0], State::None)].into());
    fixture.observe_all();
    assert_eq!((fixture.set.generation, fixture.requested_reads), (0, 0));
    fixture.deliver(node(1, &[SHUTDOWN]));
    assert!(!fixture.due.contains_key(&excluded) && fixture.due.len() == 4);
    fixture.run_until_stable();
    assert!(fixture.is_idle());
}

#[test]
fn n4_the_removal_of_the_last_taint_restores_the_node() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN, OUT_OF_SERVICE]));
    fixture.run_until_stable();
    fixture.take_due();
    fixture.deliver(node(1, &[SHUTDOWN]));
    assert!(fixture.take_due().is_empty(), "the removal of one of two restores nothing");
    fixture.deliver(node(1, &[]));
    assert_eq!(fixture.take_due(), all(RESTORE));
    fixture.run_until_stable();
    assert!(fixture.downs().is_empty() && fixture.is_idle());
    assert!(fixture.set.addresses.is_empty() && fixture.set.restorable.is_empty(), "no Down of ours is left");
}

#[test]
fn n3_a_taint_removed_halfway_restores_the_written_pools() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.write(&pool("lb", "web"));
    fixture.take_due();
    fixture.deliver(node(1, &[]));
    assert_eq!(fixture.take_due(), [("lb/web".to_owned(), RESTORE)]);
    assert_eq!(fixture.due.len(), 1, "pools without a write get no call");
    fixture.run_until_stable();
    assert!(fixture.downs().is_empty() && fixture.is_idle());
    fixture.deliver(node(1, &[SHUTDOWN]));
    assert_eq!(fixture.take_due(), all(DOWN), "and again");
}

#[test]
fn n3_a_restore_waits_for_a_withdrawn_write_in_flight() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    let web = pool("lb", "web");
    // The write of this pool has begun. The writer answers the withdrawal when it ends.
    let begun = fixture.due.remove(&web).expect("due");
    let set = Arc::clone(&fixture.set);
    fixture.deliver(node(1, &[]));
    let generation = fixture.set.generation;
    fixture.observe_all();
    fixture.observe_all();
    assert!(!fixture.is_idle(), "the node is not done, even after a read in the meantime");
    fixture.azure.get_mut(&web).expect("a pool").insert(ips(1)[0], State::Down);
    fixture.finished(&web, set.generation, None);
    assert_eq!(fixture.set.generation, generation);
    fixture.withdrawn(&web);
    assert_eq!(begun.urgency, DOWN);
    assert_eq!(fixture.due.get(&web).map(|due| due.urgency), Some(RESTORE));
    fixture.run_until_stable();
    assert!(fixture.downs().is_empty() && fixture.is_idle());
}

#[test]
fn n4_a_deleted_node_costs_no_call() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.take_due();
    fixture.delete(1);
    fixture.observe_all();
    assert!(
        fixture.take_due().is_empty()
            && fixture.set.addresses.is_empty()
            && fixture.set.restorable.is_empty()
    );
    for entries in fixture.azure.values_mut() {
        entries.retain(|ip, _| !ips(1).contains(ip));
    }
    fixture.observe_all();
    assert!(fixture.take_due().is_empty() && fixture.is_idle());
}

#[test]
fn n3_a_deleted_node_leaves_the_queue() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.fail(&pool("lb", "web"), 500);
    fixture.delete(1);
    assert_eq!(fixture.due.len(), 0, "updates without a write are withdrawn");
    fixture.take_due();
    fixture.pass(60_000);
    fixture.observe_all();
    assert!(fixture.take_due().is_empty() && fixture.is_idle());
}

#[test]
fn s4_dropped_work_is_no_result() {
    let mut fixture = Fixture::new(2);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.answer_all();
    assert_eq!(
        (fixture.state(1), fixture.writes),
        (Some(NodeState::Draining), 1),
        "only its record was written"
    );
    fixture.deliver(node(1, &[]));
    fixture.run_until_stable();
    assert!(fixture.is_idle(), "no entry of the node is Down");
    assert_eq!(
        fixture.machine.queue.results().success,
        0,
        "the taint was removed before any pool was written"
    );
    // Deleted before any pool was written.
    fixture.deliver(node(2, &[SHUTDOWN]));
    fixture.delete(2);
    fixture.run_until_stable();
    assert!(fixture.is_idle());
    assert_eq!(fixture.machine.queue.results().success, 0);
}

#[test]
fn s4_a_written_node_is_one_result_down_and_one_back() {
    let mut fixture = Fixture::new(2);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    assert_eq!(fixture.machine.queue.results().success, 1);
    fixture.deliver(node(1, &[]));
    fixture.run_until_stable();
    assert!(fixture.downs().is_empty() && fixture.is_idle());
    assert_eq!(fixture.machine.queue.results().success, 2);
    // One of its pools is written before the taint is removed.
    fixture.deliver(node(2, &[SHUTDOWN]));
    fixture.write(&pool("lb", "web"));
    fixture.deliver(node(2, &[]));
    fixture.run_until_stable();
    assert!(fixture.downs().is_empty() && fixture.is_idle());
    assert_eq!(fixture.machine.queue.results().success, 3);
}

#[test]
fn n2_a_node_replaced_under_the_same_name_is_not_down() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.take_due();
    let other = NodeFact { uid: uid("another"), ips: ips(9).into(), ..node(1, &[]) };
    fixture.deliver(other);
    assert!(fixture.set.addresses.is_empty() && fixture.take_due().is_empty());
    assert!(fixture.set.restorable.is_empty(), "no node has the old addresses");
}

#[test]
fn n4_a_leftover_down_ends_when_a_new_node_has_the_address() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.take_due();
    // The new node appears before the old object is deleted.
    fixture.deliver(NodeFact { ips: ips(1).into(), ..node(9, &[]) });
    assert_eq!(fixture.take_due(), all(RESTORE));
    fixture.write_all();
    fixture.delete(1);
    fixture.run_until_stable();
    assert!(fixture.downs().is_empty() && fixture.is_idle());
}

#[test]
fn n4_a_foreign_down_stays_down() {
    let mut fixture = Fixture::new(4);
    let web = pool("lb", "web");
    for n in [1, 2] {
        fixture.azure.get_mut(&web).expect("a pool").insert(ips(n)[0], State::Down);
    }
    fixture.observe_all();
    assert!(fixture.take_due().is_empty(), "nor is one reported as ours on a node that does not drain");
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.deliver(node(1, &[]));
    fixture.run_until_stable();
    assert_eq!(fixture.downs(), [(ips(1)[0], 1), (ips(2)[0], 1)].into());
    assert!(fixture.is_idle());
}

#[test]
fn n4_draining_overrides_up_and_readded_entries_are_set_down() {
    let mut fixture = Fixture::new(4);
    let web = pool("lb", "web");
    fixture.azure.get_mut(&web).expect("a pool").insert(ips(1)[0], State::Up);
    fixture.observe_all();
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    assert_eq!(fixture.downs()[&ips(1)[0]], 2);
    fixture.take_due();
    fixture.azure.get_mut(&web).expect("a pool").insert(ips(1)[0], State::None);
    fixture.observe_all();
    assert_eq!(fixture.take_due(), [("lb/web".to_owned(), DOWN)]);
    fixture.run_until_stable();
    assert!(fixture.is_idle());
}

#[test]
fn d3_an_observation_from_before_the_end_of_a_write_is_ignored() {
    let mut fixture = Fixture::new(4);
    let began = fixture.now;
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.pass(5);
    let before = fixture.azure.clone();
    fixture.write_all();
    fixture.take_due();
    let after = std::mem::replace(&mut fixture.azure, before);
    fixture.observe_at("lb", began);
    assert!(fixture.take_due().is_empty() && !fixture.is_idle(), "it completes no node");
    fixture.azure = after;
    fixture.observe_all();
    assert!(fixture.is_idle());
}

#[test]
fn n3_failing_pools_are_retried_and_the_others_are_done() {
    let mut fixture = Fixture::new(4);
    let web = pool("lb", "web");
    fixture.deliver(node(1, &[SHUTDOWN]));
    for other in fixture.due.keys().filter(|id| **id != web).cloned().collect::<Vec<_>>() {
        fixture.write(&other);
    }
    fixture.observe_all();
    fixture.take_due();
    fixture.fail(&web, 500);
    assert!(fixture.take_due().is_empty(), "not at once");
    let mut waits = Vec::new();
    while waits.len() < 14 {
        let failed = fixture.now;
        while fixture.take_due().is_empty() {
            let at = fixture.machine.deadline().expect("it is tried again");
            fixture.pass(at.since(fixture.now).as_millis().try_into().expect("a short time"));
        }
        waits.push(fixture.now.since(failed).as_millis());
        assert_eq!(fixture.due.keys().collect::<Vec<_>>(), [&web]);
        fixture.fail(&web, 500);
    }
    assert_eq!(waits[..6], [5, 10, 20, 40, 80, 160]);
    assert_eq!(waits[12..], [15_000, 15_000], "up to adminState.maxBackoff");
    fixture.deliver(node(1, &[]));
    fixture.run_until_stable();
    assert!(fixture.downs().is_empty() && fixture.is_idle());
}

#[test]
fn n4_a_recreated_load_balancer_may_contain_downs() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.deliver(node(1, &[]));
    fixture.answer_all();
    for pool in fixture.due.keys().filter(|id| id.lb.as_str() == "lb").cloned().collect::<Vec<_>>() {
        fixture.write(&pool);
    }
    fixture.step_absent("lb-internal");
    fixture.observe_at("lb", fixture.now);
    fixture.pass(60_000);
    fixture.answer_all();
    assert_eq!(fixture.recorded(), ["node-1"], "its Downs may still be there");
    fixture.run_until_stable();
    assert!(fixture.downs().is_empty() && fixture.recorded().is_empty());
}

#[test]
fn n3_no_node_waits_for_a_load_balancer_that_never_existed() {
    let mut fixture = Fixture::silent(Role::On, 4);
    fixture.azure.retain(|id, _| id.lb.as_str() == "lb");
    (1..=4).for_each(|n| fixture.deliver(node(n, &[])));
    fixture.observe_at("lb", fixture.now);
    fixture.step_absent("lb-internal");
    fixture.lead(1);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.write_all();
    fixture.pass(1);
    fixture.observe_at("lb", fixture.now);
    assert_eq!(fixture.state(1).map(NodeState::as_str), Some("down"));
}

#[test]
fn n3_a_down_does_not_wait_for_the_retry_of_another_node() {
    let mut fixture = Fixture::new(8);
    let web = pool("lb", "web");
    fixture.deliver(node(1, &[SHUTDOWN]));
    for _ in 0..3 {
        fixture.fail(&web, 500);
        fixture.pass(100);
    }
    fixture.fail(&web, 500);
    fixture.take_due();
    fixture.deliver(node(2, &[SHUTDOWN]));
    assert!(fixture.take_due().contains(&("lb/web".to_owned(), DOWN)));
}

#[test]
fn n3_no_node_waits_for_a_pool_that_does_not_exist() {
    let mut fixture = Fixture::new(4);
    let web = pool("lb", "web");
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.azure.remove(&web);
    fixture.fail(&web, 404);
    fixture.run_until_stable();
    assert!(fixture.is_idle());
}

#[test]
fn n5_at_most_half_of_the_ready_nodes_are_down() {
    let mut fixture = Fixture::new(6);
    for n in 1..=5 {
        fixture.deliver(node(n, &[SHUTDOWN]));
        fixture.pass(1);
    }
    let drains = |fixture: &Fixture| fixture.set.addresses.values().collect::<BTreeSet<_>>().len();
    assert_eq!(drains(&fixture), 3, "of six");
    fixture.deliver(NodeFact { ready: false, ..node(5, &[SHUTDOWN]) });
    assert_eq!(drains(&fixture), 4, "a node that is not Ready goes Down immediately");
    fixture.delete(1);
    let of_four = (Some(NodeState::Held), 3);
    assert_eq!((fixture.state(4), drains(&fixture)), of_four, "two of the four that are Ready are Down");
    fixture.deliver(node(7, &[]));
    fixture.deliver(node(8, &[]));
    fixture.deliver(node(9, &[]));
    assert!(fixture.set.addresses.values().any(|of| *of == uid("node-4")), "the waiting node is next");
    fixture.run_until_stable();
    assert!(fixture.is_idle());
}

#[test]
fn w8_a_term_begins_with_known_nodes_and_draining_set() {
    let mut fixture = Fixture::silent(Role::On, 4);
    fixture.observe_all();
    fixture.step(In::Opened(Epoch(3)));
    assert_eq!(fixture.opened, None);
    fixture.step(In::Confirmed(Epoch(2)));
    assert_eq!(fixture.opened, None, "these records are from an earlier term");
    fixture.step(In::Confirmed(Epoch(3)));
    assert_eq!(fixture.opened, Some(Epoch(3)));
    fixture.step(In::Opened(Epoch(4)));
    assert_eq!(fixture.opened, Some(Epoch(3)));
    fixture.step(In::Confirmed(Epoch(5)));
    assert_eq!(fixture.opened, Some(Epoch(4)), "newer records suffice");
}

#[test]
fn w8_a_silent_machine_outputs_only_that_a_term_may_begin() {
    let mut fixture = Fixture::silent(Role::Silent, 4);
    fixture.observe_all();
    fixture.step(In::Opened(Epoch(3)));
    assert_eq!(fixture.opened, Some(Epoch(3)));
    fixture.lead(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.observe_all();
    assert_eq!((fixture.take_due().len(), fixture.requested_reads, fixture.set.generation), (0, 0, 0));
    assert_eq!(fixture.machine.deadline(), None);
}

#[test]
fn g6_no_drain_begins_on_standby_in_observe_or_while_paused() {
    let stops: [fn(&mut Fixture); 3] = [
        |fixture| fixture.step(In::Leadership(Leadership::Standby)),
        |fixture| fixture.set_policy(1, OperatorPolicy { mode: Mode::Observe, ..OperatorPolicy::default() }),
        |fixture| {
            fixture.set_policy(
                1,
                OperatorPolicy { everything: Some(Pause::default()), ..OperatorPolicy::default() },
            )
        },
    ];
    for stop in stops {
        let mut fixture = Fixture::new(4);
        stop(&mut fixture);
        fixture.deliver(node(1, &[SHUTDOWN]));
        fixture.observe_all();
        fixture.pass(60_000);
        assert_eq!((fixture.take_due().len(), fixture.requested_reads, fixture.set.generation), (0, 0, 0));
        fixture.lead(2);
        assert_eq!(fixture.take_due(), all(DOWN), "it continues by itself");
    }
    let mut fixture = Fixture::new(4);
    let shop =
        OperatorPolicy { pools: [(pool("lb", "web"), Pause::default())].into(), ..OperatorPolicy::default() };
    fixture.set_policy(1, OperatorPolicy { mode: Mode::AddOnly, ..shop });
    fixture.deliver(node(1, &[SHUTDOWN]));
    assert_eq!(fixture.take_due(), all(DOWN), "pauses of single pools and add-only allow Downs");
}

#[test]
fn w8_a_new_term_posts_its_events_again() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.write(&pool("lb", "web"));
    fixture.take_due();
    fixture.due.clear();
    fixture.step(In::Leadership(Leadership::Standby));
    fixture.lead(2);
    assert_eq!(fixture.take_due().len(), 3);
    fixture.run_until_stable();
    assert_eq!(fixture.downs().len(), 2);
    assert!(fixture.is_idle());
}

/// Returns the number of requests for a pool within this time, if every write fails.
fn tries(fixture: &mut Fixture, id: &PoolId, millis: u64) -> usize {
    let (until, mut tries) = (fixture.now.plus(Duration::from_millis(millis)), 0);
    while fixture.now < until {
        while fixture.due.contains_key(id) {
            tries += 1;
            fixture.fail(id, 409);
        }
        fixture.pass(1);
    }
    tries
}

#[test]
fn s1_many_nodes_cause_as_many_retries_of_a_pool_as_one() {
    let mut fixture = Fixture::new(40);
    let web = pool("lb", "web");
    for n in 1..=10 {
        fixture.deliver(node(n, &[SHUTDOWN]));
        assert!(fixture.due.contains_key(&web), "a new update is requested immediately");
        tries(&mut fixture, &web, 1_000);
    }
    tries(&mut fixture, &web, 60_000);
    assert!(tries(&mut fixture, &web, 60_000) <= 5, "each 15 s, and not each node each 15 s");
    assert!(fixture.due.values().all(|due| !due.again), "the other pools are requested for the first time");
    while !fixture.due.contains_key(&web) {
        fixture.pass(1);
    }
    assert!(fixture.due[&web].again);
    fixture.run_until_stable();
    assert_eq!(fixture.downs().len(), 20);
}

#[test]
fn n3_a_down_that_does_not_persist_is_retried_and_reported() {
    let mut fixture = Fixture::new(4);
    let web = pool("lb", "web");
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    assert_eq!(fixture.state(1), Some(NodeState::Down));
    fixture.reports.clear();
    let mut writes = 0;
    for _ in 0..600 {
        if fixture.due.contains_key(&web) {
            fixture.write(&web);
            writes += 1;
        }
        fixture.set_foreign(1, State::None);
        fixture.observe_all();
        fixture.pass(100);
    }
    assert!((8..=16).contains(&writes), "{writes} writes in a minute");
    let told = fixture.reports.iter().filter(|report| matches!(report.what, EventKind::AdminFailed { .. }));
    assert_eq!(told.count(), 1, "once");
    fixture.pass(15_000);
    fixture.run_until_stable();
    assert_eq!(fixture.downs().len(), 2);
}

#[test]
fn n5_restoring_nodes_count_until_they_are_restored() {
    let mut fixture = Fixture::new(6);
    for n in 1..=3 {
        fixture.deliver(node(n, &[SHUTDOWN]));
    }
    fixture.run_until_stable();
    for n in 1..=3 {
        fixture.deliver(node(n, &[]));
    }
    for n in 4..=6 {
        fixture.deliver(node(n, &[SHUTDOWN]));
        assert_eq!(
            fixture.state(n),
            Some(NodeState::Held),
            "three count as Down until a read shows otherwise"
        );
    }
    fixture.deliver(node(1, &[SHUTDOWN]));
    assert_eq!((fixture.state(1), fixture.drains()), (Some(NodeState::Draining), vec!["node-1"]));
    fixture.run_until_stable();
    fixture.run_until_stable();
    assert_eq!(fixture.drains(), ["node-1", "node-4", "node-5"], "in the order of signals, up to the limit");
    assert_eq!(fixture.state(6), Some(NodeState::Held));
}
