//! The pools of draining and restoring nodes, and their state there (docs/design/nodes.md, N2, N4).

use std::collections::{BTreeMap, BTreeSet};

use super::Seen;
use super::transitions::Way;
use crate::nodes::NodeStatus;
use crate::pending_updates::PostState;
use model::arm::{AdminState, Backend};
use model::ids::{LbName, PoolId};
use model::view::{NodePool, NodePoolState};

/// The pools of several nodes, in the order of the nodes.
#[derive(Debug)]
pub(super) struct NodePools(Vec<Vec<NodePool>>);

impl NodePools {
    /// The pools of these nodes.
    pub(super) fn of(stands: &[NodeStatus<'_>], seen: &Seen<'_>) -> NodePools {
        let mut whose: BTreeMap<Backend, Vec<usize>> = BTreeMap::new();
        for (at, stand) in stands.iter().enumerate() {
            for backend in backends(stand) {
                whose.entry(backend).or_default().push(at);
            }
        }
        if whose.is_empty() {
            return NodePools(vec![Vec::new(); stands.len()]);
        }
        let all: BTreeSet<Backend> = whose.keys().cloned().collect();
        let posts_of = |stand: &NodeStatus<'_>| seen.posts.of(stand.uid).collect::<BTreeMap<_, _>>();
        let posts: Vec<BTreeMap<&PoolId, PostState>> = stands.iter().map(posts_of).collect();
        let mut places: Vec<BTreeMap<&PoolId, NodePoolState>> = vec![BTreeMap::new(); stands.len()];
        for (pool, backend, state) in seen.pools.states_of(&all) {
            let excluded = seen.set.excluded.contains(&pool.pool);
            for &at in whose.get(&backend).into_iter().flatten() {
                let place = if excluded {
                    Some(NodePoolState::Excluded)
                } else if seen.pools.has_word(pool)
                    && seen.set.kept.contains(&(pool.clone(), backend.clone()))
                {
                    // It is Down for another reason, and needs no update for the node.
                    None
                } else {
                    place(&stands[at], pool, (&backend, state), posts[at].get(pool))
                };
                let Some(place) = place else { continue };
                let known = places[at].entry(pool).or_insert(place);
                if weight(place) > weight(*known) {
                    *known = place;
                }
            }
        }
        let named = |(pool, state): (&PoolId, NodePoolState)| NodePool { pool: pool.clone(), state };
        NodePools(places.into_iter().map(|places| places.into_iter().map(named).collect()).collect())
    }

    /// The pools of each node.
    pub(super) fn all(&self) -> impl Iterator<Item = &[NodePool]> {
        self.0.iter().map(Vec::as_slice)
    }
}

/// The backends that are the node's, or have been since it was recorded.
fn backends(stand: &NodeStatus<'_>) -> BTreeSet<Backend> {
    let now = stand.fact.into_iter().flat_map(|fact| fact.backends());
    let noted = stand.record.into_iter().flat_map(|record| record.backends());
    now.chain(noted).collect()
}

/// The state of a node in a pool that is not excluded, by an entry there. `None`: nothing to report.
fn place(
    stand: &NodeStatus<'_>,
    pool: &PoolId,
    (backend, state): (&Backend, AdminState),
    post: Option<&PostState>,
) -> Option<NodePoolState> {
    let due = match post {
        Some(PostState::Failed) => NodePoolState::Failed,
        Some(PostState::Waiting) | None => NodePoolState::Waiting,
    };
    let ours = stand.record.is_some_and(|record| !record.foreign.holds(pool));
    match (Way::of(stand.state), state) {
        (Way::Out | Way::Gone, AdminState::Down) if ours => Some(NodePoolState::Down),
        (Way::Back, AdminState::Down) if ours => Some(due),
        (Way::Out | Way::Back | Way::Gone, AdminState::Down) => Some(NodePoolState::Foreign),
        // A backend that the node only had before is not drained.
        (Way::Out, AdminState::None | AdminState::Up) => has(stand, backend).then_some(due),
        (Way::Out, AdminState::Unknown) => has(stand, backend).then_some(NodePoolState::Unknown),
        (Way::Back | Way::Gone, AdminState::None | AdminState::Up | AdminState::Unknown) => None,
    }
}

/// Whether this backend is the node's now.
fn has(stand: &NodeStatus<'_>, backend: &Backend) -> bool {
    stand.fact.is_some_and(|fact| fact.backends().any(|of| of == *backend))
}

/// Weight of a state. Of several entries of a node in one pool, the one with the most work counts.
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

/// Whether a write is still needed there.
pub(super) fn is_due(state: NodePoolState) -> bool {
    match state {
        NodePoolState::Waiting | NodePoolState::Failed => true,
        NodePoolState::Down | NodePoolState::Foreign | NodePoolState::Unknown | NodePoolState::Excluded => {
            false
        }
    }
}

/// Number of pools in which a node is Down, and of their load balancers.
pub(super) fn downs(places: &[NodePool]) -> (usize, usize) {
    let is_down = |place: &&NodePool| match place.state {
        NodePoolState::Down | NodePoolState::Foreign => true,
        NodePoolState::Waiting | NodePoolState::Failed | NodePoolState::Unknown | NodePoolState::Excluded => {
            false
        }
    };
    let pools: Vec<&PoolId> = places.iter().filter(is_down).map(|place| &place.pool).collect();
    let balancers: BTreeSet<&LbName> = pools.iter().map(|pool| &pool.lb).collect();
    (pools.len(), balancers.len())
}

/// Number of pools in which a node has an unknown admin state, and the first of them. `None`: no such pool.
pub(super) fn unknown(places: &[NodePool]) -> Option<(usize, PoolId)> {
    let mut pools = places.iter().filter(|place| place.state == NodePoolState::Unknown);
    let first = pools.next()?.pool.clone();
    Some((1 + pools.count(), first))
}
