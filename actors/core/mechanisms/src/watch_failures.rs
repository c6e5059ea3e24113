//! Decides when the failing watch of a Lease is shown to operators (docs/design/coordination.md, W8; W7).

use std::sync::Arc;

/// Consecutive failures of a Lease's watch. A single failure is not shown: a watch may break, and the Lease is read
/// instead.
#[derive(Debug, Default)]
pub struct WatchFailures {
    in_a_row: u32,
    why: Option<Arc<str>>,
}

impl WatchFailures {
    /// Counts a failed watch.
    pub fn failed(&mut self, why: Arc<str>) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.why = Some(why);
    }

    /// Resets the count: a watch has returned a state, or no watch is needed.
    pub fn clear(&mut self) {
        *self = WatchFailures::default();
    }

    /// Returns the last error, after more than one failure in a row.
    #[must_use]
    pub fn shown(&self) -> Option<Arc<str>> {
        self.why.clone().filter(|_| self.in_a_row > 1)
    }
}
