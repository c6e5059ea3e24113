//! Assignments of pools while pre-images are restored (docs/design/surface.md, commands).

use super::*;
use model::assignment::PausedBy;
use model::ids::AddressName;
use model::level::SurplusPolicy;
use model::pins::{Pin, Pins};
use model::policy::Pause;

fn pin(members: &[u8]) -> Pin {
    let name = |n: &u8| AddressName::new(format!("old-{n}"));
    Pin { members: members.iter().map(|n| (ip(*n), name(n))).collect(), ..Pin::default() }
}

/// Creates a Directory that restores this pin of `shop-web`, with this Service and these observed members.
fn restoring(pin: Pin, service: ServiceFact, seen: &[u8]) -> Fixture {
    let pins = Pins([(id("lb", "shop-web"), pin)].into());
    let mut fixture = Fixture::with(Params { pins: Some(Arc::new(pins)), ..params() });
    fixture.send(In::ListsSynced);
    fixture.send(In::DiscoverySynced);
    fixture.service(service);
    fixture.observe(&web(seen));
    fixture
}

fn surplus(fixture: &Fixture, seen: &[u8]) -> BTreeSet<IpAddr> {
    fixture.assignment("lb", "shop-web").level.surplus(&ips(seen)).copied().collect()
}

#[test]
fn a_pinned_pool_holds_its_pre_image_whatever_endpoints_and_guards_say() {
    let paused = ServiceFact { paused: true, ..fact(1, "web", part(&[5, 6], &[7])) };
    let pin = Pin { allow_unserved: true, ignore_pause: true, ..pin(&[1, 2]) };
    let mut fixture = restoring(pin, paused, &[5, 6, 7, 8]);
    let said = fixture.assignment("lb", "shop-web").clone();
    assert!(said.level.missing(&ips(&[5, 6, 7, 8])).eq([&ip(1), &ip(2)]));
    assert_eq!(surplus(&fixture, &[5, 6, 7, 8]), ips(&[5, 6, 7, 8]), "all of it, at once");
    assert_eq!((&said.held, said.is_paused()), (&None, false), "the operator has named the pool");
    assert_eq!(
        said.level.required[&ip(1)].name,
        AddressName::new("old-1"),
        "names are those of the pre-image"
    );
    assert!(said.is_sound());
    fixture.take();
    let newer = ServiceFact { revision: 9, ..fact(1, "web", part(&[], &[])) };
    fixture.service(ServiceFact { provenance: Provenance::Relist, ..newer });
    fixture.pass(600_000);
    let after = fixture.assignment("lb", "shop-web").clone();
    assert!(after.level.same_members(&said.level), "endpoints are no news");
    assert_eq!((said.overruled, after.overruled), (Some(ips(&[5, 6])), Some(ips(&[]))), "but they are shown");
}

#[test]
fn d1_an_annotated_pause_applies_unless_the_pool_is_named() {
    for named in [false, true] {
        let pin = Pin { ignore_pause: named, ..pin(&[1]) };
        let fixture = restoring(pin, ServiceFact { paused: true, ..fact(1, "web", part(&[1], &[])) }, &[3]);
        let key = ServiceKey::new("shop", "web");
        let paused = if named { BTreeSet::new() } else { [PausedBy::Annotation(key)].into() };
        assert_eq!(fixture.assignment("lb", "shop-web").paused, paused);
    }
}

#[test]
fn g2_a_pre_image_without_a_required_member_needs_permission() {
    let wanted = || fact(1, "web", part(&[5, 6], &[]));
    let idle = || fact(1, "web", part(&[], &[]));
    let allowed = Pin { allow_unserved: true, ..pin(&[1, 7]) };
    for (pin, service, goes) in [
        (pin(&[1, 7]), wanted(), &[][..]),
        (allowed, wanted(), &[5, 6]),
        (pin(&[1, 6]), wanted(), &[5]),
        (pin(&[1, 7]), idle(), &[5, 6]),
    ] {
        let fixture = restoring(pin, service, &[5, 6]);
        assert_eq!(surplus(&fixture, &[5, 6]), ips(goes));
        let missing = fixture.assignment("lb", "shop-web").level.missing(&ips(&[5, 6])).count();
        assert_eq!(missing == 0, goes.is_empty(), "what is left as it is gets no member either");
    }
}

#[test]
fn a_pool_without_a_pin_or_with_one_of_the_other_family_keeps_what_it_has() {
    let sixth = Pin {
        members: [("fd00::1".parse().expect("an address"), AddressName::new("n"))].into(),
        ..Pin::default()
    };
    let other = Pins([(id("lb", "shop-api"), pin(&[1]))].into());
    for pins in [other, Pins([(id("lb", "shop-web"), sixth)].into())] {
        let mut fixture = Fixture::with(Params { pins: Some(Arc::new(pins)), ..params() });
        fixture.send(In::ListsSynced);
        fixture.send(In::DiscoverySynced);
        fixture.service(fact(1, "web", part(&[5], &[])));
        fixture.observe(&web(&[3, 4]));
        let said = fixture.assignment("lb", "shop-web");
        assert_eq!(
            (&said.paused, said.level.keeps),
            (&[PausedBy::NotInRestore].into(), SurplusPolicy::KeepAll)
        );
        assert!(said.level.is_in_sync(&ips(&[3, 4])) && said.is_sound());
        assert!(fixture.reports().is_empty());
    }
}

#[test]
fn g2_an_empty_pre_image_with_endpoints_needs_permission() {
    let busy = || fact(1, "web", part(&[5], &[]));
    let idle = ServiceFact { endpoints: 0, ..fact(1, "web", part(&[], &[])) };
    let allowed = || Pin { allow_empty: true, ..pin(&[]) };
    for (pin, service, goes) in [
        (pin(&[]), busy(), &[][..]),
        (allowed(), busy(), &[5]),
        (pin(&[]), idle, &[5]),
        (Pin { allow_unserved: true, ..pin(&[1]) }, busy(), &[5]),
    ] {
        assert_eq!(surplus(&restoring(pin, service, &[5]), &[5]), ips(goes));
    }
}

#[test]
fn d2_a_pinned_pool_without_proof_is_not_assigned() {
    let pins = Pins([(id("lb", "shop-web"), pin(&[1]))].into());
    let mut fixture = Fixture::with(Params { pins: Some(Arc::new(pins)), ..params() });
    fixture.send(In::ListsSynced);
    fixture.send(In::DiscoverySynced);
    fixture.service(fact(1, "web", part(&[1], &[])));
    fixture.observe(&balancer(
        "lb",
        vec![pool("lb", "shop-web", &[3])],
        vec![rule(1, "shop-web"), rule(2, "shop-web")],
    ));
    assert!(!fixture.assigned.contains_key(&id("lb", "shop-web")));
}

#[test]
fn g6_a_pause_of_everything_includes_pinned_pools() {
    let mut fixture = restoring(pin(&[1]), fact(1, "web", part(&[1], &[])), &[3]);
    let policy_input = OperatorPolicy { everything: Some(Pause::default()), ..OperatorPolicy::default() };
    fixture.send(In::OperatorPolicy { term: None, policy: Arc::new(policy_input) });
    assert_eq!(fixture.assignment("lb", "shop-web").paused.first(), Some(&PausedBy::Everything));
}
