//! Facts about a node: the Informer's view of its object, and its progress out of service (docs/design/nodes.md, N1,
//! N2).

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::arm::Backend;
use crate::ids::{InstanceId, NodeName, NodeUid};
use crate::machine::Wall;
use crate::object::{ExclusionRule, NodeObject, Preempt, ResourceVersion, Taint};

/// The facts about a node that its admin state depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeFact {
    /// Its name.
    pub name: NodeName,
    /// Its UID.
    pub uid: NodeUid,
    /// Its addresses of type `InternalIP`.
    pub ips: BTreeSet<IpAddr>,
    /// Its virtual machine, named as network interfaces name it.
    pub instance: Option<InstanceId>,
    /// True if its condition `Ready` is `True`.
    pub ready: bool,
    /// Why it is excluded from pools, if it is (D5).
    pub excluded: Option<ExclusionRule>,
    /// Its taints, in the order of its spec.
    pub taints: Vec<Taint>,
    /// Creation time.
    pub created: Option<Wall>,
    /// The condition that announces its eviction, if there is one.
    pub preempt: Option<Preempt>,
    /// The resourceVersion of this state. A new version alone is not a change.
    pub version: ResourceVersion,
}

impl NodeFact {
    /// Returns true unless the node is excluded from all pools.
    #[must_use]
    pub fn is_in_service(&self) -> bool {
        !self.excluded.is_some_and(ExclusionRule::is_everywhere)
    }

    /// Returns the facts of a Node object, which is excluded from pools for this reason.
    #[must_use]
    pub fn of(object: &NodeObject, excluded: Option<ExclusionRule>) -> NodeFact {
        NodeFact {
            name: object.name.clone(),
            uid: object.uid.clone(),
            ips: object.internal_ips.iter().copied().collect(),
            instance: object.instance.clone(),
            ready: object.ready,
            excluded,
            taints: object.taints.clone(),
            created: object.created,
            preempt: object.preempt.clone(),
            version: object.resource_version.clone(),
        }
    }

    /// Returns true if the node could serve traffic, so that its Down reduces capacity (N5).
    #[must_use]
    pub fn serves(&self) -> bool {
        self.ready && !self.excluded.is_some_and(ExclusionRule::is_everywhere)
    }

    /// Returns the targets of the node's entries.
    pub fn backends(&self) -> impl Iterator<Item = Backend> + '_ {
        let instance = self.instance.iter().cloned().map(Backend::Instance);
        self.ips.iter().copied().map(Backend::Address).chain(instance)
    }
}

/// State of a node on its way out of service or back (S1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NodeState {
    /// The node leaves service and waits for its turn (N5).
    Held,
    /// The node leaves service, and its record must be stored first (N4).
    Recording,
    /// Its entries are being set Down.
    Draining,
    /// Its entries are Down in every pool.
    Down,
    /// Its entries that are Down by us are being restored.
    Restoring,
    /// The node is gone, and entries of it are still Down.
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

    /// Returns the value in metrics and the admin API.
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

/// The role of the admin state machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The machine sets the entries of leaving nodes Down and restores them.
    On,
    /// `enableLoadBalancerAdminState: false`: it restores the entries that records mark as ours, and then does
    /// nothing.
    Off,
    /// The machine only confirms that a term may begin.
    Silent,
}
