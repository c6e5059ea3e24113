//! Owns slim caches of Services, EndpointSlices and Nodes with their indexes, and works out each Service's
//! part of a level (docs/design/sources.md, D1, D4-D6; A2). Which pools that part goes to is the Directory's business.
//!
//! A list is collected aside and put in force as a whole when it is complete. Inputs only mark Services; `tick`
//! works each of them out once, so that a batch of inputs costs one recomputation per Service.
//!
//! What cannot be decoded does not count as absent (D6). The last good state of an object stays in force; where there
//! is none, the parts that rest on it are marked as not known, so that nothing is removed for them. A Service that was
//! never decoded is not told at all: nothing is managed for it, and a pool that it uses is not written.

mod cache;
mod data_error_events;
mod ingress;
mod intern;
mod node;
mod nodes;
mod part;
mod reconcile;
mod refusals;
mod resources;
mod selection;
mod staging;
#[cfg(test)]
mod tests;
mod undecodable;
mod unread;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::watch::Contact;
use cache::{Applied, Arrival, Cache, kind_of};
use model::ids::{Epoch, NodeName, ReadId, ServiceKey, ServiceUid};
use model::level::Provenance;
use model::machine::{Machine, Now, earliest};
use model::node::NodeFact;
use model::object::{Kind, Object, ObjectKey, Owner, ResourceVersion};
use model::policy::OperatorPolicy;
use model::report::{Ended, Report, Subject};
use model::sample::{Metric, RelistReason};
use model::services::{LeftOutNode, Part, RequiredNode, ServiceFact};
use model::watch::{Seen, Serves};
use resources::Resources;
use selection::Selection;
use staging::{Judged, Staging, Stream};
use undecodable::Undecodables;
use unread::{Concerned, Unread};

/// Which endpoints make their node a required member (D4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Counts {
    /// Those that are not terminating.
    #[default]
    Hosted,
    /// Those that serve.
    Serving,
    /// Those that are ready.
    Ready,
}

/// What the Informer is told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// `members.add`.
    pub counts: Counts,
    /// Whether the cloud configuration has several standard load balancers; without them nothing is a candidate.
    pub multi_slb: bool,
    /// `services.namespaces`; empty means all.
    pub namespaces: BTreeSet<Arc<str>>,
    /// `services.selector`.
    pub selector: Selector,
    /// How long the last known address of a node is tolerated when its endpoints lack a usable one (D6: 5 min).
    pub last_known_for: Duration,
    /// `sources.kubernetes.failOnDataErrors`: whether a data error makes go what was known before it (X5).
    pub fail_on_data_errors: bool,
    /// Whether control-plane nodes are members like others: `excludeMasterFromStandardLB: false` of the cloud
    /// configuration (D5).
    pub control_plane: bool,
    /// Whether the pools of each address family get their members from EndpointSlices of that family alone, and one
    /// address from each node (D4). Without it both families share all slices and all addresses (C2).
    pub per_family: bool,
}

/// A label selector: all of its requirements must hold; none selects everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selector(pub Vec<Requirement>);

/// One requirement of a label selector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Requirement {
    /// `key in (values)`; also `key=value`.
    In(Arc<str>, BTreeSet<Arc<str>>),
    /// `key notin (values)`; also `key!=value`. An absent key satisfies it.
    NotIn(Arc<str>, BTreeSet<Arc<str>>),
    /// `key`.
    Exists(Arc<str>),
    /// `!key`.
    Absent(Arc<str>),
}

/// What the Informer can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// What a watcher saw, and when it was read from the connection: that is when it happened, as far as anything here
    /// counts from it.
    Seen(Kind, Now, Seen),
    /// Whether a watcher is in contact with its source; until the first word of it, it counts as in contact.
    Contact(Kind, Contact),
    /// The term in which its reports become Events; `None`, as at first: they would be dropped, so it makes none.
    /// What lasts is told once in each term.
    Reporting(Option<Epoch>),
    /// What operators wish: a Service that they have paused is told nothing (G6).
    OperatorPolicy(Arc<OperatorPolicy>),
}

/// What the Informer can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the Directory and to Discovery: a Service's part, or that it is gone.
    Service(ServiceUid, Option<Arc<ServiceFact>>),
    /// To the admin state and the board, before the first complete lists are said to be in, and before what rests on a
    /// list is confirmed: a node, or that none has this name any more.
    Node(NodeName, Option<Arc<NodeFact>>),
    /// To the Directory, Discovery and the board: the first complete lists of all three kinds are in.
    Synced,
    /// To the Directory and the admin state, after all facts that rest on them: the most recent lists of all kinds that
    /// this term needs were taken in (W8). Terms rise; one whose Leader has moved on may still be named.
    Confirmed(Epoch),
    /// To the Directory, after all facts that rest on them: lists of all kinds that were begun after this second read
    /// had been asked for were taken in (G1).
    Reread(ReadId),
    /// To the Directory, after all facts that rest on them: the EndpointSlices that were read until this moment were taken
    /// in.
    ReadUpTo(Now),
    /// To the writer: the number of the last Service that began to lack ingress, of those that lack it now, have no
    /// loadBalancerClass, and became LoadBalancer less than 10 minutes ago; `None`: there is none. Each has a number
    /// of its own, and a later one a higher number, from 1 (W7).
    AwaitingIngress(Option<u64>),
    /// To the watcher of this kind, which shows it: how many objects are held.
    Cached(Kind, usize),
    /// To the watcher of this kind: what came is refused; list most recent data again.
    Relist(Kind, RelistReason),
    /// To the event emitter.
    Report(Report),
    /// To the event emitter: a condition that was reported holds no longer.
    Ended(Ended),
    /// To the metrics.
    Metric(Metric),
}

/// The caches and what was last said of them.
#[derive(Debug)]
pub struct Informer {
    counts: Counts,
    per_family: bool,
    streams: BTreeMap<Kind, Stream>,
    cache: Cache,
    undecodables: Undecodables,
    /// The Services whose data errors were reported in this term, and last.
    reported: BTreeMap<ServiceKey, Subject>,
    unread: Unread,
    resources: Resources,
    /// Whether nothing is heard of EndpointSlices at present.
    slices_lost: bool,
    /// The term in which its reports are told.
    reporting: Option<Epoch>,
    /// What operators wish.
    policy: Arc<OperatorPolicy>,
    /// Whether one of the two has changed since the last turn, so that all that lasts and was not told is to be.
    tell_all: bool,
    /// Whether [`Out::Synced`] has been said.
    said_synced: bool,
    /// The last [`Out::Confirmed`].
    said_confirmed: Option<Epoch>,
    /// The last [`Out::Reread`].
    said_read: Option<ReadId>,
    /// Until when the EndpointSlices were read that were taken in, where that was not said.
    read_up_to: Option<Now>,
    /// The last [`Out::Cached`].
    said_cached: BTreeMap<Kind, usize>,
}

impl Machine for Informer {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        let kind = match input {
            // Levels do not rest on events, and nothing waits for a list of them.
            In::Seen(Kind::Preemptions, ..) => return,
            In::Seen(kind, read, seen) => {
                self.on_seen(read.min(now), kind, seen, out);
                self.on_read(now, kind, read);
                kind
            }
            In::Contact(kind, contact) => return self.on_contact(now, kind, &contact),
            In::Reporting(term) => return self.on_reporting(now, term),
            In::OperatorPolicy(policy) => return self.on_policy(now, policy),
        };
        let held = self.cache.held(kind);
        if self.said_cached.insert(kind, held) != Some(held) {
            out.push(Out::Cached(kind, held));
            let count = u64::try_from(held).unwrap_or(u64::MAX);
            out.push(Out::Metric(Metric::CachedObjects { kind, count }));
        }
    }

    fn deadline(&self) -> Option<Now> {
        let look_again = self.streams.values().filter_map(|stream| stream.look_again).min();
        let facts = earliest(self.cache.deadline(), look_again).filter(|_| self.is_synced());
        earliest(facts, self.resources.deadline())
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.resources.tick(now) {
            self.touch_all(now);
        }
        if !self.is_synced() {
            return out.extend(self.resources.samples(now).into_iter().map(Out::Metric));
        }
        self.cache.expire(now);
        self.cache.due = None;
        for (kind, stream) in &mut self.streams {
            if stream.look_again.take_if(|at| *at <= now).is_some() {
                out.push(Out::Relist(*kind, RelistReason::Broken));
            }
        }
        self.tell_nodes(out);
        for key in std::mem::take(&mut self.cache.dirty) {
            self.settle(now, &key, out);
        }
        self.tell(out);
        if !std::mem::replace(&mut self.said_synced, true) {
            out.push(Out::Synced);
        }
        if self.cache.awaiting.has_news(now) {
            out.push(Out::AwaitingIngress(self.cache.awaiting.newest()));
        }
        let confirmed = self.confirmed();
        if let Some(term) = confirmed.filter(|_| self.said_confirmed < confirmed) {
            self.said_confirmed = confirmed;
            out.push(Out::Confirmed(term));
        }
        let read = self.read();
        if let Some(read) = read.filter(|_| self.said_read < read) {
            self.said_read = Some(read);
            out.push(Out::Reread(read));
        }
        out.extend(self.read_up_to.take().map(Out::ReadUpTo));
        out.extend(self.resources.samples(now).into_iter().map(Out::Metric));
    }
}

impl Informer {
    /// An Informer that knows nothing.
    #[must_use]
    pub fn new(params: Params) -> Informer {
        let Params {
            counts,
            multi_slb,
            namespaces,
            selector,
            last_known_for,
            fail_on_data_errors,
            control_plane,
            per_family,
        } = params;
        Informer {
            counts,
            per_family,
            streams: Kind::OF_LEVELS.into_iter().map(|kind| (kind, Stream::default())).collect(),
            cache: Cache::new(Selection { multi_slb, namespaces, selector, control_plane }, last_known_for),
            undecodables: Undecodables::default(),
            reported: BTreeMap::new(),
            unread: Unread::default(),
            resources: Resources::new(fail_on_data_errors),
            slices_lost: false,
            reporting: None,
            policy: Arc::default(),
            tell_all: false,
            said_synced: false,
            said_confirmed: None,
            said_read: None,
            read_up_to: None,
            said_cached: BTreeMap::new(),
        }
    }

    /// Whether the first lists of all kinds are complete: until then nothing is known (D6).
    fn is_synced(&self) -> bool {
        self.streams.values().all(|stream| stream.synced)
    }

    /// The newest term for which lists of all kinds are in force that were begun after it asked for them (W8).
    fn confirmed(&self) -> Option<Epoch> {
        self.streams.values().map(|stream| stream.confirmed).min().flatten()
    }

    /// The newest second read for which lists of all kinds are in force that were begun after it was asked for (G1).
    fn read(&self) -> Option<ReadId> {
        self.streams.values().map(|stream| stream.read).min().flatten()
    }

    /// What was read until this moment of a kind was taken in: that is said at the end of the turn.
    fn on_read(&mut self, now: Now, kind: Kind, read: Now) {
        match kind {
            Kind::EndpointSlices => {
                self.read_up_to = self.read_up_to.max(Some(read));
                self.cache.due.get_or_insert(now);
            }
            Kind::Services | Kind::Nodes | Kind::Preemptions => {}
        }
    }

    fn on_seen(&mut self, now: Now, kind: Kind, seen: Seen, out: &mut Vec<Out>) {
        let stream = self.streams.entry(kind).or_default();
        match seen {
            Seen::ListBegan(provenance) => stream.staging = Some(Staging::new(provenance)),
            Seen::ListAborted => stream.staging = None,
            Seen::Bookmark(version) => {
                stream.reach(&version);
                stream.catching_up_until = None;
            }
            Seen::Reconnected => stream.reconnected(now),
            Seen::ListDone { resource_version, serves } => {
                if let Some(staging) = stream.staging.take() {
                    let judged = stream.judge(now, &resource_version);
                    self.on_list(now, kind, judged, (staging, serves), out);
                }
            }
            Seen::AnyList(term) => {
                stream.on_any_list(term);
                self.cache.due.get_or_insert(now);
            }
            Seen::Object(object) => self.on_object(now, kind, object, out),
            Seen::Deleted { key, resource_version } => {
                if kind_of(&key) != kind {
                    return;
                }
                match &mut stream.staging {
                    Some(staging) => staging.remove(&key),
                    None => {
                        stream.reach(&resource_version);
                        let arrival = stream.arrival(now);
                        match self.cache.remove(arrival, &key, Some(&resource_version)) {
                            Applied::Taken | Applied::Known => self.on_clear(arrival, &key),
                            Applied::Stale => out.push(Out::Metric(Metric::StaleRefused(kind))),
                        }
                    }
                }
            }
            Seen::Undecodable { key, owner, error, before } => {
                if let Some(before) = before {
                    self.on_seen(now, kind, *before, out);
                }
                self.on_undecodable(now, kind, key.map(|key| (key, owner)), error);
            }
        }
    }

    /// While nothing is heard of EndpointSlices, that a Service has none is not authoritative (G2): what its pools
    /// hold is held.
    fn on_contact(&mut self, now: Now, kind: Kind, contact: &Contact) {
        match kind {
            Kind::EndpointSlices => {}
            Kind::Services | Kind::Nodes | Kind::Preemptions => return,
        }
        let (lost, differs) = (!contact.is_current(), self.resources.contact(now, contact));
        if std::mem::replace(&mut self.slices_lost, lost) != lost || differs {
            self.touch_all(now);
        }
    }

    /// Has all Services worked out again, because of how EndpointSlices are heard of.
    fn touch_all(&mut self, now: Now) {
        let arrival = self.streams.entry(Kind::EndpointSlices).or_default().arrival(now);
        self.cache.touch_concerned([Concerned::All], arrival);
    }

    fn on_object(&mut self, now: Now, kind: Kind, object: Object, out: &mut Vec<Out>) {
        let key = object.key();
        if kind_of(&key) != kind {
            return;
        }
        let object = self.cache.compact(object);
        let stream = self.streams.entry(kind).or_default();
        match &mut stream.staging {
            Some(staging) => staging.add(key, object),
            None => {
                stream.reach(object.resource_version());
                let arrival = stream.arrival(now);
                self.apply(arrival, &key, object, out);
            }
        }
    }

    fn apply(&mut self, arrival: Arrival, key: &ObjectKey, object: Object, out: &mut Vec<Out>) {
        match self.cache.put(arrival, object) {
            Applied::Taken | Applied::Known => self.on_clear(arrival, key),
            Applied::Stale => out.push(Out::Metric(Metric::StaleRefused(kind_of(key)))),
        }
    }

    /// An object is decoded or gone.
    fn on_clear(&mut self, arrival: Arrival, key: &ObjectKey) {
        if self.undecodables.forget(key) {
            self.cache.touch_owner(key, arrival);
        }
        self.cache.touch_concerned(self.unread.remove(key), arrival);
    }

    /// The last good state of an object that cannot be decoded stays in force; where there is none, it is not known.
    /// One without a name may be any object: a list that holds one proves no absence.
    fn on_undecodable(&mut self, now: Now, kind: Kind, named: Option<(ObjectKey, Owner)>, error: Arc<str>) {
        let stream = self.streams.entry(kind).or_default();
        let arrival = stream.arrival(now);
        let staging = stream.staging.as_mut();
        match named.filter(|(key, _)| kind_of(key) == kind) {
            Some((key, owner)) => {
                // What is in a list counts when that is put in force.
                if let Some(staging) = staging {
                    return staging.add_undecodable(key, owner, error);
                }
                if !self.cache.holds(&key) {
                    self.cache.touch_concerned(self.unread.add(&key, owner), arrival);
                }
                if self.undecodables.note(key.clone(), error) {
                    self.cache.due.get_or_insert(now);
                }
                self.cache.touch_owner(&key, arrival);
            }
            None => {
                if let Some(staging) = staging {
                    staging.blind = true;
                }
            }
        }
    }

    /// Puts a complete list, with what it serves, in force, or refuses it. One that is refused confirms nothing: the
    /// term waits for the list that is made in its place.
    fn on_list(
        &mut self,
        now: Now,
        kind: Kind,
        judged: Judged,
        (mut staging, serves): (Staging, Serves),
        out: &mut Vec<Out>,
    ) {
        // The most recent list cannot hold an older state of an object than a watch has told of, however late its own
        // version is: unless the storage was restored, and has been written since.
        let is_older = |(key, version): (&ObjectKey, &ResourceVersion)| {
            self.cache.version(key).is_some_and(|stored| version.is_older_than(stored))
        };
        let judged = match judged {
            Judged::Current if staging.versions().any(is_older) => Judged::TakenBack,
            Judged::Current | Judged::Refused | Judged::TakenBack => judged,
        };
        match judged {
            Judged::Current => self.commit(now, kind, staging, serves, out),
            Judged::Refused => {
                out.push(Out::Metric(Metric::StaleRefused(kind)));
                out.push(Out::Relist(kind, RelistReason::Stale));
            }
            Judged::TakenBack => {
                out.push(Out::Metric(Metric::StaleAccepted(kind)));
                staging.provenance = Provenance::Relist;
                self.cache.forget_versions(kind);
                self.commit(now, kind, staging, serves, out);
            }
        }
    }

    /// Puts a complete list in force: objects that it lacks are gone, unless one of them may be among those
    /// that could not be decoded.
    fn commit(&mut self, now: Now, kind: Kind, mut staging: Staging, serves: Serves, out: &mut Vec<Out>) {
        let arrival = Arrival { now, provenance: staging.provenance };
        let before = (self.is_synced(), self.confirmed(), self.read());
        let missing: Vec<ObjectKey> = if staging.blind {
            Vec::new()
        } else {
            self.cache.keys(kind).into_iter().filter(|key| !staging.holds(key)).collect()
        };
        let blind = staging.blind;
        let errors = staging.take_errors();
        let (objects, mut undecodable) = staging.into_parts();
        for key in self.undecodables.keep_listed(kind, &undecodable) {
            self.cache.touch_owner(&key, arrival);
        }
        for (key, object) in objects {
            self.apply(arrival, &key, object, out);
        }
        for key in missing {
            self.cache.remove(arrival, &key, None);
        }
        for (key, error) in errors {
            self.cache.touch_owner(&key, arrival);
            if self.undecodables.note(key, error) {
                self.cache.due.get_or_insert(now);
            }
        }
        undecodable.retain(|key, _| !self.cache.holds(key));
        self.cache.touch_concerned(self.unread.listed(kind, undecodable, blind), arrival);
        if kind == Kind::Services {
            self.cache.candidates().for_each(|key| self.resources.follow(now, key));
        }
        let stream = self.streams.entry(kind).or_default();
        stream.on_listed(now, blind, serves);
        if before != (self.is_synced(), self.confirmed(), self.read()) {
            // Even a cluster without Services, or without news, has to be told of.
            self.cache.due.get_or_insert(now);
        }
        debug_assert!(self.check());
    }

    /// The invariants of the caches, and that nothing is said before all is known. Costs as much as there is
    /// to know, so it is called after lists and by tests.
    fn check(&self) -> bool {
        let said = self.cache.entries.values().any(|entry| entry.said.is_some());
        self.cache.check()
            && self.unread.check(&self.cache)
            && (self.is_synced() || (!said && !self.said_synced))
            && (self.cache.due.is_some() || self.has_told())
    }
}
