//! Inputs of a pool's new assignment: its owners and their proof, what its source asks besides members, and the state
//! of everything else that matters to it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::guard_inputs::{Confirmation, Owners, asks, of_other_family, part};
use super::mapping::BalancerPool;
use super::removal_guard::RemovalGuard;
use super::{Params, Term};
use model::assignment::PausedBy;
use model::error::NotManageable;
use model::ids::{Family, ServiceKey, ServiceUid};
use model::level::{Source, States};
use model::machine::Now;

/// A pool that is not written, and its would-be owners.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Unproven {
    /// The reason.
    pub(super) reason: NotManageable,
    /// The Services that would own it.
    pub(super) services: BTreeMap<ServiceUid, ServiceKey>,
    /// The state of its source, where it has one (X4).
    pub(super) note: Option<Arc<str>>,
    /// Whether it would be paused, so that its Services get no events (G6).
    pub(super) paused: bool,
}

/// The owners of a pool.
pub(super) enum Ownership {
    /// No candidate's rule sends to it, or it is a pool of the cluster.
    Nobody,
    /// Its Services, without proof of ownership.
    Refused(NotManageable, Owners),
    /// Its Services, with proof; or its source, with the source's inputs (X2).
    Proven(Family, Owners, Option<SourceInputs>),
}

/// The demands of a source on one pool, besides its members.
pub(super) struct SourceInputs {
    /// The source, with the text that accompanies every report of the pool (X4).
    pub(super) source: Source,
    /// The admin states that it sets.
    pub(super) states: States,
    /// Maximum number of members.
    pub(super) max_members: usize,
    /// Whether the pool is to be emptied, whatever the guards decide (X3).
    pub(super) is_dropped: bool,
    /// Whether the inputs are what the source says now.
    pub(super) stands: bool,
    /// When time alone changes the inputs.
    pub(super) deadline: Option<Now>,
}

/// Inputs of a pool's new assignment besides the pool's own state.
pub(super) struct PoolInputs<'a> {
    pub(super) now: Now,
    pub(super) term: Term,
    pub(super) params: &'a Params,
    pub(super) seen: &'a BalancerPool,
    pub(super) family: Family,
    pub(super) owners: Owners,
    /// The inputs of its source, where it is filled from one (X2).
    pub(super) listed: Option<SourceInputs>,
    /// When the newest second read in force was requested.
    pub(super) read_asked: Option<Now>,
    pub(super) paused: BTreeSet<PausedBy>,
    /// Whether the mode removes no member (G6).
    pub(super) add_only: bool,
    /// Since when the breaker has stopped all removals (G4).
    pub(super) stopped: Option<Now>,
}

impl PoolInputs<'_> {
    /// Returns the removal delay of this pool: zero where a rule has no probe (D4).
    pub(super) fn delay(&self) -> Duration {
        if self.seen.unprobed { Duration::ZERO } else { self.params.removal_delay }
    }

    /// Returns how a doubtful removal becomes certain (G1).
    pub(super) fn confirmation(&self) -> Confirmation {
        match &self.listed {
            Some(listed) => Confirmation::ByTime(listed.stands),
            None => Confirmation::SecondRead(self.read_asked),
        }
    }

    /// Returns how many members may stay although no source asks for them: the places that remain after the required
    /// members and the tolerated members in the pool (X2). `present` are the members that are, or may be, in the
    /// pool. For a Service the number of nodes is too small for a limit.
    pub(super) fn room(&self, present: &BTreeSet<IpAddr>) -> usize {
        let asked = || -> BTreeSet<&IpAddr> {
            let parts = || self.owners.values().map(|fact| part(fact, self.family));
            let stays = parts().flat_map(|part| part.tolerated.intersection(present));
            parts().flat_map(|part| part.required.keys()).chain(stays).collect()
        };
        self.listed.as_ref().map_or(usize::MAX, |listed| listed.max_members.saturating_sub(asked().len()))
    }

    /// Returns the addresses of nodes that only host endpoints of the other family (D4).
    pub(super) fn of_other_family(&self) -> impl Iterator<Item = &IpAddr> {
        let is_asked = |ip: &&IpAddr| self.owners.values().any(|fact| asks(fact, self.family, ip));
        let all = self.owners.values().flat_map(|fact| of_other_family(fact, self.family));
        all.filter(move |ip| !is_asked(ip))
    }

    /// Returns those of `of_other_family` that no Service has ever asked for.
    pub(super) fn strays(&self, guard: &RemovalGuard) -> BTreeSet<IpAddr> {
        self.of_other_family().filter(|ip| !guard.was_asked(ip)).copied().collect()
    }

    pub(super) fn source(&self) -> Source {
        self.listed.as_ref().map_or(Source::Kubernetes, |listed| listed.source.clone())
    }
}
