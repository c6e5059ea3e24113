//! The inventory: facts about the cluster, and the Azure resources in the scope of the migration. The journal stores
//! it, and every later write is derived from it.

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

/// Kind of reference from backend pools to nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Membership {
    /// By IP configuration of a network interface: `nodeIPConfiguration`.
    NodeIpConfiguration,
    /// By address: `nodeIP`.
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
    /// True if the node is excluded from all pools, by a label or as an excluded control-plane node.
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

/// Goal of the migration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Purpose {
    /// Replaces Basic load balancers with Standard ones.
    #[default]
    Standard,
    /// Converts the pools of Standard load balancers from network interfaces to addresses.
    IpPools,
}

/// Facts from the configuration and the API server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cluster {
    /// The goal.
    #[serde(default)]
    pub purpose: Purpose,
    /// The cluster's name, which is also the name of its pools.
    pub name: String,
    /// The resource group of the nodes.
    pub resource_group: ResourceId,
    /// The resource group of the load balancers.
    pub load_balancer_group: ResourceId,
    /// The virtual network.
    pub network: Option<ResourceId>,
    /// Names of the load balancers of this cluster, without `-internal`. With the Standard SKU, the first one has all
    /// nodes.
    pub load_balancers: Vec<String>,
    /// True if `loadBalancerSku` is `standard` in the cloud configuration.
    pub says_standard: bool,
    /// Kind of reference from pools to nodes.
    pub membership: Membership,
    /// The addresses of the API server.
    pub api_server: Vec<IpAddr>,
    /// True if this process runs on a node of the cluster.
    pub runs_on_a_node: bool,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The Services.
    pub services: Vec<Service>,
    /// Webhooks that are served by Pods of the cluster and refuse requests if they fail.
    pub webhooks: Vec<String>,
}

/// Result of reading a resource.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ReadResult {
    /// Its body.
    Body(Value),
    /// The resource does not exist.
    Absent,
    /// The resource could not be read, for this reason.
    Unreadable(String),
}

/// Result of reading a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Listed {
    /// Its items.
    Items(Vec<Value>),
    /// The list could not be read, for this reason.
    Unreadable(String),
}

/// Everything that was read.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Inventory {
    /// The cluster's facts.
    pub cluster: Cluster,
    /// The resources.
    pub resources: BTreeMap<ResourceId, ReadResult>,
    /// The lists, by the id of their collection.
    pub lists: BTreeMap<ResourceId, Listed>,
}

impl Inventory {
    /// Creates an inventory without Azure resources.
    #[must_use]
    pub fn of(cluster: Cluster) -> Inventory {
        Inventory { cluster, resources: BTreeMap::new(), lists: BTreeMap::new() }
    }

    /// Returns the body of a resource.
    #[must_use]
    pub fn body(&self, id: &ResourceId) -> Option<&Value> {
        match self.resources.get(id) {
            Some(ReadResult::Body(body)) => Some(body),
            Some(ReadResult::Absent | ReadResult::Unreadable(_)) | None => None,
        }
    }

    /// Returns the items of a list.
    #[must_use]
    pub fn items(&self, id: &ResourceId) -> &[Value] {
        match self.lists.get(id) {
            Some(Listed::Items(items)) => items,
            Some(Listed::Unreadable(_)) | None => &[],
        }
    }

    /// Returns all bodies of one type, such as `loadbalancers`.
    pub(crate) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a ResourceId, &'a Value)> {
        self.resources.iter().filter_map(move |(id, found)| match found {
            ReadResult::Body(body) if id.kind() == kind => Some((id, body)),
            ReadResult::Body(_) | ReadResult::Absent | ReadResult::Unreadable(_) => None,
        })
    }

    /// Returns a hash of the resources in scope and the relevant configuration. Inventories with the same digest give
    /// the same plan. Entity tags and provisioning states are ignored.
    #[must_use]
    pub fn digest(&self) -> String {
        let scope = Scope::of(self);
        let mut hasher = Sha256::new();
        let cluster = &self.cluster;
        let settings = (&cluster.name, &cluster.load_balancers, cluster.says_standard, cluster.membership);
        hasher.update(serde_json::to_vec(&settings).unwrap_or_default());
        for id in scope.changing() {
            hasher.update(id.as_str().to_ascii_lowercase());
            hasher.update(self.body(id).map(canonical).unwrap_or_default());
        }
        hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Returns a body with sorted keys, without volatile properties.
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
