//! Tests of the reason why the pool is not written, as its view shows it (H3).

use super::*;
use model::assignment::{Held, HeldReason, PausedBy, Waits};
use model::blocked::Blocked;

fn shown(drive: &Drive) -> Option<(Blocked, Option<u64>)> {
    let blocked = drive.view.as_ref().expect("a view").blocked?;
    Some((blocked.why, blocked.until.map(|until| until.as_micros() / 1_000)))
}

#[test]
fn q2_the_window_and_then_the_interval_block_a_change() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]);
    assert_eq!(shown(&drive), Some((Blocked::Window, Some(500))));
    drive.at(500);
    assert_eq!(shown(&drive), None, "it is due");
    drive.attempt(written(&[2])).require("web", &[3]);
    assert_eq!(shown(&drive), Some((Blocked::Interval, Some(5_500))));
}

#[test]
fn h3_pauses_failures_and_guards_are_separate_reasons() {
    let mut drive = Drive::in_sync(params());
    assert_eq!(shown(&drive), None, "it is in sync");
    let held =
        Held { reason: HeldReason::Fraction, since: Now::ZERO, waits: Waits::Facts, members: ips(&[1]) };
    drive.edit(|assignment| assignment.held = Some(held));
    assert_eq!(shown(&drive), Some((Blocked::Held, None)));
    drive.edit(|assignment| assignment.paused = [PausedBy::Pool].into());
    assert_eq!(shown(&drive), Some((Blocked::Paused, None)));

    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500).attempt(forbidden());
    assert_eq!(drive.state(), PoolState::Failed);
    assert_eq!(shown(&drive), Some((Blocked::AfterFailure, Some(60_500))));
}
