//! The store of resources other than load balancers: plain JSON bodies by the key of their id, with the provider's
//! own state. It has no rules and no HTTP.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::random::Guid;
use super::resource_type::ResourceType;
use super::store::{Sku, key};

/// All resources by the keys of their ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resources {
    all: BTreeMap<String, Resource>,
}

/// One resource.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) kind: ResourceType,
    pub(crate) id: String,
    pub(crate) body: Body,
    pub(crate) etag: Etag,
    pub(crate) guid: Guid,
    /// True if its last operation failed.
    pub(crate) failed: bool,
    pub(crate) running: Option<Work>,
    pub(crate) provider_state: ProviderState,
}

/// Fields that a PUT sets and a GET shows, without the provider's additions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Body {
    /// Fields besides the properties: location, tags, SKU, zones.
    pub(crate) top: Map<String, Value>,
    pub(crate) properties: Map<String, Value>,
}

/// State that the provider keeps and no PUT sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProviderState {
    /// For a public IP: the id of its user.
    pub(crate) attached: Option<String>,
    /// For an instance: the private addresses of its IP configurations, by `interface/configuration`.
    pub(crate) addresses: BTreeMap<String, String>,
    /// For an instance: the public addresses of its IP configurations, by the same keys.
    pub(crate) public_addresses: BTreeMap<String, String>,
    /// For a scale set: the number of the last change of its model that requires a restart. For an instance: the
    /// number of the change that it has.
    pub(crate) restart_change: u64,
    /// For a machine or an instance: whether it is deallocated.
    pub(crate) is_deallocated: bool,
}

/// An etag: weak GUIDs of the network provider, quoted numbers of the compute provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Etag {
    Weak(Guid),
    Number(u64),
}

impl Etag {
    pub(crate) fn text(self) -> String {
        match self {
            Self::Weak(guid) => format!("W/\"{guid}\""),
            Self::Number(number) => format!("\"{number}\""),
        }
    }
}

/// The operation that runs on a resource.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) id: Guid,
    pub(crate) task: Task,
    /// The body before the operation, which stays in force until the operation ends.
    pub(crate) before: Option<Body>,
}

/// Type of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Create,
    Update,
    Delete,
    /// Updates these instances, by the keys of their ids, to the model.
    Upgrade(BTreeSet<String>),
}

impl Resource {
    pub(crate) fn name(&self) -> &str {
        last(&self.id)
    }

    pub(crate) fn key(&self) -> String {
        key(&self.id)
    }

    /// Returns the body that is in force on the data path: during an operation, the one before it.
    pub(crate) fn in_force(&self) -> &Body {
        self.running.as_ref().and_then(|work| work.before.as_ref()).unwrap_or(&self.body)
    }

    /// Returns the bodies whose references count: during an operation, those before and after it.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = &Body> {
        std::iter::once(&self.body).chain(self.running.iter().filter_map(|work| work.before.as_ref()))
    }

    pub(crate) fn sku(&self) -> Sku {
        Sku::of(self.body.top.get("sku")).unwrap_or(Sku::Basic)
    }

    pub(crate) fn state(&self) -> &'static str {
        match self.running.as_ref().map(|work| &work.task) {
            Some(Task::Create) => "Creating",
            Some(Task::Update | Task::Upgrade(_)) => "Updating",
            Some(Task::Delete) => "Deleting",
            None if self.failed => "Failed",
            None => "Succeeded",
        }
    }
}

impl Resources {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Resource> {
        self.all.get(&key(id))
    }

    pub(crate) fn get_mut(&mut self, id: &str) -> Option<&mut Resource> {
        self.all.get_mut(&key(id))
    }

    pub(crate) fn insert(&mut self, resource: Resource) {
        self.all.insert(resource.key(), resource);
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<Resource> {
        self.all.remove(&key(id))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Resource> {
        self.all.values()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Resource> {
        self.all.values_mut()
    }

    pub(crate) fn of(&self, kind: ResourceType) -> impl Iterator<Item = &Resource> {
        self.all.values().filter(move |resource| resource.kind == kind)
    }

    /// Returns the instances of a scale set, in the order of their numbers.
    pub(crate) fn instances(&self, scale_set: &str) -> Vec<&Resource> {
        let prefix = format!("{}/", key(scale_set));
        let below = self.all.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        let mut found: Vec<&Resource> =
            below.map(|(_, found)| found).filter(|found| found.kind == ResourceType::ScaleSetVm).collect();
        found.sort_by_key(|instance| instance.name().parse::<u64>().unwrap_or(u64::MAX));
        found
    }
}

/// One IP configuration, of an interface or of an interface template in a scale set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IpConfiguration<'a> {
    /// Name of the interface; empty if the resource is one itself.
    pub(crate) interface: &'a str,
    pub(crate) name: &'a str,
    /// True if it is the first or primary one of the first or primary interface.
    pub(crate) is_primary: bool,
    pub(crate) properties: &'a Map<String, Value>,
    pub(crate) security_group: Option<&'a str>,
}

impl IpConfiguration<'_> {
    /// Returns its id below its resource.
    pub(crate) fn id(&self, owner: &str) -> String {
        if self.interface.is_empty() {
            return format!("{owner}/ipConfigurations/{}", self.name);
        }
        format!("{owner}/networkInterfaces/{}/ipConfigurations/{}", self.interface, self.name)
    }

    /// Returns its name within a scale set.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.interface, self.name).to_lowercase()
    }
}

/// Returns the IP configurations in the body of an interface, a scale set or an instance; none for other resources.
pub(crate) fn ip_configurations(kind: ResourceType, body: &Body) -> Vec<IpConfiguration<'_>> {
    let Some(interfaces) = interface_list(kind, body) else {
        return match kind {
            ResourceType::NetworkInterface => of_interface("", &body.properties, true),
            ResourceType::PublicIpAddress
            | ResourceType::VirtualNetwork
            | ResourceType::Subnet
            | ResourceType::NetworkSecurityGroup
            | ResourceType::SecurityRule
            | ResourceType::NatGateway
            | ResourceType::RouteTable
            | ResourceType::AvailabilitySet
            | ResourceType::VirtualMachine
            | ResourceType::ScaleSet
            | ResourceType::ScaleSetVm => Vec::new(),
        };
    };
    let only = interfaces.len() == 1;
    let found = interfaces.iter().filter_map(|interface| {
        let properties = interface.get("properties")?.as_object()?;
        let is_primary = only || properties.get("primary") == Some(&Value::Bool(true));
        Some(of_interface(interface.get("name")?.as_str()?, properties, is_primary))
    });
    found.flatten().collect()
}

/// Returns the list of interfaces in the model of a scale set or in an instance.
fn interface_list(kind: ResourceType, body: &Body) -> Option<&Vec<Value>> {
    let profile = match kind {
        ResourceType::ScaleSet => body.properties.get("virtualMachineProfile")?.get("networkProfile")?,
        ResourceType::ScaleSetVm => body.properties.get("networkProfileConfiguration")?,
        ResourceType::PublicIpAddress
        | ResourceType::NetworkInterface
        | ResourceType::VirtualNetwork
        | ResourceType::Subnet
        | ResourceType::NetworkSecurityGroup
        | ResourceType::SecurityRule
        | ResourceType::NatGateway
        | ResourceType::RouteTable
        | ResourceType::AvailabilitySet
        | ResourceType::VirtualMachine => return None,
    };
    profile.get("networkInterfaceConfigurations")?.as_array()
}

fn of_interface<'a>(
    interface: &'a str,
    properties: &'a Map<String, Value>,
    interface_is_primary: bool,
) -> Vec<IpConfiguration<'a>> {
    let listed = properties.get("ipConfigurations").and_then(Value::as_array);
    let all = listed.map_or(&[][..], Vec::as_slice);
    let only = all.len() == 1;
    let security_group = link(properties, "networkSecurityGroup");
    let found = all.iter().filter_map(|configuration| {
        let properties = configuration.get("properties")?.as_object()?;
        let marked = only || properties.get("primary") == Some(&Value::Bool(true));
        let name = configuration.get("name")?.as_str()?;
        let is_primary = marked && interface_is_primary;
        Some(IpConfiguration { interface, name, is_primary, properties, security_group })
    });
    found.collect()
}

/// Returns the id in a property.
pub(crate) fn link<'a>(properties: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    properties.get(name)?.get("id")?.as_str()
}

/// Returns the ids in a list.
pub(crate) fn links<'a>(properties: &'a Map<String, Value>, name: &str) -> Vec<&'a str> {
    let listed = properties.get(name).and_then(Value::as_array);
    listed.into_iter().flatten().filter_map(|one| one.get("id")?.as_str()).collect()
}

/// Returns the last segment of an id.
pub(crate) fn last(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

/// Returns the load balancer, the kind and the name of the child, if an id names a load balancer's child.
pub(crate) fn balancer_child(id: &str) -> Option<(&str, &str, &str)> {
    let mut words = id.rsplit('/');
    let (name, kind, balancer, balancers) = (words.next()?, words.next()?, words.next()?, words.next()?);
    balancers.eq_ignore_ascii_case("loadBalancers").then_some((balancer, kind, name))
}
