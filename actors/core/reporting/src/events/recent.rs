//! A map that drops the least recently used entries, so that memory stays bounded.

use std::collections::BTreeMap;
use std::sync::Arc;

/// At most `capacity` entries; the least recently used is dropped first.
#[derive(Debug)]
pub(super) struct LruMap<K, V> {
    capacity: usize,
    /// Each entry, with the number of its last use.
    entries: BTreeMap<Arc<K>, (u64, V)>,
    /// The entries in the order of their last use.
    order: BTreeMap<u64, Arc<K>>,
    /// The number of the last use.
    uses: u64,
}

impl<K: Ord, V> LruMap<K, V> {
    /// Creates an empty map for at most this many entries.
    pub fn new(capacity: usize) -> LruMap<K, V> {
        LruMap { capacity, entries: BTreeMap::new(), order: BTreeMap::new(), uses: 0 }
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Checks that each entry occurs once in the order, and that there are not too many.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.entries.len() > self.capacity {
            return Err("more is remembered than may be");
        }
        if self.entries.len() != self.order.len() {
            return Err("what is remembered and the order of its use differ");
        }
        Ok(())
    }

    /// Removes and returns an entry.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (used, value) = self.entries.remove(key)?;
        self.order.remove(&used);
        Some(value)
    }

    /// Inserts an entry as the most recently used one.
    pub fn insert(&mut self, key: impl Into<Arc<K>>, value: V) {
        let key = key.into();
        self.remove(&key);
        self.uses += 1;
        self.order.insert(self.uses, Arc::clone(&key));
        self.entries.insert(key, (self.uses, value));
        while self.entries.len() > self.capacity {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e1_the_least_recently_used_entry_is_dropped_first() {
        let mut recent = LruMap::new(2);
        recent.insert("a", 1);
        recent.insert("b", 2);
        recent.insert("a", 3);
        recent.insert("c", 4);
        assert_eq!((recent.remove(&"b"), recent.remove(&"a"), recent.remove(&"c")), (None, Some(3), Some(4)));
        assert_eq!((recent.len(), recent.check()), (0, Ok(())));
    }
}
