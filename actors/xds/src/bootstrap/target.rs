//! The address of a server: gRPC's target names, as far as a list of xDS servers needs them. The transport resolves
//! names.

use std::net::Ipv6Addr;

/// Port of a target without one.
const DEFAULT_PORT: u16 = 443;

/// Valid forms, for messages.
const FORMS: &str = "write host:port, [IPv6 address]:port, dns:///host:port or unix:path";

/// Address of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// A host and port.
    Tcp {
        /// Host and port as in a URL, with an IPv6 address in brackets.
        authority: String,
    },
    /// The Unix socket at this path.
    Unix(String),
}

impl Target {
    /// Parses a target.
    ///
    /// # Errors
    /// The target cannot be reached; with the reason and the remedy.
    pub(super) fn parse(uri: &str) -> Result<Target, String> {
        if uri.is_empty() {
            return Err(format!("is empty: {FORMS}"));
        }
        if let Some(path) = uri.strip_prefix("unix:") {
            return unix(path);
        }
        let Some(name) = uri.strip_prefix("dns:") else {
            return match uri.split_once("://") {
                Some((scheme, _)) => {
                    Err(format!("{scheme:.20}:// is not supported, a target is not a URL: {FORMS}"))
                }
                None => tcp(uri),
            };
        };
        match name.strip_prefix("//").map(|name| name.split_once('/')) {
            Some(Some(("", name))) => tcp(name),
            Some(Some(_)) => {
                Err("names a DNS server, which is not supported: leave it out, as in dns:///host:port"
                    .to_owned())
            }
            Some(None) => {
                Err("has no host: write it behind three slashes, as in dns:///host:port".to_owned())
            }
            None => tcp(name.strip_prefix('/').unwrap_or(name)),
        }
    }
}

fn unix(path: &str) -> Result<Target, String> {
    let path = match path.strip_prefix("//") {
        Some(absolute) if !absolute.starts_with('/') => {
            return Err("has no absolute path: write unix:///path, or unix:path".to_owned());
        }
        // The transport treats two leading slashes as those of a URL.
        Some(absolute) => format!("/{}", absolute.trim_start_matches('/')),
        None => path.to_owned(),
    };
    if path.is_empty() || path == "/" {
        return Err("has no path: write unix:path".to_owned());
    }
    Ok(Target::Unix(path))
}

fn tcp(text: &str) -> Result<Target, String> {
    let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((host, rest))) => (bracketed(host)?, rest.strip_prefix(':').or(none_if_empty(rest)?)),
        Some(None) => return Err(format!("has no closing bracket: {FORMS}")),
        None if text.parse::<Ipv6Addr>().is_ok() => (format!("[{text}]"), None),
        None => match text.split_once(':') {
            Some((host, port)) => (named(host)?, Some(port)),
            None => (named(text)?, None),
        },
    };
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => port
            .parse::<u16>()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| format!("its port is not a number from 1 to 65535: {FORMS}"))?,
    };
    Ok(Target::Tcp { authority: format!("{host}:{port}") })
}

/// Checks that the text after the brackets is empty or begins with a colon.
fn none_if_empty(rest: &str) -> Result<Option<&str>, String> {
    if rest.is_empty() || rest.starts_with(':') {
        Ok(None)
    } else {
        Err(format!("expected a port after the bracket: {FORMS}"))
    }
}

fn bracketed(host: &str) -> Result<String, String> {
    match host.parse::<Ipv6Addr>() {
        Ok(_) => Ok(format!("[{host}]")),
        Err(_) => Err(format!("the text in brackets is not an IPv6 address: {FORMS}")),
    }
}

fn named(host: &str) -> Result<String, String> {
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if host.is_empty() {
        return Err(format!("has no host: {FORMS}"));
    }
    if host.len() > 253 || !host.chars().all(is_of_a_name) {
        return Err(format!("its host is not a valid host name: {FORMS}"));
    }
    Ok(host.to_owned())
}
