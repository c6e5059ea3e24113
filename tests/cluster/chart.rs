//! The Helm chart on a real API server, with the real helm: validation of every object, the life cycle of a release,
//! the binary as the chart's Deployment runs it and with the chart's rights only, a rolling update, and an
//! uninstallation during work. Namespaces of releases allow only restricted Pods.
//!
//! kwok replaces the kubelets and runs no containers. Where a container must run, the test starts the binary as the
//! live Pod specifies ([`pod`]): inside the cluster, with its service account's own files.

mod admission;
mod network;
mod pod;
mod rights;
mod rolling;
mod secured;
mod uninstall;

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tokio::process::Command;

use self::pod::{Container, Pod};
use super::TestEnvironment;
use crate::support::controller::{Controller, settings};
use crate::support::kubernetes::{self, Cluster};
use crate::support::{TEST_TIMEOUT, eventually, objects};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/azure-backend-pool-controller");
/// The Secret with the cloud configuration, where the chart looks for it by default.
const CLOUD_CONFIG: &str = "azure-cloud-provider";
/// All kinds of objects of a release, and of the objects that these create.
const KINDS: &str = "deployments,replicasets,jobs,pods,services,endpointslices,configmaps,secrets,serviceaccounts,\
    poddisruptionbudgets,networkpolicies,roles,rolebindings,clusterroles,clusterrolebindings,\
    validatingadmissionpolicies,validatingadmissionpolicybindings";

/// An installed release in the namespace of a test.
struct Release<'a> {
    env: &'a TestEnvironment<&'a Cluster>,
    name: &'static str,
    /// Its values, as a file.
    values: String,
}

/// A process that runs as a Pod of a Deployment specifies.
struct Process {
    /// The Pod's name.
    name: String,
    controller: Controller,
}

impl Process {
    async fn start(env: &TestEnvironment<&Cluster>, pod: &Pod) -> Self {
        let (name, container) = (pod.name().to_owned(), pod.container(env.cluster).await);
        container.set_user_agent(&name);
        let controller = Controller::launch(env.cluster, &name, &mut container.command()).await;
        Self { name, controller }
    }
}

/// Returns the values of a test's release: the required values, the test's own Leases and nodes, short times, and an
/// account for operators.
fn values(namespace: &str) -> Value {
    let mut config = settings(namespace);
    // Containers listen on the chart's addresses.
    config.as_object_mut().expect("settings are an object").retain(|key, _| key != "http");
    config["mode"] = json!("enforce");
    json!({
        "image": { "repository": "example/azure-backend-pool-controller" },
        "imagePullSecrets": [{ "name": "registry" }], "replicaCount": 2,
        "podSecurityContext": { "runAsUser": 65532 }, "securityContext": { "readOnlyRootFilesystem": true },
        "commonAnnotations": { "example.com/test": namespace }, "podDisruptionBudget": { "maxUnavailable": 1 },
        "config": config, "operator": { "enabled": true },
        "nodeSelector": { (objects::TEST_LABEL): namespace }, "minReadySeconds": 1,
    })
}

/// Renders the chart for the namespace kube-system, without hooks: they have their own permissions while they run.
async fn rendered(helm: &Path, more: &[&str]) -> String {
    let mut command = Command::new(helm);
    command.args(["template", objects::ACCOUNT, CHART, "--namespace", "kube-system"]);
    command.args(["--no-hooks", "--set", "image.repository=example/controller"]);
    command.args(more).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().await.expect("helm runs");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("a text")
}

/// Limits the namespace of a test to restricted Pods, by the API server's own admission.
async fn restrict(env: &TestEnvironment<&Cluster>) {
    let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
    let namespace = format!("/api/v1/namespaces/{}", env.namespace);
    env.api.merge(&namespace, &json!({ "metadata": { "labels": labels } })).await;
    let lax = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "lax" },
        "spec": { "containers": [{ "name": "lax", "image": "example/lax:1" }] },
    });
    eventually("the namespace allows only restricted Pods", TEST_TIMEOUT, || async {
        let status = env.api.attempt(&format!("{namespace}/pods?dryRun=All"), &lax).await?;
        if status == 403 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

/// Creates the Secret with the cloud configuration of the test's Azure, as the chart expects it.
async fn store_cloud_config(env: &TestEnvironment<&Cluster>) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": CLOUD_CONFIG },
        "stringData": { "cloud-config": env.azure.cloud_config().to_string() },
    });
    env.create("secrets", &secret).await;
}

impl<'a> Release<'a> {
    /// Installs a release and waits, as helm does, until its Deployment is available.
    async fn install(env: &'a TestEnvironment<&'a Cluster>, name: &'static str, values: &Value) -> Self {
        restrict(env).await;
        let path = env.cluster.folder().join(format!("{name}.values.json"));
        std::fs::write(&path, values.to_string()).expect("the folder can be written");
        let release = Self { env, name, values: path.display().to_string() };
        release.helm(&["install", name, CHART, "--values", &release.values, "--wait"]).await;
        release
    }

    /// Upgrades the release with one changed value.
    async fn upgrade(&self, setting: &str) {
        let changed = ["upgrade", self.name, CHART, "--values", &self.values, "--set", setting, "--wait"];
        self.helm(&changed).await;
    }

    async fn helm(&self, arguments: &[&str]) -> String {
        let all = [arguments, &["--namespace", self.env.namespace]].concat();
        self.env.cluster.helm(&all).await
    }

    /// Runs helm, which must fail, and returns its error.
    async fn helm_fails(&self, arguments: &[&str]) -> String {
        let all = [arguments, &["--namespace", self.env.namespace]].concat();
        self.env.cluster.helm_fails(&all).await
    }

    /// Returns the prefix of the names of its objects.
    fn full_name(&self) -> String {
        format!("{}-{}", self.name, objects::ACCOUNT)
    }

    /// Returns the Pods of its Deployment that are not being deleted, by name.
    async fn pods(&self) -> Vec<Pod> {
        let selector =
            format!("app.kubernetes.io/instance={},app.kubernetes.io/component=controller", self.name);
        let path = format!("/api/v1/namespaces/{}/pods?labelSelector={selector}", self.env.namespace);
        let pods = self.env.api.items(&path).await.expect("the API server lists Pods");
        pods.into_iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).map(Pod::new).collect()
    }

    /// Returns the controller's configuration, as the API server has it.
    async fn config(&self) -> Value {
        let path = self.env.path("configmaps", &format!("{}-config", self.full_name()));
        let map = self.env.api.get(&path).await.expect("the ConfigMap exists");
        let text = map["data"]["controller.yaml"].as_str().expect("a text");
        serde_saphyr::from_str(text).expect("controller.yaml is YAML")
    }

    /// Returns the template hashes of its ReplicaSets, with their desired numbers of Pods.
    async fn replica_sets(&self) -> Vec<(String, u64)> {
        let path = format!(
            "/apis/apps/v1/namespaces/{}/replicasets?labelSelector=app.kubernetes.io/instance={}",
            self.env.namespace, self.name
        );
        let sets = self.env.api.items(&path).await.expect("the API server lists ReplicaSets");
        let hash = |set: &Value| set["metadata"]["labels"]["pod-template-hash"].as_str().map(str::to_owned);
        let size = |set: &Value| set["spec"]["replicas"].as_u64().expect("a ReplicaSet has a size");
        sets.iter().map(|set| (hash(set).expect("a ReplicaSet has a hash"), size(set))).collect()
    }

    /// Returns the admin API's certificate that Helm has created.
    async fn certificate(&self) -> Value {
        let path = self.env.path("secrets", &format!("{}-admin-tls", self.full_name()));
        let secret = self.env.api.get(&path).await.expect("the Secret exists");
        assert!(secret["data"]["tls.crt"].is_string(), "the Secret has a certificate");
        secret["data"]["tls.crt"].clone()
    }

    /// Runs `helm test`, and its Pod in place of the kubelet.
    async fn test(&self) {
        let tested = async { self.helm(&["test", self.name]).await };
        tokio::join!(tested, self.play("check"));
    }

    /// Runs `helm uninstall`, and the Pod of its pre-delete hook in place of the kubelet.
    async fn uninstall(&self) {
        let uninstalled = async { self.helm(&["uninstall", self.name, "--wait"]).await };
        tokio::join!(uninstalled, self.play("pre-delete"));
    }

    /// Runs the Pod of a hook in place of the kubelet. The Pod must succeed.
    async fn play(&self, component: &str) {
        let pod = self.hook(component).await;
        let container = pod.container(self.env.cluster).await;
        let output = self.carry_out(&pod, &container).await;
        assert!(output.status.success(), "the Pod {component} failed: {output:?}");
    }

    /// Waits for the Pod of a hook that is scheduled and has not ended.
    async fn hook(&self, component: &str) -> Pod {
        let (env, namespace) = (self.env, self.env.namespace);
        let selector =
            format!("app.kubernetes.io/instance={},app.kubernetes.io/component={component}", self.name);
        let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}");
        let pod = eventually(&format!("the Pod {component} has a node"), TEST_TIMEOUT, || async {
            let pods = env.api.items(&path).await?;
            // From then on, kwok does not change its status.
            let running = pods.iter().find(|pod| pod["status"]["phase"] == "Running");
            running.cloned().ok_or_else(|| format!("{pods:?}"))
        })
        .await;
        Pod::new(pod)
    }

    /// Runs a Pod's container to its end, and reports its result to the API server.
    async fn carry_out(&self, pod: &Pod, container: &Container) -> Output {
        let mut command = Command::from(container.command());
        let output = command.stdin(Stdio::null()).output().await.expect("the binary under test");
        let phase = if output.status.success() { "Succeeded" } else { "Failed" };
        let ended = json!({ "status": { "phase": phase } });
        self.env.api.merge(&format!("{}/status", self.env.path("pods", pod.name())), &ended).await;
        output
    }

    /// Returns the names of the remaining objects of the release without an owner. The garbage collector, which does
    /// not run here, would delete owned objects.
    async fn left(&self) -> Vec<String> {
        let selector = format!("app.kubernetes.io/instance={}", self.name);
        let arguments = ["get", KINDS, "--all-namespaces", "--selector", &selector, "--output=json"];
        let found: Value =
            serde_json::from_str(&self.env.cluster.kubectl(&arguments).await).expect("kubectl prints JSON");
        let items = found["items"].as_array().expect("a list").iter();
        let free = items.filter(|item| item["metadata"]["ownerReferences"].is_null());
        free.map(|item| format!("{} {}", item["kind"], item["metadata"]["name"]).replace('"', "")).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_accepts_every_object_for_all_values() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let mut check = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/check"));
    check.arg("--server").arg(cluster.admin_kubeconfig()).arg("--crds").arg(cluster.tool("crds"));
    check.stdin(Stdio::null());
    for (variable, tool) in
        [("HELM", "helm"), ("KUBECTL", "kubectl"), ("KUBECONFORM", "kubeconform"), ("PROMTOOL", "promtool")]
    {
        check.env(variable, cluster.tool(tool));
    }
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        check.env(variable, cluster.folder().join("helm"));
    }
    let output = check.output().await.expect("charts/check runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, wrong) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && stdout.contains("all is well"), "{stdout}{wrong}");
    assert!(!stdout.contains("SKIPPED"), "{stdout}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn helm_installs_tests_upgrades_rolls_back_and_uninstalls() {
    let Some(cluster) = kubernetes::shared().await else { return };
    if !pod::supports_mount_namespaces().await {
        return;
    }
    let env = TestEnvironment::begin(cluster, "chart-life", 2).await;
    store_cloud_config(&env).await;
    let mut values = values(env.namespace);
    values["admin"] = json!({ "enabled": true });
    values["admissionPolicy"] = json!({ "enabled": true });
    let release = Release::install(&env, "life", &values).await;
    let certificate = release.certificate().await;
    assert_eq!(release.pods().await.len(), 2);
    assert_eq!(release.config().await["batching"]["quietPeriod"], "200ms");
    let sets = release.replica_sets().await;
    let [(first, 2)] = &sets[..] else { panic!("not one ReplicaSet of two Pods: {sets:?}") };

    release.test().await;

    release.upgrade("config.batching.quietPeriod=300ms").await;
    assert_eq!(release.config().await["batching"]["quietPeriod"], "300ms");
    let sets = release.replica_sets().await;
    let sizes = |sets: &[(String, u64)]| {
        let of_first =
            |wanted: bool| sets.iter().find(|(hash, _)| (hash == first) == wanted).map(|(_, size)| *size);
        (sets.len(), of_first(true), of_first(false))
    };
    assert_eq!(sizes(&sets), (2, Some(0), Some(2)), "{sets:?}");
    assert_eq!(release.pods().await.len(), 2);
    assert_eq!(release.certificate().await, certificate, "an upgrade does not change the certificate");

    release.helm(&["rollback", release.name, "1", "--wait"]).await;
    assert_eq!(release.config().await["batching"]["quietPeriod"], "200ms");
    let sets = release.replica_sets().await;
    assert_eq!(sizes(&sets), (2, Some(2), Some(0)), "{sets:?}");

    assert!(release.left().await.len() > 10);
    release.uninstall().await;
    assert_eq!(release.left().await, [format!("Pod {}-check", release.full_name())]);
}
