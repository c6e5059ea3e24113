//! The row of A88 about time-outs: a resource that does not arrive. The timers are real, of 15 and 30 seconds, so one
//! test waits for all of them together (A57, X1, X3).

use std::ops::Range;

use envoy_types::pb::envoy::admin::v3::ClientResourceStatus::{
    self, Acked, DoesNotExist, ReceivedError, Requested, Timeout,
};
use simulator::control_plane::{Code, ControlPlane, Ending, Kind, RecordedRequest, cluster};

use super::stage::{FAIL_ON_DATA_ERRORS, Plan, TestEnvironment, control_plane, endpoints_at, server};

const BEFORE: &str = "10.9.0.1";
const GOOD: &str = "10.1.0.1";

/// The resources that do not arrive.
const EXPECTED: [(Kind, &str); 3] =
    [(Kind::Endpoints, "late"), (Kind::Clusters, "late"), (Kind::Endpoints, "half-endpoints")];

/// The pools whose resources do not arrive.
const LATE: [&str; 3] = ["late", "late-cluster", "half"];

async fn env(plane: &ControlPlane, features: &[&str]) -> TestEnvironment {
    plane.set(Kind::Endpoints, "kept", endpoints_at("kept", &[GOOD])).await;
    plane.fail(Kind::Endpoints, "reported", Code::NotFound, "never heard of it").await;
    // The cluster exists, and its endpoints do not.
    plane.set(Kind::Clusters, "half", cluster("half", "half-endpoints")).await;
    let mut plan = Plan::new().await;
    let pools = [
        ("late", "eds:late"),
        ("late-cluster", "cluster:late"),
        ("half", "cluster:half"),
        ("reported", "eds:reported"),
        ("kept", "eds:kept"),
    ];
    for (pool, source) in pools {
        plan = plan.pool(pool, source, &[BEFORE]).await;
    }
    let env = plan.start(&[server(plane, features)]).await;
    env.wait_for_members("kept", &[GOOD]).await;
    plane.cut(Ending::Cleanly).await;
    let again =
        plane.wait_until(|journal| EXPECTED.iter().all(|of| requested_at(journal, *of).is_some())).await;
    again.expect("everything is requested on the next stream");
    env
}

/// Starts a controller with resources in use, and a second stream on which the server sends nothing, because the client
/// claims the current version.
async fn unsent(plane: &ControlPlane) -> TestEnvironment {
    plane.set(Kind::Endpoints, "kept", endpoints_at("kept", &[GOOD])).await;
    let plan = Plan::new().await.pool("kept", "eds:kept", &[BEFORE]).await;
    let env = plan.start(&[server(plane, &[])]).await;
    env.wait_for_members("kept", &[GOOD]).await;
    plane.trust_versions(true).await;
    plane.cut(Ending::Cleanly).await;
    let claims = |request: &RecordedRequest| request.stream > 1 && !request.version_info.is_empty();
    plane.wait_until(|journal| journal.iter().any(claims)).await.expect("the version is claimed");
    env
}

/// Asserts that no timer runs for resources in use, although they are not sent again (A57).
async fn is_in_use_unsent(env: &TestEnvironment) {
    let shown = env.wait_for_csds_state("kept", Acked).await;
    assert!(shown.is_good(), "{shown:?}");
    env.wait_for_metric("grpc_xds_client_resource_updates_valid_total", &[], 1).await;
    env.wait_for_reports("XdsResourceError", 0).await;
    env.flush_writes().await;
    env.assert_members_and_puts("kept", &[GOOD], 1).await;
}

/// Returns the time at which a resource was requested on the second stream.
fn requested_at(journal: &[RecordedRequest], (kind, name): (Kind, &str)) -> Option<u64> {
    let is_it = |request: &&RecordedRequest| {
        request.stream > 1 && request.kind() == Some(kind) && request.names.iter().any(|it| it == name)
    };
    journal.iter().find(is_it).map(|request| request.at_us)
}

/// Waits until all missing resources have timed out. Asserts their state and text, and the number of seconds since
/// their request on the current stream: time on the previous stream does not count.
async fn all_time_out(
    plane: &ControlPlane,
    env: &TestEnvironment,
    state: ClientResourceStatus,
    words: &str,
    seconds: Range<u64>,
) {
    for (kind, name) in EXPECTED {
        let shown = env.wait_for_csds(kind, name, |shown| shown.state != Requested).await;
        let now = plane.now_us().await;
        let requested = requested_at(&plane.journal().await, (kind, name)).expect("it was requested");
        assert_eq!((shown.state, shown.version.as_str()), (state, ""), "{name}: {shown:?}");
        let (version, message) = shown.error.expect("an error");
        assert!(version.is_empty() && message.contains(words), "nothing was rejected: {version:?} {message}");
        // The client's timer starts shortly before the control plane receives the request.
        let took = (now - requested + 250_000) / 1_000_000;
        assert!(seconds.contains(&took), "{name} timed out after {took} s");
    }
}

/// Asserts that pools of missing resources were not written, and that the others are unchanged.
async fn is_untouched(env: &TestEnvironment) {
    env.flush_writes().await;
    for pool in LATE.into_iter().chain(["reported"]) {
        env.assert_members_and_puts(pool, &[BEFORE], 0).await;
    }
    env.assert_members_and_puts("kept", &[GOOD], 1).await;
    let shown = env.wait_for_csds_state("kept", Acked).await;
    assert!(shown.is_good(), "{shown:?}");
    let shown = env.wait_for_csds_state("reported", ReceivedError).await;
    assert!(
        shown.error.is_some_and(|(_, words)| words.contains("never heard of it")),
        "an error ends the timer"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a88_a_missing_resource_is_absent_after_15_s() {
    let (strict, lax, gone) = (control_plane().await, control_plane().await, control_plane().await);
    let silent = control_plane().await;
    let lax_features = ["resource_timer_is_transient_error", FAIL_ON_DATA_ERRORS];
    let away = async {
        let env = env(&gone, &[]).await;
        gone.stop().await;
        env
    };
    let scenes = tokio::join!(env(&strict, &[]), env(&lax, &lax_features), away, unsent(&silent));
    let (hasty, patient, away, unsent) = scenes;

    all_time_out(&strict, &hasty, DoesNotExist, "within 15 s", 15..25).await;
    for (kind, name) in EXPECTED {
        let shown = patient.wait_for_csds(kind, name, |_| true).await;
        assert_eq!(shown.state, Requested, "there are 30 s: {shown:?}");
    }
    for source in ["eds:late", "cluster:late", "cluster:half"] {
        hasty.wait_for_event("XdsResourceError", &[source, "no valid endpoints have been received"]).await;
    }
    hasty.wait_for_cache_count(Kind::Endpoints, "does_not_exist", 2).await;
    hasty.wait_for_cache_count(Kind::Clusters, "does_not_exist", 1).await;
    is_untouched(&hasty).await;

    all_time_out(&lax, &patient, Timeout, "within 30 s", 30..50).await;
    patient.wait_for_cache_count(Kind::Endpoints, "timeout", 2).await;
    patient.wait_for_event("XdsResourceError", &["eds:late", "no valid endpoints have been received"]).await;
    is_untouched(&patient).await;

    is_in_use_unsent(&unsent).await;
    unsent.assert_no_logged_errors();

    // Without a stream no timer runs (A57).
    for (kind, name) in EXPECTED {
        let shown = away.wait_for_csds(kind, name, |_| true).await;
        assert_eq!((shown.state, shown.error), (Requested, None), "{name} is requested");
    }
    is_untouched(&away).await;
    gone.restart().await.expect("the port is still ours");

    // A resource that arrives late is used.
    for (plane, env) in [(&strict, &hasty), (&lax, &patient), (&gone, &away)] {
        plane.set(Kind::Endpoints, "late", endpoints_at("late", &[GOOD])).await;
        plane.set(Kind::Endpoints, "half-endpoints", endpoints_at("half-endpoints", &[GOOD])).await;
        env.wait_for_members("late", &[GOOD]).await;
        env.wait_for_members("half", &[GOOD]).await;
        env.wait_for_no_error("late").await;
        env.wait_for_event("XdsResourceRecovered", &["eds:late"]).await;
        env.assert_no_logged_errors();
    }
}
