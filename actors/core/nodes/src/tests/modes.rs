//! Tests of the modes (switched off, dry run, paused), and of missed backends.

use super::*;

fn off() -> OperatorPolicy {
    OperatorPolicy { admin_state_off: true, ..OperatorPolicy::default() }
}

/// Two of eight nodes are Down, of which one is deleted. Another client has set a third one Down.
fn busy() -> Bench {
    let mut bench = Bench::new(8);
    bench.somebody_sets(5, State::Down);
    bench.tell(node(1, &[SHUTDOWN]));
    bench.tell(node(2, &[SHUTDOWN]));
    bench.settle();
    bench.delete(2);
    bench.look();
    bench.said();
    assert_eq!((bench.downs().len(), bench.noted()), (5, vec!["node-1", "node-2"]));
    bench
}

#[test]
fn n4_switched_off_it_takes_back_what_is_ours_and_then_does_nothing() {
    let mut bench = busy();
    bench.restart(Role::Off);
    bench.lead(2);
    assert_eq!(bench.said(), all(RESTORE), "though the taint is still there");
    bench.settle();
    assert_eq!(
        bench.downs(),
        [(ips(5)[0], 1)].into(),
        "also of the node that is gone, and nothing of others"
    );
    assert!(bench.noted().is_empty() && bench.is_idle());
    let (gets, writes, looks) = (bench.gets, bench.writes, bench.looks);
    bench.tell(node(3, &[SHUTDOWN, OUT_OF_SERVICE]));
    bench.pass(600_000);
    bench.look();
    assert_eq!((bench.gets, bench.writes, bench.looks, bench.said().len()), (gets, writes, looks, 0));
    bench.hear(In::Standing(Standing::Standby));
    bench.lead(3);
    bench.look();
    bench.pass(600_000);
    assert_eq!((bench.gets, bench.writes, bench.looks), (gets + 1, writes, looks), "one read in each term");
    assert_eq!(bench.set.addresses.len() + bench.set.restorable.len(), 0);
}

#[test]
fn n4_a_note_switches_off_until_it_goes() {
    let mut bench = busy();
    bench.tell(node(3, &[SHUTDOWN]));
    bench.answers = false;
    bench.tell(node(4, &[SHUTDOWN]));
    assert_eq!(bench.state(4), Some(NodeState::Recording));
    bench.said();
    bench.wish(1, off());
    assert_eq!((bench.state(4), bench.state(3)), (None, Some(NodeState::Restoring)));
    assert!(bench.set.addresses.is_empty());
    bench.settle();
    bench.answer_all();
    assert_eq!((bench.downs(), bench.noted()), ([(ips(5)[0], 1)].into(), vec![]));
    bench.tell(node(6, &[SHUTDOWN]));
    bench.pass(60_000);
    assert_eq!((bench.state(6), bench.asks.len()), (None, 0));
    bench.answers = true;
    bench.wish(1, OperatorPolicy::default());
    assert_eq!(bench.drains(), ["node-1", "node-3", "node-4"], "signals count again");
    assert_eq!(bench.state(6), Some(NodeState::Held));
}

#[test]
fn n4_without_records_nothing_is_called_in_any_role() {
    for role in [Role::On, Role::Off] {
        let mut bench = Bench::leading(role, RecordStorage::ConfigMap, 4);
        for n in 1..=4 {
            bench.tell(NodeFact { ready: n % 2 == 0, ..node(n, &["node.kubernetes.io/unreachable"]) });
            bench.look();
        }
        bench.somebody_sets(3, State::Down);
        bench.look();
        bench.pass(600_000);
        assert_eq!((bench.gets, bench.writes, bench.looks, bench.said().len()), (1, 0, 0, 0), "{role:?}");
        assert_eq!((bench.set.generation, bench.machine.deadline()), (0, None));
    }
}

#[test]
fn c4_a_dry_run_writes_nothing_and_counts_withheld_work_as_done() {
    let mut bench = Bench::leading(Role::On, RecordStorage::Nothing, 4);
    bench.tell(node(1, &[SHUTDOWN]));
    assert_eq!((bench.said(), bench.gets, bench.writes), (all(DOWN), 0, 0), "it counts as noted");
    // The writer withholds its PUTs, and reports success.
    let withhold = |bench: &mut Bench| {
        let generation = bench.set.generation;
        for pool in std::mem::take(&mut bench.due).into_keys() {
            bench.finished(&pool, generation, None);
        }
    };
    withhold(&mut bench);
    for _ in 0..5 {
        bench.pass(60_000);
        bench.look();
    }
    assert_eq!((bench.said().len(), bench.state(1)), (0, Some(NodeState::Down)), "no GET per minute");
    bench.tell(node(2, &[SHUTDOWN]));
    assert_eq!(bench.said(), all(DOWN), "another set is shown again");
    withhold(&mut bench);
    bench.tell(node(1, &[]));
    bench.tell(node(2, &[]));
    bench.look();
    bench.look();
    assert_eq!((bench.state(1), bench.gets, bench.writes, bench.taints.len()), (None, 0, 0, 0));
    assert!(bench.is_idle());
}

#[test]
fn g6_while_everything_is_paused_no_record_is_made_and_the_set_shrinks() {
    let mut bench = Bench::new(8);
    bench.tell(node(1, &[SHUTDOWN]));
    bench.write(&pool("lb", "web"));
    bench.wish(1, OperatorPolicy { everything: Some(Pause::default()), ..OperatorPolicy::default() });
    let (writes, looks) = (bench.writes, bench.looks);
    bench.said();
    bench.tell(node(2, &[SHUTDOWN]));
    bench.tell(node(1, &[]));
    assert!(bench.set.addresses.is_empty(), "a write that is let go later goes by the newest set");
    bench.look();
    bench.pass(600_000);
    assert_eq!((bench.writes, bench.looks, bench.said().len()), (writes, looks, 0));
    assert_eq!((bench.state(2), bench.noted()), (Some(NodeState::Held), vec!["node-1"]));
    bench.wish(1, OperatorPolicy::default());
    bench.settle();
    assert_eq!((bench.downs().len(), bench.noted()), (2, vec!["node-2"]), "it goes on by itself");
}

#[test]
fn n2_what_a_write_of_an_older_set_has_added_is_cut_out_at_once() {
    let mut bench = Bench::new(4);
    bench.tell(node(1, &[SHUTDOWN]));
    bench.settle();
    bench.said();
    let shop = pool("lb", "shop");
    let began = bench.now;
    bench.pass(10);
    let missed = |bench: &mut Bench| {
        bench.hear(In::Missed(shop.clone(), [ips(1)[0].into()].into()));
    };
    missed(&mut bench);
    assert_eq!(bench.said(), [("lb/shop".to_owned(), DOWN)], "of a pool that was never seen");
    assert_eq!(bench.state(1), Some(NodeState::Draining));
    bench.look_at("lb", began);
    assert!(bench.due.contains_key(&shop), "an older observation says nothing about it");
    bench.azure.insert(shop.clone(), [(ips(1)[0], State::None)].into());
    bench.settle();
    assert_eq!((bench.downs()[&ips(1)[0]], bench.state(1)), (3, Some(NodeState::Down)));
    // The machine must assume that it is in the pool already.
    bench.azure.get_mut(&shop).expect("a pool").insert(ips(1)[0], State::None);
    bench.said();
    missed(&mut bench);
    assert_eq!(bench.said(), [("lb/shop".to_owned(), DOWN)]);
    bench.azure.remove(&shop);
    bench.look();
    assert!(bench.due.is_empty(), "a newer one does");
}
