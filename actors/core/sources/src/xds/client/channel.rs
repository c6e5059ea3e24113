//! One server of the list: its stream or the wait for the next one, whether it is reached, and what was accepted of
//! it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::pace::{NackPace, Waits};
use super::stream::{Answer, PerKind, Stream};
use super::{Ended, Nack, Request, Server, StreamId};
use mechanisms::bucket::Bucket;
use model::machine::Now;
use model::xds::facts::{Code, Kind};

/// How soon after its first response a stream is cut that is not as good as any other: servers end streams that are old.
const SOON: Duration = Duration::from_secs(60);

/// How many messages of one server are read in a burst.
const READS_AT_ONCE: u32 = 50;

/// The minimum interval between reads after a burst. A server that answers each ACK with another response, or that sends
/// responses without end, would keep the controller busy.
const READ_EVERY: Duration = Duration::from_millis(100);

/// How a server is connected.
#[derive(Debug)]
pub(super) enum Link {
    /// It is not in use.
    Idle,
    /// The next stream is opened at this moment.
    Waiting(Now),
    /// A stream is open, or is being opened.
    Open(Box<Stream>),
}

/// How a stream has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChannelEnd {
    /// After a response: no error (A57).
    Heard,
    /// Without one, from a server that was reached before.
    Lost,
    /// Without one, again.
    LostStill,
}

/// A server and what is known of it.
#[derive(Debug)]
pub(super) struct Channel {
    /// The server.
    pub server: Server,
    /// Its stream.
    pub link: Link,
    /// Why its last stream has brought no response, until one comes.
    pub failure: Option<Arc<str>>,
    /// How the last stream was cut soon after its first response, if it was.
    pub cut: Option<Arc<str>>,
    /// How many streams were cut so, one after the other.
    cuts: u32,
    /// How many streams have ended since the last response.
    ends: u32,
    /// No stream is opened before this moment.
    not_before: Now,
    /// The versions that were accepted. They survive streams, nonces do not.
    versions: PerKind<Arc<str>>,
    /// Whether what is in use may be of a newer version, which was rejected for something else in it.
    is_ahead: PerKind<bool>,
    paces: PerKind<NackPace>,
    /// When the next message may be read. It outlives streams: a server that also ends them is read no more often.
    reads: Bucket,
}

impl Channel {
    /// A server that is not in use.
    pub fn new(server: Server, nack_pace: Waits) -> Channel {
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
            paces: PerKind::new(|| NackPace::new(nack_pace)),
            reads: Bucket::new(READ_EVERY, READS_AT_ONCE),
        }
    }

    /// The open stream.
    pub fn stream(&self) -> Option<&Stream> {
        match &self.link {
            Link::Open(stream) => Some(stream),
            Link::Idle | Link::Waiting(_) => None,
        }
    }

    /// The open stream.
    pub fn stream_mut(&mut self) -> Option<&mut Stream> {
        match &mut self.link {
            Link::Open(stream) => Some(stream),
            Link::Idle | Link::Waiting(_) => None,
        }
    }

    /// A stream is opened to it, on which nothing was asked for yet.
    pub fn open(&mut self, id: StreamId) {
        self.link = Link::Open(Box::new(Stream::new(id)));
    }

    /// What was asked for until now goes out when the stream is opened.
    pub fn on_opening(&mut self) {
        if let Some(stream) = self.stream_mut() {
            Kind::ALL.into_iter().for_each(|kind| stream.line_mut(kind).on_opening());
        }
    }

    /// A message was read from its stream.
    pub fn on_read(&mut self) {
        if let Some(stream) = self.stream_mut() {
            stream.wants_read = true;
        }
    }

    /// When the next message may be read; `None`: no stream waits for that.
    pub fn read_at(&self) -> Option<Now> {
        self.stream().filter(|stream| stream.wants_read).and(self.reads.next_token_at())
    }

    /// Lets the next message be read where one may be; of which stream.
    pub fn read(&mut self, now: Now) -> Option<StreamId> {
        let Link::Open(stream) = &mut self.link else { return None };
        let may = stream.wants_read && self.reads.take(now);
        may.then(|| {
            stream.wants_read = false;
            stream.id
        })
    }

    /// Until when messages may lie unread because too many have come; what seems to be late then may be among them.
    pub fn catches_up_until(&self) -> Option<Now> {
        let stream = self.stream()?;
        if stream.wants_read { Some(Now::NEVER) } else { self.reads.next_token_at() }
    }

    /// Its next stream is opened as soon as it may be.
    pub fn await_stream(&mut self, now: Now) {
        self.link = Link::Waiting(self.not_before.max(now));
    }

    /// Whether its next stream is to be opened.
    pub fn is_due(&self, now: Now) -> bool {
        match &self.link {
            Link::Waiting(until) => *until <= now,
            Link::Idle | Link::Open(_) => false,
        }
    }

    /// When time alone changes something.
    pub fn deadline(&self) -> Option<Now> {
        match &self.link {
            Link::Idle => None,
            Link::Waiting(until) => Some(*until),
            Link::Open(stream) => stream.deadline(),
        }
    }

    /// It is not in use any more; the stream that was open. When it is used again it begins afresh, but not at once
    /// after a stream that has just ended.
    pub fn release(&mut self, now: Now, first_wait: Duration) -> Option<StreamId> {
        let stream = self.stream().map(|stream| stream.id);
        self.link = Link::Idle;
        self.failure = None;
        (self.cut, self.cuts) = (None, 0);
        self.ends = 0;
        self.not_before = self.not_before.min(now.plus(first_wait));
        stream
    }

    /// A response came on its stream. Whether it is the first there.
    pub fn on_heard(&mut self, now: Now) -> bool {
        let Some(stream) = self.stream_mut() else { return false };
        let is_first = stream.heard_at.is_none();
        if is_first {
            stream.heard_at = Some(now);
            self.failure = None;
            self.ends = 0;
        }
        is_first
    }

    /// Its stream has ended. The next one is not opened at once in any case; the waits grow from one stream without a
    /// response to the next (A57).
    pub fn on_ended(&mut self, now: Now, ended: &Ended, backoff: &Waits, jitter: u16) -> ChannelEnd {
        let heard_at = self.stream().and_then(|stream| stream.heard_at);
        self.not_before = now.plus(backoff.after(self.ends, jitter));
        self.ends = self.ends.saturating_add(1);
        self.await_stream(now);
        if let Some(heard_at) = heard_at {
            self.cuts = if now < heard_at.plus(SOON) && ended.code != Code::Ok { self.cuts + 1 } else { 0 };
            self.cut = (self.cuts > 0).then(|| cut(&self.server.uri, ended, self.cuts));
            return ChannelEnd::Heard;
        }
        match self.failure.replace(failure(&self.server.uri, ended)) {
            None => ChannelEnd::Lost,
            Some(_) => ChannelEnd::LostStill,
        }
    }

    /// The values in use are another server's: what was accepted of this one says no more what is in use.
    pub fn forget_version(&mut self, kind: Kind) {
        *self.versions.get_mut(kind) = Arc::default();
    }

    /// Notes how a response on the open stream is to be answered. A response of a kind that was not asked for on it
    /// is not answered: that would be a first request, and one without names. `has_valid` tells whether anything in it is
    /// valid.
    pub fn owe(
        &mut self,
        kind: Kind,
        version: &Arc<str>,
        nonce: &str,
        complaint: Option<Arc<str>>,
        has_valid: bool,
    ) {
        let Link::Open(stream) = &mut self.link else { return };
        let line = stream.line_mut(kind);
        if !line.has_asked() {
            return;
        }
        let (version, pace) = (Arc::clone(version), self.paces.get_mut(kind));
        match complaint {
            None => {
                pace.on_good();
                *self.versions.get_mut(kind) = version;
                *self.is_ahead.get_mut(kind) = false;
                line.owe(nonce, Now::ZERO, Answer::Ack);
            }
            Some(message) => {
                *self.is_ahead.get_mut(kind) |= has_valid;
                let due = pace.due(&version, &message);
                line.owe(nonce, due, Answer::Nack { version, message });
            }
        }
    }

    /// Whether nothing of this kind was asked for on the open stream.
    pub fn begins(&self, kind: Kind) -> bool {
        self.stream().is_some_and(|stream| !stream.line(kind).has_asked())
    }

    /// The request that is to go now, where these names are watched. The first one of a stream claims the version
    /// that was accepted only where `claims`: a server need not send again what the client says it has.
    pub fn request(
        &mut self,
        now: Now,
        kind: Kind,
        watched: &BTreeSet<Arc<str>>,
        claims: bool,
    ) -> Option<Request> {
        let Link::Open(stream) = &mut self.link else { return None };
        let line = stream.line_mut(kind);
        let ask = line.ask(now, watched)?;
        let error = match ask.answer {
            Some(Answer::Nack { version, message }) => {
                self.paces.get_mut(kind).on_nack(now, &version, &message);
                Some(Nack { message })
            }
            Some(Answer::Ack) | None => None,
        };
        // What is not claimed at first is not claimed later on the stream, before its own responses.
        if ask.is_first && (!claims || *self.is_ahead.get(kind)) {
            *self.is_ahead.get_mut(kind) = false;
            *self.versions.get_mut(kind) = Arc::default();
        }
        let version = Arc::clone(self.versions.get(kind));
        Some(Request {
            kind,
            version,
            nonce: Arc::clone(line.nonce()),
            names: ask.names.into_iter().collect(),
            error,
            node: false,
        })
    }

    /// The invariants of one server.
    pub fn check(&self, is_used: bool) -> Result<(), &'static str> {
        match &self.link {
            Link::Idle if is_used => Err("a server is in use and has no stream and waits for none"),
            Link::Idle if self.failure.is_some() => Err("a server that is not in use is said to fail"),
            Link::Waiting(_) | Link::Open(_) if !is_used => Err("a server that is not in use has a stream"),
            Link::Open(stream) if !Kind::ALL.iter().all(|kind| stream.line(*kind).is_sound()) => {
                Err("something is answered that was not asked")
            }
            Link::Open(stream) if stream.heard_at.is_some() && self.failure.is_some() => {
                Err("a server is said to fail that has answered")
            }
            Link::Idle | Link::Waiting(_) | Link::Open(_) => Ok(()),
        }
    }
}

/// That a server has not answered, for operators: a reason, and no status code (X4).
fn failure(uri: &str, ended: &Ended) -> Arc<str> {
    let Ended { code, message } = ended;
    let reason = if message.is_empty() { unsaid(*code) } else { Some(message.as_str()) };
    let how = if *code == Code::Ok { "it closed the stream" } else { "the stream ended" };
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    Arc::from(format!("xDS server {uri}: {how} without a response{reason}"))
}

/// That so many streams were cut soon after a response, for operators.
fn cut(uri: &str, ended: &Ended, times: u32) -> Arc<str> {
    let Ended { code, message } = ended;
    let reason = if message.is_empty() { unsaid(*code).unwrap_or_default() } else { message.as_str() };
    let how =
        if times == 1 { "the last stream was".to_owned() } else { format!("the last {times} streams were") };
    Arc::from(format!("xDS server {uri}: {how} cut soon after a response: {reason}"))
}

/// What a status means with which a stream ends without words.
fn unsaid(code: Code) -> Option<&'static str> {
    match code {
        Code::Ok => None,
        Code::Unauthenticated => Some("the server does not accept our credentials"),
        Code::PermissionDenied => Some("the server does not allow us to ask"),
        Code::Unimplemented => Some("the server does not offer aggregated streams (ADS)"),
        Code::Unavailable => Some("the server cannot be reached"),
        Code::DeadlineExceeded => Some("the server has not answered in time"),
        Code::ResourceExhausted => Some("the server has too much to do"),
        Code::Cancelled
        | Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Internal
        | Code::DataLoss => Some("it is not said why"),
    }
}
