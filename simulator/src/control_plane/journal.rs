//! Recorded requests of clients, as values for tests and as text for operators.

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
    /// Arrival time, in microseconds since the first start of the control plane.
    pub at_us: u64,
    /// Number of the stream, counted from 1, across restarts.
    pub stream: u64,
    /// Type URL, as the client sent it.
    pub type_url: String,
    /// The version that the client claims; empty if none.
    pub version_info: String,
    /// The nonce of the answered response; empty if none.
    pub response_nonce: String,
    /// Names of the subscription, in the client's order.
    pub names: Vec<String>,
    /// Error of a rejected response.
    pub error: Option<Refusal>,
    /// Identity of the client; clients send it only in the first request of a stream.
    pub node: Option<Client>,
    /// The metadata `authorization` of the stream.
    pub authorization: Option<String>,
    /// True if the nonce is not that of the last response of this type on the stream: the request is ignored, unless it
    /// is the first of its type there.
    pub stale: bool,
}

/// A gRPC status: a client's `error_detail`, or a per-resource error (xRFC TP3).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// The gRPC code.
    pub code: Code,
    /// The message.
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
    /// `client_features`, in the client's order.
    pub features: Vec<String>,
}

/// Counts of connections and streams, across restarts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Streams {
    /// Number of accepted connections.
    pub connections: u64,
    /// Opening time of each stream, including rejected ones, in microseconds since the first start of the control
    /// plane.
    pub opened_us: Vec<u64>,
    /// Number of open streams.
    pub open: usize,
}

/// The awaited condition did not occur in time. Display lists the journal.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the condition did not hold within {} s; {} connections, {} streams of which {} are open; {}",
    timeout.as_secs(), streams.connections, streams.opened_us.len(), streams.open, format_journal(journal)
)]
pub struct WaitTimeout {
    /// Time limit of the wait.
    pub timeout: Duration,
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

    /// Returns whether this request is an ACK.
    #[must_use]
    pub fn is_ack(&self) -> bool {
        !self.response_nonce.is_empty() && self.error.is_none()
    }

    /// Returns whether this request rejects a response or a part of it.
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

fn format_journal(journal: &[RecordedRequest]) -> String {
    if journal.is_empty() {
        return "no request was received".to_owned();
    }
    journal.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
