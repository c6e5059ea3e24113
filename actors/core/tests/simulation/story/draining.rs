//! Draining nodes: taints, true and false eviction notices, evictions, and cancelled evictions (docs/design/nodes.md,
//! N1).

use std::collections::BTreeSet;

use simulator_models::kube::KubeModel;
use simulator_models::kube::build;

use super::Story;
use crate::clock::{rfc1123, wall};
use crate::leases::micro_time;
use crate::random::Random;

/// Taint of an evicted node: key and value.
pub const SPOT: (&str, &str) = ("cloudprovider.azure.microsoft.com/draining", "spot-eviction");
/// The taints that mark a draining node, each with its usual effect.
const SIGNALS: [(&str, &str, &str); 4] = [
    ("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute"),
    ("node.kubernetes.io/out-of-service", "", "NoSchedule"),
    ("node.cloudprovider.kubernetes.io/shutdown", "", "NoSchedule"),
    (SPOT.0, SPOT.1, "NoSchedule"),
];
/// Taints without this meaning.
const OTHERS: [(&str, &str, &str); 4] = [
    (SPOT.0, "maintenance", "NoExecute"),
    ("node.kubernetes.io/unschedulable", "", "NoSchedule"),
    ("node.kubernetes.io/not-ready", "", "NoExecute"),
    ("kubernetes.azure.com/scalesetpriority", "spot", "NoSchedule"),
];
/// Shortest and longest time from a notice to the eviction, and from there to the deletion of the node's object.
const EVICTED_AFTER_US: (u64, u64) = (20_000_000, 45_000_000);
const GONE_AFTER_US: u64 = 15_000_000;
/// Shortest and longest time since the eviction of an expired notice was due.
const EXPIRED_US: (u64, u64) = (300_000_000, 86_400_000_000);
/// Time after which a notice without a date has passed (N1).
const PASSES_AFTER_US: u64 = 30_000_000;

/// A future step in the eviction of a node. `life` distinguishes nodes of the same name.
pub(super) struct Scheduled {
    at: u64,
    name: String,
    life: u64,
    what: EvictionStep,
}

/// A step of an eviction.
enum EvictionStep {
    NotReady,
    Deleted,
}

/// An Event about a node.
pub(super) struct NodeEvent {
    name: String,
    node: String,
    reason: &'static str,
    first: String,
    count: u64,
}

/// A true notice. It allows the controller to treat the node as draining.
#[derive(Clone, Debug)]
pub struct Notice {
    /// UID of the node.
    pub uid: String,
    /// Time in the notice.
    pub at: u64,
    /// Time at which it has passed.
    pub passes: u64,
    /// True if its time had passed long before it was sent. It then counts only for a node that is not Ready (N1).
    pub is_expired: bool,
}

/// Form of a notice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NoticeForm {
    Event,
    EventV1,
    Condition,
}

/// State of draining nodes.
pub(super) struct DrainingNodes {
    random: Random,
    scheduled: Vec<Scheduled>,
    events: Vec<NodeEvent>,
    notices: Vec<Notice>,
    /// Names and addresses of deleted nodes, whose addresses can be used again.
    free_addresses: Vec<(String, u64)>,
    /// Number of nodes that got the address of a deleted node.
    address_heirs: u64,
    /// Names of nodes that never return, because another one has their address: a cloud-controller-manager adds a
    /// node under a name that its pool still has for another address, and is refused forever.
    pub(super) retired_names: BTreeSet<String>,
}

impl DrainingNodes {
    pub(super) fn new(random: Random) -> DrainingNodes {
        let (scheduled, events, notices, free_addresses, address_heirs, retired_names) = Default::default();
        DrainingNodes { random, scheduled, events, notices, free_addresses, address_heirs, retired_names }
    }
}

impl Story {
    /// Returns the time until the next event of draining nodes, in microseconds.
    pub fn draining_pause(&mut self, now: u64) -> u64 {
        let DrainingNodes { random, scheduled, .. } = &mut self.draining;
        let pause = random.between(300_000, 9_000_000);
        let next = scheduled.iter().map(|scheduled| scheduled.at.saturating_sub(now)).min();
        next.map_or(pause, |next| pause.min(next + 1))
    }

    /// Returns the true notices since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.draining.notices)
    }

    /// Makes one random change to draining nodes, and returns a description.
    pub fn change_draining_nodes(&mut self, kube: &mut KubeModel, now: u64) -> String {
        if let Some(words) = self.make_scheduled_change(kube, now) {
            return words;
        }
        let names: Vec<String> = self.cluster.nodes.keys().cloned().collect();
        let random = &mut self.draining.random;
        let Some(name) = random.pick(&names) else { return String::new() };
        if random.per_mille(300)
            && let Some(other) = random.pick(&names)
        {
            self.cluster.touch_node(kube, now, &other);
        }
        let dice = self.draining.random.below(1_000);
        match dice {
            0..270 => self.taint_one(kube, now, &name),
            270..520 => self.untaint_one(kube, now, &name),
            520..640 => self.give_notice(kube, now, &name),
            640..670 => self.give_expired_notice(kube, now, &name),
            670..730 => self.give_false_notice(kube, now, &name),
            730..790 => self.replace(kube, now, &name),
            790..830 => self.reassign_address(kube, now, &name),
            830..900 => self.toggle_ready(kube, now, &name),
            900..940 => self.drain_many(kube, now, &names),
            940..960 => {
                self.cluster.set_scheduled_condition(kube, now, &name, None);
                format!("the condition of {name} is removed")
            }
            _ => {
                names.iter().for_each(|name| self.cluster.touch_node(kube, now, name));
                "all nodes renew their status".to_owned()
            }
        }
    }

    /// Makes a scheduled change that is due.
    fn make_scheduled_change(&mut self, kube: &mut KubeModel, now: u64) -> Option<String> {
        let due = self.draining.scheduled.iter().position(|scheduled| scheduled.at <= now)?;
        let Scheduled { name, life, what, .. } = self.draining.scheduled.remove(due);
        if self.cluster.nodes.get(&name).is_none_or(|node| node.life != life) {
            return Some(format!("the eviction of {name} is cancelled"));
        }
        Some(match what {
            EvictionStep::NotReady => {
                let at = now + GONE_AFTER_US;
                self.draining.scheduled.push(Scheduled {
                    at,
                    name: name.clone(),
                    life,
                    what: EvictionStep::Deleted,
                });
                self.change_node(kube, now, &name, |node| node.ready = false)
            }
            // Two nodes stay, so that pods can always move.
            EvictionStep::Deleted if self.cluster.nodes.len() <= 2 => format!("{name} stays, not ready"),
            EvictionStep::Deleted => {
                self.delete_evicted(kube, now, &name);
                format!("{name} is deleted after its eviction")
            }
        })
    }

    fn delete_evicted(&mut self, kube: &mut KubeModel, now: u64, name: &str) {
        if let Some(node) = self.cluster.nodes.get(name) {
            self.draining.free_addresses.push((name.to_owned(), node.address));
        }
        self.cluster.delete_node(kube, now, name);
        if self.draining.random.per_mille(700) {
            self.evict(kube, now);
        }
    }

    fn taint_one(&mut self, kube: &mut KubeModel, now: u64, name: &str) -> String {
        let random = &mut self.draining.random;
        let others = random.per_mille(250);
        let mut taint =
            if others { OTHERS[random.index(OTHERS.len())] } else { SIGNALS[random.index(SIGNALS.len())] };
        if random.per_mille(150) {
            taint.2 = "NoExecute";
        }
        self.cluster.taint(kube, now, name, taint);
        format!("{name} is tainted: {taint:?}")
    }

    /// Lets a client remove the taints of a node: all, or those with one key.
    fn untaint_one(&mut self, kube: &mut KubeModel, now: u64, name: &str) -> String {
        let all: Vec<&str> = SIGNALS.iter().chain(&OTHERS).map(|(key, _, _)| *key).collect();
        let random = &mut self.draining.random;
        let gone = if random.per_mille(600) { all.clone() } else { vec![all[random.index(all.len())]] };
        let found = self.cluster.untaint(kube, now, name, |key| gone.contains(&key));
        format!("{name} loses taints: {found}, {gone:?}")
    }

    /// Sends a true notice, once or several times. In most cases the node is then evicted.
    fn give_notice(&mut self, kube: &mut KubeModel, now: u64, name: &str) -> String {
        let (Some(uid), Some(node)) = (self.cluster.node_uid(name), self.cluster.nodes.get(name)) else {
            return String::new();
        };
        let life = node.life;
        let random = &mut self.draining.random;
        let after = random.between(EVICTED_AFTER_US.0, EVICTED_AFTER_US.1);
        let (message, passes) = if random.per_mille(600) {
            // A date has no fractions of a second.
            let due = wall(now + after) / 1_000_000 * 1_000_000;
            let words = format!("Preempt Scheduled: {}. DurationInSeconds: -1.", rfc1123(due));
            (words, now + after - u64::try_from(wall(now + after) - due).unwrap_or(0))
        } else {
            ("Preempt Started".to_owned(), now + PASSES_AFTER_US)
        };
        let form = [NoticeForm::Event, NoticeForm::EventV1, NoticeForm::Condition][random.index(3)];
        if random.per_mille(600) {
            self.draining.scheduled.push(Scheduled {
                at: now + after,
                name: name.to_owned(),
                life,
                what: EvictionStep::NotReady,
            });
        }
        self.send_notice(kube, now, form, name, &message, now);
        self.draining.notices.push(Notice { uid, at: now, passes, is_expired: false });
        format!("{name} is to be evicted: {message}")
    }

    /// Sends an Event that announces the eviction of a node now.
    pub fn announce_eviction(&mut self, kube: &mut KubeModel, now: u64, name: &str) {
        let Some(uid) = self.cluster.node_uid(name) else { return };
        self.send_notice(kube, now, NoticeForm::Event, name, "Preempt Started", now);
        self.draining.notices.push(Notice { uid, at: now, passes: now + PASSES_AFTER_US, is_expired: false });
    }

    /// Sends a message that looks like a notice and is none.
    fn give_false_notice(&mut self, kube: &mut KubeModel, now: u64, name: &str) -> String {
        let random = &mut self.draining.random;
        let forms = [NoticeForm::Event, NoticeForm::EventV1];
        let form = forms[random.index(2)];
        let date = rfc1123(wall(now + 30_000_000));
        let (message, form, at) = match random.below(4) {
            0 => (
                "IMDS query failed, exit code: 28 / Connection timed out after 24 seconds.".to_owned(),
                form,
                now,
            ),
            1 => {
                let event = ["Freeze", "Reboot", "Redeploy", "Terminate"][random.index(4)];
                (format!("{event} Scheduled: {date}. DurationInSeconds: 5."), NoticeForm::Condition, now)
            }
            2 => ("curl: (28) Operation timed out after 24001 milliseconds".to_owned(), form, now),
            // A notice about an earlier node of this name, if there was one.
            _ => (
                format!("Preempt Scheduled: {date}."),
                form,
                self.cluster.began(kube, name).saturating_sub(2_000_000),
            ),
        };
        if at == 0 {
            return String::new();
        }
        self.send_notice(kube, now, form, name, &message, at);
        format!("false notice about {name} at {at}: {message}")
    }

    /// Sends a notice of an eviction whose time passed long ago.
    fn give_expired_notice(&mut self, kube: &mut KubeModel, now: u64, name: &str) -> String {
        let Some(uid) = self.cluster.node_uid(name) else { return String::new() };
        let random = &mut self.draining.random;
        let ago = random.between(EXPIRED_US.0, EXPIRED_US.1);
        let form = [NoticeForm::Event, NoticeForm::EventV1, NoticeForm::Condition][random.index(3)];
        let date = rfc1123(wall(now) - i64::try_from(ago).unwrap_or(0));
        // It is sent now, so that only the date in the text shows its age.
        let message = format!("Preempt Scheduled: {date}. DurationInSeconds: -1.");
        self.send_notice(kube, now, form, name, &message, now);
        self.draining.notices.push(Notice { uid, at: now, passes: now, is_expired: true });
        format!("{name} was to be evicted: {message}")
    }

    fn send_notice(
        &mut self,
        kube: &mut KubeModel,
        now: u64,
        form: NoticeForm,
        node: &str,
        message: &str,
        at: u64,
    ) {
        let time = micro_time(wall(at));
        if form == NoticeForm::Condition {
            self.cluster.set_scheduled_condition(kube, now, node, Some((message, &time)));
            return;
        }
        let random = &mut self.draining.random;
        let reason = "PreemptScheduled";
        let again =
            self.draining.events.iter_mut().rev().find(|event| event.node == node && random.per_mille(400));
        if let Some(earlier) = again.filter(|_| at == now) {
            earlier.count += 1;
            let mut event = build::node_event(&earlier.name, node, earlier.reason, message, &time);
            event["firstTimestamp"] = earlier.first.as_str().into();
            event["count"] = earlier.count.into();
            kube.apply(event, now).expect("it is an event");
            return;
        }
        let name = format!("{node}.{:x}", now);
        let mut event = match form {
            NoticeForm::EventV1 => build::node_event_v1(&name, node, reason, message, &time),
            NoticeForm::Event | NoticeForm::Condition => {
                build::node_event(&name, node, reason, message, &time)
            }
        };
        event["metadata"]["creationTimestamp"] = micro_time(wall(at)).into();
        kube.apply(event, now).expect("it is an event");
        self.draining.events.push(NodeEvent { name, node: node.to_owned(), reason, first: time, count: 1 });
    }

    /// Recreates a node with the same name and address.
    fn replace(&mut self, kube: &mut KubeModel, now: u64, name: &str) -> String {
        let Some(address) = self.cluster.nodes.get(name).map(|node| node.address) else {
            return String::new();
        };
        if self.draining.random.per_mille(500) {
            self.cluster.delete_node(kube, now, name);
        }
        self.cluster.add_node_at(kube, now, name, address);
        format!("{name} is replaced, with the same address")
    }

    /// Deletes a node, and creates another one with the address of a deleted node.
    fn reassign_address(&mut self, kube: &mut KubeModel, now: u64, name: &str) -> String {
        if self.cluster.nodes.len() > 2 {
            self.delete_evicted(kube, now, name);
        }
        let DrainingNodes { random, free_addresses, address_heirs, retired_names, .. } = &mut self.draining;
        free_addresses.retain(|(name, _)| !self.cluster.nodes.contains_key(name));
        if free_addresses.is_empty() {
            return format!("{name} goes");
        }
        let (old, address) = free_addresses.swap_remove(random.index(free_addresses.len()));
        *address_heirs += 1;
        let new = format!("heir-{address_heirs}");
        retired_names.insert(old);
        self.cluster.add_node_at(kube, now, &new, address);
        format!("{name} is deleted, and {new} has the address {address} of a deleted node")
    }

    fn toggle_ready(&mut self, kube: &mut KubeModel, now: u64, name: &str) -> String {
        self.change_node(kube, now, name, |node| node.ready = !node.ready)
    }

    /// Drains several nodes at the same time.
    fn drain_many(&mut self, kube: &mut KubeModel, now: u64, names: &[String]) -> String {
        let with_notice = self.draining.random.per_mille(500);
        let mut words = Vec::new();
        for name in names {
            if self.draining.random.per_mille(250) {
                continue;
            }
            words.push(if with_notice {
                self.give_notice(kube, now, name)
            } else {
                let (key, value, effect) = SIGNALS[self.draining.random.index(2)];
                self.cluster.taint(kube, now, name, (key, value, effect));
                format!("{name} is tainted")
            });
        }
        format!("storm: {words:?}")
    }

    /// Ends all draining: taints and conditions are removed.
    pub(super) fn end_draining(&mut self, kube: &mut KubeModel, now: u64) {
        self.draining.scheduled.clear();
        let names: Vec<String> = self.cluster.nodes.keys().cloned().collect();
        for name in names {
            self.cluster.set_scheduled_condition(kube, now, &name, None);
            if !self.keeps_draining {
                // Sometimes the taint of an eviction stays until the client that has set it removes it.
                let spot = self.draining.random.per_mille(500);
                self.cluster.untaint(kube, now, &name, |key| spot || key != SPOT.0);
            }
        }
    }
}
