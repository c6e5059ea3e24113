//! The clock port: the only place where a machine's time is read.

use std::time::Duration;

use pool_core::machine::{Now, Wall};
use tokio::time::Instant;

/// The clock of this process. All shells share one start, so that their moments compare.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    wall_start: jiff::Timestamp,
}

impl Clock {
    /// Where the clock starts: later than zero, so that "an hour ago" is a moment like any other.
    pub const OFFSET: Duration = Duration::from_secs(24 * 3600);

    /// A clock that starts at the moment of the call, at [`Clock::OFFSET`].
    #[must_use]
    pub fn start() -> Clock {
        Clock { start: Instant::now(), wall_start: jiff::Timestamp::now() }
    }

    /// The moment of the call.
    #[must_use]
    pub fn now(&self) -> Now {
        Now::ZERO.plus(Clock::OFFSET).plus(self.start.elapsed())
    }

    /// The moment of a machine on tokio's clock, for timers.
    #[must_use]
    pub fn instant(&self, at: Now) -> Instant {
        self.start + at.since(Now::ZERO.plus(Clock::OFFSET))
    }

    /// The wall time that belongs to a moment of a machine. It does not follow later steps of the wall clock.
    #[must_use]
    pub fn wall_at(&self, at: Now) -> Wall {
        let start = self.wall_start.as_microsecond();
        let offset =
            i64::try_from(Clock::OFFSET.as_micros()).expect("a day of microseconds is a small number");
        Wall::from_micros(start + i64::try_from(at.as_micros()).unwrap_or(i64::MAX - start) - offset)
    }

    /// The wall time of the call.
    #[must_use]
    pub fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }
}
