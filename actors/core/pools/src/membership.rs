//! Which members a pool gets of a load assignment, and when it goes over to another priority and back (X2).
//!
//! Whether the pool may be written, and how fast what is left out may go, is judged elsewhere (G1-G6).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use model::ids::{AddressName, Family};
use model::machine::Now;
use model::xds::assignment::{Limits, LoadAssignment, Standing};
use model::xds::remark::Diagnostic;

/// What membership goes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// What becomes of draining endpoints.
    pub admin_states: AdminStates,
    /// For how long a better priority must have been usable before the pool goes back to it.
    pub failback: Duration,
    /// How large the pool may be.
    pub limits: Limits,
}

/// Whether admin states are written in a pool, and so what becomes of draining endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdminStates {
    /// They are: draining endpoints stay in the pool, Down, so that what they have begun can end.
    On,
    /// They are switched off: draining endpoints are out, and what is Down of them is taken back when they return (N4).
    Off,
    /// The pool is left out (`adminState.excludePools`): draining endpoints are out, and what is Down is left alone (N2).
    Excluded,
}

impl Params {
    /// How long a better priority is waited for where nothing else is configured.
    pub const FAILBACK: Duration = Duration::from_secs(30);
}

impl Default for Params {
    fn default() -> Params {
        Params { admin_states: AdminStates::On, failback: Params::FAILBACK, limits: Limits::AZURE }
    }
}

/// The endpoints that make the members: those of one priority that stand alike. The order is that of preference: what
/// is degraded comes after everything healthy, of whatever priority, as in Envoy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Choice {
    /// Whether they are degraded; else they are healthy.
    pub degraded: bool,
    /// Their priority.
    pub priority: usize,
}

impl Choice {
    fn standing(self) -> Standing {
        if self.degraded { Standing::Degraded } else { Standing::Healthy }
    }

    fn addresses(self, assignment: &LoadAssignment, family: Family) -> impl Iterator<Item = IpAddr> + '_ {
        assignment.with(family, self.priority, self.standing())
    }

    /// All that an assignment leaves to a pool of this family.
    fn usable(assignment: &LoadAssignment, family: Family) -> BTreeSet<Choice> {
        let priorities = 0..assignment.priorities.len();
        let all = priorities.flat_map(|priority| [false, true].map(|degraded| Choice { degraded, priority }));
        all.filter(|choice| choice.addresses(assignment, family).next().is_some()).collect()
    }
}

/// What a pool gets of an assignment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Membership {
    /// The addresses that must be in the pool.
    pub members: BTreeSet<IpAddr>,
    /// The addresses that take nothing new: those of them that are in the pool stay there, Down, and none is added.
    pub draining: BTreeSet<IpAddr>,
    /// All that the source calls draining, be it in the pool or out, where that has to do with admin states.
    pub drains: BTreeSet<IpAddr>,
    /// What operators are told of it.
    pub remarks: BTreeSet<Diagnostic>,
}

impl Membership {
    /// Keeps of the draining addresses as many as a pool of `most` members has room for beside the others. Those that are
    /// not in the pool go first, which are not missed; `is_there` tells which are.
    pub fn make_room(&mut self, most: usize, is_there: impl Fn(&IpAddr) -> bool) {
        let room = most.saturating_sub(self.members.len());
        if self.draining.len() <= room {
            return;
        }
        let (there, absent): (Vec<IpAddr>, Vec<IpAddr>) = self.draining.iter().partition(|ip| is_there(ip));
        if there.len() > room {
            self.remarks.insert(Diagnostic::DrainingCut);
        }
        self.draining = there.into_iter().chain(absent).take(room).collect();
    }
}

/// The name of an address entry in a pool: the address, with `-` for each `.` and `:` (X2). Azure wants a letter or
/// a digit at both ends, so that `::` there is written with a 0.
#[must_use]
pub fn address_name(ip: IpAddr) -> AddressName {
    let plain = ip.to_string().replace(['.', ':'], "-");
    let before = if plain.starts_with('-') { "0" } else { "" };
    let after = if plain.ends_with('-') { "0" } else { "" };
    AddressName::new(format!("{before}{plain}{after}"))
}

/// What one pool uses of its assignment, from one assignment to the next.
///
/// It fails over at once, because what cannot be used serves no traffic, and back only after the better priority has
/// been usable for a while, so that a flapping one does not drag the pool along. It begins with the best that can be
/// used: nothing of this outlives the process.
#[derive(Clone, Debug)]
pub struct Failover {
    family: Family,
    params: Params,
    used: Option<Choice>,
    /// Better ones than the one that is used, of the same standing, and since when each has been usable.
    better: BTreeMap<Choice, Now>,
}

impl Failover {
    /// That of a pool that has used nothing yet.
    #[must_use]
    pub fn new(family: Family, params: Params) -> Failover {
        Failover { family, params, used: None, better: BTreeMap::new() }
    }

    /// What is used; `None`: nothing can be.
    #[cfg(test)]
    fn used(&self) -> Option<Choice> {
        self.used
    }

    /// What the pool gets of an assignment: of a new one, or of the same one again at the deadline. Asking more often
    /// is harmless.
    pub fn members(&mut self, now: Now, assignment: &LoadAssignment) -> Membership {
        self.choose(now, &Choice::usable(assignment, self.family));
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
        Membership { members, draining, drains, remarks: self.remarks(assignment) }
    }

    /// When time alone changes what is used; `None`: it does not.
    #[must_use]
    pub fn deadline(&self) -> Option<Now> {
        self.better.values().map(|since| since.plus(self.params.failback)).min()
    }

    fn choose(&mut self, now: Now, usable: &BTreeSet<Choice>) {
        let best = usable.first().copied();
        // What is degraded is used only while nothing is healthy: nothing healthy is waited for.
        let alike = |used: &Choice| best.is_some_and(|best| best.degraded == used.degraded);
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

    /// The draining endpoints of all priorities: also of one that is left for another, or was.
    fn draining(&self, assignment: &LoadAssignment) -> BTreeSet<IpAddr> {
        let all = assignment.priorities.iter();
        all.flat_map(|priority| priority.with(self.family, Standing::Draining)).collect()
    }

    fn remarks(&self, assignment: &LoadAssignment) -> BTreeSet<Diagnostic> {
        let number = self.used.map(|used| used.priority);
        let used = number.and_then(|number| assignment.priorities.get(number));
        let nothing = self.used.is_none() && assignment.has_endpoints;
        let when = |applies: bool, remark: Diagnostic| applies.then_some(remark);
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

    /// The invariant: what is waited for is better than what is used, and of the same standing.
    fn is_sound(&self) -> bool {
        let better = |used: Choice| self.better.keys().all(|b| *b < used && b.degraded == used.degraded);
        self.used.map_or(self.better.is_empty(), better)
    }
}
