//! Decoding of good messages, bad ones, and arbitrary bytes.

mod followed;
mod large;

use envoy_types::pb::envoy::config::cluster::v3::{self as cluster, Cluster, cluster::ClusterDiscoveryType};
use envoy_types::pb::envoy::config::core::v3::address::Address as Specific;
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{
    self as core, AggregatedConfigSource, ApiConfigSource, ConfigSource, EnvoyInternalAddress, Pipe,
    SelfConfigSource, SocketAddress,
};
use envoy_types::pb::envoy::config::endpoint::v3::cluster_load_assignment::{Policy, policy::DropOverload};
use envoy_types::pb::envoy::config::endpoint::v3::endpoint::{AdditionalAddress, HealthCheckConfig};
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DiscoveryResponse, Resource, ResourceError, ResourceName,
};
use envoy_types::pb::envoy::r#type::v3::FractionalPercent;
use envoy_types::pb::google::protobuf::{Any, Duration, Struct, UInt32Value};
use envoy_types::pb::google::rpc::Status;
use envoy_types::util::pack_any;
use model::xds::facts::{AddressFacts, AssignmentFacts, EndpointFacts, Locality, LocalityFacts, Response};
use model::xds::validate;
use proptest::prelude::*;

use super::{
    Arc, Body, ClusterFacts, EdsFacts, EdsSource, MAX_WORDS, Message, Received, ReportedError, ResourceKind,
    WRAPPER, response,
};

fn socket(host: &str, port: PortSpecifier) -> core::Address {
    let address = host.to_owned();
    let socket =
        SocketAddress { protocol: 1, address, port_specifier: Some(port), ..SocketAddress::default() };
    core::Address { address: Some(Specific::SocketAddress(socket)) }
}

fn lb(identifier: Option<HostIdentifier>) -> LbEndpoint {
    LbEndpoint { host_identifier: identifier, ..LbEndpoint::default() }
}

fn at(address: Specific) -> LbEndpoint {
    let address = Some(core::Address { address: Some(address) });
    lb(Some(HostIdentifier::Endpoint(Endpoint { address, ..Endpoint::default() })))
}

fn assignment() -> ClusterLoadAssignment {
    let more = AdditionalAddress { address: Some(socket("fd00::1", PortSpecifier::PortValue(80))) };
    let full = LbEndpoint {
        health_status: 77,
        load_balancing_weight: Some(UInt32Value { value: 3 }),
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
            address: Some(socket("10.0.0.1", PortSpecifier::PortValue(80))),
            additional_addresses: vec![more, AdditionalAddress { address: None }],
            ..Endpoint::default()
        })),
        ..LbEndpoint::default()
    };
    let by_name = socket("10.0.0.2", PortSpecifier::NamedPort("http".to_owned()));
    let by_name = Endpoint { address: Some(by_name), ..Endpoint::default() };
    let locality = core::Locality { region: "r".into(), zone: "z".into(), sub_zone: "s".into() };
    let localities = vec![
        LocalityLbEndpoints {
            locality: Some(locality),
            load_balancing_weight: Some(UInt32Value { value: 0 }),
            priority: 2,
            lb_endpoints: vec![
                full,
                lb(Some(HostIdentifier::Endpoint(by_name))),
                at(Specific::Pipe(Pipe::default())),
                at(Specific::EnvoyInternalAddress(EnvoyInternalAddress::default())),
                lb(Some(HostIdentifier::EndpointName("elsewhere".to_owned()))),
                lb(None),
            ],
            ..LocalityLbEndpoints::default()
        },
        LocalityLbEndpoints::default(),
    ];
    with_more(ClusterLoadAssignment {
        cluster_name: "web".to_owned(),
        endpoints: localities,
        ..ClusterLoadAssignment::default()
    })
}

/// Adds to an assignment every field that has no meaning for pools.
fn with_more(mut message: ClusterLoadAssignment) -> ClusterLoadAssignment {
    let half = FractionalPercent { numerator: 50, denominator: 0 };
    let drops = DropOverload { category: "throttle".to_owned(), drop_percentage: Some(half) };
    message.policy = Some(Policy {
        drop_overloads: vec![drops],
        overprovisioning_factor: Some(UInt32Value { value: 140 }),
        endpoint_stale_after: Some(Duration { seconds: 30, nanos: 0 }),
        ..Policy::default()
    });
    let elsewhere = socket("10.9.9.9", PortSpecifier::PortValue(80));
    let named = Endpoint { address: Some(elsewhere.clone()), ..Endpoint::default() };
    message.named_endpoints = [("elsewhere".to_owned(), named)].into();
    for endpoint in message.endpoints.iter_mut().flat_map(|locality| &mut locality.lb_endpoints) {
        endpoint.metadata = Some(core::Metadata {
            filter_metadata: [("envoy.lb".to_owned(), Struct::default())].into(),
            ..core::Metadata::default()
        });
        if let Some(HostIdentifier::Endpoint(endpoint)) = &mut endpoint.host_identifier {
            endpoint.hostname = "web-0.test".to_owned();
            endpoint.health_check_config = Some(HealthCheckConfig {
                port_value: 8080,
                address: Some(elsewhere.clone()),
                ..HealthCheckConfig::default()
            });
        }
    }
    message
}

fn assignment_as_facts() -> AssignmentFacts {
    let socket = |address: &str, port| {
        let address = address.to_owned();
        AddressFacts::Socket { address, port, protocol: 1 }
    };
    let endpoint = |address| EndpointFacts { address, additional: Vec::new(), health: 0, weight: None };
    let full = EndpointFacts {
        address: socket("10.0.0.1", Some(80)),
        additional: vec![socket("fd00::1", Some(80)), AddressFacts::Missing],
        health: 77,
        weight: Some(3),
    };
    let locality = Locality { region: "r".into(), zone: "z".into(), sub_zone: "s".into() };
    let first = LocalityFacts {
        locality: Some(locality),
        weight: Some(0),
        priority: 2,
        endpoints: vec![
            full,
            endpoint(socket("10.0.0.2", None)),
            endpoint(AddressFacts::Pipe),
            endpoint(AddressFacts::Internal),
            endpoint(AddressFacts::Missing),
            endpoint(AddressFacts::Missing),
        ],
    };
    AssignmentFacts { cluster_name: "web".into(), localities: vec![first, LocalityFacts::default()] }
}

fn eds_cluster(source: Option<ConfigSourceSpecifier>) -> Cluster {
    let eds_config = ConfigSource { config_source_specifier: source, ..ConfigSource::default() };
    let eds = cluster::cluster::EdsClusterConfig {
        eds_config: Some(eds_config),
        service_name: "web-endpoints".to_owned(),
    };
    Cluster {
        name: "web".to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(3)),
        eds_cluster_config: Some(eds),
        ..Cluster::default()
    }
}

fn message(resources: Vec<Any>, resource_errors: Vec<ResourceError>) -> Vec<u8> {
    let message = DiscoveryResponse {
        version_info: "7".to_owned(),
        resources,
        type_url: ResourceKind::Endpoints.type_url().to_owned(),
        nonce: "n".to_owned(),
        resource_errors,
        ..DiscoveryResponse::default()
    };
    message.encode_to_vec()
}

fn one(any: Any) -> Received {
    let mut resources = response(&message(vec![any], Vec::new())).unwrap().resources;
    assert_eq!(resources.len(), 1);
    resources.remove(0)
}

fn wrapped(name: &str, inner: Option<Any>) -> Any {
    pack_any(Resource { name: name.to_owned(), resource: inner, ..Resource::default() })
}

/// Returns a message with every field.
fn rich() -> Vec<u8> {
    let reported = ResourceError {
        resource_name: Some(ResourceName { name: "gone".to_owned(), dynamic_parameter_constraints: None }),
        error_detail: Some(Status { code: 5, message: "no such thing".to_owned(), details: Vec::new() }),
    };
    let ads = Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource::default()));
    let resources = vec![
        pack_any(assignment()),
        wrapped("web", Some(pack_any(assignment()))),
        pack_any(eds_cluster(ads)),
        wrapped("web", None),
    ];
    message(resources, vec![reported, ResourceError::default()])
}

#[test]
fn x2_a_response_is_decoded_with_all_fields() {
    let decoded = response(&rich()).unwrap();
    assert_eq!((decoded.version.as_str(), decoded.nonce.as_str()), ("7", "n"));
    assert_eq!(decoded.type_url, ResourceKind::Endpoints.type_url());
    assert_eq!(decoded.resources.len(), 4);
    let errors = [
        ReportedError { name: Some("gone".into()), code: Some(5), message: "no such thing".into() },
        ReportedError { name: None, code: None, message: String::new() },
    ];
    assert_eq!(decoded.errors, errors);
}

#[test]
fn x2_an_assignment_is_decoded_and_its_bytes_are_stored() {
    let received = one(pack_any(assignment()));
    assert_eq!(received.body, Ok(Body::Endpoints(assignment_as_facts())));
    assert_eq!(received.wrapper, None);
    assert_eq!(*received.raw.type_url, *ResourceKind::Endpoints.type_url());
    assert_eq!(*received.raw.bytes, assignment().encode_to_vec());
}

#[test]
fn x2_fields_without_meaning_for_pools_are_ignored() {
    let address = Some(socket("10.0.0.1", PortSpecifier::PortValue(80)));
    let endpoint = lb(Some(HostIdentifier::Endpoint(Endpoint { address, ..Endpoint::default() })));
    let locality = LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..LocalityLbEndpoints::default() };
    let plain = ClusterLoadAssignment {
        cluster_name: "web".to_owned(),
        endpoints: vec![locality],
        ..ClusterLoadAssignment::default()
    };
    let (more, plain) = (one(pack_any(with_more(plain.clone()))), one(pack_any(plain)));
    assert_ne!(more.raw, plain.raw);
    assert_eq!(more.body, plain.body);
    let valid = validate(ResourceKind::Endpoints, &more).expect("it is valid");
    assert_eq!(Ok(valid), validate(ResourceKind::Endpoints, &plain));
}

#[test]
fn x2_a_cluster_names_its_endpoints() {
    let sources = [
        (Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource::default())), EdsSource::Ads),
        (Some(ConfigSourceSpecifier::Self_(SelfConfigSource::default())), EdsSource::SameServer),
        (Some(ConfigSourceSpecifier::ApiConfigSource(ApiConfigSource::default())), EdsSource::Other),
        (None, EdsSource::Other),
    ];
    for (given, source) in sources {
        let eds = Some(EdsFacts { service_name: "web-endpoints".into(), source });
        let facts = ClusterFacts { name: "web".into(), discovery: Some(3), eds };
        assert_eq!(one(pack_any(eds_cluster(given))).body, Ok(Body::Cluster(facts)));
    }
    let custom = Cluster {
        cluster_discovery_type: Some(ClusterDiscoveryType::ClusterType(
            cluster::cluster::CustomClusterType::default(),
        )),
        ..Cluster::default()
    };
    for (given, discovery) in [(custom, None), (Cluster::default(), Some(0))] {
        let facts = ClusterFacts { name: String::new(), discovery, eds: None };
        assert_eq!(one(pack_any(given)).body, Ok(Body::Cluster(facts)));
    }
}

#[test]
fn x2_a_resource_is_unwrapped_once() {
    let inner = pack_any(assignment());
    let received = one(wrapped("web", Some(inner.clone())));
    assert_eq!(received, Received { wrapper: Some("web".into()), ..one(inner.clone()) });
    let named = Resource {
        resource_name: Some(ResourceName { name: "full".to_owned(), dynamic_parameter_constraints: None }),
        resource: Some(inner.clone()),
        ..Resource::default()
    };
    assert_eq!(one(pack_any(named)).wrapper.as_deref(), Some("full"));
    let twice = one(wrapped("outer", Some(wrapped("web", Some(inner)))));
    assert_eq!((twice.wrapper.as_deref(), twice.body), (Some("outer"), Ok(Body::Other(WRAPPER.to_owned()))));
    let empty = one(wrapped("web", None));
    assert_eq!(empty.wrapper.as_deref(), Some("web"));
    assert_eq!(empty.body, Err("the wrapper has no resource in it".to_owned()));
}

#[test]
fn x2_an_undecodable_part_costs_one_resource() {
    let broken = |type_url: &str| Any { type_url: type_url.to_owned(), value: vec![0x0a, 0xff] };
    let mut resources: Vec<Any> = ResourceKind::ALL.into_iter().map(|kind| broken(kind.type_url())).collect();
    resources.push(broken(WRAPPER));
    resources.push(broken("type.test/newer"));
    resources.push(pack_any(assignment()));
    let received = response(&message(resources, Vec::new())).unwrap().resources;
    for (received, wrapper) in received.iter().zip([None, None, Some("")]) {
        assert!(received.body.as_ref().is_err_and(|words| !words.is_empty()), "{received:?}");
        assert_eq!(received.wrapper.as_deref(), wrapper);
        assert_eq!(*received.raw.bytes, [0x0a, 0xff]);
    }
    assert_eq!(received[3].body, Ok(Body::Other("type.test/newer".to_owned())));
    assert_eq!(received[4].body, Ok(Body::Endpoints(assignment_as_facts())));
}

#[test]
fn x2_bytes_that_are_no_response_are_an_error() {
    let error = response(&[0x0a, 0xff]).unwrap_err();
    assert!(error.to_string().starts_with("message is not a DiscoveryResponse"), "{error}");
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(response(&[]).unwrap().resources, []);
}

#[test]
fn c1_the_texts_of_errors_are_short_and_without_secrets() {
    let text = format!("Authorization: Bearer planted-secret {}", "x ".repeat(4096));
    let status = Status { code: 14, message: text, details: Vec::new() };
    let error = ResourceError { resource_name: None, error_detail: Some(status) };
    let decoded = response(&message(Vec::new(), vec![error])).unwrap();
    let words = &decoded.errors[0].message;
    assert!(words.len() <= MAX_WORDS && !words.contains("planted-secret"), "{words}");
}

#[test]
fn x2_deeply_nested_messages_do_not_overflow_the_stack() {
    let mut value = envoy_types::pb::google::protobuf::Value::default();
    for _ in 0..2_000 {
        let list = envoy_types::pb::google::protobuf::ListValue { values: vec![value] };
        let kind = envoy_types::pb::google::protobuf::value::Kind::ListValue(list);
        value = envoy_types::pb::google::protobuf::Value { kind: Some(kind) };
    }
    let metadata = core::Metadata {
        filter_metadata: [(
            "deep".to_owned(),
            envoy_types::pb::google::protobuf::Struct { fields: [("x".to_owned(), value)].into() },
        )]
        .into(),
        ..core::Metadata::default()
    };
    let deep = Cluster { name: "web".to_owned(), metadata: Some(metadata), ..Cluster::default() };
    let facts = ClusterFacts { name: "web".to_owned(), discovery: Some(0), eds: None };
    assert_eq!(one(pack_any(deep)).body, Ok(Body::Cluster(facts)), "metadata is skipped");
    // Groups, which protobuf must parse to skip them.
    let groups = Any { type_url: ResourceKind::Cluster.type_url().to_owned(), value: vec![0x0b; 100_000] };
    let words = one(groups).body.unwrap_err();
    assert!(words.starts_with("failed to decode") && words.len() <= MAX_WORDS, "{words}");
}

/// Returns a valid message with some bytes changed, removed or inserted.
fn mutated(valid: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0..3u8);
    prop::collection::vec(change, 1..8).prop_map(move |changes| {
        let mut bytes = valid.clone();
        for (at, byte, how) in changes {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        bytes
    })
}

/// Returns whether the result of decoding is consistent. Above all, decoding must end.
fn decodes(bytes: &[u8]) -> bool {
    let short = |received: &Received| match &received.body {
        Ok(_) => true,
        Err(words) => !words.is_empty() && words.len() <= MAX_WORDS,
    };
    let in_a_response = response(bytes).is_ok_and(|decoded| decoded.resources.iter().all(short));
    let types = ResourceKind::ALL.map(ResourceKind::type_url).into_iter().chain([WRAPPER, "type.test/newer"]);
    let as_resources = types.map(|type_url| Any { type_url: type_url.to_owned(), value: bytes.to_vec() });
    (in_a_response || response(bytes).is_err()) && as_resources.map(one).all(|one| short(&one))
}

proptest! {
    #[test]
    fn x2_no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        prop_assert!(decodes(&bytes));
    }

    #[test]
    fn x2_no_changed_response_causes_a_panic(bytes in mutated(rich())) {
        prop_assert!(decodes(&bytes));
    }

    #[test]
    fn x2_no_changed_assignment_causes_a_panic(bytes in mutated(assignment().encode_to_vec())) {
        prop_assert!(decodes(&bytes));
    }

    #[test]
    fn x2_no_changed_cluster_causes_a_panic(bytes in mutated(eds_cluster(None).encode_to_vec())) {
        prop_assert!(decodes(&bytes));
    }

    #[test]
    fn x2_no_changed_wrapper_causes_a_panic(bytes in mutated(wrapped("web", Some(pack_any(assignment()))).value)) {
        prop_assert!(decodes(&bytes));
    }
}
