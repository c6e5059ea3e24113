//! Flow control: the next message is read after all notices of the previous one are processed.

use super::*;

fn x() -> ResourceKey {
    endpoints("x")
}

fn y() -> ResourceKey {
    endpoints("y")
}

/// Returns a client whose watchers process nothing by themselves.
fn slow(keys: &[ResourceKey]) -> Run {
    let mut run = Run::watching(keys);
    run.processes_notices = false;
    run
}

/// Returns the update of the last notices.
fn update(run: &Run) -> UpdateId {
    let update = |output: &Out| match output {
        Out::Notice(update, _) => Some(*update),
        Out::Call(_) | Out::Metric(_) => None,
    };
    run.out.iter().rev().find_map(update).expect("something was told")
}

#[test]
fn x2_no_message_is_read_until_the_last_is_processed() {
    let mut run = slow(&[x(), y()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1), good(&y(), 1)]);
    assert_eq!((run.notices().len(), run.reads()), (2, Vec::new()));
    assert_eq!(run.requests(), ["eds 1/a x y"], "it is answered at once all the same");
    run.pass(600_000);
    assert!(run.reads().is_empty());
    run.step(In::Processed(UpdateId(1)));
    assert_eq!(run.reads(), [run.stream(0)]);
    run.step(In::Processed(UpdateId(1)));
    assert!(run.reads().is_empty(), "one message for each");
}

#[test]
fn x2_all_changes_of_one_response_are_one_update() {
    let mut run = slow(&[x(), y()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1), bad(&y())]);
    let updates: BTreeSet<UpdateId> = run
        .out
        .iter()
        .filter_map(|output| match output {
            Out::Notice(update, _) => Some(*update),
            Out::Call(_) | Out::Metric(_) => None,
        })
        .collect();
    assert_eq!(updates.len(), 1);
}

#[test]
fn x2_an_earlier_update_is_not_enough_and_a_later_one_is() {
    let mut run = slow(&[x()]);
    run.pass(15_000);
    let timer = update(&run);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    run.step(In::Processed(timer));
    assert!(run.reads().is_empty());
    run.step(In::Watch(x(), WatcherId(2)));
    let late = update(&run);
    run.step(In::Processed(late));
    assert_eq!(run.reads(), [run.stream(0)]);
}

#[test]
fn x2_an_unknown_update_is_ignored() {
    let mut run = slow(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    run.step(In::Processed(UpdateId(update(&run).0 + 1)));
    assert!(run.reads().is_empty());
}

#[test]
fn x2_a_response_without_changes_delays_no_read() {
    let mut run = slow(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", Vec::new());
    assert_eq!(run.reads(), [run.stream(0)]);
}

#[test]
fn x2_changes_without_a_response_delay_no_read() {
    let mut run = slow(&[x()]);
    run.pass(15_000);
    assert_eq!(run.notices().len(), 1);
    run.respond(ResourceKind::Endpoints, "1", "a", Vec::new());
    assert_eq!(run.reads(), [run.stream(0)]);
}

#[test]
fn x2_the_next_stream_waits_for_the_last_update_too() {
    let mut run = slow(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    let notices = update(&run);
    run.fail(0);
    run.wait();
    assert_eq!((run.requests(), run.reads()), (vec!["eds 1/ x node".to_owned()], Vec::new()));
    run.step(In::Processed(notices));
    assert_eq!(run.reads(), [run.stream(0)]);
}

#[test]
fn x2_a57_no_timer_runs_while_nothing_is_read() {
    let mut run = slow(&[x(), y()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    let notices = update(&run);
    assert_eq!(run.waits(), None);
    run.pass(20_000);
    assert_eq!(run.notices(), [""; 0], "y may be in an unread message");
    run.step(In::Processed(notices));
    assert_eq!((run.notices(), run.waits()), (Vec::new(), Some(15_000)));
}

#[test]
fn x2_a57_a_short_wait_for_watchers_extends_no_timer() {
    let mut run = slow(&[x(), y()]);
    run.pass(1_000);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    let notices = update(&run);
    run.pass(2_000);
    run.step(In::Processed(notices));
    assert_eq!(run.waits(), Some(12_000));
}

#[test]
fn x2_updates_of_former_watchers_delay_no_read() {
    let mut run = slow(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    run.unwatch(&x());
    run.watch(&y());
    assert_eq!(run.reads(), [run.stream(0)]);
}

#[test]
fn x2_two_streams_wait_for_the_same_watchers() {
    let mut run = Run::with(&[PLAIN, PLAIN]);
    run.processes_notices = false;
    run.watch(&x());
    run.fail(0);
    run.respond_from(1, response(ResourceKind::Endpoints, "7", "p", vec![good(&x(), 7)]));
    let notices = update(&run);
    run.wait();
    assert!(run.reads().is_empty());
    run.step(In::Processed(notices));
    assert_eq!(run.reads(), [run.stream(0), run.stream(1)]);
}

#[test]
fn x2_an_empty_message_is_skipped_without_an_answer() {
    let mut run = Run::watching(&[x()]);
    let stream = run.stream(0);
    run.step(StreamEvent::Undecodable(stream));
    assert_eq!((run.reads(), run.requests(), run.notices()), (vec![stream], Vec::new(), Vec::new()));
    assert_eq!((run.state(&x()), run.waits()), ("requested", Some(15_000)), "the server has not answered");
    let mut run = slow(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    let update = update(&run);
    run.step(StreamEvent::Undecodable(run.stream(0)));
    assert_eq!(run.reads(), [], "the watchers have not recorded what came before");
    run.step(In::Processed(update));
    assert_eq!(run.reads(), [run.stream(0)]);
    run.step(StreamEvent::Undecodable(StreamId(99)));
    assert_eq!(run.reads(), []);
}

#[test]
fn x2_a57_undecodable_messages_are_no_response() {
    let mut run = Run::watching(&[x()]);
    run.step(StreamEvent::Undecodable(run.stream(0)));
    assert_eq!(run.samples(), []);
    run.fail(0);
    assert_eq!(run.notices(), ["x fails: UNAVAILABLE"]);
    assert!(run.samples().contains(&XdsMetric::ServerFailure(ServerId(0))));
    assert_eq!(run.wait(), 1_000);
    run.step(StreamEvent::Undecodable(run.stream(0)));
    assert_eq!((run.samples(), run.notices()), (Vec::new(), Vec::new()), "it is not reached by that either");
    run.fail(0);
    assert_eq!((run.notices(), run.wait()), (Vec::new(), 1_600));
}
