//! One node: its notice, the ownership of its taint, and the resulting patch (docs/design/nodes.md, N1).

use std::time::Duration;

use super::IgnoredNotice;
use super::events::NoticeEvent;
use super::{PASSES_AFTER, READY_FOR, RETRIES, YOUNG};
use model::ids::{CallId, NodeName, NodeUid};
use model::machine::{Now, Wall, earliest};
use model::node::NodeFact;
use model::object::{
    GIVE_UP_AFTER, NotBefore, Preempt, RequestFailure, ResourceVersion, Taint, TaintAnswer, TaintEdit,
    TaintPatch,
};
use model::signals::{EFFECT, says_evicted, says_preempt};

/// An existing node.
#[derive(Debug)]
pub(super) struct NoticedNode {
    name: NodeName,
    uid: NodeUid,
    created: Option<Wall>,
    /// Version of its newest state.
    version: ResourceVersion,
    taints: NodeTaints,
    /// Time since which it is Ready without a break.
    ready_since: Option<Now>,
    /// The last eviction condition that was not ignored.
    last_condition: Option<Preempt>,
    /// The last condition that was ignored.
    ignored: Option<Preempt>,
    notice: Option<Notice>,
    /// Time at which the last notice ended. Older notices do not count any more.
    ended_at: Option<Now>,
    ours: TaintOwnership,
    /// Time from which being Ready counts, if the taint is ours and there is no notice.
    ready_counts_from: Option<Now>,
    patch: PatchState,
    /// Consecutive failed patches.
    failures: u32,
    /// Whether an unconfirmed patch may have added the taint.
    unconfirmed: bool,
    /// Version from which our taint was removed. Any other version is newer.
    removed: Option<ResourceVersion>,
}

/// The three states of a node's taints that a patch depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NodeTaints {
    /// No taints.
    Bare,
    /// Only other taints.
    Others,
    /// Marked as evicted. `place`: the position of the taint that equals ours.
    Marked { place: Option<usize> },
}

/// An eviction notice.
#[derive(Debug)]
struct Notice {
    /// Time of the eviction. Without a date, the time of the notice.
    due: Now,
    /// Time at which the notice has passed.
    passes: Now,
    /// Whether this process acts on it. A notice that became too old before that has no effect.
    acted_on: bool,
    /// Whether the node was seen with the taint since.
    marked: bool,
    /// Whether a patch was sent for it that met no conflict.
    tried: bool,
}

/// Ownership of the taint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TaintOwnership {
    /// Not ours, if there is one.
    No,
    /// Must become ours. No patch was sent, or none was carried out.
    Wanted,
    /// A patch was sent that may have been carried out. A taint that appears is ours.
    Sent,
    /// Our taint is on the node.
    There,
}

#[derive(Debug)]
enum PatchState {
    Idle,
    /// A patch is in flight.
    Sent {
        call: CallId,
        give_up: Now,
        version: ResourceVersion,
        edit: TaintEdit,
    },
    /// Waits for the next try. After a conflict, with the version that caused it: another version allows a try at
    /// once.
    Waits {
        until: Now,
        overtaken: Option<ResourceVersion>,
    },
    /// No more patches for this notice, or for this removal.
    Stopped,
}

impl NodeTaints {
    fn of(taints: &[Taint]) -> NodeTaints {
        let is_as_ours = |taint: &Taint| says_evicted(taint) && &*taint.effect == EFFECT;
        if taints.is_empty() {
            NodeTaints::Bare
        } else if taints.iter().any(says_evicted) {
            NodeTaints::Marked { place: taints.iter().position(is_as_ours) }
        } else {
            NodeTaints::Others
        }
    }

    fn are_marked(self) -> bool {
        match self {
            NodeTaints::Marked { .. } => true,
            NodeTaints::Bare | NodeTaints::Others => false,
        }
    }

    /// Returns the position of the taint that equals ours.
    fn place(self) -> Option<usize> {
        match self {
            NodeTaints::Marked { place } => place,
            NodeTaints::Bare | NodeTaints::Others => None,
        }
    }
}

fn adds(edit: TaintEdit) -> bool {
    match edit {
        TaintEdit::AddTo | TaintEdit::AddFirst => true,
        TaintEdit::Remove { .. } => false,
    }
}

/// Returns the earliest time of the eviction, and the time at which its notice has passed.
fn times(arrived: Now, age: Option<Duration>, not_before: Option<NotBefore>) -> (Now, Now) {
    match not_before {
        Some(NotBefore::In(ahead)) => (arrived.plus(ahead), arrived.plus(ahead)),
        Some(NotBefore::Ago(ago)) => (arrived.minus(ago), arrived.minus(ago)),
        None => {
            let at = arrived.minus(age.unwrap_or_default());
            (at, at.plus(PASSES_AFTER))
        }
    }
}

impl NoticedNode {
    pub(super) fn new(fact: &NodeFact) -> NoticedNode {
        NoticedNode {
            name: fact.name.clone(),
            uid: fact.uid.clone(),
            created: fact.created,
            version: fact.version.clone(),
            taints: NodeTaints::of(&fact.taints),
            ready_since: None,
            last_condition: None,
            ignored: None,
            notice: None,
            ended_at: None,
            ours: TaintOwnership::No,
            ready_counts_from: None,
            patch: PatchState::Idle,
            failures: 0,
            unconfirmed: false,
            removed: None,
        }
    }

    pub(super) fn name(&self) -> &NodeName {
        &self.name
    }

    pub(super) fn is_noticed(&self) -> bool {
        self.notice.is_some()
    }

    pub(super) fn is_ours(&self) -> bool {
        self.ours != TaintOwnership::No
    }

    /// Returns whether the node's taint, or a taint that a request in flight may add, is ours.
    pub(super) fn may_be_marked_by_us(&self) -> bool {
        match self.ours {
            TaintOwnership::Sent | TaintOwnership::There => true,
            TaintOwnership::No | TaintOwnership::Wanted => false,
        }
    }

    /// Returns the patch in flight.
    pub(super) fn patch_in_flight(&self) -> Option<CallId> {
        match &self.patch {
            PatchState::Sent { call, .. } => Some(*call),
            PatchState::Idle | PatchState::Waits { .. } | PatchState::Stopped => None,
        }
    }

    fn removes(&self) -> bool {
        match &self.patch {
            PatchState::Sent { edit, .. } => !adds(*edit),
            PatchState::Idle | PatchState::Waits { .. } | PatchState::Stopped => false,
        }
    }

    /// Stops planned patches. A patch in flight continues.
    fn stop_patches(&mut self) {
        self.failures = 0;
        match self.patch {
            PatchState::Sent { .. } => {}
            PatchState::Idle | PatchState::Waits { .. } | PatchState::Stopped => {
                self.patch = PatchState::Idle
            }
        }
    }

    /// Applies the newest state, without the condition.
    pub(super) fn on_fact(&mut self, now: Now, fact: &NodeFact) {
        self.created = fact.created;
        self.version = fact.version.clone();
        self.taints = NodeTaints::of(&fact.taints);
        self.ready_since = fact.ready.then(|| self.ready_since.unwrap_or(now));
        let again = match &self.patch {
            PatchState::Waits { overtaken: Some(version), .. } => *version != self.version,
            PatchState::Waits { overtaken: None, .. }
            | PatchState::Idle
            | PatchState::Sent { .. }
            | PatchState::Stopped => false,
        };
        if again {
            self.patch = PatchState::Idle;
        }
        self.on_taints(now);
    }

    fn on_taints(&mut self, now: Now) {
        let gone_by_us = self.removed.take_if(|version| *version != self.version).is_some();
        let there = self.taints.place().is_some();
        self.ours = match self.ours {
            TaintOwnership::There if gone_by_us || !there => TaintOwnership::No,
            TaintOwnership::Sent if there => TaintOwnership::There,
            // Another client was faster.
            TaintOwnership::Wanted if self.taints.are_marked() => TaintOwnership::No,
            TaintOwnership::No | TaintOwnership::Wanted | TaintOwnership::Sent | TaintOwnership::There => {
                self.ours
            }
        };
        let by_us = gone_by_us || self.removes();
        match &mut self.notice {
            Some(notice) if self.taints.are_marked() => notice.marked = true,
            Some(notice) if notice.marked && by_us => {
                // The notice came while the taint of an older one was being removed. It needs a taint of its own.
                notice.marked = false;
                self.require_taint();
                self.stop_patches();
            }
            Some(notice) if notice.marked => self.end_notice(now),
            Some(_) | None => {}
        }
    }

    /// Applies the condition of the newest state. Returns why it is ignored, the first time that it is.
    pub(super) fn on_condition(&mut self, now: Now, condition: Option<&Preempt>) -> Option<IgnoredNotice> {
        let condition = condition.filter(|condition| says_preempt(&condition.message))?;
        let at = now.minus(condition.age.unwrap_or_default());
        let is_new = match &self.last_condition {
            Some(before) if before.is_same_as(condition) => false,
            // A condition may change without a change of its time.
            Some(before) if before.at.is_some() && before.at == condition.at => true,
            Some(_) | None => !self.is_outdated(at),
        };
        if is_new && self.outlived(condition.at) {
            if let Some(why) = self.too_old(condition.age, condition.not_before) {
                let before = self.ignored.replace(condition.clone());
                return before.is_none_or(|before| !before.is_same_as(condition)).then_some(why);
            }
            let (due, passes) = times(now, condition.age, condition.not_before);
            self.apply_notice(due, passes);
        }
        self.last_condition = Some(condition.clone());
        None
    }

    /// Applies a new event. Returns why it is ignored.
    pub(super) fn on_event(&mut self, notified: &NoticeEvent) -> Option<IgnoredNotice> {
        let event = &notified.event;
        if !self.outlived(event.at) || self.is_outdated(notified.at()) {
            return None;
        }
        let why = self.too_old(event.age, event.not_before);
        if why.is_none() {
            let (due, passes) = times(notified.arrived, event.age, event.not_before);
            self.apply_notice(due, passes);
        }
        why
    }

    /// Returns why a notice of this age, with this date, is ignored. While the node is not Ready, no notice is.
    fn too_old(&self, age: Option<Duration>, not_before: Option<NotBefore>) -> Option<IgnoredNotice> {
        let ago = match not_before {
            Some(NotBefore::In(_)) => Some(Duration::ZERO),
            Some(NotBefore::Ago(ago)) => Some(ago),
            None => age,
        };
        let counts = self.ready_since.is_none() || ago.is_some_and(|ago| ago < YOUNG);
        (!counts).then(|| ago.map_or(IgnoredNotice::Undated, IgnoredNotice::Old))
    }

    /// Returns whether a notice with this time can be about this node, and not about an earlier node of the same
    /// name.
    fn outlived(&self, at: Option<Wall>) -> bool {
        match (self.created, at) {
            (Some(created), Some(at)) => created <= at,
            (None, _) | (_, None) => true,
        }
    }

    fn is_outdated(&self, at: Now) -> bool {
        self.ended_at.is_some_and(|ended_at| at <= ended_at)
    }

    /// Applies a notice. Only the first has an effect; later ones extend it (S1).
    fn apply_notice(&mut self, due: Now, passes: Now) {
        if let Some(notice) = &mut self.notice {
            notice.due = notice.due.max(due);
            notice.passes = notice.passes.max(passes);
            return;
        }
        let marked = self.taints.are_marked();
        self.notice = Some(Notice { due, passes, acted_on: false, marked, tried: false });
        self.ready_counts_from = None;
        self.stop_patches();
        if !marked && self.ours == TaintOwnership::No {
            self.require_taint();
        }
    }

    fn require_taint(&mut self) {
        self.ours = TaintOwnership::Wanted;
        self.unconfirmed = false;
    }

    fn end_notice(&mut self, now: Now) {
        self.notice = None;
        self.ended_at = Some(now);
        self.stop_patches();
        if self.ours == TaintOwnership::Wanted {
            self.ours = TaintOwnership::No;
        }
    }

    /// Applies a record which says that the taint is ours.
    pub(super) fn on_read(&mut self) {
        self.ours = match (self.taints.place(), &self.notice) {
            (Some(_), _) => TaintOwnership::There,
            (None, Some(_)) => {
                self.unconfirmed = true;
                TaintOwnership::Sent
            }
            (None, None) => TaintOwnership::No,
        };
    }

    /// Starts a term: the patch in flight will not be answered, and a notice counts only while it is young.
    pub(super) fn begin(&mut self) {
        if let PatchState::Sent { edit, .. } = &self.patch {
            self.unconfirmed |= adds(*edit);
            self.patch = PatchState::Idle;
        }
        if let Some(notice) = &mut self.notice {
            notice.acted_on = false;
        }
    }

    /// Applies the time. Returns whether the patch in flight was abandoned.
    pub(super) fn wake(&mut self, now: Now) -> bool {
        let gives_up = match &self.patch {
            PatchState::Sent { give_up, .. } => *give_up <= now,
            PatchState::Idle | PatchState::Waits { .. } | PatchState::Stopped => false,
        };
        if gives_up {
            self.on_answer(now, &TaintAnswer::Failed(RequestFailure::Other("no answer".into())));
        }
        let waited = match &self.patch {
            PatchState::Waits { until, .. } => *until <= now,
            PatchState::Sent { .. } | PatchState::Idle | PatchState::Stopped => false,
        };
        if waited {
            self.patch = PatchState::Idle;
        }
        let is_ready = self.ready_since.is_some();
        let is_old = |notice: &Notice| !notice.acted_on && is_ready && now.since(notice.due) >= YOUNG;
        if self.notice.as_ref().is_some_and(is_old) && !self.taints.are_marked() {
            self.end_notice(now);
        }
        if self.ends_at().is_some_and(|at| at <= now) {
            if let Some(passed) = self.notice.as_ref().map(|notice| notice.passes) {
                self.end_notice(now);
                self.ready_counts_from = Some(passed);
            }
            // A taint that has not appeared by now will not appear.
            if self.ours == TaintOwnership::Sent && self.patch_in_flight().is_none() {
                self.ours = TaintOwnership::No;
            }
        }
        if self.is_ours() && self.notice.is_none() {
            // The notice belonged to another process, so its end is not known here.
            self.ready_counts_from.get_or_insert(now.plus(PASSES_AFTER));
        } else {
            self.ready_counts_from = None;
        }
        gives_up
    }

    /// Marks the notice as acted on by this process.
    pub(super) fn mark_acted_on(&mut self) {
        if let Some(notice) = &mut self.notice {
            notice.acted_on = true;
        }
    }

    /// Returns the time at which the notice has passed and the node was Ready for long enough, without further
    /// changes.
    fn ends_at(&self) -> Option<Now> {
        let from = self.notice.as_ref().map(|notice| notice.passes).or(self.ready_counts_from)?;
        Some(self.ready_since?.max(from).plus(READY_FOR))
    }

    /// Returns the patch that is needed. `None`: none, or one is in flight.
    fn needed_patch(&self, now: Now) -> Option<TaintEdit> {
        match &self.notice {
            Some(notice) => {
                let goes_on = self.is_ours() && (!notice.tried || now < notice.passes);
                match self.taints {
                    NodeTaints::Bare if goes_on => Some(TaintEdit::AddFirst),
                    NodeTaints::Others if goes_on => Some(TaintEdit::AddTo),
                    NodeTaints::Bare | NodeTaints::Others | NodeTaints::Marked { .. } => None,
                }
            }
            None if self.ours == TaintOwnership::There && self.removed.is_none() => {
                let at = self.taints.place().filter(|_| self.ends_at().is_some_and(|at| at <= now))?;
                Some(TaintEdit::Remove { at })
            }
            None => None,
        }
    }

    /// Returns the patch that is due now, with this id. The taint is added only after the record says so.
    pub(super) fn next_patch(
        &mut self,
        now: Now,
        call: CallId,
        recorded: impl FnOnce() -> bool,
    ) -> Option<TaintPatch> {
        let is_free = match &self.patch {
            PatchState::Idle => true,
            PatchState::Waits { .. } | PatchState::Sent { .. } | PatchState::Stopped => false,
        };
        let edit = self.needed_patch(now).filter(|edit| is_free && (!adds(*edit) || recorded()))?;
        if let Some(notice) = self.notice.as_mut().filter(|_| adds(edit)) {
            notice.tried = true;
            self.ours = TaintOwnership::Sent;
        }
        let give_up = now.plus(GIVE_UP_AFTER);
        self.patch = PatchState::Sent { call, give_up, version: self.version.clone(), edit };
        Some(TaintPatch { node: self.name.clone(), uid: self.uid.clone(), edit })
    }

    /// Applies the answer to the patch in flight.
    pub(super) fn on_answer(&mut self, now: Now, answer: &TaintAnswer) {
        let PatchState::Sent { version, edit, .. } = std::mem::replace(&mut self.patch, PatchState::Idle)
        else {
            return;
        };
        if adds(edit) {
            self.on_added(answer);
        } else if *answer == TaintAnswer::Done && self.ours == TaintOwnership::There {
            if self.version == version {
                self.removed = Some(version.clone());
            } else {
                self.ours = TaintOwnership::No;
            }
        }
        let overtaken = match answer {
            TaintAnswer::Done => {
                self.failures = 0;
                self.patch =
                    if self.notice.is_some() && adds(edit) { PatchState::Stopped } else { PatchState::Idle };
                return;
            }
            TaintAnswer::Gone | TaintAnswer::Withheld => {
                self.patch = PatchState::Stopped;
                return;
            }
            TaintAnswer::Overtaken if version != self.version => return,
            TaintAnswer::Overtaken => Some(version),
            TaintAnswer::Failed(_) => None,
        };
        let until = now.plus(RETRIES.delay(self.failures));
        self.failures = self.failures.saturating_add(1);
        self.patch = PatchState::Waits { until, overtaken };
    }

    /// Updates the ownership of the taint after an answer to its addition.
    fn on_added(&mut self, answer: &TaintAnswer) {
        match answer {
            TaintAnswer::Done | TaintAnswer::Failed(RequestFailure::Other(_)) => self.unconfirmed = true,
            TaintAnswer::Overtaken => {
                if let Some(notice) = &mut self.notice {
                    notice.tried = false;
                }
            }
            TaintAnswer::Gone | TaintAnswer::Withheld | TaintAnswer::Failed(RequestFailure::Denied(_)) => {}
        }
        if !self.is_ours() || self.unconfirmed {
            return;
        }
        let goes_on = match answer {
            TaintAnswer::Overtaken | TaintAnswer::Failed(_) => self.notice.is_some(),
            TaintAnswer::Done | TaintAnswer::Gone | TaintAnswer::Withheld => false,
        };
        self.ours =
            if goes_on && !self.taints.are_marked() { TaintOwnership::Wanted } else { TaintOwnership::No };
    }

    /// Returns the time of the next change without input.
    pub(super) fn deadline(&self) -> Option<Now> {
        let tries = match &self.patch {
            PatchState::Sent { give_up, .. } => return Some(*give_up),
            PatchState::Waits { until, .. } => {
                Some(*until).filter(|until| self.needed_patch(*until).is_some())
            }
            PatchState::Idle | PatchState::Stopped => None,
        };
        let rests = match (&self.notice, self.ours, &self.patch) {
            (Some(_), _, _) | (None, TaintOwnership::Sent, _) => self.ends_at(),
            (None, TaintOwnership::There, PatchState::Idle) if self.removed.is_none() => self.ends_at(),
            (None, TaintOwnership::There | TaintOwnership::No | TaintOwnership::Wanted, _) => None,
        };
        earliest(tries, rests)
    }
}
