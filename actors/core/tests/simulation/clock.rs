//! The clocks of one process: a monotonic one that starts anywhere and drifts, and a wall clock that is wrong by some
//! seconds. The world has the true time, which no process can read.

use std::time::Duration;

use model::machine::Now;
use simulator_models::kube::rfc3339;

use crate::random::Random;

/// Wall time at the start of the world in seconds since 1970, as in the modelled API server.
pub const EPOCH_S: u64 = 1_795_132_800;
/// Greatest drift of a monotonic clock, in parts per million.
const DRIFT_PPM: u64 = 200;
/// Largest error of a wall clock, in microseconds, with working time synchronisation.
const SKEW_US: u64 = 4_000_000;

/// The clocks of one process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero: u64,
    drift_ppm: i64,
    /// Offset of the wall clock, in microseconds.
    skew_us: i64,
}

impl Clock {
    /// Creates clocks by the seed.
    pub fn new(random: &mut Random) -> Clock {
        let around = |random: &mut Random, most: u64| {
            i64::try_from(random.below(2 * most + 1)).expect("small") - i64::try_from(most).expect("small")
        };
        Clock {
            zero: random.below(1_000_000_000_000),
            drift_ppm: around(random, DRIFT_PPM),
            skew_us: around(random, SKEW_US),
        }
    }

    /// Returns the monotonic time at a world time.
    pub fn now(&self, world: u64) -> Now {
        let drift = i128::from(world) * i128::from(self.drift_ppm) / 1_000_000;
        let local = i128::from(self.zero) + i128::from(world) + drift;
        Now::from_micros(u64::try_from(local).unwrap_or(0))
    }

    /// Returns the first world time at which the monotonic clock has reached `local`.
    pub fn world(&self, local: Now) -> u64 {
        let since = i128::from(local.as_micros()) - i128::from(self.zero);
        let guess = since * 1_000_000 / (1_000_000 + i128::from(self.drift_ppm)) - 2;
        let mut world = u64::try_from(guess.max(0)).unwrap_or(u64::MAX);
        while self.now(world) < local && world < u64::MAX {
            world += 1;
        }
        world
    }

    /// Returns the wall time, in microseconds since 1970.
    pub fn wall(&self, world: u64) -> i64 {
        wall(world) + self.skew_us
    }

    /// Converts a wall time to monotonic time, as of now; `None` if it has passed.
    pub fn local_of_wall(&self, world: u64, wall: i64) -> Option<Now> {
        let ahead = u64::try_from(wall - self.wall(world)).ok().filter(|ahead| *ahead > 0)?;
        Some(self.now(world).plus(Duration::from_micros(ahead)))
    }

    /// Converts a monotonic time to wall time, as of now.
    pub fn wall_of_local(&self, world: u64, local: Now) -> i64 {
        let ahead = i64::try_from(local.since(self.now(world)).as_micros()).unwrap_or(0);
        self.wall(world) + ahead
    }
}

/// Formats a wall time as in Azure's scheduled events (RFC 1123).
pub fn rfc1123(wall: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = u64::try_from(wall / 1_000_000).unwrap_or(0);
    let day = usize::try_from(seconds / 86_400 % 7).expect("a day of the week is small");
    let time = rfc3339(seconds);
    let (date, clock) = time.trim_end_matches('Z').split_once('T').expect("a date and a time");
    let month: usize = date[5..7].parse().expect("it is a number");
    format!("{}, {} {} {} {clock} GMT", DAYS[day], &date[8..10], MONTHS[month - 1], &date[..4])
}

/// Returns the time of a correct clock, in microseconds since 1970.
pub fn wall(world: u64) -> i64 {
    i64::try_from(EPOCH_S * 1_000_000 + world).expect("the world does not last that long")
}
