//! Tests of pools of one address family that contain nodes with endpoints of only the other family (D4).

use super::*;
use model::view::ExcludedNodeView;

/// Returns a part with these required members, and these nodes of the other family.
fn split(required: &[u8], others: &[u8]) -> Part {
    let node = |n: &u8| {
        let node = ExcludedNode { ips: ips(&[*n]), why: ExclusionRule::OtherFamily };
        (NodeName::new(format!("node-{n}")), node)
    };
    Part { excluded: others.iter().map(node).collect(), ..part(required, &[]) }
}

fn of(n: u32, part: Part) -> ServiceFact {
    fact(n, &format!("s{n}"), part)
}

fn all_with(count: u32, members: &[u8]) -> Arc<LbFacts> {
    let pools = (0..count).map(|n| pool("lb", &format!("shop-s{n}"), members)).collect();
    let rules = (0..count).map(|n| rule(n, &format!("shop-s{n}"))).collect();
    balancer("lb", pools, rules)
}

fn going(fixture: &Fixture, observed: &[u8]) -> usize {
    fixture.assigned.values().map(|said| said.level.surplus(&ips(observed)).count()).sum()
}

#[test]
fn d4_a_node_of_the_other_family_has_the_removal_delay() {
    let mut fixture = settled(&[1]);
    fixture.service(fact(1, "web", split(&[1], &[2])));
    fixture.observe(&web(&[1, 2]));
    let level = fixture.assignment("lb", "shop-web").level.clone();
    assert_eq!((level.tolerated, level.other_family), (ips(&[2]), ips(&[])));
    fixture.pass(30_000);
    let level = fixture.assignment("lb", "shop-web").level.clone();
    assert_eq!((level.tolerated, level.other_family), (ips(&[]), ips(&[2])));
    fixture.service(fact(1, "web", split(&[1, 2], &[])));
    let level = fixture.assignment("lb", "shop-web").level.clone();
    assert_eq!((level.required.len(), level.other_family), (2, ips(&[])));
}

#[test]
fn d4_members_of_another_service_of_the_pool_are_not_foreign() {
    let mut fixture = settled(&[1]);
    fixture.service(fact(2, "api", part(&[2], &[])));
    fixture.service(fact(1, "web", split(&[1], &[2, 3])));
    let rules = vec![rule(1, "shop-web"), rule(2, "shop-web")];
    fixture.observe(&balancer("lb", vec![pool("lb", "shop-web", &[1, 2, 3])], rules));
    fixture.pass(30_000);
    assert_eq!(fixture.assignment("lb", "shop-web").level.other_family, ips(&[3]));
}

#[test]
fn d4_g4_the_first_start_after_an_upgrade_does_not_trip_it() {
    let mut fixture = Fixture::waiting();
    let listed = |n| ServiceFact { provenance: Provenance::FirstList, ..of(n, split(&[1], &[2, 3, 4])) };
    fixture.together((0..20).map(listed));
    fixture.observe(&all_with(20, &[1, 2, 3, 4]));
    fixture.send(In::ListsSynced);
    fixture.send(In::DiscoverySynced);
    for _ in 0..120 {
        fixture.pass(1_000);
        fixture.reread();
    }
    assert!(fixture.machine.breaker.tripped().is_none());
    assert_eq!(going(&fixture, &[1, 2, 3, 4]), 20 * 3);
}

#[test]
fn d4_g4_endpoints_that_leave_one_family_count_like_others() {
    for (provenance, stops) in [(Provenance::Watch, false), (Provenance::Reconnect, true)] {
        let mut fixture = Fixture::running();
        fixture.together((0..20).map(|n| of(n, part(&[1, 2, 3, 4], &[]))));
        fixture.observe(&all_with(20, &[1, 2, 3, 4]));
        fixture.together((0..20).map(|n| ServiceFact { provenance, ..of(n, split(&[1], &[2, 3, 4])) }));
        fixture.pass(31_000);
        assert_eq!(fixture.machine.breaker.tripped().is_some(), stops, "{provenance:?}");
    }
}

#[test]
fn d4_g2_slices_that_vanish_in_one_family_are_doubted() {
    let mut fixture = settled(&[1]);
    // The Service still has slices of the other family, in which node 1 has an endpoint.
    let mut vanished = of_each_family(fact(1, "web", split(&[], &[1])));
    let part = &mut Arc::make_mut(&mut vanished).parts[&Family::V4];
    (part.slices, part.endpoints) = (0, 0);
    fixture.send(In::Service(uid(1), Some(vanished)));
    let held = fixture.assignment("lb", "shop-web").held.clone().expect("held");
    assert_eq!((held.reason, held.members), (HeldReason::EmptyConfirm, ips(&[1])));
    assert!(matches!(held.waits, Waits::SecondRead(_)), "{:?}", held.waits);
}

#[test]
fn d5_excluded_nodes_are_shown_and_reported_with_the_rule() {
    let mut fixture = settled(&[1]);
    fixture.take();
    let node = ExcludedNode { ips: ips(&[1]), why: ExclusionRule::ControlPlane };
    let nodes = BTreeMap::from([(NodeName::new("k3s"), node)]);
    fixture.service(fact(1, "web", Part { excluded: nodes, unusable: true, ..Part::default() }));
    let (mut told, mut shown) = (None, None);
    for out in fixture.take() {
        if let Out::Report(report) = out {
            told = Some(report.what);
        } else if let Out::Service(_, _, view) = out {
            shown = view;
        }
    }
    let Some(EventKind::Held { reason: HeldReason::NoUsableNode, excluded: Some(told), .. }) = told else {
        panic!("{told:?}")
    };
    assert_eq!((told.first.as_str(), told.why, told.more), ("k3s", ExclusionRule::ControlPlane, 0));
    let shown = shown.expect("it is shown").excluded.clone();
    let (node, why) = (NodeName::new("k3s"), ExclusionRule::ControlPlane);
    let expected = ExcludedNodeView { node, family: Family::V4, ips: ips(&[1]), why };
    assert_eq!(shown, [expected]);
}
