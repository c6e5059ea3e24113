//! The notes of starts on a real API server: a replica that ends badly again and again stays out of the election, beside
//! a healthy one that leads, until a person removes the notes (design.md A4).
//!
//! The other end, 30 minutes of life, is shown on the machine: the binary has no clock that a test could wind.

use serde_json::{Value, json};

use super::Story;
use super::replicas::has_role;
use crate::support::controller::{Controller, Flags, Replica};
use crate::support::kubernetes::{self, Cluster};
use crate::support::{PATIENCE, eventually};

/// Our ConfigMap, which is named like our Lease.
const NOTES: &str = "azure-backend-pool-controller";

async fn start(story: &Story<&Cluster>, name: &str) -> Controller {
    let mut cloud_config = story.azure.cloud_config();
    cloud_config["userAgent"] = Value::from(name);
    let replica = Replica {
        name,
        namespace: story.namespace,
        kubeconfig: story.cluster.controller_kubeconfig(story.namespace).await,
        cloud_config,
        settings: json!({}),
        flags: Flags::default(),
    };
    Controller::start_replica(story.cluster, &replica).await
}

/// Waits until the start of a process is noted, and gives what it says of starts.
async fn noted(controller: &Controller) -> Value {
    eventually("the start is noted", PATIENCE, || async {
        let starts = controller.get("/api/v1/status").await?["starts"].clone();
        if starts["noted"] == true { Ok(starts) } else { Err(starts.to_string()) }
    })
    .await
}

/// The notes that stand.
async fn notes(story: &Story<&Cluster>) -> Vec<String> {
    let path = story.path("configmaps", NOTES);
    let config_map = story.api.get(&path).await.expect("the ConfigMap exists");
    let data = config_map["data"].as_object().into_iter().flatten();
    data.map(|(key, _)| key.clone()).filter(|key| key.starts_with("start.")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a4_a_passive_replica_competes_for_leadership_again_when_a_person_has_removed_the_notes() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let story = Story::begin(cluster, "starts", 2).await;
    let (one, two) = (story.node(1), story.node(2));
    story.place_by_hand("web-1", &[("10.204.0.1", Some(&one))]).await;
    story.provision(story.namespace).await;
    let healthy = start(&story, "starts-healthy").await;
    has_role(&healthy, "leader").await;
    for before in 0..3 {
        let ends_badly = start(&story, "starts-crashing").await;
        let starts = noted(&ends_badly).await;
        assert_eq!((&starts["phase"], &starts["notes"]), (&json!("active"), &json!(before)), "{starts}");
        ends_badly.kill();
    }
    let passive = start(&story, "starts-crashing").await;
    let starts = noted(&passive).await;
    assert_eq!((&starts["phase"], &starts["notes"]), (&json!("passive"), &json!(3)), "{starts}");
    has_role(&passive, "passive").await;
    assert_eq!(passive.metric("backend_pool_controller_passive", "").await, Ok(1.0));
    story.holds("web-1", ["10.1.0.1"]).await;
    story.replace_by_hand("web-1", &[("10.204.0.1", Some(&two))]).await;
    story.holds("web-1", ["10.1.0.2"]).await;
    let puts = story.azure.puts().await;
    assert!(puts.iter().all(|put| put.who.starts_with("starts-healthy")), "{puts:?}");

    // What its log advises.
    let gone = notes(&story).await.into_iter().map(|key| (key, Value::Null));
    let patch = json!({ "data": gone.collect::<serde_json::Map<_, _>>() }).to_string();
    let what =
        ["patch", "configmap", NOTES, "--namespace", story.namespace, "--type=merge", "--patch", &patch];
    cluster.kubectl(&what).await;
    has_role(&passive, "standby").await;
    assert_eq!(passive.metric("backend_pool_controller_passive", "").await, Ok(0.0));
    // It has lived for less than 10 minutes, so its own note stands again.
    eventually("its own note alone stands", PATIENCE, || async {
        let notes = notes(&story).await;
        let own = notes.len() == 1 && notes[0].starts_with("start.starts-crashing_");
        if own { Ok(()) } else { Err(format!("{notes:?}")) }
    })
    .await;

    healthy.terminate().await;
    has_role(&passive, "leader").await;
    story.replace_by_hand("web-1", &[("10.204.0.1", Some(&one))]).await;
    story.holds("web-1", ["10.1.0.1"]).await;
    story.end(passive).await;
    assert!(notes(&story).await.is_empty(), "a clean stop strikes its own note");
}
