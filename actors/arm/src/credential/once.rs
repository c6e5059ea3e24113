//! The transport for the SDK's credentials: sends each request once and reports the result.
//!
//! By default, the credentials retry for longer than any caller waits: as long as a `Retry-After` says or, at the
//! instance metadata service, for a minute. The caller would never see the refusal itself. They also cannot parse an
//! authority's message with an escape in it. The writer retries (W4), after the pause that
//! [`renewal`](super::renewal) keeps.

use std::sync::Arc;

use azure_core::error::{Error, ErrorKind};
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Request, Transport};

/// A transport whose failures are final.
#[derive(Debug)]
pub(super) struct NoRetryTransport(Transport);

impl NoRetryTransport {
    /// Wraps a transport so that no credential retries its failures.
    pub(super) fn over(transport: &Transport) -> Transport {
        Transport::with_policy(Arc::new(NoRetryTransport(transport.clone())))
    }
}

#[async_trait::async_trait]
impl Policy for NoRetryTransport {
    async fn send(&self, context: &Context, request: &mut Request, _: &[Arc<dyn Policy>]) -> PolicyResult {
        let answer = self.0.send(context, request).await.map_err(finally)?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let raw_response = Some(Box::new(answer.try_into_raw_response().await.map_err(finally)?));
        let kind = ErrorKind::HttpResponse { status, error_code: None, raw_response };
        Err(Error::with_message(kind, "the request was refused"))
    }
}

/// Converts an error into a kind that the SDK does not retry; the original is its source.
fn finally(error: Error) -> Error {
    if matches!(error.kind(), ErrorKind::Io | ErrorKind::Connection) {
        Error::with_error(ErrorKind::Other, error, "there was no answer")
    } else {
        error
    }
}
