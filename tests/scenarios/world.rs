//! The cluster of a scenario: nodes with their addresses, Services with their families and load balancers, and the
//! objects of these.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value, json};
use simulator::models::arm::{PoolSpec, VirtualNetwork};
use simulator::models::kube::build::{self, Endpoint, Family};
use simulator::{pool_name, vnet_id};

/// The namespace of Services without a named one.
const NAMESPACE: &str = "shop";
/// The empty list of nodes.
pub const NO_MEMBERS: &str = "no-members";

/// The world of one scenario.
#[derive(Default)]
pub struct World {
    nodes: BTreeMap<String, Node>,
    services: BTreeMap<ServiceName, Service>,
}

/// A node. A deleted one stays, because later lines may name it.
#[derive(Clone, Default)]
struct Node {
    ips: Vec<IpAddr>,
    labels: BTreeMap<String, String>,
    /// The virtual machine of the node in a scale set: `<scale set>/<number>`. Other machines have the names of their
    /// nodes.
    machine: Option<String>,
    /// Number of times it was recreated under its name.
    renewed: u32,
}

/// Namespace and name of a Service; `web` is in the namespace `shop`, `team.web` in `team`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceName {
    pub namespace: String,
    pub name: String,
}

/// A Service as the scenario describes it.
#[derive(Clone)]
pub struct Service {
    /// Its IP families.
    pub families: Vec<Family>,
    /// `Local` or `Cluster`.
    pub policy: String,
    /// True if it carries the annotation of a pause.
    pub paused: bool,
    /// True if its object cannot be decoded.
    pub malformed: bool,
}

impl ServiceName {
    /// Reads `web` or `team.web`.
    pub fn parse(text: &str) -> Self {
        let (namespace, name) = text.split_once('.').unwrap_or((NAMESPACE, text));
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Returns the name of its pool in a family.
    pub fn pool(&self, family: Family) -> String {
        pool_name(&self.namespace, &self.name, family)
    }

    /// Returns the name of its rule in a family, as the cloud-controller-manager makes it.
    pub fn rule(&self, family: Family) -> String {
        let uid = build::uid("Service", &self.namespace, &self.name).replace('-', "");
        let prefix: String = format!("a{uid}").chars().take(32).collect();
        match family {
            Family::V4 => format!("{prefix}-TCP-80"),
            Family::V6 => format!("{prefix}-TCP-80-IPv6"),
        }
    }
}

impl World {
    /// Creates a node in the world, or changes its addresses.
    pub fn set_node(&mut self, name: &str, ips: Vec<IpAddr>) {
        self.nodes.entry(name.to_owned()).or_default().ips = ips;
    }

    /// Sets a label of a node, or removes it.
    pub fn label_node(&mut self, name: &str, key: &str, value: Option<&str>) -> Result<(), String> {
        let node = self.node_mut(name)?;
        match value {
            Some(value) => node.labels.insert(key.to_owned(), value.to_owned()),
            None => node.labels.remove(key),
        };
        Ok(())
    }

    /// Sets the virtual machine of a node in a scale set.
    pub fn set_machine(&mut self, name: &str, machine: &str) -> Result<(), String> {
        let parts = machine.split_once('/').filter(|(set, _)| !set.is_empty());
        if parts.is_none_or(|(_, number)| number.parse::<u32>().is_err()) {
            return Err(format!("{machine:?} is no machine: write <scale set>/<number>, such as vmss/0"));
        }
        self.node_mut(name)?.machine = Some(machine.to_owned());
        Ok(())
    }

    /// Replaces a node by another one with the same name, addresses and labels.
    pub fn renew_node(&mut self, name: &str) -> Result<(), String> {
        self.node_mut(name)?.renewed += 1;
        Ok(())
    }

    fn node(&self, name: &str) -> Result<&Node, String> {
        self.nodes.get(name).ok_or_else(|| unknown(name))
    }

    fn node_mut(&mut self, name: &str) -> Result<&mut Node, String> {
        self.nodes.get_mut(name).ok_or_else(|| unknown(name))
    }

    /// Returns whether a node was recreated under its name.
    pub fn is_renewed(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(|node| node.renewed > 0)
    }

    /// Returns whether an entry of a pool belongs to a node, by its address or by the id of its network interface.
    /// `node` may be an address.
    pub fn is_of(&self, node: &str, ip: Option<IpAddr>, interface: Option<&str>) -> bool {
        let known = self.nodes.get(node);
        match (ip, interface, known) {
            (Some(ip), _, _) if node.parse::<IpAddr>() == Ok(ip) => true,
            (Some(ip), _, Some(known)) => known.ips.contains(&ip),
            (None, Some(interface), Some(known)) => {
                let part = match known.machine.as_deref().and_then(|machine| machine.split_once('/')) {
                    Some((set, number)) => {
                        format!("/virtualMachineScaleSets/{set}/virtualMachines/{number}/networkInterfaces/")
                    }
                    None => format!("/networkInterfaces/{node}-nic/"),
                };
                interface.contains(&part)
            }
            (_, _, None) | (None, None, Some(_)) => false,
        }
    }

    /// Returns the object of a new node.
    pub fn node_object(&self, name: &str) -> Result<Value, String> {
        let node = self.node(name)?;
        let ips: Vec<String> = node.ips.iter().map(ToString::to_string).collect();
        let ips: Vec<&str> = ips.iter().map(String::as_str).collect();
        let labels: Vec<(&str, &str)> =
            node.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let mut object = build::node(name, &ips, &labels, true, &[]);
        if let Some((set, number)) = node.machine.as_deref().and_then(|machine| machine.split_once('/')) {
            object["spec"]["providerID"] = json!(format!(
                "azure:///subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg/providers/\
                 Microsoft.Compute/virtualMachineScaleSets/{set}/virtualMachines/{number}"
            ));
        }
        let uid = build::uid("Node", &node.renewed.to_string(), name);
        Ok(if node.renewed > 0 { build::with_uid(object, &uid) } else { object })
    }

    /// Creates a Service in the world.
    pub fn set_service(&mut self, name: &ServiceName, service: Service) {
        self.services.insert(name.clone(), service);
    }

    /// Returns a Service of the world.
    pub fn service(&self, name: &ServiceName) -> Result<&Service, String> {
        self.services.get(name).ok_or_else(|| format!("there is no Service {}.{}", name.namespace, name.name))
    }

    /// Returns a Service of the world, to change it.
    pub fn service_mut(&mut self, name: &ServiceName) -> Result<&mut Service, String> {
        let missing = format!("there is no Service {}.{}", name.namespace, name.name);
        self.services.get_mut(name).ok_or(missing)
    }

    /// Returns a Service's object.
    pub fn service_object(&self, name: &ServiceName) -> Result<Value, String> {
        let service = self.service(name)?;
        let object = build::service(&name.namespace, &name.name, &[80], &service.families);
        let mut object = build::with_ingress(object, &["20.1.2.3"]);
        object["spec"]["externalTrafficPolicy"] = json!(service.policy);
        if service.paused {
            object["metadata"]["annotations"] = json!({ "azure-backend-pool-controller.io/pause": "true" });
        }
        if service.malformed {
            object["spec"]["ipFamilies"] = json!("IPv4, or so");
        }
        Ok(object)
    }

    /// Returns the slice with this number of a Service, one object for each family.
    pub fn slices(
        &self,
        name: &ServiceName,
        number: usize,
        endpoints: &[Endpoint],
    ) -> Result<Vec<Value>, String> {
        let slice =
            |family: &Family| build::endpoint_slice(&name.namespace, &name.name, number, endpoints, *family);
        Ok(self.service(name)?.families.iter().map(slice).collect())
    }

    /// Returns the addresses that these nodes have in a pool: names of nodes, or addresses as they are.
    pub fn members(&self, pool: &str, names: &[&str]) -> Result<BTreeSet<IpAddr>, String> {
        let v6 = pool.to_lowercase().ends_with("-ipv6");
        let ip = |name: &&str| {
            if let Ok(ip) = name.parse() {
                return Ok(ip);
            }
            let node = self.node(name)?;
            let ip = node.ips.iter().find(|ip| ip.is_ipv6() == v6).copied();
            ip.ok_or_else(|| format!("node {name} has no address of the family of {pool}"))
        };
        names.iter().filter(|name| **name != NO_MEMBERS).map(ip).collect()
    }

    /// Does the same, with the names that the entries of a pool have.
    pub fn entries(&self, pool: &str, names: &[&str]) -> Result<Vec<(String, String)>, String> {
        let entry = |name: &&str| {
            let ip = self.members(pool, &[name])?.into_iter().next();
            ip.map(|ip| ((*name).to_owned(), ip.to_string())).ok_or_else(|| format!("{name} has no address"))
        };
        names.iter().filter(|name| **name != NO_MEMBERS).map(entry).collect()
    }

    /// Returns a pool that the network interfaces of these nodes fill.
    pub fn interface_pool(&self, names: &[&str]) -> Result<PoolSpec, String> {
        let machine = |name: &&str| {
            let machine = self.node(name)?.machine.clone();
            Ok(machine.unwrap_or_else(|| (*name).to_owned()))
        };
        let machines = names.iter().filter(|name| **name != NO_MEMBERS).map(machine);
        let instances = machines.collect::<Result<_, String>>()?;
        let virtual_network = VirtualNetwork::Pool(vnet_id());
        Ok(PoolSpec { virtual_network, nic_backed: true, instances, ..PoolSpec::default() })
    }

    /// Returns a pool that holds these nodes.
    pub fn pool(&self, pool: &str, names: &[&str]) -> Result<PoolSpec, String> {
        let members = self.entries(pool, names)?;
        Ok(PoolSpec { virtual_network: VirtualNetwork::Pool(vnet_id()), members, ..PoolSpec::default() })
    }

    /// Returns a pool that holds these nodes, each by the subnet `nodes`.
    pub fn subnet_pool(&self, pool: &str, names: &[&str]) -> Result<PoolSpec, String> {
        let virtual_network = VirtualNetwork::Subnet(format!("{}/subnets/nodes", vnet_id()));
        Ok(PoolSpec { virtual_network, ..self.pool(pool, names)? })
    }
}

fn unknown(node: &str) -> String {
    format!("there is no node {node}; `given nodes N` makes node-1 to node-N")
}

/// Returns the load balancer, where it is named, and the name of a pool: `shop-web`, or `lb-2/shop-web`.
pub fn split_pool(text: &str) -> (Option<&str>, &str) {
    text.split_once('/').map_or((None, text), |(load_balancer, pool)| (Some(load_balancer), pool))
}

/// Returns the addresses of the n-th node, from 1.
pub fn node_ips(number: u16, dual: bool) -> Vec<IpAddr> {
    let [high, low] = number.to_be_bytes();
    let v4 = IpAddr::from([10, 0, high, low]);
    let v6 = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, number]);
    if dual { vec![v4, v6] } else { vec![v4] }
}

/// Parses endpoints: words for their state, each followed by the nodes with an endpoint in this state. `nowhere` has
/// no node.
pub fn endpoints(words: &[&str]) -> Result<Vec<Endpoint>, String> {
    let mut how: fn(&str) -> Endpoint = Endpoint::ready;
    let mut endpoints = Vec::new();
    let first = words.first().copied().unwrap_or_default();
    if !["hosted", "not-ready", "terminating", "empty"].contains(&first) {
        return Err(format!("{first:?}: endpoints begin with hosted, not-ready, terminating or empty"));
    }
    for word in words {
        match *word {
            "hosted" => how = Endpoint::ready,
            "not-ready" => how = Endpoint::starting,
            "terminating" => how = Endpoint::draining,
            "empty" => {}
            "nowhere" => endpoints.push(Endpoint { node: None, ..how("") }),
            node => endpoints.push(how(node)),
        }
    }
    Ok(endpoints)
}
