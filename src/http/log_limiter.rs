//! Limits the number of log lines about refused requests, because any client that reaches a listener can cause any
//! number of them.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// Length of a period, in seconds.
const PERIOD_S: u64 = 10;
/// Maximum lines in a period.
const MAX_LINES: u64 = 20;

/// Counts the lines of the current period, and those suppressed since the last written line. The threads of all
/// listeners share it.
#[derive(Debug)]
pub(super) struct LogLimiter {
    started: Instant,
    /// The period and the number of lines written in it: `period × (MAX_LINES + 1) + lines`.
    written: AtomicU64,
    suppressed: AtomicU64,
}

impl LogLimiter {
    /// Creates a limiter that has written no line yet.
    pub(super) fn new() -> LogLimiter {
        LogLimiter { started: Instant::now(), written: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Returns the number of lines suppressed since the last written line if another line may be written now; `None` if
    /// this line is suppressed.
    pub(super) fn permit(&self) -> Option<u64> {
        self.permit_at(self.started.elapsed().as_secs())
    }

    fn permit_at(&self, now_s: u64) -> Option<u64> {
        let period = now_s / PERIOD_S * (MAX_LINES + 1);
        let next = |written: u64| Some(written.max(period) + 1).filter(|next| *next <= period + MAX_LINES);
        match self.written.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Some(self.suppressed.swap(0, Ordering::Relaxed)),
            Err(_) => {
                self.suppressed.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h2_few_refusals_are_logged_with_the_number_of_others() {
        let limiter = LogLimiter::new();
        for _ in 0..MAX_LINES {
            assert_eq!(limiter.permit_at(0), Some(0));
        }
        for second in 0..PERIOD_S {
            assert_eq!(limiter.permit_at(second), None);
        }
        assert_eq!(
            limiter.permit_at(PERIOD_S),
            Some(PERIOD_S),
            "the next period reports the suppressed lines"
        );
        for _ in 1..MAX_LINES {
            assert_eq!(limiter.permit_at(2 * PERIOD_S - 1), Some(0));
        }
        assert_eq!(limiter.permit_at(PERIOD_S), None);
        assert_eq!(limiter.permit_at(100 * PERIOD_S), Some(1));
    }
}
