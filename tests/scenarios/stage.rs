//! The environment of a scenario: both fakes, the cluster that they serve, and the real binary as a process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use simulator::models::arm::{self, Latency};
use simulator::{Clock, Fakes, Settings};

use super::azure::{Put, Recorder};
use super::expect::About;
use super::world::World;
use crate::support::reaper::Reaper;

/// The binary under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_azure-backend-pool-controller");
/// Time limit of an expectation on a slow and shared machine, without `given timeout`.
const TEST_TIMEOUT: Duration = Duration::from_secs(40);
/// Interval between probes.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Number of log lines that are shown when a scenario fails.
const SHOWN_LINES: usize = 40;

/// The environment of one scenario.
pub struct Stage {
    pub fakes: Fakes,
    pub world: World,
    pub controller: Value,
    pub cloud: Value,
    pub dry_run: bool,
    pub timeout: Duration,
    /// Time at which the controller was ready, in microseconds of the fakes' clock.
    pub zero_us: u64,
    /// Time of the last change, or of the answer to the last expected PUT.
    pub mark_us: u64,
    /// Time at which the last expected PUT was answered.
    pub answered_us: u64,
    /// Every PUT so far.
    pub puts: Vec<Put>,
    pub promises: Promises,
    recorder: Recorder,
    process: Option<Running>,
    http: reqwest::Client,
    reaper: Reaper,
}

/// A scenario's `finally` lines and other expectations about its end.
#[derive(Default)]
pub struct Promises {
    /// Texts of the ERROR lines that the log must have.
    pub errors: Vec<String>,
    /// Total number of events of a reason about a subject.
    pub events: Vec<(String, About, usize)>,
    /// Pools with their members at the end; `None`: any members.
    pub pools: BTreeMap<String, Option<Vec<String>>>,
    /// Pools whose PUTs with this status are not listed.
    pub refused: Vec<(String, u16)>,
    /// True if the admin states at the end are not checked.
    pub any_states: bool,
    /// True if the controller must have pending work at the end.
    pub waits: bool,
}

/// The controller's process.
struct Running {
    child: Child,
    health: String,
    admin: String,
}

/// Result of a probe.
pub enum Probe<T> {
    /// The value.
    Found(T),
    /// Not found yet; with the current state.
    NotYet(String),
    /// A state that can no longer become the expected one.
    Wrong(String),
}

impl Stage {
    /// Creates empty fakes, and the default settings of a scenario: short times, and no delay of removals.
    pub async fn set_up() -> Self {
        let arm = arm::Settings {
            get_latency: Latency::Fixed { us: 5_000 },
            put_latency: Latency::Fixed { us: 30_000 },
            ..arm::Settings::default()
        };
        let fakes =
            Fakes::start(Settings { arm, ..Settings::default() }).await.expect("loopback has free ports");
        let recorder = Recorder::start(&fakes.azure).await;
        let cloud = cloud_config(&fakes.arm_url);
        Self {
            fakes,
            world: World::default(),
            controller: controller_config(),
            cloud,
            dry_run: false,
            timeout: TEST_TIMEOUT,
            zero_us: 0,
            mark_us: 0,
            answered_us: 0,
            puts: Vec::new(),
            promises: Promises::default(),
            recorder,
            process: None,
            http: reqwest::Client::builder().no_proxy().build().expect("a client"),
            reaper: Reaper::new(),
        }
    }

    /// Starts the controller, and the scenario's clock when it is ready. That may take long on a busy machine.
    pub async fn start(&mut self) -> Result<(), String> {
        let timeout = std::mem::replace(&mut self.timeout, TEST_TIMEOUT);
        self.launch().await?;
        self.timeout = timeout;
        self.zero_us = self.now_us();
        self.mark_us = self.zero_us;
        Ok(())
    }

    /// Starts the controller's process with the current configuration, and waits until it is ready.
    pub async fn launch(&mut self) -> Result<(), String> {
        if self.process.is_some() {
            return Err("the controller runs already".to_owned());
        }
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "scenario",
            "clusters": [{ "name": "scenario", "cluster": { "server": self.fakes.kubernetes_url } }],
            "users": [{ "name": "scenario", "user": { "token": "scenario" } }],
            "contexts": [{ "name": "scenario", "context": { "cluster": "scenario", "user": "scenario" } }],
        });
        let mut command = Command::new(PROGRAM);
        for (key, _) in std::env::vars_os() {
            let name = key.to_string_lossy();
            let reaches_in = ["POOL_CONTROLLER_", "AZURE_", "POD_", "DEPLOYMENT_"]
                .iter()
                .any(|head| name.starts_with(head));
            if reaches_in || name == "RUST_LOG" {
                command.env_remove(&key);
            }
        }
        command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1").arg("run");
        let files =
            [("kubeconfig", &kubeconfig), ("cloud-config", &self.cloud), ("config", &self.controller)];
        for (name, value) in files {
            let path = self.reaper.folder().join(format!("{name}.yaml"));
            std::fs::write(&path, value.to_string())
                .map_err(|error| format!("{}: {error}", path.display()))?;
            command.arg(format!("--{name}")).arg(path);
        }
        if self.dry_run {
            command.arg("--dry-run");
        }
        // An earlier process has logged its listeners too.
        let before = self.log().len();
        let mut child = self.reaper.start("controller", &mut command);
        let (health, admin) = self
            .until(|stage| {
                match child.try_wait() {
                    Ok(None) => {}
                    ended => return Probe::Wrong(format!("the controller ended: {ended:?}")),
                }
                let mut log = stage.log().into_iter().skip(before);
                let started = log.find(|line| line["message"] == "started");
                let address = |field: &str| Some(started.as_ref()?[field].as_str()?.to_owned());
                match (address("health"), address("admin")) {
                    (Some(health), Some(admin)) => Probe::Found((health, admin)),
                    _ => Probe::NotYet("the controller has no listeners".to_owned()),
                }
            })
            .await?;
        self.process = Some(Running { child, health, admin });
        let mut again = tokio::time::interval(POLL_INTERVAL);
        let deadline = tokio::time::Instant::now() + self.timeout;
        loop {
            again.tick().await;
            let (status, text) = self.fetch("/readyz?verbose").await.unwrap_or_else(|error| (0, error));
            if status == 200 {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                return Err(format!("the controller is not ready: {text}"));
            }
        }
    }

    /// Returns the fakes' clock.
    pub fn clock(&self) -> Clock {
        self.fakes.clock()
    }

    /// Returns the microseconds since the start of the fakes.
    pub fn now_us(&self) -> u64 {
        self.clock().now_us()
    }

    /// Waits until this time of the fakes' clock.
    pub async fn wait_until(&self, at_us: u64) {
        tokio::time::sleep_until(self.clock().instant(at_us)).await;
    }

    /// Probes until something is found or wrong, or until the time limit.
    pub async fn until<T>(
        &mut self,
        mut probe: impl FnMut(&mut Self) -> Probe<T> + Send,
    ) -> Result<T, String> {
        let mut again = tokio::time::interval(POLL_INTERVAL);
        let deadline = tokio::time::Instant::now() + self.timeout;
        loop {
            again.tick().await;
            self.take_puts();
            match probe(self) {
                Probe::Found(found) => return Ok(found),
                Probe::Wrong(reason) => return Err(reason),
                Probe::NotYet(last) if tokio::time::Instant::now() > deadline => {
                    return Err(format!("not within {:?}; seen last: {last}", self.timeout));
                }
                Probe::NotYet(_) => {}
            }
        }
    }

    /// Receives the PUTs that have arrived.
    pub fn take_puts(&mut self) {
        while let Some(put) = self.recorder.next() {
            self.puts.push(put);
        }
        for (pool, status) in &self.promises.refused {
            let meant = self.puts.iter_mut().filter(|put| put.is_of(pool) && put.status == *status);
            meant.for_each(|put| put.matched = true);
        }
    }

    /// Returns status and text of a GET: `/readyz` and `/metrics` from the health listener, everything else from the
    /// admin API.
    pub async fn fetch(&self, path: &str) -> Result<(u16, String), String> {
        let process = self.process.as_ref().ok_or("the controller does not run")?;
        let on_health =
            ["/readyz", "/livez", "/healthz", "/metrics"].iter().any(|page| path.starts_with(page));
        let listener = if on_health { &process.health } else { &process.admin };
        let answer = self.http.get(format!("http://{listener}{path}")).send().await;
        let answer = answer.map_err(|error| format!("{path}: {error:?}"))?;
        let status = answer.status().as_u16();
        Ok((status, answer.text().await.map_err(|error| format!("{path}: {error:?}"))?))
    }

    /// Sends a POST to the admin API with a token of a user with all permissions; returns status and text of the
    /// answer.
    pub async fn post(&self, path: &str, body: &Value) -> Result<(u16, String), String> {
        let process = self.process.as_ref().ok_or("the controller does not run")?;
        let request = self.http.post(format!("http://{}{path}", process.admin)).bearer_auth("an-operator");
        let answer = request.body(body.to_string()).send().await;
        let answer = answer.map_err(|error| format!("{path}: {error:?}"))?;
        let status = answer.status().as_u16();
        Ok((status, answer.text().await.map_err(|error| format!("{path}: {error:?}"))?))
    }

    /// Stops the controller with SIGTERM, and returns its exit status.
    pub async fn stop(&mut self) -> Result<ExitStatus, String> {
        self.end_by(Signal::TERM).await
    }

    /// Kills the controller.
    pub async fn kill(&mut self) -> Result<(), String> {
        self.end_by(Signal::KILL).await.map(drop)
    }

    async fn end_by(&mut self, signal: Signal) -> Result<ExitStatus, String> {
        let mut process = self.process.take().ok_or("the controller does not run")?;
        let pid = i32::try_from(process.child.id()).ok().and_then(Pid::from_raw).ok_or("no process id")?;
        kill_process(pid, signal).map_err(|error| format!("the controller has ended: {error}"))?;
        self.until(|_| match process.child.try_wait() {
            Ok(Some(status)) => Probe::Found(status),
            Ok(None) => Probe::NotYet(format!("the controller still runs after {signal:?}")),
            Err(error) => Probe::Wrong(error.to_string()),
        })
        .await
    }

    /// Returns the lines of the log. A line that is not JSON, such as that of a panic, is a string.
    pub fn log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.log_path()).unwrap_or_default();
        // The last line may be incomplete.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| Value::from(line))).collect()
    }

    fn log_path(&self) -> PathBuf {
        self.reaper.folder().join("controller.log")
    }

    /// Returns diagnostics of a failed scenario: the PUTs, and the end of the log.
    pub fn remains(&mut self) -> String {
        self.take_puts();
        let put = |put: &Put| {
            let at = put.at_us as f64 / 1e6 - self.zero_us as f64 / 1e6;
            let downs: Vec<String> = put
                .entries
                .iter()
                .filter(|entry| entry.down)
                .map(|entry| entry.ip.map_or_else(|| entry.name.clone(), |ip| ip.to_string()))
                .collect();
            let written = format!("{:?} down {downs:?}", put.members);
            format!("  {at:.3}s {}/{} {written} -> {}", put.load_balancer, put.pool, put.status)
        };
        let puts: Vec<String> = self.puts.iter().map(put).collect();
        let log: Vec<String> = self.log().iter().map(ToString::to_string).collect();
        let shown = &log[log.len().saturating_sub(SHOWN_LINES)..];
        format!("PUTs:\n{}\nlog:\n  {}", puts.join("\n"), shown.join("\n  "))
    }
}

fn cloud_config(arm_url: &str) -> Value {
    let defaults = arm::Settings::default();
    json!({
        "cloud": "AzurePublicCloud", "resourceManagerEndpoint": arm_url,
        "tenantId": "00000000-0000-0000-0000-000000000001", "subscriptionId": defaults.subscription,
        "resourceGroup": defaults.resource_group, "location": defaults.location,
        "vnetName": "vnet", "vnetResourceGroup": defaults.resource_group, "loadBalancerSku": "standard",
        "loadBalancerBackendPoolConfigurationType": "nodeIP", "multipleStandardLoadBalancerConfigurations": [],
    })
}

fn controller_config() -> Value {
    json!({
        "identity": "anonymous",
        "http": { "healthListen": "127.0.0.1:0", "adminListen": "127.0.0.1:0" },
        "discovery": { "interval": "5s" },
        "members": { "removalDelay": "0s" },
        "batching": {
            "quietPeriod": "100ms", "maxDelay": "1s", "minInterval": "100ms", "retryInterval": "300ms",
        },
        "guards": { "emptyConfirm": "2s" },
    })
}
