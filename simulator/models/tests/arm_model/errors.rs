//! Requests that are refused before anything is written.

use serde_json::{Value, json};
use simulator_models::arm::{ArmModel, Method, PoolSpec, Settings, SyncMode, VirtualNetwork};

use crate::support::{
    SECOND, VNET, code, detail, get, holding, ips, model, path, pool_path, put, request, send,
};

fn named(names: &[&str]) -> Value {
    let addresses: Vec<Value> =
        names.iter().map(|name| json!({"name": name, "properties": {"ipAddress": "10.0.0.9"}})).collect();
    json!({"properties": {"loadBalancerBackendAddresses": addresses}})
}

fn with_properties(properties: &Value) -> Value {
    json!({"properties": {"loadBalancerBackendAddresses": [{"name": "x", "properties": properties}]}})
}

#[test]
fn z1_malformed_bodies_are_400_and_change_nothing() {
    let mut model = model(Settings::default());
    let bodies = ["", "{", "[]", "null", "\"text\"", "{\"properties\": {}} trailing", "\u{feff}{}"];
    for body in bodies {
        let answer = send(&mut model, &request(Method::Put, &pool_path("lb", "a"), &[], body), 0);
        assert_eq!((answer.status, code(&answer).as_str()), (400, "InvalidRequestContent"), "{body:?}");
    }
    let shapes = [
        json!({"properties": []}),
        json!({"properties": {"loadBalancerBackendAddresses": {}}}),
        json!({"properties": {"loadBalancerBackendAddresses": ["10.0.0.1"]}}),
        json!({"properties": {"loadBalancerBackendAddresses": [{"name": "x", "properties": 1}]}}),
        json!({"properties": {"syncMode": "Sometimes"}}),
        json!({"properties": {"syncMode": "Manual"}}),
        with_properties(&json!({"ipAddress": "10.0.0"})),
        with_properties(&json!({"ipAddress": 7})),
        with_properties(&json!({"adminState": "Drain"})),
    ];
    for body in shapes {
        let answer = put(&mut model, "lb", "a", &body, 0);
        assert_eq!((answer.status, code(&answer).as_str()), (400, "InvalidRequestFormat"), "{body}");
    }
    assert_eq!(ips(&model, "lb", "a"), ["10.0.0.1"]);
}

#[test]
fn z1_duplicate_address_names_are_refused_in_any_case() {
    let mut model = model(Settings::default());
    let answer = put(&mut model, "lb", "a", &named(&["node", "NODE"]), 0);
    assert_eq!((answer.status, code(&answer).as_str()), (400, "InvalidRequestFormat"));
    assert_eq!(detail(&answer), "DuplicateResourceName");
}

#[test]
fn z1_names_of_addresses_and_pools_follow_azures_rule() {
    let mut model = model(Settings::default());
    let (longest, too_long) = ("n".repeat(80), "n".repeat(81));
    for name in ["", "-a", "a-", "a b", "a/b", too_long.as_str()] {
        let answer = put(&mut model, "lb", "a", &named(&[name]), 0);
        assert_eq!((answer.status, code(&answer).as_str()), (400, "InvalidResourceName"), "{name:?}");
    }
    for (now, name) in (0..).zip(["a", "a_", "_a", "a.b-c", longest.as_str()]) {
        let answer = put(&mut model, "other", "a", &named(&[name]), now * SECOND);
        assert_eq!(answer.status, 200, "{name:?}");
    }
    assert_eq!(code(&put(&mut model, "lb", &too_long, &named(&[]), 0)), "InvalidResourceName");
    let mismatch = put(&mut model, "lb", "a", &json!({"name": "b", "properties": {}}), 0);
    assert_eq!((mismatch.status, code(&mismatch).as_str()), (400, "MismatchingResourceName"));
}

#[test]
fn z1_the_virtual_network_is_at_one_level_only() {
    let mut model = model(Settings::default());
    let mut body = holding(&["10.0.0.8"]);
    body["properties"]["loadBalancerBackendAddresses"][0]["properties"]["virtualNetwork"] =
        json!({"id": VNET});
    let refused = put(&mut model, "lb", "a", &body, 0);
    assert_eq!((refused.status, detail(&refused).as_str()), (400, "VirtualNetworkSpecifiedTwice"));
    body["properties"]["virtualNetwork"] = Value::Null;
    assert_eq!(put(&mut model, "lb", "a", &body, 0).status, 200);
}

#[test]
fn z1_pools_that_synchronise_themselves_refuse_other_addresses() {
    let mut model = ArmModel::new(Settings::default());
    let spec = PoolSpec {
        virtual_network: VirtualNetwork::Pool(VNET.to_owned()),
        members: vec![("node".to_owned(), "10.0.0.1".to_owned())],
        sync_mode: Some(SyncMode::Automatic),
        ..PoolSpec::default()
    };
    model.add_pool("lb", "auto", &spec);
    let mut body = model.pool_json("lb", "auto").expect("auto is there");
    assert_eq!(put(&mut model, "lb", "auto", &body, 0).status, 200);
    body["properties"]["loadBalancerBackendAddresses"] = json!([]);
    let refused = put(&mut model, "lb", "auto", &body, 0);
    assert_eq!(refused.status, 400);
    assert_eq!(code(&refused), "ModificationOfBackendAddressesInPoolIsNotSupportedWhenSyncModeIsAutomatic");
    body["properties"]["syncMode"] = json!("Manual");
    assert_eq!(put(&mut model, "lb", "auto", &body, 0).status, 200);
}

#[test]
fn z1_pools_have_a_largest_size() {
    let mut model = model(Settings { max_addresses_per_pool: 2, ..Settings::default() });
    let refused = put(&mut model, "lb", "a", &named(&["a", "b", "c"]), 0);
    assert_eq!(
        (refused.status, code(&refused).as_str()),
        (400, "BackendAddressPoolAddressCountLimitReached")
    );
    assert_eq!(put(&mut model, "lb", "a", &named(&["a", "b"]), 0).status, 200);
}

#[test]
fn z1_the_api_version_is_required_and_must_be_a_date() {
    let mut model = model(Settings::default());
    let bare = path("lb").replace("?api-version=2025-05-01", "");
    let cases = [
        (bare.clone(), 400),
        (format!("{bare}?api-version="), 400),
        (format!("{bare}?api-version=latest"), 400),
        (format!("{bare}?API-Version=2025-07-01-preview"), 200),
    ];
    for (path, status) in cases {
        assert_eq!(get(&mut model, &path, 0).status, status, "{path}");
    }
    assert_eq!(code(&get(&mut model, &bare, 0)), "MissingApiVersionParameter");
}

#[test]
fn z1_a_bearer_token_is_required_on_demand_only() {
    let mut model = model(Settings { require_bearer: true, ..Settings::default() });
    let anonymous = get(&mut model, &path("lb"), 0);
    assert_eq!((anonymous.status, code(&anonymous).as_str()), (401, "AuthenticationFailed"));
    let headers = [("authorization", "Bearer token")];
    assert_eq!(send(&mut model, &request(Method::Get, &path("lb"), &headers, ""), 0).status, 200);
}

#[test]
fn z1_unknown_subscriptions_types_and_methods_are_refused() {
    let mut model = model(Settings::default());
    let elsewhere = path("lb").replace("subscriptions/0000", "subscriptions/1111");
    assert_eq!(code(&get(&mut model, &elsewhere, 0)), "SubscriptionNotFound");
    for (kind, wanted) in
        [("publicIPAddresses", "ResourceNotFound"), ("publicIPPrefixes", "InvalidResourceType")]
    {
        let other = get(&mut model, &path("lb").replace("loadBalancers", kind), 0);
        assert_eq!((other.status, code(&other).as_str()), (404, wanted));
    }
    assert_eq!(get(&mut model, "/", 0).status, 400);
    for method in [Method::Post, Method::Head] {
        assert_eq!(send(&mut model, &request(method, &path("lb"), &[], "{}"), 0).status, 405);
    }
}
