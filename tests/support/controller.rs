//! The real binary as a child process: its files, its log, its listeners, and how it ends.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use reqwest::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::azure::Azure;
use super::kubernetes::{Cluster, tail};
use super::{PATIENCE, eventually, log_lines};

/// The binary under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_azure-backend-pool-controller");

/// A running controller. It is killed when this value goes; [`Controller::terminate`] ends it in good order.
pub struct Controller {
    child: Child,
    log: PathBuf,
    http: Client,
    health: String,
    admin: String,
}

/// How a controller is started.
#[derive(Clone, Copy, Default)]
pub struct Flags {
    /// With `--dry-run`.
    pub dry_run: bool,
}

impl Controller {
    /// Starts the controller for one namespace of the cluster and waits until it is ready.
    pub async fn start(cluster: &Cluster, namespace: &str, azure: &Azure, flags: Flags) -> Self {
        let kubeconfig = cluster.controller_kubeconfig(namespace).await;
        let write = |name: &str, value: &Value| {
            let path = cluster.folder().join(format!("{namespace}.{name}"));
            std::fs::write(&path, value.to_string()).expect("the folder can be written");
            path
        };
        let mut command = Command::new(PROGRAM);
        command.arg("run").arg("--kubeconfig").arg(kubeconfig);
        command.arg("--cloud-config").arg(write("azure.json", &azure.cloud_config()));
        command.arg("--config").arg(write("controller.yaml", &settings(namespace)));
        if flags.dry_run {
            command.arg("--dry-run");
        }
        command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1").env("RUST_LOG", "info");
        let name = format!("{namespace}.controller");
        let mut child = cluster.reaper().start(&name, &mut command);
        let log = cluster.folder().join(format!("{name}.log"));
        let (health, admin) = eventually("the controller has its listeners", PATIENCE, || {
            let ended = child.try_wait().ok().flatten();
            let log = &log;
            async move {
                assert!(ended.is_none(), "the controller ended with {ended:?}:\n{}", tail(log));
                listeners(log).ok_or_else(|| tail(log))
            }
        })
        .await;
        let http = Client::builder().no_proxy().build().expect("a client");
        let controller = Self { child, log, http, health, admin };
        eventually("the controller is ready", PATIENCE, || async {
            let (status, text) = controller.fetch(&controller.health, "/readyz?verbose").await?;
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

    /// An answer of the admin API.
    pub async fn get(&self, path: &str) -> Result<Value, String> {
        match self.fetch(&self.admin, path).await? {
            (200, text) => serde_json::from_str(&text).map_err(|error| format!("{path}: {error}: {text}")),
            (status, text) => Err(format!("{path}: {status}: {text}")),
        }
    }

    /// The sum of the series of a metric whose labels contain this text; 0 when there is none.
    pub async fn metric(&self, name: &str, label: &str) -> Result<f64, String> {
        let (_, text) = self.fetch(&self.health, "/metrics").await?;
        let series = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(label)
        });
        Ok(series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Sends SIGTERM, and requires that the controller ends by itself with exit code 0 and has logged no error.
    pub async fn terminate(mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a child's process id");
        kill_process(pid, Signal::TERM).expect("the controller is still there");
        let child = &mut self.child;
        let status = eventually("the controller ends after SIGTERM", PATIENCE, || {
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
        // Both fail when it has ended, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The settings of a story: short times, and its own namespace alone.
fn settings(namespace: &str) -> Value {
    json!({
        "identity": "anonymous",
        "services": { "namespaces": [namespace] },
        "http": { "healthListen": "127.0.0.1:0", "adminListen": "127.0.0.1:0" },
        "discovery": { "interval": "5s" },
        "members": { "removalDelay": "1s" },
        "batching": { "quietPeriod": "200ms", "maxDelay": "1s", "minInterval": "500ms" },
        "guards": { "emptyConfirm": format!("{EMPTY_CONFIRM_S}s") },
        "budget": { "writesPer5Minutes": 100_000, "readsPer5Minutes": 1_000_000 },
    })
}

/// `guards.emptyConfirm` of the stories, in seconds.
pub const EMPTY_CONFIRM_S: u64 = 3;

/// The addresses of the listeners, which the controller logs when it has started.
fn listeners(log: &Path) -> Option<(String, String)> {
    let started = log_lines(log).into_iter().find(|line| line["message"] == "started")?;
    let address = |field: &str| started[field].as_str().map(str::to_owned);
    Some((address("health")?, address("admin")?))
}

/// The log's lines of level ERROR, and those that are no log lines: what a panic prints.
fn errors(log: &Path) -> Vec<String> {
    let wrong = |line: &Value| line["level"] == "ERROR" || !line.is_object();
    log_lines(log).iter().filter(|line| wrong(line)).map(ToString::to_string).collect()
}
