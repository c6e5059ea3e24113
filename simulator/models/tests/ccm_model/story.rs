//! Whole stories of Services, from creation to deletion, with both models on one clock.

use proptest::prelude::*;
use serde_json::json;
use simulator_models::arm::{self, ConcurrentWrite, Fault, FaultEffect, FaultTarget, Latency};
use simulator_models::ccm::{CallTarget, Settings, Verb};
use simulator_models::kube::Resource;
use simulator_models::kube::build::{self, Endpoint, Family};

use crate::support::{SECOND, World, quiet};

/// Returns the name prefix of the rules of `demo/web`.
fn prefix(name: &str) -> String {
    let uid = build::uid("Service", "demo", name).replace('-', "");
    format!("a{uid}")[..32].to_owned()
}

fn rules(world: &mut World, lb: &str) -> Vec<(String, String)> {
    let path = format!(
        "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg/providers/Microsoft.Network/loadBalancers/{lb}?api-version=2025-05-01"
    );
    let request = arm::Request {
        method: arm::Method::Get,
        path_and_query: path,
        headers: Vec::new(),
        body: Vec::new(),
    };
    let arm::Reply::Answer(response) = world.arm.handle(&request, world.now) else { panic!("an answer") };
    let body: serde_json::Value = serde_json::from_slice(&response.body).expect("JSON");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let rules = body["properties"]["loadBalancingRules"].as_array().cloned().unwrap_or_default();
    rules
        .iter()
        .map(|rule| {
            let pool = text(&rule["properties"]["backendAddressPool"]["id"]);
            (text(&rule["name"]), pool.rsplit('/').next().unwrap_or_default().to_owned())
        })
        .collect()
}

#[test]
fn z1_a_new_service_gets_rules_and_pool_and_follows_endpoints() {
    let mut world = World::new(Settings::default());
    world.begin();
    world.run_until_idle();
    assert_eq!(rules(&mut world, "lb"), [(format!("{}-TCP-80", prefix("web")), "demo-web".to_owned())]);
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.1"]));
    let service = world.kube.get(Resource::Services, "demo", "web").expect("web");
    assert_eq!(service["status"]["loadBalancer"]["ingress"].as_array().map(Vec::len), Some(1));
    assert_eq!(world.events("EnsuredLoadBalancer"), [("Ensured load balancer".to_owned(), 1)]);
    // The endpoints move right after a tick.
    world.run(2 * SECOND);
    let drains = world.ccms[0].counters().drains;
    let tick = world.ccms[0].deadline().expect("a tick");
    world.run(tick - world.now + SECOND);
    world.slice("web", 0, &["n2", "n3"]);
    world.run(28 * SECOND);
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.1"]), "nothing before the tick");
    world.run(2 * SECOND);
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.2", "10.0.0.3"]));
    assert_eq!(world.ccms[0].counters().drains, drains + 1);
    let updated = world.events("LoadBalancerBackendPoolUpdated");
    assert_eq!(updated, [("Load balancer backend pool updated successfully".to_owned(), 1)]);
}

#[test]
fn z1_only_the_balancer_is_written_with_an_etag() {
    let mut world = World::new(quiet());
    world.begin();
    world.run_until_idle();
    world.apply(build::service("demo", "api", &[443], &[Family::V4]));
    world.slice("api", 0, &["n2"]);
    let before = world.trace.len();
    world.run_until_idle();
    let azure: Vec<_> =
        world.trace[before..].iter().filter(|(_, call, _)| call.side == CallTarget::Arm).collect();
    let calls: Vec<(Verb, bool)> = azure
        .iter()
        .map(|(_, call, _)| (call.verb, call.headers.iter().any(|(name, _)| name == "if-match")))
        .collect();
    // The slice came after the Service: every node was added, and 10252 keeps it so until the slice changes.
    assert_eq!(calls, [(Verb::Get, false), (Verb::Put, true), (Verb::Get, false), (Verb::Put, false)]);
    let pool_put = azure[3].1.body.as_ref().expect("a body");
    assert!(pool_put["etag"].is_string(), "the etag travels in the body");
    let counters = world.arm.counters();
    assert_eq!((counters.pool_puts, counters.load_balancer_gets), (0, 0), "{counters:?}");
    // Two of its reads for each Service, and one when the nodes were synchronised.
    assert_eq!((counters.foreign_writes, counters.foreign_reads), (4, 5));
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.1"]), "the PUT of the balancer kept its pool");
}

#[test]
fn z1_a_service_without_slices_gets_every_allowed_node() {
    let mut world = World::new(quiet());
    world.begin();
    world.apply(build::node(
        "out",
        &["10.0.0.9"],
        &[("node.kubernetes.io/exclude-from-external-load-balancers", "")],
        true,
        &[],
    ));
    world.apply(build::node(
        "cp",
        &["10.0.0.8"],
        &[("node-role.kubernetes.io/control-plane", "")],
        true,
        &[],
    ));
    world.service("bare");
    world.run_until_idle();
    assert_eq!(world.ips("lb", "demo-bare"), Some(vec!["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
}

#[test]
fn z1_the_main_loop_takes_all_slices_and_ignores_conditions() {
    let mut world = World::new(quiet());
    for (name, ip) in [("n1", "10.0.0.1"), ("n2", "10.0.0.2"), ("n3", "10.0.0.3")] {
        world.node(name, &[ip]);
    }
    let endpoints = [Endpoint::starting("n1"), Endpoint::draining("n2")];
    world.apply(build::endpoint_slice("demo", "web", 0, &endpoints, Family::V4));
    world.slice("web", 1, &["N3"]);
    world.service("web");
    world.run_until_idle();
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
}

#[test]
fn z1_a_dual_stack_service_has_two_pools_with_named_rules() {
    let mut world = World::new(quiet());
    world.node("n1", &["10.0.0.1", "fd00::1"]);
    world.slice("web", 0, &["n1"]);
    world.apply(build::service("demo", "web", &[80, 443], &[Family::V4, Family::V6]));
    world.run_until_idle();
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.1"]));
    assert_eq!(world.ips("lb", "demo-web-ipv6"), Some(vec!["fd00::1"]));
    let names: Vec<String> = rules(&mut world, "lb").into_iter().map(|(name, _)| name).collect();
    let expected = ["TCP-80", "TCP-443", "TCP-80-IPv6", "TCP-443-IPv6"];
    assert_eq!(names, expected.map(|rest| format!("{}-{rest}", prefix("web"))));
}

#[test]
fn z1_a_deleted_service_loses_rules_pool_and_finalizer() {
    let mut world = World::new(Settings::default());
    world.begin();
    world.slice("api", 0, &["n2"]);
    world.service("api");
    world.run_until_idle();
    world.delete(Resource::Services, "web");
    assert!(world.kube.get(Resource::Services, "demo", "web").is_some(), "the finalizer holds it");
    world.run_until_idle();
    assert!(world.kube.get(Resource::Services, "demo", "web").is_none());
    assert_eq!(world.ips("lb", "demo-web"), None);
    assert_eq!(world.ips("lb", "demo-api"), Some(vec!["10.0.0.2"]));
    assert_eq!(rules(&mut world, "lb").len(), 1);
    assert_eq!(world.lease()["spec"]["holderIdentity"], "");
}

#[test]
fn z1_a_missing_finalizer_is_added_and_cleaned_up() {
    let mut world = World::new(quiet());
    let mut service = build::service("demo", "web", &[80], &[Family::V4]);
    service["metadata"]["finalizers"] = json!(["other/one"]);
    world.apply(service);
    world.run_until_idle();
    let stored = world.kube.get(Resource::Services, "demo", "web").expect("web");
    let wanted = json!(["other/one", "service.kubernetes.io/load-balancer-cleanup"]);
    assert_eq!(stored["metadata"]["finalizers"], wanted);
    let mut bare = stored.clone();
    bare["metadata"]["finalizers"] = json!([]);
    world.apply(bare);
    world.delete(Resource::Services, "web");
    world.run_until_idle();
    assert!(rules(&mut world, "lb").is_empty());
}

#[test]
fn z1_a_service_recreated_during_a_write_leaves_no_rules() {
    for pause in (0..40).map(|step| step * SECOND / 20) {
        let mut world = World::new(quiet());
        let web = build::service("demo", "web", &[80], &[Family::V4]);
        for uid in ["first", "second", "third"] {
            world.apply(build::with_uid(web.clone(), uid));
            world.run(pause);
            if uid != "third" {
                // Another client removes the finalizer, so that the deletion does not wait for the rules.
                let mut bare = build::with_uid(web.clone(), uid);
                bare["metadata"]["finalizers"] = json!([]);
                world.apply(bare);
                world.delete(Resource::Services, "web");
            }
        }
        world.run_until_idle();
        let names: Vec<String> = rules(&mut world, "lb").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["athird-TCP-80"], "with {pause} us between");
    }
}

#[test]
fn z1_a_service_that_becomes_cluster_wide_moves_to_that_pool() {
    let mut world = World::new(quiet());
    world.begin();
    world.run_until_idle();
    let mut service = world.kube.get(Resource::Services, "demo", "web").expect("web");
    service["spec"]["externalTrafficPolicy"] = json!("Cluster");
    world.apply(service);
    world.run_until_idle();
    assert_eq!(rules(&mut world, "lb"), [(format!("{}-TCP-80", prefix("web")), "kubernetes".to_owned())]);
    assert_eq!(world.ips("lb", "kubernetes"), Some(vec!["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
    assert_eq!(world.ips("lb", "demo-web"), None);
}

#[test]
fn z1_a_service_that_moves_leaves_the_old_balancer_first() {
    let mut world = World::new(quiet());
    world.begin();
    world.run_until_idle();
    world.balancers.insert("web".to_owned(), "other".to_owned());
    let mut service = world.kube.get(Resource::Services, "demo", "web").expect("web");
    service["metadata"]["annotations"] =
        json!({"service.beta.kubernetes.io/azure-load-balancer-configurations": "other"});
    world.apply(service);
    world.run_until_idle();
    assert_eq!(world.ips("lb", "demo-web"), None);
    assert!(rules(&mut world, "lb").is_empty());
    assert_eq!(world.ips("other", "demo-web"), Some(vec!["10.0.0.1"]));
}

#[test]
fn z1_a_new_port_changes_rules_and_a_status_nothing() {
    let mut world = World::new(quiet());
    world.begin();
    world.run_until_idle();
    let reconciled = world.ccms[0].counters().reconciled;
    let stored = world.kube.get(Resource::Services, "demo", "web").expect("web");
    world.apply(build::with_ingress(stored.clone(), &["1.2.3.4"]));
    world.run_until_idle();
    assert_eq!(world.ccms[0].counters().reconciled, reconciled);
    let mut service = stored;
    service["spec"]["ports"][0]["port"] = json!(8443);
    world.apply(service);
    world.run_until_idle();
    assert_eq!(rules(&mut world, "lb"), [(format!("{}-TCP-8443", prefix("web")), "demo-web".to_owned())]);
}

#[test]
fn z1_changed_nodes_reach_the_pools_at_the_node_sync() {
    let mut world = World::new(quiet());
    world.begin();
    world.run_until_idle();
    world.run(100 * SECOND);
    world.node("n1", &["10.0.0.77"]);
    world.run(95 * SECOND);
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.1"]));
    world.run(10 * SECOND);
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.77"]));
    assert_eq!(world.events("EnsuredLoadBalancer").len(), 1, "an update has no event");
}

#[test]
fn z1_the_lock_is_held_until_the_operation_has_ended() {
    let operation = Some(Latency::Fixed { us: 42 * SECOND });
    let arm = arm::Settings { operation, ..arm::Settings::default() };
    let mut world = World::with(vec![quiet()], arm);
    world.begin();
    world.run(SECOND);
    let mut writing = 0;
    while world.ccms[0].counters().reconciled == 0 {
        assert!(world.ccms[0].holds_lock(), "at {}", world.now);
        writing += u64::from(world.ccms[0].writing().is_some_and(|path| path.contains("loadBalancers/lb")));
        world.run(SECOND);
    }
    assert!(writing > 80, "the two operations of 42 s: {writing}");
    assert_eq!(world.lease()["spec"]["holderIdentity"], "");
}

#[test]
fn z1_a_superseded_write_is_a_failed_reconcile() {
    let operation = Some(Latency::Fixed { us: 30 * SECOND });
    let concurrent_write = ConcurrentWrite::Supersede;
    let arm = arm::Settings { operation, concurrent_write, ..arm::Settings::default() };
    let mut world = World::with(vec![quiet()], arm);
    world.begin();
    world.run(60 * SECOND);
    assert!(
        world.ccms[0].writing().is_some_and(|path| path.ends_with("/demo-web")),
        "{:?}",
        world.ccms[0].writing()
    );
    assert!(world.arm.foreign_put("lb", "demo-web", &[("n3", "10.0.0.3")], world.now) < 300);
    world.run(20 * SECOND);
    let failed = world.events("SyncLoadBalancerFailed");
    assert!(failed[0].0.contains("CanceledAndSupersededDueToAnotherOperation"), "{failed:?}");
    world.run_until_idle();
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.1"]));
}

#[test]
fn z1_the_same_seed_makes_the_same_calls() {
    let run = |seed| {
        let settings = Settings {
            seed,
            crash_per_mille: 100,
            linger_per_mille: 300,
            linger_us: SECOND,
            ..Settings::default()
        };
        let operation = Some(Latency::LogNormal { median_us: 5 * SECOND, p95_us: 20 * SECOND });
        let mut world = World::with(vec![settings], arm::Settings { operation, ..arm::Settings::default() });
        world.begin();
        for round in 0..20 {
            world.slice("web", 0, if round % 2 == 0 { &["n1", "n2"] } else { &["n3"] });
            world.service(&format!("s{round}"));
            world.run(17 * SECOND);
        }
        world.trace
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn z1_everything_converges_after_faults_and_crashes(seed in any::<u64>()) {
        let settings = Settings {
            seed,
            resync_us: Some(60 * SECOND),
            max_retry_us: 60 * SECOND,
            crash_per_mille: 150,
            ..quiet()
        };
        let answer = |every, status| Fault {
            target: FaultTarget::Any,
            ..Fault::every_nth_put(every, status, "Storm", None)
        };
        let loses = Fault { effect: FaultEffect::LoseAnswer, ..answer(11, 0) };
        let operation = Some(Latency::LogNormal { median_us: 2 * SECOND, p95_us: 8 * SECOND });
        let concurrent_write = ConcurrentWrite::Mixed { supersede: 0.5 };
        let faults = vec![answer(7, 500), answer(9, 409), answer(13, 429), loses];
        let arm = arm::Settings { seed, operation, concurrent_write, faults, ..arm::Settings::default() };
        let mut world = World::with(vec![settings], arm);
        world.begin();
        for round in 0..8u64 {
            let name = format!("s{}", round % 3);
            world.slice(&name, 0, if (seed >> round) & 1 == 0 { &["n1"] } else { &["n2", "n3"] });
            if world.kube.get(Resource::Services, "demo", &name).is_none() {
                world.service(&name);
            } else if round > 4 {
                world.delete(Resource::Services, &name);
            }
            if round == 3 {
                world.kube.down(true);
            }
            world.run(40 * SECOND);
            world.kube.down(false);
        }
        world.arm.reconfigure(|settings| settings.faults.clear());
        world.ccms[0].reconfigure(|settings| {
            settings.crash_per_mille = 0;
            settings.resync_us = None;
        });
        world.run(400 * SECOND);
        world.run_until_idle();
        let services: Vec<String> = world
            .kube
            .list(Resource::Services)
            .filter_map(|service| service["metadata"]["name"].as_str().map(str::to_owned))
            .collect();
        let rules = rules(&mut world, "lb");
        prop_assert_eq!(rules.len(), services.len(), "{:?}", rules);
        for name in services {
            let hosts = world.kube.list(Resource::EndpointSlices).find(|slice| {
                slice["metadata"]["labels"]["kubernetes.io/service-name"] == name.as_str()
            });
            let hosts = hosts.expect("a slice");
            let nodes = hosts["endpoints"].as_array().into_iter().flatten();
            let wanted: Vec<String> = nodes
                .filter_map(|endpoint| endpoint["nodeName"].as_str())
                .map(|node| format!("10.0.0.{}", &node[1..]))
                .collect();
            prop_assert_eq!(world.ips("lb", &format!("demo-{name}")), Some(wanted.iter().map(String::as_str).collect()));
        }
        prop_assert_eq!(&world.lease()["spec"]["holderIdentity"], "");
    }
}
