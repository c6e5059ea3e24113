//! The fault settings, and their effect on clients.

use serde_json::json;
use simulator_models::kube::{FaultEffects, Reply, Request, Resource, StreamingLists};

use super::{Server, event_names, names};

const SERVICES: &str = "/api/v1/services?watch=1";
const STREAM: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

#[test]
fn z1_a_restart_ends_watches_and_keeps_objects() {
    let mut server = Server::new();
    let rv = server.service("a");
    let (watch, _) = server.watch(&format!("{SERVICES}&resourceVersion={rv}"));
    server.service("b");
    server.model.restart();
    assert!(server.model.watch_ended(watch));
    assert_eq!(server.poll(watch).len(), 0, "what was not delivered is lost");
    assert_eq!(server.watch(&format!("{SERVICES}&resourceVersion={rv}")).1[0]["object"]["code"], 410);
    assert_eq!(names(&server.get("/api/v1/services").1), ["a", "b"]);
}

#[test]
fn z1_a_restart_invalidates_the_newest_versions() {
    let writes: [fn(&mut Server) -> u64; 2] =
        [|server| server.service("a"), |server| server.slice(0, &["n1"])];
    for last in writes {
        let mut server = Server::new();
        server.service("a");
        server.slice(0, &["n1"]);
        let newest = last(&mut server).max(server.model.resource_version());
        server.model.restart();
        for path in [SERVICES.to_owned(), format!("{}?watch=1", super::SLICES)] {
            let (watch, event_names) = server.watch(&format!("{path}&resourceVersion={newest}"));
            assert_eq!(event_names[0]["object"]["code"], 410, "{path}");
            assert!(server.model.watch_ended(watch));
        }
        assert_eq!(server.model.fault_effects().expired, 2);
    }
}

#[test]
fn z1_the_model_counts_the_requests_that_meet_its_faults() {
    let mut server = Server::new();
    server.service("a");
    assert_eq!(*server.model.fault_effects(), FaultEffects::default());
    server.model.hide(Resource::Services, true);
    server.get("/api/v1/nodes");
    assert_eq!(*server.model.fault_effects(), FaultEffects::default(), "nothing is hidden of this kind");
    server.get("/api/v1/services");
    server.watch(&format!("{SERVICES}&{STREAM}"));
    server.model.slow(1);
    server.model.answer_429(1, 1);
    server.handle(&Request::new("GET", "/api/v1/nodes"));
    server.model.down(true);
    server.handle(&Request::new("GET", "/api/v1/nodes"));
    assert!(server.model.rollback(server.model.resource_version()));
    let hidden = [(Resource::Services, 2)].into();
    let expected = FaultEffects {
        refused: 1,
        slowed: 1,
        throttled: 1,
        expired: 0,
        hidden,
        rollbacks: 1,
        token_reviews: 0,
    };
    assert_eq!(*server.model.fault_effects(), expected);
}

#[test]
fn z1_compaction_leaves_running_watches_alone() {
    let mut server = Server::new();
    let rv = server.service("a");
    let (watch, _) = server.watch(&format!("{SERVICES}&resourceVersion={rv}"));
    server.service("b");
    server.model.compact();
    assert_eq!(event_names(&server.poll(watch)), ["ADDED b"]);
    assert!(!server.model.watch_ended(watch));
}

#[test]
fn z1_streaming_lists_are_refused_by_event_or_status() {
    let mut server = Server::new();
    server.service("a");
    let path = format!("{SERVICES}&{STREAM}");
    server.model.refuse_streaming_lists(StreamingLists::RefusedByErrorEvent);
    let (watch, events) = server.watch(&path);
    assert_eq!((events.len(), &events[0]["type"]), (1, &json!("ERROR")));
    assert_eq!(events[0]["object"]["code"], 500);
    assert!(server.model.watch_ended(watch));
    server.model.refuse_streaming_lists(StreamingLists::RefusedAsInvalid);
    assert_eq!(server.get(&path).0, 422);
    server.model.refuse_streaming_lists(StreamingLists::RefusedAsBadRequest);
    assert_eq!(server.get(&path).0, 400);
    assert_eq!(event_names(&server.watch(SERVICES).1), ["ADDED a"], "other watches are served");
    server.model.refuse_streaming_lists(StreamingLists::Served);
    assert_eq!(event_names(&server.watch(&path).1), ["ADDED a", "BOOKMARK -"]);
}

#[test]
fn z1_the_next_requests_are_answered_429_as_plain_text() {
    let mut server = Server::new();
    server.model.answer_429(2, 1);
    let health = server.handle(&Request::new("GET", "/readyz"));
    assert!(matches!(health, Reply::Answer { status: 200, .. }), "health is exempt");
    for path in ["/api/v1/services", SERVICES] {
        let reply = server.handle(&Request::new("GET", path));
        let Reply::Answer { status, headers, body, .. } = reply else { panic!("an answer") };
        assert_eq!(status, 429);
        assert!(headers.contains(&("retry-after".to_owned(), "1".to_owned())));
        assert!(headers.contains(&("content-type".to_owned(), "text/plain; charset=utf-8".to_owned())));
        assert!(serde_json::from_slice::<serde_json::Value>(&body).is_err(), "no Status object");
    }
    assert_eq!(server.get("/api/v1/services").0, 200);
}

#[test]
fn z1_a_forbidden_kind_is_403_for_every_verb_until_permitted() {
    let mut server = Server::new();
    server.model.forbid(Resource::Leases);
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/lock";
    let (status, refusal) = server.get(path);
    assert_eq!((status, &refusal["reason"]), (403, &json!("Forbidden")));
    assert_eq!(
        refusal["message"],
        "leases.coordination.k8s.io \"lock\" is forbidden: User \
         \"system:serviceaccount:kube-system:azure-backend-pool-controller\" cannot get resource \"leases\" in API \
         group \"coordination.k8s.io\" in the namespace \"kube-system\""
    );
    assert_eq!(server.get("/apis/coordination.k8s.io/v1/leases?watch=1").0, 403);
    assert_eq!(server.delete(path).0, 403);
    server.model.permit(Resource::Leases);
    assert_eq!(server.get(path).0, 404);
}

#[test]
fn z1_a_stopped_server_refuses_and_keeps_its_history() {
    let mut server = Server::new();
    let rv = server.service("a");
    let (watch, _) = server.watch(&format!("{SERVICES}&resourceVersion={rv}"));
    server.model.down(true);
    assert!(server.model.is_down() && server.model.watch_ended(watch));
    assert_eq!(server.handle(&Request::new("GET", "/readyz")), Reply::Refused);
    server.service("b");
    server.model.down(false);
    assert_eq!(event_names(&server.watch(&format!("{SERVICES}&resourceVersion={rv}")).1), ["ADDED b"]);
}

#[test]
fn z1_a_lagging_server_has_late_watches_and_stale_lists() {
    let mut server = Server::new();
    let rv = server.service("a");
    server.now = 10_000_000;
    server.model.lag(2_000_000);
    let (watch, _) = server.watch(&format!("{SERVICES}&resourceVersion={rv}"));
    let fresh = server.service("b");
    assert_eq!(server.poll(watch).len(), 0);
    assert_eq!(server.model.watch_deadline(watch, server.now), Some(12_000_000));
    assert_eq!(names(&server.get("/api/v1/services?resourceVersion=0").1), ["a"]);
    assert_eq!(server.get("/api/v1/namespaces/demo/services/b?resourceVersion=0").0, 404);
    assert_eq!(names(&server.get("/api/v1/services").1), ["a", "b"], "most recent is most recent");
    let at_least = format!("/api/v1/services?resourceVersion={fresh}&resourceVersionMatch=NotOlderThan");
    assert_eq!(names(&server.get(&at_least).1), ["a", "b"]);
    let (stale, first) = server.watch(&format!("{SERVICES}&resourceVersion=0"));
    assert_eq!(event_names(&first), ["ADDED a"]);
    server.now = 12_000_000;
    assert_eq!(event_names(&server.poll(watch)), ["ADDED b"]);
    assert_eq!(event_names(&server.poll(stale)), ["ADDED b"]);
    assert_eq!(names(&server.get("/api/v1/services?resourceVersion=0").1), ["a", "b"]);
}

#[test]
fn z1_a_slow_server_has_a_delay_for_each_answer() {
    let mut server = Server::new();
    server.model.slow(250_000);
    let reply = server.handle(&Request::new("GET", "/api/v1/services"));
    assert!(matches!(reply, Reply::Answer { after_us: 250_000, .. }), "{reply:?}");
}

#[test]
fn z1_garbage_can_be_planted_into_a_running_watch() {
    let mut server = Server::new();
    let (watch, _) = server.watch(SERVICES);
    assert_eq!(server.model.open_watches(), [(watch, Resource::Services, None)]);
    server.model.raw_line(watch, b"{\"type\":\"ADD");
    assert_eq!(server.model.watch_deadline(watch, 7), Some(7));
    let lines = server.model.poll_watch(watch, 0);
    assert_eq!(lines.iter().map(AsRef::as_ref).collect::<Vec<&[u8]>>(), [b"{\"type\":\"ADD".as_slice()]);
    assert!(!server.model.watch_ended(watch));
}

#[test]
fn z1_a_restored_etcd_shows_the_older_state() {
    let mut server = Server::new();
    server.service("a");
    let to = server.slice(0, &["n1"]);
    let slice = server.get(super::SLICES).1;
    server.slice(0, &["n2"]);
    server.service("b");
    let path = "/api/v1/namespaces/demo/services/a";
    server.patch(path, "application/merge-patch+json", &json!({"metadata": {"finalizers": null}}));
    server.delete(path);
    let newest = server.model.resource_version();
    let (watch, _) = server.watch(SERVICES);
    assert!(!server.model.rollback(newest + 1), "the future cannot be restored");
    assert!(server.model.rollback(to));
    assert!(server.model.watch_ended(watch));
    assert_eq!(names(&server.get("/api/v1/services").1), ["a"]);
    assert_eq!(server.get(super::SLICES).1, slice);
    assert_eq!(server.model.resource_version(), to);
    let ahead = format!("/api/v1/services?resourceVersion={newest}&resourceVersionMatch=NotOlderThan");
    assert_eq!(server.get(&ahead).0, 504);
    let (hung, first) = server.watch(&format!("{SERVICES}&resourceVersion={newest}"));
    assert_eq!((first.len(), server.service("c")), (0, to + 1));
    assert_eq!(server.poll(hung).len(), 0, "a watch from the lost future hangs");
}

#[test]
fn z1_a_hidden_kind_is_listed_and_streamed_as_empty() {
    let mut server = Server::new();
    server.service("a");
    let before = server.watch(&format!("{SERVICES}&resourceVersion={}", server.model.resource_version())).0;
    server.model.hide(Resource::Services, true);
    assert_eq!(names(&server.get("/api/v1/services").1), Vec::<&str>::new());
    let (_, streamed) = server.watch(&format!("{SERVICES}&{STREAM}"));
    assert!(streamed.iter().all(|event| event["type"] == "BOOKMARK"), "{streamed:?}");
    assert_eq!(server.get("/api/v1/namespaces/demo/services/a").0, 200);
    server.service("b");
    assert_eq!(event_names(&server.poll(before)), ["ADDED b"], "running watches continue");
    server.model.hide(Resource::Services, false);
    assert_eq!(names(&server.get("/api/v1/services").1), ["a", "b"]);
}
