//! Answers before they get their common headers, and the bodies of errors, as in recordings of Azure.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::random::Guid;
use super::settings::{FaultAnswer, FaultBody};

/// A header with a static name.
pub(crate) type Header = (&'static str, Cow<'static, str>);

/// An answer under construction.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<Header>,
    pub(crate) body: Vec<u8>,
    pub(crate) content_type: &'static str,
    /// Error code, for the log.
    pub(crate) code: Option<Cow<'static, str>>,
    /// Operation that this request started; it becomes the request id.
    pub(crate) operation: Option<Guid>,
}

impl Answer {
    pub(crate) fn json(status: u16, body: Vec<u8>) -> Self {
        let content_type = "application/json; charset=utf-8";
        Self { status, headers: Vec::new(), body, content_type, code: None, operation: None }
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self::json(status, Vec::new())
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    fn error(status: u16, code: &'static str, body: &Value) -> Self {
        let mut answer = Self::json(status, body.to_string().into_bytes());
        answer.code = Some(code.into());
        answer
    }

    /// Returns an error of the gateway in front of the resource provider.
    pub(crate) fn gateway(status: u16, code: &'static str, message: &str) -> Self {
        Self::error(status, code, &json!({"error": {"code": code, "message": message}}))
            .with("x-ms-failure-cause", "gateway")
    }

    /// Returns a refusal by an exhausted quota: ARM's own, which is named as such, or the resource provider's.
    pub(crate) fn throttled(by_gateway: bool, code: &'static str, message: &str, seconds: u64) -> Self {
        let answer = Self::error(429, code, &json!({"error": {"code": code, "message": message}}));
        let answer = answer.with("Retry-After", seconds.to_string());
        if by_gateway { answer.with("x-ms-failure-cause", "gateway") } else { answer }
    }

    /// Returns an error in the format of the compute provider.
    pub(crate) fn flat(status: u16, code: &'static str, message: &str) -> Self {
        Self::error(status, code, &json!({"error": {"code": code, "message": message}}))
    }

    /// Returns an error of the resource provider without details.
    pub(crate) fn provider(status: u16, code: &'static str, message: &str) -> Self {
        Self::error(status, code, &json!({"error": {"code": code, "message": message, "details": []}}))
    }

    /// Returns an error of the resource provider with its reason in its one detail.
    pub(crate) fn detailed(status: u16, outer: [&'static str; 2], code: &'static str, message: &str) -> Self {
        let [envelope, summary] = outer;
        let details = [json!({"code": code, "message": message})];
        let body = json!({"error": {"code": envelope, "message": summary, "details": details}});
        Self::error(status, code, &body)
    }

    pub(crate) fn not_found(id: &str) -> Self {
        Self::provider(404, "NotFound", &format!("Resource {id} not found."))
    }

    pub(crate) fn etag_mismatch(given: &str, actual: Guid, id: &str) -> Self {
        let message = format!(
            "Etag provided in if-match header {given} does not match etag W/\"{actual}\" of resource {id} in NRP data store."
        );
        let outer = ["PreconditionFailed", "Precondition failed."];
        Self::detailed(412, outer, "PreconditionFailedEtagMismatch", &message)
    }

    /// Returns a refusal because another operation runs on the load balancer.
    pub(crate) fn locked(operation: &str, id: Guid, resource: &str, seconds: u32) -> Self {
        let message = format!(
            "Operation {operation} ({id}) is updating resource {resource}. The call can be retried in {seconds} seconds."
        );
        let outer = ["RetryableError", "A retryable error occurred."];
        Self::detailed(429, outer, "RetryableErrorDueToAnotherOperation", &message)
    }

    pub(crate) fn fault(fault: &FaultAnswer) -> Self {
        let FaultAnswer { status, code, message, retry_after, body } = fault;
        let mut answer = match body {
            FaultBody::Standard => {
                let body = json!({"error": {"code": code, "message": message, "details": []}});
                Self::json(*status, body.to_string().into_bytes())
            }
            FaultBody::PascalCase => {
                let details = [json!({"Code": code, "Message": message, "Target": null})];
                let inner = "Source: RD0003FFE5AE82. A retryable error occurred.";
                let error = json!({
                    "Code": "RetryableError", "Message": "A retryable error occurred.",
                    "Details": details, "InnerError": inner
                });
                Self::json(*status, json!({ "Error": error }).to_string().into_bytes())
            }
            FaultBody::Bare => {
                Self::json(*status, json!({"code": code, "message": message}).to_string().into_bytes())
            }
            FaultBody::Html => {
                let page = format!("<html><head><title>{status}</title></head><body>{message}</body></html>");
                let mut answer = Self::json(*status, page.into_bytes());
                answer.content_type = "text/html";
                answer
            }
            FaultBody::Empty => Self::empty(*status),
            FaultBody::Gateway => {
                let body = json!({"error": {"code": code, "message": message}});
                Self::json(*status, body.to_string().into_bytes()).with("x-ms-failure-cause", "gateway")
            }
        };
        answer.code = Some(code.clone().into());
        match retry_after {
            Some(text) => answer.with("Retry-After", text.clone()),
            None => answer,
        }
    }
}
