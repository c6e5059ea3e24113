//! Authenticates and authorizes requests: the API server checks the client's Kubernetes bearer token and whether the
//! client may send the request (docs/design/surface.md, H2). With TLS, each request is checked before anything else; on
//! loopback, the handler of each POST checks it.

use std::net::IpAddr;
use std::sync::Arc;

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue, ORIGIN};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage as _, HttpRequest, HttpResponse};
use actors::kubernetes::{Reviewer, Verdict};
use model::object::RequestFailure;

use super::log_limiter::LogLimiter;
use super::problem::{problem, unauthorized};

/// Prefix of each path in access reviews. Kubernetes lets every account `get` `/api/*` of its API server (the role
/// `system:discovery`), and other programs that use access reviews have rules about `/api/v1/*`: neither may apply
/// here.
const PATH_PREFIX: &str = "/azure-backend-pool-controller";

/// The header with which a browser names the relation of the requesting site: <https://www.w3.org/TR/fetch-metadata/>.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Maximum length of a path, in bytes: enough for the names of a load balancer and a pool.
const MAX_PATH: usize = 1024;
/// Maximum length of a method, in bytes.
const MAX_METHOD: usize = 16;
/// Maximum length of a token, in bytes. Service account tokens have about a thousand, those of operators a few
/// thousand.
const MAX_TOKEN: usize = 32 << 10;

/// Authorizes clients by reviews of the API server, and limits the log lines about those it refuses. Clones share the
/// limits.
#[derive(Clone)]
pub(super) struct Authorizer {
    reviewer: Reviewer,
    refused: Arc<LogLimiter>,
    unanswered: Arc<LogLimiter>,
}

impl Authorizer {
    /// Creates an authorizer that has refused no client yet.
    pub(super) fn new(reviewer: Reviewer) -> Authorizer {
        let limiter = || Arc::new(LogLimiter::new());
        Authorizer { reviewer, refused: limiter(), unanswered: limiter() }
    }

    /// Returns an authorizer with a cache and limits of its own.
    pub(super) fn separate(&self) -> Authorizer {
        Authorizer::new(self.reviewer.with_own_limit())
    }

    /// Returns the user of this request if the request is allowed; else the refusal. Reviews each request at most once.
    pub(super) async fn user(&self, request: &HttpRequest) -> Result<Arc<str>, HttpResponse> {
        let user = request.extensions().get::<AuthorizedUser>().map(|AuthorizedUser(user)| Arc::clone(user));
        match user {
            Some(user) => Ok(user),
            None => self.authorize(request).await,
        }
    }

    /// Has the API server review the user, the routed path (percent-encoded only where necessary) and the verb.
    ///
    /// A read may use a review of the last 10 s: it is repeated often, and the client has already seen the answer. A
    /// request that changes something is reviewed each time: a client that has lost the right must not pause or release
    /// anything from then on, and such requests are rare.
    async fn authorize(&self, request: &HttpRequest) -> Result<Arc<str>, HttpResponse> {
        let (path, verb) = (request.match_info().as_str(), verb_of(request.method()));
        if path.len() > MAX_PATH || verb.len() > MAX_METHOD {
            let detail = format!(
                "a path has at most {MAX_PATH} bytes, and a method at most {MAX_METHOD}; GET /openapi.json lists \
                 all paths"
            );
            return Err(problem(StatusCode::URI_TOO_LONG, "too long", &detail));
        }
        let Some(token) = token_of(request) else {
            tracing::debug!(path, verb, status = 401, "request rejected: no bearer token");
            let detail = "this needs a Kubernetes bearer token: Authorization: Bearer $(kubectl create token \
                          <service account>)";
            return Err(unauthorized(detail));
        };
        let reviewed = format!("{PATH_PREFIX}{path}");
        let verdict = if verb == "get" {
            self.reviewer.review_cached(token, &reviewed, &verb).await
        } else {
            self.reviewer.review(token, &reviewed, &verb).await
        };
        match verdict {
            Verdict::Allowed(user) => Ok(user),
            Verdict::Denied(user, reason) => {
                if let Some(suppressed) = self.refused.permit() {
                    tracing::info!(
                        path, verb, status = 403, %user, %reason, suppressed, "request rejected: not allowed"
                    );
                }
                let detail = format!(
                    "{user} may not {verb} {reviewed}; bind them to a ClusterRole with the rule {{nonResourceURLs: \
                     [\"{PATH_PREFIX}/*\"], verbs: [\"get\", \"post\"]}}, or with as much of it as they need{}",
                    if reason.is_empty() {
                        String::new()
                    } else {
                        format!(" (the API server says: {reason})")
                    }
                );
                Err(problem(StatusCode::FORBIDDEN, "forbidden", &detail))
            }
            Verdict::Unknown(reason) => {
                if let Some(suppressed) = self.refused.permit() {
                    tracing::info!(path, verb, status = 401, %reason, suppressed, "request rejected: invalid token");
                }
                Err(unauthorized("the API server does not know this token; it may have expired"))
            }
            Verdict::Unanswered(failure) => {
                let (remedy, reason) = match failure {
                    RequestFailure::Denied(reason) => {
                        ("let the service account create tokenreviews and subjectaccessreviews", reason)
                    }
                    RequestFailure::Other(reason) => ("try again when the API server answers", reason),
                };
                if let Some(suppressed) = self.unanswered.permit() {
                    tracing::warn!(
                        path,
                        verb,
                        status = 503,
                        %reason,
                        remedy,
                        suppressed,
                        "failed to authorize a request: the TokenReview or SubjectAccessReview failed"
                    );
                }
                let detail = format!(
                    "failed to authorize the request: the TokenReview or SubjectAccessReview failed: {reason}; {remedy}"
                );
                Err(problem(StatusCode::SERVICE_UNAVAILABLE, "failed to authorize the request", &detail))
            }
        }
    }
}

/// The user of a request that was authorized before routing; an extension of the request.
struct AuthorizedUser(Arc<str>);

/// The clients that a listener admits.
#[derive(Clone)]
pub(super) enum Access {
    /// Every client that reaches the listener.
    Open,
    /// Clients whose `Host` header names loopback. A web page whose own host name resolves to this machine makes a
    /// browser send that name, through the operator's port-forward.
    Loopback,
    /// Only clients that the API server allows to send the request, whatever its method and path.
    Authorized(Authorizer),
}

/// Passes on the requests of admitted clients, and refuses all others. It is a middleware.
pub(super) async fn admit(
    access: Access,
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let admitted = match &access {
        Access::Open => Ok(None),
        Access::Loopback if !has_loopback_host(request.request()) => Err(not_this_host()),
        Access::Loopback | Access::Authorized(_) if is_cross_site(request.headers()) => {
            Err(cross_site_refused())
        }
        Access::Loopback => Ok(None),
        Access::Authorized(authorizer) => authorizer.authorize(request.request()).await.map(Some),
    };
    match admitted {
        Ok(user) => {
            if let Some(user) = user {
                request.extensions_mut().insert(AuthorizedUser(user));
            }
            next.call(request).await
        }
        Err(refusal) => {
            let (request, _) = request.into_parts();
            Ok(ServiceResponse::new(request, refusal))
        }
    }
}

fn has_loopback_host(request: &HttpRequest) -> bool {
    // Headers such as `X-Forwarded-Host` do not count, because a web page can set them too.
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    host.is_some_and(is_loopback)
}

fn not_this_host() -> HttpResponse {
    let detail =
        "this listener serves only its own machine: use localhost or 127.0.0.1, as through a port-forward";
    problem(StatusCode::MISDIRECTED_REQUEST, "not this host", detail)
}

/// Returns whether a browser sends this request for a page of another origin. Other programs send no such header.
///
/// Browsers without `Sec-Fetch-Site` send the page's origin in each POST and each event stream. Browsers with
/// `Sec-Fetch-Site` compare the origin themselves, so the comparison is right even if a proxy changes the host.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all(SEC_FETCH_SITE).peekable();
    if sites.peek().is_some() {
        return sites.any(|site| site != "same-origin" && site != "none");
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let is_own = |origin: &HeaderValue| origin.to_str().is_ok_and(|origin| is_origin_of(origin, host));
    !headers.get_all(ORIGIN).all(is_own)
}

/// Returns whether an origin has this host. Both may omit the default port of the scheme.
fn is_origin_of(origin: &str, host: &str) -> bool {
    let (own, port) = match origin.split_once("://") {
        Some(("http", own)) => (own, ":80"),
        Some(("https", own)) => (own, ":443"),
        Some(_) | None => return false,
    };
    let [own, host] = [own, host].map(|name| name.strip_suffix(port).unwrap_or(name));
    !own.is_empty() && own.eq_ignore_ascii_case(host)
}

fn cross_site_refused() -> HttpResponse {
    let detail = "a page of another site sent this request (Sec-Fetch-Site or Origin); open this address in a \
                  browser tab of its own";
    problem(StatusCode::FORBIDDEN, "cross-site request", detail)
}

/// Returns whether a host, with or without a port, is this machine's loopback.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Returns the verb of a method in access reviews.
fn verb_of(method: &Method) -> String {
    if method == Method::HEAD { "get".to_owned() } else { method.as_str().to_ascii_lowercase() }
}

/// Returns the bearer token of a request, without checking it.
fn token_of(request: &HttpRequest) -> Option<&str> {
    let header = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.split_once(' ')?;
    let token = token.trim();
    let is_plausible = scheme.eq_ignore_ascii_case("bearer") && (1..=MAX_TOKEN).contains(&token.len());
    is_plausible.then_some(token)
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn h2_a_loopback_listener_accepts_only_loopback_host_names() {
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

    #[test]
    fn h2_a_page_of_another_origin_is_refused_by_origin_too() {
        let refused = |host: &str, headers: &[(&'static str, &str)]| {
            let request =
                headers.iter().fold(TestRequest::default(), |request, pair| request.append_header(*pair));
            is_cross_site(request.append_header(("host", host)).to_http_request().headers())
        };
        // Programs, port-forwards and listeners with TLS.
        for (host, origin) in [
            ("localhost:8081", "http://localhost:8081"),
            ("127.0.0.1:8081", "http://127.0.0.1:8081"),
            ("LocalHost:1", "http://localhost:1"),
            ("[::1]:8081", "http://[::1]:8081"),
            ("localhost", "http://localhost"),
            ("localhost:80", "http://localhost"),
            ("controller.example", "https://controller.example"),
            ("controller.example:443", "https://controller.example"),
            ("controller.example:8443", "https://controller.example:8443"),
        ] {
            assert!(!refused(host, &[("origin", origin)]), "{host} {origin}");
        }
        assert!(!refused("localhost:8081", &[]));
        for (host, origin) in [
            ("localhost:8081", "http://pages.example"),
            ("localhost:8081", "http://localhost"),
            ("localhost:8081", "http://localhost:8082"),
            ("localhost:8081", "http://127.0.0.1:8081"),
            ("localhost:80", "https://localhost"),
            ("localhost:8081", "null"),
            ("localhost:8081", ""),
            ("localhost:8081", "localhost:8081"),
            ("localhost:8081", "http://localhost:8081.pages.example"),
        ] {
            assert!(refused(host, &[("origin", origin)]), "{host} {origin:?}");
        }
        let (own, other) = (("origin", "http://localhost:1"), ("origin", "http://pages.example"));
        assert!(refused("localhost:1", &[own, other]) && refused("localhost:1", &[other, own]));
        // A browser that sends both headers decides: a proxy may have another host name than its target.
        assert!(!refused("localhost:1", &[other, ("sec-fetch-site", "same-origin")]));
        assert!(refused("localhost:1", &[own, ("sec-fetch-site", "cross-site")]));
    }
}
