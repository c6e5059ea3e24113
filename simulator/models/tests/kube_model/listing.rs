//! Lists, reads, paging, selectors, discovery and reviews.

use serde_json::json;
use simulator_models::kube::build::node;
use simulator_models::kube::{Reply, Request, Resource, rfc3339};

use super::{SLICES, Server, names, version_of};

#[test]
fn z1_items_of_a_list_have_no_kind_of_their_own() {
    let mut server = Server::new();
    let rv = server.slice(0, &["n1"]);
    let (status, list) = server.get("/apis/discovery.k8s.io/v1/endpointslices");
    assert_eq!(status, 200);
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("EndpointSliceList"), &json!("discovery.k8s.io/v1"))
    );
    assert_eq!(version_of(&list), rv);
    assert_eq!(list["items"][0].get("kind"), None);
    assert_eq!(list["items"][0]["endpoints"][0]["nodeName"], "n1");
    assert_eq!(names(&server.get("/apis/discovery.k8s.io/v1/namespaces/other/endpointslices").1), [""; 0]);
}

#[test]
fn z1_paging_shows_one_state_and_the_token_expires_with_history() {
    let mut server = Server::new();
    for name in ["a", "b", "c", "d", "e"] {
        server.service(name);
    }
    let path = "/api/v1/namespaces/demo/services?limit=2";
    let (_, first) = server.get(path);
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(3)));
    server.service("bb");
    let gone = "/api/v1/namespaces/demo/services/d";
    server.patch(gone, "application/merge-patch+json", &json!({"metadata": {"finalizers": null}}));
    server.delete(gone);
    let token = first["metadata"]["continue"].as_str().expect("a token").to_owned();
    let (_, second) = server.get(&format!("{path}&continue={token}"));
    assert_eq!((names(&second), version_of(&second)), (vec!["c", "d"], version_of(&first)));
    let token = second["metadata"]["continue"].as_str().expect("a token").to_owned();
    let (_, third) = server.get(&format!("{path}&continue={token}"));
    assert_eq!((names(&third), third["metadata"].get("continue")), (vec!["e"], None));
    server.model.compact();
    let (status, expired) = server.get(&format!("{path}&continue={token}"));
    assert_eq!((status, &expired["reason"]), (410, &json!("Expired")));
    assert_eq!(server.get(&format!("{path}&continue=zz")).0, 400);
}

#[test]
fn z1_a_list_for_any_version_ignores_the_limit() {
    let mut server = Server::new();
    for name in ["a", "b", "c"] {
        server.service(name);
    }
    assert_eq!(names(&server.get("/api/v1/services?limit=1&resourceVersion=0").1), ["a", "b", "c"]);
}

#[test]
fn z1_a_list_not_older_than_the_future_is_504_after_3_s() {
    let mut server = Server::new();
    server.service("web");
    let request =
        Request::new("GET", "/api/v1/services?resourceVersion=9999&resourceVersionMatch=NotOlderThan");
    let Reply::Answer { status, after_us, headers, .. } = server.handle(&request) else {
        panic!("an answer")
    };
    assert_eq!((status, after_us), (504, 3_000_000));
    assert!(headers.contains(&("retry-after".to_owned(), "1".to_owned())));
    let (_, refusal) = server.send(&request);
    assert_eq!(refusal["reason"], "Timeout");
    assert_eq!(refusal["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(server.get("/api/v1/namespaces/demo/services/web?resourceVersion=9999").0, 504);
}

#[test]
fn z1_an_exact_list_shows_the_past_until_it_is_compacted() {
    let mut server = Server::new();
    let rv = server.service("a");
    server.service("b");
    let path = format!("/api/v1/services?resourceVersion={rv}&resourceVersionMatch=Exact");
    assert_eq!(names(&server.get(&path).1), ["a"]);
    server.model.compact();
    assert_eq!(server.get(&path).0, 410);
}

#[test]
fn z1_options_that_exclude_each_other_are_422() {
    let mut server = Server::new();
    for query in [
        "resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=Exact&resourceVersion=0",
        "resourceVersionMatch=Perhaps&resourceVersion=3",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        "watch=1&resourceVersionMatch=NotOlderThan",
        "watch=1&sendInitialEvents=true",
    ] {
        let (status, refusal) = server.get(&format!("/api/v1/services?{query}"));
        assert_eq!((status, &refusal["reason"]), (422, &json!("Invalid")), "{query}");
    }
    assert_eq!(server.get("/api/v1/services?resourceVersion=x").0, 400);
}

#[test]
fn z1_label_and_field_selectors_choose_items() {
    let mut server = Server::new();
    for name in ["a", "b"] {
        server.service(name);
    }
    for (query, expected) in [
        ("labelSelector=app%3Da", vec!["a"]),
        ("labelSelector=app!=a", vec!["b"]),
        ("labelSelector=app", vec!["a", "b"]),
        ("labelSelector=!app", vec![]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=spec.type=ClusterIP", vec![]),
        ("fieldSelector=metadata.namespace=demo&labelSelector=app==b", vec!["b"]),
    ] {
        assert_eq!(names(&server.get(&format!("/api/v1/services?{query}")).1), expected, "{query}");
    }
    assert_eq!(server.get("/api/v1/services?labelSelector=app+in+(a)").0, 400);
    assert_eq!(server.get("/api/v1/services?fieldSelector=spec.nothing=1").0, 400);
}

#[test]
fn z1_events_are_listed_by_object_kind_and_type_in_pages() {
    let mut server = Server::new();
    for (name, kind, sort) in [
        ("a", "Service", "Warning"),
        ("b", "Pod", "Warning"),
        ("c", "Service", "Normal"),
        ("d", "Service", "Warning"),
    ] {
        let event = json!({"metadata": {"name": name}, "involvedObject": {"kind": kind, "name": "x",
            "namespace": "default"}, "reason": "R", "message": "m", "type": sort});
        assert_eq!(server.post("/api/v1/namespaces/default/events", &event).0, 201);
    }
    let path = "/api/v1/events?fieldSelector=involvedObject.kind%3DService%2Ctype%3DWarning";
    assert_eq!(names(&server.get(path).1), ["a", "d"]);
    let (_, first) = server.get(&format!("{path}&limit=1"));
    assert_eq!(names(&first), ["a"]);
    let token = first["metadata"]["continue"].as_str().expect("a token");
    assert_eq!(names(&server.get(&format!("{path}&limit=1&continue={token}")).1), ["d"]);
}

#[test]
fn z1_unknown_paths_methods_and_renderings_are_refused() {
    let mut server = Server::new();
    for path in ["/api/v1/pods", "/apis/apps/v1/deployments", "/", "/api/v1/namespaces/demo/nodes", SLICES] {
        let reply = server.handle(&Request::new("GET", path));
        let Reply::Answer { status, body, .. } = reply else { panic!("an answer to {path}") };
        if path == SLICES {
            assert_eq!(status, 200);
        } else {
            assert_eq!((status, body.as_slice()), (404, b"404 page not found\n".as_slice()), "{path}");
        }
    }
    assert_eq!(server.delete("/api/v1/services").0, 405);
    let mut table = Request::new("GET", "/api/v1/services");
    table.headers.push(("Accept".to_owned(), "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned()));
    assert_eq!(server.send(&table).0, 406);
    table.headers[0].1.push_str(",application/json");
    assert_eq!(server.send(&table).0, 200);
    let text = Request::new("POST", SLICES).with_body("text/plain", &json!({}));
    assert_eq!(server.send(&text).0, 415);
}

#[test]
fn z1_health_version_discovery_and_reviews_are_answered() {
    let mut server = Server::new();
    for path in ["/readyz", "/livez"] {
        let reply = server.handle(&Request::new("GET", path));
        assert!(matches!(reply, Reply::Answer { status: 200, ref body, .. } if body == b"ok"), "{reply:?}");
    }
    assert_eq!(server.get("/version").1["minor"], "36");
    assert_eq!(server.get("/api").1["versions"], json!(["v1"]));
    assert!(server.get("/apis").1["groups"].to_string().contains("discovery.k8s.io/v1"));
    assert!(server.get("/apis/coordination.k8s.io/v1").1["resources"].to_string().contains("\"leases\""));
    let access = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let ask = json!({"spec": {"resourceAttributes": {"group": "coordination.k8s.io", "resource": "leases"}}});
    assert_eq!(server.post(access, &ask).1["status"]["allowed"], true);
    server.model.forbid(Resource::Leases);
    assert_eq!(server.post(access, &ask).1["status"]["allowed"], false);
    let token = "/apis/authentication.k8s.io/v1/tokenreviews";
    assert_eq!(server.post(token, &json!({"spec": {"token": "t"}})).1["status"]["authenticated"], true);
    assert_eq!(server.post(token, &json!({"spec": {}})).1["status"]["authenticated"], false);
    assert_eq!(server.model.fault_effects().token_reviews, 2);
}

#[test]
fn z1_users_with_own_tokens_have_the_permissions_of_their_rules() {
    let mut server = Server::new();
    let mut allowed = |token: &str, verb: &str, path: &str| {
        let review = json!({"spec": {"token": token}});
        let (_, judged) = server.post("/apis/authentication.k8s.io/v1/tokenreviews", &review);
        let user = judged["status"]["user"]["username"].clone();
        let ask = json!({"spec": {"user": user, "nonResourceAttributes": {"verb": verb, "path": path}}});
        let (_, judged) = server.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &ask);
        judged["status"]["allowed"] == true
    };
    assert!(!allowed("outsiders-token", "get", "/api/v1/status"));
    assert!(
        allowed("discoverers-token", "get", "/api/v1/status") && allowed("discoverers-token", "get", "/api")
    );
    assert!(!allowed("discoverers-token", "post", "/api/v1/status"));
    assert!(!allowed("discoverers-token", "get", "/azure-backend-pool-controller/api/v1/status"));
    assert!(allowed("readers-token", "get", "/azure-backend-pool-controller/"));
    assert!(!allowed("readers-token", "get", "/azure-backend-pool-controller"));
    assert!(!allowed("readers-token", "post", "/azure-backend-pool-controller/api/v1/pause"));
    assert!(allowed("any-other-token", "post", "/azure-backend-pool-controller/api/v1/pause"));
}

#[test]
fn z1_times_are_printed_as_the_server_prints_them() {
    for (seconds, text) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (1_795_149_447, "2026-11-20T04:37:27Z"),
        (4_102_444_799, "2099-12-31T23:59:59Z"),
    ] {
        assert_eq!(rfc3339(seconds), text);
    }
}

#[test]
fn z1_objects_can_be_read_without_http() {
    let mut server = Server::new();
    let n1 = node("n1", &["10.0.0.4", "fd00::4"], &[("zone", "1")], false, &[]);
    server.model.apply(n1, 0).expect("a node");
    let stored = server.model.get(Resource::Nodes, "", "n1").expect("n1");
    assert_eq!(stored["metadata"]["labels"]["zone"], "1");
    assert_eq!(server.model.list(Resource::Nodes).count(), 1);
    assert!(server.model.delete(Resource::Nodes, "", "n1", 0));
    assert!(!server.model.delete(Resource::Nodes, "", "n1", 0));
}
