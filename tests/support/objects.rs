//! Kubernetes objects for tests.

use serde_json::{Value, json};

/// The controller's service account, as docs/rbac.yaml names it.
pub const ACCOUNT: &str = "azure-backend-pool-controller";

/// The label of a test's nodes.
pub const TEST_LABEL: &str = "test";

/// Returns a namespace.
pub fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

/// Returns a node of a test, which kwok keeps Ready.
pub fn node(namespace: &str, name: &str, ip: &str) -> Value {
    let room = json!({ "cpu": "64", "memory": "256Gi", "pods": "110" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": { TEST_LABEL: namespace, "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" },
            "annotations": { "kwok.x-k8s.io/node": "fake" },
        },
        "status": {
            "allocatable": room, "capacity": room,
            "addresses": [{ "type": "InternalIP", "address": ip }, { "type": "Hostname", "address": name }],
        },
    })
}

/// Returns a Service behind a load balancer whose endpoints are those of the Deployment of the same name.
pub fn service(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "type": "LoadBalancer", "externalTrafficPolicy": "Local",
            "selector": { "app": name }, "ports": [{ "port": 80 }],
        },
    })
}

/// Returns the same kind of Service without a selector, whose EndpointSlices the test writes.
pub fn service_without_selector(namespace: &str, name: &str) -> Value {
    let mut service = service(namespace, name);
    service["spec"]["selector"] = Value::Null;
    service
}

/// Returns a Deployment on the test's nodes.
pub fn deployment(namespace: &str, name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": name } },
            "strategy": { "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": {
                    "nodeSelector": { TEST_LABEL: namespace }, "terminationGracePeriodSeconds": 1,
                    "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
                    "containers": containers("example/web:1"),
                },
            },
        },
    })
}

/// Returns the containers of a Deployment's Pods with this image, for restricted Pods.
pub fn containers(image: &str) -> Value {
    let security = json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    json!([{ "name": "web", "image": image, "securityContext": security }])
}

/// Returns an EndpointSlice: each endpoint is an address and optionally the name of its node.
pub fn endpoint_slice(namespace: &str, service: &str, endpoints: &[(&str, Option<&str>)]) -> Value {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|(address, node)| {
            let mut endpoint = json!({ "addresses": [address], "conditions": { "ready": true } });
            if let Some(node) = node {
                endpoint["nodeName"] = json!(node);
            }
            endpoint
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{service}-by-hand"), "namespace": namespace,
            "labels": { "kubernetes.io/service-name": service },
        },
        "addressType": "IPv4", "ports": [{ "port": 80 }], "endpoints": endpoints,
    })
}
