//! PUT and DELETE of pools with synchronous writes.

use serde_json::{Value, json};
use simulator_models::arm::{ArmModel, Kind, Method, NicAdminState, PoolSpec, Settings};

use crate::support::{
    SECOND, VNET, code, detail, get, holding, ips, json_of, model, pool_path, put, put_with, request, send,
    text,
};

#[test]
fn z1_a_put_replaces_the_whole_pool() {
    let mut model = model(Settings::default());
    let answer = put(&mut model, "lb", "a", &holding(&["10.0.0.8", "10.0.0.9"]), 0);
    assert_eq!((answer.status, answer.latency_us), (200, 100_000));
    assert_eq!(text(&json_of(&answer), "/properties/provisioningState"), "Succeeded");
    assert!(answer.header("etag").is_none(), "a PUT has its etag in the body alone");
    assert!(answer.header("azure-asyncoperation").is_none());
    assert_eq!(ips(&model, "lb", "a"), ["10.0.0.8", "10.0.0.9"]);

    let minimal = put(&mut model, "lb", "a", &json!({"name": "a", "properties": {}}), SECOND);
    assert_eq!(minimal.status, 200);
    let pool = model.pool_json("lb", "a").expect("a is there");
    assert_eq!(pool["properties"]["loadBalancerBackendAddresses"], json!([]));
    assert!(pool["properties"].get("virtualNetwork").is_none(), "a PUT removes omitted parts");
}

#[test]
fn z1_every_write_changes_the_etag_of_the_whole_load_balancer() {
    let mut model = model(Settings::default());
    let (before, other) = (model.etag("lb"), model.etag("other"));
    let answer = put(&mut model, "lb", "a", &holding(&["10.0.0.8"]), 0);
    let after = model.etag("lb");
    assert_ne!(before, after);
    assert_eq!(Some(text(&json_of(&answer), "/etag")), after);
    let sibling = model.pool_json("lb", "b").expect("b is there");
    assert_eq!(Some(text(&sibling, "/etag")), after);
    assert_eq!(model.etag("other"), other, "load balancers are independent");
}

#[test]
fn z1_a_put_of_the_current_members_changes_nothing() {
    let mut model = model(Settings::default());
    let shown = model.pool_json("lb", "a").expect("a is there");
    let etag = model.etag("lb");
    let answer = put(&mut model, "lb", "a", &shown, 0);
    assert_eq!((answer.status, json_of(&answer)), (200, shown));
    assert_eq!(model.etag("lb"), etag);
    assert_eq!((model.counters().applied, model.counters().unchanged), (0, 1));
}

#[test]
fn z1_a_put_of_a_missing_pool_creates_it() {
    let mut model = model(Settings::default());
    assert_eq!(put(&mut model, "lb", "new", &holding(&["10.0.0.8"]), 0).status, 201);
    assert_eq!(ips(&model, "lb", "NEW"), ["10.0.0.8"]);
    let orphan = put(&mut model, "none", "new", &holding(&[]), 0);
    assert_eq!((orphan.status, code(&orphan).as_str()), (404, "ParentResourceNotFound"));
}

#[test]
fn z1_unknown_fields_stay_and_read_only_ones_are_ignored() {
    let mut model = model(Settings::default());
    model.add_rule("lb", "rule", "a", true);
    model.plant_unknown_fields();
    let mut pool = json_of(&get(&mut model, &pool_path("lb", "a"), 0));
    let planted = pool["fieldOfTheFuture"]["largest"].clone();
    assert_eq!(planted, json!(u64::MAX));
    pool["properties"]["provisioningState"] = json!("Failed");
    pool["properties"]["loadBalancingRules"] = json!([{"id": "nonsense"}]);
    pool["properties"]["anotherField"] = json!({"n": 1});
    let address = &mut pool["properties"]["loadBalancerBackendAddresses"][0];
    assert!(address.get("fieldOfTheFuture").is_some());
    assert!(address["properties"].get("fieldOfTheFuture").is_some());
    address["id"] = json!("nonsense");
    address["properties"]["adminState"] = json!("Down");
    assert_eq!(put(&mut model, "lb", "a", &pool, 0).status, 200);

    let mut expected = pool.clone();
    expected["etag"] = json!(model.etag("lb"));
    let shown = model.pool_json("lb", "a").expect("a is there");
    expected["properties"]["provisioningState"] = json!("Succeeded");
    expected["properties"]["loadBalancingRules"] = shown["properties"]["loadBalancingRules"].clone();
    expected["properties"]["loadBalancerBackendAddresses"][0]["id"] =
        shown["properties"]["loadBalancerBackendAddresses"][0]["id"].clone();
    expected["properties"]["loadBalancerBackendAddresses"][0]["etag"] = json!(model.etag("lb"));
    assert_eq!(shown, expected);
    assert_ne!(text(&shown, "/properties/loadBalancingRules/0/id"), "nonsense");
    assert_eq!(model.members("lb", "a").expect("a is there")[0].admin_state, "Down");
}

#[test]
fn z1_if_match_is_compared_as_a_weak_etag() {
    let mut model = model(Settings::default());
    let etag = model.etag("lb").expect("lb is there");
    let bare = etag.trim_start_matches("W/").trim_matches('"').to_owned();
    let refused = put_with(&mut model, "lb", "a", &holding(&["10.0.0.8"]), &[("If-Match", "invalid")], 0);
    assert_eq!((refused.status, code(&refused).as_str()), (412, "PreconditionFailed"));
    assert_eq!(detail(&refused), "PreconditionFailedEtagMismatch");
    let message = text(&json_of(&refused), "/error/details/0/message");
    assert!(message.contains(&format!("header W/\"invalid\" does not match etag {etag} of")), "{message}");
    assert_eq!(ips(&model, "lb", "a"), ["10.0.0.1"]);

    put_with(&mut model, "other", "a", &holding(&[]), &[("if-match", "*")], 0);
    assert_eq!(ips(&model, "other", "a").len(), 0);
    let accepted = put_with(&mut model, "lb", "a", &holding(&["10.0.0.8"]), &[("If-Match", &bare)], 0);
    assert_eq!(accepted.status, 200);
    let stale = put_with(&mut model, "lb", "b", &holding(&[]), &[("If-Match", &etag)], SECOND);
    assert_eq!(stale.status, 412, "a write of one child makes the etag of its sibling stale");
    let fresh = model.etag("lb").expect("lb is there");
    for given in ["*", fresh.as_str()] {
        let missing = put_with(&mut model, "lb", "new", &holding(&[]), &[("If-Match", given)], SECOND);
        assert_eq!(missing.status, 412, "a missing pool matches nothing");
    }
    assert_eq!(model.counters().etag_mismatches, 4);

    model.reconfigure(|settings| settings.enforce_if_match = false);
    let ignored = put_with(&mut model, "lb", "b", &holding(&[]), &[("If-Match", &etag)], SECOND);
    assert_eq!(ignored.status, 200);
}

#[test]
fn z1_a_repeated_client_request_id_replays_the_answer() {
    let mut model = model(Settings::default());
    let id = [("x-ms-client-request-id", "one")];
    let first = put_with(&mut model, "lb", "a", &holding(&["10.0.0.8"]), &id, 0);
    let second = put_with(&mut model, "lb", "a", &holding(&["10.0.0.9"]), &id, SECOND);
    assert_eq!((first.status, first.body), (second.status, second.body));
    assert_eq!(ips(&model, "lb", "a"), ["10.0.0.8"]);
    assert_eq!(model.counters().replayed, 1);
    put_with(&mut model, "other", "a", &holding(&["10.0.0.9"]), &id, SECOND);
    assert_eq!(ips(&model, "other", "a"), ["10.0.0.9"], "ids are remembered per load balancer");

    let refused = [("x-ms-client-request-id", "two"), ("If-Match", "invalid")];
    assert_eq!(put_with(&mut model, "lb", "a", &holding(&[]), &refused, 2 * SECOND).status, 412);
    let again = put_with(&mut model, "lb", "a", &holding(&[]), &refused[..1], 2 * SECOND);
    assert_eq!((again.status, ips(&model, "lb", "a").len()), (200, 0), "refusals are not remembered");
}

#[test]
fn z1_delete_removes_unused_pools_only() {
    let mut model = model(Settings::default());
    model.add_rule("lb", "rule", "b", true);
    let delete = |pool| request(Method::Delete, &pool_path("lb", pool), &[], "");
    assert_eq!(send(&mut model, &delete("a"), 0).status, 200);
    assert_eq!(send(&mut model, &delete("a"), SECOND).status, 204);
    let used = send(&mut model, &delete("b"), SECOND);
    assert_eq!((used.status, code(&used).as_str()), (400, "InvalidResourceReference"));
    assert_eq!(model.pools("lb").collect::<Vec<_>>(), ["b"]);
}

#[test]
fn z1_a_silently_lost_write_reports_success() {
    let mut model = model(Settings { silent_loss: 1.0, ..Settings::default() });
    let answer = put(&mut model, "lb", "a", &holding(&["10.0.0.8"]), 0);
    let written = json_of(&answer);
    assert_eq!(answer.status, 200);
    assert_eq!(text(&written, "/properties/loadBalancerBackendAddresses/0/properties/ipAddress"), "10.0.0.8");
    assert_eq!(ips(&model, "lb", "a"), ["10.0.0.1"]);
    assert_eq!(model.counters().silently_lost, 1);
    assert_eq!(Some(text(&written, "/etag")), model.etag("lb"), "nothing betrays the loss but the members");
}

#[test]
fn z1_foreign_writes_keep_entries_and_change_log_and_etag() {
    let mut model = model(Settings::default());
    model.plant_unknown_fields();
    let etag = model.etag("lb");
    let members = [("node-10.0.0.1", "10.0.0.1"), ("node-3", "10.0.0.3")];
    assert_eq!(model.foreign_put("lb", "a", &members, 0), 200);
    let pool = model.pool_json("lb", "a").expect("a is there");
    let addresses = &pool["properties"]["loadBalancerBackendAddresses"];
    assert!(addresses[0].get("fieldOfTheFuture").is_some());
    assert_eq!(text(&addresses[1], "/properties/ipAddress"), "10.0.0.3");
    assert_ne!(model.etag("lb"), etag);
    assert_eq!(model.foreign_load_balancer_put("lb", SECOND), 200);
    let kinds: Vec<Kind> = model.log().iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [Kind::ForeignPoolPut, Kind::ForeignLoadBalancerPut]);
    assert_eq!((model.counters().foreign_writes, model.counters().pool_puts), (2, 0));
}

#[test]
fn z2_members_that_others_remove_are_known_until_a_write() {
    let mut model = model(Settings::default());
    put(&mut model, "lb", "a", &holding(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]), 0);
    assert!(model.taken_by_others("lb", "a").is_empty());
    model.foreign_put("lb", "a", &[("n", "10.0.0.2")], SECOND);
    assert_eq!(model.taken_by_others("LB", "A"), ["10.0.0.1", "10.0.0.3"]);
    put(&mut model, "lb", "a", &holding(&["10.0.0.1"]), 2 * SECOND);
    assert!(model.taken_by_others("lb", "a").is_empty(), "that was us");
    assert_eq!(model.counters().answered, 2);
    let manager = [("User-Agent", "kubernetes-cloudprovider/v1.36.2")];
    let written = put_with(&mut model, "lb", "a", &holding(&[]), &manager, 3 * SECOND);
    assert_eq!(written.status, 200);
    assert_eq!(model.taken_by_others("lb", "a"), ["10.0.0.1"]);
    assert_eq!(model.counters().answered, 2, "without answers to other clients");
}

#[test]
fn z1_puts_that_wait_together_are_counted_per_load_balancer() {
    let mut model = model(Settings::default());
    put(&mut model, "lb", "a", &holding(&[]), 0);
    put(&mut model, "other", "a", &holding(&[]), 1);
    put(&mut model, "other", "b", &holding(&[]), 50_000);
    put(&mut model, "lb", "b", &holding(&[]), 100_000);
    assert_eq!((model.max_concurrent_puts("lb"), model.max_concurrent_puts("other")), (1, 2));
    assert_eq!(model.counters().max_concurrent_puts, 2);
}

#[test]
fn z1_nic_backed_pools_take_admin_states_and_no_member_changes() {
    let mut model = ArmModel::new(Settings::default());
    let members = vec![("n".to_owned(), "1".to_owned()), ("n".to_owned(), "2".to_owned())];
    model.add_pool("lb", "nic", &PoolSpec { members, nic_backed: true, ..PoolSpec::default() });
    let mut pool = model.pool_json("lb", "nic").expect("nic is there");
    pool["properties"]["loadBalancerBackendAddresses"][1]["properties"]["adminState"] = json!("Down");
    assert_eq!(put(&mut model, "lb", "nic", &pool, 0).status, 200);
    let members = model.members("lb", "nic").expect("nic is there");
    let states: Vec<&str> = members.iter().map(|member| member.admin_state.as_str()).collect();
    assert_eq!(states, ["None", "Down"]);
    assert!(members.iter().all(|member| member.network_interface.is_some()));

    let list = "/properties/loadBalancerBackendAddresses";
    let shown = pool.pointer(list).and_then(Value::as_array).expect("nic has addresses").clone();
    let with_list = |addresses: &[Value]| {
        let mut body = pool.clone();
        body["properties"]["loadBalancerBackendAddresses"] = json!(addresses);
        body
    };
    let fewer = with_list(&shown[..1]);
    let added = json!({"name": "x", "properties": {"ipAddress": "10.0.0.9"}});
    let more = with_list(&[&shown[..], std::slice::from_ref(&added)].concat());
    let swapped = with_list(&[shown[0].clone(), added]);
    let mut address = pool.clone();
    address["properties"]["loadBalancerBackendAddresses"][0]["properties"]["ipAddress"] = json!("10.0.0.9");
    for body in [fewer, more, swapped, address, holding(&[])] {
        let refused = put(&mut model, "lb", "nic", &body, SECOND);
        assert_eq!(refused.status, 400);
        assert_eq!(code(&refused), "ModificationOfNICIpConfigBackendPoolNotSupported");
    }
    let silent: Value = json!({"properties": {"virtualNetwork": {"id": VNET}}});
    assert_eq!(put(&mut model, "lb", "nic", &silent, SECOND).status, 200);
    assert_eq!(model.members("lb", "nic").map(|members| members.len()), Some(2));
}

#[test]
fn z1_azure_may_refuse_the_admin_states_of_interfaces() {
    let mut model = ArmModel::new(Settings { nic_admin_state: NicAdminState::Refuse, ..Settings::default() });
    let instances = vec!["vmss/0".to_owned(), "vmss/1".to_owned()];
    model.add_pool("lb", "nic", &PoolSpec { instances, ..PoolSpec::default() });
    let shown = model.pool_json("lb", "nic").expect("nic is there");
    let with_state = |state: &str| {
        let mut body = shown.clone();
        body["properties"]["loadBalancerBackendAddresses"][1]["properties"]["adminState"] = json!(state);
        body
    };
    let refused = put(&mut model, "lb", "nic", &with_state("Down"), 0);
    assert_eq!(refused.status, 400);
    assert_eq!(code(&refused), "ModificationOfNICIpConfigBackendPoolNotSupported");
    for same in [shown.clone(), with_state("None")] {
        assert_eq!(put(&mut model, "lb", "nic", &same, SECOND).status, 200, "nothing is changed");
    }
    let by_address = json!({"name": "a", "properties": {"ipAddress": "10.0.0.1", "adminState": "Down"}});
    let body = json!({"properties": {"loadBalancerBackendAddresses": [by_address]}});
    model.add_pool("lb", "by-address", &PoolSpec::default());
    assert_eq!(put(&mut model, "lb", "by-address", &body, 2 * SECOND).status, 200, "it is about interfaces");

    model.reconfigure(|settings| settings.nic_admin_state = NicAdminState::Allow);
    assert_eq!(put(&mut model, "lb", "nic", &with_state("Down"), 3 * SECOND).status, 200);
}
