//! The last failure of work on each node, and whether it was reported (docs/design/nodes.md, N3; S1).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ReportInput, node};
use crate::Out;
use crate::nodes::NodeStatus;
use model::ids::{NodeUid, PoolId};
use model::machine::Now;
use model::node::NodeState;
use model::report::{Condition, Ended, EventKind, Report, Subject};

/// The last of each node's consecutive failures.
#[derive(Debug, Default)]
pub(super) struct NodeFailures {
    failures: BTreeMap<NodeUid, NodeFailure>,
}

#[derive(Debug)]
struct NodeFailure {
    /// Pool of the last failure.
    pool: Option<PoolId>,
    why: Arc<str>,
    /// The work that failed. `None`: not known before the next report.
    work: Option<NodeWork>,
    /// Time of the next try, if it waits for a time.
    next: Option<Now>,
    /// Subject of the active report.
    reported: Option<Subject>,
}

/// The work on a node. A change of it ends consecutive failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NodeWork {
    Record,
    Down,
    Restore,
    Rest,
}

impl NodeWork {
    fn of(state: NodeState) -> NodeWork {
        match state {
            NodeState::Held | NodeState::Recording => NodeWork::Record,
            NodeState::Draining | NodeState::Down => NodeWork::Down,
            NodeState::Restoring => NodeWork::Restore,
            NodeState::Gone => NodeWork::Rest,
        }
    }
}

impl NodeFailure {
    fn new(pool: Option<&PoolId>, why: &Arc<str>) -> NodeFailure {
        NodeFailure { pool: pool.cloned(), why: Arc::clone(why), work: None, next: None, reported: None }
    }
}

impl NodeFailures {
    pub(super) fn clear(&mut self) {
        self.failures.clear();
    }

    pub(super) fn add(&mut self, pool: Option<&PoolId>, uid: &NodeUid, why: &Arc<str>) {
        let new = NodeFailure::new(pool, why);
        let known = self.failures.remove(uid);
        let new = match known {
            Some(NodeFailure { work, next, reported, .. }) => NodeFailure { work, next, reported, ..new },
            None => new,
        };
        self.failures.insert(uid.clone(), new);
    }

    /// Ends failures that are over, and reports the first of consecutive failures.
    pub(super) fn report(
        &mut self,
        now: Now,
        statuses: &[NodeStatus<'_>],
        input: &ReportInput<'_>,
        can_report: bool,
        out: &mut Vec<Out>,
    ) {
        self.add_refused(statuses, input);
        if self.failures.is_empty() {
            return;
        }
        let statuses: BTreeMap<&NodeUid, &NodeStatus<'_>> =
            statuses.iter().map(|status| (status.uid, status)).collect();
        let is_over = |uid: &NodeUid, failing: &mut NodeFailure| {
            let Some(status) = statuses.get(uid) else { return true };
            let work = NodeWork::of(status.state);
            let lasts = failing.work.is_none_or(|before| before == work) && !status.done;
            failing.work = Some(work);
            !lasts
        };
        let over = self.failures.extract_if(.., is_over).filter_map(|(_, failing)| failing.reported);
        out.extend(
            over.map(|subject| {
                Out::Ended(Ended { condition: Condition::AdminFailed, subject: Some(subject) })
            }),
        );
        for (uid, failing) in &mut self.failures {
            failing.next = input.queue.due(uid).max(input.updates.retry_at(uid));
            let Some(status) = statuses.get(uid).filter(|_| can_report && failing.reported.is_none()) else {
                continue;
            };
            let subject = node(status.name, uid);
            failing.reported = Some(subject.clone());
            let what = EventKind::AdminFailed {
                pool: failing.pool.clone(),
                why: Arc::clone(&failing.why),
                retry: input.queue.requeues(uid).saturating_sub(1),
                next: failing.next.map(|at| at.since(now)),
            };
            out.push(Out::Report(Report { subjects: vec![subject], what, note: None }));
        }
    }

    /// Adds nodes whose records cannot be stored in our ConfigMap. They are not drained (N4).
    fn add_refused(&mut self, statuses: &[NodeStatus<'_>], input: &ReportInput<'_>) {
        for status in statuses.iter().filter(|status| status.state == NodeState::Recording) {
            let Some(why) = input.records.refused.get(status.uid) else { continue };
            let new = || NodeFailure::new(None, &format!("the node cannot be recorded: {why}").into());
            self.failures.entry(status.uid.clone()).or_insert_with(new);
        }
    }

    /// Returns the time of the next try, if the node waits for a time.
    pub(super) fn next(&self, now: Now, uid: &NodeUid) -> Option<Now> {
        self.failures.get(uid)?.next.filter(|at| *at > now)
    }

    /// Returns the message of the last failure.
    pub(super) fn last(&self, uid: &NodeUid) -> Option<Arc<str>> {
        self.failures.get(uid).map(|failing| Arc::clone(&failing.why))
    }
}
