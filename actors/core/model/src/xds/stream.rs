//! Messages between the client of xDS servers and its driver, and the client's metrics (docs/design/xds.md, X2).

use std::sync::Arc;

use crate::machine::Wall;
use crate::xds::cache::{CacheState, Policy};
use crate::xds::facts::{Code, ResourceKind, Response};

/// A server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// Its target.
    pub uri: Arc<str>,
    /// Its server features.
    pub policy: Policy,
}

/// A server, by its index in the configured list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerId(pub usize);

/// A stream. Later streams have greater ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u64);

/// A message from the driver about a stream. The client ignores messages about streams that are over.
#[derive(Clone, Debug)]
pub enum StreamEvent {
    /// A connected transport has taken the requests that the stream was opened with (A57).
    Dispatched(StreamId),
    /// A connected transport has taken a later request.
    Sent(StreamId, ResourceKind),
    /// A response arrived, at this time.
    Response(StreamId, Response, Wall),
    /// A message arrived that cannot be decoded. It is not a response, and the next one may be read.
    Undecodable(StreamId),
    /// The stream is over, or could not be opened.
    Ended {
        /// The stream.
        stream: StreamId,
        /// How it ended.
        ended: StreamEnd,
        /// A random number from 0 to 1000 that spreads the next try.
        jitter: u16,
    },
}

/// How a stream ended, as the transport reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamEnd {
    /// The status; [`Code::Ok`]: the server closed the stream in good order.
    pub code: Code,
    /// The transport's message.
    pub message: String,
}

/// A call to the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DriverCall {
    /// Open a stream and send these requests, at least one, before waiting for an answer.
    Open {
        /// The id of the stream in all its messages.
        stream: StreamId,
        /// The server.
        server: ServerId,
        /// The first requests.
        first: Vec<XdsRequest>,
    },
    /// Send this request after the earlier ones.
    Send(StreamId, XdsRequest),
    /// Read one more message.
    Read(StreamId),
    /// Close the stream. The driver sends nothing more about it.
    Close(StreamId),
}

/// A `DiscoveryRequest`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XdsRequest {
    /// The kind, for its type URL.
    pub kind: ResourceKind,
    /// The last accepted version of this server; empty if there is none.
    pub version: Arc<str>,
    /// The nonce of the last response of this kind on this stream; empty if there was none.
    pub nonce: Arc<str>,
    /// All requested names, in order.
    pub names: Vec<Arc<str>>,
    /// The reason for rejecting that response.
    pub error: Option<Nack>,
    /// True if the request includes the node: the first request of a stream does, and no other.
    pub node: bool,
}

/// The `error_detail` of a request; its code is [`Code::InvalidArgument`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nack {
    /// Description of each fault.
    pub message: Arc<str>,
}

/// A measurement of the client (A78).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XdsMetric {
    /// The connection state of a server changed.
    Connected {
        /// The server.
        server: ServerId,
        /// True if it is connected; `None`: it is no longer in use.
        connected: Option<bool>,
    },
    /// A connected server is no longer connected.
    ServerFailure(ServerId),
    /// A response arrived.
    Updates {
        /// The server.
        server: ServerId,
        /// The kind.
        kind: ResourceKind,
        /// Number of valid resources, changed or not.
        valid: u64,
        /// Number of invalid resources, and of errors in their place.
        invalid: u64,
    },
    /// A response was rejected.
    Nack {
        /// The server.
        server: ServerId,
        /// The kind.
        kind: ResourceKind,
    },
    /// Number of watched resources in a state.
    Resources {
        /// The kind.
        kind: ResourceKind,
        /// The state.
        state: CacheState,
        /// Number of resources.
        count: u64,
    },
}
