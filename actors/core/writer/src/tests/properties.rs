//! Property tests of the writer in a random world, with a quiet end.
//!
//! Safety: one PUT at a time on a load balancer, and no more busy lanes than slots. No PUT without proof, outside its
//! term, or without the etag of its GET. Each attempt that a pool has opened ends with one Finished. The admin state
//! is informed of each added member that must be Down and is not. Liveness: when the faults stop, every pool becomes
//! in sync within a bound.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::super::*;
use super::fake::{FakeArm, Fate, entry, failed, failure, ip, owner};
use model::arm::{AdminState, ArmRequest, Backend, Entry, PoolFacts, RetryAfter};
use model::attempt::MembershipUrgency;
use model::ids::{AddressName, Epoch, Etag, Family, NodeUid, PoolName};
use model::level::{Level, Member};
use model::proof::prove;
use model::write_record::Trigger;

const LBS: usize = 3;
const POOLS: usize = 3;
const TURNS: usize = 2;
const CLIENT_RETRIES: u32 = 3;

/// Maximum number of grants of one attempt: the first one, the client's retries of its GET and of its PUT, and the
/// waits for a foreign operation.
const MAX_GRANTS: u32 = 1 + 2 * CLIENT_RETRIES + 6;

/// A random event.
#[derive(Clone, Copy, Debug)]
enum RandomEvent {
    /// A pool gets a level: a set of addresses by bits, and the tolerated ones.
    Level(usize, u8, u8),
    /// Another client writes a pool, for this many seconds.
    Foreign(usize, u8, u8),
    /// The draining set changes, and the admin state of every pool is due.
    Drain(u8, bool),
    /// The next calls meet this fault.
    Faults(FailureCause, u8),
    /// Operations take this many seconds from now on, and end like this.
    Operations(u8, Option<Fate>, bool),
    /// A foreign rule is added to a pool, or removed.
    ForeignRule(usize, bool),
    /// Leadership is lost or won.
    Lead(bool),
    /// A predecessor has begun to write a pool, for this many seconds, when this process leads.
    TakeOver(usize, u8, u8),
    /// Pools answer this many seconds late.
    Sluggish(u8),
    /// Discovery reads a load balancer.
    Discover(usize),
    /// A pool withdraws its due work.
    Withdraw(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FailureCause {
    /// The call is carried out, and the answer is lost.
    AnswerLost,
    /// The call is not carried out, and the connection breaks.
    NotSent,
    /// The call is carried out, and a gateway times out.
    GatewayTimeout,
    /// 429 of a quota.
    Quota,
    /// 429 of a lock.
    Lock,
    /// 409.
    Conflict,
    /// 412.
    Moved,
    /// 500.
    Broken,
    /// 403.
    Denied,
    /// No token.
    NoToken,
    /// The port's gate was closed.
    GateClosed,
}

/// The side of a pool: its level, and an open attempt.
struct FakePool {
    id: PoolId,
    level: Level,
    open: Option<AttemptId>,
    /// Time at which it became due in its lane.
    posted: Option<Now>,
    /// Time at which it becomes due again, because it is out of sync.
    again: Option<Now>,
    /// Messages to it that are not handled yet.
    mail: VecDeque<(Now, Out)>,
}

struct World {
    now: Now,
    writer: Writer,
    arm: FakeArm,
    pools: Vec<FakePool>,
    /// Calls in flight: the time at which they reach ARM, and their fault there.
    calls: BTreeMap<CallId, (Now, ArmRequest, Option<FailureCause>)>,
    faults: VecDeque<FailureCause>,
    slow: Duration,
    epoch: u64,
    leads: bool,
    admin_due: BTreeMap<PoolId, u64>,
    /// The etag and facts in the last GET of each pool.
    last_get: BTreeMap<PoolId, (Option<Etag>, Arc<PoolFacts>)>,
    /// Number of grants of each attempt.
    grants: BTreeMap<AttemptId, u32>,
    /// Attempts with a PUT that has changed members.
    carried_out: BTreeSet<AttemptId>,
    /// Members that the last PUT of each pool adds without Down, and its draining set.
    added: BTreeMap<PoolId, (u64, BTreeSet<Backend>)>,
    /// The reported backends, by pool and set, which should be Down and may not be.
    missed: BTreeSet<(PoolId, u64, Backend)>,
    /// True if no other client writes, and every accepted PUT is carried out.
    alone: bool,
    finished: BTreeSet<AttemptId>,
    puts: usize,
    reads: u64,
    reads_answered: u64,
}

fn level(required: u8, tolerated: u8) -> Level {
    let bits = |bits: u8| (0..8_u8).filter(move |n| bits >> n & 1 == 1);
    let member = |n: u8| (ip(n), Member { name: AddressName::new(format!("n{n}")), node_ready: true });
    Level {
        required: bits(required).map(member).collect(),
        tolerated: bits(tolerated & !required).map(ip).collect(),
        ..Level::default()
    }
}

impl World {
    fn new() -> World {
        let params = Params {
            turns: TURNS,
            if_match: true,
            etag_rounds: 3,
            client_retries: CLIENT_RETRIES,
            lease: None,
            dry_run: false,
            rate_limit: None,
            retry_throttled: false,
            gates_delay_grants: true,
            throttling: Throttling::Bounded,
            breaker: true,
            min_interval: Duration::from_secs(5),
            writes_per_5_minutes: 3_000,
            reads_per_5_minutes: 30_000,
            network: None,
        };
        let mut arm = FakeArm::default();
        let mut pools = Vec::new();
        for number in 0..LBS * POOLS {
            let lb = LbName::new(format!("lb{}", number % LBS));
            let id = PoolId::new(lb, PoolName::new(format!("shop-p{number}")));
            arm.add(&id, vec![entry("n1", Some(ip(1)))]);
            pools.push(FakePool {
                id,
                level: level(2, 0),
                open: None,
                posted: None,
                again: None,
                mail: VecDeque::new(),
            });
        }
        World {
            now: Now::from_millis(1),
            writer: super::writer_with_policy(params),
            arm,
            pools,
            calls: BTreeMap::new(),
            faults: VecDeque::new(),
            slow: Duration::ZERO,
            epoch: 0,
            leads: false,
            admin_due: BTreeMap::new(),
            last_get: BTreeMap::new(),
            grants: BTreeMap::new(),
            carried_out: BTreeSet::new(),
            added: BTreeMap::new(),
            missed: BTreeSet::new(),
            alone: false,
            finished: BTreeSet::new(),
            puts: 0,
            reads: 0,
            reads_answered: 0,
        }
    }

    fn deliver(&mut self, input: In) {
        let mut out = Vec::new();
        self.writer.step(self.now, input, &mut out);
        self.apply_output(out);
    }

    fn apply_output(&mut self, out: Vec<Out>) {
        self.writer.check().expect("the invariants hold");
        let is_written = |output: &Out| {
            let Out::Finished(pool, _, Outcome::Written { .. }) = output else { return None };
            Some(pool.clone())
        };
        let written: Vec<PoolId> = out.iter().filter_map(is_written).collect();
        for output in out {
            match output {
                Out::Take(ref pool, attempt) => {
                    assert!(self.leads && attempt.epoch.0 == self.epoch, "a grant outside the term");
                    let grants = self.grants.entry(attempt).or_default();
                    *grants += 1;
                    assert!(*grants <= MAX_GRANTS, "{attempt} is tried without end");
                    self.mail(&pool.clone(), output);
                }
                Out::Finished(ref pool, attempt, ref outcome) => {
                    assert!(self.finished.insert(attempt), "{attempt} was finished twice: {outcome:?}");
                    let unchanged = matches!(outcome, Outcome::Unchanged { .. });
                    let overlooked = unchanged && self.alone && self.carried_out.contains(&attempt);
                    assert!(!overlooked, "{attempt} has written and does not know");
                    self.mail(&pool.clone(), output);
                }
                Out::AdminStates(pool, states) => self.on_admin_states(pool, states),
                Out::Read { .. } => self.reads_answered += 1,
                Out::Call(call) => self.send(call),
                Out::Verified(..)
                | Out::Observed(..)
                | Out::Lease(..)
                | Out::CountLockFailures { .. }
                | Out::ForeignRelease
                | Out::Sent(_)
                | Out::Pace(..)
                | Out::Report(_)
                | Out::Ended(_)
                | Out::SharedLease(_)
                | Out::Gates { .. }
                | Out::Lane(_)
                | Out::Gate(..)
                | Out::Metric(_)
                | Out::Attempt(..)
                | Out::Answer(..)
                | Out::Quiet { .. } => {}
            }
        }
        for pool in &written {
            self.check_missed_reports(pool);
        }
    }

    /// Compares the admin states of a pool with the newest set, and with the entries of the pool.
    fn on_admin_states(&mut self, pool: PoolId, states: PoolAdminStates) {
        let newest = Arc::clone(&self.writer.draining);
        for backend in states.in_doubt {
            assert!(newest.addresses.contains_key(&backend), "{backend} does not drain");
            self.missed.insert((pool.clone(), newest.generation, backend));
        }
        if let Some(facts) = states.facts {
            let of = |entry: &Entry| (entry.backend(), entry.admin_state);
            let known: Vec<_> = facts.entries.iter().map(of).collect();
            let holds: Vec<_> = self.arm.entries(&pool).iter().map(of).collect();
            assert!(!self.alone || known == holds, "{known:?} is known of {pool}, which holds {holds:?}");
            let lacks = |entry: &&Entry| newest.wants(&pool, entry) == Some(AdminState::Down);
            let lacking = facts.entries.iter().filter(lacks).filter_map(Entry::backend);
            self.missed.extend(lacking.map(|backend| (pool.clone(), newest.generation, backend)));
        }
        let due = self.admin_due.get(&pool).copied();
        if let (Some(end), Some(due)) = (states.ended, due) {
            if end.result.is_ok() && due <= end.generation {
                self.admin_due.remove(&pool);
            } else {
                let since = self.now;
                let again = AdminDue { since, generation: due, urgency: AdminUrgency::Down, again: false };
                self.deliver(In::AdminDue(pool, Some(again)));
            }
        }
    }

    /// After a pool was reported as written, checks that each member of its last PUT that must be Down now, and is
    /// not, was reported.
    fn check_missed_reports(&self, pool: &PoolId) {
        let (Some((made_of, added)), newest) = (self.added.get(pool), &self.writer.draining) else { return };
        let serves = |backend: &&Backend| {
            self.arm.entries(pool).iter().any(|entry| {
                entry.backend().as_ref() == Some(*backend) && entry.admin_state != AdminState::Down
            })
        };
        let drains = |backend: &&Backend| newest.addresses.contains_key(*backend);
        if *made_of < newest.generation {
            for backend in added.iter().filter(drains).filter(serves) {
                let told = self.missed.contains(&(pool.clone(), newest.generation, backend.clone()));
                assert!(told, "it was not reported that {backend} in {pool} is not Down");
            }
        }
    }

    fn mail(&mut self, pool: &PoolId, output: Out) {
        let at = self.now.plus(self.slow);
        let found = self.pools.iter_mut().find(|found| found.id == *pool).expect("a known pool");
        // Messages to a pool stay in order.
        let at = found.mail.back().map_or(at, |(last, _)| at.max(*last));
        found.mail.push_back((at, output));
    }

    fn send(&mut self, call: ArmCall) {
        if let ArmRequest::PutPool { pool, edit, if_match, permit, .. } = &call.request {
            let in_flight = self.calls.values().filter_map(|(_, request, _)| match request {
                ArmRequest::PutPool { pool, .. } => Some(&pool.lb),
                ArmRequest::GetLoadBalancer(_) | ArmRequest::GetPool(_) | ArmRequest::Poll(_) => None,
            });
            let lbs: Vec<&LbName> = in_flight.collect();
            assert!(!lbs.contains(&&pool.lb), "two PUTs in flight on {}", pool.lb);
            assert!(!self.arm.runs_ours(&pool.lb), "a PUT while our own operation runs on {}", pool.lb);
            assert!(lbs.len() < TURNS, "more PUTs than turns");
            assert!(self.leads && permit.attempt.epoch.0 == self.epoch && permit.send_deadline >= self.now);
            let (etag, facts) = self.last_get.get(pool).expect("a GET comes before a PUT");
            assert_eq!(if_match, etag, "the etag of the last GET");
            assert_ne!(facts.provisioning, model::arm::Provisioning::Updating, "never supersede");
            if !edit.remove.is_empty() || !edit.add.is_empty() {
                let services = BTreeMap::from([owner(pool)]);
                assert_eq!(prove(facts, Family::V4, &services), Ok(()), "membership written without proof");
            }
            let serve = edit.add.iter().filter(|new| new.admin_state.is_none()).map(|new| new.ip.into());
            self.added.insert(pool.clone(), (self.writer.draining.generation, serve.collect()));
            self.puts += 1;
        }
        let latency = Duration::from_millis(20 + call.id.0 * 37 % 400);
        let fault = self.faults.pop_front();
        self.calls.insert(call.id, (self.now.plus(latency), call.request, fault));
    }

    /// Returns ARM's answer to a call that arrives now. `None`: the call is never answered.
    fn arrive(&mut self, request: &ArmRequest, fault: Option<FailureCause>) -> Option<ArmAnswer> {
        let header = RetryAfter::In(Duration::from_secs(7));
        let answer = match fault {
            None => self.carry_out(request),
            Some(FailureCause::AnswerLost) => {
                self.carry_out(request);
                return None;
            }
            Some(FailureCause::GatewayTimeout) => {
                self.carry_out(request);
                ArmAnswer::Failed(failed(504, "GatewayTimeout", RetryAfter::Absent))
            }
            Some(FailureCause::NotSent) => {
                ArmAnswer::Failed(failure(FailureKind::Connection, "", RetryAfter::Absent))
            }
            Some(FailureCause::Quota) => ArmAnswer::Failed(failed(429, "TooManyRequests", header)),
            Some(FailureCause::Lock) => ArmAnswer::Failed(failed(429, "RetryableError", header)),
            Some(FailureCause::Conflict) => ArmAnswer::Failed(failed(409, "Conflict", RetryAfter::Absent)),
            Some(FailureCause::Moved) => {
                ArmAnswer::Failed(failed(412, "PreconditionFailed", RetryAfter::Absent))
            }
            Some(FailureCause::Broken) => ArmAnswer::Failed(failed(500, "", RetryAfter::Absent)),
            Some(FailureCause::Denied) => {
                ArmAnswer::Failed(failed(403, "AuthorizationFailed", RetryAfter::Absent))
            }
            Some(FailureCause::NoToken) => {
                ArmAnswer::Failed(failure(FailureKind::Credential, "", RetryAfter::Absent))
            }
            Some(FailureCause::GateClosed) => ArmAnswer::Failed(failure(
                FailureKind::GateClosed,
                "",
                RetryAfter::In(Duration::from_secs(3)),
            )),
        };
        if let (ArmRequest::GetPool(pool), ArmAnswer::Pool(read)) = (request, &answer) {
            self.last_get.insert(pool.clone(), (read.etag.clone(), Arc::clone(&read.facts)));
        }
        Some(answer)
    }

    fn carry_out(&mut self, request: &ArmRequest) -> ArmAnswer {
        let answer = self.arm.handle(self.now, request);
        if let (ArmRequest::PutPool { edit, permit, .. }, ArmAnswer::Put(_)) = (request, &answer)
            && !(edit.add.is_empty() && edit.remove.is_empty())
        {
            self.carried_out.insert(permit.attempt);
        }
        answer
    }

    fn is_in_sync(&self, pool: &FakePool) -> bool {
        let members = self.arm.entries(&pool.id).iter().filter_map(|entry| entry.ip).collect();
        pool.level.is_in_sync(&members)
    }

    fn serves_while_draining(&self, pool: &PoolId) -> bool {
        let drains = &self.writer.draining.addresses;
        self.arm.entries(pool).iter().any(|entry| {
            entry.admin_state != AdminState::Down
                && entry.ip.is_some_and(|ip| drains.contains_key(&ip.into()))
        })
    }

    /// Lets a pool handle one message, as its queue would.
    fn handle_mail(&mut self, number: usize, output: Out) {
        let now = self.now;
        let in_sync = self.is_in_sync(&self.pools[number]);
        let pool = &mut self.pools[number];
        match output {
            Out::Take(id, attempt) => {
                pool.posted = None;
                let wanted = !in_sync || attempt.n.is_multiple_of(3) || pool.open == Some(attempt);
                assert!(pool.open.is_none_or(|open| open == attempt), "a second attempt on {id}");
                pool.open = wanted.then_some(attempt);
                let taken = wanted.then(|| MembershipWrite {
                    level: pool.level.clone(),
                    family: Family::V4,
                    services: BTreeMap::from([owner(&id)]),
                    rewrites: false,
                    trigger: Trigger::Endpoints,
                });
                self.deliver(In::Taken(id, attempt, taken));
            }
            Out::Finished(_, attempt, outcome) => {
                if pool.open != Some(attempt) {
                    return;
                }
                pool.open = None;
                let (next, eligible) = match outcome {
                    Outcome::Written { .. } | Outcome::Unchanged { .. } => (Duration::from_secs(5), None),
                    Outcome::NotGranted => (Duration::from_millis(10), None),
                    Outcome::Retriable { eligible_at, .. } => (Duration::from_secs(30), eligible_at),
                    Outcome::Withheld { .. }
                    | Outcome::Stale
                    | Outcome::NotManageable(_)
                    | Outcome::Terminal { .. }
                    | Outcome::Interrupted => (Duration::from_secs(30), None),
                };
                pool.again = Some(eligible.unwrap_or(now).max(now.plus(next)));
            }
            Out::Verified(..)
            | Out::Observed(..)
            | Out::Lease(..)
            | Out::CountLockFailures { .. }
            | Out::ForeignRelease
            | Out::Sent(_)
            | Out::Pace(..)
            | Out::Report(_)
            | Out::Ended(_)
            | Out::SharedLease(_)
            | Out::AdminStates(..)
            | Out::Read { .. }
            | Out::Call(_)
            | Out::Gates { .. }
            | Out::Lane(_)
            | Out::Gate(..)
            | Out::Metric(_)
            | Out::Attempt(..)
            | Out::Answer(..)
            | Out::Quiet { .. } => panic!("it is not sent to a pool"),
        }
    }

    fn post(&mut self, number: usize) {
        let pool = &mut self.pools[number];
        if pool.open.is_none() && pool.posted.is_none() {
            pool.posted = Some(self.now);
            pool.again = None;
            let (id, since) = (pool.id.clone(), self.now);
            self.deliver(In::MembershipDue(id, MembershipDue { since, urgency: MembershipUrgency::Add }));
        }
    }

    fn next_event(&self) -> Option<Now> {
        let calls = self.calls.values().map(|(at, ..)| *at).min();
        let mail = self.pools.iter().filter_map(|pool| pool.mail.front().map(|(at, _)| *at)).min();
        let again = self.pools.iter().filter_map(|pool| pool.again).min();
        let arm = self.arm.next_end();
        [calls, mail, again, arm, self.writer.deadline()].into_iter().flatten().min()
    }

    /// Runs the world until this time.
    fn run(&mut self, until: Now) {
        while let Some(next) = self.next_event().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            self.arm.advance(self.now);
            if let Some(id) = self.calls.iter().find(|(_, (at, ..))| *at <= self.now).map(|(id, _)| *id) {
                let (_, request, fault) = self.calls.remove(&id).expect("it was just found");
                if let Some(answer) = self.arrive(&request, fault) {
                    self.deliver(In::Answered(id, answer));
                }
                continue;
            }
            let due = |pool: &FakePool| pool.mail.front().is_some_and(|(at, _)| *at <= self.now);
            if let Some(number) = self.pools.iter().position(due) {
                let (_, output) = self.pools[number].mail.pop_front().expect("it was just found");
                self.handle_mail(number, output);
                continue;
            }
            if let Some(number) =
                self.pools.iter().position(|pool| pool.again.is_some_and(|at| at <= self.now))
            {
                self.pools[number].again = None;
                if !self.is_in_sync(&self.pools[number]) {
                    self.post(number);
                }
                continue;
            }
            let mut out = Vec::new();
            self.writer.tick(self.now, &mut out);
            let next = self.writer.deadline();
            assert!(next.is_none_or(|next| next > self.now), "the machine would wake forever");
            self.apply_output(out);
        }
        self.now = self.now.max(until);
    }

    fn happen(&mut self, event: RandomEvent) {
        match event {
            RandomEvent::Level(number, required, tolerated) => {
                self.pools[number].level = level(required, tolerated);
                self.post(number);
            }
            RandomEvent::Foreign(number, members, seconds) => {
                let members = level(members, 0).required;
                let entries = members.iter().map(|(ip, m)| entry(m.name.as_str(), Some(*ip)));
                let id = self.pools[number].id.clone();
                self.arm.foreign_write(self.now, &id, entries.collect(), Duration::from_secs(seconds.into()));
            }
            RandomEvent::Drain(bits, urgent) => {
                let generation = self.writer.draining.generation + 1;
                let addresses: BTreeMap<_, _> =
                    level(bits, 0).required.keys().map(|ip| ((*ip).into(), NodeUid::new("uid"))).collect();
                let all = (0..8).map(|last| Backend::from(ip(last)));
                let restorable = all.filter(|backend| !addresses.contains_key(backend)).collect();
                let set = Draining { generation, addresses, restorable, ..Draining::default() };
                self.deliver(In::Draining(Arc::new(set)));
                let urgency = if urgent { AdminUrgency::Down } else { AdminUrgency::Restore };
                for number in 0..self.pools.len() {
                    let id = self.pools[number].id.clone();
                    self.admin_due.insert(id.clone(), generation);
                    self.deliver(In::AdminDue(
                        id,
                        Some(AdminDue { since: self.now, generation, urgency, again: false }),
                    ));
                }
            }
            RandomEvent::Faults(fault, count) => {
                self.faults.extend(std::iter::repeat_n(fault, count.into()));
            }
            RandomEvent::Operations(seconds, fate, mute) => {
                self.arm.lasts = Duration::from_secs(seconds.into());
                self.arm.fate = fate;
                self.arm.mute = mute;
            }
            RandomEvent::ForeignRule(number, there) => {
                let id = &self.pools[number].id;
                let lb = self.arm.lbs.get_mut(&id.lb).expect("the load balancer exists");
                let rules = &mut lb.pools.get_mut(&id.pool).expect("the pool exists").rules;
                rules.truncate(1);
                if there {
                    rules.push(Arc::from("foreign"));
                }
            }
            RandomEvent::Lead(leads) => self.lead(leads),
            RandomEvent::TakeOver(number, members, seconds) => {
                let id = self.pools[number].id.clone();
                self.lead(false);
                let members = level(members, 0).required;
                let entries = members.iter().map(|(ip, m)| entry(m.name.as_str(), Some(*ip))).collect();
                let lasts = Duration::from_secs(seconds.into());
                self.arm.predecessor_write(self.now, &id, entries, lasts);
                self.lead(true);
            }
            RandomEvent::Sluggish(seconds) => self.slow = Duration::from_secs(seconds.into()),
            RandomEvent::Discover(number) => {
                self.reads += 1;
                let lb = LbName::new(format!("lb{number}"));
                self.deliver(In::Read { call: CallId(self.reads), lb });
            }
            RandomEvent::Withdraw(number) => {
                let pool = &mut self.pools[number];
                if pool.open.is_none() && pool.posted.take().is_some() {
                    let id = pool.id.clone();
                    self.deliver(In::Withdraw(id));
                }
            }
        }
    }

    fn lead(&mut self, leads: bool) {
        self.leads = leads;
        let leadership = if leads {
            self.epoch += 1;
            Leadership::Leading { epoch: Epoch(self.epoch), until: Now::NEVER }
        } else {
            Leadership::Standby
        };
        self.deliver(In::Leadership(leadership));
    }

    /// Ends all faults, makes everything due, and waits for longer than the longest waits.
    fn come_to_rest(&mut self) {
        self.faults.clear();
        for (_, _, fault) in self.calls.values_mut() {
            *fault = None;
        }
        self.happen(RandomEvent::Operations(2, None, false));
        self.slow = Duration::ZERO;
        for number in 0..self.pools.len() {
            self.happen(RandomEvent::ForeignRule(number, false));
        }
        if !self.leads {
            self.lead(true);
        }
        // The next comparison finds pools out of sync (lost or foreign), and again after the longest wait.
        for _ in 0..2 {
            for number in 0..self.pools.len() {
                if !self.is_in_sync(&self.pools[number]) {
                    self.post(number);
                }
                let id = self.pools[number].id.clone();
                if self.serves_while_draining(&id) {
                    let generation = self.writer.draining.generation;
                    self.admin_due.insert(id.clone(), generation);
                    let since = self.now;
                    self.deliver(In::AdminDue(
                        id,
                        Some(AdminDue { since, generation, urgency: AdminUrgency::Down, again: false }),
                    ));
                }
            }
            self.run(self.now.plus(Duration::from_secs(300)));
        }
    }

    fn assert_at_rest(&self) {
        for pool in &self.pools {
            assert!(self.is_in_sync(pool), "{} is out of sync", pool.id);
            assert_eq!(pool.open, None, "an attempt of {} was never finished", pool.id);
            assert!(!self.serves_while_draining(&pool.id), "a draining entry of {} is not Down", pool.id);
        }
        assert!(self.admin_due.is_empty(), "admin parts were forgotten: {:?}", self.admin_due);
        assert!(self.calls.is_empty() && self.writer.lanes.is_empty() && self.writer.busy == 0);
        assert_eq!(self.writer.deadline(), None, "nothing is left to wake for");
        assert_eq!(self.reads, self.reads_answered, "every read of discovery is answered once");
    }
}

fn any_fault() -> impl Strategy<Value = FailureCause> {
    prop::sample::select(vec![
        FailureCause::AnswerLost,
        FailureCause::NotSent,
        FailureCause::GatewayTimeout,
        FailureCause::Quota,
        FailureCause::Lock,
        FailureCause::Conflict,
        FailureCause::Moved,
        FailureCause::Broken,
        FailureCause::Denied,
        FailureCause::NoToken,
        FailureCause::GateClosed,
    ])
}

/// Returns levels, faults and slow operations, without another writer.
fn any_trouble() -> impl Strategy<Value = RandomEvent> {
    let fault = prop::sample::select(vec![
        FailureCause::AnswerLost,
        FailureCause::NotSent,
        FailureCause::GatewayTimeout,
        FailureCause::Broken,
        FailureCause::NoToken,
    ]);
    prop_oneof![
        4 => (0..LBS * POOLS, any::<u8>(), any::<u8>()).prop_map(|(n, r, t)| RandomEvent::Level(n, r, t)),
        4 => (fault, 1..4_u8).prop_map(|(fault, n)| RandomEvent::Faults(fault, n)),
        1 => (0..25_u8, any::<bool>()).prop_map(|(s, mute)| RandomEvent::Operations(s, None, mute)),
    ]
}

fn any_random_event() -> impl Strategy<Value = RandomEvent> {
    let number = 0..LBS * POOLS;
    prop_oneof![
        8 => (number.clone(), any::<u8>(), any::<u8>()).prop_map(|(n, r, t)| RandomEvent::Level(n, r, t)),
        3 => (number.clone(), any::<u8>(), 0..40_u8).prop_map(|(n, m, s)| RandomEvent::Foreign(n, m, s)),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(bits, urgent)| RandomEvent::Drain(bits, urgent)),
        3 => (any_fault(), 1..4_u8).prop_map(|(fault, n)| RandomEvent::Faults(fault, n)),
        1 => (any_fault(), 10..40_u8).prop_map(|(fault, n)| RandomEvent::Faults(fault, n)),
        2 => (
            0..25_u8,
            prop::option::of(prop::sample::select(vec![Fate::Done, Fate::Lost, Fate::Failed])),
            any::<bool>(),
        )
            .prop_map(|(s, fate, mute)| RandomEvent::Operations(s, fate, mute)),
        1 => (number.clone(), any::<bool>()).prop_map(|(n, there)| RandomEvent::ForeignRule(n, there)),
        1 => any::<bool>().prop_map(RandomEvent::Lead),
        2 => (number.clone(), any::<u8>(), 0..120_u8).prop_map(|(n, m, s)| RandomEvent::TakeOver(n, m, s)),
        1 => (0..13_u8).prop_map(RandomEvent::Sluggish),
        1 => (0..LBS).prop_map(RandomEvent::Discover),
        1 => number.prop_map(RandomEvent::Withdraw),
    ]
}

proptest! {
    #[test]
    fn w1_w2_w8_no_rule_is_broken_and_every_pool_gets_in_sync(
        story in prop::collection::vec((0..8_000_u64, any_random_event()), 1..60),
    ) {
        let mut world = World::new();
        world.lead(true);
        for (pause, event) in story {
            world.happen(event);
            world.run(world.now.plus(Duration::from_millis(pause)));
        }
        world.come_to_rest();
        world.assert_at_rest();
    }

    #[test]
    fn w4_without_other_writers_each_attempt_knows_its_writes(
        story in prop::collection::vec((0..20_000_u64, any_trouble()), 1..40),
    ) {
        let mut world = World::new();
        world.alone = true;
        world.lead(true);
        for (pause, event) in story {
            world.happen(event);
            world.run(world.now.plus(Duration::from_millis(pause)));
        }
        world.come_to_rest();
        world.assert_at_rest();
    }

    #[test]
    fn w8_a_shutdown_ends_in_quiet_with_all_attempts_answered(
        story in prop::collection::vec((0..4_000_u64, any_random_event()), 1..30),
    ) {
        let mut world = World::new();
        world.lead(true);
        for (pause, event) in story {
            world.happen(event);
            world.run(world.now.plus(Duration::from_millis(pause)));
        }
        world.slow = Duration::ZERO;
        world.deliver(In::Shutdown);
        let puts = world.puts;
        world.run(world.now.plus(Duration::from_secs(150)));
        prop_assert_eq!(world.puts, puts, "a PUT was sent after the shutdown");
        prop_assert_eq!(world.writer.phase, WriterPhase::Quiet);
        prop_assert!(world.pools.iter().all(|pool| pool.open.is_none()));
        prop_assert_eq!(world.reads, world.reads_answered);
    }
}

#[test]
fn w1_the_world_of_these_properties_writes() {
    let mut world = World::new();
    world.lead(true);
    for number in 0..world.pools.len() {
        world.happen(RandomEvent::Level(number, 0b110, 0));
    }
    world.come_to_rest();
    world.assert_at_rest();
    assert_eq!(world.puts, LBS * POOLS);
}
