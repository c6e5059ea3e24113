//! Processing of a PUT's body by resource type: defaults, addresses, read-only fields, and the rules of the type.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::ArmModel;
use super::addresses::{AddressRequester, next_public_address, text};
use super::answer::Answer;
use super::frontend::zones_on_basic;
use super::interfaces::{Writer, group_of, nat_gateway_and_basic};
use super::render;
use super::requests::{ResourcePut, is_named};
use super::resource_type::ResourceType;
use super::resources::{Body, Etag, ProviderState, Resource, ip_configurations, last, link, links};
use super::rules::{self, Rule};
use super::store::{Sku, key};
use super::validate;

/// Fields that the provider adds and no PUT sets.
const READ_ONLY: [&str; 22] = [
    "provisioningState",
    "resourceGuid",
    "ipConfiguration",
    "ddosSettings",
    "virtualMachine",
    "virtualMachines",
    "macAddress",
    "hostedWorkloads",
    "tapConfigurations",
    "vmId",
    "uniqueId",
    "timeCreated",
    "instanceView",
    "latestModelApplied",
    "networkInterfaces",
    "defaultSecurityRules",
    "nicType",
    "allowPort25Out",
    "defaultOutboundConnectivityEnabled",
    "auxiliaryMode",
    "auxiliarySku",
    "modelDefinitionApplied",
];

impl ArmModel {
    /// Converts the body of a PUT into the stored form, or refuses it.
    pub(super) fn prepare(
        &mut self,
        id: &str,
        kind: ResourceType,
        existing: Option<&Resource>,
        body: &mut Body,
        provider_state: &mut ProviderState,
    ) -> Result<(), Answer> {
        body.properties.retain(|name, value| !READ_ONLY.contains(&name.as_str()) && !value.is_null());
        match kind {
            ResourceType::PublicIpAddress => self.prepare_public_ip(id, existing, body),
            ResourceType::NetworkInterface => self.prepare_interface(id, existing, body),
            ResourceType::ScaleSet => self.prepare_scale_set(id, existing, body, provider_state),
            ResourceType::ScaleSetVm => self.prepare_instance(id, existing, body, provider_state),
            ResourceType::VirtualNetwork => self.prepare_network(id, body),
            ResourceType::VirtualMachine => self.prepare_machine(id, body),
            ResourceType::NatGateway => {
                body.properties.shift_remove("subnets");
                for address in links(&body.properties, "publicIpAddresses") {
                    self.check_public_ip(address, id, id)?;
                    if self.resources.get(address).is_some_and(|found| found.sku() == Sku::Basic) {
                        return Err(nat_gateway_and_basic("of the gateway", address));
                    }
                }
                Ok(())
            }
            ResourceType::NetworkSecurityGroup | ResourceType::RouteTable => {
                body.properties.shift_remove("subnets");
                clean_children(&mut body.properties, "securityRules", &[]);
                Ok(())
            }
            ResourceType::AvailabilitySet | ResourceType::Subnet | ResourceType::SecurityRule => Ok(()),
        }
    }

    fn prepare_public_ip(
        &mut self,
        id: &str,
        existing: Option<&Resource>,
        body: &mut Body,
    ) -> Result<(), Answer> {
        let sku = Sku::of(body.top.get("sku")).unwrap_or(Sku::Basic);
        body.top.insert("sku".to_owned(), json!({"name": sku.name(), "tier": "Regional"}));
        let properties = &mut body.properties;
        properties.shift_remove("natGateway");
        properties.entry("publicIPAddressVersion").or_insert("IPv4".into());
        properties.entry("publicIPAllocationMethod").or_insert("Dynamic".into());
        properties.entry("idleTimeoutInMinutes").or_insert(4.into());
        properties.entry("ipTags").or_insert(json!([]));
        let before = existing.map(Resource::sku);
        let is_static = text(properties, "publicIPAllocationMethod") == Some("Static");
        let is_v6 = text(properties, "publicIPAddressVersion") == Some("IPv6");
        match (before, sku) {
            (Some(Sku::Standard), Sku::Basic) => {
                return Err(Rule::SkuCannotBeChanged.refuse(&rules::sku_change(
                    Sku::Standard,
                    Sku::Basic,
                    id,
                )));
            }
            (Some(Sku::Basic), Sku::Standard)
                if existing.is_some_and(|known| known.provider_state.attached.is_some()) =>
            {
                let message = format!("Public IP address {id} is in use and its SKU cannot be updated.");
                return Err(Rule::PublicIpInUseCannotUpgrade.refuse(&message));
            }
            (Some(Sku::Basic | Sku::Standard) | None, Sku::Basic | Sku::Standard) => {}
        }
        if sku == Sku::Standard && !is_static {
            let message = format!("Standard sku publicIp {id} must have AllocationMethod set to Static.");
            return Err(Rule::StandardMustBeStatic.refuse(&message));
        }
        if sku == Sku::Basic && is_v6 && is_static {
            let message =
                format!("Static public IP address allocation method is not supported for IPv6 address {id}.");
            return Err(Rule::Ipv6CannotBeStatic.refuse(&message));
        }
        let has_zones =
            body.top.get("zones").and_then(Value::as_array).is_some_and(|zones| !zones.is_empty());
        if sku == Sku::Basic && has_zones {
            return Err(zones_on_basic(id));
        }
        if before != Some(sku) {
            self.check_public_ip_limits(sku)?;
        }
        self.address_public_ip(existing, body, (is_static, is_v6));
        Ok(())
    }

    fn check_public_ip_limits(&self, sku: Sku) -> Result<(), Answer> {
        if self.is_seeding {
            return Ok(());
        }
        let limit = self.settings.standard_public_ip_limit;
        let standard = self.public_ip_count(Sku::Standard);
        match sku {
            Sku::Basic if self.settings.basic_retired => {
                let message = "Cannot create more than 0 IPv4 Basic SKU public IP addresses for this subscription in this region.";
                Err(Rule::BasicPublicIpRetired.refuse(message))
            }
            Sku::Standard if standard >= limit => {
                let message = format!(
                    "Cannot create more than {limit} IPv4 Standard SKU public IP addresses for this subscription in this region."
                );
                Err(Rule::PublicIpLimit.refuse(&message))
            }
            Sku::Basic | Sku::Standard => Ok(()),
        }
    }

    pub(super) fn public_ip_count(&self, sku: Sku) -> u64 {
        self.resources.of(ResourceType::PublicIpAddress).filter(|one| one.sku() == sku).count() as u64
    }

    /// Assigns or releases the address of a public IP. A static address is kept, and a dynamic one exists while it is
    /// in use. A change from static to dynamic releases the address.
    fn address_public_ip(
        &mut self,
        existing: Option<&Resource>,
        body: &mut Body,
        (is_static, is_v6): (bool, bool),
    ) {
        let earlier = existing.and_then(|known| text(&known.body.properties, "ipAddress").map(str::to_owned));
        let was_static = existing
            .is_some_and(|known| text(&known.body.properties, "publicIPAllocationMethod") == Some("Static"));
        let attached = existing.is_some_and(|known| known.provider_state.attached.is_some());
        let provider_state = earlier.filter(|_| is_static || !was_static);
        let address = match provider_state {
            Some(address) => Some(address),
            None if is_static || attached => Some(next_public_address(&mut self.public_addresses, is_v6)),
            None => None,
        };
        body.properties.shift_remove("ipAddress");
        if let Some(address) = address {
            body.properties.insert("ipAddress".to_owned(), address.into());
        }
    }

    fn prepare_interface(
        &mut self,
        id: &str,
        existing: Option<&Resource>,
        body: &mut Body,
    ) -> Result<(), Answer> {
        const DEFAULTS: [&str; 4] = [
            "enableAcceleratedNetworking",
            "vnetEncryptionSupported",
            "enableIPForwarding",
            "disableTcpStateTracking",
        ];
        for name in DEFAULTS {
            body.properties.entry(name).or_insert(false.into());
        }
        let dns = json!({"dnsServers": [], "appliedDnsServers": [],
            "internalDomainNameSuffix": "simulated.bx.internal.cloudapp.net"});
        body.properties.entry("dnsSettings").or_insert(dns);
        clean_children(&mut body.properties, "ipConfigurations", &["gatewayLoadBalancer"]);
        self.check_configurations(&Writer { kind: ResourceType::NetworkInterface, id, body })?;
        let mut given = BTreeMap::new();
        let mut addresses = Vec::new();
        for (at, one) in ip_configurations(ResourceType::NetworkInterface, body).iter().enumerate() {
            let own = one.id(id);
            let earlier = existing.and_then(|known| {
                let known = ip_configurations(known.kind, &known.body);
                let same = known.into_iter().find(|known| known.path() == one.path())?;
                let same_subnet =
                    link(same.properties, "subnet").map(key) == link(one.properties, "subnet").map(key);
                text(same.properties, "privateIPAddress").filter(|_| same_subnet)
            });
            let asker = AddressRequester { id: &own, owner: id };
            let address = self.private_address(&asker, one.properties, earlier, &given)?;
            if let Ok(parsed) = address.parse() {
                given.insert(parsed, own);
            }
            addresses.push((at, address));
        }
        let listed = body.properties.get_mut("ipConfigurations").and_then(Value::as_array_mut);
        for (configuration, (at, address)) in listed.into_iter().flatten().zip(addresses) {
            let properties = &mut configuration["properties"];
            properties["privateIPAddress"] = address.into();
            for (name, value) in [
                ("privateIPAllocationMethod", Value::from("Dynamic")),
                ("primary", Value::from(at == 0)),
                ("privateIPAddressVersion", Value::from("IPv4")),
            ] {
                if properties[name].is_null() {
                    properties[name] = value;
                }
            }
        }
        Ok(())
    }

    fn prepare_network(&self, id: &str, body: &mut Body) -> Result<(), Answer> {
        clean_children(&mut body.properties, "subnets", &["ipConfigurations"]);
        let subnets = body.properties.get("subnets").and_then(Value::as_array);
        for subnet in subnets.into_iter().flatten() {
            let name = subnet.get("name").and_then(Value::as_str).unwrap_or_default();
            if let Some(properties) = subnet.get("properties").and_then(Value::as_object) {
                self.check_subnet(&format!("{id}/subnets/{name}"), properties)?;
            }
        }
        let named = |user: &str| subnets.into_iter().flatten().any(|one| is_named(one, last(user)));
        let dropped = self.subnet_users("").into_iter().find(|(subnet, _)| {
            subnet.strip_prefix(&format!("{}/", key(id))).is_some_and(|_| !named(subnet))
        });
        match dropped {
            Some((subnet, user)) => {
                let message = format!("Subnet {} is in use by {user} and cannot be deleted.", last(&subnet));
                Err(Rule::SubnetInUse.refuse(&message))
            }
            None => Ok(()),
        }
    }

    /// Checks that the parts of a subnet exist, and that a NAT gateway is not combined with Basic resources.
    fn check_subnet(&self, id: &str, properties: &Map<String, Value>) -> Result<(), Answer> {
        for part in ["networkSecurityGroup", "routeTable", "natGateway"] {
            if let Some(used) = link(properties, part).filter(|used| self.resources.get(used).is_none()) {
                return Err(rules::dangling(used, id));
            }
        }
        if link(properties, "natGateway").is_some()
            && let Some(user) = self.basic_users(id).first()
        {
            return Err(nat_gateway_and_basic(id, user));
        }
        Ok(())
    }

    fn prepare_machine(&self, id: &str, body: &mut Body) -> Result<(), Answer> {
        for set in ["availabilitySet", "virtualMachineScaleSet"] {
            if let Some(used) = link(&body.properties, set).filter(|used| self.resources.get(used).is_none())
            {
                return Err(rules::dangling(used, id));
            }
        }
        let profile = body.properties.get("networkProfile").and_then(Value::as_object);
        for interface in profile.into_iter().flat_map(|profile| links(profile, "networkInterfaces")) {
            if self.resources.get(interface).is_none() {
                return Err(rules::dangling(interface, id));
            }
            if let Some(other) = self.machine_of(interface).filter(|other| key(&other.id) != key(id)) {
                let message = format!("Network interface {interface} is already attached to {}.", other.id);
                return Err(Rule::InterfaceInUse.refuse(&message));
            }
        }
        self.check_place(id, body)
    }

    /// Checks that a machine in an availability set or a scale set uses the same SKU as the others there.
    fn check_place(&self, id: &str, body: &Body) -> Result<(), Answer> {
        let place =
            link(&body.properties, "availabilitySet").or(link(&body.properties, "virtualMachineScaleSet"));
        let group = key(place.unwrap_or(id));
        let profile = body.properties.get("networkProfile").and_then(Value::as_object);
        let own: BTreeSet<String> =
            profile.into_iter().flat_map(|profile| links(profile, "networkInterfaces")).map(key).collect();
        let groups = self.groups();
        let beside =
            |one: &&Resource| own.contains(&one.key()) || group_of(one.kind, &one.id, &groups) == group;
        let all = self.resources.iter().filter(beside);
        let skus: BTreeSet<Sku> = all.flat_map(|one| self.skus(one.kind, one.in_force())).collect();
        if skus.len() > 1 {
            let message = format!(
                "Different basic sku and standard sku load balancer resources and public IP addresses are not allowed in {group}."
            );
            return Err(Rule::MixedSkus.refuse(&message));
        }
        Ok(())
    }

    /// Handles a PUT of a subnet or a security rule, which changes one element of its parent.
    pub(super) fn put_embedded(&mut self, put: ResourcePut) -> Result<Answer, Answer> {
        let Some((parent, list)) = put.path.kind.embedded_in() else {
            return Err(super::requests::method_not_supported());
        };
        let group = self.settings.resource_group_id();
        let parent_id = parent.id(&group, &put.path.names[..1]);
        let id = put.path.kind.id(&group, &put.path.names);
        validate::check_name(last(&id))?;
        if self.resources.get(&parent_id).is_none() {
            return Err(super::write::parent_not_found(last(&parent_id)));
        }
        let mut properties = match put.body.get("properties") {
            Some(Value::Object(properties)) => properties.clone(),
            Some(_) | None => Map::new(),
        };
        properties.retain(|name, _| name != "provisioningState" && name != "ipConfigurations");
        if put.path.kind == ResourceType::Subnet {
            self.check_subnet(&id, &properties)?;
        }
        let etag = Etag::Weak(self.identities.guid());
        let Some(found) = self.resources.get_mut(&parent_id) else {
            return Err(super::write::parent_not_found(last(&parent_id)));
        };
        let all = found.body.properties.entry(list).or_insert_with(|| json!([]));
        let wanted = json!({"name": last(&id), "properties": properties});
        let mut status = 200;
        if let Some(all) = all.as_array_mut() {
            match all.iter_mut().find(|one| is_named(one, last(&id))) {
                Some(known) if *known == wanted => {}
                Some(known) => {
                    *known = wanted;
                    found.etag = etag;
                }
                None => {
                    all.push(wanted);
                    found.etag = etag;
                    status = 201;
                }
            }
        }
        self.journal.counters.applied += 1;
        let shown = self.resources.get(&parent_id).map(|found| self.show(found)).unwrap_or_default();
        let children = shown["properties"][list].as_array();
        let one = children.into_iter().flatten().find(|one| is_named(one, last(&id)));
        Ok(Answer::json(status, render::text(&one)))
    }
}

/// Removes the fields that the provider adds to named children.
fn clean_children(properties: &mut Map<String, Value>, list: &str, more: &[&str]) {
    let Some(all) = properties.get_mut(list).and_then(Value::as_array_mut) else { return };
    for child in all.iter_mut().filter_map(Value::as_object_mut) {
        child.retain(|name, _| !["id", "etag", "type"].contains(&name.as_str()));
        if let Some(properties) = child.get_mut("properties").and_then(Value::as_object_mut) {
            properties.retain(|name, value| {
                name != "provisioningState" && !more.contains(&name.as_str()) && !value.is_null()
            });
        }
    }
}
