//! Whether a node leaves traffic, returns to it, or is gone.

use model::node::NodeState;

/// The direction of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// Out of traffic.
    Out,
    /// Back into traffic.
    Back,
    /// Deleted.
    Gone,
}

impl Direction {
    pub(super) fn of(state: NodeState) -> Direction {
        match state {
            NodeState::Held | NodeState::Recording | NodeState::Draining | NodeState::Down => Direction::Out,
            NodeState::Restoring => Direction::Back,
            NodeState::Gone => Direction::Gone,
        }
    }
}
