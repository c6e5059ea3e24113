//! The fields of xDS messages that are read. All other fields, such as metadata, are skipped and take no memory.
//!
//! Repeated fields and large ones are read with [`each`], so that the reader can count them before it decodes them, and
//! copies nothing.

/// A `DiscoveryResponse`, without its `resources` (2) and `resource_errors` (7).
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DiscoveryResponse {
    #[prost(string, tag = "1")]
    pub version_info: String,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub nonce: String,
}

/// An `Any`, without its `value` (2).
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
}

/// The wrapper of a resource, without the `resource` (2) in it.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Resource {
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(message, optional, tag = "8")]
    pub resource_name: Option<ResourceName>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ResourceName {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ResourceError {
    #[prost(message, optional, tag = "1")]
    pub resource_name: Option<ResourceName>,
    #[prost(message, optional, tag = "2")]
    pub error_detail: Option<Status>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Status {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Cluster {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "3")]
    pub eds_cluster_config: Option<EdsClusterConfig>,
    #[prost(oneof = "ClusterDiscoveryType", tags = "2, 38")]
    pub cluster_discovery_type: Option<ClusterDiscoveryType>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum ClusterDiscoveryType {
    #[prost(int32, tag = "2")]
    Type(i32),
    #[prost(message, tag = "38")]
    ClusterType(()),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct EdsClusterConfig {
    #[prost(message, optional, tag = "1")]
    pub eds_config: Option<ConfigSource>,
    #[prost(string, tag = "2")]
    pub service_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ConfigSource {
    #[prost(oneof = "ConfigSourceSpecifier", tags = "1, 8, 2, 3, 5")]
    pub config_source_specifier: Option<ConfigSourceSpecifier>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum ConfigSourceSpecifier {
    #[prost(string, tag = "1")]
    Path(String),
    #[prost(message, tag = "8")]
    PathConfigSource(()),
    #[prost(message, tag = "2")]
    ApiConfigSource(()),
    #[prost(message, tag = "3")]
    Ads(()),
    #[prost(message, tag = "5")]
    OwnServer(()),
}

/// A `ClusterLoadAssignment`, without its `endpoints` (2).
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ClusterLoadAssignment {
    #[prost(string, tag = "1")]
    pub cluster_name: String,
}

/// A `LocalityLbEndpoints`, without its `lb_endpoints` (2).
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LocalityLbEndpoints {
    #[prost(message, optional, tag = "1")]
    pub locality: Option<Locality>,
    #[prost(message, optional, tag = "3")]
    pub load_balancing_weight: Option<u32>,
    #[prost(uint32, tag = "5")]
    pub priority: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Locality {
    #[prost(string, tag = "1")]
    pub region: String,
    #[prost(string, tag = "2")]
    pub zone: String,
    #[prost(string, tag = "3")]
    pub sub_zone: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LbEndpoint {
    #[prost(int32, tag = "2")]
    pub health_status: i32,
    #[prost(message, optional, tag = "4")]
    pub load_balancing_weight: Option<u32>,
    #[prost(oneof = "HostIdentifier", tags = "1, 5")]
    pub host_identifier: Option<HostIdentifier>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum HostIdentifier {
    #[prost(message, tag = "1")]
    Endpoint(Endpoint),
    #[prost(string, tag = "5")]
    EndpointName(String),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Endpoint {
    #[prost(message, optional, tag = "1")]
    pub address: Option<Address>,
    #[prost(message, repeated, tag = "4")]
    pub additional_addresses: Vec<AdditionalAddress>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AdditionalAddress {
    #[prost(message, optional, tag = "1")]
    pub address: Option<Address>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Address {
    #[prost(oneof = "SpecificAddress", tags = "1, 2, 3")]
    pub address: Option<SpecificAddress>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum SpecificAddress {
    #[prost(message, tag = "1")]
    SocketAddress(SocketAddress),
    #[prost(message, tag = "2")]
    Pipe(()),
    #[prost(message, tag = "3")]
    EnvoyInternalAddress(()),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SocketAddress {
    #[prost(int32, tag = "1")]
    pub protocol: i32,
    #[prost(string, tag = "2")]
    pub address: String,
    #[prost(oneof = "PortSpecifier", tags = "3, 4")]
    pub port_specifier: Option<PortSpecifier>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum PortSpecifier {
    #[prost(uint32, tag = "3")]
    PortValue(u32),
    #[prost(string, tag = "4")]
    NamedPort(String),
}

/// A message is not in the wire format of protobuf.
#[derive(Debug)]
pub(super) struct Malformed;

/// Iterates over the values of the field with this number. The field must be of a type with a length.
pub(super) fn each(message: &[u8], number: usize) -> impl Iterator<Item = Result<&[u8], Malformed>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            match next_field(&mut rest) {
                Ok((found, value)) if found == number => return Some(value.ok_or(Malformed)),
                Ok(_) => {}
                Err(malformed) => {
                    rest = &[];
                    return Some(Err(malformed));
                }
            }
        }
        None
    })
}

/// Removes the first field from a message. Returns its number, and its value if it has a length.
fn next_field<'a>(rest: &mut &'a [u8]) -> Result<(usize, Option<&'a [u8]>), Malformed> {
    let number = |rest: &mut &'a [u8]| prost::decode_length_delimiter(rest).map_err(|_| Malformed);
    let key = number(rest)?;
    let length = match key & 7 {
        0 => {
            number(rest)?;
            0
        }
        1 => 8,
        2 => number(rest)?,
        5 => 4,
        // The start and the end of a group have no value.
        3 | 4 => 0,
        _ => return Err(Malformed),
    };
    let (value, tail) = rest.split_at_checked(length).ok_or(Malformed)?;
    *rest = tail;
    Ok((key >> 3, (key & 7 == 2).then_some(value)))
}
