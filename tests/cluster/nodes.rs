//! Nodes are deleted, return with another address, and are excluded; pods move between nodes.

use serde_json::{Value, json};

use super::{TestEnvironment, ips};
use crate::support::controller::Flags;
use crate::support::{azure, expected_members, kubernetes, objects};

/// Returns the patch of a Deployment that places its pods on one node.
fn on_node(env: &str, node: &str) -> Value {
    let selector = json!({ objects::TEST_LABEL: env, "kubernetes.io/hostname": node });
    json!({ "template": { "spec": { "nodeSelector": selector } } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d4_d5_pools_follow_deleted_new_and_excluded_nodes() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "nodes", 4).await;
    let names: Vec<String> = (0..4).map(|number| format!("web-{number}")).collect();
    for name in &names {
        env.deploy(name, 2).await;
    }
    env.respec("web-0", &on_node(env.namespace, &env.node(1))).await;
    let controller = env.start_controller(Flags::default()).await;
    env.rolled_out(&names).await;
    env.converged("the first rollout").await;
    let pool = azure::pool_name(env.namespace, "web-0");
    assert_eq!(env.azure.members(&pool).await, ips(["10.1.0.1"]));

    // Pods move to another node.
    env.respec("web-0", &on_node(env.namespace, &env.node(2))).await;
    env.rolled_out(&names).await;
    env.converged("a move of pods").await;
    assert_eq!(env.azure.members(&pool).await, ips(["10.1.0.2"]));

    // One of several nodes is excluded by its label, and included again.
    env.respec(
        "web-0",
        &json!({ "template": { "spec": { "nodeSelector": { "kubernetes.io/hostname": null } } } }),
    )
    .await;
    env.scale("web-0", 16).await;
    env.rolled_out(&names).await;
    env.converged("a spread over all nodes").await;
    assert!(env.azure.members(&pool).await.is_superset(&ips(["10.1.0.2", "10.1.0.3"])));
    let labelled =
        |value: Value| json!({ "metadata": { "labels": { expected_members::EXCLUDE_LABEL: value } } });
    env.api.merge(&env.node_path(3), &labelled(json!("true"))).await;
    env.converged("a node was excluded").await;
    assert!(!env.azure.members(&pool).await.contains(&"10.1.0.3".parse().expect("an address")));
    env.api.merge(&env.node_path(3), &labelled(Value::Null)).await;
    env.converged("a node was included again").await;

    // A node is deleted with its pods and returns with the same name and another address.
    env.api.delete(&env.node_path(2)).await;
    let pods =
        format!("/api/v1/namespaces/{}/pods?fieldSelector=spec.nodeName={}", env.namespace, env.node(2));
    env.api.delete(&pods).await;
    env.rolled_out(&names).await;
    env.converged("a node's deletion").await;
    assert!(env.wanted().await[&pool].len() == 3, "16 pods are on all of three nodes");
    env.add_node(2, "10.1.0.22").await;
    env.roll("web-0", "example/web:2").await;
    env.rolled_out(&names).await;
    env.converged("a node's return with another address").await;
    let members = env.azure.members(&pool).await;
    assert!(
        members.is_superset(&ips(["10.1.0.22"])) && members.is_disjoint(&ips(["10.1.0.2"])),
        "{members:?}"
    );
    env.end(controller).await;
}
