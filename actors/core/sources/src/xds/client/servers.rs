//! The servers in use, and the start and end of their streams (A57, A71).

use std::sync::Arc;

use super::channel::{Channel, ChannelEnd};
use super::{Client, DriverCall, Out, ServerId, StreamEnd, StreamId, Turn, XdsMetric, XdsRequest};
use model::machine::Now;
use model::xds::cache::{Error, Reason, ResourceState};
use model::xds::facts::{Code, ResourceKey, ResourceKind};

impl Client {
    /// Starts to use the next server of the list. All watched resources are requested from it; cached ones stay (A71).
    pub(super) fn use_next(&mut self, turn: &mut Turn<'_>) {
        let index = self.used;
        let Some(channel) = self.channels.get_mut(index) else { return };
        // The stream is opened by the deadline, even if that is now, so that all resources watched by then go into one
        // request.
        channel.await_stream(turn.now);
        self.cache.stop_timers();
        self.cache.set_policy(channel.server.policy);
        self.used += 1;
        turn.measure(XdsMetric::Connected { server: ServerId(index), connected: Some(true) });
    }

    /// Returns the last server in use, which is the decisive one.
    pub(super) fn last(&self) -> Option<&Channel> {
        self.channels.get(self.used.checked_sub(1)?)
    }

    /// Returns true if the last server in use fails.
    pub(super) fn last_fails(&self) -> bool {
        self.last().is_some_and(|channel| channel.failure.is_some())
    }

    /// Starts to use the next server if the last one fails and a resource is lacking. Returns true if it did.
    pub(super) fn fall_back(&mut self, turn: &mut Turn<'_>) -> bool {
        if !self.last_fails() || self.used >= self.channels.len() {
            return false;
        }
        let lacks = self.lacks();
        if lacks {
            self.use_next(turn);
        }
        lacks
    }

    /// Returns true if no server has answered for some watched resource. Invalid and non-existing resources do not
    /// count. A resource that did not arrive in time counts if the server sent no response either, or if lateness is a
    /// transient error of the server (A71, `resource_timer_is_transient_error`).
    pub(super) fn lacks(&self) -> bool {
        self.cache.entries().any(|entry| match entry.state {
            ResourceState::Requested | ResourceState::Timeout => true,
            ResourceState::DoesNotExist => self.unanswered.contains(entry.key),
            ResourceState::Acked | ResourceState::Nacked | ResourceState::ReceivedError => false,
        })
    }

    /// Expires late resources: they do not exist, or the server is slow (A57).
    pub(super) fn expire(&mut self, turn: &mut Turn<'_>) {
        let late = self.cache.tick(turn.now, &mut turn.notices);
        let last = self.used.checked_sub(1).and_then(|index| self.channels.get_mut(index));
        let Some(stream) = last.and_then(Channel::stream_mut) else { return };
        late.iter().for_each(|key| stream.subscription_mut(key.kind).on_answered(&key.name));
        if stream.first_response_at.is_none() {
            self.unanswered.extend(late);
        }
    }

    /// Takes the servers from `index` on out of use.
    pub(super) fn release_from(&mut self, index: usize, turn: &mut Turn<'_>) {
        let first_wait = self.params.backoff.first;
        for (n, channel) in self.channels.iter_mut().enumerate().take(self.used).skip(index) {
            if let Some(stream) = channel.release(turn.now, first_wait) {
                turn.out.push(Out::Call(DriverCall::Close(stream)));
            }
            turn.measure(XdsMetric::Connected { server: ServerId(n), connected: None });
        }
        self.used = self.used.min(index);
    }

    /// Opens a stream and requests everything on it.
    pub(super) fn open(&mut self, index: usize, turn: &mut Turn<'_>) {
        let stream = StreamId(self.streams + 1);
        self.streams = stream.0;
        let Some(channel) = self.channels.get_mut(index) else { return };
        channel.open(stream);
        let mut first: Vec<XdsRequest> =
            ResourceKind::ALL.into_iter().filter_map(|kind| self.request(turn.now, index, kind)).collect();
        debug_assert!(!first.is_empty(), "a stream is opened for nothing");
        if let Some(request) = first.first_mut() {
            request.node = true;
        }
        if let Some(channel) = self.channels.get_mut(index) {
            channel.on_opening();
        }
        turn.out.push(Out::Call(DriverCall::Open { stream, server: ServerId(index), first }));
    }

    /// Returns the request of this kind to send to this server now.
    pub(super) fn request(&mut self, now: Now, index: usize, kind: ResourceKind) -> Option<XdsRequest> {
        let channel = self.channels.get_mut(index)?;
        let watched = self.watched.get(kind);
        let is_acked = |name: &Arc<str>| {
            self.cache
                .get(&ResourceKey::new(kind, Arc::clone(name)))
                .is_some_and(|entry| entry.state == ResourceState::Acked)
        };
        // A server that knows our version may send nothing: neither the end of an error, nor the error again, nor a
        // sign that it is connected again.
        let claims =
            !channel.is_first_request(kind) || (channel.failure.is_none() && watched.iter().all(is_acked));
        channel.request(now, kind, watched, claims)
    }

    /// Starts the timers of resources whose requests the transport of the last server has taken. Each resource is
    /// timed once per stream (A57).
    pub(super) fn arm(&mut self, now: Now) {
        // `last()` would borrow all of `self`, including the cache.
        let last = self.used.checked_sub(1).and_then(|index| self.channels.get(index));
        let Some(stream) = last.and_then(Channel::stream) else { return };
        for kind in ResourceKind::ALL {
            let awaited = stream.subscription(kind).awaited();
            let keys: Vec<ResourceKey> =
                awaited.map(|name| ResourceKey::new(kind, Arc::clone(name))).collect();
            self.cache.sent(now, &keys);
        }
    }

    /// Handles the first response of a server: it becomes the last server in use, and watchers are notified that it is
    /// connected (A57, A71).
    pub(super) fn on_first_response(&mut self, index: usize, turn: &mut Turn<'_>) {
        turn.measure(XdsMetric::Connected { server: ServerId(index), connected: Some(true) });
        self.unanswered.clear();
        if self.used > index + 1 {
            self.release_from(index + 1, turn);
            if let Some(channel) = self.channels.get(index) {
                self.cache.set_policy(channel.server.policy);
            }
            self.cache.stop_timers();
            self.arm(turn.now);
        }
        self.cache.connected(&mut turn.notices);
    }

    pub(super) fn on_ended(&mut self, id: StreamId, ended: &StreamEnd, jitter: u16, turn: &mut Turn<'_>) {
        let Some(index) = self.index_of(id) else { return };
        let is_last = index + 1 == self.used;
        if is_last {
            self.cache.stop_timers();
        }
        let Some(channel) = self.channels.get_mut(index) else { return };
        let end = channel.on_ended(turn.now, ended, &self.params.backoff, jitter);
        let failure = channel.failure.clone();
        match end {
            ChannelEnd::Answered => return,
            ChannelEnd::Failed => {
                let server = ServerId(index);
                turn.measure(XdsMetric::Connected { server, connected: Some(false) });
                turn.measure(XdsMetric::ServerFailure(server));
            }
            ChannelEnd::StillFailing => {}
        }
        let Some(message) = failure.filter(|_| is_last) else { return };
        if !self.fall_back(turn) {
            let reason = Reason::Connectivity;
            let error = Error { reason, code: Code::Unavailable, message, rejected: None };
            self.cache.connectivity(error, &mut turn.notices);
        }
    }
}
