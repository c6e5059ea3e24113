//! Tests of the operator's settings and requests: the mode, pauses, and the release of held removals (D1, G6, H3).

use super::*;
use model::assignment::PausedBy;
use model::level::SurplusPolicy;
use model::policy::{Mode, Pause};

fn policy(fixture: &mut Fixture, term: Option<u64>, policy: OperatorPolicy) {
    fixture.send(In::OperatorPolicy { term: term.map(Epoch), policy: Arc::new(policy) });
}

fn mode(mode: Mode) -> OperatorPolicy {
    OperatorPolicy { mode, ..OperatorPolicy::default() }
}

fn paused(fixture: &Fixture) -> Vec<PausedBy> {
    fixture.assignment("lb", "shop-web").paused.iter().cloned().collect()
}

fn held(fixture: &Fixture) -> Option<HeldReason> {
    fixture.assignment("lb", "shop-web").held.as_ref().map(|held| held.reason)
}

fn released(pools: &[(&str, HeldReason)]) -> Answer {
    let one =
        |(name, reason): &(&str, HeldReason)| Released { pool: id("lb", name), reason: *reason, still: None };
    Answer::Done(Done::Released { pools: pools.iter().map(one).collect(), nodes: Vec::new() })
}

fn nothing(stays: ReleaseRefusal) -> Answer {
    Answer::Refused(Refusal::NothingReleased(stays))
}

#[test]
fn g6_only_pauses_that_include_a_pool_pause_it() {
    let mut fixture = settled(&[1]);
    let key = ServiceKey::new("shop", "web");
    let other = ServiceKey::new("shop", "api");
    let pool_wish = |name| OperatorPolicy {
        pools: [(id("lb", name), Pause::default())].into(),
        ..OperatorPolicy::default()
    };
    let service_wish = |key: &ServiceKey| OperatorPolicy {
        services: [(key.clone(), Pause::default())].into(),
        ..OperatorPolicy::default()
    };
    for (policy_input, by) in [
        (mode(Mode::Observe), vec![PausedBy::Mode]),
        (
            OperatorPolicy { everything: Some(Pause::default()), ..OperatorPolicy::default() },
            vec![PausedBy::Everything],
        ),
        (pool_wish("shop-web"), vec![PausedBy::Pool]),
        (pool_wish("shop-api"), vec![]),
        (service_wish(&key), vec![PausedBy::Service(key.clone())]),
        (service_wish(&other), vec![]),
        (mode(Mode::Enforce), vec![]),
    ] {
        policy(&mut fixture, None, policy_input);
        assert_eq!(paused(&fixture), by);
    }
    fixture.service(ServiceFact { paused: true, ..fact(1, "web", part(&[1], &[])) });
    assert_eq!(paused(&fixture), vec![PausedBy::Annotation(key)]);
}

#[test]
fn g6_add_only_removes_nothing_and_shows_held_removals() {
    let mut fixture = settled(&[1, 2]);
    fixture.take();
    policy(&mut fixture, None, mode(Mode::AddOnly));
    assert_eq!(
        (held(&fixture), fixture.assignment("lb", "shop-web").level.keeps),
        (None, SurplusPolicy::KeepAll)
    );
    fixture.service(fact(1, "web", part(&[1, 3], &[])));
    fixture.pass(30_000);
    let said = fixture.assignment("lb", "shop-web").clone();
    let shown = said.held.clone().expect("shown");
    assert_eq!((shown.reason, shown.members), (HeldReason::AddOnly, ips(&[2])));
    assert_eq!(said.level.surplus(&ips(&[1, 2])).count(), 0);
    assert!(said.level.missing(&ips(&[1, 2])).eq([&ip(3)]), "additions pass");
    assert!(fixture.reports().is_empty());
    for scope in [Scope::Everything, Scope::Pool(id("lb", "shop-web"))] {
        assert_eq!(
            fixture.request_release(scope),
            nothing(ReleaseRefusal::AddOnly),
            "a release does not change the mode"
        );
    }
    assert_eq!(held(&fixture), Some(HeldReason::AddOnly));
    policy(&mut fixture, None, mode(Mode::Enforce));
    assert_eq!(held(&fixture), None);
    assert_eq!(fixture.assignment("lb", "shop-web").level.surplus(&ips(&[1, 2])).count(), 1);
}

#[test]
fn g6_a_term_opens_only_when_its_policy_is_known() {
    let opened =
        |fixture: &mut Fixture| fixture.take().iter().any(|said| matches!(said, Out::Opened(Epoch(3))));
    for policy_comes_first in [true, false] {
        let mut fixture = Fixture::without_policy(params());
        fixture.send(In::ListsSynced);
        fixture.send(In::DiscoverySynced);
        fixture.service(fact(1, "web", part(&[1], &[])));
        fixture.observe(&web(&[1]));
        let pause = OperatorPolicy { everything: Some(Pause::default()), ..OperatorPolicy::default() };
        policy(&mut fixture, None, OperatorPolicy::default());
        policy(&mut fixture, Some(2), OperatorPolicy::default());
        if policy_comes_first {
            policy(&mut fixture, Some(3), pause);
            assert!(!opened(&mut fixture));
            fixture.send(In::Confirmed(Epoch(3)));
        } else {
            fixture.send(In::Confirmed(Epoch(3)));
            fixture.pass(600_000);
            assert!(!opened(&mut fixture), "the policy of an earlier term may not hold any more");
            policy(&mut fixture, Some(3), pause);
        }
        assert_eq!(paused(&fixture), [PausedBy::Everything], "before it opens");
        assert!(opened(&mut fixture));
        assert_eq!(fixture.machine.deadline(), None);
    }
}

#[test]
fn h3_a_release_covers_only_present_holds() {
    let unusable = || fact(1, "web", Part { unusable: true, ..Part::default() });
    let mut fixture = settled(&[1]);
    fixture.pass(60_000);
    fixture.service(unusable());
    fixture.pass(600_000);
    assert_eq!(held(&fixture), Some(HeldReason::NoUsableNode));
    let web_pool = Scope::Pool(id("lb", "shop-web"));
    assert_eq!(
        fixture.request_release(web_pool.clone()),
        released(&[("shop-web", HeldReason::NoUsableNode)])
    );
    let goes = |fixture: &Fixture| fixture.assignment("lb", "shop-web").level.surplus(&ips(&[1])).count();
    assert_eq!((held(&fixture), goes(&fixture)), (None, 1));
    fixture.observe(&web(&[1]));
    fixture.service(ServiceFact { revision: 8, ..unusable() });
    assert_eq!((held(&fixture), goes(&fixture)), (None, 1), "it stays released while the reason lasts");
    assert_eq!(
        fixture.request_release(web_pool),
        nothing(ReleaseRefusal::NothingHeld),
        "there is nothing more"
    );
    fixture.service(fact(1, "web", part(&[1], &[])));
    fixture.service(unusable());
    assert_eq!(held(&fixture), Some(HeldReason::NoUsableNode), "held again");
}

#[test]
fn g2_a_release_does_not_cover_a_later_last_member() {
    let mut fixture = Fixture::with(Params { removal_delay: Duration::ZERO, ..params() });
    fixture.send(In::ListsSynced);
    fixture.send(In::DiscoverySynced);
    // Two Services share a pool. One has no usable endpoint, and the other keeps its last member.
    fixture.service(fact(1, "web", Part { unusable: true, ..Part::default() }));
    fixture.service(fact(2, "api", part(&[1], &[])));
    let rules = vec![rule(1, "shop-web"), rule(2, "shop-web")];
    fixture.observe(&balancer("lb", vec![pool("lb", "shop-web", &[1, 2])], rules));
    fixture.pass(1_000);
    assert_eq!(held(&fixture), Some(HeldReason::NoUsableNode));
    fixture.request_release(Scope::Pool(id("lb", "shop-web")));
    let goes = |fixture: &Fixture| -> Vec<IpAddr> {
        fixture.assignment("lb", "shop-web").level.surplus(&ips(&[1, 2])).copied().collect()
    };
    assert_eq!((held(&fixture), goes(&fixture)), (None, ips(&[2]).into_iter().collect()));
    let empty = fact(2, "api", part(&[], &[]));
    fixture.service(ServiceFact { provenance: Provenance::Relist, ..empty });
    assert_eq!(held(&fixture), Some(HeldReason::NoUsableNode));
    assert!(!goes(&fixture).contains(&ips(&[1]).into_iter().next().expect("an address")));
}

#[test]
fn h3_each_kind_of_hold_of_a_pool_can_be_released() {
    let empty = || fact(1, "web", part(&[], &[]));
    let listed = |fact: ServiceFact| ServiceFact { provenance: Provenance::Relist, ..fact };
    for (facts, reason) in [
        (empty(), HeldReason::EmptyConfirm),
        (listed(empty()), HeldReason::EmptyConfirm),
        (listed(fact(1, "web", part(&[3], &[]))), HeldReason::Fraction),
        (fact(1, "web", part(&[], &[7])), HeldReason::LastMember),
    ] {
        let mut fixture = Fixture::with(Params { removal_delay: Duration::ZERO, ..params() });
        fixture.send(In::ListsSynced);
        fixture.send(In::DiscoverySynced);
        fixture.service(fact(1, "web", part(&[1, 2, 3], &[])));
        fixture.observe(&web(&[1, 2, 3]));
        fixture.pass(1_000);
        fixture.observe(&web(&[1, 2, 3]));
        fixture.service(facts);
        fixture.pass(1_000);
        fixture.observe(&web(&[1, 2, 3]));
        assert_eq!(held(&fixture), Some(reason));
        let by_service = Scope::Service(ServiceKey::new("shop", "web"));
        assert_eq!(fixture.request_release(by_service), released(&[("shop-web", reason)]));
        assert_eq!(held(&fixture), None);
        assert!(fixture.assignment("lb", "shop-web").level.surplus(&ips(&[1, 2, 3])).count() >= 2);
        fixture.pass(600_000);
        assert_eq!(fixture.reread(), 0, "nothing is in doubt any more");
    }
}

#[test]
fn h3_a_release_of_nothing_is_refused_with_the_reason() {
    let mut fixture = settled(&[1]);
    let unknown = Answer::Refused(Refusal::Unknown);
    assert_eq!(fixture.request_release(Scope::Pool(id("lb", "shop-other"))), unknown);
    assert_eq!(fixture.request_release(Scope::Service(ServiceKey::new("shop", "other"))), unknown);
    let web = ServiceKey::new("shop", "web");
    for scope in [Scope::Pool(id("lb", "shop-web")), Scope::Service(web), Scope::Everything] {
        assert_eq!(fixture.request_release(scope), nothing(ReleaseRefusal::NothingHeld));
    }
}

#[test]
fn g6_all_pauses_of_a_pool_are_listed() {
    let mut fixture = settled(&[1]);
    let key = ServiceKey::new("shop", "web");
    fixture.service(ServiceFact { paused: true, ..fact(1, "web", part(&[1], &[])) });
    let all = OperatorPolicy {
        mode: Mode::Observe,
        everything: Some(Pause::default()),
        pools: [(id("lb", "shop-web"), Pause::default())].into(),
        services: [(key.clone(), Pause::default())].into(),
        ..OperatorPolicy::default()
    };
    policy(&mut fixture, None, all);
    let (service, annotation) = (PausedBy::Service(key.clone()), PausedBy::Annotation(key));
    let all = vec![PausedBy::Mode, PausedBy::Everything, PausedBy::Pool, service, annotation.clone()];
    assert_eq!(paused(&fixture), all);
    policy(&mut fixture, None, mode(Mode::Enforce));
    assert_eq!(paused(&fixture), [annotation]);
}

/// Creates twenty pools of four members each, of which all but one would be removed. The breaker holds all removals.
fn stopped() -> Fixture {
    let name = |n: u32| format!("s{n}");
    let of = |n, required: &[u8]| fact(n, &name(n), labelled(required));
    let pools = (0..20).map(|n| pool("lb", &format!("shop-{}", name(n)), &[1, 2, 3, 4])).collect();
    let rules = (0..20).map(|n| rule(n, &format!("shop-{}", name(n)))).collect();
    let mut fixture = Fixture::with(params());
    fixture.send(In::ListsSynced);
    fixture.send(In::DiscoverySynced);
    fixture.together((0..20).map(|n| of(n, &[1, 2, 3, 4])));
    fixture.observe(&balancer("lb", pools, rules));
    // One of the pools is emptied, and its own guard holds that.
    fixture.together((0..20).map(|n| of(n, if n == 0 { &[] } else { &[1] })));
    fixture.pass(30_000);
    assert!(fixture.machine.breaker.tripped().is_some());
    fixture
}

#[test]
fn g4_no_single_pool_is_released_while_all_removals_stop() {
    let mut fixture = stopped();
    let by_pool = |n: u32| Scope::Pool(id("lb", &format!("shop-s{n}")));
    let by_service = Scope::Service(ServiceKey::new("shop", "s3"));
    for scope in [by_pool(3), by_service] {
        assert_eq!(fixture.request_release(scope), nothing(ReleaseRefusal::AllStopped));
    }
    let mut released = |scope| match fixture.request_release(scope) {
        Answer::Done(Done::Released { pools, nodes }) if nodes.is_empty() => pools,
        Answer::Done(_) | Answer::Refused(_) => panic!("it is refused"),
    };
    let (still, pool) = (Some(HeldReason::Breaker), id("lb", "shop-s0"));
    let own = Released { pool, reason: HeldReason::EmptyConfirm, still };
    assert_eq!(released(by_pool(0)), [own], "its own guard releases it, and the answer says that it stays");
    let all = released(Scope::Everything);
    assert_eq!(all.len(), 20);
    assert!(all.iter().all(|one| one.reason == HeldReason::Breaker && one.still.is_none()), "{all:?}");
    assert!(fixture.machine.breaker.tripped().is_none());
    assert_eq!(fixture.request_release(Scope::Everything), nothing(ReleaseRefusal::NothingHeld));
}

#[test]
fn g6_a_release_says_that_add_only_still_holds_the_members() {
    let mut fixture = settled(&[1, 2, 3]);
    fixture.pass(60_000);
    fixture.service(fact(1, "web", Part { unusable: true, ..Part::default() }));
    policy(&mut fixture, None, mode(Mode::AddOnly));
    assert_eq!(held(&fixture), Some(HeldReason::NoUsableNode));
    let (still, pool) = (Some(HeldReason::AddOnly), id("lb", "shop-web"));
    let own = Released { pool: pool.clone(), reason: HeldReason::NoUsableNode, still };
    let released = Answer::Done(Done::Released { pools: vec![own], nodes: Vec::new() });
    assert_eq!(fixture.request_release(Scope::Pool(pool)), released);
    fixture.pass(30_000);
    assert_eq!(held(&fixture), Some(HeldReason::AddOnly));
}

#[test]
fn n5_the_answer_includes_nodes_released_by_the_same_request() {
    let nodes = ["node-1", "node-2"];
    let names: Vec<NodeName> = nodes.map(NodeName::new).into();
    let only_nodes = Answer::Done(Done::Released { pools: Vec::new(), nodes: names.clone() });
    let mut fixture = settled(&[1]);
    assert_eq!(fixture.request_release(Scope::Everything), nothing(ReleaseRefusal::NothingHeld));
    assert_eq!(
        fixture.request_release_with(Scope::Everything, &nodes),
        only_nodes,
        "no removal is held, and it is done"
    );

    // The two machines may be informed at different times that no writes are permitted.
    fixture.reporting(None);
    assert_eq!(fixture.request_release(Scope::Everything), Answer::Refused(Refusal::NotLeading));
    assert_eq!(fixture.request_release_with(Scope::Everything, &nodes), only_nodes);

    let mut fixture = stopped();
    let Answer::Done(Done::Released { pools, nodes }) =
        fixture.request_release_with(Scope::Everything, &nodes)
    else {
        panic!("it is refused")
    };
    assert_eq!((pools.len(), nodes), (20, names), "both are released");
}
