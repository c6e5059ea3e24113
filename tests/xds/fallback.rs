//! Two servers in the bootstrap: when the second is used, and how the first comes back (A71).

use simulator::control_plane::{Code, ControlPlane, Ending, Kind, StreamBehaviour};

use super::stage::{FAILS, Plan, Scene, at, control_plane, server};

const BEFORE: &str = "10.9.0.1";
/// Address that each server assigns.
const FIRST: &str = "10.1.0.1";
const SECOND: &str = "10.2.0.1";

async fn servers() -> (ControlPlane, ControlPlane) {
    let (first, second) = (control_plane().await, control_plane().await);
    for name in ["web", "mail"] {
        first.set(Kind::Endpoints, name, at(name, &[FIRST])).await;
        second.set(Kind::Endpoints, name, at(name, &[SECOND])).await;
    }
    (first, second)
}

async fn start(first: &ControlPlane, second: &ControlPlane) -> Scene {
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let plan = plan.pool("mail", "eds:mail", &[BEFORE]).await;
    // Only of the second it is said that data errors are to be heeded.
    plan.start(&[server(first, &[]), server(second, &[FAILS])]).await
}

async fn both_hold(scene: &Scene, address: &str, puts: usize) {
    for pool in ["web", "mail"] {
        scene.holds(pool, &[address]).await;
        scene.has_no_error(pool).await;
    }
    scene.all_is_written().await;
    for pool in ["web", "mail"] {
        scene.is_at_rest(pool, &[address], puts).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a71_the_second_server_is_used_while_the_first_fails() {
    let (first, second) = servers().await;
    first.stop().await;
    let scene = start(&first, &second).await;
    both_hold(&scene, SECOND, 1).await;
    assert_eq!(scene.events("XdsResourceError").await, Vec::<String>::new(), "one that answers is enough");

    // Its features hold while it is used.
    second.fail(Kind::Endpoints, "mail", Code::NotFound, "no more").await;
    scene.holds("mail", &[]).await;
    second.forget_error(Kind::Endpoints, "mail").await;
    scene.holds("mail", &[SECOND]).await;

    first.restart().await.expect("the port is still ours");
    for pool in ["web", "mail"] {
        scene.holds(pool, &[FIRST]).await;
        scene.has_no_error(pool).await;
    }
    second.wait_for_streams(|streams| streams.open == 0).await.expect("the second is left");
    let count = second.journal().await.len();
    let labels = [("grpc_xds_server", &*second.address().to_string())];
    assert!(scene.metric("grpc_xds_client_connected", &labels).await.abs() < 0.5);

    // Now the features of the first hold, and the second is not heard.
    first.fail(Kind::Endpoints, "mail", Code::NotFound, "no more").await;
    second.set(Kind::Endpoints, "web", at("web", &["10.2.0.9"])).await;
    scene.notes("mail", "no more").await;
    scene.all_is_written().await;
    scene.is_at_rest("mail", &[FIRST], 4).await;
    scene.is_at_rest("web", &[FIRST], 2).await;
    assert_eq!(second.journal().await.len(), count, "nothing more is asked of it");
    scene.logged_no_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a71_a_silent_server_leads_to_the_second() {
    let (first, second) = servers().await;
    first.freeze(true).await;
    let scene = start(&first, &second).await;
    both_hold(&scene, SECOND, 1).await;
    assert_eq!(scene.events("XdsResourceError").await, Vec::<String>::new(), "nothing was late");
    let labels = [("grpc_xds_server", &*first.address().to_string())];
    assert!(scene.metric("grpc_xds_client_connected", &labels).await.abs() < 0.5, "it is no connection");
    first.freeze(false).await;
    both_hold(&scene, FIRST, 2).await;
    second.wait_for_streams(|streams| streams.open == 0).await.expect("the second is left");
    scene.logged_no_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a71_a_failure_with_all_cached_causes_no_fallback() {
    let (first, second) = servers().await;
    let scene = start(&first, &second).await;
    both_hold(&scene, FIRST, 1).await;
    first.behave(StreamBehaviour::Refuses(simulator::control_plane::Status::unavailable("closed"))).await;
    first.cut(Ending::Connections).await;
    for pool in ["web", "mail"] {
        scene.notes(pool, "closed").await;
    }
    scene.all_is_written().await;
    for pool in ["web", "mail"] {
        scene.is_at_rest(pool, &[FIRST], 1).await;
    }
    assert_eq!(second.streams().await.connections, 0, "the second is not asked");
    first.behave(StreamBehaviour::Answers).await;
    both_hold(&scene, FIRST, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a71_an_error_is_shown_when_all_servers_fail() {
    let (first, second) = servers().await;
    first.stop().await;
    second.stop().await;
    let scene = start(&first, &second).await;
    // The one that is told is of the last that was tried.
    let message =
        scene.event("XdsResourceError", &["eds:web", "no valid endpoints have been received"]).await;
    assert!(message.contains(&second.address().to_string()), "{message}");
    scene.all_is_written().await;
    for pool in ["web", "mail"] {
        scene.is_at_rest(pool, &[BEFORE], 0).await;
    }
    second.restart().await.expect("the port is still ours");
    both_hold(&scene, SECOND, 1).await;
    scene.logged_no_errors();
}
