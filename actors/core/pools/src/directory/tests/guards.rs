//! The removal delay (D4), unknown members, and held removals (D6, G2).

use super::*;
use model::level::Keeps;

fn tolerated(bench: &Bench) -> BTreeSet<IpAddr> {
    bench.web().1
}

#[test]
fn d4_a_member_that_leaves_stays_tolerated_for_the_removal_delay() {
    let mut bench = settled(&[1, 2]);
    bench.service(fact(1, "web", part(&[1], &[])));
    assert_eq!(bench.web(), (ips(&[1]), ips(&[2])));
    assert_eq!(bench.assignment("lb", "shop-web").services[&uid(1)].tolerated, ips(&[2]));
    bench.pass(29_999);
    assert_eq!(tolerated(&bench), ips(&[2]));
    bench.pass(1);
    assert_eq!(bench.web(), (ips(&[1]), ips(&[])));
    bench.observe(&web(&[1, 2]));
    assert_eq!(tolerated(&bench), ips(&[]), "its leaving time is known: it is not tolerated again");
}

#[test]
fn d4_a_member_that_comes_back_counts_again_when_it_leaves_again() {
    let mut bench = settled(&[1, 2]);
    bench.service(fact(1, "web", part(&[1], &[])));
    bench.pass(20_000);
    bench.service(fact(1, "web", part(&[1], &[2])));
    bench.pass(60_000);
    assert_eq!(tolerated(&bench), ips(&[2]));
    bench.service(fact(1, "web", part(&[1], &[])));
    bench.pass(29_000);
    assert_eq!(tolerated(&bench), ips(&[2]));
    bench.pass(1_000);
    assert_eq!(tolerated(&bench), ips(&[]));
}

#[test]
fn d4_a_pool_with_a_rule_without_a_probe_has_no_removal_delay() {
    let mut bench = settled(&[1, 2]);
    let mut unprobed = rule(1, "shop-web");
    unprobed.probed = false;
    bench.observe(&balancer("lb", vec![pool("lb", "shop-web", &[1, 2])], vec![unprobed]));
    bench.service(fact(1, "web", part(&[1], &[])));
    assert_eq!(bench.web(), (ips(&[1]), ips(&[])));
}

#[test]
fn d4_an_unknown_member_stays_for_the_delay_since_it_was_first_seen() {
    let mut bench = settled(&[1]);
    bench.observe(&web(&[1, 9]));
    bench.pass(20_000);
    bench.observe(&web(&[1, 9]));
    assert_eq!(tolerated(&bench), ips(&[9]));
    bench.pass(10_000);
    assert_eq!(tolerated(&bench), ips(&[]));
    bench.observe(&web(&[1, 9]));
    bench.pass(10_000);
    assert_eq!(tolerated(&bench), ips(&[]), "while it stays there it is not seen for the first time again");
}

#[test]
fn d4_what_leaves_a_shared_pool_stays_with_the_service_it_left() {
    let mut bench = settled(&[1]);
    bench.service(fact(2, "web", part(&[2, 3], &[])));
    let rules = vec![rule(1, "shop-web"), rule(2, "shop-web")];
    bench.observe(&balancer("lb", vec![pool("lb", "shop-web", &[1, 9])], rules));
    bench.service(fact(2, "web", part(&[2], &[])));
    let said = bench.assignment("lb", "shop-web");
    assert_eq!(said.services[&uid(1)].tolerated, ips(&[9]));
    assert_eq!(said.services[&uid(2)].tolerated, ips(&[3, 9]));
}

#[test]
fn g2_the_last_members_stay_until_emptiness_has_lasted() {
    let mut bench = settled(&[1, 2]);
    bench.service(fact(1, "web", part(&[], &[])));
    let held = bench.assignment("lb", "shop-web").held.clone().expect("held");
    assert_eq!(held.reason, HeldReason::EmptyConfirm);
    assert_eq!(held.waits, Waits::Time(held.since.plus(Duration::from_secs(60))));
    assert_eq!(held.members, ips(&[1, 2]));
    let said = bench.take();
    let held_pools = |pools| Metric::Held { reason: HeldReason::EmptyConfirm, pools };
    assert!(said.iter().any(|out| matches!(out, Out::Metric(sample) if *sample == held_pools(1))));
    bench.outputs = said;
    assert!(matches!(&bench.reports()[..], [EventKind::Held { members: 2, .. }]));
    bench.pass(40_000);
    bench.observe(&web(&[1, 2]));
    bench.pass(19_999);
    assert_eq!(bench.web(), (ips(&[]), ips(&[1, 2])));
    bench.pass(1);
    assert_eq!(bench.web(), (ips(&[]), ips(&[])));
    assert!(bench.assignment("lb", "shop-web").held.is_none());
    assert!(bench.samples().contains(&held_pools(0)));
    bench.observe(&web(&[1, 2]));
    assert_eq!(bench.web(), (ips(&[]), ips(&[])), "what was confirmed stays so");
}

#[test]
fn g2_emptiness_that_was_interrupted_starts_again() {
    let mut bench = settled(&[1]);
    bench.service(fact(1, "web", part(&[], &[])));
    bench.pass(50_000);
    bench.service(fact(1, "web", part(&[2], &[])));
    assert!(bench.assignment("lb", "shop-web").held.is_none());
    assert_eq!(bench.web(), (ips(&[2]), ips(&[])), "the delay of what left has passed meanwhile");
    bench.pass(1_000);
    bench.service(fact(1, "web", part(&[], &[])));
    bench.pass(59_000);
    assert_eq!(tolerated(&bench), ips(&[2]));
    bench.pass(1_000);
    assert_eq!(tolerated(&bench), ips(&[]));
}

#[test]
fn g2_members_that_were_only_seen_are_held_too() {
    let mut bench = Bench::running();
    bench.observe(&web(&[1]));
    bench.service(fact(1, "web", part(&[], &[])));
    bench.pass(59_000);
    assert_eq!(tolerated(&bench), ips(&[1]));
    bench.pass(1_000);
    assert_eq!(tolerated(&bench), ips(&[]));
}

#[test]
fn g2_members_seen_after_it_became_empty_are_held_for_the_rest() {
    let mut bench = Bench::running();
    bench.observe(&web(&[]));
    bench.service(fact(1, "web", part(&[], &[])));
    bench.pass(10_000);
    bench.observe(&web(&[9]));
    assert!(bench.assignment("lb", "shop-web").held.is_some());
    bench.pass(49_999);
    assert_eq!(tolerated(&bench), ips(&[9]));
    bench.pass(1);
    assert_eq!(tolerated(&bench), ips(&[]));
}

#[test]
fn d6_what_is_held_for_one_service_stays_required_for_the_other() {
    let mut bench = settled(&[1]);
    bench.service(fact(2, "web", part(&[2], &[])));
    let rules = vec![rule(1, "shop-web"), rule(2, "shop-web")];
    bench.observe(&balancer("lb", vec![pool("lb", "shop-web", &[1, 2])], rules));
    bench.service(fact(1, "web", Part { unusable: true, ..Part::default() }));
    bench.pass(600_000);
    assert_eq!(bench.web(), (ips(&[2]), ips(&[1])));
    let held = bench.assignment("lb", "shop-web").held.clone().expect("held");
    assert_eq!(held.members, ips(&[1]));
}

#[test]
fn g2_a_pool_that_never_had_a_member_is_not_held() {
    let mut bench = Bench::running();
    bench.observe(&web(&[]));
    bench.service(fact(1, "web", part(&[], &[])));
    assert!(bench.assignment("lb", "shop-web").held.is_none());
    assert!(bench.reports().is_empty());
}

#[test]
fn g2_a_deleted_service_is_not_held() {
    let mut bench = settled(&[1]);
    bench.send(In::Service(uid(1), None));
    let said = bench.assignment("lb", "shop-web");
    assert!(said.services.is_empty() && said.held.is_none());
    assert!(bench.machine.deadline().is_none());
}

#[test]
fn d6_a_part_without_a_usable_node_holds_what_the_pool_had() {
    let mut bench = settled(&[1, 2]);
    let unusable = || Part { unusable: true, ..Part::default() };
    bench.service(fact(1, "web", unusable()));
    bench.pass(3_600_000);
    bench.observe(&web(&[1, 2]));
    let held = bench.assignment("lb", "shop-web").held.clone().expect("held");
    assert_eq!((held.reason, held.waits), (HeldReason::NoUsableNode, Waits::Facts));
    assert_eq!(bench.web(), (ips(&[]), ips(&[1, 2])));
    let said = bench.take();
    let held_pools = |pools| Metric::Held { reason: HeldReason::NoUsableNode, pools };
    assert!(said.iter().any(|out| matches!(out, Out::Metric(sample) if *sample == held_pools(1))));
    bench.outputs = said;
    assert_eq!(bench.reports().len(), 1);
    bench.service(fact(1, "web", part(&[3], &[])));
    assert_eq!(bench.web(), (ips(&[3]), ips(&[])));
    assert!(bench.samples().contains(&held_pools(0)));
}

#[test]
fn d6_emptiness_after_an_unusable_part_has_its_own_confirmation() {
    let mut bench = settled(&[1]);
    bench.service(fact(1, "web", Part { unusable: true, ..Part::default() }));
    bench.pass(600_000);
    bench.service(fact(1, "web", part(&[], &[])));
    bench.pass(59_000);
    assert_eq!(tolerated(&bench), ips(&[1]));
    bench.pass(1_000);
    assert_eq!(tolerated(&bench), ips(&[]));
}

#[test]
fn g2_members_stay_while_nothing_can_take_their_place() {
    let mut bench = settled(&[1]);
    bench.observe(&web(&[1]));
    bench.pass(60_000);
    bench.observe(&web(&[1]));
    // The pod has moved to another node and does not count there: that node may stay in the pool, and is not added.
    bench.service(fact(1, "web", part(&[], &[2])));
    bench.pass(600_000);
    bench.observe(&web(&[1]));
    let held = bench.assignment("lb", "shop-web").held.clone().expect("held");
    assert_eq!((held.reason, held.waits, held.members), (HeldReason::LastMember, Waits::Facts, ips(&[1])));
    assert_eq!(bench.web(), (ips(&[]), ips(&[1, 2])));
    bench.service(fact(1, "web", part(&[2], &[])));
    assert!(bench.assignment("lb", "shop-web").held.is_none(), "a member comes in its place");
    bench.pass(30_000);
    assert_eq!(bench.web(), (ips(&[2]), ips(&[])));
}

/// A running Directory with its guards on and `guards.emptyConfirm: 0s`, whose pool holds member 1.
fn unconfirmed() -> Bench {
    unconfirmed_after(Duration::ZERO)
}

/// The same, with this removal delay.
fn unconfirmed_after(removal_delay: Duration) -> Bench {
    let mut bench = Bench::with(Params { removal_delay, empty_confirm: Duration::ZERO, ..params() });
    bench.send(In::ListsSynced);
    bench.send(In::DiscoverySynced);
    bench.service(fact(1, "web", part(&[1], &[])));
    bench.observe(&web(&[1]));
    bench
}

/// Returns how many members go from a pool that was observed with member 1.
fn to_go(bench: &Bench) -> usize {
    bench.assignment("lb", "shop-web").level.surplus(&ips(&[1])).count()
}

#[test]
fn g2_without_confirmation_the_last_member_goes_with_an_empty_slice() {
    for provenance in [Provenance::Watch, Provenance::Reconnect] {
        let mut bench = unconfirmed();
        bench.take();
        bench.service(ServiceFact { provenance, ..fact(1, "web", part(&[], &[])) });
        let said = bench.assignment("lb", "shop-web");
        assert!(said.held.is_none() && said.level.keeps == Keeps::Nothing, "{provenance:?}");
        assert_eq!(to_go(&bench), 1);
        assert!(bench.reports().is_empty(), "nothing is held back");
    }
    // An earlier reason to keep the last member no longer applies.
    for before in [part(&[], &[2]), Part { unusable: true, ..Part::default() }] {
        let mut bench = unconfirmed();
        bench.observe(&web(&[1]));
        bench.pass(1_000);
        bench.observe(&web(&[1]));
        bench.service(fact(1, "web", before));
        assert!(bench.assignment("lb", "shop-web").held.is_some(), "the slice is not empty");
        bench.service(fact(1, "web", part(&[], &[])));
        assert_eq!((bench.assignment("lb", "shop-web").held.clone(), to_go(&bench)), (None, 1));
    }
}

#[test]
fn g2_emptiness_of_a_list_or_of_lost_slices_waits_for_a_second_read() {
    let empty = || fact(1, "web", part(&[], &[]));
    for doubtful in [
        ServiceFact { provenance: Provenance::Relist, ..empty() },
        ServiceFact { provenance: Provenance::FirstList, ..empty() },
        ServiceFact { slices: 0, ..empty() },
    ] {
        let mut bench = unconfirmed();
        bench.service(doubtful);
        let held = bench.assignment("lb", "shop-web").held.clone().expect("held");
        assert_eq!((held.reason, held.members), (HeldReason::EmptyConfirm, ips(&[1])));
        assert_eq!(held.waits, Waits::SecondRead(held.since.plus(Duration::from_secs(30))));
        bench.pass(1_000);
        // A label of the Service has changed, which does not concern its slices.
        bench.service(ServiceFact { exposure: 7, ..empty() });
        bench.pass(28_999);
        assert_eq!((to_go(&bench), bench.reread()), (0, 0), "not before");
        bench.pass(1);
        assert_eq!((to_go(&bench), bench.reread()), (0, 1), "the doubt stays until it is read again");
        assert_eq!((bench.assignment("lb", "shop-web").held.clone(), to_go(&bench)), (None, 1));
        bench.pass(600_000);
        assert_eq!(bench.reread(), 0, "nothing is in doubt");
    }
}

#[test]
fn x5_what_is_dropped_by_configuration_needs_no_confirmation() {
    for doubtful in [
        ServiceFact { slices: 0, ..fact(1, "web", part(&[], &[])) },
        ServiceFact { provenance: Provenance::Relist, ..fact(1, "web", part(&[], &[])) },
    ] {
        let mut bench = unconfirmed();
        bench.service(doubtful.clone());
        assert_eq!(to_go(&bench), 0, "a broken source may be why");
        let mut bench = unconfirmed();
        bench.service(dropped(doubtful));
        let said = bench.assignment("lb", "shop-web");
        assert_eq!((said.held.clone(), to_go(&bench)), (None, 1));
    }
    let mut bench = unconfirmed_after(Duration::from_secs(30));
    bench.service(dropped(ServiceFact { slices: 0, ..fact(1, "web", part(&[], &[])) }));
    bench.pass(29_999);
    assert_eq!(to_go(&bench), 0, "connections may end");
    bench.pass(1);
    assert_eq!((bench.assignment("lb", "shop-web").held.clone(), to_go(&bench)), (None, 1));
    // What another Service of the pool asks for stays.
    let mut bench = unconfirmed();
    bench.service(fact(2, "api", part(&[2], &[])));
    bench.service(dropped(fact(1, "web", part(&[], &[]))));
    assert!(bench.assignment("lb", "shop-web").held.is_none());
}

#[test]
fn g1_doubt_about_one_service_lasts_until_the_others_release_too() {
    let silent = |n, name| fact(n, name, part(&[], &[]));
    // Facts of the first Service before the second one releases: none, a changed label, and an endpoint that came and
    // went.
    for (said, held) in [
        (vec![], true),
        (vec![ServiceFact { exposure: 7, ..silent(1, "web") }], true),
        (vec![fact(1, "web", part(&[1], &[])), silent(1, "web")], false),
    ] {
        let mut bench = unconfirmed();
        bench.service(fact(2, "api", part(&[2], &[])));
        let rules = vec![rule(1, "shop-web"), rule(2, "shop-web")];
        bench.observe(&balancer("lb", vec![pool("lb", "shop-web", &[1, 2])], rules));
        bench.service(ServiceFact { provenance: Provenance::Relist, ..silent(1, "web") });
        bench.pass(9_000);
        said.into_iter().for_each(|fact| bench.service(fact));
        bench.pass(1_000);
        bench.service(silent(2, "api"));
        let waits = bench.assignment("lb", "shop-web").held.clone().map(|held| held.waits);
        let since_the_relist = held.then(|| Waits::SecondRead(bench.now.plus(Duration::from_secs(20))));
        assert_eq!(waits, since_the_relist);
        bench.pass(19_999);
        assert_eq!((bench.assignment("lb", "shop-web").held.is_some(), bench.reread()), (held, 0));
        bench.pass(1);
        assert_eq!(bench.reread(), usize::from(held));
        assert!(bench.assignment("lb", "shop-web").held.is_none());
        assert_eq!(bench.assignment("lb", "shop-web").level.surplus(&ips(&[1, 2])).count(), 2);
    }
}

#[test]
fn g1_a_list_that_empties_an_unusable_part_is_in_doubt_from_then_on() {
    let mut bench = unconfirmed();
    bench.service(fact(1, "web", Part { unusable: true, ..Part::default() }));
    bench.pass(40_000);
    bench.service(ServiceFact { provenance: Provenance::Relist, ..fact(1, "web", part(&[], &[])) });
    let held = bench.assignment("lb", "shop-web").held.clone().expect("held");
    assert_eq!(held.reason, HeldReason::EmptyConfirm);
    assert_eq!(held.waits, Waits::SecondRead(bench.now.plus(Duration::from_secs(30))));
}

#[test]
fn g1_a_vanished_service_that_asked_for_nothing_is_no_doubt() {
    let mut bench = unconfirmed();
    bench.service(fact(2, "api", part(&[2], &[])));
    let rules = vec![rule(1, "shop-web"), rule(2, "shop-web")];
    bench.observe(&balancer("lb", vec![pool("lb", "shop-web", &[1, 2])], rules));
    bench.service(fact(1, "web", part(&[], &[])));
    bench.pass(1_000);
    bench.service(ServiceFact { slices: 0, ..fact(1, "web", part(&[], &[])) });
    bench.pass(1_000);
    bench.service(fact(2, "api", part(&[], &[])));
    assert!(bench.assignment("lb", "shop-web").held.is_none());
}

#[test]
fn g2_doubt_prolongs_no_time_of_confirmation_that_is_longer() {
    let mut bench = settled(&[1]);
    bench.service(ServiceFact { provenance: Provenance::Relist, ..fact(1, "web", part(&[], &[])) });
    bench.pass(30_000);
    assert_eq!(bench.reread(), 1);
    bench.pass(29_999);
    assert_eq!(tolerated(&bench), ips(&[1]));
    bench.pass(1);
    assert_eq!(tolerated(&bench), ips(&[]));
}

#[test]
fn g2_without_slices_at_first_members_stay_until_time_and_a_second_read() {
    // When the second read requested after 30 s arrives, in seconds, and when the members go.
    for (read, go) in [(30, 60), (59, 60), (60, 60), (100, 100), (3_600, 3_600)] {
        let mut bench = Bench::waiting();
        let none = ServiceFact { slices: 0, endpoints: 0, ..fact(1, "web", part(&[], &[])) };
        bench.service(ServiceFact { provenance: Provenance::FirstList, ..none });
        bench.observe(&web(&[1, 2]));
        bench.send(In::ListsSynced);
        bench.send(In::DiscoverySynced);
        let goes = |bench: &Bench| bench.assignment("lb", "shop-web").level.surplus(&ips(&[1, 2])).count();
        let held = bench.assignment("lb", "shop-web").held.clone().expect("held");
        assert_eq!((held.reason, held.members, goes(&bench)), (HeldReason::EmptyConfirm, ips(&[1, 2]), 0));
        bench.pass(29_999);
        assert_eq!(bench.reread(), 0, "a read that soon confirms nothing");
        bench.pass(1);
        for second in 30..go {
            if second == read {
                assert_eq!(bench.reread(), 1);
            }
            bench.observe(&web(&[1, 2]));
            assert_eq!(goes(&bench), 0, "{second} s, read after {read} s");
            bench.pass(999);
            assert_eq!(goes(&bench), 0, "{second} s, read after {read} s");
            bench.pass(1);
        }
        if read == go {
            assert_eq!((goes(&bench), bench.reread()), (0, 1), "time alone does not release them");
        }
        assert_eq!((bench.assignment("lb", "shop-web").held.clone(), goes(&bench)), (None, 2));
    }
}

/// A running Directory of `compatibility: upstream`, with this time of confirmation, whose pool holds member 1.
fn unguarded(empty_confirm: Duration) -> Bench {
    let mut bench = Bench::with(Params {
        removal_delay: Duration::ZERO,
        empty_confirm,
        guards: GuardMode::Off,
        ..params()
    });
    bench.send(In::ListsSynced);
    bench.send(In::DiscoverySynced);
    bench.service(fact(1, "web", part(&[1], &[])));
    bench.observe(&web(&[1]));
    bench
}

#[test]
fn c2_without_guards_the_last_member_goes_when_nothing_asks_for_it() {
    let mut bench = unguarded(Duration::ZERO);
    bench.take();
    assert!(bench.assignment("lb", "shop-web").level.keeps == Keeps::Nothing, "a foreign member goes too");
    // Node 2 may stay in the pool and is not added: no Service asks for member 1 any more.
    bench.service(fact(1, "web", part(&[], &[2])));
    let said = bench.assignment("lb", "shop-web");
    assert!(said.held.is_none() && said.level.keeps == Keeps::Nothing);
    assert_eq!(bench.web(), (ips(&[]), ips(&[2])));
    let observed = ips(&[1]);
    assert_eq!(said.level.surplus(&observed).count(), 1, "it is removed");
    bench.service(ServiceFact { provenance: Provenance::Relist, ..fact(1, "web", part(&[], &[])) });
    assert!(bench.assignment("lb", "shop-web").held.is_none(), "S0 knows no doubt");
    assert!(bench.reports().is_empty(), "nothing is held back");
}

#[test]
fn c2_without_guards_a_configured_confirmation_and_d6_still_hold() {
    let mut bench = unguarded(Duration::from_secs(10));
    bench.service(fact(1, "web", part(&[], &[])));
    let said = bench.assignment("lb", "shop-web");
    assert_eq!(said.held.as_ref().map(|held| held.reason), Some(HeldReason::EmptyConfirm));
    assert!(said.level.keeps == Keeps::Last);
    bench.pass(10_000);
    assert_eq!(bench.web(), (ips(&[]), ips(&[])));
    let mut bench = unguarded(Duration::ZERO);
    bench.service(fact(1, "web", Part { unusable: true, ..Part::default() }));
    bench.pass(600_000);
    let said = bench.assignment("lb", "shop-web");
    assert_eq!(said.held.as_ref().map(|held| held.reason), Some(HeldReason::NoUsableNode));
}

#[test]
fn g2_an_address_that_may_have_been_written_counts_as_in_the_pool() {
    let mut bench = settled(&[1]);
    bench.observe(&web(&[9]));
    bench.service(fact(1, "web", part(&[], &[1])));
    assert!(bench.assignment("lb", "shop-web").held.is_none(), "the pool was seen before 1 was written");
    bench.pass(1_000);
    bench.observe(&web(&[9]));
    let held = bench.assignment("lb", "shop-web").held.clone().expect("held");
    assert_eq!((held.reason, held.members), (HeldReason::LastMember, ips(&[9])));
}

#[test]
fn d6_what_is_held_for_want_of_knowledge_follows_what_is_seen_in_the_pool() {
    let mut bench = settled(&[1, 2]);
    bench.observe(&web(&[1, 2]));
    bench.service(fact(1, "web", Part { unusable: true, ..part(&[], &[]) }));
    bench.pass(1_000);
    bench.observe(&web(&[2, 3]));
    let held = bench.assignment("lb", "shop-web").held.clone().expect("held");
    assert_eq!((held.reason, held.members), (HeldReason::NoUsableNode, ips(&[2, 3])));
    bench.service(fact(1, "web", Part { unusable: true, ..part(&[4], &[]) }));
    bench.service(fact(1, "web", Part { unusable: true, ..part(&[], &[]) }));
    let held = bench.assignment("lb", "shop-web").held.clone().expect("held");
    assert_eq!(held.members, ips(&[2, 3, 4]), "4 may have been written since");
}
