//! The body of a GET of a resource: the fields of its PUT, and the provider's additions.

use serde_json::{Map, Value, json};

use super::ArmModel;
use super::resource_type::{Provider, ResourceType};
use super::resources::{Resource, ip_configurations, link};
use super::store::{Sku, key};

impl ArmModel {
    /// Returns the body of a GET.
    pub(super) fn show(&self, resource: &Resource) -> Value {
        let kind = resource.kind.name();
        let name = match resource.kind {
            ResourceType::ScaleSetVm => instance_name(&resource.id),
            ResourceType::PublicIpAddress
            | ResourceType::NetworkInterface
            | ResourceType::VirtualNetwork
            | ResourceType::Subnet
            | ResourceType::NetworkSecurityGroup
            | ResourceType::SecurityRule
            | ResourceType::NatGateway
            | ResourceType::RouteTable
            | ResourceType::AvailabilitySet
            | ResourceType::VirtualMachine
            | ResourceType::ScaleSet => resource.name().to_owned(),
        };
        let mut shown = json!({"name": name, "id": resource.id, "type": kind});
        if resource.kind != ResourceType::AvailabilitySet {
            shown["etag"] = resource.etag.text().into();
        }
        let mut properties = Map::new();
        if resource.kind != ResourceType::AvailabilitySet {
            properties.insert("provisioningState".to_owned(), resource.state().into());
        }
        if resource.kind.provider() == Provider::Network {
            properties.insert("resourceGuid".to_owned(), resource.guid.to_string().into());
        }
        properties.extend(resource.body.properties.clone());
        self.add_computed(resource, &mut properties);
        if let Value::Object(shown) = &mut shown {
            shown.extend(resource.body.top.clone());
            if resource.kind == ResourceType::ScaleSetVm {
                shown.insert("instanceId".to_owned(), resource.name().into());
            }
            if resource.kind == ResourceType::NetworkInterface {
                shown.insert("kind".to_owned(), "Regular".into());
            }
            shown.insert("properties".to_owned(), Value::Object(properties));
        }
        shown
    }

    fn add_computed(&self, resource: &Resource, properties: &mut Map<String, Value>) {
        match resource.kind {
            ResourceType::PublicIpAddress => {
                let user = resource.provider_state.attached.as_deref();
                let is_gateway = |id: &&str| key(id).contains("/natgateways/");
                if let Some(id) = user.filter(is_gateway) {
                    properties.insert("natGateway".to_owned(), json!({ "id": id }));
                } else if let Some(id) = user {
                    properties.insert("ipConfiguration".to_owned(), json!({ "id": id }));
                }
                if resource.sku() == Sku::Standard {
                    let settings = json!({"protectionMode": "VirtualNetworkInherited"});
                    properties.insert("ddosSettings".to_owned(), settings);
                }
            }
            ResourceType::NetworkInterface => {
                dress_children(resource, properties, "ipConfigurations");
                for (name, value) in [
                    ("hostedWorkloads", json!([])),
                    ("tapConfigurations", json!([])),
                    ("nicType", json!("Standard")),
                    ("allowPort25Out", json!(true)),
                    ("defaultOutboundConnectivityEnabled", json!(false)),
                    ("auxiliaryMode", json!("None")),
                    ("auxiliarySku", json!("None")),
                ] {
                    properties.entry(name).or_insert(value);
                }
                if let Some(machine) = self.machine_of(&resource.id) {
                    properties.insert("virtualMachine".to_owned(), json!({"id": machine.id}));
                }
            }
            ResourceType::VirtualNetwork => {
                dress_children(resource, properties, "subnets");
                self.add_subnet_users(properties);
            }
            ResourceType::NetworkSecurityGroup => {
                dress_children(resource, properties, "securityRules");
                self.add_part_users(resource, properties);
            }
            ResourceType::NatGateway | ResourceType::RouteTable => self.add_part_users(resource, properties),
            ResourceType::AvailabilitySet => {
                let inside = self.resources.of(ResourceType::VirtualMachine).filter(|machine| {
                    link(&machine.body.properties, "availabilitySet")
                        .is_some_and(|set| key(set) == resource.key())
                });
                let machines: Vec<Value> = inside.map(|machine| json!({"id": machine.id})).collect();
                properties.insert("virtualMachines".to_owned(), machines.into());
            }
            ResourceType::VirtualMachine => {
                properties.insert("vmId".to_owned(), resource.guid.to_string().into());
            }
            ResourceType::ScaleSet => {
                properties.insert("uniqueId".to_owned(), resource.guid.to_string().into());
            }
            ResourceType::ScaleSetVm => self.add_instance_fields(resource, properties),
            ResourceType::Subnet | ResourceType::SecurityRule => {}
        }
    }

    fn add_instance_fields(&self, resource: &Resource, properties: &mut Map<String, Value>) {
        let set = resource.id.split("/virtualMachines/").next().and_then(|id| self.resources.get(id));
        let is_latest = set.is_some_and(|set| self.is_latest(resource, set));
        properties.insert("latestModelApplied".to_owned(), is_latest.into());
        properties.insert("modelDefinitionApplied".to_owned(), "VirtualMachineScaleSet".into());
        properties.insert("vmId".to_owned(), resource.guid.to_string().into());
        let mut interfaces: Vec<Value> = Vec::new();
        for one in ip_configurations(resource.kind, &resource.body) {
            let id = format!("{}/networkInterfaces/{}", resource.id, one.interface);
            if !interfaces.iter().any(|known| known["id"] == id) {
                interfaces.push(json!({ "id": id }));
            }
        }
        properties.insert("networkProfile".to_owned(), json!({"networkInterfaces": interfaces}));
    }

    /// Adds the IP configurations in each subnet.
    fn add_subnet_users(&self, properties: &mut Map<String, Value>) {
        let subnets = properties.get_mut("subnets").and_then(Value::as_array_mut);
        let users = self.subnet_users("");
        for subnet in subnets.into_iter().flatten() {
            let id = key(subnet["id"].as_str().unwrap_or_default());
            let here: Vec<Value> =
                users.iter().filter(|(used, _)| *used == id).map(|(_, user)| json!({ "id": user })).collect();
            if !here.is_empty() {
                subnet["properties"]["ipConfigurations"] = here.into();
            }
        }
    }

    fn add_part_users(&self, resource: &Resource, properties: &mut Map<String, Value>) {
        let (subnets, interfaces): (Vec<String>, Vec<String>) =
            self.part_users(&resource.id).into_iter().partition(|id| key(id).contains("/subnets/"));
        for (name, users) in [("subnets", subnets), ("networkInterfaces", interfaces)] {
            if !users.is_empty() {
                let links: Vec<Value> = users.into_iter().map(|id| json!({ "id": id })).collect();
                properties.insert(name.to_owned(), links.into());
            }
        }
    }
}

/// Returns the name of an instance: the scale set's and its number.
fn instance_name(id: &str) -> String {
    let mut words = id.rsplit('/');
    let (number, set) = (words.next().unwrap_or_default(), words.nth(1).unwrap_or_default());
    format!("{set}_{number}")
}

/// Adds ids, etags, types and states to named children.
fn dress_children(resource: &Resource, properties: &mut Map<String, Value>, list: &str) {
    let Some(all) = properties.get_mut(list).and_then(Value::as_array_mut) else { return };
    for child in all {
        let name = child["name"].as_str().unwrap_or_default().to_owned();
        child["id"] = format!("{}/{list}/{name}", resource.id).into();
        child["etag"] = resource.etag.text().into();
        child["type"] = format!("{}/{list}", resource.kind.name()).into();
        child["properties"]["provisioningState"] = resource.state().into();
    }
}
