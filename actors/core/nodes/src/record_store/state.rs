//! The records in one state of our ConfigMap, and the changes to make (docs/design/nodes.md, N4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::records::{self, MAX_OF_ALL, MAX_RECORD_BYTES, Record};
use model::config_map::{ConfigMapEdit, ConfigMapFacts};
use model::ids::NodeUid;
use model::machine::Now;
use model::object::ResourceVersion;

/// Reason for refusing a record whose key holds something else.
const UNREADABLE: &str =
    "its key down.<UID> of the controller's ConfigMap cannot be read: correct or remove it";
/// Reason for refusing a record without room.
const NO_ROOM: &str = "the controller's ConfigMap has no room for its record: all records together may have at most \
                       384 KiB";

/// A state of the ConfigMap.
#[derive(Debug)]
pub(super) struct RecordsState {
    /// The ConfigMap. `None`: absent.
    facts: Option<Arc<ConfigMapFacts>>,
    records: BTreeMap<NodeUid, Record>,
    unreadable: BTreeMap<Arc<str>, &'static str>,
    /// Keys that an unanswered write may still remove.
    doubted: BTreeSet<Arc<str>>,
    /// Size of all records in bytes, with their keys.
    size: usize,
}

/// The change of a state, and the records that do not fit.
#[derive(Debug, Default)]
pub(super) struct RecordChange {
    pub edit: ConfigMapEdit,
    /// Records that it writes.
    pub records: BTreeMap<NodeUid, Record>,
    /// Records that cannot be written, with the reason.
    pub refused: BTreeMap<NodeUid, &'static str>,
}

impl RecordsState {
    /// Evaluates a state that was observed now.
    pub(super) fn of(now: Now, facts: Option<Arc<ConfigMapFacts>>) -> RecordsState {
        let (records, unreadable) = facts.as_deref().map(|facts| records::of(facts, now)).unwrap_or_default();
        let records = records.into_iter().map(|record| (record.uid.clone(), record)).collect();
        let size = facts.as_deref().map_or(0, records::size_of);
        RecordsState { facts, records, unreadable, doubted: BTreeSet::new(), size }
    }

    pub(super) fn facts(&self) -> Option<&Arc<ConfigMapFacts>> {
        self.facts.as_ref()
    }

    /// Returns the version of the state. `None`: there is no ConfigMap.
    pub(super) fn version(&self) -> Option<&ResourceVersion> {
        self.facts.as_ref().map(|facts| &facts.version)
    }

    /// Marks keys that an unanswered write may still remove.
    pub(super) fn mark_doubted(&mut self, keys: &BTreeSet<Arc<str>>) {
        self.doubted.clone_from(keys);
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.values()
    }

    pub(super) fn record(&self, uid: &NodeUid) -> Option<&Record> {
        self.records.get(uid)
    }

    pub(super) fn unreadable(&self) -> &BTreeMap<Arc<str>, &'static str> {
        &self.unreadable
    }

    /// Returns whether the state contains this record, and no unanswered write may remove it.
    pub(super) fn holds(&self, record: &Record) -> bool {
        let is_doubted = || records::key(&record.uid).is_some_and(|key| self.doubted.contains(&key));
        self.record(&record.uid).is_some_and(|there| there.has_same_facts(record)) && !is_doubted()
    }

    /// Returns the change that adds the desired records and removes those in `removing`. Existing records come first,
    /// then the others in the order of their signals.
    pub(super) fn change(
        &self,
        desired: &BTreeMap<NodeUid, Record>,
        removing: &BTreeSet<NodeUid>,
    ) -> RecordChange {
        let mut change = RecordChange::default();
        let mut size = self.size;
        for there in removing.iter().filter_map(|uid| self.record(uid)) {
            size = size.saturating_sub(there.size());
            change.edit.remove.extend(records::key(&there.uid));
        }
        let mut missing: Vec<&Record> = desired.values().filter(|record| !self.holds(record)).collect();
        missing.sort_by_key(|record| (self.record(&record.uid).is_none(), record.since, &record.node));
        for record in missing {
            // Unknown lines survive.
            let rest = self.record(&record.uid).map(|there| there.rest.clone()).unwrap_or_default();
            let record = Record { rest, ..record.clone() };
            match self.room(&record, size) {
                Ok((key, next)) => {
                    size = next;
                    change.edit.set.insert(key, record.written());
                    change.records.insert(record.uid.clone(), record);
                }
                Err(why) => drop(change.refused.insert(record.uid.clone(), why)),
            }
        }
        change
    }

    /// Returns the key of a record, and the total size with it, if it has room in addition to `size` bytes.
    fn room(&self, record: &Record, size: usize) -> Result<(Arc<str>, usize), &'static str> {
        let key = records::key(&record.uid).ok_or("its UID is none that a key of a ConfigMap can hold")?;
        if self.unreadable.contains_key(&key) {
            return Err(UNREADABLE);
        }
        let long = record.size();
        if long > MAX_RECORD_BYTES {
            return Err("its record is longer than 16 KiB");
        }
        let before = self.record(&record.uid).map_or(0, Record::size);
        let next = size.saturating_sub(before) + long;
        if next > MAX_OF_ALL { Err(NO_ROOM) } else { Ok((key, next)) }
    }
}
