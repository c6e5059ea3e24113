//! What a pool is known to hold, and how urgent the difference to its level is (Q3, D3).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::arm::{AdminState, PoolFacts, Provisioning};
use model::attempt::Class;
use model::level::Level;
use model::machine::Now;

/// What a pool held when it was last seen.
#[derive(Clone, Debug)]
pub(super) struct ObservedPool {
    pub members: BTreeSet<IpAddr>,
    /// Those of them whose admin state is Down.
    pub down: BTreeSet<IpAddr>,
    /// The admin states of those that are neither Down nor None. An unknown one is left as it is (W3).
    pub other: BTreeMap<IpAddr, AdminState>,
    /// When the look began, or the write ended.
    pub seen: Now,
    /// When the GET began that saw it; `None` when an attempt told of it.
    looked: Option<Now>,
    /// Whether nothing can have changed it since that we know of: no try of ours with an unclear end.
    pub certain: bool,
    /// Whether no operation was running on it: one may yet end in what was there before.
    pub at_rest: bool,
    /// Whether Azure reports that its last operation on the pool or its load balancer failed.
    pub failed: bool,
}

impl ObservedPool {
    /// What a GET saw.
    pub fn observed(facts: &PoolFacts, began: Now) -> ObservedPool {
        let of = |state: AdminState| {
            let entries = facts.entries.iter().filter(move |entry| entry.admin_state == state);
            entries.filter_map(|entry| entry.ip).collect()
        };
        let states = [AdminState::Up, AdminState::Unknown];
        ObservedPool {
            members: facts.members(),
            down: of(AdminState::Down),
            other: states
                .into_iter()
                .flat_map(|state| of(state).into_iter().map(move |ip| (ip, state)))
                .collect(),
            seen: began,
            looked: Some(began),
            certain: true,
            failed: facts.provisioning == Provisioning::Failed,
            at_rest: match facts.provisioning {
                Provisioning::Updating => false,
                Provisioning::Succeeded | Provisioning::Failed | Provisioning::Unknown => true,
            },
        }
    }

    /// What an attempt to bring about this level found or left there; where nothing may be written that is no level.
    pub fn attempted(
        members: BTreeSet<IpAddr>,
        level: &Level,
        before: Option<&ObservedPool>,
        now: Now,
    ) -> ObservedPool {
        let none = BTreeSet::new();
        let down = level.states.made_right(&members, before.map_or(&none, |before| &before.down));
        let mut other = before.map_or_else(BTreeMap::new, |before| before.other.clone());
        other.retain(|ip, _| members.contains(ip) && !down.contains(ip));
        // The end of an attempt does not tell what Azure reports from then on.
        let failed = before.is_some_and(|before| before.failed);
        ObservedPool { members, down, other, seen: now, looked: None, certain: true, at_rest: true, failed }
    }

    /// Whether a GET that began at this moment or later saw it.
    pub fn was_looked_at_since(&self, moment: Now) -> bool {
        self.looked.is_some_and(|looked| looked >= moment)
    }

    /// Whether it is certain that the pool is right.
    pub fn is_right(&self, level: &Level) -> bool {
        self.certain && self.matches(level)
    }

    /// Whether the pool is right, as far as it is known: that need not be certain.
    pub fn matches(&self, level: &Level) -> bool {
        let is_known = |ip: &&IpAddr| self.other.get(*ip) != Some(&AdminState::Unknown);
        let known = || -> BTreeSet<IpAddr> { self.members.iter().filter(is_known).copied().collect() };
        let states = || level.states.are_right(&known(), &self.down);
        level.is_right(&self.members) && states()
    }

    /// How urgent a write is. A write that adds nothing and brings nothing back cannot revive a pool.
    pub fn class(&self, level: &Level) -> Class {
        let brings_back = level.states.lifted.iter().any(|ip| self.down.contains(ip));
        if level.missing(&self.members).next().is_none() && !brings_back {
            return Class::Remove;
        }
        let serves = |ip: &IpAddr| {
            !self.down.contains(ip) && level.required.get(ip).is_some_and(|member| member.node_ready)
        };
        if self.members.iter().any(serves) { Class::Add } else { Class::Revive }
    }
}
