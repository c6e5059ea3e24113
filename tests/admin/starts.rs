//! The notes of starts (A4), as far as an operator sees them.

use rustix::process::Signal;
use serde_json::{Value, json};
use simulator::models::kube::Resource;
use simulator::models::kube::build::Endpoint;

use super::stage::{Prepared, Stage, add_service, node_name, place, pool_of};

const NAME: &str = "azure-backend-pool-controller";
const STATUS: &str = "/api/v1/status";

async fn object(stage: &Stage, resource: Resource) -> Option<Value> {
    stage.fakes.cluster.ask(move |cluster, _| cluster.model.get(resource, "kube-system", NAME)).await
}

/// The keys of our ConfigMap.
async fn notes(stage: &Stage) -> Vec<String> {
    let config_map = object(stage, Resource::ConfigMaps).await.expect("the ConfigMap");
    let data = config_map["data"].as_object().into_iter().flatten();
    data.map(|(key, _)| key.clone()).collect()
}

async fn noted(stage: &Stage) -> Value {
    stage.shown(STATUS, |status| status["starts"]["noted"] == true).await
}

async fn killed(stage: &mut Stage) {
    stage.signal(Signal::KILL);
    assert_eq!(stage.ended().await.code(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a4_after_three_bad_ends_the_fourth_start_is_passive_and_writes_nothing_and_says_so() {
    let prepared = Prepared::new(1).await;
    add_service(&prepared.fakes, "web", &[0]).await;
    let mut stage = prepared.start(&json!({})).await;
    stage.wait_until_ready().await;
    stage.shown(STATUS, |status| status["leadership"]["role"] == "leader").await;
    for start in 1..=3 {
        let status = noted(&stage).await;
        assert_eq!(status["starts"]["phase"], "active", "{status}");
        assert_eq!(status["starts"]["notes"], start - 1, "{status}");
        assert_eq!(notes(&stage).await.len(), start);
        killed(&mut stage).await;
        stage = stage.another(&format!("{start}.log")).await;
    }
    let lease = object(&stage, Resource::Leases).await.expect("that of the first start");
    let puts = stage.fakes.counters().await.pool_puts;

    stage.wait_until_ready().await;
    let status = stage.shown(STATUS, |status| status["leadership"]["role"] == "passive").await;
    let starts = &status["starts"];
    assert_eq!((&starts["phase"], &starts["notes"]), (&json!("passive"), &json!(3)), "{status}");
    let ends_in = starts["endsInSeconds"].as_f64().expect("it ends");
    assert!(ends_in > 1_700.0 && ends_in <= 1_800.0, "{status}");
    assert_eq!(stage.series("backend_pool_controller_passive").await, Some(1.0));
    let said = |line: &Value| {
        line["message"] == "too many starts ended badly: this process writes nothing"
            && line["level"] == "WARN"
    };
    assert_eq!(stage.logged("that it is passive", said).await.len(), 1, "{:?}", stage.log());

    // It goes on reading, and writes neither a pool nor the Lease.
    place(&stage.fakes, "web", &[Endpoint::ready(&node_name(1))]).await;
    let path = format!("/api/v1/queues/kubernetes/{}", pool_of("web"));
    stage.shown(&path, |answer| answer["pool"]["state"] == "due").await;
    assert_eq!(stage.fakes.counters().await.pool_puts, puts);
    assert_eq!(object(&stage, Resource::Leases).await, Some(lease));

    assert_eq!(notes(&stage).await.len(), 4, "a passive start is noted too");
    stage.signal(Signal::TERM);
    assert_eq!(stage.ended().await.code(), Some(0), "{:?}", stage.log());
    assert_eq!(notes(&stage).await.len(), 3, "a clean stop strikes its own note");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a4_notes_that_may_not_be_written_keep_nobody_from_beginning_and_are_told_in_log_and_status() {
    let prepared = Prepared::new(1).await;
    prepared.fakes.plant(|model| model.forbid(Resource::ConfigMaps)).await;
    let stage = prepared.start(&json!({})).await;
    // It competes; that nothing is written all the same is for the pauses, which cannot be read either (G6).
    let status = stage.shown(STATUS, |status| status["leadership"]["role"] == "confirming").await;
    let starts = &status["starts"];
    assert_eq!((&starts["phase"], &starts["notes"]), (&json!("active"), &Value::Null), "{status}");
    assert!(starts["lastError"].as_str().is_some_and(|error| error.contains("403")), "{status}");
    let told = |line: &Value| line["message"] == "the start of this process cannot be noted";
    assert_eq!(stage.logged("what cannot be noted", told).await.len(), 1, "{:?}", stage.log());
    stage.fakes.plant(|model| model.permit(Resource::ConfigMaps)).await;
    let status = noted(&stage).await;
    assert_eq!(status["starts"]["lastError"], Value::Null, "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_a_dry_run_notes_no_start() {
    let mut stage = Prepared::new(1).await.start_with(&json!({}), &["--dry-run"]).await;
    stage.wait_until_ready().await;
    stage.shown(STATUS, |status| status["leadership"]["role"] == "alone").await;
    stage.signal(Signal::TERM);
    assert_eq!(stage.ended().await.code(), Some(0), "{:?}", stage.log());
    assert_eq!(object(&stage, Resource::ConfigMaps).await, None);
}
