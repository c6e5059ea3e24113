//! Owns what is known of the managed load balancers: reads them one at a time, at start, at an interval, after
//! changes of candidates and after a 404 (design.md D1, D3). Whose pools they are is the Directory's business.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::arm::{Failure, LbFacts};
use crate::ask::{Answer, Done, Refusal, RequestId};
use crate::ids::{CallId, LbName, PoolId, PoolName, ServiceKey, ServiceUid};
use crate::informer::ServiceFact;
use crate::machine::{Machine, Now, earliest};
use crate::sample::Sample;
use crate::view::{Candidacy, LbView};

mod balancer;
mod followup;
mod foreign;
pub(crate) mod rules;
#[cfg(test)]
mod tests;

use balancer::Balancer;
use followup::{Followups, Wanted};
use foreign::Foreign;
use rules::RuleIndex;

/// What Discovery is told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// The managed load balancers (design.md 2).
    pub load_balancers: Vec<LbName>,
    /// `discovery.interval`: how often each is read, 60 s.
    pub interval: Duration,
}

/// What Discovery can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// The first complete lists are in.
    ListsSynced,
    /// A Service changed or is gone.
    Service(ServiceUid, Option<Arc<ServiceFact>>),
    /// The answer to a read.
    Read {
        /// The id of the request.
        call: CallId,
        /// When the GET began.
        began: Now,
        /// What it saw.
        result: Result<Arc<LbFacts>, Arc<Failure>>,
        /// What our own PUTs may have to do with that.
        puts: OurPuts,
    },
    /// A pool or its load balancer was not there when it was to be written (Q6 Stale).
    Missing(PoolId),
    /// Another holder has let go of the shared Lease: it may just have written (D3).
    ForeignRelease,
    /// A term of leadership begins: read every load balancer now (W8).
    Round,
    /// The admin state asks for a look at every load balancer soon (N2): looks that are asked for one after another are
    /// one.
    Look,
    /// A person asks for a look at this load balancer, or at all, now (H3).
    Compare(RequestId, Option<LbName>),
}

/// What Discovery can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the writer: read this load balancer, through the gates and the budget (W9).
    Read {
        /// The id that the answer carries.
        call: CallId,
        /// Which.
        lb: LbName,
    },
    /// To the admin state and the Directory: a load balancer as it is; `facts: None` means that it does not exist.
    Lb(LbObservation),
    /// To the Directory and the board: every managed load balancer has been tried, and at least one was seen.
    Synced,
    /// To the process: the answer to a person's request.
    Answer(RequestId, Answer),
    /// To the board.
    View(LbView),
    /// To the metrics.
    Sample(Sample),
}

/// What this process may have to do with what a GET of a load balancer shows (N4).
#[derive(Clone, Debug, Default)]
pub struct OurPuts {
    /// When it has last sent a PUT to each of its pools, whatever came of it.
    pub sent: Arc<BTreeMap<PoolName, Now>>,
    /// The oldest draining set of which a PUT may have been carried out since the GET began, or may be yet.
    pub oldest: Option<u64>,
}

/// A load balancer as a GET saw it.
#[derive(Clone, Debug)]
pub struct LbObservation {
    /// Which.
    pub lb: LbName,
    /// When the GET began.
    pub began: Now,
    /// What it saw; `None`: it does not exist.
    pub facts: Option<Arc<LbFacts>>,
    /// What our own PUTs, up to the moment of the answer, may have to do with that.
    pub puts: OurPuts,
}

/// After how long an answer to a read is no longer waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);
/// The least time between two extra rounds.
const ROUND_EVERY: Duration = Duration::from_secs(2);

/// Reads the managed load balancers, one GET at a time (design.md A2, D3).
pub struct Discovery {
    interval: Duration,
    phase: Phase,
    /// In the order of the configuration; the other fields name them by their place here.
    balancers: Vec<Balancer>,
    by_name: BTreeMap<LbName, usize>,
    /// When each load balancer is read next; the one being read is not in it.
    due: BTreeSet<(Now, usize)>,
    reading: Option<Reading>,
    /// The next request's number.
    calls: u64,
    candidates: BTreeMap<ServiceUid, Candidate>,
    rules: RuleIndex,
    followups: Followups,
    foreign: Foreign,
    /// When the next extra round begins, and when the last one did.
    round_at: Option<Now>,
    last_round: Option<Now>,
}

/// How far start-up has come.
enum Phase {
    /// The first complete lists are not in; nothing is read.
    Waiting,
    /// Not every load balancer has been looked at yet.
    FirstLook {
        /// Those of which no read has ended, not even in failure.
        untried: BTreeSet<usize>,
        /// Whether one of them was read or found absent.
        any_seen: bool,
    },
    /// Each has been tried and at least one was seen. One that cannot be read does not keep the others waiting:
    /// what is not known of it is not written.
    Synced,
}

/// The one read under way.
struct Reading {
    call: CallId,
    balancer: usize,
    asked: Now,
}

/// What is known of a candidate.
struct Candidate {
    key: ServiceKey,
    exposure: u64,
}

impl Discovery {
    /// Knows which load balancers to read; reads none before the first complete lists are in.
    #[must_use]
    pub fn new(params: Params) -> Discovery {
        let mut balancers = Vec::new();
        let mut by_name = BTreeMap::new();
        for name in params.load_balancers {
            if !by_name.contains_key(&name) {
                by_name.insert(name.clone(), balancers.len());
                balancers.push(Balancer::new(name));
            }
        }
        Discovery {
            interval: params.interval.max(Duration::from_secs(1)),
            phase: Phase::Waiting,
            balancers,
            by_name,
            due: BTreeSet::new(),
            reading: None,
            calls: 0,
            candidates: BTreeMap::new(),
            rules: RuleIndex::default(),
            followups: Followups::default(),
            foreign: Foreign::default(),
            round_at: None,
            last_round: None,
        }
    }

    fn on_lists(&mut self, now: Now, out: &mut Vec<Out>) {
        match self.phase {
            Phase::Waiting => {}
            Phase::FirstLook { .. } | Phase::Synced => return,
        }
        let all: BTreeSet<usize> = (0..self.balancers.len()).collect();
        let count = u32::try_from(self.balancers.len()).unwrap_or(u32::MAX).max(1);
        let step = self.interval / count;
        let mut regular = now;
        for (place, balancer) in self.balancers.iter_mut().enumerate() {
            regular = regular.plus(step);
            balancer.place(regular);
            balancer.want(now);
            self.due.insert((balancer.next_at(), place));
            out.push(Out::View(balancer.view()));
        }
        for (uid, candidate) in &self.candidates {
            self.followups.found_at_start(uid, &candidate.key, now);
        }
        self.phase = Phase::FirstLook { any_seen: all.is_empty(), untried: all };
        self.settle_phase(out);
    }

    fn on_service(&mut self, now: Now, uid: &ServiceUid, fact: Option<&ServiceFact>) {
        let fact = fact.filter(|fact| fact.candidacy == Candidacy::Candidate);
        let before = self.candidates.get(uid);
        let change = match (before, fact) {
            (Some(before), Some(fact)) if before.exposure == fact.exposure => None,
            (Some(_) | None, Some(fact)) => Some((fact.key.clone(), Wanted::OwnPool)),
            (Some(before), None) => Some((before.key.clone(), Wanted::NoOwnPool)),
            (None, None) => None,
        };
        let Some((key, wanted)) = change else { return };
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
            Phase::FirstLook { .. } | Phase::Synced => self.followups.changed(uid, &key, wanted, now),
        }
    }

    fn on_missing(&mut self, now: Now, lb: &LbName) {
        if let Some(&place) = self.by_name.get(lb) {
            self.reschedule(place, |balancer| balancer.missing(now));
        }
    }

    /// Has every load balancer read now, one after the other. A read that is under way does not count, and one that
    /// is to be made again after a failure does not wait for that.
    fn on_round(&mut self, now: Now) {
        match self.phase {
            // The first look serves.
            Phase::Waiting => return,
            Phase::FirstLook { .. } | Phase::Synced => {}
        }
        (self.round_at, self.last_round) = (None, Some(now));
        for place in 0..self.balancers.len() {
            self.reschedule(place, |balancer| balancer.want_at_once(now));
        }
    }

    fn on_look(&mut self, now: Now) {
        match self.phase {
            // The first look serves: nobody writes before it is over.
            Phase::Waiting => {}
            Phase::FirstLook { .. } | Phase::Synced => self.ask_round(now),
        }
    }

    /// Has an extra round begin, as soon as may be after the last one.
    fn ask_round(&mut self, now: Now) {
        let last = self.last_round;
        self.round_at.get_or_insert_with(|| last.map_or(now, |last| now.max(last.plus(ROUND_EVERY))));
    }

    /// A person asks for a look: it is made at once, one load balancer after another, and what it shows is compared as
    /// always.
    fn on_compare(&mut self, now: Now, id: RequestId, lb: Option<&LbName>, out: &mut Vec<Out>) {
        let places: Vec<usize> = match lb {
            None => (0..self.balancers.len()).collect(),
            Some(lb) => self.by_name.get(lb).copied().into_iter().collect(),
        };
        let refusal = match self.phase {
            Phase::Waiting => Some(Refusal::Failed("the first lists of the cluster are not complete".into())),
            Phase::FirstLook { .. } | Phase::Synced => places.is_empty().then_some(Refusal::Unknown),
        };
        if let Some(refusal) = refusal {
            out.push(Out::Answer(id, Answer::Refused(refusal)));
            return;
        }
        let names = places.iter().map(|place| self.balancers[*place].name.clone()).collect();
        for place in places {
            self.reschedule(place, |balancer| balancer.want_at_once(now));
        }
        out.push(Out::Answer(id, Answer::Done(Done::Comparing(names))));
    }

    fn on_foreign_release(&mut self, now: Now) {
        match self.phase {
            Phase::Waiting => {}
            Phase::FirstLook { .. } | Phase::Synced => self.foreign.released(now),
        }
    }

    /// Changes when a load balancer is read, and keeps the order of reads in step.
    fn reschedule(&mut self, place: usize, change: impl FnOnce(&mut Balancer)) {
        let balancer = &mut self.balancers[place];
        let listed = self.due.remove(&(balancer.next_at(), place));
        change(balancer);
        if listed {
            self.due.insert((balancer.next_at(), place));
        }
    }

    fn on_read(
        &mut self,
        now: Now,
        call: CallId,
        (began, puts): (Now, OurPuts),
        result: Result<Arc<LbFacts>, Arc<Failure>>,
        out: &mut Vec<Out>,
    ) {
        let Some(reading) = self.reading.take_if(|reading| reading.call == call) else {
            out.push(Out::Sample(Sample::UnmatchedAnswer));
            return;
        };
        match result {
            Ok(facts) => self.seen(now, reading.balancer, (began, puts), Some(facts), out),
            Err(failure) if failure.says_absent() => {
                self.seen(now, reading.balancer, (began, puts), None, out);
            }
            Err(failure) => self.failed(now, reading.balancer, Arc::from(failure.to_string()), out),
        }
    }

    fn seen(
        &mut self,
        now: Now,
        place: usize,
        (began, puts): (Now, OurPuts),
        facts: Option<Arc<LbFacts>>,
        out: &mut Vec<Out>,
    ) {
        let balancer = &mut self.balancers[place];
        self.rules.replace(&balancer.name, balancer.facts.as_deref(), facts.as_deref());
        balancer.seen(now, facts.clone());
        out.push(Out::Lb(LbObservation { lb: balancer.name.clone(), began, facts, puts }));
        self.read_ended(place, true, out);
    }

    fn failed(&mut self, now: Now, place: usize, error: Arc<str>, out: &mut Vec<Out>) {
        self.balancers[place].failed(now, error);
        self.read_ended(place, false, out);
    }

    fn read_ended(&mut self, place: usize, seen: bool, out: &mut Vec<Out>) {
        let balancer = &self.balancers[place];
        self.due.insert((balancer.next_at(), place));
        out.push(Out::View(balancer.view()));
        match &mut self.phase {
            Phase::Waiting | Phase::Synced => {}
            Phase::FirstLook { untried, any_seen } => {
                untried.remove(&place);
                *any_seen |= seen;
            }
        }
        self.settle_phase(out);
    }

    fn settle_phase(&mut self, out: &mut Vec<Out>) {
        match &self.phase {
            Phase::FirstLook { untried, any_seen: true } if untried.is_empty() => {
                self.phase = Phase::Synced;
                out.push(Out::Synced);
            }
            Phase::Waiting | Phase::FirstLook { .. } | Phase::Synced => {}
        }
    }

    /// Whether changes of Services may ask for rounds: the first look serves all who ask during it.
    fn follows(&self) -> bool {
        match &self.phase {
            Phase::Waiting => false,
            Phase::FirstLook { untried, .. } => untried.is_empty(),
            Phase::Synced => true,
        }
    }

    /// Does all that this moment allows; the end of every step and tick.
    fn advance(&mut self, now: Now, out: &mut Vec<Out>) {
        let overdue = self.reading.take_if(|reading| reading.asked.plus(ANSWER_WITHIN) <= now);
        if let Some(reading) = overdue {
            self.failed(now, reading.balancer, Arc::from("no answer within 2 min"), out);
        }
        let follows = self.follows() && self.followups.ask(now, &self.rules);
        if self.foreign.asks(now) || follows {
            self.ask_round(now);
        }
        if self.round_at.is_some_and(|at| at <= now) {
            self.round_at = None;
            self.last_round = Some(now);
            for place in 0..self.balancers.len() {
                self.reschedule(place, |balancer| balancer.want(now));
            }
        }
        self.read_next(now, out);
        debug_assert!(self.check(), "discovery's order of reads is consistent");
    }

    fn read_next(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.reading.is_some() || self.due.first().is_none_or(|(at, _)| *at > now) {
            return;
        }
        let Some((_, place)) = self.due.pop_first() else {
            return;
        };
        let balancer = &mut self.balancers[place];
        balancer.begin(now, self.interval);
        self.calls += 1;
        let call = CallId(self.calls);
        self.reading = Some(Reading { call, balancer: place, asked: now });
        out.push(Out::Read { call, lb: balancer.name.clone() });
    }

    /// The invariants: each load balancer is either being read or waits for exactly one moment, none before
    /// the lists are in; and each followed Service waits for exactly one moment.
    fn check(&self) -> bool {
        let reading = self.reading.as_ref().map(|reading| reading.balancer);
        let started = match self.phase {
            Phase::Waiting => false,
            Phase::FirstLook { .. } | Phase::Synced => true,
        };
        let waiting = self.due.len() + usize::from(reading.is_some());
        waiting == if started { self.balancers.len() } else { 0 }
            && self.followups.check()
            && self
                .due
                .iter()
                .all(|(at, place)| *at == self.balancers[*place].next_at() && Some(*place) != reading)
    }
}

impl Machine for Discovery {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match input {
            In::ListsSynced => self.on_lists(now, out),
            In::Service(uid, fact) => self.on_service(now, &uid, fact.as_deref()),
            In::Read { call, began, result, puts } => {
                self.on_read(now, call, (began, puts), result, out);
            }
            In::Missing(pool) => self.on_missing(now, &pool.lb),
            In::ForeignRelease => self.on_foreign_release(now),
            In::Round => self.on_round(now),
            In::Look => self.on_look(now),
            In::Compare(id, lb) => self.on_compare(now, id, lb.as_ref(), out),
        }
        self.advance(now, out);
    }

    fn deadline(&self) -> Option<Now> {
        let read = match &self.reading {
            Some(reading) => Some(reading.asked.plus(ANSWER_WITHIN)),
            None => self.due.first().map(|(at, _)| *at),
        };
        let asked = if self.follows() { self.followups.next_at() } else { None };
        earliest(earliest(read, self.foreign.next_at()), earliest(self.round_at, asked))
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        self.advance(now, out);
    }
}
