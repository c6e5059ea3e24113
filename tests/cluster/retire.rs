//! The command `retire` alone, which the chart runs before `helm uninstall`: it waits for running Pods, also if their
//! Deployment was deleted, and names those that do not end in time.

use std::process::{Output, Stdio};

use serde_json::json;
use tokio::process::Command;

use super::TestEnvironment;
use crate::admin::stage::PROGRAM;
use crate::support::kubernetes::{self, Cluster};
use crate::support::objects;

/// The labels of the Pods of the Deployment `web`.
const LABELS: &str = "app=web";

/// Runs `retire` for the Deployment `web` of a test, with additional flags.
async fn retire(env: &TestEnvironment<&Cluster>, flags: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(PROGRAM);
    command.args(["retire", "--namespace", env.namespace, "--deployment", "web"]).args(flags);
    command.arg("--kubeconfig").arg(env.cluster.admin_kubeconfig()).env_clear().stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().await.expect("the binary under test");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("a text");
    (status.code(), text(stdout), text(stderr))
}

/// Returns the names of the Pods with the labels of the Deployment `web`.
async fn pods(env: &TestEnvironment<&Cluster>) -> Vec<String> {
    let path = format!("/api/v1/namespaces/{}/pods?labelSelector={LABELS}", env.namespace);
    let pods = env.api.items(&path).await.expect("the API server lists Pods");
    pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

/// Creates a failed Pod with the labels of the Deployment `web`. The Pod stays, but no process of it runs.
async fn leave_a_failed_pod(env: &TestEnvironment<&Cluster>) {
    let failed = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "failed", "labels": { "app": "web" } },
        "spec": { "nodeSelector": { "nowhere": "" }, "containers": objects::containers("example/web:1") },
    });
    env.create("pods", &failed).await;
    let ended = json!({ "status": { "phase": "Failed" } });
    env.api.merge(&format!("{}/status", env.path("pods", "failed")), &ended).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_retire_waits_for_running_pods_and_names_late_ones() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "retire", 1).await;
    env.create("deployments", &objects::deployment(env.namespace, "web", 2)).await;
    cluster.rolled_out(env.namespace, "web").await;
    let names = pods(&env).await;
    let [slow, quick] = &names[..] else { panic!("not two Pods: {names:?}") };
    leave_a_failed_pod(&env).await;
    env.keep(slow).await;

    let (code, stdout, wrong) = retire(&env, &["--within=5s"]).await;
    assert_eq!(code, Some(3), "{stdout}{wrong}");
    assert!(stdout.contains("scaling Deployment retire/web from 2 to 0\n"), "{stdout}");
    env.is_gone(quick).await;
    // While the Deployment exists, its selector determines the Pods.
    let (code, stdout, wrong) = retire(&env, &["--within=5s", "--selector=app=other"]).await;
    assert_eq!(code, Some(3), "{stdout}{wrong}");
    let expected = format!("error: Deployment retire/web has not ended within 5s: 1 Pod: {slow}; see why");
    assert!(wrong.starts_with(&expected) && !wrong.contains(quick.as_str()), "{wrong}");
    let web = env.api.get(&env.path("deployments", "web")).await.expect("the Deployment stays");
    assert_eq!(web["spec"]["replicas"], 0);

    env.release(slow).await;
    let (code, stdout, wrong) = retire(&env, &["--within=60s"]).await;
    assert_eq!(code, Some(0), "{stdout}{wrong}");
    assert!(stdout.ends_with("no Pod of Deployment retire/web is left\n"), "{stdout}");
    assert!(!stdout.contains("scaling"), "it is at 0: {stdout}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_retire_waits_for_pods_of_a_deleted_deployment_by_labels() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "retire-deleted", 1).await;
    env.create("deployments", &objects::deployment(env.namespace, "web", 1)).await;
    cluster.rolled_out(env.namespace, "web").await;
    let names = pods(&env).await;
    let [slow] = &names[..] else { panic!("not one Pod: {names:?}") };
    leave_a_failed_pod(&env).await;
    env.keep(slow).await;
    // At 0 the ReplicaSet creates no other Pod. The garbage collector, which would delete the ReplicaSet, does not run.
    env.scale("web", 0).await;
    env.is_being_deleted(slow).await;
    env.api.delete(&env.path("deployments", "web")).await;

    let (code, stdout, wrong) = retire(&env, &["--within=3s"]).await;
    assert_eq!((code, wrong.as_str()), (Some(0), ""), "{stdout}");
    let expected = "there is no Deployment retire-deleted/web: nothing to do; to wait for the Pods of a deleted \
                    Deployment, pass --selector\n";
    assert_eq!(stdout, expected);

    let by_labels = |within| [within, "--selector", LABELS];
    let (code, stdout, wrong) = retire(&env, &by_labels("--within=3s")).await;
    assert_eq!(code, Some(3), "{stdout}{wrong}");
    assert_eq!(stdout, format!("waiting for 1 Pod: {slow}\n"));
    let expected =
        format!("error: Deployment retire-deleted/web has not ended within 3s: 1 Pod: {slow}; see why");
    assert!(wrong.starts_with(&expected), "{wrong}");

    env.release(slow).await;
    env.is_gone(slow).await;
    let (code, stdout, wrong) = retire(&env, &by_labels("--within=60s")).await;
    assert_eq!(code, Some(0), "{stdout}{wrong}");
    let expected =
        "there is no Deployment retire-deleted/web, and no Pod with the labels app=web: nothing to do\n";
    assert_eq!(stdout, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n4_retire_fails_while_nodes_are_down_and_removes_its_key() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "retire-down", 1).await;
    env.create("deployments", &objects::deployment(env.namespace, "web", 1)).await;
    cluster.rolled_out(env.namespace, "web").await;
    let record = "node-7\nips: 10.0.0.7\nsince: 2026-11-22T16:30:35.000000Z\n";
    let records = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "pools" }, "data": { "down.u-7": record },
    });
    env.create("configmaps", &records).await;
    let names = pods(&env).await;
    let [slow] = &names[..] else { panic!("not one Pod: {names:?}") };
    env.keep(slow).await;

    // No controller runs that would restore the node.
    let config_map = format!("--configmap={}/pools", env.namespace);
    let (code, stdout, wrong) = retire(&env, &["--within=4s", &config_map]).await;
    assert_eq!(code, Some(3), "{stdout}{wrong}");
    let expected =
        "waiting for 1 node: node-7 to be restored\nscaling Deployment retire-down/web from 1 to 0\n";
    assert!(stdout.starts_with(expected), "{stdout}");
    let still_down =
        "error: still Down: 1 node: node-7; docs/admin-state.md says how to restore them by hand\n";
    assert!(wrong.ends_with(still_down), "{wrong}");
    let map = env.api.get(&env.path("configmaps", "pools")).await.expect("the ConfigMap stays");
    assert_eq!(map["data"], json!({ "down.u-7": record }), "the key admin-state.off is removed");

    // No Pod is left that could restore the node: the command fails until the record is deleted.
    env.release(slow).await;
    let (code, stdout, wrong) = retire(&env, &["--within=60s", &config_map]).await;
    assert_eq!((code, wrong.as_str()), (Some(3), still_down), "{stdout}");
    assert!(stdout.ends_with("no Pod of Deployment retire-down/web is left\n"), "{stdout}");
    env.api.merge(&env.path("configmaps", "pools"), &json!({ "data": null })).await;
    let (code, stdout, wrong) = retire(&env, &["--within=60s", &config_map]).await;
    assert_eq!((code, wrong.as_str()), (Some(0), ""), "{stdout}");
}
