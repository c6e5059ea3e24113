//! The pre-images of a snapshot, as far as they can be put back: addresses and the names of their entries.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::bail;
use model::ids::{AddressName, LbName, PoolId, PoolName};
use model::pins::{Pin, Pins};
use serde_json::Value;

use crate::cli::snapshot::compare;
use crate::cli::snapshot::format::{Filter, Snapshot};

/// What a pool was.
pub(super) struct Image {
    pub(super) id: PoolId,
    document: Value,
    /// Its members and their names, or why they cannot be put back.
    pub(super) members: Result<Members, String>,
}

/// The members of a pool, and the names of their entries.
pub(super) type Members = BTreeMap<IpAddr, AddressName>;

/// The pre-images that are wanted.
///
/// # Errors
/// Something is wanted that is not in the snapshot.
pub(super) fn wanted(stored: &Snapshot, filter: &Filter) -> anyhow::Result<Vec<Image>> {
    let balancers = || stored.load_balancers.iter();
    if let Some(name) =
        filter.load_balancers.iter().find(|name| !balancers().any(|lb| lb.name.eq_ignore_ascii_case(name)))
    {
        bail!("--lb {name}: no load balancer of that name is in the snapshot");
    }
    let mut images = Vec::new();
    for lb in balancers().filter(|lb| filter.wants_balancer(&lb.name)) {
        for pool in lb.pools.iter().filter(|pool| filter.wants_pool(&pool.name)) {
            let document = serde_json::from_str(pool.document.get()).unwrap_or_default();
            let id = PoolId::new(LbName::new(lb.name.as_str()), PoolName::new(pool.name.as_str()));
            images.push(Image { id, members: members(&document), document });
        }
    }
    let has = |name: &str| images.iter().any(|image| image.id.pool.as_str().eq_ignore_ascii_case(name));
    if let Some(name) = filter.pools.iter().find(|name| !has(name)) {
        bail!("--pool {name}: no pool of that name is in what is wanted of the snapshot");
    }
    Ok(images)
}

/// What the operator has allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Allowed {
    /// `--allow-empty`.
    pub(super) empty: bool,
    /// `--allow-unserved`.
    pub(super) unserved: bool,
    /// `--pool`: the pools are named, so that those that are paused by themselves are written too.
    pub(super) paused: bool,
}

/// What the machines are given of them.
pub(super) fn pins(images: &[Image], allowed: Allowed) -> Pins {
    let pin = |image: &Image| {
        let (may_empty, may_starve, despite_pause) = (allowed.empty, allowed.unserved, allowed.paused);
        let members = image.members.clone().ok()?;
        Some((image.id.clone(), Pin { members, may_empty, may_starve, despite_pause }))
    };
    Pins(images.iter().filter_map(pin).collect())
}

impl Image {
    /// Whether a pool has these members now, under whatever names.
    pub(super) fn is_now(&self, now: &Value) -> bool {
        match (&self.members, members(now)) {
            (Ok(then), Ok(now)) => then.keys().eq(now.keys()),
            (Err(_), Err(_)) => compare::same_members(&self.document, now),
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
        }
    }

    /// What is different now besides the members, and is left as it is.
    pub(super) fn left(&self, now: &Value) -> Vec<String> {
        let mut left = compare::besides_members(&self.document, now);
        if let (Ok(then), Ok(now)) = (&self.members, members(now)) {
            let renamed = then.iter().filter_map(|(ip, was)| Some((ip, was, now.get(ip)?)));
            let renamed = renamed.filter(|(_, was, is)| was != is);
            left.extend(renamed.map(|(ip, was, is)| format!("{ip}: name was {was} and is {is}")));
        }
        left
    }
}

/// The members of a pool's document. Entries without an address are no members.
///
/// # Errors
/// They are not addresses alone.
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
        let ip = text.parse().map_err(|_| format!("the address {text:?} of its entry {name:?} is none"))?;
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
    fn members_are_read_with_their_names_and_what_is_no_address_is_refused() {
        let entry = |name: &str, ip: &str| json!({ "name": name, "properties": { "ipAddress": ip } });
        let read = members(&pool(json!([entry("n1", "10.0.0.1"), entry("x", ""), entry("", "fd00::2")])));
        let read: Vec<(String, String)> =
            read.expect("addresses").iter().map(|(ip, name)| (ip.to_string(), name.to_string())).collect();
        let own = |ip: &str, name: &str| (ip.to_owned(), name.to_owned());
        assert_eq!(read, [own("10.0.0.1", "n1"), own("fd00::2", "fd00--2")]);
        assert!(members(&json!({})).expect("no members").is_empty());
        let nic = json!({ "name": "n", "properties": { "networkInterfaceIPConfiguration": { "id": "/n" } } });
        let nics = json!({ "properties": { "backendIPConfigurations": [{ "id": "/n" }] } });
        for (document, said) in [
            (pool(json!([nic])), "network interface"),
            (nics, "network interface"),
            (pool(json!([entry("n", "10.0.0")])), "\"10.0.0\""),
        ] {
            assert!(members(&document).expect_err(said).contains(said));
        }
    }

    #[test]
    fn what_is_different_besides_members_is_told() {
        let then = pool(json!([{ "name": "a", "properties": { "ipAddress": "10.0.0.1" } },
            { "name": "b", "properties": { "ipAddress": "10.0.0.2" } }]));
        let now = pool(json!([{ "name": "c", "properties": { "ipAddress": "10.0.0.1" } },
            { "name": "b", "properties": { "ipAddress": "10.0.0.2", "adminState": "Down" } }]));
        let id = PoolId::new(LbName::new("lb"), PoolName::new("p"));
        let image = Image { id, members: members(&then), document: then };
        let told = ["10.0.0.2 (b): adminState was None and is Down", "10.0.0.1: name was a and is c"];
        assert_eq!(image.left(&now), told);
        assert!(image.left(&image.document).is_empty());
    }
}
