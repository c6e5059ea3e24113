//! Clusters for tests of the migration from Basic to Standard load balancers: their resources in Azure, with the
//! names of cloud-provider-azure.

mod catalogue;
mod machines;

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub use catalogue::Topology;

use super::store::Sku;
use super::{ArmModel, Lock, Settings};

/// The virtual network of the nodes.
pub const NETWORK: &str = "vnet";
/// The subnet of the nodes and of internal frontends.
pub const SUBNET: &str = "nodes";
/// The load balancer of external Services; the one of internal Services has the suffix `-internal`.
pub const LOAD_BALANCER: &str = "kubernetes";
/// The pool of all nodes; the one of IPv6 addresses has the suffix `-IPv6`.
pub const POOL: &str = "kubernetes";

/// A cluster's resources in Azure. The default has neither nodes nor Services.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// The SKU of its load balancers and of the public IPs of its Services.
    pub sku: Sku,
    /// Its nodes.
    pub nodes: Vec<NodeGroup>,
    /// Its Services of type LoadBalancer, one frontend each.
    pub services: Vec<Service>,
    /// Inbound NAT in addition to the rules of Services; it needs an external Service.
    pub inbound_nat: InboundNat,
    /// An outbound rule on the external load balancer; it needs the Standard SKU.
    pub outbound_rule: bool,
    /// True if the models of scale sets use the first probe of the external load balancer as their health probe.
    pub health_probe: bool,
    /// True if the subnet has a security group that allows the ports of all Services.
    pub security_group: bool,
    /// True if the subnet has a NAT gateway; it needs nodes and load balancers without Basic resources.
    pub nat_gateway: bool,
    /// Level of a lock on the resource group.
    pub lock: Option<&'static str>,
    /// Maximum number of Standard public IPs of the subscription.
    pub standard_public_ip_limit: Option<u64>,
    /// Tags of the resource group.
    pub group_tags: BTreeMap<String, String>,
}

/// A group of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeGroup {
    /// Name, from which the names of machines and interfaces are derived.
    pub name: String,
    /// Kind of group.
    pub kind: NodeKind,
    /// Number of nodes.
    pub count: u32,
    /// True if they are members of the pools.
    pub in_pools: bool,
    /// SKU of each node's public IP.
    pub public_ip: Option<Sku>,
    /// True if each node has a second IP configuration, outside of the pools.
    pub secondary: bool,
}

/// Kind of a node group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// An availability set; interfaces are members.
    AvailabilitySet,
    /// No group; a Basic load balancer has at most one such machine.
    Standalone,
    /// A uniform scale set.
    ScaleSet(UpgradePolicy),
    /// A flexible scale set, with separate machines and interfaces; never behind a Basic load balancer.
    Flexible,
}

/// Time at which instances follow the model of their scale set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradePolicy {
    /// On request.
    Manual,
    /// With every write of the model.
    Automatic,
    /// With every write of the model, in batches.
    Rolling,
}

/// A Service of type LoadBalancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its frontend.
    pub frontend: Frontend,
    /// Its TCP port.
    pub port: u16,
}

/// The frontend of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frontend {
    /// A public IP.
    External {
        /// True if its address is static.
        is_static: bool,
        /// True if it is an IPv6 address.
        is_v6: bool,
    },
    /// A private address, static if given.
    Internal {
        /// The address.
        address: Option<String>,
    },
}

/// Inbound NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboundNat {
    /// None.
    Absent,
    /// A rule for each machine outside of uniform scale sets.
    Rules,
    /// A pool for each uniform scale set.
    Pools,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            sku: Sku::Basic,
            nodes: Vec::new(),
            services: Vec::new(),
            inbound_nat: InboundNat::Absent,
            outbound_rule: false,
            health_probe: false,
            security_group: true,
            nat_gateway: false,
            lock: None,
            standard_public_ip_limit: None,
            group_tags: BTreeMap::new(),
        }
    }
}

impl NodeGroup {
    /// Creates plain members of the pools.
    #[must_use]
    pub fn new(name: &str, kind: NodeKind, count: u32) -> Self {
        Self { name: name.to_owned(), kind, count, in_pools: true, public_ip: None, secondary: false }
    }
}

impl Service {
    /// Creates an external Service with an IPv4 address.
    #[must_use]
    pub fn external(is_static: bool) -> Self {
        Self { frontend: Frontend::External { is_static, is_v6: false }, port: 80 }
    }

    /// Creates an internal Service; its address is static if given.
    #[must_use]
    pub fn internal(address: Option<&str>) -> Self {
        Self { frontend: Frontend::Internal { address: address.map(str::to_owned) }, port: 80 }
    }

    fn is_external(&self) -> bool {
        match self.frontend {
            Frontend::External { .. } => true,
            Frontend::Internal { .. } => false,
        }
    }

    fn is_v6(&self) -> bool {
        match self.frontend {
            Frontend::External { is_v6, .. } => is_v6,
            Frontend::Internal { .. } => false,
        }
    }
}

/// Returns the name of the frontend of the Service at an index in [`Cluster::services`].
#[must_use]
pub fn frontend_name(service: usize) -> String {
    format!("a{:031x}", service + 1)
}

/// Returns the name of the public IP of the external Service at an index in [`Cluster::services`].
#[must_use]
pub fn public_ip_name(service: usize) -> String {
    format!("{LOAD_BALANCER}-{}", frontend_name(service))
}

impl Cluster {
    /// Creates a model of Azure with the cluster.
    ///
    /// # Errors
    /// Azure would refuse such a cluster; the error is the refusal.
    pub fn build(&self, mut settings: Settings) -> Result<ArmModel, String> {
        if let Some(level) = self.lock {
            let scope = settings.resource_group_id();
            settings.locks.push(Lock { name: "lock".to_owned(), level: level.to_owned(), scope });
        }
        settings.group_tags.extend(self.group_tags.clone());
        if let Some(limit) = self.standard_public_ip_limit {
            settings.standard_public_ip_limit = limit;
        }
        let ids = Ids::new(&settings);
        let mut model = ArmModel::new(settings);
        self.seed_network(&mut model, &ids)?;
        for (at, service) in self.services.iter().enumerate() {
            if let Frontend::External { is_static, is_v6 } = service.frontend {
                self.seed_public_ip(&mut model, &ids, at, (is_static, is_v6))?;
            }
        }
        for external in [true, false] {
            if self.services.iter().any(|service| service.is_external() == external) {
                let name = balancer_name(external);
                model.seed(&ids.network(&format!("loadBalancers/{name}")), &self.balancer(&ids, external))?;
            }
        }
        for group in &self.nodes {
            self.seed_nodes(&mut model, &ids, group)?;
        }
        if self.nat_gateway {
            self.seed_gateway(&mut model, &ids)?;
        }
        Ok(model)
    }

    fn has_v6(&self) -> bool {
        self.services.iter().any(Service::is_v6)
    }

    fn seed_network(&self, model: &mut ArmModel, ids: &Ids) -> Result<(), String> {
        let mut subnet = json!({"addressPrefixes": ["10.240.0.0/16", "fd00:db8::/64"]});
        if self.security_group {
            let group = ids.network("networkSecurityGroups/nodes-nsg");
            let rules: Vec<Value> = self.services.iter().enumerate().map(|(at, service)| {
                json!({"name": format!("{}-TCP-{}-Internet", frontend_name(at), service.port), "properties": {
                    "priority": 500 + at, "direction": "Inbound", "access": "Allow", "protocol": "Tcp",
                    "sourceAddressPrefix": "Internet", "sourcePortRange": "*",
                    "destinationAddressPrefix": "*", "destinationPortRange": service.port.to_string()}})
            }).collect();
            model.seed(&group, &json!({"location": ids.location, "properties": {"securityRules": rules}}))?;
            subnet["networkSecurityGroup"] = json!({ "id": group });
        }
        let properties = json!({"addressSpace": {"addressPrefixes": ["10.240.0.0/16", "fd00:db8::/64"]},
            "subnets": [{"name": SUBNET, "properties": subnet}]});
        let network = ids.network(&format!("virtualNetworks/{NETWORK}"));
        model.seed(&network, &json!({"location": ids.location, "properties": properties}))
    }

    fn seed_public_ip(
        &self,
        model: &mut ArmModel,
        ids: &Ids,
        at: usize,
        (is_static, is_v6): (bool, bool),
    ) -> Result<(), String> {
        let body = json!({
            "location": ids.location, "sku": {"name": self.sku.name()},
            "tags": {"k8s-azure-service": format!("default/service-{at}"), "k8s-azure-cluster-name": LOAD_BALANCER},
            "properties": {
                "publicIPAllocationMethod": if is_static { "Static" } else { "Dynamic" },
                "publicIPAddressVersion": if is_v6 { "IPv6" } else { "IPv4" },
            },
        });
        model.seed(&ids.network(&format!("publicIPAddresses/{}", public_ip_name(at))), &body)
    }

    fn seed_gateway(&self, model: &mut ArmModel, ids: &Ids) -> Result<(), String> {
        let address = ids.network("publicIPAddresses/egress");
        let static_address = json!({"location": ids.location, "sku": {"name": "Standard"},
            "properties": {"publicIPAllocationMethod": "Static"}});
        model.seed(&address, &static_address)?;
        let gateway = ids.network("natGateways/egress");
        let body = json!({"location": ids.location, "sku": {"name": "Standard"},
            "properties": {"publicIpAddresses": [{"id": address}]}});
        model.seed(&gateway, &body)?;
        let subnet = ids.subnet();
        let mut body =
            model.json(&ids.network(&format!("virtualNetworks/{NETWORK}"))).unwrap_or_default()["properties"]
                ["subnets"][0]
                .clone();
        body["properties"]["natGateway"] = json!({ "id": gateway });
        model.seed(&subnet, &body)
    }

    /// Returns one of the two load balancers.
    fn balancer(&self, ids: &Ids, external: bool) -> Value {
        let own = ids.network(&format!("loadBalancers/{}", balancer_name(external)));
        let mut pools = vec![json!({"name": POOL, "properties": {}})];
        if external && self.has_v6() {
            pools.push(json!({"name": format!("{POOL}-IPv6"), "properties": {}}));
        }
        let (mut frontends, mut rules, mut probes) = (Vec::new(), Vec::new(), Vec::new());
        let services =
            self.services.iter().enumerate().filter(|(_, service)| service.is_external() == external);
        for (at, service) in services {
            let name = frontend_name(at);
            let rule = format!("{name}-TCP-{}", service.port);
            let properties = match &service.frontend {
                Frontend::External { .. } => {
                    json!({"publicIPAddress": {"id": ids.network(&format!("publicIPAddresses/{}", public_ip_name(at)))}})
                }
                Frontend::Internal { address: None } => {
                    json!({"subnet": {"id": ids.subnet()}, "privateIPAllocationMethod": "Dynamic"})
                }
                Frontend::Internal { address: Some(address) } => {
                    json!({"subnet": {"id": ids.subnet()}, "privateIPAllocationMethod": "Static", "privateIPAddress": address})
                }
            };
            frontends.push(json!({"name": name, "properties": properties}));
            let pool = if service.is_v6() { format!("{POOL}-IPv6") } else { POOL.to_owned() };
            probes.push(json!({"name": rule, "properties": {"protocol": "Tcp", "port": 30_000 + at,
                "intervalInSeconds": 5, "numberOfProbes": 2}}));
            rules.push(json!({"name": rule, "properties": {
                "frontendIPConfiguration": {"id": format!("{own}/frontendIPConfigurations/{name}")},
                "backendAddressPool": {"id": format!("{own}/backendAddressPools/{pool}")},
                "probe": {"id": format!("{own}/probes/{rule}")},
                "protocol": "Tcp", "frontendPort": service.port, "backendPort": service.port,
                "enableFloatingIP": true, "idleTimeoutInMinutes": 4, "loadDistribution": "Default",
                "disableOutboundSnat": false}}));
        }
        let mut properties = json!({"frontendIPConfigurations": frontends, "backendAddressPools": pools,
            "loadBalancingRules": rules, "probes": probes});
        let first = frontends.first().and_then(|one| one["name"].as_str()).unwrap_or_default();
        let first = format!("{own}/frontendIPConfigurations/{first}");
        if external {
            self.add_nat(&mut properties, &first);
            if self.outbound_rule {
                properties["outboundRules"] = json!([{"name": "egress", "properties": {
                    "frontendIPConfigurations": [{"id": first}], "protocol": "All",
                    "backendAddressPool": {"id": format!("{own}/backendAddressPools/{POOL}")}}}]);
            }
        }
        json!({"location": ids.location, "sku": {"name": self.sku.name()}, "properties": properties})
    }

    fn add_nat(&self, properties: &mut Value, frontend: &str) {
        let frontend = json!({ "id": frontend });
        match self.inbound_nat {
            InboundNat::Absent => {}
            InboundNat::Rules => {
                let machines = self.nodes.iter().filter(|group| group.in_pools && !group.is_uniform());
                let names = machines.flat_map(|group| (0..group.count).map(|at| group.machine(at)));
                let rules = names.enumerate().map(|(at, machine)| {
                    json!({"name": format!("ssh-{machine}"), "properties": {"frontendIPConfiguration": frontend,
                        "protocol": "Tcp", "frontendPort": 50_000 + at, "backendPort": 22, "enableFloatingIP": false,
                        "idleTimeoutInMinutes": 4}})
                });
                properties["inboundNatRules"] = rules.collect::<Vec<_>>().into();
            }
            InboundNat::Pools => {
                let sets = self.nodes.iter().filter(|group| group.in_pools && group.is_uniform());
                let pools = sets.enumerate().map(|(at, group)| {
                    json!({"name": format!("ssh-{}", group.name), "properties": {"frontendIPConfiguration": frontend,
                        "protocol": "Tcp", "frontendPortRangeStart": 50_000 + 100 * at,
                        "frontendPortRangeEnd": 50_099 + 100 * at, "backendPort": 22}})
                });
                properties["inboundNatPools"] = pools.collect::<Vec<_>>().into();
            }
        }
    }
}

fn balancer_name(external: bool) -> String {
    if external { LOAD_BALANCER.to_owned() } else { format!("{LOAD_BALANCER}-internal") }
}

/// Ids of a resource group.
struct Ids {
    group: String,
    location: String,
}

impl Ids {
    fn new(settings: &Settings) -> Self {
        Self { group: settings.resource_group_id(), location: settings.location.clone() }
    }

    fn network(&self, rest: &str) -> String {
        format!("{}/providers/Microsoft.Network/{rest}", self.group)
    }

    fn compute(&self, rest: &str) -> String {
        format!("{}/providers/Microsoft.Compute/{rest}", self.group)
    }

    fn subnet(&self) -> String {
        self.network(&format!("virtualNetworks/{NETWORK}/subnets/{SUBNET}"))
    }
}
