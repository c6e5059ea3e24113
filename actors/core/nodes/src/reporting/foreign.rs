//! Admin states that another client has set. They are shown and left unchanged (docs/design/nodes.md, N4).

use std::collections::{BTreeMap, BTreeSet};

use super::ReportInput;
use super::direction::Direction;
use crate::nodes::NodeStatus;
use crate::records::Record;
use model::arm::{AdminState, Backend};
use model::ids::{NodeName, NodeUid, PoolId};
use model::node::NodeFact;
use model::node::NodeState;
use model::view::{AdminView, ForeignState};

/// The admin states of known nodes that another client has set, and the number of Down entries.
#[derive(Debug, Default)]
pub(super) struct ForeignStates {
    /// The first ones, in order.
    pub(super) shown: Vec<ForeignState>,
    /// Nodes that do not drain.
    pub(super) nodes: BTreeMap<NodeUid, ForeignOfNode>,
    pub(super) downs: u64,
    /// Number of Downs that are ours.
    pub(super) ours: u64,
}

/// The admin states of one node that another client has set.
#[derive(Debug)]
pub(super) struct ForeignOfNode {
    pub(super) name: NodeName,
    pub(super) pools: BTreeSet<PoolId>,
    pub(super) example: PoolId,
    pub(super) state: AdminState,
}

impl ForeignStates {
    pub(super) fn find(
        statuses: &[NodeStatus<'_>],
        facts: &[&NodeFact],
        input: &ReportInput<'_>,
    ) -> ForeignStates {
        let mut found = ForeignStates::default();
        // In a pool of an xDS source, the source may require the Down. Nothing is reported before that is known (X2).
        let is_known = |pool: &PoolId| !input.params.listed.contains(pool) || input.pools.knows_source(pool);
        let counts = |pool: &PoolId| !input.set.excluded.contains(&pool.pool) && is_known(pool);
        let states = input.pools.set_states().filter(|(pool, _, _)| counts(pool));
        let states: Vec<(&PoolId, Backend, AdminState)> = states.collect();
        if states.is_empty() || !input.leads {
            return found;
        }
        let records = records(statuses);
        let leaving = statuses.iter().filter(|status| Direction::of(status.state) == Direction::Out);
        let leaving: BTreeSet<&NodeUid> = leaving.map(|status| status.uid).collect();
        let owned = facts.iter().flat_map(|fact| fact.backends().map(move |backend| (backend, *fact)));
        let owners: BTreeMap<Backend, &NodeFact> = owned.collect();
        let mut theirs: Vec<(&PoolId, Backend, AdminState, &NodeFact)> = Vec::new();
        for (pool, backend, state) in states {
            let is_down = state == AdminState::Down;
            let is_ours = |record: &&Record| !record.foreign.holds(pool);
            let is_recorded = || records.get(&backend).is_some_and(|records| records.iter().any(is_ours));
            if is_down && (is_recorded() || input.pools.is_claimed(pool, &backend)) {
                found.ours += 1;
                continue;
            }
            let Some(&owner) = owners.get(&backend) else {
                // Addresses that a source assigns need not belong to nodes.
                found.downs += u64::from(is_down && input.params.listed.contains(pool));
                continue;
            };
            found.downs += u64::from(is_down);
            if !leaving.contains(&owner.uid) {
                found.add(owner, pool, state);
            } else if !is_down {
                // Draining overrides this admin state.
                continue;
            }
            theirs.push((pool, backend, state, owner));
        }
        theirs.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        let shown = theirs.into_iter().take(AdminView::MAX_FOREIGN);
        let shown = shown.map(|(pool, backend, state, owner)| ForeignState {
            pool: pool.clone(),
            backend,
            state,
            node: owner.name.clone(),
        });
        found.shown = shown.collect();
        found
    }

    fn add(&mut self, owner: &NodeFact, pool: &PoolId, state: AdminState) {
        let of = self.nodes.entry(owner.uid.clone()).or_insert_with(|| ForeignOfNode {
            name: owner.name.clone(),
            pools: BTreeSet::new(),
            example: pool.clone(),
            state,
        });
        of.pools.insert(pool.clone());
    }
}

/// Returns the records by which a Down of a backend is ours.
fn records<'a>(statuses: &[NodeStatus<'a>]) -> BTreeMap<Backend, Vec<&'a Record>> {
    let counts = |status: &&NodeStatus<'_>| match status.state {
        NodeState::Draining | NodeState::Down | NodeState::Restoring | NodeState::Gone => true,
        NodeState::Held | NodeState::Recording => false,
    };
    let mut records: BTreeMap<Backend, Vec<&'a Record>> = BTreeMap::new();
    for record in statuses.iter().filter(counts).filter_map(|status| status.record) {
        for backend in record.backends() {
            records.entry(backend).or_default().push(record);
        }
    }
    records
}
