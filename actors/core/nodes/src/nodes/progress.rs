//! The progress of nodes: which are done, and which can be dropped (docs/design/nodes.md, N3, N4).

use std::collections::BTreeSet;

use super::Nodes;
use super::phase::{Done, NodeHistory, Phase};
use crate::pools::Pools;
use crate::record_store::RecordStore;
use model::arm::Backend;
use model::ids::{LbName, NodeUid, PoolId, PoolName};
use model::machine::Now;

/// The result of an evaluation of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Whether every load balancer must be read.
    pub(crate) look: bool,
    /// Nodes that were done and are not any more.
    pub(crate) lost: Vec<NodeUid>,
    /// Nodes that became done.
    pub(crate) done: Vec<NodeUid>,
}

impl Nodes {
    /// Whether work on a node is left.
    pub(crate) fn works_on(&self, uid: &NodeUid) -> bool {
        let course = self.nodes.get(uid).and_then(|node| node.phase.course());
        course.is_some_and(|course| !course.is_done())
    }

    /// Applies a read at rest of a load balancer that began at `began`. `oldest` is the oldest set whose PUTs may
    /// have been carried out since, or may still be.
    pub(crate) fn looked_at(&mut self, lb: &LbName, began: Now, oldest: Option<u64>) {
        for uid in &self.busy {
            let course = self.nodes.get_mut(uid).and_then(|node| node.phase.course_mut());
            if let Some(NodeHistory { done: Done::Looks { since, generation, left }, .. }) = course
                && *since <= began
                && oldest.is_none_or(|oldest| oldest >= *generation)
            {
                left.remove(lb);
            }
        }
    }

    /// Whether an existing node waits for a read of this load balancer.
    pub(crate) fn waits_for(&self, lb: &LbName) -> bool {
        self.looked_for().any(|left| left.contains(lb))
    }

    /// Whether an existing node waits for any read.
    pub(crate) fn waits_for_any(&self) -> bool {
        self.looked_for().any(|left| !left.is_empty())
    }

    fn looked_for(&self) -> impl Iterator<Item = &BTreeSet<LbName>> {
        let there = self.busy().filter(|(_, node)| !node.phase.is_gone());
        there.filter_map(|(_, node)| match &node.phase.course()?.done {
            Done::Looks { left, .. } => Some(left),
            Done::Waits | Done::Yes => None,
        })
    }

    /// Evaluates the progress of all nodes. `generation` is that of the newest set, and `waits` returns whether a
    /// node waits for a pool. A restored node does not need its record any more.
    pub(crate) fn judge<'a>(
        &mut self,
        (now, generation): (Now, u64),
        balancers: impl Iterator<Item = &'a LbName> + Clone,
        gives_back: bool,
        waits: impl Fn(&NodeUid) -> bool,
        records: &mut RecordStore,
    ) -> Judged {
        let mut judged = Judged::default();
        let mut restored = Vec::new();
        for uid in &self.busy {
            let Some(node) = self.nodes.get_mut(uid) else { continue };
            let (restores, gone) = (node.phase.restores(), node.phase.is_gone());
            let Some(course) = node.phase.course_mut() else { continue };
            match (&course.done, waits(uid)) {
                (Done::Waits, true) | (Done::Yes, false) => {}
                (Done::Waits, false) => {
                    let left = balancers.clone().cloned().collect();
                    course.done = Done::Looks { since: now, generation, left };
                    // A deleted node justifies no extra calls: it waits for reads that happen anyway.
                    judged.look |= !gone || gives_back;
                }
                (Done::Looks { .. }, true) => course.done = Done::Waits,
                (Done::Looks { left, .. }, false) if left.is_empty() => {
                    course.done = Done::Yes;
                    judged.done.push(uid.clone());
                    if restores {
                        restored.push(uid.clone());
                    }
                }
                (Done::Looks { .. }, false) => {}
                (Done::Yes, true) => {
                    course.done = Done::Waits;
                    judged.lost.push(uid.clone());
                }
            }
        }
        for uid in restored {
            if let Some(node) = self.nodes.get_mut(&uid) {
                node.phase = Phase::Still;
            }
            self.keep_busy(&uid);
            records.drop_of(&uid);
            self.stale = true;
        }
        judged
    }

    /// Drops deleted nodes without any Down of ours, and returns them.
    pub(crate) fn forget(
        &mut self,
        pools: &Pools,
        excluded: &BTreeSet<PoolName>,
        records: &mut RecordStore,
    ) -> Vec<NodeUid> {
        let is_over = |uid: &&NodeUid| {
            let course = self.nodes.get(*uid).filter(|node| node.phase.is_gone());
            let is_done = course.and_then(|node| node.phase.course()).is_some_and(NodeHistory::is_done);
            is_done
                && records.wanted(uid).is_none_or(|record| {
                    let backends = record.backends().collect();
                    let is_ours = |(pool, backend): (&PoolId, Backend)| {
                        let counts = !record.foreign.holds(pool) && !excluded.contains(&pool.pool);
                        counts && !pools.is_asked_for(pool, &backend)
                    };
                    !pools.downs(&backends).any(is_ours)
                })
        };
        let over: Vec<NodeUid> = self.busy.iter().filter(is_over).cloned().collect();
        for uid in &over {
            self.nodes.remove(uid);
            self.busy.remove(uid);
            records.drop_of(uid);
            self.stale = true;
        }
        over
    }
}
