//! What a run showed: numbers for programs (JSON), a table and a verdict for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use simulator_models::kube::{KubeModel, Resource};

use crate::cluster::Cluster;
use crate::fakes::Fakes;
use crate::play::Outcome;
use crate::process::Usage;
use crate::truth::WrongPool;
use crate::world::World;

/// Wrong pools and warnings that a report names.
const NAMED: usize = 20;
/// The event of an attempt that failed and will be made again (E1).
const RETRYING: &str = "LoadBalancerBackendPoolUpdateRetrying";

/// The numbers of a run. Times are seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether every pool was right in the end.
    pub converged: bool,
    /// Pools that were not.
    pub wrong_pools: usize,
    /// All pools of Services.
    pub pools: usize,
    /// Services.
    pub services: usize,
    /// Load balancers.
    pub load_balancers: usize,
    /// Nodes.
    pub nodes: usize,
    /// Changes of pods, each one slice write per family.
    pub changes: u64,
    /// How long it took to make them.
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
    /// From the first change until all pools were right; nothing when they were not.
    pub first_event_to_converged_seconds: Option<f64>,
    /// The same for the pools of each load balancer; nothing for one of which a pool was not right.
    pub converged_seconds_by_load_balancer: BTreeMap<String, Option<f64>>,
    /// From a change that requires new members until all of its pool's required members were there.
    pub convergence_seconds: Convergence,
    /// Attempts that failed and were announced to be made again.
    pub retries: u64,
    /// Kubernetes Events by reason, repetitions counted.
    pub events: BTreeMap<String, u64>,
    /// User and system time of the service; nothing when it was not started here.
    pub cpu_seconds: Option<f64>,
    /// Most resident memory of the service.
    pub max_rss_bytes: Option<u64>,
    /// The seed of world and changes.
    pub seed: u64,
    /// How long the run took.
    pub duration_seconds: f64,
    /// The first of the wrong pools.
    pub wrong_pool_details: Vec<WrongPool>,
    /// What the first Warning events say, each text once.
    pub warnings: Vec<String>,
}

/// How long changes took, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Convergence {
    /// How many were measured.
    pub count: usize,
    /// How many were still not there in the end.
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
    /// Gathers the numbers of a run that has ended.
    pub async fn gather(
        fakes: &Fakes,
        world: &World,
        outcome: Outcome,
        usage: Option<Usage>,
        seed: u64,
        began_us: u64,
    ) -> Self {
        let (arm, pools, waits_us, waiting, to_right_us, by_balancer) = fakes
            .azure
            .ask(|azure, _| {
                let ledger = &azure.ledger;
                let to_right = ledger.first_change_to_right_us();
                let by_balancer = ledger.first_change_to_right_by_load_balancer_us();
                let counters = azure.model.counters();
                (counters, ledger.pools(), ledger.waits_us(), ledger.waiting(), to_right, by_balancer)
            })
            .await;
        let told = |cluster: &mut Cluster, _| (events_by_reason(&cluster.model), warnings(&cluster.model));
        let (events, warnings) = fakes.cluster.ask(told).await;
        let converged = outcome.wrong.is_empty();
        Self {
            converged,
            wrong_pools: outcome.wrong.len(),
            pools,
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
            first_event_to_converged_seconds: to_right_us.filter(|_| converged).map(seconds),
            converged_seconds_by_load_balancer: by_balancer
                .into_iter()
                .map(|(lb, took)| (lb, took.map(seconds)))
                .collect(),
            convergence_seconds: Convergence::of(&waits_us, waiting),
            retries: events.get(RETRYING).copied().unwrap_or(0),
            events,
            cpu_seconds: usage.map(|usage| usage.cpu_seconds),
            max_rss_bytes: usage.map(|usage| usage.max_rss_bytes),
            seed,
            duration_seconds: seconds(fakes.clock().now_us().saturating_sub(began_us)),
            wrong_pool_details: outcome.wrong.into_iter().take(NAMED).collect(),
            warnings,
        }
    }

    /// Whether the service did its job: everything right, and no two PUTs of one load balancer at a time.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.converged && self.wrong_pools == 0 && self.max_concurrent_puts_per_lb <= 1
    }

    /// The report as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("a report holds only text, numbers and lists");
        text + "\n"
    }

    /// The report as a table with a verdict.
    #[must_use]
    pub fn text(&self) -> String {
        let mut rows: Vec<(String, String)> = Vec::new();
        let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
        row(
            "world",
            format!(
                "{} Services, {} pools, {} load balancers, {} nodes",
                self.services, self.pools, self.load_balancers, self.nodes
            ),
        );
        row(
            "changes",
            format!("{} in {} (seed {})", self.changes, span(Some(self.changing_seconds)), self.seed),
        );
        row(
            "all pools right",
            match self.first_event_to_converged_seconds {
                Some(seconds) => format!("{seconds:.3} s after the first change"),
                None if self.converged => "from the beginning".to_owned(),
                None => "never".to_owned(),
            },
        );
        let took = &self.convergence_seconds;
        row(
            "new members there",
            format!(
                "p50 {}, p99 {}, max {} ({} changes, {} still waiting)",
                span(took.p50),
                span(took.p99),
                span(took.max),
                took.count,
                took.waiting
            ),
        );
        row("ARM calls", format!("{} GET, {} PUT, {} polls", self.arm_gets, self.arm_puts, self.arm_polls));
        row(
            "ARM refusals",
            format!(
                "{} throttled, {} etag mismatches, {} locked, {} superseded",
                self.arm_throttled, self.arm_etag_mismatches, self.arm_refused_by_lock, self.arm_superseded
            ),
        );
        row("PUTs at once per LB", format!("at most {}", self.max_concurrent_puts_per_lb));
        for (reason, count) in &self.events {
            row("event", format!("{count} × {reason}"));
        }
        if let (Some(cpu), Some(rss)) = (self.cpu_seconds, self.max_rss_bytes) {
            row("service", format!("{cpu:.2} s CPU, {:.1} MiB at most", rss as f64 / 1_048_576.0));
        }
        for wrong in &self.wrong_pool_details {
            row(
                "wrong pool",
                format!(
                    "{}/{} missing {:?} unwanted {:?}",
                    wrong.load_balancer, wrong.pool, wrong.missing, wrong.unwanted
                ),
            );
        }
        if !self.passed() {
            for warning in &self.warnings {
                rows.push(("warning".to_owned(), warning.clone()));
            }
        }
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for (name, value) in rows {
            writeln!(text, "{name:width$}  {value}").expect("writing to a string cannot fail");
        }
        text + "\n" + &self.verdict() + "\n"
    }

    fn verdict(&self) -> String {
        if self.passed() {
            return format!("PASSED: all {} pools are right.", self.pools);
        }
        let mut reasons = Vec::new();
        if self.wrong_pools > 0 || !self.converged {
            reasons.push(format!("{} of {} pools are wrong", self.wrong_pools, self.pools));
        }
        if self.max_concurrent_puts_per_lb > 1 {
            reasons
                .push(format!("{} PUTs ran at once on one load balancer", self.max_concurrent_puts_per_lb));
        }
        format!("FAILED: {}.", reasons.join("; "))
    }
}

/// The events of both groups by reason; one that stands for several counts as often as it says.
fn events_by_reason(cluster: &KubeModel) -> BTreeMap<String, u64> {
    let mut events = BTreeMap::new();
    for event in cluster.list(Resource::Events).chain(cluster.list(Resource::EventsV1)) {
        let count = [&event["count"], &event["series"]["count"], &event["deprecatedCount"]];
        let count = count.into_iter().filter_map(serde_json::Value::as_u64).max().unwrap_or(1).max(1);
        *events.entry(event["reason"].as_str().unwrap_or("unknown").to_owned()).or_default() += count;
    }
    events
}

/// What the first Warning events say, each text once.
fn warnings(cluster: &KubeModel) -> Vec<String> {
    let mut said = Vec::new();
    for event in cluster.list(Resource::Events).chain(cluster.list(Resource::EventsV1)) {
        let message = event["message"].as_str().or(event["note"].as_str()).unwrap_or_default();
        if event["type"] == "Warning" && !said.iter().any(|known| known == message) && said.len() < NAMED {
            said.push(message.to_owned());
        }
    }
    said
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn span(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.3} s"))
}

#[cfg(test)]
mod tests;
