//! Outbound connections of a machine: Azure's behaviour according to its documentation.

use serde_json::Value;

use super::ArmModel;
use super::resource_type::ResourceType;
use super::resources::{IpConfiguration, Resource, balancer_child, ip_configurations, link, links};
use super::store::{LoadBalancer, Sku, key};

/// Path of a machine to the internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Egress {
    /// No path.
    Absent,
    /// A NAT gateway of its subnet.
    NatGateway,
    /// The machine's own public IP.
    PublicIp,
    /// An outbound rule of a load balancer.
    OutboundRule,
    /// The frontend of a public load balancer, only for the protocol of its rules.
    ImplicitSnat,
    /// The default for Basic load balancers and machines without any, if [`super::Settings::default_outbound`] is
    /// set.
    Default,
}

impl ArmModel {
    /// Returns the outbound path of an interface or an instance of a scale set, for a protocol (`Tcp` or `Udp`).
    #[must_use]
    pub fn egress(&self, id: &str, protocol: &str) -> Egress {
        let Some(resource) = self.resources.get(id) else { return Egress::Absent };
        let configurations = ip_configurations(resource.kind, resource.in_force());
        let Some(primary) = configurations.iter().find(|one| one.is_primary) else { return Egress::Absent };
        let subnet = link(primary.properties, "subnet").and_then(|id| self.subnet(id));
        if subnet.is_some_and(|subnet| link(subnet, "natGateway").is_some()) {
            return Egress::NatGateway;
        }
        if has_public_ip(resource, primary) {
            return Egress::PublicIp;
        }
        let pools = links(primary.properties, "loadBalancerBackendAddressPools");
        let used: Vec<(&LoadBalancer, &str)> = pools
            .into_iter()
            .filter_map(balancer_child)
            .filter_map(|(lb, _, pool)| Some((self.balancers.get(&key(lb))?, pool)))
            .collect();
        if used
            .iter()
            .any(|(lb, pool)| lb.pools.get(&key(pool)).is_some_and(|pool| !pool.outbound_rules.is_empty()))
        {
            return Egress::OutboundRule;
        }
        if used.iter().any(|(lb, pool)| gives_snat(lb, pool, protocol)) {
            return Egress::ImplicitSnat;
        }
        let is_standard = used.iter().any(|(lb, _)| lb.sku == Sku::Standard);
        if self.settings.default_outbound && !is_standard { Egress::Default } else { Egress::Absent }
    }
}

fn has_public_ip(resource: &Resource, primary: &IpConfiguration) -> bool {
    match resource.kind {
        ResourceType::ScaleSetVm => resource.provider_state.public_addresses.contains_key(&primary.path()),
        ResourceType::NetworkInterface
        | ResourceType::PublicIpAddress
        | ResourceType::VirtualNetwork
        | ResourceType::Subnet
        | ResourceType::NetworkSecurityGroup
        | ResourceType::SecurityRule
        | ResourceType::NatGateway
        | ResourceType::RouteTable
        | ResourceType::AvailabilitySet
        | ResourceType::VirtualMachine
        | ResourceType::ScaleSet => link(primary.properties, "publicIPAddress").is_some(),
    }
}

/// Returns whether a rule of a public frontend provides SNAT to the pool for a protocol.
fn gives_snat(lb: &LoadBalancer, pool: &str, protocol: &str) -> bool {
    lb.rules.iter().any(|rule| {
        let frontend = link(&rule.properties, "frontendIPConfiguration").and_then(balancer_child);
        let is_public = frontend.is_some_and(|(_, _, name)| {
            let found = lb.frontends.iter().find(|known| key(&known.name) == key(name));
            found.is_some_and(|known| link(&known.properties, "publicIPAddress").is_some())
        });
        let of = rule.properties.get("protocol").and_then(Value::as_str).unwrap_or_default();
        let is_meant = of.eq_ignore_ascii_case(protocol) || of.eq_ignore_ascii_case("All");
        let is_off = rule.properties.get("disableOutboundSnat") == Some(&Value::Bool(true));
        key(&rule.pool) == key(pool) && is_public && is_meant && !is_off
    })
}
