//! The environment variables, with the names that cloud-provider-azure's tests have.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use arm::{Identity, Login, Secret};
use config::{Cloud, is_loopback};
use kube::config::Kubeconfig;
use url::Url;

/// One variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// True if it must be set.
    pub required: bool,
    /// Value when it is not set.
    pub default: &'static str,
}

const fn required(name: &'static str) -> Variable {
    Variable { name, required: true, default: "" }
}

const fn optional(name: &'static str, default: &'static str) -> Variable {
    Variable { name, required: false, default }
}

/// All variables. Credentials are not needed where AZURE_RESOURCE_MANAGER_ENDPOINT is on loopback.
pub const VARIABLES: [Variable; 13] = [
    required("AZURE_TENANT_ID"),
    required("AZURE_SUBSCRIPTION_ID"),
    required("AZURE_CLIENT_ID"),
    required("AZURE_CLIENT_SECRET"),
    optional("AZURE_ENVIRONMENT", "AzurePublicCloud"),
    required("AZURE_LOCATION"),
    optional("AZURE_LOADBALANCER_SKU", "standard"),
    required("AZURE_RESOURCE_GROUP"),
    optional("KUBECONFIG", "~/.kube/config"),
    optional("CLUSTER_NAME", ""),
    optional("E2E_NAMESPACE", ""),
    optional("CONTROLLER_LEASE", "kube-system/azure-backend-pool-controller"),
    optional("AZURE_RESOURCE_MANAGER_ENDPOINT", ""),
];

/// The values of the variables.
pub(crate) struct Environment {
    pub(crate) subscription: String,
    pub(crate) resource_group: String,
    pub(crate) location: String,
    pub(crate) endpoint: Url,
    pub(crate) identity: Identity,
    pub(crate) login: Login,
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) cluster_name: String,
    /// The existing namespace for the tests; `None`: the tests create one.
    pub(crate) namespace: Option<String>,
    /// Namespace and name of the controller's Lease.
    pub(crate) lease: (String, String),
}

impl Environment {
    /// Reads the variables; an error names each that is missing, and the remedy.
    pub(crate) fn read(set: &BTreeMap<String, String>) -> anyhow::Result<Self> {
        let given = |name: &str| set.get(name).map(String::as_str).filter(|value| !value.is_empty());
        let endpoint = endpoint(given("AZURE_ENVIRONMENT"), given("AZURE_RESOURCE_MANAGER_ENDPOINT"))?;
        let anonymous = is_loopback(&endpoint);
        let unneeded = |name: &str| {
            anonymous && matches!(name, "AZURE_TENANT_ID" | "AZURE_CLIENT_ID" | "AZURE_CLIENT_SECRET")
        };
        let missing: Vec<&str> = VARIABLES
            .iter()
            .filter(|one| one.required && !unneeded(one.name) && given(one.name).is_none())
            .map(|one| one.name)
            .collect();
        ensure!(
            missing.is_empty(),
            "not set: {}; docs/development/e2e-tests.md explains them",
            missing.join(" ")
        );
        let value = |name: &str| {
            let default = VARIABLES.iter().find(|one| one.name == name).map_or("", |one| one.default);
            given(name).unwrap_or(default).to_owned()
        };
        let sku = value("AZURE_LOADBALANCER_SKU");
        ensure!(
            sku.eq_ignore_ascii_case("standard"),
            "AZURE_LOADBALANCER_SKU is {sku}: Azure has retired Basic load balancers; set it to standard"
        );
        let lease = value("CONTROLLER_LEASE");
        let Some((namespace, name)) = lease.split_once('/') else {
            bail!("CONTROLLER_LEASE is {lease}: give it as namespace/name");
        };
        let kubeconfig = given("KUBECONFIG").map(PathBuf::from);
        let cluster_name = match given("CLUSTER_NAME") {
            Some(name) => name.to_owned(),
            None => cluster_of(kubeconfig.as_ref())?,
        };
        ensure!(
            !cluster_name.contains(['/', '\\']) && !cluster_name.starts_with('.'),
            "the cluster's name {cluster_name:?} is invalid as the name of a folder: set CLUSTER_NAME"
        );
        let identity = if anonymous {
            Identity::Anonymous
        } else {
            Identity::ClientSecret {
                tenant: value("AZURE_TENANT_ID"),
                client_id: value("AZURE_CLIENT_ID"),
                secret: Secret::new(value("AZURE_CLIENT_SECRET")),
            }
        };
        Ok(Self {
            subscription: value("AZURE_SUBSCRIPTION_ID"),
            resource_group: value("AZURE_RESOURCE_GROUP"),
            location: value("AZURE_LOCATION"),
            login: login(&endpoint, value("AZURE_ENVIRONMENT"))?,
            endpoint,
            identity,
            kubeconfig,
            cluster_name,
            namespace: given("E2E_NAMESPACE").map(str::to_owned),
            lease: (namespace.to_owned(), name.to_owned()),
        })
    }

    /// Returns whether Azure is simulated.
    pub(crate) fn is_simulated(&self) -> bool {
        is_loopback(&self.endpoint)
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster_name, subscription, resource_group, location, endpoint, .. } = self;
        write!(
            f,
            "cluster {cluster_name}, subscription {subscription}, resource group {resource_group}, location {location}, {endpoint}"
        )
    }
}

fn endpoint(cloud: Option<&str>, named: Option<&str>) -> anyhow::Result<Url> {
    if let Some(named) = named {
        return Url::parse(named)
            .with_context(|| format!("AZURE_RESOURCE_MANAGER_ENDPOINT is {named}: give an address such as https://management.azure.com"));
    }
    let cloud = cloud.unwrap_or("AzurePublicCloud");
    let known = Cloud::named(cloud).with_context(|| {
        format!(
            "AZURE_ENVIRONMENT is {cloud}: set AzurePublicCloud, AzureChinaCloud or AzureUSGovernmentCloud"
        )
    })?;
    Ok(known.arm_endpoint())
}

/// Returns the token settings of an endpoint, from its metadata document.
fn login(endpoint: &Url, cloud: String) -> anyhow::Result<Login> {
    let document = endpoint
        .join("/metadata/endpoints?api-version=2019-05-01")
        .context("AZURE_RESOURCE_MANAGER_ENDPOINT has no path")?;
    Ok(Login::Metadata { document, cloud, authority_host: None })
}

/// Returns the name of the cluster in the kubeconfig's current context; `azure` where there is no kubeconfig.
fn cluster_of(kubeconfig: Option<&PathBuf>) -> anyhow::Result<String> {
    let file = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path)
            .with_context(|| format!("failed to read KUBECONFIG {}", path.display()))?,
        None => match Kubeconfig::read() {
            Ok(file) => file,
            Err(_) => return Ok("azure".to_owned()),
        },
    };
    let current = file.current_context.unwrap_or_default();
    let context = file.contexts.into_iter().find(|one| one.name == current).and_then(|one| one.context);
    context.map(|context| context.cluster).with_context(|| {
        format!("the kubeconfig has no context {current:?}; set CLUSTER_NAME or its current-context")
    })
}
