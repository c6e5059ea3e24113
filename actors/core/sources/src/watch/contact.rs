//! Whether what a watcher has told is current, and if not, whether the API server denies it.

use std::sync::Arc;

use super::{WatchFailure, words};

/// Whether what was told of a kind is current.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contact {
    /// It is: a watch runs.
    Current,
    /// It may not be: nothing is heard at present.
    Lost,
    /// It may not be: the API server denies it, in these words.
    Denied(Arc<str>),
}

impl Contact {
    /// Whether it is.
    #[must_use]
    pub fn is_current(&self) -> bool {
        match self {
            Contact::Current => true,
            Contact::Lost | Contact::Denied(_) => false,
        }
    }
}

/// What a failure says, if the API server denies what was asked.
pub(super) fn denial(failure: &WatchFailure) -> Option<Arc<str>> {
    match failure {
        WatchFailure::Denied(_) => Some(words(failure)),
        WatchFailure::Expired
        | WatchFailure::StreamingRefused(_)
        | WatchFailure::TooManyRequests(_)
        | WatchFailure::Other(_) => None,
    }
}
