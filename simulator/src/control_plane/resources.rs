//! Resources of a control plane: builders of valid ones, and invalid ones.

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, EdsClusterConfig,
};
use envoy_types::pb::envoy::config::core::v3::address::Address as AddressKind;
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{
    self as core, Address, AggregatedConfigSource, ApiVersion, ConfigSource, HealthStatus, SocketAddress,
};
use envoy_types::pb::envoy::config::endpoint::v3::endpoint::AdditionalAddress;
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{
    self as endpoint, ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints,
};
use envoy_types::pb::google::protobuf::{Any, UInt32Value};
use prost::Message;
pub use simulator_models::control_plane::Kind;

/// Defect of a resource.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bad {
    /// The resource can be decoded and has its name, but gRPC rejects its content: a host name as the address of an
    /// endpoint, or a cluster of the type STATIC.
    Content,
    /// The resource cannot be decoded; unless resources are wrapped, its name cannot be read.
    Bytes,
}

impl Bad {
    pub(super) fn resource(self, kind: Kind, name: &str) -> Any {
        match (self, kind) {
            (Self::Bytes, kind) => Any { type_url: kind.type_url().to_owned(), value: vec![0xff; 3] },
            (Self::Content, Kind::Endpoints) => endpoints(name, [Locality::of([("no-address", 80)])]),
            (Self::Content, Kind::Clusters) => {
                let of_type = ClusterDiscoveryType::Type(DiscoveryType::Static.into());
                let cluster = Cluster {
                    name: name.to_owned(),
                    cluster_discovery_type: Some(of_type),
                    ..Cluster::default()
                };
                packed(Kind::Clusters, &cluster)
            }
        }
    }
}

/// The endpoints of a locality.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Locality {
    /// Its priority: 0 is the best.
    pub priority: u32,
    /// Its weight; unset by default.
    pub weight: Option<u32>,
    /// Its zone; `None` sends no `locality` at all.
    pub zone: Option<String>,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
}

impl Locality {
    /// Returns a locality of priority 0 and weight 1 in `zone-1`, with healthy endpoints at these addresses and ports.
    #[must_use]
    pub fn of<'a>(endpoints: impl IntoIterator<Item = (&'a str, u32)>) -> Self {
        Self {
            priority: 0,
            weight: Some(1),
            zone: Some("zone-1".to_owned()),
            endpoints: endpoints.into_iter().map(|(address, port)| Endpoint::at(address, port)).collect(),
        }
    }
}

/// One endpoint of a locality.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Endpoint {
    /// Its address in `socket_address`, which is sent without validation.
    pub address: String,
    /// Its port.
    pub port: u32,
    /// Health of the endpoint.
    pub health: HealthStatus,
    /// Its weight; unset by default.
    pub weight: Option<u32>,
    /// Further addresses and ports of it (A61).
    pub additional: Vec<(String, u32)>,
}

impl Endpoint {
    /// Returns a healthy endpoint at this address and port.
    #[must_use]
    pub fn at(address: &str, port: u32) -> Self {
        Self {
            address: address.to_owned(),
            port,
            health: HealthStatus::Healthy,
            weight: None,
            additional: Vec::new(),
        }
    }

    fn message(self) -> LbEndpoint {
        let additional = self
            .additional
            .into_iter()
            .map(|(address, port)| AdditionalAddress { address: Some(socket_address(address, port)) });
        let endpoint = endpoint::Endpoint {
            address: Some(socket_address(self.address, self.port)),
            additional_addresses: additional.collect(),
            ..endpoint::Endpoint::default()
        };
        LbEndpoint {
            health_status: self.health.into(),
            load_balancing_weight: self.weight.map(|value| UInt32Value { value }),
            host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
            ..LbEndpoint::default()
        }
    }
}

/// Returns a `ClusterLoadAssignment` of this name with these localities; without any it is valid and empty.
#[must_use]
pub fn endpoints(name: &str, localities: impl IntoIterator<Item = Locality>) -> Any {
    let localities = localities.into_iter().map(|locality| LocalityLbEndpoints {
        locality: locality.zone.map(|zone| core::Locality { zone, ..core::Locality::default() }),
        lb_endpoints: locality.endpoints.into_iter().map(Endpoint::message).collect(),
        load_balancing_weight: locality.weight.map(|value| UInt32Value { value }),
        priority: locality.priority,
        ..LocalityLbEndpoints::default()
    });
    let assignment = ClusterLoadAssignment {
        cluster_name: name.to_owned(),
        endpoints: localities.collect(),
        ..ClusterLoadAssignment::default()
    };
    packed(Kind::Endpoints, &assignment)
}

/// Returns a `Cluster` with this name whose endpoints come from ADS with the name `eds_service_name`, or the cluster's
/// name if that is empty.
#[must_use]
pub fn cluster(name: &str, eds_service_name: &str) -> Any {
    let source = ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource::default())),
        ..ConfigSource::default()
    };
    let cluster = Cluster {
        name: name.to_owned(),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(source),
            service_name: eds_service_name.to_owned(),
        }),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        ..Cluster::default()
    };
    packed(Kind::Clusters, &cluster)
}

/// Packs any message as a resource of a kind, for contents without a builder.
#[must_use]
pub fn packed(kind: Kind, message: &impl Message) -> Any {
    Any { type_url: kind.type_url().to_owned(), value: message.encode_to_vec() }
}

fn socket_address(address: String, port: u32) -> Address {
    let socket = SocketAddress {
        address,
        port_specifier: Some(PortSpecifier::PortValue(port)),
        ..SocketAddress::default()
    };
    Address { address: Some(AddressKind::SocketAddress(socket)) }
}
