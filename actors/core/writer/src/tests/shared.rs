//! Property tests with the writers of two processes, one ARM, and the shared Lease with a second holder that behaves
//! as the cloud-controller-manager (W7, W8). Answers are lost, late or doubled, and processes pause, crash and have
//! wrong clocks.
//!
//! Safety: whenever a PUT is sent, its process leads and holds the Lease, and keeps both until the try has ended. No
//! PUT is in flight while another client holds the Lease, or when the other process sends one. Liveness: when faults
//! end and the other holder releases the Lease now and then, everything due is written. If the other holder always
//! needs the Lease, the controller holds it for at most half of the time, and the other holder never waits for long.
//! If the operator edits or deletes the Lease, or storage is restored from a backup, two holders cannot be kept
//! apart. Then requests stay few, and everything is written.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::super::*;
use super::fake::{FakeArm, entry, failure, ip, owner};
use model::arm::{ArmRequest, Document, RetryAfter};
use model::attempt::MembershipUrgency;
use model::ids::{AddressName, Epoch, Family, PoolName};
use model::lease::{LeaseEdit, LeaseFacts, LeaseName};
use model::level::{Level, Member};
use model::object::{RequestFailure, ResourceVersion};
use model::write_record::Trigger;

const OURS: &str = "azure-backend-pool-controller";
const CCM: &str = "cloud-controller-manager";
const OTHER_CLIENT: &str = "stranger";
/// Maximum number of requests about the Lease in one second. More are a storm.
const MAX_REQUESTS: usize = 40;
const POOLS: usize = 4;
const SETTLE: Duration = Duration::from_secs(20);
const TERM: Duration = Duration::from_secs(45);
/// Maximum duration of the try of a PUT after it was sent.
const TRY: Duration = Duration::from_secs(20);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A fault of a request about the Lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    /// The request never arrives, and fails.
    Lost,
    /// The request is carried out, and fails nevertheless.
    AnswerLost,
    /// The request is carried out, and never answered.
    Silence,
    /// The request fails, and is carried out 30 seconds later.
    Late,
    /// The request is answered twice.
    Doubled,
}

/// A random event.
#[derive(Clone, Copy, Debug)]
enum RandomEvent {
    /// A pool gets a level.
    Level(usize, u8),
    /// The next requests about the Lease meet this fault.
    Troubles(Trouble, u8),
    /// The next calls to ARM are carried out and not answered.
    Mute(u8),
    /// Operations take this many seconds.
    Operations(u8),
    /// Reads take this many seconds.
    Slow(u8),
    /// A process is suspended for this many seconds.
    Pause(usize, u8),
    /// A process can no longer renew its leadership.
    CutOff,
    /// The leader crashes and is started again.
    Crash,
    /// The leader shuts down and is started again.
    Restart,
    /// The other holder needs the Lease for this many seconds at a time, with this many between.
    Other(u8, u8),
    /// A Service starts to wait for the cloud-controller-manager, or stops waiting.
    Awaiting(Option<u64>),
    /// The operator writes this holder into the Lease.
    Person(Option<&'static str>),
    /// The operator deletes the Lease.
    Deleted,
    /// Storage returns to the state of the Lease this many versions ago.
    Restored(usize),
}

/// A state of the Lease.
#[derive(Clone, Debug)]
struct State {
    version: u64,
    holder: Option<Arc<str>>,
    /// `renewTime`, by the clock of the client that wrote it, in milliseconds.
    renewed: i64,
    duration: Duration,
    /// Time at which the request that wrote this state was sent.
    sent: Now,
    previous: Option<Arc<str>>,
}

/// A message in flight.
#[derive(Clone, Debug)]
enum Event {
    /// To a writer, of this life of its process.
    Tell(usize, u64, In),
    /// A request about the Lease arrives. It belongs to this life of its process.
    Lease(usize, u64, CallId, LeaseRequest, Now, Option<Trouble>),
    /// A call arrives at ARM.
    Arm(usize, u64, ArmCall, bool),
}

struct Process {
    writer: Writer,
    life: u64,
    paused_until: Now,
    /// Error of its wall clock in milliseconds when it writes a time.
    skew: i64,
    /// Error of its wall clock in milliseconds when it reads a time.
    reads_skewed: i64,
    open: BTreeMap<PoolId, AttemptId>,
    /// PUTs without an answer, and the time until which they may be carried out.
    puts: BTreeMap<CallId, Now>,
    quiet: bool,
}

/// The other holder.
struct Other {
    holds_until: Option<Now>,
    next_try: Now,
    wanting_since: Now,
    longest_wait: Duration,
    hold: Duration,
    rest: Duration,
    failures: Vec<Now>,
    took: u32,
}

struct World {
    now: Now,
    processes: Vec<Process>,
    leader: usize,
    epoch: u64,
    until: Now,
    /// True if the leader's renewals arrive.
    renews: bool,
    next_renewal: Now,
    arm: FakeArm,
    levels: Vec<(PoolId, Level)>,
    mute: u8,
    slow: Duration,
    lease: Option<State>,
    history: Vec<State>,
    version: u64,
    awaits: Vec<(usize, u64, CallId, u64, Now)>,
    troubles: VecDeque<Trouble>,
    events: BTreeMap<(Now, u64), Event>,
    sequence: u64,
    other: Other,
    ours_for: Duration,
    puts: usize,
    /// True if a third client has changed the Lease.
    meddled: bool,
    /// Send times of the requests in the last second.
    requests: VecDeque<Now>,
}

fn level(bits: u8) -> Level {
    let member = |n: u8| (ip(n), Member { name: AddressName::new(format!("n{n}")), node_ready: true });
    Level { required: (0..8).filter(|n| bits >> n & 1 == 1).map(member).collect(), ..Level::default() }
}

fn params() -> Params {
    let lease = LeaseParams {
        holder: OURS.into(),
        max_hold: secs(20),
        min_cooldown: secs(5),
        bypass_for_drain: false,
    };
    Params { lease: Some(lease), min_interval: Duration::ZERO, breaker: false, ..super::params() }
}

impl World {
    fn new(skews: [i64; 2], reads_skewed: i64) -> World {
        let mut arm = FakeArm::default();
        let mut levels = Vec::new();
        for number in 0..POOLS {
            let id = PoolId::new(
                LbName::new(format!("lb{}", number % 2)),
                PoolName::new(format!("shop-p{number}")),
            );
            arm.add(&id, vec![entry("n0", Some(ip(0)))]);
            levels.push((id, level(1)));
        }
        let process = |skew| Process {
            writer: super::writer_with_policy(params()),
            life: 0,
            paused_until: Now::ZERO,
            skew,
            reads_skewed,
            open: BTreeMap::new(),
            puts: BTreeMap::new(),
            quiet: false,
        };
        let now = Now::from_millis(10_000_000);
        let mut world = World {
            now,
            processes: vec![process(skews[0]), process(skews[1])],
            leader: 0,
            epoch: 0,
            until: Now::ZERO,
            renews: true,
            next_renewal: now,
            arm,
            levels,
            mute: 0,
            slow: Duration::ZERO,
            lease: None,
            history: Vec::new(),
            version: 0,
            awaits: Vec::new(),
            troubles: VecDeque::new(),
            events: BTreeMap::new(),
            sequence: 0,
            other: Other {
                holds_until: None,
                next_try: Now::NEVER,
                wanting_since: now,
                longest_wait: Duration::ZERO,
                hold: secs(5),
                rest: secs(30),
                failures: Vec::new(),
                took: 0,
            },
            ours_for: Duration::ZERO,
            puts: 0,
            meddled: false,
            requests: VecDeque::new(),
        };
        world.win(0);
        world
    }

    fn wall(&self, skew: i64) -> i64 {
        i64::try_from(self.now.as_micros() / 1_000).expect("a small number") + skew
    }

    fn later(&mut self, millis: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now.plus(Duration::from_millis(millis)), self.sequence), event);
    }

    fn deliver(&mut self, number: usize, input: In) {
        let life = self.processes[number].life;
        if matches!(input, In::Leadership(_)) {
            // A newer fact replaces an older one that was not delivered.
            let older =
                |event: &Event| matches!(event, Event::Tell(to, _, In::Leadership(_)) if *to == number);
            self.events.retain(|_, event| !older(event));
        }
        let latency = 1 + self.sequence * 7 % 13;
        self.later(latency, Event::Tell(number, life, input));
    }

    fn win(&mut self, number: usize) {
        self.leader = number;
        self.epoch += 1;
        self.until = self.now.plus(TERM);
        self.renews = true;
        self.next_renewal = self.now.plus(secs(5));
        self.deliver(
            number,
            In::Leadership(Leadership::Leading { epoch: Epoch(self.epoch), until: self.until }),
        );
        for number in 0..POOLS {
            self.post(number);
        }
    }

    fn is_in_sync(&self, number: usize) -> bool {
        let (id, level) = &self.levels[number];
        level.is_in_sync(&self.arm.entries(id).iter().filter_map(|entry| entry.ip).collect())
    }

    fn post(&mut self, number: usize) {
        let (id, leader) = (self.levels[number].0.clone(), self.leader);
        if !self.is_in_sync(number) && !self.processes[leader].open.contains_key(&id) {
            self.deliver(
                leader,
                In::MembershipDue(id, MembershipDue { since: self.now, urgency: MembershipUrgency::Add }),
            );
        }
    }

    fn keep_output(&mut self, number: usize, out: Vec<Out>) {
        self.processes[number].writer.check().expect("the invariants hold");
        let life = self.processes[number].life;
        for output in out {
            match output {
                Out::Take(pool, attempt) => {
                    self.processes[number].open.insert(pool.clone(), attempt);
                    let level =
                        self.levels.iter().find(|(id, _)| *id == pool).expect("a known pool").1.clone();
                    let services = BTreeMap::from([owner(&pool)]);
                    let (rewrites, trigger) = (false, Trigger::Endpoints);
                    let taken = MembershipWrite { level, family: Family::V4, services, rewrites, trigger };
                    self.deliver(number, In::Taken(pool, attempt, Some(taken)));
                }
                Out::Finished(pool, attempt, _) => {
                    if self.processes[number].open.get(&pool) == Some(&attempt) {
                        self.processes[number].open.remove(&pool);
                    }
                    let which = self.levels.iter().position(|(id, _)| *id == pool).expect("a known pool");
                    self.post(which);
                }
                Out::Lease(call, request) => {
                    let trouble = match request {
                        LeaseRequest::Watch(..) => None,
                        LeaseRequest::Get | LeaseRequest::Create(_) | LeaseRequest::Replace(..) => {
                            self.troubles.pop_front()
                        }
                    };
                    let latency = match trouble {
                        Some(Trouble::Late) => 30_000,
                        Some(Trouble::Lost | Trouble::AnswerLost | Trouble::Silence | Trouble::Doubled)
                        | None => 3,
                    };
                    let sent = self.now;
                    self.requests.push_back(sent);
                    self.requests.retain(|at| sent < at.plus(secs(1)));
                    assert!(self.requests.len() <= MAX_REQUESTS, "a storm of requests");
                    self.later(latency, Event::Lease(number, life, call, request, sent, trouble));
                    if trouble == Some(Trouble::Late) {
                        let lost = LeaseAnswer::Failed(RequestFailure::Other("lost".into()));
                        self.later(10_000, Event::Tell(number, life, In::Lease(call, lost)));
                    }
                }
                Out::Call(call) => self.call(number, call),
                Out::CountLockFailures { call, since } => {
                    let count = self.other.failures.iter().filter(|at| **at >= since).count();
                    self.deliver(number, In::LockFailures(call, u32::try_from(count).ok()));
                }
                Out::Quiet { .. } => self.processes[number].quiet = true,
                Out::Verified(..)
                | Out::Observed(..)
                | Out::AdminStates(..)
                | Out::Read { .. }
                | Out::Gates { .. }
                | Out::ForeignRelease
                | Out::Sent(_)
                | Out::Pace(..)
                | Out::Report(_)
                | Out::Ended(_)
                | Out::SharedLease(_)
                | Out::Lane(_)
                | Out::Gate(..)
                | Out::Attempt(..)
                | Out::Answer(..)
                | Out::Metric(_) => {}
            }
        }
    }

    fn call(&mut self, number: usize, call: ArmCall) {
        let life = self.processes[number].life;
        if let ArmRequest::PutPool { pool, permit, .. } = &call.request {
            let (now, ends) = (self.now, permit.send_deadline.plus(TRY));
            assert!(now <= permit.send_deadline, "a PUT is sent after its permit");
            assert!(
                self.leader == number && self.epoch == permit.attempt.epoch.0,
                "a PUT without leadership"
            );
            assert!(ends <= self.until, "a PUT that may outlast leadership");
            assert!(!self.arm.runs_ours(&pool.lb), "a PUT while an operation of ours runs");
            if !self.meddled {
                let state = self.lease.as_ref().expect("a PUT without the Lease");
                assert_eq!(state.holder.as_deref(), Some(OURS), "a PUT while the Lease is not ours");
                assert!(ends <= state.sent.plus(secs(60)), "a PUT that may outlast the hold");
            }
            let others = &self.processes[1 - number].puts;
            assert!(others.values().all(|other| *other < now), "two writers");
            self.processes[number].puts.insert(call.id, ends);
            self.puts += 1;
        }
        let mute = self.mute > 0;
        self.mute = self.mute.saturating_sub(1);
        let slow = match call.request {
            ArmRequest::PutPool { .. } => Duration::ZERO,
            ArmRequest::GetPool(_) | ArmRequest::GetLoadBalancer(_) | ArmRequest::Poll(_) => self.slow,
        };
        let latency = 20 + call.id.0 * 37 % 300 + u64::try_from(slow.as_millis()).expect("a short time");
        self.later(latency, Event::Arm(number, life, call, mute));
    }

    /// Checks that no other client holds the Lease while a PUT of ours may be carried out.
    fn assert_no_put_in_flight(&self) {
        for process in self.processes.iter().filter(|_| !self.meddled) {
            assert!(
                process.puts.values().all(|ends| *ends < self.now),
                "a PUT is in flight without the Lease"
            );
        }
    }

    fn seen(&self, state: &State, skew: i64) -> LeaseAnswer {
        let ago = u64::try_from((self.wall(skew) - state.renewed).max(0)).unwrap_or(0);
        LeaseAnswer::Seen(Arc::new(LeaseFacts {
            lease: LeaseName::Shared,
            holder: state.holder.clone(),
            duration: Some(state.duration),
            renewed_ago: Some(Duration::from_millis(ago)),
            transitions: 0,
            version: ResourceVersion(state.version.to_string().into()),
            gates: GateTimes::default(),
            out_of_sync: Arc::default(),
            document: Document::new(()),
        }))
    }

    fn store(&mut self, state: State) {
        self.version += 1;
        let state = State { version: self.version, ..state };
        self.history.push(state.clone());
        self.lease = Some(state);
    }

    fn edited(&mut self, number: usize, edit: &LeaseEdit, sent: Now) {
        let behind = i64::try_from(self.now.since(sent).as_millis()).expect("a short time");
        let previous = self.lease.as_ref().and_then(|state| state.previous.clone());
        let renewed = self.wall(self.processes[number].skew) - behind;
        self.store(State {
            version: 0,
            holder: edit.holder.clone(),
            renewed,
            duration: edit.duration,
            sent,
            previous: edit.previous_holder.clone().or(previous),
        });
    }

    fn lease_request(&mut self, number: usize, request: &LeaseRequest, sent: Now) -> LeaseAnswer {
        let skew = self.processes[number].reads_skewed;
        match request {
            LeaseRequest::Get => {}
            LeaseRequest::Create(edit) => {
                if self.lease.is_some() {
                    return LeaseAnswer::Conflict;
                }
                self.edited(number, edit, sent);
            }
            LeaseRequest::Replace(facts, edit) => match &self.lease {
                None => return LeaseAnswer::Absent,
                Some(state) if state.version.to_string() != *facts.version.0 => return LeaseAnswer::Conflict,
                Some(state) => {
                    let foreign = state.holder.as_deref() == Some(CCM);
                    assert!(!foreign || self.meddled, "another client's hold was taken");
                    self.edited(number, edit, sent);
                }
            },
            LeaseRequest::Watch(..) => {}
        }
        match &self.lease {
            Some(state) => self.seen(state, skew),
            None => LeaseAnswer::Absent,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Tell(number, life, input) => {
                let process = &mut self.processes[number];
                if process.life != life {
                    return;
                }
                if self.now < process.paused_until {
                    let wait = process.paused_until.since(self.now);
                    self.sequence += 1;
                    self.events
                        .insert((self.now.plus(wait), self.sequence), Event::Tell(number, life, input));
                    return;
                }
                if let In::Answered(call, _) = &input {
                    process.puts.remove(call);
                }
                let mut out = Vec::new();
                process.writer.step(self.now, input, &mut out);
                self.keep_output(number, out);
            }
            Event::Lease(number, life, call, LeaseRequest::Watch(from, span), _, _) => {
                let from = from.0.parse().expect("a number");
                self.awaits.push((number, life, call, from, self.now.plus(span)));
            }
            Event::Lease(number, life, call, request, sent, trouble) => {
                let lost = LeaseAnswer::Failed(RequestFailure::Other("lost".into()));
                let answers = match trouble {
                    Some(Trouble::Lost) => vec![(10_000, lost)],
                    Some(Trouble::AnswerLost) => {
                        self.lease_request(number, &request, sent);
                        vec![(10_000, lost)]
                    }
                    Some(Trouble::Silence | Trouble::Late) => {
                        self.lease_request(number, &request, sent);
                        Vec::new()
                    }
                    Some(Trouble::Doubled) => {
                        let answer = self.lease_request(number, &request, sent);
                        vec![(3, answer.clone()), (9, answer)]
                    }
                    None => vec![(3, self.lease_request(number, &request, sent))],
                };
                for (millis, answer) in answers {
                    self.later(millis, Event::Tell(number, life, In::Lease(call, answer)));
                }
            }
            Event::Arm(number, life, call, mute) => {
                let answer = self.arm.handle(self.now, &call.request);
                if !mute {
                    self.later(5, Event::Tell(number, life, In::Answered(call.id, answer)));
                } else if matches!(call.request, ArmRequest::PutPool { .. }) {
                    let lost = ArmAnswer::Failed(failure(FailureKind::Timeout, "", RetryAfter::Absent));
                    self.later(19_000, Event::Tell(number, life, In::Answered(call.id, lost)));
                }
            }
        }
    }

    fn answer_watches(&mut self) {
        let now = self.now;
        for (number, life, call, from, until) in std::mem::take(&mut self.awaits) {
            let newer = self.history.iter().find(|state| state.version > from);
            // Restored versions are older than the known one.
            let news = newer.or(self.lease.as_ref().filter(|state| state.version != from));
            let answer = match news {
                Some(_) | None if self.lease.is_none() => LeaseAnswer::Absent,
                Some(state) => self.seen(state, self.processes[number].reads_skewed),
                None if until <= now => LeaseAnswer::Unchanged,
                None => {
                    self.awaits.push((number, life, call, from, until));
                    continue;
                }
            };
            self.later(3, Event::Tell(number, life, In::Lease(call, answer)));
        }
    }

    /// Runs the other holder, whose clock is right.
    fn other(&mut self) {
        if self.other.holds_until.is_some_and(|until| until <= self.now) {
            self.other.holds_until = None;
            self.other.next_try = self.now.plus(self.other.rest);
            self.other.wanting_since = self.other.next_try;
            let held = self.lease.clone().filter(|state| state.holder.as_deref() == Some(CCM));
            assert!(held.is_some() || self.meddled, "its hold was taken away");
            if let Some(state) = held {
                self.store(State { holder: None, previous: Some(CCM.into()), ..state });
            }
        }
        if self.other.holds_until.is_none() && self.other.next_try <= self.now {
            let wall = self.wall(0);
            let free = self.lease.as_ref().is_none_or(|state| {
                let lasts = i64::try_from(state.duration.as_millis()).expect("a short time");
                state.holder.is_none() || wall > state.renewed + lasts
            });
            let waited = self.now.since(self.other.wanting_since);
            self.other.longest_wait = self.other.longest_wait.max(waited);
            if !free {
                self.other.failures.push(self.now);
                self.other.next_try = self.now.plus(secs(1));
                return;
            }
            self.assert_no_put_in_flight();
            let (duration, previous) = match &self.lease {
                Some(state) => (state.duration, state.previous.clone()),
                None => (secs(900), None),
            };
            let holder = Some(CCM.into());
            self.store(State { version: 0, holder, renewed: wall, duration, sent: self.now, previous });
            self.other.holds_until = Some(self.now.plus(self.other.hold));
            self.other.took += 1;
        }
    }

    fn leadership(&mut self) {
        if self.renews && self.next_renewal <= self.now {
            self.next_renewal = self.now.plus(secs(5));
            let leader = self.leader;
            if self.processes[leader].quiet {
                self.restart(leader);
                self.win(1 - leader);
            } else if self.now < self.processes[leader].paused_until {
                // It does not renew while it is suspended.
            } else if self.now < self.until {
                self.until = self.now.plus(TERM);
                let (epoch, until) = (Epoch(self.epoch), self.until);
                self.deliver(leader, In::Leadership(Leadership::Leading { epoch, until }));
            }
        }
        if self.until.plus(SETTLE) <= self.now {
            self.deliver(self.leader, In::Leadership(Leadership::Standby));
            self.win(1 - self.leader);
        }
    }

    fn restart(&mut self, number: usize) {
        let process = &mut self.processes[number];
        process.writer = super::writer_with_policy(params());
        process.life += 1;
        process.open.clear();
        process.quiet = false;
    }

    fn next_moment(&self) -> Now {
        let deadlines = self
            .processes
            .iter()
            .filter_map(|process| Some(process.writer.deadline()?.max(process.paused_until)));
        let events = self.events.first_key_value().map(|((at, _), _)| *at);
        let awaits = self.awaits.iter().map(|await_| await_.4).min();
        let other = self.other.holds_until.unwrap_or(self.other.next_try);
        let leading = if self.renews { self.next_renewal } else { self.until.plus(SETTLE) };
        let others = [Some(other), Some(leading), events, awaits, Some(self.until.plus(SETTLE))];
        deadlines.chain(others.into_iter().flatten()).min().unwrap_or(Now::NEVER).max(self.now)
    }

    fn run(&mut self, until: Now) {
        let mut turns = 0_u32;
        loop {
            let next = self.next_moment();
            if next > until {
                break;
            }
            if self.lease.as_ref().is_some_and(|state| state.holder.as_deref() == Some(OURS)) {
                self.ours_for += next.since(self.now);
            }
            turns = if next > self.now { 0 } else { turns + 1 };
            assert!(turns < 1_000, "time does not advance");
            self.now = next;
            self.leadership();
            self.other();
            self.answer_watches();
            if let Some(first) = self.events.first_entry().filter(|first| first.key().0 <= next) {
                let event = first.remove();
                self.handle(event);
                continue;
            }
            for number in 0..self.processes.len() {
                let process = &mut self.processes[number];
                if process.paused_until <= next && process.writer.deadline().is_some_and(|at| at <= next) {
                    let mut out = Vec::new();
                    process.writer.tick(next, &mut out);
                    assert!(process.writer.deadline().is_none_or(|at| at > next), "it would wake forever");
                    self.keep_output(number, out);
                }
            }
        }
        self.now = self.now.max(until);
    }

    fn happen(&mut self, event: RandomEvent) {
        match event {
            RandomEvent::Level(number, bits) => {
                self.levels[number].1 = level(bits);
                self.post(number);
            }
            RandomEvent::Troubles(trouble, count) => {
                self.troubles.extend(std::iter::repeat_n(trouble, count.into()));
            }
            RandomEvent::Mute(count) => self.mute = count,
            RandomEvent::Operations(seconds) => self.arm.lasts = secs(seconds.into()),
            RandomEvent::Slow(seconds) => self.slow = secs(seconds.into()),
            RandomEvent::Pause(number, seconds) => {
                self.processes[number].paused_until = self.now.plus(secs(seconds.into()));
            }
            RandomEvent::CutOff => {
                self.renews = false;
                // In two cases of three, it notices.
                if !self.sequence.is_multiple_of(3) {
                    let life = self.processes[self.leader].life;
                    let event = Event::Tell(self.leader, life, In::Leadership(Leadership::Standby));
                    self.later(25_000, event);
                }
            }
            RandomEvent::Crash => {
                self.renews = false;
                self.restart(self.leader);
            }
            RandomEvent::Restart => self.deliver(self.leader, In::Shutdown),
            RandomEvent::Other(hold, rest) => {
                self.other.hold = secs(u64::from(hold) + 1);
                self.other.rest = secs(rest.into());
                if self.other.holds_until.is_none() {
                    self.other.next_try = self.now;
                    self.other.wanting_since = self.now;
                }
            }
            RandomEvent::Awaiting(newest) => self.deliver(self.leader, In::AwaitingIngress(newest)),
            RandomEvent::Person(holder) => {
                self.meddled = true;
                if let Some(state) = self.lease.clone() {
                    self.store(State { holder: holder.map(Arc::from), ..state });
                }
            }
            RandomEvent::Deleted => {
                self.meddled = true;
                self.version += 1;
                self.lease = None;
            }
            RandomEvent::Restored(ago) => {
                self.meddled = true;
                self.history.truncate(self.history.len().saturating_sub(ago));
                self.lease = self.history.last().cloned();
                self.version = self.lease.as_ref().map_or(self.version / 2, |state| state.version);
            }
        }
    }

    fn come_to_rest(&mut self) {
        self.troubles.clear();
        self.mute = 0;
        self.slow = Duration::ZERO;
        self.happen(RandomEvent::Operations(2));
        self.happen(RandomEvent::Other(9, 3));
        self.happen(RandomEvent::Awaiting(None));
        // The others would wait 15 minutes for a holder that does not know that it holds the Lease.
        let holder = self.lease.as_ref().and_then(|state| state.holder.as_deref());
        if holder == Some(OTHER_CLIENT) || holder == Some(CCM) && self.other.holds_until.is_none() {
            self.happen(RandomEvent::Person(None));
        }
        for process in &mut self.processes {
            process.paused_until = self.now;
        }
        // The time is long enough for a take-over, for the longest waits, and for several holds of the Lease.
        for _ in 0..12 {
            self.run(self.now.plus(secs(60)));
            for number in 0..POOLS {
                self.post(number);
            }
        }
    }

    fn assert_in_sync(&self) {
        for number in 0..POOLS {
            assert!(self.is_in_sync(number), "{} is out of sync", self.levels[number].0);
        }
    }
}

fn any_random_event() -> impl Strategy<Value = RandomEvent> {
    let trouble = prop::sample::select(vec![
        Trouble::Lost,
        Trouble::AnswerLost,
        Trouble::Silence,
        Trouble::Late,
        Trouble::Doubled,
    ]);
    prop_oneof![
        8 => (0..POOLS, any::<u8>()).prop_map(|(n, bits)| RandomEvent::Level(n, bits)),
        3 => (trouble, 1..4_u8).prop_map(|(trouble, n)| RandomEvent::Troubles(trouble, n)),
        1 => (1..4_u8).prop_map(RandomEvent::Mute),
        1 => (0..90_u8).prop_map(RandomEvent::Operations),
        1 => (0..45_u8).prop_map(RandomEvent::Slow),
        2 => (0..2_usize, 1..120_u8).prop_map(|(n, s)| RandomEvent::Pause(n, s)),
        1 => Just(RandomEvent::CutOff),
        1 => Just(RandomEvent::Crash),
        1 => Just(RandomEvent::Restart),
        3 => (0..120_u8, 0..30_u8).prop_map(|(hold, rest)| RandomEvent::Other(hold, rest)),
        1 => proptest::option::of(1_u64..50).prop_map(RandomEvent::Awaiting),
    ]
}

fn any_meddling() -> impl Strategy<Value = RandomEvent> {
    let holder = prop::sample::select(vec![None, Some(OURS), Some(CCM), Some(OTHER_CLIENT)]);
    prop_oneof![
        12 => any_random_event(),
        2 => holder.prop_map(RandomEvent::Person),
        1 => Just(RandomEvent::Deleted),
        2 => (0..20_usize).prop_map(RandomEvent::Restored),
    ]
}

proptest! {
    #[test]
    fn w7_w8_no_put_without_lease_and_leadership_and_all_is_written(
        skews in (-4_000..4_000_i64, -4_000..4_000_i64),
        reads_skewed in -100_000..100_000_i64,
        story in prop::collection::vec((0..30_000_u64, any_random_event()), 1..50),
    ) {
        // The hold must not seem to have ended early. Therefore the clocks may differ by only a few seconds.
        let mut world = World::new([skews.0, skews.1], reads_skewed);
        for (pause, event) in story {
            world.happen(event);
            world.run(world.now.plus(Duration::from_millis(pause)));
        }
        world.come_to_rest();
        world.assert_in_sync();
    }

    #[test]
    fn w7_lease_requests_stay_few_and_everything_is_written(
        story in prop::collection::vec((0..30_000_u64, any_meddling()), 1..40),
    ) {
        let mut world = World::new([0, 0], 0);
        for (pause, event) in story {
            world.happen(event);
            world.run(world.now.plus(Duration::from_millis(pause)));
        }
        world.come_to_rest();
        world.assert_in_sync();
    }

    #[test]
    fn w7_a_holder_that_always_needs_the_lease_gets_half_the_time(
        operations in 0..90_u8,
        hold in 0..40_u8,
        story in prop::collection::vec((0..4_000_u64, 0..POOLS, any::<u8>()), 300..400),
    ) {
        let mut world = World::new([0, 0], 0);
        world.happen(RandomEvent::Operations(operations));
        world.happen(RandomEvent::Other(hold, 0));
        world.run(world.now.plus(secs(300)));
        (world.ours_for, world.other.longest_wait, world.other.took) = (Duration::ZERO, Duration::ZERO, 0);
        let began = world.now;
        for (pause, number, bits) in story {
            world.happen(RandomEvent::Level(number, bits));
            world.run(world.now.plus(Duration::from_millis(pause)));
        }
        let all = world.now.since(began);
        prop_assert!(world.ours_for <= all / 2 + secs(30), "{:?} of {all:?}", world.ours_for);
        prop_assert!(world.other.longest_wait <= secs(62), "{:?}", world.other.longest_wait);
        prop_assert!(world.other.took > 2);
        world.come_to_rest();
        world.assert_in_sync();
    }
}

#[test]
fn w7_the_world_of_these_properties_writes_with_the_lease() {
    let mut world = World::new([0, 0], 0);
    world.happen(RandomEvent::Level(0, 0b110));
    world.happen(RandomEvent::Level(1, 0b110));
    world.run(world.now.plus(secs(5)));
    world.assert_in_sync();
    assert_eq!(world.puts, 2);
    let state = world.lease.clone().expect("it was made");
    assert_eq!((state.holder, state.previous.as_deref()), (None, Some(OURS)));
    assert_eq!(state.duration, secs(900));
}
