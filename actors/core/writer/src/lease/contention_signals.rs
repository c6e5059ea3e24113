//! Signs that the cloud-controller-manager waits for the shared Lease: its lock failure events, and Services without
//! an ingress address (docs/design/writer.md, W7). Each sign counts once.

use std::time::Duration;

use model::ids::CallId;
use model::machine::{Now, earliest};

/// Time within which the Kubernetes port must count lock failures.
const COUNT_LIMIT: Duration = Duration::from_secs(30);

/// Shortest interval between counts: each reads all Warning events about Services in the cluster.
const COUNTS_APART: Duration = Duration::from_secs(60);

/// Total hold time after which a count is due regardless of the interval, so that no client waits unnoticed for long.
const HELD_UNCOUNTED: Duration = Duration::from_secs(15);

/// Signs that others wait.
#[derive(Debug, Default)]
pub(super) struct ContentionSignals {
    /// The count in flight, and the time of its request.
    counting: Option<(CallId, Now)>,
    /// Time of the last count.
    counted: Option<Now>,
    /// Time at which the first hold without a count was taken.
    uncounted: Option<Now>,
    /// Total duration of the holds without a count.
    held: Duration,
    /// Number of the last Service that waits for an address. Numbers rise.
    awaited: Option<u64>,
    /// Highest number of a Service that has counted.
    counted_up_to: u64,
}

impl ContentionSignals {
    /// Records the last Service that waits. `None`: no Service waits.
    pub(super) fn on_awaiting_ingress(&mut self, newest: Option<u64>) {
        self.awaited = newest;
    }

    /// Returns whether a Service awaits ingress that has not been counted yet. Services older than the last counted
    /// one do not count any more, because its cooldown served them too.
    pub(super) fn awaits_ingress(&self) -> bool {
        self.awaited.is_some_and(|newest| newest > self.counted_up_to)
    }

    /// Marks the waiting Services as counted.
    pub(super) fn count_ingress(&mut self) {
        self.counted_up_to = self.awaited.unwrap_or(self.counted_up_to);
    }

    /// Records the end of a hold, whose lock failures must be counted.
    pub(super) fn hold_ended(&mut self, taken: Now, held: Duration) {
        self.uncounted = self.uncounted.or(Some(taken));
        self.held = self.held.saturating_add(held);
    }

    /// Returns whether a count is in flight. Until its answer, the Lease is not taken again, because another client
    /// may have waited all the time.
    pub(super) fn is_counting(&self) -> bool {
        self.counting.is_some()
    }

    /// Returns the start of the period for a count that is due now. `None`: no count is due.
    pub(super) fn count_due_since(&self, now: Now) -> Option<Now> {
        let taken = self.uncounted.filter(|_| self.counting.is_none() && self.may_count(now))?;
        // Events from the last moments of a hold arrive after the count at its end.
        let reported_late = self.counted.filter(|last| taken < last.plus(COUNTS_APART));
        Some(reported_late.map_or(taken, |last| last.min(taken)))
    }

    fn may_count(&self, now: Now) -> bool {
        self.held >= HELD_UNCOUNTED || self.counted.is_none_or(|last| now >= last.plus(COUNTS_APART))
    }

    /// Records the request for a count.
    pub(super) fn on_count_requested(&mut self, now: Now, call: CallId) {
        self.counting = Some((call, now));
        self.counted = Some(now);
        self.uncounted = None;
        self.held = Duration::ZERO;
    }

    /// Ends the count in flight, if this is its answer.
    pub(super) fn is_answer(&mut self, call: CallId) -> bool {
        self.counting.take_if(|(id, _)| *id == call).is_some()
    }

    /// Abandons an overdue count. Returns whether there was one.
    pub(super) fn abandon_overdue(&mut self, now: Now) -> bool {
        self.counting.take_if(|(_, open_request)| open_request.plus(COUNT_LIMIT) <= now).is_some()
    }

    /// Drops everything that was not counted.
    pub(super) fn clear(&mut self) {
        self.uncounted = None;
        self.held = Duration::ZERO;
    }

    /// Returns the time of the next change without input.
    pub(super) fn deadline(&self) -> Option<Now> {
        let overdue = self.counting.map(|(_, open_request)| open_request.plus(COUNT_LIMIT));
        let next = self.uncounted.and(self.counted).map(|last| last.plus(COUNTS_APART));
        earliest(overdue, next)
    }
}
