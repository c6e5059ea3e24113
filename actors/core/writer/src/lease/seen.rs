//! Applies an observed state of the shared Lease: whether it is new, who holds it, and its effect on our hold
//! (docs/design/writer.md, W7, W8).

use std::sync::Arc;

use model::lease::LeaseFacts;
use model::machine::Now;

use super::observed::{Heard, Holder, Maker, ObservedSharedLease, State};
use super::{Freshness, Out, Phase, SharedLease};

impl SharedLease {
    /// Applies a state of the Lease. Returns whether it is the newest known.
    pub(super) fn see(&mut self, now: Now, facts: Arc<LeaseFacts>, heard: Heard, out: &mut Vec<Out>) -> bool {
        let holder = Holder::of(&facts, &self.params.holder);
        let mut repeated = false;
        match holder {
            Holder::Other => self.off.other_seen(now),
            Holder::Nobody | Holder::Ours => {}
        }
        match &mut self.known {
            ObservedSharedLease::State(state) if facts.version == state.facts.version => {
                state.seen_again(now, Arc::clone(&facts));
                match heard {
                    Heard::Made(_) => state.maker = Maker::Us,
                    Heard::Watched => repeated = true,
                    Heard::Looked(_) => {}
                }
            }
            ObservedSharedLease::State(state)
                if facts.version.is_older_than(&state.facts.version) && !heard.is_of_later_than(state) =>
            {
                return false;
            }
            ObservedSharedLease::State(_) | ObservedSharedLease::Absent(_) | ObservedSharedLease::Nothing => {
                self.see_new(now, Arc::clone(&facts), holder, heard, out);
            }
        }
        let strange =
            matches!(&self.known, ObservedSharedLease::State(state) if state.maker == Maker::Stranger);
        if let Phase::Held(hold) = &mut self.phase {
            match holder {
                Holder::Ours if !strange => {
                    hold.made &= hold.facts.version == facts.version;
                    hold.facts = facts;
                    let ends = |since: u64| match heard {
                        // A watch that repeats the known state brings nothing new.
                        Heard::Watched => !repeated,
                        Heard::Looked(call) | Heard::Made(call) => call.0 > since,
                    };
                    hold.doubt.take_if(|since| ends(*since));
                }
                Holder::Ours | Holder::Nobody | Holder::Other => self.end_hold(now, out),
            }
        }
        true
    }

    /// Applies a new state.
    fn see_new(
        &mut self,
        now: Now,
        facts: Arc<LeaseFacts>,
        holder: Holder,
        heard: Heard,
        out: &mut Vec<Out>,
    ) {
        let maker = self.maker(now, holder, heard);
        let before = match &self.known {
            ObservedSharedLease::State(state) if state.maker == Maker::Stranger => Some(Holder::Other),
            ObservedSharedLease::State(_) | ObservedSharedLease::Absent(_) | ObservedSharedLease::Nothing => {
                self.holder()
            }
        };
        let state = State::new(now, facts, maker, self.last);
        self.known = ObservedSharedLease::State(state.follows(&self.known, &self.params.holder));
        let by_us = matches!(heard, Heard::Made(_));
        let released = match (holder, before) {
            (Holder::Nobody, Some(Holder::Other)) => true,
            // The Lease was taken and released between two reads.
            (Holder::Nobody, Some(Holder::Nobody)) => !by_us && self.is_let_go(),
            (Holder::Nobody, Some(Holder::Ours) | None) | (Holder::Ours | Holder::Other, Some(_) | None) => {
                false
            }
        };
        if released {
            out.push(Out::ForeignRelease);
            self.off.other_let_go(now, self.params.min_off);
            self.patience.somebody_let_go(now);
        }
        if maker == Maker::Stranger {
            self.off.other_seen(now);
        }
    }

    /// The author of a new state. A state in our name that appears after the first read of this term, and is not the
    /// result of our requests, is a stranger's.
    fn maker(&self, now: Now, holder: Holder, heard: Heard) -> Maker {
        let begins = self.trust == Freshness::TermBegins;
        let by_us = matches!(heard, Heard::Made(_)) || begins || self.may_yet_be_ours(now);
        if holder != Holder::Ours || by_us {
            return Maker::Us;
        }
        let under_way = self
            .asked
            .as_ref()
            .filter(|asked| asked.what.makes_it_ours() && asked.base.as_ref() == self.known.version());
        under_way.map_or(Maker::Stranger, |asked| Maker::Request(asked.id))
    }
}
