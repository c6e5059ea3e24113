//! Observations of load balancers by Discovery (docs/design/pools.md, D3).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::arm::LbFacts;
use crate::ids::{LbName, PoolName};
use crate::machine::Now;

/// The PUTs of this process that may affect the result of a GET of a load balancer (N4).
#[derive(Clone, Debug, Default)]
pub struct OurPuts {
    /// Time of the last PUT to each of its pools, whatever its result.
    pub sent: Arc<BTreeMap<PoolName, Now>>,
    /// The oldest draining set whose PUT may have taken effect since the GET began, or may still take effect.
    pub oldest: Option<u64>,
}

/// A load balancer as a GET returned it.
#[derive(Clone, Debug)]
pub struct LbObservation {
    /// The load balancer.
    pub lb: LbName,
    /// When the GET began.
    pub began: Now,
    /// The content; `None`: the load balancer does not exist.
    pub facts: Option<Arc<LbFacts>>,
    /// Our own PUTs that may affect the content, up to the time of the answer.
    pub puts: OurPuts,
}
