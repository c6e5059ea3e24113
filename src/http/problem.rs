//! Errors as RFC 9457 problem documents.

use actix_web::error::{InternalError, PathError};
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, web};
use model::redact::Printable;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::values::SnapshotAge;
use super::words;

/// The methods of every path that shows something.
const METHODS: &str = "GET, HEAD";

/// How much of a path an answer repeats, in bytes. The client knows the rest, and each byte costs time.
const LONGEST_PATH: usize = 200;

/// What a listener serves, for the answer to paths that it does not.
#[derive(Clone, Copy)]
pub(super) struct Serves(pub(super) &'static str);

/// A problem, as RFC 9457 has it.
#[derive(Serialize, ToSchema)]
pub(super) struct Problem<'a> {
    /// It has no type but its status.
    r#type: words::ProblemType,
    /// What is wrong, in short.
    title: &'a str,
    /// The status of the response.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What is wrong, and what to do about it.
    detail: &'a str,
}

/// A problem with what a snapshot does or does not hold.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProblemAsOf<'a> {
    #[serde(flatten)]
    #[schema(inline)]
    problem: Problem<'a>,
    snapshot_age_seconds: SnapshotAge,
}

/// A problem that ends by itself.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProblemUntil<'a> {
    #[serde(flatten)]
    #[schema(inline)]
    problem: Problem<'a>,
    /// When to try again, in seconds.
    #[schema(minimum = 1)]
    retry_after_seconds: u64,
}

/// A problem of a replica that does not lead.
#[derive(Serialize, ToSchema)]
pub(super) struct ProblemOfLeader<'a> {
    #[serde(flatten)]
    #[schema(inline)]
    problem: Problem<'a>,
    /// The replica that leads. Null: it is not known.
    leader: Option<&'a str>,
}

impl<'a> Problem<'a> {
    fn new(status: StatusCode, title: &'a str, detail: &'a str) -> Problem<'a> {
        Problem { r#type: words::ProblemType("about:blank"), title, status: status.as_u16(), detail }
    }
}

/// A JSON document as it is sent, with unprintable characters escaped and recently sent tokens removed.
pub(super) fn printable(document: &impl Serialize) -> String {
    let mut document = serde_json::to_value(document).expect("the keys of answers are texts");
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

/// A problem document.
pub(super) fn problem(status: StatusCode, title: &str, detail: &str) -> HttpResponse {
    sent(&mut HttpResponse::build(status), &Problem::new(status, title, detail))
}

/// A problem that names the replica that does what this one does not; `None`: it is not known.
pub(super) fn problem_of_leader(
    status: StatusCode,
    title: &str,
    detail: &str,
    leader: Option<&str>,
) -> HttpResponse {
    let problem = Problem::new(status, title, detail);
    sent(&mut HttpResponse::build(status), &ProblemOfLeader { problem, leader })
}

/// A problem with what a snapshot of this age does or does not hold.
pub(super) fn problem_as_of(
    snapshot_age_seconds: SnapshotAge,
    status: StatusCode,
    title: &str,
    detail: &str,
) -> HttpResponse {
    let problem = Problem::new(status, title, detail);
    sent(&mut HttpResponse::build(status), &ProblemAsOf { problem, snapshot_age_seconds })
}

fn sent(answer: &mut HttpResponseBuilder, document: &impl Serialize) -> HttpResponse {
    answer.content_type("application/problem+json").body(printable(document))
}

/// A path as an answer repeats it.
fn start_of(path: &str) -> String {
    match path.get(..path.floor_char_boundary(LONGEST_PATH)) {
        Some(start) if start.len() < path.len() => format!("{start}…"),
        Some(_) | None => path.to_owned(),
    }
}

/// The answer to a path that is not served.
pub(super) async fn no_such_path(request: HttpRequest, serves: web::Data<Serves>) -> HttpResponse {
    let path = start_of(request.path());
    let detail = format!("{path} is not served here; this listener serves {}", serves.0);
    problem(StatusCode::NOT_FOUND, "no such path", &detail)
}

/// A problem that ends by itself after so many seconds.
pub(super) fn problem_until(status: StatusCode, title: &str, detail: &str, seconds: u64) -> HttpResponse {
    let problem = Problem::new(status, title, detail);
    let mut answer = HttpResponse::build(status);
    let answer = answer.insert_header((RETRY_AFTER, seconds.to_string()));
    sent(answer, &ProblemUntil { problem, retry_after_seconds: seconds })
}

/// A problem with who asks: what it takes to be heard.
pub(super) fn unauthorized(detail: &str) -> HttpResponse {
    let status = StatusCode::UNAUTHORIZED;
    let mut answer = HttpResponse::build(status);
    let answer = answer.insert_header((WWW_AUTHENTICATE, "Bearer"));
    sent(answer, &Problem::new(status, "not authenticated", detail))
}

/// The answer to a method that a path does not have.
pub(super) async fn not_allowed(request: HttpRequest) -> HttpResponse {
    refused_method(&request, METHODS)
}

/// The same where there is only POST.
pub(super) async fn not_allowed_but_post(request: HttpRequest) -> HttpResponse {
    refused_method(&request, "POST")
}

fn refused_method(request: &HttpRequest, methods: &'static str) -> HttpResponse {
    // A method may be long, too.
    let (path, method) = (start_of(request.path()), start_of(request.method().as_str()));
    let detail = format!("{path} has {methods}, not {method}");
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let mut answer = HttpResponse::build(status);
    let problem = Problem::new(status, "method not allowed", &detail);
    sent(answer.insert_header((ALLOW, methods)), &problem)
}

/// The answer to a path whose parts are no text.
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
        for (path, shown) in [
            ("/livez".to_owned(), "/livez".to_owned()),
            ("x".repeat(200), "x".repeat(200)),
            ("x".repeat(39_000), "x".repeat(200) + "…"),
            ("é".repeat(101), "é".repeat(100) + "…"),
            ("x".to_owned() + &"é".repeat(100), "x".to_owned() + &"é".repeat(99) + "…"),
        ] {
            assert_eq!(start_of(&path), shown);
        }
    }

    #[test]
    fn any_document_becomes_printable() {
        let hostile = "a\u{1b}[2J\u{7}\u{202e}\nb";
        let shown = printable(&json!({ "name": hostile, "all": [{ "x": hostile }] }));
        assert!(!shown.contains(|c: char| c.is_control() || c == '\u{202e}'), "{shown}");
        let read: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(read["all"][0]["x"], "a\\u{1b}[2J\\u{7}\\u{202e}\\u{a}b");
        assert_eq!(read["name"], read["all"][0]["x"]);
    }
}
