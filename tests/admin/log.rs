//! The log: few lines, each with the event, the object, the reason and the remedy.

use serde_json::{Value, json};
use simulator::models::arm::{Fault, FaultAnswer, FaultBody, FaultEffect, FaultTarget, Latency};
use simulator::models::kube::Resource;
use simulator::models::kube::build::Endpoint;

use super::metrics::busy;
use super::nodes::{OUT_OF_SERVICE, taint};
use super::stage::{Prepared, Stage, add_service, node_name, set_endpoints};

/// Returns a fault of every read of a load balancer.
fn unreadable() -> Fault {
    let answer = FaultAnswer {
        status: 403,
        code: "AuthorizationFailed".to_owned(),
        message: "no look for you".to_owned(),
        retry_after: None,
        body: FaultBody::Standard,
    };
    let (target, effect) = (FaultTarget::LoadBalancerGet, FaultEffect::Answer(answer));
    Fault { target, every: 1, limit: None, load_balancer: None, effect }
}

/// Waits until the log has a line with this message, and returns it.
async fn line(stage: &Stage, message: &str) -> Value {
    stage.logged(message, |line| line["message"] == message).await.swap_remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_has_each_written_pool_and_each_failure() {
    let stage = busy().await;
    let written = line(&stage, "wrote backend pool").await;
    assert_eq!((&written["level"], &written["pool"]), (&json!("INFO"), &json!("kubernetes/shop-good")));
    assert_eq!((&written["added"], &written["removed"]), (&json!(1), &json!(1)));
    assert!(written["took_ms"].is_u64() && written["correlation_id"].is_string(), "{written}");
    assert_eq!(
        (&written["services"], &written["trigger"]),
        (&json!(["shop/good"]), &json!("endpoints_changed"))
    );
    let lists = ["added_nodes", "added_addresses", "removed_nodes", "removed_addresses"];
    for list in lists {
        let texts = written[list].as_array().unwrap_or_else(|| panic!("{list} is no array: {written}"));
        assert!(texts.len() == 1 && texts[0].is_string(), "{written}");
    }
    assert!(written.get("down_nodes").is_none(), "an empty list is left out: {written}");
    let shown = stage.get("/api/v1/queues/kubernetes/shop-good").await;
    assert_eq!(shown["pool"]["lastAttempt"]["correlationId"], written["correlation_id"], "{shown}");
    assert_eq!(
        shown["pool"]["lastAttempt"]["added"]["members"][0]["node"], written["added_nodes"][0],
        "{shown}"
    );

    let failed = line(&stage, "failed to write backend pool").await;
    assert_eq!((&failed["level"], &failed["pool"]), (&json!("WARN"), &json!("kubernetes/shop-bad")));
    let text = |field: &str| failed[field].as_str().unwrap_or_default().to_owned();
    assert!(text("failure").starts_with("HTTP 403 AuthorizationFailed: no write for you"), "{failed}");
    assert!(text("remedy").contains("Network Contributor"), "{failed}");
    in_span(&failed, "put_backend_pool", "pool");
    let id = failed["correlation_id"].as_str().expect("a refusal has one too");
    assert!(text("failure").contains(id) && failed["caller"] == MEMBERS, "{failed}");
    assert_eq!(failed["services"], json!(["shop/bad"]), "{failed}");
    let event = line(&stage, "event").await;
    assert_eq!((&event["level"], &event["about"]), (&json!("INFO"), &json!("Service shop/bad")));
    assert_eq!(event["reason"], "LoadBalancerBackendPoolUpdateFailed");
    assert!(event["text"].as_str().is_some_and(|text| text.contains("non-retriable")), "{event}");

    let log = stage.log();
    let messages: Vec<&str> = log.iter().filter_map(|line| line["message"].as_str()).collect();
    assert_eq!(messages.len(), log.len(), "each line is an object with one message: {log:?}");
    let expected = ["started", "synced", "wrote backend pool", "failed to write backend pool", "event"];
    let (leads, rest): (Vec<&str>, Vec<&str>) =
        messages.into_iter().partition(|message| ["leadership", "took the Lease"].contains(message));
    assert_eq!(rest, expected, "there is no other line");
    assert!(leads.len() <= 4, "each change of the leader is logged: {log:?}");
    let leader = log.iter().find(|line| line["message"] == "leadership" && line["role"] == "leader");
    let identity = &log[0]["identity"];
    assert!(leader.is_some_and(|line| line["holder"] == *identity && line["term"] == 1), "{log:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_asynchronous_write_is_logged_at_its_end() {
    let prepared = Prepared::new(1).await;
    add_service(&prepared.fakes, "web", &[0]).await;
    let operation = |arm: &mut simulator::models::arm::Settings| {
        arm.operation = Some(Latency::Fixed { us: 1_500_000 });
        arm.operation_retry_after_s = Some(1);
    };
    prepared.fakes.tune_arm(operation).await;
    let stage = prepared.start(&json!({})).await;
    stage.wait_until_ready().await;
    set_endpoints(&stage.fakes, "web", &[Endpoint::ready(&node_name(0)), Endpoint::ready(&node_name(1))])
        .await;
    let written = line(&stage, "wrote backend pool").await;
    assert_eq!((&written["pool"], &written["added"]), (&json!("kubernetes/shop-web"), &json!(1)));
    assert!(written["took_ms"].as_u64().is_some_and(|took| took >= 1_500), "{written}");
    assert!(written["correlation_id"].is_string(), "{written}");
    in_span(&written, "poll_operation", "pool");
    assert_eq!((&written["caller"], written["attempt"].is_string()), (&json!(MEMBERS), true), "{written}");
    assert_eq!(written["added_nodes"], json!([node_name(1)]), "{written}");
}

/// The component in the names of writes of members.
const MEMBERS: &str = "LocalServiceBackendPoolUpdater";

/// Asserts that a line belongs to a call to Azure for this operation and this pool or load balancer, and has each field
/// of its span once.
fn in_span(line: &Value, operation: &str, about: &str) {
    assert_eq!((&line["span"], &line["operation"]), (&json!("arm"), &json!(operation)), "{line}");
    assert!(line[about].is_string() && line.get("spans").is_none(), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_the_log_of_an_azure_call_has_pool_and_attempt() {
    let prepared = Prepared::new(0).await;
    add_service(&prepared.fakes, "web", &[0]).await;
    let stage = prepared.start(&json!({})).await;
    stage.wait_until_ready().await;
    set_endpoints(&stage.fakes, "web", &[Endpoint::ready(&node_name(0)), Endpoint::ready(&node_name(1))])
        .await;
    let is_of_web =
        |line: &Value| line["message"] == "wrote backend pool" && line["pool"] == "kubernetes/shop-web";
    let members = stage.logged("a write of members", is_of_web).await.swap_remove(0);
    in_span(&members, "put_backend_pool", "pool");
    assert_eq!(members["added"], 1, "{members}");
    assert_eq!(members["caller"], MEMBERS, "{members}");
    assert!(members.get("load_balancer").is_none(), "the line has the pool: {members}");

    taint(&stage, 0, &[OUT_OF_SERVICE]).await;
    let is_down = |line: &Value| is_of_web(line) && line["down"] == 1;
    let states = stage.logged("a write of admin states", is_down).await.swap_remove(0);
    in_span(&states, "put_backend_pool", "pool");
    assert_eq!(states["added"], 0, "{states}");
    assert_eq!(states["caller"], "AdminStateController", "{states}");
    assert_eq!(
        (&states["trigger"], &states["down_nodes"]),
        (&json!("node_admin_state"), &json!([node_name(0)]))
    );
    for line in [&members, &states] {
        assert!(line["attempt"].is_string() && line["correlation_id"].is_string(), "{line}");
    }
    assert_ne!(members["attempt"], states["attempt"]);
    let raw = stage.log_text();
    let written = raw.lines().find(|line| line.contains("wrote backend pool")).expect("the line");
    for key in ["pool", "correlation_id", "attempt", "caller", "operation", "added_nodes"] {
        assert_eq!(written.matches(&format!("\"{key}\":")).count(), 1, "{key}: {written}");
    }

    let fault = Fault { limit: Some(1), ..unreadable() };
    stage.fakes.tune_arm(|arm| arm.faults = vec![fault]).await;
    let failed = line(&stage, "failed to read load balancer").await;
    in_span(&failed, "get_load_balancer", "load_balancer");
    let id = failed["correlation_id"].as_str().expect("Azure has answered");
    assert!(failed["failure"].as_str().is_some_and(|text| text.contains(id)), "{failed}");
    assert!(failed.get("caller").is_none() && failed.get("attempt").is_none(), "{failed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forbidden_kind_is_logged_with_its_permission() {
    let prepared = Prepared::new(1).await;
    prepared.fakes.plant(|cluster| cluster.forbid(Resource::EndpointSlices)).await;
    let stage = prepared.start(&json!({})).await;
    let refused = line(&stage, "the API server denies the list or watch").await;
    assert_eq!((&refused["level"], &refused["kind"]), (&json!("WARN"), &json!("endpointslices")));
    assert!(refused["reason"].as_str().is_some_and(|reason| reason.contains("403")), "{refused}");
    assert!(refused["remedy"].as_str().is_some_and(|remedy| remedy.contains("list and watch")), "{refused}");
    let readyz = stage.health("/readyz").await;
    assert_eq!(readyz.status, 503);
    let denied = |status: &Value| {
        let mut sources = status["sources"].as_array().into_iter().flatten();
        let slices = sources.find(|source| source["kind"] == "endpointslices");
        slices
            .and_then(|source| source["lastError"].as_str())
            .is_some_and(|error| error.starts_with("denied: "))
    };
    stage.shown("/api/v1/status", denied).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_load_balancer_is_not_logged_as_absent() {
    let prepared = Prepared::new(1).await;
    let fault = Fault { load_balancer: Some("kubernetes".to_owned()), ..unreadable() };
    prepared.fakes.tune_arm(|arm| arm.faults = vec![fault]).await;
    let stage = prepared.start(&json!({})).await;
    let is_synced = |line: &Value| line["message"].as_str().is_some_and(|text| text.starts_with("synced"));
    let synced = stage.logged("what was found", is_synced).await.swap_remove(0);
    assert_eq!(
        (&synced["message"], &synced["unread"]),
        (&json!("synced, but some load balancers could not be read"), &json!(["kubernetes"])),
        "{synced}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_name_without_load_balancer_is_logged_once() {
    let prepared = Prepared::new(1).await;
    let stage = prepared.start(&json!({})).await;
    stage.wait_until_ready().await;
    assert_eq!(line(&stage, "synced").await["level"], "INFO");
    let prepared = Prepared::without_load_balancers().await;
    let stage = prepared.start(&json!({})).await;
    stage.wait_until_ready().await;
    let warning = line(&stage, "synced, but no managed load balancer exists").await;
    assert_eq!(warning["level"], "WARN");
    assert!(
        warning["looked_for"].as_array().is_some_and(|names| names.contains(&json!("kubernetes-internal"))),
        "{warning}"
    );
    assert!(warning["remedy"].as_str().is_some_and(|remedy| remedy.contains("clusterName")), "{warning}");
}
