//! The state of a run: one time, the processes of the controller with their own clocks, the modelled ARM and API
//! server, the cloud-controller-manager, and the events that affect them. One seed determines everything.

#[path = "world/balancers.rs"]
mod balancers;
#[path = "world/course.rs"]
mod course;
#[path = "world/edges.rs"]
mod edges;
#[path = "world/faults.rs"]
mod faults;
#[path = "world/nodes.rs"]
mod nodes;
#[path = "world/operators.rs"]
mod operators;
#[path = "world/planes.rs"]
mod planes;
#[path = "world/policy.rs"]
mod policy;
#[path = "world/ports.rs"]
mod ports;
#[path = "world/restores.rs"]
mod restores;
#[path = "world/well.rs"]
mod well;

use std::collections::BTreeMap;

use model::arm::{ArmAnswer, ArmCall};
use model::config_map::ConfigMapRequester;
use model::ids::CallId;
use model::lease::LeaseName;
use model::machine::Now;
use model::object::{Kind, TaintPatch};
use pool_core::route::Delivery;

use model::xds::stream::{StreamId, XdsRequest};
use simulator_models::arm::{ArmModel, Latency};
use simulator_models::ccm::{Answer, CallId as CcmCall};
use simulator_models::kube::{self, KubeModel};

use crate::azure::{Sent, Throttled};
use crate::ccm::{self, Ccm};
use crate::fault_injection;
use crate::kubernetes::{Effect, Step};
use crate::leases::{Fate, LeaseStep};
use crate::notes::NotesStep;
use crate::planes::Planes;
use crate::plant::{Plant, Saboteur};
use crate::process::{EMPTY_CONFIRM_US, Process, ProcessState, Settings};
use crate::random::Random;
use crate::replica::{Actor, EdgeId};
use crate::story::{Often, Size, Story};
use crate::trace::{Entry, Trace};
use crate::watchdog::Watchdog;
use crate::xds_port::XdsStep;

/// A timed event.
enum WorldEvent {
    /// An event within a process.
    Of(usize, ProcessEvent),
    /// A request about a Lease reaches the API server, or its answer the port.
    Lease(usize, LeaseName, CallId, LeaseStep),
    /// A request about the controller's ConfigMap reaches the API server, or its answer the port.
    Notes(usize, ConfigMapRequester, CallId, NotesStep),
    /// A request reaches ARM.
    Land(usize, CallId, Box<Sent>),
    /// A patch of a node's taints reaches the API server.
    Patch(usize, CallId, TaintPatch, Fate),
    /// A change in the cluster.
    Story,
    /// A change of draining nodes.
    Leave,
    /// The node of this UID, whose eviction was announced at that time, must be tainted by now.
    CheckMark(String, u64),
    /// The cloud-controller-manager acts.
    Ccm,
    /// An answer reaches the cloud-controller-manager.
    CcmAnswered(CcmCall, Answer),
    /// Another client writes without a lock.
    Meddle,
    /// The faults of ARM change.
    ArmWeather,
    /// The faults of the API server change.
    KubeWeather,
    /// The operator changes the policy.
    ChangePolicy,
    /// The operator ends all pauses.
    EndPauses,
    /// The API server's storage is restored, step by step.
    Restore(restores::Step),
    /// The operator reacts to alerts.
    AnswerAlert,
    /// A change of control planes.
    Plane,
    /// A request reaches a control plane.
    PlaneReceives(usize, StreamId, Box<XdsRequest>),
    /// A fault of a process.
    Fault,
    /// A process starts in a slot.
    Start(usize),
    /// A process is killed, unless it has ended.
    Kill(usize),
    /// A process gets the signal to shut down.
    RequestShutdown(usize),
    /// A suspended process resumes.
    Wake(usize),
    /// A process sees everything again, unless there was another fault.
    Sight(usize, u64),
}

/// An event within a process: not while it is suspended, and not after its end.
enum ProcessEvent {
    /// A batch arrives at the end of an edge.
    Arrive(EdgeId),
    /// A machine's timer fires.
    Timer(Actor, Now),
    /// The kubernetes port continues with a request.
    Kube(Kind, CallId, Step),
    /// An input of a machine arrives from a port.
    Deliver(Delivery),
    /// A call to ARM is sent.
    Send(Box<ArmCall>),
    /// The xDS port continues with a stream.
    Xds(StreamId, XdsStep),
    /// The answer of ARM to a call.
    Answered(CallId, Box<ArmAnswer>, Option<Throttled>),
}

/// The state of a run.
pub struct World {
    now: u64,
    happened: u64,
    calendar: BTreeMap<(u64, u64), WorldEvent>,
    size: Size,
    settings: Settings,
    plant: Option<Plant>,
    delays: Random,
    /// Probability, in thousandths, that a batch is slow on its edge.
    slow_edges: u64,
    fault_random: Random,
    wishing: Random,
    asks: u64,
    restoring: Random,
    backup: Option<restores::Backup>,
    fates: Random,
    /// The modelled API server.
    pub kube: KubeModel,
    kube_revision: u64,
    /// The modelled ARM.
    pub arm: ArmModel,
    /// The processes, including ended ones.
    pub processes: Vec<Process>,
    /// The cluster and its story.
    pub story: Story,
    /// The cloud-controller-manager.
    pub ccm: Ccm,
    ccm_at: Option<u64>,
    /// True if the admin state is disabled permanently in the end (N4).
    switches_off: bool,
    /// True if operators release waiting nodes at the end (N5).
    answers_held: bool,
    leaving: Random,
    /// The control planes, in worlds with some.
    pub planes: Option<Planes>,
    planing: Random,
    /// Number of times the next process in a slot will crash on startup.
    crashes: BTreeMap<usize, u32>,
    /// True if the controller's ConfigMap has another key from the start.
    keeps_notes: bool,
    /// The controller's requests that have reached ARM, as text, if they are recorded.
    pub calls: Option<Vec<String>>,
    /// The watchdog.
    pub watchdog: Watchdog,
    saboteur: Saboteur,
    faults: u64,
    stormy: bool,
    trace: Trace,
}

impl World {
    /// Creates the run of this seed and size, with or without a planted bug.
    pub fn new(seed: u64, size: Size, plant: Option<Plant>) -> World {
        let mut random = Random::new(seed);
        let arm_settings = fault_injection::arm_settings(&mut random.fork());
        let mut arm = ArmModel::new(arm_settings);
        let mut ccm = Ccm::new(size.balancers, random.fork());
        ccm.begin(&mut arm);
        let api = kube::Settings { seed, ..kube::Settings::default() };
        let planes = size.faults.planes.then(|| World::planes_of(seed));
        let mut settings = Settings::new(&mut random.fork(), size, plant);
        settings.planes = planes.as_ref().map(|planes| planes.features);
        let mut leaving = Random::new(seed ^ 0x6c65_6176);
        if settings.upstream {
            ccm.leave_slices_alone();
        }
        if plant == Some(Plant::ForeignIsOurs) || size.faults.leaving && leaving.per_mille(250) {
            ccm.prefer_hands();
        }
        World {
            now: 0,
            happened: 0,
            calendar: BTreeMap::new(),
            size,
            settings,
            plant,
            delays: random.fork(),
            slow_edges: if random.per_mille(250) { 200 } else { 10 },
            fault_random: random.fork(),
            wishing: Random::new(seed ^ 0x7769_7368),
            planes,
            planing: Random::new(seed ^ 0x7064_6573),
            asks: 0,
            restoring: Random::new(seed ^ 0x7265_7374),
            backup: None,
            fates: random.fork(),
            kube: KubeModel::new(api),
            kube_revision: 0,
            arm,
            processes: Vec::new(),
            story: Story::new(size, random.fork(), Random::new(seed ^ 0x6661_6d69), leaving.fork()),
            ccm,
            ccm_at: None,
            switches_off: leaving.per_mille(120),
            answers_held: leaving.per_mille(500),
            crashes: BTreeMap::new(),
            keeps_notes: random.per_mille(500),
            calls: None,
            watchdog: Watchdog::new(!settings.upstream, settings.bypass_for_drain, EMPTY_CONFIRM_US),
            saboteur: Saboteur::new(plant, random.fork()),
            faults: 0,
            stormy: true,
            trace: Trace::new(),
            leaving,
        }
    }

    /// Returns the time, in microseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns whether every watch is closed empty also after the faults.
    pub fn watches_stay_empty(&self) -> bool {
        self.size.faults.often == Some(Often::EmptyWatches)
    }

    /// Returns the settings of all processes.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Returns the number of events so far.
    pub fn happened(&self) -> u64 {
        self.happened
    }

    fn at(&mut self, time: u64, event: WorldEvent) {
        self.happened += 1;
        self.calendar.insert((time.max(self.now), self.happened), event);
    }

    fn within(&mut self, time: u64, process: usize, inner: ProcessEvent) {
        self.at(time, WorldEvent::Of(process, inner));
    }

    fn record(&mut self, words: String) {
        self.trace.record(self.now, Entry::Words(words));
    }

    /// Returns the last messages, oldest first.
    pub fn trace(&self) -> String {
        self.trace.text()
    }

    /// Advances to this time.
    ///
    /// # Errors
    /// A finding of the watchdog.
    pub fn run_until(&mut self, end: u64) -> Result<(), String> {
        while let Some((&(at, number), _)) = self.calendar.first_key_value().filter(|((at, _), _)| *at <= end)
        {
            self.now = at;
            let Some(event) = self.calendar.remove(&(at, number)) else { break };
            self.make_change(event)?;
            if self.kube.revision() != self.kube_revision {
                self.kube_revision = self.kube.revision();
                self.kube_moved()?;
            }
            if number % 100 == 0 {
                self.check()?;
            }
        }
        self.now = end;
        self.arm.tick(end);
        self.check()
    }

    fn kube_moved(&mut self) -> Result<(), String> {
        for process in 0..self.processes.len() {
            if self.processes[process].is_there() {
                let Process { kubernetes, leases, .. } = &mut self.processes[process];
                let mut effects = kubernetes.wake(&self.kube, self.now);
                effects.extend(leases.wake(&self.kube, self.now));
                self.follow(process, effects)?;
            }
        }
        let at = self.now + self.delays.between(500, 20_000);
        self.plan_ccm(at);
        Ok(())
    }

    fn plan_ccm(&mut self, at: u64) {
        let at = at.max(self.now + 1);
        if self.ccm_at.is_none_or(|planned| planned > at || planned <= self.now) {
            self.ccm_at = Some(at);
            self.at(at, WorldEvent::Ccm);
        }
    }

    fn check(&self) -> Result<(), String> {
        for (number, process) in self.processes.iter().enumerate() {
            if process.life == ProcessState::Runs {
                process.replica.check()?;
                self.watchdog.takes_answered(self.now, number)?;
                self.watchdog.reports_accepted(self.now, number)?;
                self.watchdog.reads_in_time(self.now, number)?;
                self.watchdog.ends_after_rollback(self.now, number)?;
            }
        }
        Ok(())
    }

    fn make_change(&mut self, event: WorldEvent) -> Result<(), String> {
        let now = self.now;
        match event {
            WorldEvent::Of(process, inner) => match self.processes[process].life {
                ProcessState::Runs => self.happen_in_process(process, inner)?,
                ProcessState::Stopped(until) => self.within(until, process, inner),
                ProcessState::Gone => {}
            },
            WorldEvent::Lease(process, lease, call, step) => self.lease_step(process, lease, call, step)?,
            WorldEvent::Notes(process, requester, call, step) => {
                self.notes_step(process, requester, call, step)?
            }
            WorldEvent::Land(process, call, sent) => self.land(process, call, &sent)?,
            WorldEvent::Patch(process, call, patch, fate) => self.patch(process, call, &patch, fate)?,
            WorldEvent::Story if self.stormy => {
                let words = self.story.make_change(&mut self.kube, now);
                self.record_cluster();
                self.record_nodes();
                self.record(format!("story: {words}"));
                let pause = self.story.pause();
                self.at(now + pause, WorldEvent::Story);
            }
            WorldEvent::Leave if self.stormy && self.size.faults.leaving => self.change_draining_nodes(),
            WorldEvent::Ccm => self.step_ccm()?,
            WorldEvent::CcmAnswered(call, answer) => {
                if let Answer::Arrived { status: status @ 400.., body, .. } = &answer {
                    self.record(format!("ccm receives {status}: {}", String::from_utf8_lossy(body)));
                }
                let effects = self.ccm.answered(&mut self.kube, &mut self.arm, now, call, answer);
                self.follow_ccm(effects)?;
            }
            WorldEvent::Meddle if self.stormy && self.size.faults.meddling => {
                let words = self.ccm.write_without_lock(&mut self.arm, &self.story.cluster, now);
                self.record_set_down();
                self.record_cluster();
                self.record(format!("meddling: {words}"));
                let pause = self.delays.between(3_000_000, 25_000_000);
                self.at(now + pause, WorldEvent::Meddle);
            }
            WorldEvent::ArmWeather if self.stormy && self.size.faults.arm => self.change_arm_faults(),
            WorldEvent::KubeWeather if self.stormy && self.size.faults.kube => self.change_kube_faults()?,
            WorldEvent::Fault if self.stormy => self.fault()?,
            WorldEvent::Plane if self.stormy => self.plane_happens()?,
            WorldEvent::PlaneReceives(process, stream, request) => {
                self.plane_receives(process, stream, &request)?;
            }
            WorldEvent::ChangePolicy if self.stormy && self.size.faults.policy => self.change_policy(),
            WorldEvent::CheckMark(uid, at) => self.check_mark(&uid, at)?,
            WorldEvent::Story
            | WorldEvent::Leave
            | WorldEvent::Meddle
            | WorldEvent::ArmWeather
            | WorldEvent::KubeWeather
            | WorldEvent::ChangePolicy
            | WorldEvent::Plane
            | WorldEvent::Fault => {}
            WorldEvent::EndPauses => self.clear_policy(),
            WorldEvent::Restore(step) if self.stormy => self.restore(step)?,
            WorldEvent::Restore(_) => {}
            WorldEvent::AnswerAlert => self.answer_alert(),
            WorldEvent::Start(slot) => self.start(slot)?,
            WorldEvent::Kill(process) => self.kill(process),
            WorldEvent::RequestShutdown(process) => self.request_shutdown(process),
            WorldEvent::Wake(process) => self.wake(process),
            WorldEvent::Sight(process, faults) => {
                if faults == self.faults {
                    self.watchdog.blind(now, process, false);
                }
            }
        }
        Ok(())
    }

    /// Lets the cloud-controller-manager handle changes.
    fn step_ccm(&mut self) -> Result<(), String> {
        let now = self.now;
        if self.ccm_at.is_some_and(|at| at <= now) {
            self.ccm_at = None;
        }
        if !self.stormy {
            self.ccm.restart_if_lost();
        }
        let effects = self.ccm.step(&mut self.kube, &mut self.arm, &mut self.story.cluster, now);
        self.follow_ccm(effects)
    }

    fn happen_in_process(&mut self, process: usize, inner: ProcessEvent) -> Result<(), String> {
        let now = self.now;
        match inner {
            ProcessEvent::Arrive(edge) => self.arrive(process, &edge),
            ProcessEvent::Timer(actor, at) => {
                let due = self.processes[process].replica.armed.get(&actor) == Some(&at);
                if due && let Some(until) = self.stalled_until(process, &actor) {
                    self.within(until, process, ProcessEvent::Timer(actor, at));
                } else if due {
                    self.processes[process].replica.armed.remove(&actor);
                    self.turn(process, &actor, Vec::new())?;
                }
                Ok(())
            }
            ProcessEvent::Kube(kind, call, step) => {
                let effects = self.processes[process].kubernetes.step(&mut self.kube, now, kind, call, step);
                self.follow(process, effects)
            }
            ProcessEvent::Deliver(delivery) => self.follow(process, vec![Effect::Deliver(delivery)]),
            ProcessEvent::Send(call) => self.send(process, *call),
            ProcessEvent::Xds(stream, step) => self.xds_step(process, stream, &step),
            ProcessEvent::Answered(call, answer, throttled) => {
                if let Some(throttled) = throttled.filter(|one| self.settings.upstream || !one.is_lock) {
                    self.watchdog.on_throttled(now, process, throttled);
                }
                let delivery = Delivery::Writer(writer::In::Answered(call, *answer));
                self.turn(process, &Actor::Writer, vec![delivery])
            }
        }
    }

    /// Records the state of the cluster.
    fn record_cluster(&mut self) {
        let now = self.now;
        for (service, version) in std::mem::take(&mut self.story.cluster.slice_writes) {
            self.watchdog.record_slice(&service, version);
        }
        self.watchdog.record(now, &self.story.cluster);
    }

    fn follow_ccm(&mut self, effects: Vec<ccm::Effect>) -> Result<(), String> {
        self.record_set_down();
        self.record_cluster();
        for effect in effects {
            match effect {
                ccm::Effect::Answer(at, call, answer) => self.at(at, WorldEvent::CcmAnswered(call, answer)),
                ccm::Effect::LeaseWritten(lease) => self.lease_written(lease)?,
            }
        }
        if let Some(at) = self.ccm.deadline() {
            self.plan_ccm(at);
        }
        Ok(())
    }

    fn lease_written(&mut self, lease: LeaseName) -> Result<(), String> {
        let Some(object) = ccm::lease_object(&self.kube, lease) else { return Ok(()) };
        self.record(format!("{lease:?} is written: {}", object["spec"]));
        self.watchdog.lease_written(self.now, lease, &object)
    }
}
