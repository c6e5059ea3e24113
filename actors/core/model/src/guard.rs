//! Configuration of the guards that hold back removals (docs/design/pools.md, G1-G6). The Directory applies them.

use std::time::Duration;

/// The effect of a guard that objects to a removal (G5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum GuardMode {
    /// The removal is held back.
    #[default]
    Enforce,
    /// The removal is carried out, and shown, counted and reported as one that would be held back.
    Observe,
    /// Guards are not evaluated.
    Off,
}

impl GuardMode {
    /// Every mode.
    pub const ALL: [GuardMode; 3] = [GuardMode::Enforce, GuardMode::Observe, GuardMode::Off];

    /// Returns the value in configuration and in the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            GuardMode::Enforce => "enforce",
            GuardMode::Observe => "observe",
            GuardMode::Off => "off",
        }
    }

    /// Returns true if guards are evaluated.
    #[must_use]
    pub fn judges(self) -> bool {
        match self {
            GuardMode::Enforce | GuardMode::Observe => true,
            GuardMode::Off => false,
        }
    }

    /// Returns true if guards are evaluated but removals are carried out.
    #[must_use]
    pub fn only_observes(self) -> bool {
        match self {
            GuardMode::Observe => true,
            GuardMode::Enforce | GuardMode::Off => false,
        }
    }
}

/// The minimum age of a doubt before it can be resolved, and the minimum interval between second reads (G2).
pub const DOUBTFUL_FOR: Duration = Duration::from_secs(30);

/// A fraction from 0 to 1, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fraction {
    millionths: u32,
}

impl Fraction {
    /// The fraction 1, in millionths.
    const WHOLE: u32 = 1_000_000;

    /// Creates a fraction; more than a million counts as a million.
    #[must_use]
    pub const fn millionths(millionths: u32) -> Fraction {
        Fraction { millionths: if millionths > Fraction::WHOLE { Fraction::WHOLE } else { millionths } }
    }

    /// Returns true if `some` of `all` exceed this fraction.
    #[must_use]
    pub fn is_exceeded_by(self, some: usize, all: usize) -> bool {
        let (some, all) = (some as u128, all as u128);
        some * u128::from(Fraction::WHOLE) > all * u128::from(self.millionths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g3_exactly_the_fraction_does_not_exceed_it() {
        let half = Fraction::millionths(500_000);
        assert!(!half.is_exceeded_by(2, 4) && half.is_exceeded_by(3, 4) && half.is_exceeded_by(2, 3));
        assert!(!Fraction::millionths(2_000_000).is_exceeded_by(4, 4), "never more than all");
        assert!(
            Fraction::millionths(0).is_exceeded_by(1, 4) && !Fraction::millionths(0).is_exceeded_by(0, 4)
        );
    }
}
