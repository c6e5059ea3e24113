//! One pool's waiting changes, their retry budgets, and when the pool may next take part (design.md Q1-Q8).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::arm::{Failure, PoolFacts};
use crate::assignment::{Assignment, Observation};
use crate::error::NotManageable;
use crate::ids::{AttemptId, Family, PoolId, ServiceKey, ServiceUid};
use crate::level::Level;
use crate::machine::Now;
use crate::report::Report;
use crate::sample::Sample;
use crate::view::PoolView;

/// What every PoolQueue is told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// `batching.quietPeriod`, 500 ms.
    pub quiet_period: Duration,
    /// `batching.maxDelay`, 2 s.
    pub max_delay: Duration,
    /// `batching.minInterval`, 5 s, since the last attempt's outcome.
    pub min_interval: Duration,
    /// `batching.retryInterval`, 30 s, since a failed attempt's outcome.
    pub retry_interval: Duration,
    /// `loadBalancerBackendPoolUpdateMaxRetries` after Q7: extra tries after the first.
    pub max_retries: u32,
    /// `resync.afterFailure`, 1 min, doubling to 10 min; `None` switches the comparison after failure off (Q8).
    pub after_failure: Option<Duration>,
}

/// What a PoolQueue can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// Its level.
    Assigned(Arc<Assignment>),
    /// What a GET outside its own attempts saw.
    Observed(Observation),
    /// The lane was granted: answer with the newest relevant level (Q3).
    Take(AttemptId),
    /// The attempt ended.
    Finished(AttemptId, Outcome),
    /// A write of this pool was verified, or found lost (W2).
    Verified(Verdict),
}

/// What a PoolQueue can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the writer: membership is due; again when the class changes.
    Due(PoolId, Due),
    /// To the writer: it is no longer due.
    Withdraw(PoolId),
    /// To the writer: the answer to a Take; `None` is `Nothing`.
    Taken(PoolId, AttemptId, Option<Taken>),
    /// To the Directory: an empty assignment was taken in and nothing is in flight.
    Retired(PoolId),
    /// To Discovery: the pool or its load balancer was not there.
    Missing(PoolId),
    /// To the event emitter.
    Report(Report),
    /// To the board.
    View(Arc<PoolView>),
    /// To the board: it is gone.
    Gone(PoolId),
    /// To the metrics.
    Sample(Sample),
}

/// A pool's membership is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// Since when it has been due.
    pub since: Now,
    /// How urgent it is.
    pub class: Class,
}

/// How urgent a membership write is (Q3); the order is that of urgency.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// No observed member is required, on a Ready node and not Down: nothing serves.
    Revive,
    /// A required member is missing.
    Add,
    /// Only removals.
    Remove,
}

impl Class {
    /// The word for the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Revive => "revive",
            Class::Add => "add",
            Class::Remove => "remove",
        }
    }
}

/// What a pool brings to a granted lane.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The newest level.
    pub level: Level,
    /// The family of its members.
    pub family: Family,
    /// Whose pool it is: the proof of ownership is made against these (D2).
    pub services: BTreeMap<ServiceUid, ServiceKey>,
}

/// How an attempt ended (Q6).
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The pool was written and the operation has ended.
    Written {
        /// What it holds now.
        members: BTreeSet<IpAddr>,
        /// What was added.
        added: BTreeSet<IpAddr>,
        /// What was removed.
        removed: BTreeSet<IpAddr>,
    },
    /// Nothing had to change.
    Unchanged {
        /// What it holds.
        members: BTreeSet<IpAddr>,
    },
    /// It would have been written, but this process only shows (C4).
    Withheld {
        /// What it holds.
        members: BTreeSet<IpAddr>,
        /// What would have been added.
        added: BTreeSet<IpAddr>,
        /// What would have been removed.
        removed: BTreeSet<IpAddr>,
    },
    /// A permit was refused before anything was sent.
    NotGranted,
    /// 404 on the pool or its load balancer.
    Stale,
    /// No proof of ownership (D2).
    NotManageable(NotManageable),
    /// Worth another try.
    Retriable {
        /// What went wrong.
        failure: Arc<Failure>,
        /// Before which moment another try is useless (S0 `nextEligibleAt`).
        eligible_at: Option<Now>,
    },
    /// Not worth another try.
    Terminal {
        /// What went wrong.
        failure: Arc<Failure>,
    },
    /// Shutdown or lost leadership.
    Interrupted,
}

/// What verification found after a write (W2).
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The write is there.
    Held(AttemptId),
    /// The write is not there, and nobody else has written: ARM lost it.
    Lost {
        /// The attempt.
        attempt: AttemptId,
        /// What the last read saw.
        facts: Arc<PoolFacts>,
        /// When that read began.
        began: Now,
    },
    /// The write is not there, and somebody else has written since: drift.
    Overwritten {
        /// The attempt.
        attempt: AttemptId,
        /// What the last read saw.
        facts: Arc<PoolFacts>,
        /// When that read began.
        began: Now,
    },
}
