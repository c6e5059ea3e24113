//! The events of this process as server-sent events, as they happen (H3). A stream begins with the first event after it
//! was opened. A slow client delays nothing; it receives the number of events that it has missed.

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
use super::places::Place;
use super::problem::{printable, problem_until};
use super::query::Query;
use super::show::Show;
use super::values::Time;
use super::words;

/// How many streams there may be at a time, on all listeners together.
const STREAMS: usize = 16;
/// After so long a silence a comment is sent, by which a client that is gone is noticed too.
const SILENT_FOR: Duration = Duration::from_secs(15);
/// How long a stream lasts: a client that continues is judged again (H2).
const LASTS: Duration = Duration::from_secs(600);
/// After so many seconds there may be room again: a client that is gone is noticed by then.
const ROOM_AFTER: u64 = 30;

/// What a stream begins with: it is open, and nothing that is told from now on is missed.
const OPEN: &str = ": open\n\n";
/// What is sent where there is nothing to tell.
const ALIVE: &str = ": alive\n\n";

/// The data of an event of the stream.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToldEvent<'a> {
    /// When it last occurred.
    time: Option<Time>,
    /// When it first occurred.
    first_time: Option<Time>,
    /// Its severity.
    #[serde(rename = "type")]
    severity: words::Severity,
    /// Its reason.
    reason: &'static str,
    /// What it is about.
    object: EventObject<'a>,
    /// What has happened, in words.
    message: &'a str,
    /// How often it has occurred.
    #[schema(minimum = 1)]
    count: u64,
}

/// What an event is about.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Object)]
struct EventObject<'a> {
    /// Its `apiVersion`.
    api_version: &'static str,
    /// Its kind.
    kind: words::ObjectKind,
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
    /// How many events this stream has missed.
    #[schema(minimum = 1)]
    missed: u64,
}

/// What streams are made of, and how many there are.
pub(super) struct Audience {
    event_subscription: EventSubscription,
    room: Arc<Semaphore>,
    ending: watch::Receiver<bool>,
}

impl Audience {
    /// Listens to these, until `ending` says so or is dropped.
    pub(super) fn new(event_subscription: EventSubscription, ending: watch::Receiver<bool>) -> Audience {
        Audience { event_subscription, room: Arc::new(Semaphore::new(STREAMS)), ending }
    }

    /// A stream of those that are wanted; `None`: there is no room for another one.
    fn reader(&self, wanted: Wanted, clock: Clock) -> Option<Reader> {
        let room = Arc::clone(&self.room).try_acquire_owned().ok()?;
        let (heard, ending, now) = (self.event_subscription.listen(), self.ending.clone(), Instant::now());
        let (alive_at, ends_at) = (now + SILENT_FOR, now + LASTS);
        Some(Reader { heard, ending, wanted, clock, alive_at, ends_at, _room: room })
    }
}

/// Which events are wanted: each that has all of these, by the object's namespace and name and by the reason.
#[derive(Clone, Default, Debug)]
struct Wanted {
    namespace: Option<String>,
    name: Option<String>,
    reason: Option<String>,
}

impl Wanted {
    fn of(query: &Query) -> Wanted {
        let of = |name: &str| query.text(name).map(str::to_owned);
        Wanted { namespace: of("namespace"), name: of("name"), reason: of("reason") }
    }

    fn has(&self, PublishedEvent { object, event, .. }: &PublishedEvent) -> bool {
        let fits = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        fits(&self.namespace, object.namespace.as_deref())
            && fits(&self.name, Some(&*object.name))
            && fits(&self.reason, Some(event.reason))
    }
}

/// A reader of a stream. Its place is free again when this is dropped.
struct Reader {
    heard: Receiver<Arc<PublishedEvent>>,
    ending: watch::Receiver<bool>,
    wanted: Wanted,
    clock: Clock,
    /// When something is sent at the latest.
    alive_at: Instant,
    ends_at: Instant,
    _room: OwnedSemaphorePermit,
}

impl Reader {
    /// What is sent next; `None`: the stream ends.
    async fn next(&mut self) -> Option<String> {
        loop {
            let until = self.alive_at.min(self.ends_at);
            let heard = tokio::select! {
                biased;
                _ = self.ending.wait_for(|ending| *ending) => return None,
                heard = timeout_at(until, self.heard.recv()) => heard,
            };
            let said = match heard {
                Ok(Ok(event)) if self.wanted.has(&event) => shown(&event, self.clock),
                Ok(Ok(_)) => continue,
                Ok(Err(RecvError::Lagged(missed))) => {
                    format!("event: lagged\ndata: {}\n\n", printable(&Lagged { missed }))
                }
                Ok(Err(RecvError::Closed)) => return None,
                Err(_) if until == self.ends_at => return None,
                Err(_) => ALIVE.to_owned(),
            };
            self.alive_at = Instant::now() + SILENT_FOR;
            return Some(said);
        }
    }
}

/// An event as it is sent.
fn shown(PublishedEvent { id, object, event }: &PublishedEvent, clock: Clock) -> String {
    let show = Show { clock, now: clock.now() };
    let Object { api_version, kind, namespace, name, uid } = object;
    let told = ToldEvent {
        time: show.time(event.last),
        first_time: show.time(event.first),
        severity: words::Severity(event.severity.as_str()),
        reason: event.reason,
        object: EventObject {
            api_version,
            kind: words::ObjectKind(kind),
            namespace: namespace.as_deref(),
            name,
            uid: uid.as_deref(),
        },
        message: &event.message,
        count: event.count,
    };
    format!("id: {id}\ndata: {}\n\n", printable(&told))
}

/// The stream. HEAD has none, and takes no place.
pub(super) async fn events(
    request: HttpRequest,
    about: web::Data<About>,
    audience: web::Data<Audience>,
) -> HttpResponse {
    let wanted = match Query::of(&request, &["namespace", "name", "reason"]) {
        Ok(query) => Wanted::of(&query),
        Err(wrong) => return wrong.into(),
    };
    let mut answer = HttpResponse::Ok();
    answer.content_type("text/event-stream");
    if request.method() == Method::HEAD {
        return answer.finish();
    }
    let Some(reader) = audience.reader(wanted, about.clock) else {
        let detail =
            format!("{STREAMS} streams of events are open, and there may be no more; end one of them");
        return problem_until(StatusCode::SERVICE_UNAVAILABLE, "too many streams", &detail, ROOM_AFTER);
    };
    if let Some(place) = request.conn_data::<Rc<Place>>() {
        place.on_endless();
    }
    let told = stream::unfold(reader, |mut reader| async move {
        let said = reader.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(said)), reader))
    });
    let open = stream::iter([Ok(Bytes::from_static(OPEN.as_bytes()))]);
    answer.streaming(open.chain(told))
}

#[cfg(test)]
mod tests;
