//! Requests for an event to an API server over loopback HTTP, and the results of the answers.

use model::ids::{NodeName, NodeUid, ServiceKey, ServiceUid};
use model::machine::Now;
use model::report::ServiceRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

fn own() -> NamespacedName {
    NamespacedName { namespace: "pools".into(), name: "azure-backend-pool-controller".into() }
}

fn variables(name: &str) -> Option<String> {
    let value = match name {
        "POD_NAME" => "controller-7f-x2",
        "POD_NAMESPACE" => "pools",
        "POD_UID" => "p-1",
        _ => return None,
    };
    Some(value.to_owned())
}

fn reporter(clock: Clock) -> Reporter {
    Reporter::new(None, Pod::from_variables(variables), &own(), clock)
}

fn event(clock: Clock, object: EventTarget) -> Event {
    let key = ServiceKey::new("shop", "web");
    Event {
        subject: Subject::Service(ServiceRef { key, uid: ServiceUid::new("u-1") }),
        severity: Severity::Warning,
        reason: "LoadBalancerBackendPoolUpdateRetrying",
        message: "text".into(),
        count: 7,
        first: clock.now().minus(Duration::from_secs(60)),
        last: clock.now(),
        object,
        is_new: true,
    }
}

/// Starts a server that answers one request with this status, these header lines and an object; returns the request
/// line, the content type and the body.
async fn write_to_server(
    event: &Event,
    status: u16,
    header: &str,
) -> ((String, String, Value), Result<Arc<str>, PostFailure>) {
    write_to_server_of(event, status, header, r#"{"metadata": {"name": "web.18a"}}"#).await
}

/// Does the same as [`write_to_server`], with this body.
async fn write_to_server_of(
    event: &Event,
    status: u16,
    header: &str,
    body: &str,
) -> ((String, String, Value), Result<Arc<str>, PostFailure>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let length = body.len();
    let answer =
        format!("HTTP/1.1 {status} X\r\n{header}content-length: {length}\r\nconnection: close\r\n\r\n{body}");
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("the client calls");
        let mut text = String::new();
        loop {
            let mut part = [0; 4096];
            let count = stream.read(&mut part).await.expect("the client writes");
            text.push_str(std::str::from_utf8(&part[..count]).expect("JSON is UTF-8"));
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let Ok(body) = serde_json::from_str(body) else { continue };
            stream.write_all(answer.as_bytes()).await.expect("the client listens");
            let content = head.lines().find_map(|line| line.strip_prefix("content-type: "));
            let first = head.lines().next().unwrap_or_default();
            return (first.to_owned(), content.unwrap_or_default().to_owned(), body);
        }
    });
    let clock = Clock::start();
    let uri = format!("http://{address}").parse().expect("a URI");
    let mut config = kube::Config::new(uri);
    config.default_retry = false;
    let client = Client::try_from(config).expect("a client");
    let written = write(&client, clock, &reporter(clock), event).await;
    (server.await.expect("the server has answered"), written)
}

#[tokio::test]
async fn e1_a_new_event_object_has_the_required_fields() {
    let clock = Clock::start();
    let ((line, content, made), written) = write_to_server(&event(clock, EventTarget::New(3)), 201, "").await;
    assert_eq!((&*line, &*content), ("POST /api/v1/namespaces/shop/events HTTP/1.1", "application/json"));
    let name = made["metadata"]["name"].as_str().expect("it has a name");
    assert!(name.starts_with("web.") && written == Ok(Arc::from(name)), "{written:?}");
    assert_eq!((&made["type"], &made["count"]), (&json!("Warning"), &json!(7)));
    assert_eq!(made["source"]["component"], "azure-backend-pool-controller");
    assert_eq!(made["reportingInstance"], "controller-7f-x2");
    let object =
        json!({ "apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "web", "uid": "u-1" });
    assert_eq!(made["involvedObject"], object);
    let time = |field: &str| made[field].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    let (first, last) = (time("firstTimestamp").expect("a time"), time("lastTimestamp").expect("a time"));
    assert!((59..=61).contains(&(last.as_second() - first.as_second())), "{made}");
    assert!(made["lastTimestamp"].as_str().is_some_and(|text| text.len() == "2026-01-02T03:04:05Z".len()));
}

#[tokio::test]
async fn e1_a_repeated_event_changes_only_its_object() {
    let clock = Clock::start();
    let ((line, content, change), written) =
        write_to_server(&event(clock, EventTarget::Existing("web.18a".into())), 200, "").await;
    assert_eq!(line, "PATCH /api/v1/namespaces/shop/events/web.18a HTTP/1.1");
    assert_eq!(content, "application/merge-patch+json");
    let fields: Vec<&String> = change.as_object().expect("an object").keys().collect();
    assert_eq!(fields, ["count", "lastTimestamp", "message"]);
    assert_eq!((&change["count"], &change["message"]), (&json!(7), &json!("text")));
    assert_eq!(written, Ok(Arc::from("web.18a")));
}

#[tokio::test]
async fn e1_each_answer_to_an_event_has_its_result() {
    let clock = Clock::start();
    let old = || EventTarget::Existing("web.18a".into());
    let transient = |after: Option<u64>| PostFailure::Transient(after.map(Duration::from_secs));
    let rows = [
        (old(), 404, "", PostFailure::Gone),
        (old(), 409, "", transient(None)),
        (old(), 429, "retry-after: 7\r\n", transient(Some(7))),
        (EventTarget::New(1), 503, "", transient(None)),
    ];
    for (object, status, header, expected) in rows {
        assert_eq!(write_to_server(&event(clock, object), status, header).await.1, Err(expected), "{status}");
    }
    let exists = write_to_server(&event(clock, EventTarget::New(1)), 409, "").await.1;
    assert!(matches!(&exists, Err(PostFailure::Exists(name)) if name.starts_with("web.")), "{exists:?}");
    for (object, status) in [(EventTarget::New(1), 404), (EventTarget::New(1), 403), (old(), 422)] {
        let refused = write_to_server(&event(clock, object), status, "").await.1;
        assert!(matches!(refused, Err(PostFailure::Final(_))), "{status}: {refused:?}");
    }
}

#[tokio::test]
async fn e1_a_success_without_the_object_is_retried() {
    let clock = Clock::start();
    for (object, status) in [(EventTarget::New(1), 201), (EventTarget::Existing("web.18a".into()), 200)] {
        for body in ["", " ", "{}", "<html>hello</html>", r#"{"kind": "Event", "metadata": 7}"#] {
            let event = event(clock, object.clone());
            let written = write_to_server_of(&event, status, "", body).await.1;
            assert_eq!(written, Err(PostFailure::Transient(None)), "{body:?}");
        }
    }
}

#[test]
fn e1_retries_share_a_name_and_events_do_not() {
    let name = name_of("web", 0x18a, 1);
    assert_eq!((&*name, name_of("web", 0x18a, 1)), ("web.18b", name.clone()));
    assert_ne!(name, name_of("web", 0x18a, 2));
    let long = format!("{}-{}", "n".repeat(229), "m".repeat(23));
    assert_eq!(name_of(&long, 0, 1), format!("{}.1", "n".repeat(229)), "no label ends with a dash");
}

#[test]
fn e1_an_event_about_this_process_is_on_its_pod_or_lease() {
    let clock = Clock::start();
    let of = |pod| involved(&Subject::Controller, &Reporter::new(None, pod, &own(), clock));
    let pod = of(Pod::from_variables(variables));
    let expected = json!({
        "apiVersion": "v1", "kind": "Pod", "namespace": "pools", "name": "controller-7f-x2", "uid": "p-1",
    });
    assert_eq!((&*pod.namespace, pod.object), ("pools", expected));
    for missing in ["POD_NAME", "POD_NAMESPACE", "POD_UID"] {
        let some = |name: &str| variables(name).filter(|_| name != missing);
        let lease = of(Pod::from_variables(some));
        let expected = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "namespace": "pools",
            "name": "azure-backend-pool-controller",
        });
        assert_eq!((&*lease.namespace, lease.object), ("pools", expected), "{missing}");
        let empty = |name: &str| if name == missing { Some(String::new()) } else { variables(name) };
        assert_eq!(Pod::from_variables(empty), None);
    }
}

#[test]
fn x2_e1_an_event_about_this_process_is_on_its_deployment() {
    let clock = Clock::start();
    let deployment = NamespacedName { namespace: "pools".into(), name: "controller".into() };
    let found = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "pools", "name": "controller", "uid": "d-1",
    });
    for pod in [Pod::from_variables(variables), None] {
        let mut reporter = Reporter::new(Some(deployment.clone()), pod.clone(), &own(), clock);
        let kind = if pod.is_some() { "Pod" } else { "Lease" };
        assert_eq!(involved(&Subject::Controller, &reporter).object["kind"], kind, "until then");
        reporter.set_deployment_uid("d-1".into());
        let Involved { namespace, object, name } = involved(&Subject::Controller, &reporter);
        assert_eq!((&*namespace, object, &*name), ("pools", found.clone(), "controller"));
        let instance = pod.map_or_else(|| Arc::from(""), |pod| pod.name);
        let event = Event { subject: Subject::Controller, ..event(clock, EventTarget::New(1)) };
        let manifest = manifest(&event, involved(&event.subject, &reporter), "x", &reporter, clock);
        assert_eq!(manifest["reportingInstance"], *instance, "the reporting instance is still the Pod");
    }
    let mut unnamed = Reporter::new(None, None, &own(), clock);
    unnamed.set_deployment_uid("d-1".into());
    assert_eq!(involved(&Subject::Controller, &unnamed).object["kind"], "Lease");
}

#[test]
fn e1_events_about_nodes_are_in_the_namespace_default() {
    let clock = Clock::start();
    let subject = Subject::Node { name: NodeName::new("node-1"), uid: NodeUid::new("n-1") };
    let node = involved(&subject, &reporter(clock));
    let expected = json!({ "apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "n-1" });
    assert_eq!((&*node.namespace, node.object), ("default", expected));
}

#[test]
fn e1_a_count_is_capped_at_the_apis_maximum() {
    let clock = Clock::start();
    let many = Event { count: u64::MAX, last: Now::NEVER, ..event(clock, EventTarget::New(1)) };
    assert_eq!(changing_fields(&many, clock)["count"], i32::MAX);
}

#[test]
fn a_message_is_one_printable_line_within_the_limit() {
    let clock = Clock::start();
    let message = format!("pool a\u{1b}[2J\u{7}\u{202e}\nb {}", "\u{202e}".repeat(900));
    let hostile = Event { message: message.into(), ..event(clock, EventTarget::New(1)) };
    let posted = changing_fields(&hostile, clock);
    let message = posted["message"].as_str().expect("a text");
    assert!(message.starts_with("pool a\\u{1b}[2J\\u{7}\\u{202e}\\u{a}b \\u{202e}"), "{message}");
    assert!(message.len() <= 1024 && !message.contains(['\u{1b}', '\u{7}', '\u{202e}', '\n']), "{message}");
}
