//! PUT of a load balancer as a whole.

use serde_json::{Value, json};
use simulator_models::arm::{
    ArmModel, ConcurrentWrite, Fault, FaultEffect, FaultTarget, Kind, Latency, Method, OperationFailure,
    PoolSpec, Response, Settings, UnfinishedWrite, Visibility,
};

use crate::support::{
    GROUP, SECOND, asynchronous, code, detail, get, holding, ips, json_of, model, operation, path, put,
    request, send, text,
};

fn body(model: &mut ArmModel, lb: &str, now: u64) -> Value {
    json_of(&get(model, &path(lb), now))
}

fn write(model: &mut ArmModel, lb: &str, body: &Value, now: u64) -> Response {
    send(model, &request(Method::Put, &path(lb), &[], &body.to_string()), now)
}

fn id(lb: &str, kind: &str, name: &str) -> String {
    format!("{GROUP}/providers/Microsoft.Network/loadBalancers/{lb}/{kind}/{name}")
}

/// Adds frontend, probe and rule `name` for a pool.
fn wire(balancer: &mut Value, lb: &str, name: &str, pool: &str, port: u64) {
    let properties = &mut balancer["properties"];
    let mut push = |kind: &str, child: Value| {
        if properties[kind].is_null() {
            properties[kind] = json!([]);
        }
        properties[kind].as_array_mut().expect("an array").push(child);
    };
    push(
        "frontendIPConfigurations",
        json!({"name": format!("f-{name}"), "properties": {"publicIPAddress": {"id": "ip"}}}),
    );
    push("probes", json!({"name": format!("p-{name}"), "properties": {"protocol": "Http", "port": 31000}}));
    push(
        "loadBalancingRules",
        json!({"name": name, "properties": {
        "frontendIPConfiguration": {"id": id(lb, "frontendIPConfigurations", &format!("f-{name}"))},
        "backendAddressPool": {"id": id(lb, "backendAddressPools", pool)},
        "probe": {"id": id(lb, "probes", &format!("p-{name}"))},
        "protocol": "Udp", "frontendPort": port, "backendPort": port}}),
    );
}

#[test]
fn z1_a_new_balancer_is_created_with_its_children() {
    let mut model = ArmModel::new(Settings::default());
    let mut wanted = json!({"location": "eastus", "sku": {"name": "Standard"}, "tags": {"a": "b"},
        "properties": {"backendAddressPools": [{"name": "web", "properties": {}}]}});
    wire(&mut wanted, "fresh", "rule", "web", 8443);
    let created = write(&mut model, "fresh", &wanted, 0);
    assert_eq!(created.status, 201);
    let read = body(&mut model, "fresh", SECOND);
    assert_eq!(json_of(&created), read);
    assert_eq!((&read["name"], &read["tags"]), (&json!("fresh"), &json!({"a": "b"})));
    let rule = &read["properties"]["loadBalancingRules"][0];
    assert_eq!((&rule["name"], &rule["properties"]["frontendPort"]), (&json!("rule"), &json!(8443)));
    assert_eq!(rule["properties"]["protocol"], "Udp");
    assert_eq!(read["properties"]["probes"][0]["properties"]["port"], 31000);
    assert_eq!(read["properties"]["frontendIPConfigurations"][0]["name"], "f-rule");
    let pool = &read["properties"]["backendAddressPools"][0];
    assert_eq!(pool["properties"]["loadBalancingRules"][0]["id"], id("fresh", "loadBalancingRules", "rule"));
    assert_eq!(ips(&model, "fresh", "web"), Vec::<String>::new());
}

#[test]
fn z1_an_echo_changes_nothing_and_omitted_children_vanish() {
    let mut model = model(Settings::default());
    let first = body(&mut model, "lb", 0);
    let etag = model.etag("lb");
    assert_eq!(write(&mut model, "lb", &first, 0).status, 200);
    assert_eq!((model.etag("lb"), model.counters().unchanged), (etag.clone(), 1));
    let mut smaller = first;
    let pools = smaller["properties"]["backendAddressPools"].as_array_mut().expect("pools");
    pools.retain(|pool| pool["name"] == "a");
    assert_eq!(write(&mut model, "lb", &smaller, SECOND).status, 200);
    assert_eq!(model.pools("lb").collect::<Vec<_>>(), ["a"]);
    assert_eq!(ips(&model, "lb", "a"), ["10.0.0.1"]);
    assert_ne!(model.etag("lb"), etag);
}

#[test]
fn z1_a_balancer_write_replaces_named_members_only() {
    let mut model = model(Settings::default());
    let mut echoed = body(&mut model, "lb", 0);
    assert_eq!(put(&mut model, "lb", "a", &holding(&["10.0.0.7"]), SECOND).status, 200);
    assert_eq!(put(&mut model, "lb", "b", &holding(&["10.0.0.8"]), 2 * SECOND).status, 200);
    echoed["properties"]["backendAddressPools"][1]["properties"]
        .as_object_mut()
        .expect("properties")
        .shift_remove("loadBalancerBackendAddresses");
    assert_eq!(write(&mut model, "lb", &echoed, 3 * SECOND).status, 200);
    assert_eq!(ips(&model, "lb", "a"), ["10.0.0.1"], "the older echo undid the write of the pool");
    assert_eq!(ips(&model, "lb", "b"), ["10.0.0.8"]);
}

#[test]
fn z1_an_older_etag_is_refused_and_children_share_it() {
    let mut model = model(Settings::default());
    let echoed = body(&mut model, "lb", 0);
    let etag = text(&echoed, "/etag");
    assert_eq!(put(&mut model, "lb", "a", &holding(&["10.0.0.7"]), SECOND).status, 200);
    let late = request(Method::Put, &path("lb"), &[("If-Match", &etag)], &echoed.to_string());
    let refused = send(&mut model, &late, 2 * SECOND);
    assert_eq!((refused.status, detail(&refused)), (412, "PreconditionFailedEtagMismatch".to_owned()));
    assert_eq!(ips(&model, "lb", "a"), ["10.0.0.7"]);
}

#[test]
fn z1_dangling_references_and_double_names_are_refused() {
    let mut model = model(Settings::default());
    let good = body(&mut model, "lb", 0);
    let mut dangling = good.clone();
    wire(&mut dangling, "lb", "rule", "nowhere", 80);
    let refused = write(&mut model, "lb", &dangling, 0);
    assert_eq!((refused.status, code(&refused)), (400, "InvalidResourceReference".to_owned()));
    let mut unfronted = good.clone();
    wire(&mut unfronted, "lb", "rule", "a", 80);
    unfronted["properties"]["frontendIPConfigurations"] = json!([]);
    assert_eq!(code(&write(&mut model, "lb", &unfronted, 0)), "InvalidResourceReference");
    let mut double = good.clone();
    let pools = double["properties"]["backendAddressPools"].as_array_mut().expect("pools");
    pools.push(json!({"name": "A", "properties": {}}));
    assert_eq!(detail(&write(&mut model, "lb", &double, 0)), "DuplicateResourceName");
    for nonsense in [
        json!([]),
        json!({"properties": 5}),
        json!({"properties": {"probes": {}}}),
        json!({"properties": {"probes": [7]}}),
    ] {
        assert_eq!(write(&mut model, "lb", &nonsense, 0).status, 400, "{nonsense}");
    }
    assert_eq!(write(&mut model, "-bad", &json!({}), 0).status, 400);
    assert_eq!(body(&mut model, "lb", 0), good);
}

#[test]
fn z1_a_parents_write_cancels_a_childs() {
    let mut model = model(asynchronous());
    let mut wanted = body(&mut model, "lb", 0);
    let first = put(&mut model, "lb", "a", &holding(&["10.0.0.7"]), SECOND);
    wire(&mut wanted, "lb", "rule", "b", 80);
    let second = write(&mut model, "lb", &wanted, 2 * SECOND);
    assert_eq!(
        (second.status, text(&json_of(&second), "/properties/provisioningState")),
        (200, "Updating".to_owned())
    );
    let canceled = json_of(&get(&mut model, &operation(&first), 2 * SECOND));
    assert_eq!(canceled["error"]["details"][0]["code"], "CanceledAndSupersededDueToAnotherOperation");
    assert_eq!(ips(&model, "lb", "a"), ["10.0.0.1"]);
    assert!(model.is_updating("lb"));
    let etag = model.etag("lb");
    assert_eq!(json_of(&get(&mut model, &operation(&second), 8 * SECOND))["status"], "Succeeded");
    assert_eq!(model.etag("lb"), etag, "its end does not change the etag again");
    assert_eq!(body(&mut model, "lb", 8 * SECOND)["properties"]["provisioningState"], "Succeeded");
}

#[test]
fn z1_of_two_parent_writes_one_is_refused_or_superseded() {
    for supersedes in [false, true] {
        let concurrent_write = if supersedes { ConcurrentWrite::Supersede } else { ConcurrentWrite::Refuse };
        let mut model = model(Settings { concurrent_write, ..asynchronous() });
        let plain = body(&mut model, "lb", 0);
        let (mut one, mut two) = (plain.clone(), plain);
        wire(&mut one, "lb", "one", "a", 80);
        wire(&mut two, "lb", "two", "b", 81);
        assert_eq!(write(&mut model, "lb", &one, SECOND).status, 200);
        let later = write(&mut model, "lb", &two, 2 * SECOND);
        model.tick(20 * SECOND);
        let rules = body(&mut model, "lb", 20 * SECOND)["properties"]["loadBalancingRules"].clone();
        if supersedes {
            assert_eq!((later.status, &rules[0]["name"]), (200, &json!("two")));
        } else {
            assert_eq!(
                (later.status, detail(&later)),
                (429, "RetryableErrorDueToAnotherOperation".to_owned())
            );
            assert_eq!(rules[0]["name"], "one");
        }
        assert_eq!(rules.as_array().map(Vec::len), Some(1));
    }
}

#[test]
fn z1_a_bad_end_reverts_or_keeps_and_reads_show_the_new_shape() {
    let kinds = [
        (Visibility::AtOnce, true),
        (Visibility::AtOnce, false),
        (Visibility::AtEnd, true),
        (Visibility::AtEnd, false),
    ];
    for (visibility, write_stays) in kinds {
        for fails in [false, true] {
            let effect = FaultEffect::FailOperation {
                end: OperationFailure::Failed,
                code: "X".to_owned(),
                message: String::new(),
            };
            let target = FaultTarget::Any;
            let fault = Fault { target, every: 1, limit: None, load_balancer: None, effect };
            let unfinished_write =
                if write_stays { UnfinishedWrite::Kept } else { UnfinishedWrite::Reverted };
            let faults = if fails { vec![fault] } else { Vec::new() };
            let operation = Some(Latency::Fixed { us: 5 * SECOND });
            let mut model =
                model(Settings { visibility, unfinished_write, faults, operation, ..Settings::default() });
            let mut wanted = body(&mut model, "lb", 0);
            wire(&mut wanted, "lb", "rule", "a", 80);
            let accepted = write(&mut model, "lb", &wanted, SECOND);
            assert_eq!(json_of(&accepted)["properties"]["loadBalancingRules"][0]["name"], "rule");
            let mut rules = |now| {
                body(&mut model, "lb", now)["properties"]["loadBalancingRules"].as_array().map_or(0, Vec::len)
            };
            let during = usize::from(visibility == Visibility::AtOnce);
            let after = usize::from(!fails || write_stays);
            assert_eq!(
                (rules(2 * SECOND), rules(9 * SECOND)),
                (during, after),
                "{visibility:?} {write_stays} {fails}"
            );
        }
    }
}

/// Returns each child of a load balancer that uses a pool, once for each reference by the load balancer or a pool.
fn uses(model: &mut ArmModel, now: u64) -> Vec<String> {
    let balancer = body(model, "lb", now);
    let properties = &balancer["properties"];
    let mut named = Vec::new();
    for kind in ["loadBalancingRules", "outboundRules", "inboundNatRules"] {
        for child in properties[kind].as_array().into_iter().flatten() {
            named.push(format!("{kind} {}", text(child, "/name")));
        }
        for pool in properties["backendAddressPools"].as_array().expect("pools") {
            for reference in pool["properties"][kind].as_array().into_iter().flatten() {
                let rule = text(reference, "/id");
                let rule = rule.rsplit('/').next().expect("a name").to_owned();
                named.push(format!("{} {kind} {rule}", text(pool, "/name")));
            }
        }
    }
    named
}

#[test]
fn z1_changes_during_a_balancer_write_come_after_it() {
    for visibility in [Visibility::AtOnce, Visibility::AtEnd] {
        for unfinished_write in [UnfinishedWrite::Kept, UnfinishedWrite::Reverted] {
            for superseded in [false, true] {
                let concurrent_write = ConcurrentWrite::Supersede;
                let settings = Settings { visibility, unfinished_write, concurrent_write, ..asynchronous() };
                let mut model = model(settings);
                model.add_rule("lb", "old", "a", true);
                let mut wanted = body(&mut model, "lb", 0);
                wire(&mut wanted, "lb", "wired", "a", 80);
                assert_eq!(write(&mut model, "lb", &wanted, SECOND).status, 200);
                model.tick(2 * SECOND);
                model.add_rule("lb", "late", "b", true);
                model.add_outbound_rule("lb", "out", "b");
                model.add_inbound_nat_rule("lb", "nat", "b");
                model.remove_rule("lb", "old");
                model.add_pool("lb", "new", &PoolSpec::default());
                let case = format!("{visibility:?} {unfinished_write:?} {superseded}");
                assert!(model.is_updating("lb"), "{case}: the write continues");
                let etag = model.etag("lb");
                if superseded {
                    // Another client's write of a pool supersedes the first write, which is left unfinished.
                    assert_eq!(put(&mut model, "lb", "a", &holding(&["10.0.0.7"]), 3 * SECOND).status, 200);
                }
                let found = uses(&mut model, 30 * SECOND);
                let wired = !superseded || unfinished_write == UnfinishedWrite::Kept;
                let mut expected = vec!["loadBalancingRules late", "b loadBalancingRules late"];
                if wired {
                    expected.insert(0, "loadBalancingRules wired");
                    expected.insert(2, "a loadBalancingRules wired");
                }
                expected.extend(["outboundRules out", "b outboundRules out"]);
                expected.extend(["inboundNatRules nat", "b inboundNatRules nat"]);
                assert_eq!(found, expected, "{case}");
                assert!(model.pools("lb").any(|pool| pool == "new"), "{case}");
                assert!(superseded || model.etag("lb") == etag, "{case}: it was changed once");
            }
        }
    }
}

#[test]
fn z1_a_recreated_rule_uses_the_remaining_probe() {
    let mut model = model(Settings::default());
    model.add_rule("lb", "bare", "a", true);
    let with_rule = body(&mut model, "lb", 0);
    assert_eq!(write(&mut model, "lb", &with_rule, 0).status, 200);
    model.remove_rule("lb", "bare");
    // Azure compares names without case.
    model.add_rule("lb", "Bare", "a", true);
    let echoed = body(&mut model, "lb", SECOND);
    let names = |kind: &str| -> Vec<String> {
        let children = echoed["properties"][kind].as_array().expect("an array");
        children.iter().map(|child| text(child, "/name")).collect()
    };
    assert_eq!(
        (names("probes"), names("loadBalancingRules")),
        (vec!["bare".to_owned()], vec!["Bare".to_owned()])
    );
    assert_eq!(write(&mut model, "lb", &echoed, 2 * SECOND).status, 200, "what it shows can be written back");
}

#[test]
fn z1_interface_pools_survive_an_echo_of_the_balancer() {
    let mut model = model(Settings::default());
    let members = vec![("x".to_owned(), "0".to_owned())];
    model.add_pool("lb", "nic", &PoolSpec { nic_backed: true, members, ..PoolSpec::default() });
    model.add_outbound_rule("lb", "out", "nic");
    model.add_inbound_nat_rule("lb", "nat", "a");
    model.add_rule("lb", "bare", "b", true);
    let echoed = body(&mut model, "lb", 0);
    assert_eq!(write(&mut model, "lb", &echoed, 0).status, 200);
    assert_eq!(model.members("lb", "nic").map(|members| members.len()), Some(1));
    let mut again = body(&mut model, "lb", SECOND);
    assert_eq!(again["properties"]["outboundRules"][0]["name"], "out");
    assert_eq!(again["properties"]["inboundNatRules"][0]["name"], "nat");
    assert_eq!(again["properties"]["loadBalancingRules"], {
        let mut rules = echoed["properties"]["loadBalancingRules"].clone();
        rules[0]["etag"] = again["etag"].clone();
        rules
    });
    again["properties"]["backendAddressPools"][2]["properties"]["loadBalancerBackendAddresses"] = json!([]);
    assert_eq!(write(&mut model, "lb", &again, 2 * SECOND).status, 400);
}

#[test]
fn z1_requests_of_the_ccm_are_recognised_by_user_agent() {
    let mut model = model(Settings::default());
    let agent = [("User-Agent", "kubernetes-cloudprovider/v1.36")];
    send(&mut model, &request(Method::Get, &path("lb"), &agent, ""), 0);
    let pool = path("lb/backendAddressPools/a");
    send(&mut model, &request(Method::Put, &pool, &agent, &holding(&[]).to_string()), SECOND);
    put(&mut model, "lb", "b", &holding(&[]), 2 * SECOND);
    let counters = model.counters();
    assert_eq!((counters.foreign_reads, counters.foreign_writes), (1, 1));
    assert_eq!((counters.load_balancer_gets, counters.pool_puts), (0, 1));
    let log: Vec<(Kind, bool)> = model.log().iter().map(|entry| (entry.kind, entry.foreign)).collect();
    assert_eq!(log, [(Kind::LoadBalancerGet, true), (Kind::ForeignPoolPut, true), (Kind::PoolPut, false)]);
}
