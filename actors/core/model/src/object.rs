//! Kubernetes objects as the machines know them: only the fields that a decision reads, decoded by the
//! kubernetes port straight from the stream.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{EventKey, Family, InstanceId, NodeName, NodeUid, ServiceKey, ServiceUid, SliceKey};
use crate::machine::Wall;

/// The kinds that are listed and watched.
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
    /// Every kind, in the order in which they are shown.
    pub const ALL: [Kind; 4] = [Kind::Services, Kind::EndpointSlices, Kind::Nodes, Kind::Preemptions];
    /// The kinds that levels rest on, in the order in which they are shown.
    pub const OF_LEVELS: [Kind; 3] = [Kind::Services, Kind::EndpointSlices, Kind::Nodes];

    /// The plural resource name of the Kubernetes API.
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

/// A resourceVersion. Kubernetes promises that those of one resource compare as numbers; one that is no
/// number compares as unknown.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ResourceVersion(pub Arc<str>);

impl ResourceVersion {
    /// Whether this version is known to be older than `other`.
    #[must_use]
    pub fn is_older_than(&self, other: &ResourceVersion) -> bool {
        match (self.0.parse::<u128>(), other.0.parse::<u128>()) {
            (Ok(mine), Ok(theirs)) => mine < theirs,
            (Ok(_), Err(_)) | (Err(_), Ok(_) | Err(_)) => false,
        }
    }
}

/// How long the kubernetes port waits for the answer to one request about a Lease, our ConfigMap or a taint, from its
/// sending to the last byte.
///
/// W8's figures leave room for it: a leader asks again 5 s after its last renewal was sent, and may fail three times
/// until no PUT is sent any more (45 s less 25 s), five times until it stands by (30 s). W7's too: writes may start for
/// 20 s (`lease.maxHold`) from the sending of the request that takes the shared Lease, and one that is answered at
/// the last moment leaves 15 s of them.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How long a machine waits for the port's answer to such a request: longer than the port takes, so that this is
/// for answers alone that were lost within the process.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(6);

/// Why a request about a Lease, our ConfigMap or a taint failed. A write may have been carried out all the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestFailure {
    /// 401 or 403; the text says it in the server's words.
    Denied(Arc<str>),
    /// Any other answer, no connection, no answer in time; the text says which.
    Other(Arc<str>),
}

impl RequestFailure {
    /// What operators are told of it.
    #[must_use]
    pub fn into_why(self) -> Arc<str> {
        match self {
            RequestFailure::Denied(why) | RequestFailure::Other(why) => why,
        }
    }
}

/// `spec.type` of a Service, as far as it matters.
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
    /// The version of this state of it.
    pub resource_version: ResourceVersion,
    /// `spec.type`.
    pub service_type: ServiceType,
    /// Whether `spec.externalTrafficPolicy` is `Local`.
    pub local: bool,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `spec.ipFamilies`; empty when the API server has not set it.
    pub families: Vec<Family>,
    /// Whether the annotation `azure-backend-pool-controller.io/pause` says `"true"` (D1).
    pub paused: bool,
    /// The labels, for `services.selector`.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Whether the annotation `service.beta.kubernetes.io/azure-load-balancer-internal` is `"true"`: then its pools are
    /// on a load balancer whose name ends in `-internal` (D3).
    pub internal: bool,
    /// A number that changes when ports or `status.loadBalancer.ingress` change: a reason to discover again (D3).
    pub exposure: u64,
    /// Whether `spec.loadBalancerClass` is set: then the cloud-controller-manager leaves it alone (W7).
    pub has_class: bool,
    /// Whether `status.loadBalancer.ingress` names anything (W7).
    pub has_ingress: bool,
}

/// One endpoint of a slice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// `nodeName`; `None` is a data error (D6).
    pub node: Option<NodeName>,
    /// A number that stands for the endpoint across updates: made of `targetRef.uid`, else of its first address.
    pub identity: u64,
    /// `conditions.ready`; absent counts as true, as the API says.
    pub ready: bool,
    /// `conditions.serving`; absent counts as `ready`.
    pub serving: bool,
    /// `conditions.terminating`; absent counts as false.
    pub terminating: bool,
}

/// `addressType` of an EndpointSlice: the kind of addresses that its endpoints have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AddressType {
    /// It is not set: the endpoints count for both families.
    #[default]
    Unset,
    /// Addresses of this family.
    Ip(Family),
    /// Names: the endpoints count for neither family.
    Fqdn,
}

impl AddressType {
    /// The families for which the endpoints count (D4).
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
    /// The version of this state of it.
    pub resource_version: ResourceVersion,
    /// `addressType`.
    pub address_type: AddressType,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
    /// How long before its arrival the change was triggered, by the annotation
    /// `endpoints.kubernetes.io/last-change-trigger-time`; `None` when absent, undecodable or in the future.
    pub trigger_age: Option<Duration>,
}

/// The key of the taint that the cluster autoscaler gives to a node before it drains and deletes it (D5).
pub const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// Why a node with endpoints of a Service is left out of a pool of it (D4, D5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LeftOut {
    /// Label `node.kubernetes.io/exclude-from-external-load-balancers`.
    ExcludedByLabel,
    /// Label `kubernetes.azure.com/managed=false`.
    NotManagedByAzure,
    /// A control-plane node.
    ControlPlane,
    /// Taint [`TO_BE_DELETED`]: the node stays a member while it hosts endpoints, and is required only while no other node
    /// of the Service is.
    ToBeDeleted,
    /// Its endpoints are all of the other address family; never of a [`NodeObject`].
    OtherFamily,
}

impl LeftOut {
    /// Whether such a node is in no pool at all.
    #[must_use]
    pub fn is_everywhere(self) -> bool {
        match self {
            LeftOut::ExcludedByLabel | LeftOut::NotManagedByAzure | LeftOut::ControlPlane => true,
            LeftOut::ToBeDeleted | LeftOut::OtherFamily => false,
        }
    }

    /// The word for the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            LeftOut::ExcludedByLabel => "excluded_by_label",
            LeftOut::NotManagedByAzure => "not_managed_by_azure",
            LeftOut::ControlPlane => "control_plane",
            LeftOut::ToBeDeleted => "to_be_deleted",
            LeftOut::OtherFamily => "other_family",
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeftOut::ExcludedByLabel => "it has the label node.kubernetes.io/exclude-from-external-load-balancers",
            LeftOut::NotManagedByAzure => "it has the label kubernetes.azure.com/managed=false",
            LeftOut::ControlPlane => {
                "it is a control-plane node, and excludeMasterFromStandardLB of the cloud configuration is not false"
            }
            LeftOut::ToBeDeleted => "the cluster autoscaler is about to delete it (taint ToBeDeletedByClusterAutoscaler)",
            LeftOut::OtherFamily => "its endpoints are all of the other address family",
        })
    }
}

/// Whose slice it is, as far as the metadata of one say that cannot be decoded (D6).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Owner {
    /// The metadata do not say: it may be any Service of its namespace.
    Unknown,
    /// The metadata can be read and name no Service.
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
    /// The version of this state of it.
    pub resource_version: ResourceVersion,
    /// All addresses of type `InternalIP` that parse, in the order of the status.
    pub internal_ips: Vec<IpAddr>,
    /// Why it is left out of all pools; `None` when it is not.
    pub left_out: Option<LeftOut>,
    /// Whether its condition `Ready` is `True`.
    pub ready: bool,
    /// Its taints, in the order of its spec; the admin state reads them (N1).
    pub taints: Vec<Taint>,
    /// The virtual machine that `spec.providerID` names, as network interfaces name it (N2).
    pub instance: Option<InstanceId>,
    /// When it was created.
    pub created: Option<Wall>,
    /// The condition that tells of an eviction; `None` when there is none (N1).
    pub preempt: Option<Preempt>,
}

/// A condition that tells of an eviction (N1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Preempt {
    /// Since when it stands: `lastTransitionTime`.
    pub at: Option<Wall>,
    /// How long before its arrival that was; `None` when that is not known or lies more than 60 s in the future.
    pub age: Option<Duration>,
    /// When the eviction is due by the date in the message; `None` without a date.
    pub due: Option<Due>,
    /// What it says.
    pub message: Arc<str>,
}

/// When an eviction is due, counted from the arrival of its notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// In the future, by this much.
    In(Duration),
    /// In the past, by this much.
    Ago(Duration),
}

impl Preempt {
    /// Whether both are the same condition, whenever they arrived.
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

/// What is to become of the taint of a node that is evicted (N1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaintEdit {
    /// It is added to those that the node has.
    AddTo,
    /// It becomes the first of a node that has none.
    AddFirst,
    /// It goes.
    Remove {
        /// Its place in `spec.taints`.
        at: usize,
    },
}

/// A patch of a node's taints, which leaves all taints but ours as they are (N1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaintAsk {
    /// The node.
    pub node: NodeName,
    /// Its UID: another node of the same name is left alone.
    pub uid: NodeUid,
    /// What is to become of it.
    pub edit: TaintEdit,
}

/// What became of a patch of a node's taints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TaintAnswer {
    /// It was carried out.
    Done,
    /// It was refused, because the node is not as it was seen: 409 or 422.
    Overtaken,
    /// The node does not exist: 404.
    Gone,
    /// It was not sent, for this is a dry run (C4).
    Withheld,
    /// The request failed, or its answer was lost: it may have been carried out all the same.
    Failed(RequestFailure),
}

/// An event that tells of a node's eviction (N1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreemptionObject {
    /// Namespace and name of the event.
    pub key: EventKey,
    /// The version of this state of it.
    pub resource_version: ResourceVersion,
    /// The node that it is about.
    pub node: NodeName,
    /// The UID of that node; `None` where the event gives none, or the node's name in its place.
    pub uid: Option<NodeUid>,
    /// When it was last seen: the newest of the times in it.
    pub at: Option<Wall>,
    /// How long before its arrival that was; `None` when that is not known or lies more than 60 s in the future.
    pub age: Option<Duration>,
    /// When the eviction is due by the date in the message; `None` without a date.
    pub due: Option<Due>,
    /// What it says.
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
    /// An event that tells of a node's eviction.
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
    /// The name under which it is stored.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        match self {
            Object::Service(service) => ObjectKey::Service(service.key.clone()),
            Object::Slice(slice) => ObjectKey::Slice(slice.key.clone()),
            Object::Node(node) => ObjectKey::Node(node.name.clone()),
            Object::Preemption(event) => ObjectKey::Preemption(event.key.clone()),
        }
    }

    /// The version of this state of it.
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

/// The name of an object of one of the watched kinds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectKey {
    /// A Service.
    Service(ServiceKey),
    /// An EndpointSlice.
    Slice(SliceKey),
    /// A Node.
    Node(NodeName),
    /// An event that tells of a node's eviction.
    Preemption(EventKey),
}
