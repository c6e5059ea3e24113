//! The plan: its steps, and each reason that blocks it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::cloud::{Cloud, SUBNET, balancer, compute, network};
use crate::inventory::{Listed, ReadResult};
use crate::plan::{Accepted, Plan, Reason};
use crate::resource_id::ResourceId;
use crate::work::Work;

fn plan(cloud: &Cloud) -> Plan {
    Plan::of(&cloud.survey(), &Accepted::new())
}

/// Returns the blocking reasons after an edit, with the objects.
fn blockers(edit: impl FnOnce(&mut Cloud)) -> Vec<(Reason, String)> {
    let mut cloud = Cloud::with_scale_set();
    assert_eq!(plan(&cloud).blockers, [], "nothing blocks the unchanged cluster");
    edit(&mut cloud);
    let plan = plan(&cloud);
    assert!(plan.blockers.iter().all(|blocker| !blocker.remedy.is_empty()), "each has a remedy");
    plan.blockers.into_iter().map(|blocker| (blocker.reason, blocker.object)).collect()
}

/// Asserts that an edit causes this reason for an object with this suffix of its id.
fn blocked(reason: Reason, object: &str, edit: impl FnOnce(&mut Cloud)) {
    let found = blockers(edit);
    let is_it = |(is, of): &(Reason, String)| *is == reason && of.ends_with(object);
    assert!(found.iter().any(is_it), "{reason:?} of {object} is not among {found:?}");
}

fn scale_set() -> ResourceId {
    compute("virtualMachineScaleSets", "nodes")
}

fn edit(id: ResourceId, pointer: &'static str, value: Value) -> impl FnOnce(&mut Cloud) {
    move |cloud| {
        cloud.edit(&id, |body| {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            body.pointer_mut(parent).unwrap()[key] = value;
        });
    }
}

#[test]
fn steps_are_listed_in_their_order() {
    let plan = plan(&Cloud::with_scale_set());
    let titles: Vec<&str> = plan.steps.iter().map(|step| step.title.split(' ').next().unwrap()).collect();
    assert_eq!(titles, ["Make", "Detach", "Delete", "Create", "Raise", "Create", "Attach", "Read"]);
    let delete = &plan.steps[2];
    assert!(delete.outage && !delete.can_be_undone);
    assert!(plan.to_string().contains("20.0.0.1, 20.0.0.2"));
}

#[test]
fn m1_the_expected_outage_does_not_grow_with_services() {
    let of = |services: usize| {
        let mut cloud = Cloud::new();
        let names: Vec<String> = (0..services).map(|number| format!("a{number}")).collect();
        let frontends: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "20.0.0.1")).collect();
        cloud.public("kubernetes", &frontends);
        cloud.scale_set("nodes", 3, &["kubernetes"]);
        plan(&cloud).outage
    };
    assert_eq!(of(1), of(500));
    assert!(of(1).most_seconds > 0);
}

#[test]
fn without_a_basic_load_balancer_there_is_nothing_to_do() {
    let mut cloud = Cloud::new();
    cloud.scale_set("nodes", 1, &[]);
    cloud.cluster.says_standard = false;
    let plan = plan(&cloud);
    assert!(plan.is_empty() && plan.steps.is_empty() && plan.blockers.is_empty());
}

#[test]
fn s3_the_plan_tells_the_operator_to_configure_outbound() {
    let plan = plan(&Cloud::with_scale_set());
    assert!(plan.notices.iter().any(|notice| notice.starts_with("Configure outbound traffic yourself")));
}

#[test]
fn s3_the_configuration_must_say_standard() {
    blocked(Reason::Configuration, "loadBalancerSku", |cloud| cloud.cluster.says_standard = false);
}

#[test]
fn clusters_of_aks_are_refused() {
    let group = ResourceId::new(super::cloud::GROUP);
    blocked(
        Reason::ManagedByAks,
        "/resourceGroups/g",
        edit(group, "/tags", json!({"aks-managed-cluster-name": "c"})),
    );
}

#[test]
fn an_api_server_behind_a_load_balancer_in_scope_is_refused() {
    let public = |cloud: &mut Cloud| cloud.cluster.api_server.push("20.0.0.1".parse().unwrap());
    blocked(Reason::ApiServerPath, "loadBalancers/kubernetes", public);
    let private = |cloud: &mut Cloud| cloud.cluster.api_server.push("10.0.0.100".parse().unwrap());
    blocked(Reason::ApiServerPath, "loadBalancers/kubernetes-internal", private);
}

#[test]
fn m9_the_controllers_path_to_azure_must_not_be_in_scope() {
    blocked(Reason::OwnPath, "nodes", |cloud| cloud.cluster.runs_on_a_node = true);
    let with_gateway = blockers(|cloud| {
        cloud.cluster.runs_on_a_node = true;
        cloud.edit(&ResourceId::new(SUBNET), |body| body["properties"]["natGateway"] = json!({"id": "/nat"}));
    });
    assert_eq!(with_gateway, []);
}

#[test]
fn nodes_without_an_outbound_path_are_refused_unless_accepted() {
    let mut cloud = Cloud::new();
    cloud.internal("kubernetes-internal", &[("i1", "10.0.0.100")]);
    cloud.scale_set("nodes", 1, &["kubernetes-internal"]);
    let reasons =
        |plan: Plan| -> Vec<Reason> { plan.blockers.iter().map(|blocker| blocker.reason).collect() };
    assert_eq!(reasons(plan(&cloud)), [Reason::NoOutbound]);
    let accepted = Accepted::from(["no-outbound".to_owned()]);
    assert_eq!(reasons(Plan::of(&cloud.survey(), &accepted)), []);
    let route = json!({"id": network("routeTables", "r")});
    cloud.put(
        &network("routeTables", "r"),
        json!({"properties": {"routes": [
        {"properties": {"addressPrefix": "0.0.0.0/0", "nextHopType": "VirtualAppliance"}}]}}),
    );
    cloud.edit(&ResourceId::new(SUBNET), |body| body["properties"]["routeTable"] = route);
    assert_eq!(reasons(plan(&cloud)), []);
}

#[test]
fn m5_an_ipv6_address_cannot_be_kept_unless_accepted() {
    let ipv6 = |cloud: &mut Cloud| {
        cloud.edit(&network("publicIPAddresses", "pip-a1"), |body| {
            body["properties"]["publicIPAddressVersion"] = json!("IPv6");
            body["properties"]["ipAddress"] = json!("2001:db8::1");
        });
    };
    blocked(Reason::AddressChanges, "pip-a1", ipv6);
    let mut cloud = Cloud::with_scale_set();
    ipv6(&mut cloud);
    let plan = Plan::of(&cloud.survey(), &Accepted::from(["2001:db8::1".to_owned()]));
    assert_eq!(plan.blockers, []);
    assert!(plan.steps.iter().any(|step| step.title.starts_with("Replace")));
}

#[test]
fn m13_basic_instance_addresses_change_only_if_accepted() {
    const ADDRESS: &str = "/properties/virtualMachineProfile/networkProfile/networkInterfaceConfigurations/0/properties/\
                           ipConfigurations/0/properties/publicIPAddressConfiguration";
    blocked(Reason::AddressChanges, "nodes", edit(scale_set(), ADDRESS, json!({"name": "pub"})));
    let mut cloud = Cloud::with_scale_set();
    edit(scale_set(), ADDRESS, json!({"name": "pub"}))(&mut cloud);
    assert_eq!(Plan::of(&cloud.survey(), &Accepted::from(["nodes".to_owned()])).blockers, []);
}

#[test]
fn unreadable_resources_are_named() {
    let mut inventory = Cloud::with_scale_set().survey();
    let locks = inventory.lists.keys().find(|id| id.name() == "locks").unwrap().clone();
    inventory.lists.insert(locks, Listed::Unreadable("403 AuthorizationFailed: no".to_owned()));
    let plan = Plan::of(&inventory, &Accepted::new());
    assert_eq!(plan.blockers[0].reason, Reason::Unreadable);
    assert!(plan.blockers[0].finding.contains("AuthorizationFailed"));
}

#[test]
fn unreadable_resources_with_references_block() {
    let mut cloud = Cloud::new();
    cloud.scale_set("nodes", 1, &[]);
    let inventory = cloud.survey();
    let with = |id: ResourceId| {
        let mut inventory = inventory.clone();
        inventory.resources.insert(id, ReadResult::Unreadable("403 AuthorizationFailed: no".to_owned()));
        Plan::of(&inventory, &Accepted::new())
    };
    for id in [balancer("kubernetes"), scale_set(), scale_set().child("virtualMachines", "1")] {
        let plan = with(id.clone());
        assert_eq!(plan.blockers.len(), 1, "{id}");
        assert_eq!(plan.blockers[0].reason, Reason::Unreadable);
        assert!(plan.is_empty() && plan.to_string().contains("not everything could be read"), "{plan}");
    }
    let subnet = with(network("virtualNetworks", "vnet").child("subnets", "nodes"));
    assert_eq!(subnet.blockers, [], "it refers to no load balancer");
}

#[test]
fn m7_states_other_than_succeeded_are_refused() {
    let failed = || json!("Failed");
    for id in [balancer("kubernetes"), scale_set(), scale_set().child("virtualMachines", "1")] {
        let end = id.name().to_owned();
        blocked(Reason::NotSucceeded, &end, edit(id, "/properties/provisioningState", failed()));
    }
}

#[test]
fn m7_instances_that_do_not_run_or_are_protected_are_refused() {
    let instance = || scale_set().child("virtualMachines", "1");
    let view =
        json!({"statuses": [{"code": "ProvisioningState/succeeded"}, {"code": "PowerState/deallocated"}]});
    blocked(Reason::InstanceNotRunning, "/1", edit(instance(), "/properties/instanceView", view));
    let policy = json!({"protectFromScaleSetActions": true});
    blocked(Reason::ProtectedInstance, "/1", edit(instance(), "/properties/protectionPolicy", policy));
}

#[test]
fn upgrade_policies_that_act_on_their_own_are_refused() {
    blocked(
        Reason::UpgradePolicy,
        "nodes",
        edit(scale_set(), "/properties/upgradePolicy", json!({"mode": "Rolling"})),
    );
    blocked(Reason::UpgradePolicy, "nodes", |cloud| {
        let probe = json!({"id": balancer("kubernetes").child("probes", "p")});
        edit(scale_set(), "/properties/virtualMachineProfile/networkProfile/healthProbe", probe)(cloud);
        let automatic =
            json!({"mode": "Manual", "automaticOSUpgradePolicy": {"enableAutomaticOSUpgrade": true}});
        edit(scale_set(), "/properties/upgradePolicy", automatic)(cloud);
    });
    blocked(
        Reason::FlexibleScaleSet,
        "nodes",
        edit(scale_set(), "/properties/orchestrationMode", json!("Flexible")),
    );
}

#[test]
fn locks_and_missing_rights_are_refused() {
    blocked(Reason::Locked, "locks/keep", |cloud| {
        let lock = json!({"id": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Authorization/locks/keep",
            "properties": {"level": "CanNotDelete"}});
        cloud.lists.insert("locks".to_owned(), vec![lock]);
    });
    blocked(Reason::MissingRight, "/resourceGroups/g", |cloud| {
        let reader = json!({"actions": ["*"], "notActions": ["Microsoft.Network/loadBalancers/delete"]});
        cloud.lists.insert("permissions".to_owned(), vec![reader]);
    });
}

#[test]
fn a_quota_that_is_too_small_is_refused() {
    let quota = |limit: u64| {
        move |cloud: &mut Cloud| {
            let usage =
                json!({"name": {"value": "StandardSkuPublicIpAddresses"}, "currentValue": 9, "limit": limit});
            cloud.lists.insert("usages".to_owned(), vec![usage]);
        }
    };
    blocked(Reason::Quota, "StandardSkuPublicIpAddresses", quota(10));
    assert_eq!(blockers(quota(11)), []);
}

#[test]
fn m4_a_name_that_is_in_use_is_refused() {
    let mut cloud = Cloud::with_availability_set();
    cloud.public("second", &[("b1", "20.0.0.5")]);
    cloud.availability_set("second", &["vm7"], &["second"]);
    cloud.edit(&balancer("kubernetes"), |body| body["sku"] = json!({"name": "Standard"}));
    let reasons: BTreeSet<Reason> = plan(&cloud).blockers.iter().map(|blocker| blocker.reason).collect();
    assert_eq!(reasons, BTreeSet::from([Reason::NameInUse, Reason::MixedSku]));
}

#[test]
fn nodes_with_both_skus_are_refused() {
    blocked(Reason::MixedSku, "nodes", |cloud| {
        cloud.public("standard", &[("s1", "20.0.0.9")]);
        cloud.edit(&balancer("standard"), |body| body["sku"] = json!({"name": "Standard"}));
        let pool = json!({"id": balancer("standard").child("backendAddressPools", "kubernetes")});
        cloud.edit(&scale_set(), |body| {
            let pools = body.pointer_mut(
                "/properties/virtualMachineProfile/networkProfile/networkInterfaceConfigurations/0/properties/ipConfigurations/\
                 0/properties/loadBalancerBackendAddressPools",
            );
            pools.unwrap().as_array_mut().unwrap().push(pool);
        });
    });
}

#[test]
fn m12_public_frontends_need_a_network_security_group() {
    blocked(Reason::NoSecurityGroup, "nodes", |cloud| {
        cloud.edit(&ResourceId::new(SUBNET), |body| body["properties"]["networkSecurityGroup"] = Value::Null);
    });
}

#[test]
fn addresses_of_a_prefix_or_of_another_migration_are_refused() {
    let address = || network("publicIPAddresses", "pip-a1");
    let prefix = json!({"id": "/subscriptions/s/prefix"});
    blocked(Reason::SpecialAddress, "pip-a1", edit(address(), "/properties/publicIPPrefix", prefix));
    blocked(
        Reason::SpecialAddress,
        "pip-a1",
        edit(address(), "/properties/migrationPhase", json!("Prepare")),
    );
}

#[test]
fn floating_ip_on_a_secondary_configuration_is_refused() {
    blocked(Reason::SecondaryFloatingIp, "nodes", |cloud| {
        cloud.edit(&scale_set(), |body| {
            let all = body.pointer_mut(
                "/properties/virtualMachineProfile/networkProfile/networkInterfaceConfigurations/0/properties/ipConfigurations",
            );
            let all = all.unwrap().as_array_mut().unwrap();
            let mut second = all[0].clone();
            second["name"] = json!("second");
            second["properties"]["primary"] = json!(false);
            all.push(second);
        });
    });
}

#[test]
fn services_without_a_frontend_in_scope_are_named() {
    let mut cloud = Cloud::with_scale_set();
    cloud.service("shop/web", "20.0.0.1");
    cloud.service("shop/lost", "20.9.9.9");
    let notices = plan(&cloud).notices;
    assert!(notices.iter().any(|notice| notice.contains("shop/lost")), "{notices:?}");
    assert!(!notices.iter().any(|notice| notice.contains("shop/web")));
}

#[test]
fn m10_bodies_without_properties_are_accepted() {
    let mut cloud = Cloud::with_scale_set();
    for id in cloud.resources.keys().cloned().collect::<Vec<_>>() {
        let mut one = cloud.clone();
        one.edit(&id, |body| drop(body.as_object_mut().unwrap().remove("properties")));
        let plan = plan(&one);
        assert!(plan.to_string().contains("Digest"), "{id}");
    }
    cloud.resources.clear();
    assert!(plan(&cloud).is_empty());
}

/// Upstream migrates per Service, and does more for a deleted one.
#[test]
fn m14_services_change_neither_the_plan_nor_the_work() {
    let mut cloud = Cloud::with_scale_set();
    cloud.service("shop/web", "20.0.0.1");
    let with = (plan(&cloud), Work::of(&cloud.survey()));
    cloud.cluster.services.clear();
    assert_eq!((plan(&cloud), Work::of(&cloud.survey())), with);
    assert_eq!(with.1.basic.len(), 2);
}
