//! The failures of nodes, and which of them were reported (docs/design/nodes.md, N3; S1).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Seen, node};
use crate::Out;
use crate::nodes::NodeStatus;
use model::ids::{NodeUid, PoolId};
use model::machine::Now;
use model::node::NodeState;
use model::report::{Condition, Ended, EventKind, Report, Subject};

/// The last of each node's consecutive failures.
#[derive(Debug, Default)]
pub(super) struct Failures {
    failures: BTreeMap<NodeUid, Failing>,
}

#[derive(Debug)]
struct Failing {
    /// Pool of the last failure.
    pool: Option<PoolId>,
    why: Arc<str>,
    /// The work that failed. `None`: not evaluated yet.
    about: Option<About>,
    /// Time of the next try, if it waits for a time.
    next: Option<Now>,
    /// Subject of the active report.
    told: Option<Subject>,
}

/// The work on a node. A change of it ends consecutive failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    Record,
    Down,
    Restore,
    Rest,
}

impl About {
    fn of(state: NodeState) -> About {
        match state {
            NodeState::Held | NodeState::Recording => About::Record,
            NodeState::Draining | NodeState::Down => About::Down,
            NodeState::Restoring => About::Restore,
            NodeState::Gone => About::Rest,
        }
    }
}

impl Failing {
    fn new(pool: Option<&PoolId>, why: &Arc<str>) -> Failing {
        Failing { pool: pool.cloned(), why: Arc::clone(why), about: None, next: None, told: None }
    }
}

impl Failures {
    pub(super) fn clear(&mut self) {
        self.failures.clear();
    }

    pub(super) fn add(&mut self, pool: Option<&PoolId>, uid: &NodeUid, why: &Arc<str>) {
        let new = Failing::new(pool, why);
        let known = self.failures.remove(uid);
        let new = match known {
            Some(Failing { about, next, told, .. }) => Failing { about, next, told, ..new },
            None => new,
        };
        self.failures.insert(uid.clone(), new);
    }

    /// Ends failures that are over, and reports the first of consecutive failures.
    pub(super) fn tell(
        &mut self,
        now: Now,
        stands: &[NodeStatus<'_>],
        seen: &Seen<'_>,
        speaks: bool,
        out: &mut Vec<Out>,
    ) {
        self.add_refused(stands, seen);
        if self.failures.is_empty() {
            return;
        }
        let stands: BTreeMap<&NodeUid, &NodeStatus<'_>> =
            stands.iter().map(|stand| (stand.uid, stand)).collect();
        let is_over = |uid: &NodeUid, failing: &mut Failing| {
            let Some(stand) = stands.get(uid) else { return true };
            let about = About::of(stand.state);
            let lasts = failing.about.is_none_or(|before| before == about) && !stand.done;
            failing.about = Some(about);
            !lasts
        };
        let over = self.failures.extract_if(.., is_over).filter_map(|(_, failing)| failing.told);
        out.extend(
            over.map(|subject| {
                Out::Ended(Ended { condition: Condition::AdminFailed, subject: Some(subject) })
            }),
        );
        for (uid, failing) in &mut self.failures {
            failing.next = seen.queue.due(uid).max(seen.posts.again_at(uid));
            let Some(stand) = stands.get(uid).filter(|_| speaks && failing.told.is_none()) else { continue };
            let subject = node(stand.name, uid);
            failing.told = Some(subject.clone());
            let what = EventKind::AdminFailed {
                pool: failing.pool.clone(),
                why: Arc::clone(&failing.why),
                retry: seen.queue.requeues(uid).saturating_sub(1),
                next: failing.next.map(|at| at.since(now)),
            };
            out.push(Out::Report(Report { subjects: vec![subject], what, note: None }));
        }
    }

    /// Adds nodes whose records cannot be stored in our ConfigMap. They are not drained (N4).
    fn add_refused(&mut self, stands: &[NodeStatus<'_>], seen: &Seen<'_>) {
        for stand in stands.iter().filter(|stand| stand.state == NodeState::Recording) {
            let Some(why) = seen.records.refused.get(stand.uid) else { continue };
            let new = || Failing::new(None, &format!("the node cannot be recorded: {why}").into());
            self.failures.entry(stand.uid.clone()).or_insert_with(new);
        }
    }

    /// Time of the next try, if the node waits for a time.
    pub(super) fn next(&self, now: Now, uid: &NodeUid) -> Option<Now> {
        self.failures.get(uid)?.next.filter(|at| *at > now)
    }

    /// Message of the last failure.
    pub(super) fn last(&self, uid: &NodeUid) -> Option<Arc<str>> {
        self.failures.get(uid).map(|failing| Arc::clone(&failing.why))
    }
}
