//! When load balancers are read again because another holder has released the shared Lease, and so may just have
//! written (D3): 2 s after it, at most once in 15 s. No release is without a read that begins 2 s after it or later.

use std::time::Duration;

use model::machine::Now;

/// How long after a release the round comes: what was written with the Lease is seen then.
const AFTER: Duration = Duration::from_secs(2);
/// The least time between two such rounds.
const EVERY: Duration = Duration::from_secs(15);

/// The releases that no round has followed yet.
#[derive(Default)]
pub(super) struct Foreign {
    waiting: Option<Waiting>,
    /// When such a round was last asked for.
    asked: Option<Now>,
}

#[derive(Clone, Copy)]
struct Waiting {
    /// When the round is asked for.
    at: Now,
    /// The last release.
    newest: Now,
}

impl Foreign {
    /// Another holder has let go.
    pub(super) fn released(&mut self, now: Now) {
        let at = self.waiting.map_or_else(|| self.earliest(now), |waiting| waiting.at);
        self.waiting = Some(Waiting { at, newest: now });
    }

    /// When a round is asked for.
    pub(super) fn next_at(&self) -> Option<Now> {
        self.waiting.map(|waiting| waiting.at)
    }

    /// Whether a round is asked for now. A release that is too young for it asks for one more.
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
