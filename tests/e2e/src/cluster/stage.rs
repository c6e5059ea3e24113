//! The namespace of the tests, its Services, and their pools at Azure.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::{Value, json};

use super::objects;
use crate::azure::{Azure, describe};
use crate::environment::Environment;
use crate::wait;

/// The annotation that pauses a Service.
const PAUSE: &str = "azure-backend-pool-controller.io/pause";
/// Maximum time in which the cloud-controller-manager creates a load balancer, and the controller writes a pool.
const TEST_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Maximum number of nodes that tests use.
const MAX_NODES: usize = 3;

/// The environment of the tests.
pub(super) struct Stage<'a> {
    azure: &'a Azure,
    client: Client,
    namespace: String,
    /// True if the namespace is the suite's own.
    is_own: bool,
    /// Namespace and name of the controller's Lease.
    lease: (String, String),
    /// Nodes that may be members: name and address.
    pub(super) nodes: Vec<(String, String)>,
}

impl<'a> Stage<'a> {
    pub(super) async fn set_up(environment: &Environment, azure: &'a Azure) -> anyhow::Result<Stage<'a>> {
        let client = client(environment).await?;
        let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await;
        let nodes = nodes.context("the nodes cannot be listed; check KUBECONFIG and its rights")?;
        let nodes: Vec<_> = nodes.iter().filter_map(objects::usable).take(MAX_NODES).collect();
        ensure!(!nodes.is_empty(), "no node is Ready, has an IPv4 InternalIP and may be a member of a pool");
        let id = uuid::Uuid::new_v4().simple().to_string();
        let own = format!("e2e-{}", &id[..8]);
        let namespace = environment.namespace.clone().unwrap_or_else(|| own.clone());
        let stage = Stage {
            azure,
            client,
            is_own: environment.namespace.is_none(),
            namespace,
            lease: environment.lease.clone(),
            nodes,
        };
        if stage.is_own {
            let namespaces = Api::<Namespace>::all(stage.client.clone());
            namespaces
                .create(&PostParams::default(), &objects::namespace(&own))
                .await
                .context("no namespace can be created")?;
        }
        Ok(stage)
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn slices(&self) -> Api<EndpointSlice> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn names(&self, nodes: &[usize]) -> Vec<&str> {
        nodes.iter().filter_map(|&number| self.nodes.get(number)).map(|(name, _)| name.as_str()).collect()
    }

    /// Returns the addresses of these nodes.
    pub(super) fn addresses(&self, nodes: &[usize]) -> BTreeSet<String> {
        nodes
            .iter()
            .filter_map(|&number| self.nodes.get(number))
            .map(|(_, address)| address.clone())
            .collect()
    }

    /// Creates a Service with one endpoint on each of these nodes.
    pub(super) async fn create(&self, name: &str, nodes: &[usize]) -> anyhow::Result<Service> {
        self.create_as(objects::service(name), name, nodes).await
    }

    /// Creates a Service with the annotation that pauses it.
    pub(super) async fn create_paused(&self, name: &str, nodes: &[usize]) -> anyhow::Result<Service> {
        let mut service = objects::service(name);
        service.annotations_mut().insert(PAUSE.to_owned(), "true".to_owned());
        self.create_as(service, name, nodes).await
    }

    async fn create_as(&self, service: Service, name: &str, nodes: &[usize]) -> anyhow::Result<Service> {
        let new = PostParams::default();
        let slice = objects::slice(name, &self.names(nodes));
        self.slices().create(&new, &slice).await.with_context(|| format!("the EndpointSlice of {name}"))?;
        self.services().create(&new, &service).await.with_context(|| format!("Service {name}"))
    }

    /// Waits until the cloud-controller-manager has set the address of a Service, which is its last step.
    pub(super) async fn ensured(&self, service: &Service) -> anyhow::Result<()> {
        let name = service.name_any();
        let what = format!("Service {name} has an address");
        wait::until(&what, (self.azure.interval, TEST_TIMEOUT), async || {
            let status = self.services().get(&name).await.context("the Service cannot be read")?.status;
            let ingress = status.and_then(|status| status.load_balancer).and_then(|one| one.ingress);
            Ok(if ingress.is_some_and(|all| !all.is_empty()) { Ok(()) } else { Err("none".to_owned()) })
        })
        .await
    }

    /// Replaces the endpoints of a Service.
    pub(super) async fn set_endpoints(&self, name: &str, nodes: &[usize]) -> anyhow::Result<()> {
        let patch = json!({ "endpoints": objects::endpoints(&self.names(nodes)) });
        let slice = format!("{name}-e2e");
        self.slices().patch(&slice, &PatchParams::default(), &Patch::Merge(patch)).await.context(slice)?;
        Ok(())
    }

    /// Removes the annotation that pauses a Service.
    pub(super) async fn resume(&self, name: &str) -> anyhow::Result<()> {
        let patch = json!({ "metadata": { "annotations": { PAUSE: null } } });
        self.services()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context("the pause")?;
        Ok(())
    }

    /// Returns the members of a Service's own pool; `None`: the Service has no rule yet.
    pub(super) async fn members(&self, service: &Service) -> anyhow::Result<Option<BTreeSet<String>>> {
        let uid = service.uid().context("the Service has a uid")?;
        let prefix: String = format!("a{}", uid.replace('-', "")).chars().take(32).collect();
        let mut page = Some(self.azure.id("loadBalancers"));
        while let Some(target) = page {
            let answer = self.azure.get(&target).await?;
            ensure!(answer.status == 200, "the load balancers cannot be listed: {}", describe(&answer));
            for balancer in answer.body["value"].as_array().into_iter().flatten() {
                if let Some(members) = members_by(balancer, &prefix)? {
                    return Ok(Some(members));
                }
            }
            page = answer.body["nextLink"].as_str().map(str::to_owned);
        }
        Ok(None)
    }

    /// Waits until the pool of a Service has exactly these nodes.
    pub(super) async fn holds(&self, service: &Service, nodes: &[usize]) -> anyhow::Result<()> {
        let wanted = self.addresses(nodes);
        let what = format!("the pool of Service {} has {wanted:?}", service.name_any());
        wait::until(&what, (self.azure.interval, TEST_TIMEOUT), async || {
            Ok(match self.members(service).await? {
                Some(members) if members == wanted => Ok(()),
                Some(members) => Err(format!("{members:?}")),
                None => Err("no rule of the Service on any load balancer of the resource group".to_owned()),
            })
        })
        .await
    }

    /// Waits until a replica of the controller has renewed its Lease.
    pub(super) async fn leader(&self) -> anyhow::Result<()> {
        let (namespace, name) = &self.lease;
        let leases = Api::<Lease>::namespaced(self.client.clone(), namespace);
        let renewal = async || {
            let lease = leases.get_opt(name).await.context("the Lease cannot be read")?;
            let spec = lease.and_then(|lease| lease.spec);
            let held =
                spec.filter(|spec| spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty()));
            anyhow::Ok(held.and_then(|spec| spec.renew_time))
        };
        let Some(first) = renewal().await? else {
            bail!(
                "no process holds the Lease {namespace}/{name}; install the controller, or set CONTROLLER_LEASE"
            );
        };
        let what = format!("the Lease {namespace}/{name} is renewed");
        wait::until(&what, (self.azure.interval, Duration::from_secs(90)), async || {
            Ok(if renewal().await?.is_some_and(|now| now != first) {
                Ok(())
            } else {
                Err(format!("{first:?}"))
            })
        })
        .await
    }

    /// Waits for an event of this reason on a Service.
    pub(super) async fn event(&self, service: &str, reason: &str) -> anyhow::Result<()> {
        let events = Api::<Event>::namespaced(self.client.clone(), &self.namespace);
        let fields = format!("involvedObject.name={service},reason={reason}");
        let what = format!("Service {service} has the event {reason}");
        wait::until(&what, (self.azure.interval, Duration::from_secs(120)), async || {
            let found = events.list(&ListParams::default().fields(&fields)).await.context("events")?;
            Ok(if found.items.is_empty() { Err("no such event".to_owned()) } else { Ok(()) })
        })
        .await
    }

    /// Deletes what the tests have created. The cloud-controller-manager deletes the resources that it has created for
    /// it.
    pub(super) async fn clear_up(self) -> anyhow::Result<()> {
        let (all, now) = (
            ListParams::default().labels("azure-backend-pool-controller.io/e2e=true"),
            DeleteParams::default(),
        );
        for service in self.services().list(&all).await.context("Services")? {
            self.services().delete(&service.name_any(), &now).await.context("a Service")?;
        }
        for slice in self.slices().list(&all).await.context("EndpointSlices")? {
            self.slices().delete(&slice.name_any(), &now).await.context("an EndpointSlice")?;
        }
        if self.is_own {
            let namespaces = Api::<Namespace>::all(self.client.clone());
            namespaces.delete(&self.namespace, &now).await.context("the namespace")?;
        }
        Ok(())
    }
}

/// Returns the members of the pool of a rule with this prefix of its name; `None`: there is no such rule.
fn members_by(balancer: &Value, prefix: &str) -> anyhow::Result<Option<BTreeSet<String>>> {
    let properties = &balancer["properties"];
    let list = |name: &str| properties[name].as_array().into_iter().flatten();
    let rule = list("loadBalancingRules")
        .find(|rule| rule["name"].as_str().is_some_and(|name| name.starts_with(prefix)));
    let Some(rule) = rule else { return Ok(None) };
    let id = rule["properties"]["backendAddressPool"]["id"].as_str().unwrap_or_default();
    let Some(pool) = list("backendAddressPools")
        .find(|pool| pool["id"].as_str().is_some_and(|pool| pool.eq_ignore_ascii_case(id)))
    else {
        bail!("rule {} sends to {id}, which the load balancer does not have", rule["name"]);
    };
    let members = pool["properties"]["loadBalancerBackendAddresses"].as_array();
    let addresses = members.into_iter().flatten().filter_map(|one| one["properties"]["ipAddress"].as_str());
    Ok(Some(addresses.map(str::to_owned).collect()))
}

/// Returns the client of the API server that the kubeconfig names.
async fn client(environment: &Environment) -> anyhow::Result<Client> {
    let file = match &environment.kubeconfig {
        Some(path) => Kubeconfig::read_from(path)
            .with_context(|| format!("failed to read KUBECONFIG {}", path.display()))?,
        None => Kubeconfig::read().context("there is no kubeconfig; set KUBECONFIG")?,
    };
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(file, &options)
        .await
        .context("check the current-context of KUBECONFIG")?;
    Client::try_from(config).context("failed to set up the client of the API server")
}
