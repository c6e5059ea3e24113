//! The installation that this process belongs to (H3): its cluster and subscription, and names for `kubectl` commands.
//! The chart sets the environment variables; `simulate` sets the last one.

use config::Config;
use serde::Serialize;
use utoipa::ToSchema;

/// The names of an installation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Installation {
    cluster_name: String,
    subscription: String,
    resource_group: String,
    namespace: Option<String>,
    deployment: Option<String>,
    operator: Option<String>,
    /// Whether the API server is a simulation, which accepts every token.
    is_simulated: bool,
    admin_port: u16,
}

/// The installation that answers, and names for `kubectl` commands. Null: unknown to the process.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Installation)]
pub(super) struct InstallationStatus<'a> {
    /// `clusterName` of the configuration.
    cluster_name: &'a str,
    /// The subscription of the load balancers.
    subscription: &'a str,
    /// The resource group of the load balancers.
    resource_group: &'a str,
    /// The namespace of the controller's pods.
    namespace: Option<&'a str>,
    /// The Deployment of the controller.
    deployment: Option<&'a str>,
    /// The service account for operators, in that namespace. Null: the chart created none.
    operator_service_account: Option<&'a str>,
    /// Whether the API server is that of `simulate`, which accepts every token.
    simulated: bool,
    /// The port where the admin API listens on the pod's loopback.
    admin_port: u16,
}

impl Installation {
    /// Reads the installation from the configuration and environment variables. Empty variables count as absent.
    #[must_use]
    pub fn of(config: &Config, variable: impl Fn(&str) -> Option<String>) -> Installation {
        let non_empty = |name: &str| variable(name).filter(|value| !value.is_empty());
        Installation {
            cluster_name: config.controller.cluster_name.clone(),
            subscription: config.cloud.network_subscription().to_owned(),
            resource_group: config.cloud.load_balancer_resource_group().to_owned(),
            namespace: non_empty("POD_NAMESPACE"),
            deployment: non_empty("DEPLOYMENT_NAME"),
            operator: non_empty("OPERATOR_SERVICE_ACCOUNT"),
            is_simulated: non_empty("SIMULATED_API_SERVER").is_some(),
            admin_port: config.controller.http.admin_listen.port(),
        }
    }

    /// Returns the installation as `/api/v1/status` shows it.
    pub(super) fn to_status(&self) -> InstallationStatus<'_> {
        InstallationStatus {
            cluster_name: &self.cluster_name,
            subscription: &self.subscription,
            resource_group: &self.resource_group,
            namespace: self.namespace.as_deref(),
            deployment: self.deployment.as_deref(),
            operator_service_account: self.operator.as_deref(),
            simulated: self.is_simulated,
            admin_port: self.admin_port,
        }
    }
}
