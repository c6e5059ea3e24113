//! The Kubernetes objects of the planned cluster.

use std::net::IpAddr;

use serde_json::{Value, json};
use simulator_models::kube::build::{self, Family};

use super::node_name;
use super::service::{Phase, Service};

/// Returns a Ready node with the addresses of this index.
pub(super) fn node(number: usize, address: usize, families: &[Family]) -> Value {
    let ips: Vec<String> = families.iter().map(|family| node_ip(address, *family).to_string()).collect();
    let ips: Vec<&str> = ips.iter().map(String::as_str).collect();
    let zone = format!("eastus-{}", number % 3 + 1);
    build::node(&node_name(number), &ips, &[("topology.kubernetes.io/zone", &zone)], true, &[])
}

/// Returns the InternalIP of a node.
pub(super) fn node_ip(node: usize, family: Family) -> IpAddr {
    let part = |number: usize| u8::try_from(number % 250).expect("a remainder of 250 fits");
    let (high, low) = (part(node / 250), part(node) + 4);
    match family {
        Family::V4 => IpAddr::from([10, 224, high, low]),
        Family::V6 => IpAddr::from([0xfd00, 0x10, 0x224, 0, 0, 0, u16::from(high), u16::from(low)]),
    }
}

pub(super) fn service(service: &Service, number: usize, families: &[Family]) -> Value {
    let object = build::service(&service.namespace, &service.name, &[80], families);
    let ingress: Vec<String> = families
        .iter()
        .map(|family| match family {
            Family::V4 => format!("20.{}.{}.{}", number / 62_500, number / 250 % 250, number % 250 + 1),
            Family::V6 => format!("2603:1000::{number:x}"),
        })
        .collect();
    let ingress: Vec<&str> = ingress.iter().map(String::as_str).collect();
    build::with_ingress(object, &ingress)
}

/// Returns the name of a slice.
pub(super) fn slice_name(service: &Service, slice: usize, family: Family) -> String {
    let object = build::endpoint_slice(&service.namespace, &service.name, slice, &[], family);
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Returns a slice with the endpoints that belong in it.
pub(super) fn slice(service: &Service, slice: usize, family: Family, trigger_time: &str) -> Value {
    let empty = build::endpoint_slice(&service.namespace, &service.name, slice, &[], family);
    let mut object = build::triggered_at(empty, trigger_time);
    let template = build::uid("ReplicaSet", &service.namespace, &service.name);
    let endpoints = service.pods.iter().filter(|pod| pod.slice == slice).map(|pod| {
        let name = format!("{}-{}-{:05x}", service.name, &template[..8], pod.serial);
        let (ready, terminating) = match pod.phase {
            Phase::Starting => (false, false),
            Phase::Ready => (true, false),
            Phase::Terminating => (false, true),
        };
        let serving = ready || terminating;
        json!({
            "addresses": [pod_ip(pod.serial, family)],
            "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
            "nodeName": node_name(pod.node),
            "targetRef": {"kind": "Pod", "namespace": service.namespace, "name": name,
                "uid": build::uid("Pod", &service.namespace, &name)},
            "zone": format!("eastus-{}", pod.node % 3 + 1)
        })
    });
    object["endpoints"] = endpoints.collect();
    object
}

fn pod_ip(serial: u64, family: Family) -> String {
    let [high, middle, low] = [serial >> 16, serial >> 8, serial].map(|part| part & 0xff);
    match family {
        Family::V4 => format!("10.{}.{middle}.{low}", 128 + high % 64),
        Family::V6 => format!("fd00:10:244::{high:x}{middle:02x}:{low:x}"),
    }
}
