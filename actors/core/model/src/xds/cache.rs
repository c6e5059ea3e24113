//! The states of a cached resource, and its errors (gRFC A88; docs/design/xds.md, X1).

use std::sync::Arc;
use std::time::Duration;

use crate::level::Provenance;
use crate::machine::Wall;
use crate::xds::facts::{Code, Raw};

/// The server features of A88 that the source of the resources has (X2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// True if a data error ends the use of the cached resource (`fail_on_data_errors`).
    pub fail_on_data_errors: bool,
    /// True if a missing resource means a slow source and not a resource that does not exist
    /// (`resource_timer_is_transient_error`).
    pub timer_is_transient: bool,
}

impl Policy {
    /// Returns how long a resource may take to arrive after it was requested (A57, A88).
    #[must_use]
    pub const fn resource_timeout(self) -> Duration {
        Duration::from_secs(if self.timer_is_transient { 30 } else { 15 })
    }
}

/// The state of a cache entry (A88). Only DOES_NOT_EXIST, NACKED and RECEIVED_ERROR occur both with and without a
/// cached resource.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ResourceState {
    /// The resource is watched; neither the resource nor an error has arrived.
    Requested,
    /// The resource does not exist: it did not arrive in time, or was deleted.
    DoesNotExist,
    /// The resource exists and is valid.
    Acked,
    /// Its most recent version is invalid.
    Nacked,
    /// Its source has reported an error instead of it (xRFC TP3).
    ReceivedError,
    /// The resource did not arrive in time, from a source that would have reported that it does not exist.
    Timeout,
}

impl ResourceState {
    /// Every state.
    pub const ALL: [ResourceState; 6] = [
        ResourceState::Requested,
        ResourceState::DoesNotExist,
        ResourceState::Acked,
        ResourceState::Nacked,
        ResourceState::ReceivedError,
        ResourceState::Timeout,
    ];

    /// Returns the name of the state in CSDS (`ClientResourceStatus`).
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ResourceState::Requested => "REQUESTED",
            ResourceState::DoesNotExist => "DOES_NOT_EXIST",
            ResourceState::Acked => "ACKED",
            ResourceState::Nacked => "NACKED",
            ResourceState::ReceivedError => "RECEIVED_ERROR",
            ResourceState::Timeout => "TIMEOUT",
        }
    }

    /// Returns the metric label for this state, with or without a cached resource (A78, A88).
    #[must_use]
    pub fn cache_state(self, is_cached: bool) -> CacheState {
        match self {
            ResourceState::Requested => CacheState::Requested,
            ResourceState::DoesNotExist if is_cached => CacheState::DoesNotExistButCached,
            ResourceState::DoesNotExist => CacheState::DoesNotExist,
            ResourceState::Acked => CacheState::Acked,
            ResourceState::Nacked if is_cached => CacheState::NackedButCached,
            ResourceState::Nacked => CacheState::Nacked,
            ResourceState::ReceivedError if is_cached => CacheState::ReceivedErrorButCached,
            ResourceState::ReceivedError => CacheState::ReceivedError,
            ResourceState::Timeout => CacheState::Timeout,
        }
    }
}

/// The label of watched resources in `grpc.xds.cache_state`, a closed set (A78, A88).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CacheState {
    /// The resource has not arrived.
    Requested,
    /// The resource does not exist, and no older version is in use.
    DoesNotExist,
    /// The resource was deleted, and its last good version is in use.
    DoesNotExistButCached,
    /// The resource is valid and in use.
    Acked,
    /// The resource is invalid, and no older version is in use.
    Nacked,
    /// Its newest version is invalid, and the last good one is in use.
    NackedButCached,
    /// Its source has reported an error, and no older one is in use.
    ReceivedError,
    /// Its source has reported an error, and the last good one is in use.
    ReceivedErrorButCached,
    /// It did not arrive in time.
    Timeout,
}

impl CacheState {
    /// Every label.
    pub const ALL: [CacheState; 9] = [
        CacheState::Requested,
        CacheState::DoesNotExist,
        CacheState::DoesNotExistButCached,
        CacheState::Acked,
        CacheState::Nacked,
        CacheState::NackedButCached,
        CacheState::ReceivedError,
        CacheState::ReceivedErrorButCached,
        CacheState::Timeout,
    ];

    /// Returns the label value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            CacheState::Requested => "requested",
            CacheState::DoesNotExist => "does_not_exist",
            CacheState::DoesNotExistButCached => "does_not_exist_but_cached",
            CacheState::Acked => "acked",
            CacheState::Nacked => "nacked",
            CacheState::NackedButCached => "nacked_but_cached",
            CacheState::ReceivedError => "received_error",
            CacheState::ReceivedErrorButCached => "received_error_but_cached",
            CacheState::Timeout => "timeout",
        }
    }
}

/// A valid resource in the cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cached<V> {
    /// Its content. To watchers, resources with equal values are the same.
    pub value: V,
    /// Its bytes as received, if it was received as bytes.
    pub raw: Option<Raw>,
    /// The version of the latest response with this resource.
    pub version: Arc<str>,
    /// Arrival of the latest response with this resource.
    pub updated: Wall,
    /// How it arrived last (G1).
    pub provenance: Provenance,
}

/// Why a resource is not available, or not in the state that its source intends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// The kind of error.
    pub reason: Reason,
    /// The status. It is shown as a reason and never returned as our own status (A88).
    pub code: Code,
    /// Description for operators.
    pub message: Arc<str>,
    /// The rejected resource; `None` for timers and connectivity.
    pub rejected: Option<Rejected>,
}

impl Error {
    /// Returns true for a data error, which ends the use of a cached resource under `fail_on_data_errors`. All other
    /// errors are transient (A88).
    #[must_use]
    pub fn is_data_error(&self) -> bool {
        match self.reason {
            Reason::Nack | Reason::Deleted => true,
            Reason::Reported => self.code.is_data_error(),
            Reason::Connectivity | Reason::Timer => false,
        }
    }

    /// Returns true if both errors have the same content. The time and version of the rejection do not count.
    #[must_use]
    pub fn is_same_as(&self, other: &Error) -> bool {
        self.reason == other.reason && self.code == other.code && self.message == other.message
    }
}

/// The kinds of errors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// The source cannot be reached.
    Connectivity,
    /// The resource is invalid.
    Nack,
    /// The resource was deleted.
    Deleted,
    /// The resource did not arrive in time.
    Timer,
    /// The source has reported an error (xRFC TP3).
    Reported,
}

impl Reason {
    /// Returns the value in the admin API and in events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Connectivity => "connectivity",
            Reason::Nack => "nack",
            Reason::Deleted => "deleted",
            Reason::Timer => "timer",
            Reason::Reported => "reported",
        }
    }
}

/// A rejected resource, for CSDS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejected {
    /// The version of the response.
    pub version: Arc<str>,
    /// Arrival of the response.
    pub at: Wall,
    /// The invalid resource as received.
    pub raw: Option<Raw>,
}
