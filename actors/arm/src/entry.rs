//! One address entry of a pool, read and built with the generated models of `azure_mgmt_network`: the only module
//! that uses them.
//!
//! An entry that the models cannot read is read as plain JSON, so that a type change in the service does not stop the
//! controller.

use std::net::IpAddr;
use std::sync::Arc;

use azure_mgmt_network::package_2024_03::models::load_balancer_backend_address_properties_format::AdminState as ModelState;
use azure_mgmt_network::package_2024_03::models::{
    LoadBalancerBackendAddress, LoadBalancerBackendAddressPropertiesFormat, SubResource,
};
use model::arm::{AdminState, Entry, EntryNetwork, NewEntry};
use model::ids::{InstanceId, NetworkId, SubnetId};
use serde::Deserialize;
use serde_json::Value;

/// Facts about an entry.
pub(crate) struct ParsedEntry {
    /// The entry itself.
    pub(crate) entry: Entry,
    /// True if inbound NAT rules refer to it.
    pub(crate) has_inbound_nat_rule: bool,
}

/// Reads an entry.
pub(crate) fn read(value: &Value) -> ParsedEntry {
    match LoadBalancerBackendAddress::deserialize(value) {
        Ok(model) => of_model(model),
        Err(_) => of_json(value),
    }
}

/// Returns whether the generated models can read an entry.
#[cfg(test)]
pub(crate) fn fits_model(value: &Value) -> bool {
    LoadBalancerBackendAddress::deserialize(value).is_ok()
}

fn of_model(model: LoadBalancerBackendAddress) -> ParsedEntry {
    let properties = model.properties.unwrap_or_default();
    let network = properties.virtual_network.and_then(|network| network.id);
    let subnet = properties.subnet.and_then(|subnet| subnet.id);
    let interface = properties.network_interface_ip_configuration.and_then(|configuration| configuration.id);
    let admin_state = match properties.admin_state {
        None | Some(ModelState::None) => AdminState::None,
        Some(ModelState::Up) => AdminState::Up,
        Some(ModelState::Down) => AdminState::Down,
        Some(ModelState::UnknownValue(text)) => state_of(&text),
    };
    ParsedEntry {
        entry: Entry {
            name: Arc::from(model.name.unwrap_or_default()),
            ip: properties.ip_address.as_deref().and_then(address),
            admin_state,
            network: network_named(network.as_deref(), subnet.as_deref()),
            instance: interface.as_deref().and_then(InstanceId::of_ip_configuration),
        },
        has_inbound_nat_rule: !properties.inbound_nat_rules_port_mapping.is_empty(),
    }
}

fn of_json(value: &Value) -> ParsedEntry {
    let properties = &value["properties"];
    let interface = &properties["networkInterfaceIPConfiguration"]["id"];
    let admin_state = match &properties["adminState"] {
        Value::Null => AdminState::None,
        Value::String(text) => state_of(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => AdminState::Unknown,
    };
    ParsedEntry {
        entry: Entry {
            name: Arc::from(value["name"].as_str().unwrap_or_default()),
            ip: properties["ipAddress"].as_str().and_then(address),
            admin_state,
            network: network_named(
                properties["virtualNetwork"]["id"].as_str(),
                properties["subnet"]["id"].as_str(),
            ),
            instance: interface.as_str().and_then(InstanceId::of_ip_configuration),
        },
        has_inbound_nat_rule: match &properties["inboundNatRulesPortMapping"] {
            Value::Null => false,
            Value::Array(rules) => !rules.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => true,
        },
    }
}

fn address(text: &str) -> Option<IpAddr> {
    text.trim().parse().ok()
}

/// Returns the network of an entry. A subnet takes precedence over a virtual network, because it is more specific.
fn network_named(network: Option<&str>, subnet: Option<&str>) -> Option<Arc<EntryNetwork>> {
    let is_named = |id: &&str| !id.is_empty();
    let subnet = subnet.filter(is_named).map(|id| EntryNetwork::Subnet(SubnetId::new(id)));
    let network = || network.filter(is_named).map(|id| EntryNetwork::VirtualNetwork(NetworkId::new(id)));
    subnet.or_else(network).map(Arc::new)
}

/// Parses an admin state in any spelling; the models accept only one.
fn state_of(text: &str) -> AdminState {
    let known = [("None", AdminState::None), ("Up", AdminState::Up), ("Down", AdminState::Down)];
    let found = known.iter().find(|(spelling, _)| spelling.eq_ignore_ascii_case(text));
    found.map_or(AdminState::Unknown, |(_, state)| *state)
}

/// Returns Azure's spelling of an admin state; an unknown one is not written.
pub(crate) fn spelling(state: AdminState) -> Option<&'static str> {
    match state {
        AdminState::None => Some("None"),
        AdminState::Up => Some("Up"),
        AdminState::Down => Some("Down"),
        AdminState::Unknown => None,
    }
}

/// Builds a new entry.
pub(crate) fn build(new: &NewEntry) -> LoadBalancerBackendAddress {
    let (virtual_network, subnet) = match new.network.as_deref() {
        Some(EntryNetwork::VirtualNetwork(id)) => (Some(reference(id.as_str())), None),
        Some(EntryNetwork::Subnet(id)) => (None, Some(reference(id.as_str()))),
        None => (None, None),
    };
    LoadBalancerBackendAddress {
        name: Some(new.name.as_str().to_owned()),
        properties: Some(LoadBalancerBackendAddressPropertiesFormat {
            ip_address: Some(new.ip.to_string()),
            virtual_network,
            subnet,
            admin_state: new.admin_state.and_then(model_state),
            ..LoadBalancerBackendAddressPropertiesFormat::default()
        }),
    }
}

fn model_state(state: AdminState) -> Option<ModelState> {
    match state {
        AdminState::None => Some(ModelState::None),
        AdminState::Up => Some(ModelState::Up),
        AdminState::Down => Some(ModelState::Down),
        AdminState::Unknown => None,
    }
}

/// Returns a reference to a virtual network or subnet.
pub(crate) fn reference(id: &str) -> SubResource {
    SubResource { id: Some(id.to_owned()) }
}
