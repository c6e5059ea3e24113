//! What the Directory tells a pool: whose it is and what it must hold, as one level (A3).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::arm::PoolFacts;
use crate::ids::{Epoch, Family, PoolId, ServiceKey, ServiceUid};
use crate::level::{Keeps, Level, Provenance, Source};
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
    /// The Services whose pool it is. Empty: it has no owner; the pool releases everything and retires.
    pub services: BTreeMap<ServiceUid, Share>,
    /// The union of the shares after the guards.
    pub level: Level,
    /// The most doubtful way in which a part of it reached us.
    pub provenance: Provenance,
    /// All that pauses it: compared and shown, not written, and its Services are told nothing (D1, G6).
    pub paused: BTreeSet<PausedBy>,
    /// A removal that is held back; its members may stay by `level` meanwhile (G5).
    pub held: Option<Held>,
    /// A removal that would be held back if the guards were enforced, and goes on (G5: `guards.mode: observe`).
    pub would_hold: Option<Held>,
    /// What endpoints require, where a pre-image has taken the place of that; `None`: none has.
    pub overruled: Option<BTreeSet<IpAddr>>,
}

/// What keeps a pool from being written, though it is compared and shown. The order is that of being named: where one
/// stands for all, it is the first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PausedBy {
    /// The configured mode only observes (G6).
    Mode,
    /// The operator paused everything.
    Everything,
    /// Pre-images are restored, and there is none for this pool.
    NoPin,
    /// The operator paused this pool.
    Pool,
    /// The operator paused this Service, whose pool it is.
    Service(ServiceKey),
    /// This Service, whose pool it is, carries the annotation (D1).
    Annotation(ServiceKey),
}

impl PausedBy {
    /// The word for the admin API.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            PausedBy::Mode => "mode",
            PausedBy::Everything => "everything",
            PausedBy::NoPin => "no_pin",
            PausedBy::Pool => "pool",
            PausedBy::Service(_) => "service",
            PausedBy::Annotation(_) => "annotation",
        }
    }

    /// The Service that it is about, where it is about one.
    #[must_use]
    pub fn service(&self) -> Option<&ServiceKey> {
        match self {
            PausedBy::Mode | PausedBy::Everything | PausedBy::NoPin | PausedBy::Pool => None,
            PausedBy::Service(key) | PausedBy::Annotation(key) => Some(key),
        }
    }
}

impl Assignment {
    /// Whether anything keeps the pool from being written, and its Services from being told of it (D1, G6).
    #[must_use]
    pub fn is_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// Whether it is what it should be: the level is disjoint and the union of the shares, what it says of admin states
    /// is said of what may stay, and what is held back may stay (A4).
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
                .all(|ip| level.keeps == Keeps::All || level.allows(ip))
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
    /// When the newest change behind it was read; `None`: nothing was read that changed it.
    pub read: Option<Now>,
}

/// A removal that is held back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// Why.
    pub reason: HeldReason,
    /// Since when.
    pub since: Now,
    /// What it waits for (G5).
    pub waits: Waits,
    /// The members that stay meanwhile.
    pub members: BTreeSet<IpAddr>,
}

/// What ends the holding back of a removal. New facts and the operator may always do so.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Waits {
    /// It ends by itself at that moment.
    Time(Now),
    /// It ends when lists of most recent data, begun at this moment or later, say the same (G1); where it waits for a
    /// time as well, the later of both.
    SecondRead(Now),
    /// Only new facts or the operator end it.
    Facts,
}

impl Waits {
    /// The word for the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Waits::Time(_) => "time",
            Waits::SecondRead(_) => "second_read",
            Waits::Facts => "facts",
        }
    }

    /// The moment at which it may end at the earliest by itself, where one is known.
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
    /// There are endpoints but no usable node behind any of them, or a slice or node of theirs cannot be read (D6).
    NoUsableNode,
    /// There are endpoints, but none that counts, and none of their nodes is in the pool: what is in it is all
    /// there is (G2).
    LastMember,
    /// More than the allowed fraction of the pool would go, in a way that is in doubt (G3).
    Fraction,
    /// Too many pools would lose most of their members (G4).
    Breaker,
    /// The configured mode removes no member (G6). That is no guard: it is not reported, and it cannot be released.
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

    /// The word for metrics, events and the admin API.
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

/// The members that a pool has after an attempt or its verification: newer than what any earlier GET saw (D3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolMembers {
    /// When the attempt ended, or the GET of the verification began.
    pub at: Now,
    /// All of them.
    pub members: BTreeSet<IpAddr>,
}

/// A pool as a GET saw it.
#[derive(Clone, Debug)]
pub struct Observation {
    /// When the GET began; one that began before the pool's last write ended is discarded (D3).
    pub began: Now,
    /// What it saw.
    pub facts: Arc<PoolFacts>,
}
