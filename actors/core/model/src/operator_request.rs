//! Operator requests to the running service, and their answers (docs/design/model-and-mechanisms.md, A3; H3).
//!
//! Each request carries an id. The machine that decides about the request answers once, with that id. If the work
//! takes longer than the answer, the answer says so.

use std::fmt;
use std::sync::Arc;

use crate::assignment::{HeldReason, PausedBy};
use crate::gate_class::GateClass;
use crate::ids::{LbName, NodeName, PoolId, ServiceKey};
use crate::machine::Now;

/// Id of an operator's request, unique in this process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// A request on its way to the machine that decides about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its id.
    pub id: RequestId,
    /// The action.
    pub wanted: OperatorAction,
}

/// The action that the operator requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OperatorAction {
    /// An immediate attempt for this pool (H3).
    Attempt(PoolId),
    /// The release of held removals (G5) and of waiting nodes (N5): everywhere, including the stop of all removals
    /// (G4), or only in these pools or for this node.
    Release(Scope),
    /// A read of this load balancer, or of all, and a comparison of its pools.
    Compare(Option<LbName>),
    /// Opens the throttle gate of this class, or both gates (W6).
    OpenGates(Option<GateClass>),
    /// A pause (G6).
    Pause {
        /// The scope of the pause.
        scope: Scope,
        /// The operator, as the API server identifies them.
        by: Option<Arc<str>>,
        /// The reason that the operator gave.
        reason: Option<Arc<str>>,
    },
    /// Ends a pause.
    Resume(Scope),
}

/// The scope of a request.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// Everything.
    Everything,
    /// One pool.
    Pool(PoolId),
    /// One Service, in all its pools.
    Service(ServiceKey),
    /// One node. It can be released, but not paused.
    Node(NodeName),
}

impl fmt::Display for OperatorAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperatorAction::Attempt(pool) => write!(f, "an attempt of pool {pool}"),
            OperatorAction::Release(scope) => write!(f, "the release of {scope}"),
            OperatorAction::Compare(None) => f.write_str("a comparison of all load balancers"),
            OperatorAction::Compare(Some(lb)) => write!(f, "a comparison of load balancer {}", lb.as_str()),
            OperatorAction::OpenGates(None) => f.write_str("the opening of both throttle gates"),
            OperatorAction::OpenGates(Some(class)) => {
                write!(f, "the opening of the throttle gate of {}", class.as_str())
            }
            OperatorAction::Pause { scope, reason: None, .. } => write!(f, "a pause of {scope}"),
            OperatorAction::Pause { scope, reason: Some(reason), .. } => {
                write!(f, "a pause of {scope}: {reason}")
            }
            OperatorAction::Resume(scope) => write!(f, "the end of the pause of {scope}"),
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

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The request is done, or has begun if it takes time.
    Done(Done),
    /// The request was refused or failed.
    Refused(Refusal),
}

/// The result of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Done {
    /// The pool takes part in the next turn of its lane, without its window and intervals.
    Attempting,
    /// These removals and nodes are no longer held back for the named reason. Both lists are empty if only the stop of
    /// all removals ended.
    Released {
        /// The removals.
        pools: Vec<Released>,
        /// The nodes that waited to be set Down (N5).
        nodes: Vec<NodeName>,
    },
    /// These load balancers are read and their pools compared.
    Comparing(Vec<LbName>),
    /// These gates were closed and are open now.
    GatesOpened(Vec<GateClass>),
    /// The pause is in effect. It is stored if it outlives this process.
    Paused(Effect),
    /// The pause is over.
    Resumed {
        /// True if there was a pause.
        was: bool,
        /// When the change takes effect.
        effect: Effect,
    },
}

/// A removal that the operator has released.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Released {
    /// The pool.
    pub pool: PoolId,
    /// The reason for which it was held back.
    pub reason: HeldReason,
    /// The reason that still holds it back, as far as known before the pool is computed again.
    pub still: Option<HeldReason>,
}

/// When a pause, or its end, takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Immediately: this process writes, and has applied it.
    Now,
    /// When the process that writes has read it.
    WhenRead,
}

/// Why a request was refused. Each reason implies what the operator can do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The pool, Service, node or load balancer does not exist here.
    Unknown,
    /// This process is not the leader, and only the leader can do this.
    NotLeading,
    /// The pool is parked, or a gate or its lane is closed, until that time.
    NotBefore(Now),
    /// A pause, or a mode that only observes; the most important one.
    Paused(PausedBy),
    /// A release that releases nothing: it ends none of the holds in that scope.
    NothingReleased(ReleaseRefusal),
    /// A dry run (C4), and this request is not shown.
    DryRun,
    /// A necessary step failed, and the result is not known; with the error.
    Failed(Arc<str>),
}

/// Why a release releases nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleaseRefusal {
    /// Nothing is held back in that scope.
    NothingHeld,
    /// All removals are stopped; only a release of everything ends that (G4).
    AllStopped,
    /// The mode removes no members (G6).
    AddOnly,
    /// The node does not wait: no signal says that it leaves service, or it is Down already (N5).
    NodeNotHeld,
}
