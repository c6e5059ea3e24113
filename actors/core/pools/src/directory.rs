//! Joins levels, mapping and the one active source of each pool, judges removals by the guards, and assigns each pool
//! its level (docs/design/pools.md, D2, G1-G6; A2, D1, D4, D6). When a level is written is the pool's business.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::discovery::rules::{RuleIndex, folded};
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
mod losses;
mod mapping;
mod operator;
mod pins;
mod pool;
mod reconcile;
mod removal_guard;
mod second_read;
#[cfg(test)]
mod tests;
mod unconfirmed_removals;
mod xds_pools;

use breaker::Breaker;
use failed::FailedBalancers;
use gauges::DirectoryGauges;
use mapping::{Balancer, Services};
use operator::DirectoryPolicy;
use pool::Pool;
use second_read::SecondRead;
pub use xds_pools::Listing;
use xds_pools::XdsPools;

/// What the Directory is told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// `members.removalDelay`, 30 s; pools with a rule without a probe have none (D4).
    pub removal_delay: Duration,
    /// `guards.emptyConfirm`, 60 s (G2).
    pub empty_confirm: Duration,
    /// `guards.mode` (G5); off in `compatibility: upstream` unless it was set (C2). What `empty_confirm` says holds
    /// all the same: it is zero there unless it was set.
    pub guards: GuardMode,
    /// `guards.maxRemovalFraction`, a half (G3).
    pub max_removal: Fraction,
    /// `clusterName`: pools of that name, with or without `-IPv6`, are never written (D2).
    pub cluster_name: Arc<str>,
    /// Pre-images that are put back: they take the place of what endpoints, delays and guards would make of levels.
    /// `None`, as in `run`: nothing is put back.
    pub pins: Option<Arc<Pins>>,
    /// The pools that are filled from xDS sources (X2).
    pub listed: Vec<Listing>,
    /// The load balancers that only these name: all other pools there are another client's (D1).
    pub only_listed: BTreeSet<LbName>,
    /// Whether this process only shows what it would do (C4): nothing is released here.
    pub shows_only: bool,
}

/// What the Directory can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// The first complete lists are in.
    ListsSynced,
    /// At least one managed load balancer was read, and each other one was read, has failed, or did not answer within 1
    /// s.
    DiscoverySynced,
    /// A Service changed or is gone.
    Service(ServiceUid, Option<Arc<ServiceFact>>),
    /// What is known of an xDS source (X2).
    Source(Name, SourceFact),
    /// Which addresses the admin state of nodes has a word on (X2, N4).
    DrainingAddresses(Arc<DrainingAddresses>),
    /// A load balancer was read.
    Lb(LbObservation),
    /// Which members a pool has after an attempt or its verification: what our own write has removed counts no more,
    /// though no read of the load balancer has shown it yet.
    Members(PoolId, PoolMembers),
    /// The lists that this term needs are in: it begins (W8).
    Confirmed(Epoch),
    /// A pool without an owner has released everything.
    Retired(PoolId),
    /// The term in which its reports become Events; `None`, as at first: this process does not lead, or the operator
    /// wishes that it writes nothing. They would be dropped, so it makes none. What lasts is told once in each term.
    Reporting(Option<Epoch>),
    /// A second read was made, and all facts that rest on it were told (G1).
    Reread(ReadId),
    /// The EndpointSlices that were read until this moment were taken in, and all facts that rest on them were told.
    ReadUpTo(Now),
    /// What operators wish; a term opens only after what they wish in it is known (G6).
    OperatorPolicy {
        /// The newest term that had begun when it was read.
        term: Option<Epoch>,
        /// All of it.
        policy: Arc<OperatorPolicy>,
    },
    /// The operator releases what is held back there; answered in this turn (H3), and done by who leads alone. The names
    /// are those of the nodes that the admin state has let go for the same request: they are in the answer.
    Ask(RequestId, Scope, Vec<NodeName>),
}

/// What the Directory can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To a pool: its level. Empty `services` means that it has no owner.
    Assign(Arc<Assignment>),
    /// To a pool: what discovery saw of it.
    Observe(PoolId, Observation),
    /// To the admin state: what the source of a listed pool says of admin states; `None`: it is not known, or it has no
    /// say (X2).
    SourceAdminStates(PoolId, Option<Arc<SourceAdminStates>>),
    /// To a pool: write it once more although it is right, because its provisioning state stays `Failed`.
    Rewrite(PoolId),
    /// To the registry of pools: drop this one; it has retired and has no owner.
    Forget(PoolId),
    /// To the admin state, which passes it on to the Leader: every assignment from now on is of this term (W8).
    Opened(Epoch),
    /// To the watchers of all three kinds: what is in doubt needs lists that are begun after this word (G1).
    Reread(ReadId),
    /// To the writer, after all assignments that rest on them: the EndpointSlices that were read until this moment were
    /// taken in.
    ReadUpTo(Now),
    /// To the process: the answer to the operator's request.
    Answer(RequestId, Answer),
    /// To the event emitter.
    Report(Report),
    /// To the event emitter: a condition that was reported holds no longer.
    Ended(Ended),
    /// To the board: why a listed pool is not written, or that nothing blocks it any more (D2, X2).
    Refused(PoolId, Option<NotManageable>),
    /// To the board: the guards.
    Guards(GuardsView),
    /// To the board: a Service, or that it is gone.
    Service(ServiceUid, model::ids::ServiceKey, Option<Arc<ServiceView>>),
    /// To the metrics.
    Metric(Metric),
}

/// Assigns each pool of a managed Service its level (A2).
pub struct Directory {
    params: Params,
    /// The cluster's own pools, of both families: never written for membership (D2).
    cluster_pools: [PoolName; 2],
    phase: Phase,
    term: Term,
    /// A term has begun, and its Leader has yet to hear that every assignment is of it.
    opening: bool,
    /// The term in which its reports are told.
    reporting: Option<Epoch>,
    /// Whether that has begun since the last turn, so that all that lasts is to be told.
    tell_all: bool,
    services: Services,
    balancers: BTreeMap<LbName, Balancer>,
    rules: RuleIndex,
    /// Every pool that is assigned, retires, or is refused.
    pools: BTreeMap<PoolId, Pool>,
    /// When each pool's level changes by time alone.
    timers: BTreeSet<(Now, PoolId)>,
    dirty: Dirty,
    gauges: DirectoryGauges,
    /// The load balancers whose provisioning state stays `Failed`.
    failed: FailedBalancers,
    breaker: Breaker,
    second_read: SecondRead,
    /// Until when the EndpointSlices were read that were taken in, where that was not passed on.
    read_up_to: Option<Now>,
    policy: DirectoryPolicy,
    listed: XdsPools,
    /// What was last shown of the guards.
    shown: Option<GuardsView>,
    /// How many levels were worked out since the start.
    #[cfg(test)]
    worked_out: usize,
}

/// Whether everything that must be known before the first assignment is known (D6).
#[derive(Clone, Copy)]
enum Phase {
    /// Neither the first lists nor the first discovery.
    Waiting,
    /// The lists, not the discovery.
    XdsPools,
    /// The discovery, not the lists.
    Discovered,
    /// Both.
    Running,
}

/// The term of leadership that every assignment is of. Before the first, on a standby, it is none's.
#[derive(Clone, Copy, Default)]
struct Term {
    epoch: Epoch,
    /// When it was opened.
    opened: Now,
}

/// What is to be worked out at the end of this turn.
#[derive(Default)]
struct Dirty {
    pools: BTreeSet<PoolId>,
    services: BTreeSet<ServiceUid>,
    /// Pools whose newest observation was not passed on.
    unseen: BTreeSet<PoolId>,
    /// When the first of them became so.
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
    /// Knows nothing yet, and assigns nothing before it does.
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
            tell_all: false,
            services: Services::default(),
            balancers: BTreeMap::new(),
            rules: RuleIndex::default(),
            pools: BTreeMap::new(),
            timers: BTreeSet::new(),
            dirty: Dirty::default(),
            gauges: DirectoryGauges::new(),
            failed: FailedBalancers::default(),
            breaker: Breaker::default(),
            second_read: SecondRead::default(),
            read_up_to: None,
            policy: DirectoryPolicy::default(),
            listed: XdsPools::new(if params.pins.is_some() { &[] } else { &params.listed }),
            shown: None,
            #[cfg(test)]
            worked_out: 0,
            params,
        }
    }

    fn is_running(&self) -> bool {
        match self.phase {
            Phase::Waiting | Phase::XdsPools | Phase::Discovered => false,
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
        let everybody: Vec<ServiceUid> = self.services.uids().cloned().collect();
        everybody.into_iter().for_each(|uid| self.dirty.service(now, uid));
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
            && entry.shown.is_some()
        {
            out.push(Out::Service(uid, entry.fact.key.clone(), None));
        }
    }

    fn is_candidate(&self, uid: &ServiceUid) -> bool {
        self.services.get(uid).is_some_and(|entry| entry.fact.candidacy == Candidacy::Candidate)
    }

    /// The pools that the rules of a Service send to.
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
        let mut balancer = Balancer::seen(began, facts);
        self.failed.saw(now, &lb, balancer.facts.as_deref());
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

    /// A pool has these members after an attempt, unless a read that began later shows others.
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

    /// A term begins. That it is open is said at the end of the turn, when all facts that came before it are worked
    /// out and every assignment has been said again (W8). An older one is over.
    fn on_confirmed(&mut self, now: Now, epoch: Epoch, out: &mut Vec<Out>) {
        if epoch <= self.term.epoch {
            return;
        }
        self.term = Term { epoch, opened: now };
        self.opening = true;
        self.dirty.since.get_or_insert(now);
        for (id, pool) in &mut self.pools {
            if pool.new_term(self.term, out) {
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

    /// In another term another client may be there to read, or an earlier report was dropped: what lasts is told once
    /// more, at the end of the turn, when all that came before is worked out (E1).
    fn on_reporting(&mut self, now: Now, term: Option<Epoch>) {
        if std::mem::replace(&mut self.reporting, term) == term || term.is_none() {
            return;
        }
        self.pools.values_mut().for_each(Pool::forget_told);
        self.tell_all = true;
        self.forget_sources_told();
        self.breaker.forget_told();
        // Some remarks on listed pools are the leader's alone.
        self.look_at_listed(now);
    }

    /// The invariant of an open term: every assignment that was said is of it. Costs as much as there are pools.
    fn is_open(&self) -> bool {
        self.pools.values().flat_map(Pool::last_said).all(|said| said.epoch == self.term.epoch)
    }

    /// What is kept of the guards besides each pool is what a recount gives.
    #[cfg(test)]
    fn check_guards(&self) -> bool {
        let wants = self.pools.iter().filter_map(|(id, pool)| Some((pool.read_from?, id.clone())));
        let assigned = self.pools.iter().filter(|(_, pool)| pool.said().is_some()).map(|(id, _)| id);
        let known = assigned.clone().all(|id| self.breaker.size(id).is_some());
        wants.collect::<BTreeSet<_>>() == *self.second_read.wanted()
            && known
            && self.breaker.known() == assigned.count()
            && self.breaker.check()
    }

    #[cfg(test)]
    fn check(&self) -> bool {
        let timers = self.pools.iter().filter_map(|(id, pool)| Some((pool.deadline?, id.clone())));
        let mut counted = DirectoryGauges::new();
        for pool in self.pools.values() {
            counted.moved(gauges::Counted::default(), pool.counted());
        }
        let ((held, refused), (all_held, mut all_refused)) = (counted.counted(), self.gauges.counted());
        all_refused.retain(|_, pools| *pools > 0);
        timers.collect::<BTreeSet<_>>() == self.timers
            && (held, refused) == (all_held, all_refused)
            && self.pools.values().all(|pool| !pool.is_over())
            && (self.opening || self.is_open())
            && (self.reporting.is_none() || self.tell_all || self.pools.values().all(Pool::has_told))
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
                    Phase::Waiting | Phase::XdsPools => Phase::XdsPools,
                    Phase::Discovered | Phase::Running => Phase::Running,
                };
                self.on_synced(now, phase);
            }
            In::DiscoverySynced => {
                let phase = match self.phase {
                    Phase::Waiting | Phase::Discovered => Phase::Discovered,
                    Phase::XdsPools | Phase::Running => Phase::Running,
                };
                self.on_synced(now, phase);
            }
            In::Service(uid, fact) => self.on_service(now, uid, fact, out),
            In::Source(name, fact) => self.on_source(now, name, fact),
            In::DrainingAddresses(leaving) => self.on_leaving(now, leaving),
            In::Lb(observation) => self.on_balancer(now, observation),
            In::Members(pool, members) => self.on_members(now, &pool, members),
            In::Confirmed(epoch) => self.on_confirmed(now, epoch, out),
            In::Retired(pool) => self.on_retired(&pool, out),
            In::Reporting(term) => self.on_reporting(now, term),
            In::Reread(read) => self.on_reread(now, read, out),
            In::ReadUpTo(read) => {
                self.read_up_to = self.read_up_to.max(Some(read));
                self.dirty.since.get_or_insert(now);
            }
            In::OperatorPolicy { term, policy } => self.on_policy(now, term, policy),
            In::Ask(request, scope, nodes) => self.on_ask(now, request, &scope, nodes, out),
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
        self.turn(now, out);
        for uid in std::mem::take(&mut self.dirty.services) {
            self.settle_service(uid, out);
        }
        if std::mem::take(&mut self.tell_all) && self.reporting.is_some() {
            for (id, pool) in &mut self.pools {
                pool.tell(id, out);
            }
        }
        self.tell_breaker(out);
        self.tell_sources(out);
        if let Some(read) = self.second_read.ask(now) {
            out.push(Out::Reread(read));
            out.push(Out::Metric(Metric::SecondRead));
        }
        self.rewrite_failed(now, out);
        self.show_guards(out);
        out.extend(self.read_up_to.take().map(Out::ReadUpTo));
        self.dirty.since = None;
        if self.is_running() {
            self.gauges.say(out);
        }
        if self.opening && self.knows_policy() {
            self.opening = false;
            assert!(
                self.is_open(),
                "an assignment is not of the term that opens: nothing may be written (A4, W8)"
            );
            out.push(Out::Opened(self.term.epoch));
        }
    }
}
