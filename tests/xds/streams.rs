//! The rows of A88 about streams: a stream that ends without a response, and an unreachable server, with nothing
//! cached, with something cached, and with `fail_on_data_errors` (A57, X1, X3, X4).

use envoy_types::pb::envoy::admin::v3::ClientResourceStatus::{Acked, Requested};
use simulator::control_plane::{ControlPlane, Ending, Kind, Status, StreamBehaviour, cluster};

use super::stage::{FAIL_ON_DATA_ERRORS, Plan, TestEnvironment, control_plane, endpoints_at, server};
use crate::support::{TEST_TIMEOUT, eventually};

const BEFORE: &str = "10.9.0.1";
const GOOD: &str = "10.1.0.1";
const BETTER: &str = "10.1.0.2";

/// The pools.
const POOLS: [&str; 2] = ["known", "of-cluster"];

/// Failure of a control plane.
#[derive(Clone, Copy)]
enum Failure {
    /// The server closes each stream without a status and without a response.
    Closes,
    /// The server ends each stream with a status, without a response.
    Ends,
    /// The server refuses each stream before any request is read.
    Refuses,
    /// The server closes the connection.
    Cuts,
    /// There is no listener.
    Gone,
}

impl Failure {
    const ALL: [Failure; 5] =
        [Failure::Closes, Failure::Ends, Failure::Refuses, Failure::Cuts, Failure::Gone];

    async fn begin(self, plane: &ControlPlane) {
        match self {
            Failure::Closes => plane.behave(StreamBehaviour::EndsStreams(Ending::Cleanly)).await,
            Failure::Ends => {
                let status = Status::resource_exhausted("too many of you");
                plane.behave(StreamBehaviour::EndsStreams(Ending::Status(status))).await;
            }
            Failure::Refuses => {
                plane.behave(StreamBehaviour::Refuses(Status::permission_denied("who are you?"))).await;
            }
            Failure::Cuts => plane.behave(StreamBehaviour::EndsStreams(Ending::Connections)).await,
            Failure::Gone => plane.stop().await,
        }
        plane.cut(Ending::Cleanly).await;
    }

    async fn end(self, plane: &ControlPlane) {
        plane.behave(StreamBehaviour::Answers).await;
        if matches!(self, Failure::Gone) {
            plane.restart().await.expect("the port is still ours");
        }
    }

    /// Returns a part of the error's text.
    fn words(self) -> &'static str {
        match self {
            Failure::Closes => "it closed the stream without a response",
            Failure::Ends => "too many of you",
            Failure::Refuses => "who are you?",
            Failure::Cuts | Failure::Gone => "the stream ended without a response: ",
        }
    }
}

async fn plan() -> Plan {
    let plan = Plan::new().await.pool("known", "eds:known", &[BEFORE]).await;
    plan.pool("of-cluster", "cluster:web", &[BEFORE]).await
}

async fn assign(plane: &ControlPlane, address: &str) {
    plane.set(Kind::Clusters, "web", cluster("web", "of-cluster")).await;
    for name in POOLS {
        plane.set(Kind::Endpoints, name, endpoints_at(name, &[address])).await;
    }
}

/// Waits until the metrics show this state of the connection.
async fn is_connected(env: &TestEnvironment, connected: bool) {
    let wanted = if connected { 1.0 } else { 0.0 };
    eventually("the metrics show the state of the connection", TEST_TIMEOUT, || async {
        let value: f64 = env.metric("grpc_xds_client_connected", &[]).await;
        if (value - wanted).abs() < 0.5 { Ok(()) } else { Err(value.to_string()) }
    })
    .await;
}

async fn is_ambient(features: &[&str]) {
    let plane = control_plane().await;
    assign(&plane, GOOD).await;
    let env = plan().await.start(&[server(&plane, features)]).await;
    for pool in POOLS {
        env.wait_for_members(pool, &[GOOD]).await;
    }
    for (failure, times) in Failure::ALL.into_iter().zip(1..) {
        let before = env.puts_of_others().await;
        failure.begin(&plane).await;
        for pool in POOLS {
            let note = env.wait_for_note(pool, failure.words()).await;
            assert!(note.contains(&plane.address().to_string()), "the server is named: {note}");
        }
        is_connected(&env, false).await;
        for (kind, name) in [(Kind::Endpoints, "known"), (Kind::Clusters, "web")] {
            let shown = env.wait_for_csds(kind, name, |_| true).await;
            assert!(shown.is_good(), "the resource is unchanged: {shown:?}");
        }
        env.wait_for_cache_count(Kind::Endpoints, "acked", 2).await;
        let words = ["eds:known", "cluster:web", "stay in use in 2 backend pools", failure.words()];
        env.wait_for_event("XdsResourceError", &words).await;
        env.flush_writes().await;
        for pool in POOLS {
            env.assert_members_and_puts(pool, &[GOOD], 1).await;
        }
        assert_eq!(env.puts_of_others().await, before, "nothing else is written either");

        failure.end(&plane).await;
        for pool in POOLS {
            env.wait_for_no_error(pool).await;
        }
        is_connected(&env, true).await;
        // Each failure is reported once, and so is its end.
        env.wait_for_reports("XdsResourceError", times).await;
        env.wait_for_reports("XdsResourceRecovered", times).await;
    }
    let failures = env.metric("grpc_xds_client_server_failure_total", &[]).await;
    assert!((failures - 5.0).abs() < 0.5, "each failure counts once: {failures}");
    env.flush_writes().await;
    for pool in POOLS {
        env.assert_members_and_puts(pool, &[GOOD], 1).await;
    }
    assign(&plane, BETTER).await;
    for pool in POOLS {
        env.wait_for_members(pool, &[BETTER]).await;
        assert_eq!(env.puts(pool).await, 2);
    }
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a88_a_failing_server_is_an_ambient_error() {
    is_ambient(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a88_a_failing_server_is_no_data_error() {
    is_ambient(&[FAIL_ON_DATA_ERRORS]).await;
}

async fn leaves_what_was_never_known(features: &[&str]) {
    let plane = control_plane().await;
    assign(&plane, GOOD).await;
    Failure::Closes.begin(&plane).await;
    let env = plan().await.start(&[server(&plane, features)]).await;
    let untouched = "no valid endpoints have been received, so nothing is written to";
    for source in ["eds:known", "cluster:web"] {
        env.wait_for_event("XdsResourceError", &[source, untouched, Failure::Closes.words()]).await;
    }
    for failure in [Failure::Ends, Failure::Gone] {
        failure.begin(&plane).await;
        plane.wait_for_streams(|streams| streams.open == 0).await.expect("no stream stays open");
        is_connected(&env, false).await;
        for (kind, name) in [(Kind::Endpoints, "known"), (Kind::Clusters, "web")] {
            let shown = env.wait_for_csds(kind, name, |shown| shown.state == Requested).await;
            assert_eq!((shown.version.as_str(), &shown.error), ("", &None));
        }
        env.wait_for_cache_count(Kind::Endpoints, "requested", 1).await;
        env.flush_writes().await;
        for pool in POOLS {
            env.assert_members_and_puts(pool, &[BEFORE], 0).await;
        }
    }
    Failure::Gone.end(&plane).await;
    for pool in POOLS {
        env.wait_for_members(pool, &[GOOD]).await;
        env.wait_for_no_error(pool).await;
    }
    env.wait_for_csds_state("known", Acked).await;
    env.wait_for_event("XdsResourceRecovered", &["eds:known"]).await;
    // The server did not recover between the failures, so there is one report.
    env.wait_for_reports("XdsResourceError", 1).await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a88_a_failing_server_with_nothing_cached_changes_no_pool() {
    leaves_what_was_never_known(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a88_a_failing_server_with_nothing_cached_empties_nothing() {
    leaves_what_was_never_known(&[FAIL_ON_DATA_ERRORS]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x4_e1_a_failing_server_is_one_event_for_all_its_sources() {
    let plane = control_plane().await;
    let names: Vec<String> = (0..30).map(|n| format!("shop-{n}")).collect();
    let mut plan = Plan::new().await;
    for name in &names {
        plane.set(Kind::Endpoints, name, endpoints_at(name, &[GOOD])).await;
        plan = plan.pool(name, &format!("eds:{name}"), &[GOOD]).await;
    }
    let env = plan.start(&[server(&plane, &[])]).await;
    for name in &names {
        env.wait_for_no_error(name).await;
    }
    plane.stop().await;
    for name in &names {
        env.wait_for_note(name, Failure::Gone.words()).await;
    }
    env.wait_for_event("XdsResourceError", &["and 27 others", "stay in use in 30 backend pools"]).await;
    plane.restart().await.expect("the port is still ours");
    for name in &names {
        env.wait_for_no_error(name).await;
    }
    env.wait_for_event("XdsResourceRecovered", &["and 27 others"]).await;
    assert_eq!(env.events("XdsResourceError").await.len(), 1);
    assert_eq!(env.events("XdsResourceRecovered").await.len(), 1);
    for name in &names {
        assert_eq!(env.puts(name).await, 0);
    }
    env.assert_no_logged_errors();
}
