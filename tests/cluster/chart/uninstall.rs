//! `helm uninstall` during the controller's work: a hook with exactly the required rights waits until nodes that the
//! controller has set Down are restored and both Leases are released, before the controller's rights are deleted. If a
//! Pod does not end, nothing is deleted, and the command can be repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;
use std::time::Duration;

use serde_json::Value;

use super::rights::{Grant, granted, unused};
use super::{Process, Release, pod, store_cloud_config, values};
use crate::cluster::TestEnvironment;
use crate::cluster::leaving::OUT_OF_SERVICE;
use crate::cluster::replicas::has_role;
use crate::support::controller::shared_lease;
use crate::support::kubernetes::{self, Cluster, Request};
use crate::support::{TEST_TIMEOUT, eventually, objects};

const NAMESPACE: &str = "chart-uninstall";
/// The account of the hook of the release `leaving` in it.
const ACCOUNT: &str =
    "system:serviceaccount:chart-uninstall:leaving-azure-backend-pool-controller-pre-delete";
/// A Service whose EndpointSlice the test writes.
const GROWING: &str = "growing-2";
/// Latency of a write in Azure.
const WRITE_TAKES: Duration = Duration::from_secs(3);

/// Returns a Lease.
async fn lease(env: &TestEnvironment<&Cluster>, namespace: &str, name: &str) -> Value {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    env.api.get(&path).await.expect("the Lease exists")
}

/// Returns whether a Lease has no holder.
fn is_free(lease: &Value) -> bool {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().is_empty()
}

/// Adds a second endpoint to the Service, and waits until its write is in flight.
async fn begin_a_write(env: &TestEnvironment<&Cluster>) {
    let before = env.azure.puts().await.len();
    let nodes = [1, 2].map(|number| env.node(number));
    let endpoints = [("10.222.0.1", Some(nodes[0].as_str())), ("10.222.0.2", Some(nodes[1].as_str()))];
    env.replace_by_hand(GROWING, &endpoints).await;
    eventually("a write is in flight", TEST_TIMEOUT, || async {
        let (puts, now_us) = (env.azure.puts().await, env.azure.now_us());
        let in_flight = puts[before..].iter().any(|put| now_us + 1_500_000 < put.answered_us);
        if in_flight { Ok(()) } else { Err(format!("{} writes", puts.len() - before)) }
    })
    .await;
}

/// Acts as the kubelet of a deleted Pod: stops its process, and removes the Pod when the process has ended. The leader
/// has restored nodes before, and is stopped during a write.
async fn ends_with_its_pod(env: &TestEnvironment<&Cluster>, process: Process, leads: bool) {
    let Process { name, controller } = process;
    env.is_being_deleted(&name).await;
    if leads {
        assert_eq!(env.downs().await, Ok(BTreeSet::new()), "the controller's Downs are restored first");
        assert_eq!(env.records().await, Ok(BTreeMap::new()));
        begin_a_write(env).await;
        let shared = lease(env, "kube-system", &shared_lease(NAMESPACE)).await;
        assert!(!is_free(&shared) && shared["spec"]["leaseDurationSeconds"] == 60, "{shared}");
    }
    controller.terminate().await;
    env.release(&name).await;
}

/// Returns the grants of the roles of the release's hooks, which exist while the hook runs.
async fn rights_of_hooks(release: &Release<'_>) -> Vec<Grant> {
    let hooks = release.helm(&["get", "hooks", release.name]).await;
    let hooks: Vec<Value> = serde_saphyr::from_multiple(&hooks).expect("hooks are YAML");
    let roles = hooks.iter().filter(|hook| hook["kind"] == "Role" || hook["kind"] == "ClusterRole");
    roles.flat_map(granted).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n4_w7_w8_helm_uninstall_in_a_write_restores_nodes() {
    let Some(cluster) = kubernetes::audited(ACCOUNT).await else { return };
    if !pod::supports_mount_namespaces().await {
        return;
    }
    let env = TestEnvironment::begin(&cluster, NAMESPACE, 2).await;
    store_cloud_config(&env).await;
    env.set_endpoints_by_hand(GROWING, &[("10.222.0.1", Some(&env.node(1)))]).await;
    env.provision(NAMESPACE).await;
    let release = Release::install(&env, "leaving", &values(NAMESPACE)).await;
    let grants = rights_of_hooks(&release).await;
    let mut running = Vec::new();
    for (pod, role) in release.pods().await.iter().zip(["leader", "standby"]) {
        let process = Process::start(&env, pod).await;
        has_role(&process.controller, role).await;
        env.keep(&process.name).await;
        running.push(process);
    }
    let [leader, standby] = <[Process; 2]>::try_from(running).ok().expect("the chart runs two");
    env.holds(GROWING, ["10.1.0.1"]).await;
    env.taint(1, OUT_OF_SERVICE).await;
    env.are_down(["10.1.0.1"]).await;
    env.are_recorded([env.uid(1).await.as_str()]).await;
    env.azure.set_write_latency(WRITE_TAKES, Duration::ZERO).await;

    tokio::join!(
        release.uninstall(),
        ends_with_its_pod(&env, leader, true),
        ends_with_its_pod(&env, standby, false),
    );
    // The running write was completed, and the node that is still tainted was not changed again.
    env.holds(GROWING, ["10.1.0.1", "10.1.0.2"]).await;
    assert_eq!(env.downs().await, Ok(BTreeSet::new()));
    let own = lease(&env, NAMESPACE, objects::ACCOUNT).await;
    assert!(is_free(&own), "{own}");
    let shared = lease(&env, "kube-system", &shared_lease(NAMESPACE)).await;
    assert!(is_free(&shared) && shared["spec"]["leaseDurationSeconds"] == 900, "{shared}");
    assert_eq!(release.left().await, Vec::<String>::new());
    // The ConfigMap stays, as README says, without anything that would block the next installation.
    let notes = env.api.get(&env.path("configmaps", objects::ACCOUNT)).await.expect("it stays");
    let mut keys = notes["data"].as_object().into_iter().flat_map(serde_json::Map::keys);
    assert!(keys.all(|key| key != "admin-state.off" && !key.starts_with("down.")), "{notes}");

    let requests = cluster.requests();
    assert_eq!(unused(&grants, &requests), Vec::<&Grant>::new(), "rights that the hook does not need");
    let by_no_right =
        |request: &&Request| request.status == 403 || !grants.iter().any(|grant| grant.covers(request));
    let missing: Vec<&Request> = requests.iter().filter(by_no_right).collect();
    assert_eq!(missing, Vec::<&Request>::new(), "rights that the hook lacks");
}

/// Runs the hook's Job to its failure while this Pod does not end: a second Pod of the Job repeats the attempt of the
/// first. Returns the labels by which the hook finds Pods.
async fn hook_fails(release: &Release<'_>, slow: &str) -> String {
    let mut labels = String::new();
    for attempt in ["first", "second"] {
        let pod = release.hook("pre-delete").await;
        let mut container = pod.container(release.env.cluster).await;
        // A longer wait has the same result.
        container.replace_argument("--within=100s", "--within=8s");
        labels = container.argument("--selector=");
        let output = release.carry_out(&pod, &container).await;
        let Output { status, stderr, .. } = &output;
        let message = String::from_utf8_lossy(stderr);
        assert_eq!(status.code(), Some(3), "the {attempt} attempt: {output:?}");
        assert!(
            message.contains("has not ended within 8s: ") && message.contains(slow),
            "{attempt}: {message}"
        );
    }
    labels
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_helm_uninstall_waits_for_pods_and_can_be_run_again() {
    let Some(cluster) = kubernetes::shared().await else { return };
    if !pod::supports_mount_namespaces().await {
        return;
    }
    let env = TestEnvironment::begin(cluster, "chart-stuck", 2).await;
    store_cloud_config(&env).await;
    let release = Release::install(&env, "stuck", &values(env.namespace)).await;
    let pods = release.pods().await;
    let slow = pods.first().expect("the chart runs two").name();
    env.keep(slow).await;
    let before = release.left().await;
    assert!(before.contains(&format!("Deployment {}", release.full_name())), "{before:?}");

    let uninstall = ["uninstall", release.name, "--wait"];
    let (message, given) = tokio::join!(release.helm_fails(&uninstall), hook_fails(&release, slow));
    let job = format!("{}-pre-delete", release.full_name());
    assert!(message.contains(&job), "{message}");
    let status = release.helm(&["status", release.name, "--output=json"]).await;
    let status: Value = serde_json::from_str(&status).expect("helm prints JSON");
    assert_eq!(status["info"]["status"], "uninstalling");
    let left = release.left().await;
    let (of_hook, rest): (Vec<String>, Vec<String>) =
        left.into_iter().partition(|object| object.ends_with(&format!(" {job}")));
    assert_eq!(rest, before);
    assert!(of_hook.contains(&format!("Job {job}")), "the Job stays: {of_hook:?}");
    let path = env.path("deployments", &release.full_name());
    let deployment = env.api.get(&path).await.expect("the Deployment stays");
    assert_eq!(deployment["spec"]["replicas"], 0);
    // The hook finds the Pods even if the Deployment is already deleted.
    let labels = deployment["spec"]["selector"]["matchLabels"].as_object().expect("its selector has labels");
    let labels = labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().expect("a text")));
    let selector: BTreeSet<String> = labels.collect();
    assert_eq!(given.split(',').map(str::to_owned).collect::<BTreeSet<_>>(), selector);

    // After a rollback the replicas are back.
    let rolled_back = release.helm(&["rollback", release.name, "1", "--wait"]).await;
    let deployment = env.api.get(&path).await.expect("the Deployment stays");
    assert_eq!(deployment["spec"]["replicas"], 2, "{rolled_back}");
    let (message, _) = tokio::join!(release.helm_fails(&uninstall), hook_fails(&release, slow));
    assert!(message.contains(&job), "{message}");

    env.release(slow).await;
    release.uninstall().await;
    assert_eq!(release.left().await, Vec::<String>::new());
}
