//! Guards on a real API server: removals that they must hold (slices deleted by hand, a label on most nodes), and daily
//! work that they must not hold (docs/design/pools.md, G1-G6).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::pauses::operator_token;
use super::{TestEnvironment, ips, load_balancer};
use crate::support::azure::Put;
use crate::support::controller::{Controller, Flags, Replica};
use crate::support::kubernetes::{self, Cluster};
use crate::support::{TEST_TIMEOUT, azure, eventually, expected_members, log_line, objects};

/// Minimum time of an unconfirmed removal (G2).
const DOUBTED: Duration = Duration::from_secs(30);
/// The environment variable with the number of Services with one pod each that are restarted.
const RESTARTED: &str = "RESTARTED_SERVICES";
/// Number of load balancers of those Services: the writes of one load balancer are serial, and take a second each.
const SPREAD: usize = 20;
/// Reason of the event with which guards report that they have stopped all removals (G4).
const STOPPED: &str = "BackendPoolRemovalsStopped";

/// Starts a controller with these settings in addition to those of every test.
pub(super) async fn start(env: &TestEnvironment<&Cluster>, settings: Value) -> Controller {
    let replica = Replica {
        name: &format!("{}.controller", env.namespace),
        namespace: env.namespace,
        kubeconfig: env.cluster.controller_kubeconfig(env.namespace).await,
        cloud_config: env.azure.cloud_config(),
        settings,
        flags: Flags::default(),
    };
    Controller::start_replica(env.cluster, &replica).await
}

/// Does the same after an earlier controller has brought the pools of these namespaces into sync: only a pool that
/// had its members five minutes ago, or at the start, can lose most of them (G4).
async fn start_again(env: &TestEnvironment<&Cluster>, settings: Value, namespaces: &[&str]) -> Controller {
    let before = start(env, settings.clone()).await;
    eventually("all pools are in sync after the first start", TEST_TIMEOUT, || async {
        let mut wanted = BTreeMap::new();
        for namespace in namespaces {
            wanted.extend(expected_members::expected(&env.api, namespace).await?);
        }
        let pools = env.azure.pools().await;
        if pools == wanted { Ok(()) } else { Err(format!("wanted {wanted:?}\nfound {pools:?}")) }
    })
    .await;
    before.terminate().await;
    start(env, settings).await
}

/// Returns the events of this reason in the test's namespace.
async fn events(env: &TestEnvironment<&Cluster>, reason: &str) -> Vec<Value> {
    let path = format!("/api/v1/namespaces/{}/events?fieldSelector=reason={reason}", env.namespace);
    env.api.items(&path).await.expect("the API server lists events")
}

/// Waits until the admin API shows this number of pools held for this reason, and returns its answer.
pub(super) async fn held(controller: &Controller, reason: &str, count: usize) -> Value {
    eventually(&format!("{count} pools are held for {reason}"), TEST_TIMEOUT, || async {
        let answer = controller.get(&format!("/api/v1/held?reason={reason}")).await?;
        let items = answer["items"].as_array().map_or(0, Vec::len);
        if items == count { Ok(answer) } else { Err(answer.to_string()) }
    })
    .await
}

/// Asserts that guards have not stopped removals and have held only removals of last members.
async fn assert_only_emptiness_was_confirmed(env: &TestEnvironment<&Cluster>, controller: &Controller) {
    let stopped = events(env, STOPPED).await;
    assert!(stopped.is_empty(), "{stopped:?}");
    let gauge = controller.metric("backend_pool_controller_removals_stopped", "").await;
    assert_eq!(gauge, Ok(0.0));
    for event in events(env, "BackendPoolRemovalHeld").await {
        let message = event["message"].as_str().unwrap_or_default();
        assert!(message.contains("waits for confirmation"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_slices_deleted_by_hand_need_a_second_read() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "vanished", 2).await;
    let (one, two) = (env.node(1), env.node(2));
    let both = [("10.209.0.1", Some(one.as_str())), ("10.209.0.2", Some(two.as_str()))];
    for name in ["stays-0", "returns-1"] {
        env.set_endpoints_by_hand(name, &both).await;
    }
    let controller = env.start_controller(Flags::default()).await;
    env.converged("the start").await;
    let (before, began_us) = (env.azure.puts().await.len(), env.azure.now_us());

    for name in ["stays-0", "returns-1"] {
        env.api.delete(&env.path("endpointslices", &format!("{name}-by-hand"))).await;
    }
    let answer = held(&controller, "empty_confirm", 2).await;
    assert_eq!(answer["items"][0]["held"]["waitsFor"], "second_read", "{answer}");
    env.event("stays-0", "BackendPoolRemovalHeld").await;
    let slice = objects::endpoint_slice(env.namespace, "returns-1", &both);
    env.create("endpointslices", &slice).await;
    held(&controller, "empty_confirm", 1).await;

    env.holds("stays-0", []).await;
    let puts = env.azure.puts().await;
    let [emptied] = &puts[before..] else { panic!("more than one write: {:?}", &puts[before..]) };
    assert_eq!(emptied.pool, azure::pool_name(env.namespace, "stays-0"));
    let waited = Duration::from_micros(emptied.at_us - began_us);
    assert!(waited >= DOUBTED, "emptied after {waited:?}");
    env.end(controller).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g4_a_label_on_most_nodes_removes_nothing_until_a_release() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "labelled", 5).await;
    let nodes = [1, 2, 3, 4, 5].map(|number| env.node(number));
    for service in 0..12 {
        let addresses = [1, 2, 3, 4].map(|at| format!("10.210.{service}.{at}"));
        let endpoints = addresses.iter().zip(&nodes).map(|(ip, node)| (ip.as_str(), Some(node.as_str())));
        env.set_endpoints_by_hand(&format!("web-{service}"), &endpoints.collect::<Vec<_>>()).await;
    }
    // The labels are set one by one, and must count as one change.
    let batching = json!({ "quietPeriod": "2s", "maxDelay": "6s", "minInterval": "500ms" });
    let settings = json!({ "batching": batching });
    env.provision(env.namespace).await;
    let controller = start_again(&env, settings.clone(), &[env.namespace]).await;
    let before = env.azure.puts().await.len();

    for number in 2..=4 {
        let label = json!({ "metadata": { "labels": { expected_members::EXCLUDE_LABEL: "true" } } });
        env.api.merge(&env.node_path(number), &label).await;
    }
    let answer = held(&controller, "breaker", 12).await;
    assert_eq!(answer["guards"]["removalsStopped"]["pools"], 12, "{answer}");
    let event = env.event("azure-backend-pool-controller", STOPPED).await;
    assert_eq!((&event["type"], &event["count"]), (&json!("Warning"), &json!(1)), "{event}");
    // Additions are written, and the pool that gets one loses no member.
    let added = [("10.210.0.1", Some(nodes[0].as_str())), ("10.210.0.9", Some(nodes[4].as_str()))];
    env.replace_by_hand("web-0", &added).await;
    env.holds("web-0", ["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5"]).await;
    let puts = env.azure.puts().await;
    assert_eq!(puts.len() - before, 1, "{:?}", &puts[before..]);

    let everything = json!({ "scope": "everything" });
    let mallory = operator_token(&env, "labelled-mallory", false).await;
    assert_eq!(controller.post("/api/v1/held/release", &mallory, &everything).await.0, 403);
    assert_eq!(env.azure.puts().await.len() - before, 1);

    // A new process does not trust removals of its first list, and stops removals when the second list confirms them.
    controller.terminate().await;
    let controller = start(&env, settings).await;
    held(&controller, "fraction", 12).await;
    held(&controller, "breaker", 12).await;
    assert_eq!(env.azure.puts().await.len() - before, 1);
    let alice = operator_token(&env, "labelled-alice", true).await;
    let (status, text) = controller.post("/api/v1/held/release", &alice, &everything).await;
    assert_eq!(status, 200, "{text}");
    env.converged("the release").await;
    env.holds("web-1", ["10.1.0.1"]).await;
    held(&controller, "breaker", 0).await;
    assert_eq!(events(&env, STOPPED).await.len(), 2, "one of each process");
    env.end(controller).await;
}

/// Returns the patch that restarts a Deployment with the strategy Recreate.
fn recreated(image: &str) -> Value {
    json!({
        "strategy": { "type": "Recreate", "rollingUpdate": null },
        "template": { "spec": { "containers": [{ "name": "web", "image": image }] } },
    })
}

/// Cordons these nodes and deletes their pods.
async fn drain(env: &TestEnvironment<&Cluster>, numbers: std::ops::RangeInclusive<u8>) {
    for number in numbers.clone() {
        env.api.merge(&env.node_path(number), &json!({ "spec": { "unschedulable": true } })).await;
    }
    for number in numbers {
        let pods = format!(
            "/api/v1/namespaces/{}/pods?fieldSelector=spec.nodeName={}",
            env.namespace,
            env.node(number)
        );
        env.api.delete(&pods).await;
    }
}

/// Creates Services of another namespace, on one node.
async fn add_neighbours(env: &TestEnvironment<&Cluster>, namespace: &str, count: u8) {
    env.api.create("/api/v1/namespaces", &objects::namespace(namespace)).await;
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    for number in 0..count {
        let (name, ip) = (format!("web-{number}"), format!("10.211.0.{number}"));
        env.create_service(&objects::service_without_selector(namespace, &name)).await;
        let slice = objects::endpoint_slice(namespace, &name, &[(&ip, Some(&env.node(1)))]);
        env.api.create(&slices, &slice).await;
    }
}

/// Deletes the namespace while the pools of its Services still exist. The pools have no owner and are not written.
async fn delete_neighbours(env: &TestEnvironment<&Cluster>, namespace: &str, services: &[Value]) {
    let before = env.azure.puts().await.len();
    env.api.delete(&format!("/api/v1/namespaces/{namespace}")).await;
    eventually("the Services of the namespace are gone", TEST_TIMEOUT, || async {
        let left = env.api.items(&format!("/api/v1/namespaces/{namespace}/services")).await?.len();
        if left == 0 { Ok(()) } else { Err(format!("{left} are left")) }
    })
    .await;
    // A later write shows that the deletion was processed.
    env.scale("web-1", 3).await;
    env.rolled_out(&["web-1".to_owned()]).await;
    let pools = env.azure.pools().await;
    let theirs = |pool: &str| pool.starts_with(&format!("{namespace}-"));
    assert!(pools.iter().filter(|(pool, _)| theirs(pool)).all(|(_, members)| *members == ips(["10.1.0.1"])));
    let puts = env.azure.puts().await;
    assert!(puts[before..].iter().all(|put| !theirs(&put.pool)), "{:?}", &puts[before..]);
    env.azure.delete_service_resources(services, |name| load_balancer(name).to_owned()).await;
    env.converged("the deletion of a namespace").await;
}

/// Scales a Service to zero. Its pool is held only for the confirmation time, without a second read.
async fn scale_to_none(env: &TestEnvironment<&Cluster>, controller: &Controller, name: &str) {
    env.scale(name, 0).await;
    let slices = || expected_members::slices(&env.api, env.namespace, Some(name));
    eventually("the Service has no endpoints", TEST_TIMEOUT, || async {
        let slices = slices().await?;
        let left =
            slices.iter().filter_map(|slice| slice["endpoints"].as_array()).map(Vec::len).sum::<usize>();
        if left == 0 { Ok(()) } else { Err(format!("{left} endpoints")) }
    })
    .await;
    let gone = Instant::now();
    held(controller, "empty_confirm", 1).await;
    held(controller, "empty_confirm", 0).await;
    let waited = gone.elapsed();
    assert!(waited < DOUBTED, "held for {waited:?}");
    env.holds(name, []).await;
}

/// Runs a simultaneous rolling restart of Services with one pod each. Their members move, and no pool becomes empty or
/// is held.
async fn restart(env: &TestEnvironment<&Cluster>, names: &[String]) {
    let before = env.azure.puts().await.len();
    for name in names {
        env.roll(name, "example/web:2").await;
    }
    env.rolled_out(names).await;
    env.converged("a rolling restart of Services with one pod").await;
    let puts = env.azure.puts().await;
    let (emptied, others): (Vec<&Put>, Vec<&Put>) =
        puts[before..].iter().partition(|put| put.members.as_ref().is_none_or(BTreeSet::is_empty));
    assert!(emptied.is_empty(), "{emptied:?}");
    // Some pods start on the same node again.
    let moved: BTreeSet<&str> = others.iter().map(|put| put.pool.as_str()).collect();
    assert!(moved.len() > names.len() / 4, "{} of {} pools were written", moved.len(), names.len());
    assert_eq!(events(env, "BackendPoolRemovalHeld").await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g4_a_rolling_restart_of_single_pod_services_is_not_held() {
    // This number of pods needs the whole machine, so `.ci/run` runs this test alone. Many Services without an address,
    // even for a moment, would disturb the controllers of other tests (W7).
    let Ok(restarted) = std::env::var(RESTARTED) else {
        log_line(&format!("SKIPPED the rolling restart of many Services: {RESTARTED} is not set"));
        return;
    };
    let restarted: usize = restarted.parse().expect("RESTARTED_SERVICES is a number");
    let Some(cluster) = kubernetes::own().await else { return };
    let load_balancers: Vec<String> = (0..SPREAD).map(|number| format!("lb-{number}")).collect();
    let named: Vec<&str> = load_balancers.iter().map(String::as_str).collect();
    let env = TestEnvironment::begin_on(&cluster, "restarted", 6, &named).await;
    let names: Vec<String> = (0..restarted).map(|number| format!("web-{number}")).collect();
    for name in &names {
        env.deploy(name, 1).await;
    }
    let load_balancer_of = |name: &str| {
        let number: usize = name.trim_start_matches("web-").parse().expect("Services are numbered");
        load_balancers[number % SPREAD].clone()
    };
    env.provision_on(env.namespace, load_balancer_of).await;
    env.rolled_out(&names).await;
    let controller = start_again(&env, json!({}), &[env.namespace]).await;

    restart(&env, &names).await;
    let answer = controller.get("/api/v1/held").await.expect("the admin API answers");
    assert_eq!(
        (&answer["items"], &answer["guards"]["removalsStopped"]),
        (&json!([]), &Value::Null),
        "{answer}"
    );
    assert_only_emptiness_was_confirmed(&env, &controller).await;
    env.end(controller).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g4_daily_work_is_held_only_for_its_confirmation() {
    const NEIGHBOURS: &str = "neighbours";
    /// `guards.emptyConfirm`, in seconds.
    const CONFIRM_S: u64 = 15;
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "daily", 4).await;
    let names: Vec<String> = (0..30).map(|number| format!("web-{number}")).collect();
    for name in &names {
        env.deploy(name, 1).await;
    }
    add_neighbours(&env, NEIGHBOURS, 12).await;
    env.provision(env.namespace).await;
    let services = env.provision(NEIGHBOURS).await;
    let namespaces = json!({ "namespaces": [env.namespace, NEIGHBOURS] });
    // On a slow machine a replaced pod is missing for some seconds.
    let guards = json!({ "emptyConfirm": format!("{CONFIRM_S}s") });
    env.rolled_out(&names).await;
    let settings = json!({ "services": namespaces, "guards": guards });
    let controller = start_again(&env, settings, &[env.namespace, NEIGHBOURS]).await;

    delete_neighbours(&env, NEIGHBOURS, &services).await;
    assert_only_emptiness_was_confirmed(&env, &controller).await;

    restart(&env, &names).await;

    scale_to_none(&env, &controller, "web-0").await;
    env.scale("web-0", 1).await;
    for name in &names[10..20] {
        env.respec(name, &recreated("example/web:3")).await;
    }
    env.rolled_out(&names).await;
    env.converged("a Recreate rollout").await;
    assert_only_emptiness_was_confirmed(&env, &controller).await;

    // A node pool is replaced: two new nodes join, two old ones are drained and deleted.
    for number in 5..=6 {
        env.add_node(number, &format!("10.1.0.{number}")).await;
    }
    drain(&env, 1..=2).await;
    env.rolled_out(&names).await;
    for number in 1..=2 {
        env.api.delete(&env.node_path(number)).await;
    }
    env.converged("a node pool was replaced").await;
    assert_only_emptiness_was_confirmed(&env, &controller).await;

    // All nodes are replaced at the same time.
    for number in 7..=10 {
        env.add_node(number, &format!("10.1.0.{number}")).await;
    }
    drain(&env, 3..=6).await;
    for number in 3..=6 {
        env.api.delete(&env.node_path(number)).await;
    }
    env.rolled_out(&names).await;
    env.converged("all nodes were replaced at once").await;
    assert_only_emptiness_was_confirmed(&env, &controller).await;
    env.end(controller).await;
}
