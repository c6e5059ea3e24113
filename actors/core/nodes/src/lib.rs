//! The admin state of address entries: draining nodes are taken out of traffic, and restored when they return
//! (docs/design/nodes.md, N1-N5).
//!
//! The inputs are nodes, eviction notices, load balancers, and the pools that the writer reads and writes. Before the
//! first Down of a node, the machine records the node in our ConfigMap. It sends the draining set to the writer as a
//! level, and the due admin part of each pool. The writer sends back the admin states of these pools, which the
//! machine compares with the set. At the start of a term, the machine confirms to the Leader that the Directory is
//! ready, once the records are read and the writer has the set. Every phase follows from the records and the signals,
//! not from the memory of this process. A node is done when no pool lacks anything for it and a later read of every
//! load balancer agrees.
//!
//! The modules:
//! - `nodes`: the nodes, their phases, and the resulting draining set (N1, N2, N4);
//! - `pending_updates`: due admin parts by pool, and their results (N3);
//! - `notices`: eviction notices, and the taint that makes them last (N1);
//! - `admission`: limits the Ready nodes that are Down at the same time (N5);
//! - `pools`: the known entries, and what pools lack (N2, N4);
//! - `records`: the text that is recorded for a node before its first Down (N4);
//! - `record_store`: the records that our ConfigMap must have, and those that it is confirmed to have (N4);
//! - `draining`: sends the draining set to the writer, and selects the pools that a change affects (N2);
//! - `sources`: the pools of xDS sources, whose endpoints have a health status of their own (X2);
//! - `switch`: the key in our ConfigMap that switches the admin state off (N4);
//! - `term`: when a term may begin, and what is allowed in it (W8, N4);
//! - `operator`: nodes that the operator releases (N5);
//! - `reporting`: events, views and metrics.

mod admission;
mod draining;
mod nodes;
mod notices;
mod operator;
mod pending_updates;
mod pools;
mod record_store;
pub(crate) mod records;
mod reporting;
mod sources;
pub mod switch;
mod term;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mechanisms::work_queue::{self, WorkQueue};
use model::arm::Provisioning;
use model::config_map::{ConfigMapAnswer, ConfigMapRequest};
use model::draining::{AdminDue, AdminEnd, AdminError, Draining, PoolAdminStates};
use model::ids::{CallId, Epoch, LbName, NodeName, NodeUid, PoolId, PoolName};
use model::leadership::Leadership;
use model::level::{DrainingAddresses, SourceAdminStates};
use model::load_balancers::LbObservation;
use model::machine::{Machine, Now, earliest};
use model::node::NodeFact;
use model::node::{NodeState, Role};
use model::object::{TaintAnswer, TaintPatch};
use model::operator_request::{Answer, RequestId, Scope};
use model::report::{Ended, Report};
use model::sample::Metric;
use model::signals::{self, Signal};
use model::view::{AdminView, NodeView};
use model::watch;

use model::policy::OperatorPolicy;
use nodes::{NodeStatus, Nodes};
use notices::EvictionNotices;
pub use notices::IgnoredNotice;
use pending_updates::PendingUpdates;
use pools::Pools;
use record_store::RecordStore;
use records::Record;
use reporting::{RecordsView, ReportInput, Reporting};

/// Settings of the machine.
#[derive(Clone, Debug)]
pub struct Params {
    /// Role of this process.
    pub role: Role,
    /// Load balancers that are read: the managed ones, and those that only `listed` pools name.
    pub load_balancers: Vec<LbName>,
    /// Load balancers that only `listed` pools name. All other pools there belong to other clients (N2).
    pub only_listed: BTreeSet<LbName>,
    /// `adminState.excludePools`: pools without draining (N2).
    pub excluded: BTreeSet<PoolName>,
    /// Pools that are filled from xDS sources, which set admin states of their own (X2).
    pub listed: BTreeSet<PoolId>,
    /// `adminState.maxBackoff`: longest delay of a node because of its own failures (N3).
    pub max_backoff: Duration,
    /// Place of node records.
    pub storage: RecordStorage,
}

/// The place of node records (N4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordStorage {
    /// In our ConfigMap.
    ConfigMap,
    /// Nowhere. A dry run reads and writes no records, and every node counts as recorded (C4).
    Nothing,
}

/// Input of the machine.
#[derive(Clone, Debug)]
pub enum In {
    /// A node. `None`: no node has this name any more.
    Node(NodeName, Option<Arc<NodeFact>>),
    /// All nodes of the lists that this term needs are delivered (W8).
    Confirmed(Epoch),
    /// An observation of a load balancer.
    Lb(LbObservation),
    /// The admin states of a pool, as the writer has read or written them.
    AdminStates(PoolId, PoolAdminStates),
    /// The Directory is ready for this term.
    Opened(Epoch),
    /// Leadership of this process, and its term.
    Leadership(Leadership),
    /// The operator's policy.
    OperatorPolicy {
        /// Newest term that had begun when the policy was read.
        term: Option<Epoch>,
        /// The policy.
        policy: Arc<OperatorPolicy>,
    },
    /// The answer to a request about our ConfigMap.
    ConfigMap(CallId, ConfigMapAnswer),
    /// An observation of the watch on preemption events.
    Preemption(watch::WatchUpdate),
    /// The answer to a patch of a node's taints.
    Tainted(CallId, TaintAnswer),
    /// The admin states that the source of a listed pool sets. `None`: not known (X2).
    SourceAdminStates(PoolId, Option<Arc<SourceAdminStates>>),
    /// The operator releases a node, or everything ([`Scope::Node`], [`Scope::Everything`]).
    Release(RequestId, Scope),
    /// The term in which events are posted. `None`: no events are posted.
    Reporting(Option<Epoch>),
}

/// Output of the machine.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the writer: the new draining set.
    Draining(Arc<Draining>),
    /// To the Directory: the addresses that drain, and those that are being restored (X2).
    DrainingAddresses(Arc<DrainingAddresses>),
    /// To the writer: the due admin part of a pool. `None`: nothing is due any more, as of the set that was last sent.
    Due(PoolId, Option<AdminDue>),
    /// To the Leader: the Directory is ready for this term, and the writer has the set.
    Opened(Epoch),
    /// To Discovery: read every load balancer soon.
    ReadLoadBalancers,
    /// To the Kubernetes port: a request about our ConfigMap.
    ConfigMap(CallId, ConfigMapRequest),
    /// To the Kubernetes port: a request about a node's taints.
    Taint(CallId, TaintPatch),
    /// To the event emitter.
    Report(Report),
    /// To the event emitter: a reported condition has ended.
    Ended(Ended),
    /// To the snapshot: a node. `None`: nothing is left under this name.
    Node(NodeName, Option<NodeView>),
    /// To the snapshot: the admin state as a whole.
    View(AdminView),
    /// To the process: a notice about this node was ignored.
    NoticeIgnored(NodeName, IgnoredNotice),
    /// To the process: the answer to an operator request.
    Answer(RequestId, Answer),
    /// To the Directory: the operator releases everything, including these nodes. The Directory answers.
    Release(RequestId, Vec<NodeName>),
    /// To the metrics.
    Metric(Metric),
}

/// The admin state of draining nodes (N1-N5).
#[derive(Debug)]
pub struct AdminState {
    params: Params,
    /// Newest term for which all nodes are known.
    confirmed: Option<Epoch>,
    /// Term for which the Directory is ready, while nodes or records are missing.
    opening: Option<Epoch>,
    /// Newest term that was opened.
    open: Option<Epoch>,
    /// Term in which this process may write.
    leads: Option<Epoch>,
    /// Newest term with a known policy.
    policy_term: Option<Epoch>,
    policy: Option<Arc<OperatorPolicy>>,
    nodes: Nodes,
    records: RecordStore,
    notices: EvictionNotices,
    pools: Pools,
    updates: PendingUpdates,
    /// The set that was last sent to the writer.
    set: Arc<Draining>,
    /// The addresses that were last sent to the Directory.
    draining_addresses: Arc<DrainingAddresses>,
    /// Load balancers that have existed.
    ever_existed: BTreeSet<LbName>,
    /// Load balancers that have never existed. Nothing can be Down there, and Discovery rarely reads them (D3), so
    /// that no node waits for them. A deleted load balancer is not among them: it may be created again with Down
    /// entries.
    never_existed: BTreeSet<LbName>,
    /// Pools to evaluate.
    dirty: BTreeSet<PoolId>,
    /// Whether a load balancer was observed since finished nodes were last dropped.
    observed_since_drop: bool,
    /// Time at which every load balancer must be read again, because an observation did not count for a waiting node.
    read_again_at: Option<Now>,
    /// Whether the set has grown since the last request to read every load balancer.
    grown: bool,
    /// Whether nodes, pools or the set have changed since the last report.
    changed: bool,
    /// Whether an input has not been evaluated yet, or pools are left for the next tick.
    pending: bool,
    /// Delays repeated updates after failures (S4).
    queue: WorkQueue<NodeUid>,
    reporting: Reporting,
}

/// Delay of the next read of a load balancer after an observation that did not count for a node.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(15);

/// Maximum number of pools that one tick evaluates. The rest waits for the next tick, so that no turn is long.
const POOLS_PER_TICK: usize = 128;

impl AdminState {
    /// Creates the machine without any observation.
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
            records: RecordStore::new(params.storage),
            notices: EvictionNotices::default(),
            pools: Pools::default(),
            updates: PendingUpdates::default(),
            set: Arc::new(Draining { excluded: params.excluded.clone(), ..Draining::default() }),
            draining_addresses: Arc::default(),
            ever_existed: BTreeSet::new(),
            never_existed: BTreeSet::new(),
            dirty: BTreeSet::new(),
            observed_since_drop: false,
            read_again_at: None,
            grown: false,
            changed: false,
            pending: false,
            queue: WorkQueue::new(pace),
            reporting: Reporting::default(),
            params,
        }
    }

    /// Returns the signals of a node that count.
    fn signals_of(&self, fact: &NodeFact) -> BTreeSet<Signal> {
        if !self.signals_count() {
            return BTreeSet::new();
        }
        let mut signals = signals::of_taints(&fact.taints);
        if self.notices.is_noticed(&fact.uid) {
            signals.insert(Signal::Notice);
        }
        signals
    }

    fn on_node(&mut self, now: Now, name: &NodeName, fact: Option<Arc<NodeFact>>) {
        if let Some(fact) = &fact {
            self.notices.on_fact(now, fact);
        }
        let fact = fact.map(|fact| {
            let signals = self.signals_of(&fact);
            (fact, signals)
        });
        let changed = self.nodes.apply_fact(now, name, fact, &mut self.records);
        self.changed = true;
        if let Some(uid) = changed.gone {
            self.notices.on_gone(now, &uid);
            if self.nodes.knows(&uid) {
                self.restart_work(now, uid);
            } else {
                self.updates.take_written(&uid);
                self.drop_work(now, &uid);
            }
        }
        if let Some(uid) = changed.retargeted {
            self.restart_work(now, uid);
        }
    }

    /// Takes a node out of the queue before its work is done (N3), which is not a result (S4).
    fn drop_work(&mut self, now: Now, uid: &NodeUid) {
        self.queue.done(now, uid);
        self.queue.retire(uid);
        self.updates.reset_backoff(uid);
    }

    /// Restarts the work on a node whose target has changed, regardless of earlier failures.
    fn restart_work(&mut self, now: Now, uid: NodeUid) {
        self.drop_work(now, &uid);
        self.queue.add(now, uid);
    }

    /// Applies changes of notices: signals, and the ownership of taints (N1).
    fn apply_notices(&mut self, now: Now) {
        for uid in self.notices.changed() {
            self.records.record_taint(&uid, self.notices.is_ours(&uid));
            self.evaluate_signals(now, &uid);
        }
    }

    /// Evaluates the signals of a node again.
    fn evaluate_signals(&mut self, now: Now, uid: &NodeUid) {
        let Some(fact) = self.nodes.fact(uid) else { return };
        let signals = self.signals_of(fact);
        self.changed = true;
        if self.nodes.apply_signals(now, uid, signals, &mut self.records) {
            self.restart_work(now, uid.clone());
        }
    }

    fn on_policy(&mut self, now: Now, term: Option<Epoch>, policy: Arc<OperatorPolicy>) {
        let counted = self.signals_count();
        self.policy_term = self.policy_term.max(term);
        self.policy = Some(policy);
        self.changed = true;
        if counted != self.signals_count() {
            let uids: Vec<NodeUid> = self.nodes.facts().map(|fact| fact.uid.clone()).collect();
            for uid in uids {
                self.evaluate_signals(now, &uid);
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
        self.nodes.observe_lb(seen, &self.pools, &mut self.records);
        self.dirty.extend(news);
        // While an operation runs, the observation will soon be outdated.
        let rests = |provisioning| provisioning != Provisioning::Updating;
        let at_rest = seen.facts.as_ref().is_none_or(|facts| {
            rests(facts.provisioning) && facts.pools.iter().all(|pool| rests(pool.provisioning))
        });
        if at_rest {
            self.nodes.apply_read(&seen.lb, seen.began, seen.puts.oldest);
        }
        if self.nodes.waits_for(&seen.lb) {
            self.read_again_at = earliest(self.read_again_at, Some(now.plus(READ_AGAIN_AFTER)));
        }
        self.observed_since_drop = true;
    }

    /// Compares the admin states that the writer has read or left with the set.
    fn on_admin_states(&mut self, now: Now, pool: PoolId, states: PoolAdminStates) {
        if let Some(facts) = &states.facts {
            self.pools.apply(&pool, states.at, Some(facts));
            // If a newer read is known, we may have set these Downs after this read.
            if self.pools.is_as_seen(&pool, states.at) {
                let downs = self.pools.required_downs_in(&pool, &self.set);
                self.nodes.downs_found(&pool, states.sent, &downs, &self.pools, &mut self.records);
            }
        }
        self.pools.doubt(&pool, states.at, states.in_doubt);
        if let Some(end) = states.ended {
            self.on_ended(now, &pool, states.at, end);
        }
        if let Some(generation) = states.withdrawn {
            self.updates.withdrawn(&pool, generation);
        }
        self.changed = true;
        self.dirty.insert(pool);
    }

    fn on_ended(&mut self, now: Now, pool: &PoolId, at: Now, end: AdminEnd) {
        let generation = end.generation;
        match end.result {
            Ok(()) => {
                if !self.records.writes() {
                    self.pools.withheld(pool, generation);
                }
                self.updates.ended(now, pool, generation, self.params.max_backoff);
            }
            Err(AdminError::Absent) => {
                self.pools.absent(at, pool);
                self.updates.ended(now, pool, generation, self.params.max_backoff);
            }
            Err(AdminError::Failed(failure)) => {
                let least = failure.retry_after.before_next_try().unwrap_or_default();
                let waits = (least, self.params.max_backoff);
                let uids = self.updates.failed(now, pool, generation, waits);
                for uid in &uids {
                    self.queue.finish(now, uid, Err(work_queue::Failed::default()));
                }
                self.reporting.failed(Some(pool), &uids, failure.to_string().into());
            }
        }
    }

    /// Acts on time and inputs, once for all inputs of a turn.
    fn reconcile(&mut self, now: Now, out: &mut Vec<Out>) {
        out.extend(
            self.notices.take_ignored(now).into_iter().map(|(node, why)| Out::NoticeIgnored(node, why)),
        );
        self.apply_notices(now);
        if let Some(epoch) = self.may_begin() {
            self.begin(now, epoch, out);
        }
        let acts = self.acts();
        if acts {
            self.notices.reconcile(now, |uid| self.records.confirms_taint(uid), out);
            self.apply_notices(now);
            self.nodes.admit(&self.pools, &mut self.records, |uid| self.notices.is_ours(uid));
            for uid in self.nodes.enter_set(now, &self.records) {
                self.restart_work(now, uid);
            }
        }
        if self.leads() {
            // The set is sent even while no work may begin: updates that are in flight or already due use the newest
            // set.
            self.send_set(out);
        }
        if acts {
            self.work(now, out);
        }
        self.records.reconcile(now, acts, out);
        if let Some(why) = self.records.take_failure() {
            self.reporting.failed(None, &self.records.unconfirmed(), why);
        }
        if !self.pending {
            self.report(now, acts, out);
        }
        debug_assert_eq!(self.check(), Ok(()));
    }

    /// Evaluates pools and nodes until nothing more follows, or until the limit of pools per tick. Nodes are
    /// evaluated only when no pool is left.
    fn work(&mut self, now: Now, out: &mut Vec<Out>) {
        loop {
            self.send_set(out);
            self.take_work(now);
            self.evaluate_pools(now, out);
            if !self.dirty.is_empty() {
                self.pending = true;
                break;
            }
            self.evaluate_nodes(now, out);
            if !self.nodes.is_stale() && !self.queue.is_ready(now) {
                break;
            }
        }
    }

    fn evaluate_pools(&mut self, now: Now, out: &mut Vec<Out>) {
        for _ in 0..POOLS_PER_TICK {
            let Some(pool) = self.dirty.pop_first() else { break };
            let missing = self.pools.missing(&pool, &self.set, self.nodes.restores());
            let since = |uid: &NodeUid| self.nodes.since(uid);
            let unpersisted =
                self.updates.request(now, pool.clone(), missing, self.set.generation, since, out);
            if !unpersisted.is_empty() {
                let why = "Azure has accepted the write several times, but it did not persist";
                self.reporting.failed(Some(&pool), &unpersisted, why.into());
            }
        }
    }

    /// Takes the nodes and pools whose delay is over. Their failed updates become due again.
    fn take_work(&mut self, now: Now) {
        for pool in self.updates.wake(now) {
            self.changed = true;
            self.dirty.insert(pool);
        }
        while let Some(uid) = self.queue.take(now) {
            self.changed = true;
            self.dirty.extend(self.updates.retry(&uid));
            if !self.nodes.works_on(&uid) {
                self.queue.finish(now, &uid, Ok(work_queue::Done::Success));
            }
        }
    }

    /// Evaluates which nodes are done, or not done any more.
    fn evaluate_nodes(&mut self, now: Now, out: &mut Vec<Out>) {
        let restores_all = !self.signals_count();
        let unknown = self.unknown();
        let waits = |uid: &NodeUid| self.updates.has_updates_for(uid) || unknown.contains(uid);
        let lbs = self.params.load_balancers.iter().filter(|lb| !self.never_existed.contains(*lb));
        let evaluation =
            self.nodes.evaluate((now, self.set.generation), lbs, restores_all, waits, &mut self.records);
        let again = self.read_again_at.take_if(|at| *at <= now).is_some() && self.nodes.waits_for_any();
        if evaluation.read_all | again | std::mem::take(&mut self.grown) {
            self.read_again_at = None;
            out.push(Out::ReadLoadBalancers);
        }
        let is_unchanged =
            [&evaluation.not_done, &evaluation.done, &evaluation.over].iter().all(|uids| uids.is_empty());
        self.changed |= !is_unchanged;
        for uid in evaluation.not_done {
            self.queue.add(now, uid);
        }
        for uid in evaluation.done {
            self.updates.take_written(&uid);
            self.queue.finish(now, &uid, Ok(work_queue::Done::Success));
            self.updates.reset_backoff(&uid);
        }
        for uid in evaluation.over {
            // Without a write, nothing was undone: the node was back, or deleted, before it was Down.
            if self.updates.take_written(&uid) {
                self.queue.finish(now, &uid, Ok(work_queue::Done::Success));
                self.updates.reset_backoff(&uid);
            } else {
                self.drop_work(now, &uid);
            }
        }
        if std::mem::take(&mut self.observed_since_drop) {
            let excluded = &self.params.excluded;
            for uid in self.nodes.drop_finished(&self.pools, excluded, &mut self.records) {
                self.changed = true;
                self.updates.take_written(&uid);
                self.drop_work(now, &uid);
            }
        }
    }

    /// Reports the state to operators and metrics.
    fn report(&mut self, now: Now, acts: bool, out: &mut Vec<Out>) {
        let changed = std::mem::take(&mut self.changed);
        let added = self.updates.take_added();
        let statuses: Vec<NodeStatus<'_>> = self.nodes.statuses(&self.records).collect();
        let input = ReportInput {
            statuses: &statuses,
            facts: &|| self.nodes.facts().map(Arc::as_ref).collect(),
            bound: &|| self.nodes.bound(),
            pools: &self.pools,
            updates: &self.updates,
            added: &added,
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
        self.reporting.report(now, &input, out);
    }

    /// Checks the invariants that hold between any two steps.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let mut drains = self.set.addresses.iter();
        let drains = drains.all(|(backend, uid)| {
            let noted = self.records.confirmed(uid).is_some_and(|record| record.has(backend));
            self.nodes.drains(uid) && noted
        });
        rule(drains || !self.leads(), "the set holds a node that does not drain, or is not recorded")?;
        self.nodes.check(&self.records)?;
        self.records.check()?;
        #[cfg(test)]
        self.pools.check()?;
        self.updates.check()
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
            In::AdminStates(pool, states) => self.on_admin_states(now, pool, states),
            In::SourceAdminStates(pool, states) => self.on_source_admin_states(pool, states),
            In::Opened(epoch) => self.opening = self.opening.max(Some(epoch)),
            In::Leadership(leadership) => {
                self.leads = leadership.term();
                self.changed = true;
            }
            In::OperatorPolicy { term, policy } => self.on_policy(now, term, policy),
            In::ConfigMap(call, answer) => self.on_config_map(now, call, answer, out),
            In::Preemption(seen) => self.notices.on_seen(now, &seen),
            In::Tainted(call, answer) => self.notices.on_tainted(now, call, &answer),
            In::Release(id, scope) => self.on_release(id, &scope, out),
            In::Reporting(term) => self.reporting.set_term(term),
        }
        self.pending = true;
    }

    fn deadline(&self) -> Option<Now> {
        if self.pending {
            return Some(Now::ZERO);
        }
        let work = earliest(earliest(self.queue.deadline(), self.updates.deadline()), self.read_again_at);
        let work = earliest(work, self.notices.deadline()).filter(|_| self.acts());
        let waits = earliest(work, self.notices.waits_until());
        earliest(waits, earliest(self.records.deadline(), self.reporting.deadline()))
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        self.pending = false;
        self.reconcile(now, out);
    }
}
