//! Why a pool without waiting changes rests, and when it is compared again by itself (Q6, Q8, W2).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::queue::contention::{LONGEST_DELAY, Repeats, doubled};
use model::arm::{Failure, FailureKind};
use model::machine::Now;

/// How things stood at the last comparison.
#[derive(Clone, Debug)]
pub(super) enum LastResult {
    /// Nothing is certain: the next observation tells.
    Unknown,
    /// It was right; a difference is drift.
    Right,
    /// It is not right, and that is left for a while, or for good: another client changed it (W11, C2), or ARM keeps
    /// losing what is written (W2). A Service's change is not held back by it.
    Left(Left),
    /// A failure was reported; the pool is compared again by the clock, not by observations (Q8).
    Failed(Failed),
    /// It was not there or not manageable; compared again after an observation, not before the moment (Q6, D2).
    Backoff(Backoff),
    /// It was not there, and nothing but a fresh change starts it again (C2).
    Gone,
    /// A dry run showed what it would do; nothing new until the level or these members change (C4).
    Withheld {
        /// What the pool held.
        members: BTreeSet<IpAddr>,
    },
}

/// A failure that was reported.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    /// Whether operators know of it.
    pub heard: Heard,
    /// When the pool is compared again; `None`: only a slice event or the operator starts it again.
    pub compare_at: Option<Now>,
    /// How long that was after the failure.
    pub delay: Duration,
}

/// Whether operators were told of a failure (G6).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// They were told of this one.
    Of(Fault),
    /// They were, before a pause: they are told once more when it comes again.
    BeforePause,
    /// It came in a pause.
    NotYet,
}

/// A difference that is known and left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Left {
    /// What the pool holds; other members are another difference.
    pub members: BTreeSet<IpAddr>,
    /// Until when it is left; `None`: until a Service asks for something (C2).
    pub until: Option<Now>,
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

impl LastResult {
    /// The back-off that follows on this rest: the first delay, or twice the one before.
    pub fn next_backoff(&self, now: Now, first: Duration) -> LastResult {
        let delay = match self {
            LastResult::Backoff(backoff) => doubled(backoff.delay),
            LastResult::Unknown
            | LastResult::Right
            | LastResult::Left(_)
            | LastResult::Failed(_)
            | LastResult::Gone
            | LastResult::Withheld { .. } => first.min(LONGEST_DELAY),
        };
        LastResult::Backoff(Backoff { until: now.plus(delay), delay })
    }

    /// A pause has ended: what was told before it is told again. A failure that came in it is tried again at once, for
    /// where no clock compares after failures, it would never be reported.
    pub fn pause_ended(&mut self, now: Now) {
        match self {
            LastResult::Failed(failed) => match failed.heard {
                Heard::Of(_) => failed.heard = Heard::BeforePause,
                Heard::BeforePause => {}
                Heard::NotYet => failed.compare_at = Some(now),
            },
            LastResult::Unknown
            | LastResult::Right
            | LastResult::Left(_)
            | LastResult::Backoff(_)
            | LastResult::Gone
            | LastResult::Withheld { .. } => {}
        }
    }

    /// The failure that was reported and not overcome since.
    pub fn failed(&self) -> Option<&Failed> {
        match self {
            LastResult::Failed(failed) => Some(failed),
            LastResult::Unknown
            | LastResult::Right
            | LastResult::Left(_)
            | LastResult::Backoff(_)
            | LastResult::Gone
            | LastResult::Withheld { .. } => None,
        }
    }

    /// Whether the pool has been known to be right, or how it differs, since its last attempt.
    pub fn is_known(&self) -> bool {
        match self {
            LastResult::Right | LastResult::Left(_) => true,
            LastResult::Unknown
            | LastResult::Failed(_)
            | LastResult::Backoff(_)
            | LastResult::Gone
            | LastResult::Withheld { .. } => false,
        }
    }

    /// Whether the pool was not there when it was last tried.
    pub fn follows_stale(&self) -> bool {
        match self {
            LastResult::Backoff(_) | LastResult::Gone => true,
            LastResult::Unknown
            | LastResult::Right
            | LastResult::Left(_)
            | LastResult::Failed(_)
            | LastResult::Withheld { .. } => false,
        }
    }
}

/// The writes that ARM lost (W2).
#[derive(Default, Debug)]
pub(super) struct Losses {
    pub repeats: Repeats,
    pub total: u64,
    /// Whether no write has been found in place since the last of them.
    pub stand: bool,
}
