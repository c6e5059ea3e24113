//! Errors as RFC 9457 problem documents.

use actix_web::error::{InternalError, PathError};
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, web};
use model::redact::Printable;
use serde_json::{Value, json};

/// The methods of every path that shows something.
const METHODS: &str = "GET, HEAD";

/// How much of a path an answer repeats, in bytes. The client knows the rest, and each byte costs time.
const LONGEST_PATH: usize = 200;

/// What a listener serves, for the answer to paths that it does not.
#[derive(Clone, Copy)]
pub(super) struct Serves(pub(super) &'static str);

/// A JSON document as it is sent, with unprintable characters escaped and recently sent tokens removed.
pub(super) fn printable(mut document: Value) -> String {
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
    of(&mut HttpResponse::build(status), status, title, detail, None)
}

/// A problem that names the replica that does what this one does not; `None`: it is not known.
pub(super) fn problem_of_leader(
    status: StatusCode,
    title: &str,
    detail: &str,
    leader: Option<&str>,
) -> HttpResponse {
    let document = json!({
        "type": "about:blank",
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
        "leader": leader,
    });
    HttpResponse::build(status).content_type("application/problem+json").body(printable(document))
}

/// A problem with what a snapshot of this age, in seconds, does or does not hold.
pub(super) fn problem_as_of(age: Option<f64>, status: StatusCode, title: &str, detail: &str) -> HttpResponse {
    of(&mut HttpResponse::build(status), status, title, detail, Some(age))
}

fn of(
    answer: &mut HttpResponseBuilder,
    status: StatusCode,
    title: &str,
    detail: &str,
    age: Option<Option<f64>>,
) -> HttpResponse {
    let mut document = json!({
        "type": "about:blank",
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
    });
    if let Some(age) = age {
        document["snapshotAgeSeconds"] = age.map_or(Value::Null, Value::from);
    }
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
    let mut answer = HttpResponse::build(status);
    let document = json!({
        "type": "about:blank",
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
        "retryAfterSeconds": seconds,
    });
    let answer = answer.insert_header((RETRY_AFTER, seconds.to_string()));
    answer.content_type("application/problem+json").body(printable(document))
}

/// A problem with who asks: what it takes to be heard.
pub(super) fn unauthorized(detail: &str) -> HttpResponse {
    let status = StatusCode::UNAUTHORIZED;
    let mut answer = HttpResponse::build(status);
    let answer = answer.insert_header((WWW_AUTHENTICATE, "Bearer"));
    of(answer, status, "not authenticated", detail, None)
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
    of(answer.insert_header((ALLOW, methods)), status, "method not allowed", &detail, None)
}

/// The answer to a path whose parts are no text.
pub(super) fn unreadable_path(error: PathError, request: &HttpRequest) -> actix_web::Error {
    let detail = format!("{} cannot be read: {error}", start_of(request.path()));
    let answer = problem(StatusCode::BAD_REQUEST, "unreadable path", &detail);
    InternalError::from_response(error, answer).into()
}

#[cfg(test)]
mod tests {
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
        let shown = printable(json!({ "name": hostile, "all": [{ "x": hostile }] }));
        assert!(!shown.contains(|c: char| c.is_control() || c == '\u{202e}'), "{shown}");
        let read: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(read["all"][0]["x"], "a\\u{1b}[2J\\u{7}\\u{202e}\\u{a}b");
        assert_eq!(read["name"], read["all"][0]["x"]);
    }
}
