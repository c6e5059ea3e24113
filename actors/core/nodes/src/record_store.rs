//! The records of nodes: those that our ConfigMap must have, and those that it is confirmed to have
//! (docs/design/nodes.md, N4).
//!
//! The desired records are a level: all differences to the ConfigMap are written together. A record counts when an
//! observed state contains it. A record without room or without a valid key is refused, until there is room. An
//! unreadable record is confirmed and shown, and makes no Down ours. The submodule `requests` makes the requests, and
//! `state` evaluates one state of the ConfigMap.

mod requests;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::RecordStorage;
use super::records::Record;
use mechanisms::object_client::ObjectClient;
use model::config_map::ConfigMapFacts;
use model::ids::{Epoch, NodeUid, PoolId};
use model::machine::Now;
use model::node::NodeFact;
use requests::{LastWrite, UnansweredWrite};
use state::RecordsState;

/// All records.
#[derive(Debug)]
pub(super) struct RecordStore {
    storage: RecordStorage,
    /// Records that the ConfigMap must have.
    desired: BTreeMap<NodeUid, Record>,
    /// Confirmed records: the newest text of each that was seen in the ConfigMap.
    confirmed: BTreeMap<NodeUid, Record>,
    /// Records that must be removed, and may still exist.
    removing: BTreeSet<NodeUid>,
    /// Desired records that cannot be written, with the reason.
    refused: BTreeMap<NodeUid, &'static str>,
    /// The last observed state. `None`: not observed, or possibly outdated.
    state: Option<RecordsState>,
    /// Keys that were unreadable in the last observation, with the reason.
    unreadable: BTreeMap<Arc<str>, &'static str>,
    /// Whether the last state may differ from the desired records.
    differs: bool,
    /// Whether confirmed records or exceptions have changed since the last call of [`RecordStore::take_changed`].
    has_changed: bool,
    /// The client of the ConfigMap. Each request carries the newest term confirmed when it was made.
    client: ObjectClient<ConfigMapFacts, Option<Epoch>>,
    /// Newest term for which the ConfigMap must be read.
    term_to_read: Option<Epoch>,
    read_for: Option<Epoch>,
    /// The last write.
    sent: LastWrite,
    /// An abandoned write that may still be carried out.
    lost: Option<UnansweredWrite>,
    /// Time of the next check.
    recheck: Option<Now>,
    /// Error of several consecutive failed requests, to be reported.
    failure: Option<Arc<str>>,
}

impl RecordStore {
    /// Creates a store without records and without an observation.
    pub(super) fn new(storage: RecordStorage) -> RecordStore {
        RecordStore {
            storage,
            desired: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            removing: BTreeSet::new(),
            refused: BTreeMap::new(),
            state: None,
            unreadable: BTreeMap::new(),
            differs: false,
            has_changed: false,
            client: ObjectClient::default(),
            term_to_read: None,
            read_for: None,
            sent: LastWrite::default(),
            lost: None,
            recheck: None,
            failure: None,
        }
    }

    /// Returns whether records are written at all.
    pub(super) fn writes(&self) -> bool {
        match self.storage {
            RecordStorage::ConfigMap => true,
            RecordStorage::Nothing => false,
        }
    }

    /// Starts a term: from now on, this process keeps the records in the ConfigMap. A record that an abandoned write
    /// may still remove does not count and is removed, unless `is_down` returns that something of its node is Down.
    /// Then it is written again.
    pub(super) fn begin(&mut self, is_down: impl Fn(&Record) -> bool) {
        if let Some(state) = self.state.as_ref().filter(|_| self.writes()) {
            let counts = |record: &&Record| state.holds(record) || is_down(record);
            let (desired, removing): (Vec<&Record>, Vec<&Record>) = state.records().partition(counts);
            self.differs = !state.records().all(|record| state.holds(record));
            self.removing = removing.into_iter().map(|record| record.uid.clone()).collect();
            self.desired = desired.into_iter().map(|record| (record.uid.clone(), record.clone())).collect();
            self.confirmed = self.desired.clone();
            self.refused.clear();
        }
        self.has_changed = true;
    }

    /// Keeps a record that was found.
    pub(super) fn adopt(&mut self, record: Record) {
        self.confirmed.insert(record.uid.clone(), record.clone());
        self.desired.insert(record.uid.clone(), record);
        self.has_changed = true;
    }

    /// Adds a desired record. It counts when it is confirmed.
    pub(super) fn add(&mut self, record: Record) {
        let uid = record.uid.clone();
        self.removing.remove(&uid);
        self.desired.insert(uid.clone(), record);
        self.changed(&uid);
    }

    /// Adds addresses and instance of a node to its record.
    pub(super) fn update_facts(&mut self, uid: &NodeUid, fact: &NodeFact) {
        let Some(record) = self.desired.get_mut(uid) else { return };
        let knows_ips = fact.ips.is_subset(&record.ips);
        if knows_ips && (fact.instance.is_none() || fact.instance == record.instance) {
            return;
        }
        record.ips.extend(&fact.ips);
        if fact.instance.is_some() {
            record.instance = fact.instance.clone();
        }
        self.changed(uid);
    }

    /// Records whether the taint of a node is ours, or must become ours (N1).
    pub(super) fn record_taint(&mut self, uid: &NodeUid, ours: bool) {
        let Some(record) = self.desired.get_mut(uid).filter(|record| record.taint_ours != ours) else {
            return;
        };
        record.taint_ours = ours;
        self.changed(uid);
    }

    /// Records that a Down of a node in this pool is foreign.
    pub(super) fn add_foreign(&mut self, uid: &NodeUid, pool: &PoolId) {
        let Some(record) = self.desired.get_mut(uid).filter(|record| !record.foreign.holds(pool)) else {
            return;
        };
        record.foreign.add(pool);
        self.changed(uid);
    }

    /// Records that a Down of a node in this pool is ours from now on.
    pub(super) fn end_foreign(&mut self, uid: &NodeUid, pool: &PoolId) {
        let Some(record) = self.desired.get_mut(uid).filter(|record| record.foreign.holds(pool)) else {
            return;
        };
        record.foreign.end(pool);
        self.changed(uid);
    }

    fn changed(&mut self, uid: &NodeUid) {
        self.has_changed = true;
        match self.storage {
            RecordStorage::ConfigMap => self.differs = true,
            RecordStorage::Nothing => {
                if let Some(record) = self.desired.get(uid) {
                    self.confirmed.insert(uid.clone(), record.clone());
                }
            }
        }
    }

    /// Removes the record of a node without any Down of ours.
    pub(super) fn remove(&mut self, uid: &NodeUid) {
        if self.desired.remove(uid).is_none() {
            return;
        }
        self.has_changed |= self.confirmed.remove(uid).is_some();
        self.refused.remove(uid);
        self.sent.forget(uid);
        match self.storage {
            RecordStorage::ConfigMap => {
                self.removing.insert(uid.clone());
                self.differs = true;
            }
            RecordStorage::Nothing => {}
        }
    }

    /// Returns all desired records.
    pub(super) fn all(&self) -> impl Iterator<Item = &Record> {
        self.desired.values()
    }

    /// Returns the desired record of a node.
    pub(super) fn desired(&self, uid: &NodeUid) -> Option<&Record> {
        self.desired.get(uid)
    }

    /// Returns the confirmed record of a node.
    pub(super) fn confirmed(&self, uid: &NodeUid) -> Option<&Record> {
        self.confirmed.get(uid)
    }

    /// Returns whether a confirmed record says that the taint of a node is ours (N1).
    pub(super) fn confirms_taint(&self, uid: &NodeUid) -> bool {
        self.confirmed(uid).is_some_and(|record| record.taint_ours)
    }

    /// Returns the number of confirmed records.
    pub(super) fn count(&self) -> usize {
        self.confirmed.len()
    }

    /// Returns the unreadable keys, with the reason.
    pub(super) fn unreadable(&self) -> &BTreeMap<Arc<str>, &'static str> {
        &self.unreadable
    }

    /// Returns the desired records that cannot be written, with the reason.
    pub(super) fn refused(&self) -> &BTreeMap<NodeUid, &'static str> {
        &self.refused
    }

    /// Returns whether the last request succeeded. Always true if no records are confirmed.
    pub(super) fn is_fresh(&self) -> bool {
        !self.writes() || (self.read_for.is_some() && self.client.last_error().is_none())
    }

    /// Returns the error of the last failed request, until one succeeds.
    pub(super) fn last_error(&self) -> Option<&Arc<str>> {
        self.client.last_error()
    }

    /// Returns whether confirmed records or exceptions have changed since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Returns the nodes whose newest record is not confirmed.
    pub(super) fn unconfirmed(&self) -> Vec<NodeUid> {
        let is_new = |(uid, record): &(&NodeUid, &Record)| {
            self.confirmed.get(*uid).is_none_or(|confirmed| !confirmed.has_same_facts(record))
        };
        self.desired.iter().filter(is_new).map(|(uid, _)| uid.clone()).collect()
    }

    /// Checks the invariants that hold between any two steps.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let desired = |uid: &NodeUid| self.desired.contains_key(uid);
        rule(self.confirmed.keys().all(desired), "a record counts that is not wanted")?;
        rule(!self.removing.iter().any(desired), "a record is to go that is wanted")?;
        rule(self.refused.keys().all(desired), "a record is refused that is not wanted")
    }
}
