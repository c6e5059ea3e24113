//! The members that a pool gets from a load assignment, and when it fails over to another priority and back (X2).
//!
//! The Directory decides whether the pool may be written, and how fast members may go (G1-G6).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use model::ids::{AddressName, Family};
use model::machine::Now;
use model::xds::assignment::{EndpointHealth, Limits, LoadAssignment};
use model::xds::diagnostic::Diagnostic;

/// Membership settings of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Treatment of draining endpoints.
    pub admin_states: AdminStates,
    /// Time for which a better priority must have been usable before the pool fails back to it.
    pub failback: Duration,
    /// Size limits of the pool.
    pub limits: Limits,
}

/// Whether admin states are written in a pool, which decides the treatment of draining endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdminStates {
    /// Admin states are written: draining endpoints stay in the pool, Down, so that open connections can end.
    On,
    /// Admin states are off: draining endpoints are removed, and their Downs are lifted when they return (N4).
    Off,
    /// The pool is excluded (`adminState.excludePools`): draining endpoints are removed, and their Downs stay (N2).
    Excluded,
}

impl Params {
    /// Default of `failback`.
    pub const FAILBACK: Duration = Duration::from_secs(30);
}

impl Default for Params {
    fn default() -> Params {
        Params { admin_states: AdminStates::On, failback: Params::FAILBACK, limits: Limits::AZURE }
    }
}

/// A set of endpoints that can form the members: those of one priority with the same health. Ordered by preference:
/// everything degraded comes after everything healthy, of any priority, as in Envoy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndpointSet {
    /// Whether the endpoints are degraded; otherwise they are healthy.
    pub degraded: bool,
    /// The priority of the endpoints.
    pub priority: usize,
}

impl EndpointSet {
    fn health(self) -> EndpointHealth {
        if self.degraded { EndpointHealth::Degraded } else { EndpointHealth::Healthy }
    }

    fn addresses(self, assignment: &LoadAssignment, family: Family) -> impl Iterator<Item = IpAddr> + '_ {
        assignment.with(family, self.priority, self.health())
    }

    /// Returns all sets of endpoints that an assignment offers to a pool of this family.
    fn usable(assignment: &LoadAssignment, family: Family) -> BTreeSet<EndpointSet> {
        let priorities = 0..assignment.priorities.len();
        let all =
            priorities.flat_map(|priority| [false, true].map(|degraded| EndpointSet { degraded, priority }));
        all.filter(|choice| choice.addresses(assignment, family).next().is_some()).collect()
    }
}

/// The members that a pool gets from an assignment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PoolMembership {
    /// Addresses that must be in the pool.
    pub members: BTreeSet<IpAddr>,
    /// Draining addresses: those in the pool stay, Down, and none is added.
    pub draining: BTreeSet<IpAddr>,
    /// All addresses that the source calls draining, in the pool or not, where admin states matter.
    pub drains: BTreeSet<IpAddr>,
    /// Diagnostics for operators.
    pub diagnostics: BTreeSet<Diagnostic>,
}

impl PoolMembership {
    /// Limits the draining addresses to the room that a pool of `most` members has beside the others. Addresses that
    /// are not in the pool are dropped first; `is_there` returns whether an address is in the pool.
    pub fn make_room(&mut self, most: usize, is_there: impl Fn(&IpAddr) -> bool) {
        let room = most.saturating_sub(self.members.len());
        if self.draining.len() <= room {
            return;
        }
        let (there, absent): (Vec<IpAddr>, Vec<IpAddr>) = self.draining.iter().partition(|ip| is_there(ip));
        if there.len() > room {
            self.diagnostics.insert(Diagnostic::DrainingCut);
        }
        self.draining = there.into_iter().chain(absent).take(room).collect();
    }
}

/// Returns the name of an address entry in a pool: the address, with `-` for each `.` and `:` (X2). Azure requires a
/// letter or a digit at both ends, so `::` there is written with a 0.
#[must_use]
pub fn address_name(ip: IpAddr) -> AddressName {
    let plain = ip.to_string().replace(['.', ':'], "-");
    let before = if plain.starts_with('-') { "0" } else { "" };
    let after = if plain.ends_with('-') { "0" } else { "" };
    AddressName::new(format!("{before}{plain}{after}"))
}

/// The endpoints that one pool uses, from one assignment to the next.
///
/// Fails over immediately, because unusable endpoints serve no traffic. Fails back only after the better priority has
/// been usable for a while, so that a flapping priority does not move the pool each time. Starts with the best usable
/// endpoints, because no state outlives the process.
#[derive(Clone, Debug)]
pub struct Failover {
    family: Family,
    params: Params,
    used: Option<EndpointSet>,
    /// Better choices than the used one, of the same health, with the time since when each has been usable.
    better: BTreeMap<EndpointSet, Now>,
}

impl Failover {
    /// Creates the failover of a pool without history.
    #[must_use]
    pub fn new(family: Family, params: Params) -> Failover {
        Failover { family, params, used: None, better: BTreeMap::new() }
    }

    /// Returns the used choice; `None`: nothing is usable.
    #[cfg(test)]
    fn used(&self) -> Option<EndpointSet> {
        self.used
    }

    /// Returns the members for an assignment: for a new one, or for the same one at the deadline. Extra calls are
    /// harmless.
    pub fn members(&mut self, now: Now, assignment: &LoadAssignment) -> PoolMembership {
        self.update_used(now, &EndpointSet::usable(assignment, self.family));
        debug_assert!(self.is_sound(), "{self:?}");
        let used = self.used.into_iter();
        let members: BTreeSet<IpAddr> =
            used.flat_map(|used| used.addresses(assignment, self.family)).collect();
        let mut drains = self.draining(assignment);
        drains.retain(|ip| !members.contains(ip));
        let (draining, drains) = match self.params.admin_states {
            AdminStates::On => (drains.clone(), drains),
            AdminStates::Off => (BTreeSet::new(), drains),
            AdminStates::Excluded => (BTreeSet::new(), BTreeSet::new()),
        };
        PoolMembership { members, draining, drains, diagnostics: self.diagnostics(assignment) }
    }

    /// Returns when time alone changes the used choice; `None`: never.
    #[must_use]
    pub fn deadline(&self) -> Option<Now> {
        self.better.values().map(|since| since.plus(self.params.failback)).min()
    }

    fn update_used(&mut self, now: Now, usable: &BTreeSet<EndpointSet>) {
        let best = usable.first().copied();
        // Degraded endpoints are used only while none is healthy: the pool never waits for healthy ones.
        let alike = |used: &EndpointSet| best.is_some_and(|best| best.degraded == used.degraded);
        let Some(used) = self.used.filter(|used| usable.contains(used) && alike(used)) else {
            self.used = best;
            self.better.clear();
            return;
        };
        self.better.retain(|choice, _| usable.contains(choice));
        for choice in usable.range(..used) {
            self.better.entry(*choice).or_insert(now);
        }
        let failback = self.params.failback;
        let lasting = self.better.iter().find(|(_, since)| since.plus(failback) <= now);
        if let Some(choice) = lasting.map(|(choice, _)| *choice) {
            self.used = Some(choice);
            self.better.retain(|better, _| *better < choice);
        }
    }

    /// Returns the draining endpoints of all priorities, including one that the pool leaves or has left.
    fn draining(&self, assignment: &LoadAssignment) -> BTreeSet<IpAddr> {
        let all = assignment.priorities.iter();
        all.flat_map(|priority| priority.with(self.family, EndpointHealth::Draining)).collect()
    }

    fn diagnostics(&self, assignment: &LoadAssignment) -> BTreeSet<Diagnostic> {
        let number = self.used.map(|used| used.priority);
        let used = number.and_then(|number| assignment.priorities.get(number));
        let nothing = self.used.is_none() && assignment.has_endpoints;
        let when = |applies: bool, diagnostic: Diagnostic| applies.then_some(diagnostic);
        [
            when(nothing, Diagnostic::NothingUsable),
            number.filter(|number| *number > 0).map(Diagnostic::PriorityUsed),
            self.better.keys().next().map(|better| Diagnostic::FailbackWaits(better.priority)),
            when(self.used.is_some_and(|used| used.degraded), Diagnostic::DegradedUsed),
            when(used.is_some_and(|used| used.weighted), Diagnostic::WeightsIgnored),
            when(assignment.skips, Diagnostic::LocalitiesSkipped),
            when(assignment.alternatives, Diagnostic::AlternativesIgnored),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Checks the invariant: the waiting choices are better than the used one, and of the same health.
    fn is_sound(&self) -> bool {
        let better = |used: EndpointSet| self.better.keys().all(|b| *b < used && b.degraded == used.degraded);
        self.used.map_or(self.better.is_empty(), better)
    }
}
