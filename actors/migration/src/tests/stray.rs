//! Clusters with other references than those of the cloud-controller-manager, as in public reports.

use serde_json::{Value, json};
use simulator_models::arm::Sku;
use simulator_models::arm::topology::{Cluster, NodeGroup, NodeKind, Service, UpgradePolicy};

use super::apply::check;
use super::world::{End, World, quick};
use crate::apply::Outcome;
use crate::resource_id::ResourceId;

/// Returns a cluster with an external and an internal Service on these nodes.
fn on(nodes: Vec<NodeGroup>) -> World {
    let services = vec![Service::external(false), Service::internal(None)];
    let cluster = Cluster { nodes, services, ..Cluster::default() };
    World::new(cluster.build(quick()).expect("Azure accepts the cluster"))
}

/// Changes a resource in Azure.
fn edit(world: &mut World, end: &str, change: impl Fn(&mut Value)) {
    let ids = world.arm.ids();
    let id = ids.iter().find(|id| id.ends_with(end)).unwrap_or_else(|| panic!("{end} is not among {ids:?}"));
    let mut body = world.arm.json(id).unwrap();
    change(&mut body);
    world.arm.seed(id, &body).expect("Azure accepts the change");
}

/// Returns the references of the first IP configuration of a scale set, an instance or an interface.
fn pools<'a>(body: &'a mut Value, pointer: &str) -> &'a mut Value {
    let interfaces = body.pointer_mut(pointer).expect("it has interfaces");
    &mut interfaces[0]["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"]
}

const MODEL: &str = "/properties/virtualMachineProfile/networkProfile/networkInterfaceConfigurations";
const INSTANCE: &str = "/properties/networkProfileConfiguration/networkInterfaceConfigurations";

/// Returns machines with their own Basic addresses, one of which is in no pool (AzLoadBalancerMigration#141).
fn machine_in_no_pool() -> World {
    let group =
        NodeGroup { public_ip: Some(Sku::Basic), ..NodeGroup::new("agents", NodeKind::AvailabilitySet, 3) };
    let mut world = on(vec![group]);
    edit(&mut world, "networkInterfaces/agents-2-nic", |body| {
        body["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"] =
            json!([]);
    });
    world
}

fn scale_set() -> World {
    on(vec![NodeGroup::new("workers", NodeKind::ScaleSet(UpgradePolicy::Manual), 2)])
}

/// Returns a scale set whose model refers to the load balancers, and no instance does (cloud-provider-azure#559).
fn stale_model() -> World {
    let mut world = scale_set();
    for at in ["0", "1"] {
        edit(&mut world, &format!("workers/virtualMachines/{at}"), |body| *pools(body, INSTANCE) = json!([]));
    }
    world
}

/// Returns a scale set whose instances refer to the load balancers, and the model does not (AzLoadBalancerMigration#6).
fn stale_instances() -> World {
    let mut world = scale_set();
    edit(&mut world, "virtualMachineScaleSets/workers", |body| *pools(body, MODEL) = json!([]));
    world
}

#[test]
fn m6_stray_references_are_migrated_after_any_crash() {
    let worlds = [
        ("a machine in no pool", machine_in_no_pool()),
        ("a stale model", stale_model()),
        ("stale instances", stale_instances()),
    ];
    for (name, mut before) in worlds {
        before.accept_all();
        assert_eq!(before.plan().blockers, [], "{name}");
        let mut straight = before.clone();
        assert_eq!(straight.finish(), Outcome::Done, "{name}");
        check(&before, &mut straight, name);
        let (calls, wanted) = (straight.calls, straight.state());
        for crash in straight.changes.into_iter().filter(|crash| *crash < calls) {
            let what = format!("{name} with a crash after call {crash} of {calls}");
            let mut world = before.clone();
            assert_eq!(world.run(crash), End::Crashed, "{what}");
            assert_eq!(world.finish(), Outcome::Done, "{what}");
            check(&before, &mut world, &what);
            assert_eq!(world.state(), wanted, "{what}");
        }
    }
}

/// Returns two availability sets, the second behind load balancers with its name, as upstream does with Basic.
fn second_set() -> World {
    let second = NodeGroup { in_pools: false, ..NodeGroup::new("second", NodeKind::AvailabilitySet, 2) };
    let mut world = on(vec![NodeGroup::new("agents", NodeKind::AvailabilitySet, 2), second]);
    let group = world.cluster().resource_group;
    let address = group.child("providers/Microsoft.Network/publicIPAddresses", "second-public");
    let public = json!({"location": "eastus", "sku": {"name": "Basic"}, "properties": {
        "publicIPAllocationMethod": "Dynamic", "publicIPAddressVersion": "IPv4"}});
    world.arm.seed(address.as_str(), &public).expect("Azure accepts the address");
    let ids: Vec<ResourceId> = world.arm.ids().into_iter().map(ResourceId::new).collect();
    let nics = ids.iter().filter(|id| id.kind() == "networkinterfaces" && id.name().starts_with("second"));
    let mut references = Vec::new();
    for (suffix, end) in [("", "b1"), ("-internal", "b2")] {
        let first = group.child("providers/Microsoft.Network/loadBalancers", &format!("kubernetes{suffix}"));
        let lb = group.child("providers/Microsoft.Network/loadBalancers", &format!("second{suffix}"));
        let body = world.body(&first);
        let frontend = body["properties"]["frontendIPConfigurations"][0]["name"].as_str().unwrap().to_owned();
        let text = body.to_string().replace(first.as_str(), lb.as_str()).replace(&frontend, end);
        let mut body: Value = serde_json::from_str(&text).unwrap();
        body["properties"]["backendAddressPools"] = json!([{"name": "kubernetes", "properties": {}}]);
        let properties = &mut body["properties"]["frontendIPConfigurations"][0]["properties"];
        if suffix.is_empty() {
            properties["publicIPAddress"] = json!({ "id": address });
        } else {
            properties.as_object_mut().unwrap().remove("privateIPAddress");
        }
        world.arm.seed(lb.as_str(), &body).expect("Azure accepts the load balancer");
        references.push(json!({"id": lb.child("backendAddressPools", "kubernetes")}));
    }
    for nic in nics {
        let mut body = world.body(nic);
        body["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"] =
            json!(references);
        world.arm.seed(nic.as_str(), &body).expect("Azure accepts the interface");
    }
    world
}

#[test]
fn m3_several_sets_merge_into_one_after_any_crash() {
    let mut before = second_set();
    before.accept_all();
    let then = before.frontends();
    assert_eq!(then.len(), 4);
    let check = |world: &mut World, what: &str| {
        world.await_operations();
        assert_eq!(world.arm.check_references(), Ok(()), "{what}");
        let now = world.frontends();
        assert_eq!(now.len(), 4, "{what}");
        for ((lb, frontend), address) in &then {
            let lb = lb.replace("second", "kubernetes");
            assert_eq!(now.get(&(lb.clone(), frontend.clone())), Some(address), "{what}: {frontend}");
            assert!(world.arm.frontend_serves(&lb, frontend), "{what}: {frontend}");
        }
    };
    let mut straight = before.clone();
    assert_eq!(straight.plan().blockers, []);
    assert_eq!(straight.finish(), Outcome::Done);
    check(&mut straight, "without a crash");
    let (calls, wanted) = (straight.calls, straight.state());
    for crash in straight.changes.into_iter().filter(|crash| *crash < calls) {
        let what = format!("a crash after call {crash} of {calls}");
        let mut world = before.clone();
        assert_eq!(world.run(crash), End::Crashed, "{what}");
        assert_eq!(world.finish(), Outcome::Done, "{what}");
        check(&mut world, &what);
        assert_eq!(world.state(), wanted, "{what}");
    }
}
