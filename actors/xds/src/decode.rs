//! From the bytes of a `DiscoveryResponse` to plain facts. It judges nothing: what cannot be decoded is said to be so,
//! resource by resource, and everything else is taken as it is.
//!
//! Texts for people are made safe to repeat here, where they come in (C1); names, versions and nonces are what they
//! are.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use envoy_types::pb::envoy::config::cluster::v3::{self as cluster, Cluster, cluster::ClusterDiscoveryType};
use envoy_types::pb::envoy::config::core::v3::address::Address as Specific;
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{self as core, ConfigSource};
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints};
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryResponse, Resource, ResourceError};
use envoy_types::pb::google::protobuf::Any;
use pool_core::redact;
use pool_core::xds::facts::{
    AddressFacts, AssignmentFacts, Body, ClusterFacts, EdsFacts, EdsSource, EndpointFacts, Kind, Locality,
    LocalityFacts, Raw, Received, Reported, Response,
};
use prost::Message;

/// The longest text for people that is taken from a control plane, in bytes.
pub(crate) const LONGEST_WORDS: usize = 1024;

/// The type URL of the wrapper in which a resource may come.
const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";

/// That a message is no `DiscoveryResponse`.
#[derive(Debug, thiserror::Error)]
#[error("message is no DiscoveryResponse: check that the server speaks xDS v3 over an aggregated stream")]
pub struct DecodeError {
    /// What protobuf says.
    source: prost::DecodeError,
}

/// Decodes a `DiscoveryResponse`. What cannot be decoded of its resources is in them.
///
/// # Errors
/// The bytes are no `DiscoveryResponse`.
pub fn response(bytes: &[u8]) -> Result<Response, DecodeError> {
    let message = DiscoveryResponse::decode(bytes).map_err(|source| DecodeError { source })?;
    Ok(Response {
        type_url: message.type_url,
        version: message.version_info,
        nonce: message.nonce,
        resources: message.resources.into_iter().map(received).collect(),
        errors: message.resource_errors.into_iter().map(reported).collect(),
    })
}

/// One resource, out of its wrapper. A wrapper in a wrapper is none.
fn received(any: Any) -> Received {
    if any.type_url != WRAPPER {
        return unwrapped(any, None);
    }
    let resource = match Resource::decode(any.value.as_slice()) {
        Ok(resource) => resource,
        Err(error) => {
            return Received { raw: raw(any), wrapper: Some(String::new()), body: Err(why(&error)) };
        }
    };
    let Resource { name, resource_name, resource, .. } = resource;
    // The name is in one of two fields, by whether it has parameters.
    let name = if name.is_empty() { resource_name.map(|full| full.name).unwrap_or_default() } else { name };
    match resource {
        Some(inner) => unwrapped(inner, Some(name)),
        None => Received {
            raw: raw(any),
            wrapper: Some(name),
            body: Err("the wrapper has no resource in it".to_owned()),
        },
    }
}

fn unwrapped(any: Any, wrapper: Option<String>) -> Received {
    let body = body(&any);
    Received { raw: raw(any), wrapper, body }
}

fn raw(any: Any) -> Raw {
    Raw { type_url: Arc::from(any.type_url), bytes: Arc::from(any.value) }
}

fn body(any: &Any) -> Result<Body, String> {
    let bytes = any.value.as_slice();
    match Kind::of_type_url(&any.type_url) {
        Some(Kind::Cluster) => {
            Cluster::decode(bytes).map(|message| Body::Cluster(cluster_facts(message))).map_err(|e| why(&e))
        }
        Some(Kind::Endpoints) => ClusterLoadAssignment::decode(bytes)
            .map(|message| Body::Endpoints(assignment_facts(message)))
            .map_err(|error| why(&error)),
        None => Ok(Body::Other(any.type_url.clone())),
    }
}

fn why(error: &prost::DecodeError) -> String {
    redact::told(&error.to_string(), &[], LONGEST_WORDS)
}

fn reported(error: ResourceError) -> Reported {
    let (code, message) = match error.error_detail {
        Some(status) => (Some(status.code), redact::told(&status.message, &[], LONGEST_WORDS)),
        None => (None, String::new()),
    };
    Reported { name: error.resource_name.map(|name| name.name), code, message }
}

fn cluster_facts(message: Cluster) -> ClusterFacts {
    let discovery = match message.cluster_discovery_type {
        Some(ClusterDiscoveryType::Type(number)) => Some(number),
        Some(ClusterDiscoveryType::ClusterType(_)) => None,
        // As proto3 has it: a number that is not set is zero.
        None => Some(0),
    };
    ClusterFacts { name: message.name, discovery, eds: message.eds_cluster_config.map(eds_facts) }
}

fn eds_facts(message: cluster::cluster::EdsClusterConfig) -> EdsFacts {
    EdsFacts { service_name: message.service_name, source: eds_source(message.eds_config) }
}

#[expect(deprecated, reason = "a path may still come in its old field")]
fn eds_source(source: Option<ConfigSource>) -> EdsSource {
    match source.and_then(|source| source.config_source_specifier) {
        Some(ConfigSourceSpecifier::Ads(_)) => EdsSource::Ads,
        Some(ConfigSourceSpecifier::Self_(_)) => EdsSource::SameServer,
        Some(
            ConfigSourceSpecifier::Path(_)
            | ConfigSourceSpecifier::PathConfigSource(_)
            | ConfigSourceSpecifier::ApiConfigSource(_),
        )
        | None => EdsSource::Other,
    }
}

fn assignment_facts(message: ClusterLoadAssignment) -> AssignmentFacts {
    let localities = message.endpoints.into_iter().map(locality_facts).collect();
    AssignmentFacts { cluster_name: message.cluster_name, localities }
}

fn locality_facts(message: LocalityLbEndpoints) -> LocalityFacts {
    let locality = message.locality.map(|locality| {
        let core::Locality { region, zone, sub_zone } = locality;
        Locality { region, zone, sub_zone }
    });
    LocalityFacts {
        locality,
        weight: message.load_balancing_weight.map(|weight| weight.value),
        priority: message.priority,
        endpoints: message.lb_endpoints.into_iter().map(endpoint_facts).collect(),
    }
}

/// A named endpoint has its address elsewhere, and not for us.
fn endpoint_facts(message: LbEndpoint) -> EndpointFacts {
    let (address, additional) = match message.host_identifier {
        Some(HostIdentifier::Endpoint(endpoint)) => {
            let additional = endpoint.additional_addresses.into_iter();
            (address_facts(endpoint.address), additional.map(|more| address_facts(more.address)).collect())
        }
        Some(HostIdentifier::EndpointName(_)) | None => (AddressFacts::Missing, Vec::new()),
    };
    let weight = message.load_balancing_weight.map(|weight| weight.value);
    EndpointFacts { address, additional, health: message.health_status, weight }
}

fn address_facts(address: Option<core::Address>) -> AddressFacts {
    match address.and_then(|address| address.address) {
        Some(Specific::SocketAddress(socket)) => {
            let port = match socket.port_specifier {
                Some(PortSpecifier::PortValue(number)) => Some(number),
                Some(PortSpecifier::NamedPort(_)) | None => None,
            };
            AddressFacts::Socket { address: socket.address, port, protocol: socket.protocol }
        }
        Some(Specific::Pipe(_)) => AddressFacts::Pipe,
        Some(Specific::EnvoyInternalAddress(_)) => AddressFacts::Internal,
        None => AddressFacts::Missing,
    }
}
