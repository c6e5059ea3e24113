//! The trait of all machines, and the two kinds of time: `Now` for decisions, `Wall` for display.

use std::time::Duration;

/// A time on the monotonic clock of this process, in microseconds since an arbitrary start.
///
/// Only shells and tests create one from a clock; machines compare and add.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Now(u64);

impl Now {
    /// The start of the clock.
    pub const ZERO: Now = Now(0);
    /// A time that is never reached.
    pub const NEVER: Now = Now(u64::MAX);

    /// Returns the time `micros` microseconds after the start.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Now {
        Now(micros)
    }

    /// Returns the time `millis` milliseconds after the start.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Now {
        Now(millis.saturating_mul(1_000))
    }

    /// Returns the microseconds since the start.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns this time plus a span; saturates at [`Now::NEVER`].
    #[must_use]
    pub fn plus(self, span: Duration) -> Now {
        Now(self.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }

    /// Returns this time minus a span; saturates at [`Now::ZERO`].
    #[must_use]
    pub fn minus(self, span: Duration) -> Now {
        Now(self.0.saturating_sub(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }

    /// Returns the span from `earlier` to this time; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Now) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// A time on the wall clock, in microseconds since 1970-01-01T00:00:00Z. It is displayed and never compared with
/// [`Now`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Wall(i64);

impl Wall {
    /// Returns the time `micros` microseconds after the epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Wall {
        Wall(micros)
    }

    /// Returns the microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }
}

/// A machine owns one piece of state and makes every decision about it, synchronously and totally (A1).
///
/// It has no clock, no randomness, and no input or output besides its arguments.
pub trait Machine {
    /// Its inputs.
    type In;
    /// Its outputs; `route` delivers them.
    type Out;

    /// Handles one input and appends the outputs.
    fn step(&mut self, now: Now, input: Self::In, out: &mut Vec<Self::Out>);

    /// Returns the next time at which time alone changes something; `None` when nothing waits for a time.
    fn deadline(&self) -> Option<Now>;

    /// Handles the deadline. An early or late call is harmless.
    fn tick(&mut self, now: Now, out: &mut Vec<Self::Out>);
}

/// Returns the earlier of two optional deadlines.
#[must_use]
pub fn earliest(one: Option<Now>, other: Option<Now>) -> Option<Now> {
    match (one, other) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (Some(a), None) => Some(a),
        (None, b) => b,
    }
}
