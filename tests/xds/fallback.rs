//! Two servers in the bootstrap: the fallback to the second, and the return to the first (A71).

use simulator::control_plane::{Code, ControlPlane, Ending, Kind, StreamBehaviour};

use super::stage::{FAIL_ON_DATA_ERRORS, Plan, TestEnvironment, control_plane, endpoints_at, server};

const BEFORE: &str = "10.9.0.1";
/// Address that each server assigns.
const FIRST: &str = "10.1.0.1";
const SECOND: &str = "10.2.0.1";

async fn servers() -> (ControlPlane, ControlPlane) {
    let (first, second) = (control_plane().await, control_plane().await);
    for name in ["web", "mail"] {
        first.set(Kind::Endpoints, name, endpoints_at(name, &[FIRST])).await;
        second.set(Kind::Endpoints, name, endpoints_at(name, &[SECOND])).await;
    }
    (first, second)
}

async fn start(first: &ControlPlane, second: &ControlPlane) -> TestEnvironment {
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let plan = plan.pool("mail", "eds:mail", &[BEFORE]).await;
    // Only the second server has the feature for data errors.
    plan.start(&[server(first, &[]), server(second, &[FAIL_ON_DATA_ERRORS])]).await
}

async fn both_hold(env: &TestEnvironment, address: &str, puts: usize) {
    for pool in ["web", "mail"] {
        env.wait_for_members(pool, &[address]).await;
        env.wait_for_no_error(pool).await;
    }
    env.flush_writes().await;
    for pool in ["web", "mail"] {
        env.assert_members_and_puts(pool, &[address], puts).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a71_the_second_server_is_used_while_the_first_fails() {
    let (first, second) = servers().await;
    first.stop().await;
    let env = start(&first, &second).await;
    both_hold(&env, SECOND, 1).await;
    assert_eq!(env.events("XdsResourceError").await, Vec::<String>::new(), "one reachable server is enough");

    // Its features apply while it is used.
    second.fail(Kind::Endpoints, "mail", Code::NotFound, "no more").await;
    env.wait_for_members("mail", &[]).await;
    second.forget_error(Kind::Endpoints, "mail").await;
    env.wait_for_members("mail", &[SECOND]).await;

    first.restart().await.expect("the port is still ours");
    for pool in ["web", "mail"] {
        env.wait_for_members(pool, &[FIRST]).await;
        env.wait_for_no_error(pool).await;
    }
    second.wait_for_streams(|streams| streams.open == 0).await.expect("the second server is disconnected");
    let count = second.journal().await.len();
    let labels = [("grpc_xds_server", &*second.address().to_string())];
    assert!(env.metric("grpc_xds_client_connected", &labels).await.abs() < 0.5);

    // Now the features of the first server apply, and the second one is disconnected.
    first.fail(Kind::Endpoints, "mail", Code::NotFound, "no more").await;
    second.set(Kind::Endpoints, "web", endpoints_at("web", &["10.2.0.9"])).await;
    env.wait_for_note("mail", "no more").await;
    env.flush_writes().await;
    env.assert_members_and_puts("mail", &[FIRST], 4).await;
    env.assert_members_and_puts("web", &[FIRST], 2).await;
    assert_eq!(second.journal().await.len(), count, "it gets no more requests");
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a71_a_silent_server_causes_a_fallback() {
    let (first, second) = servers().await;
    first.freeze(true).await;
    let env = start(&first, &second).await;
    both_hold(&env, SECOND, 1).await;
    assert_eq!(env.events("XdsResourceError").await, Vec::<String>::new(), "nothing was late");
    let labels = [("grpc_xds_server", &*first.address().to_string())];
    assert!(env.metric("grpc_xds_client_connected", &labels).await.abs() < 0.5, "it is no connection");
    first.freeze(false).await;
    both_hold(&env, FIRST, 2).await;
    second.wait_for_streams(|streams| streams.open == 0).await.expect("the second server is disconnected");
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a71_a_failure_with_all_cached_causes_no_fallback() {
    let (first, second) = servers().await;
    let env = start(&first, &second).await;
    both_hold(&env, FIRST, 1).await;
    first.behave(StreamBehaviour::Refuses(simulator::control_plane::Status::unavailable("closed"))).await;
    first.cut(Ending::Connections).await;
    for pool in ["web", "mail"] {
        env.wait_for_note(pool, "closed").await;
    }
    env.flush_writes().await;
    for pool in ["web", "mail"] {
        env.assert_members_and_puts(pool, &[FIRST], 1).await;
    }
    assert_eq!(second.streams().await.connections, 0, "the second server gets no request");
    first.behave(StreamBehaviour::Answers).await;
    both_hold(&env, FIRST, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a71_an_error_is_shown_when_all_servers_fail() {
    let (first, second) = servers().await;
    first.stop().await;
    second.stop().await;
    let env = start(&first, &second).await;
    // The reported error is that of the last server.
    let message =
        env.wait_for_event("XdsResourceError", &["eds:web", "no valid endpoints have been received"]).await;
    assert!(message.contains(&second.address().to_string()), "{message}");
    env.flush_writes().await;
    for pool in ["web", "mail"] {
        env.assert_members_and_puts(pool, &[BEFORE], 0).await;
    }
    second.restart().await.expect("the port is still ours");
    both_hold(&env, SECOND, 1).await;
    env.assert_no_logged_errors();
}
