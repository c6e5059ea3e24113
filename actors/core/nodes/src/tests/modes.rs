//! Tests of the modes (switched off, dry run, paused), and of backends that are added during a write.

use super::*;

fn off() -> OperatorPolicy {
    OperatorPolicy { admin_state_off: true, ..OperatorPolicy::default() }
}

/// Creates a bench with eight nodes. Two are Down, of which one is deleted. Another client has set a third node Down.
fn busy() -> Bench {
    let mut bench = Bench::new(8);
    bench.set_foreign(5, State::Down);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.deliver(node(2, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.delete(2);
    bench.observe_all();
    bench.take_due();
    assert_eq!((bench.downs().len(), bench.recorded()), (5, vec!["node-1", "node-2"]));
    bench
}

#[test]
fn n4_switched_off_it_restores_our_downs_and_then_idles() {
    let mut bench = busy();
    bench.restart(Role::Off);
    bench.lead(2);
    assert_eq!(bench.take_due(), all(RESTORE), "although the taint still exists");
    bench.run_until_stable();
    assert_eq!(
        bench.downs(),
        [(ips(5)[0], 1)].into(),
        "also the Downs of the deleted node, and no foreign Down"
    );
    assert!(bench.recorded().is_empty() && bench.is_idle());
    let (gets, writes, looks) = (bench.gets, bench.writes, bench.requested_reads);
    bench.deliver(node(3, &[SHUTDOWN, OUT_OF_SERVICE]));
    bench.pass(600_000);
    bench.observe_all();
    assert_eq!(
        (bench.gets, bench.writes, bench.requested_reads, bench.take_due().len()),
        (gets, writes, looks, 0)
    );
    bench.step(In::Leadership(Leadership::Standby));
    bench.lead(3);
    bench.observe_all();
    bench.pass(600_000);
    assert_eq!(
        (bench.gets, bench.writes, bench.requested_reads),
        (gets + 1, writes, looks),
        "one read in each term"
    );
    assert_eq!(bench.set.addresses.len() + bench.set.restorable.len(), 0);
}

#[test]
fn n4_the_key_switches_off_until_it_is_removed() {
    let mut bench = busy();
    bench.deliver(node(3, &[SHUTDOWN]));
    bench.answers = false;
    bench.deliver(node(4, &[SHUTDOWN]));
    assert_eq!(bench.state(4), Some(NodeState::Recording));
    bench.take_due();
    bench.set_policy(1, off());
    assert_eq!((bench.state(4), bench.state(3)), (None, Some(NodeState::Restoring)));
    assert!(bench.set.addresses.is_empty());
    bench.run_until_stable();
    bench.answer_all();
    assert_eq!((bench.downs(), bench.recorded()), ([(ips(5)[0], 1)].into(), vec![]));
    bench.deliver(node(6, &[SHUTDOWN]));
    bench.pass(60_000);
    assert_eq!((bench.state(6), bench.requests.len()), (None, 0));
    bench.answers = true;
    bench.set_policy(1, OperatorPolicy::default());
    assert_eq!(bench.drains(), ["node-1", "node-3", "node-4"], "signals count again");
    assert_eq!(bench.state(6), Some(NodeState::Held));
}

#[test]
fn n4_without_records_no_role_sends_a_call() {
    for role in [Role::On, Role::Off] {
        let mut bench = Bench::leading(role, RecordStorage::ConfigMap, 4);
        for n in 1..=4 {
            bench.deliver(NodeFact { ready: n % 2 == 0, ..node(n, &["node.kubernetes.io/unreachable"]) });
            bench.observe_all();
        }
        bench.set_foreign(3, State::Down);
        bench.observe_all();
        bench.pass(600_000);
        assert_eq!(
            (bench.gets, bench.writes, bench.requested_reads, bench.take_due().len()),
            (1, 0, 0, 0),
            "{role:?}"
        );
        assert_eq!((bench.set.generation, bench.machine.deadline()), (0, None));
    }
}

#[test]
fn c4_a_dry_run_counts_withheld_work_as_done() {
    let mut bench = Bench::leading(Role::On, RecordStorage::Nothing, 4);
    bench.deliver(node(1, &[SHUTDOWN]));
    assert_eq!((bench.take_due(), bench.gets, bench.writes), (all(DOWN), 0, 0), "it counts as recorded");
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
        bench.observe_all();
    }
    assert_eq!((bench.take_due().len(), bench.state(1)), (0, Some(NodeState::Down)), "no GET per minute");
    bench.deliver(node(2, &[SHUTDOWN]));
    assert_eq!(bench.take_due(), all(DOWN), "another set is reported again");
    withhold(&mut bench);
    bench.deliver(node(1, &[]));
    bench.deliver(node(2, &[]));
    bench.observe_all();
    bench.observe_all();
    assert_eq!((bench.state(1), bench.gets, bench.writes, bench.taints.len()), (None, 0, 0, 0));
    assert!(bench.is_idle());
}

#[test]
fn g6_during_a_pause_no_record_is_created_and_the_set_shrinks() {
    let mut bench = Bench::new(8);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.write(&pool("lb", "web"));
    bench.set_policy(1, OperatorPolicy { everything: Some(Pause::default()), ..OperatorPolicy::default() });
    let (writes, looks) = (bench.writes, bench.requested_reads);
    bench.take_due();
    bench.deliver(node(2, &[SHUTDOWN]));
    bench.deliver(node(1, &[]));
    assert!(bench.set.addresses.is_empty(), "a write that is released later uses the newest set");
    bench.observe_all();
    bench.pass(600_000);
    assert_eq!((bench.writes, bench.requested_reads, bench.take_due().len()), (writes, looks, 0));
    assert_eq!((bench.state(2), bench.recorded()), (Some(NodeState::Held), vec!["node-1"]));
    bench.set_policy(1, OperatorPolicy::default());
    bench.run_until_stable();
    assert_eq!((bench.downs().len(), bench.recorded()), (2, vec!["node-2"]), "it continues by itself");
}

#[test]
fn n2_an_addition_of_an_older_set_goes_down_at_once() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.take_due();
    let shop = pool("lb", "shop");
    let began = bench.now;
    bench.pass(10);
    let missed = |bench: &mut Bench| {
        let in_doubt = [ips(1)[0].into()].into();
        bench.step(In::AdminStates(shop.clone(), PoolAdminStates { in_doubt, ..bench.states(&shop) }));
    };
    missed(&mut bench);
    assert_eq!(bench.take_due(), [("lb/shop".to_owned(), DOWN)], "of a pool that was never read");
    assert_eq!(bench.state(1), Some(NodeState::Draining));
    bench.observe_at("lb", began);
    assert!(bench.due.contains_key(&shop), "an older observation does not count");
    bench.azure.insert(shop.clone(), [(ips(1)[0], State::None)].into());
    bench.run_until_stable();
    assert_eq!((bench.downs()[&ips(1)[0]], bench.state(1)), (3, Some(NodeState::Down)));
    // The machine must assume that it is in the pool already.
    bench.azure.get_mut(&shop).expect("a pool").insert(ips(1)[0], State::None);
    bench.take_due();
    missed(&mut bench);
    assert_eq!(bench.take_due(), [("lb/shop".to_owned(), DOWN)]);
    bench.azure.remove(&shop);
    bench.observe_all();
    assert!(bench.due.is_empty(), "a newer observation counts");
}

#[test]
fn n2_the_newer_of_a_read_and_a_state_from_the_writer_counts() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.take_due();
    let web = pool("lb", "web");
    let of_writer =
        |bench: &Bench| PoolAdminStates { facts: Some(bench.facts_of(&web)), ..bench.states(&web) };
    let older = of_writer(&bench);
    bench.pass(10);
    bench.set_foreign(1, State::None);
    bench.observe_all();
    assert_eq!(bench.take_due(), [("lb/web".to_owned(), DOWN)]);
    bench.step(In::AdminStates(web.clone(), older));
    assert!(bench.due.contains_key(&web), "older information of the writer does not count");
    bench.pass(10);
    bench.set_foreign(1, State::Down);
    let newer = of_writer(&bench);
    bench.step(In::AdminStates(web.clone(), newer));
    assert!(bench.due.is_empty(), "newer information of the writer counts");
}

#[test]
fn n2_a_pool_that_was_read_later_is_not_absent() {
    let mut bench = Bench::new(4);
    let (web, at) = (pool("lb", "web"), bench.now);
    bench.pass(10);
    bench.observe_all();
    bench.deliver(node(1, &[SHUTDOWN]));
    assert!(bench.due.remove(&web).is_some());
    let ended = Some(AdminEnd { generation: bench.set.generation, result: Err(failure(404)) });
    bench.step(In::AdminStates(web.clone(), PoolAdminStates { at, ended, ..bench.states(&web) }));
    bench.pass(1_000);
    assert!(bench.due.contains_key(&web), "it is there, and its node drains");
}

#[test]
fn d1_n2_with_listed_pools_a_node_goes_down_only_in_these() {
    let web = pool("lb", "web");
    let mut bench = Bench::silent(Role::On, 3);
    bench.params.listed = [web.clone()].into();
    bench.params.only_listed = [web.lb.clone()].into();
    bench.machine = AdminState::new(bench.params.clone());
    (1..=3).for_each(|n| bench.deliver(node(n, &[])));
    bench.observe_all();
    bench.lead(1);
    bench.step(In::SourceAdminStates(web, Some(Arc::default())));
    bench.take_due();
    let others: BTreeMap<IpAddr, State> = bench.azure[&pool("lb", "web-ipv6")].clone();
    for (signals, urgency) in [(&[SHUTDOWN][..], DOWN), (&[], RESTORE)] {
        bench.deliver(node(2, signals));
        let mut ours = all(urgency);
        ours.retain(|(pool, _)| pool != "lb/web-ipv6");
        assert_eq!(bench.take_due(), ours);
        bench.run_until_stable();
        assert_eq!(bench.azure[&pool("lb", "web-ipv6")], others, "another client's");
    }
    assert!(bench.downs().is_empty() && bench.recorded().is_empty() && bench.is_idle());
}
