//! Streams the events of this process as server-sent events, as they occur (H3). A stream begins with the first event
//! after it was opened. A slow client delays nothing: it receives the number of events that it has missed.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, web};
use actors::clock::Clock;
use actors::kubernetes::{EventSubscription, Object, PublishedEvent};
use futures::stream::{self, StreamExt as _};
use serde::Serialize;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout_at};
use utoipa::ToSchema;

use super::About;
use super::connection_limit::ConnectionSlot;
use super::enums;
use super::problem::{printable, problem_until};
use super::query::Query;
use super::show::Show;
use super::values::Time;

/// Maximum streams at a time, on all listeners together.
const MAX_STREAMS: usize = 16;
/// Time without an event after which a comment is sent, which also detects clients that have left.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Maximum duration of a stream. A client that opens another stream is authorized again (H2).
const MAX_DURATION: Duration = Duration::from_secs(600);
/// `Retry-After` of a refused stream, in seconds: clients that have left are detected by then.
const RETRY_AFTER_S: u64 = 30;

/// First comment of a stream: all events published after it are sent.
const OPEN: &str = ": open\n\n";
/// Comment that is sent when there is no event.
const KEEP_ALIVE: &str = ": alive\n\n";

/// The data of an event of the stream.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StreamedEvent<'a> {
    /// When it last occurred.
    time: Option<Time>,
    /// When it first occurred.
    first_time: Option<Time>,
    /// Its severity.
    #[serde(rename = "type")]
    severity: enums::Severity,
    /// Its reason.
    reason: &'static str,
    /// The object that the event is about.
    object: EventObject<'a>,
    /// The text: one or more sentences.
    message: &'a str,
    /// The number of occurrences.
    #[schema(minimum = 1)]
    count: u64,
}

/// The object that an event is about.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Object)]
struct EventObject<'a> {
    /// Its `apiVersion`.
    api_version: &'static str,
    /// Its kind.
    kind: enums::ObjectKind,
    /// Its namespace. Null: it is in none.
    namespace: Option<&'a str>,
    /// Its name.
    name: &'a str,
    /// Its UID. Null: it is not known.
    uid: Option<&'a str>,
}

/// The data of an event `lagged`.
#[derive(Serialize, ToSchema)]
pub(super) struct Lagged {
    /// The number of events that this stream has missed.
    #[schema(minimum = 1)]
    missed: u64,
}

/// Opens event streams, and limits their number.
pub(super) struct EventStreams {
    event_subscription: EventSubscription,
    permits: Arc<Semaphore>,
    stopped: watch::Receiver<bool>,
}

impl EventStreams {
    /// Creates streams of this subscription. They end when `stopped` becomes true or its sender is dropped.
    pub(super) fn new(event_subscription: EventSubscription, stopped: watch::Receiver<bool>) -> EventStreams {
        EventStreams { event_subscription, permits: Arc::new(Semaphore::new(MAX_STREAMS)), stopped }
    }

    /// Returns a stream of the events that the filter selects; `None` if the maximum number of streams is open.
    fn reader(&self, filter: EventFilter, clock: Clock) -> Option<EventReader> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        let (events, stopped, now) = (self.event_subscription.listen(), self.stopped.clone(), Instant::now());
        let (keep_alive_at, ends_at) = (now + KEEP_ALIVE_INTERVAL, now + MAX_DURATION);
        Some(EventReader { events, stopped, filter, clock, keep_alive_at, ends_at, _permit: permit })
    }
}

/// Selects the events of a stream by the namespace and name of the object and by the reason; all given values must
/// match.
#[derive(Clone, Default, Debug)]
struct EventFilter {
    namespace: Option<String>,
    name: Option<String>,
    reason: Option<String>,
}

impl EventFilter {
    fn of(query: &Query) -> EventFilter {
        let of = |name: &str| query.text(name).map(str::to_owned);
        EventFilter { namespace: of("namespace"), name: of("name"), reason: of("reason") }
    }

    fn matches(&self, PublishedEvent { object, event, .. }: &PublishedEvent) -> bool {
        let is_match = |expected: &Option<String>, found: Option<&str>| {
            expected.as_deref().is_none_or(|expected| found == Some(expected))
        };
        is_match(&self.namespace, object.namespace.as_deref())
            && is_match(&self.name, Some(&*object.name))
            && is_match(&self.reason, Some(event.reason))
    }
}

/// The state of one stream. The stream counts as open until this state is dropped.
struct EventReader {
    events: Receiver<Arc<PublishedEvent>>,
    stopped: watch::Receiver<bool>,
    filter: EventFilter,
    clock: Clock,
    /// Time at which a comment is sent if no event is.
    keep_alive_at: Instant,
    ends_at: Instant,
    _permit: OwnedSemaphorePermit,
}

impl EventReader {
    /// Returns the next chunk; `None` when the stream ends.
    async fn next(&mut self) -> Option<String> {
        loop {
            let until = self.keep_alive_at.min(self.ends_at);
            let received = tokio::select! {
                biased;
                _ = self.stopped.wait_for(|stopped| *stopped) => return None,
                received = timeout_at(until, self.events.recv()) => received,
            };
            let chunk = match received {
                Ok(Ok(event)) if self.filter.matches(&event) => encoded(&event, self.clock),
                Ok(Ok(_)) => continue,
                Ok(Err(RecvError::Lagged(missed))) => {
                    format!("event: lagged\ndata: {}\n\n", printable(&Lagged { missed }))
                }
                Ok(Err(RecvError::Closed)) => return None,
                Err(_) if until == self.ends_at => return None,
                Err(_) => KEEP_ALIVE.to_owned(),
            };
            self.keep_alive_at = Instant::now() + KEEP_ALIVE_INTERVAL;
            return Some(chunk);
        }
    }
}

/// Returns an event as it is sent.
fn encoded(PublishedEvent { id, object, event }: &PublishedEvent, clock: Clock) -> String {
    let show = Show { clock, now: clock.now() };
    let Object { api_version, kind, namespace, name, uid } = object;
    let streamed = StreamedEvent {
        time: show.time(event.last),
        first_time: show.time(event.first),
        severity: enums::Severity(event.severity.as_str()),
        reason: event.reason,
        object: EventObject {
            api_version,
            kind: enums::ObjectKind(kind),
            namespace: namespace.as_deref(),
            name,
            uid: uid.as_deref(),
        },
        message: &event.message,
        count: event.count,
    };
    format!("id: {id}\ndata: {}\n\n", printable(&streamed))
}

/// Responds with an event stream. A HEAD request opens no stream.
pub(super) async fn events(
    request: HttpRequest,
    about: web::Data<About>,
    streams: web::Data<EventStreams>,
) -> HttpResponse {
    let filter = match Query::of(&request, &["namespace", "name", "reason"]) {
        Ok(query) => EventFilter::of(&query),
        Err(wrong) => return wrong.into(),
    };
    let mut answer = HttpResponse::Ok();
    answer.content_type("text/event-stream");
    if request.method() == Method::HEAD {
        return answer.finish();
    }
    let Some(reader) = streams.reader(filter, about.clock) else {
        let detail = format!("{MAX_STREAMS} event streams are open, which is the maximum; close one of them");
        return problem_until(StatusCode::SERVICE_UNAVAILABLE, "too many streams", &detail, RETRY_AFTER_S);
    };
    if let Some(slot) = request.conn_data::<Rc<ConnectionSlot>>() {
        slot.on_endless();
    }
    let chunks = stream::unfold(reader, |mut reader| async move {
        let chunk = reader.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(chunk)), reader))
    });
    let open = stream::iter([Ok(Bytes::from_static(OPEN.as_bytes()))]);
    answer.streaming(open.chain(chunks))
}

#[cfg(test)]
mod tests;
