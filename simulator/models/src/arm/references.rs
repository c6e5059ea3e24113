//! Keeps references consistent on both sides: the users determine what a public IP, a pool or a NAT rule shows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::ArmModel;
use super::addresses::{next_public_address, text};
use super::interfaces::{BALANCER_LINKS, has_child};
use super::random::Random;
use super::resource_type::ResourceType;
use super::resources::{Etag, balancer_child, ip_configurations, link, links};
use super::schedule::Event;
use super::store::{Address, Pool, key};

/// The ids of the member IP configurations, by the keys of load balancer and pool.
type Members = BTreeMap<(String, String), BTreeSet<String>>;

impl ArmModel {
    /// Returns the ids of users, by the key of each public IP in use.
    pub(super) fn public_ip_users(&self) -> BTreeMap<String, Vec<String>> {
        let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut add_user = |address: &str, user: String| users.entry(key(address)).or_default().push(user);
        for balancer in self.balancers.values() {
            for frontend in &balancer.frontends {
                if let Some(address) = link(&frontend.properties, "publicIPAddress") {
                    add_user(address, format!("{}/frontendIPConfigurations/{}", balancer.id, frontend.name));
                }
            }
        }
        for resource in self.resources.iter() {
            if resource.kind == ResourceType::NetworkInterface {
                for configuration in ip_configurations(resource.kind, &resource.body) {
                    if let Some(address) = link(configuration.properties, "publicIPAddress") {
                        add_user(address, configuration.id(&resource.id));
                    }
                }
            }
            if resource.kind == ResourceType::NatGateway {
                for address in links(&resource.body.properties, "publicIpAddresses") {
                    add_user(address, resource.id.clone());
                }
            }
        }
        users
    }

    /// Updates every public IP, pool and NAT rule from its users.
    pub(super) fn follow_references(&mut self) {
        if self.resources.is_empty() {
            return;
        }
        self.remove_stale_references();
        self.follow_public_ips();
        let (members, nat) = self.users_of_balancers();
        for (lb_key, balancer) in &mut self.balancers {
            let mut changed = false;
            for (pool_key, pool) in &mut balancer.pools {
                let wanted = members.get(&(lb_key.clone(), pool_key.clone()));
                changed |= follow_members(pool, wanted);
            }
            let targets = nat.get(lb_key).cloned().unwrap_or_default();
            changed |= balancer.nat_targets != targets;
            balancer.nat_targets = targets;
            if changed {
                balancer.etag = self.identities.guid();
            }
        }
    }

    /// Updates public IPs from their users. A dynamic address exists only while there is a user; the etag changes with
    /// the user.
    fn follow_public_ips(&mut self) {
        let users = self.public_ip_users();
        for address in self.resources.iter_mut().filter(|one| one.kind == ResourceType::PublicIpAddress) {
            let user = users.get(&address.key()).and_then(|users| users.first()).cloned();
            if address.provider_state.attached == user {
                continue;
            }
            address.etag = Etag::Weak(self.identities.guid());
            let properties = &mut address.body.properties;
            if text(properties, "publicIPAllocationMethod") == Some("Dynamic") {
                if user.is_none() {
                    properties.shift_remove("ipAddress");
                } else if !properties.contains_key("ipAddress") {
                    let is_v6 = text(properties, "publicIPAddressVersion") == Some("IPv6");
                    let given = next_public_address(&mut self.public_addresses, is_v6);
                    properties.insert("ipAddress".to_owned(), given.into());
                }
            }
            address.provider_state.attached = user;
        }
    }

    /// Returns the members of pools, and the IP configurations that use a NAT rule, by load balancer and rule.
    fn users_of_balancers(&self) -> (Members, BTreeMap<String, BTreeMap<String, String>>) {
        let mut members = Members::new();
        let mut nat: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for resource in self.resources.iter().filter(|one| one.kind != ResourceType::ScaleSet) {
            for configuration in ip_configurations(resource.kind, resource.in_force()) {
                let id = configuration.id(&resource.id);
                for pool in links(configuration.properties, "loadBalancerBackendAddressPools") {
                    if let Some((balancer, _, pool)) = balancer_child(pool) {
                        members.entry((key(balancer), key(pool))).or_default().insert(id.clone());
                    }
                }
                for rule in links(configuration.properties, "loadBalancerInboundNatRules") {
                    if let Some((balancer, _, rule)) = balancer_child(rule) {
                        nat.entry(key(balancer)).or_default().insert(key(rule), id.clone());
                    }
                }
            }
        }
        nat.retain(|balancer, rules| match self.balancers.get(balancer) {
            Some(lb) => {
                rules.retain(|rule, _| lb.inbound_nat_rules.iter().any(|known| key(&known.name) == *rule));
                true
            }
            None => false,
        });
        (members, nat)
    }

    /// Removes a deleted load balancer; its private addresses become free.
    pub(super) fn vanish(&mut self, lb_key: &str) {
        let Some(gone) = self.balancers.remove(lb_key) else { return };
        for frontend in &gone.frontends {
            self.free_address(&frontend.properties);
        }
    }

    /// Removes references of interfaces to missing pools and NAT rules. Scale sets and their instances keep theirs.
    fn remove_stale_references(&mut self) {
        let balancers = &self.balancers;
        let is_there = |id: &str| {
            balancer_child(id).is_some_and(|(name, kind, child)| {
                balancers.get(&key(name)).is_some_and(|lb| has_child(lb, kind, child))
            })
        };
        for interface in self.resources.iter_mut().filter(|one| one.kind == ResourceType::NetworkInterface) {
            if retain_links(&mut interface.body.properties, is_there) {
                interface.etag = Etag::Weak(self.identities.guid());
            }
        }
    }

    fn free_address(&mut self, properties: &Map<String, Value>) {
        let subnet = link(properties, "subnet").map(key);
        let address = text(properties, "privateIPAddress").and_then(|text| text.parse::<IpAddr>().ok());
        let Some((subnet, address)) = subnet.zip(address) else { return };
        if self.settings.address_hold_us > 0 {
            let until = self.now.saturating_add(self.settings.address_hold_us);
            self.held_addresses.insert((subnet.clone(), address), until);
        }
        if let Some(after_us) = self.address_takers.get(&address).copied() {
            self.schedule.plan(self.now.saturating_add(after_us), Event::TakeAddress { subnet, address });
        }
    }
}

/// Updates the members of a pool from the interfaces that refer to it; returns whether anything changed.
fn follow_members(pool: &mut Pool, wanted: Option<&BTreeSet<String>>) -> bool {
    let has_ips = pool.content.addresses.iter().any(|address| address.text("ipAddress").is_some());
    let Some(wanted) = wanted.filter(|_| !has_ips) else {
        if pool.derived {
            (pool.derived, pool.nic_backed) = (false, false);
            pool.content.addresses.clear();
            return true;
        }
        return false;
    };
    let known: BTreeSet<String> =
        pool.content.addresses.iter().filter_map(Address::network_interface).map(str::to_owned).collect();
    if pool.derived && known == *wanted {
        return false;
    }
    let earlier = std::mem::take(&mut pool.content.addresses);
    let addresses = wanted.iter().map(|id| {
        let same = earlier.iter().find(|known| known.network_interface() == Some(id));
        same.cloned().unwrap_or_else(|| member(id))
    });
    pool.content.addresses = addresses.collect();
    (pool.derived, pool.nic_backed) = (true, true);
    true
}

/// Returns a member of a pool for an interface; its name is a GUID derived from the interface's id.
fn member(id: &str) -> Address {
    let seed = key(id)
        .bytes()
        .fold(7, |seed: u64, byte| seed.wrapping_mul(0x0100_0000_01B3).wrapping_add(u64::from(byte)));
    let mut properties = Map::new();
    properties.insert("networkInterfaceIPConfiguration".to_owned(), json!({ "id": id }));
    Address { name: Random::new(seed).guid().to_string(), top: Map::new(), properties }
}

/// Removes references of an interface to missing children of load balancers; returns whether there were any.
fn retain_links(properties: &mut Map<String, Value>, is_there: impl Fn(&str) -> bool) -> bool {
    let mut changed = false;
    let listed = properties.get_mut("ipConfigurations").and_then(Value::as_array_mut);
    for configuration in listed.into_iter().flatten() {
        let Some(properties) = configuration.get_mut("properties").and_then(Value::as_object_mut) else {
            continue;
        };
        for kind in BALANCER_LINKS {
            let Some(links) = properties.get_mut(kind).and_then(Value::as_array_mut) else { continue };
            let before = links.len();
            links.retain(|one| one.get("id").and_then(Value::as_str).is_some_and(&is_there));
            changed |= links.len() != before;
        }
    }
    changed
}
