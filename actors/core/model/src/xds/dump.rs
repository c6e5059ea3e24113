//! What is shown of the client: for CSDS and for the admin API (H3, H5).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::xds::Value;
use crate::xds::cache::{CacheState, Cached, Error, State};
use crate::xds::facts::Key;
use crate::xds::name::Name;
use crate::xds::source::SourceFact;

/// All servers and all watched resources, as they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dump {
    /// The servers, in the order of preference.
    pub servers: Vec<ServerDump>,
    /// The resources, in the order of their keys.
    pub resources: Vec<ResourceDump>,
}

/// A server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerDump {
    /// Its target.
    pub uri: Arc<str>,
    /// Whether it is in use: a stream to it is open, or is waited for.
    pub is_used: bool,
    /// Whether it is connected: in use, and none of its streams has ended without a response since the last one that
    /// came (A78).
    pub is_connected: bool,
    /// Why it is not connected.
    pub failure: Option<Arc<str>>,
    /// How the last streams were cut within a minute of their first responses; `None`: the last one was not. That is no
    /// error (A57), but something that is asked for never comes.
    pub cut: Option<Arc<str>>,
}

/// A watched resource: what a `GenericXdsConfig` is made of. The type URL is the key's; `last_updated`,
/// `version_info` and `xds_config` are the cached resource's, and `error_state` is the error's, with what it has
/// rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceDump {
    /// Which one it is.
    pub key: Key,
    /// `client_status`.
    pub state: State,
    /// The resource in use.
    pub cached: Option<Cached<Value>>,
    /// The resource's own most recent error.
    pub error: Option<Error>,
    /// How many watch it.
    pub watchers: usize,
}

impl ResourceDump {
    /// What it is counted as (A78).
    #[must_use]
    pub fn cache_state(&self) -> CacheState {
        self.state.cache_state(self.cached.is_some())
    }
}

/// All that is known of control planes at one moment, and what follows from it for the pools (H3, H5). The two are of the
/// same moment: what CSDS shows of a resource is what the pools get of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XdsView {
    /// The id by which control planes know us.
    pub node_id: Arc<str>,
    /// The servers and the resource cache.
    pub dump: Dump,
    /// What is known of each source.
    pub sources: BTreeMap<Name, SourceFact>,
}
