//! The times at which something is checked again after it changed.

use std::time::Duration;

use model::machine::Now;

/// The times of the checks of one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recheck {
    offsets: &'static [Duration],
    since: Now,
    next: usize,
}

impl Recheck {
    /// Creates the checks at these times, counted from `since`.
    #[must_use]
    pub fn new(offsets: &'static [Duration], since: Now) -> Recheck {
        Recheck { offsets, since, next: 0 }
    }

    /// Returns the time from which the times of the checks count.
    #[must_use]
    pub fn since(&self) -> Now {
        self.since
    }

    /// Returns the time of the next check; `None` after the last one.
    #[must_use]
    pub fn at(&self) -> Option<Now> {
        self.offsets.get(self.next).map(|offset| self.since.plus(*offset))
    }

    /// Returns true if the next check is the first one.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.next == 0
    }

    /// Ends the next check, and moves on to the one after it.
    pub fn advance(&mut self) {
        self.next = self.next.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFSETS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

    #[test]
    fn each_recheck_is_due_at_its_delay_after_the_change() {
        let mut looks = Recheck::new(&OFFSETS, Now::from_millis(10_000));
        assert_eq!((looks.at(), looks.is_first()), (Some(Now::from_millis(11_000)), true));
        looks.advance();
        assert_eq!((looks.at(), looks.is_first()), (Some(Now::from_millis(14_000)), false));
        looks.advance();
        looks.advance();
        assert_eq!((looks.at(), looks.is_first()), (None, false));
        assert_eq!(looks.since(), Now::from_millis(10_000));
    }

    #[test]
    fn without_delays_nothing_is_rechecked() {
        assert_eq!(Recheck::new(&[], Now::ZERO).at(), None);
    }
}
