//! Objects as in a real cluster, for tests and scenarios.
//!
//! Uids are derived from kind, namespace and name, so that a slice can refer to its Service without a lookup; a
//! Service that is recreated gets another uid by [`with_uid`].

use serde_json::{Map, Value, json};

use super::object::{mix, suffix_of, uid_of};

/// An IP family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns `IPv4` or `IPv6`, as in `ipFamilies` and `addressType`.
    pub fn word(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }
}

/// One endpoint of a slice: its node and conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `None` omits nodeName.
    pub node: Option<String>,
    /// The `ready` condition.
    pub ready: bool,
    /// The `serving` condition.
    pub serving: bool,
    /// The `terminating` condition.
    pub terminating: bool,
}

impl Endpoint {
    /// Returns an endpoint that is ready and serving on a node.
    pub fn ready(node: &str) -> Endpoint {
        Endpoint { node: Some(node.to_owned()), ready: true, serving: true, terminating: false }
    }

    /// Returns an endpoint that has started on a node and is not yet ready.
    pub fn starting(node: &str) -> Endpoint {
        Endpoint { node: Some(node.to_owned()), ready: false, serving: false, terminating: false }
    }

    /// Returns an endpoint that terminates on a node and still serves.
    pub fn draining(node: &str) -> Endpoint {
        Endpoint { node: Some(node.to_owned()), ready: false, serving: true, terminating: true }
    }
}

/// Returns the uid that the builders give to an object.
pub fn uid(kind: &str, namespace: &str, name: &str) -> String {
    let hash = hash(&[kind, namespace, name]);
    uid_of(mix(hash), mix(hash ^ u64::MAX))
}

/// Returns the object with another uid.
#[must_use]
pub fn with_uid(mut object: Value, uid: &str) -> Value {
    object["metadata"]["uid"] = uid.into();
    object
}

/// Returns the slice with the annotation for the time of its trigger (RFC 3339).
#[must_use]
pub fn triggered_at(mut slice: Value, time: &str) -> Value {
    slice["metadata"]["annotations"]["endpoints.kubernetes.io/last-change-trigger-time"] = time.into();
    slice
}

/// Returns a Service of type LoadBalancer with `externalTrafficPolicy: Local`, in the state before the
/// cloud-controller-manager sets an ingress address.
pub fn service(namespace: &str, name: &str, ports: &[u16], families: &[Family]) -> Value {
    let number = hash(&["Service", namespace, name]);
    let node_port = |index: usize| 30_000 + number.wrapping_add(index as u64) % 2_700;
    let cluster_ips: Vec<String> = families.iter().map(|family| cluster_ip(*family, number)).collect();
    let ports: Vec<Value> = ports
        .iter()
        .enumerate()
        .map(|(index, port)| {
            json!({"name": format!("p{port}"), "protocol": "TCP", "port": port, "targetPort": 8080,
                "nodePort": node_port(index)})
        })
        .collect();
    let words: Vec<&str> = families.iter().map(|family| family.word()).collect();
    json!({
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace, "uid": uid("Service", namespace, name),
            "labels": {"app": name}, "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]},
        "spec": {
            "ports": ports,
            "selector": {"app": name},
            "clusterIP": cluster_ips.first(),
            "clusterIPs": cluster_ips,
            "type": "LoadBalancer",
            "sessionAffinity": "None",
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 32_700 + number % 68,
            "ipFamilies": words,
            "ipFamilyPolicy": if families.len() > 1 { "RequireDualStack" } else { "SingleStack" },
            "allocateLoadBalancerNodePorts": true,
            "internalTrafficPolicy": "Cluster"
        },
        "status": {"loadBalancer": {}}
    })
}

/// Returns the Service with these ingress addresses in its status.
#[must_use]
pub fn with_ingress(mut service: Value, addresses: &[&str]) -> Value {
    let ingress: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip, "ipMode": "VIP"})).collect();
    service["status"] = json!({"loadBalancer": {"ingress": ingress}});
    service
}

/// Returns the slice number `index` of a Service, as the endpointslice controller writes it.
pub fn endpoint_slice(
    namespace: &str,
    service: &str,
    index: usize,
    endpoints: &[Endpoint],
    family: Family,
) -> Value {
    let number = hash(&["EndpointSlice", namespace, service, family.word(), &index.to_string()]);
    let name = format!("{service}-{}", suffix_of(mix(number)));
    let endpoints: Vec<Value> = endpoints
        .iter()
        .enumerate()
        .map(|(position, endpoint)| endpoint_value(namespace, service, number, position, endpoint, family))
        .collect();
    json!({
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": name,
            "generateName": format!("{service}-"),
            "namespace": namespace,
            "uid": uid("EndpointSlice", namespace, &name),
            "labels": {
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                "kubernetes.io/service-name": service
            },
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": service,
                "uid": uid("Service", namespace, service), "controller": true, "blockOwnerDeletion": true}]
        },
        "addressType": family.word(),
        "endpoints": endpoints,
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}]
    })
}

fn endpoint_value(
    namespace: &str,
    service: &str,
    number: u64,
    position: usize,
    endpoint: &Endpoint,
    family: Family,
) -> Value {
    let pod = mix(number.wrapping_add(position as u64));
    let (high, low) = (pod >> 8 & 0xff, (pod & 0xff).clamp(1, 254));
    let address = match family {
        Family::V4 => format!("10.244.{high}.{low}"),
        Family::V6 => format!("fd00:10:244::{high:x}:{low:x}"),
    };
    let pod_name = format!("{service}-{:010x}-{}", number & 0xff_ffff_ffff, suffix_of(pod));
    let mut value = json!({
        "addresses": [address],
        "conditions": {"ready": endpoint.ready, "serving": endpoint.serving, "terminating": endpoint.terminating},
        "targetRef": {"kind": "Pod", "namespace": namespace, "name": pod_name,
            "uid": uid("Pod", namespace, &pod_name)}
    });
    if let Some(node) = &endpoint.node {
        value["nodeName"] = node.as_str().into();
    }
    value
}

/// Returns a node with these InternalIPs, additional labels, Ready condition and taints (key, value, effect).
pub fn node(
    name: &str,
    ips: &[&str],
    labels: &[(&str, &str)],
    ready: bool,
    taints: &[(&str, &str, &str)],
) -> Value {
    let mut all: Map<String, Value> = Map::new();
    for (key, value) in [("kubernetes.io/os", "linux"), ("kubernetes.io/hostname", name)].iter().chain(labels)
    {
        all.insert((*key).to_owned(), (*value).into());
    }
    let mut addresses: Vec<Value> =
        ips.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
    addresses.push(json!({"type": "Hostname", "address": name}));
    let condition = if ready {
        json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"})
    } else {
        json!({"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status."})
    };
    let mut node = json!({
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "uid": uid("Node", "", name), "labels": all},
        "spec": {"providerID": format!(
            "azure:///subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg/providers/\
             Microsoft.Compute/virtualMachines/{name}")},
        "status": {"conditions": [condition], "addresses": addresses}
    });
    if !taints.is_empty() {
        node["spec"]["taints"] =
            taints.iter().map(|(key, value, effect)| taint(key, value, effect)).collect();
    }
    node
}

/// Returns the node with an additional condition.
#[must_use]
pub fn with_condition(mut node: Value, condition: Value) -> Value {
    if let Some(conditions) = node["status"]["conditions"].as_array_mut() {
        conditions.push(condition);
    }
    node
}

/// Returns a condition that is `True` since this time (RFC 3339).
pub fn condition(kind: &str, reason: &str, message: &str, since: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since,
        "lastHeartbeatTime": since})
}

/// Returns a warning about a node as a node-problem-detector writes it, with the node's name as its uid, last observed
/// at this time (RFC 3339).
pub fn node_event(name: &str, node: &str, reason: &str, message: &str, at: &str) -> Value {
    json!({"kind": "Event", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": node, "uid": node}, "reason": reason, "message": message,
        "source": {"component": MONITOR, "host": node}, "firstTimestamp": at, "lastTimestamp": at, "count": 1,
        "type": "Warning", "eventTime": null, "reportingComponent": MONITOR, "reportingInstance": node})
}

/// Returns the same warning in the form of `events.k8s.io/v1`, at this time with microseconds (RFC 3339).
pub fn node_event_v1(name: &str, node: &str, reason: &str, note: &str, at: &str) -> Value {
    json!({"kind": "Event", "apiVersion": "events.k8s.io/v1", "metadata": {"name": name, "namespace": "default"},
        "eventTime": at, "reportingController": MONITOR, "reportingInstance": node, "action": "Preempt",
        "reason": reason, "regarding": {"kind": "Node", "name": node, "uid": node}, "note": note, "type": "Warning"})
}

/// Reporter of these Events on AKS.
const MONITOR: &str = "custom-scheduledevents-consolidated-preempt-plugin-monitor";

fn taint(key: &str, value: &str, effect: &str) -> Value {
    if value.is_empty() {
        json!({"key": key, "effect": effect})
    } else {
        json!({"key": key, "value": value, "effect": effect})
    }
}

fn cluster_ip(family: Family, number: u64) -> String {
    let (high, low) = (number >> 8 & 0xff, (number & 0xff).clamp(1, 254));
    match family {
        Family::V4 => format!("10.96.{high}.{low}"),
        Family::V6 => format!("fd00:10:96::{high:x}:{low:x}"),
    }
}

/// Returns the FNV-1a hash of the parts, each followed by a zero byte.
fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
