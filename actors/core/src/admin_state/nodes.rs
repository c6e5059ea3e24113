//! The nodes with their phases, and the draining set that follows from them (design.md N1, N2, N4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::admission::{Waiting, admitted};
use super::pools::Pools;
use super::records::{self, Exceptions, Record};
use super::signals;
use crate::arm::Backend;
use crate::ids::{LbName, NodeName, NodeUid, PoolId};
use crate::informer::NodeFact;
use crate::machine::Now;
use crate::writer::Draining;

/// All nodes by UID: one that is re-created under the same name is another one.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    nodes: BTreeMap<NodeUid, Node>,
    names: BTreeMap<NodeName, NodeUid>,
    /// Those that are not [`Phase::Still`].
    busy: BTreeSet<NodeUid>,
    /// Of which node each Down is that may be taken back, by the set that was worked out last.
    restores: BTreeMap<Backend, NodeUid>,
    /// Whether the set is to be worked out again.
    stale: bool,
}

#[derive(Debug, Default)]
struct Node {
    /// `None`: the object is gone.
    fact: Option<Arc<NodeFact>>,
    phase: Phase,
}

#[derive(Debug, Default)]
enum Phase {
    /// Nothing of it is Down by us.
    #[default]
    Still,
    /// A signal stands since then; it is not cut out yet (N5).
    Held(Now),
    /// It is in the set.
    Draining(Course),
    /// What is Down of it by us is taken back.
    Restoring(Course),
    /// Its object is gone. What is Down of it stays as long as the entries do, unless another node has its address.
    Gone(Course),
}

/// How far a node is.
#[derive(Debug)]
struct Course {
    /// Since when what is wanted for it is wanted.
    since: Now,
    record: Record,
    done: Done,
}

#[derive(Debug)]
enum Done {
    /// Pools lack something for it, or may.
    Waits,
    /// None does. Load balancers are left of which no read that began since then was seen.
    Looks { since: Now, left: BTreeSet<LbName> },
    /// Each was seen, and agrees.
    Yes,
}

/// What follows from a fact about a node.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// The node whose object is gone.
    pub(super) gone: Option<NodeUid>,
    /// The node for which another thing is wanted.
    pub(super) turned: Option<NodeUid>,
}

/// What follows from how far nodes are.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// Whether every load balancer is to be read.
    pub(super) look: bool,
    /// Nodes that were done and are not any more.
    pub(super) lost: Vec<NodeUid>,
    /// Nodes that are done.
    pub(super) done: Vec<NodeUid>,
}

impl Course {
    fn new(since: Now, record: Record) -> Course {
        Course { since, record, done: Done::Waits }
    }

    /// The same, with the addresses of a newer fact.
    fn with(mut self, fact: &NodeFact) -> Course {
        note(&mut self.record, fact);
        self
    }
}

fn note(record: &mut Record, fact: &NodeFact) {
    record.ips.extend(&fact.ips);
    if fact.instance.is_some() {
        record.instance = fact.instance.clone();
    }
}

impl Phase {
    fn course(&self) -> Option<&Course> {
        match self {
            Phase::Draining(course) | Phase::Restoring(course) | Phase::Gone(course) => Some(course),
            Phase::Still | Phase::Held(_) => None,
        }
    }

    fn course_mut(&mut self) -> Option<&mut Course> {
        match self {
            Phase::Draining(course) | Phase::Restoring(course) | Phase::Gone(course) => Some(course),
            Phase::Still | Phase::Held(_) => None,
        }
    }

    fn is_still(&self) -> bool {
        match self {
            Phase::Still => true,
            Phase::Held(_) | Phase::Draining(_) | Phase::Restoring(_) | Phase::Gone(_) => false,
        }
    }

    fn drains(&self) -> bool {
        match self {
            Phase::Draining(_) => true,
            Phase::Still | Phase::Held(_) | Phase::Restoring(_) | Phase::Gone(_) => false,
        }
    }

    /// Whether it is there, and what is Down of it by us is taken back.
    fn restores(&self) -> bool {
        match self {
            Phase::Restoring(_) => true,
            Phase::Still | Phase::Held(_) | Phase::Draining(_) | Phase::Gone(_) => false,
        }
    }

    fn is_gone(&self) -> bool {
        match self {
            Phase::Gone(_) => true,
            Phase::Still | Phase::Held(_) | Phase::Draining(_) | Phase::Restoring(_) => false,
        }
    }

    /// What it becomes when the object says this, and whether another thing is wanted then.
    fn told(self, now: Now, fact: &NodeFact) -> (Phase, bool) {
        let signalled = !signals::of_taints(&fact.taints).is_empty();
        match (self, signalled) {
            (Phase::Still | Phase::Held(_), false) => (Phase::Still, false),
            (Phase::Still, true) => (Phase::Held(now), false),
            (Phase::Held(since), true) => (Phase::Held(since), false),
            (Phase::Draining(course), true) => (Phase::Draining(course.with(fact)), false),
            (Phase::Restoring(course), false) => (Phase::Restoring(course.with(fact)), false),
            (Phase::Draining(course) | Phase::Restoring(course) | Phase::Gone(course), _) => {
                let course = Course::new(now, course.record).with(fact);
                (if signalled { Phase::Draining(course) } else { Phase::Restoring(course) }, true)
            }
        }
    }
}

impl Node {
    /// Whether its Down takes away a node that could serve (N5).
    fn counts(&self) -> bool {
        self.fact.as_ref().is_some_and(|fact| fact.ready && !fact.left_out)
    }
}

impl Nodes {
    /// Takes in what is known under a name.
    pub(super) fn tell(&mut self, now: Now, name: &NodeName, fact: Option<Arc<NodeFact>>) -> Changed {
        let mut changed = Changed::default();
        self.stale = true;
        let known = self.names.get(name).cloned();
        if let Some(uid) = known.filter(|uid| fact.as_ref().is_none_or(|fact| fact.uid != *uid)) {
            self.names.remove(name);
            self.leave(now, &uid);
            changed.gone = Some(uid);
        }
        let Some(fact) = fact else { return changed };
        let uid = fact.uid.clone();
        self.names.insert(name.clone(), uid.clone());
        let node = self.nodes.entry(uid.clone()).or_default();
        let (phase, turned) = std::mem::take(&mut node.phase).told(now, &fact);
        *node = Node { fact: Some(fact), phase };
        self.keep_busy(&uid);
        changed.turned = Some(uid).filter(|_| turned);
        changed
    }

    /// The object of a node is gone (S1: Down → Removed).
    fn leave(&mut self, now: Now, uid: &NodeUid) {
        let Some(node) = self.nodes.remove(uid) else { return };
        match node.phase {
            Phase::Draining(course) | Phase::Restoring(course) | Phase::Gone(course) => {
                let phase = Phase::Gone(Course::new(now, course.record));
                self.nodes.insert(uid.clone(), Node { fact: None, phase });
            }
            Phase::Still | Phase::Held(_) => {
                self.busy.remove(uid);
            }
        }
    }

    fn keep_busy(&mut self, uid: &NodeUid) {
        if self.nodes.get(uid).is_none_or(|node| node.phase.is_still()) {
            self.busy.remove(uid);
        } else {
            self.busy.insert(uid.clone());
        }
    }

    fn busy(&self) -> impl Iterator<Item = (&NodeUid, &Node)> {
        self.busy.iter().filter_map(|uid| Some((uid, self.nodes.get(uid)?)))
    }

    fn records(&self) -> impl Iterator<Item = &Record> {
        self.busy().filter_map(|(_, node)| node.phase.course()).map(|course| &course.record)
    }

    /// A term begins: what was done in another one is to be seen again. Gives the nodes that are to be worked on.
    pub(super) fn begin(&mut self) -> Vec<NodeUid> {
        self.stale = true;
        let nodes = self.nodes.iter_mut();
        let courses = nodes.filter_map(|(uid, node)| Some((uid, node.phase.course_mut()?)));
        courses
            .map(|(uid, course)| {
                course.done = Done::Waits;
                uid.clone()
            })
            .collect()
    }

    /// Lets held nodes go on, oldest signal first, as many as may (N5). Gives those that do; each has a record then
    /// that names the Downs that were there before ours (N4).
    pub(super) fn admit(&mut self, pools: &Pools) -> Vec<NodeUid> {
        let held = self.busy().filter_map(|(uid, node)| match (&node.phase, &node.fact) {
            (Phase::Held(since), Some(fact)) if records::key(uid).is_some() => {
                Some((*since, fact.name.clone(), uid.clone()))
            }
            (Phase::Held(_), Some(_) | None)
            | (Phase::Still | Phase::Draining(_) | Phase::Restoring(_) | Phase::Gone(_), _) => None,
        });
        let mut held: Vec<(Now, NodeName, NodeUid)> = held.collect();
        if held.is_empty() {
            return Vec::new();
        }
        held.sort();
        let ready = self.nodes.values().filter(|node| node.counts()).count();
        let down = self.busy().filter(|(_, node)| node.phase.drains() && node.counts()).count();
        let waiting = held.iter().map(|(_, _, uid)| {
            let ready = self.nodes.get(uid).is_some_and(Node::counts);
            Waiting { uid, ready, free: false }
        });
        let goes = admitted(waiting, down, ready);
        for (since, _, uid) in held.iter().filter(|(_, _, uid)| goes.contains(uid)) {
            let Some(fact) = self.nodes.get(uid).and_then(|node| node.fact.clone()) else { continue };
            let record = self.record(&fact, *since, pools);
            if let Some(node) = self.nodes.get_mut(uid) {
                node.phase = Phase::Draining(Course::new(*since, record));
                self.stale = true;
            }
        }
        goes
    }

    /// The record of a node that is about to be cut out.
    fn record(&self, fact: &NodeFact, since: Now, pools: &Pools) -> Record {
        let backends: BTreeSet<Backend> = fact.backends().collect();
        let mut foreign = Exceptions::default();
        for (pool, backend) in pools.downs(&backends) {
            // A node that is gone may have had the address: then it is ours all the same.
            let is_ours = |record: &Record| {
                !record.foreign.holds(pool) && record.backends().any(|other| other == backend)
            };
            if !self.records().any(is_ours) {
                foreign.add(pool);
            }
        }
        Record {
            node: fact.name.clone(),
            uid: fact.uid.clone(),
            ips: fact.ips.clone(),
            instance: fact.instance.clone(),
            since,
            foreign,
            taint_ours: false,
            rest: Vec::new(),
        }
    }

    /// The set, if it is another one than the last.
    pub(super) fn set(&mut self, pools: &Pools, last: &Draining) -> Option<Draining> {
        if !std::mem::take(&mut self.stale) {
            return None;
        }
        let concerned: BTreeSet<Backend> = self.records().flat_map(Record::backends).collect();
        let (mut drains, mut stays) = (BTreeMap::new(), BTreeSet::new());
        for (uid, node) in self.nodes.iter().filter(|_| !concerned.is_empty()) {
            let backends = node.fact.iter().flat_map(|fact| fact.backends());
            for backend in backends.filter(|backend| concerned.contains(backend)) {
                if node.phase.drains() {
                    drains.insert(backend, uid.clone());
                } else {
                    stays.insert(backend);
                }
            }
        }
        // Where a node that is about to vanish has its successor's address, the successor counts.
        drains.retain(|backend, _| !stays.contains(backend));
        let (mut restores, mut foreign) = (BTreeMap::new(), BTreeSet::new());
        for record in self.records() {
            for backend in record.backends().filter(|backend| stays.contains(backend)) {
                restores.entry(backend).or_insert_with(|| record.uid.clone());
            }
            let pools = pools.ids().filter(|pool| !record.foreign.is_empty() && record.foreign.holds(pool));
            let pairs = |pool: &PoolId| {
                let pool = pool.clone();
                record.backends().map(move |backend| (pool.clone(), backend))
            };
            foreign.extend(pools.flat_map(pairs));
        }
        let next = Draining {
            generation: last.generation,
            addresses: drains,
            restorable: restores.keys().cloned().collect(),
            foreign,
            excluded: last.excluded.clone(),
        };
        self.restores = restores;
        (next != *last).then(|| Draining { generation: last.generation + 1, ..next })
    }

    /// Whether the set may be another one.
    pub(super) fn is_stale(&self) -> bool {
        self.stale
    }

    /// Of which node each Down is that may be taken back.
    pub(super) fn restores(&self) -> &BTreeMap<Backend, NodeUid> {
        &self.restores
    }

    /// Since when what is wanted for a node is wanted.
    pub(super) fn since(&self, uid: &NodeUid) -> Option<Now> {
        self.nodes.get(uid)?.phase.course().map(|course| course.since)
    }

    /// Whether anything is known of a node.
    pub(super) fn knows(&self, uid: &NodeUid) -> bool {
        self.nodes.contains_key(uid)
    }

    /// Whether a node is in the set, where nothing speaks against it.
    pub(super) fn drains(&self, uid: &NodeUid) -> bool {
        self.nodes.get(uid).is_some_and(|node| node.phase.drains())
    }

    /// Whether something is still to be done for a node.
    pub(super) fn works_on(&self, uid: &NodeUid) -> bool {
        let course = self.nodes.get(uid).and_then(|node| node.phase.course());
        course.is_some_and(|course| match course.done {
            Done::Waits | Done::Looks { .. } => true,
            Done::Yes => false,
        })
    }

    /// Pools were seen; one that comes back may be an exception of a record.
    pub(super) fn pools_seen(&mut self) {
        let has_exceptions = self.records().any(|record| !record.foreign.is_empty());
        self.stale |= has_exceptions;
    }

    /// A load balancer was seen at rest, by a read that began then.
    pub(super) fn looked_at(&mut self, lb: &LbName, began: Now) {
        for uid in &self.busy {
            let course = self.nodes.get_mut(uid).and_then(|node| node.phase.course_mut());
            if let Some(Course { done: Done::Looks { since, left }, .. }) = course
                && *since <= began
            {
                left.remove(lb);
            }
        }
    }

    /// Judges how far nodes are; `waits` says whether one waits for a pool.
    pub(super) fn judge(
        &mut self,
        now: Now,
        balancers: &[LbName],
        waits: impl Fn(&NodeUid) -> bool,
    ) -> Judged {
        let mut judged = Judged::default();
        let mut restored = Vec::new();
        for uid in &self.busy {
            let Some(node) = self.nodes.get_mut(uid) else { continue };
            let (restores, gone) = (node.phase.restores(), node.phase.is_gone());
            let Some(course) = node.phase.course_mut() else { continue };
            match (&course.done, waits(uid)) {
                (Done::Waits, true) | (Done::Yes, false) => {}
                (Done::Waits, false) => {
                    let left = balancers.iter().cloned().collect();
                    course.done = Done::Looks { since: now, left };
                    // A node that is gone costs no call: what is read in any case serves.
                    judged.look |= !gone;
                }
                (Done::Looks { .. }, true) => course.done = Done::Waits,
                (Done::Looks { left, .. }, false) if left.is_empty() => {
                    course.done = Done::Yes;
                    judged.done.push(uid.clone());
                    if restores {
                        restored.push(uid.clone());
                    }
                }
                (Done::Looks { .. }, false) => {}
                (Done::Yes, true) => {
                    course.done = Done::Waits;
                    judged.lost.push(uid.clone());
                }
            }
        }
        for uid in restored {
            if let Some(node) = self.nodes.get_mut(&uid) {
                node.phase = Phase::Still;
            }
            self.keep_busy(&uid);
            self.stale = true;
        }
        judged
    }

    /// Forgets nodes that are gone and of which nothing of ours is Down any more; gives them.
    pub(super) fn forget(&mut self, pools: &Pools) -> Vec<NodeUid> {
        let is_over = |(_, node): &(&NodeUid, &Node)| match &node.phase {
            Phase::Gone(Course { done: Done::Yes, record, .. }) => {
                let backends = record.backends().collect();
                pools.downs(&backends).all(|(pool, _)| record.foreign.holds(pool))
            }
            Phase::Gone(Course { done: Done::Waits | Done::Looks { .. }, .. })
            | Phase::Still
            | Phase::Held(_)
            | Phase::Draining(_)
            | Phase::Restoring(_) => false,
        };
        let over: Vec<NodeUid> = self.busy().filter(is_over).map(|(uid, _)| uid.clone()).collect();
        for uid in &over {
            self.nodes.remove(uid);
            self.busy.remove(uid);
            self.stale = true;
        }
        over
    }

    /// The invariants between any two steps.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let busy = self.nodes.iter().filter(|(_, node)| !node.phase.is_still()).map(|(uid, _)| uid);
        rule(busy.eq(&self.busy), "a node that is not still is not looked after")?;
        let named = self.names.values().all(|uid| self.nodes.contains_key(uid));
        rule(named, "a name belongs to no node")?;
        let living = self.nodes.values().filter(|node| node.fact.is_some()).count();
        rule(living == self.names.len(), "a node that exists has no name")
    }
}
