//! Tests of the throttle gates (W6): S0's cases of its ThrottleError, its client's loop, and gate times of a
//! predecessor.

use super::super::classify::{FailureClass as Fate, ThrottleScope, classify};
use super::*;
use model::operator_request::{Done, Refusal};

const QUOTA: &str = "SubscriptionRequestsThrottled";
const LOCK: &str = "RetryableError";

fn seconds(seconds: u64) -> RetryAfter {
    RetryAfter::In(Duration::from_secs(seconds))
}

/// Returns the profile with the exact behaviour of S0 (C2).
fn upstream() -> Params {
    Params {
        retry_throttled: true,
        gates_delay_grants: false,
        throttling: Throttling::Upstream,
        breaker: false,
        etag_rounds: 1,
        ..params()
    }
}

/// Returns the time that S0's updater extracts from its ThrottleError, if it is in the future.
fn eligible_at(output: &[Out], attempt: AttemptId) -> Option<Now> {
    let found = outcome(output, attempt);
    let Outcome::Retriable { eligible_at, .. } = found else { panic!("not throttled: {found:?}") };
    *eligible_at
}

fn text_of(output: &[Out], attempt: AttemptId) -> String {
    let found = outcome(output, attempt);
    let Outcome::Retriable { failure, .. } = found else { panic!("not throttled: {found:?}") };
    failure.to_string()
}

/// Runs S0's client in these attempts until each has ended. GETs and PUTs that still reach ARM get such a 429 again.
/// Returns all output, and the number of calls that reached ARM.
fn to_the_end(
    fixture: &mut Fixture,
    mut output: Vec<Out>,
    attempts: &[AttemptId],
    in_put: bool,
    header: RetryAfter,
) -> (Vec<Out>, usize) {
    let has_ended = |output: &[Out], attempt: AttemptId| {
        output.iter().any(|output| matches!(output, Out::Finished(_, id, _) if *id == attempt))
    };
    let (latest, mut reached) = (fixture.now + 120_000, 0);
    while !attempts.iter().all(|attempt| has_ended(&output, *attempt)) {
        let next = fixture.writer.deadline().expect("they go on").as_micros().div_ceil(1_000);
        assert!(next <= latest, "an attempt takes more than two minutes: {output:?}");
        let granted = fixture.until(next.max(fixture.now));
        for (pool, attempt) in takes(&granted) {
            let mut keep_output =
                fixture.step(In::Taken(pool.clone(), attempt, Some(taken_level(&pool, &[1]))));
            while let Some(call) = calls(&keep_output).first().map(|call| (*call).clone()) {
                let is_put = matches!(call.request, ArmRequest::PutPool { .. });
                keep_output = if is_put == in_put {
                    reached += 1;
                    fixture.fail(call.id, failed(429, QUOTA, header))
                } else {
                    fixture.answer(call.id, read_of(pool_with(&pool, &[]), "W/1"))
                };
            }
            output.extend(keep_output);
        }
        output.extend(granted);
    }
    (output, reached)
}

/// Answers the GET, or the PUT, of a pool with a 429 with this header at second 50, and again on each client retry.
/// Returns the pool's retry time, and the number of these calls that reached ARM.
fn throttled(fixture: &mut Fixture, in_put: bool, header: RetryAfter) -> (Option<Now>, usize) {
    fixture.until(50_000);
    let web = pool("lb", "web");
    let (attempt, call) = if in_put { fixture.begin_put(&web, &[1]) } else { fixture.begin(&web, &[1]) };
    let output = fixture.fail(call, failed(429, QUOTA, header));
    let (output, again) = to_the_end(fixture, output, &[attempt], in_put, header);
    (eligible_at(&output, attempt), 1 + again)
}

/// Returns both profiles, each with a throttled GET and a throttled PUT, and the number of tries of one attempt.
fn ways() -> impl Iterator<Item = (Params, bool, usize)> {
    [(params(), 1), (upstream(), 4)]
        .into_iter()
        .flat_map(|(params, tries)| [false, true].map(|in_put| (params.clone(), in_put, tries)))
}

// The spans are longer than all client retries together, and some are longer than a lane or a gate stays closed. The
// pool's retry time is ARM's own, and only the first try reaches ARM.

#[test]
fn s0_throttle_1_a_429_with_whole_seconds_gives_their_end() {
    for (params, in_put, _) in ways() {
        for span in [170, 900, 3_600, 7_200, 2_000_000] {
            let found = throttled(&mut Fixture::leading(params.clone()), in_put, seconds(span));
            assert_eq!(found, (Some(at(50_000 + span * 1_000)), 1), "{span} s, {in_put}");
        }
    }
    assert_eq!(throttled(&mut Fixture::leading(params()), true, seconds(17)).0, Some(at(67_000)));
}

#[test]
fn s0_throttle_2_a_429_with_a_date_gives_that_moment() {
    // The ARM port converts a date to the span from the answer's own Date.
    for (params, in_put, _) in ways() {
        for millis in [177_250, 1_234_567, 90_000_001] {
            let span = RetryAfter::In(Duration::from_millis(millis));
            let found = throttled(&mut Fixture::leading(params.clone()), in_put, span);
            assert_eq!(found, (Some(at(50_000 + millis)), 1), "{millis} ms, {in_put}");
        }
    }
}

#[test]
fn s0_throttle_3_a_429_without_the_header_parks_nothing() {
    for (params, in_put, tries) in ways() {
        let mut fixture = Fixture::leading(params);
        assert_eq!(
            throttled(&mut fixture, in_put, RetryAfter::Absent),
            (None, tries),
            "each try reaches ARM"
        );
        take(&fixture.due(&pool("b", "other"), due(50_000, MembershipUrgency::Add)));
    }
}

#[test]
fn s0_throttle_4_an_unreadable_header_keeps_the_timer() {
    for (params, in_put, tries) in ways() {
        let mut fixture = Fixture::leading(params.clone());
        let found = throttled(&mut fixture, in_put, RetryAfter::Invalid);
        assert_eq!(found, (None, tries), "it was never set");

        let mut fixture = Fixture::leading(params);
        let begin = |fixture: &mut Fixture, pool: &PoolId| {
            if in_put { fixture.begin_put(pool, &[1]) } else { fixture.begin(pool, &[1]) }
        };
        let (first, call) = begin(&mut fixture, &pool("a", "web"));
        let (second, later) = begin(&mut fixture, &pool("b", "other"));
        let mut output = fixture.fail(call, failed(429, QUOTA, seconds(1_300)));
        fixture.until(1_000);
        output.extend(fixture.fail(later, failed(429, QUOTA, RetryAfter::Invalid)));
        let (output, again) = to_the_end(&mut fixture, output, &[first, second], in_put, RetryAfter::Invalid);
        assert_eq!(again, 0, "the gate stops every other try");
        for attempt in [first, second] {
            assert_eq!(eligible_at(&output, attempt), Some(at(1_300_000)));
        }
    }
}

#[test]
fn s0_throttle_5_a_gate_that_closes_first_gives_its_timer() {
    for (params, in_put, _) in ways() {
        let mut fixture = Fixture::leading(params);
        let (web, other) = (pool("a", "web"), pool("b", "other"));
        let attempt = take(&fixture.due(&web, due(0, MembershipUrgency::Add)));
        let (closer, call) =
            if in_put { fixture.begin_put(&other, &[1]) } else { fixture.begin(&other, &[1]) };
        let read = in_put.then(|| fixture.take_level(&web, attempt, &[1]));
        let mut output = fixture.fail(call, failed(429, QUOTA, seconds(900)));
        fixture.until(3_000);
        let met = match read {
            Some(read) => fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")),
            None => fixture.step(In::Taken(web.clone(), attempt, Some(taken_level(&web, &[1])))),
        };
        assert!(calls(&met).is_empty(), "{met:?}");
        output.extend(met);
        let (output, again) = to_the_end(&mut fixture, output, &[attempt, closer], in_put, seconds(900));
        assert_eq!(again, 0, "no try of the one that met it, no other of the one that closed it");
        for attempt in [attempt, closer] {
            assert_eq!(eligible_at(&output, attempt), Some(at(900_000)));
        }
    }
}

#[test]
fn s0_throttle_6_only_429s_and_closed_gates_are_throttling() {
    let of = |failure: Arc<Failure>| classify(&failure);
    assert_eq!(of(failed(429, QUOTA, RetryAfter::Absent)), Fate::Throttled(ThrottleScope::Subscription));
    assert_eq!(of(failure(FailureKind::GateClosed, "", seconds(3))), Fate::GateClosed);
    assert!(of(failed(429, "RetryableError", RetryAfter::Absent)).is_throttled());
    assert!(of(failed(429, "", RetryAfter::Invalid)).is_throttled());
    assert!(of(failure(FailureKind::GateClosed, "", RetryAfter::Absent)).is_throttled());
    for status in [400, 403, 404, 408, 409, 412, 500, 503] {
        assert!(!of(failed(status, "", seconds(3))).is_throttled(), "{status}");
    }
    for kind in [FailureKind::Timeout, FailureKind::PermitExpired, FailureKind::Operation] {
        assert!(!of(failure(kind, "", seconds(3))).is_throttled(), "{kind:?}");
    }
    // The pool's retry time is one of the two, depending on the try that ends it.
    for (params, in_put, _) in ways() {
        for header in [RetryAfter::Absent, seconds(900)] {
            let mut fixture = Fixture::leading(params.clone());
            let web = pool("lb", "web");
            let (attempt, call) =
                if in_put { fixture.begin_put(&web, &[1]) } else { fixture.begin(&web, &[1]) };
            let output = fixture.fail(call, failed(429, QUOTA, header));
            let (output, _) = to_the_end(&mut fixture, output, &[attempt], in_put, header);
            let found = outcome(&output, attempt);
            let Outcome::Retriable { failure, .. } = found else { panic!("not throttled: {found:?}") };
            assert!(classify(failure).is_throttled(), "{failure}");
        }
    }
}

#[test]
fn s0_throttle_7_both_causes_park_the_pool_until_the_gate_opens() {
    for (params, in_put, _) in ways() {
        for millis in [700_000, 7_200_250] {
            let mut fixture = Fixture::leading(params.clone());
            let begin = |fixture: &mut Fixture, pool: &PoolId| {
                if in_put { fixture.begin_put(pool, &[1]) } else { fixture.begin(pool, &[1]) }
            };
            let (first, call) = begin(&mut fixture, &pool("a", "web"));
            let (second, refused) = begin(&mut fixture, &pool("b", "other"));
            let header = RetryAfter::In(Duration::from_millis(millis));
            let mut output = fixture.fail(call, failed(429, QUOTA, header));
            fixture.until(500);
            // The port's own gate stops the other one, with the time that remained.
            let gate = match params.throttling {
                Throttling::Bounded => millis.min(3_600_000),
                Throttling::Upstream => millis,
            };
            let remained = RetryAfter::In(Duration::from_millis(gate - 400));
            output.extend(fixture.fail(refused, failure(FailureKind::GateClosed, "", remained)));
            let (output, again) = to_the_end(&mut fixture, output, &[first, second], in_put, header);
            assert_eq!(again, 0);
            let found = [first, second].map(|attempt| eligible_at(&output, attempt));
            assert_eq!(found, [Some(at(millis)), Some(at(gate))], "{millis} ms, {in_put}");
        }
    }
}

#[test]
fn s0_throttle_8_the_text_does_not_depend_on_the_time() {
    let met = |params: Params, span: u64| {
        let mut fixture = Fixture::leading(params);
        let (web, other) = (pool("a", "web"), pool("b", "other"));
        let attempt = take(&fixture.due(&web, due(0, MembershipUrgency::Add)));
        let (_, read) = fixture.begin(&other, &[1]);
        fixture.fail(read, failed(429, QUOTA, seconds(span)));
        let output = fixture.step(In::Taken(web.clone(), attempt, Some(taken_level(&web, &[1]))));
        let (output, _) = to_the_end(&mut fixture, output, &[attempt], false, seconds(span));
        text_of(&output, attempt)
    };
    for params in [params(), upstream()] {
        assert_eq!(met(params.clone(), 170), met(params.clone(), 3_000));
        assert_eq!(met(params, 170), "throttle gate closed: ARM asks to wait");
    }
    let of = |header| failed(429, QUOTA, header).to_string();
    assert_eq!(of(seconds(3)), of(RetryAfter::Absent));
}

/// S0 "ThrottleError": the pool is never eligible while the gate would stop it without a call to ARM.
#[test]
fn w6_a_pool_that_met_a_gate_of_1_h_is_parked_for_1_h() {
    for (params, in_put, _) in ways() {
        let mut fixture = Fixture::leading(params);
        let (found, reached) = throttled(&mut fixture, in_put, seconds(3_600));
        assert_eq!((found, reached), (Some(at(3_650_000)), 1));
        fixture.until(3_650_000);
        let web = pool("lb", "web");
        let (attempt, call) = fixture.begin_put(&web, &[1]);
        let output = fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
        assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }));
    }
}

/// Advances the clock to the next grant, at most two minutes, and returns its attempt.
fn next_grant(fixture: &mut Fixture) -> AttemptId {
    let latest = fixture.now + 120_000;
    loop {
        let next = fixture.writer.deadline().expect("it goes on").as_micros().div_ceil(1_000);
        assert!(next <= latest, "no grant for two minutes");
        let output = fixture.until(next.max(fixture.now));
        if !takes(&output).is_empty() {
            return take(&output);
        }
    }
}

/// Returns the seconds at which PUTs of a pool reach ARM if all are answered with a quota's 429, and the end of its
/// attempt.
fn put_seconds(params: Params, header: RetryAfter) -> (Vec<u64>, Option<Now>, u64) {
    put_seconds_of(params, QUOTA, header)
}

/// Does the same with a 429 of this code.
fn put_seconds_of(params: Params, code: &str, header: RetryAfter) -> (Vec<u64>, Option<Now>, u64) {
    let mut fixture = Fixture::leading(params);
    let web = pool("lb", "web");
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    let mut sent = vec![0];
    let mut output = fixture.fail(call, failed(429, code, header));
    loop {
        if output.iter().any(|output| matches!(output, Out::Finished(..))) {
            return (sent, eligible_at(&output, attempt), fixture.now);
        }
        assert_eq!((fixture.writer.busy, output.len() <= 1), (0, true), "lane and turn are free: {output:?}");
        assert_eq!(next_grant(&mut fixture), attempt, "the same attempt");
        output = fixture.step(In::Taken(web.clone(), attempt, Some(taken_level(&web, &[1]))));
        if let Some(read) = calls(&output).first().map(|call| call.id) {
            let call = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web).0;
            sent.push(fixture.now / 1_000);
            output = fixture.fail(call, failed(429, code, header));
        }
    }
}

#[test]
fn w6_retry_throttled_retries_a_429_three_times() {
    for header in [RetryAfter::Absent, seconds(2), RetryAfter::Invalid] {
        let (sent, eligible, ended) = put_seconds(upstream(), header);
        assert_eq!(sent.len(), 4, "{header:?}: {sent:?}");
        for (number, about) in [(1, 5), (2, 20), (3, 55)] {
            let found = sent[number] * 1_000;
            assert!((about * 780..=about * 1_220).contains(&found), "{header:?}: {sent:?}");
        }
        let expected = if header == seconds(2) { Some(at(ended + 2_000)) } else { None };
        assert_eq!(eligible, expected, "{header:?}");
    }
}

#[test]
fn w6_retry_throttled_counts_tries_that_a_closed_gate_stops() {
    let (sent, eligible, ended) = put_seconds(upstream(), seconds(90));
    assert_eq!(sent, [0], "one PUT and three gated tries");
    assert_eq!(eligible, Some(at(90_000)));
    assert!((44_000..=66_000).contains(&ended), "{ended}");
}

#[test]
fn w6_retry_throttled_counts_gated_reads_as_well() {
    let mut fixture = Fixture::leading(upstream());
    let (web, other) = (pool("a", "web"), pool("b", "other"));
    let (first, read) = fixture.begin(&web, &[1]);
    let output = fixture.fail(read, failed(429, QUOTA, seconds(300)));
    assert!(output.iter().all(|output| matches!(output, Out::Gates { .. })), "{output:?}");
    let attempt = take(&fixture.due(&other, due(0, MembershipUrgency::Add)));
    let output = fixture.step(In::Taken(other.clone(), attempt, Some(taken_level(&other, &[1]))));
    assert!(output.is_empty(), "its first try has met the gate: {output:?}");
    let mut ended = BTreeMap::new();
    while ended.len() < 2 {
        let next = fixture.writer.deadline().expect("they go on");
        let output = fixture.until(next.as_micros().div_ceil(1_000));
        for (granted, attempt) in takes(&output) {
            let level = taken_level(&granted, &[1]);
            let output = fixture.step(In::Taken(granted, attempt, Some(level)));
            assert!(calls(&output).is_empty());
            if output.iter().any(|output| matches!(output, Out::Finished(..))) {
                ended.insert(attempt, eligible_at(&output, attempt));
            }
        }
    }
    assert_eq!(ended, BTreeMap::from([(first, Some(at(300_000))), (attempt, Some(at(300_000)))]));
}

#[test]
fn w6_retry_throttled_with_delayed_grants_waits_and_retries() {
    let (sent, _, _) = put_seconds(Params { gates_delay_grants: true, ..upstream() }, seconds(40));
    assert_eq!(sent, [0, 40, 80, 120]);
}

#[test]
fn w6_retry_throttled_ends_if_the_lane_is_locked_for_longer() {
    let upstream = || Params { throttling: Throttling::Bounded, ..upstream() };
    let (sent, eligible, ended) = put_seconds_of(upstream(), LOCK, seconds(300));
    assert_eq!(
        (&sent[..], eligible, ended),
        (&[0][..], Some(at(300_000)), 0),
        "the pool is parked, and gets the reason"
    );
    // The first delay is shorter than that, and the third longer.
    let (sent, eligible, ended) = put_seconds_of(upstream(), LOCK, seconds(3));
    assert_eq!((sent.len(), eligible), (4, Some(at(ended + 3_000))));
    let (sent, eligible, ended) = put_seconds_of(upstream(), LOCK, seconds(10));
    assert_eq!((&sent[..], eligible, ended), (&[0][..], Some(at(10_000)), 0));
}

#[test]
fn w6_retry_throttled_waits_for_the_first_retry_after() {
    let params = Params { throttling: Throttling::Bounded, ..upstream() };
    let (sent, eligible, _) = put_seconds(params, seconds(10_000));
    assert_eq!((&sent[..], eligible), (&[0][..], Some(at(10_000_000))), "and not only for the gate");
}

/// S0: the throttling policy closes its gate on any 429, for the time that the answer names.
#[test]
fn c2_upstream_a_lock_429_closes_the_gate_and_no_lane() {
    for span in [60, 900, 90_000] {
        let mut fixture = Fixture::leading(Params { retry_throttled: false, ..upstream() });
        let (web, near, other) = (pool("a", "web"), pool("a", "near"), pool("b", "other"));
        let (attempt, call) = fixture.begin_put(&web, &[1]);
        let output = fixture.fail(call, failed(429, LOCK, seconds(span)));
        let until = Some(at(span * 1_000));
        assert_eq!(eligible_at(&output, attempt), until);
        for pool in [near, other] {
            let (attempt, read) = fixture.begin(&pool, &[1]);
            let output = fixture.answer(read, read_of(pool_with(&pool, &[]), "W/1"));
            assert!(calls(&output).is_empty(), "{output:?}");
            assert_eq!(eligible_at(&output, attempt), until, "reads are open, and the PUT meets the gate");
        }
    }
}

#[test]
fn w6_by_default_a_429_is_not_retried_within_the_attempt() {
    let (sent, eligible, ended) = put_seconds(params(), seconds(40));
    assert_eq!((&sent[..], eligible, ended), (&[0][..], Some(at(40_000)), 0));
}

#[test]
fn w6_a_success_in_the_loop_ends_it() {
    let mut fixture = Fixture::leading(upstream());
    let web = pool("lb", "web");
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    fixture.fail(call, failed(429, QUOTA, seconds(1)));
    assert_eq!(next_grant(&mut fixture), attempt);
    let read = fixture.take_level(&web, attempt, &[1]);
    let call = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web).0;
    let output = fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }));
}

#[test]
fn w6_the_operator_opens_a_gate_and_arm_is_called_again() {
    let opened = |output: &[Out]| -> Option<Answer> {
        output
            .iter()
            .find_map(|output| if let Out::Answer(_, answer) = output { Some(answer.clone()) } else { None })
    };
    let done = |classes: &[GateClass]| Some(Answer::Done(Done::GatesOpened(classes.to_vec())));
    let mut fixture = Fixture::leading(params());
    let (web, other) = (pool("a", "web"), pool("b", "other"));
    let (_, call) = fixture.begin_put(&web, &[1]);
    fixture.fail(call, failed(429, QUOTA, seconds(3_000)));
    assert!(takes(&fixture.due(&other, due(0, MembershipUrgency::Add))).is_empty());
    let output = fixture.step(In::OpenGates(RequestId(1), Some(GateClass::Reads)));
    assert_eq!((opened(&output), takes(&output).len()), (done(&[]), 0), "reads are open");
    let output = fixture.step(In::OpenGates(RequestId(2), None));
    assert_eq!((opened(&output), takes(&output).len()), (done(&[GateClass::Writes]), 1));
    let open = |output: &Out| matches!(output, Out::Gates { reads_until: None, writes_until: None });
    assert!(output.iter().any(open), "the port and our Lease hear of it: {output:?}");
    // ARM closes it again if necessary.
    let attempt = take(&output);
    let read = fixture.take_level(&other, attempt, &[1]);
    let call = put(&fixture.answer(read, read_of(pool_with(&other, &[]), "W/1")), &other).0;
    fixture.fail(call, failed(429, QUOTA, seconds(3_000)));
    assert!(takes(&fixture.due(&web, due(0, MembershipUrgency::Add))).is_empty());
    fixture.step(In::Leadership(Leadership::Standby));
    let output = fixture.step(In::OpenGates(RequestId(3), None));
    assert_eq!(opened(&output), Some(Answer::Refused(Refusal::NotLeading)));
}

#[test]
fn c2_undelayed_grants_meet_the_closed_gate() {
    let mut fixture = Fixture::leading(Params { retry_throttled: false, ..upstream() });
    let (web, other, third) = (pool("a", "web"), pool("b", "other"), pool("c", "third"));
    let (_, call) = fixture.begin_put(&web, &[1]);
    fixture.fail(call, failed(429, QUOTA, seconds(60)));
    // Writes are closed, reads are not: S0's Get succeeds, and CreateOrUpdate meets the gate.
    let (attempt, read) = fixture.begin(&other, &[1]);
    let output = fixture.answer(read, read_of(pool_with(&other, &[]), "W/1"));
    assert!(calls(&output).is_empty());
    assert_eq!(eligible_at(&output, attempt), Some(at(60_000)));
    // A pool in sync needs no PUT and meets no gate.
    let attempt = take(&fixture.due(&third, due(0, MembershipUrgency::Add)));
    assert!(matches!(
        outcome(&nothing_to_do(&mut fixture, &third, attempt), attempt),
        Outcome::Unchanged { .. }
    ));
}

#[test]
fn w8_gate_times_of_the_previous_leader_close_the_gates() {
    use model::lease::GateTimes;
    let gates = |output: &[Out]| -> Vec<(Option<Now>, Option<Now>)> {
        let of = |output: &Out| {
            if let Out::Gates { reads_until, writes_until } = output {
                Some((*reads_until, *writes_until))
            } else {
                None
            }
        };
        output.iter().filter_map(of).collect()
    };
    let mut fixture = Fixture::leading(params());
    let recorded = |reads, writes| In::RecordedGates(GateTimes { reads_until: reads, writes_until: writes });
    assert_eq!(gates(&fixture.step(recorded(None, Some(at(20_000))))), [(None, Some(at(20_000)))]);
    assert!(fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add)).is_empty());
    assert!(gates(&fixture.step(recorded(None, Some(at(10_000))))).is_empty(), "the later time holds");
    assert_eq!(
        gates(&fixture.step(recorded(Some(at(5_000)), Some(at(30_000))))),
        [(Some(at(5_000)), Some(at(30_000)))]
    );
    assert_eq!(gates(&fixture.until(5_000)), [(None, Some(at(30_000)))]);
    assert!(takes(&fixture.until(29_999)).is_empty());
    let output = fixture.until(30_000);
    assert_eq!((gates(&output), takes(&output).len()), (vec![(None, None)], 1));
    assert!(fixture.step(recorded(Some(at(29_000)), None)).is_empty(), "the past closes nothing");
    let forever = fixture.step(recorded(Some(Now::NEVER), None));
    assert_eq!(gates(&forever), [(Some(at(3_630_000)), None)], "an hour at most");
}
