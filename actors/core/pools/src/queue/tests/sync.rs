//! Tests of the time since which a pool is out of sync. Attempts, retries, parking, holds and terms do not end that
//! time (Q8, E2).

use super::*;
use model::assignment::{Held, HeldReason, PausedBy, Waits};
use model::view::OutOfSync;

impl Drive {
    /// Returns since how many milliseconds after the start the pool is out of sync, and whether it may have begun
    /// earlier.
    fn out_of_sync(&self) -> Option<(u64, bool)> {
        let out = self.view.as_ref().expect("a view was shown").out_of_sync;
        out.map(|OutOfSync { since, at_least }| (since.as_micros() / 1_000, at_least))
    }
}

#[test]
fn a_pool_that_fails_for_half_an_hour_is_late_all_the_time() {
    let mut drive = Drive::in_sync(params());
    assert_eq!(drive.out_of_sync(), None);
    drive.at(10_000).require("web", &[1, 2]);
    for minute in 1..30 {
        drive.at(10_000 + minute * 60_000);
        assert_eq!(drive.out_of_sync(), Some((10_000, false)), "minute {minute}");
        if drive.due.is_some() {
            let id = drive.take();
            assert_eq!((drive.state(), drive.out_of_sync()), (PoolState::Attempting, Some((10_000, false))));
            drive.finish(id, Outcome::Terminal { failure: failure(500, "InternalServerError") });
        }
        assert_eq!(drive.out_of_sync(), Some((10_000, false)), "minute {minute}");
        assert!(drive.view.as_ref().expect("shown").late_since().is_some());
    }
    drive.at(3_000_000).attempt(written(&[1, 2]));
    assert_eq!(drive.out_of_sync(), None);
}

#[test]
fn q8_a_level_that_fails_waits_until_it_is_written() {
    let waits = |drive: &Drive| drive.view.as_ref().expect("shown").waiting_since;
    let since = Some(Now::from_millis(10_000));
    let mut drive = Drive::in_sync(params());
    drive.at(10_000).require("web", &[1, 2]).at(11_000);
    drive.attempt(Outcome::Terminal { failure: failure(500, "InternalServerError") });
    for minute in 1..30 {
        drive.at(11_000 + minute * 60_000);
        assert_eq!(waits(&drive), since, "minute {minute}, {:?}", drive.state());
        if drive.due.is_some() {
            let id = drive.take();
            assert_eq!(waits(&drive), since, "minute {minute}");
            drive.finish(id, Outcome::Terminal { failure: failure(500, "InternalServerError") });
        }
        assert_eq!(waits(&drive), since, "minute {minute}");
    }
    drive.edit(|assignment| assignment.paused = [PausedBy::Pool].into());
    assert_eq!(waits(&drive), None);
    drive.edit(|assignment| assignment.paused.clear());
    assert_eq!(waits(&drive), Some(drive.now), "a pause does not count");
    drive.at(3_000_000).attempt(written(&[1, 2]));
    assert_eq!(waits(&drive), None);
}

#[test]
fn q8_a_failure_without_a_retry_has_no_wait() {
    let mut drive = Drive::in_sync(Params { after_failure: None, ..params() });
    drive.at(10_000).require("web", &[1, 2]).at(11_000);
    drive.attempt(Outcome::Terminal { failure: failure(500, "InternalServerError") }).at(600_000);
    let view = drive.view.as_ref().expect("shown");
    assert_eq!((view.state, view.waiting_since), (PoolState::Failed, None));
    assert_eq!(view.late_since(), Some(Now::from_millis(10_000)));
}

#[test]
fn a_parked_pool_is_out_of_sync() {
    let mut drive = Drive::in_sync(params());
    drive.at(10_000).require("web", &[1, 2]).at(20_000).attempt(throttled(900_000));
    drive.at(600_000);
    assert_eq!((drive.state(), drive.out_of_sync()), (PoolState::Parked, Some((10_000, false))));
}

#[test]
fn a_held_pool_is_out_of_sync_and_one_in_add_only_is_not() {
    let held = |reason| {
        let (since, waits) = (Now::from_millis(7_000), Waits::Facts);
        Some(Held { reason, since, waits, members: ips(&[1]) })
    };
    let mut drive = Drive::in_sync(params());
    drive.at(10_000).edit(|assignment| assignment.held = held(HeldReason::AddOnly));
    assert_eq!(drive.out_of_sync(), None);
    drive.edit(|assignment| assignment.held = held(HeldReason::Breaker));
    assert_eq!((drive.state(), drive.out_of_sync()), (PoolState::InSync, Some((7_000, false))));
    drive.edit(|assignment| assignment.held = None);
    assert_eq!(drive.out_of_sync(), None);
}

#[test]
fn what_a_look_finds_may_have_begun_before() {
    let mut drive = Drive::in_sync(params());
    drive.at(60_000).observe(&[]);
    assert_eq!(drive.out_of_sync(), Some((60_000, true)));
    let mut drive = Drive::new(params());
    drive.at(5_000).require("web", &[1]);
    assert_eq!(drive.out_of_sync(), Some((5_000, true)), "nothing was seen yet");
    drive.observe(&[]);
    assert_eq!(drive.out_of_sync(), Some((5_000, true)));
}

#[test]
fn a_new_term_does_not_end_it() {
    let mut drive = Drive::in_sync(params());
    drive.at(10_000).require("web", &[1, 2]).at(30_000).edit(|assignment| {
        (assignment.epoch, assignment.opened) = (Epoch(2), Now::from_millis(30_000));
    });
    assert_eq!(drive.out_of_sync(), Some((10_000, false)));
    drive.observe(&[1]);
    assert_eq!(drive.out_of_sync(), Some((10_000, false)));
    drive.at(40_000).observe(&[1, 2]);
    assert_eq!(drive.out_of_sync(), None);
}

#[test]
fn writes_that_are_lost_do_not_end_it() {
    let mut drive = Drive::in_sync(params());
    drive.at(10_000).require("web", &[1, 2]).at(20_000);
    let id = drive.take();
    drive.finish(id, written(&[1, 2])).at(22_000);
    assert_eq!(drive.out_of_sync(), None, "that it was lost is not known yet");
    let began = drive.now;
    drive.step(In::Verified(WriteFate::Lost { attempt: id, facts: facts(&[1]), began }));
    assert_eq!(drive.out_of_sync(), Some((22_000, true)));
    drive.at(30_000);
    let id = drive.take();
    drive.finish(id, written(&[1, 2])).at(32_000);
    assert_eq!(drive.out_of_sync(), Some((22_000, true)), "this one may be lost, too");
    drive.step(In::Verified(WriteFate::Persisted(id)));
    assert_eq!(drive.out_of_sync(), None);
}

#[test]
fn a_pause_does_not_count() {
    let mut drive = Drive::in_sync(params());
    drive.edit(|assignment| assignment.paused = [PausedBy::Pool].into());
    drive.at(10_000).require("web", &[1, 2]).at(500_000);
    assert_eq!(drive.out_of_sync(), Some((10_000, false)));
    assert_eq!(drive.view.as_ref().expect("shown").late_since(), None);
    drive.edit(|assignment| assignment.paused.clear());
    assert_eq!(drive.out_of_sync(), Some((500_000, true)));
}
