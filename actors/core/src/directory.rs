//! Joins levels, mapping and the one active source of each pool, judges removals by the guards, and assigns
//! each pool its level (design.md A2, D1, D2, D4, D6, G2). When a level is written is the pool's business.

use std::sync::Arc;
use std::time::Duration;

use crate::assignment::{Assignment, Observation};
use crate::discovery::LbObservation;
use crate::ids::{Epoch, PoolId, ServiceUid};
use crate::informer::ServiceFact;
use crate::report::Report;
use crate::sample::Sample;
use crate::view::ServiceView;

/// What the Directory is told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// `members.removalDelay`, 30 s; pools with a rule without a probe have none (D4).
    pub removal_delay: Duration,
    /// `guards.emptyConfirm`, 60 s (G2).
    pub empty_confirm: Duration,
    /// `clusterName`: pools of that name, with or without `-IPv6`, are never written (D2).
    pub cluster_name: Arc<str>,
}

/// What the Directory can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// The first complete lists are in.
    ListsSynced,
    /// Every managed load balancer has been looked at once.
    DiscoverySynced,
    /// A Service changed or is gone.
    Service(ServiceUid, Option<Arc<ServiceFact>>),
    /// A load balancer was read.
    Lb(LbObservation),
    /// A new term of leadership.
    Epoch(Epoch),
    /// A pool that nobody is assigned any more has let go of everything.
    Retired(PoolId),
}

/// What the Directory can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To a pool: its level. Empty `services` means nobody's.
    Assign(Arc<Assignment>),
    /// To a pool: what discovery saw of it.
    Observe(PoolId, Observation),
    /// To the registry of pools: drop this one; it has retired and is nobody's.
    Forget(PoolId),
    /// To the event emitter.
    Report(Report),
    /// To the board: a Service, or that it is gone.
    Service(ServiceUid, crate::ids::ServiceKey, Option<Arc<ServiceView>>),
    /// To the metrics.
    Sample(Sample),
}
