//! What is said of a node: what the Informer knows of it, and how far it is out of traffic
//! (docs/design/nodes.md, N1, N2).

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::arm::Backend;
use crate::ids::{InstanceId, NodeName, NodeUid};
use crate::machine::Wall;
use crate::object::{LeftOut, NodeObject, Preempt, ResourceVersion, Taint};

/// A node, as far as it matters for its admin state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeFact {
    /// Its name.
    pub name: NodeName,
    /// Its UID.
    pub uid: NodeUid,
    /// Its addresses of type `InternalIP`.
    pub ips: BTreeSet<IpAddr>,
    /// Its virtual machine, as network interfaces name it.
    pub instance: Option<InstanceId>,
    /// Whether its condition `Ready` is `True`.
    pub ready: bool,
    /// Why it is left out of pools, if it is (D5).
    pub left_out: Option<LeftOut>,
    /// Its taints, in the order of its spec.
    pub taints: Vec<Taint>,
    /// When it was created.
    pub created: Option<Wall>,
    /// The condition that tells of its eviction.
    pub preempt: Option<Preempt>,
    /// The version of this state of it; it is no news by itself.
    pub version: ResourceVersion,
}

impl NodeFact {
    /// Whether it is not left out of all pools.
    #[must_use]
    pub fn is_in_service(&self) -> bool {
        !self.left_out.is_some_and(LeftOut::is_everywhere)
    }

    /// What an object says.
    #[must_use]
    pub fn of(object: &NodeObject) -> NodeFact {
        NodeFact {
            name: object.name.clone(),
            uid: object.uid.clone(),
            ips: object.internal_ips.iter().copied().collect(),
            instance: object.instance.clone(),
            ready: object.ready,
            left_out: object.left_out,
            taints: object.taints.clone(),
            created: object.created,
            preempt: object.preempt.clone(),
            version: object.resource_version.clone(),
        }
    }

    /// Whether its Down takes away a node that could serve (N5).
    #[must_use]
    pub fn serves(&self) -> bool {
        self.ready && !self.left_out.is_some_and(LeftOut::is_everywhere)
    }

    /// What entries of the node send traffic to.
    pub fn backends(&self) -> impl Iterator<Item = Backend> + '_ {
        let instance = self.instance.iter().cloned().map(Backend::Instance);
        self.ips.iter().copied().map(Backend::Address).chain(instance)
    }
}

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

/// What the machine does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It cuts nodes out and takes them back.
    On,
    /// `enableLoadBalancerAdminState: false`: it takes back what records say is ours, and then does nothing.
    Off,
    /// It passes on that a term may begin, and nothing more.
    Silent,
}
