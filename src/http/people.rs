//! Who asks: a Kubernetes bearer token says it, and the API server says whose it is and whether they may (design.md H2).
//! With TLS each request is judged before anything else is made of it; on loopback each POST is, by its handler.

use std::sync::Arc;

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::AUTHORIZATION;
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage as _, HttpRequest, HttpResponse};
use actors::kubernetes::{Reviewer, Verdict};
use pool_core::object::RequestFailure;

use super::problem::{problem, unauthorized};

/// What stands before a path when it is judged. Kubernetes lets every account `get` `/api/*` of its API server (the role
/// `system:discovery`), and programs that judge as we do have rules about `/api/v1/*`: none of them is about us.
const OURS: &str = "/azure-backend-pool-controller";

/// The longest path of which anything is made, in bytes: names of a load balancer and a pool, and much more.
const LONGEST_PATH: usize = 1024;
/// The longest method.
const LONGEST_METHOD: usize = 16;
/// The longest token. Those of service accounts have about a thousand bytes, those of people some thousands.
const LONGEST_TOKEN: usize = 32 << 10;

/// Who asks, where they were judged already. It goes with the request.
struct Judged(Arc<str>);

/// Hands a request on, where there is somebody who judges it only if they may make it: whatever its method and path.
pub(super) async fn enter(
    reviewer: Option<Reviewer>,
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    if let Some(reviewer) = reviewer {
        let judged = judge(&reviewer, request.request()).await;
        match judged {
            Ok(user) => drop(request.extensions_mut().insert(Judged(user))),
            Err(refused) => {
                let (request, _) = request.into_parts();
                return Ok(ServiceResponse::new(request, refused));
            }
        }
    }
    next.call(request).await
}

/// Who asks, if they may; else the answer to them. Nobody is judged twice for one request.
pub(super) async fn allowed(reviewer: &Reviewer, request: &HttpRequest) -> Result<Arc<str>, HttpResponse> {
    let judged = request.extensions().get::<Judged>().map(|Judged(user)| Arc::clone(user));
    match judged {
        Some(user) => Ok(user),
        None => judge(reviewer, request).await,
    }
}

/// The verb by which a method is judged.
fn verb_of(method: &Method) -> String {
    if method == Method::HEAD { "get".to_owned() } else { method.as_str().to_ascii_lowercase() }
}

fn token_of(request: &HttpRequest) -> Option<&str> {
    let header = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.split_once(' ')?;
    let token = token.trim();
    let may_be_one = scheme.eq_ignore_ascii_case("bearer") && (1..=LONGEST_TOKEN).contains(&token.len());
    may_be_one.then_some(token)
}

/// Has the API server judge who asks, by the path that is routed, with nothing in it percent-encoded that need not be. One
/// line of the log tells of each who was turned away by a verdict; without a token anybody could fill the log.
///
/// What only reads may be judged by a verdict of the last 10 s: it is made again and again, and what somebody has seen a
/// moment ago is no secret to him. What may change something is judged anew each time: whoever has lost the right must
/// not pause or release anything from that moment on, and people ask for such things seldom.
async fn judge(reviewer: &Reviewer, request: &HttpRequest) -> Result<Arc<str>, HttpResponse> {
    let (path, verb) = (request.match_info().as_str(), verb_of(request.method()));
    if path.len() > LONGEST_PATH || verb.len() > LONGEST_METHOD {
        let detail = format!(
            "a path has {LONGEST_PATH} bytes at most, and a method {LONGEST_METHOD}; GET /openapi.json lists those \
             that there are"
        );
        return Err(problem(StatusCode::URI_TOO_LONG, "too long", &detail));
    }
    let Some(token) = token_of(request) else {
        tracing::debug!(path, verb, status = 401, "a request without a bearer token");
        let detail = "this needs a Kubernetes bearer token: Authorization: Bearer $(kubectl create token \
                      <service account>)";
        return Err(unauthorized(detail));
    };
    let judged = format!("{OURS}{path}");
    let verdict = if verb == "get" {
        reviewer.review_lately(token, &judged, &verb).await
    } else {
        reviewer.review(token, &judged, &verb).await
    };
    match verdict {
        Verdict::Allowed(user) => Ok(user),
        Verdict::Denied(user, why) => {
            tracing::info!(path, verb, status = 403, %user, %why, "a request that is not allowed");
            let detail = format!(
                "{user} may not {verb} {judged}; bind them to a ClusterRole with the rule {{nonResourceURLs: \
                 [\"{OURS}/*\"], verbs: [\"get\", \"post\"]}}, or with as much of it as they need{}",
                if why.is_empty() { String::new() } else { format!(" (the API server says: {why})") }
            );
            Err(problem(StatusCode::FORBIDDEN, "forbidden", &detail))
        }
        Verdict::Unknown(why) => {
            tracing::info!(path, verb, status = 401, %why, "a request with a token of nobody");
            Err(unauthorized("the API server does not know this token; it may have expired"))
        }
        Verdict::Unanswered(failure) => {
            let (remedy, why) = match failure {
                RequestFailure::Denied(why) => {
                    ("let the service account create tokenreviews and subjectaccessreviews", why)
                }
                RequestFailure::Other(why) => ("try again when the API server answers", why),
            };
            tracing::warn!(path, verb, status = 503, %why, remedy, "the API server does not say who asks");
            let detail = format!("the API server does not say who asks: {why}; {remedy}");
            Err(problem(StatusCode::SERVICE_UNAVAILABLE, "cannot tell who asks", &detail))
        }
    }
}
