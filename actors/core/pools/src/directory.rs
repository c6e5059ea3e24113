//! Owns the level of each pool: joins parts, rules and the one active source of each pool, applies the guards to
//! removals, and assigns each pool its level (docs/design/pools.md, D2, G1-G6; A2, D1, D4, D6). The PoolQueue decides
//! when a level is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::discovery::rules::{RuleIndex, folded};
use mechanisms::published::Published;
use model::assignment::{Assignment, Observation, PoolMembers};
use model::error::NotManageable;
use model::guard::{Fraction, GuardMode};
use model::ids::{Epoch, LbName, NodeName, PoolId, PoolName, ReadId, ServiceUid, of_balancer};
use model::level::{DrainingAddresses, SourceAdminStates};
use model::load_balancers::LbObservation;
use model::machine::{Machine, Now, earliest};
use model::operator_request::{Answer, RequestId, Scope};
use model::pins::Pins;
use model::policy::OperatorPolicy;
use model::report::{Ended, Report};
use model::sample::Metric;
use model::services::ServiceFact;
use model::view::{Candidacy, GuardsView, ServiceView};
use model::xds::name::Name;
use model::xds::source::SourceFact;

mod breaker;
mod conditions;
mod failed;
mod gauges;
mod guard_inputs;
mod losses;
mod mapping;
mod operator;
mod pins;
mod pool;
mod pool_inputs;
mod reconcile;
mod removal_guard;
mod second_read;
#[cfg(test)]
mod tests;
mod unconfirmed_removals;
mod xds_pools;

use breaker::RemovalBreaker;
use failed::FailedBalancers;
use gauges::DirectoryGauges;
use mapping::{ObservedBalancer, Services};
use operator::DirectoryPolicy;
use pool::Pool;
use second_read::SecondRead;
pub use xds_pools::Listing;
use xds_pools::XdsPools;

/// Settings of the Directory, fixed at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// `members.removalDelay`, 30 s; pools with a rule without a probe have none (D4).
    pub removal_delay: Duration,
    /// `guards.emptyConfirm`, 60 s (G2).
    pub empty_confirm: Duration,
    /// `guards.mode` (G5); off in `compatibility: upstream` unless it is set (C2). `empty_confirm` applies in every
    /// mode: in `compatibility: upstream` it is zero unless it is set.
    pub guards: GuardMode,
    /// `guards.maxRemovalFraction`, a half (G3).
    pub max_removal: Fraction,
    /// `clusterName`: pools of that name, with or without `-IPv6`, are never written (D2).
    pub cluster_name: Arc<str>,
    /// Pre-images to restore. They replace the levels that endpoints, delays and guards would make. `None`, as in
    /// `run`: nothing is restored.
    pub pins: Option<Arc<Pins>>,
    /// The pools that are filled from xDS sources (X2).
    pub listed: Vec<Listing>,
    /// Load balancers that only `pools` of the configuration names: all other pools on them belong to another client
    /// (D1).
    pub only_listed: BTreeSet<LbName>,
    /// Whether this process only shows what it would do (C4). The Directory then releases nothing.
    pub dry_run: bool,
}

/// Inputs of the Directory.
#[derive(Clone, Debug)]
pub enum In {
    /// The first lists are complete.
    ListsSynced,
    /// Discovery read at least one managed load balancer. Each other one was read, failed, or did not answer within 1
    /// s.
    DiscoverySynced,
    /// A Service changed, or is gone (`None`).
    Service(ServiceUid, Option<Arc<ServiceFact>>),
    /// The current state of an xDS source (X2).
    Source(Name, SourceFact),
    /// Addresses whose admin state is set because their node leaves service (X2, N4).
    DrainingAddresses(Arc<DrainingAddresses>),
    /// Discovery read a load balancer.
    Lb(LbObservation),
    /// The members of a pool after an attempt or its verification. A member that our own write removed no longer
    /// counts, even before a read of the load balancer shows it.
    Members(PoolId, PoolMembers),
    /// The lists that this term needs are complete: the term begins (W8).
    Confirmed(Epoch),
    /// A pool without an owner has released everything.
    Retired(PoolId),
    /// A requested rewrite of a pool was skipped, because the pool is out of sync, waits, or is left alone.
    RewriteSkipped(PoolId),
    /// The term in which reports become Events. `None`, the initial value: this process does not lead, or the operator
    /// stopped all writes. Without a term the Directory makes no reports. Each new term reports the lasting conditions
    /// once.
    Reporting(Option<Epoch>),
    /// A second read is complete, and all facts that rest on it have arrived (G1).
    Reread(ReadId),
    /// The EndpointSlices read until this moment are processed, and all facts that rest on them have arrived.
    ReadUpTo(Now),
    /// The operator's policy. A term opens only after the policy that applies in it is known (G6).
    OperatorPolicy {
        /// The newest term that had begun when the policy was read.
        term: Option<Epoch>,
        /// The complete policy.
        policy: Arc<OperatorPolicy>,
    },
    /// The operator releases the removals that are held back in this scope. The Directory answers in this turn (H3);
    /// only the leader releases. The names are the nodes that the admin state released for the same request; the
    /// answer lists them.
    Release(RequestId, Scope, Vec<NodeName>),
}

/// Outputs of the Directory.
#[derive(Clone, Debug)]
pub enum Out {
    /// To a pool: its level. Empty `services` means that the pool has no owner.
    Assign(Arc<Assignment>),
    /// To a pool: the pool as Discovery observed it.
    Observe(PoolId, Observation),
    /// To the admin state: the admin states that the source of a listed pool sets. `None`: not known, or the source
    /// sets none (X2).
    SourceAdminStates(PoolId, Option<Arc<SourceAdminStates>>),
    /// To a pool: write it once more although it is in sync, because its provisioning state stays `Failed`.
    Rewrite(PoolId),
    /// To the registry of pools: drop this pool. It has retired and has no owner.
    Forget(PoolId),
    /// To the admin state, which passes it on to the Leader: every assignment from now on belongs to this term (W8).
    Opened(Epoch),
    /// To the watchers of all three kinds: the doubtful removals need lists that begin after this request (G1).
    Reread(ReadId),
    /// To the writer, after all assignments that rest on them: the EndpointSlices read until this moment are processed.
    ReadUpTo(Now),
    /// To the process: the answer to the operator's request.
    Answer(RequestId, Answer),
    /// To the event emitter.
    Report(Report),
    /// To the event emitter: a reported condition no longer holds.
    Ended(Ended),
    /// To the snapshot: the reason why a listed pool is not written; `None` when nothing blocks it any more (D2, X2).
    Refused(PoolId, Option<NotManageable>),
    /// To the snapshot: the state of the guards.
    Guards(GuardsView),
    /// To the snapshot: a Service; `None` when it is gone.
    Service(ServiceUid, model::ids::ServiceKey, Option<Arc<ServiceView>>),
    /// To the metrics.
    Metric(Metric),
}

/// Assigns each pool of a managed Service its level (A2).
pub struct Directory {
    params: Params,
    /// The cluster's own pools, of both families; their membership is never written (D2).
    cluster_pools: [PoolName; 2],
    phase: Phase,
    term: Term,
    /// Whether a term has begun and [`Out::Opened`] was not sent for it.
    opening: bool,
    /// The term in which the Directory makes reports.
    reporting: Option<Epoch>,
    /// Whether `reporting` began since the last turn, so that all lasting conditions are due.
    report_all: bool,
    services: Services,
    balancers: BTreeMap<LbName, ObservedBalancer>,
    rules: RuleIndex,
    /// Every pool that is assigned, retires, or is refused.
    pools: BTreeMap<PoolId, Pool>,
    /// When each pool's level changes by time alone.
    timers: BTreeSet<(Now, PoolId)>,
    dirty: Dirty,
    gauges: DirectoryGauges,
    /// The load balancers whose provisioning state stays `Failed`.
    failed: FailedBalancers,
    breaker: RemovalBreaker,
    second_read: SecondRead,
    /// The moment until which the processed EndpointSlices were read, if it was not yet passed on.
    read_up_to: Option<Now>,
    policy: DirectoryPolicy,
    listed: XdsPools,
    /// The guards as last published.
    published: Published<GuardsView>,
    /// Number of levels computed since the start.
    #[cfg(test)]
    computed_levels: usize,
}

/// Progress towards the facts that the first assignment needs (D6).
#[derive(Clone, Copy)]
enum Phase {
    /// Neither the first lists nor the first discovery are complete.
    Waiting,
    /// The lists are complete, the discovery is not.
    ListsSynced,
    /// The discovery is complete, the lists are not.
    Discovered,
    /// Both are complete.
    Running,
}

/// The term of leadership of every assignment. On a standby it is the default before the first term.
#[derive(Clone, Copy, Default)]
struct Term {
    epoch: Epoch,
    /// When the term opened.
    opened: Now,
}

/// The work to do at the end of this turn.
#[derive(Default)]
struct Dirty {
    pools: BTreeSet<PoolId>,
    services: BTreeSet<ServiceUid>,
    /// Pools whose newest observation was not passed on.
    unseen: BTreeSet<PoolId>,
    /// When the first item was added.
    since: Option<Now>,
}

impl Dirty {
    fn pool(&mut self, now: Now, pool: PoolId) {
        self.pools.insert(pool);
        self.since.get_or_insert(now);
    }

    fn service(&mut self, now: Now, uid: ServiceUid) {
        self.services.insert(uid);
        self.since.get_or_insert(now);
    }
}

impl Directory {
    /// Creates a Directory that assigns nothing until the first lists and the first discovery are complete.
    #[must_use]
    pub fn new(mut params: Params) -> Directory {
        if params.pins.is_some() {
            params.guards = GuardMode::Off;
        }
        Directory {
            cluster_pools: PoolName::of_cluster(&params.cluster_name),
            phase: Phase::Waiting,
            term: Term::default(),
            opening: false,
            reporting: None,
            report_all: false,
            services: Services::default(),
            balancers: BTreeMap::new(),
            rules: RuleIndex::default(),
            pools: BTreeMap::new(),
            timers: BTreeSet::new(),
            dirty: Dirty::default(),
            gauges: DirectoryGauges::new(),
            failed: FailedBalancers::default(),
            breaker: RemovalBreaker::default(),
            second_read: SecondRead::default(),
            read_up_to: None,
            policy: DirectoryPolicy::default(),
            listed: XdsPools::new(if params.pins.is_some() { &[] } else { &params.listed }),
            published: Published::default(),
            #[cfg(test)]
            computed_levels: 0,
            params,
        }
    }

    fn is_running(&self) -> bool {
        match self.phase {
            Phase::Waiting | Phase::ListsSynced | Phase::Discovered => false,
            Phase::Running => true,
        }
    }

    fn on_synced(&mut self, now: Now, phase: Phase) {
        let was = self.is_running();
        self.phase = phase;
        if was || !self.is_running() {
            return;
        }
        for (lb, balancer) in &self.balancers {
            for (name, seen) in &balancer.pools {
                let id = PoolId::new(lb.clone(), name.clone());
                if !seen.rules.is_empty() {
                    self.dirty.pool(now, id);
                }
            }
            for id in self.listed.on(lb) {
                self.dirty.pool(now, id.clone());
            }
        }
        let all: Vec<ServiceUid> = self.services.uids().cloned().collect();
        all.into_iter().for_each(|uid| self.dirty.service(now, uid));
        self.dirty.since.get_or_insert(now);
    }

    fn on_service(&mut self, now: Now, uid: ServiceUid, fact: Option<Arc<ServiceFact>>, out: &mut Vec<Out>) {
        let was = self.is_candidate(&uid);
        if let Some(fact) = fact {
            self.services.insert(&uid, fact);
            if was || self.is_candidate(&uid) {
                self.touch_pools_of(now, &uid);
            }
            self.dirty.service(now, uid);
            return;
        }
        if was {
            self.touch_pools_of(now, &uid);
        }
        self.dirty.services.remove(&uid);
        if let Some(entry) = self.services.remove(&uid)
            && entry.published.last().is_some_and(Option::is_some)
        {
            out.push(Out::Service(uid, entry.fact.key.clone(), None));
        }
    }

    fn is_candidate(&self, uid: &ServiceUid) -> bool {
        self.services.get(uid).is_some_and(|entry| entry.fact.candidacy == Candidacy::Candidate)
    }

    /// Returns the pools to which the rules of a Service send.
    fn pools_of(&self, uid: &ServiceUid) -> BTreeSet<PoolId> {
        let Some(entry) = self.services.get(uid) else {
            return BTreeSet::new();
        };
        self.rules
            .of(&entry.prefix)
            .filter_map(|(lb, pool)| Some(PoolId::new(lb.clone(), pool?.clone())))
            .collect()
    }

    fn touch_pools_of(&mut self, now: Now, uid: &ServiceUid) {
        if self.is_running() {
            for pool in self.pools_of(uid) {
                self.dirty.pool(now, pool);
            }
        }
    }

    fn on_balancer(&mut self, now: Now, observation: LbObservation) {
        let LbObservation { lb, began, facts, puts: _ } = observation;
        let old = self.balancers.get(&lb);
        if old.is_some_and(|old| began < old.began) {
            return;
        }
        let old_facts = old.and_then(|old| old.facts.clone());
        let facts = self.ours(&lb, facts);
        if !self.params.only_listed.contains(&lb)
            && self.rules.replace(&lb, old_facts.as_deref(), facts.as_deref())
        {
            for rule in [&old_facts, &facts].into_iter().flatten().flat_map(|facts| &facts.rules) {
                for uid in self.services.owners(&folded(&rule.name)) {
                    self.dirty.service(now, uid.clone());
                }
            }
        }
        let mut balancer = ObservedBalancer::new(began, facts);
        self.failed.observe(now, &lb, balancer.facts.as_deref());
        if let Some(old) = self.balancers.get(&lb) {
            balancer.keep_newer_members(old);
        }
        if self.is_running() {
            for (name, seen) in &balancer.pools {
                let id = PoolId::new(lb.clone(), name.clone());
                if !seen.rules.is_empty() || self.listed.has(&id) {
                    self.dirty.unseen.insert(id.clone());
                    self.dirty.pool(now, id);
                }
            }
            let known = of_balancer(&self.pools, &lb).map(|(id, _)| id);
            for id in known.chain(self.listed.on(&lb)) {
                self.dirty.pool(now, id.clone());
            }
        }
        self.balancers.insert(lb, balancer);
    }

    /// Takes over the members after an attempt, unless a read that began later shows others.
    fn on_members(&mut self, now: Now, id: &PoolId, members: PoolMembers) {
        let pool = self.balancers.get_mut(&id.lb).and_then(|balancer| balancer.pools.get_mut(&id.pool));
        let Some(pool) = pool.filter(|pool| pool.at < members.at) else { return };
        pool.at = members.at;
        if pool.members != members.members {
            pool.members = members.members;
            if self.is_running() {
                self.dirty.pool(now, id.clone());
            }
        }
    }

    /// Begins a newer term. The end of the turn opens it, after all earlier facts are processed and every assignment is
    /// sent again (W8). Ignores an older term.
    fn on_confirmed(&mut self, now: Now, epoch: Epoch, out: &mut Vec<Out>) {
        if epoch <= self.term.epoch {
            return;
        }
        self.term = Term { epoch, opened: now };
        self.opening = true;
        self.dirty.since.get_or_insert(now);
        for (id, pool) in &mut self.pools {
            if pool.begin_term(self.term, out) {
                self.dirty.pool(now, id.clone());
            }
        }
    }

    fn on_retired(&mut self, id: &PoolId, out: &mut Vec<Out>) {
        let unexpected = match self.pools.get_mut(id) {
            Some(pool) => pool.retired(id, out),
            None => true,
        };
        if unexpected {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
        }
        if self.pools.get(id).is_some_and(Pool::is_over) {
            self.pools.remove(id);
        }
    }

    /// Reports lasting conditions once more at the end of the turn: a new leader reports them too, and an earlier
    /// report may have been dropped (E1).
    fn on_reporting(&mut self, now: Now, term: Option<Epoch>) {
        if std::mem::replace(&mut self.reporting, term) == term || term.is_none() {
            return;
        }
        self.pools.values_mut().for_each(Pool::reset_reports);
        self.report_all = true;
        self.reset_source_reports();
        self.breaker.reset_reports();
        // Only the leader emits some of the diagnostics of listed pools.
        self.mark_listed_dirty(now);
    }

    /// Checks the invariant of an open term: every assignment belongs to it. Costs O(pools).
    fn is_open(&self) -> bool {
        self.pools.values().flat_map(Pool::last_sent).all(|sent| sent.epoch == self.term.epoch)
    }

    /// Compares the indexes of the guards with a recount.
    #[cfg(test)]
    fn check_guards(&self) -> bool {
        let wants = self.pools.iter().filter_map(|(id, pool)| Some((pool.read_from?, id.clone())));
        let assigned = self.pools.iter().filter(|(_, pool)| pool.assignment().is_some()).map(|(id, _)| id);
        let known = assigned.clone().all(|id| self.breaker.size(id).is_some());
        wants.collect::<BTreeSet<_>>() == *self.second_read.needed()
            && known
            && self.breaker.pools_known() == assigned.count()
            && self.breaker.check()
    }

    #[cfg(test)]
    fn check(&self) -> bool {
        let timers = self.pools.iter().filter_map(|(id, pool)| Some((pool.deadline?, id.clone())));
        let mut counted = DirectoryGauges::new();
        for pool in self.pools.values() {
            counted.move_pool(gauges::GaugeReasons::default(), pool.gauge_reasons());
        }
        let ((held, refused), (all_held, mut all_refused)) = (counted.counted(), self.gauges.counted());
        all_refused.retain(|_, pools| *pools > 0);
        timers.collect::<BTreeSet<_>>() == self.timers
            && (held, refused) == (all_held, all_refused)
            && self.pools.values().all(|pool| !pool.is_over())
            && (self.opening || self.is_open())
            && (self.reporting.is_none() || self.report_all || self.pools.values().all(Pool::has_reported))
            && self.check_guards()
    }
}

impl Machine for Directory {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match input {
            In::ListsSynced => {
                let phase = match self.phase {
                    Phase::Waiting | Phase::ListsSynced => Phase::ListsSynced,
                    Phase::Discovered | Phase::Running => Phase::Running,
                };
                self.on_synced(now, phase);
            }
            In::DiscoverySynced => {
                let phase = match self.phase {
                    Phase::Waiting | Phase::Discovered => Phase::Discovered,
                    Phase::ListsSynced | Phase::Running => Phase::Running,
                };
                self.on_synced(now, phase);
            }
            In::Service(uid, fact) => self.on_service(now, uid, fact, out),
            In::Source(name, fact) => self.on_source(now, name, fact),
            In::DrainingAddresses(draining) => self.on_draining(now, draining),
            In::Lb(observation) => self.on_balancer(now, observation),
            In::Members(pool, members) => self.on_members(now, &pool, members),
            In::Confirmed(epoch) => self.on_confirmed(now, epoch, out),
            In::Retired(pool) => self.on_retired(&pool, out),
            In::RewriteSkipped(pool) => self.on_not_rewritten(now, &pool.lb, out),
            In::Reporting(term) => self.on_reporting(now, term),
            In::Reread(read) => self.on_reread(now, read, out),
            In::ReadUpTo(read) => {
                self.read_up_to = self.read_up_to.max(Some(read));
                self.dirty.since.get_or_insert(now);
            }
            In::OperatorPolicy { term, policy } => self.on_policy(now, term, policy),
            In::Release(request, scope, nodes) => self.on_release(now, request, &scope, nodes, out),
        }
    }

    fn deadline(&self) -> Option<Now> {
        let timers = self.timers.first().map(|(at, _)| *at);
        let guards = earliest(self.second_read.deadline(), self.rewrite_at());
        earliest(self.dirty.since, earliest(timers, guards))
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        while let Some((at, id)) = self.timers.pop_first() {
            if at > now {
                self.timers.insert((at, id));
                break;
            }
            if let Some(pool) = self.pools.get_mut(&id) {
                pool.deadline = None;
            }
            self.dirty.pool(now, id);
        }
        self.reconcile(now, out);
        for uid in std::mem::take(&mut self.dirty.services) {
            self.publish_service(uid, out);
        }
        if std::mem::take(&mut self.report_all) && self.reporting.is_some() {
            for (id, pool) in &mut self.pools {
                pool.report(id, out);
            }
        }
        self.report_breaker(out);
        self.report_sources(out);
        if let Some(read) = self.second_read.request_due(now) {
            out.push(Out::Reread(read));
            out.push(Out::Metric(Metric::SecondRead));
        }
        self.rewrite_failed(now, out);
        self.publish_guards(out);
        out.extend(self.read_up_to.take().map(Out::ReadUpTo));
        self.dirty.since = None;
        if self.is_running() {
            self.gauges.emit(out);
        }
        if self.opening && self.is_policy_known() {
            self.opening = false;
            assert!(self.is_open(), "invariant W8 violated: an assignment is not of the term that opens");
            out.push(Out::Opened(self.term.epoch));
        }
    }
}
