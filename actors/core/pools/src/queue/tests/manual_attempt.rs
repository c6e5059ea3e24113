//! Tests of an attempt that the operator requests (H3).

use super::*;
use model::assignment::PausedBy;
use model::operator_request::{Answer, Done, Refusal, RequestId};

fn request_attempt(drive: &mut Drive) -> Answer {
    drive.step(In::Attempt(RequestId(3)));
    let answers: Vec<Answer> = drive
        .said
        .iter()
        .filter_map(|said| match said {
            Out::Answer(RequestId(3), answer) => Some(answer.clone()),
            Out::Answer(..)
            | Out::Due(..)
            | Out::Withdraw(_)
            | Out::Taken(..)
            | Out::Retired(_)
            | Out::Members(..)
            | Out::Missing(_)
            | Out::RewriteSkipped(_)
            | Out::Report(_)
            | Out::Ended(_)
            | Out::View(_)
            | Out::Gone(_)
            | Out::Quarantined(..)
            | Out::Metric(_) => None,
        })
        .collect();
    assert_eq!(answers.len(), 1, "there is one answer");
    drive.take_outputs();
    answers.into_iter().next().expect("one")
}

#[test]
fn h3_a_pool_in_sync_is_read_again_and_stays_unchanged() {
    let mut drive = Drive::in_sync(params());
    assert_eq!(request_attempt(&mut drive), Answer::Done(Done::Attempting));
    let id = drive.take();
    drive.finish(id, Outcome::Unchanged { members: ips(&[1]) });
    assert_eq!(drive.state(), PoolState::InSync);
    assert!(drive.due.is_none());
    drive.at(600_000);
    assert!(drive.due.is_none(), "once");
}

#[test]
fn h3_a_request_skips_the_window_and_the_failure_interval() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[1, 2]);
    assert!(drive.due.is_none(), "the window is open");
    assert_eq!(request_attempt(&mut drive), Answer::Done(Done::Attempting));
    drive.attempt(Outcome::Retriable { failure: failure(409, "Conflict"), eligible_at: None });
    assert!(drive.due.is_none(), "the interval runs");
    assert_eq!(request_attempt(&mut drive), Answer::Done(Done::Attempting));
    drive.take();
}

#[test]
fn h3_a_request_skips_the_wait_for_the_comparison() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[1, 2]).at(1_000);
    drive.attempt(forbidden());
    drive.observe(&[1]);
    assert!(drive.due.is_none());
    assert_eq!(request_attempt(&mut drive), Answer::Done(Done::Attempting));
    drive.take();
}

#[test]
fn h3_parked_paused_retired_or_new_pools_refuse_a_request() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[1, 2]).at(1_000);
    drive.attempt(throttled(90_000));
    let until = Now::from_millis(90_000);
    assert_eq!(request_attempt(&mut drive), Answer::Refused(Refusal::NotBefore(until)));
    assert!(drive.due.is_none());
    drive.edit(|assignment| assignment.paused = [PausedBy::Pool].into());
    assert_eq!(request_attempt(&mut drive), Answer::Refused(Refusal::Paused(PausedBy::Pool)));
    drive.edit(|assignment| assignment.paused = [].into());
    drive.drop_service("web");
    assert_eq!(request_attempt(&mut drive), Answer::Refused(Refusal::Unknown));
    assert_eq!(request_attempt(&mut Drive::new(params())), Answer::Refused(Refusal::Unknown));
}

#[test]
fn h3_a_request_joins_the_running_attempt() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[1, 2]).at(1_000);
    let id = drive.take();
    assert_eq!(request_attempt(&mut drive), Answer::Done(Done::Attempting));
    drive.finish(id, written(&[1, 2]));
    drive.at(100_000);
    assert!(drive.due.is_none(), "no other attempt follows");
}

#[test]
fn h3_a_pause_cancels_the_request() {
    let mut drive = Drive::in_sync(params());
    assert_eq!(request_attempt(&mut drive), Answer::Done(Done::Attempting));
    assert!(drive.due.is_some());
    drive.edit(|assignment| assignment.paused = [PausedBy::Pool].into());
    assert!(drive.due.is_none());
    drive.edit(|assignment| assignment.paused = [].into()).at(600_000);
    assert!(drive.due.is_none(), "the pool is in sync, and no request is pending");
}
