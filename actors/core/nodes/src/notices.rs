//! Eviction notices of virtual machines, and the taint that makes them last (docs/design/nodes.md, N1).
//!
//! A notice is an event or a condition. It counts at once, and a taint is added to the node, so that the notice
//! outlives this process. Before that, the node's record states that the taint is ours. Only a taint of ours is
//! removed, once the notice has passed and the node has been Ready for a while.
//!
//! - `events`: selects new events;
//! - `node`: the notice, the taint and the patch of one node.

mod events;
mod node;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Out;
use events::{NoticeEvent, NoticeEvents};
use mechanisms::backoff::Backoff;
use model::ids::{CallId, NodeName, NodeUid};
use model::machine::Now;
use model::node::NodeFact;
use model::object::TaintAnswer;
use model::sample::{Metric, TaintResult};
use model::watch::WatchUpdate;
use node::NoticedNode;

/// Age of its eviction up to which a notice counts. Also the time for which a notice about an unknown node waits.
const YOUNG: Duration = Duration::from_secs(60);
/// Time after which a notice without a date has passed.
const PASSES_AFTER: Duration = Duration::from_secs(30);
/// Time for which a node must be Ready without a break before it no longer counts as evicted.
const READY_FOR: Duration = Duration::from_secs(600);
/// Time for which a deleted node with our taint is remembered.
const GONE_FOR: Duration = READY_FOR;
/// Delays between tries of a patch.
const RETRIES: Backoff = Backoff(&[
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(15),
]);

/// Reason for which an eviction notice is ignored (N1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IgnoredNotice {
    /// The eviction was due this long ago, and the node is Ready.
    Old(Duration),
    /// The notice has neither a date nor a time of its own, and the node is Ready.
    Undated,
    /// No node with this name and the notice's UID became known within 60 s.
    UnknownNode,
}

/// The notices of all nodes, and the taints that they require.
#[derive(Debug, Default)]
pub(super) struct EvictionNotices {
    nodes: BTreeMap<NodeUid, NoticedNode>,
    names: BTreeMap<NodeName, NodeUid>,
    /// Nodes with a notice, a taint of ours, or a patch in flight.
    busy: BTreeSet<NodeUid>,
    /// Nodes that are not known yet, and whose records say that the taint is ours.
    read: BTreeSet<NodeUid>,
    /// Deleted nodes with our taint, and the time of their deletion, because a list may have omitted them.
    gone: BTreeMap<NodeUid, Now>,
    events: NoticeEvents,
    ignored: Vec<(NodeName, IgnoredNotice)>,
    changed: BTreeSet<NodeUid>,
    calls: u64,
    samples: Vec<Metric>,
}

impl EvictionNotices {
    /// Applies an observation of the watch on events.
    pub(super) fn on_seen(&mut self, now: Now, seen: &WatchUpdate) {
        let Some(notified) = self.events.on_seen(now, seen) else { return };
        if !self.notify(now, &notified) {
            self.events.keep(notified);
        }
    }

    /// Applies an event to its node. Returns whether the node is known.
    fn notify(&mut self, now: Now, notified: &NoticeEvent) -> bool {
        let event = &notified.event;
        let uid = self.names.get(&event.node).filter(|uid| event.uid.as_ref().is_none_or(|of| of == *uid));
        let Some(uid) = uid.cloned() else { return false };
        let mut ignored = None;
        self.change(&uid, |node| {
            ignored = node.on_event(notified);
            node.wake(now)
        });
        self.ignored.extend(ignored.map(|why| (event.node.clone(), why)));
        true
    }

    /// Applies a fact of an existing node.
    pub(super) fn on_fact(&mut self, now: Now, fact: &NodeFact) {
        let uid = &fact.uid;
        if !self.nodes.contains_key(uid) {
            self.names.insert(fact.name.clone(), uid.clone());
            self.nodes.insert(uid.clone(), NoticedNode::new(fact));
        }
        let mut ignored = None;
        self.change(uid, |node| {
            node.on_fact(now, fact);
            ignored = node.on_condition(now, fact.preempt.as_ref());
            false
        });
        self.ignored.extend(ignored.map(|why| (fact.name.clone(), why)));
        for notified in self.events.of(now, &fact.name) {
            if self.notify(now, &notified) {
                self.events.release(&notified);
            }
        }
        let returns = self.gone.remove(uid).is_some_and(|since| now < since.plus(GONE_FOR));
        if self.read.remove(uid) || returns {
            self.on_read(uid);
        }
        self.change(uid, |node| node.wake(now));
    }

    /// Handles the deletion of a node.
    pub(super) fn on_gone(&mut self, now: Now, uid: &NodeUid) {
        self.read.remove(uid);
        self.busy.remove(uid);
        let Some(node) = self.nodes.remove(uid) else { return };
        if self.names.get(node.name()) == Some(uid) {
            self.names.remove(node.name());
        }
        self.gone.retain(|_, since| now < since.plus(GONE_FOR));
        if node.may_be_marked_by_us() {
            self.gone.insert(uid.clone(), now);
        }
        if node.is_noticed() || node.is_ours() {
            self.changed.insert(uid.clone());
        }
    }

    /// Applies a record, read at the start of a term, which says that the node's taint is ours.
    pub(super) fn on_read(&mut self, uid: &NodeUid) {
        if self.nodes.contains_key(uid) {
            self.change(uid, |node| {
                node.on_read();
                false
            });
        } else {
            self.read.insert(uid.clone());
        }
        // The record may be wrong.
        self.changed.insert(uid.clone());
    }

    /// Applies the answer to a patch.
    pub(super) fn on_tainted(&mut self, now: Now, call: CallId, answer: &TaintAnswer) {
        let patches =
            |uid: &&NodeUid| self.nodes.get(*uid).is_some_and(|node| node.patch_in_flight() == Some(call));
        let Some(uid) = self.busy.iter().find(patches).cloned() else {
            self.samples.push(Metric::UnmatchedAnswer);
            return;
        };
        self.samples.push(Metric::TaintPatch(result(answer)));
        self.change(&uid, |node| {
            node.on_answer(now, answer);
            node.wake(now)
        });
    }

    /// Returns whether this node has an eviction notice.
    pub(super) fn is_noticed(&self, uid: &NodeUid) -> bool {
        self.nodes.get(uid).is_some_and(NoticedNode::is_noticed)
    }

    /// Returns whether the record of the node must say that the taint is ours: from before the patch until the taint
    /// is gone.
    pub(super) fn is_ours(&self, uid: &NodeUid) -> bool {
        self.nodes.get(uid).map_or_else(|| self.read.contains(uid), NoticedNode::is_ours)
    }

    /// Returns the nodes whose notice, or whose ownership of the taint, may have changed since the last call.
    pub(super) fn changed(&mut self) -> BTreeSet<NodeUid> {
        std::mem::take(&mut self.changed)
    }

    /// Returns the notices that were ignored since the last call, with the reason.
    pub(super) fn take_ignored(&mut self, now: Now) -> Vec<(NodeName, IgnoredNotice)> {
        let unknown = self.events.expire(now).into_iter();
        self.ignored.extend(unknown.map(|late| (late.event.node.clone(), IgnoredNotice::UnknownNode)));
        std::mem::take(&mut self.ignored)
    }

    /// Returns the time at which a notice that waits for its node is ignored.
    pub(super) fn waits_until(&self) -> Option<Now> {
        self.events.deadline()
    }

    /// Emits the patches that are due. `recorded` returns whether a stored record says that a node's taint is ours.
    /// Call it only while this process acts. It may change the result of [`EvictionNotices::changed`].
    pub(super) fn reconcile(&mut self, now: Now, recorded: impl Fn(&NodeUid) -> bool, out: &mut Vec<Out>) {
        let busy: Vec<NodeUid> = self.busy.iter().cloned().collect();
        for uid in &busy {
            let call = CallId(self.calls + 1);
            let mut patch = None;
            self.change(uid, |node| {
                let gave_up = node.wake(now);
                node.mark_acted_on();
                patch = node.next_patch(now, call, || recorded(uid));
                gave_up
            });
            if let Some(patch) = patch {
                self.calls += 1;
                out.push(Out::Taint(call, patch));
            }
        }
        out.extend(self.samples.drain(..).map(Out::Metric));
    }

    /// Returns the time of the next change without input.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.busy.iter().filter_map(|uid| self.nodes.get(uid)?.deadline()).min()
    }

    /// Starts a term: calls in flight will not be answered.
    pub(super) fn begin(&mut self) {
        for uid in &self.busy {
            if let Some(node) = self.nodes.get_mut(uid) {
                node.begin();
            }
        }
    }

    /// Changes a node and updates the sets. `change` returns whether a patch was abandoned.
    fn change(&mut self, uid: &NodeUid, change: impl FnOnce(&mut NoticedNode) -> bool) {
        let Some(node) = self.nodes.get_mut(uid) else { return };
        let before = (node.is_noticed(), node.is_ours());
        if change(node) {
            self.samples.push(Metric::TaintPatch(TaintResult::Failed));
        }
        if before != (node.is_noticed(), node.is_ours()) {
            self.changed.insert(uid.clone());
        }
        if node.is_noticed() || node.is_ours() || node.patch_in_flight().is_some() {
            self.busy.insert(uid.clone());
        } else {
            self.busy.remove(uid);
        }
    }
}

fn result(answer: &TaintAnswer) -> TaintResult {
    match answer {
        TaintAnswer::Done => TaintResult::Done,
        TaintAnswer::Overtaken => TaintResult::Overtaken,
        TaintAnswer::Gone => TaintResult::Gone,
        TaintAnswer::Withheld => TaintResult::Withheld,
        TaintAnswer::Failed(_) => TaintResult::Failed,
    }
}
