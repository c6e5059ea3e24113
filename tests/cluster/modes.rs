//! The modes on a real API server: `observe` shows pending changes and writes nothing, `add-only` removes nothing, and
//! guards that only observe, or are off, hold nothing (docs/design/pools.md, G5, G6).

use std::time::Duration;

use serde_json::{Value, json};

use super::guards::{held, start};
use super::replicas::has_role;
use super::{TestEnvironment, ips, load_balancer};
use crate::support::controller::Controller;
use crate::support::kubernetes::{self, Cluster};
use crate::support::{TEST_TIMEOUT, azure, eventually, objects};

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
async fn lease_version(env: &TestEnvironment<&Cluster>) -> Value {
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let path = format!("{leases}/locker-{}", env.namespace);
    eventually("the shared Lease is free", TEST_TIMEOUT, || async {
        let lease = env.api.get(&path).await?;
        let is_free = lease["spec"]["holderIdentity"].as_str().is_none_or(str::is_empty);
        if is_free { Ok(lease["metadata"]["resourceVersion"].clone()) } else { Err(lease.to_string()) }
    })
    .await
}

/// Waits until the pool of a Service has this value at this pointer.
async fn shown(
    env: &TestEnvironment<&Cluster>,
    controller: &Controller,
    service: &str,
    pointer: &str,
    value: &Value,
) {
    let pool = azure::pool_name(env.namespace, service);
    let path = format!("/api/v1/queues/{}/{pool}", load_balancer(service));
    eventually(&format!("{pool} shows {value} at {pointer}"), TEST_TIMEOUT, || async {
        let answer = controller.get(&path).await?;
        if answer["pool"].pointer(pointer) == Some(value) { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}

/// Runs a controller in the mode `observe` while all Services move from the first node to this one.
async fn observe(env: &TestEnvironment<&Cluster>, node: &str) {
    let puts = env.azure.counters().await.pool_puts;
    let lease = lease_version(env).await;
    let controller = start(env, json!({ "mode": "observe" })).await;
    has_role(&controller, "leader").await;
    let change = json!({ "add": ["10.1.0.2"], "remove": ["10.1.0.1"] });
    // When the last removal is shown, the first pool would already have been written.
    for (name, ip) in MOVING {
        env.replace_by_hand(name, &[(ip, Some(node))]).await;
        shown(env, &controller, name, "/wouldChange", &change).await;
    }
    let status = controller.get("/api/v1/status").await.expect("the status");
    assert_eq!(status["mode"], "observe", "{status}");
    let sums = json!({
        "compared": 2, "unseen": 0, "pools": 2, "add": 2, "remove": 2, "held": { "pools": 0, "members": 0 },
    });
    assert_eq!(status["wouldChange"], sums, "{status}");
    controller.terminate().await;
    assert_eq!(env.azure.counters().await.pool_puts, puts, "no pool is written");
    assert_eq!(lease_version(env).await, lease, "the shared Lease is not taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_observe_writes_nothing_and_add_only_removes_nothing() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "modes", 3).await;
    let [one, two, three] = [1, 2, 3].map(|number| env.node(number));
    for (name, ip) in MOVING {
        env.set_endpoints_by_hand(name, &[(ip, Some(one.as_str()))]).await;
    }
    env.provision(env.namespace).await;
    let enforcing = start(&env, json!({})).await;
    env.converged("the start").await;
    enforcing.terminate().await;
    let before = env.azure.puts().await.len();
    assert!(before >= MOVING.len(), "{before} writes");

    observe(&env, &two).await;

    let controller = start(&env, json!({ "mode": "add-only" })).await;
    for (name, _) in MOVING {
        env.holds(name, ["10.1.0.1", "10.1.0.2"]).await;
    }
    let answer = held(&controller, "add_only", MOVING.len()).await;
    for item in answer["items"].as_array().into_iter().flatten() {
        let shown = (&item["held"]["reason"], &item["held"]["members"]);
        assert_eq!(shown, (&json!("add_only"), &json!(["10.1.0.1"])), "{item}");
    }
    // A later write keeps it too.
    let (name, ip) = MOVING[0];
    env.replace_by_hand(name, &[(ip, Some(three.as_str()))]).await;
    env.holds(name, ["10.1.0.1", "10.1.0.2", "10.1.0.3"]).await;
    shown(&env, &controller, name, "/held/members", &json!(["10.1.0.1", "10.1.0.2"])).await;
    controller.terminate().await;
    let puts = env.azure.puts().await;
    let goes = ips(["10.1.0.1"]);
    for put in &puts[before..] {
        assert!(put.members.as_ref().is_some_and(|members| goes.is_subset(members)), "{put:?}");
    }
    env.azure.assert_serial().await;
}

/// Starts a controller whose guards have this mode, and an `emptyConfirm` of one hour.
async fn guarded(env: &TestEnvironment<&Cluster>, mode: &str) -> Controller {
    let controller = start(env, json!({ "guards": { "mode": mode, "emptyConfirm": "1h" } })).await;
    env.converged(&format!("a start with guards of the mode {mode}")).await;
    eventually(&format!("guards have the mode {mode} and nothing to hold"), TEST_TIMEOUT, || async {
        let answer = controller.get("/api/v1/held").await?;
        let is_so = answer["guards"]["mode"] == mode && answer["items"] == json!([]);
        if is_so { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    controller
}

/// Deletes all slices of a Service, like an operator.
async fn delete_slices(env: &TestEnvironment<&Cluster>, service: &str) {
    env.api.delete(&env.path("endpointslices", &format!("{service}-by-hand"))).await;
}

/// Does the same, and asserts that one write empties the pool after the removal delay.
async fn is_emptied_at_once(env: &TestEnvironment<&Cluster>, service: &str) {
    let (before, began_us) = (env.azure.puts().await.len(), env.azure.now_us());
    delete_slices(env, service).await;
    env.holds(service, []).await;
    let puts = env.azure.puts().await;
    let [emptied] = &puts[before..] else { panic!("more than one write: {:?}", &puts[before..]) };
    assert_eq!(emptied.pool, azure::pool_name(env.namespace, service));
    let waited = Duration::from_micros(emptied.at_us - began_us);
    assert!(waited >= REMOVAL_DELAY, "emptied after {waited:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g5_guards_that_observe_or_are_off_hold_nothing() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "guard-modes", 2).await;
    let (one, two) = (env.node(1), env.node(2));
    for (name, ip) in GUARDED {
        env.set_endpoints_by_hand(name, &[(ip, Some(one.as_str()))]).await;
    }
    env.provision(env.namespace).await;
    let [(enforced, ip), (observed, _), (off, _), (witness, of_witness)] = GUARDED;

    // With enforced guards the removal is held.
    let controller = guarded(&env, "enforce").await;
    delete_slices(&env, enforced).await;
    let answer = held(&controller, "empty_confirm", 1).await;
    assert_eq!(answer["items"][0]["held"]["reason"], "empty_confirm", "{answer}");
    // A later removal of another pool is written first.
    env.replace_by_hand(witness, &[(of_witness, Some(two.as_str()))]).await;
    env.holds(witness, ["10.1.0.2"]).await;
    let pool = azure::pool_name(env.namespace, enforced);
    assert_eq!(env.azure.members(&pool).await, ips(["10.1.0.1"]));
    let slice = objects::endpoint_slice(env.namespace, enforced, &[(ip, Some(one.as_str()))]);
    env.create("endpointslices", &slice).await;
    held(&controller, "empty_confirm", 0).await;
    controller.terminate().await;

    let controller = guarded(&env, "observe").await;
    is_emptied_at_once(&env, observed).await;
    let answer = held(&controller, "empty_confirm", 1).await;
    let item = &answer["items"][0];
    assert_eq!(item["backendPool"], azure::pool_name(env.namespace, observed), "{answer}");
    assert_eq!(
        (&item["held"], &item["wouldHold"]["reason"]),
        (&Value::Null, &json!("empty_confirm")),
        "{item}"
    );
    let event = env.event(observed, HELD).await;
    assert!(event["message"].as_str().is_some_and(|text| text.contains("would be held back")), "{event}");
    controller.terminate().await;

    let controller = guarded(&env, "off").await;
    is_emptied_at_once(&env, off).await;
    let answer = controller.get("/api/v1/held").await.expect("the admin API answers");
    assert_eq!(answer["items"], json!([]), "{answer}");
    env.end(controller).await;
    let path = format!(
        "/api/v1/namespaces/{}/events?fieldSelector=involvedObject.name={off},reason={HELD}",
        env.namespace
    );
    assert_eq!(env.api.items(&path).await, Ok(Vec::new()), "no event is sent");
}
