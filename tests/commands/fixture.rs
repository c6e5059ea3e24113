//! The test environment of commands: the simulator's fakes with a small cluster, the files for the binary, and the
//! check that nothing was written.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use simulator::models::arm::Method;
use simulator::models::kube::Resource;
use simulator::{Exchange, Fakes, FileOptions, Files, Journal, Settings, Size, World};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::admin::stage::PROGRAM;
use crate::support::{TEST_TIMEOUT, eventually, log_lines};

/// The running fakes, and the files with their addresses.
pub struct Fixture {
    pub fakes: Fakes,
    pub folder: TempDir,
    pub files: Files,
    pub world: World,
    journal: Journal,
    /// The API server's resourceVersion before the command.
    version: u64,
}

/// Exit code and output of a command.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Returns its output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Fixture {
    /// Creates fakes with this number of Services on two load balancers and six nodes, each with a pool in sync.
    pub async fn new(services: usize) -> Self {
        Self::with(services, &json!({})).await
    }

    /// Creates the same with these keys of controller.yaml.
    pub async fn with(services: usize, overlay: &Value) -> Self {
        let fakes = Fakes::start(Settings::default()).await.expect("loopback has free ports");
        let size = Size { services, load_balancers: 2, nodes: 6, endpoints: 2, dual_stack: false };
        let world = World::new(size, 1);
        world.populate(&fakes, &simulator::vnet_id()).await;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let anywhere = ([127, 0, 0, 1], 0).into();
        let options = FileOptions { health: anywhere, admin: anywhere, overlay: Some(overlay.clone()) };
        let files = Files::write(folder.path(), &fakes, &world, &options).expect("the folder can be written");
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "namespace": "kube-system", "name": "aks-managed-resource-locker" },
            "spec": { "holderIdentity": "", "leaseDurationSeconds": 900 },
        });
        fakes.apply(vec![lease]).await.expect("a good Lease");
        let journal = fakes.azure.ask(|azure, _| azure.wire.record()).await;
        let version = resource_version(&fakes).await;
        Self { fakes, folder, files, world, journal, version }
    }

    /// Counts writes to the cluster from now on. Called after a test has changed the cluster.
    pub async fn reset_baseline(&mut self) {
        self.version = resource_version(&self.fakes).await;
    }

    /// Changes the cloud configuration.
    pub fn configure(&self, change: impl FnOnce(&mut Value)) {
        let text = std::fs::read_to_string(&self.files.cloud_config).expect("the file is there");
        let mut cloud = serde_json::from_str(&text).expect("the file is JSON");
        change(&mut cloud);
        std::fs::write(&self.files.cloud_config, cloud.to_string()).expect("the folder can be written");
    }

    /// Returns the command with these arguments and the files of this environment.
    pub fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg(name).args(arguments).arg("--kubeconfig").arg(&self.files.kubeconfig);
        command
            .arg("--cloud-config")
            .arg(&self.files.cloud_config)
            .arg("--config")
            .arg(&self.files.controller);
        command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1").env_remove("RUST_LOG");
        for name in ["POD_NAMESPACE", "POD_NAME", "POD_UID", "DEPLOYMENT_NAME"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub async fn run(&self, name: &str, arguments: &[&str]) -> Ended {
        let output = self.command(name, arguments).output().await.expect("the binary under test");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Returns a path in the folder.
    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("temporary paths are text").to_owned()
    }

    /// Asserts that ARM was only read, and that nothing in the cluster has changed.
    pub async fn assert_nothing_written(&self) {
        let writes: Vec<String> = self
            .journal
            .borrow()
            .iter()
            .filter(|exchange| exchange.request.method != Method::Get)
            .map(|exchange| format!("{:?} {}", exchange.request.method, exchange.request.path_and_query))
            .collect();
        assert!(writes.is_empty(), "{writes:?}");
        assert_eq!(resource_version(&self.fakes).await, self.version, "an object of the cluster was written");
    }

    /// Returns the PUTs of pools that ARM received over HTTP, with their answers.
    pub fn puts(&self) -> Vec<Arc<Exchange>> {
        let is_put = |exchange: &&Arc<Exchange>| exchange.request.method == Method::Put;
        self.journal.borrow().iter().filter(is_put).cloned().collect()
    }

    /// Returns the number of requests to ARM.
    pub fn requests(&self) -> usize {
        self.journal.borrow().len()
    }

    /// Returns the ConfigMap of the controller.
    pub async fn config_map(&self) -> Option<Value> {
        let name = "azure-backend-pool-controller";
        self.fakes
            .cluster
            .ask(move |cluster, _| cluster.model.get(Resource::ConfigMaps, "kube-system", name))
            .await
    }
}

/// A running command or controller, with its log.
pub struct Running {
    pub child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts a command whose standard error is a file of this name.
    pub fn start(fixture: &Fixture, command: &str, arguments: &[&str], log: &str) -> Running {
        let log = fixture.folder.path().join(log);
        let file = std::fs::File::create(&log).expect("the folder can be written");
        let mut command: Command = fixture.command(command, arguments);
        let child = command.stdout(Stdio::piped()).stderr(file).spawn().expect("the binary under test");
        Running { child, log }
    }

    /// Starts a controller, waits until it leads, and returns the address of its admin API.
    pub async fn start_leader(fixture: &Fixture) -> (Running, String) {
        let running = Running::start(fixture, "run", &[], "controller.log");
        let admin = running.wait_until_leading().await;
        (running, admin)
    }

    /// Waits until the controller leads, and returns the address of its admin API.
    pub async fn wait_until_leading(&self) -> String {
        eventually("the controller leads", TEST_TIMEOUT, || async {
            let lines = self.lines();
            let leads = lines.iter().any(|line| line["message"] == "leadership" && line["role"] == "leader");
            let admin = self.listener("admin");
            admin.filter(|_| leads).ok_or_else(|| format!("{lines:?}"))
        })
        .await
    }

    /// Returns the address of a listener, once the controller has started.
    pub fn listener(&self, name: &str) -> Option<String> {
        let lines = self.lines();
        let started = lines.iter().find(|line| line["message"] == "started")?;
        started[name].as_str().map(str::to_owned)
    }

    /// Returns the lines of the log.
    pub fn lines(&self) -> Vec<Value> {
        log_lines(&self.log)
    }

    /// Waits until the log contains this text.
    pub async fn wait_for_log(&self, words: &str) {
        eventually(words, TEST_TIMEOUT, || async {
            let text = std::fs::read_to_string(&self.log).unwrap_or_default();
            if text.contains(words) { Ok(()) } else { Err(text) }
        })
        .await;
    }

    pub fn signal(&self, signal: Signal) {
        let id = self.child.id().expect("it runs");
        let id = Pid::from_raw(i32::try_from(id).expect("a process id")).expect("a process id");
        kill_process(id, signal).expect("it runs");
    }

    pub async fn ended(self) -> Ended {
        let output = self.child.wait_with_output().await.expect("it is our child");
        let stdout = String::from_utf8(output.stdout).expect("text");
        let stderr = std::fs::read_to_string(&self.log).expect("the log");
        Ended { code: output.status.code(), stdout, stderr }
    }
}

async fn resource_version(fakes: &Fakes) -> u64 {
    fakes.cluster.ask(|cluster, _| cluster.model.resource_version()).await
}
