//! Drives the publisher on the test's clock.

mod out_of_sync;

use proptest::prelude::*;

use std::collections::BTreeMap;

use super::*;
use model::ids::{LbName, NodeUid};
use model::node::{NodeState, Role};
use model::object::Kind;
use model::view::Candidacy;

fn service(name: &str, uid: &str) -> In {
    let key = ServiceKey::new("shop", name);
    let view = ServiceView {
        key: key.clone(),
        uid: ServiceUid::new(uid),
        candidacy: Candidacy::Candidate,
        paused: false,
        slices: 1,
        endpoints: 1,
        data_errors: Vec::new(),
        resource: None,
        excluded: Vec::new(),
        pools: Vec::new(),
        not_manageable: Vec::new(),
    };
    In::Service(ServiceUid::new(uid), key, Some(Arc::new(view)))
}

fn no_service(name: &str, uid: &str) -> In {
    In::Service(ServiceUid::new(uid), ServiceKey::new("shop", name), None)
}

fn source(objects: usize) -> In {
    let kind = Kind::Nodes;
    In::Source(SourceView {
        kind,
        phase: "watching",
        synced: true,
        objects,
        heard_at: None,
        stale_since: None,
        last_error: None,
    })
}

fn lane(name: &str) -> In {
    In::Lane(LaneView {
        lb: LbName::new(name),
        writing: None,
        waiting: Vec::new(),
        closed: None,
        fault: None,
    })
}

fn node(name: &str, state: NodeState) -> In {
    let view = NodeView {
        name: NodeName::new(name),
        uid: NodeUid::new(name),
        state,
        signals: [].into(),
        since: Some(Now::ZERO),
        ready: true,
        backends: Vec::new(),
        generation: None,
        recorded: false,
        taint_ours: false,
        pools: Vec::new(),
        retries: 0,
        next: None,
        last_error: None,
    };
    In::Node(view.name.clone(), Some(view))
}

fn admin_state(records: usize) -> In {
    In::Admin(AdminView {
        role: Role::On,
        switched_off: false,
        generation: 7,
        records,
        unreadable: BTreeMap::new(),
        refused: 0,
        foreign: Vec::new(),
        fresh: true,
        last_error: None,
    })
}

/// Returns the published snapshots.
fn published(outputs: Vec<Out>) -> Vec<Arc<Snapshot>> {
    let snapshot = |outputs| match outputs {
        Out::Publish(snapshot) => Some(snapshot),
        Out::OutOfSync(_) => None,
    };
    outputs.into_iter().filter_map(snapshot).collect()
}

fn at(publisher: &mut SnapshotPublisher, ms: u64, input: In) -> Option<Arc<Snapshot>> {
    let mut out = Vec::new();
    publisher.step(Now::from_millis(ms), input, &mut out);
    published(out).pop()
}

#[test]
fn a2_snapshots_after_the_first_come_every_250_ms() {
    let mut publisher = SnapshotPublisher::new();
    assert!(at(&mut publisher, 7, lane("a")).is_some());
    assert_eq!(publisher.deadline(), None, "nothing new");
    assert!(at(&mut publisher, 100, lane("b")).is_none());
    assert!(at(&mut publisher, 200, lane("c")).is_none());
    assert_eq!(publisher.deadline(), Some(Now::from_millis(257)));
    let mut out = Vec::new();
    publisher.tick(Now::from_millis(256), &mut out);
    assert!(out.is_empty());
    publisher.tick(Now::from_millis(257), &mut out);
    let [snapshot] = &published(out)[..] else { panic!("one snapshot") };
    assert_eq!((snapshot.lanes.len(), snapshot.at), (3, Now::from_millis(257)));
    assert_eq!(publisher.deadline(), None);
}

#[test]
fn a2_an_input_without_a_change_publishes_nothing() {
    let mut publisher = SnapshotPublisher::new();
    assert!(at(&mut publisher, 0, source(3)).is_some());
    assert!(at(&mut publisher, 1_000, source(3)).is_none());
    assert!(at(&mut publisher, 2_000, source(4)).is_some());
    assert!(at(&mut publisher, 3_000, In::ListsSynced).is_some());
    assert!(at(&mut publisher, 4_000, In::ListsSynced).is_none());
    assert!(at(&mut publisher, 5_000, no_service("web", "1")).is_none());
    assert!(at(&mut publisher, 6_000, node("n1", NodeState::Held)).is_some());
    assert!(at(&mut publisher, 7_000, node("n1", NodeState::Held)).is_none());
    assert!(at(&mut publisher, 8_000, In::Node(NodeName::new("n2"), None)).is_none());
    assert!(at(&mut publisher, 9_000, admin_state(1)).is_some());
    assert!(at(&mut publisher, 10_000, admin_state(1)).is_none());
    assert_eq!(publisher.deadline(), None);
}

#[test]
fn a2_a_node_is_listed_until_its_last_data_is_gone() {
    let mut publisher = SnapshotPublisher::new();
    at(&mut publisher, 0, node("n1", NodeState::Recording));
    at(&mut publisher, 1_000, node("n2", NodeState::Held));
    let snapshot = at(&mut publisher, 2_000, node("n1", NodeState::Down)).expect("a snapshot");
    let states = snapshot.nodes.values().map(|view| (view.name.as_str(), view.state));
    assert!(states.eq([("n1", NodeState::Down), ("n2", NodeState::Held)]));
    let snapshot = at(&mut publisher, 3_000, In::Node(NodeName::new("n1"), None)).expect("a snapshot");
    assert!(snapshot.nodes.keys().map(NodeName::as_str).eq(["n2"]));
    assert_eq!(snapshot.admin_state, None, "it has no view");
    let snapshot = at(&mut publisher, 4_000, admin_state(2)).expect("a snapshot");
    assert_eq!(snapshot.admin_state.as_ref().map(|view| view.records), Some(2));
}

#[test]
fn a2_removing_a_predecessor_keeps_its_successor() {
    let mut publisher = SnapshotPublisher::new();
    at(&mut publisher, 0, service("web", "old"));
    at(&mut publisher, 1_000, service("web", "new"));
    assert!(at(&mut publisher, 2_000, no_service("web", "old")).is_none());
    let snapshot = at(&mut publisher, 3_000, lane("a")).expect("a snapshot");
    let view = &snapshot.services[&ServiceKey::new("shop", "web")];
    assert_eq!(view.uid, ServiceUid::new("new"));
    let snapshot = at(&mut publisher, 4_000, no_service("web", "new")).expect("a snapshot");
    assert!(snapshot.services.is_empty());
}

#[test]
fn a2_a_published_snapshot_does_not_change() {
    let mut publisher = SnapshotPublisher::new();
    let first = at(&mut publisher, 0, service("web", "1")).expect("a snapshot");
    at(&mut publisher, 1_000, no_service("web", "1"));
    assert_eq!(first.services.len(), 1);
}

proptest! {
    /// Safety: never two snapshots within the interval. Liveness: at the end the newest is published.
    #[test]
    fn a2_snapshots_are_paced_and_end_with_the_newest(
        steps in prop::collection::vec((0..5_usize, 0..400_u64), 1..60),
    ) {
        let mut publisher = SnapshotPublisher::new();
        let (mut now, mut last, mut objects, mut shown) = (Now::ZERO, None::<Now>, None, None);
        let mut out = Vec::new();
        for (count, pause) in steps {
            let end = now.plus(Duration::from_millis(pause));
            if let Some(at) = publisher.deadline().filter(|at| *at <= end) {
                now = now.max(at);
                publisher.tick(now, &mut out);
            } else {
                now = end;
                publisher.step(now, source(count), &mut out);
                objects = Some(count);
            }
            for snapshot in published(std::mem::take(&mut out)) {
                prop_assert!(last.is_none_or(|last| now.since(last) >= INTERVAL));
                last = Some(now);
                shown = snapshot.sources.get(&Kind::Nodes).map(|view| view.objects);
            }
        }
        if let Some(at) = publisher.deadline() {
            publisher.tick(at, &mut out);
            for snapshot in published(out) {
                shown = snapshot.sources.get(&Kind::Nodes).map(|view| view.objects);
            }
        }
        prop_assert_eq!(shown, objects);
        prop_assert_eq!(publisher.deadline(), None);
    }
}
