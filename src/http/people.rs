//! Who asks: a Kubernetes bearer token says it, and the API server says whose it is and whether they may
//! (docs/design/surface.md, H2). With TLS each request is judged before anything else is made of it; on loopback each
//! POST is, by its handler.

use std::net::IpAddr;
use std::sync::Arc;

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{AUTHORIZATION, HOST, HeaderMap};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage as _, HttpRequest, HttpResponse};
use actors::kubernetes::Verdict;
use model::object::RequestFailure;

use super::door::Door;
use super::problem::{problem, unauthorized};

/// What stands before a path when it is judged. Kubernetes lets every account `get` `/api/*` of its API server (the role
/// `system:discovery`), and programs that judge as we do have rules about `/api/v1/*`: none of them is about us.
const OURS: &str = "/azure-backend-pool-controller";

/// The header with which a browser names the relation of the requesting site: <https://www.w3.org/TR/fetch-metadata/>.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The longest path of which anything is made, in bytes: names of a load balancer and a pool, and much more.
const MAX_PATH: usize = 1024;
/// The longest method.
const MAX_METHOD: usize = 16;
/// The longest token. Those of service accounts have about a thousand bytes, those of operators some thousands.
const MAX_TOKEN: usize = 32 << 10;

/// Who asks, where they were judged already. It goes with the request.
struct Judged(Arc<str>);

/// Who comes in by a listener.
#[derive(Clone)]
pub(super) enum Entry {
    /// Every client that reaches it.
    Open,
    /// Clients that ask for this machine by a name of loopback. A page of the Web whose own name has been made to lead
    /// here has a browser ask for that name, through the operator's port-forward.
    Loopback,
    /// Those alone whom the API server lets, whatever method and path they ask for.
    Judged(Door),
}

/// Hands on the request of a client that may come in.
pub(super) async fn enter(
    entry: Entry,
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let entered = match &entry {
        Entry::Open => Ok(None),
        Entry::Loopback if !asks_for_loopback(request.request()) => Err(not_this_host()),
        Entry::Loopback | Entry::Judged(_) if is_cross_site(request.headers()) => Err(cross_site_refused()),
        Entry::Loopback => Ok(None),
        Entry::Judged(door) => judge(door, request.request()).await.map(Some),
    };
    match entered {
        Ok(user) => {
            if let Some(user) = user {
                request.extensions_mut().insert(Judged(user));
            }
            next.call(request).await
        }
        Err(refused) => {
            let (request, _) = request.into_parts();
            Ok(ServiceResponse::new(request, refused))
        }
    }
}

fn asks_for_loopback(request: &HttpRequest) -> bool {
    // Not by what forwarders add: a page can add it as well.
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    host.is_some_and(is_loopback)
}

fn not_this_host() -> HttpResponse {
    let detail =
        "this listener is for the machine itself: ask for localhost or 127.0.0.1, as through a port-forward";
    problem(StatusCode::MISDIRECTED_REQUEST, "not this host", detail)
}

/// Whether a browser sends this request for a page of another origin. Other programs send no such header.
fn is_cross_site(headers: &HeaderMap) -> bool {
    headers.get_all(SEC_FETCH_SITE).any(|site| site != "same-origin" && site != "none")
}

fn cross_site_refused() -> HttpResponse {
    let detail = "a page of another site sent this request (Sec-Fetch-Site); open this address in a browser \
                  tab of its own";
    problem(StatusCode::FORBIDDEN, "cross-site request", detail)
}

/// Whether a host, with or without its port, is this machine's own loopback.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Who asks, if they may; else the answer to them. A client is judged once for one request.
pub(super) async fn allowed(door: &Door, request: &HttpRequest) -> Result<Arc<str>, HttpResponse> {
    let judged = request.extensions().get::<Judged>().map(|Judged(user)| Arc::clone(user));
    match judged {
        Some(user) => Ok(user),
        None => judge(door, request).await,
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
    let may_be_one = scheme.eq_ignore_ascii_case("bearer") && (1..=MAX_TOKEN).contains(&token.len());
    may_be_one.then_some(token)
}

/// Has the API server judge who asks, by the path that is routed, with nothing in it percent-encoded that need not be.
/// The log tells of those who are turned away by a verdict, as long as they are few.
///
/// What only reads may be judged by a verdict of the last 10 s: it is made again and again, and what a client has seen
/// a moment ago is no secret to it. What may change something is judged again each time: a client that has lost the
/// right must not pause or release anything from that moment on, and operators ask for such things seldom.
async fn judge(door: &Door, request: &HttpRequest) -> Result<Arc<str>, HttpResponse> {
    let (path, verb) = (request.match_info().as_str(), verb_of(request.method()));
    if path.len() > MAX_PATH || verb.len() > MAX_METHOD {
        let detail = format!(
            "a path has {MAX_PATH} bytes at most, and a method {MAX_METHOD}; GET /openapi.json lists those \
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
        door.reviewer.review_lately(token, &judged, &verb).await
    } else {
        door.reviewer.review(token, &judged, &verb).await
    };
    match verdict {
        Verdict::Allowed(user) => Ok(user),
        Verdict::Denied(user, why) => {
            if let Some(untold) = door.tells_of_refused() {
                tracing::info!(path, verb, status = 403, %user, %why, untold, "a request that is not allowed");
            }
            let detail = format!(
                "{user} may not {verb} {judged}; bind them to a ClusterRole with the rule {{nonResourceURLs: \
                 [\"{OURS}/*\"], verbs: [\"get\", \"post\"]}}, or with as much of it as they need{}",
                if why.is_empty() { String::new() } else { format!(" (the API server says: {why})") }
            );
            Err(problem(StatusCode::FORBIDDEN, "forbidden", &detail))
        }
        Verdict::Unknown(why) => {
            if let Some(untold) = door.tells_of_refused() {
                tracing::info!(path, verb, status = 401, %why, untold, "request rejected: invalid token");
            }
            Err(unauthorized("the API server does not know this token; it may have expired"))
        }
        Verdict::Unanswered(failure) => {
            let (remedy, why) = match failure {
                RequestFailure::Denied(why) => {
                    ("let the service account create tokenreviews and subjectaccessreviews", why)
                }
                RequestFailure::Other(why) => ("try again when the API server answers", why),
            };
            if let Some(untold) = door.tells_of_unanswered() {
                tracing::warn!(path, verb, status = 503, %why, remedy, untold, "the API server does not say who asks");
            }
            let detail = format!("the API server does not say who asks: {why}; {remedy}");
            Err(problem(StatusCode::SERVICE_UNAVAILABLE, "cannot tell who asks", &detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h2_a_listener_on_loopback_is_asked_for_by_a_name_of_loopback() {
        for host in [
            "localhost",
            "LOCALHOST:8081",
            "127.0.0.1",
            "127.0.0.1:1",
            "127.8.9.10:80",
            "[::1]",
            "[::1]:8081",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            ":8081",
            "pages.example",
            "pages.example:8081",
            "localhost.example",
            "10.0.0.1:8081",
            "127.0.0.1.example",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
