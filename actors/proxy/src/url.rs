//! The address of a proxy, as a variable or a kubeconfig names it.

use std::fmt;
use std::sync::Arc;

use http::Uri;
use model::redact::{Recipient, record_sent_token};
use percent_encoding::percent_decode_str;

/// The field of a kubeconfig that names a proxy.
const FIELD: &str = "proxy-url of the kubeconfig's cluster";

/// A proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    pub(crate) kind: Kind,
    /// Scheme, host and port, without credentials.
    pub(crate) address: Uri,
    pub(crate) login: Option<Login>,
    named_by: Arc<str>,
}

/// The protocol of a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Http,
    Https,
    Socks5,
}

/// User and password for a proxy.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Vec<u8>,
    pub(crate) password: Vec<u8>,
}

/// An invalid proxy address. The error does not repeat it, because it may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{named_by} {reason}; write the address of an HTTP proxy or a SOCKS5 proxy, such as http://proxy.example:3128, \
     https://proxy.example:3129 or socks5://proxy.example:1080, or remove it"
)]
pub struct Unusable {
    named_by: String,
    reason: String,
}

impl Proxy {
    /// Returns the proxy of this variable; without a scheme it is an HTTP proxy.
    ///
    /// # Errors
    /// The value is not the address of a proxy.
    pub fn of_variable(name: &str, value: &str) -> Result<Proxy, Unusable> {
        Proxy::parse(name, value, Some(Kind::Http))
    }

    /// Returns the proxy that `proxy-url` of a kubeconfig names. It must have a scheme, as with kubectl.
    ///
    /// # Errors
    /// The value is not the address of a proxy.
    pub fn of_kubeconfig(value: &str) -> Result<Proxy, Unusable> {
        Proxy::parse(FIELD, value, None)
    }

    fn parse(named_by: &str, value: &str, without_scheme: Option<Kind>) -> Result<Proxy, Unusable> {
        let unusable = |reason: &str| Unusable { named_by: named_by.to_owned(), reason: reason.to_owned() };
        let parsed: Uri = value.parse().map_err(|_| unusable("is not an address"))?;
        let scheme = parsed.scheme_str().map(str::to_ascii_lowercase);
        let kind = match scheme.as_deref() {
            Some("http") => Kind::Http,
            Some("https") => Kind::Https,
            // Either way the proxy resolves names, as with Go.
            Some("socks5" | "socks5h") => Kind::Socks5,
            Some(other) if other.len() <= MAX_SCHEME => {
                return Err(unusable(&format!("has the unknown scheme {other}")));
            }
            Some(_) => return Err(unusable("has an unknown scheme")),
            None => without_scheme.ok_or_else(|| unusable("has no scheme"))?,
        };
        let authority = parsed.authority().ok_or_else(|| unusable("names no host"))?.as_str();
        let (login, at) = match authority.rsplit_once('@') {
            Some((login, at)) => (Some(Login::parse(login)), at),
            None => (None, authority),
        };
        let host = parsed.host().filter(|host| !bare_host(host).is_empty());
        let host = host.ok_or_else(|| unusable("names no host"))?;
        let port = match at.strip_prefix(host).and_then(|rest| rest.strip_prefix(':')) {
            None => kind.port(),
            Some(port) => match port.parse::<u16>() {
                Ok(port @ 1..) => port,
                Ok(0) | Err(_) => return Err(unusable("has no usable port")),
            },
        };
        if let Some(login) = login.as_ref().filter(|_| kind == Kind::Socks5)
            && (login.user.len() > 255 || login.password.len() > 255)
        {
            return Err(unusable("has a user or password of more than 255 bytes"));
        }
        let address = format!("{}://{host}:{port}/", kind.scheme()).parse();
        let address = address.map_err(|_| unusable("is not an address"))?;
        Ok(Proxy { kind, address, login, named_by: Arc::from(named_by) })
    }

    /// Returns the address with its credentials, for a client that connects by itself. From now on they are redacted
    /// everywhere.
    pub fn with_credentials(&self) -> String {
        let (scheme, rest) = match self.kind {
            // With `socks5`, reqwest resolves names locally, which fails where only the proxy can resolve them.
            Kind::Socks5 => ("socks5h", self.rest()),
            Kind::Http | Kind::Https => (self.kind.scheme(), self.rest()),
        };
        match self.login() {
            None => format!("{scheme}://{rest}"),
            Some(Login { user, password }) => {
                let [user, password] = [user, password]
                    .map(|text| percent_encoding::percent_encode(text, percent_encoding::NON_ALPHANUMERIC));
                format!("{scheme}://{user}:{password}@{rest}")
            }
        }
    }

    /// User and password. From now on the password is redacted everywhere.
    pub(crate) fn login(&self) -> Option<&Login> {
        let login = self.login.as_ref()?;
        record_sent_token(
            &Recipient::Proxy(Arc::from(self.rest())),
            &String::from_utf8_lossy(&login.password),
        );
        Some(login)
    }

    /// Host and port.
    fn rest(&self) -> &str {
        self.address.authority().map_or("", |authority| authority.as_str())
    }
}

/// The longest scheme that an error repeats: a longer one may be a secret.
const MAX_SCHEME: usize = 8;

impl Kind {
    fn scheme(self) -> &'static str {
        match self {
            Kind::Http => "http",
            Kind::Https => "https",
            Kind::Socks5 => "socks5",
        }
    }

    fn port(self) -> u16 {
        match self {
            Kind::Http => 80,
            Kind::Https => 443,
            Kind::Socks5 => 1080,
        }
    }
}

impl Login {
    fn parse(text: &str) -> Login {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let decoded = |text: &str| percent_decode_str(text).collect();
        Login { user: decoded(user), password: decoded(password) }
    }
}

/// Returns the host of an address, without the brackets of IPv6.
pub(crate) fn bare_host(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{} ({})", self.kind.scheme(), self.rest(), self.named_by)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_with_its_credentials() {
        let proxy = Proxy::of_variable("ALL_PROXY", "socks5://us%40er:p%3Ass@[fd00::1]:99").unwrap();
        assert_eq!(proxy.to_string(), "socks5://[fd00::1]:99 (ALL_PROXY)");
        assert_eq!(proxy.with_credentials(), "socks5h://us%40er:p%3Ass@[fd00::1]:99");
        let login = proxy.login.as_ref().unwrap();
        assert_eq!((&*login.user, &*login.password), (&b"us@er"[..], &b"p:ss"[..]));
        assert!(!format!("{proxy:?}").contains("er"), "{proxy:?}");
        let proxy = Proxy::of_kubeconfig("https://p.example/path").unwrap();
        assert_eq!(proxy.with_credentials(), "https://p.example:443");
    }

    #[test]
    fn an_invalid_address_is_refused_without_its_secrets() {
        for (value, reason) in [
            ("p.example:3128", "has no scheme"),
            ("ftp://user:hidden@p", "has the unknown scheme ftp"),
            ("http://", "is not an address"),
            ("http://p:0", "has no usable port"),
            ("http://p:99999", ""),
            ("http://p:hidden", ""),
            ("http://user:hidden@:3128", ""),
            ("http://p x", "is not an address"),
            (" http://p", "is not an address"),
            ("", "is not an address"),
            ("/p", ""),
        ] {
            let error = Proxy::of_kubeconfig(value).expect_err(value).to_string();
            assert!(
                error.starts_with(FIELD) && error.contains(reason) && !error.contains("hidden"),
                "{error}"
            );
        }
    }
}
