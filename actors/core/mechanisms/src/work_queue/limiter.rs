//! The delay of a retry: each item by its own failures, and all items together by a bucket (S4).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::bucket::Bucket;
use crate::work_queue::Params;
use model::machine::Now;

/// The failures of each item, and the bucket that all items share.
#[derive(Debug)]
pub(super) struct Limiter<Item> {
    params: Params,
    failures: BTreeMap<Item, u32>,
    overall: Bucket,
}

impl<Item: Ord + Clone> Limiter<Item> {
    /// Creates a limiter without failures.
    pub fn new(params: Params) -> Limiter<Item> {
        Limiter {
            params,
            failures: BTreeMap::new(),
            overall: Bucket::per_second(params.per_second, params.burst),
        }
    }

    /// Counts a failure and returns the delay of the item: the longer of its own delay and that of the bucket. It
    /// takes a token even if the item's own delay is longer.
    pub fn count_failure(&mut self, now: Now, item: &Item) -> Duration {
        let own = self.backoff(item);
        let overall = self.overall.reserve(now).map_or(Duration::MAX, |at| at.since(now));
        own.max(overall)
    }

    /// Returns the number of failures of the item since its count was reset.
    pub fn failures(&self, item: &Item) -> u32 {
        self.failures.get(item).copied().unwrap_or_default()
    }

    /// Resets the item's failure count. Tokens that it has taken stay taken.
    pub fn forget(&mut self, item: &Item) {
        self.failures.remove(item);
    }

    /// Returns true if no item has a failure count.
    pub fn is_empty(&self) -> bool {
        self.failures.is_empty()
    }

    /// Counts a failure and returns the item's own delay, which doubles up to the maximum.
    fn backoff(&mut self, item: &Item) -> Duration {
        let failures = self.failures.entry(item.clone()).or_default();
        let wait = self.params.backoff(*failures);
        *failures = failures.saturating_add(1);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N3: Params = Params { max_backoff: Duration::from_secs(15), ..Params::S4 };

    /// Returns the delays after this many failures of one item, which occur rarely enough that the bucket is always
    /// full.
    fn waits(params: Params, failures: u64) -> Vec<Duration> {
        let mut limiter = Limiter::new(params);
        (0..failures).map(|n| limiter.count_failure(Now::from_millis(n * 1_000_000), &"demo")).collect()
    }

    #[test]
    fn s4_the_wait_of_an_item_doubles_from_5_ms_to_1000_s() {
        let waits = waits(Params::S4, 20);
        for (wait, millis) in waits.iter().zip([5, 10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 5_120]) {
            assert_eq!(*wait, Duration::from_millis(millis));
        }
        assert_eq!(waits[17..], [655_360, 1_000_000, 1_000_000].map(Duration::from_millis));
    }

    #[test]
    fn n3_an_item_waits_15_s_at_most() {
        assert_eq!(waits(N3, 14)[10..], [5_120, 10_240, 15_000, 15_000].map(Duration::from_millis));
    }

    #[test]
    fn s4_ten_thousand_failures_do_not_make_the_wait_overflow() {
        let waits = waits(Params::S4, 10_000);
        assert!(waits[18..].iter().all(|wait| *wait == Duration::from_secs(1_000)));
        let uncapped = Params { max_backoff: Duration::MAX, ..Params::S4 };
        assert!(self::waits(uncapped, 10_000).is_sorted());
    }

    #[test]
    fn a_cap_below_the_first_wait_applies() {
        let params = Params { max_backoff: Duration::from_millis(2), ..Params::S4 };
        assert_eq!(waits(params, 2), [Duration::from_millis(2); 2]);
    }

    #[test]
    fn s4_100_items_pass_at_once_and_then_10_per_second() {
        let mut limiter = Limiter::new(Params::S4);
        let waits: Vec<Duration> = (0..150).map(|item| limiter.count_failure(Now::ZERO, &item)).collect();
        assert!(waits[..100].iter().all(|wait| *wait == Duration::from_millis(5)), "each has failed once");
        for (n, wait) in (1..).zip(&waits[100..]) {
            assert_eq!(*wait, Duration::from_millis(100 * n));
        }
        let later = Now::from_millis(60_000);
        let again: Vec<Duration> = (200..301).map(|item| limiter.count_failure(later, &item)).collect();
        assert_eq!(again[99..], [5, 100].map(Duration::from_millis), "a minute fills it again");
    }

    #[test]
    fn s4_the_longer_of_both_waits_applies() {
        let mut limiter = Limiter::new(Params { burst: 2, ..Params::S4 });
        let now = Now::from_millis(7);
        let table = [("one", 5), ("one", 10), ("two", 100), ("one", 200), ("two", 300)];
        for (item, millis) in table {
            assert_eq!(limiter.count_failure(now, &item), Duration::from_millis(millis));
        }
        let later = Now::from_millis(9_000);
        assert_eq!(
            limiter.count_failure(later, &"one"),
            Duration::from_millis(40),
            "its own is the longer one again"
        );
    }

    #[test]
    fn s4_a_token_is_taken_even_if_an_items_own_wait_is_longer() {
        let mut limiter = Limiter::new(Params { burst: 11, ..Params::S4 });
        let own: Vec<Duration> = (0..11).map(|_| limiter.count_failure(Now::ZERO, &"often")).collect();
        assert_eq!(own[10], Duration::from_millis(5_120));
        assert_eq!(limiter.count_failure(Now::ZERO, &"once"), Duration::from_millis(100));
    }

    #[test]
    fn s4_each_item_has_its_own_wait_until_it_is_forgotten() {
        let mut limiter = Limiter::new(Params::S4);
        assert_eq!([0; 3].map(|_| limiter.count_failure(Now::ZERO, &"one").as_millis()), [5, 10, 20]);
        assert_eq!(limiter.count_failure(Now::ZERO, &"two"), Duration::from_millis(5));
        assert_eq!((limiter.failures(&"one"), limiter.failures(&"two")), (3, 1));
        limiter.forget(&"one");
        assert_eq!((limiter.failures(&"one"), limiter.failures(&"two")), (0, 1));
        assert_eq!(limiter.count_failure(Now::ZERO, &"one"), Duration::from_millis(5));
        ["one", "two"].iter().for_each(|item| limiter.forget(item));
        assert!(limiter.is_empty());
    }

    #[test]
    fn without_rate_or_capacity_a_retry_waits_forever() {
        let mut limiter = Limiter::new(Params { burst: 0, ..Params::S4 });
        assert_eq!(limiter.count_failure(Now::ZERO, &"demo"), Duration::MAX);
    }
}
