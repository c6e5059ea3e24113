//! Kubernetes objects for the tests.

use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

/// The label of everything that the tests create.
const LABEL: &str = "azure-backend-pool-controller.io/e2e";
/// Nodes with this label are excluded.
const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Control-plane nodes are excluded by default.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

fn typed<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("the object has the shape of its kind")
}

/// Returns a namespace.
pub(super) fn namespace(name: &str) -> Namespace {
    typed(json!({ "metadata": { "name": name, "labels": { LABEL: "true" } } }))
}

/// Returns a Service behind a load balancer without selector.
pub(super) fn service(name: &str) -> Service {
    typed(json!({
        "metadata": { "name": name, "labels": { LABEL: "true" } },
        "spec": { "type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{ "port": 80 }] },
    }))
}

/// Returns the endpoints of a Service: one on each of these nodes.
pub(super) fn endpoints(nodes: &[&str]) -> Value {
    let endpoint = |(number, node): (usize, &&str)| json!({ "addresses": [format!("192.0.2.{}", number + 1)], "nodeName": node, "conditions": { "ready": true } });
    nodes.iter().enumerate().map(endpoint).collect()
}

/// Returns the EndpointSlice of a Service.
pub(super) fn slice(service: &str, nodes: &[&str]) -> EndpointSlice {
    typed(json!({
        "metadata": { "name": format!("{service}-e2e"), "labels": {
            "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "e2e", LABEL: "true",
        } },
        "addressType": "IPv4", "ports": [{ "port": 80 }], "endpoints": endpoints(nodes),
    }))
}

/// Returns the name and the IPv4 address of a node that may be a member.
pub(super) fn usable(node: &Node) -> Option<(String, String)> {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    if labels.contains_key(EXCLUDE_LABEL) || labels.contains_key(CONTROL_PLANE) {
        return None;
    }
    let status = node.status.as_ref()?;
    let is_ready = status.conditions.iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
    let internal = status.addresses.iter().flatten().filter(|one| one.type_ == "InternalIP");
    let address = internal.map(|one| one.address.clone()).find(|address| !address.contains(':'))?;
    is_ready.then_some((node.metadata.name.clone()?, address))
}
