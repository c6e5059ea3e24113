//! Decodes the bytes of a `DiscoveryResponse` into plain facts. It does not validate: each undecodable resource gets
//! an error, and everything else is taken unchanged.
//!
//! Texts for operators are made safe here (C1); names, versions and nonces stay unchanged.

mod assignment;
mod messages;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use model::redact;
use model::xds::facts::{
    Body, ClusterFacts, EdsFacts, EdsSource, Raw, Received, ReportedError, ResourceKind, Response,
};
use prost::Message;

use assignment::SizeBudget;
use messages::{
    Any, Cluster, ClusterDiscoveryType, ConfigSource, ConfigSourceSpecifier, DiscoveryResponse,
    EdsClusterConfig, Malformed, Resource, ResourceError, each,
};

/// Maximum length of a text for operators from a control plane, in bytes.
pub(crate) const MAX_WORDS: usize = 1024;

/// Maximum length of the version and of the nonce of a response, in bytes: the request repeats both.
pub(crate) const MAX_VERSION: usize = 64 << 10;

/// Maximum number of resources that are decoded per response.
pub(crate) const MAX_RESOURCES: usize = 10_000;

/// Maximum number of errors that are decoded per response (TP3).
pub(crate) const MAX_ERRORS: usize = 10_000;

/// The type URL of the wrapper in which a resource may come.
const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";

/// Reasons why a message is not a `DiscoveryResponse` that can be answered.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The message is not valid protobuf.
    #[error(
        "message is not a DiscoveryResponse: check that the server speaks xDS v3 over an aggregated stream"
    )]
    Protobuf {
        /// The error of the decoder.
        source: prost::DecodeError,
    },
    /// One of its fields has another type.
    #[error("message is not a DiscoveryResponse: resources or resource_errors are of another type")]
    Malformed,
    /// The reply would be too large.
    #[error("version_info or nonce of a DiscoveryResponse is longer than {MAX_VERSION} bytes: shorten it")]
    TooLong,
}

/// Decodes a `DiscoveryResponse`. Each resource has its own decoding error. A bounded number of nested messages is
/// decoded, and the rest is only counted.
///
/// # Errors
/// The bytes are not a `DiscoveryResponse` that can be answered.
pub fn response(bytes: &[u8]) -> Result<Response, DecodeError> {
    let message = DiscoveryResponse::decode(bytes).map_err(|source| DecodeError::Protobuf { source })?;
    if message.version_info.len().max(message.nonce.len()) > MAX_VERSION {
        return Err(DecodeError::TooLong);
    }
    if each(bytes, 2).chain(each(bytes, 7)).any(|field| field.is_err()) {
        return Err(DecodeError::Malformed);
    }
    let mut room = SizeBudget::default();
    let resources = each(bytes, 2).flatten().take(MAX_RESOURCES);
    let errors = each(bytes, 7).flatten().take(MAX_ERRORS);
    Ok(Response {
        type_url: message.type_url,
        version: message.version_info,
        nonce: message.nonce,
        resources: resources.map(|resource| received(resource, &mut room)).collect(),
        errors: errors.map(reported).collect(),
        excess: excess(bytes),
    })
}

/// Describes the resources and errors beyond the limits; `None` if there are none.
fn excess(bytes: &[u8]) -> Option<String> {
    let beyond = |number, most, what: &str| {
        let count = each(bytes, number).count();
        (count > most).then(|| format!("{what}: are {count}, and only the first {most} are read: send fewer"))
    };
    let found = [beyond(2, MAX_RESOURCES, "resources"), beyond(7, MAX_ERRORS, "resource_errors")].into_iter();
    found.flatten().reduce(|one, other| format!("{one}; {other}"))
}

/// An `Any` within the response.
struct Part<'a> {
    type_url: String,
    value: &'a [u8],
}

impl<'a> Part<'a> {
    /// Returns the `Any` in the field with this number, or `None`. A repeated field is merged into one message.
    fn in_field(message: &'a [u8], number: usize) -> Result<Option<Part<'a>>, String> {
        let mut found = None;
        for any in each(message, number) {
            let (mut head, value) = found.take().unwrap_or((Any::default(), [].as_slice()));
            let any = any.map_err(malformed)?;
            head.merge(any).map_err(|error| reason(&error))?;
            found = Some((head, value_of(any)?.unwrap_or(value)));
        }
        Ok(found.map(|(head, value)| Part { type_url: head.type_url, value }))
    }

    fn of(any: &'a [u8]) -> Result<Part<'a>, String> {
        let head = Any::decode(any).map_err(|error| reason(&error))?;
        Ok(Part { type_url: head.type_url, value: value_of(any)?.unwrap_or_default() })
    }

    fn raw(&self) -> Raw {
        Raw { type_url: Arc::from(self.type_url.as_str()), bytes: Arc::from(self.value) }
    }
}

/// Returns the value of an `Any`; the last of several counts.
fn value_of(any: &[u8]) -> Result<Option<&[u8]>, String> {
    each(any, 2).last().transpose().map_err(malformed)
}

fn malformed(_: Malformed) -> String {
    "a field is malformed".to_owned()
}

/// Decodes one resource, without its wrapper. A wrapper in a wrapper is invalid.
fn received(any: &[u8], room: &mut SizeBudget) -> Received {
    let part = match Part::of(any) {
        Ok(part) => part,
        Err(reason) => {
            let raw = Raw { type_url: Arc::default(), bytes: Arc::from(any) };
            return Received { raw, wrapper: None, body: Err(reason) };
        }
    };
    if part.type_url != WRAPPER {
        return unwrapped(&part, None, room);
    }
    let resource = match Resource::decode(part.value) {
        Ok(resource) => resource,
        Err(error) => {
            return Received { raw: part.raw(), wrapper: Some(String::new()), body: Err(reason(&error)) };
        }
    };
    let Resource { name, resource_name } = resource;
    // The name is in one of two fields, depending on parameters.
    let name = if name.is_empty() { resource_name.map(|full| full.name).unwrap_or_default() } else { name };
    match Part::in_field(part.value, 2) {
        Ok(Some(inner)) => unwrapped(&inner, Some(name), room),
        Ok(None) => Received {
            raw: part.raw(),
            wrapper: Some(name),
            body: Err("the wrapper has no resource in it".to_owned()),
        },
        Err(reason) => Received { raw: part.raw(), wrapper: Some(name), body: Err(reason) },
    }
}

fn unwrapped(part: &Part<'_>, wrapper: Option<String>, room: &mut SizeBudget) -> Received {
    Received { raw: part.raw(), wrapper, body: body(part, room) }
}

fn body(part: &Part<'_>, room: &mut SizeBudget) -> Result<Body, String> {
    match ResourceKind::of_type_url(&part.type_url) {
        Some(ResourceKind::Cluster) => Cluster::decode(part.value)
            .map(|message| Body::Cluster(cluster_facts(message)))
            .map_err(|e| reason(&e)),
        Some(ResourceKind::Endpoints) => assignment::read(part.value, room),
        None => Ok(Body::Other(part.type_url.clone())),
    }
}

fn reason(error: &prost::DecodeError) -> String {
    redact::safe_line(&error.to_string(), &[], MAX_WORDS)
}

fn reported(error: &[u8]) -> ReportedError {
    // An undecodable error names no resource, and is rejected for that reason.
    let ResourceError { resource_name, error_detail } = ResourceError::decode(error).unwrap_or_default();
    let (code, message) = match error_detail {
        Some(status) => (Some(status.code), redact::safe_line(&status.message, &[], MAX_WORDS)),
        None => (None, String::new()),
    };
    ReportedError { name: resource_name.map(|name| name.name), code, message }
}

fn cluster_facts(message: Cluster) -> ClusterFacts {
    let discovery = match message.cluster_discovery_type {
        Some(ClusterDiscoveryType::Type(number)) => Some(number),
        Some(ClusterDiscoveryType::ClusterType(())) => None,
        // In proto3, a number that is not set is zero.
        None => Some(0),
    };
    ClusterFacts { name: message.name, discovery, eds: message.eds_cluster_config.map(eds_facts) }
}

fn eds_facts(message: EdsClusterConfig) -> EdsFacts {
    EdsFacts { service_name: message.service_name, source: eds_source(message.eds_config) }
}

fn eds_source(source: Option<ConfigSource>) -> EdsSource {
    match source.and_then(|source| source.config_source_specifier) {
        Some(ConfigSourceSpecifier::Ads(())) => EdsSource::Ads,
        Some(ConfigSourceSpecifier::OwnServer(())) => EdsSource::SameServer,
        Some(
            ConfigSourceSpecifier::Path(_)
            | ConfigSourceSpecifier::PathConfigSource(())
            | ConfigSourceSpecifier::ApiConfigSource(()),
        )
        | None => EdsSource::Other,
    }
}
