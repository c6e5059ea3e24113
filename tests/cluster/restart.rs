//! The API server is killed during a rollout and restarts without the history of its watches.

use serde_json::json;

use super::{TestEnvironment, ips, load_balancer};
use crate::support::controller::{Controller, Flags};
use crate::support::kubernetes::{self, Cluster};
use crate::support::{TEST_TIMEOUT, azure, eventually};

/// A Service whose EndpointSlice the test writes.
const HALVED: &str = "halved-0";

/// Halves a pool by a list. The removal is applied immediately: no pool is held for the fraction (G3).
async fn halve(
    env: &mut TestEnvironment<Box<Cluster>>,
    controller: &Controller,
    endpoints: &[(&str, Option<&str>)],
) {
    // The suspended controller cannot receive the change by a watch.
    controller.suspend();
    env.cluster.restart_apiserver().await;
    env.replace_by_hand(HALVED, &endpoints[..endpoints.len() / 2]).await;
    controller.go_on();
    let pool = azure::pool_name(env.namespace, HALVED);
    let path = format!("/api/v1/queues/{}/{pool}", load_balancer(HALVED));
    let provenance = eventually("the controller has seen the change", TEST_TIMEOUT, || async {
        let shown = controller.get(&path).await?["pool"].take();
        let is_received = shown["required"] == endpoints.len() / 2;
        if is_received { Ok(shown["provenance"].clone()) } else { Err(shown.to_string()) }
    })
    .await;
    assert!(provenance == "relist" || provenance == "first_list", "it came with a {provenance}");
    eventually("half of the pool is removed", TEST_TIMEOUT, || async {
        let held = controller.get("/api/v1/held?reason=fraction").await?;
        assert_eq!(held["items"], json!([]), "{held}");
        let members = env.azure.members(&pool).await;
        if members == ips(["10.1.0.1", "10.1.0.2"]) { Ok(()) } else { Err(format!("{members:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_g3_a_killed_api_server_costs_lists_and_empties_no_pool() {
    let Some(cluster) = kubernetes::own().await else { return };
    let mut env = TestEnvironment::begin(Box::new(cluster), "restart", 6).await;
    let names: Vec<String> = (0..6).map(|number| format!("web-{number}")).collect();
    for name in &names {
        env.deploy(name, 3).await;
    }
    let nodes = [1, 2, 3, 4].map(|number| env.node(number));
    let addresses = ["10.212.0.1", "10.212.0.2", "10.212.0.3", "10.212.0.4"];
    let endpoints: Vec<(&str, Option<&str>)> =
        addresses.into_iter().zip(nodes.iter().map(|node| Some(node.as_str()))).collect();
    env.set_endpoints_by_hand(HALVED, &endpoints).await;
    let controller = env.start_controller(Flags::default()).await;
    env.rolled_out(&names).await;
    env.converged("the first rollout").await;
    let before = env.azure.puts().await.len();

    for name in &names {
        env.roll(name, "example/web:2").await;
    }
    env.cluster.restart_apiserver().await;
    eventually("watches were answered with 410, and lists were repeated", TEST_TIMEOUT, || async {
        let relists =
            controller.metric("backend_pool_controller_relists_total", r#"reason="expired""#).await?;
        if relists >= 1.0 { Ok(()) } else { Err(format!("{relists} lists")) }
    })
    .await;
    for name in &names {
        env.scale(name, 2).await;
    }
    env.rolled_out(&names).await;
    env.converged("a restart of the API server").await;

    // Without answers of the API server no member is removed.
    env.cluster.kill_apiserver();
    eventually("the controller has detected it", TEST_TIMEOUT, || async {
        let sources = controller.get("/api/v1/status").await?["sources"].take();
        let errors =
            sources.as_array().into_iter().flatten().filter(|source| !source["lastError"].is_null()).count();
        if errors == 4 { Ok(()) } else { Err(sources.to_string()) }
    })
    .await;
    halve(&mut env, &controller, &endpoints).await;
    for name in &names {
        env.scale(name, 4).await;
    }
    env.rolled_out(&names).await;
    env.converged("a second restart").await;
    let puts = env.azure.puts().await;
    let emptied: Vec<_> = puts[before..]
        .iter()
        .filter(|put| put.members.as_ref().is_none_or(|members| members.is_empty()))
        .collect();
    assert!(emptied.is_empty(), "{emptied:?}");
    env.end(controller).await;
}
