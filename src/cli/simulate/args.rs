//! The flags of `simulate`, and the story that they and a scenario make together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use model::redact::Printable;
use simulator::models::arm::{Fault, Latency};
use simulator::{Beside, FileOptions, NAMED, Pattern, Story, lay_over};

use super::us;

/// What the pools get on top of the duration to become right, where nothing else is said.
const SETTLE: Duration = Duration::from_secs(120);
/// Changes per second, where nothing else is said.
const RATE: f64 = 5.0;
/// For how long pods change, where nothing else is said.
const DURATION: Duration = Duration::from_secs(60);

/// The flags of `simulate`. What a flag says wins over the scenario.
#[derive(Args, Debug)]
pub(in crate::cli) struct SimulateArgs {
    /// A scenario: one of those with a name, or a file (docs/simulator.md has both). `list` prints the names.
    #[arg(long, value_name = "NAME|FILE")]
    scenario: Option<String>,
    /// Services of type LoadBalancer with local traffic, each with a backend pool of its own [default: 200].
    #[arg(long)]
    services: Option<usize>,
    /// Load balancers, over which the Services are spread [default: 5].
    #[arg(long, value_parser = at_least_one)]
    load_balancers: Option<usize>,
    /// Nodes [default: 50].
    #[arg(long, value_parser = at_least_one)]
    nodes: Option<usize>,
    /// Pods behind each Service at the beginning [default: 3].
    #[arg(long, value_parser = at_least_one)]
    endpoints: Option<usize>,
    /// Gives nodes and Services both IP families.
    #[arg(long)]
    dual_stack: bool,
    /// How long pods keep changing; for a rollout, within which Services begin [default: 60s].
    #[arg(long, value_parser = simulator::duration)]
    duration: Option<Duration>,
    /// Changes per second [default: 5].
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// How pods change: evenly all the time (the default), every Service five times within one second, or a rolling
    /// restart of all Services.
    #[arg(long, value_enum)]
    pattern: Option<Changes>,
    /// The model of a cloud-controller-manager beside the controller: off (the default), on, or on with its own updater.
    #[arg(long, value_parser = Beside::parse, value_name = "off|on|updater")]
    ccm: Option<Beside>,
    /// The seed of everything that is random.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Divides the story's times, ARM's, and the controller's own by this; not those of the two Leases, nor pauses that no
    /// key sets (docs/simulator.md).
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) speed: u32,
    /// How long ARM takes to answer a read: a duration, or MEDIAN..P95 [default: 20ms].
    #[arg(long, value_parser = simulator::latency)]
    arm_get_latency: Option<Latency>,
    /// How long ARM takes to answer a write [default: 100ms].
    #[arg(long, value_parser = simulator::latency)]
    arm_put_latency: Option<Latency>,
    /// How long the operation runs that a write starts; 0 (the default): the write is finished when it is answered.
    #[arg(long, value_parser = simulator::latency)]
    arm_operation: Option<Latency>,
    /// The Retry-After of answers that started an operation, in seconds [default: 10].
    #[arg(long)]
    retry_after: Option<u32>,
    /// The controller's members.removalDelay, where it is not the default.
    #[arg(long, value_parser = simulator::duration)]
    removal_delay: Option<Duration>,
    /// Misbehaviour of ARM on writes: every:N:STATUS, every:N:STATUS:RETRY-AFTER, every:N:lock:RETRY-AFTER, every:N:lost
    /// and more (docs/simulator.md), with @LOAD-BALANCER behind it of that one alone. Repeatable.
    #[arg(long, value_parser = simulator::fault)]
    fault: Vec<Fault>,
    /// How long to wait, after the last change, until every pool is right [default: the duration and 120 s].
    #[arg(long, value_parser = simulator::duration)]
    settle: Option<Duration>,
    /// Fails when the last pool was not right this long after the first change, by the clock on the wall.
    #[arg(long, value_parser = simulator::duration)]
    pub(super) within: Option<Duration>,
    /// Plays the same story with upstream's updater too, on simulated time, and reports both.
    #[arg(long, conflicts_with = "speed")]
    pub(super) compare_upstream: bool,
    /// The form of the report.
    #[arg(long, value_enum, default_value_t = Form::Text)]
    pub(super) report: Form,
    /// Writes the report to this file instead of standard output.
    #[arg(long)]
    pub(super) output: Option<PathBuf>,
    /// Writes the report as a page to this file too.
    #[arg(long)]
    pub(super) html: Option<PathBuf>,
    /// Ends after the report instead of leaving everything running until Ctrl-C.
    #[arg(long)]
    pub(super) exit_when_done: bool,
    /// Where the controller's admin API listens.
    #[arg(long, default_value = "127.0.0.1:8081")]
    pub(super) listen: SocketAddr,
    /// Keys of controller.yaml, laid over those of the simulation.
    #[arg(long)]
    controller_config: Option<PathBuf>,
    /// Where configuration and log are written [default: a new folder for temporary files].
    #[arg(long)]
    pub(super) folder: Option<PathBuf>,
    /// Shows the controller's log instead of writing it to a file.
    #[arg(long)]
    pub(super) verbose: bool,
    /// Starts ARM and Kubernetes alone, for a service that you start; pods change until Ctrl-C.
    #[arg(long)]
    pub(super) serve_only: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Changes {
    Churn,
    Burst,
    Rollout,
}

/// The form of the report.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
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

/// The names of all scenarios.
pub(super) fn names() -> impl Iterator<Item = Printable> {
    NAMED.into_iter().map(|(name, _)| printable!("{name}"))
}

impl SimulateArgs {
    /// Whether only the scenarios' names are asked for.
    pub(super) fn asks_for_names(&self) -> bool {
        self.scenario.as_deref() == Some("list")
    }

    /// The scenario with the flags laid over it.
    pub(super) fn story(&self) -> anyhow::Result<Story> {
        let mut story = self.scenario()?;
        let size = &mut story.size;
        size.services = self.services.unwrap_or(size.services);
        size.load_balancers = self.load_balancers.unwrap_or(size.load_balancers);
        size.nodes = self.nodes.unwrap_or(size.nodes);
        size.endpoints = self.endpoints.unwrap_or(size.endpoints);
        size.dual_stack |= self.dual_stack;
        story.pattern = self.pattern(story.pattern);
        story.beside = self.ccm.unwrap_or(story.beside);
        if let (Some(duration), None) = (self.duration, &self.scenario) {
            story.settle = duration + SETTLE;
        }
        story.settle = self.settle.unwrap_or(story.settle);
        let arm = &mut story.arm;
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
            lay_over(&mut story.controller, &keys);
        }
        if let Some(delay) = self.removal_delay {
            story.controller["members"]["removalDelay"] = format!("{}ms", delay.as_millis()).into();
        }
        Ok(story)
    }

    fn scenario(&self) -> anyhow::Result<Story> {
        let Some(name) = &self.scenario else { return Ok(Story::default()) };
        if let Some(story) = Story::named(name) {
            return Ok(story?);
        }
        let text = match std::fs::read_to_string(name) {
            Ok(text) => text,
            Err(error) => {
                let names = NAMED.map(|(name, _)| name).join(", ");
                bail!("`{name}` is no scenario ({names}) and no file that can be read: {error}")
            }
        };
        let story = Story::read(&text).with_context(|| format!("failed to use {name}"))?;
        Ok(Story { name: Some(name.clone()), ..story })
    }

    /// The changes of the flags; those of the scenario where none is given.
    fn pattern(&self, told: Pattern) -> Pattern {
        let duration_us = self.duration.map(us);
        let chosen = match self.pattern {
            None => told,
            Some(Changes::Burst) => Pattern::Burst,
            Some(Changes::Churn) => Pattern::Churn { rate: RATE, duration_us: us(DURATION) },
            Some(Changes::Rollout) => Pattern::Rollout { within_us: us(DURATION), step_us: 2_000_000 },
        };
        match chosen {
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
            Pattern::Burst | Pattern::Still => chosen,
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
        let words = ["simulate"].into_iter().chain(line.iter().copied());
        Line::try_parse_from(words).unwrap().args
    }

    #[test]
    fn z2_without_flags_writes_are_synchronous_with_defaults() {
        let story = args(&[]).story().unwrap();
        assert_eq!(story.arm.operation, None);
        assert_eq!(story.size, Size::default());
        assert_eq!(story.controller, json!({}));
        assert_eq!(story.pattern, Pattern::Churn { rate: 5.0, duration_us: 60_000_000 });
        assert_eq!((story.settle, story.beside), (Duration::from_secs(180), Beside::Off));
    }

    #[test]
    fn z2_flags_reach_arm_and_the_pattern() {
        let line =
            ["--arm-operation", "5s..20s", "--retry-after", "1", "--fault", "every:20:409", "--rate", "0"];
        let story = args(&line).story().unwrap();
        let operation = Latency::LogNormal { median_us: 5_000_000, p95_us: 20_000_000 };
        assert_eq!((story.arm.operation, story.arm.operation_retry_after_s), (Some(operation), Some(1)));
        assert_eq!((story.arm.faults.len(), story.arm.faults[0].every), (1, 20));
        assert_eq!(story.pattern, Pattern::Still);
        let story = args(&["--duration", "10s", "--pattern", "rollout", "--ccm", "updater"]).story().unwrap();
        assert_eq!(story.pattern, Pattern::Rollout { within_us: 10_000_000, step_us: 2_000_000 });
        assert_eq!((story.settle, story.beside), (Duration::from_secs(130), Beside::ManagerAndUpdater));
    }

    #[test]
    fn z2_flags_win_over_the_scenario_and_leave_the_rest_of_it() {
        let told = args(&["--scenario", "realistic"]).story().unwrap();
        assert_eq!((told.size.services, told.beside), (200, Beside::Manager));
        let story = args(&["--scenario", "realistic", "--services", "20", "--ccm", "off"]).story().unwrap();
        assert_eq!((story.size.services, story.beside), (20, Beside::Off));
        assert_eq!((story.size.load_balancers, story.arm.operation), (10, told.arm.operation));
        assert_eq!((story.pattern, story.settle), (told.pattern, told.settle));
    }

    #[test]
    fn z2_a_scenario_is_a_name_or_a_file_and_else_the_names_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("own.txt");
        std::fs::write(&file, "services 7\nat 1s arm down\nat 2s arm sideways\n").unwrap();
        let bad = args(&["--scenario", file.to_str().unwrap()]).story().unwrap_err();
        assert!(format!("{bad:#}").contains("line 3: `at 2s arm sideways`"), "{bad:#}");
        std::fs::write(&file, "services 7\nat 1s arm down\n").unwrap();
        let story = args(&["--scenario", file.to_str().unwrap()]).story().unwrap();
        assert_eq!((story.size.services, story.happenings.len()), (7, 1));
        let unknown = args(&["--scenario", "no-such-thing"]).story().unwrap_err();
        assert!(unknown.to_string().contains("etcd-restored"), "{unknown}");
    }

    #[test]
    fn z2_the_removal_delay_of_the_command_line_wins_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("controller.yaml");
        std::fs::write(&file, "members: {removalDelay: 9s, add: ready}\n").unwrap();
        let file = file.to_str().unwrap();
        let story = args(&["--controller-config", file, "--removal-delay", "0"]).story().unwrap();
        assert_eq!(story.controller, json!({"members": {"removalDelay": "0ms", "add": "ready"}}));
    }

    #[test]
    fn z2_speed_divides_every_time_among_the_keys_except_those_of_the_leases() {
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
