//! Nodes that are evicted one by one, and nodes that are recreated with the same name.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use simulator_models::kube::build;

use super::disruption::Changed;
use super::{World, node_name};

/// First address index that is not a node index.
const SPARE_ADDRESSES: usize = 40_000;

/// Evicted nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Evictions {
    /// Node of each eviction.
    nodes: BTreeMap<usize, usize>,
    /// Nodes without new pods: those that are being evicted, and deleted ones between existing ones.
    closed: BTreeSet<usize>,
    gone: BTreeSet<usize>,
}

impl Evictions {
    /// Returns the nodes without new pods.
    pub(super) fn closed(&self) -> &BTreeSet<usize> {
        &self.closed
    }
}

impl World {
    /// Returns the indices of the existing nodes, without deleted ones between them.
    pub(super) fn there(&self) -> impl Iterator<Item = usize> {
        self.nodes.clone().filter(move |node| !self.evictions.gone.contains(node))
    }

    /// Begins the eviction with this number: returns the oldest remaining node, which gets no new pods from now on.
    /// Returns `None` if there is none, or only one.
    pub(crate) fn begin_eviction(&mut self, number: usize) -> Option<String> {
        let mut open = self.nodes.clone().filter(|node| !self.evictions.closed.contains(node));
        let (node, _another) = (open.next()?, open.next()?);
        self.evictions.nodes.insert(number, node);
        self.evictions.closed.insert(node);
        Some(node_name(node))
    }

    /// Returns the node of the eviction with this number, while it exists.
    pub(crate) fn evicted(&self, number: usize) -> Option<String> {
        let node = self.evictions.nodes.get(&number).copied()?;
        self.there().find(|there| *there == node).map(node_name)
    }

    /// Ends the eviction with this number: removes its node and moves its pods. Returns the node and the changed
    /// slices.
    pub(crate) fn end_eviction(&mut self, number: usize) -> Option<(String, Changed)> {
        let name = self.evicted(number)?;
        let node = self.evictions.nodes.remove(&number)?;
        self.evictions.gone.insert(node);
        while self.evictions.gone.remove(&self.nodes.start) {
            self.evictions.closed.remove(&self.nodes.start);
            self.nodes.start += 1;
        }
        Some((name, self.move_pods(&(node..node + 1))))
    }

    /// Recreates the oldest nodes with the same names, Ready and without taints, with the same or with new addresses.
    pub(crate) fn renew_nodes(&mut self, count: usize, same_addresses: bool) -> Vec<Value> {
        let nodes: Vec<usize> = self.there().take(count).collect();
        let recreated = nodes.into_iter().map(|node| {
            self.recreated += 1;
            if !same_addresses {
                self.address_index.insert(node, SPARE_ADDRESSES + self.recreated);
            }
            let uid = build::uid("Node", &self.recreated.to_string(), &node_name(node));
            build::with_uid(self.node_object(node), &uid)
        });
        recreated.collect()
    }
}
