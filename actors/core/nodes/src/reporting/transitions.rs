//! Nodes that leave traffic and return, and which of these events were emitted (docs/design/overview.md, S1).

use std::collections::{BTreeMap, BTreeSet};

use super::node_pools::{NodePools, is_due};
use crate::Out;
use crate::nodes::NodeStatus;
use model::ids::{NodeName, NodeUid, PoolId};
use model::machine::Now;
use model::node::NodeState;
use model::sample::Metric;

/// The direction of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// Out of traffic.
    Out,
    /// Back into traffic.
    Back,
    /// Deleted.
    Gone,
}

impl Way {
    pub(super) fn of(state: NodeState) -> Way {
        match state {
            NodeState::Held | NodeState::Recording | NodeState::Draining | NodeState::Down => Way::Out,
            NodeState::Restoring => Way::Back,
            NodeState::Gone => Way::Gone,
        }
    }
}

/// All nodes in transition.
#[derive(Debug, Default)]
pub(super) struct Transitions {
    moves: BTreeMap<NodeUid, Move>,
}

#[derive(Debug)]
struct Move {
    name: NodeName,
    way: Way,
    state: NodeState,
    since: Option<Now>,
    /// Whether the transition began while this process led, so that its duration is known here.
    fresh: bool,
    work: Work,
    /// Whether its Down was reported.
    told: bool,
    /// The pools in which it is being restored, or was.
    pools: BTreeSet<PoolId>,
}

/// The progress of the work in pools.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// No work was seen.
    Unseen,
    /// Some pool needs a write.
    UnderWay,
    /// No pool needs a write since this time.
    Ended(Now),
}

/// A node that is back in traffic.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) name: NodeName,
    pub(super) uid: NodeUid,
    /// Number of pools in which it was restored.
    pub(super) pools: usize,
}

impl Transitions {
    /// Number of nodes in transition.
    pub(super) fn len(&self) -> usize {
        self.moves.len()
    }

    pub(super) fn clear(&mut self) {
        self.moves.clear();
    }

    /// Applies the status of a node, the pools for which it waits, and those for which it has begun to wait. Returns
    /// whether something has changed. This process has led since `led`.
    pub(super) fn hear<'a, P: Iterator<Item = &'a PoolId>, O: Iterator<Item = &'a PoolId>>(
        &mut self,
        now: Now,
        led: Option<Now>,
        stand: &NodeStatus<'_>,
        (waits, owed): (impl Fn() -> P, impl Fn() -> O),
        out: &mut Vec<Out>,
    ) -> bool {
        let way = Way::of(stand.state);
        let mut news = false;
        if self.moves.get(stand.uid).is_none_or(|known| known.way != way) {
            self.moves.insert(stand.uid.clone(), Move::new(stand, led));
            news = true;
        }
        let Some(known) = self.moves.get_mut(stand.uid) else { return news };
        // The node may return to traffic between two scans of the pools.
        match known.way {
            Way::Back if news => known.pools.extend(waits().cloned()),
            Way::Back => known.pools.extend(owed().cloned()),
            Way::Out | Way::Gone => {}
        }
        match (known.work, waits().next().is_some()) {
            (Work::Unseen | Work::UnderWay | Work::Ended(_), true) => known.work = Work::UnderWay,
            (Work::UnderWay, false) => known.work = Work::Ended(now),
            (Work::Unseen | Work::Ended(_), false) => {}
        }
        if stand.state == NodeState::Down
            && known.fresh
            && let (Work::Ended(at), Some(since)) = (known.work, stand.since)
        {
            // A later repair is not part of the node's drain.
            known.fresh = false;
            out.push(Out::Metric(Metric::Drained(at.since(since))));
        }
        news |= (known.state, known.since) != (stand.state, stand.since);
        (known.state, known.since) = (stand.state, stand.since);
        news
    }

    /// Drops nodes whose transition is over. Returns those that are back in traffic, but keeps them while nothing can
    /// be reported.
    pub(super) fn end(&mut self, stands: &[NodeStatus<'_>], speaks: bool) -> Vec<Ended> {
        let standing: BTreeSet<&NodeUid> = stands.iter().map(|stand| stand.uid).collect();
        let is_over = |(uid, known): &(&NodeUid, &Move)| {
            let keeps = known.way == Way::Back && !speaks;
            !standing.contains(uid) && !keeps
        };
        let over: Vec<NodeUid> = self.moves.iter().filter(is_over).map(|(uid, _)| uid.clone()).collect();
        let ended = over.into_iter().filter_map(|uid| {
            let Move { name, way, pools, .. } = self.moves.remove(&uid)?;
            (way == Way::Back).then_some(Ended { name, uid, pools: pools.len() })
        });
        ended.collect()
    }

    /// Records the pools in which nodes must be restored.
    pub(super) fn note(&mut self, stands: &[NodeStatus<'_>], places: &NodePools) {
        for (stand, places) in stands.iter().zip(places.all()) {
            if let Some(known) = self.moves.get_mut(stand.uid).filter(|known| known.way == Way::Back) {
                let due = places.iter().filter(|place| is_due(place.state));
                known.pools.extend(due.map(|place| place.pool.clone()));
            }
        }
    }

    /// Returns whether the Down of a node must be reported now, and marks it as reported.
    pub(super) fn tell_down(&mut self, stand: &NodeStatus<'_>) -> bool {
        let known = self.moves.get_mut(stand.uid).filter(|_| stand.state == NodeState::Down);
        known.is_some_and(|known| !std::mem::replace(&mut known.told, true))
    }
}

impl Move {
    fn new(stand: &NodeStatus<'_>, led: Option<Now>) -> Move {
        let fresh = match stand.state {
            NodeState::Held | NodeState::Recording => true,
            NodeState::Draining | NodeState::Down => led.is_some() && stand.since >= led,
            NodeState::Restoring | NodeState::Gone => false,
        };
        Move {
            name: stand.name.clone(),
            way: Way::of(stand.state),
            state: stand.state,
            since: stand.since,
            fresh,
            work: Work::Unseen,
            told: false,
            pools: BTreeSet::new(),
        }
    }
}
