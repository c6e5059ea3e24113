//! The modes on a real API server: `observe` shows pending changes and writes nothing, `add-only` removes nothing, and
//! guards that only observe, or are off, hold nothing (docs/design/pools.md, G5, G6).

use std::time::Duration;

use serde_json::{Value, json};

use super::guards::{held, start};
use super::replicas::has_role;
use super::{Story, ips, load_balancer};
use crate::support::controller::Controller;
use crate::support::kubernetes::{self, Cluster};
use crate::support::{PATIENCE, azure, eventually, objects};

/// Services on one load balancer, each with the address of its endpoint.
const MOVING: [(&str, &str); 2] = [("web-1", "10.206.0.1"), ("web-4", "10.206.0.2")];
/// Services on one load balancer for the modes of the guards, and one with daily work.
const GUARDED: [(&str, &str); 4] = [
    ("enforced-1", "10.207.0.1"),
    ("observed-4", "10.207.0.2"),
    ("off-7", "10.207.0.3"),
    ("witness-10", "10.207.0.4"),
];
/// Reason of the event with which guards report a removal that they hold, or would hold.
const HELD: &str = "BackendPoolRemovalHeld";
/// `members.removalDelay` of all tests.
const REMOVAL_DELAY: Duration = Duration::from_secs(1);

/// Waits until the test's shared Lease is free, and returns its resourceVersion.
async fn lease_version(story: &Story<&Cluster>) -> Value {
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let path = format!("{leases}/locker-{}", story.namespace);
    eventually("the shared Lease is free", PATIENCE, || async {
        let lease = story.api.get(&path).await?;
        let is_free = lease["spec"]["holderIdentity"].as_str().is_none_or(str::is_empty);
        if is_free { Ok(lease["metadata"]["resourceVersion"].clone()) } else { Err(lease.to_string()) }
    })
    .await
}

/// Waits until the pool of a Service has this value at this pointer.
async fn shown(
    story: &Story<&Cluster>,
    controller: &Controller,
    service: &str,
    pointer: &str,
    value: &Value,
) {
    let pool = azure::pool_name(story.namespace, service);
    let path = format!("/api/v1/queues/{}/{pool}", load_balancer(service));
    eventually(&format!("{pool} shows {value} at {pointer}"), PATIENCE, || async {
        let answer = controller.get(&path).await?;
        if answer["pool"].pointer(pointer) == Some(value) { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}

/// Runs a controller in the mode `observe` while all Services move from the first node to this one.
async fn observe(story: &Story<&Cluster>, node: &str) {
    let puts = story.azure.counters().await.pool_puts;
    let lease = lease_version(story).await;
    let controller = start(story, json!({ "mode": "observe" })).await;
    has_role(&controller, "leader").await;
    let change = json!({ "add": ["10.1.0.2"], "remove": ["10.1.0.1"] });
    // When the last removal is shown, the first pool would already have been written.
    for (name, ip) in MOVING {
        story.replace_by_hand(name, &[(ip, Some(node))]).await;
        shown(story, &controller, name, "/wouldChange", &change).await;
    }
    let status = controller.get("/api/v1/status").await.expect("the status");
    assert_eq!(status["mode"], "observe", "{status}");
    let sums = json!({
        "compared": 2, "unseen": 0, "pools": 2, "add": 2, "remove": 2, "held": { "pools": 0, "members": 0 },
    });
    assert_eq!(status["wouldChange"], sums, "{status}");
    controller.terminate().await;
    assert_eq!(story.azure.counters().await.pool_puts, puts, "no pool is written");
    assert_eq!(lease_version(story).await, lease, "the shared Lease is not taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_observe_writes_nothing_and_add_only_removes_nothing() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let story = Story::begin(cluster, "modes", 3).await;
    let [one, two, three] = [1, 2, 3].map(|number| story.node(number));
    for (name, ip) in MOVING {
        story.set_endpoints_by_hand(name, &[(ip, Some(one.as_str()))]).await;
    }
    story.provision(story.namespace).await;
    let enforcing = start(&story, json!({})).await;
    story.converged("the start").await;
    enforcing.terminate().await;
    let before = story.azure.puts().await.len();
    assert!(before >= MOVING.len(), "{before} writes");

    observe(&story, &two).await;

    let controller = start(&story, json!({ "mode": "add-only" })).await;
    for (name, _) in MOVING {
        story.holds(name, ["10.1.0.1", "10.1.0.2"]).await;
    }
    let answer = held(&controller, "add_only", MOVING.len()).await;
    for item in answer["items"].as_array().into_iter().flatten() {
        let shown = (&item["held"]["reason"], &item["held"]["members"]);
        assert_eq!(shown, (&json!("add_only"), &json!(["10.1.0.1"])), "{item}");
    }
    // A later write keeps it too.
    let (name, ip) = MOVING[0];
    story.replace_by_hand(name, &[(ip, Some(three.as_str()))]).await;
    story.holds(name, ["10.1.0.1", "10.1.0.2", "10.1.0.3"]).await;
    shown(&story, &controller, name, "/held/members", &json!(["10.1.0.1", "10.1.0.2"])).await;
    controller.terminate().await;
    let puts = story.azure.puts().await;
    let goes = ips(["10.1.0.1"]);
    for put in &puts[before..] {
        assert!(put.members.as_ref().is_some_and(|members| goes.is_subset(members)), "{put:?}");
    }
    story.azure.assert_serial().await;
}

/// Starts a controller whose guards have this mode, and an `emptyConfirm` of one hour.
async fn guarded(story: &Story<&Cluster>, mode: &str) -> Controller {
    let controller = start(story, json!({ "guards": { "mode": mode, "emptyConfirm": "1h" } })).await;
    story.converged(&format!("a start with guards of the mode {mode}")).await;
    eventually(&format!("guards have the mode {mode} and nothing to hold"), PATIENCE, || async {
        let answer = controller.get("/api/v1/held").await?;
        let is_so = answer["guards"]["mode"] == mode && answer["items"] == json!([]);
        if is_so { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    controller
}

/// Deletes all slices of a Service, like an operator.
async fn delete_slices(story: &Story<&Cluster>, service: &str) {
    story.api.delete(&story.path("endpointslices", &format!("{service}-by-hand"))).await;
}

/// The same, and asserts that one write empties the pool after the removal delay.
async fn is_emptied_at_once(story: &Story<&Cluster>, service: &str) {
    let (before, began_us) = (story.azure.puts().await.len(), story.azure.now_us());
    delete_slices(story, service).await;
    story.holds(service, []).await;
    let puts = story.azure.puts().await;
    let [emptied] = &puts[before..] else { panic!("more than one write: {:?}", &puts[before..]) };
    assert_eq!(emptied.pool, azure::pool_name(story.namespace, service));
    let waited = Duration::from_micros(emptied.at_us - began_us);
    assert!(waited >= REMOVAL_DELAY, "emptied after {waited:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g5_guards_that_observe_or_are_off_hold_nothing() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let story = Story::begin(cluster, "guard-modes", 2).await;
    let (one, two) = (story.node(1), story.node(2));
    for (name, ip) in GUARDED {
        story.set_endpoints_by_hand(name, &[(ip, Some(one.as_str()))]).await;
    }
    story.provision(story.namespace).await;
    let [(enforced, ip), (observed, _), (off, _), (witness, of_witness)] = GUARDED;

    // With enforced guards the removal is held.
    let controller = guarded(&story, "enforce").await;
    delete_slices(&story, enforced).await;
    let answer = held(&controller, "empty_confirm", 1).await;
    assert_eq!(answer["items"][0]["held"]["reason"], "empty_confirm", "{answer}");
    // A later removal of another pool is written first.
    story.replace_by_hand(witness, &[(of_witness, Some(two.as_str()))]).await;
    story.holds(witness, ["10.1.0.2"]).await;
    let pool = azure::pool_name(story.namespace, enforced);
    assert_eq!(story.azure.members(&pool).await, ips(["10.1.0.1"]));
    let slice = objects::endpoint_slice(story.namespace, enforced, &[(ip, Some(one.as_str()))]);
    story.create("endpointslices", &slice).await;
    held(&controller, "empty_confirm", 0).await;
    controller.terminate().await;

    let controller = guarded(&story, "observe").await;
    is_emptied_at_once(&story, observed).await;
    let answer = held(&controller, "empty_confirm", 1).await;
    let item = &answer["items"][0];
    assert_eq!(item["backendPool"], azure::pool_name(story.namespace, observed), "{answer}");
    assert_eq!(
        (&item["held"], &item["wouldHold"]["reason"]),
        (&Value::Null, &json!("empty_confirm")),
        "{item}"
    );
    let event = story.event(observed, HELD).await;
    assert!(event["message"].as_str().is_some_and(|text| text.contains("would be held back")), "{event}");
    controller.terminate().await;

    let controller = guarded(&story, "off").await;
    is_emptied_at_once(&story, off).await;
    let answer = controller.get("/api/v1/held").await.expect("the admin API answers");
    assert_eq!(answer["items"], json!([]), "{answer}");
    story.end(controller).await;
    let path = format!(
        "/api/v1/namespaces/{}/events?fieldSelector=involvedObject.name={off},reason={HELD}",
        story.namespace
    );
    assert_eq!(story.api.items(&path).await, Ok(Vec::new()), "no event is sent");
}
