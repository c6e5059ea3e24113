//! The throttle gates: the times until which ARM asked not to be called, for each class of calls
//! (docs/design/writer.md, W6; S0 "ThrottleError").

use std::time::Duration;

use model::arm::{Failure, FailureKind, RetryAfter};
use model::blocked::{Blocked, BlockedUntil};
use model::lease::GateTimes;
use model::machine::Now;
use model::sample::GateClass;

use super::classify::{FailedCall, ThrottleScope};

/// Time for which a lock without a time closes its lane (W6).
const LOCK_DELAY: Duration = Duration::from_secs(10);

/// Longest time for which ARM can close a gate. `Retry-After` may contain any span or date. A faulty proxy or clock
/// must not keep this process from ARM until a restart. ARM's quotas last minutes, at most an hour.
const MAX_GATE: Duration = Duration::from_secs(60 * 60);

/// Longest time for which a lock closes a lane, for the same reason. A lock ends with its operation, which takes
/// minutes. A call that comes too early costs one more answer.
const MAX_DELAY: Duration = Duration::from_secs(10 * 60);

/// What a 429 closes, and for how long. In any case, its pool is parked until its `Retry-After` (W6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Throttling {
    /// A lock closes its lane for up to ten minutes. Any other 429 closes the gate of its class for up to an hour.
    #[default]
    Bounded,
    /// As in S0, any 429 closes the gate of its class, for as long as it says (C2).
    Upstream,
}

impl Throttling {
    fn longest_gate(self) -> Duration {
        match self {
            Throttling::Bounded => MAX_GATE,
            Throttling::Upstream => Duration::MAX,
        }
    }

    /// Returns whether a 429 of this scope closes the gate of its class, and not a lane.
    pub(super) fn closes_gate(self, scope: ThrottleScope) -> bool {
        match self {
            Throttling::Bounded => scope == ThrottleScope::Subscription,
            Throttling::Upstream => true,
        }
    }
}

/// The gates of both classes of calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Gates {
    throttling: Throttling,
    reads: Option<Now>,
    writes: Option<Now>,
}

impl Gates {
    pub(super) fn new(throttling: Throttling) -> Gates {
        Gates { throttling, ..Gates::default() }
    }

    fn timer(&mut self, class: GateClass) -> &mut Option<Now> {
        match class {
            GateClass::Reads => &mut self.reads,
            GateClass::Writes => &mut self.writes,
        }
    }

    /// Applies the `Retry-After` of a 429 and returns the gate's time, S0's `RetryAfter`. A valid header sets it, an
    /// absent one sets it to now, and an unreadable one leaves it.
    pub(super) fn throttled(&mut self, now: Now, class: GateClass, header: RetryAfter) -> Option<Now> {
        let longest = self.throttling.longest_gate();
        let timer = self.timer(class);
        match header {
            RetryAfter::In(span) => *timer = Some(now.plus(span.min(longest))),
            RetryAfter::Absent => *timer = Some(now),
            RetryAfter::Invalid => {}
        }
        *timer
    }

    /// Applies the gate times of a predecessor: the later time wins (W8). They come from another wall clock, so that
    /// they are bounded too.
    pub(super) fn remember(&mut self, now: Now, times: GateTimes) {
        let longest = now.plus(self.throttling.longest_gate());
        for (class, until) in [(GateClass::Reads, times.reads_until), (GateClass::Writes, times.writes_until)]
        {
            let timer = self.timer(class);
            *timer = (*timer).max(until.map(|until| until.min(longest)));
        }
    }

    /// Opens the gate of a class, regardless of ARM's answers.
    pub(super) fn open(&mut self, class: GateClass) {
        *self.timer(class) = None;
    }

    /// Returns the time until which the class is closed. `None`: open.
    pub(super) fn closed(&self, now: Now, class: GateClass) -> Option<Now> {
        let timer = match class {
            GateClass::Reads => self.reads,
            GateClass::Writes => self.writes,
        };
        timer.filter(|until| *until > now)
    }

    /// Returns whether both classes are open.
    pub(super) fn are_open(&self, now: Now) -> bool {
        GateClass::ALL.iter().all(|class| self.closed(now, *class).is_none())
    }

    /// Returns the reason and its end, if a write cannot start because this class is closed.
    pub(super) fn blocked(&self, now: Now, class: GateClass) -> Option<BlockedUntil> {
        self.closed(now, class).map(|until| Blocked::Throttled.until(until))
    }
}

/// Returns S0's error of the local gate: the answer to a call that meets a closed gate. Its text does not depend on
/// the time at which the gate opens.
pub(super) fn gate_closed() -> FailedCall {
    FailedCall::ours(FailureKind::GateClosed, "ARM asks to wait")
}

/// Returns the retry time named by a 429 or the ARM port's own gate (W6, S0 `nextEligibleAt`). The same call is
/// useless before it, however far away it is. `None`: no time in the future.
pub(super) fn named_until(now: Now, failure: &Failure) -> Option<Now> {
    match failure.retry_after {
        RetryAfter::In(span) => Some(now.plus(span)).filter(|at| *at > now),
        RetryAfter::Absent | RetryAfter::Invalid => None,
    }
}

/// Returns the time for which a lock closes its lane: the header, up to ten minutes, else the seconds in ARM's
/// message, else ten (W6).
pub(super) fn lock_delay(failure: &Failure) -> Duration {
    match failure.retry_after {
        RetryAfter::In(span) => span.min(MAX_DELAY),
        RetryAfter::Absent | RetryAfter::Invalid => {
            seconds_in(&failure.message).map_or(LOCK_DELAY, Duration::from_secs)
        }
    }
}

/// Returns the number in `… can be retried in 11 seconds.`, up to ten minutes.
fn seconds_in(message: &str) -> Option<u64> {
    let (_, rest) = message.split_once("retried in ")?;
    let (number, _) = rest.split_once(" second")?;
    number.trim().parse().ok().filter(|seconds| (1..=600).contains(seconds))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const NOW: Now = Now::from_millis(50_000);

    #[test]
    fn s0_throttle_1_and_2_a_span_or_date_closes_the_gate_until_then() {
        let mut gates = Gates::default();
        let header = RetryAfter::In(Duration::from_secs(17));
        let until = NOW.plus(Duration::from_secs(17));
        assert_eq!(gates.throttled(NOW, GateClass::Writes, header), Some(until));
        assert_eq!(gates.closed(NOW, GateClass::Writes), Some(until));
        assert_eq!(gates.closed(NOW, GateClass::Reads), None, "the other class stays open");
        assert_eq!(gates.closed(until, GateClass::Writes), None, "it ends at that very moment");
    }

    #[test]
    fn s0_throttle_3_an_absent_header_sets_the_timer_to_now() {
        let mut gates = Gates::default();
        assert_eq!(gates.throttled(NOW, GateClass::Reads, RetryAfter::Absent), Some(NOW));
        assert_eq!(gates.closed(NOW, GateClass::Reads), None);
    }

    #[test]
    fn s0_throttle_4_an_unreadable_header_leaves_the_timer_as_it_was() {
        let mut gates = Gates::default();
        assert_eq!(gates.throttled(NOW, GateClass::Reads, RetryAfter::Invalid), None);
        let until = gates.throttled(NOW, GateClass::Reads, RetryAfter::In(Duration::from_secs(5)));
        assert_eq!(gates.throttled(NOW, GateClass::Reads, RetryAfter::Invalid), until);
    }

    #[test]
    fn s0_throttle_5_a_write_that_meets_a_closed_gate_gets_its_time() {
        let mut gates = Gates::default();
        let until = gates.throttled(NOW, GateClass::Writes, RetryAfter::In(Duration::from_secs(9)));
        let later = NOW.plus(Duration::from_secs(8));
        assert_eq!(gates.closed(later, GateClass::Writes), until);
        assert_eq!(gates.blocked(later, GateClass::Writes).and_then(|blocked| blocked.until), until);
    }

    #[test]
    fn w6_retry_after_closes_a_gate_for_1_h_and_a_lane_for_10_min_at_most() {
        for span in [Duration::from_secs(99_999_999_999), Duration::MAX] {
            let mut gates = Gates::default();
            let hour = NOW.plus(Duration::from_secs(3_600));
            assert_eq!(gates.throttled(NOW, GateClass::Reads, RetryAfter::In(span)), Some(hour));
            let failure = Failure {
                kind: FailureKind::Status(429),
                code: Some(Arc::from("RetryableError")),
                inner_codes: Vec::new(),
                message: Arc::from(""),
                retry_after: RetryAfter::In(span),
                correlation_id: None,
            };
            assert_eq!(lock_delay(&failure), Duration::from_secs(600));
            assert_eq!(named_until(NOW, &failure), Some(NOW.plus(span)), "its own pool waits for all of it");
        }
    }

    #[test]
    fn c2_upstream_gates_stay_closed_for_as_long_as_arm_says() {
        let day = Duration::from_secs(86_400);
        let mut gates = Gates::new(Throttling::Upstream);
        assert_eq!(gates.throttled(NOW, GateClass::Writes, RetryAfter::In(day)), Some(NOW.plus(day)));
        let recorded = GateTimes { reads_until: Some(NOW.plus(2 * day)), writes_until: None };
        gates.remember(NOW, recorded);
        let blocked = gates.blocked(NOW, GateClass::Reads);
        assert_eq!(blocked, Some(Blocked::Throttled.until(NOW.plus(2 * day))));
        assert!(Throttling::Upstream.closes_gate(ThrottleScope::Lane));
        assert!(!Throttling::Bounded.closes_gate(ThrottleScope::Lane));
    }

    #[test]
    fn w6_a_lock_closes_its_lane_for_the_time_in_header_or_message() {
        let delay = |retry_after, message: &str| {
            lock_delay(&Failure {
                kind: FailureKind::Status(429),
                code: Some(Arc::from("RetryableError")),
                inner_codes: Vec::new(),
                message: Arc::from(message),
                retry_after,
                correlation_id: None,
            })
            .as_secs()
        };
        assert_eq!(delay(RetryAfter::In(Duration::from_secs(3)), "can be retried in 11 seconds."), 3);
        assert_eq!(delay(RetryAfter::Absent, "The call can be retried in 11 seconds."), 11);
        assert_eq!(delay(RetryAfter::Invalid, "The call can be retried in some seconds."), 10);
        assert_eq!(delay(RetryAfter::Absent, "can be retried in 99999999 seconds."), 10);
        assert_eq!(delay(RetryAfter::Absent, ""), 10);
    }
}
