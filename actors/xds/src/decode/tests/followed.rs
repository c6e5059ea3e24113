//! Effects of arbitrary bytes on the xDS source machine, after good resources were in use (X2, X3, A46).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use model::machine::{Machine, Now, Wall};
use model::xds::assignment::LoadAssignment;
use model::xds::cache::Policy;
use model::xds::name::Name;
use model::xds::source::{Assigned, SourceFact};
use model::xds::stream::DriverCall;
use model::xds::stream::{Server, ServerId, StreamEvent, StreamId, XdsRequest};
use proptest::test_runner::TestCaseResult;
use sources::xds::client::{self, ExponentialBackoff};
use sources::xds_source::{In, Out, Params, XdsSource};

use super::*;

/// The sources, and the first endpoint resource of each.
const SOURCES: [(&str, &str); 2] = [("eds:web", "web"), ("cluster:shop", "shop")];

/// The machine with both sources, on one stream.
pub(super) struct Following {
    source: XdsSource,
    now: Now,
    pub stream: StreamId,
    /// Last fact about each source.
    facts: BTreeMap<String, SourceFact>,
    /// Last requested names of each kind.
    subscribed: BTreeMap<ResourceKind, Vec<Arc<str>>>,
    /// All requests that were not examined, and whether each differs in names from the one before.
    pub requests: Vec<(XdsRequest, bool)>,
    /// Number of messages that may be read.
    reads: usize,
}

impl Following {
    /// Creates a machine with good resources for both sources.
    pub fn new() -> Following {
        let server = Server { uri: Arc::from("server.test:1"), policy: Policy::default() };
        let client = client::Params {
            servers: vec![server],
            backoff: ExponentialBackoff::STREAMS,
            nack_pace: ExponentialBackoff::NACKS,
        };
        let sources = SOURCES.map(|(name, _)| Name::parse(name).expect("a source"));
        let params = Params { client, node_id: Arc::from("pools"), sources: BTreeSet::from(sources) };
        let mut following = Following {
            source: XdsSource::new(params),
            now: Now::ZERO.plus(Duration::from_secs(3600)),
            stream: StreamId(0),
            facts: BTreeMap::new(),
            subscribed: BTreeMap::new(),
            requests: Vec::new(),
            reads: 0,
        };
        let mut out = Vec::new();
        following.source.step(following.now, In::Start, &mut out);
        following.source.tick(following.now, &mut out);
        following.take(out);
        following.step(StreamEvent::Dispatched(following.stream));
        following.receive(&good_response(ResourceKind::Cluster, "c1")).expect("good bytes");
        for (kind, _) in following.subscribed.clone() {
            following.step(StreamEvent::Sent(following.stream, kind));
        }
        following.receive(&good_response(ResourceKind::Endpoints, "e1")).expect("good bytes");
        following.wait();
        for (source, _) in SOURCES {
            assert!(following.facts[source].assignment().is_some(), "{source} has something good");
        }
        following.requests.clear();
        following
    }

    pub fn step(&mut self, event: StreamEvent) {
        let mut out = Vec::new();
        self.source.step(self.now, In::StreamEvent(event), &mut out);
        self.take(out);
    }

    /// Receives a message, which may be undecodable; returns its decoded form.
    fn receive(&mut self, bytes: &[u8]) -> Option<Response> {
        assert_eq!(self.reads, 1, "there is leave to read one message");
        self.reads = 0;
        let decoded = response(bytes).ok();
        self.step(match decoded.clone() {
            Some(decoded) => StreamEvent::Response(self.stream, decoded, Wall::default()),
            None => StreamEvent::Undecodable(self.stream),
        });
        decoded
    }

    /// Returns the endpoint resources that a source may use: the requested ones, without those that only the other
    /// source uses.
    fn names(&self, source: &str) -> Vec<Arc<str>> {
        let subscribed = self.subscribed[&ResourceKind::Endpoints].iter();
        let (first, others): (Vec<Arc<str>>, Vec<Arc<str>>) =
            subscribed.cloned().partition(|name| **name == *"web");
        if source == SOURCES[0].0 || others.is_empty() { first } else { others }
    }

    /// Lets the transport pull the requests, and advances time until no answer is pending.
    fn wait(&mut self) {
        for _ in 0..20 {
            for kind in ResourceKind::ALL {
                self.step(StreamEvent::Sent(self.stream, kind));
            }
            self.now = self.now.plus(Duration::from_millis(500));
            let mut out = Vec::new();
            self.source.tick(self.now, &mut out);
            self.take(out);
        }
    }

    fn take(&mut self, out: Vec<Out>) {
        for output in out {
            match output {
                Out::Call(DriverCall::Open { stream, server, first }) => {
                    assert_eq!(server, ServerId(0));
                    self.stream = stream;
                    first.into_iter().for_each(|request| self.request(request));
                }
                Out::Call(DriverCall::Send(_, request)) => self.request(request),
                Out::Call(DriverCall::Read(_)) => self.reads += 1,
                Out::Call(DriverCall::Close(_)) => panic!("nothing ends the stream"),
                Out::Fact(name, fact) => drop(self.facts.insert(name.to_string(), fact)),
                Out::View(_) | Out::Metric(_) => {}
            }
        }
    }

    fn request(&mut self, request: XdsRequest) {
        let before = self.subscribed.insert(request.kind, request.names.clone());
        let differs = before.is_some_and(|before| before != request.names);
        self.requests.push((request, differs));
    }

    /// Receives these bytes and checks the result: no source loses its endpoints, new endpoints were in these bytes
    /// or belong to the other source, nothing is empty that was not sent as empty, and the bytes are answered at most
    /// once.
    fn stands(&mut self, bytes: &[u8]) -> TestCaseResult {
        let before = self.facts.clone();
        let names = SOURCES.map(|(source, _)| self.names(source));
        let event = self.receive(bytes);
        // A cluster may drop a name that another response provides.
        self.wait();
        prop_assert_eq!(self.reads, 1, "the next message may be read");
        for ((source, _), names) in SOURCES.into_iter().zip(names) {
            let fact = &self.facts[source];
            let Assigned::Usable(assignment) = &fact.assigned else {
                return Err(TestCaseError::fail(format!("{source} has lost what it had: {fact:?}")));
            };
            // A cluster may start to name the endpoints of the other source.
            let is_cluster = source.starts_with("cluster:");
            let mut its = before.iter().filter(|(of, _)| is_cluster || *of == source);
            let is_known = its.any(|(_, fact)| fact.assignment() == Some(assignment));
            if is_known {
                continue;
            }
            let was_sent = event.as_ref().is_some_and(|event| holds(event, assignment, &names));
            prop_assert!(was_sent, "{} has what was not sent: {:?}", source, assignment);
        }
        let requests = std::mem::take(&mut self.requests);
        let Some(event) = event else {
            prop_assert_eq!(requests, [], "what cannot be read is not answered");
            return Ok(());
        };
        let kind = ResourceKind::of_type_url(&event.type_url);
        let answers = requests.iter().filter(|(request, differs)| Some(request.kind) == kind && !differs);
        let answers = answers.count();
        let is_response = kind.is_some();
        prop_assert_eq!(
            answers,
            usize::from(is_response),
            "answered once, if it was asked for: {:?}",
            requests
        );
        Ok(())
    }
}

/// Returns whether an assignment is sound, and a resource of the response with one of these names has all of its
/// addresses. An assignment without addresses requires a resource without endpoints.
fn holds(response: &Response, assignment: &LoadAssignment, names: &[Arc<str>]) -> bool {
    let addresses: BTreeSet<IpAddr> =
        assignment.priorities.iter().flat_map(|priority| priority.addresses.keys().copied()).collect();
    let is_for_pools = |ip: &IpAddr| !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast();
    let addresses_of = |facts: &AssignmentFacts| {
        let endpoints = facts.localities.iter().flat_map(|locality| &locality.endpoints);
        let all =
            endpoints.flat_map(|endpoint| std::iter::once(&endpoint.address).chain(&endpoint.additional));
        let read = |facts: &AddressFacts| match facts {
            AddressFacts::Socket { address, .. } => address.parse::<IpAddr>().ok(),
            AddressFacts::Pipe | AddressFacts::Internal | AddressFacts::Missing => None,
        };
        all.filter_map(read).collect::<BTreeSet<IpAddr>>()
    };
    let is_empty = |facts: &AssignmentFacts| {
        let mut counted = facts.localities.iter().filter(|locality| locality.weight != Some(0));
        counted.all(|locality| locality.endpoints.is_empty())
    };
    addresses.iter().all(is_for_pools)
        && response.resources.iter().any(|received| match &received.body {
            Ok(Body::Endpoints(facts)) => {
                let is_named = names.iter().any(|name| **name == *facts.cluster_name);
                is_named
                    && addresses_of(facts).is_superset(&addresses)
                    && addresses.is_empty() == is_empty(facts)
            }
            Ok(Body::Cluster(_) | Body::TooLarge { .. } | Body::Other(_)) | Err(_) => false,
        })
}

fn endpoints_of(name: &str, host: &str) -> ClusterLoadAssignment {
    let address = Some(socket(host, PortSpecifier::PortValue(80)));
    let endpoint = lb(Some(HostIdentifier::Endpoint(Endpoint { address, ..Endpoint::default() })));
    let locality = LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..LocalityLbEndpoints::default() };
    ClusterLoadAssignment {
        cluster_name: name.to_owned(),
        endpoints: vec![locality],
        ..ClusterLoadAssignment::default()
    }
}

fn empty(name: &str) -> ClusterLoadAssignment {
    ClusterLoadAssignment { cluster_name: name.to_owned(), ..ClusterLoadAssignment::default() }
}

/// Returns the cluster of the second source, with this service name.
fn shop(service_name: &str) -> Cluster {
    let mut cluster = eds_cluster(Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource::default())));
    cluster.name = "shop".to_owned();
    let eds = cluster.eds_cluster_config.as_mut().expect("it is of the type EDS");
    eds.service_name = service_name.to_owned();
    cluster
}

/// Returns a good response with all resources of a kind.
fn good_response(kind: ResourceKind, nonce: &str) -> Vec<u8> {
    let resources = match kind {
        ResourceKind::Cluster => vec![pack_any(shop(""))],
        ResourceKind::Endpoints => SOURCES.map(|(_, name)| pack_any(endpoints_of(name, "10.0.0.1"))).to_vec(),
    };
    of(kind, nonce, resources)
}

fn of(kind: ResourceKind, nonce: &str, resources: Vec<Any>) -> Vec<u8> {
    let response = DiscoveryResponse {
        version_info: format!("version of {nonce}"),
        nonce: nonce.to_owned(),
        type_url: kind.type_url().to_owned(),
        resources,
        ..DiscoveryResponse::default()
    };
    response.encode_to_vec()
}

/// Returns a response that reports an error of this resource (TP3).
fn errors(kind: ResourceKind, name: &str) -> Vec<u8> {
    let error = ResourceError {
        resource_name: Some(ResourceName { name: name.to_owned(), dynamic_parameter_constraints: None }),
        error_detail: Some(Status { code: 5, message: "no such thing".to_owned(), details: Vec::new() }),
    };
    let response = DiscoveryResponse {
        nonce: "error".to_owned(),
        type_url: kind.type_url().to_owned(),
        resource_errors: vec![error],
        ..DiscoveryResponse::default()
    };
    response.encode_to_vec()
}

/// Returns assignments that can be decoded, and that may be valid or not.
fn any_assignment() -> impl Strategy<Value = Any> {
    let host = prop_oneof!["10\\.0\\.0\\.[1-9]", "[0-9a-f.:]{0,12}"];
    let endpoint = (host, 0..70_000_u32, -1..8_i32, prop::option::of(0..3_u32));
    let locality = (prop::collection::vec(endpoint, 0..4), 0..2_u32, prop::option::of(0..3_u32));
    let name = prop::sample::select(vec!["web", "shop", "other"]);
    (name, prop::collection::vec(locality, 0..3)).prop_map(|(name, localities)| {
        let endpoints = localities.into_iter().map(|(endpoints, priority, weight)| LocalityLbEndpoints {
            lb_endpoints: endpoints.into_iter().map(of_parts).collect(),
            priority,
            load_balancing_weight: weight.map(|value| UInt32Value { value }),
            ..LocalityLbEndpoints::default()
        });
        pack_any(ClusterLoadAssignment {
            cluster_name: name.to_owned(),
            endpoints: endpoints.collect(),
            ..ClusterLoadAssignment::default()
        })
    })
}

fn of_parts((host, port, health_status, weight): (String, u32, i32, Option<u32>)) -> LbEndpoint {
    let address = Some(socket(&host, PortSpecifier::PortValue(port)));
    LbEndpoint {
        health_status,
        load_balancing_weight: weight.map(|value| UInt32Value { value }),
        ..lb(Some(HostIdentifier::Endpoint(Endpoint { address, ..Endpoint::default() })))
    }
}

/// Returns a resource of any kind, in a response that is good apart from it.
fn in_a_response() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        mutated(endpoints_of("web", "10.0.0.2").encode_to_vec()),
        mutated(endpoints_of("shop", "10.0.0.3").encode_to_vec()),
        mutated(assignment().encode_to_vec()),
        mutated(shop("web").encode_to_vec()),
    ];
    let of_type = prop::sample::select(vec![
        ResourceKind::Cluster.type_url(),
        ResourceKind::Endpoints.type_url(),
        WRAPPER,
    ]);
    let kind = prop::sample::select(ResourceKind::ALL.to_vec());
    let any_bytes = (bytes, of_type, kind).prop_map(|(value, type_url, kind)| {
        let resource = Any { type_url: type_url.to_owned(), value };
        of(kind, "hostile", vec![resource])
    });
    prop_oneof![any_bytes, any_assignment().prop_map(|any| of(ResourceKind::Endpoints, "any", vec![any]))]
}

/// Returns bytes that are sent instead of a response.
fn in_place_of_a_response() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..512),
        mutated(rich()),
        mutated(of(ResourceKind::Endpoints, "new", vec![pack_any(endpoints_of("web", "10.0.0.2"))])),
        mutated(of(ResourceKind::Cluster, "new", vec![pack_any(shop("web"))])),
        mutated(of(ResourceKind::Cluster, "new", Vec::new())),
        mutated(errors(ResourceKind::Endpoints, "web")),
        mutated(errors(ResourceKind::Cluster, "shop")),
    ]
}

proptest! {
    #[test]
    fn x2_x3_no_response_removes_endpoints_or_has_two_answers(
        messages in prop::collection::vec(in_place_of_a_response(), 1..4),
    ) {
        let mut following = Following::new();
        for bytes in messages {
            following.stands(&bytes)?;
        }
    }

    #[test]
    fn x2_x3_no_resource_removes_endpoints_or_has_two_answers(
        messages in prop::collection::vec(in_a_response(), 1..4),
    ) {
        let mut following = Following::new();
        for bytes in messages {
            following.stands(&bytes)?;
        }
    }
}

#[test]
fn x2_a_good_assignment_after_garbage_is_used() {
    let mut following = Following::new();
    let bad = Any { type_url: ResourceKind::Endpoints.type_url().to_owned(), value: vec![0xff; 3] };
    following.receive(&of(ResourceKind::Endpoints, "bad", vec![bad])).expect("a response");
    following.wait();
    let new = endpoints_of("web", "10.0.0.2");
    following.receive(&of(ResourceKind::Endpoints, "good", vec![pack_any(new)])).expect("a response");
    following.wait();
    let answers: Vec<(&str, bool)> =
        following.requests.iter().map(|(request, _)| (&*request.nonce, request.error.is_some())).collect();
    assert_eq!(answers, [("bad", true), ("good", false)]);
    let assignment = following.facts["eds:web"].assignment().expect("it is in use");
    let addresses: Vec<String> = assignment.priorities[0].addresses.keys().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.0.0.2"]);
}

#[test]
fn x2_a_cluster_may_change_to_another_sources_endpoints() {
    let mut following = Following::new();
    let new = endpoints_of("web", "10.0.0.2");
    following.stands(&of(ResourceKind::Endpoints, "new", vec![pack_any(new)])).expect("it stands");
    following.stands(&of(ResourceKind::Cluster, "new", vec![pack_any(shop("web"))])).expect("it stands");
    let assignments = SOURCES.map(|(source, _)| following.facts[source].assignment());
    assert_eq!(assignments[0], assignments[1]);
    following.stands(&of(ResourceKind::Endpoints, "none", vec![pack_any(empty("web"))])).expect("it stands");
    assert!(SOURCES.iter().all(|(source, _)| following.facts[*source].assignment() == Some(&Arc::default())));
}
