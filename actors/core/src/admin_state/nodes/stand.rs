//! How nodes stand, for those who tell of it (S1).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Nodes;
use super::phase::{Course, Phase};
use crate::admin_state::keeping::Records;
use crate::admin_state::records::Record;
use crate::admin_state::signals::Signal;
use crate::ids::{NodeName, NodeUid};
use crate::informer::NodeFact;
use crate::machine::Now;

/// How a node stands (S1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NodeState {
    /// It leaves service, and waits for its turn (N5).
    Held,
    /// It leaves service, and is to be recorded first (N4).
    Recording,
    /// It is being cut out.
    Draining,
    /// It is cut out everywhere.
    Down,
    /// What is Down of it by us is taken back.
    Restoring,
    /// It is gone, and entries of it are still Down.
    Gone,
}

impl NodeState {
    /// Every state.
    pub const ALL: [NodeState; 6] = [
        NodeState::Held,
        NodeState::Recording,
        NodeState::Draining,
        NodeState::Down,
        NodeState::Restoring,
        NodeState::Gone,
    ];

    /// The word for metrics and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            NodeState::Held => "held",
            NodeState::Recording => "recording",
            NodeState::Draining => "draining",
            NodeState::Down => "down",
            NodeState::Restoring => "restoring",
            NodeState::Gone => "gone",
        }
    }
}

/// A node of which something is, or is to be, another thing than usual.
#[derive(Debug)]
pub(in crate::admin_state) struct NodeStatus<'a> {
    pub(in crate::admin_state) uid: &'a NodeUid,
    pub(in crate::admin_state) name: &'a NodeName,
    /// `None`: the object is gone.
    pub(in crate::admin_state) fact: Option<&'a NodeFact>,
    pub(in crate::admin_state) state: NodeState,
    /// Since when that is wanted.
    pub(in crate::admin_state) since: Option<Now>,
    /// Why it leaves service; none: it does not.
    pub(in crate::admin_state) signals: BTreeSet<Signal>,
    /// What is noted of it, or is to be.
    pub(in crate::admin_state) record: Option<&'a Record>,
    /// Whether every pool is as it should be for it.
    pub(in crate::admin_state) done: bool,
}

impl Nodes {
    /// Every node of which something is, or is to be, another thing than usual.
    pub(in crate::admin_state) fn stands<'a>(
        &'a self,
        records: &'a Records,
    ) -> impl Iterator<Item = NodeStatus<'a>> {
        self.busy().filter_map(|(uid, node)| {
            let record = records.wanted(uid);
            let done = node.phase.course().is_some_and(Course::is_done);
            let state = match node.phase {
                Phase::Still => return None,
                Phase::Held { .. } => NodeState::Held,
                Phase::Recording { .. } => NodeState::Recording,
                Phase::Draining(_) if done => NodeState::Down,
                Phase::Draining(_) => NodeState::Draining,
                Phase::Restoring(_) => NodeState::Restoring,
                Phase::Gone(_) => NodeState::Gone,
            };
            let fact = node.fact.as_ref().map(Arc::as_ref);
            let name = fact.map(|fact| &fact.name).or(record.map(|record| &record.node))?;
            Some(NodeStatus {
                uid,
                name,
                fact,
                state,
                since: node.phase.since(),
                signals: node.signals.clone(),
                record,
                done,
            })
        })
    }
}
