//! `migrate-basic-lb`: the real binary against simulated Azure and Kubernetes.

mod interrupted;
mod ip_pools;
mod journal;
mod on_startup;
mod unattended;

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use simulator::models::arm::topology::{Cluster, NodeGroup, NodeKind, Service, Topology, UpgradePolicy};
use simulator::models::arm::{Method, Request};
use simulator::models::kube::Resource;
use simulator::models::kube::build;
use simulator::{Azure, Fate};
use tokio::sync::mpsc;

use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::fixture::{Ended, Fixture, Running};

/// Names of the controller's own Lease, and of the Lease that it shares with the cloud-controller-manager.
const OWN: &str = "azure-backend-pool-controller";
const SHARED: &str = "aks-managed-resource-locker";

/// Returns an environment with this cluster in Azure, and its machines as nodes.
async fn fixture(cluster: Cluster) -> Fixture {
    let mut fixture = Fixture::new(0).await;
    hold(&fixture, cluster).await;
    fixture.configure(|cloud| {
        let cloud = cloud.as_object_mut().expect("an object");
        cloud.remove("multipleStandardLoadBalancerConfigurations");
        cloud.insert("loadBalancerBackendPoolConfigurationType".to_owned(), json!("nodeIPConfiguration"));
    });
    fixture.reset_baseline().await;
    fixture
}

/// Replaces Azure's resources with this cluster, and the nodes with its machines.
async fn hold(fixture: &Fixture, cluster: Cluster) {
    let url = fixture.fakes.arm_url.clone();
    let machines = fixture
        .fakes
        .azure
        .ask(move |azure, _| {
            let mut model = cluster.build(azure.model.settings().clone()).expect("Azure takes the cluster");
            model.set_endpoint(&url);
            azure.model = model;
            let ids = azure.model.ids().into_iter();
            ids.filter(|id| id.rsplit('/').nth(1) == Some("virtualMachines")).collect::<Vec<_>>()
        })
        .await;
    let nodes = machines.iter().enumerate().map(|(at, id)| {
        let mut node = build::node(&format!("node-{at}"), &[&format!("10.240.1.{at}")], &[], true, &[]);
        node["spec"]["providerID"] = json!(format!("azure://{id}"));
        node
    });
    fixture.fakes.apply(nodes.collect()).await.expect("good nodes");
}

/// Returns a scale set behind both load balancers. The public address is already static, so the Lease keeps its holder.
fn scale_set() -> Cluster {
    Cluster {
        nodes: vec![NodeGroup::new("workers", NodeKind::ScaleSet(UpgradePolicy::Manual), 3)],
        services: vec![Service::external(true), Service::internal(None)],
        ..Cluster::default()
    }
}

async fn skus(fixture: &Fixture) -> Vec<Value> {
    let all = |azure: &mut simulator::Azure, _: u64| {
        let ids = azure.model.ids();
        let lbs = ids.iter().filter(|id| id.rsplit('/').nth(1) == Some("loadBalancers"));
        lbs.filter_map(|id| azure.model.json(id)).map(|body| body["sku"]["name"].clone()).collect()
    };
    fixture.fakes.azure.ask(all).await
}

/// Returns a Lease that this client holds.
fn lease(name: &str, holder: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "namespace": "kube-system", "name": name },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 45 },
    })
}

async fn both_leases_are_free(fixture: &Fixture) {
    for name in [OWN, SHARED] {
        let ask = move |cluster: &mut simulator::Cluster, _: u64| {
            cluster.model.get(Resource::Leases, "kube-system", name)
        };
        let lease = fixture.fakes.cluster.ask(ask).await.unwrap_or_default();
        assert!(lease["spec"]["holderIdentity"].as_str().is_none_or(str::is_empty), "{lease}");
    }
}

/// Cuts the connection of every request that creates a load balancer. The receiver gets a message for each.
async fn cut_creations(fixture: &Fixture) -> mpsc::UnboundedReceiver<()> {
    let (arrived, arrival) = mpsc::unbounded_channel();
    let hook = move |_: &mut Azure, request: &Request, _| {
        let path = request.path_and_query.split('?').next().unwrap_or_default();
        if request.method == Method::Put && path.rsplit('/').nth(1) == Some("loadBalancers") {
            // The receiver may be dropped.
            arrived.send(()).unwrap_or_default();
            return Fate::Cut;
        }
        Fate::Answered
    };
    fixture.fakes.azure.ask(move |azure, _| azure.wire.intercept(hook)).await;
    arrival
}

/// Stops cutting connections.
async fn cut_nothing(fixture: &Fixture) {
    fixture.fakes.azure.ask(|azure, _| azure.wire.intercept(|_, _, _| Fate::Answered)).await;
}

async fn plan(fixture: &Fixture, more: &[&str]) -> Ended {
    let arguments = [&["plan", "--accept", "no-outbound"], more].concat();
    fixture.run("migrate-basic-lb", &arguments).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_printed_and_stored_and_nothing_is_written() {
    let fixture = fixture(Topology::AvailabilitySet.cluster()).await;
    let file = fixture.path("plan.json");
    let ended = plan(&fixture, &["--out", &file]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("Nothing blocks the migration."), "{ended:?}");
    let stored: Value =
        serde_json::from_str(&std::fs::read_to_string(&file).expect("the file")).expect("JSON");
    let printed = plan(&fixture, &["-o", "json"]).await.json();
    assert_eq!(printed, stored);
    assert_eq!(stored["loadBalancers"].as_array().map(Vec::len), Some(2));
    fixture.assert_nothing_written().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_a_plan_is_applied_once_and_a_second_time_changes_nothing() {
    let fixture = fixture(scale_set()).await;
    let (file, journal) = (fixture.path("plan.json"), fixture.path("journal.json"));
    assert_eq!(plan(&fixture, &["--out", &file]).await.code, Some(0));
    let arguments = ["apply", "--plan", &file, "--journal", &journal];
    let first = fixture.run("migrate-basic-lb", &arguments).await;
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(first.stdout.contains("all addresses are as they were"), "{first:?}");
    assert!(first.stderr.contains("Configure outbound traffic yourself"), "{first:?}");
    assert_eq!(skus(&fixture).await, ["Standard", "Standard"]);
    let writes = fixture.puts().len();
    let second = fixture.run("migrate-basic-lb", &arguments).await;
    assert_eq!((second.code, fixture.puts().len()), (Some(0), writes), "{second:?}");
    // The command continues with only the file.
    let stored: Value =
        serde_json::from_str(&std::fs::read_to_string(&journal).expect("the file")).expect("JSON");
    assert_eq!(stored["done"], true);
    both_leases_are_free(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_is_blocked_is_not_applied() {
    let fixture = fixture(Topology::LockedDelete.cluster()).await;
    let file = fixture.path("plan.json");
    let ended = plan(&fixture, &["--out", &file]).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stdout.contains("remedy: remove the lock"), "{ended:?}");
    let applied = fixture.run("migrate-basic-lb", &["apply", "--plan", &file]).await;
    assert_eq!(applied.code, Some(1), "{applied:?}");
    assert!(applied.stderr.contains("block the migration"), "{applied:?}");
    assert_eq!(skus(&fixture).await, ["Basic", "Basic"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_of_another_state_is_not_applied() {
    let fixture = fixture(Topology::AvailabilitySet.cluster()).await;
    let file = fixture.path("plan.json");
    assert_eq!(plan(&fixture, &["--out", &file]).await.code, Some(0));
    let text = std::fs::read_to_string(&file).expect("the file");
    let mut changed: Value = serde_json::from_str(&text).expect("JSON");
    changed["digest"] = json!("0000");
    std::fs::write(&file, changed.to_string()).expect("the folder can be written");
    let applied = fixture.run("migrate-basic-lb", &["apply", "--plan", &file]).await;
    assert_eq!(applied.code, Some(1), "{applied:?}");
    assert!(applied.stderr.contains("make a new plan"), "{applied:?}");
    assert_eq!(skus(&fixture).await, ["Basic", "Basic"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_interrupted_before_the_outage_allows_a_new_plan() {
    let fixture = fixture(Topology::AvailabilitySet.cluster()).await;
    let (file, journal) = (fixture.path("plan.json"), fixture.path("journal.json"));
    assert_eq!(plan(&fixture, &["--out", &file]).await.code, Some(0));
    fixture.fakes.apply(vec![lease(SHARED, "cloud-controller-manager")]).await.expect("a good Lease");
    let arguments = ["apply", "--plan", &file, "--journal", &journal];
    let running = Running::start(&fixture, "migrate-basic-lb", &arguments, "apply.log");
    running
        .wait_for_log("cloud-controller-manager holds the Lease kube-system/aks-managed-resource-locker")
        .await;
    running.signal(Signal::INT);
    let ended = running.ended().await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stdout.contains("make a new plan and apply it"), "{ended:?}");
    // A change before the next plan.
    let change = |azure: &mut simulator::Azure, _: u64| {
        let ids = azure.model.ids();
        let lb = ids.iter().find(|id| id.ends_with("/loadBalancers/kubernetes")).expect("it exists");
        let mut body = azure.model.json(lb).expect("it exists");
        body["properties"]["loadBalancingRules"][0]["properties"]["idleTimeoutInMinutes"] = json!(30);
        azure.model.seed(lb, &body).expect("Azure takes it");
    };
    fixture.fakes.azure.ask(change).await;
    fixture.fakes.apply(vec![lease(SHARED, "")]).await.expect("a good Lease");
    assert_eq!(plan(&fixture, &["--out", &file, "--force"]).await.code, Some(0));
    let ended = fixture.run("migrate-basic-lb", &arguments).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(skus(&fixture).await, ["Standard", "Standard"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_a_migration_waits_for_the_leader() {
    let fixture = fixture(Topology::AvailabilitySet.cluster()).await;
    let file = fixture.path("plan.json");
    assert_eq!(plan(&fixture, &["--out", &file]).await.code, Some(0));
    fixture.fakes.apply(vec![lease(OWN, "controller-1")]).await.expect("a good Lease");
    let mut command = fixture.command("migrate-basic-lb", &["apply", "--plan", &file]);
    let mut running =
        command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the binary under test");
    let mut lines = BufReader::new(running.stderr.take().expect("it is piped")).lines();
    let printed = async {
        loop {
            let line = lines.next_line().await.expect("text").expect("the log names the holder");
            if line.contains("controller-1 holds the Lease kube-system/azure-backend-pool-controller") {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), printed).await.expect("it is logged in time");
    let id = running.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw).expect("it runs");
    kill_process(id, Signal::INT).expect("it runs");
    let ended = tokio::time::timeout(Duration::from_secs(20), running.wait()).await.expect("it ends in time");
    assert_eq!(ended.expect("its code").code(), Some(1));
    assert_eq!(skus(&fixture).await, ["Basic", "Basic"]);
}
