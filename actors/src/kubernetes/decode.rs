//! Decodes lists and watch lines into the few fields that the machines read. A failure is isolated: the object
//! becomes one undecodable line, and the stream continues.

mod nodes;
mod preemptions;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use model::ids::{EventKey, Family, NodeName, ServiceKey, ServiceUid, SliceKey};
use model::machine::Wall;
use model::object::{
    AddressType, Endpoint, Kind, Object, ObjectKey, Owner, ResourceVersion, ServiceObject, ServiceType,
    SliceObject,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use sources::watch::{Line, WatchFailure};

use super::sanitize::safe_text;

/// The annotation that pauses a Service (D1).
pub const PAUSE: &str = "azure-backend-pool-controller.io/pause";
/// The annotation that requests an internal load balancer from the cloud-controller-manager.
const INTERNAL: &str = "service.beta.kubernetes.io/azure-load-balancer-internal";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const LAST_CHANGE: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const LIST_END: &str = "k8s.io/initial-events-end";

/// A page of a list.
#[derive(Debug)]
pub struct Page {
    /// The items in their order, including undecodable ones.
    pub items: Vec<Line>,
    /// The list's resourceVersion.
    pub resource_version: ResourceVersion,
    /// The token of the next page.
    pub next: Option<Arc<str>>,
}

#[derive(Deserialize)]
struct RawList<'a> {
    #[serde(default)]
    metadata: ListMeta<'a>,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct ListMeta<'a> {
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
    #[serde(borrow, default, rename = "continue")]
    next: Cow<'a, str>,
}

#[derive(Deserialize)]
struct RawLine<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct MetaOnly<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
    #[serde(borrow, default)]
    creation_timestamp: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    deletion_timestamp: Option<Cow<'a, str>>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

impl Meta<'_> {
    /// Returns when the object was created.
    fn created(&self) -> Option<&str> {
        self.creation_timestamp.as_deref()
    }
}

#[derive(Deserialize)]
struct LooseMetaOnly<'a> {
    #[serde(borrow)]
    metadata: LooseMeta<'a>,
}

/// Metadata of an object that may be invalid anywhere: each field is read separately.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LooseMeta<'a> {
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    namespace: Option<&'a RawValue>,
    #[serde(borrow, default)]
    resource_version: Option<&'a RawValue>,
    #[serde(borrow, default)]
    labels: Option<&'a RawValue>,
}

/// Returns a text that is not empty.
fn text(raw: &RawValue) -> Option<Arc<str>> {
    let text: Cow<'_, str> = serde_json::from_str(raw.get()).ok()?;
    (!text.is_empty()).then(|| Arc::from(text))
}

impl LooseMeta<'_> {
    fn key(&self, kind: Kind) -> Option<ObjectKey> {
        let name = text(self.name?)?;
        Some(match kind {
            Kind::Services => ObjectKey::Service(ServiceKey { namespace: text(self.namespace?)?, name }),
            Kind::EndpointSlices => ObjectKey::Slice(SliceKey { namespace: text(self.namespace?)?, name }),
            Kind::Nodes => ObjectKey::Node(NodeName::new(name)),
            Kind::Preemptions => ObjectKey::Preemption(EventKey { namespace: text(self.namespace?)?, name }),
        })
    }

    /// Returns the Service that owns the slice. A slice has no owner if its labels are readable and name no Service; the
    /// same applies to valid slices.
    fn owner(&self, kind: Kind) -> Owner {
        if kind != Kind::EndpointSlices {
            return Owner::Nobody;
        }
        let Some(labels) = self.labels else { return Owner::Nobody };
        let Ok(labels) = serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(labels.get()) else {
            return Owner::Unknown;
        };
        let Some(name) = labels.get(SERVICE_NAME) else { return Owner::Nobody };
        match (serde_json::from_str::<Cow<'_, str>>(name.get()), self.namespace.and_then(text)) {
            (Ok(name), _) if name.is_empty() => Owner::Nobody,
            (Ok(name), Some(namespace)) => Owner::Service(ServiceKey { namespace, name: Arc::from(name) }),
            (Ok(_), None) | (Err(_), _) => Owner::Unknown,
        }
    }

    fn version(&self) -> Option<ResourceVersion> {
        self.resource_version.and_then(text).map(ResourceVersion)
    }
}

/// Decodes a page of a plain list of this kind. `wall` is the time of arrival by the API server's clock.
///
/// # Errors
/// The body is not a list, or has no resourceVersion.
pub fn page(kind: Kind, body: &[u8], wall: jiff::Timestamp) -> Result<Page, Arc<str>> {
    let list: RawList<'_> =
        serde_json::from_slice(body).map_err(|error| safe_text(&format!("unreadable list: {error}")))?;
    if list.metadata.resource_version.is_empty() {
        return Err(Arc::from("unreadable list: metadata.resourceVersion is missing"));
    }
    let items = list.items.unwrap_or_default();
    let items = items.iter().map(|raw| object_line(kind, raw.get().as_bytes(), wall)).collect();
    let next = (!list.metadata.next.is_empty()).then(|| Arc::from(&*list.metadata.next));
    Ok(Page { items, resource_version: version(&list.metadata.resource_version), next })
}

/// Decodes one line of a watch of this kind. `wall` is the time of arrival by the API server's clock.
#[must_use]
pub fn line(kind: Kind, line: &[u8], wall: jiff::Timestamp) -> Line {
    let raw: RawLine<'_> = match serde_json::from_slice(line) {
        Ok(raw) => raw,
        Err(error) => {
            let error = safe_text(&format!("unreadable watch line: {error}"));
            return Line::Undecodable { key: None, owner: Owner::Unknown, resource_version: None, error };
        }
    };
    let object = raw.object.get().as_bytes();
    match &*raw.kind {
        "ADDED" | "MODIFIED" => object_line(kind, object, wall),
        "DELETED" => deleted(kind, object),
        "BOOKMARK" => bookmark(object),
        "ERROR" => Line::Error(error_of(object)),
        other => {
            let error = safe_text(&format!("unknown watch event type {other:?}"));
            Line::Undecodable { key: None, owner: Owner::Unknown, resource_version: None, error }
        }
    }
}

fn object_line(kind: Kind, object: &[u8], wall: jiff::Timestamp) -> Line {
    let decoded = match kind {
        Kind::Services => service(object).map(|service| Object::Service(Arc::new(service))),
        Kind::EndpointSlices => slice(object, wall).map(|slice| Object::Slice(Arc::new(slice))),
        Kind::Nodes => nodes::node(object, wall).map(|node| Object::Node(Arc::new(node))),
        Kind::Preemptions => {
            preemptions::preemption(object, wall).map(|event| Object::Preemption(Arc::new(event)))
        }
    };
    match decoded {
        Ok(object) => Line::Object(object),
        Err(error) => {
            let (key, owner, resource_version) = match serde_json::from_slice::<LooseMetaOnly<'_>>(object) {
                Ok(LooseMetaOnly { metadata }) => {
                    (metadata.key(kind), metadata.owner(kind), metadata.version())
                }
                Err(_) => (None, Owner::Unknown, None),
            };
            Line::Undecodable { key, owner, resource_version, error }
        }
    }
}

fn deleted(kind: Kind, object: &[u8]) -> Line {
    match serde_json::from_slice::<LooseMetaOnly<'_>>(object).map(|only| only.metadata) {
        Ok(meta) => match meta.key(kind) {
            Some(key) => {
                let resource_version = meta.version().unwrap_or_default();
                Line::Deleted { key, owner: meta.owner(kind), resource_version }
            }
            None => Line::Undecodable {
                key: None,
                owner: Owner::Unknown,
                resource_version: meta.version(),
                error: Arc::from("metadata.name or metadata.namespace is missing"),
            },
        },
        Err(error) => Line::Undecodable {
            key: None,
            owner: Owner::Unknown,
            resource_version: None,
            error: safe_text(&format!("unreadable metadata: {error}")),
        },
    }
}

fn bookmark(object: &[u8]) -> Line {
    match serde_json::from_slice::<MetaOnly<'_>>(object) {
        Ok(MetaOnly { metadata }) if !metadata.resource_version.is_empty() => Line::Bookmark {
            resource_version: version(&metadata.resource_version),
            list_end: metadata.annotations.is_some_and(|all| all.get(LIST_END).is_some_and(|v| v == "true")),
        },
        Ok(_) => Line::Undecodable {
            key: None,
            owner: Owner::Unknown,
            resource_version: None,
            error: Arc::from("a bookmark without metadata.resourceVersion"),
        },
        Err(error) => Line::Undecodable {
            key: None,
            owner: Owner::Unknown,
            resource_version: None,
            error: safe_text(&format!("unreadable bookmark: {error}")),
        },
    }
}

/// Texts in the error events with which servers refuse a streaming list: options that they do not know or allow, and
/// an etcd without progress notifications on request.
const REFUSES_STREAMING: [&str; 3] = ["sendInitialEvents", "watch-list", "RequestWatchProgress"];

fn error_of(object: &[u8]) -> WatchFailure {
    #[derive(Deserialize, Default)]
    struct Status {
        #[serde(default)]
        code: u16,
        #[serde(default)]
        reason: String,
        #[serde(default)]
        message: String,
    }
    let status: Status = serde_json::from_slice(object).unwrap_or_default();
    let error_text = safe_text(&format!("{} {}: {}", status.code, status.reason, status.message));
    if status.code == 410 || status.reason == "Expired" || status.reason == "Gone" {
        WatchFailure::Expired
    } else if status.code == 429 {
        WatchFailure::TooManyRequests(None)
    } else if status.code == 401 || status.code == 403 {
        WatchFailure::Denied(error_text)
    } else if REFUSES_STREAMING.iter().any(|word| status.message.contains(word)) {
        WatchFailure::StreamingRefused(error_text)
    } else {
        WatchFailure::Other(error_text)
    }
}

fn version(text: &str) -> ResourceVersion {
    ResourceVersion(Arc::from(text))
}

/// Parses a time of an object; `None` if it is not set or invalid.
fn time(text: Option<&str>) -> Option<jiff::Timestamp> {
    text?.parse().ok()
}

fn wall_of(time: jiff::Timestamp) -> Wall {
    Wall::from_micros(time.as_microsecond())
}

fn named<'m>(meta: &'m Meta<'_>) -> Result<&'m str, Arc<str>> {
    if meta.name.is_empty() {
        return Err(Arc::from("metadata.name is missing"));
    }
    if meta.uid.is_empty() {
        return Err(Arc::from("metadata.uid is missing"));
    }
    Ok(&meta.name)
}

fn service(object: &[u8]) -> Result<ServiceObject, Arc<str>> {
    #[derive(Deserialize)]
    struct Raw<'a> {
        #[serde(borrow)]
        metadata: Meta<'a>,
        #[serde(borrow, default)]
        spec: Spec<'a>,
        #[serde(borrow, default)]
        status: Status<'a>,
    }
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase")]
    struct Spec<'a> {
        #[serde(borrow, default, rename = "type")]
        service_type: Cow<'a, str>,
        #[serde(borrow, default)]
        external_traffic_policy: Cow<'a, str>,
        #[serde(borrow, default)]
        ip_families: Option<Vec<Cow<'a, str>>>,
        #[serde(borrow, default)]
        ports: Option<&'a RawValue>,
        #[serde(borrow, default)]
        load_balancer_class: Option<Cow<'a, str>>,
    }
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase")]
    struct Status<'a> {
        #[serde(borrow, default)]
        load_balancer: Option<&'a RawValue>,
    }
    let raw: Raw<'_> = serde_json::from_slice(object).map_err(unreadable)?;
    let meta = &raw.metadata;
    let name = named(meta)?;
    let families = raw.spec.ip_families.unwrap_or_default();
    let families = families.iter().map(|family| match &**family {
        "IPv4" => Ok(Family::V4),
        "IPv6" => Ok(Family::V6),
        other => Err(safe_text(&format!("spec.ipFamilies: {other:?} is neither IPv4 nor IPv6"))),
    });
    let annotations = meta.annotations.as_ref();
    let is_true = |key| annotations.and_then(|all| all.get(key)).is_some_and(|value| value == "true");
    let labels = meta.labels.iter().flatten();
    Ok(ServiceObject {
        key: ServiceKey::new(&*meta.namespace, name),
        uid: ServiceUid::new(&*meta.uid),
        resource_version: version(&meta.resource_version),
        service_type: match &*raw.spec.service_type {
            "LoadBalancer" => ServiceType::LoadBalancer,
            _ => ServiceType::Other,
        },
        local: raw.spec.external_traffic_policy == "Local",
        deleting: meta.deletion_timestamp.is_some(),
        families: families.collect::<Result<_, _>>()?,
        paused: is_true(PAUSE),
        labels: labels.map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str()))).collect(),
        internal: is_true(INTERNAL),
        exposure: number_of(&(
            raw.spec.ports.map(RawValue::get),
            raw.status.load_balancer.map(RawValue::get),
        )),
        has_class: raw.spec.load_balancer_class.is_some_and(|class| !class.is_empty()),
        has_ingress: raw.status.load_balancer.is_some_and(names_ingress),
    })
}

/// Returns whether a `status.loadBalancer` has any ingress.
fn names_ingress(balancer: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Raw {
        #[serde(default)]
        ingress: Option<Vec<IgnoredAny>>,
    }
    let read = serde_json::from_str::<Option<Raw>>(balancer.get()).ok().flatten();
    read.and_then(|raw| raw.ingress).is_some_and(|ingress| !ingress.is_empty())
}

fn slice(object: &[u8], wall: jiff::Timestamp) -> Result<SliceObject, Arc<str>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Raw<'a> {
        #[serde(borrow)]
        metadata: Meta<'a>,
        #[serde(borrow, default)]
        address_type: Option<Cow<'a, str>>,
        #[serde(borrow, default)]
        endpoints: Option<Vec<RawEndpoint<'a>>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct RawEndpoint<'a> {
        #[serde(borrow, default)]
        addresses: Option<Vec<Cow<'a, str>>>,
        #[serde(default)]
        conditions: Option<Conditions>,
        #[serde(borrow, default)]
        node_name: Option<Cow<'a, str>>,
        #[serde(borrow, default)]
        target_ref: Option<TargetRef<'a>>,
    }
    #[derive(Deserialize, Default)]
    struct Conditions {
        #[serde(default)]
        ready: Option<bool>,
        #[serde(default)]
        serving: Option<bool>,
        #[serde(default)]
        terminating: Option<bool>,
    }
    #[derive(Deserialize)]
    struct TargetRef<'a> {
        #[serde(borrow, default)]
        uid: Cow<'a, str>,
    }
    let raw: Raw<'_> = serde_json::from_slice(object).map_err(unreadable)?;
    let meta = &raw.metadata;
    let name = named(meta)?;
    let namespace: Arc<str> = Arc::from(&*meta.namespace);
    let owner =
        meta.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME)).filter(|owner| !owner.is_empty());
    let address_type = match raw.address_type.as_deref() {
        None | Some("") => AddressType::Unset,
        Some("IPv4") => AddressType::Ip(Family::V4),
        Some("IPv6") => AddressType::Ip(Family::V6),
        Some("FQDN") => AddressType::Fqdn,
        Some(other) => return Err(unknown_address_type(other)),
    };
    let endpoints = raw.endpoints.unwrap_or_default().into_iter().map(|endpoint| {
        let conditions = endpoint.conditions.unwrap_or_default();
        let ready = conditions.ready.unwrap_or(true);
        let target = endpoint.target_ref.map(|target| target.uid).filter(|uid| !uid.is_empty());
        let first = endpoint.addresses.and_then(|all| all.into_iter().next());
        Endpoint {
            node: endpoint.node_name.filter(|name| !name.is_empty()).map(|name| NodeName::new(&*name)),
            identity: number_of(&(target.as_deref().or(first.as_deref()))),
            ready,
            serving: conditions.serving.unwrap_or(ready),
            terminating: conditions.terminating.unwrap_or(false),
        }
    });
    Ok(SliceObject {
        key: SliceKey { namespace: Arc::clone(&namespace), name: Arc::from(name) },
        service: owner.map(|owner| ServiceKey::new(Arc::clone(&namespace), owner.as_str())),
        resource_version: version(&meta.resource_version),
        address_type,
        endpoints: endpoints.collect(),
        trigger_age: trigger_age(meta, wall),
    })
}

fn unknown_address_type(found: &str) -> Arc<str> {
    safe_text(&format!("addressType: {found:?} is none of IPv4, IPv6 and FQDN"))
}

fn trigger_age(meta: &Meta<'_>, wall: jiff::Timestamp) -> Option<Duration> {
    let triggered: jiff::Timestamp = meta.annotations.as_ref()?.get(LAST_CHANGE)?.parse().ok()?;
    Duration::try_from(wall.duration_since(triggered)).ok()
}

fn number_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[expect(clippy::needless_pass_by_value, reason = "it is the shape that map_err calls")]
fn unreadable(error: serde_json::Error) -> Arc<str> {
    safe_text(&format!("unreadable object: {error}"))
}

#[cfg(test)]
mod tests;
