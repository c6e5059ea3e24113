//! Watches that the API server, or a middlebox, accepts and closes without data, and aborted connections.

use serde_json::{Value, json};
use simulator::models::kube::build::node_event;

use super::stage::{Stage, add_service, node_name};
use crate::support::{TEST_TIMEOUT, eventually};

/// The log message for a kind that cannot be watched.
const GIVEN_UP: &str = "the API server accepts watches but sends nothing";
/// The log message for a streaming list that is replaced by a list in pages.
const IN_PAGES: &str = "the API server does not complete a streaming list; listing in pages";

/// Returns whether a line of the log reports that this kind cannot be watched.
fn is_given_up(line: &Value, kind: &str) -> bool {
    line["message"] == GIVEN_UP && line["kind"] == kind
}

/// Posts an eviction notice of the first node, and waits until the node drains.
async fn evicted(stage: &Stage) {
    let (node, now) = (node_name(0), jiff::Timestamp::now());
    let notice =
        node_event("evicted", &node, "PreemptScheduled", "Preempt Scheduled: soon", &format!("{now:.0}"));
    stage.fakes.apply(vec![notice]).await.expect("an event");
    let leaves = |answer: &Value| answer["node"]["state"] == "down";
    stage.shown(&format!("/api/v1/nodes/{node}"), leaves).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_watches_are_followed_by_lists() {
    let stage = Stage::ready(1).await;
    // A proxy answers 200 in place of the API server, and closes the connection.
    stage.fakes.plant(|cluster| cluster.cut_watches(Some(0))).await;
    stage.fakes.plant(|cluster| cluster.restart()).await;
    add_service(&stage.fakes, "later", &[0, 1]).await;
    stage.verdict("later", "in sync: ").await;
    let unfollowed = |status: &Value| {
        let sources = status["sources"].as_array().into_iter().flatten();
        let has_line =
            |source: &Value| source["lastError"].is_string() && source["notFollowedSeconds"].is_number();
        sources.filter(|source| has_line(source)).count() == 4
    };
    stage.shown("/api/v1/status", unfollowed).await;
    for kind in ["services", "endpointslices", "nodes", "events"] {
        let log = stage.logged(kind, |line| is_given_up(line, kind)).await;
        let lines = log.iter().filter(|line| is_given_up(line, kind));
        let lines: Vec<_> = lines.map(|line| (&line["level"], line["remedy"].is_string())).collect();
        assert_eq!(lines, [(&json!("WARN"), true)], "once");
        // The following list is a watch, too.
        let is_in_pages = |line: &Value| line["message"] == IN_PAGES && line["kind"] == kind;
        let log = stage.logged("the list in pages", is_in_pages).await;
        let line = log.iter().find(|line| is_in_pages(line)).expect("it was logged");
        let reason = "the streaming list ended before all was sent";
        assert_eq!((&line["level"], &line["reason"]), (&json!("WARN"), &json!(reason)), "{line}");
    }

    stage.fakes.plant(|cluster| cluster.cut_watches(None)).await;
    let followed = |status: &Value| {
        let mut sources = status["sources"].as_array().into_iter().flatten();
        sources.all(|source| source["lastError"].is_null() && source["notFollowedSeconds"].is_null())
    };
    stage.shown("/api/v1/status", followed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_finds_an_eviction_notice_despite_empty_watches() {
    let stage = Stage::ready(1).await;
    stage.fakes.plant(|cluster| cluster.cut_watches(Some(0))).await;
    stage.fakes.plant(|cluster| cluster.restart()).await;
    stage.logged("events are not followed", |line| is_given_up(line, "events")).await;
    evicted(&stage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_eviction_notice_is_seen_despite_cut_watches() {
    let stage = Stage::ready(1).await;
    let open = async || stage.fakes.cluster.ask(|cluster, _| cluster.model.open_watches()).await;
    // Longer than the 10 s in which a watch without data counts as a failure.
    stage.fakes.plant(|cluster| cluster.cut_watches(Some(11_000_000))).await;
    stage.fakes.plant(|cluster| cluster.restart()).await;
    let first = eventually("all kinds are watched", TEST_TIMEOUT, || async {
        let open = open().await;
        if open.len() >= 4 { Ok(open) } else { Err(format!("{open:?}")) }
    })
    .await;
    eventually("each watch was closed and opened again", TEST_TIMEOUT, || async {
        let open = open().await;
        let is_again = open.len() >= first.len() && open.iter().all(|watch| !first.contains(watch));
        if is_again { Ok(()) } else { Err(format!("{open:?}")) }
    })
    .await;
    evicted(&stage).await;
    let status = stage.get("/api/v1/status").await;
    let sources = status["sources"].as_array().expect("a list");
    assert!(sources.iter().all(|source| source["notFollowedSeconds"].is_null()), "{status}");
    let log = stage.log();
    assert!(!log.iter().any(|line| line["message"] == GIVEN_UP), "{log:?}");
}
