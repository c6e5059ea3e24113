//! The findings of the survey, and the resources that it includes in the scope.

use serde_json::json;

use super::cloud::{Cloud, GROUP, balancer, compute, network};
use crate::inventory::{ReadResult, Scope};
use crate::members::MemberKind;
use crate::resource_id::ResourceId;

#[test]
fn a_scale_set_is_read_with_its_instances_and_addresses() {
    let inventory = Cloud::with_scale_set().survey();
    let scope = Scope::of(&inventory);
    assert_eq!(scope.load_balancers.len(), 2);
    assert_eq!((scope.scale_sets.len(), scope.instances.len(), scope.interfaces.len()), (1, 2, 0));
    assert_eq!(scope.addresses.len(), 2);
    assert!(inventory.body(&network("networkSecurityGroups", "nsg")).is_some());
}

#[test]
fn a_whole_availability_set_is_read() {
    let mut cloud = Cloud::with_availability_set();
    // vm1 is in no pool and is no node of the cluster.
    cloud.cluster.nodes.pop();
    let nic = network("networkInterfaces", "vm1-nic");
    cloud.edit(&nic, |body| {
        body["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"] = json!([])
    });
    cloud.edit(&balancer("kubernetes"), |body| {
        let members =
            &mut body["properties"]["backendAddressPools"][0]["properties"]["backendIPConfigurations"];
        members.as_array_mut().unwrap().pop();
    });
    assert!(Scope::of(&cloud.survey()).interfaces.contains(&nic));
}

#[test]
fn m3_a_load_balancer_with_any_name_is_found_by_reference() {
    let mut cloud = Cloud::with_scale_set();
    cloud.public("games", &[("g1", "20.0.0.9")]);
    cloud.edit(&compute("virtualMachineScaleSets", "nodes"), |body| {
        let profile = &mut body["properties"]["virtualMachineProfile"]["networkProfile"];
        let pools = &mut profile["networkInterfaceConfigurations"][0]["properties"]["ipConfigurations"][0]["properties"];
        let pool = json!({"id": balancer("games").child("backendAddressPools", "kubernetes")});
        pools["loadBalancerBackendAddressPools"].as_array_mut().unwrap().push(pool);
    });
    let scope = Scope::of(&cloud.survey());
    assert!(scope.load_balancers.contains(&balancer("games")));
    assert!(scope.addresses.contains(&network("publicIPAddresses", "pip-g1")));
}

#[test]
fn a_scale_set_without_instances_is_found_by_its_model() {
    let mut cloud = Cloud::with_availability_set();
    cloud.scale_set("empty", 0, &["kubernetes"]);
    let scope = Scope::of(&cloud.survey());
    assert!(scope.scale_sets.contains(&compute("virtualMachineScaleSets", "empty")));
}

#[test]
fn load_balancers_of_excluded_nodes_are_not_in_scope() {
    let mut cloud = Cloud::with_scale_set();
    cloud.public("api", &[("api", "20.0.0.50")]);
    cloud.availability_set("masters", &["master0"], &["api"]);
    cloud.cluster.nodes.last_mut().unwrap().excluded = true;
    assert!(!Scope::of(&cloud.survey()).load_balancers.contains(&balancer("api")));
    cloud.cluster.nodes.last_mut().unwrap().excluded = false;
    assert!(Scope::of(&cloud.survey()).load_balancers.contains(&balancer("api")));
}

#[test]
fn standard_load_balancers_are_not_in_scope() {
    let mut cloud = Cloud::with_scale_set();
    cloud.edit(&balancer("kubernetes"), |body| body["sku"] = json!({"name": "Standard"}));
    assert!(!Scope::of(&cloud.survey()).load_balancers.contains(&balancer("kubernetes")));
}

#[test]
fn absent_resources_are_recorded_as_absent() {
    let mut cloud = Cloud::with_availability_set();
    cloud.resources.remove(&network("publicIPAddresses", "pip-a1"));
    let inventory = cloud.survey();
    assert_eq!(inventory.resources[&network("publicIPAddresses", "pip-a1")], ReadResult::Absent);
    assert_eq!(inventory.resources[&balancer("kubernetes-internal")], ReadResult::Absent);
}

#[test]
fn the_digest_covers_settings_and_no_etags() {
    let mut cloud = Cloud::with_scale_set();
    let before = cloud.survey().digest();
    cloud.edit(&balancer("kubernetes"), |body| body["etag"] = json!("W/\"2\""));
    assert_eq!(cloud.survey().digest(), before);
    cloud.edit(&balancer("kubernetes"), |body| {
        body["properties"]["loadBalancingRules"][0]["properties"]["idleTimeoutInMinutes"] = json!(30);
    });
    assert_ne!(cloud.survey().digest(), before);
}

#[test]
fn the_kind_of_a_member_is_derived_from_its_id() {
    let kind = |id: &ResourceId| MemberKind::of(id);
    let scale_set = compute("virtualMachineScaleSets", "nodes");
    assert_eq!(kind(&scale_set), Some(MemberKind::Model));
    assert_eq!(kind(&scale_set.child("virtualMachines", "0")), Some(MemberKind::Instance));
    assert_eq!(kind(&compute("virtualMachines", "vm0")), None);
    assert_eq!(kind(&network("networkInterfaces", "nic")), Some(MemberKind::NetworkInterface));
    assert_eq!(kind(&ResourceId::new(GROUP)), None);
}
