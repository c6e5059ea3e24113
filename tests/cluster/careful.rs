//! States in which the controller shows differences and does not write.

use serde_json::json;

use super::{TestEnvironment, ips, load_balancer};
use crate::support::controller::{Controller, Flags};
use crate::support::kubernetes::{self, Cluster};
use crate::support::{TEST_TIMEOUT, azure, eventually};

/// Waits until a pool's field at this pointer has this value in the admin API.
async fn shown(
    env: &TestEnvironment<&Cluster>,
    controller: &Controller,
    service: &str,
    pointer: &str,
    value: serde_json::Value,
) {
    let pool = azure::pool_name(env.namespace, service);
    let path = format!("/api/v1/queues/{}/{pool}", load_balancer(service));
    eventually(&format!("{pool} shows {value} at {pointer}"), TEST_TIMEOUT, || async {
        let answer = controller.get(&path).await?;
        if answer["pool"].pointer(pointer) == Some(&value) { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_a_dry_run_only_shows_the_differences() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "dry-run", 2).await;
    let (one, two) = (env.node(1), env.node(2));
    env.set_endpoints_by_hand("web-0", &[("10.9.0.1", Some(&one)), ("10.9.0.2", Some(&two))]).await;
    env.set_endpoints_by_hand("web-1", &[("10.9.0.3", Some(&two))]).await;
    let controller = env.start_controller(Flags { dry_run: true, ..Flags::default() }).await;
    let both = json!({ "add": ["10.1.0.1", "10.1.0.2"], "remove": [] });
    shown(&env, &controller, "web-0", "/wouldChange", both).await;
    shown(&env, &controller, "web-1", "/wouldChange", json!({ "add": ["10.1.0.2"], "remove": [] })).await;
    env.replace_by_hand("web-1", &[("10.9.0.3", Some(&one))]).await;
    shown(&env, &controller, "web-1", "/wouldChange", json!({ "add": ["10.1.0.1"], "remove": [] })).await;

    assert_eq!(controller.get("/api/v1/status").await.expect("the status")["dryRun"], true);
    controller.terminate().await;
    assert_eq!(env.azure.counters().await.pool_puts, 0);
    let events =
        env.api.items(&format!("/api/v1/namespaces/{}/events", env.namespace)).await.expect("events");
    let ours = events.iter().filter(|event| event["source"]["component"] == "azure-backend-pool-controller");
    assert_eq!(ours.count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d1_a_paused_service_is_compared_and_not_written() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "paused", 2).await;
    let (one, two) = (env.node(1), env.node(2));
    env.set_endpoints_by_hand("paused-0", &[("10.9.0.1", Some(&one))]).await;
    env.set_endpoints_by_hand("other-0", &[("10.9.0.2", Some(&one))]).await;
    let controller = env.start_controller(Flags::default()).await;
    env.converged("the start").await;
    let pause = |value: serde_json::Value| json!({ "metadata": { "annotations": { "azure-backend-pool-controller.io/pause": value } } });
    env.api.merge(&env.path("services", "paused-0"), &pause(json!("true"))).await;
    shown(&env, &controller, "paused-0", "/state", json!("paused")).await;

    env.replace_by_hand("paused-0", &[("10.9.0.1", Some(&two))]).await;
    shown(&env, &controller, "paused-0", "/members/missing", json!(["10.1.0.2"])).await;
    // A later change of another Service on the same load balancer is written in the meantime.
    env.replace_by_hand("other-0", &[("10.9.0.2", Some(&two))]).await;
    env.holds("other-0", ["10.1.0.2"]).await;
    shown(&env, &controller, "paused-0", "/state", json!("paused")).await;
    let paused = azure::pool_name(env.namespace, "paused-0");
    assert_eq!(env.azure.members(&paused).await, ips(["10.1.0.1"]));

    env.api.merge(&env.path("services", "paused-0"), &pause(serde_json::Value::Null)).await;
    env.converged("the end of the pause").await;
    env.end(controller).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d2_a_pool_of_an_outbound_rule_is_not_written() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "foreign", 2).await;
    let (one, two) = (env.node(1), env.node(2));
    env.set_endpoints_by_hand("shared-0", &[("10.9.0.1", Some(&one))]).await;
    env.set_endpoints_by_hand("other-0", &[("10.9.0.2", Some(&one))]).await;
    let controller = env.start_controller(Flags::default()).await;
    env.converged("the start").await;
    let pool = azure::pool_name(env.namespace, "shared-0");
    env.azure.add_outbound_rule(load_balancer("shared-0"), &pool).await;

    let before = env.azure.puts().await.len();
    env.replace_by_hand("shared-0", &[("10.9.0.1", Some(&two))]).await;
    let event = env.event("shared-0", "BackendPoolNotManageable").await;
    assert_eq!(
        (&event["type"], &event["source"]["component"]),
        (&json!("Warning"), &json!("azure-backend-pool-controller"))
    );
    eventually("the event names the reason", TEST_TIMEOUT, || async {
        let path = format!("/api/v1/services/{}/shared-0", env.namespace);
        let answer = controller.get(&path).await?;
        let reason = &answer["service"]["notManageable"][0]["reason"];
        if reason.is_string() { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    env.replace_by_hand("other-0", &[("10.9.0.2", Some(&two))]).await;
    env.holds("other-0", ["10.1.0.2"]).await;
    assert!(env.azure.puts().await[before..].iter().all(|put| put.pool != pool));
    assert_eq!(env.azure.members(&pool).await, ips(["10.1.0.1"]));
    env.azure.assert_serial().await;
    controller.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d6_endpoints_without_a_node_do_not_empty_their_pool() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "placeless", 2).await;
    let (one, two) = (env.node(1), env.node(2));
    env.set_endpoints_by_hand("wrong-0", &[("10.9.0.1", Some(&one)), ("10.9.0.2", Some(&two))]).await;
    env.set_endpoints_by_hand("empty-0", &[("10.9.0.3", Some(&one))]).await;
    let controller = env.start_controller(Flags::default()).await;
    env.converged("the start").await;

    env.replace_by_hand("wrong-0", &[("10.9.0.1", None), ("10.9.0.2", None)]).await;
    env.event("wrong-0", "ServiceEndpointsIncomplete").await;
    eventually("the event names the problem", TEST_TIMEOUT, || async {
        let answer = controller.get(&format!("/api/v1/services/{}/wrong-0", env.namespace)).await?;
        let errors = answer["service"]["dataErrors"].to_string();
        if errors.contains("without a nodeName") { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    // A Service whose endpoints are removed later, as usual, loses its members first.
    env.replace_by_hand("empty-0", &[]).await;
    env.holds("empty-0", []).await;
    let wrong = azure::pool_name(env.namespace, "wrong-0");
    assert_eq!(env.azure.members(&wrong).await, ips(["10.1.0.1", "10.1.0.2"]));

    env.replace_by_hand("wrong-0", &[("10.9.0.1", Some(&two))]).await;
    env.converged("the endpoint has a node again").await;
    env.end(controller).await;
}
