//! The required and allowed members of pools, computed independently of the controller from the cluster's objects, as a
//! reference. A pool is in sync if required ⊆ members ⊆ allowed.
//!
//! Required are the first InternalIPs of nodes with an endpoint that is not terminating, by the EndpointSlices of the
//! pool's address family (D4). Allowed are all InternalIPs of nodes with any endpoint there. Nodes that are excluded by
//! label (D5) do not count, unless a Service has no others: then its pool keeps its members (D6). Delays and guards are
//! not modelled; scenarios wait for them.
//!
//! An entry's admin state must be Down exactly if its node has a taint for draining (N1). On other nodes, a Down of
//! another client stays (N4). Eviction notices are not checked here, because the controller turns them into a taint.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::Serialize;
use serde_json::Value;
use simulator_models::arm::ArmModel;
use simulator_models::kube::build::Family;
use simulator_models::kube::{KubeModel, Resource};

use crate::convergence::PoolName;
use crate::downs::{Downs, Others};

/// Required and allowed members of one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpectedPool {
    /// Members that must be present.
    pub required: BTreeSet<IpAddr>,
    /// Members that may be present; includes `required`.
    pub allowed: BTreeSet<IpAddr>,
}

impl ExpectedPool {
    /// Returns whether every required member is present.
    pub(crate) fn is_held_by(&self, members: &BTreeSet<IpAddr>) -> bool {
        self.required.is_subset(members)
    }

    /// Returns whether the members are in sync: required ⊆ members ⊆ allowed.
    pub(crate) fn is_met_by(&self, members: &BTreeSet<IpAddr>) -> bool {
        self.is_held_by(members) && members.is_subset(&self.allowed)
    }
}

/// A pool that is out of sync.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutOfSyncPool {
    /// Its load balancer; empty if no load balancer has the pool.
    pub load_balancer: String,
    /// Its name.
    pub pool: String,
    /// Required and missing members.
    pub missing: Vec<IpAddr>,
    /// Members that are not allowed.
    pub unwanted: Vec<IpAddr>,
}

/// The InternalIPs of all nodes, by name.
#[derive(Clone, Debug, Default)]
pub struct Addresses(BTreeMap<String, Addressed>);

#[derive(Clone, Debug, Default)]
struct Addressed {
    ips: Vec<IpAddr>,
    excluded: bool,
    doomed: bool,
}

/// The taint of a node that the cluster autoscaler is about to delete: it is required only if no other node is (D5).
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// Labels that exclude a node: with this value, or with any.
const EXCLUSIONS: [(&str, Option<&str>); 3] = [
    ("node.kubernetes.io/exclude-from-external-load-balancers", None),
    ("node-role.kubernetes.io/control-plane", None),
    ("kubernetes.azure.com/managed", Some("false")),
];

impl Addresses {
    /// Returns the addresses of the cluster's nodes.
    #[must_use]
    pub fn of(cluster: &KubeModel) -> Self {
        let nodes = cluster.list(Resource::Nodes).map(|node| {
            let labels = &node["metadata"]["labels"];
            let excluded = EXCLUSIONS.iter().any(|(key, value)| {
                labels.get(key).is_some_and(|found| value.is_none_or(|value| found == value))
            });
            let doomed = items(&node["spec"]["taints"]).any(|taint| taint["key"] == TO_BE_DELETED);
            let addressed = Addressed { ips: internal_ips(&node).collect(), excluded, doomed };
            (text(&node["metadata"]["name"]).to_owned(), addressed)
        });
        Self(nodes.collect())
    }

    /// Returns the required and allowed members of a Service with these slices in its pool of this family.
    pub fn wanted<'a>(&self, slices: impl IntoIterator<Item = &'a Value>, family: Family) -> ExpectedPool {
        let (mut wanted, mut excluded, mut doomed) =
            (ExpectedPool::default(), BTreeSet::new(), BTreeSet::new());
        let own = slices.into_iter().filter(|slice| slice["addressType"] == family.word());
        for endpoint in own.flat_map(|slice| items(&slice["endpoints"])) {
            let Some(node) = self.0.get(text(&endpoint["nodeName"])) else { continue };
            let mut ips = node.ips.iter().filter(|ip| ip.is_ipv4() == (family == Family::V4)).peekable();
            if node.excluded {
                excluded.extend(ips);
                continue;
            }
            if endpoint["conditions"]["terminating"] != true {
                let required = if node.doomed { &mut doomed } else { &mut wanted.required };
                required.extend(ips.peek().copied());
            }
            wanted.allowed.extend(ips);
        }
        if wanted.required.is_empty() {
            wanted.required = doomed;
        }
        if wanted.allowed.is_empty() {
            wanted.allowed = excluded;
        }
        wanted
    }
}

/// Returns the required and allowed members of every pool of the cluster's Services, by the pool's name.
#[must_use]
pub fn expected_pools(cluster: &KubeModel) -> BTreeMap<String, ExpectedPool> {
    let addresses = Addresses::of(cluster);
    let mut slices: BTreeMap<(String, String), Vec<Value>> = BTreeMap::new();
    for slice in cluster.list(Resource::EndpointSlices) {
        let meta = &slice["metadata"];
        let service = text(&meta["labels"]["kubernetes.io/service-name"]);
        slices.entry((text(&meta["namespace"]).to_owned(), service.to_owned())).or_default().push(slice);
    }
    let mut pools = BTreeMap::new();
    for service in cluster.list(Resource::Services) {
        let spec = &service["spec"];
        if spec["type"] != "LoadBalancer" || spec["externalTrafficPolicy"] != "Local" {
            continue;
        }
        let meta = &service["metadata"];
        let (namespace, name) = (text(&meta["namespace"]), text(&meta["name"]));
        let own = slices.get(&(namespace.to_owned(), name.to_owned())).map_or(&[][..], Vec::as_slice);
        for word in items(&spec["ipFamilies"]) {
            let family = if word == "IPv6" { Family::V6 } else { Family::V4 };
            pools.insert(pool_name(namespace, name, family), addresses.wanted(own, family));
        }
    }
    pools
}

/// Returns the name that the cloud-controller-manager gives to a Service's own pool.
#[must_use]
pub fn pool_name(namespace: &str, service: &str, family: Family) -> String {
    let base = format!("{namespace}-{service}").to_lowercase();
    match family {
        Family::V4 => base,
        Family::V6 => format!("{base}-ipv6"),
    }
}

/// Returns the members of a pool; none if there is no such pool.
#[must_use]
pub fn members(azure: &ArmModel, load_balancer: &str, pool: &str) -> BTreeSet<IpAddr> {
    let ips = azure.member_ips(load_balancer, pool).unwrap_or_default();
    ips.into_iter().filter_map(|ip| ip.parse().ok()).collect()
}

/// Returns the pools that are out of sync or missing, in a stable order.
#[must_use]
pub fn wrong_pools(azure: &ArmModel, wanted: &BTreeMap<String, ExpectedPool>) -> Vec<OutOfSyncPool> {
    let mut nowhere: BTreeSet<&str> = wanted.keys().map(String::as_str).collect();
    let mut wrong = Vec::new();
    for load_balancer in azure.load_balancers() {
        for pool in azure.pools(load_balancer) {
            let Some((name, wanted)) = wanted.get_key_value(&pool.to_lowercase()) else { continue };
            nowhere.remove(name.as_str());
            let members = members(azure, load_balancer, pool);
            if !wanted.is_met_by(&members) {
                wrong.push(OutOfSyncPool {
                    load_balancer: load_balancer.to_owned(),
                    pool: pool.to_owned(),
                    missing: wanted.required.difference(&members).copied().collect(),
                    unwanted: members.difference(&wanted.allowed).copied().collect(),
                });
            }
        }
    }
    wrong.extend(nowhere.into_iter().map(|pool| OutOfSyncPool {
        load_balancer: String::new(),
        pool: pool.to_owned(),
        missing: wanted[pool].required.iter().copied().collect(),
        unwanted: Vec::new(),
    }));
    wrong
}

/// Returns those of these pools that exist. Their Services were deleted, so another client has recreated them.
pub(crate) fn pools_again(azure: &ArmModel, gone: &[PoolName]) -> Vec<OutOfSyncPool> {
    let again = gone.iter().filter(|pool| azure.member_ips(&pool.load_balancer, &pool.pool).is_some());
    let wrong = again.map(|pool| OutOfSyncPool {
        load_balancer: pool.load_balancer.clone(),
        pool: pool.pool.clone(),
        missing: Vec::new(),
        unwanted: members(azure, &pool.load_balancer, &pool.pool).into_iter().collect(),
    });
    wrong.collect()
}

/// Taints of a draining node: by key, or by key and value (N1).
const LEAVING: [(&str, Option<&str>); 3] = [
    ("node.kubernetes.io/out-of-service", None),
    ("node.cloudprovider.kubernetes.io/shutdown", None),
    ("cloudprovider.azure.microsoft.com/draining", Some("spot-eviction")),
];

/// The pool whose admin states are not changed (`adminState.excludePools`).
const LEFT_ALONE: &str = "aksOutboundBackendPool";

/// Returns whether a node has a taint for draining.
pub(crate) fn leaves(node: &Value) -> bool {
    let says_so = |taint: &Value| {
        let is = |(key, value): &(&str, Option<&str>)| {
            taint["key"] == *key && value.is_none_or(|value| taint["value"] == value)
        };
        LEAVING.iter().any(is)
    };
    items(&node["spec"]["taints"]).any(says_so)
}

/// Returns the InternalIPs of a node.
pub(crate) fn internal_ips(node: &Value) -> impl Iterator<Item = IpAddr> {
    let internal = items(&node["status"]["addresses"]).filter(|address| address["type"] == "InternalIP");
    internal.filter_map(|address| text(&address["address"]).parse().ok())
}

/// The InternalIPs that must be Down, and those that must not, from the taints of the existing nodes. Other addresses
/// may have any state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct States {
    down: BTreeSet<IpAddr>,
    open: BTreeSet<IpAddr>,
}

impl States {
    /// Returns the required states of the addresses of the cluster's nodes.
    #[must_use]
    pub fn of(cluster: &KubeModel) -> Self {
        let mut states = Self::default();
        for node in cluster.list(Resource::Nodes) {
            let side = if leaves(&node) { &mut states.down } else { &mut states.open };
            side.extend(internal_ips(&node));
        }
        let both: Vec<IpAddr> = states.down.intersection(&states.open).copied().collect();
        for ip in both {
            states.down.remove(&ip);
            states.open.remove(&ip);
        }
        states
    }
}

/// An entry with a wrong admin state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrongEntry {
    /// Its load balancer.
    pub load_balancer: String,
    /// Its pool.
    pub pool: String,
    /// Its address.
    pub ip: IpAddr,
    /// Its state.
    pub state: String,
    /// Its mismatch.
    pub why: &'static str,
}

/// Returns the entries with wrong admin states, in a stable order.
pub(crate) fn wrong_entries(azure: &ArmModel, states: &States, downs: &Downs) -> Vec<WrongEntry> {
    let mut wrong = Vec::new();
    for load_balancer in azure.load_balancers() {
        let judged = azure.pools(load_balancer).filter(|pool| !pool.eq_ignore_ascii_case(LEFT_ALONE));
        for pool in judged {
            let name = PoolName::new(load_balancer, pool);
            for member in azure.members(load_balancer, pool).unwrap_or_default() {
                let Ok(ip) = member.ip.parse::<IpAddr>() else { continue };
                let is_down = member.admin_state.eq_ignore_ascii_case("Down");
                let mismatch = if states.down.contains(&ip) {
                    (!is_down).then_some("its node leaves service")
                } else if states.open.contains(&ip) {
                    mismatch_of(is_down, downs.of_others(&name, ip))
                } else {
                    None
                };
                let Some(mismatch) = mismatch else { continue };
                let (load_balancer, pool) = (load_balancer.to_owned(), pool.to_owned());
                wrong.push(WrongEntry { load_balancer, pool, ip, state: member.admin_state, why: mismatch });
            }
        }
    }
    wrong
}

/// Returns the mismatch of the state of an entry whose node stays in service.
fn mismatch_of(is_down: bool, others: Option<Others>) -> Option<&'static str> {
    match (is_down, others) {
        (true, None | Some(Others::TakenBack)) => {
            Some("its node stays in service, and no other client has set it")
        }
        (false, Some(Others::TakenBack)) => {
            Some("another client had set it Down, and the controller restored it")
        }
        (true, Some(Others::Set)) | (false, None | Some(Others::Set)) => None,
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
