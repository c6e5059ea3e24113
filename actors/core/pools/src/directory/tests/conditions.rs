//! Conditions that are reported once in each term, on the test's clock.

use super::*;
use model::policy::Pause;

/// Pools that are shared, held, not manageable and in sync, while nothing is reported.
fn conditions() -> Bench {
    let mut bench = Bench::running();
    bench.reporting(None);
    for (n, name) in [(1, "web"), (2, "web"), (3, "held"), (4, "refused"), (5, "web-5")] {
        bench.service(fact(n, name, part(&[1], &[])));
    }
    bench.observe(&all_pools(true));
    bench.service(fact(3, "held", part(&[], &[])));
    bench
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
fn told(bench: &mut Bench) -> Vec<(&'static str, String)> {
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
    let mut all: Vec<_> = bench.reports().into_iter().map(told).collect();
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
fn e1_what_begins_without_a_term_is_reported_once_when_a_term_begins() {
    let mut bench = conditions();
    assert_eq!(told(&mut bench), [], "a standby makes no reports");
    bench.reporting(Some(1));
    assert_eq!(told(&mut bench), all_three());
    for _ in 0..10 {
        bench.reporting(Some(1));
        bench.observe(&all_pools(true));
        bench.pass(5_000);
    }
    assert_eq!(told(&mut bench), [], "it is told once in a term");
}

#[test]
fn e1_what_lasts_is_reported_again_in_the_next_term() {
    for heard in [true, false] {
        let mut bench = conditions();
        bench.reporting(Some(1));
        assert_eq!(told(&mut bench), all_three());
        if heard {
            bench.reporting(None);
        }
        assert_eq!(told(&mut bench), []);
        bench.reporting(Some(2));
        assert_eq!(told(&mut bench), all_three());
    }
}

#[test]
fn e1_what_has_ended_in_the_turn_in_which_a_term_opens_is_not_reported() {
    let mut bench = conditions();
    let mut out = Vec::new();
    bench.machine.step(bench.now, In::Reporting(Some(Epoch(1))), &mut out);
    for (n, name) in [(2, "other"), (3, "held")] {
        let back = Arc::new(fact(n, name, part(&[1], &[])));
        bench.machine.step(bench.now, In::Service(back.uid.clone(), Some(back)), &mut out);
    }
    let facts = all_pools(false);
    let seen = LbObservation {
        lb: facts.lb.clone(),
        began: bench.now,
        facts: Some(facts),
        puts: Default::default(),
    };
    bench.machine.step(bench.now, In::Lb(seen), &mut out);
    bench.machine.tick(bench.now, &mut out);
    bench.receive(out);
    assert_eq!(told(&mut bench), [("shared", "shop-web".to_owned())], "that one lasts");
}

#[test]
fn e1_a_term_that_ends_before_the_turn_does_reports_nothing() {
    let mut bench = conditions();
    let mut out = Vec::new();
    bench.machine.step(bench.now, In::Reporting(Some(Epoch(1))), &mut out);
    bench.machine.step(bench.now, In::Reporting(None), &mut out);
    bench.machine.tick(bench.now, &mut out);
    bench.receive(out);
    assert_eq!(told(&mut bench), []);
    bench.reporting(Some(2));
    assert_eq!(told(&mut bench), all_three());
}

#[test]
fn g6_of_a_pool_that_is_paused_nothing_is_reported_until_the_pause_ends() {
    let pools = ["shop-web", "shop-held", "shop-refused"].map(|name| (id("lb", name), Pause::default()));
    let services = ["web", "held", "refused"].map(|name| (ServiceKey::new("shop", name), Pause::default()));
    let by_pool = OperatorPolicy { pools: pools.into(), ..OperatorPolicy::default() };
    let by_service = OperatorPolicy { services: services.into(), ..OperatorPolicy::default() };
    for policy in [by_pool, by_service] {
        let mut bench = conditions();
        bench.send(In::OperatorPolicy { term: None, policy: Arc::new(policy.clone()) });
        bench.reporting(Some(1));
        assert_eq!(told(&mut bench), [], "as where everything is only observed");
        bench.send(In::OperatorPolicy { term: None, policy: Arc::default() });
        assert_eq!(told(&mut bench), all_three(), "what lasts is told when it ends");
        bench.send(In::OperatorPolicy { term: None, policy: Arc::new(policy) });
        bench.observe(&all_pools(true));
        assert_eq!(told(&mut bench), []);
        bench.send(In::OperatorPolicy { term: None, policy: Arc::default() });
        assert_eq!(told(&mut bench), all_three());
    }
    let mut bench = conditions();
    bench.service(ServiceFact { paused: true, ..fact(3, "held", part(&[], &[])) });
    bench.service(ServiceFact { paused: true, ..fact(4, "refused", part(&[1], &[])) });
    bench.reporting(Some(1));
    assert_eq!(told(&mut bench), [("shared", "shop-web".to_owned())], "the annotation pauses as well");
}
