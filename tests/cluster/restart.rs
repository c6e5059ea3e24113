//! The API server dies in the middle of a rollout and comes back without a memory of its watches.

use super::Story;
use crate::support::controller::Flags;
use crate::support::{PATIENCE, eventually, kubernetes};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g1_a_killed_api_server_costs_lists_after_410_and_empties_no_pool() {
    let Some(cluster) = kubernetes::own().await else { return };
    let mut story = Story::begin(Box::new(cluster), "restart", 6).await;
    let names: Vec<String> = (0..6).map(|number| format!("web-{number}")).collect();
    for name in &names {
        story.deploy(name, 3).await;
    }
    let controller = story.start_controller(Flags::default()).await;
    story.rolled_out(&names).await;
    story.converged("the first rollout").await;
    let before = story.azure.puts().await.len();

    for name in &names {
        story.roll(name, "example/web:2").await;
    }
    story.cluster.restart_apiserver().await;
    eventually("watches were answered with 410 and lists were made again", PATIENCE, || async {
        let relists =
            controller.metric("backend_pool_controller_relists_total", r#"reason="expired""#).await?;
        if relists >= 1.0 { Ok(()) } else { Err(format!("{relists} lists")) }
    })
    .await;
    for name in &names {
        story.scale(name, 2).await;
    }
    story.rolled_out(&names).await;
    story.converged("a restart of the API server").await;

    // While nobody answers, nothing is taken away.
    story.cluster.kill_apiserver();
    eventually("the controller has noticed", PATIENCE, || async {
        let sources = controller.get("/api/v1/status").await?["sources"].take();
        let errors =
            sources.as_array().into_iter().flatten().filter(|source| !source["lastError"].is_null()).count();
        if errors == 3 { Ok(()) } else { Err(sources.to_string()) }
    })
    .await;
    story.cluster.restart_apiserver().await;
    for name in &names {
        story.scale(name, 4).await;
    }
    story.rolled_out(&names).await;
    story.converged("a second restart").await;
    let puts = story.azure.puts().await;
    let emptied: Vec<_> = puts[before..]
        .iter()
        .filter(|put| put.members.as_ref().is_none_or(|members| members.is_empty()))
        .collect();
    assert!(emptied.is_empty(), "{emptied:?}");
    story.end(controller).await;
}
