//! Tests of conditions that are reported once in each term, on the test's clock.

use super::*;
use model::policy::Pause;

/// Creates pools that are shared, held, not manageable and in sync, without any reports.
fn conditions() -> Fixture {
    let mut fixture = Fixture::running();
    fixture.reporting(None);
    for (n, name) in [(1, "web"), (2, "web"), (3, "held"), (4, "refused"), (5, "web-5")] {
        fixture.service(fact(n, name, part(&[1], &[])));
    }
    fixture.observe(&all_pools(true));
    fixture.service(fact(3, "held", part(&[], &[])));
    fixture
}

fn all_pools(outbound: bool) -> Arc<LbFacts> {
    let mut refused = pool("lb", "shop-refused", &[1]);
    refused.outbound_rule = outbound;
    let pools = vec![
        pool("lb", "shop-web", &[1]),
        pool("lb", "shop-held", &[1]),
        refused,
        pool("lb", "shop-web-5", &[1]),
    ];
    let rules = vec![
        rule(1, "shop-web"),
        rule(2, "shop-web"),
        rule(3, "shop-held"),
        rule(4, "shop-refused"),
        rule(5, "shop-web-5"),
    ];
    balancer("lb", pools, rules)
}

/// Returns the reports, by pool, in order.
fn told(fixture: &mut Fixture) -> Vec<(&'static str, String)> {
    let told = |what| match what {
        EventKind::NotManageable { pool, .. } => ("refused", pool.pool.to_string()),
        EventKind::Shared { pool, .. } => ("shared", pool.pool.to_string()),
        EventKind::Held { pool, .. } => ("held", pool.pool.to_string()),
        EventKind::RemovalsStopped { .. } => ("stopped", String::new()),
        EventKind::Updated { .. }
        | EventKind::Retrying { .. }
        | EventKind::FailedTerminal { .. }
        | EventKind::FailedExhausted { .. }
        | EventKind::Blocked { .. }
        | EventKind::LeaseHeld { .. }
        | EventKind::Contested { .. }
        | EventKind::WritesLost { .. }
        | EventKind::Quarantined { .. }
        | EventKind::SourceFailing { .. }
        | EventKind::SourceRecovered { .. }
        | EventKind::DataError { .. }
        | EventKind::Undecodable { .. }
        | EventKind::AdminDown { .. }
        | EventKind::AdminRestored { .. }
        | EventKind::AdminFailed { .. }
        | EventKind::AdminHeld { .. }
        | EventKind::AdminForeign { .. } => panic!("not the Directory's to tell"),
    };
    let mut all: Vec<_> = fixture.reports().into_iter().map(told).collect();
    all.sort();
    all
}

fn all_three() -> Vec<(&'static str, String)> {
    vec![
        ("held", "shop-held".to_owned()),
        ("refused", "shop-refused".to_owned()),
        ("shared", "shop-web".to_owned()),
    ]
}

#[test]
fn e1_earlier_conditions_are_reported_when_a_term_begins() {
    let mut fixture = conditions();
    assert_eq!(told(&mut fixture), [], "a standby makes no reports");
    fixture.reporting(Some(1));
    assert_eq!(told(&mut fixture), all_three());
    for _ in 0..10 {
        fixture.reporting(Some(1));
        fixture.observe(&all_pools(true));
        fixture.pass(5_000);
    }
    assert_eq!(told(&mut fixture), [], "it is told once in a term");
}

#[test]
fn e1_lasting_conditions_are_reported_again_in_each_term() {
    for heard in [true, false] {
        let mut fixture = conditions();
        fixture.reporting(Some(1));
        assert_eq!(told(&mut fixture), all_three());
        if heard {
            fixture.reporting(None);
        }
        assert_eq!(told(&mut fixture), []);
        fixture.reporting(Some(2));
        assert_eq!(told(&mut fixture), all_three());
    }
}

#[test]
fn e1_conditions_that_end_as_a_term_begins_are_not_reported() {
    let mut fixture = conditions();
    let mut out = Vec::new();
    fixture.machine.step(fixture.now, In::Reporting(Some(Epoch(1))), &mut out);
    for (n, name) in [(2, "other"), (3, "held")] {
        let back = Arc::new(fact(n, name, part(&[1], &[])));
        fixture.machine.step(fixture.now, In::Service(back.uid.clone(), Some(back)), &mut out);
    }
    let facts = all_pools(false);
    let seen = LbObservation {
        lb: facts.lb.clone(),
        began: fixture.now,
        facts: Some(facts),
        puts: Default::default(),
    };
    fixture.machine.step(fixture.now, In::Lb(seen), &mut out);
    fixture.machine.tick(fixture.now, &mut out);
    fixture.receive(out);
    assert_eq!(told(&mut fixture), [("shared", "shop-web".to_owned())], "that one lasts");
}

#[test]
fn e1_a_term_that_ends_within_the_turn_reports_nothing() {
    let mut fixture = conditions();
    let mut out = Vec::new();
    fixture.machine.step(fixture.now, In::Reporting(Some(Epoch(1))), &mut out);
    fixture.machine.step(fixture.now, In::Reporting(None), &mut out);
    fixture.machine.tick(fixture.now, &mut out);
    fixture.receive(out);
    assert_eq!(told(&mut fixture), []);
    fixture.reporting(Some(2));
    assert_eq!(told(&mut fixture), all_three());
}

#[test]
fn g6_a_paused_pool_has_no_reports_until_the_pause_ends() {
    let pools = ["shop-web", "shop-held", "shop-refused"].map(|name| (id("lb", name), Pause::default()));
    let services = ["web", "held", "refused"].map(|name| (ServiceKey::new("shop", name), Pause::default()));
    let by_pool = OperatorPolicy { pools: pools.into(), ..OperatorPolicy::default() };
    let by_service = OperatorPolicy { services: services.into(), ..OperatorPolicy::default() };
    for policy in [by_pool, by_service] {
        let mut fixture = conditions();
        fixture.send(In::OperatorPolicy { term: None, policy: Arc::new(policy.clone()) });
        fixture.reporting(Some(1));
        assert_eq!(told(&mut fixture), [], "as where everything is only observed");
        fixture.send(In::OperatorPolicy { term: None, policy: Arc::default() });
        assert_eq!(told(&mut fixture), all_three(), "what lasts is told when it ends");
        fixture.send(In::OperatorPolicy { term: None, policy: Arc::new(policy) });
        fixture.observe(&all_pools(true));
        assert_eq!(told(&mut fixture), []);
        fixture.send(In::OperatorPolicy { term: None, policy: Arc::default() });
        assert_eq!(told(&mut fixture), all_three());
    }
    let mut fixture = conditions();
    fixture.service(ServiceFact { paused: true, ..fact(3, "held", part(&[], &[])) });
    fixture.service(ServiceFact { paused: true, ..fact(4, "refused", part(&[1], &[])) });
    fixture.reporting(Some(1));
    assert_eq!(told(&mut fixture), [("shared", "shop-web".to_owned())], "the annotation pauses as well");
}
