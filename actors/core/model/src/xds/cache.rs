//! The states of a cached resource, and its errors (gRFC A88; docs/design/xds.md, X1).

use std::sync::Arc;
use std::time::Duration;

use crate::level::Provenance;
use crate::machine::Wall;
use crate::xds::facts::{Code, Raw};

/// What the source of the resources is known to do: the server features of A88 (X2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// Whether a data error ends the use of the cached resource (`fail_on_data_errors`).
    pub fail_on_data_errors: bool,
    /// Whether a resource that has not come means a slow source, not a missing resource
    /// (`resource_timer_is_transient_error`).
    pub timer_is_transient: bool,
}

impl Policy {
    /// How long a resource may take to come once it was asked for (A57, A88).
    #[must_use]
    pub const fn patience(self) -> Duration {
        Duration::from_secs(if self.timer_is_transient { 30 } else { 15 })
    }
}

/// The state of a cache entry (A88). Only DOES_NOT_EXIST, NACKED and RECEIVED_ERROR come with and without a cached
/// resource.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// It is watched and has not come; neither a resource nor an error is known.
    Requested,
    /// It does not exist: it has not come in time, or was deleted.
    DoesNotExist,
    /// It exists and is valid.
    Acked,
    /// Its most recent version is invalid.
    Nacked,
    /// Its source has reported an error in its place (xRFC TP3).
    ReceivedError,
    /// It has not come in time, from a source that would have said if it did not exist.
    Timeout,
}

impl State {
    /// All of them.
    pub const ALL: [State; 6] = [
        State::Requested,
        State::DoesNotExist,
        State::Acked,
        State::Nacked,
        State::ReceivedError,
        State::Timeout,
    ];

    /// Its name in CSDS (`ClientResourceStatus`).
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            State::Requested => "REQUESTED",
            State::DoesNotExist => "DOES_NOT_EXIST",
            State::Acked => "ACKED",
            State::Nacked => "NACKED",
            State::ReceivedError => "RECEIVED_ERROR",
            State::Timeout => "TIMEOUT",
        }
    }

    /// What it is counted as, with or without a cached resource (A78, A88).
    #[must_use]
    pub fn cache_state(self, is_cached: bool) -> CacheState {
        match self {
            State::Requested => CacheState::Requested,
            State::DoesNotExist if is_cached => CacheState::DoesNotExistButCached,
            State::DoesNotExist => CacheState::DoesNotExist,
            State::Acked => CacheState::Acked,
            State::Nacked if is_cached => CacheState::NackedButCached,
            State::Nacked => CacheState::Nacked,
            State::ReceivedError if is_cached => CacheState::ReceivedErrorButCached,
            State::ReceivedError => CacheState::ReceivedError,
            State::Timeout => CacheState::Timeout,
        }
    }
}

/// What watched resources are counted by: `grpc.xds.cache_state`, a closed set of labels (A78, A88).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CacheState {
    /// It has not come.
    Requested,
    /// It does not exist, and none is in use.
    DoesNotExist,
    /// It was deleted, and the last good one is in use.
    DoesNotExistButCached,
    /// It is valid and in use.
    Acked,
    /// It is invalid, and none is in use.
    Nacked,
    /// Its newest version is invalid, and the last good one is in use.
    NackedButCached,
    /// Its source has reported an error, and none is in use.
    ReceivedError,
    /// Its source has reported an error, and the last good one is in use.
    ReceivedErrorButCached,
    /// It has not come in time.
    Timeout,
}

impl CacheState {
    /// All of them.
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

    /// The label's value.
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

/// A good resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cached<V> {
    /// What it says. Two resources with equal values are the same to their watchers.
    pub value: V,
    /// Its bytes as they came, where it came as bytes.
    pub raw: Option<Raw>,
    /// The version of the response that brought it last.
    pub version: Arc<str>,
    /// When it came last.
    pub updated: Wall,
    /// How it came last (G1).
    pub provenance: Provenance,
}

/// Why a resource is not available, or is not as its source wants it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// What kind of thing went wrong.
    pub reason: Reason,
    /// The status. It is shown as a reason, and never handed on as a status of our own (A88).
    pub code: Code,
    /// What went wrong, for operators.
    pub message: Arc<str>,
    /// What was rejected; `None` for timers and connectivity.
    pub rejected: Option<Rejected>,
}

impl Error {
    /// Whether it is a data error, which ends the use of a cached resource under `fail_on_data_errors`; all others
    /// are transient (A88).
    #[must_use]
    pub fn is_data_error(&self) -> bool {
        match self.reason {
            Reason::Nack | Reason::Deleted => true,
            Reason::Reported => self.code.is_data_error(),
            Reason::Connectivity | Reason::Timer => false,
        }
    }

    /// Whether it says nothing that the other does not say; which version was rejected when does not count.
    #[must_use]
    pub fn says_the_same_as(&self, other: &Error) -> bool {
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
    /// The resource has not come in time.
    Timer,
    /// The source has reported it (xRFC TP3).
    Reported,
}

impl Reason {
    /// The word for the admin API and events.
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

/// What was rejected, for CSDS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejected {
    /// The version of the response.
    pub version: Arc<str>,
    /// When it came.
    pub at: Wall,
    /// The invalid resource as it came.
    pub raw: Option<Raw>,
}
