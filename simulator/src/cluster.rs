//! The API server's model in its owner task, with records of the holders of the shared Lease and of the draining nodes.

use std::collections::BTreeSet;

use serde_json::Value;
use simulator_models::kube::{KubeModel, Reply, Request, Resource};

use crate::holds::Holds;
use crate::owner::Model;
use crate::signals::{Signals, node_of};

/// The shared Lease's namespace and name.
const LEASE: [&str; 2] = ["kube-system", "aks-managed-resource-locker"];

/// The state of the simulated cluster.
pub struct Cluster {
    /// The model; scenarios write through its direct API.
    pub model: KubeModel,
    /// Holders of the shared Lease.
    pub holds: Holds,
    /// The resourceVersion of the backup that a scenario has made.
    pub(crate) backup: Option<u64>,
    /// The objects of nodes that a scenario has deleted and will recreate.
    pub(crate) hidden_nodes: Vec<Value>,
    /// Seconds by which its wall clock is ahead of the local one.
    pub(crate) ahead_s: i64,
    /// Draining nodes.
    pub(crate) signals: Signals,
    /// The nodes whose machines a scenario has stopped.
    pub(crate) stopped: BTreeSet<String>,
}

impl Cluster {
    /// Creates a cluster with this model.
    #[must_use]
    pub fn new(model: KubeModel) -> Self {
        Self {
            model,
            holds: Holds::default(),
            backup: None,
            hidden_nodes: Vec::new(),
            ahead_s: 0,
            signals: Signals::default(),
            stopped: BTreeSet::new(),
        }
    }

    /// Answers one request.
    pub fn handle(&mut self, request: &Request, now_us: u64) -> Reply {
        let reply = self.model.handle(request, now_us);
        if request.method != "GET" && request.path_and_query.contains("/leases") {
            self.record_holder(now_us);
        }
        if request.method != "GET"
            && let Some(node) = node_of(&request.path_and_query)
        {
            self.signals.observe(&self.model, node, now_us);
        }
        reply
    }

    /// Observes the shared Lease after a change without [`Cluster::handle`].
    pub(crate) fn record_holder(&mut self, now_us: u64) {
        let [namespace, name] = LEASE;
        let lease = self.model.get(Resource::Leases, namespace, name).unwrap_or_default();
        self.holds.record(lease["spec"]["holderIdentity"].as_str().unwrap_or_default(), now_us);
    }
}

impl Model for Cluster {
    fn revision(&self) -> u64 {
        self.model.revision()
    }

    /// Returns no deadline. Watches have their own deadlines, and nothing else in the cluster changes by time.
    fn deadline(&self) -> Option<u64> {
        None
    }

    fn tick(&mut self, _now_us: u64) {}
}
