//! What a pool's queue and the writer say to each other: what is due, what is written, and how that ended
//! (docs/design/pools.md, Q3, Q6).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::arm::{Failure, PoolFacts};
use crate::error::NotManageable;
use crate::ids::{AttemptId, Family, ServiceKey, ServiceUid};
use crate::level::Level;
use crate::machine::Now;
use crate::write_record::{Trigger, WriteRecord};

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
    /// Whether it is written although it is right, because its provisioning state stays `Failed`.
    pub rewrites: bool,
    /// What started the attempt.
    pub trigger: Trigger,
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
        /// The same, for operators.
        record: Arc<WriteRecord>,
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
pub enum WriteFate {
    /// The write is there.
    Held(AttemptId),
    /// The write is not there, and no other client has written: ARM lost it.
    Lost {
        /// The attempt.
        attempt: AttemptId,
        /// What the last read saw.
        facts: Arc<PoolFacts>,
        /// When that read began.
        began: Now,
    },
    /// The write is not there, and another client has written since: drift.
    Overwritten {
        /// The attempt.
        attempt: AttemptId,
        /// What the last read saw.
        facts: Arc<PoolFacts>,
        /// When that read began.
        began: Now,
    },
}
