//! Why a try was stopped on our side: carried through the pipeline inside its error, and found there again.

use std::time::Duration;

/// Why a try was stopped on our side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Stop {
    /// The throttle gate of the verb is closed (W6); nothing was sent.
    #[error("the throttle gate is closed")]
    GateClosed {
        /// How long it stays closed.
        remaining: Duration,
    },
    /// The permit has run out, or there was none (W8); nothing was sent.
    #[error("the permit ran out before the request was sent")]
    PermitExpired,
    /// No answer in time.
    #[error("no complete answer in time")]
    Timeout,
    /// The answer is larger than any that we read.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// Its status.
        status: u16,
        /// The most that we read, in bytes.
        limit: usize,
    },
}

impl Stop {
    /// The error that carries it through the pipeline.
    pub(crate) fn into_error(self) -> azure_core::Error {
        azure_core::Error::new(azure_core::error::ErrorKind::Other, self)
    }

    /// The stop that an error carries, at whatever depth.
    pub(crate) fn within(error: &azure_core::Error) -> Option<Stop> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(one) = cause {
            if let Some(stop) = one.downcast_ref::<Stop>() {
                return Some(*stop);
            }
            cause = one.source();
        }
        None
    }
}
