//! Messages of a control plane as plain facts. A driver decodes them and does not validate them (X2).
//!
//! Protobuf enumerations stay numbers, because a control plane may be newer than this program. Fields that are absent
//! in a message are absent here too.

use std::fmt;
use std::sync::Arc;

/// The kinds of resources that are requested (X2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ResourceKind {
    /// A cluster, which names its endpoints.
    Cluster,
    /// The endpoints of a cluster: a `ClusterLoadAssignment`.
    Endpoints,
}

impl ResourceKind {
    /// Every kind.
    pub const ALL: [ResourceKind; 2] = [ResourceKind::Cluster, ResourceKind::Endpoints];

    /// Returns the type URL in requests and in CSDS.
    #[must_use]
    pub fn type_url(self) -> &'static str {
        match self {
            ResourceKind::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            ResourceKind::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        }
    }

    /// Returns the kind with this type URL; `None` if it is never requested.
    #[must_use]
    pub fn of_type_url(type_url: &str) -> Option<ResourceKind> {
        ResourceKind::ALL.into_iter().find(|kind| kind.type_url() == type_url)
    }

    /// Returns the type without the prefix of its URL, as a metric label (A78).
    #[must_use]
    pub fn resource_type(self) -> &'static str {
        match self {
            ResourceKind::Cluster => "envoy.config.cluster.v3.Cluster",
            ResourceKind::Endpoints => "envoy.config.endpoint.v3.ClusterLoadAssignment",
        }
    }

    /// Returns true if a response contains all requested resources of the kind that exist, so that an absent one was
    /// deleted. A response with endpoints contains only changed ones.
    #[must_use]
    pub fn is_complete(self) -> bool {
        match self {
            ResourceKind::Cluster => true,
            ResourceKind::Endpoints => false,
        }
    }
}

/// Kind and name of a resource. The name is opaque, even if it begins with `xdstp:`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ResourceKey {
    /// The kind.
    pub kind: ResourceKind,
    /// The name.
    pub name: Arc<str>,
}

impl ResourceKey {
    /// Names the resource `name` of this kind.
    #[must_use]
    pub fn new(kind: ResourceKind, name: impl Into<Arc<str>>) -> ResourceKey {
        ResourceKey { kind, name: name.into() }
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.resource_type(), self.name)
    }
}

/// gRPC's canonical status codes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Code {
    /// No error.
    Ok,
    /// The caller, or the side that closed the connection, has cancelled the call.
    Cancelled,
    /// An unknown kind of error, or a number that is not a code.
    Unknown,
    /// The request is invalid.
    InvalidArgument,
    /// The deadline has passed.
    DeadlineExceeded,
    /// The requested object does not exist.
    NotFound,
    /// The object to create exists already.
    AlreadyExists,
    /// The caller lacks permission.
    PermissionDenied,
    /// A quota is exhausted.
    ResourceExhausted,
    /// The operation is not possible in this state.
    FailedPrecondition,
    /// Another operation has interfered.
    Aborted,
    /// The request is beyond the valid range.
    OutOfRange,
    /// The server does not support the operation.
    Unimplemented,
    /// An internal error of the server.
    Internal,
    /// The server cannot be reached, or cannot serve at present.
    Unavailable,
    /// Data is lost.
    DataLoss,
    /// The caller is not authenticated.
    Unauthenticated,
}

impl Code {
    /// Every code, at the index of its number.
    pub const ALL: [Code; 17] = [
        Code::Ok,
        Code::Cancelled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ];

    /// Returns the code with this number; [`Code::Unknown`] for any other number.
    #[must_use]
    pub fn of_number(number: i32) -> Code {
        let place = usize::try_from(number).ok();
        place.and_then(|place| Code::ALL.get(place)).copied().unwrap_or(Code::Unknown)
    }

    /// Returns the number on the wire.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Code::Ok => 0,
            Code::Cancelled => 1,
            Code::Unknown => 2,
            Code::InvalidArgument => 3,
            Code::DeadlineExceeded => 4,
            Code::NotFound => 5,
            Code::AlreadyExists => 6,
            Code::PermissionDenied => 7,
            Code::ResourceExhausted => 8,
            Code::FailedPrecondition => 9,
            Code::Aborted => 10,
            Code::OutOfRange => 11,
            Code::Unimplemented => 12,
            Code::Internal => 13,
            Code::Unavailable => 14,
            Code::DataLoss => 15,
            Code::Unauthenticated => 16,
        }
    }

    /// Returns the canonical name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Code::Ok => "OK",
            Code::Cancelled => "CANCELLED",
            Code::Unknown => "UNKNOWN",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Code::NotFound => "NOT_FOUND",
            Code::AlreadyExists => "ALREADY_EXISTS",
            Code::PermissionDenied => "PERMISSION_DENIED",
            Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Code::FailedPrecondition => "FAILED_PRECONDITION",
            Code::Aborted => "ABORTED",
            Code::OutOfRange => "OUT_OF_RANGE",
            Code::Unimplemented => "UNIMPLEMENTED",
            Code::Internal => "INTERNAL",
            Code::Unavailable => "UNAVAILABLE",
            Code::DataLoss => "DATA_LOSS",
            Code::Unauthenticated => "UNAUTHENTICATED",
        }
    }

    /// Returns true if a resource error with this code is a data error, and not a transient one (S2).
    #[must_use]
    pub fn is_data_error(self) -> bool {
        matches!(self, Code::NotFound | Code::PermissionDenied)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A resource as received, for CSDS: opaque, and never encoded again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Raw {
    /// The type URL.
    pub type_url: Arc<str>,
    /// The bytes.
    pub bytes: Arc<[u8]>,
}

/// A `DiscoveryResponse`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// The type URL of its resources.
    pub type_url: String,
    /// Its version.
    pub version: String,
    /// The nonce, which the next request returns.
    pub nonce: String,
    /// The resources in it.
    pub resources: Vec<Received>,
    /// The resource errors that it reports (TP3).
    pub errors: Vec<ReportedError>,
    /// The list of resources or errors that was too long to read completely; `None`: everything was read.
    pub excess: Option<String>,
}

/// One resource of a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// As it was received, without its wrapper.
    pub raw: Raw,
    /// The name in the wrapper `envoy.service.discovery.v3.Resource`; `None`: the resource was not wrapped.
    pub wrapper: Option<String>,
    /// The content, or the protobuf error.
    pub body: Result<Body, String>,
}

/// The content of a resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// A cluster.
    Cluster(ClusterFacts),
    /// The endpoints of one.
    Endpoints(AssignmentFacts),
    /// The endpoints of a cluster that exceed a limit and were not read.
    TooLarge {
        /// Its name.
        name: String,
        /// The exceeded limit.
        fault: String,
    },
    /// Another type, with its type URL.
    Other(String),
}

/// A resource error that a control plane reports (TP3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportedError {
    /// Name of the resource; `None` if absent.
    pub name: Option<String>,
    /// Number of the code; `None` without a status.
    pub code: Option<i32>,
    /// The text of the status.
    pub message: String,
}

/// A `Cluster`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterFacts {
    /// Its name.
    pub name: String,
    /// The number of its `DiscoveryType`; `None` for a custom type.
    pub discovery: Option<i32>,
    /// Its `eds_cluster_config`.
    pub eds: Option<EdsFacts>,
}

/// An `EdsClusterConfig`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EdsFacts {
    /// The name of the endpoints; empty: the name of the cluster.
    pub service_name: String,
    /// The source of the endpoints.
    pub source: EdsSource,
}

/// The `ConfigSource` of a cluster's endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EdsSource {
    /// The aggregated stream: `ads`.
    Ads,
    /// The server that the cluster came from: `self`.
    SameServer,
    /// Another source, such as a file or another server, or none.
    Other,
}

/// A `ClusterLoadAssignment`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AssignmentFacts {
    /// Its name.
    pub cluster_name: String,
    /// Its `endpoints`.
    pub localities: Vec<LocalityFacts>,
}

/// A `LocalityLbEndpoints`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LocalityFacts {
    /// Its name.
    pub locality: Option<Locality>,
    /// Its weight.
    pub weight: Option<u32>,
    /// Its priority; 0 is the highest.
    pub priority: u32,
    /// Its `lb_endpoints`.
    pub endpoints: Vec<EndpointFacts>,
}

/// A `Locality`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Locality {
    /// The region.
    pub region: String,
    /// The zone in it.
    pub zone: String,
    /// The sub-zone.
    pub sub_zone: String,
}

/// An `LbEndpoint`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointFacts {
    /// Its address.
    pub address: AddressFacts,
    /// Its additional addresses, such as one of the other family.
    pub additional: Vec<AddressFacts>,
    /// The number of its `HealthStatus`.
    pub health: i32,
    /// Its weight.
    pub weight: Option<u32>,
}

/// An `Address`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AddressFacts {
    /// A `SocketAddress`.
    Socket {
        /// The host: an IP address or a name.
        address: String,
        /// The port number; `None`: a named port, or no port.
        port: Option<u32>,
        /// The number of the protocol.
        protocol: i32,
    },
    /// A Unix domain socket.
    Pipe,
    /// An internal listener of an Envoy.
    Internal,
    /// No address.
    Missing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x2_kinds_are_recognised_by_type_urls_with_a78_labels() {
        for kind in ResourceKind::ALL {
            assert_eq!(ResourceKind::of_type_url(kind.type_url()), Some(kind));
            assert_eq!(kind.type_url(), format!("type.googleapis.com/{}", kind.resource_type()));
        }
        for other in ["", "envoy.config.cluster.v3.Cluster", "type.googleapis.com/envoy.api.v2.Cluster"] {
            assert_eq!(ResourceKind::of_type_url(other), None);
        }
    }

    #[test]
    fn x1_a88_only_cluster_responses_are_complete() {
        assert_eq!(ResourceKind::ALL.map(ResourceKind::is_complete), [true, false]);
    }

    #[test]
    fn x1_a88_only_not_found_and_permission_denied_are_data_errors() {
        let data: Vec<Code> = Code::ALL.into_iter().filter(|code| code.is_data_error()).collect();
        assert_eq!(data, [Code::NotFound, Code::PermissionDenied]);
    }

    #[test]
    fn codes_have_grpcs_numbers_and_others_mean_unknown() {
        for (number, code) in (0..).zip(Code::ALL) {
            assert_eq!((code.number(), Code::of_number(number)), (number, code));
        }
        for number in [-1, 17, i32::MIN, i32::MAX] {
            assert_eq!(Code::of_number(number), Code::Unknown);
        }
        let known = [Code::Ok, Code::InvalidArgument, Code::NotFound, Code::Unavailable].map(Code::as_str);
        assert_eq!(known, ["OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNAVAILABLE"]);
        assert_eq!(Code::PermissionDenied.to_string(), "PERMISSION_DENIED");
    }
}
