//! The bodies of the Standard load balancers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::cloud::{Cloud, balancer, network};
use crate::inventory::{Membership, Scope};
use crate::target::{Target, completed, missing, targets, without};

fn all(cloud: &Cloud) -> Vec<Target> {
    let inventory = cloud.survey();
    targets(&inventory, &Scope::of(&inventory))
}

fn one(cloud: &Cloud, name: &str) -> Target {
    all(cloud).into_iter().find(|target| target.id == balancer(name)).expect("the target exists")
}

#[test]
fn s3_public_addresses_are_linked_by_id() {
    let target = one(&Cloud::with_scale_set(), "kubernetes");
    assert_eq!(target.body["sku"]["name"], "Standard");
    let frontend = &target.body["properties"]["frontendIPConfigurations"][0];
    assert_eq!(
        *frontend,
        json!({"name": "a1", "properties": {"publicIPAddress": {"id": network("publicIPAddresses", "pip-a1")}}})
    );
}

#[test]
fn s3_internal_frontends_keep_their_address_as_a_static_one() {
    let target = one(&Cloud::with_scale_set(), "kubernetes-internal");
    let properties = &target.body["properties"]["frontendIPConfigurations"][0]["properties"];
    assert_eq!(properties["privateIPAddress"], "10.0.0.100");
    assert_eq!(properties["privateIPAllocationMethod"], "Static");
}

#[test]
fn rules_tags_and_probes_are_kept_field_by_field() {
    let cloud = Cloud::with_scale_set();
    let target = one(&cloud, "kubernetes");
    let before = &cloud.resources[&balancer("kubernetes")];
    let rule = |body: &Value| body["properties"]["loadBalancingRules"][0]["properties"].clone();
    assert_eq!(rule(&target.body), rule(before));
    assert_eq!(target.body["tags"], before["tags"]);
    let text = target.body.to_string();
    for word in ["etag", "resourceGuid", "provisioningState", "backendIPConfigurations"] {
        assert!(!text.contains(word), "{word}");
    }
}

#[test]
fn m8_rules_and_pools_of_the_operator_are_kept() {
    let mut cloud = Cloud::with_scale_set();
    let lb = balancer("kubernetes");
    let own = lb.child("backendAddressPools", "own");
    cloud.edit(&lb, |body| {
        let properties = &mut body["properties"];
        properties["backendAddressPools"].as_array_mut().unwrap().push(json!({"name": "own", "id": own}));
        let rule = json!({"name": "own", "properties": {"backendAddressPool": {"id": own}, "frontendPort": 443,
            "frontendIPConfiguration": {"id": lb.child("frontendIPConfigurations", "a1")}}});
        properties["loadBalancingRules"].as_array_mut().unwrap().push(rule);
        properties["inboundNatRules"] = json!([{"name": "ssh", "properties": {"frontendPort": 2222, "backendPort": 22,
            "backendIPConfiguration": {"id": "/subscriptions/s/x/y"}}}]);
    });
    let properties = one(&cloud, "kubernetes").body["properties"].clone();
    assert_eq!(properties["backendAddressPools"][1]["name"], "own");
    assert_eq!(properties["loadBalancingRules"][2]["properties"]["frontendPort"], 443);
    let nat = json!([{"name": "ssh", "properties": {"frontendPort": 2222, "backendPort": 22}}]);
    assert_eq!(properties["inboundNatRules"], nat);
}

#[test]
fn load_balancers_of_further_availability_sets_merge() {
    let mut cloud = Cloud::with_availability_set();
    cloud.public("second", &[("b1", "20.0.0.5")]);
    cloud.availability_set("second", &["vm7"], &["second"]);
    let all = all(&cloud);
    assert_eq!(all.len(), 1, "one load balancer serves all nodes");
    let text = all[0].body.to_string();
    assert!(!text.contains("loadBalancers/second"), "{text}");
    assert!(all[0].conflicts.is_empty(), "{:?}", all[0].conflicts);
    assert_eq!(all[0].body["properties"]["frontendIPConfigurations"].as_array().unwrap().len(), 2);
}

#[test]
fn m4_the_new_load_balancers_have_the_configured_name() {
    let mut cloud = Cloud::with_scale_set();
    cloud.cluster.load_balancers = vec!["shop".to_owned()];
    let all = all(&cloud);
    let names: Vec<&str> = all.iter().map(|target| target.id.name()).collect();
    assert_eq!(names, ["shop", "shop-internal"]);
    let text = all[0].body.to_string();
    assert!(text.contains("loadBalancers/shop/") && !text.contains("loadBalancers/kubernetes/"), "{text}");
}

#[test]
fn names_that_merge_with_other_settings_are_a_conflict() {
    let mut cloud = Cloud::with_availability_set();
    cloud.public("second", &[("a1", "20.0.0.5")]);
    cloud.availability_set("second", &["vm7"], &["second"]);
    cloud.edit(&balancer("second"), |body| body["properties"]["probes"][0]["properties"]["port"] = json!(1));
    assert_eq!(all(&cloud)[0].conflicts, ["probes a1-TCP-80"]);
}

#[test]
fn pools_by_address_have_all_required_nodes() {
    let mut cloud = Cloud::with_scale_set();
    cloud.cluster.membership = Membership::NodeIp;
    cloud.cluster.nodes[1].excluded = true;
    let target = one(&cloud, "kubernetes");
    let pool = &target.body["properties"]["backendAddressPools"][0]["properties"];
    assert_eq!(pool["virtualNetwork"]["id"], json!(network("virtualNetworks", "net")));
    assert_eq!(
        pool["loadBalancerBackendAddresses"],
        json!([{"name": "nodes-0", "properties": {"ipAddress": "10.0.0.4"}}])
    );
}

#[test]
fn foreign_additions_to_the_new_load_balancer_stay() {
    let target = one(&Cloud::with_scale_set(), "kubernetes");
    let mut live = target.body.clone();
    let rules = live["properties"]["loadBalancingRules"].as_array_mut().unwrap();
    rules.remove(0);
    rules.push(json!({"name": "new", "properties": {}}));
    assert_eq!(missing(&target.body, &live), ["loadBalancingRules a1-TCP-80"]);
    let body = completed(&target.body, &live);
    assert!(missing(&target.body, &body).is_empty());
    assert!(body.to_string().contains(r#""name":"new""#));
}

#[test]
fn a_frontend_that_cannot_be_built_is_dropped_with_its_rules() {
    let target = one(&Cloud::with_scale_set(), "kubernetes");
    let body = without(&target.body, &BTreeSet::from(["a1".to_owned()]));
    let names = |collection: &str| -> Vec<String> {
        let items = body["properties"][collection].as_array().unwrap();
        items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("frontendIPConfigurations"), ["a2"]);
    assert_eq!(names("loadBalancingRules"), ["a2-TCP-80"]);
}
