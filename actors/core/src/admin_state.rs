//! The admin state of address entries: nodes that leave service are cut out of traffic, and ours are taken back
//! (design.md chapter 8).
//!
//! The machine hears of nodes, load balancers, and the ends of writes. It tells the writer the draining set as a level,
//! and for each pool that lacks something that its admin part is due. It stands between the Directory and the Leader:
//! a term begins when the writer knows the set. A node is done when no pool lacks anything for it and a read of every
//! load balancer that began afterwards agrees.
//!
//! The phases are these of one process: nothing is noted anywhere, so that after a restart no Down is known to be ours.
//! Therefore nobody starts it yet, and no message is routed to it or from it.
//!
//! What stands where:
//! - `nodes`: the nodes, their phases, and the set that follows from them (N1, N2, N4);
//! - `posts`: what is due in which pool, and what comes of it (N3);
//! - `signals`: which taints and messages say that a node leaves (N1);
//! - `admission`: how many Ready nodes may be Down at the same time (N5);
//! - `pools`: what is known of the entries, and what pools lack (N2, N4);
//! - `records`: what is noted of a node before its first Down, as text (N4).

pub mod admission;
mod nodes;
pub mod pools;
mod posts;
pub mod records;
pub mod signals;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::arm::{Failure, FailureKind, Provisioning};
use crate::discovery::LbObservation;
use crate::ids::{Epoch, LbName, NodeName, NodeUid, PoolId, PoolName};
use crate::informer::NodeFact;
use crate::machine::{Machine, Now};
use crate::wishes::Wishes;
use crate::work_queue::{self, WorkQueue};
use crate::writer::{AdminDue, Draining, Standing};
use nodes::Nodes;
use pools::Pools;
use posts::Posts;

/// What the machine is told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// What it does.
    pub role: Role,
    /// The managed load balancers.
    pub load_balancers: Vec<LbName>,
    /// `adminState.excludePools` (N2).
    pub excluded: BTreeSet<PoolName>,
    /// `adminState.maxBackoff`: the most that a node waits because of its own failures (N3).
    pub max_backoff: Duration,
}

/// What the machine does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It cuts nodes out and takes them back.
    On,
    /// It passes on that a term may begin, and nothing more.
    Silent,
}

/// What the machine can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// A node, or that none has this name any more.
    Node(NodeName, Option<Arc<NodeFact>>),
    /// The nodes told before are those of lists that this term needs (W8).
    Confirmed(Epoch),
    /// A load balancer as it is.
    Lb(LbObservation),
    /// The admin part of a pool's slot ended, for this generation.
    Finished {
        /// The pool.
        pool: PoolId,
        /// The generation that was carried out, or was to be.
        generation: u64,
        /// Why not, if it failed.
        failure: Option<Arc<Failure>>,
    },
    /// Nothing of a pool's admin part is left or under way after it was withdrawn in this generation.
    Withdrawn(PoolId, u64),
    /// The Directory is ready for this term.
    Opened(Epoch),
    /// Whether this process may write, and in which term.
    Standing(Standing),
    /// What people wish.
    Wishes {
        /// The newest term that had begun when it was read.
        term: Option<Epoch>,
        /// All of it.
        wishes: Arc<Wishes>,
    },
}

/// What the machine can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the writer: the draining set from now on.
    Draining(Arc<Draining>),
    /// To the writer: a pool's admin part is due.
    Due(PoolId, AdminDue),
    /// To the writer: it is no longer due, as of this generation.
    Withdraw(PoolId, u64),
    /// To the Leader: the Directory is ready for this term, and the writer was told the set.
    Opened(Epoch),
    /// To Discovery: read every load balancer soon.
    Look,
}

/// The draining nodes, and how far they are (design.md chapter 8).
#[derive(Debug)]
pub struct AdminState {
    params: Params,
    /// The newest term for which the nodes are known.
    confirmed: Option<Epoch>,
    /// A term for which the Directory is ready and the nodes are not known yet.
    opening: Option<Epoch>,
    /// The newest term that was passed on.
    open: Option<Epoch>,
    /// The term in which this process may write.
    leads: Option<Epoch>,
    /// The newest term for which wishes were heard, and whether they let anything be written.
    wished: Option<Epoch>,
    lets: bool,
    nodes: Nodes,
    pools: Pools,
    posts: Posts,
    /// What the writer was told last, and the sets before that something may still be carried out of.
    set: Arc<Draining>,
    past: BTreeMap<u64, Arc<Draining>>,
    /// Pools to be judged anew.
    dirty: BTreeSet<PoolId>,
    /// Whether a load balancer was seen since nodes were last forgotten.
    looked: bool,
    /// Paces what is posted again after failures (S4).
    queue: WorkQueue<NodeUid>,
}

/// How many sets before the last one are kept: a write that carries out an older one is judged by the next look.
const PAST: usize = 1_000;

impl AdminState {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(params: Params) -> AdminState {
        let pace = work_queue::Params { max_backoff: params.max_backoff, ..work_queue::Params::S4 };
        AdminState {
            confirmed: None,
            opening: None,
            open: None,
            leads: None,
            wished: None,
            lets: false,
            nodes: Nodes::default(),
            pools: Pools::default(),
            posts: Posts::default(),
            set: Arc::new(Draining { excluded: params.excluded.clone(), ..Draining::default() }),
            past: BTreeMap::new(),
            dirty: BTreeSet::new(),
            looked: false,
            queue: WorkQueue::new(pace),
            params,
        }
    }

    /// Whether anything may be begun: this process leads in the term that was opened, and people let it (G6).
    fn acts(&self) -> bool {
        self.open.is_some() && self.leads == self.open && self.wished >= self.open && self.lets
    }

    fn on_node(&mut self, now: Now, name: &NodeName, fact: Option<Arc<NodeFact>>) {
        let changed = self.nodes.tell(now, name, fact);
        if let Some(uid) = changed.gone {
            if self.nodes.knows(&uid) {
                self.turn(now, uid);
            } else {
                self.drop_work(now, &uid);
            }
        }
        if let Some(uid) = changed.turned {
            self.turn(now, uid);
        }
    }

    /// A node leaves the queue (N3).
    fn drop_work(&mut self, now: Now, uid: &NodeUid) {
        self.queue.finish(now, uid, Ok(work_queue::Done::Success));
        self.queue.retire(uid);
    }

    /// What is wanted for a node is another thing: work on it begins anew, whatever failed before.
    fn turn(&mut self, now: Now, uid: NodeUid) {
        self.drop_work(now, &uid);
        self.queue.add(now, uid);
    }

    fn on_lb(&mut self, seen: &LbObservation) {
        if !self.params.load_balancers.contains(&seen.lb) {
            return;
        }
        let news = self.pools.observe(seen);
        if !news.is_empty() {
            self.nodes.pools_seen();
        }
        self.dirty.extend(news);
        // While an operation runs, what was seen is about to be another thing.
        let rests = |provisioning| provisioning != Provisioning::Updating;
        let at_rest = seen.facts.as_ref().is_none_or(|facts| {
            rests(facts.provisioning) && facts.pools.iter().all(|pool| rests(pool.provisioning))
        });
        if at_rest {
            self.nodes.looked_at(&seen.lb, seen.began);
        }
        self.looked = true;
    }

    fn on_finished(&mut self, now: Now, pool: PoolId, generation: u64, failure: Option<Arc<Failure>>) {
        let is_gone = |failure: &Arc<Failure>| failure.kind == FailureKind::Status(404);
        match failure.as_ref().map(is_gone) {
            None => {
                let set = if generation == self.set.generation {
                    Some(&self.set)
                } else {
                    self.past.get(&generation)
                };
                if let Some(set) = set {
                    self.pools.carried_out(now, &pool, set);
                }
                self.posts.ended(&pool, generation);
            }
            Some(true) => {
                self.pools.absent(now, &pool);
                self.posts.ended(&pool, generation);
            }
            Some(false) => {
                for uid in self.posts.failed(&pool, generation) {
                    self.queue.finish(now, &uid, Err(work_queue::Failed::default()));
                }
            }
        }
        self.dirty.insert(pool);
    }

    /// A term may begin: what was posted in another one may be lost.
    fn begin(&mut self, now: Now, epoch: Epoch, out: &mut Vec<Out>) {
        self.opening = None;
        self.open = Some(epoch);
        self.posts.clear();
        self.dirty.extend(self.pools.ids().cloned());
        for uid in self.nodes.begin() {
            self.turn(now, uid);
        }
        self.tell_set(out);
        out.push(Out::Opened(epoch));
    }

    /// Tells the writer the set, if it is another one.
    fn tell_set(&mut self, out: &mut Vec<Out>) {
        let Some(next) = self.nodes.set(&self.pools, &self.set) else { return };
        let grows = next.addresses.keys().any(|backend| !self.set.addresses.contains_key(backend))
            || next.restorable.difference(&self.set.restorable).next().is_some();
        let before = std::mem::replace(&mut self.set, Arc::new(next));
        self.past.insert(before.generation, before);
        while self.past.len() > PAST {
            self.past.pop_first();
        }
        out.push(Out::Draining(Arc::clone(&self.set)));
        if grows {
            out.push(Out::Look);
        }
        self.dirty.extend(self.pools.ids().cloned());
    }

    /// Does what time and the last input allow; the end of every step and tick.
    fn advance(&mut self, now: Now, out: &mut Vec<Out>) {
        let ready = self.opening.filter(|epoch| self.confirmed >= Some(*epoch));
        if let Some(epoch) = ready {
            self.begin(now, epoch, out);
        }
        if !self.acts() {
            return;
        }
        for uid in self.nodes.admit(&self.pools) {
            self.turn(now, uid);
        }
        loop {
            self.tell_set(out);
            self.take_work(now);
            for pool in std::mem::take(&mut self.dirty) {
                let lacks = self.pools.lacks(&pool, &self.set, self.nodes.restores());
                let since = |uid: &NodeUid| self.nodes.since(uid);
                self.posts.settle(pool, lacks, self.set.generation, since, out);
            }
            self.judge_nodes(now, out);
            if !self.nodes.is_stale() && !self.queue.is_ready(now) {
                break;
            }
        }
        debug_assert_eq!(self.check(), Ok(()));
    }

    /// Takes what is to be worked on: what has failed for it is posted again.
    fn take_work(&mut self, now: Now) {
        while let Some(uid) = self.queue.take(now) {
            self.dirty.extend(self.posts.retry(&uid));
            if !self.nodes.works_on(&uid) {
                self.queue.finish(now, &uid, Ok(work_queue::Done::Success));
            }
        }
    }

    /// Moves nodes on that are done, or are not done any more.
    fn judge_nodes(&mut self, now: Now, out: &mut Vec<Out>) {
        let judged = self.nodes.judge(now, &self.params.load_balancers, |uid| self.posts.concern(uid));
        if judged.look {
            out.push(Out::Look);
        }
        for uid in judged.lost {
            self.queue.add(now, uid);
        }
        for uid in judged.done {
            self.queue.finish(now, &uid, Ok(work_queue::Done::Success));
        }
        if std::mem::take(&mut self.looked) {
            for uid in self.nodes.forget(&self.pools) {
                self.drop_work(now, &uid);
            }
        }
    }

    /// The invariants that hold between any two steps.
    ///
    /// # Errors
    /// The one that does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        rule(self.params.role == Role::On || self.set.generation == 0, "a silent machine has told a set")?;
        let drains = |uid: &NodeUid| self.nodes.drains(uid);
        rule(
            self.set.addresses.values().all(drains) || !self.acts(),
            "the set holds a node that does not drain",
        )?;
        self.nodes.check()?;
        self.posts.check()
    }
}

impl Machine for AdminState {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match self.params.role {
            Role::On => {}
            Role::Silent => {
                if let In::Opened(epoch) = input {
                    out.push(Out::Opened(epoch));
                }
                return;
            }
        }
        match input {
            In::Node(name, fact) => self.on_node(now, &name, fact),
            In::Confirmed(epoch) => self.confirmed = self.confirmed.max(Some(epoch)),
            In::Lb(seen) => self.on_lb(&seen),
            In::Finished { pool, generation, failure } => self.on_finished(now, pool, generation, failure),
            In::Withdrawn(pool, generation) => {
                self.posts.withdrawn(&pool, generation);
                self.dirty.insert(pool);
            }
            In::Opened(epoch) => self.opening = self.opening.max(Some(epoch)),
            In::Standing(standing) => self.leads = standing.term(),
            In::Wishes { term, wishes } => {
                self.wished = self.wished.max(term);
                self.lets = !wishes.only_observes();
            }
        }
        self.advance(now, out);
    }

    fn deadline(&self) -> Option<Now> {
        self.queue.deadline().filter(|_| self.acts())
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        self.advance(now, out);
    }
}
