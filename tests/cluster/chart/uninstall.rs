//! `helm uninstall` in the middle of the controller's work: both Leases are given back before the rights to do so go. And
//! the command `retire` by itself, which the chart has run before.

use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use super::{Process, Release, store_cloud_config, values};
use crate::admin::stage::PROGRAM;
use crate::cluster::Story;
use crate::cluster::replicas::has_role;
use crate::support::controller::shared_lease;
use crate::support::kubernetes::{self, Cluster};
use crate::support::{PATIENCE, eventually, objects};

const NAMESPACE: &str = "chart-uninstall";
/// A Service whose EndpointSlice the story writes by itself.
const GROWING: &str = "growing-2";
/// How long Azure takes to answer a write.
const WRITE_TAKES: Duration = Duration::from_secs(3);
/// Keeps a Pod's object for as long as its process runs, as the kubelet does; kwok would not.
const RUNS: &str = "example.com/runs";

/// A Lease.
async fn lease(story: &Story<&Cluster>, namespace: &str, name: &str) -> Value {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    story.api.get(&path).await.expect("the Lease exists")
}

/// Whether a Lease says that nobody has it.
fn is_free(lease: &Value) -> bool {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().is_empty()
}

/// Sets what keeps a Pod's object.
async fn keep(story: &Story<&Cluster>, pod: &str, finalizers: &[&str]) {
    story.api.merge(&story.path("pods", pod), &json!({ "metadata": { "finalizers": finalizers } })).await;
}

/// Gives the Service a second endpoint, and waits until the write of that is under way.
async fn begin_a_write(story: &Story<&Cluster>) {
    let before = story.azure.puts().await.len();
    let nodes = [1, 2].map(|number| story.node(number));
    let endpoints = [("10.222.0.1", Some(nodes[0].as_str())), ("10.222.0.2", Some(nodes[1].as_str()))];
    story.replace_by_hand(GROWING, &endpoints).await;
    eventually("a write is in flight", PATIENCE, || async {
        let (puts, now_us) = (story.azure.puts().await, story.azure.now_us());
        let in_flight = puts[before..].iter().any(|put| now_us + 1_500_000 < put.answered_us);
        if in_flight { Ok(()) } else { Err(format!("{} writes", puts.len() - before)) }
    })
    .await;
}

/// Does the kubelet's part for a Pod that is deleted: its process is told to end, and when it has ended, the Pod goes. The
/// leader is told in the middle of a write.
async fn ends_with_its_pod(story: &Story<&Cluster>, process: Process, leads: bool) {
    let Process { name, controller } = process;
    let path = story.path("pods", &name);
    eventually("the Pod is being deleted", PATIENCE, || async {
        let pod = story.api.get(&path).await?;
        let is_kept = pod["metadata"]["deletionTimestamp"].is_null();
        if is_kept { Err(pod["metadata"].to_string()) } else { Ok(()) }
    })
    .await;
    if leads {
        begin_a_write(story).await;
        let shared = lease(story, "kube-system", &shared_lease(NAMESPACE)).await;
        assert!(!is_free(&shared) && shared["spec"]["leaseDurationSeconds"] == 60, "{shared}");
    }
    controller.terminate().await;
    keep(story, &name, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w7_w8_helm_uninstall_in_the_middle_of_a_write_leaves_both_leases_free_and_nothing_of_the_release() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let story = Story::begin(cluster, NAMESPACE, 2).await;
    store_cloud_config(&story).await;
    story.place_by_hand(GROWING, &[("10.222.0.1", Some(&story.node(1)))]).await;
    story.provision(NAMESPACE).await;
    let release = Release::install(&story, "leaving", &values(NAMESPACE)).await;
    let mut running = Vec::new();
    for (pod, role) in release.pods().await.iter().zip(["leader", "standby"]) {
        let process = Process::start(&story, pod).await;
        has_role(&process.controller, role).await;
        keep(&story, &process.name, &[RUNS]).await;
        running.push(process);
    }
    let [leader, standby] = <[Process; 2]>::try_from(running).ok().expect("the chart runs two");
    story.holds(GROWING, ["10.1.0.1"]).await;
    story.azure.take(WRITE_TAKES, Duration::ZERO).await;

    tokio::join!(
        release.uninstall(),
        ends_with_its_pod(&story, leader, true),
        ends_with_its_pod(&story, standby, false),
    );
    // What was begun was brought to its end.
    story.holds(GROWING, ["10.1.0.1", "10.1.0.2"]).await;
    let own = lease(&story, NAMESPACE, objects::ACCOUNT).await;
    assert!(is_free(&own), "{own}");
    let shared = lease(&story, "kube-system", &shared_lease(NAMESPACE)).await;
    assert!(is_free(&shared) && shared["spec"]["leaseDurationSeconds"] == 900, "{shared}");
    assert_eq!(release.left().await, Vec::<String>::new());
    // This stays, as README says.
    let notes = story.api.get(&story.path("configmaps", objects::ACCOUNT)).await;
    assert!(notes.is_ok(), "{notes:?}");
}

/// Runs `retire` for the Deployment `web` of a story.
async fn retire(story: &Story<&Cluster>, within: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(PROGRAM);
    command.args(["retire", "--namespace", story.namespace, "--deployment", "web", "--within", within]);
    command.arg("--kubeconfig").arg(story.cluster.admin_kubeconfig()).env_clear().stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().await.expect("the binary under test");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("a text");
    (status.code(), text(stdout), text(stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retire_waits_for_the_pods_that_run_and_names_those_that_do_not_end_in_time() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let story = Story::begin(cluster, "retire", 1).await;
    let (code, said, _) = retire(&story, "10s").await;
    assert_eq!(
        (code, said.as_str()),
        (Some(0), "there is no Deployment retire/web: nothing is to be done\n")
    );

    story.create("deployments", &objects::deployment(story.namespace, "web", 2)).await;
    cluster.rolled_out(story.namespace, "web").await;
    // One that has failed stays for long, and nothing of it runs.
    let failed = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "failed", "labels": { "app": "web" } },
        "spec": { "nodeSelector": { "nowhere": "" }, "containers": objects::containers("example/web:1") },
    });
    story.create("pods", &failed).await;
    let ended = json!({ "status": { "phase": "Failed" } });
    story.api.merge(&format!("{}/status", story.path("pods", "failed")), &ended).await;
    let pods = story.api.items("/api/v1/namespaces/retire/pods?labelSelector=app=web").await;
    let pods = pods.expect("the API server lists Pods");
    let names = pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str());
    let names: Vec<&str> = names.filter(|name| *name != "failed").collect();
    let [slow, quick] = names[..] else { panic!("not two Pods: {names:?}") };
    keep(&story, slow, &[RUNS]).await;

    let (code, said, wrong) = retire(&story, "5s").await;
    assert_eq!(code, Some(1), "{said}{wrong}");
    assert!(said.contains("scaling Deployment retire/web from 2 to 0\n"), "{said}");
    let path = story.path("pods", quick);
    eventually("the other Pod is gone", PATIENCE, || async {
        match story.api.get(&path).await {
            Ok(pod) => Err(pod["metadata"].to_string()),
            Err(_) => Ok(()),
        }
    })
    .await;
    let (code, said, wrong) = retire(&story, "5s").await;
    assert_eq!(code, Some(1), "{said}{wrong}");
    let told = format!(
        "error: Deployment retire/web is scaled to 0, and has not ended within 5s: 1 Pod: {slow}; see why"
    );
    assert!(wrong.starts_with(&told) && !wrong.contains(quick), "{wrong}");
    let web = story.api.get(&story.path("deployments", "web")).await.expect("the Deployment stays");
    assert_eq!(web["spec"]["replicas"], 0);

    keep(&story, slow, &[]).await;
    let (code, said, wrong) = retire(&story, "60s").await;
    assert_eq!(code, Some(0), "{said}{wrong}");
    assert!(said.ends_with("no Pod of Deployment retire/web is left\n"), "{said}");
    assert!(!said.contains("scaling"), "it is at 0: {said}");
}
