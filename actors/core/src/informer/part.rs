//! What one Service's endpoints ask of its pools, by family (D4-D6).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use super::cache::Entry;
use super::node::{Node, Standing, family_of};
use super::unread::Unread;
use super::{Counts, Part, RequiredNode};
use crate::ids::{Family, NodeName, ServiceKey};
use crate::machine::Now;
use crate::object::{Endpoint, Kind, ServiceObject};

/// The most errors that are put into words.
const ERRORS_SHOWN: usize = 10;

/// What was worked out for one Service.
#[derive(Default)]
pub(super) struct Worked {
    pub(super) parts: BTreeMap<Family, Part>,
    pub(super) slices: usize,
    pub(super) endpoints: usize,
    /// What is wrong (D6), in words; at most [`ERRORS_SHOWN`].
    pub(super) errors: Vec<Arc<str>>,
    /// How many endpoints that concerns.
    pub(super) affected: usize,
    /// The nodes on which this rests, in order.
    pub(super) nodes: Vec<NodeName>,
    /// Whether something that it rests on exists and is not known (D6).
    incomplete: bool,
}

/// What a Service's parts are worked out from, besides its own slices.
pub(super) struct Ground<'a> {
    /// The nodes.
    pub(super) nodes: &'a BTreeMap<NodeName, Node>,
    /// What exists and was never decoded.
    pub(super) unread: &'a Unread,
    /// The slices whose last good state does not count, by name (X5).
    pub(super) left_out: BTreeSet<Arc<str>>,
    /// Whether nothing is heard of EndpointSlices at present.
    pub(super) slices_lost: bool,
    /// The families that the Service's pools have.
    pub(super) used: &'a [Family],
    /// Which endpoints count.
    pub(super) rule: Counts,
    /// When.
    pub(super) now: Now,
}

impl Worked {
    /// Of a Service that asks for nothing because it is no candidate.
    pub(super) fn nothing() -> Worked {
        let parts = [(Family::V4, Part::default()), (Family::V6, Part::default())].into();
        Worked { parts, ..Worked::default() }
    }

    /// Of a candidate whose slices may not be read any more, where that makes go what was known of them; where nothing
    /// ever was, nothing is known (X3).
    pub(super) fn withdrawn(was_known: bool, used: &[Family]) -> Worked {
        let mut worked = Worked::nothing();
        for (family, part) in &mut worked.parts {
            part.unusable = !was_known && used.contains(family);
        }
        worked
    }

    fn error(&mut self, words: impl FnOnce() -> String) {
        if self.errors.len() < ERRORS_SHOWN {
            self.errors.push(words().into());
        }
    }
}

/// The endpoints of one node.
#[derive(Default)]
struct Host {
    endpoints: usize,
    counts: bool,
}

/// Whether an endpoint makes its node required (D4).
fn counts(rule: Counts, endpoint: &Endpoint) -> bool {
    match rule {
        Counts::Hosted => !endpoint.terminating,
        Counts::Serving => endpoint.serving,
        Counts::Ready => endpoint.ready,
    }
}

/// The families that the Service's pools have; lacking addresses of another one are no error.
pub(super) fn used_families(service: &ServiceObject) -> &[Family] {
    if service.families.is_empty() { &[Family::V4] } else { &service.families }
}

/// The family in words.
fn words(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

/// Works out a candidate's parts from all its slices, whatever their address type.
pub(super) fn work_out(key: &ServiceKey, entry: &Entry, ground: &Ground<'_>) -> Worked {
    let mut worked = Worked::nothing();
    add_unread(&mut worked, key, ground.unread);
    let mut hosts: BTreeMap<&NodeName, Host> = BTreeMap::new();
    let mut nameless = Vec::new();
    let slices = || entry.slices.iter().filter(|(name, _)| !ground.left_out.contains(*name));
    worked.slices = slices().count();
    for endpoint in slices().flat_map(|(_, slice)| &slice.endpoints) {
        worked.endpoints += 1;
        match &endpoint.node {
            Some(node) => {
                let host = hosts.entry(node).or_default();
                host.endpoints += 1;
                host.counts |= counts(ground.rule, endpoint);
            }
            None => nameless.push(endpoint.identity),
        }
    }
    if !nameless.is_empty() {
        worked.affected += nameless.len();
        let endpoints = if nameless.len() == 1 { "endpoint" } else { "endpoints" };
        worked.error(|| format!("{} {endpoints} without a nodeName", nameless.len()));
    }
    for (name, host) in &hosts {
        add_host(&mut worked, name, host, ground);
    }
    worked.nodes = hosts.keys().map(|name| (*name).clone()).collect();
    add_orphans(&mut worked, entry, &nameless, ground);
    for (family, part) in &mut worked.parts {
        part.tolerated.retain(|ip| !part.required.contains_key(ip));
        let empty = part.required.is_empty() && part.tolerated.is_empty();
        let useless = empty && (worked.endpoints > 0 || ground.slices_lost);
        part.unusable = (worked.incomplete || useless) && ground.used.contains(family);
    }
    worked
}

/// Notes which slices are not known.
fn add_unread(worked: &mut Worked, key: &ServiceKey, unread: &Unread) {
    for slice in unread.slices_of(key).take(ERRORS_SHOWN) {
        worked.incomplete = true;
        worked.error(|| format!("EndpointSlice {}/{} cannot be read", slice.namespace, slice.name));
    }
    if unread.is_blind(Kind::EndpointSlices) {
        worked.incomplete = true;
        worked.error(|| "an EndpointSlice without a readable name cannot be read".to_owned());
    }
}

/// Adds the addresses of one node with endpoints; a node that is left out adds none (D5).
fn add_host(worked: &mut Worked, name: &NodeName, host: &Host, ground: &Ground<'_>) {
    let node = ground.nodes.get(name);
    let object = match node.map_or(Standing::Unknown, Node::standing) {
        Standing::LeftOut => return,
        Standing::Known(object) => Some(object),
        Standing::Unknown => None,
    };
    let mut lacking = String::new();
    for (family, part) in &mut worked.parts {
        let ips = || {
            object.into_iter().flat_map(|object| &object.internal_ips).filter(|ip| family_of(ip) == *family)
        };
        if let (Some(object), Some(_)) = (object, ips().next()) {
            if host.counts {
                let required = RequiredNode { name: name.clone(), ready: object.ready };
                for ip in ips() {
                    part.required.entry(*ip).or_insert_with(|| required.clone());
                }
            } else {
                part.tolerated.extend(ips());
            }
            continue;
        }
        part.tolerated.extend(node.into_iter().flat_map(|node| node.last_known(*family, ground.now)));
        if object.is_some() && ground.used.contains(family) {
            let separator = if lacking.is_empty() { "" } else { " and no " };
            write!(lacking, "{separator}{}", words(*family)).expect("a string takes every write");
        }
    }
    if object.is_none() {
        let unread = ground.unread.has_node(name);
        worked.incomplete |= unread || ground.unread.is_blind(Kind::Nodes);
        worked.affected += host.endpoints;
        worked.error(|| format!("node {name} {}", if unread { "cannot be read" } else { "is not known" }));
    } else if !lacking.is_empty() {
        worked.affected += host.endpoints;
        worked.error(|| format!("node {name} has no {lacking} address"));
    }
}

/// Tolerates the addresses of the nodes that endpoints without a nodeName were last known on (D6).
fn add_orphans(worked: &mut Worked, entry: &Entry, nameless: &[u64], ground: &Ground<'_>) {
    for orphan in nameless.iter().filter_map(|identity| entry.orphans.get(identity)) {
        if ground.now >= orphan.until {
            continue;
        }
        if let Err(place) = worked.nodes.binary_search(&orphan.node) {
            worked.nodes.insert(place, orphan.node.clone());
        }
        worked.incomplete |= ground.unread.has_node(&orphan.node);
        let Some(node) = ground.nodes.get(&orphan.node) else {
            continue;
        };
        let ips: &[IpAddr] = match node.standing() {
            Standing::LeftOut => continue,
            Standing::Known(object) => &object.internal_ips,
            Standing::Unknown => &[],
        };
        for (family, part) in &mut worked.parts {
            part.tolerated.extend(ips.iter().filter(|ip| family_of(ip) == *family));
            part.tolerated.extend(node.last_known(*family, ground.now));
        }
    }
}
