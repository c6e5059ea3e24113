//! The service controller's queue. It contains each Service at most once; failed Services return with increasing delay.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::facts::Key;
use super::reconcile::Purpose;

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Work {
    ready: VecDeque<Key>,
    wanted: BTreeMap<Key, Purpose>,
    delayed: BTreeSet<(u64, Key)>,
    failures: BTreeMap<Key, u32>,
}

impl Work {
    /// Adds a Service; the stronger purpose wins.
    pub(super) fn add(&mut self, key: &str, purpose: Purpose) {
        match self.wanted.get_mut(key) {
            Some(known) => *known = purpose.max(*known),
            None => {
                self.wanted.insert(key.to_owned(), purpose);
                self.ready.push_back(key.to_owned());
            }
        }
    }

    /// Adds a Service after a failure.
    pub(super) fn retry(&mut self, key: &str, now: u64, first_us: u64, longest_us: u64) {
        let failures = self.failures.entry(key.to_owned()).or_default();
        let delay = first_us.saturating_mul(1 << (*failures).min(40)).min(longest_us);
        *failures += 1;
        self.delayed.retain(|(_, known)| known != key);
        self.delayed.insert((now.saturating_add(delay), key.to_owned()));
    }

    /// Resets the delay after a success.
    pub(super) fn succeeded(&mut self, key: &str) {
        self.failures.remove(key);
    }

    /// Moves the Services whose delay has passed to the queue.
    pub(super) fn mature(&mut self, now: u64) {
        while self.delayed.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, key)) = self.delayed.pop_first() {
                self.add(&key, Purpose::Ensure);
            }
        }
    }

    pub(super) fn next(&mut self) -> Option<(Key, Purpose)> {
        let key = self.ready.pop_front()?;
        let purpose = self.wanted.remove(&key)?;
        Some((key, purpose))
    }

    /// Returns the time at which the first retry is due.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.delayed.first().map(|(at, _)| *at)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.delayed.is_empty()
    }
}
