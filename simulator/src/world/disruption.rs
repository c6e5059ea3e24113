//! Large changes of the planned cluster: nodes that are added and deleted with their pods, and Services that are
//! deleted or scaled to zero.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::Value;
use simulator_models::kube::build::Family;

use super::{Phase, Pod, World, node_name, objects};
use crate::convergence::PoolName;
use crate::random::Random;

/// Slices to write, each by the index of its Service and its own index.
pub(crate) type Changed = BTreeSet<(usize, usize)>;

/// Objects that were deleted with a namespace.
pub(crate) struct Deleted {
    /// The namespace.
    pub(crate) namespace: String,
    /// The names of its Services.
    pub(crate) services: Vec<String>,
    /// The names of their slices.
    pub(crate) slices: Vec<String>,
    /// Their pools, each with its rule, which the cloud-controller-manager has removed before the Service was deleted.
    pub(crate) pools: Vec<(PoolName, String)>,
}

impl World {
    /// Removes the newest or the oldest nodes, and moves their pods, Ready, to others. Returns the removed nodes and
    /// the changed slices. At least one node stays.
    pub(crate) fn lose_nodes(&mut self, count: usize, oldest: bool) -> (Vec<String>, Changed) {
        let gone = self.take_nodes(count, oldest);
        let changed = self.move_pods(&gone);
        (gone.map(node_name).collect(), changed)
    }

    /// Moves the pods of removed nodes, Ready, to others.
    pub(super) fn move_pods(&mut self, gone: &Range<usize>) -> Changed {
        let mut random = Random::new(self.next_pod);
        let mut changed = Changed::new();
        for index in 0..self.services.len() {
            for at in 0..self.services[index].pods.len() {
                if !gone.contains(&self.services[index].pods[at].node) {
                    continue;
                }
                let serial = self.next_serial();
                let node = self.free_node(index, &mut random);
                let pod = &mut self.services[index].pods[at];
                let replaces = pod.replaces;
                *pod = Pod { serial, node, slice: pod.slice, phase: Phase::Ready, replaces };
                changed.insert((index, pod.slice));
            }
        }
        changed
    }

    /// Removes the oldest nodes with their pods. Returns the removed nodes and the changed slices. At least one node
    /// stays.
    pub(crate) fn fail_nodes(&mut self, count: usize) -> (Vec<String>, Changed) {
        let gone = self.take_nodes(count, true);
        let mut changed = Changed::new();
        for index in 0..self.services.len() {
            let pods = std::mem::take(&mut self.services[index].pods);
            let (lost, left): (Vec<Pod>, Vec<Pod>) =
                pods.into_iter().partition(|pod| gone.contains(&pod.node));
            self.services[index].pods = left;
            changed.extend(lost.iter().map(|pod| (index, pod.slice)));
            if !lost.is_empty() {
                self.scaled_down.entry(index).or_default().extend(lost);
            }
        }
        (gone.map(node_name).collect(), changed)
    }

    /// Removes the newest or the oldest nodes; at least one stays.
    fn take_nodes(&mut self, count: usize, oldest: bool) -> Range<usize> {
        let count = count.min(self.nodes.len().saturating_sub(1));
        let (gone, left) = if oldest {
            let first = self.nodes.start + count;
            (self.nodes.start..first, first..self.nodes.end)
        } else {
            let last = self.nodes.end - count;
            (last..self.nodes.end, self.nodes.start..last)
        };
        self.nodes = left;
        gone
    }

    /// Adds nodes; no pod runs there yet.
    pub(crate) fn add_nodes(&mut self, count: usize) -> Vec<Value> {
        let new = self.nodes.end..self.nodes.end + count;
        self.nodes.end = new.end;
        new.map(|node| self.node_object(node)).collect()
    }

    /// Returns the names of the oldest nodes.
    pub(crate) fn oldest_nodes(&self, count: usize) -> Vec<String> {
        self.there().take(count).map(node_name).collect()
    }

    /// Removes all pods of the first Services that have any. Kubernetes keeps one slice of each family of such a
    /// Service. Returns the changed slices, and the namespace and name of each deleted one.
    pub(crate) fn scale_to_zero(&mut self, count: usize) -> (Changed, Vec<(String, String)>) {
        let awake: Vec<usize> =
            (0..self.services.len()).filter(|index| !self.services[*index].pods.is_empty()).collect();
        let (mut changed, mut deleted) = (Changed::new(), Vec::new());
        for index in awake.into_iter().take(count) {
            let pods = std::mem::take(&mut self.services[index].pods);
            self.scaled_down.entry(index).or_default().extend(pods);
            changed.insert((index, 0));
            let service = &self.services[index];
            for slice in 1..service.slices {
                let name = |family: &Family| objects::slice_name(service, slice, *family);
                let names = self.families().iter().map(name);
                deleted.extend(names.map(|name| (service.namespace.clone(), name)));
            }
        }
        (changed, deleted)
    }

    /// Restores the number of pods of every Service that has lost some, with new pods on existing nodes.
    pub(crate) fn scale_back(&mut self) -> Changed {
        let mut random = Random::new(!self.next_pod);
        let mut changed = Changed::new();
        for (index, pods) in std::mem::take(&mut self.scaled_down) {
            for pod in pods {
                let serial = self.next_serial();
                let node = self.free_node(index, &mut random);
                let born = Pod { serial, node, slice: pod.slice, phase: Phase::Ready, replaces: None };
                self.services[index].pods.push(born);
            }
            changed.extend((0..self.services[index].slices).map(|slice| (index, slice)));
        }
        changed
    }

    /// Deletes the namespace of the first existing Service; returns `None` if there is none.
    pub(crate) fn delete_namespace(&mut self) -> Option<Deleted> {
        let first = (0..self.services.len()).find(|index| !self.is_gone(*index))?;
        let namespace = self.services[first].namespace.clone();
        let mut deleted = Deleted { namespace, services: Vec::new(), slices: Vec::new(), pools: Vec::new() };
        for index in first..self.services.len() {
            if self.services[index].namespace != deleted.namespace {
                continue;
            }
            let pools: Vec<(Family, PoolName)> = self.pools(index).collect();
            let service = &self.services[index];
            deleted.services.push(service.name.clone());
            deleted.slices.extend(self.scope(index).slices);
            deleted.pools.extend(pools.into_iter().map(|(family, pool)| (pool, service.rule(family))));
            self.services[index].pods.clear();
            self.scaled_down.remove(&index);
            self.gone.insert(index);
        }
        Some(deleted)
    }

    /// Returns the pools of Services that were deleted.
    pub(crate) fn gone_pools(&self) -> Vec<PoolName> {
        self.gone.iter().flat_map(|index| self.pools(*index).map(|(_, pool)| pool)).collect()
    }

    /// Returns the objects of these slices.
    pub(crate) fn changed_slices(&self, changed: &Changed, trigger_time: &str) -> Vec<Value> {
        changed.iter().flat_map(|(service, slice)| self.slices(*service, *slice, trigger_time)).collect()
    }
}
