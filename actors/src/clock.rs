//! The clock port: the only place where a machine's time is read.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use model::machine::{Now, Wall};
use tokio::time::Instant;

/// The clock of this process. All shells share one origin, so that their times are comparable.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Start,
    wall_start: Timestamp,
}

/// Origin and source of a clock's time.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// Time since the computer was booted, including suspension.
    Boot(Duration),
    /// Time of the runtime, which a test can pause.
    Runtime(Instant),
}

impl Clock {
    /// Value at which the clock starts: later than zero, so that "an hour ago" is representable.
    pub const OFFSET: Duration = Duration::from_secs(24 * 3600);

    /// Creates the clock of a real process, which starts at [`Clock::OFFSET`] at the time of the call. The clock
    /// continues while the computer is suspended, so that a process that wakes up does not assume that it still leads
    /// (W8). Timers do not continue: a task that was due in between wakes late, and then reads the right time.
    #[must_use]
    pub fn start() -> Clock {
        Clock { start: Start::Boot(since_boot()), wall_start: Timestamp::now() }
    }

    /// Creates a clock that follows the runtime's time and stops while a test pauses it.
    #[must_use]
    pub fn of_runtime() -> Clock {
        Clock { start: Start::Runtime(Instant::now()), wall_start: Timestamp::now() }
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Now {
        let elapsed = match self.start {
            Start::Boot(start) => since_boot().saturating_sub(start),
            Start::Runtime(start) => start.elapsed(),
        };
        Now::ZERO.plus(Clock::OFFSET).plus(elapsed)
    }

    /// Converts a monotonic time to wall time by the wall clock at startup. Later clock steps have no effect.
    #[must_use]
    pub fn wall_at(&self, at: Now) -> Wall {
        let start = self.wall_start.as_microsecond();
        let offset =
            i64::try_from(Clock::OFFSET.as_micros()).expect("a day of microseconds is a small number");
        Wall::from_micros(start + i64::try_from(at.as_micros()).unwrap_or(i64::MAX - start) - offset)
    }

    /// Returns a random number from 0 to 1000 per mille, which spreads the retries of many processes.
    #[must_use]
    pub fn jitter(&self) -> u16 {
        u16::try_from(self.wall().subsec_nanosecond().unsigned_abs() / 1_000 % 1_001).unwrap_or(500)
    }

    /// Returns the current wall time.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Converts a monotonic time to wall time by the current wall clock, for times that other processes read
    /// or wrote.
    #[must_use]
    pub fn timestamp_of(&self, at: Now) -> Timestamp {
        let now = self.now();
        let signed = |span: Duration| SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
        let (wall, offset) = (self.wall(), signed(at.since(now)) - signed(now.since(at)));
        let end = if offset.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
        wall.checked_add(offset).unwrap_or(end)
    }

    /// Returns the time left until a wall time; zero if it has passed.
    #[must_use]
    pub fn until(&self, at: Timestamp) -> Duration {
        Duration::try_from(at.duration_since(self.wall())).unwrap_or_default()
    }
}

/// Returns the time since the computer was booted.
#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let read = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(read).expect("the time since the computer was switched on is not negative")
}

/// Returns the time since the computer was booted; systems other than Linux are for development only.
#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    let read = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(read).expect("the monotonic time is not negative")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w8_the_real_clock_starts_at_its_offset_and_never_goes_back() {
        let clock = Clock::start();
        let mut before = clock.now();
        assert!(before.since(Now::ZERO) >= Clock::OFFSET);
        for _ in 0..1_000 {
            let now = clock.now();
            assert!(now >= before);
            before = now;
        }
        assert!(before.since(Now::ZERO) < Clock::OFFSET + Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn the_runtime_clock_stops_with_the_runtime() {
        let clock = Clock::of_runtime();
        let before = clock.now();
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(clock.now().since(before), Duration::from_secs(7));
    }

    #[test]
    fn monotonic_and_wall_times_convert_and_saturate() {
        let clock = Clock::start();
        let later = clock.timestamp_of(clock.now().plus(Duration::from_secs(600)));
        let until = clock.until(later);
        assert!(until > Duration::from_secs(590) && until <= Duration::from_secs(600), "{until:?}");
        let earlier = clock.timestamp_of(clock.now().minus(Duration::from_secs(600)));
        assert!(earlier < clock.wall());
        assert_eq!(clock.until(earlier), Duration::ZERO);
        assert_eq!(clock.timestamp_of(Now::NEVER), Timestamp::MAX);
        assert!(clock.until(Timestamp::MAX) > Duration::from_secs(1_000));
    }
}
