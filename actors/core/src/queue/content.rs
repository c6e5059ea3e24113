//! What a pool is known to hold, and how urgent the difference to its level is (Q3, D3).

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::arm::{AdminState, PoolFacts, Provisioning};
use crate::level::Level;
use crate::machine::Now;
use crate::queue::Class;

/// What a pool held when it was last seen.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub members: BTreeSet<IpAddr>,
    /// Those of them whose admin state is Down.
    pub down: BTreeSet<IpAddr>,
    /// Those whose admin state nobody here knows: it is left as it is (W3).
    unknown: BTreeSet<IpAddr>,
    /// When the look began, or the write ended.
    pub seen: Now,
    /// When the GET began that saw it; `None` when an attempt told of it.
    looked: Option<Now>,
    /// Whether nothing can have changed it since that we know of: no try of ours with an unclear end.
    pub certain: bool,
    /// Whether no operation was running on it: one may yet end in what was there before.
    pub at_rest: bool,
}

impl Content {
    /// What a GET saw.
    pub fn observed(facts: &PoolFacts, began: Now) -> Content {
        let of = |state: AdminState| {
            let entries = facts.entries.iter().filter(move |entry| entry.admin_state == state);
            entries.filter_map(|entry| entry.ip).collect()
        };
        Content {
            members: facts.members(),
            down: of(AdminState::Down),
            unknown: of(AdminState::Unknown),
            seen: began,
            looked: Some(began),
            certain: true,
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
        before: Option<&Content>,
        now: Now,
    ) -> Content {
        let none = BTreeSet::new();
        let down = level.states.made_right(&members, before.map_or(&none, |before| &before.down));
        let unknown =
            before.map_or(&none, |before| &before.unknown).intersection(&members).copied().collect();
        Content { members, down, unknown, seen: now, looked: None, certain: true, at_rest: true }
    }

    /// Whether a GET that began at this moment or later saw it.
    pub fn was_looked_at_since(&self, moment: Now) -> bool {
        self.looked.is_some_and(|looked| looked >= moment)
    }

    /// Whether it is certain that the pool is right.
    pub fn is_right(&self, level: &Level) -> bool {
        let states = || level.states.are_right(&(&self.members - &self.unknown), &self.down);
        self.certain && level.is_right(&self.members) && states()
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
