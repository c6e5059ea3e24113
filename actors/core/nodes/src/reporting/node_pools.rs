//! The pools of draining and restoring nodes, and their state there (docs/design/nodes.md, N2, N4).

use std::collections::{BTreeMap, BTreeSet};

use super::ReportInput;
use super::direction::Direction;
use crate::nodes::NodeStatus;
use crate::pending_updates::UpdateState;
use model::arm::{AdminState, Backend};
use model::ids::{LbName, PoolId};
use model::view::{NodePool, NodePoolState};

/// The pools of several nodes, in the order of the nodes.
#[derive(Debug)]
pub(super) struct NodePools(Vec<Vec<NodePool>>);

impl NodePools {
    /// Returns the pools of these nodes.
    pub(super) fn of(statuses: &[NodeStatus<'_>], input: &ReportInput<'_>) -> NodePools {
        let mut whose: BTreeMap<Backend, Vec<usize>> = BTreeMap::new();
        for (at, status) in statuses.iter().enumerate() {
            for backend in backends(status) {
                whose.entry(backend).or_default().push(at);
            }
        }
        if whose.is_empty() {
            return NodePools(vec![Vec::new(); statuses.len()]);
        }
        let all: BTreeSet<Backend> = whose.keys().cloned().collect();
        let posts_of = |status: &NodeStatus<'_>| input.updates.of(status.uid).collect::<BTreeMap<_, _>>();
        let updates: Vec<BTreeMap<&PoolId, UpdateState>> = statuses.iter().map(posts_of).collect();
        let mut node_pools: Vec<BTreeMap<&PoolId, NodePoolState>> = vec![BTreeMap::new(); statuses.len()];
        for (pool, backend, state) in input.pools.states_of(&all) {
            let excluded = input.set.excluded.contains(&pool.pool);
            for &at in whose.get(&backend).into_iter().flatten() {
                let place = if excluded {
                    Some(NodePoolState::Excluded)
                } else if input.pools.knows_source(pool)
                    && input.set.kept.contains(&(pool.clone(), backend.clone()))
                {
                    // The entry is Down for another reason, and needs no update for the node.
                    None
                } else {
                    place(&statuses[at], pool, (&backend, state), updates[at].get(pool))
                };
                let Some(place) = place else { continue };
                let known = node_pools[at].entry(pool).or_insert(place);
                if weight(place) > weight(*known) {
                    *known = place;
                }
            }
        }
        let named = |(pool, state): (&PoolId, NodePoolState)| NodePool { pool: pool.clone(), state };
        NodePools(
            node_pools.into_iter().map(|node_pools| node_pools.into_iter().map(named).collect()).collect(),
        )
    }

    /// Returns the pools of each node.
    pub(super) fn all(&self) -> impl Iterator<Item = &[NodePool]> {
        self.0.iter().map(Vec::as_slice)
    }
}

/// Returns the backends that are the node's, or have been since it was recorded.
fn backends(status: &NodeStatus<'_>) -> BTreeSet<Backend> {
    let now = status.fact.into_iter().flat_map(|fact| fact.backends());
    let recorded = status.record.into_iter().flat_map(|record| record.backends());
    now.chain(recorded).collect()
}

/// Returns the state of a node in a pool that is not excluded, as derived from one entry there. `None`: nothing to
/// report.
fn place(
    status: &NodeStatus<'_>,
    pool: &PoolId,
    (backend, state): (&Backend, AdminState),
    update: Option<&UpdateState>,
) -> Option<NodePoolState> {
    let due = match update {
        Some(UpdateState::Failed) => NodePoolState::Failed,
        Some(UpdateState::Waiting) | None => NodePoolState::Waiting,
    };
    let ours = status.record.is_some_and(|record| !record.foreign.holds(pool));
    match (Direction::of(status.state), state) {
        (Direction::Out | Direction::Gone, AdminState::Down) if ours => Some(NodePoolState::Down),
        (Direction::Back, AdminState::Down) if ours => Some(due),
        (Direction::Out | Direction::Back | Direction::Gone, AdminState::Down) => {
            Some(NodePoolState::Foreign)
        }
        // A former backend of the node is not drained.
        (Direction::Out, AdminState::None | AdminState::Up) => has(status, backend).then_some(due),
        (Direction::Out, AdminState::Unknown) => has(status, backend).then_some(NodePoolState::Unknown),
        (Direction::Back | Direction::Gone, AdminState::None | AdminState::Up | AdminState::Unknown) => None,
    }
}

/// Returns whether this backend is the node's now.
fn has(status: &NodeStatus<'_>, backend: &Backend) -> bool {
    status.fact.is_some_and(|fact| fact.backends().any(|of| of == *backend))
}

/// Returns the weight of a state. Of several entries of a node in one pool, the one with the most work counts.
fn weight(state: NodePoolState) -> u8 {
    match state {
        NodePoolState::Excluded => 0,
        NodePoolState::Foreign => 1,
        NodePoolState::Down => 2,
        NodePoolState::Unknown => 3,
        NodePoolState::Waiting => 4,
        NodePoolState::Failed => 5,
    }
}

/// Returns whether a pool in this state still needs a write for the node.
pub(super) fn is_due(state: NodePoolState) -> bool {
    match state {
        NodePoolState::Waiting | NodePoolState::Failed => true,
        NodePoolState::Down | NodePoolState::Foreign | NodePoolState::Unknown | NodePoolState::Excluded => {
            false
        }
    }
}

/// Returns the number of pools in which a node is Down, and of their load balancers.
pub(super) fn downs(node_pools: &[NodePool]) -> (usize, usize) {
    let is_down = |place: &&NodePool| match place.state {
        NodePoolState::Down | NodePoolState::Foreign => true,
        NodePoolState::Waiting | NodePoolState::Failed | NodePoolState::Unknown | NodePoolState::Excluded => {
            false
        }
    };
    let pools: Vec<&PoolId> = node_pools.iter().filter(is_down).map(|place| &place.pool).collect();
    let balancers: BTreeSet<&LbName> = pools.iter().map(|pool| &pool.lb).collect();
    (pools.len(), balancers.len())
}

/// Returns the number of pools in which a node has an unknown admin state, and the first of them. `None`: no such
/// pool.
pub(super) fn unknown(node_pools: &[NodePool]) -> Option<(usize, PoolId)> {
    let mut pools = node_pools.iter().filter(|place| place.state == NodePoolState::Unknown);
    let first = pools.next()?.pool.clone();
    Some((1 + pools.count(), first))
}
