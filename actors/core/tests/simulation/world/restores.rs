//! Saves the API server's storage and restores it a while later, alone or while the API server is down (W8).
//!
//! The cluster follows the storage; ARM, processes and the cloud-controller-manager continue from their current
//! state. A process that reads an older state of our Lease than before ends, and the kubelet restarts it. A process
//! that reads our Lease only after it has passed that version again cannot detect the restore. The API server is
//! stopped before a storage is restored. In worlds in which processes start and end as well, it is down for so long
//! that no hold of our Lease outlives it, because a new process cannot see a hold in a Lease of another history.

use simulator_models::kube::KubeModel;

use super::{World, WorldEvent};
use crate::ccm::lease_object;
use crate::cluster::Cluster;
use crate::watchdog::Holds;
use coordination::leader::StorageRollback;
use model::lease::LeaseName;

/// Longest time for which a hold of our Lease counts (W8), with some margin.
const OUTLIVES_HOLDS_US: u64 = 70_000_000;

/// The saved state.
pub(super) struct Backup {
    version: u64,
    cluster: Cluster,
    holds: Holds,
}

/// Steps of a restore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The storage is saved.
    Save,
    /// The API server is stopped.
    Stop,
    /// The storage is restored, and the API server started.
    StorageRollback,
}

impl World {
    /// Schedules the save.
    pub(super) fn plan_restore(&mut self) {
        let at = self.now + self.restoring.between(15_000_000, 60_000_000);
        self.at(at, WorldEvent::Restore(Step::Save));
    }

    /// Runs one step of the restore.
    pub(super) fn restore(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Save => {
                let (version, holds) = (self.kube.resource_version(), self.watchdog.tenure.holds_now());
                self.backup = Some(Backup { version, cluster: self.story.cluster.clone(), holds });
                self.record(format!("the storage is saved at {version}"));
                let pause = self.restoring.between(8_000_000, 40_000_000);
                self.at(self.now + pause, WorldEvent::Restore(Step::Stop));
                Ok(())
            }
            Step::Stop => {
                let outlives = self.size.faults.processes || self.size.faults.leases;
                let short = self.restoring.below(3) * self.restoring.below(15_000_000);
                let span = if outlives { OUTLIVES_HOLDS_US } else { short };
                if span > 0 {
                    self.kube.down(true);
                    self.record(format!("the API server is stopped for {span} us"));
                }
                self.at(self.now + span, WorldEvent::Restore(Step::StorageRollback));
                Ok(())
            }
            Step::StorageRollback => self.rollback(),
        }
    }

    /// Ends a process because the storage was restored. The kubelet restarts it.
    pub(super) fn ends_for_rollback(
        &mut self,
        number: usize,
        rollback: &StorageRollback,
    ) -> Result<(), String> {
        if !self.processes[number].outlives_restore {
            return Err(format!("W8: process {number} ends for {rollback:?}, and saw no other history"));
        }
        self.record(format!("process {number} ends: {rollback:?}"));
        self.kill(number);
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), String> {
        self.kube.down(false);
        let Some(Backup { version, cluster, holds }) = self.backup.take() else { return Ok(()) };
        let from = self.kube.resource_version();
        if !self.kube.rollback(version) {
            return Err(format!("the state of {version} no longer exists"));
        }
        self.record(format!("the storage is set back from {from} to {version}"));
        self.story.cluster.rollback(&mut self.kube, self.now, cluster);
        self.watchdog.rollback(self.now, version, holds);
        for lease in LeaseName::ALL {
            let object = lease_object(&self.kube, lease);
            let spec = object.as_ref().map(|object| object["spec"].to_string());
            self.record(format!("{lease:?} is again {spec:?}"));
        }
        for number in 0..self.processes.len() {
            self.processes[number].outlives_restore = self.processes[number].is_there();
            self.blind(number, 0);
        }
        self.record_cluster();
        self.record_nodes();
        self.record_records(None)
    }
}

impl Cluster {
    /// Restores the saved state; counters stay, so that no object gets the address or the UID of an earlier one.
    fn rollback(&mut self, kube: &mut KubeModel, now: u64, saved: Cluster) {
        self.restore(saved);
        let going = self.services.values().filter(|service| service.deleting);
        let going: Vec<String> = going.map(|service| service.name.clone()).collect();
        for name in going {
            self.is_gone(kube, now, &name);
        }
    }
}
