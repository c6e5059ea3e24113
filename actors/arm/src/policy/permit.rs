//! Enforces the permit of a PUT on each try (W8).

use std::fmt;
use std::sync::Arc;

use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Method, Request};
use model::arm::Permit;
use model::machine::Now;

use crate::abort_reason::AbortReason;

/// Aborts a try that would change something and has no valid permit.
///
/// The permit travels in the context of the call.
pub(crate) struct PermitPolicy {
    now: Arc<dyn Fn() -> Now + Send + Sync>,
}

impl PermitPolicy {
    pub(crate) fn new(now: Arc<dyn Fn() -> Now + Send + Sync>) -> PermitPolicy {
        PermitPolicy { now }
    }
}

impl fmt::Debug for PermitPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PermitPolicy")
    }
}

#[async_trait::async_trait]
impl Policy for PermitPolicy {
    async fn send(&self, context: &Context, request: &mut Request, next: &[Arc<dyn Policy>]) -> PolicyResult {
        let reads = matches!(request.method(), Method::Get | Method::Head);
        let permitted =
            reads || context.value::<Permit>().is_some_and(|permit| (self.now)() <= permit.send_deadline);
        if !permitted {
            return Err(AbortReason::PermitExpired.into_error());
        }
        next[0].send(context, request, &next[1..]).await
    }
}
