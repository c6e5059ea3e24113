//! The state of the client as shown by CSDS and the admin API (H3, H5).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::xds::ResourceValue;
use crate::xds::cache::{CacheState, Cached, Error, ResourceState};
use crate::xds::facts::ResourceKey;
use crate::xds::name::Name;
use crate::xds::source::SourceFact;

/// All servers and all watched resources at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dump {
    /// The servers in order of preference.
    pub servers: Vec<ServerDump>,
    /// The resources in the order of their keys.
    pub resources: Vec<ResourceDump>,
}

/// A server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerDump {
    /// Its target.
    pub uri: Arc<str>,
    /// True if it is in use: a stream to it is open or being opened.
    pub is_used: bool,
    /// True if it is connected: in use, and none of its streams has ended without a response since the latest response
    /// (A78).
    pub is_connected: bool,
    /// Why it is not connected.
    pub failure: Option<Arc<str>>,
    /// How the last streams broke within a minute of their first responses; `None`: the last stream did not break so
    /// early. This is not an error (A57), but may explain why a requested resource never arrives.
    pub cut: Option<Arc<str>>,
}

/// A watched resource, with the content of a `GenericXdsConfig`. The type URL is that of the key. `last_updated`,
/// `version_info` and `xds_config` come from the cached resource, and `error_state` from the error and its rejected
/// resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceDump {
    /// Key of the resource.
    pub key: ResourceKey,
    /// `client_status`.
    pub state: ResourceState,
    /// The resource in use.
    pub cached: Option<Cached<ResourceValue>>,
    /// The resource's own most recent error.
    pub error: Option<Error>,
    /// Number of watchers.
    pub watchers: usize,
}

impl ResourceDump {
    /// Returns the metric label (A78).
    #[must_use]
    pub fn cache_state(&self) -> CacheState {
        self.state.cache_state(self.cached.is_some())
    }
}

/// The state of all control planes and of the pools' sources, taken at the same moment (H3, H5). CSDS and the pools
/// therefore agree about each resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XdsView {
    /// The node id by which control planes identify us.
    pub node_id: Arc<str>,
    /// The servers and the resource cache.
    pub dump: Dump,
    /// The state of each source.
    pub sources: BTreeMap<Name, SourceFact>,
}
