//! A token bucket in whole numbers, with reservations of future tokens. ARM's budget
//! (`actors/core/writer/src/budget.rs`) is a different bucket: its rate changes, and it reserves shares.

use std::time::Duration;

use model::machine::Now;

/// A token bucket: allows `burst` tokens at once, and one more after each `refill`.
#[derive(Debug)]
pub struct Bucket {
    /// One token, in the bucket's units: microseconds of refilling. Zero: no refilling.
    token: u64,
    capacity: u64,
    level: u64,
    /// When the level was last updated, or the time until which all refilled tokens are reserved. `None`: the bucket
    /// is still full.
    at: Option<Now>,
}

impl Bucket {
    /// Creates a full bucket. With a `refill` of zero it is never refilled.
    pub fn new(refill: Duration, burst: u32) -> Bucket {
        let token = u64::try_from(refill.as_micros()).unwrap_or(u64::MAX);
        let capacity = u64::from(burst).saturating_mul(token.max(1));
        Bucket { token, capacity, level: capacity, at: None }
    }

    /// Creates a full bucket that allows `count` tokens per second; 0: only the burst.
    pub fn per_second(count: u32, burst: u32) -> Bucket {
        Bucket::new(Duration::from_secs(1).checked_div(count).unwrap_or_default(), burst)
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Now) -> bool {
        self.refill(now);
        let has_token = self.level >= self.token.max(1);
        if has_token {
            self.level -= self.token.max(1);
        }
        has_token
    }

    /// Takes the next token, even before it is refilled, and returns when it is refilled. `None`: never.
    pub fn reserve(&mut self, now: Now) -> Option<Now> {
        self.refill(now);
        let at = self.next_token_at()?;
        self.refill(at);
        self.level = self.level.saturating_sub(self.token.max(1));
        Some(at)
    }

    /// Returns when the next token is available; `None`: never.
    pub fn next_token_at(&self) -> Option<Now> {
        let token = self.token.max(1);
        if self.capacity < token {
            return None;
        }
        match (token.saturating_sub(self.level), self.token) {
            (0, _) => Some(self.at.unwrap_or(Now::ZERO)),
            (_, 0) => None,
            (missing, _) => Some(self.at.unwrap_or(Now::ZERO).plus(Duration::from_micros(missing))),
        }
    }

    /// Updates the level to the time `until`.
    fn refill(&mut self, until: Now) {
        let elapsed = self.at.map_or(0, |at| until.as_micros().saturating_sub(at.as_micros()));
        self.at = Some(self.at.map_or(until, |at| at.max(until)));
        if self.token > 0 {
            self.level = self.level.saturating_add(elapsed).min(self.capacity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e1_a_burst_passes_immediately_and_then_the_rate_applies() {
        let mut bucket = Bucket::per_second(4, 3);
        let start = Now::from_millis(1_000);
        assert_eq!((0..5).filter(|_| bucket.take(start)).count(), 3);
        assert_eq!(bucket.next_token_at(), Some(Now::from_millis(1_250)));
        assert!(!bucket.take(Now::from_micros(1_249_999)));
        assert!(bucket.take(Now::from_millis(1_250)));
        assert_eq!((0..9).filter(|_| bucket.take(Now::from_millis(60_000))).count(), 3);
    }

    #[test]
    fn a_bucket_without_rate_or_room_never_promises_a_token() {
        let mut once = Bucket::per_second(0, 1);
        assert!(once.take(Now::ZERO));
        assert!(!once.take(Now::from_millis(9_000)));
        assert_eq!(once.next_token_at(), None);
        assert_eq!(once.reserve(Now::from_millis(9_000)), None);
        assert!(!Bucket::per_second(5, 0).take(Now::from_millis(9_000)));
        assert_eq!(Bucket::per_second(5, 0).next_token_at(), None);
        assert_eq!(Bucket::per_second(5, 0).reserve(Now::ZERO), None);
    }

    #[test]
    fn s4_tokens_are_reserved_before_refill_each_for_its_own_time() {
        let mut bucket = Bucket::per_second(10, 2);
        let mut reserve = |ms| bucket.reserve(Now::from_millis(ms)).map(|at| at.as_micros() / 1_000);
        assert_eq!([1_000; 5].map(&mut reserve), [1_000, 1_000, 1_100, 1_200, 1_300].map(Some));
        assert_eq!(reserve(1_250), Some(1_400), "what is refilled until 1,300 is reserved");
        assert_eq!(reserve(1_450), Some(1_500), "half a token is there");
        assert_eq!([9_000; 3].map(&mut reserve), [9_000, 9_000, 9_100].map(Some), "it holds two at most");
    }

    #[test]
    fn a_reserved_token_is_not_taken() {
        let mut bucket = Bucket::per_second(10, 1);
        assert_eq!(bucket.reserve(Now::ZERO), Some(Now::ZERO));
        assert_eq!(bucket.reserve(Now::ZERO), Some(Now::from_millis(100)));
        assert!(!bucket.take(Now::from_millis(100)));
        assert_eq!(bucket.next_token_at(), Some(Now::from_millis(200)));
        assert!(bucket.take(Now::from_millis(200)));
    }
}
