//! Drives the emitter on the test's clock, in the place of the reporters and the kubernetes port.

use proptest::prelude::*;

use super::*;
use crate::arm::{Failure, FailureKind, RetryAfter};
use crate::assignment::HeldReason;
use crate::error::NotManageable;
use crate::ids::{LbName, PoolId, PoolName, ServiceKey, ServiceUid};
use crate::object::Kind;
use crate::report::{ServiceRef, What};

fn params() -> Params {
    Params { capacity: 100, per_second: 10, burst: 20 }
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

fn updated(members: usize) -> What {
    What::Updated { pool: pool(), members, added: 2, removed: 1 }
}

struct Drive {
    emitter: Emitter,
    now: Now,
    posts: Vec<(CallId, Arc<Event>)>,
    samples: Vec<Sample>,
}

impl Drive {
    fn new(params: Params) -> Drive {
        Drive { emitter: Emitter::new(params), now: Now::ZERO, posts: Vec::new(), samples: Vec::new() }
    }

    fn hear(&mut self, out: Vec<Out>) {
        for said in out {
            match said {
                Out::Post { call, event } => self.posts.push((call, event)),
                Out::Sample(sample) => self.samples.push(sample),
            }
        }
    }

    fn step(&mut self, input: In) {
        let mut out = Vec::new();
        self.emitter.step(self.now, input, &mut out);
        self.hear(out);
    }

    fn tell(&mut self, subjects: &[&str], what: What) {
        let subjects = subjects.iter().map(|name| subject(name)).collect();
        self.step(In::Report(Report { subjects, what }));
    }

    fn answer(&mut self, call: CallId, failure: Option<PostFailure>) {
        self.step(In::Posted { call, failure });
    }

    /// Answers everything that is posted, also what follows from the answers.
    fn answer_all(&mut self) -> usize {
        let mut answered = 0;
        while let Some((call, _)) = self.posts.pop() {
            answered += 1;
            self.answer(call, None);
        }
        answered
    }

    fn at(&mut self, ms: u64) -> &mut Drive {
        let end = Now::from_millis(ms);
        while let Some(next) = self.emitter.deadline().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            let mut out = Vec::new();
            self.emitter.tick(self.now, &mut out);
            self.hear(out);
            assert!(
                self.emitter.deadline().is_none_or(|after| after > self.now),
                "a deadline stays in the past"
            );
        }
        self.now = end;
        self
    }

    fn count(&self, sample: &Sample) -> usize {
        self.samples.iter().filter(|one| *one == sample).count()
    }
}

fn expect(what: What, reason: &str, severity: Severity, message: &str) {
    let mut drive = Drive::new(params());
    drive.tell(&["web"], what);
    let event = &drive.posts[0].1;
    assert_eq!((event.reason, event.severity, &*event.message), (reason, severity, message));
    assert_eq!(event.subject, subject("web"));
}

#[test]
fn e1_outcomes_have_the_reasons_types_and_words_of_s0() {
    let failure = failure("it is busy.");
    expect(
        updated(3),
        "LoadBalancerBackendPoolUpdated",
        Severity::Normal,
        "Load balancer backend pool updated successfully: kubernetes/shop-web has 3 members (2 added, 1 removed)",
    );
    expect(
        What::Retrying { pool: pool(), retry: 1, max: 3, failure: failure.clone() },
        "LoadBalancerBackendPoolUpdateRetrying",
        Severity::Warning,
        "Backend pool update failed, will retry (1/3): AnotherOperationInProgress: it is busy. (correlation id c-1)",
    );
    let compared_again_in = Some(Duration::from_secs(60));
    expect(
        What::FailedTerminal { pool: pool(), failure: failure.clone(), compared_again_in },
        "LoadBalancerBackendPoolUpdateFailed",
        Severity::Warning,
        "Backend pool update failed (non-retriable): AnotherOperationInProgress: it is busy. (correlation id c-1). \
         Backend pool kubernetes/shop-web is compared again in 60 s.",
    );
    expect(
        What::FailedExhausted { pool: pool(), retries: 3, failure, compared_again_in: None },
        "LoadBalancerBackendPoolUpdateFailed",
        Severity::Warning,
        "Backend pool update failed after 3 retries: AnotherOperationInProgress: it is busy. (correlation id c-1). \
         To retrigger, cause an endpoint change for the Service (e.g., restart or scale a backing pod). \
         Backend pool kubernetes/shop-web is not compared again by itself.",
    );
}

#[test]
fn e1_conditions_have_their_reasons_and_words() {
    let services = vec![ServiceKey::new("shop-a", "b"), ServiceKey::new("shop", "a-b")];
    let warnings = [
        (
            What::NotManageable { pool: pool(), reason: NotManageable::OutboundRule },
            "BackendPoolNotManageable",
            "Members of backend pool kubernetes/shop-web are not written: an outbound rule uses the pool",
        ),
        (
            What::Shared { pool: pool(), services },
            "BackendPoolShared",
            "Backend pool kubernetes/shop-web is used by several Services; it gets the members of all: \
             shop-a/b, shop/a-b",
        ),
        (
            What::Held { pool: pool(), reason: HeldReason::EmptyConfirm, members: 1 },
            "BackendPoolRemovalHeld",
            "Removal of 1 member from backend pool kubernetes/shop-web is held back: a Service would be \
             left without any; this waits for confirmation",
        ),
        (
            What::DataError { endpoints: 2, example: "web-1 has no node".into() },
            "ServiceEndpointsIncomplete",
            "2 endpoints cannot be placed in a backend pool: web-1 has no node",
        ),
        (
            What::Undecodable { kind: Kind::Nodes, object: "node-1".into(), error: "no name".into() },
            "ObjectUndecodable",
            "Node node-1 cannot be read; its last good state stays in force: no name",
        ),
    ];
    for (what, reason, message) in warnings {
        expect(what, reason, Severity::Warning, message);
    }
}

#[test]
fn e1_a_long_error_is_cut_at_a_character_and_the_advice_stays() {
    let what = What::FailedExhausted {
        pool: pool(),
        retries: 3,
        failure: failure(&"ö".repeat(2_000)),
        compared_again_in: Some(Duration::from_millis(60_001)),
    };
    let mut drive = Drive::new(params());
    drive.tell(&["web"], what);
    let message = &drive.posts[0].1.message;
    assert!(message.len() <= 1024 && message.len() > 1_015, "{}", message.len());
    assert!(message.contains("ö…. To retrigger, cause an endpoint change"));
    assert!(message.ends_with("is compared again in 61 s."));
}

#[test]
fn e1_one_event_for_each_subject_and_identical_waiting_ones_are_merged() {
    let mut drive = Drive::new(Params { burst: 1, ..params() });
    drive.tell(&["web", "api"], updated(3));
    drive.tell(&["web", "api"], updated(3));
    assert_eq!(drive.answer_all(), 1);
    drive.at(10_000);
    assert_eq!(drive.answer_all(), 2, "web was on its way already, api still waited");
    assert_eq!(drive.count(&Sample::EventPosted), 3);
}

#[test]
fn e1_the_rate_is_kept_and_what_does_not_fit_is_dropped_and_counted() {
    let mut drive = Drive::new(Params { capacity: 5, per_second: 1, burst: 2 });
    for members in 0..10 {
        drive.tell(&["web"], updated(members));
    }
    assert_eq!(drive.answer_all(), 2);
    assert_eq!(drive.count(&Sample::EventDropped), 3);
    drive.at(999);
    assert_eq!(drive.answer_all(), 0);
    drive.at(3_000);
    assert_eq!(drive.answer_all(), 3);
}

#[test]
fn e1_at_most_eight_posts_are_unanswered() {
    let mut drive = Drive::new(params());
    for members in 0..12 {
        drive.tell(&["web"], updated(members));
    }
    assert_eq!(drive.posts.len(), 8);
    let (call, _) = drive.posts.remove(0);
    drive.answer(call, None);
    assert_eq!(drive.posts.len(), 8);
}

#[test]
fn e1_a_transient_failure_is_tried_three_times_more_and_then_dropped() {
    let mut drive = Drive::new(params());
    drive.tell(&["web"], updated(3));
    let transient = |after: Option<u64>| Some(PostFailure::Transient(after.map(Duration::from_secs)));
    for (asked, wait) in [(None, 1_000), (Some(600), 60_000), (Some(2), 15_000)] {
        let (call, _) = drive.posts.pop().expect("posted");
        let failed = drive.now.as_micros() / 1_000;
        drive.answer(call, transient(asked));
        drive.at(failed + wait - 1);
        assert!(drive.posts.is_empty());
        drive.at(failed + wait);
    }
    let (call, _) = drive.posts.pop().expect("posted");
    drive.answer(call, transient(None));
    assert_eq!(drive.count(&Sample::EventDropped), 1);
    drive.at(600_000);
    assert!(drive.posts.is_empty());
}

#[test]
fn e1_a_final_failure_is_dropped_and_an_unknown_answer_counted() {
    let mut drive = Drive::new(params());
    drive.tell(&["web"], updated(3));
    let (call, _) = drive.posts.pop().expect("posted");
    drive.answer(call, Some(PostFailure::Final("forbidden".into())));
    drive.answer(call, None);
    assert_eq!(drive.samples, [Sample::EventDropped, Sample::UnmatchedAnswer]);
}

#[test]
fn e1_a_post_that_is_never_answered_does_not_block_its_place_for_ever() {
    let mut drive = Drive::new(params());
    for members in 0..9 {
        drive.tell(&["web"], updated(members));
    }
    drive.posts.clear();
    drive.at(60_000);
    assert_eq!(drive.posts.len(), 1);
    drive.at(61_000);
    assert_eq!(drive.posts.len(), 8, "the others are tried again");
}

proptest! {
    /// Safety: never more in flight or waiting than may be. Liveness: with an API server that recovers, all is
    /// posted or counted as dropped.
    #[test]
    fn e1_every_event_is_posted_merged_or_counted(
        steps in prop::collection::vec((0..4_u8, 0..6_u8, 0..3_000_u64), 1..120),
        capacity in 1..12_usize,
        burst in 1..4_u32,
    ) {
        let mut drive = Drive::new(Params { capacity, per_second: 2, burst });
        let mut ms = 0;
        for (action, n, pause) in steps {
            match (action, drive.posts.pop()) {
                (0 | 1, post) => {
                    drive.posts.extend(post);
                    drive.tell(&["web", "api"], updated(usize::from(n)));
                }
                (_, None) => drive.answer(CallId(u64::from(n)), None),
                (2, Some((call, _))) => drive.answer(call, None),
                (_, Some((call, _))) => drive.answer(call, Some(PostFailure::Transient(None))),
            }
            prop_assert!(drive.emitter.in_flight.len() <= IN_FLIGHT);
            prop_assert_eq!(drive.emitter.check(), Ok(()));
            ms += pause;
            drive.at(ms);
        }
        for _ in 0..100 {
            drive.answer_all();
            ms += 1_000;
            drive.at(ms);
        }
        prop_assert!(drive.emitter.known.is_empty());
        prop_assert!(drive.emitter.in_flight.is_empty());
        prop_assert_eq!(drive.emitter.deadline(), None);
    }
}
