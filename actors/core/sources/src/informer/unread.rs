//! Tracks objects that exist but were never decoded. What such an object requires is not known, which differs from
//! nothing (D6). Everything that depends on it is incomplete until the object is decoded or gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::arrival::Arrival;
use super::cache::Cache;
use model::ids::{NodeName, ServiceKey, SliceKey};
use model::object::{Kind, ObjectKey, Owner};

/// The Services affected by a change in the set of unread objects.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Affected {
    /// One Service.
    Service(ServiceKey),
    /// All Services of a namespace.
    Namespace(Arc<str>),
    /// All Services that depend on this node.
    Node(NodeName),
    /// All Services.
    All,
}

/// The objects without a known state. Services are not included: nothing is managed for a Service that was never
/// decoded.
#[derive(Default, Debug)]
pub(super) struct UnreadObjects {
    /// The slices that belong, or may belong, to a Service; `None` if their metadata do not name it.
    slices: BTreeMap<SliceKey, Option<ServiceKey>>,
    /// The slices by Service, and those whose Service is unknown.
    owned: BTreeMap<ServiceKey, BTreeSet<SliceKey>>,
    unowned: BTreeSet<SliceKey>,
    nodes: BTreeSet<NodeName>,
    /// Kinds whose last complete list contained an object without a readable name.
    unnamed: BTreeSet<Kind>,
}

impl UnreadObjects {
    /// Adds an object without a known state. Returns the affected Services, if this is a change.
    pub(super) fn add(&mut self, key: &ObjectKey, owner: Owner) -> Vec<Affected> {
        match key {
            ObjectKey::Service(_) | ObjectKey::Preemption(_) => Vec::new(),
            ObjectKey::Node(name) => {
                let new = self.nodes.insert(name.clone());
                new.then(|| Affected::Node(name.clone())).into_iter().collect()
            }
            ObjectKey::Slice(slice) => {
                let owner = match owner {
                    Owner::Unknown => None,
                    Owner::Service(owner) => Some(owner),
                    // Nothing depends on this slice.
                    Owner::Nobody => return self.remove(key),
                };
                if self.slices.get(slice) == Some(&owner) {
                    return Vec::new();
                }
                let mut affected = self.remove(key);
                affected.push(affected_by(slice, owner.as_ref()));
                let of = match owner.clone() {
                    Some(owner) => self.owned.entry(owner).or_default(),
                    None => &mut self.unowned,
                };
                of.insert(slice.clone());
                self.slices.insert(slice.clone(), owner);
                affected
            }
        }
    }

    /// Removes an object that is decoded or gone. Returns the affected Services.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Vec<Affected> {
        match key {
            ObjectKey::Service(_) | ObjectKey::Preemption(_) => Vec::new(),
            ObjectKey::Node(name) => {
                let known = self.nodes.remove(name);
                known.then(|| Affected::Node(name.clone())).into_iter().collect()
            }
            ObjectKey::Slice(slice) => {
                let Some(owner) = self.slices.remove(slice) else {
                    return Vec::new();
                };
                self.unowned.remove(slice);
                if let Some(owner) = &owner
                    && let Some(slices) = self.owned.get_mut(owner)
                {
                    slices.remove(slice);
                    if slices.is_empty() {
                        self.owned.remove(owner);
                    }
                }
                vec![affected_by(slice, owner.as_ref())]
            }
        }
    }

    /// Handles a complete list of this kind; `unread` are its objects without a known state. If `unnamed`, the
    /// list contains an object without a readable name, and removes none. Returns the affected Services.
    pub(super) fn listed(
        &mut self,
        kind: Kind,
        unread: BTreeMap<ObjectKey, Owner>,
        unnamed: bool,
    ) -> BTreeSet<Affected> {
        let mut affected = BTreeSet::new();
        if !unnamed {
            for key in self.keys(kind).iter().filter(|key| !unread.contains_key(key)) {
                affected.extend(self.remove(key));
            }
        }
        for (key, owner) in unread {
            affected.extend(self.add(&key, owner));
        }
        let flipped = if unnamed { self.unnamed.insert(kind) } else { self.unnamed.remove(&kind) };
        if flipped {
            affected.insert(Affected::All);
        }
        affected
    }

    fn keys(&self, kind: Kind) -> Vec<ObjectKey> {
        match kind {
            Kind::Services | Kind::Preemptions => Vec::new(),
            Kind::EndpointSlices => self.slices.keys().cloned().map(ObjectKey::Slice).collect(),
            Kind::Nodes => self.nodes.iter().cloned().map(ObjectKey::Node).collect(),
        }
    }

    /// Returns the slices that belong, or may belong, to this Service.
    pub(super) fn slices_of(&self, service: &ServiceKey) -> impl Iterator<Item = &SliceKey> {
        let first = SliceKey { namespace: Arc::clone(&service.namespace), name: "".into() };
        let unowned = self.unowned.range(first..);
        let unowned = unowned.take_while(|slice| slice.namespace == service.namespace);
        self.owned.get(service).into_iter().flatten().chain(unowned)
    }

    /// Returns true if this node exists without a known state.
    pub(super) fn has_node(&self, name: &NodeName) -> bool {
        self.nodes.contains(name)
    }

    /// Returns true if there is an object of this kind without a readable name.
    pub(super) fn has_unnamed(&self, kind: Kind) -> bool {
        self.unnamed.contains(&kind)
    }

    /// Checks the invariants: both sides of the index agree, and no object in it has a cached state.
    pub(super) fn check(&self, cache: &Cache) -> bool {
        let forward = self.slices.iter().all(|(slice, owner)| match owner {
            Some(owner) => self.owned.get(owner).is_some_and(|slices| slices.contains(slice)),
            None => self.unowned.contains(slice),
        });
        let indexed = self.unowned.len() + self.owned.values().map(BTreeSet::len).sum::<usize>();
        let lacking = [Kind::EndpointSlices, Kind::Nodes]
            .into_iter()
            .all(|kind| self.keys(kind).iter().all(|key| !cache.holds(key)));
        forward && indexed == self.slices.len() && lacking
    }
}

fn affected_by(slice: &SliceKey, owner: Option<&ServiceKey>) -> Affected {
    match owner {
        Some(owner) => Affected::Service(owner.clone()),
        None => Affected::Namespace(Arc::clone(&slice.namespace)),
    }
}

impl Cache {
    /// Marks the affected Services as dirty.
    pub(super) fn mark_affected(&mut self, affected: impl IntoIterator<Item = Affected>, arrival: Arrival) {
        for affected in affected {
            let services: Vec<ServiceKey> = match affected {
                Affected::Service(service) => vec![service],
                Affected::Namespace(namespace) => {
                    let first = ServiceKey { namespace: Arc::clone(&namespace), name: "".into() };
                    let known = self.entries.range(first..).map(|(service, _)| service);
                    known.take_while(|service| service.namespace == namespace).cloned().collect()
                }
                Affected::Node(name) => {
                    self.mark_node_dirty(&name, arrival);
                    continue;
                }
                Affected::All => self.entries.keys().cloned().collect(),
            };
            for service in &services {
                self.mark_dirty(service, arrival);
            }
        }
    }
}
