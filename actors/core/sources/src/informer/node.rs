//! A node, the Services that depend on it, and its last known addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::ids::{Family, ServiceKey};
use model::level::Provenance;
use model::machine::Now;
use model::object::{ExclusionRule, NodeObject};

/// Returns the family of an address.
pub(super) fn family_of(ip: &IpAddr) -> Family {
    match ip {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}

/// A node that exists.
#[derive(Debug)]
pub(super) struct ExistingNode {
    pub(super) object: Arc<NodeObject>,
    /// Why it is excluded from pools, if it is (D5).
    pub(super) excluded: Option<ExclusionRule>,
}

impl ExistingNode {
    /// Returns the reason why the node is excluded from every pool, if it is (D5).
    fn excluded_everywhere(&self) -> Option<ExclusionRule> {
        self.excluded.filter(|reason| reason.is_everywhere())
    }
}

/// A node that exists, or that something still depends on.
#[derive(Default, Debug)]
pub(super) struct CachedNode {
    pub(super) existing: Option<ExistingNode>,
    /// Its last known addresses, by family (D6).
    pub(super) lost_addresses: BTreeMap<Family, LastKnownAddresses>,
    /// The Services whose parts depend on it.
    pub(super) services: BTreeSet<ServiceKey>,
}

/// The last known addresses of a node.
#[derive(Debug)]
pub(super) struct LastKnownAddresses {
    ips: Vec<IpAddr>,
    /// The time until which they are tolerated (D6).
    pub(super) until: Now,
    /// Provenance of their loss. Consequences are as doubtful, however late (G1).
    pub(super) provenance: Provenance,
}

/// Eligibility of a node for pools.
pub(super) enum NodeEligibility<'a> {
    /// The node exists.
    Eligible(&'a ExistingNode),
    /// The node exists and is excluded from all pools (D5).
    Excluded(&'a ExistingNode, ExclusionRule),
    /// The node does not exist, as far as known.
    Unknown,
}

impl CachedNode {
    pub(super) fn eligibility(&self) -> NodeEligibility<'_> {
        match &self.existing {
            Some(node) => match node.excluded_everywhere() {
                Some(reason) => NodeEligibility::Excluded(node, reason),
                None => NodeEligibility::Eligible(node),
            },
            None => NodeEligibility::Unknown,
        }
    }

    /// Returns the last known addresses of the node, while they are tolerated.
    pub(super) fn last_known(&self, family: Family, now: Now) -> impl Iterator<Item = IpAddr> + '_ {
        let lost_addresses =
            self.lost_addresses.get(&family).filter(|lost_addresses| now < lost_addresses.until);
        lost_addresses.into_iter().flat_map(|lost_addresses| lost_addresses.ips.iter().copied())
    }

    pub(super) fn is_void(&self) -> bool {
        self.existing.is_none() && self.lost_addresses.is_empty() && self.services.is_empty()
    }

    /// Remembers the addresses that a node has lost (D6). Returns when they expire, if there are any.
    pub(super) fn remember(
        &mut self,
        before: Option<&ExistingNode>,
        until: Now,
        provenance: Provenance,
    ) -> Option<Now> {
        let excluded = |node: &ExistingNode| node.excluded_everywhere().is_some();
        if self.existing.as_ref().or(before).is_some_and(excluded) {
            self.lost_addresses.clear();
            return None;
        }
        let mut remembered = None;
        for family in [Family::V4, Family::V6] {
            let of = |node: Option<&ExistingNode>| -> Vec<IpAddr> {
                let ips = node.into_iter().flat_map(|node| &node.object.internal_ips);
                ips.filter(|ip| family_of(ip) == family).copied().collect()
            };
            if !of(self.existing.as_ref()).is_empty() {
                self.lost_addresses.remove(&family);
                continue;
            }
            let had = if before.is_some_and(excluded) { Vec::new() } else { of(before) };
            if !had.is_empty() {
                self.lost_addresses.insert(family, LastKnownAddresses { ips: had, until, provenance });
                remembered = Some(until);
            }
        }
        remembered
    }
}
