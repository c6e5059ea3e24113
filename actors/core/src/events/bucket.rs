//! A token bucket in whole numbers.

use std::time::Duration;

use crate::machine::Now;

/// One token, in the bucket's units: millionths.
const TOKEN: u64 = 1_000_000;

/// Lets `burst` pass at once and `per_second` over time.
#[derive(Debug)]
pub(super) struct Bucket {
    per_second: u64,
    capacity: u64,
    level: u64,
    /// When the level was last brought up to date; `None`: full since ever.
    at: Option<Now>,
}

impl Bucket {
    /// A full bucket.
    pub fn new(per_second: u32, burst: u32) -> Bucket {
        let capacity = u64::from(burst) * TOKEN;
        Bucket { per_second: u64::from(per_second), capacity, level: capacity, at: None }
    }

    /// Takes a token if there is one.
    pub fn take(&mut self, now: Now) -> bool {
        let elapsed = self.at.map_or(0, |at| now.as_micros().saturating_sub(at.as_micros()));
        self.at = Some(self.at.map_or(now, |at| at.max(now)));
        self.level = self.level.saturating_add(elapsed.saturating_mul(self.per_second)).min(self.capacity);
        let some = self.level >= TOKEN;
        if some {
            self.level -= TOKEN;
        }
        some
    }

    /// When there will be a token; `None`: never.
    pub fn next_token_at(&self) -> Option<Now> {
        if self.capacity < TOKEN {
            return None;
        }
        let missing = TOKEN.saturating_sub(self.level);
        let micros = match (missing, self.per_second) {
            (0, _) => 0,
            (_, 0) => return None,
            (missing, per_second) => missing.div_ceil(per_second),
        };
        Some(self.at.unwrap_or(Now::ZERO).plus(Duration::from_micros(micros)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e1_a_burst_passes_at_once_and_the_rate_over_time() {
        let mut bucket = Bucket::new(4, 3);
        let start = Now::from_millis(1_000);
        assert_eq!((0..5).filter(|_| bucket.take(start)).count(), 3);
        assert_eq!(bucket.next_token_at(), Some(Now::from_millis(1_250)));
        assert!(!bucket.take(Now::from_micros(1_249_999)));
        assert!(bucket.take(Now::from_millis(1_250)));
        assert_eq!((0..9).filter(|_| bucket.take(Now::from_millis(60_000))).count(), 3);
    }

    #[test]
    fn a_bucket_without_rate_or_room_never_promises_a_token() {
        let mut once = Bucket::new(0, 1);
        assert!(once.take(Now::ZERO));
        assert_eq!(once.next_token_at(), None);
        assert!(!Bucket::new(5, 0).take(Now::from_millis(9_000)));
        assert_eq!(Bucket::new(5, 0).next_token_at(), None);
    }
}
