//! Restarts of either side, streams that end, and resources that come once more: what is written is what has changed,
//! and nothing else (A57, X2, X3).

use envoy_types::pb::envoy::admin::v3::ClientResourceStatus::Acked;
use simulator::control_plane::{ControlPlane, Ending, Kind, Status, cluster};

use super::stage::{NODE, Plan, Scene, control_plane, endpoints_at, server};

const BEFORE: &str = "10.9.0.1";
const GOOD: &str = "10.1.0.1";
const BETTER: &str = "10.1.0.2";
const POOLS: [&str; 2] = ["plain", "clustered"];

async fn assign(plane: &ControlPlane, address: &str) {
    plane.set(Kind::Clusters, "web", cluster("web", "of-cluster")).await;
    plane.set(Kind::Endpoints, "plain", endpoints_at("plain", &[address])).await;
    plane.set(Kind::Endpoints, "of-cluster", endpoints_at("of-cluster", &[address])).await;
}

async fn scene(plane: &ControlPlane) -> Scene {
    assign(plane, GOOD).await;
    let plan = Plan::new().await.pool("plain", "eds:plain", &[BEFORE]).await;
    let scene = plan.pool("clustered", "cluster:web", &[BEFORE]).await.start(&[server(plane, &[])]).await;
    all_hold(&scene, GOOD, 1).await;
    scene
}

/// Waits until all pools have this address, and requires that this has cost so many writes of each.
async fn all_hold(scene: &Scene, address: &str, puts: usize) {
    for pool in POOLS {
        scene.wait_for_members(pool, &[address]).await;
        scene.wait_for_no_error(pool).await;
    }
    scene.flush_writes().await;
    for pool in POOLS {
        scene.assert_members_and_puts(pool, &[address], puts).await;
    }
}

/// Waits until the controller has taken what it was sent on a stream after this one.
async fn listens_again(plane: &ControlPlane, after: u64) {
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
    let scene = scene(&plane).await;
    plane.stop().await;
    leaves_all_members(&plane, scene.restart("second").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a_restart_without_the_control_plane_leaves_all_members() {
    let plane = control_plane().await;
    let scene = scene(&plane).await;
    plane.stop().await;
    leaves_all_members(&plane, scene.kill_and_restart("second").await).await;
}

/// Requires that nothing is written while this controller has no control plane, that the operator is told, and that what
/// the control plane has when it comes back costs nothing and what it changes then is heeded.
async fn leaves_all_members(plane: &ControlPlane, scene: Scene) {
    for source in ["eds:plain", "cluster:web"] {
        let message = scene
            .wait_for_event(
                "XdsResourceError",
                &[source, "no valid endpoints have been received, so nothing is written"],
            )
            .await;
        assert!(message.contains(&plane.address().to_string()), "{message}");
    }
    scene.flush_writes().await;
    for pool in POOLS {
        scene.assert_members_and_puts(pool, &[GOOD], 1).await;
    }

    plane.restart().await.expect("the port is still ours");
    all_hold(&scene, GOOD, 1).await;
    scene.wait_for_event("XdsResourceRecovered", &["eds:plain"]).await;
    assign(plane, BETTER).await;
    all_hold(&scene, BETTER, 2).await;
    scene.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a_control_plane_back_with_other_endpoints_is_followed() {
    let plane = control_plane().await;
    let scene = scene(&plane).await;
    plane.stop().await;
    let scene = scene.restart("second").await;
    assign(&plane, BETTER).await;
    plane.restart().await.expect("the port is still ours");
    all_hold(&scene, BETTER, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_control_plane_without_its_versions_costs_no_write() {
    let plane = control_plane().await;
    // Its versions are past those that it begins with again.
    for address in ["10.1.0.7", "10.1.0.8"] {
        assign(&plane, address).await;
    }
    let scene = scene(&plane).await;
    let (version, stream) =
        (scene.wait_for_csds_state("plain", Acked).await.version, last_stream(&plane).await);
    plane.restart().await.expect("the port is still ours");
    listens_again(&plane, stream).await;
    let shown = scene.wait_for_csds(Kind::Endpoints, "plain", |shown| shown.version != version).await;
    assert!(shown.is_good() && shown.version == "1", "{shown:?} after version {version}");
    all_hold(&scene, GOOD, 1).await;
    assign(&plane, BETTER).await;
    all_hold(&scene, BETTER, 2).await;
    scene.assert_no_logged_errors();
}

async fn last_stream(plane: &ControlPlane) -> u64 {
    plane.journal().await.last().expect("a client has asked").stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a57_after_a_stream_all_is_requested_again_without_a_write() {
    let plane = control_plane().await;
    let scene = scene(&plane).await;
    for ending in [Ending::Cleanly, Ending::Status(Status::unavailable("later")), Ending::Connections] {
        let (known, stream) = (plane.journal().await, last_stream(&plane).await);
        assert!(plane.cut(ending).await > 0, "a stream was open");
        listens_again(&plane, stream).await;
        let journal = plane.journal().await;
        let new: Vec<_> = journal.iter().skip(known.len()).collect();
        let first = new.first().expect("a request");
        assert_eq!(first.node.as_ref().map(|node| node.id.as_str()), Some(NODE));
        assert!(
            new.iter().skip(1).all(|request| request.node.is_none()),
            "the node goes with the first request alone"
        );
        for kind in Kind::ALL {
            let first =
                new.iter().find(|request| request.kind() == Some(kind)).expect("each kind is asked for");
            assert_eq!(first.response_nonce, "", "a nonce is of one stream: {first}");
            assert_ne!(first.version_info, "", "a version is of all streams: {first}");
        }
        // A stream that has had a response may end: that is no error.
        for pool in POOLS {
            scene.wait_for_no_error(pool).await;
        }
    }
    let failures = scene.metric("grpc_xds_client_server_failure_total", &[]).await;
    assert!(failures.abs() < 0.5, "{failures}");
    assert_eq!(scene.events("XdsResourceError").await, Vec::<String>::new());
    all_hold(&scene, GOOD, 1).await;
    assign(&plane, BETTER).await;
    all_hold(&scene, BETTER, 2).await;
    scene.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_repeated_resource_costs_no_write() {
    let plane = control_plane().await;
    let scene = scene(&plane).await;
    let before = scene.wait_for_csds_state("plain", Acked).await.version;
    for _ in 0..3 {
        assign(&plane, GOOD).await;
    }
    let newest = |shown: &super::dump::Shown| {
        let number = |text: &str| text.parse::<u64>().expect("the simulator counts versions");
        number(&shown.version) > number(&before) + 3
    };
    assert!(scene.wait_for_csds(Kind::Endpoints, "plain", newest).await.is_good());
    // Another order of addresses is another text and no other assignment.
    plane.set(Kind::Endpoints, "plain", endpoints_at("plain", &[GOOD, BETTER])).await;
    scene.wait_for_members("plain", &[GOOD, BETTER]).await;
    plane.set(Kind::Endpoints, "plain", endpoints_at("plain", &[BETTER, GOOD])).await;
    scene.flush_writes().await;
    scene.assert_members_and_puts("plain", &[GOOD, BETTER], 2).await;
    scene.assert_members_and_puts("clustered", &[GOOD], 1).await;
    scene.assert_no_logged_errors();
}
