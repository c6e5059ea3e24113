//! How long a watcher waits before it tries again: after failures, and before it lists again.

use std::time::Duration;

use model::machine::Now;
use model::sample::RelistReason;

/// The shortest step, which doubles.
const FIRST: Duration = Duration::from_secs(1);
/// The longest step.
const LONGEST: Duration = Duration::from_secs(30);
/// A list that held for this long was a good one.
const LASTING: Duration = Duration::from_secs(60);

/// What went wrong lately, and the random number that spreads the next try.
#[derive(Default, Debug)]
pub(super) struct Backoff {
    /// Failures since the last line or page.
    failures: u32,
    /// Relists since the last list that held for a while. Lines of the lists between do not clear it.
    relists: u32,
    listed: Option<Now>,
    /// 0 to 1000 per mille.
    jitter: u16,
}

impl Backoff {
    /// Takes in a new random number.
    pub(super) fn stir(&mut self, jitter: u16) {
        self.jitter = jitter.min(1000);
    }

    /// Something was heard.
    pub(super) fn on_progress(&mut self) {
        self.failures = 0;
    }

    /// A list was completed.
    pub(super) fn on_listed(&mut self, now: Now) {
        self.listed = Some(now);
    }

    /// Counts a failure; how long to wait after it.
    pub(super) fn after_failure(&mut self) -> Duration {
        let wait = self.span(self.failures);
        self.failures = self.failures.saturating_add(1);
        wait
    }

    /// Counts a relist; how long to wait before it. Zero only when a watch expired after a while without
    /// relists, and for what asks for most recent data.
    pub(super) fn before_relist(&mut self, now: Now, reason: RelistReason) -> Duration {
        if self.listed.take_if(|at| now.since(*at) >= LASTING).is_some() {
            self.relists = 0;
        }
        let before = self.relists;
        let wait = match reason {
            // It says nothing about the server.
            RelistReason::NewTerm | RelistReason::SecondRead => return Duration::ZERO,
            RelistReason::Expired if before == 0 => Duration::ZERO,
            RelistReason::Expired | RelistReason::Stale | RelistReason::Broken => {
                self.span(before.max(self.failures))
            }
        };
        self.relists = self.relists.saturating_add(1);
        wait
    }

    /// The `n`th step: between half of it and the whole, by the jitter.
    fn span(&self, n: u32) -> Duration {
        let whole = FIRST.saturating_mul(1_u32.checked_shl(n).unwrap_or(u32::MAX)).min(LONGEST);
        whole / 2 + whole * u32::from(self.jitter) / 2000
    }
}
