//! The known members of a pool, and the urgency of the difference to its level (Q3, D3).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::arm::{AdminState, PoolFacts, Provisioning};
use model::attempt::MembershipUrgency;
use model::level::Level;
use model::machine::Now;

/// The pool as last observed.
#[derive(Clone, Debug)]
pub(super) struct ObservedPool {
    pub members: BTreeSet<IpAddr>,
    /// The members whose admin state is Down.
    pub down: BTreeSet<IpAddr>,
    /// Other admin states than Down and None. An unknown one is left as it is (W3).
    pub other: BTreeMap<IpAddr, AdminState>,
    /// When the observation began, or the write ended.
    pub seen: Now,
    /// When the GET began that observed the pool; `None` when an attempt reported it.
    read_began: Option<Now>,
    /// Whether the state is certain: none of our tries since then ended without a clear result.
    pub certain: bool,
    /// Whether no operation was running on the pool: a running one may yet restore the earlier members.
    pub at_rest: bool,
    /// Whether Azure reports that its last operation on the pool or its load balancer failed.
    pub failed: bool,
}

impl ObservedPool {
    /// Creates the state from a GET.
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
            read_began: Some(began),
            certain: true,
            failed: facts.provisioning == Provisioning::Failed,
            at_rest: match facts.provisioning {
                Provisioning::Updating => false,
                Provisioning::Succeeded | Provisioning::Failed | Provisioning::Unknown => true,
            },
        }
    }

    /// Creates the state after an attempt to reach this level.
    pub fn attempted(
        members: BTreeSet<IpAddr>,
        level: &Level,
        before: Option<&ObservedPool>,
        now: Now,
    ) -> ObservedPool {
        let none = BTreeSet::new();
        let down = level.states.down_when_applied(&members, before.map_or(&none, |before| &before.down));
        let mut other = before.map_or_else(BTreeMap::new, |before| before.other.clone());
        other.retain(|ip, _| members.contains(ip) && !down.contains(ip));
        // The end of an attempt does not show what Azure reports from then on.
        let failed = before.is_some_and(|before| before.failed);
        ObservedPool {
            members,
            down,
            other,
            seen: now,
            read_began: None,
            certain: true,
            at_rest: true,
            failed,
        }
    }

    /// Returns whether a GET observed the pool that began at this moment or later.
    pub fn was_read_since(&self, moment: Now) -> bool {
        self.read_began.is_some_and(|read_began| read_began >= moment)
    }

    /// Returns whether the pool is certainly in sync.
    pub fn is_in_sync(&self, level: &Level) -> bool {
        self.certain && self.matches(level)
    }

    /// Returns whether the pool is in sync as far as known, which may be uncertain.
    pub fn matches(&self, level: &Level) -> bool {
        let is_known = |ip: &&IpAddr| self.other.get(*ip) != Some(&AdminState::Unknown);
        let known = || -> BTreeSet<IpAddr> { self.members.iter().filter(is_known).copied().collect() };
        let states = || level.states.are_in_sync(&known(), &self.down);
        level.is_in_sync(&self.members) && states()
    }

    /// Returns the urgency of a write. A write that adds nothing and brings nothing back cannot revive a pool.
    pub fn urgency(&self, level: &Level) -> MembershipUrgency {
        let brings_back = level.states.lifted.iter().any(|ip| self.down.contains(ip));
        if level.missing(&self.members).next().is_none() && !brings_back {
            return MembershipUrgency::Remove;
        }
        let serves = |ip: &IpAddr| {
            !self.down.contains(ip) && level.required.get(ip).is_some_and(|member| member.node_ready)
        };
        if self.members.iter().any(serves) { MembershipUrgency::Add } else { MembershipUrgency::Revive }
    }
}
