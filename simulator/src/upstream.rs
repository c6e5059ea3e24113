//! Runs the same scenario without the controller: only with the model of the cloud-controller-manager and its updater.
//! The run uses simulated time, so that hours pass in seconds.

use std::collections::{BTreeMap, VecDeque};

use simulator_models::arm::ArmModel;
use simulator_models::ccm::{Answer, Call, CallTarget, Ccm, Counters, In, Settings};
use simulator_models::kube::{self, KubeModel, rfc3339};

use crate::azure::Azure;
use crate::churn::Churn;
use crate::cluster::Cluster;
use crate::expected_members::{self, Addresses, States};
use crate::files;
use crate::live_ccm::{
    ClusterObserver, answer_at_once, delete_events, difference, serve_azure, serve_cluster, starting,
    use_steady_state_settings,
};
use crate::owner::Model as _;
use crate::play::Outcome;
use crate::scenario::{Scenario, TimelineEntry};
use crate::world::{Scope, World};

/// Maximum simulated time after the last change, in microseconds.
const MAX_US: u64 = 24 * 3_600 * 1_000_000;
/// Step of the simulated clock while no work is pending, in microseconds.
const STEP_US: u64 = 1_000_000;

/// State at the end of a run.
pub struct Ended {
    /// Azure with its convergence tracker and lanes.
    pub azure: Azure,
    /// The cluster with its holds.
    pub cluster: Cluster,
    /// The manager's sums.
    pub counters: Counters,
    /// The number of changes, and the differences from the expected state.
    pub outcome: Outcome,
    /// End of the warm-up, in microseconds.
    pub began_us: u64,
    /// End of the run, in microseconds.
    pub ended_us: u64,
}

/// Runs a scenario with only upstream's updater.
#[must_use]
pub fn play(scenario: &Scenario, world: &World, seed: u64) -> Ended {
    let mut stage = Stage::new(scenario, world, seed);
    stage.run_until(|stage| {
        stage.ccm.counters().reconciled >= stage.scopes.len() as u64 && stage.ccm.is_idle()
    });
    stage.ccm.reconfigure(use_steady_state_settings);
    stage.azure.model.reconfigure(|settings| *settings = scenario.arm.clone());
    delete_events(&mut stage.cluster, stage.now);
    let (began_us, base) = (stage.now, stage.ccm.counters());
    stage.begin_us = began_us;
    stage.churn = Churn::new(scenario.pattern, seed).planned(world);
    stage.timeline = scenario.timetable().into();
    stage.run_until(|stage| stage.next_scenario_us().is_none());
    let last_us = stage.now;
    let settle_us = u64::try_from(scenario.settle.as_micros()).unwrap_or(u64::MAX);
    stage.run_until(|stage| {
        let since_us = stage.now - last_us;
        let rests = stage.ccm.is_idle() && since_us >= settle_us;
        stage.azure.convergence.out_of_sync() == 0 || rests || since_us >= MAX_US
    });
    let wanted = expected_members::expected_pools(&stage.cluster.model);
    let wrong_pools = expected_members::wrong_pools(&stage.azure.model, &wanted);
    let wrong_entries = stage.azure.wrong_entries(&States::of(&stage.cluster.model));
    let (changes, changing_us) = (stage.churn.made(), last_us - began_us);
    let outcome = Outcome { changes, changing_us, wrong_pools, wrong_entries };
    let counters = difference(stage.ccm.counters(), base);
    let (azure, cluster, ended_us) = (stage.azure, stage.cluster, stage.now);
    Ended { azure, cluster, counters, outcome, began_us, ended_us }
}

struct Stage {
    now: u64,
    begin_us: u64,
    azure: Azure,
    cluster: Cluster,
    ccm: Ccm,
    observer: ClusterObserver,
    world: World,
    churn: Churn,
    timeline: VecDeque<TimelineEntry>,
    addresses: Addresses,
    scopes: Vec<Scope>,
    /// Answers in flight, by their arrival time.
    arriving: BTreeMap<(u64, u64), In>,
    calls: u64,
}

impl Stage {
    /// Returns the simulated cluster before the first reconciliation; ARM answers without latency.
    fn new(scenario: &Scenario, world: &World, seed: u64) -> Self {
        let mut arm = scenario.arm.clone();
        answer_at_once(&mut arm);
        let mut azure = Azure::new(ArmModel::new(arm));
        let mut cluster = Cluster::new(KubeModel::new(kube::Settings::default()));
        let epoch_s = kube::Settings::default().epoch_s;
        world.fill_cluster(&mut cluster.model, &rfc3339(epoch_s), 0);
        world.fill_azure(&mut azure, &expected_members::expected_pools(&cluster.model), &files::vnet_id());
        let addresses = Addresses::of(&cluster.model);
        Self {
            now: 0,
            begin_us: 0,
            azure,
            ccm: Ccm::new(starting(Settings { seed, epoch_s, updater: true, ..Settings::default() })),
            observer: ClusterObserver::new(world.places()),
            scopes: (0..world.services().len()).map(|service| world.scope(service)).collect(),
            world: world.clone(),
            churn: Churn::new(crate::churn::Pattern::Still, seed),
            timeline: VecDeque::new(),
            addresses,
            arriving: BTreeMap::new(),
            calls: 0,
            cluster,
        }
    }

    fn run_until(&mut self, over: impl Fn(&Self) -> bool) {
        let mut inputs = self.observer.observe(&self.cluster);
        loop {
            let mut calls = Vec::new();
            for input in inputs.drain(..) {
                self.ccm.step(self.now, input, &mut calls);
            }
            self.ccm.tick(self.now, &mut calls);
            for call in &calls {
                self.send(call);
            }
            inputs = self.observer.observe(&self.cluster);
            if !inputs.is_empty() {
                continue;
            }
            if over(self) {
                return;
            }
            self.now = self.next_us();
            self.azure.tick(self.now);
            self.go_on();
            while let Some(entry) = self.arriving.first_entry().filter(|entry| entry.key().0 <= self.now) {
                inputs.push(entry.remove());
            }
            inputs.extend(self.observer.observe(&self.cluster));
        }
    }

    /// Returns the time of the next change.
    fn next_us(&self) -> u64 {
        let arrives = self.arriving.keys().next().map(|(at, _)| *at);
        let due = [arrives, self.ccm.deadline(), self.azure.deadline(), self.next_scenario_us()];
        let next = due.into_iter().flatten().min().unwrap_or(u64::MAX);
        next.clamp(self.now + 1, self.now + STEP_US)
    }

    fn next_scenario_us(&self) -> Option<u64> {
        let happens = self.timeline.front().map(|entry| entry.at_us);
        let due = [self.churn.next_due_us(&self.world), happens].into_iter().flatten().min()?;
        Some(due.saturating_add(self.begin_us))
    }

    /// Runs all due actions and changes.
    fn go_on(&mut self) {
        let time = rfc3339(kube::Settings::default().epoch_s + self.now / 1_000_000);
        let elapsed_us = self.now.saturating_sub(self.begin_us);
        while self.timeline.front().is_some_and(|entry| entry.at_us <= elapsed_us) {
            let Some(entry) = self.timeline.pop_front() else { break };
            let scene = entry.action.begin(&mut self.world, &time);
            scene.on_cluster(&mut self.cluster, self.now);
            scene.on_azure(&mut self.azure, self.now);
            if scene.changes_expected_members() {
                self.addresses = Addresses::of(&self.cluster.model);
                let there = (0..self.scopes.len()).filter(|at| !self.world.is_gone(*at));
                for at in there.collect::<Vec<_>>() {
                    self.want(at);
                }
            }
        }
        while self.churn.next_due_us(&self.world).is_some_and(|due| due <= elapsed_us) {
            let Some(change) = self.churn.make(&mut self.world) else { break };
            for object in self.world.slices(change.service, change.slice, &time) {
                let applied = self.cluster.model.apply(object, self.now);
                applied.expect("the model accepts the objects of the builders");
            }
            if !self.world.is_gone(change.service) {
                self.want(change.service);
            }
        }
    }

    fn want(&mut self, service: usize) {
        let wanted = self.scopes[service].wanted(&self.cluster.model, &self.addresses);
        self.azure.want(wanted, self.now);
    }

    fn send(&mut self, call: &Call) {
        let (answer, due_us): (Answer, u64) = match call.side {
            CallTarget::Kubernetes => serve_cluster(&mut self.cluster, call, self.now),
            CallTarget::Arm => serve_azure(&mut self.azure, call, self.now),
        };
        self.calls += 1;
        self.arriving.insert((due_us, self.calls), In::Answer(call.id, answer));
    }
}
