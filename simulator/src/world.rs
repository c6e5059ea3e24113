//! A cluster of many Services with the load balancers that the cloud-controller-manager has made for them: every
//! pool is in sync when it begins.
//!
//! It owns the pods and their nodes; `truth` computes the expected pools from the cluster's objects.

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
use crate::fakes::Fakes;
use crate::random::Random;
use crate::truth::{self, Addresses, Wanted};

use eviction::Evictions;
pub use service::{Phase, Pod, Service};

/// The cluster's name, and that of its first load balancer and its own pools.
pub const CLUSTER_NAME: &str = "kubernetes";
/// Services in one namespace.
const SERVICES_PER_NAMESPACE: usize = 20;

/// Size of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Services; each has a pool of its own per family.
    pub services: usize,
    /// Load balancers, at least 1.
    pub load_balancers: usize,
    /// Nodes, at least 1.
    pub nodes: usize,
    /// Pods per Service at the beginning, at least 1.
    pub endpoints: usize,
    /// True if nodes and Services have both IP families.
    pub dual_stack: bool,
}

impl Default for Size {
    fn default() -> Self {
        Self { services: 200, load_balancers: 5, nodes: 50, endpoints: 3, dual_stack: false }
    }
}

/// The world as the scenario knows it.
#[derive(Clone, Debug)]
pub struct World {
    size: Size,
    services: Vec<Service>,
    next_pod: u64,
    /// The numbers of the nodes that there are; those below have gone, and new ones come behind.
    nodes: Range<usize>,
    /// The nodes that are evicted, and those among them that have gone already.
    evictions: Evictions,
    /// The numbers of the addresses of nodes that have others than those of their own numbers.
    moved: BTreeMap<usize, usize>,
    /// Number of nodes that were recreated under their names.
    renewed: usize,
    /// The pods that Services have lost for good, until they are scaled back; by the number of the Service.
    asleep: BTreeMap<usize, Vec<Pod>>,
    /// The numbers of Services that were deleted.
    gone: BTreeSet<usize>,
}

impl World {
    /// Plans a world; the same size and seed give the same world.
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
            moved: BTreeMap::new(),
            renewed: 0,
            asleep: BTreeMap::new(),
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

    /// Returns its planned size.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns its Services.
    #[must_use]
    pub fn services(&self) -> &[Service] {
        &self.services
    }

    /// Returns the numbers of the nodes that there are.
    #[must_use]
    pub fn nodes(&self) -> &Range<usize> {
        &self.nodes
    }

    /// Returns a node for a new pod of the Service of this number: one that has none of it, and is not evicted.
    pub(crate) fn free_node(&self, service: usize, random: &mut Random) -> usize {
        self.services[service].free_node(&self.nodes, self.evictions.closed(), random)
    }

    /// Returns whether the Service of this number was deleted.
    #[must_use]
    pub fn is_gone(&self, service: usize) -> bool {
        self.gone.contains(&service)
    }

    pub(crate) fn service_mut(&mut self, index: usize) -> &mut Service {
        &mut self.services[index]
    }

    /// Returns a number that no pod has had.
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
            let pool = truth::pool_name(&service.namespace, &service.name, *family);
            (*family, PoolName::new(&load_balancer, &pool))
        })
    }

    /// Returns the slices with this number of a Service, one per family, changed at `trigger_time` (RFC 3339); nothing
    /// when the Service was deleted.
    #[must_use]
    pub fn slices(&self, service: usize, slice: usize, trigger_time: &str) -> Vec<Value> {
        if self.is_gone(service) {
            return Vec::new();
        }
        let service = &self.services[service];
        self.families().iter().map(|family| objects::slice(service, slice, *family, trigger_time)).collect()
    }

    /// Writes the world into both fakes and begins the convergence tracker.
    pub async fn populate(&self, fakes: &Fakes, vnet_id: &str) {
        let clock = fakes.clock();
        let trigger_time = clock.rfc3339(clock.now_us());
        let world = self.clone();
        let wanted = fakes
            .cluster
            .ask(move |cluster, now_us| {
                world.fill_cluster(&mut cluster.model, &trigger_time, now_us);
                truth::wanted_pools(&cluster.model)
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
            cluster.apply(object, now_us).expect("the builders make objects that the model takes");
        }
    }

    /// Makes load balancers and pools that are in sync, and begins the convergence tracker.
    pub(crate) fn fill_azure(&self, azure: &mut Azure, wanted: &BTreeMap<String, Wanted>, vnet_id: &str) {
        self.build(&mut azure.model, wanted, vnet_id);
        azure.begin_downs();
        for index in 0..self.services.len() {
            for (_, pool) in self.pools(index) {
                let members = truth::members(&azure.model, &pool.load_balancer, &pool.pool);
                let wanted = wanted[&pool.pool].clone();
                azure.convergence.begin(pool, wanted, &members);
            }
        }
    }

    /// Returns the object of a node that is Ready, with nothing but what it has from the beginning.
    fn node_object(&self, node: usize) -> Value {
        let address = self.moved.get(&node).copied().unwrap_or(node);
        objects::node(node, address, self.families())
    }

    /// Returns the name of the load balancer of each Service, by namespace and name.
    pub(crate) fn places(&self) -> BTreeMap<(String, String), String> {
        let node_of = |service: &Service| {
            let name = (service.namespace.clone(), service.name.clone());
            (name, load_balancer_name(service.load_balancer))
        };
        self.services.iter().map(node_of).collect()
    }

    /// Load balancers, the cluster's own pools, and a pool with its rules and probe for each Service.
    fn build(&self, azure: &mut ArmModel, wanted: &BTreeMap<String, Wanted>, vnet_id: &str) {
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
    pub fn scope(&self, service: usize) -> Scope {
        let known = &self.services[service];
        let slices = self
            .families()
            .iter()
            .flat_map(|family| (0..known.slices).map(|slice| objects::slice_name(known, slice, *family)));
        Scope {
            namespace: known.namespace.clone(),
            slices: slices.collect(),
            pools: self.pools(service).collect(),
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
    /// Returns the present requirements of the Service in each of its pools, from the cluster's objects.
    #[must_use]
    pub fn wanted(&self, cluster: &KubeModel, addresses: &Addresses) -> Vec<(PoolName, Wanted)> {
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

/// Returns the name of a node by its number.
pub(crate) fn node_name(node: usize) -> String {
    format!("node-{node:04}")
}
