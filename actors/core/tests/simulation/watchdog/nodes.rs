//! The nodes as they are at the API server: which leave service, since when, and by what (N1). What a machine makes of it
//! is not known here.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use simulator_models::kube::{KubeModel, Resource};

use super::Watchdog;
use crate::decode::{items, text};
use crate::story::{Notice, SPOT};

/// Within what time a machine that is not blind knows of a change, and writes that it has not known are over.
pub(super) const NOTICED_US: u64 = 60_000_000;
/// For how long it must have been noted that we mark a node, for the mark to be missed.
const NOTED_FOR_US: u64 = 45_000_000;
/// How long a node is Ready after its notice has passed until our taint goes (N1), less what clocks differ by.
const READY_FOR_US: u64 = 599_000_000;
/// How long that may take, with the way to the API server.
const UNTAINTED_WITHIN_US: u64 = 720_000_000;

/// Something that is so or not, and since when.
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

    /// Whether it has been so for this span.
    pub(super) fn steadily(&self, now: u64, span: u64) -> bool {
        self.on && self.since + span <= now
    }

    /// Whether it was so at any moment within this span.
    pub(super) fn lately(&self, now: u64, span: u64) -> bool {
        self.on || self.was && now < self.since + span
    }
}

/// A node.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) there: Flag,
    /// Whether a taint says that it leaves service.
    pub(super) leaves: Flag,
    /// Whether it is marked as evicted.
    marked: Flag,
    ready: Flag,
    /// Whether it is Ready and not left out (N5).
    pub(super) serves: Flag,
    /// What entries send to it, or have.
    pub(super) backends: BTreeMap<String, Flag>,
    notices: Vec<Notice>,
    /// When another client last took the mark away.
    cleared: Option<u64>,
    /// Whether one of us has ever set the mark; and whether the one that is there is one of us' for certain.
    was_ours: bool,
    is_ours: bool,
    /// When the operator last released it (N5).
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
        let left_out = labels.get("node.kubernetes.io/exclude-from-external-load-balancers").is_some();
        self.ready.set(now, ready);
        self.serves.set(now, ready && !left_out);
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

    /// Whether a notice of its eviction may count for a process that sees everything since `sees`: one that has not
    /// seen that the node was marked since does not know that the mark was removed.
    pub(super) fn may_be_noticed(&self, now: u64, sees: u64) -> bool {
        self.notices.iter().any(|notice| {
            let is_over =
                self.ready.steadily(now, UNTAINTED_WITHIN_US) && notice.passes + UNTAINTED_WITHIN_US < now;
            let is_used_up =
                sees < notice.at && self.cleared.is_some_and(|at| notice.at < at && at + NOTICED_US < now);
            !is_over && !is_used_up && (!notice.is_expired || self.may_believe(notice, sees))
        })
    }

    /// Whether a notice that had expired when it was given may count: only who may take the node for NotReady believes it.
    fn may_believe(&self, notice: &Notice, sees: u64) -> bool {
        let was_ready = self.ready.is() && self.ready.since + NOTICED_US < notice.at;
        !was_ready || sees >= notice.at
    }

    /// Whether anything may have said lately that it leaves.
    fn may_leave(&self, now: u64, sees: u64) -> bool {
        self.there.lately(now, NOTICED_US)
            && (self.leaves.lately(now, NOTICED_US) || self.may_be_noticed(now, sees))
    }

    pub(super) fn has(&self, backend: &str) -> bool {
        self.backends.get(backend).is_some_and(Flag::is)
    }

    fn had(&self, now: u64, backend: &str) -> bool {
        self.backends.get(backend).is_some_and(|has| has.lately(now, NOTICED_US))
    }
}

/// All nodes that ever were, by UID.
#[derive(Default)]
pub(super) struct Nodes {
    pub(super) all: BTreeMap<String, Node>,
}

impl Nodes {
    /// The nodes that are there.
    pub(super) fn living(&self) -> impl Iterator<Item = (&String, &Node)> {
        self.all.iter().filter(|(_, node)| node.there.is())
    }

    /// The node that is there and has this.
    pub(super) fn owner(&self, backend: &str) -> Option<(&String, &Node)> {
        self.living().find(|(_, node)| node.has(backend))
    }

    /// The nodes that have, or had lately, what an entry sends to, and may leave.
    pub(super) fn leaving<'a>(
        &'a self,
        now: u64,
        sees: u64,
        backend: &'a str,
    ) -> impl Iterator<Item = &'a String> + 'a {
        let leaves = move |node: &Node| node.had(now, backend) && node.may_leave(now, sees);
        let leaving = self.all.iter().filter(move |(_, node)| leaves(node));
        leaving.map(|(uid, _)| uid)
    }

    /// How many Ready nodes may be Down: of all that were Ready within the time that a change takes to be known (N5).
    pub(super) fn allowed(&self, now: u64) -> usize {
        let serving = self.all.values().filter(|node| node.serves.lately(now, NOTICED_US)).count();
        (serving / 2).max(2)
    }
}

/// Whether a taint says that its node leaves service.
fn is_signal(taint: &Value) -> bool {
    let key = text(&taint["key"]);
    ["node.kubernetes.io/out-of-service", "node.cloudprovider.kubernetes.io/shutdown"].contains(&key)
        || is_mark(taint)
}

/// Whether a taint says that its node is evicted.
fn is_mark(taint: &Value) -> bool {
    (text(&taint["key"]), text(&taint["value"])) == SPOT
}

/// A node without its taints and what the server counts.
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
    /// Takes in all nodes as they are.
    pub fn note_nodes(&mut self, now: u64, kube: &KubeModel) {
        let mut there = BTreeSet::new();
        for object in kube.list(Resource::Nodes) {
            let uid = text(&object["metadata"]["uid"]).to_owned();
            self.nodes.all.entry(uid.clone()).or_default().take_in(now, &object);
            there.insert(uid);
        }
        for (_, gone) in
            self.nodes.all.iter_mut().filter(|(uid, node)| node.there.is() && !there.contains(*uid))
        {
            gone.vanish(now);
        }
    }

    /// Notices that are to be believed have been given.
    pub fn notices_given(&mut self, notices: Vec<Notice>) {
        self.left.notices += notices.iter().filter(|notice| !notice.is_expired).count() as u64;
        for notice in notices {
            if let Some(node) = self.nodes.all.get_mut(&notice.uid) {
                node.notices.push(notice);
            }
        }
    }

    /// The operator has let nodes of these names go on.
    pub(super) fn let_nodes_go<'a>(&mut self, now: u64, names: impl Iterator<Item = &'a str>) {
        let names: BTreeSet<&str> = names.collect();
        for node in self.nodes.all.values_mut().filter(|node| names.contains(node.name.as_str())) {
            node.released = Some(now);
        }
    }

    /// N1: judges a patch of a node by the node before and after it: it adds or takes our taint, and nothing else.
    ///
    /// # Errors
    /// What is wrong with it.
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
            return Err(format!("N1: a patch of {uid} makes {has:?} of the taints {had:?}"));
        }
        let noted = self.records.says_ours(now, &uid);
        let sees = self.within[process].sees();
        let Some(node) = self.nodes.all.get_mut(&uid) else { return Ok(()) };
        if !added.is_empty() {
            self.left.marks.0 += 1;
            if !node.may_be_noticed(now, sees) {
                return Err(format!("N1: {} is tainted, and nothing has said that it is evicted", node.name));
            }
            if !noted {
                return Err(format!("N1: {} is tainted, and no record says that this is ours", node.name));
            }
            // A process that does not lead any more may end before it sees it, and its successor may not know in time.
            (node.was_ours, node.is_ours) = (true, leads);
            node.marked.set(now, true);
        }
        if !gone.is_empty() {
            // No process can have seen that it was not Ready for a moment before the process saw anything.
            let is_steady =
                node.ready.steadily(now, READY_FOR_US) || node.ready.is() && node.ready.since < sees;
            let has_rested =
                is_steady && node.notices.iter().any(|notice| notice.passes + READY_FOR_US < now);
            if !has_rested || !node.was_ours {
                return Err(format!("N1: a taint is taken from {node:?}"));
            }
            self.left.marks.1 += 1;
            node.marked.set(now, false);
            (node.cleared, node.is_ours) = (Some(now), false);
        }
        Ok(())
    }

    /// N1: a node of whose eviction was told at that moment has been marked since by who led all the time, saw everything,
    /// and has noted that it would.
    ///
    /// # Errors
    /// That it was not.
    pub fn is_marked(&self, now: u64, process: usize, uid: &str, at: u64) -> Result<(), String> {
        let within = &self.within[process];
        let sees = within.sees() < at;
        let leads = self.tenure.led_since() < at && within.started_at + NOTICED_US < at;
        let is_let = !self.noted.was_stopped(at) && !self.records.off.lately(now, now - at) && !within.is_off;
        let is_noted = self.records.has_said_ours(now, uid, NOTED_FOR_US);
        let Some(node) = self.nodes.all.get(uid).filter(|node| node.there.is()) else { return Ok(()) };
        let was_marked = node.marked.lately(now, now - at);
        if sees && leads && is_let && is_noted && !was_marked {
            return Err(format!("N1: {} was said to be evicted at {at}, and is not marked", node.name));
        }
        Ok(())
    }

    /// N1: when nothing happens any more, no node that is Ready is marked by us.
    ///
    /// # Errors
    /// One that is.
    pub fn marks_at_rest(&self) -> Result<(), String> {
        let marked = |node: &&Node| node.is_ours && node.marked.is() && node.ready.is();
        match self.nodes.living().map(|(_, node)| node).find(marked) {
            Some(node) => Err(format!("N1: our taint is still on {}", node.name)),
            None => Ok(()),
        }
    }
}
