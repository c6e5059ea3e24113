//! Restarts of either side, ends of streams, and repeated resources: only changes are written (A57, X2, X3).

use envoy_types::pb::envoy::admin::v3::ClientResourceStatus::Acked;
use simulator::control_plane::{ControlPlane, Ending, Kind, Status, cluster};

use super::stage::{NODE, Plan, TestEnvironment, control_plane, endpoints_at, server};

const INITIAL_MEMBER: &str = "10.9.0.1";
const FIRST: &str = "10.1.0.1";
const SECOND: &str = "10.1.0.2";
const POOLS: [&str; 2] = ["plain", "clustered"];

async fn assign(plane: &ControlPlane, address: &str) {
    plane.set(Kind::Clusters, "web", cluster("web", "of-cluster")).await;
    plane.set(Kind::Endpoints, "plain", endpoints_at("plain", &[address])).await;
    plane.set(Kind::Endpoints, "of-cluster", endpoints_at("of-cluster", &[address])).await;
}

async fn env(plane: &ControlPlane) -> TestEnvironment {
    assign(plane, FIRST).await;
    let plan = Plan::new().await.pool("plain", "eds:plain", &[INITIAL_MEMBER]).await;
    let env =
        plan.pool("clustered", "cluster:web", &[INITIAL_MEMBER]).await.start(&[server(plane, &[])]).await;
    wait_for_members_and_puts(&env, FIRST, 1).await;
    env
}

/// Waits until all pools hold this address, and asserts the number of PUTs of each.
async fn wait_for_members_and_puts(env: &TestEnvironment, address: &str, puts: usize) {
    for pool in POOLS {
        env.wait_for_members(pool, &[address]).await;
        env.wait_for_no_error(pool).await;
    }
    env.flush_writes().await;
    for pool in POOLS {
        env.assert_members_and_puts(pool, &[address], puts).await;
    }
}

/// Waits for an ACK of each resource type on a later stream.
async fn wait_for_acks_on_new_stream(plane: &ControlPlane, after: u64) {
    let accepted = |journal: &[simulator::control_plane::RecordedRequest]| {
        Kind::ALL.into_iter().all(|kind| {
            journal
                .iter()
                .any(|request| request.stream > after && request.kind() == Some(kind) && request.is_ack())
        })
    };
    plane.wait_until(accepted).await.expect("an ACK of each kind on a new stream");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a_start_without_the_control_plane_leaves_all_members() {
    let plane = control_plane().await;
    let env = env(&plane).await;
    plane.stop().await;
    assert_members_stay(&plane, env.restart("second").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a_restart_without_the_control_plane_leaves_all_members() {
    let plane = control_plane().await;
    let env = env(&plane).await;
    plane.stop().await;
    assert_members_stay(&plane, env.kill_and_restart("second").await).await;
}

/// Asserts that nothing is written and an Event is emitted while the control plane is down; that unchanged resources
/// cause no write after it returns; and that later changes are applied.
async fn assert_members_stay(plane: &ControlPlane, env: TestEnvironment) {
    for source in ["eds:plain", "cluster:web"] {
        let message = env
            .wait_for_event(
                "XdsResourceError",
                &[source, "no valid endpoints have been received, so nothing is written"],
            )
            .await;
        assert!(message.contains(&plane.address().to_string()), "{message}");
    }
    env.flush_writes().await;
    for pool in POOLS {
        env.assert_members_and_puts(pool, &[FIRST], 1).await;
    }

    plane.restart().await.expect("the port is still ours");
    wait_for_members_and_puts(&env, FIRST, 1).await;
    env.wait_for_event("XdsResourceRecovered", &["eds:plain"]).await;
    assign(plane, SECOND).await;
    wait_for_members_and_puts(&env, SECOND, 2).await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a_control_plane_back_with_other_endpoints_is_followed() {
    let plane = control_plane().await;
    let env = env(&plane).await;
    plane.stop().await;
    let env = env.restart("second").await;
    assign(&plane, SECOND).await;
    plane.restart().await.expect("the port is still ours");
    wait_for_members_and_puts(&env, SECOND, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_control_plane_that_restarts_its_versions_costs_no_write() {
    let plane = control_plane().await;
    // After its restart, its versions start at 1 again.
    for address in ["10.1.0.7", "10.1.0.8"] {
        assign(&plane, address).await;
    }
    let env = env(&plane).await;
    let (version, stream) =
        (env.wait_for_csds_state("plain", Acked).await.version, last_stream(&plane).await);
    plane.restart().await.expect("the port is still ours");
    wait_for_acks_on_new_stream(&plane, stream).await;
    let shown = env.wait_for_csds(Kind::Endpoints, "plain", |shown| shown.version != version).await;
    assert!(shown.is_good() && shown.version == "1", "{shown:?} after version {version}");
    wait_for_members_and_puts(&env, FIRST, 1).await;
    assign(&plane, SECOND).await;
    wait_for_members_and_puts(&env, SECOND, 2).await;
    env.assert_no_logged_errors();
}

async fn last_stream(plane: &ControlPlane) -> u64 {
    plane.journal().await.last().expect("a client has sent a request").stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a57_after_a_stream_all_is_requested_again_without_a_write() {
    let plane = control_plane().await;
    let env = env(&plane).await;
    for ending in [Ending::Cleanly, Ending::Status(Status::unavailable("later")), Ending::Connections] {
        let (known, stream) = (plane.journal().await, last_stream(&plane).await);
        assert!(plane.cut(ending).await > 0, "a stream was open");
        wait_for_acks_on_new_stream(&plane, stream).await;
        let journal = plane.journal().await;
        let new: Vec<_> = journal.iter().skip(known.len()).collect();
        let first = new.first().expect("a request");
        assert_eq!(first.node.as_ref().map(|node| node.id.as_str()), Some(NODE));
        assert!(
            new.iter().skip(1).all(|request| request.node.is_none()),
            "only the first request carries the node"
        );
        for kind in Kind::ALL {
            let first =
                new.iter().find(|request| request.kind() == Some(kind)).expect("each kind is requested");
            assert_eq!(first.response_nonce, "", "nonces are per stream: {first}");
            assert_ne!(first.version_info, "", "versions outlive streams: {first}");
        }
        // A stream with a response may end without an error.
        for pool in POOLS {
            env.wait_for_no_error(pool).await;
        }
    }
    let failures = env.metric("grpc_xds_client_server_failure_total", &[]).await;
    assert!(failures.abs() < 0.5, "{failures}");
    assert_eq!(env.events("XdsResourceError").await, Vec::<String>::new());
    wait_for_members_and_puts(&env, FIRST, 1).await;
    assign(&plane, SECOND).await;
    wait_for_members_and_puts(&env, SECOND, 2).await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_repeated_resource_costs_no_write() {
    let plane = control_plane().await;
    let env = env(&plane).await;
    let before = env.wait_for_csds_state("plain", Acked).await.version;
    for _ in 0..3 {
        assign(&plane, FIRST).await;
    }
    let newest = |shown: &super::dump::Shown| {
        let number = |text: &str| text.parse::<u64>().expect("the simulator counts versions");
        number(&shown.version) > number(&before) + 3
    };
    assert!(env.wait_for_csds(Kind::Endpoints, "plain", newest).await.is_good());
    // Another order of addresses is another resource, but the same assignment.
    plane.set(Kind::Endpoints, "plain", endpoints_at("plain", &[FIRST, SECOND])).await;
    env.wait_for_members("plain", &[FIRST, SECOND]).await;
    plane.set(Kind::Endpoints, "plain", endpoints_at("plain", &[SECOND, FIRST])).await;
    env.flush_writes().await;
    env.assert_members_and_puts("plain", &[FIRST, SECOND], 2).await;
    env.assert_members_and_puts("clustered", &[FIRST], 1).await;
    env.assert_no_logged_errors();
}
