//! Applies an observed state of the shared Lease: whether it is new, who holds it, and its effect on our hold
//! (docs/design/writer.md, W7; W8).

use std::sync::Arc;

use model::lease::LeaseFacts;
use model::machine::Now;

use super::observed::{Holder, LeaseAuthor, LeaseProvenance, LeaseState, ObservedSharedLease};
use super::{Freshness, HoldPhase, Out, SharedLease};

impl SharedLease {
    /// Applies a state of the Lease. Returns whether it is the newest known.
    pub(super) fn observe(
        &mut self,
        now: Now,
        facts: Arc<LeaseFacts>,
        provenance: LeaseProvenance,
        out: &mut Vec<Out>,
    ) -> bool {
        let holder = Holder::of(&facts, &self.params.holder);
        let mut repeated = false;
        match holder {
            Holder::Other => self.cooldown.on_foreign_holder(now),
            Holder::None | Holder::Ours => {}
        }
        match &mut self.observed {
            ObservedSharedLease::State(state) if facts.version == state.facts.version => {
                state.observe_again(now, Arc::clone(&facts));
                match provenance {
                    LeaseProvenance::Written(_) => state.author = LeaseAuthor::Controller,
                    LeaseProvenance::Watched => repeated = true,
                    LeaseProvenance::Read(_) => {}
                }
            }
            ObservedSharedLease::State(state)
                if facts.version.is_older_than(&state.facts.version) && !provenance.is_later_than(state) =>
            {
                return false;
            }
            ObservedSharedLease::State(_) | ObservedSharedLease::Absent(_) | ObservedSharedLease::Nothing => {
                self.observe_new(now, Arc::clone(&facts), holder, provenance, out);
            }
        }
        let by_other_client =
            matches!(&self.observed, ObservedSharedLease::State(state) if state.author == LeaseAuthor::Other);
        if let HoldPhase::Held(hold) = &mut self.phase {
            match holder {
                Holder::Ours if !by_other_client => {
                    hold.made &= hold.facts.version == facts.version;
                    hold.facts = facts;
                    let ends = |since: u64| match provenance {
                        // A watch that repeats the known state is not a newer observation.
                        LeaseProvenance::Watched => !repeated,
                        LeaseProvenance::Read(call) | LeaseProvenance::Written(call) => call.0 > since,
                    };
                    hold.doubted.take_if(|since| ends(*since));
                }
                Holder::Ours | Holder::None | Holder::Other => self.end_hold(now, out),
            }
        }
        true
    }

    /// Applies a new state.
    fn observe_new(
        &mut self,
        now: Now,
        facts: Arc<LeaseFacts>,
        holder: Holder,
        provenance: LeaseProvenance,
        out: &mut Vec<Out>,
    ) {
        let author = self.author(now, holder, provenance);
        let before = match &self.observed {
            ObservedSharedLease::State(state) if state.author == LeaseAuthor::Other => Some(Holder::Other),
            ObservedSharedLease::State(_) | ObservedSharedLease::Absent(_) | ObservedSharedLease::Nothing => {
                self.holder()
            }
        };
        let state = LeaseState::new(now, facts, author, self.last);
        self.observed = ObservedSharedLease::State(state.follows(&self.observed, &self.params.holder));
        let by_us = matches!(provenance, LeaseProvenance::Written(_));
        let released = match (holder, before) {
            (Holder::None, Some(Holder::Other)) => true,
            // The Lease was taken and released between two reads.
            (Holder::None, Some(Holder::None)) => !by_us && self.is_released(),
            (Holder::None, Some(Holder::Ours) | None) | (Holder::Ours | Holder::Other, Some(_) | None) => {
                false
            }
        };
        if released {
            out.push(Out::ForeignRelease);
            self.cooldown.on_foreign_release(now, self.params.min_cooldown);
            self.delays.on_foreign_release(now);
        }
        if author == LeaseAuthor::Other {
            self.cooldown.on_foreign_holder(now);
        }
    }

    /// Returns the author of a new state. A state in our name that appears after the first read of this term, and is
    /// not the result of our requests, was written by another client.
    fn author(&self, now: Now, holder: Holder, provenance: LeaseProvenance) -> LeaseAuthor {
        let begins = self.freshness == Freshness::TermBegins;
        let by_us = matches!(provenance, LeaseProvenance::Written(_)) || begins || self.may_yet_be_ours(now);
        if holder != Holder::Ours || by_us {
            return LeaseAuthor::Controller;
        }
        let in_flight = self.open_request.as_ref().filter(|open_request| {
            open_request.kind.claims_lease() && open_request.base.as_ref() == self.observed.version()
        });
        in_flight.map_or(LeaseAuthor::Other, |open_request| LeaseAuthor::Request(open_request.id))
    }
}
