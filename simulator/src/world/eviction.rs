//! Nodes whose machines are taken away one by one, and nodes that are made again under their names.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use simulator_models::kube::build;

use super::disruption::Changed;
use super::{World, node_name};

/// The numbers of addresses that no node has of its own.
const SPARE_ADDRESSES: usize = 40_000;

/// The nodes that are evicted.
#[derive(Clone, Debug, Default)]
pub(super) struct Evictions {
    /// Evictions by number.
    nodes: BTreeMap<usize, usize>,
    /// Nodes that take no new pods: those that are evicted, and those that have gone from among others.
    closed: BTreeSet<usize>,
    gone: BTreeSet<usize>,
}

impl Evictions {
    /// Returns the nodes that take no new pods.
    pub(super) fn closed(&self) -> &BTreeSet<usize> {
        &self.closed
    }
}

impl World {
    /// Returns the numbers of the nodes that there are, without those that went from among others.
    pub(super) fn there(&self) -> impl Iterator<Item = usize> {
        self.nodes.clone().filter(move |node| !self.evictions.gone.contains(node))
    }

    /// Returns the eviction of this number begins: says which node it is, the oldest that is not evicted yet. It takes
    /// no new pods from now on. `None` where there is none, or only one.
    pub(crate) fn begin_eviction(&mut self, number: usize) -> Option<String> {
        let mut open = self.nodes.clone().filter(|node| !self.evictions.closed.contains(node));
        let (node, _another) = (open.next()?, open.next()?);
        self.evictions.nodes.insert(number, node);
        self.evictions.closed.insert(node);
        Some(node_name(node))
    }

    /// Returns the node of the eviction of this number, as long as it is there.
    pub(crate) fn evicted(&self, number: usize) -> Option<String> {
        let node = self.evictions.nodes.get(&number).copied()?;
        self.there().find(|there| *there == node).map(node_name)
    }

    /// The eviction of this number ends: its node goes, and its pods run elsewhere. Says which it was, and which slices
    /// changed.
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

    /// Makes the oldest nodes again under their names, Ready and without taints, with the addresses that they have or with
    /// others.
    pub(crate) fn renew_nodes(&mut self, count: usize, same_addresses: bool) -> Vec<Value> {
        let nodes: Vec<usize> = self.there().take(count).collect();
        let renewed = nodes.into_iter().map(|node| {
            self.renewed += 1;
            if !same_addresses {
                self.moved.insert(node, SPARE_ADDRESSES + self.renewed);
            }
            let uid = build::uid("Node", &self.renewed.to_string(), &node_name(node));
            build::with_uid(self.node_object(node), &uid)
        });
        renewed.collect()
    }
}
