//! Owns the known state of the managed load balancers: reads up to 8 of them at once, at start, at an interval, after
//! changes of candidates and after a 404 (docs/design/pools.md, D3; D1). The Directory decides which Service owns a
//! pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::arm::{Failure, LbFacts};
use model::ids::{CallId, LbName, PoolId, RulePrefix, ServiceKey, ServiceUid};
use model::load_balancers::{LbObservation, OurPuts};
use model::machine::{Machine, Now, earliest};
use model::operator_request::{Answer, Done, Refusal, RequestId};
use model::sample::Metric;
use model::services::ServiceFact;
use model::view::{Candidacy, LbView};

mod balancer;
mod followup;
mod foreign;
mod reads;
pub(crate) mod rules;
#[cfg(test)]
mod tests;

use balancer::ManagedBalancer;
use followup::{ExpectedRules, Followups};
use foreign::ForeignReleases;
use reads::{PendingRead, Reads};
use rules::RuleIndex;

/// Settings of Discovery, fixed at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// The managed load balancers (docs/design/glossary.md).
    pub load_balancers: Vec<LbName>,
    /// The managed load balancers that only internal Services use. The cloud-controller-manager creates one for the
    /// first internal Service.
    pub internal: BTreeSet<LbName>,
    /// `discovery.interval`: the time between two reads of one load balancer, 60 s.
    pub interval: Duration,
}

/// Inputs of Discovery.
#[derive(Clone, Debug)]
pub enum In {
    /// The first lists are complete.
    ListsSynced,
    /// A Service changed, or is gone (`None`).
    Service(ServiceUid, Option<Arc<ServiceFact>>),
    /// A read has passed gates and budget, and its GET is sent.
    Sent(CallId),
    /// The answer to a read.
    Read {
        /// The id of the request.
        call: CallId,
        /// When the GET began.
        began: Now,
        /// The result of the GET; `None`: the load balancer does not exist.
        result: Result<Option<Arc<LbFacts>>, Arc<Failure>>,
        /// Our own PUTs that may explain the result.
        puts: OurPuts,
    },
    /// A pool or its load balancer was not found when it was to be written (Q6 Stale).
    Missing(PoolId),
    /// Another holder released the shared Lease: it may just have written (D3).
    ForeignRelease,
    /// A term of leadership begins: read every load balancer now (W8).
    StartRound,
    /// The admin state requests a read of every load balancer soon (N2). Requests in quick succession share one round.
    ReadSoon,
    /// The operator requests a read of this load balancer, or of all, now (H3).
    Compare(RequestId, Option<LbName>),
}

/// Outputs of Discovery.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the writer: read this load balancer, through the gates and the budget (W9).
    Read {
        /// The id that the answer carries.
        call: CallId,
        /// The load balancer to read.
        lb: LbName,
    },
    /// To the admin state and the Directory: a load balancer as read. `facts: None` means that it does not exist.
    Lb(LbObservation),
    /// To the Directory and the snapshot: at least one managed load balancer was read. Each other one was read, failed,
    /// or did not answer within 1 s of that.
    Synced,
    /// To the process: the answer to the operator's request.
    Answer(RequestId, Answer),
    /// To the snapshot.
    View(LbView),
    /// To the metrics.
    Metric(Metric),
}

/// Time that Discovery waits for the other load balancers after it has read the first one, so that guards count as many
/// pools as possible at the start (G4).
const INITIAL_WAIT: Duration = Duration::from_secs(1);
/// Minimum time between two extra rounds.
const ROUND_INTERVAL: Duration = Duration::from_secs(2);

/// Reads the managed load balancers, up to 8 at once (A2, D3).
pub struct Discovery {
    interval: Duration,
    phase: Phase,
    /// In the order of the configuration; the other fields refer to them by index.
    balancers: Vec<ManagedBalancer>,
    by_name: BTreeMap<LbName, usize>,
    /// When each load balancer is read next. Excludes those in flight.
    due: BTreeSet<(Now, usize)>,
    reads: Reads,
    candidates: BTreeMap<ServiceUid, Candidate>,
    /// The Services whose pools are on internal load balancers, with their exposure.
    internal: BTreeMap<ServiceUid, u64>,
    rules: RuleIndex,
    followups: Followups,
    foreign: ForeignReleases,
    /// When the next extra round begins.
    round_at: Option<Now>,
    last_round: Option<Now>,
}

/// Progress of start-up.
enum Phase {
    /// The first lists are not complete; nothing is read.
    Waiting,
    /// Not every load balancer has been read yet.
    InitialReads {
        /// Load balancers whose first read has not ended, not even in failure.
        untried: BTreeSet<usize>,
        /// The end of the wait for the others, once one load balancer was read or found absent.
        until: Option<Now>,
    },
    /// At least one load balancer was read. One that cannot be read, or does not answer, does not delay the others: its
    /// pools are not written.
    Synced,
}

/// A Service that qualifies for a pool of its own.
struct Candidate {
    key: ServiceKey,
    exposure: u64,
}

impl Discovery {
    /// Creates a Discovery that reads nothing before the first lists are complete.
    #[must_use]
    pub fn new(params: Params) -> Discovery {
        let interval = params.interval.max(Duration::from_secs(1));
        let mut balancers = Vec::new();
        let mut by_name = BTreeMap::new();
        for name in params.load_balancers {
            if !by_name.contains_key(&name) {
                by_name.insert(name.clone(), balancers.len());
                let internal = params.internal.contains(&name);
                balancers.push(ManagedBalancer::new(name, interval, internal));
            }
        }
        Discovery {
            interval,
            phase: Phase::Waiting,
            balancers,
            by_name,
            due: BTreeSet::new(),
            reads: Reads::default(),
            candidates: BTreeMap::new(),
            internal: BTreeMap::new(),
            rules: RuleIndex::default(),
            followups: Followups::default(),
            foreign: ForeignReleases::default(),
            round_at: None,
            last_round: None,
        }
    }

    fn on_lists(&mut self, now: Now, out: &mut Vec<Out>) {
        match self.phase {
            Phase::Waiting => {}
            Phase::InitialReads { .. } | Phase::Synced => return,
        }
        let all: BTreeSet<usize> = (0..self.balancers.len()).collect();
        let count = u32::try_from(self.balancers.len()).unwrap_or(u32::MAX).max(1);
        let step = self.interval / count;
        let mut regular = now;
        for (index, balancer) in self.balancers.iter_mut().enumerate() {
            regular = regular.plus(step);
            balancer.set_regular(regular);
            balancer.request(now);
            self.due.insert((balancer.next_at(), index));
            out.push(Out::View(balancer.view()));
        }
        for (uid, candidate) in &self.candidates {
            self.followups.found_at_start(uid, &candidate.key, now);
        }
        let until = all.is_empty().then_some(now);
        self.phase = Phase::InitialReads { untried: all, until };
    }

    fn on_service(&mut self, now: Now, uid: &ServiceUid, fact: Option<&ServiceFact>) {
        self.read_absent_internal(now, uid, fact);
        let fact = fact.filter(|fact| fact.candidacy == Candidacy::Candidate);
        let before = self.candidates.get(uid);
        let change = match (before, fact) {
            (Some(before), Some(fact)) if before.exposure == fact.exposure => None,
            (Some(_) | None, Some(fact)) => Some((fact.key.clone(), ExpectedRules::OwnPool)),
            (Some(before), None) => Some((before.key.clone(), ExpectedRules::NoOwnPool)),
            (None, None) => None,
        };
        let Some((key, expected)) = change else { return };
        match fact {
            Some(fact) => {
                self.candidates.insert(uid.clone(), Candidate { key: key.clone(), exposure: fact.exposure });
            }
            None => {
                self.candidates.remove(uid);
            }
        }
        match self.phase {
            Phase::Waiting => {}
            Phase::InitialReads { .. } | Phase::Synced => self.followups.changed(uid, &key, expected, now),
        }
    }

    /// Reads absent internal load balancers when a Service that could use them is created or changes its exposure: the
    /// cloud-controller-manager may have created them for it. The Service need not be a candidate, because nodes go
    /// Down in all pools (N2).
    fn read_absent_internal(&mut self, now: Now, uid: &ServiceUid, fact: Option<&ServiceFact>) {
        let is_user = |fact: &&ServiceFact| fact.internal && fact.candidacy != Candidacy::NotLoadBalancer;
        let Some(fact) = fact.filter(is_user) else {
            self.internal.remove(uid);
            return;
        };
        if self.internal.insert(uid.clone(), fact.exposure) == Some(fact.exposure) {
            return;
        }
        for index in 0..self.balancers.len() {
            if self.balancers[index].is_absent_internal() {
                self.reschedule(index, |balancer| balancer.request_rate_limited(now));
            }
        }
    }

    /// Returns whether an internal Service has no rule on any load balancer. An absent load balancer may be created
    /// for such a Service at any time.
    fn lacks_internal(&self) -> bool {
        self.internal.keys().any(|uid| self.rules.of(&RulePrefix::of(uid)).next().is_none())
    }

    /// Begins an extra round. Skips absent load balancers that no Service could use.
    fn begin_round(&mut self, now: Now) {
        (self.round_at, self.last_round) = (None, Some(now));
        for index in 0..self.balancers.len() {
            if !self.internal.is_empty() || !self.balancers[index].is_absent_internal() {
                self.reschedule(index, |balancer| balancer.request(now));
            }
        }
    }

    fn on_missing(&mut self, now: Now, lb: &LbName) {
        if let Some(&index) = self.by_name.get(lb) {
            self.reschedule(index, |balancer| balancer.request_rate_limited(now));
        }
    }

    /// Reads every load balancer now. A read in flight does not count, and a load balancer that waits for a retry is
    /// read without that wait.
    fn on_round(&mut self, now: Now) {
        match self.phase {
            // The initial reads suffice.
            Phase::Waiting => return,
            Phase::InitialReads { .. } | Phase::Synced => {}
        }
        (self.round_at, self.last_round) = (None, Some(now));
        for index in 0..self.balancers.len() {
            self.reschedule(index, |balancer| balancer.request_now(now));
        }
    }

    fn on_read_soon(&mut self, now: Now) {
        match self.phase {
            // The initial reads suffice: nothing is written before they end.
            Phase::Waiting => {}
            Phase::InitialReads { .. } | Phase::Synced => self.schedule_round(now),
        }
    }

    /// Schedules an extra round, as soon as the interval since the last one allows.
    fn schedule_round(&mut self, now: Now) {
        let last = self.last_round;
        self.round_at.get_or_insert_with(|| last.map_or(now, |last| now.max(last.plus(ROUND_INTERVAL))));
    }

    /// Reads the load balancers now on the operator's request. The results are compared as always.
    fn on_compare(&mut self, now: Now, id: RequestId, lb: Option<&LbName>, out: &mut Vec<Out>) {
        let indexes: Vec<usize> = match lb {
            None => (0..self.balancers.len()).collect(),
            Some(lb) => self.by_name.get(lb).copied().into_iter().collect(),
        };
        let refusal = match self.phase {
            Phase::Waiting => Some(Refusal::Failed("the first lists of the cluster are not complete".into())),
            Phase::InitialReads { .. } | Phase::Synced => indexes.is_empty().then_some(Refusal::Unknown),
        };
        if let Some(refusal) = refusal {
            out.push(Out::Answer(id, Answer::Refused(refusal)));
            return;
        }
        let names = indexes.iter().map(|index| self.balancers[*index].name.clone()).collect();
        for index in indexes {
            self.reschedule(index, |balancer| balancer.request_now(now));
        }
        out.push(Out::Answer(id, Answer::Done(Done::Comparing(names))));
    }

    fn on_foreign_release(&mut self, now: Now) {
        match self.phase {
            Phase::Waiting => {}
            Phase::InitialReads { .. } | Phase::Synced => self.foreign.released(now),
        }
    }

    /// Changes when a load balancer is read, and keeps `due` consistent.
    fn reschedule(&mut self, index: usize, change: impl FnOnce(&mut ManagedBalancer)) {
        let balancer = &mut self.balancers[index];
        let listed = self.due.remove(&(balancer.next_at(), index));
        change(balancer);
        if listed {
            self.due.insert((balancer.next_at(), index));
        }
    }

    fn on_read(
        &mut self,
        now: Now,
        call: CallId,
        (began, puts): (Now, OurPuts),
        result: Result<Option<Arc<LbFacts>>, Arc<Failure>>,
        out: &mut Vec<Out>,
    ) {
        let Some(reading) = self.reads.take(call) else {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
            return;
        };
        match result {
            Ok(facts) => self.record_read(now, reading.balancer, (began, puts), facts, out),
            Err(failure) => self.record_failure(now, &reading, Arc::from(failure.to_string()), out),
        }
    }

    fn record_read(
        &mut self,
        now: Now,
        index: usize,
        (began, puts): (Now, OurPuts),
        facts: Option<Arc<LbFacts>>,
        out: &mut Vec<Out>,
    ) {
        let balancer = &mut self.balancers[index];
        self.rules.replace(&balancer.name, balancer.facts.as_deref(), facts.as_deref());
        balancer.record_read(now, began, facts.clone());
        out.push(Out::Lb(LbObservation { lb: balancer.name.clone(), began, facts, puts }));
        self.read_ended(index, Some(now), out);
    }

    fn record_failure(&mut self, now: Now, reading: &PendingRead, error: Arc<str>, out: &mut Vec<Out>) {
        self.balancers[reading.balancer].record_failure(now, error, reading.is_late());
        self.read_ended(reading.balancer, None, out);
    }

    fn read_ended(&mut self, index: usize, seen: Option<Now>, out: &mut Vec<Out>) {
        let balancer = &self.balancers[index];
        self.due.insert((balancer.next_at(), index));
        out.push(Out::View(balancer.view()));
        match &mut self.phase {
            Phase::Waiting | Phase::Synced => {}
            Phase::InitialReads { untried, until } => {
                untried.remove(&index);
                *until = until.or(seen.map(|seen| seen.plus(INITIAL_WAIT)));
            }
        }
    }

    fn update_phase(&mut self, now: Now, out: &mut Vec<Out>) {
        match &self.phase {
            Phase::InitialReads { untried, until: Some(until) }
                if *until <= now || untried.is_empty() && self.reads.is_idle() =>
            {
                self.phase = Phase::Synced;
                out.push(Out::Synced);
            }
            Phase::Waiting | Phase::InitialReads { .. } | Phase::Synced => {}
        }
    }

    /// Returns whether changes of Services may request rounds. During the initial reads they need none.
    fn may_follow_up(&self) -> bool {
        match &self.phase {
            Phase::Waiting => false,
            Phase::InitialReads { untried, .. } => untried.is_empty(),
            Phase::Synced => true,
        }
    }

    /// Does everything that is due now; the last part of every step and tick.
    fn process_due(&mut self, now: Now, out: &mut Vec<Out>) {
        for reading in self.reads.expire(now) {
            self.record_failure(now, &reading, Arc::from(reading.unanswered()), out);
        }
        let follows = self.may_follow_up() && self.followups.requests_round(now, &self.rules);
        if self.foreign.requests_round(now) || follows {
            self.schedule_round(now);
        }
        if self.round_at.is_some_and(|at| at <= now) {
            self.begin_round(now);
        }
        self.read_next(now, out);
        self.update_phase(now, out);
        debug_assert!(self.check(), "discovery's order of reads is consistent");
    }

    /// Returns the first due load balancer whose read fits the limits, and when it is due.
    fn next_read(&self) -> Option<(Now, usize)> {
        let room = [false, true].map(|unresponsive| self.reads.has_room(unresponsive));
        let has_room = |index: usize| room[usize::from(self.balancers[index].is_unresponsive())];
        self.due.iter().find(|(_, index)| has_room(*index)).copied()
    }

    fn read_next(&mut self, now: Now, out: &mut Vec<Out>) {
        while let Some((at, index)) = self.next_read().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, index));
            if self.balancers[index].may_skip_read(now) && !self.lacks_internal() {
                self.balancers[index].regular_after(now);
                self.due.insert((self.balancers[index].next_at(), index));
                continue;
            }
            let balancer = &mut self.balancers[index];
            balancer.begin(now);
            let call = self.reads.begin(now, index, balancer.is_unresponsive());
            out.push(Out::Read { call, lb: balancer.name.clone() });
        }
    }

    /// Checks the invariants: each load balancer is either being read or has exactly one due time, and none before the
    /// lists are complete; the limit of concurrent reads holds; and each followed Service has exactly one due time.
    fn check(&self) -> bool {
        let reading: BTreeSet<usize> = self.reads.balancers().collect();
        let started = match self.phase {
            Phase::Waiting => false,
            Phase::InitialReads { .. } | Phase::Synced => true,
        };
        let waiting = self.due.len() + self.reads.balancers().count();
        waiting == if started { self.balancers.len() } else { 0 }
            && self.reads.check()
            && self.followups.check()
            && self
                .due
                .iter()
                .all(|(at, index)| *at == self.balancers[*index].next_at() && !reading.contains(index))
    }
}

impl Machine for Discovery {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match input {
            In::ListsSynced => self.on_lists(now, out),
            In::Service(uid, fact) => self.on_service(now, &uid, fact.as_deref()),
            In::Sent(call) => self.reads.sent(now, call),
            In::Read { call, began, result, puts } => {
                self.on_read(now, call, (began, puts), result, out);
            }
            In::Missing(pool) => self.on_missing(now, &pool.lb),
            In::ForeignRelease => self.on_foreign_release(now),
            In::StartRound => self.on_round(now),
            In::ReadSoon => self.on_read_soon(now),
            In::Compare(id, lb) => self.on_compare(now, id, lb.as_ref(), out),
        }
        self.process_due(now, out);
    }

    fn deadline(&self) -> Option<Now> {
        let read = earliest(self.reads.deadline(), self.next_read().map(|(at, _)| at));
        let look = match self.phase {
            Phase::InitialReads { until, .. } => until,
            Phase::Waiting | Phase::Synced => None,
        };
        let followup = if self.may_follow_up() { self.followups.next_at() } else { None };
        let rounds = earliest(self.round_at, earliest(self.foreign.next_at(), followup));
        earliest(earliest(read, look), rounds)
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        self.process_due(now, out);
    }
}
