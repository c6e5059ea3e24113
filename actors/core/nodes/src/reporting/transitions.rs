//! Nodes that leave traffic and return, and which of these events were emitted (docs/design/overview.md, S1).

use std::collections::{BTreeMap, BTreeSet};

use super::direction::Direction;
use super::node_pools::{NodePools, is_due};
use crate::Out;
use crate::nodes::NodeStatus;
use model::ids::{NodeName, NodeUid, PoolId};
use model::machine::Now;
use model::node::NodeState;
use model::sample::Metric;

/// All nodes in transition.
#[derive(Debug, Default)]
pub(super) struct Transitions {
    transitions: BTreeMap<NodeUid, Transition>,
}

#[derive(Debug)]
struct Transition {
    name: NodeName,
    way: Direction,
    state: NodeState,
    since: Option<Now>,
    /// Whether the transition began while this process led, so that its duration is known here.
    fresh: bool,
    work: PoolWork,
    /// Whether its Down was reported.
    reported: bool,
    /// The pools in which it is being restored, or was.
    pools: BTreeSet<PoolId>,
}

/// The progress of the work in pools.
#[derive(Clone, Copy, Debug)]
enum PoolWork {
    /// No work was observed.
    Unseen,
    /// Some pool needs a write.
    UnderWay,
    /// No pool needs a write since this time.
    Ended(Now),
}

/// A node that is back in traffic.
#[derive(Debug)]
pub(super) struct ReturnedNode {
    pub(super) name: NodeName,
    pub(super) uid: NodeUid,
    /// Number of pools in which it was restored.
    pub(super) pools: usize,
}

impl Transitions {
    /// Returns the number of nodes in transition.
    pub(super) fn len(&self) -> usize {
        self.transitions.len()
    }

    pub(super) fn clear(&mut self) {
        self.transitions.clear();
    }

    /// Applies the status of a node, the pools for which it waits, and those for which it has begun to wait. Returns
    /// whether something has changed. This process has led since `led`.
    pub(super) fn apply_status<'a, P: Iterator<Item = &'a PoolId>, O: Iterator<Item = &'a PoolId>>(
        &mut self,
        now: Now,
        led: Option<Now>,
        status: &NodeStatus<'_>,
        (waits, added): (impl Fn() -> P, impl Fn() -> O),
        out: &mut Vec<Out>,
    ) -> bool {
        let way = Direction::of(status.state);
        let mut changed = false;
        if self.transitions.get(status.uid).is_none_or(|transition| transition.way != way) {
            self.transitions.insert(status.uid.clone(), Transition::new(status, led));
            changed = true;
        }
        let Some(transition) = self.transitions.get_mut(status.uid) else { return changed };
        // The node may return to traffic between two scans of the pools.
        match transition.way {
            Direction::Back if changed => transition.pools.extend(waits().cloned()),
            Direction::Back => transition.pools.extend(added().cloned()),
            Direction::Out | Direction::Gone => {}
        }
        match (transition.work, waits().next().is_some()) {
            (PoolWork::Unseen | PoolWork::UnderWay | PoolWork::Ended(_), true) => {
                transition.work = PoolWork::UnderWay
            }
            (PoolWork::UnderWay, false) => transition.work = PoolWork::Ended(now),
            (PoolWork::Unseen | PoolWork::Ended(_), false) => {}
        }
        if status.state == NodeState::Down
            && transition.fresh
            && let (PoolWork::Ended(at), Some(since)) = (transition.work, status.since)
        {
            // A later repair is not part of the node's drain.
            transition.fresh = false;
            out.push(Out::Metric(Metric::Drained(at.since(since))));
        }
        changed |= (transition.state, transition.since) != (status.state, status.since);
        (transition.state, transition.since) = (status.state, status.since);
        changed
    }

    /// Drops nodes whose transition is over. Returns those that are back in traffic, but keeps them while nothing can
    /// be reported.
    pub(super) fn end(&mut self, statuses: &[NodeStatus<'_>], can_report: bool) -> Vec<ReturnedNode> {
        let current: BTreeSet<&NodeUid> = statuses.iter().map(|status| status.uid).collect();
        let is_over = |(uid, transition): &(&NodeUid, &Transition)| {
            let keeps = transition.way == Direction::Back && !can_report;
            !current.contains(uid) && !keeps
        };
        let over: Vec<NodeUid> =
            self.transitions.iter().filter(is_over).map(|(uid, _)| uid.clone()).collect();
        let ended = over.into_iter().filter_map(|uid| {
            let Transition { name, way, pools, .. } = self.transitions.remove(&uid)?;
            (way == Direction::Back).then_some(ReturnedNode { name, uid, pools: pools.len() })
        });
        ended.collect()
    }

    /// Records the pools in which nodes must be restored.
    pub(super) fn record_pools(&mut self, statuses: &[NodeStatus<'_>], node_pools: &NodePools) {
        for (status, node_pools) in statuses.iter().zip(node_pools.all()) {
            if let Some(transition) =
                self.transitions.get_mut(status.uid).filter(|transition| transition.way == Direction::Back)
            {
                let due = node_pools.iter().filter(|place| is_due(place.state));
                transition.pools.extend(due.map(|place| place.pool.clone()));
            }
        }
    }

    /// Returns whether the Down of a node must be reported now, and marks it as reported.
    pub(super) fn report_down(&mut self, status: &NodeStatus<'_>) -> bool {
        let transition = self.transitions.get_mut(status.uid).filter(|_| status.state == NodeState::Down);
        transition.is_some_and(|transition| !std::mem::replace(&mut transition.reported, true))
    }
}

impl Transition {
    fn new(status: &NodeStatus<'_>, led: Option<Now>) -> Transition {
        let fresh = match status.state {
            NodeState::Held | NodeState::Recording => true,
            NodeState::Draining | NodeState::Down => led.is_some() && status.since >= led,
            NodeState::Restoring | NodeState::Gone => false,
        };
        Transition {
            name: status.name.clone(),
            way: Direction::of(status.state),
            state: status.state,
            since: status.since,
            fresh,
            work: PoolWork::Unseen,
            reported: false,
            pools: BTreeSet::new(),
        }
    }
}
