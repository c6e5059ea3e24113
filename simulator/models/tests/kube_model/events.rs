//! Events: both groups show one store, each in its own form.

use serde_json::{Value, json};
use simulator_models::kube::Resource;
use simulator_models::kube::build::{node_event, node_event_v1};

use super::{Server, event_names, names, version_of};

const CORE: &str = "/api/v1/namespaces/default/events";
const MODERN: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const MERGE: &str = "application/merge-patch+json";
const SELECTED: &str =
    "/api/v1/events?watch=1&fieldSelector=involvedObject.kind%3DNode%2Creason%3DPreemptScheduled";

fn old(name: &str, node: &str, reason: &str) -> Value {
    node_event(name, node, reason, "soon", "2026-11-20T00:00:05Z")
}

fn modern(name: &str, node: &str, reason: &str) -> Value {
    node_event_v1(name, node, reason, "soon", "2026-11-20T00:00:05.000000Z")
}

#[test]
fn z1_an_event_of_one_group_is_readable_through_the_other() {
    let mut server = Server::new();
    let mut event = modern("n1.1", "n1", "PreemptScheduled");
    event["series"] = json!({"count": 3, "lastObservedTime": "2026-11-20T00:00:09.000000Z"});
    assert_eq!(server.post(MODERN, &event).0, 201);
    let (status, core) = server.get(&format!("{CORE}/n1.1"));
    assert_eq!((status, &core["apiVersion"], &core["kind"]), (200, &json!("v1"), &json!("Event")));
    assert_eq!((&core["message"], &core["involvedObject"]), (&json!("soon"), &event["regarding"]));
    assert_eq!((&core["series"], &core["eventTime"]), (&event["series"], &event["eventTime"]));
    assert_eq!(core["reportingComponent"], event["reportingController"]);
    for unset in ["firstTimestamp", "lastTimestamp"] {
        assert_eq!(core.get(unset), Some(&Value::Null), "{unset} is written nevertheless");
    }
    assert_eq!((core.get("source"), core.get("note"), core.get("count")), (Some(&json!({})), None, None));

    assert_eq!(server.post(CORE, &old("n2.1", "n2", "Rebooted")).0, 201);
    let (_, shown) = server.get(&format!("{MODERN}/n2.1"));
    assert_eq!(shown["apiVersion"], "events.k8s.io/v1");
    assert_eq!((&shown["note"], &shown["deprecatedCount"]), (&json!("soon"), &json!(1)));
    assert_eq!(shown["deprecatedLastTimestamp"], "2026-11-20T00:00:05Z");
    assert_eq!(shown["deprecatedSource"]["host"], "n2");
    assert_eq!(shown["regarding"]["name"], "n2");
    for gone in ["message", "involvedObject", "source", "count", "lastTimestamp", "reportingComponent"] {
        assert_eq!(shown.get(gone), None, "{gone}");
    }
}

#[test]
fn z1_both_groups_share_names_lists_and_deletions() {
    let mut server = Server::new();
    assert_eq!(server.post(MODERN, &modern("n1.1", "n1", "R")).0, 201);
    assert_eq!(server.post(CORE, &old("n2.1", "n2", "R")).0, 201);
    let (status, refusal) = server.post(CORE, &old("n1.1", "n1", "R"));
    assert_eq!((status, &refusal["reason"]), (409, &json!("AlreadyExists")));
    for (path, word) in [(CORE, "v1"), (MODERN, "events.k8s.io/v1")] {
        let (_, list) = server.get(path);
        assert_eq!((names(&list), &list["apiVersion"]), (vec!["n1.1", "n2.1"], &json!(word)));
        assert_eq!(list["items"][0].get("apiVersion"), None);
    }
    let kinds = [Resource::Events, Resource::EventsV1];
    assert_eq!(kinds.map(|kind| server.model.list(kind).count()), [2, 2]);
    assert_eq!(server.delete(&format!("{CORE}/n1.1")).0, 200);
    assert_eq!(server.get(&format!("{MODERN}/n1.1")).0, 404);
    assert_eq!(server.model.get(Resource::EventsV1, "default", "n1.1"), None);
}

#[test]
fn z1_a_write_through_one_group_keeps_the_others_fields() {
    let mut server = Server::new();
    let mut event = modern("n1.1", "n1", "R");
    event["deprecatedSource"] = json!({"component": "c"});
    server.post(MODERN, &event);
    let repeat = json!({"count": 7, "lastTimestamp": "2026-11-20T00:01:00Z"});
    let (status, patched) = server.patch(&format!("{CORE}/n1.1"), MERGE, &repeat);
    assert_eq!((status, &patched["count"], &patched["source"]), (200, &json!(7), &json!({"component": "c"})));
    let (_, shown) = server.get(&format!("{MODERN}/n1.1"));
    assert_eq!((&shown["deprecatedCount"], &shown["note"]), (&json!(7), &json!("soon")));
    let (status, patched) = server.patch(&format!("{MODERN}/n1.1"), MERGE, &json!({"note": "now"}));
    assert_eq!((status, &patched["note"], &patched["deprecatedCount"]), (200, &json!("now"), &json!(7)));
    let (_, core) = server.get(&format!("{CORE}/n1.1"));
    assert_eq!((&core["message"], &core["count"]), (&json!("now"), &json!(7)));
    let before = server.model.resource_version();
    let (_, again) = server.put(&format!("{MODERN}/n1.1"), &patched);
    assert_eq!(
        (version_of(&again), server.model.resource_version()),
        (before, before),
        "nothing has changed"
    );
    let (_, again) = server.put(&format!("{CORE}/n1.1"), &core);
    assert_eq!((version_of(&again), server.model.resource_version()), (before, before), "nor here");
}

#[test]
fn z1_a_watch_of_one_group_shows_events_of_both() {
    let mut server = Server::new();
    server.post(CORE, &old("n1.0", "n1", "Rebooted"));
    let (watch, first) = server.watch(SELECTED);
    assert_eq!(event_names(&first), [""; 0]);
    server.post(CORE, &old("n1.1", "n1", "PreemptScheduled"));
    server.post(MODERN, &modern("n2.1", "n2", "PreemptScheduled"));
    server.post(MODERN, &modern("n2.2", "n2", "RebootScheduled"));
    let about_a_service = json!({"kind": "Service", "name": "n3", "namespace": "default"});
    let mut other = old("n3.1", "n3", "PreemptScheduled");
    other["involvedObject"] = about_a_service;
    server.post(CORE, &other);
    let events = server.poll(watch);
    assert_eq!(event_names(&events), ["ADDED n1.1", "ADDED n2.1"]);
    for event in &events {
        assert_eq!(
            (&event["object"]["apiVersion"], &event["object"]["message"]),
            (&json!("v1"), &json!("soon"))
        );
    }
    server.patch(&format!("{MODERN}/n2.1"), MERGE, &json!({"note": "now"}));
    server.patch(&format!("{CORE}/n1.1"), MERGE, &json!({"reason": "Other"}));
    server.delete(&format!("{MODERN}/n2.1"));
    let events = server.poll(watch);
    assert_eq!(event_names(&events), ["MODIFIED n2.1", "DELETED n1.1", "DELETED n2.1"]);
    assert_eq!(events[0]["object"]["message"], "now");
    assert_eq!(names(&server.get(&SELECTED.replace("watch=1&", "")).1), [""; 0]);
}

#[test]
fn z1_a_watch_of_the_other_group_selects_by_its_own_names() {
    let mut server = Server::new();
    let path =
        "/apis/events.k8s.io/v1/events?watch=1&fieldSelector=regarding.kind=Node,reason=PreemptScheduled";
    assert_eq!(server.post(CORE, &old("n1.1", "n1", "PreemptScheduled")).0, 201);
    let (_, first) = server.watch(path);
    assert_eq!(event_names(&first), ["ADDED n1.1"]);
    assert_eq!((&first[0]["object"]["note"], first[0]["object"].get("message")), (&json!("soon"), None));
    let version = version_of(&first[0]["object"]);
    server.patch(&format!("{CORE}/n1.1"), MERGE, &json!({"count": 2}));
    server.delete(&format!("{CORE}/n1.1"));
    let (_, missed) = server.watch(&format!("{path}&resourceVersion={version}"));
    assert_eq!(event_names(&missed), ["MODIFIED n1.1", "DELETED n1.1"]);
    assert_eq!(missed[0]["object"]["deprecatedCount"], 2);
    let wrong = "/apis/events.k8s.io/v1/events?fieldSelector=involvedObject.kind=Node";
    let (status, refusal) = server.get(wrong);
    assert_eq!(
        (status, &refusal["message"]),
        (400, &json!("field label not supported: involvedObject.kind"))
    );
}

#[test]
fn z1_permissions_are_per_group() {
    let mut server = Server::new();
    server.post(MODERN, &modern("n1.1", "n1", "R"));
    server.model.forbid(Resource::Events);
    assert_eq!((server.get(CORE).0, server.get(MODERN).0), (403, 200));
}

#[test]
fn z1_scenarios_write_events_in_the_form_of_either_group() {
    let mut server = Server::new();
    let rv = server.model.apply(modern("n1.1", "n1", "R"), 0).expect("an event");
    assert_eq!(server.model.apply(modern("n1.1", "n1", "R"), 0), Ok(rv), "an equal object changes nothing");
    let core = server.model.get(Resource::Events, "default", "n1.1").expect("it is there");
    assert_eq!((&core["message"], version_of(&core)), (&json!("soon"), rv));
    assert_eq!(server.model.apply(core, 0), Ok(rv), "nor does it in the other words");
    assert!(server.model.apply(old("n1.1", "n1", "R"), 0).is_ok_and(|newer| newer > rv));
}
