//! What is measured: one closed enum, declared as metrics once in the recorder (E2).

use std::time::Duration;

use crate::assignment::HeldReason;
use crate::error::ReasonLabel;
use crate::node::NodeState;
use crate::object::Kind;
use crate::policy::Mode;
use crate::signals::Signal;
use crate::xds::cache::CacheState;

/// One observation for the metrics actor. Labels are closed sets; addresses never occur in them.
#[derive(Clone, PartialEq, Debug)]
pub enum Metric {
    /// A terminal outcome of an attempt (S0 "Metrics").
    Attempt {
        /// From Take to the outcome.
        took: Duration,
        /// Whether it counts as a failure.
        failed: bool,
    },
    /// Each attempt, by how it ended.
    AttemptEnded(AttemptEnd),
    /// Endpoint change to the end of the operation that brought it in.
    NetworkProgramming(Duration),
    /// One call to ARM.
    ArmCall {
        /// What was called.
        verb: ArmVerb,
        /// How long it took.
        took: Duration,
        /// How it was answered.
        result: ArmResult,
    },
    /// A call, or the grant that would make it, begins to wait for a rate of the cloud configuration (W9).
    RateLimited(ArmVerb),
    /// A pool went from one state to another.
    PoolState {
        /// The state the pool left; `None` when it is new.
        from: Option<PoolState>,
        /// The state the pool entered; `None` when it is gone.
        to: Option<PoolState>,
    },
    /// How many candidates' EndpointSlices are in a state of A88 (X5).
    ServiceResources {
        /// The state.
        state: CacheState,
        /// How many.
        count: u64,
    },
    /// What xDS clients measure (A78).
    Xds(crate::xds::stream::XdsMetric),
    /// A difference that appeared after a level was written.
    Drift,
    /// A write that ARM reported as done and that was not there afterwards (W2).
    LostWrite,
    /// How many pools have a removal held back for this reason.
    Held {
        /// The reason.
        reason: HeldReason,
        /// The number of pools.
        pools: u64,
    },
    /// How many pools have a removal that would be held back for this reason, and goes because guards only observe.
    WouldHold {
        /// The reason.
        reason: HeldReason,
        /// The number of pools.
        pools: u64,
    },
    /// Whether removals are stopped because too many pools would lose most of their members (G4).
    RemovalBreaker(bool),
    /// A second read of what is in doubt was asked for (G1).
    SecondRead,
    /// How many pools are not manageable for this reason.
    NotManageable {
        /// The reason.
        reason: ReasonLabel,
        /// The number of pools.
        pools: u64,
    },
    /// How long a due part of a pool's slot waited for its lane: S1's lock wait of `service_reconcile`.
    LaneWait {
        /// Whose part it was.
        caller: Caller,
        /// For how long.
        waited: Duration,
    },
    /// How long a write that could have begun waited for the shared Lease: S1's lock wait of
    /// `azure_resource_locker`.
    LeaseWait {
        /// Whose write it was.
        caller: Caller,
        /// For how long.
        waited: Duration,
    },
    /// The shared Lease was released after so long (lease duty).
    LeaseHeld(Duration),
    /// So many lock failures of the cloud-controller-manager were seen for one hold of ours (W7).
    ForeignLockFailures(u64),
    /// Whether this process leads.
    Leading(bool),
    /// The mode, and what is paused (G6).
    OperatorPolicy {
        /// The configured mode.
        mode: Mode,
        /// Whether everything is paused.
        everything: bool,
        /// Pools that are paused by a note of their own.
        pools: u64,
        /// Services that are.
        services: u64,
        /// Notes of pauses that cannot be read.
        unreadable: u64,
        /// Whether our ConfigMap, in which they are, could be read when it was asked for last.
        fresh: bool,
        /// Whether a term of leadership has begun that waits for it, so that nothing is written.
        term_waits: bool,
    },
    /// Another client's change was undone for the third time or more (W11).
    Fight,
    /// W10's breaker opened or closed, for so many blocked scopes (load balancers on which membership or admin parts
    /// wait, or 1 for all of ARM).
    Blocked {
        /// Scopes that are blocked now.
        scopes: u64,
    },
    /// How many lanes are busy, and how many pools wait in lanes.
    Lanes {
        /// Lanes with a write under way.
        busy: u64,
        /// Pools that are due and not granted.
        waiting: u64,
    },
    /// The throttle gate of a verb class opened or closed.
    Gate {
        /// Which class.
        class: GateClass,
        /// Whether it is closed.
        closed: bool,
    },
    /// The share of the budget of a verb class that is left, 0 to 1.
    BudgetLeft {
        /// Which class.
        class: GateClass,
        /// The share.
        share: f64,
    },
    /// A source of facts is connected and current, or not.
    SourceFresh {
        /// Which.
        kind: Kind,
        /// Whether it is current.
        fresh: bool,
    },
    /// Objects in a cache.
    CachedObjects {
        /// Of which kind.
        kind: Kind,
        /// How many.
        count: u64,
    },
    /// An object of the stream that could not be decoded.
    UndecodableObject(Kind),
    /// A list or an object older than what was seen already, and refused (D6).
    StaleRefused(Kind),
    /// A list older than what was seen already, taken in after all lists had been older for long (D6).
    StaleAccepted(Kind),
    /// A relist was made, for this reason.
    Relist {
        /// Of which kind.
        kind: Kind,
        /// Why.
        reason: RelistReason,
    },
    /// An event could not be posted or was dropped.
    EventDropped,
    /// An event was posted.
    EventPosted,
    /// An event was shown and not posted (C4).
    EventWithheld,
    /// An answer whose id is not expected: lost, late or duplicated (A3).
    UnmatchedAnswer,
    /// An attempt to set the admin states of a pool has ended (S1).
    AdminEnded {
        /// Whether a node was to be cut out; else nodes were only restored.
        down: bool,
        /// From the grant to the end.
        took: Duration,
        /// Whether it counts as a failure.
        failed: bool,
    },
    /// How many nodes stand so with regard to the admin state.
    AdminNodes {
        /// How they stand.
        state: NodeState,
        /// How many.
        nodes: u64,
    },
    /// How many nodes leave service for this reason; one with several reasons counts for each.
    DrainingNodes {
        /// The reason.
        signal: Signal,
        /// How many.
        nodes: u64,
    },
    /// How many address entries are Down.
    DownEntries {
        /// Whether another client has set them.
        foreign: bool,
        /// How many.
        entries: u64,
    },
    /// For how long the oldest node that is not done, and is not held back, has waited; `None`: all are done.
    AdminOldest(Option<Duration>),
    /// The last operation for a draining node has ended so long after its signal.
    Drained(Duration),
    /// Work on a node has ended like this (S4).
    Reconciled(WorkResult),
    /// How many nodes are in the work queue, to be tried again (S4).
    ReconcileQueue(u64),
    /// A patch of a node's taints was answered (N1).
    TaintPatch(TaintResult),
    /// How many records of nodes there are in our ConfigMap, or should be (N4).
    AdminRecords {
        /// Kept, and understood.
        kept: u64,
        /// There, and not understood.
        unreadable: u64,
        /// Wanted, for which there is no room or no key, or whose key holds what is not understood.
        refused: u64,
    },
}

/// Who waited for a lock, in S1's words.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Caller {
    /// A pool that wants its members written.
    Membership,
    /// The admin state, which wants entries Down or restored.
    AdminState,
}

impl Caller {
    /// Both callers.
    pub const ALL: [Caller; 2] = [Caller::Membership, Caller::AdminState];

    /// The word for metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Caller::Membership => "LocalServiceBackendPoolUpdater",
            Caller::AdminState => "AdminStateController",
        }
    }
}

/// What became of a patch of a node's taints.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TaintResult {
    /// It was carried out.
    Done,
    /// Another client had changed the node before.
    Overtaken,
    /// The node was gone.
    Gone,
    /// It was shown, not sent (C4).
    Withheld,
    /// It failed.
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

    /// The word for metrics.
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

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AttemptEnd {
    /// Written.
    Written,
    /// Nothing had to change.
    Unchanged,
    /// Shown, not written (dry run).
    Withheld,
    /// The pool or load balancer was not there.
    Stale,
    /// Will be tried again.
    Retried,
    /// Given up.
    Failed,
    /// No proof of ownership.
    NotManageable,
    /// A permit was refused before anything was sent.
    NotGranted,
    /// Ended by shutdown or lost leadership.
    Interrupted,
}

impl AttemptEnd {
    /// The word for metrics.
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

/// The state a pool is counted under.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PoolState {
    /// Assigned, and not seen since, or not since an attempt whose end is not certain.
    Unknown,
    /// As it should be.
    Right,
    /// Changes wait in a window or for their interval.
    Waiting,
    /// Posted to its lane.
    Due,
    /// An attempt is under way.
    Attempting,
    /// Waits for `next_eligible_at`.
    Parked,
    /// Paused by the operator.
    Paused,
    /// Given up after a reported failure; compared again later.
    Failed,
    /// Left alone, for an invariant of it does not hold (A4).
    Quarantined,
}

impl PoolState {
    /// Every state.
    pub const ALL: [PoolState; 9] = [
        PoolState::Unknown,
        PoolState::Right,
        PoolState::Waiting,
        PoolState::Due,
        PoolState::Attempting,
        PoolState::Parked,
        PoolState::Paused,
        PoolState::Failed,
        PoolState::Quarantined,
    ];

    /// The word for metrics and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            PoolState::Unknown => "unknown",
            PoolState::Right => "right",
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

/// What was called at ARM.
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
    /// The word for metrics.
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

/// How a call was answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ArmResult {
    /// Success.
    Ok,
    /// 429.
    Throttled,
    /// A GET of a load balancer that does not exist. This is no error: the load balancer may not be needed yet.
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
    /// The word for metrics.
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

/// The two verb classes of the throttle gate and the budget (W6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GateClass {
    /// GET and HEAD.
    Reads,
    /// All else.
    Writes,
}

impl GateClass {
    /// Both classes.
    pub const ALL: [GateClass; 2] = [GateClass::Reads, GateClass::Writes];

    /// The word for metrics and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            GateClass::Reads => "reads",
            GateClass::Writes => "writes",
        }
    }
}

/// Why a kind was listed again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RelistReason {
    /// The watch's resourceVersion was too old: 410.
    Expired,
    /// The list was older than what had been seen.
    Stale,
    /// The stream could not be followed.
    Broken,
    /// A term of leadership began (W8).
    NewTerm,
    /// What a list or vanished objects have released is read once more (G1).
    SecondRead,
}

impl RelistReason {
    /// The word for metrics.
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

/// The kinds of results that are counted, a closed set of labels (S4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WorkResult {
    /// The item is right.
    Success,
    /// The work has failed.
    Error,
    /// The worker has asked for another turn.
    Requeue,
    /// The worker has asked for another turn after some time.
    RequeueAfter,
}

impl WorkResult {
    /// All of them.
    pub const ALL: [WorkResult; 4] =
        [WorkResult::Success, WorkResult::Error, WorkResult::Requeue, WorkResult::RequeueAfter];

    /// The label by which controller-runtime counts it.
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
