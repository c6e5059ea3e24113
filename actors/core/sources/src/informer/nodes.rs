//! What the admin state is told of nodes, each when anything of it has changed (docs/design/nodes.md, N1, N2).

use std::sync::Arc;

use super::{Informer, Out};
use model::node::NodeFact;
use model::object::NodeObject;

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
