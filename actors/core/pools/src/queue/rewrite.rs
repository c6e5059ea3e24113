//! A write of a pool that is in sync, because Azure may not have programmed it: its provisioning state stays `Failed`.

use crate::queue::changes::ChangeOwner;
use crate::queue::last_result::LastResult;
use crate::queue::{Out, Phase, PoolQueue};
use model::machine::Now;

impl PoolQueue {
    /// Requests a write, or answers that there is none: a pool that is out of sync is written by its own changes, and
    /// one that is left alone by none.
    pub(super) fn on_rewrite(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.may_rewrite(now) {
            self.waiting.add(ChangeOwner::Pool, now);
            (self.attempt_requested, self.rewrite_requested) = (true, true);
            self.status_view.dirty = true;
        } else {
            out.push(Out::RewriteSkipped(self.pool.clone()));
        }
    }

    fn may_rewrite(&self, now: Now) -> bool {
        let (Phase::Quiet, LastResult::InSync, Some(assignment)) =
            (&self.phase, &self.last_result, &self.assignment)
        else {
            return false;
        };
        let is_left =
            assignment.is_paused() || assignment.held.is_some() || now < self.contention.backoff_until();
        self.observed.as_ref().is_some_and(|observed| observed.failed) && !is_left
    }
}
