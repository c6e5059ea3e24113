//! The guard against empty assignments, and the proof of ownership of a listed pool (D2, G2, X2).

use std::time::Duration;

use serde_json::{Value, json};
use simulator::control_plane::{Bad, Code, HealthStatus, Kind, endpoints};
use tokio::time::Instant;

use super::stage::{
    BALANCER, FAIL_ON_DATA_ERRORS, NODE_NOTE, Plan, TOKEN, control_plane, endpoints_at, locality, server,
};
use crate::support::{TEST_TIMEOUT, eventually};

const BEFORE: &str = "10.9.0.1";
const GOOD: &str = "10.1.0.1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_g2_an_empty_assignment_is_held_until_released() {
    let plane = control_plane().await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[GOOD])).await;
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    // An empty assignment is a valid resource, so `fail_on_data_errors` does not apply to it.
    let env = plan.start(&[server(&plane, &[FAIL_ON_DATA_ERRORS])]).await;
    env.wait_for_members("web", &[GOOD]).await;
    plane.set(Kind::Endpoints, "web", endpoints("web", [])).await;
    let pool = env.wait_for_pool("web", |pool| pool["held"]["reason"] == "empty_confirm").await;
    assert_eq!(pool["held"]["members"], json!([GOOD]), "{pool}");
    env.wait_for_event("BackendPoolRemovalHeld", &["kubernetes/web"]).await;
    assert!(
        env.wait_for_csds(Kind::Endpoints, "web", |shown| shown.version == "2").await.is_good(),
        "it is valid"
    );
    env.flush_writes().await;
    env.assert_members_and_puts("web", &[GOOD], 1).await;

    // The endpoints return, which ends the hold. The next empty assignment is held again.
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[GOOD])).await;
    env.wait_for_pool("web", |pool| pool["held"].is_null()).await;
    plane.set(Kind::Endpoints, "web", endpoints("web", [])).await;
    env.wait_for_pool("web", |pool| pool["held"]["reason"] == "empty_confirm").await;
    let body = json!({ "scope": "pool", "loadBalancer": BALANCER, "backendPool": "web" });
    let answer = env.stage.post("/api/v1/held/release", TOKEN, &body).await;
    assert_eq!((answer.status, &answer.json()["answer"]), (200, &json!("released")), "{answer:?}");
    env.wait_for_members("web", &[]).await;
    assert_eq!(env.puts("web").await, 2);
    env.wait_for_no_error("web").await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d6_x2_members_stay_while_no_endpoint_is_usable() {
    use HealthStatus::{Draining, Healthy, Unhealthy};
    let other = "10.1.0.2";
    let plane = control_plane().await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[GOOD, other])).await;
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let env = plan.start(&[server(&plane, &[])]).await;
    env.wait_for_admin_states("web", &[(GOOD, "None"), (other, "None")]).await;
    let assign = async |first, second| {
        let all = locality(0, &[(GOOD, first), (other, second)]);
        plane.set(Kind::Endpoints, "web", endpoints("web", [all])).await;
    };
    assign(Draining, Unhealthy).await;
    env.wait_for_admin_states("web", &[(GOOD, "Down"), (other, "None")]).await;
    let pool = env.wait_for_pool("web", |pool| pool["held"]["reason"] == "no_usable_node").await;
    let held: Vec<&str> =
        pool["held"]["members"].as_array().into_iter().flatten().flat_map(Value::as_str).collect();
    assert!(held.contains(&other) && !held.contains(&GOOD), "a draining member is required: {pool}");
    env.wait_for_event(
        "BackendPoolRemovalHeld",
        &["kubernetes/web", "endpoints are assigned but none is usable"],
    )
    .await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &[GOOD, other], 2).await;
    assign(Draining, Healthy).await;
    env.wait_for_pool("web", |pool| pool["held"].is_null()).await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &[GOOD, other], 2).await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_g2_a_lasting_empty_assignment_empties_the_pool() {
    let plane = control_plane().await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[GOOD])).await;
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let plan = plan.with("guards", json!({ "emptyConfirm": "2s" }));
    let env = plan.start(&[server(&plane, &[])]).await;
    env.wait_for_members("web", &[GOOD]).await;
    let began = Instant::now();
    plane.set(Kind::Endpoints, "web", endpoints("web", [])).await;
    env.wait_for_pool("web", |pool| pool["held"]["reason"] == "empty_confirm").await;
    assert_eq!(env.puts("web").await, 1);
    env.wait_for_members("web", &[]).await;
    assert!(began.elapsed() >= Duration::from_secs(2), "the emptiness has lasted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_d2_a_listed_pool_with_a_service_rule_is_refused() {
    let plane = control_plane().await;
    for name in ["web", "stolen"] {
        plane.set(Kind::Endpoints, name, endpoints_at(name, &[GOOD])).await;
    }
    let rule = "a0123456789abcdef0123456789abcde-TCP-80";
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let plan = plan.pool_with_rule("stolen", "eds:stolen", &[BEFORE], rule).await;
    let env = plan.start(&[server(&plane, &[FAIL_ON_DATA_ERRORS])]).await;
    env.wait_for_members("web", &[GOOD]).await;
    let message = env.wait_for_event("BackendPoolNotManageable", &["kubernetes/stolen", rule]).await;
    assert!(message.contains(NODE_NOTE), "X4: {message}");
    let refused = |reason: &'static str| [("reason", reason)];
    eventually("the metric counts the pool", TEST_TIMEOUT, || async {
        let count =
            env.metric("backend_pool_controller_not_manageable_pools", &refused("service_rule")).await;
        if (count - 1.0).abs() < 0.5 { Ok(()) } else { Err(count.to_string()) }
    })
    .await;
    let source =
        env.wait_for_source("eds:stolen", |source| source["pools"][0]["notManageable"].is_object()).await;
    assert_eq!(source["pools"][0]["notManageable"]["reason"], "service_rule", "{source}");
    // Neither a new assignment nor an error of the source changes that.
    plane.set(Kind::Endpoints, "stolen", endpoints_at("stolen", &["10.1.0.2"])).await;
    env.wait_for_csds(Kind::Endpoints, "stolen", |shown| shown.version == "3").await;
    plane.set_bad(Kind::Endpoints, "stolen", Bad::Content).await;
    env.wait_for_csds(Kind::Endpoints, "stolen", |shown| shown.error.is_some()).await;
    env.flush_writes().await;
    env.assert_members_and_puts("stolen", &[BEFORE], 0).await;

    plane.set(Kind::Endpoints, "stolen", endpoints_at("stolen", &[GOOD])).await;
    let remove = move |azure: &mut simulator::Azure, _: u64| azure.model.remove_rule(BALANCER, rule);
    env.stage.fakes.azure.ask(remove).await;
    env.wait_for_members("stolen", &[GOOD]).await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_d2_a_listed_pool_is_refused_until_it_exists() {
    let plane = control_plane().await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[GOOD])).await;
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await.listed("late", "eds:web");
    let env = plan.start(&[server(&plane, &[])]).await;
    env.wait_for_members("web", &[GOOD]).await;
    let words =
        "load balancer kubernetes has no such backend pool: create it, or correct `backendPool` in `pools`";
    let message = env.wait_for_event("BackendPoolNotManageable", &["kubernetes/late", words]).await;
    assert!(message.contains("node id"), "X4: {message}");
    let of_late = |source: &Value| {
        let pools = source["pools"].as_array().cloned().unwrap_or_default();
        pools.into_iter().find(|pool| pool["backendPool"] == "late").unwrap_or_default()
    };
    let source = env.wait_for_source("eds:web", |source| of_late(source)["notManageable"].is_object()).await;
    assert_eq!(of_late(&source)["notManageable"]["reason"], "pool_not_found", "{source}");

    env.create_pool("late", &[BEFORE]).await;
    env.wait_for_members("late", &[GOOD]).await;
    env.wait_for_source("eds:web", |source| of_late(source)["notManageable"].is_null()).await;
    assert_eq!(env.events("BackendPoolNotManageable").await.len(), 1, "it is reported once");
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_g6_in_the_mode_add_only_no_member_is_removed() {
    let plane = control_plane().await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[GOOD])).await;
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await.with("mode", json!("add-only"));
    let env = plan.start(&[server(&plane, &[FAIL_ON_DATA_ERRORS])]).await;
    env.wait_for_members("web", &[BEFORE, GOOD]).await;
    plane.fail(Kind::Endpoints, "web", Code::NotFound, "no more").await;
    env.wait_for_source("eds:web", |source| source["assigned"] == "dropped").await;
    env.wait_for_pool("web", |pool| pool["required"] == 0 && pool["held"].is_object()).await;
    // This later addition is written after all earlier due writes.
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &["10.1.0.2"])).await;
    env.wait_for_members("web", &[BEFORE, GOOD, "10.1.0.2"]).await;
    assert_eq!(env.puts("web").await, 2);
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_g6_a_paused_pool_is_written_when_it_is_resumed() {
    let plane = control_plane().await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[GOOD])).await;
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let env = plan.start(&[server(&plane, &[FAIL_ON_DATA_ERRORS])]).await;
    env.wait_for_members("web", &[GOOD]).await;
    let body = json!({ "scope": "pool", "loadBalancer": BALANCER, "backendPool": "web" });
    assert_eq!(env.stage.post("/api/v1/pause", TOKEN, &body).await.status, 200);
    plane.fail(Kind::Endpoints, "web", Code::PermissionDenied, "no more").await;
    env.wait_for_pool("web", |pool| pool["state"] == "paused" && pool["members"]["surplus"] == json!([GOOD]))
        .await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &[GOOD], 1).await;
    assert_eq!(env.stage.post("/api/v1/resume", TOKEN, &body).await.status, 200);
    env.wait_for_members("web", &[]).await;
    env.assert_no_logged_errors();
}
