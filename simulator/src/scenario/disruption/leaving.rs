//! Actions on draining and returning nodes: taints, stopped machines, evictions with notice, and recreated nodes.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use simulator_models::kube::{KubeModel, Resource, build};

use super::{Shift, node};
use crate::notation;
use crate::world::World;

/// Default time from a notice to the eviction.
const NOTICE_US: u64 = 30_000_000;
/// Default time from the end of a machine to the deletion of its node's object.
const GONE_AFTER_US: u64 = 15_000_000;
/// The taint with the effect NoExecute; all others have NoSchedule.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The reason of events about an eviction.
const REASON: &str = "PreemptScheduled";

/// A change of draining or returning nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeDisruption {
    /// The oldest nodes get a taint.
    Taint {
        /// Number of nodes.
        count: usize,
        /// Its key.
        key: String,
        /// Its value; may be empty.
        value: String,
    },
    /// Every node loses its taints with this key.
    Untaint(String),
    /// The machines of the oldest nodes stop, so that the nodes are not Ready.
    Stop(usize),
    /// All machines run again, and their nodes are Ready.
    Start,
    /// Nodes are evicted one after another. The scenario's timetable has the steps.
    Preempt(Preemption),
    /// A step of the eviction of this number.
    Evict(usize, Step),
    /// The oldest nodes are recreated with the same names, Ready and without taints.
    Recreate {
        /// Number of nodes.
        count: usize,
        /// True if they keep their addresses.
        same_addresses: bool,
    },
}

/// Evenly spread evictions of the oldest remaining nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// Number of nodes.
    pub count: usize,
    /// Time in which the evictions begin, in microseconds.
    pub within_us: u64,
    /// Form of the notice.
    pub form: NoticeForm,
    /// Time from the notice to the end of the machine, in microseconds.
    pub notice_us: u64,
    /// Time from the end of the machine to the deletion of its node, in microseconds.
    pub gone_after_us: u64,
}

/// Form of the notice of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeForm {
    /// An Event of `v1`.
    Event,
    /// An Event of `events.k8s.io/v1`.
    EventV1,
    /// A condition of the node.
    Condition,
}

/// A step of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The notice is published.
    Notice {
        /// Form of the notice.
        form: NoticeForm,
        /// Time until the end of the machine, in microseconds.
        notice_us: u64,
    },
    /// The machine ends; the node is no longer Ready.
    NotReady,
    /// The node is deleted, and its pods run elsewhere.
    Gone,
}

impl Preemption {
    /// Parses the words after `nodes preempt N within TIME`.
    fn parse(number: &str, time: &str, rest: &[&str]) -> Result<Self, String> {
        let (form, rest) = match rest {
            ["as", "event", rest @ ..] => (NoticeForm::Event, rest),
            ["as", "event-v1", rest @ ..] => (NoticeForm::EventV1, rest),
            ["as", "condition", rest @ ..] => (NoticeForm::Condition, rest),
            rest => (NoticeForm::Event, rest),
        };
        let notice_us = match rest {
            [] => NOTICE_US,
            ["notice", time] => us(time)?,
            _ => {
                let known = "nodes preempt N within TIME [as event|event-v1|condition] [notice TIME]";
                return Err(known.to_owned());
            }
        };
        let (count, within_us) = (count(number)?, us(time)?);
        Ok(Self { count, within_us, form, notice_us, gone_after_us: GONE_AFTER_US })
    }

    /// Returns the steps of all evictions, which are numbered from `first`, each with its time from the start in
    /// microseconds.
    pub(in crate::scenario) fn steps(&self, first: usize) -> Vec<(u64, NodeDisruption)> {
        let Self { count, within_us, form, notice_us, gone_after_us } = *self;
        let of = |index: usize| {
            let begins = u128::from(within_us) * index as u128 / count.max(1) as u128;
            let begins = u64::try_from(begins).unwrap_or(u64::MAX);
            let ends = begins.saturating_add(notice_us);
            [
                (begins, Step::Notice { form, notice_us }),
                (ends, Step::NotReady),
                (ends.saturating_add(gone_after_us), Step::Gone),
            ]
            .map(|(at, step)| (at, NodeDisruption::Evict(first + index, step)))
        };
        (0..count).flat_map(of).collect()
    }
}

impl NodeDisruption {
    /// Parses an action on nodes; returns `None` for other actions.
    pub(super) fn parse(words: &[&str]) -> Option<Result<Self, String>> {
        let recreate = |number: &str, same_addresses| {
            count(number).map(|count| Self::Recreate { count, same_addresses })
        };
        let action = match words {
            ["nodes", "taint", number, taint] => {
                let (key, value) = taint.split_once('=').unwrap_or((taint, ""));
                let (key, value) = (key.to_owned(), value.to_owned());
                count(number).map(|count| Self::Taint { count, key, value })
            }
            ["nodes", "untaint", key] => Ok(Self::Untaint((*key).to_owned())),
            ["nodes", "stop", number] => count(number).map(Self::Stop),
            ["nodes", "start"] => Ok(Self::Start),
            ["nodes", "preempt", number, "within", time, rest @ ..] => {
                Preemption::parse(number, time, rest).map(Self::Preempt)
            }
            ["nodes", "recreate", number] => recreate(number, false),
            ["nodes", "recreate", number, "same-addresses"] => recreate(number, true),
            _ => return None,
        };
        Some(action)
    }

    /// Returns the same change in a scenario that runs `speed` times as fast.
    pub(super) fn faster(self, speed: u32) -> Self {
        let divided = |us: u64| us / u64::from(speed.max(1));
        match self {
            Self::Preempt(all) => Self::Preempt(Preemption {
                within_us: divided(all.within_us),
                notice_us: divided(all.notice_us),
                gone_after_us: divided(all.gone_after_us),
                ..all
            }),
            other @ (Self::Taint { .. }
            | Self::Untaint(_)
            | Self::Stop(_)
            | Self::Start
            | Self::Evict(..)
            | Self::Recreate { .. }) => other,
        }
    }

    /// Returns whether the required members of pools change. A node that is not Ready stays in its pools.
    pub(super) fn changes_expected_members(&self) -> bool {
        match self {
            Self::Evict(_, Step::Gone) | Self::Recreate { .. } => true,
            Self::Evict(_, Step::Notice { .. } | Step::NotReady)
            | Self::Taint { .. }
            | Self::Untaint(_)
            | Self::Stop(_)
            | Self::Start
            | Self::Preempt(_) => false,
        }
    }

    /// Applies the change to the planned cluster, and returns the resulting changes of the models.
    pub(super) fn begin(&self, world: &mut World, trigger_time: &str) -> Shift {
        let mut shift = Shift::default();
        match self {
            Self::Taint { count, key, value } => {
                let taint = taint(key, value);
                let edit = |node| (node, Edit::Taint(taint.clone()));
                shift.edits = world.oldest_nodes(*count).into_iter().map(edit).collect();
            }
            Self::Untaint(key) => {
                let edit = |node| (node, Edit::Untaint(key.clone()));
                shift.edits = world.oldest_nodes(usize::MAX).into_iter().map(edit).collect();
            }
            Self::Stop(count) => {
                shift.stopped = Some(world.oldest_nodes(*count));
                let edit = |node| (node, Edit::Condition(readiness(false)));
                shift.edits = world.oldest_nodes(*count).into_iter().map(edit).collect();
            }
            Self::Start => shift.stopped = Some(Vec::new()),
            Self::Preempt(_) => {}
            Self::Evict(number, step) => evict(*number, *step, world, trigger_time, &mut shift),
            Self::Recreate { count, same_addresses } => {
                shift.objects = world.renew_nodes(*count, *same_addresses);
            }
        }
        shift
    }
}

/// Applies one step of an eviction.
fn evict(number: usize, step: Step, world: &mut World, trigger_time: &str, shift: &mut Shift) {
    match step {
        Step::Notice { form, notice_us } => {
            let Some(node) = world.begin_eviction(number) else { return };
            let notice = Notice::new(trigger_time, notice_us);
            match form {
                NoticeForm::Event => shift.objects.push(notice.event(&node, number)),
                NoticeForm::EventV1 => shift.objects.push(notice.event_v1(&node, number)),
                NoticeForm::Condition => {
                    shift.edits.push((node.clone(), Edit::Condition(notice.condition())))
                }
            }
            shift.notices.push((node, notice_us));
        }
        Step::NotReady => {
            let node = world.evicted(number);
            shift.edits.extend(node.map(|node| (node, Edit::Condition(readiness(false)))));
        }
        Step::Gone => {
            let Some((gone, changed)) = world.end_eviction(number) else { return };
            shift.deleted.push(node(gone));
            shift.objects = world.changed_slices(&changed, trigger_time);
        }
    }
}

/// The texts of a notice, as published by the node monitor of AKS.
struct Notice {
    /// Publication time, in whole seconds.
    time: String,
    message: String,
}

impl Notice {
    /// Creates a notice at this time (RFC 3339) of an eviction this long afterwards.
    fn new(time: &str, notice_us: u64) -> Self {
        let given: Timestamp = time.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        let wait = SignedDuration::from_micros(i64::try_from(notice_us).unwrap_or(i64::MAX));
        let due = given.checked_add(wait).unwrap_or(Timestamp::MAX);
        let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
        let date =
            printer.timestamp_to_rfc9110_string(&due).expect("every timestamp has a year of four digits");
        let seconds = Timestamp::from_second(given.as_second()).unwrap_or(given);
        let message = format!(
            "Preempt Scheduled: {date}. DurationInSeconds: -1.  For more information, see \
             https://aka.ms/aks/scheduledevents."
        );
        Self { time: seconds.to_string(), message }
    }

    fn event(&self, node: &str, number: usize) -> Value {
        build::node_event(&event_name(node, number), node, REASON, &self.message, &self.time)
    }

    fn event_v1(&self, node: &str, number: usize) -> Value {
        let time = format!("{}.000000Z", self.time.trim_end_matches('Z'));
        build::node_event_v1(&event_name(node, number), node, REASON, &self.message, &time)
    }

    fn condition(&self) -> Value {
        build::condition("PreemptionScheduled", "SpotEvictionIncoming", &self.message, &self.time)
    }
}

fn event_name(node: &str, number: usize) -> String {
    format!("{node}.preempt-{number}")
}

/// A change of one node's object.
#[derive(Clone, Debug)]
pub(super) enum Edit {
    /// The node gets this taint.
    Taint(Value),
    /// The node loses its taints with this key.
    Untaint(String),
    /// The node gets this condition, which replaces the one of the same type.
    Condition(Value),
}

impl Edit {
    /// Applies the edit, if the node exists and changes.
    pub(super) fn write(&self, model: &mut KubeModel, name: &str, now_us: u64) {
        let Some(mut node) = model.get(Resource::Nodes, "", name) else { return };
        if self.change(&mut node) {
            model.apply(node, now_us).expect("it was served before");
        }
    }

    fn change(&self, node: &mut Value) -> bool {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        match self {
            Self::Taint(taint) => {
                let mut taints = list(&node["spec"]["taints"]);
                let same = |known: &Value| known["key"] == taint["key"] && known["effect"] == taint["effect"];
                if taints.iter().any(same) {
                    return false;
                }
                taints.push(taint.clone());
                node["spec"]["taints"] = taints.into();
            }
            Self::Untaint(key) => {
                let before = list(&node["spec"]["taints"]);
                let left: Vec<Value> = before.iter().filter(|known| known["key"] != **key).cloned().collect();
                if left.len() == before.len() {
                    return false;
                }
                // The server omits an empty list.
                node["spec"]["taints"] = if left.is_empty() { Value::Null } else { left.into() };
            }
            Self::Condition(new) => {
                let mut conditions = list(&node["status"]["conditions"]);
                conditions.retain(|known| known["type"] != new["type"]);
                conditions.push(new.clone());
                node["status"]["conditions"] = conditions.into();
            }
        }
        true
    }
}

/// Stops the machines of these nodes and starts all others; a node whose machine starts is Ready.
pub(super) fn stop_machines(cluster: &mut crate::cluster::Cluster, stopped: &[String], now_us: u64) {
    let now = stopped.iter().cloned().collect();
    let before = std::mem::replace(&mut cluster.stopped, now);
    for node in before.iter().filter(|node| !cluster.stopped.contains(*node)) {
        Edit::Condition(readiness(true)).write(&mut cluster.model, node, now_us);
        cluster.signals.observe(&cluster.model, node, now_us);
    }
}

fn taint(key: &str, value: &str) -> Value {
    let effect = if key == OUT_OF_SERVICE { "NoExecute" } else { "NoSchedule" };
    if value.is_empty() {
        json!({"key": key, "effect": effect})
    } else {
        json!({"key": key, "value": value, "effect": effect})
    }
}

/// Returns the Ready condition of a Ready node, or of a node whose kubelet does not report.
fn readiness(ready: bool) -> Value {
    build::node("", &[], &[], ready, &[])["status"]["conditions"][0].take()
}

fn count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "a whole number".to_owned())
}

fn us(text: &str) -> Result<u64, String> {
    let time = notation::duration(text)?;
    Ok(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
