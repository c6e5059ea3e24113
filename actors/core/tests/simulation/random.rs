//! The simulation's own randomness: one seed decides everything, on every machine.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A stream of its own, so that what one part of the world draws does not move another part.
    pub fn fork(&mut self) -> Random {
        Random(self.next() ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, or 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// A number from `low` up to, not including, `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low))
    }

    /// True in so many of a thousand cases.
    pub fn per_mille(&mut self, cases: u64) -> bool {
        self.below(1_000) < cases
    }

    /// A place in a list of this length, or 0.
    pub fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("a place in a list is a usize")
    }

    /// One of them.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let place = self.place(of.len());
        of.get(place).cloned()
    }
}
