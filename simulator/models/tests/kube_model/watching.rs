//! Watches: their events, the order of these, and their end.

use std::sync::Arc;

use serde_json::json;
use simulator_models::kube::{Reply, Request, Settings};

use super::{Server, event_names, version_of};

const ALL: &str = "/apis/discovery.k8s.io/v1/endpointslices?watch=true";
const SERVICES: &str = "/api/v1/services?watch=1";
const STREAM: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

#[test]
fn z1_a_watch_shows_changes_and_moves_the_revision() {
    let mut server = Server::new();
    let rv = server.service("a");
    server.service("b");
    let (watch, first) = server.watch(&format!("{SERVICES}&resourceVersion={rv}"));
    assert_eq!(event_names(&first), ["ADDED b"]);
    let before = server.model.revision();
    assert_eq!(event_names(&server.poll(watch)), [""; 0]);
    assert_eq!(server.model.revision(), before, "polling changes nothing");
    server.slice(0, &["n1"]);
    server.delete("/api/v1/namespaces/demo/services/a");
    assert!(server.model.revision() > before);
    let events = server.poll(watch);
    assert_eq!(event_names(&events), ["MODIFIED a"]);
    assert_eq!(version_of(&events[0]["object"]), server.model.resource_version());
    assert!(!server.model.watch_ended(watch));
    server.model.close_watch(watch);
    assert!(server.model.watch_ended(watch));
}

#[test]
fn z1_a_watch_without_version_begins_with_existing_objects() {
    for query in ["", "&resourceVersion=0", "&resourceVersion="] {
        let mut server = Server::new();
        server.service("b");
        server.service("a");
        assert_eq!(
            event_names(&server.watch(&format!("{SERVICES}{query}")).1),
            ["ADDED a", "ADDED b"],
            "{query}"
        );
    }
}

#[test]
fn z1_a_streaming_list_ends_with_an_annotated_bookmark() {
    let mut server = Server::new();
    server.slice(0, &["n1"]);
    let rv = server.slice(1, &["n2"]);
    let (watch, events) = server.watch(&format!("{ALL}&{STREAM}"));
    assert_eq!(events.len(), 3);
    assert_eq!((&events[0]["type"], &events[1]["type"]), (&json!("ADDED"), &json!("ADDED")));
    assert_eq!(
        events[2],
        json!({"type": "BOOKMARK", "object": {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
            "metadata": {"resourceVersion": rv.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}},
            "addressType": "", "endpoints": null, "ports": null}})
    );
    server.slice(1, &["n3"]);
    assert_eq!(server.poll(watch)[0]["type"], "MODIFIED");
    let (_, without) =
        server.watch(&format!("{ALL}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"));
    assert_eq!(without.len(), 2, "no bookmark where none is allowed");
    let (_, quiet) =
        server.watch(&format!("{ALL}&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"));
    assert_eq!(quiet.len(), 0);
}

#[test]
fn z1_each_kind_has_a_bookmark_that_is_json() {
    let mut server = Server::new();
    for path in [
        "/api/v1/services",
        "/api/v1/nodes",
        "/api/v1/events",
        "/api/v1/namespaces",
        "/api/v1/configmaps",
        "/api/v1/secrets",
        "/apis/coordination.k8s.io/v1/leases",
        "/apis/events.k8s.io/v1/events",
    ] {
        let (_, events) = server.watch(&format!("{path}?watch=1&{STREAM}"));
        assert_eq!(events.last().map(|event| &event["type"]), Some(&json!("BOOKMARK")), "{path}");
    }
}

#[test]
fn z1_bookmarks_come_periodically_and_before_the_end_of_a_watch() {
    let mut server = Server::new();
    let rv = server.service("a");
    let (watch, _) =
        server.watch(&format!("{SERVICES}&resourceVersion={rv}&allowWatchBookmarks=true&timeoutSeconds=90"));
    assert_eq!(server.model.watch_deadline(watch, server.now), Some(60_000_000));
    server.slice(0, &["n1"]);
    server.now = 60_000_000;
    let events = server.poll(watch);
    assert_eq!(event_names(&events), ["BOOKMARK -"]);
    assert_eq!(version_of(&events[0]["object"]), server.model.resource_version());
    assert_eq!(server.model.watch_deadline(watch, server.now), Some(88_000_000));
    server.now = 88_000_000;
    assert_eq!(event_names(&server.poll(watch)), ["BOOKMARK -"]);
    assert_eq!(server.model.watch_deadline(watch, server.now), Some(90_000_000));
    server.now = 90_000_000;
    server.service("b");
    assert_eq!(event_names(&server.poll(watch)), ["ADDED b"], "events before the end are sent");
    assert!(server.model.watch_ended(watch));
    assert_eq!(server.model.watch_deadline(watch, server.now), None);
}

#[test]
fn z1_a_watch_without_timeout_ends_by_itself() {
    let mut server = Server::with(Settings { watch_timeout_us: 3_000_000, ..Settings::default() });
    let (watch, _) = server.watch(SERVICES);
    let end = server.model.watch_deadline(watch, 0).expect("an end");
    assert!((3_000_000..6_000_000).contains(&end), "{end}");
}

#[test]
fn z1_a_watch_from_before_the_history_ends_with_410() {
    let mut server = Server::new();
    let old = server.service("a");
    let new = server.service("b");
    server.model.compact();
    let (watch, events) = server.watch(&format!("{SERVICES}&resourceVersion={old}"));
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["type"], "ERROR");
    let status = &events[0]["object"];
    assert_eq!((&status["reason"], &status["code"]), (&json!("Expired"), &json!(410)));
    assert_eq!(status["message"], format!("too old resource version: {old} ({new})"));
    assert!(server.model.watch_ended(watch));
    assert_eq!(server.watch(&format!("{SERVICES}&resourceVersion={new}")).1.len(), 0);
}

#[test]
fn z1_a_watch_from_the_future_hangs_silently() {
    let mut server = Server::new();
    let rv = server.service("a");
    let (watch, first) = server.watch(&format!("{SERVICES}&resourceVersion={}", rv + 1));
    assert_eq!(first.len(), 0);
    server.service("b");
    assert_eq!(server.poll(watch).len(), 0, "b is not after the wanted version");
    server.service("c");
    assert_eq!(event_names(&server.poll(watch)), ["ADDED c"]);
}

#[test]
fn z1_entering_or_leaving_a_selector_adds_or_deletes() {
    let mut server = Server::new();
    let rv = server.service("a");
    let path = "/api/v1/namespaces/demo/services/a";
    let merge = "application/merge-patch+json";
    let (watch, _) = server.watch(&format!("{SERVICES}&resourceVersion={rv}&labelSelector=team%3Dx"));
    let label = |value: &serde_json::Value| json!({"metadata": {"labels": {"team": value}}});
    server.patch(path, merge, &label(&json!("y")));
    server.patch(path, merge, &label(&json!("x")));
    server.patch(path, merge, &json!({"spec": {"sessionAffinity": "ClientIP"}}));
    server.patch(path, merge, &label(&json!(null)));
    let events = server.poll(watch);
    assert_eq!(event_names(&events), ["ADDED a", "MODIFIED a", "DELETED a"]);
    assert_eq!(version_of(&events[2]["object"]), server.model.resource_version());
    assert_eq!(events[2]["object"]["metadata"]["labels"]["team"], "x", "the last version that matched");
}

#[test]
fn z1_a_watch_of_one_name_gets_no_other_events() {
    let mut server = Server::new();
    let (watch, _) = server.watch(
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?watch=1&fieldSelector=metadata.name%3Dlock",
    );
    for (namespace, name) in [("kube-system", "lock"), ("kube-system", "other"), ("default", "lock")] {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        assert_eq!(server.post(&path, &json!({"metadata": {"name": name}})).0, 201);
    }
    let events = server.poll(watch);
    assert_eq!(event_names(&events), ["ADDED lock"]);
    assert_eq!(events[0]["object"]["metadata"]["namespace"], "kube-system");
}

#[test]
fn z1_a_lease_is_awaited_by_name_until_it_changes_or_times_out() {
    let mut server = Server::new();
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let (_, mut lease) =
        server.post(path, &json!({"metadata": {"name": "lock"}, "spec": {"holderIdentity": "us"}}));
    server.post(path, &json!({"metadata": {"name": "other"}}));
    let query = "watch=true&fieldSelector=metadata.name%3Dlock&timeoutSeconds=30&resourceVersion=";
    let (watch, first) = server.watch(&format!("{path}?{query}{}", version_of(&lease)));
    assert_eq!(first, Vec::<serde_json::Value>::new(), "what the version shows is not told again");
    assert_eq!(server.model.watch_deadline(watch, 0), Some(30_000_000));
    lease["spec"]["holderIdentity"] = json!("");
    assert_eq!(server.put(&format!("{path}/lock"), &lease).0, 200);
    assert_eq!(server.model.watch_deadline(watch, 0), Some(0));
    let events = server.poll(watch);
    assert_eq!(event_names(&events), ["MODIFIED lock"]);
    assert_eq!(events[0]["object"]["spec"]["holderIdentity"], "");
    server.now = 30_000_000;
    assert_eq!(event_names(&server.poll(watch)), [""; 0]);
    assert!(server.model.watch_ended(watch));
}

#[test]
fn z1_history_is_bounded_and_a_slow_watcher_is_dropped_with_410() {
    let mut server = Server::with(Settings { history_events: 4, ..Settings::default() });
    let rv = server.slice(0, &["n0"]);
    let (slow, _) = server.watch(&format!("{ALL}&resourceVersion={rv}"));
    let (quick, _) = server.watch(&format!("{ALL}&resourceVersion={rv}"));
    for node in ["n1", "n2", "n3", "n4", "n5", "n6"] {
        server.slice(0, &[node]);
        assert_eq!(server.poll(quick).len(), 1);
    }
    assert_eq!(server.poll(slow).len(), 0);
    assert!(server.model.watch_ended(slow));
    assert_eq!(server.watch(&format!("{ALL}&resourceVersion={rv}")).1[0]["object"]["code"], 410);
    let bytes = Settings { history_bytes: 1, ..Settings::default() };
    let mut server = Server::with(bytes);
    let rv = server.slice(0, &["n0"]);
    server.slice(0, &["n1"]);
    assert_eq!(server.watch(&format!("{ALL}&resourceVersion={rv}")).1[0]["type"], "ERROR");
}

#[test]
fn z1_all_watchers_share_the_bytes_of_one_event() {
    let mut server = Server::new();
    let path = format!("{ALL}&resourceVersion={}", server.model.resource_version());
    let (first, _) = server.watch(&path);
    let (second, _) = server.watch(&path);
    server.slice(0, &["n1"]);
    let (one, two) = (server.model.poll_watch(first, 0), server.model.poll_watch(second, 0));
    assert!(Arc::ptr_eq(&one[0], &two[0]));
}

#[test]
fn z1_a_refused_watch_is_an_answer() {
    let mut server = Server::new();
    let reply = server.handle(&Request::new("GET", &format!("{SERVICES}&labelSelector=a+in+(b)")));
    assert!(matches!(reply, Reply::Answer { status: 400, .. }), "{reply:?}");
}
