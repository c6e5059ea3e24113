//! The xDS client: state-of-the-world protocol on aggregated streams (X2). It decides which server is asked for which
//! resources, sends ACKs and NACKs, keeps versions and nonces, and handles the delays between streams and the fallback
//! between servers.
//!
//! It owns the protocol and the cache of received resources (X1). The driver owns the connections: it opens streams,
//! sends requests, reports what the transport has taken, reads a message when it has permission to, decodes it, and
//! reports how a stream ended. Watchers interpret their notices.
//!
//! The driver reports in the order of events. It reports an undecodable message as read, and passes on a message of an
//! unexpected type like any other.

mod backoff;
mod channel;
mod servers;
mod stream;
#[cfg(test)]
mod tests;
mod validation;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::resource_cache::{Notice, ResourceCache};
use channel::Channel;
use model::machine::{Machine, Now, Wall, earliest};
use model::xds::ResourceValue;
use model::xds::cache::{CacheState, Cached};
use model::xds::dump::{Dump, ResourceDump, ServerDump};
use model::xds::facts::{ResourceKey, ResourceKind, Response};
use model::xds::stream::{
    DriverCall, Nack, Server, ServerId, StreamEnd, StreamEvent, StreamId, XdsMetric, XdsRequest,
};
use stream::{PerKind, Stream};
use validation::{Finding, ResponseVerdict, deletion, validate_response};

pub use backoff::ExponentialBackoff;

/// Parameters of the client, fixed at startup.
#[derive(Clone, Debug)]
pub struct Params {
    /// The servers in order of preference (A71). Without servers, nothing is requested.
    pub servers: Vec<Server>,
    /// The delays between the streams to a server: [`ExponentialBackoff::STREAMS`] (A57).
    pub backoff: ExponentialBackoff,
    /// The delays before NACKs that repeat the previous one: [`ExponentialBackoff::NACKS`].
    pub nack_pace: ExponentialBackoff,
}

/// Id of all notices of one step. Later updates have greater ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UpdateId(pub u64);

/// Id of a watcher of a resource, chosen by the caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WatcherId(pub u64);

/// Inputs of the client.
#[derive(Clone, Debug)]
pub enum In {
    /// A watcher subscribes to a resource with a non-empty name.
    Watch(ResourceKey, WatcherId),
    /// A watcher unsubscribes from a resource.
    Unwatch(ResourceKey, WatcherId),
    /// All notices up to this update are processed, including those to watchers that are gone.
    Processed(UpdateId),
    /// A message from the driver about a stream.
    StreamEvent(StreamEvent),
    /// Close all streams and do nothing more.
    Shutdown,
}

impl From<StreamEvent> for In {
    fn from(event: StreamEvent) -> In {
        In::StreamEvent(event)
    }
}

/// Outputs of the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Out {
    /// To the driver: a call.
    Call(DriverCall),
    /// To a watcher: a notice. [`In::Processed`] acknowledges it.
    Notice(UpdateId, WatcherNotice),
    /// To the metrics recorder.
    Metric(XdsMetric),
}

/// A notice to a watcher.
pub type WatcherNotice = Notice<ResourceKey, ResourceValue, WatcherId>;

/// The client of all servers in the list (X2).
#[derive(Debug)]
pub struct Client {
    params: Params,
    cache: ResourceCache<ResourceKey, ResourceValue, WatcherId>,
    /// The watched names.
    watched: PerKind<BTreeSet<Arc<str>>>,
    channels: Vec<Channel>,
    /// The number of servers in use, from the start of the list. All servers in use but the last one fail. The last
    /// one is decisive: its features apply, its failure is reported, and the timers are those of its stream (A71).
    used: usize,
    /// The number of the last stream.
    streams: u64,
    /// The number of the last update.
    updates: u64,
    /// The update after the last response, until it is processed. Nothing is read before.
    unprocessed: Option<UpdateId>,
    /// The resources that did not arrive in time on streams without any response, since the last response: no server
    /// has said that they do not exist (A71).
    unanswered: BTreeSet<ResourceKey>,
    /// The last published numbers of watched resources.
    counts: BTreeMap<(ResourceKind, CacheState), u64>,
    is_over: bool,
}

/// One step: its time and its results.
struct Turn<'a> {
    now: Now,
    out: &'a mut Vec<Out>,
    notices: Vec<WatcherNotice>,
    /// True if resources may have changed their states.
    has_changed: bool,
    /// True if the step handles a response.
    is_response: bool,
}

impl<'a> Turn<'a> {
    fn new(now: Now, out: &'a mut Vec<Out>) -> Turn<'a> {
        Turn { now, out, notices: Vec::new(), has_changed: false, is_response: false }
    }

    fn measure(&mut self, sample: XdsMetric) {
        self.out.push(Out::Metric(sample));
    }
}

impl Client {
    /// Creates a client without watched resources.
    #[must_use]
    pub fn new(params: Params) -> Client {
        let policy = params.servers.first().map(|server| server.policy).unwrap_or_default();
        let channel = |server: &Server| Channel::new(server.clone(), params.nack_pace);
        Client {
            cache: ResourceCache::new(policy),
            watched: PerKind::default(),
            channels: params.servers.iter().map(channel).collect(),
            used: 0,
            streams: 0,
            updates: 0,
            unprocessed: None,
            unanswered: BTreeSet::new(),
            counts: BTreeMap::new(),
            is_over: false,
            params,
        }
    }

    /// Returns the state of all servers and resources, for operators (CSDS, H3).
    #[must_use]
    pub fn dump(&self) -> Dump {
        let servers = self.channels.iter().enumerate().map(|(index, channel)| ServerDump {
            uri: Arc::clone(&channel.server.uri),
            is_used: index < self.used,
            is_connected: index < self.used && channel.failure.is_none(),
            failure: channel.failure.clone(),
            cut: channel.cut.clone(),
        });
        let resources = self.cache.entries().map(|entry| ResourceDump {
            key: entry.key.clone(),
            state: entry.state,
            cached: entry.cached.cloned(),
            error: entry.error.cloned(),
            watchers: entry.watchers,
        });
        Dump { servers: servers.collect(), resources: resources.collect() }
    }

    fn on_watch(&mut self, key: ResourceKey, watcher: WatcherId, turn: &mut Turn<'_>) {
        let kind = key.kind;
        let is_new = self.watched.get_mut(kind).insert(Arc::clone(&key.name));
        turn.has_changed = true;
        self.cache.watch(key, watcher, &mut turn.notices);
        if !is_new {
            return;
        }
        for stream in self.channels.iter_mut().filter_map(Channel::stream_mut) {
            stream.subscription_mut(kind).on_watched();
        }
        if self.used == 0 {
            self.use_next(turn);
        } else {
            self.fall_back(turn);
        }
    }

    fn on_unwatch(&mut self, key: &ResourceKey, watcher: WatcherId, turn: &mut Turn<'_>) {
        if !self.cache.unwatch(key, &watcher) {
            return;
        }
        turn.has_changed = true;
        self.unanswered.remove(key);
        self.watched.get_mut(key.kind).remove(&key.name);
        for stream in self.channels.iter_mut().filter_map(Channel::stream_mut) {
            stream.subscription_mut(key.kind).on_dropped(&key.name);
        }
        if self.watches_nothing() {
            self.release_from(0, turn);
            self.cache.stop_timers();
            self.cache.connected(&mut turn.notices);
            self.unprocessed = None;
        }
    }

    /// Returns the time until which messages of the decisive server may be unread, because too many have arrived.
    fn catches_up_until(&self) -> Now {
        let last = self.used.checked_sub(1).and_then(|index| self.channels.get(index));
        last.and_then(Channel::catches_up_until).unwrap_or(Now::ZERO)
    }

    fn watches_nothing(&self) -> bool {
        ResourceKind::ALL.into_iter().all(|kind| self.watched.get(kind).is_empty())
    }

    /// Returns the index of the server of this open stream.
    fn index_of(&self, id: StreamId) -> Option<usize> {
        let has = |channel: &Channel| channel.stream().is_some_and(|stream| stream.id == id);
        self.channels.iter().position(has)
    }

    fn on_stream_event(&mut self, event: StreamEvent, turn: &mut Turn<'_>) {
        match event {
            StreamEvent::Dispatched(stream) => self.on_dispatched(stream, turn.now),
            StreamEvent::Sent(stream, kind) => self.on_sent(stream, kind, turn.now),
            StreamEvent::Response(stream, response, at) => self.on_response(stream, &response, at, turn),
            StreamEvent::Undecodable(stream) => self.on_undecodable(stream),
            StreamEvent::Ended { stream, ended, jitter } => self.on_ended(stream, &ended, jitter, turn),
        }
    }

    fn on_dispatched(&mut self, id: StreamId, now: Now) {
        let Some(stream) = self.stream_mut(id) else { return };
        ResourceKind::ALL.into_iter().for_each(|kind| stream.subscription_mut(kind).on_dispatched());
        self.arm(now);
    }

    fn on_sent(&mut self, id: StreamId, kind: ResourceKind, now: Now) {
        let Some(stream) = self.stream_mut(id) else { return };
        stream.subscription_mut(kind).on_sent();
        self.arm(now);
    }

    fn stream_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.channels.iter_mut().filter_map(Channel::stream_mut).find(|stream| stream.id == id)
    }

    fn on_response(&mut self, id: StreamId, response: &Response, at: Wall, turn: &mut Turn<'_>) {
        let Some(index) = self.index_of(id) else { return };
        let Some(channel) = self.channels.get_mut(index) else { return };
        channel.on_read();
        // A response of a type that was not requested is neither accepted nor rejected, and says nothing about the
        // server.
        let Some(kind) = ResourceKind::of_type_url(&response.type_url) else { return };
        let is_first = channel.on_response(turn.now);
        turn.has_changed = true;
        turn.is_response = true;
        self.on_dispatched(id, turn.now);
        if is_first {
            self.on_first_response(index, turn);
        }
        let mut verdict = validate_response(kind, response, at, self.watched.get(kind));
        turn.measure(XdsMetric::Updates {
            server: ServerId(index),
            kind,
            valid: verdict.valid,
            invalid: verdict.invalid,
        });
        if let Some(channel) = self.channels.get_mut(index) {
            let complaint = std::mem::take(&mut verdict.complaints).message();
            channel.set_answer(kind, &verdict.version, &response.nonce, complaint, verdict.valid > 0);
        }
        if verdict.valid > 0 {
            let others = self.channels.iter_mut().enumerate().filter(|(n, _)| *n != index);
            others.for_each(|(_, channel)| channel.forget_version(kind));
        }
        self.apply(index, kind, verdict, at, turn);
    }

    /// Handles an undecodable message. The next one is read under the same limits as after any other (flow control).
    fn on_undecodable(&mut self, id: StreamId) {
        if let Some(stream) = self.stream_mut(id) {
            stream.needs_read = true;
        }
    }

    /// Applies a validated response to the cache.
    fn apply(
        &mut self,
        index: usize,
        kind: ResourceKind,
        verdict: ResponseVerdict,
        at: Wall,
        turn: &mut Turn<'_>,
    ) {
        let ResponseVerdict { findings, version, is_legible, .. } = verdict;
        let stream = self.channels.get_mut(index).and_then(Channel::stream_mut);
        let Some(subscription) = stream.map(|stream| stream.subscription_mut(kind)) else { return };
        let mut present = BTreeSet::new();
        for (name, finding) in findings {
            present.insert(Arc::clone(&name));
            match finding {
                Finding::Valid(value, raw) => {
                    let (raw, version) = (Some(raw), Arc::clone(&version));
                    subscription.on_received(&name);
                    let provenance = subscription.on_valid(&name);
                    let cached = Cached { value, raw, version, updated: at, provenance };
                    self.cache.received(ResourceKey::new(kind, name), cached, &mut turn.notices);
                }
                Finding::Invalid(error) => {
                    subscription.on_received(&name);
                    self.cache.invalid(ResourceKey::new(kind, name), error, &mut turn.notices);
                }
                Finding::Reported(error) => {
                    subscription.on_answered(&name);
                    subscription.on_reported(&name);
                    self.cache.reported(ResourceKey::new(kind, name), error, &mut turn.notices);
                }
                Finding::Unclear => subscription.on_reported(&name),
            }
        }
        if kind.is_complete() && is_legible {
            for name in subscription.missing(&present) {
                let key = ResourceKey::new(kind, Arc::clone(&name));
                if self.cache.get(&key).is_some_and(|entry| entry.cached.is_some()) {
                    subscription.on_answered(&name);
                    self.cache.deleted(key, deletion(&version, at), &mut turn.notices);
                }
            }
        }
    }

    fn on_processed(&mut self, update: UpdateId, now: Now) {
        if update.0 > self.updates || self.unprocessed.is_none_or(|unprocessed| unprocessed > update) {
            return;
        }
        self.unprocessed = None;
        // No message was read in the meantime. Resources that seem late may have arrived, and are read only now.
        if self.cache.deadline().is_some_and(|at| at <= now) {
            self.cache.stop_timers();
            self.arm(now);
        }
    }

    /// Ends a step: publishes notices, sends requests, and permits reads.
    fn end_turn(&mut self, turn: Turn<'_>) {
        let Turn { now, out, notices, has_changed, is_response } = turn;
        if has_changed || !notices.is_empty() {
            self.count(out);
        }
        if !notices.is_empty() {
            let update = UpdateId(self.updates + 1);
            self.updates = update.0;
            if is_response {
                self.unprocessed = Some(update);
            }
            out.extend(notices.into_iter().map(|notice| Out::Notice(update, notice)));
        }
        self.send(now, out);
        if self.unprocessed.is_none() {
            let streams = self.channels.iter_mut().filter_map(|channel| channel.read(now));
            out.extend(streams.map(|stream| Out::Call(DriverCall::Read(stream))));
        }
        debug_assert_eq!(self.check(), Ok(()));
    }

    fn send(&mut self, now: Now, out: &mut Vec<Out>) {
        for index in 0..self.used {
            let stream = self.channels.get(index).and_then(Channel::stream).map(|stream| stream.id);
            let Some(stream) = stream else { continue };
            for kind in ResourceKind::ALL {
                let Some(request) = self.request(now, index, kind) else { continue };
                if request.error.is_some() {
                    out.push(Out::Metric(XdsMetric::Nack { server: ServerId(index), kind }));
                }
                out.push(Out::Call(DriverCall::Send(stream, request)));
            }
        }
    }

    /// Publishes the numbers of resources by state that have changed.
    fn count(&mut self, out: &mut Vec<Out>) {
        let mut counts: BTreeMap<(ResourceKind, CacheState), u64> =
            self.counts.keys().map(|label| (*label, 0)).collect();
        for entry in self.cache.entries() {
            *counts.entry((entry.key.kind, entry.cache_state())).or_default() += 1;
        }
        for (&(kind, state), &count) in &counts {
            if self.counts.get(&(kind, state)) != Some(&count) {
                out.push(Out::Metric(XdsMetric::Resources { kind, state, count }));
            }
        }
        self.counts = counts;
    }

    /// Checks the invariants of the client.
    fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        for (index, channel) in self.channels.iter().enumerate() {
            channel.check(index < self.used)?;
        }
        let at_rest = self.watches_nothing() || self.channels.is_empty() || self.is_over;
        rule(at_rest == (self.used == 0), "nothing is asked for that is watched, or the other way round")?;
        let mut higher = self.channels.iter().take(self.used.saturating_sub(1));
        rule(higher.all(|channel| channel.failure.is_some()), "a lower server is in use without need")?;
        rule(
            !(self.last_fails() && self.lacks()) || self.used == self.channels.len(),
            "a lower server is not in use in need",
        )?;
        let names = ResourceKind::ALL.into_iter().map(|kind| self.watched.get(kind).len()).sum::<usize>();
        rule(names == self.cache.entries().count(), "something is watched and not cached")?;
        rule(
            self.unprocessed.is_none_or(|unprocessed| unprocessed.0 <= self.updates),
            "an update is waited for that no watcher got",
        )?;
        rule(self.cache.is_sound(), "the cache is not sound")
    }
}

impl Machine for Client {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        if self.is_over {
            return;
        }
        let mut turn = Turn::new(now, out);
        match input {
            In::Watch(key, watcher) => self.on_watch(key, watcher, &mut turn),
            In::Unwatch(key, watcher) => self.on_unwatch(&key, watcher, &mut turn),
            In::Processed(update) => self.on_processed(update, now),
            In::StreamEvent(event) => self.on_stream_event(event, &mut turn),
            In::Shutdown => {
                self.is_over = true;
                self.cache.stop_timers();
                self.release_from(0, &mut turn);
            }
        }
        self.end_turn(turn);
    }

    fn deadline(&self) -> Option<Now> {
        let servers = self.channels.iter().filter_map(Channel::deadline).min();
        if self.unprocessed.is_some() {
            // While nothing is read, no resource is late.
            return servers;
        }
        let reads = self.channels.iter().filter_map(Channel::read_at).min();
        let late = self.cache.deadline().map(|at| at.max(self.catches_up_until()));
        earliest(earliest(servers, reads), late.filter(|at| *at < Now::NEVER))
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        let mut turn = Turn::new(now, out);
        if self.unprocessed.is_none() {
            if self.catches_up_until() <= now {
                self.expire(&mut turn);
            }
            // A resource that was answered on an earlier stream may be missing now, while the server still fails.
            self.fall_back(&mut turn);
        }
        for index in 0..self.used {
            if self.channels.get(index).is_some_and(|channel| channel.is_due(now)) {
                self.open(index, &mut turn);
            }
        }
        self.end_turn(turn);
    }
}
