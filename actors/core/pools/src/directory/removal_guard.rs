//! The removal guard of one assigned pool: which members left it and when (D4), and whether its emptiness is held back
//! (D6, G2).
//!
//! The removal delay and the confirmation of emptiness run at the same time: both count from the moment at which the
//! Services' own parts release the address. While no EndpointSlices arrive, the confirmation stands still.
//!
//! How emptiness is confirmed depends on how it became known (G1). An empty slice seen on a watch needs only
//! `guards.emptyConfirm`, which may be zero. A list or vanished slices could come from a broken source, and stay
//! doubtful until a second read. [`super::unconfirmed_removals`] keeps the doubts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::guard_inputs::{GuardInputs, Owners, addresses, part};
use super::losses::{self, CountedLosses};
use super::unconfirmed_removals::UnconfirmedRemovals;
use model::assignment::{Held, HeldReason, Waits};
use model::guard::GuardMode;
use model::ids::{Family, NodeName, ServiceUid};
use model::level::SurplusPolicy;
use model::machine::{Now, earliest};
use model::object::ExclusionRule;
use model::report::ExcludedNodes;
use model::services::{ExcludedNode, ServiceFact};

/// Returns whether the Service's endpoints are unknown only because no EndpointSlices arrive at present.
fn is_not_received(fact: &ServiceFact, family: Family) -> bool {
    part(fact, family).endpoints == 0 && fact.data_errors.is_empty()
}

/// The removal guard of one assigned pool.
#[derive(Default)]
pub(super) struct RemovalGuard {
    /// Whether the pool was evaluated before.
    evaluated: bool,
    /// The facts of the pool's Services at the last evaluation.
    owners: Owners,
    /// Addresses that no Service asks for: those that one once asked for, and those that were found in the pool.
    left: BTreeMap<IpAddr, FormerMember>,
    /// Addresses that were required, with the last time at which they were: they may have been written since the pool
    /// was last observed.
    required: BTreeMap<IpAddr, Now>,
    doubts: UnconfirmedRemovals,
    losses: CountedLosses,
    emptiness: EmptyPoolGuard,
}

/// An address that no source asks for any more.
struct FormerMember {
    /// When the last source released it; for an address that no source ever asked for, when it was first seen.
    at: Now,
    /// The Services that asked for it; empty when unknown.
    owners: BTreeSet<ServiceUid>,
    /// Whether the breaker counts its loss (G4).
    is_counted: bool,
}

/// Whether members are held back although no source asks for them.
#[derive(Default)]
enum EmptyPoolGuard {
    /// Members are asked for.
    #[default]
    Open,
    /// Nothing is asked for since `since`; the members stay until that is confirmed (G2).
    Empty { since: Now, clock: ConfirmationTimer, members: BTreeSet<IpAddr> },
    /// Emptiness is confirmed.
    Confirmed,
    /// There are endpoints, but no usable node behind any of them, or not everything about them is known (D6).
    Unusable { since: Now, members: BTreeSet<IpAddr> },
    /// No member that is asked for is in the pool or will be added, so the present members are the last ones (G2).
    Last { since: Now, members: BTreeSet<IpAddr> },
    /// The operator released the removal that was held back for this reason, and the reason still holds.
    Released(HeldReason),
}

/// The time for which emptiness has to last.
#[derive(Clone, Copy)]
enum ConfirmationTimer {
    /// The time ends at this moment.
    Until(Now),
    /// The time stands still. This much of it remains when EndpointSlices arrive again.
    Stopped(Duration),
}

impl ConfirmationTimer {
    fn resume(self, now: Now) -> Now {
        match self {
            ConfirmationTimer::Until(until) => until,
            ConfirmationTimer::Stopped(left) => now.plus(left),
        }
    }

    fn stop(self, now: Now) -> ConfirmationTimer {
        match self {
            ConfirmationTimer::Until(until) => ConfirmationTimer::Stopped(until.since(now)),
            ConfirmationTimer::Stopped(_) => self,
        }
    }
}

/// The kinds of present demand on a pool that the guard distinguishes.
#[derive(Clone, Copy)]
enum Demand {
    /// Members that are in the pool or will be added.
    Members,
    /// Members, but none that is in the pool or will be added.
    Absent,
    /// Nothing.
    Nothing,
    /// Nothing, as far as known. No EndpointSlices arrive at present (G2).
    NotReceived,
    /// A demand that is unusable or not fully known (D6).
    Unusable,
}

impl RemovalGuard {
    /// Evaluates the pool. `had` returns the members that the pool was allowed before, or else was observed with. It
    /// is called only when these are to be held back.
    pub(super) fn evaluate(&mut self, inputs: &GuardInputs<'_>, had: impl Fn() -> BTreeSet<IpAddr>) {
        let asked: BTreeSet<IpAddr> =
            inputs.owners.values().flat_map(|fact| addresses(fact, inputs.family)).copied().collect();
        self.losses.update_pause(inputs);
        self.record_leaving(inputs, &asked);
        let counted = self.left.iter().filter(|(_, left)| left.is_counted).map(|(ip, _)| ip);
        self.losses.update(inputs, &asked, counted);
        self.required.retain(|_, at| *at >= inputs.observed_at);
        self.update_doubts(inputs, &asked);
        let parts = || inputs.owners.values().map(|fact| part(fact, inputs.family));
        let mut adds = false;
        for ip in parts().flat_map(|part| part.required.keys()) {
            adds = true;
            self.required.insert(*ip, inputs.now);
        }
        let is_in = |ip: &IpAddr| inputs.observed.contains(ip) || self.required.contains_key(ip);
        let unusable = |fact: &&Arc<ServiceFact>| part(fact, inputs.family).unusable;
        let mut unknown = inputs.owners.values().filter(unusable).peekable();
        let asked = if unknown.peek().is_some() {
            if asked.is_empty() && unknown.all(|fact| is_not_received(fact, inputs.family)) {
                Demand::NotReceived
            } else {
                Demand::Unusable
            }
        } else if asked.is_empty() {
            Demand::Nothing
        } else if adds || inputs.observed.is_empty() || asked.iter().any(is_in) {
            Demand::Members
        } else {
            Demand::Absent
        };
        self.update_emptiness(inputs, asked, had);
        self.owners = inputs.owners.clone();
        self.evaluated = true;
    }

    /// Returns whether any removal of the pool's members is in doubt.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubts.of().next().is_some()
    }

    fn record_leaving(&mut self, inputs: &GuardInputs<'_>, asked: &BTreeSet<IpAddr>) {
        for (uid, fact) in &self.owners {
            for ip in addresses(fact, inputs.family).filter(|ip| !asked.contains(ip)) {
                let left = self.left.entry(*ip).or_insert_with(|| {
                    let is_counted = losses::counts(inputs, &self.owners, ip);
                    FormerMember { at: inputs.now, owners: BTreeSet::new(), is_counted }
                });
                left.owners.insert(uid.clone());
            }
        }
        // Members that other clients added were never part of the pool's level (G4).
        let is_counted = !self.evaluated || self.losses.had_found();
        for ip in inputs.observed.iter().filter(|ip| !asked.contains(ip)) {
            let found = || FormerMember { at: inputs.now, owners: BTreeSet::new(), is_counted };
            self.left.entry(*ip).or_insert_with(found);
        }
        // An address is dropped once it was due to leave and a later read did not find it. If another client adds it
        // again later, it counts as first seen.
        self.left.retain(|ip, left| {
            let gone = inputs.observed_at > left.at.plus(inputs.delay) && !inputs.observed.contains(ip);
            !asked.contains(ip) && !gone
        });
    }

    /// Records the doubtful removals, and checks whether there are too many (G1, G3). Must run before the currently
    /// required members count as present: additions do not make removals smaller.
    fn update_doubts(&mut self, inputs: &GuardInputs<'_>, asked: &BTreeSet<IpAddr>) {
        if !inputs.mode.judges() {
            return;
        }
        let found = inputs.observed.iter().filter(|ip| !self.evaluated && !asked.contains(ip)).copied();
        // If nothing is asked for, every released address matters, even an absent one: the fact that released it
        // helped to empty the pool.
        let concerns = |ip: &IpAddr| asked.is_empty() || asked.contains(ip) || self.left.contains_key(ip);
        self.doubts.update(inputs, &self.owners, found, concerns);
        let present = self.present(inputs.observed);
        let goes = |ip: &&IpAddr| {
            let due = self.left.get(ip).is_some_and(|left| left.at.plus(inputs.delay) <= inputs.now);
            due && self.doubts.since(ip).is_none()
        };
        let all = present.iter().filter(|ip| !goes(ip)).count();
        let leaving = self.left.keys().filter(|ip| present.contains(ip)).copied();
        self.doubts.evaluate_fraction(inputs, leaving, all);
    }

    /// Returns the nodes of endpoints that are excluded from all pools, if there are any (D5). If no endpoint is
    /// usable, these are all such nodes, otherwise those whose addresses are held back.
    pub(super) fn excluded(&self, family: Family, held: &Held) -> Option<ExcludedNodes> {
        let is_meant = |node: &ExcludedNode| {
            let is_held = held.reason == HeldReason::NoUsableNode || !node.ips.is_disjoint(&held.members);
            node.why.is_everywhere() && is_held
        };
        let parts = self.owners.values().map(|fact| part(fact, family));
        let nodes = parts.flat_map(|part| &part.excluded).filter(|(_, node)| is_meant(node));
        let nodes: BTreeMap<&NodeName, ExclusionRule> = nodes.map(|(name, node)| (name, node.why)).collect();
        let (first, why) = nodes.first_key_value()?;
        Some(ExcludedNodes { first: (*first).clone(), why: *why, more: nodes.len() - 1 })
    }

    /// Returns whether a Service asked for an address before it left.
    pub(super) fn was_asked(&self, ip: &IpAddr) -> bool {
        self.left.get(ip).is_some_and(|left| !left.owners.is_empty())
    }

    /// Returns the members that may be in the pool: the observed ones, and those that may have been written since.
    pub(super) fn present(&self, observed: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        observed.iter().chain(self.required.keys()).copied().collect()
    }

    fn update_emptiness(
        &mut self,
        inputs: &GuardInputs<'_>,
        asked: Demand,
        had: impl Fn() -> BTreeSet<IpAddr>,
    ) {
        let now = inputs.now;
        let again = |members: BTreeSet<IpAddr>| if members.is_empty() { had() } else { members };
        let is_dropped = |fact: &ServiceFact| part(fact, inputs.family).is_dropped;
        let is_certain = !inputs.owners.is_empty() && inputs.owners.values().all(|fact| is_dropped(fact));
        self.emptiness = match (asked, std::mem::take(&mut self.emptiness)) {
            // No wait is needed: the configuration says so (X5).
            (Demand::Nothing, _) if is_certain => EmptyPoolGuard::Confirmed,
            (Demand::Members, _) => EmptyPoolGuard::Open,
            (Demand::Absent, _) if !inputs.mode.judges() => EmptyPoolGuard::Open,
            // The release does not cover removals by a later list.
            (Demand::Unusable | Demand::NotReceived, EmptyPoolGuard::Released(HeldReason::NoUsableNode))
                if !self.is_doubted() =>
            {
                EmptyPoolGuard::Released(HeldReason::NoUsableNode)
            }
            (Demand::Absent, EmptyPoolGuard::Released(HeldReason::LastMember)) => {
                EmptyPoolGuard::Released(HeldReason::LastMember)
            }
            (Demand::NotReceived, EmptyPoolGuard::Confirmed) => EmptyPoolGuard::Confirmed,
            (Demand::NotReceived, EmptyPoolGuard::Empty { since, clock, members }) => {
                EmptyPoolGuard::Empty { since, clock: clock.stop(now), members: again(members) }
            }
            // Members observed meanwhile count: another client, which may know more, added or removed some.
            (Demand::Unusable | Demand::NotReceived, EmptyPoolGuard::Unusable { since, members }) => {
                let members = if inputs.observed_at > since && !inputs.observed.is_empty() {
                    // Members that were required since the observation may have been written.
                    self.present(inputs.observed)
                } else {
                    again(members).union(inputs.observed).copied().collect()
                };
                EmptyPoolGuard::Unusable { since, members }
            }
            (
                Demand::Unusable | Demand::NotReceived,
                EmptyPoolGuard::Open
                | EmptyPoolGuard::Empty { .. }
                | EmptyPoolGuard::Confirmed
                | EmptyPoolGuard::Last { .. }
                | EmptyPoolGuard::Released(_),
            ) => {
                // A second evaluation at the same moment has the same result.
                let members = had().union(inputs.observed).copied().collect();
                EmptyPoolGuard::Unusable { since: now, members }
            }
            (Demand::Absent, EmptyPoolGuard::Last { since, .. }) => {
                EmptyPoolGuard::Last { since, members: inputs.observed.clone() }
            }
            (
                Demand::Absent,
                EmptyPoolGuard::Open
                | EmptyPoolGuard::Empty { .. }
                | EmptyPoolGuard::Confirmed
                | EmptyPoolGuard::Unusable { .. }
                | EmptyPoolGuard::Released(_),
            ) => EmptyPoolGuard::Last { since: now, members: inputs.observed.clone() },
            (Demand::Nothing, EmptyPoolGuard::Confirmed) => EmptyPoolGuard::Confirmed,
            (Demand::Nothing, EmptyPoolGuard::Empty { since, clock, members }) => {
                self.confirm_empty(now, since, clock.resume(now), || again(members))
            }
            (
                Demand::Nothing,
                EmptyPoolGuard::Open
                | EmptyPoolGuard::Unusable { .. }
                | EmptyPoolGuard::Last { .. }
                | EmptyPoolGuard::Released(_),
            ) => self.confirm_empty(now, now, now.plus(inputs.confirm), had),
        };
    }

    /// Confirms emptiness once it has lasted long enough and no removal is in doubt (G2).
    fn confirm_empty(
        &self,
        now: Now,
        since: Now,
        until: Now,
        members: impl FnOnce() -> BTreeSet<IpAddr>,
    ) -> EmptyPoolGuard {
        if until <= now && self.doubts.resolved_from(self.doubts.of()).is_none() {
            return EmptyPoolGuard::Confirmed;
        }
        EmptyPoolGuard::Empty { since, clock: ConfirmationTimer::Until(until), members: members() }
    }

    /// Returns the removal that is held back now, if any. It may concern no member.
    pub(super) fn held(&self, now: Now, delay: Duration) -> Option<Held> {
        let (reason, since, waits, members) = match &self.emptiness {
            EmptyPoolGuard::Open | EmptyPoolGuard::Confirmed | EmptyPoolGuard::Released(_) => {
                return self.held_fraction(now, delay);
            }
            EmptyPoolGuard::Empty { since, clock, members } => {
                let waits = match (clock, self.doubts.resolved_from(self.doubts.of())) {
                    (ConfirmationTimer::Stopped(_), _) => Waits::Facts,
                    (ConfirmationTimer::Until(until), None) => Waits::Time(*until),
                    (ConfirmationTimer::Until(until), Some(from)) => self.doubts.waits(from.max(*until)),
                };
                (HeldReason::EmptyConfirm, *since, waits, members)
            }
            EmptyPoolGuard::Unusable { since, members } => {
                (HeldReason::NoUsableNode, *since, Waits::Facts, members)
            }
            EmptyPoolGuard::Last { since, members } => {
                (HeldReason::LastMember, *since, Waits::Facts, members)
            }
        };
        Some(Held { reason, since, waits, members: members.clone() })
    }

    /// Returns the removals held back because there are too many, once one of them is due (G3).
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

    /// Returns the earliest time from which a second read would end the holding back (G1). `None`: no second read
    /// would.
    pub(super) fn read_from(&self, now: Now, delay: Duration) -> Option<Now> {
        match &self.emptiness {
            EmptyPoolGuard::Empty { members, .. } if !members.is_empty() => {
                self.doubts.read_from(self.doubts.of())
            }
            EmptyPoolGuard::Open
            | EmptyPoolGuard::Empty { .. }
            | EmptyPoolGuard::Confirmed
            | EmptyPoolGuard::Released(_)
            | EmptyPoolGuard::Unusable { .. }
            | EmptyPoolGuard::Last { .. } => {
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

    /// Returns whether the last members stay because emptiness is not confirmed (G2). With guards off, they stay only
    /// while a removal is held back; with guards that only observe, only while facts are missing (D6).
    pub(super) fn keeps(&self, mode: GuardMode) -> SurplusPolicy {
        let keeps = match (&self.emptiness, mode) {
            (EmptyPoolGuard::Confirmed | EmptyPoolGuard::Released(_), _)
            | (EmptyPoolGuard::Open, GuardMode::Off) => false,
            (
                EmptyPoolGuard::Open | EmptyPoolGuard::Empty { .. } | EmptyPoolGuard::Last { .. },
                GuardMode::Observe,
            ) => false,
            (EmptyPoolGuard::Open, GuardMode::Enforce) | (EmptyPoolGuard::Unusable { .. }, _) => true,
            (
                EmptyPoolGuard::Empty { .. } | EmptyPoolGuard::Last { .. },
                GuardMode::Enforce | GuardMode::Off,
            ) => true,
        };
        if keeps { SurplusPolicy::KeepLast } else { SurplusPolicy::RemoveAll }
    }

    /// Returns the addresses that stay although no source asks for them, each with the Services that asked for it. An
    /// address without such Services counts for all. If there is no `room` for all, the addresses that only wait for
    /// the removal delay go first, in the order in which they left.
    pub(super) fn staying(
        &self,
        now: Now,
        delay: Duration,
        mode: GuardMode,
        room: usize,
    ) -> BTreeMap<IpAddr, BTreeSet<ServiceUid>> {
        let held = match &self.emptiness {
            EmptyPoolGuard::Open | EmptyPoolGuard::Confirmed | EmptyPoolGuard::Released(_) => None,
            EmptyPoolGuard::Unusable { members, .. } => Some(members),
            EmptyPoolGuard::Empty { members, .. } | EmptyPoolGuard::Last { members, .. } => {
                Some(members).filter(|_| !mode.only_observes())
            }
        };
        let doubted = self.doubts.fraction().filter(|_| !mode.only_observes());
        let held = held.into_iter().flatten();
        let mut stay: BTreeSet<&IpAddr> =
            held.chain(doubted.into_iter().flat_map(|fraction| &fraction.members)).collect();
        let is_delayed =
            |(ip, left): &(&IpAddr, &FormerMember)| left.at.plus(delay) > now && !stay.contains(*ip);
        let mut delayed: Vec<(&IpAddr, &FormerMember)> = self.left.iter().filter(is_delayed).collect();
        if delayed.len() > room.saturating_sub(stay.len()) {
            delayed.sort_by_key(|(_, left)| Reverse(left.at));
            delayed.truncate(room.saturating_sub(stay.len()));
        }
        stay.extend(delayed.into_iter().map(|(ip, _)| ip));
        stay.into_iter()
            .map(|ip| (*ip, self.left.get(ip).map(|left| left.owners.clone()).unwrap_or_default()))
            .collect()
    }

    /// Returns the next moment at which time alone changes the members that stay.
    pub(super) fn deadline(&self, now: Now, delay: Duration) -> Option<Now> {
        let left = self.left.values().map(|left| left.at.plus(delay)).filter(|at| *at > now).min();
        let emptiness = match &self.emptiness {
            EmptyPoolGuard::Open
            | EmptyPoolGuard::Confirmed
            | EmptyPoolGuard::Unusable { .. }
            | EmptyPoolGuard::Last { .. }
            | EmptyPoolGuard::Released(_)
            | EmptyPoolGuard::Empty { clock: ConfirmationTimer::Stopped(_), .. } => None,
            EmptyPoolGuard::Empty { clock: ConfirmationTimer::Until(until), .. } => {
                Some(*until).filter(|at| *at > now)
            }
        };
        let held = self.held(now, delay).and_then(|held| match held.waits {
            Waits::Time(at) => Some(at).filter(|at| *at > now),
            Waits::SecondRead(_) | Waits::Facts => None,
        });
        earliest(earliest(left, emptiness), held)
    }

    /// Returns the losses that the breaker counts (G4).
    pub(super) fn losses(&self) -> &CountedLosses {
        &self.losses
    }

    /// Releases the losses that the breaker counts, on the operator's request. Losses of addresses that have left
    /// count no more.
    pub(super) fn release_losses(&mut self) {
        self.left.values_mut().for_each(|left| left.is_counted = false);
        self.losses.clear();
    }

    /// Releases everything that is held back now, on the operator's request. Later removals are held back again.
    pub(super) fn release(&mut self) {
        self.doubts.clear();
        self.emptiness = match std::mem::take(&mut self.emptiness) {
            EmptyPoolGuard::Open => EmptyPoolGuard::Open,
            EmptyPoolGuard::Empty { .. } | EmptyPoolGuard::Confirmed => EmptyPoolGuard::Confirmed,
            EmptyPoolGuard::Unusable { .. } => EmptyPoolGuard::Released(HeldReason::NoUsableNode),
            EmptyPoolGuard::Last { .. } => EmptyPoolGuard::Released(HeldReason::LastMember),
            EmptyPoolGuard::Released(reason) => EmptyPoolGuard::Released(reason),
        };
    }
}
