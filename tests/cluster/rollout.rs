//! Rollouts, scaling and deletion of Deployments behind many Services on three load balancers.

use std::time::Duration;

use super::TestEnvironment;
use crate::support::controller::{EMPTY_CONFIRM_S, Flags};
use crate::support::{TEST_TIMEOUT, azure, eventually, expected_members, kubernetes};

/// A Service whose endpoints need two EndpointSlices of at most a hundred each.
const BIG: &str = "big-0";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d4_pools_follow_rollouts_and_scaling() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "rollout", 12).await;
    let names: Vec<String> = (0..11).map(|number| format!("web-{number}")).collect();
    for name in &names {
        env.deploy(name, 3).await;
    }
    env.deploy(BIG, 120).await;
    let all: Vec<String> = names.iter().cloned().chain([BIG.to_owned()]).collect();
    let controller = env.start_controller(Flags::default()).await;
    env.rolled_out(&all).await;
    env.converged("the first rollout").await;
    let slices = expected_members::slices(&env.api, env.namespace, Some(BIG)).await.expect("slices");
    assert!(slices.len() >= 2, "120 endpoints fit into {} slice", slices.len());

    for name in &names {
        env.roll(name, "example/web:2").await;
    }
    env.rolled_out(&names).await;
    env.converged("a new image").await;

    for (number, name) in names.iter().enumerate() {
        env.scale(name, if number % 2 == 0 { 6 } else { 1 }).await;
    }
    env.scale(BIG, 7).await;
    env.rolled_out(&all).await;
    env.converged("scaling up and down").await;

    let description =
        env.cluster.kubectl(&["describe", "service", "web-1", "--namespace", env.namespace]).await;
    let event = description.lines().find(|line| line.contains("LoadBalancerBackendPoolUpdated"));
    let event = event.unwrap_or_else(|| panic!("no event in\n{description}"));
    assert!(event.contains("Normal") && event.contains("azure-backend-pool-controller"), "{event}");
    env.end(controller).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_the_last_members_are_removed_after_the_confirmation() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "emptied", 3).await;
    env.deploy("web-0", 3).await;
    env.deploy("web-1", 2).await;
    let controller = env.start_controller(Flags::default()).await;
    env.rolled_out(&["web-0".to_owned(), "web-1".to_owned()]).await;
    env.converged("the first rollout").await;
    let pool = azure::pool_name(env.namespace, "web-0");
    let (before, began_us) = (env.azure.puts().await.len(), env.azure.now_us());

    env.scale("web-0", 0).await;
    eventually("the Service has no endpoints", TEST_TIMEOUT, || async {
        let slices = expected_members::slices(&env.api, env.namespace, Some("web-0")).await?;
        let endpoints =
            slices.iter().filter_map(|slice| slice["endpoints"].as_array()).map(Vec::len).sum::<usize>();
        if endpoints == 0 { Ok(()) } else { Err(format!("{endpoints} endpoints")) }
    })
    .await;
    env.converged("scaling to zero").await;
    let puts = env.azure.puts().await;
    let puts: Vec<_> = puts[before..].iter().filter(|put| put.pool == pool).collect();
    let (last, earlier) = puts.split_last().expect("the pool was emptied by a write");
    assert_eq!(
        last.members.as_ref().map(|members| members.len()),
        Some(0),
        "the array is written, and empty"
    );
    assert!(
        earlier.iter().all(|put| put.members.as_ref().is_some_and(|members| !members.is_empty())),
        "{puts:?}"
    );
    let waited = Duration::from_micros(last.at_us - began_us);
    assert!(waited >= Duration::from_secs(EMPTY_CONFIRM_S), "emptied after {waited:?}");
    env.event("web-0", "BackendPoolRemovalHeld").await;

    env.scale("web-0", 2).await;
    env.rolled_out(&["web-0".to_owned()]).await;
    env.converged("coming back").await;
    eventually("no pool is held any more", TEST_TIMEOUT, || async {
        let held = controller.get("/api/v1/status").await?["held"].take();
        if held.as_array().is_some_and(Vec::is_empty) { Ok(()) } else { Err(held.to_string()) }
    })
    .await;
    env.end(controller).await;
}
