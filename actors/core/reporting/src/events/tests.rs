//! Drives the emitter on the test's clock, in place of the reporting machines and the kubernetes port.

mod conditions;
mod messages;
mod terms;
mod updated;
mod volume;

use std::net::IpAddr;

use super::*;
use model::arm::{Failure, FailureKind, RetryAfter};
use model::ids::{Epoch, LbName, PoolId, PoolName, ServiceKey, ServiceUid};
use model::report::{EventKind, ServiceRef};
use model::write_record::{MemberList, Trigger, WriteRecord};

fn params() -> Params {
    Params { capacity: 100, per_second: 10, burst: 20 }
}

fn leading() -> In {
    In::Leadership(Leadership::Leading { epoch: Epoch(1), until: Now::NEVER })
}

fn pool() -> PoolId {
    PoolId::new(LbName::new("kubernetes"), PoolName::new("shop-web"))
}

fn subject(name: &str) -> Subject {
    Subject::Service(ServiceRef { key: ServiceKey::new("shop", name), uid: ServiceUid::new(name) })
}

fn failure(message: &str) -> Arc<Failure> {
    Arc::new(Failure {
        kind: FailureKind::Status(409),
        code: Some("AnotherOperationInProgress".into()),
        inner_codes: Vec::new(),
        message: message.into(),
        retry_after: RetryAfter::Absent,
        correlation_id: Some("c-1".into()),
    })
}

/// Returns a write for `shop/web` that adds and removes these addresses of nodes.
fn record(added: &[u8], removed: &[u8]) -> WriteRecord {
    let list = |last: &[u8]| {
        let mut list = MemberList::default();
        for n in last {
            list.push(&name(&format!("node-{n}")), Some(IpAddr::from([10, 0, 0, *n]).into()));
        }
        list
    };
    let service = ServiceKey::new("shop", "web");
    let of = WriteRecord::of(Trigger::Endpoints, [&service].into_iter(), Some("c-1".into()));
    WriteRecord { added: list(added), removed: list(removed), ..of }
}

fn updated(members: usize) -> EventKind {
    EventKind::Updated { pool: pool(), members, record: Arc::new(record(&[4, 5], &[6])) }
}

fn name(text: &str) -> Arc<str> {
    text.into()
}

struct Drive {
    emitter: Emitter,
    now: Now,
    posts: VecDeque<(CallId, Arc<Event>)>,
    samples: Vec<Metric>,
    dropped: Vec<Dropped>,
    /// The terms sent to the reporting machines.
    terms: Vec<Option<Epoch>>,
}

impl Drive {
    /// Returns the emitter of a leader.
    fn new(params: Params) -> Drive {
        let mut drive = Drive::standby(params);
        drive.step(leading());
        drive
    }

    fn standby(params: Params) -> Drive {
        let (posts, samples, dropped, terms) = (VecDeque::new(), Vec::new(), Vec::new(), Vec::new());
        let mut drive =
            Drive { emitter: Emitter::new(params), now: Now::ZERO, posts, samples, dropped, terms };
        drive.step(In::OperatorPolicy { term: Some(Epoch(u64::MAX)), policy: Arc::default() });
        drive
    }

    fn receive(&mut self, out: Vec<Out>) {
        for output in out {
            match output {
                Out::Post { call, event } => self.posts.push_back((call, event)),
                Out::Reporting(term) => self.terms.push(term),
                Out::Metric(sample) => self.samples.push(sample),
                Out::Dropped(dropped) => self.dropped.push(dropped),
            }
        }
    }

    fn step(&mut self, input: In) {
        let mut out = Vec::new();
        self.emitter.step(self.now, input, &mut out);
        self.receive(out);
    }

    fn report(&mut self, subjects: &[&str], what: EventKind) {
        let subjects = subjects.iter().map(|name| subject(name)).collect();
        self.step(In::Report(Report { subjects, what, note: None }));
    }

    fn answer(&mut self, call: CallId, answer: Result<Arc<str>, PostFailure>) {
        self.step(In::Posted { call, answer });
    }

    /// Answers the oldest post and returns it.
    fn answer_next(&mut self, answer: Result<Arc<str>, PostFailure>) -> Arc<Event> {
        let (call, event) = self.posts.pop_front().expect("posted");
        self.answer(call, answer);
        event
    }

    /// Accepts the oldest post, as the API server.
    fn take_next(&mut self) -> Arc<Event> {
        let (_, event) = self.posts.front().expect("posted");
        let name = match &event.object {
            EventTarget::New(serial) => format!("event-{serial}").into(),
            EventTarget::Existing(name) => Arc::clone(name),
        };
        self.answer_next(Ok(name))
    }

    /// Accepts all posts, including those that follow from the answers.
    fn take_all(&mut self) -> Vec<Arc<Event>> {
        let mut taken = Vec::new();
        while !self.posts.is_empty() {
            taken.push(self.take_next());
        }
        taken
    }

    fn at(&mut self, ms: u64) -> &mut Drive {
        let end = Now::from_millis(ms);
        while let Some(next) = self.emitter.deadline().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            let mut out = Vec::new();
            self.emitter.tick(self.now, &mut out);
            self.receive(out);
            assert!(
                self.emitter.deadline().is_none_or(|after| after > self.now),
                "a deadline stays in the past"
            );
        }
        self.now = end;
        self
    }

    fn count(&self, sample: &Metric) -> usize {
        self.samples.iter().filter(|one| *one == sample).count()
    }
}

#[test]
fn e1_each_subject_gets_one_event_and_equal_ones_merge() {
    let mut drive = Drive::new(Params { burst: 1, ..params() });
    drive.report(&["web", "api"], updated(3));
    drive.report(&["web", "api"], updated(3));
    let first = drive.take_next();
    assert_eq!((&first.subject, first.count), (&subject("web"), 1));
    drive.at(10_000);
    let rest = drive.take_all();
    let posted: Vec<_> = rest.iter().map(|event| (event.subject.clone(), event.count)).collect();
    assert_eq!(
        posted,
        [(subject("api"), 2), (subject("web"), 2)],
        "api waited, and the post about web was in flight"
    );
    assert_eq!(drive.count(&Metric::EventPosted), 3);
}

#[test]
fn e1_events_above_the_rate_are_dropped_and_counted() {
    let mut drive = Drive::new(Params { capacity: 5, per_second: 1, burst: 2 });
    let names: Vec<String> = (0..10).map(|n| format!("s{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    drive.report(&names, updated(3));
    assert_eq!(drive.count(&Metric::EventDropped), 5, "nothing is sent before all inputs are handled");
    assert_eq!(drive.take_all().len(), 2);
    drive.at(999);
    assert!(drive.take_all().is_empty());
    drive.at(3_000);
    assert_eq!(drive.take_all().len(), 3);
}

#[test]
fn e1_at_most_eight_posts_are_unanswered() {
    let mut drive = Drive::new(params());
    for n in 0..12 {
        drive.report(&[&format!("s{n}")], updated(3));
    }
    assert_eq!(drive.posts.len(), 8);
    drive.take_next();
    assert_eq!(drive.posts.len(), 8);
}

#[test]
fn e1_a_transient_failure_is_retried_three_times() {
    let mut drive = Drive::new(params());
    drive.report(&["web"], updated(3));
    let transient = |after: Option<u64>| Err(PostFailure::Transient(after.map(Duration::from_secs)));
    for (retry_after, wait) in [(None, 1_000), (Some(600), 60_000), (Some(2), 15_000)] {
        let failed = drive.now.as_micros() / 1_000;
        drive.answer_next(transient(retry_after));
        drive.at(failed + wait - 1);
        assert!(drive.posts.is_empty());
        drive.at(failed + wait);
    }
    drive.answer_next(transient(None));
    assert_eq!(drive.count(&Metric::EventDropped), 1);
    drive.at(600_000);
    assert!(drive.posts.is_empty());
}

#[test]
fn e1_a_retry_has_the_same_object_and_the_newest_text() {
    let mut drive = Drive::new(params());
    drive.report(&["web"], updated(3));
    let first = drive.answer_next(Err(PostFailure::Transient(None)));
    drive.report(&["web"], updated(3));
    drive.at(1_000);
    let again = drive.take_next();
    assert_eq!((again.object.clone(), again.count), (first.object.clone(), 2));
}

#[test]
fn h3_a_posted_event_is_new_once_until_it_occurs_again() {
    let mut drive = Drive::new(params());
    drive.report(&["web"], updated(3));
    assert!(drive.answer_next(Err(PostFailure::Transient(None))).is_new);
    drive.at(1_000);
    assert!(!drive.answer_next(Err(PostFailure::Exists(name("one")))).is_new, "another try");
    assert!(!drive.answer_next(Err(PostFailure::Gone)).is_new, "the same event about another object");
    drive.report(&["web"], updated(3));
    let again = drive.answer_next(Err(PostFailure::Transient(None)));
    assert_eq!((again.is_new, again.count), (false, 1), "it was posted before it occurred again");
    let later = drive.answer_next(Err(PostFailure::Final("forbidden".into())));
    assert_eq!((later.is_new, later.count), (true, 2));
    drive.report(&["web"], updated(3));
    let after = drive.take_next();
    assert_eq!((after.is_new, after.count), (true, 3), "the count continues");
    drive.report(&["api"], updated(3));
    assert!(drive.take_next().is_new, "another series");
}

#[test]
fn e1_a_final_failure_is_dropped_and_an_unknown_answer_counted() {
    let mut drive = Drive::new(params());
    drive.report(&["web"], updated(3));
    let (call, _) = drive.posts.pop_front().expect("posted");
    drive.answer(call, Err(PostFailure::Final("forbidden".into())));
    drive.answer(call, Ok(name("late")));
    assert_eq!(drive.samples, [Metric::EventDropped, Metric::UnmatchedAnswer]);
}

#[test]
fn e1_an_unanswered_post_does_not_block_others_forever() {
    let mut drive = Drive::new(params());
    for n in 0..9 {
        drive.report(&[&format!("s{n}")], updated(3));
    }
    drive.posts.clear();
    drive.at(60_000);
    assert_eq!(drive.posts.len(), 1);
    drive.at(61_000);
    assert_eq!(drive.posts.len(), 8, "the others are tried again");
}

#[test]
fn c4_dry_run_events_are_counted_as_such_and_never_changed() {
    let mut drive = Drive::new(params());
    drive.report(&["web"], updated(3));
    let shown = drive.answer_next(Err(PostFailure::Withheld));
    drive.report(&["web"], updated(3));
    let again = drive.answer_next(Err(PostFailure::Withheld));
    assert!(matches!((&shown.object, &again.object), (EventTarget::New(_), EventTarget::New(_))));
    assert_eq!(drive.samples, [Metric::EventWithheld, Metric::EventWithheld]);
}

#[test]
fn w8_a_standby_reports_nothing_and_counts_nothing_as_dropped() {
    let mut drive = Drive::standby(params());
    for _ in 0..40 {
        drive.report(&["web"], updated(3));
    }
    drive.at(600_000);
    assert!(drive.posts.is_empty() && drive.samples.is_empty());
    drive.step(leading());
    assert!(drive.posts.is_empty(), "an old report may be outdated");
    drive.report(&["web"], updated(3));
    assert_eq!(drive.take_next().count, 1);
}

#[test]
fn w8_waiting_events_are_dropped_when_leadership_is_lost() {
    let mut drive = Drive::new(Params { burst: 2, ..params() });
    drive.report(&["a", "b", "c"], updated(3));
    drive.report(&["a"], updated(3));
    drive.answer_next(Err(PostFailure::Transient(None)));
    drive.step(In::Leadership(Leadership::Standby));
    drive.answer_next(Err(PostFailure::Transient(None)));
    drive.at(600_000);
    assert_eq!((drive.posts.len(), drive.emitter.deadline()), (0, None));
    let mut dropped: Vec<_> = drive.dropped.iter().map(|left| (left.subject.clone(), left.cause)).collect();
    dropped.sort();
    assert_eq!(dropped, ["a", "b", "c"].map(|name| (subject(name), DropReason::NotAllowed)));
    assert_eq!(drive.samples, [const { Metric::EventDropped }; 3]);
}

#[test]
fn e1_a_post_in_flight_at_the_end_of_a_term_leaves_a_log_line() {
    let failures = [
        Some(PostFailure::Transient(None)),
        Some(PostFailure::Gone),
        Some(PostFailure::Exists(name("one"))),
        Some(PostFailure::Final("forbidden".into())),
        None,
    ];
    for failure in failures {
        let mut drive = Drive::new(params());
        drive.report(&["web"], updated(3));
        drive.step(In::Leadership(Leadership::Standby));
        let cause = match &failure {
            Some(PostFailure::Final(_)) => DropReason::NotAccepted,
            Some(PostFailure::Transient(_) | PostFailure::Gone | PostFailure::Exists(_)) | None => {
                DropReason::NotAllowed
            }
            Some(PostFailure::Withheld) => unreachable!("it is not a failure"),
        };
        match &failure {
            Some(failure) => {
                drive.answer_next(Err(failure.clone()));
            }
            None => drive.posts.clear(),
        }
        drive.at(60_000);
        let causes: Vec<DropReason> = drive.dropped.iter().map(|left| left.cause).collect();
        assert_eq!(causes, [cause], "{failure:?}");
        assert_eq!((drive.count(&Metric::EventDropped), drive.posts.len()), (1, 0), "{failure:?}");
    }
}

#[test]
fn w8_a_post_in_flight_at_the_loss_of_leadership_is_remembered() {
    let mut drive = Drive::new(params());
    drive.report(&["web"], updated(3));
    drive.report(&["web"], updated(3));
    drive.step(In::Leadership(Leadership::Standby));
    drive.answer_next(Ok(name("one")));
    assert_eq!(drive.samples, [Metric::EventPosted, Metric::EventDropped], "its second occurrence");
    assert_eq!((drive.posts.len(), drive.dropped.len()), (0, 1));
    drive.step(leading());
    drive.report(&["web"], updated(3));
    let next = drive.take_next();
    assert_eq!((next.object.clone(), next.count), (EventTarget::Existing(name("one")), 3));
}
