//! After any inputs in any order, the Informer agrees with a fresh one that gets only the final state.

use proptest::prelude::*;

use super::*;

/// An event at the API server, or between it and the Informer.
#[derive(Clone, Debug)]
enum Action {
    Service {
        at: usize,
        uid: u8,
        local: bool,
        load_balancer: bool,
        dual: bool,
    },
    Slice {
        at: usize,
        of: usize,
        address_type: AddressType,
        endpoints: Vec<(u8, usize, bool)>,
    },
    Node {
        at: usize,
        ip: u8,
        v6: bool,
        excluded: Option<ExclusionRule>,
        ready: bool,
    },
    Gone(Kind, usize),
    /// The watch breaks: changes of this kind are missed until the next list.
    Break(Kind),
    Relist {
        kind: Kind,
        undecodable: Option<usize>,
        /// True if objects that were undecodable before still are.
        still: bool,
    },
    AbortedList(Kind),
    StaleList(Kind),
    /// The storage is restored to an earlier state.
    Restored(Kind),
    /// The last change arrives again, or an older state arrives late.
    Again(Kind, usize),
    /// A new undecodable state of an object that may be new itself; for slices with the owner, where the last one
    /// means no owner.
    Undecodable(Kind, usize, Option<usize>),
    Reconnect(Kind),
    /// The term in which reports become Events, if they do.
    Term(Option<u64>),
    Turn,
    Pass(u64),
}

const SERVICES: usize = 3;
const SLICES: usize = 4;
const NODES: usize = 4;

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(Kind::OF_LEVELS.to_vec())
}

fn address_type() -> impl Strategy<Value = AddressType> {
    let types = [AddressType::Unset, AddressType::Ip(V4), AddressType::Ip(V6), AddressType::Fqdn];
    prop::sample::select(types.to_vec())
}

fn excluded() -> impl Strategy<Value = ExclusionRule> {
    prop::sample::select(vec![ExclusionRule::ControlPlane, ExclusionRule::ToBeDeleted])
}

fn action() -> impl Strategy<Value = Action> {
    let endpoint = (0_u8..6, 0..NODES + 2, any::<bool>());
    prop_oneof![
        2 => (0..SERVICES, 0_u8..2, prop::bool::weighted(0.8), prop::bool::weighted(0.8), any::<bool>())
            .prop_map(|(at, uid, local, load_balancer, dual)| Action::Service { at, uid, local, load_balancer, dual }),
        6 => (0..SLICES, 0..SERVICES + 1, address_type(), prop::collection::vec(endpoint, 0..5))
            .prop_map(|(at, of, address_type, endpoints)| Action::Slice { at, of, address_type, endpoints }),
        3 => (0..NODES, 0_u8..6, any::<bool>(), prop::option::weighted(0.3, excluded()), any::<bool>())
            .prop_map(|(at, ip, v6, excluded, ready)| Action::Node { at, ip, v6, excluded, ready }),
        2 => (kind(), 0..SLICES).prop_map(|(kind, at)| Action::Gone(kind, at)),
        1 => kind().prop_map(Action::Break),
        3 => (kind(), prop::option::weighted(0.3, 0..SLICES), any::<bool>())
            .prop_map(|(kind, undecodable, still)| Action::Relist { kind, undecodable, still }),
        1 => kind().prop_map(Action::AbortedList),
        1 => kind().prop_map(Action::StaleList),
        1 => kind().prop_map(Action::Restored),
        2 => (kind(), 0..SLICES).prop_map(|(kind, at)| Action::Again(kind, at)),
        2 => (kind(), 0..SLICES, prop::option::weighted(0.8, 0..SERVICES + 1))
            .prop_map(|(kind, at, of)| Action::Undecodable(kind, at, of)),
        1 => kind().prop_map(Action::Reconnect),
        1 => prop::option::of(0_u64..3).prop_map(Action::Term),
        3 => Just(Action::Turn),
        1 => (0_u64..400).prop_map(Action::Pass),
    ]
}

fn name(kind: Kind, at: usize) -> ObjectKey {
    match kind {
        Kind::Services => service_key(&format!("s{at}")),
        Kind::EndpointSlices => slice_key(&format!("e{at}")),
        Kind::Nodes => node_key(&format!("n{at}")),
        Kind::Preemptions => panic!("levels do not rest on events"),
    }
}

fn make_slice(at: usize, of: usize, address_type: AddressType, endpoints: &[(u8, usize, bool)]) -> Object {
    let of = if of < SERVICES { format!("s{of}") } else { String::new() };
    let mut object = slice(&format!("e{at}"), &of, &[]);
    let make = |(identity, node, terminating): &(u8, usize, bool)| {
        // One node that never exists, and one empty nodeName.
        let node = if *node <= NODES { format!("n{node}") } else { String::new() };
        endpoint(u64::from(*identity), &format!("{node}{}", if *terminating { "!" } else { "" }))
    };
    object.address_type = address_type;
    object.endpoints = endpoints.iter().map(make).collect();
    object.into()
}

fn make(action: &Action) -> Option<Object> {
    match action {
        Action::Service { at, uid, local, load_balancer, dual } => {
            let mut object = service(&format!("s{at}"));
            object.uid = ServiceUid::new(format!("{at}-{uid}"));
            object.local = *local;
            object.service_type = if *load_balancer { ServiceType::LoadBalancer } else { ServiceType::Other };
            object.families = if *dual { vec![V4, V6] } else { vec![V4] };
            Some(object.into())
        }
        Action::Slice { at, of, address_type, endpoints } => {
            Some(make_slice(*at, *of, *address_type, endpoints))
        }
        Action::Node { at, ip, v6, excluded, ready } => {
            let mut ips = Vec::new();
            if *ip > 0 {
                ips.push(format!("10.0.{at}.{ip}"));
            }
            if *v6 {
                ips.push(format!("fd00::{at}:{ip}"));
            }
            let ips: Vec<&str> = ips.iter().map(String::as_str).collect();
            let mut object = node(&format!("n{at}"), &ips);
            object.ready = *ready;
            Some(excluded.iter().fold(object, |object, reason| marked(*reason, object)).into())
        }
        Action::Gone(..)
        | Action::Break(_)
        | Action::Relist { .. }
        | Action::AbortedList(_)
        | Action::StaleList(_)
        | Action::Restored(_)
        | Action::Again(..)
        | Action::Undecodable(..)
        | Action::Reconnect(_)
        | Action::Term(_)
        | Action::Turn
        | Action::Pass(_) => None,
    }
}

/// The API server, the connection to it, the Informer, and a listener to its outputs.
struct World {
    run: Run,
    /// The existing objects, and those that the Informer has received.
    real: BTreeMap<ObjectKey, Object>,
    given: BTreeMap<ObjectKey, Object>,
    broken: BTreeSet<Kind>,
    /// Objects whose newest state could not be decoded, with the owners of slices.
    behind: BTreeMap<ObjectKey, Owner>,
    facts: BTreeMap<ServiceUid, Arc<ServiceFact>>,
    /// The newest revision of each Service, including deleted ones.
    revisions: BTreeMap<ServiceUid, u64>,
    /// Services whose data errors last and were reported in this term.
    reported: BTreeSet<ServiceUid>,
}

impl World {
    fn new() -> World {
        World {
            run: Run::of(params()),
            real: BTreeMap::new(),
            given: BTreeMap::new(),
            broken: BTreeSet::new(),
            behind: BTreeMap::new(),
            facts: BTreeMap::new(),
            revisions: BTreeMap::new(),
            reported: BTreeSet::new(),
        }
    }

    /// Delivers a list of this kind in which these objects are undecodable.
    fn relist(&mut self, kind: Kind, bad: BTreeMap<ObjectKey, Owner>) {
        self.run.observe(kind, WatchUpdate::ListBegan(Provenance::Relist));
        for (key, object) in self.real.iter().filter(|(key, _)| kind_of(key) == kind) {
            let event = match bad.get(key) {
                Some(owner) => bad_line(Some(key.clone()), owner.clone()),
                None => WatchUpdate::Object(object.clone()),
            };
            self.run.observe(kind, event);
        }
        self.run.list_done(kind, self.run.version, None);
        self.given.retain(|key, _| kind_of(key) != kind || bad.contains_key(key));
        let listed = self.real.iter().filter(|(key, _)| kind_of(key) == kind && !bad.contains_key(*key));
        self.given.extend(listed.map(|(key, object)| (key.clone(), object.clone())));
        self.broken.remove(&kind);
        // An undecodable object is outdated until it changes or the next list arrives.
        self.behind.retain(|key, _| kind_of(key) != kind);
        self.behind.extend(bad);
    }

    /// Returns the existing objects of this kind that are undecodable: this one, and those that were before.
    fn bad_ones(&self, kind: Kind, at: Option<usize>, still: bool) -> BTreeMap<ObjectKey, Owner> {
        let before = self.behind.iter().filter(|(key, _)| still && kind_of(key) == kind);
        let before = before.map(|(key, owner)| (key.clone(), owner.clone()));
        let now = at.map(|at| (name(kind, at), Owner::Unknown));
        now.into_iter().chain(before).filter(|(key, _)| self.real.contains_key(key)).collect()
    }

    /// Discards the observed history, with its versions.
    fn restored(&mut self, kind: Kind) {
        let undone = self.run.version + 1_000_000;
        for object in self.given.values().filter(|object| kind_of(&object.key()) == kind) {
            self.run.observe(kind, WatchUpdate::Object(stamped(object.clone(), undone)));
        }
        self.run.observe(kind, WatchUpdate::Bookmark(version(undone)));
        for _ in 0..5 {
            self.run.observe(kind, WatchUpdate::ListBegan(Provenance::Relist));
            self.run.list_done(kind, self.run.version, None);
            self.run.deliver();
            self.run.now = self.run.now.plus(Duration::from_secs(61));
        }
        self.relist(kind, BTreeMap::new());
    }

    /// Delivers an undecodable state of an object. The object exists from now on, if it did not before.
    fn undecodable(&mut self, kind: Kind, at: usize, of: Option<usize>) {
        let key = name(kind, at);
        let made = match kind {
            Kind::Services => Action::Service { at, uid: 0, local: true, load_balancer: true, dual: false },
            Kind::EndpointSlices => {
                let (of, address_type) = (of.unwrap_or_default(), AddressType::Ip(V4));
                Action::Slice { at, of, address_type, endpoints: vec![(0, at, false)] }
            }
            Kind::Nodes => Action::Node { at, ip: 1, v6: false, excluded: None, ready: true },
            Kind::Preemptions => panic!("levels do not rest on events"),
        };
        let object = stamped(make(&made).expect("it makes an object"), self.run.version);
        self.real.insert(key.clone(), object);
        if !self.broken.contains(&kind) {
            let owner = match of.filter(|_| kind == Kind::EndpointSlices) {
                None => Owner::Unknown,
                Some(SERVICES) => Owner::Nobody,
                Some(of) => Owner::Service(ServiceKey::new("shop", format!("s{of}"))),
            };
            self.run.observe(kind, bad_line(Some(key.clone()), owner.clone()));
            self.behind.insert(key, owner);
        }
    }

    fn action(&mut self, action: &Action) {
        self.run.version += 1;
        let now_version = version(self.run.version);
        match action {
            Action::Service { .. } | Action::Slice { .. } | Action::Node { .. } => {
                let object = stamped(make(action).expect("it makes an object"), self.run.version);
                let key = object.key();
                self.real.insert(key.clone(), object.clone());
                if !self.broken.contains(&kind_of(&key)) {
                    self.given.insert(key.clone(), object.clone());
                    self.behind.remove(&key);
                    self.run.observe(kind_of(&key), WatchUpdate::Object(object));
                }
            }
            Action::Gone(kind, at) => {
                let key = name(*kind, *at);
                self.real.remove(&key);
                if !self.broken.contains(kind) {
                    self.given.remove(&key);
                    self.behind.remove(&key);
                    self.run.observe(*kind, WatchUpdate::Deleted { key, resource_version: now_version });
                }
            }
            Action::Break(kind) => {
                self.broken.insert(*kind);
            }
            Action::Relist { kind, undecodable, still } => {
                self.relist(*kind, self.bad_ones(*kind, *undecodable, *still));
            }
            Action::AbortedList(kind) => {
                self.run.observe(*kind, WatchUpdate::ListBegan(Provenance::Relist));
                self.run.observe(*kind, WatchUpdate::ListAborted);
            }
            Action::StaleList(kind) => {
                self.run.observe(*kind, WatchUpdate::Bookmark(now_version));
                self.run.observe(*kind, WatchUpdate::ListBegan(Provenance::Relist));
                self.run.list_done(*kind, 2, None);
            }
            Action::Restored(kind) => self.restored(*kind),
            Action::Again(kind, at) => {
                if let Some(object) = self.given.get(&name(*kind, *at)).cloned() {
                    self.run.observe(*kind, WatchUpdate::Object(stamped(object.clone(), 1)));
                    self.run.observe(*kind, WatchUpdate::Object(object));
                }
            }
            Action::Undecodable(kind, at, of) => self.undecodable(*kind, *at, *of),
            Action::Reconnect(kind) => self.run.observe(*kind, WatchUpdate::Reconnected),
            Action::Term(term) => {
                if term.is_some() && term.map(Epoch) != self.run.informer.reporting {
                    self.reported.clear();
                }
                self.run.reporting(*term);
            }
            Action::Turn => {}
            Action::Pass(seconds) => {
                self.run.deliver();
                self.run.now = self.run.now.plus(Duration::from_secs(*seconds));
            }
        }
    }

    fn turn(&mut self) -> Result<(), TestCaseError> {
        let out = self.run.turn();
        for (uid, fact) in facts(&out) {
            match fact {
                Some(fact) => {
                    prop_assert_eq!(&fact.uid, &uid);
                    for (_, part) in fact.parts.iter() {
                        prop_assert!(part.tolerated.iter().all(|ip| !part.required.contains_key(ip)));
                    }
                    let newest = self.revisions.insert(uid.clone(), fact.revision);
                    prop_assert!(newest <= Some(fact.revision));
                    if let Some(before) = self.facts.insert(uid, Arc::clone(&fact)) {
                        prop_assert!(!before.same_as(&fact), "said twice");
                    }
                }
                None => prop_assert!(self.facts.remove(&uid).is_some(), "gone twice"),
            }
        }
        self.is_reported_once(&reports(&out))?;
        for fact in self.facts.values() {
            self.is_safe(fact)?;
            self.is_complete_or_says_so(fact)?;
        }
        Ok(())
    }

    /// Checks that lasting data errors are reported exactly once in each term.
    fn is_reported_once(&mut self, reports: &[Report]) -> Result<(), TestCaseError> {
        let erring = |uid: &ServiceUid| self.facts.get(uid).is_some_and(|fact| !fact.data_errors.is_empty());
        for report in reports.iter().filter(|report| matches!(report.what, EventKind::DataError { .. })) {
            let [Subject::Service(service)] = &report.subjects[..] else {
                return Err(TestCaseError::fail("it is told on one Service"));
            };
            prop_assert!(erring(&service.uid), "what has ended is told");
            prop_assert!(self.reported.insert(service.uid.clone()), "told twice");
        }
        self.reported.retain(erring);
        let all = self.facts.keys().filter(|uid| erring(uid)).all(|uid| self.reported.contains(uid));
        prop_assert!(all || self.run.informer.reporting.is_none(), "something is never told");
        Ok(())
    }

    /// Checks that an object that was never decoded does not count as absent, and that a known object does not count
    /// as unknown.
    fn is_complete_or_says_so(&self, fact: &ServiceFact) -> Result<(), TestCaseError> {
        let Some(Object::Service(service)) = self.given.get(&ObjectKey::Service(fact.key.clone())) else {
            return Err(TestCaseError::fail("a Service that is not known is told"));
        };
        if fact.candidacy != Candidacy::Candidate {
            return Ok(());
        }
        let unread = || self.behind.iter().filter(|(key, _)| !self.given.contains_key(*key));
        let slices = unread().filter(|(key, owner)| {
            let may_be_its = match owner {
                Owner::Unknown => true,
                Owner::Nobody => false,
                Owner::Service(owner) => *owner == fact.key,
            };
            kind_of(key) == Kind::EndpointSlices && may_be_its
        });
        let own = self.given.values().filter_map(|object| match object {
            Object::Slice(slice) if slice.service.as_ref() == Some(&fact.key) => Some(slice),
            Object::Slice(_) | Object::Service(_) | Object::Node(_) | Object::Preemption(_) => None,
        });
        let used = own.filter(|slice| slice.address_type != AddressType::Fqdn);
        let on: BTreeSet<&NodeName> =
            used.flat_map(|slice| &slice.endpoints).filter_map(|endpoint| endpoint.node.as_ref()).collect();
        let nodes = unread().filter(|(key, _)| match key {
            ObjectKey::Node(name) => on.contains(name),
            ObjectKey::Service(_) | ObjectKey::Slice(_) | ObjectKey::Preemption(_) => false,
        });
        let incomplete = slices.count() + nodes.count() > 0;
        for (family, part) in fact.parts.iter() {
            let used = part::used_families(service).contains(&family);
            prop_assert!(!(incomplete && used) || part.unusable, "{:?} of {fact:?}", self.behind);
            let some = !part.required.is_empty() || !part.tolerated.is_empty();
            // The last known node of an endpoint without a nodeName may be unknown too.
            let nameless = fact.data_errors.iter().any(|error| error.contains("without a nodeName"));
            prop_assert!(!(some && part.unusable) || incomplete || nameless, "{fact:?}");
        }
        Ok(())
    }

    /// Checks that every address that a live endpoint requires is present, as far as the Informer knows, and that
    /// none is present only because of endpoints of the other family.
    fn is_safe(&self, fact: &ServiceFact) -> Result<(), TestCaseError> {
        if fact.candidacy != Candidacy::Candidate {
            return Ok(());
        }
        for object in self.given.values() {
            let Object::Slice(slice) = object else { continue };
            if slice.service.as_ref() != Some(&fact.key) {
                continue;
            }
            for endpoint in slice.endpoints.iter().filter(|endpoint| !endpoint.terminating) {
                let Some(name) = &endpoint.node else { continue };
                let Some(Object::Node(node)) = self.given.get(&ObjectKey::Node(name.clone())) else {
                    continue;
                };
                for family in slice.address_type.families() {
                    let is_its = |ip: &&IpAddr| ip.is_ipv4() == (*family == V4) && !node.marks.control_plane;
                    let Some(ip) = node.internal_ips.iter().find(is_its) else { continue };
                    let part = &fact.parts[family];
                    let is_doomed = !node.taints.is_empty();
                    let may_stay = is_doomed && part.tolerated.contains(ip) && !part.required.is_empty();
                    prop_assert!(part.required.contains_key(ip) || may_stay, "{ip} of {name} in {fact:?}");
                }
            }
        }
        self.has_no_unexpected_nodes(fact)
    }

    /// Checks that each required address belongs to a node with an endpoint in a slice of its family.
    fn has_no_unexpected_nodes(&self, fact: &ServiceFact) -> Result<(), TestCaseError> {
        for (family, part) in fact.parts.iter() {
            let own = self.given.values().filter_map(|object| match object {
                Object::Slice(slice) if slice.service.as_ref() == Some(&fact.key) => Some(slice),
                Object::Slice(_) | Object::Service(_) | Object::Node(_) | Object::Preemption(_) => None,
            });
            let own = own.filter(|slice| slice.address_type.families().contains(&family));
            let hosts: BTreeSet<&NodeName> = own
                .flat_map(|slice| &slice.endpoints)
                .filter_map(|endpoint| endpoint.node.as_ref())
                .collect();
            let strange = part.required.values().find(|node| !hosts.contains(&node.name));
            prop_assert!(strange.is_none(), "{strange:?} in {fact:?}");
        }
        Ok(())
    }
}

/// Returns the content of a fact without its history.
fn core(fact: &ServiceFact) -> ServiceFact {
    // The state of the slices' resource depends on the order of changes.
    let resource = None;
    ServiceFact {
        revision: 0,
        provenance: Provenance::Watch,
        triggered: None,
        read: None,
        resource,
        ..fact.clone()
    }
}

proptest! {
    #[test]
    fn any_history_ends_in_the_facts_of_the_final_state(
        actions in prop::collection::vec(action(), 0..60),
        waits in any::<bool>(),
    ) {
        let mut world = World::new();
        // Inputs wait until the end of a turn, and newer ones replace older ones (A3).
        world.run.waiting = waits.then(BTreeMap::new);
        for action in &actions {
            world.action(action);
            if matches!(action, Action::Turn) {
                world.turn()?;
            }
            if Kind::OF_LEVELS.iter().any(|kind| !world.run.informer.streams[kind].synced) {
                prop_assert!(world.facts.is_empty());
            }
        }
        for kind in Kind::OF_LEVELS {
            world.run.version += 1;
            let behind = world.behind.keys().any(|key| kind_of(key) == kind);
            if behind || world.broken.contains(&kind) || !world.run.informer.streams[&kind].synced {
                world.relist(kind, BTreeMap::new());
            }
        }
        world.turn()?;
        // Last known addresses expire, and so does the wait for ingress.
        world.run.now = world.run.now.plus(Duration::from_secs(600));
        world.turn()?;
        prop_assert_eq!(world.run.informer.deadline(), None);

        let mut fresh = World::new();
        fresh.run.version = world.run.version;
        fresh.real = world.real.clone();
        for kind in Kind::OF_LEVELS {
            fresh.relist(kind, BTreeMap::new());
        }
        fresh.turn()?;
        // One slice may name the node of an endpoint that has none in another slice; the node is then remembered for a
        // while.
        fresh.run.now = fresh.run.now.plus(Duration::from_secs(600));
        fresh.turn()?;
        let facts: BTreeMap<_, _> = world.facts.iter().map(|(uid, fact)| (uid, core(fact))).collect();
        let expected: BTreeMap<_, _> = fresh.facts.iter().map(|(uid, fact)| (uid, core(fact))).collect();
        prop_assert_eq!(facts, expected);
        prop_assert_eq!(world.run.informer.cache.entries.len(), fresh.run.informer.cache.entries.len());
        prop_assert_eq!(world.run.informer.cache.nodes.len(), fresh.run.informer.cache.nodes.len());
    }
}
