//! Why a pool without waiting changes rests, and when it is compared again by itself (Q6, Q8, W2).

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::arm::{Failure, FailureKind};
use crate::machine::Now;

/// The longest of every doubling delay.
pub(super) const LONGEST_DELAY: Duration = Duration::from_secs(600);

/// Three lost writes within this span make the pool back off (W2, W11).
const LOSSES_WITHIN: Duration = Duration::from_secs(600);
const LOSSES_ALLOWED: usize = 3;
const FIRST_LOSS_DELAY: Duration = Duration::from_secs(60);

/// Doubles a delay, up to the longest.
pub(super) fn doubled(delay: Duration) -> Duration {
    delay.saturating_mul(2).min(LONGEST_DELAY)
}

/// How things stood at the last comparison.
#[derive(Clone, Debug)]
pub(super) enum Rest {
    /// Nothing is certain: the next observation tells.
    Unknown,
    /// It was right; a difference is drift.
    Right,
    /// A failure was reported; the pool is compared again by the clock, not by observations (Q8).
    Failed(Failed),
    /// It was not there or not manageable; compared again after an observation, not before the moment (Q6, D2).
    Backoff(Backoff),
    /// A dry run showed what it would do; nothing new until the level or these members change (C4).
    Withheld {
        /// What the pool held.
        members: BTreeSet<IpAddr>,
    },
}

/// A failure that was reported.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    /// Which.
    pub fault: Fault,
    /// When the pool is compared again; `None`: only a slice event or a person starts it again.
    pub compare_at: Option<Now>,
    /// How long that was after the failure.
    pub delay: Duration,
}

/// What makes two failures the same one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    kind: FailureKind,
    code: Option<Arc<str>>,
}

impl Fault {
    pub fn of(failure: &Failure) -> Fault {
        Fault { kind: failure.kind, code: failure.code.clone() }
    }
}

/// A doubling delay before the next comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    pub until: Now,
    pub delay: Duration,
}

impl Rest {
    /// The back-off that follows on this rest: the first delay, or twice the one before.
    pub fn next_backoff(&self, now: Now, first: Duration) -> Rest {
        let delay = match self {
            Rest::Backoff(backoff) => doubled(backoff.delay),
            Rest::Unknown | Rest::Right | Rest::Failed(_) | Rest::Withheld { .. } => first.min(LONGEST_DELAY),
        };
        Rest::Backoff(Backoff { until: now.plus(delay), delay })
    }

    /// The failure that was reported and not overcome since.
    pub fn failed(&self) -> Option<&Failed> {
        match self {
            Rest::Failed(failed) => Some(failed),
            Rest::Unknown | Rest::Right | Rest::Backoff(_) | Rest::Withheld { .. } => None,
        }
    }
}

/// The writes that ARM lost (W2).
#[derive(Default, Debug)]
pub(super) struct Losses {
    recent: VecDeque<Now>,
    delay: Option<Duration>,
    pub total: u64,
}

impl Losses {
    /// Counts one; says before which moment the pool is not tried again.
    pub fn count(&mut self, now: Now) -> Option<Now> {
        self.total += 1;
        let calm_after = LOSSES_WITHIN.saturating_add(self.delay.unwrap_or_default());
        if self.recent.back().is_none_or(|at| now.since(*at) > calm_after) {
            self.recent.clear();
            self.delay = None;
        }
        if self.recent.len() == LOSSES_ALLOWED {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        let often = self.recent.len() == LOSSES_ALLOWED
            && self.recent.front().is_some_and(|at| now.since(*at) <= LOSSES_WITHIN);
        if !often && self.delay.is_none() {
            return None;
        }
        let delay = self.delay.map_or(FIRST_LOSS_DELAY, doubled);
        self.delay = Some(delay);
        Some(now.plus(delay))
    }
}
