//! References of nodes, removed and added.

use serde_json::{Value, json};

use super::cloud::{Cloud, balancer, compute};
use crate::inventory::Scope;
use crate::members::{MemberKind, RemovedReferences, attached, detached, put_body};
use crate::work::Work;

fn model(cloud: &Cloud) -> Value {
    cloud.resources[&compute("virtualMachineScaleSets", "nodes")].clone()
}

fn removed_references(cloud: &Cloud) -> RemovedReferences {
    Scope::of(&cloud.survey()).removed_references()
}

#[test]
fn m6_exactly_the_references_are_removed() {
    let mut cloud = Cloud::with_scale_set();
    let lb = balancer("kubernetes");
    let foreign = json!({"id": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/applicationGateways/a/x/y"});
    cloud.edit(&compute("virtualMachineScaleSets", "nodes"), |body| {
        let profile = &mut body["properties"]["virtualMachineProfile"]["networkProfile"];
        profile["healthProbe"] = json!({"id": lb.child("probes", "p")});
        let second = json!({"name": "second", "properties": {"ipConfigurations": [{"name": "b", "properties": {
            "loadBalancerInboundNatPools": [{"id": lb.child("inboundNatPools", "ssh")}],
            "loadBalancerBackendAddressPools": [foreign.clone(), {"id": lb.child("backendAddressPools", "kubernetes")}],
        }}]}});
        profile["networkInterfaceConfigurations"].as_array_mut().unwrap().push(second);
    });
    let before = model(&cloud);
    let after = detached(MemberKind::Model, &before, &removed_references(&cloud)).expect("it has references");
    let text = after.to_string();
    assert!(!text.contains("loadBalancers/kubernetes"), "{text}");
    assert!(text.contains("applicationGateways") && text.contains("computerNamePrefix"));
    assert_eq!(detached(MemberKind::Model, &after, &removed_references(&cloud)), None);
}

#[test]
fn detached_nodes_are_attached_to_the_new_load_balancers() {
    let cloud = Cloud::with_scale_set();
    let work = Work::of(&cloud.survey());
    let before = model(&cloud);
    let after = detached(MemberKind::Model, &before, &removed_references(&cloud)).unwrap();
    let member = &work.members[&compute("virtualMachineScaleSets", "nodes")];
    let again = attached(MemberKind::Model, &after, &member.attachments, member.probe.as_ref()).unwrap();
    assert_eq!(again, before);
    assert_eq!(attached(MemberKind::Model, &again, &member.attachments, None), None);
}

#[test]
fn a_put_of_a_scale_set_has_only_the_network_profile() {
    let body = put_body(MemberKind::Model, &model(&Cloud::with_scale_set()));
    let properties = body["properties"]["virtualMachineProfile"].as_object().unwrap();
    assert_eq!(properties.keys().collect::<Vec<_>>(), ["networkProfile"]);
    assert!(body["sku"].is_null() && body["properties"]["upgradePolicy"].is_null());
}

#[test]
fn s3_nodes_that_were_in_no_pool_join_too() {
    let mut cloud = Cloud::with_scale_set();
    cloud.scale_set("more", 1, &[]);
    let work = Work::of(&cloud.survey());
    let member = &work.members[&compute("virtualMachineScaleSets", "more")];
    let pools: Vec<String> = member.attachments[0].pools.iter().map(ToString::to_string).collect();
    let of = |lb: &str| balancer(lb).child("backendAddressPools", "kubernetes").to_string();
    assert_eq!(pools, [of("kubernetes-internal"), of("kubernetes")]);
}

#[test]
fn m11_excluded_nodes_join_no_pool() {
    let mut cloud = Cloud::with_scale_set();
    cloud.scale_set("masters", 1, &[]);
    cloud.cluster.nodes.last_mut().unwrap().excluded = true;
    let masters = compute("virtualMachineScaleSets", "masters");
    assert!(!Work::of(&cloud.survey()).members.contains_key(&masters));
}

#[test]
fn basic_addresses_of_instances_come_back_as_standard() {
    let mut cloud = Cloud::with_scale_set();
    cloud.edit(&compute("virtualMachineScaleSets", "nodes"), |body| {
        let profile = &mut body["properties"]["virtualMachineProfile"]["networkProfile"];
        let properties = &mut profile["networkInterfaceConfigurations"][0]["properties"]["ipConfigurations"]
            [0]["properties"];
        properties["publicIPAddressConfiguration"] =
            json!({"name": "pub", "properties": {"idleTimeoutInMinutes": 10}});
    });
    let work = Work::of(&cloud.survey());
    let after = detached(MemberKind::Model, &model(&cloud), &work.removed_references()).unwrap();
    assert!(!after.to_string().contains("publicIPAddressConfiguration"));
    let member = &work.members[&compute("virtualMachineScaleSets", "nodes")];
    let again = attached(MemberKind::Model, &after, &member.attachments, None).unwrap().to_string();
    assert!(again.contains(r#""sku":{"name":"Standard","tier":"Regional"}"#), "{again}");
}
