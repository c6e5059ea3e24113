//! The URLs of requests. Each name is one path segment, whatever its characters. The URL of an operation is used
//! unchanged, and only if it is on our endpoint: a token is sent nowhere else.

use model::ids::{LbName, Operation, PoolId};
use url::Url;

use crate::settings::Settings;

/// Reason why a URL was not built.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum AddressError {
    /// A name that would not be one segment of a path.
    #[error("the name {0:?} is not valid in a URL path")]
    Name(String),
    /// The URL of an operation is invalid.
    #[error("the operation's URL is invalid")]
    Unreadable,
    /// The URL of an operation is on another server.
    #[error("the operation's URL is not on the endpoint")]
    Foreign,
}

/// Builds URLs below one endpoint, subscription and resource group.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    endpoint: Url,
    subscription: String,
    resource_group: String,
    /// The version of the network API.
    api_version: String,
}

impl Addresses {
    pub(crate) fn new(settings: &Settings) -> Addresses {
        let Settings { endpoint, subscription, resource_group, api_version, .. } = settings.clone();
        Addresses { endpoint, subscription, resource_group, api_version }
    }

    /// Returns the version of the network API.
    pub(crate) fn network_version(&self) -> &str {
        &self.api_version
    }

    /// Returns the URL of a load balancer.
    pub(crate) fn load_balancer(&self, lb: &LbName) -> Result<Url, AddressError> {
        self.below(&[lb.as_str()])
    }

    /// Returns the URL of a pool.
    pub(crate) fn pool(&self, pool: &PoolId) -> Result<Url, AddressError> {
        self.below(&[pool.lb.as_str(), "backendAddressPools", pool.pool.as_str()])
    }

    /// Returns the URL of an operation, refused unless it is on the endpoint.
    pub(crate) fn operation(&self, operation: &Operation) -> Result<Url, AddressError> {
        let url = Url::parse(operation.as_str()).map_err(|_| AddressError::Unreadable)?;
        let same = url.scheme() == self.endpoint.scheme()
            && url.host() == self.endpoint.host()
            && url.port_or_known_default() == self.endpoint.port_or_known_default();
        let bare = url.username().is_empty() && url.password().is_none();
        if same && bare { Ok(url) } else { Err(AddressError::Foreign) }
    }

    /// Returns the URL of a Microsoft.Authorization collection (`permissions`, `locks`) at a scope, which is the id of
    /// a subscription, a resource group or a resource.
    pub(crate) fn about(&self, scope: &str, what: &str, version: &str) -> Result<Url, AddressError> {
        let tail = ["providers", "Microsoft.Authorization", what];
        self.at(scope.split('/').filter(|segment| !segment.is_empty()).chain(tail), version)
    }

    /// Returns the URL of the resource with this id, which may include a query.
    pub(crate) fn resource(&self, id: &str, version: &str) -> Result<Url, AddressError> {
        let (path, query) = id.split_once('?').unwrap_or((id, ""));
        let mut url = self.at(path.split('/').filter(|segment| !segment.is_empty()), version)?;
        url.query_pairs_mut().extend_pairs(url::form_urlencoded::parse(query.as_bytes()));
        Ok(url)
    }

    /// Returns the URL of a path with its query.
    pub(crate) fn path(&self, path: &str) -> Result<Url, AddressError> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut url = self.joined(path.split('/').filter(|segment| !segment.is_empty()))?;
        url.set_query(Some(query).filter(|query| !query.is_empty()));
        Ok(url)
    }

    fn below(&self, names: &[&str]) -> Result<Url, AddressError> {
        let head = [
            "subscriptions",
            &self.subscription,
            "resourceGroups",
            &self.resource_group,
            "providers",
            "Microsoft.Network",
            "loadBalancers",
        ];
        self.at(head.into_iter().chain(names.iter().copied()), &self.api_version)
    }

    /// Returns the URL of these segments, in this version of an API.
    fn at<'a>(&self, segments: impl Iterator<Item = &'a str>, version: &str) -> Result<Url, AddressError> {
        let mut url = self.joined(segments)?;
        url.query_pairs_mut().append_pair("api-version", version);
        Ok(url)
    }

    fn joined<'a>(&self, segments: impl Iterator<Item = &'a str>) -> Result<Url, AddressError> {
        let mut url = self.endpoint.clone();
        {
            let mut path = url.path_segments_mut().map_err(|()| AddressError::Unreadable)?;
            path.pop_if_empty();
            for segment in segments {
                if !is_segment(segment) {
                    return Err(AddressError::Name(segment.to_owned()));
                }
                path.push(segment);
            }
        }
        Ok(url)
    }
}

/// Returns whether a name stays one path segment: the URL parser resolves `.` and `..` and drops control characters.
pub(crate) fn is_segment(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.chars().any(char::is_control)
}

/// Returns whether polling this URL returns the resource (`Location`) instead of a status (`Azure-AsyncOperation`).
pub(crate) fn answers_with_resource(url: &Url) -> bool {
    url.path_segments().is_some_and(|mut path| path.any(|it| it.eq_ignore_ascii_case("operationResults")))
}
