//! The model of the cloud-controller-manager next to the controller under test: both see the same cluster, use the same
//! Lease, and write the same pools.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use simulator_models::arm;
use simulator_models::ccm::{Answer, Call, CallTarget, Ccm, Counters, In, Settings};
use simulator_models::kube::{self, Resource};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::fakes::Fakes;
use crate::owner::Owner;
use crate::scenario::{CcmMode, Scenario};
use crate::world::World;
use crate::{Azure, Cluster};

/// Minimum time between two observations of the cluster.
const MIN_OBSERVE_INTERVAL: Duration = Duration::from_millis(100);
/// An observation may take at most 1/20 of the time; its duration grows with the cluster.
const OBSERVE_DUTY_DIVISOR: u32 = 20;

/// The load balancer of each Service, by namespace and name.
pub(crate) type Places = BTreeMap<(String, String), String>;

/// A running cloud-controller-manager. Dropping this value stops it.
pub struct LiveCcm {
    sums: watch::Receiver<Sums>,
    /// Counters at the end of the warm-up, which are subtracted.
    warm_up_counters: Counters,
    _running: Running,
}

struct Running(AbortHandle);

impl LiveCcm {
    /// Starts a cloud-controller-manager if the scenario enables one. Its time runs `speed` times as fast. In the
    /// warm-up it reconciles every Service once while ARM answers without latency; the warm-up is not reported.
    pub async fn start_for_scenario(
        fakes: &Fakes,
        world: &World,
        scenario: &Scenario,
        seed: u64,
        speed: u32,
    ) -> Option<Self> {
        let updater = match scenario.ccm_mode {
            CcmMode::Off => return None,
            CcmMode::Manager => false,
            CcmMode::ManagerAndUpdater => true,
        };
        fakes.tune_arm(answer_at_once).await;
        let settings = Settings { seed, updater, ..Settings::default() };
        let live_ccm = Self::start(fakes, world, settings, speed).await;
        let arm = scenario.arm.clone();
        fakes
            .tune_arm(move |settings| {
                let endpoint = std::mem::take(&mut settings.endpoint);
                *settings = arm::Settings { endpoint, ..arm };
            })
            .await;
        fakes.cluster.ask(delete_events).await;
        let (warm_up_counters, _) = *live_ccm.sums.borrow();
        Some(Self { warm_up_counters, ..live_ccm })
    }

    /// Starts a manager and waits until it has reconciled every Service once.
    async fn start(fakes: &Fakes, world: &World, settings: Settings, speed: u32) -> Self {
        let clock = fakes.clock();
        let settings = starting(Settings { epoch_s: clock.epoch_s(), ..settings });
        let (idle_sender, mut idle) = watch::channel(false);
        let (published, sums) = watch::channel(Sums::default());
        let driver = Driver {
            ccm: Ccm::new(settings),
            clock,
            speed: speed.max(1),
            azure: fakes.azure.clone(),
            cluster: fakes.cluster.clone(),
            observer: ClusterObserver::new(world.places()),
            published,
            idle_sender,
            services: world.services().len() as u64,
            waits_since_us: None,
        };
        let running = Running(tokio::spawn(driver.run()).abort_handle());
        // The driver ends only when this value is dropped.
        drop(idle.wait_for(|idle| *idle).await);
        Self { sums, warm_up_counters: Counters::default(), _running: running }
    }

    /// Returns the sums so far, and the longest time, in microseconds, from the first of several failures to take the
    /// lock until it acquired it.
    #[must_use]
    pub fn sums(&self) -> (Counters, u64) {
        let (sums, longest_us) = *self.sums.borrow();
        (difference(sums, self.warm_up_counters), longest_us)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns `sums - before`.
pub(crate) fn difference(sums: Counters, before: Counters) -> Counters {
    Counters {
        holds: sums.holds - before.holds,
        lock_failures: sums.lock_failures - before.lock_failures,
        cache_rebuilds: sums.cache_rebuilds - before.cache_rebuilds,
        reconciled: sums.reconciled - before.reconciled,
        failed: sums.failed - before.failed,
        drains: sums.drains - before.drains,
        dropped: sums.dropped - before.dropped,
        writes: sums.writes - before.writes,
        deaths: sums.deaths - before.deaths,
        late_answers: sums.late_answers - before.late_answers,
    }
}

/// Removes ARM's latencies and faults.
pub(crate) fn answer_at_once(settings: &mut arm::Settings) {
    let at_once = arm::Latency::Fixed { us: 0 };
    (settings.get_latency, settings.put_latency, settings.operation) = (at_once, at_once, None);
    (settings.faults, settings.quotas, settings.silent_loss) = (Vec::new(), None, 0.0);
}

/// Deletes the Events of the warm-up.
pub(crate) fn delete_events(cluster: &mut Cluster, now_us: u64) {
    for resource in [Resource::Events, Resource::EventsV1] {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let events = cluster.model.list(resource).map(|event| {
            let meta = &event["metadata"];
            (text(&meta["namespace"]), text(&meta["name"]))
        });
        for (namespace, name) in events.collect::<Vec<_>>() {
            cluster.model.delete(resource, &namespace, &name, now_us);
        }
    }
}

type Sums = (Counters, u64);

/// Initial node sync period; afterwards upstream's period applies.
const FIRST_NODE_SYNC_US: u64 = 1_000_000;

/// Period with which upstream checks for nodes with stopped machines (`--node-monitor-period`).
const NODE_MONITOR_US: u64 = 5_000_000;

/// Returns the settings for the start of a manager. Once it is idle, the caller applies [`use_steady_state_settings`].
pub(crate) fn starting(settings: Settings) -> Settings {
    Settings { node_sync_us: FIRST_NODE_SYNC_US, lifecycle_us: Some(NODE_MONITOR_US), ..settings }
}

/// Applies the settings of a warmed-up manager.
pub(crate) fn use_steady_state_settings(settings: &mut Settings) {
    settings.node_sync_us = Settings::default().node_sync_us;
}

/// Finds changed objects of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct ClusterObserver {
    places: Places,
    /// The resourceVersion of each object, by kind, namespace and name.
    versions: BTreeMap<(Kind, String, String), String>,
    /// The nodes whose machines are stopped.
    stopped: BTreeSet<String>,
    revision: u64,
}

/// Kind of object that a cloud-controller-manager watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Node,
    Slice,
    Service,
}

const KINDS: [(Kind, Resource); 3] = [
    (Kind::Node, Resource::Nodes),
    (Kind::Slice, Resource::EndpointSlices),
    (Kind::Service, Resource::Services),
];

impl ClusterObserver {
    pub(crate) fn new(places: Places) -> Self {
        Self { places, versions: BTreeMap::new(), stopped: BTreeSet::new(), revision: 0 }
    }

    /// Returns the changes in the cluster since the last call, and none while its API server is down. Changes of
    /// machines are returned with those of their nodes.
    pub(crate) fn observe(&mut self, cluster: &Cluster) -> Vec<In> {
        let Cluster { model, stopped, .. } = cluster;
        if model.is_down() || self.revision == model.revision() {
            return Vec::new();
        }
        self.revision = model.revision();
        let machine = |node: &String| In::Machine { node: node.clone(), stopped: stopped.contains(node) };
        let mut inputs: Vec<In> = stopped.symmetric_difference(&self.stopped).map(machine).collect();
        self.stopped.clone_from(stopped);
        let mut gone = std::mem::take(&mut self.versions);
        for (kind, resource) in KINDS {
            for object in model.list(resource) {
                let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
                let (namespace, name, version) = (text("namespace"), text("name"), text("resourceVersion"));
                let key = (kind, namespace.clone(), name.clone());
                if gone.remove(&key).as_ref() != Some(&version) {
                    inputs.push(match kind {
                        Kind::Node => In::Node(object),
                        Kind::Slice => In::Slice(object),
                        Kind::Service => {
                            let load_balancer = self.places.get(&(namespace, name));
                            In::Service { object, load_balancer: load_balancer.cloned().unwrap_or_default() }
                        }
                    });
                }
                self.versions.insert(key, version);
            }
        }
        inputs.extend(gone.into_keys().map(|(kind, namespace, name)| match kind {
            Kind::Node => In::NodeGone { name },
            Kind::Slice => In::SliceGone { namespace, name },
            Kind::Service => In::ServiceGone { namespace, name },
        }));
        inputs
    }
}

struct Driver {
    ccm: Ccm,
    clock: Clock,
    speed: u32,
    azure: Owner<Azure>,
    cluster: Owner<Cluster>,
    observer: ClusterObserver,
    published: watch::Sender<Sums>,
    /// True if every Service was reconciled once.
    idle_sender: watch::Sender<bool>,
    services: u64,
    /// Start of the current wait for the lock, in microseconds.
    waits_since_us: Option<u64>,
}

impl Driver {
    async fn run(mut self) {
        let (answered, mut answers) = mpsc::unbounded_channel::<In>();
        let mut moved = self.cluster.revision();
        moved.mark_changed();
        let mut observe_at = Instant::now();
        loop {
            let due = self.ccm.deadline().map(|at| self.clock.instant(at / u64::from(self.speed) + 1));
            let due = due.unwrap_or_else(|| Instant::now() + Duration::from_secs(1));
            let mut inputs = Vec::new();
            tokio::select! {
                Some(answer) = answers.recv() => inputs.push(answer),
                () = tokio::time::sleep_until(due) => {}
                () = async {
                    tokio::time::sleep_until(observe_at).await;
                    // The owner lives longer than this task, or the runtime ends with both.
                    drop(moved.changed().await);
                } => {
                    let began = Instant::now();
                    inputs = self.observe().await;
                    observe_at = Instant::now() + MIN_OBSERVE_INTERVAL.max(began.elapsed() * OBSERVE_DUTY_DIVISOR);
                }
            }
            let now_us = self.now_us();
            let mut calls = Vec::new();
            for input in inputs {
                self.ccm.step(now_us, input, &mut calls);
            }
            self.ccm.tick(now_us, &mut calls);
            for call in calls {
                self.spawn_call(call, answered.clone());
            }
            self.publish();
        }
    }

    fn publish(&mut self) {
        let (before, mut longest_us) = *self.published.borrow();
        let (sums, real_us) = (self.ccm.counters(), self.clock.now_us());
        if sums.holds > before.holds {
            let waited_us = self.waits_since_us.take().map_or(0, |since| real_us - since);
            longest_us = longest_us.max(waited_us);
        }
        if sums.lock_failures > before.lock_failures {
            self.waits_since_us.get_or_insert(real_us);
        }
        self.published.send_replace((sums, longest_us));
        let first = !*self.idle_sender.borrow();
        if first && sums.reconciled >= self.services && self.ccm.is_idle() {
            self.ccm.reconfigure(use_steady_state_settings);
            self.idle_sender.send_replace(true);
        }
    }

    /// Returns the manager's time. The manager's wall clock is the real one, because the manager writes it into the
    /// Lease.
    fn now_us(&mut self) -> u64 {
        let real_us = self.clock.now_us();
        let own_us = real_us.saturating_mul(u64::from(self.speed));
        let ahead = i64::try_from(own_us - real_us).unwrap_or(i64::MAX);
        self.ccm.reconfigure(|settings| settings.skew_us = -ahead);
        own_us
    }

    async fn observe(&mut self) -> Vec<In> {
        let mut observer = self.observer.clone();
        let (observer, inputs) = self
            .cluster
            .ask(move |cluster, _| {
                let inputs = observer.observe(cluster);
                (observer, inputs)
            })
            .await;
        self.observer = observer;
        inputs
    }

    /// Starts a request; its answer becomes an input.
    fn spawn_call(&self, call: Call, answered: mpsc::UnboundedSender<In>) {
        let (azure, cluster, clock) = (self.azure.clone(), self.cluster.clone(), self.clock);
        tokio::spawn(async move {
            let id = call.id;
            let (answer, due_us) = match call.side {
                CallTarget::Kubernetes => {
                    cluster.ask(move |cluster, now_us| serve_cluster(cluster, &call, now_us)).await
                }
                CallTarget::Arm => azure.ask(move |azure, now_us| serve_azure(azure, &call, now_us)).await,
            };
            tokio::time::sleep_until(clock.instant(due_us)).await;
            // The receiver is dropped when the model is stopped.
            drop(answered.send(In::Answer(id, answer)));
        });
    }
}

/// Returns the API server's answer, and the time at which it arrives.
pub(crate) fn serve_cluster(cluster: &mut Cluster, call: &Call, now_us: u64) -> (Answer, u64) {
    match cluster.handle(&call.for_kubernetes(), now_us) {
        kube::Reply::Answer { status, headers, body, after_us } => {
            (Answer::Arrived { status, headers, body }, now_us.saturating_add(after_us))
        }
        kube::Reply::Watch(id, _) => {
            cluster.model.close_watch(id);
            (Answer::Lost, now_us)
        }
        kube::Reply::Refused => (Answer::Lost, now_us),
    }
}

/// Returns ARM's answer, and the time at which it arrives.
pub(crate) fn serve_azure(azure: &mut Azure, call: &Call, now_us: u64) -> (Answer, u64) {
    match azure.handle(&call.for_arm(), now_us) {
        arm::Reply::Answer(response) => {
            let headers = response.headers.into_iter();
            let headers = headers.map(|(name, value)| (name.to_owned(), value.into_owned())).collect();
            let answer = Answer::Arrived { status: response.status, headers, body: response.body };
            (answer, now_us.saturating_add(response.latency_us))
        }
        arm::Reply::Lost { latency_us } => (Answer::Lost, now_us.saturating_add(latency_us)),
        arm::Reply::Refused => (Answer::Lost, now_us),
    }
}
