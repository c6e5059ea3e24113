//! The parts of a snapshot's pre-images that can be restored: addresses, and the names of their entries.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::bail;
use model::ids::{AddressName, LbName, PoolId, PoolName};
use model::pins::{Pin, Pins};
use serde_json::Value;

use crate::cli::snapshot::compare;
use crate::cli::snapshot::format::{Filter, Snapshot};

/// The pre-image of a pool.
pub(super) struct Image {
    pub(super) id: PoolId,
    document: Value,
    /// The members and their names, or the reason why they cannot be restored.
    pub(super) members: Result<Members, String>,
}

/// The members of a pool, and the names of their entries.
pub(super) type Members = BTreeMap<IpAddr, AddressName>;

/// Returns the pre-images that the filter selects.
///
/// # Errors
/// The filter names a load balancer or pool that is not in the snapshot.
pub(super) fn images_of(stored: &Snapshot, filter: &Filter) -> anyhow::Result<Vec<Image>> {
    let balancers = || stored.load_balancers.iter();
    if let Some(name) =
        filter.load_balancers.iter().find(|name| !balancers().any(|lb| lb.name.eq_ignore_ascii_case(name)))
    {
        bail!("--lb {name}: no load balancer of that name is in the snapshot");
    }
    let mut images = Vec::new();
    for lb in balancers().filter(|lb| filter.includes_balancer(&lb.name)) {
        for pool in lb.pools.iter().filter(|pool| filter.includes_pool(&pool.name)) {
            let document = serde_json::from_str(pool.document.get()).unwrap_or_default();
            let id = PoolId::new(LbName::new(lb.name.as_str()), PoolName::new(pool.name.as_str()));
            images.push(Image { id, members: members(&document), document });
        }
    }
    let has = |name: &str| images.iter().any(|image| image.id.pool.as_str().eq_ignore_ascii_case(name));
    if let Some(name) = filter.pools.iter().find(|name| !has(name)) {
        bail!("--pool {name}: no pool of that name is on the selected load balancers of the snapshot");
    }
    Ok(images)
}

/// The permissions that the operator gives with flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Permissions {
    /// `--allow-empty`.
    pub(super) empty: bool,
    /// `--allow-unserved`.
    pub(super) unserved: bool,
    /// `--pool`: the pools are named, so that they are written even if they are paused.
    pub(super) paused: bool,
}

/// Returns the pins for the machines.
pub(super) fn pins(images: &[Image], permissions: Permissions) -> Pins {
    let pin = |image: &Image| {
        let (allow_empty, allow_unserved, ignore_pause) =
            (permissions.empty, permissions.unserved, permissions.paused);
        let members = image.members.clone().ok()?;
        Some((image.id.clone(), Pin { members, allow_empty, allow_unserved, ignore_pause }))
    };
    Pins(images.iter().filter_map(pin).collect())
}

impl Image {
    /// Returns whether the pool has the members of the pre-image now, whatever their names.
    pub(super) fn has_current_members(&self, now: &Value) -> bool {
        match (&self.members, members(now)) {
            (Ok(then), Ok(now)) => then.keys().eq(now.keys()),
            (Err(_), Err(_)) => compare::same_members(&self.document, now),
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
        }
    }

    /// Returns the other differences, which are not restored.
    pub(super) fn other_differences(&self, now: &Value) -> Vec<String> {
        let mut differences = compare::besides_members(&self.document, now);
        if let (Ok(then), Ok(now)) = (&self.members, members(now)) {
            let renamed = then.iter().filter_map(|(ip, was)| Some((ip, was, now.get(ip)?)));
            let renamed = renamed.filter(|(_, was, is)| was != is);
            differences.extend(renamed.map(|(ip, was, is)| format!("{ip}: name was {was} and is {is}")));
        }
        differences
    }
}

/// Returns the members of a pool's document. Entries without an address are no members.
///
/// # Errors
/// The pool has members by network interface, or an invalid address.
pub(super) fn members(pool: &Value) -> Result<Members, String> {
    let properties = &pool["properties"];
    if properties["backendIPConfigurations"].as_array().is_some_and(|all| !all.is_empty()) {
        return Err("it has members by network interface".to_owned());
    }
    let mut members = BTreeMap::new();
    for entry in properties["loadBalancerBackendAddresses"].as_array().into_iter().flatten() {
        let name = entry["name"].as_str().unwrap_or_default();
        if !entry["properties"]["networkInterfaceIPConfiguration"].is_null() {
            return Err("it has members by network interface".to_owned());
        }
        let text = entry["properties"]["ipAddress"].as_str().unwrap_or_default();
        if text.is_empty() {
            continue;
        }
        let ip = text.parse().map_err(|_| format!("its entry {name:?} has the invalid address {text:?}"))?;
        let name = if name.is_empty() { text.replace(['.', ':'], "-") } else { name.to_owned() };
        members.entry(ip).or_insert_with(|| AddressName::new(name));
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(entries: Value) -> Value {
        json!({ "name": "p", "properties": { "loadBalancerBackendAddresses": entries } })
    }

    #[test]
    fn members_are_read_by_name_and_invalid_addresses_refused() {
        let entry = |name: &str, ip: &str| json!({ "name": name, "properties": { "ipAddress": ip } });
        let read = members(&pool(json!([entry("n1", "10.0.0.1"), entry("x", ""), entry("", "fd00::2")])));
        let read: Vec<(String, String)> =
            read.expect("addresses").iter().map(|(ip, name)| (ip.to_string(), name.to_string())).collect();
        let own = |ip: &str, name: &str| (ip.to_owned(), name.to_owned());
        assert_eq!(read, [own("10.0.0.1", "n1"), own("fd00::2", "fd00--2")]);
        assert!(members(&json!({})).expect("no members").is_empty());
        let nic = json!({ "name": "n", "properties": { "networkInterfaceIPConfiguration": { "id": "/n" } } });
        let nics = json!({ "properties": { "backendIPConfigurations": [{ "id": "/n" }] } });
        for (document, expected) in [
            (pool(json!([nic])), "network interface"),
            (nics, "network interface"),
            (pool(json!([entry("n", "10.0.0")])), "\"10.0.0\""),
        ] {
            assert!(members(&document).expect_err(expected).contains(expected));
        }
    }

    #[test]
    fn differences_other_than_members_are_reported() {
        let then = pool(json!([{ "name": "a", "properties": { "ipAddress": "10.0.0.1" } },
            { "name": "b", "properties": { "ipAddress": "10.0.0.2" } }]));
        let now = pool(json!([{ "name": "c", "properties": { "ipAddress": "10.0.0.1" } },
            { "name": "b", "properties": { "ipAddress": "10.0.0.2", "adminState": "Down" } }]));
        let id = PoolId::new(LbName::new("lb"), PoolName::new("p"));
        let image = Image { id, members: members(&then), document: then };
        let expected = ["10.0.0.2 (b): adminState was None and is Down", "10.0.0.1: name was a and is c"];
        assert_eq!(image.other_differences(&now), expected);
        assert!(image.other_differences(&image.document).is_empty());
    }
}
