//! The way in for those whom the API server judges: who asks it, and how many of those whom it turns away are told of in
//! the log. Any client that reaches a listener can cause any number of refusals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use actors::kubernetes::Reviewer;
use tokio::time::Instant;

/// The seconds of one period.
const PERIOD_S: u64 = 10;
/// How many are told of in one period.
const TOLD: u64 = 20;

/// One way in, and its clones.
#[derive(Clone)]
pub(super) struct Door {
    /// Who has the API server judge who asks.
    pub(super) reviewer: Reviewer,
    opened: Instant,
    refused: Arc<TurnedAway>,
    unanswered: Arc<TurnedAway>,
}

impl Door {
    /// One that has refused no client yet.
    pub(super) fn new(reviewer: Reviewer) -> Door {
        Door { reviewer, opened: Instant::now(), refused: Arc::default(), unanswered: Arc::default() }
    }

    /// Whether the log is to tell of one more whom the API server has refused now, and how many it has not told of since
    /// the last one; `None`: it is not.
    pub(super) fn tells_of_refused(&self) -> Option<u64> {
        self.refused.one_more(self.opened.elapsed().as_secs())
    }

    /// The same of one on whom the API server has said nothing.
    pub(super) fn tells_of_unanswered(&self) -> Option<u64> {
        self.unanswered.one_more(self.opened.elapsed().as_secs())
    }
}

/// How many were told of in this period, and how many were not since. It is counted on the threads of the listeners.
#[derive(Default, Debug)]
struct TurnedAway {
    /// The period, and how many were told of in it: `period × (TOLD + 1) + told`.
    told: AtomicU64,
    untold: AtomicU64,
}

impl TurnedAway {
    fn one_more(&self, now_s: u64) -> Option<u64> {
        let period = now_s / PERIOD_S * (TOLD + 1);
        let next = |told: u64| Some(told.max(period) + 1).filter(|next| *next <= period + TOLD);
        match self.told.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Some(self.untold.swap(0, Ordering::Relaxed)),
            Err(_) => {
                self.untold.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h2_few_refusals_are_logged_with_the_number_of_others() {
        let turned_away = TurnedAway::default();
        for _ in 0..TOLD {
            assert_eq!(turned_away.one_more(0), Some(0));
        }
        for second in 0..PERIOD_S {
            assert_eq!(turned_away.one_more(second), None);
        }
        assert_eq!(turned_away.one_more(PERIOD_S), Some(PERIOD_S), "the next period tells of the others");
        for _ in 1..TOLD {
            assert_eq!(turned_away.one_more(2 * PERIOD_S - 1), Some(0));
        }
        assert_eq!(turned_away.one_more(PERIOD_S), None);
        assert_eq!(turned_away.one_more(100 * PERIOD_S), Some(1));
    }
}
