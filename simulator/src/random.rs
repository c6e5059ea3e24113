//! A deterministic stream of numbers (splitmix64), so that a seed determines all changes of a run.

/// The stream.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the stream of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`; 0 if the bound is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = bound.max(1) as u64;
        // The high bits of the product: sufficiently uniform for scenarios, and without a loop.
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        usize::try_from(wide >> 64).expect("the high half is below the bound, which was a usize")
    }

    /// Returns true with a probability of `percent` / 100.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        assert_eq!(
            [random.next_u64(), random.next_u64()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
        );
    }

    #[test]
    fn a_bounded_number_reaches_every_value() {
        let mut random = Random::new(7);
        let mut counts = [0_u32; 5];
        for _ in 0..500 {
            counts[random.below(5)] += 1;
        }
        assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
        assert_eq!(random.below(0), 0);
    }
}
