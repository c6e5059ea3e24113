//! Our own `User-Agent`, which replaces the SDK's.

use std::sync::Arc;

use azure_core::http::headers::USER_AGENT;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Request};

/// Sets the `User-Agent`. It comes after the SDK's policy of the same purpose.
#[derive(Debug)]
pub(crate) struct UserAgentPolicy(pub(crate) String);

#[async_trait::async_trait]
impl Policy for UserAgentPolicy {
    async fn send(&self, context: &Context, request: &mut Request, next: &[Arc<dyn Policy>]) -> PolicyResult {
        request.insert_header(USER_AGENT, self.0.clone());
        next[0].send(context, request, &next[1..]).await
    }
}
