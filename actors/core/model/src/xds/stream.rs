//! What the client of xDS servers and its driver say to each other, and what is counted (docs/design/xds.md, X2).

use std::sync::Arc;

use crate::machine::Wall;
use crate::xds::cache::{CacheState, Policy};
use crate::xds::facts::{Code, Kind, Response};

/// A server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// Its target.
    pub uri: Arc<str>,
    /// What it is known to do.
    pub policy: Policy,
}

/// A server, by its place in the list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerId(pub usize);

/// A stream; later ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u64);

/// What the driver says of streams. What is said of one that is over is passed over.
#[derive(Clone, Debug)]
pub enum Heard {
    /// A connected transport has pulled the requests that the stream was opened with (A57).
    Dispatched(StreamId),
    /// It has pulled the request that was sent later.
    Sent(StreamId, Kind),
    /// A message came, at this time.
    Response(StreamId, Response, Wall),
    /// A message came that cannot be decoded: it is no response, and the next one may be read.
    Illegible(StreamId),
    /// The stream is over, or there never was one.
    Ended {
        /// Which.
        stream: StreamId,
        /// How.
        ended: Ended,
        /// A random number, 0 to 1000, which spreads the next try.
        jitter: u16,
    },
}

/// How a stream has ended, as the transport says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The status; [`Code::Ok`]: the server closed it in good order.
    pub code: Code,
    /// In the transport's words.
    pub message: String,
}

/// What the driver is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// Open a stream and send these, at least one, before waiting for anything.
    Open {
        /// The id that all that is said of it carries.
        stream: StreamId,
        /// To which server.
        server: ServerId,
        /// What is asked for first.
        first: Vec<Request>,
    },
    /// Send this behind what was told before.
    Send(StreamId, Request),
    /// Read one more message.
    Read(StreamId),
    /// Close the stream. Nothing more of it is heard.
    Close(StreamId),
}

/// A `DiscoveryRequest`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its type URL.
    pub kind: Kind,
    /// The version that was accepted last, of this server; empty: none.
    pub version: Arc<str>,
    /// The nonce of the last response of this kind on this stream; empty: there was none.
    pub nonce: Arc<str>,
    /// All names that are asked for, in order.
    pub names: Vec<Arc<str>>,
    /// Why that response is rejected.
    pub error: Option<Nack>,
    /// Whether the node goes with it: in the first request of a stream, and in no other.
    pub node: bool,
}

/// The `error_detail` of a request; its code is [`Code::InvalidArgument`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nack {
    /// Each thing that was invalid.
    pub message: Arc<str>,
}

/// What is measured (A78).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XdsMetric {
    /// Whether a server is connected; `None`: it is not in use any more.
    Connected {
        /// Which.
        server: ServerId,
        /// Whether it is.
        connected: Option<bool>,
    },
    /// A server that was connected is not.
    ServerFailure(ServerId),
    /// A response came with so many resources.
    Updates {
        /// From which server.
        server: ServerId,
        /// Of which kind.
        kind: Kind,
        /// Valid ones, changed or not.
        valid: u64,
        /// Invalid ones, and errors in their places.
        invalid: u64,
    },
    /// A response was rejected.
    Nack {
        /// Of which server.
        server: ServerId,
        /// Of which kind.
        kind: Kind,
    },
    /// How many watched resources are in a state.
    Resources {
        /// Of which kind.
        kind: Kind,
        /// The state.
        state: CacheState,
        /// How many.
        count: u64,
    },
}
