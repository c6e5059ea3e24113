//! What is known of the shared Lease, and whose it is by that (docs/design/writer.md, W7).

use std::sync::Arc;
use std::time::Duration;

use model::ids::CallId;
use model::lease::LeaseFacts;
use model::machine::Now;
use model::object::ResourceVersion;
use model::view::Whose;

use super::HOLD;

/// How long a hold of the shared Lease by another client lasts after its renewal, whatever the Lease itself says (W7).
pub const FOREIGN_HOLD: Duration = Duration::from_secs(900);

/// The name by which the cloud-controller-manager holds it, whichever of its processes does.
const FOREIGN_NAME: &str = "cloud-controller-manager";

/// For how long a state must have been looked at before the time that is noted in it is believed: the clocks of
/// two machines differ.
const LOOKED_AT: Duration = Duration::from_secs(30);

/// What is known of the Lease.
#[derive(Clone, Debug)]
pub(super) enum ObservedSharedLease {
    /// Nothing that could be relied on.
    Nothing,
    /// It did not exist at this moment.
    Absent(Now),
    /// Its newest state.
    State(State),
}

/// A state of the Lease.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// The Lease as it was seen last in this state.
    pub facts: Arc<LeaseFacts>,
    /// Who has made this state, where it is in our name.
    pub maker: Maker,
    /// When it was first seen in this state.
    pub since: Now,
    /// When it was first seen in the hands of this holder; renewals do not count.
    pub held_since: Now,
    /// The number of the last request that was sent before.
    pub after: u64,
    /// When it was seen last.
    seen: Now,
}

/// How a state of the Lease came to be known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// By the watch, which may lag behind.
    Watched,
    /// By a look.
    Looked(CallId),
    /// By the answer to the write that made it.
    Made(CallId),
}

impl Heard {
    /// Whether it is the answer to a request that was sent once this state was known: then it is how the Lease
    /// stands, also when its version is an older one. Storage that was restored from a backup counts again.
    pub(super) fn is_of_later_than(self, state: &State) -> bool {
        match self {
            Heard::Watched => false,
            Heard::Looked(call) | Heard::Made(call) => call.0 > state.after,
        }
    }
}

/// Who has made a state that is in our name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Maker {
    /// This process, or a predecessor.
    Us,
    /// This process, if the request of this number, which is under way, is carried out.
    Request(CallId),
    /// An unknown process that uses our name, or the operator.
    Stranger,
}

/// Whose the Lease is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holder {
    /// It has no holder.
    Nobody,
    /// Ours: of this process or of another replica, which share a name.
    Ours,
    /// Another client's.
    Other,
}

impl Holder {
    /// Whose the Lease is in a state of it; names compare without regard to case, as upstream does it.
    pub(super) fn of(facts: &LeaseFacts, ours: &str) -> Holder {
        match &facts.holder {
            None => Holder::Nobody,
            Some(holder) if holder.eq_ignore_ascii_case(ours) => Holder::Ours,
            Some(_) => Holder::Other,
        }
    }
}

impl ObservedSharedLease {
    /// The version of its newest state.
    pub(super) fn version(&self) -> Option<&ResourceVersion> {
        match self {
            ObservedSharedLease::State(state) => Some(&state.facts.version),
            ObservedSharedLease::Absent(_) | ObservedSharedLease::Nothing => None,
        }
    }
}

impl State {
    /// A state that is seen for the first time, after the request of this number was sent.
    pub(super) fn new(now: Now, facts: Arc<LeaseFacts>, maker: Maker, after: u64) -> State {
        State { facts, maker, since: now, held_since: now, after, seen: now }
    }

    /// Who holds it in this state.
    pub(super) fn whose(&self, ours: &str) -> Whose {
        match (Holder::of(&self.facts, ours), self.maker) {
            (Holder::Nobody, _) => Whose::Nobody,
            (Holder::Ours, Maker::Us | Maker::Request(_)) => Whose::Us,
            (Holder::Ours, Maker::Stranger) => Whose::Namesake,
            (Holder::Other, _) if Holder::of(&self.facts, FOREIGN_NAME) == Holder::Ours => {
                Whose::CloudControllerManager
            }
            (Holder::Other, _) => Whose::Stranger,
        }
    }

    /// Follows another state of the Lease: the same holder has had it since before.
    pub(super) fn follows(mut self, before: &ObservedSharedLease, ours: &str) -> State {
        if let ObservedSharedLease::State(before) = before
            && before.facts.holder == self.facts.holder
            && before.whose(ours) == self.whose(ours)
        {
            self.held_since = before.held_since;
        }
        self
    }

    /// From when on a hold in our name may be taken over, or given back: at once, but for one of a stranger, which
    /// must have been seen unchanged for as long as ours last.
    pub(super) fn own_name_is_free(&self) -> Now {
        match self.maker {
            Maker::Us | Maker::Request(_) => self.since,
            Maker::Stranger => self.since.plus(HOLD),
        }
    }

    /// The same state, seen once more.
    pub(super) fn seen_again(&mut self, now: Now, facts: Arc<LeaseFacts>) {
        self.facts = facts;
        self.seen = now;
    }

    /// When a hold of another client in this state has ended without being given back: it was seen unchanged for
    /// as long as a hold lasts, or it is as old as that by its own account and was looked at for a while.
    pub(super) fn foreign_hold_ends(&self) -> Now {
        let looked_at = self.since.plus(FOREIGN_HOLD);
        match self.facts.renewed_ago {
            None => looked_at,
            Some(ago) => {
                let by_its_account = self.seen.plus(FOREIGN_HOLD.saturating_sub(ago));
                looked_at.min(by_its_account.max(self.since.plus(LOOKED_AT)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::arm::Document;
    use model::lease::{GateTimes, LeaseName};

    fn held_since(ago: Option<u64>) -> State {
        let facts = LeaseFacts {
            lease: LeaseName::Shared,
            holder: Some("cloud-controller-manager".into()),
            duration: Some(Duration::from_secs(15)),
            renewed_ago: ago.map(Duration::from_secs),
            transitions: 0,
            version: ResourceVersion("1".into()),
            gates: GateTimes::default(),
            out_of_sync: Arc::default(),
            document: Document::new(()),
        };
        State::new(Now::from_millis(1_000_000), Arc::new(facts), Maker::Us, 0)
    }

    #[test]
    fn w7_a_foreign_hold_counts_as_900_s_and_is_watched_for_30_s() {
        for (ago, ends) in [
            (None, 900),
            (Some(0), 900),
            (Some(400), 500),
            (Some(869), 31),
            (Some(870), 30),
            (Some(900), 30),
            (Some(1 << 40), 30),
        ] {
            let expected = Now::from_millis(1_000_000).plus(Duration::from_secs(ends));
            assert_eq!(held_since(ago).foreign_hold_ends(), expected, "{ago:?}");
        }
    }

    #[test]
    fn w7_a_clock_that_goes_back_does_not_prolong_a_hold_beyond_900_s() {
        let mut state = held_since(Some(500));
        let again = held_since(Some(0)).facts;
        state.seen_again(Now::from_millis(1_600_000), again);
        assert_eq!(state.foreign_hold_ends(), Now::from_millis(1_900_000));
    }

    #[test]
    fn w7_a_holder_is_known_by_name_and_a_renewal_is_no_new_hold() {
        let named = |holder: Option<&str>, maker, second: u64| {
            let facts = LeaseFacts { holder: holder.map(Arc::from), ..(*held_since(None).facts).clone() };
            State::new(Now::from_millis(second * 1_000), Arc::new(facts), maker, 0)
        };
        for (holder, maker, whose) in [
            (None, Maker::Us, Whose::Nobody),
            (Some("ours"), Maker::Us, Whose::Us),
            (Some("ours"), Maker::Stranger, Whose::Namesake),
            (Some("Cloud-Controller-Manager"), Maker::Us, Whose::CloudControllerManager),
            (Some("aks-rp"), Maker::Us, Whose::Stranger),
        ] {
            let state = named(holder, maker, 1);
            assert_eq!(state.whose("ours"), whose, "{holder:?}");
            let renewed = named(holder, maker, 5).follows(&ObservedSharedLease::State(state.clone()), "ours");
            assert_eq!((renewed.since, renewed.held_since), (Now::from_millis(5_000), state.since));
            let other =
                named(Some("other"), Maker::Us, 9).follows(&ObservedSharedLease::State(state), "ours");
            assert_eq!(other.held_since, Now::from_millis(9_000));
        }
        let ours = ObservedSharedLease::State(named(Some("ours"), Maker::Us, 1));
        let namesake = named(Some("ours"), Maker::Stranger, 5).follows(&ours, "ours");
        assert_eq!(namesake.held_since, namesake.since, "our own hold is no part of a namesake's");
    }

    #[test]
    fn w7_holders_compare_without_regard_to_case() {
        let state = held_since(None);
        assert_eq!(Holder::of(&state.facts, "Cloud-Controller-Manager"), Holder::Ours);
        assert_eq!(Holder::of(&state.facts, "azure-backend-pool-controller"), Holder::Other);
        let nobody = LeaseFacts { holder: None, ..(*state.facts).clone() };
        assert_eq!(Holder::of(&nobody, ""), Holder::Nobody);
    }
}
