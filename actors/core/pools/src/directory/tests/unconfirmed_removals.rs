//! Doubts about removals that a list caused, the fraction of a pool that may be in doubt, and the second read (G1, G3).

use super::*;

/// A pool without a removal delay that holds these members.
fn undelayed(members: &[u8]) -> Bench {
    let mut bench = Bench::with(Params { removal_delay: Duration::ZERO, ..params() });
    bench.send(In::ListsSynced);
    bench.send(In::DiscoverySynced);
    bench.service(fact(1, "web", part(members, &[])));
    bench.observe(&web(members));
    bench
}

fn asks(required: &[u8], provenance: Provenance) -> ServiceFact {
    ServiceFact { provenance, ..fact(1, "web", part(required, &[])) }
}

fn held(bench: &Bench) -> Option<(HeldReason, Waits, BTreeSet<IpAddr>)> {
    let held = bench.assignment("lb", "shop-web").held.clone();
    held.map(|held| (held.reason, held.waits, held.members))
}

fn goes(bench: &Bench, observed: &[u8]) -> BTreeSet<IpAddr> {
    bench.assignment("lb", "shop-web").level.surplus(&ips(observed)).copied().collect()
}

#[test]
fn g3_more_than_the_fraction_of_a_pool_waits_for_a_second_read() {
    for provenance in [Provenance::Relist, Provenance::FirstList] {
        let mut bench = undelayed(&[1, 2, 3, 4]);
        bench.service(asks(&[4, 5], provenance));
        let waits = Waits::SecondRead(bench.now.plus(Duration::from_secs(30)));
        assert_eq!(held(&bench), Some((HeldReason::Fraction, waits, ips(&[1, 2, 3]))));
        assert_eq!(bench.web(), (ips(&[4, 5]), ips(&[1, 2, 3])), "additions pass");
        bench.pass(29_999);
        assert_eq!(bench.reread(), 0);
        bench.pass(1);
        assert_eq!((bench.reread(), held(&bench)), (1, None));
        assert_eq!(goes(&bench, &[1, 2, 3, 4]), ips(&[1, 2, 3]));
    }
}

#[test]
fn g3_what_a_watch_releases_and_what_is_not_more_than_the_fraction_goes() {
    for provenance in [Provenance::Watch, Provenance::Reconnect] {
        let mut bench = undelayed(&[1, 2, 3, 4]);
        bench.service(asks(&[4], provenance));
        assert_eq!((held(&bench), goes(&bench, &[1, 2, 3, 4])), (None, ips(&[1, 2, 3])));
    }
    let mut bench = undelayed(&[1, 2, 3, 4]);
    bench.service(asks(&[3, 4], Provenance::Relist));
    assert_eq!((held(&bench), goes(&bench, &[1, 2, 3, 4])), (None, ips(&[1, 2])), "a half");
    let mut bench = undelayed(&[1, 2]);
    bench.service(asks(&[5], Provenance::Relist));
    assert_eq!((held(&bench), goes(&bench, &[1, 2])), (None, ips(&[1, 2])), "a pool of two");
}

#[test]
fn g3_what_our_own_write_has_removed_is_no_member() {
    let mut bench = undelayed(&[1, 2, 3]);
    bench.service(asks(&[1, 2], Provenance::Relist));
    assert_eq!((held(&bench), goes(&bench, &[1, 2, 3])), (None, ips(&[3])), "one of three");
    bench.pass(3_000);
    bench.attempt_left("lb", "shop-web", &[1, 2]);
    bench.service(asks(&[1], Provenance::Relist));
    assert_eq!((held(&bench), goes(&bench, &[1, 2])), (None, ips(&[2])), "one of two");
    // Whatever a read shows that began before the write ended.
    let mut bench = undelayed(&[1, 2, 3]);
    bench.service(asks(&[1, 2], Provenance::Relist));
    let began = bench.now;
    bench.pass(3_000);
    bench.attempt_left("lb", "shop-web", &[1, 2]);
    bench.observe_at(began.plus(Duration::from_secs(2)), &web(&[1, 2, 3]));
    bench.service(asks(&[1], Provenance::Relist));
    assert_eq!((held(&bench), goes(&bench, &[1, 2])), (None, ips(&[2])));
}

#[test]
fn g3_a_read_that_begins_after_a_write_says_what_is_there() {
    let mut bench = undelayed(&[1, 2, 3, 4]);
    bench.service(asks(&[1, 2], Provenance::Watch));
    bench.pass(3_000);
    bench.attempt_left("lb", "shop-web", &[1, 2]);
    bench.service(asks(&[1, 2, 3, 4], Provenance::Watch));
    bench.pass(1_000);
    bench.observe(&web(&[1, 2, 3, 4]));
    bench.service(asks(&[1], Provenance::Relist));
    assert_eq!(held(&bench).expect("held").2, ips(&[2, 3, 4]));
    // An older observation of the pool changes nothing.
    bench.attempt_left_at(Now::from_millis(2_000), "lb", "shop-web", &[1, 2]);
    assert_eq!(held(&bench).expect("held").2, ips(&[2, 3, 4]));
}

#[test]
fn g3_only_what_is_in_doubt_counts_and_stays() {
    let mut bench = undelayed(&[1, 2, 3, 4, 5]);
    bench.service(asks(&[2, 3, 4, 5], Provenance::Watch));
    assert_eq!(goes(&bench, &[1, 2, 3, 4, 5]), ips(&[1]));
    bench.service(asks(&[5], Provenance::Relist));
    assert_eq!(goes(&bench, &[1, 2, 3, 4, 5]), ips(&[1]), "three of the four that would stay are in doubt");
    bench.service(asks(&[], Provenance::Watch));
    assert_eq!(held(&bench).map(|held| held.0), Some(HeldReason::EmptyConfirm), "the last member is G2's");
}

#[test]
fn g1_doubt_lasts_until_the_address_is_asked_for_again() {
    let mut bench = undelayed(&[1, 2, 3, 4]);
    bench.service(asks(&[4], Provenance::Relist));
    bench.pass(10_000);
    bench.service(ServiceFact { exposure: 7, ..asks(&[4], Provenance::Watch) });
    bench.observe(&web(&[1, 2, 3, 4]));
    assert_eq!(held(&bench).expect("held").2, ips(&[1, 2, 3]), "a label says nothing of its endpoints");
    bench.service(asks(&[3, 4], Provenance::Watch));
    assert_eq!(held(&bench).expect("held").2, ips(&[1, 2]), "once too many, all wait that are in doubt");
    bench.service(asks(&[4], Provenance::Watch));
    assert_eq!(held(&bench).expect("held").2, ips(&[1, 2]));
    assert_eq!(goes(&bench, &[1, 2, 3, 4]), ips(&[3]), "a watch has released it");
}

#[test]
fn g1_a_second_read_resolves_only_what_was_in_doubt_for_30_s() {
    let mut bench = undelayed(&[1, 2, 3, 4, 5, 6, 7]);
    bench.service(asks(&[5, 6, 7], Provenance::Relist));
    bench.pass(20_000);
    bench.service(asks(&[7], Provenance::Relist));
    bench.pass(10_000);
    assert_eq!((bench.reread(), held(&bench).expect("held").2), (1, ips(&[5, 6])));
    bench.pass(29_999);
    assert_eq!(bench.reread(), 0, "not twice within 30 s, though the doubt is older than that");
    bench.pass(1);
    assert_eq!((bench.reread(), held(&bench)), (1, None));
    bench.pass(600_000);
    assert_eq!(bench.reread(), 0, "never when nothing is held back");
}

#[test]
fn g2_a_list_that_empties_a_pool_is_read_again_whatever_was_there() {
    let mut bench = undelayed(&[1]);
    bench.service(ServiceFact { provenance: Provenance::Relist, ..fact(1, "web", part(&[], &[3])) });
    bench.pass(20_000);
    bench.service(asks(&[], Provenance::Relist));
    bench.pass(10_000);
    assert_eq!(bench.reread(), 1, "for what the first list released");
    bench.observe(&web(&[1]));
    bench.pass(19_999);
    assert_eq!(bench.reread(), 0);
    bench.pass(40_000);
    assert_eq!(held(&bench).expect("held").0, HeldReason::EmptyConfirm, "the second has not been read again");
    assert_eq!((bench.reread(), held(&bench)), (1, None));
    assert_eq!(goes(&bench, &[1]), ips(&[1]));
}

#[test]
fn g1_one_read_is_under_way_at_a_time_and_only_its_own_end_counts() {
    let mut bench = undelayed(&[1, 2, 3]);
    bench.service(asks(&[3], Provenance::Relist));
    bench.pass(600_000);
    let asked = bench.take().into_iter().filter(|said| matches!(said, Out::Reread(_))).count();
    assert_eq!(asked, 1, "lists that do not come are not asked for again");
    bench.send(In::Reread(ReadId(7)));
    assert!(held(&bench).is_some() && bench.samples().contains(&Metric::UnmatchedAnswer));
    bench.send(In::Reread(ReadId(1)));
    assert_eq!(held(&bench), None);
}

#[test]
fn g1_what_the_first_read_finds_is_as_doubtful_as_the_facts_in_force() {
    for (provenance, reason) in
        [(Provenance::FirstList, Some(HeldReason::Fraction)), (Provenance::Watch, None)]
    {
        let mut bench = Bench::with(Params { removal_delay: Duration::ZERO, ..params() });
        bench.send(In::ListsSynced);
        bench.send(In::DiscoverySynced);
        bench.service(asks(&[1], provenance));
        bench.observe(&web(&[1, 2, 3]));
        assert_eq!(held(&bench).map(|held| held.0), reason);
        bench.observe(&web(&[1, 2, 3, 8, 9]));
        let found_later = goes(&bench, &[1, 2, 3, 8, 9]).is_superset(&ips(&[8, 9]));
        assert!(found_later, "what another client adds later is not in doubt");
    }
}

#[test]
fn g3_what_the_removal_delay_keeps_is_evaluated_from_its_beginning() {
    let mut bench = settled(&[1, 2, 3]);
    bench.service(asks(&[4, 5, 6], Provenance::Relist));
    assert_eq!((held(&bench), bench.web().1), (None, ips(&[1, 2, 3])));
    bench.pass(29_999);
    assert_eq!((held(&bench), bench.reread()), (None, 0));
    bench.pass(1);
    assert!(held(&bench).is_some(), "though three others are members by now");
    assert_eq!((bench.reread(), held(&bench)), (1, None), "at once");
}

#[test]
fn g1_the_confirmation_pauses_while_nothing_is_received_and_continues() {
    let unheard = || ServiceFact {
        endpoints: 0,
        slices: 0,
        ..fact(1, "web", Part { unusable: true, ..Part::default() })
    };
    let empty = |provenance| ServiceFact { endpoints: 0, slices: 0, ..asks(&[], provenance) };
    let mut bench = settled(&[1]);
    bench.service(empty(Provenance::Relist));
    bench.pass(30_000);
    // A second read breaks the watch for as long as it takes.
    bench.service(unheard());
    assert_eq!(held(&bench).map(|held| (held.0, held.1)), Some((HeldReason::EmptyConfirm, Waits::Facts)));
    bench.pass(5_000);
    bench.service(empty(Provenance::Watch));
    assert_eq!(bench.reread(), 1);
    assert_eq!(held(&bench).map(|held| held.1), Some(Waits::Time(bench.now.plus(Duration::from_secs(30)))));
    bench.pass(30_000);
    assert_eq!((held(&bench), bench.web().1), (None, ips(&[])));
    bench.service(unheard());
    assert_eq!(held(&bench), None, "what is confirmed stays so");
}

#[test]
fn g1_what_a_service_of_a_shared_pool_leaves_with_its_rules_is_no_doubt() {
    let shared = |rules| balancer("lb", vec![pool("lb", "shop-web", &[1, 2, 3, 4])], rules);
    let mut bench = undelayed(&[1]);
    bench.service(fact(2, "api", part(&[2, 3, 4], &[])));
    bench.observe(&shared(vec![rule(1, "shop-web"), rule(2, "shop-web")]));
    bench.send(In::Service(uid(2), None));
    assert!(
        bench.assignment("lb", "shop-web").services.is_empty(),
        "a rule without an owner: it is not written (D2)"
    );
    bench.observe(&shared(vec![rule(1, "shop-web")]));
    assert_eq!((held(&bench), goes(&bench, &[1, 2, 3, 4])), (None, ips(&[2, 3, 4])));
}

#[test]
fn g5_observing_guards_show_what_they_would_hold_and_release_it() {
    let observing = Params { removal_delay: Duration::ZERO, guards: GuardMode::Observe, ..params() };
    let mut bench = Bench::with(observing);
    bench.send(In::ListsSynced);
    bench.send(In::DiscoverySynced);
    bench.service(fact(1, "web", part(&[1, 2, 3], &[])));
    bench.observe(&web(&[1, 2, 3]));
    bench.take();
    bench.service(asks(&[3], Provenance::Relist));
    let said = bench.assignment("lb", "shop-web");
    assert_eq!((said.held.clone(), goes(&bench, &[1, 2, 3])), (None, ips(&[1, 2])));
    assert_eq!(said.would_hold.as_ref().map(|held| held.reason), Some(HeldReason::Fraction));
    let said = bench.take();
    let counted = Metric::WouldHold { reason: HeldReason::Fraction, pools: 1 };
    assert!(said.iter().any(|out| matches!(out, Out::Metric(sample) if *sample == counted)));
    bench.outputs = said;
    assert!(matches!(&bench.reports()[..], [EventKind::Held { members: 2, enforced: false, .. }]));
    bench.service(asks(&[], Provenance::Watch));
    assert_eq!(goes(&bench, &[3]), ips(&[3]), "the last member too");
    bench.service(fact(1, "web", Part { unusable: true, ..Part::default() }));
    assert_eq!(held(&bench).map(|held| held.0), Some(HeldReason::NoUsableNode), "what is not known is held");
    assert_eq!(goes(&bench, &[3]), ips(&[]));
}
