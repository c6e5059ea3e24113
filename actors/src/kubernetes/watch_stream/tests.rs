//! The requests for each kind, a broken stream of a simulated API server over HTTP, and watches that a server accepts
//! and closes without a line.

use model::machine::{Machine, Now};
use model::object::{Object, PreemptionObject, ResourceVersion};
use pool_core::route::Delivery;
use serde_json::Value;
use simulator::models::kube::Resource;
use simulator::models::kube::build::{node_event, node_event_v1};
use simulator::{Fakes, Settings};
use sources::watch::{Out, Watcher};
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::address_book::End;
use crate::kubernetes::raw;
use crate::shell::tests::address_book_of_sinks;

fn uri_of(kind: Kind, request: WatchRequest) -> String {
    uri(&WatchCall { call: CallId(1), kind, request }, 0)
}

fn slices_uri(request: WatchRequest) -> String {
    uri_of(Kind::EndpointSlices, request)
}

#[test]
fn d6_lists_request_the_most_recent_data() {
    let streaming = slices_uri(WatchRequest::StreamingList);
    assert!(streaming.contains("sendInitialEvents=true&resourceVersionMatch=NotOlderThan"));
    assert!(!streaming.contains("resourceVersion="), "{streaming}");
    let plain = slices_uri(WatchRequest::List { page: None });
    assert_eq!(plain, "/apis/discovery.k8s.io/v1/endpointslices?limit=500");
}

#[test]
fn a_watch_resumes_from_its_version_for_under_five_minutes() {
    let watch = slices_uri(WatchRequest::Watch { from: ResourceVersion("12&x".into()) });
    assert!(watch.ends_with("&resourceVersion=12%26x"), "{watch}");
    assert!(watch.contains("timeoutSeconds=240"));
}

#[test]
fn n1_requests_for_preemptions_select_their_reason_and_nodes() {
    let from = ResourceVersion("12".into());
    let requests = [
        WatchRequest::StreamingList,
        WatchRequest::List { page: None },
        WatchRequest::List { page: Some("tok".into()) },
        WatchRequest::Watch { from },
    ];
    for request in requests {
        let uri = uri_of(Kind::Preemptions, request);
        assert!(uri.starts_with("/api/v1/namespaces/default/events?"), "{uri}");
        let selector = "&fieldSelector=involvedObject.kind%3DNode%2Creason%3DPreemptScheduled";
        assert!(uri.contains(&format!("{selector}&")) || uri.ends_with(selector), "{uri}");
    }
}

/// An API server, and a watcher that receives the answers to its requests for preemptions.
struct Stage {
    fakes: Fakes,
    client: Client,
    clock: Clock,
    receiver: UnboundedReceiver<Delivery>,
    recipient: actix::Recipient<crate::address_book::Deliver>,
}

impl Stage {
    async fn new() -> Stage {
        let fakes = Fakes::start(Settings::default()).await.expect("loopback has free ports");
        let config = kube::Config::new(fakes.kubernetes_url.parse().expect("an address"));
        let client = Client::try_from(config).expect("a client");
        let (address_book, receiver) = address_book_of_sinks(Duration::ZERO);
        let recipient = address_book.recipient(End::Watcher(Kind::Preemptions)).clone();
        Stage { fakes, client, clock: Clock::start(), receiver, recipient }
    }

    async fn apply(&self, event: Value) {
        self.fakes.apply(vec![event]).await.expect("an event");
    }

    /// Sends a request.
    fn send_request(&self, call: u64, request: WatchRequest) {
        let kind = Kind::Preemptions;
        let watcher =
            WatcherRoute { kind, recipient: self.recipient.clone(), writer: self.recipient.clone() };
        let watch_call = WatchCall { call: CallId(call), kind, request };
        drop(tokio::spawn(follow(self.client.clone(), self.clock, watch_call, watcher)));
    }

    /// Returns the next input of the watcher.
    async fn next_input(&mut self) -> In {
        let delivery = self.receiver.recv().await.expect("the sink lives");
        let Delivery::Watcher(Kind::Preemptions, input) = delivery else {
            panic!("not for the watcher: {delivery:?}")
        };
        input
    }

    /// Returns the lines of a request up to the first that matches.
    async fn lines(&mut self, of: u64, is_last: impl Fn(&Line) -> bool) -> Vec<Line> {
        let mut lines = Vec::new();
        while !lines.last().is_some_and(&is_last) {
            let next_input = self.next_input().await;
            if let In::Line { call, line, .. } = next_input {
                assert_eq!(call, CallId(of));
                lines.push(line);
            } else {
                assert!(matches!(next_input, In::Opened(call) if call == CallId(of)), "{next_input:?}");
            }
        }
        lines
    }

    /// Returns how a request ends.
    async fn end(&mut self) -> (CallId, Option<WatchFailure>) {
        loop {
            if let In::Ended { call, failure, .. } = self.next_input().await {
                return (call, failure);
            }
        }
    }
}

fn event_of(line: &Line) -> Option<&PreemptionObject> {
    if let Line::Object(Object::Preemption(event)) = line { Some(event) } else { None }
}

fn names(lines: &[Line]) -> Vec<&str> {
    lines.iter().filter_map(event_of).map(|event| &*event.key.name).collect()
}

#[actix::test]
async fn n1_preemptions_of_both_groups_are_followed_across_watches() {
    let mut stage = Stage::new().await;
    let now = stage.clock.wall();
    let core =
        |name: &str, reason: &str| node_event(name, "n1", reason, "Preempt Started", &format!("{now:.0}"));
    stage.apply(core("n1.1", "PreemptScheduled")).await;
    stage.apply(core("n1.2", "RebootScheduled")).await;
    stage.send_request(1, WatchRequest::StreamingList);
    let listed = stage.lines(1, |line| matches!(line, Line::Bookmark { list_end: true, .. })).await;
    assert_eq!(names(&listed), ["n1.1"], "{listed:?}");
    let Some(Line::Bookmark { resource_version, .. }) = listed.last() else { panic!("{listed:?}") };
    let from = resource_version.clone();

    stage.fakes.plant(|model| model.down(true)).await;
    assert_eq!(stage.end().await.0, CallId(1));
    stage.fakes.plant(|model| model.down(false)).await;
    let message = "Preempt Scheduled: soon";
    let missed = node_event_v1("n2.1", "n2", "PreemptScheduled", message, &format!("{now:.6}"));
    stage.apply(missed).await;
    stage.send_request(2, WatchRequest::Watch { from });
    let lines = stage.lines(2, |line| event_of(line).is_some()).await;
    assert_eq!(names(&lines), ["n2.1"], "{lines:?}");
    let event = lines.iter().find_map(event_of).expect("an event");
    assert_eq!((event.node.as_str(), &*event.message, &event.uid), ("n2", message, &None));
    assert!(event.age.is_some_and(|age| age < Duration::from_secs(60)), "{event:?}");

    let mut again = core("n1.1", "PreemptScheduled");
    again["count"] = 2.into();
    stage.apply(again).await;
    let lines = stage.lines(2, |line| event_of(line).is_some()).await;
    assert_eq!(names(&lines), ["n1.1"], "{lines:?}");
    let version =
        |lines: &[Line]| lines.iter().find_map(event_of).map(|event| event.resource_version.clone());
    assert_ne!(version(&lines), version(&listed));
}

#[actix::test]
async fn n1_a_denied_watch_of_events_is_reported_as_for_other_kinds() {
    let mut stage = Stage::new().await;
    stage.fakes.plant(|model| model.forbid(Resource::Events)).await;
    stage.send_request(7, WatchRequest::StreamingList);
    let (call, failure) = stage.end().await;
    let Some(WatchFailure::Denied(reason)) = failure else { panic!("{failure:?}") };
    assert!(call == CallId(7) && reason.contains("HTTP 403") && reason.contains("events"), "{reason}");
}

/// Returns the requests of a watcher to a server that refuses streaming lists and gives `answer` to each watch.
async fn requests_to_server(answer: &'static str, count: usize) -> Vec<&'static str> {
    let list = r#"{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[]}"#;
    let serve = move |line: &str| {
        if line.contains("sendInitialEvents") {
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned()
        } else if line.contains("watch=true") {
            answer.to_owned()
        } else {
            let length = list.len();
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{list}")
        }
    };
    let config = kube::Config::new(raw::serve(serve, false).await.parse().expect("an address"));
    let client = Client::try_from(config).expect("a client");
    let (address_book, mut receiver) = address_book_of_sinks(Duration::ZERO);
    let kind = Kind::Nodes;
    let (mut watcher, mut now, mut out) = (Watcher::new(kind), Now::ZERO, Vec::new());
    watcher.step(now, In::Start, &mut out);
    let mut requests = Vec::new();
    while requests.len() < count {
        let open = |output| match output {
            Out::Open { call, request, .. } => Some(WatchCall { call, kind, request }),
            Out::Seen(..) | Out::Freshness(..) | Out::View(_) | Out::Metric(_) => None,
        };
        let Some(watch_call) = out.drain(..).filter_map(open).next_back() else {
            now = watcher.deadline().expect("it continues");
            watcher.tick(now, &mut out);
            continue;
        };
        requests.push(match watch_call.request {
            WatchRequest::StreamingList => "streaming list",
            WatchRequest::List { .. } => "list",
            WatchRequest::Watch { .. } => "watch",
        });
        let recipient = address_book.recipient(End::Watcher(kind)).clone();
        let route = WatcherRoute { kind, writer: recipient.clone(), recipient };
        follow(client.clone(), Clock::start(), watch_call, route).await;
        while let Ok(Delivery::Watcher(_, next_input)) = receiver.try_recv() {
            watcher.step(now, next_input, &mut out);
        }
    }
    requests
}

#[actix::test]
async fn two_empty_watches_lead_to_a_list() {
    for answer in raw::EMPTY {
        let requests = requests_to_server(answer, 5).await;
        assert_eq!(requests, ["streaming list", "list", "watch", "watch", "list"], "{answer:?}");
    }
}
