//! The IP configurations of nodes: network interfaces of virtual machines, models of scale sets, and their instances.
//! They hold references to pools, NAT rules and public addresses. This module reads, removes and adds these references;
//! everything else in a body stays unchanged.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::json::{id, ids, items, object, text};
use crate::resource_id::ResourceId;

const POOLS: &str = "loadBalancerBackendAddressPools";
const NAT_RULES: &str = "loadBalancerInboundNatRules";
const NAT_POOLS: &str = "loadBalancerInboundNatPools";
const REFERENCES: [&str; 3] = [POOLS, NAT_RULES, NAT_POOLS];
const ADDRESS: &str = "publicIPAddress";
const ADDRESS_CONFIGURATION: &str = "publicIPAddressConfiguration";

/// Kind of a body that has IP configurations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum MemberKind {
    /// A network interface of a virtual machine.
    NetworkInterface,
    /// The model of a scale set, from which its instances are created.
    Model,
    /// An instance of a scale set.
    Instance,
}

impl MemberKind {
    /// Returns the kind of a resource, from its id.
    #[must_use]
    pub fn of(id: &ResourceId) -> Option<MemberKind> {
        match id.kind() {
            "networkinterfaces" => Some(MemberKind::NetworkInterface),
            "virtualmachinescalesets" => Some(MemberKind::Model),
            "virtualmachines" => id.up_to("virtualMachineScaleSets").map(|_| MemberKind::Instance),
            _ => None,
        }
    }

    fn profile(self) -> &'static str {
        match self {
            MemberKind::NetworkInterface => "/properties",
            MemberKind::Model => "/properties/virtualMachineProfile/networkProfile",
            MemberKind::Instance => "/properties/networkProfileConfiguration",
        }
    }
}

/// One IP configuration of a body.
#[derive(Clone, Copy, Debug)]
pub struct Configuration<'a> {
    /// The name of the interface; empty if the body is itself an interface.
    pub interface: &'a str,
    /// True if the interface is the primary one.
    pub primary_interface: bool,
    /// The configuration itself.
    pub body: &'a Value,
}

impl Configuration<'_> {
    /// Returns whether Azure uses this configuration for the node's own address.
    #[must_use]
    pub fn is_primary(&self, only: bool) -> bool {
        self.primary_interface && self.body["properties"]["primary"].as_bool().unwrap_or(only)
    }

    /// Returns whether its private address is an IPv6 address.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        text(&self.body["properties"]["privateIPAddressVersion"]).eq_ignore_ascii_case("IPv6")
    }

    /// Returns the pools, NAT rules and NAT pools to which it refers.
    pub fn references(&self) -> impl Iterator<Item = ResourceId> + '_ {
        REFERENCES.into_iter().flat_map(|key| ids(&self.body["properties"][key]))
    }

    /// Returns the public address of a virtual machine's interface.
    #[must_use]
    pub fn public_address(&self) -> Option<ResourceId> {
        id(&self.body["properties"][ADDRESS])
    }

    /// Returns the settings of the public addresses that a scale set gives to its instances.
    #[must_use]
    pub fn instance_address(&self) -> Option<&Value> {
        Some(&self.body["properties"][ADDRESS_CONFIGURATION]).filter(|settings| settings.is_object())
    }

    /// Returns the subnet.
    #[must_use]
    pub fn subnet(&self) -> Option<ResourceId> {
        id(&self.body["properties"]["subnet"])
    }
}

/// Returns all IP configurations of a body.
#[must_use]
pub fn configurations(kind: MemberKind, body: &Value) -> Vec<Configuration<'_>> {
    let profile = body.pointer(kind.profile()).unwrap_or(&Value::Null);
    match kind {
        MemberKind::NetworkInterface => {
            let primary_interface = profile["primary"].as_bool().unwrap_or(true);
            let all = items(&profile["ipConfigurations"]).iter();
            all.map(|body| Configuration { interface: "", primary_interface, body }).collect()
        }
        MemberKind::Model | MemberKind::Instance => {
            let interfaces = items(&profile["networkInterfaceConfigurations"]);
            interfaces.iter().flat_map(|interface| of_interface(interface, interfaces.len() == 1)).collect()
        }
    }
}

fn of_interface(interface: &Value, only: bool) -> impl Iterator<Item = Configuration<'_>> {
    let properties = &interface["properties"];
    let primary_interface = properties["primary"].as_bool().unwrap_or(only);
    items(&properties["ipConfigurations"]).iter().map(move |body| Configuration {
        interface: text(&interface["name"]),
        primary_interface,
        body,
    })
}

/// Calls `edit` with each interface's name and each of its IP configurations.
fn edit_configurations(kind: MemberKind, body: &mut Value, mut edit: impl FnMut(&str, &mut Value)) {
    let Some(profile) = body.pointer_mut(kind.profile()) else { return };
    let mut edit_all = |interface: &str, of: Option<&mut Value>| {
        for configuration in list_mut(of, "ipConfigurations") {
            edit(interface, configuration);
        }
    };
    match kind {
        MemberKind::NetworkInterface => edit_all("", Some(profile)),
        MemberKind::Model | MemberKind::Instance => {
            for interface in list_mut(Some(profile), "networkInterfaceConfigurations") {
                let name = text(&interface["name"]).to_owned();
                edit_all(&name, interface.get_mut("properties"));
            }
        }
    }
}

fn list_mut<'a>(of: Option<&'a mut Value>, key: &str) -> impl Iterator<Item = &'a mut Value> {
    of.and_then(|of| of.get_mut(key)).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Returns the load balancer's probe that a scale set uses as its health probe.
#[must_use]
pub fn health_probe(body: &Value) -> Option<ResourceId> {
    id(&body["properties"]["virtualMachineProfile"]["networkProfile"]["healthProbe"])
}

/// References that are removed from bodies.
#[derive(Clone, Debug, Default)]
pub struct RemovedReferences {
    /// The load balancers.
    pub load_balancers: BTreeSet<ResourceId>,
    /// Public addresses with the SKU Basic.
    pub addresses: BTreeSet<ResourceId>,
    /// Single pools of load balancers that are kept.
    pub pools: BTreeSet<ResourceId>,
}

impl RemovedReferences {
    fn holds(&self, reference: &ResourceId) -> bool {
        self.pools.contains(reference) || self.load_balancers.iter().any(|lb| reference.below(lb).is_some())
    }
}

/// Returns the body without these references, in all configurations of all interfaces and in the health probe; `None`
/// if it has none of them.
#[must_use]
pub fn detached(kind: MemberKind, body: &Value, removed_references: &RemovedReferences) -> Option<Value> {
    let mut edited = body.clone();
    edit_configurations(kind, &mut edited, |_, configuration| {
        let Some(properties) = configuration.get_mut("properties").and_then(Value::as_object_mut) else {
            return;
        };
        for key in REFERENCES {
            if let Some(list) = properties.get_mut(key).and_then(Value::as_array_mut) {
                list.retain(|item| id(item).is_none_or(|reference| !removed_references.holds(&reference)));
            }
        }
        if properties
            .get(ADDRESS)
            .and_then(id)
            .is_some_and(|address| removed_references.addresses.contains(&address))
        {
            properties.remove(ADDRESS);
        }
        let leaves = !removed_references.load_balancers.is_empty();
        if leaves
            && properties
                .get(ADDRESS_CONFIGURATION)
                .is_some_and(|of| of.is_object() && is_basic_configuration(of))
        {
            properties.remove(ADDRESS_CONFIGURATION);
        }
    });
    if health_probe(body).is_some_and(|probe| removed_references.holds(&probe)) {
        edited["properties"]["virtualMachineProfile"]["networkProfile"]["healthProbe"] = Value::Null;
    }
    (edited != *body).then_some(edited)
}

/// Returns whether the instances' own public addresses have the SKU Basic, which is the default.
#[must_use]
pub fn is_basic_configuration(configuration: &Value) -> bool {
    configuration["sku"]["name"].as_str().is_none_or(|sku| sku.eq_ignore_ascii_case("Basic"))
}

/// References that an IP configuration must have.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Attachment {
    /// The name of the interface; empty for an interface of a virtual machine.
    pub interface: String,
    /// The name of the configuration.
    pub configuration: String,
    /// The pools.
    pub pools: BTreeSet<ResourceId>,
    /// The NAT rules.
    pub nat_rules: BTreeSet<ResourceId>,
    /// The NAT pools.
    pub nat_pools: BTreeSet<ResourceId>,
    /// The public address: its id, or the settings that a scale set gives to its instances.
    pub address: Option<Value>,
}

impl Attachment {
    /// Returns the removed references of this configuration, and its public address if that is removed or has the SKU
    /// Basic.
    #[must_use]
    pub fn of(configuration: &Configuration<'_>, removed_references: &RemovedReferences) -> Attachment {
        let properties = &configuration.body["properties"];
        let held = |key: &str| ids(&properties[key]).filter(|id| removed_references.holds(id)).collect();
        let address =
            configuration.public_address().filter(|address| removed_references.addresses.contains(address));
        let configured = configuration.instance_address().filter(|settings| is_basic_configuration(settings));
        Attachment {
            interface: configuration.interface.to_owned(),
            configuration: text(&configuration.body["name"]).to_owned(),
            pools: held(POOLS),
            nat_rules: held(NAT_RULES),
            nat_pools: held(NAT_POOLS),
            address: address
                .map(|address| json!({ "id": address }))
                .or_else(|| configured.map(standard_configuration)),
        }
    }

    /// Returns whether there are no references.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
            && self.nat_rules.is_empty()
            && self.nat_pools.is_empty()
            && self.address.is_none()
    }

    /// Replaces each reference; drops those without a replacement.
    pub fn repoint(&mut self, new_id: impl Fn(&ResourceId) -> Option<ResourceId>) {
        for references in [&mut self.pools, &mut self.nat_rules, &mut self.nat_pools] {
            *references = references.iter().filter_map(&new_id).collect();
        }
    }
}

fn standard_configuration(settings: &Value) -> Value {
    let mut settings = settings.clone();
    settings["sku"] = json!({ "name": "Standard", "tier": "Regional" });
    settings
}

/// Returns the body with these references added; `None` if it has all of them.
#[must_use]
pub fn attached(
    kind: MemberKind,
    body: &Value,
    wanted: &[Attachment],
    probe: Option<&ResourceId>,
) -> Option<Value> {
    let mut edited = body.clone();
    edit_configurations(kind, &mut edited, |interface, configuration| {
        let name = text(&configuration["name"]).to_owned();
        let mine = |wanted: &&Attachment| wanted.interface == interface && wanted.configuration == name;
        let Some(wanted) = wanted.iter().find(mine) else { return };
        let properties = object(configuration, "properties");
        for (key, references) in
            [(POOLS, &wanted.pools), (NAT_RULES, &wanted.nat_rules), (NAT_POOLS, &wanted.nat_pools)]
        {
            let there: BTreeSet<ResourceId> = properties.get(key).into_iter().flat_map(ids).collect();
            let missing: Vec<Value> =
                references.iter().filter(|id| !there.contains(id)).map(|id| json!({ "id": id })).collect();
            if !missing.is_empty() {
                let list = properties.entry(key).or_insert_with(|| json!([]));
                list.as_array_mut().into_iter().for_each(|list| list.extend(missing.iter().cloned()));
            }
        }
        if let Some(address) = &wanted.address {
            let key = if kind == MemberKind::NetworkInterface { ADDRESS } else { ADDRESS_CONFIGURATION };
            properties.entry(key).or_insert_with(|| address.clone());
        }
    });
    if let (MemberKind::Model, Some(probe), None) = (kind, probe, health_probe(body)) {
        edited["properties"]["virtualMachineProfile"]["networkProfile"]["healthProbe"] =
            json!({ "id": probe });
    }
    (edited != *body).then_some(edited)
}

/// Returns the part of an edited body that a PUT sends. For a scale set and its instances, this is only the network
/// part, so that no other pending change of the model is applied. An interface is sent as a whole.
#[must_use]
pub fn put_body(kind: MemberKind, edited: &Value) -> Value {
    let location = &edited["location"];
    let properties = &edited["properties"];
    match kind {
        MemberKind::NetworkInterface => {
            let mut body = edited.clone();
            for key in ["provisioningState", "resourceGuid", "hostedWorkloads", "virtualMachine"] {
                object(&mut body, "properties").remove(key);
            }
            body
        }
        MemberKind::Model => json!({
            "location": location,
            "properties": { "virtualMachineProfile": {
                "networkProfile": properties["virtualMachineProfile"]["networkProfile"],
            } },
        }),
        MemberKind::Instance => json!({
            "location": location,
            "properties": { "networkProfileConfiguration": properties["networkProfileConfiguration"] },
        }),
    }
}
