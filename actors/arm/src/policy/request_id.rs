//! The client request id: a new one for each call, the same for each try of it (W3). Azure may answer a PUT with the
//! id of an earlier one with the earlier answer, and never carry it out.

use std::sync::Arc;

use azure_core::http::headers::HeaderName;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Request};

const ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");
const RETURN: HeaderName = HeaderName::from_static("x-ms-return-client-request-id");

/// Adds an id to each call, and requests that the answer repeats it. It comes before the retry policy.
#[derive(Debug)]
pub(crate) struct RequestIdPolicy;

#[async_trait::async_trait]
impl Policy for RequestIdPolicy {
    async fn send(&self, context: &Context, request: &mut Request, next: &[Arc<dyn Policy>]) -> PolicyResult {
        request.insert_header(ID, uuid::Uuid::new_v4().to_string());
        request.insert_header(RETURN, "true");
        next[0].send(context, request, &next[1..]).await
    }
}
