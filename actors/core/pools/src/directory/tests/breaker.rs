//! All removals are held back when too many pools would lose most of their members (G4).

use super::*;
use model::level::Keeps;

/// The fact of the `n`-th Service, whose other nodes are left out by their label.
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

/// A running Directory with this many pools, each with these members.
fn cluster_with(params: Params, count: u32, members: &[u8]) -> Bench {
    let mut bench = Bench::with(params);
    bench.send(In::ListsSynced);
    bench.send(In::DiscoverySynced);
    bench.together((0..count).map(|n| of(n, members)));
    bench.observe(&all_with(count, members));
    bench.take();
    bench
}

fn cluster(count: u32, members: &[u8]) -> Bench {
    cluster_with(params(), count, members)
}

/// Returns how many members go, over all pools observed with these members.
fn going(bench: &Bench, observed: &[u8]) -> usize {
    bench.assigned.values().map(|said| said.level.surplus(&ips(observed)).count()).sum()
}

fn is_stopped(bench: &Bench) -> bool {
    let stopped = bench.machine.breaker.tripped().is_some();
    assert!(bench.assigned.values().all(|said| (said.level.keeps == Keeps::All) == stopped));
    stopped
}

#[test]
fn g4_a_burst_in_one_turn_is_held_back_before_any_of_it_is_said() {
    let mut bench = cluster(20, &[1, 2, 3, 4]);
    bench.together((0..20).map(|n| of(n, &[1])));
    assert!(!is_stopped(&bench), "the removal delay keeps them");
    bench.pass(29_999);
    bench.take();
    bench.pass(1);
    assert!(is_stopped(&bench));
    let said = bench.take();
    let let_go = |out: &Out| match out {
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
    assert_eq!(said.iter().map(let_go).sum::<usize>(), 0);
    let held = bench.assigned[&pool_of(3)].held.clone().expect("held");
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
fn g4_what_comes_in_several_turns_is_stopped_once_it_is_too_much() {
    let mut bench = cluster(20, &[1, 2, 3, 4]);
    for n in 0..20 {
        bench.service(of(n, &[1]));
        bench.pass(1_000);
    }
    bench.pass(30_000);
    assert!(is_stopped(&bench));
    bench.observe(&all_with(20, &[1, 2, 3, 4]));
    assert_eq!(going(&bench, &[1, 2, 3, 4]), 0, "five pools may have lost theirs before");
}

#[test]
fn g4_other_removals_wait_as_well_and_additions_pass() {
    let mut bench = cluster(40, &[1, 2, 3, 4]);
    bench.together((0..30).map(|n| of(n, &[1])));
    bench.pass(30_000);
    assert!(is_stopped(&bench));
    bench.service(of(35, &[1, 2, 3, 9]));
    bench.pass(30_000);
    let said = &bench.assigned[&pool_of(35)];
    assert_eq!(said.held.as_ref().map(|held| held.members.clone()), Some(ips(&[4])));
    assert!(said.level.required.contains_key(&ip(9)));
    assert!(bench.assigned[&pool_of(36)].held.is_none(), "nothing is to be removed there");
}

#[test]
fn g4_time_does_not_end_it_and_the_levels_do() {
    let mut bench = cluster(20, &[1, 2, 3, 4]);
    bench.together((0..20).map(|n| of(n, &[1])));
    bench.pass(3_600_000);
    bench.observe(&all_with(20, &[1, 2, 3, 4]));
    assert!(is_stopped(&bench));
    bench.together((0..16).map(|n| of(n, &[1, 2, 3, 4])));
    assert!(!is_stopped(&bench), "five are few");
    assert_eq!(going(&bench, &[1, 2, 3, 4]), 4 * 3, "the removals of the four others go");
    assert!(bench.samples().contains(&Metric::RemovalBreaker(false)));
}

#[test]
fn g4_the_operator_releases_it_and_what_comes_later_is_evaluated_again() {
    let mut bench = cluster(20, &[1, 2, 3, 4]);
    bench.together((0..20).map(|n| of(n, &[1, 2])));
    bench.pass(3_600_000);
    assert!(!is_stopped(&bench), "a half");
    bench.observe(&all_with(20, &[1, 2]));
    bench.pass(301_000);
    bench.together((0..20).map(|n| of(n, &[3])));
    bench.pass(30_000);
    assert!(!is_stopped(&bench), "a half again");
    bench.observe(&all_with(20, &[3, 4, 5, 6, 7]));
    bench.together((0..20).map(|n| of(n, &[3, 4, 5, 6, 7])));
    bench.pass(400_000);
    bench.together((0..20).map(|n| of(n, &[3])));
    bench.pass(30_000);
    assert!(is_stopped(&bench));
    let Answer::Done(Done::Released { pools: released, .. }) = bench.request_release(Scope::Everything)
    else {
        panic!("refused")
    };
    assert!(!is_stopped(&bench));
    assert_eq!(going(&bench, &[3, 4, 5, 6, 7]), 20 * 4);
    assert_eq!(released.len(), 20);
    assert!(released.iter().all(|one| one.reason == HeldReason::Breaker && one.still.is_none()));
    bench.together((0..20).map(|n| ServiceFact { provenance: Provenance::Watch, ..of(n, &[]) }));
    bench.pass(60_000);
    assert!(is_stopped(&bench), "it was let go for what was held then");
}

#[test]
fn g4_pools_that_nobody_has_any_more_do_not_count() {
    let mut bench = cluster(20, &[1, 2, 3, 4]);
    let mut out = Vec::new();
    for n in 0..19 {
        bench.machine.step(bench.now, In::Service(uid(n), None), &mut out);
    }
    bench.machine.tick(bench.now, &mut out);
    bench.receive(out);
    assert!(bench.machine.breaker.tripped().is_none());
    let mut bench = cluster(20, &[1, 2, 3, 4]);
    bench.together((0..19).map(|n| ServiceFact { candidacy: Candidacy::Deleting, ..of(n, &[]) }));
    bench.pass(600_000);
    assert!(bench.machine.breaker.tripped().is_none(), "a namespace that is deleted");
}

#[test]
fn g4_the_ordinary_life_of_a_cluster_does_not_trip_it() {
    // Rolling restart of 200 Services with one pod each: the pods come back on other nodes.
    let mut bench = cluster(200, &[1]);
    for n in 0..200 {
        bench.service(fact(n, &format!("s{n}"), part(&[2], &[1])));
        bench.service(of(n, &[2]));
        bench.pass(100);
    }
    bench.pass(60_000);
    assert!(!is_stopped(&bench));
    assert!(going(&bench, &[1, 2]) > 0);
    // All nodes are replaced by as many others.
    let mut bench = cluster(30, &[1, 2, 3]);
    bench.together((0..30).map(|n| fact(n, &format!("s{n}"), part(&[4, 5, 6], &[1, 2, 3]))));
    bench.pass(10_000);
    bench.together((0..30).map(|n| of(n, &[4, 5, 6])));
    bench.pass(60_000);
    assert!(!is_stopped(&bench) && going(&bench, &[1, 2, 3, 4, 5, 6]) == 90);
    // One Service is scaled to nothing; then all are recreated, within the time of G2.
    let mut bench = cluster(30, &[1, 2]);
    bench.service(of(3, &[]));
    bench.together((4..30).map(|n| of(n, &[])));
    bench.pass(50_000);
    bench.together((4..30).map(|n| of(n, &[3])));
    bench.pass(60_000);
    assert!(!is_stopped(&bench));
}

#[test]
fn g4_mass_emptying_trips_it_however_often_the_source_confirms_it() {
    let emptied = |provenance| move |n| ServiceFact { provenance, slices: 0, endpoints: 0, ..of(n, &[]) };
    let mut bench = cluster(30, &[1, 2]);
    bench.together((0..30).map(emptied(Provenance::Relist)));
    bench.pass(31_000);
    assert_eq!(bench.reread(), 1);
    bench.pass(600_000);
    assert!(is_stopped(&bench), "the second list was empty as well");
    assert_eq!(going(&bench, &[1, 2]), 0);
    // Most nodes get the label that leaves them out, as seen on a watch.
    let mut bench = cluster(30, &[1, 2, 3, 4]);
    bench.together((0..30).map(|n| of(n, &[4])));
    bench.pass(31_000);
    assert!(is_stopped(&bench));
}

#[test]
fn x5_g4_what_is_dropped_by_configuration_is_still_bound_by_the_breaker() {
    let dropped = |n| dropped(ServiceFact { slices: 0, endpoints: 0, ..of(n, &[]) });
    let mut bench = cluster(20, &[1, 2]);
    bench.together((0..20).map(dropped));
    bench.pass(3_600_000);
    bench.observe(&all_with(20, &[1, 2]));
    assert!(is_stopped(&bench), "only a pool of a listed source goes past it");
    assert_eq!(going(&bench, &[1, 2]), 0);
    let reason = |n| bench.assigned[&pool_of(n)].held.as_ref().map(|held| held.reason);
    assert!((0..20).all(|n| reason(n) == Some(HeldReason::Breaker)));
    // Few go, and without any confirmation.
    let mut bench = cluster(20, &[1, 2]);
    bench.together((0..5).map(dropped));
    bench.pass(30_000);
    assert!(!is_stopped(&bench) && going(&bench, &[1, 2]) == 5 * 2);
}

#[test]
fn g4_pools_that_initial_reads_find_are_compared_with_what_is_in_them() {
    let mut bench = Bench::running();
    bench.together((0..20).map(|n| ServiceFact { provenance: Provenance::Watch, ..of(n, &[1]) }));
    bench.observe(&all_with(20, &[1, 2, 3, 4]));
    bench.pass(31_000);
    assert!(is_stopped(&bench));
    let mut bench = Bench::running();
    bench.together((0..20).map(|n| of(n, &[1])));
    bench.observe(&all_with(20, &[]));
    bench.pass(31_000);
    assert!(!is_stopped(&bench), "new pools lose nothing");
}

#[test]
fn g5_an_observing_breaker_only_reports_and_without_guards_there_is_none() {
    for (guards, would_hold, told) in
        [(GuardMode::Observe, Some(HeldReason::Breaker), 1), (GuardMode::Off, None, 0)]
    {
        let mut bench =
            cluster_with(Params { guards, empty_confirm: Duration::ZERO, ..params() }, 20, &[1, 2, 3]);
        bench.together((0..20).map(|n| of(n, &[1])));
        bench.pass(30_000);
        assert_eq!(going(&bench, &[1, 2, 3]), 40);
        let said = &bench.assigned[&pool_of(3)];
        assert_eq!((said.held.clone(), said.would_hold.as_ref().map(|held| held.reason)), (None, would_hold));
        let alerts = bench
            .reports()
            .into_iter()
            .filter(|what| matches!(what, EventKind::RemovalsStopped { enforced: false, .. }));
        assert_eq!(alerts.count(), told);
    }
}

#[test]
fn g4_it_is_reported_once_in_each_term_while_it_lasts() {
    let mut bench = cluster(20, &[1, 2, 3, 4]);
    bench.together((0..20).map(|n| of(n, &[1])));
    bench.pass(30_000);
    let alerts = |bench: &mut Bench| {
        bench.reports().into_iter().filter(|what| matches!(what, EventKind::RemovalsStopped { .. })).count()
    };
    assert_eq!(alerts(&mut bench), 1);
    bench.pass(600_000);
    bench.observe(&all_with(20, &[1, 2, 3, 4]));
    assert_eq!(alerts(&mut bench), 0);
    bench.reporting(Some(2));
    assert_eq!(alerts(&mut bench), 1);
}

#[test]
fn g4_a_process_that_starts_while_all_is_broken_stops_removals_at_once() {
    for (probed, listed) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut facts = LbFacts::clone(&all_with(20, &[1, 2, 3, 4]));
        facts.rules.iter_mut().for_each(|rule| rule.probed = probed);
        let facts = Arc::new(facts);
        let provenance = if listed { Provenance::FirstList } else { Provenance::Watch };
        let mut bench = Bench::waiting();
        bench.reporting(None);
        let mut out = Vec::new();
        for n in 0..20 {
            let fact = ServiceFact { provenance, ..of(n, &[1]) };
            bench.machine.step(bench.now, In::Service(uid(n), Some(Arc::new(fact))), &mut out);
        }
        bench.receive(out);
        bench.send(In::ListsSynced);
        bench.observe(&facts);
        bench.send(In::DiscoverySynced);
        for second in 0..120 {
            assert_eq!(going(&bench, &[1, 2, 3, 4]), 0, "{second} s: {probed} {listed}");
            bench.reread();
            bench.pass(1_000);
            if second == 10 {
                // The process leads from now on.
                bench.reporting(Some(7));
                bench.send(In::Confirmed(Epoch(7)));
            }
        }
        assert!(is_stopped(&bench), "{probed} {listed}");
    }
}

#[test]
fn g4_what_has_shrunk_while_nobody_was_there_waits_for_the_operator() {
    let mut bench = Bench::running();
    bench.together((0..20).map(|n| of(n, if n < 6 { &[1] } else { &[1, 2, 3, 4] })));
    bench.observe(&all_with(20, &[1, 2, 3, 4]));
    bench.pass(600_000);
    assert!(is_stopped(&bench) && going(&bench, &[1, 2, 3, 4]) == 0, "six of twenty");
    bench.request_release(Scope::Everything);
    assert_eq!(going(&bench, &[1, 2, 3, 4]), 6 * 3);
    bench.pass(600_000);
    assert!(!is_stopped(&bench));
}

#[test]
fn g4_winning_leadership_ends_nothing_and_forgets_nothing() {
    let mut bench = cluster(20, &[1, 2, 3, 4]);
    bench.reporting(None);
    bench.together((0..20).map(|n| of(n, &[1])));
    bench.pass(600_000);
    assert!(is_stopped(&bench), "who does not lead judges as well");
    bench.reporting(Some(2));
    bench.send(In::Confirmed(Epoch(2)));
    bench.observe(&all_with(20, &[1, 2, 3, 4]));
    assert!(is_stopped(&bench) && going(&bench, &[1, 2, 3, 4]) == 0);
    let alerts = bench.reports().into_iter().filter(|what| matches!(what, EventKind::RemovalsStopped { .. }));
    assert_eq!(alerts.count(), 1);
    // Members that other clients removed shortly before the term count in it.
    let mut bench = cluster(20, &[1, 2, 3, 4]);
    bench.reporting(None);
    bench.together((0..5).map(|n| of(n, &[1])));
    bench.pass(60_000);
    bench.reporting(Some(2));
    bench.together((5..6).map(|n| of(n, &[1])));
    bench.pass(30_000);
    assert!(is_stopped(&bench));
}

#[test]
fn g4_a_standby_follows_what_the_operator_has_released_at_the_leader() {
    let mut bench = cluster(20, &[1, 2, 3, 4]);
    bench.reporting(None);
    bench.together((0..20).map(|n| of(n, &[1])));
    bench.pass(600_000);
    assert!(is_stopped(&bench));
    bench.observe(&all_with(20, &[1]));
    assert!(!is_stopped(&bench));
    bench.reporting(Some(2));
    bench.together((0..20).map(|n| of(n, &[1, 2])));
    bench.observe(&all_with(20, &[1, 2]));
    bench.pass(600_000);
    bench.together((0..20).map(|n| of(n, &[1])));
    bench.pass(30_000);
    assert!(!is_stopped(&bench), "a half of what they have had since");
}

#[test]
fn g4_pools_that_are_paused_count_as_if_they_were_not() {
    let mut bench = cluster(20, &[1, 2, 3, 4]);
    let pause =
        OperatorPolicy { everything: Some(model::policy::Pause::default()), ..OperatorPolicy::default() };
    bench.send(policy_input(pause));
    bench.reporting(None);
    bench.together((0..20).map(|n| of(n, &[1])));
    bench.pass(600_000);
    assert!(is_stopped(&bench));
    bench.reporting(Some(2));
    bench.send(policy_input(OperatorPolicy::default()));
    bench.observe(&all_with(20, &[1, 2, 3, 4]));
    assert!(
        is_stopped(&bench) && going(&bench, &[1, 2, 3, 4]) == 0,
        "the end of the pause lets nothing slip"
    );
}

#[test]
fn g4_what_the_operator_releases_in_pools_of_their_own_does_not_trip_it() {
    let mut bench = cluster(20, &[1, 2]);
    bench.together((0..20).map(|n| of(n, &[])));
    bench.pass(31_000);
    assert!(!is_stopped(&bench) && going(&bench, &[1, 2]) == 0, "emptiness is to be confirmed");
    bench.request_release(Scope::Everything);
    assert!(!is_stopped(&bench));
    assert_eq!(going(&bench, &[1, 2]), 40);
}

#[test]
fn g4_a_release_at_a_process_that_does_not_write_is_refused() {
    let mut bench = cluster(20, &[1, 2, 3, 4]);
    bench.together((0..20).map(|n| of(n, &[1])));
    bench.pass(30_000);
    let refused = |bench: &mut Bench| {
        let answer = bench.request_release(Scope::Everything);
        assert!(is_stopped(bench) && going(bench, &[1, 2, 3, 4]) == 0);
        answer
    };
    bench.reporting(None);
    assert_eq!(refused(&mut bench), Answer::Refused(Refusal::NotLeading));
    let pause =
        OperatorPolicy { everything: Some(model::policy::Pause::default()), ..OperatorPolicy::default() };
    bench.send(In::OperatorPolicy { term: None, policy: Arc::new(pause) });
    let paused = Refusal::Paused(model::assignment::PausedBy::Everything);
    assert_eq!(refused(&mut bench), Answer::Refused(paused));
}

#[test]
fn c4_a_dry_run_releases_nothing() {
    let mut bench = cluster_with(Params { shows_only: true, ..params() }, 20, &[1, 2, 3, 4]);
    bench.together((0..20).map(|n| of(n, &[1])));
    bench.pass(30_000);
    assert_eq!(bench.request_release(Scope::Everything), Answer::Refused(Refusal::DryRun));
    assert!(is_stopped(&bench) && going(&bench, &[1, 2, 3, 4]) == 0);
}

#[test]
fn g4_a_source_that_breaks_again_and_again_does_not_wear_it_out() {
    let mut bench = cluster(20, &[1, 2, 3, 4]);
    for round in 0..4 {
        bench.together((0..20).map(|n| of(n, &[1])));
        bench.pass(1_000_000);
        bench.observe(&all_with(20, &[1, 2, 3, 4]));
        assert!(is_stopped(&bench) && going(&bench, &[1, 2, 3, 4]) == 0, "round {round}");
        bench.together((0..20).map(|n| of(n, &[1, 2, 3, 4])));
        bench.pass(100_000);
        assert!(!is_stopped(&bench), "round {round}");
    }
}

#[test]
fn g4_new_pools_that_lose_their_first_members_soon_count_too() {
    for (stood, stops) in [(39_000, false), (40_000, true), (200_000, true), (400_000, true)] {
        let mut bench = Bench::with(Params { removal_delay: Duration::ZERO, ..params() });
        bench.send(In::ListsSynced);
        bench.send(In::DiscoverySynced);
        bench.together((0..20).map(|n| of(n, &[1, 2, 3, 4])));
        bench.observe(&all_with(20, &[]));
        bench.pass(10_000);
        bench.observe(&all_with(20, &[1, 2, 3, 4]));
        bench.pass(stood - 10_000);
        bench.together((0..20).map(|n| of(n, &[1])));
        assert_eq!(is_stopped(&bench), stops, "after {stood} ms");
    }
}

/// The input with this operator policy.
fn policy_input(policy: OperatorPolicy) -> In {
    In::OperatorPolicy { term: Some(Epoch(u64::MAX)), policy: Arc::new(policy) }
}

fn paused(pools: std::ops::Range<u32>) -> OperatorPolicy {
    let pause = |n| (pool_of(n), model::policy::Pause::default());
    OperatorPolicy { pools: pools.map(pause).collect(), ..OperatorPolicy::default() }
}

#[test]
fn g4_what_was_restored_in_a_pause_does_not_go_again_at_the_resume() {
    let everything =
        || OperatorPolicy { everything: Some(model::policy::Pause::default()), ..OperatorPolicy::default() };
    for pause in [everything as fn() -> OperatorPolicy, || paused(0..20)] {
        let mut bench = cluster(20, &[1, 2, 3, 4]);
        bench.together((0..20).map(|n| of(n, &[1])));
        bench.pass(30_000);
        assert!(is_stopped(&bench));
        bench.request_release(Scope::Everything);
        assert_eq!(going(&bench, &[1, 2, 3, 4]), 60, "released by mistake");
        bench.pass(1_000);
        bench.observe(&all_with(20, &[1]));
        bench.pass(3_600_000);
        bench.send(policy_input(pause()));
        bench.observe(&all_with(20, &[1, 2, 3, 4]));
        bench.pass(60_000);
        bench.send(policy_input(OperatorPolicy::default()));
        assert!(is_stopped(&bench) && going(&bench, &[1, 2, 3, 4]) == 0, "the levels are still wrong");
        bench.together((0..20).map(|n| of(n, &[1, 2, 3, 4])));
        assert!(!is_stopped(&bench));
    }
}

#[test]
fn g4_levels_that_fall_while_nothing_is_written_do_not_go_at_once_later() {
    let mut bench = cluster(20, &[1, 2, 3, 4]);
    // Azure does not answer for an hour, in which few pools at a time lose their members.
    for n in 0..5 {
        bench.service(of(n, &[1]));
        bench.pass(600_000);
    }
    assert!(!is_stopped(&bench));
    bench.service(of(5, &[1]));
    bench.pass(31_000);
    assert!(is_stopped(&bench) && going(&bench, &[1, 2, 3, 4]) == 0);
    bench.observe(&all_with(20, &[1]));
    assert!(!is_stopped(&bench), "another client has taken it out");
}

#[test]
fn g4_what_the_operator_paused_by_itself_stops_nothing_elsewhere() {
    let mut bench = cluster(20, &[1, 2, 3, 4]);
    bench.send(policy_input(paused(0..19)));
    bench.together((0..20).map(|n| of(n, &[1])));
    bench.pass(600_000);
    assert!(!is_stopped(&bench));
    assert_eq!(bench.assigned[&pool_of(19)].held, None);
    bench.send(policy_input(OperatorPolicy::default()));
    assert!(is_stopped(&bench), "the end of the pause lets nothing slip");
}

#[test]
fn g4_releasing_everything_includes_what_pools_hold_themselves() {
    let mut bench = cluster(20, &[1, 2, 3, 4]);
    bench.together((0..6).map(|n| of(n, &[1])));
    bench.pass(30_000);
    assert!(is_stopped(&bench));
    bench.service(of(0, &[]));
    bench.pass(31_000);
    let reason = |bench: &Bench| bench.assigned[&pool_of(0)].held.as_ref().map(|held| held.reason);
    assert_eq!(reason(&bench), Some(HeldReason::EmptyConfirm));
    bench.request_release(Scope::Pool(pool_of(0)));
    assert!(is_stopped(&bench) && going(&bench, &[1, 2, 3, 4]) == 0, "six are still to lose most of theirs");
    assert_eq!(reason(&bench), Some(HeldReason::Breaker));
    bench.service(of(15, &[]));
    bench.pass(31_000);
    bench.request_release(Scope::Everything);
    assert!(!is_stopped(&bench));
    assert_eq!(going(&bench, &[1, 2, 3, 4]), 4 + 5 * 3 + 4);
}
