//! A control plane built with go-control-plane: the program in tests/go-control-plane as a child process, and the
//! commands that it accepts. The program documents them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use simulator::control_plane::Kind;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};

use crate::support::kubernetes::skip;
use crate::support::{TEST_TIMEOUT, eventually};

/// Capacity of the command channel.
const COMMAND_CAPACITY: usize = 8;

/// The caches of the library.
#[derive(Clone, Copy, Debug)]
pub enum Cache {
    /// Snapshots for ADS: silent until a request names all endpoints of the snapshot.
    SnapshotAds,
    /// Snapshots; a request may name a part of the resources.
    Snapshot,
    /// Resources with their own versions; only changed ones are sent.
    Linear,
}

impl Cache {
    fn name(self) -> &'static str {
        match self {
            Self::SnapshotAds => "snapshot-ads",
            Self::Snapshot => "snapshot",
            Self::Linear => "linear",
        }
    }
}

/// A running control plane. Dropping this value kills it, and it ends with this process.
pub struct GoPlane {
    program: PathBuf,
    cache: Cache,
    address: SocketAddr,
    child: Child,
    commands: mpsc::Sender<PendingCommand>,
}

/// A command, and the sender for its answer.
type PendingCommand = (Value, oneshot::Sender<String>);

/// Returns the path of one of the programs in tests/go-control-plane: in the folder `xds` of TOOLS_DIR, or of `.tools`
/// of this workspace. Without it the test is skipped.
pub fn program(name: &str) -> Option<PathBuf> {
    let named = std::env::var_os("TOOLS_DIR").filter(|name| !name.is_empty());
    let tools = named.map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools"), PathBuf::from);
    let program = tools.join("xds").join(name);
    if program.exists() {
        return Some(program);
    }
    let reason = format!(
        "there is no {}; `.ci/tools` builds it, and TOOLS_DIR names another folder of tools",
        program.display()
    );
    skip("CLUSTER_TESTS", &reason);
    None
}

/// Returns an endpoint with this address, in the program's input format.
pub fn endpoint(address: &str) -> Value {
    json!({ "address": address, "port": 8080, "health": "HEALTHY", "zone": "zone-1" })
}

/// Returns an endpoint with this address and these keys.
pub fn endpoint_with(address: &str, keys: &Value) -> Value {
    let mut endpoint = endpoint(address);
    for (key, value) in keys.as_object().into_iter().flatten() {
        endpoint[key] = value.clone();
    }
    endpoint
}

impl GoPlane {
    /// Starts a control plane with this cache, empty, on a free port; returns `None` as [`program`] does.
    pub async fn start(cache: Cache) -> Option<Self> {
        let program = program("go-control-plane")?;
        Some(Self::start_on(program, cache, super::super::stage::FREE).await)
    }

    async fn start_on(program: PathBuf, cache: Cache, listen: SocketAddr) -> Self {
        // Another process may hold the port for a short time.
        let (child, address, commands) = eventually("the control plane listens", TEST_TIMEOUT, || async {
            spawn(&program, cache, listen).await.map_err(|error| format!("{listen}: {error}"))
        })
        .await;
        Self { program, cache, address, child, commands }
    }

    /// Returns its server entry, as in a bootstrap.
    pub fn server(&self) -> Value {
        let address = self.address.to_string();
        json!({ "server_uri": address, "channel_creds": [{ "type": "insecure" }] })
    }

    /// Kills the process; connections to its port are refused afterwards.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("it is a child of this process");
    }

    /// Restarts the process on its address after [`GoPlane::kill`], with an empty cache and versions from 1.
    pub async fn restart(self) -> Self {
        Self::start_on(self.program, self.cache, self.address).await
    }

    /// Sends a command and returns the answer.
    async fn send(&self, command: Value) -> Value {
        let (answer, answered) = oneshot::channel();
        let words = command.to_string();
        self.commands.send((command, answer)).await.expect("it takes commands");
        let line = answered.await.unwrap_or_else(|_| panic!("the control plane ended at {words}"));
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(answer["ok"], true, "{words}: {answer}");
        answer
    }

    /// Sets endpoints. They are sent with the next [`GoPlane::publish`].
    pub async fn set(&self, name: &str, places: &[Value]) {
        self.send(json!({ "command": "set-endpoints", "name": name, "endpoints": places })).await;
    }

    /// Sets healthy endpoints at these addresses.
    pub async fn set_at(&self, name: &str, addresses: &[&str]) {
        let places: Vec<Value> = addresses.iter().map(|address| endpoint(address)).collect();
        self.set(name, &places).await;
    }

    /// Sets a cluster with these endpoints.
    pub async fn set_cluster(&self, name: &str, endpoints: &str) {
        self.send(json!({ "command": "set-cluster", "name": name, "edsName": endpoints })).await;
    }

    /// Removes a resource.
    pub async fn remove(&self, kind: Kind, name: &str) {
        let command = match kind {
            Kind::Clusters => "remove-cluster",
            Kind::Endpoints => "remove-endpoints",
        };
        self.send(json!({ "command": command, "name": name })).await;
    }

    /// Publishes the pending changes.
    pub async fn publish(&self) {
        self.send(json!({ "command": "publish" })).await;
    }

    /// Returns the program's statistics.
    pub async fn stats(&self) -> Stats {
        Stats(self.send(json!({ "command": "stats" })).await["stats"].take())
    }

    /// Waits until the statistics satisfy the condition, and returns them.
    pub async fn wait_for_stats(&self, what: &str, wanted: impl Fn(&Stats) -> bool) -> Stats {
        eventually(what, TEST_TIMEOUT, || async {
            let stats = self.stats().await;
            if wanted(&stats) { Ok(stats) } else { Err(stats.0.to_string()) }
        })
        .await
    }
}

/// Counts of the program since its start.
#[derive(Debug)]
pub struct Stats(Value);

impl Stats {
    fn number(value: &Value) -> u64 {
        value.as_u64().unwrap_or(0)
    }

    /// Returns the time since the program started, in milliseconds.
    pub fn elapsed_ms(&self) -> u64 {
        Self::number(&self.0["elapsedMs"])
    }

    /// Returns the number of open streams.
    pub fn open_streams(&self) -> u64 {
        Self::number(&self.0["openStreams"])
    }

    /// Returns a count of a kind of resource: requests, acks, nacks, responses or emptyResponses.
    pub fn of(&self, kind: Kind, count: &str) -> u64 {
        Self::number(&self.0["types"][kind.type_url()][count])
    }

    /// Returns a field of the last request of a kind: names, versionInfo, lastError or node.
    pub fn last(&self, kind: Kind, field: &str) -> &Value {
        &self.0["types"][kind.type_url()][field]
    }
}

/// Returns the process, its address and the command channel.
async fn spawn(
    program: &Path,
    cache: Cache,
    listen: SocketAddr,
) -> Result<(Child, SocketAddr, mpsc::Sender<PendingCommand>), String> {
    let mut command = Command::new(program);
    command.args(["-listen", &listen.to_string(), "-cache", cache.name()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let input = child.stdin.take().expect("its input is a pipe");
    let mut lines = BufReader::new(child.stdout.take().expect("its output is a pipe")).lines();
    let first = lines.next_line().await.map_err(|error| error.to_string())?;
    let first = first.ok_or("it ended without output")?;
    let address = first.parse().map_err(|error| format!("{first}: {error}"))?;
    let (commands, receiver) = mpsc::channel(COMMAND_CAPACITY);
    tokio::spawn(forward_commands(receiver, input, lines));
    Ok((child, address, commands))
}

/// Passes commands on, one after the other, until the process or its caller ends.
async fn forward_commands(
    mut commands: mpsc::Receiver<PendingCommand>,
    mut input: ChildStdin,
    mut lines: Lines<BufReader<ChildStdout>>,
) {
    while let Some((command, answer)) = commands.recv().await {
        let is_sent = input.write_all(format!("{command}\n").as_bytes()).await.is_ok();
        let Ok(Some(line)) = lines.next_line().await else { return };
        if !is_sent || answer.send(line).is_err() {
            return;
        }
    }
}
