//! Tests of the cases of S0 "Tests" that apply to the queue, by their numbers there.

use super::*;
use model::blocked::Blocked;

#[test]
fn s0_01_02_04_a_throttled_pool_is_parked_until_eligible() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500).attempt(throttled(90_500));
    assert_eq!(drive.events(), ["retrying web"]);
    assert_eq!(drive.state(), PoolState::Parked);
    let view = drive.view.clone().expect("a view");
    assert_eq!(view.blocked, Some(Blocked::Parked.until(Now::from_millis(90_500))));
    assert_eq!(view.retries[&ServiceUid::new("web")], [1]);
    drive.take_outputs();
    drive.at(90_499);
    assert!(drive.due.is_none());
    assert!(drive.said.is_empty(), "nothing is said while it waits: {:?}", drive.said);
    drive.at(90_500);
    assert!(drive.due.is_some());
}

#[test]
fn s0_03_05_throttling_without_a_time_waits_for_the_interval() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500).attempt(throttled(400));
    assert_eq!(drive.events(), ["retrying web"]);
    assert_eq!(drive.state(), PoolState::Waiting, "a moment that has passed parks nothing");
    drive.at(30_499);
    assert!(drive.due.is_none());
    drive.at(30_500).attempt(written(&[2]));
    assert_eq!(drive.events(), ["updated web"]);
    assert_eq!(drive.state(), PoolState::InSync);
}

#[test]
fn s0_06_a_conflict_is_retried_and_succeeds_at_the_next_try() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500).attempt(conflict());
    assert_eq!(drive.events(), ["retrying web"]);
    drive.at(30_500).attempt(written(&[2]));
    assert_eq!(drive.events(), ["updated web"]);
}

#[test]
fn s0_07_one_parked_change_parks_the_whole_pool() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500).attempt(throttled(90_500));
    drive.at(40_000).require("api", &[3]).at(60_000);
    assert!(drive.due.is_none(), "a fresh change does not unpark the pool");
    let id = drive.grant();
    assert!(drive.taken(id).is_none());
    drive.at(90_500);
    assert!(drive.due.is_some());
}

#[test]
fn s0_08_changes_added_while_parked_go_with_the_newest_level() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500).attempt(throttled(90_500));
    drive.at(40_000).require("web", &[3]).at(90_500);
    let id = drive.take();
    let taken = drive.taken(id).expect("a level");
    assert_eq!(taken.level.required.keys().copied().collect::<BTreeSet<_>>(), ips(&[3]));
}

#[test]
fn s0_09_each_change_keeps_its_count_and_loses_one_retry() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500).attempt(conflict());
    drive.at(10_000).require("web", &[3]).require("api", &[3]);
    let view = drive.view.clone().expect("a view");
    assert_eq!(view.retries[&ServiceUid::new("web")], [0, 1]);
    assert_eq!(view.retries[&ServiceUid::new("api")], [0]);
    drive.at(30_500).attempt(conflict());
    let view = drive.view.clone().expect("a view");
    assert_eq!(view.retries[&ServiceUid::new("web")], [1, 2]);
    assert_eq!(view.retries[&ServiceUid::new("api")], [1]);
}

#[test]
fn s0_10_exhausted_changes_are_reported_others_requeued() {
    let mut drive = Drive::in_sync(Params { max_retries: 1, ..params() });
    drive.require("web", &[2]).at(500).attempt(conflict());
    drive.require("api", &[3]).at(30_500);
    drive.take_outputs();
    drive.attempt(conflict());
    assert_eq!(drive.events(), ["exhausted web", "retrying api"]);
    assert_eq!(drive.observations(), [true], "a mixed attempt is one failed observation");
    let view = drive.view.clone().expect("a view");
    assert_eq!(view.retries, BTreeMap::from([(ServiceUid::new("api"), vec![1])]));
}

#[test]
fn s0_10_a_service_with_both_kinds_of_changes_gets_two_reports() {
    let mut drive = Drive::in_sync(Params { max_retries: 1, ..params() });
    drive.require("web", &[2]).at(500).attempt(conflict());
    drive.require("web", &[3]).at(30_500);
    drive.take_outputs();
    drive.attempt(conflict());
    assert_eq!(drive.events(), ["exhausted web", "retrying web"]);
}

#[test]
fn s0_11_the_fourth_failure_exhausts_the_default_budget() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    for n in 0..3 {
        drive.at(500 + n * 30_000).attempt(conflict());
        assert_eq!(drive.events(), ["retrying web"]);
    }
    drive.at(90_500).attempt(conflict());
    let reports = drive.reports.clone();
    assert!(matches!(reports[0].what, EventKind::FailedExhausted { retries: 3, .. }));
    assert_eq!(drive.events(), ["exhausted web"]);
    assert_eq!(drive.observations(), [true]);
    assert_eq!(drive.state(), PoolState::Failed);
    assert!(drive.view.clone().expect("a view").retries.is_empty());
}

#[test]
fn s0_12_13_a_terminal_failure_is_reported_and_not_requeued() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    drive.take_outputs();
    drive.attempt(forbidden());
    assert_eq!(drive.events(), ["failed web"]);
    assert_eq!(drive.observations(), [true]);
    assert_eq!(drive.state(), PoolState::Failed);
    drive.at(60_499);
    assert!(drive.due.is_none());
}

#[test]
fn s0_14_a_missing_pool_is_dropped_without_event_or_observation() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    drive.take_outputs();
    drive.attempt(Outcome::Stale);
    assert!(drive.events().is_empty());
    assert!(drive.sent_any(|said| matches!(said, Out::Missing(_))));
    assert!(drive.observations().is_empty());
    drive.at(600_000);
    assert!(drive.due.is_none(), "only an observation brings it back");
}

#[test]
fn s0_15_a_service_that_left_before_the_outcome_is_dropped() {
    let mut drive = Drive::in_sync(params());
    drive.require("api", &[1]);
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    drive.drop_service("web").take_outputs();
    drive.finish(id, conflict());
    assert!(drive.events().is_empty());
    assert!(drive.observations().is_empty());
    let retries = &drive.view.as_ref().expect("a view").retries;
    assert!(!retries.contains_key("web"));
}

/// S0 "Metrics": stale changes record no observation; S0 "Event Behavior": they are not reported either.
#[test]
fn s0_15_an_attempt_without_any_change_left_is_not_reported() {
    let unchanged = Outcome::Unchanged { members: ips(&[1]) };
    for outcome in [written(&[1, 2]), unchanged, conflict(), throttled(90_500), forbidden()] {
        let mut drive = Drive::in_sync(params());
        drive.require("api", &[1]);
        drive.require("web", &[2]).at(500);
        let id = drive.take();
        drive.drop_service("web").take_outputs();
        let ended = format!("{outcome:?}");
        drive.finish(id, outcome);
        assert!(drive.events().is_empty(), "{ended}");
        assert!(drive.observations().is_empty(), "{ended}");
        assert!(drive.queue.last_result.failed().is_none(), "no failure was reported: {ended}");
    }
}

#[test]
fn s0_18_20_a_parked_service_that_leaves_unparks_the_pool() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500).attempt(throttled(900_500));
    drive.at(10_000).require("api", &[3]);
    drive.take_outputs();
    drive.drop_service("web");
    assert_eq!(drive.state(), PoolState::Waiting);
    assert!(drive.events().is_empty());
    drive.at(30_500);
    assert!(drive.due.is_some(), "the retry interval holds, the parking does not");
}

#[test]
fn s0_19_one_event_for_each_distinct_service() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).require("web", &[3]).require("api", &[4]).require("api", &[5]).at(2_000);
    drive.attempt(conflict());
    assert_eq!(drive.events(), ["retrying api", "retrying web"]);
    drive.at(32_000).attempt(written(&[3, 5]));
    assert_eq!(drive.events(), ["updated api", "updated web"]);
}

#[test]
fn s0_21_an_interrupted_attempt_is_not_reported_or_requeued() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    drive.take_outputs();
    drive.finish(id, Outcome::Interrupted);
    assert!(drive.events().is_empty());
    assert!(drive.observations().is_empty());
    assert!(drive.view.clone().expect("a view").retries.is_empty());
    drive.at(60_000).observe(&[1]).at(60_500);
    assert!(drive.due.is_some(), "the level stays: the next observation finds the difference");
}

#[test]
fn s0_22_without_retries_the_first_failure_is_final() {
    let mut drive = Drive::in_sync(Params { max_retries: 0, ..params() });
    drive.require("web", &[2]).at(500).attempt(conflict());
    assert_eq!(drive.events(), ["exhausted web"]);
    drive.at(3_600_000);
    assert!(drive.due.is_none(), "nor is it compared again");
    drive.edit(|a| a.services.get_mut("web").expect("web").revision += 1).at(3_600_500);
    assert!(drive.due.is_some(), "a slice event starts it again");
}

#[test]
fn s0_23_a_change_that_succeeds_after_a_retry_is_observed_once() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    drive.take_outputs();
    drive.attempt(conflict()).at(30_500).attempt(written(&[2]));
    assert_eq!(drive.observations(), [false]);
}
