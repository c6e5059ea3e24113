//! Tests of the number of concurrent reads, and of the delay that load balancers without an answer cause for others
//! (D3).

use super::*;

/// Creates a fixture with these numbers of load balancers that hang and that answer, in this order.
fn with_hanging(hanging: usize, healthy: usize) -> (Fixture, Vec<String>) {
    let names =
        |kind: &str, count: usize| -> Vec<String> { (0..count).map(|n| format!("{kind}-{n:02}")).collect() };
    let (silent, healthy) = (names("hangs", hanging), names("healthy", healthy));
    let all: Vec<&str> = silent.iter().chain(&healthy).map(String::as_str).collect();
    let mut fixture = Fixture::new(&all);
    for lb in &silent {
        fixture.set(lb, Answer::Never);
    }
    (fixture, healthy)
}

#[test]
fn d3_twenty_hanging_lbs_delay_thirty_by_less_than_4_s() {
    let (mut fixture, healthy) = with_hanging(20, 30);
    fixture.step(In::ListsSynced);
    fixture.pass(4_000);
    let seen: BTreeSet<&str> = fixture
        .said
        .iter()
        .filter_map(|said| if let Out::Lb(seen) = said { Some(seen.lb.as_str()) } else { None })
        .collect();
    assert_eq!(seen, healthy.iter().map(String::as_str).collect());
    assert_eq!(fixture.synced_sent(), 1);
}

#[test]
fn d3_up_to_eight_lbs_are_read_concurrently() {
    let (mut fixture, healthy) = with_hanging(0, 20);
    fixture.step(In::ListsSynced);
    fixture.pass(1_000);
    let expected: Vec<(u64, String)> =
        healthy.into_iter().enumerate().map(|(n, lb)| (n as u64 / 8 * 100, lb)).collect();
    assert_eq!(fixture.reads, expected);
}

#[test]
fn d3_two_slow_lbs_are_read_concurrently_and_delay_no_other() {
    let (mut fixture, _) = with_hanging(20, 30);
    fixture.step(In::ListsSynced);
    // Each has timed out once, and a second read of each is due.
    fixture.pass(140_000);
    for _ in 0..1_200 {
        fixture.pass(1_000);
        let hanging = fixture.open.keys().filter(|lb| lb.as_str().starts_with("hangs")).count();
        assert!(hanging <= 2, "{hanging}");
    }
    fixture.reads.clear();
    fixture.pass(60_000);
    assert_eq!(fixture.reads.iter().filter(|(_, lb)| lb.starts_with("healthy")).count(), 30);
    fixture.reads.clear();
    fixture.step(In::StartRound);
    fixture.pass(500);
    assert_eq!(fixture.reads.iter().filter(|(_, lb)| lb.starts_with("healthy")).count(), 30);
}

#[test]
fn d3_all_hanging_lbs_are_read_in_turn() {
    let (mut fixture, _) = with_hanging(20, 0);
    fixture.step(In::ListsSynced);
    fixture.pass(130_000);
    fixture.reads.clear();
    fixture.pass(11 * 120_000);
    let read: BTreeSet<&str> = fixture.reads.iter().map(|(_, lb)| lb.as_str()).collect();
    assert_eq!(read.len(), 20, "{read:?}");
}

#[test]
fn d3_an_lb_that_answers_again_is_not_slow() {
    let (mut fixture, _) = with_hanging(3, 0);
    fixture.step(In::ListsSynced);
    fixture.pass(120_000);
    for lb in ["hangs-00", "hangs-01", "hangs-02"] {
        fixture.set(lb, Answer::Is(balancer(lb, &[])));
    }
    fixture.pass(5_500);
    assert_eq!(fixture.said.iter().filter(|said| matches!(said, Out::Lb(_))).count(), 3);
    fixture.reads.clear();
    fixture.step(In::StartRound);
    fixture.pass(50);
    assert_eq!(fixture.reads.len(), 3, "all at once");
}

#[test]
fn d3_an_lb_that_fails_immediately_is_not_slow() {
    let (mut fixture, _) = with_hanging(3, 0);
    for lb in ["hangs-00", "hangs-01", "hangs-02"] {
        fixture.set(lb, Answer::Fails(FailureKind::Status(503)));
    }
    fixture.step(In::ListsSynced);
    fixture.pass(5_150);
    assert_eq!(fixture.reads.iter().filter(|(at, _)| *at == 5_100).count(), 3);
}

#[test]
fn d3_synced_waits_one_second_for_the_other_lbs() {
    for hanging in [1, 8, 20] {
        let (mut fixture, _) = with_hanging(hanging, 1);
        fixture.step(In::ListsSynced);
        // By then enough hanging reads are late to free a place for the one that answers.
        let first = hanging as u64 / 8 * 1_000 + 100;
        fixture.pass(first + 999);
        assert_eq!(fixture.synced_sent(), 0, "{hanging}");
        fixture.pass(1);
        assert_eq!(fixture.synced_sent(), 1, "{hanging}");
    }
}

#[test]
fn w9_a_read_that_waits_for_the_budget_keeps_its_place() {
    let (mut fixture, _) = with_hanging(0, 20);
    fixture.throttled = true;
    fixture.step(In::ListsSynced);
    fixture.pass(119_000);
    assert_eq!(fixture.reads.len(), 8);
    fixture.pass(2_000);
    let error = fixture.view("healthy-00").last_error.expect("its read timed out");
    assert!(error.starts_with("not sent within 2 min"), "{error}");
    fixture.throttled = false;
    fixture.send();
    fixture.pass(10_000);
    assert_eq!(fixture.synced_sent(), 1);
    assert_eq!(fixture.view("healthy-00").last_error, None);
}

#[test]
fn d3_at_most_64_reads_are_unanswered() {
    let (mut fixture, _) = with_hanging(100, 1);
    fixture.step(In::ListsSynced);
    fixture.pass(100_000);
    assert_eq!((fixture.reads.len(), fixture.open.len()), (64, 64));
    fixture.pass(60_000);
    assert_eq!(fixture.reads_of("healthy-00").len(), 1, "it is read when other reads time out");
}

#[test]
fn d6_if_all_reads_fail_synced_waits_for_retries() {
    let (mut fixture, healthy) = with_hanging(0, 3);
    for lb in &healthy {
        fixture.set(lb, Answer::Fails(FailureKind::Connection));
    }
    fixture.step(In::ListsSynced);
    fixture.pass(1_000);
    for lb in &healthy {
        fixture.set(lb, Answer::Is(balancer(lb, &[])));
    }
    fixture.pass(10_000);
    let place = |is: fn(&Out) -> bool| fixture.said.iter().rposition(is).expect("it is an output");
    assert!(place(|said| matches!(said, Out::Synced)) > place(|said| matches!(said, Out::Lb(_))));
}
