//! Counts the lock failures that the cloud-controller-manager reports: Warning events on Services with the message
//! that the shared Lease could not be taken (W7).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use model::object::RequestFailure;
use serde::Deserialize;

use super::object_api::{exchange, other, refusal};
use super::watch_stream::escaped;

/// Time limit of the whole count.
const COUNT_TIMEOUT: Duration = Duration::from_secs(10);
/// Events per page.
const PAGE: u32 = 500;
/// Maximum number of pages that are read.
const PAGES: usize = 20;
/// Resolution of core/v1 times.
const RESOLUTION: SignedDuration = SignedDuration::from_secs(1);
/// Common part of the messages of lock failures, in lower case.
const LOCK_FAILURE_TEXT: &str = "lock azure resources";

/// Counts lock failures. A refusal is logged once, until a count succeeds.
#[derive(Clone)]
pub(super) struct LockFailureCounter {
    client: Client,
    denied: Arc<AtomicBool>,
}

impl LockFailureCounter {
    /// Creates a counter that reads through this client.
    pub(super) fn new(client: Client) -> LockFailureCounter {
        LockFailureCounter { client, denied: Arc::new(AtomicBool::new(false)) }
    }

    /// Returns the number of failures not older than `since`; `None` if the events cannot be read.
    pub(super) async fn count(&self, since: Timestamp) -> Option<u32> {
        let since = since.saturating_sub(RESOLUTION).unwrap_or(Timestamp::MIN);
        match tokio::time::timeout(COUNT_TIMEOUT, pages(&self.client, since)).await {
            Ok(Ok(count)) => {
                self.denied.store(false, Ordering::Relaxed);
                return Some(count);
            }
            Ok(Err(RequestFailure::Denied(reason))) if !self.denied.swap(true, Ordering::Relaxed) => {
                let effect =
                    "until they can be counted, every hold of the shared Lease is followed by a cooldown";
                let remedy = "let the service account list events in all namespaces";
                tracing::warn!(%reason, effect, remedy,
                    "the API server denies listing Events, so lock failures of the cloud-controller-manager are not counted");
            }
            Ok(Err(failure)) => {
                let reason = failure.into_why();
                tracing::debug!(%reason, "the lock failures of the cloud-controller-manager cannot be counted");
            }
            Err(_) => {
                tracing::debug!("counting the lock failures of the cloud-controller-manager took too long");
            }
        }
        None
    }
}

async fn pages(client: &Client, since: Timestamp) -> Result<u32, RequestFailure> {
    let (mut count, mut next) = (0_u32, String::new());
    for _ in 0..PAGES {
        let page = read(client, &next).await?;
        let of_page = page.items.iter().filter(|event| event.is_since(since)).count();
        count = count.saturating_add(u32::try_from(of_page).unwrap_or(u32::MAX));
        next = page.metadata.next.unwrap_or_default();
        if next.is_empty() {
            return Ok(count);
        }
    }
    match count {
        0 => Err(other("none among the first pages, and there are more")),
        _ => Ok(count),
    }
}

async fn read(client: &Client, next: &str) -> Result<Page, RequestFailure> {
    let mut path =
        format!("/api/v1/events?fieldSelector=involvedObject.kind%3DService%2Ctype%3DWarning&limit={PAGE}");
    if !next.is_empty() {
        path.push_str("&continue=");
        path.push_str(&escaped(next));
    }
    let (status, body) = exchange(client, Method::GET, path, Vec::new()).await?;
    if !status.is_success() {
        return Err(refusal(status, &body));
    }
    serde_json::from_slice(&body).map_err(|error| other(&error.to_string()))
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(default)]
    items: Vec<Event>,
}

#[derive(Deserialize, Default)]
struct PageMetadata {
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    message: Option<String>,
    last_timestamp: Option<String>,
    event_time: Option<String>,
    series: Option<Series>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Series {
    last_observed_time: Option<String>,
}

impl Event {
    /// Returns whether the Event reports a lock failure that last happened at or after a time.
    fn is_since(&self, since: Timestamp) -> bool {
        let observed = self.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
        let times = [self.last_timestamp.as_ref(), observed, self.event_time.as_ref()];
        let last = times.into_iter().flatten().filter_map(|text| text.parse::<Timestamp>().ok()).max();
        let message = self.message.as_deref().unwrap_or_default().to_ascii_lowercase();
        last.is_some_and(|last| last >= since) && message.contains(LOCK_FAILURE_TEXT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use simulator::models::kube::Resource;
    use simulator::{Fakes, Settings};

    fn event(name: &str, kind: &str, severity: &str, message: &str, times: &Value) -> Value {
        let mut event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": name, "namespace": "shop" },
            "involvedObject": { "kind": kind, "namespace": "shop", "name": "web" }, "type": severity,
            "reason": "SyncLoadBalancerFailed", "message": message,
        });
        for (key, time) in times.as_object().expect("an object") {
            event[key] = time.clone();
        }
        event
    }

    #[tokio::test]
    async fn w7_lock_failures_of_services_are_counted_since_a_time() {
        let fakes = Fakes::start(Settings::default()).await.expect("loopback has free ports");
        let config = kube::Config::new(fakes.kubernetes_url.parse().expect("an address"));
        let client = Client::try_from(config).expect("a client");
        let lock = "Error syncing load balancer: failed due to fail to LOCK Azure resources: held";
        let last = |time: &str| json!({ "lastTimestamp": time });
        let series = json!({
            "lastTimestamp": "2026-01-01T11:00:00Z", "eventTime": "2026-01-01T11:00:00.000000Z",
            "series": { "count": 3, "lastObservedTime": "2026-01-01T12:00:09.000000Z" },
        });
        let events = vec![
            event("newer", "Service", "Warning", lock, &last("2026-01-01T12:00:05Z")),
            event("same-second", "Service", "Warning", lock, &last("2026-01-01T12:00:00Z")),
            event("series", "Service", "Warning", lock, &series),
            event("older", "Service", "Warning", lock, &last("2026-01-01T11:59:58Z")),
            event("other-text", "Service", "Warning", "quota", &last("2026-01-01T12:00:05Z")),
            event("normal", "Service", "Normal", lock, &last("2026-01-01T12:00:05Z")),
            event("node", "Node", "Warning", lock, &last("2026-01-01T12:00:05Z")),
            event("no-time", "Service", "Warning", lock, &json!({})),
            event("wrong-time", "Service", "Warning", lock, &last("noon")),
        ];
        fakes.apply(events).await.expect("the model takes them");
        let since: Timestamp = "2026-01-01T12:00:00.500Z".parse().expect("a time");
        let counter = LockFailureCounter::new(client);
        assert_eq!(counter.count(since).await, Some(3));
        assert!(!counter.denied.load(Ordering::Relaxed));

        fakes.plant(|model| model.forbid(Resource::Events)).await;
        assert_eq!(counter.count(since).await, None);
        assert!(counter.denied.load(Ordering::Relaxed), "it is told once");
        fakes.plant(|model| model.permit(Resource::Events)).await;
        assert_eq!(counter.count(since).await, Some(3));
        assert!(!counter.denied.load(Ordering::Relaxed));
    }
}
