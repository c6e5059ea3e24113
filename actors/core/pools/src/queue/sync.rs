//! Since when a pool has not matched its level (Q8, E2). Attempts, retries and new terms do not end that; only a pool that
//! is known to match does.

use crate::queue::PoolQueue;
use model::assignment::HeldReason;
use model::machine::Now;
use model::view::OutOfSync;

impl PoolQueue {
    /// Notes whether the pool matches its level. A difference that a new level makes begins now; any other may have begun
    /// before it was seen.
    pub(super) fn note_sync(&mut self, now: Now, by_level: bool) {
        let before = self.out_of_sync;
        let at_least = !by_level || self.content.is_none();
        let since = self.is_out_of_sync().map(|is_out| is_out.then_some(now));
        self.out_of_sync = match (since, self.held_since()) {
            (Some(None), None) => None,
            (None, None) => before,
            (Some(None) | None, Some(held)) => {
                Some(before.unwrap_or(OutOfSync { since: held, at_least: false }))
            }
            (Some(Some(since)), _) => Some(before.unwrap_or(OutOfSync { since, at_least })),
        };
        self.shown.dirty |= self.out_of_sync != before;
    }

    /// The time of a pause does not count.
    pub(super) fn resume_sync(&mut self, now: Now) {
        self.out_of_sync = self.out_of_sync.map(|_| OutOfSync { since: now, at_least: true });
    }

    /// Whether what the pool holds differs from its level; `None`: that is not certain, and it is as it was.
    fn is_out_of_sync(&self) -> Option<bool> {
        let level = &self.assignment.as_ref()?.level;
        match &self.content {
            // What was written may be lost like the write before.
            Some(content) if content.is_right(level) => {
                content.at_rest.then_some(self.losses.stand || content.failed)
            }
            Some(content) if content.matches(level) => None,
            Some(_) | None => Some(true),
        }
    }

    /// Since when a guard keeps members that are to go. What the mode add-only keeps is as the operator wants it.
    fn held_since(&self) -> Option<Now> {
        let held = self.assignment.as_ref()?.held.as_ref()?;
        (held.reason != HeldReason::AddOnly).then_some(held.since)
    }
}
