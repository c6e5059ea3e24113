//! The results of a run: numbers for programs (JSON), a table and a verdict for operators, and a page with pictures.

mod drain;
mod html;
mod lanes;
mod measure;
mod plot;
mod table;
mod watched;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::post_run_checks::PostRunChecks;
use crate::truth::OutOfSyncPool;

pub use drain::{DrainReport, Drained, Times};
pub use measure::RunInfo;

use measure::Picture;

/// Wrong pools and warnings that a report names.
const NAMED: usize = 20;
/// Names of the verdicts where a report has two.
const SERVICE: &str = "The controller";
const UPSTREAM: &str = "Upstream's updater";

/// The numbers of a run. Times are seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// True if every pool, and the admin state of every entry, was in sync at the end.
    pub converged: bool,
    /// Pools that were not.
    pub wrong_pools: usize,
    /// All pools of Services.
    pub pools: usize,
    /// The name of the scenario; nothing where the command line alone made it.
    pub scenario: Option<String>,
    /// Speed of the story, as a multiple of that of its file. All times are those of the clock on the wall.
    pub speed: u32,
    /// Services.
    pub services: usize,
    /// Load balancers.
    pub load_balancers: usize,
    /// Nodes.
    pub nodes: usize,
    /// Changes of pods, each one slice write per family.
    pub changes: u64,
    /// Time that it took to make them.
    pub changing_seconds: f64,
    /// GETs of load balancers and pools.
    pub arm_gets: u64,
    /// PUTs of pools, whatever their answer.
    pub arm_puts: u64,
    /// GETs of operations.
    pub arm_polls: u64,
    /// Requests that ARM refused for a quota.
    pub arm_throttled: u64,
    /// PUTs that ARM refused because the load balancer had been written since.
    pub arm_etag_mismatches: u64,
    /// PUTs that ARM refused because another write held the load balancer.
    pub arm_refused_by_lock: u64,
    /// Operations that a later PUT canceled.
    pub arm_superseded: u64,
    /// Most PUTs that waited for their answer on one load balancer at the same time; must not exceed 1.
    pub max_concurrent_puts_per_lb: u64,
    /// Number of times a pool lost its last member while its Service required some.
    pub emptied_pools: usize,
    /// Time for which pools had no member that could serve though their Services had endpoints.
    pub unserved: Unserved,
    /// Results for the nodes that left service.
    pub admin_state: DrainReport,
    /// Number of times ARM reset a member's flows because its admin state became `Down`.
    pub flows_reset: u64,
    /// Time that one write takes of a lane at the median: its read, its answer, and its operation as polls at
    /// Retry-After see its end. Computed from ARM's knobs, not measured.
    pub lane_turn_seconds: f64,
    /// The shared Lease.
    pub lease: Lease,
    /// The cloud-controller-manager's sums; nothing when it did not run.
    pub ccm: Option<Manager>,
    /// From the first change until all pools were in sync; nothing when they were not.
    pub first_event_to_converged_seconds: Option<f64>,
    /// The same for the pools of each load balancer; nothing for one of which a pool was out of sync.
    pub converged_seconds_by_load_balancer: BTreeMap<String, Option<f64>>,
    /// From a change that requires new members until all of its pool's required members were there.
    pub convergence_seconds: Convergence,
    /// From a change that no longer wants a member until the member was gone; `members.removalDelay` is part of it.
    pub removal_seconds: Convergence,
    /// `members.removalDelay`.
    pub removal_delay_seconds: f64,
    /// Attempts that failed and were announced to be made again.
    pub retries: u64,
    /// Kubernetes Events by reason, repetitions counted.
    pub events: BTreeMap<String, u64>,
    /// User and system time of the controller; nothing when it was not started here.
    pub cpu_seconds: Option<f64>,
    /// Most resident memory of the controller.
    pub max_rss_bytes: Option<u64>,
    /// The seed of world and changes.
    pub seed: u64,
    /// Duration of the run.
    pub duration_seconds: f64,
    /// The first of the pools out of sync.
    pub wrong_pool_details: Vec<OutOfSyncPool>,
    /// Texts of the first Warning events, each once.
    pub warnings: Vec<String>,
    /// Acts of the story without an effect on any client, so that the run shows nothing of them: a failure.
    pub unreached: Vec<String>,
    /// Results of the checks of the controller; nothing where none was started here.
    #[serde(flatten)]
    pub checks: Option<PostRunChecks>,
    /// The same story with upstream's updater in the controller's place; nothing where it was not asked for.
    pub upstream: Option<Box<Report>>,
    /// Data of the pictures.
    #[serde(skip)]
    picture: Picture,
}

/// Time for which pools had no serving member: none that gets new connections on a node with an endpoint that is not
/// terminating. It lasts from the change to the write, and so every Service that comes back from nothing has some of
/// it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Unserved {
    /// Number of pools.
    pub pools: usize,
    /// The longest sum of one of them, in seconds.
    pub longest_seconds: f64,
    /// The sum of all, in seconds.
    pub total_seconds: f64,
    /// The first of them, the longest first, as `load-balancer/pool` with its seconds.
    pub worst: Vec<(String, f64)>,
}

/// Holders of the shared Lease, from the start until all pools were in sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Lease {
    /// The part of the time in which the controller held it, from 0 to 1.
    pub duty: f64,
    /// The part of the time in which another client held it.
    pub others: f64,
    /// Number of times the controller took it.
    pub holds: usize,
    /// The longest of these holds in seconds: for so long at most no other client could have it because of the controller.
    pub longest_hold_seconds: f64,
}

/// Counts of the model of the cloud-controller-manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Manager {
    /// Locks taken.
    pub holds: u64,
    /// Locks not got.
    pub lock_failures: u64,
    /// The longest time from the first of several failures in a row until the lock was got, its own pauses included.
    pub longest_wait_seconds: f64,
    /// Services reconciled.
    pub reconciled: u64,
    /// Reconciles that failed.
    pub failed: u64,
    /// Changes that its updater dropped for good because Azure refused them.
    pub dropped: u64,
    /// Writes.
    pub writes: u64,
}

/// Times of changes, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Convergence {
    /// Number of measured values.
    pub count: usize,
    /// Number that still waited in the end.
    pub waiting: usize,
    /// Half of them took no longer.
    pub p50: Option<f64>,
    /// 99 of 100 took no longer.
    pub p99: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
}

impl Convergence {
    /// From sorted waiting times in microseconds.
    #[must_use]
    pub fn of(sorted_us: &[u64], waiting: usize) -> Self {
        let at = |percent: usize| {
            let rank = (sorted_us.len() * percent).div_ceil(100).max(1);
            sorted_us.get(rank - 1).map(|us| seconds(*us))
        };
        Self { count: sorted_us.len(), waiting, p50: at(50), p99: at(99), max: at(100) }
    }
}

impl Report {
    /// Returns whether the controller did its job: everything in sync, no two PUTs of one load balancer at a time, as
    /// many nodes cut off in time as the story expects, and nothing left behind that should not be.
    #[must_use]
    pub fn passed(&self) -> bool {
        let converged = self.converged && self.wrong_pools == 0;
        converged
            && self.max_concurrent_puts_per_lb <= 1
            && self.unreached.is_empty()
            && self.admin_state.is_as_expected()
            && self.checks.as_ref().is_none_or(PostRunChecks::is_clean)
    }

    /// Returns the report as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("a report holds only text, numbers and lists");
        text + "\n"
    }

    /// Returns the report as a table with a verdict; upstream's above it, where it was played.
    #[must_use]
    pub fn text(&self) -> String {
        table::text(self)
    }

    /// Returns the report as a page that needs nothing else.
    #[must_use]
    pub fn html(&self) -> String {
        html::page(self)
    }

    /// Returns the problems that the controller has left, in words.
    fn leftovers(&self) -> Vec<String> {
        let Some(checks) = &self.checks else { return Vec::new() };
        let PostRunChecks { log_errors, log_missing, queue_depth_end, guards_wrong, .. } = checks;
        let mut left = guards_wrong.clone();
        if let Some(errors) = log_errors.as_ref().filter(|errors| !errors.is_empty()) {
            left.push(format!("the log has unexpected errors, such as {}", errors[0]));
        }
        if let Some(text) = log_missing.first() {
            left.push(format!("the log lacks the expected error {text:?}"));
        }
        match queue_depth_end {
            Some(0) => {}
            Some(depth) => left.push(format!("the queue depth is still {depth}")),
            None => left.push("the controller did not report what still waits".to_owned()),
        }
        left
    }

    /// Returns one sentence: whether the controller did its job, and if not why.
    #[must_use]
    pub fn verdict(&self) -> String {
        if self.passed() {
            return format!("PASSED: all {} pools are in sync.", self.pools);
        }
        let mut reasons = Vec::new();
        let DrainReport { wrong_entries, reached_in_time, reached_expected, .. } = &self.admin_state;
        if self.wrong_pools > 0 || !self.converged && *wrong_entries == 0 {
            reasons.push(format!("{} of {} pools are out of sync", self.wrong_pools, self.pools));
        }
        if *wrong_entries > 0 {
            reasons.push(format!("{wrong_entries} entries have a wrong admin state"));
        }
        if let Some(least) = reached_expected.filter(|least| reached_in_time < least) {
            reasons.push(format!("{reached_in_time} nodes were reached in time, not {least}"));
        }
        if self.max_concurrent_puts_per_lb > 1 {
            reasons
                .push(format!("{} PUTs ran at once on one load balancer", self.max_concurrent_puts_per_lb));
        }
        reasons.extend(self.unreached.iter().map(|words| format!("`{words}` had no effect")));
        reasons.extend(self.leftovers());
        format!("FAILED: {}.", reasons.join("; "))
    }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

#[cfg(test)]
mod tests;
