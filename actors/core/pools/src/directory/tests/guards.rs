//! Tests of the removal delay (D4), unknown members, and held removals (D6, G2).

use super::*;
use model::level::SurplusPolicy;

fn tolerated(fixture: &Fixture) -> BTreeSet<IpAddr> {
    fixture.web().1
}

#[test]
fn d4_a_leaving_member_is_tolerated_for_the_removal_delay() {
    let mut fixture = settled(&[1, 2]);
    fixture.service(fact(1, "web", part(&[1], &[])));
    assert_eq!(fixture.web(), (ips(&[1]), ips(&[2])));
    assert_eq!(fixture.assignment("lb", "shop-web").services[&uid(1)].tolerated, ips(&[2]));
    fixture.pass(29_999);
    assert_eq!(tolerated(&fixture), ips(&[2]));
    fixture.pass(1);
    assert_eq!(fixture.web(), (ips(&[1]), ips(&[])));
    fixture.observe(&web(&[1, 2]));
    assert_eq!(tolerated(&fixture), ips(&[]), "its leaving time is known: it is not tolerated again");
}

#[test]
fn d4_a_returning_member_gets_a_new_removal_delay() {
    let mut fixture = settled(&[1, 2]);
    fixture.service(fact(1, "web", part(&[1], &[])));
    fixture.pass(20_000);
    fixture.service(fact(1, "web", part(&[1], &[2])));
    fixture.pass(60_000);
    assert_eq!(tolerated(&fixture), ips(&[2]));
    fixture.service(fact(1, "web", part(&[1], &[])));
    fixture.pass(29_000);
    assert_eq!(tolerated(&fixture), ips(&[2]));
    fixture.pass(1_000);
    assert_eq!(tolerated(&fixture), ips(&[]));
}

#[test]
fn d4_a_pool_with_a_rule_without_a_probe_has_no_removal_delay() {
    let mut fixture = settled(&[1, 2]);
    let mut unprobed = rule(1, "shop-web");
    unprobed.probed = false;
    fixture.observe(&balancer("lb", vec![pool("lb", "shop-web", &[1, 2])], vec![unprobed]));
    fixture.service(fact(1, "web", part(&[1], &[])));
    assert_eq!(fixture.web(), (ips(&[1]), ips(&[])));
}

#[test]
fn d4_an_unknown_member_stays_for_the_delay_from_first_sight() {
    let mut fixture = settled(&[1]);
    fixture.observe(&web(&[1, 9]));
    fixture.pass(20_000);
    fixture.observe(&web(&[1, 9]));
    assert_eq!(tolerated(&fixture), ips(&[9]));
    fixture.pass(10_000);
    assert_eq!(tolerated(&fixture), ips(&[]));
    fixture.observe(&web(&[1, 9]));
    fixture.pass(10_000);
    assert_eq!(tolerated(&fixture), ips(&[]), "while it stays there it is not seen for the first time again");
}

#[test]
fn d4_a_leaving_member_is_tolerated_by_its_own_service_only() {
    let mut fixture = settled(&[1]);
    fixture.service(fact(2, "web", part(&[2, 3], &[])));
    let rules = vec![rule(1, "shop-web"), rule(2, "shop-web")];
    fixture.observe(&balancer("lb", vec![pool("lb", "shop-web", &[1, 9])], rules));
    fixture.service(fact(2, "web", part(&[2], &[])));
    let said = fixture.assignment("lb", "shop-web");
    assert_eq!(said.services[&uid(1)].tolerated, ips(&[9]));
    assert_eq!(said.services[&uid(2)].tolerated, ips(&[3, 9]));
}

#[test]
fn g2_the_last_members_stay_until_emptiness_has_lasted() {
    let mut fixture = settled(&[1, 2]);
    fixture.service(fact(1, "web", part(&[], &[])));
    let held = fixture.assignment("lb", "shop-web").held.clone().expect("held");
    assert_eq!(held.reason, HeldReason::EmptyConfirm);
    assert_eq!(held.waits, Waits::Time(held.since.plus(Duration::from_secs(60))));
    assert_eq!(held.members, ips(&[1, 2]));
    let said = fixture.take();
    let held_pools = |pools| Metric::Held { reason: HeldReason::EmptyConfirm, pools };
    assert!(said.iter().any(|out| matches!(out, Out::Metric(sample) if *sample == held_pools(1))));
    fixture.outputs = said;
    assert!(matches!(&fixture.reports()[..], [EventKind::Held { members: 2, .. }]));
    fixture.pass(40_000);
    fixture.observe(&web(&[1, 2]));
    fixture.pass(19_999);
    assert_eq!(fixture.web(), (ips(&[]), ips(&[1, 2])));
    fixture.pass(1);
    assert_eq!(fixture.web(), (ips(&[]), ips(&[])));
    assert!(fixture.assignment("lb", "shop-web").held.is_none());
    assert!(fixture.samples().contains(&held_pools(0)));
    fixture.observe(&web(&[1, 2]));
    assert_eq!(fixture.web(), (ips(&[]), ips(&[])), "what was confirmed stays so");
}

#[test]
fn g2_interrupted_emptiness_is_confirmed_from_the_start() {
    let mut fixture = settled(&[1]);
    fixture.service(fact(1, "web", part(&[], &[])));
    fixture.pass(50_000);
    fixture.service(fact(1, "web", part(&[2], &[])));
    assert!(fixture.assignment("lb", "shop-web").held.is_none());
    assert_eq!(fixture.web(), (ips(&[2]), ips(&[])), "the delay of what left has passed meanwhile");
    fixture.pass(1_000);
    fixture.service(fact(1, "web", part(&[], &[])));
    fixture.pass(59_000);
    assert_eq!(tolerated(&fixture), ips(&[2]));
    fixture.pass(1_000);
    assert_eq!(tolerated(&fixture), ips(&[]));
}

#[test]
fn g2_members_that_were_only_observed_are_held_too() {
    let mut fixture = Fixture::running();
    fixture.observe(&web(&[1]));
    fixture.service(fact(1, "web", part(&[], &[])));
    fixture.pass(59_000);
    assert_eq!(tolerated(&fixture), ips(&[1]));
    fixture.pass(1_000);
    assert_eq!(tolerated(&fixture), ips(&[]));
}

#[test]
fn g2_members_seen_after_it_became_empty_are_held_for_the_rest() {
    let mut fixture = Fixture::running();
    fixture.observe(&web(&[]));
    fixture.service(fact(1, "web", part(&[], &[])));
    fixture.pass(10_000);
    fixture.observe(&web(&[9]));
    assert!(fixture.assignment("lb", "shop-web").held.is_some());
    fixture.pass(49_999);
    assert_eq!(tolerated(&fixture), ips(&[9]));
    fixture.pass(1);
    assert_eq!(tolerated(&fixture), ips(&[]));
}

#[test]
fn d6_a_hold_for_one_service_does_not_affect_others() {
    let mut fixture = settled(&[1]);
    fixture.service(fact(2, "web", part(&[2], &[])));
    let rules = vec![rule(1, "shop-web"), rule(2, "shop-web")];
    fixture.observe(&balancer("lb", vec![pool("lb", "shop-web", &[1, 2])], rules));
    fixture.service(fact(1, "web", Part { unusable: true, ..Part::default() }));
    fixture.pass(600_000);
    assert_eq!(fixture.web(), (ips(&[2]), ips(&[1])));
    let held = fixture.assignment("lb", "shop-web").held.clone().expect("held");
    assert_eq!(held.members, ips(&[1]));
}

#[test]
fn g2_a_pool_that_never_had_a_member_is_not_held() {
    let mut fixture = Fixture::running();
    fixture.observe(&web(&[]));
    fixture.service(fact(1, "web", part(&[], &[])));
    assert!(fixture.assignment("lb", "shop-web").held.is_none());
    assert!(fixture.reports().is_empty());
}

#[test]
fn g2_a_deleted_service_is_not_held() {
    let mut fixture = settled(&[1]);
    fixture.send(In::Service(uid(1), None));
    let said = fixture.assignment("lb", "shop-web");
    assert!(said.services.is_empty() && said.held.is_none());
    assert!(fixture.machine.deadline().is_none());
}

#[test]
fn d6_a_part_without_a_usable_node_holds_all_members() {
    let mut fixture = settled(&[1, 2]);
    let unusable = || Part { unusable: true, ..Part::default() };
    fixture.service(fact(1, "web", unusable()));
    fixture.pass(3_600_000);
    fixture.observe(&web(&[1, 2]));
    let held = fixture.assignment("lb", "shop-web").held.clone().expect("held");
    assert_eq!((held.reason, held.waits), (HeldReason::NoUsableNode, Waits::Facts));
    assert_eq!(fixture.web(), (ips(&[]), ips(&[1, 2])));
    let said = fixture.take();
    let held_pools = |pools| Metric::Held { reason: HeldReason::NoUsableNode, pools };
    assert!(said.iter().any(|out| matches!(out, Out::Metric(sample) if *sample == held_pools(1))));
    fixture.outputs = said;
    assert_eq!(fixture.reports().len(), 1);
    fixture.service(fact(1, "web", part(&[3], &[])));
    assert_eq!(fixture.web(), (ips(&[3]), ips(&[])));
    assert!(fixture.samples().contains(&held_pools(0)));
}

#[test]
fn d6_emptiness_after_an_unusable_part_has_its_own_confirmation() {
    let mut fixture = settled(&[1]);
    fixture.service(fact(1, "web", Part { unusable: true, ..Part::default() }));
    fixture.pass(600_000);
    fixture.service(fact(1, "web", part(&[], &[])));
    fixture.pass(59_000);
    assert_eq!(tolerated(&fixture), ips(&[1]));
    fixture.pass(1_000);
    assert_eq!(tolerated(&fixture), ips(&[]));
}

#[test]
fn g2_members_stay_while_nothing_can_replace_them() {
    let mut fixture = settled(&[1]);
    fixture.observe(&web(&[1]));
    fixture.pass(60_000);
    fixture.observe(&web(&[1]));
    // The pod has moved to another node, which does not count: it is tolerated in the pool, but not added.
    fixture.service(fact(1, "web", part(&[], &[2])));
    fixture.pass(600_000);
    fixture.observe(&web(&[1]));
    let held = fixture.assignment("lb", "shop-web").held.clone().expect("held");
    assert_eq!((held.reason, held.waits, held.members), (HeldReason::LastMember, Waits::Facts, ips(&[1])));
    assert_eq!(fixture.web(), (ips(&[]), ips(&[1, 2])));
    fixture.service(fact(1, "web", part(&[2], &[])));
    assert!(fixture.assignment("lb", "shop-web").held.is_none(), "a member comes in its place");
    fixture.pass(30_000);
    assert_eq!(fixture.web(), (ips(&[2]), ips(&[])));
}

/// Creates a running Directory with its guards on and `guards.emptyConfirm: 0s`, whose pool holds member 1.
fn unconfirmed() -> Fixture {
    unconfirmed_after(Duration::ZERO)
}

/// Creates the same with this removal delay.
fn unconfirmed_after(removal_delay: Duration) -> Fixture {
    let mut fixture = Fixture::with(Params { removal_delay, empty_confirm: Duration::ZERO, ..params() });
    fixture.send(In::ListsSynced);
    fixture.send(In::DiscoverySynced);
    fixture.service(fact(1, "web", part(&[1], &[])));
    fixture.observe(&web(&[1]));
    fixture
}

/// Returns the number of members that are removed from a pool that was observed with member 1.
fn to_go(fixture: &Fixture) -> usize {
    fixture.assignment("lb", "shop-web").level.surplus(&ips(&[1])).count()
}

#[test]
fn g2_without_confirmation_an_empty_slice_empties_the_pool() {
    for provenance in [Provenance::Watch, Provenance::Reconnect] {
        let mut fixture = unconfirmed();
        fixture.take();
        fixture.service(ServiceFact { provenance, ..fact(1, "web", part(&[], &[])) });
        let said = fixture.assignment("lb", "shop-web");
        assert!(said.held.is_none() && said.level.keeps == SurplusPolicy::RemoveAll, "{provenance:?}");
        assert_eq!(to_go(&fixture), 1);
        assert!(fixture.reports().is_empty(), "nothing is held back");
    }
    // An earlier reason to keep the last member no longer applies.
    for before in [part(&[], &[2]), Part { unusable: true, ..Part::default() }] {
        let mut fixture = unconfirmed();
        fixture.observe(&web(&[1]));
        fixture.pass(1_000);
        fixture.observe(&web(&[1]));
        fixture.service(fact(1, "web", before));
        assert!(fixture.assignment("lb", "shop-web").held.is_some(), "the slice is not empty");
        fixture.service(fact(1, "web", part(&[], &[])));
        assert_eq!((fixture.assignment("lb", "shop-web").held.clone(), to_go(&fixture)), (None, 1));
    }
}

#[test]
fn g2_an_empty_list_or_lost_slices_need_a_second_read() {
    let empty = || fact(1, "web", part(&[], &[]));
    for doubtful in [
        ServiceFact { provenance: Provenance::Relist, ..empty() },
        ServiceFact { provenance: Provenance::FirstList, ..empty() },
        ServiceFact { slices: 0, ..empty() },
    ] {
        let mut fixture = unconfirmed();
        fixture.service(doubtful);
        let held = fixture.assignment("lb", "shop-web").held.clone().expect("held");
        assert_eq!((held.reason, held.members), (HeldReason::EmptyConfirm, ips(&[1])));
        assert_eq!(held.waits, Waits::SecondRead(held.since.plus(Duration::from_secs(30))));
        fixture.pass(1_000);
        // A label of the Service has changed, which does not affect its slices.
        fixture.service(ServiceFact { exposure: 7, ..empty() });
        fixture.pass(28_999);
        assert_eq!((to_go(&fixture), fixture.reread()), (0, 0), "not before");
        fixture.pass(1);
        assert_eq!((to_go(&fixture), fixture.reread()), (0, 1), "the doubt stays until it is read again");
        assert_eq!((fixture.assignment("lb", "shop-web").held.clone(), to_go(&fixture)), (None, 1));
        fixture.pass(600_000);
        assert_eq!(fixture.reread(), 0, "nothing is in doubt");
    }
}

#[test]
fn x5_removals_by_configuration_need_no_confirmation() {
    for doubtful in [
        ServiceFact { slices: 0, ..fact(1, "web", part(&[], &[])) },
        ServiceFact { provenance: Provenance::Relist, ..fact(1, "web", part(&[], &[])) },
    ] {
        let mut fixture = unconfirmed();
        fixture.service(doubtful.clone());
        assert_eq!(to_go(&fixture), 0, "a broken source may be why");
        let mut fixture = unconfirmed();
        fixture.service(dropped(doubtful));
        let said = fixture.assignment("lb", "shop-web");
        assert_eq!((said.held.clone(), to_go(&fixture)), (None, 1));
    }
    let mut fixture = unconfirmed_after(Duration::from_secs(30));
    fixture.service(dropped(ServiceFact { slices: 0, ..fact(1, "web", part(&[], &[])) }));
    fixture.pass(29_999);
    assert_eq!(to_go(&fixture), 0, "connections may end");
    fixture.pass(1);
    assert_eq!((fixture.assignment("lb", "shop-web").held.clone(), to_go(&fixture)), (None, 1));
    // The members that another Service of the pool requires stay.
    let mut fixture = unconfirmed();
    fixture.service(fact(2, "api", part(&[2], &[])));
    fixture.service(dropped(fact(1, "web", part(&[], &[]))));
    assert!(fixture.assignment("lb", "shop-web").held.is_none());
}

#[test]
fn g1_doubt_lasts_until_all_services_release_the_member() {
    let silent = |n, name| fact(n, name, part(&[], &[]));
    // Facts of the first Service before the second one releases: none, a changed label, and an endpoint that came and
    // went.
    for (said, held) in [
        (vec![], true),
        (vec![ServiceFact { exposure: 7, ..silent(1, "web") }], true),
        (vec![fact(1, "web", part(&[1], &[])), silent(1, "web")], false),
    ] {
        let mut fixture = unconfirmed();
        fixture.service(fact(2, "api", part(&[2], &[])));
        let rules = vec![rule(1, "shop-web"), rule(2, "shop-web")];
        fixture.observe(&balancer("lb", vec![pool("lb", "shop-web", &[1, 2])], rules));
        fixture.service(ServiceFact { provenance: Provenance::Relist, ..silent(1, "web") });
        fixture.pass(9_000);
        said.into_iter().for_each(|fact| fixture.service(fact));
        fixture.pass(1_000);
        fixture.service(silent(2, "api"));
        let waits = fixture.assignment("lb", "shop-web").held.clone().map(|held| held.waits);
        let since_the_relist = held.then(|| Waits::SecondRead(fixture.now.plus(Duration::from_secs(20))));
        assert_eq!(waits, since_the_relist);
        fixture.pass(19_999);
        assert_eq!((fixture.assignment("lb", "shop-web").held.is_some(), fixture.reread()), (held, 0));
        fixture.pass(1);
        assert_eq!(fixture.reread(), usize::from(held));
        assert!(fixture.assignment("lb", "shop-web").held.is_none());
        assert_eq!(fixture.assignment("lb", "shop-web").level.surplus(&ips(&[1, 2])).count(), 2);
    }
}

#[test]
fn g1_a_list_that_empties_an_unusable_part_starts_a_doubt() {
    let mut fixture = unconfirmed();
    fixture.service(fact(1, "web", Part { unusable: true, ..Part::default() }));
    fixture.pass(40_000);
    fixture.service(ServiceFact { provenance: Provenance::Relist, ..fact(1, "web", part(&[], &[])) });
    let held = fixture.assignment("lb", "shop-web").held.clone().expect("held");
    assert_eq!(held.reason, HeldReason::EmptyConfirm);
    assert_eq!(held.waits, Waits::SecondRead(fixture.now.plus(Duration::from_secs(30))));
}

#[test]
fn g1_a_vanished_service_without_members_causes_no_doubt() {
    let mut fixture = unconfirmed();
    fixture.service(fact(2, "api", part(&[2], &[])));
    let rules = vec![rule(1, "shop-web"), rule(2, "shop-web")];
    fixture.observe(&balancer("lb", vec![pool("lb", "shop-web", &[1, 2])], rules));
    fixture.service(fact(1, "web", part(&[], &[])));
    fixture.pass(1_000);
    fixture.service(ServiceFact { slices: 0, ..fact(1, "web", part(&[], &[])) });
    fixture.pass(1_000);
    fixture.service(fact(2, "api", part(&[], &[])));
    assert!(fixture.assignment("lb", "shop-web").held.is_none());
}

#[test]
fn g2_doubt_does_not_prolong_a_longer_confirmation_time() {
    let mut fixture = settled(&[1]);
    fixture.service(ServiceFact { provenance: Provenance::Relist, ..fact(1, "web", part(&[], &[])) });
    fixture.pass(30_000);
    assert_eq!(fixture.reread(), 1);
    fixture.pass(29_999);
    assert_eq!(tolerated(&fixture), ips(&[1]));
    fixture.pass(1);
    assert_eq!(tolerated(&fixture), ips(&[]));
}

#[test]
fn g2_without_initial_slices_members_need_time_and_a_read() {
    // Each case: the second at which the second read requested after 30 s arrives, and the second at which the
    // members are removed.
    for (read, go) in [(30, 60), (59, 60), (60, 60), (100, 100), (3_600, 3_600)] {
        let mut fixture = Fixture::waiting();
        let none = ServiceFact { slices: 0, endpoints: 0, ..fact(1, "web", part(&[], &[])) };
        fixture.service(ServiceFact { provenance: Provenance::FirstList, ..none });
        fixture.observe(&web(&[1, 2]));
        fixture.send(In::ListsSynced);
        fixture.send(In::DiscoverySynced);
        let goes =
            |fixture: &Fixture| fixture.assignment("lb", "shop-web").level.surplus(&ips(&[1, 2])).count();
        let held = fixture.assignment("lb", "shop-web").held.clone().expect("held");
        assert_eq!((held.reason, held.members, goes(&fixture)), (HeldReason::EmptyConfirm, ips(&[1, 2]), 0));
        fixture.pass(29_999);
        assert_eq!(fixture.reread(), 0, "a read that soon confirms nothing");
        fixture.pass(1);
        for second in 30..go {
            if second == read {
                assert_eq!(fixture.reread(), 1);
            }
            fixture.observe(&web(&[1, 2]));
            assert_eq!(goes(&fixture), 0, "{second} s, read after {read} s");
            fixture.pass(999);
            assert_eq!(goes(&fixture), 0, "{second} s, read after {read} s");
            fixture.pass(1);
        }
        if read == go {
            assert_eq!((goes(&fixture), fixture.reread()), (0, 1), "time alone does not release them");
        }
        assert_eq!((fixture.assignment("lb", "shop-web").held.clone(), goes(&fixture)), (None, 2));
    }
}

/// Creates a running Directory of `compatibility: upstream`, with this confirmation time, whose pool holds member 1.
fn unguarded(empty_confirm: Duration) -> Fixture {
    let mut fixture = Fixture::with(Params {
        removal_delay: Duration::ZERO,
        empty_confirm,
        guards: GuardMode::Off,
        ..params()
    });
    fixture.send(In::ListsSynced);
    fixture.send(In::DiscoverySynced);
    fixture.service(fact(1, "web", part(&[1], &[])));
    fixture.observe(&web(&[1]));
    fixture
}

#[test]
fn c2_without_guards_the_last_unrequired_member_is_removed() {
    let mut fixture = unguarded(Duration::ZERO);
    fixture.take();
    assert!(
        fixture.assignment("lb", "shop-web").level.keeps == SurplusPolicy::RemoveAll,
        "a foreign member goes too"
    );
    // Node 2 may stay in the pool and is not added. No Service requires member 1 any more.
    fixture.service(fact(1, "web", part(&[], &[2])));
    let said = fixture.assignment("lb", "shop-web");
    assert!(said.held.is_none() && said.level.keeps == SurplusPolicy::RemoveAll);
    assert_eq!(fixture.web(), (ips(&[]), ips(&[2])));
    let observed = ips(&[1]);
    assert_eq!(said.level.surplus(&observed).count(), 1, "it is removed");
    fixture.service(ServiceFact { provenance: Provenance::Relist, ..fact(1, "web", part(&[], &[])) });
    assert!(fixture.assignment("lb", "shop-web").held.is_none(), "S0 knows no doubt");
    assert!(fixture.reports().is_empty(), "nothing is held back");
}

#[test]
fn c2_without_guards_empty_confirm_and_d6_still_apply() {
    let mut fixture = unguarded(Duration::from_secs(10));
    fixture.service(fact(1, "web", part(&[], &[])));
    let said = fixture.assignment("lb", "shop-web");
    assert_eq!(said.held.as_ref().map(|held| held.reason), Some(HeldReason::EmptyConfirm));
    assert!(said.level.keeps == SurplusPolicy::KeepLast);
    fixture.pass(10_000);
    assert_eq!(fixture.web(), (ips(&[]), ips(&[])));
    let mut fixture = unguarded(Duration::ZERO);
    fixture.service(fact(1, "web", Part { unusable: true, ..Part::default() }));
    fixture.pass(600_000);
    let said = fixture.assignment("lb", "shop-web");
    assert_eq!(said.held.as_ref().map(|held| held.reason), Some(HeldReason::NoUsableNode));
}

#[test]
fn g2_a_possibly_written_address_counts_as_a_member() {
    let mut fixture = settled(&[1]);
    fixture.observe(&web(&[9]));
    fixture.service(fact(1, "web", part(&[], &[1])));
    assert!(fixture.assignment("lb", "shop-web").held.is_none(), "the pool was seen before 1 was written");
    fixture.pass(1_000);
    fixture.observe(&web(&[9]));
    let held = fixture.assignment("lb", "shop-web").held.clone().expect("held");
    assert_eq!((held.reason, held.members), (HeldReason::LastMember, ips(&[9])));
}

#[test]
fn d6_members_held_for_unusable_nodes_follow_observations() {
    let mut fixture = settled(&[1, 2]);
    fixture.observe(&web(&[1, 2]));
    fixture.service(fact(1, "web", Part { unusable: true, ..part(&[], &[]) }));
    fixture.pass(1_000);
    fixture.observe(&web(&[2, 3]));
    let held = fixture.assignment("lb", "shop-web").held.clone().expect("held");
    assert_eq!((held.reason, held.members), (HeldReason::NoUsableNode, ips(&[2, 3])));
    fixture.service(fact(1, "web", Part { unusable: true, ..part(&[4], &[]) }));
    fixture.service(fact(1, "web", Part { unusable: true, ..part(&[], &[]) }));
    let held = fixture.assignment("lb", "shop-web").held.clone().expect("held");
    assert_eq!(held.members, ips(&[2, 3, 4]), "4 may have been written since");
}
