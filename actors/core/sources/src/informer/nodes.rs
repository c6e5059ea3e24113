//! Publishes facts about nodes for the admin state, each when it has changed (docs/design/nodes.md, N1, N2).

use std::sync::Arc;

use super::node::ExistingNode;
use super::{Informer, Out};
use model::node::NodeFact;
use model::object::NodeObject;

/// Returns true if both states lead to the same fact.
pub(super) fn is_same_fact(before: Option<&ExistingNode>, after: Option<&ExistingNode>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            let is_excluded_as_before = before.excluded == after.excluded;
            let (before, after) = (&before.object, &after.object);
            is_excluded_as_before
                && before.uid == after.uid
                && before.internal_ips == after.internal_ips
                && before.instance == after.instance
                && before.ready == after.ready
                && before.taints == after.taints
                && before.created == after.created
                && same_notice(before, after)
        }
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Returns true if both nodes have the same eviction notice, or none. Its age at arrival does not matter.
fn same_notice(before: &NodeObject, after: &NodeObject) -> bool {
    match (&before.preempt, &after.preempt) {
        (Some(before), Some(after)) => before.is_same_as(after),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

impl Informer {
    /// Publishes the facts of nodes that have changed since the last turn.
    pub(super) fn publish_nodes(&mut self, out: &mut Vec<Out>) {
        for name in std::mem::take(&mut self.cache.changed_nodes) {
            let fact = self.cache.existing(&name).map(|node| NodeFact::of(&node.object, node.excluded));
            let fact = fact.map(Arc::new);
            out.push(Out::Node(name, fact));
        }
    }
}
