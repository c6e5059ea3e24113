//! Nodes are deleted, return with another address, and are excluded; pods move between nodes.

use serde_json::{Value, json};

use super::{Story, ips};
use crate::support::controller::Flags;
use crate::support::{azure, kubernetes, objects, truth};

/// Returns the patch of a Deployment that places its pods on one node.
fn on_node(story: &str, node: &str) -> Value {
    let selector = json!({ objects::STORY: story, "kubernetes.io/hostname": node });
    json!({ "template": { "spec": { "nodeSelector": selector } } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d4_d5_pools_follow_deleted_new_and_excluded_nodes() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let story = Story::begin(cluster, "nodes", 4).await;
    let names: Vec<String> = (0..4).map(|number| format!("web-{number}")).collect();
    for name in &names {
        story.deploy(name, 2).await;
    }
    story.respec("web-0", &on_node(story.namespace, &story.node(1))).await;
    let controller = story.start_controller(Flags::default()).await;
    story.rolled_out(&names).await;
    story.converged("the first rollout").await;
    let pool = azure::pool_name(story.namespace, "web-0");
    assert_eq!(story.azure.members(&pool).await, ips(["10.1.0.1"]));

    // Pods move to another node.
    story.respec("web-0", &on_node(story.namespace, &story.node(2))).await;
    story.rolled_out(&names).await;
    story.converged("a move of pods").await;
    assert_eq!(story.azure.members(&pool).await, ips(["10.1.0.2"]));

    // One of several nodes is excluded by its label, and included again.
    story
        .respec(
            "web-0",
            &json!({ "template": { "spec": { "nodeSelector": { "kubernetes.io/hostname": null } } } }),
        )
        .await;
    story.scale("web-0", 16).await;
    story.rolled_out(&names).await;
    story.converged("a spread over all nodes").await;
    assert!(story.azure.members(&pool).await.is_superset(&ips(["10.1.0.2", "10.1.0.3"])));
    let labelled = |value: Value| json!({ "metadata": { "labels": { truth::LEFT_OUT: value } } });
    story.api.merge(&story.node_path(3), &labelled(json!("true"))).await;
    story.converged("a node was excluded").await;
    assert!(!story.azure.members(&pool).await.contains(&"10.1.0.3".parse().expect("an address")));
    story.api.merge(&story.node_path(3), &labelled(Value::Null)).await;
    story.converged("a node was included again").await;

    // A node is deleted with its pods and returns with the same name and another address.
    story.api.delete(&story.node_path(2)).await;
    let pods =
        format!("/api/v1/namespaces/{}/pods?fieldSelector=spec.nodeName={}", story.namespace, story.node(2));
    story.api.delete(&pods).await;
    story.rolled_out(&names).await;
    story.converged("a node's deletion").await;
    assert!(story.wanted().await[&pool].len() == 3, "16 pods are on all of three nodes");
    story.add_node(2, "10.1.0.22").await;
    story.roll("web-0", "example/web:2").await;
    story.rolled_out(&names).await;
    story.converged("a node's return with another address").await;
    let members = story.azure.members(&pool).await;
    assert!(
        members.is_superset(&ips(["10.1.0.22"])) && members.is_disjoint(&ips(["10.1.0.2"])),
        "{members:?}"
    );
    story.end(controller).await;
}
