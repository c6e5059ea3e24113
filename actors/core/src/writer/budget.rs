//! How many calls may be made: token buckets for reads and writes (design.md W9).
//!
//! A bucket holds what is configured for five minutes and is filled continuously. Which call goes first is
//! [`super::calls`]' business.

use std::time::Duration;

use crate::machine::Now;
use crate::sample::GateClass;

/// The parts of a token: one microsecond fills as many of them as calls are allowed in five minutes, so that
/// all arithmetic is exact.
const TOKEN: i128 = 300_000_000;

/// The share of the read budget that discovery may use: two fifths (D3).
const DISCOVERY: (u32, u32) = (2, 5);

/// A token bucket.
#[derive(Clone, Debug)]
struct Bucket {
    /// Calls in five minutes: both what it holds at most and how fast it fills.
    calls: u32,
    /// What it held at `at`, in parts of a token; negative: in debt.
    parts: i128,
    at: Now,
}

impl Bucket {
    fn full(calls: u32) -> Bucket {
        Bucket { calls, parts: i128::from(calls) * TOKEN, at: Now::ZERO }
    }

    fn parts(&self, now: Now) -> i128 {
        let elapsed = i128::from(now.as_micros().saturating_sub(self.at.as_micros()));
        let capacity = i128::from(self.calls) * TOKEN;
        (self.parts + elapsed * i128::from(self.calls)).min(capacity)
    }

    fn has_one(&self, now: Now) -> bool {
        self.parts(now) >= TOKEN
    }

    fn add(&mut self, now: Now, tokens: i128) {
        let capacity = i128::from(self.calls) * TOKEN;
        self.parts = (self.parts(now) + tokens * TOKEN).min(capacity);
        self.at = self.at.max(now);
    }

    /// When it holds a whole token; `None`: never.
    fn ready_at(&self, now: Now) -> Option<Now> {
        let missing = TOKEN - self.parts(now);
        if missing <= 0 {
            return Some(now);
        }
        if self.calls == 0 {
            return None;
        }
        let rate = i128::from(self.calls);
        let micros = (missing + rate - 1) / rate;
        Some(now.plus(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))))
    }

    #[expect(clippy::cast_precision_loss, reason = "shown to people")]
    fn tokens(&self, now: Now) -> f64 {
        self.parts(now) as f64 / TOKEN as f64
    }
}

/// The budgets of both verb classes, and discovery's part of the reads.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    reads: Bucket,
    writes: Bucket,
    discovery: Bucket,
}

impl Budget {
    /// Full buckets for so many reads and writes in five minutes.
    pub(super) fn new(reads: u32, writes: u32) -> Budget {
        let (part, whole) = DISCOVERY;
        let discovery = (reads / whole * part + reads % whole * part / whole).max(reads.min(1));
        Budget {
            reads: Bucket::full(reads),
            writes: Bucket::full(writes),
            discovery: Bucket::full(discovery),
        }
    }

    fn bucket(&self, class: GateClass) -> &Bucket {
        match class {
            GateClass::Reads => &self.reads,
            GateClass::Writes => &self.writes,
        }
    }

    fn bucket_mut(&mut self, class: GateClass) -> &mut Bucket {
        match class {
            GateClass::Reads => &mut self.reads,
            GateClass::Writes => &mut self.writes,
        }
    }

    /// Whether one call of the class may be made.
    pub(super) fn allows(&self, now: Now, class: GateClass) -> bool {
        self.bucket(class).has_one(now)
    }

    /// Whether discovery may make one read.
    pub(super) fn allows_discovery(&self, now: Now) -> bool {
        self.reads.has_one(now) && self.discovery.has_one(now)
    }

    /// Spends one call. It may leave a debt: what must be sent is sent, and what follows waits longer.
    pub(super) fn spend(&mut self, now: Now, class: GateClass) {
        self.bucket_mut(class).add(now, -1);
    }

    /// Spends one read of discovery's.
    pub(super) fn spend_discovery(&mut self, now: Now) {
        self.reads.add(now, -1);
        self.discovery.add(now, -1);
    }

    /// Gives back a call that was set aside and not made.
    pub(super) fn refund(&mut self, now: Now, class: GateClass) {
        self.bucket_mut(class).add(now, 1);
    }

    /// When one call of the class may be made; `None`: never.
    pub(super) fn ready_at(&self, now: Now, class: GateClass) -> Option<Now> {
        self.bucket(class).ready_at(now)
    }

    /// When discovery may make one read; `None`: never.
    pub(super) fn discovery_ready_at(&self, now: Now) -> Option<Now> {
        Some(self.reads.ready_at(now)?.max(self.discovery.ready_at(now)?))
    }

    /// Whole and broken tokens of the class, and the most it can hold; for people.
    pub(super) fn shown(&self, now: Now, class: GateClass) -> (f64, f64) {
        let bucket = self.bucket(class);
        (bucket.tokens(now).max(0.0), f64::from(bucket.calls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w9_a_bucket_holds_five_minutes_of_calls_and_fills_continuously() {
        let mut budget = Budget::new(300, 2);
        let now = Now::from_millis(7);
        for _ in 0..2 {
            assert!(budget.allows(now, GateClass::Writes));
            budget.spend(now, GateClass::Writes);
        }
        assert!(!budget.allows(now, GateClass::Writes));
        let ready = budget.ready_at(now, GateClass::Writes).expect("it fills");
        assert_eq!(ready, now.plus(Duration::from_secs(150)));
        assert!(!budget.allows(ready.minus(Duration::from_micros(1)), GateClass::Writes));
        assert!(budget.allows(ready, GateClass::Writes), "exactly then, without rounding");
        let late = now.plus(Duration::from_secs(3_000));
        assert_eq!(
            budget.shown(late, GateClass::Writes),
            (2.0, 2.0),
            "it never holds more than its capacity"
        );
    }

    #[test]
    fn d3_discovery_uses_at_most_two_fifths_of_the_read_budget() {
        let mut budget = Budget::new(10, 1);
        let mut made = 0;
        while budget.allows_discovery(Now::ZERO) {
            budget.spend_discovery(Now::ZERO);
            made += 1;
        }
        assert_eq!(made, 4);
        assert!(budget.allows(Now::ZERO, GateClass::Reads), "the rest is left for writes");
        assert!(budget.discovery_ready_at(Now::ZERO) > budget.ready_at(Now::ZERO, GateClass::Reads));
    }

    #[test]
    fn w9_a_budget_of_nothing_never_allows_anything_and_is_no_reason_to_wake() {
        let budget = Budget::new(0, 0);
        assert!(!budget.allows(Now::from_millis(1 << 40), GateClass::Reads));
        assert_eq!(budget.ready_at(Now::ZERO, GateClass::Writes), None);
        assert_eq!(budget.discovery_ready_at(Now::ZERO), None);
    }

    #[test]
    fn w9_a_refund_never_overfills_and_a_debt_is_paid_by_time() {
        let mut budget = Budget::new(1, 1);
        budget.refund(Now::ZERO, GateClass::Writes);
        assert_eq!(budget.shown(Now::ZERO, GateClass::Writes), (1.0, 1.0));
        budget.spend(Now::ZERO, GateClass::Writes);
        budget.spend(Now::ZERO, GateClass::Writes);
        assert_eq!(budget.ready_at(Now::ZERO, GateClass::Writes), Some(Now::from_millis(600_000)));
    }
}
