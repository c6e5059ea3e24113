//! What came from a control plane, as plain facts: a driver decodes them and judges nothing (X2).
//!
//! Numbers of protobuf enumerations stay numbers here, since a control plane may be newer than we are. What is
//! missing in a message is missing here too.

use std::fmt;
use std::sync::Arc;

/// The kinds of resources that are asked for (X2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A cluster: it says which endpoints are meant.
    Cluster,
    /// The endpoints of a cluster: a `ClusterLoadAssignment`.
    Endpoints,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 2] = [Kind::Cluster, Kind::Endpoints];

    /// The type URL by which a control plane is asked for it, and that CSDS shows.
    #[must_use]
    pub fn type_url(self) -> &'static str {
        match self {
            Kind::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Kind::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        }
    }

    /// The kind with this type URL; `None`: it is never asked for.
    #[must_use]
    pub fn of_type_url(type_url: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.type_url() == type_url)
    }

    /// The type without the prefix of its URL: the label of metrics (A78).
    #[must_use]
    pub fn resource_type(self) -> &'static str {
        match self {
            Kind::Cluster => "envoy.config.cluster.v3.Cluster",
            Kind::Endpoints => "envoy.config.endpoint.v3.ClusterLoadAssignment",
        }
    }

    /// Whether a response names all resources of the kind that exist and were asked for, so that one that is absent
    /// from it was deleted. Of endpoints a response names only what has changed.
    #[must_use]
    pub fn is_complete(self) -> bool {
        match self {
            Kind::Cluster => true,
            Kind::Endpoints => false,
        }
    }
}

/// One resource: its kind and name. The name is opaque, also where it begins with `xdstp:`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The kind.
    pub kind: Kind,
    /// The name.
    pub name: Arc<str>,
}

impl Key {
    /// Names the resource `name` of this kind.
    #[must_use]
    pub fn new(kind: Kind, name: impl Into<Arc<str>>) -> Key {
        Key { kind, name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.resource_type(), self.name)
    }
}

/// gRPC's canonical codes of a status.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Code {
    /// No error.
    Ok,
    /// The caller, or the side that closed the connection, gave up.
    Cancelled,
    /// An error of no known kind; also what a number means that is no code.
    Unknown,
    /// What was sent is wrong in itself.
    InvalidArgument,
    /// It took too long.
    DeadlineExceeded,
    /// It does not exist.
    NotFound,
    /// It exists already.
    AlreadyExists,
    /// The caller may not have it.
    PermissionDenied,
    /// A quota is used up.
    ResourceExhausted,
    /// It cannot be done in this state.
    FailedPrecondition,
    /// It ran into something else that went on at the same time.
    Aborted,
    /// It is beyond the end.
    OutOfRange,
    /// The server does not do such things.
    Unimplemented,
    /// The server is broken.
    Internal,
    /// The server cannot be reached, or does not serve at present.
    Unavailable,
    /// Something is lost for good.
    DataLoss,
    /// The caller has not said who it is.
    Unauthenticated,
}

impl Code {
    /// All of them, each at the place of its number.
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

    /// The code with this number; a number that is none means [`Code::Unknown`].
    #[must_use]
    pub fn of_number(number: i32) -> Code {
        let place = usize::try_from(number).ok();
        place.and_then(|place| Code::ALL.get(place)).copied().unwrap_or(Code::Unknown)
    }

    /// The number by which it is sent.
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

    /// Its name, as operators know it.
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

    /// Whether an error that a control plane reports of a resource with this code is one of the data, and not one
    /// that passes (S2).
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

/// A resource as it was received, which CSDS shows: opaque, and never encoded again.
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
    /// What it is about.
    pub type_url: String,
    /// Its version.
    pub version: String,
    /// By which it is answered.
    pub nonce: String,
    /// The resources in it.
    pub resources: Vec<Received>,
    /// The errors that it reports of resources (TP3).
    pub errors: Vec<Reported>,
    /// Which resources or errors were too many to be read; `None`: all of them were read.
    pub excess: Option<String>,
}

/// One resource of a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// As it was received, without its wrapper.
    pub raw: Raw,
    /// The name in the wrapper `envoy.service.discovery.v3.Resource`; `None`: it was not wrapped.
    pub wrapper: Option<String>,
    /// What is in it, or why protobuf cannot read it.
    pub body: Result<Body, String>,
}

/// What is in a resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// A cluster.
    Cluster(ClusterFacts),
    /// The endpoints of one.
    Endpoints(AssignmentFacts),
    /// The endpoints of one, if they are too many to be read.
    TooLarge {
        /// Its name.
        name: String,
        /// Which limit it exceeds.
        fault: String,
    },
    /// Something else, by its type URL.
    Other(String),
}

/// An error that a control plane reports of a resource (TP3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reported {
    /// Of which one; `None`: it does not say.
    pub name: Option<String>,
    /// The number of the code; `None`: there is no status.
    pub code: Option<i32>,
    /// The text of the status.
    pub message: String,
}

/// A `Cluster`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterFacts {
    /// Its name.
    pub name: String,
    /// The number of its `DiscoveryType`; `None`: it is of a custom type.
    pub discovery: Option<i32>,
    /// Its `eds_cluster_config`.
    pub eds: Option<EdsFacts>,
}

/// An `EdsClusterConfig`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EdsFacts {
    /// The name of the endpoints; empty: that of the cluster.
    pub service_name: String,
    /// Where the endpoints come from.
    pub source: EdsSource,
}

/// The `ConfigSource` of a cluster's endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EdsSource {
    /// The aggregated stream: `ads`.
    Ads,
    /// The server that the cluster came from: `self`.
    SameServer,
    /// Something else, such as a file or another server, or nothing.
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
    /// Which locality it is.
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
    /// The part of the zone.
    pub sub_zone: String,
}

/// An `LbEndpoint`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointFacts {
    /// Its address.
    pub address: AddressFacts,
    /// Its other addresses, such as that of the other family.
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
        /// The host: an IP address, or a name.
        address: String,
        /// The number of the port; `None`: it has a name, or there is none.
        port: Option<u32>,
        /// The number of the protocol.
        protocol: i32,
    },
    /// A socket of the file system.
    Pipe,
    /// A listener inside an Envoy.
    Internal,
    /// None.
    Missing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x2_kinds_are_told_by_their_type_urls_which_end_in_the_labels_of_a78() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of_type_url(kind.type_url()), Some(kind));
            assert_eq!(kind.type_url(), format!("type.googleapis.com/{}", kind.resource_type()));
        }
        for other in ["", "envoy.config.cluster.v3.Cluster", "type.googleapis.com/envoy.api.v2.Cluster"] {
            assert_eq!(Kind::of_type_url(other), None);
        }
    }

    #[test]
    fn x1_a88_only_of_clusters_does_a_response_name_all_that_exist() {
        assert_eq!(Kind::ALL.map(Kind::is_complete), [true, false]);
    }

    #[test]
    fn x1_a88_not_found_and_permission_denied_alone_are_data_errors() {
        let data: Vec<Code> = Code::ALL.into_iter().filter(|code| code.is_data_error()).collect();
        assert_eq!(data, [Code::NotFound, Code::PermissionDenied]);
    }

    #[test]
    fn codes_have_grpc_s_numbers_and_names_and_other_numbers_mean_unknown() {
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
