//! Random events in the cluster: pods are created and deleted, nodes and Services change, operators pause.

use std::collections::BTreeSet;

use model::ids::Family;
use model::object::TO_BE_DELETED;
use simulator_models::kube::KubeModel;

use crate::cluster::{Cluster, Pod, Service};
use crate::random::Random;
use draining::DrainingNodes;
pub use draining::{Notice, SPOT};

#[path = "story/draining.rs"]
mod draining;

/// Size of a scenario; a failing one is retried with a smaller size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Number of Services.
    pub services: usize,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of load balancers.
    pub balancers: usize,
    /// Seconds of churn.
    pub seconds: u64,
    /// Number of processes of the controller.
    pub replicas: usize,
    /// Faults.
    pub faults: Faults,
}

/// Faults of a world; a failing one is retried with fewer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// ARM fails, throttles, loses answers.
    pub arm: bool,
    /// The API server fails, lags, restarts.
    pub kube: bool,
    /// Processes crash, are suspended, lose their connections, and shut down.
    pub processes: bool,
    /// Requests about Leases are lost, late, answered twice, or refused.
    pub leases: bool,
    /// Receivers stall for seconds.
    pub edges: bool,
    /// Another client writes pools and load balancers without any lock.
    pub meddling: bool,
    /// Some processes crash repeatedly on startup.
    pub crashes: bool,
    /// Operators pause and resume (G6).
    pub policy: bool,
    /// The API server's storage is restored to an earlier state (W8).
    pub restores: bool,
    /// Nodes drain, return and are replaced (N1).
    pub leaving: bool,
    /// Control planes fill pools, and fail (X2).
    pub planes: bool,
    /// Fault that happens most of the time.
    pub often: Option<Often>,
}

/// A fault that is frequent in the runs that test it, and rare in others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Often {
    /// A replica takes over without the latest changes of endpoints.
    StaleTakeOver,
    /// A replica takes over while everything is paused.
    PausedTakeOver,
    /// A replica takes over during a pause that it has not read.
    UnheardPause,
    /// Lists are incomplete, but complete again before a second read starts (G2).
    LackingLists,
    /// Lists are incomplete so long that a second read returns the same.
    BrokenSource,
    /// ARM refuses every write with a retriable error.
    Refusals,
    /// Polls of operations fail.
    FailingPolls,
    /// ARM never answers for many managed load balancers, which are read before those in use (D3).
    Hanging,
    /// Watches are answered 200 and closed without a line, until the end of the run.
    EmptyWatches,
    /// ARM denies every write for a long time, and most events are not accepted.
    LostEvents,
    /// Changes are read long before they are applied.
    SlowIntake,
    /// Many Services are scaled to zero at the same time, while all nodes are healthy (G4).
    EmptiedServices,
    /// Most nodes get the label that excludes them, and lose it (G4).
    LabelledNodes,
    /// Load balancers are deleted and created again while a write of ours runs there (W2).
    CreatedAgain,
}

impl Often {
    /// All of these faults.
    pub const ALL: [Often; 14] = [
        Often::StaleTakeOver,
        Often::PausedTakeOver,
        Often::UnheardPause,
        Often::LackingLists,
        Often::BrokenSource,
        Often::Refusals,
        Often::FailingPolls,
        Often::Hanging,
        Often::EmptyWatches,
        Often::LostEvents,
        Often::SlowIntake,
        Often::EmptiedServices,
        Often::LabelledNodes,
        Often::CreatedAgain,
    ];
}

/// The story.
pub struct Story {
    /// Desired state of the cluster.
    pub cluster: Cluster,
    size: Size,
    random: Random,
    /// Which pods have an address of one family only, and which nodes are to be deleted.
    others: Random,
    names: u64,
    /// True if Services are created, deleted and changed: this keeps the cloud-controller-manager busy.
    changes_services: bool,
    /// True if draining nodes continue to drain when everything else is repaired.
    keeps_draining: bool,
    draining: DrainingNodes,
}

impl Story {
    /// Creates the start of a story.
    pub fn new(size: Size, mut random: Random, others: Random, draining: Random) -> Story {
        let changes_services = random.per_mille(500);
        let keeps_draining = random.per_mille(500);
        let (cluster, draining) = (Cluster::default(), DrainingNodes::new(draining));
        Story { cluster, size, random, others, names: 0, changes_services, keeps_draining, draining }
    }

    /// Writes the first state.
    pub fn begin(&mut self, kube: &mut KubeModel) {
        for number in 0..self.size.nodes {
            self.cluster.add_node(kube, 0, &format!("node-{number}"));
        }
        for _ in 0..self.size.services {
            self.create(kube, 0);
        }
    }

    /// Returns the time until the next event, in microseconds.
    pub fn pause(&mut self) -> u64 {
        if self.random.per_mille(150) {
            self.random.between(2_000_000, 12_000_000)
        } else {
            self.random.between(10_000, 900_000)
        }
    }

    /// Makes one change; returns a description.
    pub fn make_change(&mut self, kube: &mut KubeModel, now: u64) -> String {
        if let Some(words) = self.happens_to_many(kube, now) {
            return words;
        }
        let dice = self.random.below(1_000);
        match dice {
            0..640 => self.pods(kube, now),
            640..730 => self.scale(kube, now),
            730..820 => self.slices(kube, now),
            820..930 => self.nodes(kube, now),
            930..950 => match self.any_service() {
                Some(name) => {
                    self.change_service(kube, now, &name, |service| service.paused = !service.paused)
                }
                None => String::new(),
            },
            _ if self.changes_services => self.services(kube, now),
            _ => self.pods(kube, now),
        }
    }

    /// Makes the changes of runs with many concurrent events; in other runs returns `None`.
    fn happens_to_many(&mut self, kube: &mut KubeModel, now: u64) -> Option<String> {
        match self.size.faults.often? {
            Often::EmptiedServices if self.random.per_mille(30) => Some(self.empty_services(kube, now)),
            Often::LabelledNodes if self.random.per_mille(30) => Some(self.label_nodes(kube, now)),
            Often::EmptiedServices | Often::LabelledNodes => Some(self.add_pod(kube, now)),
            Often::StaleTakeOver
            | Often::PausedTakeOver
            | Often::UnheardPause
            | Often::LackingLists
            | Often::BrokenSource
            | Often::Refusals
            | Often::FailingPolls
            | Often::Hanging
            | Often::EmptyWatches
            | Often::LostEvents
            | Often::SlowIntake
            | Often::CreatedAgain => None,
        }
    }

    /// Removes all pods of most Services. Kubernetes keeps one of the slices of each.
    fn empty_services(&mut self, kube: &mut KubeModel, now: u64) -> String {
        let names: Vec<String> = self.cluster.services.keys().cloned().collect();
        for name in names.iter().filter(|_| self.random.per_mille(800)) {
            if let Some(service) = self.cluster.services.get_mut(name) {
                service.slices = vec![Vec::new()];
            }
            self.cluster.write_slices(kube, now, name);
        }
        "scale most Services to zero".to_owned()
    }

    /// Excludes all nodes but one, or none.
    fn label_nodes(&mut self, kube: &mut KubeModel, now: u64) -> String {
        let excluded = self.random.per_mille(500);
        let names: Vec<String> = self.cluster.nodes.keys().cloned().collect();
        for name in names.iter().skip(1) {
            self.change_node(kube, now, name, |node| node.excluded = excluded);
        }
        format!("most nodes are excluded: {excluded}")
    }

    /// Adds a pod to a Service.
    fn add_pod(&mut self, kube: &mut KubeModel, now: u64) -> String {
        let (Some(name), Some(node)) = (self.any_service(), self.any_node()) else { return String::new() };
        if let Some(slice) =
            self.cluster.services.get_mut(&name).and_then(|service| service.slices.first_mut())
        {
            slice.push(Pod::on(node, true));
        }
        self.cluster.write_slices(kube, now, &name);
        format!("one more pod of {name}")
    }

    fn any_service(&mut self) -> Option<String> {
        let names: Vec<String> = self.cluster.services.keys().cloned().collect();
        self.random.pick(&names)
    }

    fn any_node(&mut self) -> Option<String> {
        let names: Vec<String> = self.cluster.nodes.keys().cloned().collect();
        self.random.pick(&names)
    }

    fn new_pod(&mut self) -> Option<Pod> {
        let node = if self.random.per_mille(15) { String::new() } else { self.any_node()? };
        let pod = Pod::on(node, self.random.per_mille(300));
        let family = [Family::V4, Family::V6][self.others.index(2)];
        Some(Pod { only: self.others.per_mille(300).then_some(family), ..pod })
    }

    fn create(&mut self, kube: &mut KubeModel, now: u64) -> String {
        self.names += 1;
        let families = match self.random.below(10) {
            0..7 => vec![Family::V4],
            7..9 => vec![Family::V4, Family::V6],
            _ => vec![Family::V6],
        };
        let slices = 1 + self.random.index(3);
        let service = Service {
            name: format!("svc-{}", self.names),
            life: 0,
            families,
            local: self.random.per_mille(920),
            paused: false,
            deleting: false,
            returns: false,
            slices: (0..slices)
                .map(|_| (0..self.random.below(4)).filter_map(|_| self.new_pod()).collect())
                .collect(),
            lb: self.random.index(self.size.balancers),
            second_port: self.random.per_mille(200),
        };
        let words = format!("create {}", service.name);
        self.cluster.add_service(kube, now, service);
        words
    }

    fn pods(&mut self, kube: &mut KubeModel, now: u64) -> String {
        let Some(name) = self.any_service() else { return self.create(kube, now) };
        let (fresh, dice) = (self.new_pod(), self.random.below(100));
        let random = &mut self.random;
        let Some(service) = self.cluster.services.get_mut(&name) else { return String::new() };
        let index = random.index(service.slices.len());
        let Some(slice) = service.slices.get_mut(index) else { return String::new() };
        let at = random.index(slice.len());
        match (dice, slice.get_mut(at)) {
            (0..35, _) | (_, None) => slice.extend(fresh),
            (35..55, Some(pod)) => pod.ready = !pod.ready,
            (55..75, Some(pod)) => pod.terminating = true,
            (75..90, Some(pod)) if pod.terminating => {
                slice.remove(at);
            }
            (90.., Some(_)) => {
                // A pod moves: its successor is in another slice before it is gone.
                slice.remove(at);
                let other = random.index(service.slices.len());
                service.slices[other].extend(fresh);
            }
            (_, Some(pod)) => pod.terminating = true,
        }
        self.cluster.write_slices(kube, now, &name);
        format!("pods of {name}: {:?}", self.cluster.services.get(&name).map(|service| &service.slices))
    }

    fn scale(&mut self, kube: &mut KubeModel, now: u64) -> String {
        let Some(name) = self.any_service() else { return String::new() };
        let pods: Vec<Pod> = (0..3).filter_map(|_| self.new_pod()).collect();
        let to_zero = self.random.per_mille(600);
        if let Some(service) = self.cluster.services.get_mut(&name) {
            // Kubernetes keeps one slice of a Service without endpoints.
            service.slices = vec![if to_zero { Vec::new() } else { pods }];
        }
        self.cluster.write_slices(kube, now, &name);
        format!("scale {name} {}", if to_zero { "to zero" } else { "up" })
    }

    /// Moves pods between slices, and creates and deletes slices.
    fn slices(&mut self, kube: &mut KubeModel, now: u64) -> String {
        let Some(name) = self.any_service() else { return String::new() };
        let count = 1 + self.random.index(3);
        if let Some(service) = self.cluster.services.get_mut(&name) {
            let all: Vec<Pod> = service.slices.concat();
            service.slices = vec![Vec::new(); count];
            for pod in all {
                let index = self.random.index(count);
                service.slices[index].push(pod);
            }
        }
        self.cluster.write_slices(kube, now, &name);
        format!("{name} has {count} slices")
    }

    fn nodes(&mut self, kube: &mut KubeModel, now: u64) -> String {
        let (node, dice) = (self.any_node(), self.random.below(100));
        match (dice, node) {
            (0..25, _) | (_, None) => {
                let name = format!("node-{}", self.random.index(self.size.nodes + 2));
                let is_there = self.cluster.nodes.contains_key(&name);
                if !self.draining.retired_names.contains(&name) && (!is_there || self.random.per_mille(200)) {
                    self.cluster.add_node(kube, now, &name);
                }
                format!("add {name}")
            }
            (25..45, Some(name)) if self.cluster.nodes.len() > 2 => {
                self.cluster.delete_node(kube, now, &name);
                if self.random.per_mille(700) {
                    self.evict(kube, now);
                }
                format!("delete {name}")
            }
            (45..60, Some(name)) => {
                self.cluster.move_node(kube, now, &name);
                format!("new address of {name}")
            }
            (60..75, Some(name)) if self.others.per_mille(500) => self.mark_for_deletion(kube, now, &name),
            (60..75, Some(name)) => self.change_node(kube, now, &name, |node| node.excluded = !node.excluded),
            (_, Some(name)) => self.change_node(kube, now, &name, |node| node.ready = !node.ready),
        }
    }

    /// Marks a node for deletion, as the cluster autoscaler does, or unmarks it.
    fn mark_for_deletion(&mut self, kube: &mut KubeModel, now: u64, name: &str) -> String {
        if self.cluster.untaint(kube, now, name, |key| key == TO_BE_DELETED) {
            return format!("{name} will stay");
        }
        self.cluster.taint(kube, now, name, (TO_BE_DELETED, "1", "NoSchedule"));
        format!("{name} will be deleted")
    }

    fn change_node(
        &mut self,
        kube: &mut KubeModel,
        now: u64,
        name: &str,
        change: impl FnOnce(&mut crate::cluster::Node),
    ) -> String {
        if let Some(node) = self.cluster.nodes.get_mut(name) {
            change(node);
        }
        self.cluster.write_node(kube, now, name);
        format!("change {name}: {:?}", self.cluster.nodes.get(name))
    }

    /// Deletes the pods of deleted nodes.
    fn evict(&mut self, kube: &mut KubeModel, now: u64) {
        let names: Vec<String> = self.cluster.services.keys().cloned().collect();
        for name in names {
            let (nodes, services) = (&self.cluster.nodes, &mut self.cluster.services);
            let Some(service) = services.get_mut(&name) else { continue };
            let before = service.pods();
            service.slices.iter_mut().for_each(|slice| slice.retain(|pod| nodes.contains_key(&pod.node)));
            if service.pods() != before {
                self.cluster.write_slices(kube, now, &name);
            }
        }
    }

    fn services(&mut self, kube: &mut KubeModel, now: u64) -> String {
        let few = self.cluster.services.len() <= self.size.services;
        let (Some(name), dice) = (self.any_service(), self.random.below(100)) else {
            return self.create(kube, now);
        };
        match dice {
            0..25 if few => self.create(kube, now),
            0..35 => {
                self.cluster.delete_service(kube, now, &name);
                format!("delete {name}")
            }
            35..42 => {
                // It is recreated with the same name immediately after its deletion.
                self.cluster.delete_service(kube, now, &name);
                if let Some(service) = self.cluster.services.get_mut(&name) {
                    service.returns = true;
                }
                format!("recreate {name}")
            }
            42..50 => {
                self.cluster.delete_service(kube, now, &name);
                format!("rename {name}: {}", self.create(kube, now))
            }
            50..65 => self.change_service(kube, now, &name, |service| service.local = !service.local),
            65..85 => self.change_service(kube, now, &name, |service| service.paused = !service.paused),
            _ => self.change_service(kube, now, &name, |service| service.second_port = !service.second_port),
        }
    }

    fn change_service(
        &mut self,
        kube: &mut KubeModel,
        now: u64,
        name: &str,
        change: impl FnOnce(&mut Service),
    ) -> String {
        let Some(service) = self.cluster.services.get_mut(name) else { return String::new() };
        change(service);
        let words = format!(
            "change {name}: local {} paused {} second port {}",
            service.local, service.paused, service.second_port
        );
        self.cluster.write_service(kube, now, name);
        words
    }

    /// Moves the pods of each Service to one node, which was not the only required one before. All pools change.
    pub fn change_everything(&mut self, kube: &mut KubeModel, now: u64) {
        let nodes: Vec<String> = self.cluster.nodes.keys().cloned().collect();
        let names: Vec<String> = self.cluster.services.keys().cloned().collect();
        for name in names {
            let Some(service) = self.cluster.services.get_mut(&name) else { continue };
            let counts = |pod: &&Pod| !pod.terminating && !pod.node.is_empty();
            let hosts: BTreeSet<&String> =
                service.slices.iter().flatten().filter(counts).map(|pod| &pod.node).collect();
            let node = nodes.iter().find(|node| hosts != BTreeSet::from([*node]));
            let Some(node) = node.cloned() else { continue };
            service.slices = vec![vec![Pod::on(node, true)]];
            self.cluster.write_slices(kube, now, &name);
        }
    }

    /// Ends the churn: makes the repairs that the operator or the cluster would make.
    pub fn repair(&mut self, kube: &mut KubeModel, now: u64) {
        self.end_draining(kube, now);
        self.evict(kube, now);
        let names: Vec<String> = self.cluster.services.keys().cloned().collect();
        for name in names {
            self.change_service(kube, now, &name, |service| service.paused = false);
            if let Some(service) = self.cluster.services.get_mut(&name) {
                let ends = |family: &Family| service.endpoints(*family).all(|pod| pod.terminating);
                // The last pods end: pods that only terminate would otherwise keep the last members.
                if service.families.iter().any(ends) {
                    service.slices.iter_mut().for_each(|slice| slice.retain(|pod| !pod.terminating));
                    self.cluster.write_slices(kube, now, &name);
                }
            }
        }
        let excluded: Vec<String> = self
            .cluster
            .nodes
            .iter()
            .filter(|(_, node)| node.excluded)
            .map(|(name, _)| name.clone())
            .collect();
        for name in excluded {
            self.change_node(kube, now, &name, |node| node.excluded = false);
        }
    }
}
