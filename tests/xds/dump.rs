//! The CSDS dump of a controller, read like a client tool (H5).

use std::collections::BTreeMap;

use envoy_types::pb::envoy::admin::v3::ClientResourceStatus;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::service::status::v3::ClientStatusRequest;
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_client::ClientStatusDiscoveryServiceClient;
use prost::Message as _;
use simulator::control_plane::Kind;

/// A CSDS dump.
pub struct Dump {
    pub node: Node,
    resources: BTreeMap<(String, String), GenericXdsConfig>,
}

/// Summary of one resource in CSDS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub state: ClientResourceStatus,
    /// The version in use; empty if none is.
    pub version: String,
    /// The rejected version and the reason; `None`: no error.
    pub error: Option<(String, String)>,
}

impl Shown {
    /// Returns whether it is in use and has no error.
    pub fn is_good(&self) -> bool {
        self.state == ClientResourceStatus::Acked && !self.version.is_empty() && self.error.is_none()
    }
}

impl Dump {
    /// Reads the dump from CSDS at this address.
    pub async fn of(address: &str) -> Self {
        let client = ClientStatusDiscoveryServiceClient::connect(format!("http://{address}")).await;
        let mut client = client.expect("CSDS listens");
        let answer = client.fetch_client_status(ClientStatusRequest::default()).await.expect("CSDS answers");
        let mut configs = answer.into_inner().config;
        assert_eq!(configs.len(), 1, "there is one client in the process: {configs:?}");
        let config = configs.remove(0);
        assert_eq!(config.client_scope, "#backend-pools");
        let mut resources = BTreeMap::new();
        for resource in config.generic_xds_configs {
            assert_consistent(&resource);
            let key = (resource.type_url.clone(), resource.name.clone());
            assert!(resources.insert(key, resource).is_none(), "a resource is shown twice");
        }
        Self { node: config.node.expect("who we are"), resources }
    }

    /// Returns the number of watched resources.
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Returns a resource; `None`: it is not watched.
    pub fn find(&self, kind: Kind, name: &str) -> Option<&GenericXdsConfig> {
        self.resources.get(&(kind.type_url().to_owned(), name.to_owned()))
    }

    /// Returns the summary of a resource; `None`: it is not watched.
    pub fn shown(&self, kind: Kind, name: &str) -> Option<Shown> {
        self.find(kind, name).map(|resource| Shown {
            state: resource.client_status(),
            version: resource.version_info.clone(),
            error: resource
                .error_state
                .as_ref()
                .map(|error| (error.version_info.clone(), error.details.clone())),
        })
    }

    /// Returns the endpoints in use with this name, if any.
    pub fn endpoints(&self, name: &str) -> Option<ClusterLoadAssignment> {
        let any = self.find(Kind::Endpoints, name)?.xds_config.as_ref()?;
        assert_eq!(any.type_url, Kind::Endpoints.type_url());
        Some(ClusterLoadAssignment::decode(&any.value[..]).expect("a resource in use can be decoded"))
    }
}

/// Asserts that a resource in use is complete, and that there is an error exactly in the states with one.
fn assert_consistent(resource: &GenericXdsConfig) {
    let cached =
        [!resource.version_info.is_empty(), resource.xds_config.is_some(), resource.last_updated.is_some()];
    assert!(cached.iter().all(|part| *part == cached[0]), "{resource:?}");
    let is_used = cached[0];
    let has_error = resource.error_state.is_some();
    let holds = match resource.client_status() {
        ClientResourceStatus::Requested => !is_used && !has_error,
        ClientResourceStatus::Acked => is_used && !has_error,
        ClientResourceStatus::Timeout => !is_used && has_error,
        ClientResourceStatus::DoesNotExist
        | ClientResourceStatus::Nacked
        | ClientResourceStatus::ReceivedError => has_error,
        ClientResourceStatus::Unknown => false,
    };
    assert!(holds, "{resource:?}");
}
