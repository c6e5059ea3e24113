//! Which installation this process belongs to (H3): the cluster and the subscription that it works on, and the names that
//! commands for its operators need. The chart sets the variables of the environment, and `simulate` the last of them.

use config::Config;
use serde::Serialize;
use utoipa::ToSchema;

/// The names of an installation. Empty variables count as absent.
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

/// Which installation answers, and the names that commands for its operators need. Null: not known to the process.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Installation)]
pub(super) struct ShownInstallation<'a> {
    /// `clusterName` of the configuration.
    cluster_name: &'a str,
    /// That of the load balancers.
    subscription: &'a str,
    /// That of the load balancers.
    resource_group: &'a str,
    /// Where the pods of the controller run.
    namespace: Option<&'a str>,
    /// The Deployment of the controller.
    deployment: Option<&'a str>,
    /// The service account that may ask, in that namespace. Null: the chart has made none.
    operator_service_account: Option<&'a str>,
    /// Whether the API server is that of `simulate`, which accepts every token.
    simulated: bool,
    /// The port where the admin API listens on the pod's loopback.
    admin_port: u16,
}

impl Installation {
    /// The installation that the configuration and these variables of the environment name.
    #[must_use]
    pub fn of(config: &Config, variable: impl Fn(&str) -> Option<String>) -> Installation {
        let named = |name: &str| variable(name).filter(|value| !value.is_empty());
        Installation {
            cluster_name: config.controller.cluster_name.clone(),
            subscription: config.cloud.network_subscription().to_owned(),
            resource_group: config.cloud.load_balancer_resource_group().to_owned(),
            namespace: named("POD_NAMESPACE"),
            deployment: named("DEPLOYMENT_NAME"),
            operator: named("OPERATOR_SERVICE_ACCOUNT"),
            is_simulated: named("SIMULATED_API_SERVER").is_some(),
            admin_port: config.controller.http.admin_listen.port(),
        }
    }

    /// What `status` shows of it.
    pub(super) fn shown(&self) -> ShownInstallation<'_> {
        ShownInstallation {
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
