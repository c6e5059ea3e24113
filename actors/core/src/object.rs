//! Kubernetes objects as the machines know them: only the fields that a decision reads, decoded by the
//! kubernetes port straight from the stream.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Family, InstanceId, NodeName, NodeUid, ServiceKey, ServiceUid, SliceKey};

/// The kinds that are listed and watched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// core/v1 Services.
    Services,
    /// discovery.k8s.io/v1 EndpointSlices.
    EndpointSlices,
    /// core/v1 Nodes.
    Nodes,
}

impl Kind {
    /// Every kind, in the order in which they are shown.
    pub const ALL: [Kind; 3] = [Kind::Services, Kind::EndpointSlices, Kind::Nodes];

    /// The plural resource name of the Kubernetes API.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Kind::Services => "services",
            Kind::EndpointSlices => "endpointslices",
            Kind::Nodes => "nodes",
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

/// How long the kubernetes port waits for the answer to one request about a Lease or our ConfigMap, from its sending
/// to the last byte.
///
/// W8's figures leave room for it: a leader asks again 5 s after its last renewal was sent, and may fail three times
/// until no PUT is sent any more (45 s less 25 s), five times until it stands by (30 s). W7's too: writes may start for
/// 20 s (`lease.maxHold`) from the sending of the request that takes the shared Lease, and one that is answered at
/// the last moment leaves 15 s of them.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How long a machine waits for the port's answer to such a request: longer than the port takes, so that this is
/// for answers alone that were lost within the process.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(6);

/// Why a request about a Lease or our ConfigMap failed. A write may have been carried out all the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestFailure {
    /// 401 or 403; the text says it in the server's words.
    Denied(Arc<str>),
    /// Any other answer, no connection, no answer in time; the text says which.
    Other(Arc<str>),
}

impl RequestFailure {
    /// What people are told of it.
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

/// An EndpointSlice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SliceObject {
    /// Namespace and name.
    pub key: SliceKey,
    /// The label `kubernetes.io/service-name`, in the slice's namespace; `None` when it is missing or empty.
    pub service: Option<ServiceKey>,
    /// The version of this state of it.
    pub resource_version: ResourceVersion,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
    /// How long before its arrival the change was triggered, by the annotation
    /// `endpoints.kubernetes.io/last-change-trigger-time`; `None` when absent, undecodable or in the future.
    pub trigger_age: Option<Duration>,
}

/// Why a node is left out of all pools (D5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LeftOut {
    /// Label `node.kubernetes.io/exclude-from-external-load-balancers`.
    ExcludedByLabel,
    /// Label `kubernetes.azure.com/managed=false`.
    NotManagedByAzure,
    /// A control-plane node.
    ControlPlane,
    /// Taint `ToBeDeletedByClusterAutoscaler`.
    ToBeDeleted,
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
    /// The virtual machine that `spec.providerID` names, as network interfaces name it (N2). The port does not read it yet.
    pub instance: Option<InstanceId>,
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

/// An object of one of the watched kinds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Object {
    /// A Service.
    Service(Arc<ServiceObject>),
    /// An EndpointSlice.
    Slice(Arc<SliceObject>),
    /// A Node.
    Node(Arc<NodeObject>),
}

impl Object {
    /// The name under which it is stored.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        match self {
            Object::Service(service) => ObjectKey::Service(service.key.clone()),
            Object::Slice(slice) => ObjectKey::Slice(slice.key.clone()),
            Object::Node(node) => ObjectKey::Node(node.name.clone()),
        }
    }

    /// The version of this state of it.
    #[must_use]
    pub fn resource_version(&self) -> &ResourceVersion {
        match self {
            Object::Service(service) => &service.resource_version,
            Object::Slice(slice) => &slice.resource_version,
            Object::Node(node) => &node.resource_version,
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
}
