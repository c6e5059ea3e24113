//! Tests of how often an absent load balancer that only internal Services use is read (D3).

use super::*;

fn internal(n: u32) -> ServiceFact {
    ServiceFact { internal: true, ..candidate(n) }
}

/// Creates a load balancer and its internal one, which is absent. All first reads have ended.
fn without_internal() -> Fixture {
    let mut fixture = Fixture::new(&["a", "a-internal"]);
    fixture.arm.remove(&LbName::new("a-internal"));
    fixture.step(In::ListsSynced);
    fixture.pass(1_000);
    fixture.reads.clear();
    fixture
}

#[test]
fn d3_an_absent_internal_lb_is_read_every_10_min() {
    let mut fixture = without_internal();
    fixture.pass(30 * 60_000);
    assert_eq!(fixture.reads_of("a-internal"), [600_000, 1_200_000, 1_800_000]);
    assert_eq!(fixture.reads_of("a").len(), 30);
}

#[test]
fn d3_extra_rounds_skip_unusable_internal_lbs() {
    let mut fixture = without_internal();
    fixture.service(candidate(1));
    fixture.step(In::ForeignRelease);
    fixture.step(In::ReadSoon);
    fixture.pass(50_000);
    assert!(fixture.reads_of("a").len() > 4, "{:?}", fixture.reads);
    assert!(fixture.reads_of("a-internal").is_empty());
    fixture.step(In::StartRound);
    fixture.step(In::Compare(RequestId(1), None));
    fixture.pass(50);
    assert_eq!(fixture.reads_of("a-internal"), [51_000], "a new term and an operator request read all");
}

#[test]
fn d3_a_service_that_could_use_an_absent_lb_causes_a_read() {
    let mut fixture = without_internal();
    fixture.service(internal(1));
    fixture.pass(11_000);
    assert_eq!(fixture.reads_of("a-internal"), [1_000, 3_000, 6_000, 11_000], "and until it has a rule");
    fixture.step(In::Service(uid(1), None));
    fixture.pass(60_000);
    fixture.reads.clear();
    fixture.service(candidate(2));
    fixture.pass(1_000);
    assert!(fixture.reads_of("a-internal").is_empty());
    fixture.service(internal(2));
    fixture.pass(900);
    assert_eq!(fixture.reads_of("a-internal"), [73_000], "a Service that becomes internal");
}

#[test]
fn d3_an_lb_that_is_created_late_is_found_within_a_minute() {
    let mut fixture = without_internal();
    fixture.service(internal(1));
    fixture.pass(59_000 + 5 * 60_000);
    let reads = fixture.reads_of("a-internal");
    assert_eq!(reads[..5], [1_000, 3_000, 6_000, 11_000, 21_000], "with growing gaps");
    assert_eq!(reads[5..], [41_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000]);
    fixture.set("a-internal", Answer::Is(balancer("a-internal", &[(1, "shop-s1")])));
    fixture.said.clear();
    fixture.pass(60_500);
    let seen = |said: &Out| matches!(said, Out::Lb(seen) if seen.facts.as_ref().is_some_and(|facts| facts.lb == LbName::new("a-internal")));
    assert!(fixture.said.iter().any(seen), "{:?}", fixture.reads_of("a-internal"));
}

#[test]
fn d3_a_service_that_lost_its_rule_could_use_an_absent_lb() {
    let mut fixture = without_internal();
    fixture.set("a", Answer::Is(balancer("a", &[(1, "shop-s1")])));
    fixture.service(internal(1));
    fixture.pass(359_500);
    assert_eq!(fixture.reads_of("a-internal"), [1_000, 3_000], "it has a rule");
    // The Service does not change, and the cloud-controller-manager moves it to a load balancer that it creates late.
    fixture.set("a", Answer::Is(balancer("a", &[])));
    fixture.pass(120_000);
    assert_eq!(fixture.reads_of("a-internal")[2..], [420_000, 480_000]);
}

#[test]
fn d3_a_failed_read_of_an_absent_lb_is_retried_soon() {
    let mut fixture = without_internal();
    fixture.set("a-internal", Answer::Fails(FailureKind::Status(500)));
    fixture.pass(600_000);
    fixture.arm.remove(&LbName::new("a-internal"));
    fixture.pass(5_000 + 600_000);
    assert_eq!(fixture.reads_of("a-internal"), [600_000, 605_100, 1_200_000]);
}

#[test]
fn d3_a_service_need_not_be_a_candidate() {
    let mut fixture = without_internal();
    let other = |candidacy, exposure| ServiceFact { candidacy, exposure, ..internal(1) };
    fixture.service(other(Candidacy::NotLoadBalancer, 0));
    fixture.pass(4_000);
    assert!(fixture.reads.is_empty());
    fixture.service(other(Candidacy::NotMultiSlb, 0));
    fixture.pass(10_000);
    fixture.service(ServiceFact { revision: 1, ..other(Candidacy::NotMultiSlb, 0) });
    fixture.pass(10_000);
    fixture.service(other(Candidacy::NotMultiSlb, 1));
    fixture.pass(10_000);
    assert_eq!(fixture.reads_of("a-internal"), [5_000, 25_000], "when it is new, and when it has an ingress");
}

#[test]
fn d3_many_internal_services_cause_one_read_per_5_s() {
    let mut fixture = without_internal();
    for n in 0..100 {
        fixture.step(In::Service(uid(n), Some(Arc::new(internal(n)))));
        fixture.step(In::Service(uid(n), None));
        fixture.pass(150);
    }
    let caused = fixture.reads_of("a-internal").len();
    // The extra rounds, which are 2 s apart, also read it.
    assert!(caused <= 4 + 9, "{:?}", fixture.reads_of("a-internal"));
}

#[test]
fn d3_a_created_internal_lb_is_read_every_interval() {
    let mut fixture = without_internal();
    fixture.set("a-internal", Answer::Is(balancer("a-internal", &[(1, "shop-s1")])));
    fixture.service(internal(1));
    fixture.pass(179_500);
    assert_eq!(fixture.reads_of("a-internal"), [1_000, 3_000, 60_000, 120_000, 180_000]);
    fixture.arm.remove(&LbName::new("a-internal"));
    fixture.step(In::Service(uid(1), None));
    fixture.pass(1_200_000);
    assert_eq!(fixture.reads_of("a-internal")[5..], [182_500, 780_000, 1_380_000]);
}

#[test]
fn d3_other_absent_lbs_are_read_every_interval() {
    let mut fixture = Fixture::synced(&["a"]);
    fixture.arm.remove(&LbName::new("a"));
    fixture.pass(600_000);
    assert_eq!(fixture.reads_of("a").len(), 10);
}
