//! Remembers what exists although no state of it was ever decoded. What such an object asks for is not known, which
//! is not the same as nothing (D6): what rests on it is incomplete until it is decoded or gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cache::{Arrival, Cache};
use model::ids::{NodeName, ServiceKey, SliceKey};
use model::object::{Kind, ObjectKey, Owner};

/// The Services that a change of what is not known concerns.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Concerned {
    /// This one.
    Service(ServiceKey),
    /// All of a namespace.
    Namespace(Arc<str>),
    /// Those that rest on this node.
    Node(NodeName),
    /// All.
    All,
}

/// The objects of which no state is known. Services are not among them: nothing is managed for one that was never
/// decoded.
#[derive(Default, Debug)]
pub(super) struct Unread {
    /// The slices that belong, or may belong, to a Service; `None` when their metadata do not say to which.
    slices: BTreeMap<SliceKey, Option<ServiceKey>>,
    /// The slices whose Service is known, and the others.
    owned: BTreeMap<ServiceKey, BTreeSet<SliceKey>>,
    anybodys: BTreeSet<SliceKey>,
    nodes: BTreeSet<NodeName>,
    /// Kinds whose last complete list held an object that could not be named either.
    blind: BTreeSet<Kind>,
}

impl Unread {
    /// An object exists and no state of it is known; whom this concerns, when it is news.
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
                    // Nothing rests on it.
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

    /// The object is decoded or gone; whom this concerns.
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

    /// A list of this kind is complete: `unread` are those in it of which no state is known. One that is `blind`,
    /// which holds an object without a name, ends nothing. Whom this concerns.
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

    /// The slices that are, or may be, this Service's.
    pub(super) fn slices_of(&self, service: &ServiceKey) -> impl Iterator<Item = &SliceKey> {
        let first = SliceKey { namespace: Arc::clone(&service.namespace), name: "".into() };
        let anybodys = self.anybodys.range(first..);
        let anybodys = anybodys.take_while(|slice| slice.namespace == service.namespace);
        self.owned.get(service).into_iter().flatten().chain(anybodys)
    }

    /// Whether this node exists.
    pub(super) fn has_node(&self, name: &NodeName) -> bool {
        self.nodes.contains(name)
    }

    /// Whether there is an object of this kind that could not even be named.
    pub(super) fn is_blind(&self, kind: Kind) -> bool {
        self.blind.contains(&kind)
    }

    /// The invariants: both sides of the index agree, and of nothing in it is a state held.
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
    /// Marks the Services that a change of what is not known concerns.
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
