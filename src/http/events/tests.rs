//! Tests of event streams, on the runtime's clock.

use actors::kubernetes::EventPublisher;
use model::ids::{ServiceKey, ServiceUid};
use model::machine::Now;
use model::report::{ServiceRef, Subject};
use reporting::events::{Event, EventTarget, Severity};
use serde_json::{Value, json};

use super::*;

/// A publisher of events, the streams, and the signal that stops them.
struct Fixture {
    publisher: EventPublisher,
    streams: EventStreams,
    stop: watch::Sender<bool>,
    clock: Clock,
}

impl Fixture {
    fn new() -> Fixture {
        let (publisher, event_subscription) = EventPublisher::new();
        let (stop, stopped) = watch::channel(false);
        Fixture {
            publisher,
            streams: EventStreams::new(event_subscription, stopped),
            stop,
            clock: Clock::of_runtime(),
        }
    }

    fn reader(&self, filter: EventFilter) -> Option<EventReader> {
        self.streams.reader(filter, self.clock)
    }

    /// Publishes an event of this Service with this count.
    fn publish(&mut self, name: &str, reason: &'static str, count: u64) {
        let service = ServiceRef { key: ServiceKey::new("shop", name), uid: ServiceUid::new("u-1") };
        let object = Object {
            api_version: "v1",
            kind: "Service",
            namespace: Some("shop".into()),
            name: name.into(),
            uid: Some("u-1".into()),
        };
        let event = Event {
            subject: Subject::Service(service),
            severity: Severity::Normal,
            reason,
            message: "two\nlines".into(),
            count,
            first: Now::ZERO.plus(Clock::OFFSET),
            last: self.clock.now(),
            object: EventTarget::New(count),
            is_new: true,
        };
        self.publisher.publish(object, &Arc::new(event));
    }
}

fn named(name: &str) -> EventFilter {
    EventFilter { name: Some(name.to_owned()), ..EventFilter::default() }
}

impl EventReader {
    async fn next_chunk(&mut self) -> Option<String> {
        self.next().await
    }
}

/// Asserts that a value matches this schema of the OpenAPI document.
fn assert_schema(schema: &str, found: &Value) {
    let api = crate::http::openapi_document();
    let document = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "components": api["components"],
        "$ref": format!("#/components/schemas/{schema}"),
    });
    let validator = jsonschema::validator_for(&document).expect("a good schema");
    let wrong: Vec<String> = validator.iter_errors(found).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{schema}: {wrong:?}: {found}");
}

/// Returns the id and the data of an event that was sent.
fn read(chunk: Option<String>) -> (String, Value) {
    let chunk = chunk.expect("the stream goes on");
    let (id, rest) =
        chunk.strip_prefix("id: ").and_then(|chunk| chunk.split_once("\ndata: ")).expect("an event");
    let data = rest.strip_suffix("\n\n").expect("its end");
    assert!(!data.contains('\n'), "{data}");
    let data = serde_json::from_str(data).expect("JSON");
    assert_schema("StreamedEvent", &data);
    (id.to_owned(), data)
}

#[tokio::test(start_paused = true)]
async fn h3_matching_events_are_sent_complete_and_others_are_not() {
    let mut fixture = Fixture::new();
    let mut all = fixture.reader(EventFilter::default()).expect("there is room");
    let mut some = fixture.reader(named("web")).expect("there is room");
    let reason = Some("LoadBalancerBackendPoolUpdated".to_owned());
    let mut of_reason = fixture.reader(EventFilter { reason, ..named("web") }).expect("there is room");
    let elsewhere = EventFilter { namespace: Some("elsewhere".to_owned()), ..EventFilter::default() };
    let mut elsewhere = fixture.reader(elsewhere).expect("there is room");
    fixture.publish("mail", "LoadBalancerBackendPoolUpdated", 1);
    fixture.publish("web", "LoadBalancerBackendPoolUpdateRetrying", 1);
    fixture.publish("web", "LoadBalancerBackendPoolUpdated", 7);

    let (id, event) = read(all.next_chunk().await);
    assert_eq!((id.as_str(), &event["object"]["name"]), ("1", &json!("mail")));
    let (id, event) = read(some.next_chunk().await);
    assert_eq!((id.as_str(), &event["object"]["name"]), ("2", &json!("web")));
    let (id, event) = read(of_reason.next_chunk().await);
    assert_eq!(id, "3");
    let object = json!({
        "apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "web", "uid": "u-1",
    });
    assert_eq!(
        (&event["type"], &event["reason"], &event["message"], &event["count"], &event["object"]),
        (
            &json!("Normal"),
            &json!("LoadBalancerBackendPoolUpdated"),
            &json!("two\\u{a}lines"),
            &json!(7),
            &object
        )
    );
    assert!(event["time"].is_string() && event["firstTime"].is_string(), "{event}");
    assert_eq!(elsewhere.next_chunk().await.as_deref(), Some(KEEP_ALIVE), "of nothing else");
}

#[tokio::test(start_paused = true)]
async fn h3_a_stream_sends_a_keep_alive_after_15_s_of_silence() {
    let mut fixture = Fixture::new();
    let mut reader = fixture.reader(named("web")).expect("there is room");
    let began = Instant::now();
    fixture.publish("mail", "LoadBalancerBackendPoolUpdated", 1);
    assert_eq!(reader.next_chunk().await.as_deref(), Some(KEEP_ALIVE));
    assert_eq!(began.elapsed().as_secs(), 15);
    tokio::time::advance(Duration::from_secs(10)).await;
    fixture.publish("web", "LoadBalancerBackendPoolUpdated", 1);
    read(reader.next_chunk().await);
    assert_eq!(reader.next_chunk().await.as_deref(), Some(KEEP_ALIVE));
    assert_eq!(began.elapsed().as_secs(), 40, "15 s after what was sent last");
}

#[tokio::test(start_paused = true)]
async fn h3_a_slow_client_gets_the_number_of_missed_events() {
    let mut fixture = Fixture::new();
    let mut reader = fixture.reader(EventFilter::default()).expect("there is room");
    for count in 1..=300 {
        fixture.publish("web", "LoadBalancerBackendPoolUpdated", count);
    }
    let chunk = reader.next_chunk().await.expect("the stream goes on");
    let data = chunk.strip_prefix("event: lagged\ndata: ").and_then(|chunk| chunk.strip_suffix("\n\n"));
    let lagged = serde_json::from_str(data.expect("the event `lagged`")).expect("JSON");
    assert_schema("Lagged", &lagged);
    assert_eq!(lagged, json!({ "missed": 44 }));
    assert_eq!(read(reader.next_chunk().await).0, "45");
}

#[tokio::test(start_paused = true)]
async fn h3_a_stream_ends_with_the_process_and_after_10_min() {
    let mut fixture = Fixture::new();
    let mut reader = fixture.reader(EventFilter::default()).expect("there is room");
    let began = Instant::now();
    let mut comments = 0;
    while let Some(chunk) = reader.next_chunk().await {
        assert_eq!(chunk, KEEP_ALIVE);
        comments += 1;
    }
    assert_eq!((began.elapsed().as_secs(), comments), (600, 39), "every 15 s, and the end at the last");

    let mut reader = fixture.reader(EventFilter::default()).expect("there is room");
    fixture.publish("web", "LoadBalancerBackendPoolUpdated", 1);
    let began = Instant::now();
    fixture.stop.send_replace(true);
    assert_eq!(reader.next_chunk().await, None, "although an event is waiting");
    let mut late = fixture.reader(EventFilter::default()).expect("there is room");
    assert_eq!(late.next_chunk().await, None);
    assert_eq!(began.elapsed().as_secs(), 0);
}

#[tokio::test(start_paused = true)]
async fn h3_at_most_16_streams_are_open() {
    let fixture = Fixture::new();
    let mut all: Vec<EventReader> =
        (0..MAX_STREAMS).map(|_| fixture.reader(EventFilter::default()).expect("there is room")).collect();
    assert!(fixture.reader(EventFilter::default()).is_none());
    all.pop();
    assert!(fixture.reader(EventFilter::default()).is_some());
}
