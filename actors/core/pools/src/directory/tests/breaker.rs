//! Tests of the breaker in the Directory: all removals are held when too many pools would lose most of their members
//! (G4).

use super::*;
use model::level::SurplusPolicy;

/// Returns the fact of the `n`-th Service, whose other nodes are excluded by their label.
fn of(n: u32, required: &[u8]) -> ServiceFact {
    fact(n, &format!("s{n}"), labelled(required))
}

fn pool_of(n: u32) -> PoolId {
    id("lb", &format!("shop-s{n}"))
}

fn all_with(count: u32, members: &[u8]) -> Arc<LbFacts> {
    let pools = (0..count).map(|n| pool("lb", &format!("shop-s{n}"), members)).collect();
    let rules = (0..count).map(|n| rule(n, &format!("shop-s{n}"))).collect();
    balancer("lb", pools, rules)
}

/// Creates a running Directory with this many pools, each with these members.
fn cluster_with(params: Params, count: u32, members: &[u8]) -> Fixture {
    let mut fixture = Fixture::with(params);
    fixture.send(In::ListsSynced);
    fixture.send(In::DiscoverySynced);
    fixture.together((0..count).map(|n| of(n, members)));
    fixture.observe(&all_with(count, members));
    fixture.take();
    fixture
}

fn cluster(count: u32, members: &[u8]) -> Fixture {
    cluster_with(params(), count, members)
}

/// Returns the number of members that are removed, over all pools, if they were observed with these members.
fn going(fixture: &Fixture, observed: &[u8]) -> usize {
    fixture.assigned.values().map(|said| said.level.surplus(&ips(observed)).count()).sum()
}

fn is_stopped(fixture: &Fixture) -> bool {
    let stopped = fixture.machine.breaker.tripped().is_some();
    assert!(fixture.assigned.values().all(|said| (said.level.keeps == SurplusPolicy::KeepAll) == stopped));
    stopped
}

#[test]
fn g4_a_burst_in_one_turn_is_held_before_it_is_assigned() {
    let mut fixture = cluster(20, &[1, 2, 3, 4]);
    fixture.together((0..20).map(|n| of(n, &[1])));
    assert!(!is_stopped(&fixture), "the removal delay keeps them");
    fixture.pass(29_999);
    fixture.take();
    fixture.pass(1);
    assert!(is_stopped(&fixture));
    let said = fixture.take();
    let released = |out: &Out| match out {
        Out::Assign(said) => said.level.surplus(&ips(&[1, 2, 3, 4])).count(),
        Out::Observe(..)
        | Out::Forget(_)
        | Out::Rewrite(_)
        | Out::SourceAdminStates(..)
        | Out::Opened(_)
        | Out::Reread(_)
        | Out::ReadUpTo(_)
        | Out::Answer(..)
        | Out::Report(_)
        | Out::Ended(_)
        | Out::Guards(_)
        | Out::Refused(..)
        | Out::Service(..)
        | Out::Metric(_) => 0,
    };
    assert_eq!(said.iter().map(released).sum::<usize>(), 0);
    let held = fixture.assigned[&pool_of(3)].held.clone().expect("held");
    assert_eq!((held.reason, held.waits, held.members), (HeldReason::Breaker, Waits::Facts, ips(&[2, 3, 4])));
    let alerts = said.iter().filter(|out| {
        matches!(
            out,
            Out::Report(Report {
                what: EventKind::RemovalsStopped { pools: 20, of: 20, enforced: true },
                ..
            })
        )
    });
    assert_eq!(alerts.count(), 1);
    assert!(said.iter().any(|out| matches!(out, Out::Metric(Metric::RemovalBreaker(true)))));
    assert!(said.iter().any(|out| matches!(out, Out::Guards(view) if view.stopped.is_some())));
}

#[test]
fn g4_losses_of_several_turns_together_trip_it() {
    let mut fixture = cluster(20, &[1, 2, 3, 4]);
    for n in 0..20 {
        fixture.service(of(n, &[1]));
        fixture.pass(1_000);
    }
    fixture.pass(30_000);
    assert!(is_stopped(&fixture));
    fixture.observe(&all_with(20, &[1, 2, 3, 4]));
    assert_eq!(going(&fixture, &[1, 2, 3, 4]), 0, "five pools may have lost theirs before");
}

#[test]
fn g4_other_removals_are_held_too_and_additions_are_not() {
    let mut fixture = cluster(40, &[1, 2, 3, 4]);
    fixture.together((0..30).map(|n| of(n, &[1])));
    fixture.pass(30_000);
    assert!(is_stopped(&fixture));
    fixture.service(of(35, &[1, 2, 3, 9]));
    fixture.pass(30_000);
    let said = &fixture.assigned[&pool_of(35)];
    assert_eq!(said.held.as_ref().map(|held| held.members.clone()), Some(ips(&[4])));
    assert!(said.level.required.contains_key(&ip(9)));
    assert!(fixture.assigned[&pool_of(36)].held.is_none(), "nothing is to be removed there");
}

#[test]
fn g4_levels_end_it_but_not_time() {
    let mut fixture = cluster(20, &[1, 2, 3, 4]);
    fixture.together((0..20).map(|n| of(n, &[1])));
    fixture.pass(3_600_000);
    fixture.observe(&all_with(20, &[1, 2, 3, 4]));
    assert!(is_stopped(&fixture));
    fixture.together((0..16).map(|n| of(n, &[1, 2, 3, 4])));
    assert!(!is_stopped(&fixture), "five are few");
    assert_eq!(going(&fixture, &[1, 2, 3, 4]), 4 * 3, "the removals of the four others go");
    assert!(fixture.samples().contains(&Metric::RemovalBreaker(false)));
}

#[test]
fn g4_losses_after_a_release_are_evaluated_again() {
    let mut fixture = cluster(20, &[1, 2, 3, 4]);
    fixture.together((0..20).map(|n| of(n, &[1, 2])));
    fixture.pass(3_600_000);
    assert!(!is_stopped(&fixture), "a half");
    fixture.observe(&all_with(20, &[1, 2]));
    fixture.pass(301_000);
    fixture.together((0..20).map(|n| of(n, &[3])));
    fixture.pass(30_000);
    assert!(!is_stopped(&fixture), "a half again");
    fixture.observe(&all_with(20, &[3, 4, 5, 6, 7]));
    fixture.together((0..20).map(|n| of(n, &[3, 4, 5, 6, 7])));
    fixture.pass(400_000);
    fixture.together((0..20).map(|n| of(n, &[3])));
    fixture.pass(30_000);
    assert!(is_stopped(&fixture));
    let Answer::Done(Done::Released { pools: released, .. }) = fixture.request_release(Scope::Everything)
    else {
        panic!("refused")
    };
    assert!(!is_stopped(&fixture));
    assert_eq!(going(&fixture, &[3, 4, 5, 6, 7]), 20 * 4);
    assert_eq!(released.len(), 20);
    assert!(released.iter().all(|one| one.reason == HeldReason::Breaker && one.still.is_none()));
    fixture.together((0..20).map(|n| ServiceFact { provenance: Provenance::Watch, ..of(n, &[]) }));
    fixture.pass(60_000);
    assert!(is_stopped(&fixture), "it was released for what was held then");
}

#[test]
fn g4_pools_without_services_do_not_count() {
    let mut fixture = cluster(20, &[1, 2, 3, 4]);
    let mut out = Vec::new();
    for n in 0..19 {
        fixture.machine.step(fixture.now, In::Service(uid(n), None), &mut out);
    }
    fixture.machine.tick(fixture.now, &mut out);
    fixture.receive(out);
    assert!(fixture.machine.breaker.tripped().is_none());
    let mut fixture = cluster(20, &[1, 2, 3, 4]);
    fixture.together((0..19).map(|n| ServiceFact { candidacy: Candidacy::Deleting, ..of(n, &[]) }));
    fixture.pass(600_000);
    assert!(fixture.machine.breaker.tripped().is_none(), "a namespace that is deleted");
}

#[test]
fn g4_daily_work_in_a_cluster_does_not_trip_it() {
    // A rolling restart of 200 Services with one pod each: the pods start again on other nodes.
    let mut fixture = cluster(200, &[1]);
    for n in 0..200 {
        fixture.service(fact(n, &format!("s{n}"), part(&[2], &[1])));
        fixture.service(of(n, &[2]));
        fixture.pass(100);
    }
    fixture.pass(60_000);
    assert!(!is_stopped(&fixture));
    assert!(going(&fixture, &[1, 2]) > 0);
    // All nodes are replaced by as many others.
    let mut fixture = cluster(30, &[1, 2, 3]);
    fixture.together((0..30).map(|n| fact(n, &format!("s{n}"), part(&[4, 5, 6], &[1, 2, 3]))));
    fixture.pass(10_000);
    fixture.together((0..30).map(|n| of(n, &[4, 5, 6])));
    fixture.pass(60_000);
    assert!(!is_stopped(&fixture) && going(&fixture, &[1, 2, 3, 4, 5, 6]) == 90);
    // One Service is scaled to zero. Then all are recreated, within the time of G2.
    let mut fixture = cluster(30, &[1, 2]);
    fixture.service(of(3, &[]));
    fixture.together((4..30).map(|n| of(n, &[])));
    fixture.pass(50_000);
    fixture.together((4..30).map(|n| of(n, &[3])));
    fixture.pass(60_000);
    assert!(!is_stopped(&fixture));
}

#[test]
fn g4_mass_emptying_trips_it_even_if_the_source_confirms_it() {
    let emptied = |provenance| move |n| ServiceFact { provenance, slices: 0, endpoints: 0, ..of(n, &[]) };
    let mut fixture = cluster(30, &[1, 2]);
    fixture.together((0..30).map(emptied(Provenance::Relist)));
    fixture.pass(31_000);
    assert_eq!(fixture.reread(), 1);
    fixture.pass(600_000);
    assert!(is_stopped(&fixture), "the second list was empty as well");
    assert_eq!(going(&fixture, &[1, 2]), 0);
    // A watch shows that most nodes get the label that excludes them.
    let mut fixture = cluster(30, &[1, 2, 3, 4]);
    fixture.together((0..30).map(|n| of(n, &[4])));
    fixture.pass(31_000);
    assert!(is_stopped(&fixture));
}

#[test]
fn x5_g4_removals_by_configuration_trip_it_too() {
    let dropped = |n| dropped(ServiceFact { slices: 0, endpoints: 0, ..of(n, &[]) });
    let mut fixture = cluster(20, &[1, 2]);
    fixture.together((0..20).map(dropped));
    fixture.pass(3_600_000);
    fixture.observe(&all_with(20, &[1, 2]));
    assert!(is_stopped(&fixture), "only a pool of a listed source goes past it");
    assert_eq!(going(&fixture, &[1, 2]), 0);
    let reason = |n| fixture.assigned[&pool_of(n)].held.as_ref().map(|held| held.reason);
    assert!((0..20).all(|n| reason(n) == Some(HeldReason::Breaker)));
    // Few members are removed, and without any confirmation.
    let mut fixture = cluster(20, &[1, 2]);
    fixture.together((0..5).map(dropped));
    fixture.pass(30_000);
    assert!(!is_stopped(&fixture) && going(&fixture, &[1, 2]) == 5 * 2);
}

#[test]
fn g4_initial_reads_set_the_baseline() {
    let mut fixture = Fixture::running();
    fixture.together((0..20).map(|n| ServiceFact { provenance: Provenance::Watch, ..of(n, &[1]) }));
    fixture.observe(&all_with(20, &[1, 2, 3, 4]));
    fixture.pass(31_000);
    assert!(is_stopped(&fixture));
    let mut fixture = Fixture::running();
    fixture.together((0..20).map(|n| of(n, &[1])));
    fixture.observe(&all_with(20, &[]));
    fixture.pass(31_000);
    assert!(!is_stopped(&fixture), "new pools lose nothing");
}

#[test]
fn g5_in_observe_it_only_reports_and_without_guards_it_is_off() {
    for (guards, would_hold, told) in
        [(GuardMode::Observe, Some(HeldReason::Breaker), 1), (GuardMode::Off, None, 0)]
    {
        let mut fixture =
            cluster_with(Params { guards, empty_confirm: Duration::ZERO, ..params() }, 20, &[1, 2, 3]);
        fixture.together((0..20).map(|n| of(n, &[1])));
        fixture.pass(30_000);
        assert_eq!(going(&fixture, &[1, 2, 3]), 40);
        let said = &fixture.assigned[&pool_of(3)];
        assert_eq!((said.held.clone(), said.would_hold.as_ref().map(|held| held.reason)), (None, would_hold));
        let alerts = fixture
            .reports()
            .into_iter()
            .filter(|what| matches!(what, EventKind::RemovalsStopped { enforced: false, .. }));
        assert_eq!(alerts.count(), told);
    }
}

#[test]
fn g4_a_trip_is_reported_once_in_each_term() {
    let mut fixture = cluster(20, &[1, 2, 3, 4]);
    fixture.together((0..20).map(|n| of(n, &[1])));
    fixture.pass(30_000);
    let alerts = |fixture: &mut Fixture| {
        fixture.reports().into_iter().filter(|what| matches!(what, EventKind::RemovalsStopped { .. })).count()
    };
    assert_eq!(alerts(&mut fixture), 1);
    fixture.pass(600_000);
    fixture.observe(&all_with(20, &[1, 2, 3, 4]));
    assert_eq!(alerts(&mut fixture), 0);
    fixture.reporting(Some(2));
    assert_eq!(alerts(&mut fixture), 1);
}

#[test]
fn g4_a_process_that_starts_in_an_outage_stops_removals() {
    for (probed, listed) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut facts = LbFacts::clone(&all_with(20, &[1, 2, 3, 4]));
        facts.rules.iter_mut().for_each(|rule| rule.probed = probed);
        let facts = Arc::new(facts);
        let provenance = if listed { Provenance::FirstList } else { Provenance::Watch };
        let mut fixture = Fixture::waiting();
        fixture.reporting(None);
        let mut out = Vec::new();
        for n in 0..20 {
            let fact = ServiceFact { provenance, ..of(n, &[1]) };
            fixture.machine.step(fixture.now, In::Service(uid(n), Some(Arc::new(fact))), &mut out);
        }
        fixture.receive(out);
        fixture.send(In::ListsSynced);
        fixture.observe(&facts);
        fixture.send(In::DiscoverySynced);
        for second in 0..120 {
            assert_eq!(going(&fixture, &[1, 2, 3, 4]), 0, "{second} s: {probed} {listed}");
            fixture.reread();
            fixture.pass(1_000);
            if second == 10 {
                // The process leads from now on.
                fixture.reporting(Some(7));
                fixture.send(In::Confirmed(Epoch(7)));
            }
        }
        assert!(is_stopped(&fixture), "{probed} {listed}");
    }
}

#[test]
fn g4_losses_while_no_process_ran_trip_it() {
    let mut fixture = Fixture::running();
    fixture.together((0..20).map(|n| of(n, if n < 6 { &[1] } else { &[1, 2, 3, 4] })));
    fixture.observe(&all_with(20, &[1, 2, 3, 4]));
    fixture.pass(600_000);
    assert!(is_stopped(&fixture) && going(&fixture, &[1, 2, 3, 4]) == 0, "six of twenty");
    fixture.request_release(Scope::Everything);
    assert_eq!(going(&fixture, &[1, 2, 3, 4]), 6 * 3);
    fixture.pass(600_000);
    assert!(!is_stopped(&fixture));
}

#[test]
fn g4_a_new_term_keeps_the_trip_and_the_baseline() {
    let mut fixture = cluster(20, &[1, 2, 3, 4]);
    fixture.reporting(None);
    fixture.together((0..20).map(|n| of(n, &[1])));
    fixture.pass(600_000);
    assert!(is_stopped(&fixture), "who does not lead judges as well");
    fixture.reporting(Some(2));
    fixture.send(In::Confirmed(Epoch(2)));
    fixture.observe(&all_with(20, &[1, 2, 3, 4]));
    assert!(is_stopped(&fixture) && going(&fixture, &[1, 2, 3, 4]) == 0);
    let alerts =
        fixture.reports().into_iter().filter(|what| matches!(what, EventKind::RemovalsStopped { .. }));
    assert_eq!(alerts.count(), 1);
    // Members that other clients removed shortly before the term count in it.
    let mut fixture = cluster(20, &[1, 2, 3, 4]);
    fixture.reporting(None);
    fixture.together((0..5).map(|n| of(n, &[1])));
    fixture.pass(60_000);
    fixture.reporting(Some(2));
    fixture.together((5..6).map(|n| of(n, &[1])));
    fixture.pass(30_000);
    assert!(is_stopped(&fixture));
}

#[test]
fn g4_a_standby_follows_a_release_at_the_leader() {
    let mut fixture = cluster(20, &[1, 2, 3, 4]);
    fixture.reporting(None);
    fixture.together((0..20).map(|n| of(n, &[1])));
    fixture.pass(600_000);
    assert!(is_stopped(&fixture));
    fixture.observe(&all_with(20, &[1]));
    assert!(!is_stopped(&fixture));
    fixture.reporting(Some(2));
    fixture.together((0..20).map(|n| of(n, &[1, 2])));
    fixture.observe(&all_with(20, &[1, 2]));
    fixture.pass(600_000);
    fixture.together((0..20).map(|n| of(n, &[1])));
    fixture.pass(30_000);
    assert!(!is_stopped(&fixture), "a half of what they have had since");
}

#[test]
fn g4_paused_pools_count_like_others() {
    let mut fixture = cluster(20, &[1, 2, 3, 4]);
    let pause =
        OperatorPolicy { everything: Some(model::policy::Pause::default()), ..OperatorPolicy::default() };
    fixture.send(policy_input(pause));
    fixture.reporting(None);
    fixture.together((0..20).map(|n| of(n, &[1])));
    fixture.pass(600_000);
    assert!(is_stopped(&fixture));
    fixture.reporting(Some(2));
    fixture.send(policy_input(OperatorPolicy::default()));
    fixture.observe(&all_with(20, &[1, 2, 3, 4]));
    assert!(
        is_stopped(&fixture) && going(&fixture, &[1, 2, 3, 4]) == 0,
        "the end of the pause lets nothing slip"
    );
}

#[test]
fn g4_a_release_of_other_guards_does_not_trip_it() {
    let mut fixture = cluster(20, &[1, 2]);
    fixture.together((0..20).map(|n| of(n, &[])));
    fixture.pass(31_000);
    assert!(!is_stopped(&fixture) && going(&fixture, &[1, 2]) == 0, "emptiness is to be confirmed");
    fixture.request_release(Scope::Everything);
    assert!(!is_stopped(&fixture));
    assert_eq!(going(&fixture, &[1, 2]), 40);
}

#[test]
fn g4_a_release_at_a_process_that_does_not_write_is_refused() {
    let mut fixture = cluster(20, &[1, 2, 3, 4]);
    fixture.together((0..20).map(|n| of(n, &[1])));
    fixture.pass(30_000);
    let refused = |fixture: &mut Fixture| {
        let answer = fixture.request_release(Scope::Everything);
        assert!(is_stopped(fixture) && going(fixture, &[1, 2, 3, 4]) == 0);
        answer
    };
    fixture.reporting(None);
    assert_eq!(refused(&mut fixture), Answer::Refused(Refusal::NotLeading));
    let pause =
        OperatorPolicy { everything: Some(model::policy::Pause::default()), ..OperatorPolicy::default() };
    fixture.send(In::OperatorPolicy { term: None, policy: Arc::new(pause) });
    let paused = Refusal::Paused(model::assignment::PausedBy::Everything);
    assert_eq!(refused(&mut fixture), Answer::Refused(paused));
}

#[test]
fn c4_a_dry_run_releases_nothing() {
    let mut fixture = cluster_with(Params { dry_run: true, ..params() }, 20, &[1, 2, 3, 4]);
    fixture.together((0..20).map(|n| of(n, &[1])));
    fixture.pass(30_000);
    assert_eq!(fixture.request_release(Scope::Everything), Answer::Refused(Refusal::DryRun));
    assert!(is_stopped(&fixture) && going(&fixture, &[1, 2, 3, 4]) == 0);
}

#[test]
fn g4_a_source_that_fails_repeatedly_trips_it_each_time() {
    let mut fixture = cluster(20, &[1, 2, 3, 4]);
    for round in 0..4 {
        fixture.together((0..20).map(|n| of(n, &[1])));
        fixture.pass(1_000_000);
        fixture.observe(&all_with(20, &[1, 2, 3, 4]));
        assert!(is_stopped(&fixture) && going(&fixture, &[1, 2, 3, 4]) == 0, "round {round}");
        fixture.together((0..20).map(|n| of(n, &[1, 2, 3, 4])));
        fixture.pass(100_000);
        assert!(!is_stopped(&fixture), "round {round}");
    }
}

#[test]
fn g4_new_pools_that_lose_their_first_members_soon_count_too() {
    for (stood, stops) in [(39_000, false), (40_000, true), (200_000, true), (400_000, true)] {
        let mut fixture = Fixture::with(Params { removal_delay: Duration::ZERO, ..params() });
        fixture.send(In::ListsSynced);
        fixture.send(In::DiscoverySynced);
        fixture.together((0..20).map(|n| of(n, &[1, 2, 3, 4])));
        fixture.observe(&all_with(20, &[]));
        fixture.pass(10_000);
        fixture.observe(&all_with(20, &[1, 2, 3, 4]));
        fixture.pass(stood - 10_000);
        fixture.together((0..20).map(|n| of(n, &[1])));
        assert_eq!(is_stopped(&fixture), stops, "after {stood} ms");
    }
}

/// Returns the input with this operator policy.
fn policy_input(policy: OperatorPolicy) -> In {
    In::OperatorPolicy { term: Some(Epoch(u64::MAX)), policy: Arc::new(policy) }
}

fn paused(pools: std::ops::Range<u32>) -> OperatorPolicy {
    let pause = |n| (pool_of(n), model::policy::Pause::default());
    OperatorPolicy { pools: pools.map(pause).collect(), ..OperatorPolicy::default() }
}

#[test]
fn g4_members_restored_in_a_pause_stay_at_the_resume() {
    let everything =
        || OperatorPolicy { everything: Some(model::policy::Pause::default()), ..OperatorPolicy::default() };
    for pause in [everything as fn() -> OperatorPolicy, || paused(0..20)] {
        let mut fixture = cluster(20, &[1, 2, 3, 4]);
        fixture.together((0..20).map(|n| of(n, &[1])));
        fixture.pass(30_000);
        assert!(is_stopped(&fixture));
        fixture.request_release(Scope::Everything);
        assert_eq!(going(&fixture, &[1, 2, 3, 4]), 60, "released by mistake");
        fixture.pass(1_000);
        fixture.observe(&all_with(20, &[1]));
        fixture.pass(3_600_000);
        fixture.send(policy_input(pause()));
        fixture.observe(&all_with(20, &[1, 2, 3, 4]));
        fixture.pass(60_000);
        fixture.send(policy_input(OperatorPolicy::default()));
        assert!(is_stopped(&fixture) && going(&fixture, &[1, 2, 3, 4]) == 0, "the levels are still wrong");
        fixture.together((0..20).map(|n| of(n, &[1, 2, 3, 4])));
        assert!(!is_stopped(&fixture));
    }
}

#[test]
fn g4_unwritten_losses_are_held_when_writes_resume() {
    let mut fixture = cluster(20, &[1, 2, 3, 4]);
    // Azure does not answer for an hour, in which a few pools at a time lose their members.
    for n in 0..5 {
        fixture.service(of(n, &[1]));
        fixture.pass(600_000);
    }
    assert!(!is_stopped(&fixture));
    fixture.service(of(5, &[1]));
    fixture.pass(31_000);
    assert!(is_stopped(&fixture) && going(&fixture, &[1, 2, 3, 4]) == 0);
    fixture.observe(&all_with(20, &[1]));
    assert!(!is_stopped(&fixture), "another client has taken it out");
}

#[test]
fn g4_separately_paused_pools_stop_no_removal_elsewhere() {
    let mut fixture = cluster(20, &[1, 2, 3, 4]);
    fixture.send(policy_input(paused(0..19)));
    fixture.together((0..20).map(|n| of(n, &[1])));
    fixture.pass(600_000);
    assert!(!is_stopped(&fixture));
    assert_eq!(fixture.assigned[&pool_of(19)].held, None);
    fixture.send(policy_input(OperatorPolicy::default()));
    assert!(is_stopped(&fixture), "the end of the pause lets nothing slip");
}

#[test]
fn g4_releasing_everything_includes_holds_of_other_guards() {
    let mut fixture = cluster(20, &[1, 2, 3, 4]);
    fixture.together((0..6).map(|n| of(n, &[1])));
    fixture.pass(30_000);
    assert!(is_stopped(&fixture));
    fixture.service(of(0, &[]));
    fixture.pass(31_000);
    let reason = |fixture: &Fixture| fixture.assigned[&pool_of(0)].held.as_ref().map(|held| held.reason);
    assert_eq!(reason(&fixture), Some(HeldReason::EmptyConfirm));
    fixture.request_release(Scope::Pool(pool_of(0)));
    assert!(
        is_stopped(&fixture) && going(&fixture, &[1, 2, 3, 4]) == 0,
        "six are still to lose most of theirs"
    );
    assert_eq!(reason(&fixture), Some(HeldReason::Breaker));
    fixture.service(of(15, &[]));
    fixture.pass(31_000);
    fixture.request_release(Scope::Everything);
    assert!(!is_stopped(&fixture));
    assert_eq!(going(&fixture, &[1, 2, 3, 4]), 4 + 5 * 3 + 4);
}
