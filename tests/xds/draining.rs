//! Draining endpoints while admin states are disabled, or after the process that set them has ended (N4, X2).

use rustix::process::Signal;
use serde_json::{Value, json};
use simulator::control_plane::{ControlPlane, HealthStatus, Kind, endpoints};

use super::dump::Dump;
use super::stage::{Plan, TestEnvironment, control_plane, locality, server};
use crate::admin::nodes::{OUT_OF_SERVICE, taint};
use crate::admin::stage::node_ip;
use crate::support::{TEST_TIMEOUT, eventually};

const BEFORE: &str = "10.9.0.1";
const FIRST: &str = "10.1.0.1";
const SECOND: &str = "10.1.0.2";

/// Assigns both addresses; the second one has this health.
async fn assign(plane: &ControlPlane, second: HealthStatus) {
    let all = [(FIRST, HealthStatus::Healthy), (SECOND, second)];
    plane.set(Kind::Endpoints, "web", endpoints("web", [locality(0, &all)])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_n4_with_admin_state_off_a_draining_endpoint_is_out() {
    let plane = control_plane().await;
    assign(&plane, HealthStatus::Healthy).await;
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let plan = plan.with_cloud(json!({ "enableLoadBalancerAdminState": false }));
    let env = plan.start(&[server(&plane, &[])]).await;
    env.wait_for_admin_states("web", &[(FIRST, "None"), (SECOND, "None")]).await;
    assign(&plane, HealthStatus::Draining).await;
    env.wait_for_admin_states("web", &[(FIRST, "None")]).await;
    assign(&plane, HealthStatus::Healthy).await;
    env.wait_for_admin_states("web", &[(FIRST, "None"), (SECOND, "None")]).await;
    assert_eq!(env.puts("web").await, 3, "nothing was ever Down in between");
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_n2_a_draining_endpoint_is_removed_without_admin_state() {
    let plane = control_plane().await;
    assign(&plane, HealthStatus::Healthy).await;
    let plan = Plan::new().await.pool("excluded", "eds:web", &[BEFORE]).await;
    let plan = plan.pool("web", "eds:web", &[BEFORE]).await;
    let plan = plan.with("adminState", json!({ "excludePools": ["EXCLUDED"] }));
    let env = plan.start(&[server(&plane, &[])]).await;
    for pool in ["excluded", "web"] {
        env.wait_for_admin_states(pool, &[(FIRST, "None"), (SECOND, "None")]).await;
    }
    assign(&plane, HealthStatus::Draining).await;
    env.wait_for_admin_states("excluded", &[(FIRST, "None")]).await;
    env.wait_for_admin_states("web", &[(FIRST, "None"), (SECOND, "Down")]).await;
    env.flush_writes().await;
    env.assert_members_and_puts("excluded", &[FIRST], 2).await;
    env.assert_members_and_puts("web", &[FIRST, SECOND], 2).await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_x2_a_new_leader_restores_the_downs_of_the_old_one() {
    let plane = control_plane().await;
    assign(&plane, HealthStatus::Healthy).await;
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let mut env = plan.start(&[server(&plane, &[])]).await;
    env.wait_for_admin_states("web", &[(FIRST, "None"), (SECOND, "None")]).await;
    let second = env.stage.another("second").await;
    second.wait_until_ready().await;
    second.shown("/api/v1/status", |status| status["leadership"]["role"] == "standby").await;
    assign(&plane, HealthStatus::Draining).await;
    env.wait_for_admin_states("web", &[(FIRST, "None"), (SECOND, "Down")]).await;
    eventually("the standby has received the resource", TEST_TIMEOUT, || async {
        let shown = Dump::of(&second.csds).await.shown(Kind::Endpoints, "web");
        if shown.as_ref().is_some_and(|shown| shown.version == "2") {
            Ok(())
        } else {
            Err(format!("{shown:?}"))
        }
    })
    .await;
    let puts = env.puts("web").await;

    env.stage.signal(Signal::TERM);
    assert_eq!(env.stage.ended().await.code(), Some(0));
    env.stage = second;
    env.stage.shown("/api/v1/status", |status| status["leadership"]["role"] == "leader").await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &[FIRST, SECOND], puts).await;
    env.wait_for_admin_states("web", &[(FIRST, "None"), (SECOND, "Down")]).await;

    assign(&plane, HealthStatus::Healthy).await;
    env.wait_for_admin_states("web", &[(FIRST, "None"), (SECOND, "None")]).await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &[FIRST, SECOND], puts + 1).await;
    env.assert_no_logged_errors();
}

/// An address that a source and a node share, and its number of writes so far. It is `Down` exactly while the endpoint
/// or the node drains.
struct Shared {
    env: TestEnvironment,
    plane: ControlPlane,
    puts: usize,
}

impl Shared {
    /// The node with the address of an endpoint.
    const NODE: usize = 1;

    async fn start() -> Shared {
        let plane = control_plane().await;
        let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
        let env = plan.start(&[server(&plane, &[])]).await;
        let mut shared = Shared { env, plane, puts: 0 };
        shared.source(HealthStatus::Healthy).await;
        shared.becomes("None").await;
        shared
    }

    async fn source(&self, health: HealthStatus) {
        let shared = node_ip(Self::NODE);
        let all = [(FIRST, HealthStatus::Healthy), (shared.as_str(), health)];
        self.plane.set(Kind::Endpoints, "web", endpoints("web", [locality(0, &all)])).await;
    }

    async fn node_leaves(&self, leaves: bool) {
        let keys: &'static [&'static str] = if leaves { &[OUT_OF_SERVICE] } else { &[] };
        taint(&self.env.stage, Self::NODE, keys).await;
    }

    /// Waits until the controller has processed that the node drains or is back.
    async fn is_settled(&self, leaves: bool) {
        let settled = |status: &Value| {
            let nodes = &status["adminState"];
            let others = ["held", "recording", "draining", "restoring"];
            nodes["down"] == json!(u8::from(leaves)) && others.iter().all(|state| nodes[state] == json!(0))
        };
        self.env.stage.shown("/api/v1/status", settled).await;
    }

    /// Asserts that one write sets this state.
    async fn becomes(&mut self, state: &str) {
        self.env
            .wait_for_admin_states("web", &[(FIRST, "None"), (node_ip(Self::NODE).as_str(), state)])
            .await;
        self.puts += 1;
        self.stays(state).await;
    }

    /// Asserts that the state stays, without a write.
    async fn stays(&self, state: &str) {
        self.env.flush_writes().await;
        self.env.assert_members_and_puts("web", &[FIRST, node_ip(Self::NODE).as_str()], self.puts).await;
        self.env
            .wait_for_admin_states("web", &[(FIRST, "None"), (node_ip(Self::NODE).as_str(), state)])
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n4_x2_a_shared_address_is_down_until_both_stop_draining() {
    // The endpoint first, and back first.
    let mut shared = Shared::start().await;
    shared.source(HealthStatus::Draining).await;
    shared.becomes("Down").await;
    shared.node_leaves(true).await;
    shared.is_settled(true).await;
    shared.stays("Down").await;
    shared.source(HealthStatus::Healthy).await;
    shared.stays("Down").await;
    shared.node_leaves(false).await;
    shared.becomes("None").await;

    // The node first, and back first.
    shared.node_leaves(true).await;
    shared.becomes("Down").await;
    shared.source(HealthStatus::Draining).await;
    shared.stays("Down").await;
    shared.node_leaves(false).await;
    shared.is_settled(false).await;
    shared.stays("Down").await;
    shared.source(HealthStatus::Healthy).await;
    shared.becomes("None").await;
    shared.env.assert_no_logged_errors();
}
