//! Follows xDS resources over aggregated streams, state of the world (X2): which server is asked for what, ACKs and
//! NACKs, versions and nonces, the waits between streams, and the fallback from one server to the next.
//!
//! It owns the protocol and the cache of what came by it (X1). Connections are the driver's: it opens streams, sends
//! what it is told, says what the transport has pulled, reads a message when it has leave to, hands it over decoded,
//! and says how a stream has ended. What watchers make of their news is theirs.
//!
//! The driver says what it hears in the order in which it happens. Of a message that it cannot decode it says that one
//! was read; one of a type that was not asked for is handed over like any other.

mod channel;
mod judge;
mod pace;
mod servers;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::resource_cache::{Notice, ResourceCache};
use channel::Channel;
use judge::{Finding, ResponseVerdict, deletion, judge};
use model::machine::{Machine, Now, Wall, earliest};
use model::xds::Value;
use model::xds::cache::{CacheState, Cached};
use model::xds::dump::{Dump, ResourceDump, ServerDump};
use model::xds::facts::{Key, Kind, Response};
use model::xds::stream::{Call, Ended, Heard, Nack, Request, Server, ServerId, StreamId, XdsMetric};
use stream::{PerKind, Stream};

pub use pace::Waits;

/// What a client is told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// The servers, in the order of preference (A71). Without any, nothing is ever asked for.
    pub servers: Vec<Server>,
    /// The waits between the streams to a server: [`Waits::STREAMS`] (A57).
    pub backoff: Waits,
    /// The waits before NACKs that repeat the one before: [`Waits::NACKS`].
    pub nack_pace: Waits,
}

/// What watchers were told at one time; later ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UpdateId(pub u64);

/// Who watches a resource: an id of the caller's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Watcher(pub u64);

/// What a client can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// A watcher subscribes to a resource, by a name that is not empty.
    Watch(Key, Watcher),
    /// A watcher unsubscribes from it.
    Unwatch(Key, Watcher),
    /// All that watchers were told up to this update is recorded, also for watchers that are gone.
    Processed(UpdateId),
    /// Something has happened on a stream.
    Heard(Heard),
    /// All streams are to be closed, and nothing is to follow.
    Shutdown,
}

impl From<Heard> for In {
    fn from(heard: Heard) -> In {
        In::Heard(heard)
    }
}

/// What a client can say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Out {
    /// To the driver.
    Call(Call),
    /// To a watcher. The one that records it says so with [`In::Processed`].
    Notice(UpdateId, Told),
    /// To the metrics.
    Metric(XdsMetric),
}

/// What a watcher is told.
pub type Told = Notice<Key, Value, Watcher>;

/// The client of all servers of one list (X2).
#[derive(Debug)]
pub struct Client {
    params: Params,
    cache: ResourceCache<Key, Value, Watcher>,
    /// The names that are watched.
    watched: PerKind<BTreeSet<Arc<str>>>,
    channels: Vec<Channel>,
    /// How many servers are in use, from the first of the list on. All but the last of them fail; the last is the one
    /// that counts: its features hold, its failure is told, and the timers are those of its stream (A71).
    used: usize,
    /// The last stream's number.
    streams: u64,
    /// The last update's number.
    updates: u64,
    /// What watchers were told after the last response, until they have recorded it: nothing is read before.
    held: Option<UpdateId>,
    /// What did not come in time on streams without any response, since one last came: no server has said that it
    /// does not exist (A71).
    unanswered: BTreeSet<Key>,
    /// How many watched resources the metrics were told of.
    counts: BTreeMap<(Kind, CacheState), u64>,
    is_over: bool,
}

/// One step: when it is, and what comes of it.
struct Turn<'a> {
    now: Now,
    out: &'a mut Vec<Out>,
    news: Vec<Told>,
    /// Whether resources may have changed their states.
    is_moved: bool,
    /// Whether it handles a response.
    is_response: bool,
}

impl<'a> Turn<'a> {
    fn new(now: Now, out: &'a mut Vec<Out>) -> Turn<'a> {
        Turn { now, out, news: Vec::new(), is_moved: false, is_response: false }
    }

    fn measure(&mut self, sample: XdsMetric) {
        self.out.push(Out::Metric(sample));
    }
}

impl Client {
    /// A client without requests.
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
            held: None,
            unanswered: BTreeSet::new(),
            counts: BTreeMap::new(),
            is_over: false,
            params,
        }
    }

    /// All that is known, for operators (CSDS, H3).
    #[must_use]
    pub fn dump(&self) -> Dump {
        let servers = self.channels.iter().enumerate().map(|(place, channel)| ServerDump {
            uri: Arc::clone(&channel.server.uri),
            is_used: place < self.used,
            is_connected: place < self.used && channel.failure.is_none(),
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

    fn on_watch(&mut self, key: Key, watcher: Watcher, turn: &mut Turn<'_>) {
        let kind = key.kind;
        let is_new = self.watched.get_mut(kind).insert(Arc::clone(&key.name));
        turn.is_moved = true;
        self.cache.watch(key, watcher, &mut turn.news);
        if !is_new {
            return;
        }
        for stream in self.channels.iter_mut().filter_map(Channel::stream_mut) {
            stream.line_mut(kind).on_watched();
        }
        if self.used == 0 {
            self.use_next(turn);
        } else {
            self.fall_back(turn);
        }
    }

    fn on_unwatch(&mut self, key: &Key, watcher: Watcher, turn: &mut Turn<'_>) {
        if !self.cache.unwatch(key, &watcher) {
            return;
        }
        turn.is_moved = true;
        self.unanswered.remove(key);
        self.watched.get_mut(key.kind).remove(&key.name);
        for stream in self.channels.iter_mut().filter_map(Channel::stream_mut) {
            stream.line_mut(key.kind).on_dropped(&key.name);
        }
        if self.watches_nothing() {
            self.release_from(0, turn);
            self.cache.disarm();
            self.cache.connected(&mut turn.news);
            self.held = None;
        }
    }

    /// Until when messages of the server that counts may lie unread because too many have come.
    fn catches_up_until(&self) -> Now {
        let last = self.used.checked_sub(1).and_then(|place| self.channels.get(place));
        last.and_then(Channel::catches_up_until).unwrap_or(Now::ZERO)
    }

    fn watches_nothing(&self) -> bool {
        Kind::ALL.into_iter().all(|kind| self.watched.get(kind).is_empty())
    }

    /// Where in the list the server of this open stream is.
    fn place_of(&self, id: StreamId) -> Option<usize> {
        let has = |channel: &Channel| channel.stream().is_some_and(|stream| stream.id == id);
        self.channels.iter().position(has)
    }

    fn on_heard(&mut self, heard: Heard, turn: &mut Turn<'_>) {
        match heard {
            Heard::Dispatched(stream) => self.on_dispatched(stream, turn.now),
            Heard::Sent(stream, kind) => self.on_sent(stream, kind, turn.now),
            Heard::Response(stream, response, at) => self.on_response(stream, &response, at, turn),
            Heard::Illegible(stream) => self.on_illegible(stream),
            Heard::Ended { stream, ended, jitter } => self.on_ended(stream, &ended, jitter, turn),
        }
    }

    fn on_dispatched(&mut self, id: StreamId, now: Now) {
        let Some(stream) = self.stream_mut(id) else { return };
        Kind::ALL.into_iter().for_each(|kind| stream.line_mut(kind).on_dispatched());
        self.arm(now);
    }

    fn on_sent(&mut self, id: StreamId, kind: Kind, now: Now) {
        let Some(stream) = self.stream_mut(id) else { return };
        stream.line_mut(kind).on_sent();
        self.arm(now);
    }

    fn stream_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.channels.iter_mut().filter_map(Channel::stream_mut).find(|stream| stream.id == id)
    }

    fn on_response(&mut self, id: StreamId, response: &Response, at: Wall, turn: &mut Turn<'_>) {
        let Some(place) = self.place_of(id) else { return };
        let Some(channel) = self.channels.get_mut(place) else { return };
        channel.on_read();
        // What was not asked for is no answer: it is neither accepted nor rejected, and says nothing of the server.
        let Some(kind) = Kind::of_type_url(&response.type_url) else { return };
        let is_first = channel.on_heard(turn.now);
        turn.is_moved = true;
        turn.is_response = true;
        self.on_dispatched(id, turn.now);
        if is_first {
            self.on_first_response(place, turn);
        }
        let mut verdict = judge(kind, response, at, self.watched.get(kind));
        turn.measure(XdsMetric::Updates {
            server: ServerId(place),
            kind,
            valid: verdict.valid,
            invalid: verdict.invalid,
        });
        if let Some(channel) = self.channels.get_mut(place) {
            let complaint = std::mem::take(&mut verdict.complaints).message();
            channel.owe(kind, &verdict.version, &response.nonce, complaint, verdict.valid > 0);
        }
        if verdict.valid > 0 {
            let others = self.channels.iter_mut().enumerate().filter(|(n, _)| *n != place);
            others.for_each(|(_, channel)| channel.forget_version(kind));
        }
        self.apply(place, kind, verdict, at, turn);
    }

    /// A message was read that says nothing. The next one is read when it may be, as after any other (flow control).
    fn on_illegible(&mut self, id: StreamId) {
        if let Some(stream) = self.stream_mut(id) {
            stream.wants_read = true;
        }
    }

    /// Puts into the cache what a response says.
    fn apply(&mut self, place: usize, kind: Kind, verdict: ResponseVerdict, at: Wall, turn: &mut Turn<'_>) {
        let ResponseVerdict { findings, version, is_legible, .. } = verdict;
        let stream = self.channels.get_mut(place).and_then(Channel::stream_mut);
        let Some(line) = stream.map(|stream| stream.line_mut(kind)) else { return };
        let mut seen = BTreeSet::new();
        for (name, finding) in findings {
            seen.insert(Arc::clone(&name));
            match finding {
                Finding::Valid(value, raw) => {
                    let (raw, version) = (Some(raw), Arc::clone(&version));
                    line.on_seen(&name);
                    let provenance = line.on_valid(&name);
                    let cached = Cached { value, raw, version, updated: at, provenance };
                    self.cache.received(Key::new(kind, name), cached, &mut turn.news);
                }
                Finding::Invalid(error) => {
                    line.on_seen(&name);
                    self.cache.invalid(Key::new(kind, name), error, &mut turn.news);
                }
                Finding::Reported(error) => {
                    line.on_answered(&name);
                    line.on_reported(&name);
                    self.cache.reported(Key::new(kind, name), error, &mut turn.news);
                }
                Finding::Unclear => line.on_reported(&name),
            }
        }
        if kind.is_complete() && is_legible {
            for name in line.missing(&seen) {
                let key = Key::new(kind, Arc::clone(&name));
                if self.cache.get(&key).is_some_and(|entry| entry.cached.is_some()) {
                    line.on_answered(&name);
                    self.cache.deleted(key, deletion(&version, at), &mut turn.news);
                }
            }
        }
    }

    fn on_processed(&mut self, update: UpdateId, now: Now) {
        if update.0 > self.updates || self.held.is_none_or(|held| held > update) {
            return;
        }
        self.held = None;
        // Nothing was read meanwhile: what seems to be late may have come, and be read only now.
        if self.cache.deadline().is_some_and(|at| at <= now) {
            self.cache.disarm();
            self.arm(now);
        }
    }

    /// Says what has come of a step, sends what is to be sent, and lets be read what may be.
    fn end_turn(&mut self, turn: Turn<'_>) {
        let Turn { now, out, news, is_moved, is_response } = turn;
        if is_moved || !news.is_empty() {
            self.count(out);
        }
        if !news.is_empty() {
            let update = UpdateId(self.updates + 1);
            self.updates = update.0;
            if is_response {
                self.held = Some(update);
            }
            out.extend(news.into_iter().map(|told| Out::Notice(update, told)));
        }
        self.send(now, out);
        if self.held.is_none() {
            let streams = self.channels.iter_mut().filter_map(|channel| channel.read(now));
            out.extend(streams.map(|stream| Out::Call(Call::Read(stream))));
        }
        debug_assert_eq!(self.check(), Ok(()));
    }

    fn send(&mut self, now: Now, out: &mut Vec<Out>) {
        for place in 0..self.used {
            let stream = self.channels.get(place).and_then(Channel::stream).map(|stream| stream.id);
            let Some(stream) = stream else { continue };
            for kind in Kind::ALL {
                let Some(request) = self.request(now, place, kind) else { continue };
                if request.error.is_some() {
                    out.push(Out::Metric(XdsMetric::Nack { server: ServerId(place), kind }));
                }
                out.push(Out::Call(Call::Send(stream, request)));
            }
        }
    }

    /// Tells the metrics how many resources are in which state, where that has changed.
    fn count(&mut self, out: &mut Vec<Out>) {
        let mut counts: BTreeMap<(Kind, CacheState), u64> =
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

    /// The invariants of the client.
    fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        for (place, channel) in self.channels.iter().enumerate() {
            channel.check(place < self.used)?;
        }
        let at_rest = self.watches_nothing() || self.channels.is_empty() || self.is_over;
        rule(at_rest == (self.used == 0), "nothing is asked for that is watched, or the other way round")?;
        let mut higher = self.channels.iter().take(self.used.saturating_sub(1));
        rule(higher.all(|channel| channel.failure.is_some()), "a lower server is in use without need")?;
        rule(
            !(self.last_fails() && self.lacks()) || self.used == self.channels.len(),
            "a lower server is not in use in need",
        )?;
        let names = Kind::ALL.into_iter().map(|kind| self.watched.get(kind).len()).sum::<usize>();
        rule(names == self.cache.entries().count(), "something is watched and not cached")?;
        rule(
            self.held.is_none_or(|held| held.0 <= self.updates),
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
            In::Heard(heard) => self.on_heard(heard, &mut turn),
            In::Shutdown => {
                self.is_over = true;
                self.cache.disarm();
                self.release_from(0, &mut turn);
            }
        }
        self.end_turn(turn);
    }

    fn deadline(&self) -> Option<Now> {
        let servers = self.channels.iter().filter_map(Channel::deadline).min();
        if self.held.is_some() {
            // While nothing is read, nothing is late.
            return servers;
        }
        let reads = self.channels.iter().filter_map(Channel::read_at).min();
        let late = self.cache.deadline().map(|at| at.max(self.catches_up_until()));
        earliest(earliest(servers, reads), late.filter(|at| *at < Now::NEVER))
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        let mut turn = Turn::new(now, out);
        if self.held.is_none() {
            if self.catches_up_until() <= now {
                self.expire(&mut turn);
            }
            // A resource that was answered on an earlier stream may be missing now, while the server still fails.
            self.fall_back(&mut turn);
        }
        for place in 0..self.used {
            if self.channels.get(place).is_some_and(|channel| channel.is_due(now)) {
                self.open(place, &mut turn);
            }
        }
        self.end_turn(turn);
    }
}
