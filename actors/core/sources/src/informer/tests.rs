//! Tests of the Informer on the test's clock: lists, changes, candidates, parts and data errors.

mod conditions;
mod confirm;
mod families;
mod ingress;
mod nodes;
mod property;
mod resources;
mod unread;

use super::*;
use mechanisms::outbox::{Coalesce, CoalescingQueue, FactOrder};
use model::ids::Family;
use model::ids::{NodeUid, SliceKey};
use model::object::{
    AddressType, Endpoint, ExclusionRule, NodeMarks, NodeObject, ResourceVersion, ServiceObject, ServiceType,
    SliceObject, TO_BE_DELETED, Taint,
};
use model::report::{EventKind, ServiceRef, Subject};
use model::view::Candidacy;
use std::net::IpAddr;

const V4: Family = Family::V4;
const V6: Family = Family::V6;

fn version(n: u64) -> ResourceVersion {
    ResourceVersion(n.to_string().into())
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn params() -> Params {
    Params {
        counts: Counts::Hosted,
        multi_slb: true,
        namespaces: BTreeSet::new(),
        selector: Selector::default(),
        last_known_for: Duration::from_secs(300),
        fail_on_data_errors: false,
        control_plane: false,
        per_family: true,
    }
}

fn service(name: &str) -> ServiceObject {
    ServiceObject {
        key: ServiceKey::new("shop", name),
        uid: ServiceUid::new(format!("uid-{name}")),
        resource_version: version(1),
        service_type: ServiceType::LoadBalancer,
        local: true,
        deleting: false,
        families: Vec::new(),
        paused: false,
        labels: BTreeMap::new(),
        internal: false,
        exposure: 0,
        has_class: false,
        has_ingress: false,
    }
}

fn node(name: &str, ips: &[&str]) -> NodeObject {
    NodeObject {
        name: NodeName::new(name),
        uid: NodeUid::new(format!("uid-{name}")),
        resource_version: version(1),
        internal_ips: ips.iter().map(|text| ip(text)).collect(),
        marks: NodeMarks::default(),
        ready: true,
        taints: Vec::new(),
        instance: None,
        created: None,
        preempt: None,
    }
}

/// Returns an endpoint on a node; `n1!` is terminating, `n1?` is not ready, and the empty name means no nodeName.
fn endpoint(identity: u64, on: &str) -> Endpoint {
    let name = on.trim_end_matches(['!', '?']);
    let terminating = on.ends_with('!');
    Endpoint {
        node: (!name.is_empty()).then(|| NodeName::new(name)),
        identity,
        ready: !on.ends_with(['!', '?']),
        serving: true,
        terminating,
    }
}

fn slice(name: &str, of: &str, nodes: &[&str]) -> SliceObject {
    SliceObject {
        key: SliceKey { namespace: "shop".into(), name: name.into() },
        service: (!of.is_empty()).then(|| ServiceKey::new("shop", of)),
        resource_version: version(1),
        address_type: AddressType::Ip(V4),
        endpoints: (1..).zip(nodes).map(|(identity, on)| endpoint(identity, on)).collect(),
        trigger_age: None,
    }
}

/// Returns the slices of a Service in both families, with the same endpoints.
fn dual_slices(name: &str, of: &str, nodes: &[&str]) -> [SliceObject; 2] {
    let v6 = slice(&format!("{name}-v6"), of, nodes);
    [slice(name, of, nodes), SliceObject { address_type: AddressType::Ip(V6), ..v6 }]
}

fn slice_key(name: &str) -> ObjectKey {
    ObjectKey::Slice(SliceKey { namespace: "shop".into(), name: name.into() })
}

fn service_key(name: &str) -> ObjectKey {
    ObjectKey::Service(ServiceKey::new("shop", name))
}

fn node_key(name: &str) -> ObjectKey {
    ObjectKey::Node(NodeName::new(name))
}

fn stamped(object: Object, n: u64) -> Object {
    match object {
        Object::Service(mut service) => {
            Arc::make_mut(&mut service).resource_version = version(n);
            Object::Service(service)
        }
        Object::Slice(mut slice) => {
            Arc::make_mut(&mut slice).resource_version = version(n);
            Object::Slice(slice)
        }
        Object::Node(mut node) => {
            Arc::make_mut(&mut node).resource_version = version(n);
            Object::Node(node)
        }
        Object::Preemption(mut event) => {
            Arc::make_mut(&mut event).resource_version = version(n);
            Object::Preemption(event)
        }
    }
}

/// An Informer on the test's clock, with the version counter of a server.
struct Run {
    informer: Informer,
    now: Now,
    version: u64,
    out: Vec<Out>,
    /// The times up to which EndpointSlices were processed, from the last turn.
    read: Vec<Out>,
    /// The observations that are delivered at the end of each turn, if they are queued at all.
    waiting: Option<BTreeMap<Kind, CoalescingQueue<Arrived>>>,
}

/// A queued observation of a watcher.
#[derive(Debug)]
struct Arrived(Kind, Now, WatchUpdate);

impl Coalesce for Arrived {
    type Key = ObjectKey;

    fn fact(&self) -> Option<ObjectKey> {
        self.2.object()
    }

    fn absorb(&mut self, older: &Arrived) {
        self.2.absorb(self.1, (older.1, &older.2));
    }

    fn place(_: &ObjectKey) -> FactOrder {
        FactOrder::Last
    }
}

impl Run {
    fn of(params: Params) -> Run {
        let (now, version) = (Now::from_millis(1_000_000), 100);
        let mut run = Run {
            informer: Informer::new(params),
            now,
            version,
            out: Vec::new(),
            read: Vec::new(),
            waiting: None,
        };
        run.reporting(Some(1));
        run
    }

    /// Starts a term in which its reports become Events.
    fn reporting(&mut self, term: Option<u64>) {
        self.informer.step(self.now, In::Reporting(term.map(Epoch)), &mut self.out);
    }

    /// Returns an Informer with the nodes n1 (10.0.0.1) to n4, and with these Services and slices, after its first
    /// turn.
    fn synced(services: Vec<ServiceObject>, slices: Vec<SliceObject>) -> Run {
        let mut run = Run::of(params());
        run.list(Kind::Services, services);
        run.list(Kind::EndpointSlices, slices);
        let ips = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
        let nodes = (1..).zip(ips).map(|(n, ip)| node(&format!("n{n}"), &[ip])).collect();
        run.list(Kind::Nodes, nodes);
        run.turn();
        run
    }

    fn observe(&mut self, kind: Kind, event: WatchUpdate) {
        if let Some(waiting) = &mut self.waiting {
            return waiting.entry(kind).or_default().push(Arrived(kind, self.now, event));
        }
        self.informer.step(self.now, In::Seen(kind, self.now, event), &mut self.out);
        assert!(self.informer.check());
    }

    /// Delivers the queued observations.
    fn deliver(&mut self) {
        for outbox in self.waiting.iter_mut().flat_map(BTreeMap::values_mut) {
            for Arrived(kind, read, event) in outbox.take(usize::MAX) {
                self.informer.step(self.now, In::Seen(kind, read, event), &mut self.out);
            }
        }
    }

    fn freshness(&mut self, kind: Kind, current: bool) {
        self.informer.step(
            self.now,
            In::Freshness(kind, if current { WatchFreshness::Current } else { WatchFreshness::Stale }),
            &mut self.out,
        );
    }

    fn list<T: Into<Object>>(&mut self, kind: Kind, objects: Vec<T>) {
        let provenance =
            if self.informer.streams[&kind].synced { Provenance::Relist } else { Provenance::FirstList };
        self.observe(kind, WatchUpdate::ListBegan(provenance));
        for object in objects {
            self.observe(kind, WatchUpdate::Object(object.into()));
        }
        self.version += 1;
        self.list_done(kind, self.version, None);
    }

    fn list_done(&mut self, kind: Kind, n: u64, term: Option<u64>) {
        self.observe(
            kind,
            WatchUpdate::ListDone {
                resource_version: version(n),
                serves: ListCoverage { term: term.map(Epoch), read: None },
            },
        );
    }

    fn put(&mut self, object: impl Into<Object>) {
        self.version += 1;
        let object = stamped(object.into(), self.version);
        self.observe(kind_of(&object.key()), WatchUpdate::Object(object));
    }

    fn gone(&mut self, key: ObjectKey) {
        self.version += 1;
        self.observe(kind_of(&key), WatchUpdate::Deleted { key, resource_version: version(self.version) });
    }

    /// Ends a turn as the shell does, and returns its outputs.
    fn turn(&mut self) -> Vec<Out> {
        self.deliver();
        if self.informer.deadline().is_some_and(|at| at <= self.now) {
            self.informer.tick(self.now, &mut self.out);
        }
        assert!(self.informer.check());
        assert!(self.informer.deadline().is_none_or(|at| at > self.now), "nothing is left to do");
        assert!(
            self.informer.reporting.is_some() || reports(&self.out).is_empty(),
            "it would not be published"
        );
        let (read, output) =
            std::mem::take(&mut self.out).into_iter().partition(|output| matches!(output, Out::ReadUpTo(_)));
        self.read = read;
        output
    }

    fn pass(&mut self, seconds: u64) -> Vec<Out> {
        self.now = self.now.plus(Duration::from_secs(seconds));
        self.turn()
    }

    /// Ends a turn that publishes exactly one Service's fact.
    fn fact(&mut self) -> Arc<ServiceFact> {
        let facts = facts(&self.turn());
        let [(_, Some(fact))] = &facts[..] else { panic!("one fact was said: {facts:?}") };
        Arc::clone(fact)
    }
}

fn facts(out: &[Out]) -> Vec<(ServiceUid, Option<Arc<ServiceFact>>)> {
    let fact = |output: &Out| match output {
        Out::Service(uid, fact) => Some((uid.clone(), fact.clone())),
        Out::Synced
        | Out::Confirmed(_)
        | Out::Reread(_)
        | Out::ReadUpTo(_)
        | Out::AwaitingIngress(_)
        | Out::Node(..)
        | Out::Cached(..)
        | Out::Relist(..)
        | Out::Report(_)
        | Out::Ended(_)
        | Out::Metric(_) => None,
    };
    out.iter().filter_map(fact).collect()
}

fn reports(out: &[Out]) -> Vec<Report> {
    let report = |output: &Out| match output {
        Out::Report(report) => Some(report.clone()),
        Out::Service(..)
        | Out::Ended(_)
        | Out::Synced
        | Out::Confirmed(_)
        | Out::Reread(_)
        | Out::ReadUpTo(_)
        | Out::AwaitingIngress(_)
        | Out::Node(..)
        | Out::Cached(..)
        | Out::Relist(..)
        | Out::Metric(_) => None,
    };
    out.iter().filter_map(report).collect()
}

fn samples(out: &[Out]) -> Vec<Metric> {
    let sample = |output: &Out| match output {
        // The states of slice sets have their own tests.
        Out::Metric(Metric::ServiceResources { .. }) => None,
        Out::Metric(sample) => Some(sample.clone()),
        Out::Service(..)
        | Out::Synced
        | Out::Confirmed(_)
        | Out::Reread(_)
        | Out::ReadUpTo(_)
        | Out::AwaitingIngress(_)
        | Out::Node(..)
        | Out::Cached(..)
        | Out::Relist(..)
        | Out::Report(_)
        | Out::Ended(_) => None,
    };
    out.iter().filter_map(sample).collect()
}

/// Returns the last published required and tolerated addresses as text: `1 2 | 3`.
fn shown(fact: &ServiceFact, family: Family) -> String {
    let part = &fact.parts[&family];
    let text = |ips: Vec<&IpAddr>| {
        let ips: Vec<String> = ips.into_iter().map(|ip| ip.to_string().replace("10.0.0.", "")).collect();
        ips.join(" ")
    };
    format!("{} | {}", text(part.required.keys().collect()), text(part.tolerated.iter().collect()))
}

#[test]
fn d6_nothing_is_published_before_all_first_lists() {
    let mut run = Run::of(params());
    run.list(Kind::EndpointSlices, vec![slice("web-1", "web", &["n1"]), slice("api-1", "api", &["n2"])]);
    run.list(Kind::Services, vec![service("web"), service("api")]);
    run.informer.tick(run.now, &mut run.out);
    let late = run.now.plus(Duration::from_secs(30));
    assert_eq!(run.informer.deadline(), Some(late), "slices that are asked for may be late (X5)");
    run.list(Kind::Nodes, vec![node("n1", &["10.0.0.1"]), node("n2", &["10.0.0.2"])]);
    assert!(facts(&run.out).is_empty());
    run.out.clear();
    let mut out = run.turn();
    out.retain(|output| !matches!(output, Out::Metric(_)));
    assert!(
        matches!(out[..], [Out::Node(..), Out::Node(..), Out::Service(..), Out::Service(..), Out::Synced]),
        "{out:?}"
    );
    let facts = facts(&out);
    let fact = facts[1].1.as_ref().expect("a fact");
    assert_eq!((shown(fact, V4).as_str(), shown(fact, V6).as_str()), ("1 | ", " | "));
    assert_eq!((fact.provenance, fact.triggered), (Provenance::FirstList, None));
    assert_eq!((fact.slices, fact.endpoints, fact.parts[&V4].unusable), (1, 1, false));
    run.put(slice("web-1", "web", &["n2"]));
    let out = run.turn();
    assert!(!out.iter().any(|output| matches!(output, Out::Synced)), "once");
}

#[test]
fn a_batch_of_events_is_worked_out_once() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    for _ in 0..50 {
        run.put(slice("web-1", "web", &["n1", "n2"]));
        run.put(slice("web-1", "web", &["n2"]));
    }
    assert!(facts(&run.out).is_empty());
    assert_eq!(run.informer.deadline(), Some(run.now));
    let fact = run.fact();
    assert_eq!(shown(&fact, V4), "2 | ");
    assert_eq!(fact.revision, 101);
}

#[test]
fn a3_a_service_that_returns_gets_no_earlier_revision() {
    let web = || (service("web"), slice("web-1", "web", &["n1"]));
    let mut run = Run::synced(vec![web().0], vec![web().1]);
    run.put(slice("web-1", "web", &["n2"]));
    let mut newest = run.fact().revision;
    for _ in 0..3 {
        run.list::<ServiceObject>(Kind::Services, vec![]);
        run.list::<SliceObject>(Kind::EndpointSlices, vec![]);
        assert!(matches!(&facts(&run.turn())[..], [(_, None)]), "it is gone");
        run.list(Kind::Services, vec![web().0]);
        assert!(run.fact().revision > newest, "before its slices are there again");
        run.list(Kind::EndpointSlices, vec![web().1]);
        newest = run.fact().revision;
    }
}

#[test]
fn d4_a_node_stays_until_no_slice_contains_it() {
    let slices = vec![slice("web-1", "web", &["n1", "n2"]), slice("web-2", "web", &["n1"])];
    let mut run = Run::synced(vec![service("web")], slices);
    run.put(slice("web-1", "web", &["n2"]));
    assert_eq!(shown(&run.fact(), V4), "1 2 | ");
    run.put(slice("web-2", "web", &[]));
    assert_eq!(shown(&run.fact(), V4), "2 | ");
}

#[test]
fn d4_a_new_slice_adds_and_a_deleted_one_removes() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    run.put(slice("web-2", "web", &["n2"]));
    assert_eq!(shown(&run.fact(), V4), "1 2 | ");
    run.gone(slice_key("web-1"));
    let fact = run.fact();
    assert_eq!((shown(&fact, V4).as_str(), fact.slices, fact.provenance), ("2 | ", 1, Provenance::Watch));
}

#[test]
fn d4_no_endpoints_make_an_empty_part_not_an_unusable_one() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    run.put(slice("web-1", "web", &[]));
    let fact = run.fact();
    assert_eq!((shown(&fact, V4).as_str(), fact.slices, fact.endpoints), (" | ", 1, 0));
    assert!(!fact.parts[&V4].unusable);
    run.gone(slice_key("web-1"));
    assert_eq!(run.fact().slices, 0, "vanished slices are told apart from an empty one");
}

#[test]
fn d4_the_counted_endpoints_are_configured() {
    let endpoints = ["n1", "n2?", "n3!"];
    for (counts, expected) in
        [(Counts::Hosted, "1 2 | 3"), (Counts::Serving, "1 2 3 | "), (Counts::Ready, "1 | 2 3")]
    {
        let mut run = Run::synced(vec![service("web")], vec![]);
        run.informer.counts = counts;
        run.put(slice("web-1", "web", &endpoints));
        assert_eq!(shown(&run.fact(), V4), expected, "{counts:?}");
    }
    let mut run = Run::synced(vec![service("web")], vec![]);
    run.put(slice("web-1", "web", &["n1!", "n1"]));
    assert_eq!(shown(&run.fact(), V4), "1 | ", "one that counts is enough");
}

#[test]
fn d4_an_unchanged_dual_stack_set_changes_the_revision_only() {
    let mut dual = service("web");
    dual.families = vec![V4, V6];
    let mut run = Run::synced(vec![dual], dual_slices("web-1", "web", &["n7"]).into());
    run.put(node("n7", &["10.0.0.7", "fd00::7"]));
    let before = run.fact();
    assert_eq!((shown(&before, V4).as_str(), shown(&before, V6).as_str()), ("7 | ", "fd00::7 | "));
    run.put(slice("web-1", "web", &["n7?"]));
    let after = run.fact();
    assert_eq!(after.parts, before.parts);
    assert_eq!(after.revision, before.revision + 1);
}

#[test]
fn d4_a_node_is_required_under_its_new_address() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    run.put(node("n1", &["10.0.0.9"]));
    let fact = run.fact();
    assert_eq!(shown(&fact, V4), "9 | ");
    assert_eq!((fact.triggered, fact.provenance), (None, Provenance::Watch), "no endpoint changed");
    run.put(node("n2", &["10.0.0.8"]));
    assert!(facts(&run.turn()).is_empty(), "no part rests on that node");
}

#[test]
fn d5_a_node_that_is_excluded_is_neither_required_nor_tolerated() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1", "n2"])]);
    run.put(marked(ExclusionRule::ExcludedByLabel, node("n2", &["10.0.0.2"])));
    let fact = run.fact();
    assert_eq!((shown(&fact, V4).as_str(), fact.data_errors.len()), ("1 | ", 0));
    run.gone(node_key("n2"));
    assert_eq!(shown(&run.fact(), V4), "1 | ", "nor does it come back as last known");
    run.put(node("n2", &["10.0.0.2"]));
    assert_eq!(shown(&run.fact(), V4), "1 2 | ");
}

/// Returns the node with the label or taint that leaves it out of pools for this reason.
fn marked(reason: ExclusionRule, mut node: NodeObject) -> NodeObject {
    match reason {
        ExclusionRule::ExcludedByLabel => node.marks.excluded = true,
        ExclusionRule::NotManagedByAzure => node.marks.unmanaged = true,
        ExclusionRule::ControlPlane => node.marks.control_plane = true,
        ExclusionRule::ToBeDeleted => {
            let key = TO_BE_DELETED.into();
            node.taints.push(Taint { key, value: "1".into(), effect: "NoSchedule".into() });
        }
        ExclusionRule::OtherFamily => panic!("a node alone has no other family"),
    }
    node
}

/// Returns a node that the cluster autoscaler is about to delete.
fn doomed(name: &str, ip: &str) -> NodeObject {
    marked(ExclusionRule::ToBeDeleted, node(name, &[ip]))
}

#[test]
fn d5_a_node_about_to_be_deleted_is_tolerated() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1", "n2"])]);
    run.put(doomed("n2", "10.0.0.2"));
    let fact = run.fact();
    assert_eq!((shown(&fact, V4).as_str(), fact.data_errors.len()), ("1 | 2", 0));
    let excluded: Vec<_> =
        fact.parts[&V4].excluded.iter().map(|(name, node)| (name.as_str(), node.why)).collect();
    assert_eq!(excluded, [("n2", ExclusionRule::ToBeDeleted)]);
    run.put(slice("web-1", "web", &["n1"]));
    assert_eq!(shown(&run.fact(), V4), "1 | ", "its pods have gone");
}

#[test]
fn d5_a_node_about_to_be_deleted_is_required_if_no_other_is() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1!", "n2", "n3"])]);
    run.put(doomed("n2", "10.0.0.2"));
    assert_eq!(shown(&run.fact(), V4), "3 | 1 2");
    run.put(doomed("n3", "10.0.0.3"));
    let fact = run.fact();
    assert_eq!(shown(&fact, V4), "2 3 | 1");
    assert!(fact.parts[&V4].excluded.is_empty(), "{:?}", fact.parts[&V4].excluded);
    run.put(slice("web-2", "web", &["n4"]));
    assert_eq!(shown(&run.fact(), V4), "4 | 1 2 3");
}

#[test]
fn d5_a_node_deleted_as_announced_stays_tolerated() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1", "n2"])]);
    run.put(doomed("n2", "10.0.0.2"));
    run.turn();
    run.gone(node_key("n2"));
    assert_eq!(shown(&run.fact(), V4), "1 | 2");
}

#[test]
fn d5_control_plane_nodes_are_members_if_configured() {
    let master = || marked(ExclusionRule::ControlPlane, node("n1", &["10.0.0.1"]));
    let of = |control_plane, node: NodeObject| {
        let mut run = Run::of(Params { control_plane, ..params() });
        run.list(Kind::Services, vec![service("web")]);
        run.list(Kind::EndpointSlices, vec![slice("web-1", "web", &["n1"])]);
        run.list(Kind::Nodes, vec![node]);
        let fact = run.fact();
        (shown(&fact, V4), fact.parts[&V4].unusable)
    };
    assert_eq!(of(false, master()), (" | ".to_owned(), true));
    assert_eq!(of(true, master()), ("1 | ".to_owned(), false));
    let doomed = marked(ExclusionRule::ToBeDeleted, master());
    assert_eq!(of(true, doomed), ("1 | ".to_owned(), false), "no other node is required");
    for reason in [ExclusionRule::ExcludedByLabel, ExclusionRule::NotManagedByAzure] {
        assert_eq!(of(true, marked(reason, master())), (" | ".to_owned(), true), "{reason:?}");
    }
}

#[test]
fn d5_the_first_of_several_reasons_is_named() {
    let mut run = Run::synced(Vec::new(), Vec::new());
    let mut object = node("n1", &["10.0.0.1"]);
    for reason in [
        ExclusionRule::ToBeDeleted,
        ExclusionRule::ControlPlane,
        ExclusionRule::NotManagedByAzure,
        ExclusionRule::ExcludedByLabel,
    ] {
        object = marked(reason, object);
        run.put(object.clone());
        let facts = nodes::node_facts(&run.turn());
        let [(_, Some(fact))] = &facts[..] else { panic!("one node: {facts:?}") };
        assert_eq!(fact.excluded, Some(reason));
    }
}

#[test]
fn d5_a_node_that_is_not_ready_stays_required_and_is_marked() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    let mut unready = node("n1", &["10.0.0.1"]);
    unready.ready = false;
    run.put(unready.clone());
    let fact = run.fact();
    assert_eq!(shown(&fact, V4), "1 | ");
    assert!(!fact.parts[&V4].required[&ip("10.0.0.1")].ready);
    unready.taints = vec![Taint { key: "key".into(), value: "value".into(), effect: "NoSchedule".into() }];
    run.put(unready);
    assert!(facts(&run.turn()).is_empty(), "taints are not the level's business");
}

#[test]
fn d6_a_deleted_node_with_endpoints_is_tolerated_for_5_min() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1", "n2"])]);
    run.gone(node_key("n1"));
    let out = run.turn();
    let fact = facts(&out)[0].1.clone().expect("a fact");
    assert_eq!(shown(&fact, V4), "2 | 1");
    assert_eq!(fact.data_errors, ["node n1 is not known".into()]);
    let [report] = &reports(&out)[..] else { panic!("one report: {out:?}") };
    assert_eq!(report.what, EventKind::DataError { endpoints: 1, example: "node n1 is not known".into() });
    assert!(run.pass(299).is_empty());
    run.now = run.now.plus(Duration::from_secs(1));
    assert_eq!(shown(&run.fact(), V4), "2 | ");

    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1", "n2"])]);
    run.gone(node_key("n1"));
    run.turn();
    run.put(slice("web-1", "web", &["n2"]));
    let fact = run.fact();
    assert_eq!(
        (shown(&fact, V4).as_str(), fact.data_errors.len()),
        ("2 | ", 0),
        "it leaves with its endpoint"
    );
    assert!(run.pass(300).is_empty());
    assert_eq!(run.informer.cache.nodes.len(), 3, "nothing of it is left");
}

#[test]
fn d6_an_endpoint_without_node_name_keeps_its_node_5_min() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1", "n2"])]);
    run.put(slice("web-1", "web", &["", "n2"]));
    let out = run.turn();
    let fact = facts(&out)[0].1.clone().expect("a fact");
    assert_eq!(shown(&fact, V4), "2 | 1");
    assert_eq!(fact.data_errors, ["1 endpoint without a nodeName".into()]);
    assert_eq!(reports(&out).len(), 1);
    run.put(slice("web-1", "web", &["", "n2", "n3"]));
    let out = run.turn();
    assert_eq!(shown(facts(&out)[0].1.as_ref().expect("a fact"), V4), "2 3 | 1");
    assert!(reports(&out).is_empty(), "not repeated while it lasts");
    run.put(node("n1", &["10.0.0.9"]));
    assert_eq!(shown(&run.fact(), V4), "2 3 | 9", "the node's address of now is known");
    run.now = run.now.plus(Duration::from_secs(300));
    assert_eq!(shown(&run.fact(), V4), "2 3 | ");
    run.put(slice("web-1", "web", &["n1", "n2"]));
    run.turn();
    run.put(slice("web-1", "web", &["n1", ""]));
    assert_eq!(reports(&run.turn()).len(), 1, "one that begins again is told");
}

#[test]
fn g4_last_known_addresses_are_marked() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1", "n2"])]);
    let known_last = |run: &mut Run| {
        let fact = run.fact();
        let part = &fact.parts[&V4];
        assert!(part.tolerated.is_superset(&part.last_known));
        part.last_known.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    run.gone(node_key("n1"));
    assert_eq!(known_last(&mut run), ["10.0.0.1"], "its node is gone");
    run.put(node("n1", &["10.0.0.1"]));
    assert_eq!(known_last(&mut run), [] as [&str; 0]);
    run.put(slice("web-1", "web", &["", "n2"]));
    assert_eq!(known_last(&mut run), ["10.0.0.1"], "its endpoint has no nodeName");
    run.put(slice("web-1", "web", &["n2"]));
    assert_eq!(known_last(&mut run), [] as [&str; 0]);
}

#[test]
fn d6_a_node_that_loses_its_address_keeps_the_last_one() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    run.put(node("n1", &[]));
    let fact = run.fact();
    assert_eq!((shown(&fact, V4).as_str(), fact.parts[&V4].unusable), (" | 1", false));
    assert_eq!(fact.data_errors, ["node n1 has no IPv4 address".into()]);
    run.now = run.now.plus(Duration::from_secs(300));
    let fact = run.fact();
    assert_eq!((shown(&fact, V4).as_str(), fact.parts[&V4].unusable), (" | ", true));
    assert!(!fact.parts[&V6].unusable, "the Service has no pool of that family");
    run.put(node("n1", &["10.0.0.1"]));
    let fact = run.fact();
    assert_eq!((shown(&fact, V4).as_str(), fact.parts[&V4].unusable), ("1 | ", false));
}

#[test]
fn d6_a_missing_address_is_an_error_only_in_a_used_family() {
    let with = |families: &[Family]| {
        let mut object = service("web");
        object.families = families.to_vec();
        let mut run = Run::synced(vec![object], vec![]);
        dual_slices("web-1", "web", &["n1"]).into_iter().for_each(|slice| run.put(slice));
        run.fact().data_errors.clone()
    };
    assert_eq!(with(&[]), [] as [Arc<str>; 0]);
    assert_eq!(with(&[V4]), [] as [Arc<str>; 0]);
    assert_eq!(with(&[V4, V6]), ["node n1 has no IPv6 address".into()]);
    assert_eq!(with(&[V6]), ["node n1 has no IPv6 address".into()]);
}

#[test]
fn d6_only_ten_errors_are_listed() {
    let mut run = Run::synced(vec![service("web")], vec![]);
    run.put(slice("web-1", "web", &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]));
    let out = run.turn();
    assert_eq!(facts(&out)[0].1.as_ref().expect("a fact").data_errors.len(), 10);
    let what = reports(&out)[0].what.clone();
    assert_eq!(what, EventKind::DataError { endpoints: 12, example: "node a is not known".into() });
}

#[test]
fn slices_without_a_service_label_are_ignored() {
    let services = vec![service("web"), service("api")];
    let mut run = Run::synced(services, vec![slice("s", "", &["n1"])]);
    run.put(slice("s", "", &["n2"]));
    assert!(facts(&run.turn()).is_empty());
    run.put(slice("s", "web", &["n2"]));
    assert_eq!(shown(&run.fact(), V4), "2 | ");
    run.put(slice("s", "api", &["n2"]));
    let facts = facts(&run.turn());
    let shown: Vec<String> = facts.iter().flat_map(|(_, fact)| fact).map(|fact| shown(fact, V4)).collect();
    assert_eq!(shown, ["2 | ", " | "], "api gains, web loses");
}

#[test]
fn slices_that_arrive_before_their_service_count_with_it() {
    let mut run = Run::synced(vec![], vec![]);
    let mut early = slice("web-1", "web", &["n1"]);
    early.trigger_age = Some(Duration::from_secs(3));
    let triggered = run.now.minus(Duration::from_secs(3));
    run.put(early);
    assert!(facts(&run.turn()).is_empty());
    run.now = run.now.plus(Duration::from_secs(1));
    run.put(service("web"));
    let fact = run.fact();
    assert_eq!((shown(&fact, V4).as_str(), fact.triggered), ("1 | ", Some(triggered)));
}

#[test]
fn a_service_whose_name_ends_in_ipv6_is_like_any_other() {
    let mut run = Run::synced(vec![service("myipv6")], vec![slice("s", "myipv6", &["n1"])]);
    run.put(slice("s", "myipv6", &["n2"]));
    let fact = run.fact();
    assert_eq!((shown(&fact, V4).as_str(), fact.key.to_string().as_str()), ("2 | ", "shop/myipv6"));
}

#[test]
fn a3_the_oldest_trigger_since_the_last_fact_is_sent_once() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    let put = |run: &mut Run, on: &str, age: Option<u64>| {
        let mut object = slice("web-1", "web", &[on]);
        object.trigger_age = age.map(Duration::from_secs);
        run.put(object);
    };
    put(&mut run, "n2", Some(5));
    put(&mut run, "n3", Some(1));
    put(&mut run, "n4", None);
    assert_eq!(run.fact().triggered, Some(run.now.minus(Duration::from_secs(5))));
    put(&mut run, "n1", None);
    assert_eq!(run.fact().triggered, Some(run.now));
}

#[test]
fn q2_a_fact_has_the_time_of_its_newest_read() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    let ago = |run: &Run, millis| run.now.minus(Duration::from_millis(millis));
    for (on, version, millis) in [("n2", 900, 300), ("n3", 901, 200)] {
        let mut object = slice("web-1", "web", &[on]);
        object.trigger_age = (on == "n2").then_some(Duration::from_millis(50));
        let event = WatchUpdate::Object(stamped(object.into(), version));
        run.informer.step(run.now, In::Seen(Kind::EndpointSlices, ago(&run, millis), event), &mut run.out);
    }
    let fact = run.fact();
    assert_eq!(fact.read, Some(ago(&run, 200)));
    assert_eq!(fact.triggered, Some(ago(&run, 350)), "its age counts from when it was read");
    assert!(matches!(run.read[..], [Out::ReadUpTo(read)] if read == ago(&run, 200)), "{:?}", run.read);
}

#[test]
fn q2_read_marks_come_after_the_facts() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    run.put(slice("web-1", "web", &["n2"]));
    run.deliver();
    run.informer.tick(run.now, &mut run.out);
    let output = std::mem::take(&mut run.out);
    assert!(matches!(output[..], [.., Out::Service(..), Out::ReadUpTo(_)]), "{output:?}");
    run.observe(
        Kind::EndpointSlices,
        WatchUpdate::Object(stamped(slice("web-1", "web", &["n2"]).into(), run.version)),
    );
    assert!(run.turn().is_empty(), "the state is known");
    assert_eq!(run.read.len(), 1);
    run.put(node("n9", &["10.0.0.9"]));
    run.turn();
    assert!(run.read.is_empty(), "it is said of EndpointSlices alone");
}

#[test]
fn a3_an_event_with_a_known_state_publishes_nothing() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    let mut again = slice("web-1", "web", &["n1"]);
    again.trigger_age = Some(Duration::from_secs(9));
    run.observe(Kind::EndpointSlices, WatchUpdate::Object(again.into()));
    assert!(run.turn().is_empty());
}

#[test]
fn d6_a_list_is_applied_as_a_whole_or_not_at_all() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    run.observe(Kind::EndpointSlices, WatchUpdate::ListBegan(Provenance::Relist));
    run.observe(
        Kind::EndpointSlices,
        WatchUpdate::Object(stamped(slice("web-2", "web", &["n2"]).into(), 200)),
    );
    assert!(facts(&run.turn()).is_empty());
    run.observe(Kind::EndpointSlices, WatchUpdate::ListAborted);
    assert!(facts(&run.turn()).is_empty());
    run.list(Kind::EndpointSlices, vec![slice("web-3", "web", &["n3"])]);
    let fact = run.fact();
    assert_eq!((shown(&fact, V4).as_str(), fact.provenance), ("3 | ", Provenance::Relist));
    assert!(run.out.is_empty());
    run.put(slice("web-3", "web", &["n4"]));
    assert_eq!(run.fact().provenance, Provenance::Watch, "the doubt ends with the fact that told it");
}

#[test]
fn d6_a_relist_without_changes_publishes_nothing() {
    let slices = || vec![slice("web-1", "web", &["n1"])];
    let mut run = Run::synced(vec![service("web")], slices());
    run.list(Kind::EndpointSlices, slices());
    run.list(Kind::Services, vec![service("web")]);
    assert!(run.turn().is_empty());
}

#[test]
fn d6_an_older_list_is_refused_and_requested_again() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    run.observe(Kind::EndpointSlices, WatchUpdate::Bookmark(version(500)));
    run.observe(Kind::EndpointSlices, WatchUpdate::ListBegan(Provenance::Relist));
    run.list_done(Kind::EndpointSlices, 499, None);
    let out = run.turn();
    assert!(matches!(
        out[..],
        [
            Out::Metric(Metric::StaleRefused(Kind::EndpointSlices)),
            Out::Relist(Kind::EndpointSlices, RelistReason::Stale)
        ]
    ));
    run.observe(Kind::EndpointSlices, WatchUpdate::ListBegan(Provenance::Relist));
    run.list_done(Kind::EndpointSlices, 500, None);
    assert_eq!(shown(&run.fact(), V4), " | ", "one as new as what was seen is taken");
}

/// Returns a list with this version, of one slice on this node.
fn list_of(run: &mut Run, n: u64, on: &str) -> Vec<Out> {
    run.observe(Kind::EndpointSlices, WatchUpdate::ListBegan(Provenance::Relist));
    run.observe(Kind::EndpointSlices, WatchUpdate::Object(stamped(slice("web-1", "web", &[on]).into(), n)));
    run.observe(Kind::EndpointSlices, bad_of(Some(slice_key("kept")), "web"));
    run.list_done(Kind::EndpointSlices, n, None);
    run.turn()
}

/// Returns an Informer that has seen version 500 and then received this many older lists, one every 10 s.
fn refusing(lists: u64) -> Run {
    let slices =
        vec![slice("web-1", "web", &["n1"]), slice("kept", "web", &["n4"]), slice("old", "web", &["n3"])];
    let mut run = Run::synced(vec![service("web")], slices);
    run.version = 499;
    run.put(slice("web-1", "web", &["n1"]));
    run.put(slice("kept", "web", &["n4"]));
    run.turn();
    for n in 0..lists {
        let out = list_of(&mut run, 300 + n, "n2");
        assert!(
            out.iter().any(|output| matches!(output, Out::Relist(Kind::EndpointSlices, RelistReason::Stale)))
        );
        assert!(facts(&out).is_empty(), "refused");
        run.pass(10);
    }
    run
}

#[test]
fn d6_older_lists_are_applied_after_5_min_of_older_ones() {
    let mut run = refusing(30);
    let out = list_of(&mut run, 330, "n2");
    assert_eq!(samples(&out)[0], Metric::StaleAccepted(Kind::EndpointSlices));
    let [(_, Some(fact))] = &facts(&out)[..] else { panic!("one fact was said: {out:?}") };
    assert_eq!(shown(fact, V4), "2 4 | ", "what cannot be decoded stays");
    assert_eq!(fact.provenance, Provenance::Relist);
    run.version = 330;
    run.put(slice("web-1", "web", &["n3"]));
    run.put(slice("kept", "web", &["n3"]));
    assert_eq!(shown(&run.fact(), V4), "3 | ", "and the stream goes on from there");
    run.observe(Kind::EndpointSlices, WatchUpdate::ListBegan(Provenance::Relist));
    run.list_done(Kind::EndpointSlices, 331, None);
    let refused = Metric::StaleRefused(Kind::EndpointSlices);
    assert_eq!(samples(&run.turn()), [refused], "versions count from there");
}

#[test]
fn d6_a_newer_list_with_an_older_object_is_a_restore() {
    let mut run = Run::synced(vec![service("web")], vec![]);
    run.version = 150;
    run.put(slice("web-1", "web", &["n2"]));
    run.turn();
    run.observe(Kind::EndpointSlices, WatchUpdate::ListBegan(Provenance::Relist));
    let older = stamped(slice("web-1", "web", &["n1"]).into(), 120);
    run.observe(Kind::EndpointSlices, WatchUpdate::Object(older));
    run.list_done(Kind::EndpointSlices, 400, None);
    let out = run.turn();
    assert_eq!(samples(&out)[0], Metric::StaleAccepted(Kind::EndpointSlices));
    let [(_, Some(fact))] = &facts(&out)[..] else { panic!("one fact was said: {out:?}") };
    assert_eq!(shown(fact, V4), "1 | ", "what the storage holds now counts");
}

#[test]
fn d6_older_lists_are_refused_while_few_short_falling_or_mixed() {
    let refused = |run: &mut Run, n| {
        let out = list_of(run, n, "n2");
        assert!(samples(&out).contains(&Metric::StaleRefused(Kind::EndpointSlices)), "{out:?}");
    };
    let mut few = refusing(4);
    few.pass(3_600);
    refused(&mut few, 400);
    assert_eq!(samples(&list_of(&mut few, 400, "n2"))[0], Metric::StaleAccepted(Kind::EndpointSlices));

    let mut short = refusing(29);
    short.pass(9);
    refused(&mut short, 400);

    let mut falling = refusing(30);
    refused(&mut falling, 299);
    falling.pass(299);
    refused(&mut falling, 300);

    let mut between = refusing(30);
    between.observe(Kind::EndpointSlices, WatchUpdate::Bookmark(version(600)));
    refused(&mut between, 400);
}

#[test]
fn d6_every_kind_follows_a_storage_that_was_restored() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    run.version = 499;
    run.put(service("web"));
    run.put(node("n1", &["10.0.0.9"]));
    run.turn();
    let paused = || Object::from(ServiceObject { paused: true, ..service("web") });
    for n in 0..=5 {
        for (kind, object) in [(Kind::Services, paused()), (Kind::Nodes, node("n1", &["10.0.0.8"]).into())] {
            run.observe(kind, WatchUpdate::ListBegan(Provenance::Relist));
            run.observe(kind, WatchUpdate::Object(stamped(object, 2)));
            run.list_done(kind, 300, None);
        }
        assert_eq!(facts(&run.pass(60)).len(), usize::from(n == 5));
    }
    let fact = run.informer.cache.entries[&ServiceKey::new("shop", "web")].published.clone().expect("a fact");
    assert_eq!((shown(&fact, V4).as_str(), fact.paused), ("8 | ", true));
}

#[test]
fn d6_an_older_object_is_refused_and_counted() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    run.put(slice("web-1", "web", &["n2"]));
    run.turn();
    let refused = [Metric::StaleRefused(Kind::EndpointSlices)];
    run.observe(Kind::EndpointSlices, WatchUpdate::Object(slice("web-1", "web", &["n1"]).into()));
    assert_eq!(samples(&run.turn()), refused);
    run.observe(
        Kind::EndpointSlices,
        WatchUpdate::Deleted { key: slice_key("web-1"), resource_version: version(1) },
    );
    assert_eq!(samples(&run.turn()), refused);
}

#[test]
fn g1_changes_after_a_reconnect_are_marked_until_caught_up() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    run.observe(Kind::EndpointSlices, WatchUpdate::Reconnected);
    run.put(slice("web-1", "web", &["n2"]));
    assert_eq!(run.fact().provenance, Provenance::Reconnect);
    run.observe(Kind::EndpointSlices, WatchUpdate::Bookmark(version(run.version)));
    run.put(slice("web-1", "web", &["n3"]));
    assert_eq!(run.fact().provenance, Provenance::Watch);
    run.observe(Kind::EndpointSlices, WatchUpdate::Reconnected);
    run.pass(5);
    run.put(slice("web-1", "web", &["n4"]));
    assert_eq!(run.fact().provenance, Provenance::Watch);
}

fn bad(key: Option<ObjectKey>) -> WatchUpdate {
    bad_line(key, Owner::Unknown)
}

/// Returns an undecodable object with this owner, unless the owner is empty.
fn bad_of(key: Option<ObjectKey>, owner: &str) -> WatchUpdate {
    bad_line(key, Owner::Service(ServiceKey::new("shop", owner)))
}

fn bad_line(key: Option<ObjectKey>, owner: Owner) -> WatchUpdate {
    WatchUpdate::Undecodable { key, owner, error: "endpoints: expected a list".into(), before: None }
}

#[test]
fn d6_the_last_good_state_of_an_undecodable_object_stays() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    run.observe(Kind::EndpointSlices, bad(Some(slice_key("web-1"))));
    let out = run.turn();
    let [report] = &reports(&out)[..] else { panic!("one report: {out:?}") };
    let subject = ServiceRef { key: ServiceKey::new("shop", "web"), uid: ServiceUid::new("uid-web") };
    assert_eq!(report.subjects, [Subject::Service(subject)]);
    let error = "endpoints: expected a list".into();
    assert_eq!(
        report.what,
        EventKind::Undecodable { kind: Kind::EndpointSlices, object: "shop/web-1".into(), error, kept: true }
    );
    run.observe(Kind::EndpointSlices, WatchUpdate::ListBegan(Provenance::Relist));
    run.observe(Kind::EndpointSlices, bad(Some(slice_key("web-1"))));
    run.list_done(Kind::EndpointSlices, 300, None);
    assert!(run.turn().is_empty(), "it is in the list, and nothing is new");

    run.observe(Kind::Nodes, bad(Some(node_key("n2"))));
    run.observe(Kind::Services, bad(Some(service_key("web"))));
    run.observe(Kind::Services, bad(Some(service_key("unheard-of"))));
    assert_eq!(reports(&run.turn()).len(), 2, "one of which nothing is known is only counted");

    run.put(slice("web-1", "web", &["n2"]));
    run.turn();
    run.observe(Kind::EndpointSlices, bad(Some(slice_key("web-1"))));
    assert_eq!(reports(&run.turn()).len(), 1, "it had been good between");
}

#[test]
fn d6_a_list_with_an_object_without_a_name_proves_no_absence() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    run.observe(Kind::EndpointSlices, WatchUpdate::ListBegan(Provenance::Relist));
    run.observe(Kind::EndpointSlices, bad(None));
    run.observe(
        Kind::EndpointSlices,
        WatchUpdate::Object(stamped(slice("web-2", "web", &["n2"]).into(), 200)),
    );
    run.list_done(Kind::EndpointSlices, 300, None);
    let fact = run.fact();
    assert_eq!((shown(&fact, V4).as_str(), fact.parts[&V4].unusable), ("1 2 | ", true));
    assert_eq!(fact.data_errors, ["an EndpointSlice without a readable name cannot be read".into()]);
    run.version = 300;
    let outputs = run.pass(300);
    assert!(matches!(outputs[..], [Out::Relist(Kind::EndpointSlices, RelistReason::Broken)]), "{outputs:?}");
    run.list(Kind::EndpointSlices, vec![slice("web-2", "web", &["n2"])]);
    let fact = run.fact();
    assert_eq!((shown(&fact, V4).as_str(), fact.parts[&V4].unusable), ("2 | ", false), "a whole list does");
    run.pass(1);
    assert_eq!(run.informer.deadline(), None);
}

#[test]
fn d1_candidates_go_by_type_policy_deletion_and_labels() {
    let mut params = params();
    params.namespaces = ["shop".into()].into();
    let one: BTreeSet<Arc<str>> = ["one".into()].into();
    params.selector = Selector(vec![
        Requirement::In("tier".into(), one.clone()),
        Requirement::NotIn("zone".into(), one),
        Requirement::Exists("tier".into()),
        Requirement::Absent("off".into()),
    ]);
    let Params { multi_slb, namespaces, selector, control_plane, .. } = params;
    let selection = Selection { multi_slb, namespaces, selector, control_plane };
    let labelled = |labels: &[(&str, &str)]| {
        let mut object = service("web");
        object.labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        object
    };
    let good = labelled(&[("tier", "one")]);
    assert_eq!(selection.candidacy(&good), Candidacy::Candidate);
    for labels in
        [&[][..], &[("tier", "two")], &[("tier", "one"), ("zone", "one")], &[("tier", "one"), ("off", "")]]
    {
        assert_eq!(selection.candidacy(&labelled(labels)), Candidacy::NotSelected, "{labels:?}");
    }
    let elsewhere = ServiceObject { key: ServiceKey::new("other", "web"), ..good.clone() };
    assert_eq!(selection.candidacy(&elsewhere), Candidacy::NotSelected);
    assert_eq!(selection.candidacy(&ServiceObject { local: false, ..good.clone() }), Candidacy::NotLocal);
    assert_eq!(selection.candidacy(&ServiceObject { deleting: true, ..good.clone() }), Candidacy::Deleting);
    let inside = ServiceObject { service_type: ServiceType::Other, ..good.clone() };
    assert_eq!(selection.candidacy(&inside), Candidacy::NotLoadBalancer);
    let single = Selection { multi_slb: false, ..selection };
    assert_eq!(single.candidacy(&good), Candidacy::NotMultiSlb);
}

#[test]
fn d1_a_load_balancer_without_candidacy_has_no_parts() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    run.put(ServiceObject { local: false, ..service("web") });
    let fact = run.fact();
    assert_eq!((fact.candidacy, shown(&fact, V4).as_str(), fact.endpoints), (Candidacy::NotLocal, " | ", 0));
    run.put(slice("web-1", "web", &["n2"]));
    run.put(node("n1", &["10.0.0.9"]));
    assert!(facts(&run.turn()).is_empty(), "its endpoints do not matter");
    run.put(service("web"));
    assert_eq!(shown(&run.fact(), V4), "2 | ");
    run.put(ServiceObject { service_type: ServiceType::Other, ..service("web") });
    assert_eq!(facts(&run.turn()), [(ServiceUid::new("uid-web"), None)]);
    run.put(slice("web-1", "web", &["n3"]));
    assert!(facts(&run.turn()).is_empty());
}

#[test]
fn d1_pause_and_exposure_are_published() {
    let mut run = Run::synced(vec![service("web")], vec![]);
    run.put(ServiceObject { paused: true, ..service("web") });
    assert!(run.fact().paused);
    run.put(ServiceObject { paused: true, exposure: 7, ..service("web") });
    assert_eq!(run.fact().exposure, 7);
    let labels = [("a".into(), "b".into())].into();
    run.put(ServiceObject { paused: true, exposure: 7, labels, ..service("web") });
    assert!(facts(&run.turn()).is_empty());
}

#[test]
fn d1_a_recreated_service_is_first_gone_and_then_new() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    run.put(ServiceObject { uid: ServiceUid::new("second"), ..service("web") });
    let facts = facts(&run.turn());
    assert_eq!(facts[0], (ServiceUid::new("uid-web"), None));
    assert_eq!(facts[1].0, ServiceUid::new("second"));
    assert_eq!(shown(facts[1].1.as_ref().expect("a fact"), V4), "1 | ");
    run.gone(service_key("web"));
    let out = run.turn();
    assert_eq!(super::tests::facts(&out), [(ServiceUid::new("second"), None)]);
    run.gone(slice_key("web-1"));
    assert!(run.informer.cache.entries.is_empty(), "nothing is left");
}

#[test]
fn an_object_of_another_kind_than_the_stream_is_dropped() {
    let mut run = Run::synced(vec![], vec![]);
    run.observe(Kind::Nodes, WatchUpdate::Object(service("web").into()));
    run.observe(Kind::Nodes, WatchUpdate::Deleted { key: service_key("web"), resource_version: version(9) });
    run.observe(Kind::Nodes, bad(Some(service_key("web"))));
    run.list_done(Kind::Nodes, 999, None);
    assert!(run.turn().is_empty());
}

#[test]
fn held_objects_are_counted_when_their_number_changes() {
    let mut run = Run::synced(vec![service("web")], vec![]);
    run.put(service("api"));
    let out = run.turn();
    assert!(matches!(out[0], Out::Cached(Kind::Services, 2)));
    assert_eq!(samples(&out), [Metric::CachedObjects { kind: Kind::Services, count: 2 }]);
    run.put(ServiceObject { paused: true, ..service("api") });
    assert!(samples(&run.turn()).is_empty());
}
