//! The environment of these tests: the simulator's fakes with a small cluster, the real binary, and its listeners.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Method};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use simulator::models::arm::{PoolSpec, VirtualNetwork};
use simulator::models::kube::Resource;
use simulator::models::kube::build::{self, Endpoint, Family};
use simulator::{Fakes, FileOptions, Files, Settings, Size, World};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::support::{TEST_TIMEOUT, eventually, log_lines};

/// The binary under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_azure-backend-pool-controller");

/// Maximum time of one call.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The namespace of the Services that tests add to the cluster.
pub const NAMESPACE: &str = "shop";

/// Variables from which gRPC programs read the xDS bootstrap.
const BOOTSTRAP: [&str; 2] = ["GRPC_XDS_BOOTSTRAP", "GRPC_XDS_BOOTSTRAP_CONFIG"];

/// The running fakes and a running controller. Their folder is deleted when the last of them is dropped.
pub struct Stage {
    pub fakes: Arc<Fakes>,
    folder: Arc<TempDir>,
    files: Files,
    log: PathBuf,
    child: Child,
    http: Client,
    pub health: String,
    pub admin: String,
    /// The address of the admin API with TLS; empty if there is none.
    pub admin_tls: String,
    /// The address of CSDS; empty if no pool has an xDS source.
    pub csds: String,
}

/// The fakes before the start of the controller.
pub struct Prepared {
    pub fakes: Fakes,
    world: World,
    folder: TempDir,
}

/// An answer of a listener.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub kind: String,
    pub allow: String,
    pub text: String,
}

impl Answer {
    /// Returns the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Prepared {
    /// Creates fakes with this number of Services, each with a pool in sync, on two load balancers and six nodes.
    pub async fn new(services: usize) -> Self {
        Self::sized(Size { services, load_balancers: 2, nodes: 6, endpoints: 2, dual_stack: false }).await
    }

    /// Creates fakes with a cluster of this size.
    pub async fn sized(size: Size) -> Self {
        let fakes = Fakes::start(Settings::default()).await.expect("loopback has free ports");
        let world = World::new(size, 1);
        world.populate(&fakes, &simulator::vnet_id()).await;
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { fakes, world, folder }
    }

    /// Creates empty fakes.
    pub async fn without_load_balancers() -> Self {
        let fakes = Fakes::start(Settings::default()).await.expect("loopback has free ports");
        let world = World::new(Size { services: 0, ..Size::default() }, 1);
        Self { fakes, world, folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// Starts the controller with these keys in addition to the test's short times, and waits for its listeners.
    pub async fn start(self, overlay: &Value) -> Stage {
        self.start_with(overlay, &[]).await
    }

    /// Does the same with these flags.
    pub async fn start_with(self, overlay: &Value, flags: &[&str]) -> Stage {
        let files = self.files(overlay);
        Stage::start(Arc::new(self.fakes), Arc::new(self.folder), files, "log", flags).await
    }

    /// Does the same as [`Prepared::start`], with these variables of the environment.
    pub async fn start_in(self, overlay: &Value, variables: &[(&str, &str)]) -> Stage {
        let files = self.files(overlay);
        let mut command = command(&files, &[]);
        command.envs(variables.iter().copied());
        Stage::spawn(command, Arc::new(self.fakes), Arc::new(self.folder), files, "log").await
    }

    /// Does the same as [`Prepared::start`], with these keys in the cloud configuration.
    pub async fn start_on(self, overlay: &Value, cloud: &Value) -> Stage {
        self.start_on_with(overlay, cloud, &[]).await
    }

    /// Does the same with these flags.
    pub async fn start_on_with(self, overlay: &Value, cloud: &Value, flags: &[&str]) -> Stage {
        let files = self.files(overlay);
        let text = std::fs::read_to_string(&files.cloud_config).expect("the simulator has written it");
        let mut keys: Value = serde_json::from_str(&text).expect("it is JSON");
        for (key, value) in cloud.as_object().into_iter().flatten() {
            keys[key] = value.clone();
        }
        std::fs::write(&files.cloud_config, keys.to_string()).expect("the folder can be written");
        Stage::start(Arc::new(self.fakes), Arc::new(self.folder), files, "log", flags).await
    }

    /// Does the same as [`Prepared::start`], with another address of the API server.
    pub async fn start_by(self, way: SocketAddr) -> Stage {
        let files = self.files(&json!({}));
        let text = std::fs::read_to_string(&files.kubeconfig).expect("the simulator has written it");
        let detour = text.replace(&self.fakes.kubernetes_url, &format!("http://{way}"));
        assert_ne!(text, detour, "the kubeconfig names the fake");
        std::fs::write(&files.kubeconfig, detour).expect("the folder can be written");
        Stage::start(Arc::new(self.fakes), Arc::new(self.folder), files, "log", &[]).await
    }

    /// Starts a controller that must exit; returns its exit status and output.
    pub async fn ends(self, overlay: &Value) -> (ExitStatus, String) {
        let output = output(command(&self.files(overlay), &[])).await;
        (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Runs `check-config` with these keys.
    pub async fn check_config(&self, overlay: &Value) -> Output {
        self.check_config_in(overlay, &[]).await
    }

    /// Does the same with these variables of the environment.
    pub async fn check_config_in(&self, overlay: &Value, variables: &[(&str, &OsStr)]) -> Output {
        let mut command = check_config(&self.files(overlay));
        command.envs(variables.iter().copied());
        output(command).await
    }

    /// Returns the files of a controller with these keys in addition to the test's short times.
    fn files(&self, overlay: &Value) -> Files {
        let anywhere = ([127, 0, 0, 1], 0).into();
        let mut keys = json!({
            "discovery": { "interval": "5s" },
            "members": { "removalDelay": "0s" },
            "batching": { "quietPeriod": "50ms", "maxDelay": "500ms", "minInterval": "100ms" },
            "guards": { "emptyConfirm": "1h" },
        });
        for (section, values) in overlay.as_object().into_iter().flatten() {
            keys[section] = values.clone();
        }
        let options = FileOptions { health: anywhere, admin: anywhere, overlay: Some(keys) };
        let files = Files::write(self.folder.path(), &self.fakes, &self.world, &options);
        files.expect("the folder can be written")
    }
}

/// Returns the binary under test with these files and flags.
fn command(files: &Files, flags: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("run").args(flags).arg("--kubeconfig").arg(&files.kubeconfig);
    command.arg("--cloud-config").arg(&files.cloud_config).arg("--config").arg(&files.controller);
    command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1").env_remove("RUST_LOG");
    for name in ["POD_NAMESPACE", "POD_NAME", "POD_UID", "DEPLOYMENT_NAME", "OPERATOR_SERVICE_ACCOUNT"]
        .into_iter()
        .chain(BOOTSTRAP)
    {
        command.env_remove(name);
    }
    command
}

/// Returns the command `check-config` with these files.
fn check_config(files: &Files) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("check-config").arg("--cloud-config").arg(&files.cloud_config);
    command.arg("--config").arg(&files.controller).env_remove("RUST_LOG");
    for name in BOOTSTRAP {
        command.env_remove(name);
    }
    command
}

/// Runs a command to its end.
async fn output(mut command: Command) -> Output {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output =
        tokio::time::timeout(TEST_TIMEOUT, command.output()).await.expect("the command ends in time");
    output.expect("the binary under test")
}

impl Answer {
    /// Reads the answer, or only the head of a stream.
    async fn of(answer: reqwest::Response) -> Result<Self, reqwest::Error> {
        let header = |name: &str| {
            let value = answer.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let (status, kind, allow) = (answer.status().as_u16(), header("content-type"), header("allow"));
        let text = if kind == "text/event-stream" { String::new() } else { answer.text().await? };
        Ok(Self { status, kind, allow, text })
    }
}

impl Stage {
    async fn start(
        fakes: Arc<Fakes>,
        folder: Arc<TempDir>,
        files: Files,
        log: &str,
        flags: &[&str],
    ) -> Stage {
        let command = command(&files, flags);
        Stage::spawn(command, fakes, folder, files, log).await
    }

    async fn spawn(
        mut command: Command,
        fakes: Arc<Fakes>,
        folder: Arc<TempDir>,
        files: Files,
        log: &str,
    ) -> Stage {
        let log = folder.path().join(log);
        let file = std::fs::File::create(&log).expect("the folder can be written");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).kill_on_drop(true);
        let child = command.spawn().expect("the binary under test");
        let http = Client::builder().no_proxy().timeout(REQUEST_TIMEOUT).build().expect("a client");
        let [health, admin, admin_tls, csds] = [(); 4].map(|()| String::new());
        let mut stage = Stage { fakes, folder, files, log, child, http, health, admin, admin_tls, csds };
        let started = eventually("the controller has its listeners", TEST_TIMEOUT, || async {
            let lines = stage.log();
            lines
                .iter()
                .find(|line| line["message"] == "started")
                .cloned()
                .ok_or_else(|| format!("{lines:?}"))
        })
        .await;
        let address = |field: &str| started[field].as_str().expect("the address of a listener").to_owned();
        (stage.health, stage.admin) = (address("health"), address("admin"));
        stage.admin_tls = started["admin_tls"].as_str().unwrap_or_default().to_owned();
        stage.csds = started["csds"].as_str().unwrap_or_default().to_owned();
        stage
    }

    /// Starts another controller for the same cluster and ARM, and waits for its listeners.
    pub async fn another(&self, log: &str) -> Stage {
        let (fakes, folder) = (Arc::clone(&self.fakes), Arc::clone(&self.folder));
        Stage::start(fakes, folder, self.files.clone(), log, &[]).await
    }

    /// Starts fakes with this number of Services and a controller, and waits until it is ready and has found all pools.
    /// A controller is ready as soon as it has read one load balancer.
    pub async fn ready(services: usize) -> Self {
        let stage = Prepared::new(services).await.start(&json!({})).await;
        stage.wait_until_ready().await;
        stage.shown("/api/v1/status", |status| status["pools"]["total"] == services).await;
        stage
    }

    /// Waits until `/readyz` answers 200.
    pub async fn wait_until_ready(&self) {
        eventually("the controller is ready", TEST_TIMEOUT, || async {
            let answer = self.health("/readyz").await;
            if answer.status == 200 { Ok(()) } else { Err(answer.text) }
        })
        .await;
    }

    /// Returns the complete lines of the log so far; a line that is not JSON is returned as a string. Another thread
    /// writes the log, so recent lines may be missing ([`Stage::logged`]).
    pub fn log(&self) -> Vec<Value> {
        log_lines(&self.log)
    }

    /// Returns the text of the log.
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the log has matching lines, and returns them.
    pub async fn logged(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Vec<Value> {
        eventually(&format!("the log has {what}"), TEST_TIMEOUT, || async {
            let log = self.log();
            let found: Vec<Value> = log.iter().filter(|line| is_it(line)).cloned().collect();
            if found.is_empty() { Err(format!("{log:?}")) } else { Ok(found) }
        })
        .await
    }

    async fn call(&self, method: Method, listener: &str, path: &str) -> Result<Answer, String> {
        let answer = self.http.request(method, format!("http://{listener}{path}")).send().await;
        let answer = answer.map_err(|error| format!("{path}: {error:?}"))?;
        Answer::of(answer).await.map_err(|error| format!("{path}: {error:?}"))
    }

    /// Calls the listener with TLS with this client and an optional bearer token.
    pub async fn secured(
        &self,
        http: &Client,
        method: Method,
        path: &str,
        token: Option<&str>,
    ) -> Result<Answer, String> {
        let mut request = http.request(method.clone(), format!("https://{}{path}", self.admin_tls));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if method == Method::POST {
            request = request.body("{}");
        }
        let answer = request.send().await.map_err(|error| format!("{method} {path}: {error:?}"))?;
        Answer::of(answer).await.map_err(|error| format!("{method} {path}: {error:?}"))
    }

    /// Sends a GET to the health listener, which must answer.
    pub async fn health(&self, path: &str) -> Answer {
        self.try_health(path).await.unwrap_or_else(|error| panic!("{error}\n{:?}", self.log()))
    }

    /// Sends a GET to the health listener.
    pub async fn try_health(&self, path: &str) -> Result<Answer, String> {
        self.call(Method::GET, &self.health, path).await
    }

    /// Calls the admin listener.
    pub async fn admin(&self, method: Method, path: &str) -> Answer {
        let answer = self.call(method, &self.admin, path).await;
        answer.unwrap_or_else(|error| panic!("{error}\n{:?}", self.log()))
    }

    /// Sends a GET to the admin listener.
    pub async fn try_admin(&self, path: &str) -> Result<Answer, String> {
        self.call(Method::GET, &self.admin, path).await
    }

    /// Calls the admin listener and returns the answer with all headers.
    pub async fn raw(&self, method: Method, path: &str) -> reqwest::Response {
        let answer = self.http.request(method, format!("http://{}{path}", self.admin)).send().await;
        answer.unwrap_or_else(|error| panic!("{error}\n{:?}", self.log()))
    }

    /// Calls the admin listener with another `Host` header.
    pub async fn for_another_host(&self, method: Method, path: &str) -> Answer {
        let request = self.http.request(method, format!("http://{}{path}", self.admin));
        let answer = request.header("host", "pages.example").send().await;
        let answer = answer.unwrap_or_else(|error| panic!("{error}\n{:?}", self.log()));
        Answer::of(answer).await.expect("a body")
    }

    /// Sends a POST to the admin listener, with an optional bearer token.
    pub async fn post(&self, path: &str, token: Option<&str>, body: &Value) -> Answer {
        let mut request = self.http.post(format!("http://{}{path}", self.admin)).body(body.to_string());
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.unwrap_or_else(|error| panic!("{error}\n{:?}", self.log()));
        Answer::of(answer).await.expect("a body")
    }

    /// Returns the output of `check-config` for the files of this controller.
    pub async fn check_config(&self) -> String {
        let output = output(check_config(&self.files)).await;
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("it prints text")
    }

    /// Sends another method to the health listener.
    pub async fn health_with(&self, method: Method, path: &str) -> Answer {
        let answer = self.call(method, &self.health, path).await;
        answer.unwrap_or_else(|error| panic!("{error}\n{:?}", self.log()))
    }

    /// Sends a GET to the admin API, which must succeed, and returns the body.
    pub async fn get(&self, path: &str) -> Value {
        let answer = self.admin(Method::GET, path).await;
        assert_eq!((answer.status, answer.kind.as_str()), (200, "application/json"), "{path}: {answer:?}");
        answer.json()
    }

    /// Waits until an answer of the admin API satisfies the condition, and returns it.
    pub async fn shown(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        eventually(path, TEST_TIMEOUT, || async {
            let answer = self.admin(Method::GET, path).await;
            let value = answer.json();
            if answer.status == 200 && wanted(&value) { Ok(value) } else { Err(answer.text) }
        })
        .await
    }

    /// Waits until the verdict of a Service of [`NAMESPACE`] contains this text, and returns the answer.
    pub async fn verdict(&self, name: &str, text: &str) -> Value {
        let path = format!("/api/v1/services/{NAMESPACE}/{name}");
        self.shown(&path, |answer| answer["verdict"].as_str().is_some_and(|verdict| verdict.contains(text)))
            .await
    }

    /// Returns the value of a series, given its name and labels as in the text format; `None` if there is no such
    /// series.
    pub async fn series(&self, series: &str) -> Option<f64> {
        let text = self.health("/metrics").await.text;
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    /// Waits until the cluster has an event of this reason for an object, and returns it.
    pub async fn event(&self, name: &str, reason: &str) -> Value {
        eventually(&format!("{name} has the event {reason}"), TEST_TIMEOUT, || async {
            let events = self
                .fakes
                .cluster
                .ask(|cluster, _| cluster.model.list(Resource::Events).collect::<Vec<Value>>());
            let events = events.await;
            let found = events
                .iter()
                .find(|event| event["involvedObject"]["name"] == name && event["reason"] == reason);
            found.cloned().ok_or_else(|| format!("{events:?}"))
        })
        .await
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        kill_process(pid.expect("the controller runs"), signal).expect("the controller is still there");
    }

    /// Returns the peak memory of the controller, in bytes. The kernel counts per CPU, so a later peak can be some pages
    /// less than an earlier one.
    pub fn peak_bytes(&self) -> u64 {
        let pid = self.child.id().expect("the controller runs");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it is still there");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).expect("the system reports its peak");
        kib.parse::<u64>().expect("a number") << 10
    }

    /// Waits until the controller has ended.
    pub async fn ended(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(TEST_TIMEOUT, self.child.wait()).await;
        ended.expect("the controller ends in time").expect("a child can be waited for")
    }
}

/// Creates a Service of [`NAMESPACE`] with these endpoints on `kubernetes`, the first load balancer: its objects, its
/// pool with the addresses of the nodes, and its rule.
pub async fn add_service(fakes: &Fakes, name: &str, nodes: &[usize]) {
    let service = build::service(NAMESPACE, name, &[80], &[Family::V4]);
    let names = nodes.iter().map(|node| Endpoint::ready(&node_name(*node)));
    let slice = build::endpoint_slice(NAMESPACE, name, 0, &names.collect::<Vec<_>>(), Family::V4);
    fakes.apply(vec![build::with_ingress(service, &["20.1.1.1"]), slice]).await.expect("good objects");
    add_pool(fakes, name, nodes).await;
}

/// Creates the pool and the rule of a Service of [`NAMESPACE`].
pub async fn add_pool(fakes: &Fakes, name: &str, nodes: &[usize]) {
    let uid = build::uid("Service", NAMESPACE, name).replace('-', "");
    let rule: String = "a".chars().chain(uid.chars()).take(32).chain("-TCP-80".chars()).collect();
    let spec = PoolSpec {
        virtual_network: VirtualNetwork::Pool(simulator::vnet_id()),
        members: nodes.iter().map(|node| (node_name(*node), node_ip(*node))).collect(),
        ..PoolSpec::default()
    };
    let pool = pool_of(name);
    let add = move |azure: &mut simulator::Azure, _: u64| {
        azure.model.add_pool(simulator::CLUSTER_NAME, &pool, &spec);
        azure.model.add_rule(simulator::CLUSTER_NAME, &rule, &pool, true);
    };
    fakes.azure.ask(add).await;
}

/// Adds a rule of a Service of [`NAMESPACE`] for this pool of the cluster, as exists while the cloud-controller-manager
/// creates the Service's own pool.
pub async fn send_to_cluster_pool(fakes: &Fakes, name: &str, pool: &'static str) {
    let uid = build::uid("Service", NAMESPACE, name).replace('-', "");
    let rule: String = "a".chars().chain(uid.chars()).take(32).chain("-TCP-81".chars()).collect();
    let add = move |azure: &mut simulator::Azure, _: u64| {
        if pool != simulator::CLUSTER_NAME {
            azure.model.add_pool(simulator::CLUSTER_NAME, pool, &PoolSpec::default());
        }
        azure.model.add_rule(simulator::CLUSTER_NAME, &rule, pool, true);
    };
    fakes.azure.ask(add).await;
}

/// Replaces the endpoints of a Service's slice.
pub async fn set_endpoints(fakes: &Fakes, name: &str, endpoints: &[Endpoint]) {
    let slice = build::endpoint_slice(NAMESPACE, name, 0, endpoints, Family::V4);
    fakes.apply(vec![slice]).await.expect("a valid slice");
}

/// Returns the pool of a Service of [`NAMESPACE`].
pub fn pool_of(name: &str) -> String {
    format!("{NAMESPACE}-{name}")
}

/// Returns the name of the node with this index.
pub fn node_name(node: usize) -> String {
    format!("node-{node:04}")
}

/// Returns the InternalIP of the node with this index.
pub fn node_ip(node: usize) -> String {
    format!("10.224.0.{}", node + 4)
}
