//! Whether the observed state of the shared Lease is reliable, and which abandoned requests may still be carried out
//! (docs/design/writer.md, W7, W8).

use std::time::Duration;

use model::ids::CallId;
use model::machine::Now;
use model::object::ResourceVersion;

use super::requests::Asked;
use super::{Phase, SharedLease};

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
    Doubted {
        /// Number of the last request sent before the doubt arose.
        after: u64,
    },
    /// Reliable.
    Sure,
}

impl SharedLease {
    /// Records that the API server answered this request with the state of the Lease.
    pub(super) fn has_read(&mut self, call: CallId) {
        self.trust = match self.trust {
            Freshness::Doubted { after } if call.0 <= after => Freshness::Doubted { after },
            Freshness::TermBegins | Freshness::Doubted { .. } | Freshness::Sure => Freshness::Sure,
        };
    }

    /// Requires a new read before the observed state is reliable again.
    pub(super) fn distrust(&mut self) {
        self.trust = match self.trust {
            Freshness::TermBegins => Freshness::TermBegins,
            Freshness::Doubted { .. } | Freshness::Sure => Freshness::Doubted { after: self.last },
        };
    }

    /// Whether a read is required first.
    pub(super) fn must_look(&self) -> bool {
        match self.trust {
            Freshness::TermBegins | Freshness::Doubted { .. } => true,
            Freshness::Sure => false,
        }
    }

    /// Stops relying on the hold until the answer to a later request confirms it.
    pub(super) fn doubt(&mut self) {
        match &mut self.phase {
            Phase::Held(hold) => hold.doubt = Some(self.last),
            Phase::Apart | Phase::DrainingAddresses(_) => {}
        }
    }

    /// Records an abandoned request. It may still be carried out, unless another write comes first.
    pub(super) fn note_lost(&mut self, now: Now, asked: &Asked) {
        if asked.what.makes_it_ours() {
            self.lost = Some(LostRequest { base: asked.base.clone(), until: now.plus(LATE) });
        }
    }

    /// Whether such a request may make the next state ours.
    pub(super) fn may_yet_be_ours(&self, now: Now) -> bool {
        self.lost.as_ref().is_some_and(|lost| now < lost.until && lost.base.as_ref() == self.known.version())
    }
}
