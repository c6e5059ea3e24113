//! Creates a core/v1 Event (E1).

use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode};
use kube::Client;
use kube::client::Body;
use pool_core::events::{COMPONENT, Event, PostFailure, Severity};
use pool_core::report::Subject;
use serde_json::{Value, json};

/// How long one create may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Creates the event, with name and time of now.
pub(super) async fn create(
    client: &Client,
    event: &Event,
    reporter: &str,
    now: jiff::Timestamp,
) -> Result<(), PostFailure> {
    let namespace = match &event.subject {
        Subject::Service(service) => service.key.namespace.to_string(),
        Subject::Node { .. } => "default".to_owned(),
    };
    let body = manifest(event, &namespace, reporter, now);
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let request = Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_string().into_bytes()))
        .map_err(|error| PostFailure::Final(Arc::from(error.to_string())))?;
    let answer = match tokio::time::timeout(TIMEOUT, client.send(request)).await {
        Err(_) => return Err(PostFailure::Transient(None)),
        Ok(Err(error)) => {
            tracing::debug!(error = %super::follow::chain(&error), "no answer to an event");
            return Err(PostFailure::Transient(None));
        }
        Ok(Ok(answer)) => answer,
    };
    let status = answer.status();
    if status.is_success() || status == StatusCode::CONFLICT {
        return Ok(());
    }
    if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
        return Err(PostFailure::Transient(super::follow::retry_after(answer.headers())));
    }
    let said = tokio::time::timeout(TIMEOUT, answer.into_body().collect_bytes()).await;
    let said = said.ok().and_then(Result::ok).unwrap_or_default();
    Err(PostFailure::Final(Arc::from(super::follow::status_text(status, &said))))
}

fn manifest(event: &Event, namespace: &str, reporter: &str, now: jiff::Timestamp) -> Value {
    let (involved, name) = match &event.subject {
        Subject::Service(service) => (
            json!({
                "apiVersion": "v1", "kind": "Service", "namespace": &*service.key.namespace,
                "name": &*service.key.name, "uid": service.uid.as_str(),
            }),
            &*service.key.name,
        ),
        Subject::Node { name, uid } => (
            json!({ "apiVersion": "v1", "kind": "Node", "name": name.as_str(), "uid": uid.as_str() }),
            name.as_str(),
        ),
    };
    let at = format!("{now:.0}");
    let severity = match event.severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    // The name is client-go's: the object's, a dot and the time in hexadecimal nanoseconds.
    let stem: String = name.chars().take(230).collect();
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": format!("{stem}.{:x}", now.as_nanosecond()), "namespace": namespace },
        "involvedObject": involved, "reason": event.reason, "message": &*event.message, "type": severity,
        "source": { "component": COMPONENT }, "firstTimestamp": at, "lastTimestamp": at, "count": 1,
        "reportingComponent": COMPONENT, "reportingInstance": reporter,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool_core::ids::{ServiceKey, ServiceUid};
    use pool_core::report::ServiceRef;

    #[test]
    fn e1_an_event_names_its_object_component_and_time_as_the_api_expects() {
        let key = ServiceKey::new("shop", "web");
        let event = Event {
            subject: Subject::Service(ServiceRef { key, uid: ServiceUid::new("u-1") }),
            severity: Severity::Warning,
            reason: "LoadBalancerBackendPoolUpdateRetrying",
            message: "text".into(),
        };
        let now: jiff::Timestamp = "2026-01-02T03:04:05.678Z".parse().expect("a time");
        let made = manifest(&event, "shop", "pod-1", now);
        assert_eq!(made["involvedObject"]["uid"], "u-1");
        assert_eq!(made["source"]["component"], "azure-backend-pool-controller");
        assert_eq!(made["lastTimestamp"], "2026-01-02T03:04:05Z");
        assert_eq!(made["type"], "Warning");
        assert!(made["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("web.")));
    }
}
