//! Nodes with stopped machines: the taint of the cloud-node-lifecycle controller, and the provider's own taint that
//! follows from it (upstream's azure.go, `updateNodeTaint`).
//!
//! The controller checks all nodes periodically. A node that is not Ready and whose machine is stopped gets the
//! shutdown taint; a Ready node loses it. The provider reacts to each change of a node. A node that is not Ready and
//! has that taint gets the taint out-of-service, too; a Ready node loses it, even if another client has set it. Both
//! replace the whole list of taints, with the resourceVersion that they have read. The scenario deletes nodes whose
//! machines were deleted.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::call::{Call, Verb};
use super::{CallPurpose, Ccm};

const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// A taint by key and effect: upstream compares both, and writes no value.
type Taint = (&'static str, &'static str);

const SHUTDOWN: Taint = ("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule");
const OUT_OF_SERVICE: Taint = ("node.kubernetes.io/out-of-service", "NoExecute");

/// Known nodes and the state of their machines.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    nodes: BTreeMap<String, Watched>,
    /// Nodes with stopped machines.
    stopped: BTreeSet<String>,
    next_check: u64,
}

/// Last known state of a node.
#[derive(Debug)]
struct Watched {
    version: String,
    ready: bool,
    taints: Vec<Value>,
}

impl Watched {
    fn read(object: &Value) -> Option<(String, Self)> {
        let metadata = object.get("metadata")?;
        let name = metadata["name"].as_str().filter(|name| !name.is_empty())?;
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let watched = Self {
            version: metadata["resourceVersion"].as_str().unwrap_or_default().to_owned(),
            ready: conditions.any(|one| one["type"] == "Ready" && one["status"] == "True"),
            taints: object["spec"]["taints"].as_array().cloned().unwrap_or_default(),
        };
        Some((name.to_owned(), watched))
    }

    fn has(&self, taint: Taint) -> bool {
        self.taints.iter().any(|known| is(known, taint))
    }

    fn with(&self, (key, effect): Taint) -> Vec<Value> {
        let new = json!({"key": key, "effect": effect});
        self.taints.iter().cloned().chain([new]).collect()
    }

    fn without(&self, taint: Taint) -> Vec<Value> {
        self.taints.iter().filter(|known| !is(known, taint)).cloned().collect()
    }

    /// Returns the node's new taints after a check; `None` if they stay unchanged.
    fn after_check(&self, stopped: bool) -> Option<Vec<Value>> {
        match (self.ready, self.has(SHUTDOWN)) {
            (true, true) => Some(self.without(SHUTDOWN)),
            (false, false) => stopped.then(|| self.with(SHUTDOWN)),
            (true, false) | (false, true) => None,
        }
    }

    /// Returns the node's new taints after a change; `None` if they stay unchanged.
    fn changed(&self) -> Option<Vec<Value>> {
        match (self.ready, self.has(OUT_OF_SERVICE)) {
            (true, true) => Some(self.without(OUT_OF_SERVICE)),
            (false, false) => self.has(SHUTDOWN).then(|| self.with(OUT_OF_SERVICE)),
            (true, false) | (false, true) => None,
        }
    }
}

fn is(known: &Value, (key, effect): Taint) -> bool {
    known["key"] == key && known["effect"] == effect
}

impl Lifecycle {
    /// Makes the next check due immediately.
    pub(super) fn start(&mut self, now: u64) {
        self.next_check = now;
    }

    /// Records that a machine was stopped, or runs.
    pub(super) fn machine(&mut self, node: String, stopped: bool) {
        if stopped {
            self.stopped.insert(node);
        } else {
            self.stopped.remove(&node);
        }
    }

    /// Removes a node that no longer exists.
    pub(super) fn forget(&mut self, node: &str) {
        self.nodes.remove(node);
    }
}

impl Ccm {
    /// Records a node, and reacts to its state.
    pub(super) fn on_node(&mut self, object: &Value, calls: &mut Vec<Call>) {
        let Some((name, watched)) = Watched::read(object) else { return };
        let changed = watched.changed().filter(|_| self.settings.lifecycle_us.is_some());
        if let Some(taints) = changed {
            self.set_taints(&name, &watched.version, taints, calls);
        }
        self.lifecycle.nodes.insert(name, watched);
    }

    /// Returns the time of the next check of all nodes; `None` if there are no checks.
    pub(super) fn next_check(&self) -> Option<u64> {
        self.settings.lifecycle_us.map(|_| self.lifecycle.next_check)
    }

    /// Checks all nodes, if that is due. Also repeats a refused write after a change: real nodes change from time to
    /// time, but the model gets no input then.
    pub(super) fn check_nodes(&mut self, calls: &mut Vec<Call>) {
        let Some(every) = self.settings.lifecycle_us.filter(|_| self.lifecycle.next_check <= self.now) else {
            return;
        };
        self.lifecycle.next_check = self.now.saturating_add(every.max(1));
        let Lifecycle { nodes, stopped, .. } = &self.lifecycle;
        let taints = nodes.iter().filter_map(|(name, watched)| {
            let taints = watched.after_check(stopped.contains(name)).or_else(|| watched.changed())?;
            Some((name.clone(), watched.version.clone(), taints))
        });
        for (name, version, taints) in taints.collect::<Vec<_>>() {
            self.set_taints(&name, &version, taints, calls);
        }
    }

    fn set_taints(&mut self, node: &str, version: &str, taints: Vec<Value>, calls: &mut Vec<Call>) {
        let taints = if taints.is_empty() { Value::Null } else { taints.into() };
        let body = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}});
        let path = format!("/api/v1/nodes/{node}");
        self.send_kubernetes_request(CallPurpose::Taints, Verb::Patch, path, Some((STRATEGIC, body)), calls);
    }
}
