//! Streams of events, on the runtime's clock.

use actors::kubernetes::EventPublisher;
use model::ids::{ServiceKey, ServiceUid};
use model::machine::Now;
use model::report::{ServiceRef, Subject};
use reporting::events::{Event, EventTarget, Severity};
use serde_json::{Value, json};

use super::*;

/// Who tells, who listens, and what ends all streams.
struct Hall {
    publisher: EventPublisher,
    audience: Audience,
    ending: watch::Sender<bool>,
    clock: Clock,
}

impl Hall {
    fn new() -> Hall {
        let (publisher, event_subscription) = EventPublisher::new();
        let (ending, ends) = watch::channel(false);
        Hall {
            publisher,
            audience: Audience::new(event_subscription, ends),
            ending,
            clock: Clock::of_runtime(),
        }
    }

    fn reader(&self, wanted: Wanted) -> Option<Reader> {
        self.audience.reader(wanted, self.clock)
    }

    /// Tells an event of a Service that has occurred so often.
    fn tell(&mut self, name: &str, reason: &'static str, count: u64) {
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

fn named(name: &str) -> Wanted {
    Wanted { name: Some(name.to_owned()), ..Wanted::default() }
}

impl Reader {
    /// What is sent next to a client that sends nothing more; `None`: the stream ends.
    async fn said(&mut self) -> Option<String> {
        self.next().await
    }
}

/// Requires that this is what the OpenAPI document says of a schema.
fn fits(schema: &str, found: &Value) {
    let api = crate::http::openapi_document();
    let whole = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "components": api["components"],
        "$ref": format!("#/components/schemas/{schema}"),
    });
    let validator = jsonschema::validator_for(&whole).expect("a good schema");
    let wrong: Vec<String> = validator.iter_errors(found).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{schema}: {wrong:?}: {found}");
}

/// The number and the data of what was sent.
fn read(said: Option<String>) -> (String, Value) {
    let said = said.expect("the stream goes on");
    let (id, rest) =
        said.strip_prefix("id: ").and_then(|said| said.split_once("\ndata: ")).expect("an event");
    let data = rest.strip_suffix("\n\n").expect("its end");
    assert!(!data.contains('\n'), "{data}");
    let data = serde_json::from_str(data).expect("JSON");
    fits("ToldEvent", &data);
    (id.to_owned(), data)
}

#[tokio::test(start_paused = true)]
async fn h3_an_event_is_sent_complete_and_unwanted_ones_are_left_out() {
    let mut hall = Hall::new();
    let mut all = hall.reader(Wanted::default()).expect("there is room");
    let mut some = hall.reader(named("web")).expect("there is room");
    let reason = Some("LoadBalancerBackendPoolUpdated".to_owned());
    let mut of_reason = hall.reader(Wanted { reason, ..named("web") }).expect("there is room");
    let elsewhere = Wanted { namespace: Some("elsewhere".to_owned()), ..Wanted::default() };
    let mut elsewhere = hall.reader(elsewhere).expect("there is room");
    hall.tell("mail", "LoadBalancerBackendPoolUpdated", 1);
    hall.tell("web", "LoadBalancerBackendPoolUpdateRetrying", 1);
    hall.tell("web", "LoadBalancerBackendPoolUpdated", 7);

    let (id, told) = read(all.said().await);
    assert_eq!((id.as_str(), &told["object"]["name"]), ("1", &json!("mail")));
    let (id, told) = read(some.said().await);
    assert_eq!((id.as_str(), &told["object"]["name"]), ("2", &json!("web")));
    let (id, told) = read(of_reason.said().await);
    assert_eq!(id, "3");
    let object = json!({
        "apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "web", "uid": "u-1",
    });
    assert_eq!(
        (&told["type"], &told["reason"], &told["message"], &told["count"], &told["object"]),
        (
            &json!("Normal"),
            &json!("LoadBalancerBackendPoolUpdated"),
            &json!("two\\u{a}lines"),
            &json!(7),
            &object
        )
    );
    assert!(told["time"].is_string() && told["firstTime"].is_string(), "{told}");
    assert_eq!(elsewhere.said().await.as_deref(), Some(ALIVE), "of nothing else");
}

#[tokio::test(start_paused = true)]
async fn h3_a_stream_sends_a_sign_of_life_after_15_s_of_silence() {
    let mut hall = Hall::new();
    let mut reader = hall.reader(named("web")).expect("there is room");
    let began = Instant::now();
    hall.tell("mail", "LoadBalancerBackendPoolUpdated", 1);
    assert_eq!(reader.said().await.as_deref(), Some(ALIVE));
    assert_eq!(began.elapsed().as_secs(), 15);
    tokio::time::advance(Duration::from_secs(10)).await;
    hall.tell("web", "LoadBalancerBackendPoolUpdated", 1);
    read(reader.said().await);
    assert_eq!(reader.said().await.as_deref(), Some(ALIVE));
    assert_eq!(began.elapsed().as_secs(), 40, "15 s after what was sent last");
}

#[tokio::test(start_paused = true)]
async fn h3_who_is_slow_is_told_how_many_were_missed_and_hears_on() {
    let mut hall = Hall::new();
    let mut reader = hall.reader(Wanted::default()).expect("there is room");
    for count in 1..=300 {
        hall.tell("web", "LoadBalancerBackendPoolUpdated", count);
    }
    let said = reader.said().await.expect("the stream goes on");
    let data = said.strip_prefix("event: lagged\ndata: ").and_then(|said| said.strip_suffix("\n\n"));
    let lagged = serde_json::from_str(data.expect("the event `lagged`")).expect("JSON");
    fits("Lagged", &lagged);
    assert_eq!(lagged, json!({ "missed": 44 }));
    assert_eq!(read(reader.said().await).0, "45");
}

#[tokio::test(start_paused = true)]
async fn h3_a_stream_ends_with_the_process_and_after_10_min() {
    let mut hall = Hall::new();
    let mut reader = hall.reader(Wanted::default()).expect("there is room");
    let began = Instant::now();
    let mut signs = 0;
    while let Some(said) = reader.said().await {
        assert_eq!(said, ALIVE);
        signs += 1;
    }
    assert_eq!((began.elapsed().as_secs(), signs), (600, 39), "every 15 s, and the end at the last");

    let mut reader = hall.reader(Wanted::default()).expect("there is room");
    hall.tell("web", "LoadBalancerBackendPoolUpdated", 1);
    let began = Instant::now();
    hall.ending.send_replace(true);
    assert_eq!(reader.said().await, None, "though there is something to tell");
    let mut late = hall.reader(Wanted::default()).expect("there is room");
    assert_eq!(late.said().await, None);
    assert_eq!(began.elapsed().as_secs(), 0);
}

#[tokio::test(start_paused = true)]
async fn h3_there_are_16_streams_and_an_ended_one_frees_its_place() {
    let hall = Hall::new();
    let mut all: Vec<Reader> =
        (0..STREAMS).map(|_| hall.reader(Wanted::default()).expect("there is room")).collect();
    assert!(hall.reader(Wanted::default()).is_none());
    all.pop();
    assert!(hall.reader(Wanted::default()).is_some());
}
