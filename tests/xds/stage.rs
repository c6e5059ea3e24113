//! The test environment: a load balancer with pools that belong to no Service, scripted control planes, and the real
//! binary.
//!
//! There is also one Service, the canary. Once its pool is written, all earlier writes that were due on the same load
//! balancer have been sent too. So a test can show that a pool is not written without waiting for a timeout.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use envoy_types::pb::envoy::admin::v3::ClientResourceStatus;
use envoy_types::pb::google::protobuf::Any;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use simulator::Fakes;
use simulator::control_plane::{Code, ControlPlane, Endpoint, HealthStatus, Kind, Locality, endpoints};
use simulator::models::arm::{Kind as Request, Member, PoolSpec, VirtualNetwork};
use simulator::models::kube::Resource;
use simulator::models::kube::build;
use tempfile::TempDir;
use tokio::time::Instant;

use super::dump::{Dump, Shown};
use crate::admin::stage::{Prepared, Stage, add_service, node_ip, node_name, pool_of, set_endpoints};
use crate::support::{TEST_TIMEOUT, eventually};

/// The load balancer of all pools here.
pub const BALANCER: &str = simulator::CLUSTER_NAME;
/// Node id of the controller at the control planes.
pub const NODE: &str = "pools-of-the-test";
/// Note of a pool whose source has no error (X4).
pub const NODE_NOTE: &str = "xDS node id: pools-of-the-test";
/// A token of a user with all permissions.
pub const TOKEN: Option<&str> = Some("a-secret-token");
/// The server feature with which a data error ends the use of the cached resource (A88).
pub const FAIL_ON_DATA_ERRORS: &str = "fail_on_data_errors";

const CANARY: &str = "canary";

/// A free port of this machine.
pub const FREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Starts a control plane.
pub async fn control_plane() -> ControlPlane {
    ControlPlane::start().await.expect("loopback has free ports")
}

/// Returns endpoints of this name at these addresses.
pub fn endpoints_at(name: &str, addresses: &[&str]) -> Any {
    endpoints(name, [Locality::of(addresses.iter().map(|address| (*address, 8080)))])
}

/// Returns a locality of this priority, with endpoints in these states of health.
pub fn locality(priority: u32, all: &[(&str, HealthStatus)]) -> Locality {
    let endpoint =
        |(ip, health): &(&str, HealthStatus)| Endpoint { health: *health, ..Endpoint::at(ip, 8080) };
    Locality { priority, endpoints: all.iter().map(endpoint).collect(), ..Locality::of([]) }
}

/// Returns a server entry of the bootstrap.
pub fn server(plane: &ControlPlane, features: &[&str]) -> Value {
    json!({
        "server_uri": plane.address().to_string(),
        "channel_creds": [{ "type": "insecure" }],
        "server_features": features,
    })
}

/// The state before the controller is started.
pub struct Plan {
    prepared: Prepared,
    pools: Vec<Value>,
    keys: Value,
    cloud: Value,
}

/// A running controller.
pub struct TestEnvironment {
    pub stage: Stage,
    /// The folder of the bootstrap.
    folder: TempDir,
}

impl Plan {
    /// Creates a plan with the load balancer and the pool of the canary.
    pub async fn new() -> Self {
        let prepared = Prepared::new(1).await;
        add_service(&prepared.fakes, CANARY, &[0]).await;
        let keys = json!({
            "batching": { "quietPeriod": "20ms", "maxDelay": "500ms", "minInterval": "100ms" },
            "budget": { "writesPer5Minutes": 100_000, "readsPer5Minutes": 1_000_000 },
            "http": { "csdsListen": FREE.to_string() },
        });
        Self { prepared, pools: Vec::new(), keys, cloud: json!({}) }
    }

    /// Adds a pool with these members, this source, and a rule that belongs to no Service.
    pub async fn pool(self, name: &str, source: &str, members: &[&str]) -> Self {
        let rule = format!("edge-{name}");
        self.pool_with_rule(name, source, members, &rule).await
    }

    /// Adds a pool with this rule.
    pub async fn pool_with_rule(self, name: &str, source: &str, members: &[&str], rule: &str) -> Self {
        create_pool(&self.prepared.fakes, name, members, rule).await;
        self.listed(name, source)
    }

    /// Adds a listed pool that does not exist in Azure.
    pub fn listed(mut self, name: &str, source: &str) -> Self {
        self.pools.push(json!({ "loadBalancer": BALANCER, "backendPool": name, "source": source }));
        self
    }

    /// Replaces these keys of the configuration.
    pub fn with(mut self, section: &str, values: Value) -> Self {
        self.keys[section] = values;
        self
    }

    /// Sets these keys in the cloud configuration.
    pub fn with_cloud(mut self, cloud: Value) -> Self {
        self.cloud = cloud;
        self
    }

    /// Starts the controller with these servers, and waits until it leads and has compared everything.
    pub async fn start(self, servers: &[Value]) -> TestEnvironment {
        self.start_flagged(servers, &[]).await
    }

    /// Starts the controller with these servers and flags.
    pub async fn start_flagged(mut self, servers: &[Value], flags: &[&str]) -> TestEnvironment {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = write_bootstrap(&folder, servers);
        self.keys["pools"] = Value::from(self.pools);
        if self.keys["xds"].is_null() {
            self.keys["xds"] = json!({ "failback": "0s" });
        }
        self.keys["xds"]["bootstrap"] = json!(file);
        let stage = self.prepared.start_on_with(&self.keys, &self.cloud, flags).await;
        let env = TestEnvironment { stage, folder };
        env.wait_until_ready().await;
        env
    }
}

async fn create_pool(fakes: &Fakes, name: &str, members: &[&str], rule: &str) {
    let spec = PoolSpec {
        virtual_network: VirtualNetwork::Pool(simulator::vnet_id()),
        members: members.iter().map(|ip| (entry_name(ip), (*ip).to_owned())).collect(),
        ..PoolSpec::default()
    };
    let (pool, rule) = (name.to_owned(), rule.to_owned());
    let add = move |azure: &mut simulator::Azure, _: u64| {
        azure.model.add_pool(BALANCER, &pool, &spec);
        azure.model.add_rule(BALANCER, &rule, &pool, true);
    };
    fakes.azure.ask(add).await;
}

/// Writes a bootstrap with these servers.
pub fn write_bootstrap(folder: &TempDir, servers: &[Value]) -> PathBuf {
    let file = folder.path().join("bootstrap.json");
    let bootstrap = json!({ "xds_servers": servers, "node": { "id": NODE } });
    std::fs::write(&file, bootstrap.to_string()).expect("the folder can be written");
    file
}

/// Returns the name of an address's entry in a pool (X2).
pub fn entry_name(ip: &str) -> String {
    ip.replace(['.', ':'], "-")
}

/// Converts a name to upper snake case: `NotFound` to `NOT_FOUND`.
fn upper_snake_case(name: &str) -> String {
    let mut shouted = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !shouted.is_empty() {
            shouted.push('_');
        }
        shouted.push(letter.to_ascii_uppercase());
    }
    shouted
}

fn set(addresses: &[&str]) -> BTreeSet<String> {
    addresses.iter().map(ToString::to_string).collect()
}

impl TestEnvironment {
    async fn wait_until_ready(&self) {
        self.stage.wait_until_ready().await;
        let word = if self.stage.log().iter().any(|line| line["dry_run"] == true) { "" } else { "in sync: " };
        self.stage.verdict(CANARY, word).await;
    }

    /// Shuts the controller down and starts another one with the same files.
    pub async fn restart(mut self, log: &str) -> Self {
        self.stage.signal(Signal::TERM);
        assert_eq!(self.stage.ended().await.code(), Some(0), "{:?}", self.stage.log());
        self.start_again(log).await
    }

    /// Kills the controller with SIGKILL, so that its Lease must expire, and starts another one with this log.
    pub async fn kill_and_restart(mut self, log: &str) -> Self {
        self.stage.signal(Signal::KILL);
        assert_eq!(self.stage.ended().await.code(), None, "{:?}", self.stage.log());
        self.start_again(log).await
    }

    async fn start_again(self, log: &str) -> Self {
        let stage = self.stage.another(log).await;
        let env = Self { stage, folder: self.folder };
        env.wait_until_ready().await;
        env
    }

    /// Creates a pool with these members and a rule that belongs to no Service.
    pub async fn create_pool(&self, name: &str, members: &[&str]) {
        create_pool(&self.stage.fakes, name, members, &format!("edge-{name}")).await;
    }

    /// Returns the members of a pool in Azure.
    pub async fn entries(&self, pool: &str) -> Vec<Member> {
        self.stage.fakes.members(BALANCER, pool).await.expect("there is such a pool")
    }

    /// Returns the addresses in a pool.
    pub async fn members(&self, pool: &str) -> BTreeSet<String> {
        self.entries(pool).await.into_iter().map(|member| member.ip).collect()
    }

    /// Waits until a pool has exactly these addresses, with these admin states.
    pub async fn wait_for_admin_states(&self, pool: &str, wanted: &[(&str, &str)]) {
        let wanted: BTreeMap<String, String> =
            wanted.iter().map(|(ip, state)| ((*ip).to_owned(), (*state).to_owned())).collect();
        eventually(&format!("{pool} has {wanted:?}"), TEST_TIMEOUT, || async {
            let entries = self.entries(pool).await;
            let states: BTreeMap<String, String> =
                entries.into_iter().map(|entry| (entry.ip, entry.admin_state)).collect();
            if states == wanted { Ok(()) } else { Err(format!("{states:?}")) }
        })
        .await;
    }

    /// Waits until a pool has exactly these addresses.
    pub async fn wait_for_members(&self, pool: &str, addresses: &[&str]) {
        let wanted = set(addresses);
        eventually(&format!("{pool} has {addresses:?}"), TEST_TIMEOUT, || async {
            let members = self.members(pool).await;
            if members == wanted { Ok(()) } else { Err(format!("{members:?}; {:?}", self.tail())) }
        })
        .await;
    }

    /// Returns the last lines of the log.
    fn tail(&self) -> Vec<Value> {
        let mut log = self.stage.log();
        log.split_off(log.len().saturating_sub(20))
    }

    /// Returns the number of PUTs of a pool, with any answer.
    pub async fn puts(&self, pool: &str) -> usize {
        let log = self.stage.fakes.log().await;
        let is_put = |kind: Request, of: Option<&str>| {
            kind == Request::PoolPut && of.is_some_and(|of| of.eq_ignore_ascii_case(pool))
        };
        log.iter().filter(|entry| is_put(entry.kind, entry.pool.as_deref())).count()
    }

    /// Returns the number of PUTs of all pools except the canary, with any answer.
    pub async fn puts_of_others(&self) -> usize {
        let (log, canary) = (self.stage.fakes.log().await, pool_of(CANARY));
        let is_others = |of: Option<&str>| of.is_none_or(|of| !of.eq_ignore_ascii_case(&canary));
        log.iter().filter(|entry| entry.kind == Request::PoolPut && is_others(entry.pool.as_deref())).count()
    }

    /// Changes the canary, and waits until all writes that were due before have been sent.
    pub async fn flush_writes(&self) {
        for _ in 0..2 {
            let is_on_first = self.members(&pool_of(CANARY)).await.contains(&node_ip(0));
            let next = usize::from(is_on_first);
            set_endpoints(&self.stage.fakes, CANARY, &[build::Endpoint::ready(&node_name(next))]).await;
            self.wait_for_members(&pool_of(CANARY), &[&node_ip(next)]).await;
        }
        // Other due writes may be less urgent. The snapshot must be newer than the write of the canary.
        let written = Instant::now();
        self.stage
            .shown("/api/v1/queues", |answer| {
                let is_due = |pool: &Value| {
                    let state = pool["state"].as_str().unwrap_or_default();
                    ["waiting", "due", "attempting"].contains(&state)
                };
                let age = answer["snapshotAgeSeconds"].as_f64().expect("an age");
                age < written.elapsed().as_secs_f64()
                    && !answer["items"].as_array().expect("pools").iter().any(is_due)
            })
            .await;
    }

    /// Asserts that a pool has exactly these members, and was written this number of times in total.
    pub async fn assert_members_and_puts(&self, pool: &str, addresses: &[&str], puts: usize) {
        assert_eq!(self.members(pool).await, set(addresses), "{pool}: {:?}", self.tail());
        assert_eq!(self.puts(pool).await, puts, "{pool}: {:?}", self.tail());
    }

    /// Returns the CSDS dump.
    pub async fn dump(&self) -> Dump {
        Dump::of(&self.stage.csds).await
    }

    /// Waits until CSDS shows a resource in the wanted state, and returns it.
    pub async fn wait_for_csds(&self, kind: Kind, name: &str, wanted: impl Fn(&Shown) -> bool) -> Shown {
        eventually(&format!("CSDS shows {kind:?} {name}"), TEST_TIMEOUT, || async {
            let shown = self.dump().await.shown(kind, name);
            match shown {
                Some(shown) if wanted(&shown) => Ok(shown),
                shown => Err(format!("{shown:?}")),
            }
        })
        .await
    }

    /// Waits until CSDS shows these endpoints in this state, and returns them.
    pub async fn wait_for_csds_state(&self, name: &str, state: ClientResourceStatus) -> Shown {
        self.wait_for_csds(Kind::Endpoints, name, |shown| shown.state == state).await
    }

    /// Waits until the admin API shows a pool in the wanted state, and returns it.
    pub async fn wait_for_pool(&self, pool: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/api/v1/queues/{BALANCER}/{pool}");
        self.stage.shown(&path, |answer| wanted(&answer["pool"])).await["pool"].clone()
    }

    /// Waits until `/api/v1/resources` shows a source in the wanted state, and returns it.
    pub async fn wait_for_source(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let find = |answer: &Value| {
            let sources = answer["sources"].as_array().cloned().unwrap_or_default();
            sources.into_iter().find(|source| source["source"] == name)
        };
        let wanted = |answer: &Value| find(answer).is_some_and(|source| wanted(&source));
        find(&self.stage.shown("/api/v1/resources", wanted).await).expect("it was there")
    }

    /// Asserts that the admin API and CSDS show the same state of all resources. Nothing may change in the meantime.
    pub async fn assert_admin_api_matches_csds(&self) {
        let (answer, dump) = (self.stage.get("/api/v1/resources").await, self.dump().await);
        let items = answer["items"].as_array().expect("resources");
        assert_eq!(items.len(), dump.len(), "{answer}");
        for item in items {
            let text = |field: &str| item[field].as_str().unwrap_or_default();
            let kind = Kind::ALL.into_iter().find(|kind| kind.type_url().ends_with(text("type")));
            let shown = dump.shown(kind.expect("a kind"), text("name")).expect("CSDS shows it too");
            assert_eq!(
                (text("state"), text("version")),
                (shown.state.as_str_name(), &*shown.version),
                "{item}"
            );
            let (version, words) = shown.error.unwrap_or_default();
            let error = &item["error"];
            let field_of = |field: &str| error[field].as_str().unwrap_or_default();
            assert_eq!(field_of("version"), &*version, "{item}");
            // An error without a message has only its code, which only CSDS shows (X4).
            if words == "NOT_FOUND" {
                assert_eq!(field_of("message"), "it does not exist", "{item}");
            } else {
                assert_eq!(field_of("message"), &*words, "{item}");
            }
        }
    }

    /// Waits until the note of a pool contains this text, and returns the note (X4).
    pub async fn wait_for_note(&self, pool: &str, words: &str) -> String {
        let shown =
            self.wait_for_pool(pool, |shown| shown["note"].as_str().is_some_and(|note| note.contains(words)));
        shown.await["note"].as_str().expect("a note").to_owned()
    }

    /// Waits until the source of a pool has no error: its note is then only the node id (X4).
    pub async fn wait_for_no_error(&self, pool: &str) {
        self.wait_for_pool(pool, |shown| shown["note"] == NODE_NOTE).await;
    }

    /// Returns the number of reports with this reason. A repeated Event exists once, with a count.
    pub async fn times_reported(&self, reason: &str) -> u64 {
        let events = self.event_objects().await;
        let of_reason = events.iter().filter(|event| event["reason"] == reason);
        of_reason.map(|event| event["count"].as_u64().expect("a count")).sum()
    }

    /// Waits until this reason was reported this number of times, and asserts that it was not reported more often.
    pub async fn wait_for_reports(&self, reason: &str, times: u64) {
        eventually(&format!("{reason} was reported {times} times"), TEST_TIMEOUT, || async {
            let times_so_far = self.times_reported(reason).await;
            if times_so_far >= times { Ok(()) } else { Err(times_so_far.to_string()) }
        })
        .await;
        let events = self.events(reason).await;
        assert_eq!(self.times_reported(reason).await, times, "{reason}: {events:?}");
    }

    /// Returns the sum of the series of a metric that have all these labels; NaN if there is no such series.
    pub async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let text = self.stage.health("/metrics").await.text;
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        let series = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        });
        let values = series.map(|line| {
            let value = line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
            value.expect("a value")
        });
        values.reduce(|sum, value| sum + value).unwrap_or(f64::NAN)
    }

    /// Waits until the sum of the series of a metric with all these labels has this value.
    pub async fn wait_for_metric(&self, name: &str, labels: &[(&str, &str)], wanted: u32) {
        eventually(&format!("{name} {labels:?} is {wanted}"), TEST_TIMEOUT, || async {
            let measured = self.metric(name, labels).await;
            if (measured - f64::from(wanted)).abs() < 0.5 { Ok(()) } else { Err(measured.to_string()) }
        })
        .await;
    }

    /// Waits until the metric counts this number of watched resources of this kind in this cache state (A78).
    pub async fn wait_for_cache_count(&self, kind: Kind, state: &str, count: u32) {
        let resource_type = kind.type_url().trim_start_matches("type.googleapis.com/");
        let labels = [("grpc_xds_cache_state", state), ("grpc_xds_resource_type", resource_type)];
        self.wait_for_metric("grpc_xds_client_resources", &labels, count).await;
    }

    /// Waits until the cluster has an Event with this reason and these texts, and returns its message.
    pub async fn wait_for_event(&self, reason: &str, words: &[&str]) -> String {
        eventually(&format!("an event {reason} with {words:?}"), TEST_TIMEOUT, || async {
            let events = self.events(reason).await;
            let found = events.iter().find(|message| words.iter().all(|word| message.contains(word)));
            found.cloned().ok_or_else(|| format!("{events:?}"))
        })
        .await
    }

    /// Returns the messages of all events of this reason.
    pub async fn events(&self, reason: &str) -> Vec<String> {
        let of_reason = self.all_events().await.into_iter().filter(|(of, _)| of == reason);
        of_reason.map(|(_, message)| message).collect()
    }

    async fn event_objects(&self) -> Vec<Value> {
        let list = |cluster: &mut simulator::Cluster, _: u64| {
            cluster.model.list(Resource::Events).collect::<Vec<Value>>()
        };
        self.stage.fakes.cluster.ask(list).await
    }

    /// Returns the reasons and messages of all events.
    async fn all_events(&self) -> Vec<(String, String)> {
        let events = self.event_objects().await;
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        events.iter().map(|event| (text(event, "reason"), text(event, "message"))).collect()
    }

    /// Asserts that neither Events nor the notes of these pools contain a status code of xDS (X4).
    pub async fn assert_no_codes_shown(&self, pools: impl IntoIterator<Item = &str>) {
        let mut texts = self.all_events().await;
        assert!(!texts.is_empty(), "there are events");
        for name in pools {
            let path = format!("/api/v1/queues/{BALANCER}/{name}");
            // A pool without an assignment has no queue.
            let answer = self.stage.admin(Method::GET, &path).await;
            if answer.status != 404 {
                assert_eq!(answer.status, 200, "{answer:?}");
                let note = answer.json()["pool"]["note"].as_str().expect("a note").to_owned();
                texts.push((name.to_owned(), note));
            }
        }
        let codes = [
            Code::NotFound,
            Code::PermissionDenied,
            Code::InvalidArgument,
            Code::Unavailable,
            Code::Internal,
        ];
        for (of, words) in texts {
            for code in codes {
                let name = format!("{code:?}");
                assert!(!words.contains(&name) && !words.contains(&upper_snake_case(&name)), "{of}: {words}");
            }
        }
    }

    /// Asserts that the log has no errors.
    pub fn assert_no_logged_errors(&self) {
        let errors: Vec<Value> = self
            .stage
            .log()
            .into_iter()
            .filter(|line| line["level"] == "ERROR" || !line.is_object())
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
}
