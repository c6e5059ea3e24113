//! The last observed state of the shared Lease, and its holder (docs/design/writer.md, W7).

use std::sync::Arc;
use std::time::Duration;

use model::ids::CallId;
use model::lease::LeaseFacts;
use model::machine::Now;
use model::object::ResourceVersion;
use model::view::LeaseHolderKind;

use super::HOLD;

/// Time after its renewal for which another client's hold lasts, whatever the Lease itself says (W7).
pub const FOREIGN_HOLD: Duration = Duration::from_secs(900);

/// Holder name of the cloud-controller-manager, the same for all of its processes.
const FOREIGN_NAME: &str = "cloud-controller-manager";

/// Time for which a state must have been observed before the time noted in it counts, because the clocks of two
/// machines differ.
const MIN_OBSERVED: Duration = Duration::from_secs(30);

/// The last observation of the Lease.
#[derive(Clone, Debug)]
pub(super) enum ObservedSharedLease {
    /// Nothing reliable.
    Nothing,
    /// The Lease did not exist at this time.
    Absent(Now),
    /// The newest state.
    State(LeaseState),
}

/// A state of the Lease.
#[derive(Clone, Debug)]
pub(super) struct LeaseState {
    /// The Lease, as last observed in this state.
    pub facts: Arc<LeaseFacts>,
    /// Author of this state, if it is in our name.
    pub author: LeaseAuthor,
    /// Time at which this state was first observed.
    pub since: Now,
    /// Time at which this holder was first observed, regardless of renewals.
    pub held_since: Now,
    /// Number of the last request sent before that.
    pub after: u64,
    /// Time of the last observation.
    seen: Now,
}

/// How a state of the Lease became known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeaseProvenance {
    /// By the watch, which may lag behind.
    Watched,
    /// By a read.
    Read(CallId),
    /// By the answer to the write that made it.
    Written(CallId),
}

impl LeaseProvenance {
    /// Returns whether this is the answer to a request that was sent when `state` was known already. Then it is
    /// current, even with an older version: storage that was restored from a backup counts again.
    pub(super) fn is_later_than(self, state: &LeaseState) -> bool {
        match self {
            LeaseProvenance::Watched => false,
            LeaseProvenance::Read(call) | LeaseProvenance::Written(call) => call.0 > state.after,
        }
    }
}

/// The author of a state in our name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeaseAuthor {
    /// This process, or a predecessor.
    Controller,
    /// This process, if the request of this number, still in flight, was carried out.
    Request(CallId),
    /// An unknown process that uses our name, or the operator.
    Other,
}

/// The holder of the Lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holder {
    /// No holder.
    None,
    /// This process or another replica, under our shared name.
    Ours,
    /// Another client.
    Other,
}

impl Holder {
    /// Returns the holder in a state of the Lease. Names compare without case, as in the cloud-controller-manager.
    pub(super) fn of(facts: &LeaseFacts, ours: &str) -> Holder {
        match &facts.holder {
            None => Holder::None,
            Some(holder) if holder.eq_ignore_ascii_case(ours) => Holder::Ours,
            Some(_) => Holder::Other,
        }
    }
}

impl ObservedSharedLease {
    /// Returns the version of the newest state.
    pub(super) fn version(&self) -> Option<&ResourceVersion> {
        match self {
            ObservedSharedLease::State(state) => Some(&state.facts.version),
            ObservedSharedLease::Absent(_) | ObservedSharedLease::Nothing => None,
        }
    }
}

impl LeaseState {
    /// Creates a state that is observed for the first time, after the request of this number was sent.
    pub(super) fn new(now: Now, facts: Arc<LeaseFacts>, author: LeaseAuthor, after: u64) -> LeaseState {
        LeaseState { facts, author, since: now, held_since: now, after, seen: now }
    }

    /// Returns the holder of this state.
    pub(super) fn holder_kind(&self, ours: &str) -> LeaseHolderKind {
        match (Holder::of(&self.facts, ours), self.author) {
            (Holder::None, _) => LeaseHolderKind::None,
            (Holder::Ours, LeaseAuthor::Controller | LeaseAuthor::Request(_)) => LeaseHolderKind::Controller,
            (Holder::Ours, LeaseAuthor::Other) => LeaseHolderKind::SameName,
            (Holder::Other, _) if Holder::of(&self.facts, FOREIGN_NAME) == Holder::Ours => {
                LeaseHolderKind::CloudControllerManager
            }
            (Holder::Other, _) => LeaseHolderKind::Other,
        }
    }

    /// Links the state to the previous one: the same holder keeps its start time.
    pub(super) fn follows(mut self, before: &ObservedSharedLease, ours: &str) -> LeaseState {
        if let ObservedSharedLease::State(before) = before
            && before.facts.holder == self.facts.holder
            && before.holder_kind(ours) == self.holder_kind(ours)
        {
            self.held_since = before.held_since;
        }
        self
    }

    /// Returns the time from which a hold in our name may be taken over or released. Another client's hold must first
    /// be unchanged for as long as our holds last; any other is free at once.
    pub(super) fn takeover_at(&self) -> Now {
        match self.author {
            LeaseAuthor::Controller | LeaseAuthor::Request(_) => self.since,
            LeaseAuthor::Other => self.since.plus(HOLD),
        }
    }

    /// Records another observation of the same state.
    pub(super) fn observe_again(&mut self, now: Now, facts: Arc<LeaseFacts>) {
        self.facts = facts;
        self.seen = now;
    }

    /// Returns the time at which a foreign hold ends without a release. Either it was observed unchanged for the
    /// duration of a hold, or its own time is as old as that and it was observed for a while.
    pub(super) fn foreign_hold_ends(&self) -> Now {
        let by_observation = self.since.plus(FOREIGN_HOLD);
        match self.facts.renewed_ago {
            None => by_observation,
            Some(ago) => {
                let by_its_account = self.seen.plus(FOREIGN_HOLD.saturating_sub(ago));
                by_observation.min(by_its_account.max(self.since.plus(MIN_OBSERVED)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::arm::Document;
    use model::lease::{GateTimes, LeaseName};

    fn held_since(ago: Option<u64>) -> LeaseState {
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
        LeaseState::new(Now::from_millis(1_000_000), Arc::new(facts), LeaseAuthor::Controller, 0)
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
        state.observe_again(Now::from_millis(1_600_000), again);
        assert_eq!(state.foreign_hold_ends(), Now::from_millis(1_900_000));
    }

    #[test]
    fn w7_a_holder_is_known_by_name_and_a_renewal_is_no_new_hold() {
        let named = |holder: Option<&str>, author, second: u64| {
            let facts = LeaseFacts { holder: holder.map(Arc::from), ..(*held_since(None).facts).clone() };
            LeaseState::new(Now::from_millis(second * 1_000), Arc::new(facts), author, 0)
        };
        for (holder, author, holder_kind) in [
            (None, LeaseAuthor::Controller, LeaseHolderKind::None),
            (Some("ours"), LeaseAuthor::Controller, LeaseHolderKind::Controller),
            (Some("ours"), LeaseAuthor::Other, LeaseHolderKind::SameName),
            (
                Some("Cloud-Controller-Manager"),
                LeaseAuthor::Controller,
                LeaseHolderKind::CloudControllerManager,
            ),
            (Some("aks-rp"), LeaseAuthor::Controller, LeaseHolderKind::Other),
        ] {
            let state = named(holder, author, 1);
            assert_eq!(state.holder_kind("ours"), holder_kind, "{holder:?}");
            let renewed =
                named(holder, author, 5).follows(&ObservedSharedLease::State(state.clone()), "ours");
            assert_eq!((renewed.since, renewed.held_since), (Now::from_millis(5_000), state.since));
            let other = named(Some("other"), LeaseAuthor::Controller, 9)
                .follows(&ObservedSharedLease::State(state), "ours");
            assert_eq!(other.held_since, Now::from_millis(9_000));
        }
        let ours = ObservedSharedLease::State(named(Some("ours"), LeaseAuthor::Controller, 1));
        let same_name = named(Some("ours"), LeaseAuthor::Other, 5).follows(&ours, "ours");
        assert_eq!(
            same_name.held_since, same_name.since,
            "our own hold is not part of that of another client in our name"
        );
    }

    #[test]
    fn w7_holders_compare_without_regard_to_case() {
        let state = held_since(None);
        assert_eq!(Holder::of(&state.facts, "Cloud-Controller-Manager"), Holder::Ours);
        assert_eq!(Holder::of(&state.facts, "azure-backend-pool-controller"), Holder::Other);
        let no_holder = LeaseFacts { holder: None, ..(*state.facts).clone() };
        assert_eq!(Holder::of(&no_holder, ""), Holder::None);
    }
}
