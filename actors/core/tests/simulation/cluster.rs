//! The cluster of the story: nodes, Services and their pods as plain state, and their objects in the modelled API
//! server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::ids::{Family, RulePrefix, ServiceKey, ServiceUid};
use serde_json::{Value, json};
use simulator_models::kube::build::{self, Endpoint};
use simulator_models::kube::{KubeModel, Resource};

#[path = "cluster/nodes.rs"]
mod nodes;

/// Namespace of every Service.
pub const NAMESPACE: &str = "shop";
const PAUSE: &str = "azure-backend-pool-controller.io/pause";

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Number from which its addresses are derived; a new number is a new address. Some nodes have two of each family
    /// (D4).
    pub address: u64,
    /// Number of times a node of this name was created.
    pub life: u64,
    /// True if a label excludes it.
    pub excluded: bool,
    /// True if it is Ready.
    pub ready: bool,
}

/// A pod behind a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Node of the pod; empty if its endpoint does not name it (D6).
    pub node: String,
    /// True if it is ready.
    pub ready: bool,
    /// True if it is terminating.
    pub terminating: bool,
    /// The only family of its addresses; `None` for both.
    pub only: Option<Family>,
}

impl Pod {
    /// Creates a pod with addresses of both families.
    pub fn on(node: impl Into<String>, ready: bool) -> Pod {
        Pod { node: node.into(), ready, terminating: false, only: None }
    }
}

/// A Service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Number of times a Service of this name was created.
    pub life: u64,
    /// Families of its pools.
    pub families: Vec<Family>,
    /// True if its external traffic policy is `Local`.
    pub local: bool,
    /// True if it is paused.
    pub paused: bool,
    /// True if it is being deleted.
    pub deleting: bool,
    /// True if the Service is created again, under another UID, as soon as it is deleted.
    pub returns: bool,
    /// Pods, by slice.
    pub slices: Vec<Vec<Pod>>,
    /// Number of its load balancer.
    pub lb: usize,
    /// True if it has a second port.
    pub second_port: bool,
}

impl Service {
    /// Returns the UID.
    pub fn uid(&self) -> String {
        build::uid("Service", NAMESPACE, &format!("{}#{}", self.name, self.life))
    }

    /// Returns namespace and name.
    pub fn key(&self) -> ServiceKey {
        ServiceKey::new(NAMESPACE, self.name.as_str())
    }

    /// Returns the prefix of its rules.
    pub fn prefix(&self) -> RulePrefix {
        RulePrefix::of(&ServiceUid::new(self.uid()))
    }

    /// Returns whether the Service has its own pools.
    pub fn is_candidate(&self) -> bool {
        self.local && !self.deleting
    }

    /// Returns the number of its pods.
    pub fn pods(&self) -> usize {
        self.slices.iter().map(Vec::len).sum()
    }

    /// Returns whether a pod is an endpoint in this family. If there is no other one, each is.
    pub fn is_endpoint(&self, pod: &Pod, family: Family) -> bool {
        self.families.len() == 1 || pod.only.is_none_or(|only| only == family)
    }

    /// Returns its endpoints in a family.
    pub fn endpoints(&self, family: Family) -> impl Iterator<Item = &Pod> {
        self.slices.iter().flatten().filter(move |pod| self.is_endpoint(pod, family))
    }
}

/// The cluster.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// The nodes that exist.
    pub nodes: BTreeMap<String, Node>,
    /// The Services that exist.
    pub services: BTreeMap<String, Service>,
    /// Unrecorded writes of slices: name of the Service, version.
    pub slice_writes: Vec<(String, u64)>,
    addresses: u64,
    lives: BTreeMap<String, u64>,
}

fn model_family(family: Family) -> build::Family {
    match family {
        Family::V4 => build::Family::V4,
        Family::V6 => build::Family::V6,
    }
}

/// Returns the address of a number in a family.
pub fn address(number: u64, family: Family) -> IpAddr {
    let text = match family {
        Family::V4 => format!("10.1.{}.{}", number / 250, number % 250 + 1),
        Family::V6 => format!("fd00::{:x}", number + 1),
    };
    text.parse().expect("it is an address")
}

/// Returns the further address of a number in a family (D4). One number in four has one in each family; it is below or
/// above the first address.
pub fn further_address(number: u64, family: Family) -> Option<IpAddr> {
    if !number.is_multiple_of(4) {
        return None;
    }
    let is_below = number.is_multiple_of(8);
    let text = match family {
        Family::V4 => {
            let net = if is_below { 0 } else { 4 };
            format!("10.{net}.{}.{}", number / 250, number % 250 + 1)
        }
        Family::V6 => format!("{}::{:x}", if is_below { "fc00" } else { "fd04" }, number + 1),
    };
    Some(text.parse().expect("it is an address"))
}

impl Cluster {
    /// Restores the nodes and Services of `saved`; counters stay.
    pub fn restore(&mut self, saved: Cluster) {
        (self.nodes, self.services) = (saved.nodes, saved.services);
        self.slice_writes.clear();
    }

    fn new_life(&mut self, of: &str) -> u64 {
        let life = self.lives.entry(of.to_owned()).or_default();
        *life += 1;
        *life
    }

    fn new_address(&mut self) -> u64 {
        self.addresses += 1;
        self.addresses
    }

    /// Adds a Service, or creates it again under another UID.
    pub fn add_service(&mut self, kube: &mut KubeModel, now: u64, mut service: Service) {
        service.life = self.new_life(&service.name);
        let name = service.name.clone();
        self.services.insert(name.clone(), service);
        self.write_service(kube, now, &name);
        self.write_slices(kube, now, &name);
    }

    /// Writes a Service's object.
    pub fn write_service(&self, kube: &mut KubeModel, now: u64, name: &str) {
        let Some(service) = self.services.get(name).filter(|service| !service.deleting) else { return };
        let families: Vec<build::Family> =
            service.families.iter().map(|family| model_family(*family)).collect();
        let ports: &[u16] = if service.second_port { &[80, 81] } else { &[80] };
        let mut object = build::service(NAMESPACE, name, ports, &families);
        if let Some(stored) = kube.get(Resource::Services, NAMESPACE, name)
            && stored["metadata"]["uid"] == *service.uid()
        {
            object["status"] = stored["status"].clone();
            object["metadata"]["finalizers"] = stored["metadata"]["finalizers"].clone();
        }
        if !service.local {
            object["spec"]["externalTrafficPolicy"] = "Cluster".into();
        }
        if service.paused {
            object["metadata"]["annotations"] = json!({ PAUSE: "true" });
        }
        apply(kube, now, build::with_uid(object, &service.uid()));
    }

    /// Deletes a Service; a finalizer keeps it until its rules are gone.
    pub fn delete_service(&mut self, kube: &mut KubeModel, now: u64, name: &str) {
        if let Some(service) = self.services.get_mut(name) {
            service.deleting = true;
            kube.delete(Resource::Services, NAMESPACE, name, now);
        }
    }

    /// Handles the end of a Service on the API server, which takes its slices with it.
    pub fn is_gone(&mut self, kube: &mut KubeModel, now: u64, name: &str) {
        if self.services.get(name).is_some_and(|service| service.deleting)
            && kube.get(Resource::Services, NAMESPACE, name).is_none()
        {
            let gone = self.services.remove(name);
            self.write_slices(kube, now, name);
            if let Some(service) = gone.filter(|service| service.returns) {
                self.add_service(kube, now, Service { deleting: false, returns: false, ..service });
            }
        }
    }

    /// Writes the slices of a Service, one set for each family, and deletes surplus ones.
    pub fn write_slices(&mut self, kube: &mut KubeModel, now: u64, name: &str) {
        let mut wanted = BTreeSet::new();
        if let Some(service) = self.services.get(name) {
            for family in &service.families {
                for (index, pods) in service.slices.iter().enumerate() {
                    let pods = pods.iter().filter(|pod| service.is_endpoint(pod, *family));
                    let endpoints: Vec<Endpoint> = pods.map(endpoint).collect();
                    let slice =
                        build::endpoint_slice(NAMESPACE, name, index, &endpoints, model_family(*family));
                    wanted.insert(slice["metadata"]["name"].as_str().unwrap_or_default().to_owned());
                    self.slice_writes.push((name.to_owned(), apply(kube, now, slice)));
                }
            }
        }
        let found: Vec<String> = kube
            .list(Resource::EndpointSlices)
            .filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == name)
            .filter_map(|slice| Some(slice["metadata"]["name"].as_str()?.to_owned()))
            .collect();
        for gone in found.iter().filter(|found| !wanted.contains(*found)) {
            kube.delete(Resource::EndpointSlices, NAMESPACE, gone, now);
            self.slice_writes.push((name.to_owned(), kube.resource_version()));
        }
    }
}

fn endpoint(pod: &Pod) -> Endpoint {
    Endpoint {
        node: (!pod.node.is_empty()).then(|| pod.node.clone()),
        ready: pod.ready && !pod.terminating,
        serving: pod.ready,
        terminating: pod.terminating,
    }
}

fn apply(kube: &mut KubeModel, now: u64, object: Value) -> u64 {
    kube.apply(object, now).expect("the story writes whole objects")
}
