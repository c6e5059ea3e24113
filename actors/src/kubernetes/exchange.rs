//! One request about one object of the API and what its answer means, for Leases and ConfigMaps alike. What the
//! object says is for the caller to decide.
//!
//! The client speaks HTTP/1.1, so each request that is under way has a connection of its own: a watch that waits
//! delays no renewal.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use model::object::{ANSWER_WITHIN, RequestFailure};
use serde_json::Value;

use super::sanitize::{chain, said, status_text_without};
use super::watch_stream::escaped;
use crate::azure::Effects;

/// How long the words of a refused watch are waited for; its status says enough.
const WORDS_WITHIN: Duration = Duration::from_secs(2);

/// Where an object is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl std::fmt::Display for Place {
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
    /// The kind in the singular, as operators write it.
    fn name(self) -> &'static str {
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

/// What the API server has answered, where that is more than a failure.
pub(super) enum Answered {
    /// The object as it is, or as the write has left it.
    Object(Value),
    /// There is none.
    Absent,
    /// Another client wrote it first, or it exists already.
    Conflict,
}

/// What is asked about an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Read,
    Create,
    Replace,
}

/// Sends requests about one object. Each is sent at once and lasts no longer than [`ANSWER_WITHIN`].
#[derive(Clone)]
pub(super) struct Exchange {
    pub(super) client: Client,
    pub(super) effects: Effects,
    pub(super) kind: Kind,
    pub(super) place: Place,
}

impl Exchange {
    /// Reads the object.
    pub(super) async fn read(&self) -> Result<Answered, RequestFailure> {
        self.ask(Verb::Read, Vec::new()).await
    }

    /// Creates it; a conflict says that it exists.
    pub(super) async fn create(&self, body: Vec<u8>) -> Result<Answered, RequestFailure> {
        self.ask(Verb::Create, body).await
    }

    /// Replaces the state whose version the body names.
    pub(super) async fn replace(&self, body: Vec<u8>) -> Result<Answered, RequestFailure> {
        self.ask(Verb::Replace, body).await
    }

    /// Watches it from its present state on, for as long as is asked for; gives what the server tells meanwhile.
    pub(super) async fn watch(&self, seconds: u64) -> Result<Body, RequestFailure> {
        let collection = self.kind.collection(&self.place.namespace);
        let name = escaped(&self.place.name);
        let path =
            format!("{collection}?watch=true&fieldSelector=metadata.name%3D{name}&timeoutSeconds={seconds}");
        let head = send(&self.client, Method::GET, path, JSON, Vec::new());
        let answer = tokio::time::timeout(ANSWER_WITHIN, head).await.unwrap_or_else(|_| Err(silence()))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer.into_body());
        }
        let words = tokio::time::timeout(WORDS_WITHIN, answer.into_body().collect()).await;
        let words = words.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes);
        Err(refusal(status, &words.unwrap_or_default()))
    }

    async fn ask(&self, verb: Verb, body: Vec<u8>) -> Result<Answered, RequestFailure> {
        match (self.effects, verb) {
            (Effects::Carried, _) | (Effects::Withheld, Verb::Read) => {}
            // The machines do not ask; this is the last place where it can be made certain (C4).
            (Effects::Withheld, Verb::Create | Verb::Replace) => {
                return Err(other(&format!("a dry run writes no {}", self.kind.name())));
            }
        }
        let collection = self.kind.collection(&self.place.namespace);
        let object = || format!("{collection}/{}", escaped(&self.place.name));
        let request = match verb {
            Verb::Read => exchange(&self.client, Method::GET, object(), body),
            Verb::Create => exchange(&self.client, Method::POST, collection, body),
            Verb::Replace => exchange(&self.client, Method::PUT, object(), body),
        };
        let answer = tokio::time::timeout(ANSWER_WITHIN, request).await;
        let (status, body) = answer.unwrap_or_else(|_| Err(silence()))?;
        match (status, verb) {
            (StatusCode::CONFLICT, Verb::Create | Verb::Replace) => Ok(Answered::Conflict),
            // Of a creation it says that there is no such namespace.
            (StatusCode::NOT_FOUND, Verb::Read | Verb::Replace) => Ok(Answered::Absent),
            (status, _) if status.is_success() && body.trim_ascii().is_empty() => {
                Err(other(&format!("HTTP {}: a response without a body", status.as_u16())))
            }
            (status, _) if status.is_success() => {
                serde_json::from_slice(&body).map(Answered::Object).map_err(|error| other(&error.to_string()))
            }
            (status, _) => Err(refusal(status, &body)),
        }
    }

    /// A state that the server has sent and that cannot be used.
    pub(super) fn unusable(&self, why: &str) -> RequestFailure {
        other(&format!("{} {}: {why}", self.kind.name(), self.place))
    }

    /// A replacement of a state that was not read here.
    pub(super) fn foreign(&self) -> RequestFailure {
        other(&format!("the document of the {} was not read by this port", self.kind.name()))
    }
}

/// The content type of an object.
const JSON: &str = "application/json";

/// Sends a request with a JSON body of this type, or none, and gives the head of the answer.
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

/// The same, and reads the body to its end; without a limit of time.
pub(super) async fn exchange(
    client: &Client,
    method: Method,
    path: String,
    body: Vec<u8>,
) -> Result<(StatusCode, Vec<u8>), RequestFailure> {
    exchange_of(client, method, path, JSON, body).await
}

/// The same with a body of another type.
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

/// What an answer means that is neither a success nor said by its status alone.
pub(super) fn refusal(status: StatusCode, body: &[u8]) -> RequestFailure {
    refusal_without(status, body, &[])
}

/// The same, without these secrets, which the answer may repeat.
pub(super) fn refusal_without(status: StatusCode, body: &[u8], known: &[&str]) -> RequestFailure {
    let said = Arc::from(status_text_without(status, body, known));
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => RequestFailure::Denied(said),
        _ => RequestFailure::Other(said),
    }
}

/// A failure that no status tells of; its words may quote an answer.
pub(super) fn other(why: &str) -> RequestFailure {
    RequestFailure::Other(said(why))
}

/// Nothing came within [`ANSWER_WITHIN`].
pub(super) fn silence() -> RequestFailure {
    other(&format!("the API server did not answer within {} s", ANSWER_WITHIN.as_secs()))
}
