//! What an assignment changes: the owners of the pool, which changes are new, and which are dropped (Q1, Q4, A3).

use std::sync::Arc;

use crate::queue::changes::{ChangeOwner, Changes};
use crate::queue::last_result::LastResult;
use crate::queue::{Out, Phase, PoolQueue, status};
use model::assignment::{Assignment, Share};
use model::ids::ServiceUid;
use model::machine::Now;

impl PoolQueue {
    /// Processes an assignment. Terms only rise: an assignment of an older term than the known one is ignored.
    pub(super) fn on_assigned(&mut self, now: Now, new: Arc<Assignment>, out: &mut Vec<Out>) {
        if self.assignment.as_ref().is_some_and(|known| new.epoch < known.epoch) {
            return;
        }
        if new.services.is_empty() {
            return self.on_released(now, new, out);
        }
        let old = self.assignment.replace(Arc::clone(&new));
        self.status_view.dirty |= status::differ(old.as_deref(), &new);
        self.drop_irrelevant();
        if old.as_ref().is_some_and(|old| old.is_paused()) && !new.is_paused() {
            self.resumed = Some(now);
            self.resume_sync(now);
            self.pause_ended(now);
        }
        self.attempt_requested &= !new.is_paused() && !self.waiting.changes.is_empty();
        let begins = old.as_ref().is_none_or(|old| old.epoch < new.epoch);
        if begins {
            self.begin_term(now, out);
        }
        if let Phase::Retiring(_) = self.phase
            && let Phase::Retiring(attempt) = std::mem::replace(&mut self.phase, Phase::Quiet)
        {
            self.phase = Phase::Attempting(attempt);
        }
        // Without an observation, the first one will show whether there is a difference at all.
        if let Some(old) = old
            && (self.observed.is_some() || self.last_result.follows_stale())
        {
            self.record_changes(now, &old, &new);
        }
        if begins {
            self.compare(now, out);
        }
    }

    /// Records what is new in an assignment as changes (A3, Q1).
    fn record_changes(&mut self, now: Now, old: &Assignment, new: &Assignment) {
        let failed = self.last_result.failed().is_some();
        let changed = |uid: &ServiceUid, share: &Share| {
            old.services.get(uid).is_none_or(|before| {
                before.required != share.required
                    || before.tolerated != share.tolerated
                    || (failed && before.revision != share.revision)
            })
        };
        // A change counts from the time at which it was read, however long its delivery takes (Q2).
        let came = |uid: &ServiceUid, share: &Share| {
            let known = old.services.get(uid).and_then(|before| before.read);
            share
                .read
                .filter(|read| known.is_none_or(|known| known < *read))
                .map_or(now, |read| read.min(now))
        };
        let mut any = false;
        for (uid, share) in new.services.iter().filter(|(uid, share)| changed(uid, share)) {
            self.waiting.add(ChangeOwner::Service(uid.clone()), came(uid, share));
            any = true;
        }
        if !any && !old.level.same_members(&new.level) {
            self.waiting.add(ChangeOwner::Pool, now);
            any = true;
        }
        self.status_view.dirty |= any;
        if any && !self.params.drift {
            // Only this change corrects what another client has changed since the last read began (C2).
            self.ended = Some(now);
            self.mark_uncertain();
        }
    }

    /// Drops the changes of Services that are gone or moved, quietly (Q4).
    fn drop_irrelevant(&mut self) {
        let Some(assignment) = &self.assignment else {
            return;
        };
        let relevant = |uid: &ServiceUid| assignment.services.contains_key(uid);
        let mut dropped = self.waiting.changes.retain(relevant);
        if let Phase::Attempting(attempt) | Phase::Retiring(attempt) = &mut self.phase {
            dropped |= attempt.changes.retain(relevant);
        }
        self.programmed.retain(|uid, _| relevant(uid));
        self.status_view.dirty |= dropped;
    }

    /// Begins a term for this pool. Silently releases what an older term has tried: its attempt will not be answered.
    /// Observations from before the term opened may be older than another client's writes, so nothing is in sync, and
    /// nothing is due, before the pool is observed again (W8, Q6 Interrupted).
    fn begin_term(&mut self, now: Now, out: &mut Vec<Out>) {
        let Some((epoch, opened)) = self.assignment.as_ref().map(|new| (new.epoch, new.opened)) else {
            return;
        };
        self.epoch = self.epoch.max(epoch);
        if let Phase::Attempting(attempt) | Phase::Retiring(attempt) = &self.phase
            && attempt.id.epoch < epoch
        {
            self.phase = Phase::Quiet;
            self.interrupted(now, out);
        }
        self.waiting.changes.drop_tried();
        (self.attempt_requested, self.rewrite_requested) = (false, false);
        self.observed = self.observed.take().filter(|observed| observed.was_read_since(opened));
        self.last_result = LastResult::Unknown;
        self.losses.last_write_lost = false;
        self.rules_in_doubt = false;
        self.reported_reasons.clear();
        self.written = None;
        self.status_view.withheld = None;
        self.status_view.dirty = true;
    }

    pub(super) fn on_released(&mut self, now: Now, new: Arc<Assignment>, out: &mut Vec<Out>) {
        self.waiting.take();
        let begins = self.assignment.as_ref().is_none_or(|old| old.epoch < new.epoch);
        self.assignment = Some(new);
        self.status_view.dirty = true;
        if begins {
            self.begin_term(now, out);
        }
        match std::mem::replace(&mut self.phase, Phase::Quiet) {
            Phase::Attempting(mut attempt) | Phase::Retiring(mut attempt) => {
                attempt.changes = Changes::default();
                self.phase = Phase::Retiring(attempt);
            }
            Phase::Due(_) => {
                out.push(Out::Withdraw(self.pool.clone()));
                self.retire(out);
            }
            Phase::Quiet | Phase::Open | Phase::Quarantined(_) => self.retire(out),
        }
    }

    /// Releases everything except the interval since the last outcome.
    pub(super) fn retire(&mut self, out: &mut Vec<Out>) {
        self.status_view.forget(out);
        self.end_all_conditions(out);
        let blank = PoolQueue::new(self.pool.clone(), self.params.clone());
        *self = PoolQueue { ended: self.ended, not_before: self.not_before, ..blank };
        out.push(Out::Gone(self.pool.clone()));
        out.push(Out::Retired(self.pool.clone()));
    }
}
