//! Enforces the throttle gates on each try (W6). The writer decides when they open; here they are only stored, one
//! number per request class.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Method, Request};
use model::machine::Now;

use crate::abort_reason::AbortReason;

/// Time until which each request class is closed; zero is open.
#[derive(Default, Debug)]
pub(crate) struct Gates {
    reads_until: AtomicU64,
    writes_until: AtomicU64,
}

impl Gates {
    /// Replaces both; `None` opens the gate.
    pub(crate) fn set(&self, reads_until: Option<Now>, writes_until: Option<Now>) {
        self.reads_until.store(reads_until.unwrap_or(Now::ZERO).as_micros(), Ordering::Release);
        self.writes_until.store(writes_until.unwrap_or(Now::ZERO).as_micros(), Ordering::Release);
    }

    fn until(&self, method: Method) -> Now {
        let gate =
            if matches!(method, Method::Get | Method::Head) { &self.reads_until } else { &self.writes_until };
        Now::from_micros(gate.load(Ordering::Acquire))
    }
}

/// Aborts a try while the gate of its request class is closed, before a token is requested for it.
pub(crate) struct GatePolicy {
    gates: Arc<Gates>,
    now: Arc<dyn Fn() -> Now + Send + Sync>,
}

impl GatePolicy {
    pub(crate) fn new(gates: Arc<Gates>, now: Arc<dyn Fn() -> Now + Send + Sync>) -> GatePolicy {
        GatePolicy { gates, now }
    }
}

impl fmt::Debug for GatePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatePolicy").field("gates", &self.gates).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Policy for GatePolicy {
    async fn send(&self, context: &Context, request: &mut Request, next: &[Arc<dyn Policy>]) -> PolicyResult {
        let (now, until) = ((self.now)(), self.gates.until(request.method()));
        if now < until {
            return Err(AbortReason::GateClosed { remaining: until.since(now) }.into_error());
        }
        next[0].send(context, request, &next[1..]).await
    }
}
