//! Tests of when a condition that a pool has reported ends, for all its Services or for one (E1).

use super::*;
use model::assignment::PausedBy;
use model::report::{Condition, Ended};

/// Creates a pool whose write was denied, with two Services that got the report.
fn denied() -> Drive {
    let mut drive = Drive::in_sync(params());
    drive.require("api", &[2]).require("web", &[1, 3]).at(10_000).attempt(forbidden());
    assert_eq!(drive.events(), ["failed api", "failed web"]);
    assert_eq!(drive.ended(), []);
    drive
}

fn failed() -> Ended {
    Ended::of(Condition::Failed(pool()))
}

impl Drive {
    /// Returns the conditions that have ended since the last call.
    fn ended(&mut self) -> Vec<Ended> {
        let ended = |said| if let Out::Ended(ended) = said { Some(ended) } else { None };
        std::mem::take(&mut self.said).into_iter().filter_map(ended).collect()
    }
}

#[test]
fn a_failure_holds_until_the_pool_is_written() {
    let mut drive = denied();
    drive.at(80_000);
    let id = drive.take();
    drive.finish(id, forbidden());
    assert_eq!(drive.ended(), [], "it has failed again");
    drive.at(600_000).attempt(written(&[1, 2, 3]));
    assert_eq!(drive.ended(), [failed()]);
}

#[test]
fn a_failure_ends_when_the_pool_needs_no_write() {
    let mut drive = denied();
    drive.require("api", &[]).require("web", &[1]).at(45_000).observe(&[1]);
    assert_eq!(drive.ended(), [failed()]);
}

#[test]
fn missing_proof_ends_when_the_pool_is_in_sync_and_is_reported_again() {
    let unproven = || Outcome::NotManageable(NotManageable::OutboundRule);
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(10_000).attempt(unproven());
    assert_eq!((drive.events(), drive.ended()), (vec!["not manageable web".to_owned()], vec![]));
    drive.at(20_000).observe(&[2]);
    assert_eq!(drive.ended(), [Ended::of(Condition::NotManageable { pool: pool(), attempted: true })]);
    drive.require("web", &[3]).at(40_000).attempt(unproven());
    assert_eq!(drive.events(), ["not manageable web"]);
}

#[test]
fn a_failure_ends_for_a_service_that_left_the_pool() {
    let mut drive = denied();
    drive.drop_service("api");
    let subject = Some(Subject::of(&ServiceUid::new("api"), &ServiceKey::new("shop", "api")));
    assert_eq!(drive.ended(), [Ended { condition: Condition::Failed(pool()), subject }]);
    drive.drop_service("web");
    assert_eq!(drive.ended(), [failed()], "the pool is released");
}

#[test]
fn a_pause_and_the_term_s_end_end_a_failure() {
    let mut drive = denied();
    drive.edit(|assignment| assignment.paused = [PausedBy::Pool].into());
    assert_eq!(drive.ended(), [failed()]);
    let mut drive = denied();
    drive.edit(|assignment| assignment.epoch = Epoch(2));
    assert_eq!(drive.ended(), [failed()]);
}

#[test]
fn lost_writes_hold_until_one_is_found_in_place() {
    let mut drive = Drive::in_sync(params());
    let lost = [Ended::of(Condition::WritesLost(pool()))];
    drive.require("web", &[1, 2]).at(10_000);
    let id = drive.take();
    drive.finish(id, written(&[1, 2])).at(12_000);
    let began = drive.now;
    drive.step(In::Verified(WriteFate::Lost { attempt: id, facts: facts(&[1]), began }));
    drive.at(20_000);
    let id = drive.take();
    drive.finish(id, written(&[1, 2]));
    assert_eq!(drive.ended(), [], "that one may be lost, too");
    drive.step(In::Verified(WriteFate::Persisted(id)));
    assert_eq!(drive.ended(), lost);
}

#[test]
fn a_contest_ends_with_its_back_off() {
    let mut drive = Drive::in_sync(params());
    for _ in 0..3 {
        let ms = drive.now.as_micros() / 1_000 + 6_000;
        drive.at(ms).observe(&[1, 9]);
        let due = drive.queue.deadline().map_or(drive.now, |at| at.max(drive.now));
        drive.at(due.as_micros() / 1_000);
        drive.attempt(Outcome::Written {
            members: ips(&[1]),
            added: ips(&[]),
            removed: ips(&[9]),
            record: Arc::default(),
        });
    }
    assert!(drive.events().contains(&"contested web".to_owned()));
    assert_eq!(drive.ended(), []);
    let ms = drive.now.as_micros() / 1_000 + 61_000;
    drive.at(ms).observe(&[1]);
    assert_eq!(drive.ended(), [Ended::of(Condition::Contested(pool()))]);
}
