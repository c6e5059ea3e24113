//! `/livez`, `/readyz`, `/healthz` (H1), and the log's few lines.

use std::collections::BTreeSet;

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use simulator::models::arm::Latency;
use simulator::models::kube::build::Endpoint;

use super::stage::{Prepared, Stage, add_service, node_name, pool_of, set_endpoints};
use crate::support::{TEST_TIMEOUT, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h1_readyz_names_the_missing_lists_and_discovery() {
    let prepared = Prepared::new(2).await;
    prepared.fakes.plant(|cluster| cluster.down(true)).await;
    prepared.fakes.arm_down(true).await;
    let stage = prepared.start(&json!({})).await;
    let answer = stage.health("/readyz").await;
    assert_eq!(answer.status, 503);
    assert!(
        answer.text.contains("[-]lists waiting for the first complete lists of Services"),
        "{}",
        answer.text
    );
    assert!(
        answer.text.contains("[-]discovery waiting for a managed load balancer to be seen"),
        "{}",
        answer.text
    );
    assert!(answer.text.contains("[+]shutdown ok"), "{}", answer.text);
    assert_eq!(
        stage.health("/livez").await.text,
        "ok",
        "no connection to any server is no reason for a restart"
    );
    let status = stage.get("/api/v1/status").await;
    assert_eq!(status["synced"], json!({ "lists": false, "discovery": false }));

    stage.logged("a list fails", |line| line["message"] == "list or watch failed").await;
    stage.fakes.plant(|cluster| cluster.down(false)).await;
    eventually("only ARM is missing", TEST_TIMEOUT, || async {
        let answer = stage.health("/readyz").await;
        let waits = answer.status == 503 && answer.text.contains("[+]lists ok\n[-]discovery waiting");
        if waits { Ok(()) } else { Err(answer.text) }
    })
    .await;
    stage.fakes.arm_down(false).await;
    stage.wait_until_ready().await;
    assert_eq!(stage.health("/readyz").await.text, "ok");
    let verbose = stage.health("/readyz?verbose").await.text;
    assert_eq!(
        verbose,
        "[+]lists ok\n[+]discovery ok\n[+]pauses ok\n[+]watches ok\n[+]shutdown ok\ncheck passed\n"
    );

    // Another thread writes the log. The set of load balancers that have been read again by then is arbitrary.
    let is_synced = |line: &Value| line["message"].as_str().is_some_and(|text| text.starts_with("synced"));
    let log = eventually("it is logged", TEST_TIMEOUT, || async {
        let log = stage.log();
        let is_found = log.iter().any(is_synced);
        if is_found { Ok(log) } else { Err(format!("{log:?}")) }
    })
    .await;
    let lines = |message: &str| log.iter().filter(|line| line["message"] == message).collect::<Vec<_>>();
    let synced: Vec<&Value> = log.iter().filter(|line| is_synced(line)).collect();
    assert_eq!(synced.iter().map(|line| &line["services"]).collect::<Vec<_>>(), [&json!(2)], "{log:?}");
    let broken = lines("list or watch failed");
    assert!(!broken.is_empty() && broken.iter().all(|line| line["remedy"].is_string()), "{log:?}");
    let unread = lines("failed to read load balancer");
    assert!(!unread.is_empty() && unread.iter().all(|line| line["level"] == "WARN"), "{log:?}");
    assert!(log.iter().all(|line| line["level"] != "ERROR"), "an outage alone is no ERROR: {log:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h1_livez_and_healthz_check_every_machine() {
    let stage = Stage::ready(1).await;
    for path in ["/livez", "/healthz"] {
        let answer = stage.health(&format!("{path}?verbose")).await;
        assert_eq!(answer.status, 200);
        let checked: BTreeSet<&str> =
            answer.text.lines().filter_map(|line| line.strip_prefix("[+]")?.strip_suffix(" ok")).collect();
        let machines = [
            "services_watcher",
            "endpointslices_watcher",
            "nodes_watcher",
            "preemptions_watcher",
            "informer",
            "discovery",
            "directory",
            "pools",
            "writer",
            "admin_state",
            "leader",
            "pauses",
            "events",
            "snapshot",
            "xds_source",
        ];
        assert_eq!(checked, machines.into(), "{path}");
        assert!(answer.text.ends_with("check passed\n"));
        let refused = stage.health_with(Method::POST, path).await;
        assert_eq!((refused.status, refused.allow.as_str()), (405, "GET, HEAD"));
        let head = stage.health_with(Method::HEAD, path).await;
        assert_eq!((head.status, head.text.as_str()), (200, ""));
    }
    let nowhere = stage.health("/api/v1/status").await;
    assert_eq!((nowhere.status, nowhere.kind.as_str()), (404, "application/problem+json"));
    assert!(
        nowhere.json()["detail"].as_str().is_some_and(|detail| detail.contains("/readyz")),
        "{nowhere:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h1_readyz_refuses_while_a_shutdown_waits_for_a_write() {
    let prepared = Prepared::new(1).await;
    add_service(&prepared.fakes, "web", &[0]).await;
    let mut stage = prepared.start(&json!({})).await;
    stage.wait_until_ready().await;
    stage.fakes.tune_arm(|arm| arm.put_latency = Latency::Fixed { us: 4_000_000 }).await;
    set_endpoints(&stage.fakes, "web", &[Endpoint::ready(&node_name(0)), Endpoint::ready(&node_name(1))])
        .await;
    let is_putting = |status: &serde_json::Value| {
        let mut lanes = status["lanes"].as_array().into_iter().flatten();
        lanes.any(|lane| lane["writing"]["phase"] == "putting")
    };
    stage.shown("/api/v1/status", is_putting).await;
    stage.signal(Signal::TERM);
    eventually("/readyz refuses", TEST_TIMEOUT, || async {
        let answer = stage.try_health("/readyz").await?;
        let refuses = answer.status == 503 && answer.text.contains("[-]shutdown shutting down");
        if refuses { Ok(()) } else { Err(answer.text) }
    })
    .await;
    assert_eq!(stage.ended().await.code(), Some(0), "{:?}", stage.log());
    let members = stage.fakes.members(simulator::CLUSTER_NAME, &pool_of("web")).await.expect("the pool");
    assert_eq!(members.len(), 2, "the process waits for the sent request");
    let log = stage.log();
    let written =
        log.iter().find(|line| line["message"] == "wrote backend pool").expect("the write is logged");
    assert_eq!(written["pool"], "kubernetes/shop-web");
    assert_eq!((&written["added"], &written["removed"]), (&json!(1), &json!(0)));
    assert!(written["took_ms"].as_u64().is_some_and(|took| took >= 4_000), "{written}");
    assert!(written["correlation_id"].is_string(), "{written}");
    let ends: Vec<_> =
        log.iter().rev().take(2).map(|line| line["message"].as_str().unwrap_or_default()).collect();
    assert_eq!(ends[0], "stopped", "{log:?}");
}
