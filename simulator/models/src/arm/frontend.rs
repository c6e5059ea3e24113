//! Checks of a load balancer's PUT: frontends, outbound rules, and children that may be removed.

use std::collections::BTreeSet;

use super::ArmModel;
use super::addresses::text;
use super::answer::Answer;
use super::balancer::last_segment;
use super::interfaces::BALANCER_LINKS;
use super::resource_type::ResourceType;
use super::resources::{Resource, balancer_child, ip_configurations, link, links};
use super::rules::{self, Rule, not_succeeded};
use super::store::{LoadBalancer, LoadBalancerContent, Sku, key};

/// The load balancer that a PUT requests.
pub(super) struct Proposal<'a> {
    pub(super) name: &'a str,
    pub(super) id: &'a str,
    pub(super) sku: Sku,
}

/// A child of a load balancer that a scale set uses.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ScaleSetUse {
    /// Key of the child's kind.
    kind: String,
    /// Key of its name.
    name: String,
    scale_set: String,
}

impl ArmModel {
    /// Refuses a load balancer that Azure refuses, and assigns addresses to its internal frontends.
    pub(super) fn check_load_balancer(
        &self,
        wanted: &Proposal,
        lb_content: &mut LoadBalancerContent,
    ) -> Result<(), Answer> {
        let existing = self.balancers.get(&key(wanted.name));
        if existing.is_none() && !self.is_seeding {
            self.check_new(wanted)?;
        }
        if self.resources.is_empty() {
            return Ok(());
        }
        self.check_members(wanted)?;
        check_children(wanted, lb_content, self.settings.pools_need_frontend)?;
        self.check_frontends(wanted, lb_content)?;
        self.check_outbound(wanted, lb_content)?;
        if let Some(existing) = existing {
            self.check_dropped(existing, lb_content)?;
        }
        self.address_frontends(wanted.id, lb_content)
    }

    fn check_new(&self, wanted: &Proposal) -> Result<(), Answer> {
        if wanted.sku == Sku::Basic && self.settings.basic_retired {
            let message = format!("Basic SKU load balancers are retired; {} cannot be created.", wanted.id);
            return Err(Rule::BasicLoadBalancerRetired.refuse(&message));
        }
        let limit = self.settings.standard_load_balancer_limit;
        let standard = self.balancers.values().filter(|lb| lb.sku == Sku::Standard).count() as u64;
        if wanted.sku == Sku::Standard && standard >= limit {
            let message = format!(
                "Cannot create more than {limit} Standard SKU load balancers for this subscription in this region."
            );
            return Err(Rule::LoadBalancerLimit.refuse(&message));
        }
        Ok(())
    }

    /// Checks that no member's interface has failed, which blocks every write of its load balancers.
    pub(super) fn check_members(&self, wanted: &Proposal) -> Result<(), Answer> {
        let failed =
            self.resources.iter().filter(|one| one.failed && one.kind == ResourceType::NetworkInterface);
        for interface in failed {
            for configuration in ip_configurations(interface.kind, &interface.body) {
                let mut used = BALANCER_LINKS.iter().flat_map(|kind| links(configuration.properties, kind));
                if used.any(|id| balancer_child(id).is_some_and(|(name, _, _)| key(name) == key(wanted.name)))
                {
                    let member = configuration.id(&interface.id);
                    let message = not_succeeded(&member, wanted.id, "Failed", "PutNicOperation");
                    return Err(Rule::MemberFailed.refuse(&message));
                }
            }
        }
        Ok(())
    }

    fn check_frontends(&self, wanted: &Proposal, lb_content: &LoadBalancerContent) -> Result<(), Answer> {
        let mut addresses = BTreeSet::new();
        for frontend in &lb_content.frontends {
            let own = format!("{}/frontendIPConfigurations/{}", wanted.id, frontend.name);
            let has_zones = frontend
                .top
                .get("zones")
                .and_then(|zones| zones.as_array())
                .is_some_and(|zones| !zones.is_empty());
            if wanted.sku == Sku::Basic && has_zones {
                return Err(zones_on_basic(&own));
            }
            let Some(address) = link(&frontend.properties, "publicIPAddress") else { continue };
            self.check_public_ip(address, &own, wanted.id)?;
            if !addresses.insert(key(address)) {
                let message = format!(
                    "Public ip address {address} is referenced by multiple ipconfigs in resource {}.",
                    wanted.id
                );
                return Err(Rule::PublicIpReferencedTwice.refuse(&message));
            }
            let sku = self.resources.get(address).map_or(wanted.sku, Resource::sku);
            if sku != wanted.sku {
                let (own, other) = (wanted.sku.name(), sku.name());
                let message = format!(
                    "{own} sku load balancer {} cannot reference {other} sku publicIP {address}.",
                    wanted.id
                );
                return Err(Rule::LoadBalancerAndPublicIpSku.refuse(&message));
            }
        }
        Ok(())
    }

    fn check_outbound(&self, wanted: &Proposal, lb_content: &LoadBalancerContent) -> Result<(), Answer> {
        let mut addresses = BTreeSet::new();
        for rule in &lb_content.outbound_rules {
            let protocol = text(&rule.properties, "protocol").unwrap_or("All").to_lowercase();
            for frontend in links(&rule.properties, "frontendIPConfigurations") {
                if !addresses.insert((key(frontend), protocol.clone())) {
                    let message = format!(
                        "More than one outbound rule uses frontend {frontend} with protocol {protocol}."
                    );
                    return Err(Rule::OutboundTwice.refuse(&message));
                }
            }
            let Some(pool) = rule.pool.as_deref() else { continue };
            for resource in self.resources.iter() {
                let secondary = ip_configurations(resource.kind, &resource.body).into_iter().find(|one| {
                    let used = links(one.properties, "loadBalancerBackendAddressPools");
                    !one.is_primary
                        && used.iter().any(|id| Self::names_pool(id, &key(wanted.name), &key(pool)))
                });
                if let Some(secondary) = secondary {
                    let message = format!(
                        "Backend address pool {pool} of {} is used by an outbound rule and referenced by the secondary IP configuration {}.",
                        wanted.id,
                        secondary.id(&resource.id)
                    );
                    return Err(Rule::OutboundRuleAndSecondary.refuse(&message));
                }
            }
        }
        Ok(())
    }

    /// Returns the children of a load balancer that scale sets use, in their models and, if requested, in their
    /// instances.
    pub(super) fn scale_set_uses(&self, lb: &LoadBalancer, with_instances: bool) -> BTreeSet<ScaleSetUse> {
        let mut uses = BTreeSet::new();
        for resource in self.resources.iter() {
            let scale_set = match resource.kind {
                ResourceType::ScaleSet => resource.id.as_str(),
                ResourceType::ScaleSetVm if with_instances => {
                    resource.id.split("/virtualMachines/").next().unwrap_or_default()
                }
                ResourceType::ScaleSetVm
                | ResourceType::PublicIpAddress
                | ResourceType::NetworkInterface
                | ResourceType::VirtualNetwork
                | ResourceType::Subnet
                | ResourceType::NetworkSecurityGroup
                | ResourceType::SecurityRule
                | ResourceType::NatGateway
                | ResourceType::RouteTable
                | ResourceType::AvailabilitySet
                | ResourceType::VirtualMachine => continue,
            };
            for body in resource.bodies() {
                let configurations = ip_configurations(resource.kind, body);
                let lists = configurations
                    .iter()
                    .flat_map(|one| BALANCER_LINKS.iter().flat_map(|kind| links(one.properties, kind)));
                let probe = body.properties.get("virtualMachineProfile").and_then(|profile| {
                    profile.get("networkProfile")?.get("healthProbe")?.get("id")?.as_str()
                });
                for (name, kind, child) in lists.chain(probe).filter_map(balancer_child) {
                    if key(name) == key(&lb.name) {
                        uses.insert(ScaleSetUse {
                            kind: key(kind),
                            name: key(child),
                            scale_set: scale_set.to_owned(),
                        });
                    }
                }
            }
        }
        uses
    }

    /// Returns the scale set that prevents the deletion of the load balancer.
    pub(super) fn blocking_scale_set(&self, lb: &LoadBalancer) -> Option<String> {
        let blocks = self.settings.scale_set_blocks;
        let in_models = self.scale_set_uses(lb, false);
        let with_instances = self.scale_set_uses(lb, true);
        let counts = |used: &ScaleSetUse| {
            let in_model = in_models.contains(used);
            match used.kind.as_str() {
                "probes" => blocks.health_probe,
                "inboundnatpools" | "inboundnatrules" => {
                    blocks.inbound_nat_pools && (in_model || blocks.instances)
                }
                _ => (in_model && blocks.model) || (!in_model && blocks.instances),
            }
        };
        with_instances.into_iter().find(counts).map(|used| used.scale_set)
    }

    /// Checks that scale sets keep their pools, NAT pools and probe until the model and the instances release them.
    fn check_dropped(&self, existing: &LoadBalancer, lb_content: &LoadBalancerContent) -> Result<(), Answer> {
        for used in self.scale_set_uses(existing, true) {
            let ScaleSetUse { kind, name, scale_set } = &used;
            let (is_kept, rule, what) = match kind.as_str() {
                "backendaddresspools" => {
                    (lb_content.pools.contains_key(name), Rule::PoolInUse, "backend address pool")
                }
                "inboundnatpools" => (
                    lb_content.inbound_nat_pools.iter().any(|pool| key(&pool.name) == *name),
                    Rule::NatPoolInUse,
                    "inbound nat pool",
                ),
                "probes" => {
                    let is_used = lb_content
                        .rules
                        .iter()
                        .any(|rule| key(last_segment(&rule.properties, "probe")) == *name);
                    (is_used, Rule::ProbeInUse, "the rule of probe")
                }
                _ => continue,
            };
            if !is_kept {
                let message = format!(
                    "Cannot remove {what} {name} from load balancer since it is in use by virtual machine scale set {scale_set}."
                );
                return Err(rule.refuse(&message));
            }
        }
        Ok(())
    }

    /// Refuses a reference that the caller may not make.
    pub(super) fn require(&self, action: &'static str, scope: &str) -> Result<(), Answer> {
        if self.is_seeding || self.settings.permissions.iter().any(|permission| permission.gives(action)) {
            return Ok(());
        }
        let message = format!(
            "The client 'simulated' has permission to perform the write; however, it does not have permission to perform action '{action}' on the linked scope(s) '{scope}' or the linked scope(s) are invalid."
        );
        Err(Rule::MissingRight.refuse(&message))
    }
}

/// Checks the requirements of the children of a load balancer: a frontend, and the Standard SKU for members by address.
fn check_children(
    wanted: &Proposal,
    lb_content: &LoadBalancerContent,
    pools_need_frontend: bool,
) -> Result<(), Answer> {
    let bare = if pools_need_frontend { lb_content.pools.len() + lb_content.probes.len() } else { 0 };
    let children = bare
        + lb_content.rules.len()
        + lb_content.outbound_rules.len()
        + lb_content.inbound_nat_rules.len()
        + lb_content.inbound_nat_pools.len();
    if lb_content.frontends.is_empty() && children > 0 {
        let message = format!(
            "Load balancer {} without frontend IP configurations cannot have child resources.",
            wanted.id
        );
        return Err(Rule::WithoutFrontend.refuse(&message));
    }
    let by_address =
        |pool: &super::store::Pool| pool.content.addresses.iter().any(|one| one.text("ipAddress").is_some());
    if wanted.sku == Sku::Basic && lb_content.pools.values().any(by_address) {
        return Err(ip_members_on_basic(wanted.id));
    }
    for rule in &lb_content.inbound_nat_rules {
        let frontend = last_segment(&rule.properties, "frontendIPConfiguration");
        if !lb_content.frontends.iter().any(|known| key(&known.name) == key(frontend)) {
            let missing = format!("{}/frontendIPConfigurations/{frontend}", wanted.id);
            return Err(rules::dangling(&missing, &format!("{}/inboundNatRules/{}", wanted.id, rule.name)));
        }
    }
    Ok(())
}

pub(super) fn ip_members_on_basic(id: &str) -> Answer {
    let message = format!("Load balancer {id} is of Basic SKU; backend addresses need the Standard SKU.");
    Rule::IpMembersOnBasic.refuse(&message)
}

pub(super) fn zones_on_basic(id: &str) -> Answer {
    let message =
        format!("Zones not allowed in basic SKU resource {id} in this region. Please use standard SKU.");
    Rule::ZonesOnBasic.refuse(&message)
}
