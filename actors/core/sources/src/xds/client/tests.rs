//! A client on the test's clock; the test acts as its driver, its watchers and its servers.

mod answers;
mod errors;
mod fallback;
mod flow;
mod pacing;
mod properties;
mod requests;
mod rows;
mod shown;
mod streams;

use super::*;
use crate::resource_cache::ResourceChange;
use model::xds::cache::Policy;
use model::xds::cache::{Reason, ResourceState};
use model::xds::facts::Code;
use model::xds::facts::{
    AddressFacts, AssignmentFacts, Body, ClusterFacts, EdsFacts, EdsSource, EndpointFacts, LocalityFacts,
    Raw, Received, ReportedError,
};
use model::xds::validate;

/// A watcher, for tests with only one.
const WATCHER: WatcherId = WatcherId(1);
/// The arrival of every response, on the wall clock.
const AT: Wall = Wall::from_micros(7_000_000);

const PLAIN: Policy = Policy { fail_on_data_errors: false, timer_is_transient: false };
const FAILS: Policy = Policy { fail_on_data_errors: true, timer_is_transient: false };
const PATIENT: Policy = Policy { fail_on_data_errors: false, timer_is_transient: true };

fn cluster(name: &str) -> ResourceKey {
    ResourceKey::new(ResourceKind::Cluster, name)
}

fn endpoints(name: &str) -> ResourceKey {
    ResourceKey::new(ResourceKind::Endpoints, name)
}

fn raw(key: &ResourceKey, text: &str) -> Raw {
    let bytes = format!("{}:{text}", key.name).into_bytes();
    Raw { type_url: Arc::from(key.kind.type_url()), bytes: Arc::from(bytes) }
}

fn body(key: &ResourceKey, discovery: i32, address: AddressFacts, service_name: String) -> Body {
    let name = key.name.to_string();
    match key.kind {
        ResourceKind::Cluster => {
            let eds = Some(EdsFacts { service_name, source: EdsSource::Ads });
            Body::Cluster(ClusterFacts { name, discovery: Some(discovery), eds })
        }
        ResourceKind::Endpoints => {
            let endpoint = EndpointFacts { address, additional: Vec::new(), health: 1, weight: None };
            let locality =
                LocalityFacts { weight: Some(1), endpoints: vec![endpoint], ..LocalityFacts::default() };
            Body::Endpoints(AssignmentFacts { cluster_name: name, localities: vec![locality] })
        }
    }
}

/// Returns a valid resource; those with another number differ.
fn good(key: &ResourceKey, n: u8) -> Received {
    let address = AddressFacts::Socket { address: format!("10.0.0.{n}"), port: Some(80), protocol: 0 };
    let body = body(key, 3, address, format!("e{n}"));
    Received { raw: raw(key, &n.to_string()), wrapper: None, body: Ok(body) }
}

/// Returns an invalid resource with a readable name.
fn bad(key: &ResourceKey) -> Received {
    let body = body(key, 0, AddressFacts::Pipe, String::new());
    Received { raw: raw(key, "bad"), wrapper: None, body: Ok(body) }
}

/// Returns a resource without a readable name.
fn broken(kind: ResourceKind) -> Received {
    Received {
        raw: raw(&ResourceKey::new(kind, "?"), "broken"),
        wrapper: None,
        body: Err("truncated".to_owned()),
    }
}

/// Returns the content of a valid resource.
fn value(key: &ResourceKey, n: u8) -> ResourceValue {
    let (name, value) = validate(key.kind, &good(key, n)).expect("it is valid");
    assert_eq!(name, key.name);
    value
}

fn response(kind: ResourceKind, version: &str, nonce: &str, resources: Vec<Received>) -> Response {
    Response {
        type_url: kind.type_url().to_owned(),
        version: version.to_owned(),
        nonce: nonce.to_owned(),
        resources,
        errors: Vec::new(),
        excess: None,
    }
}

fn reported(name: &str, code: Code) -> ReportedError {
    let message = format!("no {name} for you");
    ReportedError { name: Some(name.to_owned()), code: Some(code.number()), message }
}

fn unavailable() -> StreamEnd {
    StreamEnd { code: Code::Unavailable, message: "tcp connect error".to_owned() }
}

/// A client with its driver. After each input `out` holds the new outputs.
struct Run {
    client: Client,
    now: Now,
    out: Vec<Out>,
    /// The open streams by server.
    open: BTreeMap<usize, StreamId>,
    /// True if the transport takes (pulls) requests immediately.
    pulls: bool,
    /// True if watchers process their notices immediately.
    processes_notices: bool,
}

impl Run {
    /// Returns a client of servers with these features.
    fn with(policies: &[Policy]) -> Run {
        let server = |(n, policy): (usize, &Policy)| Server {
            uri: Arc::from(["one:1", "two:2", "three:3"][n]),
            policy: *policy,
        };
        let params = Params {
            servers: policies.iter().enumerate().map(server).collect(),
            backoff: ExponentialBackoff::STREAMS,
            nack_pace: ExponentialBackoff::NACKS,
        };
        Run {
            client: Client::new(params),
            now: Now::from_millis(1_000),
            out: Vec::new(),
            open: BTreeMap::new(),
            pulls: true,
            processes_notices: true,
        }
    }

    /// Returns a client of one server without special features, with a connected stream that has requested these
    /// resources.
    fn watching(keys: &[ResourceKey]) -> Run {
        Run::watching_with(PLAIN, keys)
    }

    fn watching_with(policy: Policy, keys: &[ResourceKey]) -> Run {
        let mut run = Run::with(&[policy]);
        keys.iter().for_each(|key| run.watch(key));
        run.connect(0);
        run
    }

    fn step(&mut self, input: impl Into<In>) {
        self.out.clear();
        self.client.step(self.now, input.into(), &mut self.out);
        if self.client.deadline().is_some_and(|at| at <= self.now) {
            self.client.tick(self.now, &mut self.out);
        }
        self.follow();
    }

    /// Acts as the driver and the watchers on the outputs, and appends the results.
    fn follow(&mut self) {
        let mut next = 0;
        while let Some(output) = self.out.get(next).cloned() {
            next += 1;
            match output {
                Out::Call(DriverCall::Open { stream, server, .. }) => {
                    let before = self.open.insert(server.0, stream);
                    assert_eq!(before, None, "a second stream to the same server");
                }
                Out::Call(DriverCall::Close(stream)) => self.open.retain(|_, open| *open != stream),
                Out::Call(DriverCall::Send(stream, request)) if self.pulls => {
                    self.client.step(self.now, StreamEvent::Sent(stream, request.kind).into(), &mut self.out);
                }
                Out::Notice(update, _) if self.processes_notices => {
                    self.client.step(self.now, In::Processed(update), &mut self.out);
                }
                Out::Call(DriverCall::Send(..) | DriverCall::Read(_)) | Out::Notice(..) | Out::Metric(_) => {}
            }
        }
    }

    fn watch(&mut self, key: &ResourceKey) {
        self.step(In::Watch(key.clone(), WATCHER));
    }

    fn unwatch(&mut self, key: &ResourceKey) {
        self.step(In::Unwatch(key.clone(), WATCHER));
    }

    fn stream(&self, server: usize) -> StreamId {
        *self.open.get(&server).expect("a stream to the server is open")
    }

    /// Connects the transport to the server.
    fn connect(&mut self, server: usize) {
        self.step(StreamEvent::Dispatched(self.stream(server)));
    }

    fn respond_from(&mut self, server: usize, response: Response) {
        self.step(StreamEvent::Response(self.stream(server), response, AT));
    }

    fn respond(&mut self, kind: ResourceKind, version: &str, nonce: &str, resources: Vec<Received>) {
        self.respond_from(0, response(kind, version, nonce, resources));
    }

    /// Responds with errors instead of resources.
    fn report(&mut self, kind: ResourceKind, version: &str, nonce: &str, errors: Vec<ReportedError>) {
        let response = Response { errors, ..response(kind, version, nonce, Vec::new()) };
        self.respond_from(0, response);
    }

    /// Ends the stream to a server, without jitter.
    fn end(&mut self, server: usize, ended: StreamEnd) {
        self.end_with(server, ended, 500);
    }

    fn end_with(&mut self, server: usize, ended: StreamEnd, jitter: u16) {
        let stream = self.open.remove(&server).expect("a stream to the server is open");
        self.step(StreamEvent::Ended { stream, ended, jitter });
    }

    fn fail(&mut self, server: usize) {
        self.end(server, unavailable());
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now.plus(std::time::Duration::from_millis(millis));
        self.out.clear();
        self.client.tick(self.now, &mut self.out);
        self.follow();
    }

    /// Returns the time to the next deadline, in milliseconds.
    fn waits(&self) -> Option<u128> {
        self.client.deadline().map(|at| at.since(self.now).as_millis())
    }

    /// Advances the clock to the next deadline, and returns the time in milliseconds.
    fn wait(&mut self) -> u128 {
        let waits = self.waits().expect("something is waited for");
        self.now = self.client.deadline().expect("something is waited for");
        self.pass(0);
        waits
    }

    /// Returns the requests that were sent, when opening a stream or later.
    fn requests(&self) -> Vec<String> {
        let mut shown = Vec::new();
        for output in &self.out {
            match output {
                Out::Call(DriverCall::Open { first, .. }) => shown.extend(first.iter().map(show_request)),
                Out::Call(DriverCall::Send(_, request)) => shown.push(show_request(request)),
                Out::Call(DriverCall::Read(_) | DriverCall::Close(_)) | Out::Notice(..) | Out::Metric(_) => {}
            }
        }
        shown
    }

    /// Returns the notices to watchers.
    fn notices(&self) -> Vec<String> {
        let notice = |output: &Out| match output {
            Out::Notice(_, notice) => Some(show_notice(notice)),
            Out::Call(_) | Out::Metric(_) => None,
        };
        self.out.iter().filter_map(notice).collect()
    }

    /// Returns the text of the last error in a notice.
    fn words(&self) -> String {
        let words = |output: &Out| match output {
            Out::Notice(_, notice) => match &notice.change {
                ResourceChange::Changed(Err(error)) | ResourceChange::Ambient(Some(error)) => {
                    Some(error.message.to_string())
                }
                ResourceChange::Changed(Ok(_)) | ResourceChange::Ambient(None) => None,
            },
            Out::Call(_) | Out::Metric(_) => None,
        };
        self.out.iter().rev().find_map(words).expect("an error was told")
    }

    fn samples(&self) -> Vec<XdsMetric> {
        let sample = |output: &Out| match output {
            Out::Metric(sample) => Some(*sample),
            Out::Call(_) | Out::Notice(..) => None,
        };
        self.out.iter().filter_map(sample).collect()
    }

    /// Returns the streams of which a message may be read now.
    fn reads(&self) -> Vec<StreamId> {
        let read = |output: &Out| match output {
            Out::Call(DriverCall::Read(stream)) => Some(*stream),
            Out::Call(DriverCall::Open { .. } | DriverCall::Send(..) | DriverCall::Close(_))
            | Out::Notice(..)
            | Out::Metric(_) => None,
        };
        self.out.iter().filter_map(read).collect()
    }

    fn closed(&self) -> Vec<StreamId> {
        let close = |output: &Out| match output {
            Out::Call(DriverCall::Close(stream)) => Some(*stream),
            Out::Call(DriverCall::Open { .. } | DriverCall::Send(..) | DriverCall::Read(_))
            | Out::Notice(..)
            | Out::Metric(_) => None,
        };
        self.out.iter().filter_map(close).collect()
    }

    /// Returns the state of a resource; `None` if it is not watched.
    fn shown(&self, key: &ResourceKey) -> Option<ResourceDump> {
        self.client.dump().resources.into_iter().find(|shown| shown.key == *key)
    }

    /// Returns the metric label of a resource.
    fn state(&self, key: &ResourceKey) -> &'static str {
        self.shown(key).expect("it is watched").cache_state().as_str()
    }
}

/// Returns a request as `kind version/nonce names`, with `!` for a rejection.
fn show_request(request: &XdsRequest) -> String {
    let kind = match request.kind {
        ResourceKind::Cluster => "cds",
        ResourceKind::Endpoints => "eds",
    };
    let rejects = if request.error.is_some() { " !" } else { "" };
    let node = if request.node { " node" } else { "" };
    let names = request.names.join(" ");
    format!("{kind} {}/{} {names}{rejects}{node}", request.version, request.nonce)
}

/// Returns a notice as text, after the name of the resource.
fn show_notice(notice: &WatcherNotice) -> String {
    let name = &notice.key.name;
    match &notice.change {
        ResourceChange::Changed(Ok(cached)) => format!("{name} is {}", cached.version),
        ResourceChange::Changed(Err(error)) => format!("{name} fails: {}", error.code),
        ResourceChange::Ambient(Some(error)) => format!("{name} ambient: {}", error.code),
        ResourceChange::Ambient(None) => format!("{name} ambient: OK"),
    }
}
