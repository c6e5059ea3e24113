//! How often an absent load balancer that only internal Services use is read (D3).

use super::*;

fn internal(n: u32) -> ServiceFact {
    ServiceFact { internal: true, ..candidate(n) }
}

/// A load balancer and its internal one, which is absent; all first reads have ended.
fn without_internal() -> Bench {
    let mut bench = Bench::new(&["a", "a-internal"]);
    bench.arm.remove(&LbName::new("a-internal"));
    bench.step(In::ListsSynced);
    bench.pass(1_000);
    bench.reads.clear();
    bench
}

#[test]
fn d3_an_absent_internal_lb_is_read_every_10_min() {
    let mut bench = without_internal();
    bench.pass(30 * 60_000);
    assert_eq!(bench.reads_of("a-internal"), [600_000, 1_200_000, 1_800_000]);
    assert_eq!(bench.reads_of("a").len(), 30);
}

#[test]
fn d3_extra_rounds_skip_unusable_internal_lbs() {
    let mut bench = without_internal();
    bench.service(candidate(1));
    bench.step(In::ForeignRelease);
    bench.step(In::ReadSoon);
    bench.pass(50_000);
    assert!(bench.reads_of("a").len() > 4, "{:?}", bench.reads);
    assert!(bench.reads_of("a-internal").is_empty());
    bench.step(In::StartRound);
    bench.step(In::Compare(RequestId(1), None));
    bench.pass(50);
    assert_eq!(bench.reads_of("a-internal"), [51_000], "a new term and an operator request read all");
}

#[test]
fn d3_a_service_that_could_use_an_absent_lb_causes_a_read() {
    let mut bench = without_internal();
    bench.service(internal(1));
    bench.pass(11_000);
    assert_eq!(bench.reads_of("a-internal"), [1_000, 3_000, 6_000, 11_000], "and until it has a rule");
    bench.step(In::Service(uid(1), None));
    bench.pass(60_000);
    bench.reads.clear();
    bench.service(candidate(2));
    bench.pass(1_000);
    assert!(bench.reads_of("a-internal").is_empty());
    bench.service(internal(2));
    bench.pass(900);
    assert_eq!(bench.reads_of("a-internal"), [73_000], "a Service that becomes internal");
}

#[test]
fn d3_an_lb_that_is_created_late_is_found_within_a_minute() {
    let mut bench = without_internal();
    bench.service(internal(1));
    bench.pass(59_000 + 5 * 60_000);
    let reads = bench.reads_of("a-internal");
    assert_eq!(reads[..5], [1_000, 3_000, 6_000, 11_000, 21_000], "with growing gaps");
    assert_eq!(reads[5..], [41_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000]);
    bench.set("a-internal", Answer::Is(balancer("a-internal", &[(1, "shop-s1")])));
    bench.said.clear();
    bench.pass(60_500);
    let seen = |said: &Out| matches!(said, Out::Lb(seen) if seen.facts.as_ref().is_some_and(|facts| facts.lb == LbName::new("a-internal")));
    assert!(bench.said.iter().any(seen), "{:?}", bench.reads_of("a-internal"));
}

#[test]
fn d3_a_service_that_lost_its_rule_could_use_an_absent_lb() {
    let mut bench = without_internal();
    bench.set("a", Answer::Is(balancer("a", &[(1, "shop-s1")])));
    bench.service(internal(1));
    bench.pass(359_500);
    assert_eq!(bench.reads_of("a-internal"), [1_000, 3_000], "it has a rule");
    // The Service does not change, and the cloud-controller-manager moves it to a load balancer that it creates late.
    bench.set("a", Answer::Is(balancer("a", &[])));
    bench.pass(120_000);
    assert_eq!(bench.reads_of("a-internal")[2..], [420_000, 480_000]);
}

#[test]
fn d3_a_failed_read_of_an_absent_lb_is_retried_soon() {
    let mut bench = without_internal();
    bench.set("a-internal", Answer::Fails(FailureKind::Status(500)));
    bench.pass(600_000);
    bench.arm.remove(&LbName::new("a-internal"));
    bench.pass(5_000 + 600_000);
    assert_eq!(bench.reads_of("a-internal"), [600_000, 605_100, 1_200_000]);
}

#[test]
fn d3_a_service_need_not_be_a_candidate() {
    let mut bench = without_internal();
    let other = |candidacy, exposure| ServiceFact { candidacy, exposure, ..internal(1) };
    bench.service(other(Candidacy::NotLoadBalancer, 0));
    bench.pass(4_000);
    assert!(bench.reads.is_empty());
    bench.service(other(Candidacy::NotMultiSlb, 0));
    bench.pass(10_000);
    bench.service(ServiceFact { revision: 1, ..other(Candidacy::NotMultiSlb, 0) });
    bench.pass(10_000);
    bench.service(other(Candidacy::NotMultiSlb, 1));
    bench.pass(10_000);
    assert_eq!(bench.reads_of("a-internal"), [5_000, 25_000], "when it is new, and when it has an ingress");
}

#[test]
fn d3_many_internal_services_cause_one_read_per_5_s() {
    let mut bench = without_internal();
    for n in 0..100 {
        bench.step(In::Service(uid(n), Some(Arc::new(internal(n)))));
        bench.step(In::Service(uid(n), None));
        bench.pass(150);
    }
    let caused = bench.reads_of("a-internal").len();
    // The extra rounds, 2 s apart, read it too.
    assert!(caused <= 4 + 9, "{:?}", bench.reads_of("a-internal"));
}

#[test]
fn d3_a_created_internal_lb_is_read_every_interval() {
    let mut bench = without_internal();
    bench.set("a-internal", Answer::Is(balancer("a-internal", &[(1, "shop-s1")])));
    bench.service(internal(1));
    bench.pass(179_500);
    assert_eq!(bench.reads_of("a-internal"), [1_000, 3_000, 60_000, 120_000, 180_000]);
    bench.arm.remove(&LbName::new("a-internal"));
    bench.step(In::Service(uid(1), None));
    bench.pass(1_200_000);
    assert_eq!(bench.reads_of("a-internal")[5..], [182_500, 780_000, 1_380_000]);
}

#[test]
fn d3_other_absent_lbs_are_read_every_interval() {
    let mut bench = Bench::synced(&["a"]);
    bench.arm.remove(&LbName::new("a"));
    bench.pass(600_000);
    assert_eq!(bench.reads_of("a").len(), 10);
}
