//! A node, what rests on it, and the addresses that it had last.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::ids::{Family, ServiceKey};
use model::level::Provenance;
use model::machine::Now;
use model::object::{LeftOut, NodeObject};

/// The family of an address.
pub(super) fn family_of(ip: &IpAddr) -> Family {
    match ip {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}

/// Why a node is in no pool at all, if it is in none (D5).
fn excluded(object: &NodeObject) -> Option<LeftOut> {
    object.left_out.filter(|why| why.is_everywhere())
}

/// A node that exists, or on which something still rests.
#[derive(Default, Debug)]
pub(super) struct Node {
    pub(super) object: Option<Arc<NodeObject>>,
    /// Addresses that it had last, by family (D6).
    pub(super) lost: BTreeMap<Family, Lost>,
    /// The Services whose parts rest on it.
    pub(super) services: BTreeSet<ServiceKey>,
}

/// Addresses that a node had last.
#[derive(Debug)]
pub(super) struct Lost {
    ips: Vec<IpAddr>,
    /// Until when they are tolerated (D6).
    pub(super) until: Now,
    /// How it became known that the node has lost them: what follows from that is as doubtful, however late (G1).
    pub(super) provenance: Provenance,
}

/// How a node stands.
pub(super) enum Standing<'a> {
    /// It exists.
    Known(&'a NodeObject),
    /// It exists and is left out of all pools (D5).
    LeftOut(&'a NodeObject, LeftOut),
    /// It does not exist, as far as is known.
    Unknown,
}

impl Node {
    pub(super) fn standing(&self) -> Standing<'_> {
        match &self.object {
            Some(object) => match excluded(object) {
                Some(why) => Standing::LeftOut(object, why),
                None => Standing::Known(object),
            },
            None => Standing::Unknown,
        }
    }

    /// The addresses that it had last, while they are tolerated.
    pub(super) fn last_known(&self, family: Family, now: Now) -> impl Iterator<Item = IpAddr> + '_ {
        let lost = self.lost.get(&family).filter(|lost| now < lost.until);
        lost.into_iter().flat_map(|lost| lost.ips.iter().copied())
    }

    pub(super) fn is_void(&self) -> bool {
        self.object.is_none() && self.lost.is_empty() && self.services.is_empty()
    }

    /// Keeps in mind the addresses that a node has lost (D6); until when, if there are any.
    pub(super) fn remember(
        &mut self,
        before: Option<&NodeObject>,
        until: Now,
        provenance: Provenance,
    ) -> Option<Now> {
        let left_out = |object: &NodeObject| excluded(object).is_some();
        if self.object.as_deref().or(before).is_some_and(left_out) {
            self.lost.clear();
            return None;
        }
        let mut remembered = None;
        for family in [Family::V4, Family::V6] {
            let of = |object: Option<&NodeObject>| -> Vec<IpAddr> {
                let ips = object.into_iter().flat_map(|object| &object.internal_ips);
                ips.filter(|ip| family_of(ip) == family).copied().collect()
            };
            if !of(self.object.as_deref()).is_empty() {
                self.lost.remove(&family);
                continue;
            }
            let had = if before.is_some_and(left_out) { Vec::new() } else { of(before) };
            if !had.is_empty() {
                self.lost.insert(family, Lost { ips: had, until, provenance });
                remembered = Some(until);
            }
        }
        remembered
    }
}
