//! Requests about one object of the API, for Leases and ConfigMaps. The caller interprets the object.
//!
//! The client speaks HTTP/1.1, so each request in flight has its own connection: a waiting watch does not delay a
//! renewal.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use model::object::{REQUEST_TIMEOUT, RequestFailure};
use serde_json::Value;

use super::sanitize::{chain, safe_text, status_text_without};
use super::watch_stream::escaped;
use crate::azure::Effects;

/// Timeout for the message of a refused watch; its status is sufficient.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// Namespace and name of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamespacedName {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl std::fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The kinds whose objects are read and written one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// coordination.k8s.io/v1 Leases.
    Lease,
    /// core/v1 ConfigMaps.
    ConfigMap,
}

impl Kind {
    /// Returns the name of the kind.
    fn as_str(self) -> &'static str {
        match self {
            Kind::Lease => "Lease",
            Kind::ConfigMap => "ConfigMap",
        }
    }

    fn collection(self, namespace: &str) -> String {
        let namespace = escaped(namespace);
        match self {
            Kind::Lease => format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"),
            Kind::ConfigMap => format!("/api/v1/namespaces/{namespace}/configmaps"),
        }
    }
}

/// Answer of the API server that is not a failure.
pub(super) enum ObjectResponse {
    /// The object in its current state, or in its state after the write.
    Object(Value),
    /// The object does not exist.
    Absent,
    /// Another client wrote it first, or it exists already.
    Conflict,
}

/// The verb of a request about an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Read,
    Create,
    Replace,
}

/// Sends requests about one object. Each is sent immediately and lasts at most [`REQUEST_TIMEOUT`].
#[derive(Clone)]
pub(super) struct ObjectApi {
    pub(super) client: Client,
    pub(super) effects: Effects,
    pub(super) kind: Kind,
    pub(super) name: NamespacedName,
}

impl ObjectApi {
    /// Reads the object.
    pub(super) async fn read(&self) -> Result<ObjectResponse, RequestFailure> {
        self.request(Verb::Read, Vec::new()).await
    }

    /// Creates the object; a conflict means that it exists.
    pub(super) async fn create(&self, body: Vec<u8>) -> Result<ObjectResponse, RequestFailure> {
        self.request(Verb::Create, body).await
    }

    /// Replaces the object, unless its version differs from that in the body.
    pub(super) async fn replace(&self, body: Vec<u8>) -> Result<ObjectResponse, RequestFailure> {
        self.request(Verb::Replace, body).await
    }

    /// Watches the object from its current state, for the requested time; returns the body of the answer.
    pub(super) async fn watch(&self, seconds: u64) -> Result<Body, RequestFailure> {
        let collection = self.kind.collection(&self.name.namespace);
        let name = escaped(&self.name.name);
        let path =
            format!("{collection}?watch=true&fieldSelector=metadata.name%3D{name}&timeoutSeconds={seconds}");
        let head = send(&self.client, Method::GET, path, JSON, Vec::new());
        let answer =
            tokio::time::timeout(REQUEST_TIMEOUT, head).await.unwrap_or_else(|_| Err(no_answer()))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer.into_body());
        }
        let body = tokio::time::timeout(BODY_TIMEOUT, answer.into_body().collect()).await;
        let body = body.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes);
        Err(refusal(status, &body.unwrap_or_default()))
    }

    async fn request(&self, verb: Verb, body: Vec<u8>) -> Result<ObjectResponse, RequestFailure> {
        match (self.effects, verb) {
            (Effects::Carried, _) | (Effects::Withheld, Verb::Read) => {}
            // The machines do not send these; this is the last place that can guarantee it (C4).
            (Effects::Withheld, Verb::Create | Verb::Replace) => {
                return Err(other(&format!("a dry run writes no {}", self.kind.as_str())));
            }
        }
        let collection = self.kind.collection(&self.name.namespace);
        let object = || format!("{collection}/{}", escaped(&self.name.name));
        let request = match verb {
            Verb::Read => exchange(&self.client, Method::GET, object(), body),
            Verb::Create => exchange(&self.client, Method::POST, collection, body),
            Verb::Replace => exchange(&self.client, Method::PUT, object(), body),
        };
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, request).await;
        let (status, body) = answer.unwrap_or_else(|_| Err(no_answer()))?;
        match (status, verb) {
            (StatusCode::CONFLICT, Verb::Create | Verb::Replace) => Ok(ObjectResponse::Conflict),
            // For a creation, this status means that the namespace does not exist.
            (StatusCode::NOT_FOUND, Verb::Read | Verb::Replace) => Ok(ObjectResponse::Absent),
            (status, _) if status.is_success() => object_in(status, &body).map(ObjectResponse::Object),
            (status, _) => Err(refusal(status, &body)),
        }
    }

    /// Returns the failure for a state from the server that cannot be used.
    pub(super) fn unusable(&self, reason: &str) -> RequestFailure {
        other(&format!("{} {}: {reason}", self.kind.as_str(), self.name))
    }

    /// Returns the failure for the replacement of a state that this port has not read.
    pub(super) fn foreign(&self) -> RequestFailure {
        other(&format!("the document of the {} was not read by this port", self.kind.as_str()))
    }
}

/// Content type of an object.
const JSON: &str = "application/json";

/// Sends a request with a JSON body of this type, or none, and returns the head of the answer.
async fn send(
    client: &Client,
    method: Method,
    path: String,
    content: &str,
    body: Vec<u8>,
) -> Result<http::Response<Body>, RequestFailure> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::ACCEPT, JSON)
        .header(http::header::CONTENT_TYPE, content)
        .body(Body::from(body))
        .map_err(|error| other(&chain(&error)))?;
    client.send(request).await.map_err(|error| other(&chain(&error)))
}

/// Sends a request and reads the body to its end; without a time limit.
pub(super) async fn exchange(
    client: &Client,
    method: Method,
    path: String,
    body: Vec<u8>,
) -> Result<(StatusCode, Vec<u8>), RequestFailure> {
    exchange_of(client, method, path, JSON, body).await
}

/// Sends a request with a body of another type.
pub(super) async fn exchange_of(
    client: &Client,
    method: Method,
    path: String,
    content: &str,
    body: Vec<u8>,
) -> Result<(StatusCode, Vec<u8>), RequestFailure> {
    let answer = send(client, method, path, content, body).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await.map_err(|error| other(&chain(&error)))?;
    Ok((status, body.to_bytes().into()))
}

/// Returns the object in the body of a success. Another body shows that something between here and the API server
/// answered, so that nothing is known of the request.
///
/// # Errors
/// The body is not an object of the API.
pub(super) fn object_in(status: StatusCode, body: &[u8]) -> Result<Value, RequestFailure> {
    let wrong = |fault: &str| other(&format!("HTTP {}: {fault}", status.as_u16()));
    if body.trim_ascii().is_empty() {
        return Err(wrong("a response without a body"));
    }
    let object: Value = serde_json::from_slice(body).map_err(|error| wrong(&error.to_string()))?;
    if object["metadata"].is_object() { Ok(object) } else { Err(wrong("a response without an object")) }
}

/// Returns the failure for an answer that is not a success.
pub(super) fn refusal(status: StatusCode, body: &[u8]) -> RequestFailure {
    refusal_without(status, body, &[])
}

/// Returns the failure as [`refusal`] does, without these secrets, which the answer may repeat.
pub(super) fn refusal_without(status: StatusCode, body: &[u8], known: &[&str]) -> RequestFailure {
    let text = Arc::from(status_text_without(status, body, known));
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => RequestFailure::Denied(text),
        _ => RequestFailure::Other(text),
    }
}

/// Returns a failure without a status; its text may quote an answer.
pub(super) fn other(reason: &str) -> RequestFailure {
    RequestFailure::Other(safe_text(reason))
}

/// Returns the failure for an answer that did not arrive within [`REQUEST_TIMEOUT`].
pub(super) fn no_answer() -> RequestFailure {
    other(&format!("the API server did not answer within {} s", REQUEST_TIMEOUT.as_secs()))
}
