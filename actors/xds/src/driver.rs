//! Opens the aggregated streams that the client's machine requests, and reports the events on them, in order (X2).
//!
//! It owns connections, their credentials and the transport. `sources::xds::client` decides when to open a stream,
//! what to send, when to read a message, and what follows from one. Each stream has its own task and connection, so
//! that streams do not affect each other.

mod connection;
mod credentials;
mod dialer;
mod outbound;
mod preface;
mod stream;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::machine::Wall;
use model::xds::stream::{ServerId, StreamEvent, StreamId, XdsRequest};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::task::AbortOnDropHandle;

use crate::bootstrap::{Bootstrap, Node, USER_AGENT};
use crate::encode;
use outbound::{Outbound, Outgoing};
use stream::Stream;
#[cfg(test)]
pub(crate) use wire::RawCodec;

/// Returns the wall time.
type WallClock = Arc<dyn Fn() -> Wall + Send + Sync>;

/// Returns a random number from 0 to 1000.
type Jitter = Arc<dyn Fn() -> u16 + Send + Sync>;

/// The driver of the client's machine. Dropping it closes all streams.
pub struct Driver {
    bootstrap: Arc<Bootstrap>,
    node: Node,
    agent: String,
    events: UnboundedSender<StreamEvent>,
    wall: WallClock,
    jitter: Jitter,
    streams: BTreeMap<StreamId, Handle>,
}

/// A stream whose task runs or has ended.
struct Handle {
    requests: UnboundedSender<Outgoing>,
    reads: UnboundedSender<()>,
    task: AbortOnDropHandle<()>,
}

impl Driver {
    /// Creates a driver without streams, for the servers of this bootstrap. `version` is reported to control planes.
    /// Events go to the sender, with times from `wall`. `jitter` returns a random number, 0 to 1000, for the end of a
    /// stream.
    #[must_use]
    pub fn new(
        bootstrap: Arc<Bootstrap>,
        version: &str,
        events: UnboundedSender<StreamEvent>,
        wall: impl Fn() -> Wall + Send + Sync + 'static,
        jitter: impl Fn() -> u16 + Send + Sync + 'static,
    ) -> Driver {
        let node = bootstrap.node(version);
        let agent = format!("{USER_AGENT}/{version}");
        let (wall, jitter) = (Arc::new(wall), Arc::new(jitter));
        Driver { bootstrap, node, agent, events, wall, jitter, streams: BTreeMap::new() }
    }

    /// Opens a stream to a server, and sends these requests, at least one, before it waits for anything. Events follow:
    /// [`StreamEvent::Dispatched`] when a connected transport has pulled all of them, [`StreamEvent::Sent`] for each
    /// later one, [`StreamEvent::Response`] for each message that may be read, and at last [`StreamEvent::Ended`]. The
    /// last one comes once, unless the stream is closed before.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn open(&mut self, stream: StreamId, server: ServerId, first: Vec<XdsRequest>) {
        self.streams.retain(|_, handle| !handle.task.is_finished());
        let Some(config) = self.bootstrap.configs().get(server.0).cloned() else {
            let message = format!("the bootstrap has no server {}", server.0);
            // A closed channel means that the event is not needed.
            let ended = connection::unavailable(message);
            drop(self.events.send(StreamEvent::Ended { stream, ended, jitter: (self.jitter)() }));
            return;
        };
        let (requests, to_send) = unbounded_channel();
        let (reads, to_read) = unbounded_channel();
        let (pulls, pulled) = unbounded_channel();
        let count = first.len();
        let outgoing: Vec<Outgoing> = first.iter().map(|request| self.outgoing(request)).collect();
        outgoing.into_iter().for_each(|request| pass(&requests, request));
        let task = Stream {
            id: stream,
            config,
            agent: self.agent.clone(),
            events: self.events.clone(),
            wall: Arc::clone(&self.wall),
            jitter: Arc::clone(&self.jitter),
            to_read,
            pulled,
            has_response: false,
        };
        let task = tokio::spawn(task.run(Outbound::new(to_send, count, pulls)));
        self.streams.insert(stream, Handle { requests, reads, task: AbortOnDropHandle::new(task) });
    }

    /// Sends a request after the earlier ones. Has no effect on a stream that has ended.
    pub fn send(&mut self, stream: StreamId, request: &XdsRequest) {
        if let Some(handle) = self.streams.get(&stream) {
            pass(&handle.requests, self.outgoing(request));
        }
    }

    /// Allows one more message of the stream to be read. Without permission nothing is read, so the end of the stream
    /// is not noticed either.
    pub fn read(&mut self, stream: StreamId) {
        if let Some(handle) = self.streams.get(&stream) {
            pass(&handle.reads, ());
        }
    }

    /// Closes a stream with its connection. No events follow; earlier ones may still be in the channel.
    pub fn close(&mut self, stream: StreamId) {
        self.streams.remove(&stream);
    }

    fn outgoing(&self, request: &XdsRequest) -> Outgoing {
        Outgoing { kind: request.kind, bytes: encode::request(request, &self.node) }
    }
}

/// Passes something to a stream's task. A task that has ended does not need it.
fn pass<T>(to: &UnboundedSender<T>, what: T) {
    drop(to.send(what));
}
