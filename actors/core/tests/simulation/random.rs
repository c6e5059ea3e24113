//! The simulation's own random numbers: one seed determines everything, on every computer.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the stream of this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns a separate stream, so that draws in one part of the world do not affect another part.
    pub fn fork(&mut self) -> Random {
        Random(self.next() ^ 0x5851_f42d_4c95_7f2d)
    }

    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, or 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Returns a number from `low` up to, not including, `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low))
    }

    /// Returns true in this many of a thousand cases.
    pub fn per_mille(&mut self, cases: u64) -> bool {
        self.below(1_000) < cases
    }

    /// Returns an index into a list of this length, or 0.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("a place in a list is a usize")
    }

    /// Returns one of the items.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let index = self.index(of.len());
        of.get(index).cloned()
    }
}
