//! The state of a control plane in its owner task: resources, connections, requests.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use prost::Message;
use prost::bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tonic::Status;

use super::journal::{RecordedRequest, Streams};
use super::resources::Kind;
use super::serving;
use super::stream::{Catalogue, Never, Stream};
use super::stream_behaviour::{Ending, StreamBehaviour};
use crate::owner::{Model, Owner};

/// The state of a control plane.
pub(super) struct Plane {
    pub(super) catalogue: Catalogue,
    pub(super) journal: Vec<RecordedRequest>,
    pub(super) wraps: bool,
    pub(super) repeats: bool,
    pub(super) repeats_accepted: bool,
    pub(super) trusts: bool,
    pub(super) holds: bool,
    behaviour: StreamBehaviour,
    streams: BTreeMap<u64, Stream>,
    stream_counts: Streams,
    /// Number of responses since the last restart, for nonces.
    responses: u64,
    listening: Option<JoinHandle<()>>,
    connections: JoinSet<()>,
    frozen: watch::Sender<bool>,
    revision: u64,
}

/// An accepted stream.
pub(super) struct Opened {
    /// Its number.
    pub(super) stream: u64,
    /// True if its headers are sent with its first message.
    pub(super) holds: bool,
}

impl Plane {
    pub(super) fn new() -> Self {
        Self {
            catalogue: Catalogue::default(),
            journal: Vec::new(),
            wraps: false,
            repeats: false,
            repeats_accepted: false,
            trusts: false,
            holds: false,
            behaviour: StreamBehaviour::default(),
            streams: BTreeMap::new(),
            stream_counts: Streams::default(),
            responses: 0,
            listening: None,
            connections: JoinSet::new(),
            frozen: watch::Sender::new(false),
            revision: 0,
        }
    }

    pub(super) fn listen(&mut self, listening: JoinHandle<()>) {
        self.listening = Some(listening);
    }

    /// Returns the listener and the connections, so that the caller can wait for their end.
    pub(super) fn stop(&mut self) -> (Option<JoinHandle<()>>, JoinSet<()>) {
        (self.listening.take(), std::mem::take(&mut self.connections))
    }

    /// Removes the streams of ended connections. Removing them earlier would end them cleanly.
    pub(super) fn forget_streams(&mut self) {
        self.streams.clear();
        self.revision += 1;
    }

    /// Ends listener and connections without waiting for their end.
    pub(super) fn close(&mut self) {
        let (listening, mut connections) = self.stop();
        if let Some(listening) = listening {
            listening.abort();
        }
        connections.abort_all();
    }

    /// Resets versions and nonces.
    pub(super) fn forget_versions(&mut self) {
        self.catalogue.forget_versions();
        self.responses = 0;
    }

    /// Serves a connection; false if it is stopped.
    pub(super) fn connect<IO>(&mut self, io: IO, tls: Option<TlsAcceptor>, owner: Owner<Self>) -> bool
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if self.listening.is_none() {
            return false;
        }
        // Remove ended connections.
        while self.connections.try_join_next().is_some() {}
        self.connections.spawn(serving::serve(io, tls, owner, self.frozen.subscribe()));
        self.stream_counts.connections += 1;
        self.revision += 1;
        true
    }

    pub(super) fn freeze(&mut self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    /// Accepts a new stream, or returns the status of its refusal.
    pub(super) fn open(
        &mut self,
        authorization: Option<String>,
        replies: mpsc::UnboundedSender<Result<Bytes, Status>>,
        open: oneshot::Sender<Never>,
        now_us: u64,
    ) -> Result<Opened, Status> {
        self.stream_counts.opened_us.push(now_us);
        self.revision += 1;
        if let StreamBehaviour::Refuses(status) = &self.behaviour {
            return Err(status.clone());
        }
        let stream = self.stream_counts.opened_us.len() as u64;
        self.streams.insert(stream, Stream::new(replies, open, authorization));
        Ok(Opened { stream, holds: self.holds })
    }

    /// Handles a request on a stream.
    pub(super) fn on_request(&mut self, number: u64, bytes: &Bytes, now_us: u64) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        self.revision += 1;
        let Ok(request) = DiscoveryRequest::decode(bytes.clone()) else {
            let status = Status::invalid_argument("the message is no DiscoveryRequest");
            self.end(number, &Ending::Status(status));
            return;
        };
        let kind = Kind::of_type_url(&request.type_url);
        let stale = stream.is_stale(kind, &request.response_nonce);
        let authorization = stream.authorization.clone();
        self.journal.push(RecordedRequest::new(request.clone(), number, now_us, authorization, stale));
        if let Some(kind) = kind {
            stream.on_request(kind, &request, &self.catalogue, self.trusts);
        }
        let answered = stream.answered;
        match &self.behaviour {
            StreamBehaviour::Answers | StreamBehaviour::Refuses(_) => self.answer(number, &request),
            StreamBehaviour::Silent => {}
            StreamBehaviour::EndsStreams(_) if answered => self.answer(number, &request),
            StreamBehaviour::EndsStreams(ending) => {
                let ending = ending.clone();
                self.end(number, &ending);
            }
        }
    }

    /// Handles the end of a stream by the client.
    pub(super) fn ended(&mut self, stream: u64) {
        self.streams.remove(&stream);
        self.revision += 1;
    }

    pub(super) fn behave(&mut self, behaviour: StreamBehaviour) {
        self.behaviour = behaviour;
        for kind in Kind::ALL {
            self.push(kind);
        }
    }

    /// Sends the pending resources of a kind to every stream.
    pub(super) fn push(&mut self, kind: Kind) {
        match self.behaviour {
            StreamBehaviour::Answers | StreamBehaviour::EndsStreams(_) | StreamBehaviour::Refuses(_) => {}
            StreamBehaviour::Silent => return,
        }
        for stream in self.streams.values_mut() {
            if let Some(response) = stream.pending_response(kind, &self.catalogue, self.wraps) {
                stream.send(numbered(response, &mut self.responses));
            }
        }
    }

    /// Ends all streams now.
    pub(super) fn cut(&mut self, ending: &Ending) -> usize {
        let numbers: Vec<u64> = self.streams.keys().copied().collect();
        for number in &numbers {
            self.end(*number, ending);
        }
        numbers.len()
    }

    pub(super) fn send_bytes(&mut self, bytes: &Bytes) -> usize {
        self.streams.values_mut().for_each(|stream| stream.send_bytes(bytes.clone()));
        self.streams.len()
    }

    pub(super) fn send_to_all(&mut self, response: &DiscoveryResponse) -> usize {
        for stream in self.streams.values_mut() {
            let mut response = response.clone();
            if let Some(kind) = Kind::of_type_url(&response.type_url)
                && response.version_info.is_empty()
            {
                response.version_info = self.catalogue.version(kind);
            }
            if response.nonce.is_empty() {
                response = numbered(response, &mut self.responses);
            }
            stream.send(response);
        }
        self.streams.len()
    }

    /// Returns the counts of connections and streams.
    pub(super) fn stream_counts(&self) -> Streams {
        Streams { open: self.streams.len(), ..self.stream_counts.clone() }
    }

    fn answer(&mut self, number: u64, request: &DiscoveryRequest) {
        let Some(kind) = Kind::of_type_url(&request.type_url) else { return };
        let Some(stream) = self.streams.get_mut(&number) else { return };
        if let Some(response) = stream.pending_response(kind, &self.catalogue, self.wraps) {
            stream.send(numbered(response, &mut self.responses));
            return;
        }
        let repeats = if request.error_detail.is_some() { self.repeats } else { self.repeats_accepted };
        if let Some(answered) = stream.answered_by(kind, &request.response_nonce).filter(|_| repeats) {
            stream.send(numbered(answered, &mut self.responses));
        }
    }

    fn end(&mut self, number: u64, ending: &Ending) {
        self.revision += 1;
        let stream = match ending {
            // The readers of their streams report their ends.
            Ending::Connections => return self.connections.abort_all(),
            Ending::Cleanly | Ending::Status(_) => self.streams.remove(&number),
        };
        if let (Ending::Status(status), Some(stream)) = (ending, stream) {
            stream.refuse(status.clone());
        }
    }
}

/// Sets the next nonce of a response.
fn numbered(mut response: DiscoveryResponse, responses: &mut u64) -> DiscoveryResponse {
    *responses += 1;
    response.nonce = responses.to_string();
    response
}

impl Model for Plane {
    fn revision(&self) -> u64 {
        self.revision
    }

    fn deadline(&self) -> Option<u64> {
        None
    }

    fn tick(&mut self, _now_us: u64) {}
}
