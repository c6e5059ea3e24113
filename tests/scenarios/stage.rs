//! The stage of a story: both fakes, the world that they hold, and the real binary as a process of its own.

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
/// Time for which what is expected may take on a slow and shared machine, unless `given patience` says otherwise.
const PATIENCE: Duration = Duration::from_secs(40);
/// Interval between probes.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Number of lines of the log that are shown when a story fails.
const SHOWN_LINES: usize = 40;

/// The stage of one story.
pub struct Stage {
    pub fakes: Fakes,
    pub world: World,
    pub controller: Value,
    pub cloud: Value,
    pub dry_run: bool,
    pub patience: Duration,
    /// Time at which the controller was ready, in microseconds of the fakes' clock.
    pub zero_us: u64,
    /// When the last change was made, or when the last expected PUT was answered.
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

/// Promises of a story about its end.
#[derive(Default)]
pub struct Promises {
    /// Texts of ERROR lines that may be, and must be, in the log.
    pub errors: Vec<String>,
    /// Total number of events of a reason about a subject.
    pub events: Vec<(String, About, usize)>,
    /// Pools that end with these members, or, with `None`, in any way.
    pub pools: BTreeMap<String, Option<Vec<String>>>,
    /// Pools of which PUTs that are answered with this status need not be spoken of.
    pub refused: Vec<(String, u16)>,
    /// True if plain truth does not say which admin states there are at the end.
    pub any_states: bool,
    /// True if the controller has something to do all the same, for as long as the story lasts.
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
    /// Not yet; what is there instead.
    NotYet(String),
    /// The state that can no longer get in sync.
    Wrong(String),
}

impl Stage {
    /// Fakes without anything in them, and the settings of a story: short times, and no delay of removals.
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
            patience: PATIENCE,
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

    /// Starts the controller, and the story's clock once it is ready. That may take long on a busy machine.
    pub async fn start(&mut self) -> Result<(), String> {
        let patience = std::mem::replace(&mut self.patience, PATIENCE);
        self.launch().await?;
        self.patience = patience;
        self.zero_us = self.now_us();
        self.mark_us = self.zero_us;
        Ok(())
    }

    /// Starts the controller's process with what is configured now, and waits until it is ready.
    pub async fn launch(&mut self) -> Result<(), String> {
        if self.process.is_some() {
            return Err("the controller runs already".to_owned());
        }
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "story",
            "clusters": [{ "name": "story", "cluster": { "server": self.fakes.kubernetes_url } }],
            "users": [{ "name": "story", "user": { "token": "story" } }],
            "contexts": [{ "name": "story", "context": { "cluster": "story", "user": "story" } }],
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
        // A process that was started before has said where it listens, too.
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
        let mut again = tokio::time::interval(LOOK_EVERY);
        let deadline = tokio::time::Instant::now() + self.patience;
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

    /// Microseconds since the fakes were started.
    pub fn now_us(&self) -> u64 {
        self.clock().now_us()
    }

    /// Waits until this moment of the fakes' clock.
    pub async fn wait_until(&self, at_us: u64) {
        tokio::time::sleep_until(self.clock().instant(at_us)).await;
    }

    /// Probes until something is found, is wrong, or patience ends.
    pub async fn until<T>(
        &mut self,
        mut probe: impl FnMut(&mut Self) -> Probe<T> + Send,
    ) -> Result<T, String> {
        let mut again = tokio::time::interval(LOOK_EVERY);
        let deadline = tokio::time::Instant::now() + self.patience;
        loop {
            again.tick().await;
            self.take_puts();
            match probe(self) {
                Probe::Found(found) => return Ok(found),
                Probe::Wrong(reason) => return Err(reason),
                Probe::NotYet(last) if tokio::time::Instant::now() > deadline => {
                    return Err(format!("not within {:?}; seen last: {last}", self.patience));
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

    /// Status and text of a page: `/readyz` and `/metrics` of the one listener, all else of the admin API.
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

    /// Returns a POST to the admin API with a token of a user who may do everything; status and text of the answer.
    pub async fn post(&self, path: &str, body: &Value) -> Result<(u16, String), String> {
        let process = self.process.as_ref().ok_or("the controller does not run")?;
        let request = self.http.post(format!("http://{}{path}", process.admin)).bearer_auth("an-operator");
        let answer = request.body(body.to_string()).send().await;
        let answer = answer.map_err(|error| format!("{path}: {error:?}"))?;
        let status = answer.status().as_u16();
        Ok((status, answer.text().await.map_err(|error| format!("{path}: {error:?}"))?))
    }

    /// Ends the controller in good order, and says how it ended.
    pub async fn stop(&mut self) -> Result<ExitStatus, String> {
        self.end_by(Signal::TERM).await
    }

    /// Kills the controller: it does nothing more.
    pub async fn kill(&mut self) -> Result<(), String> {
        self.end_by(Signal::KILL).await.map(drop)
    }

    async fn end_by(&mut self, signal: Signal) -> Result<ExitStatus, String> {
        let mut process = self.process.take().ok_or("the controller does not run")?;
        let pid = i32::try_from(process.child.id()).ok().and_then(Pid::from_raw).ok_or("no process id")?;
        kill_process(pid, signal).map_err(|error| format!("the controller is gone: {error}"))?;
        self.until(|_| match process.child.try_wait() {
            Ok(Some(status)) => Probe::Found(status),
            Ok(None) => Probe::NotYet(format!("the controller runs on after {signal:?}")),
            Err(error) => Probe::Wrong(error.to_string()),
        })
        .await
    }

    /// Returns the lines of the log; one that is not JSON, such as a panic prints, is a string.
    pub fn log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.log_path()).unwrap_or_default();
        // A line that is being written at this moment has no end yet.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| Value::from(line))).collect()
    }

    fn log_path(&self) -> PathBuf {
        self.reaper.folder().join("controller.log")
    }

    /// Returns the details to inspect when the story has failed: the PUTs, and the end of the log.
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
