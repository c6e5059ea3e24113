//! The delays of a watcher: after failures, and before a relist.

use std::time::Duration;

use model::machine::Now;
use model::sample::RelistReason;

/// The first delay; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(1);
/// The longest delay.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// The age at which a list counts as stable.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// Recent failures, and the random number that spreads the next try.
#[derive(Default, Debug)]
pub(super) struct WatchBackoff {
    /// Failures since the last line or page.
    failures: u32,
    /// Relists since the last stable list. Lines of the lists in between do not reset the count.
    relists: u32,
    listed: Option<Now>,
    /// Per mille, 0 to 1000.
    jitter: u16,
}

impl WatchBackoff {
    /// Sets the random number.
    pub(super) fn set_jitter(&mut self, jitter: u16) {
        self.jitter = jitter.min(1000);
    }

    /// Resets the failures after a line or page.
    pub(super) fn on_progress(&mut self) {
        self.failures = 0;
    }

    /// Records a completed list.
    pub(super) fn on_listed(&mut self, now: Now) {
        self.listed = Some(now);
    }

    /// Counts a failure and returns the delay after it.
    pub(super) fn after_failure(&mut self) -> Duration {
        let wait = self.delay(self.failures);
        self.failures = self.failures.saturating_add(1);
        wait
    }

    /// Counts a relist and returns the delay before it. The delay is zero only if a watch expired after a while
    /// without relists, or if most recent data is requested.
    pub(super) fn before_relist(&mut self, now: Now, reason: RelistReason) -> Duration {
        if self.listed.take_if(|at| now.since(*at) >= STABLE_AFTER).is_some() {
            self.relists = 0;
        }
        let before = self.relists;
        let wait = match reason {
            // This reason says nothing about the server's health.
            RelistReason::NewTerm | RelistReason::SecondRead => return Duration::ZERO,
            RelistReason::Expired if before == 0 => Duration::ZERO,
            RelistReason::Expired | RelistReason::Stale | RelistReason::Broken => {
                self.delay(before.max(self.failures))
            }
        };
        self.relists = self.relists.saturating_add(1);
        wait
    }

    /// Returns delay number `n`: between half of it and all of it, depending on the jitter.
    fn delay(&self, n: u32) -> Duration {
        let whole = FIRST.saturating_mul(1_u32.checked_shl(n).unwrap_or(u32::MAX)).min(MAX_BACKOFF);
        whole / 2 + whole * u32::from(self.jitter) / 2000
    }
}
