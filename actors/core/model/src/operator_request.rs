//! What operators ask of the running service, one request at a time, and what became of it
//! (docs/design/model-and-mechanisms.md, A3; H3).
//!
//! Each request carries an id; the machine that decides about it answers with that id, once. What is asked for may be
//! done later than the answer: then the answer says so.

use std::fmt;
use std::sync::Arc;

use crate::assignment::{HeldReason, PausedBy};
use crate::ids::{LbName, NodeName, PoolId, ServiceKey};
use crate::machine::Now;
use crate::sample::GateClass;

/// The id of one person's request, unique in this process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// The operator's request, on its way to the machine that decides about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its id.
    pub id: RequestId,
    /// What is asked.
    pub wanted: Wanted,
}

/// What the operator asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// An attempt of this pool now (H3).
    Attempt(PoolId),
    /// The end of what guards hold back (G5) and of the wait of nodes that leave service (N5): everywhere, and of the stop
    /// of all removals (G4) too, or in these pools, or of this node.
    Release(Scope),
    /// A look at this load balancer, or at all, and a comparison of its pools.
    Compare(Option<LbName>),
    /// That the throttle gate of this class is opened, or both are (W6).
    OpenGates(Option<GateClass>),
    /// A pause (G6).
    Pause {
        /// Of what.
        scope: Scope,
        /// Who asks, as the API server knows them.
        by: Option<Arc<str>>,
        /// Why, in their words.
        reason: Option<Arc<str>>,
    },
    /// The end of a pause.
    Resume(Scope),
}

/// What a request is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// Everything.
    Everything,
    /// One pool.
    Pool(PoolId),
    /// One Service, in all its pools.
    Service(ServiceKey),
    /// One node: it can be let go, and not be paused.
    Node(NodeName),
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Attempt(pool) => write!(f, "an attempt of pool {pool}"),
            Wanted::Release(scope) => write!(f, "the release of {scope}"),
            Wanted::Compare(None) => f.write_str("a comparison of all load balancers"),
            Wanted::Compare(Some(lb)) => write!(f, "a comparison of load balancer {}", lb.as_str()),
            Wanted::OpenGates(None) => f.write_str("the opening of both throttle gates"),
            Wanted::OpenGates(Some(class)) => {
                write!(f, "the opening of the throttle gate of {}", class.as_str())
            }
            Wanted::Pause { scope, reason: None, .. } => write!(f, "a pause of {scope}"),
            Wanted::Pause { scope, reason: Some(reason), .. } => write!(f, "a pause of {scope}: {reason}"),
            Wanted::Resume(scope) => write!(f, "the end of the pause of {scope}"),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Everything => f.write_str("everything"),
            Scope::Pool(pool) => write!(f, "pool {pool}"),
            Scope::Service(key) => write!(f, "Service {key}"),
            Scope::Node(name) => write!(f, "node {name}"),
        }
    }
}

/// What became of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is done, or begun where that takes time.
    Done(Done),
    /// It was not done.
    Refused(Refusal),
}

/// What was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Done {
    /// The pool takes part in the next turn of its lane, without its window and intervals.
    Attempting,
    /// These are no longer held back for what held them; nothing of either: only the stop of all removals has ended.
    Released {
        /// The removals.
        pools: Vec<Released>,
        /// The nodes that waited to be cut out of traffic (N5).
        nodes: Vec<NodeName>,
    },
    /// These load balancers are read and their pools compared.
    Comparing(Vec<LbName>),
    /// These gates were closed and are open.
    GatesOpened(Vec<GateClass>),
    /// It is paused, and that is noted where it outlives this process.
    Paused(Effect),
    /// It is no longer paused.
    Resumed {
        /// Whether it was.
        was: bool,
        /// From when on that counts.
        effect: Effect,
    },
}

/// A removal that the operator has released.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Released {
    /// Of which pool.
    pub pool: PoolId,
    /// What it was held back for.
    pub reason: HeldReason,
    /// What goes on to hold it back, as far as that is known before the pool is worked out again.
    pub still: Option<HeldReason>,
}

/// From when on a pause, or its end, counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// From now on: this process writes, and has heard of it.
    Now,
    /// When the process that writes has read it.
    WhenRead,
}

/// Why a request was refused. Each says what the person can do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is no such pool, Service, node or load balancer here.
    Unknown,
    /// This process does not lead; only the leader does this.
    NotLeading,
    /// The pool is parked, or a gate or its lane is closed, until then.
    NotBefore(Now),
    /// It is paused, or the mode only observes: by what, first of all.
    Paused(PausedBy),
    /// A release releases nothing: of what is held back there, a release of that scope ends none.
    NothingReleased(Stays),
    /// This process only shows what it would do (C4), and this is not to be shown.
    DryRun,
    /// What it needs has failed, and it is not known to be done: why.
    Failed(Arc<str>),
}

/// Why a release releases nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stays {
    /// Nothing is held back there.
    NothingHeld,
    /// All removals are stopped, which only a release of everything ends (G4).
    AllStopped,
    /// The mode removes no member (G6).
    AddOnly,
    /// The node does not wait: no signal says that it leaves service, or it is cut out already (N5).
    NodeNotHeld,
}
