//! Who asks: each POST carries a Kubernetes bearer token, and the API server says whose it is and whether they may
//! (design.md H2).

use actix_web::http::StatusCode;
use actix_web::http::header::AUTHORIZATION;
use actix_web::{HttpRequest, HttpResponse};
use actors::kubernetes::{Reviewer, Verdict};
use pool_core::object::RequestFailure;
use std::sync::Arc;

use super::problem::{problem, unauthorized};

/// The verb by which a POST is judged.
const VERB: &str = "post";

/// Who asks, if they may; else the answer to them. One line of the log tells of each who was turned away.
pub(super) async fn allowed(reviewer: &Reviewer, request: &HttpRequest) -> Result<Arc<str>, HttpResponse> {
    let path = request.path();
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header.and_then(|header| {
        let (scheme, token) = header.split_once(' ')?;
        let token = token.trim();
        (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
    });
    let Some(token) = token else {
        tracing::info!(path, status = 401, "a request without a bearer token");
        let detail = "a POST needs a Kubernetes bearer token: Authorization: Bearer $(kubectl create token \
                      <service account>)";
        return Err(unauthorized(detail));
    };
    match reviewer.review(token, path, VERB).await {
        Verdict::Allowed(user) => Ok(user),
        Verdict::Denied(user, why) => {
            tracing::info!(path, status = 403, %user, %why, "a request that is not allowed");
            let detail = format!(
                "{user} may not post to {path}; bind them to a ClusterRole with the rule \
                 {{nonResourceURLs: [\"/api/v1/*\"], verbs: [\"post\"]}}{}",
                if why.is_empty() { String::new() } else { format!(" (the API server says: {why})") }
            );
            Err(problem(StatusCode::FORBIDDEN, "forbidden", &detail))
        }
        Verdict::Unknown(why) => {
            tracing::info!(path, status = 401, %why, "a request with a token of nobody");
            Err(unauthorized("the API server does not know this token; it may have expired"))
        }
        Verdict::Unanswered(failure) => {
            let (remedy, why) = match failure {
                RequestFailure::Denied(why) => {
                    ("let the service account create tokenreviews and subjectaccessreviews", why)
                }
                RequestFailure::Other(why) => ("try again when the API server answers", why),
            };
            tracing::warn!(path, status = 503, %why, remedy, "the API server does not say who asks");
            let detail = format!("the API server does not say who asks: {why}; {remedy}");
            Err(problem(StatusCode::SERVICE_UNAVAILABLE, "cannot tell who asks", &detail))
        }
    }
}
