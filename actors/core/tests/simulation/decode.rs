//! Decodes the lists and watch lines of the modelled API server into the few fields that the machines read: the
//! simulation's own small counterpart of the kubernetes port's decoder.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pool_core::ids::{Family, NodeName, NodeUid, ServiceKey, ServiceUid, SliceKey};
use pool_core::object::{
    Endpoint, Kind, LeftOut, NodeObject, Object, Owner, ResourceVersion, ServiceObject, ServiceType,
    SliceObject,
};
use pool_core::watch::{Line, WatchFailure};
use serde_json::Value;

/// The text of a value; empty where there is none.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of a list; none where there is no list.
pub fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// FNV-1a.
pub fn number_of(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// One line of a watch.
pub fn line(kind: Kind, bytes: &[u8]) -> Line {
    let undecodable = |error: &str| Line::Undecodable {
        key: None,
        owner: Owner::Unknown,
        resource_version: None,
        error: Arc::from(error),
    };
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return undecodable("no JSON") };
    let object = &value["object"];
    let meta = &object["metadata"];
    match text(&value["type"]) {
        "ADDED" | "MODIFIED" => Line::Object(self::object(kind, object)),
        "DELETED" => Line::Deleted { key: self::object(kind, object).key(), resource_version: version(meta) },
        "BOOKMARK" => {
            let list_end = meta["annotations"]["k8s.io/initial-events-end"] == "true";
            Line::Bookmark { resource_version: version(meta), list_end }
        }
        "ERROR" => Line::Error(failure(object["code"].as_u64().unwrap_or(0), text(&object["message"]))),
        _ => undecodable("unknown type"),
    }
}

/// A page of a plain list: items, resourceVersion, token of the next page.
pub fn page(kind: Kind, body: &[u8]) -> (Vec<Line>, ResourceVersion, Option<Arc<str>>) {
    let value: Value = serde_json::from_slice(body).expect("the model answers JSON");
    let lines = items(&value["items"]).iter().map(|item| Line::Object(object(kind, item))).collect();
    let next = Some(text(&value["metadata"]["continue"])).filter(|token| !token.is_empty()).map(Arc::from);
    (lines, version(&value["metadata"]), next)
}

/// What an ERROR event means.
fn failure(code: u64, message: &str) -> WatchFailure {
    match code {
        410 => WatchFailure::Expired,
        429 => WatchFailure::TooManyRequests(None),
        401 | 403 => WatchFailure::Denied(Arc::from(message)),
        _ if message.contains("watch stream was requested") => {
            WatchFailure::StreamingRefused(Arc::from(message))
        }
        _ => WatchFailure::Other(Arc::from(message)),
    }
}

fn version(meta: &Value) -> ResourceVersion {
    ResourceVersion(Arc::from(text(&meta["resourceVersion"])))
}

fn object(kind: Kind, object: &Value) -> Object {
    match kind {
        Kind::Services => Object::Service(Arc::new(service(object))),
        Kind::EndpointSlices => Object::Slice(Arc::new(slice(object))),
        Kind::Nodes => Object::Node(Arc::new(node(object))),
    }
}

fn service(object: &Value) -> ServiceObject {
    let (meta, spec) = (&object["metadata"], &object["spec"]);
    let families = items(&spec["ipFamilies"]).iter();
    let balancer = &object["status"]["loadBalancer"];
    let exposure = format!("{}{balancer}", spec["ports"]);
    ServiceObject {
        key: ServiceKey::new(text(&meta["namespace"]), text(&meta["name"])),
        uid: ServiceUid::new(text(&meta["uid"])),
        resource_version: version(meta),
        service_type: if spec["type"] == "LoadBalancer" {
            ServiceType::LoadBalancer
        } else {
            ServiceType::Other
        },
        local: spec["externalTrafficPolicy"] == "Local",
        deleting: !meta["deletionTimestamp"].is_null(),
        families: families.map(|family| if family == "IPv6" { Family::V6 } else { Family::V4 }).collect(),
        paused: meta["annotations"]["azure-backend-pool-controller.io/pause"] == "true",
        labels: BTreeMap::new(),
        exposure: number_of(&exposure),
        has_class: !text(&spec["loadBalancerClass"]).is_empty(),
        has_ingress: !items(&balancer["ingress"]).is_empty(),
    }
}

fn slice(object: &Value) -> SliceObject {
    let meta = &object["metadata"];
    let namespace: Arc<str> = Arc::from(text(&meta["namespace"]));
    let owner = text(&meta["labels"]["kubernetes.io/service-name"]);
    let endpoints = items(&object["endpoints"]).iter().map(|endpoint| {
        let (conditions, node) = (&endpoint["conditions"], text(&endpoint["nodeName"]));
        let ready = conditions["ready"].as_bool().unwrap_or(true);
        Endpoint {
            node: (!node.is_empty()).then(|| NodeName::new(node)),
            identity: number_of(text(&endpoint["targetRef"]["uid"])),
            ready,
            serving: conditions["serving"].as_bool().unwrap_or(ready),
            terminating: conditions["terminating"].as_bool().unwrap_or(false),
        }
    });
    SliceObject {
        key: SliceKey { namespace: Arc::clone(&namespace), name: Arc::from(text(&meta["name"])) },
        service: (!owner.is_empty()).then(|| ServiceKey::new(namespace, owner)),
        resource_version: version(meta),
        endpoints: endpoints.collect(),
        trigger_age: Some(Duration::from_millis(1)),
    }
}

fn node(object: &Value) -> NodeObject {
    let (meta, status) = (&object["metadata"], &object["status"]);
    let internal = items(&status["addresses"]).iter().filter(|address| address["type"] == "InternalIP");
    let mut conditions = items(&status["conditions"]).iter();
    let excluded = meta["labels"].get("node.kubernetes.io/exclude-from-external-load-balancers").is_some();
    NodeObject {
        name: NodeName::new(text(&meta["name"])),
        uid: NodeUid::new(text(&meta["uid"])),
        resource_version: version(meta),
        internal_ips: internal.filter_map(|address| text(&address["address"]).parse().ok()).collect(),
        left_out: excluded.then_some(LeftOut::ExcludedByLabel),
        ready: conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True"),
        taints: Vec::new(),
        instance: None,
    }
}
