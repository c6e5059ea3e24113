//! The freshness of a watcher's observations, and denials of its requests by the API server.

use std::sync::Arc;

use super::{WatchFailure, describe};

/// Freshness of the observations of a kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchFreshness {
    /// Current: a watch is running.
    Current,
    /// Possibly outdated: no watch delivers at present.
    Stale,
    /// Possibly outdated: the API server denies the requests, with this message.
    Denied(Arc<str>),
}

impl WatchFreshness {
    /// Returns true if the observations are current.
    #[must_use]
    pub fn is_current(&self) -> bool {
        match self {
            WatchFreshness::Current => true,
            WatchFreshness::Stale | WatchFreshness::Denied(_) => false,
        }
    }
}

/// Returns the message of a denial; `None` for other failures.
pub(super) fn denial(failure: &WatchFailure) -> Option<Arc<str>> {
    match failure {
        WatchFailure::Denied(_) => Some(describe(failure)),
        WatchFailure::Expired
        | WatchFailure::StreamingRefused(_)
        | WatchFailure::TooManyRequests(_)
        | WatchFailure::Other(_) => None,
    }
}
