//! Pauses on a real API server, with real tokens: the operator pauses everything at a standby, the leader is killed,
//! the next leader writes nothing, and continues after the operator has resumed; a pause by `kubectl patch` works too
//! (G6, H2).

use serde_json::{Value, json};

use super::TestEnvironment;
use super::replicas::has_role;
use crate::support::controller::{Controller, Flags, Replica};
use crate::support::kubernetes::{self, Cluster};
use crate::support::{TEST_TIMEOUT, eventually};

/// The controller's ConfigMap, which has the name of its Lease.
const NOTES: &str = "azure-backend-pool-controller";
/// The pool of `web-1`.
const POOL: &str = "/api/v1/queues/lb-1/pauses-web-1";

async fn start(env: &TestEnvironment<&Cluster>, name: &str) -> Controller {
    let replica = Replica {
        name,
        namespace: env.namespace,
        kubeconfig: env.cluster.controller_kubeconfig(env.namespace).await,
        cloud_config: env.azure.cloud_config(),
        settings: json!({}),
        flags: Flags::default(),
    };
    Controller::start_replica(env.cluster, &replica).await
}

/// Creates a service account of this name and returns its token; `allowed`: it may post to the admin API.
pub(super) async fn operator_token(env: &TestEnvironment<&Cluster>, name: &str, allowed: bool) -> String {
    let namespace = env.namespace;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}});
    env.api.create(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &account).await;
    if allowed {
        let rbac = "rbac.authorization.k8s.io";
        let role = json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{"nonResourceURLs": ["/azure-backend-pool-controller/*"], "verbs": ["post"]}],
        });
        env.api.create(&format!("/apis/{rbac}/v1/clusterroles"), &role).await;
        let binding = json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        });
        env.api.create(&format!("/apis/{rbac}/v1/clusterrolebindings"), &binding).await;
    }
    let token = env.cluster.kubectl(&["create", "token", name, "--namespace", namespace]).await;
    token.trim().to_owned()
}

/// Waits until a controller shows the pool paused.
async fn is_paused(controller: &Controller) {
    eventually("the pool is paused", TEST_TIMEOUT, || async {
        let pool = controller.get(POOL).await?["pool"].clone();
        if pool["state"] == "paused" { Ok(()) } else { Err(pool.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_a_pause_survives_a_failover_and_kubectl_can_pause() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "pauses", 3).await;
    let nodes = [1, 2, 3].map(|number| env.node(number));
    env.set_endpoints_by_hand("web-1", &[("10.205.0.1", Some(&nodes[0]))]).await;
    env.provision(env.namespace).await;
    let leader = start(&env, "pauses-one").await;
    has_role(&leader, "leader").await;
    env.holds("web-1", ["10.1.0.1"]).await;
    let standby = start(&env, "pauses-two").await;
    has_role(&standby, "standby").await;

    let everything = json!({ "scope": "everything", "reason": "a drill" });
    let (alice, mallory) =
        (operator_token(&env, "alice", true).await, operator_token(&env, "mallory", false).await);
    for (token, status) in [("nonsense", 401), (mallory.as_str(), 403)] {
        let (found, text) = standby.post("/api/v1/pause", token, &everything).await;
        assert_eq!(found, status, "{text}");
    }
    let (status, text) = standby.post("/api/v1/pause", &alice, &everything).await;
    assert_eq!(status, 200, "{text}");
    let map = env.api.get(&env.path("configmaps", NOTES)).await.expect("the ConfigMap exists");
    let note = map["data"]["pause.everything"].as_str().unwrap_or_default().to_owned();
    assert!(note.contains("by: system:serviceaccount:pauses:alice\nreason: a drill"), "{map}");
    is_paused(&leader).await;
    let puts = env.azure.puts().await.len();
    env.replace_by_hand("web-1", &[("10.205.0.1", Some(&nodes[1]))]).await;
    leader.kill();
    has_role(&standby, "leader").await;
    is_paused(&standby).await;
    assert_eq!(env.azure.puts().await.len(), puts);
    let (status, text) = standby.post("/api/v1/resume", &alice, &json!({ "scope": "everything" })).await;
    assert_eq!(status, 200, "{text}");
    env.holds("web-1", ["10.1.0.2"]).await;

    eventually("the pool is in sync", TEST_TIMEOUT, || async {
        let pool = standby.get(POOL).await?["pool"].clone();
        if pool["state"] == "in_sync" { Ok(()) } else { Err(pool.to_string()) }
    })
    .await;

    // The documented procedure without the admin API.
    let patch = |value: &Value| json!({ "data": { "pause.everything": value } }).to_string();
    let kubectl = async |patch: &str| {
        let what = ["patch", "configmap", NOTES, "--namespace", "pauses", "--type=merge", "--patch", patch];
        cluster.kubectl(&what).await;
    };
    kubectl(&patch(&json!(""))).await;
    is_paused(&standby).await;
    let puts = env.azure.puts().await.len();
    env.replace_by_hand("web-1", &[("10.205.0.1", Some(&nodes[2]))]).await;
    let (status, text) = standby.post(&format!("{POOL}/attempt"), &alice, &json!({})).await;
    assert_eq!(status, 409, "{text}");
    assert_eq!(env.azure.puts().await.len(), puts);
    kubectl(&patch(&Value::Null)).await;
    env.holds("web-1", ["10.1.0.3"]).await;
    env.end(standby).await;
}
