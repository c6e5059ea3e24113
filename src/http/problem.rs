//! Errors as RFC 9457 problem documents.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

/// A problem document.
pub(super) fn problem(status: StatusCode, title: &str, detail: &str) -> HttpResponse {
    HttpResponse::build(status).content_type("application/problem+json").body(
        json!({
            "type": "about:blank",
            "title": title,
            "status": status.as_u16(),
            "detail": detail,
        })
        .to_string(),
    )
}

/// The answer to a path or method that nobody serves.
pub(super) async fn no_such_path(request: HttpRequest) -> HttpResponse {
    let detail = format!("{} {} is not served here; see GET /api/v1/status", request.method(), request.path());
    problem(StatusCode::NOT_FOUND, "no such path", &detail)
}
