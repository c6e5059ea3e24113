//! Rules that hold at all times, checked from outside of the machines: by their outputs, by the requests to ARM, and by
//! the true state of the Lease objects.

#[path = "watchdog/downs.rs"]
mod downs;
#[path = "watchdog/drains.rs"]
mod drains;
#[path = "watchdog/edges.rs"]
mod edges;
#[path = "watchdog/entries.rs"]
mod entries;
#[path = "watchdog/guards.rs"]
mod guards;
#[path = "watchdog/intake.rs"]
mod intake;
#[path = "watchdog/nodes.rs"]
mod nodes;
#[path = "watchdog/operations.rs"]
mod operations;
#[path = "watchdog/policy.rs"]
mod policy;
#[path = "watchdog/puts.rs"]
mod puts;
#[path = "watchdog/read_deadlines.rs"]
mod read_deadlines;
#[path = "watchdog/records.rs"]
mod records;
#[path = "watchdog/reports.rs"]
mod reports;
#[path = "watchdog/rest.rs"]
mod rest;
#[path = "watchdog/rules.rs"]
mod rules;
#[path = "watchdog/served.rs"]
mod served;
#[path = "watchdog/steps.rs"]
mod steps;
#[path = "watchdog/taints.rs"]
mod taints;
#[path = "watchdog/tenure.rs"]
mod tenure;
#[path = "watchdog/traffic.rs"]
mod traffic;
#[path = "watchdog/versions.rs"]
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coordination::leader;
use model::ids::{AttemptId, CallId, Epoch, Family, LbName, PoolId, RulePrefix, ServiceUid};
use model::lease::{LeaseAnswer, LeaseName, LeaseRequest};
use model::machine::Now;
use model::sample::{GateClass, Metric, PoolState};
use pool_core::route::{Delivery, Output};
use reporting::events;
use serde_json::Value;

use crate::azure::Throttled;
use crate::ccm::pool_name;
use crate::cluster::Cluster;
use crate::play::DrainResults;
use crate::process::Settings;
use crate::replica::Actor;
use downs::Downs;
use entries::Entries;
use guards::Guards;
use intake::Unread;
use nodes::Nodes;
use operations::Operations;
use puts::Puts;
use read_deadlines::ReadDeadlines;
use records::{Observations, Records};
use taints::TaintPatches;
use tenure::Tenure;
use traffic::Sender;
use versions::{Horizon, Versions};

pub use policy::OperatorAct;
pub use puts::Put;
pub use served::downs_of;
pub use tenure::Holds;

/// Time for which a Service must have had, or lacked, something before the controller must know.
const NOTICED_US: u64 = 3_000_000;
/// Time after a pause within which the last write may be sent: writes in flight continue.
const PAUSE_NOTICED_US: u64 = 45_000_000;
/// Time for which a Take may be unanswered: an edge may stall that long, and another one after it.
const TAKE_US: u64 = 25_000_000;
/// Maximum time of a level from the Directory to a pool.
const ASSIGNED_US: u64 = 25_000_000;
/// Time for which a process may create events after it has lost leadership, or has resumed.
const POSTS_US: u64 = 60_000_000;
/// Retry budget of every process (Q7).
pub const MAX_RETRIES: u32 = 3;
/// Time within which a process ends after it has read that the storage was restored, including a process that was
/// already shutting down.
const ROLLBACK_US: u64 = 35_000_000;
/// Failed attempts in a row that may be unreported.
const UNTOLD: u32 = 5;

/// A Service over time.
#[derive(Clone, Debug)]
struct Known {
    uid: ServiceUid,
    pools: BTreeSet<String>,
    prefix: RulePrefix,
    candidate: bool,
    /// Endpoints in the family of each of its pools.
    endpoints: BTreeMap<String, Endpoints>,
    paused: Option<u64>,
}

/// Endpoints of a Service in one family.
#[derive(Clone, Copy, Debug)]
struct Endpoints {
    /// Presence of endpoints, and the time of its last change.
    has: (bool, u64),
    /// Last time at which there were some for long enough to be noticed.
    had_until: u64,
}

impl Endpoints {
    fn record(&mut self, now: u64, has: bool) {
        if self.has.0 && now >= self.has.1 + NOTICED_US {
            self.had_until = now;
        }
        if self.has.0 != has {
            self.has = (has, now);
        }
    }
}

/// Outputs and state of one process.
struct Within {
    /// Holder identity in the controller's Lease; `None` without other replicas.
    identity: Option<Arc<str>>,
    /// Version of the controller's Lease in which it last read a holder.
    lease_version: Option<Arc<str>>,
    /// Time of its start, or of its resumption.
    started_at: u64,
    /// Start of the last period in which it may miss changes, and the end of that period.
    blind_since: Option<u64>,
    sees_since: u64,
    states: BTreeMap<Actor, PoolState>,
    reported: BTreeSet<(Actor, AttemptId, ServiceUid, &'static str)>,
    takes: BTreeMap<(PoolId, AttemptId), u64>,
    /// Pools of which a PUT was accepted, or may have been, since they last counted as written.
    accepted: BTreeSet<PoolId>,
    /// Gauge of pools by state, as in the recorder.
    gauge: BTreeMap<PoolState, i64>,
    horizon: Horizon,
    guards: Guards,
    sender: Sender,
    operations: Operations,
    read_deadlines: ReadDeadlines,
    unread: Unread,
    /// Services in the last assignment of each pool, and the time until which it had others.
    given: BTreeMap<PoolId, GivenServices>,
    /// Time before which another attempt of a pool is useless, by the last output of the writer, with its attempt (Q6).
    eligible: BTreeMap<PoolId, (AttemptId, Now)>,
    /// Its knowledge of the controller's Lease, by its reads (W8).
    lease_known: LeaseKnown,
    /// Term and Services of the last level of each pool.
    assigned: BTreeMap<PoolId, (Epoch, Vec<ServiceUid>)>,
    /// End of the parking of each pool, on the process's own clock (Q5).
    parked: BTreeMap<PoolId, Now>,
    /// Failed attempts in a row without a report.
    untold: BTreeMap<PoolId, u32>,
    /// Pools with a reported final failure that have not been written since.
    given_up: BTreeSet<PoolId>,
    downs: Downs,
    drains: drains::AdminInputs,
    patches: TaintPatches,
    /// True if its configuration disables the admin state (N4).
    is_off: bool,
    /// Its observations of Downs.
    observations: Observations,
    policy_inputs: policy::PolicyInputs,
    /// Attempts that found other rules than discovery (Q4).
    doubts: rules::Doubts,
    /// Time of the last PUT of each pool.
    put_at: BTreeMap<PoolId, u64>,
    /// Reports that the API server must have accepted (E1).
    reports: reports::Reports,
    /// Resources that control planes have sent to it.
    on_response: served::Handed,
}

/// A process's knowledge of the controller's Lease, by its reads.
#[derive(Default)]
struct LeaseKnown {
    /// Request in flight, and whether it is a watch: the answer of a watch may be late.
    requested: Option<(CallId, bool)>,
    /// Newest version that it has read.
    newest: u64,
    /// Time at which it read an older version in answer to a request other than a watch.
    rollback_at: Option<u64>,
}

impl LeaseKnown {
    /// Records a request or an answer.
    fn step(&mut self, now: u64, input: Option<&Delivery>, outputs: &[Output]) {
        if let Some(Delivery::Leader(leader::In::Lease(call, LeaseAnswer::Seen(facts)))) = input {
            let version = facts.version.0.parse().unwrap_or(0);
            if self.requested == Some((*call, false)) && version < self.newest {
                self.rollback_at.get_or_insert(now);
            }
            if self.requested.is_some_and(|(requested, _)| requested == *call) {
                self.newest = self.newest.max(version);
            }
        }
        for output in outputs {
            if let Output::Leader(leader::Out::Lease(call, request)) = output {
                self.requested = Some((*call, matches!(request, LeaseRequest::Watch(..))));
            }
        }
    }

    /// Records that the process resumes after a suspension.
    fn resumes(&mut self, now: u64) {
        self.rollback_at = self.rollback_at.map(|_| now);
    }
}

#[derive(Default)]
struct GivenServices {
    services: BTreeSet<ServiceUid>,
    /// Time at which each Service was removed.
    gone: BTreeMap<ServiceUid, u64>,
}

/// Checks the rules in a world.
#[derive(Default)]
pub struct Watchdog {
    /// True if chapter 5b's guards are enabled; and the time for which emptiness must last before a pool is emptied
    /// (G2).
    guarded: bool,
    empty_confirm_us: u64,
    services: BTreeMap<String, Known>,
    within: Vec<Within>,
    calls: Puts,
    recorded: policy::RecordedPauses,
    /// True state of the Leases.
    pub tenure: Tenure,
    versions: Versions,
    nodes: Nodes,
    records: Records,
    entries: Entries,
    /// True if the configuration disables the admin state in each process that starts from now on (N4).
    pub is_off: bool,
    /// True if a Down may be written without the shared Lease (W7).
    bypass: bool,
    /// Time at which ARM last closed each request class to any client, and the end of that closure.
    throttled: BTreeMap<GateClass, (u64, u64)>,
    /// Number of writes that counted as lost (W2).
    pub lost: u64,
    /// Number of sent PUTs.
    pub puts: u64,
    /// Number of events.
    pub reports: u64,
    /// Number of times a stop of removals was reported (G4).
    pub stops: u64,
    left: DrainResults,
    /// Time at which each load balancer was last created again.
    created_again: BTreeMap<LbName, u64>,
    /// PUTs of each pool that change admin states.
    pub admin_puts: BTreeMap<PoolId, u64>,
}

impl Within {
    /// Returns the time since which it sees everything.
    fn sees_all_since(&self) -> u64 {
        if self.blind_since.is_some() { u64::MAX } else { self.sees_since }
    }
}

impl Watchdog {
    /// Creates one without observations.
    pub fn new(guarded: bool, bypass: bool, empty_confirm_us: u64) -> Watchdog {
        Watchdog { guarded, bypass, empty_confirm_us, ..Watchdog::default() }
    }

    /// Records that a process starts.
    pub fn start(&mut self, now: u64, identity: Option<Arc<str>>, settings: &Settings) {
        self.within.push(Within {
            identity,
            lease_version: None,
            started_at: now,
            blind_since: Some(now),
            sees_since: u64::MAX,
            states: BTreeMap::new(),
            reported: BTreeSet::new(),
            takes: BTreeMap::new(),
            accepted: BTreeSet::new(),
            gauge: BTreeMap::new(),
            horizon: Horizon::default(),
            guards: Guards::default(),
            sender: Sender::new(now, settings),
            operations: Operations::default(),
            read_deadlines: ReadDeadlines::new(now, settings),
            unread: Unread::default(),
            lease_known: LeaseKnown::default(),
            given: BTreeMap::new(),
            eligible: BTreeMap::new(),
            assigned: BTreeMap::new(),
            parked: BTreeMap::new(),
            untold: BTreeMap::new(),
            given_up: BTreeSet::new(),
            downs: Downs::default(),
            drains: drains::AdminInputs::default(),
            patches: TaintPatches::default(),
            is_off: settings.admin_state_off,
            observations: Observations::default(),
            policy_inputs: policy::PolicyInputs::default(),
            doubts: rules::Doubts::default(),
            put_at: BTreeMap::new(),
            reports: reports::Reports::default(),
            on_response: served::Handed::default(),
        });
    }

    /// Returns the results about draining nodes.
    pub fn left(&self) -> DrainResults {
        self.left
    }

    /// Records that a process has ended: nothing is expected of it.
    pub fn end(&mut self, process: usize) {
        let within = &mut self.within[process];
        within.takes.clear();
        within.states.clear();
        within.gauge.clear();
        within.downs.end();
        within.reports.end();
        self.process_gone(process);
    }

    /// Records that a suspended process resumes.
    pub fn resumes(&mut self, now: u64, process: usize) {
        let within = &mut self.within[process];
        within.started_at = now;
        within.operations.exempt_until(now, None);
        within.reports.resumes(now);
        within.unread = Unread::default();
        within.lease_known.resumes(now);
        within.takes.values_mut().for_each(|since| *since = now);
        within.given.values_mut().for_each(|given| given.gone.values_mut().for_each(|gone| *gone = now));
    }

    /// Returns whether a PUT of a process is in flight.
    pub fn has_open_put(&self, now: u64, process: usize) -> bool {
        self.calls.is_open(now, Some(process), true)
    }

    /// Records that a process may miss something from now on, or sees everything again.
    pub fn blind(&mut self, now: u64, process: usize, blind: bool) {
        let within = &mut self.within[process];
        if !blind && within.blind_since.is_some() {
            within.sees_since = now;
        }
        within.blind_since = if blind { within.blind_since.or(Some(now)) } else { None };
    }

    /// Checks a write of a Lease.
    ///
    /// # Errors
    ///
    /// A violated rule.
    pub fn lease_written(&mut self, now: u64, lease: LeaseName, object: &Value) -> Result<(), String> {
        let (calls, within) = (&self.calls, &self.within);
        let open = |holder: Option<&str>| {
            let process = holder.and_then(|holder| {
                within.iter().position(|within| within.identity.as_deref() == Some(holder))
            });
            // A PUT that may be sent without the shared Lease does not require it.
            (holder.is_none() || process.is_some()) && calls.is_open(now, process, holder.is_some())
        };
        let knows = |identity: &str, version: &str| {
            let mut of = within.iter().filter(|within| within.identity.as_deref() == Some(identity));
            of.any(|within| within.lease_version.as_deref() == Some(version))
        };
        self.tenure.written(now, lease, object, open, knows)
    }

    /// Records that the storage was restored to a version, at which the Leases had these holders.
    pub fn rollback(&mut self, now: u64, version: u64, holds: Holds) {
        self.tenure.rollback(now, holds);
        self.versions.rollback(version);
        for within in &mut self.within {
            within.horizon.rollback();
        }
    }

    /// Checks W8: a process that has read an older state of our Lease than before ends.
    ///
    /// # Errors
    ///
    /// The process continues.
    pub fn ends_after_rollback(&self, now: u64, process: usize) -> Result<(), String> {
        match self.within[process].lease_known.rollback_at.filter(|at| at + ROLLBACK_US < now) {
            Some(at) => Err(format!(
                "W8: the storage was restored, process {process} has read it at {at} and still runs"
            )),
            None => Ok(()),
        }
    }

    /// Records that a load balancer was deleted and created again.
    pub fn created_again(&mut self, now: u64, lb: &LbName) {
        self.created_again.insert(lb.clone(), now);
    }

    /// Records that a slice of a Service was written.
    pub fn record_slice(&mut self, service: &str, version: u64) {
        self.versions.record(service, version);
    }

    /// Records that ARM's 429 about a class reaches a process.
    pub fn on_throttled(&mut self, now: u64, process: usize, throttled: Throttled) {
        let Throttled { class, span, is_lock } = throttled;
        let sender = &mut self.within[process].sender;
        // Of several locks, the last one determines how long the gate is closed.
        let closure = if is_lock {
            Some((now, now + u64::try_from(span.as_micros()).unwrap_or(0)))
        } else {
            sender.throttled(now, class, span);
            sender.throttled_until(class)
        };
        if let Some(closure) = closure {
            let known = self.throttled.entry(class).or_insert(closure);
            *known = (*known).max(closure);
        }
    }

    /// Checks W6: a gate is closed only because of an answer of ARM, and only for the class of that answer.
    ///
    /// # Errors
    ///
    /// A gate that must not be closed.
    pub fn on_gate(&self, now: u64, class: GateClass, until: Option<u64>) -> Result<(), String> {
        let Some(until) = until.filter(|until| *until > now) else { return Ok(()) };
        match self.throttled.get(&class) {
            Some((_, closure)) if until <= closure + TAKE_US => Ok(()),
            closure => Err(format!(
                "W6: the gate of {class:?} is closed until {until}, but ARM has answered {closure:?}"
            )),
        }
    }

    /// Checks E1: only the leader creates events.
    ///
    /// # Errors
    ///
    /// Another process creates one.
    pub fn on_post(&self, now: u64, process: usize) -> Result<(), String> {
        let within = &self.within[process];
        let Some(identity) = &within.identity else { return Ok(()) };
        if within.started_at + POSTS_US < now && self.tenure.is_bystander(now, identity) {
            return Err(format!("E1: {identity} posts an event, and {:?} leads", self.tenure.leader()));
        }
        Ok(())
    }

    /// Records the state of the cluster.
    pub fn record(&mut self, now: u64, cluster: &Cluster) {
        let mut present = BTreeSet::new();
        for service in cluster.services.values() {
            let has = |family: &Family| service.endpoints(*family).next().is_some();
            let pools = || {
                let named = |family: &Family| (pool_name(&service.key(), *family), has(family));
                service.families.iter().map(named)
            };
            let known = self.services.entry(service.uid()).or_insert_with(|| Known {
                uid: ServiceUid::new(service.uid()),
                pools: pools().map(|(pool, _)| pool).collect(),
                prefix: service.prefix(),
                candidate: false,
                endpoints: BTreeMap::new(),
                paused: None,
            });
            for (pool, has) in pools() {
                let new = || Endpoints { has: (has, now), had_until: if has { now } else { 0 } };
                known.endpoints.entry(pool).or_insert_with(new).record(now, has);
            }
            known.candidate = service.is_candidate();
            known.paused = service.paused.then(|| known.paused.unwrap_or(now));
            present.insert(service.uid());
        }
        for (_, gone) in self.services.iter_mut().filter(|(uid, _)| !present.contains(*uid)) {
            gone.candidate = false;
        }
    }

    /// Records a sample of a process.
    pub fn on_metric(&mut self, process: usize, sample: &Metric) {
        self.lost += u64::from(*sample == Metric::LostWrite);
        if let Metric::PoolState { from, to } = sample {
            for (state, by) in [(from, -1), (to, 1)] {
                if let Some(state) = state {
                    *self.within[process].gauge.entry(*state).or_default() += by;
                }
            }
        }
    }

    /// Checks that every Take of a process was answered in time.
    ///
    /// # Errors
    /// The unanswered one.
    pub fn takes_answered(&self, now: u64, process: usize) -> Result<(), String> {
        let late = self.within[process].takes.iter().find(|(_, since)| **since + TAKE_US < now);
        late.map_or(Ok(()), |(take, since)| Err(format!("Q3: the Take {take:?} of {since} is not answered")))
    }

    /// Returns the gauge of pools by state, as in a process's recorder.
    pub fn gauge(&self, process: usize) -> BTreeMap<PoolState, i64> {
        let gauge = self.within[process].gauge.iter();
        gauge.filter(|(_, pools)| **pools != 0).map(|(state, pools)| (*state, *pools)).collect()
    }

    /// Returns the states under which a process's pools are counted, by their outputs.
    pub fn counted(&self, process: usize) -> BTreeMap<PoolState, i64> {
        let mut counted = BTreeMap::new();
        for state in self.within[process].states.values() {
            *counted.entry(*state).or_default() += 1;
        }
        counted
    }
}

/// Returns whether a delivery affects behaviour, and not only views and metrics; for the trace.
pub fn affects_behaviour(delivery: &Delivery) -> bool {
    !matches!(
        delivery,
        Delivery::Metrics(_)
            | Delivery::Snapshot(_)
            | Delivery::XdsSource(_)
            | Delivery::Xds(_)
            | Delivery::Host(_)
            | Delivery::Events(events::In::Posted { .. })
    )
}
