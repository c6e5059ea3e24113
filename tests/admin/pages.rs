//! Pages of a large list (H3): stable order, no duplicates, short latency.

use std::time::Duration;

use serde_json::{Value, json};
use simulator::Size;
use tokio::time::Instant;

use super::stage::{Prepared, Stage};

/// Maximum time of ten pages of 100 pools in a debug build on a busy machine; they take about 100 ms.
const PAGES_TIMEOUT: Duration = Duration::from_secs(5);

/// Follows `next` to the end; returns the entries' names and the number of pages.
async fn walk(stage: &Stage, path: &str, name: impl Fn(&Value) -> String) -> (Vec<String>, usize) {
    let (mut names, mut pages, mut after) = (Vec::new(), 0, String::new());
    loop {
        let page = stage.get(&format!("{path}{after}")).await;
        assert!(page["snapshotAgeSeconds"].is_number(), "{page}");
        names.extend(page["items"].as_array().expect("a list").iter().map(&name));
        pages += 1;
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", next.replace('/', "%2F")),
            None => return (names, pages),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_a_thousand_pools_page_in_a_stable_order() {
    let size = Size { services: 1_000, load_balancers: 10, nodes: 20, endpoints: 2, dual_stack: false };
    let stage = Prepared::sized(size).await.start(&json!({})).await;
    stage.wait_until_ready().await;
    stage.shown("/api/v1/status", |status| status["pools"]["byState"]["in_sync"] == 1_000).await;
    let pool = |item: &Value| format!("{}/{}", item["loadBalancer"], item["backendPool"]).replace('"', "");

    let began = Instant::now();
    let (first, pages) = walk(&stage, "/api/v1/queues?limit=100", pool).await;
    let took = began.elapsed();
    assert_eq!((first.len(), pages), (1_000, 10));
    assert!(took < PAGES_TIMEOUT, "{took:?}");
    assert!(first.is_sorted(), "the order is that of the names");
    let (again, pages) = walk(&stage, "/api/v1/queues?limit=7", pool).await;
    assert_eq!((again, pages), (first.clone(), 143), "the order does not depend on the pages");

    let (of_one, _) = walk(&stage, "/api/v1/queues?state=in_sync&lb=LB-3&limit=30", pool).await;
    let expected: Vec<String> = first.iter().filter(|name| name.starts_with("lb-3/")).cloned().collect();
    assert_eq!(of_one, expected);
    assert_eq!(of_one.len(), 100);
    let (none, pages) = walk(&stage, "/api/v1/queues?state=failed&limit=5", pool).await;
    assert_eq!((none.len(), pages), (0, 1));

    let service = |item: &Value| format!("{}/{}", item["namespace"], item["name"]).replace('"', "");
    let (services, _) = walk(&stage, "/api/v1/services?limit=300", service).await;
    assert_eq!(services.len(), 1_000);
    assert!(services.is_sorted());
    let (team, _) = walk(&stage, "/api/v1/services?namespace=team-007&limit=9", service).await;
    assert_eq!(team.len(), 20);

    let (pools, _) = walk(&stage, "/api/v1/queues?contains=TEAM-007&limit=9", pool).await;
    assert_eq!(pools.len(), 20, "a part of the name of a pool or of its Service, in any case");
    let (pools, _) = walk(&stage, "/api/v1/queues?contains=team-007%2Fweb&lb=lb-3&limit=1", pool).await;
    assert!(!pools.is_empty() && pools.iter().all(|name| name.starts_with("lb-3/")), "{pools:?}");
    let (found, _) = walk(&stage, "/api/v1/services?contains=007%2FWEB&limit=9", service).await;
    assert_eq!(found, team);
    let (none, _) = walk(&stage, "/api/v1/services?contains=nosuch", service).await;
    assert!(none.is_empty());
}
