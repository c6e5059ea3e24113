//! Doubts about the addresses of a pool that no source asks for any more. A broken source may be the cause (G1). If
//! too many addresses are in doubt, they stay (G3).
//!
//! A doubt belongs to an address and to the Service that released it. Only the provenance of the releasing fact counts,
//! not that of later facts of the Service. The doubt lasts until a second read that began later is in force, or until
//! the Service asks for the address again. A source that pushes everything it knows needs no second read: its facts
//! become certain after the same time without an error beside them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::guard_inputs::{Confirmation, GuardInputs, Owners, addresses, asks, part};
use model::assignment::Waits;
use model::guard::DOUBTFUL_FOR;
use model::ids::{Family, ServiceUid};
use model::level::Provenance;
use model::machine::Now;
use model::services::ServiceFact;

/// Minimum number of members of a pool of which a fraction is evaluated (G3).
const MIN_MEMBERS: usize = 3;

/// Time for which the confirmation of the other removals is delayed when a source assigns an omitted address again.
/// The limit gives every held removal an end.
const REASSIGNMENT_WINDOW: Duration = Duration::from_secs(600);

/// Doubts about one pool's addresses.
#[derive(Default)]
pub(super) struct UnconfirmedRemovals {
    /// By address and by the Service that released it; `None` if no Service ever asked for it.
    of: BTreeMap<IpAddr, BTreeMap<Option<ServiceUid>, UnconfirmedRemoval>>,
    fraction: Option<HeldFraction>,
    /// How a doubt becomes certain.
    confirmation: Confirmation,
    /// Since when the source has had no error and has asked for no doubtful address again, if time alone confirms its
    /// removals.
    standing_since: Option<Now>,
}

/// What is known about the reason why a Service released an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UnconfirmedRemoval {
    /// The Service's endpoints are unusable or unknown (D6): it may yet ask for the address.
    Open,
    /// A broken source may be the reason, since this time.
    Since(Now),
}

/// Addresses that stay because too many are in doubt (G3).
pub(super) struct HeldFraction {
    /// Since when they stay.
    pub(super) since: Now,
    /// All doubtful addresses, as far as there is room for them.
    pub(super) members: BTreeSet<IpAddr>,
}

/// How a Service released an address that it does not ask for.
enum Release {
    Certain,
    Doubtful,
    Undecided,
}

/// Returns whether a fact came with a list. A watch that resumes from the version at which it ended misses no change.
fn came_with_a_list(provenance: Provenance) -> bool {
    match provenance {
        Provenance::Watch | Provenance::Reconnect => false,
        Provenance::Relist | Provenance::FirstList => true,
    }
}

/// Returns whether a broken source may be the reason why a Service asks for less: the fact came with a list, or its
/// slices have vanished (G2). There is no doubt if the operator configured that data errors end the use of the last
/// good slices (X5).
fn is_doubtful(fact: &ServiceFact, family: Family) -> bool {
    let part = part(fact, family);
    !part.is_dropped && (came_with_a_list(fact.provenance) || part.slices == 0)
}

/// Returns how this Service, which does not ask for an address, released it. A Service whose rules no longer belong to
/// the pool released it certainly: while a rule of a Service that is gone remains, the pool is not written (D2).
fn release_of(inputs: &GuardInputs<'_>, uid: &ServiceUid) -> Release {
    match inputs.owners.get(uid) {
        Some(fact) if part(fact, inputs.family).unusable => Release::Undecided,
        Some(fact) if is_doubtful(fact, inputs.family) => Release::Doubtful,
        Some(_) => Release::Certain,
        None => Release::Certain,
    }
}

impl UnconfirmedRemovals {
    /// Updates the doubts. `before` holds the owners at the last evaluation. `found` holds the addresses that are in
    /// the pool at the first evaluation and that no source asks for. `concerns` returns whether an address matters at
    /// all.
    pub(super) fn update(
        &mut self,
        inputs: &GuardInputs<'_>,
        before: &Owners,
        found: impl Iterator<Item = IpAddr>,
        concerns: impl Fn(&IpAddr) -> bool,
    ) {
        self.confirmation = inputs.confirmation;
        self.standing_since = match inputs.confirmation {
            Confirmation::ByTime(true) => self.standing_since.or(Some(inputs.now)),
            Confirmation::ByTime(false) | Confirmation::SecondRead(_) => None,
        };
        if self.resolve(inputs) {
            // The source has assigned an omitted address again, and may assign more of them.
            self.standing_since = self.standing_since.map(|_| inputs.now);
        }
        self.decide_open(inputs);
        for (uid, old) in before {
            let asks_now =
                |ip: &IpAddr| inputs.owners.get(uid).is_some_and(|fact| asks(fact, inputs.family, ip));
            for ip in addresses(old, inputs.family).filter(|ip| !asks_now(ip)) {
                let doubt = match release_of(inputs, uid) {
                    Release::Certain => continue,
                    Release::Doubtful => UnconfirmedRemoval::Since(inputs.now),
                    Release::Undecided => UnconfirmedRemoval::Open,
                };
                self.of.entry(*ip).or_default().entry(Some(uid.clone())).or_insert(doubt);
            }
        }
        if inputs.owners.values().any(|fact| is_doubtful(fact, inputs.family)) {
            for ip in found {
                self.of.entry(ip).or_default().entry(None).or_insert(UnconfirmedRemoval::Since(inputs.now));
            }
        }
        self.of.retain(|ip, doubts| !doubts.is_empty() && concerns(ip));
    }

    /// Drops doubts that a second read resolved, or whose Service asks for the address again. Returns whether an
    /// address that is asked for again was held back because there were too many. Addresses that come and go later do
    /// not count.
    fn resolve(&mut self, inputs: &GuardInputs<'_>) -> bool {
        let held = self.fraction.as_ref().filter(|held| inputs.now < held.since.plus(REASSIGNMENT_WINDOW));
        let is_held = |ip: &IpAddr, since: Now| {
            held.is_some_and(|held| since <= held.since && held.members.contains(ip))
        };
        let mut returns = false;
        let confirmed_at = match inputs.confirmation {
            Confirmation::SecondRead(asked) => asked,
            Confirmation::ByTime(stands) => stands.then_some(inputs.now),
        };
        let standing_since = self.standing_since;
        let from = |since: Now| standing_since.map_or(since, |standing| standing.max(since));
        let is_resolved = |since: Now| {
            confirmed_at.is_some_and(|confirmed_at| from(since).plus(DOUBTFUL_FOR) <= confirmed_at)
        };
        for (ip, doubts) in &mut self.of {
            doubts.retain(|uid, doubt| {
                let asked_again = match uid {
                    Some(uid) => inputs.owners.get(uid).is_some_and(|fact| asks(fact, inputs.family, ip)),
                    None => inputs.owners.values().any(|fact| asks(fact, inputs.family, ip)),
                };
                let resolved = match doubt {
                    UnconfirmedRemoval::Open => false,
                    UnconfirmedRemoval::Since(since) => is_resolved(*since),
                };
                returns |= match doubt {
                    UnconfirmedRemoval::Open => false,
                    UnconfirmedRemoval::Since(since) => asked_again && is_held(ip, *since),
                };
                !asked_again && !resolved
            });
        }
        returns
    }

    /// Decides the doubts whose facts were not known before.
    fn decide_open(&mut self, inputs: &GuardInputs<'_>) {
        for doubts in self.of.values_mut() {
            doubts.retain(|uid, doubt| {
                let (Some(uid), UnconfirmedRemoval::Open) = (uid, &*doubt) else {
                    return true;
                };
                match release_of(inputs, uid) {
                    Release::Certain => return false,
                    Release::Doubtful => *doubt = UnconfirmedRemoval::Since(inputs.now),
                    Release::Undecided => {}
                }
                true
            });
        }
    }

    /// Returns since when an address is in doubt; the latest time of all doubts about it.
    pub(super) fn since(&self, ip: &IpAddr) -> Option<Now> {
        let doubts = self.of.get(ip)?.values();
        let since = doubts.filter_map(|doubt| match doubt {
            UnconfirmedRemoval::Open => None,
            UnconfirmedRemoval::Since(since) => Some(*since),
        });
        since.max()
    }

    /// Returns the addresses that are, or may come to be, in doubt.
    pub(super) fn of(&self) -> impl Iterator<Item = &IpAddr> {
        self.of.keys()
    }

    /// Returns the earliest time at which the doubts about these addresses can be resolved. `None`: there are no
    /// doubts.
    pub(super) fn resolved_from<'a>(&self, of: impl Iterator<Item = &'a IpAddr>) -> Option<Now> {
        let since = of.filter_map(|ip| self.since(ip)).min()?;
        Some(self.standing_since.map_or(since, |standing| standing.max(since)).plus(DOUBTFUL_FOR))
    }

    /// Returns the earliest time at which a second read can resolve the doubts about these addresses. `None`: there
    /// are no doubts, or a second read does not resolve them.
    pub(super) fn read_from<'a>(&self, of: impl Iterator<Item = &'a IpAddr>) -> Option<Now> {
        match self.confirmation {
            Confirmation::SecondRead(_) => self.resolved_from(of),
            Confirmation::ByTime(_) => None,
        }
    }

    /// Returns the condition that resolves a doubt, if the doubt can be resolved from this time on.
    pub(super) fn waits(&self, from: Now) -> Waits {
        match self.confirmation {
            Confirmation::SecondRead(_) => Waits::SecondRead(from),
            Confirmation::ByTime(true) => Waits::Time(from),
            Confirmation::ByTime(false) => Waits::Facts,
        }
    }

    /// Checks whether too many of a pool's members leave in doubt (G3). `leaving` are the members that no source asks
    /// for; `all` is the number that would stay if no removal were in doubt. Once there are too many, they all stay
    /// until the doubts are resolved, as far as there is room. Additions have priority (G1).
    pub(super) fn evaluate_fraction(
        &mut self,
        inputs: &GuardInputs<'_>,
        leaving: impl Iterator<Item = IpAddr>,
        all: usize,
    ) {
        let doubted: BTreeSet<IpAddr> = leaving.filter(|ip| self.since(ip).is_some()).collect();
        let since = match &self.fraction {
            _ if doubted.is_empty() => None,
            Some(fraction) => Some(fraction.since),
            None => (all >= MIN_MEMBERS && inputs.max_removal.is_exceeded_by(doubted.len(), all))
                .then_some(inputs.now),
        };
        let members: BTreeSet<IpAddr> = doubted.into_iter().take(inputs.room).collect();
        self.fraction = since.filter(|_| !members.is_empty()).map(|since| HeldFraction { since, members });
    }

    /// Returns the members that stay because too many would go.
    pub(super) fn fraction(&self) -> Option<&HeldFraction> {
        self.fraction.as_ref()
    }

    /// Drops all doubts, because the operator released them.
    pub(super) fn clear(&mut self) {
        *self = UnconfirmedRemovals::default();
    }
}
