//! A write of a pool that is in sync, because Azure may not have programmed it: its provisioning state stays `Failed`.

use crate::queue::changes::Owner;
use crate::queue::last_result::LastResult;
use crate::queue::{Phase, PoolQueue};
use model::machine::Now;

impl PoolQueue {
    /// Requests a write, unless the pool is out of sync or left alone: then its own changes write it.
    pub(super) fn on_rewrite(&mut self, now: Now) {
        let (Phase::Quiet, LastResult::Right, Some(assignment)) = (&self.phase, &self.rest, &self.assignment)
        else {
            return;
        };
        let is_left = assignment.is_paused() || assignment.held.is_some() || now < self.fights.left_until();
        let is_failed = self.content.as_ref().is_some_and(|content| content.failed);
        if is_failed && !is_left {
            self.waiting.add(Owner::Pool, now);
            (self.asked, self.rewrites) = (true, true);
            self.shown.dirty = true;
        }
    }
}
