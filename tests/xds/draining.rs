//! Endpoints that drain where the admin state is not ours to set, or where the process that set it is gone (N4, X2).

use rustix::process::Signal;
use serde_json::json;
use simulator::control_plane::{ControlPlane, HealthStatus, Kind, endpoints};

use super::seen::Dump;
use super::stage::{Plan, control_plane, locality, server};
use crate::support::{PATIENCE, eventually};

const BEFORE: &str = "10.9.0.1";
const FIRST: &str = "10.1.0.1";
const SECOND: &str = "10.1.0.2";

/// Assigns both addresses; the second one has this health.
async fn assign(plane: &ControlPlane, second: HealthStatus) {
    let all = [(FIRST, HealthStatus::Healthy), (SECOND, second)];
    plane.set(Kind::Endpoints, "web", endpoints("web", [locality(0, &all)])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_n4_where_the_admin_state_is_switched_off_an_endpoint_that_drains_is_out() {
    let plane = control_plane().await;
    assign(&plane, HealthStatus::Healthy).await;
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let plan = plan.with_cloud(json!({ "enableLoadBalancerAdminState": false }));
    let scene = plan.start(&[server(&plane, &[])]).await;
    scene.has("web", &[(FIRST, "None"), (SECOND, "None")]).await;
    assign(&plane, HealthStatus::Draining).await;
    scene.has("web", &[(FIRST, "None")]).await;
    assign(&plane, HealthStatus::Healthy).await;
    scene.has("web", &[(FIRST, "None"), (SECOND, "None")]).await;
    assert_eq!(scene.puts("web").await, 3, "nothing was ever Down in between");
    scene.logged_no_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_n2_in_a_pool_without_admin_state_an_endpoint_that_drains_is_out_and_in_the_next_pool_it_is_down()
{
    let plane = control_plane().await;
    assign(&plane, HealthStatus::Healthy).await;
    let plan = Plan::new().await.pool("excluded", "eds:web", &[BEFORE]).await;
    let plan = plan.pool("web", "eds:web", &[BEFORE]).await;
    let plan = plan.with("adminState", json!({ "excludePools": ["EXCLUDED"] }));
    let scene = plan.start(&[server(&plane, &[])]).await;
    for pool in ["excluded", "web"] {
        scene.has(pool, &[(FIRST, "None"), (SECOND, "None")]).await;
    }
    assign(&plane, HealthStatus::Draining).await;
    scene.has("excluded", &[(FIRST, "None")]).await;
    scene.has("web", &[(FIRST, "None"), (SECOND, "Down")]).await;
    scene.all_is_written().await;
    scene.is_at_rest("excluded", &[FIRST], 2).await;
    scene.is_at_rest("web", &[FIRST, SECOND], 2).await;
    scene.logged_no_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_x2_what_the_leader_has_set_down_is_taken_back_by_the_standby_that_takes_over_while_it_drains() {
    let plane = control_plane().await;
    assign(&plane, HealthStatus::Healthy).await;
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let mut scene = plan.start(&[server(&plane, &[])]).await;
    scene.has("web", &[(FIRST, "None"), (SECOND, "None")]).await;
    let second = scene.stage.another("second").await;
    second.wait_until_ready().await;
    second.shown("/api/v1/status", |status| status["leadership"]["role"] == "standby").await;
    assign(&plane, HealthStatus::Draining).await;
    scene.has("web", &[(FIRST, "None"), (SECOND, "Down")]).await;
    eventually("the standby knows it too", PATIENCE, || async {
        let shown = Dump::of(&second.csds).await.shown(Kind::Endpoints, "web");
        if shown.as_ref().is_some_and(|shown| shown.version == "2") {
            Ok(())
        } else {
            Err(format!("{shown:?}"))
        }
    })
    .await;
    let puts = scene.puts("web").await;

    scene.stage.signal(Signal::TERM);
    assert_eq!(scene.stage.ended().await.code(), Some(0));
    scene.stage = second;
    scene.stage.shown("/api/v1/status", |status| status["leadership"]["role"] == "leader").await;
    scene.all_is_written().await;
    scene.is_at_rest("web", &[FIRST, SECOND], puts).await;
    scene.has("web", &[(FIRST, "None"), (SECOND, "Down")]).await;

    assign(&plane, HealthStatus::Healthy).await;
    scene.has("web", &[(FIRST, "None"), (SECOND, "None")]).await;
    scene.all_is_written().await;
    scene.is_at_rest("web", &[FIRST, SECOND], puts + 1).await;
    scene.logged_no_errors();
}
