//! Tests of doubts about removals that a list caused, the fraction of a pool that may be in doubt, and the second
//! read (G1, G3).

use super::*;

/// Creates a pool without a removal delay that holds these members.
fn undelayed(members: &[u8]) -> Fixture {
    let mut fixture = Fixture::with(Params { removal_delay: Duration::ZERO, ..params() });
    fixture.send(In::ListsSynced);
    fixture.send(In::DiscoverySynced);
    fixture.service(fact(1, "web", part(members, &[])));
    fixture.observe(&web(members));
    fixture
}

fn asks(required: &[u8], provenance: Provenance) -> ServiceFact {
    ServiceFact { provenance, ..fact(1, "web", part(required, &[])) }
}

fn held(fixture: &Fixture) -> Option<(HeldReason, Waits, BTreeSet<IpAddr>)> {
    let held = fixture.assignment("lb", "shop-web").held.clone();
    held.map(|held| (held.reason, held.waits, held.members))
}

fn goes(fixture: &Fixture, observed: &[u8]) -> BTreeSet<IpAddr> {
    fixture.assignment("lb", "shop-web").level.surplus(&ips(observed)).copied().collect()
}

#[test]
fn g3_more_than_the_fraction_of_a_pool_waits_for_a_second_read() {
    for provenance in [Provenance::Relist, Provenance::FirstList] {
        let mut fixture = undelayed(&[1, 2, 3, 4]);
        fixture.service(asks(&[4, 5], provenance));
        let waits = Waits::SecondRead(fixture.now.plus(Duration::from_secs(30)));
        assert_eq!(held(&fixture), Some((HeldReason::Fraction, waits, ips(&[1, 2, 3]))));
        assert_eq!(fixture.web(), (ips(&[4, 5]), ips(&[1, 2, 3])), "additions pass");
        fixture.pass(29_999);
        assert_eq!(fixture.reread(), 0);
        fixture.pass(1);
        assert_eq!((fixture.reread(), held(&fixture)), (1, None));
        assert_eq!(goes(&fixture, &[1, 2, 3, 4]), ips(&[1, 2, 3]));
    }
}

#[test]
fn g3_removals_by_a_watch_or_up_to_the_fraction_are_not_held() {
    for provenance in [Provenance::Watch, Provenance::Reconnect] {
        let mut fixture = undelayed(&[1, 2, 3, 4]);
        fixture.service(asks(&[4], provenance));
        assert_eq!((held(&fixture), goes(&fixture, &[1, 2, 3, 4])), (None, ips(&[1, 2, 3])));
    }
    let mut fixture = undelayed(&[1, 2, 3, 4]);
    fixture.service(asks(&[3, 4], Provenance::Relist));
    assert_eq!((held(&fixture), goes(&fixture, &[1, 2, 3, 4])), (None, ips(&[1, 2])), "a half");
    let mut fixture = undelayed(&[1, 2]);
    fixture.service(asks(&[5], Provenance::Relist));
    assert_eq!((held(&fixture), goes(&fixture, &[1, 2])), (None, ips(&[1, 2])), "a pool of two");
}

#[test]
fn g3_members_that_our_write_removed_do_not_count() {
    let mut fixture = undelayed(&[1, 2, 3]);
    fixture.service(asks(&[1, 2], Provenance::Relist));
    assert_eq!((held(&fixture), goes(&fixture, &[1, 2, 3])), (None, ips(&[3])), "one of three");
    fixture.pass(3_000);
    fixture.attempt_left("lb", "shop-web", &[1, 2]);
    fixture.service(asks(&[1], Provenance::Relist));
    assert_eq!((held(&fixture), goes(&fixture, &[1, 2])), (None, ips(&[2])), "one of two");
    // A read that began before the write ended does not matter.
    let mut fixture = undelayed(&[1, 2, 3]);
    fixture.service(asks(&[1, 2], Provenance::Relist));
    let began = fixture.now;
    fixture.pass(3_000);
    fixture.attempt_left("lb", "shop-web", &[1, 2]);
    fixture.observe_at(began.plus(Duration::from_secs(2)), &web(&[1, 2, 3]));
    fixture.service(asks(&[1], Provenance::Relist));
    assert_eq!((held(&fixture), goes(&fixture, &[1, 2])), (None, ips(&[2])));
}

#[test]
fn g3_a_read_after_a_write_replaces_its_result() {
    let mut fixture = undelayed(&[1, 2, 3, 4]);
    fixture.service(asks(&[1, 2], Provenance::Watch));
    fixture.pass(3_000);
    fixture.attempt_left("lb", "shop-web", &[1, 2]);
    fixture.service(asks(&[1, 2, 3, 4], Provenance::Watch));
    fixture.pass(1_000);
    fixture.observe(&web(&[1, 2, 3, 4]));
    fixture.service(asks(&[1], Provenance::Relist));
    assert_eq!(held(&fixture).expect("held").2, ips(&[2, 3, 4]));
    // An older observation of the pool changes nothing.
    fixture.attempt_left_at(Now::from_millis(2_000), "lb", "shop-web", &[1, 2]);
    assert_eq!(held(&fixture).expect("held").2, ips(&[2, 3, 4]));
}

#[test]
fn g3_only_removals_in_doubt_count_and_are_held() {
    let mut fixture = undelayed(&[1, 2, 3, 4, 5]);
    fixture.service(asks(&[2, 3, 4, 5], Provenance::Watch));
    assert_eq!(goes(&fixture, &[1, 2, 3, 4, 5]), ips(&[1]));
    fixture.service(asks(&[5], Provenance::Relist));
    assert_eq!(goes(&fixture, &[1, 2, 3, 4, 5]), ips(&[1]), "three of the four that would stay are in doubt");
    fixture.service(asks(&[], Provenance::Watch));
    assert_eq!(held(&fixture).map(|held| held.0), Some(HeldReason::EmptyConfirm), "the last member is G2's");
}

#[test]
fn g1_doubt_lasts_until_the_address_is_required_again() {
    let mut fixture = undelayed(&[1, 2, 3, 4]);
    fixture.service(asks(&[4], Provenance::Relist));
    fixture.pass(10_000);
    fixture.service(ServiceFact { exposure: 7, ..asks(&[4], Provenance::Watch) });
    fixture.observe(&web(&[1, 2, 3, 4]));
    assert_eq!(held(&fixture).expect("held").2, ips(&[1, 2, 3]), "a label says nothing of its endpoints");
    fixture.service(asks(&[3, 4], Provenance::Watch));
    assert_eq!(held(&fixture).expect("held").2, ips(&[1, 2]), "once too many, all wait that are in doubt");
    fixture.service(asks(&[4], Provenance::Watch));
    assert_eq!(held(&fixture).expect("held").2, ips(&[1, 2]));
    assert_eq!(goes(&fixture, &[1, 2, 3, 4]), ips(&[3]), "a watch has released it");
}

#[test]
fn g1_a_second_read_resolves_only_doubts_of_30_s_or_more() {
    let mut fixture = undelayed(&[1, 2, 3, 4, 5, 6, 7]);
    fixture.service(asks(&[5, 6, 7], Provenance::Relist));
    fixture.pass(20_000);
    fixture.service(asks(&[7], Provenance::Relist));
    fixture.pass(10_000);
    assert_eq!((fixture.reread(), held(&fixture).expect("held").2), (1, ips(&[5, 6])));
    fixture.pass(29_999);
    assert_eq!(fixture.reread(), 0, "not twice within 30 s, though the doubt is older than that");
    fixture.pass(1);
    assert_eq!((fixture.reread(), held(&fixture)), (1, None));
    fixture.pass(600_000);
    assert_eq!(fixture.reread(), 0, "never when nothing is held back");
}

#[test]
fn g2_a_list_that_empties_a_pool_of_any_size_is_read_again() {
    let mut fixture = undelayed(&[1]);
    fixture.service(ServiceFact { provenance: Provenance::Relist, ..fact(1, "web", part(&[], &[3])) });
    fixture.pass(20_000);
    fixture.service(asks(&[], Provenance::Relist));
    fixture.pass(10_000);
    assert_eq!(fixture.reread(), 1, "for what the first list released");
    fixture.observe(&web(&[1]));
    fixture.pass(19_999);
    assert_eq!(fixture.reread(), 0);
    fixture.pass(40_000);
    assert_eq!(
        held(&fixture).expect("held").0,
        HeldReason::EmptyConfirm,
        "the second has not been read again"
    );
    assert_eq!((fixture.reread(), held(&fixture)), (1, None));
    assert_eq!(goes(&fixture, &[1]), ips(&[1]));
}

#[test]
fn g1_one_second_read_runs_at_a_time_and_only_its_end_counts() {
    let mut fixture = undelayed(&[1, 2, 3]);
    fixture.service(asks(&[3], Provenance::Relist));
    fixture.pass(600_000);
    let asked = fixture.take().into_iter().filter(|said| matches!(said, Out::Reread(_))).count();
    assert_eq!(asked, 1, "lists that do not come are not asked for again");
    fixture.send(In::Reread(ReadId(7)));
    assert!(held(&fixture).is_some() && fixture.samples().contains(&Metric::UnmatchedAnswer));
    fixture.send(In::Reread(ReadId(1)));
    assert_eq!(held(&fixture), None);
}

#[test]
fn g1_members_of_the_first_read_inherit_the_facts_doubt() {
    for (provenance, reason) in
        [(Provenance::FirstList, Some(HeldReason::Fraction)), (Provenance::Watch, None)]
    {
        let mut fixture = Fixture::with(Params { removal_delay: Duration::ZERO, ..params() });
        fixture.send(In::ListsSynced);
        fixture.send(In::DiscoverySynced);
        fixture.service(asks(&[1], provenance));
        fixture.observe(&web(&[1, 2, 3]));
        assert_eq!(held(&fixture).map(|held| held.0), reason);
        fixture.observe(&web(&[1, 2, 3, 8, 9]));
        let found_later = goes(&fixture, &[1, 2, 3, 8, 9]).is_superset(&ips(&[8, 9]));
        assert!(found_later, "what another client adds later is not in doubt");
    }
}

#[test]
fn g3_delayed_removals_are_compared_with_the_former_pool() {
    let mut fixture = settled(&[1, 2, 3]);
    fixture.service(asks(&[4, 5, 6], Provenance::Relist));
    assert_eq!((held(&fixture), fixture.web().1), (None, ips(&[1, 2, 3])));
    fixture.pass(29_999);
    assert_eq!((held(&fixture), fixture.reread()), (None, 0));
    fixture.pass(1);
    assert!(held(&fixture).is_some(), "though three others are members by now");
    assert_eq!((fixture.reread(), held(&fixture)), (1, None), "at once");
}

#[test]
fn g1_the_confirmation_pauses_while_nothing_is_received() {
    let unheard = || ServiceFact {
        endpoints: 0,
        slices: 0,
        ..fact(1, "web", Part { unusable: true, ..Part::default() })
    };
    let empty = |provenance| ServiceFact { endpoints: 0, slices: 0, ..asks(&[], provenance) };
    let mut fixture = settled(&[1]);
    fixture.service(empty(Provenance::Relist));
    fixture.pass(30_000);
    // A second read interrupts the watch while it runs.
    fixture.service(unheard());
    assert_eq!(held(&fixture).map(|held| (held.0, held.1)), Some((HeldReason::EmptyConfirm, Waits::Facts)));
    fixture.pass(5_000);
    fixture.service(empty(Provenance::Watch));
    assert_eq!(fixture.reread(), 1);
    assert_eq!(
        held(&fixture).map(|held| held.1),
        Some(Waits::Time(fixture.now.plus(Duration::from_secs(30))))
    );
    fixture.pass(30_000);
    assert_eq!((held(&fixture), fixture.web().1), (None, ips(&[])));
    fixture.service(unheard());
    assert_eq!(held(&fixture), None, "what is confirmed stays so");
}

#[test]
fn g1_a_deleted_service_of_a_shared_pool_leaves_no_doubt() {
    let shared = |rules| balancer("lb", vec![pool("lb", "shop-web", &[1, 2, 3, 4])], rules);
    let mut fixture = undelayed(&[1]);
    fixture.service(fact(2, "api", part(&[2, 3, 4], &[])));
    fixture.observe(&shared(vec![rule(1, "shop-web"), rule(2, "shop-web")]));
    fixture.send(In::Service(uid(2), None));
    assert!(
        fixture.assignment("lb", "shop-web").services.is_empty(),
        "a rule without an owner: it is not written (D2)"
    );
    fixture.observe(&shared(vec![rule(1, "shop-web")]));
    assert_eq!((held(&fixture), goes(&fixture, &[1, 2, 3, 4])), (None, ips(&[2, 3, 4])));
}

#[test]
fn g5_observing_guards_show_removals_and_do_not_hold_them() {
    let observing = Params { removal_delay: Duration::ZERO, guards: GuardMode::Observe, ..params() };
    let mut fixture = Fixture::with(observing);
    fixture.send(In::ListsSynced);
    fixture.send(In::DiscoverySynced);
    fixture.service(fact(1, "web", part(&[1, 2, 3], &[])));
    fixture.observe(&web(&[1, 2, 3]));
    fixture.take();
    fixture.service(asks(&[3], Provenance::Relist));
    let said = fixture.assignment("lb", "shop-web");
    assert_eq!((said.held.clone(), goes(&fixture, &[1, 2, 3])), (None, ips(&[1, 2])));
    assert_eq!(said.would_hold.as_ref().map(|held| held.reason), Some(HeldReason::Fraction));
    let said = fixture.take();
    let counted = Metric::WouldHold { reason: HeldReason::Fraction, pools: 1 };
    assert!(said.iter().any(|out| matches!(out, Out::Metric(sample) if *sample == counted)));
    fixture.outputs = said;
    assert!(matches!(&fixture.reports()[..], [EventKind::Held { members: 2, enforced: false, .. }]));
    fixture.service(asks(&[], Provenance::Watch));
    assert_eq!(goes(&fixture, &[3]), ips(&[3]), "the last member too");
    fixture.service(fact(1, "web", Part { unusable: true, ..Part::default() }));
    assert_eq!(
        held(&fixture).map(|held| held.0),
        Some(HeldReason::NoUsableNode),
        "what is not known is held"
    );
    assert_eq!(goes(&fixture, &[3]), ips(&[]));
}
