//! The model's bodies and headers compared with recordings and official examples of Azure, if present.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use simulator_models::arm::{ArmModel, Method, PoolSpec, Response, Settings, VirtualNetwork};

use crate::support::{
    GROUP, SECOND, asynchronous, get, holding, json_of, model, path, pool_path, put, put_with, request, send,
};

/// Headers that the wrapper adds, or that recordings write in another case.
const NOT_OURS: [&str; 1] = ["content-length"];

/// Returns a file of recorded or official data, if present.
pub fn data(file: &str) -> Option<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/arm");
    let file: PathBuf = root.join(file);
    let Ok(text) = std::fs::read_to_string(&file) else {
        skip(&file);
        return None;
    };
    Some(serde_json::from_str(&text).expect("recordings are JSON"))
}

fn skip(file: &Path) {
    // Not captured by the test runner, unlike a print.
    writeln!(std::io::stderr(), "SKIPPED: {} is not there", file.display())
        .expect("standard error can be written");
}

/// Collects the shape of a body: paths of all leaves with their types of values; lists count as their elements.
fn shape(value: &Value, at: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| shape(value, &format!("{at}/{key}"), into)),
        Value::Array(list) => {
            into.insert(format!("{at}[]"));
            list.iter().for_each(|value| shape(value, &format!("{at}[]"), into));
        }
        Value::String(_) => {
            into.insert(format!("{at}: string"));
        }
        Value::Number(_) => {
            into.insert(format!("{at}: number"));
        }
        Value::Bool(_) => {
            into.insert(format!("{at}: bool"));
        }
        Value::Null => {
            into.insert(format!("{at}: null"));
        }
    }
}

/// Returns the shape of a body.
pub fn shape_of(value: &Value) -> BTreeSet<String> {
    let mut shapes = BTreeSet::new();
    shape(value, "", &mut shapes);
    shapes
}

/// Returns the first recorded interaction at or after `from` with this method and this path end.
fn interaction<'a>(recording: &'a Value, from: usize, method: &str, end: &str) -> (usize, &'a Value) {
    let all = recording["interactions"].as_array().expect("a recording has interactions");
    let fits = |one: &Value| {
        let path = one["url"].as_str().and_then(|url| url.split('?').next());
        one["method"] == method && path.is_some_and(|path| path.ends_with(end))
    };
    let found = all.iter().enumerate().skip(from).find(|(_, one)| fits(one));
    let (at, one) = found.unwrap_or_else(|| panic!("no {method} of {end} after {from}"));
    (at + 1, one)
}

fn assert_like(ours: &Response, recorded: &Value) {
    let url = &recorded["url"];
    assert_eq!(json!(ours.status), recorded["status"], "{url}");
    let theirs = recorded["responseHeaders"].as_object().expect("answers have headers");
    for name in theirs.keys().filter(|name| !NOT_OURS.contains(&name.to_lowercase().as_str())) {
        assert!(ours.header(name).is_some(), "{name} is missing in the answer to {url}");
    }
    for name in ["ETag", "Azure-AsyncOperation", "Location", "x-ms-failure-cause"] {
        let recorded = theirs.keys().any(|key| key.eq_ignore_ascii_case(name));
        assert_eq!(ours.header(name).is_some(), recorded, "{name} in the answer to {url}");
    }
    let body = &recorded["responseBody"];
    if *body == json!("") {
        assert!(ours.body.is_empty(), "{url}");
    } else {
        assert_eq!(shape_of(&json_of(ours)), shape_of(body), "{url}");
    }
}

#[test]
fn z1_answers_about_a_pool_match_the_recording() {
    let Some(recording) = data("recorded/backendaddresspoolclient.AZURECLOUD.json") else {
        return;
    };
    let mut model = ArmModel::new(asynchronous());
    model.add_load_balancer("testParentResource");
    let pool = "testParentResource/backendAddressPools/testResource";
    let end = format!("loadBalancers/{pool}");
    let body = json!({"name": "testResource", "properties": {}});
    let mut now = 0;
    let mut at = 0;
    let mut next = |method: &str, end: &str| {
        let (after, recorded) = interaction(&recording, at, method, end);
        at = after;
        recorded.clone()
    };

    let created = put(&mut model, "testParentResource", "testResource", &body, now);
    assert_like(&created, &next("PUT", &end));
    now += 10 * SECOND;
    let poll = crate::support::operation(&created);
    assert_like(
        &get(&mut model, &poll, now),
        &next("GET", "operations/00000000-0000-0000-0000-000000000000"),
    );
    assert_like(&get(&mut model, &path(pool), now), &next("GET", &end));
    assert_like(
        &get(&mut model, &path(&format!("{pool}notfound")), now),
        &next("GET", "testResourcenotfound"),
    );
    let unchanged = put(&mut model, "testParentResource", "testResource", &body, now);
    assert_like(&unchanged, &next("PUT", &end));
    let list = "testParentResource/backendAddressPools";
    assert_like(&get(&mut model, &path(list), now), &next("GET", list));
    let elsewhere =
        path(list).replace("resourceGroups/rg", "resourceGroups/aks-cit-BackendAddressPoolnotfound");
    assert_like(&get(&mut model, &elsewhere, now), &next("GET", list));
    let deleted = send(&mut model, &request(Method::Delete, &path(pool), &[], ""), now);
    assert_like(&deleted, &next("DELETE", &end));
}

#[test]
fn z1_recorded_answers_of_a_balancer_are_repeated() {
    let Some(recording) = data("recorded/loadbalancerclient.AZURECLOUD.json") else {
        return;
    };
    let mut model = ArmModel::new(Settings::default());
    model.add_load_balancer("testResource");
    let (_, missing) = interaction(&recording, 0, "GET", "loadBalancers/testResourcenotfound");
    assert_like(&get(&mut model, &path("testResourcenotfound"), 0), missing);

    let (_, recorded) = interaction(&recording, 0, "GET", "loadBalancers/testResource");
    let mut theirs = recorded["responseBody"].clone();
    let mut ours = json_of(&get(&mut model, &path("testResource"), 0));
    for body in [&mut theirs, &mut ours] {
        body["properties"]["frontendIPConfigurations"] = json!([]);
    }
    assert_eq!(shape_of(&ours), shape_of(&theirs));

    let all = recording["interactions"].as_array().expect("a recording has interactions");
    let conflict = all.iter().find(|one| one["status"] == 412).expect("a conflict was recorded");
    model.add_pool("testResource", "pool", &PoolSpec::default());
    let ours = put_with(&mut model, "testResource", "pool", &holding(&[]), &[("If-Match", "invalid")], 0);
    assert_like(&ours, conflict);
}

#[test]
fn z1_the_official_pool_example_has_only_known_fields() {
    let Some(example) = data("official/LBBackendAddressPoolWithBackendAddressesPut.json") else {
        return;
    };
    let mut model = ArmModel::new(Settings { address_resource_fields: false, ..Settings::default() });
    model.add_rule("lb", "rulelb", "backend", true);
    let answer = put(&mut model, "lb", "backend", &example["parameters"]["parameters"], 0);
    assert_eq!(shape_of(&json_of(&answer)), shape_of(&example["responses"]["200"]["body"]));
    let ours = json_of(&answer)["properties"]["loadBalancerBackendAddresses"].clone();
    assert_eq!(ours, example["responses"]["200"]["body"]["properties"]["loadBalancerBackendAddresses"]);
}

#[test]
fn z1_the_official_load_balancer_example_has_only_known_lists() {
    let Some(example) = data("official/LoadBalancerGet.json") else {
        return;
    };
    let mut model = model(Settings::default());
    model.add_rule("lb", "rule", "a", true);
    model.add_inbound_nat_rule("lb", "nat", "b");
    let ours = json_of(&get(&mut model, &path("lb"), 0));
    let theirs = &example["responses"]["200"]["body"];
    let scalars = ["scope"];
    for (name, value) in theirs["properties"].as_object().expect("a load balancer has properties") {
        let known = ours["properties"].get(name);
        assert!(known.is_some() || scalars.contains(&name.as_str()), "{name} is missing");
        assert!(known.is_none_or(|known| known.is_array() == value.is_array()), "{name} is of another sort");
    }
    let rule = &theirs["properties"]["loadBalancingRules"][0]["properties"];
    for link in ["backendAddressPool", "frontendIPConfiguration", "probe"] {
        let ours = &ours["properties"]["loadBalancingRules"][0]["properties"][link];
        assert_eq!(shape_of(ours), shape_of(&rule[link]), "{link}");
    }
}

#[test]
fn z1_error_bodies_have_the_shapes_of_the_collected_ones() {
    let Some(errors) = data("errors.json") else { return };
    let collected = |id: &str| {
        let all = errors["errors"].as_array().expect("there are errors");
        let found = all.iter().find(|error| error["id"] == id);
        found.unwrap_or_else(|| panic!("no error {id}"))["body"].clone()
    };
    let mut model = model(asynchronous());
    put(&mut model, "lb", "a", &holding(&["10.0.0.8"]), 0);
    let locked = put(&mut model, "lb", "b", &holding(&[]), 1);
    let nameless = json!({"properties": {"loadBalancerBackendAddresses": [{"properties": {}}]}});
    let twice = json!({"properties": {"loadBalancerBackendAddresses": [{"name": "x"}, {"name": "x"}]}});
    let cases = [
        ("429-retryable-due-to-another-operation-json", locked),
        ("400-invalid-resource-name", put(&mut model, "other", "a", &nameless, 1)),
        ("400-duplicate-resource-name-envelope", put(&mut model, "other", "a", &twice, 1)),
        ("404-child-not-found", get(&mut model, &pool_path("lb", "none"), 1)),
        ("404-resource-not-found", get(&mut model, &path("none"), 1)),
    ];
    for (id, ours) in cases {
        let (ours, theirs) = (json_of(&ours), collected(id));
        assert_eq!(shape_of(&ours), shape_of(&theirs), "{id}");
        assert_eq!(ours.pointer("/error/code"), theirs.pointer("/error/code"), "{id}");
        let detail = "/error/details/0/code";
        assert_eq!(ours.pointer(detail), theirs.pointer(detail), "{id}");
    }
    let name = collected("400-invalid-resource-name");
    let ours = json_of(&put(&mut model, "other", "a", &nameless, 1));
    assert_eq!(ours, name, "to the letter");
}

#[test]
fn z1_pools_with_a_network_per_address_look_like_recorded_ones() {
    let mut model = ArmModel::new(Settings::default());
    let spec = PoolSpec {
        virtual_network: VirtualNetwork::Address("/net".to_owned()),
        members: vec![("addr1".to_owned(), "10.0.0.1".to_owned())],
        ..PoolSpec::default()
    };
    model.add_pool("lb1", "bap1", &spec);
    let id = format!("{GROUP}/providers/Microsoft.Network/loadBalancers/lb1/backendAddressPools/bap1");
    let etag = model.etag("lb1");
    let expected = json!({
        "name": "bap1",
        "id": id,
        "etag": etag,
        "properties": {
            "provisioningState": "Succeeded",
            "loadBalancerBackendAddresses": [{
                "name": "addr1",
                "id": format!("{id}/loadBalancerBackendAddresses/addr1"),
                "etag": etag,
                "properties": {
                    "provisioningState": "Succeeded",
                    "ipAddress": "10.0.0.1",
                    "virtualNetwork": {"id": "/net"}
                },
                "type": "Microsoft.Network/loadBalancers/backendAddressPools/loadBalancerBackendAddresses"
            }]
        },
        "type": "Microsoft.Network/loadBalancers/backendAddressPools"
    });
    assert_eq!(model.pool_json("lb1", "bap1"), Some(expected));
}
