//! The API server, as commands ask it: GETs, and questions about rights, which the server answers and keeps nothing of.

use std::borrow::Cow;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use jiff::Timestamp;
use kube::client::Body;
use model::redact::{self, safe_line, start_redacted_of};
use serde_json::Value;

/// How long one answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// The most bytes of what is said of a failure.
const LONGEST: usize = 600;

/// Asks the API server.
#[derive(Clone)]
pub(super) struct ApiServer(pub(super) kube::Client);

/// An answer.
pub(super) struct Answer {
    /// Its status.
    pub(super) status: StatusCode,
    /// The server's wall time in it.
    pub(super) date: Option<Timestamp>,
    /// Its body, without secrets; null when it is no JSON.
    pub(super) body: Value,
}

impl Answer {
    /// What a refusal says, in words.
    pub(super) fn words(&self) -> String {
        let said = self.body["message"].as_str().unwrap_or_default();
        if said.is_empty() {
            format!("HTTP {}", self.status)
        } else {
            format!("HTTP {}: {}", self.status, safe_line(said, &[], LONGEST))
        }
    }
}

impl ApiServer {
    /// Reads a path.
    ///
    /// # Errors
    /// There was no answer; the text says why.
    pub(super) async fn get(&self, path: &str) -> Result<Answer, String> {
        self.ask(Method::GET, path, Body::empty()).await
    }

    /// Asks whether we may do something.
    ///
    /// # Errors
    /// There was no answer; the text says why.
    pub(super) async fn may(&self, attributes: &Value) -> Result<Answer, String> {
        let review = serde_json::json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": attributes },
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        self.ask(Method::POST, path, Body::from(review.to_string().into_bytes())).await
    }

    async fn ask(&self, method: Method, path: &str, body: Body) -> Result<Answer, String> {
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
        let answer = tokio::time::timeout(ANSWER_WITHIN, exchange).await;
        answer.unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER_WITHIN.as_secs())))
    }
}

/// The time that a header `Date` tells; `None`: it is unreadable.
pub(super) fn http_date(text: &str) -> Option<Timestamp> {
    let zoned = jiff::fmt::rfc2822::DateTimeParser::new().parse_zoned(text.trim());
    zoned.ok().map(|zoned| zoned.timestamp())
}

/// Takes the secrets out of every text, and leaves out the end of a very long one: what answers may be no API server, and repeat what it was sent.
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

/// An error with all its causes, each said once, and without secrets.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    safe_line(&redact::chain(error), &[], LONGEST)
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
