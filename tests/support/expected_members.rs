//! The required members of pools, computed independently of the controller from the API server's objects, as a
//! reference for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use super::azure::pool_name;
use super::kubernetes::Api;

/// A node with this label is no member (D5).
pub const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Returns the members of every pool of a namespace's Services, by pool name: the InternalIPs of the nodes that host an
/// endpoint that is not terminating, from all slices, without excluded nodes.
pub async fn expected(api: &Api, namespace: &str) -> Result<BTreeMap<String, BTreeSet<IpAddr>>, String> {
    let nodes = nodes(api).await?;
    let services = api.items(&format!("/api/v1/namespaces/{namespace}/services")).await?;
    let slices = slices(api, namespace, None).await?;
    let local = services.iter().filter(|service| service["spec"]["externalTrafficPolicy"] == "Local");
    let pools = local.map(|service| {
        let name = text(&service["metadata"]["name"]);
        let own =
            slices.iter().filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == name);
        let endpoints = own.flat_map(|slice| items(&slice["endpoints"]));
        let staying = endpoints.filter(|endpoint| endpoint["conditions"]["terminating"] != true);
        let ips = staying.filter_map(|endpoint| nodes.get(text(&endpoint["nodeName"])).copied());
        (pool_name(namespace, name), ips.collect())
    });
    Ok(pools.collect())
}

/// Returns the EndpointSlices of a namespace, or of one Service in it.
pub async fn slices(api: &Api, namespace: &str, service: Option<&str>) -> Result<Vec<Value>, String> {
    let selector = service.map_or_else(String::new, |name| format!("kubernetes.io/service-name={name}"));
    let path = "/apis/discovery.k8s.io/v1/namespaces";
    api.items(&format!("{path}/{namespace}/endpointslices?labelSelector={selector}")).await
}

/// Returns the InternalIP of every node that may be a member, by the node's name.
async fn nodes(api: &Api) -> Result<BTreeMap<String, IpAddr>, String> {
    let nodes = api.items("/api/v1/nodes").await?;
    let eligible = nodes.iter().filter(|node| node["metadata"]["labels"][EXCLUDE_LABEL].is_null());
    let named = eligible.filter_map(|node| {
        let mut internal =
            items(&node["status"]["addresses"]).filter(|address| address["type"] == "InternalIP");
        let ip = text(&internal.next()?["address"]).parse().ok()?;
        Some((text(&node["metadata"]["name"]).to_owned(), ip))
    });
    Ok(named.collect())
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
