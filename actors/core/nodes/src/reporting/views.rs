//! The views of the admin state, published when they change.

use std::collections::BTreeMap;

use super::Seen;
use super::failures::Failures;
use super::foreign::Foreign;
use super::node_pools::NodePools;
use crate::Out;
use crate::nodes::NodeStatus;
use model::arm::Backend;
use model::ids::NodeName;
use model::machine::Now;
use model::node::NodeState;
use model::view::{AdminView, NodePool, NodeView};

/// The last published views.
#[derive(Debug, Default)]
pub(super) struct Views {
    nodes: BTreeMap<NodeName, NodeView>,
    whole: Option<AdminView>,
}

impl Views {
    /// Whether the published view of the whole is current, apart from foreign admin states.
    pub(super) fn show_the_whole(&self, seen: &Seen<'_>) -> bool {
        self.whole.as_ref().is_some_and(|view| {
            view.generation == seen.set.generation
                && view.switched_off == seen.switched_off
                && view.records == seen.records.count
                && view.refused == seen.records.refused.len()
                && view.fresh == seen.records.fresh
                && view.last_error.as_ref() == seen.records.last_error
                && view.unreadable == *seen.records.unreadable
        })
    }

    pub(super) fn tell_nodes(&mut self, nodes: BTreeMap<NodeName, NodeView>, out: &mut Vec<Out>) {
        let gone = self.nodes.keys().filter(|name| !nodes.contains_key(*name));
        out.extend(gone.map(|name| Out::Node(name.clone(), None)));
        let news = nodes.iter().filter(|(name, view)| self.nodes.get(*name) != Some(*view));
        out.extend(news.map(|(name, view)| Out::Node(name.clone(), Some(view.clone()))));
        self.nodes = nodes;
    }

    pub(super) fn tell_the_whole(&mut self, view: AdminView, out: &mut Vec<Out>) {
        if self.whole.as_ref() != Some(&view) {
            out.push(Out::View(view.clone()));
            self.whole = Some(view);
        }
    }
}

/// The views of these nodes. Of two nodes with the same name, the existing one is shown.
pub(super) fn of_nodes(
    now: Now,
    stands: &[NodeStatus<'_>],
    places: &NodePools,
    failures: &Failures,
    seen: &Seen<'_>,
) -> BTreeMap<NodeName, NodeView> {
    let mut views: BTreeMap<NodeName, NodeView> = BTreeMap::new();
    for (stand, places) in stands.iter().zip(places.all()) {
        if stand.fact.is_some() || !views.contains_key(stand.name) {
            views.insert(stand.name.clone(), of_node(now, stand, places, failures, seen));
        }
    }
    views
}

fn of_node(
    now: Now,
    stand: &NodeStatus<'_>,
    places: &[NodePool],
    failures: &Failures,
    seen: &Seen<'_>,
) -> NodeView {
    let backends: Vec<Backend> = match (stand.fact, stand.record) {
        (Some(fact), _) => fact.backends().collect(),
        (None, Some(record)) => record.backends().collect(),
        (None, None) => Vec::new(),
    };
    let is_in_set = backends.iter().any(|backend| seen.set.addresses.get(backend) == Some(stand.uid));
    let recorded = match stand.state {
        NodeState::Held | NodeState::Recording => false,
        NodeState::Draining | NodeState::Down | NodeState::Restoring | NodeState::Gone => {
            stand.record.is_some()
        }
    };
    NodeView {
        name: stand.name.clone(),
        uid: stand.uid.clone(),
        state: stand.state,
        signals: stand.signals.clone(),
        since: stand.since,
        ready: stand.fact.is_some_and(|fact| fact.ready),
        backends,
        generation: is_in_set.then_some(seen.set.generation),
        recorded,
        taint_ours: stand.record.is_some_and(|record| record.taint_ours),
        pools: places.to_vec(),
        retries: seen.queue.requeues(stand.uid),
        next: failures.next(now, stand.uid),
        last_error: failures.last(stand.uid),
    }
}

/// The view of the whole.
pub(super) fn of_the_whole(seen: &Seen<'_>, foreign: Foreign) -> AdminView {
    AdminView {
        role: seen.params.role,
        switched_off: seen.switched_off,
        generation: seen.set.generation,
        records: seen.records.count,
        unreadable: seen.records.unreadable.clone(),
        refused: seen.records.refused.len(),
        foreign: foreign.shown,
        fresh: seen.records.fresh,
        last_error: seen.records.last_error.cloned(),
    }
}
