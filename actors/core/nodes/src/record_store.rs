//! The records of nodes, as they are to be in our ConfigMap and as it is confirmed to hold them (docs/design/nodes.md,
//! N4).
//!
//! What is wanted is a level: whatever the ConfigMap holds that is not so is written, all of it at once. A record counts
//! when a state was seen that holds it. What has no room, or no key, is refused, and has its turn when room comes. What
//! cannot be read is kept and shown, and makes nothing ours. How requests are made stands in `keeping/asking.rs`, what a
//! state holds and what has room in it in `keeping/state.rs`.

mod requests;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Keeping;
use super::records::Record;
use mechanisms::config_map_client::ConfigMapClient;
use model::ids::{Epoch, NodeUid, PoolId};
use model::machine::Now;
use model::node::NodeFact;
use requests::{Lost, Sent};
use state::State;

/// All records.
#[derive(Debug)]
pub(super) struct RecordStore {
    keeping: Keeping,
    /// What is to be in the ConfigMap.
    wanted: BTreeMap<NodeUid, Record>,
    /// What it was confirmed to hold of that: the newest text of each record that was seen in it.
    kept: BTreeMap<NodeUid, Record>,
    /// Records that are to go, and may be there.
    leaving: BTreeSet<NodeUid>,
    /// Records that are wanted and cannot be written, and why.
    refused: BTreeMap<NodeUid, &'static str>,
    /// The ConfigMap as it was seen last; `None`: it was not, or is perhaps another one since.
    state: Option<State>,
    /// Keys of records that could not be read when it was seen last, and why.
    unreadable: BTreeMap<Arc<str>, &'static str>,
    /// Whether something may be wanted that the last state does not show.
    differs: bool,
    /// Whether what is kept, or is an exception, has changed since this was last asked.
    news: bool,
    /// Its requests carry the newest term that was confirmed when they were made.
    errand: ConfigMapClient<Option<Epoch>>,
    /// The newest term for which the ConfigMap is to be read, and the newest for which it was.
    asked_for: Option<Epoch>,
    read_for: Option<Epoch>,
    /// The last write.
    sent: Sent,
    /// A write that may still be carried out.
    lost: Option<Lost>,
    /// When it is looked at again.
    recheck: Option<Now>,
    /// What is to be told of requests that have failed several times in a row.
    failure: Option<Arc<str>>,
}

impl RecordStore {
    /// No records, and nothing read.
    pub(super) fn new(keeping: Keeping) -> RecordStore {
        RecordStore {
            keeping,
            wanted: BTreeMap::new(),
            kept: BTreeMap::new(),
            leaving: BTreeSet::new(),
            refused: BTreeMap::new(),
            state: None,
            unreadable: BTreeMap::new(),
            differs: false,
            news: false,
            errand: ConfigMapClient::default(),
            asked_for: None,
            read_for: None,
            sent: Sent::default(),
            lost: None,
            recheck: None,
            failure: None,
        }
    }

    /// Whether anything is written at all.
    pub(super) fn writes(&self) -> bool {
        match self.keeping {
            Keeping::ConfigMap => true,
            Keeping::Nothing => false,
        }
    }

    /// A term begins: what the ConfigMap holds is ours to keep from now on. A record that may still be removed, by a
    /// write of which nothing was heard, does not count, and goes; unless something of its node `is_down`: then it is
    /// written again.
    pub(super) fn begin(&mut self, is_down: impl Fn(&Record) -> bool) {
        if let Some(state) = self.state.as_ref().filter(|_| self.writes()) {
            let counts = |record: &&Record| state.holds(record) || is_down(record);
            let (wanted, leaving): (Vec<&Record>, Vec<&Record>) = state.records().partition(counts);
            self.differs = !state.records().all(|record| state.holds(record));
            self.leaving = leaving.into_iter().map(|record| record.uid.clone()).collect();
            self.wanted = wanted.into_iter().map(|record| (record.uid.clone(), record.clone())).collect();
            self.kept = self.wanted.clone();
            self.refused.clear();
        }
        self.news = true;
    }

    /// A record that was found is ours to keep, too.
    pub(super) fn adopt(&mut self, record: Record) {
        self.kept.insert(record.uid.clone(), record.clone());
        self.wanted.insert(record.uid.clone(), record);
        self.news = true;
    }

    /// This is to be noted; it counts when it is confirmed.
    pub(super) fn want(&mut self, record: Record) {
        let uid = record.uid.clone();
        self.leaving.remove(&uid);
        self.wanted.insert(uid.clone(), record);
        self.changed(&uid);
    }

    /// A node is known by this, too, from now on.
    pub(super) fn note(&mut self, uid: &NodeUid, fact: &NodeFact) {
        let Some(record) = self.wanted.get_mut(uid) else { return };
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

    /// Whether the taint of a node is ours, or is to be (N1).
    pub(super) fn note_taint(&mut self, uid: &NodeUid, ours: bool) {
        let Some(record) = self.wanted.get_mut(uid).filter(|record| record.taint_ours != ours) else {
            return;
        };
        record.taint_ours = ours;
        self.changed(uid);
    }

    /// A Down of a node in this pool is nothing of ours.
    pub(super) fn add_foreign(&mut self, uid: &NodeUid, pool: &PoolId) {
        let Some(record) = self.wanted.get_mut(uid).filter(|record| !record.foreign.holds(pool)) else {
            return;
        };
        record.foreign.add(pool);
        self.changed(uid);
    }

    /// What is Down of a node in this pool from now on is ours.
    pub(super) fn end_foreign(&mut self, uid: &NodeUid, pool: &PoolId) {
        let Some(record) = self.wanted.get_mut(uid).filter(|record| record.foreign.holds(pool)) else {
            return;
        };
        record.foreign.end(pool);
        self.changed(uid);
    }

    fn changed(&mut self, uid: &NodeUid) {
        self.news = true;
        match self.keeping {
            Keeping::ConfigMap => self.differs = true,
            Keeping::Nothing => {
                if let Some(record) = self.wanted.get(uid) {
                    self.kept.insert(uid.clone(), record.clone());
                }
            }
        }
    }

    /// Nothing of a node is Down by us: its record is to go.
    pub(super) fn drop_of(&mut self, uid: &NodeUid) {
        if self.wanted.remove(uid).is_none() {
            return;
        }
        self.news |= self.kept.remove(uid).is_some();
        self.refused.remove(uid);
        self.sent.forget(uid);
        match self.keeping {
            Keeping::ConfigMap => {
                self.leaving.insert(uid.clone());
                self.differs = true;
            }
            Keeping::Nothing => {}
        }
    }

    /// All that are wanted.
    pub(super) fn all(&self) -> impl Iterator<Item = &Record> {
        self.wanted.values()
    }

    /// What is to be noted of a node.
    pub(super) fn wanted(&self, uid: &NodeUid) -> Option<&Record> {
        self.wanted.get(uid)
    }

    /// What is confirmed to be noted of it.
    pub(super) fn kept(&self, uid: &NodeUid) -> Option<&Record> {
        self.kept.get(uid)
    }

    /// Whether it is confirmed to be noted that the taint of a node is ours (N1).
    pub(super) fn keeps_taint(&self, uid: &NodeUid) -> bool {
        self.kept(uid).is_some_and(|record| record.taint_ours)
    }

    /// How many are confirmed.
    pub(super) fn count(&self) -> usize {
        self.kept.len()
    }

    /// Keys that cannot be read, and why.
    pub(super) fn unreadable(&self) -> &BTreeMap<Arc<str>, &'static str> {
        &self.unreadable
    }

    /// Records that are wanted and cannot be written, and why.
    pub(super) fn refused(&self) -> &BTreeMap<NodeUid, &'static str> {
        &self.refused
    }

    /// Whether the ConfigMap could be read and written when that was tried last; where nothing is kept it always can.
    pub(super) fn is_fresh(&self) -> bool {
        !self.writes() || (self.read_for.is_some() && self.errand.last_error().is_none())
    }

    /// What the last failed request said, until one goes well.
    pub(super) fn last_error(&self) -> Option<&Arc<str>> {
        self.errand.last_error()
    }

    /// Whether anything has changed of what is confirmed, or of the exceptions, since this was last asked.
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// The nodes whose newest record is not confirmed.
    pub(super) fn unconfirmed(&self) -> Vec<NodeUid> {
        let is_new = |(uid, record): &(&NodeUid, &Record)| {
            self.kept.get(*uid).is_none_or(|kept| !kept.says_the_same(record))
        };
        self.wanted.iter().filter(is_new).map(|(uid, _)| uid.clone()).collect()
    }

    /// The invariants between any two steps.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let wanted = |uid: &NodeUid| self.wanted.contains_key(uid);
        rule(self.kept.keys().all(wanted), "a record counts that is not wanted")?;
        rule(!self.leaving.iter().any(wanted), "a record is to go that is wanted")?;
        rule(self.refused.keys().all(wanted), "a record is refused that is not wanted")
    }
}
