//! Tests of held nodes, and of nodes that the operator releases (N5).

use super::*;
use model::assignment::PausedBy;
use model::operator_request::{Done, Refusal, ReleaseRefusal};

/// Creates a fixture with six nodes, of which four have a signal and three are admitted.
fn held() -> Fixture {
    let mut fixture = Fixture::new(6);
    for n in 1..=4 {
        fixture.deliver(node(n, &[SHUTDOWN]));
        fixture.pass(1);
    }
    assert_eq!((fixture.drains().len(), fixture.state(4)), (3, Some(NodeState::Held)));
    fixture
}

fn name(n: u8) -> NodeName {
    NodeName::new(format!("node-{n}"))
}

fn release(fixture: &mut Fixture, scope: Scope) -> Answer {
    fixture.step(In::Release(RequestId(7), scope));
    fixture.answered.pop().expect("an answer").1
}

fn nothing(stays: ReleaseRefusal) -> Answer {
    Answer::Refused(Refusal::NothingReleased(stays))
}

#[test]
fn n5_nodes_whose_record_is_being_written_count() {
    let mut fixture = Fixture::new(6);
    fixture.answers = false;
    for n in 1..=5 {
        fixture.deliver(node(n, &[SHUTDOWN]));
    }
    let states: Vec<_> = (1..=5).filter_map(|n| fixture.state(n)).map(NodeState::as_str).collect();
    assert_eq!(states, ["recording", "recording", "recording", "held", "held"]);
    fixture.deliver(node(1, &[]));
    assert_eq!(fixture.state(4), Some(NodeState::Recording), "the limit is not reached");
    fixture.answer_all();
    assert_eq!(fixture.drains(), ["node-2", "node-3", "node-4"]);
}

#[test]
fn n5_the_report_contains_the_numbers_behind_the_limit() {
    let mut fixture = held();
    fixture.pass(1_000);
    let what = model::report::EventKind::AdminHeld { down: 3, ready: 6 };
    let says_so = |report: &Report| report.what == what;
    assert!(fixture.reports.iter().any(says_so), "{:?}", fixture.reports);
}

#[test]
fn n5_a_recorded_node_goes_down_regardless_of_the_limit() {
    let mut fixture = held();
    release(&mut fixture, Scope::Node(name(4)));
    fixture.run_until_stable();
    for n in [5, 6] {
        fixture.delete(n);
    }
    fixture.restart(Role::On);
    fixture.lead(2);
    assert_eq!(fixture.drains().len(), 4, "they are Down already, and stay Down");
}

#[test]
fn n5_the_operator_releases_a_node() {
    let mut fixture = held();
    let done = Answer::Done(Done::Released { pools: Vec::new(), nodes: vec![name(4)] });
    assert_eq!(release(&mut fixture, Scope::Node(name(4))), done);
    assert_eq!(fixture.drains().len(), 4);
    assert_eq!(release(&mut fixture, Scope::Node(name(4))), nothing(ReleaseRefusal::NodeNotHeld));
    assert_eq!(release(&mut fixture, Scope::Node(name(5))), nothing(ReleaseRefusal::NodeNotHeld));
    assert_eq!(release(&mut fixture, Scope::Node(name(9))), Answer::Refused(Refusal::Unknown));
    // The released node counts for the limit, which leaves no room for others.
    fixture.deliver(node(5, &[SHUTDOWN]));
    assert_eq!(fixture.state(5), Some(NodeState::Held));
}

#[test]
fn n5_a_released_node_stays_released_until_its_signals_end() {
    let mut fixture = held();
    fixture.answers = false;
    release(&mut fixture, Scope::Node(name(4)));
    // Another term begins before its record is written.
    fixture.requests.clear();
    fixture.step(In::Leadership(Leadership::Standby));
    fixture.answers = true;
    fixture.lead(2);
    fixture.pass(7_000);
    assert_eq!(fixture.drains().len(), 4);
    fixture.deliver(node(4, &[]));
    fixture.run_until_stable();
    fixture.deliver(node(4, &[SHUTDOWN]));
    assert_eq!(fixture.state(4), Some(NodeState::Held));
}

#[test]
fn n5_a_release_of_everything_contains_the_released_nodes() {
    let mut fixture = held();
    fixture.deliver(node(5, &[SHUTDOWN]));
    fixture.step(In::Release(RequestId(3), Scope::Everything));
    assert_eq!(fixture.released, [(RequestId(3), vec![name(4), name(5)])]);
    assert_eq!((fixture.drains().len(), fixture.answered.len()), (5, 0), "the Directory answers");
}

#[test]
fn n5_only_a_machine_that_drains_nodes_releases_them() {
    let mut fixture = held();
    let refused = |fixture: &mut Fixture| match release(fixture, Scope::Node(name(4))) {
        Answer::Refused(refusal) => refusal,
        Answer::Done(done) => panic!("{done:?}"),
    };
    fixture.set_policy(1, OperatorPolicy { mode: Mode::Observe, ..OperatorPolicy::default() });
    assert_eq!(refused(&mut fixture), Refusal::Paused(PausedBy::Mode));
    fixture.set_policy(1, OperatorPolicy { everything: Some(Pause::default()), ..OperatorPolicy::default() });
    assert_eq!(refused(&mut fixture), Refusal::Paused(PausedBy::Everything));
    fixture.step(In::Release(RequestId(3), Scope::Everything));
    assert_eq!(fixture.released.pop(), Some((RequestId(3), vec![])), "the Directory gives the reason");
    fixture.set_policy(1, OperatorPolicy::default());
    fixture.step(In::Leadership(Leadership::Standby));
    assert_eq!(refused(&mut fixture), Refusal::NotLeading);
    assert_eq!(fixture.state(4), Some(NodeState::Held));
    let mut fixture = Fixture::leading(Role::On, RecordStorage::Nothing, 6);
    assert_eq!(release(&mut fixture, Scope::Node(name(4))), Answer::Refused(Refusal::DryRun));
    let mut fixture = Fixture::leading(Role::Silent, RecordStorage::ConfigMap, 6);
    assert_eq!(release(&mut fixture, Scope::Node(name(4))), nothing(ReleaseRefusal::NodeNotHeld));
    fixture.step(In::Release(RequestId(3), Scope::Everything));
    assert_eq!(fixture.released, [(RequestId(3), vec![])], "the request is answered");
}
