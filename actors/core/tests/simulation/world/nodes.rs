//! Draining nodes: their changes, the watchdog's records of them, and changes of their entries by other clients (N1,
//! N4).

use model::ids::CallId;
use model::object::TaintPatch;
use simulator_models::kube::Resource;

use super::{World, WorldEvent};
use crate::leases::Fate;
use crate::process::{Process, ProcessState};

/// Time within which a node is tainted after its eviction was announced, without faults (N1).
const MARKED_TIMEOUT_US: u64 = 75_000_000;
/// Delay after a write of a record or a taint after which its process is sometimes suspended or vanishes.
const TEMPTING_US: u64 = 50_000;

impl World {
    /// Makes a change to draining nodes.
    pub(super) fn change_draining_nodes(&mut self) {
        let words = self.story.change_draining_nodes(&mut self.kube, self.now);
        self.record_cluster();
        self.record_nodes();
        self.record_notices();
        self.record(format!("nodes: {words}"));
        let pause = self.story.draining_pause(self.now);
        self.at(self.now + pause, WorldEvent::Leave);
    }

    /// Records the sent notices.
    pub(super) fn record_notices(&mut self) {
        let notices = self.story.take_notices();
        for notice in notices.iter().filter(|notice| !notice.is_expired) {
            self.at(self.now + MARKED_TIMEOUT_US, WorldEvent::CheckMark(notice.uid.clone(), self.now));
        }
        self.watchdog.notices_given(notices);
    }

    pub(super) fn check_mark(&mut self, uid: &str, at: u64) -> Result<(), String> {
        let leads = |process: &Process| *process.identity == *self.watchdog.tenure.leader();
        let runs = |process: &Process| process.life == ProcessState::Runs && !process.ending;
        let leader = self.processes.iter().position(|process| leads(process) && runs(process));
        leader.map_or(Ok(()), |process| self.watchdog.is_marked(self.now, process, uid, at))
    }

    /// Records the current state of the nodes.
    pub(super) fn record_nodes(&mut self) {
        self.watchdog.record_nodes(self.now, &self.kube);
    }

    /// Records the entries that others have set Down.
    pub(super) fn record_set_down(&mut self) {
        for set in self.ccm.take_set_down() {
            self.watchdog.set_down_by_others(&set.lb, &set.pool, &set.backend, set.is_certain);
        }
    }

    /// Records the current records, which a process or another client has written.
    pub(super) fn record_records(&mut self, process: Option<usize>) -> Result<(), String> {
        let new = self.watchdog.record_records(self.now, process, &self.kube, &self.arm)?;
        if let Some(process) = process.filter(|_| !new.is_empty()) {
            self.record(format!("process {process} records {new:?}"));
            self.maybe_interrupt_soon(process);
        }
        Ok(())
    }

    /// Records them after changes that no process made.
    pub(super) fn record_records_by_hand(&mut self) {
        self.record_records(None).expect("the watchdog checks no process for it");
    }

    /// Lets a patch of a node's taints reach the API server, even if its process has ended.
    pub(super) fn patch(
        &mut self,
        process: usize,
        call: CallId,
        patch: &TaintPatch,
        fate: Fate,
    ) -> Result<(), String> {
        let node = |world: &World| world.kube.get(Resource::Nodes, "", patch.node.as_str());
        let before = node(self);
        let effects = self.processes[process].kubernetes.patch(&mut self.kube, self.now, call, patch, fate);
        let after = node(self);
        let identity = self.processes[process].identity.clone();
        let leads = self.processes[process].is_there() && *identity == *self.watchdog.tenure.leader();
        self.record(format!("process {process} patches {patch:?}: {}", before != after));
        if before != after {
            self.watchdog.patched(self.now, process, leads, before.as_ref(), after.as_ref())?;
            self.maybe_interrupt_soon(process);
        }
        self.record_nodes();
        self.follow(process, effects)
    }

    /// Sometimes a process vanishes just after a write on which others depend.
    fn maybe_interrupt_soon(&mut self, process: usize) {
        if self.stormy && self.size.faults.processes && self.leaving.per_mille(60) {
            let at = self.now + self.leaving.below(TEMPTING_US);
            self.at(at, WorldEvent::Kill(process));
        }
    }

    /// Sets whether the admin state is disabled in all processes from the beginning.
    pub fn switch(&mut self, off: bool) {
        self.settings.admin_state_off = off;
        self.watchdog.is_off = off;
    }

    /// Disables the admin state in the configuration. The processes restart one after the other (N4).
    pub(super) fn disable_admin_state(&mut self) {
        self.record("the admin state is switched off".to_owned());
        self.settings.admin_state_off = true;
        self.watchdog.is_off = true;
        let there = (0..self.processes.len()).filter(|number| self.processes[*number].is_there());
        for (index, number) in there.collect::<Vec<usize>>().into_iter().enumerate() {
            if self.processes[number].life == ProcessState::Runs {
                let at = self.now + 5_000_000 * (index as u64 + 1);
                self.at(at, WorldEvent::RequestShutdown(number));
            } else {
                self.kill(number);
            }
        }
    }
}
