//! Two replicas: both follow the control plane, and one writes (W8, X2).

use rustix::process::Signal;
use simulator::control_plane::Kind;

use super::dump::Dump;
use super::stage::{Plan, control_plane, endpoints_at, server};
use crate::support::{TEST_TIMEOUT, eventually};

const INITIAL_MEMBER: &str = "10.9.0.1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_x2_a_standby_follows_the_control_plane_and_writes_nothing() {
    let plane = control_plane().await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &["10.1.0.1"])).await;
    let plan = Plan::new().await.pool("web", "eds:web", &[INITIAL_MEMBER]).await;
    let mut env = plan.start(&[server(&plane, &[])]).await;
    env.wait_for_members("web", &["10.1.0.1"]).await;
    let second = env.stage.another("second").await;
    second.wait_until_ready().await;
    second.shown("/api/v1/status", |status| status["leadership"]["role"] == "standby").await;
    plane.wait_for_streams(|streams| streams.open == 2).await.expect("both have a stream");
    let follows = async |version: &'static str| {
        eventually("the standby has received the resource", TEST_TIMEOUT, || async {
            let shown = Dump::of(&second.csds).await.shown(Kind::Endpoints, "web");
            let is_there = shown.as_ref().is_some_and(|shown| shown.is_good() && shown.version == version);
            if is_there { Ok(()) } else { Err(format!("{shown:?}")) }
        })
        .await;
    };
    follows("1").await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &["10.1.0.2"])).await;
    follows("2").await;
    env.wait_for_members("web", &["10.1.0.2"]).await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &["10.1.0.2"], 2).await;
    let wrote = second.log().iter().filter(|line| line["message"] == "wrote backend pool").count();
    assert_eq!(wrote, 0, "the standby wrote a pool");

    // The next leader keeps the endpoints that it received as standby, and writes later changes.
    env.stage.signal(Signal::TERM);
    assert_eq!(env.stage.ended().await.code(), Some(0));
    plane.stop().await;
    env.stage = second;
    env.stage.shown("/api/v1/status", |status| status["leadership"]["role"] == "leader").await;
    env.wait_for_note("web", &plane.address().to_string()).await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &["10.1.0.2"], 2).await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &["10.1.0.3"])).await;
    plane.restart().await.expect("the port is still ours");
    env.wait_for_members("web", &["10.1.0.3"]).await;
    assert_eq!(env.puts("web").await, 3);
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_x2_a_dry_run_follows_the_control_plane_and_writes_nothing() {
    let plane = control_plane().await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &["10.1.0.1"])).await;
    let plan = Plan::new().await.pool("web", "eds:web", &[INITIAL_MEMBER]).await;
    let env = plan.start_flagged(&[server(&plane, &[])], &["--dry-run"]).await;
    let differs = |pool: &serde_json::Value| pool["members"]["missing"] == serde_json::json!(["10.1.0.1"]);
    let pool = env.wait_for_pool("web", differs).await;
    assert_eq!(pool["members"]["surplus"], serde_json::json!([INITIAL_MEMBER]), "{pool}");
    env.assert_members_and_puts("web", &[INITIAL_MEMBER], 0).await;
    assert_eq!(env.stage.fakes.counters().await.pool_puts, 0);
}
