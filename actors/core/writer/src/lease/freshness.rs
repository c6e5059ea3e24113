//! Whether what is known of the shared Lease may be relied on, and what may yet become of requests whose answers are
//! not waited for any more (docs/design/writer.md, W7; W8).

use std::time::Duration;

use model::ids::CallId;
use model::machine::Now;
use model::object::ResourceVersion;

use super::requests::Asked;
use super::{Phase, SharedLease};

/// How long a request that has got no answer may still be carried out.
const LATE: Duration = Duration::from_secs(60);

/// A request that may yet be carried out, though its answer is not waited for any more.
#[derive(Clone, Debug)]
pub(super) struct LostRequest {
    /// The version that it replaces: once the Lease has another one, it fails. `None`: it makes the Lease.
    base: Option<ResourceVersion>,
    /// Until when.
    until: Now,
}

/// Whether what is known of the Lease may be relied on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Freshness {
    /// A term begins: the Lease must be read before anything, and whatever is in our name then is a predecessor's.
    TermBegins,
    /// It must be read again, by a request after this one.
    Doubted {
        /// The last request that was sent when the doubt arose.
        after: u64,
    },
    /// It may.
    Sure,
}

impl SharedLease {
    /// The API server has said how the Lease stands, in answer to this request.
    pub(super) fn has_read(&mut self, call: CallId) {
        self.trust = match self.trust {
            Freshness::Doubted { after } if call.0 <= after => Freshness::Doubted { after },
            Freshness::TermBegins | Freshness::Doubted { .. } | Freshness::Sure => Freshness::Sure,
        };
    }

    /// It must be read before what is known of it is relied on.
    pub(super) fn distrust(&mut self) {
        self.trust = match self.trust {
            Freshness::TermBegins => Freshness::TermBegins,
            Freshness::Doubted { .. } | Freshness::Sure => Freshness::Doubted { after: self.last },
        };
    }

    /// Whether it must be read first.
    pub(super) fn must_look(&self) -> bool {
        match self.trust {
            Freshness::TermBegins | Freshness::Doubted { .. } => true,
            Freshness::Sure => false,
        }
    }

    /// The hold is not relied on until a later request than the last one has told of it.
    pub(super) fn doubt(&mut self) {
        match &mut self.phase {
            Phase::Held(hold) => hold.doubt = Some(self.last),
            Phase::Apart | Phase::DrainingAddresses(_) => {}
        }
    }

    /// What became of a request is not known: it may be carried out yet, as long as no other write came first.
    pub(super) fn note_lost(&mut self, now: Now, asked: &Asked) {
        if asked.what.makes_it_ours() {
            self.lost = Some(LostRequest { base: asked.base.clone(), until: now.plus(LATE) });
        }
    }

    /// Whether such a request may make the state ours that follows the newest one that is known.
    pub(super) fn may_yet_be_ours(&self, now: Now) -> bool {
        self.lost.as_ref().is_some_and(|lost| now < lost.until && lost.base.as_ref() == self.known.version())
    }
}
