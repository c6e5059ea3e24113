//! The course of a world: its start, the end of its churn and faults, and the last changes if only changes correct
//! anything.

use simulator_models::arm::Latency;

use super::{World, WorldEvent};
use crate::fault_injection;
use crate::notes;
use crate::process::{ProcessState, unanswered_balancers};

/// Time until everything has been read again: a read of all load balancers, with some margin.
const SEEN_AGAIN_US: u64 = 120_000_000;

/// Longer than any world lasts.
const FOR_GOOD_US: u64 = 24 * 3_600_000_000;

impl World {
    /// Creates the first state of the cluster, and sends the first inputs to the machines.
    ///
    /// # Errors
    /// A finding of the watchdog.
    pub fn begin(&mut self) -> Result<(), String> {
        self.story.begin(&mut self.kube);
        if self.keeps_notes {
            notes::touch(&mut self.kube, self.now);
        }
        self.record_cluster();
        self.record_nodes();
        self.create_first_resources()?;
        fault_injection::hang_reads(
            &mut self.arm,
            unanswered_balancers(self.settings).map(|lb| lb.to_string()),
        );
        self.add_listed();
        for event in [
            WorldEvent::Story,
            WorldEvent::Leave,
            WorldEvent::Ccm,
            WorldEvent::Meddle,
            WorldEvent::ArmWeather,
            WorldEvent::KubeWeather,
            WorldEvent::Fault,
            WorldEvent::ChangePolicy,
        ] {
            let at = self.now + self.delays.between(0, 5_000_000);
            self.at(at, event);
        }
        if self.size.faults.restores {
            self.plan_restore();
        }
        for slot in 0..self.size.replicas {
            let later = if slot == 0 { 0 } else { self.fates.below(20_000_000) };
            self.at(self.now + later, WorldEvent::Start(slot));
        }
        Ok(())
    }

    /// Lets the cloud-controller-manager create the resources of the first Services, with a fast ARM.
    pub(super) fn create_first_resources(&mut self) -> Result<(), String> {
        let arm_settings = self.arm.settings().clone();
        let fast = Latency::Fixed { us: 1_000 };
        self.arm.reconfigure(|settings| {
            (settings.get_latency, settings.put_latency, settings.operation) = (fast, fast, None);
        });
        self.plan_ccm(0);
        while self.now == 0 || !self.ccm.is_done(&self.story.cluster) && self.now < 60_000_000 {
            self.run_until(self.now + 100_000)?;
        }
        self.arm.reconfigure(|settings| *settings = arm_settings);
        Ok(())
    }

    /// Ends the churn and all faults; returns when the last suspended process resumes.
    ///
    /// # Errors
    /// A finding of the watchdog.
    pub fn end_faults(&mut self) -> Result<u64, String> {
        self.stormy = false;
        self.repair_planes()?;
        self.story.repair(&mut self.kube, self.now);
        self.ccm.end_faults();
        self.record_cluster();
        self.record_nodes();
        fault_injection::clear_kube(&mut self.kube);
        fault_injection::clear_arm(&mut self.arm);
        for process in 0..self.processes.len() {
            self.end_faults_of_process(process);
        }
        if self.watches_stay_empty() {
            let there = |number: &usize| self.processes[*number].is_there();
            for number in (0..self.processes.len()).filter(there).collect::<Vec<_>>() {
                self.cut_watches(number, 0)?;
                self.blind(number, FOR_GOOD_US);
            }
        }
        let had_incomplete_lists =
            self.processes.iter().any(|process| process.kubernetes.had_incomplete_lists);
        if self.fault_random.per_mille(400) || had_incomplete_lists {
            // The last fault: the API server loses all memory, and everything is listed again. Only then are the
            // objects known that lists have lacked.
            self.kube.restart();
        }
        self.record("calm".to_owned());
        self.answer_alert();
        if self.switches_off && self.size.faults.leaving {
            self.disable_admin_state();
        }
        let stopped = self.processes.iter().filter_map(|process| match process.life {
            ProcessState::Stopped(until) => Some(until),
            ProcessState::Runs | ProcessState::Gone => None,
        });
        let end = stopped.max().unwrap_or(self.now);
        Ok(end.max(self.end_operator_changes()))
    }

    /// Moves each Service's pods, when the cloud-controller-manager is done and everything has been read again. In
    /// `compatibility: upstream`, only a change corrects anything (C2). Returns the time of the moves, or `end`.
    ///
    /// # Errors
    ///
    /// A finding of the watchdog.
    pub fn change_everything(&mut self, end: u64) -> Result<u64, String> {
        if !self.settings.upstream {
            return Ok(end);
        }
        let latest = end + 10 * SEEN_AGAIN_US;
        let mut done_since = None;
        while self.now < latest && done_since.is_none_or(|since| self.now < since + SEEN_AGAIN_US) {
            self.run_until(self.now + 5_000_000)?;
            let done = self.now > end && self.ccm.is_done(&self.story.cluster);
            done_since = if done { done_since.or(Some(self.now)) } else { None };
        }
        self.story.change_everything(&mut self.kube, self.now);
        self.change_all_planes()?;
        self.record_cluster();
        self.record("everything changes".to_owned());
        Ok(self.now)
    }
}
