//! The Informer owns slim caches of Services, EndpointSlices and Nodes with their indexes, and computes each Service's
//! part of a level (docs/design/sources.md, D1, D4-D6; A2). The Directory decides which pools a part applies to.
//!
//! The Informer collects a list in a staging area and commits it as a whole when it is complete. Inputs only mark
//! Services as dirty; `tick` reconciles each dirty Service once, so that a batch of inputs costs one computation per
//! Service.
//!
//! An object that cannot be decoded does not count as absent (D6). Its last good state stays in use. If there is
//! none, the dependent parts are marked as unusable, so that nothing is removed because of them. The Informer
//! publishes no fact about a Service that was never decoded: nothing is managed for it, and a pool that it uses is not
//! written.

mod arrival;
mod cache;
mod data_error_events;
mod data_errors;
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

use crate::watch::WatchFreshness;
use arrival::Arrival;
use cache::{Applied, Cache, kind_of};
use model::ids::{Epoch, NodeName, ReadId, ServiceKey, ServiceUid};
use model::level::Provenance;
use model::machine::{Machine, Now, earliest};
use model::node::NodeFact;
use model::object::{Kind, Object, ObjectKey, Owner, ResourceVersion};
use model::policy::OperatorPolicy;
use model::report::{Ended, Report, Subject};
use model::sample::{Metric, RelistReason};
use model::services::{ExcludedNode, Parts, RequiredNode, ServiceFact};
use model::watch::{ListCoverage, WatchUpdate};
use resources::Resources;
use selection::Selection;
use staging::{KindStream, ListDecision, Staging};
use undecodable::Undecodables;
use unread::{Affected, UnreadObjects};

/// The endpoints that make their node a required member (D4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Counts {
    /// Endpoints that are not terminating.
    #[default]
    Hosted,
    /// Serving endpoints.
    Serving,
    /// Ready endpoints.
    Ready,
}

/// Parameters of the Informer, fixed at startup.
#[derive(Clone, Debug)]
pub struct Params {
    /// `members.add`.
    pub counts: Counts,
    /// True if the cloud configuration has several standard load balancers. Otherwise no Service is a candidate.
    pub multi_slb: bool,
    /// `services.namespaces`; empty means all.
    pub namespaces: BTreeSet<Arc<str>>,
    /// `services.selector`.
    pub selector: Selector,
    /// Time for which the last known address of a node is tolerated when its endpoints have no usable one (D6: 5 min).
    pub last_known_for: Duration,
    /// `sources.kubernetes.failOnDataErrors`: true if a data error ends the use of the last good state (X5).
    pub fail_on_data_errors: bool,
    /// True if control-plane nodes are members like other nodes: `excludeMasterFromStandardLB: false` of the cloud
    /// configuration (D5).
    pub control_plane: bool,
    /// True if the pools of each address family use only EndpointSlices of that family, and one address of each node
    /// (D4). Otherwise both families share all slices and all addresses (C2).
    pub per_family: bool,
}

/// A label selector. All requirements must hold; an empty selector selects everything.
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

/// Inputs of the Informer.
#[derive(Clone, Debug)]
pub enum In {
    /// An observation of a watcher, with the time when it was read from the connection. Delays and ages count from
    /// that time.
    Seen(Kind, Now, WatchUpdate),
    /// State of a watcher's view: current or not. Until the first message, it counts as current.
    Freshness(Kind, WatchFreshness),
    /// The term in which reports become Events. Initially `None`: reports would be dropped, so the Informer makes
    /// none. Lasting conditions are reported once in each term.
    Reporting(Option<Epoch>),
    /// The operator's policy. Services that the operator has paused get no reports (G6).
    OperatorPolicy(Arc<OperatorPolicy>),
}

/// Outputs of the Informer.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the Directory and Discovery: the fact about a Service; `None`: the Service is gone.
    Service(ServiceUid, Option<Arc<ServiceFact>>),
    /// To the admin state and the snapshot: the fact about a node; `None`: no node has this name. It precedes
    /// [`Out::Synced`], and every confirmation of a list that it is based on.
    Node(NodeName, Option<Arc<NodeFact>>),
    /// To the Directory, Discovery and the snapshot: the first complete lists of all three kinds have arrived.
    Synced,
    /// To the Directory and the admin state, after all facts based on them: the most recent lists of all kinds that
    /// this term requires are committed (W8). Terms rise; a term may be confirmed after its Leader has moved on.
    Confirmed(Epoch),
    /// To the Directory, after all facts based on them: lists of all kinds that began after the request for this
    /// second read are committed (G1).
    Reread(ReadId),
    /// To the Directory, after all facts based on them: the EndpointSlices read up to this time are processed.
    ReadUpTo(Now),
    /// To the writer: the number of the Service that most recently began to lack ingress. Only Services count that
    /// still lack it, have no loadBalancerClass, and became LoadBalancer less than 10 minutes ago; `None`: there is
    /// none. Each such Service gets its own number; numbers rise from 1 (W7).
    AwaitingIngress(Option<u64>),
    /// To the watcher of this kind, for display: the number of cached objects.
    Cached(Kind, usize),
    /// To the watcher of this kind: the observation is refused; list most recent data again.
    Relist(Kind, RelistReason),
    /// To the event emitter: a report.
    Report(Report),
    /// To the event emitter: a reported condition no longer holds.
    Ended(Ended),
    /// To the metrics recorder.
    Metric(Metric),
}

/// The caches, and the facts last published from them.
#[derive(Debug)]
pub struct Informer {
    counts: Counts,
    per_family: bool,
    streams: BTreeMap<Kind, KindStream>,
    cache: Cache,
    undecodables: Undecodables,
    /// The Services whose data errors were reported in this term, with the subject of the last report.
    reported: BTreeMap<ServiceKey, Subject>,
    unread: UnreadObjects,
    resources: Resources,
    /// True if the watch of EndpointSlices is not current.
    slices_lost: bool,
    /// The term in which reports become Events.
    reporting: Option<Epoch>,
    /// The operator's policy.
    policy: Arc<OperatorPolicy>,
    /// True if `reporting` or `policy` has changed since the last turn, so that all lasting unreported conditions must
    /// be reported.
    report_all: bool,
    /// True if [`Out::Synced`] was sent.
    published_synced: bool,
    /// The last [`Out::Confirmed`].
    published_confirmed: Option<Epoch>,
    /// The last [`Out::Reread`].
    published_read: Option<ReadId>,
    /// The latest time up to which EndpointSlices are processed, until it is published.
    read_up_to: Option<Now>,
    /// The last [`Out::Cached`].
    published_cached: BTreeMap<Kind, usize>,
}

impl Machine for Informer {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        let kind = match input {
            // Levels do not depend on Events, and nothing waits for a list of them.
            In::Seen(Kind::Preemptions, ..) => return,
            In::Seen(kind, read, event) => {
                self.on_watch_event(read.min(now), kind, event, out);
                self.on_read(now, kind, read);
                kind
            }
            In::Freshness(kind, freshness) => return self.on_freshness(now, kind, &freshness),
            In::Reporting(term) => return self.on_reporting(now, term),
            In::OperatorPolicy(policy) => return self.on_policy(now, policy),
        };
        let held = self.cache.held(kind);
        if self.published_cached.insert(kind, held) != Some(held) {
            out.push(Out::Cached(kind, held));
            let count = u64::try_from(held).unwrap_or(u64::MAX);
            out.push(Out::Metric(Metric::CachedObjects { kind, count }));
        }
    }

    fn deadline(&self) -> Option<Now> {
        let relist_at = self.streams.values().filter_map(|stream| stream.relist_at).min();
        let facts = earliest(self.cache.deadline(), relist_at).filter(|_| self.is_synced());
        earliest(facts, self.resources.deadline())
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.resources.tick(now) {
            self.mark_all_dirty(now);
        }
        if !self.is_synced() {
            return out.extend(self.resources.samples(now).into_iter().map(Out::Metric));
        }
        self.cache.expire(now);
        self.cache.due = None;
        for (kind, stream) in &mut self.streams {
            if stream.relist_at.take_if(|at| *at <= now).is_some() {
                out.push(Out::Relist(*kind, RelistReason::Broken));
            }
        }
        self.publish_nodes(out);
        for key in std::mem::take(&mut self.cache.dirty) {
            self.reconcile(now, &key, out);
        }
        self.report_conditions(out);
        if !std::mem::replace(&mut self.published_synced, true) {
            out.push(Out::Synced);
        }
        if self.cache.awaiting.has_changed(now) {
            out.push(Out::AwaitingIngress(self.cache.awaiting.newest()));
        }
        let confirmed = self.confirmed();
        if let Some(term) = confirmed.filter(|_| self.published_confirmed < confirmed) {
            self.published_confirmed = confirmed;
            out.push(Out::Confirmed(term));
        }
        let read = self.read();
        if let Some(read) = read.filter(|_| self.published_read < read) {
            self.published_read = Some(read);
            out.push(Out::Reread(read));
        }
        out.extend(self.read_up_to.take().map(Out::ReadUpTo));
        out.extend(self.resources.samples(now).into_iter().map(Out::Metric));
    }
}

impl Informer {
    /// Creates an Informer with empty caches.
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
            streams: Kind::OF_LEVELS.into_iter().map(|kind| (kind, KindStream::default())).collect(),
            cache: Cache::new(Selection { multi_slb, namespaces, selector, control_plane }, last_known_for),
            undecodables: Undecodables::default(),
            reported: BTreeMap::new(),
            unread: UnreadObjects::default(),
            resources: Resources::new(fail_on_data_errors),
            slices_lost: false,
            reporting: None,
            policy: Arc::default(),
            report_all: false,
            published_synced: false,
            published_confirmed: None,
            published_read: None,
            read_up_to: None,
            published_cached: BTreeMap::new(),
        }
    }

    /// Returns true if the first lists of all kinds are complete. Until then nothing is known (D6).
    fn is_synced(&self) -> bool {
        self.streams.values().all(|stream| stream.synced)
    }

    /// Returns the newest term for which lists of all kinds are committed that began after the term requested them
    /// (W8).
    fn confirmed(&self) -> Option<Epoch> {
        self.streams.values().map(|stream| stream.confirmed).min().flatten()
    }

    /// Returns the newest second read for which lists of all kinds are committed that began after its request (G1).
    fn read(&self) -> Option<ReadId> {
        self.streams.values().map(|stream| stream.read).min().flatten()
    }

    /// Records that everything of a kind read up to `read` is processed. It is published at the end of the turn.
    fn on_read(&mut self, now: Now, kind: Kind, read: Now) {
        match kind {
            Kind::EndpointSlices => {
                self.read_up_to = self.read_up_to.max(Some(read));
                self.cache.due.get_or_insert(now);
            }
            Kind::Services | Kind::Nodes | Kind::Preemptions => {}
        }
    }

    fn on_watch_event(&mut self, now: Now, kind: Kind, event: WatchUpdate, out: &mut Vec<Out>) {
        let stream = self.streams.entry(kind).or_default();
        match event {
            WatchUpdate::ListBegan(provenance) => stream.staging = Some(Staging::new(provenance)),
            WatchUpdate::ListAborted => stream.staging = None,
            WatchUpdate::Bookmark(version) => {
                stream.observe_version(&version);
                stream.catching_up_until = None;
            }
            WatchUpdate::Reconnected => stream.reconnected(now),
            WatchUpdate::ListDone { resource_version, serves } => {
                if let Some(staging) = stream.staging.take() {
                    let decision = stream.decide(now, &resource_version);
                    self.on_list(now, kind, decision, (staging, serves), out);
                }
            }
            WatchUpdate::AnyList(term) => {
                stream.on_any_list(term);
                self.cache.due.get_or_insert(now);
            }
            WatchUpdate::Object(object) => self.on_object(now, kind, object, out),
            WatchUpdate::Deleted { key, resource_version } => {
                if kind_of(&key) != kind {
                    return;
                }
                match &mut stream.staging {
                    Some(staging) => staging.remove(&key),
                    None => {
                        stream.observe_version(&resource_version);
                        let arrival = stream.arrival(now);
                        match self.cache.remove(arrival, &key, Some(&resource_version)) {
                            Applied::Updated | Applied::Unchanged => self.on_clear(arrival, &key),
                            Applied::Stale => out.push(Out::Metric(Metric::StaleRefused(kind))),
                        }
                    }
                }
            }
            WatchUpdate::Undecodable { key, owner, error, before } => {
                if let Some(before) = before {
                    self.on_watch_event(now, kind, *before, out);
                }
                self.on_undecodable(now, kind, key.map(|key| (key, owner)), error);
            }
        }
    }

    /// Applies whether a watch is current. While the watch of EndpointSlices is not, the absence of a Service's
    /// slices is not authoritative (G2), and the members of its pools are held.
    fn on_freshness(&mut self, now: Now, kind: Kind, freshness: &WatchFreshness) {
        match kind {
            Kind::EndpointSlices => {}
            Kind::Services | Kind::Nodes | Kind::Preemptions => return,
        }
        let (lost, differs) = (!freshness.is_current(), self.resources.on_freshness(now, freshness));
        if std::mem::replace(&mut self.slices_lost, lost) != lost || differs {
            self.mark_all_dirty(now);
        }
    }

    /// Marks all Services as dirty, because the state of the EndpointSlice watch has changed.
    fn mark_all_dirty(&mut self, now: Now) {
        let arrival = self.streams.entry(Kind::EndpointSlices).or_default().arrival(now);
        self.cache.mark_affected([Affected::All], arrival);
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
                stream.observe_version(object.resource_version());
                let arrival = stream.arrival(now);
                self.apply(arrival, &key, object, out);
            }
        }
    }

    fn apply(&mut self, arrival: Arrival, key: &ObjectKey, object: Object, out: &mut Vec<Out>) {
        match self.cache.put(arrival, object) {
            Applied::Updated | Applied::Unchanged => self.on_clear(arrival, key),
            Applied::Stale => out.push(Out::Metric(Metric::StaleRefused(kind_of(key)))),
        }
    }

    /// Handles that an object is decoded or gone.
    fn on_clear(&mut self, arrival: Arrival, key: &ObjectKey) {
        if self.undecodables.remove(key) {
            self.cache.mark_owner_dirty(key, arrival);
        }
        self.cache.mark_affected(self.unread.remove(key), arrival);
    }

    /// Handles an undecodable object. Its last good state stays in use; without one, its state is unknown. An object
    /// without a readable name may be any object, so a list that contains one proves no absence.
    fn on_undecodable(&mut self, now: Now, kind: Kind, named: Option<(ObjectKey, Owner)>, error: Arc<str>) {
        let stream = self.streams.entry(kind).or_default();
        let arrival = stream.arrival(now);
        let staging = stream.staging.as_mut();
        match named.filter(|(key, _)| kind_of(key) == kind) {
            Some((key, owner)) => {
                // The content of a list takes effect when the list is committed.
                if let Some(staging) = staging {
                    return staging.add_undecodable(key, owner, error);
                }
                if !self.cache.holds(&key) {
                    self.cache.mark_affected(self.unread.add(&key, owner), arrival);
                }
                if self.undecodables.add(key.clone(), error) {
                    self.cache.due.get_or_insert(now);
                }
                self.cache.mark_owner_dirty(&key, arrival);
            }
            None => {
                if let Some(staging) = staging {
                    staging.has_unnamed = true;
                }
            }
        }
    }

    /// Commits a complete list with the requests that it serves, or refuses it. A refused list confirms nothing: the
    /// term waits for the list that replaces it.
    fn on_list(
        &mut self,
        now: Now,
        kind: Kind,
        decision: ListDecision,
        (mut staging, serves): (Staging, ListCoverage),
        out: &mut Vec<Out>,
    ) {
        // Normally, a most recent list never contains an older state of an object than a watch has delivered. If this
        // list does, the storage was restored and written since, although the version of the list is newer.
        let is_older = |(key, version): (&ObjectKey, &ResourceVersion)| {
            self.cache.version(key).is_some_and(|stored| version.is_older_than(stored))
        };
        let decision = match decision {
            ListDecision::Current if staging.versions().any(is_older) => ListDecision::Restored,
            ListDecision::Current | ListDecision::Refused | ListDecision::Restored => decision,
        };
        match decision {
            ListDecision::Current => self.commit(now, kind, staging, serves, out),
            ListDecision::Refused => {
                out.push(Out::Metric(Metric::StaleRefused(kind)));
                out.push(Out::Relist(kind, RelistReason::Stale));
            }
            ListDecision::Restored => {
                out.push(Out::Metric(Metric::StaleAccepted(kind)));
                staging.provenance = Provenance::Relist;
                self.cache.forget_versions(kind);
                self.commit(now, kind, staging, serves, out);
            }
        }
    }

    /// Commits a complete list. Cached objects that it lacks are gone, unless they may be among its undecodable
    /// objects.
    fn commit(
        &mut self,
        now: Now,
        kind: Kind,
        mut staging: Staging,
        serves: ListCoverage,
        out: &mut Vec<Out>,
    ) {
        let arrival = Arrival { now, provenance: staging.provenance };
        let before = (self.is_synced(), self.confirmed(), self.read());
        let missing: Vec<ObjectKey> = if staging.has_unnamed {
            Vec::new()
        } else {
            self.cache.keys(kind).into_iter().filter(|key| !staging.holds(key)).collect()
        };
        let has_unnamed = staging.has_unnamed;
        let errors = staging.take_errors();
        let (objects, mut undecodable) = staging.into_parts();
        for key in self.undecodables.retain_listed(kind, &undecodable) {
            self.cache.mark_owner_dirty(&key, arrival);
        }
        for (key, object) in objects {
            self.apply(arrival, &key, object, out);
        }
        for key in missing {
            self.cache.remove(arrival, &key, None);
        }
        for (key, error) in errors {
            self.cache.mark_owner_dirty(&key, arrival);
            if self.undecodables.add(key, error) {
                self.cache.due.get_or_insert(now);
            }
        }
        undecodable.retain(|key, _| !self.cache.holds(key));
        self.cache.mark_affected(self.unread.listed(kind, undecodable, has_unnamed), arrival);
        if kind == Kind::Services {
            self.cache.candidates().for_each(|key| self.resources.follow(now, key));
        }
        let stream = self.streams.entry(kind).or_default();
        stream.on_listed(now, has_unnamed, serves);
        if before != (self.is_synced(), self.confirmed(), self.read()) {
            // A cluster without Services, or without changes, must be confirmed too.
            self.cache.due.get_or_insert(now);
        }
        debug_assert!(self.check());
    }

    /// Checks the invariants of the caches, and that nothing is published before all lists are complete. The cost is
    /// proportional to the caches, so it runs only after lists and in tests.
    fn check(&self) -> bool {
        let published = self.cache.entries.values().any(|entry| entry.published.is_some());
        self.cache.check()
            && self.unread.check(&self.cache)
            && (self.is_synced() || (!published && !self.published_synced))
            && (self.cache.due.is_some() || self.has_reported())
    }
}
