//! One server of the list: its stream or the delay before the next one, its failure, and the versions accepted from
//! it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::backoff::{ExponentialBackoff, NackLimiter};
use super::stream::{PerKind, ResponseAnswer, Stream};
use super::{Nack, Server, StreamEnd, StreamId, XdsRequest};
use mechanisms::bucket::Bucket;
use model::machine::Now;
use model::xds::facts::{Code, ResourceKind};

/// A stream that is cut within this time of its first response counts as cut early. Servers regularly end old streams.
const SOON: Duration = Duration::from_secs(60);

/// The number of messages of one server that are read in a burst.
const READS_AT_ONCE: u32 = 50;

/// The minimum interval between reads after a burst. A server that answers each ACK with another response, or that
/// sends responses without end, would keep the controller busy.
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// The connection to a server.
#[derive(Debug)]
pub(super) enum Link {
    /// The channel is not in use.
    Idle,
    /// The next stream is opened at that time.
    Waiting(Now),
    /// A stream is open, or is being opened.
    Open(Box<Stream>),
}

/// The end of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChannelEnd {
    /// After a response; not an error (A57).
    Answered,
    /// Without a response, from a server that was connected before.
    Failed,
    /// Without a response, again.
    StillFailing,
}

/// A server and its state.
#[derive(Debug)]
pub(super) struct Channel {
    /// The server.
    pub server: Server,
    /// Its stream.
    pub link: Link,
    /// The error of the last stream, if it ended without a response; cleared by the next response.
    pub failure: Option<Arc<str>>,
    /// Reason for which the last stream was cut early, if it was.
    pub cut: Option<Arc<str>>,
    /// Number of consecutive streams that were cut early.
    cuts: u32,
    /// Number of streams that ended since the last response.
    ends: u32,
    /// The time before which no stream is opened.
    not_before: Now,
    /// The accepted versions. They survive streams; nonces do not.
    versions: PerKind<Arc<str>>,
    /// True if resources in use may belong to a newer version that was rejected because of other resources in it.
    is_ahead: PerKind<bool>,
    nack_limiters: PerKind<NackLimiter>,
    /// Limits the reading of messages. It outlives streams, so that a server cannot evade it by ending streams.
    reads: Bucket,
}

impl Channel {
    /// Creates a server that is not in use.
    pub fn new(server: Server, nack_pace: ExponentialBackoff) -> Channel {
        Channel {
            server,
            link: Link::Idle,
            failure: None,
            cut: None,
            cuts: 0,
            ends: 0,
            not_before: Now::ZERO,
            versions: PerKind::default(),
            is_ahead: PerKind::default(),
            nack_limiters: PerKind::new(|| NackLimiter::new(nack_pace)),
            reads: Bucket::new(READ_INTERVAL, READS_AT_ONCE),
        }
    }

    /// Returns the open stream.
    pub fn stream(&self) -> Option<&Stream> {
        match &self.link {
            Link::Open(stream) => Some(stream),
            Link::Idle | Link::Waiting(_) => None,
        }
    }

    /// Returns the open stream.
    pub fn stream_mut(&mut self) -> Option<&mut Stream> {
        match &mut self.link {
            Link::Open(stream) => Some(stream),
            Link::Idle | Link::Waiting(_) => None,
        }
    }

    /// Opens a stream without requests.
    pub fn open(&mut self, id: StreamId) {
        self.link = Link::Open(Box::new(Stream::new(id)));
    }

    /// Marks the requests so far as those that the stream is opened with.
    pub fn on_opening(&mut self) {
        if let Some(stream) = self.stream_mut() {
            ResourceKind::ALL.into_iter().for_each(|kind| stream.subscription_mut(kind).on_opening());
        }
    }

    /// Records that a message was read from the server's stream.
    pub fn on_read(&mut self) {
        if let Some(stream) = self.stream_mut() {
            stream.needs_read = true;
        }
    }

    /// Returns the time at which the next message may be read; `None`: no message is waiting.
    pub fn read_at(&self) -> Option<Now> {
        self.stream().filter(|stream| stream.needs_read).and(self.reads.next_token_at())
    }

    /// Permits the next read, if the limit allows one. Returns the stream.
    pub fn read(&mut self, now: Now) -> Option<StreamId> {
        let Link::Open(stream) = &mut self.link else { return None };
        let may = stream.needs_read && self.reads.take(now);
        may.then(|| {
            stream.needs_read = false;
            stream.id
        })
    }

    /// Returns the time until which messages may be unread because too many have arrived. Resources that seem late may
    /// be among them.
    pub fn catches_up_until(&self) -> Option<Now> {
        let stream = self.stream()?;
        if stream.needs_read { Some(Now::NEVER) } else { self.reads.next_token_at() }
    }

    /// Plans the next stream as soon as permitted.
    pub fn await_stream(&mut self, now: Now) {
        self.link = Link::Waiting(self.not_before.max(now));
    }

    /// Returns true if the next stream is due.
    pub fn is_due(&self, now: Now) -> bool {
        match &self.link {
            Link::Waiting(until) => *until <= now,
            Link::Idle | Link::Open(_) => false,
        }
    }

    /// Returns the next time at which time alone changes something.
    pub fn deadline(&self) -> Option<Now> {
        match &self.link {
            Link::Idle => None,
            Link::Waiting(until) => Some(*until),
            Link::Open(stream) => stream.deadline(),
        }
    }

    /// Takes the server out of use and returns its open stream. When it is used again, it starts afresh, but not
    /// immediately after a stream that has just ended.
    pub fn release(&mut self, now: Now, first_wait: Duration) -> Option<StreamId> {
        let stream = self.stream().map(|stream| stream.id);
        self.link = Link::Idle;
        self.failure = None;
        (self.cut, self.cuts) = (None, 0);
        self.ends = 0;
        self.not_before = self.not_before.min(now.plus(first_wait));
        stream
    }

    /// Records a response on the server's stream. Returns true for the first response.
    pub fn on_response(&mut self, now: Now) -> bool {
        let Some(stream) = self.stream_mut() else { return false };
        let is_first = stream.first_response_at.is_none();
        if is_first {
            stream.first_response_at = Some(now);
            self.failure = None;
            self.ends = 0;
        }
        is_first
    }

    /// Records the end of the server's stream. The next stream is always delayed, and the delays grow between streams
    /// without a response (A57).
    pub fn on_ended(
        &mut self,
        now: Now,
        ended: &StreamEnd,
        backoff: &ExponentialBackoff,
        jitter: u16,
    ) -> ChannelEnd {
        let first_response_at = self.stream().and_then(|stream| stream.first_response_at);
        self.not_before = now.plus(backoff.after(self.ends, jitter));
        self.ends = self.ends.saturating_add(1);
        self.await_stream(now);
        if let Some(first_response_at) = first_response_at {
            self.cuts =
                if now < first_response_at.plus(SOON) && ended.code != Code::Ok { self.cuts + 1 } else { 0 };
            self.cut = (self.cuts > 0).then(|| cut(&self.server.uri, ended, self.cuts));
            return ChannelEnd::Answered;
        }
        match self.failure.replace(failure(&self.server.uri, ended)) {
            None => ChannelEnd::Failed,
            Some(_) => ChannelEnd::StillFailing,
        }
    }

    /// Forgets the accepted version, because the resources in use come from another server.
    pub fn forget_version(&mut self, kind: ResourceKind) {
        *self.versions.get_mut(kind) = Arc::default();
    }

    /// Records how a response on the open stream must be answered. A response of a kind that was not requested on it
    /// is not answered, because that would be a first request, without names. `has_valid` is true if the response
    /// contains a valid resource.
    pub fn set_answer(
        &mut self,
        kind: ResourceKind,
        version: &Arc<str>,
        nonce: &str,
        complaint: Option<Arc<str>>,
        has_valid: bool,
    ) {
        let Link::Open(stream) = &mut self.link else { return };
        let subscription = stream.subscription_mut(kind);
        if !subscription.is_requested() {
            return;
        }
        let (version, pace) = (Arc::clone(version), self.nack_limiters.get_mut(kind));
        match complaint {
            None => {
                pace.on_good();
                *self.versions.get_mut(kind) = version;
                *self.is_ahead.get_mut(kind) = false;
                subscription.set_answer(nonce, Now::ZERO, ResponseAnswer::Ack);
            }
            Some(message) => {
                *self.is_ahead.get_mut(kind) |= has_valid;
                let due = pace.due(&version, &message);
                subscription.set_answer(nonce, due, ResponseAnswer::Nack { version, message });
            }
        }
    }

    /// Returns true if nothing of this kind was requested on the open stream.
    pub fn is_first_request(&self, kind: ResourceKind) -> bool {
        self.stream().is_some_and(|stream| !stream.subscription(kind).is_requested())
    }

    /// Returns the request to send now for the watched names. The first request of a stream names the accepted
    /// version only if `claims` is true. A server need not send resources again that the client claims to have.
    pub fn request(
        &mut self,
        now: Now,
        kind: ResourceKind,
        watched: &BTreeSet<Arc<str>>,
        claims: bool,
    ) -> Option<XdsRequest> {
        let Link::Open(stream) = &mut self.link else { return None };
        let subscription = stream.subscription_mut(kind);
        let ask = subscription.next_request(now, watched)?;
        let error = match ask.answer {
            Some(ResponseAnswer::Nack { version, message }) => {
                self.nack_limiters.get_mut(kind).on_nack(now, &version, &message);
                Some(Nack { message })
            }
            Some(ResponseAnswer::Ack) | None => None,
        };
        // A version that is not claimed at first is not claimed later on the stream, before its own responses.
        if ask.is_first && (!claims || *self.is_ahead.get(kind)) {
            *self.is_ahead.get_mut(kind) = false;
            *self.versions.get_mut(kind) = Arc::default();
        }
        let version = Arc::clone(self.versions.get(kind));
        Some(XdsRequest {
            kind,
            version,
            nonce: Arc::clone(subscription.nonce()),
            names: ask.names.into_iter().collect(),
            error,
            node: false,
        })
    }

    /// Checks the invariants of one server.
    pub fn check(&self, is_used: bool) -> Result<(), &'static str> {
        match &self.link {
            Link::Idle if is_used => Err("a server is in use and has no stream and waits for none"),
            Link::Idle if self.failure.is_some() => Err("a server that is not in use is said to fail"),
            Link::Waiting(_) | Link::Open(_) if !is_used => Err("a server that is not in use has a stream"),
            Link::Open(stream)
                if !ResourceKind::ALL.iter().all(|kind| stream.subscription(*kind).is_sound()) =>
            {
                Err("something is answered that was not asked")
            }
            Link::Open(stream) if stream.first_response_at.is_some() && self.failure.is_some() => {
                Err("a server is said to fail that has answered")
            }
            Link::Idle | Link::Waiting(_) | Link::Open(_) => Ok(()),
        }
    }
}

/// Returns the error for operators that a server has not answered: a reason without a status code (X4).
fn failure(uri: &str, ended: &StreamEnd) -> Arc<str> {
    let StreamEnd { code, message } = ended;
    let reason = if message.is_empty() { unsaid(*code) } else { Some(message.as_str()) };
    let how = if *code == Code::Ok { "it closed the stream" } else { "the stream ended" };
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    Arc::from(format!("xDS server {uri}: {how} without a response{reason}"))
}

/// Returns the message for operators that streams were cut early.
fn cut(uri: &str, ended: &StreamEnd, times: u32) -> Arc<str> {
    let StreamEnd { code, message } = ended;
    let reason = if message.is_empty() { unsaid(*code).unwrap_or_default() } else { message.as_str() };
    let how =
        if times == 1 { "the last stream was".to_owned() } else { format!("the last {times} streams were") };
    Arc::from(format!("xDS server {uri}: {how} cut soon after a response: {reason}"))
}

/// Returns the meaning of a status that ends a stream without a message.
fn unsaid(code: Code) -> Option<&'static str> {
    match code {
        Code::Ok => None,
        Code::Unauthenticated => Some("the server rejected the credentials"),
        Code::PermissionDenied => Some("the server does not permit the request"),
        Code::Unimplemented => Some("the server does not offer aggregated streams (ADS)"),
        Code::Unavailable => Some("the server cannot be reached"),
        Code::DeadlineExceeded => Some("the server has not answered in time"),
        Code::ResourceExhausted => Some("the server is overloaded"),
        Code::Cancelled
        | Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Internal
        | Code::DataLoss => Some("no reason is given"),
    }
}
