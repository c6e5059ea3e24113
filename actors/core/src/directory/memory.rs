//! What is remembered of the members of one assigned pool: who left it and when (D4), and whether its emptiness
//! is held back (D6, G2).
//!
//! The removal delay and the confirmation of emptiness run at the same time: both count from the moment at
//! which the Services' own parts let go.
//!
//! How long emptiness must last depends on how it became known (G1): what an organic, empty slice says needs
//! `guards.emptyConfirm` alone, which may be nothing; a list or vanished slices could be a broken source. That is
//! noted of each Service as its part lets go: facts that come later, and other Services, say nothing of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::assignment::{Held, HeldReason};
use crate::ids::{Family, ServiceUid};
use crate::informer::{Part, ServiceFact};
use crate::level::Provenance;
use crate::machine::{Now, earliest};

/// How long emptiness that no organic, empty slice tells of must last at least, whatever `guards.emptyConfirm` says:
/// a second read counts from then on (G2).
const DOUBTFUL_FOR: Duration = Duration::from_secs(30);

/// The Services of a pool and what they ask.
pub(super) type Claims = BTreeMap<ServiceUid, Arc<ServiceFact>>;

/// What a Service asks of its pool of this family.
pub(super) fn part(fact: &ServiceFact, family: Family) -> Option<&Part> {
    fact.parts.get(&family)
}

/// Whether a Service asks nothing of its pool of this family.
fn is_silent(fact: &ServiceFact, family: Family) -> bool {
    let unusable = part(fact, family).is_some_and(|part| part.unusable);
    !unusable && addresses(fact, family).next().is_none()
}

fn addresses(fact: &ServiceFact, family: Family) -> impl Iterator<Item = &IpAddr> {
    part(fact, family).into_iter().flat_map(|part| part.required.keys().chain(&part.tolerated))
}

/// One look at a pool: all that the memory judges by.
pub(super) struct Look<'a> {
    /// When.
    pub(super) now: Now,
    /// The family of its members.
    pub(super) family: Family,
    /// Its Services.
    pub(super) claims: &'a Claims,
    /// What it was last seen with.
    pub(super) observed: &'a BTreeSet<IpAddr>,
    /// When the GET that saw it began.
    pub(super) observed_at: Now,
    /// The removal delay of this pool.
    pub(super) delay: Duration,
    /// The time that organic emptiness must last.
    pub(super) confirm: Duration,
    /// Whether the guards are on.
    pub(super) guards: bool,
}

/// Whether a broken source may be why a Service asks for nothing: it was listed so, or its slices have vanished (G2).
/// A watch that goes on where it has ended misses nothing.
fn is_doubtful(fact: &ServiceFact) -> bool {
    let listed = match fact.provenance {
        Provenance::Watch | Provenance::Reconnect => false,
        Provenance::Relist | Provenance::FirstList => true,
    };
    listed || fact.slices == 0
}

/// What is remembered of one assigned pool's members.
#[derive(Default)]
pub(super) struct Memory {
    /// What its Services asked at the last look.
    claims: Claims,
    /// Addresses that no Service asks for: those that one once did, and those that were found in the pool.
    left: BTreeMap<IpAddr, Left>,
    /// Addresses that were required, and when that was last so: they may have been written since the pool was
    /// last seen.
    required: BTreeMap<IpAddr, Now>,
    /// The Services that ask for nothing, where a broken source may be why, and until when that is doubted (G1, G2).
    doubts: BTreeMap<ServiceUid, Now>,
    guard: Guard,
}

/// An address that nobody asks for any more.
struct Left {
    /// When that began; for an address that nobody ever asked for, when it was first seen.
    at: Now,
    /// Whose it was; empty when unknown.
    owners: BTreeSet<ServiceUid>,
}

/// Whether members are held back although nobody asks for them.
#[derive(Default)]
enum Guard {
    /// Something is asked for.
    #[default]
    Open,
    /// Nothing is asked for, since then; what the pool had stays until that has lasted (G2). How long that is depends
    /// on how it began, whatever comes later (G1).
    Empty { since: Now, until: Now, members: BTreeSet<IpAddr> },
    /// It has lasted.
    Confirmed,
    /// There are endpoints, but no usable node behind any of them, or not all is known of them (D6).
    Unusable { since: Now, members: BTreeSet<IpAddr> },
    /// Nothing that is asked for is in the pool or is to be added: what is in it is all there is (G2).
    Last { since: Now, members: BTreeSet<IpAddr> },
}

/// What is asked of a pool now, as far as the guard judges by it.
enum Asked {
    /// Something that is in the pool or is to be added.
    Members,
    /// Something, but nothing that is in the pool or is to be added.
    Absent,
    /// Nothing.
    Nothing,
    /// Nothing that can be used (D6).
    Unusable,
}

impl Memory {
    /// Takes in a new look at the pool. `had` tells the members that it was allowed before, or else was seen
    /// with; it is asked only when they are to be held back.
    pub(super) fn look(&mut self, look: &Look<'_>, had: impl Fn() -> BTreeSet<IpAddr>) {
        let asked: BTreeSet<IpAddr> =
            look.claims.values().flat_map(|fact| addresses(fact, look.family)).copied().collect();
        self.note_leaving(look, &asked);
        self.note_doubts(look);
        let parts = || look.claims.values().filter_map(|fact| part(fact, look.family));
        self.required.retain(|_, at| *at >= look.observed_at);
        let mut adds = false;
        for ip in parts().flat_map(|part| part.required.keys()) {
            adds = true;
            self.required.insert(*ip, look.now);
        }
        let is_in = |ip: &IpAddr| look.observed.contains(ip) || self.required.contains_key(ip);
        let asked = if parts().any(|part| part.unusable) {
            Asked::Unusable
        } else if asked.is_empty() {
            Asked::Nothing
        } else if adds || look.observed.is_empty() || asked.iter().any(is_in) {
            Asked::Members
        } else {
            Asked::Absent
        };
        self.guard(look, &asked, had);
        self.claims = look.claims.clone();
    }

    fn note_leaving(&mut self, look: &Look<'_>, asked: &BTreeSet<IpAddr>) {
        for (uid, fact) in &self.claims {
            for ip in addresses(fact, look.family).filter(|ip| !asked.contains(ip)) {
                let left =
                    self.left.entry(*ip).or_insert_with(|| Left { at: look.now, owners: BTreeSet::new() });
                left.owners.insert(uid.clone());
            }
        }
        for ip in look.observed.iter().filter(|ip| !asked.contains(ip)) {
            self.left.entry(*ip).or_insert_with(|| Left { at: look.now, owners: BTreeSet::new() });
        }
        // An address is forgotten once it was due to go and was then not found: should somebody put it back
        // later, it counts as first seen.
        self.left.retain(|ip, left| {
            let gone = look.observed_at > left.at.plus(look.delay) && !look.observed.contains(ip);
            !asked.contains(ip) && !gone
        });
    }

    /// Doubt lasts from the look at which a Service's part lets go, whatever is said of the Service meanwhile.
    fn note_doubts(&mut self, look: &Look<'_>) {
        let is_silent = |claims: &Claims, uid: &ServiceUid| {
            claims.get(uid).is_some_and(|fact| is_silent(fact, look.family))
        };
        self.doubts.retain(|uid, _| is_silent(look.claims, uid));
        for (uid, fact) in look.claims {
            let lets_go = is_silent(look.claims, uid) && !is_silent(&self.claims, uid);
            if lets_go && is_doubtful(fact) {
                self.doubts.insert(uid.clone(), look.now.plus(DOUBTFUL_FOR));
            }
        }
    }

    /// Until when emptiness that begins now must last (G2).
    fn empty_until(&self, look: &Look<'_>) -> Now {
        let doubted = self.doubts.values().max().filter(|_| look.guards);
        let confirmed = look.now.plus(look.confirm);
        doubted.map_or(confirmed, |doubted| confirmed.max(*doubted))
    }

    fn guard(&mut self, look: &Look<'_>, asked: &Asked, had: impl Fn() -> BTreeSet<IpAddr>) {
        let now = look.now;
        let again = |members: BTreeSet<IpAddr>| if members.is_empty() { had() } else { members };
        self.guard = match (asked, std::mem::take(&mut self.guard)) {
            (Asked::Members, _) => Guard::Open,
            (Asked::Absent, _) if !look.guards => Guard::Open,
            // What is seen there meanwhile counts: somebody who may know more has added to it or taken from it.
            (Asked::Unusable, Guard::Unusable { since, members }) => {
                let members = if look.observed_at > since && !look.observed.is_empty() {
                    // What was required since then may have been written since then.
                    look.observed.iter().chain(self.required.keys()).copied().collect()
                } else {
                    again(members).union(look.observed).copied().collect()
                };
                Guard::Unusable { since, members }
            }
            (Asked::Unusable, Guard::Open | Guard::Empty { .. } | Guard::Confirmed | Guard::Last { .. }) => {
                Guard::Unusable { since: now, members: had() }
            }
            (Asked::Absent, Guard::Last { since, .. }) => {
                Guard::Last { since, members: look.observed.clone() }
            }
            (
                Asked::Absent,
                Guard::Open | Guard::Empty { .. } | Guard::Confirmed | Guard::Unusable { .. },
            ) => Guard::Last { since: now, members: look.observed.clone() },
            (Asked::Nothing, Guard::Confirmed) => Guard::Confirmed,
            (Asked::Nothing, Guard::Empty { until, .. }) if until <= now => Guard::Confirmed,
            (Asked::Nothing, Guard::Empty { since, until, members }) => {
                Guard::Empty { since, until, members: again(members) }
            }
            (Asked::Nothing, Guard::Open | Guard::Unusable { .. } | Guard::Last { .. }) => {
                let until = self.empty_until(look);
                if until <= now {
                    Guard::Confirmed
                } else {
                    Guard::Empty { since: now, until, members: had() }
                }
            }
        };
    }

    /// The removal that is held back now, if any; there may be no member that it concerns.
    pub(super) fn held(&self) -> Option<Held> {
        let (reason, since, until, members) = match &self.guard {
            Guard::Open | Guard::Confirmed => return None,
            Guard::Empty { since, until, members } => {
                (HeldReason::EmptyConfirm, *since, Some(*until), members)
            }
            Guard::Unusable { since, members } => (HeldReason::NoUsableNode, *since, None, members),
            Guard::Last { since, members } => (HeldReason::LastMember, *since, None, members),
        };
        Some(Held { reason, since, until, members: members.clone() })
    }

    /// Whether the pool must not be emptied: emptiness has not been confirmed (G2). Without guards only what is held
    /// back keeps it so.
    pub(super) fn keeps_last(&self, guards: bool) -> bool {
        match &self.guard {
            Guard::Open => guards,
            Guard::Empty { .. } | Guard::Unusable { .. } | Guard::Last { .. } => true,
            Guard::Confirmed => false,
        }
    }

    /// The addresses that stay although nobody asks for them, each with the Services whose they were; none:
    /// they count for all.
    pub(super) fn staying(&self, now: Now, delay: Duration) -> BTreeMap<IpAddr, BTreeSet<ServiceUid>> {
        let held = match &self.guard {
            Guard::Open | Guard::Confirmed => None,
            Guard::Empty { members, .. } | Guard::Unusable { members, .. } | Guard::Last { members, .. } => {
                Some(members)
            }
        };
        let delayed = self.left.iter().filter(|(_, left)| left.at.plus(delay) > now).map(|(ip, _)| ip);
        delayed
            .chain(held.into_iter().flatten())
            .map(|ip| (*ip, self.left.get(ip).map(|left| left.owners.clone()).unwrap_or_default()))
            .collect()
    }

    /// The next moment at which time alone changes what stays.
    pub(super) fn deadline(&self, now: Now, delay: Duration) -> Option<Now> {
        let left = self.left.values().map(|left| left.at.plus(delay)).filter(|at| *at > now).min();
        let guard = match &self.guard {
            Guard::Open | Guard::Confirmed | Guard::Unusable { .. } | Guard::Last { .. } => None,
            Guard::Empty { until, .. } => Some(*until),
        };
        earliest(left, guard)
    }
}
