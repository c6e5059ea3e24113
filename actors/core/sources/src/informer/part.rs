//! Computes the parts of one Service: the members that its endpoints require, by family (D4-D6).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use super::cache::ServiceEntry;
use super::node::{CachedNode, ExistingNode, NodeEligibility, family_of};
use super::unread::UnreadObjects;
use super::{Counts, ExcludedNode, Parts, RequiredNode};
use model::ids::{Family, NodeName, ServiceKey};
use model::machine::Now;
use model::object::{AddressType, Endpoint, ExclusionRule, Kind, ServiceObject, SliceObject};

/// The maximum number of error descriptions.
const ERRORS_SHOWN: usize = 10;

/// The result of the computation for one Service.
#[derive(Default)]
pub(super) struct ServiceParts {
    pub(super) parts: Parts,
    pub(super) slices: usize,
    pub(super) endpoints: usize,
    /// Descriptions of the errors (D6); at most [`ERRORS_SHOWN`].
    pub(super) errors: Vec<Arc<str>>,
    /// The number of affected endpoints.
    pub(super) affected: usize,
    /// The nodes that the result depends on, in order.
    pub(super) nodes: Vec<NodeName>,
    /// True if the result depends on an object that exists but is not known (D6).
    incomplete: bool,
    /// The addresses of nodes that are about to be deleted and have an endpoint that counts, by family (D5).
    to_be_deleted: BTreeMap<Family, BTreeMap<IpAddr, RequiredNode>>,
}

/// The inputs of the computation besides the Service's own slices.
pub(super) struct PartInputs<'a> {
    /// The nodes.
    pub(super) nodes: &'a BTreeMap<NodeName, CachedNode>,
    /// The objects that exist but were never decoded.
    pub(super) unread: &'a UnreadObjects,
    /// The slices whose last good state does not count, by name (X5).
    pub(super) omitted_slices: BTreeSet<Arc<str>>,
    /// True if the watch of EndpointSlices is not current.
    pub(super) slices_lost: bool,
    /// The families whose last good state is no longer used, as configured (X5).
    pub(super) dropped: BTreeSet<Family>,
    /// True if each family has its own slices (D4).
    pub(super) per_family: bool,
    /// The families of the Service's pools.
    pub(super) used: &'a [Family],
    /// The endpoints that count.
    pub(super) rule: Counts,
    /// The current time.
    pub(super) now: Now,
}

/// Returns the families that a slice counts for: its address family, if each family has its own slices (D4).
pub(super) fn families_of(slice: &SliceObject, per_family: bool) -> &'static [Family] {
    let address_type = if per_family { slice.address_type } else { AddressType::Unset };
    address_type.families()
}

impl ServiceParts {
    /// Returns the result for a Service that is not a candidate: it requires nothing.
    pub(super) fn nothing() -> ServiceParts {
        ServiceParts::default()
    }

    /// Returns the result for a candidate whose slices may no longer be read, if that ends the use of their last good
    /// state. A family without any good state so far is unknown (X3).
    pub(super) fn withdrawn(inputs: &PartInputs<'_>) -> ServiceParts {
        let mut computed = ServiceParts::nothing();
        for (family, part) in computed.parts.iter_mut() {
            part.is_dropped = inputs.dropped.contains(&family);
            part.unusable = !part.is_dropped && inputs.used.contains(&family);
        }
        computed
    }

    /// Requires nodes that are about to be deleted, if no other node is required: their pods still serve (D5).
    fn require_to_be_deleted(&mut self) {
        for (family, nodes) in std::mem::take(&mut self.to_be_deleted) {
            let part = &mut self.parts[&family];
            if part.required.is_empty() {
                part.excluded.retain(|_, node| !node.ips.iter().any(|ip| nodes.contains_key(ip)));
                part.required = nodes;
            }
        }
    }

    /// Counts a slice for these families; no families means that its addresses are not IP addresses (D4).
    fn add_slice(&mut self, slice: &SliceObject, families: &[Family]) {
        self.slices += 1;
        self.endpoints += slice.endpoints.len();
        for (_, part) in self.parts.iter_mut().filter(|(family, _)| families.contains(family)) {
            part.slices += 1;
            part.endpoints += slice.endpoints.len();
        }
        if families.is_empty() {
            self.affected += slice.endpoints.len();
            let key = &slice.key;
            self.error(|| {
                format!(
                    "EndpointSlice {}/{} has the addressType FQDN and is not used",
                    key.namespace, key.name
                )
            });
        }
    }

    fn error(&mut self, words: impl FnOnce() -> String) {
        if self.errors.len() < ERRORS_SHOWN {
            self.errors.push(words().into());
        }
    }
}

/// Relation of a node to the endpoints of one family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Hosting {
    /// The node hosts no endpoints.
    #[default]
    Nothing,
    /// The node hosts endpoints, but none that counts.
    Uncounted,
    /// The node hosts an endpoint that counts.
    Counted,
}

/// The endpoints on one node.
#[derive(Default)]
struct Host {
    endpoints: usize,
    v4: Hosting,
    v6: Hosting,
}

impl Host {
    fn of(&self, family: Family) -> Hosting {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    /// Adds an endpoint that counts for these families.
    fn add(&mut self, families: &[Family], hosting: Hosting) {
        self.endpoints += 1;
        for family in families {
            let own = match family {
                Family::V4 => &mut self.v4,
                Family::V6 => &mut self.v6,
            };
            *own = hosting.max(*own);
        }
    }
}

/// Returns true if an endpoint makes its node required (D4).
fn counts(rule: Counts, endpoint: &Endpoint) -> bool {
    match rule {
        Counts::Hosted => !endpoint.terminating,
        Counts::Serving => endpoint.serving,
        Counts::Ready => endpoint.ready,
    }
}

/// Returns the families of the Service's pools. Missing addresses of another family are not an error.
pub(super) fn used_families(service: &ServiceObject) -> &[Family] {
    if service.families.is_empty() { &[Family::V4] } else { &service.families }
}

/// Returns the name of a family in error descriptions.
fn words(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

/// Computes a candidate's parts from all its slices, each for the families that it counts for.
pub(super) fn compute_parts(key: &ServiceKey, entry: &ServiceEntry, inputs: &PartInputs<'_>) -> ServiceParts {
    let mut computed = ServiceParts::nothing();
    add_unread(&mut computed, key, inputs.unread);
    let mut hosts: BTreeMap<&NodeName, Host> = BTreeMap::new();
    let mut nameless = Vec::new();
    for (_, slice) in entry.slices.iter().filter(|(name, _)| !inputs.omitted_slices.contains(*name)) {
        let families = families_of(slice, inputs.per_family);
        computed.add_slice(slice, families);
        for endpoint in slice.endpoints.iter().filter(|_| !families.is_empty()) {
            let Some(node) = &endpoint.node else {
                nameless.push((endpoint.identity, families));
                continue;
            };
            let hosting = if counts(inputs.rule, endpoint) { Hosting::Counted } else { Hosting::Uncounted };
            hosts.entry(node).or_default().add(families, hosting);
        }
    }
    if !nameless.is_empty() {
        computed.affected += nameless.len();
        let endpoints = if nameless.len() == 1 { "endpoint" } else { "endpoints" };
        computed.error(|| format!("{} {endpoints} without a nodeName", nameless.len()));
    }
    for (name, host) in &hosts {
        add_host(&mut computed, name, host, inputs);
    }
    computed.nodes = hosts.keys().map(|name| (*name).clone()).collect();
    computed.require_to_be_deleted();
    add_orphans(&mut computed, entry, &nameless, inputs);
    for (family, part) in computed.parts.iter_mut() {
        part.last_known.retain(|ip| !part.required.contains_key(ip) && !part.tolerated.contains(ip));
        part.tolerated.extend(&part.last_known);
        part.tolerated.retain(|ip| !part.required.contains_key(ip));
        part.is_dropped = inputs.dropped.contains(&family);
        let empty = part.required.is_empty() && part.tolerated.is_empty();
        let unheard = inputs.slices_lost && !part.is_dropped;
        let useless = empty && (part.endpoints > 0 || unheard);
        part.unusable = (computed.incomplete || useless) && inputs.used.contains(&family);
    }
    computed
}

/// Adds the slices that are not known.
fn add_unread(computed: &mut ServiceParts, key: &ServiceKey, unread: &UnreadObjects) {
    for slice in unread.slices_of(key).take(ERRORS_SHOWN) {
        computed.incomplete = true;
        computed.error(|| format!("EndpointSlice {}/{} cannot be read", slice.namespace, slice.name));
    }
    if unread.has_unnamed(Kind::EndpointSlices) {
        computed.incomplete = true;
        computed.error(|| "an EndpointSlice without a readable name cannot be read".to_owned());
    }
}

/// Adds the addresses of one node with endpoints. A node adds no address to the part of a family if it hosts no
/// endpoint of that family (D4). An excluded node adds none at all. The addresses of a node that is about to be
/// deleted may stay (D5).
fn add_host(computed: &mut ServiceParts, name: &NodeName, host: &Host, inputs: &PartInputs<'_>) {
    let node = inputs.nodes.get(name);
    let (existing, reason) = match node.map_or(NodeEligibility::Unknown, CachedNode::eligibility) {
        NodeEligibility::Excluded(existing, reason) => (Some(existing), Some(reason)),
        NodeEligibility::Eligible(existing) => (Some(existing), None),
        NodeEligibility::Unknown => (None, None),
    };
    let object = existing.map(|existing| &existing.object);
    let mut lacking = String::new();
    for (family, part) in computed.parts.iter_mut() {
        let hosting = host.of(family);
        let mut ips =
            object.into_iter().flat_map(|object| &object.internal_ips).filter(|ip| family_of(ip) == family);
        let reason = if hosting == Hosting::Nothing { Some(ExclusionRule::OtherFamily) } else { reason };
        if let Some(reason) = reason {
            let ips: BTreeSet<IpAddr> = ips.copied().collect();
            if !ips.is_empty() && inputs.used.contains(&family) {
                part.excluded.insert(name.clone(), ExcludedNode { ips, why: reason });
            }
            continue;
        }
        if let Some(ExistingNode { object, excluded }) = existing
            && let Some(first) = ips.next()
        {
            let is_to_be_deleted = *excluded == Some(ExclusionRule::ToBeDeleted);
            let required = if is_to_be_deleted {
                computed.to_be_deleted.entry(family).or_default()
            } else {
                &mut part.required
            };
            let mut all = BTreeSet::new();
            for ip in [first].into_iter().chain(ips) {
                all.insert(*ip);
                if hosting == Hosting::Counted && (ip == first || !inputs.per_family) {
                    let node = || RequiredNode { name: name.clone(), ready: object.ready };
                    required.entry(*ip).or_insert_with(node);
                }
            }
            part.tolerated.extend(&all);
            if is_to_be_deleted && inputs.used.contains(&family) {
                part.excluded
                    .insert(name.clone(), ExcludedNode { ips: all, why: ExclusionRule::ToBeDeleted });
            }
            continue;
        }
        part.last_known.extend(node.into_iter().flat_map(|node| node.last_known(family, inputs.now)));
        if object.is_some() && inputs.used.contains(&family) {
            let separator = if lacking.is_empty() { "" } else { " and no " };
            write!(lacking, "{separator}{}", words(family)).expect("a string takes every write");
        }
    }
    if object.is_none() {
        let unread = inputs.unread.has_node(name);
        computed.incomplete |= unread || inputs.unread.has_unnamed(Kind::Nodes);
        computed.affected += host.endpoints;
        computed.error(|| format!("node {name} {}", if unread { "cannot be read" } else { "is not known" }));
    } else if !lacking.is_empty() {
        computed.affected += host.endpoints;
        computed.error(|| format!("node {name} has no {lacking} address"));
    }
}

/// Tolerates the addresses of the nodes on which endpoints without a nodeName were last known (D6).
fn add_orphans(
    computed: &mut ServiceParts,
    entry: &ServiceEntry,
    nameless: &[(u64, &'static [Family])],
    inputs: &PartInputs<'_>,
) {
    for (identity, families) in nameless {
        let orphan = entry.orphans.get(identity).filter(|orphan| inputs.now < orphan.until);
        let Some(orphan) = orphan else { continue };
        if let Err(index) = computed.nodes.binary_search(&orphan.node) {
            computed.nodes.insert(index, orphan.node.clone());
        }
        computed.incomplete |= inputs.unread.has_node(&orphan.node);
        let Some(node) = inputs.nodes.get(&orphan.node) else {
            continue;
        };
        let ips: &[IpAddr] = match node.eligibility() {
            NodeEligibility::Excluded(..) => continue,
            NodeEligibility::Eligible(existing) => &existing.object.internal_ips,
            NodeEligibility::Unknown => &[],
        };
        for (family, part) in computed.parts.iter_mut().filter(|(family, _)| families.contains(family)) {
            part.last_known.extend(ips.iter().filter(|ip| family_of(ip) == family));
            part.last_known.extend(node.last_known(family, inputs.now));
        }
    }
}
