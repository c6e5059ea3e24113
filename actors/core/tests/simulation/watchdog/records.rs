//! The records of nodes in the controller's ConfigMap (N4), and the rules for a new record: the limit of Down nodes
//! (N5), and the earlier Downs in it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use simulator_models::arm::ArmModel;
use simulator_models::kube::KubeModel;

use super::Watchdog;
use super::entries::{DOWN, EntryId, entries_of};
use super::nodes::{Flag, NOTICED_US};
use crate::ccm::EXCLUDED;
use crate::notes;

/// Largest age of an observation on which a new record is based: an edge may stall, and the record may have waited
/// for its answer.
const SEEN_US: u64 = 60_000_000;

/// The record of one node.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) there: Flag,
    backends: BTreeMap<String, Flag>,
    /// Pools in which a Down is foreign: by name, in lower case.
    foreign: BTreeMap<String, Flag>,
    /// True if pools are named by numbers.
    has_numbers: bool,
    taint_is_ours: Flag,
    /// The process that has recorded that the taint is ours.
    recorder: Option<usize>,
}

impl Record {
    fn take_in(&mut self, now: u64, process: Option<usize>, text: &str) {
        self.there.set(now, true);
        let words = |name: &str| -> BTreeSet<String> {
            let lines = text.lines().filter_map(|line| line.strip_prefix(name));
            lines.flat_map(str::split_whitespace).map(str::to_lowercase).collect()
        };
        let backends: BTreeSet<String> = words("ips:").into_iter().chain(words("instance:")).collect();
        set_all(now, &mut self.backends, &backends);
        let (numbers, names): (BTreeSet<String>, BTreeSet<String>) =
            words("foreign:").into_iter().partition(|word| word.starts_with('#'));
        self.has_numbers = !numbers.is_empty();
        set_all(now, &mut self.foreign, &names);
        let is_ours = text.lines().any(|line| line == "taint: ours");
        if is_ours && !self.taint_is_ours.is() {
            self.recorder = process;
        }
        self.taint_is_ours.set(now, is_ours);
    }

    fn vanish(&mut self, now: u64) {
        self.there.set(now, false);
        self.taint_is_ours.set(now, false);
        set_all(now, &mut self.backends, &BTreeSet::new());
        set_all(now, &mut self.foreign, &BTreeSet::new());
    }

    /// Returns whether the record has this address, or had it recently.
    fn held(&self, now: u64, backend: &str) -> bool {
        self.backends.get(backend).is_some_and(|has| has.held_within(now, NOTICED_US))
    }

    /// Returns whether the record has had this address long enough for all processes to know it.
    fn holds_steadily(&self, now: u64, backend: &str) -> bool {
        self.backends.get(backend).is_some_and(|has| has.holds_for(now, NOTICED_US))
    }

    pub(super) fn holds(&self, backend: &str) -> bool {
        self.backends.get(backend).is_some_and(Flag::is)
    }

    /// Returns whether it may name this pool as an exception.
    pub(super) fn may_except(&self, entry: &EntryId) -> bool {
        self.has_numbers || self.foreign.get(&entry.pool_words()).is_some_and(Flag::is)
    }
}

fn set_all(now: u64, known: &mut BTreeMap<String, Flag>, there: &BTreeSet<String>) {
    known.iter_mut().for_each(|(word, flag)| flag.set(now, there.contains(word)));
    for word in there {
        known.entry(word.clone()).or_default().set(now, true);
    }
}

/// Downs of a load balancer that a process has observed.
#[derive(Clone, Debug)]
struct Observation {
    arrived: u64,
    lb: String,
    downs: BTreeSet<EntryId>,
}

/// The observations of one process.
#[derive(Default)]
pub(super) struct Observations(Vec<Observation>);

impl Observations {
    /// Returns whether a read of a load balancer has arrived within this time.
    pub(super) fn has_read(&self, lb: &str, from: u64, to: u64) -> bool {
        self.0.iter().any(|observation| observation.lb == lb && (from..=to).contains(&observation.arrived))
    }

    /// Returns the Downs in the newest observation that had arrived by then, and in all since.
    fn downs(&self, by: u64, lb: &str) -> BTreeSet<EntryId> {
        let of: Vec<&Observation> = self.0.iter().filter(|observation| observation.lb == lb).collect();
        let from = of.iter().rposition(|observation| observation.arrived <= by);
        let Some(from) = from else { return BTreeSet::new() };
        let all = of[from..].iter().map(|observation| observation.downs.clone());
        all.reduce(|some, more| &some & &more).unwrap_or_default()
    }
}

/// All records that ever existed, by the UID of their node.
#[derive(Default)]
pub(super) struct Records {
    pub(super) all: BTreeMap<String, Record>,
    /// True if the operator has disabled the admin state, with the time of the last change.
    pub(super) off: Flag,
}

impl Records {
    /// Returns the existing records.
    pub(super) fn present(&self) -> impl Iterator<Item = (&String, &Record)> {
        self.all.iter().filter(|(_, record)| record.there.is())
    }

    pub(super) fn is_recorded(&self, uid: &str) -> bool {
        self.all.get(uid).is_some_and(|record| record.there.is())
    }

    /// Returns whether a record of this node held this recently.
    pub(super) fn held(&self, now: u64, uid: &str, backend: &str) -> bool {
        self.all.get(uid).is_some_and(|record| record.held(now, backend))
    }

    /// Returns whether a record of this node has held this for long.
    pub(super) fn holds_steadily(&self, now: u64, uid: &str, backend: &str) -> bool {
        self.all.get(uid).is_some_and(|record| record.holds_steadily(now, backend))
    }

    /// Returns whether a Down may be ours by any recent record.
    pub(super) fn may_be_ours(&self, now: u64, entry: &EntryId) -> bool {
        let mut held = self.all.values().filter(|record| record.held(now, &entry.backend));
        held.any(|record| !record.foreign.get(&entry.pool_words()).is_some_and(Flag::is))
    }

    /// Returns whether a record has named the pool as an exception for long.
    pub(super) fn is_exception(&self, now: u64, entry: &EntryId) -> bool {
        self.all.values().any(|record| {
            let named = record.foreign.get(&entry.pool_words()).copied().unwrap_or_default();
            record.holds_steadily(now, &entry.backend) && named.holds_for(now, NOTICED_US)
        })
    }

    /// Returns whether a record names the pool as an exception, or did recently.
    pub(super) fn was_exception(&self, now: u64, entry: &EntryId) -> bool {
        self.all.values().any(|record| {
            let named = record
                .foreign
                .get(&entry.pool_words())
                .is_some_and(|named| named.held_within(now, NOTICED_US));
            record.held(now, &entry.backend) && (named || record.has_numbers)
        })
    }

    /// Returns whether the records have marked the taint of a node as ours for this time.
    pub(super) fn has_marked_ours(&self, now: u64, uid: &str, span: u64) -> bool {
        self.all.get(uid).is_some_and(|record| record.taint_is_ours.holds_for(now, span))
    }

    /// Returns the process that has recorded that the taint of a node is ours, and when. `None`: no record says so, or
    /// it was made after every process knew of the taint, which has existed since `at`.
    pub(super) fn recorder_of_taint(&self, now: u64, uid: &str, at: u64) -> Option<(Option<usize>, u64)> {
        let record = self.all.get(uid)?;
        let flag = &record.taint_is_ours;
        let is_in_time = !flag.is() || flag.since() <= at + NOTICED_US;
        (flag.held_within(now, NOTICED_US) && is_in_time).then_some((record.recorder, flag.since()))
    }

    /// Returns whether the records mark the taint of a node as ours, or did recently.
    pub(super) fn marks_ours(&self, now: u64, uid: &str) -> bool {
        self.all.get(uid).is_some_and(|record| record.taint_is_ours.held_within(now, NOTICED_US))
    }
}

impl Watchdog {
    /// Records that a process reads a load balancer, and receives the answer at this time.
    pub fn on_read_of_balancer(&mut self, arrives: u64, process: usize, arm: &ArmModel, lb: &str) {
        let mut downs = BTreeSet::new();
        for pool in arm.pools(lb).filter(|pool| *pool != EXCLUDED) {
            let document = arm.pool_json(lb, pool).unwrap_or(Value::Null);
            let entries = entries_of(&document).into_iter().filter(|(_, state)| *state == DOWN);
            downs.extend(entries.map(|(backend, _)| EntryId::new(lb, pool, &backend)));
        }
        let observation = &mut self.within[process].observations.0;
        observation.push(Observation { arrived: arrives, lb: lb.to_owned(), downs });
        if observation.len() > 60 {
            observation.remove(0);
        }
    }

    /// Checks a write of the controller's ConfigMap, by a process or by hand.
    ///
    /// # Errors
    ///
    /// A violation.
    pub fn record_records(
        &mut self,
        now: u64,
        process: Option<usize>,
        kube: &KubeModel,
        arm: &ArmModel,
    ) -> Result<Vec<String>, String> {
        let object = notes::stored(kube).unwrap_or(Value::Null);
        let data = object["data"].as_object();
        let mut there = BTreeSet::new();
        let mut new = Vec::new();
        for (key, value) in data.into_iter().flatten() {
            let Some(uid) = key.strip_prefix(notes::RECORD) else { continue };
            there.insert(uid.to_owned());
            if !self.records.is_recorded(uid) {
                new.push(uid.to_owned());
            }
            let record = self.records.all.entry(uid.to_owned()).or_default();
            record.take_in(now, process, value.as_str().unwrap_or_default());
        }
        let present = self.records.all.iter_mut().filter(|(_, record)| record.there.is());
        present.filter(|(uid, _)| !there.contains(*uid)).for_each(|(_, gone)| gone.vanish(now));
        self.records.off.set(now, data.is_some_and(|data| data.contains_key(notes::ADMIN_STATE_OFF)));
        if let Some(process) = process {
            self.left.recorded += new.len() as u64;
            for uid in &new {
                self.check_record(now, process, arm, uid)?;
            }
            self.check_breaker(now, process, &new)?;
        }
        Ok(new)
    }

    /// Checks N4: a record is made because the node drains, with its addresses and interfaces, and with the Downs
    /// that were observed before.
    fn check_record(&self, now: u64, process: usize, arm: &ArmModel, uid: &str) -> Result<(), String> {
        let Some(node) = self.nodes.all.get(uid) else {
            return Err(format!("N4: a record of {uid}, which is no node"));
        };
        let leaves = node.leaves.held_within(now, NOTICED_US)
            || node.may_be_noticed(now, self.within[process].sees_all_since());
        if !leaves && self.within[process].blind_since.is_none() {
            return Err(format!("N1: {} is recorded, and does not drain", node.name));
        }
        let Some(record) = self.records.all.get(uid) else { return Ok(()) };
        let by = now.saturating_sub(SEEN_US);
        for lb in arm.load_balancers() {
            for entry in self.within[process].observations.downs(by, lb) {
                let is_foreign = record.holds(&entry.backend) && self.entries.is_foreign(&entry);
                let mut others = self.records.all.iter().filter(|(other, _)| *other != uid);
                let is_explained = others.any(|(_, other)| other.held(now, &entry.backend));
                if is_foreign && !is_explained && !record.may_except(&entry) {
                    return Err(format!("N4: {uid} is recorded, and the Down of {entry} is foreign"));
                }
            }
        }
        Ok(())
    }

    /// Checks N5: Ready nodes go Down only within the limit, unless the operator has released them.
    fn check_breaker(&self, now: u64, process: usize, new: &[String]) -> Result<(), String> {
        if self.within[process].blind_since.is_some() {
            return Ok(());
        }
        let counts = |uid: &String| {
            let node = self.nodes.all.get(uid)?;
            let long = node.leaves.holds_for(now, NOTICED_US) && node.serves.holds_for(now, NOTICED_US);
            long.then_some(node)
        };
        let (mut bound, mut free) = (0, 0);
        for uid in new {
            let Some(node) = self.nodes.all.get(uid) else { continue };
            if node.serves.holds_for(now, NOTICED_US) {
                *(if node.released.is_some() { &mut free } else { &mut bound }) += 1;
            }
        }
        let before =
            self.records.present().filter(|(uid, _)| !new.contains(uid) && counts(uid).is_some()).count();
        let allowed = self.nodes.allowed(now);
        if bound > 0 && before + bound + free > allowed {
            return Err(format!(
                "N5: {new:?} are set Down: {bound} of them serve, {free} are released, {before} are Down, {allowed} are allowed"
            ));
        }
        Ok(())
    }
}
