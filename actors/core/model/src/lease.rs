//! Requests to the kubernetes port about the two Leases that decide which process may write, and their answers
//! (docs/design/writer.md, W7; W8).
//!
//! The port reads and writes the objects. `coordination::leader` interprets our own Lease, and the writer's lock
//! interprets the Lease shared with the cloud-controller-manager.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::arm::Document;
use crate::ids::PoolId;
use crate::machine::Now;
use crate::object::{ApiObject, ObjectAnswer, ObjectRequest, ResourceVersion};

/// How much longer than its requested duration a machine waits for the watch of a Lease. The port itself waits for the
/// start of the answer ([`crate::object::REQUEST_TIMEOUT`]), rounds the duration up to whole seconds, and lets the
/// server be 2 s late: 8 s.
pub const WATCH_MARGIN: Duration = Duration::from_secs(10);

/// The two Leases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LeaseName {
    /// Our own Lease, for leader election among our replicas (W8).
    Own,
    /// `kube-system/aks-managed-resource-locker`, which the cloud-controller-manager takes too (W7).
    Shared,
}

impl LeaseName {
    /// Both Leases.
    pub const ALL: [LeaseName; 2] = [LeaseName::Own, LeaseName::Shared];

    /// Returns the name in logs and the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            LeaseName::Own => "own",
            LeaseName::Shared => "shared",
        }
    }
}

/// The times until which ARM's throttle gates are closed. They are stored in our own Lease, so that a new leader
/// respects the limits that its predecessor was given (W8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GateTimes {
    /// The gate for reads; `None`: open.
    pub reads_until: Option<Now>,
    /// The gate for writes; `None`: open.
    pub writes_until: Option<Now>,
}

/// The pools that have been out of sync for the longest time, with the start of that time. They are stored in our own
/// Lease, so that a change of leader does not make them look healthy (Q8).
pub type OutOfSyncTimes = Arc<BTreeMap<PoolId, Now>>;

/// A Lease as read.
#[derive(Clone, Debug)]
pub struct LeaseFacts {
    /// Name of the Lease.
    pub lease: LeaseName,
    /// `spec.holderIdentity`; `None` when it is absent or empty.
    pub holder: Option<Arc<str>>,
    /// `spec.leaseDurationSeconds`; `None` when it is absent.
    pub duration: Option<Duration>,
    /// Age of `spec.renewTime` at the arrival of the answer, by this process's wall clock. Zero when the time is in
    /// the future; `None` when it is absent or unreadable.
    pub renewed_ago: Option<Duration>,
    /// `spec.leaseTransitions`; 0 when it is absent.
    pub transitions: u64,
    /// The resourceVersion of this state. A replacement sends it, and fails when it is no longer the newest.
    pub version: ResourceVersion,
    /// The gate times stored in it.
    pub gates: GateTimes,
    /// The out-of-sync pools stored in it.
    pub out_of_sync: OutOfSyncTimes,
    /// The whole object, unparsed. A replacement edits it, so that unknown fields survive.
    pub document: Document,
}

/// The changes of a replacement or creation of a Lease. `spec.renewTime` always becomes the time of sending.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseEdit {
    /// The new `spec.holderIdentity`; `None`: none.
    pub holder: Option<Arc<str>>,
    /// The new `spec.leaseDurationSeconds`, in whole seconds.
    pub duration: Duration,
    /// True for a new hold: `spec.acquireTime` becomes the time of sending.
    pub acquired: bool,
    /// True if the holder changes: `spec.leaseTransitions` rises by one.
    pub transition: bool,
    /// The new value of the annotation `aks-managed-resource-locker-previous-holder`; `None` leaves it unchanged.
    pub previous_holder: Option<Arc<str>>,
    /// The gate times to store; `None` leaves the stored ones unchanged.
    pub gates: Option<GateTimes>,
    /// The out-of-sync pools to store; `None` leaves the stored ones unchanged.
    pub out_of_sync: Option<OutOfSyncTimes>,
}

impl ApiObject for LeaseFacts {
    type Edit = LeaseEdit;
}

/// A request about a Lease.
pub type LeaseRequest = ObjectRequest<LeaseFacts>;

/// The answer to a request about a Lease.
pub type LeaseAnswer = ObjectAnswer<LeaseFacts>;
