//! The machine on the test's clock: its start, the facts about a source, and the views.

use super::*;
use crate::xds::client::ExponentialBackoff;
use model::machine::Wall;
use model::xds::assignment::LoadAssignment;
use model::xds::cache::{Policy, ResourceState};
use model::xds::facts::{
    AddressFacts, AssignmentFacts, Body, Code, EndpointFacts, LocalityFacts, Raw, Received, ResourceKind,
    Response,
};
use model::xds::source::Assigned;
use model::xds::stream::{Server, StreamEnd, StreamId};
use std::collections::BTreeMap;

struct Fixture {
    machine: XdsSource,
    now: Now,
    out: Vec<Out>,
}

impl Fixture {
    fn new(sources: &[&str]) -> Fixture {
        let name = |text: &&str| Name::parse(text).expect("a name");
        let server = Server { uri: "dns:///control-plane:18000".into(), policy: Policy::default() };
        let params = Params {
            client: client::Params {
                servers: vec![server],
                backoff: ExponentialBackoff::STREAMS,
                nack_pace: ExponentialBackoff::NACKS,
            },
            node_id: "replica-1".into(),
            sources: sources.iter().map(name).collect(),
        };
        let mut fixture =
            Fixture { machine: XdsSource::new(params), now: Now::from_micros(7), out: Vec::new() };
        fixture.step(In::Start);
        fixture.wait(Duration::ZERO);
        fixture
    }

    /// Advances the clock, deadline by deadline.
    fn wait(&mut self, time: Duration) {
        let end = self.now.plus(time);
        while let Some(at) = self.machine.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.machine.tick(self.now, &mut self.out);
        }
        self.now = end;
    }

    fn send(&mut self, event: StreamEvent) {
        self.step(In::StreamEvent(event));
    }

    fn step(&mut self, input: In) {
        self.machine.step(self.now, input, &mut self.out);
    }

    fn calls(&self) -> Vec<&DriverCall> {
        let all = self.out.iter();
        let all = all.filter_map(|out| match out {
            Out::Call(call) => Some(call),
            Out::Fact(..) | Out::View(_) | Out::Metric(_) => None,
        });
        all.collect()
    }

    fn facts(&self) -> Vec<(&Name, &SourceFact)> {
        let all = self.out.iter();
        let all = all.filter_map(|out| match out {
            Out::Fact(name, fact) => Some((name, fact)),
            Out::Call(_) | Out::View(_) | Out::Metric(_) => None,
        });
        all.collect()
    }

    fn views(&self) -> Vec<&Arc<XdsView>> {
        let all = self.out.iter();
        let all = all.filter_map(|out| match out {
            Out::View(view) => Some(view),
            Out::Call(_) | Out::Fact(..) | Out::Metric(_) => None,
        });
        all.collect()
    }

    /// Returns the open stream.
    fn opened(&self) -> StreamId {
        let opened = |call: &&DriverCall| match call {
            DriverCall::Open { stream, .. } => Some(*stream),
            DriverCall::Send(..) | DriverCall::Read(_) | DriverCall::Close(_) => None,
        };
        self.calls().iter().find_map(opened).expect("a stream was opened")
    }

    /// Assigns these addresses to a name, as the control plane.
    fn assign(&mut self, stream: StreamId, version: &str, name: &str, last: &[u8]) {
        let endpoint = |last: &u8| EndpointFacts {
            address: AddressFacts::Socket { address: format!("10.0.0.{last}"), port: Some(80), protocol: 0 },
            additional: Vec::new(),
            health: 1,
            weight: None,
        };
        let locality = LocalityFacts {
            weight: Some(1),
            endpoints: last.iter().map(endpoint).collect(),
            ..LocalityFacts::default()
        };
        let facts = AssignmentFacts { cluster_name: name.to_owned(), localities: vec![locality] };
        let type_url = ResourceKind::Endpoints.type_url();
        let received = Received {
            raw: Raw { type_url: type_url.into(), bytes: version.as_bytes().into() },
            wrapper: None,
            body: Ok(Body::Endpoints(facts)),
        };
        let response = Response {
            type_url: type_url.to_owned(),
            version: version.to_owned(),
            nonce: format!("nonce-{version}"),
            resources: vec![received],
            errors: Vec::new(),
            excess: None,
        };
        self.send(StreamEvent::Response(stream, response, Wall::from_micros(1)));
    }
}

#[test]
fn x2_without_a_source_no_server_is_used() {
    let mut fixture = Fixture::new(&[]);
    fixture.wait(Duration::from_secs(600));
    assert!(fixture.out.is_empty() && fixture.machine.deadline().is_none());
}

#[test]
fn x2_all_configured_resources_are_requested_at_open() {
    let fixture = Fixture::new(&["eds:shop", "cluster:web", "eds:api"]);
    assert_eq!(fixture.facts().len(), 3, "of each source it is said that nothing is known");
    // Some control planes do not answer a request that omits a resource that they have.
    let calls = fixture.calls();
    let [DriverCall::Open { first, .. }, DriverCall::Read(_)] = &calls[..] else { panic!("{calls:?}") };
    let requested: BTreeMap<ResourceKind, Vec<&str>> = first
        .iter()
        .map(|request| (request.kind, request.names.iter().map(|name| &**name).collect()))
        .collect();
    assert_eq!(
        requested,
        BTreeMap::from([
            (ResourceKind::Cluster, vec!["web"]),
            (ResourceKind::Endpoints, vec!["api", "shop"])
        ])
    );
}

#[test]
fn x1_x2_an_assignment_is_published_immediately() {
    let mut fixture = Fixture::new(&["eds:shop"]);
    let stream = fixture.opened();
    fixture.send(StreamEvent::Dispatched(stream));
    fixture.out.clear();
    fixture.assign(stream, "1", "shop", &[1, 2]);
    let facts = fixture.facts();
    assert!(matches!(&facts[..], [(_, SourceFact { assigned: Assigned::Usable(_), .. })]), "{facts:?}");
    assert!(fixture.calls().contains(&&DriverCall::Read(stream)), "{:?}", fixture.calls());
    fixture.out.clear();
    fixture.assign(stream, "2", "shop", &[1, 2]);
    assert_eq!(fixture.facts().len(), 0, "the same again is no news");
    assert!(fixture.calls().contains(&&DriverCall::Read(stream)));
}

#[test]
fn x3_a_lost_server_changes_no_assignment() {
    let mut fixture = Fixture::new(&["eds:shop"]);
    let stream = fixture.opened();
    fixture.send(StreamEvent::Dispatched(stream));
    fixture.assign(stream, "1", "shop", &[1]);
    fixture.out.clear();
    let lost = || StreamEnd { code: Code::Unavailable, message: "connection refused".to_owned() };
    fixture.send(StreamEvent::Ended { stream, ended: lost(), jitter: 500 });
    assert_eq!(fixture.facts().len(), 0, "a stream that has heard something may end");
    fixture.wait(Duration::from_secs(2));
    let again = fixture.opened();
    fixture.out.clear();
    fixture.send(StreamEvent::Ended { stream: again, ended: lost(), jitter: 500 });
    let facts = fixture.facts();
    let [(_, fact)] = &facts[..] else { panic!("{facts:?}") };
    assert!(fact.assignment().is_some(), "{fact:?}");
    assert!(fact.note.to_string().contains("connection refused"), "{}", fact.note);
}

#[test]
fn h5_the_dump_is_published_at_most_four_times_a_second() {
    let mut fixture = Fixture::new(&["eds:shop"]);
    let stream = fixture.opened();
    fixture.send(StreamEvent::Dispatched(stream));
    fixture.wait(Duration::from_secs(1));
    let newest = Arc::clone(fixture.views().last().expect("it is shown"));
    assert_eq!(newest.dump.resources[0].state, ResourceState::Requested);
    fixture.out.clear();
    for n in 1..=100 {
        fixture.assign(stream, &n.to_string(), "shop", &[n]);
        fixture.wait(Duration::from_millis(10));
    }
    fixture.wait(Duration::from_millis(250));
    let views = fixture.views();
    assert!((4..=6).contains(&views.len()), "{} views in 1.25 s", views.len());
    let newest = views.last().expect("it is shown");
    let name = Name::parse("eds:shop").expect("a name");
    let shown = newest.sources[&name].assignment().expect("something is assigned");
    let cached = newest.dump.resources[0].cached.as_ref().expect("it is cached");
    assert_eq!(cached.value, model::xds::ResourceValue::Endpoints(LoadAssignment::clone(shown)));
    assert_eq!(cached.value, {
        let facts = fixture.facts();
        let (_, fact) = facts.last().expect("it was told");
        model::xds::ResourceValue::Endpoints(LoadAssignment::clone(
            fact.assignment().expect("something is assigned"),
        ))
    });
}
