//! Recorded requests of clients, as values that tests can compare and as text for operators.

use std::fmt;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use tonic::Code;

use super::resources::Kind;

/// One request of a client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecordedRequest {
    /// Time at which it came, in microseconds since the control plane was first started.
    pub at_us: u64,
    /// On which stream; they are counted from 1, over restarts too.
    pub stream: u64,
    /// Type, as the client wrote it.
    pub type_url: String,
    /// The version that the client says it has; empty if none.
    pub version_info: String,
    /// The nonce of the response that it answers; empty if none.
    pub response_nonce: String,
    /// The names that it subscribes to, as the client ordered them.
    pub names: Vec<String>,
    /// Rejection of that response.
    pub error: Option<Refusal>,
    /// Identity of the client; clients send it only in the first request of a stream.
    pub node: Option<Client>,
    /// The metadata `authorization` of the stream.
    pub authorization: Option<String>,
    /// Its nonce is not that of the last response of its type on its stream: the request is not heeded, unless it is the
    /// first of its type there.
    pub stale: bool,
}

/// A code and what it is about: a client's `error_detail`, or an error of TP3.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// The code of gRPC.
    pub code: Code,
    /// The words that came with it.
    pub message: String,
}

/// Identity of a client: its `Node`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Client {
    /// `id`.
    pub id: String,
    /// `cluster`.
    pub cluster: String,
    /// `user_agent_name`.
    pub user_agent: String,
    /// `user_agent_version`; empty if it is unset or in parts.
    pub user_agent_version: String,
    /// `client_features`, as the client ordered them.
    pub features: Vec<String>,
}

/// Counts of connections and streams, over restarts too.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Streams {
    /// Number of accepted connections.
    pub connections: u64,
    /// When each stream was opened, refused ones included, in microseconds since the control plane was first started.
    pub opened_us: Vec<u64>,
    /// Number of open streams.
    pub open: usize,
}

/// What was awaited never came; in words, with the journal.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "nothing came within {} s; {} connections, {} streams of which {} are open; {}",
    patience.as_secs(), streams.connections, streams.opened_us.len(), streams.open, in_words(journal)
)]
pub struct NeverCame {
    /// Time for which it was awaited.
    pub patience: Duration,
    /// Connections and streams at the end.
    pub streams: Streams,
    /// The journal at the end.
    pub journal: Vec<RecordedRequest>,
}

impl RecordedRequest {
    pub(super) fn new(
        request: DiscoveryRequest,
        stream: u64,
        at_us: u64,
        authorization: Option<String>,
        stale: bool,
    ) -> Self {
        Self {
            at_us,
            stream,
            type_url: request.type_url,
            version_info: request.version_info,
            response_nonce: request.response_nonce,
            names: request.resource_names,
            error: request
                .error_detail
                .map(|status| Refusal { code: Code::from(status.code), message: status.message }),
            node: request.node.map(Client::from),
            authorization,
            stale,
        }
    }

    /// Returns the kind; `None` for types that the control plane does not have.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        Kind::of_type_url(&self.type_url)
    }

    /// Returns whether it takes a response as it came.
    #[must_use]
    pub fn is_ack(&self) -> bool {
        !self.response_nonce.is_empty() && self.error.is_none()
    }

    /// Returns whether it refuses a response or a part of it.
    #[must_use]
    pub fn is_nack(&self) -> bool {
        self.error.is_some()
    }
}

impl From<Node> for Client {
    fn from(node: Node) -> Self {
        let user_agent_version = match node.user_agent_version_type {
            Some(UserAgentVersionType::UserAgentVersion(version)) => version,
            Some(UserAgentVersionType::UserAgentBuildVersion(_)) | None => String::new(),
        };
        Self {
            id: node.id,
            cluster: node.cluster,
            user_agent: node.user_agent_name,
            user_agent_version,
            features: node.client_features,
        }
    }
}

impl fmt::Display for RecordedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let type_name = self.type_url.rsplit('.').next().unwrap_or_default();
        write!(f, "stream {} asks for {type_name} {:?}", self.stream, self.names)?;
        write!(f, " with version {:?} and nonce {:?}", self.version_info, self.response_nonce)?;
        if self.stale {
            write!(f, " (stale)")?;
        }
        if let Some(node) = &self.node {
            write!(f, " as node {:?}", node.id)?;
        }
        if let Some(Refusal { code, message }) = &self.error {
            write!(f, " and refuses with {code:?}: {message:?}")?;
        }
        Ok(())
    }
}

fn in_words(journal: &[RecordedRequest]) -> String {
    if journal.is_empty() {
        return "no request was received".to_owned();
    }
    journal.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
