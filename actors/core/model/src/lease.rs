//! The two Leases that decide who may write: what is asked of the kubernetes port about them, and what it answers
//! (docs/design/writer.md, W7; W8).
//!
//! The port reads and writes the objects; what a state of a Lease means is decided by [`coordination::leader`] for our own
//! and by the writer's lock for the one that is shared with the cloud-controller-manager.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::arm::Document;
use crate::ids::PoolId;
use crate::machine::Now;
use crate::object::{RequestFailure, ResourceVersion};

/// How long after the time that it was asked for a watch of a Lease is waited for. The port itself waits for the
/// beginning of the answer ([`crate::object::ANSWER_WITHIN`]), rounds the time up to whole seconds, and lets the
/// server be 2 s late: 8 s.
pub const WATCH_MARGIN: Duration = Duration::from_secs(10);

/// Which Lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LeaseName {
    /// Our own: who of our replicas leads (W8).
    Own,
    /// `kube-system/aks-managed-resource-locker`, which the cloud-controller-manager takes too (W7).
    Shared,
}

impl LeaseName {
    /// Both.
    pub const ALL: [LeaseName; 2] = [LeaseName::Own, LeaseName::Shared];

    /// The word for logs and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            LeaseName::Own => "own",
            LeaseName::Shared => "shared",
        }
    }
}

/// Until when ARM's throttle gates are closed; kept in our own Lease, so that a new leader heeds what its
/// predecessor was told (W8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GateTimes {
    /// Reads; `None`: open.
    pub reads_until: Option<Now>,
    /// Writes; `None`: open.
    pub writes_until: Option<Now>,
}

/// Since when pools have been out of sync, those that have been for longest; kept in our own Lease, so that a change of
/// leader does not make them look healthy (Q8).
pub type OutOfSyncTimes = Arc<BTreeMap<PoolId, Now>>;

/// A Lease as it was seen.
#[derive(Clone, Debug)]
pub struct LeaseFacts {
    /// Which.
    pub lease: LeaseName,
    /// `spec.holderIdentity`; `None` when it is absent or empty.
    pub holder: Option<Arc<str>>,
    /// `spec.leaseDurationSeconds`; `None` when it is absent.
    pub duration: Option<Duration>,
    /// How long before the answer's arrival `spec.renewTime` was, by this process's wall clock: zero when that lies
    /// in the future, `None` when it is absent or unreadable.
    pub renewed_ago: Option<Duration>,
    /// `spec.leaseTransitions`; 0 when it is absent.
    pub transitions: u64,
    /// The version of this state of it: a replacement names it and fails when it is no longer the newest.
    pub version: ResourceVersion,
    /// The gate times that are noted in it.
    pub gates: GateTimes,
    /// The pools that are noted in it as out of sync.
    pub out_of_sync: OutOfSyncTimes,
    /// The whole of it, unread: a replacement edits it, so that unknown fields survive.
    pub document: Document,
}

/// What a replacement or creation changes in a Lease; `spec.renewTime` always becomes the time of sending.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseEdit {
    /// The new `spec.holderIdentity`; `None`: none.
    pub holder: Option<Arc<str>>,
    /// The new `spec.leaseDurationSeconds`, in whole seconds.
    pub duration: Duration,
    /// Whether it is a new hold: `spec.acquireTime` becomes the time of sending.
    pub acquired: bool,
    /// Whether it goes from one holder to another: `spec.leaseTransitions` is raised by one.
    pub transition: bool,
    /// The new value of the annotation `aks-managed-resource-locker-previous-holder`; `None` leaves it.
    pub previous_holder: Option<Arc<str>>,
    /// The gate times to note; `None` leaves those that are noted.
    pub gates: Option<GateTimes>,
    /// The pools to note as out of sync; `None` leaves those that are noted.
    pub out_of_sync: Option<OutOfSyncTimes>,
}

/// What is asked about a Lease.
#[derive(Clone, Debug)]
pub enum LeaseAsk {
    /// GET it.
    Get,
    /// Create it; it must not exist.
    Create(LeaseEdit),
    /// Replace the state that was seen; fails with [`LeaseAnswer::Conflict`] when that is no longer the newest.
    Replace(Arc<LeaseFacts>, LeaseEdit),
    /// Watch it from this version on and answer with the first newer state, or with
    /// [`LeaseAnswer::Unchanged`] after at most the given time.
    Await(ResourceVersion, Duration),
}

/// What became of a request about a Lease.
#[derive(Clone, Debug)]
pub enum LeaseAnswer {
    /// Its state: read, or as it is after the write.
    Seen(Arc<LeaseFacts>),
    /// It does not exist.
    Absent,
    /// Another client wrote it first, or it exists already.
    Conflict,
    /// Nothing has changed while it was watched.
    Unchanged,
    /// The request failed, or its answer was lost: a write may have been carried out all the same.
    Failed(RequestFailure),
}
