//! Checks that each act of a story had an effect: a fault that no request has met proves nothing.
//!
//! It stores the counts at the time of each act, with Azure while the run continues.

use std::collections::BTreeSet;

use simulator_models::arm::{Counters, Fault};
use simulator_models::kube::FaultEffects;

use super::{Act, Happening, Knob};
use crate::azure::Azure;
use crate::cluster::Cluster;

/// Faults of both servers that requests have met.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reach {
    cluster: FaultEffects,
    arm_cut: u64,
    /// Acts on Azure, or past it, in the order of time.
    recorded: Vec<RecordedAct>,
    /// Final counts.
    end: Tally,
}

/// Something that happened.
#[derive(Clone, Debug)]
struct RecordedAct {
    act: Act,
    /// True if the controller's process was there to do it to, where that is needed.
    done: bool,
    before: Tally,
}

/// Counts of Azure's side at a moment.
#[derive(Clone, Debug, Default)]
struct Tally {
    sums: Counters,
    /// Number of times each fault has taken effect.
    effects: Vec<(Fault, u64)>,
    /// Members that another client has taken out of pools that needed them.
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

    /// Refusals by ARM's own buckets.
    fn by_buckets(&self) -> u64 {
        self.sums.throttled - self.sums.throttled_by_provider
    }
}

impl Reach {
    /// Returns the counts of Azure's side.
    pub(crate) fn of_azure(azure: &Azure) -> Self {
        Self { arm_cut: azure.cut, end: Tally::of(azure), ..azure.reach.clone() }
    }

    /// Records an act with the counts before it. `done` is false if an act on the controller's process was not possible.
    pub(crate) fn record(azure: &mut Azure, act: &Act, done: bool) {
        let before = Tally::of(azure);
        azure.reach.recorded.push(RecordedAct { act: act.clone(), done, before });
    }

    /// Records the fault effects of the cluster's side.
    pub(crate) fn record_cluster(&mut self, cluster: &Cluster) {
        self.cluster = cluster.model.fault_effects().clone();
    }

    /// Returns the happenings of which no request has met anything, each in its words and once. Those of the same words
    /// count together, and so do those of the API server of one sort: of two restarts close together a watcher notices
    /// one.
    pub(crate) fn missed(&self, happenings: &[Happening]) -> Vec<String> {
        let missed = happenings.iter().filter(|happening| !self.reached(&happening.act));
        let words: BTreeSet<&String> = missed.map(|happening| &happening.words).collect();
        words.into_iter().cloned().collect()
    }

    /// Returns whether an act had an effect. The end of a fault reaches the next request; a changed world is seen in
    /// the world.
    fn reached(&self, act: &Act) -> bool {
        let fault_effects = &self.cluster;
        match act {
            Act::Arm(knob) => self.knob_reached(act, knob),
            Act::ArmDown(down) => !down || self.arm_cut > 0,
            Act::ApiDown(down) => !down || fault_effects.refused > 0,
            Act::ApiSlow(time) => time.is_zero() || fault_effects.slowed > 0,
            Act::ApiRestart => fault_effects.expired > 0,
            Act::ApiThrottle { requests, .. } => *requests == 0 || fault_effects.throttled > 0,
            Act::ListsEmpty(kinds) => {
                kinds.iter().all(|kind| fault_effects.hidden.get(kind).is_some_and(|times| *times > 0))
            }
            Act::EtcdRestore => fault_effects.rollbacks > 0,
            Act::TakeMembers(_) => self.grew(act, |_| false, |tally| tally.taken),
            Act::SetDown(_) => self.grew(act, |_| false, |tally| tally.set_down),
            Act::ClocksJump(seconds) => *seconds == 0 || self.answered(act),
            Act::StandStill(true) | Act::FilesLimit(_) => self.was_done(act),
            // It had stood still until then, or was started again, and works.
            Act::StandStill(false) | Act::Restart => self.was_done(act) && self.answered(act),
            Act::EtcdSave | Act::Disruption(_) | Act::TouchService(_) => true,
        }
    }

    fn knob_reached(&self, act: &Act, knob: &Knob) -> bool {
        match knob {
            Knob::Faults(faults) => {
                let over = |later: &Act| matches!(later, Act::Arm(Knob::Faults(_)));
                faults.iter().all(|fault| self.grew(act, over, |tally| tally.times(fault)))
            }
            Knob::Quota(Some(_)) => {
                let over = |later: &Act| matches!(later, Act::Arm(Knob::Quota(_)));
                self.grew(act, over, |tally| tally.sums.throttled)
            }
            Knob::Buckets(_) => {
                let over = |later: &Act| matches!(later, Act::Arm(Knob::Buckets(_) | Knob::Quota(None)));
                self.grew(act, over, Tally::by_buckets)
            }
            Knob::SilentLoss(share) => {
                let over = |later: &Act| matches!(later, Act::Arm(Knob::SilentLoss(_)));
                *share <= 0.0 || self.grew(act, over, |tally| tally.sums.silently_lost)
            }
            Knob::Quota(None)
            | Knob::GetLatency(_)
            | Knob::PutLatency(_)
            | Knob::Operation(_)
            | Knob::RetryAfter(_)
            | Knob::UpdateStatus(_)
            | Knob::ConcurrentWrite(_)
            | Knob::UnfinishedWrite(_)
            | Knob::Visibility(_)
            | Knob::DownResetsFlows(_)
            | Knob::NicAdminState(_)
            | Knob::LockRetryAfter { .. } => true,
        }
    }

    /// Returns whether something became more from the moment of an act until another one that ends it, or until the
    /// end.
    fn grew(&self, act: &Act, ends: impl Fn(&Act) -> bool, sum: impl Fn(&Tally) -> u64) -> bool {
        let grows = |(from, recorded): (usize, &RecordedAct)| {
            let later = self.recorded.iter().skip(from + 1).find(|later| ends(&later.act));
            recorded.act == *act
                && sum(&recorded.before) < sum(later.map_or(&self.end, |later| &later.before))
        };
        self.recorded.iter().enumerate().any(grows)
    }

    /// Returns whether the service got an answer of ARM after an act, which has its date by ARM's clock.
    fn answered(&self, act: &Act) -> bool {
        let over = |later: &Act| matches!((act, later), (Act::ClocksJump(_), Act::ClocksJump(_)));
        self.grew(act, over, |tally| tally.sums.answered)
    }

    /// Returns whether an act was done to the controller's process.
    fn was_done(&self, act: &Act) -> bool {
        self.recorded.iter().any(|recorded| recorded.done && recorded.act == *act)
    }
}

#[cfg(test)]
mod tests {
    use simulator_models::kube::Resource;

    use super::*;
    use crate::story::Story;

    /// A function that removes an effect from those that were met, and the acts that are missed then.
    type Less = (fn(&mut Reach), &'static [&'static str]);

    /// Each of these needs a client that meets it.
    const ACTS: [&str; 19] = [
        "apiserver down",
        "apiserver restart",
        "apiserver slow 2s",
        "apiserver throttle 4 retry-after 1",
        "arm buckets 2 writes 1/s",
        "arm down",
        "arm faults every:3:gateway-error any/every:5:html",
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

    /// Returns all of them, and then what ends them or changes the world.
    fn happenings() -> Vec<Happening> {
        let lines: Vec<String> = ACTS.iter().map(|act| format!("at 1s {act}\n")).collect();
        let ends = "at 2s apiserver up\nat 2s apiserver slow 0\nat 2s arm up\nat 2s arm faults none\n\
                    at 2s lists full\nat 2s etcd save\nat 2s arm silent-loss 0\nat 2s nodes add 3\n\
                    at 2s arm quota none\n";
        Story::read(&(lines.concat() + ends)).expect("a story").timetable()
    }

    /// Nothing but the notes: nothing had an effect.
    fn nothing() -> Reach {
        let recorded =
            |one: &Happening| RecordedAct { act: one.act.clone(), done: false, before: Tally::default() };
        Reach { recorded: happenings().iter().map(recorded).collect(), ..Reach::default() }
    }

    fn faults() -> Vec<Fault> {
        let all = happenings();
        let Act::Arm(Knob::Faults(faults)) = &all[6].act else { panic!("faults") };
        faults.clone()
    }

    /// Everything was met after all of it had begun, and before any of it was over.
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
            if number >= ACTS.len() {
                one.before = end.clone();
            }
        }
        Reach { cluster, arm_cut: 1, recorded, end }
    }

    /// The same with another tally in the end, and when what ends things happened.
    fn less(reach: &mut Reach, take: impl Fn(&mut Tally)) {
        for recorded in &mut reach.recorded[ACTS.len()..] {
            take(&mut recorded.before);
        }
        take(&mut reach.end);
    }

    fn unthrottle(tally: &mut Tally) {
        (tally.sums.throttled, tally.sums.throttled_by_provider) = (0, 0);
    }

    fn undo(reach: &mut Reach, undone: &Act) {
        for recorded in &mut reach.recorded {
            recorded.done &= recorded.act != *undone;
        }
    }

    #[test]
    fn z2_a_fault_without_a_request_is_named() {
        assert_eq!(Reach::default().missed(&happenings()), ACTS, "it has not even happened");
        assert_eq!(nothing().missed(&happenings()), ACTS);
        assert_eq!(all().missed(&happenings()), Vec::<String>::new());
    }

    #[test]
    fn z2_each_fault_is_counted_by_itself() {
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
            (|reach| undo(reach, &Act::Restart), &["controller restarts"]),
            (|reach| undo(reach, &Act::StandStill(true)), &["controller stands still"]),
            (|reach| undo(reach, &Act::StandStill(false)), &["controller goes on"]),
            (|reach| undo(reach, &Act::FilesLimit(Some(9))), &["controller files 9"]),
            // The web page alone, and the body in PascalCase alone.
            (
                |reach| less(reach, |tally| drop(tally.effects.remove(0))),
                &["arm faults every:3:gateway-error any/every:5:html"],
            ),
            (
                |reach| less(reach, |tally| drop(tally.effects.pop())),
                &["arm faults every:3:gateway-error any/every:5:html"],
            ),
        ];
        for (take, missed) in cases {
            let mut reach = all();
            take(&mut reach);
            assert_eq!(reach.missed(&happenings()), missed);
        }
    }

    #[test]
    fn z2_what_is_met_outside_of_a_fault_is_not_its_effect() {
        let timed = [ACTS[4], ACTS[6], ACTS[7], ACTS[8]];
        assert!(timed.iter().all(|act| act.starts_with("arm ")), "{timed:?}");
        let mut late = all();
        for recorded in &mut late.recorded {
            recorded.before = Tally::default();
        }
        assert_eq!(late.missed(&happenings()), timed, "all of them were over when something was met");
        let mut early = all();
        for recorded in &mut early.recorded {
            recorded.before = early.end.clone();
        }
        let missed = early.missed(&happenings());
        let since_then = [
            "clocks jump 1h",
            "controller goes on",
            "controller restarts",
            "others set down a member of every 2",
            "others take a member of every 2",
        ];
        let expected: Vec<&str> = timed.iter().chain(&since_then).copied().collect();
        assert_eq!(missed, expected, "all of it was met before anything happened");
    }
}
