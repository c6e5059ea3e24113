//! Tests of eviction notices: the node goes Down, and its record marks the taint as ours before the taint is added
//! (N1).

use super::*;
use model::ids::EventKey;
use model::object::{Object, PreemptionObject, RequestFailure, TaintEdit};
use model::watch;

fn event(n: u8) -> In {
    let key = EventKey { namespace: "default".into(), name: format!("node-{n}.1").into() };
    In::Preemption(watch::Seen::Object(Object::Preemption(Arc::new(PreemptionObject {
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
    let mut bench = Bench::new(4);
    bench.answers = false;
    bench.step(event(1));
    assert_eq!((bench.state(1), bench.taints.len()), (Some(NodeState::Recording), 0));
    bench.answer();
    assert!(bench.server.text("down.uid-of-node-1").expect("recorded").ends_with("taint: ours\n"));
    assert_eq!((bench.take_due(), bench.writes), (all(DOWN), 1), "the Down does not wait for the taint");
    let (call, patch) = bench.taints.pop().expect("a patch");
    assert_eq!((patch.uid, patch.edit), (uid("node-1"), TaintEdit::AddFirst));
    bench.step(In::Tainted(call, TaintAnswer::Done));
    bench.deliver(node(1, &[DRAINING]));
    bench.run_until_stable();
    assert_eq!((bench.state(1), bench.taints.len()), (Some(NodeState::Down), 0));
    // The operator removes the taint.
    bench.deliver(node(1, &[]));
    bench.run_until_stable();
    assert!(bench.recorded().is_empty() && bench.downs().is_empty());
}

#[test]
fn n1_a_notice_for_a_down_node_is_recorded_before_the_taint() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.answers = false;
    bench.step(event(1));
    assert_eq!((bench.requests.len(), bench.taints.len()), (1, 0));
    bench.answer();
    assert_eq!(bench.taints.len(), 1);
    assert!(bench.server.text("down.uid-of-node-1").expect("recorded").ends_with("taint: ours\n"));
}

#[test]
fn n1_the_record_shows_a_successor_that_the_taint_is_ours() {
    let mut bench = Bench::new(4);
    bench.step(event(1));
    let (call, _) = bench.taints.pop().expect("a patch");
    bench.step(In::Tainted(call, TaintAnswer::Done));
    bench.deliver(node(1, &[DRAINING]));
    bench.run_until_stable();
    bench.restart(Role::On);
    bench.lead(2);
    bench.run_until_stable();
    assert_eq!((bench.state(1), bench.taints.len()), (Some(NodeState::Down), 0));
    // The process does not know either when the notice passes.
    bench.pass(629_000);
    assert_eq!(bench.taints.len(), 0);
    bench.pass(2_000);
    let (call, patch) = bench.taints.pop().expect("a patch");
    assert_eq!(patch.edit, TaintEdit::Remove { at: 0 });
    bench.step(In::Tainted(call, TaintAnswer::Done));
    bench.deliver(node(1, &[]));
    bench.run_until_stable();
    assert!(bench.recorded().is_empty() && bench.downs().is_empty() && bench.is_idle());
}

#[test]
fn n1_an_equal_taint_after_a_crash_before_the_patch_is_ours() {
    let mut bench = Bench::new(4);
    bench.answers = false;
    bench.step(event(1));
    bench.fail_ask(true, RequestFailure::Other("lost".into()));
    assert!(bench.taints.is_empty(), "the record is not confirmed");
    bench.answers = true;
    bench.restart(Role::On);
    bench.deliver(node(1, &[DRAINING]));
    bench.lead(2);
    bench.run_until_stable();
    // Without the mark in the record, a taint of ours could stay on a Ready node.
    bench.pass(631_000);
    let (_, patch) = bench.taints.pop().expect("a patch");
    assert_eq!(patch.edit, TaintEdit::Remove { at: 0 });
}

#[test]
fn n1_a_notice_received_on_standby_counts_for_a_minute() {
    for (waits, drains) in [(30_000, 1), (90_000, 0)] {
        let mut bench = Bench::silent(Role::On, 4);
        for n in 1..=4 {
            bench.deliver(node(n, &[]));
        }
        bench.step(event(1));
        bench.pass(waits);
        bench.observe_all();
        assert_eq!(bench.gets + bench.writes, 0);
        bench.lead(1);
        assert_eq!((bench.drains().len(), bench.taints.len()), (drains, drains), "after {waits} ms");
    }
}

#[test]
fn n4_switched_off_a_notice_is_ignored() {
    let mut bench = Bench::leading(Role::Off, RecordStorage::ConfigMap, 4);
    bench.step(event(1));
    bench.pass(60_000);
    assert_eq!((bench.state(1), bench.writes, bench.taints.len()), (None, 0, 0));
}
