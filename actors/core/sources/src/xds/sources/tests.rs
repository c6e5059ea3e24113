//! Sources over a real cache in place of the client; the test drives the cache directly with the inputs of servers.

mod properties;

use model::xds::source::Assigned;
use model::xds::source::Note;
use std::collections::VecDeque;
use std::net::IpAddr;

use super::*;
use crate::resource_cache::ResourceCache;
use model::machine::Wall;
use model::xds::ResourceValue;
use model::xds::assignment::{EndpointHealth, LoadAssignment, Priority};
use model::xds::cache::{Cached, Error, Policy, Reason};
use model::xds::cluster::Cluster;
use model::xds::facts::Code;

const PLAIN: Policy = Policy { fail_on_data_errors: false, timer_is_transient: false };
const FAILS: Policy = Policy { fail_on_data_errors: true, timer_is_transient: false };
const NOW: Now = Now::from_millis(1_000);
const NODE: &str = "node-1";

fn cluster(name: &str) -> ResourceKey {
    ResourceKey::new(ResourceKind::Cluster, name)
}

fn endpoints(name: &str) -> ResourceKey {
    ResourceKey::new(ResourceKind::Endpoints, name)
}

fn name(text: &str) -> Name {
    Name::parse(text).expect("it names a source")
}

fn names(texts: &[&str]) -> BTreeSet<Name> {
    texts.iter().map(|text| name(text)).collect()
}

/// Returns an assignment of one address.
fn assignment(n: u8) -> LoadAssignment {
    let addresses = [(IpAddr::from([10, 0, 0, n]), EndpointHealth::Healthy)].into_iter().collect();
    LoadAssignment { priorities: vec![Priority { addresses, weighted: false }], ..LoadAssignment::default() }
}

fn cached(value: ResourceValue) -> Cached<ResourceValue> {
    came(Provenance::Watch, value)
}

fn came(provenance: Provenance, value: ResourceValue) -> Cached<ResourceValue> {
    Cached { value, raw: None, version: Arc::from("1"), updated: Wall::from_micros(1), provenance }
}

fn error(reason: Reason, code: Code, message: &str) -> Error {
    Error { reason, code, message: Arc::from(message), rejected: None }
}

fn lost() -> Error {
    error(Reason::Connectivity, Code::Unavailable, "xDS server one:1: the stream ended without a response")
}

fn deleted() -> Error {
    error(Reason::Deleted, Code::NotFound, "does not exist: it was deleted")
}

fn invalid() -> Error {
    error(Reason::Nack, Code::InvalidArgument, "invalid resource: type: is not supported")
}

/// Returns the assignment of a fact, in short.
fn short(assigned: &Assigned) -> String {
    match assigned {
        Assigned::Unknown(None) => "unknown".to_owned(),
        Assigned::Unknown(Some(fault)) => format!("unknown: {}", fault.reason.as_str()),
        Assigned::Usable(assignment) => {
            let addresses = assignment.priorities.iter().flat_map(|priority| priority.addresses.keys());
            addresses.map(IpAddr::to_string).collect::<Vec<_>>().join(" ")
        }
        Assigned::Dropped(fault) => format!("dropped: {}", fault.reason.as_str()),
    }
}

/// Sources and a cache whose messages are delivered immediately. `out` holds the outputs since the last check.
struct Run {
    sources: Sources,
    cache: ResourceCache<ResourceKey, ResourceValue, WatcherId>,
    updates: u64,
    out: Vec<Out>,
}

impl Run {
    fn with(policy: Policy, texts: &[&str]) -> Run {
        let mut run = Run {
            sources: Sources::new(Params { node_id: Arc::from(NODE) }),
            cache: ResourceCache::new(policy),
            updates: 0,
            out: Vec::new(),
        };
        run.want(texts);
        run
    }

    fn new(texts: &[&str]) -> Run {
        Run::with(PLAIN, texts)
    }

    fn want(&mut self, texts: &[&str]) {
        self.out.clear();
        self.step(In::SetSources(names(texts)));
    }

    fn step(&mut self, input: In) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut out = Vec::new();
            self.sources.step(NOW, input, &mut out);
            let mut notices = Vec::new();
            for output in &out {
                match output {
                    Out::Watch(key, watcher) => self.cache.watch(key.clone(), *watcher, &mut notices),
                    Out::Unwatch(key, watcher) => {
                        self.cache.unwatch(key, watcher);
                    }
                    Out::Processed(_) | Out::Fact(..) | Out::Gone(_) => {}
                }
            }
            self.out.extend(out);
            inputs.extend(self.notices(notices));
        }
    }

    fn notices(&mut self, notices: Vec<WatcherNotice>) -> Option<In> {
        if notices.is_empty() {
            return None;
        }
        self.updates += 1;
        Some(In::Notices(UpdateId(self.updates), notices))
    }

    /// Drives the cache, and delivers its notices.
    fn update_cache(
        &mut self,
        update: impl FnOnce(&mut ResourceCache<ResourceKey, ResourceValue, WatcherId>, &mut Vec<WatcherNotice>),
    ) {
        self.out.clear();
        let mut notices = Vec::new();
        update(&mut self.cache, &mut notices);
        if let Some(input) = self.notices(notices) {
            self.step(input);
        }
    }

    /// Delivers a cluster that names these endpoints.
    fn name(&mut self, of: &str, means: &str) {
        let value = ResourceValue::Cluster(Cluster { eds_name: Arc::from(means) });
        self.update_cache(|cache, notices| cache.received(cluster(of), cached(value), notices));
    }

    /// Delivers endpoints.
    fn assign(&mut self, of: &str, n: u8) {
        let value = ResourceValue::Endpoints(assignment(n));
        self.update_cache(|cache, notices| cache.received(endpoints(of), cached(value), notices));
    }

    fn reject(&mut self, key: ResourceKey) {
        self.update_cache(|cache, notices| cache.invalid(key, invalid(), notices));
    }

    fn report(&mut self, key: ResourceKey, code: Code, message: &str) {
        let error = error(Reason::Reported, code, message);
        self.update_cache(|cache, notices| cache.reported(key, error, notices));
    }

    fn delete(&mut self, key: ResourceKey) {
        self.update_cache(|cache, notices| cache.deleted(key, deleted(), notices));
    }

    /// Returns the watched resources.
    fn watched(&self) -> Vec<String> {
        self.cache.entries().map(|entry| entry.key.name.to_string()).collect()
    }

    fn fact(&self, text: &str) -> SourceFact {
        let fact = self.sources.facts().find(|(known, _)| **known == name(text));
        fact.expect("it is configured").1.clone()
    }

    fn shown(&self, text: &str) -> String {
        short(&self.fact(text).assigned)
    }

    fn note(&self, text: &str) -> String {
        self.fact(text).note.to_string()
    }

    /// Returns the published facts, in short.
    fn facts(&self) -> Vec<String> {
        let fact = |output: &Out| match output {
            Out::Fact(name, fact) => Some(format!("{name} {}", short(&fact.assigned))),
            Out::Watch(..) | Out::Unwatch(..) | Out::Processed(_) | Out::Gone(_) => None,
        };
        self.out.iter().filter_map(fact).collect()
    }
}

#[test]
fn x2_sources_are_named_by_their_requested_resource() {
    assert_eq!(name("eds:outbound|80||a.b"), Name::Endpoints(Arc::from("outbound|80||a.b")));
    assert_eq!(name("cluster:xdstp://x/y:1"), Name::Cluster(Arc::from("xdstp://x/y:1")));
    for text in ["eds:a:b", "cluster:a"] {
        assert_eq!(name(text).to_string(), text);
    }
    let table = [
        ("a", "\"a\" does not begin with eds: or cluster:"),
        ("lds:a", "\"lds:a\" does not begin with eds: or cluster:"),
        ("EDS:a", "\"EDS:a\" does not begin with eds: or cluster:"),
        ("eds: ", "\"eds: \" names no resource: add its name"),
        ("cluster:*", "\"cluster:*\" names all resources: name one of them"),
    ];
    for (text, message) in table {
        assert_eq!(Name::parse(text).map_err(|bad| bad.to_string()), Err(message.to_owned()));
    }
}

#[test]
fn x2_endpoints_are_watched_by_their_name() {
    let mut run = Run::new(&["eds:e"]);
    assert_eq!((run.watched(), run.facts()), (vec!["e".to_owned()], vec!["eds:e unknown".to_owned()]));
    run.assign("e", 1);
    assert_eq!(run.facts(), ["eds:e 10.0.0.1"]);
    run.assign("e", 2);
    assert_eq!(run.facts(), ["eds:e 10.0.0.2"]);
    run.assign("e", 2);
    assert!(run.facts().is_empty(), "what is known is not said again");
}

#[test]
fn x2_a_cluster_is_watched_and_then_the_endpoints_that_it_names() {
    let mut run = Run::new(&["cluster:c"]);
    assert_eq!(run.watched(), ["c"]);
    run.name("c", "e");
    assert_eq!(
        (run.watched(), run.shown("cluster:c")),
        (vec!["c".to_owned(), "e".to_owned()], "unknown".to_owned())
    );
    run.assign("e", 1);
    assert_eq!(run.facts(), ["cluster:c 10.0.0.1"]);
}

#[test]
fn x2_a_resource_is_released_with_its_last_source() {
    let mut run = Run::new(&["cluster:c", "eds:e"]);
    run.name("c", "e");
    run.assign("e", 1);
    assert_eq!(run.facts(), ["eds:e 10.0.0.1", "cluster:c 10.0.0.1"]);
    assert!(run.cache.entries().all(|entry| entry.watchers == 1));
    run.want(&["cluster:c"]);
    assert_eq!(
        (run.watched(), run.out.as_slice()),
        (vec!["c".to_owned(), "e".to_owned()], &[Out::Gone(name("eds:e"))][..])
    );
    run.want(&["cluster:c", "eds:e"]);
    assert_eq!(run.facts(), ["eds:e 10.0.0.1"], "one that comes late hears what is known");
    run.want(&[]);
    assert!(run.watched().is_empty());
}

#[test]
fn x2_new_watches_come_before_releases() {
    let mut run = Run::new(&["eds:a"]);
    run.want(&["eds:b"]);
    let position = |wanted: fn(&Out) -> bool| run.out.iter().position(wanted);
    let watches = position(|output| matches!(output, Out::Watch(..)));
    assert!(
        watches.is_some() && watches < position(|output| matches!(output, Out::Unwatch(..))),
        "{:?}",
        run.out
    );
}

#[test]
fn x2_an_update_is_processed_after_its_consequences() {
    let mut run = Run::new(&["cluster:c", "eds:e"]);
    run.assign("e", 1);
    run.name("c", "e");
    assert_eq!(run.out.last(), Some(&Out::Processed(UpdateId(run.updates))));
    assert_eq!(run.out.len(), 2, "{:?}", run.out);
    run.step(In::Notices(UpdateId(99), Vec::new()));
    assert_eq!(run.out.last(), Some(&Out::Processed(UpdateId(99))), "also if nothing follows");
}

#[test]
fn x2_notices_for_a_former_watcher_are_ignored() {
    let mut run = Run::new(&["eds:e", "eds:f"]);
    run.assign("e", 1);
    let change =
        crate::resource_cache::ResourceChange::Changed(Ok(cached(ResourceValue::Endpoints(assignment(1)))));
    let Some(Out::Watch(key, watcher)) = Run::new(&["eds:e"]).out.first().cloned() else {
        panic!("it is watched");
    };
    run.want(&["eds:f"]);
    run.want(&["eds:e", "eds:f"]);
    run.step(In::Notices(UpdateId(9), vec![WatcherNotice { watcher, key, change }]));
    assert_eq!(run.shown("eds:e"), "unknown");
}

#[test]
fn x2_former_endpoints_stay_in_use_until_the_new_ones_are_there() {
    let mut run = Run::with(FAILS, &["cluster:c"]);
    run.name("c", "e");
    run.assign("e", 1);
    run.name("c", "f");
    assert_eq!((run.facts(), run.watched()), (vec![], vec!["c".to_owned(), "e".to_owned(), "f".to_owned()]));
    run.assign("e", 2);
    assert_eq!(run.facts(), ["cluster:c 10.0.0.2"], "they are followed as before");
    run.report(endpoints("f"), Code::NotFound, "no such thing");
    assert_eq!(run.shown("cluster:c"), "10.0.0.2", "what never came ends nothing");
    assert!(run.note("cluster:c").ends_with("f: the control plane reports: no such thing"));
    run.assign("f", 3);
    assert_eq!(run.facts(), ["cluster:c 10.0.0.3"]);
    assert_eq!(
        (run.watched(), run.note("cluster:c")),
        (vec!["c".to_owned(), "f".to_owned()], "xDS node id: node-1".to_owned())
    );
}

#[test]
fn x2_endpoints_that_never_came_are_released() {
    let mut run = Run::new(&["cluster:c"]);
    run.name("c", "e");
    run.assign("e", 1);
    run.name("c", "f");
    run.name("c", "g");
    assert_eq!(
        (run.watched(), run.shown("cluster:c")),
        (vec!["c".to_owned(), "e".to_owned(), "g".to_owned()], "10.0.0.1".to_owned())
    );
    run.name("c", "e");
    assert_eq!(
        (run.watched(), run.shown("cluster:c")),
        (vec!["c".to_owned(), "e".to_owned()], "10.0.0.1".to_owned())
    );
}

#[test]
fn x2_without_use_only_the_named_endpoints_are_requested() {
    let mut run = Run::new(&["cluster:c"]);
    run.name("c", "e");
    run.name("c", "f");
    assert_eq!(run.watched(), ["c", "f"]);
}

#[test]
fn x3_an_error_with_nothing_ever_known_is_no_opinion() {
    for policy in [PLAIN, FAILS] {
        let mut run = Run::with(policy, &["cluster:c", "cluster:d", "eds:x"]);
        run.report(endpoints("x"), Code::NotFound, "no such thing");
        assert_eq!(run.shown("eds:x"), "unknown: reported");
        run.reject(cluster("c"));
        assert_eq!(run.shown("cluster:c"), "unknown: nack");
        run.name("d", "x");
        assert_eq!(run.shown("cluster:d"), "unknown: reported");
        run.update_cache(|cache, notices| cache.connectivity(lost(), notices));
        assert_eq!(run.shown("cluster:d"), "unknown: connectivity");
    }
}

#[test]
fn x3_connectivity_errors_end_when_the_server_is_connected() {
    let mut run = Run::new(&["eds:e"]);
    run.update_cache(|cache, notices| cache.connectivity(lost(), notices));
    assert_eq!(run.facts(), ["eds:e unknown: connectivity"]);
    run.update_cache(|cache, notices| cache.connected(notices));
    assert_eq!(run.facts(), ["eds:e unknown"]);
}

#[test]
fn x3_errors_keep_known_data_without_fail_on_data_errors() {
    let mut run = Run::new(&["cluster:c"]);
    run.name("c", "e");
    run.assign("e", 1);
    run.delete(cluster("c"));
    run.reject(endpoints("e"));
    run.report(endpoints("e"), Code::PermissionDenied, "not you");
    run.update_cache(|cache, notices| cache.connectivity(lost(), notices));
    assert_eq!(run.shown("cluster:c"), "10.0.0.1");
}

#[test]
fn x3_dropped_endpoints_differ_from_those_that_never_came() {
    let mut run = Run::with(FAILS, &["eds:e", "cluster:c"]);
    run.assign("e", 1);
    run.reject(endpoints("e"));
    assert_eq!(run.facts(), ["eds:e dropped: nack"]);
    run.name("c", "e");
    assert_eq!(run.shown("cluster:c"), "unknown: nack", "its pools were never given anything");
    run.assign("e", 1);
    assert_eq!(run.facts(), ["eds:e 10.0.0.1", "cluster:c 10.0.0.1"]);
}

#[test]
fn x3_a_cluster_that_is_dropped_takes_its_endpoints_with_it() {
    let mut run = Run::with(FAILS, &["cluster:c"]);
    run.name("c", "e");
    run.assign("e", 1);
    run.delete(cluster("c"));
    assert_eq!(
        (run.facts(), run.watched()),
        (vec!["cluster:c dropped: deleted".to_owned()], vec!["c".to_owned()])
    );
    run.name("c", "e");
    assert_eq!(run.shown("cluster:c"), "dropped: deleted", "until the endpoints are there");
    run.report(endpoints("e"), Code::Unavailable, "later");
    assert_eq!(run.shown("cluster:c"), "dropped: reported", "the newest reason is told");
    run.assign("e", 2);
    assert_eq!(run.shown("cluster:c"), "10.0.0.2");
}

#[test]
fn x3_dropped_former_endpoints_are_not_used_until_new_ones_come() {
    let mut run = Run::with(FAILS, &["cluster:c"]);
    run.name("c", "e");
    run.assign("e", 1);
    run.name("c", "f");
    run.report(endpoints("e"), Code::NotFound, "no such thing");
    assert_eq!(
        (run.shown("cluster:c"), run.watched()),
        ("dropped: reported".to_owned(), vec!["c".to_owned(), "f".to_owned()])
    );
    run.assign("f", 2);
    assert_eq!(run.shown("cluster:c"), "10.0.0.2");
}

#[test]
fn x3_new_endpoints_with_the_end_of_old_ones_drop_nothing() {
    let mut run = Run::with(FAILS, &["cluster:c"]);
    run.name("c", "e");
    run.assign("e", 1);
    run.name("c", "f");
    run.update_cache(|cache, notices| {
        cache.reported(endpoints("e"), error(Reason::Reported, Code::NotFound, "gone"), notices);
        cache.received(endpoints("f"), cached(ResourceValue::Endpoints(assignment(2))), notices);
    });
    assert_eq!(run.facts(), ["cluster:c 10.0.0.2"]);
}

#[test]
fn x3_dropped_endpoints_stay_dropped_when_unreachable() {
    let mut run = Run::with(FAILS, &["cluster:c"]);
    run.name("c", "e");
    run.assign("e", 1);
    run.reject(endpoints("e"));
    run.name("c", "f");
    assert_eq!(run.shown("cluster:c"), "dropped: nack");
    run.update_cache(|cache, notices| cache.connectivity(lost(), notices));
    assert_eq!(run.shown("cluster:c"), "dropped: connectivity");
    assert_eq!(run.note("cluster:c"), "xDS node id: node-1", "what is told as the error is not told twice");
    run.update_cache(|cache, notices| cache.connected(notices));
    assert_eq!(run.shown("cluster:c"), "dropped: nack", "what ended it, while nothing else is known");
}

#[test]
fn x3_a_source_configured_again_starts_without_data() {
    let mut run = Run::with(FAILS, &["eds:e"]);
    run.assign("e", 1);
    run.reject(endpoints("e"));
    run.want(&[]);
    run.want(&["eds:e"]);
    assert_eq!(run.shown("eds:e"), "unknown");
}

#[test]
fn x4_a88_the_note_has_the_ambient_errors_or_the_node_id() {
    let mut run = Run::new(&["cluster:c"]);
    assert_eq!(run.note("cluster:c"), "xDS node id: node-1");
    run.name("c", "e");
    run.assign("e", 1);
    run.delete(cluster("c"));
    let gone = "envoy.config.cluster.v3.Cluster c: does not exist: it was deleted";
    assert_eq!(
        (run.facts(), run.note("cluster:c")),
        (vec!["cluster:c 10.0.0.1".to_owned()], gone.to_owned())
    );
    run.report(endpoints("e"), Code::NotFound, "no such thing");
    let reported =
        "envoy.config.endpoint.v3.ClusterLoadAssignment e: the control plane reports: no such thing";
    assert_eq!(run.note("cluster:c"), format!("{gone}; {reported}"));
    run.name("c", "e");
    assert_eq!(run.note("cluster:c"), reported, "what is good again is not told any more");
    run.assign("e", 1);
    assert_eq!(run.note("cluster:c"), "xDS node id: node-1");
}

#[test]
fn x4_a_fact_with_an_error_has_a_note_too() {
    let mut run = Run::new(&["cluster:c"]);
    run.name("c", "e");
    run.reject(cluster("c"));
    run.report(endpoints("e"), Code::Internal, "broken");
    assert_eq!(run.shown("cluster:c"), "unknown: reported");
    assert!(run.note("cluster:c").starts_with("envoy.config.cluster.v3.Cluster c: invalid resource:"));
}

#[test]
fn x4_an_unreachable_server_is_named_once() {
    let mut run = Run::new(&["cluster:c"]);
    run.name("c", "e");
    run.assign("e", 1);
    run.update_cache(|cache, notices| cache.connectivity(lost(), notices));
    assert_eq!(run.note("cluster:c"), &*lost().message);
    run.update_cache(|cache, notices| cache.connected(notices));
    assert_eq!(run.note("cluster:c"), "xDS node id: node-1");
}

#[test]
fn x4_a_status_code_is_not_passed_on() {
    for code in Code::ALL.into_iter().filter(|code| *code != Code::Ok) {
        let mut run = Run::new(&["eds:e"]);
        run.report(endpoints("e"), code, code.as_str());
        let fault = run.fact("eds:e").error().expect("it is an error").to_string();
        assert!(!fault.contains(code.as_str()) && fault.contains("reports: it "), "{fault}");
    }
}

#[test]
fn x4_each_state_of_a_source_has_its_own_word() {
    let fault = Fault { resource: None, reason: Reason::Connectivity, message: Arc::from("x") };
    let all = [Assigned::Unknown(None), Assigned::Usable(Arc::default()), Assigned::Dropped(fault)];
    assert_eq!(all.map(|assigned| assigned.as_str()), ["unknown", "usable", "dropped"]);
}

#[test]
fn g1_a_sources_facts_have_the_provenance_of_its_resources() {
    let mut run = Run::new(&["cluster:c", "eds:e"]);
    let assign = |run: &mut Run, of: &str, n: u8, provenance| {
        let value = ResourceValue::Endpoints(assignment(n));
        run.update_cache(|cache, notices| cache.received(endpoints(of), came(provenance, value), notices));
    };
    let name = |run: &mut Run, means: &str, provenance| {
        let value = ResourceValue::Cluster(Cluster { eds_name: Arc::from(means) });
        run.update_cache(|cache, notices| cache.received(cluster("c"), came(provenance, value), notices));
    };
    let output = |run: &Run| ["cluster:c", "eds:e"].map(|source| run.fact(source).provenance);
    use Provenance::{FirstList, Relist, Watch};
    assign(&mut run, "e", 1, Relist);
    assert_eq!(output(&run), [Watch, FirstList]);
    assign(&mut run, "e", 2, Watch);
    assert_eq!(output(&run), [Watch, Watch]);
    name(&mut run, "e", Watch);
    assert_eq!(output(&run), [FirstList, Watch], "the first of this source, though others hold it already");
    run.reject(endpoints("e"));
    assert_eq!(output(&run), [FirstList, Watch], "a note changes nothing");
    assign(&mut run, "e", 3, Relist);
    assert_eq!(output(&run), [Relist, Relist]);
    assign(&mut run, "e", 4, Watch);
    assert_eq!(output(&run), [Watch, Watch]);
    name(&mut run, "f", Relist);
    assign(&mut run, "f", 5, Watch);
    assert_eq!(output(&run), [Relist, Watch], "the cluster names others, on a new stream");
    assign(&mut run, "f", 6, Watch);
    assert_eq!(output(&run), [Watch, Watch], "what it names is known by now");
    name(&mut run, "e", Watch);
    assert_eq!(output(&run), [Watch, Watch]);
}

#[test]
fn g1_a_fact_after_a_source_was_dropped_is_no_first_list() {
    let mut run = Run::with(FAILS, &["cluster:c", "eds:e"]);
    run.name("c", "e");
    let assign = |run: &mut Run, n: u8, provenance| {
        let value = ResourceValue::Endpoints(assignment(n));
        run.update_cache(|cache, notices| cache.received(endpoints("e"), came(provenance, value), notices));
    };
    let output = |run: &Run| ["cluster:c", "eds:e"].map(|source| run.fact(source).provenance);
    use Provenance::{FirstList, Relist, Watch};
    assign(&mut run, 1, Relist);
    assert_eq!(output(&run), [FirstList, FirstList]);
    for provenance in [Watch, Relist] {
        run.reject(endpoints("e"));
        assert_eq!(["cluster:c", "eds:e"].map(|source| run.shown(source)), ["dropped: nack"; 2]);
        assign(&mut run, 2, provenance);
        assert_eq!(output(&run), [provenance, provenance], "it has held something before");
    }
}
