//! The simulator's clock: one start for both models, so that their times are comparable.

use tokio::time::Instant;

/// Microseconds since the start of the fakes, and the corresponding wall time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    wall_start: jiff::Timestamp,
}

impl Clock {
    /// Returns a clock that starts at 0.
    #[must_use]
    pub fn start() -> Self {
        Self { start: Instant::now(), wall_start: jiff::Timestamp::now() }
    }

    /// Returns the microseconds since the start.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns the time `at_us` on tokio's clock, for timers.
    #[must_use]
    pub fn instant(&self, at_us: u64) -> Instant {
        self.start + std::time::Duration::from_micros(at_us)
    }

    /// Returns the same clock with a wall time that is this number of seconds ahead.
    #[must_use]
    pub(crate) fn ahead(mut self, seconds: i64) -> Self {
        let shifted = self.wall_start.checked_add(jiff::SignedDuration::from_secs(seconds));
        self.wall_start = shifted.unwrap_or(self.wall_start);
        self
    }

    /// Returns the wall time of `at_us` in the format of HTTP headers.
    pub(crate) fn http_date(&self, at_us: u64) -> String {
        let span = jiff::SignedDuration::from_micros(i64::try_from(at_us).unwrap_or(i64::MAX));
        let time = self.wall_start.checked_add(span).unwrap_or(jiff::Timestamp::MAX);
        let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
        printer.timestamp_to_rfc9110_string(&time).expect("every timestamp has a year of four digits")
    }

    /// Returns the wall time of the start, in seconds since 1970.
    #[must_use]
    pub fn epoch_s(&self) -> u64 {
        u64::try_from(self.wall_start.as_second()).unwrap_or(0)
    }

    /// Returns the wall time of `at_us` in the format of Kubernetes (RFC 3339, UTC).
    #[must_use]
    pub fn rfc3339(&self, at_us: u64) -> String {
        let span = jiff::SignedDuration::from_micros(i64::try_from(at_us).unwrap_or(i64::MAX));
        self.wall_start.checked_add(span).unwrap_or(jiff::Timestamp::MAX).to_string()
    }
}
