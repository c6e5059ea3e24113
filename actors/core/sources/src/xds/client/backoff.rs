//! Delays between attempts to reach a server, and before a NACK that repeats the previous one.

use std::sync::Arc;
use std::time::Duration;

use mechanisms::bucket::Bucket;
use model::machine::Now;

/// The number of new NACKs in a burst; over time, one per first delay is allowed.
const AT_ONCE: u32 = 3;
/// The number of steps after which every delay is the longest one.
const STEPS: u32 = 64;

/// A sequence of growing delays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExponentialBackoff {
    /// The first delay.
    pub first: Duration,
    /// The growth factor, in percent.
    pub factor_percent: u32,
    /// The maximum random change of each delay, up or down, in percent of it.
    pub jitter_percent: u32,
    /// The longest delay, before the random change.
    pub max: Duration,
}

impl ExponentialBackoff {
    /// The delays between the streams to a server, as in gRPC's clients (A57).
    pub const STREAMS: ExponentialBackoff = ExponentialBackoff {
        first: Duration::from_secs(1),
        factor_percent: 160,
        jitter_percent: 20,
        max: Duration::from_secs(120),
    };
    /// The delays before NACKs that repeat the previous one. The longest delay is short, because it delays the next
    /// change from servers, such as go-control-plane, that send nothing more of a type until they get an answer.
    pub const NACKS: ExponentialBackoff = ExponentialBackoff {
        first: Duration::from_secs(1),
        factor_percent: 200,
        jitter_percent: 0,
        max: Duration::from_secs(5),
    };

    /// Returns the delay after `steps` earlier ones; `jitter`, 0 to 1000, moves it from the shortest to the longest.
    #[must_use]
    pub fn after(&self, steps: u32, jitter: u16) -> Duration {
        let longest = self.max.as_micros();
        let mut wait = self.first.as_micros().min(longest);
        for _ in 0..steps.min(STEPS) {
            wait = (wait.saturating_mul(u128::from(self.factor_percent)) / 100).min(longest);
        }
        let spread = wait.saturating_mul(u128::from(self.jitter_percent)) / 100;
        let moved = spread.saturating_mul(2).saturating_mul(u128::from(jitter.min(1_000))) / 1_000;
        let micros = wait.saturating_sub(spread).saturating_add(moved);
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

/// Limits the NACKs of one kind to one server.
///
/// Servers such as go-control-plane answer a NACK immediately with the same response. Therefore a NACK that repeats
/// the previous one waits longer each time, and a new NACK takes a token from a small bucket. The limit outlives
/// streams, so that a server cannot evade it by ending streams.
#[derive(Debug)]
pub(super) struct NackLimiter {
    waits: ExponentialBackoff,
    /// The last NACK since the last ACK.
    last: Option<Last>,
    supply: Bucket,
}

#[derive(Debug)]
struct Last {
    version: Arc<str>,
    message: Arc<str>,
    at: Now,
    /// Number of repetitions of the previous one.
    repeats: u32,
}

impl NackLimiter {
    /// Creates the limit without NACKs.
    pub fn new(waits: ExponentialBackoff) -> NackLimiter {
        NackLimiter { waits, last: None, supply: Bucket::new(waits.first, AT_ONCE) }
    }

    /// Returns the time at which a NACK with this version and message may be sent.
    pub fn due(&self, version: &str, message: &str) -> Now {
        if self.waits.first.is_zero() {
            return Now::ZERO;
        }
        match self.repeated(version, message) {
            Some(last) => last.at.plus(self.waits.after(last.repeats, 500)),
            None => self.supply.next_token_at().unwrap_or(Now::NEVER),
        }
    }

    /// Records a sent NACK, which may be sent before it is due.
    pub fn on_nack(&mut self, now: Now, version: &Arc<str>, message: &Arc<str>) {
        let repeats = self.repeated(version, message).map(|last| last.repeats.saturating_add(1));
        if repeats.is_none() {
            self.supply.take(now);
        }
        self.last = Some(Last {
            version: Arc::clone(version),
            message: Arc::clone(message),
            at: now,
            repeats: repeats.unwrap_or_default(),
        });
    }

    /// Resets the repetitions after a valid response.
    pub fn on_good(&mut self) {
        self.last = None;
    }

    /// Returns the last NACK, if this one repeats it.
    fn repeated(&self, version: &str, message: &str) -> Option<&Last> {
        self.last.as_ref().filter(|last| *last.version == *version && *last.message == *message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(waits: &ExponentialBackoff, jitter: u16) -> Vec<u128> {
        (0..14).map(|steps| waits.after(steps, jitter).as_millis()).collect()
    }

    #[test]
    fn x2_a57_waits_between_streams_grow_from_1_s_by_1_6_to_120_s() {
        let delays = millis(&ExponentialBackoff::STREAMS, 500);
        assert_eq!(delays[..4], [1_000, 1_600, 2_560, 4_096]);
        assert_eq!(delays[10..], [109_951, 120_000, 120_000, 120_000]);
        assert_eq!(ExponentialBackoff::STREAMS.after(u32::MAX, 500), Duration::from_secs(120));
    }

    #[test]
    fn x2_a57_jitter_moves_a_wait_by_a_fifth_at_the_most() {
        for (jitter, wait) in [(0, 800), (250, 900), (500, 1_000), (1_000, 1_200), (60_000, 1_200)] {
            assert_eq!(ExponentialBackoff::STREAMS.after(0, jitter), Duration::from_millis(wait), "{jitter}");
        }
    }

    #[test]
    fn x2_repeated_nacks_wait_1_s_doubling_to_5_s() {
        assert_eq!(
            millis(&ExponentialBackoff::NACKS, 0)[..7],
            [1_000, 2_000, 4_000, 5_000, 5_000, 5_000, 5_000]
        );
    }

    #[test]
    fn waits_of_any_size_do_not_overflow() {
        let huge = ExponentialBackoff {
            first: Duration::MAX,
            factor_percent: u32::MAX,
            jitter_percent: 100,
            max: Duration::MAX,
        };
        assert!(huge.after(u32::MAX, 1_000) >= huge.after(0, 0));
        let shrinking = ExponentialBackoff { factor_percent: 50, ..ExponentialBackoff::NACKS };
        assert_eq!(shrinking.after(u32::MAX, 0), Duration::ZERO);
    }

    /// Returns the send times in milliseconds when the same NACK is repeated as soon as permitted.
    fn repeat(pace: &mut NackLimiter, times: usize) -> Vec<u64> {
        let version: Arc<str> = Arc::from("1");
        let message: Arc<str> = Arc::from("bad");
        let mut now = Now::from_millis(1_000);
        let mut sent = Vec::new();
        for _ in 0..times {
            now = now.max(pace.due(&version, &message));
            pace.on_nack(now, &version, &message);
            sent.push(now.as_micros() / 1_000);
        }
        sent
    }

    #[test]
    fn x2_a_first_nack_is_immediate_and_repeats_are_delayed() {
        let mut pace = NackLimiter::new(ExponentialBackoff::NACKS);
        let sent = repeat(&mut pace, 8);
        assert_eq!(sent, [1_000, 2_000, 4_000, 8_000, 13_000, 18_000, 23_000, 28_000]);
        pace.on_good();
        assert!(pace.due("1", "bad") <= Now::from_millis(28_000), "a good response ends it");
    }

    #[test]
    fn x2_new_nacks_are_immediate_and_bounded_over_time() {
        let mut pace = NackLimiter::new(ExponentialBackoff::NACKS);
        let mut now = Now::from_millis(1_000);
        let message: Arc<str> = Arc::from("bad");
        let mut sent = Vec::new();
        for version in ["1", "2", "3", "4", "5", "6"] {
            let version: Arc<str> = Arc::from(version);
            now = now.max(pace.due(&version, &message));
            pace.on_nack(now, &version, &message);
            sent.push(now.as_micros() / 1_000);
        }
        assert_eq!(sent, [1_000, 1_000, 1_000, 2_000, 3_000, 4_000]);
    }

    #[test]
    fn x2_the_errors_belong_to_the_identity_of_a_nack() {
        let mut pace = NackLimiter::new(ExponentialBackoff::NACKS);
        let now = Now::from_millis(1_000);
        pace.on_nack(now, &Arc::from("1"), &Arc::from("bad"));
        assert!(pace.due("1", "worse") <= now);
        assert!(pace.due("1", "bad") > now);
    }
}
