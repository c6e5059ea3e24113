//! What the Directory tells a pool: whose it is and what it must hold, as one level (A3).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::arm::PoolFacts;
use crate::ids::{Epoch, Family, PoolId, ServiceKey, ServiceUid};
use crate::level::{Level, Provenance, Source};
use crate::machine::Now;

/// The whole truth about one pool's wanted state; a newer one replaces an older one.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The term of leadership in which it was made.
    pub epoch: Epoch,
    /// When that term was opened here: nothing that was seen of the pool before is believed in it (W8).
    pub opened: Now,
    /// Which pool.
    pub pool: PoolId,
    /// The family of its members.
    pub family: Family,
    /// The one source of its level.
    pub source: Source,
    /// Whose pool it is. Empty: nobody's; the pool lets go of everything and retires.
    pub services: BTreeMap<ServiceUid, Share>,
    /// The union of the shares after the guards.
    pub level: Level,
    /// The most doubtful way in which a part of it reached us.
    pub provenance: Provenance,
    /// Whether a person paused it: compared and shown, not written (D1).
    pub paused: bool,
    /// A removal that a guard holds back; its members are tolerated in `level` meanwhile (G5).
    pub held: Option<Held>,
}

impl Assignment {
    /// Whether it is what it should be: the level is disjoint and the union of the shares, and what is held back may
    /// stay (A4).
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let Assignment { services, level, .. } = self;
        let required = |ip: &IpAddr| services.values().any(|share| share.required.contains(ip));
        let tolerated = |ip: &IpAddr| services.values().any(|share| share.tolerated.contains(ip));
        level.is_disjoint()
            && level.required.keys().all(required)
            && level.tolerated.iter().all(tolerated)
            && services.values().flat_map(|share| &share.required).all(|ip| level.required.contains_key(ip))
            && services.values().flat_map(|share| &share.tolerated).all(|ip| level.allows(ip))
            && self.held.iter().flat_map(|held| &held.members).all(|ip| level.allows(ip))
    }
}

/// One Service's part in a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Share {
    /// The Service.
    pub key: ServiceKey,
    /// Raised by every slice event of the Service, even one that changes no member (A3).
    pub revision: u64,
    /// What this Service requires.
    pub required: BTreeSet<IpAddr>,
    /// What this Service tolerates, what guards and delays add included.
    pub tolerated: BTreeSet<IpAddr>,
    /// When the oldest endpoint change behind this level was triggered; for the latency metric.
    pub triggered: Option<Now>,
}

/// A removal that is held back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// Why.
    pub reason: HeldReason,
    /// Since when.
    pub since: Now,
    /// When it ends by itself; `None`: only a person or new facts end it.
    pub until: Option<Now>,
    /// The members that stay meanwhile.
    pub members: BTreeSet<IpAddr>,
}

/// Why a removal is held back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HeldReason {
    /// The last member of a live Service waits for confirmation (G2).
    EmptyConfirm,
    /// There are endpoints but no usable node behind any of them, or a slice or node of theirs cannot be read (D6).
    NoUsableNode,
    /// There are endpoints, but none that counts, and none of their nodes is in the pool: what is in it is all
    /// there is (G2).
    LastMember,
}

impl HeldReason {
    /// Every reason.
    pub const ALL: [HeldReason; 3] =
        [HeldReason::EmptyConfirm, HeldReason::NoUsableNode, HeldReason::LastMember];

    /// The word for metrics, events and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            HeldReason::EmptyConfirm => "empty_confirm",
            HeldReason::NoUsableNode => "no_usable_node",
            HeldReason::LastMember => "last_member",
        }
    }
}

/// A pool as a GET saw it.
#[derive(Clone, Debug)]
pub struct Observation {
    /// When the GET began; one that began before the pool's last write ended is discarded (D3).
    pub began: Now,
    /// What it saw.
    pub facts: Arc<PoolFacts>,
}
