//! The status of nodes for reports (S1).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Nodes;
use super::phase::{NodeHistory, NodePhase};
use crate::record_store::RecordStore;
use crate::records::Record;
use model::ids::{NodeName, NodeUid};
use model::machine::Now;
use model::node::NodeFact;
use model::node::NodeState;
use model::signals::Signal;

/// The status of a node that drains, is being restored, or is about to.
#[derive(Debug)]
pub(crate) struct NodeStatus<'a> {
    pub(crate) uid: &'a NodeUid,
    pub(crate) name: &'a NodeName,
    /// Fact of the node. `None`: the object is deleted.
    pub(crate) fact: Option<&'a NodeFact>,
    pub(crate) state: NodeState,
    /// Time since which its target is unchanged.
    pub(crate) since: Option<Now>,
    /// Signals of the node. Empty: it does not drain.
    pub(crate) signals: BTreeSet<Signal>,
    /// Its record, stored or to be stored.
    pub(crate) record: Option<&'a Record>,
    /// Whether every pool is in sync for it.
    pub(crate) done: bool,
}

impl Nodes {
    /// Returns the status of all nodes that drain, are being restored, or are about to.
    pub(crate) fn statuses<'a>(&'a self, records: &'a RecordStore) -> impl Iterator<Item = NodeStatus<'a>> {
        self.busy().filter_map(|(uid, node)| {
            let record = records.desired(uid);
            let done = node.phase.history().is_some_and(NodeHistory::is_done);
            let state = match node.phase {
                NodePhase::Still => return None,
                NodePhase::Held { .. } => NodeState::Held,
                NodePhase::Recording { .. } => NodeState::Recording,
                NodePhase::Draining(_) if done => NodeState::Down,
                NodePhase::Draining(_) => NodeState::Draining,
                NodePhase::Restoring(_) => NodeState::Restoring,
                NodePhase::Gone(_) => NodeState::Gone,
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
