//! Tests of every view of the page in every state of a controller.

use serde_json::{Value, json};
use simulator::models::arm::Fault;
use simulator::models::kube::Resource;
use simulator::models::kube::build::{self, Endpoint};

use super::{LOADED, Reader, encoded};
use crate::admin::stage::{
    NAMESPACE, Prepared, Stage, add_service, node_ip, node_name, pool_of, set_endpoints,
};
use crate::admin::{nodes, web};
use crate::xds::trouble;

const TOKEN: Option<&str> = Some("a-secret-token");
const STATUS: &str = "/api/v1/status";

/// Starts a controller with these Services, each on nodes 0 and 1, and waits until it leads.
async fn leading(names: &[&str], overlay: &Value) -> Stage {
    let prepared = Prepared::new(1).await;
    for name in names {
        add_service(&prepared.fakes, name, &[0, 1]).await;
    }
    let stage = prepared.start(overlay).await;
    stage.wait_until_ready().await;
    stage.shown(STATUS, |status| status["leadership"]["role"] == "leader").await;
    for name in names {
        stage.shown(&queue(name), |answer| answer["pool"]["observedAt"].is_string()).await;
    }
    stage
}

fn queue(name: &str) -> String {
    format!("/api/v1/queues/kubernetes/{}", pool_of(name))
}

/// Moves the endpoints of a Service.
async fn moved(stage: &Stage, name: &str, nodes: &[usize]) {
    let endpoints: Vec<Endpoint> = nodes.iter().map(|node| Endpoint::ready(&node_name(*node))).collect();
    set_endpoints(&stage.fakes, name, &endpoints).await;
}

async fn is_held(stage: &Stage, name: &str, reason: &str) {
    stage.shown(&queue(name), |answer| answer["pool"]["held"]["reason"] == reason).await;
}

async fn is(stage: &Stage, name: &str, state: &str) {
    stage.shown(&queue(name), |answer| answer["pool"]["state"] == state).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_observe_and_add_only_render_with_pending_changes() {
    let Some(mut reader) = Reader::start().await else { return };
    let stage = leading(&["moves", "stays"], &json!({ "mode": "observe" })).await;
    moved(&stage, "moves", &[1, 2]).await;
    stage.shown(&queue("moves"), |answer| answer["pool"]["wouldChange"].is_object()).await;
    let opened = reader.walk(&stage, "observe").await;
    for link in ["pool:kubernetes/shop-moves", "service:shop/moves", "node:node-0001"] {
        assert!(opened.contains(link), "{link} is not in {opened:?}");
    }
    reader.open(&stage, "").await;
    let first = reader.text("sync").await;
    for part in
        ["1 pool would be changed", "mode is observe", "kubernetes/shop-moves", "1 missing, 1 surplus"]
    {
        assert!(first.contains(part), "{part} is not in {first}");
    }
    let header = reader.text("who").await;
    for part in ["cluster kubernetes", "subscription 0", "resource group", "mode observe"] {
        assert!(header.contains(part), "{part} is not in {header}");
    }
    drop(stage);

    let stage = leading(&["shrinks"], &json!({ "mode": "add-only" })).await;
    moved(&stage, "shrinks", &[1]).await;
    is_held(&stage, "shrinks", "add_only").await;
    reader.walk(&stage, "add-only").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_pauses_render_without_optional_fields() {
    let Some(mut reader) = Reader::start().await else { return };
    let stage = leading(&["annotated", "of-pool", "of-service", "free"], &json!({})).await;
    let annotate = |cluster: &mut simulator::Cluster, now: u64| {
        let service = cluster.model.get(Resource::Services, NAMESPACE, "annotated");
        let mut service = service.expect("a Service of the stage");
        service["metadata"]["annotations"] = json!({ "azure-backend-pool-controller.io/pause": "true" });
        cluster.model.apply(service, now).expect("a good Service");
    };
    stage.fakes.cluster.ask(annotate).await;
    let pool = json!({ "scope": "pool", "loadBalancer": "kubernetes", "backendPool": pool_of("of-pool") });
    let service =
        json!({ "scope": "service", "namespace": NAMESPACE, "name": "of-service", "reason": "a test" });
    for pause in [pool, service] {
        assert_eq!(stage.post("/api/v1/pause", TOKEN, &pause).await.status, 200);
    }
    for name in ["annotated", "of-pool", "of-service"] {
        is(&stage, name, "paused").await;
    }
    web::write_unreadable_pause(&stage).await;
    reader.walk(&stage, "paused-in-part").await;
    assert_eq!(stage.post("/api/v1/pause", TOKEN, &json!({ "scope": "everything" })).await.status, 200);
    is(&stage, "free", "paused").await;
    reader.walk(&stage, "paused").await;

    let standby = stage.another("standby").await;
    standby.wait_until_ready().await;
    standby.shown(STATUS, |status| status["leadership"]["role"] == "standby").await;
    reader.walk(&standby, "standby").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_pools_that_are_held_written_parked_and_failed_render() {
    let Some(mut reader) = Reader::start().await else { return };
    let names = ["quiet", "slow", "waits", "held", "paused", "foreign"];
    let (stage, release) = web::in_the_middle(&names).await;
    reader.walk(&stage, "in-the-middle").await;
    reader.open(&stage, "").await;
    let attention = reader.text("attention").await;
    assert!(attention.contains("1 Service with a pool that the controller may not write"), "{attention}");
    drop((stage, release));

    let stage = leading(&["last", "unusable"], &json!({})).await;
    set_endpoints(&stage.fakes, "last", &[Endpoint::draining(&node_name(3))]).await;
    moved(&stage, "unusable", &[4]).await;
    let label = ("kubernetes.azure.com/managed", "false");
    let node = build::node(&node_name(4), &[&node_ip(4)], &[label], true, &[]);
    stage.fakes.apply(vec![node]).await.expect("a good node");
    is_held(&stage, "last", "last_member").await;
    is_held(&stage, "unusable", "no_usable_node").await;
    reader.walk(&stage, "held").await;
    drop(stage);

    let stage = leading(&["parked", "failed"], &json!({})).await;
    let forbidden = Fault::every_nth_put(1, 403, "AuthorizationFailed", None);
    stage.fakes.tune_arm(|arm| arm.faults = vec![forbidden]).await;
    moved(&stage, "failed", &[2]).await;
    is(&stage, "failed", "failed").await;
    let throttled = Fault::every_nth_put(1, 429, "TooManyRequests", Some("600"));
    stage.fakes.tune_arm(|arm| arm.faults = vec![throttled]).await;
    moved(&stage, "parked", &[2]).await;
    is(&stage, "parked", "parked").await;
    let opened = reader.walk(&stage, "failing").await;
    assert!(opened.contains("pool:kubernetes/shop-parked"), "{opened:?}");
    reader.open(&stage, "").await;
    let first = reader.text("sync").await;
    for part in ["2 of 3 pools are out of sync", "kubernetes/shop-failed", "since", "AuthorizationFailed"] {
        assert!(first.contains(part), "{part} is not in {first}");
    }
    let above = "document.getElementById('sync').getBoundingClientRect().top \
                 < document.getElementById('attention').getBoundingClientRect().top";
    assert_eq!(reader.browser.value(above).await, true, "it comes first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_a_pool_shows_its_last_attempt_with_reasons() {
    let Some(mut reader) = Reader::start().await else { return };
    let stage = leading(&["web"], &json!({ "members": { "removalDelay": "0s" } })).await;
    moved(&stage, "web", &[1, 2]).await;
    let is_written = |answer: &Value| answer["pool"]["lastAttempt"]["outcome"] == "written";
    let answer = stage.shown(&queue("web"), is_written).await;
    reader.open(&stage, &format!("open={}", encoded(&format!("pool:kubernetes/{}", pool_of("web"))))).await;
    let pool = reader.text("one").await;
    let id = answer["pool"]["lastAttempt"]["correlationId"].as_str().expect("a correlation id");
    for part in [
        format!("1 added: {} ({})", node_name(2), node_ip(2)),
        format!("1 removed: {} ({})", node_name(0), node_ip(0)),
        "trigger: endpoints_changed".to_owned(),
        format!("correlation id: {id}"),
    ] {
        assert!(pool.contains(&part), "{part} is not in {pool}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_a_dry_run_with_stopped_removals_renders() {
    let Some(mut reader) = Reader::start().await else { return };
    let stage = web::dry().await;
    reader.walk(&stage, "dry").await;
    drop(stage);
    let stage = web::stopped().await;
    reader.walk(&stage, "stopped").await;
    drop(stage);
    let stage = nodes::leaving().await;
    let opened = reader.walk(&stage, "leaving").await;
    assert!(opened.contains("node:node-0000"), "{opened:?}");
    drop(stage);
    let (scene, _plane) = trouble::in_trouble().await;
    reader.walk(&scene.stage, "control-planes").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_a_controller_without_data_renders() {
    let Some(mut reader) = Reader::start().await else { return };
    let prepared = Prepared::new(1).await;
    prepared.fakes.plant(|model| model.down(true)).await;
    let stage = prepared.start(&json!({})).await;
    stage.shown(STATUS, |status| status["synced"]["lists"] == false).await;
    reader.walk(&stage, "starting").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_services_are_filtered_and_sorted_by_verdict() {
    let Some(mut reader) = Reader::start().await else { return };
    let stage = leading(&["alpha", "held", "zeta"], &json!({})).await;
    set_endpoints(&stage.fakes, "held", &[]).await;
    is_held(&stage, "held", "empty_confirm").await;
    let first = "document.querySelector('#rows tbody tr').innerText";
    reader.open(&stage, "view=services").await;
    let row = reader.browser.value(first).await;
    assert!(row.as_str().is_some_and(|row| row.contains("shop/held")), "problems come first: {row}");
    assert!(reader.text("rows").await.contains("Services: 4 in all"), "{}", reader.text("rows").await);
    reader.open(&stage, "view=services&sort=name").await;
    let row = reader.browser.value(first).await;
    assert!(row.as_str().is_some_and(|row| row.contains("shop/alpha")), "by name: {row}");
    let choose = "(() => { const one = document.getElementById('verdict'); one.value = 'held'; \
                  one.dispatchEvent(new Event('change')); })()";
    reader.browser.value(choose).await;
    reader.browser.wait(LOADED).await;
    let rows = reader.text("rows").await;
    assert!(rows.contains("Services: 1 that match the filter") && !rows.contains("shop/alpha"), "{rows}");
}
