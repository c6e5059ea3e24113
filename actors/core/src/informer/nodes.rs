//! What the admin state is to be told of a node (design.md N1, N2); the Informer does not tell it yet.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::arm::Backend;
use crate::ids::{InstanceId, NodeName, NodeUid};
use crate::object::{NodeObject, Taint};

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
    /// Whether it is left out of all pools (D5).
    pub left_out: bool,
    /// Its taints, in the order of its spec.
    pub taints: Vec<Taint>,
}

impl NodeFact {
    /// What an object says.
    #[must_use]
    pub fn of(object: &NodeObject) -> NodeFact {
        NodeFact {
            name: object.name.clone(),
            uid: object.uid.clone(),
            ips: object.internal_ips.iter().copied().collect(),
            instance: object.instance.clone(),
            ready: object.ready,
            left_out: object.left_out.is_some(),
            taints: object.taints.clone(),
        }
    }

    /// What entries of the node send traffic to.
    pub fn backends(&self) -> impl Iterator<Item = Backend> + '_ {
        let instance = self.instance.iter().cloned().map(Backend::Instance);
        self.ips.iter().copied().map(Backend::Address).chain(instance)
    }
}
