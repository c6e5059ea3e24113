//! Collects the results of an ended run from the models.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use simulator_models::arm::{Counters, Kind};
use simulator_models::ccm;
use simulator_models::kube::{KubeModel, Resource};

use super::drain::DrainInputs;
use super::{Convergence, DrainReport, Lease, Manager, NAMED, Report, Unserved, seconds};
use crate::azure::Azure;
use crate::cluster::Cluster;
use crate::downs::Downs;
use crate::expected_members::WrongEntry;
use crate::fakes::Fakes;
use crate::holds::Hold;
use crate::lanes::Write;
use crate::outages::Outages;
use crate::play::Outcome;
use crate::process::Usage;
use crate::scenario::{Reach, Scenario};
use crate::signals::Signals;
use crate::upstream;
use crate::world::World;

/// The event of a failed attempt that will be retried (E1).
const RETRYING: &str = "LoadBalancerBackendPoolUpdateRetrying";

/// Facts about a run, in addition to the observations of the models.
#[derive(Clone, Copy, Debug)]
pub struct RunInfo<'a> {
    /// Its scenario.
    pub scenario: &'a Scenario,
    /// Speed, as a multiple of the speed in the scenario's file.
    pub speed: u32,
    /// The seed.
    pub seed: u64,
    /// Start of the run, in microseconds.
    pub began_us: u64,
    /// Resource usage of the controller.
    pub usage: Option<Usage>,
    /// The cloud-controller-manager's sums, and its longest wait for the lock in microseconds.
    pub manager: Option<(ccm::Counters, u64)>,
}

/// Observations of the models during a run.
#[derive(Clone, Debug)]
struct Observations {
    arm: Counters,
    pools: usize,
    emptied: usize,
    waits_us: Vec<u64>,
    waiting: usize,
    removals_us: Vec<u64>,
    leaving: usize,
    all_converged_us: Option<u64>,
    to_converged_us: Option<u64>,
    by_balancer: BTreeMap<String, Option<u64>>,
    events: BTreeMap<String, u64>,
    warnings: Vec<String>,
    holds: crate::holds::Holds,
    reach: Reach,
    outages: Outages,
    downs: Downs,
    signals: Signals,
    /// Writes of the controller and of other clients since the start of the run.
    writes: Vec<Write>,
    picture: Picture,
}

/// Data of the charts; times are microseconds from the start of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Picture {
    pub(super) length_us: u64,
    /// Number of pools out of sync, from each time on.
    pub(super) out_of_sync: Vec<(u64, usize)>,
    /// Waits of changes, sorted.
    pub(super) waits_us: Vec<u64>,
    pub(super) writes: Vec<Write>,
    pub(super) holds: Vec<Hold>,
    /// Requests to ARM: time, true for a write, true for another client.
    pub(super) requests: Vec<(u64, bool, bool)>,
    pub(super) timeline: Vec<(u64, String)>,
}

impl Observations {
    fn of_azure(azure: &Azure, began_us: u64) -> Self {
        let convergence = &azure.convergence;
        let mut out_of_sync: Vec<(u64, usize)> = convergence.history().to_vec();
        out_of_sync.sort_by_key(|(at, _)| *at);
        out_of_sync.retain(|(at, _)| *at >= began_us);
        let writes = azure.lanes.writes().iter().filter(|write| write.started_us >= began_us);
        let writes: Vec<Write> = writes.cloned().collect();
        let requests = azure.model.log().iter().filter(|entry| entry.started_us >= began_us);
        let picture = Picture {
            out_of_sync: out_of_sync.into_iter().map(|(at, count)| (at - began_us, count)).collect(),
            waits_us: convergence.waits_us(),
            writes: writes.iter().map(|write| shifted(write, began_us)).collect(),
            requests: requests
                .map(|entry| (entry.started_us - began_us, is_write(entry.kind), entry.foreign))
                .collect(),
            ..Picture::default()
        };
        Self {
            arm: azure.model.counters(),
            pools: convergence.pools(),
            emptied: convergence.emptied(),
            waits_us: convergence.waits_us(),
            waiting: convergence.waiting(),
            removals_us: convergence.removals_us(),
            leaving: convergence.leaving(),
            all_converged_us: convergence.all_converged_since_us(),
            to_converged_us: convergence.first_change_to_converged_us(),
            by_balancer: convergence.first_change_to_converged_by_load_balancer_us(),
            events: BTreeMap::new(),
            warnings: Vec::new(),
            holds: crate::holds::Holds::default(),
            reach: Reach::of_azure(azure),
            outages: azure.outages.clone(),
            downs: azure.downs.clone(),
            signals: Signals::default(),
            writes,
            picture,
        }
    }

    fn and_cluster(mut self, cluster: &Cluster) -> Self {
        self.events = events_by_reason(&cluster.model);
        self.warnings = warnings(&cluster.model);
        self.holds = cluster.holds.clone();
        self.signals = cluster.signals.clone();
        self.reach.record_cluster(cluster);
        self
    }
}

impl Observations {
    /// Returns the results for the drained nodes, with the wrong entries at the end.
    fn admin_state(&self, info: &RunInfo<'_>, wrong: Vec<WrongEntry>) -> DrainReport {
        let inputs = DrainInputs {
            signals: &self.signals,
            downs: &self.downs,
            writes: &self.writes,
            read_us: info.scenario.read_us(),
            began_us: info.began_us,
        };
        DrainReport::of(&inputs, wrong, info.scenario.reached)
    }
}

fn shifted(write: &Write, began_us: u64) -> Write {
    Write {
        started_us: write.started_us - began_us,
        answered_us: write.answered_us - began_us,
        ended_us: write.ended_us - began_us,
        ..write.clone()
    }
}

fn is_write(kind: Kind) -> bool {
    match kind {
        Kind::PoolPut | Kind::PoolDelete | Kind::ForeignPoolPut | Kind::ForeignLoadBalancerPut => true,
        Kind::LoadBalancerGet
        | Kind::LoadBalancerList
        | Kind::PoolGet
        | Kind::PoolList
        | Kind::Poll
        | Kind::Other => false,
    }
}

impl Report {
    /// Collects the results of an ended run.
    pub async fn gather(fakes: &Fakes, info: &RunInfo<'_>, world: &World, outcome: Outcome) -> Self {
        let began_us = info.began_us;
        let observations = fakes.azure.ask(move |azure, _| Observations::of_azure(azure, began_us)).await;
        let observations = fakes.cluster.ask(move |cluster, _| observations.and_cluster(cluster)).await;
        let unreached = observations.reach.missed(&info.scenario.timetable());
        let report = Self::of(observations, info, world, outcome, fakes.clock().now_us());
        Self { unreached, ..report }
    }

    /// Runs the same scenario and seed with only upstream's updater, on simulated time.
    #[must_use]
    pub fn of_upstream(scenario: &Scenario, world: &World, seed: u64) -> Self {
        let ended = upstream::play(scenario, world, seed);
        let observations = Observations::of_azure(&ended.azure, ended.began_us).and_cluster(&ended.cluster);
        let manager = Some((ended.counters, 0));
        let info = RunInfo { scenario, speed: 1, seed, began_us: ended.began_us, usage: None, manager };
        let report = Self::of(observations, &info, world, ended.outcome, ended.ended_us);
        Self { removal_delay_seconds: 0.0, ..report }
    }

    fn of(observations: Observations, info: &RunInfo, world: &World, outcome: Outcome, now_us: u64) -> Self {
        let converged = outcome.wrong_pools.is_empty() && outcome.wrong_entries.is_empty();
        let admin_state = observations.admin_state(info, outcome.wrong_entries);
        let Observations { arm, events, holds, mut picture, .. } = observations;
        let end_us = observations.all_converged_us.filter(|_| converged).unwrap_or(now_us).max(info.began_us);
        picture.length_us = end_us.min(now_us) - info.began_us;
        picture.holds = holds.all().iter().filter_map(|hold| within(hold, info.began_us)).collect();
        let timeline = info.scenario.timeline.iter();
        picture.timeline = timeline.map(|one| (one.at_us, one.words.clone())).collect();
        Self {
            converged,
            wrong_pools: outcome.wrong_pools.len(),
            pools: observations.pools,
            scenario: info.scenario.name.clone(),
            speed: info.speed,
            services: world.size().services,
            load_balancers: world.size().load_balancers,
            nodes: world.size().nodes,
            changes: outcome.changes,
            changing_seconds: seconds(outcome.changing_us),
            arm_gets: arm.load_balancer_gets + arm.pool_gets,
            arm_puts: arm.pool_puts,
            arm_polls: arm.polls,
            arm_throttled: arm.throttled,
            arm_etag_mismatches: arm.etag_mismatches,
            arm_refused_by_lock: arm.refused_by_lock,
            arm_superseded: arm.superseded,
            max_concurrent_puts_per_lb: arm.max_concurrent_puts,
            emptied_pools: observations.emptied,
            unserved: unserved(&observations.outages, now_us),
            admin_state,
            flows_reset: observations.outages.flows_reset(),
            lane_turn_seconds: seconds(info.scenario.lane_turn_us()),
            lease: lease(&holds, info.began_us, end_us),
            ccm: info.manager.map(manager),
            first_event_to_converged_seconds: observations.to_converged_us.filter(|_| converged).map(seconds),
            converged_seconds_by_load_balancer: observations
                .by_balancer
                .into_iter()
                .map(|(lb, took)| (lb, took.map(seconds)))
                .collect(),
            convergence_seconds: Convergence::of(&observations.waits_us, observations.waiting),
            removal_seconds: Convergence::of(&observations.removals_us, observations.leaving),
            removal_delay_seconds: info.scenario.removal_delay().as_secs_f64(),
            retries: events.get(RETRYING).copied().unwrap_or(0),
            events,
            cpu_seconds: info.usage.map(|usage| usage.cpu_seconds),
            max_rss_bytes: info.usage.map(|usage| usage.max_rss_bytes),
            seed: info.seed,
            duration_seconds: seconds(now_us.saturating_sub(info.began_us)),
            wrong_pool_details: outcome.wrong_pools.into_iter().take(NAMED).collect(),
            warnings: observations.warnings,
            unreached: Vec::new(),
            checks: None,
            upstream: None,
            picture,
        }
    }
}

fn unserved(outages: &Outages, now_us: u64) -> Unserved {
    let all = outages.all(now_us);
    let named = all.iter().take(NAMED);
    Unserved {
        pools: all.len(),
        longest_seconds: all.first().map_or(0.0, |(_, longest)| seconds(*longest)),
        total_seconds: seconds(all.iter().map(|(_, lacked)| lacked).sum()),
        worst: named
            .map(|(pool, lacked)| (format!("{}/{}", pool.load_balancer, pool.pool), seconds(*lacked)))
            .collect(),
    }
}

fn within(hold: &Hold, began_us: u64) -> Option<Hold> {
    if hold.until_us.is_some_and(|until| until <= began_us) {
        return None;
    }
    Some(Hold {
        holder: hold.holder.clone(),
        from_us: hold.from_us.saturating_sub(began_us),
        until_us: hold.until_us.map(|until| until - began_us),
    })
}

fn lease(holds: &crate::holds::Holds, began_us: u64, end_us: u64) -> Lease {
    let all_us = end_us.saturating_sub(began_us).max(1) as f64;
    let (ours_us, longest_us) = holds.within(began_us, end_us, Hold::is_ours);
    let (others_us, _) = holds.within(began_us, end_us, |hold| !hold.is_ours());
    let counts = |hold: &&Hold| hold.is_ours() && hold.from_us >= began_us && hold.from_us < end_us;
    Lease {
        duty: ours_us as f64 / all_us,
        others: others_us as f64 / all_us,
        holds: holds.all().iter().filter(counts).count(),
        longest_hold_seconds: seconds(longest_us),
    }
}

fn manager((sums, longest_wait_us): (ccm::Counters, u64)) -> Manager {
    Manager {
        holds: sums.holds,
        lock_failures: sums.lock_failures,
        longest_wait_seconds: seconds(longest_wait_us),
        reconciled: sums.reconciled,
        failed: sums.failed,
        dropped: sums.dropped,
        writes: sums.writes,
    }
}

/// Returns the events of both API groups, each once: each group may also list the events of the other one.
fn all_events(cluster: &KubeModel) -> impl Iterator<Item = Value> {
    let mut inputs = BTreeSet::new();
    let both = cluster.list(Resource::Events).chain(cluster.list(Resource::EventsV1));
    both.filter(move |event| {
        let text = |key: &str| event["metadata"][key].as_str().unwrap_or_default().to_owned();
        inputs.insert((text("namespace"), text("name")))
    })
}

/// Returns the number of events of both API groups by reason, including repetitions.
pub(super) fn events_by_reason(cluster: &KubeModel) -> BTreeMap<String, u64> {
    let mut events = BTreeMap::new();
    for event in all_events(cluster) {
        let count = [&event["count"], &event["series"]["count"], &event["deprecatedCount"]];
        let count = count.into_iter().filter_map(Value::as_u64).max().unwrap_or(1).max(1);
        *events.entry(event["reason"].as_str().unwrap_or("unknown").to_owned()).or_default() += count;
    }
    events
}

/// Returns the distinct texts of the first Warning events.
pub(super) fn warnings(cluster: &KubeModel) -> Vec<String> {
    let mut messages = Vec::new();
    for event in all_events(cluster) {
        let message = event["message"].as_str().or(event["note"].as_str()).unwrap_or_default();
        if event["type"] == "Warning"
            && !messages.iter().any(|known| known == message)
            && messages.len() < NAMED
        {
            messages.push(message.to_owned());
        }
    }
    messages
}
