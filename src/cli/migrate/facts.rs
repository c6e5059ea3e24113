//! Facts about the cluster, from the configuration and the API server.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context as _, bail};
use config::{Config, LoadBalancerSku, PoolMembers};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use kube::api::{ListParams, ObjectList};
use kube::{Api, ResourceExt as _};
use migration::inventory::{self, Cluster, Membership, Purpose};
use migration::resource_id::ResourceId;

use super::Environment;
use crate::service;

/// A node with this label, whatever its value, is in no pool.
const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Labels of control plane nodes.
const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
/// Environment variable that Kubernetes sets in each container.
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";

/// Reads the facts about the cluster.
pub(super) async fn read(environment: &Environment) -> anyhow::Result<Cluster> {
    let Environment { config, kubernetes, .. } = environment;
    let cloud = &config.cloud;
    let group = |subscription: &str, name: &str| {
        ResourceId::new(format!("/subscriptions/{subscription}/resourceGroups/{name}"))
    };
    let mut names: Vec<String> = config.managed_load_balancers();
    names.retain(|name| !name.to_ascii_lowercase().ends_with("-internal"));
    let list = ListParams::default();
    let nodes = Api::<Node>::all(kubernetes.clone()).list(&list).await.context("failed to list Nodes")?;
    let services =
        Api::<Service>::all(kubernetes.clone()).list(&list).await.context("failed to list Services")?;
    Ok(Cluster {
        purpose: Purpose::Standard,
        name: config.controller.cluster_name.clone(),
        resource_group: group(cloud.subscription_id(), cloud.resource_group()),
        load_balancer_group: group(cloud.network_subscription(), cloud.load_balancer_resource_group()),
        network: cloud.vnet_id().map(ResourceId::new),
        load_balancers: names,
        says_standard: match cloud.load_balancer_sku() {
            LoadBalancerSku::Standard => true,
            LoadBalancerSku::Basic => false,
        },
        membership: membership(config)?,
        api_server: api_server(environment).await?,
        runs_on_a_node: std::env::var_os(IN_CLUSTER).is_some(),
        nodes: nodes.iter().map(|it| node(it, cloud.excludes_control_plane())).collect(),
        services: services.iter().filter_map(load_balancer_service).collect(),
        webhooks: webhooks(environment).await?,
    })
}

fn membership(config: &Config) -> anyhow::Result<Membership> {
    match config.cloud.pool_members() {
        PoolMembers::NodeIpConfiguration => Ok(Membership::NodeIpConfiguration),
        PoolMembers::NodeIp => Ok(Membership::NodeIp),
        PoolMembers::PodIp => bail!(
            "loadBalancerBackendPoolConfigurationType: podIP does not fit load balancers that hold nodes; set nodeIP or \
             nodeIPConfiguration for the migration"
        ),
    }
}

fn node(node: &Node, excludes_control_plane: bool) -> inventory::Node {
    let labels = node.labels();
    let excluded = labels.contains_key(EXCLUDE_LABEL)
        || excludes_control_plane && CONTROL_PLANE.iter().any(|label| labels.contains_key(*label));
    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    inventory::Node {
        name: node.name_any(),
        machine: id.and_then(|id| id.strip_prefix("azure://")).map(ResourceId::new),
        addresses: addresses
            .filter(|address| address.type_ == "InternalIP")
            .filter_map(|address| address.address.parse().ok())
            .collect(),
        excluded,
    }
}

fn load_balancer_service(service: &Service) -> Option<inventory::Service> {
    let is_ours = service.spec.as_ref()?.type_.as_deref() == Some("LoadBalancer");
    let ingress = service.status.iter().filter_map(|status| status.load_balancer.as_ref());
    let ingress = ingress.flat_map(|balancer| balancer.ingress.iter().flatten());
    let addresses = ingress.filter_map(|ingress| ingress.ip.as_deref()?.parse().ok()).collect();
    let name = format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any());
    is_ours.then_some(inventory::Service { name, addresses })
}

/// Returns the addresses of the API server, as this process and the nodes reach it.
async fn api_server(environment: &Environment) -> anyhow::Result<Vec<IpAddr>> {
    let mut hosts = BTreeSet::from([service::api_server_host(environment.kubeconfig.as_ref()).await?]);
    // kubeadm stores there the address that joining nodes use.
    let maps: Api<ConfigMap> = Api::namespaced(environment.kubernetes.clone(), "kube-public");
    let info =
        maps.get_opt("cluster-info").await.context("failed to get ConfigMap kube-public/cluster-info")?;
    let info = info.and_then(|map| map.data).and_then(|mut data| data.remove("kubeconfig"));
    hosts.extend(info.as_deref().into_iter().flat_map(servers));
    let mut addresses = BTreeSet::new();
    for host in hosts {
        let found = tokio::net::lookup_host((host.as_str(), 443)).await;
        let found = found.with_context(|| format!("failed to resolve the API server's host {host}"))?;
        addresses.extend(found.map(|address| address.ip()));
    }
    Ok(addresses.into_iter().collect())
}

/// Returns the hosts of the servers in a kubeconfig.
fn servers(kubeconfig: &str) -> Vec<String> {
    let urls =
        kubeconfig.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("server:"));
    let urls = urls.filter_map(|url| url.trim().trim_matches(['"', '\'']).parse::<http::Uri>().ok());
    urls.filter_map(|url| Some(url.host()?.trim_matches(['[', ']']).to_owned())).collect()
}

/// Returns the names of webhooks that a Service serves and whose failure rejects requests.
async fn webhooks(environment: &Environment) -> anyhow::Result<Vec<String>> {
    let list = ListParams::default();
    let client = || environment.kubernetes.clone();
    let context = "failed to list webhook configurations";
    let validating =
        listed(Api::<ValidatingWebhookConfiguration>::all(client()).list(&list).await).context(context)?;
    let mutating =
        listed(Api::<MutatingWebhookConfiguration>::all(client()).list(&list).await).context(context)?;
    let fails = |policy: Option<&String>| policy.is_none_or(|policy| policy == "Fail");
    let validating = validating.iter().flat_map(|it| it.webhooks.iter().flatten());
    let validating =
        validating.filter(|hook| hook.client_config.service.is_some() && fails(hook.failure_policy.as_ref()));
    let mutating = mutating.iter().flat_map(|it| it.webhooks.iter().flatten());
    let mutating =
        mutating.filter(|hook| hook.client_config.service.is_some() && fails(hook.failure_policy.as_ref()));
    let names = validating.map(|hook| hook.name.clone()).chain(mutating.map(|hook| hook.name.clone()));
    Ok(names.collect::<BTreeSet<_>>().into_iter().collect())
}

/// Returns the items of a list; none if the API server does not have the type.
fn listed<T: Clone>(list: kube::Result<ObjectList<T>>) -> kube::Result<Vec<T>> {
    match list {
        Ok(list) => Ok(list.items),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_of_a_kubeconfig_are_read() {
        let text = "clusters:\n- cluster:\n    server: https://api.example.com:6443\n- cluster:\n    server: \"https://[fd00::1]\"\n";
        assert_eq!(servers(text), ["api.example.com", "fd00::1"]);
        assert!(servers("kind: Config").is_empty());
    }

    #[test]
    fn d5_excluded_nodes_are_those_of_the_cloud_controller_manager() {
        let labelled = |label: &str| {
            let mut it = Node::default();
            it.metadata.labels = Some([(label.to_owned(), "false".to_owned())].into());
            it
        };
        assert!(node(&labelled(EXCLUDE_LABEL), false).excluded);
        assert!(node(&labelled(CONTROL_PLANE[0]), true).excluded);
        assert!(!node(&labelled(CONTROL_PLANE[0]), false).excluded);
    }
}
