//! What is doubted of the addresses that no source asks a pool for any more: whether a broken source may be why (G1),
//! and which of them stay for it because they are too many (G3).
//!
//! Doubt sits on the address that leaves, with the Service that released it: how the fact that did so reached us is
//! what counts, whatever is said of the Service later. It lasts until a second read that was begun later is in force,
//! or until the Service asks for the address again. A source that pushes all that it knows needs no second read: what it
//! says stands for as long while nothing is wrong beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::removal_guard::{Look, Owners, addresses, asks, part};
use model::assignment::Waits;
use model::guard::DOUBTFUL_FOR;
use model::ids::{Family, ServiceUid};
use model::level::Provenance;
use model::machine::Now;
use model::services::ServiceFact;

/// The least members of a pool of which a fraction is judged (G3).
const JUDGED_FROM: usize = 3;

/// For how long a source that goes on assigning what it has left out at first keeps the rest from becoming certain: a hold
/// has an end.
const ASSIGNED_AGAIN_WITHIN: Duration = Duration::from_secs(600);

/// What is doubted of one pool's addresses.
#[derive(Default)]
pub(super) struct UnconfirmedRemovals {
    /// By address and by the Service that released it; `None`, where no Service ever asked for it.
    of: BTreeMap<IpAddr, BTreeMap<Option<ServiceUid>, UnconfirmedRemoval>>,
    fraction: Option<Fraction>,
    /// How it becomes certain.
    confirmation: Confirmation,
    /// Since when nothing is wrong beside what the source says and it has asked again for nothing that was doubted, as far as
    /// that is what makes it certain.
    standing_since: Option<Now>,
}

/// How what is doubted becomes certain (G1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Confirmation {
    /// By a second read; when the newest one that is in force was asked for.
    SecondRead(Option<Now>),
    /// By time alone while its source tells of every change, which it does or does not do now.
    Standing(bool),
}

impl Default for Confirmation {
    fn default() -> Confirmation {
        Confirmation::SecondRead(None)
    }
}

/// How far it is known why a Service released an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UnconfirmedRemoval {
    /// What the Service asks for cannot be used or is not known (D6): it may yet ask for the address.
    Open,
    /// A broken source may be why, since then.
    Since(Now),
}

/// Addresses that stay because too many are doubted (G3).
pub(super) struct Fraction {
    /// Since when.
    pub(super) since: Now,
    /// All that are doubted, as far as there is room for them.
    pub(super) members: BTreeSet<IpAddr>,
}

/// How a Service that does not ask for an address released it.
enum LetsGo {
    Surely,
    Doubtfully,
    NotYet,
}

/// Whether it came with a list. A watch that goes on where it has ended misses nothing.
fn came_with_a_list(provenance: Provenance) -> bool {
    match provenance {
        Provenance::Watch | Provenance::Reconnect => false,
        Provenance::Relist | Provenance::FirstList => true,
    }
}

/// Whether a broken source may be why a Service asks for less: it was listed so, or its slices have vanished (G2).
/// Where the operator has configured that this counts, there is no doubt (X5).
fn is_doubtful(fact: &ServiceFact, family: Family) -> bool {
    let (is_dropped, slices) = part(fact, family).map_or((false, 0), |part| (part.is_dropped, part.slices));
    !is_dropped && (came_with_a_list(fact.provenance) || slices == 0)
}

/// How this Service, which does not ask for an address, released it. One whose rules are not the pool's any more has
/// surely done so: while a rule of a Service that is gone is there, the pool is not written (D2).
fn lets_go(look: &Look<'_>, uid: &ServiceUid) -> LetsGo {
    match look.claims.get(uid) {
        Some(fact) if part(fact, look.family).is_some_and(|part| part.unusable) => LetsGo::NotYet,
        Some(fact) if is_doubtful(fact, look.family) => LetsGo::Doubtfully,
        Some(_) => LetsGo::Surely,
        None => LetsGo::Surely,
    }
}

impl UnconfirmedRemovals {
    /// Takes in a new look at the pool. `before` is what was asked at the last one, `found` are the addresses that are
    /// in the pool at the first look and that no source asks for; `concerns` tells whether an address needs to be
    /// judged at all.
    pub(super) fn note(
        &mut self,
        look: &Look<'_>,
        before: &Owners,
        found: impl Iterator<Item = IpAddr>,
        concerns: impl Fn(&IpAddr) -> bool,
    ) {
        self.confirmation = look.confirmation;
        self.standing_since = match look.confirmation {
            Confirmation::Standing(true) => self.standing_since.or(Some(look.now)),
            Confirmation::Standing(false) | Confirmation::SecondRead(_) => None,
        };
        if self.resolve(look) {
            // More than was known at first is known now, and still more may come.
            self.standing_since = self.standing_since.map(|_| look.now);
        }
        self.note_open(look);
        for (uid, old) in before {
            let asks_now = |ip: &IpAddr| look.claims.get(uid).is_some_and(|fact| asks(fact, look.family, ip));
            for ip in addresses(old, look.family).filter(|ip| !asks_now(ip)) {
                let doubt = match lets_go(look, uid) {
                    LetsGo::Surely => continue,
                    LetsGo::Doubtfully => UnconfirmedRemoval::Since(look.now),
                    LetsGo::NotYet => UnconfirmedRemoval::Open,
                };
                self.of.entry(*ip).or_default().entry(Some(uid.clone())).or_insert(doubt);
            }
        }
        if look.claims.values().any(|fact| is_doubtful(fact, look.family)) {
            for ip in found {
                self.of.entry(ip).or_default().entry(None).or_insert(UnconfirmedRemoval::Since(look.now));
            }
        }
        self.of.retain(|ip, doubts| !doubts.is_empty() && concerns(ip));
    }

    /// Forgets what a second read has resolved, and what is asked for again by whom it was doubted. Whether that is anything
    /// of what is held back since there was too much of it: what comes and goes later says nothing of that.
    fn resolve(&mut self, look: &Look<'_>) -> bool {
        let held = self.fraction.as_ref().filter(|held| look.now < held.since.plus(ASSIGNED_AGAIN_WITHIN));
        let is_held = |ip: &IpAddr, since: Now| {
            held.is_some_and(|held| since <= held.since && held.members.contains(ip))
        };
        let mut returns = false;
        let said = match look.confirmation {
            Confirmation::SecondRead(asked) => asked,
            Confirmation::Standing(stands) => stands.then_some(look.now),
        };
        let standing_since = self.standing_since;
        let from = |since: Now| standing_since.map_or(since, |standing| standing.max(since));
        let is_resolved = |since: Now| said.is_some_and(|said| from(since).plus(DOUBTFUL_FOR) <= said);
        for (ip, doubts) in &mut self.of {
            doubts.retain(|uid, doubt| {
                let asked_again = match uid {
                    Some(uid) => look.claims.get(uid).is_some_and(|fact| asks(fact, look.family, ip)),
                    None => look.claims.values().any(|fact| asks(fact, look.family, ip)),
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

    /// What was not known is known now.
    fn note_open(&mut self, look: &Look<'_>) {
        for doubts in self.of.values_mut() {
            doubts.retain(|uid, doubt| {
                let (Some(uid), UnconfirmedRemoval::Open) = (uid, &*doubt) else {
                    return true;
                };
                match lets_go(look, uid) {
                    LetsGo::Surely => return false,
                    LetsGo::Doubtfully => *doubt = UnconfirmedRemoval::Since(look.now),
                    LetsGo::NotYet => {}
                }
                true
            });
        }
    }

    /// Since when an address has been doubted, where it is; the latest of all doubts of it.
    pub(super) fn since(&self, ip: &IpAddr) -> Option<Now> {
        let doubts = self.of.get(ip)?.values();
        let since = doubts.filter_map(|doubt| match doubt {
            UnconfirmedRemoval::Open => None,
            UnconfirmedRemoval::Since(since) => Some(*since),
        });
        since.max()
    }

    /// The addresses of which anything is doubted, or may come to be.
    pub(super) fn of(&self) -> impl Iterator<Item = &IpAddr> {
        self.of.keys()
    }

    /// From when on what is doubted of these can be resolved, where anything is.
    pub(super) fn resolved_from<'a>(&self, of: impl Iterator<Item = &'a IpAddr>) -> Option<Now> {
        let since = of.filter_map(|ip| self.since(ip)).min()?;
        Some(self.standing_since.map_or(since, |standing| standing.max(since)).plus(DOUBTFUL_FOR))
    }

    /// The same, where it takes a second read.
    pub(super) fn read_from<'a>(&self, of: impl Iterator<Item = &'a IpAddr>) -> Option<Now> {
        match self.confirmation {
            Confirmation::SecondRead(_) => self.resolved_from(of),
            Confirmation::Standing(_) => None,
        }
    }

    /// What resolves something that can be resolved from then on.
    pub(super) fn waits(&self, from: Now) -> Waits {
        match self.confirmation {
            Confirmation::SecondRead(_) => Waits::SecondRead(from),
            Confirmation::Standing(true) => Waits::Time(from),
            Confirmation::Standing(false) => Waits::Facts,
        }
    }

    /// Judges whether too many of a pool's members leave in doubt (G3): `leaving` are those in it that no source asks
    /// for, `all` how many would stay if nothing were doubted to leave. Once too many, they all stay until it is
    /// resolved; as many as there is room for, since additions always pass (G1).
    pub(super) fn judge(&mut self, look: &Look<'_>, leaving: impl Iterator<Item = IpAddr>, all: usize) {
        let doubted: BTreeSet<IpAddr> = leaving.filter(|ip| self.since(ip).is_some()).collect();
        let since = match &self.fraction {
            _ if doubted.is_empty() => None,
            Some(fraction) => Some(fraction.since),
            None => (all >= JUDGED_FROM && look.max_removal.is_exceeded_by(doubted.len(), all))
                .then_some(look.now),
        };
        let members: BTreeSet<IpAddr> = doubted.into_iter().take(look.room).collect();
        self.fraction = since.filter(|_| !members.is_empty()).map(|since| Fraction { since, members });
    }

    /// The members that stay because too many would go.
    pub(super) fn fraction(&self) -> Option<&Fraction> {
        self.fraction.as_ref()
    }

    /// Forgets all that is doubted: the operator has released it.
    pub(super) fn clear(&mut self) {
        *self = UnconfirmedRemovals::default();
    }
}
