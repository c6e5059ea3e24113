//! Sub-resources and actions: instance views, interfaces of scale sets, usages, the resource group, tags of load
//! balancers, and the migration of pools from NIC-based to IP-based.

use serde_json::{Value, json};

use super::answer::Answer;
use super::operation::OperationName;
use super::render::{self, LoadBalancerView};
use super::resource_type::{ResourcePath, ResourceType};
use super::resources::{Etag, Resource, ip_configurations};
use super::rules::Rule;
use super::scale_set::network_of_subnet;
use super::store::{Sku, key};
use super::{ArmModel, Call, Method};

const POOLS: &str = "loadBalancerBackendAddressPools";

impl ArmModel {
    /// Handles a GET of a path below a resource, such as `instanceView`, which is not a resource itself.
    pub(super) fn get_below(&self, call: &Call, path: &ResourcePath, action: &str) -> Answer {
        let id = self.resource_id(path);
        if path.kind == ResourceType::VirtualNetwork && action == "checkipaddressavailability" {
            return self.check_availability(call, &id);
        }
        let Some(found) = self.resources.get(&id) else { return self.resource_not_found(&id) };
        let instances = match path.kind {
            ResourceType::ScaleSet => self.resources.instances(&id),
            ResourceType::ScaleSetVm | ResourceType::VirtualMachine => vec![found],
            ResourceType::PublicIpAddress
            | ResourceType::NetworkInterface
            | ResourceType::VirtualNetwork
            | ResourceType::Subnet
            | ResourceType::NetworkSecurityGroup
            | ResourceType::SecurityRule
            | ResourceType::NatGateway
            | ResourceType::RouteTable
            | ResourceType::AvailabilitySet => return elsewhere(),
        };
        match (action, path.kind) {
            ("instanceview", ResourceType::ScaleSet) => {
                let codes =
                    instances.iter().map(|one| format!("ProvisioningState/{}", one.state().to_lowercase()));
                let statuses: Vec<Value> = codes.map(|code| json!({"code": code, "count": 1})).collect();
                let body = json!({"virtualMachine": {"statusesSummary": statuses}});
                Answer::json(200, body.to_string().into_bytes())
            }
            ("instanceview", _) => Answer::json(200, instance_view(found).to_string().into_bytes()),
            ("networkinterfaces", _) => {
                let value: Vec<Value> = instances.into_iter().flat_map(interfaces_of).collect();
                self.paged(call, &format!("{id}/networkInterfaces"), &value)
            }
            ("publicipaddresses", _) => {
                let value: Vec<Value> = instances.into_iter().flat_map(public_ips_of).collect();
                self.paged(call, &format!("{id}/publicIPAddresses"), &value)
            }
            _ => elsewhere(),
        }
    }

    /// Returns one page of a list.
    pub(super) fn paged(&self, call: &Call, path: &str, all: &[Value]) -> Answer {
        let skip = super::read::skip_token(call).min(all.len());
        let page = &all[skip..(skip + self.settings.page_size.max(1)).min(all.len())];
        let mut body = json!({ "value": page });
        if skip + page.len() < all.len() {
            body["nextLink"] = self.next_link(call, path, skip + page.len()).into();
        }
        Answer::json(200, body.to_string().into_bytes())
    }

    /// Returns the usages of the network provider against its limits.
    pub(super) fn usages(&self) -> Answer {
        let group = format!("/subscriptions/{}/providers/Microsoft.Network", self.settings.subscription);
        let location = &self.settings.location;
        let usage = |name: &str, current: u64, limit: u64| {
            json!({"currentValue": current, "limit": limit, "unit": "Count",
                "id": format!("{group}/locations/{location}/usages/{name}"),
                "name": {"value": name, "localizedValue": name}})
        };
        let balancers = |sku: Sku| self.balancers.values().filter(|lb| lb.sku == sku).count() as u64;
        let (basic, standard) = (self.public_ip_count(Sku::Basic), self.public_ip_count(Sku::Standard));
        let basic_limit = if self.settings.basic_retired { 0 } else { 1000 };
        let value = [
            usage("PublicIPAddresses", basic + standard, 1000),
            usage("IPv4BasicSkuPublicIpAddresses", basic, basic_limit),
            usage("IPv4StandardSkuPublicIpAddresses", standard, self.settings.standard_public_ip_limit),
            usage("LoadBalancers", balancers(Sku::Basic) + balancers(Sku::Standard), 1000),
            usage(
                "StandardSkuLoadBalancers",
                balancers(Sku::Standard),
                self.settings.standard_load_balancer_limit,
            ),
        ];
        Answer::json(200, json!({ "value": value }).to_string().into_bytes())
    }

    pub(super) fn read_group(&self) -> Answer {
        let settings = &self.settings;
        let body = json!({"id": settings.resource_group_id(), "name": settings.resource_group,
            "type": "Microsoft.Resources/resourceGroups", "location": settings.location,
            "tags": settings.group_tags, "properties": {"provisioningState": "Succeeded"}});
        Answer::json(200, body.to_string().into_bytes())
    }

    /// Handles a PATCH of a load balancer, which changes its tags.
    pub(super) fn patch_load_balancer(&mut self, call: &Call, name: &str) -> Answer {
        let tags = match super::validate::object(&call.request.body) {
            Ok(mut body) => body.shift_remove("tags").unwrap_or_else(|| json!({})),
            Err(refusal) => return refusal,
        };
        let etag = self.identities.guid();
        let Some(lb) = self.balancers.get_mut(&key(name)) else { return self.load_balancer_not_found(name) };
        lb.top.insert("tags".to_owned(), tags);
        lb.etag = etag;
        let view = LoadBalancerView::of(lb, &self.settings);
        Answer::json(200, render::text(&view))
    }

    /// Handles a POST to a load balancer.
    pub(super) fn act_on_load_balancer(&mut self, call: &Call, name: &str, action: &str) -> Answer {
        if action != "migratetoipbased" || call.request.method != Method::Post {
            return elsewhere();
        }
        self.migrate_to_ip_based(call, name).unwrap_or_else(|refusal| refusal)
    }

    fn migrate_to_ip_based(&mut self, call: &Call, name: &str) -> Result<Answer, Answer> {
        let lb_key = key(name);
        let Some(lb) = self.balancers.get(&lb_key) else { return Err(self.load_balancer_not_found(name)) };
        if lb.sku == Sku::Basic {
            let message = format!(
                "Load balancer {} is of Basic SKU; pools by IP address need the Standard SKU.",
                lb.id
            );
            return Err(Rule::MigrationNeedsStandard.refuse(&message));
        }
        let body = super::validate::object(&call.request.body)?;
        let listed = body.get("pools").and_then(Value::as_array);
        let wanted: Vec<String> =
            listed.into_iter().flatten().filter_map(|pool| pool.as_str().map(str::to_owned)).collect();
        for pool in &wanted {
            if !lb.pools.contains_key(&key(pool)) {
                return Err(Answer::not_found(&render::child_id(&lb.id, "backendAddressPools", pool)));
            }
        }
        let id = self.identities.guid();
        self.claim(&lb_key, (OperationName::PutLoadBalancer, id), call.now)?;
        let mut migrated = Vec::new();
        for pool in wanted {
            let members = self.members_of(&lb_key, &key(&pool));
            let Some(network) = members.first().map(|(_, _, network)| network.clone()) else { continue };
            let members = members.into_iter().map(|(name, ip, _)| (name, ip)).collect();
            self.migrate_pool(&lb_key, &key(&pool), members, &network);
            self.forget_pool(&lb_key, &key(&pool));
            migrated.push(pool);
        }
        let etag = self.identities.guid();
        if let Some(lb) = self.balancers.get_mut(&lb_key) {
            lb.etag = etag;
        }
        self.journal.counters.applied += 1;
        self.follow_references();
        Ok(Answer::json(200, json!({ "migratedPools": migrated }).to_string().into_bytes()))
    }

    /// Returns the interfaces in a pool: a name for each, its address, and its virtual network.
    fn members_of(&self, lb_key: &str, pool_key: &str) -> Vec<(String, String, String)> {
        let mut members = Vec::new();
        for resource in self.resources.iter().filter(|one| one.kind != ResourceType::ScaleSet) {
            for one in ip_configurations(resource.kind, resource.in_force()) {
                let used = super::resources::links(one.properties, POOLS);
                if !used.iter().any(|id| Self::names_pool(id, lb_key, pool_key)) {
                    continue;
                }
                let assigned = resource.provider_state.addresses.get(&one.path()).map(String::as_str);
                let ip = assigned.or_else(|| super::addresses::text(one.properties, "privateIPAddress"));
                let name = format!("{}_{}{}", self.settings.resource_group, resource.name(), one.name);
                if let (Some(ip), Some(network)) = (ip, network_of_subnet(&one)) {
                    members.push((name, ip.to_owned(), network));
                }
            }
        }
        members
    }

    /// Removes the references to a pool from all resources, except scale sets whose upgrade policy is manual.
    fn forget_pool(&mut self, lb_key: &str, pool_key: &str) {
        let by_hand = |one: &Resource| {
            let policy =
                one.body.properties.get("upgradePolicy").and_then(|policy| policy.get("mode")?.as_str());
            one.kind == ResourceType::ScaleSet && policy == Some("Manual")
        };
        for resource in self.resources.iter_mut().filter(|one| !by_hand(one)) {
            let mut changed = false;
            for body in std::iter::once(&mut resource.body)
                .chain(resource.running.iter_mut().filter_map(|work| work.before.as_mut()))
            {
                for properties in body.properties.values_mut() {
                    changed |= forget(properties, lb_key, pool_key);
                }
            }
            if changed {
                resource.etag = match resource.etag {
                    Etag::Weak(_) => Etag::Weak(self.identities.guid()),
                    Etag::Number(number) => Etag::Number(number + 1),
                };
            }
        }
    }
}

/// Removes a pool from every list of pools in a value.
fn forget(value: &mut Value, lb_key: &str, pool_key: &str) -> bool {
    match value {
        Value::Object(map) => {
            let mut changed = false;
            for (name, value) in map.iter_mut() {
                match value.as_array_mut().filter(|_| name == POOLS) {
                    Some(listed) => {
                        let before = listed.len();
                        listed.retain(|one| {
                            let id = one.get("id").and_then(Value::as_str);
                            !id.is_some_and(|id| ArmModel::names_pool(id, lb_key, pool_key))
                        });
                        changed |= listed.len() != before;
                    }
                    None => changed |= forget(value, lb_key, pool_key),
                }
            }
            changed
        }
        Value::Array(all) => {
            all.iter_mut().fold(false, |changed, one| forget(one, lb_key, pool_key) | changed)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn instance_view(resource: &Resource) -> Value {
    let power = if resource.provider_state.is_deallocated { "deallocated" } else { "running" };
    let code = format!("ProvisioningState/{}", resource.state().to_lowercase());
    json!({"statuses": [{"code": code, "level": "Info", "displayStatus": resource.state()},
        {"code": format!("PowerState/{power}"), "level": "Info", "displayStatus": format!("VM {power}")}]})
}

/// Returns the interfaces of an instance, as the network provider shows them.
fn interfaces_of(instance: &Resource) -> Vec<Value> {
    let mut interfaces: Vec<Value> = Vec::new();
    for one in ip_configurations(instance.kind, &instance.body) {
        let id = format!("{}/networkInterfaces/{}", instance.id, one.interface);
        let mut properties = one.properties.clone();
        properties.shift_remove("publicIPAddressConfiguration");
        properties.insert("provisioningState".to_owned(), instance.state().into());
        properties.insert("primary".to_owned(), one.is_primary.into());
        if let Some(address) = instance.provider_state.addresses.get(&one.path()) {
            properties.insert("privateIPAddress".to_owned(), address.clone().into());
            properties.insert("privateIPAllocationMethod".to_owned(), "Dynamic".into());
        }
        if instance.provider_state.public_addresses.contains_key(&one.path()) {
            let address =
                json!({"id": format!("{}/publicIPAddresses/{}", one.id(&instance.id), public_name(&one))});
            properties.insert("publicIPAddress".to_owned(), address);
        }
        let configuration = json!({"name": one.name, "id": one.id(&instance.id), "properties": properties});
        match interfaces.iter_mut().find(|known| known["id"] == id) {
            Some(known) => {
                if let Some(all) = known["properties"]["ipConfigurations"].as_array_mut() {
                    all.push(configuration);
                }
            }
            None => {
                let group = one.security_group.map(|id| json!({ "id": id }));
                let mut properties = json!({"provisioningState": instance.state(), "primary": one.is_primary,
                    "ipConfigurations": [configuration], "virtualMachine": {"id": instance.id}});
                if let Some(group) = group {
                    properties["networkSecurityGroup"] = group;
                }
                interfaces.push(json!({"name": one.interface, "id": id, "etag": instance.etag.text(),
                    "properties": properties}));
            }
        }
    }
    interfaces
}

fn public_name<'a>(one: &super::resources::IpConfiguration<'a>) -> &'a str {
    let own = one.properties.get("publicIPAddressConfiguration").and_then(|own| own.get("name")?.as_str());
    own.unwrap_or("pip")
}

/// Returns the public IPs of an instance.
fn public_ips_of(instance: &Resource) -> Vec<Value> {
    let configurations = ip_configurations(instance.kind, &instance.body);
    let found = configurations.iter().filter_map(|one| {
        let address = instance.provider_state.public_addresses.get(&one.path())?;
        let sku =
            Sku::of(one.properties.get("publicIPAddressConfiguration")?.get("sku")).unwrap_or(Sku::Basic);
        let id = format!("{}/publicIPAddresses/{}", one.id(&instance.id), public_name(one));
        Some(json!({"name": public_name(one), "id": id, "sku": {"name": sku.name(), "tier": "Regional"},
            "properties": {"provisioningState": instance.state(), "ipAddress": address,
                "publicIPAddressVersion": "IPv4", "publicIPAllocationMethod": "Dynamic",
                "ipConfiguration": {"id": one.id(&instance.id)}}}))
    });
    found.collect()
}

fn elsewhere() -> Answer {
    let message = "The resource type could not be found in the namespace 'Microsoft.Network'.";
    Answer::gateway(404, "InvalidResourceType", message)
}
