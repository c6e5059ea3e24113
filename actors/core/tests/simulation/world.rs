//! The world: one simulated clock, the processes of the controller, the modelled ARM and API server, and what
//! happens to them. One seed decides everything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pool_core::arm::ArmAnswer;
use pool_core::events::PostFailure;
use pool_core::ids::{CallId, LbName, NetworkId};
use pool_core::informer::{Counts, Selector};
use pool_core::machine::Now;
use pool_core::object::Kind;
use pool_core::route::{ArmMessage, Delivery, HostMessage, PoolMessage};
use pool_core::view::Snapshot;
use pool_core::{directory, discovery, events, informer, queue, writer};
use simulator_models::arm::ArmModel;
use simulator_models::kube::{self, KubeModel};

use crate::azure::ArmPort;
use crate::ccm::{self, Ccm};
use crate::kubernetes::{self, Effect, KubernetesPort, Step};
use crate::plant::{Plant, Saboteur};
use crate::random::Random;
use crate::replica::{Actor, EdgeId, Params, Replica, routed};
use crate::story::{Size, Story};
use crate::trace::{Entry, Trace};
use crate::watchdog::{Watchdog, is_telling};
use crate::weather;

/// How long after a fault of the API server ends the controller must see everything again.
const SIGHT_US: u64 = 90_000_000;
/// G2, in microseconds.
const EMPTY_CONFIRM_US: u64 = 60_000_000;

/// What happens at a moment.
enum Happening {
    /// A batch arrives at the end of an edge.
    Arrive(usize, EdgeId),
    /// A machine's timer goes off.
    Timer(usize, Actor, Now),
    /// The kubernetes port goes on with a request.
    Kube(usize, Kind, CallId, Step),
    /// The answer to a post.
    Posted(usize, CallId, Option<PostFailure>),
    /// The answer of ARM to a call.
    Answered(usize, CallId, ArmAnswer),
    /// Something happens in the cluster.
    Story,
    /// The cloud-controller-manager takes a step.
    Ccm,
    /// The weather of ARM changes.
    ArmWeather,
    /// The weather of the API server changes.
    KubeWeather,
    /// The controller sees everything again, unless there was another fault.
    Sight(u64),
}

/// One process with its ports.
pub struct Process {
    /// Its machines.
    pub replica: Replica,
    /// Its port to Kubernetes.
    pub kubernetes: KubernetesPort,
    /// Its port to ARM.
    pub azure: ArmPort,
    /// What it last published.
    pub snapshot: Option<Arc<Snapshot>>,
}

/// The world.
pub struct World {
    now: u64,
    happened: u64,
    calendar: BTreeMap<(u64, u64), Happening>,
    delays: Random,
    /// In how many of a thousand cases a batch is slow on its edge.
    slow_edges: u64,
    weather: Random,
    /// The modelled API server.
    pub kube: KubeModel,
    kube_seen: u64,
    /// The modelled ARM.
    pub arm: ArmModel,
    /// The processes; leases will make more than one of them worth having.
    pub processes: Vec<Process>,
    /// The cluster and its story.
    pub story: Story,
    /// The cloud-controller-manager.
    pub ccm: Ccm,
    /// The judge.
    pub watchdog: Watchdog,
    saboteur: Saboteur,
    faults: u64,
    stormy: bool,
    /// Whether ARM has weather at all in this world.
    arm_weather: bool,
    /// Whether the API server has.
    kube_weather: bool,
    trace: Trace,
}

fn params(plant: Option<Plant>, balancers: usize) -> Params {
    let seconds = Duration::from_secs;
    let guarded = plant != Some(Plant::GuardOff);
    Params {
        informer: informer::Params {
            counts: Counts::Hosted,
            multi_slb: true,
            namespaces: std::collections::BTreeSet::new(),
            selector: Selector::default(),
            last_known_for: seconds(300),
        },
        discovery: discovery::Params {
            load_balancers: (0..balancers).map(|number| LbName::new(ccm::balancer(number))).collect(),
            interval: seconds(60),
        },
        directory: directory::Params {
            removal_delay: seconds(if guarded { 30 } else { 0 }),
            empty_confirm: seconds(if guarded { EMPTY_CONFIRM_US / 1_000_000 } else { 0 }),
            cluster_name: Arc::from("kubernetes"),
        },
        queue: queue::Params {
            quiet_period: Duration::from_millis(500),
            max_delay: seconds(2),
            min_interval: seconds(5),
            retry_interval: seconds(30),
            max_retries: 3,
            after_failure: Some(seconds(60)),
        },
        writer: writer::Params {
            turns: 64,
            if_match: true,
            etag_rounds: 3,
            client_retries: 3,
            writes_per_5_minutes: 500,
            reads_per_5_minutes: 5_000,
            network: Some(NetworkId::new(ccm::NETWORK)),
        },
        events: events::Params { capacity: 1_000, per_second: 10, burst: 100 },
    }
}

impl World {
    /// The world of this seed and size, with a planted bug or none.
    pub fn new(seed: u64, size: Size, plant: Option<Plant>) -> World {
        let mut random = Random::new(seed);
        let climate = weather::climate(&mut random.fork());
        let mut arm = ArmModel::new(climate);
        let ccm = Ccm::new(size.balancers, random.fork());
        ccm.begin(&mut arm);
        let settings = kube::Settings { seed, ..kube::Settings::default() };
        let process = Process {
            replica: Replica::new(params(plant, size.balancers)),
            kubernetes: KubernetesPort::new(random.fork(), plant),
            azure: ArmPort::new(random.fork(), plant),
            snapshot: None,
        };
        World {
            now: 0,
            happened: 0,
            calendar: BTreeMap::new(),
            delays: random.fork(),
            slow_edges: if random.per_mille(250) { 200 } else { 10 },
            weather: random.fork(),
            kube: KubeModel::new(settings),
            kube_seen: 0,
            arm,
            processes: vec![process],
            story: Story::new(size, random.fork()),
            ccm,
            watchdog: Watchdog::new(EMPTY_CONFIRM_US),
            saboteur: Saboteur::new(plant, random.fork()),
            faults: 0,
            stormy: true,
            arm_weather: random.per_mille(800),
            kube_weather: random.per_mille(650),
            trace: Trace::new(),
        }
    }

    /// The moment, in microseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// How many things have happened.
    pub fn happened(&self) -> u64 {
        self.happened
    }

    fn at(&mut self, time: u64, happening: Happening) {
        self.happened += 1;
        self.calendar.insert((time.max(self.now), self.happened), happening);
    }

    fn note(&mut self, words: String) {
        self.trace.note(self.now, Entry::Words(words));
    }

    /// The last messages, oldest first.
    pub fn trace(&self) -> String {
        self.trace.text()
    }

    /// The first state of the cluster, and the first words to the machines.
    ///
    /// # Errors
    /// What the watchdog finds.
    pub fn begin(&mut self) -> Result<(), String> {
        self.story.begin(&mut self.kube);
        self.watchdog.note(0, &self.story.cluster);
        for happening in [Happening::Story, Happening::Ccm, Happening::ArmWeather, Happening::KubeWeather] {
            let at = self.delays.between(0, 5_000_000);
            self.at(at, happening);
        }
        self.ccm.meddles = 120;
        for process in 0..self.processes.len() {
            for (actor, delivery) in Replica::first_words() {
                self.turn(process, &actor, vec![delivery])?;
            }
        }
        Ok(())
    }

    /// The churn and all faults end.
    pub fn calm(&mut self) {
        self.stormy = false;
        self.ccm.meddles = 0;
        self.story.settle(&mut self.kube, self.now);
        self.watchdog.note(self.now, &self.story.cluster);
        for process in &mut self.processes {
            weather::clear_kube(&mut self.kube, &mut process.kubernetes);
            weather::clear_arm(&mut self.arm, &mut process.azure);
        }
        if self.weather.per_mille(400) {
            // The last fault of all: nobody remembers anything, everything is listed once more.
            self.kube.restart();
        }
        self.note("calm".to_owned());
    }

    /// Lets time pass up to this moment.
    ///
    /// # Errors
    /// What the watchdog finds.
    pub fn run_until(&mut self, end: u64) -> Result<(), String> {
        while let Some((&(at, number), _)) = self.calendar.first_key_value().filter(|((at, _), _)| *at <= end)
        {
            self.now = at;
            let Some(happening) = self.calendar.remove(&(at, number)) else { break };
            self.happen(happening)?;
            if self.kube.revision() != self.kube_seen {
                self.kube_seen = self.kube.revision();
                for process in 0..self.processes.len() {
                    let effects = self.processes[process].kubernetes.wake(&self.kube, self.now);
                    self.follow(process, effects);
                }
            }
            if number % 100 == 0 {
                self.check()?;
            }
        }
        self.now = end;
        self.arm.tick(end);
        self.check()
    }

    fn check(&self) -> Result<(), String> {
        for process in &self.processes {
            process.replica.check()?;
        }
        self.watchdog.takes_answered(self.now)?;
        match self.ccm.unplanted(&self.arm) {
            Some(pool) => Err(format!("W3: unknown fields of {pool:?} are gone")),
            None => Ok(()),
        }
    }

    fn happen(&mut self, happening: Happening) -> Result<(), String> {
        let now = self.now;
        match happening {
            Happening::Arrive(process, edge) => self.arrive(process, &edge)?,
            Happening::Timer(process, actor, at) => {
                if self.processes[process].replica.armed.get(&actor) == Some(&at) {
                    self.processes[process].replica.armed.remove(&actor);
                    self.turn(process, &actor, Vec::new())?;
                }
            }
            Happening::Kube(process, kind, call, step) => {
                let effects = self.processes[process].kubernetes.step(&mut self.kube, now, kind, call, step);
                self.follow(process, effects);
            }
            Happening::Posted(process, call, failure) => {
                self.turn(process, &Actor::Events, vec![kubernetes::posted(call, failure)])?;
            }
            Happening::Answered(process, call, answer) => {
                let delivery = Delivery::Writer(writer::In::Answered(call, answer));
                self.turn(process, &Actor::Writer, vec![delivery])?;
            }
            Happening::Story if self.stormy => {
                let words = self.story.happen(&mut self.kube, now);
                self.watchdog.note(now, &self.story.cluster);
                self.note(format!("story: {words}"));
                let pause = self.story.pause();
                self.at(now + pause, Happening::Story);
            }
            Happening::Ccm => {
                let words = self.ccm.step(&mut self.arm, &mut self.kube, &mut self.story.cluster, now);
                self.watchdog.note(now, &self.story.cluster);
                if !words.is_empty() {
                    self.note(format!("ccm: {words}"));
                }
                let pause = self.ccm.pause();
                self.at(now + pause, Happening::Ccm);
            }
            Happening::ArmWeather if self.stormy && self.arm_weather => {
                let process = self.weather.place(self.processes.len());
                let port = &mut self.processes[process].azure;
                let words = weather::change_arm(&mut self.weather, &mut self.arm, port);
                self.note(format!("weather: {words}"));
                let pause = self.weather.between(5_000_000, 40_000_000);
                self.at(now + pause, Happening::ArmWeather);
            }
            Happening::KubeWeather if self.stormy && self.kube_weather => self.kube_weather(),
            Happening::Story | Happening::ArmWeather | Happening::KubeWeather => {}
            Happening::Sight(faults) => {
                if faults == self.faults {
                    self.watchdog.blind(now, false);
                }
            }
        }
        Ok(())
    }

    fn kube_weather(&mut self) {
        let now = self.now;
        let process = self.weather.place(self.processes.len());
        for other in &mut self.processes {
            weather::clear_kube(&mut self.kube, &mut other.kubernetes);
        }
        let port = &mut self.processes[process].kubernetes;
        let (words, blind, effects) = weather::change_kube(&mut self.weather, &mut self.kube, port, now);
        self.follow(process, effects);
        let pause = self.weather.between(10_000_000, 60_000_000);
        if blind {
            self.faults += 1;
            self.watchdog.blind(now, true);
            // The next weather clears this one.
            self.at(now + pause + SIGHT_US, Happening::Sight(self.faults));
        }
        self.note(format!("weather: {words}"));
        self.at(now + pause, Happening::KubeWeather);
    }

    fn follow(&mut self, process: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Tell(delivery) => {
                    let from = Actor::KubernetesPort;
                    let (edge, _) = self.processes[process].replica.push(&from, delivery);
                    self.depart(process, edge);
                }
                Effect::Later(at, kind, call, step) => {
                    self.at(at, Happening::Kube(process, kind, call, step))
                }
                Effect::Posted(at, call, failure) => self.at(at, Happening::Posted(process, call, failure)),
            }
        }
    }

    fn depart(&mut self, process: usize, edge: EdgeId) {
        if self.processes[process].replica.depart(&edge) {
            let slow = self.delays.per_mille(self.slow_edges);
            let delay =
                if slow { self.delays.between(5_000, 200_000) } else { self.delays.between(0, 5_000) };
            self.at(self.now + delay, Happening::Arrive(process, edge));
        }
    }

    fn arrive(&mut self, process: usize, edge: &EdgeId) -> Result<(), String> {
        let batch = self.processes[process].replica.arrive(edge);
        match &edge.1 {
            Actor::Registry => self.at_registry(process, batch)?,
            Actor::KubernetesPort => {
                for delivery in batch {
                    if let Delivery::Kubernetes(call) = delivery {
                        let port = &mut self.processes[process].kubernetes;
                        let effects = port.call(&mut self.kube, self.now, call);
                        self.follow(process, effects);
                    }
                }
            }
            Actor::ArmPort => self.at_arm(process, batch)?,
            Actor::Metrics => {
                for delivery in &batch {
                    if let Delivery::Metrics(sample) = delivery {
                        self.watchdog.on_metric(sample);
                    }
                }
            }
            Actor::Host => {
                for delivery in batch {
                    if let Delivery::Host(HostMessage::Publish(snapshot)) = delivery {
                        self.processes[process].snapshot = Some(snapshot);
                    }
                }
            }
            Actor::Watcher(_)
            | Actor::Informer
            | Actor::Discovery
            | Actor::Directory
            | Actor::Pool(..)
            | Actor::Writer
            | Actor::Events
            | Actor::Board => self.turn(process, &edge.1, batch)?,
        }
        self.depart(process, edge.clone());
        Ok(())
    }

    fn at_registry(&mut self, process: usize, batch: Vec<Delivery>) -> Result<(), String> {
        for delivery in batch {
            let Delivery::Pool(pool, message) = delivery else { continue };
            let replica = &mut self.processes[process].replica;
            match message {
                PoolMessage::Forget => {
                    if let Some((actor, last)) = replica.under_way_to(&pool) {
                        self.turn(process, &actor, last)?;
                    }
                    self.note(format!("forget {pool}"));
                    self.processes[process].replica.forget(&pool);
                }
                PoolMessage::In(input) => {
                    if let Some(actor) = replica.start(&pool, &input) {
                        let delivery = Delivery::Pool(pool, PoolMessage::In(input));
                        let (edge, _) = replica.push_to(&Actor::Registry, actor, delivery);
                        self.depart(process, edge);
                    }
                }
            }
        }
        Ok(())
    }

    fn at_arm(&mut self, process: usize, batch: Vec<Delivery>) -> Result<(), String> {
        for delivery in batch {
            let Delivery::Arm(message) = delivery else { continue };
            let port = &mut self.processes[process].azure;
            match message {
                ArmMessage::Gates { reads_until, writes_until } => port.set_gates(reads_until, writes_until),
                ArmMessage::Call(call) => {
                    let answers = port.call(&mut self.arm, &mut self.watchdog, self.now, &call)?;
                    for (at, id, answer) in answers {
                        let entry = Entry::Called(Box::new(call.clone()), at, Box::new(answer.clone()));
                        self.trace.note(self.now, entry);
                        self.at(at, Happening::Answered(process, id, answer));
                    }
                }
            }
        }
        Ok(())
    }

    /// One turn of a machine, and what follows from it.
    fn turn(&mut self, process: usize, who: &Actor, batch: Vec<Delivery>) -> Result<(), String> {
        let now = Now::from_micros(self.now);
        let turn = self.processes[process].replica.turn(now, who, batch);
        let bound = 200 + 20 * (self.story.cluster.services.len() + self.story.cluster.nodes.len());
        let mut touched = Vec::new();
        for (input, said) in turn.steps {
            self.watchdog.on_step(self.now, who, input.as_ref(), &said)?;
            if let Some(input) = input.filter(is_telling) {
                self.trace.note(self.now, Entry::Heard(who.clone(), Box::new(input)));
            }
            for delivery in said.into_iter().flat_map(routed) {
                for delivery in self.saboteur.pass(delivery) {
                    let (edge, waiting) = self.processes[process].replica.push(who, delivery);
                    if waiting > bound {
                        return Err(format!("A3: {waiting} deliveries wait on {edge:?}"));
                    }
                    if touched.last() != Some(&edge) {
                        touched.push(edge);
                    }
                }
            }
        }
        for edge in touched {
            self.depart(process, edge);
        }
        self.rearm(process, who, turn.deadline);
        Ok(())
    }

    fn rearm(&mut self, process: usize, who: &Actor, deadline: Option<Now>) {
        let armed = &mut self.processes[process].replica.armed;
        if armed.get(who) == deadline.as_ref() {
            return;
        }
        let Some(at) = deadline else {
            armed.remove(who);
            return;
        };
        armed.insert(who.clone(), at);
        let late =
            if self.delays.per_mille(30) { self.delays.below(20_000) } else { self.delays.below(1_000) };
        let due = at.as_micros().max(self.now) + late;
        self.at(due, Happening::Timer(process, who.clone(), at));
    }
}
