//! The environment of a migration: the simulated Azure Resource Manager, the stored journal, and a process that can end
//! after any call.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::machine::{Machine, Now};
use serde_json::Value;
use simulator_models::arm::topology::{POOL, Topology};
use simulator_models::arm::{self, ArmModel, Settings};

use crate::apply::{Apply, ApplyIn, ApplyOut, Outcome, Stage};
use crate::call::{Address, Call, Method, Reply};
use crate::inventory::{Cluster, Inventory, Membership, Node, Purpose, Survey, SurveyIn, SurveyOut};
use crate::journal::Journal;
use crate::plan::{Accepted, Plan};
use crate::resource_id::ResourceId;

const ENDPOINT: &str = "https://management.azure.com";
/// Maximum duration of a test's migration.
const MAX_RUN_US: u64 = 4 * 3_600 * 1_000_000;

/// Returns settings without quotas, in which every write is complete when it is answered, and a load balancer without
/// frontends has no other children.
pub(super) fn quick() -> Settings {
    Settings { quotas: None, pools_need_frontend: true, ..Settings::default() }
}

/// The end of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    Crashed,
    Finished(Outcome),
}

#[derive(Clone)]
pub(super) struct World {
    pub(super) arm: ArmModel,
    pub(super) now: u64,
    pub(super) purpose: Purpose,
    pub(super) membership: Membership,
    /// The stored journal.
    pub(super) stored: Option<String>,
    pub(super) accepted: Accepted,
    /// Number of calls and of requests to store the journal, of the last process.
    pub(super) calls: usize,
    /// The changes among them.
    pub(super) writes: Vec<(Method, String)>,
    /// Numbers of calls after which an external change had happened.
    pub(super) changes: Vec<usize>,
    /// Number of frontends that serve, with the time of each change.
    pub(super) serving: Vec<(u64, usize)>,
    watched: Vec<(String, String)>,
    watched_at: u64,
    /// True if the Lease is lost for a minute after every second change.
    pub(super) loses_lease: bool,
    has_lease: bool,
    /// True if the process does not wait for addresses that are in use.
    pub(super) is_impatient: bool,
    /// The stage in which the operator requests a stop.
    pub(super) stops_in: Option<Stage>,
    /// The stage in which a resource of another client is deleted.
    pub(super) leaves_in: Option<(Stage, String)>,
}

impl World {
    pub(super) fn new(arm: ArmModel) -> World {
        let mut world = World {
            arm,
            now: 0,
            purpose: Purpose::Standard,
            membership: Membership::NodeIpConfiguration,
            stored: None,
            accepted: Accepted::new(),
            calls: 0,
            writes: Vec::new(),
            changes: Vec::new(),
            serving: Vec::new(),
            watched: Vec::new(),
            watched_at: 0,
            loses_lease: false,
            has_lease: false,
            is_impatient: false,
            stops_in: None,
            leaves_in: None,
        };
        world.watched = world.frontends().into_keys().collect();
        world
    }

    pub(super) fn of(topology: Topology) -> World {
        let mut world = World::new(topology.build(quick()));
        world.accept_all();
        world
    }

    /// Accepts every change of an address, and the missing outbound path.
    pub(super) fn accept_all(&mut self) {
        let inventory = self.survey();
        let addresses = inventory.of_kind("publicipaddresses");
        self.accepted.extend(addresses.filter_map(|(_, body)| {
            body["properties"]["ipAddress"].as_str().filter(|ip| ip.contains(':')).map(str::to_owned)
        }));
        self.accepted
            .extend(inventory.of_kind("virtualmachinescalesets").map(|(id, _)| id.name().to_owned()));
        self.accepted.insert("no-outbound".to_owned());
    }

    fn ids(&self, kind: &str) -> Vec<ResourceId> {
        self.arm.ids().into_iter().map(ResourceId::new).filter(|id| id.kind() == kind).collect()
    }

    pub(super) fn body(&self, id: &ResourceId) -> Value {
        self.arm.json(id.as_str()).unwrap_or(Value::Null)
    }

    pub(super) fn cluster(&self) -> Cluster {
        let settings = self.arm.settings();
        let group = ResourceId::new(format!(
            "/subscriptions/{}/resourceGroups/{}",
            settings.subscription, settings.resource_group
        ));
        let machines = self.ids("virtualmachines");
        let nodes = machines.into_iter().enumerate().map(|(at, machine)| Node {
            name: machine.as_str().rsplit('/').take(3).collect::<Vec<_>>().join("-"),
            machine: Some(machine),
            addresses: vec![std::net::IpAddr::from([10, 240, 1, u8::try_from(at).unwrap()])],
            excluded: false,
        });
        Cluster {
            purpose: self.purpose,
            name: POOL.to_owned(),
            network: Some(group.child("providers/Microsoft.Network/virtualNetworks", "vnet")),
            resource_group: group.clone(),
            load_balancer_group: group,
            load_balancers: vec!["kubernetes".to_owned()],
            says_standard: true,
            membership: self.membership,
            api_server: Vec::new(),
            runs_on_a_node: false,
            nodes: nodes.collect(),
            services: Vec::new(),
            webhooks: Vec::new(),
        }
    }

    /// Returns every frontend with its address, by load balancer and name.
    pub(super) fn frontends(&self) -> BTreeMap<(String, String), String> {
        let mut all = BTreeMap::new();
        for lb in self.ids("loadbalancers") {
            let body = self.body(&lb);
            for frontend in body["properties"]["frontendIPConfigurations"].as_array().into_iter().flatten() {
                let properties = &frontend["properties"];
                let public = properties["publicIPAddress"]["id"].as_str().and_then(|id| self.arm.json(id));
                let address = match &public {
                    Some(public) => &public["properties"]["ipAddress"],
                    None => &properties["privateIPAddress"],
                };
                let name = frontend["name"].as_str().unwrap_or_default().to_owned();
                all.insert((lb.name().to_owned(), name), address.as_str().unwrap_or_default().to_owned());
            }
        }
        all
    }

    /// Watches only a few of many frontends from now on.
    pub(super) fn watch_some(&mut self) {
        let every = self.watched.len().div_ceil(4).max(1);
        self.watched = self.watched.iter().rev().step_by(every).cloned().collect();
        self.serving.clear();
        self.watch();
    }

    fn watch(&mut self) {
        self.watched_at = self.now;
        let serves = |(lb, frontend): &&(String, String)| self.arm.frontend_serves(lb, frontend);
        let count = self.watched.iter().filter(serves).count();
        if self.serving.last().is_none_or(|(_, last)| *last != count) {
            self.serving.push((self.now, count));
        }
    }

    fn send(&mut self, call: &Call) -> (Result<Reply, String>, u64) {
        let path = match &call.address {
            Address::Path(path) => path.clone(),
            Address::Url(url) => {
                url.strip_prefix(ENDPOINT).expect("Azure's URLs are on its endpoint").to_owned()
            }
        };
        let method = match call.method {
            Method::Get => arm::Method::Get,
            Method::Put => arm::Method::Put,
            Method::Delete => arm::Method::Delete,
            Method::Post => arm::Method::Post,
        };
        if call.writes() {
            assert!(self.has_lease, "{call:?} without the Lease");
            self.writes.push((call.method, path.clone()));
        }
        let if_match = call.if_match.iter().map(|etag| ("If-Match".to_owned(), etag.clone()));
        let body = call.body.as_ref().map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = arm::Request { method, path_and_query: path, headers: if_match.collect(), body };
        match self.arm.handle(&request, self.now) {
            arm::Reply::Answer(response) => {
                let header = |name: &str| response.header(name).map(str::to_owned);
                let seconds = header("Retry-After").and_then(|seconds| seconds.parse().ok());
                let reply = Reply {
                    status: response.status,
                    body: serde_json::from_slice(&response.body).unwrap_or(Value::Null),
                    operation: header("Azure-AsyncOperation").or_else(|| header("Location")),
                    retry_after: seconds.map(Duration::from_secs),
                };
                (Ok(reply), response.latency_us)
            }
            arm::Reply::Lost { latency_us } => (Err("the connection broke".to_owned()), latency_us),
            arm::Reply::Refused => (Err("no connection".to_owned()), 0),
        }
    }

    pub(super) fn survey(&mut self) -> Inventory {
        let mut survey = Survey::new(self.cluster());
        let mut out = Vec::new();
        survey.step(Now::from_micros(self.now), SurveyIn::Start, &mut out);
        loop {
            let now = Now::from_micros(self.now);
            let output = std::mem::take(&mut out);
            if output.is_empty() {
                self.now = survey.deadline().expect("the survey continues").as_micros().max(self.now + 1);
                survey.tick(Now::from_micros(self.now), &mut out);
            }
            for output in output {
                match output {
                    SurveyOut::Done(inventory) => return *inventory,
                    SurveyOut::Call(id, call) => {
                        let (answer, _) = self.send(&call);
                        survey.step(now, SurveyIn::Answer(id, answer), &mut out);
                    }
                }
            }
        }
    }

    pub(super) fn plan(&mut self) -> Plan {
        Plan::of(&self.survey(), &self.accepted.clone())
    }

    /// Returns the journal of a new process, and whether it is stored.
    fn journal(&mut self) -> (Journal, bool) {
        match &self.stored {
            Some(text) => (Journal::read(text).expect("the stored journal is readable"), true),
            None => (Journal::begun(self.survey()), false),
        }
    }

    /// Runs one process until it ends, or until this number of calls.
    pub(super) fn run(&mut self, crash_after: usize) -> End {
        let (journal, is_stored) = self.journal();
        let mut machine = Apply::new(journal, is_stored);
        if self.is_impatient {
            machine = machine.with_few_retakes();
        }
        (self.calls, self.writes, self.changes) = (0, Vec::new(), Vec::new());
        self.has_lease = false;
        let mut coming: BTreeMap<(u64, usize), ApplyIn> = BTreeMap::from([((self.now, 0), ApplyIn::Start)]);
        let mut number = 0;
        let end = self.now + MAX_RUN_US;
        loop {
            let deadline = machine.deadline().map_or(u64::MAX, Now::as_micros);
            let next = coming.keys().next().map_or(u64::MAX, |(at, _)| *at);
            let azure = self.arm.deadline().unwrap_or(u64::MAX);
            self.now = self.now.max(deadline.min(next).min(azure));
            assert!(self.now < end, "it does not end: {:?} {:?}", machine.stage(), coming.len());
            self.arm.tick(self.now);
            // Hundreds of addresses change at the same time, and observing them is slow.
            if self.now >= self.watched_at + 1_000_000 {
                self.watch();
            }
            let now = Now::from_micros(self.now);
            if self.happens_in(machine.stage()) {
                coming.insert((self.now, number + 2_000_000), ApplyIn::Stop);
            }
            let mut out = Vec::new();
            match coming.first_entry().filter(|entry| entry.key().0 <= self.now) {
                Some(entry) => {
                    let input = entry.remove();
                    if let ApplyIn::Lease(held) = &input {
                        self.has_lease = *held;
                    }
                    machine.step(now, input, &mut out);
                }
                None => machine.tick(now, &mut out),
            }
            for output in out {
                number += 1;
                match output {
                    ApplyOut::Call(id, call) => {
                        let (answer, latency) = self.send(&call);
                        let is_address =
                            matches!(&call.address, Address::Path(path) if path.contains("publicIP"));
                        if call.writes() && !is_address {
                            self.watch();
                        }
                        coming.insert((self.now + latency, number), ApplyIn::Answer(id, answer));
                        self.calls += 1;
                        if call.writes() {
                            self.changes.push(self.calls);
                            if self.loses_lease && self.writes.len().is_multiple_of(2) {
                                coming.insert((self.now, number + 1_000_000), ApplyIn::Lease(false));
                                coming.insert((self.now + 60_000_000, number), ApplyIn::Lease(true));
                            }
                        }
                    }
                    ApplyOut::Record(journal) => {
                        self.stored = Some(journal.text());
                        coming.insert((self.now, number), ApplyIn::Recorded(Ok(())));
                        self.calls += 1;
                        self.changes.push(self.calls);
                    }
                    ApplyOut::Lease(held) => drop(coming.insert((self.now, number), ApplyIn::Lease(held))),
                    ApplyOut::Progress { .. } => {}
                    ApplyOut::Finished(outcome) => return End::Finished(outcome),
                }
                if self.calls >= crash_after {
                    return End::Crashed;
                }
            }
        }
    }

    /// Makes the external changes of a stage. Returns whether the operator requests a stop.
    fn happens_in(&mut self, stage: Stage) -> bool {
        if let Some((_, id)) = self.leaves_in.take_if(|(of, _)| *of == stage) {
            self.delete(&id);
        }
        self.stops_in.take_if(|of| *of == stage).is_some()
    }

    /// Deletes a resource, as another client.
    pub(super) fn delete(&mut self, id: &str) {
        let path_and_query = format!("{id}?api-version=2025-05-01");
        let request = arm::Request {
            method: arm::Method::Delete,
            path_and_query,
            headers: Vec::new(),
            body: Vec::new(),
        };
        let arm::Reply::Answer(response) = self.arm.handle(&request, self.now) else {
            panic!("the connection breaks")
        };
        assert!(response.status < 300, "{id}: {}", String::from_utf8_lossy(&response.body));
    }

    /// Runs to the end.
    pub(super) fn finish(&mut self) -> Outcome {
        match self.run(usize::MAX) {
            End::Finished(outcome) => outcome,
            End::Crashed => unreachable!("no run makes that many calls"),
        }
    }

    /// Returns all resources in Azure, without the fields that change with each write.
    pub(super) fn state(&self) -> BTreeMap<String, String> {
        let ids = self.arm.ids().into_iter();
        ids.map(|id| {
            let mut body = self.arm.json(&id).unwrap_or(Value::Null);
            strip(&mut body);
            (id.to_ascii_lowercase(), body.to_string())
        })
        .collect()
    }

    /// Waits until no operation of Azure runs.
    pub(super) fn await_operations(&mut self) {
        while let Some(deadline) = self.arm.deadline() {
            self.now = self.now.max(deadline);
            self.arm.tick(self.now);
        }
        self.watch();
    }

    /// Returns the SKUs of all load balancers.
    pub(super) fn skus(&self) -> BTreeSet<String> {
        let all = self.ids("loadbalancers");
        all.iter().map(|id| self.body(id)["sku"]["name"].as_str().unwrap_or("Basic").to_owned()).collect()
    }
}

/// Removes the fields that change with each write, and the order of references.
fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for key in ["etag", "resourceGuid", "timeCreated"] {
                map.remove(key);
            }
            map.values_mut().for_each(strip);
            map.sort_keys();
        }
        Value::Array(items) => {
            items.iter_mut().for_each(strip);
            items.sort_by_key(ToString::to_string);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
