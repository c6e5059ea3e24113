//! A source that starts to watch resources that other sources already watch, and the counts of all received resources
//! (A78, X1).

use envoy_types::pb::envoy::admin::v3::ClientResourceStatus::{Acked, Nacked};
use serde_json::json;
use simulator::control_plane::{Bad, Code, Kind, cluster};

use super::stage::{Plan, control_plane, endpoints_at, server};

const BEFORE: &str = "10.9.0.1";
const GOOD: &str = "10.1.0.1";
const BETTER: &str = "10.2.0.1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x1_x3_a_cluster_with_failed_endpoints_gets_cached_ones() {
    let plane = control_plane().await;
    plane.set(Kind::Clusters, "shop", cluster("shop", "")).await;
    plane.set(Kind::Endpoints, "shop", endpoints_at("shop", &[GOOD])).await;
    plane.set(Kind::Endpoints, "blue", endpoints_at("blue", &[BETTER])).await;
    let plan = Plan::new().await.pool("web", "cluster:shop", &[BEFORE]).await;
    let env = plan.pool("direct", "eds:blue", &[BEFORE]).await.start(&[server(&plane, &[])]).await;
    env.wait_for_members("web", &[GOOD]).await;
    env.wait_for_members("direct", &[BETTER]).await;
    plane.set_bad(Kind::Endpoints, "blue", Bad::Content).await;
    env.wait_for_csds_state("blue", Nacked).await;
    env.wait_for_note("direct", "no-address").await;
    env.wait_for_cache_count(Kind::Endpoints, "nacked_but_cached", 1).await;
    env.wait_for_no_error("web").await;
    let before = plane.requests(Kind::Endpoints).await;

    plane.set(Kind::Clusters, "shop", cluster("shop", "blue")).await;
    env.wait_for_members("web", &[BETTER]).await;
    env.wait_for_note("web", "no-address").await;
    let source = env.wait_for_source("cluster:shop", |source| source["ambientErrors"] != json!([])).await;
    assert_eq!((&source["assigned"], &source["error"]), (&json!("usable"), &json!(null)), "{source}");
    assert!(source["ambientErrors"].to_string().contains("no-address"), "{source}");
    let words = ["cluster:shop", "the last good endpoints stay in use in 1 backend pool", "no-address"];
    env.wait_for_event("XdsResourceError", &words).await;
    // Cached resources were not requested again: the request only drops the former endpoints.
    let journal = plane.journal().await;
    let of_endpoints = journal.iter().filter(|request| request.kind() == Some(Kind::Endpoints));
    assert!(of_endpoints.skip(before).all(|request| request.names == ["blue"]), "{journal:?}");

    plane.set(Kind::Endpoints, "blue", endpoints_at("blue", &[BETTER])).await;
    for pool in ["web", "direct"] {
        env.wait_for_no_error(pool).await;
    }
    env.wait_for_event("XdsResourceRecovered", &["cluster:shop"]).await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &[BETTER], 2).await;
    env.assert_members_and_puts("direct", &[BETTER], 1).await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a78_every_resource_counts_as_valid_or_invalid() {
    let plane = control_plane().await;
    plane.set(Kind::Clusters, "shop", cluster("shop", "")).await;
    for name in ["shop", "web"] {
        plane.set(Kind::Endpoints, name, endpoints_at(name, &[GOOD])).await;
    }
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let env = plan.pool("shop", "cluster:shop", &[BEFORE]).await.start(&[server(&plane, &[])]).await;
    let address = plane.address().to_string();
    let is_counted = async |kind: Kind, valid: u32, invalid: u32| {
        let resource_type = kind.type_url().trim_start_matches("type.googleapis.com/");
        let labels = [("grpc_xds_server", &*address), ("grpc_xds_resource_type", resource_type)];
        env.wait_for_metric("grpc_xds_client_resource_updates_valid_total", &labels, valid).await;
        env.wait_for_metric("grpc_xds_client_resource_updates_invalid_total", &labels, invalid).await;
    };
    for pool in ["web", "shop"] {
        env.wait_for_members(pool, &[GOOD]).await;
    }
    is_counted(Kind::Endpoints, 2, 0).await;
    is_counted(Kind::Clusters, 1, 0).await;
    // A repeated resource counts again.
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[GOOD])).await;
    is_counted(Kind::Endpoints, 3, 0).await;
    plane.set_bad(Kind::Endpoints, "web", Bad::Content).await;
    is_counted(Kind::Endpoints, 3, 1).await;
    plane.fail(Kind::Endpoints, "web", Code::Unavailable, "a moment").await;
    is_counted(Kind::Endpoints, 3, 2).await;
    plane.set_bad(Kind::Clusters, "shop", Bad::Content).await;
    is_counted(Kind::Clusters, 1, 1).await;
    // One response, with a good resource and a bad one.
    let bad = endpoints_at("web", &["no-address"]);
    plane
        .set_all(
            Kind::Endpoints,
            [("web".to_owned(), bad), ("shop".to_owned(), endpoints_at("shop", &[GOOD]))],
        )
        .await;
    is_counted(Kind::Endpoints, 4, 3).await;
    plane.set(Kind::Clusters, "shop", cluster("shop", "")).await;
    is_counted(Kind::Clusters, 2, 1).await;
    // A new stream sends everything again.
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[GOOD])).await;
    is_counted(Kind::Endpoints, 5, 3).await;
    plane.cut(simulator::control_plane::Ending::Cleanly).await;
    is_counted(Kind::Endpoints, 7, 3).await;
    is_counted(Kind::Clusters, 3, 1).await;
    env.wait_for_csds_state("web", Acked).await;
    env.flush_writes().await;
    for pool in ["web", "shop"] {
        env.assert_members_and_puts(pool, &[GOOD], 1).await;
    }
    env.assert_no_logged_errors();
}
