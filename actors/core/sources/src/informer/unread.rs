//! Tracks objects that exist but were never decoded. What such an object requires is not known, which differs from
//! nothing (D6). Everything that depends on it is incomplete until the object is decoded or gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cache::{Arrival, Cache};
use model::ids::{NodeName, ServiceKey, SliceKey};
use model::object::{Kind, ObjectKey, Owner};

/// The Services affected by a change in the set of unread objects.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Concerned {
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
pub(super) struct Unread {
    /// The slices that belong, or may belong, to a Service; `None` if their metadata do not name it.
    slices: BTreeMap<SliceKey, Option<ServiceKey>>,
    /// The slices by Service, and those whose Service is unknown.
    owned: BTreeMap<ServiceKey, BTreeSet<SliceKey>>,
    anybodys: BTreeSet<SliceKey>,
    nodes: BTreeSet<NodeName>,
    /// Kinds whose last complete list contained an object without a readable name.
    blind: BTreeSet<Kind>,
}

impl Unread {
    /// Adds an object without a known state. Returns the affected Services, if this is a change.
    pub(super) fn add(&mut self, key: &ObjectKey, owner: Owner) -> Vec<Concerned> {
        match key {
            ObjectKey::Service(_) | ObjectKey::Preemption(_) => Vec::new(),
            ObjectKey::Node(name) => {
                let new = self.nodes.insert(name.clone());
                new.then(|| Concerned::Node(name.clone())).into_iter().collect()
            }
            ObjectKey::Slice(slice) => {
                let owner = match owner {
                    Owner::Unknown => None,
                    Owner::Service(owner) => Some(owner),
                    // Nothing depends on it.
                    Owner::Nobody => return self.remove(key),
                };
                if self.slices.get(slice) == Some(&owner) {
                    return Vec::new();
                }
                let mut concerned = self.remove(key);
                concerned.push(whom(slice, owner.as_ref()));
                let of = match owner.clone() {
                    Some(owner) => self.owned.entry(owner).or_default(),
                    None => &mut self.anybodys,
                };
                of.insert(slice.clone());
                self.slices.insert(slice.clone(), owner);
                concerned
            }
        }
    }

    /// Removes an object that is decoded or gone. Returns the affected Services.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Vec<Concerned> {
        match key {
            ObjectKey::Service(_) | ObjectKey::Preemption(_) => Vec::new(),
            ObjectKey::Node(name) => {
                let known = self.nodes.remove(name);
                known.then(|| Concerned::Node(name.clone())).into_iter().collect()
            }
            ObjectKey::Slice(slice) => {
                let Some(owner) = self.slices.remove(slice) else {
                    return Vec::new();
                };
                self.anybodys.remove(slice);
                if let Some(owner) = &owner
                    && let Some(slices) = self.owned.get_mut(owner)
                {
                    slices.remove(slice);
                    if slices.is_empty() {
                        self.owned.remove(owner);
                    }
                }
                vec![whom(slice, owner.as_ref())]
            }
        }
    }

    /// Handles a complete list of this kind; `unread` are its objects without a known state. A `blind` list, which
    /// contains an object without a readable name, removes none. Returns the affected Services.
    pub(super) fn listed(
        &mut self,
        kind: Kind,
        unread: BTreeMap<ObjectKey, Owner>,
        blind: bool,
    ) -> BTreeSet<Concerned> {
        let mut concerned = BTreeSet::new();
        if !blind {
            for key in self.keys(kind).iter().filter(|key| !unread.contains_key(key)) {
                concerned.extend(self.remove(key));
            }
        }
        for (key, owner) in unread {
            concerned.extend(self.add(&key, owner));
        }
        let flipped = if blind { self.blind.insert(kind) } else { self.blind.remove(&kind) };
        if flipped {
            concerned.insert(Concerned::All);
        }
        concerned
    }

    fn keys(&self, kind: Kind) -> Vec<ObjectKey> {
        match kind {
            Kind::Services | Kind::Preemptions => Vec::new(),
            Kind::EndpointSlices => self.slices.keys().cloned().map(ObjectKey::Slice).collect(),
            Kind::Nodes => self.nodes.iter().cloned().map(ObjectKey::Node).collect(),
        }
    }

    /// The slices that belong, or may belong, to this Service.
    pub(super) fn slices_of(&self, service: &ServiceKey) -> impl Iterator<Item = &SliceKey> {
        let first = SliceKey { namespace: Arc::clone(&service.namespace), name: "".into() };
        let anybodys = self.anybodys.range(first..);
        let anybodys = anybodys.take_while(|slice| slice.namespace == service.namespace);
        self.owned.get(service).into_iter().flatten().chain(anybodys)
    }

    /// Returns true if this node exists without a known state.
    pub(super) fn has_node(&self, name: &NodeName) -> bool {
        self.nodes.contains(name)
    }

    /// Returns true if there is an object of this kind without a readable name.
    pub(super) fn is_blind(&self, kind: Kind) -> bool {
        self.blind.contains(&kind)
    }

    /// Checks the invariants: both sides of the index agree, and no object in it has a cached state.
    pub(super) fn check(&self, cache: &Cache) -> bool {
        let forward = self.slices.iter().all(|(slice, owner)| match owner {
            Some(owner) => self.owned.get(owner).is_some_and(|slices| slices.contains(slice)),
            None => self.anybodys.contains(slice),
        });
        let indexed = self.anybodys.len() + self.owned.values().map(BTreeSet::len).sum::<usize>();
        let lacking = [Kind::EndpointSlices, Kind::Nodes]
            .into_iter()
            .all(|kind| self.keys(kind).iter().all(|key| !cache.holds(key)));
        forward && indexed == self.slices.len() && lacking
    }
}

fn whom(slice: &SliceKey, owner: Option<&ServiceKey>) -> Concerned {
    match owner {
        Some(owner) => Concerned::Service(owner.clone()),
        None => Concerned::Namespace(Arc::clone(&slice.namespace)),
    }
}

impl Cache {
    /// Marks the affected Services as dirty.
    pub(super) fn touch_concerned(
        &mut self,
        concerned: impl IntoIterator<Item = Concerned>,
        arrival: Arrival,
    ) {
        for concerned in concerned {
            let services: Vec<ServiceKey> = match concerned {
                Concerned::Service(service) => vec![service],
                Concerned::Namespace(namespace) => {
                    let first = ServiceKey { namespace: Arc::clone(&namespace), name: "".into() };
                    let known = self.entries.range(first..).map(|(service, _)| service);
                    known.take_while(|service| service.namespace == namespace).cloned().collect()
                }
                Concerned::Node(name) => {
                    self.touch_node(&name, arrival);
                    continue;
                }
                Concerned::All => self.entries.keys().cloned().collect(),
            };
            for service in &services {
                self.touch(service, arrival);
            }
        }
    }
}
