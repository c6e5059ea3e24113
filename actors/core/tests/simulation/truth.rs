//! The expected final contents of the pools, computed from the API server's objects alone and in the simplest way, to
//! judge the machines: a pool is in sync if required ⊆ members ⊆ allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::object::TO_BE_DELETED;
use serde_json::Value;
use simulator_models::arm::ArmModel;
use simulator_models::kube::{KubeModel, Resource};

use crate::decode::{items, text};

/// Expected contents of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Required members.
    pub required: BTreeSet<IpAddr>,
    /// Allowed members; includes `required`.
    pub allowed: BTreeSet<IpAddr>,
    /// Whether the pool may stay unchanged: endpoints without any usable node (D6), or a last member that stays (G2).
    pub unusable: bool,
}

/// Returns the expected contents of every pool of the cluster's candidates, by the pool's name: by the EndpointSlices
/// of its family, or, as in upstream, of both (D4, C2).
pub fn wanted_pools(kube: &KubeModel, upstream: bool) -> BTreeMap<String, Wanted> {
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
            let own = slices.iter().filter(of_service).filter(counts);
            let endpoints: Vec<&Value> = own.flat_map(|slice| items(&slice["endpoints"])).collect();
            let v6 = family == "IPv6";
            let suffix = if v6 { "-ipv6" } else { "" };
            let name = format!("{}-{}{suffix}", text(&meta["namespace"]), text(&meta["name"])).to_lowercase();
            pools.insert(name, wanted(&endpoints, &nodes, v6, upstream));
        }
    }
    pools
}

/// A node contributes its first address of the family, or, as in upstream, all of them; further ones are allowed (D4).
fn wanted(endpoints: &[&Value], nodes: &BTreeMap<String, Value>, v6: bool, upstream: bool) -> Wanted {
    let (mut wanted, mut doomed) = (Wanted::default(), BTreeSet::new());
    for endpoint in endpoints {
        let Some(node) = nodes.get(text(&endpoint["nodeName"])) else { continue };
        let labels = &node["metadata"]["labels"];
        let left_out = labels.get("node.kubernetes.io/exclude-from-external-load-balancers").is_some();
        let is_doomed = items(&node["spec"]["taints"]).iter().any(|taint| taint["key"] == TO_BE_DELETED);
        let addresses = items(&node["status"]["addresses"]).iter();
        let internal = addresses.filter(|address| address["type"] == "InternalIP");
        let ips = internal.filter_map(|address| text(&address["address"]).parse::<IpAddr>().ok());
        for (place, ip) in ips.filter(|ip| ip.is_ipv6() == v6 && !left_out).enumerate() {
            wanted.allowed.insert(ip);
            if endpoint["conditions"]["terminating"] != true && (place == 0 || upstream) {
                let required = if is_doomed { &mut doomed } else { &mut wanted.required };
                required.insert(ip);
            }
        }
    }
    // A node that is about to be deleted is required only if there is no other one (D5).
    if wanted.required.is_empty() {
        wanted.required = doomed;
    }
    wanted.unusable = !endpoints.is_empty() && wanted.allowed.is_empty();
    wanted
}

/// Returns the members of a pool.
pub fn members(arm: &ArmModel, lb: &str, pool: &str) -> BTreeSet<IpAddr> {
    let ips = arm.member_ips(lb, pool).unwrap_or_default();
    ips.into_iter().filter_map(|ip| ip.parse().ok()).collect()
}

/// Returns the first pool that is out of sync, as text.
pub fn first_wrong(wanted: &BTreeMap<String, Wanted>, arm: &ArmModel) -> Option<String> {
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
