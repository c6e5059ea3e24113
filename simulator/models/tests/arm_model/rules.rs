//! Every rule between Basic and Standard, and every other refusal that may affect a migration, compared with the
//! table of codes in `fixtures/rules.json`, which names the source of each.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use simulator_models::arm::topology::{
    Cluster, NodeGroup, NodeKind, Service, Topology, UpgradePolicy, frontend_name, public_ip_name,
};
use simulator_models::arm::{Durations, Method, Permission, Response, Settings, Sku};

use crate::azure::{
    Azure, compute, internal_balancer, join, leave, network, of_interface, of_scale_set, public_ip, subnet,
};
use crate::support::json_of;

const STATIC: Topology = Topology::InstancePublicIp;

fn balancer(name: &str) -> String {
    network(&format!("loadBalancers/{name}"))
}

fn address(name: &str) -> String {
    network(&format!("publicIPAddresses/{name}"))
}

fn interface(name: &str) -> String {
    network(&format!("networkInterfaces/{name}"))
}

fn workers() -> String {
    compute("virtualMachineScaleSets/workers")
}

/// Returns a cluster with a seeded Basic public IP `spare` that nothing uses.
fn with_spare(method: &str) -> Azure {
    let mut azure = Azure::of(Topology::AvailabilitySet);
    azure.model.seed(&address("spare"), &public_ip("Basic", method)).expect("it is taken");
    azure
}

/// Returns a cluster with a Standard load balancer `standard` in addition to the Basic ones.
fn beside_standard(topology: Topology) -> Azure {
    let mut azure = Azure::of(topology);
    azure.must_put(&balancer("standard"), &internal_balancer("standard", "Standard", None));
    azure
}

fn external(port: u16) -> Value {
    json!({"name": format!("front-{port}"), "properties": {"publicIPAddress": {"id": address("spare")}}})
}

/// Name of a case, and its request.
type Case = (&'static str, fn() -> Response);

const PUBLIC_IPS: [Case; 12] = [
    ("public-ip-upgrade-in-use", || {
        Azure::of(STATIC).change(&address("agents-0-pip"), |body| body["sku"] = json!({"name": "Standard"}))
    }),
    ("public-ip-standard-dynamic", || {
        with_spare("Dynamic").put(&address("spare"), &public_ip("Standard", "Dynamic"))
    }),
    ("public-ip-v6-static", || {
        let settings = Settings { basic_retired: false, ..Settings::default() };
        let mut body = public_ip("Basic", "Static");
        body["properties"]["publicIPAddressVersion"] = "IPv6".into();
        Azure::with(&Cluster::default(), settings).put(&address("six"), &body)
    }),
    ("public-ip-downgrade", || {
        let mut azure = Azure::of(Topology::AvailabilitySet);
        azure.must_put(&address("new"), &public_ip("Standard", "Static"));
        azure.put(&address("new"), &public_ip("Basic", "Static"))
    }),
    ("public-ip-delete-in-use", || Azure::of(STATIC).delete(&address(&public_ip_name(0)))),
    ("public-ip-twice", || {
        let taken = address(&public_ip_name(0));
        let mut azure = Azure::of(Topology::AvailabilitySet);
        azure.change(&interface("agents-0-nic"), |body| {
            of_interface(body)["properties"]["publicIPAddress"] = json!({ "id": taken });
        })
    }),
    ("public-ip-zones-on-basic", || {
        let mut azure = with_spare("Static");
        azure.change(&address("spare"), |body| body["zones"] = json!(["1"]))
    }),
    ("public-ip-basic-retired", || {
        Azure::of(Topology::AvailabilitySet).put(&address("new"), &public_ip("Basic", "Static"))
    }),
    ("public-ip-standard-limit", || {
        let mut azure = Azure::of(Topology::QuotaExhausted);
        azure.model.seed(&address("spare"), &public_ip("Basic", "Static")).expect("it is taken");
        azure.put(&address("spare"), &public_ip("Standard", "Static"))
    }),
    ("etag-stale-network", || {
        let mut azure = Azure::of(Topology::AvailabilitySet);
        let id = address(&public_ip_name(0));
        let body = azure.get(&id);
        azure.call(Method::Put, &id, &[("If-Match", "invalid")], &body)
    }),
    ("operation-runs-network", || {
        let settings = Settings { durations: Some(Durations::default()), ..Settings::default() };
        let mut azure = Azure::with(&Cluster::default(), settings);
        azure.must_put(&address("new"), &public_ip("Standard", "Static"));
        azure.change(&address("new"), |body| body["tags"] = json!({"a": "b"}))
    }),
    ("balancer-public-ip-not-ready", || {
        let settings = Settings { durations: Some(Durations::default()), ..Settings::default() };
        let mut azure = Azure::with(&Topology::AvailabilitySet.cluster(), settings);
        azure.must_put(&address("spare"), &public_ip("Standard", "Static"));
        let mut body = internal_balancer("standard", "Standard", None);
        body["properties"]["frontendIPConfigurations"][0] = external(80);
        body["properties"]["loadBalancingRules"] = json!([]);
        azure.put(&balancer("standard"), &body)
    }),
];

const BALANCERS: [Case; 16] = [
    ("balancer-sku-change", || {
        Azure::of(Topology::AvailabilitySet)
            .change(&balancer("kubernetes"), |body| body["sku"] = json!({"name": "Standard"}))
    }),
    ("balancer-and-public-ip-sku", || {
        let mut azure = with_spare("Static");
        let mut body = internal_balancer("standard", "Standard", None);
        body["properties"]["frontendIPConfigurations"][0] = external(80);
        body["properties"]["loadBalancingRules"] = json!([]);
        azure.put(&balancer("standard"), &body)
    }),
    ("balancer-delete-in-use", || Azure::of(Topology::ScaleSetEmpty).delete(&balancer("kubernetes"))),
    ("balancer-pool-in-use", || {
        Azure::of(Topology::ScaleSetManual).change(&balancer("kubernetes-internal"), |body| {
            body["properties"]["loadBalancingRules"] = json!([]);
            body["properties"]["backendAddressPools"] = json!([]);
        })
    }),
    ("balancer-nat-pool-in-use", || {
        Azure::of(Topology::NatPools)
            .change(&balancer("kubernetes"), |body| body["properties"]["inboundNatPools"] = json!([]))
    }),
    ("balancer-probe-in-use", || {
        Azure::of(Topology::HealthProbe)
            .change(&balancer("kubernetes"), |body| body["properties"]["loadBalancingRules"] = json!([]))
    }),
    ("balancer-member-failed", || {
        let mut azure = Azure::of(Topology::AvailabilitySet);
        azure.model.fail_resource(&interface("agents-1-nic"));
        azure.delete(&balancer("kubernetes"))
    }),
    ("balancer-without-frontend", || {
        Azure::of(Topology::NatRules).change(&balancer("kubernetes"), |body| {
            body["properties"]["frontendIPConfigurations"] = json!([]);
            body["properties"]["loadBalancingRules"] = json!([]);
        })
    }),
    ("balancer-two-outbound-rules", || {
        let mut azure = Azure::of(Topology::StandardInterfaces);
        let id = balancer("kubernetes");
        azure.change(&id, |body| {
            let front = json!([{"id": format!("{id}/frontendIPConfigurations/{}", frontend_name(0))}]);
            let pool = json!({"id": format!("{id}/backendAddressPools/kubernetes")});
            let rule = |name: &str| {
                json!({"name": name, "properties": {"protocol": "All",
                "frontendIPConfigurations": front, "backendAddressPool": pool}})
            };
            body["properties"]["outboundRules"] = json!([rule("one"), rule("two")]);
        })
    }),
    ("balancer-zones-on-basic", || {
        Azure::of(Topology::AvailabilitySet).change(&balancer("kubernetes-internal"), |body| {
            body["properties"]["frontendIPConfigurations"][0]["zones"] = json!(["1"]);
        })
    }),
    ("balancer-basic-retired", || {
        Azure::of(Topology::AvailabilitySet).put(&balancer("new"), &internal_balancer("new", "Basic", None))
    }),
    ("balancer-limit", || {
        let settings = Settings { standard_load_balancer_limit: 0, ..Settings::default() };
        let mut azure = Azure::with(&Topology::AvailabilitySet.cluster(), settings);
        azure.put(&balancer("new"), &internal_balancer("new", "Standard", None))
    }),
    ("balancer-ip-members-on-basic", || {
        let pool = format!("{}/backendAddressPools/kubernetes", balancer("kubernetes"));
        let members = json!([{"name": "node", "properties": {"ipAddress": "10.240.0.4"}}]);
        let mut azure = Azure::of(Topology::ScaleSetEmpty);
        azure.put(&pool, &json!({"properties": {"loadBalancerBackendAddresses": members}}))
    }),
    ("balancer-migrate-on-basic", || {
        let action = format!("{}/migrateToIpBased", balancer("kubernetes"));
        Azure::of(Topology::AvailabilitySet).call(
            Method::Post,
            &action,
            &[],
            &json!({"pools": ["kubernetes"]}),
        )
    }),
    ("dangling-reference", || {
        let mut azure = Azure::of(Topology::AvailabilitySet);
        azure.change(&balancer("kubernetes-internal"), |body| {
            let front = &mut body["properties"]["frontendIPConfigurations"][0]["properties"];
            front["subnet"] = json!({"id": format!("{}x", subnet())});
        })
    }),
    ("locked", || {
        Azure::of(Topology::LockedReadOnly).put(&balancer("new"), &internal_balancer("new", "Standard", None))
    }),
];

const MEMBERS: [Case; 13] = [
    ("interface-both-skus", || {
        beside_standard(Topology::AvailabilitySet)
            .change(&interface("agents-0-nic"), |body| join(of_interface(body), "standard"))
    }),
    ("interface-both-skus", || {
        beside_standard(Topology::AvailabilitySet).change(&interface("agents-0-nic"), |body| {
            leave(of_interface(body));
            join(of_interface(body), "standard");
        })
    }),
    ("interface-both-skus", || {
        let mut azure = Azure::of(Topology::AvailabilitySet);
        azure.must_put(&address("new"), &public_ip("Standard", "Static"));
        azure.change(&interface("agents-0-nic"), |body| {
            of_interface(body)["properties"]["publicIPAddress"] = json!({"id": address("new")});
        })
    }),
    ("scale-set-both-skus", || {
        beside_standard(Topology::ScaleSetManual)
            .change(&workers(), |body| join(of_scale_set(body), "standard"))
    }),
    ("scale-set-both-skus", || {
        let mut azure = beside_standard(Topology::ScaleSetManual);
        azure.change(&workers(), |body| leave(of_scale_set(body)));
        azure.change(&workers(), |body| join(of_scale_set(body), "standard"))
    }),
    ("scale-set-public-ip-sku", || {
        Azure::of(Topology::ScaleSetPublicIp).change(&workers(), |body| {
            of_scale_set(body)["properties"]["publicIPAddressConfiguration"]["sku"] =
                json!({"name": "Standard"});
        })
    }),
    ("other-availability-set", || {
        let outside = NodeGroup { in_pools: false, ..NodeGroup::new("others", NodeKind::AvailabilitySet, 1) };
        let mut cluster = Topology::AvailabilitySet.cluster();
        cluster.nodes.push(outside);
        let mut azure = Azure::with(&cluster, Settings::default());
        let pool = json!([{"id": network("loadBalancers/kubernetes/backendAddressPools/kubernetes")}]);
        azure.change(&interface("others-0-nic"), |body| {
            of_interface(body)["properties"]["loadBalancerBackendAddressPools"] = pool;
        })
    }),
    ("flexible-behind-basic", || {
        let pool = json!([{"id": network("loadBalancers/kubernetes/backendAddressPools/kubernetes")}]);
        Azure::of(Topology::Flexible).change(&interface("flex-0-nic"), |body| {
            of_interface(body)["properties"]["loadBalancerBackendAddressPools"] = pool;
        })
    }),
    ("secondary-and-outbound-rule", || {
        let nodes =
            vec![NodeGroup { secondary: true, ..NodeGroup::new("agents", NodeKind::AvailabilitySet, 1) }];
        let services = vec![Service::external(true)];
        let cluster =
            Cluster { sku: Sku::Standard, nodes, services, outbound_rule: true, ..Cluster::default() };
        let pool = json!([{"id": network("loadBalancers/kubernetes/backendAddressPools/kubernetes")}]);
        Azure::with(&cluster, Settings::default()).change(&interface("agents-0-nic"), |body| {
            body["properties"]["ipConfigurations"][1]["properties"]["loadBalancerBackendAddressPools"] = pool;
        })
    }),
    ("mixed-membership", || {
        let mut azure = beside_standard(Topology::Flexible);
        let pool = format!("{}/backendAddressPools/pool", balancer("standard"));
        let members = json!([{"name": "node", "properties": {"ipAddress": "10.240.0.200"}}]);
        azure.must_put(&pool, &json!({"properties": {"loadBalancerBackendAddresses": members}}));
        azure.change(&interface("flex-0-nic"), |body| join(of_interface(body), "standard"))
    }),
    ("missing-right", || {
        let not_actions = vec!["*/join/action".to_owned()];
        let permissions = vec![Permission { actions: vec!["*".to_owned()], not_actions }];
        let settings = Settings { permissions, ..Settings::default() };
        let mut azure = Azure::with(&Topology::AvailabilitySet.cluster(), settings);
        azure.change(&interface("agents-0-nic"), |body| leave(of_interface(body)))
    }),
    ("etag-stale-compute", || {
        let mut azure = Azure::of(Topology::ScaleSetManual);
        let body = azure.get(&workers());
        azure.call(Method::Put, &workers(), &[("If-Match", "\"99\"")], &body)
    }),
    ("operation-runs-compute", || {
        let settings = Settings { durations: Some(Durations::default()), ..Settings::default() };
        let mut azure = Azure::with(&Topology::ScaleSetManual.cluster(), settings);
        azure.change(&workers(), |body| leave(of_scale_set(body)));
        azure.change(&format!("{}/virtualMachines/0", workers()), |body| body["tags"] = json!({"a": "b"}))
    }),
];

const NETWORKS: [Case; 11] = [
    ("private-address-taken", || {
        Azure::of(Topology::InternalStatic)
            .put(&balancer("new"), &internal_balancer("new", "Standard", Some("10.240.0.100")))
    }),
    ("private-address-twice", || {
        let mut body = internal_balancer("new", "Standard", Some("10.240.0.101"));
        let mut second = body["properties"]["frontendIPConfigurations"][0].clone();
        second["name"] = "second".into();
        body["properties"]["frontendIPConfigurations"].as_array_mut().expect("a list").push(second);
        Azure::of(Topology::InternalStatic).put(&balancer("new"), &body)
    }),
    ("private-address-outside", || {
        Azure::of(Topology::InternalStatic)
            .put(&balancer("new"), &internal_balancer("new", "Standard", Some("192.168.0.1")))
    }),
    ("nat-gateway-and-basic", || {
        let mut azure = Azure::of(Topology::AvailabilitySet);
        let gateway = network("natGateways/egress");
        azure.must_put(&gateway, &json!({"location": "eastus", "sku": {"name": "Standard"}}));
        azure.change(&subnet(), |body| body["properties"]["natGateway"] = json!({ "id": gateway }))
    }),
    ("nat-gateway-and-basic", || {
        let set = NodeKind::ScaleSet(UpgradePolicy::Manual);
        let node = NodeGroup { in_pools: false, ..NodeGroup::new("workers", set, 1) };
        let cluster =
            Cluster { sku: Sku::Standard, nodes: vec![node], nat_gateway: true, ..Cluster::default() };
        Azure::with(&cluster, Settings::default()).change(&workers(), |body| {
            of_scale_set(body)["properties"]["publicIPAddressConfiguration"] = json!({"name": "pip"});
        })
    }),
    ("nat-gateway-in-use", || {
        let cluster = Cluster { sku: Sku::Standard, nat_gateway: true, ..Cluster::default() };
        Azure::with(&cluster, Settings::default()).delete(&network("natGateways/egress"))
    }),
    ("interface-in-use", || Azure::of(Topology::AvailabilitySet).delete(&interface("agents-0-nic"))),
    ("subnet-in-use", || Azure::of(Topology::AvailabilitySet).delete(&subnet())),
    ("security-group-in-use", || {
        Azure::of(Topology::AvailabilitySet).delete(&network("networkSecurityGroups/nodes-nsg"))
    }),
    ("availability-set-in-use", || {
        Azure::of(Topology::AvailabilitySet).delete(&compute("availabilitySets/agents"))
    }),
    ("locked", || Azure::of(Topology::LockedDelete).delete(&balancer("kubernetes"))),
];

#[test]
fn every_rule_has_the_status_and_the_code_of_the_table() {
    let table: Value = serde_json::from_str(include_str!("fixtures/rules.json")).expect("the table is JSON");
    let entries = table["rules"].as_array().expect("the table has rules");
    let mut unmet: BTreeMap<&str, &Value> =
        entries.iter().map(|entry| (entry["rule"].as_str().expect("a rule has a name"), entry)).collect();
    assert_eq!(unmet.len(), entries.len(), "each rule is listed once");
    for entry in entries {
        let origin = entry["origin"].as_str().expect("a rule has an origin");
        assert!(["recorded", "issue", "documentation", "ours"].contains(&origin), "{entry}");
        assert_eq!(origin != "ours", !entry["source"].is_null(), "what is not ours has a source: {entry}");
    }
    let known = unmet.clone();
    for (rule, case) in PUBLIC_IPS.iter().chain(&BALANCERS).chain(&MEMBERS).chain(&NETWORKS) {
        let answer = case();
        let body = json_of(&answer);
        let entry = known.get(rule).unwrap_or_else(|| panic!("{rule} is not in the table"));
        let ours = json!({"status": answer.status, "code": body["error"]["code"],
            "detail": body["error"]["details"][0]["code"]});
        let theirs = json!({"status": entry["status"], "code": entry["code"], "detail": entry["detail"]});
        assert_eq!(ours, theirs, "{rule}: {body}");
        unmet.remove(rule);
    }
    assert!(unmet.is_empty(), "rules without a case: {:?}", unmet.keys());
}
