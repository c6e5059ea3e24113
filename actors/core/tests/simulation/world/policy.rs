//! Operators who pause and resume, through any process or by editing our ConfigMap (G6), and who release held
//! removals (G4, G5).

use model::ids::{LbName, NodeName, PoolId, PoolName, ServiceKey};
use model::node::NodeState;
use model::operator_request::{OperatorAction, Request, RequestId, Scope};
use pool_core::route::Output;

use super::{World, WorldEvent};
use crate::notes;
use crate::plant::Plant;
use crate::process::{Process, ProcessState};
use crate::replica::{Actor, routed};
use crate::watchdog::OperatorAct;

/// Shortest and longest time between changes by operators, in microseconds.
const BETWEEN_US: (u64, u64) = (2_000_000, 40_000_000);

/// Interval at which the operator checks for alerts at the end, in microseconds.
const ALERT_US: u64 = 45_000_000;

impl World {
    /// Pauses or resumes something, as the operator.
    pub(super) fn change_policy(&mut self) {
        let dice = if self.plant == Some(Plant::OffUnheard) { 150 } else { self.wishing.below(1_000) };
        match dice {
            0..130 => self.edit_by_hand(),
            130..170 => self.switch_by_hand(),
            170..270 => {
                let scope = self.scope_of_release();
                if let Some(number) = self.any_running() {
                    self.ask(number, OperatorAction::Release(scope.clone()), scope, OperatorAct::Release);
                }
            }
            _ => self.ask_for_one(),
        }
        let pause = self.wishing.between(BETWEEN_US.0, BETWEEN_US.1);
        self.at(self.now + pause, WorldEvent::ChangePolicy);
    }

    fn scope(&mut self) -> Scope {
        let everything = self.wishing.per_mille(400);
        let services: Vec<ServiceKey> =
            self.story.cluster.services.values().map(|service| service.key()).collect();
        if everything || services.is_empty() {
            return Scope::Everything;
        }
        let index = self.wishing.index(services.len());
        let key = services[index].clone();
        if self.wishing.per_mille(500) {
            return Scope::Service(key);
        }
        let snapshot = self.processes.iter().rev().find_map(|process| process.snapshot.as_ref());
        let pool = snapshot.and_then(|snapshot| snapshot.services.get(&key)?.pools.first().cloned());
        let unknown = || PoolId::new(LbName::new("kubernetes"), PoolName::new("nobodys"));
        Scope::Pool(pool.unwrap_or_else(unknown))
    }

    /// Returns the scope of a release: held removals, or a waiting node (N5).
    fn scope_of_release(&mut self) -> Scope {
        let nodes: Vec<String> = self.story.cluster.nodes.keys().cloned().collect();
        if nodes.is_empty() || self.wishing.per_mille(500) {
            return self.scope();
        }
        let index = self.wishing.index(nodes.len());
        Scope::Node(NodeName::new(nodes[index].as_str()))
    }

    /// Disables the admin state by editing the ConfigMap, or enables it, as the operator (N4).
    fn switch_by_hand(&mut self) {
        let off = !notes::is_switched_off(&self.kube) || self.plant.is_some();
        self.write_switch(off);
    }

    fn write_switch(&mut self, off: bool) {
        self.record(format!("the operator edits the ConfigMap: admin state off {off}"));
        notes::switch_off(&mut self.kube, self.now, off);
        self.record_records_by_hand();
    }

    fn ask_for_one(&mut self) {
        let Some(number) = self.any_running() else { return };
        // Mostly, a paused scope is resumed, so that work continues.
        let paused = notes::paused(&self.kube);
        let resumes = !paused.is_empty() && self.wishing.per_mille(700);
        let scope = if resumes {
            let index = self.wishing.index(paused.len());
            paused.iter().nth(index).cloned().unwrap_or(Scope::Everything)
        } else {
            self.scope()
        };
        let (wanted, act) = if resumes {
            (OperatorAction::Resume(scope.clone()), OperatorAct::Resume)
        } else {
            (
                OperatorAction::Pause { scope: scope.clone(), by: Some("an operator".into()), reason: None },
                OperatorAct::Pause,
            )
        };
        self.ask(number, wanted, scope, act);
    }

    fn any_running(&mut self) -> Option<usize> {
        let running = (0..self.processes.len()).filter(|n| self.processes[*n].life == ProcessState::Runs);
        let running: Vec<usize> = running.collect();
        if running.is_empty() { None } else { Some(running[self.wishing.index(running.len())]) }
    }

    fn ask(&mut self, number: usize, wanted: OperatorAction, scope: Scope, act: OperatorAct) {
        self.asks += 1;
        let id = RequestId(self.asks);
        self.record(format!("the operator asks process {number}: {wanted:?}"));
        self.watchdog.on_request(self.now, number, id, scope, act);
        for delivery in routed(Output::Operator(Request { id, wanted })) {
            let (edge, _) = self.processes[number].replica.push(&Actor::Host, delivery);
            self.depart(number, edge);
        }
    }

    /// Checks for the alert that removals are stopped, and releases them if it fires, as the operator (G4).
    pub(super) fn answer_alert(&mut self) {
        let is_stopped = |number: &usize| {
            let Process { life, snapshot, .. } = &self.processes[*number];
            let guards = snapshot.as_ref().and_then(|snapshot| snapshot.guards);
            *life == ProcessState::Runs && guards.is_some_and(|guards| guards.stopped.is_some())
        };
        let stopped: Vec<usize> = (0..self.processes.len()).filter(is_stopped).collect();
        for number in stopped {
            self.ask(
                number,
                OperatorAction::Release(Scope::Everything),
                Scope::Everything,
                OperatorAct::Release,
            );
        }
        if self.answers_held {
            self.release_held_nodes();
        }
        self.at(self.now + ALERT_US, WorldEvent::AnswerAlert);
    }

    /// Checks for waiting nodes, and releases them, as the operator (N5).
    fn release_held_nodes(&mut self) {
        let mut waiting = Vec::new();
        for (number, Process { life, snapshot, .. }) in self.processes.iter().enumerate() {
            let nodes = snapshot
                .iter()
                .filter(|_| *life == ProcessState::Runs)
                .flat_map(|snapshot| snapshot.nodes.values());
            let held = nodes.filter(|node| node.state == NodeState::Held);
            waiting.extend(held.map(|node| (number, Scope::Node(node.name.clone()))));
        }
        for (number, scope) in waiting {
            self.ask(number, OperatorAction::Release(scope.clone()), scope, OperatorAct::Release);
        }
    }

    fn edit_by_hand(&mut self) {
        let paused = notes::paused(&self.kube).contains(&Scope::Everything);
        self.write_by_hand(!paused);
    }

    /// Pauses everything by editing the ConfigMap, unless everything is paused, as the operator.
    pub(super) fn pause_everything(&mut self) {
        if !notes::paused(&self.kube).contains(&Scope::Everything) {
            self.write_by_hand(true);
        }
    }

    fn write_by_hand(&mut self, paused: bool) {
        self.record(format!("the operator edits the ConfigMap: everything paused {paused}"));
        notes::pause_by_hand(&mut self.kube, self.now, paused);
        self.watchdog.record_pauses(self.now, &notes::paused(&self.kube));
    }

    /// Ends all pauses.
    pub(super) fn clear_policy(&mut self) {
        if notes::is_switched_off(&self.kube) {
            self.write_switch(false);
        }
        if notes::paused(&self.kube).is_empty() {
            return;
        }
        self.record("the operator ends all pauses".to_owned());
        notes::resume_all(&mut self.kube, self.now);
        self.watchdog.record_pauses(self.now, &notes::paused(&self.kube));
    }
}
