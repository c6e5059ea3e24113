//! Parses the body of a pool PUT, and refuses contents that Azure refuses. Codes marked *ours* are not known from
//! Azure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Map, Value};

use super::answer::Answer;
use super::settings::{NicAdminState, Settings};
use super::store::{Address, Content, Pool};

const MALFORMED: [&str; 2] = ["InvalidRequestFormat", "Cannot parse the request."];
const POOL_READ_ONLY: [&str; 6] = [
    "backendIPConfigurations",
    "inboundNatRules",
    "loadBalancingRules",
    "outboundRule",
    "outboundRules",
    "provisioningState",
];
const POOL_OPTIONAL: [&str; 5] =
    ["drainPeriodInSeconds", "location", "syncMode", "tunnelInterfaces", "virtualNetwork"];
const ADDRESS_READ_ONLY: [&str; 3] =
    ["inboundNatRulesPortMapping", "networkInterfaceIPConfiguration", "provisioningState"];
const ADDRESS_OPTIONAL: [&str; 5] =
    ["adminState", "ipAddress", "loadBalancerFrontendIPConfiguration", "subnet", "virtualNetwork"];
const IDENTITY: [&str; 4] = ["id", "name", "etag", "type"];

/// Context of the checks of a PUT.
pub(crate) struct Checked<'a> {
    pub(crate) pool_name: &'a str,
    pub(crate) pool_id: &'a str,
    pub(crate) existing: Option<&'a Pool>,
    pub(crate) settings: &'a Settings,
}

impl Checked<'_> {
    /// Returns the content that the body requests, or the refusal.
    pub(crate) fn read(&self, body: &[u8]) -> Result<Content, Answer> {
        let mut top = object(body)?;
        if let Some(name) = top.get("name").and_then(Value::as_str)
            && name.to_lowercase() != self.pool_name.to_lowercase()
        {
            let url = self.pool_name;
            let message =
                format!("The provided resource name '{name}' did not match the name in the Url '{url}'.");
            return Err(Answer::gateway(400, "MismatchingResourceName", &message));
        }
        check_name(self.pool_name)?;
        let mut properties = match top.shift_remove("properties") {
            Some(Value::Object(properties)) => properties,
            None | Some(Value::Null) => Map::new(),
            Some(_) => {
                return Err(malformed("The properties of a backend address pool must be an object."));
            }
        };
        top.retain(|name, _| !IDENTITY.contains(&name.as_str()));
        let listed = properties.shift_remove("loadBalancerBackendAddresses");
        properties.retain(|name, value| is_kept(name, value, &POOL_READ_ONLY, &POOL_OPTIONAL));
        let addresses = match listed {
            Some(Value::Array(listed)) => {
                Some(listed.into_iter().map(address).collect::<Result<Vec<_>, _>>()?)
            }
            None | Some(Value::Null) => None,
            Some(_) => return Err(malformed("loadBalancerBackendAddresses must be an array.")),
        };
        let addresses = match (self.existing.filter(|pool| pool.nic_backed), addresses) {
            (Some(pool), addresses) => self.interfaces(pool, addresses)?,
            (None, addresses) => addresses.unwrap_or_default(),
        };
        let content = Content { top, properties, addresses };
        self.check(&content)?;
        Ok(content)
    }

    /// Returns the new addresses of a NIC-based pool, which accepts new admin states, but no changes of its members.
    fn interfaces(&self, pool: &Pool, listed: Option<Vec<Address>>) -> Result<Vec<Address>, Answer> {
        let Some(mut listed) = listed else {
            return Ok(pool.content.addresses.clone());
        };
        let known = &pool.content.addresses;
        if listed.len() != known.len() {
            return Err(self.interfaces_own_members());
        }
        for address in &mut listed {
            let before = known.iter().find(|known| known.name == address.name);
            let interface = before.and_then(|known| known.properties.get("networkInterfaceIPConfiguration"));
            let Some(interface) = interface.filter(|_| address.text("ipAddress").is_none()) else {
                return Err(self.interfaces_own_members());
            };
            let state = before.and_then(|known| known.properties.get("adminState"));
            if self.settings.nic_admin_state == NicAdminState::Refuse
                && effective(state) != effective(address.properties.get("adminState"))
            {
                return Err(self.interfaces_own_members());
            }
            address.properties.insert("networkInterfaceIPConfiguration".to_owned(), interface.clone());
        }
        Ok(listed)
    }

    fn interfaces_own_members(&self) -> Answer {
        let id = self.pool_id;
        let message = format!(
            "Operation on backend pool {id} not allowed since it adds/modifies/deletes backend address pool members that are specified with a network interface IP configuration."
        );
        Answer::provider(400, "ModificationOfNICIpConfigBackendPoolNotSupported", &message)
    }

    fn check(&self, content: &Content) -> Result<(), Answer> {
        let addresses = &content.addresses;
        let limit = self.settings.max_addresses_per_pool;
        if addresses.len() > limit {
            let message = format!("Backend address pool {} has more than {limit} addresses.", self.pool_id);
            return Err(Answer::provider(400, "BackendAddressPoolAddressCountLimitReached", &message)); // ours
        }
        let mut names = BTreeSet::new();
        for address in addresses {
            check_name(&address.name)?;
            check_properties(address)?;
            if !names.insert(address.name.to_lowercase()) {
                return Err(duplicate(&address.name));
            }
        }
        self.check_synchronisation(content)
    }

    fn check_synchronisation(&self, content: &Content) -> Result<(), Answer> {
        let at_pool = content.properties.contains_key("virtualNetwork");
        if at_pool && content.addresses.iter().any(|a| a.properties.contains_key("virtualNetwork")) {
            let message =
                "The virtual network can be specified for the pool or for its addresses, not for both.";
            return Err(Answer::detailed(400, MALFORMED, "VirtualNetworkSpecifiedTwice", message)); // ours
        }
        match content.properties.get("syncMode").map(|mode| mode.as_str().unwrap_or_default()) {
            None => Ok(()),
            Some(mode) if !mode.eq_ignore_ascii_case("Automatic") && !mode.eq_ignore_ascii_case("Manual") => {
                Err(malformed("syncMode must be Automatic or Manual."))
            }
            Some(_) if !at_pool => Err(malformed("syncMode needs a virtual network at pool level.")),
            Some(_) => self.check_automatic(content),
        }
    }

    fn check_automatic(&self, content: &Content) -> Result<(), Answer> {
        let before = self.existing.map_or(&[][..], |pool| &pool.content.addresses);
        if content.synchronises_itself() && content.addresses != before {
            return Err(Answer::provider(
                400,
                "ModificationOfBackendAddressesInPoolIsNotSupportedWhenSyncModeIsAutomatic",
                "Modification of backend addresses in pools is not supported when sync mode is set as Automatic.",
            ));
        }
        Ok(())
    }
}

/// Returns the admin state; the text `None` if it is not set.
fn effective(state: Option<&Value>) -> &str {
    state.and_then(Value::as_str).unwrap_or("None")
}

/// Returns the body of a request as an object.
pub(crate) fn object(body: &[u8]) -> Result<Map<String, Value>, Answer> {
    let problem = match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => return Ok(object),
        Ok(_) => "an object was expected".to_owned(),
        Err(error) => error.to_string(),
    };
    let message = format!("The request content was invalid and could not be deserialized: '{problem}'.");
    Err(Answer::gateway(400, "InvalidRequestContent", &message))
}

fn is_kept(name: &str, value: &Value, read_only: &[&str], optional: &[&str]) -> bool {
    let absent = value.is_null() && optional.contains(&name);
    !absent && !read_only.contains(&name)
}

fn address(value: Value) -> Result<Address, Answer> {
    let Value::Object(mut top) = value else {
        return Err(malformed("A backend address must be an object."));
    };
    let mut properties = match top.shift_remove("properties") {
        Some(Value::Object(properties)) => properties,
        None | Some(Value::Null) => Map::new(),
        Some(_) => {
            return Err(malformed("The properties of a backend address must be an object."));
        }
    };
    let name = top.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    top.retain(|name, _| !IDENTITY.contains(&name.as_str()));
    properties.retain(|name, value| is_kept(name, value, &ADDRESS_READ_ONLY, &ADDRESS_OPTIONAL));
    Ok(Address { name, top, properties })
}

fn check_properties(address: &Address) -> Result<(), Answer> {
    match address.properties.get("ipAddress") {
        None => {}
        Some(Value::String(ip)) if ip.is_empty() || ip.parse::<IpAddr>().is_ok() => {}
        Some(other) => return Err(malformed(&format!("{other} is not an IP address."))),
    }
    match address.properties.get("adminState") {
        None => Ok(()),
        Some(Value::String(state)) if ["None", "Up", "Down"].contains(&state.as_str()) => Ok(()),
        Some(other) => Err(malformed(&format!("{other} is not an admin state."))),
    }
}

/// Returns the refusal of two children of one resource with the same name.
pub(crate) fn duplicate(name: &str) -> Answer {
    let parent = "/subscriptions//resourceGroups//providers/Microsoft.Network/loadBalancers/";
    let message = format!(
        "Resource {parent}/backendAddressPools/ has two child resources with the same name ({name})."
    );
    Answer::detailed(400, MALFORMED, "DuplicateResourceName", &message)
}

pub(crate) fn check_name(name: &str) -> Result<(), Answer> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let allowed = name.chars().all(|c| word(c) || c == '.' || c == '-');
    let ends = name.starts_with(word) && name.ends_with(word);
    if allowed && ends && name.chars().count() <= 80 {
        return Ok(());
    }
    let message = format!(
        "Resource name {name} is invalid. The name can be up to 80 characters long. It must begin with a word character, and it must end with a word character or with '_'. The name may contain word characters or '.', '-', '_'."
    );
    Err(Answer::provider(400, "InvalidResourceName", &message))
}

pub(crate) fn malformed(message: &str) -> Answer {
    Answer::detailed(400, MALFORMED, "InvalidRequestContent", message)
}
