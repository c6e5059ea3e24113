//! A small world: both servers, one or more cloud-controller-managers, and one simulated clock.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use simulator_models::arm::{self, ArmModel};
use simulator_models::ccm::{Answer, Call, CallTarget, Ccm, In, Settings, Verb};
use simulator_models::kube::build::{self, Endpoint, Family};
use simulator_models::kube::{self, KubeModel, Request, Resource};

/// One second.
pub const SECOND: u64 = 1_000_000;
/// The shared Lease.
pub const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/aks-managed-resource-locker";

enum Happening {
    Arrive(usize, Call, Answer),
    Wake(usize),
}

/// The world.
pub struct World {
    pub now: u64,
    pub kube: KubeModel,
    pub arm: ArmModel,
    pub ccms: Vec<Ccm>,
    calendar: BTreeMap<(u64, u64), Happening>,
    happened: u64,
    delivered: BTreeMap<String, Value>,
    revision: u64,
    /// Load balancer of each Service; `lb` if missing.
    pub balancers: BTreeMap<String, String>,
    /// Every call with its time and the status of its answer.
    pub trace: Vec<(u64, Call, u16)>,
    /// Added to each answer's delay, for races.
    pub delay: fn(u64) -> u64,
    /// Called after each event.
    pub check: fn(&World),
}

impl World {
    pub fn new(settings: Settings) -> World {
        World::with(vec![settings], arm::Settings::default())
    }

    pub fn with(settings: Vec<Settings>, arm: arm::Settings) -> World {
        let mut world = World {
            now: 0,
            kube: KubeModel::new(kube::Settings::default()),
            arm: ArmModel::new(arm),
            ccms: settings.into_iter().map(Ccm::new).collect(),
            calendar: BTreeMap::new(),
            happened: 0,
            delivered: BTreeMap::new(),
            revision: 0,
            balancers: BTreeMap::new(),
            trace: Vec::new(),
            delay: |_| 1_000,
            check: |_| {},
        };
        (0..world.ccms.len()).for_each(|at| world.arm_timer(at));
        world
    }

    /// Writes an object and updates all managers.
    pub fn apply(&mut self, object: Value) {
        self.kube.apply(object, self.now).expect("a servable object");
        self.sync();
    }

    pub fn node(&mut self, name: &str, ips: &[&str]) {
        self.apply(build::node(name, ips, &[], true, &[]));
    }

    pub fn slice(&mut self, service: &str, index: usize, nodes: &[&str]) {
        let endpoints: Vec<Endpoint> = nodes.iter().map(|node| Endpoint::ready(node)).collect();
        self.apply(build::endpoint_slice("demo", service, index, &endpoints, Family::V4));
    }

    pub fn service(&mut self, name: &str) {
        self.apply(build::service("demo", name, &[80], &[Family::V4]));
    }

    /// Creates three nodes, and the Service `web` with endpoints on the first.
    pub fn begin(&mut self) {
        for (name, ip) in [("n1", "10.0.0.1"), ("n2", "10.0.0.2"), ("n3", "10.0.0.3")] {
            self.node(name, &[ip]);
        }
        self.slice("web", 0, &["n1"]);
        self.service("web");
    }

    pub fn delete(&mut self, resource: Resource, name: &str) {
        let namespace = if resource == Resource::Nodes { "" } else { "demo" };
        assert!(self.kube.delete(resource, namespace, name, self.now), "{name} is there");
        self.sync();
    }

    /// Passes all changes in the cluster to the managers.
    pub fn sync(&mut self) {
        if self.revision == self.kube.revision() {
            return;
        }
        self.revision = self.kube.revision();
        let mut present = BTreeSet::new();
        let kinds = [Resource::Nodes, Resource::EndpointSlices, Resource::Services];
        for (at, resource) in kinds.into_iter().enumerate() {
            for object in self.kube.list(resource).collect::<Vec<_>>() {
                let metadata = &object["metadata"];
                let name = metadata["name"].as_str().expect("a name").to_owned();
                let id =
                    format!("{resource:?} {} {name}", metadata["namespace"].as_str().unwrap_or_default());
                present.insert(id.clone());
                if self.delivered.get(&id) == Some(&object) {
                    continue;
                }
                self.delivered.insert(id, object.clone());
                let load_balancer = self.balancers.get(&name).cloned().unwrap_or_else(|| "lb".to_owned());
                self.step_all(&match at {
                    0 => In::Node(object),
                    1 => In::Slice(object),
                    _ => In::Service { object, load_balancer },
                });
            }
        }
        let gone: Vec<String> = self.delivered.keys().filter(|id| !present.contains(*id)).cloned().collect();
        for id in gone {
            self.delivered.remove(&id);
            let parts: Vec<String> = id.split(' ').map(str::to_owned).collect();
            let (namespace, name) = (parts[1].clone(), parts[2].clone());
            self.step_all(&match parts[0].as_str() {
                "Nodes" => In::NodeGone { name },
                "EndpointSlices" => In::SliceGone { namespace, name },
                _ => In::ServiceGone { namespace, name },
            });
        }
    }

    /// Stops a node's machine, or starts it.
    pub fn machine(&mut self, node: &str, stopped: bool) {
        self.step_all(&In::Machine { node: node.to_owned(), stopped });
    }

    fn step_all(&mut self, input: &In) {
        for at in 0..self.ccms.len() {
            let mut calls = Vec::new();
            self.ccms[at].step(self.now, input.clone(), &mut calls);
            self.send(at, calls);
        }
    }

    fn send(&mut self, at: usize, calls: Vec<Call>) {
        for call in calls {
            let (answer, after) = call.serve(&mut self.kube, &mut self.arm, self.now);
            let status = match &answer {
                Answer::Arrived { status, .. } => *status,
                Answer::Lost => 0,
            };
            self.trace.push((self.now, call.clone(), status));
            let due = self.now + after + (self.delay)(self.happened);
            self.schedule(due, Happening::Arrive(at, call, answer));
        }
        self.arm_timer(at);
    }

    fn arm_timer(&mut self, at: usize) {
        if let Some(deadline) = self.ccms[at].deadline() {
            self.schedule(deadline.max(self.now), Happening::Wake(at));
        }
    }

    fn schedule(&mut self, due: u64, happening: Happening) {
        self.happened += 1;
        self.calendar.insert((due, self.happened), happening);
    }

    /// Advances time.
    pub fn run(&mut self, us: u64) {
        let until = self.now + us;
        while let Some(entry) = self.calendar.first_entry().filter(|entry| entry.key().0 <= until) {
            let ((due, _), happening) = entry.remove_entry();
            self.now = self.now.max(due);
            let mut calls = Vec::new();
            let at = match happening {
                Happening::Arrive(at, call, answer) => {
                    self.ccms[at].step(self.now, In::Answer(call.id, answer), &mut calls);
                    at
                }
                Happening::Wake(at) => {
                    if self.ccms[at].deadline().is_none_or(|deadline| deadline > self.now) {
                        continue;
                    }
                    self.ccms[at].tick(self.now, &mut calls);
                    at
                }
            };
            self.send(at, calls);
            self.sync();
            (self.check)(self);
        }
        self.now = until;
        self.arm.tick(until);
    }

    /// Advances time until nothing is left to do.
    pub fn run_until_idle(&mut self) {
        for _ in 0..2_000 {
            if self.ccms.iter().all(Ccm::is_idle) {
                return;
            }
            self.run(SECOND);
        }
        panic!("it never comes to rest");
    }

    pub fn get(&mut self, path: &str) -> Option<Value> {
        match self.kube.handle(&Request::new("GET", path), self.now) {
            kube::Reply::Answer { status: 200, body, .. } => serde_json::from_slice(&body).ok(),
            kube::Reply::Answer { .. } | kube::Reply::Watch(..) | kube::Reply::Refused => None,
        }
    }

    pub fn lease(&mut self) -> Value {
        self.get(LEASE).expect("the Lease is there")
    }

    /// Creates or replaces the Lease's spec and annotations.
    pub fn set_lease(&mut self, spec: Value, annotations: Value) {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {
            "name": "aks-managed-resource-locker", "namespace": "kube-system", "annotations": annotations},
            "spec": spec});
        self.kube.apply(lease, self.now).expect("a lease");
    }

    /// Returns the events of one reason, with their counts, by message.
    pub fn events(&self, reason: &str) -> Vec<(String, u64)> {
        let all = self.kube.list(Resource::Events);
        let wanted = all.filter(|event| event["reason"] == reason);
        wanted
            .map(|event| {
                (
                    event["message"].as_str().unwrap_or_default().to_owned(),
                    event["count"].as_u64().unwrap_or(0),
                )
            })
            .collect()
    }

    pub fn ips(&self, lb: &str, pool: &str) -> Option<Vec<&str>> {
        self.arm.member_ips(lb, pool)
    }

    /// Returns the calls to one side: time, verb and last part of the path.
    pub fn calls(&self, side: CallTarget) -> Vec<(u64, Verb, String)> {
        let wanted = self.trace.iter().filter(|(_, call, _)| call.side == side);
        wanted
            .map(|(at, call, _)| {
                let path = call.path_and_query.split('?').next().unwrap_or_default();
                (*at, call.verb, path.rsplit('/').next().unwrap_or_default().to_owned())
            })
            .collect()
    }

    /// Returns the bodies of the Lease's writes so far.
    pub fn lease_writes(&self) -> Vec<(Verb, Value)> {
        let about = |call: &Call| call.path_and_query.contains("/leases");
        let wanted = self.trace.iter().filter(|(_, call, _)| about(call) && call.body.is_some());
        wanted.map(|(_, call, _)| (call.verb, call.body.clone().unwrap_or_default())).collect()
    }
}

/// Returns the wall time at `now`, as in the cluster.
pub fn wall(now: u64) -> String {
    let epoch = kube::Settings::default().epoch_s;
    format!("{}.{:06}Z", kube::rfc3339(epoch + now / SECOND).trim_end_matches('Z'), now % SECOND)
}

/// Returns settings without the updater.
pub fn quiet() -> Settings {
    Settings { updater: false, ..Settings::default() }
}
