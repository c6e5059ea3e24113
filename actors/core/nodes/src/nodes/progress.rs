//! The progress of nodes: which are done, and which can be dropped (docs/design/nodes.md, N3, N4).

use std::collections::BTreeSet;

use super::Nodes;
use super::phase::{NodeHistory, NodePhase, NodeProgress};
use crate::pools::Pools;
use crate::record_store::RecordStore;
use model::arm::Backend;
use model::ids::{LbName, NodeUid, PoolId, PoolName};
use model::machine::Now;

/// The result of an evaluation of all nodes.
#[derive(Debug, Default)]
pub(crate) struct NodesEvaluation {
    /// Whether every load balancer must be read.
    pub(crate) read_all: bool,
    /// Nodes that were done and are not any more.
    pub(crate) not_done: Vec<NodeUid>,
    /// Nodes that became done: they are out of traffic.
    pub(crate) done: Vec<NodeUid>,
    /// Restored or deleted nodes of which nothing is Down any more.
    pub(crate) over: Vec<NodeUid>,
}

impl Nodes {
    /// Returns whether work on a node is left.
    pub(crate) fn works_on(&self, uid: &NodeUid) -> bool {
        let history = self.nodes.get(uid).and_then(|node| node.phase.history());
        history.is_some_and(|history| !history.is_done())
    }

    /// Applies a read at rest of a load balancer that began at `began`. `oldest` is the oldest set whose PUTs may
    /// have been carried out since, or may still be.
    pub(crate) fn apply_read(&mut self, lb: &LbName, began: Now, oldest: Option<u64>) {
        for uid in &self.busy {
            let history = self.nodes.get_mut(uid).and_then(|node| node.phase.history_mut());
            if let Some(NodeHistory { progress: NodeProgress::Verifying { since, generation, left }, .. }) =
                history
                && *since <= began
                && oldest.is_none_or(|oldest| oldest >= *generation)
            {
                left.remove(lb);
            }
        }
    }

    /// Returns whether an existing node waits for a read of this load balancer.
    pub(crate) fn waits_for(&self, lb: &LbName) -> bool {
        self.awaited_reads().any(|left| left.contains(lb))
    }

    /// Returns whether an existing node waits for any read.
    pub(crate) fn waits_for_any(&self) -> bool {
        self.awaited_reads().any(|left| !left.is_empty())
    }

    fn awaited_reads(&self) -> impl Iterator<Item = &BTreeSet<LbName>> {
        let there = self.busy().filter(|(_, node)| !node.phase.is_gone());
        there.filter_map(|(_, node)| match &node.phase.history()?.progress {
            NodeProgress::Verifying { left, .. } => Some(left),
            NodeProgress::Lacking | NodeProgress::Done => None,
        })
    }

    /// Evaluates the progress of all nodes. `generation` is that of the newest set, and `waits` returns whether a
    /// node waits for a pool. A restored node does not need its record any more.
    pub(crate) fn evaluate<'a>(
        &mut self,
        (now, generation): (Now, u64),
        balancers: impl Iterator<Item = &'a LbName> + Clone,
        restores_all: bool,
        waits: impl Fn(&NodeUid) -> bool,
        records: &mut RecordStore,
    ) -> NodesEvaluation {
        let mut evaluation = NodesEvaluation::default();
        let mut restored = Vec::new();
        for uid in &self.busy {
            let Some(node) = self.nodes.get_mut(uid) else { continue };
            let (restores, gone) = (node.phase.restores(), node.phase.is_gone());
            let Some(history) = node.phase.history_mut() else { continue };
            match (&history.progress, waits(uid)) {
                (NodeProgress::Lacking, true) | (NodeProgress::Done, false) => {}
                (NodeProgress::Lacking, false) => {
                    let left = balancers.clone().cloned().collect();
                    history.progress = NodeProgress::Verifying { since: now, generation, left };
                    // A deleted node justifies no extra calls: it waits for reads that happen anyway.
                    evaluation.read_all |= !gone || restores_all;
                }
                (NodeProgress::Verifying { .. }, true) => history.progress = NodeProgress::Lacking,
                (NodeProgress::Verifying { left, .. }, false) if left.is_empty() => {
                    history.progress = NodeProgress::Done;
                    let ended = if restores || gone { &mut evaluation.over } else { &mut evaluation.done };
                    ended.push(uid.clone());
                    if restores {
                        restored.push(uid.clone());
                    }
                }
                (NodeProgress::Verifying { .. }, false) => {}
                (NodeProgress::Done, true) => {
                    history.progress = NodeProgress::Lacking;
                    evaluation.not_done.push(uid.clone());
                }
            }
        }
        for uid in restored {
            if let Some(node) = self.nodes.get_mut(&uid) {
                node.phase = NodePhase::Still;
            }
            self.keep_busy(&uid);
            records.remove(&uid);
            self.stale = true;
        }
        evaluation
    }

    /// Drops deleted nodes without any Down of ours, and returns them.
    pub(crate) fn drop_finished(
        &mut self,
        pools: &Pools,
        excluded: &BTreeSet<PoolName>,
        records: &mut RecordStore,
    ) -> Vec<NodeUid> {
        let is_over = |uid: &&NodeUid| {
            let history = self.nodes.get(*uid).filter(|node| node.phase.is_gone());
            let is_done = history.and_then(|node| node.phase.history()).is_some_and(NodeHistory::is_done);
            is_done
                && records.desired(uid).is_none_or(|record| {
                    let backends = record.backends().collect();
                    let is_ours = |(pool, backend): (&PoolId, Backend)| {
                        let counts = !record.foreign.holds(pool) && !excluded.contains(&pool.pool);
                        counts && !pools.requires_down(pool, &backend)
                    };
                    !pools.downs(&backends).any(is_ours)
                })
        };
        let over: Vec<NodeUid> = self.busy.iter().filter(is_over).cloned().collect();
        for uid in &over {
            self.nodes.remove(uid);
            self.busy.remove(uid);
            records.remove(uid);
            self.stale = true;
        }
        over
    }
}
