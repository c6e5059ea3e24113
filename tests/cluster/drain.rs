//! Draining nodes on a real API server: after `kubectl taint` a node is recorded and then set Down in all its pools;
//! when the taint is removed, it is restored; and a recreated node is another node (docs/design/nodes.md, N1, N2, N4).
//!
//! Each test has its own control plane, because every controller of a shared one would drain the node too.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::leaving::{IN_SERVICE, OUT_OF_SERVICE};
use super::{TestEnvironment, load_balancer};
use crate::support::controller::{Controller, Flags};
use crate::support::kubernetes::{self, Cluster};
use crate::support::{TEST_TIMEOUT, eventually, objects};

const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Adds a node with an address of each family.
async fn add_node_of_two_families(env: &TestEnvironment<&Cluster>, number: u8) {
    let mut node = objects::node(env.namespace, &env.node(number), &format!("10.1.0.{number}"));
    let addresses = node["status"]["addresses"].as_array_mut().expect("nodes are made with addresses");
    addresses.push(json!({ "type": "InternalIP", "address": format!("fd00::{number}") }));
    env.api.create("/api/v1/nodes", &node).await;
}

/// Creates the IPv6 pool and rule of a Service, as the cloud-controller-manager does.
async fn provision_ipv6(env: &TestEnvironment<&Cluster>, name: &str) {
    let mut service = env.api.get(&env.path("services", name)).await.expect("the Service exists");
    service["metadata"]["name"] = json!(format!("{name}-ipv6"));
    // The rules of a load balancer have different names.
    service["spec"]["ports"] = json!([{ "port": 6080 }]);
    env.azure.create_service_resources(&[service], |_| load_balancer(name).to_owned()).await;
}

/// Sets IPv6 endpoints of a Service on these nodes.
async fn set_ipv6_endpoints(env: &TestEnvironment<&Cluster>, name: &str, nodes: &[String]) {
    let addresses: Vec<String> = (1..=nodes.len()).map(|number| format!("fd00:10::{number}")).collect();
    let endpoints: Vec<(&str, Option<&str>)> =
        addresses.iter().zip(nodes).map(|(address, node)| (address.as_str(), Some(node.as_str()))).collect();
    let mut slice = objects::endpoint_slice(env.namespace, name, &endpoints);
    slice["metadata"]["name"] = json!(format!("{name}-by-hand-ipv6"));
    slice["addressType"] = json!("IPv6");
    env.create("endpointslices", &slice).await;
}

/// Creates the controller's ConfigMap, because a right to create objects cannot name one.
async fn create_notes(env: &TestEnvironment<&Cluster>) {
    let path = format!("/api/v1/namespaces/{}/configmaps", env.namespace);
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": objects::ACCOUNT } });
    env.api.create(&path, &map).await;
}

/// Grants or removes the right of the controller's account to write its ConfigMap, and waits until that is in force.
async fn may_write_notes(env: &TestEnvironment<&Cluster>, may: bool) {
    let namespace = env.namespace;
    let path = format!("{RBAC}/namespaces/{namespace}/roles/{}", objects::ACCOUNT);
    let mut role = env.api.get(&path).await.expect("the Role exists");
    let mut rules = role["rules"].as_array_mut().expect("a Role has rules").iter_mut();
    let notes = json!(["configmaps"]);
    let rule = rules.find(|rule| rule["resources"] == notes && rule["resourceNames"].is_array());
    let verbs = if may { json!(["get", "update"]) } else { json!(["get"]) };
    rule.expect("the Role names the controller's ConfigMap")["verbs"] = verbs;
    env.api.merge(&path, &json!({ "rules": role["rules"] })).await;

    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("system:serviceaccount:{namespace}:{}", objects::ACCOUNT),
            "resourceAttributes": {
                "namespace": namespace, "verb": "update", "resource": "configmaps", "name": objects::ACCOUNT,
            },
        },
    });
    eventually(&format!("the right to write the ConfigMap is {may}"), TEST_TIMEOUT, || async {
        let review = env.api.create(&format!("{AUTHORIZATION}/subjectaccessreviews"), &review).await;
        if review["status"]["allowed"] == may { Ok(()) } else { Err(review["status"].to_string()) }
    })
    .await;
}

/// Waits until the API server has refused the record of a node.
async fn record_is_refused(controller: &Controller) {
    eventually("the record of the node is refused", TEST_TIMEOUT, || async {
        let status = controller.get("/api/v1/status").await?["adminState"].take();
        let is_refused = status["lastError"].as_str().is_some_and(|error| error.starts_with("HTTP 403"));
        if is_refused && status["recording"] == 1 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

/// Asserts that an event is a Normal one about this node, and returns its message.
fn normal_message<'a>(event: &'a Value, uid: &str) -> &'a str {
    let found = (&event["type"], &event["involvedObject"]["uid"], &event["source"]["component"]);
    assert_eq!(found, (&json!("Normal"), &json!(uid), &json!("azure-backend-pool-controller")), "{event}");
    event["message"].as_str().expect("an event has a message")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n1_a_tainted_node_is_recorded_and_down_until_untainted() {
    let Some(cluster) = kubernetes::own().await else { return };
    let env = TestEnvironment::begin(&cluster, "drain", 0).await;
    for number in 1..=3 {
        add_node_of_two_families(&env, number).await;
    }
    let nodes = [1, 2, 3].map(|number| env.node(number));
    let addresses = ["10.206.0.1", "10.206.0.2", "10.206.0.3"];
    let endpoints: Vec<(&str, Option<&str>)> =
        addresses.into_iter().zip(nodes.iter().map(|node| Some(node.as_str()))).collect();
    for name in ["web-0", "web-1"] {
        env.set_endpoints_by_hand(name, &endpoints[..2]).await;
    }
    provision_ipv6(&env, "web-0").await;
    set_ipv6_endpoints(&env, "web-0", &nodes[..2]).await;
    let controller = env.start_controller(Flags::default()).await;
    env.holds("web-0", ["10.1.0.1", "10.1.0.2"]).await;
    env.holds("web-0-ipv6", ["fd00::1", "fd00::2"]).await;
    env.holds("web-1", ["10.1.0.1", "10.1.0.2"]).await;

    create_notes(&env).await;
    may_write_notes(&env, false).await;
    env.taint(1, OUT_OF_SERVICE).await;
    record_is_refused(&controller).await;
    // Another write in the meantime would include a due Down.
    env.replace_by_hand("web-1", &endpoints).await;
    env.holds("web-1", ["10.1.0.1", "10.1.0.2", "10.1.0.3"]).await;
    assert_eq!(env.downs().await, Ok(BTreeSet::new()), "Down before it was recorded");
    assert_eq!(env.records().await, Ok(BTreeMap::new()));
    let before = env.azure.puts().await.len();

    may_write_notes(&env, true).await;
    env.are_down(["10.1.0.1", "fd00::1"]).await;
    let uid = env.uid(1).await;
    let event = env.node_event(1, "LoadBalancerAdminStateDown").await;
    let message = normal_message(&event, &uid);
    assert!(message.contains("in 3 pools of 2 load balancers (out-of-service)"), "{message}");
    let records = env.records().await.expect("the controller's ConfigMap exists");
    let record = records.get(&format!("down.{uid}")).expect("the Down node is recorded");
    assert!(record.starts_with("drain-1\nips: 10.1.0.1 fd00::1\nsince: "), "{record}");
    assert_eq!(records.len(), 1, "{records:?}");
    let puts = env.azure.puts().await;
    let mut written: Vec<&str> = puts[before..].iter().map(|put| put.pool.as_str()).collect();
    written.sort_unstable();
    assert_eq!(written, ["drain-web-0", "drain-web-0-ipv6", "drain-web-1"], "one write for each pool");

    env.taint(1, IN_SERVICE).await;
    env.are_down([]).await;
    normal_message(&env.node_event(1, "LoadBalancerAdminStateNone").await, &uid);
    env.are_recorded([]).await;
    env.holds("web-0", ["10.1.0.1", "10.1.0.2"]).await;
    env.holds("web-0-ipv6", ["fd00::1", "fd00::2"]).await;
    env.holds("web-1", ["10.1.0.1", "10.1.0.2", "10.1.0.3"]).await;
    env.azure.assert_serial().await;
    controller.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n2_a_recreated_node_does_not_inherit_down() {
    let Some(cluster) = kubernetes::own().await else { return };
    let env = TestEnvironment::begin(&cluster, "anew", 2).await;
    let nodes = [1, 2].map(|number| env.node(number));
    let endpoints = [("10.207.0.1", Some(nodes[0].as_str())), ("10.207.0.2", Some(nodes[1].as_str()))];
    env.set_endpoints_by_hand("web-1", &endpoints).await;
    let controller = env.start_controller(Flags::default()).await;
    env.converged("the start").await;
    let old = env.uid(1).await;
    env.taint(1, OUT_OF_SERVICE).await;
    env.are_down(["10.1.0.1"]).await;
    env.are_recorded([old.as_str()]).await;

    env.api.delete(&env.node_path(1)).await;
    env.add_node(1, "10.1.0.1").await;
    env.are_down([]).await;
    env.are_recorded([]).await;
    let new = env.uid(1).await;
    assert_ne!(new, old);

    // It is recorded with its own UID.
    env.taint(1, OUT_OF_SERVICE).await;
    env.are_down(["10.1.0.1"]).await;
    env.are_recorded([new.as_str()]).await;
    env.end(controller).await;
}
