//! The way on which the SDK's credentials ask for tokens: each request is sent once, and what came of it is told.
//!
//! Left to themselves they would repeat a request for longer than any caller waits for a token, as long as a
//! `Retry-After` says or, at the instance metadata service, for a minute, so that the refusal itself would never be
//! heard. They also cannot read an authority's words with an escape in them. Repetitions are the writer's (W4), after
//! the rest that [`renewal`](super::renewal) keeps.

use std::sync::Arc;

use azure_core::error::{Error, ErrorKind};
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Request, Transport};

/// A transport whose failures are final.
#[derive(Debug)]
pub(super) struct Once(Transport);

impl Once {
    /// The same way, with failures that no credential repeats.
    pub(super) fn over(transport: &Transport) -> Transport {
        Transport::with_policy(Arc::new(Once(transport.clone())))
    }
}

#[async_trait::async_trait]
impl Policy for Once {
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

/// The error in a kind that the SDK does not repeat; the one that it would is its source.
fn finally(error: Error) -> Error {
    if matches!(error.kind(), ErrorKind::Io | ErrorKind::Connection) {
        Error::with_error(ErrorKind::Other, error, "there was no answer")
    } else {
        error
    }
}
