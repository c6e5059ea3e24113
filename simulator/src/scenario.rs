//! Scenarios: a cluster, the behaviour of ARM and of the cloud-controller-manager, changes of pods, and actions with
//! their times. Owns the language of scenario files (simulator/scenarios/README.md) and the named scenarios.

mod action;
mod disruption;
mod model_setting;
mod reach;

use std::time::Duration;

use serde_json::{Value, json};
use simulator_models::arm::{self, Latency};
use thiserror::Error;

use crate::churn::Pattern;
use crate::notation;
use crate::pace;
use crate::world::Size;

pub use action::Action;
pub use disruption::{Disruption, NodeDisruption};
pub use model_setting::ModelSetting;
pub(crate) use reach::Reach;

/// The named scenarios, with their texts.
pub const NAMED: [(&str, &str); 36] = [
    ("arm-down", include_str!("../scenarios/arm-down.txt")),
    ("arm-5xx-storm", include_str!("../scenarios/arm-5xx-storm.txt")),
    ("quota-exhausted", include_str!("../scenarios/quota-exhausted.txt")),
    ("lost-answers", include_str!("../scenarios/lost-answers.txt")),
    ("silent-loss", include_str!("../scenarios/silent-loss.txt")),
    ("gateway-errors", include_str!("../scenarios/gateway-errors.txt")),
    ("apiserver-down", include_str!("../scenarios/apiserver-down.txt")),
    ("apiserver-slow", include_str!("../scenarios/apiserver-slow.txt")),
    ("watch-410", include_str!("../scenarios/watch-410.txt")),
    ("empty-lists", include_str!("../scenarios/empty-lists.txt")),
    ("node-deletion", include_str!("../scenarios/node-deletion.txt")),
    ("etcd-restored", include_str!("../scenarios/etcd-restored.txt")),
    ("ccm-removes-needed", include_str!("../scenarios/ccm-removes-needed.txt")),
    ("mass-label-change", include_str!("../scenarios/mass-label-change.txt")),
    ("node-pool-swap", include_str!("../scenarios/node-pool-swap.txt")),
    ("blue-green", include_str!("../scenarios/blue-green.txt")),
    ("nodes-vanish", include_str!("../scenarios/nodes-vanish.txt")),
    ("node-lists-empty", include_str!("../scenarios/node-lists-empty.txt")),
    ("slice-lists-empty", include_str!("../scenarios/slice-lists-empty.txt")),
    ("slice-lists-gone", include_str!("../scenarios/slice-lists-gone.txt")),
    ("nodes-fail", include_str!("../scenarios/nodes-fail.txt")),
    ("most-nodes-labelled", include_str!("../scenarios/most-nodes-labelled.txt")),
    ("scale-to-zero", include_str!("../scenarios/scale-to-zero.txt")),
    ("namespace-deletion", include_str!("../scenarios/namespace-deletion.txt")),
    ("recreate", include_str!("../scenarios/recreate.txt")),
    ("one-pod-rollout", include_str!("../scenarios/one-pod-rollout.txt")),
    ("clock-jumps", include_str!("../scenarios/clock-jumps.txt")),
    ("suspended", include_str!("../scenarios/suspended.txt")),
    ("log-full", include_str!("../scenarios/log-full.txt")),
    ("file-descriptors", include_str!("../scenarios/file-descriptors.txt")),
    ("gateway-forgets", include_str!("../scenarios/gateway-forgets.txt")),
    ("etcd-catches-up", include_str!("../scenarios/etcd-catches-up.txt")),
    ("one-node-drains", include_str!("../scenarios/one-node-drains.txt")),
    ("spot-storm", include_str!("../scenarios/spot-storm.txt")),
    ("drain-and-return", include_str!("../scenarios/drain-and-return.txt")),
    ("realistic", include_str!("../scenarios/realistic.txt")),
];

/// Mode of the model of the cloud-controller-manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CcmMode {
    /// It does not run.
    #[default]
    Off,
    /// It runs and locks, reconciles and writes as upstream does, without its updater of local Services.
    Manager,
    /// The same with its updater, which writes the same pools as the controller.
    ManagerAndUpdater,
}

impl CcmMode {
    /// Parses `off`, `on` or `updater`.
    ///
    /// # Errors
    /// It is another word.
    pub fn parse(word: &str) -> Result<Self, String> {
        match word {
            "off" => Ok(Self::Off),
            "on" => Ok(Self::Manager),
            "updater" => Ok(Self::ManagerAndUpdater),
            _ => Err("one of off, on, updater".to_owned()),
        }
    }
}

/// An action with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineEntry {
    /// Time, in microseconds from the start.
    pub at_us: u64,
    /// The text in the scenario.
    pub words: String,
    /// The action.
    pub action: Action,
}

impl TimelineEntry {
    /// Returns the timed steps of an action with several steps, and any other action unchanged; `number` counts
    /// evictions.
    fn steps(self, number: &mut usize) -> Vec<Self> {
        let Action::Disruption(Disruption::NodeDisruption(NodeDisruption::Preempt(preemption))) =
            &self.action
        else {
            return vec![self];
        };
        let steps = preemption.steps(*number);
        *number += preemption.count;
        let entry = |(after_us, step)| Self {
            at_us: self.at_us.saturating_add(after_us),
            words: self.words.clone(),
            action: Action::Disruption(Disruption::NodeDisruption(step)),
        };
        steps.into_iter().map(entry).collect()
    }
}

/// Expectations of a scenario about the guards that hold removals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guarded {
    /// True if the breaker must stop all removals at some time; false if it must never do so.
    pub stopped: bool,
    /// Reasons for held removals, each with the minimum number of pools at the same time.
    pub held: Vec<(String, usize)>,
}

/// The scenario of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The scenario's name; `None` if it consists only of command-line flags.
    pub name: Option<String>,
    /// Size of the cluster.
    pub size: Size,
    /// ARM's settings at the start.
    pub arm: arm::Settings,
    /// Pattern of changes of pods.
    pub pattern: Pattern,
    /// Mode of the model of the cloud-controller-manager.
    pub ccm_mode: CcmMode,
    /// Keys of controller.yaml.
    pub controller: Value,
    /// True if the controller's log cannot be written, as on a full disk.
    pub log_full: bool,
    /// Texts of the ERROR lines that the controller's log must hold; any other is a failure.
    pub errors: Vec<String>,
    /// Expectations about the controller's guards.
    pub guarded: Guarded,
    /// Minimum number of draining nodes whose entries must all be Down in time; `None` if it is not checked.
    pub reached: Option<usize>,
    /// Maximum time until pools are in sync after the last change and the last action.
    pub settle: Duration,
    /// Single actions, in the order of time.
    pub timeline: Vec<TimelineEntry>,
    /// Actions that are repeated while pods change; their time is the interval.
    pub repeats: Vec<TimelineEntry>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: None,
            size: Size::default(),
            arm: arm::Settings::default(),
            pattern: Pattern::Churn { rate: 5.0, duration_us: 60_000_000 },
            ccm_mode: CcmMode::Off,
            controller: json!({}),
            log_full: false,
            errors: Vec::new(),
            guarded: Guarded::default(),
            reached: None,
            settle: Duration::from_secs(180),
            timeline: Vec::new(),
            repeats: Vec::new(),
        }
    }
}

/// Type of a line of a scenario, with the time at which it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the start.
    Given,
    /// This long after the start.
    At(Duration),
    /// This long after the previous line was applied. Only in tests.
    After(Duration),
    /// Repeatedly, at this interval. Not in tests.
    Every(Duration),
    /// An expectation.
    Expect,
    /// An exception from the expectations about the end of each scenario. Only in tests.
    Finally,
}

/// A line of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its number in the file, from 1.
    pub number: usize,
    /// Its text, without the comment.
    pub text: &'a str,
    /// Its type and time.
    pub when: When,
    /// The words after these.
    pub words: Vec<&'a str>,
}

impl Line<'_> {
    /// Parses the lines of a scenario of `simulate` or of a test; `#` begins a comment.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn read(text: &str) -> Result<Vec<Line<'_>>, BadLine> {
        let mut lines = Vec::new();
        for (index, text) in text.lines().enumerate() {
            let text = text.split('#').next().unwrap_or_default().trim();
            let mut words: Vec<&str> = text.split_whitespace().collect();
            let (when, spoken) = match *words {
                [] => continue,
                ["given", ..] => (Ok(When::Given), 1),
                ["expect", ..] => (Ok(When::Expect), 1),
                ["finally", ..] => (Ok(When::Finally), 1),
                ["at", time, ..] => (notation::duration(time).map(When::At), 2),
                ["after", time, ..] => (notation::duration(time).map(When::After), 2),
                ["every", time, ..] => (notation::duration(time).map(When::Every), 2),
                _ => (Ok(When::Given), 0),
            };
            words.drain(..spoken);
            let line = Line { number: index + 1, text, when: When::Given, words };
            let when = when.map_err(|bad| line.bad(bad.expected.to_owned()))?;
            lines.push(Line { when, ..line });
        }
        Ok(lines)
    }

    fn bad(&self, expected: String) -> BadLine {
        BadLine { line: self.number, text: self.text.to_owned(), expected }
    }
}

/// An invalid line of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: `{text}`: expected {expected}")]
pub struct BadLine {
    line: usize,
    text: String,
    expected: String,
}

impl Scenario {
    /// Returns the scenario of this name.
    ///
    /// # Errors
    /// The text has an invalid line; a test excludes this.
    pub fn named(name: &str) -> Option<Result<Self, BadLine>> {
        let (name, text) = NAMED.iter().find(|(known, _)| *known == name)?;
        Some(Self::read(text).map(|scenario| Self { name: Some((*name).to_owned()), ..scenario }))
    }

    /// Reads a scenario.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn read(text: &str) -> Result<Self, BadLine> {
        let mut scenario = Self::default();
        for line in Line::read(text)? {
            scenario.take(line.when, &line.words).map_err(|expected| line.bad(expected))?;
        }
        scenario.timeline.sort_by_key(|entry| entry.at_us);
        Ok(scenario)
    }

    fn take(&mut self, when: When, words: &[&str]) -> Result<(), String> {
        let entry = |time| {
            Ok::<_, String>(TimelineEntry {
                at_us: micros(time),
                words: words.join(" "),
                action: Action::parse(words)?,
            })
        };
        match (when, words) {
            (When::Given, ["services", count]) => self.size.services = number(count)?,
            (When::Given, ["load-balancers", count]) => self.size.load_balancers = at_least_one(count)?,
            (When::Given, ["nodes", count]) => self.size.nodes = at_least_one(count)?,
            (When::Given, ["endpoints", count]) => self.size.endpoints = at_least_one(count)?,
            (When::Given, ["dual-stack"]) => self.size.dual_stack = true,
            (When::Given, ["settle", time]) => self.settle = notation::duration(time)?,
            (When::Given, ["ccm", word]) => self.ccm_mode = CcmMode::parse(word)?,
            (When::Given, ["controller", key, value]) => pace::set(&mut self.controller, key, value),
            (When::Given, ["pods", rest @ ..]) => self.pattern = pattern(rest)?,
            (When::Given, ["arm", rest @ ..]) => ModelSetting::parse(rest)?.turn(&mut self.arm),
            (When::Given, ["log", "full"]) => self.log_full = true,
            (When::Expect, ["log", "ERROR", text @ ..]) if !text.is_empty() => {
                self.errors.push(text.join(" "))
            }
            (When::Expect, ["removals", "stopped"]) => self.guarded.stopped = true,
            (When::Expect, ["held", reason, least]) => {
                self.guarded.held.push(((*reason).to_owned(), number(least)?));
            }
            (When::Expect, ["nodes", "reached", least]) => self.reached = Some(number(least)?),
            (When::Every(time), _) if time.is_zero() => return Err("a time that is not 0".to_owned()),
            (When::Every(time), _) => self.repeats.push(entry(time)?),
            (When::At(time), _) => self.timeline.push(entry(time)?),
            (When::Given | When::Expect | When::After(_) | When::Finally, _) => {
                let known = "services, load-balancers, nodes, endpoints, dual-stack, pods, arm, ccm, \
                             controller, log, expect, settle, at or every";
                return Err(format!("{known}, each with its arguments"));
            }
        }
        Ok(())
    }

    /// Returns `members.removalDelay` of the controller.
    #[must_use]
    pub fn removal_delay(&self) -> Duration {
        pace::removal_delay(&self.controller)
    }

    /// Returns the scenario with all times divided by `speed`: actions, ARM's latencies and Retry-Afters, and the
    /// controller's times. docs/simulator.md names the exceptions.
    #[must_use]
    pub fn faster(mut self, speed: u32) -> Self {
        let speed = speed.max(1);
        if speed == 1 {
            return self;
        }
        self.pattern = self.pattern.faster(speed);
        self.settle /= speed;
        model_setting::faster(&mut self.arm, speed);
        for entry in self.timeline.iter_mut().chain(&mut self.repeats) {
            entry.at_us /= u64::from(speed);
            entry.action = entry.action.clone().faster(speed);
        }
        pace::faster(&mut self.controller, speed);
        self
    }

    /// Returns all actions in the order of time, divided into their steps.
    #[must_use]
    pub fn timetable(&self) -> Vec<TimelineEntry> {
        let mut all = self.timeline.clone();
        for repeat in &self.repeats {
            let count = self.pattern.length_us() / repeat.at_us.max(1);
            all.extend((1..=count).map(|number| {
                let action = repeat.action.clone().nth(usize::try_from(number).unwrap_or(0));
                TimelineEntry { at_us: repeat.at_us * number, words: repeat.words.clone(), action }
            }));
        }
        let mut evictions = 0;
        let mut all: Vec<TimelineEntry> = all.into_iter().flat_map(|one| one.steps(&mut evictions)).collect();
        all.sort_by_key(|entry| entry.at_us);
        all
    }

    /// Returns the median time that one write occupies a lane, in microseconds: read, PUT, and operation, whose
    /// end is found by a poll after Retry-After.
    pub(crate) fn lane_turn_us(&self) -> u64 {
        let operation_us = self.arm.operation.map_or(0, |operation| {
            let every = u64::from(self.arm.operation_retry_after_s.unwrap_or(1).max(1)) * 1_000_000;
            median(operation).div_ceil(every) * every
        });
        self.read_us() + median(self.arm.put_latency) + operation_us
    }

    /// Returns the median latency of a read, in microseconds.
    pub(crate) fn read_us(&self) -> u64 {
        median(self.arm.get_latency)
    }
}

fn median(latency: Latency) -> u64 {
    match latency {
        Latency::Fixed { us } => us,
        Latency::LogNormal { median_us, .. } => median_us,
    }
}

fn pattern(words: &[&str]) -> Result<Pattern, String> {
    match words {
        ["still"] => Ok(Pattern::Still),
        ["burst"] => Ok(Pattern::Burst),
        ["churn", rate, "for", time] => {
            let rate: Option<f64> = rate.strip_suffix("/s").and_then(|rate| rate.parse().ok());
            let rate = rate.filter(|rate| (0.0..=100_000.0).contains(rate));
            let rate = rate.ok_or("a rate such as 5/s")?;
            Ok(Pattern::Churn { rate, duration_us: us(time)? })
        }
        ["rollout", "within", time, "step", step] => {
            Ok(Pattern::Rollout { within_us: us(time)?, step_us: us(step)? })
        }
        ["recreate", "within", time, "step", step] => {
            Ok(Pattern::Recreate { within_us: us(time)?, step_us: us(step)? })
        }
        _ => Err("still, burst, churn N/s for TIME, or rollout or recreate within TIME step TIME".to_owned()),
    }
}

fn us(text: &str) -> Result<u64, String> {
    Ok(micros(notation::duration(text)?))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "a whole number".to_owned())
}

fn at_least_one(text: &str) -> Result<usize, String> {
    number(text)?.checked_sub(1).map(|less| less + 1).ok_or_else(|| "at least 1".to_owned())
}

#[cfg(test)]
mod tests;
