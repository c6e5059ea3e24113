//! One aggregated stream: what was asked for on it of each kind, and which answers are owed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::StreamId;
use model::level::Provenance;
use model::machine::Now;
use model::xds::facts::Kind;

/// One thing for each kind of resource.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct PerKind<T> {
    cluster: T,
    endpoints: T,
}

impl<T> PerKind<T> {
    /// What `make` makes, for each kind.
    pub fn new(make: impl Fn() -> T) -> PerKind<T> {
        PerKind { cluster: make(), endpoints: make() }
    }

    /// That of this kind.
    pub fn get(&self, kind: Kind) -> &T {
        match kind {
            Kind::Cluster => &self.cluster,
            Kind::Endpoints => &self.endpoints,
        }
    }

    /// That of this kind.
    pub fn get_mut(&mut self, kind: Kind) -> &mut T {
        match kind {
            Kind::Cluster => &mut self.cluster,
            Kind::Endpoints => &mut self.endpoints,
        }
    }
}

/// An open stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// Its id.
    pub id: StreamId,
    /// When the first response came on it.
    pub heard_at: Option<Now>,
    /// Whether the driver waits for leave to read its next message.
    pub wants_read: bool,
    lines: PerKind<Line>,
}

impl Stream {
    /// A stream on which nothing was asked for yet.
    pub fn new(id: StreamId) -> Stream {
        Stream { id, heard_at: None, wants_read: true, lines: PerKind::new(Line::default) }
    }

    /// What was said of this kind.
    pub fn line(&self, kind: Kind) -> &Line {
        self.lines.get(kind)
    }

    /// What was said of this kind.
    pub fn line_mut(&mut self, kind: Kind) -> &mut Line {
        self.lines.get_mut(kind)
    }

    /// When an answer that waits is due.
    pub fn deadline(&self) -> Option<Now> {
        Kind::ALL.into_iter().filter_map(|kind| self.line(kind).deadline()).min()
    }
}

/// Where the last request of a kind is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Flight {
    /// The transport has pulled it, or there was none.
    #[default]
    Landed,
    /// It is one of those that the stream was opened with.
    Opening,
    /// It was sent later, and not pulled yet.
    Sent,
}

/// How a response is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// It was good.
    Ack,
    /// Something in it was not.
    Nack {
        /// Its version.
        version: Arc<str>,
        /// What was not good.
        message: Arc<str>,
    },
}

/// An answer that was not sent yet.
#[derive(Debug)]
struct Owed {
    due: Now,
    answer: Answer,
}

/// What is to be asked now.
#[derive(Debug)]
pub(super) struct Ask {
    /// The names.
    pub names: BTreeSet<Arc<str>>,
    /// Whether nothing of this kind was asked on the stream before.
    pub is_first: bool,
    /// What it answers besides.
    pub answer: Option<Answer>,
}

/// What was said of one kind on one stream.
///
/// At most one request of a kind waits for the transport: what changes meanwhile goes into the next one.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The nonce of the last response.
    nonce: Arc<str>,
    /// The names in the last request; `None`: there was none.
    asked: Option<BTreeSet<Arc<str>>>,
    flight: Flight,
    /// Whether the names that are watched are known to be those that were asked for last.
    is_settled: bool,
    /// Names that were asked for and are not watched any more, so that all that was known of them is forgotten. They
    /// are left out of the next request even if they are watched again: only of names that are new to it does a
    /// server send what it has sent before.
    dropped: BTreeSet<Arc<str>>,
    /// Names whose absence from a response that names all means that they do not exist: the server knew that they are
    /// asked for, and has not said that it cannot send them.
    accountable: BTreeSet<Arc<str>>,
    /// Names of which the server has sent a valid resource on this stream.
    sent: BTreeSet<Arc<str>>,
    /// Names for which no timer starts on this stream any more: the server has answered, or the timer has fired.
    answered: BTreeSet<Arc<str>>,
    owed: Option<Owed>,
}

impl Line {
    /// Whether anything of this kind was asked for.
    pub fn has_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// The nonce of the last response.
    pub fn nonce(&self) -> &Arc<str> {
        &self.nonce
    }

    /// When an answer that waits is due; what waits for the transport waits for no time.
    fn deadline(&self) -> Option<Now> {
        match self.flight {
            Flight::Landed => self.owed.as_ref().map(|owed| owed.due),
            Flight::Opening | Flight::Sent => None,
        }
    }

    /// Another name is watched.
    pub fn on_watched(&mut self) {
        self.is_settled = false;
    }

    /// A name is watched no more.
    pub fn on_dropped(&mut self, name: &Arc<str>) {
        self.is_settled = false;
        self.accountable.remove(name);
        self.sent.remove(name);
        self.answered.remove(name);
        if self.asked.as_ref().is_some_and(|asked| asked.contains(name)) {
            self.dropped.insert(Arc::clone(name));
        }
    }

    /// What is to be asked or answered now, where these names are watched. From then on it counts as asked.
    pub fn ask(&mut self, now: Now, watched: &BTreeSet<Arc<str>>) -> Option<Ask> {
        let answers = self.owed.as_ref().is_some_and(|owed| owed.due <= now);
        if self.flight != Flight::Landed || (self.is_settled && !answers) {
            return None;
        }
        let names: BTreeSet<Arc<str>> = watched.difference(&self.dropped).cloned().collect();
        let differs = match &self.asked {
            Some(asked) => *asked != names,
            None => !names.is_empty(),
        };
        if !differs && !answers {
            self.is_settled = true;
            return None;
        }
        let is_first = self.asked.is_none();
        if is_first {
            self.accountable.clone_from(&names);
        }
        // What is left out here may have come before the server hears of that, and will then be missing rightly.
        self.accountable.retain(|name| names.contains(name));
        // What was left out here is asked for again in the next one.
        self.is_settled = self.dropped.is_empty();
        self.dropped.clear();
        self.asked = Some(names.clone());
        self.flight = Flight::Sent;
        Some(Ask { names, is_first, answer: self.owed.take().map(|owed| owed.answer) })
    }

    /// The stream is opened with what was asked.
    pub fn on_opening(&mut self) {
        if self.flight == Flight::Sent {
            self.flight = Flight::Opening;
        }
    }

    /// The transport has pulled what the stream was opened with.
    pub fn on_dispatched(&mut self) {
        if self.flight == Flight::Opening {
            self.flight = Flight::Landed;
        }
    }

    /// The transport has pulled the last request.
    pub fn on_sent(&mut self) {
        self.flight = Flight::Landed;
    }

    /// The names that the transport has sent in requests, that are still wanted, and that have no answer yet.
    pub fn awaited(&self) -> impl Iterator<Item = &Arc<str>> {
        let asked = self.asked.as_ref().filter(|_| self.flight == Flight::Landed);
        let is_answered = |name: &Arc<str>| self.dropped.contains(name) || self.answered.contains(name);
        asked.into_iter().flatten().filter(move |name| !is_answered(name))
    }

    /// No timer starts for this name on the stream any more: the server has answered, or the timer has fired.
    pub fn on_answered(&mut self, name: &Arc<str>) {
        self.answered.insert(Arc::clone(name));
    }

    /// A response came that is to be answered when it is due, or as soon as something else is asked. An answer to the
    /// one before it that has not gone is not owed any more.
    pub fn owe(&mut self, nonce: &str, due: Now, answer: Answer) {
        self.nonce = Arc::from(nonce);
        self.owed = Some(Owed { due, answer });
    }

    /// The server has sent the resource, valid or not.
    pub fn on_seen(&mut self, name: &Arc<str>) {
        self.on_answered(name);
        self.accountable.insert(Arc::clone(name));
    }

    /// How a valid resource that it has sent reached us: what can be used first on a stream may be less than what the
    /// server will have once it knows all; what follows are changes (G1).
    pub fn on_valid(&mut self, name: &Arc<str>) -> Provenance {
        if self.sent.insert(Arc::clone(name)) { Provenance::Relist } else { Provenance::Watch }
    }

    /// The server has said why it does not send the resource. It says so once, also where it names all that exist
    /// (TP3).
    pub fn on_reported(&mut self, name: &Arc<str>) {
        self.accountable.remove(name);
    }

    /// The names that are missing in a response that names all that exist, where these are not.
    pub fn missing(&self, seen: &BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
        self.accountable.difference(seen).cloned().collect()
    }

    /// Whether it is only answered what was asked, and only dropped what was.
    pub fn is_sound(&self) -> bool {
        let has_asked = self.has_asked();
        let asked = self.asked.as_ref();
        let knows = |name: &Arc<str>| asked.is_some_and(|asked| asked.contains(name));
        (has_asked || (self.owed.is_none() && self.nonce.is_empty() && self.flight == Flight::Landed))
            && self.dropped.iter().all(knows)
            && (self.dropped.is_empty() || !self.is_settled)
    }
}
