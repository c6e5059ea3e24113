//! The rows of A88 about single resources: NACKs, deletions, and errors that the control plane reports (TP3), each with
//! nothing cached, with something cached, and with `fail_on_data_errors` (X1, X3, X4).

use envoy_types::pb::envoy::admin::v3::ClientResourceStatus::{
    self, Acked, DoesNotExist, Nacked, ReceivedError, Requested,
};
use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType;
use serde_json::json;
use simulator::control_plane::{Bad, Code, ControlPlane, Kind, cluster};

use super::stage::{FAIL_ON_DATA_ERRORS, NODE, Plan, TestEnvironment, control_plane, endpoints_at, server};

/// Initial member of the pools.
const BEFORE: &str = "10.9.0.1";
/// Address that the good resources assign.
const GOOD: &str = "10.1.0.1";

/// Sources that are known before the errors; the first one has no error.
const KNOWN: [&str; 6] = ["sound", "nacked", "unfound", "denied", "unavailable", "internal"];
/// Sources that are never known: their first answer is an error.
const UNKNOWN: [&str; 4] = ["never-nacked", "never-found", "never-allowed", "never-available"];

/// Starts a controller with the pools of all sources, and one that a cluster fills.
async fn env(plane: &ControlPlane, features: &[&str]) -> TestEnvironment {
    let known = KNOWN.map(|name| (name.to_owned(), endpoints_at(name, &[GOOD])));
    plane
        .set_all(
            Kind::Endpoints,
            known.into_iter().chain([("of-cluster".to_owned(), endpoints_at("of-cluster", &[GOOD]))]),
        )
        .await;
    plane.set(Kind::Clusters, "deleted", cluster("deleted", "of-cluster")).await;
    plane.set_bad(Kind::Endpoints, "never-nacked", Bad::Content).await;
    plane.fail(Kind::Endpoints, "never-found", Code::NotFound, "who is that?").await;
    plane.fail(Kind::Endpoints, "never-allowed", Code::PermissionDenied, "not for you").await;
    plane.fail(Kind::Endpoints, "never-available", Code::Unavailable, "come again").await;
    let mut plan = Plan::new().await;
    for name in KNOWN.into_iter().chain(UNKNOWN) {
        plan = plan.pool(name, &format!("eds:{name}"), &[BEFORE]).await;
    }
    let plan = plan.pool("deleted", "cluster:deleted", &[BEFORE]).await;
    let plan = plan.pool("never-there", "cluster:never-there", &[BEFORE]).await;
    let env = plan.start(&[server(plane, features)]).await;
    for pool in KNOWN.into_iter().chain(["deleted"]) {
        env.wait_for_members(pool, &[GOOD]).await;
        env.wait_for_no_error(pool).await;
    }
    env
}

/// Causes every error.
async fn go_wrong(plane: &ControlPlane) {
    plane.set_bad(Kind::Endpoints, "nacked", Bad::Content).await;
    plane.fail(Kind::Endpoints, "unfound", Code::NotFound, "it has moved").await;
    plane.fail(Kind::Endpoints, "denied", Code::PermissionDenied, "no more").await;
    plane.fail(Kind::Endpoints, "unavailable", Code::Unavailable, "a moment").await;
    plane.fail(Kind::Endpoints, "internal", Code::Internal, "a fault").await;
    plane.remove(Kind::Clusters, "deleted").await;
}

/// Asserts that a pool whose source was never known is not written, and has an event.
async fn nothing_was_known(env: &TestEnvironment) {
    let rows = [
        ("never-nacked", Nacked, "no-address"),
        ("never-found", ReceivedError, "who is that?"),
        ("never-allowed", ReceivedError, "not for you"),
        ("never-available", ReceivedError, "come again"),
    ];
    for (name, state, words) in rows {
        let shown = env.wait_for_csds_state(name, state).await;
        assert_eq!(shown.version, "", "{name}: {shown:?}");
        let (rejected, details) = shown.error.expect("an error");
        assert!(!rejected.is_empty() && details.contains(words), "{name}: {rejected:?} {details:?}");
        let source = format!("eds:{name};");
        env.wait_for_event(
            "XdsResourceError",
            &[&source, "no valid endpoints have been received", "1 backend pool", words],
        )
        .await;
        let source = env.wait_for_source(&format!("eds:{name}"), |source| source["error"].is_object()).await;
        assert_eq!(source["assigned"], "unknown", "{source}");
        assert!(source["error"].to_string().contains(words), "{source}");
    }
    // A response without an unknown cluster is no error: the controller still waits for that cluster.
    let shown = env.wait_for_csds(Kind::Clusters, "never-there", |_| true).await;
    assert_eq!((shown.state, shown.version.as_str(), shown.error), (Requested, "", None));
    env.wait_for_cache_count(Kind::Endpoints, "nacked", 1).await;
    for pool in UNKNOWN.into_iter().chain(["never-there"]) {
        env.assert_members_and_puts(pool, &[BEFORE], 0).await;
    }
}

/// An error of a source.
struct Row {
    pool: &'static str,
    kind: Kind,
    state: ClientResourceStatus,
    words: &'static str,
}

impl Row {
    /// Returns the configured source.
    fn source(&self) -> String {
        match self.kind {
            Kind::Clusters => format!("cluster:{}", self.pool),
            Kind::Endpoints => format!("eds:{}", self.pool),
        }
    }
}

/// Returns all errors, and their texts. Pools have the names of their sources.
fn rows() -> [Row; 6] {
    let of = |kind, pool, state, words| Row { pool, kind, state, words };
    [
        of(Kind::Endpoints, "nacked", Nacked, "no-address"),
        of(Kind::Endpoints, "unfound", ReceivedError, "it has moved"),
        of(Kind::Endpoints, "denied", ReceivedError, "no more"),
        of(Kind::Endpoints, "unavailable", ReceivedError, "a moment"),
        of(Kind::Endpoints, "internal", ReceivedError, "a fault"),
        of(Kind::Clusters, "deleted", DoesNotExist, "does not exist"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a88_errors_of_cached_resources_cause_no_write() {
    let plane = control_plane().await;
    let env = env(&plane, &[]).await;
    let before: Vec<String> = {
        let dump = env.dump().await;
        rows().map(|row| dump.shown(row.kind, row.pool).expect("it is watched").version).to_vec()
    };
    go_wrong(&plane).await;
    for (row, version) in rows().into_iter().zip(&before) {
        let Row { pool, words, .. } = row;
        let shown = env.wait_for_csds(row.kind, pool, |shown| shown.state == row.state).await;
        assert_eq!(&shown.version, version, "the last version is still shown: {shown:?}");
        let (rejected, details) = shown.error.expect("an error");
        assert_ne!(&rejected, version, "{pool}: another version has the error");
        assert!(details.contains(words), "{pool}: {details}");
        let note = env.wait_for_note(pool, words).await;
        assert!(!note.contains("node id"), "{note}");
        for code in ["NOT_FOUND", "PERMISSION_DENIED", "INVALID_ARGUMENT"] {
            assert!(!note.contains(code), "X4: codes are not shown: {note}");
        }
        let source = format!("{};", row.source());
        let effect = "the last good endpoints stay in use in 1 backend pool";
        env.wait_for_event("XdsResourceError", &[&source, effect, words]).await;
        let source = env.wait_for_source(&row.source(), |source| source["ambientErrors"] != json!([])).await;
        assert_eq!((&source["assigned"], &source["error"]), (&json!("usable"), &json!(null)), "{source}");
    }
    env.assert_admin_api_matches_csds().await;
    let shown = env.dump().await.node;
    let client = plane
        .journal()
        .await
        .into_iter()
        .find_map(|client| client.node)
        .expect("a client has sent a request");
    let version = match &shown.user_agent_version_type {
        Some(UserAgentVersionType::UserAgentVersion(version)) => version.as_str(),
        Some(UserAgentVersionType::UserAgentBuildVersion(_)) | None => "",
    };
    assert_eq!((client.id.as_str(), client.cluster.as_str()), (NODE, shown.cluster.as_str()));
    assert_eq!(
        (&client.id, &client.user_agent),
        (&shown.id, &shown.user_agent_name),
        "CSDS shows the error details that servers get (A40)"
    );
    assert_eq!((client.user_agent_version.as_str(), &client.features), (version, &shown.client_features));
    assert!(!version.is_empty() && !shown.client_features.is_empty(), "{shown:?}");
    env.wait_for_cache_count(Kind::Endpoints, "nacked_but_cached", 1).await;
    env.wait_for_cache_count(Kind::Endpoints, "received_error_but_cached", 4).await;
    env.wait_for_cache_count(Kind::Clusters, "does_not_exist_but_cached", 1).await;
    env.wait_for_cache_count(Kind::Endpoints, "received_error", 3).await;
    nothing_was_known(&env).await;

    env.flush_writes().await;
    for pool in KNOWN.into_iter().chain(["deleted"]) {
        env.assert_members_and_puts(pool, &[GOOD], 1).await;
    }

    recover(&plane).await;
    for row in rows() {
        let shown = env.wait_for_csds(row.kind, row.pool, |shown| shown.state == Acked).await;
        assert!(shown.is_good(), "{shown:?}");
        env.wait_for_no_error(row.pool).await;
        env.wait_for_event("XdsResourceRecovered", &[&row.source()]).await;
    }
    env.wait_for_cache_count(Kind::Endpoints, "nacked_but_cached", 0).await;
    env.flush_writes().await;
    for pool in KNOWN.into_iter().chain(["deleted"]) {
        env.assert_members_and_puts(pool, &[GOOD], 1).await;
    }
    env.assert_no_logged_errors();
}

/// Ends all errors, with the same resources as before them.
async fn recover(plane: &ControlPlane) {
    for name in KNOWN {
        plane.set(Kind::Endpoints, name, endpoints_at(name, &[GOOD])).await;
    }
    plane.set(Kind::Clusters, "deleted", cluster("deleted", "of-cluster")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a88_only_data_errors_empty_the_pool_with_fail_on_them() {
    let plane = control_plane().await;
    let env = env(&plane, &[FAIL_ON_DATA_ERRORS]).await;
    go_wrong(&plane).await;
    let emptied = ["nacked", "unfound", "denied", "deleted"];
    for row in rows() {
        let Row { pool, words, .. } = row;
        let shown = env.wait_for_csds(row.kind, pool, |shown| shown.state == row.state).await;
        let is_used = !shown.version.is_empty();
        assert_eq!(is_used, !emptied.contains(&pool), "{pool}: {shown:?}");
        let (_, details) = shown.error.expect("an error");
        assert!(details.contains(words), "{pool}: {details}");
        env.wait_for_note(pool, words).await;
        let effect = if is_used {
            "the last good endpoints stay in use in"
        } else {
            "no longer used (fail_on_data_errors), which empties"
        };
        env.wait_for_event("XdsResourceError", &[&format!("{};", row.source()), effect, words]).await;
        let assigned = if is_used { "usable" } else { "dropped" };
        env.wait_for_source(&row.source(), |source| source["assigned"] == assigned).await;
    }
    env.assert_admin_api_matches_csds().await;
    for pool in emptied {
        env.wait_for_members(pool, &[]).await;
    }
    env.wait_for_cache_count(Kind::Endpoints, "nacked", 2).await;
    env.wait_for_cache_count(Kind::Endpoints, "received_error", 5).await;
    env.wait_for_cache_count(Kind::Endpoints, "received_error_but_cached", 2).await;
    env.wait_for_cache_count(Kind::Clusters, "does_not_exist", 1).await;
    env.flush_writes().await;
    for pool in emptied {
        env.assert_members_and_puts(pool, &[], 2).await;
    }
    for pool in ["unavailable", "internal", "sound"] {
        env.assert_members_and_puts(pool, &[GOOD], 1).await;
    }
    for pool in UNKNOWN {
        env.assert_members_and_puts(pool, &[BEFORE], 0).await;
    }

    recover(&plane).await;
    for pool in emptied {
        env.wait_for_members(pool, &[GOOD]).await;
        env.wait_for_no_error(pool).await;
    }
    env.flush_writes().await;
    for pool in ["unavailable", "internal", "sound"] {
        env.assert_members_and_puts(pool, &[GOOD], 1).await;
    }
    env.assert_no_logged_errors();
}
