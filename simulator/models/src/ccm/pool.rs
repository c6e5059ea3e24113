//! Upstream's changes of one backend pool's JSON: EnsureHostsInPool, and the updater's add and remove.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::facts::Facts;
use crate::kube::build::Family;

const ADDRESSES: &str = "loadBalancerBackendAddresses";
/// Fields that the SDK's types for api-version 2025-05-01 have; all others are lost on a round trip.
const POOL: [&str; 5] = ["id", "name", "etag", "type", "properties"];
const POOL_PROPERTIES: [&str; 12] = [
    "backendIPConfigurations",
    "drainPeriodInSeconds",
    "inboundNatRules",
    ADDRESSES,
    "loadBalancingRules",
    "location",
    "outboundRule",
    "outboundRules",
    "provisioningState",
    "syncMode",
    "tunnelInterfaces",
    "virtualNetwork",
];
const ADDRESS: [&str; 2] = ["name", "properties"];
const ADDRESS_PROPERTIES: [&str; 7] = [
    "adminState",
    "inboundNatRulesPortMapping",
    "ipAddress",
    "loadBalancerFrontendIPConfiguration",
    "networkInterfaceIPConfiguration",
    "subnet",
    "virtualNetwork",
];

/// Returns the addresses of a pool; creates the array and the properties if they are missing.
fn addresses(pool: &mut Value) -> &mut Vec<Value> {
    let pool = object(pool);
    let properties = object(pool.entry("properties").or_insert(Value::Null));
    let listed = properties.entry(ADDRESSES).or_insert(Value::Null);
    if !listed.is_array() {
        *listed = Value::Array(Vec::new());
    }
    listed.as_array_mut().expect("an array was put there")
}

/// Returns the value as an object; replaces a value of another type with an empty object.
pub(super) fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("an object was put there")
}

fn ip_of(address: &Value) -> &str {
    address["properties"]["ipAddress"].as_str().unwrap_or_default()
}

/// Returns the IPs in a pool.
pub(super) fn ips(pool: &Value) -> BTreeSet<String> {
    let listed = pool["properties"][ADDRESSES].as_array().into_iter().flatten();
    listed.map(|address| ip_of(address).to_owned()).filter(|ip| !ip.is_empty()).collect()
}

/// Returns whether the pool is NIC-based.
pub(super) fn is_filled_by_interfaces(pool: &Value) -> bool {
    pool["properties"]["backendIPConfigurations"].as_array().is_some_and(|list| !list.is_empty())
}

/// Runs EnsureHostsInPool: adds the nodes that host endpoints (all nodes if `hosts` is `None`), and removes all others.
/// Returns whether anything changed.
pub(super) fn ensure_hosts(
    pool: &mut Value,
    facts: &Facts,
    family: Family,
    hosts: Option<&BTreeSet<String>>,
    network: &str,
) -> bool {
    let existing = ips(pool);
    let eligible: Vec<_> = facts.nodes.values().filter(|node| node.eligible).collect();
    let of_nodes: BTreeSet<&str> = eligible.iter().filter_map(|node| node.ip(family)).collect();
    let is_host = |name: &str| hosts.is_none_or(|hosts| hosts.contains(&name.to_lowercase()));
    let wanted = eligible.iter().filter(|node| is_host(&node.name)).filter_map(|node| node.ip(family));
    let missing: Vec<String> = wanted.filter(|ip| !existing.contains(*ip)).map(str::to_owned).collect();
    let added = add(pool, &missing, facts, network);
    let surplus: BTreeSet<String> = addresses(pool)
        .iter()
        .map(ip_of)
        .filter(|ip| {
            // If the name of its node is unknown, an IP stays as long as an eligible node has it.
            let name = facts.name_of(ip);
            !of_nodes.contains(ip) || (!name.is_empty() && !is_host(name))
        })
        .map(str::to_owned)
        .collect();
    if !surplus.is_empty() {
        remove(pool, &surplus);
    }
    added || !surplus.is_empty()
}

/// Adds missing IPs. Sets the virtual network of the pool if neither the pool nor one of its addresses has one.
pub(super) fn add(pool: &mut Value, wanted: &[String], facts: &Facts, network: &str) -> bool {
    let listed = addresses(pool);
    let named = listed.iter().any(|address| !address["properties"]["virtualNetwork"].is_null());
    let mut added = false;
    for ip in wanted.iter().filter(|ip| !ip.is_empty()) {
        if !listed.iter().any(|address| ip_of(address) == ip) {
            listed.push(json!({"name": facts.name_of(ip), "properties": {"ipAddress": ip}}));
            added = true;
        }
    }
    if !named && pool["properties"]["virtualNetwork"]["id"].as_str().unwrap_or_default().is_empty() {
        pool["properties"]["virtualNetwork"] = json!({ "id": network });
    }
    added
}

/// Removes these IPs, and entries without an IP.
pub(super) fn remove(pool: &mut Value, unwanted: &BTreeSet<String>) -> bool {
    let listed = addresses(pool);
    let before = listed.len();
    listed.retain(|address| {
        let ip = ip_of(address);
        !ip.is_empty() && !unwanted.iter().any(|unwanted| unwanted.eq_ignore_ascii_case(ip))
    });
    listed.len() != before
}

/// Removes every field of a pool that the SDK's types do not have.
pub(super) fn keep_known_fields(pool: &mut Value) {
    keep(pool, &POOL);
    keep(&mut pool["properties"], &POOL_PROPERTIES);
    for address in addresses(pool) {
        keep(address, &ADDRESS);
        keep(&mut address["properties"], &ADDRESS_PROPERTIES);
    }
}

fn keep(value: &mut Value, known: &[&str]) {
    object(value).retain(|name, _| known.contains(&name.as_str()));
}
