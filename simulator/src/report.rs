//! The results of a run: JSON for programs, a table and a verdict for operators, and a page with charts.

mod drain;
mod html;
mod lanes;
mod measure;
mod plot;
mod table;
mod watched;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::expected_members::OutOfSyncPool;
use crate::post_run_checks::PostRunChecks;

pub use drain::{DrainReport, Times};
pub use measure::RunInfo;

use measure::Picture;

/// Maximum number of listed pools and warnings.
const NAMED: usize = 20;
/// Names of the verdicts in a report with two.
const SERVICE: &str = "The controller";
const UPSTREAM: &str = "Upstream's updater";

/// The results of a run. Times are seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// True if every pool, and the admin state of every entry, was in sync at the end.
    pub converged: bool,
    /// Number of pools out of sync at the end.
    pub wrong_pools: usize,
    /// All pools of Services.
    pub pools: usize,
    /// The name of the scenario; `None` if it consists only of command-line flags.
    pub scenario: Option<String>,
    /// Speed of the scenario, as a multiple of the speed in its file. All times are real times.
    pub speed: u32,
    /// Services.
    pub services: usize,
    /// Load balancers.
    pub load_balancers: usize,
    /// Nodes.
    pub nodes: usize,
    /// Changes of pods, each one slice write per family.
    pub changes: u64,
    /// Duration of the changes.
    pub changing_seconds: f64,
    /// GETs of load balancers and pools.
    pub arm_gets: u64,
    /// PUTs of pools, with any answer.
    pub arm_puts: u64,
    /// GETs of operations.
    pub arm_polls: u64,
    /// Requests that ARM refused for a quota.
    pub arm_throttled: u64,
    /// PUTs that ARM refused because of a changed etag.
    pub arm_etag_mismatches: u64,
    /// PUTs that ARM refused because of another write to the load balancer.
    pub arm_refused_by_lock: u64,
    /// Operations that a later PUT canceled.
    pub arm_superseded: u64,
    /// Maximum number of concurrent PUTs of one load balancer; must not exceed 1.
    pub max_concurrent_puts_per_lb: u64,
    /// Number of times a pool lost its last member while its Service required some.
    pub emptied_pools: usize,
    /// Time for which pools had no serving member although their Services had endpoints.
    pub unserved: Unserved,
    /// Results for the drained nodes.
    pub admin_state: DrainReport,
    /// Number of times ARM reset a member's flows because its admin state became `Down`.
    pub flows_reset: u64,
    /// Median time that one write occupies a lane: read, answer, and operation, whose end is seen by polls at
    /// Retry-After. Computed from ARM's settings, not measured.
    pub lane_turn_seconds: f64,
    /// The shared Lease.
    pub lease: Lease,
    /// The cloud-controller-manager's sums; `None` if it did not run.
    pub ccm: Option<Manager>,
    /// Time from the first change until all pools were in sync; `None` if they were not.
    pub first_event_to_converged_seconds: Option<f64>,
    /// The same for the pools of each load balancer; `None` if one of its pools was out of sync.
    pub converged_seconds_by_load_balancer: BTreeMap<String, Option<f64>>,
    /// Times from a change that requires new members until the pool had all required members.
    pub convergence_seconds: Convergence,
    /// Times from a change that no longer requires a member until its removal, including `members.removalDelay`.
    pub removal_seconds: Convergence,
    /// `members.removalDelay`.
    pub removal_delay_seconds: f64,
    /// Failed attempts with an announced retry.
    pub retries: u64,
    /// Number of Kubernetes Events by reason, including repetitions.
    pub events: BTreeMap<String, u64>,
    /// User and system time of the controller; `None` if it was not started here.
    pub cpu_seconds: Option<f64>,
    /// Peak resident memory of the controller.
    pub max_rss_bytes: Option<u64>,
    /// The seed of the cluster and of the changes.
    pub seed: u64,
    /// Duration of the run.
    pub duration_seconds: f64,
    /// The first of the pools out of sync.
    pub wrong_pool_details: Vec<OutOfSyncPool>,
    /// Distinct texts of the first Warning events.
    pub warnings: Vec<String>,
    /// Actions without an effect on any client, which is a failure: the run does not test them.
    pub unreached: Vec<String>,
    /// Results of the checks of the controller; `None` if it was not started here.
    #[serde(flatten)]
    pub checks: Option<PostRunChecks>,
    /// Results of the same scenario with upstream's updater; `None` if not requested.
    pub upstream: Option<Box<Report>>,
    /// Data of the charts.
    #[serde(skip)]
    picture: Picture,
}

/// Time for which pools had no serving member: none that gets new connections on a node with an endpoint that is not
/// terminating. It lasts from the change to the write, so every Service that scales up from zero has some.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Unserved {
    /// Number of pools.
    pub pools: usize,
    /// The longest total time of one pool, in seconds.
    pub longest_seconds: f64,
    /// The total time of all pools, in seconds.
    pub total_seconds: f64,
    /// The pools with the longest times, as `load-balancer/pool` with seconds.
    pub worst: Vec<(String, f64)>,
}

/// Holders of the shared Lease, from the start until all pools were in sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Lease {
    /// Share of the time in which the controller held it, from 0 to 1.
    pub duty: f64,
    /// Share of the time in which another client held it.
    pub others: f64,
    /// Number of the controller's holds.
    pub holds: usize,
    /// The longest of these holds, in seconds: the maximum time for which the controller blocked other clients.
    pub longest_hold_seconds: f64,
}

/// Counts of the model of the cloud-controller-manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Manager {
    /// Acquired locks.
    pub holds: u64,
    /// Failures to acquire the lock.
    pub lock_failures: u64,
    /// The longest time from the first of several consecutive failures until the lock was acquired, including pauses.
    pub longest_wait_seconds: f64,
    /// Services reconciled.
    pub reconciled: u64,
    /// Reconciles that failed.
    pub failed: u64,
    /// Changes that its updater dropped because Azure refused them.
    pub dropped: u64,
    /// Writes.
    pub writes: u64,
}

/// Times of changes, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Convergence {
    /// Number of measured values.
    pub count: usize,
    /// Number of waits at the end.
    pub waiting: usize,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
}

impl Convergence {
    /// Computes percentiles of sorted waits in microseconds.
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
    /// Returns whether the run passed: everything in sync, no concurrent PUTs of one load balancer, the expected number
    /// of nodes drained in time, and all checks passed.
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

    /// Returns the report as a table with a verdict, after the report of upstream, if any.
    #[must_use]
    pub fn text(&self) -> String {
        table::text(self)
    }

    /// Returns the report as a self-contained page.
    #[must_use]
    pub fn html(&self) -> String {
        html::page(self)
    }

    /// Returns texts about the failed checks.
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

    /// Returns one sentence with the result and the reasons of a failure.
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
