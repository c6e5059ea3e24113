//! What an assignment changes: whose the pool is, which changes are new, and what is dropped (Q1, Q4, A3).

use std::sync::Arc;

use crate::assignment::{Assignment, Share};
use crate::ids::ServiceUid;
use crate::machine::Now;
use crate::queue::changes::{Changes, Owner};
use crate::queue::{Out, Phase, PoolQueue, show};

impl PoolQueue {
    pub(super) fn on_assigned(&mut self, now: Now, new: Arc<Assignment>, out: &mut Vec<Out>) {
        if new.services.is_empty() {
            return self.on_released(now, new, out);
        }
        let old = self.assignment.replace(Arc::clone(&new));
        self.shown.dirty |= show::differ(old.as_deref(), &new);
        self.drop_irrelevant();
        self.let_go_of_an_older_term(now, out);
        if let Phase::Retiring(_) = self.phase
            && let Phase::Retiring(attempt) = std::mem::replace(&mut self.phase, Phase::Quiet)
        {
            self.phase = Phase::Attempting(attempt);
        }
        match old {
            None => self.compare(now, out),
            Some(old) if self.content.is_some() => self.note_changes(now, &old, &new),
            // The first observation will tell whether there is a difference at all.
            Some(_) => {}
        }
    }

    /// Notes what is new in an assignment as changes (A3, Q1).
    fn note_changes(&mut self, now: Now, old: &Assignment, new: &Assignment) {
        let failed = self.rest.failed().is_some();
        let changed = |uid: &ServiceUid, share: &Share| {
            old.services.get(uid).is_none_or(|before| {
                before.required != share.required
                    || before.tolerated != share.tolerated
                    || (failed && before.revision != share.revision)
            })
        };
        let mut any = false;
        for (uid, _) in new.services.iter().filter(|(uid, share)| changed(uid, share)) {
            self.waiting.add(Owner::Service(uid.clone()), now);
            any = true;
        }
        if !any && !old.level.same_members(&new.level) {
            self.waiting.add(Owner::Pool, now);
            any = true;
        }
        self.shown.dirty |= any;
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
        self.shown.dirty |= dropped;
    }

    /// What an older term has tried is let go of, silently: its attempt will not be answered, and whoever leads now
    /// reads first (Q6 Interrupted, W8).
    fn let_go_of_an_older_term(&mut self, now: Now, out: &mut Vec<Out>) {
        let Some(epoch) = self.assignment.as_ref().map(|assignment| assignment.epoch) else {
            return;
        };
        if let Phase::Attempting(attempt) | Phase::Retiring(attempt) = &self.phase
            && attempt.id.epoch < epoch
        {
            self.phase = Phase::Quiet;
            self.interrupted(now, out);
        }
        if self.epoch < epoch {
            self.epoch = epoch;
            if self.waiting.changes.drop_tried() {
                self.shown.dirty = true;
                self.compare(now, out);
            }
        }
    }

    pub(super) fn on_released(&mut self, now: Now, new: Arc<Assignment>, out: &mut Vec<Out>) {
        self.waiting.take();
        self.assignment = Some(new);
        self.shown.dirty = true;
        self.let_go_of_an_older_term(now, out);
        match std::mem::replace(&mut self.phase, Phase::Quiet) {
            Phase::Attempting(mut attempt) | Phase::Retiring(mut attempt) => {
                attempt.changes = Changes::default();
                self.phase = Phase::Retiring(attempt);
            }
            Phase::Due(_) => {
                out.push(Out::Withdraw(self.pool.clone()));
                self.retire(out);
            }
            Phase::Quiet | Phase::Open => self.retire(out),
        }
    }

    /// Lets go of everything but the interval since the last outcome.
    pub(super) fn retire(&mut self, out: &mut Vec<Out>) {
        self.shown.forget(out);
        let blank = PoolQueue::new(self.pool.clone(), self.params.clone());
        *self = PoolQueue { ended: self.ended, not_before: self.not_before, ..blank };
        out.push(Out::Gone(self.pool.clone()));
        out.push(Out::Retired(self.pool.clone()));
    }
}
