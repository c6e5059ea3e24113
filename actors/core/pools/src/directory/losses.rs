//! Which losses of one pool the breaker counts (G4): those caused by nodes, by lists and reconnects, and by the end of
//! the last slice of a family. Endpoints that leave on a running watch do not count, with or without their slice:
//! kube-proxy acts on the same slices, so that a member without endpoints gets no traffic anyway. Kubernetes keeps one
//! slice of a Service without endpoints, and deletes the others.
//!
//! The cause is known when an address leaves, and is kept with the address until it is gone from the pool
//! (`removal_guard::FormerMember`). If the endpoints of a node leave their slices first and the node is deleted within
//! the removal delay, the loss does not count. If the node was deleted or excluded first, the loss counts, even if its
//! endpoints leave later.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::guard_inputs::{Confirmation, GuardInputs, Owners, asks, part};
use model::ids::Family;
use model::level::Provenance;
use model::machine::Now;
use model::services::ServiceFact;

/// The counted losses of one pool.
#[derive(Default)]
pub(super) struct CountedLosses {
    /// The addresses that the pool lost or is to lose, and since when each has been gone; `None`: it is still present.
    of: BTreeMap<IpAddr, Option<Now>>,
    pause: Pause,
}

/// Whether the operator may have restored members during a pause: then the pool had the members found in it.
#[derive(Clone, Copy, Default)]
enum Pause {
    /// No pause affects the losses.
    #[default]
    None,
    /// The pool is paused.
    Lasts,
    /// The pause ended at this time, and no read that began later has arrived.
    Ended(Now),
}

impl CountedLosses {
    /// Updates the pause. Must run before the addresses that left are recorded.
    pub(super) fn update_pause(&mut self, inputs: &GuardInputs<'_>) {
        self.pause = match self.pause {
            _ if inputs.paused => Pause::Lasts,
            Pause::Lasts => Pause::Ended(inputs.now),
            Pause::None | Pause::Ended(_) => self.pause,
        };
    }

    /// Returns whether an address that is found in the pool, and that no source asked for, counts as a former member.
    pub(super) fn had_found(&self) -> bool {
        match self.pause {
            Pause::None => false,
            Pause::Lasts | Pause::Ended(_) => true,
        }
    }

    /// Updates the addresses that left for a cause that counts since they were last asked for.
    pub(super) fn update<'a>(
        &mut self,
        inputs: &GuardInputs<'_>,
        asked: &BTreeSet<IpAddr>,
        counted: impl Iterator<Item = &'a IpAddr>,
    ) {
        let gone = |ip: &IpAddr| (!inputs.observed.contains(ip)).then_some(inputs.now);
        for ip in counted {
            self.of.entry(*ip).or_insert_with(|| gone(ip));
        }
        for (ip, since) in &mut self.of {
            *since = gone(ip).map(|now| since.unwrap_or(now));
        }
        let is_old = |since: Now| since.plus(super::breaker::LOOKBACK) <= inputs.compared_at;
        self.of.retain(|ip, since| !asked.contains(ip) && !since.is_some_and(is_old));
        self.pause = match self.pause {
            Pause::Ended(at) if at <= inputs.observed_at => Pause::None,
            Pause::None | Pause::Lasts | Pause::Ended(_) => self.pause,
        };
    }

    /// Returns whether the loss of an address counts.
    pub(super) fn has(&self, ip: &IpAddr) -> bool {
        self.of.contains_key(ip)
    }

    /// Returns the number of counted losses.
    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    /// Drops all losses, because the operator released them.
    pub(super) fn clear(&mut self) {
        self.of.clear();
    }
}

/// Returns whether the breaker counts the loss of an address that no Service asks for any more.
pub(super) fn counts(inputs: &GuardInputs<'_>, before: &Owners, ip: &IpAddr) -> bool {
    match inputs.confirmation {
        // kube-proxy does not act on the assignments of an xDS source.
        Confirmation::ByTime(_) => return true,
        Confirmation::SecondRead(_) => {}
    }
    let owners = before.iter().filter(|(_, fact)| asks(fact, inputs.family, ip));
    inputs.owners.values().any(|fact| is_excluded(fact, inputs.family, ip))
        || owners.into_iter().any(|(uid, was)| {
            let is = inputs.owners.get(uid);
            !is.is_some_and(|is| have_endpoints_left(was, is, inputs.family, ip))
        })
}

/// Returns whether a Service excludes the node of an address although it has endpoints there (D5).
fn is_excluded(fact: &ServiceFact, family: Family, ip: &IpAddr) -> bool {
    let excluded = part(fact, family).excluded.values();
    excluded.filter(|node| node.why.is_everywhere()).any(|node| node.ips.contains(ip))
}

/// Returns whether a running watch showed that the endpoints at an address left, while a slice of the family stayed.
/// The number of endpoints may be unchanged if other endpoints have come. A new address of the same node, which
/// replaces this one, does not matter.
fn have_endpoints_left(was: &ServiceFact, is: &ServiceFact, family: Family, ip: &IpAddr) -> bool {
    let is_watched = match is.provenance {
        Provenance::Watch => true,
        Provenance::Reconnect | Provenance::Relist | Provenance::FirstList => false,
    };
    let (was, is) = (part(was, family), part(is, family));
    is_watched && is.slices > 0 && !is.unusable && !is.is_dropped && !was.last_known.contains(ip)
}
