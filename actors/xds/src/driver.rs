//! Opens the aggregated streams that the client's machine wants, and says what happens on them, in order (X2).
//!
//! It owns connections, their credentials and the transport. When a stream is opened, what is sent on it, when a
//! message is read and what follows from one are [`sources::xds::client`]'s. Each stream has a task and a connection
//! of its own, so that nothing of one is in the way of another.

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

/// Tells the time on the wall.
type WallClock = Arc<dyn Fn() -> Wall + Send + Sync>;

/// Gives a random number, 0 to 1000.
type Jitter = Arc<dyn Fn() -> u16 + Send + Sync>;

/// The driver of the client's machine. When it is dropped all streams are closed.
pub struct Driver {
    bootstrap: Arc<Bootstrap>,
    node: Node,
    agent: String,
    told: UnboundedSender<StreamEvent>,
    wall: WallClock,
    jitter: Jitter,
    streams: BTreeMap<StreamId, Handle>,
}

/// A stream whose task runs, or has ended.
struct Handle {
    requests: UnboundedSender<Outgoing>,
    reads: UnboundedSender<()>,
    task: AbortOnDropHandle<()>,
}

impl Driver {
    /// A driver without streams, for the servers of this bootstrap. It gives its version to control planes, says what
    /// happens to `told`, stamps what it receives by `wall`, and gives a random number, 0 to 1000, with the end of a stream.
    #[must_use]
    pub fn new(
        bootstrap: Arc<Bootstrap>,
        version: &str,
        told: UnboundedSender<StreamEvent>,
        wall: impl Fn() -> Wall + Send + Sync + 'static,
        jitter: impl Fn() -> u16 + Send + Sync + 'static,
    ) -> Driver {
        let node = bootstrap.node(version);
        let agent = format!("{USER_AGENT}/{version}");
        let (wall, jitter) = (Arc::new(wall), Arc::new(jitter));
        Driver { bootstrap, node, agent, told, wall, jitter, streams: BTreeMap::new() }
    }

    /// Opens a stream to a server and sends these, at least one, before it waits for anything. From then on it is
    /// told: [`StreamEvent::Dispatched`] when a connected transport has pulled them all, [`StreamEvent::Sent`] for each later one,
    /// [`StreamEvent::Response`] for each message that may be read, and at last [`StreamEvent::Ended`], once, unless it is closed before.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn open(&mut self, stream: StreamId, server: ServerId, first: Vec<XdsRequest>) {
        self.streams.retain(|_, handle| !handle.task.is_finished());
        let Some(config) = self.bootstrap.configs().get(server.0).cloned() else {
            let message = format!("the bootstrap has no server {}", server.0);
            // Where there is no listener any more it is not missed.
            let ended = connection::unavailable(message);
            drop(self.told.send(StreamEvent::Ended { stream, ended, jitter: (self.jitter)() }));
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
            told: self.told.clone(),
            wall: Arc::clone(&self.wall),
            jitter: Arc::clone(&self.jitter),
            to_read,
            pulled,
            is_heard: false,
        };
        let task = tokio::spawn(task.run(Outbound::new(to_send, count, pulls)));
        self.streams.insert(stream, Handle { requests, reads, task: AbortOnDropHandle::new(task) });
    }

    /// Sends a request behind what was sent before. On a stream that is over it is nothing.
    pub fn send(&mut self, stream: StreamId, request: &XdsRequest) {
        if let Some(handle) = self.streams.get(&stream) {
            pass(&handle.requests, self.outgoing(request));
        }
    }

    /// Reads one more message of the stream. Without leave nothing is read, and so it is not noticed that the stream has
    /// ended.
    pub fn read(&mut self, stream: StreamId) {
        if let Some(handle) = self.streams.get(&stream) {
            pass(&handle.reads, ());
        }
    }

    /// Closes a stream with its connection. Nothing more is said of it; what was said before may not have been heard.
    pub fn close(&mut self, stream: StreamId) {
        self.streams.remove(&stream);
    }

    fn outgoing(&self, request: &XdsRequest) -> Outgoing {
        Outgoing { kind: request.kind, bytes: encode::request(request, &self.node) }
    }
}

/// Hands something to a stream's task. One that has ended needs it no more.
fn pass<T>(to: &UnboundedSender<T>, what: T) {
    drop(to.send(what));
}
