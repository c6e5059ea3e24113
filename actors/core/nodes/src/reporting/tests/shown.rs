//! Tests of the views.

use super::*;
use model::view::{NodePool, NodePoolState};

fn named(output: &Emitted) -> Vec<(&str, Option<NodeState>)> {
    output.nodes.iter().map(|(name, view)| (name.as_str(), view.as_ref().map(|view| view.state))).collect()
}

fn node_pools(output: &Emitted) -> Vec<(String, NodePoolState)> {
    let [(_, Some(view))] = &output.nodes[..] else { panic!("{output:?}") };
    view.pools.iter().map(|NodePool { pool, state }| (pool.to_string(), *state)).collect()
}

#[test]
fn h3_without_draining_nodes_there_is_one_view() {
    let mut fixture = Fixture::new(3);
    fixture.reporting = Reporting::default();
    let output = fixture.later();
    assert_eq!((output.whole.len(), output.nodes.len(), output.samples.len()), (1, 0, 0));
    for _ in 0..3 {
        fixture.observe();
        let output = fixture.later();
        assert!(
            output.whole.is_empty() && output.nodes.is_empty() && output.samples.is_empty(),
            "{output:?}"
        );
        assert!(output.reports.is_empty() && fixture.reporting.deadline().is_none());
    }
}

#[test]
fn h3_a_node_is_shown_on_each_change_until_it_is_back_to_normal() {
    let mut fixture = Fixture::new(3);
    fixture.put(1, NodeState::Held);
    assert_eq!(named(&fixture.later()), [("node-1", Some(NodeState::Held))]);
    fixture.observe();
    assert_eq!(named(&fixture.later()), []);
    fixture.put(1, NodeState::Recording);
    fixture.put(2, NodeState::Restoring);
    let output = fixture.later();
    assert_eq!(
        named(&output),
        [("node-1", Some(NodeState::Recording)), ("node-2", Some(NodeState::Restoring))]
    );
    let view = output.nodes[0].1.as_ref().unwrap();
    assert!(
        !view.recorded
            && view.generation.is_none()
            && view.ready
            && view.since == Some(fixture.nodes[0].since)
    );

    let uid = fixture.uid(1);
    fixture.set = Draining { generation: 4, addresses: [(ip(1).into(), uid)].into(), ..fixture.set.clone() };
    fixture.record(1).taint_ours = true;
    fixture.put(1, NodeState::Draining);
    fixture.put(2, None);
    let output = fixture.later();
    assert_eq!(named(&output), [("node-2", None), ("node-1", Some(NodeState::Draining))]);
    let view = output.nodes[1].1.as_ref().unwrap();
    assert!(view.recorded && view.taint_ours && view.generation == Some(4));
    assert_eq!(output.whole.last().map(|view| view.generation), Some(4));

    fixture.leads = false;
    assert_eq!(named(&fixture.later()), [("node-1", None)], "only the leader knows the progress");
    fixture.leads = true;
    assert_eq!(named(&fixture.later()), [("node-1", Some(NodeState::Draining))]);
}

#[test]
fn h3_a_node_that_is_deleted_waits_in_no_pool() {
    for before in [NodeState::Draining, NodeState::Restoring] {
        let mut fixture = Fixture::new(2);
        if before == NodeState::Restoring {
            fixture.set_all(1, State::Down);
        }
        fixture.put(1, before);
        let waits = fixture.later().nodes[0].1.as_ref().map(|view| view.count(NodePoolState::Waiting));
        assert!(waits > Some(0), "{before:?}");
        fixture.nodes[0].fact = None;
        fixture.put(1, NodeState::Gone);
        let waits = fixture.later().nodes[0].1.as_ref().map(|view| view.count(NodePoolState::Waiting));
        assert_eq!(waits, Some(0), "{before:?}");
    }
}

#[test]
fn n2_of_two_nodes_with_one_name_the_existing_one_is_shown() {
    for gone in [0, 1] {
        let mut fixture = Fixture::new(3);
        fixture.nodes[gone].fact = None;
        fixture.nodes[1].name = fixture.nodes[0].name.clone();
        fixture.put(1, NodeState::Draining);
        fixture.put(2, NodeState::Draining);
        fixture.nodes[gone].state = Some(NodeState::Gone);
        assert_eq!(named(&fixture.later()), [("node-1", Some(NodeState::Draining))]);
    }
}

#[test]
fn n2_a_node_is_shown_with_its_state_in_each_pool() {
    let mut fixture = Fixture::new(2);
    let [web, internal] = pools();
    let excluded = pool("lb", "excluded");
    fixture.set(&excluded, 1, State::None);
    let states =
        [("down", State::Down), ("foreign", State::Down), ("odd", State::Unknown), ("up", State::Up)];
    for (name, state) in states {
        fixture.set(&pool("lb", name), 1, state);
    }
    fixture.record(1).foreign.add(&pool("lb", "foreign"));
    fixture.put(1, NodeState::Draining);
    fixture.update(&web, 1);
    fixture.update(&internal, 1);
    assert_eq!(
        fixture.updates.failed(fixture.now, &internal, 1, (Duration::ZERO, Duration::ZERO)),
        [fixture.uid(1)]
    );
    let shown = |rows: &[(&str, NodePoolState)]| -> Vec<(String, NodePoolState)> {
        rows.iter().map(|(pool, state)| ((*pool).to_owned(), *state)).collect()
    };
    let expected = [
        ("lb/down", NodePoolState::Down),
        ("lb/excluded", NodePoolState::Excluded),
        ("lb/foreign", NodePoolState::Foreign),
        ("lb/odd", NodePoolState::Unknown),
        ("lb/up", NodePoolState::Waiting),
        ("lb/web", NodePoolState::Waiting),
        ("lb-internal/web", NodePoolState::Failed),
    ];
    assert_eq!(node_pools(&fixture.later()), shown(&expected));

    fixture.put(1, NodeState::Restoring);
    let expected = [
        ("lb/down", NodePoolState::Waiting),
        ("lb/excluded", NodePoolState::Excluded),
        ("lb/foreign", NodePoolState::Foreign),
    ];
    assert_eq!(node_pools(&fixture.later()), shown(&expected), "a pool in which it is back is not shown");
}

#[test]
fn n4_the_first_hundred_foreign_admin_states_are_shown_in_order() {
    let mut fixture = Fixture::new(3);
    for n in (0..60).rev() {
        let id = pool("lb", &format!("pool-{n:02}"));
        fixture.azure.insert(id, [(ip(1), State::Down), (ip(2), State::Up), (ip(99), State::Down)].into());
    }
    fixture.observe();
    let output = fixture.later();
    let [view] = &output.whole[..] else { panic!("{output:?}") };
    let shown = |at: usize| {
        let state = &view.foreign[at];
        (state.pool.pool.as_str(), state.node.as_str(), state.state)
    };
    assert_eq!(view.foreign.len(), AdminView::MAX_FOREIGN);
    assert_eq!(shown(0), ("pool-00", "node-1", State::Down));
    assert_eq!(shown(99), ("pool-49", "node-2", State::Up));
    assert_eq!(output.samples, [Metric::DownEntries { foreign: true, entries: 60 }]);
}

#[test]
fn h3_views_of_all_pools_are_250_ms_apart() {
    let mut fixture = Fixture::new(3);
    fixture.put(1, NodeState::Held);
    assert_eq!(fixture.later().nodes.len(), 1);
    fixture.now = fixture.now.plus(Duration::from_millis(100));
    fixture.put(1, NodeState::Recording);
    assert_eq!(fixture.report().nodes, []);
    let deadline = fixture.reporting.deadline().unwrap();
    assert_eq!(deadline, fixture.now.plus(Duration::from_millis(150)));
    fixture.now = fixture.now.plus(Duration::from_millis(100));
    assert_eq!((fixture.report().nodes.len(), fixture.reporting.deadline()), (0, Some(deadline)));
    fixture.now = deadline;
    assert_eq!(named(&fixture.report()), [("node-1", Some(NodeState::Recording))]);
    assert_eq!(fixture.reporting.deadline(), None);
}

#[test]
fn h3_the_records_view_is_published_when_it_changes() {
    let mut fixture = Fixture::new(3);
    fixture.unreadable.insert("down.x".into(), "it names no node");
    let output = fixture.later();
    assert_eq!(output.whole.iter().map(|view| view.unreadable.len()).collect::<Vec<_>>(), [1]);
    assert!(fixture.later().whole.is_empty());
    fixture.refused.insert(fixture.nodes[0].uid.clone(), "there is no room");
    assert_eq!(fixture.later().whole.iter().map(|view| view.refused).collect::<Vec<_>>(), [1]);
}
