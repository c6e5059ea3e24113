//! The whole migration from Basic to Standard, step by step: the steps that the model refuses, and those that it
//! accepts.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use simulator_models::arm::topology::{
    Cluster, Frontend, NodeGroup, NodeKind, Service, Topology, UpgradePolicy, frontend_name, public_ip_name,
};
use simulator_models::arm::{Durations, Egress, Settings, Sku};

use crate::azure::{
    Azure, compute, internal_balancer, join, leave, network, of_instance, of_interface, of_scale_set,
};
use crate::support::text;

const BALANCERS: [&str; 2] = ["kubernetes", "kubernetes-internal"];

fn balancer(name: &str) -> String {
    network(&format!("loadBalancers/{name}"))
}

/// Returns the addresses of all frontends, public and private.
fn addresses(azure: &Azure) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for name in BALANCERS {
        let Some(lb) = azure.model.json(&balancer(name)) else { continue };
        for frontend in lb["properties"]["frontendIPConfigurations"].as_array().into_iter().flatten() {
            let properties = &frontend["properties"];
            let address = match properties["publicIPAddress"]["id"].as_str() {
                Some(id) => text(&azure.model.json(id).expect("it is there"), "/properties/ipAddress"),
                None => text(properties, "/privateIPAddress"),
            };
            found.insert(text(frontend, "/name"), address);
        }
    }
    found
}

/// Writes a resource (PUT), and waits if an operation was started.
fn write(azure: &mut Azure, id: &str, change: impl FnOnce(&mut Value)) {
    let answer = azure.change(id, change);
    assert!(answer.status < 300, "{id}: {}", String::from_utf8_lossy(&answer.body));
    if answer.header("Azure-AsyncOperation").is_some() {
        assert_eq!(azure.wait(&answer), "Succeeded", "{id}");
    }
}

fn ids(azure: &Azure, kind: &str) -> Vec<String> {
    azure.model.ids().into_iter().filter(|id| id.contains(kind)).collect()
}

fn instances(azure: &Azure) -> Vec<String> {
    let all = ids(azure, "/virtualMachineScaleSets/").into_iter();
    all.filter(|id| id.contains("/virtualMachines/")).collect()
}

/// Removes all members from the load balancers: models first.
fn detach(azure: &mut Azure) {
    for set in
        ids(azure, "/virtualMachineScaleSets/").into_iter().filter(|id| !id.contains("/virtualMachines/"))
    {
        write(azure, &set, |body| {
            let profile = &mut body["properties"]["virtualMachineProfile"]["networkProfile"];
            if let Some(profile) = profile.as_object_mut() {
                profile.shift_remove("healthProbe");
                leave(of_scale_set(body));
            }
        });
    }
    for instance in instances(azure) {
        write(azure, &instance, |body| leave(of_instance(body)));
    }
    for interface in ids(azure, "/networkInterfaces/") {
        write(azure, &interface, |body| leave(of_interface(body)));
    }
}

/// Returns the body of the Standard load balancer that replaces a Basic one.
fn standard(basic: &Value) -> Value {
    let mut body = basic.clone();
    body["sku"] = json!({"name": "Standard"});
    for frontend in body["properties"]["frontendIPConfigurations"].as_array_mut().into_iter().flatten() {
        if !frontend["properties"]["privateIPAddress"].is_null() {
            frontend["properties"]["privateIPAllocationMethod"] = "Static".into();
        }
    }
    for pool in body["properties"]["backendAddressPools"].as_array_mut().into_iter().flatten() {
        pool["properties"] = json!({});
    }
    body
}

fn migrate(azure: &mut Azure, topology: Topology) {
    let cluster = topology.cluster();
    let outside: Vec<(usize, bool)> = cluster
        .services
        .iter()
        .enumerate()
        .filter_map(|(at, service)| match service.frontend {
            Frontend::External { is_v6, .. } => Some((at, is_v6)),
            Frontend::Internal { .. } => None,
        })
        .collect();
    let address = |at: usize| network(&format!("publicIPAddresses/{}", public_ip_name(at)));
    for (at, _) in outside.iter().filter(|(_, is_v6)| !is_v6) {
        write(azure, &address(*at), |body| body["properties"]["publicIPAllocationMethod"] = "Static".into());
    }
    let bodies: Vec<(&str, Value)> = BALANCERS
        .into_iter()
        .filter_map(|name| Some((name, standard(&azure.model.json(&balancer(name))?))))
        .collect();
    let backup = azure.model.clone();
    detach(azure);
    for (name, _) in &bodies {
        let answer = azure.delete(&balancer(name));
        assert!(answer.status < 300, "{name}: {}", String::from_utf8_lossy(&answer.body));
        if answer.status == 202 {
            assert_eq!(azure.wait(&answer), "Succeeded");
        }
    }
    for (at, _) in &outside {
        write(azure, &address(*at), |body| {
            body["sku"] = json!({"name": "Standard"});
            body["properties"]["publicIPAllocationMethod"] = "Static".into();
        });
    }
    for (name, body) in &bodies {
        let answer = azure.put(&balancer(name), body);
        assert_eq!(answer.status, 201, "{name}: {}", String::from_utf8_lossy(&answer.body));
        if answer.header("Azure-AsyncOperation").is_some() {
            assert_eq!(azure.wait(&answer), "Succeeded");
        }
    }
    attach(azure, &backup);
}

/// Restores all members.
fn attach(azure: &mut Azure, before: &simulator_models::arm::ArmModel) {
    let was = |id: &str| before.json(id).expect("it was there");
    for set in
        ids(azure, "/virtualMachineScaleSets/").into_iter().filter(|id| !id.contains("/virtualMachines/"))
    {
        write(azure, &set, |body| *body = was(&set));
    }
    for instance in instances(azure) {
        write(azure, &instance, |body| *body = was(&instance));
    }
    for interface in ids(azure, "/networkInterfaces/") {
        write(azure, &interface, |body| *body = was(&interface));
    }
}

/// Clusters that can be migrated without losing an address.
const MIGRATABLE: [Topology; 11] = [
    Topology::AvailabilitySet,
    Topology::ScaleSetManual,
    Topology::ScaleSetAutomatic,
    Topology::ScaleSetEmpty,
    Topology::Flexible,
    Topology::Standalone,
    Topology::InternalStatic,
    Topology::ExternalAndInternal,
    Topology::NatRules,
    Topology::NatPools,
    Topology::HealthProbe,
];

#[test]
fn the_proposed_order_migrates_and_keeps_every_address() {
    for topology in MIGRATABLE {
        for settings in
            [Settings::default(), Settings { durations: Some(Durations::default()), ..Settings::default() }]
        {
            let mut azure = Azure::with(&topology.cluster(), settings);
            let before = addresses(&azure);
            migrate(&mut azure, topology);
            assert_eq!(addresses(&azure), before, "{}", topology.name());
            assert_eq!(azure.model.check_references(), Ok(()), "{}", topology.name());
            assert_eq!(azure.model.restarts(), 0, "{}", topology.name());
            for (at, service) in topology.cluster().services.iter().enumerate() {
                let name = match service.frontend {
                    Frontend::External { .. } => "kubernetes",
                    Frontend::Internal { .. } => "kubernetes-internal",
                };
                let serves = azure.model.frontend_serves(name, &frontend_name(at));
                assert_eq!(serves, topology != Topology::ScaleSetEmpty, "{} {at}", topology.name());
            }
        }
    }
}

#[test]
fn a_dynamic_address_is_lost_with_its_load_balancer() {
    for (is_static, stays) in [(true, true), (false, false)] {
        let mut azure = Azure::of(Topology::ExternalDynamic);
        let id = network(&format!("publicIPAddresses/{}", public_ip_name(0)));
        if is_static {
            write(&mut azure, &id, |body| body["properties"]["publicIPAllocationMethod"] = "Static".into());
        }
        let before = azure.get(&id);
        detach(&mut azure);
        assert_eq!(azure.delete(&balancer("kubernetes")).status, 200);
        let after = azure.get(&id);
        assert_eq!(after["properties"]["ipAddress"] == before["properties"]["ipAddress"], stays);
        assert!(after["properties"]["ipConfiguration"].is_null(), "nothing uses it");
        assert_ne!(after["etag"], before["etag"], "its user was removed");
    }
}

#[test]
fn an_ipv6_address_changes_on_the_way() {
    let mut azure = Azure::of(Topology::Ipv6);
    let before = addresses(&azure);
    migrate(&mut azure, Topology::Ipv6);
    let after = addresses(&azure);
    assert_eq!(after[&frontend_name(0)], before[&frontend_name(0)]);
    assert_ne!(after[&frontend_name(1)], before[&frontend_name(1)]);
}

#[test]
fn standalone_interfaces_lose_references_with_the_load_balancer() {
    let mut azure = Azure::of(Topology::NatRules);
    let interface = network("networkInterfaces/agents-0-nic");
    let rule = azure.get(&balancer("kubernetes"))["properties"]["inboundNatRules"][0].clone();
    let user = format!("{interface}/ipConfigurations/ipconfig1");
    assert_eq!(text(&rule, "/properties/backendIPConfiguration/id"), user);
    let before = azure.get(&interface);
    assert_eq!(azure.delete(&balancer("kubernetes")).status, 200);
    let mut after = azure.get(&interface);
    assert_ne!(after["etag"], before["etag"]);
    let left = &of_interface(&mut after)["properties"];
    assert_eq!(left["loadBalancerInboundNatRules"], json!([]));
    let internal =
        json!([{"id": format!("{}/backendAddressPools/kubernetes", balancer("kubernetes-internal"))}]);
    assert_eq!(left["loadBalancerBackendAddressPools"], internal);
    assert_eq!(azure.model.check_references(), Ok(()));
}

#[test]
fn a_rival_takes_the_address_of_an_internal_frontend_in_the_gap() {
    let ip = "10.240.0.100";
    for (after_s, taken) in [(1, true), (3600, false)] {
        let mut azure = Azure::of(Topology::InternalStatic);
        azure.model.plan_address_taker(ip.parse().expect("an address"), after_s * 1_000_000);
        let body = standard(&azure.get(&balancer("kubernetes-internal")));
        detach(&mut azure);
        assert_eq!(azure.delete(&balancer("kubernetes-internal")).status, 200);
        let check = network(&format!("virtualNetworks/vnet/CheckIPAddressAvailability?ipAddress={ip}"));
        let free = azure.get(&check);
        azure.now += 2_000_000;
        let answer = azure.put(&balancer("kubernetes-internal"), &body);
        assert_eq!(answer.status, if taken { 400 } else { 201 }, "{}", String::from_utf8_lossy(&answer.body));
        if taken {
            assert_eq!(crate::support::code(&answer), "PrivateIPAddressIsAllocated");
            assert_eq!(azure.get(&check)["available"], json!(false));
        } else {
            assert_eq!(free["available"], json!(true));
        }
    }
}

#[test]
fn a_freed_address_can_be_held_for_a_while() {
    let settings = Settings { address_hold_us: 30_000_000, ..Settings::default() };
    let mut azure = Azure::with(&Topology::InternalStatic.cluster(), settings);
    let body = standard(&azure.get(&balancer("kubernetes-internal")));
    detach(&mut azure);
    azure.delete(&balancer("kubernetes-internal"));
    let early = azure.put(&balancer("kubernetes-internal"), &body);
    assert_eq!(crate::support::code(&early), "PrivateIPAddressIsAllocated");
    azure.now += 30_000_000;
    assert_eq!(azure.put(&balancer("kubernetes-internal"), &body).status, 201);
}

#[test]
fn a_scale_set_blocks_deletion_by_model_and_instances() {
    let set = compute("virtualMachineScaleSets/workers");
    let mut azure = Azure::of(Topology::ScaleSetManual);
    let refused = |azure: &mut Azure| {
        let answer = azure.delete(&balancer("kubernetes"));
        assert!(String::from_utf8_lossy(&answer.body).contains(&set) || answer.status < 300);
        answer.status
    };
    assert_eq!(refused(&mut azure), 400, "the model refers to it");
    write(&mut azure, &set, |body| leave(of_scale_set(body)));
    assert_eq!(refused(&mut azure), 400, "the instances do");
    for (at, instance) in instances(&azure).into_iter().enumerate() {
        assert_eq!(refused(&mut azure), 400, "instance {at} does");
        write(&mut azure, &instance, |body| leave(of_instance(body)));
    }
    assert_eq!(refused(&mut azure), 200);
    assert_eq!(refused(&mut azure), 204, "a second time");
}

#[test]
fn the_blocking_part_of_a_scale_set_is_a_setting() {
    let lenient = |change: fn(&mut Settings)| {
        let mut settings = Settings { in_use_status: 409, ..Settings::default() };
        change(&mut settings);
        settings
    };
    let set = compute("virtualMachineScaleSets/workers");
    let mut azure =
        Azure::with(&Topology::ScaleSetManual.cluster(), lenient(|it| it.scale_set_blocks.instances = false));
    assert_eq!(azure.delete(&balancer("kubernetes")).status, 409);
    write(&mut azure, &set, |body| leave(of_scale_set(body)));
    assert_eq!(azure.delete(&balancer("kubernetes")).status, 200);

    let all = lenient(|it| {
        it.scale_set_blocks.model = false;
        it.scale_set_blocks.instances = false;
    });
    let mut azure = Azure::with(&Topology::HealthProbe.cluster(), all.clone());
    assert_eq!(azure.delete(&balancer("kubernetes")).status, 409, "the health probe blocks");
    let mut azure = Azure::with(&Topology::NatPools.cluster(), all);
    assert_eq!(azure.delete(&balancer("kubernetes")).status, 409, "the NAT pool blocks");
}

#[test]
fn a_failed_write_of_a_member_succeeds_with_the_same_body() {
    let mut azure = Azure::of(Topology::AvailabilitySet);
    let interface = network("networkInterfaces/agents-1-nic");
    azure.model.fail_resource(&interface);
    assert_eq!(azure.get(&interface)["properties"]["provisioningState"], "Failed");
    write(&mut azure, &interface, |_| {});
    assert_eq!(azure.get(&interface)["properties"]["provisioningState"], "Succeeded");
    assert_eq!(azure.delete(&balancer("kubernetes")).status, 200);
}

#[test]
fn automatic_upgrades_need_no_write_of_instances() {
    for policy in [UpgradePolicy::Automatic, UpgradePolicy::Rolling] {
        let mut cluster = Topology::ScaleSetAutomatic.cluster();
        cluster.nodes[0].kind = NodeKind::ScaleSet(policy);
        let mut azure = Azure::with(&cluster, Settings::default());
        write(&mut azure, &compute("virtualMachineScaleSets/workers"), |body| leave(of_scale_set(body)));
        assert_eq!(azure.delete(&balancer("kubernetes")).status, 200);
        assert_eq!(azure.model.restarts(), 0);
    }
}

#[test]
fn machines_reach_the_internet_by_their_resources() {
    let interface = network("networkInterfaces/agents-0-nic");
    let mut azure = Azure::of(Topology::AvailabilitySet);
    assert_eq!(azure.model.egress(&interface, "Tcp"), Egress::ImplicitSnat);
    assert_eq!(azure.model.egress(&interface, "Udp"), Egress::Absent, "no rule is about UDP");
    azure.model.reconfigure(|settings| settings.default_outbound = true);
    assert_eq!(azure.model.egress(&interface, "Udp"), Egress::Default);
    let own = Azure::of(Topology::InstancePublicIp);
    assert_eq!(own.model.egress(&interface, "Udp"), Egress::PublicIp);

    let standard = |change: fn(&mut Cluster)| {
        let mut cluster = Topology::AvailabilitySet.cluster();
        cluster.sku = Sku::Standard;
        cluster.services = vec![Service::external(true)];
        change(&mut cluster);
        let settings = Settings { default_outbound: true, ..Settings::default() };
        Azure::with(&cluster, settings).model.egress(&interface, "Udp")
    };
    assert_eq!(standard(|_| {}), Egress::Absent, "a Standard load balancer ends the default");
    assert_eq!(standard(|cluster| cluster.outbound_rule = true), Egress::OutboundRule);
    assert_eq!(standard(|cluster| cluster.nat_gateway = true), Egress::NatGateway);
}

#[test]
fn an_availability_set_refuses_a_machine_of_another_sku() {
    let mut cluster = Topology::AvailabilitySet.cluster();
    let alone = NodeGroup { in_pools: false, ..NodeGroup::new("alone", NodeKind::Standalone, 1) };
    cluster.nodes.push(alone);
    let mut azure = Azure::with(&cluster, Settings::default());
    azure.must_put(&balancer("standard"), &internal_balancer("standard", "Standard", None));
    write(&mut azure, &network("networkInterfaces/alone-0-nic"), |body| join(of_interface(body), "standard"));
    let refused = azure.change(&compute("virtualMachines/alone-0"), |body| {
        body["properties"]["availabilitySet"] = json!({"id": compute("availabilitySets/agents")});
    });
    assert_eq!(crate::support::code(&refused), "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed");
}
