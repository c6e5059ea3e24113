//! Since when a pool has been out of sync (Q8, E2). Attempts, retries and new terms do not end that; only an
//! observation that the pool is in sync does.

use crate::queue::PoolQueue;
use model::assignment::HeldReason;
use model::machine::Now;
use model::view::OutOfSync;

impl PoolQueue {
    /// Records whether the pool is in sync. A difference made by a new level begins now; any other may have begun
    /// before it was observed.
    pub(super) fn record_sync(&mut self, now: Now, by_level: bool) {
        let before = self.out_of_sync;
        let at_least = !by_level || self.observed.is_none();
        let since = self.is_out_of_sync().map(|is_out| is_out.then_some(now));
        self.out_of_sync = match (since, self.held_since()) {
            (Some(None), None) => None,
            (None, None) => before,
            (Some(None) | None, Some(held)) => {
                Some(before.unwrap_or(OutOfSync { since: held, at_least: false }))
            }
            (Some(Some(since)), _) => Some(before.unwrap_or(OutOfSync { since, at_least })),
        };
        self.status_view.dirty |= self.out_of_sync != before;
    }

    /// Restarts the time at the end of a pause, because a pause does not count.
    pub(super) fn resume_sync(&mut self, now: Now) {
        self.out_of_sync = self.out_of_sync.map(|_| OutOfSync { since: now, at_least: true });
    }

    /// Returns whether the pool differs from its level. `None`: this is not certain, and the recorded state stays.
    fn is_out_of_sync(&self) -> Option<bool> {
        let level = &self.assignment.as_ref()?.level;
        match &self.observed {
            // The last write may be lost, like the write before it.
            Some(observed) if observed.is_in_sync(level) => {
                observed.at_rest.then_some(self.losses.last_write_lost || observed.failed)
            }
            Some(observed) if observed.matches(level) => None,
            Some(_) | None => Some(true),
        }
    }

    /// Returns since when a guard holds members that are to go. What the mode add-only holds is the operator's
    /// intention.
    fn held_since(&self) -> Option<Now> {
        let held = self.assignment.as_ref()?.held.as_ref()?;
        (held.reason != HeldReason::AddOnly).then_some(held.since)
    }
}
