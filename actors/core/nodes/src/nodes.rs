//! The nodes: what is known of each, its signals, and its phase (docs/design/nodes.md, N1, N4, N5).
//!
//! What stands where:
//! - `phase`: the phase of one node, and what its signals make of it;
//! - `set`: the draining set and the records that follow from the phases;
//! - `progress`: how far nodes are, and when they are done;
//! - `node_status`: how a node stands, for those who tell of it.

mod node_status;
mod phase;
mod progress;
mod set;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::admission::{Waiting, admitted};
use super::pools::Pools;
use super::record_store::RecordStore;
use super::records::Record;
use model::arm::Backend;
use model::ids::{NodeName, NodeUid};
use model::machine::Now;
use model::node::NodeFact;
use model::signals::Signal;
pub(super) use node_status::NodeStatus;
use phase::{Follows, NodeHistory, Phase};

/// All nodes by UID: one that is re-created under the same name is another one.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    nodes: BTreeMap<NodeUid, Node>,
    names: BTreeMap<NodeName, NodeUid>,
    /// Those that are not [`Phase::Still`].
    busy: BTreeSet<NodeUid>,
    /// Of which node each Down is that may be taken back, by the set that was worked out last.
    restores: BTreeMap<Backend, NodeUid>,
    /// Whether the set is to be worked out again.
    stale: bool,
}

#[derive(Debug, Default)]
struct Node {
    /// `None`: the object is gone.
    fact: Option<Arc<NodeFact>>,
    /// Why it leaves service, as far as that is heeded.
    signals: BTreeSet<Signal>,
    phase: Phase,
    /// Whether the operator has released it, whatever else is Down (N5).
    released: bool,
}

/// What follows from a fact about a node.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// The node whose object is gone.
    pub(super) gone: Option<NodeUid>,
    /// The node for which another thing is wanted.
    pub(super) turned: Option<NodeUid>,
}

/// The nodes at the beginning of a term.
#[derive(Debug, Default)]
pub(super) struct Begun {
    /// Those that were worked on before.
    pub(super) before: BTreeSet<NodeUid>,
    /// Those that are to be worked on.
    pub(super) after: Vec<NodeUid>,
}

/// What becomes of a node that the operator lets go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Release {
    /// It goes on.
    Released,
    /// It does not wait.
    NotHeld,
    /// There is no node of this name.
    Unknown,
}

impl Node {
    /// Whether its Down takes away a node that could serve (N5).
    fn counts(&self) -> bool {
        self.fact.as_ref().is_some_and(|fact| fact.serves())
    }

    fn is_held(&self) -> bool {
        match self.phase {
            Phase::Held { .. } => true,
            Phase::Still
            | Phase::Recording { .. }
            | Phase::Draining(_)
            | Phase::Restoring(_)
            | Phase::Gone(_) => false,
        }
    }
}

impl Nodes {
    /// Takes in what is known under a name, and the signals that stand for that node.
    pub(super) fn tell(
        &mut self,
        now: Now,
        name: &NodeName,
        fact: Option<(Arc<NodeFact>, BTreeSet<Signal>)>,
        records: &mut RecordStore,
    ) -> Changed {
        let mut changed = Changed::default();
        self.stale = true;
        let known = self.names.get(name).cloned();
        if let Some(uid) = known.filter(|uid| fact.as_ref().is_none_or(|(fact, _)| fact.uid != *uid)) {
            self.names.remove(name);
            self.leave(now, &uid, records);
            changed.gone = Some(uid);
        }
        let Some((fact, signals)) = fact else { return changed };
        let uid = fact.uid.clone();
        self.names.insert(name.clone(), uid.clone());
        records.note(&uid, &fact);
        self.nodes.entry(uid.clone()).or_default().fact = Some(fact);
        changed.turned = Some(uid).filter(|uid| self.signal(now, uid, signals, records));
        changed
    }

    /// These are the signals that stand for a node; whether another thing is wanted for it then.
    pub(super) fn signal(
        &mut self,
        now: Now,
        uid: &NodeUid,
        signals: BTreeSet<Signal>,
        records: &mut RecordStore,
    ) -> bool {
        let Some(node) = self.nodes.get_mut(uid).filter(|node| node.fact.is_some()) else { return false };
        let (phase, follows) = std::mem::take(&mut node.phase).signalled(now, !signals.is_empty());
        node.phase = phase;
        node.released &= !signals.is_empty();
        node.signals = signals;
        self.stale = true;
        self.keep_busy(uid);
        match follows {
            Follows::Nothing => false,
            Follows::Turned => true,
            Follows::Dropped => {
                records.drop_of(uid);
                false
            }
        }
    }

    /// The object of a node is gone (S1: Down → Removed).
    fn leave(&mut self, now: Now, uid: &NodeUid, records: &mut RecordStore) {
        let Some(node) = self.nodes.remove(uid) else { return };
        match node.phase {
            Phase::Draining(course) | Phase::Restoring(course) | Phase::Gone(course) => {
                let phase = Phase::Gone(NodeHistory::new(now, course.entered));
                self.nodes.insert(uid.clone(), Node { phase, ..Node::default() });
            }
            Phase::Still | Phase::Held { .. } | Phase::Recording { .. } => {
                self.busy.remove(uid);
                records.drop_of(uid);
            }
        }
    }

    fn keep_busy(&mut self, uid: &NodeUid) {
        if self.nodes.get(uid).is_none_or(|node| node.phase.is_still()) {
            self.busy.remove(uid);
        } else {
            self.busy.insert(uid.clone());
        }
    }

    fn busy(&self) -> impl Iterator<Item = (&NodeUid, &Node)> {
        self.busy.iter().filter_map(|uid| Some((uid, self.nodes.get(uid)?)))
    }

    /// A term begins: every phase follows from what is noted of the node and from its signals.
    pub(super) fn begin(&mut self, now: Now, records: &RecordStore) -> Begun {
        self.stale = true;
        let before = std::mem::take(&mut self.busy);
        self.nodes.retain(|_, node| node.fact.is_some());
        for (uid, node) in &mut self.nodes {
            let recorded = records.kept(uid).map(|record| record.since);
            node.phase = std::mem::take(&mut node.phase).begun(now, !node.signals.is_empty(), recorded);
            if !node.phase.is_still() {
                self.busy.insert(uid.clone());
            }
        }
        let kept: Vec<NodeUid> = records.all().map(|record| record.uid.clone()).collect();
        for uid in &kept {
            self.adopt(now, uid);
        }
        Begun { before, after: kept }
    }

    /// A record was found of this node.
    fn adopt(&mut self, now: Now, uid: &NodeUid) {
        let node = self.nodes.entry(uid.clone()).or_default();
        if node.fact.is_none() {
            node.phase = Phase::Gone(NodeHistory::new(now, None));
        }
        self.busy.insert(uid.clone());
    }

    /// A record has turned up within the term, which this process has neither made nor lost: it counts as at the
    /// beginning.
    pub(super) fn find(&mut self, now: Now, record: &Record) {
        self.adopt(now, &record.uid);
        if let Some(node) = self.nodes.get_mut(&record.uid).filter(|node| node.fact.is_some()) {
            let phase = std::mem::take(&mut node.phase);
            node.phase = phase.begun(now, !node.signals.is_empty(), Some(record.since));
        }
        self.stale = true;
    }

    /// Lets held nodes go on, oldest signal first, as many as may (N5): each is to be recorded first (N4).
    /// `taint_is_ours` says of which node its taint is ours, or is to be.
    pub(super) fn admit(
        &mut self,
        pools: &Pools,
        records: &mut RecordStore,
        taint_is_ours: impl Fn(&NodeUid) -> bool,
    ) {
        let held = self.busy().filter_map(|(uid, node)| match (&node.phase, &node.fact) {
            (Phase::Held { since }, Some(fact)) => Some((*since, fact.name.clone(), uid.clone())),
            (Phase::Held { .. }, None)
            | (
                Phase::Still
                | Phase::Recording { .. }
                | Phase::Draining(_)
                | Phase::Restoring(_)
                | Phase::Gone(_),
                _,
            ) => None,
        });
        let mut held: Vec<(Now, NodeName, NodeUid)> = held.collect();
        if held.is_empty() {
            return;
        }
        held.sort();
        let (down, ready) = self.bound();
        let waiting = held.iter().filter_map(|(_, _, uid)| {
            let node = self.nodes.get(uid)?;
            Some(Waiting { uid, ready: node.counts(), released: node.released })
        });
        let goes = admitted(waiting, down, ready);
        for (since, _, uid) in held.into_iter().filter(|(_, _, uid)| goes.contains(uid)) {
            let Some(fact) = self.nodes.get(&uid).and_then(|node| node.fact.clone()) else { continue };
            let taint_ours = taint_is_ours(&uid);
            records.want(Record { taint_ours, ..set::record(&fact, since, pools, records) });
            if let Some(node) = self.nodes.get_mut(&uid) {
                node.phase = Phase::Recording { since };
            }
        }
    }

    /// How many Ready nodes are Down, or about to be, and how many there are in all (N5). One that is being restored is
    /// Down as long as a pool lacks that: its signal may come back any moment, and then it goes on without asking.
    pub(super) fn bound(&self) -> (usize, usize) {
        let goes = |node: &Node| node.phase.drains() || node.phase.is_recording() || node.phase.is_down_yet();
        let down = self.busy().filter(|(_, node)| goes(node) && node.counts()).count();
        (down, self.nodes.values().filter(|node| node.counts()).count())
    }

    /// Nodes whose records are confirmed are cut out from now on; gives them (N4).
    pub(super) fn enter(&mut self, now: Now, records: &RecordStore) -> Vec<NodeUid> {
        let mut entered = Vec::new();
        for uid in &self.busy {
            let Some(node) = self.nodes.get_mut(uid) else { continue };
            if let Phase::Recording { since } = node.phase
                && records.kept(uid).is_some()
            {
                node.phase = Phase::Draining(NodeHistory::new(since, Some(now)));
                self.stale = true;
                entered.push(uid.clone());
            }
        }
        entered
    }

    /// The operator lets a node go on (N5). It stays released until its signals end.
    pub(super) fn release(&mut self, name: &NodeName) -> Release {
        let node = self.names.get(name).and_then(|uid| self.nodes.get_mut(uid));
        match node {
            None => Release::Unknown,
            Some(node) if node.is_held() => {
                node.released = true;
                Release::Released
            }
            Some(_) => Release::NotHeld,
        }
    }

    /// The operator lets all nodes go on; gives those that waited.
    pub(super) fn release_all(&mut self) -> Vec<NodeName> {
        let mut names = Vec::new();
        for uid in &self.busy {
            let Some(node) = self.nodes.get_mut(uid).filter(|node| node.is_held()) else { continue };
            node.released = true;
            names.extend(node.fact.as_ref().map(|fact| fact.name.clone()));
        }
        names.sort();
        names
    }

    /// Since when what is wanted for a node is wanted, where anything of it is, or may be, Down by us.
    pub(super) fn since(&self, uid: &NodeUid) -> Option<Now> {
        self.nodes.get(uid)?.phase.course().map(|course| course.since)
    }

    /// What is known of a node that is there.
    pub(super) fn fact(&self, uid: &NodeUid) -> Option<&Arc<NodeFact>> {
        self.nodes.get(uid)?.fact.as_ref()
    }

    /// What is known of all nodes that are there.
    pub(super) fn facts(&self) -> impl Iterator<Item = &Arc<NodeFact>> {
        self.nodes.values().filter_map(|node| node.fact.as_ref())
    }

    /// Whether anything is known of a node.
    pub(super) fn knows(&self, uid: &NodeUid) -> bool {
        self.nodes.contains_key(uid)
    }

    /// Whether a node is in the set, where nothing speaks against it.
    pub(super) fn drains(&self, uid: &NodeUid) -> bool {
        self.nodes.get(uid).is_some_and(|node| node.phase.drains())
    }

    /// The invariants between any two steps.
    pub(super) fn check(&self, records: &RecordStore) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let busy = self.nodes.iter().filter(|(_, node)| !node.phase.is_still()).map(|(uid, _)| uid);
        rule(busy.eq(&self.busy), "a node that is not still is not looked after")?;
        let named = self.names.values().all(|uid| self.nodes.contains_key(uid));
        rule(named, "a name belongs to no node")?;
        let living = self.nodes.values().filter(|node| node.fact.is_some()).count();
        rule(living == self.names.len(), "a node that exists has no name")?;
        let kept =
            |(uid, node): (&NodeUid, &Node)| node.phase.course().is_none() || records.kept(uid).is_some();
        rule(self.busy().all(kept), "something of a node may be Down that is not recorded")?;
        let wanted =
            |(uid, node): (&NodeUid, &Node)| !node.phase.is_recording() || records.wanted(uid).is_some();
        rule(self.busy().all(wanted), "a node waits for a record that is not wanted")?;
        let needed = |record: &Record| self.busy.contains(&record.uid);
        rule(records.all().all(needed), "a record is wanted of a node that is still")
    }
}
