//! One aggregated stream: its requests of each kind, and the answers due on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::StreamId;
use model::level::Provenance;
use model::machine::Now;
use model::xds::facts::ResourceKind;

/// One value for each kind of resource.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct PerKind<T> {
    cluster: T,
    endpoints: T,
}

impl<T> PerKind<T> {
    /// Creates the values with `make`.
    pub fn new(make: impl Fn() -> T) -> PerKind<T> {
        PerKind { cluster: make(), endpoints: make() }
    }

    /// Returns the value of this kind.
    pub fn get(&self, kind: ResourceKind) -> &T {
        match kind {
            ResourceKind::Cluster => &self.cluster,
            ResourceKind::Endpoints => &self.endpoints,
        }
    }

    /// Returns the value of this kind.
    pub fn get_mut(&mut self, kind: ResourceKind) -> &mut T {
        match kind {
            ResourceKind::Cluster => &mut self.cluster,
            ResourceKind::Endpoints => &mut self.endpoints,
        }
    }
}

/// An open stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// Id of the stream.
    pub id: StreamId,
    /// Arrival of its first response.
    pub first_response_at: Option<Now>,
    /// True if the driver waits for permission to read the next message.
    pub needs_read: bool,
    subscriptions: PerKind<Subscription>,
}

impl Stream {
    /// Creates a stream without requests.
    pub fn new(id: StreamId) -> Stream {
        Stream {
            id,
            first_response_at: None,
            needs_read: true,
            subscriptions: PerKind::new(Subscription::default),
        }
    }

    /// Returns the requests and responses of this kind.
    pub fn subscription(&self, kind: ResourceKind) -> &Subscription {
        self.subscriptions.get(kind)
    }

    /// Returns the requests and responses of this kind.
    pub fn subscription_mut(&mut self, kind: ResourceKind) -> &mut Subscription {
        self.subscriptions.get_mut(kind)
    }

    /// Returns the time at which the next delayed answer is due.
    pub fn deadline(&self) -> Option<Now> {
        ResourceKind::ALL.into_iter().filter_map(|kind| self.subscription(kind).deadline()).min()
    }
}

/// The progress of the last request of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Flight {
    /// The transport has taken it, or there was none.
    #[default]
    Landed,
    /// The request belongs to those that the stream was opened with.
    Opening,
    /// The request was sent later, and the transport has not taken it yet.
    Sent,
}

/// The answer to a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ResponseAnswer {
    /// Accept it.
    Ack,
    /// Reject it.
    Nack {
        /// Its version.
        version: Arc<str>,
        /// The complaints.
        message: Arc<str>,
    },
}

/// An answer that was not sent yet.
#[derive(Debug)]
struct PendingAnswer {
    due: Now,
    answer: ResponseAnswer,
}

/// A request to send now.
#[derive(Debug)]
pub(super) struct NextRequest {
    /// The names.
    pub names: BTreeSet<Arc<str>>,
    /// True if it is the first of this kind on the stream.
    pub is_first: bool,
    /// The answer that it carries.
    pub answer: Option<ResponseAnswer>,
}

/// The requests and responses of one kind on one stream.
///
/// At most one request of a kind waits for the transport. Changes in the meantime go into the next one.
#[derive(Debug, Default)]
pub(super) struct Subscription {
    /// The nonce of the last response.
    nonce: Arc<str>,
    /// The names in the last request; `None`: there was none.
    requested: Option<BTreeSet<Arc<str>>>,
    flight: Flight,
    /// True if the watched names are known to equal the last requested ones.
    is_up_to_date: bool,
    /// Names that were requested and are no longer watched, so that their resources are forgotten. The next request
    /// leaves them out even if they are watched again, because a server sends a resource again only for a name that is
    /// new to the request.
    dropped: BTreeSet<Arc<str>>,
    /// Names that do not exist if a complete response lacks them: the server knew the request for them, and has not
    /// reported an error.
    expected: BTreeSet<Arc<str>>,
    /// Names for which the server has sent a valid resource on this stream.
    sent: BTreeSet<Arc<str>>,
    /// Names for which no timer starts on this stream any more: the server has answered, or the timer has fired.
    answered: BTreeSet<Arc<str>>,
    pending_answer: Option<PendingAnswer>,
}

impl Subscription {
    /// Returns true if this kind was requested.
    pub fn is_requested(&self) -> bool {
        self.requested.is_some()
    }

    /// Returns the nonce of the last response.
    pub fn nonce(&self) -> &Arc<str> {
        &self.nonce
    }

    /// Returns the time at which a delayed answer is due; an answer that waits for the transport has no due time.
    fn deadline(&self) -> Option<Now> {
        match self.flight {
            Flight::Landed => self.pending_answer.as_ref().map(|pending_answer| pending_answer.due),
            Flight::Opening | Flight::Sent => None,
        }
    }

    /// Handles that a name was added to the watched ones.
    pub fn on_watched(&mut self) {
        self.is_up_to_date = false;
    }

    /// Handles that a name is no longer watched.
    pub fn on_dropped(&mut self, name: &Arc<str>) {
        self.is_up_to_date = false;
        self.expected.remove(name);
        self.sent.remove(name);
        self.answered.remove(name);
        if self.requested.as_ref().is_some_and(|requested| requested.contains(name)) {
            self.dropped.insert(Arc::clone(name));
        }
    }

    /// Returns the request to send now for the watched names. It counts as sent.
    pub fn next_request(&mut self, now: Now, watched: &BTreeSet<Arc<str>>) -> Option<NextRequest> {
        let answers = self.pending_answer.as_ref().is_some_and(|pending_answer| pending_answer.due <= now);
        if self.flight != Flight::Landed || (self.is_up_to_date && !answers) {
            return None;
        }
        let names: BTreeSet<Arc<str>> = watched.difference(&self.dropped).cloned().collect();
        let differs = match &self.requested {
            Some(requested) => *requested != names,
            None => !names.is_empty(),
        };
        if !differs && !answers {
            self.is_up_to_date = true;
            return None;
        }
        let is_first = self.requested.is_none();
        if is_first {
            self.expected.clone_from(&names);
        }
        // A resource whose name is left out here may still arrive before the server processes the request. Its later
        // absence is then correct.
        self.expected.retain(|name| names.contains(name));
        // Names left out here are requested again in the next request.
        self.is_up_to_date = self.dropped.is_empty();
        self.dropped.clear();
        self.requested = Some(names.clone());
        self.flight = Flight::Sent;
        Some(NextRequest {
            names,
            is_first,
            answer: self.pending_answer.take().map(|pending_answer| pending_answer.answer),
        })
    }

    /// Handles that the stream is opened with the requests so far.
    pub fn on_opening(&mut self) {
        if self.flight == Flight::Sent {
            self.flight = Flight::Opening;
        }
    }

    /// Handles that the transport has taken the requests that the stream was opened with.
    pub fn on_dispatched(&mut self) {
        if self.flight == Flight::Opening {
            self.flight = Flight::Landed;
        }
    }

    /// Handles that the transport has taken the last request.
    pub fn on_sent(&mut self) {
        self.flight = Flight::Landed;
    }

    /// Returns the requested names that the transport has sent, that are still wanted, and that have no answer yet.
    pub fn awaited(&self) -> impl Iterator<Item = &Arc<str>> {
        let requested = self.requested.as_ref().filter(|_| self.flight == Flight::Landed);
        let is_answered = |name: &Arc<str>| self.dropped.contains(name) || self.answered.contains(name);
        requested.into_iter().flatten().filter(move |name| !is_answered(name))
    }

    /// Starts no timer for this name on the stream any more: the server has answered, or the timer has fired.
    pub fn on_answered(&mut self, name: &Arc<str>) {
        self.answered.insert(Arc::clone(name));
    }

    /// Records the answer to a response. It is sent when it is due, or with the next request, and replaces an unsent
    /// earlier answer.
    pub fn set_answer(&mut self, nonce: &str, due: Now, answer: ResponseAnswer) {
        self.nonce = Arc::from(nonce);
        self.pending_answer = Some(PendingAnswer { due, answer });
    }

    /// Handles a resource from the server, valid or not.
    pub fn on_received(&mut self, name: &Arc<str>) {
        self.on_answered(name);
        self.expected.insert(Arc::clone(name));
    }

    /// Returns the provenance of a valid resource. The first one on a stream may be incomplete, because the server may
    /// not know everything yet; later ones are changes (G1).
    pub fn on_valid(&mut self, name: &Arc<str>) -> Provenance {
        if self.sent.insert(Arc::clone(name)) { Provenance::Relist } else { Provenance::Watch }
    }

    /// Handles an error that the server reports in place of the resource. A server reports it once, even if its
    /// responses are complete otherwise (TP3).
    pub fn on_reported(&mut self, name: &Arc<str>) {
        self.expected.remove(name);
    }

    /// Returns the names that are missing in a complete response with the names `present`.
    pub fn missing(&self, present: &BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
        self.expected.difference(present).cloned().collect()
    }

    /// Checks the invariants: only requested names are answered or dropped.
    pub fn is_sound(&self) -> bool {
        let is_requested = self.is_requested();
        let requested = self.requested.as_ref();
        let knows = |name: &Arc<str>| requested.is_some_and(|requested| requested.contains(name));
        (is_requested
            || (self.pending_answer.is_none() && self.nonce.is_empty() && self.flight == Flight::Landed))
            && self.dropped.iter().all(knows)
            && (self.dropped.is_empty() || !self.is_up_to_date)
    }
}
