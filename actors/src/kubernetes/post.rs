//! Creates and patches core/v1 Events for the emitter (E1).

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use model::redact::Printable;
use model::report::Subject;
use reporting::events::{COMPONENT, Event, EventTarget, PostFailure, Severity};
use serde_json::{Value, json};

use super::event_stream::Object;
use super::object_api::{NamespacedName, object_in};
use super::sanitize;
use super::watch_stream::escaped;
use crate::clock::Clock;

/// Time limit of one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of characters of an object's name in the name of an Event.
const MAX_STEM: usize = 230;

/// Maximum length of a message that the API server accepts, in bytes.
const MAX_MESSAGE: usize = 1024;

/// Identity of this process in Events, and the object that events about the process are attached to.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// Name of the Pod, or empty.
    instance: Arc<str>,
    involved_process: InvolvedProcess,
    /// Deployment that runs this process, if configured.
    deployment: Option<NamespacedName>,
    /// Start of this process in nanoseconds since 1970. With the number of an Event, it forms a name that no other
    /// process uses.
    start: i128,
}

/// The object that events about this process are attached to.
#[derive(Clone, Debug)]
enum InvolvedProcess {
    Deployment { name: NamespacedName, uid: Arc<str> },
    Pod(Pod),
    Lease(NamespacedName),
}

/// The Pod that this process runs in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID: `kubectl describe` looks for events by it.
    pub uid: Arc<str>,
}

impl Pod {
    /// Returns the Pod that the variables `POD_NAMESPACE`, `POD_NAME` and `POD_UID` name; `None` unless all are set.
    pub fn from_variables(value: impl Fn(&str) -> Option<String>) -> Option<Pod> {
        let of = |variable| value(variable).filter(|value| !value.is_empty()).map(Arc::from);
        Some(Pod { namespace: of("POD_NAMESPACE")?, name: of("POD_NAME")?, uid: of("POD_UID")? })
    }
}

impl Reporter {
    /// Creates a reporter. Events about this process are attached to its Deployment once that is found. Until then,
    /// and if none is configured, they are attached to its Pod, or to our own Lease if the Pod is not known.
    #[must_use]
    pub fn new(
        deployment: Option<NamespacedName>,
        pod: Option<Pod>,
        own: &NamespacedName,
        clock: Clock,
    ) -> Reporter {
        let instance = pod.as_ref().map_or_else(|| Arc::from(""), |pod| Arc::clone(&pod.name));
        let involved_process = pod.map_or_else(|| InvolvedProcess::Lease(own.clone()), InvolvedProcess::Pod);
        Reporter { instance, involved_process, deployment, start: clock.wall().as_nanosecond() }
    }

    /// Returns the Deployment to look for.
    pub(super) fn deployment(&self) -> Option<&NamespacedName> {
        self.deployment.as_ref()
    }

    /// Records the UID of the Deployment.
    pub(super) fn set_deployment_uid(&mut self, uid: Arc<str>) {
        if let Some(name) = self.deployment.clone() {
            self.involved_process = InvolvedProcess::Deployment { name, uid };
        }
    }
}

/// Namespace of an Event object, and the object that it is attached to.
struct Involved {
    namespace: String,
    object: Value,
    name: String,
}

/// Returns the object that an event about this subject is attached to.
pub(super) fn object_of(subject: &Subject, reporter: &Reporter) -> Object {
    match subject {
        Subject::Service(service) => Object {
            api_version: "v1",
            kind: "Service",
            namespace: Some(Arc::clone(&service.key.namespace)),
            name: Arc::clone(&service.key.name),
            uid: Some(service.uid.shared()),
        },
        Subject::Node { name, uid } => Object {
            api_version: "v1",
            kind: "Node",
            namespace: None,
            name: name.shared(),
            uid: Some(uid.shared()),
        },
        Subject::Controller => match &reporter.involved_process {
            InvolvedProcess::Deployment { name: NamespacedName { namespace, name }, uid } => Object {
                api_version: "apps/v1",
                kind: "Deployment",
                namespace: Some(Arc::clone(namespace)),
                name: Arc::clone(name),
                uid: Some(Arc::clone(uid)),
            },
            InvolvedProcess::Pod(Pod { namespace, name, uid }) => Object {
                api_version: "v1",
                kind: "Pod",
                namespace: Some(Arc::clone(namespace)),
                name: Arc::clone(name),
                uid: Some(Arc::clone(uid)),
            },
            InvolvedProcess::Lease(NamespacedName { namespace, name }) => Object {
                api_version: "coordination.k8s.io/v1",
                kind: "Lease",
                namespace: Some(Arc::clone(namespace)),
                name: Arc::clone(name),
                uid: None,
            },
        },
    }
}

fn involved(subject: &Subject, reporter: &Reporter) -> Involved {
    let Object { api_version, kind, namespace, name, uid } = object_of(subject, reporter);
    let mut object = json!({ "apiVersion": api_version, "kind": kind, "name": &*name });
    for (key, value) in [("namespace", &namespace), ("uid", &uid)] {
        if let Some(value) = value {
            object[key] = Value::from(&**value);
        }
    }
    // Events about objects without a namespace are in this one.
    let namespace = namespace.as_deref().unwrap_or("default").to_owned();
    Involved { namespace, object, name: (*name).to_owned() }
}

/// Creates or patches the Event object, and returns its name.
pub(super) async fn write(
    client: &Client,
    clock: Clock,
    reporter: &Reporter,
    event: &Event,
) -> Result<Arc<str>, PostFailure> {
    let involved = involved(&event.subject, reporter);
    let events = format!("/api/v1/namespaces/{}/events", escaped(&involved.namespace));
    match &event.object {
        EventTarget::New(serial) => {
            let name: Arc<str> = name_of(&involved.name, reporter.start, *serial).into();
            let body = manifest(event, involved, &name, reporter, clock);
            match send(client, Method::POST, &events, "application/json", &body).await {
                Ok(()) => Ok(name),
                Err(SendFailure::Status(StatusCode::CONFLICT, _)) => Err(PostFailure::Exists(name)),
                Err(failed) => Err(failure(failed)),
            }
        }
        EventTarget::Existing(name) => {
            let path = format!("{events}/{}", escaped(name));
            let body = changing_fields(event, clock);
            match send(client, Method::PATCH, &path, "application/merge-patch+json", &body).await {
                Ok(()) => Ok(Arc::clone(name)),
                Err(SendFailure::Status(StatusCode::NOT_FOUND, _)) => Err(PostFailure::Gone),
                Err(SendFailure::Status(StatusCode::CONFLICT, _)) => Err(PostFailure::Transient(None)),
                Err(failed) => Err(failure(failed)),
            }
        }
    }
}

/// Failure of a request.
enum SendFailure {
    /// No answer, a success without the object, or a temporary failure of the server, with its `Retry-After`.
    ForNow(Option<Duration>),
    /// An answer with this status and this text.
    Status(StatusCode, String),
    /// The request cannot be built.
    Impossible(String),
}

fn failure(failed: SendFailure) -> PostFailure {
    match failed {
        SendFailure::ForNow(retry_after) => PostFailure::Transient(retry_after),
        SendFailure::Status(_, text) | SendFailure::Impossible(text) => PostFailure::Final(Arc::from(text)),
    }
}

async fn send(
    client: &Client,
    method: Method,
    path: &str,
    content: &str,
    body: &Value,
) -> Result<(), SendFailure> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, content)
        .body(Body::from(body.to_string().into_bytes()))
        .map_err(|error| SendFailure::Impossible(error.to_string()))?;
    let answer = match tokio::time::timeout(TIMEOUT, client.send(request)).await {
        Err(_) => return Err(SendFailure::ForNow(None)),
        Ok(Err(error)) => {
            tracing::debug!(error = %sanitize::chain(&error), "no answer to an event");
            return Err(SendFailure::ForNow(None));
        }
        Ok(Ok(answer)) => answer,
    };
    let status = answer.status();
    if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
        return Err(SendFailure::ForNow(super::watch_stream::retry_after(answer.headers())));
    }
    let body = tokio::time::timeout(TIMEOUT, answer.into_body().collect_bytes()).await;
    let body = body.ok().and_then(Result::ok).unwrap_or_default();
    if status.is_success() {
        return object_in(status, &body).map(drop).map_err(|failure| {
            tracing::debug!(?failure, "no usable answer to an event");
            SendFailure::ForNow(None)
        });
    }
    Err(SendFailure::Status(status, sanitize::status_text(status, &body)))
}

/// Returns the name of an Event in client-go's format: the name of the object, a dot and hexadecimal nanoseconds.
fn name_of(object: &str, start: i128, serial: u64) -> String {
    let stem: String = object.chars().take(MAX_STEM).collect();
    let stem = stem.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
    format!("{stem}.{:x}", start + i128::from(serial))
}

fn manifest(event: &Event, involved: Involved, name: &str, reporter: &Reporter, clock: Clock) -> Value {
    let mut manifest = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": name, "namespace": involved.namespace },
        "involvedObject": involved.object, "reason": event.reason, "type": event.severity.as_str(),
        "source": { "component": COMPONENT }, "firstTimestamp": seconds(clock.timestamp_of(event.first)),
        "reportingComponent": COMPONENT, "reportingInstance": &*reporter.instance,
    });
    if let (Value::Object(all), Value::Object(newest)) = (&mut manifest, changing_fields(event, clock)) {
        all.extend(newest);
    }
    manifest
}

/// Returns the fields that change when an event occurs again.
fn changing_fields(event: &Event, clock: Clock) -> Value {
    let count = i32::try_from(event.count).unwrap_or(i32::MAX);
    let last = seconds(clock.timestamp_of(event.last));
    let message = Printable::line_within(&event.message, MAX_MESSAGE);
    json!({ "count": count, "lastTimestamp": last, "message": message.as_str() })
}

/// Returns a time in the format of core/v1 Events.
fn seconds(time: Timestamp) -> String {
    format!("{time:.0}")
}

/// Logs an event for operators: warnings at info, all others at debug.
pub(super) fn log(event: &Event, posted: bool, failure: Option<&PostFailure>) {
    let Event { subject, severity, reason, message, count, .. } = event;
    let about = match subject {
        Subject::Service(service) => format!("Service {}", service.key),
        Subject::Node { name, .. } => format!("Node {name}"),
        Subject::Controller => "this controller".to_owned(),
    };
    match failure {
        None | Some(PostFailure::Withheld) => match severity {
            Severity::Warning => tracing::info!(about, reason, text = %message, count, posted, "event"),
            Severity::Normal => tracing::debug!(about, reason, text = %message, count, posted, "event"),
        },
        Some(PostFailure::Gone | PostFailure::Exists(_)) => {
            tracing::debug!(about, reason, ?failure, "an event does not exist, or exists already");
        }
        Some(PostFailure::Transient(retry_after)) => {
            tracing::info!(about, reason, ?retry_after, "failed to post an Event; it is retried");
        }
        Some(PostFailure::Final(error)) => {
            let remedy = "HTTP 401 or 403: let the service account create and patch events in all namespaces; otherwise \
                          none. A Warning is posted again each minute while its condition holds";
            tracing::warn!(about, reason, text = %message, %error, remedy, "the API server rejected an Event");
        }
    }
}

#[cfg(test)]
mod tests;
