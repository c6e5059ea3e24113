//! `NO_PROXY`: the targets that are reached without a proxy. The rules are those of Go's `httpproxy`.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::url::bare_host;

/// The targets that are reached without a proxy.
#[derive(Clone, Debug, Default)]
pub(crate) struct NoProxy(Vec<Entry>);

#[derive(Clone, Debug)]
enum Entry {
    All,
    Network(IpNet),
    Address(IpAddr, Option<u16>),
    /// A domain with a leading dot, and whether the entry covers the domain itself in addition to its subdomains.
    Domain {
        suffix: String,
        itself: bool,
        port: Option<u16>,
    },
}

impl NoProxy {
    /// Parses a list with commas or spaces. Invalid entries are ignored, as in Go and curl.
    pub(crate) fn parse(text: &str) -> NoProxy {
        let entries = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|entry| !entry.is_empty());
        NoProxy(entries.filter_map(|entry| Entry::parse(&entry.to_ascii_lowercase())).collect())
    }

    /// Returns whether an entry covers this host in lower case, or this address, at this port.
    pub(crate) fn covers(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        let at = |only: &Option<u16>| only.is_none_or(|only| only == port);
        self.0.iter().any(|entry| match entry {
            Entry::All => true,
            Entry::Network(network) => address.is_some_and(|address| network.contains(&address)),
            Entry::Address(covered, only) => address == Some(*covered) && at(only),
            Entry::Domain { suffix, itself, port } => {
                let is_it = *itself && Some(host) == suffix.strip_prefix('.');
                address.is_none() && (is_it || host.ends_with(suffix)) && at(port)
            }
        })
    }
}

impl Entry {
    fn parse(entry: &str) -> Option<Entry> {
        if entry == "*" {
            return Some(Entry::All);
        }
        if let Ok(network) = entry.parse() {
            return Some(Entry::Network(network));
        }
        let address =
            |host: &str| bare_host(host).parse::<IpAddr>().map(|address| address.to_canonical()).ok();
        if let Some(address) = address(entry) {
            return Some(Entry::Address(address, None));
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (entry, None),
        };
        if let Some(address) = address(host) {
            return Some(Entry::Address(address, port));
        }
        let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        let (suffix, itself) = match host {
            "" | "." => return None,
            below if below.starts_with('.') => (below.to_owned(), false),
            name => (format!(".{name}"), true),
        };
        Some(Entry::Domain { suffix, itself, port })
    }
}
