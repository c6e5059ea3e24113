//! Tests of a pool that breaks an invariant (A4). Each test breaks a real invariant on purpose.

use super::*;
use crate::queue::changes::ChangeOwner;

/// The broken invariant: the pool has a change of a Service that it does not have.
const BROKEN: &str = "a change without an owner waits";

impl Drive {
    /// Breaks an invariant from the next step on.
    fn break_it(&mut self) -> &mut Drive {
        self.queue.broken_on_purpose = true;
        self.queue.waiting.add(ChangeOwner::Service(ServiceUid::new("nobody")), self.now);
        self
    }

    /// Breaks the invariant with a step that has no other effect.
    fn quarantine(&mut self) -> &mut Drive {
        self.break_it().step(In::Pace(Duration::ZERO))
    }

    fn has_retired(&self) -> bool {
        self.sent_any(|said| matches!(said, Out::Retired(_)))
    }

    fn ends(&self) -> Vec<AttemptEnd> {
        let end = |sample: &Metric| if let Metric::AttemptEnded(end) = sample { Some(*end) } else { None };
        self.samples.iter().filter_map(end).collect()
    }
}

/// Creates a due pool that has just been quarantined.
fn quarantined() -> Drive {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    assert!(drive.due.is_some());
    drive.take_outputs();
    drive.quarantine();
    drive
}

#[test]
fn a4_a_broken_invariant_withdraws_the_pool_and_is_reported() {
    let mut drive = quarantined();
    assert!(drive.due.is_none(), "it is withdrawn");
    assert!(drive.sent_any(|said| matches!(said, Out::Quarantined(of, BROKEN) if *of == pool())));
    let moved = Metric::PoolState { from: Some(PoolState::Due), to: Some(PoolState::Quarantined) };
    assert!(drive.samples.contains(&moved), "{:?}", drive.samples);
    let view = drive.view.clone().expect("it is shown");
    assert_eq!((view.state, view.last_error.as_deref()), (PoolState::Quarantined, Some(BROKEN)));
    let what = EventKind::Quarantined { pool: pool(), broken: BROKEN };
    assert_eq!(drive.reports.iter().map(|report| &report.what).collect::<Vec<_>>(), [&what]);
    assert_eq!(drive.events(), ["quarantined web"]);
}

#[test]
fn a4_a_quarantined_pool_gives_no_level_for_a_take() {
    let mut drive = quarantined();
    drive.take_outputs();
    for second in 1..3_600 {
        drive.at(500 + second * 1_000).require("web", &[if second % 2 == 0 { 2 } else { 3 }]).observe(&[1]);
        if second % 60 == 0 {
            let id = drive.grant();
            assert!(drive.taken(id).is_none());
            drive.finish(id, written(&[7]));
        }
    }
    assert!(drive.due.is_none() && drive.events().is_empty());
    assert!(drive.ends().is_empty(), "no attempt was made");
    assert_eq!((drive.state(), drive.queue.deadline()), (PoolState::Quarantined, None));
    assert_eq!(drive.queue.check(), Ok(()));
}

#[test]
fn a4_a_level_from_the_breaking_step_is_withdrawn() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500).take_outputs();
    drive.break_it();
    let id = drive.grant();
    let answers: Vec<bool> = drive
        .said
        .iter()
        .filter_map(|said| if let Out::Taken(_, _, taken) = said { Some(taken.is_some()) } else { None })
        .collect();
    assert_eq!(answers, [false], "one answer, with nothing");
    assert_eq!(drive.view.as_ref().and_then(|view| view.attempt), None);
    drive.finish(id, written(&[2]));
    assert!(drive.ends().is_empty() && drive.due.is_none());
}

#[test]
fn a4_the_outcome_of_a_running_attempt_is_ignored() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    drive.quarantine().take_outputs();
    assert_eq!(drive.view.as_ref().and_then(|view| view.attempt), Some(id), "it is shown");
    drive.finish(id, conflict()).at(600_000);
    assert!(drive.events().is_empty() && drive.due.is_none());
    assert_eq!(drive.ends(), [AttemptEnd::Failed], "it is counted");
    assert!(drive.observations().is_empty());
    assert_eq!(drive.state(), PoolState::Quarantined);
}

#[test]
fn a4_quarantine_ends_without_an_owner_and_after_the_last_attempt() {
    let mut idle = quarantined();
    idle.drop_service("web");
    assert!(idle.has_retired() && idle.sent_any(|said| matches!(said, Out::Gone(_))));
    let gone = Metric::PoolState { from: Some(PoolState::Quarantined), to: None };
    assert!(idle.samples.contains(&gone));
    idle.require("web", &[2]).observe(&[1]).at(10_000);
    assert!(idle.due.is_some(), "a pool that is assigned again starts afresh");

    let mut busy = Drive::in_sync(params());
    busy.require("web", &[2]).at(500);
    let id = busy.take();
    busy.quarantine().drop_service("web");
    assert!(!busy.has_retired(), "the writer has yet to answer");
    busy.finish(id, written(&[2]));
    assert!(busy.has_retired());

    let mut granted_again = Drive::in_sync(params());
    granted_again.require("web", &[2]).at(500);
    let id = granted_again.take();
    granted_again.quarantine().step(In::Take(id));
    assert!(granted_again.taken(id).is_none());
    granted_again.drop_service("web");
    assert!(granted_again.has_retired(), "nothing has ended the attempt");
}

#[test]
fn a4_a_level_that_is_not_the_union_of_parts_is_not_written() {
    let mut drive = Drive::in_sync(params());
    let mut wrong = drive.assignment.clone();
    wrong.level.required.insert(ip(9), Member { name: AddressName::new("node-9"), node_ready: true });
    drive.step(In::Assigned(Arc::new(wrong))).at(600_000);
    assert_eq!(drive.state(), PoolState::Quarantined);
    assert!(drive.due.is_none());
    assert_eq!(drive.events(), ["quarantined web"]);
}

#[test]
fn a4_a_quarantine_is_reported_once_in_each_term() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    drive.take();
    drive.quarantine();
    assert_eq!(drive.events(), ["quarantined web"]);
    for term in 2..4 {
        let ms = term * 600_000;
        drive.at(ms).edit(|a| a.epoch = Epoch(term)).at(ms + 59_999);
        assert!(drive.events().is_empty(), "who tells it may not have heard yet that it leads");
        drive.at(ms + 500_000);
        assert_eq!(drive.events(), ["quarantined web"]);
    }
    assert_eq!(drive.ends(), [AttemptEnd::Interrupted]);
    assert_eq!(drive.view.as_ref().and_then(|view| view.attempt), None, "it will not be answered");
    drive.drop_service("web");
    assert!(drive.has_retired());
}

#[test]
fn a4_an_unowned_pool_that_breaks_retires_immediately() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    drive.drop_service("web").take_outputs();
    drive.quarantine();
    assert!(drive.sent_any(|said| matches!(said, Out::Quarantined(..))), "it is logged");
    assert!(!drive.has_retired());
    drive.finish(id, written(&[2]));
    assert!(drive.has_retired());
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a change without an owner waits")]
fn a4_a_broken_invariant_ends_debug_builds() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).break_it();
    drive.queue.broken_on_purpose = false;
    drive.step(In::Pace(Duration::ZERO));
}

#[test]
fn g6_a_quarantine_in_a_pause_is_reported_when_the_pause_ends() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).edit(|a| a.paused = [model::assignment::PausedBy::Pool].into());
    drive.quarantine();
    assert_eq!((drive.state(), drive.events()), (PoolState::Quarantined, vec![]));
    drive.at(600_000).edit(|a| a.paused = [].into()).at(700_000);
    assert_eq!(drive.events(), ["quarantined web"]);
    drive.at(3_600_000);
    assert_eq!(drive.events(), Vec::<String>::new());
}
