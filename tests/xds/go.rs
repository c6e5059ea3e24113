//! Pools that a go-control-plane server fills, with each of its caches: the responses that it really sends, its
//! behaviour after a NACK, and the responses that it omits. Also CSDS for a Go client with the call and the types of
//! grpcdebug.
//!
//! The caches differ in ways that matter to a client. A SnapshotCache answers a NACK immediately with the rejected
//! resources, and one for ADS drops a request that does not name all endpoints of its snapshot. A LinearCache sends an
//! empty response while it has no resource, and after that only changes.

mod plane;
mod status;

use envoy_types::pb::envoy::admin::v3::ClientResourceStatus::{Acked, DoesNotExist, Nacked};
use serde_json::{Value, json};
use simulator::control_plane::{Bad, Code, Kind, cluster};

use super::stage::{NODE, NODE_NOTE, Plan, TestEnvironment, control_plane, endpoints_at, server};
use plane::{Cache, GoPlane, Stats, endpoint, endpoint_with, program};
use status::{Status, shows};

/// Initial member of the pools.
const BEFORE: &str = "10.9.0.1";
/// Minimum time for which requests are counted, in milliseconds.
const COUNTED_MS: u64 = 6_000;
/// Maximum number of requests per second: a NACK that repeats the previous one waits 1 s, then twice as long each time.
/// The order of a response's resources does not matter, because the cache does not keep it.
const PER_SECOND: u64 = 1;
/// The server feature that makes the time-out of a resource a transient error (A88).
const WAITS: &str = "resource_timer_is_transient_error";

/// Returns the pools `web` and `other`, each filled from the endpoints of its name.
async fn two_pools(plane: &GoPlane) -> TestEnvironment {
    plane.set_at("web", &["10.1.0.1", "10.1.0.2"]).await;
    plane.set_at("other", &["10.2.0.1"]).await;
    plane.publish().await;
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let env = plan.pool("other", "eds:other", &[BEFORE]).await.start(&[plane.server()]).await;
    env.wait_for_members("web", &["10.1.0.1", "10.1.0.2"]).await;
    env.wait_for_members("other", &["10.2.0.1"]).await;
    env
}

/// Asserts that pools are filled, follow each change of addresses, health and priorities, and keep endpoints that are
/// no longer sent.
async fn fills_and_follows(cache: Cache) {
    let Some(plane) = GoPlane::start(cache).await else { return };
    let env = two_pools(&plane).await;
    let stats = plane
        .wait_for_stats("the first response is acknowledged", |stats| stats.of(Kind::Endpoints, "acks") > 0);
    let stats = stats.await;
    assert_eq!(*stats.last(Kind::Endpoints, "names"), json!(["other", "web"]));
    assert_eq!((stats.open_streams(), stats.of(Kind::Endpoints, "nacks")), (1, 0), "{stats:?}");

    plane.set_at("web", &["10.1.0.2", "10.1.0.3"]).await;
    plane.publish().await;
    env.wait_for_members("web", &["10.1.0.2", "10.1.0.3"]).await;

    let ill = json!({ "health": "UNHEALTHY" });
    let second = json!({ "priority": 1 });
    plane
        .set(
            "web",
            &[endpoint("10.1.0.2"), endpoint_with("10.1.0.3", &ill), endpoint_with("10.1.0.4", &second)],
        )
        .await;
    plane.publish().await;
    env.wait_for_members("web", &["10.1.0.2"]).await;
    plane.set("web", &[endpoint_with("10.1.0.2", &ill), endpoint_with("10.1.0.4", &second)]).await;
    plane.publish().await;
    env.wait_for_members("web", &["10.1.0.4"]).await;

    // Endpoints that responses no longer name stay in use: SotW cannot express their removal.
    let puts = env.puts("other").await;
    plane.remove(Kind::Endpoints, "other").await;
    plane.set_at("web", &["10.1.0.5"]).await;
    plane.publish().await;
    env.wait_for_members("web", &["10.1.0.5"]).await;
    env.flush_writes().await;
    env.assert_members_and_puts("other", &["10.2.0.1"], puts).await;
    env.wait_for_csds_state("other", Acked).await;
    assert_eq!(env.wait_for_note("other", NODE_NOTE).await, NODE_NOTE);
    let stats = plane.stats().await;
    assert_eq!(stats.of(Kind::Endpoints, "nacks"), 0, "{stats:?}");
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_snapshot_cache_for_ads_fills_pools_and_changes_them() {
    fills_and_follows(Cache::SnapshotAds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_snapshot_cache_fills_pools_and_changes_them() {
    fills_and_follows(Cache::Snapshot).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_linear_cache_fills_pools_and_changes_them() {
    fills_and_follows(Cache::Linear).await;
}

/// Counts over a period of at least [`COUNTED_MS`].
struct Counted {
    requests: u64,
    nacks: u64,
    elapsed_ms: u64,
}

async fn counted(plane: &GoPlane, before: &Stats) -> Counted {
    let since = |stats: &Stats| stats.elapsed_ms() - before.elapsed_ms();
    let after = plane.wait_for_stats("time passes", |stats| since(stats) >= COUNTED_MS).await;
    let grown = |count: &str| after.of(Kind::Endpoints, count) - before.of(Kind::Endpoints, count);
    Counted { requests: grown("requests"), nacks: grown("nacks"), elapsed_ms: since(&after) }
}

/// Asserts that a bad resource is rejected with few requests, causes no write and does not delay others. A valid one
/// ends the error.
async fn rejects_bad_resources(cache: Cache) {
    let Some(plane) = GoPlane::start(cache).await else { return };
    let env = two_pools(&plane).await;
    let known = env.wait_for_csds_state("web", Acked).await.version;
    let (puts, before) = (env.puts("web").await, plane.stats().await);

    plane.set_at("web", &["10.1.0.1", "no-address"]).await;
    plane.set_at("other", &["10.2.0.2"]).await;
    plane.publish().await;
    let shown = env.wait_for_csds_state("web", Nacked).await;
    let (_, details) = shown.error.expect("an error");
    assert!(shown.version == known && details.contains("no-address"), "{known}: {details}");
    env.wait_for_members("other", &["10.2.0.2"]).await;
    let Counted { requests, nacks, elapsed_ms } = counted(&plane, &before).await;
    // The cache answers a NACK immediately with the rejected resources: without pauses there would be thousands.
    match cache {
        Cache::SnapshotAds | Cache::Snapshot => assert!(nacks >= 2, "{cache:?} repeats itself: {nacks}"),
        Cache::Linear => assert_eq!(nacks, 1, "{cache:?} sends it once"),
    }
    assert!(requests * 1_000 <= PER_SECOND * elapsed_ms, "{requests} requests in {elapsed_ms} ms");
    env.wait_for_note("web", "no-address").await;

    // Another version with another error.
    plane.set("web", &[endpoint("10.1.0.1"), endpoint_with("10.1.0.2", &json!({ "priority": 2 }))]).await;
    plane.publish().await;
    env.wait_for_csds(Kind::Endpoints, "web", |shown| shown.state == Nacked && names_priority(shown)).await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &["10.1.0.1", "10.1.0.2"], puts).await;
    let stats = plane.stats().await;
    assert!(stats.last(Kind::Endpoints, "lastError").as_str().is_some_and(|error| error.contains("web")));

    plane.set_at("web", &["10.1.0.3"]).await;
    plane.publish().await;
    env.wait_for_members("web", &["10.1.0.3"]).await;
    env.wait_for_csds_state("web", Acked).await;
    assert_eq!(env.wait_for_note("web", NODE_NOTE).await, NODE_NOTE);
    let quiet = counted(&plane, &plane.stats().await).await;
    assert!(quiet.requests <= 1, "{} requests without a change", quiet.requests);
    env.assert_no_logged_errors();
}

fn names_priority(shown: &super::dump::Shown) -> bool {
    shown.error.as_ref().is_some_and(|(_, details)| details.contains("priorit"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_bad_resource_of_an_ads_snapshot_cache_is_refused() {
    rejects_bad_resources(Cache::SnapshotAds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_bad_resource_of_a_snapshot_cache_is_refused() {
    rejects_bad_resources(Cache::Snapshot).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_bad_resource_of_a_linear_cache_costs_no_write() {
    rejects_bad_resources(Cache::Linear).await;
}

/// Asserts that a resource that does not arrive is reported after its time-out, and that its pool is not written
/// until it arrives.
async fn waits_for_missing_resources(cache: Cache) {
    let Some(plane) = GoPlane::start(cache).await else { return };
    plane.set_at("web", &["10.1.0.1"]).await;
    plane.publish().await;
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let env = plan.pool("late", "eds:late", &[BEFORE]).await.start(&[plane.server()]).await;
    env.wait_for_members("web", &["10.1.0.1"]).await;
    let shown = env.wait_for_csds_state("late", DoesNotExist).await;
    assert_eq!(shown.version, "", "no version was received: {shown:?}");
    env.flush_writes().await;
    env.assert_members_and_puts("late", &[BEFORE], 0).await;
    plane.set_at("late", &["10.3.0.1"]).await;
    plane.publish().await;
    env.wait_for_members("late", &["10.3.0.1"]).await;
    env.wait_for_csds_state("late", Acked).await;
    env.wait_for_members("web", &["10.1.0.1"]).await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a_pool_without_endpoints_in_an_ads_snapshot_is_unchanged() {
    waits_for_missing_resources(Cache::SnapshotAds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a_pool_without_endpoints_in_a_snapshot_is_unchanged() {
    waits_for_missing_resources(Cache::Snapshot).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a_pool_without_endpoints_in_a_linear_cache_is_unchanged() {
    waits_for_missing_resources(Cache::Linear).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_an_ads_snapshot_with_unrequested_endpoints_is_silent() {
    let Some(mut plane) = GoPlane::start(Cache::SnapshotAds).await else { return };
    plane.set_at("web", &["10.1.0.1"]).await;
    plane.set_at("of-another-client", &["10.4.0.1"]).await;
    plane.publish().await;
    let env = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await.start(&[plane.server()]).await;
    env.wait_for_csds_state("web", DoesNotExist).await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &[BEFORE], 0).await;
    let stats = plane.stats().await;
    assert_eq!(stats.of(Kind::Endpoints, "responses"), 0, "{stats:?}");

    // The cache permanently drops a request that it does not answer: only another stream gets an answer.
    plane.kill().await;
    let plane = plane.restart().await;
    plane.set_at("web", &["10.1.0.1"]).await;
    plane.publish().await;
    env.wait_for_members("web", &["10.1.0.1"]).await;
    env.wait_for_csds_state("web", Acked).await;
}

/// Asserts that a control plane that restarts with an empty cache causes no write, and that later changes are
/// applied.
async fn survives_a_restart(cache: Cache) {
    let Some(mut plane) = GoPlane::start(cache).await else { return };
    let env = two_pools(&plane).await;
    // The next process uses the same version for another content.
    plane.set_at("other", &["10.2.0.2"]).await;
    plane.publish().await;
    env.wait_for_members("other", &["10.2.0.2"]).await;
    let puts = (env.puts("web").await, env.puts("other").await);

    plane.kill().await;
    let note =
        env.wait_for_pool("web", |pool| pool["note"].as_str().is_some_and(|note| !note.contains(NODE))).await;
    assert!(note["note"].as_str().is_some_and(|note| note.contains("refused")), "{note}");
    let plane = plane.restart().await;
    let asks = |stats: &Stats| stats.of(Kind::Endpoints, "requests") > 0;
    let stats = plane.wait_for_stats("the new process gets a request", asks).await;
    assert_eq!(*stats.last(Kind::Endpoints, "names"), json!(["other", "web"]));
    assert_eq!(*stats.last(Kind::Endpoints, "node"), NODE, "each stream begins with the node");
    env.flush_writes().await;
    env.assert_members_and_puts("web", &["10.1.0.1", "10.1.0.2"], puts.0).await;
    env.assert_members_and_puts("other", &["10.2.0.2"], puts.1).await;
    env.wait_for_csds_state("web", Acked).await;

    // The same resources cause no write.
    plane.set_at("web", &["10.1.0.1", "10.1.0.2"]).await;
    plane.set_at("other", &["10.2.0.2"]).await;
    plane.publish().await;
    plane.wait_for_stats("the new process gets an ACK", |stats| stats.of(Kind::Endpoints, "acks") > 0).await;
    assert_eq!(env.wait_for_note("web", NODE_NOTE).await, NODE_NOTE);
    env.flush_writes().await;
    env.assert_members_and_puts("web", &["10.1.0.1", "10.1.0.2"], puts.0).await;
    env.assert_members_and_puts("other", &["10.2.0.2"], puts.1).await;

    plane.set_at("web", &["10.1.0.6"]).await;
    plane.publish().await;
    env.wait_for_members("web", &["10.1.0.6"]).await;
    env.assert_members_and_puts("other", &["10.2.0.2"], puts.1).await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_the_restart_of_an_ads_snapshot_cache_costs_no_write() {
    survives_a_restart(Cache::SnapshotAds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_the_restart_of_a_snapshot_cache_costs_no_write() {
    survives_a_restart(Cache::Snapshot).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_the_restart_of_a_linear_cache_costs_no_write() {
    survives_a_restart(Cache::Linear).await;
}

/// Asserts that a deleted cluster is reported as missing. Its last endpoints stay in use until it returns.
async fn keeps_a_deleted_cluster(cache: Cache) {
    let Some(plane) = GoPlane::start(cache).await else { return };
    for (name, address) in [("web", "10.1.0.1"), ("stays", "10.2.0.1")] {
        plane.set_cluster(name, &format!("{name}-endpoints")).await;
        plane.set_at(&format!("{name}-endpoints"), &[address]).await;
    }
    plane.publish().await;
    let plan = Plan::new().await.pool("web", "cluster:web", &[BEFORE]).await;
    let env = plan.pool("stays", "cluster:stays", &[BEFORE]).await.start(&[plane.server()]).await;
    env.wait_for_members("web", &["10.1.0.1"]).await;
    env.wait_for_members("stays", &["10.2.0.1"]).await;
    let known = env.wait_for_csds(Kind::Clusters, "web", |shown| shown.is_good()).await.version;
    let puts = env.puts("web").await;

    plane.remove(Kind::Clusters, "web").await;
    plane.remove(Kind::Endpoints, "web-endpoints").await;
    plane.set_at("stays-endpoints", &["10.2.0.2"]).await;
    plane.publish().await;
    let shown = env.wait_for_csds(Kind::Clusters, "web", |shown| shown.state == DoesNotExist).await;
    assert_eq!(shown.version, known, "the last version is still shown: {shown:?}");
    env.wait_for_note("web", "does not exist").await;
    env.wait_for_members("stays", &["10.2.0.2"]).await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &["10.1.0.1"], puts).await;

    plane.set_cluster("web", "web-endpoints").await;
    plane.set_at("web-endpoints", &["10.1.0.2"]).await;
    plane.publish().await;
    env.wait_for_members("web", &["10.1.0.2"]).await;
    env.wait_for_csds(Kind::Clusters, "web", |shown| shown.is_good()).await;
    assert_eq!(env.wait_for_note("web", NODE_NOTE).await, NODE_NOTE);
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a88_a_cluster_missing_in_ads_snapshots_stays() {
    keeps_a_deleted_cluster(Cache::SnapshotAds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a88_a_cluster_missing_in_snapshots_stays() {
    keeps_a_deleted_cluster(Cache::Snapshot).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x3_a88_a_cluster_missing_in_linear_caches_stays() {
    keeps_a_deleted_cluster(Cache::Linear).await;
}

/// Each CSDS state of a watched resource, as the scripted control plane causes it.
const STATES: [(Kind, &str, &str); 5] = [
    (Kind::Endpoints, "acked", "ACKED"),
    (Kind::Endpoints, "nacked", "NACKED"),
    (Kind::Endpoints, "denied", "RECEIVED_ERROR"),
    (Kind::Endpoints, "never", "TIMEOUT"),
    (Kind::Clusters, "gone", "DOES_NOT_EXIST"),
];

/// Asserts the fields of each state.
fn assert_status(status: &Status) {
    let of = |(kind, name, _): (Kind, &str, &str)| status.resource(kind, name).clone();
    let [acked, nacked, denied, never, gone] = STATES.map(of);
    for (used, kind) in [(&acked, Kind::Endpoints), (&gone, Kind::Clusters)] {
        assert!(used["versionInfo"].is_string() && used["lastUpdated"].is_string(), "{used}");
        assert_eq!(used["xdsConfig"]["@type"], kind.type_url());
    }
    assert_eq!(acked["xdsConfig"]["clusterName"], "acked");
    assert_eq!(gone["xdsConfig"]["edsClusterConfig"]["serviceName"], "of-gone");
    for unused in [&nacked, &denied, &never] {
        assert_eq!((&unused["xdsConfig"], &unused["versionInfo"]), (&Value::Null, &Value::Null));
    }
    assert_eq!(acked["errorState"], Value::Null);
    for (wrong, words) in [(&nacked, "no-address"), (&denied, "not for you"), (&gone, "does not exist")] {
        let error = &wrong["errorState"];
        assert!(error["details"].as_str().is_some_and(|details| details.contains(words)), "{wrong}");
        assert!(error["versionInfo"].is_string() && error["lastUpdateAttempt"].is_string(), "{wrong}");
    }
    let error = never["errorState"].as_object().expect("an error");
    assert_eq!(error.keys().collect::<Vec<_>>(), ["details"], "no response had it: {never}");
    let node = status.node();
    assert_eq!(
        (&node["id"], &node["userAgentName"]),
        (&json!(NODE), &json!("azure-backend-pool-controller"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h5_a_go_client_like_grpcdebug_sees_every_state() {
    let Some(csds) = program("csds") else { return };
    let plane = control_plane().await;
    plane.set(Kind::Endpoints, "acked", endpoints_at("acked", &["10.1.0.1"])).await;
    plane.set_bad(Kind::Endpoints, "nacked", Bad::Content).await;
    plane.fail(Kind::Endpoints, "denied", Code::PermissionDenied, "not for you").await;
    plane.set(Kind::Clusters, "gone", cluster("gone", "of-gone")).await;
    plane.set(Kind::Endpoints, "of-gone", endpoints_at("of-gone", &["10.1.0.2"])).await;
    plane.stop().await;
    let mut plan = Plan::new().await.pool("gone", "cluster:gone", &[BEFORE]).await;
    for name in ["acked", "nacked", "denied", "never"] {
        plan = plan.pool(name, &format!("eds:{name}"), &[BEFORE]).await;
    }
    let env = plan.start(&[server(&plane, &[WAITS])]).await;
    // Without an answer, all resources are only requested.
    let address = &env.stage.csds;
    shows(&csds, address, &STATES.map(|(kind, name, _)| (kind, name, "REQUESTED"))).await;
    plane.restart().await.expect("the port is free again");
    env.wait_for_members("acked", &["10.1.0.1"]).await;
    env.wait_for_members("gone", &["10.1.0.2"]).await;
    plane.remove(Kind::Clusters, "gone").await;
    assert_status(&shows(&csds, address, &STATES).await);
    let streamed = Status::of(&csds, address, &["-stream"]).await;
    assert!(streamed.has(&STATES), "{streamed:?}");
    assert_status(&streamed);
}
