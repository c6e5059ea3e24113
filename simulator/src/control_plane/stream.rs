//! Encodes and sends the pending responses of one stream.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::service::discovery::v3::{
    DiscoveryRequest, DiscoveryResponse, Resource, ResourceError, ResourceName,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::google::rpc;
use prost::Message;
use prost::bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use simulator_models::control_plane::{self as model, PendingResponse, Subscriptions};

use super::journal::Refusal;
use super::resources::Kind;

/// The served resources.
pub(super) type Catalogue = model::Catalogue<Any, Refusal>;

const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";

/// An empty type: only the drop of the sender is a signal.
pub(super) enum Never {}

/// One open stream.
pub(super) struct Stream {
    replies: mpsc::UnboundedSender<Result<Bytes, Status>>,
    /// Dropping it ends the reader of requests.
    _open: oneshot::Sender<Never>,
    /// Its metadata `authorization`.
    pub(super) authorization: Option<String>,
    /// True if a message was sent on it.
    pub(super) answered: bool,
    subscriptions: Subscriptions,
    /// The last response of each kind that was subscribed to.
    last: BTreeMap<Kind, DiscoveryResponse>,
}

impl Stream {
    pub(super) fn new(
        replies: mpsc::UnboundedSender<Result<Bytes, Status>>,
        open: oneshot::Sender<Never>,
        authorization: Option<String>,
    ) -> Self {
        let (subscriptions, last) = Default::default();
        Self { replies, _open: open, authorization, answered: false, subscriptions, last }
    }

    /// Returns whether a request has another nonce than the last response of its kind.
    pub(super) fn is_stale(&self, kind: Option<Kind>, nonce: &str) -> bool {
        self.subscriptions.is_stale(kind, nonce)
    }

    /// Records the names of a request that is not stale, or the first of its kind.
    pub(super) fn on_request(
        &mut self,
        kind: Kind,
        request: &DiscoveryRequest,
        catalogue: &Catalogue,
        trusts: bool,
    ) {
        let claims = (request.version_info.as_str(), request.response_nonce.as_str());
        self.subscriptions.on_request(kind, claims, &request.resource_names, catalogue, trusts);
    }

    /// Returns the pending response of this stream, without its nonce. It counts as sent.
    pub(super) fn pending_response(
        &mut self,
        kind: Kind,
        catalogue: &Catalogue,
        wraps: bool,
    ) -> Option<DiscoveryResponse> {
        let PendingResponse { version, resources, errors } =
            self.subscriptions.pending_response(kind, catalogue)?;
        let resource = |(name, resource): (String, Any)| {
            if wraps { wrapped(&name, &version, &resource) } else { resource }
        };
        let error = |(name, error): (String, Refusal)| ResourceError {
            resource_name: Some(ResourceName { name, ..ResourceName::default() }),
            error_detail: Some(rpc::Status {
                code: error.code.into(),
                message: error.message,
                details: Vec::new(),
            }),
        };
        Some(DiscoveryResponse {
            resources: resources.into_iter().map(resource).collect(),
            resource_errors: errors.into_iter().map(error).collect(),
            type_url: kind.type_url().to_owned(),
            version_info: version,
            ..DiscoveryResponse::default()
        })
    }

    /// Returns the last response of a kind, if it has this nonce.
    pub(super) fn answered_by(&self, kind: Kind, nonce: &str) -> Option<DiscoveryResponse> {
        self.last.get(&kind).filter(|_| self.subscriptions.is_last(kind, nonce)).cloned()
    }

    /// Sends a response and remembers its nonce.
    pub(super) fn send(&mut self, response: DiscoveryResponse) {
        self.send_bytes(response.encode_to_vec().into());
        if let Some(kind) = Kind::of_type_url(&response.type_url) {
            self.subscriptions.on_sent(kind, &response.nonce);
            self.last.insert(kind, response);
        }
    }

    /// Sends these bytes as one message.
    pub(super) fn send_bytes(&mut self, bytes: Bytes) {
        self.answered = true;
        self.put(Ok(bytes));
    }

    /// Ends the stream with a status.
    pub(super) fn refuse(&self, status: Status) {
        self.put(Err(status));
    }

    fn put(&self, reply: Result<Bytes, Status>) {
        // Fails only if the client has disconnected, which the reader of its requests reports.
        drop(self.replies.send(reply));
    }
}

fn wrapped(name: &str, version: &str, resource: &Any) -> Any {
    let wrapper = Resource {
        name: name.to_owned(),
        version: version.to_owned(),
        resource: Some(resource.clone()),
        ..Resource::default()
    };
    Any { type_url: WRAPPER.to_owned(), value: wrapper.encode_to_vec() }
}
