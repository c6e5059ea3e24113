//! Parses a request's path and query. Names are decoded; keywords compare without case, as in ARM.

use super::random::Guid;
use super::resource_type::{Provider, ResourcePath};

/// A parsed path and query. Nothing here is checked against the store.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) subscription: Option<String>,
    pub(crate) resource_group: Option<String>,
    pub(crate) route: Route,
    query: Vec<(String, String)>,
}

/// The resource that a path names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    LoadBalancers,
    LoadBalancer { name: String },
    Pools { load_balancer: String },
    Pool { load_balancer: String, pool: String },
    Permissions,
    Locks { scope: String },
    Operation { id: Option<Guid> },
    OperationResult { id: Option<Guid> },
    LoadBalancerAction { name: String, action: String },
    Resource(ResourcePath),
    ResourceGroup,
    Usages,
    Elsewhere,
}

impl Route {
    pub(crate) fn load_balancer(&self) -> Option<&str> {
        match self {
            Self::LoadBalancer { name } | Self::LoadBalancerAction { name, .. } => Some(name),
            Self::Pools { load_balancer } | Self::Pool { load_balancer, .. } => Some(load_balancer),
            Self::LoadBalancers
            | Self::Permissions
            | Self::Locks { .. }
            | Self::Operation { .. }
            | Self::OperationResult { .. }
            | Self::Resource(_)
            | Self::ResourceGroup
            | Self::Usages
            | Self::Elsewhere => None,
        }
    }

    pub(crate) fn pool(&self) -> Option<&str> {
        match self {
            Self::Pool { pool, .. } => Some(pool),
            Self::LoadBalancers
            | Self::LoadBalancer { .. }
            | Self::Pools { .. }
            | Self::Permissions
            | Self::Locks { .. }
            | Self::LoadBalancerAction { .. }
            | Self::Operation { .. }
            | Self::OperationResult { .. }
            | Self::Resource(_)
            | Self::ResourceGroup
            | Self::Usages
            | Self::Elsewhere => None,
        }
    }
}

impl Target {
    pub(crate) fn parse(path_and_query: &str) -> Self {
        let without_authority = after_authority(path_and_query);
        let (path, query) = without_authority.split_once('?').unwrap_or((without_authority, ""));
        let segments: Vec<String> = path.split('/').filter(|s| !s.is_empty()).map(decode).collect();
        let words: Vec<&str> = segments.iter().map(String::as_str).collect();
        let query = query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect();
        let (subscription, rest) = match words.as_slice() {
            [key, name, rest @ ..] if is(key, "subscriptions") => (Some((*name).to_owned()), rest),
            other => (None, other),
        };
        let (resource_group, rest) = match rest {
            [key, name, rest @ ..] if is(key, "resourceGroups") => (Some((*name).to_owned()), rest),
            other => (None, other),
        };
        let route = authorization(&words).unwrap_or_else(|| route(rest, resource_group.is_some()));
        Self { subscription, route, resource_group, query }
    }

    /// Returns the first value of a query parameter; parameter names compare without case.
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| is(key, name)).map(|(_, value)| value.as_str())
    }
}

/// Returns an authorization resource of the scope before it.
fn authorization(words: &[&str]) -> Option<Route> {
    let [scope @ .., providers, authorization, kind] = words else { return None };
    if !is(providers, "providers") || !is(authorization, "Microsoft.Authorization") {
        return None;
    }
    match kind {
        kind if is(kind, "permissions") => Some(Route::Permissions),
        kind if is(kind, "locks") => Some(Route::Locks { scope: format!("/{}", scope.join("/")) }),
        _ => None,
    }
}

fn route(rest: &[&str], in_group: bool) -> Route {
    let [providers, provider, rest @ ..] = rest else {
        return if rest.is_empty() && in_group { Route::ResourceGroup } else { Route::Elsewhere };
    };
    let Some(provider) = Provider::parse(provider).filter(|_| is(providers, "providers")) else {
        return Route::Elsewhere;
    };
    let found = match provider {
        Provider::Network => network(rest, in_group),
        Provider::Compute => None,
    };
    found.or_else(|| operation(rest)).unwrap_or_else(|| {
        ResourcePath::parse(provider, rest, in_group).map_or(Route::Elsewhere, Route::Resource)
    })
}

/// Parses a path below the network provider: load balancers, their pools and actions, and usages.
fn network(rest: &[&str], in_group: bool) -> Option<Route> {
    let pools = |word: &str| is(word, "backendAddressPools");
    let owned = |name: &str| name.to_owned();
    match rest {
        [kind] if is(kind, "loadBalancers") => Some(Route::LoadBalancers),
        [kind, name] if in_group && is(kind, "loadBalancers") => {
            Some(Route::LoadBalancer { name: owned(name) })
        }
        [kind, name, child] if in_group && is(kind, "loadBalancers") && pools(child) => {
            Some(Route::Pools { load_balancer: owned(name) })
        }
        [kind, name, child, pool] if in_group && is(kind, "loadBalancers") && pools(child) => {
            Some(Route::Pool { load_balancer: owned(name), pool: owned(pool) })
        }
        [kind, name, action] if in_group && is(kind, "loadBalancers") => {
            Some(Route::LoadBalancerAction { name: owned(name), action: action.to_lowercase() })
        }
        [kind, _, child] if is(kind, "locations") && is(child, "usages") => Some(Route::Usages),
        _ => None,
    }
}

fn operation(rest: &[&str]) -> Option<Route> {
    match rest {
        [kind, _, child, id] if is(kind, "locations") && is(child, "operations") => {
            Some(Route::Operation { id: Guid::parse(id) })
        }
        [kind, _, child, id] if is(kind, "locations") && is(child, "operationResults") => {
            Some(Route::OperationResult { id: Guid::parse(id) })
        }
        _ => None,
    }
}

fn is(word: &str, expected: &str) -> bool {
    word.eq_ignore_ascii_case(expected)
}

/// Returns the path after the scheme and the authority, which the absolute form of a request line has.
fn after_authority(text: &str) -> &str {
    match text.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(['/', '?']) => {
            rest.find('/').map_or("", |start| &rest[start..])
        }
        Some(_) | None => text,
    }
}

fn pair(text: &str) -> (String, String) {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    (decode(key), decode(value))
}

fn decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                decoded.push(byte);
                at += 3;
            }
            Some(_) | None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
