//! Which installation this process belongs to (H3): the cluster and the subscription that it works on, and the names that
//! commands for its operators need. The chart sets the variables of the environment, and `simulate` the last of them.

use config::Config;
use serde_json::{Value, json};

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
    pub(super) fn shown(&self) -> Value {
        let Installation {
            cluster_name,
            subscription,
            resource_group,
            namespace,
            deployment,
            operator,
            is_simulated,
            admin_port,
        } = self;
        json!({
            "clusterName": cluster_name,
            "subscription": subscription,
            "resourceGroup": resource_group,
            "namespace": namespace,
            "deployment": deployment,
            "operatorServiceAccount": operator,
            "simulated": is_simulated,
            "adminPort": admin_port,
        })
    }
}
