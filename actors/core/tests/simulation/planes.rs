//! The control planes of the world: the servers, the resources that they serve, and how they treat streams (X2). This
//! model decides what to send to which client; the ports model connections and messages in flight.

use std::collections::BTreeMap;

use model::xds::cache::Policy;
use model::xds::facts::{Code, ReportedError, ResourceKind as RequestedKind, Response};
use model::xds::stream::{Server as Named, StreamEnd, StreamId, XdsRequest};
use simulator_models::control_plane::{Catalogue, Kind, PendingResponse, Subscriptions};

use crate::random::Random;
use crate::served::{ExpectedMembers, Served};
use content::Content;

#[path = "planes/content.rs"]
mod content;
#[path = "planes/story.rs"]
mod story;

/// Key of an open stream: its process, and its id there.
pub type StreamKey = (usize, StreamId);

/// Behaviour of a server towards streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamBehaviour {
    /// Answers normally.
    Answers,
    /// Accepts streams and requests and sends nothing.
    Silent,
    /// Refuses connections immediately.
    Refuses,
    /// Is unreachable, or accepts a connection and stays silent, which shows at the connect timeout.
    Hangs,
    /// Ends each stream at its first request.
    EndsStreams,
}

/// Message of a server on a stream.
#[derive(Clone, Debug)]
pub enum Sent {
    /// A response.
    Answer(Box<Answer>),
    /// The end of the stream.
    End(StreamEnd),
}

/// A response, and its contents in the world's own types.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The response as the driver passes it on.
    pub response: Response,
    /// Kind of its resources.
    pub kind: Kind,
    /// Its resources.
    pub resources: Vec<(String, Served)>,
    /// Resources with errors, and the codes.
    pub errors: Vec<(String, Code)>,
}

/// Messages and their streams.
pub type Sendings = Vec<(StreamKey, Sent)>;

/// Configuration of the servers of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// Number of servers.
    pub servers: usize,
    /// Features of each server (A88).
    pub policy: Policy,
}

impl Features {
    /// Returns the servers as a bootstrap names them.
    pub fn named(self) -> Vec<Named> {
        let named =
            |number: usize| Named { uri: format!("plane-{number}:18000").into(), policy: self.policy };
        (0..self.servers).map(named).collect()
    }
}

/// One server.
struct Server {
    catalogue: Catalogue<Served, Code>,
    streams: BTreeMap<StreamKey, Stream>,
    behaviour: StreamBehaviour,
    /// Responses since the last restart; nonces contain this number.
    responses: u64,
    /// True if resources have wrappers.
    wraps: bool,
    /// True if it believes a client that claims to have the current version.
    trusts: bool,
    /// True if it answers a NACK with the same response.
    repeats: bool,
    /// True if it accepts a stream immediately, and not only with its first response.
    accepts_streams: bool,
}

#[derive(Default)]
struct Stream {
    subscriptions: Subscriptions,
    last: BTreeMap<Kind, Answer>,
}

/// All control planes. They serve the same resources.
pub struct Planes {
    /// Configuration.
    pub features: Features,
    servers: Vec<Server>,
    content: Content,
    random: Random,
    /// True if changes follow each other quickly.
    lively: bool,
}

impl Planes {
    /// Creates control planes by the seed.
    pub fn new(mut random: Random) -> Planes {
        let policy =
            Policy { fail_on_data_errors: random.per_mille(300), timer_is_transient: random.per_mille(300) };
        let features = Features { servers: 1 + usize::from(random.per_mille(350)), policy };
        let server = |random: &mut Random| Server {
            catalogue: Catalogue::default(),
            streams: BTreeMap::new(),
            behaviour: StreamBehaviour::Answers,
            responses: 0,
            wraps: random.per_mille(500),
            trusts: random.per_mille(500),
            repeats: random.per_mille(300),
            accepts_streams: random.per_mille(500),
        };
        let servers = (0..features.servers).map(|_| server(&mut random)).collect();
        let content = Content::new(random.fork());
        let mut planes =
            Planes { features, servers, content, lively: random.per_mille(500), random: random.fork() };
        planes.begin();
        planes
    }

    /// Returns the expected members of the pool of this source and family; `None` if its source is missing or has an
    /// error.
    pub fn expected_members(&self, listed: &crate::served::Listed) -> Option<ExpectedMembers> {
        self.content.expected_members(listed)
    }

    /// Returns how a server treats streams now.
    pub fn reach(&self, server: usize) -> StreamBehaviour {
        self.servers.get(server).map_or(StreamBehaviour::Refuses, |server| server.behaviour)
    }

    /// Returns whether a server accepts a stream before it sends a response.
    pub fn accepts_streams(&self, server: usize) -> bool {
        self.servers.get(server).is_some_and(|server| server.accepts_streams)
    }

    /// Records that a process has opened a stream.
    pub fn open(&mut self, server: usize, key: StreamKey) {
        if let Some(server) = self.servers.get_mut(server) {
            server.streams.insert(key, Stream::default());
        }
    }

    /// Handles a request on a stream.
    pub fn on_request(&mut self, key: StreamKey, request: &XdsRequest) -> Sendings {
        let Some(server) = self.servers.iter_mut().find(|server| server.streams.contains_key(&key)) else {
            return Vec::new();
        };
        server.on_request(key, request).into_iter().map(|sent| (key, sent)).collect()
    }

    /// Records that a process has closed a stream.
    pub fn closed(&mut self, key: StreamKey) {
        self.servers.iter_mut().for_each(|server| drop(server.streams.remove(&key)));
    }

    /// Records that a process has ended, with its connections.
    pub fn process_gone(&mut self, process: usize) {
        for server in &mut self.servers {
            server.streams.retain(|(of, _), _| *of != process);
        }
    }

    /// Sends every pending response to all clients.
    fn push(&mut self) -> Sendings {
        self.servers.iter_mut().flat_map(Server::push).collect()
    }
}

fn kind_of(kind: RequestedKind) -> Kind {
    match kind {
        RequestedKind::Cluster => Kind::Clusters,
        RequestedKind::Endpoints => Kind::Endpoints,
    }
}

impl Server {
    fn on_request(&mut self, key: StreamKey, request: &XdsRequest) -> Option<Sent> {
        let kind = kind_of(request.kind);
        let stream = self.streams.get_mut(&key)?;
        let is_answered = !stream.last.is_empty();
        let names: Vec<String> = request.names.iter().map(ToString::to_string).collect();
        let claims = (&*request.version, &*request.nonce);
        stream.subscriptions.on_request(kind, claims, &names, &self.catalogue, self.trusts);
        match self.behaviour {
            StreamBehaviour::Silent => None,
            StreamBehaviour::EndsStreams if !is_answered => {
                self.streams.remove(&key);
                Some(Sent::End(ended(Code::Unavailable, "go away")))
            }
            StreamBehaviour::Answers
            | StreamBehaviour::Refuses
            | StreamBehaviour::Hangs
            | StreamBehaviour::EndsStreams => {
                if let Some(pending) = stream.subscriptions.pending_response(kind, &self.catalogue) {
                    return self.send(key, kind, pending);
                }
                let is_refused = self.repeats
                    && request.error.is_some()
                    && stream.subscriptions.is_last(kind, &request.nonce);
                let again = stream.last.get(&kind).filter(|_| is_refused).cloned()?;
                self.number(key, again)
            }
        }
    }

    fn send(&mut self, key: StreamKey, kind: Kind, pending: PendingResponse<Served, Code>) -> Option<Sent> {
        let received = |(name, served): &(String, Served)| served.received(name, self.wraps);
        let reported = |(name, code): &(String, Code)| ReportedError {
            name: Some(name.clone()),
            code: Some(code.number()),
            message: "it is not available".to_owned(),
        };
        let response = Response {
            type_url: kind.type_url().to_owned(),
            version: pending.version,
            nonce: String::new(),
            resources: pending.resources.iter().map(received).collect(),
            errors: pending.errors.iter().map(reported).collect(),
            excess: None,
        };
        self.number(key, Answer { response, kind, resources: pending.resources, errors: pending.errors })
    }

    fn number(&mut self, key: StreamKey, mut answer: Answer) -> Option<Sent> {
        self.responses += 1;
        answer.response.nonce = self.responses.to_string();
        let stream = self.streams.get_mut(&key)?;
        stream.subscriptions.on_sent(answer.kind, &answer.response.nonce);
        stream.last.insert(answer.kind, answer.clone());
        Some(Sent::Answer(Box::new(answer)))
    }

    fn push(&mut self) -> Sendings {
        if self.behaviour == StreamBehaviour::Silent {
            return Vec::new();
        }
        let mut sendings = Vec::new();
        let keys: Vec<StreamKey> = self.streams.keys().copied().collect();
        for (key, kind) in keys.into_iter().flat_map(|key| Kind::ALL.map(|kind| (key, kind))) {
            let stream = self.streams.get_mut(&key);
            let Some(pending) =
                stream.and_then(|stream| stream.subscriptions.pending_response(kind, &self.catalogue))
            else {
                continue;
            };
            sendings.extend(self.send(key, kind, pending).map(|sent| (key, sent)));
        }
        sendings
    }

    fn cut(&mut self, code: Code) -> Sendings {
        let streams = std::mem::take(&mut self.streams);
        streams.into_keys().map(|key| (key, Sent::End(ended(code, "cut")))).collect()
    }
}

/// Returns the end of a stream.
pub fn ended(code: Code, message: &str) -> StreamEnd {
    StreamEnd { code, message: message.to_owned() }
}
