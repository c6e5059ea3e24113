//! What is configured of the guards that hold back removals (docs/design/pools.md, G1-G6). The Directory judges by it.

use std::time::Duration;

/// What becomes of a removal that a guard objects to (G5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum GuardMode {
    /// It is held back.
    #[default]
    Enforce,
    /// It goes; that it would be held back is shown, counted and told.
    Observe,
    /// It is not judged.
    Off,
}

impl GuardMode {
    /// Every mode.
    pub const ALL: [GuardMode; 3] = [GuardMode::Enforce, GuardMode::Observe, GuardMode::Off];

    /// The word for configuration and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            GuardMode::Enforce => "enforce",
            GuardMode::Observe => "observe",
            GuardMode::Off => "off",
        }
    }

    /// Whether removals are judged.
    #[must_use]
    pub fn judges(self) -> bool {
        match self {
            GuardMode::Enforce | GuardMode::Observe => true,
            GuardMode::Off => false,
        }
    }

    /// Whether what is judged goes nevertheless.
    #[must_use]
    pub fn only_observes(self) -> bool {
        match self {
            GuardMode::Observe => true,
            GuardMode::Enforce | GuardMode::Off => false,
        }
    }
}

/// How old a doubt is before it may be resolved, and how far apart second reads are at least (G2).
pub const DOUBTFUL_FOR: Duration = Duration::from_secs(30);

/// A part of a whole, from nothing to all of it, to a millionth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fraction {
    millionths: u32,
}

impl Fraction {
    /// The whole, in millionths.
    const WHOLE: u32 = 1_000_000;

    /// So many millionths; more than the whole counts as the whole.
    #[must_use]
    pub const fn millionths(millionths: u32) -> Fraction {
        Fraction { millionths: if millionths > Fraction::WHOLE { Fraction::WHOLE } else { millionths } }
    }

    /// Whether `some` of `all` are more than this part.
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
    fn g3_a_fraction_is_exceeded_by_more_than_it_alone() {
        let half = Fraction::millionths(500_000);
        assert!(!half.is_exceeded_by(2, 4) && half.is_exceeded_by(3, 4) && half.is_exceeded_by(2, 3));
        assert!(!Fraction::millionths(2_000_000).is_exceeded_by(4, 4), "never more than all");
        assert!(
            Fraction::millionths(0).is_exceeded_by(1, 4) && !Fraction::millionths(0).is_exceeded_by(0, 4)
        );
    }
}
