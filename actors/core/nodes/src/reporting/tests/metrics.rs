//! Tests of the metrics.

use super::*;
use model::sample::WorkResult;

fn drained(output: &Emitted) -> Vec<Duration> {
    let of = |sample: &Metric| if let Metric::Drained(took) = sample { Some(*took) } else { None };
    output.samples.iter().filter_map(of).collect()
}

#[test]
fn e2_gauges_are_emitted_on_change_and_return_to_zero() {
    let mut fixture = Fixture::new(3);
    fixture.put(1, NodeState::Draining);
    let signals = |nodes: u64| Metric::DrainingNodes { signal: Signal::Shutdown, nodes };
    let states = |state: NodeState, nodes: u64| Metric::AdminNodes { state, nodes };
    let records = |kept: u64| Metric::AdminRecords { kept, unreadable: 0, refused: 0 };
    let waited = |seconds: u64| Metric::AdminOldest(Some(Duration::from_secs(seconds)));
    let draining = [states(NodeState::Draining, 1), signals(1), waited(1), records(1)];
    assert_eq!(fixture.later().samples, draining);
    assert_eq!(fixture.later().samples, [waited(2)]);
    fixture.set_all(1, State::Down);
    fixture.put(1, NodeState::Down);
    let down = [
        states(NodeState::Draining, 0),
        states(NodeState::Down, 1),
        Metric::AdminOldest(None),
        Metric::DownEntries { foreign: false, entries: 2 },
    ];
    assert_eq!(fixture.later().samples, down);
    assert_eq!(fixture.later().samples, []);
    fixture.set_all(1, State::None);
    fixture.put(1, None);
    let over = [
        states(NodeState::Down, 0),
        signals(0),
        records(0),
        Metric::DownEntries { foreign: false, entries: 0 },
    ];
    assert_eq!(fixture.later().samples, over);
}

#[test]
fn e2_a_standby_counts_nothing() {
    let mut fixture = Fixture::new(3);
    fixture.put(1, NodeState::Held);
    fixture.set(&pools()[0], 2, State::Down);
    let output = fixture.later();
    assert!(output.samples.contains(&Metric::AdminNodes { state: NodeState::Held, nodes: 1 }), "{output:?}");
    assert!(output.samples.contains(&Metric::DownEntries { foreign: true, entries: 1 }), "{output:?}");
    fixture.leads = false;
    fixture.acts = false;
    let output = fixture.later();
    assert!(output.samples.contains(&Metric::AdminNodes { state: NodeState::Held, nodes: 0 }), "{output:?}");
    assert!(output.samples.contains(&Metric::DownEntries { foreign: true, entries: 0 }), "{output:?}");
}

#[test]
fn e2_a_drain_lasts_until_its_last_operation_ends() {
    let mut fixture = Fixture::new(3);
    let [web, internal] = pools();
    fixture.put(1, NodeState::Recording);
    fixture.later();
    fixture.put(1, NodeState::Draining);
    fixture.update(&web, 1);
    fixture.update(&internal, 1);
    fixture.later();
    fixture.updates.ended(fixture.now, &web, 1, Duration::ZERO);
    fixture.later();
    fixture.updates.ended(fixture.now, &internal, 1, Duration::ZERO);
    assert_eq!(drained(&fixture.later()), [], "pools are scanned again");
    fixture.put(1, NodeState::Down);
    assert_eq!(drained(&fixture.later()), [Duration::from_secs(4)]);
    fixture.put(1, NodeState::Draining);
    fixture.update(&web, 1);
    fixture.later();
    fixture.updates.ended(fixture.now, &web, 1, Duration::ZERO);
    fixture.later();
    fixture.put(1, NodeState::Down);
    assert_eq!(drained(&fixture.later()), [], "a later repair is no drain");
}

#[test]
fn e2_a_drain_of_another_term_or_without_work_has_no_duration() {
    let mut fixture = Fixture::new(3);
    let web = &pools()[0];
    fixture.put(3, NodeState::Recording);
    fixture.later();
    fixture.put(3, NodeState::Down);
    assert_eq!(drained(&fixture.later()), [], "there was no write for it");
    fixture.put(1, NodeState::Draining);
    fixture.nodes[0].since = Now::from_millis(1);
    fixture.update(web, 1);
    fixture.later();
    fixture.updates.ended(fixture.now, web, 1, Duration::ZERO);
    fixture.later();
    fixture.put(1, NodeState::Down);
    assert_eq!(drained(&fixture.later()), []);
}

#[test]
fn s4_each_result_of_the_queue_is_counted() {
    let mut fixture = Fixture::new(3);
    fixture.put(1, NodeState::Draining);
    fixture.later();
    fixture.fail(&pools()[0], 1);
    let output = fixture.report();
    assert!(output.samples.contains(&Metric::Reconciled(WorkResult::Error)), "{output:?}");
    assert!(output.samples.contains(&Metric::ReconcileQueue(1)), "{output:?}");
    let uid = fixture.uid(1);
    for _ in 0..2 {
        fixture.queue.add(fixture.now, uid.clone());
        assert_eq!(fixture.queue.take(fixture.now), Some(uid.clone()));
        fixture.queue.finish(fixture.now, &uid, Ok(work_queue::Done::Success));
    }
    let output = fixture.later();
    let successes =
        output.samples.iter().filter(|sample| **sample == Metric::Reconciled(WorkResult::Success));
    assert_eq!(successes.count(), 2);
    assert!(output.samples.contains(&Metric::ReconcileQueue(0)), "{output:?}");
    assert!(!fixture.later().samples.iter().any(|sample| matches!(sample, Metric::Reconciled(_))));
}
