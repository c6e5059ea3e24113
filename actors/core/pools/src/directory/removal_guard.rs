//! What is remembered of the members of one assigned pool: who left it and when (D4), and whether its emptiness
//! is held back (D6, G2).
//!
//! The removal delay and the confirmation of emptiness run at the same time: both count from the moment at
//! which the Services' own parts let go. While nothing is heard of EndpointSlices the confirmation stands still.
//!
//! How emptiness is confirmed depends on how it became known (G1): what an organic, empty slice says needs
//! `guards.emptyConfirm` alone, which may be nothing; a list or vanished slices could be a broken source, and are
//! doubted until a second read. What is doubted is [`super::doubt`]'s business.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::losses::{self, Losses};
use super::unconfirmed_removals::{Confirmation, UnconfirmedRemovals};
use model::assignment::{Held, HeldReason, Waits};
use model::guard::{Fraction, GuardMode};
use model::ids::{Family, NodeName, ServiceUid};
use model::level::Keeps;
use model::machine::{Now, earliest};
use model::object::LeftOut;
use model::report::LeftOutNodes;
use model::services::{Part, ServiceFact};

/// The Services of a pool and what they ask.
pub(super) type Owners = BTreeMap<ServiceUid, Arc<ServiceFact>>;

/// What a Service asks of its pool of this family.
pub(super) fn part(fact: &ServiceFact, family: Family) -> Option<&Part> {
    fact.parts.get(&family)
}

/// The addresses that a Service asks for.
pub(super) fn addresses(fact: &ServiceFact, family: Family) -> impl Iterator<Item = &IpAddr> {
    part(fact, family).into_iter().flat_map(|part| part.required.keys().chain(&part.tolerated))
}

/// Whether a Service asks for an address.
pub(super) fn asks(fact: &ServiceFact, family: Family, ip: &IpAddr) -> bool {
    part(fact, family).is_some_and(|part| part.required.contains_key(ip) || part.tolerated.contains(ip))
}

/// The addresses of nodes that host endpoints of a Service, and none of this family (D4).
pub(super) fn of_other_family(fact: &ServiceFact, family: Family) -> impl Iterator<Item = &IpAddr> {
    let left_out = part(fact, family).into_iter().flat_map(|part| part.left_out.values());
    left_out.filter(|node| node.why == LeftOut::OtherFamily).flat_map(|node| &node.ips)
}

/// Whether what a Service asks for is not known only because nothing is heard of EndpointSlices at present.
fn is_unheard(fact: &ServiceFact, family: Family) -> bool {
    part(fact, family).is_none_or(|part| part.endpoints == 0) && fact.data_errors.is_empty()
}

/// One look at a pool: all that the memory judges by.
pub(super) struct Look<'a> {
    /// When.
    pub(super) now: Now,
    /// The family of its members.
    pub(super) family: Family,
    /// Its Services.
    pub(super) claims: &'a Owners,
    /// What it was last seen with.
    pub(super) observed: &'a BTreeSet<IpAddr>,
    /// When the GET that saw it began.
    pub(super) observed_at: Now,
    /// The removal delay of this pool.
    pub(super) delay: Duration,
    /// The time that organic emptiness must last.
    pub(super) confirm: Duration,
    /// What becomes of what is judged.
    pub(super) mode: GuardMode,
    /// The part of a pool that may go in doubt (G3).
    pub(super) max_removal: Fraction,
    /// How what is doubted becomes certain.
    pub(super) confirmation: Confirmation,
    /// How many members may stay that no source asks for, so that there is room for what is.
    pub(super) room: usize,
    /// Whether operators keep it from being written.
    pub(super) paused: bool,
    /// The moment of which the breaker compares pools with what they had before: now, or when removals were stopped (G4).
    pub(super) compared_at: Now,
}

/// What is remembered of one assigned pool's members.
#[derive(Default)]
pub(super) struct RemovalGuard {
    /// Whether there was a look.
    looked: bool,
    /// What its Services asked at the last look.
    claims: Owners,
    /// Addresses that no Service asks for: those that one once did, and those that were found in the pool.
    left: BTreeMap<IpAddr, Left>,
    /// Addresses that were required, and when that was last so: they may have been written since the pool was
    /// last seen.
    required: BTreeMap<IpAddr, Now>,
    doubts: UnconfirmedRemovals,
    losses: Losses,
    guard: Guard,
}

/// An address that no source asks for any more.
struct Left {
    /// When that began; for an address that no source ever asked for, when it was first seen.
    at: Now,
    /// Whose it was; empty when unknown.
    owners: BTreeSet<ServiceUid>,
    /// Whether its loss is one that the breaker counts (G4).
    is_counted: bool,
}

/// Whether members are held back although no source asks for them.
#[derive(Default)]
enum Guard {
    /// Something is asked for.
    #[default]
    Open,
    /// Nothing is asked for, since then; what the pool had stays until that is confirmed (G2).
    Empty { since: Now, clock: Clock, members: BTreeSet<IpAddr> },
    /// It is.
    Confirmed,
    /// There are endpoints, but no usable node behind any of them, or not all is known of them (D6).
    Unusable { since: Now, members: BTreeSet<IpAddr> },
    /// Nothing that is asked for is in the pool or is to be added: what is in it is all there is (G2).
    Last { since: Now, members: BTreeSet<IpAddr> },
    /// What was held back for this reason the operator has let go, and the reason lasts.
    Released(HeldReason),
}

/// The time that emptiness has to last.
#[derive(Clone, Copy)]
enum Clock {
    /// It ends then.
    Until(Now),
    /// So much of it is left when something is heard again.
    Stopped(Duration),
}

impl Clock {
    fn go_on(self, now: Now) -> Now {
        match self {
            Clock::Until(until) => until,
            Clock::Stopped(left) => now.plus(left),
        }
    }

    fn stop(self, now: Now) -> Clock {
        match self {
            Clock::Until(until) => Clock::Stopped(until.since(now)),
            Clock::Stopped(_) => self,
        }
    }
}

/// What is asked of a pool now, as far as the guard judges by it.
#[derive(Clone, Copy)]
enum Asked {
    /// Something that is in the pool or is to be added.
    Members,
    /// Something, but nothing that is in the pool or is to be added.
    Absent,
    /// Nothing.
    Nothing,
    /// Nothing, as far as was heard; nothing is heard now (G2).
    Unheard,
    /// Nothing that can be used (D6).
    Unusable,
}

impl RemovalGuard {
    /// Takes in a new look at the pool. `had` tells the members that it was allowed before, or else was seen
    /// with; it is asked only when they are to be held back.
    pub(super) fn look(&mut self, look: &Look<'_>, had: impl Fn() -> BTreeSet<IpAddr>) {
        let asked: BTreeSet<IpAddr> =
            look.claims.values().flat_map(|fact| addresses(fact, look.family)).copied().collect();
        self.losses.note_pause(look);
        self.note_leaving(look, &asked);
        let counted = self.left.iter().filter(|(_, left)| left.is_counted).map(|(ip, _)| ip);
        self.losses.note(look, &asked, counted);
        self.required.retain(|_, at| *at >= look.observed_at);
        self.note_doubts(look, &asked);
        let parts = || look.claims.values().filter_map(|fact| part(fact, look.family));
        let mut adds = false;
        for ip in parts().flat_map(|part| part.required.keys()) {
            adds = true;
            self.required.insert(*ip, look.now);
        }
        let is_in = |ip: &IpAddr| look.observed.contains(ip) || self.required.contains_key(ip);
        let unusable = |fact: &&Arc<ServiceFact>| part(fact, look.family).is_some_and(|part| part.unusable);
        let mut unknown = look.claims.values().filter(unusable).peekable();
        let asked = if unknown.peek().is_some() {
            if asked.is_empty() && unknown.all(|fact| is_unheard(fact, look.family)) {
                Asked::Unheard
            } else {
                Asked::Unusable
            }
        } else if asked.is_empty() {
            Asked::Nothing
        } else if adds || look.observed.is_empty() || asked.iter().any(is_in) {
            Asked::Members
        } else {
            Asked::Absent
        };
        self.guard(look, asked, had);
        self.claims = look.claims.clone();
        self.looked = true;
    }

    /// Whether anything of its members is in doubt.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubts.of().next().is_some()
    }

    fn note_leaving(&mut self, look: &Look<'_>, asked: &BTreeSet<IpAddr>) {
        for (uid, fact) in &self.claims {
            for ip in addresses(fact, look.family).filter(|ip| !asked.contains(ip)) {
                let left = self.left.entry(*ip).or_insert_with(|| {
                    let is_counted = losses::counts(look, &self.claims, ip);
                    Left { at: look.now, owners: BTreeSet::new(), is_counted }
                });
                left.owners.insert(uid.clone());
            }
        }
        // What other clients have added was not had (G4).
        let is_counted = !self.looked || self.losses.had_found();
        for ip in look.observed.iter().filter(|ip| !asked.contains(ip)) {
            let found = || Left { at: look.now, owners: BTreeSet::new(), is_counted };
            self.left.entry(*ip).or_insert_with(found);
        }
        // An address is forgotten once it was due to go and was then not found: should another client put it back
        // later, it counts as first seen.
        self.left.retain(|ip, left| {
            let gone = look.observed_at > left.at.plus(look.delay) && !look.observed.contains(ip);
            !asked.contains(ip) && !gone
        });
    }

    /// Notes what is doubted, and judges whether too much of it would go (G1, G3). To be called before what is required
    /// now counts as being in the pool: what comes does not make less of what goes.
    fn note_doubts(&mut self, look: &Look<'_>, asked: &BTreeSet<IpAddr>) {
        if !look.mode.judges() {
            return;
        }
        let found = look.observed.iter().filter(|ip| !self.looked && !asked.contains(ip)).copied();
        // Where nothing is asked for, what released an address that was never there has emptied the pool too.
        let concerns = |ip: &IpAddr| asked.is_empty() || asked.contains(ip) || self.left.contains_key(ip);
        self.doubts.note(look, &self.claims, found, concerns);
        let present = self.present(look.observed);
        let goes = |ip: &&IpAddr| {
            let due = self.left.get(ip).is_some_and(|left| left.at.plus(look.delay) <= look.now);
            due && self.doubts.since(ip).is_none()
        };
        let all = present.iter().filter(|ip| !goes(ip)).count();
        let leaving = self.left.keys().filter(|ip| present.contains(ip)).copied();
        self.doubts.judge(look, leaving, all);
    }

    /// The nodes of endpoints that are left out of all pools, if any are (D5).
    pub(super) fn left_out(&self, family: Family) -> Option<LeftOutNodes> {
        let parts = self.claims.values().filter_map(|fact| part(fact, family));
        let nodes = parts.flat_map(|part| &part.left_out).map(|(name, node)| (name, node.why));
        let nodes: BTreeMap<&NodeName, LeftOut> = nodes.filter(|(_, why)| why.is_everywhere()).collect();
        let (first, why) = nodes.first_key_value()?;
        Some(LeftOutNodes { first: (*first).clone(), why: *why, more: nodes.len() - 1 })
    }

    /// Whether a Service asked for an address before it left.
    pub(super) fn was_asked(&self, ip: &IpAddr) -> bool {
        self.left.get(ip).is_some_and(|left| !left.owners.is_empty())
    }

    /// The members that may be in the pool: those it was seen with, and those that may have been written since.
    pub(super) fn present(&self, observed: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        observed.iter().chain(self.required.keys()).copied().collect()
    }

    fn guard(&mut self, look: &Look<'_>, asked: Asked, had: impl Fn() -> BTreeSet<IpAddr>) {
        let now = look.now;
        let again = |members: BTreeSet<IpAddr>| if members.is_empty() { had() } else { members };
        let is_dropped = |fact: &ServiceFact| part(fact, look.family).is_some_and(|part| part.is_dropped);
        let is_certain = !look.claims.is_empty() && look.claims.values().all(|fact| is_dropped(fact));
        self.guard = match (asked, std::mem::take(&mut self.guard)) {
            // Nothing is to be waited for: it was configured so (X5).
            (Asked::Nothing, _) if is_certain => Guard::Confirmed,
            (Asked::Members, _) => Guard::Open,
            (Asked::Absent, _) if !look.mode.judges() => Guard::Open,
            // The release does not cover what a later list removes.
            (Asked::Unusable | Asked::Unheard, Guard::Released(HeldReason::NoUsableNode))
                if !self.is_doubted() =>
            {
                Guard::Released(HeldReason::NoUsableNode)
            }
            (Asked::Absent, Guard::Released(HeldReason::LastMember)) => {
                Guard::Released(HeldReason::LastMember)
            }
            (Asked::Unheard, Guard::Confirmed) => Guard::Confirmed,
            (Asked::Unheard, Guard::Empty { since, clock, members }) => {
                Guard::Empty { since, clock: clock.stop(now), members: again(members) }
            }
            // What is seen there meanwhile counts: another client, which may know more, has added to it or taken from
            // it.
            (Asked::Unusable | Asked::Unheard, Guard::Unusable { since, members }) => {
                let members = if look.observed_at > since && !look.observed.is_empty() {
                    // What was required since then may have been written since then.
                    self.present(look.observed)
                } else {
                    again(members).union(look.observed).copied().collect()
                };
                Guard::Unusable { since, members }
            }
            (
                Asked::Unusable | Asked::Unheard,
                Guard::Open
                | Guard::Empty { .. }
                | Guard::Confirmed
                | Guard::Last { .. }
                | Guard::Released(_),
            ) => {
                // A second look at the same moment finds the same.
                let members = had().union(look.observed).copied().collect();
                Guard::Unusable { since: now, members }
            }
            (Asked::Absent, Guard::Last { since, .. }) => {
                Guard::Last { since, members: look.observed.clone() }
            }
            (
                Asked::Absent,
                Guard::Open
                | Guard::Empty { .. }
                | Guard::Confirmed
                | Guard::Unusable { .. }
                | Guard::Released(_),
            ) => Guard::Last { since: now, members: look.observed.clone() },
            (Asked::Nothing, Guard::Confirmed) => Guard::Confirmed,
            (Asked::Nothing, Guard::Empty { since, clock, members }) => {
                self.emptied(now, since, clock.go_on(now), || again(members))
            }
            (
                Asked::Nothing,
                Guard::Open | Guard::Unusable { .. } | Guard::Last { .. } | Guard::Released(_),
            ) => self.emptied(now, now, now.plus(look.confirm), had),
        };
    }

    /// Nothing is asked for, since then: confirmed when that has lasted and nothing of it is in doubt (G2).
    fn emptied(&self, now: Now, since: Now, until: Now, members: impl FnOnce() -> BTreeSet<IpAddr>) -> Guard {
        if until <= now && self.doubts.resolved_from(self.doubts.of()).is_none() {
            return Guard::Confirmed;
        }
        Guard::Empty { since, clock: Clock::Until(until), members: members() }
    }

    /// The removal that is held back now, if any; there may be no member that it concerns.
    pub(super) fn held(&self, now: Now, delay: Duration) -> Option<Held> {
        let (reason, since, waits, members) = match &self.guard {
            Guard::Open | Guard::Confirmed | Guard::Released(_) => return self.held_fraction(now, delay),
            Guard::Empty { since, clock, members } => {
                let waits = match (clock, self.doubts.resolved_from(self.doubts.of())) {
                    (Clock::Stopped(_), _) => Waits::Facts,
                    (Clock::Until(until), None) => Waits::Time(*until),
                    (Clock::Until(until), Some(from)) => self.doubts.waits(from.max(*until)),
                };
                (HeldReason::EmptyConfirm, *since, waits, members)
            }
            Guard::Unusable { since, members } => (HeldReason::NoUsableNode, *since, Waits::Facts, members),
            Guard::Last { since, members } => (HeldReason::LastMember, *since, Waits::Facts, members),
        };
        Some(Held { reason, since, waits, members: members.clone() })
    }

    /// What is held back because too many would go, once one of them would (G3).
    fn held_fraction(&self, now: Now, delay: Duration) -> Option<Held> {
        let fraction = self.doubts.fraction()?;
        let is_due = |ip: &IpAddr| self.left.get(ip).is_some_and(|left| left.at.plus(delay) <= now);
        let from = self.doubts.resolved_from(fraction.members.iter())?;
        fraction.members.iter().any(is_due).then(|| Held {
            reason: HeldReason::Fraction,
            since: fraction.since,
            waits: self.doubts.waits(from),
            members: fraction.members.clone(),
        })
    }

    /// From when on a second read would end what is held back, where one would (G1).
    pub(super) fn read_from(&self, now: Now, delay: Duration) -> Option<Now> {
        match &self.guard {
            Guard::Empty { members, .. } if !members.is_empty() => self.doubts.read_from(self.doubts.of()),
            Guard::Open
            | Guard::Empty { .. }
            | Guard::Confirmed
            | Guard::Released(_)
            | Guard::Unusable { .. }
            | Guard::Last { .. } => {
                let held = self.held(now, delay)?;
                match held.reason {
                    HeldReason::Fraction => self.doubts.read_from(held.members.iter()),
                    HeldReason::EmptyConfirm
                    | HeldReason::NoUsableNode
                    | HeldReason::LastMember
                    | HeldReason::Breaker
                    | HeldReason::AddOnly => None,
                }
            }
        }
    }

    /// Whether the pool must not be emptied: emptiness has not been confirmed (G2). Without guards only what is held
    /// back keeps it so; where guards only observe, only what is not known does (D6).
    pub(super) fn keeps(&self, mode: GuardMode) -> Keeps {
        let keeps = match (&self.guard, mode) {
            (Guard::Confirmed | Guard::Released(_), _) | (Guard::Open, GuardMode::Off) => false,
            (Guard::Open | Guard::Empty { .. } | Guard::Last { .. }, GuardMode::Observe) => false,
            (Guard::Open, GuardMode::Enforce) | (Guard::Unusable { .. }, _) => true,
            (Guard::Empty { .. } | Guard::Last { .. }, GuardMode::Enforce | GuardMode::Off) => true,
        };
        if keeps { Keeps::Last } else { Keeps::Nothing }
    }

    /// The addresses that stay although no source asks for them, each with the Services whose they were; none:
    /// they count for all. Where there is no `room` for all, those go first that only wait for the removal delay, and of
    /// them those that have left first.
    pub(super) fn staying(
        &self,
        now: Now,
        delay: Duration,
        mode: GuardMode,
        room: usize,
    ) -> BTreeMap<IpAddr, BTreeSet<ServiceUid>> {
        let held = match &self.guard {
            Guard::Open | Guard::Confirmed | Guard::Released(_) => None,
            Guard::Unusable { members, .. } => Some(members),
            Guard::Empty { members, .. } | Guard::Last { members, .. } => {
                Some(members).filter(|_| !mode.only_observes())
            }
        };
        let doubted = self.doubts.fraction().filter(|_| !mode.only_observes());
        let held = held.into_iter().flatten();
        let mut stay: BTreeSet<&IpAddr> =
            held.chain(doubted.into_iter().flat_map(|fraction| &fraction.members)).collect();
        let is_delayed = |(ip, left): &(&IpAddr, &Left)| left.at.plus(delay) > now && !stay.contains(*ip);
        let mut delayed: Vec<(&IpAddr, &Left)> = self.left.iter().filter(is_delayed).collect();
        if delayed.len() > room.saturating_sub(stay.len()) {
            delayed.sort_by_key(|(_, left)| Reverse(left.at));
            delayed.truncate(room.saturating_sub(stay.len()));
        }
        stay.extend(delayed.into_iter().map(|(ip, _)| ip));
        stay.into_iter()
            .map(|ip| (*ip, self.left.get(ip).map(|left| left.owners.clone()).unwrap_or_default()))
            .collect()
    }

    /// The next moment at which time alone changes what stays.
    pub(super) fn deadline(&self, now: Now, delay: Duration) -> Option<Now> {
        let left = self.left.values().map(|left| left.at.plus(delay)).filter(|at| *at > now).min();
        let guard = match &self.guard {
            Guard::Open
            | Guard::Confirmed
            | Guard::Unusable { .. }
            | Guard::Last { .. }
            | Guard::Released(_)
            | Guard::Empty { clock: Clock::Stopped(_), .. } => None,
            Guard::Empty { clock: Clock::Until(until), .. } => Some(*until).filter(|at| *at > now),
        };
        let held = self.held(now, delay).and_then(|held| match held.waits {
            Waits::Time(at) => Some(at).filter(|at| *at > now),
            Waits::SecondRead(_) | Waits::Facts => None,
        });
        earliest(earliest(left, guard), held)
    }

    /// The losses that the breaker counts (G4).
    pub(super) fn losses(&self) -> &Losses {
        &self.losses
    }

    /// The operator releases what the breaker counts: no loss of what has left counts any more.
    pub(super) fn let_go_of_losses(&mut self) {
        self.left.values_mut().for_each(|left| left.is_counted = false);
        self.losses.clear();
    }

    /// The operator releases all that is held back now. What is held back later is held back again.
    pub(super) fn release(&mut self) {
        self.doubts.clear();
        self.guard = match std::mem::take(&mut self.guard) {
            Guard::Open => Guard::Open,
            Guard::Empty { .. } | Guard::Confirmed => Guard::Confirmed,
            Guard::Unusable { .. } => Guard::Released(HeldReason::NoUsableNode),
            Guard::Last { .. } => Guard::Released(HeldReason::LastMember),
            Guard::Released(reason) => Guard::Released(reason),
        };
    }
}
