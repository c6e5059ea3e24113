//! Tests of the back-offs of W11, and of the rules that do not apply in `compatibility: upstream` (C2).

use super::*;
use crate::queue::changes::ChangeOwner;
use model::blocked::Blocked;

impl Drive {
    /// Adds member 9 as another client to a pool in sync. The drift check observes it `after` ms from now.
    fn foreign_addition(&mut self, after: u64) -> &mut Drive {
        let ms = self.ms() + after;
        self.at(ms).observe(&[1, 9])
    }

    /// Grants the due attempt, which removes member 9.
    fn undo(&mut self) -> &mut Drive {
        let due = self.queue.deadline().map_or(self.now, |at| at.max(self.now));
        self.at(due.as_micros() / 1_000);
        self.attempt(Outcome::Written {
            members: ips(&[1]),
            added: ips(&[]),
            removed: ips(&[9]),
            record: Arc::default(),
        })
    }

    /// Observes at this time that member 1 is missing.
    fn lose(&mut self, ms: u64) -> &mut Drive {
        self.at(ms).observe(&[])
    }

    fn restore(&mut self) -> &mut Drive {
        self.attempt(Outcome::Written {
            members: ips(&[1]),
            added: ips(&[1]),
            removed: ips(&[]),
            record: Arc::default(),
        })
    }

    fn ms(&self) -> u64 {
        self.now.as_micros() / 1_000
    }

    fn contentions(&self) -> usize {
        self.samples.iter().filter(|sample| **sample == Metric::Contention).count()
    }

    /// Returns the level of the next grant.
    fn taken_level(&mut self) -> (AttemptId, Level) {
        let id = self.take();
        let level = self.taken(id).expect("a level").level;
        (id, level)
    }
}

/// Returns a pool that has just removed the foreign member 9 for the third time.
pub(super) fn after_contention() -> Drive {
    let mut drive = Drive::in_sync(params());
    for _ in 0..3 {
        drive.foreign_addition(6_000).undo();
    }
    drive
}

#[test]
fn w11_the_third_removal_in_10_min_backs_off_and_is_reported() {
    let mut drive = Drive::in_sync(params());
    for _ in 0..2 {
        drive.foreign_addition(6_000).undo();
    }
    assert_eq!(drive.contentions(), 0);
    assert_eq!(drive.events(), ["updated web", "updated web"]);
    drive.foreign_addition(6_000).undo();
    assert_eq!(drive.contentions(), 1);
    let reports = drive.reports.clone();
    let contested = EventKind::Contested { pool: pool(), members: 1, left_for: Duration::from_secs(60) };
    assert_eq!(reports.last().map(|report| &report.what), Some(&contested));
    assert_eq!(drive.events(), ["updated web", "contested web"]);
    let began = drive.ms();
    drive.take_outputs();
    drive.foreign_addition(6_000);
    assert_eq!(drive.samples[0], Metric::Drift, "it is reported");
    assert_eq!(drive.state(), PoolState::Waiting);
    let blocked = drive.view.as_ref().and_then(|view| view.blocked);
    assert_eq!(blocked, Some(Blocked::Contention.until(Now::from_millis(began + 60_000))));
    drive.at(began + 59_999);
    assert!(drive.due.is_none() && drive.events().is_empty());
    drive.at(began + 60_500);
    assert_eq!(drive.due.map(|due| due.urgency), Some(MembershipUrgency::Remove));
}

#[test]
fn w11_the_back_off_doubles_to_10_min_and_resets_after_a_calm() {
    let mut drive = after_contention();
    let mut pauses = Vec::new();
    for _ in 0..6 {
        drive.foreign_addition(1_000);
        let until = drive.queue.deadline().expect("it is undone again");
        pauses.push(until.since(drive.now).as_secs() + 1);
        drive.at(until.as_micros() / 1_000).undo();
    }
    assert_eq!(pauses, [60, 120, 240, 480, 600, 600]);
    assert_eq!(drive.contentions(), 7, "one for each of them");
    drive.foreign_addition(1_300_000).undo();
    assert_eq!(drive.contentions(), 7, "long ago");
    drive.foreign_addition(6_000).undo().foreign_addition(6_000).undo();
    assert_eq!(drive.contentions(), 8);
    drive.foreign_addition(1_000);
    assert_eq!(drive.queue.deadline().map(|at| at.since(drive.now).as_secs()), Some(59));
}

#[test]
fn w11_a_service_change_is_written_during_the_back_off() {
    let mut drive = after_contention();
    let until = drive.ms() + 60_000;
    drive.foreign_addition(6_000).require("web", &[1, 2]).at(until - 50_000);
    let (id, level) = drive.taken_level();
    assert!(level.required.contains_key(&ip(2)) && level.tolerated == ips(&[9]));
    drive.finish(
        id,
        Outcome::Written {
            members: ips(&[1, 2, 9]),
            added: ips(&[2]),
            removed: ips(&[]),
            record: Arc::default(),
        },
    );
    assert_eq!(drive.events().last().map(String::as_str), Some("updated web"));
    drive.take_outputs();
    drive.observe(&[1, 2, 9]).at(until - 1);
    assert!(drive.due.is_none() && drive.samples.is_empty(), "{:?}", drive.samples);
    drive.at(until + 500);
    let (_, level) = drive.taken_level();
    assert!(level.tolerated.is_empty(), "it goes when the back-off is over");
}

#[test]
fn w11_a_change_beside_the_contested_member_needs_no_write() {
    let mut drive = after_contention();
    drive.foreign_addition(6_000).take_outputs();
    drive.edit(|a| {
        a.services.get_mut("web").expect("web").tolerated.insert(ip(7));
    });
    drive.at(drive.ms() + 10_000);
    assert!(drive.due.is_none());
    assert_eq!(drive.state(), PoolState::Waiting, "it is out of sync as well");
}

#[test]
fn w11_a_service_that_requires_the_contested_member_gets_it() {
    let mut drive = after_contention();
    drive.foreign_addition(6_000).require("web", &[1, 9]);
    assert_eq!(drive.state(), PoolState::InSync);
    let ms = drive.ms() + 6_000;
    drive.require("web", &[1]).at(ms);
    let (_, level) = drive.taken_level();
    assert!(level.tolerated.is_empty(), "this removal is a Service's");
}

#[test]
fn w11_a_removal_by_a_service_is_written_during_the_back_off() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[1, 2]).observe(&[1, 2]);
    for _ in 0..3 {
        let ms = drive.ms() + 6_000;
        drive.at(ms).observe(&[1, 2, 9]).at(ms + 500);
        drive.attempt(Outcome::Written {
            members: ips(&[1, 2]),
            added: ips(&[]),
            removed: ips(&[9]),
            record: Arc::default(),
        });
    }
    let ms = drive.ms() + 6_000;
    drive.at(ms).observe(&[1, 2, 9]).require("web", &[1]).at(ms + 500);
    let (_, level) = drive.taken_level();
    assert_eq!(level.surplus(&ips(&[1, 2, 9])).copied().collect::<BTreeSet<_>>(), ips(&[2]));
}

#[test]
fn w11_d4_members_of_the_other_family_are_removed_each_time() {
    let mut drive = Drive::in_sync(params());
    drive.assignment.level.other_family = ips(&[9]);
    let assignment = Arc::new(drive.assignment.clone());
    drive.step(In::Assigned(assignment));
    for _ in 0..6 {
        drive.foreign_addition(6_000);
        let due = drive.queue.deadline().expect("it is undone");
        assert!(due.since(drive.now) < Duration::from_secs(6), "without a back-off");
        drive.undo();
    }
    assert_eq!(drive.contentions(), 0);
    assert!(drive.events().iter().all(|event| event.starts_with("updated")), "{:?}", drive.events());
}

#[test]
fn w11_members_that_a_service_released_are_no_contention() {
    let mut drive = Drive::in_sync(params());
    for n in 0..10_u8 {
        let ms = drive.ms() + 6_000;
        drive.at(ms).require("web", &[2 + n]).at(ms + 500);
        let removed = drive.view.as_ref().and_then(|view| view.observed.clone()).expect("seen");
        drive.attempt(Outcome::Written {
            members: ips(&[2 + n]),
            added: ips(&[2 + n]),
            removed,
            record: Arc::default(),
        });
    }
    assert_eq!(drive.contentions(), 0);
}

#[test]
fn w11_a_missing_member_is_restored_at_once_then_each_minute() {
    let mut drive = Drive::in_sync(params());
    drive.lose(10_000).at(10_500).restore();
    let mut restored = 10_500;
    for _ in 0..30 {
        drive.lose(restored + 6_000).at(restored + 60_499);
        assert!(drive.due.is_none(), "{restored}");
        restored += 60_500;
        drive.at(restored).restore();
    }
    drive.lose(restored + 70_000).at(restored + 70_500);
    assert!(drive.due.is_some(), "after a minute it is at once again");
    assert_eq!(drive.contentions(), 0);
}

#[test]
fn w11_each_member_is_restored_immediately_the_first_time() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[1, 2]).observe(&[1, 2]);
    drive.at(10_000).observe(&[2]).at(10_500);
    let both =
        |added| Outcome::Written { members: ips(&[1, 2]), added, removed: ips(&[]), record: Arc::default() };
    drive.attempt(both(ips(&[1])));
    drive.at(20_000).observe(&[2]).at(25_000);
    assert!(drive.due.is_none(), "member 1 was restored ten seconds ago");
    drive.observe(&[]).at(25_500);
    assert!(drive.due.is_some(), "member 2 never was");
}

#[test]
fn w11_a_missing_member_is_restored_during_the_back_off() {
    let mut drive = after_contention();
    let ms = drive.ms() + 6_000;
    drive.at(ms).observe(&[9]).at(ms + 500);
    assert_eq!(drive.due.map(|due| due.urgency), Some(MembershipUrgency::Revive));
    let (_, level) = drive.taken_level();
    assert_eq!(level.tolerated, ips(&[9]));
}

#[test]
fn w11_a_services_change_is_not_delayed_by_restorations() {
    let mut drive = Drive::in_sync(params());
    drive.lose(10_000).at(10_500).restore();
    drive.lose(20_000).require("web", &[1, 2]).at(20_500);
    assert!(drive.due.is_some());
}

#[test]
fn w11_g2_the_last_members_are_kept_despite_other_clients() {
    let mut drive = after_contention();
    drive.foreign_addition(6_000);
    let contention = &drive.queue.contention;
    let level = Level { keeps: SurplusPolicy::KeepLast, ..Level::default() };
    assert!(contention.relaxed(drive.now, &Level::default()).is_some());
    assert!(contention.relaxed(drive.now, &level).is_none(), "member 9 must not stand for the last one");
}

#[test]
fn c2_without_w11_all_drift_is_undone_and_nothing_backs_off() {
    let mut drive = Drive::in_sync(Params { contention_backoff: false, ..params() });
    for _ in 0..6 {
        let ms = drive.ms() + 6_000;
        drive.at(ms).observe(&[9]).at(ms + 500);
        drive.attempt(Outcome::Written {
            members: ips(&[1]),
            added: ips(&[1]),
            removed: ips(&[9]),
            record: Arc::default(),
        });
    }
    for _ in 0..6 {
        let ms = drive.ms() + 4_000;
        let attempt = drive.queue.written.expect("a write");
        drive.at(ms);
        drive.step(In::Verified(WriteFate::Lost { attempt, facts: facts(&[]), began: drive.now }));
        drive.at(ms + 1_000).restore();
    }
    let told: Vec<_> = (1..=6).map(|writes| (writes, None)).collect();
    assert_eq!(drive.losses(), told, "each lost write is told all the same");
    assert_eq!(drive.contentions(), 0);
}

#[test]
fn c2_drift_is_only_reported_until_a_service_changes() {
    let mut drive = Drive::in_sync(Params::upstream(Duration::from_secs(30), 3));
    drive.take_outputs();
    drive.at(60_000).observe(&[1, 9]).at(120_000).observe(&[1, 9]);
    assert_eq!(drive.samples.iter().filter(|sample| **sample == Metric::Drift).count(), 1, "one difference");
    assert_eq!(drive.state(), PoolState::Waiting);
    assert_eq!(drive.view.as_ref().and_then(|view| view.observed.clone()), Some(ips(&[1, 9])));
    drive.observe(&[9]);
    assert_eq!(drive.samples.iter().filter(|sample| **sample == Metric::Drift).count(), 2, "another one");
    drive.at(3_600_000);
    assert!(drive.due.is_none() && drive.queue.deadline().is_none());
    drive.require("web", &[1, 2]).at(3_630_000);
    let (_, level) = drive.taken_level();
    assert_eq!(level.surplus(&ips(&[9])).copied().collect::<BTreeSet<_>>(), ips(&[9]));
    let mut drive = Drive::in_sync(Params::upstream(Duration::from_secs(30), 3));
    drive.observe(&[1, 9]).observe(&[1]);
    assert_eq!(drive.state(), PoolState::InSync, "it has gone by itself");
}

#[test]
fn c2_a_change_causes_an_attempt_even_if_the_pool_is_in_sync() {
    let mut drive = Drive::in_sync(Params::upstream(Duration::from_secs(30), 3));
    let began = drive.now;
    drive.at(1_000).require("api", &[1]);
    drive.step(In::Observed(Observation { began, facts: facts(&[1]) })).at(31_000);
    let (id, level) = drive.taken_level();
    assert!(
        level.is_in_sync(&ips(&[1])),
        "another client may have added a member, which only this change removes"
    );
    drive.finish(id, written(&[1]));
    assert_eq!(drive.events(), ["updated api"]);
    drive.require("web", &[1, 2]).require("web", &[1]).observe(&[1]).at(90_000);
    assert!(drive.due.is_none(), "it was seen in sync since");
    let mut drive = Drive::in_sync(params());
    drive.require("api", &[1]).at(30_000);
    assert!(drive.due.is_none(), "drift is restored");
}

#[test]
fn c2_a_missing_pool_restarts_with_a_fresh_change_or_mapping() {
    let upstream = || Params::upstream(Duration::from_secs(30), 3);
    let mut drive = Drive::in_sync(upstream());
    drive.require("web", &[2]).at(30_000).attempt(Outcome::Stale);
    drive.at(32_000).observe(&[1]).at(3_600_000).observe(&[1]).at(7_200_000);
    assert!(drive.due.is_none() && drive.queue.deadline().is_none());
    drive.require("web", &[3]).at(7_230_000);
    assert!(drive.due.is_some(), "a fresh change");
    let mut drive = Drive::in_sync(upstream());
    drive.require("web", &[2]).at(30_000).attempt(Outcome::Stale);
    drive.drop_service("web").require("web", &[2]).observe(&[1]).at(60_000);
    assert!(drive.due.is_some(), "a fresh mapping");
}

#[test]
fn q6_a_fresh_change_after_a_missing_pool_waits_for_an_observation() {
    for params in [params(), Params::upstream(Duration::from_secs(30), 3)] {
        let tick = u64::try_from(params.min_interval.as_millis()).expect("short");
        let mut drive = Drive::in_sync(params);
        drive.require("web", &[2]).at(30_000).attempt(Outcome::Stale);
        drive.attempt_stale_again_later();
        let ms = drive.ms();
        drive.require("web", &[3]).at(ms + 2_000);
        assert!(drive.due.is_none(), "what is there is not known");
        drive.observe(&[1]).at(ms + tick);
        assert!(drive.due.is_some());
    }
}

/// Returns the number of contentions in an hour above which the chart's alert fires.
fn alert_above() -> usize {
    let alerts = include_str!("../../../../../../charts/azure-backend-pool-controller/files/alerts.yaml");
    let (_, rest) =
        alerts.split_once("(increase(backend_pool_controller_contentions_total[1h])) > ").expect("an alert");
    rest.lines().next().and_then(|number| number.parse().ok()).expect("a number")
}

/// The number is two more than the alert needs: `increase` estimates, and discovery may be slower than once a minute.
#[test]
fn w11_lasting_contention_keeps_its_alert_firing() {
    let mut drive = Drive::in_sync(params());
    let mut contentions = Vec::new();
    for second in 1..8 * 3_600 {
        let before = drive.contentions();
        drive.at(second * 1_000);
        if second % 60 == 0 {
            drive.observe(&[1, 9]);
        }
        if drive.due.is_some() {
            drive.undo();
        }
        if drive.contentions() > before {
            contentions.push(drive.ms());
        }
    }
    let hour_before =
        |end: u64| contentions.iter().filter(|at| **at > end - 3_600_000 && **at <= end).count();
    for end in (60..8 * 60).map(|minute| minute * 60_000) {
        assert!(hour_before(end) >= alert_above() + 2, "{} at {end}", hour_before(end));
    }
}

#[test]
fn q6_a_change_of_a_missing_pool_waits_until_it_is_found() {
    for params in [params(), Params::upstream(Duration::from_secs(30), 3)] {
        let tick = u64::try_from(params.min_interval.as_millis()).expect("short");
        let mut drive = Drive::in_sync(params);
        drive.require("web", &[2]).at(30_000);
        let id = drive.take();
        drive.require("api", &[3]).finish(id, Outcome::Stale).at(32_000);
        let waiting: Vec<ChangeOwner> = drive.queue.waiting.changes.owners().cloned().collect();
        assert_eq!(
            waiting,
            [ChangeOwner::Service(ServiceUid::new("api"))],
            "what the attempt took is dropped"
        );
        assert!(drive.events().is_empty() && drive.due.is_none(), "what is there is not known");
        drive.observe(&[1]).at(30_000 + tick - 1);
        assert!(drive.due.is_none(), "the interval since the outcome");
        drive.at(30_000 + tick);
        let (id, level) = drive.taken_level();
        assert!(level.is_in_sync(&ips(&[2, 3])), "the newest level");
        drive.finish(id, written(&[2, 3]));
        assert_eq!(drive.events(), ["updated api"]);
        assert_eq!(drive.state(), PoolState::InSync);
    }
}

#[test]
fn q6_a_change_of_a_missing_pool_ends_with_its_service() {
    for params in [params(), Params::upstream(Duration::from_secs(30), 3)] {
        let mut drive = Drive::in_sync(params);
        drive.require("web", &[2]).at(30_000);
        let id = drive.take();
        drive.require("api", &[3]).finish(id, Outcome::Stale).drop_service("api").drop_service("web");
        assert!(
            drive.sent_any(|said| matches!(said, Out::Retired(_))),
            "a pool that stays away has no owner"
        );
        assert!(drive.events().is_empty());
    }
}

impl Drive {
    /// Increases the back-off of a pool that is not found, if it has one.
    fn attempt_stale_again_later(&mut self) {
        for _ in 0..5 {
            self.observe(&[1]);
            if let Some(at) = self.queue.deadline() {
                self.at(at.as_micros() / 1_000);
                if let Some(at) = self.queue.deadline() {
                    self.at(at.as_micros() / 1_000);
                }
                self.attempt(Outcome::Stale);
            }
        }
    }
}

#[test]
fn q2_the_writers_pace_applies_to_the_next_outcome() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    drive.step(In::Pace(Duration::from_secs(42)));
    drive.at(3_000).finish(id, written(&[2])).require("web", &[3]).at(44_999);
    assert!(drive.due.is_none());
    drive.at(45_000).attempt(written(&[3])).require("web", &[4]).at(49_999);
    assert!(drive.due.is_none());
    drive.at(50_000);
    assert!(drive.due.is_some(), "the writer says it again if it still holds");
    let id = drive.take();
    drive.step(In::Pace(Duration::from_secs(42)));
    drive.finish(id, conflict()).at(91_999);
    assert!(drive.due.is_none(), "the longer of pace and retry interval");
    drive.at(92_000);
    let id = drive.take();
    drive.step(In::Pace(Duration::from_secs(1))).finish(id, conflict()).at(121_999);
    assert!(drive.due.is_none(), "nor does it shorten one");
}
