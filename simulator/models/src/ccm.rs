//! A deterministic, sans-IO model of upstream's cloud-controller-manager, as far as it interacts with this product:
//! it locks the shared Lease, reconciles load balancers, writes the same pools, and taints nodes that stop
//! (docs/design/surface.md, Z1).
//!
//! The model owns its queues, its caches and its lock protocol. It returns HTTP requests as plain data ([`Call`]) and
//! receives the answers. Its driver passes it the cluster's objects, keeps its time and chooses each Service's load
//! balancer. Upstream's known defects are kept. Time is a number of microseconds and must not go backwards.
//!
//! Not modelled: security groups, public IPs, private link, NIC-based pools, placement of Services, deletion of load
//! balancers that have become empty, dates in Retry-After, and client-go's own retries.

mod balancer;
mod call;
mod cluster;
mod facts;
mod job;
mod lifecycle;
mod locker;
mod operation;
mod pool;
mod reconcile;
mod recorder;
mod settings;
mod updater;
mod wall;
mod work;

use std::collections::BTreeMap;

use serde_json::Value;

pub use call::{Answer, Call, CallId, CallTarget, Verb};
pub use settings::Settings;

use crate::arm::random::Random;
use facts::{Facts, Key, Node, Service, Slice, key_of};
use job::Job;
use lifecycle::Lifecycle;
use operation::Gates;
use reconcile::{Cache, Purpose};
use recorder::{Recorder, Series};
use updater::Updater;
use work::Work;

/// Input of the model.
#[derive(Clone, Debug)]
pub enum In {
    /// A Service as the API server shows it, and its load balancer.
    Service {
        /// The whole object.
        object: Value,
        /// Name of its load balancer.
        load_balancer: String,
    },
    /// A Service no longer exists.
    ServiceGone {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// An EndpointSlice as the API server shows it.
    Slice(Value),
    /// An EndpointSlice no longer exists.
    SliceGone {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A node as the API server shows it.
    Node(Value),
    /// A node no longer exists.
    NodeGone {
        /// Its name.
        name: String,
    },
    /// State of a node's machine in the cloud. A machine without a reported state runs.
    Machine {
        /// The node's name.
        node: String,
        /// True if it is stopped.
        stopped: bool,
    },
    /// Result of a call.
    Answer(CallId, Answer),
}

/// Sums since the model began; crashes do not reset them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Locks acquired.
    pub holds: u64,
    /// Locks not acquired.
    pub lock_failures: u64,
    /// Number of times the model found another previous holder and dropped its caches.
    pub cache_rebuilds: u64,
    /// Successful reconciles.
    pub reconciled: u64,
    /// Reconciles that failed, because of the lock or Azure.
    pub failed: u64,
    /// Ticks of the updater that got the lock.
    pub drains: u64,
    /// Groups of changes that the updater dropped because Azure refused them.
    pub dropped: u64,
    /// Writes that the model began (PUT and DELETE, without retries).
    pub writes: u64,
    /// Crashes.
    pub deaths: u64,
    /// Answers to calls for which the model no longer waits.
    pub late_answers: u64,
}

/// Purpose of a call.
#[derive(Debug)]
enum CallPurpose {
    Lock,
    Azure,
    Event(Series),
    Status(Key),
    Finalizer(Key),
    Taints,
}

/// The modelled cloud-controller-manager.
#[derive(Debug)]
pub struct Ccm {
    settings: Settings,
    random: Random,
    facts: Facts,
    /// Load balancer with the rules of each Service. Survives a crash, as the rules do.
    placed: BTreeMap<Key, String>,
    work: Work,
    updater: Updater,
    cache: Cache,
    gates: Gates,
    recorder: Recorder,
    job: Option<Job>,
    flights: BTreeMap<CallId, CallPurpose>,
    calls: u64,
    lifecycle: Lifecycle,
    nodes_changed: bool,
    next_tick: u64,
    next_node_sync: u64,
    next_resync: Option<u64>,
    /// End of its downtime, while it is down.
    down_until: Option<u64>,
    counters: Counters,
    now: u64,
}

impl Ccm {
    /// Creates a cloud-controller-manager that starts at time 0 without facts.
    pub fn new(settings: Settings) -> Self {
        let mut ccm = Self {
            random: Random::new(settings.seed),
            facts: Facts::default(),
            placed: BTreeMap::new(),
            work: Work::default(),
            updater: Updater::default(),
            cache: Cache::new(),
            gates: Gates::default(),
            recorder: Recorder::default(),
            job: None,
            flights: BTreeMap::new(),
            calls: 0,
            lifecycle: Lifecycle::default(),
            nodes_changed: false,
            next_tick: 0,
            next_node_sync: 0,
            next_resync: None,
            down_until: None,
            counters: Counters::default(),
            now: 0,
            settings,
        };
        ccm.set_timers(0);
        ccm
    }

    /// Handles one input at `now_us`; appends its requests to `calls`.
    pub fn step(&mut self, now_us: u64, input: In, calls: &mut Vec<Call>) {
        self.now = self.now.max(now_us);
        self.let_time_pass(calls);
        match input {
            In::Service { object, load_balancer } => {
                if let Some(service) = Service::read(&object, &load_balancer) {
                    self.on_service(service, calls);
                }
            }
            In::ServiceGone { namespace, name } => self.on_service_gone(&key_of(&namespace, &name)),
            In::Slice(object) => self.on_slice(&object),
            In::SliceGone { namespace, name } => {
                // Upstream's DeleteFunc only removes the slice from the cache.
                self.facts.slices.remove(&key_of(&namespace, &name));
            }
            In::Node(object) => {
                let changed = Node::read(&object).is_some_and(|node| self.facts.node(node));
                self.nodes_changed |= changed;
                self.on_node(&object, calls);
            }
            In::NodeGone { name } => {
                self.nodes_changed |= self.facts.node_gone(&name);
                self.lifecycle.forget(&name);
            }
            In::Machine { node, stopped } => self.lifecycle.machine(node, stopped),
            In::Answer(id, answer) => self.on_answer(id, &answer, calls),
        }
        self.start_next(calls);
    }

    /// Returns the time of the next change without an input, in microseconds.
    pub fn deadline(&self) -> Option<u64> {
        if let Some(until) = self.down_until {
            return Some(until);
        }
        let own = match &self.job {
            Some(job) => job.wakes(),
            None => {
                let tick = self.settings.updater.then_some(self.next_tick);
                [tick, self.work.deadline()].into_iter().flatten().min()
            }
        };
        let timers = [own, Some(self.next_node_sync), self.next_resync, self.next_check()];
        timers.into_iter().flatten().min()
    }

    /// Advances time to `now_us`.
    pub fn tick(&mut self, now_us: u64, calls: &mut Vec<Call>) {
        self.now = self.now.max(now_us);
        self.let_time_pass(calls);
        self.start_next(calls);
    }

    /// Crashes the process: its queues, caches and calls are lost, while the Lease and Azure stay unchanged. After
    /// `down_us` it starts again with the known facts, which may change in the meantime.
    pub fn kill(&mut self, down_us: u64) {
        self.counters.deaths += 1;
        self.work = Work::default();
        self.updater = Updater::default();
        self.cache = Cache::new();
        self.gates = Gates::default();
        self.recorder = Recorder::default();
        self.job = None;
        self.flights.clear();
        self.facts.reload_addresses();
        self.down_until = Some(self.now.saturating_add(down_us));
    }

    /// Changes the settings while the model runs. The seed and the times of running timers stay unchanged.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.settings);
    }

    /// Returns whether the model has lost the node name of an address, although it knows the node. Until the model
    /// restarts or the node changes, it writes the address without a name, which Azure refuses.
    pub fn has_lost_names(&self) -> bool {
        self.facts.have_lost_names()
    }

    /// Returns whether the model holds the shared Lease, according to its own state.
    pub fn holds_lock(&self) -> bool {
        self.job.as_ref().is_some_and(Job::holds_lock)
    }

    /// Returns the path that the model writes in Azure, from the first try until the end of the operation.
    pub fn writing(&self) -> Option<&str> {
        self.job.as_ref().and_then(Job::writing)
    }

    /// Returns whether the model runs.
    pub fn is_up(&self) -> bool {
        self.down_until.is_none()
    }

    /// Returns whether the model runs, and has neither work, nor a queue, nor an open call.
    pub fn is_idle(&self) -> bool {
        let queued = !self.work.is_empty() || !self.updater.is_empty() && self.settings.updater;
        self.is_up() && self.job.is_none() && self.flights.is_empty() && !queued && !self.nodes_changed
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn set_timers(&mut self, now: u64) {
        let phase = self.random.next_u64() % self.settings.updater_interval_us.max(1);
        self.next_tick = now.saturating_add(phase.max(1));
        self.next_node_sync = now.saturating_add(self.settings.node_sync_us.max(1));
        self.next_resync = self.settings.resync_us.map(|every| now.saturating_add(every.max(1)));
        self.lifecycle.start(now);
    }

    /// Handles everything that is due, except a new job.
    fn let_time_pass(&mut self, calls: &mut Vec<Call>) {
        let now = self.now;
        if let Some(until) = self.down_until {
            if until > now {
                return;
            }
            self.down_until = None;
            self.set_timers(now);
            self.enqueue_all(Purpose::Ensure);
        }
        self.wake_job(calls);
        self.check_nodes(calls);
        if self.next_node_sync <= now {
            self.next_node_sync = now.saturating_add(self.settings.node_sync_us.max(1));
            if std::mem::take(&mut self.nodes_changed) {
                self.enqueue_all(Purpose::Update);
            }
        }
        if self.next_resync.is_some_and(|at| at <= now) {
            self.next_resync = self.settings.resync_us.map(|every| now.saturating_add(every.max(1)));
            self.enqueue_all(Purpose::Ensure);
        }
        self.work.mature(now);
    }

    fn enqueue_all(&mut self, purpose: Purpose) {
        for key in self.facts.services.keys() {
            // Only ensured Services are updated.
            let ensured = self.placed.contains_key(key);
            match purpose {
                Purpose::Update if !ensured => {}
                Purpose::Update | Purpose::Ensure | Purpose::Delete => self.work.add(key, purpose),
            }
        }
    }

    fn on_service(&mut self, service: Service, calls: &mut Vec<Call>) {
        let key = service.key();
        let before = self.facts.services.get(&key).cloned();
        if let Some(old) = before.as_ref().filter(|old| old.uid != service.uid) {
            // The Service was deleted and recreated without a finalizer: the old one is cleaned up separately.
            let ghost = format!("{key}#{}", old.uid);
            let balancer = self.placed.remove(&key).unwrap_or_else(|| old.balancer.clone());
            self.placed.insert(ghost.clone(), balancer);
            self.facts.services.insert(ghost.clone(), Service { gone: true, ..old.clone() });
            self.enqueue(&ghost, Purpose::Delete);
        }
        let acts = before.as_ref().is_none_or(|before| service.differs(before));
        if acts && !service.leaves() && !service.has_finalizer() {
            let mut finalizers = service.finalizers.clone();
            finalizers.push(facts::FINALIZER.to_owned());
            self.set_finalizers(&service, finalizers, calls);
        }
        self.facts.services.insert(key.clone(), service);
        if acts {
            self.enqueue(&key, Purpose::Ensure);
        }
    }

    fn on_service_gone(&mut self, key: &str) {
        let is_being_made = self.job.as_ref().is_some_and(|job| job.makes(key));
        let Some(service) = self.facts.services.get_mut(key) else { return };
        if is_being_made || self.placed.contains_key(key) {
            service.gone = true;
            self.enqueue(key, Purpose::Delete);
        } else {
            self.facts.services.remove(key);
        }
    }

    fn on_slice(&mut self, object: &Value) {
        let Some((key, slice)) = Slice::read(object) else { return };
        let before = self.facts.slices.insert(key, slice.clone());
        // A new slice is only stored; a changed one is compared only with its previous version.
        if let Some(before) = before.filter(|_| self.is_up() && self.settings.updater) {
            self.updater.slice_changed(&before, &slice, &self.facts);
        }
    }

    fn enqueue(&mut self, key: &str, purpose: Purpose) {
        if self.is_up() {
            self.work.add(key, purpose);
        }
    }
}
