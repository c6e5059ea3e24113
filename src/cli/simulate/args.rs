//! The flags of `simulate`, and the scenario that they select and change.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use model::redact::Printable;
use simulator::models::arm::{Fault, Latency};
use simulator::{CcmMode, FileOptions, NAMED, Pattern, Scenario, merge_overlay};

use super::us;

/// Default time for the pools to become in sync, in addition to `--duration`.
const SETTLE: Duration = Duration::from_secs(120);
/// Default of `--rate`, in changes per second.
const RATE: f64 = 5.0;
/// Default of `--duration`.
const DURATION: Duration = Duration::from_secs(60);

/// The flags of `simulate`, which override the scenario.
#[derive(Args, Debug)]
pub(in crate::cli) struct SimulateArgs {
    /// A scenario, by name or as a file (see docs/simulator.md); `list` prints the names.
    #[arg(long, value_name = "NAME|FILE")]
    scenario: Option<String>,
    /// Services of type LoadBalancer with externalTrafficPolicy Local, each with a backend pool of its own [default: 200].
    #[arg(long)]
    services: Option<usize>,
    /// Load balancers, over which the Services are spread [default: 5].
    #[arg(long, value_parser = at_least_one)]
    load_balancers: Option<usize>,
    /// Nodes [default: 50].
    #[arg(long, value_parser = at_least_one)]
    nodes: Option<usize>,
    /// Pods of each Service at the start [default: 3].
    #[arg(long, value_parser = at_least_one)]
    endpoints: Option<usize>,
    /// Gives nodes and Services both IP families.
    #[arg(long)]
    dual_stack: bool,
    /// How long Pods keep changing; for a rollout, the time within which all Services begin [default: 60s].
    #[arg(long, value_parser = simulator::duration)]
    duration: Option<Duration>,
    /// Changes per second [default: 5].
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// How Pods change: evenly all the time (churn, the default), every Service five times within one second (burst),
    /// or a rolling restart of all Services (rollout).
    #[arg(long, value_enum)]
    pattern: Option<PatternName>,
    /// Simulates a cloud-controller-manager: off (the default), on, or on with its own updater.
    #[arg(long, value_parser = CcmMode::parse, value_name = "off|on|updater")]
    ccm: Option<CcmMode>,
    /// The seed of all random choices.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Divides the times of the scenario, of ARM and of the controller by this factor, except Lease durations and fixed
    /// times (see docs/simulator.md).
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) speed: u32,
    /// ARM's latency of reads: a duration, or MEDIAN..P95 [default: 20ms].
    #[arg(long, value_parser = simulator::latency)]
    arm_get_latency: Option<Latency>,
    /// ARM's latency of writes [default: 100ms].
    #[arg(long, value_parser = simulator::latency)]
    arm_put_latency: Option<Latency>,
    /// The duration of the operation that a write starts; 0 (the default): the write completes with its answer.
    #[arg(long, value_parser = simulator::latency)]
    arm_operation: Option<Latency>,
    /// The Retry-After of answers that start an operation, in seconds [default: 10].
    #[arg(long)]
    retry_after: Option<u32>,
    /// The controller's members.removalDelay [default: that of the controller].
    #[arg(long, value_parser = simulator::duration)]
    removal_delay: Option<Duration>,
    /// A fault of ARM, such as "put 409 every 20" or "put 429 every 4 retry-after 2 on lb-2" (see docs/simulator.md);
    /// may be given several times.
    #[arg(long, value_parser = simulator::fault)]
    fault: Vec<Fault>,
    /// How long to wait, after the last change, until every pool is in sync. The run then fails [default: --duration plus
    /// 120 s].
    #[arg(long, value_parser = simulator::duration)]
    settle: Option<Duration>,
    /// Fails the run if a pool is out of sync later than this (real time) after the first change.
    #[arg(long, value_parser = simulator::duration)]
    pub(super) within: Option<Duration>,
    /// Also runs the same scenario with cloud-provider-azure's updater, in simulated time, and reports both.
    #[arg(long, conflicts_with = "speed")]
    pub(super) compare_upstream: bool,
    /// Output format of the report.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(super) report: ReportFormat,
    /// Writes the report to this file instead of standard output.
    #[arg(long)]
    pub(super) output: Option<PathBuf>,
    /// Also writes the report to this file, as HTML.
    #[arg(long)]
    pub(super) html: Option<PathBuf>,
    /// Ends after the report; by default everything keeps running until Ctrl-C.
    #[arg(long)]
    pub(super) exit_when_done: bool,
    /// The address of the controller's admin API.
    #[arg(long, default_value = "127.0.0.1:8081")]
    pub(super) listen: SocketAddr,
    /// A file with keys of controller.yaml, which override those of the simulation.
    #[arg(long)]
    controller_config: Option<PathBuf>,
    /// The folder for the configuration and the log [default: a new temporary folder].
    #[arg(long)]
    pub(super) folder: Option<PathBuf>,
    /// Shows the controller's log instead of writing it to a file.
    #[arg(long)]
    pub(super) verbose: bool,
    /// Starts only ARM and Kubernetes, for a controller that you start; Pods change until Ctrl-C.
    #[arg(long)]
    pub(super) serve_only: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum PatternName {
    Churn,
    Burst,
    Rollout,
}

/// Output format of the report.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportFormat {
    Text,
    Json,
    Html,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|_| "not a whole number".to_owned())?;
    if number == 0 { Err("must be at least 1".to_owned()) } else { Ok(number) }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=100_000.0).contains(&rate) { Ok(rate) } else { Err("must be between 0 and 100000".to_owned()) }
}

/// Returns the names of all scenarios.
pub(super) fn scenario_names() -> impl Iterator<Item = Printable> {
    NAMED.into_iter().map(|(name, _)| printable!("{name}"))
}

impl SimulateArgs {
    /// Returns whether only the names of the scenarios are requested.
    pub(super) fn lists_names(&self) -> bool {
        self.scenario.as_deref() == Some("list")
    }

    /// Returns the scenario with the changes by the flags.
    pub(super) fn scenario(&self) -> anyhow::Result<Scenario> {
        let mut scenario = self.load_scenario()?;
        let size = &mut scenario.size;
        size.services = self.services.unwrap_or(size.services);
        size.load_balancers = self.load_balancers.unwrap_or(size.load_balancers);
        size.nodes = self.nodes.unwrap_or(size.nodes);
        size.endpoints = self.endpoints.unwrap_or(size.endpoints);
        size.dual_stack |= self.dual_stack;
        scenario.pattern = self.pattern(scenario.pattern);
        scenario.ccm_mode = self.ccm.unwrap_or(scenario.ccm_mode);
        if let (Some(duration), None) = (self.duration, &self.scenario) {
            scenario.settle = duration + SETTLE;
        }
        scenario.settle = self.settle.unwrap_or(scenario.settle);
        let arm = &mut scenario.arm;
        arm.seed = self.seed;
        arm.get_latency = self.arm_get_latency.unwrap_or(arm.get_latency);
        arm.put_latency = self.arm_put_latency.unwrap_or(arm.put_latency);
        arm.operation = match self.arm_operation {
            None => arm.operation,
            Some(Latency::Fixed { us: 0 }) => None,
            Some(other @ (Latency::Fixed { .. } | Latency::LogNormal { .. })) => Some(other),
        };
        arm.operation_retry_after_s = self.retry_after.or(arm.operation_retry_after_s);
        arm.faults.extend(self.fault.iter().cloned());
        if let Some(path) = &self.controller_config {
            let text = std::fs::read_to_string(path);
            let text = text.with_context(|| format!("failed to read {}", path.display()))?;
            let keys = FileOptions::overlay(&text);
            let keys = keys.with_context(|| format!("failed to use {}", path.display()))?;
            merge_overlay(&mut scenario.controller, &keys);
        }
        if let Some(delay) = self.removal_delay {
            scenario.controller["members"]["removalDelay"] = format!("{}ms", delay.as_millis()).into();
        }
        Ok(scenario)
    }

    fn load_scenario(&self) -> anyhow::Result<Scenario> {
        let Some(name) = &self.scenario else { return Ok(Scenario::default()) };
        if let Some(scenario) = Scenario::named(name) {
            return Ok(scenario?);
        }
        let text = match std::fs::read_to_string(name) {
            Ok(text) => text,
            Err(error) => {
                let scenario_names = NAMED.map(|(name, _)| name).join(", ");
                bail!("`{name}` is neither a scenario ({scenario_names}) nor a readable file: {error}")
            }
        };
        let scenario = Scenario::read(&text).with_context(|| format!("failed to use {name}"))?;
        Ok(Scenario { name: Some(name.clone()), ..scenario })
    }

    /// Returns the pattern that the flags choose, or the default of the scenario.
    fn pattern(&self, default: Pattern) -> Pattern {
        let duration_us = self.duration.map(us);
        let pattern = match self.pattern {
            None => default,
            Some(PatternName::Burst) => Pattern::Burst,
            Some(PatternName::Churn) => Pattern::Churn { rate: RATE, duration_us: us(DURATION) },
            Some(PatternName::Rollout) => Pattern::Rollout { within_us: us(DURATION), step_us: 2_000_000 },
        };
        match pattern {
            Pattern::Churn { rate, duration_us: told_us } => {
                let rate = self.rate.unwrap_or(rate);
                if rate == 0.0 {
                    return Pattern::Still;
                }
                Pattern::Churn { rate, duration_us: duration_us.unwrap_or(told_us) }
            }
            Pattern::Rollout { within_us, step_us } => {
                Pattern::Rollout { within_us: duration_us.unwrap_or(within_us), step_us }
            }
            Pattern::Recreate { within_us, step_us } => {
                Pattern::Recreate { within_us: duration_us.unwrap_or(within_us), step_us }
            }
            Pattern::Burst | Pattern::Still => pattern,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use serde_json::json;
    use simulator::Size;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SimulateArgs,
    }

    fn args(line: &[&str]) -> SimulateArgs {
        let command_line = ["simulate"].into_iter().chain(line.iter().copied());
        Line::try_parse_from(command_line).unwrap().args
    }

    #[test]
    fn z2_without_flags_writes_are_synchronous_with_defaults() {
        let scenario = args(&[]).scenario().unwrap();
        assert_eq!(scenario.arm.operation, None);
        assert_eq!(scenario.size, Size::default());
        assert_eq!(scenario.controller, json!({}));
        assert_eq!(scenario.pattern, Pattern::Churn { rate: 5.0, duration_us: 60_000_000 });
        assert_eq!((scenario.settle, scenario.ccm_mode), (Duration::from_secs(180), CcmMode::Off));
    }

    #[test]
    fn z2_flags_reach_arm_and_the_pattern() {
        let line = [
            "--arm-operation",
            "5s..20s",
            "--retry-after",
            "1",
            "--fault",
            "put 409 every 20",
            "--rate",
            "0",
        ];
        let scenario = args(&line).scenario().unwrap();
        let operation = Latency::LogNormal { median_us: 5_000_000, p95_us: 20_000_000 };
        assert_eq!(
            (scenario.arm.operation, scenario.arm.operation_retry_after_s),
            (Some(operation), Some(1))
        );
        assert_eq!((scenario.arm.faults.len(), scenario.arm.faults[0].every), (1, 20));
        assert_eq!(scenario.pattern, Pattern::Still);
        let scenario =
            args(&["--duration", "10s", "--pattern", "rollout", "--ccm", "updater"]).scenario().unwrap();
        assert_eq!(scenario.pattern, Pattern::Rollout { within_us: 10_000_000, step_us: 2_000_000 });
        assert_eq!(
            (scenario.settle, scenario.ccm_mode),
            (Duration::from_secs(130), CcmMode::ManagerAndUpdater)
        );
    }

    #[test]
    fn z2_flags_win_over_the_scenario_and_leave_the_rest_of_it() {
        let default = args(&["--scenario", "realistic"]).scenario().unwrap();
        assert_eq!((default.size.services, default.ccm_mode), (200, CcmMode::Manager));
        let scenario =
            args(&["--scenario", "realistic", "--services", "20", "--ccm", "off"]).scenario().unwrap();
        assert_eq!((scenario.size.services, scenario.ccm_mode), (20, CcmMode::Off));
        assert_eq!((scenario.size.load_balancers, scenario.arm.operation), (10, default.arm.operation));
        assert_eq!((scenario.pattern, scenario.settle), (default.pattern, default.settle));
    }

    #[test]
    fn z2_an_unknown_scenario_is_refused_with_the_known_names() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("own.txt");
        std::fs::write(&file, "services 7\nat 1s arm down\nat 2s arm sideways\n").unwrap();
        let error = args(&["--scenario", file.to_str().unwrap()]).scenario().unwrap_err();
        assert!(format!("{error:#}").contains("line 3: `at 2s arm sideways`"), "{error:#}");
        std::fs::write(&file, "services 7\nat 1s arm down\n").unwrap();
        let scenario = args(&["--scenario", file.to_str().unwrap()]).scenario().unwrap();
        assert_eq!((scenario.size.services, scenario.timeline.len()), (7, 1));
        let unknown = args(&["--scenario", "no-such-thing"]).scenario().unwrap_err();
        assert!(unknown.to_string().contains("etcd-restored"), "{unknown}");
    }

    #[test]
    fn z2_the_removal_delay_of_the_command_line_wins_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("controller.yaml");
        std::fs::write(&file, "members: {removalDelay: 9s, add: ready}\n").unwrap();
        let file = file.to_str().unwrap();
        let scenario = args(&["--controller-config", file, "--removal-delay", "0"]).scenario().unwrap();
        assert_eq!(scenario.controller, json!({"members": {"removalDelay": "0ms", "add": "ready"}}));
    }

    #[test]
    fn z2_speed_divides_all_times_except_those_of_the_leases() {
        let reference = include_str!("../../../config/reference.yaml");
        let mut path: Vec<&str> = Vec::new();
        let mut is_time = false;
        let mut found: Vec<String> = Vec::new();
        for line in reference.lines() {
            let text = line.trim_start().trim_start_matches("# ");
            let depth = (line.len() - line.trim_start().len()) / 2;
            if let Some(value) = text.strip_prefix("Value: ") {
                is_time = value.starts_with("a duration");
            }
            let Some((key, _)) = text.split_once(':').filter(|(key, _)| {
                key.chars().all(|c| c.is_ascii_alphanumeric())
                    && key.starts_with(|c: char| c.is_ascii_lowercase())
            }) else {
                continue;
            };
            path.truncate(depth);
            path.push(key);
            let name = path.join(".");
            if std::mem::take(&mut is_time) && !name.starts_with("lease.") {
                found.push(name);
            }
        }
        found.sort();
        let mut divided: Vec<&str> = simulator::TIMES.iter().map(|(key, ..)| *key).collect();
        divided.sort_unstable();
        assert_eq!(found, divided, "simulator::TIMES names every time of config/reference.yaml");
    }
}
