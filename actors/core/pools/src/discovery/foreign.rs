//! When load balancers are read again because another holder released the shared Lease, and so may just have written
//! (D3):
//! two seconds after the release, at most once in 15 s. Every release is followed by a read that begins at least 2 s
//! after it.

use std::time::Duration;

use model::machine::Now;

/// Delay between a release and its round: the round then shows what was written under the Lease.
const AFTER: Duration = Duration::from_secs(2);
/// Least time between two such rounds.
const EVERY: Duration = Duration::from_secs(15);

/// The releases that no round has followed yet.
#[derive(Default)]
pub(super) struct Foreign {
    waiting: Option<Waiting>,
    /// When such a round was last requested.
    asked: Option<Now>,
}

#[derive(Clone, Copy)]
struct Waiting {
    /// When the round is requested.
    at: Now,
    /// The last release.
    newest: Now,
}

impl Foreign {
    /// Records that another holder released the Lease.
    pub(super) fn released(&mut self, now: Now) {
        let at = self.waiting.map_or_else(|| self.earliest(now), |waiting| waiting.at);
        self.waiting = Some(Waiting { at, newest: now });
    }

    /// Returns when the next round is requested.
    pub(super) fn next_at(&self) -> Option<Now> {
        self.waiting.map(|waiting| waiting.at)
    }

    /// Returns whether a round is requested now. A release that is too recent for this round requests one more.
    pub(super) fn asks(&mut self, now: Now) -> bool {
        let Some(waiting) = self.waiting.take_if(|waiting| waiting.at <= now) else {
            return false;
        };
        self.asked = Some(now);
        if waiting.newest.plus(AFTER) > now {
            self.waiting = Some(Waiting { at: self.earliest(waiting.newest), newest: waiting.newest });
        }
        true
    }

    fn earliest(&self, released: Now) -> Now {
        let at = released.plus(AFTER);
        self.asked.map_or(at, |asked| at.max(asked.plus(EVERY)))
    }
}
