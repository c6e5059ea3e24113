//! Owns what is known of the managed load balancers: reads them one at a time, at start, at an interval, after
//! changes of candidates and after a 404 (design.md D1, D3). Whose pools they are is the Directory's business.

use std::sync::Arc;
use std::time::Duration;

use crate::arm::{Failure, LbFacts};
use crate::ids::{CallId, LbName, PoolId, ServiceUid};
use crate::informer::ServiceFact;
use crate::machine::Now;
use crate::sample::Sample;
use crate::view::LbView;

/// What Discovery is told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// The managed load balancers (design.md 2).
    pub load_balancers: Vec<LbName>,
    /// `discovery.interval`: how often each is read, 60 s.
    pub interval: Duration,
}

/// What Discovery can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// The first complete lists are in.
    ListsSynced,
    /// A Service changed or is gone.
    Service(ServiceUid, Option<Arc<ServiceFact>>),
    /// The answer to a read.
    Read {
        /// The id of the request.
        call: CallId,
        /// When the GET began.
        began: Now,
        /// What it saw.
        result: Result<Arc<LbFacts>, Arc<Failure>>,
    },
    /// A pool or its load balancer was not there when it was to be written (Q6 Stale).
    Missing(PoolId),
}

/// What Discovery can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the writer: read this load balancer, through the gates and the budget (W9).
    Read {
        /// The id that the answer carries.
        call: CallId,
        /// Which.
        lb: LbName,
    },
    /// To the Directory: a load balancer as it is; `facts: None` means that it does not exist.
    Lb(LbObservation),
    /// To the Directory and the board: every managed load balancer has been looked at once.
    Synced,
    /// To the board.
    View(LbView),
    /// To the metrics.
    Sample(Sample),
}

/// A load balancer as a GET saw it.
#[derive(Clone, Debug)]
pub struct LbObservation {
    /// Which.
    pub lb: LbName,
    /// When the GET began.
    pub began: Now,
    /// What it saw; `None`: it does not exist.
    pub facts: Option<Arc<LbFacts>>,
}
