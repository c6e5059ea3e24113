//! The rows of A88 about single clusters: NACKs, deletions, and errors that the control plane reports (TP3), each with
//! nothing cached, with something cached, and with `fail_on_data_errors`. The endpoints of these clusters are always
//! valid (X1, X3, X4).
//!
//! The server also has the feature `ignore_resource_deletion`, which must not change the effect of a deletion.

use envoy_types::pb::envoy::admin::v3::ClientResourceStatus::{
    self, Acked, DoesNotExist, Nacked, ReceivedError, Requested,
};
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use serde_json::json;
use simulator::control_plane::{Bad, Code, ControlPlane, Kind, cluster};

use super::dump::Shown;
use super::stage::{FAIL_ON_DATA_ERRORS, Plan, TestEnvironment, control_plane, endpoints_at, server};

/// A feature of A53 that A88 has made ineffective.
const IGNORES: &str = "ignore_resource_deletion";

/// Initial member of the pools.
const BEFORE: &str = "10.9.0.1";
/// Address that all clusters assign first.
const GOOD: &str = "10.1.0.1";
const BETTER: &str = "10.1.0.2";

/// An error of a known cluster. Pools have the names of their clusters.
struct Row {
    pool: &'static str,
    state: ClientResourceStatus,
    /// Text in CSDS.
    shown: &'static str,
    /// Text of the event.
    event_text: &'static str,
    /// True if it is a data error, and not a transient one.
    is_of_data: bool,
}

/// Returns all errors.
fn rows() -> [Row; 6] {
    let of = |pool, state, shown, is_of_data| Row { pool, state, shown, event_text: shown, is_of_data };
    [
        of("nacked", Nacked, "STATIC is not supported", true),
        of("deleted", DoesNotExist, "names all that exist, and not this one", true),
        of("unfound", ReceivedError, "it has moved", true),
        of("denied", ReceivedError, "no more", true),
        // An error without a message has only its code, which only CSDS shows.
        Row { event_text: "it does not exist", ..of("mute", ReceivedError, "NOT_FOUND", true) },
        of("unavailable", ReceivedError, "a moment", false),
    ]
}

/// Returns the known clusters; the first one has no error.
fn known() -> impl Iterator<Item = &'static str> {
    ["sound"].into_iter().chain(rows().into_iter().map(|row| row.pool))
}

/// Returns the name of a cluster's endpoints.
fn endpoints_of(name: &str) -> String {
    format!("of-{name}")
}

/// Sets all clusters without errors.
async fn set_good(plane: &ControlPlane) {
    let good = known().map(|name| (name.to_owned(), cluster(name, &endpoints_of(name))));
    plane.set_all(Kind::Clusters, good).await;
}

async fn env(plane: &ControlPlane, features: &[&str]) -> TestEnvironment {
    let endpoints = known().map(|name| (endpoints_of(name), endpoints_at(&endpoints_of(name), &[GOOD])));
    plane.set_all(Kind::Endpoints, endpoints).await;
    set_good(plane).await;
    let mut plan = Plan::new().await;
    for name in known() {
        plan = plan.pool(name, &format!("cluster:{name}"), &[BEFORE]).await;
    }
    let env = plan.start(&[server(plane, features)]).await;
    for pool in known() {
        env.wait_for_members(pool, &[GOOD]).await;
        env.wait_for_no_error(pool).await;
    }
    env
}

/// Causes every error, each in its own response.
async fn go_wrong(plane: &ControlPlane) {
    plane.set_bad(Kind::Clusters, "nacked", Bad::Content).await;
    plane.fail(Kind::Clusters, "unfound", Code::NotFound, "it has moved").await;
    plane.fail(Kind::Clusters, "denied", Code::PermissionDenied, "no more").await;
    plane.fail(Kind::Clusters, "mute", Code::NotFound, "").await;
    plane.fail(Kind::Clusters, "unavailable", Code::Unavailable, "a moment").await;
    plane.remove(Kind::Clusters, "deleted").await;
}

/// Waits until CSDS shows all errors, and returns the states.
async fn all_are_wrong(env: &TestEnvironment) -> Vec<Shown> {
    let mut all = Vec::new();
    for Row { pool, state, shown: words, .. } in rows() {
        let shown = env.wait_for_csds(Kind::Clusters, pool, |shown| shown.state == state).await;
        let (rejected, details) = shown.error.clone().expect("an error");
        assert!(!rejected.is_empty() && details.contains(words), "{pool}: {rejected:?} {details:?}");
        all.push(shown);
    }
    all
}

/// Changes other clusters on the same stream. The errors stay, also those that no later response repeats.
async fn errors_outlive_changes_of_other_clusters(plane: &ControlPlane, env: &TestEnvironment, puts: usize) {
    let before = all_are_wrong(env).await;
    plane.set(Kind::Endpoints, "better", endpoints_at("better", &[BETTER])).await;
    plane.set(Kind::Clusters, "sound", cluster("sound", "better")).await;
    env.wait_for_members("sound", &[BETTER]).await;
    env.assert_members_and_puts("sound", &[BETTER], puts).await;
    let after = all_are_wrong(env).await;
    for ((row, before), after) in rows().into_iter().zip(before).zip(after) {
        // Each response repeats rejected resources and lacks deleted ones, so their errors have its version.
        if row.state == ReceivedError {
            assert_eq!(after, before, "{}", row.pool);
        }
    }
    env.wait_for_reports("XdsResourceError", rows().len() as u64).await;
    assert_eq!(plane.streams().await.opened_us.len(), 1, "there was one stream");
}

/// Asserts that an unknown cluster causes no write and an event. Its removal is no deletion.
async fn nothing_was_known(features: &[&str]) {
    let rows = [
        ("never-nacked", Nacked, "STATIC is not supported"),
        ("never-found", ReceivedError, "who is that?"),
        ("never-allowed", ReceivedError, "not for you"),
        ("never-available", ReceivedError, "come again"),
    ];
    let plane = control_plane().await;
    plane.set(Kind::Clusters, "sound", cluster("sound", "")).await;
    plane.set(Kind::Endpoints, "sound", endpoints_at("sound", &[GOOD])).await;
    plane.set_bad(Kind::Clusters, "never-nacked", Bad::Content).await;
    plane.fail(Kind::Clusters, "never-found", Code::NotFound, "who is that?").await;
    plane.fail(Kind::Clusters, "never-allowed", Code::PermissionDenied, "not for you").await;
    plane.fail(Kind::Clusters, "never-available", Code::Unavailable, "come again").await;
    let names = rows.map(|(name, ..)| name).into_iter().chain(["never-there"]);
    let mut plan = Plan::new().await.pool("sound", "cluster:sound", &[BEFORE]).await;
    for name in names.clone() {
        plan = plan.pool(name, &format!("cluster:{name}"), &[BEFORE]).await;
    }
    let env = plan.start(&[server(&plane, features)]).await;
    env.wait_for_members("sound", &[GOOD]).await;
    let are_as_they_were = async || {
        for (name, state, words) in rows {
            let shown = env.wait_for_csds(Kind::Clusters, name, |shown| shown.state == state).await;
            assert_eq!(shown.version, "", "{name}: {shown:?}");
            let (rejected, details) = shown.error.expect("an error");
            assert!(!rejected.is_empty() && details.contains(words), "{name}: {rejected:?} {details:?}");
            let source = format!("cluster:{name}");
            env.wait_for_event(
                "XdsResourceError",
                &[&source, "no valid endpoints have been received", words],
            )
            .await;
            let source = env.wait_for_source(&source, |source| source["error"].is_object()).await;
            assert_eq!(source["assigned"], "unknown", "{source}");
        }
        // The absence of a cluster that was never sent is no error before its timer expires.
        let shown = env.wait_for_csds(Kind::Clusters, "never-there", |_| true).await;
        let by_timer =
            |(rejected, words): &(String, String)| rejected.is_empty() && words.contains("within 15 s");
        let is_waited_for = shown.state == Requested && shown.error.is_none();
        let was_waited_for = shown.state == DoesNotExist && shown.error.as_ref().is_some_and(by_timer);
        assert!(shown.version.is_empty() && (is_waited_for || was_waited_for), "{shown:?}");
        env.flush_writes().await;
        for name in names.clone() {
            env.assert_members_and_puts(name, &[BEFORE], 0).await;
        }
    };
    are_as_they_were().await;
    plane.remove(Kind::Clusters, "never-nacked").await;
    plane.remove(Kind::Clusters, "never-found").await;
    plane.set(Kind::Endpoints, "better", endpoints_at("better", &[BETTER])).await;
    plane.set(Kind::Clusters, "sound", cluster("sound", "better")).await;
    env.wait_for_members("sound", &[BETTER]).await;
    are_as_they_were().await;
    env.assert_no_codes_shown(names.clone()).await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a88_errors_of_unknown_clusters_change_no_pool() {
    nothing_was_known(&[IGNORES]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a88_an_unknown_cluster_empties_nothing_with_data_errors() {
    nothing_was_known(&[FAIL_ON_DATA_ERRORS, IGNORES]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a88_errors_of_used_clusters_are_ambient_and_cost_no_write() {
    let plane = control_plane().await;
    let env = env(&plane, &[IGNORES]).await;
    let before = env.dump().await;
    go_wrong(&plane).await;
    for (Row { pool, event_text, .. }, shown) in rows().into_iter().zip(all_are_wrong(&env).await) {
        assert!(!shown.version.is_empty(), "the last version is still shown: {shown:?}");
        let (good, now) = (before.find(Kind::Clusters, pool), env.dump().await);
        let content = |found: Option<&GenericXdsConfig>| found.and_then(|found| found.xds_config.clone());
        assert_eq!(content(now.find(Kind::Clusters, pool)), content(good), "{pool}");
        let source = format!("cluster:{pool}");
        let effect = "the last good endpoints stay in use in 1 backend pool";
        env.wait_for_event("XdsResourceError", &[&format!("{source};"), effect, event_text]).await;
        env.wait_for_note(pool, event_text).await;
        let source = env.wait_for_source(&source, |source| source["ambientErrors"] != json!([])).await;
        assert_eq!((&source["assigned"], &source["error"]), (&json!("usable"), &json!(null)), "{source}");
        assert!(env.dump().await.endpoints(&endpoints_of(pool)).is_some(), "its endpoints are still watched");
    }
    env.assert_admin_api_matches_csds().await;
    env.wait_for_cache_count(Kind::Clusters, "nacked_but_cached", 1).await;
    env.wait_for_cache_count(Kind::Clusters, "received_error_but_cached", 4).await;
    env.wait_for_cache_count(Kind::Clusters, "does_not_exist_but_cached", 1).await;
    env.wait_for_cache_count(Kind::Clusters, "acked", 1).await;
    errors_outlive_changes_of_other_clusters(&plane, &env, 2).await;
    env.flush_writes().await;
    for row in rows() {
        env.assert_members_and_puts(row.pool, &[GOOD], 1).await;
    }
    env.assert_no_codes_shown(known()).await;

    set_good(&plane).await;
    for row in rows() {
        let shown = env.wait_for_csds(Kind::Clusters, row.pool, |shown| shown.state == Acked).await;
        assert!(shown.is_good(), "{shown:?}");
        env.wait_for_no_error(row.pool).await;
    }
    // One response contained all of them.
    env.wait_for_event("XdsResourceRecovered", &["cluster:deleted", "and 3 others"]).await;
    env.wait_for_reports("XdsResourceRecovered", 1).await;
    env.flush_writes().await;
    for row in rows() {
        env.assert_members_and_puts(row.pool, &[GOOD], 1).await;
    }
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a88_only_data_errors_of_clusters_empty_with_fail_on_them() {
    let plane = control_plane().await;
    let env = env(&plane, &[FAIL_ON_DATA_ERRORS, IGNORES]).await;
    go_wrong(&plane).await;
    for (Row { pool, event_text, is_of_data, .. }, shown) in rows().into_iter().zip(all_are_wrong(&env).await)
    {
        assert_eq!(shown.version.is_empty(), is_of_data, "{pool}: {shown:?}");
        let (effect, assigned) = if is_of_data {
            ("no longer used (fail_on_data_errors), which empties", "dropped")
        } else {
            ("the last good endpoints stay in use in", "usable")
        };
        env.wait_for_event("XdsResourceError", &[&format!("cluster:{pool};"), effect, event_text]).await;
        env.wait_for_source(&format!("cluster:{pool}"), |source| source["assigned"] == assigned).await;
        env.wait_for_note(pool, event_text).await;
        env.wait_for_members(pool, if is_of_data { &[] } else { &[GOOD] }).await;
    }
    env.assert_admin_api_matches_csds().await;
    env.wait_for_cache_count(Kind::Clusters, "received_error_but_cached", 1).await;
    env.wait_for_cache_count(Kind::Clusters, "received_error", 3).await;
    env.wait_for_cache_count(Kind::Clusters, "nacked", 1).await;
    env.wait_for_cache_count(Kind::Clusters, "does_not_exist", 1).await;
    errors_outlive_changes_of_other_clusters(&plane, &env, 2).await;
    env.flush_writes().await;
    for Row { pool, is_of_data, .. } in rows() {
        let (members, puts): (&[&str], usize) = if is_of_data { (&[], 2) } else { (&[GOOD], 1) };
        env.assert_members_and_puts(pool, members, puts).await;
    }
    // The events of these writes have the reason in brackets at the end.
    let emptied = env
        .wait_for_event(
            "LoadBalancerBackendPoolUpdated",
            &["has 0 members", "[envoy.config.cluster.v3.Cluster "],
        )
        .await;
    assert!(rows().iter().any(|row| emptied.contains(row.event_text)), "{emptied}");
    env.assert_no_codes_shown(known()).await;

    set_good(&plane).await;
    for row in rows() {
        env.wait_for_members(row.pool, &[GOOD]).await;
        env.wait_for_no_error(row.pool).await;
    }
    env.assert_no_logged_errors();
}
