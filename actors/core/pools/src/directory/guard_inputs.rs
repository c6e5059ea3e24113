//! Inputs of the removal guard of one pool: its Services and what they ask of it, its members as observed, and the
//! settings of the guards.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use model::guard::{Fraction, GuardMode};
use model::ids::{Family, ServiceUid};
use model::machine::Now;
use model::object::ExclusionRule;
use model::services::{Part, ServiceFact};

/// The Services of a pool and their facts.
pub(super) type Owners = BTreeMap<ServiceUid, Arc<ServiceFact>>;

/// Returns what a Service asks of its pool of this family.
pub(super) fn part(fact: &ServiceFact, family: Family) -> &Part {
    &fact.parts[&family]
}

/// Returns the addresses that a Service asks for.
pub(super) fn addresses(fact: &ServiceFact, family: Family) -> impl Iterator<Item = &IpAddr> {
    let part = part(fact, family);
    part.required.keys().chain(&part.tolerated)
}

/// Returns whether a Service asks for an address.
pub(super) fn asks(fact: &ServiceFact, family: Family, ip: &IpAddr) -> bool {
    let part = part(fact, family);
    part.required.contains_key(ip) || part.tolerated.contains(ip)
}

/// Returns the addresses of nodes that host endpoints of a Service, but none of this family (D4).
pub(super) fn of_other_family(fact: &ServiceFact, family: Family) -> impl Iterator<Item = &IpAddr> {
    let excluded = part(fact, family).excluded.values();
    excluded.filter(|node| node.why == ExclusionRule::OtherFamily).flat_map(|node| &node.ips)
}

/// How a doubtful removal becomes certain (G1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Confirmation {
    /// By a second read; the time at which the newest one in force was requested.
    SecondRead(Option<Now>),
    /// By time alone, while the source reports every change; the flag says whether it does now.
    ByTime(bool),
}

impl Default for Confirmation {
    fn default() -> Confirmation {
        Confirmation::SecondRead(None)
    }
}

/// Inputs of one evaluation of a pool.
pub(super) struct GuardInputs<'a> {
    /// Time of the evaluation.
    pub(super) now: Now,
    /// Family of the pool's members.
    pub(super) family: Family,
    /// The Services of the pool.
    pub(super) owners: &'a Owners,
    /// Members as last observed.
    pub(super) observed: &'a BTreeSet<IpAddr>,
    /// Time at which the GET began that observed them.
    pub(super) observed_at: Now,
    /// Removal delay of this pool.
    pub(super) delay: Duration,
    /// Time for which emptiness seen on a watch must last.
    pub(super) confirm: Duration,
    /// Mode of the guards.
    pub(super) mode: GuardMode,
    /// The fraction of a pool that may leave in doubt (G3).
    pub(super) max_removal: Fraction,
    /// How a doubtful removal becomes certain.
    pub(super) confirmation: Confirmation,
    /// Number of members that may stay although no source asks for them, so that there is room for the required ones.
    pub(super) room: usize,
    /// Whether the operator paused the pool.
    pub(super) paused: bool,
    /// The end of the five minutes in which the breaker counts losses: now, or when removals were stopped (G4).
    pub(super) compared_at: Now,
}
