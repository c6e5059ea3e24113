//! Whether the observed state of the shared Lease is reliable, and which abandoned requests may still be carried out
//! (docs/design/writer.md, W7; W8).

use std::time::Duration;

use model::ids::CallId;
use model::machine::Now;
use model::object::ResourceVersion;

use super::requests::OpenRequest;
use super::{HoldPhase, SharedLease};

/// Time for which an unanswered request may still be carried out.
const LATE: Duration = Duration::from_secs(60);

/// An abandoned request that may still be carried out.
#[derive(Clone, Debug)]
pub(super) struct LostRequest {
    /// The version that it replaces. It fails once the Lease has another one. `None`: it creates the Lease.
    base: Option<ResourceVersion>,
    /// Time until which it may be carried out.
    until: Now,
}

/// Whether the observed state is reliable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Freshness {
    /// A term begins. The Lease must be read first, and a hold in our name is a predecessor's.
    TermBegins,
    /// The Lease must be read by a later request than this one.
    Stale {
        /// Number of the last request sent before the doubt arose.
        after: u64,
    },
    /// Reliable.
    Fresh,
}

impl SharedLease {
    /// Records that the API server answered this request with the state of the Lease.
    pub(super) fn has_read(&mut self, call: CallId) {
        self.freshness = match self.freshness {
            Freshness::Stale { after } if call.0 <= after => Freshness::Stale { after },
            Freshness::TermBegins | Freshness::Stale { .. } | Freshness::Fresh => Freshness::Fresh,
        };
    }

    /// Requires a new read before the observed state is reliable again.
    pub(super) fn require_read(&mut self) {
        self.freshness = match self.freshness {
            Freshness::TermBegins => Freshness::TermBegins,
            Freshness::Stale { .. } | Freshness::Fresh => Freshness::Stale { after: self.last },
        };
    }

    /// Returns whether a read is required first.
    pub(super) fn must_read(&self) -> bool {
        match self.freshness {
            Freshness::TermBegins | Freshness::Stale { .. } => true,
            Freshness::Fresh => false,
        }
    }

    /// Stops relying on the hold until the answer to a later request confirms it.
    pub(super) fn doubt_hold(&mut self) {
        match &mut self.phase {
            HoldPhase::Held(hold) => hold.doubted = Some(self.last),
            HoldPhase::NotHeld | HoldPhase::Releasing(_) => {}
        }
    }

    /// Records an abandoned request. It may still be carried out, unless another write comes first.
    pub(super) fn record_lost_request(&mut self, now: Now, open_request: &OpenRequest) {
        if open_request.kind.claims_lease() {
            self.lost_request = Some(LostRequest { base: open_request.base.clone(), until: now.plus(LATE) });
        }
    }

    /// Returns whether such a request may make the next state ours.
    pub(super) fn may_yet_be_ours(&self, now: Now) -> bool {
        self.lost_request.as_ref().is_some_and(|lost_request| {
            now < lost_request.until && lost_request.base.as_ref() == self.observed.version()
        })
    }
}
