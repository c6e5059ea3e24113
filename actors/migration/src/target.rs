//! The Standard load balancers that replace the Basic ones, and their bodies. A body has the same frontends, rules,
//! probes and pools, so that the cloud-controller-manager finds the state that it would create.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::inventory::{Cluster, Frontend, Inventory, Membership, Scope};
use crate::json::{items, object, text};
use crate::resource_id::ResourceId;

const INTERNAL: &str = "-internal";
/// The collections of a load balancer that are copied.
const COLLECTIONS: [&str; 6] = [
    "frontendIPConfigurations",
    "backendAddressPools",
    "loadBalancingRules",
    "probes",
    "inboundNatRules",
    "inboundNatPools",
];

/// A private address of a frontend.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PrivateAddress {
    /// The name of the frontend.
    pub frontend: String,
    /// The subnet.
    pub subnet: ResourceId,
    /// The address.
    pub address: IpAddr,
}

/// A Standard load balancer that must exist.
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    /// Its id.
    pub id: ResourceId,
    /// The Basic load balancers that it replaces.
    pub from: Vec<ResourceId>,
    /// Its body.
    pub body: Value,
    /// The public addresses of its frontends; empty for an internal one.
    pub public: BTreeSet<ResourceId>,
    /// The private addresses of its frontends.
    pub private: Vec<PrivateAddress>,
    /// Names that two of these Basic load balancers use for different things.
    pub conflicts: Vec<String>,
}

impl Target {
    /// Returns the pools that all nodes of the cluster join.
    pub fn cluster_pools<'a>(&'a self, cluster: &'a Cluster) -> impl Iterator<Item = (&'a str, bool)> {
        let names =
            items(&self.body["properties"]["backendAddressPools"]).iter().map(|pool| text(&pool["name"]));
        names.filter_map(move |name| cluster_pool(name, cluster).map(|is_ipv6| (name, is_ipv6)))
    }
}

/// Returns the family of a pool that the cloud-controller-manager fills (`true` for IPv6); `None` for any other pool.
pub(crate) fn cluster_pool(name: &str, cluster: &Cluster) -> Option<bool> {
    let base = cluster.name.as_str();
    if name.eq_ignore_ascii_case(base) {
        return Some(false);
    }
    let suffix = name.get(base.len()..)?;
    (name[..base.len()].eq_ignore_ascii_case(base) && suffix.eq_ignore_ascii_case("-IPv6")).then_some(true)
}

/// Returns the load balancer that replaces a Basic one.
///
/// With the Basic SKU, the cloud-controller-manager names the load balancers of further availability sets and scale
/// sets after these. With the Standard SKU, all nodes share one load balancer, with the configured name. Other load
/// balancers keep their names.
#[must_use]
pub fn successor(inventory: &Inventory, scope: &Scope, basic: &ResourceId) -> ResourceId {
    let cluster = &inventory.cluster;
    let name = basic.name();
    let (base, suffix) = match name.len().checked_sub(INTERNAL.len()) {
        Some(at) if name.is_char_boundary(at) && name[at..].eq_ignore_ascii_case(INTERNAL) => {
            (&name[..at], INTERNAL)
        }
        Some(_) | None => (name, ""),
    };
    let sets = scope.scale_sets.iter().chain(inventory.of_kind("availabilitysets").map(|(id, _)| id));
    let is_set = sets.into_iter().any(|set| set.name().eq_ignore_ascii_case(base));
    // The load balancer of the first set has the cluster's name, unless the configuration has another one.
    let is_set = is_set || base.eq_ignore_ascii_case(&cluster.name);
    let is_named = cluster.load_balancers.iter().any(|lb| lb.eq_ignore_ascii_case(base));
    match cluster.load_balancers.first() {
        Some(main) if is_set && !is_named => cluster
            .load_balancer_group
            .child("providers/Microsoft.Network/loadBalancers", &format!("{main}{suffix}")),
        Some(_) | None => basic.clone(),
    }
}

/// Returns the id of a child of a Basic load balancer, as a child of its successor.
#[must_use]
pub fn repointed(successors: &BTreeMap<ResourceId, ResourceId>, id: &ResourceId) -> Option<ResourceId> {
    let lb = id.up_to("loadBalancers")?;
    Some(ResourceId::new(format!("{}{}", successors.get(&lb)?, id.below(&lb)?)))
}

/// Returns all targets. A Basic load balancer without frontends has none.
#[must_use]
pub fn targets(inventory: &Inventory, scope: &Scope) -> Vec<Target> {
    let mut from: BTreeMap<ResourceId, Vec<ResourceId>> = BTreeMap::new();
    for lb in &scope.load_balancers {
        if inventory.body(lb).is_some_and(|body| Frontend::all(lb, body).next().is_some()) {
            from.entry(successor(inventory, scope, lb)).or_default().push(lb.clone());
        }
    }
    let successors: BTreeMap<ResourceId, ResourceId> = from
        .iter()
        .flat_map(|(new, basic)| basic.iter().map(move |basic| (basic.clone(), new.clone())))
        .collect();
    from.into_iter().map(|(id, from)| target(inventory, id, from, &successors)).collect()
}

fn target(
    inventory: &Inventory,
    id: ResourceId,
    from: Vec<ResourceId>,
    successors: &BTreeMap<ResourceId, ResourceId>,
) -> Target {
    let basics = from.iter().filter_map(|lb| Some((lb, inventory.body(lb)?)));
    let (mut public, mut private) = (BTreeSet::new(), Vec::new());
    for frontend in basics.clone().flat_map(|(lb, body)| Frontend::all(lb, body)) {
        public.extend(frontend.public.clone());
        if let (Some(subnet), Some(address)) = (frontend.subnet, frontend.private) {
            private.push(PrivateAddress { frontend: frontend.name.to_owned(), subnet, address });
        }
    }
    let mut merged: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let mut conflicts = Vec::new();
    let (mut location, mut tags) = (Value::Null, Value::Null);
    for (_, basic) in basics {
        location = basic["location"].clone();
        if basic["tags"].is_object() {
            tags = basic["tags"].clone();
        }
        for collection in COLLECTIONS {
            let all = merged.entry(collection).or_default();
            for item in items(&basic["properties"][collection]) {
                let item = child(collection, item, successors);
                match all.iter().find(|other| other["name"] == item["name"]) {
                    Some(same) if *same == item => {}
                    Some(_) => conflicts.push(format!("{collection} {}", text(&item["name"]))),
                    None => all.push(item),
                }
            }
        }
    }
    let mut body = json!({
        "location": location,
        "sku": { "name": "Standard", "tier": "Regional" },
        "properties": merged,
    });
    if tags.is_object() {
        body["tags"] = tags;
    }
    if inventory.cluster.membership == Membership::NodeIp {
        add_addresses(&mut body, &inventory.cluster);
    }
    Target { id, from, body, public, private, conflicts }
}

/// Returns a child of a load balancer as in a Standard one, without the fields that Azure computes.
fn child(collection: &str, item: &Value, successors: &BTreeMap<ResourceId, ResourceId>) -> Value {
    let mut item = item.clone();
    repoint(&mut item, successors);
    let mut properties = std::mem::take(object(&mut item, "properties"));
    for key in ["provisioningState", "resourceGuid", "gatewayLoadBalancer"] {
        properties.remove(key);
    }
    if collection != "loadBalancingRules" {
        for key in
            ["loadBalancingRules", "inboundNatRules", "inboundNatPools", "outboundRules", "outboundRule"]
        {
            properties.remove(key);
        }
    }
    match collection {
        "frontendIPConfigurations" => frontend(&mut properties),
        "backendAddressPools" => {
            properties.remove("backendIPConfigurations");
            properties.remove("loadBalancerBackendAddresses");
        }
        "inboundNatRules" => {
            properties.remove("backendIPConfiguration");
        }
        _ => {}
    }
    properties.retain(|_, value| !value.is_null());
    json!({ "name": item["name"], "properties": properties })
}

/// Converts a frontend: an internal one keeps its address as a static one, and a public one keeps its public address.
fn frontend(properties: &mut Map<String, Value>) {
    properties.remove("zones");
    if properties.get("publicIPAddress").is_some_and(Value::is_object) {
        let address = json!({ "id": properties["publicIPAddress"]["id"] });
        properties.retain(|key, _| key == "privateIPAddressVersion");
        properties.insert("publicIPAddress".to_owned(), address);
    } else {
        let subnet = json!({ "id": properties.get("subnet").map_or(&Value::Null, |subnet| &subnet["id"]) });
        properties.insert("subnet".to_owned(), subnet);
        properties.insert("privateIPAllocationMethod".to_owned(), json!("Static"));
    }
}

/// Replaces each id of a child of a Basic load balancer.
fn repoint(value: &mut Value, successors: &BTreeMap<ResourceId, ResourceId>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match value {
                    Value::String(text) if key == "id" => {
                        if let Some(new) = repointed(successors, &ResourceId::new(text.as_str())) {
                            *text = new.into();
                        }
                    }
                    Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::String(_)
                    | Value::Array(_)
                    | Value::Object(_) => repoint(value, successors),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| repoint(item, successors)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Fills the cluster's pools with the nodes' addresses, one for each node and family.
fn add_addresses(body: &mut Value, cluster: &Cluster) {
    let Some(pools) = body["properties"]["backendAddressPools"].as_array_mut() else { return };
    for pool in pools {
        let Some(is_ipv6) = cluster_pool(text(&pool["name"]), cluster) else { continue };
        let nodes = cluster.nodes.iter().filter(|node| !node.excluded);
        let entries: Vec<Value> = nodes
            .filter_map(|node| {
                let address = node.addresses.iter().find(|address| address.is_ipv6() == is_ipv6)?;
                Some(json!({ "name": node.name, "properties": { "ipAddress": address } }))
            })
            .collect();
        let properties = object(pool, "properties");
        properties.insert("loadBalancerBackendAddresses".to_owned(), Value::Array(entries));
        if let Some(network) = &cluster.network {
            properties.insert("virtualNetwork".to_owned(), json!({ "id": network }));
        }
    }
}

/// Returns the target's body without frontends whose address is taken, and without their rules.
#[must_use]
pub fn without(body: &Value, frontends: &BTreeSet<String>) -> Value {
    if frontends.is_empty() {
        return body.clone();
    }
    let mut body = body.clone();
    let uses = |item: &Value| {
        let id = ResourceId::new(text(&item["properties"]["frontendIPConfiguration"]["id"]));
        frontends.contains(id.name())
    };
    for collection in COLLECTIONS {
        let Some(list) = body["properties"][collection].as_array_mut() else { continue };
        match collection {
            "frontendIPConfigurations" => list.retain(|item| !frontends.contains(text(&item["name"]))),
            _ => list.retain(|item| !uses(item)),
        }
    }
    body
}

/// Returns the names of the children of `wanted` that the live load balancer lacks or has with other settings.
#[must_use]
pub fn missing(wanted: &Value, live: &Value) -> Vec<String> {
    let mut missing = Vec::new();
    if !text(&live["sku"]["name"]).eq_ignore_ascii_case("Standard") {
        missing.push("the SKU Standard".to_owned());
    }
    for collection in COLLECTIONS {
        let there = items(&live["properties"][collection]);
        for item in items(&wanted["properties"][collection]) {
            let same = |other: &&Value| text(&other["name"]).eq_ignore_ascii_case(text(&item["name"]));
            if !there
                .iter()
                .find(same)
                .is_some_and(|other| includes(&other["properties"], &item["properties"]))
            {
                missing.push(format!("{collection} {}", text(&item["name"])));
            }
        }
    }
    missing
}

/// Returns whether a value includes another one. The order of lists does not matter.
fn includes(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| includes(live.get(key).unwrap_or(&Value::Null), value))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            wanted.iter().all(|item| live.iter().any(|other| includes(other, item)))
        }
        (Value::Null, Value::Array(wanted)) => wanted.is_empty(),
        (Value::String(live), Value::String(wanted)) => live.eq_ignore_ascii_case(wanted),
        (live, wanted) => live == wanted,
    }
}

/// Returns the body of a PUT that adds the missing children to a live Standard load balancer and keeps the rest.
#[must_use]
pub fn completed(wanted: &Value, live: &Value) -> Value {
    let mut body = live.clone();
    for key in ["provisioningState", "resourceGuid"] {
        object(&mut body, "properties").remove(key);
    }
    for collection in COLLECTIONS {
        let mut all: Vec<Value> = items(&live["properties"][collection]).to_vec();
        for item in items(&wanted["properties"][collection]) {
            let same = |other: &Value| text(&other["name"]).eq_ignore_ascii_case(text(&item["name"]));
            match all.iter().position(same) {
                Some(at) if includes(&all[at]["properties"], &item["properties"]) => {}
                Some(at) => all[at] = item.clone(),
                None => all.push(item.clone()),
            }
        }
        for pool in all.iter_mut().filter(|_| collection == "backendAddressPools") {
            let properties = object(pool, "properties");
            let by_interface = properties.remove("backendIPConfigurations");
            // Azure refuses these entries in a PUT if the members are interfaces.
            if by_interface.is_some_and(|members| !items(&members).is_empty()) {
                properties.remove("loadBalancerBackendAddresses");
            }
        }
        object(&mut body, "properties").insert(collection.to_owned(), Value::Array(all));
    }
    body
}

/// Returns the settings of a Basic load balancer that clients can change, in a comparable form.
#[must_use]
pub fn settings(body: &Value) -> Value {
    let none = BTreeMap::new();
    let all = COLLECTIONS.map(|collection| {
        let mut all: Vec<Value> = items(&body["properties"][collection])
            .iter()
            .map(|item| child(collection, item, &none))
            .collect();
        all.sort_by_key(|item| text(&item["name"]).to_ascii_lowercase());
        (collection.to_owned(), Value::Array(all))
    });
    Value::Object(all.into_iter().collect())
}
