//! Tests of the removals that guards and operators hold in a pool that is filled from a source, and of those that are
//! never held (X3, chapter 5b).

use super::*;

fn pause_of_everything() -> OperatorPolicy {
    OperatorPolicy { everything: Some(Pause::default()), ..OperatorPolicy::default() }
}

#[test]
fn x3_a_dropped_source_empties_its_pool_immediately() {
    let mut fixture = filled(&[1, 2, 3]);
    fixture.source(dropped("no such thing"));
    let said = fixture.edge();
    assert!(said.level.is_empty() && said.level.keeps == SurplusPolicy::RemoveAll && said.held.is_none());
    assert!(said.level.states == Default::default() && !said.services.is_empty());
    assert_eq!(fixture.going(&[1, 2, 3]), 3, "no removal delay, and no confirmation");
    assert_eq!(fixture.machine.deadline(), None);
    fixture.observe(&edge(&[1, 2, 3, 9]));
    assert_eq!(fixture.going(&[1, 2, 3, 9]), 4, "nothing is left in it, whichever client has put it there");
}

#[test]
fn x3_a_dropped_source_keeps_no_former_or_held_members() {
    let mut fixture = filled(&[1, 2]);
    fixture.source(empty());
    assert_eq!(fixture.held(), Some(HeldReason::EmptyConfirm));
    fixture.source(dropped("no such thing"));
    assert_eq!((fixture.held(), fixture.going(&[1, 2])), (None, 2));
    assert_eq!(fixture.machine.deadline(), None);
}

#[test]
fn x3_a_source_that_is_usable_again_is_guarded_again() {
    let mut fixture = filled(&[1, 2]);
    fixture.source(dropped("no such thing"));
    fixture.pass(1_000);
    fixture.source(all(&[2, 3]));
    assert_eq!(
        fixture.members(),
        (ips(&[2, 3]), ips(&[1])),
        "what may still be there leaves as anything else"
    );
    fixture.source(empty());
    assert_eq!(fixture.held(), Some(HeldReason::EmptyConfirm));
}

#[test]
fn x3_g6_add_only_and_pauses_apply_to_a_dropped_source() {
    let mut fixture = filled(&[1, 2]);
    policy(&mut fixture, add_only());
    fixture.source(dropped("no such thing"));
    assert_eq!((fixture.held(), fixture.going(&[1, 2])), (Some(HeldReason::AddOnly), 0));
    policy(&mut fixture, OperatorPolicy::default());
    assert_eq!((fixture.held(), fixture.going(&[1, 2])), (None, 2));
    let of_pool =
        OperatorPolicy { pools: [(id("lb", "edge"), Pause::default())].into(), ..OperatorPolicy::default() };
    for policy_input in [pause_of_everything(), of_pool] {
        policy(&mut fixture, policy_input);
        assert!(fixture.edge().is_paused(), "nothing is written");
        policy(&mut fixture, OperatorPolicy::default());
        assert!(!fixture.edge().is_paused());
    }
}

/// Creates a Directory with twenty pools of Services and `edge`, each with these four members.
fn cluster() -> Fixture {
    let mut fixture = unknown();
    fixture.source(all(&[1, 2, 3, 4]));
    fixture.together((0..20).map(|n| of(n, &[1, 2, 3, 4])));
    fixture.observe(&many(&[1, 2, 3, 4], &[1, 2, 3, 4]));
    fixture.pass(60_000);
    fixture.observe(&many(&[1, 2, 3, 4], &[1, 2, 3, 4]));
    fixture
}

fn of(n: u32, required: &[u8]) -> ServiceFact {
    fact(n, &format!("s{n}"), labelled(required))
}

fn many(members: &[u8], of_edge: &[u8]) -> Arc<LbFacts> {
    let name = |n: u32| format!("shop-s{n}");
    let pools = (0..20).map(|n| pool("lb", &name(n), members)).chain([pool("lb", "edge", of_edge)]).collect();
    let rules = (0..20).map(|n| rule(n, &name(n))).chain([edge_rule(true)]).collect();
    balancer("lb", pools, rules)
}

fn is_stopped(fixture: &Fixture) -> bool {
    fixture.machine.breaker.tripped().is_some()
}

#[test]
fn x3_g4_a_tripped_breaker_does_not_hold_a_dropped_source() {
    let mut fixture = cluster();
    fixture.together((0..20).map(|n| of(n, &[1])));
    fixture.source(all(&[1, 2, 3]));
    fixture.pass(31_000);
    assert!(is_stopped(&fixture));
    assert_eq!(
        (fixture.held(), fixture.going(&[1, 2, 3, 4])),
        (Some(HeldReason::Breaker), 0),
        "as any other"
    );
    fixture.source(dropped("no such thing"));
    assert_eq!((fixture.held(), fixture.going(&[1, 2, 3, 4])), (None, 4));
    assert!(is_stopped(&fixture), "which says nothing of the others");
    let others = fixture.assigned.iter().filter(|(pool, _)| **pool != id("lb", "edge"));
    assert!(
        others.clone().count() == 20
            && others.clone().all(|(_, said)| said.level.keeps == SurplusPolicy::KeepAll)
    );
}

/// Creates a Directory with eight pools that are filled from one source, each with the same four members, and two
/// pools of Services.
fn mostly_listed() -> Fixture {
    let listed = (0..8).map(|n| listing(&format!("edge-{n}"), shop(), Family::V4)).collect();
    let mut fixture = started(Params { listed, ..params() });
    fixture.source(all(&[1, 2, 3, 4]));
    fixture.together((0..2).map(|n| of(n, &[1, 2, 3, 4])));
    fixture.observe(&eight(&[1, 2, 3, 4], &[1, 2, 3, 4]));
    fixture.pass(60_000);
    fixture.observe(&eight(&[1, 2, 3, 4], &[1, 2, 3, 4]));
    fixture
}

fn eight(members: &[u8], of_services: &[u8]) -> Arc<LbFacts> {
    let listed = (0..8).map(|n| pool("lb", &format!("edge-{n}"), members));
    let own = (0..2).map(|n| pool("lb", &format!("shop-s{n}"), of_services));
    let rules = (0..2).map(|n| rule(n, &format!("shop-s{n}"))).collect();
    balancer("lb", listed.chain(own).collect(), rules)
}

#[test]
fn x3_g4_pools_of_a_dropped_source_do_not_trip_the_breaker() {
    for seen_empty in [false, true] {
        let mut fixture = mostly_listed();
        fixture.source(dropped("no such thing"));
        if seen_empty {
            fixture.pass(1_000);
            fixture.observe(&eight(&[], &[1, 2, 3, 4]));
        }
        fixture.service(of(0, &[1]));
        fixture.pass(31_000);
        assert!(!is_stopped(&fixture), "seen empty: {seen_empty}");
        let web = fixture.assignment("lb", "shop-s0");
        assert_eq!(web.level.surplus(&ips(&[1, 2, 3, 4])).count(), 3);
    }
    // A valid assignment with as few members counts.
    let mut fixture = mostly_listed();
    fixture.source(all(&[1]));
    fixture.pass(31_000);
    assert!(is_stopped(&fixture));
}

#[test]
fn x3_g4_a_pool_not_yet_emptied_counts_when_its_source_is_back() {
    let mut fixture = mostly_listed();
    fixture.source(dropped("no such thing"));
    fixture.source(all(&[1]));
    fixture.pass(31_000);
    assert!(is_stopped(&fixture));
}

#[test]
fn x3_g4_a_pool_that_is_filled_again_counts_again() {
    let mut fixture = mostly_listed();
    fixture.source(dropped("no such thing"));
    fixture.pass(1_000);
    fixture.observe(&eight(&[], &[1, 2, 3, 4]));
    fixture.source(all(&[1, 2, 3, 4]));
    fixture.pass(1_000);
    fixture.observe(&eight(&[1, 2, 3, 4], &[1, 2, 3, 4]));
    fixture.pass(600_000);
    fixture.observe(&eight(&[1, 2, 3, 4], &[1, 2, 3, 4]));
    fixture.source(all(&[1]));
    fixture.pass(31_000);
    assert!(is_stopped(&fixture));
}

#[test]
fn g2_a_lasting_empty_assignment_empties_the_pool() {
    let mut fixture = filled(&[1, 2]);
    fixture.source(empty());
    let held = fixture.edge().held.clone().expect("held");
    assert_eq!((held.reason, held.members), (HeldReason::EmptyConfirm, ips(&[1, 2])));
    assert_eq!(held.waits, Waits::Time(fixture.now.plus(Duration::from_secs(60))));
    fixture.pass(59_999);
    fixture.observe(&edge(&[1, 2]));
    assert_eq!(fixture.going(&[1, 2]), 0);
    fixture.pass(1);
    assert_eq!((fixture.held(), fixture.going(&[1, 2])), (None, 2));
    assert_eq!(fixture.reread(), 0, "lists have nothing to do with it");
}

#[test]
fn g2_emptiness_that_ends_unconfirmed_removes_nothing() {
    let mut fixture = filled(&[1, 2]);
    fixture.source(empty());
    fixture.pass(40_000);
    fixture.source(all(&[1, 2]));
    assert_eq!((fixture.held(), fixture.members()), (None, (ips(&[1, 2]), ips(&[]))));
    fixture.pass(600_000);
    assert_eq!(fixture.going(&[1, 2]), 0);
}

#[test]
fn g2_the_operator_releases_the_last_members_of_a_source() {
    let mut fixture = filled(&[1, 2]);
    fixture.source(empty());
    fixture.pass(31_000);
    assert_eq!(fixture.going(&[1, 2]), 0);
    let pool = id("lb", "edge");
    let released = Released { pool: pool.clone(), reason: HeldReason::EmptyConfirm, still: None };
    let answer = Answer::Done(Done::Released { pools: vec![released], nodes: Vec::new() });
    assert_eq!(fixture.request_release(Scope::Pool(pool)), answer);
    assert_eq!((fixture.held(), fixture.going(&[1, 2])), (None, 2));
}

#[test]
fn g2_draining_endpoints_stay_although_others_are_in_the_pool() {
    let mut fixture = filled(&[1, 2]);
    fixture.source(with(&[(1, DRAINS), (2, DRAINS)]));
    fixture.pass(600_000);
    assert_eq!((fixture.held(), fixture.members()), (None, (ips(&[]), ips(&[1, 2]))));
    fixture.source(with(&[(7, DRAINS)]));
    fixture.pass(600_000);
    assert_eq!((fixture.held(), fixture.going(&[1, 2])), (Some(HeldReason::LastMember), 0));
}

#[test]
fn g2_the_confirmation_pauses_while_the_source_has_an_error() {
    let mut fixture = filled(&[1, 2]);
    fixture.source(empty());
    fixture.pass(40_000);
    fixture.source(beside(empty(), "connection refused"));
    assert_eq!(fixture.edge().held.as_ref().map(|held| held.waits), Some(Waits::Facts));
    fixture.pass(600_000);
    assert_eq!((fixture.held(), fixture.going(&[1, 2])), (Some(HeldReason::EmptyConfirm), 0));
    fixture.source(empty());
    fixture.pass(19_999);
    assert_eq!(fixture.going(&[1, 2]), 0);
    fixture.pass(1);
    assert_eq!((fixture.held(), fixture.going(&[1, 2])), (None, 2));
    fixture.source(beside(empty(), "connection refused"));
    assert_eq!((fixture.held(), fixture.going(&[1, 2])), (None, 2), "what was confirmed is");
}

/// Creates a Directory with `lb/edge`, which has these members and no removal delay, and whose source is not known
/// yet.
fn at_once(members: &[u8]) -> Fixture {
    let mut fixture = unknown();
    fixture.observe(&balancer("lb", vec![pool("lb", "edge", members)], vec![edge_rule(false)]));
    fixture
}

fn came(provenance: Provenance, fact: SourceFact) -> SourceFact {
    SourceFact { provenance, ..fact }
}

#[test]
fn g3_a_large_removal_of_the_first_assignment_waits() {
    for provenance in [Provenance::FirstList, Provenance::Relist] {
        let mut fixture = at_once(&[1, 2, 3, 4]);
        fixture.source(came(provenance, all(&[1])));
        let held = fixture.edge().held.clone().expect("held");
        assert_eq!((held.reason, held.members), (HeldReason::Fraction, ips(&[2, 3, 4])));
        assert_eq!(held.waits, Waits::Time(fixture.now.plus(Duration::from_secs(30))));
        fixture.pass(29_999);
        assert_eq!(fixture.going(&[1, 2, 3, 4]), 0);
        fixture.pass(1);
        assert_eq!((fixture.held(), fixture.going(&[1, 2, 3, 4])), (None, 3));
        assert_eq!(
            (fixture.reread(), fixture.machine.deadline()),
            (0, None),
            "lists have nothing to do with it"
        );
    }
}

#[test]
fn g1_a_change_before_the_first_result_does_not_confirm_it() {
    let mut known = at_once(&[1, 2, 3, 4]);
    known.source(all(&[1, 2, 3, 4]));
    let mut fixture = at_once(&[1, 2, 3, 4]);
    for fixture in [&mut known, &mut fixture] {
        let mut out = Vec::new();
        for fact in [came(Provenance::Relist, all(&[1])), all(&[1, 5])] {
            fixture.machine.step(fixture.now, In::Source(shop(), fact), &mut out);
        }
        fixture.pass(0);
        let held = fixture.edge().held.clone().expect("held");
        assert_eq!((held.reason, held.members), (HeldReason::Fraction, ips(&[2, 3, 4])));
        assert_eq!(fixture.members().0, ips(&[1, 5]), "additions pass");
    }
    // An update after the first assignment was processed is a change.
    fixture.source(all(&[1, 5, 6]));
    assert_eq!(fixture.edge().provenance, Provenance::Watch);
}

#[test]
fn a3_source_changes_of_one_turn_keep_the_oldest_trigger() {
    let mut fixture = filled(&[1]);
    let mut out = Vec::new();
    let first = fixture.now;
    fixture.machine.step(first, In::Source(shop(), all(&[1, 2])), &mut out);
    fixture.now = first.plus(Duration::from_millis(7));
    fixture.machine.step(fixture.now, In::Source(shop(), all(&[1, 3])), &mut out);
    fixture.pass(0);
    let triggered =
        |fixture: &Fixture| fixture.edge().services.values().next().expect("its source").triggered;
    assert_eq!(triggered(&fixture), Some(first));
    fixture.pass(1_000);
    fixture.source(all(&[1, 4]));
    assert_eq!(triggered(&fixture), Some(fixture.now));
}

#[test]
fn g1_a_change_before_the_pool_is_read_does_not_confirm_it() {
    let mut fixture = unknown();
    fixture.source(came(Provenance::FirstList, all(&[1])));
    fixture.source(all(&[1, 2]));
    fixture.observe(&balancer("lb", vec![pool("lb", "edge", &[1, 2, 3, 4, 5, 6])], vec![edge_rule(false)]));
    assert_eq!((fixture.held(), fixture.going(&[1, 2, 3, 4, 5, 6])), (Some(HeldReason::Fraction), 0));
}

#[test]
fn g3_doubt_lasts_while_a_source_adds_back_members() {
    let members = [1, 2, 3, 4, 5, 6, 7, 8];
    let mut fixture = at_once(&members);
    fixture.source(came(Provenance::FirstList, all(&[1])));
    fixture.pass(20_000);
    fixture.source(all(&[1, 2]));
    fixture.pass(29_999);
    assert_eq!((fixture.held(), fixture.going(&members)), (Some(HeldReason::Fraction), 0));
    // New members do not affect the doubts about the members that the source omits.
    fixture.source(all(&[1, 2, 9]));
    fixture.pass(1);
    assert_eq!((fixture.held(), fixture.going(&members)), (None, 6));
}

#[test]
fn g3_changes_of_other_endpoints_do_not_prolong_the_doubt() {
    let members = [1, 2, 3, 4, 5, 6, 7, 8];
    let mut fixture = at_once(&members);
    fixture.source(came(Provenance::FirstList, all(&[1])));
    for at in [OUT, UP, OUT, UP] {
        fixture.pass(7_000);
        fixture.source(with(&[(1, at)]));
    }
    fixture.pass(2_000);
    assert_eq!(
        (fixture.held(), fixture.going(&members)),
        (None, 7),
        "it is no word on the others that 1 flaps"
    );
    // Every 25 s, one more of 30 members is assigned.
    let all_of: Vec<u8> = (1..=30).collect();
    let mut fixture = at_once(&all_of);
    fixture.source(came(Provenance::FirstList, all(&[1])));
    for last in 2..=25 {
        fixture.pass(25_000);
        assert_eq!((fixture.held(), fixture.going(&all_of)), (Some(HeldReason::Fraction), 0), "{last}");
        fixture.source(all(&(1..=last).collect::<Vec<u8>>()));
    }
    fixture.pass(5_000);
    assert_eq!((fixture.held(), fixture.going(&all_of)), (None, 5), "a hold has an end");
}

#[test]
fn g1_doubts_survive_a_period_without_proof_of_ownership() {
    let mut fixture = at_once(&[1, 2, 3, 4]);
    fixture.source(came(Provenance::FirstList, all(&[1])));
    fixture.source(all(&[1, 5]));
    assert_eq!(fixture.held(), Some(HeldReason::Fraction));
    let of = |rules| balancer("lb", vec![pool("lb", "edge", &[1, 2, 3, 4, 5])], rules);
    fixture.observe(&of(vec![rule(1, "edge")]));
    fixture.observe(&of(vec![edge_rule(false)]));
    assert_eq!((fixture.held(), fixture.going(&[1, 2, 3, 4, 5])), (Some(HeldReason::Fraction), 0));
}

#[test]
fn g3_members_that_a_source_adds_back_are_not_removed() {
    let mut fixture = at_once(&[1, 2, 3, 4]);
    fixture.source(came(Provenance::FirstList, all(&[1])));
    fixture.pass(10_000);
    fixture.source(all(&[1, 2, 3, 4]));
    assert_eq!((fixture.held(), fixture.members().0), (None, ips(&[1, 2, 3, 4])));
    fixture.pass(600_000);
    assert_eq!(fixture.going(&[1, 2, 3, 4]), 0);
}

#[test]
fn g3_a_source_error_leaves_its_first_assignment_in_doubt() {
    let mut fixture = at_once(&[1, 2, 3, 4]);
    fixture.source(came(Provenance::Relist, all(&[1])));
    fixture.pass(10_000);
    fixture.source(beside(came(Provenance::Relist, all(&[1])), "connection refused"));
    assert_eq!(fixture.edge().held.as_ref().map(|held| held.waits), Some(Waits::Facts));
    fixture.pass(600_000);
    assert_eq!((fixture.held(), fixture.going(&[1, 2, 3, 4])), (Some(HeldReason::Fraction), 0));
    fixture.source(came(Provenance::Relist, all(&[1])));
    assert_eq!(
        fixture.held(),
        Some(HeldReason::Fraction),
        "that a server is reached again says nothing of what it assigns"
    );
    let again = fixture.now.plus(Duration::from_secs(30));
    assert_eq!(fixture.edge().held.as_ref().map(|held| held.waits), Some(Waits::Time(again)));
    fixture.pass(29_999);
    assert_eq!(fixture.going(&[1, 2, 3, 4]), 0);
    fixture.pass(1);
    assert_eq!((fixture.held(), fixture.going(&[1, 2, 3, 4])), (None, 3), "it has stood for long enough");
}

#[test]
fn g3_g5_large_removals_need_a_release_and_small_ones_do_not() {
    let mut fixture = at_once(&[1, 2, 3, 4]);
    fixture.source(came(Provenance::FirstList, all(&[1, 2])));
    assert_eq!((fixture.held(), fixture.going(&[1, 2, 3, 4])), (None, 2));
    let mut fixture = at_once(&[1, 2, 3, 4]);
    fixture.source(came(Provenance::FirstList, all(&[1])));
    fixture.request_release(Scope::Pool(id("lb", "edge")));
    assert_eq!((fixture.held(), fixture.going(&[1, 2, 3, 4])), (None, 3));
}

#[test]
fn g2_an_empty_first_assignment_has_to_last_like_others() {
    let mut fixture = at_once(&[1, 2]);
    fixture.source(came(Provenance::FirstList, empty()));
    let waits = Waits::Time(fixture.now.plus(Duration::from_secs(60)));
    assert_eq!(
        fixture.edge().held.as_ref().map(|held| (held.reason, held.waits)),
        Some((HeldReason::EmptyConfirm, waits))
    );
    fixture.pass(59_999);
    assert_eq!(fixture.going(&[1, 2]), 0);
    fixture.pass(1);
    assert_eq!((fixture.held(), fixture.going(&[1, 2])), (None, 2));
}

#[test]
fn g3_a_large_removal_of_a_stream_change_is_immediate() {
    let mut fixture = filled(&[1, 2, 3, 4]);
    fixture.source(all(&[1]));
    assert_eq!(fixture.held(), None);
    fixture.pass(30_000);
    assert_eq!((fixture.held(), fixture.going(&[1, 2, 3, 4])), (None, 3));
}

#[test]
fn d6_x2_members_stay_while_no_assigned_endpoint_is_usable() {
    let mut fixture = filled(&[1, 2]);
    fixture.source(with(&[(1, OUT), (2, OUT), (3, OUT)]));
    assert_eq!((fixture.held(), fixture.going(&[1, 2])), (Some(HeldReason::NoUsableNode), 0));
    fixture.pass(600_000);
    fixture.observe(&edge(&[1, 2]));
    assert_eq!(
        (fixture.held(), fixture.going(&[1, 2])),
        (Some(HeldReason::NoUsableNode), 0),
        "time ends it never"
    );
    fixture.source(with(&[(1, OUT), (3, UP)]));
    assert_eq!((fixture.held(), fixture.members()), (None, (ips(&[3]), ips(&[]))), "their delay is over");
    fixture.source(with(&[(1, OUT)]));
    assert_eq!(fixture.held(), Some(HeldReason::NoUsableNode));
    fixture.source(empty());
    assert_eq!(fixture.held(), Some(HeldReason::EmptyConfirm), "that there is nothing is said");
    fixture.pass(60_000);
    assert_eq!((fixture.held(), fixture.going(&[1, 2])), (None, 2));
}

#[test]
fn d6_x2_a_draining_endpoint_confirms_no_other_removal() {
    let mut fixture = filled(&[1, 2, 3]);
    fixture.source(with(&[(1, DRAINS), (2, OUT), (3, OUT)]));
    let held = fixture.edge().held.clone().expect("held");
    assert_eq!((held.reason, held.members), (HeldReason::NoUsableNode, ips(&[2, 3])));
    fixture.pass(600_000);
    fixture.observe(&edge(&[1, 2, 3]));
    assert_eq!(fixture.going(&[1, 2, 3]), 0, "time ends it never");
    fixture.source(with(&[(1, DRAINS), (2, UP), (3, OUT)]));
    assert_eq!((fixture.held(), fixture.members()), (None, (ips(&[2]), ips(&[1]))));
    fixture.source(with(&[(1, DRAINS), (2, DRAINS)]));
    assert_eq!((fixture.held(), fixture.members().1), (None, ips(&[1, 2])), "all that there is drains");
    fixture.pass(30_000);
    assert_eq!((fixture.held(), fixture.going(&[1, 2, 3])), (None, 1));
}

#[test]
fn d6_x2_skipped_and_other_family_endpoints_count_as_unusable() {
    let beside_skipped = |drains: &[(IpAddr, EndpointHealth)]| {
        let shown = LoadAssignment {
            skips: true,
            has_endpoints: true,
            only_drains: false,
            ..(*assignment(&[drains])).clone()
        };
        usable(Arc::new(shown))
    };
    let other: IpAddr = "fd00::9".parse().expect("an address");
    let beside_other = |drains: &[(IpAddr, EndpointHealth)]| {
        let all: Vec<_> = drains.iter().copied().chain([(other, UP)]).collect();
        usable(assignment(&[&all]))
    };
    let drains = [(ip(1), DRAINS)];
    for fact in [beside_skipped(&[]), beside_skipped(&drains), beside_other(&[]), beside_other(&drains)] {
        let mut fixture = filled(&[1, 2, 3]);
        fixture.source(fact.clone());
        fixture.pass(600_000);
        fixture.observe(&edge(&[1, 2, 3]));
        assert_eq!(
            (fixture.held(), fixture.going(&[1, 2, 3])),
            (Some(HeldReason::NoUsableNode), 0),
            "{fact:?}"
        );
    }
}

#[test]
fn g2_x2_draining_endpoints_confirm_nothing_during_an_error() {
    let mut fixture = at_once(&[1, 2, 3]);
    fixture.source(all(&[1, 2, 3]));
    fixture.source(beside(with(&[(1, DRAINS)]), "connection refused"));
    assert_eq!((fixture.held(), fixture.going(&[1, 2, 3])), (Some(HeldReason::NoUsableNode), 0));
    assert_eq!(fixture.edge().level.states.down, ips(&[1]), "what drains is Down all the same");
    fixture.source(with(&[(1, DRAINS)]));
    assert_eq!((fixture.held(), fixture.going(&[1, 2, 3])), (None, 2));
}

#[test]
fn d6_x2_an_empty_pool_has_no_hold_without_usable_endpoints() {
    let mut fixture = filled(&[]);
    fixture.source(with(&[(1, OUT)]));
    fixture.observe(&edge(&[]));
    assert_eq!((fixture.held(), fixture.members()), (None, (ips(&[]), ips(&[]))));
}

#[test]
fn d6_g5_members_held_for_unusable_endpoints_are_releasable() {
    let mut fixture = filled(&[1, 2]);
    fixture.source(with(&[(1, OUT)]));
    fixture.pass(31_000);
    fixture.request_release(Scope::Pool(id("lb", "edge")));
    assert_eq!((fixture.held(), fixture.going(&[1, 2])), (None, 2));
}

fn address(n: u16) -> IpAddr {
    IpAddr::from([10, 1, (n >> 8) as u8, n as u8])
}

fn range(of: std::ops::Range<u16>) -> SourceFact {
    let endpoints: Vec<_> = of.map(|n| (address(n), UP)).collect();
    usable(assignment(&[&endpoints]))
}

#[test]
fn g1_g3_x2_a_full_pool_keeps_doubtful_members_that_fit() {
    for (assigned, stays) in [(1000..1400, 600), (1000..2000, 0)] {
        let mut fixture = unknown();
        fixture.observe(&balancer("lb", vec![pool("lb", "edge", &[])], vec![edge_rule(false)]));
        fixture.source(range(0..1000));
        fixture.pass(1_000);
        fixture.source(came(Provenance::Relist, range(assigned.clone())));
        let (required, tolerated) = fixture.members();
        assert_eq!((required.len(), tolerated.len()), (assigned.len(), stays), "Azure takes no more");
        let held = fixture.edge().held.as_ref().map(|held| (held.reason, held.members.len()));
        assert_eq!(held, (stays > 0).then_some((HeldReason::Fraction, stays)), "what is told is what stays");
        fixture.pass(30_000);
        assert_eq!((fixture.held(), fixture.members().1.len()), (None, 0));
    }
}

#[test]
fn x2_a_replaced_full_pool_keeps_leaving_members_that_fit() {
    let staying = |fixture: &Fixture| -> BTreeSet<IpAddr> { fixture.members().1 };
    let mut fixture = unknown();
    fixture.source(range(0..1000));
    fixture.observe(&edge(&[]));
    fixture.pass(1_000);
    fixture.source(range(100..1000));
    assert_eq!(staying(&fixture), (0..100).map(address).collect(), "there is room for all");
    fixture.pass(1_000);
    fixture.source(range(1100..2000));
    let (required, tolerated) = fixture.members();
    assert_eq!((required.len(), tolerated.len()), (900, 100), "Azure takes no more");
    assert!((0..100).map(address).all(|ip| !tolerated.contains(&ip)), "what has left first goes first");
    fixture.pass(30_000);
    assert_eq!(staying(&fixture), BTreeSet::new());
}
