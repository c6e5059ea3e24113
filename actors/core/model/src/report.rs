//! Reports to operators, posted as Kubernetes Events: typed facts here, texts in `reporting::events` (E1).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::arm::{AdminState, Failure};
use crate::assignment::HeldReason;
use crate::error::NotManageable;
use crate::ids::{LbName, NodeName, NodeUid, PoolId, ServiceKey, ServiceUid};
use crate::object::{ExclusionRule, Kind};
use crate::sample::Caller;
use crate::signals::Signal;
use crate::write_record::WriteRecord;

/// A Service that an event refers to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ServiceRef {
    /// Namespace and name.
    pub key: ServiceKey,
    /// The UID.
    pub uid: ServiceUid,
}

/// The object that an event is attached to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// A Service.
    Service(ServiceRef),
    /// A Node.
    Node {
        /// Its name.
        name: NodeName,
        /// Its UID.
        uid: NodeUid,
    },
    /// This process: the port resolves it to its Deployment, else its Pod, else our own Lease.
    Controller,
}

impl Subject {
    /// Returns the subject for a pool that belongs to this Service, or that is filled from this source (X2).
    #[must_use]
    pub fn of(uid: &ServiceUid, key: &ServiceKey) -> Subject {
        if key.is_service() {
            Subject::Service(ServiceRef { key: key.clone(), uid: uid.clone() })
        } else {
            Subject::Controller
        }
    }
}

/// The nodes with endpoints of a Service that are excluded from a pool (D5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExcludedNodes {
    /// The first node by name.
    pub first: NodeName,
    /// The reason for the first node.
    pub why: ExclusionRule,
    /// Number of further nodes.
    pub more: usize,
}

/// A report to operators about one or more subjects. Each subject gets one event (S0 "Event Behavior").
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The distinct subjects.
    pub subjects: Vec<Subject>,
    /// The facts of the report.
    pub what: EventKind,
    /// Additional text: the state of the source of the pool (X4).
    pub note: Option<Arc<str>>,
}

/// What happens to the pools of a source that reports an error (X3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Effect {
    /// The pools keep the last good members.
    Kept,
    /// No members were ever known, so the pools stay unchanged.
    Untouched,
    /// The last good members are no longer used, and the pools are emptied, as `fail_on_data_errors` requires.
    Emptied,
}

/// The condition behind a report. While it holds, its newest report is posted again until the API server has accepted
/// it (E1).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Condition {
    /// The pool is not written, because its last attempt failed.
    Failed(PoolId),
    /// The pool has no proof of ownership.
    NotManageable {
        /// The pool.
        pool: PoolId,
        /// True if an attempt found it; false if Discovery did.
        attempted: bool,
    },
    /// Several Services use the pool.
    Shared(PoolId),
    /// ARM has lost writes of the pool, and no later write has been found in place.
    WritesLost(PoolId),
    /// Members that another writer keeps adding to the pool are left there.
    Contested(PoolId),
    /// The pool is quarantined.
    Quarantined(PoolId),
    /// A removal from the pool is held back.
    RemovalHeld(PoolId),
    /// All removals are held back.
    RemovalsStopped,
    /// Writes of one kind wait, on this load balancer or on all.
    Blocked(Caller, Option<LbName>),
    /// Writes wait for the shared Lease, which an unknown client holds.
    LeaseHeld,
    /// These sources report an error.
    SourcesFailing(BTreeSet<Arc<str>>),
    /// The data of the Service that the event is attached to is incomplete.
    DataError,
    /// This object cannot be decoded.
    Undecodable(Kind, Arc<str>),
    /// The admin state of the Node that the event is attached to cannot be set.
    AdminFailed,
    /// The Node that the event is attached to waits for other nodes; for the process, any Node waits.
    AdminHeld,
    /// Another writer has set the admin state of the Node that the event is attached to.
    AdminForeign,
}

/// A reported condition that no longer holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The condition.
    pub condition: Condition,
    /// The subject; `None`: all subjects.
    pub subject: Option<Subject>,
}

impl Ended {
    /// Returns the message that a condition has ended for all its subjects.
    #[must_use]
    pub fn of(condition: Condition) -> Ended {
        Ended { condition, subject: None }
    }
}

/// The facts of a report, by kind of event.
#[derive(Clone, PartialEq, Debug)]
pub enum EventKind {
    /// An attempt completed.
    Updated {
        /// The pool.
        pool: PoolId,
        /// Number of members now.
        members: usize,
        /// The changes, and why they were made.
        record: Arc<WriteRecord>,
    },
    /// An attempt failed and will be repeated.
    Retrying {
        /// The pool.
        pool: PoolId,
        /// Number of the next retry, from 1.
        retry: u32,
        /// The retry budget.
        max: u32,
        /// The failure.
        failure: Arc<Failure>,
    },
    /// An attempt failed and is not retried.
    FailedTerminal {
        /// The pool.
        pool: PoolId,
        /// The failure.
        failure: Arc<Failure>,
        /// Time until the next comparison; `None`: only a slice event or the operator starts a new attempt.
        compared_again_in: Option<std::time::Duration>,
    },
    /// The retry budget is used up.
    FailedExhausted {
        /// The pool.
        pool: PoolId,
        /// Number of retries.
        retries: u32,
        /// The last failure.
        failure: Arc<Failure>,
        /// Time until the next comparison; `None`: only a slice event or the operator starts a new attempt.
        compared_again_in: Option<std::time::Duration>,
    },
    /// Membership of the pool is not written, because ownership is not proven (D2).
    NotManageable {
        /// The pool.
        pool: PoolId,
        /// The reason.
        reason: NotManageable,
        /// True if an attempt found it; false if Discovery did.
        attempted: bool,
    },
    /// Several Services use one pool (D2).
    Shared {
        /// The pool.
        pool: PoolId,
        /// The Services.
        services: Vec<ServiceKey>,
    },
    /// ARM has lost a write of the pool; after several lost writes the pool is left alone for a while (W2).
    WritesLost {
        /// The pool.
        pool: PoolId,
        /// Number of lost writes since the process started.
        writes: u64,
        /// How long the pool is left alone unless a Service changes; `None`: it is written again with the next change.
        left_for: Option<std::time::Duration>,
    },
    /// Writes wait because several pools have failed with the same fault (W10).
    Blocked {
        /// The kind of writes.
        caller: Caller,
        /// Description of the fault.
        fault: Arc<str>,
        /// The blocked load balancer; `None`: all of them.
        lb: Option<LbName>,
    },
    /// Writes have waited for the shared Lease, which an unknown client holds (W7).
    LeaseHeld {
        /// The holder's name.
        holder: Arc<str>,
    },
    /// Another client keeps adding members that are not required; they are left for a while (W11).
    Contested {
        /// The pool.
        pool: PoolId,
        /// Number of such members.
        members: usize,
        /// Time for which these members are left in the pool.
        left_for: std::time::Duration,
    },
    /// The pool is not written any more, because one of its invariants is broken: a bug in this program (A4).
    Quarantined {
        /// The pool.
        pool: PoolId,
        /// Description of the broken invariant.
        broken: &'static str,
    },
    /// A removal is held back (G5, D6).
    Held {
        /// The pool.
        pool: PoolId,
        /// The reason.
        reason: HeldReason,
        /// Number of members that stay.
        members: usize,
        /// True if the members stay; false if guards only observe, so that the members go (G5).
        enforced: bool,
        /// The excluded nodes of its endpoints, if that explains why no endpoint is usable or why these members would
        /// be removed (D5).
        excluded: Option<ExcludedNodes>,
    },
    /// All removals are held back, because too many pools would lose most of their members at once (G4).
    RemovalsStopped {
        /// Number of pools that would lose most of their members.
        pools: usize,
        /// Number of all pools.
        of: usize,
        /// True if removals are held back; false if guards only observe.
        enforced: bool,
    },
    /// Resources that pools get their members from report an error (X3, X4).
    SourceFailing {
        /// The configured sources with the same error.
        sources: BTreeSet<Arc<str>>,
        /// Number of their pools.
        pools: usize,
        /// What happens to these pools.
        effect: Effect,
        /// Description of the error.
        error: Arc<str>,
    },
    /// Sources no longer report an error.
    SourceRecovered {
        /// The configured sources.
        sources: BTreeSet<Arc<str>>,
    },
    /// Endpoints lack a node, or nodes lack an address (D6).
    DataError {
        /// Number of endpoints.
        endpoints: usize,
        /// Description of one of them.
        example: Arc<str>,
    },
    /// An object could not be decoded.
    Undecodable {
        /// Kind of the object.
        kind: Kind,
        /// Name of the object.
        object: Arc<str>,
        /// The decoding error.
        error: Arc<str>,
        /// True if its last good state stays in use; false if configuration forbids that (X5).
        kept: bool,
    },
    /// A node is Down in all of its pools (S1, N2).
    AdminDown {
        /// Number of pools.
        pools: usize,
        /// Number of load balancers.
        balancers: usize,
        /// The reasons why the node leaves service.
        signals: BTreeSet<Signal>,
        /// Number of further pools in which the node has an unknown admin state, which is left unchanged, and one of
        /// them.
        unknown: Option<(usize, PoolId)>,
    },
    /// The Downs that we had set for a node have been removed in every pool (S1, N4).
    AdminRestored {
        /// Number of pools.
        pools: usize,
    },
    /// The admin state of a node could not be written or recorded; it is tried again (S1, N3).
    AdminFailed {
        /// The pool; `None`: the failure concerns no pool.
        pool: Option<PoolId>,
        /// The failure.
        why: Arc<str>,
        /// Number of consecutive failures before this one.
        retry: u32,
        /// Time until the next try; `None`: time alone triggers none.
        next: Option<std::time::Duration>,
    },
    /// Nodes that leave service wait, because too many Ready nodes are Down already (N5).
    AdminHeld {
        /// Number of Ready nodes that are Down.
        down: usize,
        /// Number of Ready nodes.
        ready: usize,
    },
    /// Another client has set the admin state of a node that does not leave service; it is left unchanged (N4).
    AdminForeign {
        /// Number of pools.
        pools: usize,
        /// One of them.
        example: PoolId,
        /// The admin state in that pool.
        state: AdminState,
    },
}

impl EventKind {
    /// Returns the reported condition; `None`: the report is about an occurrence, which is not posted again.
    #[must_use]
    pub fn condition(&self) -> Option<Condition> {
        match self {
            EventKind::Updated { .. }
            | EventKind::Retrying { .. }
            | EventKind::SourceRecovered { .. }
            | EventKind::AdminDown { .. }
            | EventKind::AdminRestored { .. } => None,
            EventKind::FailedTerminal { pool, .. } | EventKind::FailedExhausted { pool, .. } => {
                Some(Condition::Failed(pool.clone()))
            }
            EventKind::NotManageable { pool, attempted, .. } => {
                Some(Condition::NotManageable { pool: pool.clone(), attempted: *attempted })
            }
            EventKind::Shared { pool, .. } => Some(Condition::Shared(pool.clone())),
            EventKind::WritesLost { pool, .. } => Some(Condition::WritesLost(pool.clone())),
            EventKind::Blocked { caller, lb, .. } => Some(Condition::Blocked(*caller, lb.clone())),
            EventKind::LeaseHeld { .. } => Some(Condition::LeaseHeld),
            EventKind::Contested { pool, .. } => Some(Condition::Contested(pool.clone())),
            EventKind::Quarantined { pool, .. } => Some(Condition::Quarantined(pool.clone())),
            EventKind::Held { pool, .. } => Some(Condition::RemovalHeld(pool.clone())),
            EventKind::RemovalsStopped { .. } => Some(Condition::RemovalsStopped),
            EventKind::SourceFailing { sources, .. } => Some(Condition::SourcesFailing(sources.clone())),
            EventKind::DataError { .. } => Some(Condition::DataError),
            EventKind::Undecodable { kind, object, .. } => {
                Some(Condition::Undecodable(*kind, Arc::clone(object)))
            }
            EventKind::AdminFailed { .. } => Some(Condition::AdminFailed),
            EventKind::AdminHeld { .. } => Some(Condition::AdminHeld),
            EventKind::AdminForeign { .. } => Some(Condition::AdminForeign),
        }
    }
}
