//! Runs one list or watch request: sends it, splits the stream into lines, decodes them, and passes them to the
//! watcher, which decides about the next request. It runs on a thread of the runtime, not on the machines' thread, so
//! that it continues to read while the machines are busy (`reader`).

mod reader;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use model::ids::CallId;
use model::object::{Kind, ObjectKey};
use sources::watch::{GivenUp, In, Line, WatchFailure, WatchRequest};
use tokio::time::Instant;
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::io::StreamReader;

use self::reader::Reader;
use super::sanitize::{chain, status_text};
use super::server_clock::ServerClock;
use super::{WatcherRoute, decode};
use crate::clock::Clock;

/// Time limit for the start of the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(45);
/// Maximum length of a line, in bytes; etcd itself refuses objects over 1.5 MiB.
const MAX_LINE: usize = 8 << 20;
/// A watch that breaks after this time counts as closed: connections are interrupted from time to time.
const ROUTINE: Duration = Duration::from_secs(10);
/// Objects per page of a plain list.
const PAGE: u32 = 500;
/// Requested duration of a watch in seconds; up to a minute is added.
const WATCH_SECONDS: u64 = 240;

/// One request of a watcher, with its id.
pub(super) struct WatchCall {
    pub(super) call: CallId,
    pub(super) kind: Kind,
    pub(super) request: WatchRequest,
}

/// Sends the request, and passes everything in the answer, and its end, to the watcher.
pub(super) async fn follow(client: Client, clock: Clock, watch_call: WatchCall, watcher: WatcherRoute) {
    let call = watch_call.call;
    let (failure, lasted) = match &watch_call.request {
        WatchRequest::List { .. } => (list(&client, clock, &watch_call, &watcher).await, None),
        WatchRequest::StreamingList | WatchRequest::Watch { .. } => {
            stream(&client, clock, &watch_call, &watcher).await
        }
    };
    match (&failure, lasted) {
        (None, _) => {}
        (Some(WatchFailure::Other(reason)), Some(lasted)) if lasted >= ROUTINE => {
            tracing::info!(kind = watch_call.kind.resource(), %reason, "the watch was cut and is opened again");
        }
        (Some(failure), _) => log_failure(watch_call.kind, failure),
    }
    let jitter = clock.jitter();
    watcher.send(In::Ended { call, failure, jitter }).await;
}

/// Logs a failure. The watcher decides about the next request.
fn log_failure(kind: Kind, failure: &WatchFailure) {
    let kind = kind.resource();
    match failure {
        WatchFailure::Expired => {
            tracing::info!(kind, "the watch is too old for the API server; listing again")
        }
        WatchFailure::StreamingRefused(reason) => {
            tracing::info!(kind, %reason, "the API server does not stream lists; listing in pages");
        }
        WatchFailure::TooManyRequests(after) => {
            let retry_after_s = after.map(|after| after.as_secs());
            let remedy = "none: the request is retried. If this lasts, check API Priority and Fairness";
            tracing::warn!(kind, retry_after_s, remedy, "the API server throttles list and watch requests");
        }
        WatchFailure::Denied(reason) => {
            let effect = "changes of this kind are not seen";
            let remedy = "let the service account list and watch this kind in all namespaces";
            tracing::warn!(kind, %reason, effect, remedy, "the API server denies the list or watch");
        }
        WatchFailure::Other(reason) => {
            let remedy = "check that the API server is up and reachable; the request is retried";
            tracing::warn!(kind, %reason, remedy, "list or watch failed");
        }
    }
}

/// Logs that the watcher has replaced a request with a list although the request did not fail.
pub(super) fn log_given_up(kind: Kind, given_up: &GivenUp) {
    let kind = kind.resource();
    match given_up {
        GivenUp::Watch(reason) => {
            let remedy = "check what is between this Pod and the API server: a proxy may buffer or cut responses. Until a \
                          watch delivers, this kind is listed repeatedly";
            tracing::warn!(kind, %reason, remedy, "the API server accepts watches but sends nothing");
        }
        GivenUp::StreamingList(reason) => {
            let remedy =
                "none: this kind is listed in pages for 10 minutes. If it lasts, check the API server's load";
            tracing::warn!(kind, %reason, remedy, "the API server does not complete a streaming list; listing in pages");
        }
    }
}

/// Logs each object that cannot be decoded.
fn log_undecodable<'a>(kind: Kind, lines: impl IntoIterator<Item = &'a Line>) {
    for line in lines {
        if let Line::Undecodable { key, error, .. } = line {
            let remedy =
                "correct the object; the Event about it says whether its last good state stays in use";
            let object = key.as_ref().map(name_of);
            tracing::warn!(kind = kind.resource(), object, %error, remedy, "failed to decode an object");
        }
    }
}

fn name_of(key: &ObjectKey) -> String {
    match key {
        ObjectKey::Service(key) => key.to_string(),
        ObjectKey::Slice(key) => format!("{}/{}", key.namespace, key.name),
        ObjectKey::Node(name) => name.to_string(),
        ObjectKey::Preemption(key) => format!("{}/{}", key.namespace, key.name),
    }
}

fn path(kind: Kind) -> &'static str {
    match kind {
        Kind::Services => "/api/v1/services",
        Kind::EndpointSlices => "/apis/discovery.k8s.io/v1/endpointslices",
        Kind::Nodes => "/api/v1/nodes",
        // The API server has one store for both API groups of Events. Those about nodes are created in this
        // namespace; in another one, any client that may create Events could create one about any node.
        Kind::Preemptions => "/api/v1/namespaces/default/events",
    }
}

/// Returns the selector of the objects on that path, as a part of the query.
fn selector(kind: Kind) -> &'static str {
    match kind {
        Kind::Services | Kind::EndpointSlices | Kind::Nodes => "",
        Kind::Preemptions => "&fieldSelector=involvedObject.kind%3DNode%2Creason%3DPreemptScheduled",
    }
}

fn uri(watch_call: &WatchCall, spread: u16) -> String {
    let (path, selector) = (path(watch_call.kind), selector(watch_call.kind));
    let seconds = WATCH_SECONDS + u64::from(spread) * 60 / 1_000;
    let watch = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}{selector}");
    match &watch_call.request {
        WatchRequest::StreamingList => {
            format!("{path}?{watch}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
        }
        WatchRequest::Watch { from } => format!("{path}?{watch}&resourceVersion={}", escaped(&from.0)),
        WatchRequest::List { page: None } => format!("{path}?limit={PAGE}{selector}"),
        WatchRequest::List { page: Some(token) } => {
            format!("{path}?limit={PAGE}{selector}&continue={}", escaped(token))
        }
    }
}

/// Escapes text for a path or query.
pub(super) fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

async fn send(client: &Client, uri: String) -> Result<http::Response<Body>, WatchFailure> {
    let request = http::Request::get(uri)
        .header(http::header::ACCEPT, "application/json")
        .body(Body::empty())
        .map_err(|error| other(&error))?;
    match tokio::time::timeout(REQUEST_TIMEOUT, client.send(request)).await {
        Err(_) => Err(WatchFailure::Other(Arc::from("the API server did not answer in time"))),
        Ok(Err(error)) => Err(other(&error)),
        Ok(Ok(answer)) => Ok(answer),
    }
}

async fn list(
    client: &Client,
    clock: Clock,
    watch_call: &WatchCall,
    watcher: &WatcherRoute,
) -> Option<WatchFailure> {
    let answer = match send(client, uri(watch_call, 0)).await {
        Ok(answer) if answer.status().is_success() => answer,
        Ok(answer) => return Some(refusal(answer, false).await),
        Err(failure) => return Some(failure),
    };
    let server = ServerClock::of(answer.headers(), clock.wall());
    let body = match tokio::time::timeout(REQUEST_TIMEOUT, answer.into_body().collect_bytes()).await {
        Err(_) => return Some(WatchFailure::Other(Arc::from("the list did not arrive in time"))),
        Ok(Err(error)) => return Some(other(&error)),
        Ok(Ok(body)) => body,
    };
    match decode::page(watch_call.kind, &body, server.at(clock.wall())) {
        Ok(page) => {
            log_undecodable(watch_call.kind, &page.items);
            let (items, resource_version, next) = (page.items, page.resource_version, page.next);
            watcher.send(In::Page { call: watch_call.call, items, resource_version, next }).await;
            None
        }
        Err(error) => Some(WatchFailure::Other(error)),
    }
}

/// Runs a stream to its end. Returns its failure, if any, and the time for which it was open.
async fn stream(
    client: &Client,
    clock: Clock,
    watch_call: &WatchCall,
    watcher: &WatcherRoute,
) -> (Option<WatchFailure>, Option<Duration>) {
    let answer = match send(client, uri(watch_call, clock.jitter())).await {
        Ok(answer) if answer.status().is_success() => answer,
        Ok(answer) => {
            let streaming = matches!(watch_call.request, WatchRequest::StreamingList);
            return (Some(refusal(answer, streaming).await), None);
        }
        Err(failure) => return (Some(failure), None),
    };
    let server = ServerClock::of(answer.headers(), clock.wall());
    let opened = Instant::now();
    if !watcher.send(In::Opened(watch_call.call)).await {
        return (None, None);
    }
    let bytes = answer.into_body().into_data_stream().map_err(std::io::Error::other);
    let lines = FramedRead::new(StreamReader::new(bytes), LinesCodec::new_with_max_length(MAX_LINE));
    let reader = Reader::new(clock, watch_call, watcher);
    (reader.read_all(lines, || server.at(clock.wall())).await, Some(opened.elapsed()))
}

/// Returns the meaning of an answer other than success.
async fn refusal(answer: http::Response<Body>, streaming: bool) -> WatchFailure {
    let status = answer.status();
    let after = retry_after(answer.headers());
    let body = tokio::time::timeout(REQUEST_TIMEOUT, answer.into_body().collect_bytes()).await;
    let body = body.ok().and_then(Result::ok).unwrap_or_default();
    let text: Arc<str> = Arc::from(status_text(status, &body));
    match status {
        StatusCode::GONE => WatchFailure::Expired,
        StatusCode::TOO_MANY_REQUESTS => WatchFailure::TooManyRequests(after),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => WatchFailure::Denied(text),
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY if streaming => {
            WatchFailure::StreamingRefused(text)
        }
        _ => WatchFailure::Other(text),
    }
}

/// Returns the header `Retry-After`, if it is in whole seconds.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

fn other(error: &(dyn Error + 'static)) -> WatchFailure {
    WatchFailure::Other(Arc::from(chain(error)))
}

#[cfg(test)]
mod tests;
