//! The HTTP transport: a `reqwest` client with our own timeouts, size limits and errors.

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::{AUTHORIZATION, HeaderName, HeaderValue, Headers};
use azure_core::http::{AsyncRawResponse, Body, HttpClient, Method, Request};
use proxy::Proxies;
use reqwest::redirect;
use url::{Host, Url};

use crate::abort_reason::AbortReason;
use crate::identity::Login;
use crate::settings::{SetUpError, Settings, Timeouts, is_loopback};

/// Size limit of an answer, in bytes. A load balancer with everything that Azure allows is smaller.
pub(crate) const LARGEST_ANSWER: usize = 64 << 20;

/// The HTTP transport.
///
/// It follows no redirect, so that a token is only sent to the intended server. Proxies come from the environment,
/// except for nearby targets: this machine, and the instance metadata service of Azure's virtual machines, which
/// gives tokens over plain http. No other target uses plain http (C3).
pub(crate) struct HttpTransport {
    client: reqwest::Client,
    near: reqwest::Client,
    timeouts: Timeouts,
    proxies: Proxies,
}

/// Address of the instance metadata service, on every virtual machine of Azure and in each of its clouds.
const INSTANCE_METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

impl HttpTransport {
    /// Creates a transport with these settings, and with the proxies of the environment.
    pub(crate) fn new(settings: &Settings) -> Result<HttpTransport, SetUpError> {
        HttpTransport::behind(settings, Proxies::from_environment())
    }

    /// Creates a transport with these settings and proxies.
    pub(crate) fn behind(settings: &Settings, proxies: Proxies) -> Result<HttpTransport, SetUpError> {
        let builder = || {
            reqwest::Client::builder()
                .redirect(redirect::Policy::none())
                .referer(false)
                .connect_timeout(settings.timeouts.connect)
                .pool_idle_timeout(Duration::from_secs(90))
                .pool_max_idle_per_host(64)
                .tcp_keepalive(Duration::from_secs(30))
                .http2_keep_alive_interval(Duration::from_secs(20))
                .http2_keep_alive_timeout(Duration::from_secs(10))
        };
        for target in known_targets(settings) {
            check_proxy(&proxies, target).map_err(|source| SetUpError::Proxy { source })?;
        }
        let of_environment = proxies.clone();
        let proxy = move |target: &Url| {
            let target = target.as_str().parse::<http::Uri>().ok()?;
            of_environment.of(&target).ok()?.map(proxy::Proxy::with_credentials)
        };
        let client = builder().https_only(true).proxy(reqwest::Proxy::custom(proxy)).build();
        let client = client.map_err(|source| SetUpError::HttpClient { source })?;
        let near = builder().no_proxy().build();
        let near = near.map_err(|source| SetUpError::HttpClient { source })?;
        Ok(HttpTransport { client, near, timeouts: settings.timeouts, proxies })
    }

    /// Returns the client for this URL.
    fn client(&self, url: &Url) -> &reqwest::Client {
        if is_near(url) { &self.near } else { &self.client }
    }

    fn prepare(&self, request: &Request) -> azure_core::Result<reqwest::Request> {
        let method = request.method();
        let timeout = if method == Method::Put { self.timeouts.put } else { self.timeouts.get };
        let method = reqwest::Method::from_bytes(method.as_str().as_bytes())
            .map_err(|error| Error::with_error(ErrorKind::DataConversion, error, "invalid method"))?;
        let mut prepared = self.client(request.url()).request(method, request.url().clone()).timeout(timeout);
        for (name, value) in request.headers().iter() {
            let mut value = reqwest::header::HeaderValue::try_from(value.as_str())
                .map_err(|error| Error::with_error(ErrorKind::DataConversion, error, "invalid header"))?;
            value.set_sensitive(*name == AUTHORIZATION);
            prepared = prepared.header(name.as_str(), value);
        }
        match request.body() {
            Body::Bytes(bytes) => prepared = prepared.body(bytes.clone()),
            Body::SeekableStream(_) => {
                return Err(Error::with_message(ErrorKind::DataConversion, "a streamed body is never sent"));
            }
        }
        prepared.build().map_err(|error| {
            Error::with_error(ErrorKind::DataConversion, error.without_url(), "request cannot be built")
        })
    }
}

/// Returns the servers that a client of these settings uses: Resource Manager, and the login endpoint if it needs one
/// and knows it.
fn known_targets(settings: &Settings) -> impl Iterator<Item = &str> {
    let login = match &settings.login {
        Login::Known { authority_host, .. } => Some(authority_host.as_str()),
        Login::Metadata { authority_host, .. } => authority_host.as_deref(),
    };
    let login = login.filter(|_| settings.identity.uses_authority());
    std::iter::once(settings.endpoint.as_str()).chain(login)
}

/// Checks that the proxy of a target can be used, if it has one.
fn check_proxy(proxies: &Proxies, target: &str) -> Result<(), proxy::Unusable> {
    // The client refuses another text itself.
    let Ok(target) = target.parse::<http::Uri>() else { return Ok(()) };
    proxies.of(&target).map(drop)
}

/// Returns whether the target is this machine or the instance metadata service.
pub(crate) fn is_near(url: &Url) -> bool {
    is_loopback(url) || url.host() == Some(Host::Ipv4(INSTANCE_METADATA))
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransport").field("timeouts", &self.timeouts).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl HttpClient for HttpTransport {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        if !is_near(request.url()) {
            // A login endpoint from the metadata document is known only now.
            check_proxy(&self.proxies, request.url().as_str())
                .map_err(|unusable| Error::new(ErrorKind::Connection, unusable))?;
        }
        let prepared = self.prepare(request)?;
        let mut response = self.client(request.url()).execute(prepared).await.map_err(broken)?;
        let status = response.status().as_u16();
        let headers = headers(response.headers());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            if body.len() + chunk.len() > LARGEST_ANSWER {
                return Err(AbortReason::TooLarge { status, limit: LARGEST_ANSWER }.into_error());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(AsyncRawResponse::from_bytes(status.into(), headers, body))
    }
}

/// Converts a transport error, without the URL, because a poll's URL is signed.
///
/// A failure while connecting (name, TCP, TLS) means that nothing was sent; such a timeout is the timeout of the
/// connection. The timeout of the whole request may occur at any point.
fn broken(error: reqwest::Error) -> Error {
    if error.is_connect() {
        return Error::new(ErrorKind::Connection, error.without_url());
    }
    if error.is_timeout() {
        return Error::new(ErrorKind::Io, AbortReason::Timeout);
    }
    Error::new(ErrorKind::Io, error.without_url())
}

/// Returns the headers of an answer; invalid bytes of a value are replaced.
fn headers(map: &reqwest::header::HeaderMap) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in map {
        let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers.insert(HeaderName::from(name.as_str().to_owned()), HeaderValue::from(text));
    }
    headers
}
