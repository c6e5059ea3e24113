//! Tests of the initial read of a load balancer in each term (W1, W2, W8).

use super::*;
use model::blocked::Blocked;

/// Creates a leader without any initial read in its term.
fn fresh(params: Params) -> Fixture {
    let mut fixture = Fixture { at_rest: false, ..Fixture::new(params) };
    assert!(calls(&fixture.lead(1)).is_empty());
    fixture
}

fn at_rest(lb: &str) -> ArmAnswer {
    lb_of(lb, Provisioning::Succeeded, Vec::new())
}

fn updating(lb: &str) -> ArmAnswer {
    lb_of(lb, Provisioning::Updating, Vec::new())
}

/// Advances the clock to the next initial read, and returns its call.
fn next_initial_read(fixture: &mut Fixture, lb: &str) -> CallId {
    loop {
        let next = fixture.writer.deadline().expect("it goes on").as_micros().div_ceil(1_000);
        let output = fixture.until(next.max(fixture.now));
        assert!(takes(&output).is_empty(), "nothing is granted unseen: {output:?}");
        if !calls(&output).is_empty() {
            return lb_read(&output, lb);
        }
    }
}

/// Requests a read of a load balancer by Discovery, and returns the call to ARM.
fn discover(fixture: &mut Fixture, lb: &str) -> CallId {
    lb_read(&fixture.step(In::Read { call: CallId(900), lb: LbName::new(lb) }), lb)
}

#[test]
fn w8_no_put_of_a_term_before_the_balancer_was_read_idle() {
    let mut fixture = fresh(params());
    let (web, other, third) = (pool("lb", "web"), pool("lb", "x-other"), pool("lb", "third"));
    let output = fixture.due(&web, due(0, MembershipUrgency::Add));
    assert!(takes(&output).is_empty());
    let call = lb_read(&output, "lb");
    assert!(fixture.due(&other, due(0, MembershipUrgency::Add)).is_empty(), "one read is enough");
    let attempt = take(&fixture.answer(call, at_rest("lb")));
    let second = take(&nothing_to_do(&mut fixture, &web, attempt));
    nothing_to_do(&mut fixture, &other, second);
    assert!(fixture.writer.lanes.is_empty());
    take(&fixture.due(&third, due(0, MembershipUrgency::Add)));
    take(&{
        let output = fixture.due(&pool("second", "web"), due(0, MembershipUrgency::Add));
        fixture.answer(lb_read(&output, "second"), at_rest("second"))
    });
}

#[test]
fn w2_operations_at_the_start_are_polled_at_5_to_30_s() {
    let mut fixture = fresh(Params { turns: 1, ..params() });
    let web = pool("lb", "web");
    let mut call = lb_read(&fixture.due(&web, due(0, MembershipUrgency::Revive)), "lb");
    for seconds in [5, 15, 35, 65, 95] {
        let output = fixture.answer(call, updating("lb"));
        assert!(output.is_empty() && fixture.writer.busy == 0, "{output:?}");
        let shown = fixture.writer.lanes[&LbName::new("lb")].blocked(at(fixture.now));
        assert_eq!(shown, Some(Blocked::LaneInDoubt.until(at(seconds * 1_000))));
        call = next_initial_read(&mut fixture, "lb");
        assert_eq!(fixture.now, seconds * 1_000);
    }
    // The slot is free in the meantime: the only slot serves another load balancer.
    let output = fixture.due(&pool("other", "web"), due(0, MembershipUrgency::Add));
    let attempt = take(&fixture.answer(lb_read(&output, "other"), at_rest("other")));
    nothing_to_do(&mut fixture, &pool("other", "web"), attempt);
    take(&fixture.answer(call, at_rest("lb")));
}

#[test]
fn w8_an_own_operation_of_an_older_term_is_not_superseded() {
    let mut fixture = fresh(params());
    let (web, other) = (pool("lb", "web"), pool("lb", "other"));
    let output = fixture.due(&web, due(0, MembershipUrgency::Add));
    let attempt = take(&fixture.answer(lb_read(&output, "lb"), at_rest("lb")));
    let read = fixture.take_level(&web, attempt, &[1]);
    let (call, _, _) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    fixture.answer(call, accepted(Provisioning::Updating, RetryAfter::Absent));
    fixture.step(In::Leadership(Leadership::Standby));
    assert!(fixture.due(&other, due(0, MembershipUrgency::Revive)).is_empty());
    let call = lb_read(&fixture.lead(2), "lb");
    assert!(takes(&fixture.answer(call, updating("lb"))).is_empty());
    let call = next_initial_read(&mut fixture, "lb");
    assert_eq!(take(&fixture.answer(call, at_rest("lb"))).epoch, Epoch(2));
}

#[test]
fn w8_a_pool_with_an_operation_keeps_its_load_balancer_closed() {
    let mut fixture = fresh(params());
    let call = lb_read(&fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add)), "lb");
    let runs = PoolFacts { provisioning: Provisioning::Updating, ..pool_with(&pool("lb", "other"), &[1]) };
    let output = fixture.answer(call, lb_of("lb", Provisioning::Succeeded, vec![runs]));
    assert!(takes(&output).is_empty());
    assert_eq!((next_initial_read(&mut fixture, "lb"), fixture.now), (CallId(2), 5_000));
}

#[test]
fn w8_a_discovery_read_of_the_term_counts_as_the_initial_read() {
    let mut fixture = fresh(params());
    let (web, older) = (pool("lb", "web"), discover(&mut fixture, "lb"));
    fixture.step(In::Leadership(Leadership::Standby));
    let standby = discover(&mut fixture, "lb");
    fixture.lead(2);
    fixture.answer(older, at_rest("lb"));
    fixture.answer(standby, at_rest("lb"));
    let call = lb_read(&fixture.due(&web, due(0, MembershipUrgency::Add)), "lb");
    let output = fixture.answer(call, updating("lb"));
    assert!(output.is_empty());
    let younger = discover(&mut fixture, "lb");
    take(&fixture.answer(younger, at_rest("lb")));
    // No load balancer is read twice. One that discovery has read is open when a pool becomes due.
    let read = discover(&mut fixture, "second");
    fixture.answer(read, at_rest("second"));
    take(&fixture.due(&pool("second", "web"), due(0, MembershipUrgency::Add)));
}

#[test]
fn w8_a_failed_discovery_read_neither_opens_nor_delays_a_lane() {
    let mut fixture = fresh(params());
    let call = lb_read(&fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add)), "lb");
    for answer in [updating("lb"), ArmAnswer::Failed(failed(500, "", RetryAfter::Absent))] {
        let read = discover(&mut fixture, "lb");
        assert!(takes(&fixture.answer(read, answer)).is_empty());
    }
    take(&fixture.answer(call, at_rest("lb")));
}

#[test]
fn w8_reads_of_pools_handle_an_absent_load_balancer() {
    let mut fixture = fresh(params());
    let web = pool("lb", "web");
    let call = lb_read(&fixture.due(&web, due(0, MembershipUrgency::Add)), "lb");
    let attempt = take(&fixture.fail(call, failed(404, "ResourceNotFound", RetryAfter::Absent)));
    let read = fixture.take_level(&web, attempt, &[1]);
    let output = fixture.fail(read, failed(404, "ResourceNotFound", RetryAfter::Absent));
    assert!(matches!(outcome(&output, attempt), Outcome::Stale));
}

#[test]
fn w8_an_unreadable_load_balancer_is_opened_after_about_15_min() {
    let mut fixture = fresh(params());
    let mut call = lb_read(&fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add)), "lb");
    let mut reads = 1;
    let opened = loop {
        let answer = match reads % 3 {
            0 => ArmAnswer::Failed(failed(500, "", RetryAfter::Absent)),
            1 => ArmAnswer::Failed(failed(403, "AuthorizationFailed", RetryAfter::Absent)),
            _ => ArmAnswer::Withheld,
        };
        let output = fixture.answer(call, answer);
        if !takes(&output).is_empty() {
            break fixture.now;
        }
        call = next_initial_read(&mut fixture, "lb");
        reads += 1;
    };
    assert!((14 * 60_000..16 * 60_000).contains(&opened), "after {opened} ms and {reads} reads");
}

#[test]
fn w8_reads_that_overlap_an_older_terms_put_do_not_count() {
    let mut fixture = fresh(params());
    let (web, other) = (pool("lb", "web"), pool("lb", "other"));
    let output = fixture.due(&web, due(0, MembershipUrgency::Add));
    let attempt = take(&fixture.answer(lb_read(&output, "lb"), at_rest("lb")));
    let read = fixture.take_level(&web, attempt, &[1]);
    let (put, _, _) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    fixture.lead(2);
    assert!(fixture.due(&other, due(0, MembershipUrgency::Add)).is_empty(), "the PUT has the lane");
    let early = discover(&mut fixture, "lb");
    fixture.answer(early, at_rest("lb"));
    let overlapping = discover(&mut fixture, "lb");
    let call = lb_read(&fixture.answer(put, accepted(Provisioning::Updating, RetryAfter::Absent)), "lb");
    assert!(takes(&fixture.answer(overlapping, at_rest("lb"))).is_empty(), "it may have come before the PUT");
    take(&fixture.answer(call, at_rest("lb")));
}

#[test]
fn w4_a_lane_in_doubt_from_an_older_term_reads_the_balancer() {
    let mut fixture = fresh(Params { client_retries: 0, ..params() });
    let (web, other) = (pool("lb", "web"), pool("lb", "other"));
    let output = fixture.due(&web, due(0, MembershipUrgency::Add));
    let attempt = take(&fixture.answer(lb_read(&output, "lb"), at_rest("lb")));
    let read = fixture.take_level(&web, attempt, &[1]);
    let (put, _, _) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    fixture.fail(put, failure(FailureKind::Timeout, "", RetryAfter::Absent));
    fixture.lead(2);
    assert!(fixture.due(&other, due(0, MembershipUrgency::Add)).is_empty(), "in doubt");
    let probe = get(&fixture.until(5_000), &web);
    let output = fixture.answer(probe, read_of(pool_with(&web, &[]), "W/1"));
    take(&fixture.answer(lb_read(&output, "lb"), at_rest("lb")));
}

#[test]
fn w8_a_read_of_an_older_term_does_not_count() {
    let mut fixture = fresh(Params { reads_per_5_minutes: 1, ..params() });
    let web = pool("lb", "web");
    let call = lb_read(&fixture.due(&web, due(0, MembershipUrgency::Add)), "lb");
    assert!(calls(&fixture.lead(2)).is_empty(), "no token is left");
    assert!(fixture.answer(call, at_rest("lb")).is_empty(), "it began in another term");
    assert!(calls(&fixture.lead(3)).is_empty());
    fixture.step(In::Withdraw(web.clone()));
    assert!(calls(&fixture.due(&web, due(0, MembershipUrgency::Add))).is_empty());
    let call = lb_read(&fixture.until(300_000), "lb");
    assert!(calls(&fixture.until(310_000)).is_empty());
    assert!(takes(&fixture.step(In::Shutdown)).is_empty());
    assert!(takes(&fixture.answer(call, at_rest("lb"))).is_empty());
    assert!(fixture.writer.lanes.is_empty());
}

#[test]
fn w6_a_throttled_initial_read_waits_for_lock_and_gate() {
    let mut fixture = fresh(params());
    let call = lb_read(&fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add)), "lb");
    let header = RetryAfter::In(Duration::from_secs(20));
    fixture.fail(call, failed(429, "RetryableError", header));
    let call = next_initial_read(&mut fixture, "lb");
    assert_eq!(fixture.now, 20_000, "the lane was locked");
    fixture.fail(call, failed(429, "TooManyRequests", header));
    let call = next_initial_read(&mut fixture, "lb");
    assert_eq!(fixture.now, 40_000, "the gate was closed");
    take(&fixture.answer(call, at_rest("lb")));
}

#[test]
fn n3_a_down_without_the_lease_waits_for_the_initial_read() {
    let lease = LeaseParams {
        holder: "us".into(),
        max_hold: Duration::from_secs(20),
        min_cooldown: Duration::from_secs(5),
        bypass_for_drain: true,
    };
    let mut fixture = fresh(Params { lease: Some(lease), ..params() });
    fixture.step(In::Draining(drains(1)));
    let call = lb_read(&fixture.step(In::AdminDue(pool("lb", "web"), Some(down(0)))), "lb");
    assert!(calls(&fixture.answer(call, updating("lb"))).is_empty());
    assert!(calls(&fixture.until(4_999)).is_empty(), "neither is it read nor written");
}

#[test]
fn w7_the_shared_lease_is_not_taken_before_the_initial_read() {
    let lease = LeaseParams {
        holder: "us".into(),
        max_hold: Duration::from_secs(20),
        min_cooldown: Duration::from_secs(5),
        bypass_for_drain: false,
    };
    let mut fixture = Fixture { at_rest: false, ..Fixture::new(Params { lease: Some(lease), ..params() }) };
    let asked = |output: &[Out]| {
        output.iter().find_map(|output| {
            let Out::Lease(id, request) = output else { return None };
            (!matches!(request, LeaseRequest::Watch(..)))
                .then_some((*id, !matches!(request, LeaseRequest::Get)))
        })
    };
    let (id, _) = asked(&fixture.lead(1)).expect("it is read");
    fixture.step(In::Lease(id, LeaseAnswer::Absent));
    let output = fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add));
    assert_eq!(asked(&output), None);
    let call = lb_read(&output, "lb");
    let output = fixture.answer(call, updating("lb"));
    assert_eq!(asked(&output), None);
    let call = next_initial_read(&mut fixture, "lb");
    assert!(matches!(asked(&fixture.answer(call, at_rest("lb"))), Some((_, true))));
}
