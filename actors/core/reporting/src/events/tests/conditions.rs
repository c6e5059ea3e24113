//! Reports whose post is dropped, delayed or refused, and reports over budget (E1).

use super::messages::rows;
use super::*;
use model::policy::{Mode, OperatorPolicy};
use model::report::{Condition, Ended};

/// Reports whether the newest report is posted again until the API server accepts it. A new kind of report does not
/// compile without an entry here.
fn is_posted_again(what: &EventKind) -> bool {
    match what {
        EventKind::Updated { .. }
        | EventKind::Retrying { .. }
        | EventKind::SourceRecovered { .. }
        | EventKind::AdminDown { .. }
        | EventKind::AdminRestored { .. } => false,
        EventKind::FailedTerminal { .. }
        | EventKind::FailedExhausted { .. }
        | EventKind::NotManageable { .. }
        | EventKind::Shared { .. }
        | EventKind::Blocked { .. }
        | EventKind::WritesLost { .. }
        | EventKind::LeaseHeld { .. }
        | EventKind::Contested { .. }
        | EventKind::Quarantined { .. }
        | EventKind::Held { .. }
        | EventKind::RemovalsStopped { .. }
        | EventKind::SourceFailing { .. }
        | EventKind::DataError { .. }
        | EventKind::Undecodable { .. }
        | EventKind::AdminFailed { .. }
        | EventKind::AdminHeld { .. }
        | EventKind::AdminForeign { .. } => true,
    }
}

/// The API server's treatment of a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Dropped,
    Delayed,
    Refused,
}

/// Treats every post like this for this many seconds.
fn apply_fate(drive: &mut Drive, fate: Fate, seconds: u64) {
    for _ in 0..seconds {
        for (call, _) in std::mem::take(&mut drive.posts) {
            match fate {
                Fate::Dropped => {}
                Fate::Delayed => {
                    drive.answer(call, Err(PostFailure::Transient(Some(Duration::from_secs(40)))));
                }
                Fate::Refused => drive.answer(call, Err(PostFailure::Final("forbidden".into()))),
            }
        }
        wait(drive, 1);
    }
}

fn wait(drive: &mut Drive, seconds: u64) {
    let now = drive.now.as_micros() / 1_000;
    drive.at(now + seconds * 1_000);
}

/// Returns the events that the API server accepts within this many seconds.
fn accepted(drive: &mut Drive, seconds: u64) -> Vec<String> {
    let mut messages = Vec::new();
    for _ in 0..seconds {
        messages.extend(drive.take_all().iter().map(|event| event.message.to_string()));
        wait(drive, 1);
    }
    messages
}

fn failed(message: &str) -> EventKind {
    EventKind::FailedTerminal { pool: pool(), failure: failure(message), compared_again_in: None }
}

fn pool_named(name: &str) -> PoolId {
    PoolId::new(LbName::new("kubernetes"), PoolName::new(name))
}

#[test]
fn every_warning_that_lasts_is_posted_until_accepted() {
    for fate in [Fate::Dropped, Fate::Delayed, Fate::Refused] {
        for (what, reason, severity, message) in rows() {
            let mut drive = Drive::new(params());
            drive.report(&["web"], what.clone());
            apply_fate(&mut drive, fate, 400);
            drive.posts.clear();
            let accepted = accepted(&mut drive, 200);
            let lasts = severity == Severity::Warning && reason != "LoadBalancerBackendPoolUpdateRetrying";
            assert_eq!(is_posted_again(&what), lasts, "{reason}");
            if lasts {
                assert_eq!(accepted, [message], "{fate:?}");
                assert_eq!(drive.dropped, [], "{reason} after {fate:?}");
            } else {
                assert_eq!(accepted, Vec::<String>::new(), "{fate:?}");
                let [Dropped { message: left, cause: DropReason::NotAccepted, .. }] = &drive.dropped[..]
                else {
                    panic!("{reason} leaves no log line after {fate:?}: {:?}", drive.dropped);
                };
                assert_eq!(**left, *message);
            }
        }
    }
}

#[test]
fn a_condition_that_ends_is_not_posted_again() {
    for ended in [
        Ended::of(Condition::Failed(pool())),
        Ended { condition: Condition::Failed(pool()), subject: Some(subject("web")) },
    ] {
        let mut drive = Drive::new(params());
        drive.report(&["web"], failed("no"));
        apply_fate(&mut drive, Fate::Refused, 10);
        drive.step(In::Ended(ended));
        assert_eq!(accepted(&mut drive, 600), Vec::<String>::new());
        let [Dropped { cause: DropReason::Outdated, .. }] = &drive.dropped[..] else {
            panic!("no log line: {:?}", drive.dropped);
        };
    }
}

#[test]
fn the_end_for_one_service_leaves_the_others() {
    let mut drive = Drive::new(params());
    drive.report(&["web", "api"], failed("no"));
    apply_fate(&mut drive, Fate::Refused, 10);
    drive.step(In::Ended(Ended { condition: Condition::Failed(pool()), subject: Some(subject("web")) }));
    drive.step(In::Ended(Ended::of(Condition::Failed(pool_named("another")))));
    let mut about = Vec::new();
    for _ in 0..120 {
        wait(&mut drive, 1);
        about.extend(drive.take_all().iter().map(|event| event.subject.clone()));
    }
    assert_eq!(about, [subject("api")]);
}

#[test]
fn only_the_newest_report_of_a_condition_is_posted_again() {
    let mut drive = Drive::new(params());
    drive.report(&["web"], failed("first"));
    apply_fate(&mut drive, Fate::Refused, 10);
    drive.report(&["web"], failed("second"));
    apply_fate(&mut drive, Fate::Refused, 10);
    let accepted = accepted(&mut drive, 200);
    assert!(matches!(&accepted[..], [one] if one.contains("second")), "{accepted:?}");
}

#[test]
fn e1_a_pause_of_everything_ends_no_report_about_the_process() {
    let mut drive = Drive::new(params());
    let what = EventKind::RemovalsStopped { pools: 13, of: 60, enforced: true };
    drive.step(In::Report(Report { subjects: vec![Subject::Controller], what, note: None }));
    drive.report(&["web"], failed("no"));
    apply_fate(&mut drive, Fate::Refused, 10);
    let policy = |mode| {
        let policy = Arc::new(OperatorPolicy { mode, ..OperatorPolicy::default() });
        In::OperatorPolicy { term: Some(Epoch(1)), policy }
    };
    drive.step(policy(Mode::Observe));
    let left: Vec<_> = drive.dropped.iter().map(|left| (left.subject.clone(), left.cause)).collect();
    assert_eq!(left, [(subject("web"), DropReason::NotAllowed)]);
    apply_fate(&mut drive, Fate::Refused, 100);
    drive.step(policy(Mode::Observe));
    assert_eq!(accepted(&mut drive, 100).len(), 1, "the controller's");
    assert_eq!(drive.dropped.len(), 1);
}

#[test]
fn e1_a_newer_text_lost_with_its_condition_leaves_a_log_line() {
    for (ends, cause) in [(true, DropReason::Outdated), (false, DropReason::NotAllowed)] {
        let mut drive = Drive::new(Params { burst: 1_000, ..params() });
        for _ in 0..24 {
            drive.report(&["web"], failed("no"));
            drive.take_all();
        }
        drive.report(&["web"], failed("no"));
        drive.report(&["web"], failed("no"));
        drive.step(if ends {
            In::Ended(Ended::of(Condition::Failed(pool())))
        } else {
            In::Leadership(Leadership::Standby)
        });
        drive.take_all();
        assert_eq!(drive.dropped.iter().map(|left| left.cause).collect::<Vec<_>>(), [cause]);
    }
}

#[test]
fn no_event_is_posted_again_after_its_term() {
    let mut drive = Drive::new(params());
    drive.report(&["web"], failed("no"));
    apply_fate(&mut drive, Fate::Refused, 10);
    drive.step(In::Leadership(Leadership::Standby));
    assert_eq!(drive.emitter.deadline(), None);
    drive.step(leading());
    assert_eq!(accepted(&mut drive, 200), Vec::<String>::new());
}

#[test]
fn a_failure_is_posted_after_normal_events_spent_the_budget() {
    let mut drive = Drive::new(Params { burst: 1_000, ..params() });
    for members in 0..40 {
        drive.report(&["web"], updated(members));
        drive.take_all();
    }
    drive.report(&["web"], failed("AuthorizationFailed"));
    let posted = drive.take_all();
    assert!(
        matches!(&posted[..], [one] if one.reason == "LoadBalancerBackendPoolUpdateFailed"),
        "{posted:?}"
    );
}

/// Pools of xDS sources have no Service: all their events are attached to the controller.
#[test]
fn a_hundred_pools_that_share_one_object_all_have_an_event() {
    let mut drive = Drive::new(params());
    for n in 0..100 {
        let what = EventKind::FailedTerminal {
            pool: pool_named(&format!("pool-{n:02}")),
            failure: failure("no"),
            compared_again_in: None,
        };
        drive.step(In::Report(Report { subjects: vec![Subject::Controller], what, note: None }));
    }
    let mut accepted = accepted(&mut drive, 30);
    assert_eq!(accepted.len(), 25, "the budget of one reason");
    accepted.extend(self::accepted(&mut drive, 76 * 60));
    for n in 0..100 {
        let name = format!("kubernetes/pool-{n:02} ");
        assert_eq!(accepted.iter().filter(|message| message.contains(&name)).count(), 1, "{name}");
    }
    assert_eq!(drive.dropped, []);
}

#[test]
fn a_condition_beyond_the_queue_s_capacity_is_posted_later() {
    let mut drive = Drive::new(Params { capacity: 1, per_second: 1, burst: 1 });
    drive.report(&["a", "b", "c", "d"], failed("no"));
    let mut services = Vec::new();
    for _ in 0..300 {
        services.extend(drive.take_all().iter().map(|event| event.subject.clone()));
        wait(&mut drive, 1);
    }
    services.sort();
    assert_eq!(services, ["a", "b", "c", "d"].map(subject));
}

#[test]
fn a_newer_text_without_budget_is_posted_later() {
    let mut drive = Drive::new(Params { burst: 1_000, ..params() });
    for n in 0..25 {
        drive.report(&["web"], failed(&format!("{n}")));
        drive.take_all();
    }
    drive.report(&["web"], failed("the last"));
    assert!(drive.posts.is_empty(), "the budget is exhausted");
    let accepted = accepted(&mut drive, 61);
    assert!(matches!(&accepted[..], [one] if one.contains("the last")), "{accepted:?}");
}

#[test]
fn a_condition_reported_before_its_term_is_posted_in_it() {
    let mut drive = Drive { emitter: Emitter::new(params()), ..Drive::standby(params()) };
    drive.report(&["web", "api"], failed("no"));
    drive.step(In::Ended(Ended { condition: Condition::Failed(pool()), subject: Some(subject("api")) }));
    drive.step(In::OperatorPolicy { term: Some(Epoch(1)), policy: Arc::default() });
    drive.step(leading());
    assert_eq!(
        drive.take_all().iter().map(|event| event.subject.clone()).collect::<Vec<_>>(),
        [subject("web")]
    );
}
