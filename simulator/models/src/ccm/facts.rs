//! The model's knowledge of the cluster: Services, EndpointSlices and nodes, as in upstream's caches.
//!
//! This module reads nothing itself: the driver passes everything. Conditions of endpoints are ignored, as upstream
//! ignores them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::kube::build::Family;

/// lower(`namespace/name`).
pub(super) type Key = String;

pub(super) fn key_of(namespace: &str, name: &str) -> Key {
    format!("{namespace}/{name}").to_lowercase()
}

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) protocol: String,
    pub(super) port: u64,
    pub(super) node_port: u64,
}

/// A Service as the service controller sees it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Service {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    /// Load balancer that the driver chose.
    pub(super) balancer: String,
    /// True if the Service needs a load balancer, and no `loadBalancerClass` assigns it to another controller.
    pub(super) wanted: bool,
    pub(super) local: bool,
    pub(super) families: Vec<Family>,
    pub(super) ports: Vec<Port>,
    pub(super) health_port: u64,
    pub(super) deleting: bool,
    /// True if the Service was deleted without a finalizer; then this is its last state.
    pub(super) gone: bool,
    pub(super) finalizers: Vec<String>,
    pub(super) ingress: Vec<String>,
    pub(super) annotations: Value,
}

/// The finalizer that keeps a Service until its load balancer is cleaned up.
pub(super) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

impl Service {
    pub(super) fn read(object: &Value, balancer: &str) -> Option<Self> {
        let (metadata, spec) = (object.get("metadata")?, &object["spec"]);
        let name = text(metadata, "name");
        if name.is_empty() {
            return None;
        }
        let families: Vec<Family> = items(&spec["ipFamilies"])
            .iter()
            .map(|word| if word == "IPv6" { Family::V6 } else { Family::V4 })
            .collect();
        let ports = items(&spec["ports"]).iter().map(|port| Port {
            protocol: port["protocol"].as_str().unwrap_or("TCP").to_uppercase(),
            port: port["port"].as_u64().unwrap_or(0),
            node_port: port["nodePort"].as_u64().unwrap_or(0),
        });
        let texts = |value: &Value, name: &str| -> Vec<String> {
            items(value)
                .iter()
                .map(|item| if name.is_empty() { item } else { &item[name] })
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        Some(Self {
            namespace: text(metadata, "namespace").to_owned(),
            name: name.to_owned(),
            uid: text(metadata, "uid").to_owned(),
            resource_version: text(metadata, "resourceVersion").to_owned(),
            balancer: balancer.to_owned(),
            wanted: text(spec, "type") == "LoadBalancer" && spec["loadBalancerClass"].is_null(),
            local: text(spec, "externalTrafficPolicy") == "Local",
            families: if families.is_empty() { vec![Family::V4] } else { families },
            ports: ports.collect(),
            health_port: spec["healthCheckNodePort"].as_u64().unwrap_or(0),
            deleting: !text(metadata, "deletionTimestamp").is_empty(),
            gone: false,
            finalizers: texts(&metadata["finalizers"], ""),
            ingress: texts(&object["status"]["loadBalancer"]["ingress"], "ip"),
            annotations: metadata.get("annotations").cloned().unwrap_or_else(|| json!({})),
        })
    }

    pub(super) fn key(&self) -> Key {
        key_of(&self.namespace, &self.name)
    }

    /// Returns whether the Service's resources must be removed instead of created.
    pub(super) fn leaves(&self) -> bool {
        self.gone || self.deleting || !self.wanted
    }

    pub(super) fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == FINALIZER)
    }

    /// Returns whether the service controller acts on the change from `before`. Its own changes (status, finalizer)
    /// do not count.
    pub(super) fn differs(&self, before: &Self) -> bool {
        let same = Self {
            resource_version: self.resource_version.clone(),
            finalizers: self.finalizers.clone(),
            ingress: self.ingress.clone(),
            ..before.clone()
        };
        *self != same
    }

    /// Returns the prefix of the names of the Service's rules.
    pub(super) fn prefix(&self) -> String {
        let mut name = format!("a{}", self.uid.replace('-', ""));
        let end = name.char_indices().nth(32).map_or(name.len(), |(at, _)| at);
        name.truncate(end);
        name
    }

    /// Returns the name of the Service's own pool, even if the Service does not use one.
    pub(super) fn own_pool(&self, family: Family) -> String {
        let name = format!("{}-{}", self.namespace, self.name).to_lowercase();
        match family {
            Family::V4 => name,
            Family::V6 => format!("{name}-ipv6"),
        }
    }

    /// Returns the name of the pool that the Service's rules use.
    pub(super) fn pool(&self, family: Family, cluster_name: &str) -> String {
        match (self.local, family) {
            (true, _) => self.own_pool(family),
            (false, Family::V4) => cluster_name.to_owned(),
            (false, Family::V6) => format!("{cluster_name}-IPv6"),
        }
    }
}

/// The fields of an EndpointSlice that upstream reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// Key of the Service that it names.
    pub(super) service: Key,
    /// Lower-case names of the nodes of all endpoints; "" where one is missing.
    pub(super) nodes: BTreeSet<String>,
}

impl Slice {
    /// Returns `None` for a slice without a Service: it is not even cached.
    pub(super) fn read(object: &Value) -> Option<(Key, Self)> {
        let metadata = object.get("metadata")?;
        let service = text(&metadata["labels"], "kubernetes.io/service-name");
        if service.is_empty() {
            return None;
        }
        let namespace = text(metadata, "namespace");
        let nodes = items(&object["endpoints"]).iter();
        let nodes = nodes.map(|endpoint| text(endpoint, "nodeName").to_lowercase()).collect();
        Some((key_of(namespace, text(metadata, "name")), Self { service: key_of(namespace, service), nodes }))
    }
}

/// The fields of a node that upstream reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    /// All InternalIPs, in order.
    pub(super) ips: Vec<String>,
    /// True if the service controller uses it, and it is not a control-plane node.
    pub(super) eligible: bool,
}

impl Node {
    pub(super) fn read(object: &Value) -> Option<Self> {
        let metadata = object.get("metadata")?;
        let name = text(metadata, "name");
        let labels = &metadata["labels"];
        let internal = items(&object["status"]["addresses"]).iter();
        let internal = internal.filter(|address| text(address, "type") == "InternalIP");
        let taints = items(&object["spec"]["taints"]).iter();
        let control_plane = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"]
            .iter()
            .any(|label| labels.get(*label).is_some());
        let excluded = labels.get("node.kubernetes.io/exclude-from-external-load-balancers").is_some()
            || text(labels, "kubernetes.azure.com/managed") == "false"
            || taints.into_iter().any(|taint| text(taint, "key") == "ToBeDeletedByClusterAutoscaler");
        (!name.is_empty()).then(|| Self {
            name: name.to_owned(),
            ips: internal.map(|address| text(address, "address").to_owned()).collect(),
            eligible: !control_plane && !excluded,
        })
    }

    /// Returns its first InternalIP of the family.
    pub(super) fn ip(&self, family: Family) -> Option<&str> {
        self.ips.iter().find(|ip| family_of(ip) == family).map(String::as_str)
    }
}

pub(super) fn family_of(ip: &str) -> Family {
    if ip.contains(':') { Family::V6 } else { Family::V4 }
}

/// Everything that is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) services: BTreeMap<Key, Service>,
    pub(super) slices: BTreeMap<Key, Slice>,
    pub(super) nodes: BTreeMap<String, Node>,
    /// `nodePrivateIPs`: addresses by lower-case node name.
    private_ips: BTreeMap<String, BTreeSet<String>>,
    /// `nodePrivateIPToNodeNameMap`.
    names: BTreeMap<String, String>,
}

impl Facts {
    /// Records a node; returns whether it may change the pools of Services.
    pub(super) fn node(&mut self, node: Node) -> bool {
        let before = self.nodes.insert(node.name.clone(), node.clone());
        if before.as_ref() == Some(&node) {
            return false;
        }
        if let Some(before) = before {
            self.forget_addresses(&before);
        }
        for ip in &node.ips {
            self.names.insert(ip.clone(), node.name.clone());
        }
        let ips = self.private_ips.entry(node.name.to_lowercase()).or_default();
        ips.extend(node.ips);
        true
    }

    /// Removes a deleted node; returns whether it was known.
    pub(super) fn node_gone(&mut self, name: &str) -> bool {
        let Some(before) = self.nodes.remove(name) else { return false };
        self.forget_addresses(&before);
        true
    }

    fn forget_addresses(&mut self, node: &Node) {
        self.private_ips.remove(&node.name.to_lowercase());
        for ip in &node.ips {
            self.names.remove(ip);
        }
    }

    /// Reads the addresses from the known nodes, as a new process does.
    pub(super) fn reload_addresses(&mut self) {
        self.private_ips.clear();
        self.names.clear();
        for node in std::mem::take(&mut self.nodes).into_values() {
            self.node(node);
        }
    }

    /// Returns whether a known node's address has lost its name. This happens when the new node of an address arrives
    /// before the old one is removed: upstream then drops the address, whichever node has it.
    pub(super) fn have_lost_names(&self) -> bool {
        self.nodes.values().flat_map(|node| &node.ips).any(|ip| !self.names.contains_key(ip))
    }

    /// Returns the IPs, of both families, of nodes by their lower-case names.
    pub(super) fn ips_of<'a>(&self, nodes: impl IntoIterator<Item = &'a String>) -> BTreeSet<String> {
        nodes.into_iter().filter_map(|node| self.private_ips.get(node)).flatten().cloned().collect()
    }

    /// Returns the name of the node with this IP; empty if it is not known. The address is then written without a name.
    pub(super) fn name_of(&self, ip: &str) -> &str {
        self.names.get(ip).map_or("", String::as_str)
    }

    /// Returns the lower-case names of the nodes in all slices of a Service; `None` if it has no slice.
    pub(super) fn hosts(&self, service: &str) -> Option<BTreeSet<String>> {
        let mut slices = self.slices.values().filter(|slice| slice.service == service).peekable();
        slices.peek()?;
        Some(slices.flat_map(|slice| slice.nodes.iter().cloned()).collect())
    }
}
