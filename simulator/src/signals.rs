//! Draining nodes, with the times at which the API server accepted the signals: taints, and eviction notices of a
//! scenario.
//!
//! A node is identified by its UID, so that a recreated node is another one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;
use simulator_models::kube::{KubeModel, Resource};

use crate::expected_members;

/// A draining node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signal {
    /// Its name.
    pub(crate) node: String,
    /// Its InternalIPs.
    pub(crate) ips: BTreeSet<IpAddr>,
    /// Start, in microseconds.
    pub(crate) from_us: u64,
    /// Time of the eviction, if known.
    pub(crate) due_us: Option<u64>,
    /// End: the node returned or was deleted.
    pub(crate) until_us: Option<u64>,
}

/// All signals, in the order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    all: Vec<Signal>,
    /// Active signals by node name: the node's UID, and the index in `all`.
    active: BTreeMap<String, (String, usize)>,
    /// Notices by the node's UID.
    notices: BTreeMap<String, Notice>,
}

#[derive(Clone, Copy, Debug)]
struct Notice {
    due_us: u64,
    /// True if a taint has replaced it. When the taint is removed, the notice ends too.
    tainted: bool,
}

impl Signals {
    /// Records that a node will be evicted at `due_us`.
    pub(crate) fn notice(&mut self, model: &KubeModel, node: &str, due_us: u64, now_us: u64) {
        let Some(object) = model.get(Resource::Nodes, "", node) else { return };
        self.notices.insert(uid_of(&object), Notice { due_us, tainted: false });
        self.observe(model, node, now_us);
    }

    /// Observes a node that was written or deleted.
    pub(crate) fn observe(&mut self, model: &KubeModel, node: &str, now_us: u64) {
        let object = model.get(Resource::Nodes, "", node);
        let uid = object.as_ref().map(uid_of);
        let due_us = uid
            .as_ref()
            .and_then(|uid| self.due_of(uid, object.as_ref().is_some_and(expected_members::leaves)));
        if let Some((known, index)) = self.active.get(node)
            && (uid.as_ref() != Some(known) || due_us.is_none())
        {
            self.all[*index].until_us = Some(now_us);
            self.active.remove(node);
        }
        let (Some(object), Some(uid), Some(due_us)) = (object, uid, due_us) else { return };
        if let Some((_, index)) = self.active.get(node) {
            let signal = &mut self.all[*index];
            signal.due_us = due_us.or(signal.due_us);
            return;
        }
        self.active.insert(node.to_owned(), (uid, self.all.len()));
        let (node, ips) = (node.to_owned(), expected_members::internal_ips(&object).collect());
        self.all.push(Signal { node, ips, from_us: now_us, due_us, until_us: None });
    }

    /// Observes all nodes, after an action that may have changed any of them.
    pub(crate) fn observe_all(&mut self, model: &KubeModel, now_us: u64) {
        let name = |node: Value| node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut names: BTreeSet<String> = model.list(Resource::Nodes).map(name).collect();
        names.extend(self.active.keys().cloned());
        for name in names {
            self.observe(model, &name, now_us);
        }
    }

    /// Returns the deadline of a draining node, if known. The outer `None` means that the node does not drain.
    fn due_of(&mut self, uid: &str, tainted: bool) -> Option<Option<u64>> {
        if tainted {
            let notice = self.notices.get_mut(uid);
            return Some(notice.map(|notice| {
                notice.tainted = true;
                notice.due_us
            }));
        }
        if self.notices.get(uid).is_some_and(|notice| notice.tainted) {
            self.notices.remove(uid);
        }
        self.notices.get(uid).map(|notice| Some(notice.due_us))
    }

    /// Returns all signals.
    pub(crate) fn all(&self) -> &[Signal] {
        &self.all
    }
}

fn uid_of(node: &Value) -> String {
    node["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// Returns the node of a request path: `/api/v1/nodes/<name>`, with any suffix.
pub(crate) fn node_of(path_and_query: &str) -> Option<&str> {
    let rest = path_and_query.split('?').next()?.strip_prefix("/api/v1/nodes/")?;
    rest.split('/').next().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use simulator_models::kube::{self, build};

    use super::*;

    const KEY: &str = "node.kubernetes.io/out-of-service";

    /// Writes a node with taints with these keys.
    fn apply(model: &mut KubeModel, uid: &str, taints: &[&str], now_us: u64) {
        let taints: Vec<(&str, &str, &str)> = taints.iter().map(|key| (*key, "", "NoExecute")).collect();
        let node = build::node("n1", &["10.0.0.1"], &[], true, &taints);
        model.apply(build::with_uid(node, uid), now_us).expect("a node");
    }

    fn times(signals: &Signals) -> Vec<(u64, Option<u64>, Option<u64>)> {
        signals.all().iter().map(|one| (one.from_us, one.due_us, one.until_us)).collect()
    }

    #[test]
    fn n1_a_signal_lasts_from_the_first_taint_to_the_last() {
        let (mut model, mut signals) = (KubeModel::new(kube::Settings::default()), Signals::default());
        let other = "node.cloudprovider.kubernetes.io/shutdown";
        let steps: [(&str, &[&str]); 6] = [
            ("first", &["maintenance"]),
            ("first", &[KEY]),
            ("first", &[KEY, other]),
            ("first", &[other]),
            ("second", &[other]),
            ("second", &[]),
        ];
        for (at, (uid, taints)) in steps.into_iter().enumerate() {
            apply(&mut model, uid, taints, at as u64);
            signals.observe_all(&model, at as u64);
        }
        assert_eq!(times(&signals), [(1, None, Some(4)), (4, None, Some(5))]);
        assert_eq!(signals.all()[0].ips, BTreeSet::from([IpAddr::from([10, 0, 0, 1])]));
    }

    #[test]
    fn n1_a_notice_ends_with_its_taint_or_its_node() {
        let (mut model, mut signals) = (KubeModel::new(kube::Settings::default()), Signals::default());
        apply(&mut model, "first", &[], 0);
        signals.notice(&model, "nobody", 30, 0);
        signals.notice(&model, "n1", 30, 1);
        signals.observe(&model, "n1", 2);
        assert_eq!(times(&signals), [(1, Some(30), None)]);
        let later: [(u64, &[&str]); 2] = [(3, &[KEY]), (4, &[])];
        for (now_us, taints) in later {
            apply(&mut model, "first", taints, now_us);
            signals.observe(&model, "n1", now_us);
        }
        assert_eq!(times(&signals), [(1, Some(30), Some(4))], "another client has cleared it");
        signals.notice(&model, "n1", 90, 5);
        model.delete(Resource::Nodes, "", "n1", 6);
        signals.observe_all(&model, 6);
        assert_eq!(times(&signals)[1], (5, Some(90), Some(6)));
    }

    #[test]
    fn n1_a_request_about_a_node_is_recognised_by_its_path() {
        assert_eq!(node_of("/api/v1/nodes/n1?fieldManager=x"), Some("n1"));
        assert_eq!(node_of("/api/v1/nodes/n1/status"), Some("n1"));
        for other in ["/api/v1/nodes", "/api/v1/nodes/", "/api/v1/namespaces/a/events/nodes/n1"] {
            assert_eq!(node_of(other), None, "{other}");
        }
    }
}
