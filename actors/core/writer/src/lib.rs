//! The one owner of writes to Azure: lanes, slots, the shared Lease, gates, budget, breaker, and each write from its
//! GET to its outcome (docs/design/writer.md, W1-W10). What a pool must hold, whether a failed attempt is followed by
//! another one, and when members are left to another client (W11) is the pool's business.
//!
//! This file holds the machine and what it is told. What stands where:
//! - `standing`: whether this process may write, and until when (W8);
//! - `slot`: a pool's place in its lane, membership and admin state apart, and what of an attempt waits there (W1);
//! - `unread`: the pools that wait for changes that were read and not taken in (Q2);
//! - `lane`: the order of the writes on one load balancer, and what keeps it closed (W1, W4, W6);
//! - `scheduler`: which lane is granted next, and which of its slots (W1, W9, W10);
//! - `progress`: the way of a write: grant, level, GET, PUT (W1, W2);
//! - `polls`: how the operation of an accepted PUT is followed to its end (W2);
//! - `write`: one write on its way, its phase and the waits of that phase (W2);
//! - `admin`: the admin part of slots, made due, withdrawn and answered (N3), and what older sets have missed (N2);
//! - `draining`: what the admin state asks for (N2, N3, N4);
//! - `plan`: what one PUT must change, a pure function of its GET (W3);
//! - `retry`: writes that wait without lane, Lease and turn (W2, W4);
//! - `completion`: the end of a write, and what becomes of the lane (W2, W5);
//! - `classify`: what follows from a failure (W5, W6);
//! - `verify`: whether what was written is there (W2);
//! - `initial_read`: what must be seen in each term before the first write (W1, W2, W8);
//! - `gate`: until when ARM asked us not to call (W6);
//! - `lease`: the Lease that is shared with the cloud-controller-manager (W7, W8);
//! - `budget`: how many calls may be made (W9);
//! - `in_flight`: the calls under way, and the reads that wait for a token (W9);
//! - `dispatch`: the sending of calls through gates and budget, and where their answers go (W6, W9);
//! - `breaker`: what stops when the same failure hits pool after pool (W10);
//! - `operator`: what the operator wants of it (G6, H3);
//! - `status`: what the operator sees of it all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::arm::{ArmAnswer, ArmCall, Backend, Failure, FailureKind, LbFacts, RetryAfter};
use model::assignment::Observation;
use model::attempt::{Due, Outcome, Taken, WriteFate};
use model::draining::{AdminDue, AdminUrgency, Draining};
use model::ids::{AttemptId, CallId, Epoch, LbName, NetworkId, PoolId, PoolName};
use model::leadership::{PERMIT_MARGIN, Standing};
use model::lease::{GateTimes, LeaseAnswer, LeaseAsk};
use model::load_balancers::OurPuts;
use model::machine::{Machine, Now, earliest};
use model::operator_request::{Answer, RequestId};
use model::policy::OperatorPolicy;
use model::report::{Ended, Report};
use model::sample::{GateClass, Metric};
use model::view::{GateView, LaneView, SharedLeaseView};

mod admin;
mod breaker;
mod budget;
pub mod classify;
mod completion;
mod dispatch;
mod gate;
mod in_flight;
mod initial_read;
mod lane;
mod lease;
mod operator;
pub mod plan;
mod polls;
mod progress;
mod record;
mod retry;
mod scheduler;
mod slot;
mod status;
mod unread;
mod verify;
mod write;

use breaker::Breaker;
use budget::Budget;
use gate::Gates;
use in_flight::{Calls, Purpose};
use initial_read::Sights;
use lane::{Closed, Lane, Noted};
use lease::SharedLease;
use operator::WriterPolicy;
use status::WriterStatus;
use unread::UnreadChanges;
use verify::Verifications;
use write::Phase;

pub use gate::Throttling;
pub use lease::FOREIGN_HOLD;

/// What the writer is told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// `writer.maxConcurrentLoadBalancers`: turns, 64 (W1).
    pub turns: usize,
    /// `writer.ifMatch`: whether a PUT carries the etag of its GET (W2).
    pub if_match: bool,
    /// `writer.etagRounds`: GETs within one attempt that 412s may cost, 3 (W2).
    pub etag_rounds: u32,
    /// `cloudProviderBackoffRetries` where backoff is on and it is more than 0, else 3: how often the GET and the PUT of an
    /// attempt are each tried again when ARM or the way to it is in trouble, as the Azure SDK does (W4).
    pub client_retries: u32,
    /// `budget.writesPer5Minutes`, 500 (W9).
    pub writes_per_5_minutes: u32,
    /// `budget.readsPer5Minutes`, 5000 (W9).
    pub reads_per_5_minutes: u32,
    /// The virtual network written at pool level when a pool has none (W3); `None`: not configured.
    pub network: Option<NetworkId>,
    /// The Lease that is shared with the cloud-controller-manager; `None`: it is not used (a dry run, C4).
    pub lease: Option<LeaseParams>,
    /// Whether this process only shows what it would do (C4): it is asked for no attempt.
    pub shows_only: bool,
    /// `cloudProviderRateLimit*`, `loadBalancerRateLimit` where enabled: further buckets that calls wait for (W9).
    pub rate_limit: Option<RateLimit>,
    /// `client.retryThrottled`: whether 429s and closed gates are tried again within the attempt, as S0's client
    /// does (W6).
    pub retry_throttled: bool,
    /// Whether a gate known closed delays a grant; else the pool meets it at its turn (W6; C2).
    pub gates_delay_grants: bool,
    /// What a 429 closes, and for how long (W6; C2).
    pub throttling: Throttling,
    /// Whether W10's breaker is on; off in `compatibility: upstream` (C2).
    pub breaker: bool,
    /// `batching.minInterval`: what [`pools::queue::In::Pace`] stretches as the write budget falls (Q2).
    pub min_interval: Duration,
}

/// How the shared Lease is used (W7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseParams {
    /// Our `holderIdentity`: the same for all replicas, `azure-backend-pool-controller`.
    pub holder: Arc<str>,
    /// `lease.maxHold`, 20 s: how long after it was taken writes may start.
    pub max_hold: Duration,
    /// `lease.minOff`, 5 s: how long it is left to others at least, where another holder was seen lately.
    pub min_off: Duration,
    /// `lease.bypassForDrain`: whether a Down may go without it after 2 s.
    pub bypass_for_drain: bool,
}

/// Rates that the cloud configuration sets (S1, W9).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateLimit {
    /// Reads per second over time, at least 10.
    pub reads_per_second: f64,
    /// Reads at once.
    pub reads_at_once: u32,
    /// Writes per second over time.
    pub writes_per_second: f64,
    /// Writes at once.
    pub writes_at_once: u32,
}

/// What the writer can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// Whether this process may write, and in which term (W8).
    Standing(Standing),
    /// What operators wish: nothing is written in a term before this was heard for it (G6).
    OperatorPolicy {
        /// The newest term that had begun when it was read.
        term: Option<Epoch>,
        /// All of it.
        policy: Arc<OperatorPolicy>,
    },
    /// The operator asks for an attempt of this pool now (H3).
    Attempt(RequestId, PoolId),
    /// The operator asks that throttle gates are opened: this one, or both (W6).
    OpenGates(RequestId, Option<GateClass>),
    /// The answer to the operator's request that was decided elsewhere: it is true once what was told here before it is
    /// heeded, and so it goes this way (G6).
    PassOn(RequestId, Answer),
    /// A pool's membership is due.
    Due(PoolId, Due),
    /// A pool's membership is no longer due.
    Withdraw(PoolId),
    /// The answer to a Take.
    Taken(PoolId, AttemptId, Option<Taken>),
    /// A pool's admin state is due (N3): the other part of its slot.
    AdminDue(PoolId, AdminDue),
    /// A pool's admin state is no longer due, as of this generation of the draining set.
    AdminWithdraw(PoolId, u64),
    /// The draining set (N2); every plan reads the newest one.
    Draining(Arc<Draining>),
    /// Discovery wants a load balancer read.
    Read {
        /// The id that the answer carries.
        call: CallId,
        /// Which.
        lb: LbName,
    },
    /// The arm port's answer to a call.
    Answered(CallId, ArmAnswer),
    /// How many calls of a class ARM says are left, by `x-ms-ratelimit-remaining-*` of an answer: the least of them.
    Headroom(GateClass, u32),
    /// The answer to a request about the shared Lease.
    Lease(CallId, LeaseAnswer),
    /// How many lock failures of the cloud-controller-manager were found; `None`: that could not be read.
    LockFailures(CallId, Option<u32>),
    /// The number of the last Service for whose ingress the cloud-controller-manager may be waiting, as the Informer
    /// counts them; `None`: there is none (W7).
    AwaitingIngress(Option<u64>),
    /// A change of a Service was read from the API server at this moment, which is not taken in yet. Its pool for IPv4 has
    /// this name (Q2).
    Unread(PoolName, Now),
    /// What was read until this moment was taken in, and pools were told what follows from it.
    ReadUpTo(Now),
    /// The gate times that a predecessor has noted (W8).
    Remembered(GateTimes),
    /// Nothing new is started; what is sent is waited for.
    Shutdown,
}

/// What the writer can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To a pool: the lane is granted; bring the newest level.
    Take(PoolId, AttemptId),
    /// To a pool: the operator asks for an attempt now, and nothing here speaks against it.
    Attempt(PoolId, RequestId),
    /// To the process: the answer to the operator's request.
    Answer(RequestId, Answer),
    /// To a pool: its attempt ended.
    Finished(PoolId, AttemptId, Outcome),
    /// To a pool: what verification found.
    Verified(PoolId, WriteFate),
    /// To a pool: what a read outside its attempts saw.
    Observed(PoolId, Observation),
    /// To the admin state: its part of a pool's slot ended, for this generation (N3).
    AdminFinished {
        /// The pool.
        pool: PoolId,
        /// The generation that was applied, or was to be applied.
        generation: u64,
        /// The set that was applied, or why none was.
        result: Result<Arc<Draining>, Arc<Failure>>,
    },
    /// To the admin state: nothing is left or under way of what was withdrawn in this generation.
    AdminWithdrawn(PoolId, u64),
    /// To the admin state: a PUT of an older draining set than the newest has, or may have, left these backends in
    /// the pool. By the newest one they are to be Down, and they are not.
    AdminMissed(PoolId, BTreeSet<Backend>),
    /// To the admin state: a GET before a write shows these backends Down, which are to be Down, and are no exceptions.
    /// The last PUT of ours to this pool was sent at that moment; `None`: none was (N4).
    AdminFound(PoolId, Option<Now>, BTreeSet<Backend>),
    /// To Discovery: the GET of its read is sent.
    Sent(CallId),
    /// To Discovery: the answer to its read.
    Read {
        /// The id of the request.
        call: CallId,
        /// When the GET began.
        began: Now,
        /// What it saw.
        result: Result<Arc<LbFacts>, Arc<Failure>>,
        /// What our own PUTs, up to the moment of the answer, may have to do with that.
        puts: OurPuts,
    },
    /// To the arm port.
    Call(ArmCall),
    /// To the arm port's gate policy and to the Leader: until when each verb class is closed (W6, W8).
    Gates {
        /// Reads.
        reads_until: Option<Now>,
        /// Writes.
        writes_until: Option<Now>,
    },
    /// To the kubernetes port, about the shared Lease.
    Lease(CallId, LeaseAsk),
    /// To the kubernetes port: count the events with which the cloud-controller-manager told since this moment that it
    /// could not take the shared Lease.
    CountLockFailures {
        /// The id that the answer carries.
        call: CallId,
        /// Since when.
        since: Now,
    },
    /// To Discovery: another holder has released the shared Lease; it may just have written (D3).
    ForeignRelease,
    /// To a pool, before its outcome: how far apart its attempts are to be at least, because the write budget is
    /// low (Q2).
    Pace(PoolId, Duration),
    /// To the event emitter.
    Report(Report),
    /// To the event emitter: a condition that was reported holds no longer.
    Ended(Ended),
    /// To the board: the shared Lease.
    SharedLease(SharedLeaseView),
    /// To the board: a lane.
    Lane(LaneView),
    /// To the board: a gate and its budget.
    Gate(GateClass, GateView),
    /// To the metrics.
    Metric(Metric),
    /// To the process: after [`In::Shutdown`], nothing that was sent is unanswered any more.
    Quiet {
        /// Whether the shared Lease is given back, or not ours; else it lapses.
        shared_is_free: bool,
    },
}

/// The machine that writes to Azure.
pub struct Writer {
    params: Params,
    standing: Standing,
    policy: WriterPolicy,
    life: Life,
    draining: Arc<Draining>,
    unread: UnreadChanges,
    /// When a PUT was last sent to each pool.
    sent: BTreeMap<PoolId, Now>,
    /// When PUTs have last ended that were made by draining sets of these generations.
    ended: BTreeMap<(LbName, u64), Now>,
    /// Admin parts that were withdrawn when something of them had begun, with the generation of that.
    withdrawn: BTreeMap<PoolId, u64>,
    lanes: BTreeMap<LbName, Lane>,
    /// The lanes that could be granted, and the one that was granted last: turns go round (W1).
    ready: BTreeSet<LbName>,
    /// The lanes that could be granted, were their load balancers seen at rest in this term.
    unseen: BTreeSet<LbName>,
    sights: Sights,
    granted_last: Option<LbName>,
    /// The deadlines of the lanes.
    timers: BTreeSet<(Now, LbName)>,
    /// Lanes with a write under way.
    busy: usize,
    /// Slots of all lanes.
    waiting: usize,
    /// The number of the last attempt.
    attempts: u64,
    calls: Calls,
    gates: Gates,
    budget: Budget,
    breaker: Breaker,
    verifications: Verifications,
    /// The shared Lease; `None`: it is not used.
    shared_lease: Option<SharedLease>,
    /// Until when a process that ends tries to give it back.
    let_go_by: Option<Now>,
    /// Whether the next grant was told to wait for a rate of the cloud configuration.
    grant_limited: bool,
    /// When a token, or the breaker, lets the next grant or read go.
    refill: Option<Now>,
    shown: WriterStatus,
}

/// Whether the process goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Running,
    /// Nothing new is started; sent PUTs are waited for.
    Ending,
    /// Nothing is waited for any more, and that was said.
    Quiet,
}

impl Writer {
    /// A writer that may not write yet.
    #[must_use]
    pub fn new(params: Params) -> Writer {
        let budget = Budget::new(params.reads_per_5_minutes, params.writes_per_5_minutes, params.rate_limit);
        let gates = Gates::new(params.throttling);
        Writer {
            shared_lease: params.lease.clone().map(SharedLease::new),
            let_go_by: None,
            params,
            standing: Standing::Standby,
            policy: WriterPolicy::default(),
            life: Life::Running,
            draining: Arc::default(),
            unread: UnreadChanges::default(),
            sent: BTreeMap::new(),
            ended: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            lanes: BTreeMap::new(),
            ready: BTreeSet::new(),
            unseen: BTreeSet::new(),
            sights: Sights::after(CallId(0)),
            granted_last: None,
            timers: BTreeSet::new(),
            busy: 0,
            waiting: 0,
            attempts: 0,
            calls: Calls::default(),
            gates,
            budget,
            breaker: Breaker::default(),
            verifications: Verifications::default(),
            grant_limited: false,
            refill: None,
            shown: WriterStatus::default(),
        }
    }

    fn on_standing(&mut self, now: Now, standing: Standing, out: &mut Vec<Out>) {
        let before = std::mem::replace(&mut self.standing, standing);
        if before.term() != standing.term() {
            self.close_eyes();
            self.interrupt_all(now, out);
            if let Some(lease) = &mut self.shared_lease {
                lease.forfeit(now, standing.leads(), out);
            }
            self.verifications.clear();
            self.close_breaker(out);
        }
    }

    fn on_shutdown(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.life != Life::Running {
            return;
        }
        self.life = Life::Ending;
        self.abandon_lanes(now, out);
        if let Some(lease) = &mut self.shared_lease {
            lease.hurry(now);
        }
        self.verifications.clear();
        for purpose in self.calls.take_out(|_| true) {
            self.answer_unsent_read(now, purpose, out);
        }
    }

    /// Whether an attempt belongs to the present term of a process that goes on.
    fn is_current(&self, attempt: AttemptId) -> bool {
        self.life == Life::Running && self.standing.term() == Some(attempt.epoch)
    }

    /// Brings timers, totals and the set of ready lanes up to a lane's state, and drops a lane with nothing in it.
    fn touch(&mut self, lb: &LbName) {
        let Some(lane) = self.lanes.get_mut(lb) else { return };
        debug_assert!(lane.is_consistent(), "a lane lost a slot");
        let noted = Noted { busy: lane.write.is_some(), waiting: lane.waiting(), deadline: lane.deadline() };
        let before = std::mem::replace(&mut lane.noted, noted);
        self.busy = self.busy + usize::from(noted.busy) - usize::from(before.busy);
        self.waiting = self.waiting + noted.waiting - before.waiting;
        if before.deadline != noted.deadline {
            if let Some(at) = before.deadline {
                self.timers.remove(&(at, lb.clone()));
            }
            if let Some(at) = noted.deadline {
                self.timers.insert((at, lb.clone()));
            }
        }
        let (ready, wants_look) = (lane.is_ready(), lane.wants_look());
        for (belongs, set) in [(ready, &mut self.ready), (wants_look, &mut self.unseen)] {
            if belongs {
                set.insert(lb.clone());
            } else {
                set.remove(lb);
            }
        }
        if lane.is_idle() {
            self.lanes.remove(lb);
        }
        self.shown.lane_changed(lb);
    }

    /// Does what the deadline of a lane was for.
    fn wake_lane(&mut self, now: Now, lb: &LbName, out: &mut Vec<Out>) {
        let Some(lane) = self.lanes.get_mut(lb) else { return };
        lane.wake(now);
        if let Closed::InDoubt { pool, next, .. } = &mut lane.closed
            && next.is_some_and(|at| at <= now)
        {
            *next = None;
            self.calls.queue(Purpose::Probe(pool.clone()));
        }
        let (mut take_over, mut poll) = (false, false);
        if let Some(write) = lane.write.as_ref().filter(|write| write.deadline().is_some_and(|at| at <= now))
        {
            match &write.phase {
                Phase::Taking => take_over = true,
                Phase::Polling(_) => poll = true,
                Phase::Reading | Phase::Putting(_) => {}
            }
        }
        if take_over {
            self.on_take_unanswered(now, lb, out);
        }
        if poll {
            self.ask_on(now, lb);
        }
        self.touch(lb);
    }

    /// Starts whatever may start now, and says what has changed for those who look on.
    fn settle(&mut self, now: Now, out: &mut Vec<Out>) {
        self.hold_all(now, out);
        self.look_around();
        self.send_reads(now, out);
        self.grant_all(now, out);
        self.grant_bypasses(now, out);
        self.note_rate_limited_grant(now, out);
        self.send_reads(now, out);
        self.advance_shared_lease(now, out);
        // A grant that could be paid now waits for the shared Lease, which has a deadline of its own.
        let grants = self.grant_refill(now).filter(|at| *at > now);
        self.refill = earliest(grants, self.read_refill(now));
        if self.life == Life::Ending && self.calls.puts() == 0 && self.has_let_go(now) {
            self.life = Life::Quiet;
            let shared_is_free = self.shared_lease.as_ref().is_none_or(|lease| lease.is_free(now));
            out.push(Out::Quiet { shared_is_free });
        }
        self.publish(now, out);
        let within = self.busy <= self.params.turns;
        assert!(within, "more lanes are busy than there are turns: nothing may be written (A4)");
        let ours = self.shared_lease.as_ref().is_none_or(SharedLease::is_consistent);
        assert!(
            ours,
            "the shared Lease is held that is known to be another client's: nothing may be written (A4, W7)"
        );
        debug_assert!(self.check().is_ok(), "{:?}", self.check());
    }

    /// The invariants that hold between any two steps.
    ///
    /// # Errors
    /// The one that does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let busy = self.lanes.values().filter(|lane| lane.write.is_some()).count();
        rule(busy == self.busy, "the count of busy lanes is wrong")?;
        rule(busy <= self.params.turns, "more lanes are busy than there are turns")?;
        let waiting: usize = self.lanes.values().map(Lane::waiting).sum();
        rule(waiting == self.waiting, "the count of waiting slots is wrong")?;
        rule(self.lanes.values().all(|lane| !lane.is_idle()), "an idle lane was kept")?;
        let timers = self.lanes.values().filter(|lane| lane.deadline().is_some()).count();
        rule(timers == self.timers.len(), "a lane's deadline is not armed")?;
        let ready = self.lanes.iter().filter(|(_, lane)| lane.is_ready()).map(|(lb, _)| lb);
        rule(ready.eq(&self.ready), "the set of ready lanes is wrong")?;
        rule(self.sights_are_consistent(), "what was seen of a load balancer is not known in its lane")?;
        rule(self.verifications.is_consistent(), "verifications lost their order")?;
        let lease = self.shared_lease.as_ref().is_none_or(SharedLease::is_consistent);
        rule(lease, "the shared Lease is held that is known to be another client's")?;
        rule(self.breaker.is_consistent(), "a load balancer is stopped twice")?;
        let mut puts = BTreeSet::new();
        let single = self.calls.open_puts().all(|pool| puts.insert(&pool.lb));
        rule(single, "two PUTs are under way on one load balancer")
    }
}

impl Machine for Writer {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match input {
            In::Standing(standing) => self.on_standing(now, standing, out),
            In::OperatorPolicy { term, policy } => self.on_policy(term, policy),
            In::Attempt(id, pool) => self.on_attempt(now, id, pool, out),
            In::OpenGates(id, class) => self.on_open_gates(now, id, class, out),
            In::PassOn(id, answer) => self.pass_on(now, id, answer, out),
            In::Due(pool, due) => self.on_due(now, &pool, due),
            In::Withdraw(pool) => self.on_withdraw(&pool),
            In::Taken(pool, attempt, taken) => self.on_taken(now, &pool, attempt, taken, out),
            In::AdminDue(pool, due) => self.on_admin_due(&pool, due),
            In::AdminWithdraw(pool, generation) => self.on_admin_withdraw(&pool, generation, out),
            In::Draining(draining) => self.draining = draining,
            In::Read { call, lb } => self.on_discovery_read(now, call, lb, out),
            In::Answered(call, answer) => self.on_answered(now, call, answer, out),
            In::Shutdown => self.on_shutdown(now, out),
            In::Headroom(class, remaining) => self.budget.headroom(now, class, remaining),
            In::Unread(pool, read) => self.on_unread(now, pool, read),
            In::ReadUpTo(read) => self.on_read_up_to(read),
            In::Remembered(noted) => self.gates.remember(now, noted),
            In::Lease(call, answer) => self.on_lease(now, call, answer, out),
            In::LockFailures(call, count) => self.on_lock_failures(now, call, count, out),
            In::AwaitingIngress(newest) => {
                if let Some(lease) = &mut self.shared_lease {
                    lease.on_awaiting_ingress(newest);
                }
            }
        }
        self.settle(now, out);
    }

    fn deadline(&self) -> Option<Now> {
        let lanes = self.timers.first().map(|(at, _)| *at);
        let calls = earliest(self.calls.deadline(), self.verifications.deadline());
        let lease =
            self.shared_lease.as_ref().filter(|_| self.life != Life::Quiet).and_then(SharedLease::deadline);
        let ending = self.let_go_by.filter(|_| self.life == Life::Ending);
        let others = earliest(earliest(lease, ending), self.shown.deadline());
        earliest(earliest(lanes, calls), earliest(self.refill, others))
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        while let Some(call) = self.calls.overdue(now) {
            let failure = our_failure(FailureKind::Timeout, "the call was given up after 90 seconds");
            self.on_answered(now, call, ArmAnswer::Failed(failure), out);
        }
        if let Some(lease) = &mut self.shared_lease {
            lease.give_up_overdue(now);
        }
        while let Some((_, lb)) = self.timers.first().filter(|(at, _)| *at <= now).cloned() {
            self.wake_lane(now, &lb, out);
        }
        for (pool, attempt) in self.verifications.due(now) {
            self.calls.queue(Purpose::Verify(pool, attempt));
        }
        self.settle(now, out);
    }
}

/// A failure that we found ourselves.
fn our_failure(kind: FailureKind, message: &str) -> Arc<Failure> {
    Arc::new(Failure {
        kind,
        code: None,
        inner_codes: Vec::new(),
        message: Arc::from(message),
        retry_after: RetryAfter::Absent,
        correlation_id: None,
    })
}

#[cfg(test)]
mod tests;
