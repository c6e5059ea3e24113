//! Why a pool without waiting changes is quiet, and when it is compared again by time alone (Q6, Q8, W2).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use crate::queue::contention::{MAX_DELAY, RepeatCounter, doubled};
use model::arm::FailureCause;
use model::machine::Now;

/// The result of the last comparison.
#[derive(Clone, Debug)]
pub(super) enum LastResult {
    /// Nothing is certain: the next observation decides.
    Unknown,
    /// The pool was in sync; a difference is drift.
    InSync,
    /// The pool is out of sync, and is left so for a while or permanently: another client changed it (W11, C2), or ARM
    /// keeps losing writes (W2). A change of a Service does not wait for it.
    LeftAlone(LeftDifference),
    /// A failure was reported; the pool is compared again at a time, not by observations (Q8).
    Failed(ReportedFailure),
    /// The pool was not found or not manageable; it is compared after a new observation, not before this time (Q6, D2).
    Backoff(ComparisonBackoff),
    /// The pool was not found, and only a fresh change starts it again (C2).
    NotFound,
    /// A dry run showed what it would do; nothing new happens until the level or these members change (C4).
    Withheld {
        /// Members of the pool.
        members: BTreeSet<IpAddr>,
    },
}

/// A reported failure.
#[derive(Clone, Debug)]
pub(super) struct ReportedFailure {
    /// Whether Events report it.
    pub report: FailureReport,
    /// When the pool is compared again; `None`: only a slice event or the operator starts it again.
    pub compare_at: Option<Now>,
    /// Time between the failure and that comparison.
    pub delay: Duration,
}

/// Whether a failure was reported to operators (G6).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FailureReport {
    /// This failure was reported.
    Reported(FailureCause),
    /// A failure was reported before a pause, and is reported once more if it occurs again.
    BeforePause,
    /// The failure occurred in a pause.
    Unreported,
}

/// A known difference that is left alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LeftDifference {
    /// The members of the pool; other members are another difference.
    pub members: BTreeSet<IpAddr>,
    /// Until when it is left; `None`: until a Service asks for something (C2).
    pub until: Option<Now>,
}

/// A doubling delay before the next comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct ComparisonBackoff {
    pub until: Now,
    pub delay: Duration,
}

impl LastResult {
    /// Returns the back-off that follows this result: the first delay, or twice the previous one.
    pub fn next_backoff(&self, now: Now, first: Duration) -> LastResult {
        let delay = match self {
            LastResult::Backoff(backoff) => doubled(backoff.delay),
            LastResult::Unknown
            | LastResult::InSync
            | LastResult::LeftAlone(_)
            | LastResult::Failed(_)
            | LastResult::NotFound
            | LastResult::Withheld { .. } => first.min(MAX_DELAY),
        };
        LastResult::Backoff(ComparisonBackoff { until: now.plus(delay), delay })
    }

    /// Updates the result after a pause: what was reported before is reported again. A failure that occurred in the
    /// pause is retried at once; where failures are not compared again by time, it would never be reported.
    pub fn pause_ended(&mut self, now: Now) {
        match self {
            LastResult::Failed(failed) => match failed.report {
                FailureReport::Reported(_) => failed.report = FailureReport::BeforePause,
                FailureReport::BeforePause => {}
                FailureReport::Unreported => failed.compare_at = Some(now),
            },
            LastResult::Unknown
            | LastResult::InSync
            | LastResult::LeftAlone(_)
            | LastResult::Backoff(_)
            | LastResult::NotFound
            | LastResult::Withheld { .. } => {}
        }
    }

    /// Returns the failure that was reported and still applies.
    pub fn failed(&self) -> Option<&ReportedFailure> {
        match self {
            LastResult::Failed(failed) => Some(failed),
            LastResult::Unknown
            | LastResult::InSync
            | LastResult::LeftAlone(_)
            | LastResult::Backoff(_)
            | LastResult::NotFound
            | LastResult::Withheld { .. } => None,
        }
    }

    /// Returns whether the pool is known to be in sync, or its difference known, since its last attempt.
    pub fn is_known(&self) -> bool {
        match self {
            LastResult::InSync | LastResult::LeftAlone(_) => true,
            LastResult::Unknown
            | LastResult::Failed(_)
            | LastResult::Backoff(_)
            | LastResult::NotFound
            | LastResult::Withheld { .. } => false,
        }
    }

    /// Returns whether the pool was not found at the last try.
    pub fn follows_stale(&self) -> bool {
        match self {
            LastResult::Backoff(_) | LastResult::NotFound => true,
            LastResult::Unknown
            | LastResult::InSync
            | LastResult::LeftAlone(_)
            | LastResult::Failed(_)
            | LastResult::Withheld { .. } => false,
        }
    }
}

/// The writes that ARM lost (W2).
#[derive(Default, Debug)]
pub(super) struct LostWrites {
    pub repeats: RepeatCounter,
    pub total: u64,
    /// Whether no write has been verified in place since the last of them.
    pub last_write_lost: bool,
}
