//! Evictions on a real API server: after notices like those of node problem detectors, in either API group of events,
//! the controller taints the nodes and sets them Down, and keeps everything that other clients have set
//! (docs/design/nodes.md, N1). Other tests show the behaviour of the API server that this depends on.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};
use simulator::models::ccm::Answer;

use super::TestEnvironment;
use super::leaving::{EVENTS, EVICTED, NOT_EVICTED, PREEMPT_SCHEDULED, notice, problem};
use crate::support::controller::Flags;
use crate::support::kubernetes::{self, Cluster};
use crate::support::{TEST_TIMEOUT, eventually};

/// Path of events about nodes in the newer API group.
const NEWER_EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
/// A taint that another client sets.
const LATE: &str = "example.com/late=yes:NoSchedule";
/// A reason without a meaning for any controller.
const REHEARSED: &str = "Rehearsed";

/// Returns the event of [`problem`] in the newer API group.
fn newer_problem(node: &str, reason: &str, note: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": { "name": format!("{node}.{}.newer", reason.to_lowercase()), "namespace": "default" },
        "regarding": { "kind": "Node", "name": node, "uid": node },
        "reason": reason, "type": "Warning", "note": note, "action": reason,
        "reportingController": "example.com/node-problem-detector", "reportingInstance": node,
        "eventTime": format!("{:.6}", Timestamp::now()),
    })
}

/// Patches a node, and returns the status of the answer.
async fn patch(env: &TestEnvironment<&Cluster>, path: &str, kind: &str, patch: &Value) -> u16 {
    let kind = [("Content-Type".to_owned(), format!("application/{kind}+json"))];
    let answer = env.api.raw(Method::PATCH, path, &kind, patch.to_string().into_bytes()).await;
    match answer {
        Some(Answer::Arrived { status, .. }) => status,
        Some(Answer::Lost) | None => panic!("no answer to the patch of {path}"),
    }
}

/// Posts reports about a node that are no eviction notices: another event of its machine, as a condition and as an
/// event, and a failed metadata query.
async fn report_other_problems(env: &TestEnvironment<&Cluster>, number: u8) {
    let (node, now) = (env.node(number), format!("{:.0}", Timestamp::now()));
    let freezes = notice().replace("Preempt", "Freeze");
    let condition = json!({
        "type": "VMEventScheduled", "status": "True", "reason": "VMEventScheduled", "message": freezes,
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    });
    let status = format!("{}/status", env.node_path(number));
    let body = json!({ "status": { "conditions": [condition] } });
    assert_eq!(patch(env, &status, "strategic-merge-patch", &body).await, 200);
    env.api.create(EVENTS, &problem(&node, "FreezeScheduled", &freezes)).await;
    let failed = "IMDS query failed, exit code: 28 / Connection timed out after 24 seconds.";
    env.api.create(EVENTS, &problem(&node, PREEMPT_SCHEDULED, failed)).await;
}

/// Writes an irrelevant field of a node, as its kubelet does periodically.
async fn touch(env: &TestEnvironment<&Cluster>, number: u8) {
    let annotations = json!({ "example.com/written": Timestamp::now().to_string() });
    env.api.merge(&env.node_path(number), &json!({ "metadata": { "annotations": annotations } })).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n1_a_notice_taints_its_node_until_the_operator_clears_it() {
    let Some(cluster) = kubernetes::own().await else { return };
    let env = TestEnvironment::begin(&cluster, "spot", 3).await;
    let nodes = [1, 2, 3].map(|number| env.node(number));
    let addresses = ["10.208.0.1", "10.208.0.2", "10.208.0.3"];
    let endpoints: Vec<(&str, Option<&str>)> =
        addresses.into_iter().zip(nodes.iter().map(|node| Some(node.as_str()))).collect();
    env.set_endpoints_by_hand("web-1", &endpoints).await;
    for number in 1..=3 {
        env.is_bare(number).await;
    }
    let controller = env.start_controller(Flags::default()).await;
    env.converged("the start").await;

    // The controller receives these before the following notice.
    report_other_problems(&env, 3).await;
    touch(&env, 1).await;
    let first = env.create_notice(1).await;
    env.has_taints(1, [EVICTED]).await;
    env.are_down(["10.1.0.1"]).await;
    let uid = env.uid(1).await;
    env.are_recorded([uid.as_str()]).await;
    let records = env.records().await.expect("the controller's ConfigMap exists");
    assert!(records.values().all(|record| record.ends_with("\ntaint: ours\n")), "{records:?}");
    env.node_event(1, "LoadBalancerAdminStateDown").await;
    // The same event is repeated while the machine exists.
    let path = format!("{EVENTS}/{}", first["metadata"]["name"].as_str().expect("an event has a name"));
    let again = format!("{:.0}", Timestamp::now());
    env.api.merge(&path, &json!({ "count": 2, "lastTimestamp": again })).await;

    // The suspended controller receives neither change, so its next patch may be outdated.
    controller.suspend();
    env.api.create(NEWER_EVENTS, &newer_problem(&nodes[1], PREEMPT_SCHEDULED, &notice())).await;
    env.taint(2, LATE).await;
    controller.go_on();
    env.has_taints(2, [LATE, EVICTED]).await;
    env.are_down(["10.1.0.1", "10.1.0.2"]).await;

    env.taint(2, NOT_EVICTED).await;
    env.are_down(["10.1.0.1"]).await;
    env.node_event(2, "LoadBalancerAdminStateNone").await;
    env.are_recorded([uid.as_str()]).await;
    assert_eq!(env.taints(2).await, Ok(BTreeSet::from([LATE.to_owned()])));
    assert_eq!(env.taints(3).await, Ok(BTreeSet::new()));
    let patches = controller.metric("backend_pool_controller_taint_patches_total", r#"result="done""#).await;
    assert_eq!(patches, Ok(2.0), "each node was patched once");
    env.end(controller).await;
}

/// Returns a taint that the controller ignores.
fn taint(key: &str, value: &str) -> Value {
    json!({ "key": format!("example.com/{key}"), "value": value, "effect": "NoSchedule" })
}

/// Returns an operation of a JSON patch.
fn operation(name: &str, path: &str, value: &Value) -> Value {
    json!({ "op": name, "path": path, "value": value })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n1_a_patch_that_fails_its_test_or_repeats_a_taint_is_422() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "facts", 1).await;
    env.is_bare(1).await;
    let (path, uid) = (env.node_path(1), env.uid(1).await);
    let version = async || {
        let node = env.api.get(&path).await.expect("the Node exists");
        node["metadata"]["resourceVersion"].clone()
    };
    let patched = async |operations: &[&Value]| patch(&env, &path, "json-patch", &json!(operations)).await;
    let test = |path: &str, value: &Value| operation("test", path, value);
    let is_node = |uid: &str| test("/metadata/uid", &json!(uid));
    let is_bare = test("/spec/taints", &Value::Null);
    let first = operation("add", "/spec/taints", &json!([taint("first", "a")]));
    let append = |value: &str| operation("add", "/spec/taints/-", &taint("second", value));

    assert_eq!(patched(&[&append("a")]).await, 422, "there is no list yet");
    assert_eq!(patched(&[&is_node("another"), &first]).await, 422);
    let old = test("/metadata/resourceVersion", &version().await);
    touch(&env, 1).await;
    assert_eq!(patched(&[&old, &first]).await, 422);
    env.is_bare(1).await;

    assert_eq!(patched(&[&is_node(&uid), &is_bare, &first]).await, 200, "null is a missing value");
    assert_eq!(patched(&[&is_bare, &first]).await, 422);
    assert_eq!(patched(&[&is_node(&uid), &append("a")]).await, 200);
    assert_eq!(patched(&[&is_node(&uid), &append("b")]).await, 422, "key and effect are there");
    let both = BTreeSet::from(["first", "second"].map(|key| format!("example.com/{key}=a:NoSchedule")));
    assert_eq!(env.taints(1).await.as_ref(), Ok(&both));

    let key =
        |at: u8, key: &str| test(&format!("/spec/taints/{at}/key"), &json!(format!("example.com/{key}")));
    let removal = json!({ "op": "remove", "path": "/spec/taints/0" });
    assert_eq!(patched(&[&key(0, "second"), &removal]).await, 422);
    assert_eq!(patched(&[&key(2, "second"), &removal]).await, 422, "there is no such path");
    assert_eq!(env.taints(1).await, Ok(both));
    // Another client may write the node in between.
    eventually("a patch with the newest version succeeds", TEST_TIMEOUT, || async {
        let newest = test("/metadata/resourceVersion", &version().await);
        match patched(&[&is_node(&uid), &newest, &key(0, "first"), &removal]).await {
            200 => Ok(()),
            status => Err(status.to_string()),
        }
    })
    .await;
    assert_eq!(env.taints(1).await, Ok(BTreeSet::from(["example.com/second=a:NoSchedule".to_owned()])));
    assert_eq!(patch(&env, &env.node_path(9), "json-patch", &json!([first])).await, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n1_one_watch_of_the_older_group_shows_events_of_both() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "rehearsal", 1).await;
    let node = env.node(1);
    let selected = |kind: &str| format!("fieldSelector={kind}.kind=Node,reason={REHEARSED}");
    let older = format!("/api/v1/events?{}", selected("involvedObject"));
    let list = env.api.get(&older).await.expect("the API server lists events");
    let from = list["metadata"]["resourceVersion"].as_str().expect("a list has a version").to_owned();

    env.api.create(EVENTS, &problem(&node, REHEARSED, "by the older")).await;
    let newer = newer_problem(&node, REHEARSED, "by the newer");
    env.api.create(NEWER_EVENTS, &newer).await;
    let again = format!("{:.6}", Timestamp::now() + SignedDuration::from_secs(5));
    let path = format!("{NEWER_EVENTS}/{}", newer["metadata"]["name"].as_str().expect("a name"));
    let series = json!({ "count": 2, "lastObservedTime": again });
    env.api.merge(&path, &json!({ "series": series })).await;

    let changes = eventually("the watch sends three changes", TEST_TIMEOUT, || async {
        // The API server ends the watch soon.
        let watch = format!("{older}&watch=true&timeoutSeconds=1&resourceVersion={from}");
        let text = env.api.text(&watch).await?;
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a change"));
        <[Value; 3]>::try_from(lines.collect::<Vec<_>>()).map_err(|_| text)
    })
    .await;
    let [by_older, by_newer, repeated] = changes.map(|mut change| change["object"].take());
    for (event, message) in [(&by_older, "by the older"), (&by_newer, "by the newer")] {
        let about = json!({ "kind": "Node", "name": node, "uid": node });
        assert_eq!((&event["involvedObject"], &event["message"]), (&about, &json!(message)), "{event}");
    }
    assert!(by_older["eventTime"].is_null() && by_older["lastTimestamp"].is_string(), "{by_older}");
    assert!(by_newer["eventTime"] == newer["eventTime"] && by_newer["lastTimestamp"].is_null(), "{by_newer}");
    assert_eq!(repeated["series"], series);
    let both = env.api.items(&format!("/apis/events.k8s.io/v1/events?{}", selected("regarding"))).await;
    let notes: BTreeSet<String> =
        both.expect("the API server lists events").iter().map(|event| event["note"].to_string()).collect();
    assert_eq!(notes, BTreeSet::from(["\"by the newer\"".to_owned(), "\"by the older\"".to_owned()]));
}
