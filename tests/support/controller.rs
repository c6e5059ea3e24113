//! The real binary as a child process: its files, its log, its listeners, and how it ends.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use reqwest::{Client, Method, RequestBuilder};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::azure::Azure;
use super::kubernetes::{Cluster, tail};
use super::{TEST_TIMEOUT, eventually, log_lines};

/// The binary under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_azure-backend-pool-controller");

/// A running controller. It is killed when this value is dropped. [`Controller::terminate`] ends it in good order.
pub struct Controller {
    child: Child,
    log: PathBuf,
    http: Client,
    at: Listeners,
}

/// Addresses at which a controller listens.
struct Listeners {
    health: String,
    admin: String,
    /// The admin API with TLS, if it is open.
    admin_tls: Option<String>,
}

/// Start parameters of a controller.
#[derive(Clone, Copy, Default)]
pub struct Flags {
    /// With `--dry-run`.
    pub dry_run: bool,
    /// The Deployment in its environment variables.
    pub deployment: Option<&'static str>,
}

/// One of several replicas.
pub struct Replica<'a> {
    /// Name of its Pod. It is the identity in the Lease, the name of its log and, as `userAgent`, its name in Azure.
    pub name: &'a str,
    /// The namespace of its Pod and of its Services.
    pub namespace: &'a str,
    /// The kubeconfig with which it connects to the API server.
    pub kubeconfig: PathBuf,
    /// Its cloud configuration.
    pub cloud_config: Value,
    /// Settings that override those of every test.
    pub settings: Value,
    /// Its start parameters.
    pub flags: Flags,
}

impl Controller {
    /// Starts the controller for one namespace of the cluster and waits until it is ready.
    pub async fn start(cluster: &Cluster, namespace: &str, azure: &Azure, flags: Flags) -> Self {
        let replica = Replica {
            name: &format!("{namespace}.controller"),
            namespace,
            kubeconfig: cluster.controller_kubeconfig(namespace).await,
            cloud_config: azure.cloud_config(),
            settings: json!({}),
            flags,
        };
        Self::start_replica(cluster, &replica).await
    }

    /// Starts one replica and waits until it is ready; a standby is ready too.
    pub async fn start_replica(cluster: &Cluster, replica: &Replica<'_>) -> Self {
        let name = replica.name;
        let write = |kind: &str, value: &Value| {
            let path = cluster.folder().join(format!("{name}.{kind}"));
            std::fs::write(&path, value.to_string()).expect("the folder can be written");
            path
        };
        let mut settings = settings(replica.namespace);
        for (key, value) in replica.settings.as_object().into_iter().flatten() {
            settings[key] = value.clone();
        }
        let mut command = Command::new(PROGRAM);
        command.arg("run").arg("--kubeconfig").arg(&replica.kubeconfig);
        command.arg("--cloud-config").arg(write("azure.json", &replica.cloud_config));
        command.arg("--config").arg(write("controller.yaml", &settings));
        if replica.flags.dry_run {
            command.arg("--dry-run");
        }
        command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1").env("RUST_LOG", "info");
        command.env("POD_NAME", name).env("POD_NAMESPACE", replica.namespace).env_remove("DEPLOYMENT_NAME");
        if let Some(deployment) = replica.flags.deployment {
            command.env("DEPLOYMENT_NAME", deployment);
        }
        Self::launch(cluster, name, &mut command).await
    }

    /// Runs this command, which must be one of `run`, and waits until the controller is ready. Its log is named like this.
    pub async fn launch(cluster: &Cluster, name: &str, command: &mut Command) -> Self {
        let log = cluster.folder().join(format!("{name}.log"));
        // A restarted container of a Pod appends to the same log.
        let before = log_lines(&log).len();
        let mut child = cluster.reaper().start(name, command);
        let at = eventually("the controller has its listeners", TEST_TIMEOUT, || {
            let ended = child.try_wait().ok().flatten();
            let log = &log;
            async move {
                assert!(ended.is_none(), "the controller ended with {ended:?}:\n{}", tail(log));
                listeners(log, before).ok_or_else(|| tail(log))
            }
        })
        .await;
        let http = Client::builder().no_proxy().build().expect("a client");
        let controller = Self { child, log, http, at };
        eventually("the controller is ready", TEST_TIMEOUT, || async {
            let (status, text) = controller.fetch(&controller.at.health, "/readyz?verbose").await?;
            if status == 200 { Ok(()) } else { Err(format!("{status}: {text}")) }
        })
        .await;
        controller
    }

    async fn fetch(&self, listener: &str, path: &str) -> Result<(u16, String), String> {
        let answer = self.http.get(format!("http://{listener}{path}")).send().await;
        let answer = answer.map_err(|error| format!("{path}: {error:?}"))?;
        let status = answer.status().as_u16();
        Ok((status, answer.text().await.map_err(|error| format!("{path}: {error:?}"))?))
    }

    /// Returns the status of an answer. What follows its head may have no end.
    async fn status(&self, request: RequestBuilder) -> u16 {
        let answer = request.send().await;
        answer.unwrap_or_else(|error| panic!("{error:?}:\n{}", tail(&self.log))).status().as_u16()
    }

    /// Returns the status of a GET of the health listener.
    pub async fn health(&self, path: &str) -> u16 {
        self.status(self.http.get(format!("http://{}{path}", self.at.health))).await
    }

    /// Returns the status of a GET of the admin API on loopback.
    pub async fn looks(&self, path: &str) -> u16 {
        self.status(self.http.get(format!("http://{}{path}", self.at.admin))).await
    }

    /// Returns the status of a request of this client to the admin API with TLS, with this bearer token if there is
    /// one.
    pub async fn secured(
        &self,
        http: &Client,
        (method, path, body): (Method, &str, &str),
        token: Option<&str>,
    ) -> u16 {
        let at = self.at.admin_tls.as_deref().expect("the admin API is open with TLS");
        let request = http.request(method, format!("https://{at}{path}")).body(body.to_owned());
        self.status(match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
        .await
    }

    /// Returns an answer of the admin API.
    pub async fn get(&self, path: &str) -> Result<Value, String> {
        match self.fetch(&self.at.admin, path).await? {
            (200, text) => serde_json::from_str(&text).map_err(|error| format!("{path}: {error}: {text}")),
            (status, text) => Err(format!("{path}: {status}: {text}")),
        }
    }

    /// Returns a POST to the admin API with this bearer token: the status and the text of the answer.
    pub async fn post(&self, path: &str, token: &str, body: &Value) -> (u16, String) {
        let request = self.http.post(format!("http://{}{path}", self.at.admin)).bearer_auth(token);
        let answer = request.body(body.to_string()).send().await;
        let answer = answer.unwrap_or_else(|error| panic!("{path}: {error:?}:\n{}", tail(&self.log)));
        (answer.status().as_u16(), answer.text().await.expect("a body"))
    }

    /// Returns the sum of the series of a metric whose labels contain this text; 0 when there is none.
    pub async fn metric(&self, name: &str, label: &str) -> Result<f64, String> {
        let (_, text) = self.fetch(&self.at.health, "/metrics").await?;
        let series = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(label)
        });
        Ok(series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Returns the value of a metric without labels, which is there from the start.
    pub async fn counter(&self, name: &str) -> Result<f64, String> {
        let (_, text) = self.fetch(&self.at.health, "/metrics").await?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.ok_or_else(|| format!("there is no {name}: {text}"))
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a child's process id");
        kill_process(pid, signal).expect("the controller is still there");
    }

    /// Kills the process: SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("the controller is a child of this process");
        self.child.wait().expect("a killed process ends");
    }

    /// Suspends the process: SIGSTOP.
    pub fn suspend(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes the process: SIGCONT.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Returns its role in the election; an error while it does not answer.
    pub async fn role(&self) -> Result<String, String> {
        let status = self.get("/api/v1/status").await?;
        let role = status["leadership"]["role"].as_str();
        role.map(str::to_owned).ok_or_else(|| status.to_string())
    }

    /// Sends SIGTERM, and requires that the controller ends by itself with exit code 0 and has logged no error.
    pub async fn terminate(mut self) {
        self.signal(Signal::TERM);
        let child = &mut self.child;
        let status = eventually("the controller ends after SIGTERM", TEST_TIMEOUT, || {
            let ended = child.try_wait().expect("a child can be waited for");
            async move { ended.ok_or_else(|| "it runs".to_owned()) }
        })
        .await;
        assert_eq!(status.code(), Some(0), "{status}:\n{}", tail(&self.log));
        let errors = errors(&self.log);
        assert!(errors.is_empty(), "the controller logged errors:\n{}", errors.join("\n"));
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // Both fail if the process has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the shared Lease of a test, in kube-system: tests share an API server, and in production all controllers
/// of a cluster share this Lease.
pub fn shared_lease(namespace: &str) -> String {
    format!("locker-{namespace}")
}

/// Returns the settings of a test: short times, and only its own namespace.
pub fn settings(namespace: &str) -> Value {
    json!({
        "identity": "anonymous",
        "leaderElection": { "namespace": namespace },
        "lease": { "name": shared_lease(namespace), "minCooldown": "1s" },
        "services": { "namespaces": [namespace] },
        "http": { "healthListen": "127.0.0.1:0", "adminListen": "127.0.0.1:0" },
        "discovery": { "interval": "5s" },
        "members": { "removalDelay": "1s" },
        "batching": { "quietPeriod": "200ms", "maxDelay": "1s", "minInterval": "500ms" },
        "guards": { "emptyConfirm": format!("{EMPTY_CONFIRM_S}s") },
        "budget": { "writesPer5Minutes": 100_000, "readsPer5Minutes": 1_000_000 },
    })
}

/// `guards.emptyConfirm` of the tests, in seconds.
pub const EMPTY_CONFIRM_S: u64 = 3;

/// Returns the addresses of the listeners, which the controller logs when it has started, after this many lines of the
/// log.
fn listeners(log: &Path, before: usize) -> Option<Listeners> {
    let started = log_lines(log).into_iter().skip(before).find(|line| line["message"] == "started")?;
    let address = |field: &str| started[field].as_str().map(str::to_owned);
    Some(Listeners { health: address("health")?, admin: address("admin")?, admin_tls: address("admin_tls") })
}

/// Returns the log's lines of level ERROR, and the lines of a panic, which are not log lines.
fn errors(log: &Path) -> Vec<String> {
    let wrong = |line: &Value| line["level"] == "ERROR" || !line.is_object();
    log_lines(log).iter().filter(|line| wrong(line)).map(ToString::to_string).collect()
}
