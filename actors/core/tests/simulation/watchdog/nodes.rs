//! The nodes in the API server: the draining ones, with times and signals (N1). The machines' views are not used here.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use simulator_models::kube::{KubeModel, Resource};

use super::Watchdog;
use crate::clock::wall;
use crate::decode::{items, text};
use crate::story::{Notice, SPOT};

#[path = "nodes/tests.rs"]
mod tests;

/// Maximum time until a machine that sees everything knows a change, and earlier writes have ended.
pub(super) const NOTICED_US: u64 = 60_000_000;
/// Minimum age of the record of the controller's taint before the taint may be required.
const NOTED_FOR_US: u64 = 45_000_000;
/// Time for which a node is Ready after its notice has passed until the controller's taint is removed (N1), minus clock
/// differences.
const READY_FOR_US: u64 = 599_000_000;
/// A second of wall-clock time.
const SECOND_US: i64 = 1_000_000;
/// Time limit for the removal, with the way to the API server.
const UNTAINTED_TIMEOUT_US: u64 = 720_000_000;

/// A boolean state with the time of its last change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flag {
    on: bool,
    since: u64,
    was: bool,
}

impl Flag {
    pub(super) fn set(&mut self, now: u64, on: bool) {
        if self.on != on {
            *self = Flag { on, since: now, was: true };
        }
    }

    pub(super) fn is(&self) -> bool {
        self.on
    }

    /// Returns the time of its last change.
    pub(super) fn since(&self) -> u64 {
        self.since
    }

    /// Returns whether it has been true for this time.
    pub(super) fn holds_for(&self, now: u64, span: u64) -> bool {
        self.on && self.since + span <= now
    }

    /// Returns whether it was true at any time within this period.
    pub(super) fn held_within(&self, now: u64, span: u64) -> bool {
        self.on || self.was && now < self.since + span
    }
}

/// A node.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) there: Flag,
    /// A taint marks it as draining.
    pub(super) leaves: Flag,
    /// The eviction taint is present.
    marked: Flag,
    ready: Flag,
    /// Ready, and not excluded (N5).
    pub(super) serves: Flag,
    /// Its addresses and interfaces in entries.
    pub(super) backends: BTreeMap<String, Flag>,
    notices: Vec<Notice>,
    /// Last time at which another client removed the taint.
    cleared: Option<u64>,
    /// True if any taint was the controller's; and true if the current one certainly is.
    was_ours: bool,
    is_ours: bool,
    /// Last release by the operator (N5).
    pub(super) released: Option<u64>,
}

impl Node {
    fn take_in(&mut self, now: u64, object: &Value) {
        let (spec, status) = (&object["spec"], &object["status"]);
        self.name = text(&object["metadata"]["name"]).to_owned();
        self.there.set(now, true);
        let taints = items(&spec["taints"]);
        self.leaves.set(now, taints.iter().any(is_signal));
        let marked = taints.iter().any(is_mark);
        if self.marked.is() && !marked {
            (self.cleared, self.is_ours) = (Some(now), false);
        }
        self.marked.set(now, marked);
        let mut conditions = items(&status["conditions"]).iter();
        let ready = conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        let labels = &object["metadata"]["labels"];
        let excluded = labels.get("node.kubernetes.io/exclude-from-external-load-balancers").is_some();
        self.ready.set(now, ready);
        self.serves.set(now, ready && !excluded);
        let addresses = items(&status["addresses"]).iter();
        let ips = addresses.filter(|address| address["type"] == "InternalIP");
        let ips = ips.map(|address| text(&address["address"]).to_owned());
        let machine = text(&spec["providerID"]).rsplit('/').next().unwrap_or_default();
        let backends: BTreeSet<String> = ips.chain([machine.to_owned()]).collect();
        for (backend, has) in &mut self.backends {
            has.set(now, backends.contains(backend));
        }
        for backend in backends {
            self.backends.entry(backend).or_default().set(now, true);
        }
    }

    fn vanish(&mut self, now: u64) {
        for flag in [&mut self.there, &mut self.leaves, &mut self.marked, &mut self.serves, &mut self.ready] {
            flag.set(now, false);
        }
        self.backends.values_mut().for_each(|has| has.set(now, false));
    }

    /// Returns whether a notice of its eviction may count for a process that sees everything since `sees_all_since`: a process
    /// that has not seen the taint since then does not know that it was removed.
    pub(super) fn may_be_noticed(&self, now: u64, sees_all_since: u64) -> bool {
        self.notices.iter().any(|notice| {
            let is_over =
                self.ready.holds_for(now, UNTAINTED_TIMEOUT_US) && notice.passes + UNTAINTED_TIMEOUT_US < now;
            let is_used_up = sees_all_since < notice.at
                && self.cleared.is_some_and(|at| notice.at < at && at + NOTICED_US < now);
            !is_over && !is_used_up && (!notice.is_expired || self.may_believe(notice, sees_all_since))
        })
    }

    /// Returns whether a notice that had already expired may count: only for a process that may consider the node as
    /// NotReady.
    fn may_believe(&self, notice: &Notice, sees_all_since: u64) -> bool {
        let was_ready = self.ready.is() && self.ready.since + NOTICED_US < notice.at;
        !was_ready || sees_all_since >= notice.at
    }

    /// Returns whether a recent signal may have marked it as draining.
    fn may_leave(&self, now: u64, sees_all_since: u64) -> bool {
        self.there.held_within(now, NOTICED_US)
            && (self.leaves.held_within(now, NOTICED_US) || self.may_be_noticed(now, sees_all_since))
    }

    /// Returns the time since which it has the taint of an eviction, or has none.
    pub(super) fn marked_since(&self) -> u64 {
        self.marked.since()
    }

    pub(super) fn has(&self, backend: &str) -> bool {
        self.backends.get(backend).is_some_and(Flag::is)
    }

    fn had(&self, now: u64, backend: &str) -> bool {
        self.backends.get(backend).is_some_and(|has| has.held_within(now, NOTICED_US))
    }
}

/// All nodes that ever existed, by UID.
#[derive(Default)]
pub(super) struct Nodes {
    pub(super) all: BTreeMap<String, Node>,
}

impl Nodes {
    /// Returns the existing nodes.
    pub(super) fn living(&self) -> impl Iterator<Item = (&String, &Node)> {
        self.all.iter().filter(|(_, node)| node.there.is())
    }

    /// Returns the existing node with this address or interface.
    pub(super) fn owner(&self, backend: &str) -> Option<(&String, &Node)> {
        self.living().find(|(_, node)| node.has(backend))
    }

    /// Returns the notices about earlier nodes of this name that may be about one created now. A creation time has whole
    /// seconds, so a notice given within that second, before the creation, cannot be told from a later one (N1).
    fn notices_of_its_second(&self, now: u64, name: &str) -> Vec<Notice> {
        let created = wall(now).div_euclid(SECOND_US) * SECOND_US;
        let earlier = self.all.values().filter(|node| node.name == name);
        earlier.flat_map(|node| &node.notices).filter(|notice| wall(notice.at) >= created).cloned().collect()
    }

    /// Returns the nodes that have, or recently had, the address of an entry, and may drain.
    pub(super) fn leaving<'a>(
        &'a self,
        now: u64,
        sees_all_since: u64,
        backend: &'a str,
    ) -> impl Iterator<Item = &'a String> + 'a {
        let leaves = move |node: &Node| node.had(now, backend) && node.may_leave(now, sees_all_since);
        let leaving = self.all.iter().filter(move |(_, node)| leaves(node));
        leaving.map(|(uid, _)| uid)
    }

    /// Returns how many Ready nodes may be Down: of all that were Ready within the time that a change takes to be
    /// known (N5).
    pub(super) fn allowed(&self, now: u64) -> usize {
        let serving = self.all.values().filter(|node| node.serves.held_within(now, NOTICED_US)).count();
        (serving / 2).max(2)
    }
}

/// Returns whether a taint marks its node as draining.
fn is_signal(taint: &Value) -> bool {
    let key = text(&taint["key"]);
    ["node.kubernetes.io/out-of-service", "node.cloudprovider.kubernetes.io/shutdown"].contains(&key)
        || is_mark(taint)
}

/// Returns whether a taint marks its node as evicted.
fn is_mark(taint: &Value) -> bool {
    (text(&taint["key"]), text(&taint["value"])) == SPOT
}

/// Returns a node without its taints and the server's counters.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    for (parent, field) in
        [("/metadata", "resourceVersion"), ("/metadata", "generation"), ("/spec", "taints")]
    {
        if let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
            fields.shift_remove(field);
        }
    }
    object
}

impl Watchdog {
    /// Records the current state of all nodes.
    pub fn record_nodes(&mut self, now: u64, kube: &KubeModel) {
        let mut there = BTreeSet::new();
        for object in kube.list(Resource::Nodes) {
            let uid = text(&object["metadata"]["uid"]).to_owned();
            if !self.nodes.all.contains_key(&uid) {
                let notices = self.nodes.notices_of_its_second(now, text(&object["metadata"]["name"]));
                self.nodes.all.insert(uid.clone(), Node { notices, ..Node::default() });
            }
            self.nodes.all.entry(uid.clone()).or_default().take_in(now, &object);
            there.insert(uid);
        }
        for (_, gone) in
            self.nodes.all.iter_mut().filter(|(uid, node)| node.there.is() && !there.contains(*uid))
        {
            gone.vanish(now);
        }
    }

    /// Records true notices.
    pub fn notices_given(&mut self, notices: Vec<Notice>) {
        self.left.notices += notices.iter().filter(|notice| !notice.is_expired).count() as u64;
        for notice in notices {
            if let Some(node) = self.nodes.all.get_mut(&notice.uid) {
                node.notices.push(notice);
            }
        }
    }

    /// Records that the operator has released the nodes of these names.
    pub(super) fn release_nodes<'a>(&mut self, now: u64, names: impl Iterator<Item = &'a str>) {
        let names: BTreeSet<&str> = names.collect();
        for node in self.nodes.all.values_mut().filter(|node| names.contains(node.name.as_str())) {
            node.released = Some(now);
        }
    }

    /// Checks a patch by the node before and after it (N1): it adds or removes our taint, and changes nothing else.
    ///
    /// # Errors
    ///
    /// A violation.
    pub fn patched(
        &mut self,
        now: u64,
        process: usize,
        leads: bool,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> Result<(), String> {
        let (Some(before), Some(after)) = (before, after) else { return Ok(()) };
        let uid = text(&after["metadata"]["uid"]).to_owned();
        if bare(before) != bare(after) {
            return Err(format!("N1: a patch of {uid} changes more than taints"));
        }
        let taints = |object: &Value| items(&object["spec"]["taints"]).to_vec();
        let (had, has) = (taints(before), taints(after));
        let ours = |taint: &Value| is_mark(taint) && taint["effect"] == "NoSchedule";
        let without = |taints: &[Value], gone: &Value| -> Vec<Value> {
            let at = taints.iter().position(|taint| taint == gone);
            taints
                .iter()
                .enumerate()
                .filter(|(n, _)| Some(*n) != at)
                .map(|(_, taint)| taint.clone())
                .collect()
        };
        let added: Vec<Value> = has.iter().filter(|taint| !had.contains(taint)).cloned().collect();
        let gone: Vec<Value> = had.iter().filter(|taint| !has.contains(taint)).cloned().collect();
        let keeps: bool = match (added.as_slice(), gone.as_slice()) {
            ([], []) => had == has,
            ([new], []) => ours(new) && without(&has, new) == had,
            ([], [old]) => ours(old) && without(&had, old) == has,
            (_, _) => false,
        };
        if !keeps {
            return Err(format!("N1: a patch of {uid} changes the taints {had:?} to {has:?}"));
        }
        let noted = self.records.marks_ours(now, &uid);
        let sees_all_since = self.within[process].sees_all_since();
        let may_count_as_ours = self.may_count_as_ours(now, process, leads, &uid);
        let Some(node) = self.nodes.all.get_mut(&uid) else { return Ok(()) };
        if !added.is_empty() {
            self.left.marks.0 += 1;
            if !node.may_be_noticed(now, sees_all_since) {
                return Err(format!("N1: {} is tainted without an eviction notice", node.name));
            }
            if !noted {
                return Err(format!("N1: {} is tainted without a record of the taint", node.name));
            }
            // A process that has lost leadership may end before it gets the result, and its successor may not get it in
            // time.
            (node.was_ours, node.is_ours) = (true, leads);
            node.marked.set(now, true);
        }
        if !gone.is_empty() {
            // No process can have seen that it was not Ready for a moment before the process saw anything.
            let is_steady = node.ready.holds_for(now, READY_FOR_US)
                || node.ready.is() && node.ready.since < sees_all_since;
            let has_rested =
                is_steady && node.notices.iter().any(|notice| notice.passes + READY_FOR_US < now);
            if !has_rested || !node.was_ours && !may_count_as_ours {
                return Err(format!("N1: a taint is removed from {node:?}"));
            }
            self.left.marks.1 += 1;
            node.marked.set(now, false);
            (node.cleared, node.was_ours, node.is_ours) = (Some(now), true, false);
        }
        Ok(())
    }

    /// Checks N1: a node whose eviction was announced at that time has been tainted since, by a process that led all
    /// the time, saw everything, and has recorded its intention.
    ///
    /// # Errors
    ///
    /// The node was not tainted.
    pub fn is_marked(&self, now: u64, process: usize, uid: &str, at: u64) -> Result<(), String> {
        let within = &self.within[process];
        let sees_all_since = within.sees_all_since() < at;
        let leads = self.tenure.led_since() < at && within.started_at + NOTICED_US < at;
        let is_let =
            !self.recorded.was_stopped(at) && !self.records.off.held_within(now, now - at) && !within.is_off;
        let is_noted = self.records.has_marked_ours(now, uid, NOTED_FOR_US);
        let Some(node) = self.nodes.all.get(uid).filter(|node| node.there.is()) else { return Ok(()) };
        let was_marked = node.marked.held_within(now, now - at);
        if sees_all_since && leads && is_let && is_noted && !was_marked {
            return Err(format!(
                "N1: the eviction of {} was announced at {at}, and it is not tainted",
                node.name
            ));
        }
        Ok(())
    }

    /// Checks N1: after the last event, no Ready node has the controller's taint.
    ///
    /// # Errors
    ///
    /// A node that has the taint.
    pub fn marks_at_rest(&self) -> Result<(), String> {
        let marked = |node: &&Node| node.is_ours && node.marked.is() && node.ready.is();
        match self.nodes.living().map(|(_, node)| node).find(marked) {
            Some(node) => Err(format!("N1: the controller's taint is still on {}", node.name)),
            None => Ok(()),
        }
    }
}
