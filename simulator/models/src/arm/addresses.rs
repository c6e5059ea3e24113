//! Private addresses of subnets and public addresses: holders, and the next free address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::resource_type::ResourceType;
use super::resources::{ip_configurations, last, link};
use super::rules::{self, Rule};
use super::store::{LoadBalancerContent, key};
use super::{ArmModel, Call};

/// Number of addresses at the start of a subnet that Azure reserves.
const RESERVED: u128 = 4;
/// Number of free addresses that the provider offers instead of a taken one.
const OFFERED: usize = 5;

/// A range of addresses in the notation `10.0.0.0/24`.
#[derive(Clone, Copy, Debug)]
struct Prefix {
    first: u128,
    count: u128,
    is_v6: bool,
}

impl Prefix {
    fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let (address, length) = (address.parse::<IpAddr>().ok()?, length.parse::<u32>().ok()?);
        let width: u32 = if address.is_ipv6() { 128 } else { 32 };
        let count = 1_u128.checked_shl(width.checked_sub(length)?).unwrap_or(u128::MAX);
        let first = number(address) / count * count;
        Some(Self { first, count, is_v6: address.is_ipv6() })
    }

    fn contains(self, address: IpAddr) -> bool {
        address.is_ipv6() == self.is_v6
            && (self.first..self.first.saturating_add(self.count)).contains(&number(address))
    }

    /// Returns the assignable addresses of a subnet, in order.
    fn usable(self) -> impl Iterator<Item = IpAddr> {
        let end = self.count.saturating_sub(1);
        (RESERVED..end).map_while(move |at| {
            let number = self.first.checked_add(at)?;
            Some(if self.is_v6 {
                IpAddr::V6(Ipv6Addr::from_bits(number))
            } else {
                IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(number).ok()?))
            })
        })
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Requester of a private address.
pub(super) struct AddressRequester<'a> {
    /// Id of the IP configuration.
    pub(super) id: &'a str,
    /// Id of the resource that is being replaced; addresses below it do not count as taken.
    pub(super) owner: &'a str,
}

impl ArmModel {
    /// Returns the subnet of this id, as its virtual network has it.
    pub(super) fn subnet(&self, id: &str) -> Option<&Map<String, Value>> {
        let subnets_at = key(id).rfind("/subnets/")?;
        let network = self.resources.get(&id[..subnets_at])?;
        let all = network.body.properties.get("subnets")?.as_array()?;
        let found = all.iter().find(|one| {
            one.get("name").and_then(Value::as_str).is_some_and(|name| name.eq_ignore_ascii_case(last(id)))
        });
        found?.get("properties")?.as_object()
    }

    fn prefixes(&self, subnet: &str) -> Vec<Prefix> {
        let Some(properties) = self.subnet(subnet) else { return Vec::new() };
        let listed = properties.get("addressPrefixes").and_then(Value::as_array).into_iter().flatten();
        let all = listed.chain(properties.get("addressPrefix"));
        all.filter_map(|prefix| Prefix::parse(prefix.as_str()?)).collect()
    }

    /// Returns the taken private addresses of a subnet, with the ids of their holders.
    pub(super) fn taken_addresses(&self, subnet: &str) -> BTreeMap<IpAddr, String> {
        let subnet = key(subnet);
        let mut taken = BTreeMap::new();
        let is_here =
            |properties: &Map<String, Value>| link(properties, "subnet").is_some_and(|id| key(id) == subnet);
        for resource in self.resources.iter().filter(|resource| resource.kind != ResourceType::ScaleSet) {
            for configuration in ip_configurations(resource.kind, &resource.body) {
                let assigned =
                    resource.provider_state.addresses.get(&configuration.path()).map(String::as_str);
                let given = assigned.or_else(|| text(configuration.properties, "privateIPAddress"));
                if let Some(address) = given.and_then(|text| text.parse().ok())
                    && is_here(configuration.properties)
                {
                    taken.insert(address, configuration.id(&resource.id));
                }
            }
        }
        for balancer in self.balancers.values() {
            for frontend in balancer.frontends.iter().filter(|frontend| is_here(&frontend.properties)) {
                if let Some(address) =
                    text(&frontend.properties, "privateIPAddress").and_then(|text| text.parse().ok())
                {
                    taken.insert(
                        address,
                        format!("{}/frontendIPConfigurations/{}", balancer.id, frontend.name),
                    );
                }
            }
        }
        for ((held_in, address), until) in &self.held_addresses {
            if *held_in == subnet && *until > self.now {
                taken.entry(*address).or_insert_with(|| "an address that is being cleaned up".to_owned());
            }
        }
        taken
    }

    /// Returns the address of an IP configuration: the requested one, the current one, or the next free one.
    pub(super) fn private_address(
        &self,
        asker: &AddressRequester,
        properties: &Map<String, Value>,
        before: Option<&str>,
        also_taken: &BTreeMap<IpAddr, String>,
    ) -> Result<String, Answer> {
        let taken = self.taken_beside(link(properties, "subnet").unwrap_or_default(), asker.owner);
        self.address_beside(&taken, asker, properties, before, also_taken)
    }

    /// Returns the private addresses of a subnet that are held by other resources.
    fn taken_beside(&self, subnet: &str, owner: &str) -> BTreeMap<IpAddr, String> {
        let mut taken = self.taken_addresses(subnet);
        taken.retain(|_, holder| !is_below(holder, owner));
        taken
    }

    /// Returns the address of an IP configuration, if these addresses are taken.
    fn address_beside(
        &self,
        taken: &BTreeMap<IpAddr, String>,
        asker: &AddressRequester,
        properties: &Map<String, Value>,
        before: Option<&str>,
        also_taken: &BTreeMap<IpAddr, String>,
    ) -> Result<String, Answer> {
        let subnet = link(properties, "subnet").unwrap_or_default();
        let prefixes = self.prefixes(subnet);
        let is_static = text(properties, "privateIPAllocationMethod") == Some("Static");
        let wanted = text(properties, "privateIPAddress").filter(|_| is_static).or(before);
        let is_v6 = text(properties, "privateIPAddressVersion") == Some("IPv6");
        let Some(wanted) = wanted.and_then(|text| text.parse::<IpAddr>().ok()) else {
            let free = |address: &IpAddr| !taken.contains_key(address) && !also_taken.contains_key(address);
            let fitting = prefixes.iter().filter(|prefix| prefix.is_v6 == is_v6);
            let next = fitting.flat_map(|prefix| prefix.usable()).find(free);
            return next.map(|address| address.to_string()).ok_or_else(|| {
                Answer::provider(
                    400,
                    "SubnetIsFull",
                    &format!("Subnet {subnet} does not have enough capacity for 1 IP addresses."),
                )
            });
        };
        let id = asker.id;
        if !prefixes.iter().any(|prefix| prefix.contains(wanted)) {
            let message = format!(
                "Private static IP address {wanted} does not belong to the range of subnet {subnet}."
            );
            return Err(Rule::PrivateAddressOutside.refuse(&message));
        }
        if let Some(other) = also_taken.get(&wanted) {
            let message = format!(
                "IP configuration {id} is requesting the same private IP address {wanted} as IP Configurations {other}. Private IP address {wanted} from the subnet can be assigned to only one IP configuration."
            );
            return Err(Rule::PrivateAddressTwice.refuse(&message));
        }
        if let Some(holder) = taken.get(&wanted) {
            let message = format!(
                "IP configuration {id} is using the private IP address {wanted} which is already allocated to resource {holder}."
            );
            return Err(Rule::PrivateAddressTaken.refuse(&message));
        }
        Ok(wanted.to_string())
    }

    /// Assigns addresses to the internal frontends of a load balancer.
    pub(super) fn address_frontends(
        &self,
        id: &str,
        lb_content: &mut LoadBalancerContent,
    ) -> Result<(), Answer> {
        let before = self.balancers.get(&key(last(id)));
        let mut given = BTreeMap::new();
        let mut taken: BTreeMap<String, BTreeMap<IpAddr, String>> = BTreeMap::new();
        for frontend in &mut lb_content.frontends {
            let own = format!("{id}/frontendIPConfigurations/{}", frontend.name);
            let properties = &mut frontend.properties;
            properties.entry("privateIPAllocationMethod").or_insert("Dynamic".into());
            let Some(subnet) = link(properties, "subnet").map(str::to_owned) else { continue };
            if self.subnet(&subnet).is_none() {
                return Err(rules::dangling(&subnet, &own));
            }
            properties.entry("privateIPAddressVersion").or_insert("IPv4".into());
            let earlier = before
                .and_then(|lb| lb.frontends.iter().find(|known| key(&known.name) == key(&frontend.name)));
            let earlier = earlier
                .filter(|known| link(&known.properties, "subnet").is_some_and(|id| key(id) == key(&subnet)))
                .and_then(|known| text(&known.properties, "privateIPAddress"));
            let asker = AddressRequester { id: &own, owner: id };
            let taken = taken.entry(key(&subnet)).or_insert_with(|| self.taken_beside(&subnet, id));
            let address = self.address_beside(taken, &asker, properties, earlier, &given)?;
            if let Ok(parsed) = address.parse() {
                given.insert(parsed, own.clone());
            }
            properties.insert("privateIPAddress".to_owned(), address.into());
        }
        Ok(())
    }

    /// Returns whether a private address of a virtual network is free.
    pub(super) fn check_availability(&self, call: &Call, network: &str) -> Answer {
        let Some(network) = self.resources.get(network) else { return self.resource_not_found(network) };
        let wanted = call.target.query("ipAddress").and_then(|text| text.parse::<IpAddr>().ok());
        let Some(wanted) = wanted else {
            return Answer::provider(
                400,
                "InvalidIPAddress",
                "The query parameter ipAddress is not an IP address.",
            );
        };
        let subnets = network.body.properties.get("subnets").and_then(Value::as_array);
        let ids = subnets.into_iter().flatten().filter_map(|subnet| subnet.get("name")?.as_str());
        for subnet in ids.map(|name| format!("{}/subnets/{name}", network.id)) {
            let Some(prefix) = self.prefixes(&subnet).into_iter().find(|prefix| prefix.contains(wanted))
            else {
                continue;
            };
            let taken = self.taken_addresses(&subnet);
            let body = if taken.contains_key(&wanted) {
                let free = prefix.usable().filter(|address| !taken.contains_key(address)).take(OFFERED);
                let free: Vec<String> = free.map(|address| address.to_string()).collect();
                json!({"available": false, "availableIPAddresses": free})
            } else {
                json!({"available": true})
            };
            return Answer::json(200, body.to_string().into_bytes());
        }
        let message = format!("{wanted} is not within the address space of {}.", network.id);
        Answer::provider(400, "PrivateIPAddressNotInAnySubnet", &message)
    }
}

/// Returns the next public address; no address is assigned twice.
pub(super) fn next_public_address(given: &mut u32, is_v6: bool) -> String {
    *given += 1;
    if is_v6 {
        return Ipv6Addr::from_bits((0x2603_1030_u128 << 96) | u128::from(*given)).to_string();
    }
    Ipv4Addr::from_bits((20 << 24) | (40 << 16) | (*given & 0xFFFF)).to_string()
}

pub(super) fn text<'a>(properties: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    properties.get(name).and_then(Value::as_str)
}

fn is_below(id: &str, owner: &str) -> bool {
    key(id).strip_prefix(&key(owner)).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
