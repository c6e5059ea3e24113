//! The proxies of the environment, and the choice among them for a target. The rules are those of Go's `httpproxy`,
//! as in kubectl, the cloud-controller-manager and gRPC, and `ALL_PROXY` as in curl.

use std::net::IpAddr;

use http::Uri;

use crate::no_proxy::NoProxy;
use crate::url::{Proxy, Unusable, bare_host};

/// The variables for each kind of target, in order of precedence. An empty variable counts as unset.
const HTTP: [&str; 4] = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
const HTTPS: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
const NO: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// The proxy of a variable, or why it cannot be used; the error matters only for targets that would use it.
type Named = Result<Proxy, Unusable>;

/// The proxies of the environment.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    http: Option<Named>,
    https: Option<Named>,
    no: NoProxy,
}

impl Proxies {
    /// Reads the variables of this process.
    pub fn from_environment() -> Proxies {
        Proxies::read(|name| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))
    }

    /// Reads these variables.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Proxies {
        let first = |names: &[&'static str]| {
            names.iter().find_map(|name| {
                let value = variable(name).filter(|value| !value.is_empty())?;
                Some((*name, value))
            })
        };
        let proxy = |names| first(names).map(|(name, value)| Proxy::of_variable(name, &value));
        let no = first(&NO).map(|(_, value)| NoProxy::parse(&value)).unwrap_or_default();
        Proxies { http: proxy(&HTTP), https: proxy(&HTTPS), no }
    }

    /// Returns the proxy for this address, by its scheme; `None` for a direct connection.
    ///
    /// # Errors
    /// The variable that applies has no valid proxy address.
    pub fn of(&self, target: &Uri) -> Result<Option<&Proxy>, Unusable> {
        let is_plain = target.scheme_str() == Some("http");
        let port = target.port_u16().unwrap_or(if is_plain { 80 } else { 443 });
        self.choose(if is_plain { &self.http } else { &self.https }, target.host(), port)
    }

    /// Returns the proxy for this gRPC server, with TLS or without: gRPC uses the variables for https.
    ///
    /// # Errors
    /// As [`Proxies::of`].
    pub fn of_grpc(&self, target: &Uri) -> Result<Option<&Proxy>, Unusable> {
        self.choose(&self.https, target.host(), target.port_u16().unwrap_or(443))
    }

    fn choose<'p>(
        &self,
        proxy: &'p Option<Named>,
        host: Option<&str>,
        port: u16,
    ) -> Result<Option<&'p Proxy>, Unusable> {
        let (Some(proxy), Some(host)) = (proxy, host) else { return Ok(None) };
        let host = bare_host(host).trim_end_matches('.').to_ascii_lowercase();
        let address = host.parse::<IpAddr>().map(|address| address.to_canonical()).ok();
        let is_here = host == "localhost" || address.is_some_and(|address| address.is_loopback());
        if is_here || self.no.covers(&host, address, port) {
            return Ok(None);
        }
        proxy.as_ref().map(Some).map_err(Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the proxy's address for each of these targets under these variables.
    fn chosen(variables: &[(&str, &str)], target: &str) -> Option<String> {
        let find = |name: &str| variables.iter().find(|(other, _)| *other == name);
        let proxies = Proxies::read(|name| find(name).map(|(_, value)| (*value).to_owned()));
        proxies.of(&target.parse().unwrap()).unwrap().map(ToString::to_string)
    }

    #[test]
    fn each_scheme_has_its_variable_in_both_cases() {
        for (variables, http, https) in [
            (vec![("HTTP_PROXY", "http://a:1")], Some("http://a:1 (HTTP_PROXY)"), None),
            (vec![("http_proxy", "http://a:1")], Some("http://a:1 (http_proxy)"), None),
            (vec![("HTTPS_PROXY", "http://a:1")], None, Some("http://a:1 (HTTPS_PROXY)")),
            (vec![("https_proxy", "a:1")], None, Some("http://a:1 (https_proxy)")),
            (
                vec![("all_proxy", "socks5://a")],
                Some("socks5://a:1080 (all_proxy)"),
                Some("socks5://a:1080 (all_proxy)"),
            ),
            (
                vec![("ALL_PROXY", "socks5h://a:1"), ("https_proxy", "https://b")],
                Some("socks5://a:1 (ALL_PROXY)"),
                Some("https://b:443 (https_proxy)"),
            ),
            // Upper case takes precedence, and an empty variable is unset, as in Go.
            (
                vec![("HTTPS_PROXY", "http://a:1"), ("https_proxy", "http://b:1")],
                None,
                Some("http://a:1 (HTTPS_PROXY)"),
            ),
            (
                vec![("HTTPS_PROXY", ""), ("https_proxy", "http://b:1")],
                None,
                Some("http://b:1 (https_proxy)"),
            ),
            (vec![("HTTPS_PROXY", "")], None, None),
        ] {
            assert_eq!(chosen(&variables, "http://t.test:6443/").as_deref(), http, "{variables:?}");
            assert_eq!(chosen(&variables, "https://t.test:6443/").as_deref(), https, "{variables:?}");
        }
    }

    #[test]
    fn no_proxy_is_read_as_in_go() {
        // A target, entries that cover it, and entries that do not.
        let cases: [(&str, &[&str], &[&str]); 7] = [
            (
                "https://api.cluster.test:6443",
                &[
                    "api.cluster.test",
                    "cluster.test",
                    ".cluster.test",
                    "*.cluster.test",
                    "TEST",
                    "a.b, ,api.cluster.test:6443",
                    "*",
                    ".test:6443",
                    "x api.cluster.test",
                ],
                &[
                    "pi.cluster.test",
                    "api.cluster.test:443",
                    ".api.cluster.test",
                    "",
                    "luster.test",
                    "10.0.0.0/8",
                    ":6443",
                ],
            ),
            ("https://API.Cluster.Test.", &["api.cluster.test", "api.cluster.test:443"], &["api"]),
            (
                "https://10.0.0.1",
                &["10.0.0.1", "10.0.0.0/8", "10.0.0.1:443", "::ffff:10.0.0.1", "0.0.0.0/0"],
                &["10.0.0.2", "10.0.1.0/24", "10.0.0.1:6443", "10", "kubernetes.default.svc", "0.0.1", ".1"],
            ),
            (
                "https://[fd00::1]:6443",
                &["fd00::1", "[fd00::1]", "[fd00::1]:6443", "fd00::/8", "FD00:0::1"],
                &["fd00::2", "[fd00::1]:443", "fe80::/16"],
            ),
            ("https://[::ffff:10.0.0.1]", &["10.0.0.0/8", "10.0.0.1"], &["11.0.0.0/8"]),
            // Loopback never uses a proxy.
            ("https://localhost:6443", &["", "x"], &[]),
            ("https://127.9.9.9:6443", &["", "x"], &[]),
        ];
        for (target, covering, others) in cases {
            let goes = |no: &str| chosen(&[("HTTPS_PROXY", "http://p:1"), ("no_proxy", no)], target);
            for no in covering {
                assert_eq!(goes(no), None, "{target} is covered by {no:?}");
            }
            for no in others {
                assert!(goes(no).is_some(), "{target} is not covered by {no:?}");
            }
        }
    }

    #[test]
    fn grpc_reads_the_variables_for_https() {
        let proxies =
            |name: &'static str| Proxies::read(|other| (name == other).then(|| "http://p:1".to_owned()));
        let target = "http://plane.test:18000".parse().unwrap();
        assert!(proxies("HTTPS_PROXY").of_grpc(&target).unwrap().is_some());
        assert!(proxies("HTTP_PROXY").of_grpc(&target).unwrap().is_none());
    }

    #[test]
    fn an_unusable_variable_is_named_without_its_value() {
        for (name, value) in
            [("HTTP_PROXY", "ftp://user:pass@p"), ("HTTPS_PROXY", "http://"), ("all_proxy", "a b")]
        {
            let scheme = if name.starts_with("HTTPS") { "https" } else { "http" };
            let variable = |other: &str| (name == other).then(|| value.to_owned());
            let target = format!("{scheme}://t.test").parse().unwrap();
            let error = Proxies::read(variable).of(&target).unwrap_err().to_string();
            assert!(error.starts_with(name) && error.contains("http://proxy.example:3128"), "{error}");
            assert!(!error.contains("pass"), "{error}");
        }
    }

    #[test]
    fn an_unusable_variable_is_an_error_only_if_it_is_used() {
        let proxies = |name: &'static str| {
            Proxies::read(move |other| match other {
                "NO_PROXY" => Some("covered.test".to_owned()),
                _ => (name == other).then(|| "ftp://p".to_owned()),
            })
        };
        let [plain, secured, covered, here] =
            ["http://t.test", "https://t.test", "https://covered.test", "https://localhost"]
                .map(|target| target.parse::<Uri>().unwrap());
        let http = proxies("HTTP_PROXY");
        assert!(http.of(&plain).is_err());
        assert_eq!((http.of(&secured), http.of_grpc(&plain)), (Ok(None), Ok(None)));
        let https = proxies("https_proxy");
        assert_eq!((https.of(&plain), https.of(&covered), https.of(&here)), (Ok(None), Ok(None), Ok(None)));
        assert!(https.of(&secured).is_err() && https.of_grpc(&plain).is_err());
        let all = proxies("ALL_PROXY");
        assert!(all.of(&plain).is_err() && all.of(&secured).is_err());
    }
}
