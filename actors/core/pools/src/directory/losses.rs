//! Which losses of one pool the breaker counts (G4): those caused by nodes, by lists and reconnects, and by slices that
//! vanish. Endpoints that leave their slices on a running watch cause none: kube-proxy acts on the same slices, so that a
//! member without endpoints gets no traffic anyway.
//!
//! The cause is known when an address leaves, and is kept with it until it is gone from the pool (`removal_guard::Left`). If the
//! endpoints of a node leave their slices first and the node is deleted within the removal delay, the loss stays
//! uncounted. If the node was deleted or left out first, the loss counts, and it does not matter that its endpoints leave
//! later.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::removal_guard::{Look, Owners, asks, part};
use super::unconfirmed_removals::Confirmation;
use model::ids::Family;
use model::level::Provenance;
use model::machine::Now;
use model::services::ServiceFact;

/// The counted losses of one pool.
#[derive(Default)]
pub(super) struct Losses {
    /// The addresses that the pool has lost or is to lose, and since when each has been gone from it; `None`: it is there.
    of: BTreeMap<IpAddr, Option<Now>>,
    pause: Pause,
}

/// Whether the operator may have put back during a pause what is found in the pool: then the pool had it.
#[derive(Clone, Copy, Default)]
enum Pause {
    /// It may not.
    #[default]
    None,
    /// The pool is paused.
    Lasts,
    /// The pause ended then, and no read that began later has been seen.
    Ended(Now),
}

impl Losses {
    /// Takes in a new look at the pool, before it is judged what has left it.
    pub(super) fn note_pause(&mut self, look: &Look<'_>) {
        self.pause = match self.pause {
            _ if look.paused => Pause::Lasts,
            Pause::Lasts => Pause::Ended(look.now),
            Pause::None | Pause::Ended(_) => self.pause,
        };
    }

    /// Whether an address that is found in the pool, and that no source has asked for, counts as a former member.
    pub(super) fn had_found(&self) -> bool {
        match self.pause {
            Pause::None => false,
            Pause::Lasts | Pause::Ended(_) => true,
        }
    }

    /// Takes in which addresses have left for a cause that counts, since they were last asked for.
    pub(super) fn note<'a>(
        &mut self,
        look: &Look<'_>,
        asked: &BTreeSet<IpAddr>,
        counted: impl Iterator<Item = &'a IpAddr>,
    ) {
        let gone = |ip: &IpAddr| (!look.observed.contains(ip)).then_some(look.now);
        for ip in counted {
            self.of.entry(*ip).or_insert_with(|| gone(ip));
        }
        for (ip, since) in &mut self.of {
            *since = gone(ip).map(|now| since.unwrap_or(now));
        }
        let is_old = |since: Now| since.plus(super::breaker::BACK) <= look.compared_at;
        self.of.retain(|ip, since| !asked.contains(ip) && !since.is_some_and(is_old));
        self.pause = match self.pause {
            Pause::Ended(at) if at <= look.observed_at => Pause::None,
            Pause::None | Pause::Lasts | Pause::Ended(_) => self.pause,
        };
    }

    /// Whether the loss of an address counts.
    pub(super) fn has(&self, ip: &IpAddr) -> bool {
        self.of.contains_key(ip)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    /// The operator has let them all go.
    pub(super) fn clear(&mut self) {
        self.of.clear();
    }
}

/// Whether the loss of an address counts that some of these Services have asked for until now, and none does any more.
pub(super) fn counts(look: &Look<'_>, before: &Owners, ip: &IpAddr) -> bool {
    match look.confirmation {
        // kube-proxy has no part in what an xDS source assigns.
        Confirmation::Standing(_) => return true,
        Confirmation::SecondRead(_) => {}
    }
    let owners = before.iter().filter(|(_, fact)| asks(fact, look.family, ip));
    look.claims.values().any(|fact| is_left_out(fact, look.family, ip))
        || owners.into_iter().any(|(uid, was)| {
            let is = look.claims.get(uid);
            !is.is_some_and(|is| have_endpoints_left(was, is, look.family, ip))
        })
}

/// Whether a Service leaves out the node of an address although it has endpoints there (D5).
fn is_left_out(fact: &ServiceFact, family: Family, ip: &IpAddr) -> bool {
    let left_out = part(fact, family).into_iter().flat_map(|part| part.left_out.values());
    left_out.filter(|node| node.why.is_everywhere()).any(|node| node.ips.contains(ip))
}

/// Whether a Service does not ask for an address any more because the endpoints there left their slices, as a running watch
/// says. There may be as many endpoints as before: then others have come. Nor does it matter that a node has another address
/// now, which takes the place of this one.
fn have_endpoints_left(was: &ServiceFact, is: &ServiceFact, family: Family, ip: &IpAddr) -> bool {
    let is_watched = match is.provenance {
        Provenance::Watch => true,
        Provenance::Reconnect | Provenance::Relist | Provenance::FirstList => false,
    };
    let (Some(was), Some(is)) = (part(was, family), part(is, family)) else { return false };
    let have_slices_stayed = is.slices > 0 && is.slices >= was.slices;
    is_watched && have_slices_stayed && !is.unusable && !is.is_dropped && !was.last_known.contains(ip)
}
