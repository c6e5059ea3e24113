//! Resources other than load balancers: lifecycle, lists, tags, operations, and their bodies compared with recordings
//! of Azure.

use serde_json::{Value, json};
use simulator_models::arm::topology::{Cluster, Topology, frontend_name, public_ip_name};
use simulator_models::arm::{
    Durations, Fault, FaultEffect, FaultTarget, Latency, Method, OperationFailure, Response, Settings,
};

use crate::azure::{Azure, compute, leave, network, of_scale_set, public_ip, subnet};
use crate::recordings::{data, shape_of};
use crate::support::{SECOND, asynchronous, code, get, json_of, text};

fn address(name: &str) -> String {
    network(&format!("publicIPAddresses/{name}"))
}

fn empty(settings: Settings) -> Azure {
    Azure::with(&Cluster::default(), settings)
}

/// Compares status, body and the headers about operations with a recorded answer.
fn assert_like(ours: &Response, recording: &Value, at: usize) {
    let recorded = &recording["interactions"][at];
    assert_eq!(json!(ours.status), recorded["status"], "{at}");
    let theirs = recorded["responseHeaders"].as_object().expect("answers have headers");
    for name in ["Azure-AsyncOperation", "Location", "ETag"] {
        let recorded = theirs.keys().any(|key| key.eq_ignore_ascii_case(name));
        assert_eq!(ours.header(name).is_some(), recorded, "{name} of {at}");
    }
    let body = &recorded["responseBody"];
    if *body == json!("") {
        assert!(ours.body.is_empty(), "{at}");
        return;
    }
    assert_eq!(shape_of(&json_of(ours)), shape_of(body), "{at}");
    let state = "/properties/provisioningState";
    assert_eq!(json_of(ours).pointer(state), body.pointer(state), "{at}");
}

#[test]
fn answers_about_a_public_ip_match_the_recording() {
    let Some(recording) = data("recorded/publicipaddressclient.AZURECLOUD.json") else { return };
    let mut azure = empty(Settings { basic_retired: false, ..asynchronous() });
    let body = json!({"location": "eastus"});
    let created = azure.put(&address("testResource"), &body);
    assert_like(&created, &recording, 1);
    assert_eq!(azure.wait(&created), "Succeeded");
    assert_like(&azure.call(Method::Get, &address("testResource"), &[], &Value::Null), &recording, 4);
    assert_like(&azure.put(&address("testResource"), &body), &recording, 6);
    let stale = azure.call(Method::Put, &address("testResource"), &[("If-Match", "invalid")], &body);
    assert_like(&stale, &recording, 8);
    assert_like(&azure.delete(&address("testResource")), &recording, 11);
}

#[test]
fn answers_about_an_interface_match_the_recording() {
    let Some(recording) = data("recorded/interfaceclient.AZURECLOUD.json") else { return };
    let mut azure = empty(asynchronous());
    let body = json!({"location": "eastus", "properties": {"ipConfigurations": [
        {"name": "ipConfig1", "properties": {"subnet": {"id": subnet()}}}]}});
    let id = network("networkInterfaces/testResource");
    assert_like(&azure.put(&id, &body), &recording, 4);
    assert_like(&azure.put(&id, &body), &recording, 7);
    assert_like(&azure.call(Method::Get, &network("networkInterfaces"), &[], &Value::Null), &recording, 8);
}

#[test]
fn a_scale_set_works_as_recorded() {
    let settings = Settings { durations: Some(Durations::default()), ..Settings::default() };
    let mut azure = Azure::with(&Topology::ScaleSetManual.cluster(), settings);
    let id = compute("virtualMachineScaleSets/workers");
    let body = azure.get(&id);
    let fresh = compute("virtualMachineScaleSets/fresh");
    let mut without = body.clone();
    without.as_object_mut().expect("an object").retain(|name, _| name != "name" && name != "id");
    leave(of_scale_set(&mut without));
    let created = azure.put(&fresh, &without);
    assert_eq!((created.status, created.header("ETag")), (201, Some("\"1\"")), "interaction 5");
    assert_eq!(json_of(&created)["properties"]["provisioningState"], "Creating");
    assert!(created.header("Azure-AsyncOperation").is_some());
    assert_eq!(azure.wait(&created), "Succeeded");
    let repeated = azure.put(&id, &body);
    assert_eq!((repeated.status, repeated.header("ETag")), (200, Some("\"1\"")), "interaction 8");
    assert_eq!(json_of(&repeated)["properties"]["provisioningState"], "Updating");
    assert_eq!(azure.wait(&repeated), "Succeeded");
    let changed = azure.change(&id, |body| body["tags"] = json!({"a": "b"}));
    assert_eq!(changed.header("ETag"), Some("\"2\""));
}

#[test]
fn a_put_of_the_current_state_changes_nothing() {
    for topology in Topology::ALL {
        let mut azure = Azure::of(topology);
        if topology == Topology::LockedReadOnly {
            continue;
        }
        let ids = azure.model.ids();
        let before = azure.model.clone();
        for id in &ids {
            let answer = azure.change(id, |_| {});
            assert_eq!(answer.status, 200, "{id}: {}", String::from_utf8_lossy(&answer.body));
        }
        for id in &ids {
            assert_eq!(azure.model.json(id), before.json(id), "{}", topology.name());
        }
    }
}

#[test]
fn resources_are_listed_by_group_and_by_subscription_in_pages() {
    let settings = Settings { page_size: 2, ..Settings::default() };
    let mut azure = Azure::with(&Topology::ExternalAndInternal.cluster(), settings);
    let of_group = network("publicIPAddresses");
    let of_subscription = of_group.replace("/resourceGroups/rg", "");
    for list in [of_group, of_subscription] {
        let mut names = Vec::new();
        let mut page = azure.get(&list);
        loop {
            let values = page["value"].as_array().expect("a list").clone();
            assert!(values.len() <= 2);
            names.extend(values.iter().map(|one| text(one, "/name")));
            let Some(next) = page["nextLink"].as_str() else { break };
            let next = next.strip_prefix("https://management.azure.com").expect("the endpoint").to_owned();
            page = json_of(&get(&mut azure.model, &next, azure.now));
        }
        let wanted: Vec<String> = (0..10).filter(|at| at % 2 == 0).map(public_ip_name).collect();
        assert_eq!(names, wanted);
    }
    let of_set = compute("virtualMachines?$filter='virtualMachineScaleSet/id'%20eq%20'");
    let mut azure = Azure::of(Topology::Flexible);
    let flexible = azure.get(&format!("{of_set}{}'", compute("virtualMachineScaleSets/flex")));
    assert_eq!(flexible["value"].as_array().map(Vec::len), Some(2));
}

#[test]
fn tags_are_patched_and_the_rest_stays() {
    let mut azure = Azure::of(Topology::AvailabilitySet);
    for id in
        [address(&public_ip_name(0)), network("loadBalancers/kubernetes"), compute("availabilitySets/agents")]
    {
        let before = azure.get(&id);
        let answer = azure.call(Method::Patch, &id, &[], &json!({"tags": {"step": "3"}}));
        assert_eq!(answer.status, 200);
        let after = azure.get(&id);
        assert_eq!(
            (&after["tags"], &after["properties"]["ipAddress"]),
            (&json!({"step": "3"}), &before["properties"]["ipAddress"])
        );
    }
    let missing = azure.call(Method::Patch, &address("none"), &[], &json!({}));
    assert_eq!((missing.status, code(&missing).as_str()), (404, "ResourceNotFound"));
}

#[test]
fn a_missing_resource_is_404_and_an_unsupported_method_405() {
    let mut azure = Azure::of(Topology::AvailabilitySet);
    let mut answer = |method, id: &str| {
        let answer = azure.call(method, id, &[], &Value::Null);
        (answer.status, if answer.body.is_empty() { String::new() } else { code(&answer) })
    };
    let refused = |status, code: &str| (status, code.to_owned());
    assert_eq!(answer(Method::Get, &address("none")), refused(404, "ResourceNotFound"));
    assert_eq!(answer(Method::Delete, &address("none")), refused(204, ""));
    assert_eq!(answer(Method::Post, &address("none")), refused(405, "HttpMethodNotSupported"));
    let unknown = network("loadBalancers/kubernetes/reboot");
    assert_eq!(answer(Method::Post, &unknown), refused(404, "InvalidResourceType"));
    assert_eq!(
        answer(Method::Get, &network("networkInterfaces/agents-0-nic/nothing")),
        refused(404, "InvalidResourceType")
    );
    let group = network("publicIPAddresses").replace("/rg/", "/elsewhere/");
    assert_eq!(answer(Method::Get, &group), refused(404, "ResourceGroupNotFound"));
}

#[test]
fn a_group_shows_its_tags_and_usages_show_the_limits() {
    let mut azure = Azure::of(Topology::Aks);
    let group = azure.get(crate::support::GROUP);
    assert_eq!(text(&group, "/tags/aks-managed-cluster-name"), "production");
    let mut azure = Azure::of(Topology::QuotaExhausted);
    let usages = azure.get(&network("locations/eastus/usages").replace("/resourceGroups/rg", ""));
    let find = |name: &str| {
        let all = usages["value"].as_array().expect("a list");
        all.iter().find(|one| one["name"]["value"] == name).expect("it is listed")["limit"].clone()
    };
    assert_eq!(find("IPv4StandardSkuPublicIpAddresses"), json!(0));
}

#[test]
fn subnets_and_security_rules_are_written_alone() {
    let mut azure = Azure::of(Topology::StandardInterfaces);
    let rule = network("networkSecurityGroups/nodes-nsg/securityRules/probe");
    let body = json!({"properties": {"priority": 100, "direction": "Inbound", "access": "Allow",
        "protocol": "Tcp", "destinationPortRange": "30000"}});
    assert_eq!(azure.put(&rule, &body).status, 201);
    assert_eq!(azure.put(&rule, &body).status, 200);
    assert_eq!(azure.get(&rule)["properties"]["priority"], json!(100));
    let group = azure.get(&network("networkSecurityGroups/nodes-nsg"));
    assert_eq!(text(&group, "/properties/subnets/0/id"), subnet());
    assert_eq!(azure.delete(&rule).status, 200);
    assert_eq!(azure.delete(&rule).status, 204);
    let users = azure.get(&subnet())["properties"]["ipConfigurations"].as_array().map(Vec::len);
    assert_eq!(users, Some(4), "three instances and an internal frontend");
}

#[test]
fn a_frontend_serves_while_its_path_is_complete() {
    let mut azure = Azure::of(Topology::StandardInterfaces);
    let serves = |azure: &Azure| azure.model.frontend_serves("kubernetes", &frontend_name(0));
    assert!(serves(&azure));
    let rules = azure.get(&network("networkSecurityGroups/nodes-nsg"));
    azure.change(&network("networkSecurityGroups/nodes-nsg"), |body| {
        body["properties"]["securityRules"] = json!([])
    });
    assert!(!serves(&azure), "a Standard public frontend needs a security rule");
    azure.must_put(&network("networkSecurityGroups/nodes-nsg"), &rules);
    assert!(serves(&azure));
    for number in 0..3 {
        azure.model.set_deallocated(
            &compute(&format!("virtualMachineScaleSets/workers/virtualMachines/{number}")),
            true,
        );
    }
    assert!(!serves(&azure), "no member runs");
}

#[test]
fn a_write_that_fails_leaves_the_resource_failed_and_as_it_was() {
    let failing = Fault {
        target: FaultTarget::Any,
        every: 1,
        limit: Some(1),
        load_balancer: None,
        effect: FaultEffect::FailOperation {
            end: OperationFailure::Failed,
            code: "InternalServerError".to_owned(),
            message: "planned".to_owned(),
        },
    };
    let mut azure = Azure::of(Topology::ExternalDynamic);
    azure.model.reconfigure(|settings| {
        settings.operation = Some(Latency::Fixed { us: 5 * SECOND });
        settings.faults = vec![failing];
    });
    let id = address(&public_ip_name(0));
    let mut body = azure.model.json(&id).expect("it was seeded");
    body["properties"]["publicIPAllocationMethod"] = "Static".into();
    let answer = azure.put(&id, &body);
    assert_eq!(json_of(&answer)["properties"]["provisioningState"], "Updating");
    assert_eq!(azure.wait(&answer), "Failed");
    let after = azure.get(&id);
    assert_eq!(text(&after, "/properties/provisioningState"), "Failed");
    assert_eq!(text(&after, "/properties/publicIPAllocationMethod"), "Dynamic");
    let again = azure.put(&id, &body);
    assert_eq!(azure.wait(&again), "Succeeded");
    assert_eq!(text(&azure.get(&id), "/properties/publicIPAllocationMethod"), "Static");
}

#[test]
fn the_server_continues_without_clients() {
    let settings = Settings { durations: Some(Durations::default()), ..Settings::default() };
    let mut azure = Azure::with(&Topology::AvailabilitySet.cluster(), settings);
    let lb = network("loadBalancers/kubernetes");
    assert_eq!(azure.delete(&lb).status, 202);
    let early = azure.get(&lb);
    assert_eq!(text(&early, "/properties/provisioningState"), "Deleting");
    let attached = azure.get(&address(&public_ip_name(0)));
    assert!(attached["properties"]["ipConfiguration"].is_object(), "until the operation ends");
    let end = azure.model.deadline().expect("an operation runs");
    assert!(
        (60 * SECOND..150 * SECOND).contains(&(end - azure.now)),
        "a Basic load balancer takes over a minute"
    );
    azure.model.tick(end);
    azure.now = end;
    assert_eq!(azure.call(Method::Get, &lb, &[], &Value::Null).status, 404);
    let address = azure.get(&address(&public_ip_name(0)));
    assert!(
        address["properties"]["ipConfiguration"].is_null() && address["properties"]["ipAddress"].is_null()
    );
}

#[test]
fn pools_change_from_interfaces_to_addresses_one_by_one() {
    let settings = Settings { ip_migration_us: 5 * SECOND, ..Settings::default() };
    let mut azure = Azure::with(&Topology::StandardInterfaces.cluster(), settings);
    let lb = network("loadBalancers/kubernetes");
    let pool = format!("{lb}/backendAddressPools/kubernetes");
    let action = format!("{lb}/migrateToIpBased");
    let answer = azure.call(Method::Post, &action, &[], &json!({"pools": ["kubernetes"]}));
    assert_eq!(json_of(&answer), json!({"migratedPools": ["kubernetes"]}));
    let count = |azure: &mut Azure| {
        let shown = azure.get(&pool);
        let all = shown["properties"]["loadBalancerBackendAddresses"].as_array().expect("a list").clone();
        all.iter().filter(|one| one["properties"]["ipAddress"].is_string()).count()
    };
    assert_eq!(count(&mut azure), 0);
    azure.now += 5 * SECOND;
    assert_eq!(count(&mut azure), 1);
    azure.now += 10 * SECOND;
    assert_eq!(count(&mut azure), 3);
    let mut set = azure.get(&compute("virtualMachineScaleSets/workers"));
    let left = of_scale_set(&mut set)["properties"]["loadBalancerBackendAddressPools"].clone();
    assert!(
        left.to_string().contains(&pool),
        "the model of a scale set that is upgraded by hand keeps its reference"
    );
    let instance = compute("virtualMachineScaleSets/workers/virtualMachines/0");
    assert_eq!(azure.get(&instance)["properties"]["latestModelApplied"], json!(false));
    assert_eq!(azure.delete(&lb).status, 400, "and the model blocks");
    assert_eq!(azure.model.check_references(), Ok(()));
}

#[test]
fn a_new_public_ip_is_not_ready_at_once() {
    let mut azure = empty(Settings { durations: Some(Durations::default()), ..Settings::default() });
    let created = azure.put(&address("new"), &public_ip("Standard", "Static"));
    assert_eq!(
        (created.status, text(&json_of(&created), "/properties/provisioningState")),
        (201, "Updating".to_owned())
    );
    assert_eq!(azure.wait(&created), "Succeeded");
    let ready = azure.get(&address("new"));
    assert_eq!(text(&ready, "/properties/ddosSettings/protectionMode"), "VirtualNetworkInherited");
    let deleted = azure.delete(&address("new"));
    assert!(deleted.status == 202 && deleted.header("Location").is_some());
    assert_eq!(azure.wait(&deleted), "Succeeded");
}
