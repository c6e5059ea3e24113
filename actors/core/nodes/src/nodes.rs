//! The nodes: their facts, signals and phases (docs/design/nodes.md, N1, N4, N5).
//!
//! The submodules:
//! - `phase`: the phase of one node, and its changes;
//! - `set`: the draining set and the records that follow from the phases;
//! - `progress`: which nodes are done;
//! - `node_status`: the status of nodes for reports.

mod node_status;
mod phase;
mod progress;
mod set;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::admission::{WaitingNode, admitted};
use super::pools::Pools;
use super::record_store::RecordStore;
use super::records::Record;
use model::arm::Backend;
use model::ids::{NodeName, NodeUid};
use model::machine::Now;
use model::node::NodeFact;
use model::signals::Signal;
pub(super) use node_status::NodeStatus;
use phase::{NodeHistory, NodePhase, PhaseEffect};

/// All nodes by UID. A node that is created again under the same name is another node.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    nodes: BTreeMap<NodeUid, Node>,
    names: BTreeMap<NodeName, NodeUid>,
    /// Nodes that are not [`NodePhase::Still`].
    busy: BTreeSet<NodeUid>,
    /// The node of each Down that may be restored, as of the last computed set.
    restores: BTreeMap<Backend, NodeUid>,
    /// Whether the set must be computed again.
    stale: bool,
}

#[derive(Debug, Default)]
struct Node {
    /// Fact of the node. `None`: the object is deleted.
    fact: Option<Arc<NodeFact>>,
    /// Signals that count.
    signals: BTreeSet<Signal>,
    phase: NodePhase,
    /// Whether the operator has released it, regardless of other Down nodes (N5).
    released: bool,
}

/// The effect of a fact about a node.
#[derive(Debug, Default)]
pub(super) struct NodeChange {
    /// Node that was deleted.
    pub(super) gone: Option<NodeUid>,
    /// Node whose target has changed.
    pub(super) retargeted: Option<NodeUid>,
}

/// The nodes at the start of a term.
#[derive(Debug, Default)]
pub(super) struct NodesAtTermStart {
    /// Nodes with work before.
    pub(super) before: BTreeSet<NodeUid>,
    /// Nodes with work now.
    pub(super) after: Vec<NodeUid>,
}

/// Result of a release by the operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Release {
    /// The node is released, and waits no longer for other nodes.
    Released,
    /// The node is not held.
    NotHeld,
    /// No node has this name.
    Unknown,
}

impl Node {
    /// Returns whether the node counts for the limit: its Down reduces the number of nodes that can serve (N5).
    fn counts(&self) -> bool {
        self.fact.as_ref().is_some_and(|fact| fact.serves())
    }

    fn is_held(&self) -> bool {
        match self.phase {
            NodePhase::Held { .. } => true,
            NodePhase::Still
            | NodePhase::Recording { .. }
            | NodePhase::Draining(_)
            | NodePhase::Restoring(_)
            | NodePhase::Gone(_) => false,
        }
    }
}

impl Nodes {
    /// Applies the fact and the signals of the node with this name.
    pub(super) fn apply_fact(
        &mut self,
        now: Now,
        name: &NodeName,
        fact: Option<(Arc<NodeFact>, BTreeSet<Signal>)>,
        records: &mut RecordStore,
    ) -> NodeChange {
        let mut changed = NodeChange::default();
        self.stale = true;
        let known = self.names.get(name).cloned();
        if let Some(uid) = known.filter(|uid| fact.as_ref().is_none_or(|(fact, _)| fact.uid != *uid)) {
            self.names.remove(name);
            self.on_deleted(now, &uid, records);
            changed.gone = Some(uid);
        }
        let Some((fact, signals)) = fact else { return changed };
        let uid = fact.uid.clone();
        self.names.insert(name.clone(), uid.clone());
        records.update_facts(&uid, &fact);
        self.nodes.entry(uid.clone()).or_default().fact = Some(fact);
        changed.retargeted = Some(uid).filter(|uid| self.apply_signals(now, uid, signals, records));
        changed
    }

    /// Applies the signals of a node. Returns whether its target changes.
    pub(super) fn apply_signals(
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
            PhaseEffect::Nothing => false,
            PhaseEffect::Turned => true,
            PhaseEffect::Dropped => {
                records.remove(uid);
                false
            }
        }
    }

    /// Handles the deletion of a node (S1: Down → Removed).
    fn on_deleted(&mut self, now: Now, uid: &NodeUid, records: &mut RecordStore) {
        let Some(node) = self.nodes.remove(uid) else { return };
        match node.phase {
            NodePhase::Draining(history) | NodePhase::Restoring(history) | NodePhase::Gone(history) => {
                let phase = NodePhase::Gone(NodeHistory::new(now, history.entered));
                self.nodes.insert(uid.clone(), Node { phase, ..Node::default() });
            }
            NodePhase::Still | NodePhase::Held { .. } | NodePhase::Recording { .. } => {
                self.busy.remove(uid);
                records.remove(uid);
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

    /// Starts a term: every phase follows from the record of the node and its signals.
    pub(super) fn begin(&mut self, now: Now, records: &RecordStore) -> NodesAtTermStart {
        self.stale = true;
        let before = std::mem::take(&mut self.busy);
        self.nodes.retain(|_, node| node.fact.is_some());
        for (uid, node) in &mut self.nodes {
            let recorded = records.confirmed(uid).map(|record| record.since);
            node.phase = std::mem::take(&mut node.phase).begun(now, !node.signals.is_empty(), recorded);
            if !node.phase.is_still() {
                self.busy.insert(uid.clone());
            }
        }
        let kept: Vec<NodeUid> = records.all().map(|record| record.uid.clone()).collect();
        for uid in &kept {
            self.adopt(now, uid);
        }
        NodesAtTermStart { before, after: kept }
    }

    /// Adds a node for which a record exists.
    fn adopt(&mut self, now: Now, uid: &NodeUid) {
        let node = self.nodes.entry(uid.clone()).or_default();
        if node.fact.is_none() {
            node.phase = NodePhase::Gone(NodeHistory::new(now, None));
        }
        self.busy.insert(uid.clone());
    }

    /// Handles a record that appears within the term and that this process has neither made nor lost. It counts as at
    /// the start of a term.
    pub(super) fn on_record_found(&mut self, now: Now, record: &Record) {
        self.adopt(now, &record.uid);
        if let Some(node) = self.nodes.get_mut(&record.uid).filter(|node| node.fact.is_some()) {
            let phase = std::mem::take(&mut node.phase);
            node.phase = phase.begun(now, !node.signals.is_empty(), Some(record.since));
        }
        self.stale = true;
    }

    /// Admits held nodes, oldest signal first, up to the limit (N5). Each must be recorded first (N4).
    /// `taint_is_ours` returns whether the taint of a node is ours, or must become ours.
    pub(super) fn admit(
        &mut self,
        pools: &Pools,
        records: &mut RecordStore,
        taint_is_ours: impl Fn(&NodeUid) -> bool,
    ) {
        let held = self.busy().filter_map(|(uid, node)| match (&node.phase, &node.fact) {
            (NodePhase::Held { since }, Some(fact)) => Some((*since, fact.name.clone(), uid.clone())),
            (NodePhase::Held { .. }, None)
            | (
                NodePhase::Still
                | NodePhase::Recording { .. }
                | NodePhase::Draining(_)
                | NodePhase::Restoring(_)
                | NodePhase::Gone(_),
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
            Some(WaitingNode { uid, ready: node.counts(), released: node.released })
        });
        let goes = admitted(waiting, down, ready);
        for (since, _, uid) in held.into_iter().filter(|(_, _, uid)| goes.contains(uid)) {
            let Some(fact) = self.nodes.get(&uid).and_then(|node| node.fact.clone()) else { continue };
            let taint_ours = taint_is_ours(&uid);
            records.add(Record { taint_ours, ..set::record(&fact, since, pools, records) });
            if let Some(node) = self.nodes.get_mut(&uid) {
                node.phase = NodePhase::Recording { since };
            }
        }
    }

    /// Returns the number of Ready nodes that are Down or about to be, and the number of all Ready nodes (N5). A node
    /// that is being restored counts as Down until no pool lacks its restore: if its signal comes back, it drains
    /// again without admission.
    pub(super) fn bound(&self) -> (usize, usize) {
        let goes = |node: &Node| node.phase.drains() || node.phase.is_recording() || node.phase.is_down_yet();
        let down = self.busy().filter(|(_, node)| goes(node) && node.counts()).count();
        (down, self.nodes.values().filter(|node| node.counts()).count())
    }

    /// Adds nodes with a confirmed record to the draining set, and returns them (N4).
    pub(super) fn enter_set(&mut self, now: Now, records: &RecordStore) -> Vec<NodeUid> {
        let mut entered = Vec::new();
        for uid in &self.busy {
            let Some(node) = self.nodes.get_mut(uid) else { continue };
            if let NodePhase::Recording { since } = node.phase
                && records.confirmed(uid).is_some()
            {
                node.phase = NodePhase::Draining(NodeHistory::new(since, Some(now)));
                self.stale = true;
                entered.push(uid.clone());
            }
        }
        entered
    }

    /// Releases a node for the operator (N5), until its signals end.
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

    /// Releases all nodes for the operator. Returns those that were held.
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

    /// Returns the time since which the target of a node is unchanged, if we have set, or may have set, one of its
    /// entries Down.
    pub(super) fn since(&self, uid: &NodeUid) -> Option<Now> {
        self.nodes.get(uid)?.phase.history().map(|history| history.since)
    }

    /// Returns the fact of an existing node.
    pub(super) fn fact(&self, uid: &NodeUid) -> Option<&Arc<NodeFact>> {
        self.nodes.get(uid)?.fact.as_ref()
    }

    /// Returns the facts of all existing nodes.
    pub(super) fn facts(&self) -> impl Iterator<Item = &Arc<NodeFact>> {
        self.nodes.values().filter_map(|node| node.fact.as_ref())
    }

    /// Returns whether a node is known.
    pub(super) fn knows(&self, uid: &NodeUid) -> bool {
        self.nodes.contains_key(uid)
    }

    /// Returns whether a node is in the set, apart from exceptions.
    pub(super) fn drains(&self, uid: &NodeUid) -> bool {
        self.nodes.get(uid).is_some_and(|node| node.phase.drains())
    }

    /// Checks the invariants that hold between any two steps.
    pub(super) fn check(&self, records: &RecordStore) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let busy = self.nodes.iter().filter(|(_, node)| !node.phase.is_still()).map(|(uid, _)| uid);
        rule(busy.eq(&self.busy), "a node that is not still is not looked after")?;
        let named = self.names.values().all(|uid| self.nodes.contains_key(uid));
        rule(named, "a name belongs to no node")?;
        let living = self.nodes.values().filter(|node| node.fact.is_some()).count();
        rule(living == self.names.len(), "a node that exists has no name")?;
        let kept = |(uid, node): (&NodeUid, &Node)| {
            node.phase.history().is_none() || records.confirmed(uid).is_some()
        };
        rule(self.busy().all(kept), "something of a node may be Down that is not recorded")?;
        let wanted =
            |(uid, node): (&NodeUid, &Node)| !node.phase.is_recording() || records.desired(uid).is_some();
        rule(self.busy().all(wanted), "a node waits for a record that is not wanted")?;
        let needed = |record: &Record| self.busy.contains(&record.uid);
        rule(records.all().all(needed), "a record is wanted of a node that is still")
    }
}
