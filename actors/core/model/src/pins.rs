//! Pre-images to restore pools to: plain data that the Directory gets once, at its start (docs/design/surface.md,
//! commands).
//!
//! A pin overrides the level that results from endpoints, the removal delay and the guards, because the operator has
//! decided. Ownership of the pool must be proven nevertheless (D2).

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::ids::{AddressName, Family, PoolId};

/// The pins by pool. A pool without a pin stays unchanged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pins(pub BTreeMap<PoolId, Pin>);

/// The pre-image of one pool.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pin {
    /// The members, with the names for their entries.
    pub members: BTreeMap<IpAddr, AddressName>,
    /// True if the pool may be emptied although its Services have endpoints; applies only to a pin without members
    /// (G2).
    pub allow_empty: bool,
    /// True if the pool may lose every member that its endpoints require; applies only to a pin with members (G2).
    pub allow_unserved: bool,
    /// True if the pool is restored although its Services carry the pause annotation: the operator has named the pool
    /// (D1).
    pub ignore_pause: bool,
}

impl Pins {
    /// Returns the pin of a pool of this family; `None` if it has none, or if the pool cannot hold one of the
    /// members.
    #[must_use]
    pub fn of(&self, pool: &PoolId, family: Family) -> Option<&Pin> {
        let fits = |ip: &IpAddr| match family {
            Family::V4 => ip.is_ipv4(),
            Family::V6 => ip.is_ipv6(),
        };
        self.0.get(pool).filter(|pin| pin.members.keys().all(fits))
    }
}
