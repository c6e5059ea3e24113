//! A cluster of many Services with the load balancers that the cloud-controller-manager has created for them. Every
//! pool is in sync at the start.
//!
//! It owns the pods and their nodes; `expected_members` computes the expected pools from the cluster's objects.

mod disruption;
mod eviction;
mod objects;
mod service;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Range;

use serde_json::Value;
use simulator_models::arm::{ArmModel, PoolSpec, VirtualNetwork};
use simulator_models::kube::build::Family;
use simulator_models::kube::{KubeModel, Resource};

use crate::azure::Azure;
use crate::convergence::PoolName;
use crate::expected_members::{self, Addresses, ExpectedPool};
use crate::fakes::Fakes;
use crate::random::Random;

use eviction::Evictions;
pub use service::{Phase, Pod, Service};

/// Name of the cluster, of its first load balancer and of its own pools.
pub const CLUSTER_NAME: &str = "kubernetes";
/// Services in one namespace.
const SERVICES_PER_NAMESPACE: usize = 20;

/// Size of a simulated cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Services; each has its own pool per family.
    pub services: usize,
    /// Load balancers, at least 1.
    pub load_balancers: usize,
    /// Nodes, at least 1.
    pub nodes: usize,
    /// Initial number of pods per Service, at least 1.
    pub endpoints: usize,
    /// True if nodes and Services have both IP families.
    pub dual_stack: bool,
}

impl Default for Size {
    fn default() -> Self {
        Self { services: 200, load_balancers: 5, nodes: 50, endpoints: 3, dual_stack: false }
    }
}

/// The planned state of the cluster.
#[derive(Clone, Debug)]
pub struct World {
    size: Size,
    services: Vec<Service>,
    next_pod: u64,
    /// Indices of the existing nodes. Deleted nodes have lower indices; new nodes get higher ones.
    nodes: Range<usize>,
    /// Nodes that are being evicted, and evicted nodes that are already deleted.
    evictions: Evictions,
    /// Address indices of nodes whose address differs from their own index.
    address_index: BTreeMap<usize, usize>,
    /// Number of nodes that were recreated with the same name.
    recreated: usize,
    /// Pods removed by scale-to-zero or with their nodes until scale-back, by Service index.
    scaled_down: BTreeMap<usize, Vec<Pod>>,
    /// Indices of deleted Services.
    gone: BTreeSet<usize>,
}

impl World {
    /// Plans a cluster; the same size and seed give the same cluster.
    #[must_use]
    pub fn new(size: Size, seed: u64) -> Self {
        let size = Size {
            load_balancers: size.load_balancers.max(1),
            nodes: size.nodes.max(1),
            endpoints: size.endpoints.max(1),
            ..size
        };
        let mut world = Self {
            size,
            services: Vec::with_capacity(size.services),
            next_pod: 0,
            nodes: 0..size.nodes,
            evictions: Evictions::default(),
            address_index: BTreeMap::new(),
            recreated: 0,
            scaled_down: BTreeMap::new(),
            gone: BTreeSet::new(),
        };
        let mut random = Random::new(seed);
        for index in 0..size.services {
            let mut service = Service {
                namespace: format!("team-{:03}", index / SERVICES_PER_NAMESPACE),
                name: format!("web-{index:05}"),
                load_balancer: index % size.load_balancers,
                // Every second Service has its endpoints in two slices.
                slices: if index % 2 == 0 { 1 } else { 2 },
                pods: Vec::with_capacity(size.endpoints),
            };
            for number in 0..size.endpoints {
                let node = service.free_node(&world.nodes, world.evictions.closed(), &mut random);
                let slice = number % service.slices;
                service.pods.push(Pod {
                    serial: world.next_serial(),
                    node,
                    slice,
                    phase: Phase::Ready,
                    replaces: None,
                });
            }
            world.services.push(service);
        }
        world
    }

    /// Returns the planned size.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the Services.
    #[must_use]
    pub fn services(&self) -> &[Service] {
        &self.services
    }

    /// Returns the indices of the existing nodes.
    #[must_use]
    pub fn nodes(&self) -> &Range<usize> {
        &self.nodes
    }

    /// Returns a node for a new pod of this Service: one without a pod of it that is not being evicted.
    pub(crate) fn free_node(&self, service: usize, random: &mut Random) -> usize {
        self.services[service].free_node(&self.nodes, self.evictions.closed(), random)
    }

    /// Returns whether this Service was deleted.
    #[must_use]
    pub fn is_gone(&self, service: usize) -> bool {
        self.gone.contains(&service)
    }

    pub(crate) fn service_mut(&mut self, index: usize) -> &mut Service {
        &mut self.services[index]
    }

    /// Returns an unused pod number.
    pub(crate) fn next_serial(&mut self) -> u64 {
        self.next_pod += 1;
        self.next_pod
    }

    /// Returns the IP families in use.
    #[must_use]
    pub fn families(&self) -> &'static [Family] {
        if self.size.dual_stack { &[Family::V4, Family::V6] } else { &[Family::V4] }
    }

    /// Returns the names of the load balancers; the first is the cluster's.
    #[must_use]
    pub fn load_balancers(&self) -> Vec<String> {
        (0..self.size.load_balancers).map(load_balancer_name).collect()
    }

    /// Returns the pools of a Service, one per family.
    pub fn pools(&self, service: usize) -> impl Iterator<Item = (Family, PoolName)> {
        let service = &self.services[service];
        let load_balancer = load_balancer_name(service.load_balancer);
        self.families().iter().map(move |family| {
            let pool = expected_members::pool_name(&service.namespace, &service.name, *family);
            (*family, PoolName::new(&load_balancer, &pool))
        })
    }

    /// Returns the slices of a Service with this index, one per family, changed at `trigger_time` (RFC 3339); none if
    /// the Service was deleted.
    #[must_use]
    pub fn slices(&self, service: usize, slice: usize, trigger_time: &str) -> Vec<Value> {
        if self.is_gone(service) {
            return Vec::new();
        }
        let service = &self.services[service];
        self.families().iter().map(|family| objects::slice(service, slice, *family, trigger_time)).collect()
    }

    /// Writes the cluster into both fakes and starts the convergence tracker.
    pub async fn populate(&self, fakes: &Fakes, vnet_id: &str) {
        let clock = fakes.clock();
        let trigger_time = clock.rfc3339(clock.now_us());
        let world = self.clone();
        let wanted = fakes
            .cluster
            .ask(move |cluster, now_us| {
                world.fill_cluster(&mut cluster.model, &trigger_time, now_us);
                expected_members::expected_pools(&cluster.model)
            })
            .await;
        let (world, vnet_id) = (self.clone(), vnet_id.to_owned());
        fakes.azure.ask(move |azure, _| world.fill_azure(azure, &wanted, &vnet_id)).await;
    }

    /// Writes nodes, Services and slices.
    pub(crate) fn fill_cluster(&self, cluster: &mut KubeModel, trigger_time: &str, now_us: u64) {
        let mut everything: Vec<Value> = self.nodes.clone().map(|node| self.node_object(node)).collect();
        for (index, service) in self.services.iter().enumerate() {
            everything.push(objects::service(service, index, self.families()));
            for slice in 0..service.slices {
                everything.extend(self.slices(index, slice, trigger_time));
            }
        }
        for object in everything {
            cluster.apply(object, now_us).expect("the model accepts the objects of the builders");
        }
    }

    /// Creates load balancers and pools that are in sync, and starts the convergence tracker.
    pub(crate) fn fill_azure(
        &self,
        azure: &mut Azure,
        wanted: &BTreeMap<String, ExpectedPool>,
        vnet_id: &str,
    ) {
        self.build(&mut azure.model, wanted, vnet_id);
        azure.track_admin_states();
        for index in 0..self.services.len() {
            for (_, pool) in self.pools(index) {
                let members = expected_members::members(&azure.model, &pool.load_balancer, &pool.pool);
                let wanted = wanted[&pool.pool].clone();
                azure.convergence.begin(pool, wanted, &members);
            }
        }
    }

    /// Returns the initial object of a Ready node.
    fn node_object(&self, node: usize) -> Value {
        let address = self.address_index.get(&node).copied().unwrap_or(node);
        objects::node(node, address, self.families())
    }

    /// Returns the name of the load balancer of each Service, by namespace and name.
    pub(crate) fn places(&self) -> BTreeMap<(String, String), String> {
        let load_balancer_of = |service: &Service| {
            let name = (service.namespace.clone(), service.name.clone());
            (name, load_balancer_name(service.load_balancer))
        };
        self.services.iter().map(load_balancer_of).collect()
    }

    /// Creates load balancers, the cluster's own pools, and a pool with its rules and probe for each Service.
    fn build(&self, azure: &mut ArmModel, wanted: &BTreeMap<String, ExpectedPool>, vnet_id: &str) {
        let node_of: BTreeMap<IpAddr, String> = (0..self.size.nodes)
            .flat_map(|node| {
                self.families().iter().map(move |family| (objects::node_ip(node, *family), node_name(node)))
            })
            .collect();
        let spec = |ips: BTreeSet<IpAddr>| PoolSpec {
            virtual_network: VirtualNetwork::Pool(vnet_id.to_owned()),
            members: ips.iter().map(|ip| (node_of[ip].clone(), ip.to_string())).collect(),
            ..PoolSpec::default()
        };
        for (number, load_balancer) in self.load_balancers().iter().enumerate() {
            azure.add_load_balancer(load_balancer);
            let own = (0..self.size.nodes).filter(|node| node % self.size.load_balancers == number);
            let ips = own.map(|node| objects::node_ip(node, Family::V4)).collect();
            azure.add_pool(load_balancer, CLUSTER_NAME, &spec(ips));
            azure.add_outbound_rule(load_balancer, "outbound", CLUSTER_NAME);
        }
        for (index, service) in self.services.iter().enumerate() {
            for (family, pool) in self.pools(index) {
                let members = wanted[&pool.pool].required.clone();
                azure.add_pool(&pool.load_balancer, &pool.pool, &spec(members));
                azure.add_rule(&pool.load_balancer, &service.rule(family), &pool.pool, true);
            }
        }
    }

    /// Returns the objects and pools of a Service.
    #[must_use]
    pub fn scope(&self, index: usize) -> Scope {
        let service = &self.services[index];
        let slices = self
            .families()
            .iter()
            .flat_map(|family| (0..service.slices).map(|slice| objects::slice_name(service, slice, *family)));
        Scope {
            namespace: service.namespace.clone(),
            slices: slices.collect(),
            pools: self.pools(index).collect(),
        }
    }
}

/// The slices and pools of one Service, by name.
#[derive(Clone, Debug)]
pub struct Scope {
    namespace: String,
    slices: Vec<String>,
    pools: Vec<(Family, PoolName)>,
}

impl Scope {
    /// Returns the current requirements of the Service in each of its pools, from the cluster's objects.
    #[must_use]
    pub fn wanted(&self, cluster: &KubeModel, addresses: &Addresses) -> Vec<(PoolName, ExpectedPool)> {
        let slices = self.slices.iter();
        let slices: Vec<Value> =
            slices.filter_map(|name| cluster.get(Resource::EndpointSlices, &self.namespace, name)).collect();
        let pools = self.pools.iter();
        pools.map(|(family, pool)| (pool.clone(), addresses.wanted(&slices, *family))).collect()
    }
}

fn load_balancer_name(number: usize) -> String {
    if number == 0 { CLUSTER_NAME.to_owned() } else { format!("lb-{}", number + 1) }
}

/// Returns the name of the node with this index.
pub(crate) fn node_name(node: usize) -> String {
    format!("node-{node:04}")
}
