//! Kubernetes objects as the machines see them: only the fields that a decision reads, decoded by the kubernetes port
//! directly from the stream.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{EventKey, Family, InstanceId, NodeName, NodeUid, ServiceKey, ServiceUid, SliceKey};
use crate::machine::Wall;

/// The kinds of objects that are listed and watched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// core/v1 Services.
    Services,
    /// discovery.k8s.io/v1 EndpointSlices.
    EndpointSlices,
    /// core/v1 Nodes.
    Nodes,
    /// core/v1 Events of Nodes with the reason `PreemptScheduled` (N1).
    Preemptions,
}

impl Kind {
    /// Every kind, in display order.
    pub const ALL: [Kind; 4] = [Kind::Services, Kind::EndpointSlices, Kind::Nodes, Kind::Preemptions];
    /// The kinds that levels are computed from, in display order.
    pub const OF_LEVELS: [Kind; 3] = [Kind::Services, Kind::EndpointSlices, Kind::Nodes];

    /// Returns the plural resource name of the Kubernetes API.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Kind::Services => "services",
            Kind::EndpointSlices => "endpointslices",
            Kind::Nodes => "nodes",
            Kind::Preemptions => "events",
        }
    }
}

/// A resourceVersion. Kubernetes promises that the versions of one resource compare as numbers. A version that is not
/// a number cannot be compared.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ResourceVersion(pub Arc<str>);

impl ResourceVersion {
    /// Returns true if this version is certainly older than `other`.
    #[must_use]
    pub fn is_older_than(&self, other: &ResourceVersion) -> bool {
        match (self.0.parse::<u128>(), other.0.parse::<u128>()) {
            (Ok(mine), Ok(theirs)) => mine < theirs,
            (Ok(_), Err(_)) | (Err(_), Ok(_) | Err(_)) => false,
        }
    }
}

/// How long the kubernetes port waits for the answer to one request about a Lease, our ConfigMap or a taint: from
/// sending the request to the last byte of the answer.
///
/// W8's figures leave room for it. A leader retries 5 s after it sent its last renewal. Three attempts may fail before
/// it sends no more PUTs (45 s less 25 s), and five before it becomes a standby (30 s). W7's figures leave room too.
/// Writes may start for 20 s (`lease.maxHold`) after the request that takes the shared Lease is sent; an answer at the
/// last moment leaves 15 s of them.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a machine waits for the port's answer to such a request. This is longer than the port waits, so it covers
/// only answers that are lost within the process.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(6);

/// Why a request about a Lease, our ConfigMap or a taint failed. A write may have taken effect nevertheless.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestFailure {
    /// 401 or 403, with the server's message.
    Denied(Arc<str>),
    /// Any other answer, no connection or no answer in time, with a text that says which.
    Other(Arc<str>),
}

impl RequestFailure {
    /// Returns the explanation for operators.
    #[must_use]
    pub fn into_why(self) -> Arc<str> {
        match self {
            RequestFailure::Denied(why) | RequestFailure::Other(why) => why,
        }
    }
}

/// The state of an object that is read and replaced.
pub trait ApiObject {
    /// The changes of a write.
    type Edit: Clone + fmt::Debug;
}

/// A request about one object with the state `F`.
#[derive(Clone, Debug)]
pub enum ObjectRequest<F: ApiObject> {
    /// GET it.
    Get,
    /// Create it. Fails if it exists.
    Create(F::Edit),
    /// Replace the state that was read. Fails with [`ObjectAnswer::Conflict`] when it is no longer the newest.
    Replace(Arc<F>, F::Edit),
    /// Watch it from this version. The answer is the first newer state, or [`ObjectAnswer::Unchanged`] after at most
    /// the given time. Only Leases are watched in this way.
    Watch(ResourceVersion, Duration),
}

/// The answer to a request about one object with the state `F`.
#[derive(Clone, Debug)]
pub enum ObjectAnswer<F> {
    /// The state as read, or after the write.
    Seen(Arc<F>),
    /// It does not exist.
    Absent,
    /// Another client wrote it first, or it exists already.
    Conflict,
    /// It did not change during the watch.
    Unchanged,
    /// The request failed, or its answer was lost. A write may have taken effect nevertheless.
    Failed(RequestFailure),
}

/// `spec.type` of a Service, as far as this controller distinguishes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceType {
    /// `LoadBalancer`.
    LoadBalancer,
    /// Any other type.
    Other,
}

/// A Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceObject {
    /// Namespace and name.
    pub key: ServiceKey,
    /// The UID.
    pub uid: ServiceUid,
    /// The resourceVersion of this state.
    pub resource_version: ResourceVersion,
    /// `spec.type`.
    pub service_type: ServiceType,
    /// Whether `spec.externalTrafficPolicy` is `Local`.
    pub local: bool,
    /// True if `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `spec.ipFamilies`; empty when the API server has not set it.
    pub families: Vec<Family>,
    /// True if the annotation `azure-backend-pool-controller.io/pause` is `"true"` (D1).
    pub paused: bool,
    /// The labels, for `services.selector`.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// True if the annotation `service.beta.kubernetes.io/azure-load-balancer-internal` is `"true"`. The Service's
    /// pools are then on a load balancer whose name ends in `-internal` (D3).
    pub internal: bool,
    /// A number that changes with the ports or `status.loadBalancer.ingress`. A change triggers discovery (D3).
    pub exposure: u64,
    /// True if `spec.loadBalancerClass` is set. The cloud-controller-manager then ignores the Service (W7).
    pub has_class: bool,
    /// True if `status.loadBalancer.ingress` is not empty (W7).
    pub has_ingress: bool,
}

/// One endpoint of a slice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// `nodeName`; `None` is a data error (D6).
    pub node: Option<NodeName>,
    /// Identity of the endpoint across updates: derived from `targetRef.uid`, else from its first address.
    pub identity: u64,
    /// `conditions.ready`; absent counts as true, as the API defines.
    pub ready: bool,
    /// `conditions.serving`; absent counts as `ready`.
    pub serving: bool,
    /// `conditions.terminating`; absent counts as false.
    pub terminating: bool,
}

/// `addressType` of an EndpointSlice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AddressType {
    /// Not set: the endpoints count for both families.
    #[default]
    Unset,
    /// IP addresses of this family.
    Ip(Family),
    /// DNS names: the endpoints count for neither family.
    Fqdn,
}

impl AddressType {
    /// Returns the families for which the endpoints count (D4).
    #[must_use]
    pub fn families(self) -> &'static [Family] {
        match self {
            AddressType::Unset => &[Family::V4, Family::V6],
            AddressType::Ip(Family::V4) => &[Family::V4],
            AddressType::Ip(Family::V6) => &[Family::V6],
            AddressType::Fqdn => &[],
        }
    }
}

/// An EndpointSlice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SliceObject {
    /// Namespace and name.
    pub key: SliceKey,
    /// The label `kubernetes.io/service-name`, in the slice's namespace; `None` when it is missing or empty.
    pub service: Option<ServiceKey>,
    /// The resourceVersion of this state.
    pub resource_version: ResourceVersion,
    /// `addressType`.
    pub address_type: AddressType,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Time from the change that triggered this state to its arrival here, by the annotation
    /// `endpoints.kubernetes.io/last-change-trigger-time`. `None` when the annotation is absent, undecodable or in the
    /// future.
    pub trigger_age: Option<Duration>,
}

/// Key of the taint that the cluster autoscaler puts on a node before it drains and deletes the node (D5).
pub const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// Why a node that hosts endpoints of a Service is excluded from a pool of that Service (D4, D5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ExclusionRule {
    /// Label `node.kubernetes.io/exclude-from-external-load-balancers`.
    ExcludedByLabel,
    /// Label `kubernetes.azure.com/managed=false`.
    NotManagedByAzure,
    /// A control-plane node.
    ControlPlane,
    /// Taint [`TO_BE_DELETED`]. The node stays a member while it hosts endpoints. It is required only while no other
    /// node of the Service is.
    ToBeDeleted,
    /// All its endpoints are of the other address family. Never the reason of a node alone.
    OtherFamily,
}

impl ExclusionRule {
    /// Returns true if the node is excluded from every pool.
    #[must_use]
    pub fn is_everywhere(self) -> bool {
        match self {
            ExclusionRule::ExcludedByLabel
            | ExclusionRule::NotManagedByAzure
            | ExclusionRule::ControlPlane => true,
            ExclusionRule::ToBeDeleted | ExclusionRule::OtherFamily => false,
        }
    }

    /// Returns the value in the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ExclusionRule::ExcludedByLabel => "excluded_by_label",
            ExclusionRule::NotManagedByAzure => "not_managed_by_azure",
            ExclusionRule::ControlPlane => "control_plane",
            ExclusionRule::ToBeDeleted => "to_be_deleted",
            ExclusionRule::OtherFamily => "other_family",
        }
    }
}

impl fmt::Display for ExclusionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExclusionRule::ExcludedByLabel => "it has the label node.kubernetes.io/exclude-from-external-load-balancers",
            ExclusionRule::NotManagedByAzure => "it has the label kubernetes.azure.com/managed=false",
            ExclusionRule::ControlPlane => {
                "it is a control-plane node, and excludeMasterFromStandardLB of the cloud configuration is not false"
            }
            ExclusionRule::ToBeDeleted => "the cluster autoscaler is about to delete it (taint ToBeDeletedByClusterAutoscaler)",
            ExclusionRule::OtherFamily => "its endpoints are all of the other address family",
        })
    }
}

/// The Service that owns a slice, as far as the metadata of an undecodable slice name it (D6).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Owner {
    /// The metadata do not name the owner: it may be any Service of the namespace.
    Unknown,
    /// The metadata are readable and name no Service.
    Nobody,
    /// This Service.
    Service(ServiceKey),
}

/// A Node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeObject {
    /// The name.
    pub name: NodeName,
    /// The UID.
    pub uid: NodeUid,
    /// The resourceVersion of this state.
    pub resource_version: ResourceVersion,
    /// All addresses of type `InternalIP` that parse, in status order.
    pub internal_ips: Vec<IpAddr>,
    /// The labels that may leave it out of pools (D5).
    pub marks: NodeMarks,
    /// True if the condition `Ready` is `True`.
    pub ready: bool,
    /// Taints in spec order; the admin state uses them (N1).
    pub taints: Vec<Taint>,
    /// The virtual machine in `spec.providerID`, named as network interfaces name it (N2).
    pub instance: Option<InstanceId>,
    /// Creation time.
    pub created: Option<Wall>,
    /// The condition that announces an eviction, if there is one (N1).
    pub preempt: Option<Preempt>,
}

/// The labels of a node that may leave it out of pools (D5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeMarks {
    /// Label `node.kubernetes.io/exclude-from-external-load-balancers`, with any value.
    pub excluded: bool,
    /// Label `kubernetes.azure.com/managed` with the value `false`, without case.
    pub unmanaged: bool,
    /// Label `node-role.kubernetes.io/control-plane` or `node-role.kubernetes.io/master`, with any value.
    pub control_plane: bool,
}

/// A node condition that announces an eviction (N1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Preempt {
    /// `lastTransitionTime`.
    pub at: Option<Wall>,
    /// Time from `at` to the arrival of the condition. `None` when unknown, or when `at` is more than 60 s in the
    /// future.
    pub age: Option<Duration>,
    /// Earliest time of the eviction, by the date in the message; `None` without a date.
    pub not_before: Option<NotBefore>,
    /// Message of the condition.
    pub message: Arc<str>,
}

/// Earliest time of an eviction (`NotBefore` in Scheduled Events of Azure), relative to the arrival of its notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotBefore {
    /// This far in the future.
    In(Duration),
    /// This far in the past.
    Ago(Duration),
}

impl Preempt {
    /// Returns true if both are the same condition, regardless of when they arrived.
    #[must_use]
    pub fn is_same_as(&self, other: &Preempt) -> bool {
        self.at == other.at && self.message == other.message
    }
}

/// A taint of a node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Taint {
    /// Its key.
    pub key: Arc<str>,
    /// Its value; empty when absent.
    pub value: Arc<str>,
    /// Its effect.
    pub effect: Arc<str>,
}

/// A change of the eviction taint on a node (N1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaintEdit {
    /// Append the taint to the taints that the node has.
    AddTo,
    /// Set the taint on a node without taints.
    AddFirst,
    /// Remove the taint.
    Remove {
        /// Index in `spec.taints`.
        at: usize,
    },
}

/// A patch of a node's taints. It changes no taint but ours (N1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaintPatch {
    /// The node.
    pub node: NodeName,
    /// UID of the node. Another node with the same name is not patched.
    pub uid: NodeUid,
    /// The change.
    pub edit: TaintEdit,
}

/// Result of a patch of a node's taints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TaintAnswer {
    /// The patch was applied.
    Done,
    /// The node has changed since it was read: 409 or 422.
    Overtaken,
    /// The node does not exist: 404.
    Gone,
    /// The patch was not sent, because this is a dry run (C4).
    Withheld,
    /// The request failed, or its answer was lost. The patch may have been applied nevertheless.
    Failed(RequestFailure),
}

/// An Event that announces the eviction of a node (N1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreemptionObject {
    /// Namespace and name of the event.
    pub key: EventKey,
    /// The resourceVersion of this state.
    pub resource_version: ResourceVersion,
    /// The node that the Event is about.
    pub node: NodeName,
    /// UID of that node; `None` when the Event has no UID, or has the node's name in that field.
    pub uid: Option<NodeUid>,
    /// Time when the Event last occurred: the newest of its timestamps.
    pub at: Option<Wall>,
    /// Time from `at` to the arrival of the Event. `None` when unknown, or when `at` is more than 60 s in the future.
    pub age: Option<Duration>,
    /// Earliest time of the eviction, by the date in the message; `None` without a date.
    pub not_before: Option<NotBefore>,
    /// Message of the Event.
    pub message: Arc<str>,
}

/// An object of one of the watched kinds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Object {
    /// A Service.
    Service(Arc<ServiceObject>),
    /// An EndpointSlice.
    Slice(Arc<SliceObject>),
    /// A Node.
    Node(Arc<NodeObject>),
    /// An Event that announces the eviction of a node.
    Preemption(Arc<PreemptionObject>),
}

impl From<ServiceObject> for Object {
    fn from(service: ServiceObject) -> Object {
        Object::Service(Arc::new(service))
    }
}

impl From<SliceObject> for Object {
    fn from(slice: SliceObject) -> Object {
        Object::Slice(Arc::new(slice))
    }
}

impl From<NodeObject> for Object {
    fn from(node: NodeObject) -> Object {
        Object::Node(Arc::new(node))
    }
}

impl Object {
    /// Returns the key of the object in a cache.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        match self {
            Object::Service(service) => ObjectKey::Service(service.key.clone()),
            Object::Slice(slice) => ObjectKey::Slice(slice.key.clone()),
            Object::Node(node) => ObjectKey::Node(node.name.clone()),
            Object::Preemption(event) => ObjectKey::Preemption(event.key.clone()),
        }
    }

    /// Returns the resourceVersion of this state.
    #[must_use]
    pub fn resource_version(&self) -> &ResourceVersion {
        match self {
            Object::Service(service) => &service.resource_version,
            Object::Slice(slice) => &slice.resource_version,
            Object::Node(node) => &node.resource_version,
            Object::Preemption(event) => &event.resource_version,
        }
    }
}

/// The key of an object of one of the watched kinds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectKey {
    /// A Service.
    Service(ServiceKey),
    /// An EndpointSlice.
    Slice(SliceKey),
    /// A Node.
    Node(NodeName),
    /// An Event that announces the eviction of a node.
    Preemption(EventKey),
}
