//! Assignments: the Directory gives each pool its owners and its level (A3).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::arm::PoolFacts;
use crate::ids::{Epoch, Family, PoolId, ServiceKey, ServiceUid};
use crate::level::{Level, Provenance, Source, SurplusPolicy};
use crate::machine::Now;

/// The complete desired state of one pool. A newer assignment replaces an older one.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The term of leadership in which it was computed.
    pub epoch: Epoch,
    /// When this process opened the term. Earlier observations of the pool do not count in it (W8).
    pub opened: Now,
    /// Which pool.
    pub pool: PoolId,
    /// The family of its members.
    pub family: Family,
    /// The source of its level.
    pub source: Source,
    /// The Services that own the pool. Empty: the pool has no owner, releases everything and retires.
    pub services: BTreeMap<ServiceUid, Share>,
    /// The union of the shares, after the guards.
    pub level: Level,
    /// The most doubtful provenance among its parts.
    pub provenance: Provenance,
    /// The reasons for a pause. A paused pool is compared and shown but not written, and its Services get no events
    /// (D1, G6).
    pub paused: BTreeSet<PausedBy>,
    /// A removal that is held back; `level` may keep its members meanwhile (G5).
    pub held: Option<Held>,
    /// A removal that would be held back if guards were enforced, and that is carried out (G5: `guards.mode:
    /// observe`).
    pub would_hold: Option<Held>,
    /// The members that the endpoints require, while a pre-image overrides them; `None` without a pre-image.
    pub overruled: Option<BTreeSet<IpAddr>>,
}

/// Why a pool is compared and shown but not written. The variants are ordered by importance: the first one represents
/// all.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PausedBy {
    /// The configured mode only observes (G6).
    Mode,
    /// The operator has paused everything.
    Everything,
    /// Pre-images are being restored, and this pool has none.
    NotInRestore,
    /// The operator has paused this pool.
    Pool,
    /// The operator has paused this Service, which owns the pool.
    Service(ServiceKey),
    /// This Service, which owns the pool, carries the pause annotation (D1).
    Annotation(ServiceKey),
}

impl PausedBy {
    /// Returns the value in the admin API.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            PausedBy::Mode => "mode",
            PausedBy::Everything => "everything",
            PausedBy::NotInRestore => "not_in_restore",
            PausedBy::Pool => "pool",
            PausedBy::Service(_) => "service",
            PausedBy::Annotation(_) => "annotation",
        }
    }

    /// Returns the Service that is the reason, if one is.
    #[must_use]
    pub fn service(&self) -> Option<&ServiceKey> {
        match self {
            PausedBy::Mode | PausedBy::Everything | PausedBy::NotInRestore | PausedBy::Pool => None,
            PausedBy::Service(key) | PausedBy::Annotation(key) => Some(key),
        }
    }
}

impl Assignment {
    /// Returns true if the pool is not written and its Services get no events (D1, G6).
    #[must_use]
    pub fn is_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// Checks the invariant of every assignment: the level is disjoint and the union of the shares, the requested
    /// admin states refer to members that may stay, and the members held back may stay (A4).
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let Assignment { services, level, .. } = self;
        let required = |ip: &IpAddr| services.values().any(|share| share.required.contains(ip));
        let tolerated = |ip: &IpAddr| services.values().any(|share| share.tolerated.contains(ip));
        level.is_disjoint()
            && level.has_sound_states()
            && level.required.keys().all(required)
            && level.tolerated.iter().all(tolerated)
            && services.values().flat_map(|share| &share.required).all(|ip| level.required.contains_key(ip))
            && services.values().flat_map(|share| &share.tolerated).all(|ip| level.allows(ip))
            && self
                .held
                .iter()
                .flat_map(|held| &held.members)
                .all(|ip| level.keeps == SurplusPolicy::KeepAll || level.allows(ip))
    }
}

/// The share of one Service in a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Share {
    /// The Service.
    pub key: ServiceKey,
    /// A number that rises with every slice event of the Service, even without a change of members (A3).
    pub revision: u64,
    /// The members that this Service requires.
    pub required: BTreeSet<IpAddr>,
    /// The members that this Service tolerates, including those that guards and delays add.
    pub tolerated: BTreeSet<IpAddr>,
    /// When the oldest endpoint change in this level was triggered; for the latency metric.
    pub triggered: Option<Now>,
    /// When the newest change in this level was read; `None`: no change was read.
    pub read: Option<Now>,
}

/// A removal that is held back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// The reason.
    pub reason: HeldReason,
    /// When the holding back began.
    pub since: Now,
    /// What ends the holding back (G5).
    pub waits: Waits,
    /// The members that stay meanwhile.
    pub members: BTreeSet<IpAddr>,
}

/// What ends the holding back of a removal. New facts and the operator can always end it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Waits {
    /// The holding back ends at that time.
    Time(Now),
    /// The holding back ends when lists of most recent data, begun at this time or later, confirm the removal (G1).
    /// If it also waits for a time, the later of the two applies.
    SecondRead(Now),
    /// Only new facts or the operator end the holding back.
    Facts,
}

impl Waits {
    /// Returns the value in the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Waits::Time(_) => "time",
            Waits::SecondRead(_) => "second_read",
            Waits::Facts => "facts",
        }
    }

    /// Returns the earliest time at which the holding back may end without new facts, if known.
    #[must_use]
    pub fn earliest(self) -> Option<Now> {
        match self {
            Waits::Time(at) | Waits::SecondRead(at) => Some(at),
            Waits::Facts => None,
        }
    }
}

/// Why a removal is held back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HeldReason {
    /// The last member of a live Service waits for confirmation (G2).
    EmptyConfirm,
    /// There are endpoints but no usable node behind any of them, or a slice or node of theirs is unreadable (D6).
    NoUsableNode,
    /// There are endpoints, but none counts and none of their nodes is in the pool: the current members are the last
    /// ones (G2).
    LastMember,
    /// More than the allowed fraction of the pool would go, for a doubtful reason (G3).
    Fraction,
    /// Too many pools would lose most of their members (G4).
    Breaker,
    /// The configured mode removes no members (G6). This is not a guard: it is not reported and cannot be released.
    AddOnly,
}

impl HeldReason {
    /// Every reason.
    pub const ALL: [HeldReason; 6] = [
        HeldReason::EmptyConfirm,
        HeldReason::NoUsableNode,
        HeldReason::LastMember,
        HeldReason::Fraction,
        HeldReason::Breaker,
        HeldReason::AddOnly,
    ];

    /// Returns the value in metrics, events and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            HeldReason::EmptyConfirm => "empty_confirm",
            HeldReason::NoUsableNode => "no_usable_node",
            HeldReason::LastMember => "last_member",
            HeldReason::Fraction => "fraction",
            HeldReason::Breaker => "breaker",
            HeldReason::AddOnly => "add_only",
        }
    }
}

/// The members of a pool after an attempt or its verification: newer than what any earlier GET returned (D3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolMembers {
    /// When the attempt ended, or when the GET of the verification began.
    pub at: Now,
    /// The members.
    pub members: BTreeSet<IpAddr>,
}

/// A pool as a GET returned it.
#[derive(Clone, Debug)]
pub struct Observation {
    /// When the GET began. An observation that began before the pool's last write ended is discarded (D3).
    pub began: Now,
    /// The content of the pool.
    pub facts: Arc<PoolFacts>,
}
