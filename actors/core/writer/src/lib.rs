//! The single writer to Azure (docs/design/writer.md, W1-W10). It owns lanes, slots, the shared Lease, gates, budget
//! and breaker, and carries each write from its GET to its outcome. The pool decides what it must hold, whether a
//! failed attempt is followed by another, and when to leave members to another client (W11).
//!
//! This file holds the machine and its messages. The submodules:
//! - `slot`: one pool's entry in its lane, with membership and admin state apart (W1);
//! - `unread`: pools that wait for Service changes that were read but not processed (Q2);
//! - `lane`: the order of writes on one load balancer, and what closes the lane (W1, W4, W6);
//! - `scheduler`: selects the next lane and slot to grant (W1, W9, W10);
//! - `progress`: the steps of a write: grant, level, GET, PUT (W1, W2);
//! - `polls`: follows the operation of an accepted PUT to its end (W2);
//! - `write`: the state of one write: phase, parts and waits (W2);
//! - `admin`: the admin part of slots (N2, N3);
//! - `plan`: computes what one PUT must change, a pure function of its GET (W3);
//! - `retry`: writes that wait without lane, Lease and turn (W2, W4);
//! - `completion`: the end of a write, and its effect on the lane (W2, W5);
//! - `classify`: classifies each failure once (W5, W6);
//! - `verify`: reads after each write that check that it persisted (W2);
//! - `initial_read`: the reads that each term requires before its first write (W1, W2, W8);
//! - `gate`: throttle gates, the times until which ARM asked not to be called (W6);
//! - `lease`: the Lease that is shared with the cloud-controller-manager (W7, W8);
//! - `budget`: limits the rate of calls (W9);
//! - `in_flight`: calls in flight, and reads that wait for a token (W9);
//! - `dispatch`: sends calls through gates and budget, and routes their answers (W6, W9);
//! - `breaker`: stops writes when the same failure hits pool after pool (W10);
//! - `record`: the record of a PUT for operators;
//! - `operator`: policy and requests of the operator (G6, H3);
//! - `status`: publishes views and metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::arm::{ArmAnswer, ArmCall, Failure, FailureKind, LbFacts};
use model::assignment::Observation;
use model::attempt::{MembershipDue, MembershipWrite, Outcome, WriteFate};
use model::draining::{AdminDue, AdminUrgency, Draining, PoolAdminStates};
use model::ids::{AttemptId, CallId, Epoch, LbName, NetworkId, PoolId, PoolName};
use model::leadership::{Leadership, PERMIT_MARGIN};
use model::lease::{GateTimes, LeaseAnswer, LeaseRequest};
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

use breaker::WriteBreaker;
use budget::Budget;
use classify::{FailedCall, answered};
use gate::Gates;
use in_flight::{Calls, Purpose};
use initial_read::{InitialRead, InitialReads};
use lane::{Lane, LaneState, LaneTotals};
use lease::SharedLease;
use operator::WriterPolicy;
use status::WriterStatus;
use unread::UnreadChanges;
use verify::Verifications;
use write::WritePhase;

pub use gate::Throttling;
pub use lease::FOREIGN_HOLD;

/// Settings of the writer.
#[derive(Clone, Debug)]
pub struct Params {
    /// `writer.maxConcurrentLoadBalancers`, 64: number of turns, that is, of lanes with a write at the same time
    /// (W1).
    pub turns: usize,
    /// `writer.ifMatch`: whether a PUT carries the etag of its GET (W2).
    pub if_match: bool,
    /// `writer.etagRounds`, 3: number of GETs within one attempt that 412s may cost (W2).
    pub etag_rounds: u32,
    /// Number of retries of the GET, and of the PUT, of an attempt after an error of ARM or the connection, as in the
    /// Azure SDK (W4). It is `cloudProviderBackoffRetries` if back-off is enabled and the value is above 0, else 3.
    pub client_retries: u32,
    /// `budget.writesPer5Minutes`, 500 (W9).
    pub writes_per_5_minutes: u32,
    /// `budget.readsPer5Minutes`, 5000 (W9).
    pub reads_per_5_minutes: u32,
    /// Virtual network written at pool level when a pool has none (W3). `None`: not configured.
    pub network: Option<NetworkId>,
    /// The Lease that is shared with the cloud-controller-manager. `None`: not used (a dry run, C4).
    pub lease: Option<LeaseParams>,
    /// Whether this process only shows what it would do (C4). It then makes no attempts.
    pub dry_run: bool,
    /// `cloudProviderRateLimit*`, `loadBalancerRateLimit` where enabled: further token buckets for calls (W9).
    pub rate_limit: Option<RateLimit>,
    /// `client.retryThrottled`: whether the client retries 429s and closed gates within the attempt, as in S0 (W6).
    pub retry_throttled: bool,
    /// Whether a closed gate delays the grant. Otherwise, the write meets the gate at its turn (W6, C2).
    pub gates_delay_grants: bool,
    /// What a 429 closes, and for how long (W6, C2).
    pub throttling: Throttling,
    /// Whether the breaker is on. It is off in `compatibility: upstream` (W10, C2).
    pub breaker: bool,
    /// `batching.minInterval`. `pools::queue::In::Pace` stretches it as the write budget falls (Q2).
    pub min_interval: Duration,
}

/// Settings of the shared Lease (W7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseParams {
    /// Our `holderIdentity`, the same for all replicas: `azure-backend-pool-controller`.
    pub holder: Arc<str>,
    /// `lease.maxHold`, 20 s: time after the Lease was taken within which writes may start.
    pub max_hold: Duration,
    /// `lease.minCooldown`, 5 s: shortest cooldown if another holder was seen recently.
    pub min_cooldown: Duration,
    /// `lease.bypassForDrain`: whether a Down may go without the Lease after 2 s.
    pub bypass_for_drain: bool,
}

/// Rate limits of the cloud configuration (S1, W9).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateLimit {
    /// Sustained reads per second, at least 10.
    pub reads_per_second: f64,
    /// Burst of reads.
    pub reads_at_once: u32,
    /// Sustained writes per second.
    pub writes_per_second: f64,
    /// Burst of writes.
    pub writes_at_once: u32,
}

/// Input of the writer.
#[derive(Clone, Debug)]
pub enum In {
    /// Leadership of this process, and its term (W8).
    Leadership(Leadership),
    /// The operator's policy. A term writes nothing before it receives the policy (G6).
    OperatorPolicy {
        /// Newest term that had begun when the policy was read.
        term: Option<Epoch>,
        /// The policy.
        policy: Arc<OperatorPolicy>,
    },
    /// An operator requests an attempt for this pool now (H3).
    Attempt(RequestId, PoolId),
    /// An operator requests that throttle gates open: this one, or both for `None` (W6).
    OpenGates(RequestId, Option<GateClass>),
    /// The answer to an operator request that was decided elsewhere. It passes through the writer, so that it arrives
    /// after the writer has applied everything sent before it (G6).
    PassOn(RequestId, Answer),
    /// A pool's membership is due.
    MembershipDue(PoolId, MembershipDue),
    /// A pool's membership is not due any more.
    Withdraw(PoolId),
    /// The answer to [`Out::Take`]. `None`: nothing to write.
    Taken(PoolId, AttemptId, Option<MembershipWrite>),
    /// The due admin part of a pool's slot. `None`: nothing is due any more (N3).
    AdminDue(PoolId, Option<AdminDue>),
    /// The draining set (N2). Each plan uses the newest one.
    Draining(Arc<Draining>),
    /// Discovery requests a read of a load balancer.
    Read {
        /// The id that the answer carries.
        call: CallId,
        /// The load balancer.
        lb: LbName,
    },
    /// The ARM port's answer to a call.
    Answered(CallId, ArmAnswer),
    /// The smallest number of remaining calls of a class, from `x-ms-ratelimit-remaining-*` of an answer.
    Headroom(GateClass, u32),
    /// The answer to a request about the shared Lease.
    Lease(CallId, LeaseAnswer),
    /// Number of lock failures of the cloud-controller-manager. `None`: the events could not be read.
    LockFailures(CallId, Option<u32>),
    /// Number of the last Service for whose ingress the cloud-controller-manager may be waiting, as the Informer
    /// counts them. `None`: there is none (W7).
    AwaitingIngress(Option<u64>),
    /// A Service change was read from the API server at this time, but is not processed yet. Its IPv4 pool has this
    /// name (Q2).
    Unread(PoolName, Now),
    /// Everything that was read up to this time is processed, and the pools have the result.
    ReadUpTo(Now),
    /// The gate times that a predecessor stored (W8).
    RecordedGates(GateTimes),
    /// Starts nothing new, and waits for the calls in flight.
    Shutdown,
}

/// Output of the writer.
#[derive(Clone, Debug)]
pub enum Out {
    /// To a pool: the lane is granted, and the writer needs the newest level.
    Take(PoolId, AttemptId),
    /// To a pool: an operator requests an attempt now, and the writer does not object.
    Attempt(PoolId, RequestId),
    /// To the process: the answer to an operator request.
    Answer(RequestId, Answer),
    /// To a pool: its attempt ended.
    Finished(PoolId, AttemptId, Outcome),
    /// To a pool: the result of verification.
    Verified(PoolId, WriteFate),
    /// To a pool: its state in a read outside its attempts.
    Observed(PoolId, Observation),
    /// To the admin state: the admin states of a pool, after a read or a write that the draining set concerns (N2).
    AdminStates(PoolId, PoolAdminStates),
    /// To Discovery: the GET of its read was sent.
    Sent(CallId),
    /// To Discovery: the answer to its read.
    Read {
        /// Id of the request.
        call: CallId,
        /// Time at which the GET began.
        began: Now,
        /// The load balancer, `None` if it does not exist, or the failure.
        result: Result<Option<Arc<LbFacts>>, Arc<Failure>>,
        /// How our own PUTs, up to the time of the answer, may have affected the result.
        puts: OurPuts,
    },
    /// To the ARM port.
    Call(ArmCall),
    /// To the ARM port's gate policy and to the Leader: the times until which each class of calls is closed (W6, W8).
    Gates {
        /// Reads.
        reads_until: Option<Now>,
        /// Writes.
        writes_until: Option<Now>,
    },
    /// To the Kubernetes port: a request about the shared Lease.
    Lease(CallId, LeaseRequest),
    /// To the Kubernetes port: count the events since this time in which the cloud-controller-manager reports that it
    /// could not take the shared Lease.
    CountLockFailures {
        /// The id that the answer carries.
        call: CallId,
        /// Start of the period.
        since: Now,
    },
    /// To Discovery: another holder released the shared Lease, and may have written just before (D3).
    ForeignRelease,
    /// To a pool, before its outcome: the minimum interval between its attempts, raised while the write budget is low
    /// (Q2).
    Pace(PoolId, Duration),
    /// To the event emitter.
    Report(Report),
    /// To the event emitter: a reported condition has ended.
    Ended(Ended),
    /// To the snapshot: the shared Lease.
    SharedLease(SharedLeaseView),
    /// To the snapshot: a lane.
    Lane(LaneView),
    /// To the snapshot: a gate and its budget.
    Gate(GateClass, GateView),
    /// To the metrics.
    Metric(Metric),
    /// To the process: after [`In::Shutdown`], all calls are answered.
    Quiet {
        /// Whether the shared Lease was released or is not ours. Otherwise it expires.
        shared_is_free: bool,
    },
}

/// The machine that writes to Azure.
pub struct Writer {
    params: Params,
    leadership: Leadership,
    policy: WriterPolicy,
    phase: WriterPhase,
    draining: Arc<Draining>,
    unread: UnreadChanges,
    /// Time of the last PUT to each pool.
    sent: BTreeMap<PoolId, Now>,
    /// Time at which the last PUT ended, by load balancer and generation of the draining set.
    ended: BTreeMap<(LbName, u64), Now>,
    /// Withdrawn admin parts that had begun, with the newest set at that time.
    withdrawn: BTreeMap<PoolId, u64>,
    lanes: BTreeMap<LbName, Lane>,
    /// Lanes that can be granted. Turns go round-robin after `granted_last` (W1).
    ready: BTreeSet<LbName>,
    /// Lanes that could be granted if an initial read in this term had shown their load balancer at rest.
    awaiting_initial_read: BTreeSet<LbName>,
    initial_reads: InitialReads,
    granted_last: Option<LbName>,
    /// Deadlines of the lanes.
    timers: BTreeSet<(Now, LbName)>,
    /// Number of lanes with a write.
    busy: usize,
    /// Number of slots of all lanes.
    waiting: usize,
    /// Number of the last attempt.
    attempts: u64,
    calls: Calls,
    gates: Gates,
    budget: Budget,
    breaker: WriteBreaker,
    verifications: Verifications,
    /// The shared Lease. `None`: not used.
    shared_lease: Option<SharedLease>,
    /// Time until which a process that shuts down tries to release it.
    release_by: Option<Now>,
    /// Whether a rate limit of the cloud configuration delayed the next grant.
    grant_limited: bool,
    /// Time at which a token, or the breaker, admits the next grant or read.
    refill: Option<Now>,
    status: WriterStatus,
}

/// Life cycle of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WriterPhase {
    Running,
    /// Starts nothing new, and waits for the PUTs in flight.
    Stopping,
    /// Waits for nothing any more, and [`Out::Quiet`] was emitted.
    Quiet,
}

impl Writer {
    /// Creates a writer that may not write yet.
    #[must_use]
    pub fn new(params: Params) -> Writer {
        let budget = Budget::new(params.reads_per_5_minutes, params.writes_per_5_minutes, params.rate_limit);
        let gates = Gates::new(params.throttling);
        Writer {
            shared_lease: params.lease.clone().map(SharedLease::new),
            release_by: None,
            params,
            leadership: Leadership::Standby,
            policy: WriterPolicy::default(),
            phase: WriterPhase::Running,
            draining: Arc::default(),
            unread: UnreadChanges::default(),
            sent: BTreeMap::new(),
            ended: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            lanes: BTreeMap::new(),
            ready: BTreeSet::new(),
            awaiting_initial_read: BTreeSet::new(),
            initial_reads: InitialReads::after(CallId(0)),
            granted_last: None,
            timers: BTreeSet::new(),
            busy: 0,
            waiting: 0,
            attempts: 0,
            calls: Calls::default(),
            gates,
            budget,
            breaker: WriteBreaker::default(),
            verifications: Verifications::default(),
            grant_limited: false,
            refill: None,
            status: WriterStatus::default(),
        }
    }

    fn on_leadership(&mut self, now: Now, leadership: Leadership, out: &mut Vec<Out>) {
        let before = std::mem::replace(&mut self.leadership, leadership);
        if before.term() != leadership.term() {
            self.reset_initial_reads();
            self.interrupt_all(now, out);
            if let Some(lease) = &mut self.shared_lease {
                lease.forfeit(now, leadership.leads(), out);
            }
            self.verifications.clear();
            self.reset_breaker(out);
        }
    }

    fn on_shutdown(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.phase != WriterPhase::Running {
            return;
        }
        self.phase = WriterPhase::Stopping;
        self.abandon_lanes(now, out);
        if let Some(lease) = &mut self.shared_lease {
            lease.skip_delay(now);
        }
        self.verifications.clear();
        for purpose in self.calls.take_out(|_| true) {
            self.answer_unsent_read(now, purpose, out);
        }
    }

    /// Returns whether an attempt belongs to the current term of a running process.
    fn is_current(&self, attempt: AttemptId) -> bool {
        self.phase == WriterPhase::Running && self.leadership.term() == Some(attempt.epoch)
    }

    /// Returns the lane of a load balancer. Creates it if there is none.
    fn lane(&mut self, lb: &LbName) -> &mut Lane {
        let initial_reads = &self.initial_reads;
        self.lanes.entry(lb.clone()).or_insert_with(|| {
            let initial_read =
                if initial_reads.is_at_rest(lb) { InitialRead::AtRest } else { InitialRead::default() };
            Lane::new(initial_read)
        })
    }

    /// Updates timers, totals and the set of ready lanes after a change of a lane, and drops an idle lane.
    fn touch(&mut self, lb: &LbName) {
        let Some(lane) = self.lanes.get_mut(lb) else { return };
        debug_assert!(lane.is_consistent(), "a lane lost a slot");
        let totals =
            LaneTotals { busy: lane.write.is_some(), waiting: lane.waiting(), deadline: lane.deadline() };
        let before = std::mem::replace(&mut lane.totals, totals);
        self.busy = self.busy + usize::from(totals.busy) - usize::from(before.busy);
        self.waiting = self.waiting + totals.waiting - before.waiting;
        if before.deadline != totals.deadline {
            if let Some(at) = before.deadline {
                self.timers.remove(&(at, lb.clone()));
            }
            if let Some(at) = totals.deadline {
                self.timers.insert((at, lb.clone()));
            }
        }
        let (ready, wants_initial_read) = (lane.is_ready(), lane.wants_initial_read());
        for (belongs, set) in
            [(ready, &mut self.ready), (wants_initial_read, &mut self.awaiting_initial_read)]
        {
            if belongs {
                set.insert(lb.clone());
            } else {
                set.remove(lb);
            }
        }
        if lane.is_idle() {
            self.lanes.remove(lb);
        }
        self.status.lane_changed(lb);
    }

    /// Handles a lane's deadline.
    fn wake_lane(&mut self, now: Now, lb: &LbName, out: &mut Vec<Out>) {
        let Some(lane) = self.lanes.get_mut(lb) else { return };
        lane.wake(now);
        if let LaneState::InDoubt { pool, next, .. } = &mut lane.closed
            && next.is_some_and(|at| at <= now)
        {
            *next = None;
            self.calls.queue(Purpose::Probe(pool.clone()));
        }
        let (mut take_over, mut poll) = (false, false);
        if let Some(write) = lane.write.as_ref().filter(|write| write.deadline().is_some_and(|at| at <= now))
        {
            match &write.phase {
                WritePhase::Taking => take_over = true,
                WritePhase::Polling(_) => poll = true,
                WritePhase::Reading | WritePhase::Putting(_) => {}
            }
        }
        if take_over {
            self.on_take_unanswered(now, lb, out);
        }
        if poll {
            self.poll_or_glance(now, lb);
        }
        self.touch(lb);
    }

    /// Starts everything that may start now, and publishes what has changed.
    fn reconcile(&mut self, now: Now, out: &mut Vec<Out>) {
        self.cancel_while_disallowed(now, out);
        self.queue_initial_reads();
        self.send_reads(now, out);
        self.grant_all(now, out);
        self.grant_bypasses(now, out);
        self.count_rate_limited_grant(now, out);
        self.send_reads(now, out);
        self.reconcile_shared_lease(now, out);
        // A grant that could be paid now waits for the shared Lease, which has its own deadline.
        let grants = self.grant_refill(now).filter(|at| *at > now);
        self.refill = earliest(grants, self.read_refill(now));
        if self.phase == WriterPhase::Stopping && self.calls.puts() == 0 && self.has_released(now) {
            self.phase = WriterPhase::Quiet;
            let shared_is_free = self.shared_lease.as_ref().is_none_or(|lease| lease.is_free(now));
            out.push(Out::Quiet { shared_is_free });
        }
        self.publish(now, out);
        let within = self.busy <= self.params.turns;
        assert!(within, "invariant A4 violated: more lanes are busy than may write at the same time");
        let ours = self.shared_lease.as_ref().is_none_or(SharedLease::is_consistent);
        assert!(ours, "invariant W7 violated: holding the shared Lease that another client owns");
        debug_assert!(self.check().is_ok(), "{:?}", self.check());
    }

    /// Checks the invariants that hold between any two steps.
    ///
    /// # Errors
    /// The invariant that does not hold.
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
        rule(
            self.initial_reads_are_consistent(),
            "what was seen of a load balancer is not known in its lane",
        )?;
        rule(self.verifications.is_consistent(), "verifications lost their order")?;
        let lease = self.shared_lease.as_ref().is_none_or(SharedLease::is_consistent);
        rule(lease, "holding the shared Lease that another client owns")?;
        rule(self.breaker.is_consistent(), "a load balancer is stopped twice")?;
        let mut puts = BTreeSet::new();
        let single = self.calls.open_puts().all(|pool| puts.insert(&pool.lb));
        rule(single, "two PUTs are in flight on one load balancer")
    }

    /// Checks that the state of each lane agrees with the initial reads, and that the lanes that need such a read are
    /// known.
    fn initial_reads_are_consistent(&self) -> bool {
        let known = |(lb, lane): (&LbName, &Lane)| {
            (lane.initial_read == InitialRead::AtRest) == self.initial_reads.is_at_rest(lb)
        };
        let wanting = self.lanes.iter().filter(|(_, lane)| lane.wants_initial_read()).map(|(lb, _)| lb);
        self.lanes.iter().all(known) && wanting.eq(&self.awaiting_initial_read)
    }
}

impl Machine for Writer {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match input {
            In::Leadership(leadership) => self.on_leadership(now, leadership, out),
            In::OperatorPolicy { term, policy } => self.on_policy(term, policy),
            In::Attempt(id, pool) => self.on_attempt(now, id, pool, out),
            In::OpenGates(id, class) => self.on_open_gates(now, id, class, out),
            In::PassOn(id, answer) => self.forward_answer(now, id, answer, out),
            In::MembershipDue(pool, due) => self.on_due(now, &pool, due),
            In::Withdraw(pool) => self.on_withdraw(&pool),
            In::Taken(pool, attempt, taken) => self.on_taken(now, &pool, attempt, taken, out),
            In::AdminDue(pool, Some(due)) => self.on_admin_due(&pool, due),
            In::AdminDue(pool, None) => self.withdraw_admin(now, &pool, out),
            In::Draining(draining) => self.draining = draining,
            In::Read { call, lb } => self.on_discovery_read(now, call, lb, out),
            In::Answered(call, answer) => self.on_answered(now, call, answered(answer), out),
            In::Shutdown => self.on_shutdown(now, out),
            In::Headroom(class, remaining) => self.budget.headroom(now, class, remaining),
            In::Unread(pool, read) => self.on_unread(now, pool, read),
            In::ReadUpTo(read) => self.on_read_up_to(read),
            In::RecordedGates(times) => self.gates.remember(now, times),
            In::Lease(call, answer) => self.on_lease(now, call, answer, out),
            In::LockFailures(call, count) => self.on_lock_failures(now, call, count, out),
            In::AwaitingIngress(newest) => {
                if let Some(lease) = &mut self.shared_lease {
                    lease.on_awaiting_ingress(newest);
                }
            }
        }
        self.reconcile(now, out);
    }

    fn deadline(&self) -> Option<Now> {
        let lanes = self.timers.first().map(|(at, _)| *at);
        let calls = earliest(self.calls.deadline(), self.verifications.deadline());
        let lease = self
            .shared_lease
            .as_ref()
            .filter(|_| self.phase != WriterPhase::Quiet)
            .and_then(SharedLease::deadline);
        let ending = self.release_by.filter(|_| self.phase == WriterPhase::Stopping);
        let others = earliest(earliest(lease, ending), self.status.deadline());
        earliest(earliest(lanes, calls), earliest(self.refill, others))
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        while let Some(call) = self.calls.overdue(now) {
            let failed = FailedCall::ours(FailureKind::Timeout, "the call was given up after 90 seconds");
            self.on_answered(now, call, Err(failed), out);
        }
        if let Some(lease) = &mut self.shared_lease {
            lease.abandon_overdue(now);
        }
        while let Some((_, lb)) = self.timers.first().filter(|(at, _)| *at <= now).cloned() {
            self.wake_lane(now, &lb, out);
        }
        for (pool, attempt) in self.verifications.due(now) {
            self.calls.queue(Purpose::Verify(pool, attempt));
        }
        self.reconcile(now, out);
    }
}

#[cfg(test)]
mod tests;
