//! The addresses of an assignment: health, priorities, families, and the endpoints that a cluster names (X2).

use std::time::Duration;

use serde_json::json;
use simulator::control_plane::{ControlPlane, Endpoint, HealthStatus, Kind, Locality, cluster, endpoints};
use tokio::time::Instant;

use super::stage::{Plan, TestEnvironment, control_plane, endpoints_at, entry_name, locality, server};
use crate::support::{TEST_TIMEOUT, eventually};

const BEFORE: &str = "10.9.0.1";

/// Assigns endpoints of one priority with these states of health to `web`.
async fn assign(plane: &ControlPlane, all: &[(&str, HealthStatus)]) {
    plane.set(Kind::Endpoints, "web", endpoints("web", [locality(0, all)])).await;
}

async fn env(plane: &ControlPlane) -> TestEnvironment {
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    plan.start(&[server(plane, &[])]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_draining_endpoint_is_down_and_an_unhealthy_one_out() {
    use HealthStatus::{Draining, Healthy, Timeout, Unhealthy, Unknown};
    let plane = control_plane().await;
    assign(&plane, &[("10.1.0.1", Healthy), ("10.1.0.2", Unknown), ("10.1.0.3", Healthy)]).await;
    let env = env(&plane).await;
    env.wait_for_admin_states("web", &[("10.1.0.1", "None"), ("10.1.0.2", "None"), ("10.1.0.3", "None")])
        .await;
    for entry in env.entries("web").await {
        assert_eq!(entry.name, entry_name(&entry.ip));
    }

    // An endpoint that was never in the pool is not added to drain.
    assign(
        &plane,
        &[("10.1.0.1", Healthy), ("10.1.0.2", Draining), ("10.1.0.3", Healthy), ("10.1.0.4", Draining)],
    )
    .await;
    env.wait_for_admin_states("web", &[("10.1.0.1", "None"), ("10.1.0.2", "Down"), ("10.1.0.3", "None")])
        .await;
    assign(&plane, &[("10.1.0.1", Healthy), ("10.1.0.2", Draining), ("10.1.0.3", Unhealthy)]).await;
    env.wait_for_admin_states("web", &[("10.1.0.1", "None"), ("10.1.0.2", "Down")]).await;
    assign(&plane, &[("10.1.0.1", Healthy), ("10.1.0.2", Healthy), ("10.1.0.3", Timeout)]).await;
    env.wait_for_admin_states("web", &[("10.1.0.1", "None"), ("10.1.0.2", "None")]).await;
    assign(&plane, &[("10.1.0.1", Healthy), ("10.1.0.2", Unhealthy), ("10.1.0.3", Healthy)]).await;
    env.wait_for_admin_states("web", &[("10.1.0.1", "None"), ("10.1.0.3", "None")]).await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_restart_keeps_the_down_of_a_draining_endpoint() {
    use HealthStatus::{Draining, Healthy};
    let plane = control_plane().await;
    assign(&plane, &[("10.1.0.1", Healthy), ("10.1.0.2", Healthy)]).await;
    let env = env(&plane).await;
    env.wait_for_members("web", &["10.1.0.1", "10.1.0.2"]).await;
    assign(&plane, &[("10.1.0.1", Healthy), ("10.1.0.2", Draining)]).await;
    env.wait_for_admin_states("web", &[("10.1.0.1", "None"), ("10.1.0.2", "Down")]).await;
    let puts = env.puts("web").await;
    let env = env.restart("second").await;
    env.wait_for_no_error("web").await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &["10.1.0.1", "10.1.0.2"], puts).await;
    env.wait_for_admin_states("web", &[("10.1.0.1", "None"), ("10.1.0.2", "Down")]).await;
    assign(&plane, &[("10.1.0.1", Healthy), ("10.1.0.2", Healthy)]).await;
    env.wait_for_admin_states("web", &[("10.1.0.1", "None"), ("10.1.0.2", "None")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_pool_fails_over_and_back() {
    use HealthStatus::{Degraded, Healthy, Unhealthy};
    let plane = control_plane().await;
    let assign = async |first: HealthStatus, second: HealthStatus| {
        let localities = [locality(0, &[("10.1.0.1", first)]), locality(1, &[("10.2.0.1", second)])];
        plane.set(Kind::Endpoints, "web", endpoints("web", localities)).await;
    };
    let diagnostics = |pool: &serde_json::Value| {
        let all = pool["diagnostics"].as_array().cloned().unwrap_or_default();
        all.iter()
            .map(|diagnostic| diagnostic["reason"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assign(Healthy, Healthy).await;
    let env = env(&plane).await;
    env.wait_for_members("web", &["10.1.0.1"]).await;
    assign(Unhealthy, Healthy).await;
    env.wait_for_members("web", &["10.2.0.1"]).await;
    env.wait_for_pool("web", |pool| diagnostics(pool) == ["priority_used"]).await;
    assign(Healthy, Healthy).await;
    env.wait_for_members("web", &["10.1.0.1"]).await;
    env.wait_for_pool("web", |pool| diagnostics(pool).is_empty()).await;
    // Degraded endpoints are used if no priority has a healthy one.
    assign(Degraded, Healthy).await;
    env.wait_for_members("web", &["10.2.0.1"]).await;
    assign(Degraded, Unhealthy).await;
    env.wait_for_members("web", &["10.1.0.1"]).await;
    env.wait_for_pool("web", |pool| diagnostics(pool).contains(&"degraded_used".to_owned())).await;
    // A gap in the priorities is a data error, and causes no write.
    let puts = env.puts("web").await;
    let gap = endpoints("web", [locality(1, &[("10.3.0.1", Healthy)])]);
    plane.set(Kind::Endpoints, "web", gap).await;
    env.wait_for_note("web", "priority").await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &["10.1.0.1"], puts).await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_better_priority_is_awaited_as_configured() {
    use HealthStatus::{Healthy, Unhealthy};
    let plane = control_plane().await;
    let assign = async |first: HealthStatus| {
        let localities = [locality(0, &[("10.1.0.1", first)]), locality(1, &[("10.2.0.1", Healthy)])];
        plane.set(Kind::Endpoints, "web", endpoints("web", localities)).await;
    };
    assign(Unhealthy).await;
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let env = plan.with("xds", json!({ "failback": "3s" })).start(&[server(&plane, &[])]).await;
    env.wait_for_members("web", &["10.2.0.1"]).await;
    let begin = Instant::now();
    assign(Healthy).await;
    env.wait_for_pool("web", |pool| pool["diagnostics"].to_string().contains("failback_waits")).await;
    assert_eq!(env.puts("web").await, 1);
    env.wait_for_members("web", &["10.1.0.1"]).await;
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(3), "it failed back after {took:?}");
    // A failover does not wait.
    assign(Unhealthy).await;
    env.wait_for_members("web", &["10.2.0.1"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_two_pools_of_one_source_have_their_own_families() {
    let plane = control_plane().await;
    let both = |v4: &str, v6: &str| {
        let endpoint = Endpoint { additional: vec![(v6.to_owned(), 8080)], ..Endpoint::at(v4, 8080) };
        endpoints("web", [Locality { endpoints: vec![endpoint], ..Locality::of([]) }])
    };
    plane.set(Kind::Endpoints, "web", both("10.1.0.1", "fd00::1")).await;
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let env = plan.pool("web-ipv6", "eds:web", &["fd00::9"]).await.start(&[server(&plane, &[])]).await;
    env.wait_for_members("web", &["10.1.0.1"]).await;
    env.wait_for_members("web-ipv6", &["fd00::1"]).await;
    assert_eq!(env.entries("web-ipv6").await[0].name, "fd00--1");
    assert_eq!(env.wait_for_pool("web-ipv6", |_| true).await["family"], "IPv6");
    let journal = plane.journal().await;
    let mut subscribed =
        journal.iter().filter(|request| request.type_url == Kind::Endpoints.type_url()).peekable();
    assert!(
        subscribed.peek().is_some() && subscribed.all(|request| request.names == ["web"]),
        "one name, once"
    );
    // One family changes, and the pool of the other is not written.
    plane.set(Kind::Endpoints, "web", both("10.1.0.1", "fd00::2")).await;
    env.wait_for_members("web-ipv6", &["fd00::2"]).await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &["10.1.0.1"], 1).await;
    env.assert_members_and_puts("web-ipv6", &["fd00::2"], 2).await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_new_endpoints_of_a_cluster_are_used_once_they_arrive() {
    let plane = control_plane().await;
    plane.set(Kind::Clusters, "shop", cluster("shop", "")).await;
    plane.set(Kind::Endpoints, "shop", endpoints_at("shop", &["10.1.0.1"])).await;
    let plan = Plan::new().await.pool("web", "cluster:shop", &[BEFORE]).await;
    let env = plan.pool("direct", "eds:blue", &[BEFORE]).await.start(&[server(&plane, &[])]).await;
    // A cluster without a service name uses the endpoints of the cluster's name.
    env.wait_for_members("web", &["10.1.0.1"]).await;

    plane.set(Kind::Clusters, "shop", cluster("shop", "blue")).await;
    env.wait_for_csds(Kind::Clusters, "shop", |shown| shown.version == "2").await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &["10.1.0.1"], 1).await;
    assert!(env.dump().await.endpoints("shop").is_some(), "used endpoints stay watched");
    plane.set(Kind::Endpoints, "blue", endpoints_at("blue", &["10.2.0.1"])).await;
    env.wait_for_members("web", &["10.2.0.1"]).await;
    env.wait_for_members("direct", &["10.2.0.1"]).await;
    eventually("unused endpoints are no longer watched", TEST_TIMEOUT, || async {
        let shown = env.dump().await.shown(Kind::Endpoints, "shop");
        if shown.is_none() { Ok(()) } else { Err(format!("{shown:?}")) }
    })
    .await;
    plane.set(Kind::Endpoints, "shop", endpoints_at("shop", &["10.3.0.1"])).await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &["10.2.0.1"], 2).await;
    env.assert_no_logged_errors();
}
