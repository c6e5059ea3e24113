//! Decodes the lists and watch lines of the modelled API server into the few fields that the machines read: the
//! simulation's own small counterpart of the kubernetes port's decoder.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::ids::{EventKey, Family, InstanceId, NodeName, NodeUid, ServiceKey, ServiceUid, SliceKey};
use model::machine::Wall;
use model::object::{
    AddressType, Endpoint, Kind, NodeMarks, NodeObject, NotBefore, Object, Owner, Preempt, PreemptionObject,
    ResourceVersion, ServiceObject, ServiceType, SliceObject, Taint,
};
use model::signals::{self, says_preempt};
use serde_json::Value;
use sources::watch::{Line, WatchFailure};

/// Returns the text of a value, or an empty text.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the items of a list, or none.
pub fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the FNV-1a hash of a text.
pub fn number_of(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Decodes one line of a watch. `wall` is the time of arrival, in microseconds since 1970.
pub fn line(kind: Kind, bytes: &[u8], wall: i64) -> Line {
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
        "ADDED" | "MODIFIED" => Line::Object(self::object(kind, object, wall)),
        "DELETED" => {
            let object = self::object(kind, object, wall);
            let owner = match &object {
                Object::Slice(slice) => slice.service.clone().map_or(Owner::Nobody, Owner::Service),
                Object::Service(_) | Object::Node(_) | Object::Preemption(_) => Owner::Nobody,
            };
            Line::Deleted { key: object.key(), owner, resource_version: version(meta) }
        }
        "BOOKMARK" => {
            let list_end = meta["annotations"]["k8s.io/initial-events-end"] == "true";
            Line::Bookmark { resource_version: version(meta), list_end }
        }
        "ERROR" => Line::Error(failure(object["code"].as_u64().unwrap_or(0), text(&object["message"]))),
        _ => undecodable("unknown type"),
    }
}

/// Decodes a page of a plain list: items, resourceVersion, token of the next page. `wall` as above.
pub fn page(kind: Kind, body: &[u8], wall: i64) -> (Vec<Line>, ResourceVersion, Option<Arc<str>>) {
    let value: Value = serde_json::from_slice(body).expect("the model answers JSON");
    let lines = items(&value["items"]).iter().map(|item| Line::Object(object(kind, item, wall)));
    let lines = lines.collect();
    let next = Some(text(&value["metadata"]["continue"])).filter(|token| !token.is_empty()).map(Arc::from);
    (lines, version(&value["metadata"]), next)
}

/// Returns the meaning of an ERROR event.
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

fn object(kind: Kind, object: &Value, wall: i64) -> Object {
    match kind {
        Kind::Services => Object::Service(Arc::new(service(object))),
        Kind::EndpointSlices => Object::Slice(Arc::new(slice(object))),
        Kind::Nodes => Object::Node(Arc::new(node(object, wall))),
        Kind::Preemptions => Object::Preemption(Arc::new(preemption(object, wall))),
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
        internal: meta["annotations"]["service.beta.kubernetes.io/azure-load-balancer-internal"] == "true",
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
        address_type: match text(&object["addressType"]) {
            "IPv4" => AddressType::Ip(Family::V4),
            "IPv6" => AddressType::Ip(Family::V6),
            "FQDN" => AddressType::Fqdn,
            _ => AddressType::Unset,
        },
        endpoints: endpoints.collect(),
        trigger_age: Some(Duration::from_millis(1)),
    }
}

fn node(object: &Value, wall: i64) -> NodeObject {
    let (meta, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let internal = items(&status["addresses"]).iter().filter(|address| address["type"] == "InternalIP");
    let active = || items(&status["conditions"]).iter().filter(|condition| condition["status"] == "True");
    let notice = |condition: &&Value| says_preempt(text(&condition["message"]));
    let taint = |taint: &Value| {
        let [key, value, effect] = ["key", "value", "effect"].map(|field| Arc::from(text(&taint[field])));
        Taint { key, value, effect }
    };
    let excluded = meta["labels"].get("node.kubernetes.io/exclude-from-external-load-balancers").is_some();
    NodeObject {
        name: NodeName::new(text(&meta["name"])),
        uid: NodeUid::new(text(&meta["uid"])),
        resource_version: version(meta),
        internal_ips: internal.filter_map(|address| text(&address["address"]).parse().ok()).collect(),
        marks: NodeMarks { excluded, ..NodeMarks::default() },
        ready: active().any(|condition| condition["type"] == "Ready"),
        taints: items(&spec["taints"]).iter().map(taint).collect(),
        instance: InstanceId::of_provider_id(text(&spec["providerID"])),
        created: parse_time(text(&meta["creationTimestamp"])).map(Wall::from_micros),
        preempt: active().find(notice).map(|condition| preempt(condition, wall)),
    }
}

fn preempt(condition: &Value, wall: i64) -> Preempt {
    let (message, at) = (text(&condition["message"]), parse_time(text(&condition["lastTransitionTime"])));
    Preempt {
        at: at.map(Wall::from_micros),
        age: at.map(|at| age(at, wall)),
        not_before: not_before(message, wall),
        message: Arc::from(message),
    }
}

fn preemption(object: &Value, wall: i64) -> PreemptionObject {
    let (meta, about) = (&object["metadata"], &object["involvedObject"]);
    let times = [
        &object["lastTimestamp"],
        &object["series"]["lastObservedTime"],
        &object["eventTime"],
        &object["firstTimestamp"],
    ];
    let newest = times.into_iter().filter_map(|time| parse_time(text(time))).max();
    let at = newest.or_else(|| parse_time(text(&meta["creationTimestamp"])));
    let uid = Some(text(&about["uid"])).filter(|uid| !uid.is_empty() && *uid != text(&about["name"]));
    let message = text(&object["message"]);
    PreemptionObject {
        key: EventKey {
            namespace: Arc::from(text(&meta["namespace"])),
            name: Arc::from(text(&meta["name"])),
        },
        resource_version: version(meta),
        node: NodeName::new(text(&about["name"])),
        uid: uid.map(NodeUid::new),
        at: at.map(Wall::from_micros),
        age: at.map(|at| age(at, wall)),
        not_before: not_before(message, wall),
        message: Arc::from(message),
    }
}

/// Returns the age of a time, or zero for one in the future.
fn age(at: i64, wall: i64) -> Duration {
    Duration::from_micros(u64::try_from(wall - at).unwrap_or(0))
}

/// Returns the earliest time of the eviction, by the date in a message.
fn not_before(message: &str, wall: i64) -> Option<NotBefore> {
    let ahead = signals::not_before(message)?.as_micros() - wall;
    let span = Duration::from_micros(ahead.unsigned_abs());
    Some(if ahead >= 0 { NotBefore::In(span) } else { NotBefore::Ago(span) })
}

/// Parses a time as Kubernetes writes it, in microseconds since 1970.
pub fn parse_time(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let micros = number(20, 26).or_else(|| Some(number(20, 23)? * 1_000)).unwrap_or(0);
    // Howard Hinnant's civil-to-days, for days after 1970.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let days =
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + micros)
}
