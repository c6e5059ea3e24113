//! Control planes with one error each, for tests that read everything in the admin API.

use serde_json::Value;
use simulator::control_plane::{Bad, Code, ControlPlane, HealthStatus, Kind, cluster, endpoints};

use super::stage::{Plan, TestEnvironment, control_plane, endpoints_at, locality, server};

const GOOD: &str = "10.1.0.1";

/// Starts a controller with pools of four sources: one whose newest version is rejected, one that was never received,
/// one whose pool does not exist, and one that uses its second priority.
pub async fn in_trouble() -> (TestEnvironment, ControlPlane) {
    let plane = control_plane().await;
    let second = [
        locality(0, &[(GOOD, HealthStatus::Unhealthy)]),
        locality(1, &[("10.1.0.2", HealthStatus::Healthy)]),
    ];
    plane.set(Kind::Endpoints, "second", endpoints("second", second)).await;
    plane.set(Kind::Endpoints, "refused", endpoints_at("refused", &[GOOD])).await;
    plane.set(Kind::Endpoints, "of-cluster", endpoints_at("of-cluster", &[GOOD])).await;
    plane.set(Kind::Clusters, "unmade", cluster("unmade", "of-cluster")).await;
    plane.fail(Kind::Endpoints, "never", Code::NotFound, "who is that?").await;
    let plan = Plan::new().await.pool("second", "eds:second", &[]).await;
    let plan = plan.pool("refused", "eds:refused", &[]).await.pool("never", "eds:never", &[]).await;
    let env = plan.listed("unmade", "cluster:unmade").start(&[server(&plane, &[])]).await;
    env.wait_for_members("refused", &[GOOD]).await;
    plane.set_bad(Kind::Endpoints, "refused", Bad::Content).await;
    env.wait_for_source("eds:refused", |source| source["ambientErrors"][0].is_object()).await;
    env.wait_for_source("eds:never", |source| source["error"].is_object()).await;
    env.wait_for_source("cluster:unmade", |source| source["pools"][0]["notManageable"].is_object()).await;
    env.wait_for_pool("second", |pool| pool["diagnostics"][0].is_object()).await;
    (env, plane)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_status_lists_the_worst_control_planes_first() {
    let (env, plane) = in_trouble().await;
    let status = env.stage.get("/api/v1/status").await;
    let planes = &status["controlPlanes"];
    let numbers = |key: &str| planes[key].as_u64();
    assert_eq!((numbers("sources"), numbers("wrong"), numbers("notManageable")), (Some(4), Some(2), Some(1)));
    assert_eq!(planes["worst"]["source"], "eds:never", "{planes}");
    assert_eq!(planes["worst"]["assigned"], "unknown", "{planes}");
    assert!(
        planes["worst"]["message"].as_str().is_some_and(|text| text.contains("who is that?")),
        "{planes}"
    );
    assert_eq!(planes["servers"][0]["connected"], true, "{planes}");
    let queues = env.stage.get("/api/v1/queues?contains=refused").await;
    assert_eq!(queues["items"][0]["source"], "eds:refused", "{queues}");
    let canary = env.stage.get("/api/v1/queues?contains=canary").await;
    assert_eq!(canary["items"][0]["source"], "kubernetes", "{canary}");

    // The last resources stay in use, and that is shown too.
    plane.set(Kind::Endpoints, "never", endpoints_at("never", &[GOOD])).await;
    let of_refused = |status: &Value| status["controlPlanes"]["worst"]["source"] == "eds:refused";
    let status = env.stage.shown("/api/v1/status", of_refused).await;
    assert_eq!(status["controlPlanes"]["worst"]["assigned"], "usable", "{status}");
    plane.set(Kind::Endpoints, "refused", endpoints_at("refused", &[GOOD])).await;
    env.stage.shown("/api/v1/status", |status| status["controlPlanes"]["wrong"] == 0).await;
}
