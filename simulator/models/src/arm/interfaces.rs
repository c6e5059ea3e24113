//! Checks of the references from the IP configurations of interfaces, scale sets and instances, and of the members that
//! may share a load balancer.

use std::collections::{BTreeMap, BTreeSet};

use super::ArmModel;
use super::addresses::text;
use super::answer::Answer;
use super::operation::OperationName;
use super::resource_type::ResourceType;
use super::resources::{Body, IpConfiguration, balancer_child, ip_configurations, link, links};
use super::rules::{self, Rule, not_succeeded};
use super::store::{LoadBalancer, Sku, key};

/// The lists of an IP configuration that refer to children of load balancers.
pub(super) const BALANCER_LINKS: [&str; 3] =
    ["loadBalancerBackendAddressPools", "loadBalancerInboundNatRules", "loadBalancerInboundNatPools"];

/// The resource whose IP configurations are checked.
pub(super) struct Writer<'a> {
    pub(super) kind: ResourceType,
    pub(super) id: &'a str,
    pub(super) body: &'a Body,
}

impl ArmModel {
    /// Refuses IP configurations that Azure refuses.
    pub(super) fn check_configurations(&self, writer: &Writer) -> Result<(), Answer> {
        let configurations = ip_configurations(writer.kind, writer.body);
        for configuration in &configurations {
            self.check_links(writer, configuration)?;
        }
        if !configurations.is_empty() {
            self.check_skus(writer)?;
            self.check_groups(writer)?;
        }
        Ok(())
    }

    fn check_links(&self, writer: &Writer, configuration: &IpConfiguration) -> Result<(), Answer> {
        let own = configuration.id(writer.id);
        if let Some(subnet) = link(configuration.properties, "subnet") {
            self.require("Microsoft.Network/virtualNetworks/subnets/join/action", subnet)?;
            if self.subnet(subnet).is_none() {
                return Err(rules::dangling(subnet, &own));
            }
        }
        if let Some(address) = link(configuration.properties, "publicIPAddress") {
            self.check_public_ip(address, &own, writer.id)?;
        }
        for child in BALANCER_LINKS.iter().flat_map(|kind| links(configuration.properties, kind)) {
            self.check_balancer_child(writer, configuration, child)?;
        }
        Ok(())
    }

    /// Refuses a public IP that does not exist, is not ready, or is in use elsewhere.
    pub(super) fn check_public_ip(&self, address: &str, user: &str, owner: &str) -> Result<(), Answer> {
        self.require("Microsoft.Network/publicIPAddresses/join/action", address)?;
        let found = self.resources.get(address).filter(|found| found.kind == ResourceType::PublicIpAddress);
        let Some(found) = found else { return Err(rules::dangling(address, user)) };
        if found.state() != "Succeeded" {
            let message = not_succeeded(&found.id, owner, found.state(), "PutPublicIpAddressOperation");
            return Err(Rule::NotProvisioned.refuse(&message));
        }
        match found.provider_state.attached.as_deref().filter(|other| key(other) != key(user)) {
            Some(_) => {
                let message = format!(
                    "Public ip address {} is referenced by multiple ipconfigs in resource {owner}.",
                    found.id
                );
                Err(Rule::PublicIpReferencedTwice.refuse(&message))
            }
            None => Ok(()),
        }
    }

    fn check_balancer_child(
        &self,
        writer: &Writer,
        configuration: &IpConfiguration,
        child: &str,
    ) -> Result<(), Answer> {
        let own = configuration.id(writer.id);
        let found = balancer_child(child).and_then(|(name, kind, child)| {
            let lb = self.balancers.get(&key(name))?;
            has_child(lb, kind, child).then_some((lb, child))
        });
        let Some((lb, name)) = found else { return Err(rules::dangling(child, &own)) };
        self.require("Microsoft.Network/loadBalancers/backendAddressPools/join/action", child)?;
        let is_new = self.resources.get(writer.id).is_none_or(|known| {
            let earlier = ip_configurations(known.kind, &known.body);
            !earlier.iter().any(|known| {
                BALANCER_LINKS
                    .iter()
                    .any(|kind| links(known.properties, kind).iter().any(|id| key(id) == key(child)))
            })
        });
        let running = lb.running.as_ref().map(|running| running.name);
        if running == Some(OperationName::DeleteLoadBalancer) || (is_new && running.is_some()) {
            let operation = running.map_or("PutLoadBalancerOperation", OperationName::text);
            let message = not_succeeded(&lb.id, writer.id, super::render::state(lb).text(), operation);
            return Err(Rule::NotProvisioned.refuse(&message));
        }
        let Some(pool) = lb.pools.get(&key(name)).filter(|_| child.contains("/backendAddressPools/")) else {
            return Ok(());
        };
        if is_new && pool.content.addresses.iter().any(|address| address.text("ipAddress").is_some()) {
            let message = format!(
                "Backend address pool {child} cannot have both IP based addresses and the IP configuration {own}."
            );
            return Err(Rule::MixedMembership.refuse(&message));
        }
        if !configuration.is_primary && !pool.outbound_rules.is_empty() {
            let message = format!(
                "Backend address pool {child} is used by an outbound rule and referenced by the secondary IP configuration {own}."
            );
            return Err(Rule::OutboundRuleAndSecondary.refuse(&message));
        }
        Ok(())
    }

    /// Returns the SKUs of the load balancers and public IPs that a body uses.
    pub(super) fn skus(&self, kind: ResourceType, body: &Body) -> BTreeSet<Sku> {
        let mut skus = BTreeSet::new();
        for configuration in ip_configurations(kind, body) {
            let properties = configuration.properties;
            for id in BALANCER_LINKS.iter().flat_map(|list| links(properties, list)) {
                let balancer = balancer_child(id).and_then(|(name, _, _)| self.balancers.get(&key(name)));
                skus.extend(balancer.map(|lb| lb.sku));
            }
            let address = link(properties, "publicIPAddress").and_then(|id| self.resources.get(id));
            skus.extend(address.map(super::resources::Resource::sku));
            if let Some(own) = properties.get("publicIPAddressConfiguration") {
                skus.insert(Sku::of(own.get("sku")).unwrap_or(Sku::Basic));
            }
        }
        skus
    }

    /// Returns the key of the group of each interface, by the interface's key. A group is an availability set, a scale
    /// set, or a machine outside of both.
    pub(super) fn groups(&self) -> BTreeMap<String, String> {
        let mut groups = BTreeMap::new();
        for machine in self.resources.of(ResourceType::VirtualMachine) {
            let properties = &machine.body.properties;
            let set = link(properties, "availabilitySet").or(link(properties, "virtualMachineScaleSet"));
            let group = key(set.unwrap_or(&machine.id));
            let interfaces = properties.get("networkProfile").and_then(serde_json::Value::as_object);
            for interface in interfaces.into_iter().flat_map(|profile| links(profile, "networkInterfaces")) {
                groups.insert(key(interface), group.clone());
            }
        }
        groups
    }

    /// Checks that one machine, availability set or scale set uses load balancers and public IPs of only one SKU.
    fn check_skus(&self, writer: &Writer) -> Result<(), Answer> {
        let own = self.skus(writer.kind, writer.body);
        if own.is_empty() {
            return Ok(());
        }
        let groups = self.groups();
        let group = group_of(writer.kind, writer.id, &groups);
        let mut all = own.clone();
        for other in self.resources.iter().filter(|other| key(&other.id) != key(writer.id)) {
            if group_of(other.kind, &other.id, &groups) == group {
                all.extend(other.bodies().flat_map(|body| self.skus(other.kind, body)));
            }
        }
        if all.len() > 1 {
            let message = format!(
                "Different basic sku and standard sku load balancer resources and public IP addresses are not allowed in {group}."
            );
            let rule = match writer.kind {
                ResourceType::ScaleSet | ResourceType::ScaleSetVm => Rule::MixedSkusInScaleSet,
                ResourceType::NetworkInterface
                | ResourceType::PublicIpAddress
                | ResourceType::VirtualNetwork
                | ResourceType::Subnet
                | ResourceType::NetworkSecurityGroup
                | ResourceType::SecurityRule
                | ResourceType::NatGateway
                | ResourceType::RouteTable
                | ResourceType::AvailabilitySet
                | ResourceType::VirtualMachine => Rule::MixedSkus,
            };
            return Err(rule.refuse(&message));
        }
        if own.contains(&Sku::Basic) {
            self.check_basic(writer, &group)?;
        }
        Ok(())
    }

    /// Checks that Basic resources are used neither behind a NAT gateway nor by flexible scale sets.
    fn check_basic(&self, writer: &Writer, group: &str) -> Result<(), Answer> {
        let flexible = |set: &super::resources::Resource| {
            text(&set.body.properties, "orchestrationMode") == Some("Flexible")
        };
        let in_flexible = self.resources.get(group).is_some_and(flexible);
        if in_flexible || text(&writer.body.properties, "orchestrationMode") == Some("Flexible") {
            let message =
                format!("Basic SKU resources cannot be used by {group} with flexible orchestration.");
            return Err(Rule::BasicAndFlexible.refuse(&message));
        }
        for configuration in ip_configurations(writer.kind, writer.body) {
            let Some(subnet) = link(configuration.properties, "subnet") else { continue };
            if self.subnet(subnet).is_some_and(|found| link(found, "natGateway").is_some()) {
                return Err(nat_gateway_and_basic(subnet, writer.id));
            }
        }
        Ok(())
    }

    /// Checks that a Basic load balancer has members from only one availability set or scale set.
    fn check_groups(&self, writer: &Writer) -> Result<(), Answer> {
        let groups = self.groups();
        let group = group_of(writer.kind, writer.id, &groups);
        let used = pools_used(writer.kind, writer.body);
        let is_basic = |name: &&String| self.balancers.get(*name).is_some_and(|lb| lb.sku == Sku::Basic);
        for name in used.iter().filter(is_basic) {
            for other in self.resources.iter().filter(|other| key(&other.id) != key(writer.id)) {
                let uses = other.bodies().any(|body| pools_used(other.kind, body).contains(name));
                if uses && group_of(other.kind, &other.id, &groups) != group {
                    let message = format!(
                        "Network interface {} uses load balancer {name} which has members in another availability set than {group}.",
                        writer.id
                    );
                    return Err(Rule::OtherAvailabilitySet.refuse(&message));
                }
            }
        }
        Ok(())
    }

    /// Returns the ids of the resources that use Basic resources in a subnet.
    pub(super) fn basic_users(&self, subnet: &str) -> Vec<String> {
        let is_here = |properties: &serde_json::Map<String, serde_json::Value>| {
            link(properties, "subnet").is_some_and(|id| key(id) == key(subnet))
        };
        let mut users = Vec::new();
        for resource in self.resources.iter() {
            let here = resource.bodies().any(|body| {
                ip_configurations(resource.kind, body).iter().any(|one| is_here(one.properties))
                    && self.skus(resource.kind, body).contains(&Sku::Basic)
            });
            if here {
                users.push(resource.id.clone());
            }
        }
        let basic = self.balancers.values().filter(|lb| lb.sku == Sku::Basic);
        let internal = basic.filter(|lb| lb.frontends.iter().any(|frontend| is_here(&frontend.properties)));
        users.extend(internal.map(|lb| lb.id.to_string()));
        users
    }
}

pub(super) fn nat_gateway_and_basic(subnet: &str, user: &str) -> Answer {
    let message = format!(
        "NAT Gateway cannot be deployed on subnet {subnet} containing Basic SKU Public IP addresses or Basic SKU Load Balancer ({user})."
    );
    Rule::NatGatewayAndBasic.refuse(&message)
}

/// Returns the group of a member, by its key.
pub(super) fn group_of(kind: ResourceType, id: &str, groups: &BTreeMap<String, String>) -> String {
    let own = key(id);
    if kind == ResourceType::ScaleSetVm {
        return own.rsplit_once("/virtualmachines/").map_or(own.clone(), |(set, _)| set.to_owned());
    }
    groups.get(&own).cloned().unwrap_or(own)
}

/// Returns the keys of the load balancers whose pools a body uses.
pub(super) fn pools_used(kind: ResourceType, body: &Body) -> BTreeSet<String> {
    let configurations = ip_configurations(kind, body);
    let pools =
        configurations.iter().flat_map(|one| links(one.properties, "loadBalancerBackendAddressPools"));
    pools.filter_map(balancer_child).map(|(balancer, _, _)| key(balancer)).collect()
}

pub(super) fn has_child(lb: &LoadBalancer, kind: &str, name: &str) -> bool {
    let name = key(name);
    match key(kind).as_str() {
        "backendaddresspools" => lb.pools.contains_key(&name),
        "inboundnatrules" => lb.inbound_nat_rules.iter().any(|rule| key(&rule.name) == name),
        "inboundnatpools" => lb.inbound_nat_pools.iter().any(|pool| key(&pool.name) == name),
        _ => false,
    }
}
