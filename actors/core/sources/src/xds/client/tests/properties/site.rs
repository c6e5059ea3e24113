//! A control plane like go-control-plane. It answers a request immediately if the client has not accepted the current
//! version, ignores requests with stale nonces, and trusts the versions that the client claims.

use std::collections::VecDeque;

use super::*;

/// A control plane's version of a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Data {
    Good(u8),
    /// An invalid resource.
    Bad,
    /// A resource without a readable name.
    Broken,
    Missing,
    /// A reported error, once on each stream.
    Error(Code),
}

/// The behaviour of a control plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ServerBehaviour {
    Serves,
    /// The server accepts requests and answers none.
    Silent,
    /// No stream to it can be opened.
    Refuses,
}

/// A response in flight.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub kind: ResourceKind,
    pub response: Response,
    /// The requested names without a resource.
    pub missing: BTreeSet<Arc<str>>,
    /// The names of invalid resources.
    pub bad: BTreeSet<Arc<str>>,
    /// True if a name in it is unreadable.
    pub is_broken: bool,
}

/// A control plane's state of one kind on one stream.
#[derive(Debug, Default)]
struct Subscription {
    /// The nonce of the last response.
    nonce: String,
    names: Option<BTreeSet<Arc<str>>>,
    /// The names that it has answered.
    known: BTreeSet<Arc<str>>,
    accepted: String,
    /// True if its last response is unanswered.
    awaits: bool,
    /// The resources whose error was reported.
    sent: BTreeSet<Arc<str>>,
}

/// A stream with everything in flight on it.
#[derive(Debug)]
pub(super) struct Session {
    pub stream: StreamId,
    pub is_connected: bool,
    /// True if a response was delivered.
    pub has_answered: bool,
    /// True if the client permits the next read.
    pub may_read: bool,
    /// The requests that the transport has not taken, each with whether the stream was opened with it.
    pub outbox: VecDeque<(XdsRequest, bool)>,
    pub inbox: VecDeque<Delivery>,
    /// The time since which the transport has taken requests for a resource.
    pub requested: BTreeMap<ResourceKey, Now>,
    subscriptions: PerKind<Subscription>,
    nonces: u32,
}

impl Session {
    pub fn new(stream: StreamId) -> Session {
        Session {
            stream,
            is_connected: false,
            has_answered: false,
            may_read: false,
            outbox: VecDeque::new(),
            inbox: VecDeque::new(),
            requested: BTreeMap::new(),
            subscriptions: PerKind::new(Subscription::default),
            nonces: 0,
        }
    }
}

/// A control plane.
#[derive(Debug)]
pub(super) struct Site {
    index: usize,
    pub behaviour: ServerBehaviour,
    data: [Data; KEYS],
    version: u32,
    pub session: Option<Session>,
}

impl Site {
    pub fn new(index: usize) -> Site {
        Site {
            index,
            behaviour: ServerBehaviour::Serves,
            data: [Data::Good(1); KEYS],
            version: 1,
            session: None,
        }
    }

    fn version(&self) -> String {
        format!("s{}v{}", self.index, self.version)
    }

    /// Changes a resource.
    pub fn set(&mut self, n: usize, data: Data) {
        self.data[n] = data;
        self.version += 1;
        if let Some(session) = &mut self.session {
            let key = key(n);
            session.subscriptions.get_mut(key.kind).sent.remove(&key.name);
        }
    }

    /// Sends changes to the client.
    pub fn push(&mut self) {
        ResourceKind::ALL.into_iter().for_each(|kind| self.respond(kind));
    }

    /// Handles a request.
    pub fn on_request(&mut self, now: Now, request: &XdsRequest) {
        let version = self.version();
        let Some(session) = &mut self.session else { return };
        let names: BTreeSet<Arc<str>> = request.names.iter().cloned().collect();
        session.requested.retain(|key, _| key.kind != request.kind || names.contains(&key.name));
        for name in &names {
            session.requested.entry(ResourceKey::new(request.kind, Arc::clone(name))).or_insert(now);
        }
        let subscription = session.subscriptions.get_mut(request.kind);
        if *request.nonce != *subscription.nonce {
            return;
        }
        if subscription.names.is_none() && *request.version == *version {
            subscription.known.clone_from(&names);
        }
        subscription.known.retain(|name| names.contains(name));
        subscription.sent.retain(|name| names.contains(name));
        subscription.accepted = request.version.to_string();
        subscription.awaits = false;
        subscription.names = Some(names);
        self.respond(request.kind);
    }

    /// Sends the requested resources of a kind, if the client has not accepted them or requests other names.
    fn respond(&mut self, kind: ResourceKind) {
        let version = self.version();
        let (behaviour, data) = (self.behaviour, self.data);
        let Some(session) = &mut self.session else { return };
        let subscription = session.subscriptions.get_mut(kind);
        let Some(names) = subscription.names.clone().filter(|names| !names.is_empty()) else { return };
        let is_current = subscription.accepted == version && names.is_subset(&subscription.known);
        if behaviour != ServerBehaviour::Serves || subscription.awaits || is_current {
            return;
        }
        session.nonces += 1;
        let nonce = format!("{}.{}", session.stream.0, session.nonces);
        let response = response(kind, &version, &nonce, Vec::new());
        let mut delivery =
            Delivery { kind, response, missing: BTreeSet::new(), bad: BTreeSet::new(), is_broken: false };
        for (n, data) in data.into_iter().enumerate() {
            let key = key(n);
            if key.kind != kind || !names.contains(&key.name) {
                continue;
            }
            match data {
                Data::Good(n) => delivery.response.resources.push(good(&key, n)),
                Data::Bad => {
                    delivery.response.resources.push(bad(&key));
                    delivery.bad.insert(key.name);
                }
                Data::Broken => {
                    delivery.response.resources.push(broken(kind));
                    delivery.is_broken = true;
                }
                Data::Missing => {
                    delivery.missing.insert(key.name);
                }
                Data::Error(code) => {
                    if subscription.sent.insert(Arc::clone(&key.name)) {
                        delivery.response.errors.push(reported(&key.name, code));
                    }
                }
            }
        }
        subscription.nonce = nonce;
        subscription.known = names;
        subscription.awaits = true;
        session.inbox.push_back(delivery);
    }
}
