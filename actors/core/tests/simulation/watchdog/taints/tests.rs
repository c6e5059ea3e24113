//! Tests of the judgement itself: which taints of other clients a process may remove as ours.

use model::ids::{NodeName, NodeUid};
use model::object::TaintPatch;
use serde_json::json;
use simulator_models::arm::{self, ArmModel};
use simulator_models::kube::{self, KubeModel, Resource, build};

use super::*;
use crate::leases::NAMESPACE;
use crate::notes::{NAME, RECORD};
use crate::process::Settings;
use crate::story::{Faults, Notice, SPOT, Size};

const NODE: &str = "node-0";
const UID: &str = "uid-0";
const SECOND_US: u64 = 1_000_000;

/// A Ready node with a notice of its eviction. Process 0 leads, process 1 succeeds it, and both see everything.
struct Fixture {
    watchdog: Watchdog,
    kube: KubeModel,
    arm: ArmModel,
    now: u64,
}

impl Fixture {
    fn new() -> Fixture {
        let mut fixture = Fixture {
            watchdog: Watchdog::new(true, false, 0),
            kube: KubeModel::new(kube::Settings::default()),
            arm: ArmModel::new(arm::Settings::default()),
            now: 0,
        };
        let size =
            Size { services: 0, nodes: 1, balancers: 1, seconds: 0, replicas: 2, faults: Faults::default() };
        for process in 0..2 {
            fixture.watchdog.start(0, None, &Settings::defaults(size));
            fixture.watchdog.blind(0, process, false);
        }
        fixture.write_node(&[]);
        let notice = Notice { uid: UID.to_owned(), at: SECOND_US, passes: 30 * SECOND_US, is_expired: false };
        fixture.watchdog.notices_given(vec![notice]);
        fixture.now = 2 * SECOND_US;
        fixture
    }

    fn write_node(&mut self, taints: &[(&str, &str, &str)]) {
        let node = build::with_uid(build::node(NODE, &["10.1.0.4"], &[], true, taints), UID);
        self.kube.apply(node, self.now).expect("it is a node");
        self.watchdog.record_nodes(self.now, &self.kube);
    }

    /// Adds a taint that equals ours, as another client.
    fn taint(&mut self) {
        self.pass(SECOND_US);
        self.write_node(&[(SPOT.0, SPOT.1, "NoSchedule")]);
    }

    /// Process 0 records the node.
    fn record(&mut self, is_ours: bool) {
        self.pass(SECOND_US);
        let line = if is_ours { "taint: ours\n" } else { "" };
        let key = format!("{RECORD}{UID}");
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "data": {key: format!("{NODE}\nips: 10.1.0.4\ninstance: {NODE}\n{line}")}});
        self.kube.apply(object, self.now).expect("it is a ConfigMap");
        self.watchdog.record_records(self.now, Some(0), &self.kube, &self.arm).expect("it is needed");
    }

    /// Process 0 sends a patch that changes nothing, and receives this answer.
    fn patch(&mut self, answer: TaintAnswer) {
        let patch =
            TaintPatch { node: NodeName::new(NODE), uid: NodeUid::new(UID), edit: TaintEdit::AddFirst };
        let outputs = [Output::AdminState(nodes::Out::Taint(CallId(1), patch))];
        let answered = Delivery::AdminState(nodes::In::Tainted(CallId(1), answer));
        let patches = &mut self.watchdog.within[0].patches;
        patches.step(self.now, None, &outputs);
        patches.step(self.now + 1, Some(&answered), &[]);
    }

    fn pass(&mut self, span: u64) {
        self.now += span;
    }

    /// Removes the taint as a process, when the node has been Ready for long enough. Returns whether the process may
    /// do so.
    fn may_remove(&mut self, process: usize) -> bool {
        self.pass(700 * SECOND_US);
        let before = self.kube.get(Resource::Nodes, "", NODE).expect("it exists");
        let mut after = before.clone();
        after["spec"]["taints"] = json!([]);
        self.watchdog.patched(self.now, process, true, Some(&before), Some(&after)).is_ok()
    }
}

#[test]
fn n1_a_recorded_taint_is_the_successors_to_remove() {
    let mut fixture = Fixture::new();
    fixture.record(true);
    fixture.taint();
    assert!(fixture.may_remove(1), "it cannot know that the patch was never sent");
}

#[test]
fn n1_a_taint_without_a_record_is_never_removed() {
    let mut fixture = Fixture::new();
    fixture.taint();
    assert!(!fixture.may_remove(1));
}

#[test]
fn n1_a_taint_that_a_corrected_record_leaves_to_others_stays() {
    let mut fixture = Fixture::new();
    fixture.record(true);
    fixture.taint();
    fixture.record(false);
    assert!(!fixture.may_remove(1));
}

#[test]
fn n1_a_record_long_after_the_taint_claims_nothing() {
    let mut fixture = Fixture::new();
    fixture.taint();
    fixture.pass(120 * SECOND_US);
    fixture.record(true);
    assert!(!fixture.may_remove(1));
}

#[test]
fn n1_answers_show_the_recorder_the_owner_of_a_taint() {
    let other = || RequestFailure::Other("no answer".into());
    for (answer, may_remove) in [
        (None, false),
        (Some(TaintAnswer::Overtaken), false),
        (Some(TaintAnswer::Failed(RequestFailure::Denied("403".into()))), false),
        (Some(TaintAnswer::Failed(other())), true),
    ] {
        let mut fixture = Fixture::new();
        fixture.record(true);
        if let Some(answer) = answer.clone() {
            fixture.patch(answer);
        }
        fixture.taint();
        assert_eq!(fixture.may_remove(0), may_remove, "{answer:?}");
    }
}
