//! The expected final contents of the pools, computed only from the API server's objects and in the simplest way, to
//! judge the machines. A pool is in sync if required ⊆ members ⊆ allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::object::{ExclusionRule, TO_BE_DELETED};
use serde_json::Value;
use simulator_models::arm::ArmModel;
use simulator_models::kube::{KubeModel, Resource};

use crate::decode::{items, text};

/// Expected contents of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpectedPool {
    /// Required members.
    pub required: BTreeSet<IpAddr>,
    /// Allowed members; includes `required`.
    pub allowed: BTreeSet<IpAddr>,
    /// True if the pool may stay unchanged: endpoints without any usable node (D6), or a last member that stays (G2).
    pub unusable: bool,
    /// Nodes with endpoints that are excluded, by name (D4, D5).
    pub excluded: BTreeMap<String, ExclusionRule>,
}

/// Returns the expected contents of every pool of the cluster's candidates, by the pool's name: by the EndpointSlices
/// of its family, or, as in upstream, of both (D4, C2).
pub fn expected_pools(kube: &KubeModel, upstream: bool) -> BTreeMap<String, ExpectedPool> {
    let nodes: BTreeMap<String, Value> =
        kube.list(Resource::Nodes).map(|node| (text(&node["metadata"]["name"]).to_owned(), node)).collect();
    let slices: Vec<Value> = kube.list(Resource::EndpointSlices).collect();
    let mut pools = BTreeMap::new();
    for service in kube.list(Resource::Services) {
        let (meta, spec) = (&service["metadata"], &service["spec"]);
        let local = spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local";
        if !local || !meta["deletionTimestamp"].is_null() {
            continue;
        }
        let of_service = |slice: &&Value| {
            slice["metadata"]["labels"]["kubernetes.io/service-name"] == meta["name"]
                && slice["metadata"]["namespace"] == meta["namespace"]
        };
        for family in items(&spec["ipFamilies"]) {
            let counts = |slice: &&Value| upstream || slice["addressType"] == *family;
            let (own, others) = slices.iter().filter(of_service).partition::<Vec<&Value>, _>(counts);
            let [endpoints, others] = [own, others].map(|slices| {
                let endpoints = slices.into_iter().flat_map(|slice| items(&slice["endpoints"]));
                endpoints.collect::<Vec<&Value>>()
            });
            let v6 = family == "IPv6";
            let suffix = if v6 { "-ipv6" } else { "" };
            let name = format!("{}-{}{suffix}", text(&meta["namespace"]), text(&meta["name"])).to_lowercase();
            pools.insert(name, wanted([&endpoints, &others], &nodes, v6, upstream));
        }
    }
    pools
}

fn is_excluded(node: &Value) -> bool {
    node["metadata"]["labels"].get("node.kubernetes.io/exclude-from-external-load-balancers").is_some()
}

fn is_doomed(node: &Value) -> bool {
    items(&node["spec"]["taints"]).iter().any(|taint| taint["key"] == TO_BE_DELETED)
}

/// Returns the addresses of a node in a family, in order.
fn ips(node: &Value, v6: bool) -> impl Iterator<Item = IpAddr> + '_ {
    let addresses = items(&node["status"]["addresses"]).iter();
    let internal = addresses.filter(|address| address["type"] == "InternalIP");
    let ips = internal.filter_map(|address| text(&address["address"]).parse::<IpAddr>().ok());
    ips.filter(move |ip| ip.is_ipv6() == v6)
}

/// A node contributes its first address of the family, or, as in upstream, all of them; further ones are allowed (D4).
/// `others` are the endpoints that do not count for this family.
fn wanted(
    [endpoints, others]: [&[&Value]; 2],
    nodes: &BTreeMap<String, Value>,
    v6: bool,
    upstream: bool,
) -> ExpectedPool {
    let (mut wanted, mut doomed) = (ExpectedPool::default(), BTreeSet::new());
    for endpoint in endpoints {
        let Some(node) = nodes.get(text(&endpoint["nodeName"])) else { continue };
        for (place, ip) in ips(node, v6).filter(|_| !is_excluded(node)).enumerate() {
            wanted.allowed.insert(ip);
            if endpoint["conditions"]["terminating"] != true && (place == 0 || upstream) {
                let required = if is_doomed(node) { &mut doomed } else { &mut wanted.required };
                required.insert(ip);
            }
        }
    }
    // A node that is about to be deleted is required only if there is no other one (D5).
    if wanted.required.is_empty() {
        wanted.required = doomed;
    }
    wanted.unusable = !endpoints.is_empty() && wanted.allowed.is_empty();
    let name = |endpoint: &&Value| text(&endpoint["nodeName"]).to_owned();
    let hosts: BTreeSet<String> = endpoints.iter().map(name).collect();
    for host in others.iter().map(name).chain(hosts.iter().cloned()) {
        let Some(node) = nodes.get(&host).filter(|node| ips(node, v6).next().is_some()) else { continue };
        let stays = || ips(node, v6).any(|ip| wanted.required.contains(&ip));
        let why = if !hosts.contains(&host) {
            ExclusionRule::OtherFamily
        } else if is_excluded(node) {
            ExclusionRule::ExcludedByLabel
        } else if is_doomed(node) && !stays() {
            ExclusionRule::ToBeDeleted
        } else {
            continue;
        };
        wanted.excluded.insert(host, why);
    }
    wanted
}

/// Returns the members of a pool.
pub fn members(arm: &ArmModel, lb: &str, pool: &str) -> BTreeSet<IpAddr> {
    let ips = arm.member_ips(lb, pool).unwrap_or_default();
    ips.into_iter().filter_map(|ip| ip.parse().ok()).collect()
}

/// Returns the first pool that is out of sync, as text.
pub fn first_wrong(wanted: &BTreeMap<String, ExpectedPool>, arm: &ArmModel) -> Option<String> {
    let mut unfound: BTreeSet<&String> = wanted.keys().collect();
    for lb in arm.load_balancers() {
        for pool in arm.pools(lb) {
            let Some((name, wanted)) = wanted.get_key_value(&pool.to_lowercase()) else { continue };
            unfound.remove(name);
            let members = members(arm, lb, pool);
            let in_sync = wanted.required.is_subset(&members) && members.is_subset(&wanted.allowed);
            if !in_sync && !wanted.unusable {
                return Some(format!("{lb}/{pool} holds {members:?} and wants {wanted:?}"));
            }
        }
    }
    unfound.first().map(|name| format!("{name} is nowhere"))
}
