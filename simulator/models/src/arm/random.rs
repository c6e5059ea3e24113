//! The model's own deterministic random numbers: one seed, no clock, no crate.

use std::fmt;

/// SplitMix64: small, fast, and the same on every platform.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in `[0, 1)`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns true with the given probability; 0 or less never, 1 or more always.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// Returns a standard normal number (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Returns a version 4 GUID.
    pub(crate) fn guid(&mut self) -> Guid {
        let high = self.next_u64() & !0xF000 | 0x4000;
        let low = self.next_u64() & !(0x3 << 62) | (0x2 << 62);
        Guid(high, low)
    }
}

/// A GUID in two halves, printed in lower case with dashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Guid(u64, u64);

impl Guid {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let dashes = |at: usize| matches!(at, 8 | 13 | 18 | 23);
        let shaped = bytes
            .iter()
            .enumerate()
            .all(|(at, byte)| if dashes(at) { *byte == b'-' } else { byte.is_ascii_hexdigit() });
        if bytes.len() != 36 || !shaped {
            return None;
        }
        let digits = text.replace('-', "");
        let half = |range| u64::from_str_radix(&digits[range], 16).ok();
        Some(Self(half(0..16)?, half(16..32)?))
    }

    /// Returns the GUID folded into 64 bits, to seed a signature.
    pub(crate) fn folded(self) -> u64 {
        self.0 ^ self.1.rotate_left(32)
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(high, low) = self;
        write!(f, "{:08x}-{:04x}-{:04x}", high >> 32, high >> 16 & 0xFFFF, high & 0xFFFF)?;
        write!(f, "-{:04x}-{:012x}", low >> 48, low & 0xFFFF_FFFF_FFFF)
    }
}
