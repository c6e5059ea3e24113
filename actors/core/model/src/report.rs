//! What is reported to operators as Kubernetes Events: typed facts here, texts in [`reporting::events`] (E1).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::arm::{AdminState, Failure};
use crate::assignment::HeldReason;
use crate::error::NotManageable;
use crate::ids::{LbName, NodeName, NodeUid, PoolId, ServiceKey, ServiceUid};
use crate::object::{Kind, LeftOut};
use crate::sample::Caller;
use crate::signals::Signal;
use crate::write_record::WriteRecord;

/// A Service that an event is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ServiceRef {
    /// Namespace and name.
    pub key: ServiceKey,
    /// The UID.
    pub uid: ServiceUid,
}

/// Whom an event is attached to.
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
    /// This process itself: the port names its Deployment, or else its Pod, or else our own Lease.
    Controller,
}

impl Subject {
    /// Who hears of a pool that is this Service's, or that is filled from this source (X2).
    #[must_use]
    pub fn of(uid: &ServiceUid, key: &ServiceKey) -> Subject {
        if key.is_service() {
            Subject::Service(ServiceRef { key: key.clone(), uid: uid.clone() })
        } else {
            Subject::Controller
        }
    }
}

/// Nodes with endpoints of a Service that are left out of a pool of it (D5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOutNodes {
    /// The first of them, by name.
    pub first: NodeName,
    /// Why that one is.
    pub why: LeftOut,
    /// How many there are besides.
    pub more: usize,
}

/// Something to be told, to one or more subjects; one event for each of them (S0 "Event Behavior").
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// To whom; distinct.
    pub subjects: Vec<Subject>,
    /// What.
    pub what: EventKind,
    /// What goes with it, in words: what is known of the source of the pool that it is about (X4).
    pub note: Option<Arc<str>>,
}

/// What becomes of the pools of a source that something is wrong with (X3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Effect {
    /// What was known is used on.
    Kept,
    /// Nothing was ever known: they are left as they are.
    Untouched,
    /// What was known is not to be used any more: they are emptied, as `fail_on_data_errors` wants it.
    Emptied,
}

/// A condition that a report is about. While it holds, its newest report is posted again until the API server has accepted
/// it (E1).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Condition {
    /// The pool is not written, because its last attempt failed.
    Failed(PoolId),
    /// The pool has no proof of ownership.
    NotManageable {
        /// The pool.
        pool: PoolId,
        /// Whether an attempt found that; else Discovery did.
        attempted: bool,
    },
    /// Several Services use the pool.
    Shared(PoolId),
    /// ARM has lost writes of the pool, and none has been found in place since.
    WritesLost(PoolId),
    /// Members that another writer adds to the pool are left there.
    Contested(PoolId),
    /// The pool is quarantined.
    Quarantined(PoolId),
    /// A removal from the pool is held back.
    RemovalHeld(PoolId),
    /// All removals are held back.
    RemovalsStopped,
    /// Writes of one kind wait, on this load balancer or on all of them.
    Blocked(Caller, Option<LbName>),
    /// Writes wait for the shared Lease, which an unknown holder has.
    LeaseHeld,
    /// These sources report an error.
    SourcesFailing(BTreeSet<Arc<str>>),
    /// The data of the Service that the event is attached to is incomplete.
    DataError,
    /// This object cannot be decoded.
    Undecodable(Kind, Arc<str>),
    /// The admin state of the Node that the event is attached to cannot be set.
    AdminFailed,
    /// The Node that the event is attached to waits for others; for the process, any Node does.
    AdminHeld,
    /// Another writer has set the admin state of the Node that the event is attached to.
    AdminForeign,
}

/// A condition that was reported holds no longer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Which.
    pub condition: Condition,
    /// For which subject; `None`: for all of them.
    pub subject: Option<Subject>,
}

impl Ended {
    /// The end of a condition for all its subjects.
    #[must_use]
    pub fn of(condition: Condition) -> Ended {
        Ended { condition, subject: None }
    }
}

/// What is told.
#[derive(Clone, PartialEq, Debug)]
pub enum EventKind {
    /// An attempt completed.
    Updated {
        /// The pool.
        pool: PoolId,
        /// How many members it has now.
        members: usize,
        /// What was changed and why.
        record: Arc<WriteRecord>,
    },
    /// An attempt failed and will be repeated.
    Retrying {
        /// The pool.
        pool: PoolId,
        /// Which retry comes next, from 1.
        retry: u32,
        /// The retry budget.
        max: u32,
        /// Why.
        failure: Arc<Failure>,
    },
    /// An attempt failed for good, after no retry.
    FailedTerminal {
        /// The pool.
        pool: PoolId,
        /// Why.
        failure: Arc<Failure>,
        /// When it is compared again; `None`: only a slice event or the operator starts it again.
        compared_again_in: Option<std::time::Duration>,
    },
    /// The retry budget is used up.
    FailedExhausted {
        /// The pool.
        pool: PoolId,
        /// How many retries there were.
        retries: u32,
        /// Why the last one failed.
        failure: Arc<Failure>,
        /// When it is compared again; `None`: only a slice event or the operator starts it again.
        compared_again_in: Option<std::time::Duration>,
    },
    /// Membership of the pool is not written, for want of proof (D2).
    NotManageable {
        /// The pool.
        pool: PoolId,
        /// Why.
        reason: NotManageable,
        /// Whether an attempt found that; else Discovery did.
        attempted: bool,
    },
    /// Several Services use one pool (D2).
    Shared {
        /// The pool.
        pool: PoolId,
        /// All of them.
        services: Vec<ServiceKey>,
    },
    /// ARM has lost a write of the pool; where that goes on, it is left for a while (W2).
    WritesLost {
        /// The pool.
        pool: PoolId,
        /// How many were lost since the start of the process.
        writes: u64,
        /// How long it is left, as far as no Service changes; `None`: it is written again as soon as any change is.
        left_for: Option<std::time::Duration>,
    },
    /// Writes wait because the same fault has hit several pools (W10).
    Blocked {
        /// Whose.
        caller: Caller,
        /// The fault, in words.
        fault: Arc<str>,
        /// The load balancer that is blocked; `None`: all of them.
        lb: Option<LbName>,
    },
    /// Writes have waited for the shared Lease, which an unknown client holds (W7).
    LeaseHeld {
        /// By which name.
        holder: Arc<str>,
    },
    /// Another client keeps adding members that nothing asks for; they are left for a while (W11).
    Fight {
        /// The pool.
        pool: PoolId,
        /// How many such members there are.
        members: usize,
        /// How long they are left.
        left_for: std::time::Duration,
    },
    /// The pool is not written any more, for an invariant of it does not hold: an error of this program (A4).
    Quarantined {
        /// The pool.
        pool: PoolId,
        /// The invariant, as what is wrong.
        broken: &'static str,
    },
    /// A removal is held back (G5, D6).
    Held {
        /// The pool.
        pool: PoolId,
        /// Why.
        reason: HeldReason,
        /// How many members stay for it.
        members: usize,
        /// Whether they do stay; `false`: guards only observe, so they go (G5).
        enforced: bool,
        /// The nodes of its endpoints that are left out, where that is why none can be used (D5).
        left_out: Option<LeftOutNodes>,
    },
    /// All removals are held back, for too many pools would lose most of their members at once (G4).
    RemovalsStopped {
        /// How many would.
        pools: usize,
        /// How many there are.
        of: usize,
        /// Whether they are held back; `false`: guards only observe.
        enforced: bool,
    },
    /// Something is wrong with resources that pools get their members from (X3, X4).
    SourceFailing {
        /// The sources, as they are configured: those that the same is said of at once.
        sources: BTreeSet<Arc<str>>,
        /// How many pools that are.
        pools: usize,
        /// What becomes of them.
        effect: Effect,
        /// What is wrong.
        error: Arc<str>,
    },
    /// Nothing is any more.
    SourceRecovered {
        /// The sources, as they are configured.
        sources: BTreeSet<Arc<str>>,
    },
    /// Endpoints lack a node, or nodes lack an address (D6).
    DataError {
        /// How many endpoints.
        endpoints: usize,
        /// An example, in words.
        example: Arc<str>,
    },
    /// An object could not be decoded.
    Undecodable {
        /// Of which kind it is.
        kind: Kind,
        /// Its name.
        object: Arc<str>,
        /// What is wrong with it.
        error: Arc<str>,
        /// Whether its last good state goes on to count; `false`: it was configured not to (X5).
        kept: bool,
    },
    /// A node is cut out of traffic in every pool that it is in (S1, N2).
    AdminDown {
        /// How many pools that are.
        pools: usize,
        /// On how many load balancers.
        balancers: usize,
        /// Why it leaves service.
        signals: BTreeSet<Signal>,
        /// In how many more pools it has an admin state that we do not know and leave as it is, and one of them.
        unknown: Option<(usize, PoolId)>,
    },
    /// What was Down of a node by us is taken back in every pool (S1, N4).
    AdminRestored {
        /// How many pools that are.
        pools: usize,
    },
    /// What is wanted for a node could not be carried out, or not be noted; it is tried again (S1, N3).
    AdminFailed {
        /// The pool; `None`: it is about no pool.
        pool: Option<PoolId>,
        /// Why.
        why: Arc<str>,
        /// How often it has failed in a row before.
        retry: u32,
        /// When it is tried again; `None`: not by time alone.
        next: Option<std::time::Duration>,
    },
    /// Nodes that leave service wait, for so many Ready nodes are Down already (N5).
    AdminHeld {
        /// How many are.
        down: usize,
        /// How many Ready nodes there are.
        ready: usize,
    },
    /// Another client has set the admin state of a node that does not leave service; it is left (N4).
    AdminForeign {
        /// In how many pools.
        pools: usize,
        /// One of them.
        example: PoolId,
        /// What is set there.
        state: AdminState,
    },
}

impl EventKind {
    /// The condition that it reports; `None`: it reports an occurrence, which is not posted again.
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
            EventKind::Fight { pool, .. } => Some(Condition::Contested(pool.clone())),
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
