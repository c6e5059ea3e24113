//! The settings of a client, and what can be wrong with them (C1, C3).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use model::machine::{Now, Wall};
use url::{Host, Url};

use crate::identity::{Identity, Login};

/// The settings of a client.
#[derive(Clone)]
pub struct Settings {
    /// The endpoint of Resource Manager, such as `https://management.azure.com`. Plain http to loopback only.
    pub endpoint: Url,
    /// The subscription of the load balancers.
    pub subscription: String,
    /// The resource group of the load balancers.
    pub resource_group: String,
    /// The version of the network API, such as `2025-05-01`.
    pub api_version: String,
    /// The identity that calls use.
    pub identity: Identity,
    /// Source of tokens; unused for the anonymous identity.
    pub login: Login,
    /// The `User-Agent` of every request.
    pub user_agent: String,
    /// Time limits of the parts of a try.
    pub timeouts: Timeouts,
    /// Sources of time.
    pub clocks: Clocks,
}

/// The clocks of the process, as the client reads them.
#[derive(Clone)]
pub struct Clocks {
    /// The clock of permits and gates, which continues while the computer sleeps.
    pub now: Arc<dyn Fn() -> Now + Send + Sync>,
    /// The wall clock, for the expiry of tokens.
    pub wall: Arc<dyn Fn() -> Wall + Send + Sync>,
}

impl Clocks {
    pub(crate) fn now(&self) -> Now {
        (self.now)()
    }

    pub(crate) fn wall(&self) -> Wall {
        (self.wall)()
    }
}

impl fmt::Debug for Clocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clocks")
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("endpoint", &self.endpoint.as_str())
            .field("subscription", &self.subscription)
            .field("resource_group", &self.resource_group)
            .field("api_version", &self.api_version)
            .field("identity", &self.identity)
            .field("login", &self.login)
            .field("user_agent", &self.user_agent)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

/// Time limits of the parts of a try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// Until the connection is established.
    pub connect: Duration,
    /// A PUT, from its start to the last byte of its answer (W8).
    pub put: Duration,
    /// Any other request, from its start to the last byte of its answer.
    pub get: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            connect: Duration::from_secs(10),
            put: Duration::from_secs(20),
            get: Duration::from_secs(30),
        }
    }
}

/// Reasons why a client cannot be created: the field and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// The endpoint is not the URL of a server.
    #[error("endpoint {endpoint} is not a plain http or https address: give scheme, host and port alone")]
    Endpoint {
        /// The endpoint as configured, without credentials.
        endpoint: String,
    },
    /// Plain http across a network.
    #[error("endpoint {endpoint} uses plain http, which is for loopback only: use https")]
    PlainHttp {
        /// The endpoint.
        endpoint: String,
    },
    /// No token across a network.
    #[error(
        "identity is anonymous, which is for loopback only, and the endpoint is {endpoint}: configure an identity"
    )]
    Anonymous {
        /// The endpoint.
        endpoint: String,
    },
    /// A token over plain http.
    #[error(
        "identity sends tokens, and the endpoint {endpoint} uses plain http: use https, or identity anonymous"
    )]
    TokenOverPlainHttp {
        /// The endpoint.
        endpoint: String,
    },
    /// A name that cannot be part of a URL.
    #[error("{field} {value:?} is not valid in a URL: give its plain name")]
    Name {
        /// Name of the field.
        field: &'static str,
        /// The value as configured.
        value: String,
    },
    /// A user agent that cannot be part of a header.
    #[error("user agent {value:?} is not valid in a header: use visible ASCII characters")]
    UserAgent {
        /// The user agent as configured.
        value: String,
    },
    /// The URL of the metadata document is not on the endpoint.
    #[error(
        "the metadata document is not on the endpoint {endpoint}: the audience of tokens is read only there"
    )]
    ForeignMetadata {
        /// The endpoint.
        endpoint: String,
    },
    /// The authority is not an https URL.
    #[error(
        "authority host {value} is not an https address: give one such as https://login.microsoftonline.com"
    )]
    Authority {
        /// The authority as configured.
        value: String,
    },
    /// The credential cannot be created.
    #[error("identity could not be set up")]
    Credential {
        /// Error of the credential.
        source: azure_core::Error,
    },
    /// A proxy variable without a valid proxy.
    #[error("the proxy of the environment cannot be used")]
    Proxy {
        /// Name of the variable and the reason.
        source: proxy::Unusable,
    },
    /// The HTTP client cannot be created.
    #[error("the HTTP client could not be set up: check the certificate store")]
    HttpClient {
        /// Error of the HTTP client.
        source: reqwest::Error,
    },
}

impl Settings {
    /// Checks the settings.
    pub(crate) fn check(&self) -> Result<(), SetUpError> {
        self.check_endpoint()?;
        for (field, value) in [("subscription", &self.subscription), ("resource group", &self.resource_group)]
        {
            if !crate::url::is_segment(value) {
                return Err(SetUpError::Name { field, value: value.clone() });
            }
        }
        if self.user_agent.is_empty() || !self.user_agent.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(SetUpError::UserAgent { value: self.user_agent.clone() });
        }
        self.check_login()
    }

    fn check_login(&self) -> Result<(), SetUpError> {
        let authority = match &self.login {
            Login::Known { authority_host, .. } => Some(authority_host),
            Login::Metadata { document, authority_host, .. } => {
                if document.origin() != self.endpoint.origin() {
                    return Err(SetUpError::ForeignMetadata { endpoint: self.shown_endpoint() });
                }
                authority_host.as_ref()
            }
        };
        match authority.filter(|_| self.identity.uses_authority()) {
            Some(host) if !is_https(host) => Err(SetUpError::Authority { value: shown(host) }),
            Some(_) | None => Ok(()),
        }
    }

    fn check_endpoint(&self) -> Result<(), SetUpError> {
        let endpoint = self.shown_endpoint();
        let plain = match self.endpoint.scheme() {
            "https" => false,
            "http" => true,
            _ => return Err(SetUpError::Endpoint { endpoint }),
        };
        let bare = self.endpoint.username().is_empty()
            && self.endpoint.password().is_none()
            && self.endpoint.query().is_none()
            && self.endpoint.fragment().is_none();
        if !bare {
            return Err(SetUpError::Endpoint { endpoint });
        }
        let anonymous = self.identity == Identity::Anonymous;
        match (anonymous, self.is_loopback(), plain) {
            (true, true, _) | (false, _, false) => Ok(()),
            (true, false, false) => Err(SetUpError::Anonymous { endpoint }),
            (_, false, true) => Err(SetUpError::PlainHttp { endpoint }),
            (false, true, true) => Err(SetUpError::TokenOverPlainHttp { endpoint }),
        }
    }

    /// Returns the endpoint without credentials.
    fn shown_endpoint(&self) -> String {
        bare(&self.endpoint)
    }

    /// Returns whether the endpoint is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        is_loopback(&self.endpoint)
    }
}

/// Returns whether a URL can only be on this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// Returns whether secrets may be sent to this address.
pub(crate) fn is_https(address: &str) -> bool {
    Url::parse(address).is_ok_and(|url| url.scheme() == "https" && url.host().is_some())
}

/// Returns an address without credentials; text that is not an address is not repeated.
pub(crate) fn shown(address: &str) -> String {
    Url::parse(address).map_or_else(|_| "(unreadable)".to_owned(), |url| bare(&url))
}

fn bare(url: &Url) -> String {
    let host = url.host_str().unwrap_or("");
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}", url.scheme())
}
