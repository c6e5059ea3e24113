//! What pools are put back to when pre-images are restored: plain data, given to the Directory once at its start
//! (docs/design/surface.md, commands).
//!
//! A pin takes the place of all that endpoints, the removal delay and the guards would make of a pool's level: the operator
//! has decided. That a pool is proven to be ours is needed all the same (D2).

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::ids::{AddressName, Family, PoolId};

/// The pools that are put back. Every other one is left as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pins(pub BTreeMap<PoolId, Pin>);

/// What one pool is put back to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pin {
    /// Its members, and the names that entries for them get.
    pub members: BTreeMap<IpAddr, AddressName>,
    /// Whether it may be emptied though its Services have endpoints; without members alone this counts (G2).
    pub may_empty: bool,
    /// Whether it may lose every member that endpoints require; with members alone this counts (G2).
    pub may_starve: bool,
    /// Whether it is put back though its Services carry the annotation of a pause: the operator has named it (D1).
    pub despite_pause: bool,
}

impl Pins {
    /// The pin of a pool of this family; `None`: it has none, or one with a member that cannot be in it.
    #[must_use]
    pub fn of(&self, pool: &PoolId, family: Family) -> Option<&Pin> {
        let fits = |ip: &IpAddr| match family {
            Family::V4 => ip.is_ipv4(),
            Family::V6 => ip.is_ipv6(),
        };
        self.0.get(pool).filter(|pin| pin.members.keys().all(fits))
    }
}
