//! `migrate-basic-lb`: the real binary against simulated Azure and Kubernetes.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use simulator::models::arm::topology::{Cluster, NodeGroup, NodeKind, Service, Topology, UpgradePolicy};
use simulator::models::kube::Resource;
use simulator::models::kube::build;

use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::bench::{Bench, Ended};

/// A bench whose Azure holds this cluster, with its machines as nodes.
async fn bench(cluster: Cluster) -> Bench {
    let mut bench = Bench::new(0).await;
    let url = bench.fakes.arm_url.clone();
    let machines = bench
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
    bench.fakes.apply(nodes.collect()).await.expect("good nodes");
    bench.configure(|cloud| {
        let cloud = cloud.as_object_mut().expect("an object");
        cloud.remove("multipleStandardLoadBalancerConfigurations");
        cloud.insert("loadBalancerBackendPoolConfigurationType".to_owned(), json!("nodeIPConfiguration"));
    });
    bench.arranged().await;
    bench
}

/// A scale set behind both load balancers. The public address is static already, so the Lease changes no hands.
fn scale_set() -> Cluster {
    Cluster {
        nodes: vec![NodeGroup::new("workers", NodeKind::ScaleSet(UpgradePolicy::Manual), 3)],
        services: vec![Service::external(true), Service::internal(None)],
        ..Cluster::default()
    }
}

async fn skus(bench: &Bench) -> Vec<Value> {
    let all = |azure: &mut simulator::Azure, _: u64| {
        let ids = azure.model.ids();
        let lbs = ids.iter().filter(|id| id.rsplit('/').nth(1) == Some("loadBalancers"));
        lbs.filter_map(|id| azure.model.json(id)).map(|body| body["sku"]["name"].clone()).collect()
    };
    bench.fakes.azure.ask(all).await
}

async fn plan(bench: &Bench, more: &[&str]) -> Ended {
    let arguments = [&["plan", "--accept", "no-outbound"], more].concat();
    bench.run("migrate-basic-lb", &arguments).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_printed_and_stored_and_nothing_is_written() {
    let bench = bench(Topology::AvailabilitySet.cluster()).await;
    let file = bench.path("plan.json");
    let ended = plan(&bench, &["--out", &file]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("Nothing blocks the migration."), "{ended:?}");
    let stored: Value =
        serde_json::from_str(&std::fs::read_to_string(&file).expect("the file")).expect("JSON");
    let printed = plan(&bench, &["-o", "json"]).await.json();
    assert_eq!(printed, stored);
    assert_eq!(stored["loadBalancers"].as_array().map(Vec::len), Some(2));
    bench.nothing_was_written().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_a_plan_is_applied_once_and_a_second_time_changes_nothing() {
    let bench = bench(scale_set()).await;
    let (file, journal) = (bench.path("plan.json"), bench.path("journal.json"));
    assert_eq!(plan(&bench, &["--out", &file]).await.code, Some(0));
    let arguments = ["apply", "--plan", &file, "--journal", &journal];
    let first = bench.run("migrate-basic-lb", &arguments).await;
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(first.stdout.contains("all addresses are as they were"), "{first:?}");
    assert!(first.stderr.contains("Outbound traffic is yours to configure"), "{first:?}");
    assert_eq!(skus(&bench).await, ["Standard", "Standard"]);
    let writes = bench.puts().len();
    let second = bench.run("migrate-basic-lb", &arguments).await;
    assert_eq!((second.code, bench.puts().len()), (Some(0), writes), "{second:?}");
    // With the file alone, the command goes on.
    let stored: Value =
        serde_json::from_str(&std::fs::read_to_string(&journal).expect("the file")).expect("JSON");
    assert_eq!(stored["done"], true);
    for (name, resource) in [
        ("azure-backend-pool-controller", Resource::Leases),
        ("aks-managed-resource-locker", Resource::Leases),
    ] {
        let ask =
            move |cluster: &mut simulator::Cluster, _: u64| cluster.model.get(resource, "kube-system", name);
        let lease = bench.fakes.cluster.ask(ask).await.expect("the Lease exists");
        assert!(lease["spec"]["holderIdentity"].as_str().is_none_or(str::is_empty), "{lease}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_is_blocked_is_not_applied() {
    let bench = bench(Topology::LockedDelete.cluster()).await;
    let file = bench.path("plan.json");
    let ended = plan(&bench, &["--out", &file]).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stdout.contains("remedy: remove the lock"), "{ended:?}");
    let applied = bench.run("migrate-basic-lb", &["apply", "--plan", &file]).await;
    assert_eq!(applied.code, Some(1), "{applied:?}");
    assert!(applied.stderr.contains("block the migration"), "{applied:?}");
    assert_eq!(skus(&bench).await, ["Basic", "Basic"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_of_another_state_is_not_applied() {
    let bench = bench(Topology::AvailabilitySet.cluster()).await;
    let file = bench.path("plan.json");
    assert_eq!(plan(&bench, &["--out", &file]).await.code, Some(0));
    let text = std::fs::read_to_string(&file).expect("the file");
    let mut changed: Value = serde_json::from_str(&text).expect("JSON");
    changed["digest"] = json!("0000");
    std::fs::write(&file, changed.to_string()).expect("the folder can be written");
    let applied = bench.run("migrate-basic-lb", &["apply", "--plan", &file]).await;
    assert_eq!(applied.code, Some(1), "{applied:?}");
    assert!(applied.stderr.contains("make a new plan"), "{applied:?}");
    assert_eq!(skus(&bench).await, ["Basic", "Basic"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_a_controller_that_leads_is_waited_for() {
    let bench = bench(Topology::AvailabilitySet.cluster()).await;
    let file = bench.path("plan.json");
    assert_eq!(plan(&bench, &["--out", &file]).await.code, Some(0));
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "namespace": "kube-system", "name": "azure-backend-pool-controller" },
        "spec": { "holderIdentity": "controller-1", "leaseDurationSeconds": 45 },
    });
    bench.fakes.apply(vec![lease]).await.expect("a good Lease");
    let mut command = bench.command("migrate-basic-lb", &["apply", "--plan", &file]);
    let mut running =
        command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the binary under test");
    let mut lines = BufReader::new(running.stderr.take().expect("it is piped")).lines();
    let told = async {
        loop {
            let line = lines.next_line().await.expect("text").expect("it tells whom it waits for");
            if line.contains("controller-1 holds the Lease kube-system/azure-backend-pool-controller") {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), told).await.expect("it tells in time");
    let id = running.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw).expect("it runs");
    kill_process(id, Signal::INT).expect("it runs");
    let ended = tokio::time::timeout(Duration::from_secs(20), running.wait()).await.expect("it ends in time");
    assert_eq!(ended.expect("its code").code(), Some(1));
    assert_eq!(skus(&bench).await, ["Basic", "Basic"]);
}
