//! What the admin state is told of nodes, each when anything of it has changed (docs/design/nodes.md, N1, N2).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Informer, Out};
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

/// Whether both objects say the same to the admin state.
pub(super) fn say_the_same(before: Option<&NodeObject>, after: Option<&NodeObject>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            before.uid == after.uid
                && before.internal_ips == after.internal_ips
                && before.instance == after.instance
                && before.ready == after.ready
                && before.left_out == after.left_out
                && before.taints == after.taints
                && before.created == after.created
                && same_notice(before, after)
        }
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Whether the same condition tells of an eviction, or none; how old it was when it came does not matter.
fn same_notice(before: &NodeObject, after: &NodeObject) -> bool {
    match (&before.preempt, &after.preempt) {
        (Some(before), Some(after)) => before.is_same_as(after),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

impl Informer {
    /// Says what has changed of nodes since the last turn.
    pub(super) fn tell_nodes(&mut self, out: &mut Vec<Out>) {
        for name in std::mem::take(&mut self.cache.changed_nodes) {
            let fact = self.cache.node(&name).map(|object| Arc::new(NodeFact::of(object)));
            out.push(Out::Node(name, fact));
        }
    }
}
