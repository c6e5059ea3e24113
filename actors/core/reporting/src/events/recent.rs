//! A map that forgets what was used longest ago, so that what is remembered stays bounded.

use std::collections::BTreeMap;

/// At most `capacity` entries; the least recently used goes first.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    capacity: usize,
    /// Each entry, and when it was last used.
    entries: BTreeMap<K, (u64, V)>,
    /// The entries in the order of their last use.
    order: BTreeMap<u64, K>,
    /// The number of the last use.
    uses: u64,
}

impl<K: Ord + Clone, V> Recent<K, V> {
    /// An empty map for at most so many entries.
    pub fn new(capacity: usize) -> Recent<K, V> {
        Recent { capacity, entries: BTreeMap::new(), order: BTreeMap::new(), uses: 0 }
    }

    /// How many entries there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether each entry stands once in the order, and there are no more than may be.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.entries.len() > self.capacity {
            return Err("more is remembered than may be");
        }
        if self.entries.len() != self.order.len() {
            return Err("what is remembered and the order of its use differ");
        }
        Ok(())
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (used, value) = self.entries.remove(key)?;
        self.order.remove(&used);
        Some(value)
    }

    /// Puts an entry in as the one used last.
    pub fn insert(&mut self, key: K, value: V) {
        self.remove(&key);
        self.uses += 1;
        self.order.insert(self.uses, key.clone());
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
    fn e1_what_was_used_longest_ago_is_forgotten_first() {
        let mut recent = Recent::new(2);
        recent.insert("a", 1);
        recent.insert("b", 2);
        recent.insert("a", 3);
        recent.insert("c", 4);
        assert_eq!((recent.remove(&"b"), recent.remove(&"a"), recent.remove(&"c")), (None, Some(3), Some(4)));
        assert_eq!((recent.len(), recent.check()), (0, Ok(())));
    }
}
