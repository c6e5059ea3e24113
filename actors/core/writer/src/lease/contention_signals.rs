//! The signs that the cloud-controller-manager waits for the shared Lease: the lock failures that it tells of, and
//! Services that it has not given an address yet (docs/design/writer.md, W7). Each of them counts once.

use std::time::Duration;

use model::ids::CallId;
use model::machine::{Now, earliest};

/// How long the kubernetes port may take to count lock failures.
const COUNT_LIMIT: Duration = Duration::from_secs(30);

/// How far apart two counts are at least: each reads all the warnings about Services that the cluster keeps.
const COUNTS_APART: Duration = Duration::from_secs(60);

/// After how much time in holds they are counted all the same: no client may wait for long unnoticed.
const HELD_UNCOUNTED: Duration = Duration::from_secs(15);

/// What was seen of others that wait.
#[derive(Debug, Default)]
pub(super) struct ContentionSignals {
    /// The question about lock failures that is under way, and when it was asked.
    counting: Option<(CallId, Now)>,
    /// When the last one was asked.
    counted: Option<Now>,
    /// When the first hold was taken whose lock failures were not asked for yet.
    uncounted: Option<Now>,
    /// How long these holds have lasted together.
    held: Duration,
    /// The number of the last Service that waits for an address now. Numbers rise.
    awaited: Option<u64>,
    /// The highest number of a Service that has counted.
    counted_up_to: u64,
}

impl ContentionSignals {
    /// This Service is the last of those that wait, or none does any more.
    pub(super) fn on_awaiting_ingress(&mut self, newest: Option<u64>) {
        self.awaited = newest;
    }

    /// Whether a Service waits that has not counted yet. Those that came before one that has do not count any more:
    /// the time off was theirs too.
    pub(super) fn awaits_ingress(&self) -> bool {
        self.awaited.is_some_and(|newest| newest > self.counted_up_to)
    }

    /// The Services that wait have counted.
    pub(super) fn count_ingress(&mut self) {
        self.counted_up_to = self.awaited.unwrap_or(self.counted_up_to);
    }

    /// A hold has ended; its lock failures are of interest.
    pub(super) fn hold_ended(&mut self, taken: Now, held: Duration) {
        self.uncounted = self.uncounted.or(Some(taken));
        self.held = self.held.saturating_add(held);
    }

    /// Whether the answer to a count is waited for: until it is there the Lease is not taken again, because another
    /// client may have waited for it all the time.
    pub(super) fn is_counting(&self) -> bool {
        self.counting.is_some()
    }

    /// From when on lock failures are to be counted now; `None`: they are not.
    pub(super) fn question(&self, now: Now) -> Option<Now> {
        let taken = self.uncounted.filter(|_| self.counting.is_none() && self.may_count(now))?;
        // What is told in the last moments of a hold comes after the question at its end.
        let told_late = self.counted.filter(|last| taken < last.plus(COUNTS_APART));
        Some(told_late.map_or(taken, |last| last.min(taken)))
    }

    fn may_count(&self, now: Now) -> bool {
        self.held >= HELD_UNCOUNTED || self.counted.is_none_or(|last| now >= last.plus(COUNTS_APART))
    }

    /// The question is asked.
    pub(super) fn asks(&mut self, now: Now, call: CallId) {
        self.counting = Some((call, now));
        self.counted = Some(now);
        self.uncounted = None;
        self.held = Duration::ZERO;
    }

    /// Whether this answers the question that is under way, which is none any more.
    pub(super) fn is_answer(&mut self, call: CallId) -> bool {
        self.counting.take_if(|(id, _)| *id == call).is_some()
    }

    /// Whether the question has got no answer in time; it is none any more.
    pub(super) fn give_up_overdue(&mut self, now: Now) -> bool {
        self.counting.take_if(|(_, asked)| asked.plus(COUNT_LIMIT) <= now).is_some()
    }

    /// What is not counted yet is of no interest any more.
    pub(super) fn forget(&mut self) {
        self.uncounted = None;
        self.held = Duration::ZERO;
    }

    /// When time alone changes something next.
    pub(super) fn deadline(&self) -> Option<Now> {
        let overdue = self.counting.map(|(_, asked)| asked.plus(COUNT_LIMIT));
        let next = self.uncounted.and(self.counted).map(|last| last.plus(COUNTS_APART));
        earliest(overdue, next)
    }
}
