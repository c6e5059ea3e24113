//! Invalid Services, slices and Nodes (D6): each is shown to the operator, and affects no other object.

use serde_json::{Value, json};
use simulator::models::kube::Resource;
use simulator::models::kube::build::{self, Endpoint, Family};

use super::stage::{NAMESPACE, Prepared, Stage, add_service, node_ip, node_name, pool_of, set_endpoints};
use crate::support::{TEST_TIMEOUT, eventually};

/// Reasons of the events about invalid data.
const INCOMPLETE: &str = "ServiceEndpointsIncomplete";
const UNDECODABLE: &str = "ObjectUndecodable";

/// Changes a stored object into an invalid one.
async fn spoil(
    stage: &Stage,
    resource: Resource,
    namespace: &str,
    name: &str,
    change: impl FnOnce(&mut Value),
) {
    let (at, of) = (namespace.to_owned(), name.to_owned());
    let found = stage.fakes.cluster.ask(move |cluster, _| cluster.model.get(resource, &at, &of)).await;
    let mut object = found.unwrap_or_else(|| panic!("there is no {resource:?} {namespace}/{name}"));
    change(&mut object);
    stage.fakes.apply(vec![object]).await.expect("the model accepts any object with a name");
}

/// Returns the name of a Service's only slice.
fn slice_name(service: &str) -> String {
    let slice = build::endpoint_slice(NAMESPACE, service, 0, &[], Family::V4);
    slice["metadata"]["name"].as_str().expect("the builder names it").to_owned()
}

/// Returns an endpoint on this node, or on none.
fn endpoint(node: Option<&str>) -> Endpoint {
    Endpoint { node: node.map(str::to_owned), ..Endpoint::ready("") }
}

/// Waits until the log has a warning about an object, and asserts that it has a remedy.
async fn warned(stage: &Stage, object: &str, error: &str) {
    eventually(&format!("a warning about {object}"), TEST_TIMEOUT, || async {
        let log = stage.log();
        let found = log
            .iter()
            .find(|line| line["message"] == "failed to decode an object" && line["object"] == object);
        let Some(line) = found else { return Err(format!("{log:?}")) };
        assert_eq!(line["level"], "WARN");
        assert!(line["error"].as_str().is_some_and(|text| text.contains(error)), "{line}");
        assert!(line["remedy"].is_string(), "{line}");
        Ok(())
    })
    .await;
}

/// Waits until this many objects of a kind could not be decoded.
async fn undecodable(stage: &Stage, kind: &str, least: f64) {
    let series = format!("backend_pool_controller_undecodable_objects_total{{kind=\"{kind}\"}}");
    eventually(&series, TEST_TIMEOUT, || async {
        let count = stage.series(&series).await;
        if count.is_some_and(|count| count >= least) { Ok(()) } else { Err(format!("{count:?}")) }
    })
    .await;
}

async fn members(stage: &Stage, service: &str) -> Vec<String> {
    let members = stage.fakes.members(simulator::CLUSTER_NAME, &pool_of(service)).await.expect("the pool");
    members.into_iter().map(|member| member.ip.to_string()).collect()
}

/// Asserts that another Service follows its endpoints. All of these tests end with it.
async fn assert_others_follow(stage: &Stage) {
    set_endpoints(&stage.fakes, "other", &[Endpoint::ready(&node_name(2))]).await;
    eventually("the other Service follows its endpoints", TEST_TIMEOUT, || async {
        let members = members(stage, "other").await;
        if members == [node_ip(2)] { Ok(()) } else { Err(format!("{members:?}")) }
    })
    .await;
    stage.verdict("other", "in sync: ").await;
}

async fn stage_with(names: &[&str]) -> Stage {
    let prepared = Prepared::new(1).await;
    for name in names.iter().chain(&["other"]) {
        add_service(&prepared.fakes, name, &[0, 1]).await;
    }
    let stage = prepared.start(&json!({})).await;
    stage.wait_until_ready().await;
    for name in names {
        stage.verdict(name, "in sync: ").await;
    }
    stage
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d6_endpoints_without_a_usable_node_are_in_event_and_api() {
    let stage = stage_with(&["nameless", "ghost", "homeless", "garbled"]).await;
    // Two nodes that no pool has used yet, so that they have no last known address.
    let without = build::node("without-ip", &[], &[], true, &[]);
    let garbled = build::node("garbled-ip", &["10.224.0.300"], &[], true, &[]);
    stage.fakes.apply(vec![without, garbled]).await.expect("the model accepts them");
    let cases = [
        ("nameless", None, "1 endpoint without a nodeName"),
        ("ghost", Some("no-such-node"), "node no-such-node is not known"),
        ("homeless", Some("without-ip"), "node without-ip has no IPv4 address"),
        ("garbled", Some("garbled-ip"), "node garbled-ip has no IPv4 address"),
    ];
    for (service, node, words) in cases {
        set_endpoints(&stage.fakes, service, &[endpoint(Some(&node_name(0))), endpoint(node)]).await;
        let event = stage.event(service, INCOMPLETE).await;
        assert_eq!(
            (&event["type"], &event["involvedObject"]["kind"]),
            (&json!("Warning"), &json!("Service"))
        );
        assert!(
            event["message"].as_str().is_some_and(|message| message.contains(words)),
            "{service}: {event}"
        );
        let answer = stage.verdict(service, words).await;
        assert_eq!(answer["service"]["dataErrors"], json!([words]), "{answer}");
        let required = &answer["pools"][0]["members"]["required"];
        assert_eq!(required[0]["ip"], node_ip(0), "the valid endpoint counts: {answer}");
    }
    assert_others_follow(&stage).await;
    for (service, ..) in cases {
        assert!(members(&stage, service).await.contains(&node_ip(0)), "{service}");
    }
    // The recovery is reported when all objects are valid again.
    set_endpoints(&stage.fakes, "ghost", &[endpoint(Some(&node_name(1)))]).await;
    let path = format!("/api/v1/services/{NAMESPACE}/ghost");
    let mended = stage.shown(&path, |answer| answer["service"]["dataErrors"] == json!([])).await;
    assert_eq!(mended["service"]["endpoints"], 1);
    eventually("the repaired Service is in sync", TEST_TIMEOUT, || async {
        let members = members(&stage, "ghost").await;
        if members == [node_ip(1)] { Ok(()) } else { Err(format!("{members:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d6_a_service_whose_endpoints_lost_nodes_keeps_members() {
    let stage = stage_with(&["lost"]).await;
    let before = members(&stage, "lost").await;
    set_endpoints(&stage.fakes, "lost", &[endpoint(Some("no-such-node"))]).await;
    stage.event("lost", "BackendPoolRemovalHeld").await;
    let answer = stage.verdict("lost", "a removal is held back (no_usable_node)").await;
    assert_eq!(answer["pools"][0]["held"]["endsInSeconds"], Value::Null, "time alone does not end it");
    let held = "backend_pool_controller_held_pools{reason=\"no_usable_node\"}";
    assert_eq!(stage.series(held).await, Some(1.0));
    assert_others_follow(&stage).await;
    assert_eq!(members(&stage, "lost").await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d6_undecodable_objects_keep_their_last_good_state() {
    let stage = stage_with(&["families", "slice", "node"]).await;
    spoil(&stage, Resource::Services, NAMESPACE, "families", |service| {
        service["spec"]["ipFamilies"] = json!(["IPv5"]);
    })
    .await;
    spoil(&stage, Resource::EndpointSlices, NAMESPACE, &slice_name("slice"), |slice| {
        slice["endpoints"] = json!("nonsense");
    })
    .await;
    spoil(&stage, Resource::Nodes, "", &node_name(1), |node| node["status"]["addresses"] = json!("nonsense"))
        .await;
    let cases = [
        ("services", "families", "families", "shop/families".to_owned(), "neither IPv4 nor IPv6"),
        (
            "endpointslices",
            "slice",
            "slice",
            format!("{NAMESPACE}/{}", slice_name("slice")),
            "unreadable object",
        ),
        ("nodes", "node", &node_name(1), node_name(1), "unreadable object"),
    ];
    for (kind, service, about, object, error) in cases {
        let event = stage.event(about, UNDECODABLE).await;
        assert_eq!(event["type"], "Warning");
        let message = event["message"].as_str().unwrap_or_default();
        assert!(message.contains(&object) && message.contains(error), "{event}");
        undecodable(&stage, kind, 1.0).await;
        warned(&stage, &object, error).await;
        stage.verdict(service, "in sync: ").await;
        assert_eq!(members(&stage, service).await, [node_ip(0), node_ip(1)], "{service}");
    }
    assert_others_follow(&stage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d6_new_objects_without_uid_or_service_claim_nothing() {
    let stage = stage_with(&["good"]).await;
    // A Service without a uid would own every rule whose name starts with "a", so it must own none.
    let version = stage.fakes.cluster.ask(|cluster, _| cluster.model.resource_version()).await + 10;
    let mut without_uid = build::service(NAMESPACE, "nobody", &[80], &[Family::V4]);
    let metadata = without_uid["metadata"].as_object_mut().expect("an object");
    metadata.remove("uid");
    metadata.insert("resourceVersion".to_owned(), json!(version.to_string()));
    let line = json!({ "type": "ADDED", "object": without_uid }).to_string();
    let replay =
        move |cluster: &mut simulator::Cluster, now_us| cluster.model.replay(line.as_bytes(), now_us);
    stage.fakes.cluster.ask(replay).await.expect("the model accepts a recorded line");
    warned(&stage, "shop/nobody", "metadata.uid is missing").await;
    undecodable(&stage, "services", 1.0).await;
    let unknown = stage.admin(reqwest::Method::GET, "/api/v1/services/shop/nobody").await;
    assert_eq!(unknown.status, 404, "{unknown:?}");

    // A slice without a Service is valid; it is stored and serves no traffic.
    let mut orphan =
        build::endpoint_slice(NAMESPACE, "good", 1, &[Endpoint::ready(&node_name(4))], Family::V4);
    orphan["metadata"]["labels"].as_object_mut().expect("labels").remove("kubernetes.io/service-name");
    stage.fakes.apply(vec![orphan]).await.expect("a slice without a Service");
    let slices = "backend_pool_controller_cached_objects{kind=\"endpointslices\"}";
    let held =
        stage.fakes.cluster.ask(|cluster, _| cluster.model.list(Resource::EndpointSlices).count()).await;
    eventually(slices, TEST_TIMEOUT, || async {
        let count = stage.series(slices).await;
        if count.map(|count| format!("{count}")) == Some(held.to_string()) {
            Ok(())
        } else {
            Err(format!("{count:?}"))
        }
    })
    .await;
    assert_others_follow(&stage).await;
    let good = stage.verdict("good", "in sync: ").await;
    assert_eq!((&good["service"]["endpointSlices"], &good["service"]["endpoints"]), (&json!(1), &json!(2)));
    assert_eq!(members(&stage, "good").await, [node_ip(0), node_ip(1)]);
}
