//! Names and wrappers of resources, and the validation of every received resource.

use proptest::prelude::*;

use super::*;
use crate::xds::facts::{
    AddressFacts, AssignmentFacts, ClusterFacts, EdsFacts, EdsSource, EndpointFacts, LocalityFacts, Raw,
};

/// The number of the `DiscoveryType` EDS.
const EDS: i32 = 3;

fn received(wrapper: Option<&str>, body: Result<Body, String>) -> Received {
    let raw = Raw { type_url: Arc::from("any"), bytes: Arc::from([]) };
    Received { raw, wrapper: wrapper.map(str::to_owned), body }
}

fn cluster(name: &str) -> Result<Body, String> {
    let eds = Some(EdsFacts { service_name: String::new(), source: EdsSource::Ads });
    Ok(Body::Cluster(ClusterFacts { name: name.to_owned(), discovery: Some(EDS), eds }))
}

fn endpoints(name: &str, address: &str) -> Result<Body, String> {
    let address = AddressFacts::Socket { address: address.to_owned(), port: Some(80), protocol: 0 };
    let endpoint = EndpointFacts { address, additional: Vec::new(), health: 0, weight: None };
    let locality = LocalityFacts { endpoints: vec![endpoint], ..LocalityFacts::default() };
    Ok(Body::Endpoints(AssignmentFacts { cluster_name: name.to_owned(), localities: vec![locality] }))
}

/// Returns a body of this kind with this name, valid except possibly for the name.
fn body(kind: ResourceKind, name: &str) -> Result<Body, String> {
    match kind {
        ResourceKind::Cluster => cluster(name),
        ResourceKind::Endpoints => endpoints(name, "10.0.0.1"),
    }
}

/// Returns the field with the name of a resource of this kind.
fn field(kind: ResourceKind) -> &'static str {
    match kind {
        ResourceKind::Cluster => "name: ",
        ResourceKind::Endpoints => "cluster_name: ",
    }
}

#[test]
fn x2_a_resource_has_its_inner_name() {
    for kind in ResourceKind::ALL {
        for wrapper in [None, Some(""), Some("shop")] {
            let (name, value) = validate(kind, &received(wrapper, body(kind, "shop"))).expect("it is valid");
            assert_eq!((&*name, value.kind()), ("shop", kind));
        }
    }
}

#[test]
fn x2_a_resource_with_another_wrapper_name_is_rejected() {
    for kind in ResourceKind::ALL {
        for own in ["shop", ""] {
            let Invalid { name, message } =
                validate(kind, &received(Some("store"), body(kind, own))).expect_err("the names differ");
            assert_eq!(name.as_deref(), Some("store"));
            assert!(message.starts_with(field(kind)) && message.contains("\"store\""), "{message}");
        }
    }
}

#[test]
fn x2_a_resource_without_a_name_is_refused() {
    for kind in ResourceKind::ALL {
        for wrapper in [None, Some("")] {
            let Invalid { name, message } =
                validate(kind, &received(wrapper, body(kind, ""))).expect_err("it has no name");
            assert_eq!(name, None);
            assert!(message.starts_with(field(kind)) && message.contains("is empty"), "{message}");
        }
    }
}

#[test]
fn x1_a88_an_invalid_resource_is_rejected_with_its_field() {
    let refused = validate(ResourceKind::Endpoints, &received(None, endpoints("shop", "db.example")));
    let Invalid { name, message } = refused.expect_err("a host name");
    assert_eq!(name.as_deref(), Some("shop"));
    let path = "endpoints[0].lb_endpoints[0].endpoint.address.socket_address.address: \"db.example\" ";
    assert!(message.starts_with(path), "{message}");
}

#[test]
fn x2_an_undecodable_resource_has_its_wrappers_name() {
    for kind in ResourceKind::ALL {
        for (wrapper, expected) in [(Some("shop"), Some("shop")), (Some(""), None), (None, None)] {
            let broken = received(wrapper, Err("invalid wire type".to_owned()));
            let Invalid { name, message } = validate(kind, &broken).expect_err("it is broken");
            assert_eq!(name.as_deref(), expected);
            assert!(message.contains(kind.resource_type()) && message.contains("wire type"), "{message}");
        }
    }
}

#[test]
fn x2_a_resource_of_another_type_is_not_the_one_of_its_name() {
    let table = [
        (ResourceKind::Cluster, endpoints("shop", "10.0.0.1")),
        (ResourceKind::Endpoints, cluster("shop")),
        (ResourceKind::Cluster, Ok(Body::Other("type.googleapis.com/a.B".to_owned()))),
        (ResourceKind::Endpoints, Ok(Body::Other(String::new()))),
    ];
    for (kind, body) in table {
        let Invalid { name, message } = validate(kind, &received(Some("shop"), body)).expect_err("not this");
        assert_eq!(name, None);
        assert!(message.starts_with("type_url: ") && message.contains(kind.type_url()), "{message}");
    }
}

#[test]
fn another_limit_than_azures_is_applied() {
    let one = received(None, endpoints("shop", "10.0.0.1"));
    assert!(validate_within(ResourceKind::Endpoints, &one, Limits { members: 1 }).is_ok());
    assert!(validate_within(ResourceKind::Endpoints, &one, Limits { members: 0 }).is_err());
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-c]", 1 => Just(String::new()), 1 => ".*"]
}

fn address() -> impl Strategy<Value = AddressFacts> {
    let port = prop_oneof![3 => (0_u32..5).prop_map(Some), 1 => Just(None), 1 => any::<u32>().prop_map(Some)];
    let text = prop_oneof![
        6 => (0_u8..9).prop_map(|n| format!("10.0.0.{n}")),
        3 => (0_u8..9).prop_map(|n| format!("fd00::{n}")),
        1 => any::<std::net::IpAddr>().prop_map(|ip| ip.to_string()),
        1 => ".*",
    ];
    prop_oneof![
        12 => (text, port, any::<i32>())
            .prop_map(|(address, port, protocol)| AddressFacts::Socket { address, port, protocol }),
        1 => Just(AddressFacts::Pipe),
        1 => Just(AddressFacts::Internal),
        1 => Just(AddressFacts::Missing),
    ]
}

fn assignment() -> impl Strategy<Value = AssignmentFacts> {
    let number = || prop_oneof![1 => any::<u32>(), 1 => 0_u32..2];
    let weight = || prop_oneof![3 => Just(None), 2 => number().prop_map(Some)];
    let additional = prop::collection::vec(address(), 0..3);
    let endpoint =
        (address(), additional, any::<i32>(), weight()).prop_map(|(address, additional, health, weight)| {
            EndpointFacts { address, additional, health, weight }
        });
    let priority = prop_oneof![4 => 0_u32..3, 1 => any::<u32>()];
    let locality = (weight(), priority, prop::collection::vec(endpoint, 0..5)).prop_map(
        |(weight, priority, endpoints)| LocalityFacts { locality: None, weight, priority, endpoints },
    );
    (name(), prop::collection::vec(locality, 0..5))
        .prop_map(|(cluster_name, localities)| AssignmentFacts { cluster_name, localities })
}

fn any_body() -> impl Strategy<Value = Result<Body, String>> {
    let source = prop_oneof![
        2 => Just(EdsSource::Ads),
        1 => Just(EdsSource::SameServer),
        1 => Just(EdsSource::Other),
    ];
    let eds = prop::option::of(
        (name(), source).prop_map(|(service_name, source)| EdsFacts { service_name, source }),
    );
    let discovery = prop_oneof![1 => any::<Option<i32>>(), 3 => Just(Some(EDS))];
    let cluster = (name(), discovery, eds)
        .prop_map(|(name, discovery, eds)| Body::Cluster(ClusterFacts { name, discovery, eds }));
    prop_oneof![
        3 => cluster.prop_map(Ok),
        6 => assignment().prop_map(|facts| Ok(Body::Endpoints(facts))),
        1 => ".*".prop_map(|type_url| Ok(Body::Other(type_url))),
        1 => ".*".prop_map(Err),
    ]
}

/// The possible first elements of a field's path.
const FIELDS: [&str; 9] = [
    "resource: ",
    "type_url: ",
    "name: ",
    "type: ",
    "cluster_type: ",
    "eds_cluster_config",
    "cluster_name: ",
    "endpoints[",
    "endpoints: ",
];

proptest! {
    #[test]
    fn x2_a_resource_is_valid_under_its_name_or_a_field_is_refused(
        wrapper in prop::option::of(name()),
        body in any_body(),
    ) {
        for kind in ResourceKind::ALL {
            match validate(kind, &received(wrapper.as_deref(), body.clone())) {
                Ok((name, value)) => {
                    prop_assert_eq!(value.kind(), kind);
                    prop_assert!(!name.is_empty());
                    let around = wrapper.as_deref().filter(|around| !around.is_empty());
                    prop_assert!(around.is_none_or(|around| around == &*name), "{} in {:?}", name, around);
                }
                Err(Invalid { name, message }) => {
                    prop_assert!(FIELDS.iter().any(|field| message.starts_with(field)), "{}", message);
                    prop_assert!(message.chars().count() < 8_000, "{}", message);
                    prop_assert!(name.is_none_or(|name| !name.is_empty()));
                }
            }
        }
    }
}
