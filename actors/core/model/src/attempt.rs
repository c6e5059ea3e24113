//! The messages between a pool's queue and the writer: due membership, the level to write, and the outcome
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

/// When and how urgently the members of a pool must be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MembershipDue {
    /// Time since which it has been due.
    pub since: Now,
    /// Its urgency.
    pub urgency: MembershipUrgency,
}

/// The urgency of a membership write (Q3), the most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MembershipUrgency {
    /// No observed member is required, on a Ready node and not Down: the pool serves no traffic.
    Revive,
    /// A required member is missing.
    Add,
    /// Only removals.
    Remove,
}

impl MembershipUrgency {
    /// Returns the value in the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            MembershipUrgency::Revive => "revive",
            MembershipUrgency::Add => "add",
            MembershipUrgency::Remove => "remove",
        }
    }
}

/// A membership write, with which the queue answers Take (Q3).
#[derive(Clone, Debug)]
pub struct MembershipWrite {
    /// The newest level.
    pub level: Level,
    /// The family of its members.
    pub family: Family,
    /// The owners of the pool, used for the proof of ownership (D2).
    pub services: BTreeMap<ServiceUid, ServiceKey>,
    /// True if the pool is written although it is in sync, because its provisioning state stays `Failed`.
    pub rewrites: bool,
    /// The reason for the attempt.
    pub trigger: Trigger,
}

/// How an attempt ended (Q6).
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The pool was written and the operation has ended.
    Written {
        /// The members now.
        members: BTreeSet<IpAddr>,
        /// The added members.
        added: BTreeSet<IpAddr>,
        /// The removed members.
        removed: BTreeSet<IpAddr>,
        /// The record of the change, for operators.
        record: Arc<WriteRecord>,
    },
    /// No change was necessary.
    Unchanged {
        /// The members.
        members: BTreeSet<IpAddr>,
    },
    /// This process only shows changes, and would have written this one (C4).
    Withheld {
        /// The members.
        members: BTreeSet<IpAddr>,
        /// The members that would have been added.
        added: BTreeSet<IpAddr>,
        /// The members that would have been removed.
        removed: BTreeSet<IpAddr>,
    },
    /// A permit was refused before anything was sent.
    NotGranted,
    /// 404 for the pool or its load balancer.
    Stale,
    /// Ownership is not proven (D2).
    NotManageable(NotManageable),
    /// The attempt failed and may be retried.
    Retriable {
        /// The failure.
        failure: Arc<Failure>,
        /// The time before which a retry is useless (S0 `nextEligibleAt`).
        eligible_at: Option<Now>,
    },
    /// The attempt failed, and a retry is useless.
    Terminal {
        /// The failure.
        failure: Arc<Failure>,
    },
    /// Shutdown or loss of leadership ended the attempt.
    Interrupted,
}

/// Result of the verification after a write (W2).
#[derive(Clone, Debug)]
pub enum WriteFate {
    /// The write is in place.
    Persisted(AttemptId),
    /// The write is not in place, and no other client has written: ARM has lost it.
    Lost {
        /// The attempt.
        attempt: AttemptId,
        /// The pool at the last read.
        facts: Arc<PoolFacts>,
        /// When that read began.
        began: Now,
    },
    /// The write is not in place, and another client has written since: drift.
    Overwritten {
        /// The attempt.
        attempt: AttemptId,
        /// The pool at the last read.
        facts: Arc<PoolFacts>,
        /// When that read began.
        began: Now,
    },
}
