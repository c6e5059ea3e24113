//! Terms of leadership: the reporting machines receive each once, and their reports in it are posted.

use super::*;
use model::policy::{Mode, OperatorPolicy};

fn leading_in(epoch: u64, until: Now) -> In {
    In::Leadership(Leadership::Leading { epoch: Epoch(epoch), until })
}

#[test]
fn w8_each_term_and_its_end_is_sent_once_to_the_reporters() {
    let mut drive = Drive::standby(params());
    drive.step(In::Leadership(Leadership::Standby));
    for n in 0..10 {
        drive.step(leading_in(1, Now::from_millis(n)));
    }
    drive.step(In::Leadership(Leadership::Standby));
    drive.step(In::Leadership(Leadership::Standby));
    drive.step(leading_in(2, Now::NEVER));
    drive.step(leading_in(3, Now::NEVER));
    let terms = [Some(1), None, Some(2), Some(3)].map(|term| term.map(Epoch));
    assert_eq!(drive.terms, terms);
}

#[test]
fn w8_events_that_wait_at_the_next_term_belong_to_it() {
    let mut drive = Drive::new(Params { burst: 1, ..params() });
    drive.report(&["a", "b"], updated(3));
    drive.take_next();
    drive.step(leading_in(2, Now::NEVER));
    drive.at(600_000);
    assert!(drive.posts.is_empty(), "the machine repeats its report if the condition lasts");
}

#[test]
fn g6_events_are_dropped_while_nothing_may_be_written() {
    let wish = |mode| {
        let policy = Arc::new(OperatorPolicy { mode, ..OperatorPolicy::default() });
        In::OperatorPolicy { term: Some(Epoch(1)), policy }
    };
    let mut drive = Drive::new(Params { burst: 1, ..params() });
    drive.report(&["a", "b"], updated(3));
    drive.step(In::Report(Report { subjects: vec![Subject::Controller], what: updated(1), note: None }));
    drive.step(wish(Mode::Observe));
    assert_eq!(drive.count(&Metric::EventDropped), 1, "b waited");
    drive.report(&["c"], updated(3));
    assert_eq!(drive.count(&Metric::EventDropped), 2);
    drive.at(60_000);
    let subjects: Vec<Subject> = drive.take_all().iter().map(|event| event.subject.clone()).collect();
    assert_eq!(
        subjects,
        [subject("a"), Subject::Controller],
        "one was sent before, and its answer may arrive"
    );
    drive.step(wish(Mode::AddOnly));
    drive.report(&["d"], updated(3));
    drive.at(120_000);
    assert_eq!(drive.take_all().len(), 1);
    assert_eq!(drive.terms, [Some(1), None, Some(1)].map(|term| term.map(Epoch)));
}

#[test]
fn g6_nothing_is_sent_before_the_policy_of_a_term_is_known() {
    let mut drive = Drive { emitter: Emitter::new(params()), ..Drive::standby(params()) };
    drive.step(In::OperatorPolicy { term: Some(Epoch(1)), policy: Arc::default() });
    drive.step(leading_in(2, Now::NEVER));
    drive.report(&["a"], updated(3));
    assert!(drive.posts.is_empty() && drive.terms.is_empty());
    drive.step(In::OperatorPolicy { term: Some(Epoch(2)), policy: Arc::default() });
    assert_eq!(drive.terms, [Some(Epoch(2))]);
}
