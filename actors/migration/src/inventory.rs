//! What was read: the cluster's facts, and the bodies of everything at Azure that the migration is about. It is also what
//! the journal stores, so everything that is written later follows from it.

mod scope;
mod survey;

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::resource_id::ResourceId;

pub use scope::{Frontend, Scope};
pub(crate) use survey::security_groups;
pub use survey::{CallId, Survey, SurveyIn, SurveyOut};

/// How nodes are members of the cluster's pools.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Membership {
    /// By references of their IP configurations: `nodeIPConfiguration`.
    NodeIpConfiguration,
    /// By their addresses in the pool: `nodeIP`.
    NodeIp,
}

/// A node of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its virtual machine, or the instance of a scale set.
    pub machine: Option<ResourceId>,
    /// Its internal addresses.
    pub addresses: Vec<IpAddr>,
    /// Whether it belongs into no pool: a label says so, or it is of the control plane and these are excluded.
    pub excluded: bool,
}

/// A Service of type LoadBalancer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Service {
    /// Its namespace and name.
    pub name: String,
    /// The addresses in its status.
    pub addresses: Vec<IpAddr>,
}

/// What is to be done with the cluster's load balancers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Purpose {
    /// Standard load balancers take the place of Basic ones.
    #[default]
    Standard,
    /// The pools of Standard load balancers name their members by address, and no longer by interface.
    IpPools,
}

/// What the configuration and the API server say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cluster {
    /// What is to be done.
    #[serde(default)]
    pub purpose: Purpose,
    /// The cluster's name, which its pools have too.
    pub name: String,
    /// The resource group of the nodes.
    pub resource_group: ResourceId,
    /// The resource group of the load balancers.
    pub load_balancer_group: ResourceId,
    /// The virtual network.
    pub network: Option<ResourceId>,
    /// The names that load balancers of this cluster have, without `-internal`. The first is that of the load balancer
    /// that Standard has for all nodes.
    pub load_balancers: Vec<String>,
    /// Whether the cloud configuration says `loadBalancerSku: standard`.
    pub says_standard: bool,
    /// How nodes are members.
    pub membership: Membership,
    /// The addresses by which the API server is reached.
    pub api_server: Vec<IpAddr>,
    /// Whether this process runs on a node of the cluster.
    pub runs_on_a_node: bool,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The Services.
    pub services: Vec<Service>,
    /// Webhooks that Pods of the cluster serve and whose failure refuses requests.
    pub webhooks: Vec<String>,
}

/// What became of a resource that was asked for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Found {
    /// Its body.
    Body(Value),
    /// It does not exist.
    Absent,
    /// It could not be read, for this reason.
    Unreadable(String),
}

/// What became of a list that was asked for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Listed {
    /// Its items.
    Items(Vec<Value>),
    /// It could not be read, for this reason.
    Unreadable(String),
}

/// Everything that was read.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Inventory {
    /// The cluster's facts.
    pub cluster: Cluster,
    /// The resources.
    pub resources: BTreeMap<ResourceId, Found>,
    /// The lists, by the id of their collection.
    pub lists: BTreeMap<ResourceId, Listed>,
}

impl Inventory {
    /// An inventory in which nothing was read from Azure yet.
    #[must_use]
    pub fn of(cluster: Cluster) -> Inventory {
        Inventory { cluster, resources: BTreeMap::new(), lists: BTreeMap::new() }
    }

    /// The body of a resource.
    #[must_use]
    pub fn body(&self, id: &ResourceId) -> Option<&Value> {
        match self.resources.get(id) {
            Some(Found::Body(body)) => Some(body),
            Some(Found::Absent | Found::Unreadable(_)) | None => None,
        }
    }

    /// The items of a list.
    #[must_use]
    pub fn items(&self, id: &ResourceId) -> &[Value] {
        match self.lists.get(id) {
            Some(Listed::Items(items)) => items,
            Some(Listed::Unreadable(_)) | None => &[],
        }
    }

    /// All bodies of one type, such as `loadbalancers`.
    pub(crate) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a ResourceId, &'a Value)> {
        self.resources.iter().filter_map(move |(id, found)| match found {
            Found::Body(body) if id.kind() == kind => Some((id, body)),
            Found::Body(_) | Found::Absent | Found::Unreadable(_) => None,
        })
    }

    /// A hash of everything in scope, and of what the configuration asks for. Two inventories with the same digest give
    /// the same plan. Entity tags and states of operations do not count.
    #[must_use]
    pub fn digest(&self) -> String {
        let scope = Scope::of(self);
        let mut hasher = Sha256::new();
        let cluster = &self.cluster;
        let policy = (&cluster.name, &cluster.load_balancers, cluster.says_standard, cluster.membership);
        hasher.update(serde_json::to_vec(&policy).unwrap_or_default());
        for id in scope.changing() {
            hasher.update(id.as_str().to_ascii_lowercase());
            hasher.update(self.body(id).map(canonical).unwrap_or_default());
        }
        hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A body with its keys in order, without what changes by itself.
fn canonical(body: &Value) -> String {
    match body {
        Value::Object(map) => {
            let volatile = ["etag", "instanceView", "provisioningState", "latestModelApplied", "timeCreated"];
            let mut members: Vec<(&String, String)> = map
                .iter()
                .filter(|(key, _)| !volatile.contains(&key.as_str()))
                .map(|(key, value)| (key, canonical(value)))
                .collect();
            members.sort();
            let members: Vec<String> =
                members.iter().map(|(key, value)| format!("{key:?}:{value}")).collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => body.to_string(),
    }
}
