//! Tests of a pool that is in sync and whose provisioning state stays `Failed`. It counts as out of sync, and is
//! written once more.

use super::*;
use model::assignment::{Held, HeldReason, PausedBy, Waits};

impl Drive {
    /// Observes these members, with a GET that begins now and shows that the last operation failed.
    fn observe_failed(&mut self, members: &[u8]) -> &mut Drive {
        let (began, mut facts) = (self.now, facts(members));
        Arc::make_mut(&mut facts).provisioning = Provisioning::Failed;
        self.step(In::Observed(Observation { began, facts }))
    }

    /// Requests a write. Returns whether the pool answers that there is none.
    fn rewrite(&mut self) -> bool {
        self.take_outputs();
        self.step(In::Rewrite);
        self.sent_any(|said| matches!(said, Out::RewriteSkipped(_)))
    }

    fn is_late(&self) -> bool {
        self.view.as_ref().expect("a view was shown").out_of_sync.is_some()
    }
}

fn failed() -> Drive {
    let mut drive = Drive::in_sync(params());
    drive.at(60_000).observe_failed(&[1]);
    drive
}

#[test]
fn a_failed_pool_with_the_required_members_is_not_in_sync() {
    let mut drive = failed();
    assert_eq!((drive.state(), drive.is_late()), (PoolState::InSync, true));
    assert!(drive.view.as_ref().expect("shown").provisioning_failed);
    assert_eq!(drive.due, None, "it is not written for that at once");
    drive.at(120_000).observe(&[1]);
    assert!(!drive.is_late());
}

#[test]
fn a_failed_pool_is_written_once_when_it_is_asked_for() {
    let mut drive = failed();
    drive.at(660_000).step(In::Rewrite);
    let id = drive.take();
    assert!(drive.taken(id).expect("a level").rewrites);
    drive.finish(
        id,
        Outcome::Written { members: ips(&[1]), added: ips(&[]), removed: ips(&[]), record: Arc::default() },
    );
    assert!(drive.is_late(), "the next look tells whether it helped");
    drive.at(720_000).observe_failed(&[1]);
    assert_eq!((drive.due, drive.state()), (None, PoolState::InSync));
    drive.require("web", &[1, 2]).at(730_000);
    let id = drive.take();
    assert!(!drive.taken(id).expect("a level").rewrites);
}

#[test]
fn a_refused_permit_leaves_it_due() {
    let mut drive = failed();
    drive.at(660_000).step(In::Rewrite).attempt(Outcome::NotGranted);
    let id = drive.take();
    assert!(drive.taken(id).expect("a level").rewrites);
}

#[test]
fn a_pool_that_is_fine_paused_held_or_contended_is_left() {
    let mut drive = Drive::in_sync(params());
    assert!(drive.rewrite() && drive.due.is_none(), "its state is not Failed");
    let mut drive = failed();
    drive.edit(|assignment| assignment.paused = [PausedBy::Pool].into());
    assert!(drive.rewrite() && drive.due.is_none());
    let mut drive = failed();
    let held =
        Held { reason: HeldReason::Breaker, since: Now::ZERO, waits: Waits::Facts, members: ips(&[1]) };
    drive.edit(|assignment| assignment.held = Some(held));
    assert!(drive.rewrite() && drive.due.is_none());
    let mut drive = super::contention::after_contention();
    let later = drive.now.as_micros() / 1_000 + 6_000;
    drive.at(later).observe_failed(&[1]);
    assert!(drive.rewrite() && drive.due.is_none(), "another client changes it");
    drive.at(later + 60_000);
    assert!(!drive.rewrite() && drive.due.is_some(), "no longer");
}

#[test]
fn a_parked_pool_is_left() {
    let mut drive = failed();
    drive.require("web", &[1, 2]).at(70_000).attempt(throttled(900_000));
    assert!(drive.rewrite());
    assert_eq!((drive.state(), drive.due), (PoolState::Parked, None));
}
