//! The model of the cloud-controller-manager beside the service under test: it sees the same cluster, takes the same
//! Lease, and writes the same pools, while both run.

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
use crate::story::{CcmMode, Story};
use crate::world::World;
use crate::{Azure, Cluster};

/// Time for which the cluster is left alone at least after it was looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Looking takes at most this part of the time: it grows with the cluster.
const LOOK_SHARE: u32 = 20;

/// The load balancer of each Service, by namespace and name.
pub(crate) type Places = BTreeMap<(String, String), String>;

/// A running cloud-controller-manager. It stops with this value.
pub struct LiveCcm {
    sums: watch::Receiver<Sums>,
    /// Counts that are not reported.
    base: Counters,
    _running: Running,
}

struct Running(AbortHandle);

impl LiveCcm {
    /// Starts the one that a story asks for, if it asks for one. Its time runs `speed` times as fast. It reconciles every
    /// Service once while ARM answers at once, and that is not reported.
    pub async fn start_for_story(
        fakes: &Fakes,
        world: &World,
        story: &Story,
        seed: u64,
        speed: u32,
    ) -> Option<Self> {
        let updater = match story.ccm_mode {
            CcmMode::Off => return None,
            CcmMode::Manager => false,
            CcmMode::ManagerAndUpdater => true,
        };
        fakes.tune_arm(answer_at_once).await;
        let settings = Settings { seed, updater, ..Settings::default() };
        let live_ccm = Self::start(fakes, world, settings, speed).await;
        let arm = story.arm.clone();
        fakes
            .tune_arm(move |settings| {
                let endpoint = std::mem::take(&mut settings.endpoint);
                *settings = arm::Settings { endpoint, ..arm };
            })
            .await;
        fakes.cluster.ask(forget_events).await;
        let (base, _) = *live_ccm.sums.borrow();
        Some(Self { base, ..live_ccm })
    }

    /// Starts one and waits until it has reconciled every Service once.
    async fn start(fakes: &Fakes, world: &World, settings: Settings, speed: u32) -> Self {
        let clock = fakes.clock();
        let settings = starting(Settings { epoch_s: clock.epoch_s(), ..settings });
        let (rests, mut resting) = watch::channel(false);
        let (published, sums) = watch::channel(Sums::default());
        let driver = Driver {
            ccm: Ccm::new(settings),
            clock,
            speed: speed.max(1),
            azure: fakes.azure.clone(),
            cluster: fakes.cluster.clone(),
            observer: ClusterObserver::new(world.places()),
            published,
            rests,
            services: world.services().len() as u64,
            waits_since_us: None,
        };
        let running = Running(tokio::spawn(driver.run()).abort_handle());
        // It ends only with this value.
        drop(resting.wait_for(|rests| *rests).await);
        Self { sums, base: Counters::default(), _running: running }
    }

    /// Returns its sums so far, and the longest time, in microseconds, from the first of several failures to take the
    /// lock until it was got.
    #[must_use]
    pub fn sums(&self) -> (Counters, u64) {
        let (sums, longest_us) = *self.sums.borrow();
        (since(sums, self.base), longest_us)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns the sums without those of before.
pub(crate) fn since(sums: Counters, before: Counters) -> Counters {
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

/// ARM without waiting times and faults.
pub(crate) fn answer_at_once(settings: &mut arm::Settings) {
    let at_once = arm::Latency::Fixed { us: 0 };
    (settings.get_latency, settings.put_latency, settings.operation) = (at_once, at_once, None);
    (settings.faults, settings.quotas, settings.silent_loss) = (Vec::new(), None, 0.0);
}

/// Deletes the events of what is not reported.
pub(crate) fn forget_events(cluster: &mut Cluster, now_us: u64) {
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

/// Until a manager has carried all nodes into all pools once, it does so soon; from then on as often as upstream.
const FIRST_NODE_SYNC_US: u64 = 1_000_000;

/// Period with which upstream checks for nodes with stopped machines (`--node-monitor-period`).
const NODE_MONITOR_US: u64 = 5_000_000;

/// Returns the settings of one that is just starting; a caller that has waited until it rests calls [`settled`].
pub(crate) fn starting(settings: Settings) -> Settings {
    Settings { node_sync_us: FIRST_NODE_SYNC_US, lifecycle_us: Some(NODE_MONITOR_US), ..settings }
}

/// One that has been running for long.
pub(crate) fn settled(settings: &mut Settings) {
    settings.node_sync_us = Settings::default().node_sync_us;
}

/// An observer of the cluster: it finds changed objects.
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

    /// Returns the changes in the cluster since the last call. Nothing while its API server is down; changes of
    /// machines come with those of their nodes.
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
    /// True if it has done its first round.
    rests: watch::Sender<bool>,
    services: u64,
    /// Time since which it waits for the lock, in microseconds.
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
                    // The owner outlives this task, or the runtime ends with both.
                    drop(moved.changed().await);
                } => {
                    let began = Instant::now();
                    inputs = self.observe().await;
                    observe_at = Instant::now() + LOOK_EVERY.max(began.elapsed() * LOOK_SHARE);
                }
            }
            let now_us = self.now_us();
            let mut calls = Vec::new();
            for input in inputs {
                self.ccm.step(now_us, input, &mut calls);
            }
            self.ccm.tick(now_us, &mut calls);
            for call in calls {
                self.make(call, answered.clone());
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
        let first = !*self.rests.borrow();
        if first && sums.reconciled >= self.services && self.ccm.is_idle() {
            self.ccm.reconfigure(settled);
            self.rests.send_replace(true);
        }
    }

    /// Returns its own time. Its wall clock is that of all, because it writes it into the Lease.
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

    /// Makes a request; its answer comes back as one more input.
    fn make(&self, call: Call, answered: mpsc::UnboundedSender<In>) {
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
            // There is no receiver any more when the model was stopped.
            drop(answered.send(In::Answer(id, answer)));
        });
    }
}

/// Returns the API server's answer, and when it is due.
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

/// ARM's answer, and when it is due.
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
