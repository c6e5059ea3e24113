//! Creating, replacing, patching and deleting.

use serde_json::{Value, json};
use simulator_models::kube::build::{Family, node, service, with_uid};
use simulator_models::kube::{Request, Resource};

use super::{LEASES, SLICES, Server, version_of};

fn lease(name: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"leaseDurationSeconds": 900}})
}

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "state"}, "data": data})
}

const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

#[test]
fn z1_a_created_object_has_identity_and_a_second_one_is_409() {
    let mut server = Server::new();
    server.now = 61_000_000;
    let (status, created) = server.post(LEASES, &lease("lock"));
    assert_eq!(status, 201);
    assert_eq!(created["metadata"]["creationTimestamp"], "2026-11-20T00:01:01Z");
    assert_eq!(created["metadata"]["uid"].as_str().map(str::len), Some(36));
    assert_eq!(version_of(&created), server.model.resource_version());
    let (status, refusal) = server.post(LEASES, &lease("lock"));
    assert_eq!((status, &refusal["reason"]), (409, &json!("AlreadyExists")));
    assert_eq!(refusal["message"], "leases.coordination.k8s.io \"lock\" already exists");
    assert_eq!(refusal["details"], json!({"name": "lock", "group": "coordination.k8s.io", "kind": "leases"}));
}

#[test]
fn z1_uids_follow_from_the_seed_alone() {
    let uid = |_| {
        let mut server = Server::new();
        server.post(LEASES, &lease("lock")).1["metadata"]["uid"].clone()
    };
    assert_eq!(uid(0), uid(1));
}

#[test]
fn z1_generate_name_makes_names_that_differ() {
    let mut server = Server::new();
    let mut body = lease("x");
    body["metadata"] = json!({"generateName": "lock-"});
    let first = server.post(LEASES, &body).1["metadata"]["name"].clone();
    let second = server.post(LEASES, &body).1["metadata"]["name"].clone();
    assert_ne!(first, second);
    assert!(first.as_str().is_some_and(|name| name.starts_with("lock-") && name.len() == 10), "{first}");
}

#[test]
fn z1_create_without_name_with_version_or_namespace_is_refused() {
    let mut server = Server::new();
    let mut nameless = lease("x");
    nameless["metadata"] = json!({});
    assert_eq!(server.post(LEASES, &nameless).0, 422);
    let mut versioned = lease("x");
    versioned["metadata"]["resourceVersion"] = json!("7");
    assert_eq!(server.post(LEASES, &versioned).0, 500);
    let elsewhere = "/apis/coordination.k8s.io/v1/namespaces/nowhere/leases";
    let (status, refusal) = server.post(elsewhere, &lease("x"));
    assert_eq!((status, &refusal["message"]), (404, &json!("namespaces \"nowhere\" not found")));
    let (status, _) = server.post(MAPS, &lease("x"));
    assert_eq!(status, 400, "a Lease is no ConfigMap");
}

#[test]
fn z1_put_locks_optimistically_by_resource_version() {
    let mut server = Server::new();
    let (_, mut mine) = server.post(LEASES, &lease("lock"));
    let mut other = mine.clone();
    other["spec"]["holderIdentity"] = json!("ccm");
    let path = format!("{LEASES}/lock");
    assert_eq!(server.put(&path, &other).0, 200);
    mine["spec"]["holderIdentity"] = json!("us");
    let (status, refusal) = server.put(&path, &mine);
    assert_eq!((status, &refusal["reason"]), (409, &json!("Conflict")));
    assert_eq!(server.get(&path).1["spec"]["holderIdentity"], "ccm");
}

#[test]
fn z1_put_without_version_replaces_a_config_map_but_not_a_lease() {
    let mut server = Server::new();
    server.post(MAPS, &config_map(&json!({"a": "1"})));
    let (status, stored) = server.put(&format!("{MAPS}/state"), &config_map(&json!({"b": "2"})));
    assert_eq!((status, &stored["data"]), (200, &json!({"b": "2"})));
    server.post(LEASES, &lease("lock"));
    let (status, refusal) = server.put(&format!("{LEASES}/lock"), &lease("lock"));
    assert_eq!((status, &refusal["reason"]), (422, &json!("Invalid")));
}

#[test]
fn z1_put_of_a_missing_object_creates_only_a_lease() {
    let mut server = Server::new();
    assert_eq!(server.put(&format!("{LEASES}/lock"), &lease("lock")).0, 201);
    assert_eq!(server.put(&format!("{MAPS}/state"), &config_map(&json!({}))).0, 404);
    let mut named = lease("other");
    named["metadata"]["name"] = json!("another");
    assert_eq!(server.put(&format!("{LEASES}/other"), &named).0, 400);
}

#[test]
fn z1_a_write_without_change_keeps_the_version() {
    let mut server = Server::new();
    let (_, stored) = server.post(LEASES, &lease("lock"));
    let before = server.model.resource_version();
    let (status, again) = server.put(&format!("{LEASES}/lock"), &stored);
    assert_eq!((status, version_of(&again)), (200, before));
    assert_eq!(server.model.resource_version(), before);
}

#[test]
fn z1_the_generation_of_a_slice_ignores_its_labels() {
    let mut server = Server::new();
    server.slice(0, &["n1"]);
    server.slice(0, &["n1", "n2"]);
    let (_, list) = server.get(SLICES);
    assert_eq!(list["items"][0]["metadata"]["generation"], 2);
    let name = list["items"][0]["metadata"]["name"].as_str().expect("a name").to_owned();
    let (_, patched) =
        server.patch(&format!("{SLICES}/{name}"), MERGE, &json!({"metadata": {"labels": {"a": "b"}}}));
    assert_eq!(patched["metadata"]["generation"], 2);
    assert_eq!(patched["metadata"]["labels"]["kubernetes.io/service-name"], "web");
}

#[test]
fn z1_status_is_written_on_its_own_path_only() {
    let mut server = Server::new();
    server.service("web");
    let path = "/api/v1/namespaces/demo/services/web";
    let ingress =
        json!({"spec": {"type": "ClusterIP"}, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}});
    let (_, main) =
        server.patch(path, MERGE, &json!({"status": {"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}]}}}));
    assert_eq!(main["status"], json!({"loadBalancer": {}}));
    let (status, stored) = server.patch(&format!("{path}/status"), MERGE, &ingress);
    assert_eq!((status, &stored["status"]), (200, &ingress["status"]));
    assert_eq!(stored["spec"]["type"], "LoadBalancer");
}

#[test]
fn z1_merge_patch_sets_removes_and_checks_a_given_version() {
    let mut server = Server::new();
    let (_, stored) = server.post(MAPS, &config_map(&json!({"a": "1", "b": "2"})));
    let path = format!("{MAPS}/state");
    let (status, patched) = server.patch(&path, MERGE, &json!({"data": {"a": null, "c": "3"}}));
    assert_eq!((status, &patched["data"]), (200, &json!({"b": "2", "c": "3"})));
    let stale =
        json!({"metadata": {"resourceVersion": stored["metadata"]["resourceVersion"]}, "data": {"d": "4"}});
    assert_eq!(server.patch(&path, MERGE, &stale).0, 409);
    assert_eq!(server.patch(&format!("{MAPS}/none"), MERGE, &json!({})).0, 404);
    assert_eq!(server.patch(&path, "application/apply-patch+yaml", &json!({})).0, 415);
    assert_eq!(server.patch(&path, MERGE, &json!([1])).0, 400);
}

#[test]
fn z1_strategic_merge_joins_conditions_and_replaces_taints() {
    let mut server = Server::new();
    let taints = [("others", "1", "NoSchedule"), ("more", "", "NoExecute")];
    server.model.apply(node("n1", &["10.0.0.4"], &[], true, &taints), 0).expect("a node");
    let path = "/api/v1/nodes/n1";
    let ours = json!({"spec": {"taints": [{"key": "ours", "effect": "NoSchedule"}]}});
    let (status, patched) = server.patch(path, STRATEGIC, &ours);
    assert_eq!((status, &patched["spec"]["taints"]), (200, &ours["spec"]["taints"]), "taints are atomic");
    let condition = json!({"status": {"conditions": [{"type": "PreemptScheduled", "status": "True"}]}});
    let (_, patched) = server.patch(&format!("{path}/status"), STRATEGIC, &condition);
    let types: Vec<_> =
        patched["status"]["conditions"].as_array().into_iter().flatten().map(|c| &c["type"]).collect();
    assert_eq!(types, ["Ready", "PreemptScheduled"]);
    let gone = json!({"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}});
    let (_, patched) = server.patch(&format!("{path}/status"), STRATEGIC, &gone);
    assert_eq!(patched["status"]["conditions"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        server.patch(&format!("{path}/status"), STRATEGIC, &json!({"status": {"conditions": [{}]}})).0,
        400
    );
}

#[test]
fn z1_a_failed_test_refuses_the_whole_json_patch() {
    let mut server = Server::new();
    server.model.apply(node("n1", &["10.0.0.4"], &[], true, &[("a", "", "NoSchedule")]), 0).expect("a node");
    let path = "/api/v1/nodes/n1";
    let add = json!([
        {"op": "test", "path": "/spec/taints/0/key", "value": "a"},
        {"op": "add", "path": "/spec/taints/-", "value": {"key": "b", "effect": "NoSchedule"}},
        {"op": "replace", "path": "/spec/taints/0/effect", "value": "NoExecute"},
        {"op": "add", "path": "/metadata/annotations", "value": {"x~/y": "1"}},
        {"op": "remove", "path": "/metadata/labels/kubernetes.io~1os"}
    ]);
    let (status, patched) = server.patch(path, JSON_PATCH, &add);
    assert_eq!(status, 200);
    assert_eq!(
        patched["spec"]["taints"],
        json!([{"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "NoSchedule"}])
    );
    assert_eq!(patched["metadata"]["labels"], json!({"kubernetes.io/hostname": "n1"}));
    let refused = json!([
        {"op": "remove", "path": "/spec/taints"},
        {"op": "test", "path": "/metadata/name", "value": "n2"}
    ]);
    assert_eq!(server.patch(path, JSON_PATCH, &refused).0, 422);
    assert_eq!(server.get(path).1["spec"]["taints"].as_array().map(Vec::len), Some(2));
    assert_eq!(server.patch(path, JSON_PATCH, &json!([{"op": "remove", "path": "/nothing"}])).0, 422);
    assert_eq!(server.patch(path, JSON_PATCH, &json!({"op": "remove"})).0, 400);
    assert_eq!(server.patch(path, JSON_PATCH, &json!([{"op": "replace", "path": "", "value": 5}])).0, 422);
}

#[test]
fn z1_a_json_patch_on_another_identity_or_version_is_422() {
    let mut server = Server::new();
    server.model.apply(node("n1", &["10.0.0.4"], &[], true, &[]), 0).expect("a node");
    let path = "/api/v1/nodes/n1";
    let (_, current) = server.get(path);
    let taint = json!({"key": "ours", "value": "yes", "effect": "NoSchedule"});
    let patch = |uid: &Value, version: &Value| {
        json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "add", "path": "/spec/taints", "value": [&taint]}
        ])
    };
    let (uid, version) = (&current["metadata"]["uid"], &current["metadata"]["resourceVersion"]);
    let (status, refusal) = server.patch(path, JSON_PATCH, &patch(&json!("another"), version));
    assert_eq!((status, &refusal["reason"]), (422, &json!("Invalid")));
    let (status, patched) = server.patch(path, JSON_PATCH, &patch(uid, version));
    assert_eq!((status, &patched["spec"]["taints"]), (200, &json!([&taint])));
    let removal = |version: &Value| {
        json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "test", "path": "/spec/taints/0/value", "value": "yes"},
            {"op": "remove", "path": "/spec/taints/0"}
        ])
    };
    assert_eq!(server.patch(path, JSON_PATCH, &removal(version)).0, 422, "it was written since");
    let version = &patched["metadata"]["resourceVersion"];
    let (status, patched) = server.patch(path, JSON_PATCH, &removal(version));
    assert_eq!((status, &patched["spec"]["taints"]), (200, &json!([])));
}

#[test]
fn z1_a_second_taint_of_the_same_key_and_effect_is_422() {
    let mut server = Server::new();
    let taints = [("drain", "a", "NoSchedule"), ("other", "", "NoExecute")];
    server.model.apply(node("n1", &["10.0.0.4"], &[], true, &taints), 0).expect("a node");
    let path = "/api/v1/nodes/n1";
    let append = |effect: &str| {
        let taint = json!({"key": "drain", "value": "b", "effect": effect});
        json!([{"op": "add", "path": "/spec/taints/-", "value": taint}])
    };
    let (status, refusal) = server.patch(path, JSON_PATCH, &append("NoSchedule"));
    assert_eq!((status, &refusal["reason"]), (422, &json!("Invalid")));
    let message = refusal["message"].as_str().expect("a message");
    let start = "Node \"n1\" is invalid: metadata.taints[2]: Duplicate value: ";
    assert!(message.starts_with(start) && message.ends_with("unique by key and effect pair"), "{message}");
    assert_eq!(server.patch(path, JSON_PATCH, &append("Never")).0, 422);
    let (status, patched) = server.patch(path, JSON_PATCH, &append("NoExecute"));
    assert_eq!((status, patched["spec"]["taints"].as_array().map(Vec::len)), (200, Some(3)));
    server.model.apply(node("n2", &["10.0.0.5"], &[], true, &[]), 0).expect("a node");
    let appended = server.patch("/api/v1/nodes/n2", JSON_PATCH, &append("NoSchedule"));
    assert_eq!(appended.0, 422, "there is no list to append to");
}

#[test]
fn z1_delete_honours_preconditions_and_returns_the_uid() {
    let mut server = Server::new();
    let (_, stored) = server.post(LEASES, &lease("lock"));
    let path = format!("{LEASES}/lock");
    let with = |body: &Value| Request::new("DELETE", &path).with_body("application/json", body);
    assert_eq!(server.send(&with(&json!({"preconditions": {"uid": "another"}}))).0, 409);
    assert_eq!(server.send(&with(&json!({"preconditions": {"resourceVersion": "1"}}))).0, 409);
    let fits = json!({"preconditions": {"uid": stored["metadata"]["uid"],
        "resourceVersion": stored["metadata"]["resourceVersion"]}});
    let (status, answer) = server.send(&with(&fits));
    assert_eq!((status, &answer["status"]), (200, &json!("Success")));
    assert_eq!(answer["details"]["uid"], stored["metadata"]["uid"]);
    assert_eq!(server.delete(&path).0, 404);
}

#[test]
fn z1_a_finalizer_delays_the_deletion_of_a_service() {
    let mut server = Server::new();
    server.service("web");
    let path = "/api/v1/namespaces/demo/services/web";
    let (status, dying) = server.delete(path);
    assert_eq!((status, dying["metadata"]["deletionTimestamp"].is_string()), (200, true));
    assert_eq!(server.get(path).0, 200);
    assert_eq!(server.patch(path, MERGE, &json!({"metadata": {"finalizers": null}})).0, 200);
    assert_eq!(server.get(path).0, 404);
}

#[test]
fn z1_a_dry_run_answers_and_stores_nothing() {
    let mut server = Server::new();
    let (status, shown) = server.post(&format!("{LEASES}?dryRun=All"), &lease("lock"));
    assert_eq!((status, &shown["metadata"]["name"]), (201, &json!("lock")));
    assert_eq!(server.get(&format!("{LEASES}/lock")).0, 404);
    assert_eq!(server.post(&format!("{LEASES}?dryRun=Some"), &lease("lock")).0, 400);
}

#[test]
fn z1_an_event_about_a_node_must_be_in_namespace_default() {
    let mut server = Server::new();
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"generateName": "n1."},
        "involvedObject": {"kind": "Node", "name": "n1"}, "reason": "R", "message": "m", "type": "Normal"});
    assert_eq!(server.post("/api/v1/namespaces/kube-public/events", &event).0, 422);
    assert_eq!(server.post("/api/v1/namespaces/default/events", &event).0, 201);
    let mut modern = json!({"metadata": {"generateName": "web."}, "regarding": {"kind": "Service", "name": "web",
        "namespace": "default"}, "eventTime": "2026-11-20T00:00:00.000000Z", "reason": "R", "action": "Write",
        "reportingController": "us", "reportingInstance": "us-0", "type": "Warning", "note": "m"});
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    assert_eq!(server.post(path, &modern).0, 201);
    modern["note"] = json!("m".repeat(1025));
    assert_eq!(server.post(path, &modern).0, 422);
}

#[test]
fn z1_times_of_a_lease_are_stored_unchanged() {
    let mut server = Server::new();
    let mut wanted = lease("lock");
    let spec = json!({"holderIdentity": "us", "leaseDurationSeconds": 60, "leaseTransitions": 3,
        "acquireTime": "2026-11-20T00:00:00.000001Z", "renewTime": "2026-11-20T01:00:00.123456Z"});
    wanted["spec"] = spec.clone();
    server.post(LEASES, &wanted);
    let path = format!("{LEASES}/lock");
    let (_, mut stored) = server.get(&path);
    assert_eq!(stored["spec"], spec);
    stored["spec"]["renewTime"] = json!("2026-11-20T02:00:00.000000Z");
    stored["metadata"]["annotations"] = json!({"aks-managed-resource-locker-previous-holder": "us"});
    let (status, replaced) = server.put(&path, &stored);
    assert_eq!((status, &replaced["spec"]), (200, &stored["spec"]));
    assert_eq!(server.get(&path).1["metadata"]["annotations"], stored["metadata"]["annotations"]);
}

#[test]
fn z1_a_repeated_event_is_patched_and_a_lost_one_is_404() {
    let mut server = Server::new();
    let path = "/api/v1/namespaces/demo/events";
    server.service("web");
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1", "namespace": "demo"},
        "involvedObject": {"kind": "Service", "name": "web", "namespace": "demo"}, "reason": "R", "message": "m",
        "type": "Warning", "count": 1, "firstTimestamp": "2026-11-20T00:00:00Z",
        "lastTimestamp": "2026-11-20T00:00:00Z", "eventTime": null, "reportingComponent": "c",
        "reportingInstance": ""});
    assert_eq!(server.post(path, &event).0, 201);
    let repeat = json!({"count": 2, "lastTimestamp": "2026-11-20T00:00:09Z", "message": "n"});
    for kind in [MERGE, STRATEGIC] {
        let (status, patched) = server.patch(&format!("{path}/web.1"), kind, &repeat);
        assert_eq!((status, &patched["count"], &patched["message"]), (200, &json!(2), &json!("n")));
        assert_eq!(patched["firstTimestamp"], "2026-11-20T00:00:00Z");
        assert_eq!(patched["lastTimestamp"], "2026-11-20T00:00:09Z");
    }
    assert_eq!(server.patch(&format!("{path}/web.2"), MERGE, &repeat).0, 404);
}

#[test]
fn z1_another_uid_is_another_object() {
    let mut server = Server::new();
    let web = service("demo", "web", &[80], &[Family::V4, Family::V6]);
    server.model.apply(web.clone(), 0).expect("a service");
    let path =
        "/api/v1/services?watch=1&resourceVersion=".to_owned() + &server.model.resource_version().to_string();
    let (watch, _) = server.watch(&path);
    let stored = server.model.get(Resource::Services, "demo", "web").expect("web");
    assert_eq!(stored["metadata"]["uid"], web["metadata"]["uid"]);
    server.model.apply(web.clone(), 0).expect("the same object");
    server.model.apply(with_uid(web, "11111111-2222-4333-8444-555555555555"), 0).expect("another");
    assert_eq!(super::event_names(&server.poll(watch)), ["DELETED web", "ADDED web"]);
    assert!(
        server.model.apply(json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}}), 0).is_err()
    );
}
