//! Requests of commands to the API server: GETs, and access reviews, which the server does not store.

use std::borrow::Cow;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use jiff::Timestamp;
use kube::client::Body;
use model::redact::{self, safe_line, start_redacted_of};
use serde_json::Value;

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum length of the text about a failure, in bytes.
const MAX_LENGTH: usize = 600;

/// Sends requests to the API server.
#[derive(Clone)]
pub(super) struct ApiServer(pub(super) kube::Client);

/// An answer.
pub(super) struct Answer {
    /// Its status.
    pub(super) status: StatusCode,
    /// The server's time in the header `Date`.
    pub(super) date: Option<Timestamp>,
    /// Its body, without secrets; null if it is not JSON.
    pub(super) body: Value,
}

impl Answer {
    /// Returns the status and message of a refusal.
    pub(super) fn failure_text(&self) -> String {
        let message = self.body["message"].as_str().unwrap_or_default();
        if message.is_empty() {
            format!("HTTP {}", self.status)
        } else {
            format!("HTTP {}: {}", self.status, safe_line(message, &[], MAX_LENGTH))
        }
    }
}

impl ApiServer {
    /// Reads a path.
    ///
    /// # Errors
    /// There was no answer; the text has the reason.
    pub(super) async fn get(&self, path: &str) -> Result<Answer, String> {
        self.send(Method::GET, path, Body::empty()).await
    }

    /// Reviews whether this client has a right.
    ///
    /// # Errors
    /// There was no answer; the text has the reason.
    pub(super) async fn review_access(&self, attributes: &Value) -> Result<Answer, String> {
        let review = serde_json::json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": attributes },
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        self.send(Method::POST, path, Body::from(review.to_string().into_bytes())).await
    }

    async fn send(&self, method: Method, path: &str, body: Body) -> Result<Answer, String> {
        let request = Request::builder().method(method).uri(path).header("Content-Type", "application/json");
        let request = request.body(body).map_err(|error| chain(&error))?;
        let exchange = async {
            let answer = self.0.send(request).await.map_err(|error| chain(&error))?;
            let (head, body) = answer.into_parts();
            let date = head.headers.get("date").and_then(|date| date.to_str().ok()).and_then(http_date);
            let body = body.collect_bytes().await.map_err(|error| chain(&error))?;
            let mut body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            redact(&mut body);
            Ok(Answer { status: head.status, date, body })
        };
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, exchange).await;
        answer.unwrap_or_else(|_| Err(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs())))
    }
}

/// Parses the header `Date`; `None` if it is invalid.
pub(super) fn http_date(text: &str) -> Option<Timestamp> {
    let zoned = jiff::fmt::rfc2822::DateTimeParser::new().parse_zoned(text.trim());
    zoned.ok().map(|zoned| zoned.timestamp())
}

/// Removes secrets from all texts, and truncates very long ones: a server that is not the API server may answer, and
/// may repeat the request.
fn redact(value: &mut Value) {
    match value {
        Value::String(text) => {
            let (start, is_cut) = start_redacted_of(text, &[]);
            if is_cut || matches!(start, Cow::Owned(_)) {
                *text = start.into_owned();
            }
        }
        Value::Array(all) => all.iter_mut().for_each(redact),
        Value::Object(all) => all.values_mut().for_each(redact),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns an error with all its causes, without repetitions and without secrets.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    safe_line(&redact::chain(error), &[], MAX_LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w7_the_date_of_an_answer_is_read_as_http_writes_it() {
        let read = http_date("Sun, 06 Nov 1994 08:49:37 GMT").map(|time| time.to_string());
        assert_eq!(read.as_deref(), Some("1994-11-06T08:49:37Z"));
        assert_eq!(http_date("yesterday"), None);
    }
}
