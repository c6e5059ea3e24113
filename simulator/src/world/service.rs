//! One Service's pods: their nodes and phases.

use std::collections::BTreeSet;
use std::ops::Range;

use simulator_models::kube::build::{self, Family};

use crate::random::Random;

/// Phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Scheduled, not ready.
    Starting,
    /// Ready.
    Ready,
    /// Terminating, still serving.
    Terminating,
}

/// A pod behind a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Unique number of the pod.
    pub serial: u64,
    /// Index of its node.
    pub node: usize,
    /// Index of its slice.
    pub slice: usize,
    /// Its phase.
    pub phase: Phase,
    /// The pod that terminates when this one is ready.
    pub replaces: Option<u64>,
}

/// A Service of type LoadBalancer with local traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Index of its load balancer.
    pub load_balancer: usize,
    /// Number of slices in each family.
    pub slices: usize,
    /// Its pods, in the order of their creation.
    pub pods: Vec<Pod>,
}

impl Service {
    /// Returns the name of its rule in a family: the first 32 characters of `a<uid>`, protocol, port and family.
    #[must_use]
    pub fn rule(&self, family: Family) -> String {
        let uid = build::uid("Service", &self.namespace, &self.name).replace('-', "");
        let prefix: String = "a".chars().chain(uid.chars()).take(32).collect();
        match family {
            Family::V4 => format!("{prefix}-TCP-80"),
            Family::V6 => format!("{prefix}-TCP-80-IPv6"),
        }
    }

    /// Returns a node that is not closed, preferably one without a pod of this Service.
    pub(crate) fn free_node(
        &self,
        nodes: &Range<usize>,
        closed: &BTreeSet<usize>,
        random: &mut Random,
    ) -> usize {
        let (begin, count) = (nodes.start, nodes.len());
        let first = random.below(count);
        let taken = |node: usize| self.pods.iter().any(|pod| pod.node == node);
        let node_at = |step: usize| begin + (first + step) % count;
        let open = |node: &usize| !closed.contains(node);
        let free = (0..count).map(node_at).find(|node| open(node) && !taken(*node));
        free.or_else(|| (0..count).map(node_at).find(open)).unwrap_or(begin + first)
    }

    /// Returns whether pods are starting or terminating.
    pub(crate) fn is_changing(&self) -> bool {
        self.pods.iter().any(|pod| pod.phase != Phase::Ready)
    }

    /// Advances the oldest change by one step, and returns its slice: a starting pod becomes ready and the one that it
    /// replaces begins to terminate; otherwise a terminating pod ends.
    pub(crate) fn advance(&mut self) -> Option<usize> {
        if let Some(at) = self.pods.iter().position(|pod| pod.phase == Phase::Starting) {
            self.pods[at].phase = Phase::Ready;
            let replaced = self.pods[at].replaces.take();
            for pod in self.pods.iter_mut().filter(|pod| Some(pod.serial) == replaced) {
                pod.phase = Phase::Terminating;
            }
            return Some(self.pods[at].slice);
        }
        let at = self.pods.iter().position(|pod| pod.phase == Phase::Terminating)?;
        Some(self.pods.remove(at).slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(serial: u64, phase: Phase, replaces: Option<u64>) -> Pod {
        Pod { serial, node: 0, slice: 0, phase, replaces }
    }

    #[test]
    fn a_replaced_pod_ends_after_its_successor_is_ready() {
        let mut service = Service {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            load_balancer: 0,
            slices: 1,
            pods: vec![
                pod(1, Phase::Ready, None),
                pod(2, Phase::Ready, None),
                pod(3, Phase::Starting, Some(2)),
            ],
        };
        let phases = |service: &Service| -> Vec<(u64, Phase)> {
            service.pods.iter().map(|pod| (pod.serial, pod.phase)).collect()
        };
        assert_eq!(service.advance(), Some(0));
        let expected = [(1, Phase::Ready), (2, Phase::Terminating), (3, Phase::Ready)];
        assert_eq!(phases(&service), expected);
        assert_eq!(service.advance(), Some(0));
        assert_eq!(phases(&service), [(1, Phase::Ready), (3, Phase::Ready)]);
        assert!(!service.is_changing());
        assert_eq!(service.advance(), None);
    }
}
