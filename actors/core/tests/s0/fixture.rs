//! The test environment: pools, writer and emitter with the modelled ARM on one simulated clock.
//!
//! The fixture replaces the Directory (it makes the assignments), Discovery (it reads the load balancer of a missing
//! pool again) and both ports. Deliveries take no time unless a test delays them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::assignment::{Assignment, Observation, Share};
use model::ids::{AddressName, CallId, Epoch, Family, LbName, PoolId, PoolName, ServiceKey, ServiceUid};
use model::leadership::Leadership;
use model::level::{Level, Member, Provenance, Source};
use model::machine::{Machine, Now, earliest};
use model::report::Subject;
use model::sample::Metric;
use model::view::PoolView;
use pool_core::route::{ArmMessage, Delivery, KubernetesCall, Output, PoolMessage, route};
use pools::queue::{self, PoolQueue};
use pools::{directory, discovery};
use reporting::events::{self, Emitter, Event, Severity};
use reporting::snapshot;
use simulator_models::arm::{ArmModel, PoolSpec, Settings, VirtualNetwork};
use writer::Writer;

use crate::profile::{NETWORK, Profile};

#[path = "azure.rs"]
mod azure;
#[path = "lease.rs"]
mod lease;
#[path = "observation.rs"]
mod observation;

pub use lease::Locked;
pub use observation::Request;

/// Time from a missing pool to the read of its load balancer (D3).
const DISCOVERED_AFTER: u64 = 2_000_000;
/// Interval of the reads of every load balancer (D3).
const DISCOVERY_INTERVAL: u64 = 60_000_000;
/// Maximum number of steps at one time, which detects endless loops.
const MAX_AT_ONCE: usize = 10_000;

/// A simulated controller without its Informer, and its ARM.
pub struct Fixture {
    /// The configured profile.
    pub profile: Profile,
    /// The modelled ARM.
    pub model: ArmModel,
    now: u64,
    mark: u64,
    queue: queue::Params,
    pools: BTreeMap<PoolId, PoolQueue>,
    writer: Writer,
    lease: lease::SharedLease,
    emitter: Emitter,
    epoch: Epoch,
    opened: Now,
    /// Share of each Service in each pool.
    wanted: BTreeMap<PoolId, BTreeMap<String, Share>>,
    /// Deliveries in flight, by the time of their arrival.
    agenda: BTreeMap<(u64, u64), Delivery>,
    number: u64,
    next_round: u64,
    /// Delay of selected deliveries.
    held_up: Option<HeldUp>,
    gates: [Option<Now>; 2],
    events: Vec<(u64, String)>,
    samples: Vec<Metric>,
    views: BTreeMap<PoolId, Arc<PoolView>>,
}

/// Delay of the deliveries that a predicate selects.
struct HeldUp {
    picks: fn(&Delivery) -> bool,
    micros: u64,
}

/// Result of letting time pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    /// There was a step.
    Made,
    /// The selected delivery comes next.
    Stopped,
    /// There is no step until the end.
    Nothing,
}

/// Returns the pool of most cases.
pub fn web() -> PoolId {
    pool("lb", "shop-web")
}

pub fn pool(lb: &str, name: &str) -> PoolId {
    PoolId::new(LbName::new(lb), PoolName::new(name))
}

pub fn ip(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

fn rule(service: &str) -> String {
    format!("a{service}-TCP-80")
}

impl Fixture {
    /// Creates a fixture in which the pool `lb/shop-web` of the Service `web` holds member 1 and is in sync, and writes
    /// end immediately.
    pub fn new(profile: Profile) -> Fixture {
        Fixture::with(profile, 3, Settings::default())
    }

    /// Creates such a fixture with this retry budget and this ARM.
    pub fn with(profile: Profile, max_retries: u32, settings: Settings) -> Fixture {
        let mut fixture = Fixture {
            profile,
            model: ArmModel::new(settings),
            now: 1_000_000,
            mark: 0,
            queue: profile.queue(max_retries),
            pools: BTreeMap::new(),
            writer: Writer::new(profile.writer()),
            lease: lease::SharedLease::default(),
            emitter: Emitter::new(events::Params { capacity: 1_000, per_second: 10, burst: 100 }),
            epoch: Epoch(1),
            opened: Now::ZERO,
            wanted: BTreeMap::new(),
            agenda: BTreeMap::new(),
            number: 0,
            next_round: DISCOVERY_INTERVAL,
            held_up: None,
            gates: [None, None],
            events: Vec::new(),
            samples: Vec::new(),
            views: BTreeMap::new(),
        };
        let (term, policy) = (Some(Epoch(u64::MAX)), Arc::default());
        fixture.deliver(Delivery::Writer(writer::In::OperatorPolicy { term, policy: Arc::clone(&policy) }));
        fixture.deliver(Delivery::Events(events::In::OperatorPolicy { term, policy }));
        fixture.set_standing(Leadership::Leading { epoch: Epoch(1), until: Now::NEVER });
        fixture.open(&web(), "web");
        fixture.forget();
        fixture
    }

    /// Adds to Azure this pool with member 1 and the rule of one Service, which requires that member.
    pub fn open(&mut self, pool: &PoolId, service: &str) {
        let spec = PoolSpec {
            virtual_network: VirtualNetwork::Pool(NETWORK.to_owned()),
            members: vec![("node-1".to_owned(), ip(1).to_string())],
            ..PoolSpec::default()
        };
        self.model.add_pool(pool.lb.as_str(), pool.pool.as_str(), &spec);
        self.require_members(pool, service, &[1]);
        self.discover(&pool.lb, 0);
        self.run(100);
        assert_eq!(self.view(pool).state.as_str(), "in_sync", "the pool begins in sync");
    }

    // Changes in the cluster.

    /// Makes a Service require these members in `lb/shop-web`.
    pub fn want(&mut self, service: &str, members: &[u8]) {
        self.require_members(&web(), service, members);
    }

    /// Makes a Service require these members in a pool.
    pub fn require_members(&mut self, pool: &PoolId, service: &str, members: &[u8]) {
        self.model.add_rule(pool.lb.as_str(), &rule(service), pool.pool.as_str(), true);
        let share = Share {
            key: ServiceKey::new("shop", service),
            revision: self.number,
            required: members.iter().map(|n| ip(*n)).collect(),
            tolerated: BTreeSet::new(),
            triggered: None,
            read: None,
        };
        self.wanted.entry(pool.clone()).or_default().insert(service.to_owned(), share);
        self.assign(pool);
    }

    /// Delivers a slice event of a Service without a change of members.
    pub fn slice_event(&mut self, service: &str) {
        let share = self.wanted.get_mut(&web()).and_then(|shares| shares.get_mut(service));
        share.expect("it is there").revision += 1;
        self.assign(&web());
    }

    /// Deletes a Service, or moves it from a pool to another one.
    pub fn leave(&mut self, pool: &PoolId, service: &str) {
        self.remove_rule(pool, service);
        self.depart(pool, service);
    }

    /// Removes the rule of a Service, as the cloud-controller-manager does. The load balancer's entity tag changes.
    pub fn remove_rule(&mut self, pool: &PoolId, service: &str) {
        self.model.remove_rule(pool.lb.as_str(), &rule(service));
    }

    /// Delivers the deletion of a Service, whose rule still exists, to the Directory.
    pub fn depart(&mut self, pool: &PoolId, service: &str) {
        self.wanted.entry(pool.clone()).or_default().remove(service);
        self.assign(pool);
    }

    /// Moves a Service from `lb/shop-web` to a pool on another load balancer, with member 1.
    pub fn move_to(&mut self, to: &PoolId, service: &str) {
        let share = self.wanted.get(&web()).and_then(|shares| shares.get(service)).cloned();
        let required = share.expect("it is there").required;
        let members: Vec<u8> = (1..=9).filter(|n| required.contains(&ip(*n))).collect();
        self.leave(&web(), service);
        let spec = PoolSpec {
            virtual_network: VirtualNetwork::Pool(NETWORK.to_owned()),
            members: vec![("node-1".to_owned(), ip(1).to_string())],
            ..PoolSpec::default()
        };
        self.model.add_pool(to.lb.as_str(), to.pool.as_str(), &spec);
        self.require_members(to, service, &members);
        self.discover(&to.lb, 0);
    }

    /// Sends the assignment. It overtakes other deliveries to the pool, because it has its own edge.
    fn assign(&mut self, pool: &PoolId) {
        let shares = self.wanted.get(pool).cloned().unwrap_or_default();
        let mut level = Level::default();
        for share in shares.values() {
            let member = |ip: &IpAddr| (*ip, Member { name: name_of(ip), node_ready: true });
            let required = share.required.iter().map(member).collect();
            level.unite(&Level { required, tolerated: BTreeSet::new(), ..Level::default() });
        }
        let assignment = Assignment {
            epoch: self.epoch,
            opened: self.opened,
            pool: pool.clone(),
            family: Family::V4,
            source: Source::Kubernetes,
            services: shares.into_iter().map(|(name, share)| (ServiceUid::new(name), share)).collect(),
            level,
            provenance: Provenance::Watch,
            paused: BTreeSet::new(),
            held: None,
            would_hold: None,
            overruled: None,
        };
        let input = queue::In::Assigned(Arc::new(assignment));
        self.deliver(Delivery::Pool(pool.clone(), PoolMessage::In(input)));
    }

    /// Reports the leadership state of this process, as the Leader does.
    pub fn set_standing(&mut self, leadership: Leadership) {
        self.deliver(Delivery::Writer(writer::In::Leadership(leadership)));
        self.deliver(Delivery::Events(events::In::Leadership(leadership)));
    }

    /// Starts a new term: every assignment is repeated, every load balancer is read, and then this process leads.
    pub fn new_term(&mut self) {
        self.epoch.0 += 1;
        self.opened = Now::from_micros(self.now);
        let pools: Vec<PoolId> = self.wanted.keys().cloned().collect();
        for pool in pools {
            self.assign(&pool);
            self.discover(&pool.lb, 1_000);
        }
        let leadership = Leadership::Leading { epoch: self.epoch, until: Now::NEVER };
        self.push(self.now + 500, Delivery::Writer(writer::In::Leadership(leadership)));
        self.push(self.now + 500, Delivery::Events(events::In::Leadership(leadership)));
    }

    /// Shuts the process down.
    pub fn shut_down(&mut self) {
        self.deliver(Delivery::Writer(writer::In::Shutdown));
    }

    /// Returns the current term.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Lets Discovery read a load balancer after this many microseconds (D3).
    pub fn discover(&mut self, lb: &LbName, after: u64) {
        self.number += 1;
        let call = CallId(self.number);
        let read = writer::In::Read { call, lb: lb.clone() };
        self.push(self.now + after, Delivery::Writer(read));
    }

    /// Delays each delivery that the predicate selects by this many milliseconds; replaces the last call.
    pub fn hold_up(&mut self, picks: fn(&Delivery) -> bool, ms: u64) {
        self.held_up = (ms > 0).then_some(HeldUp { picks, micros: ms * 1_000 });
    }

    // The clock.

    /// Sets the origin of times to this many milliseconds from now.
    pub fn mark(&mut self, ms: u64) {
        self.mark = self.now + ms * 1_000;
    }

    /// Returns the milliseconds since the mark.
    pub fn ms(&self) -> i64 {
        self.since_mark(self.now)
    }

    /// Returns when `lb/shop-web` is next eligible, in milliseconds since the mark.
    pub fn next_at(&self) -> Option<i64> {
        self.view(&web()).blocked?.until.map(|at| self.since_mark(at.as_micros()))
    }

    fn since_mark(&self, at: u64) -> i64 {
        let micros = i64::try_from(at).expect("short") - i64::try_from(self.mark).expect("short");
        micros.div_euclid(1_000)
    }

    /// Advances by this many milliseconds.
    pub fn run(&mut self, ms: u64) {
        let end = self.now + ms * 1_000;
        while self.step_until(end, |_| false) == Progress::Made {}
        self.now = end;
    }

    /// Advances to this many milliseconds after the mark.
    pub fn at(&mut self, ms: i64) {
        let behind = ms - self.ms();
        self.run(u64::try_from(behind).expect("the clock runs forward"));
    }

    /// Stops before the next delivery that the predicate selects, within a quarter of an hour.
    pub fn stop_before(&mut self, picks: impl Fn(&Delivery) -> bool) {
        let end = self.now + 900_000_000;
        loop {
            match self.step_until(end, &picks) {
                Progress::Made => {}
                Progress::Stopped => return,
                Progress::Nothing => panic!("the delivery never comes"),
            }
        }
    }

    /// Handles all deliveries at the next time up to `end`. Stops before a selected delivery.
    fn step_until(&mut self, end: u64, picks: impl Fn(&Delivery) -> bool) -> Progress {
        let mut began = None;
        for _ in 0..MAX_AT_ONCE {
            let deadline = self.deadline().map(|at| at.as_micros().max(self.now));
            let arrival = self.agenda.first_key_value().map(|((at, _), _)| *at);
            let next = deadline.into_iter().chain(arrival).min();
            let Some(next) = next.filter(|at| *at <= end) else {
                return if began.is_some() { Progress::Made } else { Progress::Nothing };
            };
            if began.is_some_and(|began| began < next) {
                return Progress::Made;
            }
            began = Some(next);
            self.now = next;
            if arrival != Some(next) {
                self.tick();
            } else if self.agenda.first_key_value().is_some_and(|(_, delivery)| picks(delivery)) {
                return Progress::Stopped;
            } else if let Some((_, delivery)) = self.agenda.pop_first() {
                self.deliver(delivery);
            }
        }
        panic!("endless loop at {} ms", self.ms());
    }

    fn deadline(&self) -> Option<Now> {
        let pools = self.pools.values().filter_map(Machine::deadline).min();
        let round = Some(Now::from_micros(self.next_round));
        earliest(earliest(pools, round), earliest(self.writer.deadline(), self.emitter.deadline()))
    }

    fn tick(&mut self) {
        let now = Now::from_micros(self.now);
        if self.next_round <= self.now {
            self.next_round += DISCOVERY_INTERVAL;
            let lbs: BTreeSet<LbName> = self.wanted.keys().map(|pool| pool.lb.clone()).collect();
            lbs.iter().enumerate().for_each(|(n, lb)| self.discover(lb, n as u64 * 1_000_000));
        }
        let mut outputs = Vec::new();
        for queue in self.pools.values_mut().filter(|queue| queue.deadline().is_some_and(|at| at <= now)) {
            let mut out = Vec::new();
            queue.tick(now, &mut out);
            outputs.extend(out.into_iter().map(Output::Pool));
        }
        if self.writer.deadline().is_some_and(|at| at <= now) {
            let mut out = Vec::new();
            self.writer.tick(now, &mut out);
            outputs.extend(out.into_iter().map(Output::Writer));
        }
        if self.emitter.deadline().is_some_and(|at| at <= now) {
            let mut out = Vec::new();
            self.emitter.tick(now, &mut out);
            outputs.extend(out.into_iter().map(Output::Events));
        }
        self.handle(outputs);
    }

    // Deliveries.

    fn handle(&mut self, outputs: Vec<Output>) {
        let mut deliveries = Vec::new();
        for outputs in outputs {
            route(outputs, &mut |delivery| deliveries.push(delivery));
        }
        for delivery in deliveries {
            // A delivery that is only observed takes no time.
            if let Delivery::Snapshot(snapshot::In::Pool(view)) = delivery {
                self.views.insert(view.pool.clone(), view);
                continue;
            }
            let slow = self.held_up.as_ref().filter(|slow| (slow.picks)(&delivery));
            let delay = slow.map_or(0, |slow| slow.micros);
            self.push(self.now + delay, delivery);
        }
    }

    fn push(&mut self, at: u64, delivery: Delivery) {
        self.number += 1;
        self.agenda.insert((at, self.number), delivery);
    }

    fn deliver(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Pool(pool, PoolMessage::In(input)) => {
                let params = self.queue.clone();
                let queue = self.pools.entry(pool.clone()).or_insert_with(|| PoolQueue::new(pool, params));
                let outputs = step(queue, self.now, input, Output::Pool);
                self.handle(outputs);
            }
            Delivery::Pool(pool, PoolMessage::Forget) => {
                self.pools.remove(&pool);
            }
            Delivery::Writer(input) => {
                let outputs = step(&mut self.writer, self.now, input, Output::Writer);
                assert_eq!(self.writer.check(), Ok(()));
                self.handle(outputs);
            }
            Delivery::Events(input) => {
                let outputs = step(&mut self.emitter, self.now, input, Output::Events);
                self.handle(outputs);
            }
            Delivery::Arm(ArmMessage::Call(call)) => self.call(&call),
            Delivery::Arm(ArmMessage::Gates { reads_until, writes_until }) => {
                self.gates = [reads_until, writes_until];
            }
            Delivery::Kubernetes(KubernetesCall::Post { call, event }) => self.post(call, &event),
            Delivery::Kubernetes(KubernetesCall::Lease { call, request, .. }) => self.lease(call, &request),
            Delivery::Kubernetes(KubernetesCall::CountLockFailures { call, .. }) => {
                self.push(self.now, Delivery::Writer(writer::In::LockFailures(call, Some(0))));
            }
            Delivery::Metrics(sample) => self.samples.push(sample),
            Delivery::Discovery(discovery::In::Missing(pool)) => self.discover(&pool.lb, DISCOVERED_AFTER),
            Delivery::Discovery(discovery::In::Read { began, result: Ok(Some(facts)), .. }) => {
                for facts in &facts.pools {
                    if self.wanted.contains_key(&facts.id) {
                        let observation = Observation { began, facts: Arc::clone(facts) };
                        self.deliver(Delivery::Pool(
                            facts.id.clone(),
                            PoolMessage::In(queue::In::Observed(observation)),
                        ));
                    }
                }
            }
            Delivery::Directory(directory::In::Retired(pool)) => {
                if self.wanted.get(&pool).is_none_or(BTreeMap::is_empty) {
                    self.wanted.remove(&pool);
                    self.deliver(Delivery::Pool(pool, PoolMessage::Forget));
                }
            }
            Delivery::Discovery(_)
            | Delivery::Directory(_)
            | Delivery::Snapshot(_)
            | Delivery::XdsSource(_)
            | Delivery::Xds(_)
            | Delivery::Watcher(..)
            | Delivery::Informer(_)
            | Delivery::Leader(_)
            | Delivery::AdminState(_)
            | Delivery::Pauses(_)
            | Delivery::Kubernetes(_)
            | Delivery::Host(_) => {}
        }
    }

    fn post(&mut self, call: CallId, event: &Event) {
        let Subject::Service(service) = &event.subject else {
            panic!("an event about another object: {event:?}");
        };
        let severity = match event.severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        };
        // S0 defines how an update message starts; names, trigger and correlation id follow.
        let updated = event.reason == "LoadBalancerBackendPoolUpdated";
        let message = if updated { event.message.split_inclusive(')').next() } else { None };
        let message = message.unwrap_or(&event.message);
        let text = format!("{} {severity} {}: {message}", service.key.name, event.reason);
        self.events.push((self.now, text));
        let answer = Ok(Arc::from(format!("event-{}", call.0)));
        self.push(self.now, Delivery::Events(events::In::Posted { call, answer }));
    }
}

fn name_of(ip: &IpAddr) -> AddressName {
    AddressName::new(format!("node-{}", ip.to_string().rsplit('.').next().unwrap_or_default()))
}

fn step<M: Machine>(machine: &mut M, now: u64, input: M::In, wrap: fn(M::Out) -> Output) -> Vec<Output> {
    let mut out = Vec::new();
    machine.step(Now::from_micros(now), input, &mut out);
    out.into_iter().map(wrap).collect()
}
