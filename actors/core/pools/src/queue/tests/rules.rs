//! The rules Q1 to Q8 of the contract, and related ones.

use super::*;
use model::assignment::PausedBy;

#[test]
fn d6_nothing_is_due_before_the_first_observation() {
    let mut drive = Drive::new(params());
    drive.require("web", &[1]).require("web", &[1, 2]).at(3_600_000);
    assert!(drive.due.is_none());
    assert_eq!(drive.state(), PoolState::Unknown);
    drive.observe(&[1]);
    assert_eq!(drive.state(), PoolState::Waiting);
    assert!(!drive.samples.contains(&Metric::Drift));
    drive.at(3_600_500);
    assert_eq!(drive.due.map(|due| due.urgency), Some(MembershipUrgency::Add));
    drive.attempt(written(&[1, 2]));
    assert_eq!(drive.events(), ["updated web"]);
}

#[test]
fn q2_a_change_is_due_after_quiet_period_or_maximum_delay() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(499);
    assert!(drive.due.is_none());
    drive.at(500);
    assert_eq!(
        drive.due,
        Some(MembershipDue { since: Now::from_millis(500), urgency: MembershipUrgency::Revive })
    );
    let mut drive = Drive::in_sync(params());
    for n in 0..10_u8 {
        drive.at(u64::from(n) * 400).require("web", &[10 + n]);
    }
    assert_eq!(drive.due.map(|due| due.since), Some(Now::from_millis(2_000)));
}

#[test]
fn q2_the_window_counts_from_when_changes_were_read() {
    let read = |drive: &mut Drive, members: &[u8], millis| {
        let share = Share { read: Some(Now::from_millis(millis)), ..share("web", members) };
        drive.edit(|assignment| {
            assignment.services.insert(ServiceUid::new("web"), share);
        });
    };
    let mut drive = Drive::in_sync(params());
    drive.at(10_000);
    read(&mut drive, &[2], 9_800);
    assert!(drive.due.is_none());
    drive.at(10_100);
    read(&mut drive, &[3], 9_900);
    assert!(drive.at(10_399).due.is_none());
    assert_eq!(drive.at(10_400).due.map(|due| due.since), Some(Now::from_millis(10_400)));
    // A change that took longer than the window to arrive is due immediately.
    let mut drive = Drive::in_sync(params());
    drive.at(10_000);
    read(&mut drive, &[2], 9_000);
    assert_eq!(drive.due.map(|due| due.since), Some(Now::from_millis(9_500)));
    // A change that only time has caused is not as old as the last change that was read.
    let mut drive = Drive::in_sync(params());
    drive.at(10_000);
    read(&mut drive, &[1], 9_990);
    drive.at(40_000);
    read(&mut drive, &[1, 2], 9_990);
    assert!(drive.at(40_499).due.is_none());
    assert!(drive.at(40_500).due.is_some());
}

#[test]
fn q2_attempts_are_at_least_the_interval_apart() {
    let withheld = Outcome::Withheld { members: ips(&[1]), added: ips(&[2]), removed: ips(&[1]) };
    for (outcome, interval) in [
        (written(&[2]), 5_000),
        (Outcome::Unchanged { members: ips(&[2]) }, 5_000),
        (withheld, 5_000),
        (Outcome::Stale, 5_000),
        (Outcome::NotManageable(NotManageable::NoRule), 5_000),
        (Outcome::Interrupted, 5_000),
        (conflict(), 30_000),
        (forbidden(), 30_000),
        // No call was sent: the pool is due as before.
        (Outcome::NotGranted, 0),
    ] {
        let mut drive = Drive::in_sync(params());
        drive.require("web", &[2]).at(500);
        let id = drive.take();
        let ended = format!("{outcome:?}");
        drive.at(4_000).finish(id, outcome).require("web", &[3]).observe(&[1]);
        if interval > 0 {
            drive.at(4_000 + interval - 1);
            assert!(drive.due.is_none(), "{ended}");
        }
        drive.at(4_000 + interval);
        assert!(drive.due.is_some(), "{ended}");
    }
}

#[test]
fn q2_a_change_that_returns_to_the_verified_level_vanishes() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(300).require("web", &[1]);
    assert_eq!(drive.state(), PoolState::InSync);
    drive.at(10_000);
    assert!(!drive.sent_any(|said| matches!(said, Out::Due(..) | Out::Report(_) | Out::Ended(_))));
    drive.require("web", &[2]).at(10_500);
    assert!(drive.due.is_some());
    drive.require("web", &[1]);
    assert!(drive.due.is_none(), "also out of the lane");
}

#[test]
fn q2_a_level_after_an_unclear_try_is_not_verified() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500).attempt(forbidden());
    drive.require("web", &[1]).at(30_500);
    assert!(drive.due.is_some(), "the failed PUT may have removed member 1");
}

#[test]
fn q2_a_due_pool_takes_the_changes_inside_a_window_too() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500).require("api", &[3]);
    let id = drive.take();
    assert_eq!(drive.taken(id).expect("a level").level.required.len(), 2);
    drive.finish(id, written(&[2, 3]));
    assert_eq!(drive.events(), ["updated api", "updated web"]);
}

#[test]
fn q3_the_urgency_follows_the_pool_and_is_sent_on_change() {
    let mut drive = Drive::in_sync(params());
    drive.observe(&[1, 9]).at(500);
    assert_eq!(drive.due.map(|due| due.urgency), Some(MembershipUrgency::Remove));
    drive.require("web", &[1, 2]);
    assert_eq!(drive.due.map(|due| due.urgency), Some(MembershipUrgency::Add));
    drive.require("web", &[2]);
    assert_eq!(
        drive.due,
        Some(MembershipDue { since: Now::from_millis(500), urgency: MembershipUrgency::Revive })
    );
}

#[test]
fn q3_a_member_that_is_down_or_not_ready_is_unused() {
    let mut level = Level::default();
    let member = |node_ready| Member { name: AddressName::new("node"), node_ready };
    level.required.insert(ip(1), member(true));
    level.required.insert(ip(2), member(true));
    let mut seen = facts(&[1]);
    assert_eq!(ObservedPool::observed(&seen, Now::ZERO).urgency(&level), MembershipUrgency::Add);
    Arc::make_mut(&mut seen).entries[0].admin_state = AdminState::Down;
    assert_eq!(ObservedPool::observed(&seen, Now::ZERO).urgency(&level), MembershipUrgency::Revive);
    level.required.insert(ip(1), member(false));
    assert_eq!(ObservedPool::observed(&facts(&[1]), Now::ZERO).urgency(&level), MembershipUrgency::Revive);
    assert_eq!(
        ObservedPool::observed(&facts(&[1, 2, 3]), Now::ZERO).urgency(&level),
        MembershipUrgency::Remove
    );
}

#[test]
fn q3_a_pool_without_a_grant_uses_no_retries_or_reports() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    drive.take_outputs();
    drive.at(3_600_000);
    assert!(drive.said.is_empty());
    drive.require("web", &[3]);
    assert_eq!(drive.view.clone().expect("a view").retries[&ServiceUid::new("web")], [0]);
}

#[test]
fn a3_a_foreign_or_repeated_answer_is_a_counted_no_op() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    let other = AttemptId { epoch: Epoch(0), n: 99 };
    drive.take_outputs();
    drive.finish(other, written(&[7]));
    assert_eq!(drive.samples, [Metric::UnmatchedAnswer]);
    drive.finish(id, written(&[2])).take_outputs();
    drive.finish(id, forbidden());
    assert_eq!(drive.samples, [Metric::UnmatchedAnswer]);
    assert_eq!(drive.state(), PoolState::InSync);
    drive.step(In::Verified(WriteFate::Persisted(other)));
    assert_eq!(drive.samples, [Metric::UnmatchedAnswer, Metric::UnmatchedAnswer]);
}

#[test]
fn q3_a_second_grant_during_an_attempt_has_no_effect() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    let second = drive.grant();
    assert!(drive.taken(second).is_none());
    drive.finish(id, written(&[2]));
    assert_eq!(drive.events(), ["updated web"]);
}

#[test]
fn w4_a_new_grant_for_an_attempt_takes_the_newest_level() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    drive.at(6_000).require("api", &[3]);
    drive.step(In::Take(id));
    assert_eq!(drive.taken(id).expect("a level").level.required.len(), 2);
    drive.finish(id, conflict());
    assert_eq!(drive.events(), ["retrying api", "retrying web"]);
}

#[test]
fn w4_a_new_grant_without_work_ends_the_attempt_silently() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    drive.edit(|a| a.paused = [PausedBy::Pool].into()).step(In::Take(id));
    assert!(drive.taken(id).is_none());
    assert_eq!(drive.state(), PoolState::Paused);
    drive.edit(|a| a.paused = [].into()).at(10_000);
    let id = drive.take();
    drive.drop_service("web").step(In::Take(id));
    assert!(drive.taken(id).is_none());
    assert!(drive.sent_any(|said| matches!(said, Out::Retired(_))));
    assert!(drive.events().is_empty());
}

#[test]
fn q6_a_refused_permit_uses_no_retry_and_leaves_the_pool_due() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    drive.take_outputs();
    drive.at(3_000).finish(id, Outcome::NotGranted);
    assert_eq!(drive.due.map(|due| due.since), Some(Now::from_millis(500)));
    assert!(drive.events().is_empty() && drive.observations().is_empty());
    drive.attempt(conflict());
    assert_eq!(drive.view.clone().expect("a view").retries[&ServiceUid::new("web")], [1]);
}

#[test]
fn q6_a_missing_pool_that_exists_is_compared_with_back_off() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    for delay in [5_000, 10_000, 20_000] {
        drive.attempt(Outcome::Stale);
        let ended = drive.now.as_micros() / 1_000;
        drive.at(ended + 1_000).observe(&[1]).at(ended + delay + 499);
        assert!(drive.due.is_none(), "{delay}");
        drive.at(ended + delay + 500);
        assert!(drive.due.is_some(), "{delay}");
    }
}

#[test]
fn d2_a_pool_without_proof_is_reported_once_and_compared_later() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    drive.take_outputs();
    drive.attempt(Outcome::NotManageable(NotManageable::OutboundRule));
    assert_eq!(drive.events(), ["not manageable web"]);
    assert!(drive.observations().is_empty());
    drive.at(60_000);
    assert!(drive.due.is_none());
    drive.observe(&[1]).at(60_500).attempt(Outcome::NotManageable(NotManageable::OutboundRule));
    assert!(drive.events().is_empty(), "told already");
}

#[test]
fn q4_missing_rules_are_reported_only_if_still_mapped() {
    let foreign = || NotManageable::ForeignRule { rule: "by-hand".into() };
    for reason in [|| NotManageable::NoRule, foreign] {
        let mut drive = Drive::in_sync(params());
        drive.require("web", &[2]).at(500);
        drive.take_outputs();
        drive.attempt(Outcome::NotManageable(reason()));
        assert!(drive.events().is_empty(), "the load balancer is read again first");
        assert!(drive.sent_any(|said| matches!(said, Out::Missing(_))));
        drive.at(60_000);
        assert!(drive.due.is_none(), "nothing is tried before it has been seen again");
        drive.observe(&[1]).at(70_000).attempt(Outcome::NotManageable(reason()));
        assert_eq!(drive.events(), ["not manageable web"], "it still maps the pool");
        drive.observe(&[1]).at(90_000).attempt(written(&[2]));
        drive.take_outputs();
        drive.require("web", &[3]).at(100_000).attempt(Outcome::NotManageable(reason()));
        assert!(drive.events().is_empty(), "it was overcome");
    }
}

#[test]
fn q4_rules_that_disappear_again_are_reread_before_a_report() {
    let no_rule = || Outcome::NotManageable(NotManageable::NoRule);
    // In the meantime, another client corrected the pool, or a new term began.
    let ends: [fn(&mut Drive); 2] = [
        |drive| {
            drive.observe(&[2]);
        },
        |drive| {
            drive.edit(|assignment| assignment.epoch = Epoch(assignment.epoch.0 + 1)).observe(&[1]);
        },
    ];
    for end in ends {
        let mut drive = Drive::in_sync(params());
        drive.require("web", &[2]).at(500);
        drive.take_outputs();
        drive.attempt(no_rule());
        drive.at(20_000);
        end(&mut drive);
        drive.require("web", &[3]).at(100_000).attempt(no_rule());
        assert!(drive.events().is_empty(), "the load balancer is read again first");
        drive.observe(&[1]).at(200_000).attempt(no_rule());
        assert_eq!(drive.events(), ["not manageable web"]);
    }
}

#[test]
fn q8_a_reported_failure_is_compared_with_doubling_delays() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500).attempt(forbidden());
    assert_eq!(drive.events(), ["failed web"]);
    let mut ended = 500;
    for delay in [60_000, 120_000, 240_000, 480_000, 600_000, 600_000] {
        drive.at(ended + 30_000).observe(&[1]).at(ended + delay + 499);
        assert!(drive.due.is_none(), "an observation does not shorten it ({delay})");
        drive.at(ended + delay + 500);
        drive.take_outputs();
        drive.attempt(forbidden());
        ended += delay + 500;
        assert!(drive.events().is_empty());
        assert_eq!(drive.observations(), [true], "it counts");
    }
    drive.at(ended + 600_500);
    drive.attempt(Outcome::Terminal { failure: failure(400, "Invalid") });
    assert_eq!(drive.events(), ["failed web"], "another error is news");
}

#[test]
fn q8_a_repeated_exhausted_failure_is_not_reported() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    for n in 0..4 {
        drive.at(500 + n * 30_000).attempt(conflict());
    }
    assert_eq!(drive.events().len(), 4);
    drive.take_outputs();
    let again = drive.now.as_micros() / 1_000 + 60_500;
    for n in 0..4 {
        drive.at(again + n * 30_000).attempt(conflict());
    }
    assert!(drive.events().is_empty());
    assert_eq!(drive.observations(), [true], "it counts");
    drive.at(again + 90_000 + 120_500).attempt(written(&[2]));
    assert_eq!(drive.events(), ["updated web"], "that it is over is news");
}

#[test]
fn q8_without_a_retry_time_a_failure_causes_no_comparison() {
    for after_failure in [None, Some(Duration::ZERO)] {
        let mut drive = Drive::in_sync(Params { after_failure, ..params() });
        drive.require("web", &[2]).at(500).attempt(forbidden());
        assert!(matches!(drive.reports[0].what, EventKind::FailedTerminal { compared_again_in: None, .. }));
        drive.at(60_000).observe(&[1]).at(7_200_000).observe(&[1]).at(7_260_000);
        assert!(drive.due.is_none() && drive.queue.deadline().is_none());
        drive.edit(|a| a.services.get_mut("web").expect("web").revision += 1).at(7_260_500);
        assert!(drive.due.is_some(), "a slice event still starts it again");
    }
}

#[test]
fn q8_any_slice_event_after_a_failure_is_a_fresh_change() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500).attempt(forbidden());
    drive.events();
    drive.edit(|a| a.services.get_mut("web").expect("web").revision = 7).at(30_500).attempt(forbidden());
    assert_eq!(drive.events(), ["failed web"], "an operator who asked again gets the answer");
    let mut drive = Drive::in_sync(params());
    drive.edit(|a| a.services.get_mut("web").expect("web").revision = 7);
    assert_eq!(drive.state(), PoolState::InSync, "without a failure an equal level is no change");
}

#[test]
fn q8_a_failed_pool_observed_in_sync_is_in_sync_again() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500).attempt(forbidden()).at(20_000).observe(&[2]);
    assert_eq!(drive.state(), PoolState::InSync);
    drive.at(3_600_000);
    assert!(drive.due.is_none());
}

#[test]
fn q8_drift_is_a_fresh_change_with_a_fresh_budget() {
    let mut drive = Drive::in_sync(params());
    drive.at(60_000).observe(&[1, 9]);
    assert!(drive.samples.contains(&Metric::Drift));
    drive.at(60_500).attempt(written(&[1]));
    assert_eq!(drive.events(), ["updated web"]);
    drive.at(120_000).require("web", &[2]).take_outputs();
    drive.observe(&[1]);
    assert!(!drive.samples.contains(&Metric::Drift), "a change waits: the difference is no drift");
}

#[test]
fn d3_an_observation_older_than_the_last_outcome_is_discarded() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    drive.at(1_000).observe(&[1]);
    drive.at(4_000).finish(id, written(&[2]));
    drive.at(5_000).step(In::Observed(Observation { began: Now::from_millis(3_999), facts: facts(&[1]) }));
    assert_eq!(drive.state(), PoolState::InSync);
    drive.step(In::Observed(Observation { began: Now::from_millis(4_001), facts: facts(&[1]) }));
    assert_eq!(drive.state(), PoolState::Waiting);
}

#[test]
fn w2_lost_writes_are_fresh_changes_and_the_third_backs_off() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let mut waits = Vec::new();
    for _ in 0..5 {
        let id = drive.take();
        drive.finish(id, written(&[2]));
        let ended = drive.now.as_micros() / 1_000;
        drive.at(ended + 4_000);
        let (attempt, began) = (id, drive.now);
        drive.step(In::Verified(WriteFate::Lost { attempt, facts: facts(&[1]), began }));
        while drive.due.is_none() {
            let next = drive.queue.deadline().expect("it is tried again");
            drive.at(next.as_micros() / 1_000);
        }
        waits.push(drive.now.since(began).as_secs());
    }
    assert_eq!(waits, [1, 1, 60, 120, 240]);
    assert_eq!(
        drive.losses(),
        [(1, None), (2, None), (3, Some(60)), (4, Some(120)), (5, Some(240))],
        "each is told, and how long it is left for"
    );
    assert_eq!(drive.view.clone().expect("a view").lost_writes, 5);
    assert!(!drive.samples.contains(&Metric::Drift));
    assert_eq!(drive.samples.iter().filter(|sample| **sample == Metric::LostWrite).count(), 5);
}

#[test]
fn g3_the_directory_receives_the_members_after_each_attempt() {
    let mut drive = Drive::in_sync(params());
    let heard = |drive: &mut Drive| -> Vec<PoolMembers> {
        let members = |said| if let Out::Members(_, members) = said { Some(members) } else { None };
        drive.take_outputs().into_iter().filter_map(members).collect()
    };
    let holds = |at: Now, members: &[u8]| PoolMembers { at, members: ips(members) };
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    drive.at(700).finish(id, written(&[2]));
    assert_eq!(heard(&mut drive), [holds(Now::from_millis(700), &[2])]);
    // A lost write has removed nothing.
    let began = Now::from_millis(4_600);
    drive.at(4_700).step(In::Verified(WriteFate::Lost { attempt: id, facts: facts(&[1]), began }));
    assert_eq!(heard(&mut drive), [holds(began, &[1])]);
    drive.at(5_700).attempt(Outcome::Unchanged { members: ips(&[2]) });
    assert_eq!(heard(&mut drive), [holds(Now::from_millis(5_700), &[2])]);
    // A failed attempt gives no information about the members.
    drive.require("web", &[3]).at(10_700).attempt(Outcome::Interrupted);
    assert!(heard(&mut drive).is_empty());
}

#[test]
fn w2_a_service_s_change_is_not_held_back_by_lost_writes() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    for _ in 0..3 {
        let id = drive.take();
        drive.finish(id, written(&[2]));
        let ended = drive.now.as_micros() / 1_000;
        drive.at(ended + 4_000);
        let began = drive.now;
        drive.step(In::Verified(WriteFate::Lost { attempt: id, facts: facts(&[1]), began }));
        drive.at(ended + 5_000);
    }
    assert!(drive.due.is_none() && drive.state() == PoolState::Waiting);
    let soon = drive.now.as_micros() / 1_000 + 500;
    drive.require("web", &[2, 3]).at(soon);
    assert!(drive.due.is_some());
}

#[test]
fn w2_an_overwritten_write_is_drift() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    drive.finish(id, written(&[2])).at(4_500);
    let began = drive.now;
    drive.step(In::Verified(WriteFate::Overwritten { attempt: id, facts: facts(&[1]), began }));
    assert!(drive.samples.contains(&Metric::Drift));
    assert_eq!(drive.view.clone().expect("a view").lost_writes, 0);
}

#[test]
fn c4_a_dry_run_shows_the_difference_and_then_stays_quiet() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    drive.take_outputs();
    let withheld = || Outcome::Withheld { members: ips(&[1]), added: ips(&[2]), removed: ips(&[1]) };
    drive.attempt(withheld());
    assert!(drive.events().is_empty() && drive.observations().is_empty());
    assert_eq!(drive.view.clone().expect("a view").withheld, Some((ips(&[2]), ips(&[1]))));
    drive.at(60_000).observe(&[1]).at(3_600_000);
    assert!(drive.due.is_none());
    drive.observe(&[1, 3]).at(3_600_500);
    assert!(drive.due.is_some(), "what is there has changed");
    drive.attempt(withheld()).at(3_700_000).require("web", &[4]).at(3_700_500);
    assert!(drive.due.is_some(), "the level has changed");
    drive.require("web", &[1]);
    assert_eq!(drive.view.clone().expect("a view").withheld, None);
}

#[test]
fn d1_a_paused_pool_is_compared_and_shown_but_never_due() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500).edit(|a| a.paused = [PausedBy::Pool].into());
    assert!(drive.due.is_none(), "withdrawn");
    assert_eq!(drive.state(), PoolState::Paused);
    drive.at(60_000).observe(&[1, 3]).at(600_000);
    assert!(drive.due.is_none());
    assert_eq!(drive.view.clone().expect("a view").observed, Some(ips(&[1, 3])));
    drive.edit(|a| a.paused = [].into());
    assert!(drive.due.is_some());
}

#[test]
fn g6_a_pause_does_not_count_as_waiting() {
    let since = |drive: &Drive| drive.view.clone().expect("a view").waiting_since;
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]);
    assert_eq!(since(&drive), Some(Now::ZERO));
    drive.at(400).edit(|a| a.paused = [PausedBy::Mode].into()).at(600_000).require("web", &[3]);
    assert_eq!((drive.state(), since(&drive)), (PoolState::Paused, None));
    drive.edit(|a| a.paused = [].into());
    assert_eq!(since(&drive), Some(Now::from_millis(600_000)), "since it may be written");
    drive.at(600_500).attempt(written(&[3])).at(700_000).require("web", &[4]);
    assert_eq!(since(&drive), Some(Now::from_millis(700_000)));
}

#[test]
fn g6_outcomes_in_a_pause_are_counted_but_not_reported() {
    let kind: [(Outcome, &str); 4] = [
        (written(&[2]), "updated web"),
        (conflict(), "retrying web"),
        (forbidden(), "failed web"),
        (Outcome::NotManageable(NotManageable::OutboundRule), "not manageable web"),
    ];
    for (outcome, told) in kind {
        for pause in [true, false] {
            let mut drive = Drive::in_sync(params());
            drive.require("web", &[2]).at(500);
            let id = drive.take();
            if pause {
                drive.edit(|a| a.paused = [PausedBy::Service(ServiceKey::new("shop", "web"))].into());
            }
            drive.finish(id, outcome.clone());
            let counted = drive.observations().len();
            assert_eq!(counted, usize::from(matches!(told, "updated web" | "failed web")), "{told}");
            assert_eq!(drive.events(), if pause { vec![] } else { vec![told] });
        }
    }
}

#[test]
fn g6_a_failure_in_a_pause_is_reported_when_repeated() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    drive.edit(|a| a.paused = [PausedBy::Pool].into()).finish(id, forbidden());
    drive.edit(|a| a.paused = [].into()).at(61_000);
    drive.attempt(forbidden());
    assert_eq!(drive.events(), ["failed web"]);
    drive.at(200_000).attempt(forbidden());
    assert_eq!(drive.events(), Vec::<String>::new(), "a repeat");
    drive.edit(|a| a.paused = [PausedBy::Pool].into()).edit(|a| a.paused = [].into()).at(500_000);
    drive.attempt(forbidden());
    assert_eq!(drive.events(), ["failed web"], "once more after a pause");
}

#[test]
fn g6_a_failure_in_a_pause_is_retried_when_the_pause_ends() {
    for params in [
        Params { after_failure: Some(Duration::ZERO), ..params() },
        Params { after_failure: None, ..params() },
        Params { max_retries: 0, ..params() },
    ] {
        let mut drive = Drive::in_sync(params);
        drive.require("web", &[2]).at(500);
        let id = drive.take();
        drive.edit(|a| a.paused = [PausedBy::Pool].into()).finish(id, forbidden());
        drive.at(600_000).edit(|a| a.paused = [].into()).at(602_000);
        drive.attempt(forbidden());
        assert_eq!(drive.events(), ["failed web"], "when the pause ends");
        drive.edit(|a| a.paused = [PausedBy::Pool].into()).edit(|a| a.paused = [].into()).at(900_000);
        assert!(drive.due.is_none(), "it was reported, and nothing compares after failures");
    }
}

#[test]
fn q4_a_pool_without_an_owner_releases_and_retires() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    drive.take_outputs();
    drive.drop_service("web");
    assert!(drive.due.is_none());
    let last: Vec<bool> =
        drive.said.iter().map(|said| matches!(said, Out::Gone(_) | Out::Retired(_))).collect();
    assert!(last.ends_with(&[true, true]));
    assert_eq!(drive.samples, [Metric::PoolState { from: Some(PoolState::Due), to: None }]);
}

#[test]
fn q4_a_pool_in_an_attempt_retires_silently_when_it_ends() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    drive.take_outputs();
    drive.drop_service("web");
    assert!(!drive.sent_any(|said| matches!(said, Out::Retired(_))));
    drive.finish(id, conflict());
    assert!(drive.sent_any(|said| matches!(said, Out::Retired(_))));
    assert!(drive.events().is_empty() && drive.observations().is_empty());
}

#[test]
fn q4_a_service_that_returns_during_the_attempt_is_served() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    drive.drop_service("web").require("web", &[3]);
    drive.finish(id, written(&[2]));
    assert!(drive.events().is_empty(), "the attempt was for the Service that left");
    drive.at(5_500).attempt(written(&[3]));
    assert_eq!(drive.events(), ["updated web"]);
}

#[test]
fn e2_an_endpoint_change_is_measured_once_after_its_write() {
    let mut drive = Drive::in_sync(params());
    let triggered = |drive: &mut Drive, ms: u64, members: &[u8]| {
        let members = ips(members);
        drive.edit(|a| {
            let share = a.services.get_mut("web").expect("web");
            share.required = members;
            share.triggered = Some(Now::from_millis(ms));
        });
    };
    let measured = |drive: &mut Drive| -> Vec<Duration> {
        let mut spans = Vec::new();
        for sample in drive.samples.drain(..) {
            if let Metric::NetworkProgramming(span) = sample {
                spans.push(span);
            }
        }
        spans
    };
    triggered(&mut drive, 0, &[2]);
    drive.at(500);
    let id = drive.take();
    drive.at(3_000).finish(id, written(&[2]));
    assert_eq!(measured(&mut drive), [Duration::from_secs(3)]);
    drive.at(60_000).observe(&[1]).at(60_500).attempt(written(&[2]));
    assert!(measured(&mut drive).is_empty(), "drift is no endpoint change");
    triggered(&mut drive, 70_000, &[3]);
    drive.at(70_500).attempt(Outcome::Unchanged { members: ips(&[3]) });
    drive.at(90_000).observe(&[1]).at(90_500).attempt(written(&[3]));
    assert!(measured(&mut drive).is_empty(), "nor is one that needed no write measured later");
}

#[test]
fn q1_an_entry_counts_at_most_one_try_more_than_retries() {
    let mut drive = Drive::in_sync(params());
    let mut most = 0;
    for n in 0..40_u8 {
        drive.at(u64::from(n) * 31_000).require("web", &[10 + n]).at(u64::from(n) * 31_000 + 600);
        if drive.due.is_some() {
            drive.attempt(conflict());
        }
        let retries = &drive.view.as_ref().expect("a view").retries;
        most = most.max(retries.get("web").map_or(0, Vec::len));
    }
    assert_eq!(most, 3, "three are requeued, the fourth is exhausted");
}

#[test]
fn w8_a_pool_is_not_in_sync_while_its_write_runs() {
    let mut drive = Drive::new(params());
    drive.require("web", &[1]);
    drive.observe_updating(&[1]);
    assert_eq!(drive.state(), PoolState::Unknown, "a predecessor's operation may yet be undone");
    drive.at(60_000).observe(&[]).at(60_500);
    assert!(drive.due.is_some() && !drive.samples.contains(&Metric::Drift), "what it leaves is no drift");
    let mut drive = Drive::in_sync(params());
    drive.at(1_000);
    drive.observe_updating(&[1]);
    assert_eq!(drive.state(), PoolState::InSync, "a pool that was in sync still is");
    drive.at(61_000).observe(&[1]);
    assert_eq!(drive.state(), PoolState::InSync);
}

#[test]
fn q8_a_failed_pool_in_sync_during_a_write_is_read_again() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500).attempt(forbidden());
    drive.at(50_000).observe_updating(&[2]);
    // This is longer than the pause before the comparison.
    drive.at(110_000).observe(&[2]);
    assert_eq!(drive.state(), PoolState::InSync);
    // The next result may also be out of sync.
    drive.require("web", &[3]).at(120_000).attempt(forbidden());
    drive.at(130_000).observe_updating(&[3]).at(400_000).observe(&[2]).at(401_000);
    assert!(drive.due.is_some(), "the moment of the comparison has passed");
}
