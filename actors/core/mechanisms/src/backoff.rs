//! The delays between tries, as a list (docs/design/model-and-mechanisms.md).

use std::time::Duration;

/// The delays after consecutive failures. The last one repeats; an empty list means no delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff(pub &'static [Duration]);

impl Backoff {
    /// Returns the delay after a failure that follows `earlier` others in a row.
    #[must_use]
    pub fn delay(self, earlier: u32) -> Duration {
        let at = usize::try_from(earlier).unwrap_or(usize::MAX);
        self.0.get(at).or(self.0.last()).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_follow_their_list_and_the_last_one_repeats() {
        const DELAYS: Backoff =
            Backoff(&[Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5)]);
        let seconds = [0, 1, 2, 3, u32::MAX].map(|earlier| DELAYS.delay(earlier).as_secs());
        assert_eq!(seconds, [1, 2, 5, 5, 5]);
        assert_eq!(Backoff(&[]).delay(7), Duration::ZERO);
    }
}
