//! A write of a pool that is in sync, because Azure may not have programmed it: its provisioning state stays `Failed`.

use crate::queue::changes::ChangeOwner;
use crate::queue::last_result::LastResult;
use crate::queue::{Phase, PoolQueue};
use model::machine::Now;

impl PoolQueue {
    /// Requests a write, unless the pool is out of sync or left alone: then its own changes write it.
    pub(super) fn on_rewrite(&mut self, now: Now) {
        let (Phase::Quiet, LastResult::InSync, Some(assignment)) =
            (&self.phase, &self.last_result, &self.assignment)
        else {
            return;
        };
        let is_left =
            assignment.is_paused() || assignment.held.is_some() || now < self.contention.backoff_until();
        let is_failed = self.observed.as_ref().is_some_and(|observed| observed.failed);
        if is_failed && !is_left {
            self.waiting.add(ChangeOwner::Pool, now);
            (self.attempt_requested, self.rewrite_requested) = (true, true);
            self.status_view.dirty = true;
        }
    }
}
