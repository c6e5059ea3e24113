//! What one stream has subscribed to, what it was told, and so what is due to it.

use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::envoy::service::discovery::v3::{
    DiscoveryRequest, DiscoveryResponse, Resource, ResourceError, ResourceName,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::google::rpc;
use prost::Message;
use prost::bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use super::catalogue::{Catalogue, Found};
use super::resources::Kind;

const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";

/// Never said: the end of its sender is the message.
pub(super) enum Never {}

/// One open stream.
pub(super) struct Stream {
    replies: mpsc::UnboundedSender<Result<Bytes, Status>>,
    /// The reader of requests ends with it.
    _open: oneshot::Sender<Never>,
    /// Its metadata `authorization`.
    pub(super) authorization: Option<String>,
    /// Whether a message was sent on it.
    pub(super) answered: bool,
    subscriptions: BTreeMap<Kind, Subscription>,
}

/// What a stream has subscribed to of one kind.
#[derive(Default)]
struct Subscription {
    names: BTreeSet<String>,
    /// The change that the stream knows of each name; 0 if it knows that there is nothing.
    told: BTreeMap<String, u64>,
    /// The nonce of the last response; empty before the first.
    nonce: String,
    last: Option<DiscoveryResponse>,
}

impl Stream {
    pub(super) fn new(
        replies: mpsc::UnboundedSender<Result<Bytes, Status>>,
        open: oneshot::Sender<Never>,
        authorization: Option<String>,
    ) -> Self {
        Self { replies, _open: open, authorization, answered: false, subscriptions: BTreeMap::new() }
    }

    /// Whether a request answers another response than the last one of its kind.
    pub(super) fn is_stale(&self, kind: Option<Kind>, nonce: &str) -> bool {
        let last = kind.and_then(|kind| self.subscriptions.get(&kind)).map_or("", |known| &known.nonce);
        !nonce.is_empty() && nonce != last
    }

    /// Takes the names of a request that is to be heeded: one that is not stale, or the first of its kind.
    pub(super) fn take(
        &mut self,
        kind: Kind,
        request: &DiscoveryRequest,
        catalogue: &Catalogue,
        trusts: bool,
    ) {
        let is_first = !self.subscriptions.contains_key(&kind);
        let stale = self.is_stale(Some(kind), &request.response_nonce);
        if stale && !is_first {
            return;
        }
        let subscription = self.subscriptions.entry(kind).or_default();
        subscription.names = request.resource_names.iter().cloned().collect();
        // What is subscribed to once more later is sent once more.
        subscription.told.retain(|name, _| subscription.names.contains(name));
        if is_first && trusts && request.version_info == catalogue.version(kind) {
            let told = |name: &String| (name.clone(), catalogue.find(kind, name).0);
            subscription.told = subscription.names.iter().map(told).collect();
        }
    }

    /// The response that is due to this stream, without its nonce; it counts as told.
    pub(super) fn due(
        &mut self,
        kind: Kind,
        catalogue: &Catalogue,
        wraps: bool,
    ) -> Option<DiscoveryResponse> {
        let Subscription { names, told, .. } = self.subscriptions.get_mut(&kind)?;
        let version = catalogue.version(kind);
        let (mut resources, mut errors, mut any_news) = (Vec::new(), Vec::new(), false);
        for name in &*names {
            let (change, found) = catalogue.find(kind, name);
            let is_news = told.insert(name.clone(), change) != Some(change);
            any_news |= is_news;
            let said_again = match kind {
                Kind::Clusters => true,
                Kind::Endpoints => false,
            };
            match found {
                Found::Resource(resource) if is_news || said_again => {
                    resources.push(if wraps { wrapped(name, &version, resource) } else { resource.clone() });
                }
                Found::Error(error) if is_news => errors.push(ResourceError {
                    resource_name: Some(ResourceName { name: name.clone(), ..ResourceName::default() }),
                    error_detail: Some(rpc::Status {
                        code: error.code.into(),
                        message: error.message.clone(),
                        details: Vec::new(),
                    }),
                }),
                Found::Resource(_) | Found::Error(_) | Found::Nothing => {}
            }
        }
        let is_due = match kind {
            // What a response of clusters does not name is not there, and so even an empty one says something.
            Kind::Clusters => any_news,
            Kind::Endpoints => !resources.is_empty() || !errors.is_empty(),
        };
        is_due.then(|| DiscoveryResponse {
            version_info: version,
            resources,
            type_url: kind.type_url().to_owned(),
            resource_errors: errors,
            ..DiscoveryResponse::default()
        })
    }

    /// The last response of a kind, if this nonce is its.
    pub(super) fn refused(&self, kind: Kind, nonce: &str) -> Option<DiscoveryResponse> {
        let subscription = self.subscriptions.get(&kind)?;
        subscription.last.clone().filter(|last| last.nonce == nonce)
    }

    /// Sends a response and remembers its nonce.
    pub(super) fn send(&mut self, response: DiscoveryResponse) {
        self.send_bytes(response.encode_to_vec().into());
        let kind = Kind::of_type_url(&response.type_url);
        if let Some(subscription) = kind.and_then(|kind| self.subscriptions.get_mut(&kind)) {
            subscription.nonce.clone_from(&response.nonce);
            subscription.last = Some(response);
        }
    }

    /// Sends these bytes as one message.
    pub(super) fn send_bytes(&mut self, bytes: Bytes) {
        self.answered = true;
        self.put(Ok(bytes));
    }

    /// Ends it with a status.
    pub(super) fn refuse(&self, status: Status) {
        self.put(Err(status));
    }

    fn put(&self, reply: Result<Bytes, Status>) {
        // A client that has gone misses it; the reader of its requests tells so.
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
