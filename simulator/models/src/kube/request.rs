//! Requests and replies as plain data, and the meaning of a path and its query.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::resource::Resource;
use super::status::Failure;

/// One HTTP request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// Path and query as on the request line, percent-encoded.
    pub path_and_query: String,
    /// Headers; names in any case.
    pub headers: Vec<(String, String)>,
    /// Body; empty if there is none.
    pub body: Vec<u8>,
}

impl Request {
    /// Creates a request without headers and body.
    pub fn new(method: &str, path_and_query: &str) -> Request {
        Request { method: method.to_owned(), path_and_query: path_and_query.to_owned(), ..Request::default() }
    }

    /// Returns the request with a JSON body of the given content type.
    #[must_use]
    pub fn with_body(mut self, content_type: &str, body: &Value) -> Request {
        self.headers.push(("content-type".to_owned(), content_type.to_owned()));
        self.body = body.to_string().into_bytes();
        self
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(given, _)| given.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Returns the content type in lower case and without parameters; empty if there is none.
    pub(super) fn content_type(&self) -> String {
        let full = self.header("content-type").unwrap_or_default();
        full.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// Returns whether the client accepts plain JSON. The model serves neither Tables nor PartialObjectMetadata.
    pub(super) fn accepts_json(&self) -> bool {
        let Some(accept) = self.header("accept") else {
            return true;
        };
        accept.trim().is_empty()
            || accept.split(',').any(|part| {
                let mut pieces = part.split(';').map(str::trim);
                let media = pieces.next().unwrap_or_default().to_ascii_lowercase();
                matches!(media.as_str(), "application/json" | "*/*" | "application/*")
                    && !pieces.any(|piece| piece.starts_with("as="))
            })
    }
}

/// Id of one watch, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// Reply of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A complete answer.
    Answer {
        /// The HTTP status.
        status: u16,
        /// Always holds `content-type`.
        headers: Vec<(String, String)>,
        /// The whole body.
        body: Vec<u8>,
        /// Latency of the answer in microseconds (the wrapper waits).
        after_us: u64,
    },
    /// HTTP 200 with `content-type: application/json`, chunked. These lines come first; the caller polls for the
    /// others.
    Watch(WatchId, Vec<Arc<[u8]>>),
    /// There is no listener: the connection is refused.
    Refused,
}

impl Reply {
    pub(super) fn json(status: u16, body: Vec<u8>) -> Reply {
        Reply::Answer {
            status,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body,
            after_us: 0,
        }
    }

    pub(super) fn text(status: u16, body: &str) -> Reply {
        Reply::Answer {
            status,
            headers: vec![("content-type".to_owned(), "text/plain; charset=utf-8".to_owned())],
            body: body.as_bytes().to_vec(),
            after_us: 0,
        }
    }

    /// Returns the reply with this failure. A 504 comes after 3 s: for that long, the real server waits for a future
    /// resourceVersion.
    pub(super) fn failure(failure: &Failure) -> Reply {
        let retry_after = failure.details.get("retryAfterSeconds").and_then(Value::as_u64);
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        if let Some(seconds) = retry_after {
            headers.push(("retry-after".to_owned(), seconds.to_string()));
        }
        Reply::Answer {
            status: failure.code,
            headers,
            body: failure.body().to_string().into_bytes(),
            after_us: if failure.code == 504 { 3_000_000 } else { 0 },
        }
    }
}

/// Target of a path below `/api/v1` or `/apis/<group>/<version>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub resource: Resource,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub status: bool,
}

impl Target {
    /// Parses decoded path segments; `None` for a path that is not served.
    pub fn parse(segments: &[String]) -> Option<Target> {
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !group.is_empty() => (*group, *version, rest),
            _ => return None,
        };
        let find = |plural: &str| Resource::at_path(group, version, plural);
        let target = |resource: Resource, namespace: Option<&str>, name: Option<&str>, status: bool| {
            let facts = resource.facts();
            let fits = facts.namespaced == namespace.is_some() || (namespace.is_none() && name.is_none());
            let served = fits && (!status || facts.has_status);
            served.then(|| Target {
                resource,
                namespace: namespace.map(str::to_owned),
                name: name.map(str::to_owned),
                status,
            })
        };
        match rest {
            [plural] => target(find(plural)?, None, None, false),
            ["namespaces", name, "status"] => target(find("namespaces")?, None, Some(name), true),
            ["namespaces", namespace, plural] => target(find(plural)?, Some(namespace), None, false),
            ["namespaces", namespace, plural, name] => {
                target(find(plural)?, Some(namespace), Some(name), false)
            }
            ["namespaces", namespace, plural, name, "status"] => {
                target(find(plural)?, Some(namespace), Some(name), true)
            }
            [plural, name] => target(find(plural)?, None, Some(name), false),
            [plural, name, "status"] => target(find(plural)?, None, Some(name), true),
            _ => None,
        }
    }
}

/// Query parameters; the first value of a name counts.
#[derive(Debug, Clone, Default)]
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub fn flag(&self, name: &str) -> bool {
        matches!(self.text(name), "1" | "true" | "True" | "t" | "T" | "TRUE")
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns a number that must be valid if it is given.
    pub fn number(&self, name: &str) -> Result<Option<u64>, Failure> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| {
            Failure::bad_request(format!("invalid value for {name}: \"{text}\" is not an unsigned integer"))
        })
    }
}

/// Splits a request line into decoded path segments and the query.
pub(super) fn split(path_and_query: &str) -> (Vec<String>, Query) {
    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    let segments = path.split('/').filter(|part| !part.is_empty()).map(|part| decode(part, false)).collect();
    let mut parameters = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        parameters.entry(decode(name, true)).or_insert_with(|| decode(value, true));
    }
    (segments, Query(parameters))
}

fn decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let hex = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match (byte, hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).expect("two hexadecimal digits fit a byte"));
                at += 3;
                continue;
            }
            (b'+', _, _) if plus_is_space => out.push(b' '),
            (other, _, _) => out.push(other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}
