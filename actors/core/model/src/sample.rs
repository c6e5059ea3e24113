//! Measurements: one closed enum; the recorder declares the metrics (E2).

use std::time::Duration;

use crate::assignment::HeldReason;
use crate::error::ReasonLabel;
pub use crate::gate_class::GateClass;
use crate::node::NodeState;
use crate::object::Kind;
use crate::policy::Mode;
use crate::signals::Signal;
use crate::xds::cache::CacheState;

/// One observation for the metrics actor. Labels are closed sets and never contain addresses.
#[derive(Clone, PartialEq, Debug)]
pub enum Metric {
    /// A terminal outcome of an attempt (S0 "Metrics").
    Attempt {
        /// Time from Take to the outcome.
        took: Duration,
        /// True if it counts as a failure.
        failed: bool,
    },
    /// The end of an attempt, by how it ended.
    AttemptEnded(AttemptEnd),
    /// Time from an endpoint change to the end of the operation that wrote it.
    NetworkProgramming(Duration),
    /// One call to ARM.
    ArmCall {
        /// The verb.
        verb: ArmVerb,
        /// Duration of the call.
        took: Duration,
        /// The result.
        result: ArmResult,
    },
    /// A call, or the grant for it, starts to wait for a rate limit of the cloud configuration (W9).
    RateLimited(ArmVerb),
    /// A pool went from one state to another.
    PoolState {
        /// The state the pool left; `None` when it is new.
        from: Option<PoolState>,
        /// The state the pool entered; `None` when it is gone.
        to: Option<PoolState>,
    },
    /// Number of candidates whose EndpointSlices are in a state of A88 (X5).
    ServiceResources {
        /// The state.
        state: CacheState,
        /// Number of candidates.
        count: u64,
    },
    /// A measurement of the xDS client (A78).
    Xds(crate::xds::stream::XdsMetric),
    /// A difference appeared after a level had been written.
    Drift,
    /// A write that ARM reported as successful was not in place afterwards (W2).
    LostWrite,
    /// Number of pools with a removal that is held back for this reason.
    Held {
        /// The reason.
        reason: HeldReason,
        /// The number of pools.
        pools: u64,
    },
    /// Number of pools with a removal that would be held back for this reason, but is carried out because guards only
    /// observe.
    WouldHold {
        /// The reason.
        reason: HeldReason,
        /// The number of pools.
        pools: u64,
    },
    /// True if removals are stopped, because too many pools would lose most of their members (G4).
    RemovalBreaker(bool),
    /// A second read to resolve doubt was requested (G1).
    SecondRead,
    /// Number of pools that are not manageable for this reason.
    NotManageable {
        /// The reason.
        reason: ReasonLabel,
        /// The number of pools.
        pools: u64,
    },
    /// How long a due part of a pool's slot waited for its lane: S1's lock wait of `service_reconcile`.
    LaneWait {
        /// The kind of write.
        caller: Caller,
        /// The wait.
        waited: Duration,
    },
    /// How long a write that was ready waited for the shared Lease: S1's lock wait of `azure_resource_locker`.
    LeaseWait {
        /// The kind of write.
        caller: Caller,
        /// The wait.
        waited: Duration,
    },
    /// How long the shared Lease was held, at its release.
    LeaseHeld(Duration),
    /// Number of lock failures of the cloud-controller-manager during one of our holds (W7).
    ForeignLockFailures(u64),
    /// True if this process leads.
    Leading(bool),
    /// The mode and the pauses (G6).
    OperatorPolicy {
        /// The configured mode.
        mode: Mode,
        /// Whether everything is paused.
        everything: bool,
        /// Number of pools with a pause of their own.
        pools: u64,
        /// Number of Services with a pause of their own.
        services: u64,
        /// Number of pauses that cannot be read.
        unreadable: u64,
        /// True if the last read of our ConfigMap, which holds the pauses, succeeded.
        fresh: bool,
        /// True if a term of leadership waits for the ConfigMap, so that nothing is written.
        leader_waits: bool,
    },
    /// A change of another client was reverted for the third time or more (W11).
    Contention,
    /// W10's breaker opened or closed. A scope is a load balancer on which membership or admin parts wait, or all of
    /// ARM, which counts as 1.
    Blocked {
        /// Number of blocked scopes.
        scopes: u64,
    },
    /// Number of busy lanes, and of pools that wait in lanes.
    Lanes {
        /// Lanes with a running write.
        busy: u64,
        /// Pools that are due and not granted.
        waiting: u64,
    },
    /// The throttle gate of a request class opened or closed.
    Gate {
        /// The request class.
        class: GateClass,
        /// True if it is closed.
        closed: bool,
    },
    /// The remaining share of a request class's budget, 0 to 1.
    BudgetLeft {
        /// The request class.
        class: GateClass,
        /// The share.
        share: f64,
    },
    /// A watch became current, or ceased to be current.
    SourceFresh {
        /// The kind.
        kind: Kind,
        /// True if it is current.
        fresh: bool,
    },
    /// Number of cached objects.
    CachedObjects {
        /// Their kind.
        kind: Kind,
        /// Their number.
        count: u64,
    },
    /// An object of the stream could not be decoded.
    UndecodableObject(Kind),
    /// A list or an object was refused, because it is older than one that was seen before (D6).
    StaleRefused(Kind),
    /// A list older than earlier ones was accepted, because all lists had been older for a long time (D6).
    StaleAccepted(Kind),
    /// A relist.
    Relist {
        /// The kind.
        kind: Kind,
        /// The reason.
        reason: RelistReason,
    },
    /// An event was dropped, or could not be posted.
    EventDropped,
    /// An event was posted.
    EventPosted,
    /// An event was shown but not posted (C4).
    EventWithheld,
    /// An answer with an unexpected id: lost, late or duplicated (A3).
    UnmatchedAnswer,
    /// An attempt to set the admin states of a pool has ended (S1).
    AdminEnded {
        /// True if a node was set Down; false if nodes were only restored.
        down: bool,
        /// Time from the grant to the end.
        took: Duration,
        /// True if it counts as a failure.
        failed: bool,
    },
    /// Number of nodes in this state of the admin state.
    AdminNodes {
        /// The state.
        state: NodeState,
        /// Number of nodes.
        nodes: u64,
    },
    /// Number of nodes that leave service for this reason. A node with several reasons counts for each.
    DrainingNodes {
        /// The reason.
        signal: Signal,
        /// Number of nodes.
        nodes: u64,
    },
    /// Number of address entries that are Down.
    DownEntries {
        /// True if another client has set them.
        foreign: bool,
        /// Number of entries.
        entries: u64,
    },
    /// How long the oldest unfinished node has waited, apart from nodes that are held back; `None`: no such node.
    AdminOldest(Option<Duration>),
    /// Time from a draining node's signal to the end of its last operation.
    Drained(Duration),
    /// The result of one reconcile of a node (S4).
    Reconciled(WorkResult),
    /// Number of nodes in the work queue that wait for a retry (S4).
    ReconcileQueue(u64),
    /// The result of a patch of a node's taints (N1).
    TaintPatch(TaintResult),
    /// Number of node records in our ConfigMap, or that belong there (N4).
    AdminRecords {
        /// Records that are stored and readable.
        kept: u64,
        /// Records that are stored and unreadable.
        unreadable: u64,
        /// Records that cannot be stored: there is no room or no key for them, or the key holds unreadable data.
        refused: u64,
    },
}

/// The waiter for a lock, in S1's terms.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Caller {
    /// A membership write.
    Membership,
    /// An admin state write.
    AdminState,
}

impl Caller {
    /// Both callers.
    pub const ALL: [Caller; 2] = [Caller::Membership, Caller::AdminState];

    /// Returns the label value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Caller::Membership => "LocalServiceBackendPoolUpdater",
            Caller::AdminState => "AdminStateController",
        }
    }
}

/// Result of a patch of a node's taints.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TaintResult {
    /// The patch was applied.
    Done,
    /// Another client had changed the node.
    Overtaken,
    /// The node did not exist.
    Gone,
    /// The patch was shown but not sent (C4).
    Withheld,
    /// The patch failed.
    Failed,
}

impl TaintResult {
    /// Every result.
    pub const ALL: [TaintResult; 5] = [
        TaintResult::Done,
        TaintResult::Overtaken,
        TaintResult::Gone,
        TaintResult::Withheld,
        TaintResult::Failed,
    ];

    /// Returns the label value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            TaintResult::Done => "done",
            TaintResult::Overtaken => "overtaken",
            TaintResult::Gone => "gone",
            TaintResult::Withheld => "withheld",
            TaintResult::Failed => "failed",
        }
    }
}

/// How an attempt ended, as a closed set of labels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AttemptEnd {
    /// The pool was written.
    Written,
    /// No change was necessary.
    Unchanged,
    /// The change was shown but not written (dry run).
    Withheld,
    /// The pool or its load balancer did not exist.
    Stale,
    /// The attempt will be retried.
    Retried,
    /// The attempt failed and is not retried.
    Failed,
    /// Ownership was not proven.
    NotManageable,
    /// A permit was refused before anything was sent.
    NotGranted,
    /// Shutdown or loss of leadership ended it.
    Interrupted,
}

impl AttemptEnd {
    /// Returns the label value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            AttemptEnd::Written => "written",
            AttemptEnd::Unchanged => "unchanged",
            AttemptEnd::Withheld => "withheld",
            AttemptEnd::Stale => "stale",
            AttemptEnd::Retried => "retried",
            AttemptEnd::Failed => "failed",
            AttemptEnd::NotManageable => "not_manageable",
            AttemptEnd::NotGranted => "not_granted",
            AttemptEnd::Interrupted => "interrupted",
        }
    }
}

/// State of a pool, as counted in metrics.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PoolState {
    /// Assigned, but not read since, or not read since an attempt with an uncertain result.
    Unknown,
    /// In sync.
    InSync,
    /// Changes wait in a window or for their interval.
    Waiting,
    /// Posted to its lane.
    Due,
    /// An attempt is running.
    Attempting,
    /// Waits for `next_eligible_at`.
    Parked,
    /// Paused by the operator.
    Paused,
    /// Not retried after a reported failure; compared again later.
    Failed,
    /// Not written, because one of its invariants is broken (A4).
    Quarantined,
}

impl PoolState {
    /// Every state.
    pub const ALL: [PoolState; 9] = [
        PoolState::Unknown,
        PoolState::InSync,
        PoolState::Waiting,
        PoolState::Due,
        PoolState::Attempting,
        PoolState::Parked,
        PoolState::Paused,
        PoolState::Failed,
        PoolState::Quarantined,
    ];

    /// Returns the value in metrics and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            PoolState::Unknown => "unknown",
            PoolState::InSync => "in_sync",
            PoolState::Waiting => "waiting",
            PoolState::Due => "due",
            PoolState::Attempting => "attempting",
            PoolState::Parked => "parked",
            PoolState::Paused => "paused",
            PoolState::Failed => "failed",
            PoolState::Quarantined => "quarantined",
        }
    }
}

/// The kind of call to ARM.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ArmVerb {
    /// GET of a load balancer.
    GetLoadBalancer,
    /// GET of a pool.
    GetPool,
    /// PUT of a pool.
    PutPool,
    /// GET of an operation's state.
    Poll,
}

impl ArmVerb {
    /// Returns the label value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ArmVerb::GetLoadBalancer => "get_load_balancer",
            ArmVerb::GetPool => "get_backend_pool",
            ArmVerb::PutPool => "put_backend_pool",
            ArmVerb::Poll => "poll_operation",
        }
    }
}

/// The result of a call to ARM.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ArmResult {
    /// Success.
    Ok,
    /// 429 Too Many Requests.
    Throttled,
    /// A GET of a load balancer that does not exist. This is not an error: the load balancer may not be needed yet.
    NotFound,
    /// Another 4xx.
    ClientError,
    /// 5xx.
    ServerError,
    /// No answer.
    NoAnswer,
    /// Nothing was sent.
    NotSent,
}

impl ArmResult {
    /// Returns the label value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ArmResult::Ok => "ok",
            ArmResult::Throttled => "throttled",
            ArmResult::NotFound => "not_found",
            ArmResult::ClientError => "client_error",
            ArmResult::ServerError => "server_error",
            ArmResult::NoAnswer => "no_answer",
            ArmResult::NotSent => "not_sent",
        }
    }
}

/// The reason for a relist.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RelistReason {
    /// The watch's resourceVersion was too old: 410.
    Expired,
    /// The list was older than earlier observations.
    Stale,
    /// The watch stream broke.
    Broken,
    /// A term of leadership began (W8).
    NewTerm,
    /// A second read, to confirm removals that a list or vanished objects have caused (G1).
    SecondRead,
}

impl RelistReason {
    /// Returns the label value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            RelistReason::Expired => "expired",
            RelistReason::Stale => "stale",
            RelistReason::Broken => "broken",
            RelistReason::NewTerm => "new_term",
            RelistReason::SecondRead => "second_read",
        }
    }
}

/// The results of one reconcile, a closed set of labels (S4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WorkResult {
    /// The item is done.
    Success,
    /// The reconcile failed.
    Error,
    /// The reconcile requests another run.
    Requeue,
    /// The reconcile requests another run after some time.
    RequeueAfter,
}

impl WorkResult {
    /// Every result.
    pub const ALL: [WorkResult; 4] =
        [WorkResult::Success, WorkResult::Error, WorkResult::Requeue, WorkResult::RequeueAfter];

    /// Returns the label value that controller-runtime uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            WorkResult::Success => "success",
            WorkResult::Error => "error",
            WorkResult::Requeue => "requeue",
            WorkResult::RequeueAfter => "requeue_after",
        }
    }
}
