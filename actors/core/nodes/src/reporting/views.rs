//! The views of the admin state, published when they change.

use std::collections::BTreeMap;

use super::ReportInput;
use super::foreign::ForeignStates;
use super::node_failures::NodeFailures;
use super::node_pools::NodePools;
use crate::Out;
use crate::nodes::NodeStatus;
use mechanisms::published::Published;
use model::arm::Backend;
use model::ids::NodeName;
use model::machine::Now;
use model::node::NodeState;
use model::view::{AdminView, NodePool, NodeView};

/// The last published views.
#[derive(Debug, Default)]
pub(super) struct Views {
    nodes: BTreeMap<NodeName, NodeView>,
    whole: Published<AdminView>,
}

impl Views {
    /// Returns whether the published view of the whole is current, apart from foreign admin states.
    pub(super) fn summary_is_current(&self, input: &ReportInput<'_>) -> bool {
        self.whole.last().is_some_and(|view| {
            view.generation == input.set.generation
                && view.switched_off == input.switched_off
                && view.records == input.records.count
                && view.refused == input.records.refused.len()
                && view.fresh == input.records.fresh
                && view.last_error.as_ref() == input.records.last_error
                && view.unreadable == *input.records.unreadable
        })
    }

    pub(super) fn publish_nodes(&mut self, nodes: BTreeMap<NodeName, NodeView>, out: &mut Vec<Out>) {
        let gone = self.nodes.keys().filter(|name| !nodes.contains_key(*name));
        out.extend(gone.map(|name| Out::Node(name.clone(), None)));
        let changed = nodes.iter().filter(|(name, view)| self.nodes.get(*name) != Some(*view));
        out.extend(changed.map(|(name, view)| Out::Node(name.clone(), Some(view.clone()))));
        self.nodes = nodes;
    }

    pub(super) fn publish_summary(&mut self, view: AdminView, out: &mut Vec<Out>) {
        out.extend(self.whole.update(view).map(Out::View));
    }
}

/// Returns the views of these nodes. Of two nodes with the same name, the existing one is shown.
pub(super) fn of_nodes(
    now: Now,
    statuses: &[NodeStatus<'_>],
    node_pools: &NodePools,
    failures: &NodeFailures,
    input: &ReportInput<'_>,
) -> BTreeMap<NodeName, NodeView> {
    let mut views: BTreeMap<NodeName, NodeView> = BTreeMap::new();
    for (status, node_pools) in statuses.iter().zip(node_pools.all()) {
        if status.fact.is_some() || !views.contains_key(status.name) {
            views.insert(status.name.clone(), of_node(now, status, node_pools, failures, input));
        }
    }
    views
}

fn of_node(
    now: Now,
    status: &NodeStatus<'_>,
    node_pools: &[NodePool],
    failures: &NodeFailures,
    input: &ReportInput<'_>,
) -> NodeView {
    let backends: Vec<Backend> = match (status.fact, status.record) {
        (Some(fact), _) => fact.backends().collect(),
        (None, Some(record)) => record.backends().collect(),
        (None, None) => Vec::new(),
    };
    let is_in_set = backends.iter().any(|backend| input.set.addresses.get(backend) == Some(status.uid));
    let recorded = match status.state {
        NodeState::Held | NodeState::Recording => false,
        NodeState::Draining | NodeState::Down | NodeState::Restoring | NodeState::Gone => {
            status.record.is_some()
        }
    };
    NodeView {
        name: status.name.clone(),
        uid: status.uid.clone(),
        state: status.state,
        signals: status.signals.clone(),
        since: status.since,
        ready: status.fact.is_some_and(|fact| fact.ready),
        backends,
        generation: is_in_set.then_some(input.set.generation),
        recorded,
        taint_ours: status.record.is_some_and(|record| record.taint_ours),
        pools: node_pools.to_vec(),
        retries: input.queue.requeues(status.uid),
        next: failures.next(now, status.uid),
        last_error: failures.last(status.uid),
    }
}

/// Returns the view of the whole.
pub(super) fn summary(input: &ReportInput<'_>, foreign: ForeignStates) -> AdminView {
    AdminView {
        role: input.params.role,
        switched_off: input.switched_off,
        generation: input.set.generation,
        records: input.records.count,
        unreadable: input.records.unreadable.clone(),
        refused: input.records.refused.len(),
        foreign: foreign.shown,
        fresh: input.records.fresh,
        last_error: input.records.last_error.cloned(),
    }
}
