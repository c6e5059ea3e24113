//! Tests of held nodes, and of nodes that the operator releases (N5).

use super::*;
use model::assignment::PausedBy;
use model::operator_request::{Done, Refusal, Stays};

/// Creates a bench with six nodes, of which four have a signal and three are admitted.
fn held() -> Bench {
    let mut bench = Bench::new(6);
    for n in 1..=4 {
        bench.deliver(node(n, &[SHUTDOWN]));
        bench.pass(1);
    }
    assert_eq!((bench.drains().len(), bench.state(4)), (3, Some(NodeState::Held)));
    bench
}

fn name(n: u8) -> NodeName {
    NodeName::new(format!("node-{n}"))
}

fn release(bench: &mut Bench, scope: Scope) -> Answer {
    bench.step(In::Release(RequestId(7), scope));
    bench.answered.pop().expect("an answer").1
}

fn nothing(stays: Stays) -> Answer {
    Answer::Refused(Refusal::NothingReleased(stays))
}

#[test]
fn n5_nodes_whose_record_is_being_written_count() {
    let mut bench = Bench::new(6);
    bench.answers = false;
    for n in 1..=5 {
        bench.deliver(node(n, &[SHUTDOWN]));
    }
    let states: Vec<_> = (1..=5).filter_map(|n| bench.state(n)).map(NodeState::as_str).collect();
    assert_eq!(states, ["recording", "recording", "recording", "held", "held"]);
    bench.deliver(node(1, &[]));
    assert_eq!(bench.state(4), Some(NodeState::Recording), "the limit is not reached");
    bench.answer_all();
    assert_eq!(bench.drains(), ["node-2", "node-3", "node-4"]);
}

#[test]
fn n5_the_report_contains_the_numbers_behind_the_limit() {
    let mut bench = held();
    bench.pass(1_000);
    let what = model::report::EventKind::AdminHeld { down: 3, ready: 6 };
    let says_so = |report: &Report| report.what == what;
    assert!(bench.reports.iter().any(says_so), "{:?}", bench.reports);
}

#[test]
fn n5_a_recorded_node_goes_down_whatever_else_is_down() {
    let mut bench = held();
    release(&mut bench, Scope::Node(name(4)));
    bench.run_until_stable();
    for n in [5, 6] {
        bench.delete(n);
    }
    bench.restart(Role::On);
    bench.lead(2);
    assert_eq!(bench.drains().len(), 4, "they are Down already, and stay Down");
}

#[test]
fn n5_the_operator_releases_a_node() {
    let mut bench = held();
    let done = Answer::Done(Done::Released { pools: Vec::new(), nodes: vec![name(4)] });
    assert_eq!(release(&mut bench, Scope::Node(name(4))), done);
    assert_eq!(bench.drains().len(), 4);
    assert_eq!(release(&mut bench, Scope::Node(name(4))), nothing(Stays::NodeNotHeld));
    assert_eq!(release(&mut bench, Scope::Node(name(5))), nothing(Stays::NodeNotHeld));
    assert_eq!(release(&mut bench, Scope::Node(name(9))), Answer::Refused(Refusal::Unknown));
    // It counts for the limit, which leaves no room for others.
    bench.deliver(node(5, &[SHUTDOWN]));
    assert_eq!(bench.state(5), Some(NodeState::Held));
}

#[test]
fn n5_a_released_node_stays_released_until_its_signals_end() {
    let mut bench = held();
    bench.answers = false;
    release(&mut bench, Scope::Node(name(4)));
    // Another term begins before its record is written.
    bench.requests.clear();
    bench.step(In::Leadership(Leadership::Standby));
    bench.answers = true;
    bench.lead(2);
    bench.pass(7_000);
    assert_eq!(bench.drains().len(), 4);
    bench.deliver(node(4, &[]));
    bench.run_until_stable();
    bench.deliver(node(4, &[SHUTDOWN]));
    assert_eq!(bench.state(4), Some(NodeState::Held));
}

#[test]
fn n5_a_release_of_everything_contains_the_released_nodes() {
    let mut bench = held();
    bench.deliver(node(5, &[SHUTDOWN]));
    bench.step(In::Release(RequestId(3), Scope::Everything));
    assert_eq!(bench.released, [(RequestId(3), vec![name(4), name(5)])]);
    assert_eq!((bench.drains().len(), bench.answered.len()), (5, 0), "the Directory answers");
}

#[test]
fn n5_only_a_machine_that_drains_nodes_releases_them() {
    let mut bench = held();
    let refused = |bench: &mut Bench| match release(bench, Scope::Node(name(4))) {
        Answer::Refused(refusal) => refusal,
        Answer::Done(done) => panic!("{done:?}"),
    };
    bench.set_policy(1, OperatorPolicy { mode: Mode::Observe, ..OperatorPolicy::default() });
    assert_eq!(refused(&mut bench), Refusal::Paused(PausedBy::Mode));
    bench.set_policy(1, OperatorPolicy { everything: Some(Pause::default()), ..OperatorPolicy::default() });
    assert_eq!(refused(&mut bench), Refusal::Paused(PausedBy::Everything));
    bench.step(In::Release(RequestId(3), Scope::Everything));
    assert_eq!(bench.released.pop(), Some((RequestId(3), vec![])), "the Directory gives the reason");
    bench.set_policy(1, OperatorPolicy::default());
    bench.step(In::Leadership(Leadership::Standby));
    assert_eq!(refused(&mut bench), Refusal::NotLeading);
    assert_eq!(bench.state(4), Some(NodeState::Held));
    let mut bench = Bench::leading(Role::On, RecordStorage::Nothing, 6);
    assert_eq!(release(&mut bench, Scope::Node(name(4))), Answer::Refused(Refusal::DryRun));
    let mut bench = Bench::leading(Role::Silent, RecordStorage::ConfigMap, 6);
    assert_eq!(release(&mut bench, Scope::Node(name(4))), nothing(Stays::NodeNotHeld));
    bench.step(In::Release(RequestId(3), Scope::Everything));
    assert_eq!(bench.released, [(RequestId(3), vec![])], "the request is answered");
}
