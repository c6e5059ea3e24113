//! Rollouts, scaling and deletion of Deployments behind many Services on three load balancers.

use std::time::Duration;

use super::Story;
use crate::support::controller::{EMPTY_CONFIRM_S, Flags};
use crate::support::{PATIENCE, azure, eventually, kubernetes, truth};

/// A Service whose endpoints need two EndpointSlices of at most a hundred each.
const BIG: &str = "big-0";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d4_pools_follow_rollouts_and_scaling() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let story = Story::begin(cluster, "rollout", 12).await;
    let names: Vec<String> = (0..11).map(|number| format!("web-{number}")).collect();
    for name in &names {
        story.deploy(name, 3).await;
    }
    story.deploy(BIG, 120).await;
    let all: Vec<String> = names.iter().cloned().chain([BIG.to_owned()]).collect();
    let controller = story.start_controller(Flags::default()).await;
    story.rolled_out(&all).await;
    story.converged("the first rollout").await;
    let slices = truth::slices(&story.api, story.namespace, Some(BIG)).await.expect("slices");
    assert!(slices.len() >= 2, "120 endpoints fit into {} slice", slices.len());

    for name in &names {
        story.roll(name, "example/web:2").await;
    }
    story.rolled_out(&names).await;
    story.converged("a new image").await;

    for (number, name) in names.iter().enumerate() {
        story.scale(name, if number % 2 == 0 { 6 } else { 1 }).await;
    }
    story.scale(BIG, 7).await;
    story.rolled_out(&all).await;
    story.converged("scaling up and down").await;

    let description =
        story.cluster.kubectl(&["describe", "service", "web-1", "--namespace", story.namespace]).await;
    let event = description.lines().find(|line| line.contains("LoadBalancerBackendPoolUpdated"));
    let event = event.unwrap_or_else(|| panic!("no event in\n{description}"));
    assert!(event.contains("Normal") && event.contains("azure-backend-pool-controller"), "{event}");
    story.end(controller).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_the_last_members_are_removed_after_the_confirmation() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let story = Story::begin(cluster, "emptied", 3).await;
    story.deploy("web-0", 3).await;
    story.deploy("web-1", 2).await;
    let controller = story.start_controller(Flags::default()).await;
    story.rolled_out(&["web-0".to_owned(), "web-1".to_owned()]).await;
    story.converged("the first rollout").await;
    let pool = azure::pool_name(story.namespace, "web-0");
    let (before, began_us) = (story.azure.puts().await.len(), story.azure.now_us());

    story.scale("web-0", 0).await;
    eventually("the Service has no endpoints", PATIENCE, || async {
        let slices = truth::slices(&story.api, story.namespace, Some("web-0")).await?;
        let endpoints =
            slices.iter().filter_map(|slice| slice["endpoints"].as_array()).map(Vec::len).sum::<usize>();
        if endpoints == 0 { Ok(()) } else { Err(format!("{endpoints} endpoints")) }
    })
    .await;
    story.converged("scaling to zero").await;
    let puts = story.azure.puts().await;
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
    story.event("web-0", "BackendPoolRemovalHeld").await;

    story.scale("web-0", 2).await;
    story.rolled_out(&["web-0".to_owned()]).await;
    story.converged("coming back").await;
    eventually("no pool is held any more", PATIENCE, || async {
        let held = controller.get("/api/v1/status").await?["held"].take();
        if held.as_array().is_some_and(Vec::is_empty) { Ok(()) } else { Err(held.to_string()) }
    })
    .await;
    story.end(controller).await;
}
