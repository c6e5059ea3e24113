//! Follows one kind of object on the API server: which request comes next, and what the stream's lines mean.
//!
//! It owns the resourceVersion to go on from, the choice between a streaming list and a plain one, and the
//! waiting after failures. The kubernetes port opens the requests and decodes the lines; the Informer owns the
//! objects.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::CallId;
use crate::object::{Kind, Object, ObjectKey, ResourceVersion};
use crate::sample::Sample;
use crate::view::SourceView;

/// What a watcher can be told. Inputs of a request carry its id; those of an older request are dropped.
#[derive(Clone, Debug)]
pub enum In {
    /// Begin; jitter as in [`In::Ended`].
    Start,
    /// The server accepted the watch; lines follow.
    Opened(CallId),
    /// A run of lines, in order.
    Lines(CallId, Vec<Line>),
    /// A page of a plain list, in order.
    Page {
        /// The request.
        call: CallId,
        /// The objects in it, undecodable ones in their places.
        items: Vec<Line>,
        /// The list's resourceVersion.
        resource_version: ResourceVersion,
        /// The token for the next page; `None` on the last one.
        next: Option<Arc<str>>,
    },
    /// The request is over: the stream ended, or it could not be made.
    Ended {
        /// The request.
        call: CallId,
        /// Why; `None`: the server closed the stream in good order.
        failure: Option<WatchFailure>,
        /// A random number, 0 to 1000 per mille, that spreads the next try.
        jitter: u16,
    },
    /// The Informer refuses what it was given and wants a list of most recent data.
    Relist(crate::sample::RelistReason),
}

/// One line of a stream, or one item of a list, decoded.
#[derive(Clone, Debug)]
pub enum Line {
    /// `ADDED`, `MODIFIED`, or an item of a list.
    Object(Object),
    /// `DELETED`.
    Deleted {
        /// Which object.
        key: ObjectKey,
        /// The version of the deletion.
        resource_version: ResourceVersion,
    },
    /// `BOOKMARK`.
    Bookmark {
        /// Up to where the stream is complete.
        resource_version: ResourceVersion,
        /// Whether it is annotated as the end of a streaming list.
        list_end: bool,
    },
    /// `ERROR`: the stream is over.
    Error(WatchFailure),
    /// A line or item that could not be decoded.
    Undecodable {
        /// Which object, when its metadata could be read.
        key: Option<ObjectKey>,
        /// The version it has, when that could be read.
        resource_version: Option<ResourceVersion>,
        /// What is wrong with it.
        error: Arc<str>,
    },
}

/// Why a request or a stream failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchFailure {
    /// 410, or an ERROR event that says so: the resourceVersion is too old.
    Expired,
    /// The server does not do streaming lists (400, 422, or an ERROR event that says so).
    StreamingRefused(Arc<str>),
    /// 429, with `Retry-After` when it was given.
    TooManyRequests(Option<Duration>),
    /// 401 or 403.
    Denied(Arc<str>),
    /// Any other answer, broken connection, or silence.
    Other(Arc<str>),
}

/// What a watcher can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the kubernetes port: open this request. The one before it is over or is to be dropped.
    Open {
        /// The id that its lines carry.
        call: CallId,
        /// Of which kind.
        kind: Kind,
        /// What to ask.
        ask: Ask,
    },
    /// To the Informer.
    Seen(Kind, Seen),
    /// To the board.
    View(SourceView),
    /// To the metrics.
    Sample(Sample),
}

/// What to ask of the API server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// A watch that begins with all objects: `sendInitialEvents=true`, most recent data.
    StreamingList,
    /// A plain list of most recent data, page by page; `None` is the first page.
    List {
        /// The token of the page.
        page: Option<Arc<str>>,
    },
    /// A watch from this version on.
    Watch {
        /// Where to go on.
        from: ResourceVersion,
    },
}

/// What a watcher tells the Informer.
#[derive(Clone, Debug)]
pub enum Seen {
    /// A list begins; what follows until [`Seen::ListDone`] is the whole of it.
    ListBegan(crate::level::Provenance),
    /// An object: of the list while one is under way, else a change.
    Object(Object),
    /// An object is gone.
    Deleted {
        /// Which.
        key: ObjectKey,
        /// The version of the deletion.
        resource_version: ResourceVersion,
    },
    /// An object that could not be decoded: its last good state stays in force.
    Undecodable {
        /// Which object, when its metadata could be read.
        key: Option<ObjectKey>,
        /// What is wrong with it.
        error: Arc<str>,
    },
    /// The list is complete as of this version.
    ListDone(ResourceVersion),
    /// The list broke off; what was taken in since it began is void.
    ListAborted,
    /// The stream is complete up to this version.
    Bookmark(ResourceVersion),
    /// The watch was re-established without a new list.
    Reconnected,
}
