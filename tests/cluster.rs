//! Stories against a real control plane. The real binary, with a token that has only the permissions of its
//! ClusterRole, keeps the pools of a fake Azure in sync with the API server's own objects.
//!
//! Stories share a control plane, each with its own namespace, nodes, fake Azure and controller. The story that kills
//! the API server has its own control plane, and so have those whose nodes drain.

mod careful;
mod chart;
mod cloud_config;
mod drain;
mod e2e;
mod guards;
mod holds;
mod itself;
mod lease;
mod leaving;
mod migration;
mod modes;
mod nodes;
mod pauses;
mod preflight;
mod replicas;
mod restart;
mod retire;
mod rollout;
mod spot;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Deref;

use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::support::azure::Azure;
use crate::support::controller::{Controller, Flags};
use crate::support::kubernetes::{Api, Cluster};
use crate::support::{TEST_TIMEOUT, azure, eventually, expected_members, objects};

/// The load balancers of every test. The number at the end of a Service's name selects one of them.
const LOAD_BALANCERS: [&str; 3] = ["kubernetes", "lb-1", "lb-2"];

/// The finalizer of a Pod whose process has not ended.
const RUNS: &str = "example.com/runs";

/// Number of tests that run at the same time. Their control plane needs CPU time, and most other tests wait.
static PLACES: Semaphore = Semaphore::const_new(6);

/// The environment of a test: a namespace with nodes in a control plane, and a fake Azure for its Services.
struct TestEnvironment<C: Deref<Target = Cluster>> {
    /// One of [`PLACES`], free for the next test when this one ends.
    _permit: SemaphorePermit<'static>,
    cluster: C,
    api: Api,
    namespace: &'static str,
    azure: Azure,
}

impl<C: Deref<Target = Cluster>> TestEnvironment<C> {
    /// Returns an environment with this many nodes, `<namespace>-1` with the address 10.1.0.1 and so on.
    async fn begin(cluster: C, namespace: &'static str, nodes: u8) -> Self {
        Self::begin_on(cluster, namespace, nodes, &LOAD_BALANCERS).await
    }

    /// Does the same with these load balancers. The test decides which Service is on which, when it has them
    /// provisioned.
    async fn begin_on(cluster: C, namespace: &'static str, nodes: u8, load_balancers: &[&str]) -> Self {
        let permit = PLACES.acquire().await.expect("it is never closed");
        let api = cluster.api();
        api.create("/api/v1/namespaces", &objects::namespace(namespace)).await;
        let azure = Azure::start(load_balancers).await;
        let env = Self { _permit: permit, cluster, api, namespace, azure };
        for number in 1..=nodes {
            env.add_node(number, &format!("10.1.0.{number}")).await;
        }
        env
    }

    fn node(&self, number: u8) -> String {
        format!("{}-{number}", self.namespace)
    }

    fn node_path(&self, number: u8) -> String {
        format!("/api/v1/nodes/{}", self.node(number))
    }

    async fn add_node(&self, number: u8, ip: &str) {
        self.api.create("/api/v1/nodes", &objects::node(self.namespace, &self.node(number), ip)).await;
    }

    fn path(&self, kind: &str, name: &str) -> String {
        let namespace = self.namespace;
        match kind {
            "deployments" => format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}"),
            "endpointslices" => {
                format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/{name}")
            }
            other => format!("/api/v1/namespaces/{namespace}/{other}/{name}"),
        }
    }

    async fn create(&self, kind: &str, object: &Value) {
        let collection = self.path(kind, "");
        self.api.create(collection.trim_end_matches('/'), object).await;
    }

    /// Creates a Service, and gives it an address immediately, as the cloud-controller-manager finally does. A
    /// Service without an address is a sign, also for the controllers of all other tests, that another client waits
    /// for the shared Lease (W7).
    async fn create_service(&self, service: &Value) {
        let text =
            |key: &str| service["metadata"][key].as_str().expect("objects are made with it").to_owned();
        let services = format!("/api/v1/namespaces/{}/services", text("namespace"));
        self.api.create(&services, service).await;
        let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "20.1.1.1" }] } } });
        self.api.merge(&format!("{services}/{}/status", text("name")), &status).await;
    }

    /// Creates a Deployment and the Service before it.
    async fn deploy(&self, name: &str, replicas: u32) {
        self.create_service(&objects::service(self.namespace, name)).await;
        self.create("deployments", &objects::deployment(self.namespace, name, replicas)).await;
    }

    /// Creates a Service without selector, and its EndpointSlice with these addresses and nodes.
    async fn set_endpoints_by_hand(&self, name: &str, endpoints: &[(&str, Option<&str>)]) {
        self.create_service(&objects::service_without_selector(self.namespace, name)).await;
        self.create("endpointslices", &objects::endpoint_slice(self.namespace, name, endpoints)).await;
    }

    /// Replaces the endpoints of a slice that was created by hand.
    async fn replace_by_hand(&self, name: &str, endpoints: &[(&str, Option<&str>)]) {
        let slice = objects::endpoint_slice(self.namespace, name, endpoints);
        let path = self.path("endpointslices", &format!("{name}-by-hand"));
        self.api.merge(&path, &json!({ "endpoints": slice["endpoints"] })).await;
    }

    /// Changes a part of a Deployment's spec.
    async fn respec(&self, name: &str, spec: &Value) {
        self.api.merge(&self.path("deployments", name), &json!({ "spec": spec })).await;
    }

    async fn scale(&self, name: &str, replicas: u32) {
        self.respec(name, &json!({ "replicas": replicas })).await;
    }

    /// Makes Deployments replace all their pods.
    async fn roll(&self, name: &str, image: &str) {
        let containers = json!([{ "name": "web", "image": image }]);
        self.respec(name, &json!({ "template": { "spec": { "containers": containers } } })).await;
    }

    /// Keeps a Pod's object when it is deleted, as the kubelet does while the Pod's process runs. kwok would not keep
    /// it.
    async fn keep(&self, pod: &str) {
        self.finalize(pod, &[RUNS]).await;
    }

    /// Releases a Pod that was kept, as the kubelet does when its process has ended.
    async fn release(&self, pod: &str) {
        self.finalize(pod, &[]).await;
    }

    async fn finalize(&self, pod: &str, finalizers: &[&str]) {
        self.api.merge(&self.path("pods", pod), &json!({ "metadata": { "finalizers": finalizers } })).await;
    }

    /// Waits until the deletion of a Pod was requested.
    async fn is_being_deleted(&self, pod: &str) {
        let path = self.path("pods", pod);
        eventually(&format!("Pod {pod} is being deleted"), TEST_TIMEOUT, || async {
            let pod = self.api.get(&path).await?;
            let stays = pod["metadata"]["deletionTimestamp"].is_null();
            if stays { Err(pod["metadata"].to_string()) } else { Ok(()) }
        })
        .await;
    }

    /// Waits until the API server has no Pod of this name.
    async fn is_gone(&self, pod: &str) {
        let path = self.path("pods", pod);
        eventually(&format!("Pod {pod} is gone"), TEST_TIMEOUT, || async {
            match self.api.get(&path).await {
                Ok(pod) => Err(pod["metadata"].to_string()),
                Err(_) => Ok(()),
            }
        })
        .await;
    }

    async fn rolled_out(&self, names: &[String]) {
        for name in names {
            self.cluster.rolled_out(self.namespace, name).await;
        }
    }

    /// Creates the Azure resources of all Services of a namespace, as the cloud-controller-manager does, and returns
    /// the Services.
    async fn provision(&self, namespace: &str) -> Vec<Value> {
        self.provision_on(namespace, |name| load_balancer(name).to_owned()).await
    }

    /// Does the same, with each Service on the load balancer that `load_balancer_of` names.
    async fn provision_on(&self, namespace: &str, load_balancer_of: impl Fn(&str) -> String) -> Vec<Value> {
        let services = self.api.items(&format!("/api/v1/namespaces/{namespace}/services")).await;
        let services = services.expect("the API server lists Services");
        self.azure.create_service_resources(&services, load_balancer_of).await;
        services
    }

    /// Makes the cloud-controller-manager's changes for all Services of the test, and starts the controller.
    async fn start_controller(&self, flags: Flags) -> Controller {
        self.provision(self.namespace).await;
        Controller::start(&self.cluster, self.namespace, &self.azure, flags).await
    }

    /// Returns the members that all pools must have, by the API server at this moment.
    async fn wanted(&self) -> BTreeMap<String, BTreeSet<IpAddr>> {
        eventually("the API server says what is wanted", TEST_TIMEOUT, || {
            expected_members::expected(&self.api, self.namespace)
        })
        .await
    }

    /// Waits until every pool is in sync with the API server's objects.
    async fn converged(&self, after: &str) {
        eventually(&format!("all pools are in sync after {after}"), TEST_TIMEOUT, || async {
            let wanted = expected_members::expected(&self.api, self.namespace).await?;
            let pools = self.azure.pools().await;
            if pools == wanted { Ok(()) } else { Err(format!("wanted {wanted:?}\nfound {pools:?}")) }
        })
        .await;
    }

    /// Waits until the pool of a Service has exactly these members.
    async fn holds<const N: usize>(&self, service: &str, members: [&str; N]) {
        let (pool, wanted) = (azure::pool_name(self.namespace, service), ips(members));
        eventually(&format!("pool {pool} holds {wanted:?}"), TEST_TIMEOUT, || async {
            let members = self.azure.members(&pool).await;
            if members == wanted { Ok(()) } else { Err(format!("{members:?}")) }
        })
        .await;
    }

    /// Waits until the API server has an event of this reason for a Service, and returns it.
    async fn event(&self, service: &str, reason: &str) -> Value {
        let path = format!(
            "/api/v1/namespaces/{}/events?fieldSelector=involvedObject.name={service},reason={reason}",
            self.namespace
        );
        eventually(&format!("Service {service} has the event {reason}"), TEST_TIMEOUT, || async {
            let mut events = self.api.items(&path).await?;
            events.pop().ok_or_else(|| "no such event".to_owned())
        })
        .await
    }

    /// Ends a test: all pools are in sync, writes of one load balancer never overlapped, and the controller ends in
    /// good order without having logged an error.
    async fn end(&self, controller: Controller) {
        self.converged("all that has happened").await;
        self.azure.assert_serial().await;
        controller.terminate().await;
    }
}

impl<C: Deref<Target = Cluster>> Drop for TestEnvironment<C> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.cluster.reaper().keep();
        }
    }
}

/// Returns the load balancer of a Service of this name.
fn load_balancer(service: &str) -> &'static str {
    let digits: String = service.chars().filter(char::is_ascii_digit).collect();
    LOAD_BALANCERS[digits.parse::<usize>().unwrap_or(0) % LOAD_BALANCERS.len()]
}

/// Parses addresses.
fn ips<const N: usize>(texts: [&str; N]) -> BTreeSet<IpAddr> {
    texts.into_iter().map(|text| text.parse().expect("an address")).collect()
}
