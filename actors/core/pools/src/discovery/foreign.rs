//! When load balancers are read again because another holder released the shared Lease, and so may just have written
//! (D3):
//! two seconds after the release, at most once in 15 s. Every release is followed by a read that begins at least 2 s
//! after it.

use std::time::Duration;

use model::machine::Now;

/// Delay between a release and its round: the round then shows what was written under the Lease.
const AFTER: Duration = Duration::from_secs(2);
/// Minimum time between two such rounds.
const MIN_ROUND_INTERVAL: Duration = Duration::from_secs(15);

/// The releases that no round has followed yet.
#[derive(Default)]
pub(super) struct ForeignReleases {
    pending: Option<PendingRound>,
    /// When such a round was last requested.
    requested: Option<Now>,
}

#[derive(Clone, Copy)]
struct PendingRound {
    /// When the round is requested.
    at: Now,
    /// The last release.
    newest: Now,
}

impl ForeignReleases {
    /// Records that another holder released the Lease.
    pub(super) fn released(&mut self, now: Now) {
        let at = self.pending.map_or_else(|| self.earliest(now), |pending| pending.at);
        self.pending = Some(PendingRound { at, newest: now });
    }

    /// Returns when the next round is requested.
    pub(super) fn next_at(&self) -> Option<Now> {
        self.pending.map(|pending| pending.at)
    }

    /// Returns whether a round is requested now. A release that is too recent for this round requests one more.
    pub(super) fn requests_round(&mut self, now: Now) -> bool {
        let Some(pending) = self.pending.take_if(|pending| pending.at <= now) else {
            return false;
        };
        self.requested = Some(now);
        if pending.newest.plus(AFTER) > now {
            self.pending = Some(PendingRound { at: self.earliest(pending.newest), newest: pending.newest });
        }
        true
    }

    fn earliest(&self, released: Now) -> Now {
        let at = released.plus(AFTER);
        self.requested.map_or(at, |requested| at.max(requested.plus(MIN_ROUND_INTERVAL)))
    }
}
