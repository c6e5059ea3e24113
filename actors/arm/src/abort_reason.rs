//! The reason why the client aborted a try, carried as the source of the pipeline's error.

use std::time::Duration;

/// Reasons why the client aborted a try.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum AbortReason {
    /// The throttle gate of the request class is closed (W6); nothing was sent.
    #[error("the throttle gate is closed")]
    GateClosed {
        /// Time until it opens.
        remaining: Duration,
    },
    /// The permit has expired, or there was none (W8); nothing was sent.
    #[error("the permit ran out before the request was sent")]
    PermitExpired,
    /// The answer did not arrive in time.
    #[error("no complete answer in time")]
    Timeout,
    /// The answer exceeds the limit.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// Status of the answer.
        status: u16,
        /// Limit in bytes.
        limit: usize,
    },
}

impl AbortReason {
    /// Returns an error that carries the reason through the pipeline.
    pub(crate) fn into_error(self) -> azure_core::Error {
        azure_core::Error::new(azure_core::error::ErrorKind::Other, self)
    }

    /// Returns the reason that an error contains, at any depth.
    pub(crate) fn within(error: &azure_core::Error) -> Option<AbortReason> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(one) = cause {
            if let Some(reason) = one.downcast_ref::<AbortReason>() {
                return Some(*reason);
            }
            cause = one.source();
        }
        None
    }
}
