//! Facts about a failure, from an answer of ARM or from a transport error. The SDK's error parser is not used,
//! because it loses the code of a message with an escape in it (W5).

mod body;
mod retry_after;

use std::sync::Arc;

use azure_core::error::{Error, ErrorKind};
use azure_core::http::RawResponse;
use azure_core::http::headers::{HeaderName, Headers};
use model::arm::{Failure, FailureKind, RetryAfter};
use model::redact::{chain, safe_line};
use serde_json::Value;

use crate::abort_reason::AbortReason;
use body::ErrorBody;
pub(crate) use retry_after::retry_after;

/// Maximum length of a message, in bytes.
pub(crate) const MAX_MESSAGE: usize = 1024;

const CORRELATION_ID: HeaderName = HeaderName::from_static("x-ms-correlation-request-id");

/// Returns the failure of an answer with an unsuccessful status.
pub(crate) fn of_response(response: &RawResponse) -> Failure {
    let status = u16::from(response.status());
    with_body(FailureKind::Status(status), response.headers(), ErrorBody::parse(response.body()))
}

/// Returns the failure of a successful answer that cannot be read.
pub(crate) fn undecodable(response: &RawResponse, reason: &str) -> Failure {
    let status = u16::from(response.status());
    let body = ErrorBody { codes: Vec::new(), message: reason.to_owned() };
    with_body(FailureKind::Undecodable(status), response.headers(), body)
}

/// Returns the failure of an operation; the body of the poll has the reason.
pub(crate) fn of_operation(response: &RawResponse, body: &Value) -> Failure {
    with_body(FailureKind::Operation, response.headers(), ErrorBody::of_operation(body))
}

/// Returns the failure of a request that cannot be built, and so was not sent.
pub(crate) fn refused(reason: &dyn std::error::Error) -> Failure {
    without_answer(FailureKind::Refused, RetryAfter::Absent, &chain(reason))
}

/// Returns the failure of an error of the pipeline, without an answer.
pub(crate) fn of_error(error: &Error) -> Failure {
    let (kind, retry_after) = match (error.kind(), AbortReason::within(error)) {
        (ErrorKind::Credential, _) => (FailureKind::Credential, RetryAfter::Absent),
        (_, Some(AbortReason::GateClosed { remaining })) => {
            (FailureKind::GateClosed, RetryAfter::In(remaining))
        }
        (_, Some(AbortReason::PermitExpired)) => (FailureKind::PermitExpired, RetryAfter::Absent),
        (_, Some(AbortReason::Timeout)) => (FailureKind::Timeout, RetryAfter::Absent),
        (_, Some(AbortReason::TooLarge { status, .. })) => {
            (FailureKind::Undecodable(status), RetryAfter::Absent)
        }
        (ErrorKind::Connection, None) => (FailureKind::NotConnected, RetryAfter::Absent),
        (ErrorKind::Io, None) => (FailureKind::Connection, RetryAfter::Absent),
        (ErrorKind::HttpResponse { status, .. }, None) => {
            (FailureKind::Status(u16::from(*status)), RetryAfter::Absent)
        }
        (ErrorKind::DataConversion | ErrorKind::Other, None) => (FailureKind::Refused, RetryAfter::Absent),
    };
    without_answer(kind, retry_after, &chain(error))
}

/// Returns ARM's correlation id, for operators.
pub(crate) fn correlation_id(headers: &Headers) -> Option<Arc<str>> {
    let id = headers.get_optional_str(&CORRELATION_ID)?.trim();
    (!id.is_empty()).then(|| Arc::from(shorten(id).as_str()))
}

fn with_body(kind: FailureKind, headers: &Headers, body: ErrorBody) -> Failure {
    let mut codes = body.codes.into_iter().map(|code| Arc::from(shorten(&code).as_str()));
    Failure {
        kind,
        code: codes.next(),
        inner_codes: codes.collect(),
        message: Arc::from(shorten(&body.message).as_str()),
        retry_after: retry_after(headers),
        correlation_id: correlation_id(headers),
    }
}

fn without_answer(kind: FailureKind, retry_after: RetryAfter, message: &str) -> Failure {
    Failure {
        kind,
        code: None,
        inner_codes: Vec::new(),
        message: Arc::from(shorten(message).as_str()),
        retry_after,
        correlation_id: None,
    }
}

/// Returns one line of at most [`MAX_MESSAGE`] bytes, without secrets.
fn shorten(text: &str) -> String {
    safe_line(text, &[], MAX_MESSAGE)
}
