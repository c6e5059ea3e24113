//! What Discovery says of load balancers (docs/design/pools.md, D3).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::arm::LbFacts;
use crate::ids::{LbName, PoolName};
use crate::machine::Now;

/// What this process may have to do with what a GET of a load balancer shows (N4).
#[derive(Clone, Debug, Default)]
pub struct OurPuts {
    /// When it has last sent a PUT to each of its pools, whatever came of it.
    pub sent: Arc<BTreeMap<PoolName, Now>>,
    /// The oldest draining set of which a PUT may have been carried out since the GET began, or may be yet.
    pub oldest: Option<u64>,
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
    /// What our own PUTs, up to the moment of the answer, may have to do with that.
    pub puts: OurPuts,
}
