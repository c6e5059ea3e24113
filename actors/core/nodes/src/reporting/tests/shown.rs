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
    let mut bench = Bench::new(3);
    bench.reporting = Reporting::default();
    let output = bench.later();
    assert_eq!((output.whole.len(), output.nodes.len(), output.samples.len()), (1, 0, 0));
    for _ in 0..3 {
        bench.observe();
        let output = bench.later();
        assert!(
            output.whole.is_empty() && output.nodes.is_empty() && output.samples.is_empty(),
            "{output:?}"
        );
        assert!(output.reports.is_empty() && bench.reporting.deadline().is_none());
    }
}

#[test]
fn h3_a_node_is_shown_on_each_change_until_it_is_back_to_normal() {
    let mut bench = Bench::new(3);
    bench.put(1, NodeState::Held);
    assert_eq!(named(&bench.later()), [("node-1", Some(NodeState::Held))]);
    bench.observe();
    assert_eq!(named(&bench.later()), []);
    bench.put(1, NodeState::Recording);
    bench.put(2, NodeState::Restoring);
    let output = bench.later();
    assert_eq!(
        named(&output),
        [("node-1", Some(NodeState::Recording)), ("node-2", Some(NodeState::Restoring))]
    );
    let view = output.nodes[0].1.as_ref().unwrap();
    assert!(
        !view.recorded && view.generation.is_none() && view.ready && view.since == Some(bench.nodes[0].since)
    );

    let uid = bench.uid(1);
    bench.set = Draining { generation: 4, addresses: [(ip(1).into(), uid)].into(), ..bench.set.clone() };
    bench.record(1).taint_ours = true;
    bench.put(1, NodeState::Draining);
    bench.put(2, None);
    let output = bench.later();
    assert_eq!(named(&output), [("node-2", None), ("node-1", Some(NodeState::Draining))]);
    let view = output.nodes[1].1.as_ref().unwrap();
    assert!(view.recorded && view.taint_ours && view.generation == Some(4));
    assert_eq!(output.whole.last().map(|view| view.generation), Some(4));

    bench.leads = false;
    assert_eq!(named(&bench.later()), [("node-1", None)], "only the leader knows the progress");
    bench.leads = true;
    assert_eq!(named(&bench.later()), [("node-1", Some(NodeState::Draining))]);
}

#[test]
fn h3_a_node_that_is_deleted_waits_in_no_pool() {
    for before in [NodeState::Draining, NodeState::Restoring] {
        let mut bench = Bench::new(2);
        if before == NodeState::Restoring {
            bench.set_all(1, State::Down);
        }
        bench.put(1, before);
        let waits = bench.later().nodes[0].1.as_ref().map(|view| view.count(NodePoolState::Waiting));
        assert!(waits > Some(0), "{before:?}");
        bench.nodes[0].fact = None;
        bench.put(1, NodeState::Gone);
        let waits = bench.later().nodes[0].1.as_ref().map(|view| view.count(NodePoolState::Waiting));
        assert_eq!(waits, Some(0), "{before:?}");
    }
}

#[test]
fn n2_of_two_nodes_with_one_name_the_existing_one_is_shown() {
    for gone in [0, 1] {
        let mut bench = Bench::new(3);
        bench.nodes[gone].fact = None;
        bench.nodes[1].name = bench.nodes[0].name.clone();
        bench.put(1, NodeState::Draining);
        bench.put(2, NodeState::Draining);
        bench.nodes[gone].state = Some(NodeState::Gone);
        assert_eq!(named(&bench.later()), [("node-1", Some(NodeState::Draining))]);
    }
}

#[test]
fn n2_a_node_is_shown_with_its_state_in_each_pool() {
    let mut bench = Bench::new(2);
    let [web, internal] = pools();
    let excluded = pool("lb", "excluded");
    bench.set(&excluded, 1, State::None);
    let states =
        [("down", State::Down), ("foreign", State::Down), ("odd", State::Unknown), ("up", State::Up)];
    for (name, state) in states {
        bench.set(&pool("lb", name), 1, state);
    }
    bench.record(1).foreign.add(&pool("lb", "foreign"));
    bench.put(1, NodeState::Draining);
    bench.update(&web, 1);
    bench.update(&internal, 1);
    assert_eq!(
        bench.updates.failed(bench.now, &internal, 1, (Duration::ZERO, Duration::ZERO)),
        [bench.uid(1)]
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
    assert_eq!(node_pools(&bench.later()), shown(&expected));

    bench.put(1, NodeState::Restoring);
    let expected = [
        ("lb/down", NodePoolState::Waiting),
        ("lb/excluded", NodePoolState::Excluded),
        ("lb/foreign", NodePoolState::Foreign),
    ];
    assert_eq!(node_pools(&bench.later()), shown(&expected), "a pool in which it is back is not shown");
}

#[test]
fn n4_the_first_hundred_foreign_admin_states_are_shown_in_order() {
    let mut bench = Bench::new(3);
    for n in (0..60).rev() {
        let id = pool("lb", &format!("pool-{n:02}"));
        bench.azure.insert(id, [(ip(1), State::Down), (ip(2), State::Up), (ip(99), State::Down)].into());
    }
    bench.observe();
    let output = bench.later();
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
    let mut bench = Bench::new(3);
    bench.put(1, NodeState::Held);
    assert_eq!(bench.later().nodes.len(), 1);
    bench.now = bench.now.plus(Duration::from_millis(100));
    bench.put(1, NodeState::Recording);
    assert_eq!(bench.report().nodes, []);
    let deadline = bench.reporting.deadline().unwrap();
    assert_eq!(deadline, bench.now.plus(Duration::from_millis(150)));
    bench.now = bench.now.plus(Duration::from_millis(100));
    assert_eq!((bench.report().nodes.len(), bench.reporting.deadline()), (0, Some(deadline)));
    bench.now = deadline;
    assert_eq!(named(&bench.report()), [("node-1", Some(NodeState::Recording))]);
    assert_eq!(bench.reporting.deadline(), None);
}

#[test]
fn h3_the_records_view_is_published_when_it_changes() {
    let mut bench = Bench::new(3);
    bench.unreadable.insert("down.x".into(), "it names no node");
    let output = bench.later();
    assert_eq!(output.whole.iter().map(|view| view.unreadable.len()).collect::<Vec<_>>(), [1]);
    assert!(bench.later().whole.is_empty());
    bench.refused.insert(bench.nodes[0].uid.clone(), "there is no room");
    assert_eq!(bench.later().whole.iter().map(|view| view.refused).collect::<Vec<_>>(), [1]);
}
