//! Errors as RFC 9457 problem documents.

use actix_web::error::{InternalError, PathError};
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, web};
use model::redact::Printable;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::enums;
use super::values::SnapshotAge;

/// Methods of every read-only path.
const METHODS: &str = "GET, HEAD";

/// Maximum bytes of a request path that a response repeats.
const MAX_PATH: usize = 200;

/// Description of what a listener serves, for its 404 responses.
#[derive(Clone, Copy)]
pub(super) struct ServedPaths(pub(super) &'static str);

/// A problem document as defined by RFC 9457.
#[derive(Serialize, ToSchema)]
pub(super) struct Problem<'a> {
    /// Always `about:blank`: the status is the only type.
    r#type: enums::ProblemType,
    /// Short summary of the problem.
    title: &'a str,
    /// The status of the response.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// Explanation of the problem, with a remedy.
    detail: &'a str,
}

/// A problem that was found in a snapshot, such as an unknown pool.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProblemAsOf<'a> {
    #[serde(flatten)]
    #[schema(inline)]
    problem: Problem<'a>,
    snapshot_age_seconds: SnapshotAge,
}

/// A temporary problem.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProblemUntil<'a> {
    #[serde(flatten)]
    #[schema(inline)]
    problem: Problem<'a>,
    /// Seconds until a retry makes sense, as in `Retry-After`.
    #[schema(minimum = 1)]
    retry_after_seconds: u64,
}

/// A refusal by a standby.
#[derive(Serialize, ToSchema)]
pub(super) struct ProblemOfLeader<'a> {
    #[serde(flatten)]
    #[schema(inline)]
    problem: Problem<'a>,
    /// The leader. Null: unknown.
    leader: Option<&'a str>,
}

impl<'a> Problem<'a> {
    fn new(status: StatusCode, title: &'a str, detail: &'a str) -> Problem<'a> {
        Problem { r#type: enums::ProblemType("about:blank"), title, status: status.as_u16(), detail }
    }
}

/// Returns a JSON document as it is sent, with unprintable characters escaped and recently sent tokens removed.
pub(super) fn printable(document: &impl Serialize) -> String {
    let mut document = serde_json::to_value(document).expect("keys of response documents are strings");
    make_printable(&mut document);
    Printable::json(&document.to_string()).to_string()
}

fn make_printable(value: &mut Value) {
    match value {
        Value::String(text) => *text = Printable::line(text).to_string(),
        Value::Array(all) => all.iter_mut().for_each(make_printable),
        Value::Object(all) => all.values_mut().for_each(make_printable),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns a problem document.
pub(super) fn problem(status: StatusCode, title: &str, detail: &str) -> HttpResponse {
    respond(&mut HttpResponse::build(status), &Problem::new(status, title, detail))
}

/// Returns the refusal of a standby, with the leader if it is known.
pub(super) fn problem_of_leader(
    status: StatusCode,
    title: &str,
    detail: &str,
    leader: Option<&str>,
) -> HttpResponse {
    let problem = Problem::new(status, title, detail);
    respond(&mut HttpResponse::build(status), &ProblemOfLeader { problem, leader })
}

/// Returns a problem that was found in a snapshot of this age.
pub(super) fn problem_as_of(
    snapshot_age_seconds: SnapshotAge,
    status: StatusCode,
    title: &str,
    detail: &str,
) -> HttpResponse {
    let problem = Problem::new(status, title, detail);
    respond(&mut HttpResponse::build(status), &ProblemAsOf { problem, snapshot_age_seconds })
}

fn respond(answer: &mut HttpResponseBuilder, document: &impl Serialize) -> HttpResponse {
    answer.content_type("application/problem+json").body(printable(document))
}

/// Truncates a path for a response.
fn start_of(path: &str) -> String {
    match path.get(..path.floor_char_boundary(MAX_PATH)) {
        Some(start) if start.len() < path.len() => format!("{start}…"),
        Some(_) | None => path.to_owned(),
    }
}

/// Responds 404 to an unknown path.
pub(super) async fn no_such_path(request: HttpRequest, serves: web::Data<ServedPaths>) -> HttpResponse {
    let path = start_of(request.path());
    let detail = format!("{path} is not served here; this listener serves {}", serves.0);
    problem(StatusCode::NOT_FOUND, "no such path", &detail)
}

/// Returns a temporary problem with `Retry-After`.
pub(super) fn problem_until(status: StatusCode, title: &str, detail: &str, seconds: u64) -> HttpResponse {
    let problem = Problem::new(status, title, detail);
    let mut answer = HttpResponse::build(status);
    let answer = answer.insert_header((RETRY_AFTER, seconds.to_string()));
    respond(answer, &ProblemUntil { problem, retry_after_seconds: seconds })
}

/// Returns 401 with the authentication scheme.
pub(super) fn unauthorized(detail: &str) -> HttpResponse {
    let status = StatusCode::UNAUTHORIZED;
    let mut answer = HttpResponse::build(status);
    let answer = answer.insert_header((WWW_AUTHENTICATE, "Bearer"));
    respond(answer, &Problem::new(status, "not authenticated", detail))
}

/// Responds 405 on a read-only path.
pub(super) async fn not_allowed(request: HttpRequest) -> HttpResponse {
    refused_method(&request, METHODS)
}

/// Responds 405 on a path that supports only POST.
pub(super) async fn not_allowed_but_post(request: HttpRequest) -> HttpResponse {
    refused_method(&request, "POST")
}

fn refused_method(request: &HttpRequest, methods: &'static str) -> HttpResponse {
    // A method can be long too.
    let (path, method) = (start_of(request.path()), start_of(request.method().as_str()));
    let detail = format!("{path} supports {methods}, not {method}");
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let mut answer = HttpResponse::build(status);
    let problem = Problem::new(status, "method not allowed", &detail);
    respond(answer.insert_header((ALLOW, methods)), &problem)
}

/// Responds 400 to a path with an invalid part.
pub(super) fn unreadable_path(error: PathError, request: &HttpRequest) -> actix_web::Error {
    let detail = format!("{} cannot be read: {error}", start_of(request.path()));
    let answer = problem(StatusCode::BAD_REQUEST, "unreadable path", &detail);
    InternalError::from_response(error, answer).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_repeats_the_start_of_a_path() {
        for (path, printed) in [
            ("/livez".to_owned(), "/livez".to_owned()),
            ("x".repeat(200), "x".repeat(200)),
            ("x".repeat(39_000), "x".repeat(200) + "…"),
            ("é".repeat(101), "é".repeat(100) + "…"),
            ("x".to_owned() + &"é".repeat(100), "x".to_owned() + &"é".repeat(99) + "…"),
        ] {
            assert_eq!(start_of(&path), printed);
        }
    }

    #[test]
    fn any_document_becomes_printable() {
        let hostile = "a\u{1b}[2J\u{7}\u{202e}\nb";
        let printed = printable(&json!({ "name": hostile, "all": [{ "x": hostile }] }));
        assert!(!printed.contains(|c: char| c.is_control() || c == '\u{202e}'), "{printed}");
        let read: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(read["all"][0]["x"], "a\\u{1b}[2J\\u{7}\\u{202e}\\u{a}b");
        assert_eq!(read["name"], read["all"][0]["x"]);
    }
}
