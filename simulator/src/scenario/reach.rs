//! Checks that each action of a scenario had an effect: a fault that no request has met proves nothing.
//!
//! During the run, Azure stores the counts at the time of each action.

use std::collections::BTreeSet;

use simulator_models::arm::{Counters, Fault};
use simulator_models::kube::FaultEffects;

use super::{Action, ModelSetting, TimelineEntry};
use crate::azure::Azure;
use crate::cluster::Cluster;

/// Faults of both servers that requests have met.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reach {
    cluster: FaultEffects,
    arm_cut: u64,
    /// Recorded actions, in the order of time.
    recorded: Vec<RecordedAction>,
    /// Final counts.
    end: Tally,
}

/// A recorded action.
#[derive(Clone, Debug)]
struct RecordedAction {
    action: Action,
    /// True if the controller's process existed, for an action on it.
    done: bool,
    before: Tally,
}

/// Azure's counts at one time.
#[derive(Clone, Debug, Default)]
struct Tally {
    sums: Counters,
    /// Number of times each fault has taken effect.
    effects: Vec<(Fault, u64)>,
    /// Required members that another client has removed.
    taken: u64,
    /// Number of times another client set an entry Down.
    set_down: u64,
}

impl Tally {
    fn of(azure: &Azure) -> Self {
        Self {
            sums: azure.model.counters(),
            effects: azure.model.fault_effects().to_vec(),
            taken: azure.outages.taken(),
            set_down: azure.downs.set_by_others(),
        }
    }

    fn times(&self, fault: &Fault) -> u64 {
        self.effects.iter().find(|(known, _)| known == fault).map_or(0, |(_, times)| *times)
    }

    /// Returns the number of refusals by ARM's own buckets.
    fn by_buckets(&self) -> u64 {
        self.sums.throttled - self.sums.throttled_by_provider
    }
}

impl Reach {
    /// Returns Azure's counts.
    pub(crate) fn of_azure(azure: &Azure) -> Self {
        Self { arm_cut: azure.cut, end: Tally::of(azure), ..azure.reach.clone() }
    }

    /// Records an action with the counts before it. `done` is false if an action on the controller's process was not
    /// possible.
    pub(crate) fn record(azure: &mut Azure, action: &Action, done: bool) {
        let before = Tally::of(azure);
        azure.reach.recorded.push(RecordedAction { action: action.clone(), done, before });
    }

    /// Records the effects of the API server's faults.
    pub(crate) fn record_cluster(&mut self, cluster: &Cluster) {
        self.cluster = cluster.model.fault_effects().clone();
    }

    /// Returns the texts of the actions without an effect, each once. Actions with the same text count together. So do
    /// actions of one kind on the API server: a watcher notices only one of two restarts that are close together.
    pub(crate) fn missed(&self, timeline: &[TimelineEntry]) -> Vec<String> {
        let missed = timeline.iter().filter(|entry| !self.reached(&entry.action));
        let words: BTreeSet<&String> = missed.map(|entry| &entry.words).collect();
        words.into_iter().cloned().collect()
    }

    /// Returns whether an action had an effect. The end of a fault affects the next request; a change of the cluster is
    /// visible in the cluster.
    fn reached(&self, action: &Action) -> bool {
        let fault_effects = &self.cluster;
        match action {
            Action::Arm(setting) => self.setting_reached(action, setting),
            Action::ArmDown(down) => !down || self.arm_cut > 0,
            Action::ApiDown(down) => !down || fault_effects.refused > 0,
            Action::ApiSlow(time) => time.is_zero() || fault_effects.slowed > 0,
            Action::ApiRestart => fault_effects.expired > 0,
            Action::ApiThrottle { requests, .. } => *requests == 0 || fault_effects.throttled > 0,
            Action::ListsEmpty(kinds) => {
                kinds.iter().all(|kind| fault_effects.hidden.get(kind).is_some_and(|times| *times > 0))
            }
            Action::EtcdRestore => fault_effects.rollbacks > 0,
            Action::TakeMembers(_) => self.grew(action, |_| false, |tally| tally.taken),
            Action::SetDown(_) => self.grew(action, |_| false, |tally| tally.set_down),
            Action::ClocksJump(seconds) => *seconds == 0 || self.answered(action),
            Action::StandStill(true) | Action::FilesLimit(_) => self.was_done(action),
            // The process was suspended or restarted, and works.
            Action::StandStill(false) | Action::Restart => self.was_done(action) && self.answered(action),
            Action::EtcdSave | Action::Disruption(_) | Action::TouchService(_) => true,
        }
    }

    fn setting_reached(&self, action: &Action, setting: &ModelSetting) -> bool {
        match setting {
            ModelSetting::Faults(faults) => {
                let over = |later: &Action| matches!(later, Action::Arm(ModelSetting::Faults(_)));
                faults.iter().all(|fault| self.grew(action, over, |tally| tally.times(fault)))
            }
            ModelSetting::Quota(Some(_)) => {
                let over = |later: &Action| matches!(later, Action::Arm(ModelSetting::Quota(_)));
                self.grew(action, over, |tally| tally.sums.throttled)
            }
            ModelSetting::Buckets(_) => {
                let over = |later: &Action| {
                    matches!(later, Action::Arm(ModelSetting::Buckets(_) | ModelSetting::Quota(None)))
                };
                self.grew(action, over, Tally::by_buckets)
            }
            ModelSetting::SilentLoss(share) => {
                let over = |later: &Action| matches!(later, Action::Arm(ModelSetting::SilentLoss(_)));
                *share <= 0.0 || self.grew(action, over, |tally| tally.sums.silently_lost)
            }
            ModelSetting::Quota(None)
            | ModelSetting::GetLatency(_)
            | ModelSetting::PutLatency(_)
            | ModelSetting::Operation(_)
            | ModelSetting::RetryAfter(_)
            | ModelSetting::UpdateStatus(_)
            | ModelSetting::ConcurrentWrite(_)
            | ModelSetting::UnfinishedWrite(_)
            | ModelSetting::Visibility(_)
            | ModelSetting::DownResetsFlows(_)
            | ModelSetting::NicAdminState(_)
            | ModelSetting::LockRetryAfter { .. } => true,
        }
    }

    /// Returns whether a count has increased between an action and the action that ends it, or the end of the run.
    fn grew(&self, action: &Action, ends: impl Fn(&Action) -> bool, sum: impl Fn(&Tally) -> u64) -> bool {
        let grows = |(from, recorded): (usize, &RecordedAction)| {
            let later = self.recorded.iter().skip(from + 1).find(|later| ends(&later.action));
            recorded.action == *action
                && sum(&recorded.before) < sum(later.map_or(&self.end, |later| &later.before))
        };
        self.recorded.iter().enumerate().any(grows)
    }

    /// Returns whether the controller got an answer of ARM after an action. The answer has a date of ARM's clock.
    fn answered(&self, action: &Action) -> bool {
        let over = |later: &Action| matches!((action, later), (Action::ClocksJump(_), Action::ClocksJump(_)));
        self.grew(action, over, |tally| tally.sums.answered)
    }

    /// Returns whether an action on the controller's process was possible.
    fn was_done(&self, action: &Action) -> bool {
        self.recorded.iter().any(|recorded| recorded.done && recorded.action == *action)
    }
}

#[cfg(test)]
mod tests {
    use simulator_models::kube::Resource;

    use super::*;
    use crate::scenario::Scenario;

    /// A function that removes an effect, and the actions that have no effect then.
    type Less = (fn(&mut Reach), &'static [&'static str]);

    /// Actions that have an effect only if a client meets them.
    const ACTIONS: [&str; 19] = [
        "apiserver down",
        "apiserver restart",
        "apiserver slow 2s",
        "apiserver throttle 4 retry-after 1",
        "arm buckets 2 writes 1/s",
        "arm down",
        "arm fault put 429 every 3 body pascal and any 502 every 5 body html",
        "arm quota 1 writes 9 reads in 1m",
        "arm silent-loss 0.5",
        "clocks jump 1h",
        "controller files 9",
        "controller goes on",
        "controller restarts",
        "controller stands still",
        "etcd restore",
        "lists empty",
        "lists empty nodes",
        "others set down a member of every 2",
        "others take a member of every 2",
    ];

    /// Returns all of these actions, and then those that end them or change the cluster.
    fn timeline() -> Vec<TimelineEntry> {
        let lines: Vec<String> = ACTIONS.iter().map(|action| format!("at 1s {action}\n")).collect();
        let ends = "at 2s apiserver up\nat 2s apiserver slow 0\nat 2s arm up\nat 2s arm fault none\n\
                    at 2s lists full\nat 2s etcd save\nat 2s arm silent-loss 0\nat 2s nodes add 3\n\
                    at 2s arm quota none\n";
        Scenario::read(&(lines.concat() + ends)).expect("a scenario").timetable()
    }

    /// Returns recorded actions without an effect.
    fn nothing() -> Reach {
        let recorded = |one: &TimelineEntry| RecordedAction {
            action: one.action.clone(),
            done: false,
            before: Tally::default(),
        };
        Reach { recorded: timeline().iter().map(recorded).collect(), ..Reach::default() }
    }

    fn faults() -> Vec<Fault> {
        let all = timeline();
        let Action::Arm(ModelSetting::Faults(faults)) = &all[6].action else { panic!("faults") };
        faults.clone()
    }

    /// Returns recorded actions with all effects: after all of them had begun, and before any of them ended.
    fn all() -> Reach {
        let kinds = [Resource::Services, Resource::EndpointSlices, Resource::Nodes];
        let hidden = kinds.into_iter().map(|kind| (kind, 1)).collect();
        let cluster = FaultEffects {
            refused: 1,
            slowed: 1,
            throttled: 1,
            expired: 1,
            hidden,
            rollbacks: 1,
            token_reviews: 0,
        };
        let sums = Counters {
            answered: 9,
            throttled: 2,
            throttled_by_provider: 1,
            silently_lost: 1,
            ..Counters::default()
        };
        let effects = faults().into_iter().map(|fault| (fault, 1)).collect();
        let end = Tally { sums, effects, taken: 1, set_down: 1 };
        let mut recorded = nothing().recorded;
        for (number, one) in recorded.iter_mut().enumerate() {
            one.done = true;
            if number >= ACTIONS.len() {
                one.before = end.clone();
            }
        }
        Reach { cluster, arm_cut: 1, recorded, end }
    }

    /// Changes the counts at the end, and at the actions that end others.
    fn less(reach: &mut Reach, take: impl Fn(&mut Tally)) {
        for recorded in &mut reach.recorded[ACTIONS.len()..] {
            take(&mut recorded.before);
        }
        take(&mut reach.end);
    }

    fn unthrottle(tally: &mut Tally) {
        (tally.sums.throttled, tally.sums.throttled_by_provider) = (0, 0);
    }

    fn undo(reach: &mut Reach, undone: &Action) {
        for recorded in &mut reach.recorded {
            recorded.done &= recorded.action != *undone;
        }
    }

    #[test]
    fn z2_a_fault_without_a_request_is_named() {
        assert_eq!(Reach::default().missed(&timeline()), ACTIONS, "the action was not recorded");
        assert_eq!(nothing().missed(&timeline()), ACTIONS);
        assert_eq!(all().missed(&timeline()), Vec::<String>::new());
    }

    #[test]
    fn z2_each_fault_is_counted_separately() {
        let cases: [Less; 20] = [
            (|reach| reach.cluster.refused = 0, &["apiserver down"]),
            (|reach| reach.cluster.expired = 0, &["apiserver restart"]),
            (|reach| reach.cluster.slowed = 0, &["apiserver slow 2s"]),
            (|reach| reach.cluster.throttled = 0, &["apiserver throttle 4 retry-after 1"]),
            (|reach| reach.arm_cut = 0, &["arm down"]),
            (|reach| reach.cluster.rollbacks = 0, &["etcd restore"]),
            (|reach| reach.cluster.hidden.retain(|kind, _| *kind != Resource::Services), &["lists empty"]),
            (
                |reach| reach.cluster.hidden.retain(|kind, _| *kind != Resource::Nodes),
                &["lists empty", "lists empty nodes"],
            ),
            (
                |reach| less(reach, unthrottle),
                &["arm buckets 2 writes 1/s", "arm quota 1 writes 9 reads in 1m"],
            ),
            (
                |reach| less(reach, |tally| tally.sums.throttled_by_provider = tally.sums.throttled),
                &["arm buckets 2 writes 1/s"],
            ),
            (|reach| less(reach, |tally| tally.sums.silently_lost = 0), &["arm silent-loss 0.5"]),
            (|reach| less(reach, |tally| tally.taken = 0), &["others take a member of every 2"]),
            (|reach| less(reach, |tally| tally.set_down = 0), &["others set down a member of every 2"]),
            (
                |reach| less(reach, |tally| tally.sums.answered = 0),
                &["clocks jump 1h", "controller goes on", "controller restarts"],
            ),
            (|reach| undo(reach, &Action::Restart), &["controller restarts"]),
            (|reach| undo(reach, &Action::StandStill(true)), &["controller stands still"]),
            (|reach| undo(reach, &Action::StandStill(false)), &["controller goes on"]),
            (|reach| undo(reach, &Action::FilesLimit(Some(9))), &["controller files 9"]),
            // Only the web page, and only the body in PascalCase.
            (
                |reach| less(reach, |tally| drop(tally.effects.remove(0))),
                &["arm fault put 429 every 3 body pascal and any 502 every 5 body html"],
            ),
            (
                |reach| less(reach, |tally| drop(tally.effects.pop())),
                &["arm fault put 429 every 3 body pascal and any 502 every 5 body html"],
            ),
        ];
        for (take, missed) in cases {
            let mut reach = all();
            take(&mut reach);
            assert_eq!(reach.missed(&timeline()), missed);
        }
    }

    #[test]
    fn z2_effects_outside_of_the_time_of_a_fault_do_not_count() {
        let timed = [ACTIONS[4], ACTIONS[6], ACTIONS[7], ACTIONS[8]];
        assert!(timed.iter().all(|action| action.starts_with("arm ")), "{timed:?}");
        let mut late = all();
        for recorded in &mut late.recorded {
            recorded.before = Tally::default();
        }
        assert_eq!(late.missed(&timeline()), timed, "all of them had ended before the requests");
        let mut early = all();
        for recorded in &mut early.recorded {
            recorded.before = early.end.clone();
        }
        let missed = early.missed(&timeline());
        let since_then = [
            "clocks jump 1h",
            "controller goes on",
            "controller restarts",
            "others set down a member of every 2",
            "others take a member of every 2",
        ];
        let expected: Vec<&str> = timed.iter().chain(&since_then).copied().collect();
        assert_eq!(missed, expected, "all requests were before the actions");
    }
}
