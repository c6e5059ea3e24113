//! The admin state of address entries: nodes that leave service are taken out of traffic, and the admin state is
//! restored when they return (docs/design/nodes.md, N1-N5).
//!
//! The inputs are nodes, eviction notices, load balancers and finished writes. Before the first Down of a node, the
//! machine records the node in our ConfigMap. It sends the draining set to the writer as a level, and reports each pool
//! whose admin part is due. It stands between the Directory and the Leader: a term begins when the records are read and
//! the writer has the set. Every phase follows from the records and the signals, not from the memory of this process. A
//! node is done when no pool lacks anything for it and a later read of every load balancer agrees.
//!
//! The modules:
//! - `nodes`: the nodes, their phases, and the set that follows from them (N1, N2, N4);
//! - `pending_updates`: what is due in which pool, and what comes of it (N3);
//! - `signals`: which taints and messages mean that a node leaves (N1);
//! - `spot`: eviction notices, and the taint that makes them last (N1);
//! - `admission`: how many Ready nodes may be Down at the same time (N5);
//! - `pools`: the known entries, and what pools lack (N2, N4);
//! - `records`: the text that is recorded for a node before its first Down (N4);
//! - `record_store`: which records our ConfigMap must have, and which it is confirmed to have (N4);
//! - `draining`: when the draining set is sent to the writer, and which pools a change of it affects (N2);
//! - `sources`: the pools of xDS sources, whose endpoints have a health status of their own (X2);
//! - `term`: when a term may begin, what counts then, and what is allowed in it (W8, N4);
//! - `operator`: nodes that the operator releases (N5);
//! - `reporting`: events, views and metrics.

mod admission;
mod draining;
mod nodes;
mod operator;
mod pending_updates;
mod pools;
mod record_store;
pub(crate) mod records;
mod reporting;
mod sources;
mod spot;
pub mod switch;
mod term;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mechanisms::work_queue::{self, WorkQueue};
use model::arm::{Backend, Failure, Provisioning};
use model::config_map::{ConfigMapAnswer, ConfigMapAsk};
use model::draining::{AdminDue, Draining};
use model::ids::{CallId, Epoch, LbName, NodeName, NodeUid, PoolId, PoolName};
use model::leadership::Standing;
use model::level::{DrainingAddresses, SourceAdminStates};
use model::load_balancers::LbObservation;
use model::machine::{Machine, Now, earliest};
use model::node::NodeFact;
use model::node::{NodeState, Role};
use model::object::{TaintAnswer, TaintAsk};
use model::operator_request::{Answer, RequestId, Scope};
use model::report::{Ended, Report};
use model::sample::Metric;
use model::signals::{self, Signal};
use model::view::{AdminView, NodeView};
use model::watch;

use model::policy::OperatorPolicy;
use nodes::{NodeStatus, Nodes};
use pending_updates::PendingUpdates;
use pools::Pools;
use record_store::RecordStore;
use records::Record;
use reporting::{RecordsView, Reporting, Seen};
pub use spot::IgnoredNotice;
use spot::Spots;

/// What the machine is told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// What it does.
    pub role: Role,
    /// The load balancers that are read: the managed ones, and those that only `listed` pools name.
    pub load_balancers: Vec<LbName>,
    /// Those that only `listed` pools name: all other pools there belong to other clients (N2).
    pub only_listed: BTreeSet<LbName>,
    /// `adminState.excludePools` (N2).
    pub excluded: BTreeSet<PoolName>,
    /// The pools that are filled from xDS sources, which have a word of their own on admin states (X2).
    pub listed: BTreeSet<PoolId>,
    /// `adminState.maxBackoff`: the most that a node waits because of its own failures (N3).
    pub max_backoff: Duration,
    /// Where records of nodes are kept.
    pub keeping: Keeping,
}

/// Where records of nodes are kept (N4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeping {
    /// In our ConfigMap.
    ConfigMap,
    /// Nowhere: in a dry run nothing is read or written, and every node counts as recorded (C4).
    Nothing,
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
        /// The set that was applied, or why none was.
        result: Result<Arc<Draining>, Arc<Failure>>,
    },
    /// Nothing of a pool's admin part is left or under way after it was withdrawn in this generation.
    Withdrawn(PoolId, u64),
    /// The Directory is ready for this term.
    Opened(Epoch),
    /// Whether this process may write, and in which term.
    Standing(Standing),
    /// What operators wish.
    OperatorPolicy {
        /// The newest term that had begun when it was read.
        term: Option<Epoch>,
        /// All of it.
        policy: Arc<OperatorPolicy>,
    },
    /// The answer to a request about our ConfigMap.
    ConfigMap(CallId, ConfigMapAnswer),
    /// The watcher of evictions has seen this.
    Preemption(watch::Seen),
    /// The answer to a patch of a node's taints.
    Tainted(CallId, TaintAnswer),
    /// A PUT that was made by an older set than the newest has added these, which drain now: they are in the pool and
    /// not Down.
    Missed(PoolId, BTreeSet<Backend>),
    /// Before a write these were Down in a pool already that are to be; when the last PUT of ours was sent to it.
    Found(PoolId, Option<Now>, BTreeSet<Backend>),
    /// What the source of a listed pool says of admin states; `None`: it is not known (X2).
    SourceAdminStates(PoolId, Option<Arc<SourceAdminStates>>),
    /// The operator releases a node, or everything ([`Scope::Node`], [`Scope::Everything`]).
    Release(RequestId, Scope),
    /// In which term events are posted; `None`: in none.
    Reporting(Option<Epoch>),
}

/// What the machine can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the writer: the draining set from now on.
    Draining(Arc<Draining>),
    /// To the Directory: which addresses leave service, and which are being restored (X2).
    DrainingAddresses(Arc<DrainingAddresses>),
    /// To the writer: a pool's admin part is due.
    Due(PoolId, AdminDue),
    /// To the writer: it is no longer due, as of this generation.
    Withdraw(PoolId, u64),
    /// To the Leader: the Directory is ready for this term, and the writer was told the set.
    Opened(Epoch),
    /// To Discovery: read every load balancer soon.
    Look,
    /// To the kubernetes port, about our ConfigMap.
    ConfigMap(CallId, ConfigMapAsk),
    /// To the kubernetes port, about a node's taints.
    Taint(CallId, TaintAsk),
    /// To the event emitter.
    Report(Report),
    /// To the event emitter: a condition that was reported holds no longer.
    Ended(Ended),
    /// To the board: a node; `None`: nothing is left of it under this name.
    Node(NodeName, Option<NodeView>),
    /// To the board: the admin state as a whole.
    View(AdminView),
    /// To the process: a notice about this node was ignored.
    NoticeIgnored(NodeName, IgnoredNotice),
    /// To the process: the answer to the operator's request.
    Answer(RequestId, Answer),
    /// To the Directory: the operator lets everything go on, which these nodes do; the Directory answers.
    Release(RequestId, Vec<NodeName>),
    /// To the metrics.
    Metric(Metric),
}

/// The draining nodes, and how far they are (N1-N5).
#[derive(Debug)]
pub struct AdminState {
    params: Params,
    /// The newest term for which the nodes are known.
    confirmed: Option<Epoch>,
    /// A term for which the Directory is ready, and the nodes or the records are not known yet.
    opening: Option<Epoch>,
    /// The newest term that was passed on.
    open: Option<Epoch>,
    /// The term in which this process may write.
    leads: Option<Epoch>,
    /// The newest term for which wishes were heard, and the wishes.
    policy_term: Option<Epoch>,
    policy: Option<Arc<OperatorPolicy>>,
    nodes: Nodes,
    records: RecordStore,
    spots: Spots,
    pools: Pools,
    posts: PendingUpdates,
    /// The set that the writer was sent last.
    set: Arc<Draining>,
    /// What the Directory was told last.
    leaving: Arc<DrainingAddresses>,
    /// The load balancers that have existed.
    ever_existed: BTreeSet<LbName>,
    /// Load balancers that have never existed. Nothing can be Down there, and Discovery rarely reads them (D3), so no
    /// node waits for them. A deleted load balancer is not among them: it may be created again with what was Down.
    never_existed: BTreeSet<LbName>,
    /// Pools to be judged again.
    dirty: BTreeSet<PoolId>,
    /// Whether a load balancer was seen since nodes were last forgotten.
    looked: bool,
    /// When every load balancer is to be read again: what was seen of one did not count for a node that waits for it.
    look_again: Option<Now>,
    /// Whether the set has grown since every load balancer was last to be read.
    grown: bool,
    /// Whether anything of nodes, pools or the set has changed since it was last told.
    changed: bool,
    /// Whether an input has not been evaluated yet, or pools are left for the next tick.
    pending: bool,
    /// Paces what is posted again after failures (S4).
    queue: WorkQueue<NodeUid>,
    told: Reporting,
}

/// How long after a look at a load balancer that did not count for a node the next one is asked for.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// How many pools one tick evaluates. The rest waits for the next tick, so that no turn is long.
const POOLS_PER_TICK: usize = 128;

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
            policy_term: None,
            policy: None,
            nodes: Nodes::default(),
            records: RecordStore::new(params.keeping),
            spots: Spots::default(),
            pools: Pools::default(),
            posts: PendingUpdates::default(),
            set: Arc::new(Draining { excluded: params.excluded.clone(), ..Draining::default() }),
            leaving: Arc::default(),
            ever_existed: BTreeSet::new(),
            never_existed: BTreeSet::new(),
            dirty: BTreeSet::new(),
            looked: false,
            look_again: None,
            grown: false,
            changed: false,
            pending: false,
            queue: WorkQueue::new(pace),
            told: Reporting::default(),
            params,
        }
    }

    /// Why a node leaves service, as far as that is heeded.
    fn signals_of(&self, fact: &NodeFact) -> BTreeSet<Signal> {
        if !self.heeds_signals() {
            return BTreeSet::new();
        }
        let mut signals = signals::of_taints(&fact.taints);
        if self.spots.is_noticed(&fact.uid) {
            signals.insert(Signal::Notice);
        }
        signals
    }

    fn on_node(&mut self, now: Now, name: &NodeName, fact: Option<Arc<NodeFact>>) {
        if let Some(fact) = &fact {
            self.spots.on_fact(now, fact);
        }
        let fact = fact.map(|fact| {
            let signals = self.signals_of(&fact);
            (fact, signals)
        });
        let changed = self.nodes.tell(now, name, fact, &mut self.records);
        self.changed = true;
        if let Some(uid) = changed.gone {
            self.spots.on_gone(now, &uid);
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

    /// A node leaves the queue before its work is done (N3), which is not a result (S4).
    fn drop_work(&mut self, now: Now, uid: &NodeUid) {
        self.queue.done(now, uid);
        self.queue.retire(uid);
        self.posts.rest(uid);
    }

    /// What is wanted for a node is another thing: work on it begins again, whatever failed before.
    fn turn(&mut self, now: Now, uid: NodeUid) {
        self.drop_work(now, &uid);
        self.queue.add(now, uid);
    }

    /// Takes in what has changed of notices: signals, and whose a taint is (N1).
    fn heed_notices(&mut self, now: Now) {
        for uid in self.spots.changed() {
            self.records.note_taint(&uid, self.spots.is_ours(&uid));
            self.heed_signals(now, &uid);
        }
    }

    /// Takes in the signals of a node again.
    fn heed_signals(&mut self, now: Now, uid: &NodeUid) {
        let Some(fact) = self.nodes.fact(uid) else { return };
        let signals = self.signals_of(fact);
        self.changed = true;
        if self.nodes.signal(now, uid, signals, &mut self.records) {
            self.turn(now, uid.clone());
        }
    }

    fn on_policy(&mut self, now: Now, term: Option<Epoch>, policy: Arc<OperatorPolicy>) {
        let heeded = self.heeds_signals();
        self.policy_term = self.policy_term.max(term);
        self.policy = Some(policy);
        self.changed = true;
        if heeded != self.heeds_signals() {
            let uids: Vec<NodeUid> = self.nodes.facts().map(|fact| fact.uid.clone()).collect();
            for uid in uids {
                self.heed_signals(now, &uid);
            }
            self.nodes.make_stale();
        }
    }

    fn on_lb(&mut self, now: Now, seen: &LbObservation) {
        if !self.params.load_balancers.contains(&seen.lb) {
            return;
        }
        if seen.facts.is_some() {
            self.never_existed.remove(&seen.lb);
            self.ever_existed.insert(seen.lb.clone());
        } else if !self.ever_existed.contains(&seen.lb) {
            self.never_existed.insert(seen.lb.clone());
        }
        let seen = &*self.ours(seen);
        let news = self.pools.observe(seen);
        self.changed |= !news.is_empty();
        self.nodes.lb_seen(seen, &self.pools, &mut self.records);
        self.dirty.extend(news);
        // While an operation runs, what was seen is about to be another thing.
        let rests = |provisioning| provisioning != Provisioning::Updating;
        let at_rest = seen.facts.as_ref().is_none_or(|facts| {
            rests(facts.provisioning) && facts.pools.iter().all(|pool| rests(pool.provisioning))
        });
        if at_rest {
            self.nodes.looked_at(&seen.lb, seen.began, seen.puts.oldest);
        }
        if self.nodes.waits_for(&seen.lb) {
            self.look_again = earliest(self.look_again, Some(now.plus(LOOK_AGAIN)));
        }
        self.looked = true;
    }

    fn on_finished(
        &mut self,
        now: Now,
        pool: PoolId,
        generation: u64,
        result: Result<Arc<Draining>, Arc<Failure>>,
    ) {
        match result {
            Ok(set) => {
                self.pools.carried_out(now, &pool, &set);
                if !self.records.writes() {
                    self.pools.withheld(&pool, generation);
                }
                self.posts.ended(now, &pool, generation, self.params.max_backoff);
            }
            Err(failure) if failure.says_absent() => {
                self.pools.absent(now, &pool);
                self.posts.ended(now, &pool, generation, self.params.max_backoff);
            }
            Err(failure) => {
                let least = failure.retry_after.before_next_try().unwrap_or_default();
                let waits = (least, self.params.max_backoff);
                let uids = self.posts.failed(now, &pool, generation, waits);
                for uid in &uids {
                    self.queue.finish(now, uid, Err(work_queue::Failed::default()));
                }
                self.told.failed(Some(&pool), &uids, failure.to_string().into());
            }
        }
        self.changed = true;
        self.dirty.insert(pool);
    }

    /// Does what time and the last inputs allow, once for all inputs of a turn.
    fn advance(&mut self, now: Now, out: &mut Vec<Out>) {
        out.extend(self.spots.take_ignored(now).into_iter().map(|(node, why)| Out::NoticeIgnored(node, why)));
        self.heed_notices(now);
        if let Some(epoch) = self.may_begin() {
            self.begin(now, epoch, out);
        }
        let acts = self.acts();
        if acts {
            self.spots.advance(now, |uid| self.records.keeps_taint(uid), out);
            self.heed_notices(now);
            self.nodes.admit(&self.pools, &mut self.records, |uid| self.spots.is_ours(uid));
            for uid in self.nodes.enter(now, &self.records) {
                self.turn(now, uid);
            }
        }
        if self.leads() {
            // Also while nothing is begun: what is under way, or due since before, goes by the newest set.
            self.send_set(out);
        }
        if acts {
            self.work(now, out);
        }
        self.records.advance(now, acts, out);
        if let Some(why) = self.records.take_failure() {
            self.told.failed(None, &self.records.unconfirmed(), why);
        }
        if !self.pending {
            self.tell(now, acts, out);
        }
        debug_assert_eq!(self.check(), Ok(()));
    }

    /// Evaluates nodes until nothing more follows, or until the limit of pools per tick is reached. Nodes are evaluated
    /// only when no pool is left.
    fn work(&mut self, now: Now, out: &mut Vec<Out>) {
        loop {
            self.send_set(out);
            self.take_work(now);
            self.judge_pools(now, out);
            if !self.dirty.is_empty() {
                self.pending = true;
                break;
            }
            self.judge_nodes(now, out);
            if !self.nodes.is_stale() && !self.queue.is_ready(now) {
                break;
            }
        }
    }

    fn judge_pools(&mut self, now: Now, out: &mut Vec<Out>) {
        for _ in 0..POOLS_PER_TICK {
            let Some(pool) = self.dirty.pop_first() else { break };
            let lacks = self.pools.lacks(&pool, &self.set, self.nodes.restores());
            let since = |uid: &NodeUid| self.nodes.since(uid);
            let undone = self.posts.settle(now, pool.clone(), lacks, self.set.generation, since, out);
            if !undone.is_empty() {
                let why = "Azure has accepted the write several times, but it did not persist";
                self.told.failed(Some(&pool), &undone, why.into());
            }
        }
    }

    /// Takes what is to be worked on: what has failed for it is posted again.
    fn take_work(&mut self, now: Now) {
        for pool in self.posts.wake(now) {
            self.changed = true;
            self.dirty.insert(pool);
        }
        while let Some(uid) = self.queue.take(now) {
            self.changed = true;
            self.dirty.extend(self.posts.retry(&uid));
            if !self.nodes.works_on(&uid) {
                self.queue.finish(now, &uid, Ok(work_queue::Done::Success));
            }
        }
    }

    /// Moves nodes on that are done, or are not done any more.
    fn judge_nodes(&mut self, now: Now, out: &mut Vec<Out>) {
        let gives_back = !self.heeds_signals();
        let unknown = self.unknown();
        let waits = |uid: &NodeUid| self.posts.concern(uid) || unknown.contains(uid);
        let lbs = self.params.load_balancers.iter().filter(|lb| !self.never_existed.contains(*lb));
        let judged = self.nodes.judge((now, self.set.generation), lbs, gives_back, waits, &mut self.records);
        let again = self.look_again.take_if(|at| *at <= now).is_some() && self.nodes.waits_for_any();
        if judged.look | again | std::mem::take(&mut self.grown) {
            self.look_again = None;
            out.push(Out::Look);
        }
        self.changed |= !judged.lost.is_empty() || !judged.done.is_empty();
        for uid in judged.lost {
            self.queue.add(now, uid);
        }
        for uid in judged.done {
            self.queue.finish(now, &uid, Ok(work_queue::Done::Success));
            self.posts.rest(&uid);
        }
        if std::mem::take(&mut self.looked) {
            let excluded = &self.params.excluded;
            for uid in self.nodes.forget(&self.pools, excluded, &mut self.records) {
                self.changed = true;
                self.drop_work(now, &uid);
            }
        }
    }

    /// Tells operators and metrics how everything stands.
    fn tell(&mut self, now: Now, acts: bool, out: &mut Vec<Out>) {
        let changed = std::mem::take(&mut self.changed);
        let owed = self.posts.take_news();
        let stands: Vec<NodeStatus<'_>> = self.nodes.stands(&self.records).collect();
        let seen = Seen {
            stands: &stands,
            facts: &|| self.nodes.facts().map(Arc::as_ref).collect(),
            bound: &|| self.nodes.bound(),
            pools: &self.pools,
            posts: &self.posts,
            owed: &owed,
            queue: &self.queue,
            set: &self.set,
            records: RecordsView {
                count: self.records.count(),
                unreadable: self.records.unreadable(),
                refused: self.records.refused(),
                fresh: self.records.is_fresh(),
                last_error: self.records.last_error(),
            },
            params: &self.params,
            switched_off: self.is_switched_off(),
            leads: self.leads(),
            acts,
            changed,
        };
        self.told.advance(now, &seen, out);
    }

    /// The invariants that hold between any two steps.
    ///
    /// # Errors
    /// The one that does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let mut drains = self.set.addresses.iter();
        let drains = drains.all(|(backend, uid)| {
            let noted = self.records.kept(uid).is_some_and(|record| record.has(backend));
            self.nodes.drains(uid) && noted
        });
        rule(drains || !self.leads(), "the set holds a node that does not drain, or is not recorded")?;
        self.nodes.check(&self.records)?;
        self.records.check()?;
        #[cfg(test)]
        self.pools.check()?;
        self.posts.check()
    }
}

impl Machine for AdminState {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match self.params.role {
            Role::On | Role::Off => {}
            Role::Silent => {
                self.step_silently(input, out);
                return;
            }
        }
        match input {
            In::Node(name, fact) => self.on_node(now, &name, fact),
            In::Confirmed(epoch) => {
                self.confirmed = self.confirmed.max(Some(epoch));
                self.records.confirm(now, epoch);
            }
            In::Lb(seen) => self.on_lb(now, &seen),
            In::Finished { pool, generation, result } => self.on_finished(now, pool, generation, result),
            In::Withdrawn(pool, generation) => {
                self.posts.withdrawn(&pool, generation);
                self.dirty.insert(pool);
                self.changed = true;
            }
            In::Missed(pool, backends) => {
                self.pools.missed(now, &pool, backends);
                self.dirty.insert(pool);
                self.changed = true;
            }
            In::Found(pool, sent, downs) => {
                self.pools.found(now, &pool, &downs);
                self.nodes.downs_found(&pool, sent, &downs, &self.pools, &mut self.records);
                self.dirty.insert(pool);
                self.changed = true;
            }
            In::SourceAdminStates(pool, word) => self.on_word(pool, word),
            In::Opened(epoch) => self.opening = self.opening.max(Some(epoch)),
            In::Standing(standing) => {
                self.leads = standing.term();
                self.changed = true;
            }
            In::OperatorPolicy { term, policy } => self.on_policy(now, term, policy),
            In::ConfigMap(call, answer) => self.on_config_map(now, call, answer, out),
            In::Preemption(seen) => self.spots.on_seen(now, &seen),
            In::Tainted(call, answer) => self.spots.on_tainted(now, call, &answer),
            In::Release(id, scope) => self.on_release(id, &scope, out),
            In::Reporting(term) => self.told.reporting(term),
        }
        self.pending = true;
    }

    fn deadline(&self) -> Option<Now> {
        if self.pending {
            return Some(Now::ZERO);
        }
        let work = earliest(earliest(self.queue.deadline(), self.posts.deadline()), self.look_again);
        let work = earliest(work, self.spots.deadline()).filter(|_| self.acts());
        let waits = earliest(work, self.spots.waits_until());
        earliest(waits, earliest(self.records.deadline(), self.told.deadline()))
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        self.pending = false;
        self.advance(now, out);
    }
}
