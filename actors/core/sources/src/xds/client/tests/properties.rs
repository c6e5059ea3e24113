//! Random histories of a client, its driver, its watchers and two control planes: safety and liveness. The tests also
//! detect bugs that are injected between the client and its environment.

mod site;

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::*;
use model::xds::cache::Error;
use pool_testing::planted::each_is_found;
use site::{Data, Delivery, ServerBehaviour, Session, Site};

/// Numbers of resources, watchers and servers: small, so that they interact.
const KEYS: usize = 5;
const WATCHERS: u64 = 2;
const SERVERS: usize = 2;
/// The maximum number of operations in a history.
const LENGTH: usize = 100;
/// Maximum recovery time once the servers work: the longest delays of a stream and of a rejection for both servers, and
/// the time-out of a resource.
const BOUND: Duration = Duration::from_secs(600);
/// The maximum number of exchanges with a server without time passing.
const ROUNDS: usize = 40;
/// The window in which rejections are counted, and the maximum number for a kind of resource: three new ones in a
/// burst, one new one per second, and one repeated one per second.
const WINDOW: Duration = Duration::from_secs(10);
const REJECTIONS: usize = 3 + 10 + 10;

/// Returns the resource with this number.
fn key(n: usize) -> ResourceKey {
    if n < 2 { cluster(&format!("c{n}")) } else { endpoints(&format!("e{n}")) }
}

/// One operation.
#[derive(Clone, Debug)]
enum Op {
    Watch(usize, u64),
    Unwatch(usize, u64),
    /// Unwatches and watches again: the resource is removed before a server gets a request.
    Rewatch(usize, u64),
    /// A server's version of a resource changes.
    Change(usize, usize, Data),
    ServerBehaviour(usize, ServerBehaviour),
    /// A transport connects or fails.
    Connect(usize),
    /// A transport takes a request.
    Pull(usize),
    /// A response is read.
    Deliver(usize),
    /// Connect, pull and deliver, until nothing is left to do.
    Serve(usize),
    /// A stream ends; with the jitter of the next attempt.
    Cut(usize, u16),
    /// The watchers process their notices.
    Record,
    Wait(u64),
}

/// A bug between the client and its environment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plant {
    /// The next message is read although the watchers have not processed the last notices.
    ReadsAhead,
    /// Every notice is sent twice.
    DuplicatesRequests,
    /// A stream begins with a request without names.
    SendsEmptySubscription,
    /// A new stream begins with the nonces of the old one.
    KeepsNonces,
    /// Requests that only accept a response are not sent.
    NeverAccepts,
    /// Rejections accept the response instead.
    AcceptsEverything,
    /// Rejections are not delayed, however often they repeat.
    SkipsNackBackoff,
    /// A version is claimed although its resources are not in use.
    ClaimsVersions,
    /// The first requested names are requested forever.
    KeepsNames,
    /// A stream that must be closed stays open.
    NeverCloses,
    /// A stream counts as dispatched when it is opened.
    DispatchedAtOnce,
    /// The end of a stream is lost.
    LosesStreamEnd,
    /// Acknowledgements of updates are lost.
    LosesAcks,
    /// The clock stops.
    ClockStops,
    /// Some notices do not reach the watchers.
    LosesNotices,
    /// The record that no server was connected is kept forever.
    KeepsLosses,
}

impl Plant {
    const ALL: [Plant; 16] = [
        Plant::ReadsAhead,
        Plant::DuplicatesRequests,
        Plant::SendsEmptySubscription,
        Plant::KeepsNonces,
        Plant::NeverAccepts,
        Plant::AcceptsEverything,
        Plant::SkipsNackBackoff,
        Plant::ClaimsVersions,
        Plant::KeepsNames,
        Plant::NeverCloses,
        Plant::DispatchedAtOnce,
        Plant::LosesStreamEnd,
        Plant::LosesAcks,
        Plant::ClockStops,
        Plant::LosesNotices,
        Plant::KeepsLosses,
    ];
}

fn data() -> impl Strategy<Value = Data> {
    prop_oneof![
        6 => (1_u8..10).prop_map(Data::Good),
        3 => Just(Data::Bad),
        1 => Just(Data::Broken),
        2 => Just(Data::Missing),
        1 => Just(Data::Error(Code::NotFound)),
        1 => Just(Data::Error(Code::Unavailable)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let server = 0..SERVERS;
    let wait = prop_oneof![4 => 1_u64..2_000, 2 => 2_000_u64..20_000, 1 => 20_000_u64..40_000];
    let behaviour = prop_oneof![3 => Just(ServerBehaviour::Serves), 1 => Just(ServerBehaviour::Silent), 2 => Just(ServerBehaviour::Refuses)];
    prop_oneof![
        6 => (0..KEYS, 0..WATCHERS).prop_map(|(n, watcher)| Op::Watch(n, watcher)),
        3 => (0..KEYS, 0..WATCHERS).prop_map(|(n, watcher)| Op::Unwatch(n, watcher)),
        3 => (0..KEYS, 0..WATCHERS).prop_map(|(n, watcher)| Op::Rewatch(n, watcher)),
        4 => (server.clone(), 0..KEYS, data()).prop_map(|(server, n, data)| Op::Change(server, n, data)),
        2 => (server.clone(), behaviour).prop_map(|(server, behaviour)| Op::ServerBehaviour(server, behaviour)),
        4 => server.clone().prop_map(Op::Connect),
        4 => server.clone().prop_map(Op::Pull),
        5 => server.clone().prop_map(Op::Deliver),
        5 => server.clone().prop_map(Op::Serve),
        2 => (server, 0_u16..1_001).prop_map(|(server, jitter)| Op::Cut(server, jitter)),
        4 => Just(Op::Record),
        5 => wait.prop_map(Op::Wait),
    ]
}

/// Returns the features of the servers, and the operations.
fn history() -> impl Strategy<Value = ([Policy; SERVERS], Vec<Op>)> {
    let policy = prop_oneof![2 => Just(PLAIN), 1 => Just(FAILS), 1 => Just(PATIENT)];
    (prop::array::uniform2(policy), prop::collection::vec(op(), 1..=LENGTH))
}

/// The state of a watcher.
#[derive(Clone, Debug, Default)]
struct View {
    value: Option<ResourceValue>,
    error: Option<Error>,
}

/// The requests and responses of one kind on one stream.
#[derive(Clone, Debug, Default)]
struct Line {
    last: Option<XdsRequest>,
    /// The last response: its nonce, its version, whether it must be rejected, and whether it is unanswered.
    nonce: String,
    version: String,
    must_be_rejected: bool,
    needs_reply: bool,
}

/// The client and its environment.
struct World {
    client: Client,
    plant: Option<Plant>,
    now: Now,
    sites: [Site; SERVERS],
    views: BTreeMap<(ResourceKey, WatcherId), View>,
    lines: BTreeMap<(StreamId, ResourceKind), Line>,
    /// The last versions and nonces of each server.
    accepted: BTreeMap<(usize, ResourceKind), Arc<str>>,
    nonces: BTreeMap<(usize, ResourceKind), Arc<str>>,
    /// The times of rejections, and of requests for other names.
    rejections: BTreeMap<(usize, ResourceKind), Vec<Now>>,
    changes: BTreeMap<(usize, ResourceKind), Vec<Now>>,
    counts: BTreeMap<(ResourceKind, CacheState), u64>,
    /// The last update in a notice, and the last one processed.
    notified: UpdateId,
    recorded: UpdateId,
    /// The last update after a response, until it is processed.
    unprocessed_update: Option<UpdateId>,
    /// Number of notices.
    notice_count: u64,
    /// The response that is being delivered to the client.
    delivery: Option<Delivery>,
    /// The errors of the resources before the current input.
    before: BTreeMap<ResourceKey, Reason>,
}

impl World {
    fn new(policies: [Policy; SERVERS], plant: Option<Plant>) -> World {
        let server = |(n, policy): (usize, Policy)| Server { uri: Arc::from(format!("server-{n}")), policy };
        let pace = if plant == Some(Plant::SkipsNackBackoff) {
            Duration::ZERO
        } else {
            ExponentialBackoff::NACKS.first
        };
        let params = Params {
            servers: policies.into_iter().enumerate().map(server).collect(),
            backoff: ExponentialBackoff::STREAMS,
            nack_pace: ExponentialBackoff { first: pace, ..ExponentialBackoff::NACKS },
        };
        World {
            client: Client::new(params),
            plant,
            now: Now::from_millis(1_000),
            sites: [Site::new(0), Site::new(1)],
            views: BTreeMap::new(),
            lines: BTreeMap::new(),
            accepted: BTreeMap::new(),
            nonces: BTreeMap::new(),
            rejections: BTreeMap::new(),
            changes: BTreeMap::new(),
            counts: BTreeMap::new(),
            notified: UpdateId(0),
            recorded: UpdateId(0),
            unprocessed_update: None,
            notice_count: 0,
            delivery: None,
            before: BTreeMap::new(),
        }
    }

    fn has(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    fn apply(&mut self, op: Op) -> TestCaseResult {
        match op {
            Op::Watch(n, watcher) => {
                let (key, watcher) = (key(n), WatcherId(watcher));
                self.views.entry((key.clone(), watcher)).or_default();
                self.input(In::Watch(key, watcher))?;
            }
            Op::Unwatch(n, watcher) => {
                let (key, watcher) = (key(n), WatcherId(watcher));
                self.views.remove(&(key.clone(), watcher));
                if self.views.is_empty() {
                    self.unprocessed_update = None;
                }
                self.input(In::Unwatch(key, watcher))?;
            }
            Op::Rewatch(n, watcher) => {
                self.apply(Op::Unwatch(n, watcher))?;
                self.apply(Op::Watch(n, watcher))?;
            }
            Op::Change(index, n, data) => {
                self.sites[index].set(n, data);
                self.sites[index].push();
            }
            Op::ServerBehaviour(index, behaviour) => {
                self.sites[index].behaviour = behaviour;
                self.sites[index].push();
            }
            Op::Connect(index) => {
                self.connect(index)?;
            }
            Op::Pull(index) => {
                self.pull(index)?;
            }
            Op::Deliver(index) => {
                self.deliver(index)?;
            }
            Op::Serve(index) => {
                for _ in 0..ROUNDS {
                    let recorded = self.record()?;
                    if !self.serve(index)? && !recorded {
                        break;
                    }
                }
            }
            Op::Cut(index, jitter) => self.cut(index, jitter)?,
            Op::Record => {
                self.record()?;
            }
            Op::Wait(millis) => self.wait(millis)?,
        }
        self.check_state()
    }

    fn input(&mut self, input: impl Into<In>) -> TestCaseResult {
        let mut out = Vec::new();
        self.client.step(self.now, input.into(), &mut out);
        if self.client.deadline().is_some_and(|at| at <= self.now) {
            self.client.tick(self.now, &mut out);
        }
        self.check_outputs(out)
    }

    fn tick(&mut self) -> TestCaseResult {
        let mut out = Vec::new();
        self.client.tick(self.now, &mut out);
        self.check_outputs(out)
    }

    fn check_outputs(&mut self, out: Vec<Out>) -> TestCaseResult {
        for output in out {
            match output {
                Out::Call(DriverCall::Open { stream, server, first }) => {
                    self.on_open(stream, server.0, first)?
                }
                Out::Call(DriverCall::Send(stream, request)) => self.on_send(stream, request)?,
                Out::Call(DriverCall::Read(stream)) => self.on_read(stream)?,
                Out::Call(DriverCall::Close(stream)) => {
                    if !self.has(Plant::NeverCloses) {
                        let site = self.index_of(stream)?;
                        self.sites[site].session = None;
                    }
                }
                Out::Notice(update, notified) => self.on_notice(update, notified)?,
                Out::Metric(XdsMetric::Resources { kind, state, count }) => {
                    self.counts.insert((kind, state), count);
                }
                Out::Metric(
                    XdsMetric::Connected { .. }
                    | XdsMetric::ServerFailure(_)
                    | XdsMetric::Updates { .. }
                    | XdsMetric::Nack { .. },
                ) => {}
            }
        }
        let errors = self.client.dump().resources.into_iter();
        self.before = errors.filter_map(|shown| Some((shown.key, shown.error?.reason))).collect();
        prop_assert_eq!(self.client.check(), Ok(()));
        Ok(())
    }

    fn index_of(&self, stream: StreamId) -> Result<usize, TestCaseError> {
        let has = |site: &Site| site.session.as_ref().is_some_and(|session| session.stream == stream);
        let index = self.sites.iter().position(has);
        index.ok_or_else(|| TestCaseError::fail(format!("{stream:?} is over")))
    }

    fn on_open(&mut self, stream: StreamId, index: usize, first: Vec<XdsRequest>) -> TestCaseResult {
        prop_assert!(self.sites[index].session.is_none(), "two streams to the same server");
        prop_assert!(!first.is_empty(), "a stream without a request");
        self.sites[index].session = Some(Session::new(stream));
        for (n, mut request) in first.into_iter().enumerate() {
            prop_assert_eq!(request.node, n == 0, "only the first request carries the node");
            let label = (index, request.kind);
            if self.has(Plant::SendsEmptySubscription) {
                request.names.clear();
            }
            if let Some(nonce) = self.nonces.get(&label).filter(|_| self.has(Plant::KeepsNonces)) {
                request.nonce = Arc::clone(nonce);
            }
            if let Some(version) = self.accepted.get(&label).filter(|_| self.has(Plant::ClaimsVersions)) {
                request.version = Arc::clone(version);
            }
            self.take(index, stream, request, true)?;
        }
        if self.has(Plant::DispatchedAtOnce) {
            self.input(StreamEvent::Dispatched(stream))?;
        }
        Ok(())
    }

    fn on_send(&mut self, stream: StreamId, mut request: XdsRequest) -> TestCaseResult {
        let index = self.index_of(stream)?;
        prop_assert!(!request.node, "only the first request carries the node");
        let line = self.lines.entry((stream, request.kind)).or_default().clone();
        let last = line.last.as_ref().map(|last| last.names.clone());
        if self.has(Plant::NeverAccepts) && request.error.is_none() && last.as_ref() == Some(&request.names) {
            return Ok(());
        }
        if self.has(Plant::AcceptsEverything) && request.error.take().is_some() {
            request.version = Arc::from(line.version.as_str());
        }
        if self.has(Plant::KeepsNames)
            && let Some(names) = last
        {
            request.names = names;
        }
        if self.has(Plant::DuplicatesRequests) {
            self.take(index, stream, request.clone(), false)?;
        }
        self.take(index, stream, request, false)
    }

    /// Checks a request of the client, and queues it for the transport.
    fn take(
        &mut self,
        index: usize,
        stream: StreamId,
        request: XdsRequest,
        is_opening: bool,
    ) -> TestCaseResult {
        let label = (index, request.kind);
        let cached = self.client.dump().resources;
        let has = |name: &Arc<str>| {
            let named = |shown: &&ResourceDump| shown.key == ResourceKey::new(request.kind, Arc::clone(name));
            cached.iter().find(named).is_some_and(|shown| shown.cached.is_some())
        };
        let line = self.lines.entry((stream, request.kind)).or_default();
        prop_assert_eq!(
            &*request.nonce,
            line.nonce.as_str(),
            "the request carries the nonce of another response"
        );
        let differs = line.last.as_ref().is_none_or(|last| last.names != request.names);
        if line.last.is_none() {
            prop_assert!(!request.names.is_empty(), "the first request subscribes to all resources");
            let claims = request.version.is_empty() || request.names.iter().all(has);
            prop_assert!(
                claims,
                "the request claims a version of resources that are not cached: {:?}",
                request
            );
        }
        if line.needs_reply {
            prop_assert_eq!(request.error.is_some(), line.must_be_rejected, "{:?}", request);
            if !line.must_be_rejected {
                prop_assert_eq!(
                    &*request.version,
                    line.version.as_str(),
                    "the request accepts another version"
                );
                self.accepted.insert(label, Arc::clone(&request.version));
            }
        } else {
            prop_assert!(request.error.is_none(), "the client rejects a response twice: {:?}", request);
            prop_assert!(differs, "duplicate request: {:?}", request);
        }
        line.needs_reply = false;
        line.last = Some(request.clone());
        if differs {
            self.changes.entry(label).or_default().push(self.now);
        }
        if request.error.is_some() {
            self.rejections.entry(label).or_default().push(self.now);
            self.check_pace(label)?;
        }
        if let Some(session) = &mut self.sites[index].session {
            session.outbox.push_back((request, is_opening));
        }
        Ok(())
    }

    /// Checks the number of rejections; a request for other names may also carry one.
    fn check_pace(&self, label: (usize, ResourceKind)) -> TestCaseResult {
        let recent = |times: &BTreeMap<(usize, ResourceKind), Vec<Now>>| {
            let times = times.get(&label).into_iter().flatten();
            times.filter(|at| self.now.since(**at) < WINDOW).count()
        };
        let (rejections, changes) = (recent(&self.rejections), recent(&self.changes));
        prop_assert!(rejections <= REJECTIONS + changes, "{} rejections in 10 s", rejections);
        Ok(())
    }

    fn on_read(&mut self, stream: StreamId) -> TestCaseResult {
        let index = self.index_of(stream)?;
        prop_assert!(
            self.unprocessed_update.is_none(),
            "the client reads before the watchers have processed the last notices"
        );
        if let Some(session) = &mut self.sites[index].session {
            prop_assert!(!session.may_read, "the client reads two messages at a time");
            session.may_read = true;
        }
        Ok(())
    }

    fn on_notice(&mut self, update: UpdateId, notified: WatcherNotice) -> TestCaseResult {
        prop_assert!(update >= self.notified, "update ids decrease");
        self.notified = update;
        if self.delivery.is_some() {
            self.unprocessed_update = Some(update);
        }
        self.notice_count += 1;
        if let ResourceChange::Changed(Err(error)) | ResourceChange::Ambient(Some(error)) = &notified.change {
            self.check_error(&notified.key, error)?;
        }
        if self.has(Plant::LosesNotices) && self.notice_count.is_multiple_of(3) {
            return Ok(());
        }
        let keeps_losses = self.has(Plant::KeepsLosses);
        let Some(view) = self.views.get_mut(&(notified.key.clone(), notified.watcher)) else {
            return Err(TestCaseError::fail(format!(
                "{:?} was notified but does not watch",
                notified.watcher
            )));
        };
        let is_loss = |error: &Error| keeps_losses && error.reason == Reason::Connectivity;
        let connection_error = view.error.take().filter(is_loss);
        match notified.change {
            ResourceChange::Changed(Ok(cached)) => *view = View { value: Some(cached.value), error: None },
            ResourceChange::Changed(Err(error)) => *view = View { value: None, error: Some(error) },
            ResourceChange::Ambient(error) => view.error = error,
        }
        view.error = view.error.take().or(connection_error);
        Ok(())
    }

    /// Checks that a notified error has a cause in the environment. An error that the resource already had is not
    /// checked again.
    fn check_error(&self, key: &ResourceKey, error: &Error) -> TestCaseResult {
        let sessions = || self.sites.iter().filter_map(|site| site.session.as_ref());
        if self.before.get(key) == Some(&error.reason) {
            return Ok(());
        }
        let fits = match error.reason {
            Reason::Connectivity => sessions().all(|session| !session.has_answered),
            Reason::Timer => sessions().any(|session| {
                let requested = session.requested.get(key);
                requested.is_some_and(|at| self.now.since(*at) >= Duration::from_secs(15))
            }),
            Reason::Nack => self.delivery.as_ref().is_some_and(|output| output.bad.contains(&key.name)),
            Reason::Deleted => self.delivery.as_ref().is_some_and(|output| {
                key.kind == ResourceKind::Cluster && !output.is_broken && output.missing.contains(&key.name)
            }),
            Reason::Reported => self.delivery.as_ref().is_some_and(|output| {
                output.response.errors.iter().any(|reported| reported.name.as_deref() == Some(&*key.name))
            }),
        };
        prop_assert!(fits, "{:?} of {} has no cause", error, key);
        Ok(())
    }

    /// Connects a transport, if it is not connected; returns true if it did.
    fn connect(&mut self, index: usize) -> Result<bool, TestCaseError> {
        let site = &mut self.sites[index];
        let refuses = site.behaviour == ServerBehaviour::Refuses;
        let Some(session) = site.session.as_mut().filter(|session| !session.is_connected) else {
            return Ok(false);
        };
        let stream = session.stream;
        session.is_connected = !refuses;
        if refuses {
            self.cut(index, 500)?;
            return Ok(true);
        }
        while self.pull_one(index, true).is_some() {}
        self.input(StreamEvent::Dispatched(stream))?;
        Ok(true)
    }

    /// Takes the next request of the opening or of the rest of a stream, as the transport does. Returns its stream
    /// and kind.
    fn pull_one(&mut self, index: usize, is_opening: bool) -> Option<(StreamId, ResourceKind)> {
        let site = &mut self.sites[index];
        let session = site.session.as_mut().filter(|session| session.is_connected)?;
        if session.outbox.front()?.1 != is_opening {
            return None;
        }
        let (request, _) = session.outbox.pop_front()?;
        let stream = session.stream;
        site.on_request(self.now, &request);
        Some((stream, request.kind))
    }

    fn pull(&mut self, index: usize) -> Result<bool, TestCaseError> {
        let Some((stream, kind)) = self.pull_one(index, false) else { return Ok(false) };
        self.input(StreamEvent::Sent(stream, kind))?;
        Ok(true)
    }

    fn deliver(&mut self, index: usize) -> Result<bool, TestCaseError> {
        let Some(session) = self.sites[index].session.as_mut().filter(|session| session.may_read) else {
            return Ok(false);
        };
        let Some(delivery) = session.inbox.pop_front() else { return Ok(false) };
        session.may_read = false;
        session.has_answered = true;
        let stream = session.stream;
        let response = delivery.response.clone();
        let is_watched = |name: &Arc<str>| {
            self.views.keys().any(|(key, _)| key.kind == delivery.kind && key.name == *name)
        };
        let must_be_rejected = delivery.is_broken || delivery.bad.iter().any(is_watched);
        let line = self.lines.entry((stream, delivery.kind)).or_default();
        line.nonce.clone_from(&response.nonce);
        line.version.clone_from(&response.version);
        line.must_be_rejected = must_be_rejected;
        line.needs_reply = true;
        self.nonces.insert((index, delivery.kind), Arc::from(response.nonce.as_str()));
        self.delivery = Some(delivery);
        self.input(StreamEvent::Response(stream, response, AT))?;
        self.delivery = None;
        if self.has(Plant::ReadsAhead) && self.unprocessed_update.is_some() {
            self.on_read(stream)?;
        }
        Ok(true)
    }

    fn serve(&mut self, index: usize) -> Result<bool, TestCaseError> {
        let connected = self.connect(index)?;
        let mut pulled = false;
        while self.pull(index)? {
            pulled = true;
        }
        Ok(self.deliver(index)? || connected || pulled)
    }

    /// Ends a stream and drops all messages in flight on it.
    fn cut(&mut self, index: usize, jitter: u16) -> TestCaseResult {
        let Some(session) = self.sites[index].session.take() else { return Ok(()) };
        if self.has(Plant::LosesStreamEnd) {
            return Ok(());
        }
        self.input(StreamEvent::Ended { stream: session.stream, ended: unavailable(), jitter })
    }

    fn record(&mut self) -> Result<bool, TestCaseError> {
        if self.recorded == self.notified {
            return Ok(false);
        }
        self.recorded = self.notified;
        if self.has(Plant::LosesAcks) {
            return Ok(false);
        }
        self.unprocessed_update = None;
        self.input(In::Processed(self.notified))?;
        Ok(true)
    }

    fn wait(&mut self, millis: u64) -> TestCaseResult {
        let until = self.now.plus(Duration::from_millis(millis));
        for _ in 0..1_000 {
            let due = self.client.deadline().filter(|at| *at <= until && !self.has(Plant::ClockStops));
            let Some(at) = due else {
                self.now = until;
                return Ok(());
            };
            self.now = self.now.max(at);
            self.tick()?;
        }
        Err(TestCaseError::fail("the client wakes up again and again"))
    }

    /// Checks that watchers, views and metrics agree.
    fn check_state(&self) -> TestCaseResult {
        let Dump { servers, resources: shown } = self.client.dump();
        let is_lost = servers.iter().any(|server| server.failure.is_some());
        let watched: BTreeSet<&ResourceKey> = self.views.keys().map(|(key, _)| key).collect();
        prop_assert!(shown.iter().map(|shown| &shown.key).eq(watched), "the client watches other resources");
        let mut counts: BTreeMap<(ResourceKind, CacheState), u64> = BTreeMap::new();
        for shown in &shown {
            *counts.entry((shown.key.kind, shown.cache_state())).or_default() += 1;
            let views = self.views.iter().filter(|((key, _), _)| *key == shown.key);
            for (_, view) in views {
                let value = shown.cached.as_ref().map(|cached| &cached.value);
                prop_assert_eq!(view.value.as_ref(), value, "the watcher of {} has another value", shown.key);
                let fits = match (&view.error, &shown.error) {
                    (None, None) => true,
                    (None, Some(_)) => false,
                    (Some(held), own) => {
                        let is_own = own.as_ref().is_some_and(|own| own.is_same_as(held));
                        is_own || (held.reason == Reason::Connectivity && is_lost)
                    }
                };
                prop_assert!(
                    fits,
                    "{}: the watcher has {:?}, but the status shows {:?}",
                    shown.key,
                    view.error,
                    shown.error
                );
            }
        }
        let mut measured = self.counts.clone();
        measured.retain(|_, count| *count > 0);
        prop_assert_eq!(measured, counts);
        Ok(())
    }

    /// Makes all resources valid and all servers available. Asserts that the client accepts all watched resources from
    /// the first server, and that no watcher has an error.
    fn converge(&mut self) -> TestCaseResult {
        for round in [100_u8, 150] {
            for (index, first) in [(0, round), (1, round + 20)] {
                self.sites[index].behaviour = ServerBehaviour::Serves;
                for (n, number) in (0..KEYS).zip(first..) {
                    self.sites[index].set(n, Data::Good(number));
                }
                self.sites[index].push();
            }
            self.run_all()?;
            self.check_state()?;
            let used = [0, 1].map(|index| self.sites[index].session.is_some());
            prop_assert_eq!(used, [!self.views.is_empty(), false], "the servers in use");
            for shown in self.client.dump().resources {
                let number = (0..KEYS).zip(round..).find(|(n, _)| key(*n) == shown.key);
                let expected = number.map(|(_, number)| value(&shown.key, number));
                prop_assert_eq!(shown.state, ResourceState::Acked, "{}", shown.key);
                prop_assert_eq!(shown.cached.map(|cached| cached.value), expected, "{}", shown.key);
            }
            let wrong = self.views.iter().find(|(_, view)| view.error.is_some());
            prop_assert!(wrong.is_none(), "a watcher still has an error: {:?}", wrong);
        }
        Ok(())
    }

    /// Runs all parts until nothing is left to do.
    fn run_all(&mut self) -> TestCaseResult {
        let until = self.now.plus(BOUND);
        for _ in 0..10_000 {
            let mut moved = self.record()?;
            for index in 0..SERVERS {
                moved |= self.serve(index)?;
            }
            if moved {
                continue;
            }
            let due = self.client.deadline().filter(|_| !self.has(Plant::ClockStops));
            let Some(at) = due.filter(|at| *at <= until) else { return Ok(()) };
            self.now = self.now.max(at);
            self.tick()?;
        }
        Err(TestCaseError::fail("the client did not converge"))
    }
}

fn play(policies: [Policy; SERVERS], ops: Vec<Op>, plant: Option<Plant>) -> TestCaseResult {
    let mut world = World::new(policies, plant);
    for op in ops {
        world.apply(op)?;
    }
    world.converge()
}

proptest! {
    #[test]
    fn x2_everything_watched_is_accepted_in_bounded_time(
        (policies, ops) in history(),
    ) {
        play(policies, ops, None)?;
    }
}

#[test]
fn each_planted_bug_is_found() {
    each_is_found(Plant::ALL, 500, history, |(policies, ops), plant| play(policies, ops, Some(plant)));
}
