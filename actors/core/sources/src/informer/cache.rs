//! The cached objects with their indexes, and the Services that must be reconciled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::ServiceFact;
use super::arrival::Arrival;
use super::data_errors::DataErrors;
use super::ingress::Awaiting;
use super::intern::Interner;
use super::node::{CachedNode, ExistingNode};
use super::nodes::is_same_fact;
use super::selection::Selection;
use model::ids::{NodeName, ServiceKey, SliceKey};
use model::level::Provenance;
use model::machine::{Now, earliest};
use model::object::{Kind, NodeObject, Object, ObjectKey, ResourceVersion, ServiceObject, SliceObject};
use model::report::{ServiceRef, Subject};
use model::view::Candidacy;

/// The result of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Applied {
    /// The change was applied.
    Updated,
    /// The state was known already.
    Unchanged,
    /// The state is older than the stored one.
    Stale,
}

/// The state of one Service name. Slices may arrive before their Service.
#[derive(Default, Debug)]
pub(super) struct ServiceEntry {
    pub(super) service: Option<(Arc<ServiceObject>, Candidacy)>,
    pub(super) slices: BTreeMap<Arc<str>, Arc<SliceObject>>,
    /// The nodes that its parts depend on, in order: one side of the index.
    pub(super) nodes: Vec<NodeName>,
    /// Endpoints that lost their nodeName, by identity (D6).
    pub(super) orphans: BTreeMap<u64, Orphan>,
    /// A number that rises with every slice event. It is never reused for another state, even after an entry was
    /// dropped (A3).
    pub(super) revision: u64,
    /// The most doubtful provenance since the last reconcile.
    pub(super) provenance: Provenance,
    /// Time at which the oldest slice event since then was triggered.
    pub(super) triggered: Option<Now>,
    /// Time at which the newest change since then was read.
    pub(super) read: Option<Now>,
    /// Its data errors, while they last (D6).
    pub(super) data_errors: Option<DataErrors>,
    /// The last published fact.
    pub(super) published: Option<Arc<ServiceFact>>,
}

impl ServiceEntry {
    /// Creates an entry without objects.
    fn new(revision: u64) -> ServiceEntry {
        ServiceEntry { revision, ..ServiceEntry::default() }
    }

    /// Forgets the last known nodes of endpoints that have a nodeName again or are gone, and expired ones.
    pub(super) fn drop_orphans(&mut self, now: Now) {
        if self.orphans.is_empty() {
            return;
        }
        let endpoints = self.slices.values().flat_map(|slice| &slice.endpoints);
        let nameless: BTreeSet<u64> =
            endpoints.filter(|endpoint| endpoint.node.is_none()).map(|endpoint| endpoint.identity).collect();
        self.orphans.retain(|identity, orphan| now < orphan.until && nameless.contains(identity));
    }
}

/// The last known node of an endpoint without a nodeName.
#[derive(Debug)]
pub(super) struct Orphan {
    pub(super) node: NodeName,
    pub(super) until: Now,
    /// Provenance of the loss of the nodeName (G1).
    pub(super) provenance: Provenance,
}

/// The owner of a last known address or node, which expires.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Expiry {
    /// Last known addresses of a node.
    Node(NodeName),
    /// The last known node of an endpoint of this Service.
    Service(ServiceKey),
}

/// Returns the kind of the object with this key.
pub(super) fn kind_of(key: &ObjectKey) -> Kind {
    match key {
        ObjectKey::Service(_) => Kind::Services,
        ObjectKey::Slice(_) => Kind::EndpointSlices,
        ObjectKey::Node(_) => Kind::Nodes,
        ObjectKey::Preemption(_) => Kind::Preemptions,
    }
}

/// The caches of the three kinds that levels depend on. Events are not cached.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) entries: BTreeMap<ServiceKey, ServiceEntry>,
    /// The first revision of a new entry: greater than those of all dropped entries.
    first_revision: u64,
    /// All slices by key, including those without a Service.
    pub(super) slices: BTreeMap<SliceKey, Arc<SliceObject>>,
    pub(super) nodes: BTreeMap<NodeName, CachedNode>,
    /// The numbers of cached Services and nodes. `entries` and `nodes` contain further items.
    services_held: usize,
    nodes_held: usize,
    /// The Services to reconcile.
    pub(super) dirty: BTreeSet<ServiceKey>,
    /// Time at which the first dirty Service became dirty.
    pub(super) due: Option<Now>,
    /// The nodes whose facts must be published for the admin state.
    pub(super) changed_nodes: BTreeSet<NodeName>,
    expiries: BTreeSet<(Now, Expiry)>,
    /// The Services that the cloud-controller-manager may be about to process (W7).
    pub(super) awaiting: Awaiting,
    names: Interner,
    selection: Selection,
    last_known_for: Duration,
}

impl Cache {
    pub(super) fn new(selection: Selection, last_known_for: Duration) -> Cache {
        Cache {
            entries: BTreeMap::new(),
            first_revision: 0,
            slices: BTreeMap::new(),
            nodes: BTreeMap::new(),
            services_held: 0,
            nodes_held: 0,
            dirty: BTreeSet::new(),
            due: None,
            changed_nodes: BTreeSet::new(),
            expiries: BTreeSet::new(),
            awaiting: Awaiting::default(),
            names: Interner::default(),
            selection,
            last_known_for,
        }
    }

    /// Returns the time at which the next reconcile or expiry is due.
    pub(super) fn deadline(&self) -> Option<Now> {
        let expiries = self.expiries.first().map(|(at, _)| *at);
        earliest(self.due, earliest(expiries, self.awaiting.deadline()))
    }

    /// Returns the number of cached objects of a kind.
    pub(super) fn held(&self, kind: Kind) -> usize {
        match kind {
            Kind::Services => self.services_held,
            Kind::EndpointSlices => self.slices.len(),
            Kind::Nodes => self.nodes_held,
            Kind::Preemptions => 0,
        }
    }

    /// Returns the keys of all cached objects of a kind.
    pub(super) fn keys(&self, kind: Kind) -> Vec<ObjectKey> {
        match kind {
            Kind::Services => {
                let held = self.entries.iter().filter(|(_, entry)| entry.service.is_some());
                held.map(|(key, _)| ObjectKey::Service(key.clone())).collect()
            }
            Kind::EndpointSlices => self.slices.keys().cloned().map(ObjectKey::Slice).collect(),
            Kind::Nodes => {
                let held = self.nodes.iter().filter(|(_, node)| node.existing.is_some());
                held.map(|(name, _)| ObjectKey::Node(name.clone())).collect()
            }
            Kind::Preemptions => Vec::new(),
        }
    }

    /// Returns the node with this name.
    pub(super) fn node(&self, name: &NodeName) -> Option<&Arc<NodeObject>> {
        self.existing(name).map(|node| &node.object)
    }

    /// Returns the node with this name, and why it is excluded from pools.
    pub(super) fn existing(&self, name: &NodeName) -> Option<&ExistingNode> {
        self.nodes.get(name)?.existing.as_ref()
    }

    /// Returns the Service that a slice belongs to.
    pub(super) fn owner(&self, slice: &SliceKey) -> Option<&ServiceKey> {
        self.slices.get(slice)?.service.as_ref()
    }

    /// Returns the Service of this name, as the subject of an event.
    pub(super) fn service_subject(&self, key: &ServiceKey) -> Option<Subject> {
        let (service, _) = self.entries.get(key)?.service.as_ref()?;
        Some(Subject::Service(ServiceRef { key: key.clone(), uid: service.uid.clone() }))
    }

    /// Returns the resourceVersion of the cached state of this object.
    pub(super) fn version(&self, key: &ObjectKey) -> Option<&ResourceVersion> {
        match key {
            ObjectKey::Service(key) => {
                let (service, _) = self.entries.get(key)?.service.as_ref()?;
                Some(&service.resource_version)
            }
            ObjectKey::Slice(key) => Some(&self.slices.get(key)?.resource_version),
            ObjectKey::Node(name) => Some(&self.node(name)?.resource_version),
            ObjectKey::Preemption(_) => None,
        }
    }

    /// Returns true if a state of this object is cached.
    pub(super) fn holds(&self, key: &ObjectKey) -> bool {
        self.version(key).is_some()
    }

    /// Returns the candidates by name.
    pub(super) fn candidates(&self) -> impl Iterator<Item = &ServiceKey> {
        let is_candidate = |entry: &ServiceEntry| {
            entry.service.as_ref().is_some_and(|(_, candidacy)| *candidacy == Candidacy::Candidate)
        };
        self.entries.iter().filter(move |(_, entry)| is_candidate(entry)).map(|(key, _)| key)
    }

    /// Marks the Service of this slice as dirty.
    pub(super) fn mark_owner_dirty(&mut self, key: &ObjectKey, arrival: Arrival) {
        if let ObjectKey::Slice(slice) = key
            && let Some(owner) = self.owner(slice).cloned()
        {
            self.mark_dirty(&owner, arrival);
        }
    }

    /// Prepares an object for the cache: shares equal names.
    pub(super) fn compact(&mut self, object: Object) -> Object {
        match object {
            Object::Slice(slice) => Object::Slice(self.names.slice(slice)),
            Object::Service(_) | Object::Node(_) | Object::Preemption(_) => object,
        }
    }

    /// Stores the state of a compacted object.
    pub(super) fn put(&mut self, arrival: Arrival, object: Object) -> Applied {
        match object {
            Object::Service(service) => self.put_service(arrival, service),
            Object::Slice(slice) => self.put_slice(arrival, slice),
            Object::Node(node) => self.put_node(arrival, node),
            Object::Preemption(_) => Applied::Unchanged,
        }
    }

    /// Removes an object; `version` is that of the deletion, if it is known.
    pub(super) fn remove(
        &mut self,
        arrival: Arrival,
        key: &ObjectKey,
        version: Option<&ResourceVersion>,
    ) -> Applied {
        let Some(stored) = self.version(key) else {
            return Applied::Unchanged;
        };
        if version.is_some_and(|version| version.is_older_than(stored)) {
            return Applied::Stale;
        }
        match key {
            ObjectKey::Service(key) => {
                if let Some(entry) = self.entries.get_mut(key) {
                    entry.service = None;
                    self.services_held -= 1;
                }
                self.awaiting.forget(key);
                self.mark_dirty(key, arrival);
            }
            ObjectKey::Slice(key) => {
                if let Some(slice) = self.slices.remove(key) {
                    self.leave(arrival, &slice);
                }
            }
            ObjectKey::Node(name) => self.set_node(arrival, name, None),
            ObjectKey::Preemption(_) => {}
        }
        Applied::Updated
    }

    fn put_service(&mut self, arrival: Arrival, service: Arc<ServiceObject>) -> Applied {
        let candidacy = self.selection.candidacy(&service);
        let key = service.key.clone();
        let entry = self.entries.entry(key.clone()).or_insert_with(|| ServiceEntry::new(self.first_revision));
        match &entry.service {
            Some((stored, _)) if service.resource_version.is_older_than(&stored.resource_version) => {
                return Applied::Stale;
            }
            Some((stored, _)) if *stored == service => return Applied::Unchanged,
            Some(_) => {}
            None => self.services_held += 1,
        }
        self.awaiting.observe(arrival, entry.service.as_ref().map(|(stored, _)| &**stored), &service);
        entry.service = Some((service, candidacy));
        self.mark_dirty(&key, arrival);
        Applied::Updated
    }

    fn put_slice(&mut self, arrival: Arrival, slice: Arc<SliceObject>) -> Applied {
        if let Some(stored) = self.slices.get(&slice.key) {
            if slice.resource_version.is_older_than(&stored.resource_version) {
                return Applied::Stale;
            }
            // The age of the trigger depends on the time of arrival and is not part of the state.
            if slice.resource_version == stored.resource_version
                && slice.service == stored.service
                && slice.address_type == stored.address_type
                && slice.endpoints == stored.endpoints
            {
                return Applied::Unchanged;
            }
        }
        self.remember_nodes(arrival, &slice);
        let before = self.slices.insert(slice.key.clone(), Arc::clone(&slice));
        if let Some(before) = before.filter(|before| before.service != slice.service) {
            self.leave(arrival, &before);
        }
        if let Some(service) = &slice.service {
            let entry =
                self.entries.entry(service.clone()).or_insert_with(|| ServiceEntry::new(self.first_revision));
            entry.slices.insert(Arc::clone(&slice.key.name), Arc::clone(&slice));
            self.on_slice_event(service, arrival, slice.trigger_age);
        }
        Applied::Updated
    }

    /// Removes a slice from its Service's entry.
    fn leave(&mut self, arrival: Arrival, slice: &SliceObject) {
        let Some(service) = &slice.service else { return };
        if let Some(entry) = self.entries.get_mut(service) {
            entry.slices.remove(&slice.key.name);
            self.on_slice_event(service, arrival, None);
            self.drop_void_entry(service);
        }
    }

    /// Handles an event of a slice of this Service. It always raises the revision. It marks only a candidate as dirty,
    /// and is remembered for a Service that has not arrived yet.
    fn on_slice_event(&mut self, service: &ServiceKey, arrival: Arrival, trigger_age: Option<Duration>) {
        let Some(entry) = self.entries.get_mut(service) else {
            return;
        };
        entry.revision += 1;
        let candidacy = entry.service.as_ref().map(|(_, candidacy)| *candidacy);
        if candidacy.is_some_and(|candidacy| candidacy != Candidacy::Candidate) {
            return;
        }
        // The first list contains old changes, which other processes have handled long ago.
        if arrival.provenance != Provenance::FirstList {
            entry.triggered =
                earliest(entry.triggered, Some(arrival.now.minus(trigger_age.unwrap_or_default())));
        }
        entry.provenance = entry.provenance.max(arrival.provenance);
        if candidacy.is_some() {
            self.mark_dirty(service, arrival);
        }
    }

    /// Remembers the last known node of each endpoint that arrives without a nodeName (D6). Must be called while the
    /// previous state of the slice is still stored.
    fn remember_nodes(&mut self, arrival: Arrival, slice: &SliceObject) {
        let Some(service) = &slice.service else { return };
        if slice.endpoints.iter().all(|endpoint| endpoint.node.is_some()) {
            return;
        }
        let Some(entry) = self.entries.get_mut(service) else {
            return;
        };
        // A slice of no family (FQDN) has no information about nodes (D4).
        let counts = |slice: &&Arc<SliceObject>| !slice.address_type.families().is_empty();
        let endpoints = entry.slices.values().filter(counts).flat_map(|slice| &slice.endpoints);
        let known: BTreeMap<u64, &NodeName> =
            endpoints.filter_map(|endpoint| Some((endpoint.identity, endpoint.node.as_ref()?))).collect();
        let until = arrival.now.plus(self.last_known_for);
        let provenance = arrival.provenance;
        let nameless = slice.endpoints.iter().filter(|endpoint| endpoint.node.is_none());
        for identity in nameless.map(|endpoint| endpoint.identity) {
            if let Some(node) = known.get(&identity) {
                entry.orphans.insert(identity, Orphan { node: (*node).clone(), until, provenance });
                self.expiries.insert((until, Expiry::Service(service.clone())));
            }
        }
    }

    fn put_node(&mut self, arrival: Arrival, node: Arc<NodeObject>) -> Applied {
        if let Some(stored) = self.node(&node.name) {
            if node.resource_version.is_older_than(&stored.resource_version) {
                return Applied::Stale;
            }
            if *stored == node {
                return Applied::Unchanged;
            }
        }
        let name = self.names.node(&node.name);
        self.set_node(arrival, &name, Some(node));
        Applied::Updated
    }

    fn set_node(&mut self, arrival: Arrival, name: &NodeName, object: Option<Arc<NodeObject>>) {
        let node = self.nodes.entry(name.clone()).or_default();
        let existing =
            object.map(|object| ExistingNode { excluded: self.selection.excluded(&object), object });
        let before = std::mem::replace(&mut node.existing, existing);
        let after = node.existing.as_ref();
        self.nodes_held = self.nodes_held + usize::from(after.is_some()) - usize::from(before.is_some());
        if !is_same_fact(before.as_ref(), after) {
            self.changed_nodes.insert(name.clone());
            self.due.get_or_insert(arrival.now);
        }
        let same = match (&before, after) {
            (Some(before), Some(after)) => {
                before.object.internal_ips == after.object.internal_ips
                    && before.excluded == after.excluded
                    && before.object.ready == after.object.ready
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !same {
            let until = arrival.now.plus(self.last_known_for);
            if let Some(until) = node.remember(before.as_ref(), until, arrival.provenance) {
                self.expiries.insert((until, Expiry::Node(name.clone())));
            }
            self.mark_node_dirty(name, arrival);
        }
        self.drop_void_node(name);
    }

    /// Marks the Services that depend on a node as dirty.
    pub(super) fn mark_node_dirty(&mut self, name: &NodeName, arrival: Arrival) {
        let services: Vec<ServiceKey> =
            self.nodes.get(name).map(|node| node.services.iter().cloned().collect()).unwrap_or_default();
        for service in &services {
            self.mark_dirty(service, arrival);
        }
    }

    pub(super) fn mark_dirty(&mut self, service: &ServiceKey, arrival: Arrival) {
        if let Some(entry) = self.entries.get_mut(service) {
            entry.provenance = entry.provenance.max(arrival.provenance);
            entry.read = entry.read.max(Some(arrival.now));
            self.dirty.insert(service.clone());
            self.due.get_or_insert(arrival.now);
        }
    }

    /// Removes expired last known addresses and nodes. The consequences are as doubtful as the changes behind them
    /// (G1).
    pub(super) fn expire(&mut self, now: Now) {
        while let Some((at, memory)) = self.expiries.pop_first() {
            if at > now {
                self.expiries.insert((at, memory));
                break;
            }
            match memory {
                Expiry::Service(service) => {
                    let orphans =
                        self.entries.get(&service).into_iter().flat_map(|entry| entry.orphans.values());
                    let ended = orphans.filter(|orphan| orphan.until <= now).map(|orphan| orphan.provenance);
                    let provenance = ended.max().unwrap_or_default();
                    self.mark_dirty(&service, Arrival { now, provenance });
                }
                Expiry::Node(name) => {
                    let mut provenance = Provenance::default();
                    if let Some(node) = self.nodes.get_mut(&name) {
                        let ended =
                            node.lost_addresses.values().filter(|lost_addresses| lost_addresses.until <= now);
                        provenance =
                            ended.map(|lost_addresses| lost_addresses.provenance).max().unwrap_or_default();
                        node.lost_addresses.retain(|_, lost_addresses| now < lost_addresses.until);
                    }
                    self.mark_node_dirty(&name, Arrival { now, provenance });
                    self.drop_void_node(&name);
                }
            }
        }
    }

    /// Updates the index to the nodes that a Service's parts depend on now.
    pub(super) fn reindex(&mut self, service: &ServiceKey, nodes: Vec<NodeName>) {
        let Some(entry) = self.entries.get_mut(service) else {
            return;
        };
        if entry.nodes == nodes {
            return;
        }
        let before = std::mem::replace(&mut entry.nodes, nodes.clone());
        for name in nodes.iter().filter(|name| before.binary_search(name).is_err()) {
            self.nodes.entry(name.clone()).or_default().services.insert(service.clone());
        }
        for name in before.iter().filter(|name| nodes.binary_search(name).is_err()) {
            if let Some(node) = self.nodes.get_mut(name) {
                node.services.remove(service);
            }
            self.drop_void_node(name);
        }
    }

    fn drop_void_node(&mut self, name: &NodeName) {
        if self.nodes.get(name).is_some_and(CachedNode::is_void) {
            self.nodes.remove(name);
        }
    }

    /// Drops an entry without objects and without a published fact.
    pub(super) fn drop_void_entry(&mut self, key: &ServiceKey) {
        let void = |entry: &ServiceEntry| {
            entry.service.is_none() && entry.slices.is_empty() && entry.published.is_none()
        };
        if let Some(entry) = self.entries.get(key).filter(|entry| void(entry)) {
            self.first_revision = self.first_revision.max(entry.revision + 1);
            self.entries.remove(key);
            self.dirty.remove(key);
        }
    }

    /// Checks the invariants: both sides of each index agree, counts are right, and dirty items have a deadline.
    pub(super) fn check(&self) -> bool {
        let slices_placed = self.slices.iter().all(|(key, slice)| {
            slice.service.as_ref().is_none_or(|service| {
                self.entries.get(service).is_some_and(|entry| entry.slices.get(&key.name) == Some(slice))
            })
        });
        let placed: usize = self.entries.values().map(|entry| entry.slices.len()).sum();
        let owned = self.slices.values().filter(|slice| slice.service.is_some()).count();
        let forward = self.entries.iter().all(|(key, entry)| {
            entry
                .nodes
                .iter()
                .all(|name| self.nodes.get(name).is_some_and(|node| node.services.contains(key)))
        });
        let indexed: usize = self.entries.values().map(|entry| entry.nodes.len()).sum();
        let resting: usize = self.nodes.values().map(|node| node.services.len()).sum();
        let counted = self.keys(Kind::Services).len() == self.services_held
            && self.keys(Kind::Nodes).len() == self.nodes_held;
        let void = self.nodes.values().any(CachedNode::is_void);
        let due = self.dirty.is_empty() && self.changed_nodes.is_empty() || self.due.is_some();
        let indexes = slices_placed && placed == owned && forward && indexed == resting;
        indexes && counted && !void && due && self.awaiting.check()
    }
}
