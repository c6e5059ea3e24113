//! Collects the machines' views into one snapshot, published at most every 250 ms (design.md A2).

use std::sync::Arc;

use crate::ids::{PoolId, ServiceKey, ServiceUid};
use crate::sample::GateClass;
use crate::view::{GateView, LaneView, LbView, PoolView, ServiceView, Snapshot, SourceView};

/// What the board can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// A pool.
    Pool(Arc<PoolView>),
    /// A pool is gone.
    PoolGone(PoolId),
    /// A Service, or that it is gone. The UID tells a re-created Service from its predecessor.
    Service(ServiceUid, ServiceKey, Option<Arc<ServiceView>>),
    /// A lane.
    Lane(LaneView),
    /// A gate.
    Gate(GateClass, GateView),
    /// A source.
    Source(SourceView),
    /// A load balancer.
    Lb(LbView),
    /// The first complete lists are in.
    ListsSynced,
    /// Every managed load balancer has been looked at once.
    DiscoverySynced,
}

/// What the board can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the published cell.
    Publish(Arc<Snapshot>),
}
