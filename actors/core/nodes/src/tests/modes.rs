//! Tests of the modes (switched off, dry run, paused), and of backends that are added during a write.

use super::*;

fn off() -> OperatorPolicy {
    OperatorPolicy { admin_state_off: true, ..OperatorPolicy::default() }
}

/// Creates a fixture with eight nodes. Two are Down, of which one is deleted. Another client has set a third node Down.
fn busy() -> Fixture {
    let mut fixture = Fixture::new(8);
    fixture.set_foreign(5, State::Down);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.deliver(node(2, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.delete(2);
    fixture.observe_all();
    fixture.take_due();
    assert_eq!((fixture.downs().len(), fixture.recorded()), (5, vec!["node-1", "node-2"]));
    fixture
}

#[test]
fn n4_when_disabled_it_restores_our_downs_and_then_idles() {
    let mut fixture = busy();
    fixture.restart(Role::Off);
    fixture.lead(2);
    assert_eq!(fixture.take_due(), all(RESTORE), "although the taint still exists");
    fixture.run_until_stable();
    assert_eq!(
        fixture.downs(),
        [(ips(5)[0], 1)].into(),
        "also the Downs of the deleted node, and no foreign Down"
    );
    assert!(fixture.recorded().is_empty() && fixture.is_idle());
    let (gets, writes, looks) = (fixture.gets, fixture.writes, fixture.requested_reads);
    fixture.deliver(node(3, &[SHUTDOWN, OUT_OF_SERVICE]));
    fixture.pass(600_000);
    fixture.observe_all();
    assert_eq!(
        (fixture.gets, fixture.writes, fixture.requested_reads, fixture.take_due().len()),
        (gets, writes, looks, 0)
    );
    fixture.step(In::Leadership(Leadership::Standby));
    fixture.lead(3);
    fixture.observe_all();
    fixture.pass(600_000);
    assert_eq!(
        (fixture.gets, fixture.writes, fixture.requested_reads),
        (gets + 1, writes, looks),
        "one read in each term"
    );
    assert_eq!(fixture.set.addresses.len() + fixture.set.restorable.len(), 0);
}

#[test]
fn n4_the_key_disables_the_machine_until_it_is_removed() {
    let mut fixture = busy();
    fixture.deliver(node(3, &[SHUTDOWN]));
    fixture.answers = false;
    fixture.deliver(node(4, &[SHUTDOWN]));
    assert_eq!(fixture.state(4), Some(NodeState::Recording));
    fixture.take_due();
    fixture.set_policy(1, off());
    assert_eq!((fixture.state(4), fixture.state(3)), (None, Some(NodeState::Restoring)));
    assert!(fixture.set.addresses.is_empty());
    fixture.run_until_stable();
    fixture.answer_all();
    assert_eq!((fixture.downs(), fixture.recorded()), ([(ips(5)[0], 1)].into(), vec![]));
    fixture.deliver(node(6, &[SHUTDOWN]));
    fixture.pass(60_000);
    assert_eq!((fixture.state(6), fixture.requests.len()), (None, 0));
    fixture.answers = true;
    fixture.set_policy(1, OperatorPolicy::default());
    assert_eq!(fixture.drains(), ["node-1", "node-3", "node-4"], "signals count again");
    assert_eq!(fixture.state(6), Some(NodeState::Held));
}

#[test]
fn n4_without_records_no_role_sends_a_call() {
    for role in [Role::On, Role::Off] {
        let mut fixture = Fixture::leading(role, RecordStorage::ConfigMap, 4);
        for n in 1..=4 {
            fixture.deliver(NodeFact { ready: n % 2 == 0, ..node(n, &["node.kubernetes.io/unreachable"]) });
            fixture.observe_all();
        }
        fixture.set_foreign(3, State::Down);
        fixture.observe_all();
        fixture.pass(600_000);
        assert_eq!(
            (fixture.gets, fixture.writes, fixture.requested_reads, fixture.take_due().len()),
            (1, 0, 0, 0),
            "{role:?}"
        );
        assert_eq!((fixture.set.generation, fixture.machine.deadline()), (0, None));
    }
}

#[test]
fn c4_a_dry_run_counts_withheld_work_as_done() {
    let mut fixture = Fixture::leading(Role::On, RecordStorage::Nothing, 4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    assert_eq!(
        (fixture.take_due(), fixture.gets, fixture.writes),
        (all(DOWN), 0, 0),
        "it counts as recorded"
    );
    // The writer withholds its PUTs, and reports success.
    let withhold = |fixture: &mut Fixture| {
        let generation = fixture.set.generation;
        for pool in std::mem::take(&mut fixture.due).into_keys() {
            fixture.finished(&pool, generation, None);
        }
    };
    withhold(&mut fixture);
    for _ in 0..5 {
        fixture.pass(60_000);
        fixture.observe_all();
    }
    assert_eq!((fixture.take_due().len(), fixture.state(1)), (0, Some(NodeState::Down)), "no GET per minute");
    fixture.deliver(node(2, &[SHUTDOWN]));
    assert_eq!(fixture.take_due(), all(DOWN), "another set is reported again");
    withhold(&mut fixture);
    fixture.deliver(node(1, &[]));
    fixture.deliver(node(2, &[]));
    fixture.observe_all();
    fixture.observe_all();
    assert_eq!((fixture.state(1), fixture.gets, fixture.writes, fixture.taints.len()), (None, 0, 0, 0));
    assert!(fixture.is_idle());
}

#[test]
fn g6_during_a_pause_no_record_is_created_and_the_set_shrinks() {
    let mut fixture = Fixture::new(8);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.write(&pool("lb", "web"));
    fixture.set_policy(1, OperatorPolicy { everything: Some(Pause::default()), ..OperatorPolicy::default() });
    let (writes, looks) = (fixture.writes, fixture.requested_reads);
    fixture.take_due();
    fixture.deliver(node(2, &[SHUTDOWN]));
    fixture.deliver(node(1, &[]));
    assert!(fixture.set.addresses.is_empty(), "a write that is released later uses the newest set");
    fixture.observe_all();
    fixture.pass(600_000);
    assert_eq!((fixture.writes, fixture.requested_reads, fixture.take_due().len()), (writes, looks, 0));
    assert_eq!((fixture.state(2), fixture.recorded()), (Some(NodeState::Held), vec!["node-1"]));
    fixture.set_policy(1, OperatorPolicy::default());
    fixture.run_until_stable();
    assert_eq!((fixture.downs().len(), fixture.recorded()), (2, vec!["node-2"]), "it continues by itself");
}

#[test]
fn n2_a_member_added_by_an_older_set_is_down_immediately() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.take_due();
    let shop = pool("lb", "shop");
    let began = fixture.now;
    fixture.pass(10);
    let missed = |fixture: &mut Fixture| {
        let in_doubt = [ips(1)[0].into()].into();
        fixture.step(In::AdminStates(shop.clone(), PoolAdminStates { in_doubt, ..fixture.states(&shop) }));
    };
    missed(&mut fixture);
    assert_eq!(fixture.take_due(), [("lb/shop".to_owned(), DOWN)], "of a pool that was never read");
    assert_eq!(fixture.state(1), Some(NodeState::Draining));
    fixture.observe_at("lb", began);
    assert!(fixture.due.contains_key(&shop), "an older observation does not count");
    fixture.azure.insert(shop.clone(), [(ips(1)[0], State::None)].into());
    fixture.run_until_stable();
    assert_eq!((fixture.downs()[&ips(1)[0]], fixture.state(1)), (3, Some(NodeState::Down)));
    // The machine must assume that the address is already in the pool.
    fixture.azure.get_mut(&shop).expect("a pool").insert(ips(1)[0], State::None);
    fixture.take_due();
    missed(&mut fixture);
    assert_eq!(fixture.take_due(), [("lb/shop".to_owned(), DOWN)]);
    fixture.azure.remove(&shop);
    fixture.observe_all();
    assert!(fixture.due.is_empty(), "a newer observation counts");
}

#[test]
fn n2_the_newer_of_a_read_and_a_state_from_the_writer_counts() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.take_due();
    let web = pool("lb", "web");
    let of_writer =
        |fixture: &Fixture| PoolAdminStates { facts: Some(fixture.facts_of(&web)), ..fixture.states(&web) };
    let older = of_writer(&fixture);
    fixture.pass(10);
    fixture.set_foreign(1, State::None);
    fixture.observe_all();
    assert_eq!(fixture.take_due(), [("lb/web".to_owned(), DOWN)]);
    fixture.step(In::AdminStates(web.clone(), older));
    assert!(fixture.due.contains_key(&web), "older information of the writer does not count");
    fixture.pass(10);
    fixture.set_foreign(1, State::Down);
    let newer = of_writer(&fixture);
    fixture.step(In::AdminStates(web.clone(), newer));
    assert!(fixture.due.is_empty(), "newer information of the writer counts");
}

#[test]
fn n2_a_pool_that_was_read_later_is_not_absent() {
    let mut fixture = Fixture::new(4);
    let (web, at) = (pool("lb", "web"), fixture.now);
    fixture.pass(10);
    fixture.observe_all();
    fixture.deliver(node(1, &[SHUTDOWN]));
    assert!(fixture.due.remove(&web).is_some());
    let ended = Some(AdminEnd { generation: fixture.set.generation, result: Err(failure(404)) });
    fixture.step(In::AdminStates(web.clone(), PoolAdminStates { at, ended, ..fixture.states(&web) }));
    fixture.pass(1_000);
    assert!(fixture.due.contains_key(&web), "it is there, and its node drains");
}

#[test]
fn d1_n2_on_a_balancer_of_listed_pools_only_these_get_downs() {
    let web = pool("lb", "web");
    let mut fixture = Fixture::silent(Role::On, 3);
    fixture.params.listed = [web.clone()].into();
    fixture.params.only_listed = [web.lb.clone()].into();
    fixture.machine = AdminState::new(fixture.params.clone());
    (1..=3).for_each(|n| fixture.deliver(node(n, &[])));
    fixture.observe_all();
    fixture.lead(1);
    fixture.step(In::SourceAdminStates(web, Some(Arc::default())));
    fixture.take_due();
    let others: BTreeMap<IpAddr, State> = fixture.azure[&pool("lb", "web-ipv6")].clone();
    for (signals, urgency) in [(&[SHUTDOWN][..], DOWN), (&[], RESTORE)] {
        fixture.deliver(node(2, signals));
        let mut ours = all(urgency);
        ours.retain(|(pool, _)| pool != "lb/web-ipv6");
        assert_eq!(fixture.take_due(), ours);
        fixture.run_until_stable();
        assert_eq!(fixture.azure[&pool("lb", "web-ipv6")], others, "another client's");
    }
    assert!(fixture.downs().is_empty() && fixture.recorded().is_empty() && fixture.is_idle());
}
