//! A real control plane: etcd, kube-apiserver with RBAC, kube-controller-manager, kube-scheduler, and kwok in place of
//! the kubelets. Deployments and EndpointSlices behave as in production.

mod api;
mod audit;
mod rights;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use super::reaper::Reaper;
use super::{TEST_TIMEOUT, certificates, eventually, log_line, objects};
pub use api::Api;
pub use audit::{Request, credential_of};

/// Files that the folder of KUBEBUILDER_ASSETS must hold.
const ASSETS: [&str; 10] = [
    "crds",
    "etcd",
    "helm",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubeconform",
    "kubectl",
    "kwok",
    "kwok-stages.yaml",
];
/// The controllers that the tests need; others would only use CPU.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller,job-controller,\
    endpointslice-controller,serviceaccount-controller,namespace-controller,node-lifecycle-controller";
/// Maximum time until a control plane is ready. It takes 5 s on an idle machine.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// A running control plane. It stops when this value is dropped or this process ends.
pub struct Cluster {
    assets: PathBuf,
    server: String,
    etcd: String,
    /// Additional flags of its API server.
    flags: Vec<String>,
    apiserver: Child,
    /// The other processes.
    others: Vec<Child>,
    reaper: Reaper,
    /// A permit of [`PLACES`]; the shared control plane has none.
    permit: Option<SemaphorePermit<'static>>,
}

/// Maximum number of control planes in addition to the shared one: each of them needs CPU time.
static PLACES: Semaphore = Semaphore::const_new(3);

/// Returns the control plane for tests that do not disturb each other; `None` if the real components are not installed
/// on this machine. Each test has its own namespace and nodes in it.
pub async fn shared() -> Option<&'static Cluster> {
    static SHARED: OnceCell<Cluster> = OnceCell::const_new();
    let assets = assets()?;
    Some(SHARED.get_or_init(|| Cluster::start(assets, None)).await)
}

/// Starts a control plane for one test that would disturb others; returns `None` as [`shared`] does.
pub async fn own() -> Option<Cluster> {
    started(assets()?, None).await
}

/// Starts a control plane for one test that records every request of one user; returns `None` as [`shared`] does. It
/// does not stream lists, like the oldest supported API servers: a client that watches a kind needs the verb `list`
/// too.
pub async fn audited(user: &str) -> Option<Cluster> {
    started(assets()?, Some(user)).await
}

async fn started(assets: PathBuf, audited: Option<&str>) -> Option<Cluster> {
    let permit = PLACES.acquire().await.expect("it is never closed");
    let mut cluster = Cluster::start(assets, audited).await;
    cluster.permit = Some(permit);
    Some(cluster)
}

/// Returns the path of one of the real components; returns `None` as [`shared`] does.
pub fn tool(name: &str) -> Option<PathBuf> {
    Some(assets()?.join(name))
}

/// Returns the folder of the real components: KUBEBUILDER_ASSETS, or `.tools/k8s` of this workspace. Without them a
/// test is skipped.
fn assets() -> Option<PathBuf> {
    let named = std::env::var_os("KUBEBUILDER_ASSETS").filter(|name| !name.is_empty());
    let folder =
        named.map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/k8s"), PathBuf::from);
    let missing: Vec<&str> = ASSETS.into_iter().filter(|name| !folder.join(name).exists()).collect();
    if missing.is_empty() {
        return Some(folder);
    }
    let reason = format!(
        "{} has no {}; `.ci/tools` installs them, and KUBEBUILDER_ASSETS names another folder",
        folder.display(),
        missing.join(", ")
    );
    skip("CLUSTER_TESTS", &reason);
    None
}

/// Prints, past the test harness, that this test is skipped, and why. If this variable is `required`, the test fails
/// instead.
pub fn skip(variable: &str, reason: &str) {
    let test = std::thread::current().name().unwrap_or("a cluster test").to_owned();
    assert!(std::env::var_os(variable).is_none_or(|wish| wish != "required"), "{test} cannot run: {reason}");
    log_line(&format!("SKIPPED {test}: {reason}"));
}

impl Cluster {
    async fn start(assets: PathBuf, audited: Option<&str>) -> Self {
        let reaper = Reaper::new();
        certificates::write(reaper.folder());
        let mut flags = Vec::new();
        if let Some(user) = audited {
            flags = audit::flags(reaper.folder(), user);
            flags.push("--feature-gates=WatchList=false".to_owned());
        }
        let [client, peer, secure] = free_ports();
        let etcd = format!("http://127.0.0.1:{client}");
        let peer = format!("http://127.0.0.1:{peer}");
        let mut store = Command::new(assets.join("etcd"));
        store.args(["--unsafe-no-fsync", "--data-dir=etcd", "--log-level=warn"]);
        store.args([format!("--listen-client-urls={etcd}"), format!("--advertise-client-urls={etcd}")]);
        store.arg(format!("--listen-peer-urls={peer}"));
        let others = vec![reaper.start("etcd", &mut store)];
        let server = format!("https://127.0.0.1:{secure}");
        let apiserver = start_apiserver(&reaper, &assets, &etcd, &server, &flags);
        let mut cluster = Self { assets, server, etcd, flags, apiserver, others, reaper, permit: None };
        cluster.ready().await;
        let admin = Credentials::Certificate;
        cluster.write_kubeconfig("admin.kubeconfig", &admin);
        cluster.start_controllers();
        cluster
    }

    fn start_controllers(&mut self) {
        let tool = |name: &str| {
            let mut tool = Command::new(self.assets.join(name));
            tool.arg("--kubeconfig=admin.kubeconfig");
            tool
        };
        let mut manager = tool("kube-controller-manager");
        manager.args(["--use-service-account-credentials=true", "--service-account-private-key-file=sa.key"]);
        manager.args(["--root-ca-file=ca.crt", "--leader-elect=false", "--secure-port=0"]);
        manager.args(["--kube-api-qps=300", "--kube-api-burst=600", "--node-monitor-grace-period=30m"]);
        manager.arg(format!("--controllers={CONTROLLERS}"));
        let mut scheduler = tool("kube-scheduler");
        scheduler.args([
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=300",
            "--kube-api-burst=600",
        ]);
        let mut kwok = tool("kwok");
        kwok.arg("--config").arg(self.write_stages());
        kwok.args(["--manage-all-nodes=true", "--cidr=10.128.0.1/16", "--node-ip=10.0.0.1"]);
        for (name, mut tool) in
            [("kube-controller-manager", manager), ("kube-scheduler", scheduler), ("kwok", kwok)]
        {
            self.others.push(self.reaper.start(name, &mut tool));
        }
    }

    /// Writes kwok's stages of nodes and Pods: those of the assets, without the one that completes a Job's Pod, because
    /// the test runs that Pod.
    fn write_stages(&self) -> PathBuf {
        let stages = std::fs::read_to_string(self.assets.join("kwok-stages.yaml")).expect("an asset");
        let stages: Vec<&str> = stages.split("---\n").collect();
        let others: Vec<&str> =
            stages.iter().filter(|stage| !stage.contains("name: pod-complete\n")).copied().collect();
        assert_eq!(others.len() + 1, stages.len(), "kwok-stages.yaml has one stage pod-complete");
        let path = self.folder().join("kwok-stages.yaml");
        std::fs::write(&path, others.join("---\n")).expect("the folder can be written");
        path
    }

    /// Kills the API server and restarts it on the same data. Watches break, and earlier resourceVersions are answered
    /// with 410.
    pub async fn restart_apiserver(&mut self) {
        self.kill_apiserver();
        self.apiserver = start_apiserver(&self.reaper, &self.assets, &self.etcd, &self.server, &self.flags);
        self.ready().await;
    }

    /// Kills the API server.
    pub fn kill_apiserver(&mut self) {
        self.apiserver.kill().expect("the API server is a child of this process");
        self.apiserver.wait().expect("a killed process ends");
    }

    async fn ready(&mut self) {
        let api = self.api();
        let apiserver = &mut self.apiserver;
        let log = self.reaper.folder().join("kube-apiserver.log");
        eventually("the API server is ready", START_TIMEOUT, || {
            let ended = apiserver.try_wait().ok().flatten();
            let (api, log) = (&api, &log);
            async move {
                if let Some(status) = ended {
                    panic!("kube-apiserver ended with {status}:\n{}", tail(log));
                }
                api.text("/readyz").await.map(drop)
            }
        })
        .await;
    }

    /// Returns a client of the API server as a member of `system:masters`, for the current runtime.
    pub fn api(&self) -> Api {
        Api::new(&self.server, self.reaper.folder())
    }

    /// Returns the folder with certificates and logs.
    pub fn folder(&self) -> &Path {
        self.reaper.folder()
    }

    /// Returns the reaper of the started processes.
    pub fn reaper(&self) -> &Reaper {
        &self.reaper
    }

    /// Returns the path of one of the real components.
    pub fn tool(&self, name: &str) -> PathBuf {
        self.assets.join(name)
    }

    /// Runs kubectl as a member of `system:masters` and returns its standard output.
    pub async fn kubectl(&self, arguments: &[&str]) -> String {
        self.run("kubectl", arguments).await
    }

    /// Runs helm in the same way. Helm's own files are in the folder.
    pub async fn helm(&self, arguments: &[&str]) -> String {
        self.run("helm", arguments).await
    }

    /// Runs helm, which must fail, and returns its error.
    pub async fn helm_fails(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.output("helm", arguments).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(!status.success(), "helm {} succeeded: {}", arguments.join(" "), text(&stdout));
        text(&stderr)
    }

    async fn run(&self, name: &str, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.output(name, arguments).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(status.success(), "{name} {}: {}{}", arguments.join(" "), text(&stdout), text(&stderr));
        text(&stdout)
    }

    async fn output(&self, name: &str, arguments: &[&str]) -> Output {
        let mut command = tokio::process::Command::new(self.tool(name));
        command.arg("--kubeconfig").arg(self.admin_kubeconfig()).args(arguments).stdin(Stdio::null());
        for permit in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(permit, self.folder().join("helm"));
        }
        command.output().await.expect("a tool runs")
    }

    /// Returns the kubeconfig of a member of `system:masters`.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.folder().join("admin.kubeconfig")
    }

    /// Returns the requests so far of the user of [`audited`]. A long-running request is listed twice.
    pub fn requests(&self) -> Vec<Request> {
        audit::requests(self.folder())
    }

    /// Returns the address of the API server.
    pub fn address(&self) -> SocketAddr {
        let (_, address) = self.server.split_once("//").expect("a URL has a scheme");
        address.parse().expect("it was made of an address")
    }

    /// Writes the same kubeconfig with another server address, such as a proxy on loopback.
    pub fn detour(&self, kubeconfig: &Path, name: &str, by: SocketAddr) -> PathBuf {
        let text = std::fs::read_to_string(kubeconfig).expect("the kubeconfig was written");
        let path = self.folder().join(format!("{name}.kubeconfig"));
        let detour = text.replace(&self.server, &format!("https://{by}"));
        std::fs::write(&path, detour).expect("the folder can be written");
        path
    }

    /// Writes a kubeconfig for the controller into the folder: a service account of this namespace with exactly the
    /// rights of docs/rbac.yaml, for the Leases of tests of this namespace.
    pub async fn controller_kubeconfig(&self, namespace: &str) -> PathBuf {
        let api = self.api();
        for (collection, object) in rights::of_test(namespace) {
            api.create(&collection, &object).await;
        }
        self.account_kubeconfig(namespace, objects::ACCOUNT).await
    }

    /// Writes a kubeconfig with a token of a service account into the folder.
    pub async fn account_kubeconfig(&self, namespace: &str, account: &str) -> PathBuf {
        let token = self.token(namespace, account).await;
        self.write_kubeconfig(&format!("{namespace}.{account}.kubeconfig"), &Credentials::Token(&token))
    }

    /// Returns a token of a service account.
    pub async fn token(&self, namespace: &str, account: &str) -> String {
        let made = ["create", "token", account, "--namespace", namespace, "--duration=2h"];
        self.kubectl(&made).await.trim().to_owned()
    }

    fn write_kubeconfig(&self, name: &str, credentials: &Credentials<'_>) -> PathBuf {
        let folder = self.folder();
        let user = match credentials {
            Credentials::Certificate => serde_json::json!({
                "client-certificate": folder.join("admin.crt"), "client-key": folder.join("admin.key"),
            }),
            Credentials::Token(token) => serde_json::json!({ "token": token }),
        };
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": {
                "server": self.server, "certificate-authority": folder.join("ca.crt"),
            } }],
            "users": [{ "name": "test", "user": user }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        });
        let path = folder.join(name);
        std::fs::write(&path, kubeconfig.to_string()).expect("the folder can be written");
        path
    }

    /// Waits until a Deployment is rolled out and has no old Pods.
    pub async fn rolled_out(&self, namespace: &str, name: &str) {
        let api = self.api();
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
        eventually(&format!("Deployment {namespace}/{name} is rolled out"), TEST_TIMEOUT, || {
            let (api, path) = (&api, &path);
            async move {
                let deployment = api.get(path).await?;
                let status = &deployment["status"];
                let count = |field: &str| status[field].as_u64().unwrap_or(0);
                let wanted = deployment["spec"]["replicas"].as_u64();
                let settled = status["observedGeneration"] == deployment["metadata"]["generation"]
                    && ["replicas", "updatedReplicas", "availableReplicas"]
                        .iter()
                        .all(|field| Some(count(field)) == wanted);
                if settled { Ok(()) } else { Err(status.to_string()) }
            }
        })
        .await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Wait for the children so that none stays as a zombie. The reaper kills the rest.
        for child in self.others.iter_mut().chain([&mut self.apiserver]) {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Credentials of a kubeconfig.
enum Credentials<'a> {
    /// A certificate of a member of `system:masters`.
    Certificate,
    /// A service account's token.
    Token(&'a str),
}

fn start_apiserver(reaper: &Reaper, assets: &Path, etcd: &str, server: &str, flags: &[String]) -> Child {
    let (_, port) = server.rsplit_once(':').expect("the server's address has a port");
    let mut apiserver = Command::new(assets.join("kube-apiserver"));
    apiserver.args([format!("--etcd-servers={etcd}"), format!("--secure-port={port}")]);
    apiserver.args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"]);
    apiserver.args(["--tls-cert-file=api.crt", "--tls-private-key-file=api.key", "--client-ca-file=ca.crt"]);
    apiserver.args(["--service-account-issuer=https://kubernetes.default.svc"]);
    apiserver.args(["--service-account-key-file=sa.pub", "--service-account-signing-key-file=sa.key"]);
    apiserver.args(["--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC"]);
    apiserver.args(["--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount"]);
    apiserver.args(flags);
    reaper.start("kube-apiserver", &mut apiserver)
}

/// Returns different ports that are free now. They are outside the range of ephemeral ports, so that no connection of
/// another test takes one before the server listens.
fn free_ports<const N: usize>() -> [u16; N] {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Each test program begins at another port.
    let begin = std::process::id().wrapping_mul(100);
    let next = || FIRST + begin.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % COUNT;
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let mut ports = std::iter::repeat_with(next).map(|port| port as u16).filter(is_free);
    std::array::from_fn(|_| ports.next().expect("port numbers wrap around"))
}

/// Returns the last lines of a log.
pub fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
