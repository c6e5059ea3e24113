//! The API server's storage is saved, and set back to that a while later, by itself or while the API server is down (W8).
//!
//! What the cluster is like follows; ARM, processes and the cloud-controller-manager go on from where they are. A process
//! that reads an older state of our Lease than it has seen ends, and the kubelet starts it again; one that reads our Lease
//! only when it is past that again cannot know. The API server is stopped before a storage is restored: where processes come
//! and go as well, it is down for so long that no hold of our Lease outlives it, for a process that knows nothing can see
//! no hold in a Lease of another past.

use simulator_models::kube::KubeModel;

use super::{Happening, World};
use crate::ccm::lease_object;
use crate::cluster::Cluster;
use crate::watchdog::Holds;
use coordination::leader::SetBack;
use model::lease::LeaseName;

/// The longest time for which a hold of our Lease counts (W8), with some room.
const OUTLIVES_HOLDS_US: u64 = 70_000_000;

/// What was saved.
pub(super) struct Backup {
    version: u64,
    cluster: Cluster,
    holds: Holds,
}

/// How far it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The storage is saved.
    Save,
    /// The API server is stopped.
    Stop,
    /// The storage is set back, and the API server started.
    SetBack,
}

impl World {
    /// When the storage is saved.
    pub(super) fn plan_restore(&mut self) {
        let at = self.now + self.restoring.between(15_000_000, 60_000_000);
        self.at(at, Happening::Restore(Step::Save));
    }

    /// One step of setting the storage back.
    pub(super) fn restore(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Save => {
                let (version, holds) = (self.kube.resource_version(), self.watchdog.tenure.holds_now());
                self.backup = Some(Backup { version, cluster: self.story.cluster.clone(), holds });
                self.note(format!("the storage is saved at {version}"));
                let pause = self.restoring.between(8_000_000, 40_000_000);
                self.at(self.now + pause, Happening::Restore(Step::Stop));
                Ok(())
            }
            Step::Stop => {
                let outlives = self.size.faults.processes || self.size.faults.leases;
                let short = self.restoring.below(3) * self.restoring.below(15_000_000);
                let span = if outlives { OUTLIVES_HOLDS_US } else { short };
                if span > 0 {
                    self.kube.down(true);
                    self.note(format!("the API server is stopped for {span} us"));
                }
                self.at(self.now + span, Happening::Restore(Step::SetBack));
                Ok(())
            }
            Step::SetBack => self.set_back(),
        }
    }

    /// A process ends because the storage was set back, and the kubelet starts it again.
    pub(super) fn ends_for_set_back(&mut self, number: usize, set_back: &SetBack) -> Result<(), String> {
        if !self.processes[number].outlives_restore {
            return Err(format!("W8: process {number} ends for {set_back:?}, and saw no other past"));
        }
        self.note(format!("process {number} ends: {set_back:?}"));
        self.kill(number);
        Ok(())
    }

    fn set_back(&mut self) -> Result<(), String> {
        self.kube.down(false);
        let Some(Backup { version, cluster, holds }) = self.backup.take() else { return Ok(()) };
        let from = self.kube.resource_version();
        if !self.kube.rollback(version) {
            return Err(format!("the state of {version} is no longer there"));
        }
        self.note(format!("the storage is set back from {from} to {version}"));
        self.story.cluster.set_back(&mut self.kube, self.now, cluster);
        self.watchdog.set_back(self.now, version, holds);
        for lease in LeaseName::ALL {
            let object = lease_object(&self.kube, lease);
            let spec = object.as_ref().map(|object| object["spec"].to_string());
            self.note(format!("{lease:?} is again {spec:?}"));
        }
        for number in 0..self.processes.len() {
            self.processes[number].outlives_restore = self.processes[number].is_there();
            self.blind(number, 0);
        }
        self.note_cluster();
        self.note_nodes();
        self.note_records(None)
    }
}

impl Cluster {
    /// It is as it was; what was counted stays, so that no object gets the address or the UID of an earlier one.
    fn set_back(&mut self, kube: &mut KubeModel, now: u64, saved: Cluster) {
        self.become_again(saved);
        let going = self.services.values().filter(|service| service.deleting);
        let going: Vec<String> = going.map(|service| service.name.clone()).collect();
        for name in going {
            self.is_gone(kube, now, &name);
        }
    }
}
