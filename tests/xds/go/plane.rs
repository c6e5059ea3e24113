//! A control plane of the library that most control planes in the field are built with: the program in
//! tests/go-control-plane as a child process, and the words that it understands. What those mean is for it to know.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use simulator::control_plane::Kind;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};

use crate::support::kubernetes::skip;
use crate::support::{PATIENCE, eventually};

/// Maximum number of commands that wait for their turn.
const COMMANDS: usize = 8;

/// The caches of the library.
#[derive(Clone, Copy, Debug)]
pub enum Cache {
    /// Snapshots for ADS: silent until a request names all endpoints of the snapshot.
    SnapshotAds,
    /// Snapshots of which requests may name a part.
    Snapshot,
    /// Resources with versions of their own, of which only changes are sent.
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

/// A running one. It is killed when this value goes, and ends by itself with this process.
pub struct GoPlane {
    program: PathBuf,
    cache: Cache,
    address: SocketAddr,
    child: Child,
    commands: mpsc::Sender<PendingCommand>,
}

/// A command, and where its answer goes.
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

/// Returns an endpoint at this address, as the program is told of it.
pub fn endpoint(address: &str) -> Value {
    json!({ "address": address, "port": 8080, "health": "HEALTHY", "zone": "zone-1" })
}

/// The same with other keys.
pub fn endpoint_with(address: &str, keys: &Value) -> Value {
    let mut endpoint = endpoint(address);
    for (key, value) in keys.as_object().into_iter().flatten() {
        endpoint[key] = value.clone();
    }
    endpoint
}

impl GoPlane {
    /// Starts one with this cache and nothing in it, on a free port; `None` as with [`program`].
    pub async fn start(cache: Cache) -> Option<Self> {
        let program = program("go-control-plane")?;
        Some(Self::start_on(program, cache, super::super::stage::FREE).await)
    }

    async fn start_on(program: PathBuf, cache: Cache, listen: SocketAddr) -> Self {
        // Another process may have the port meanwhile, and gives it back.
        let (child, address, commands) = eventually("the control plane listens", PATIENCE, || async {
            started(&program, cache, listen).await.map_err(|error| format!("{listen}: {error}"))
        })
        .await;
        Self { program, cache, address, child, commands }
    }

    /// Returns its server entry, as in a bootstrap.
    pub fn server(&self) -> Value {
        let address = self.address.to_string();
        json!({ "server_uri": address, "channel_creds": [{ "type": "insecure" }] })
    }

    /// Kills it: its port is refused.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("it is a child of this process");
    }

    /// Starts it again on its address after [`GoPlane::kill`], with an empty cache and versions from the beginning.
    pub async fn again(self) -> Self {
        Self::start_on(self.program, self.cache, self.address).await
    }

    /// Sends a command, and returns its answer.
    async fn send(&self, command: Value) -> Value {
        let (answer, answered) = oneshot::channel();
        let words = command.to_string();
        self.commands.send((command, answer)).await.expect("it takes commands");
        let line = answered.await.unwrap_or_else(|_| panic!("the control plane ended at {words}"));
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(answer["ok"], true, "{words}: {answer}");
        answer
    }

    /// Sets endpoints; it is not sent before [`GoPlane::publish`].
    pub async fn set(&self, name: &str, places: &[Value]) {
        self.send(json!({ "command": "set-endpoints", "name": name, "endpoints": places })).await;
    }

    /// Sets endpoints at these addresses, with which nothing is wrong.
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

    /// Makes known what was set and removed.
    pub async fn publish(&self) {
        self.send(json!({ "command": "publish" })).await;
    }

    /// Returns its counts so far.
    pub async fn stats(&self) -> Stats {
        Stats(self.send(json!({ "command": "stats" })).await["stats"].take())
    }

    /// Waits until it has counted so, and gives that.
    pub async fn counts(&self, what: &str, wanted: impl Fn(&Stats) -> bool) -> Stats {
        eventually(what, PATIENCE, || async {
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

    /// Returns the time for which ago its start is, in milliseconds.
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

/// Returns the process, where it listens, and the way to it.
async fn started(
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
    let first = first.ok_or("it ended at once")?;
    let address = first.parse().map_err(|error| format!("{first}: {error}"))?;
    let (commands, receiver) = mpsc::channel(COMMANDS);
    tokio::spawn(converse(receiver, input, lines));
    Ok((child, address, commands))
}

/// Passes commands on, one after the other, until the process or its caller is gone.
async fn converse(
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
