//! Tests of eviction notices: the node goes Down, and its record marks the taint as ours before the taint is added
//! (N1).

use super::*;
use model::ids::EventKey;
use model::object::{Object, PreemptionObject, RequestFailure, TaintEdit};
use model::watch;

fn event(n: u8) -> In {
    let key = EventKey { namespace: "default".into(), name: format!("node-{n}.1").into() };
    In::Preemption(watch::WatchUpdate::Object(Object::Preemption(Arc::new(PreemptionObject {
        key,
        resource_version: ResourceVersion("7".into()),
        node: NodeName::new(format!("node-{n}")),
        uid: None,
        at: None,
        age: Some(Duration::ZERO),
        not_before: None,
        message: "Preempt Scheduled: soon".into(),
    }))))
}

#[test]
fn n1_a_notice_sets_its_node_down_and_is_recorded_first() {
    let mut fixture = Fixture::new(4);
    fixture.answers = false;
    fixture.step(event(1));
    assert_eq!((fixture.state(1), fixture.taints.len()), (Some(NodeState::Recording), 0));
    fixture.answer();
    assert!(fixture.server.text("down.uid-of-node-1").expect("recorded").ends_with("taint: ours\n"));
    assert_eq!((fixture.take_due(), fixture.writes), (all(DOWN), 1), "the Down does not wait for the taint");
    let (call, patch) = fixture.taints.pop().expect("a patch");
    assert_eq!((patch.uid, patch.edit), (uid("node-1"), TaintEdit::AddFirst));
    fixture.step(In::Tainted(call, TaintAnswer::Done));
    fixture.deliver(node(1, &[DRAINING]));
    fixture.run_until_stable();
    assert_eq!((fixture.state(1), fixture.taints.len()), (Some(NodeState::Down), 0));
    // The operator removes the taint.
    fixture.deliver(node(1, &[]));
    fixture.run_until_stable();
    assert!(fixture.recorded().is_empty() && fixture.downs().is_empty());
}

#[test]
fn n1_a_notice_for_a_down_node_is_recorded_before_the_taint() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.answers = false;
    fixture.step(event(1));
    assert_eq!((fixture.requests.len(), fixture.taints.len()), (1, 0));
    fixture.answer();
    assert_eq!(fixture.taints.len(), 1);
    assert!(fixture.server.text("down.uid-of-node-1").expect("recorded").ends_with("taint: ours\n"));
}

#[test]
fn n1_the_record_shows_a_successor_that_the_taint_is_ours() {
    let mut fixture = Fixture::new(4);
    fixture.step(event(1));
    let (call, _) = fixture.taints.pop().expect("a patch");
    fixture.step(In::Tainted(call, TaintAnswer::Done));
    fixture.deliver(node(1, &[DRAINING]));
    fixture.run_until_stable();
    fixture.restart(Role::On);
    fixture.lead(2);
    fixture.run_until_stable();
    assert_eq!((fixture.state(1), fixture.taints.len()), (Some(NodeState::Down), 0));
    // Neither does the process know that when the notice passes.
    fixture.pass(629_000);
    assert_eq!(fixture.taints.len(), 0);
    fixture.pass(2_000);
    let (call, patch) = fixture.taints.pop().expect("a patch");
    assert_eq!(patch.edit, TaintEdit::Remove { at: 0 });
    fixture.step(In::Tainted(call, TaintAnswer::Done));
    fixture.deliver(node(1, &[]));
    fixture.run_until_stable();
    assert!(fixture.recorded().is_empty() && fixture.downs().is_empty() && fixture.is_idle());
}

#[test]
fn n1_an_equal_taint_after_a_crash_before_the_patch_is_ours() {
    let mut fixture = Fixture::new(4);
    fixture.answers = false;
    fixture.step(event(1));
    fixture.fail_ask(true, RequestFailure::Other("lost".into()));
    assert!(fixture.taints.is_empty(), "the record is not confirmed");
    fixture.answers = true;
    fixture.restart(Role::On);
    fixture.deliver(node(1, &[DRAINING]));
    fixture.lead(2);
    fixture.run_until_stable();
    // Without the mark in the record, a taint of ours could stay on a Ready node.
    fixture.pass(631_000);
    let (_, patch) = fixture.taints.pop().expect("a patch");
    assert_eq!(patch.edit, TaintEdit::Remove { at: 0 });
}

#[test]
fn n1_a_notice_received_on_standby_counts_for_a_minute() {
    for (waits, drains) in [(30_000, 1), (90_000, 0)] {
        let mut fixture = Fixture::silent(Role::On, 4);
        for n in 1..=4 {
            fixture.deliver(node(n, &[]));
        }
        fixture.step(event(1));
        fixture.pass(waits);
        fixture.observe_all();
        assert_eq!(fixture.gets + fixture.writes, 0);
        fixture.lead(1);
        assert_eq!((fixture.drains().len(), fixture.taints.len()), (drains, drains), "after {waits} ms");
    }
}

#[test]
fn n4_when_disabled_a_notice_is_ignored() {
    let mut fixture = Fixture::leading(Role::Off, RecordStorage::ConfigMap, 4);
    fixture.step(event(1));
    fixture.pass(60_000);
    assert_eq!((fixture.state(1), fixture.writes, fixture.taints.len()), (None, 0, 0));
}
