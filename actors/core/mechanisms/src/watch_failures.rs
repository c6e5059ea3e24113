//! When a failing watch of a Lease is shown to operators (docs/design/coordination.md, W8; W7).

use std::sync::Arc;

/// Failures in a row of watches of a Lease. A single failure is not shown: the watch may break, and then the Lease is
/// read.
#[derive(Debug, Default)]
pub struct WatchFailures {
    in_a_row: u32,
    why: Option<Arc<str>>,
}

impl WatchFailures {
    /// A watch has failed.
    pub fn failed(&mut self, why: Arc<str>) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.why = Some(why);
    }

    /// A watch has shown the state of the Lease, or none is needed.
    pub fn clear(&mut self) {
        *self = WatchFailures::default();
    }

    /// Why watches fail, if more than one in a row has failed.
    #[must_use]
    pub fn shown(&self) -> Option<Arc<str>> {
        self.why.clone().filter(|_| self.in_a_row > 1)
    }
}
