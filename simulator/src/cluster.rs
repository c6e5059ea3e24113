//! The API server's model as an owner task has it.

use simulator_models::kube::KubeModel;

use crate::owner::Model;

/// The state of the simulated cluster.
pub struct Cluster {
    /// The model; scenarios write through its direct API.
    pub model: KubeModel,
}

impl Model for Cluster {
    fn revision(&self) -> u64 {
        self.model.revision()
    }

    /// Watches know their own deadlines; nothing else in the cluster changes by time.
    fn deadline(&self) -> Option<u64> {
        None
    }

    fn tick(&mut self, _now_us: u64) {}
}
