//! Scale sets: the instances' part of the model, manual upgrades, and sections that a PUT omits.

use serde_json::{Value, json};
use simulator_models::arm::topology::Topology;
use simulator_models::arm::{Durations, Method, Settings};

use crate::azure::{Azure, compute, leave, network, of_instance, of_scale_set};
use crate::support::{code, text};

fn workers() -> String {
    compute("virtualMachineScaleSets/workers")
}

fn instance(number: u32) -> String {
    format!("{}/virtualMachines/{number}", workers())
}

fn is_latest(azure: &mut Azure, number: u32) -> bool {
    azure.get(&instance(number))["properties"]["latestModelApplied"] == json!(true)
}

fn upgrade(azure: &mut Azure, ids: &Value) -> u16 {
    let action = format!("{}/manualupgrade", workers());
    azure.call(Method::Post, &action, &[], &json!({ "instanceIds": ids })).status
}

#[test]
fn instances_are_outdated_until_they_are_written() {
    let mut azure = Azure::of(Topology::ScaleSetManual);
    assert!(is_latest(&mut azure, 0));
    azure.change(&workers(), |body| leave(of_scale_set(body)));
    assert!(!is_latest(&mut azure, 0));
    azure.change(&instance(0), |body| leave(of_instance(body)));
    assert!(is_latest(&mut azure, 0) && !is_latest(&mut azure, 1));
    assert_eq!(azure.model.restarts(), 0);
    let pool =
        azure.get(&network("loadBalancers/kubernetes"))["properties"]["backendAddressPools"][0].clone();
    assert_eq!(pool["properties"]["backendIPConfigurations"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_manual_upgrade_applies_all_pending_changes() {
    let mut azure = Azure::of(Topology::ScaleSetManual);
    azure.change(&workers(), |body| {
        body["properties"]["virtualMachineProfile"]["storageProfile"]["imageReference"]["version"] =
            "2".into();
    });
    azure.change(&workers(), |body| leave(of_scale_set(body)));
    azure.change(&instance(0), |body| leave(of_instance(body)));
    assert!(!is_latest(&mut azure, 0), "the image is pending");
    assert_eq!(azure.model.restarts(), 0);
    assert_eq!(upgrade(&mut azure, &json!(["0", "1"])), 200);
    assert_eq!(azure.model.restarts(), 2);
    assert!(is_latest(&mut azure, 0) && is_latest(&mut azure, 1) && !is_latest(&mut azure, 2));
    assert_eq!(upgrade(&mut azure, &json!(["*"])), 200);
    assert_eq!(azure.model.restarts(), 3, "those that have it are not restarted again");
    assert_eq!(upgrade(&mut azure, &json!(["7"])), 400);
}

#[test]
fn a_protected_instance_is_not_upgraded() {
    let mut azure = Azure::of(Topology::ScaleSetManual);
    azure.change(&instance(1), |body| {
        body["properties"]["protectionPolicy"] = json!({"protectFromScaleSetActions": true});
    });
    azure.change(&workers(), |body| leave(of_scale_set(body)));
    upgrade(&mut azure, &json!(["*"]));
    assert!(is_latest(&mut azure, 0) && !is_latest(&mut azure, 1));
}

#[test]
fn sections_that_a_put_omits_stay() {
    let mut azure = Azure::of(Topology::HealthProbe);
    let before = azure.get(&workers());
    let profile = before["properties"]["virtualMachineProfile"]["networkProfile"].clone();
    let only_network = |profile: &Value| json!({"location": "eastus", "properties": {"virtualMachineProfile": {"networkProfile": profile}}});
    let same = azure.must_put(&workers(), &only_network(&profile));
    assert_eq!(same["etag"], before["etag"], "nothing has changed");
    let mut without_probe = profile;
    without_probe.as_object_mut().expect("an object").shift_remove("healthProbe");
    let after = azure.must_put(&workers(), &only_network(&without_probe));
    assert_eq!(text(&after, "/etag"), "\"2\"");
    assert_eq!(after["sku"], before["sku"]);
    let part = "/properties/virtualMachineProfile/storageProfile";
    assert_eq!(after.pointer(part), before.pointer(part));
    assert!(after.pointer("/properties/virtualMachineProfile/networkProfile/healthProbe").is_none());
    assert_eq!(azure.model.restarts(), 0);
}

#[test]
fn the_capacity_makes_and_removes_instances() {
    let mut azure = Azure::of(Topology::ScaleSetManual);
    azure.change(&workers(), |body| body["sku"]["capacity"] = json!(5));
    let list = format!("{}/virtualMachines", workers());
    assert_eq!(azure.get(&list)["value"].as_array().map(Vec::len), Some(5));
    azure.change(&workers(), |body| body["sku"]["capacity"] = json!(1));
    let left = azure.get(&list);
    assert_eq!(left["value"].as_array().map(Vec::len), Some(1));
    assert_eq!(text(&left, "/value/0/name"), "workers_0");
    assert_eq!(azure.model.check_references(), Ok(()));
}

#[test]
fn references_before_and_after_count_while_an_operation_runs() {
    let settings = Settings { durations: Some(Durations::default()), ..Settings::default() };
    let mut azure = Azure::with(&Topology::ScaleSetManual.cluster(), settings);
    let model = azure.change(&workers(), |body| leave(of_scale_set(body)));
    assert_eq!(azure.wait(&model), "Succeeded");
    let mut running = Vec::new();
    for number in 0..3 {
        let answer = azure.change(&instance(number), |body| leave(of_instance(body)));
        assert_eq!(answer.status, 200);
        running.push(answer);
    }
    let early = azure.delete(&network("loadBalancers/kubernetes"));
    assert_eq!(code(&early), "LoadBalancerInUseByVirtualMachineScaleSet");
    assert!(azure.model.frontend_serves("kubernetes", &simulator_models::arm::topology::frontend_name(0)));
    for answer in &running {
        assert_eq!(azure.wait(answer), "Succeeded");
    }
    assert!(!azure.model.frontend_serves("kubernetes", &simulator_models::arm::topology::frontend_name(0)));
    assert_eq!(azure.delete(&network("loadBalancers/kubernetes")).status, 202);
}

#[test]
fn interfaces_and_addresses_of_instances_are_listed_with_power() {
    let mut azure = Azure::of(Topology::ScaleSetPublicIp);
    let interfaces = azure.get(&format!("{}/networkInterfaces", workers()));
    let first = &interfaces["value"][0];
    assert_eq!(text(first, "/properties/virtualMachine/id"), instance(0));
    assert_eq!(text(first, "/properties/ipConfigurations/0/properties/privateIPAddress"), "10.240.0.5");
    let addresses = azure.get(&format!("{}/publicIPAddresses", workers()));
    assert_eq!(text(&addresses, "/value/1/sku/name"), "Basic");
    assert_eq!(addresses["value"].as_array().map(Vec::len), Some(2));
    azure.model.set_deallocated(&instance(1), true);
    for (number, power) in [(0, "PowerState/running"), (1, "PowerState/deallocated")] {
        let view = azure.get(&format!("{}/instanceView", instance(number)));
        assert_eq!(text(&view, "/statuses/1/code"), power);
    }
    let wrong = azure.call(Method::Get, &format!("{}/virtualMachines/zero", workers()), &[], &Value::Null);
    assert_eq!((wrong.status, code(&wrong).as_str()), (400, "InvalidParameter"));
}
