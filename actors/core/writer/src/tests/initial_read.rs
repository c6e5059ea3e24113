//! Tests of the initial read of a load balancer in each term (W1, W2, W8).

use super::*;
use model::blocked::Blocked;

/// A leader without any initial read in its term.
fn fresh(params: Params) -> Bench {
    let mut bench = Bench { at_rest: false, ..Bench::new(params) };
    assert!(calls(&bench.lead(1)).is_empty());
    bench
}

fn at_rest(lb: &str) -> ArmAnswer {
    lb_of(lb, Provisioning::Succeeded, Vec::new())
}

fn updating(lb: &str) -> ArmAnswer {
    lb_of(lb, Provisioning::Updating, Vec::new())
}

/// Advances the clock to the next initial read, and returns its call.
fn next_initial_read(bench: &mut Bench, lb: &str) -> CallId {
    loop {
        let next = bench.writer.deadline().expect("it goes on").as_micros().div_ceil(1_000);
        let output = bench.until(next.max(bench.now));
        assert!(takes(&output).is_empty(), "nothing is granted unseen: {output:?}");
        if !calls(&output).is_empty() {
            return lb_read(&output, lb);
        }
    }
}

/// Requests a read of a load balancer by Discovery, and returns the call to ARM.
fn discover(bench: &mut Bench, lb: &str) -> CallId {
    lb_read(&bench.step(In::Read { call: CallId(900), lb: LbName::new(lb) }), lb)
}

#[test]
fn w8_a_load_balancer_is_seen_at_rest_before_the_first_put_of_a_term() {
    let mut bench = fresh(params());
    let (web, other, third) = (pool("lb", "web"), pool("lb", "x-other"), pool("lb", "third"));
    let output = bench.due(&web, due(0, MembershipUrgency::Add));
    assert!(takes(&output).is_empty());
    let call = lb_read(&output, "lb");
    assert!(bench.due(&other, due(0, MembershipUrgency::Add)).is_empty(), "one read is enough");
    let attempt = take(&bench.answer(call, at_rest("lb")));
    let second = take(&nothing_to_do(&mut bench, &web, attempt));
    nothing_to_do(&mut bench, &other, second);
    assert!(bench.writer.lanes.is_empty());
    take(&bench.due(&third, due(0, MembershipUrgency::Add)));
    take(&{
        let output = bench.due(&pool("second", "web"), due(0, MembershipUrgency::Add));
        bench.answer(lb_read(&output, "second"), at_rest("second"))
    });
}

#[test]
fn w2_what_runs_when_a_term_begins_is_read_after_5_10_20_and_30_s() {
    let mut bench = fresh(Params { turns: 1, ..params() });
    let web = pool("lb", "web");
    let mut call = lb_read(&bench.due(&web, due(0, MembershipUrgency::Revive)), "lb");
    for seconds in [5, 15, 35, 65, 95] {
        let output = bench.answer(call, updating("lb"));
        assert!(output.is_empty() && bench.writer.busy == 0, "{output:?}");
        let shown = bench.writer.lanes[&LbName::new("lb")].blocked(at(bench.now));
        assert_eq!(shown, Some(Blocked::LaneInDoubt.until(at(seconds * 1_000))));
        call = next_initial_read(&mut bench, "lb");
        assert_eq!(bench.now, seconds * 1_000);
    }
    // The turn is free meanwhile: the only turn serves another load balancer.
    let output = bench.due(&pool("other", "web"), due(0, MembershipUrgency::Add));
    let attempt = take(&bench.answer(lb_read(&output, "other"), at_rest("other")));
    nothing_to_do(&mut bench, &pool("other", "web"), attempt);
    take(&bench.answer(call, at_rest("lb")));
}

#[test]
fn w8_an_own_operation_of_an_older_term_is_not_superseded() {
    let mut bench = fresh(params());
    let (web, other) = (pool("lb", "web"), pool("lb", "other"));
    let output = bench.due(&web, due(0, MembershipUrgency::Add));
    let attempt = take(&bench.answer(lb_read(&output, "lb"), at_rest("lb")));
    let read = bench.take_level(&web, attempt, &[1]);
    let (call, _, _) = put(&bench.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    bench.answer(call, accepted(Provisioning::Updating, RetryAfter::Absent));
    bench.step(In::Leadership(Leadership::Standby));
    assert!(bench.due(&other, due(0, MembershipUrgency::Revive)).is_empty());
    let call = lb_read(&bench.lead(2), "lb");
    assert!(takes(&bench.answer(call, updating("lb"))).is_empty());
    let call = next_initial_read(&mut bench, "lb");
    assert_eq!(take(&bench.answer(call, at_rest("lb"))).epoch, Epoch(2));
}

#[test]
fn w8_a_pool_with_an_operation_keeps_its_load_balancer_closed() {
    let mut bench = fresh(params());
    let call = lb_read(&bench.due(&pool("lb", "web"), due(0, MembershipUrgency::Add)), "lb");
    let runs = PoolFacts { provisioning: Provisioning::Updating, ..pool_with(&pool("lb", "other"), &[1]) };
    let output = bench.answer(call, lb_of("lb", Provisioning::Succeeded, vec![runs]));
    assert!(takes(&output).is_empty());
    assert_eq!((next_initial_read(&mut bench, "lb"), bench.now), (CallId(2), 5_000));
}

#[test]
fn w8_a_discovery_read_of_the_term_counts_as_the_initial_read() {
    let mut bench = fresh(params());
    let (web, older) = (pool("lb", "web"), discover(&mut bench, "lb"));
    bench.step(In::Leadership(Leadership::Standby));
    let standby = discover(&mut bench, "lb");
    bench.lead(2);
    bench.answer(older, at_rest("lb"));
    bench.answer(standby, at_rest("lb"));
    let call = lb_read(&bench.due(&web, due(0, MembershipUrgency::Add)), "lb");
    let output = bench.answer(call, updating("lb"));
    assert!(output.is_empty());
    let younger = discover(&mut bench, "lb");
    take(&bench.answer(younger, at_rest("lb")));
    // Nothing is read twice: a load balancer that discovery has read is open when a pool becomes due.
    let read = discover(&mut bench, "second");
    bench.answer(read, at_rest("second"));
    take(&bench.due(&pool("second", "web"), due(0, MembershipUrgency::Add)));
}

#[test]
fn w8_a_discovery_that_fails_neither_opens_a_lane_nor_delays_its_read() {
    let mut bench = fresh(params());
    let call = lb_read(&bench.due(&pool("lb", "web"), due(0, MembershipUrgency::Add)), "lb");
    for answer in [updating("lb"), ArmAnswer::Failed(failed(500, "", RetryAfter::Absent))] {
        let read = discover(&mut bench, "lb");
        assert!(takes(&bench.answer(read, answer)).is_empty());
    }
    take(&bench.answer(call, at_rest("lb")));
}

#[test]
fn w8_an_absent_load_balancer_is_left_to_the_reads_of_its_pools() {
    let mut bench = fresh(params());
    let web = pool("lb", "web");
    let call = lb_read(&bench.due(&web, due(0, MembershipUrgency::Add)), "lb");
    let attempt = take(&bench.fail(call, failed(404, "ResourceNotFound", RetryAfter::Absent)));
    let read = bench.take_level(&web, attempt, &[1]);
    let output = bench.fail(read, failed(404, "ResourceNotFound", RetryAfter::Absent));
    assert!(matches!(outcome(&output, attempt), Outcome::Stale));
}

#[test]
fn w8_an_unreadable_load_balancer_is_opened_after_about_15_min() {
    let mut bench = fresh(params());
    let mut call = lb_read(&bench.due(&pool("lb", "web"), due(0, MembershipUrgency::Add)), "lb");
    let mut reads = 1;
    let opened = loop {
        let answer = match reads % 3 {
            0 => ArmAnswer::Failed(failed(500, "", RetryAfter::Absent)),
            1 => ArmAnswer::Failed(failed(403, "AuthorizationFailed", RetryAfter::Absent)),
            _ => ArmAnswer::Withheld,
        };
        let output = bench.answer(call, answer);
        if !takes(&output).is_empty() {
            break bench.now;
        }
        call = next_initial_read(&mut bench, "lb");
        reads += 1;
    };
    assert!((14 * 60_000..16 * 60_000).contains(&opened), "after {opened} ms and {reads} reads");
}

#[test]
fn w8_an_unanswered_put_of_an_older_term_spoils_the_reads_that_overlap_it() {
    let mut bench = fresh(params());
    let (web, other) = (pool("lb", "web"), pool("lb", "other"));
    let output = bench.due(&web, due(0, MembershipUrgency::Add));
    let attempt = take(&bench.answer(lb_read(&output, "lb"), at_rest("lb")));
    let read = bench.take_level(&web, attempt, &[1]);
    let (put, _, _) = put(&bench.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    bench.lead(2);
    assert!(bench.due(&other, due(0, MembershipUrgency::Add)).is_empty(), "the PUT has the lane");
    let early = discover(&mut bench, "lb");
    bench.answer(early, at_rest("lb"));
    let overlapping = discover(&mut bench, "lb");
    let call = lb_read(&bench.answer(put, accepted(Provisioning::Updating, RetryAfter::Absent)), "lb");
    assert!(takes(&bench.answer(overlapping, at_rest("lb"))).is_empty(), "it may have come before the PUT");
    take(&bench.answer(call, at_rest("lb")));
}

#[test]
fn w4_a_lane_in_doubt_from_an_older_term_is_read_as_a_whole() {
    let mut bench = fresh(Params { client_retries: 0, ..params() });
    let (web, other) = (pool("lb", "web"), pool("lb", "other"));
    let output = bench.due(&web, due(0, MembershipUrgency::Add));
    let attempt = take(&bench.answer(lb_read(&output, "lb"), at_rest("lb")));
    let read = bench.take_level(&web, attempt, &[1]);
    let (put, _, _) = put(&bench.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    bench.fail(put, failure(FailureKind::Timeout, "", RetryAfter::Absent));
    bench.lead(2);
    assert!(bench.due(&other, due(0, MembershipUrgency::Add)).is_empty(), "in doubt");
    let probe = get(&bench.until(5_000), &web);
    let output = bench.answer(probe, read_of(pool_with(&web, &[]), "W/1"));
    take(&bench.answer(lb_read(&output, "lb"), at_rest("lb")));
}

#[test]
fn w8_a_read_of_an_older_term_does_not_count_and_is_not_sent_twice() {
    let mut bench = fresh(Params { reads_per_5_minutes: 1, ..params() });
    let web = pool("lb", "web");
    let call = lb_read(&bench.due(&web, due(0, MembershipUrgency::Add)), "lb");
    assert!(calls(&bench.lead(2)).is_empty(), "no token is left");
    assert!(bench.answer(call, at_rest("lb")).is_empty(), "it began in another term");
    assert!(calls(&bench.lead(3)).is_empty());
    bench.step(In::Withdraw(web.clone()));
    assert!(calls(&bench.due(&web, due(0, MembershipUrgency::Add))).is_empty());
    let call = lb_read(&bench.until(300_000), "lb");
    assert!(calls(&bench.until(310_000)).is_empty());
    assert!(takes(&bench.step(In::Shutdown)).is_empty());
    assert!(takes(&bench.answer(call, at_rest("lb"))).is_empty());
    assert!(bench.writer.lanes.is_empty());
}

#[test]
fn w6_a_throttled_initial_read_waits_for_lock_and_gate() {
    let mut bench = fresh(params());
    let call = lb_read(&bench.due(&pool("lb", "web"), due(0, MembershipUrgency::Add)), "lb");
    let header = RetryAfter::In(Duration::from_secs(20));
    bench.fail(call, failed(429, "RetryableError", header));
    let call = next_initial_read(&mut bench, "lb");
    assert_eq!(bench.now, 20_000, "the lane was locked");
    bench.fail(call, failed(429, "TooManyRequests", header));
    let call = next_initial_read(&mut bench, "lb");
    assert_eq!(bench.now, 40_000, "the gate was closed");
    take(&bench.answer(call, at_rest("lb")));
}

#[test]
fn n3_a_down_waits_for_the_initial_read_also_without_the_shared_lease() {
    let lease = LeaseParams {
        holder: "us".into(),
        max_hold: Duration::from_secs(20),
        min_off: Duration::from_secs(5),
        bypass_for_drain: true,
    };
    let mut bench = fresh(Params { lease: Some(lease), ..params() });
    bench.step(In::Draining(drains(1)));
    let call = lb_read(&bench.step(In::AdminDue(pool("lb", "web"), Some(down(0)))), "lb");
    assert!(calls(&bench.answer(call, updating("lb"))).is_empty());
    assert!(calls(&bench.until(4_999)).is_empty(), "neither is it read nor written");
}

#[test]
fn w7_the_shared_lease_is_not_taken_before_the_initial_read() {
    let lease = LeaseParams {
        holder: "us".into(),
        max_hold: Duration::from_secs(20),
        min_off: Duration::from_secs(5),
        bypass_for_drain: false,
    };
    let mut bench = Bench { at_rest: false, ..Bench::new(Params { lease: Some(lease), ..params() }) };
    let asked = |output: &[Out]| {
        output.iter().find_map(|output| {
            let Out::Lease(id, request) = output else { return None };
            (!matches!(request, LeaseRequest::Watch(..)))
                .then_some((*id, !matches!(request, LeaseRequest::Get)))
        })
    };
    let (id, _) = asked(&bench.lead(1)).expect("it is read");
    bench.step(In::Lease(id, LeaseAnswer::Absent));
    let output = bench.due(&pool("lb", "web"), due(0, MembershipUrgency::Add));
    assert_eq!(asked(&output), None);
    let call = lb_read(&output, "lb");
    let output = bench.answer(call, updating("lb"));
    assert_eq!(asked(&output), None);
    let call = next_initial_read(&mut bench, "lb");
    assert!(matches!(asked(&bench.answer(call, at_rest("lb"))), Some((_, true))));
}
