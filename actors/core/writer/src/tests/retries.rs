//! Tests of the client's retries, of PUTs with lost answers, and of ARM's retry times (W4, W6, W8).

use super::*;
use model::arm::AdminState;
use model::blocked::Blocked;

const GONE: RetryAfter = RetryAfter::Absent;

fn broken() -> Arc<Failure> {
    failed(503, "ServiceUnavailable", GONE)
}

fn no_answer() -> Arc<Failure> {
    failure(FailureKind::Timeout, "", GONE)
}

fn updating(pool: &PoolId) -> PoolFacts {
    PoolFacts { provisioning: Provisioning::Updating, ..pool_with(pool, &[]) }
}

/// Advances the clock to the next grant. Returns the grant, and the time that passed.
fn next_take(fixture: &mut Fixture) -> (AttemptId, u64) {
    let began = fixture.now;
    loop {
        let next = fixture.writer.deadline().expect("it goes on").as_micros().div_ceil(1_000);
        assert!(next < began + 100_000, "no grant for 100 s");
        let output = fixture.until(next.max(fixture.now));
        if !takes(&output).is_empty() {
            return (take(&output), fixture.now - began);
        }
    }
}

/// Advances the clock to the next call. No grant may happen in the meantime.
fn next_call(fixture: &mut Fixture, latest: u64) -> CallId {
    loop {
        let next = fixture.writer.deadline().expect("it goes on").as_micros().div_ceil(1_000);
        assert!(next <= latest, "nothing is read until {latest} ms");
        let output = fixture.until(next.max(fixture.now));
        assert!(takes(&output).is_empty(), "nothing is granted in doubt");
        if let Some(call) = calls(&output).first() {
            return call.id;
        }
    }
}

fn assert_about(millis: u64, seconds: u64) {
    assert!((seconds * 800..=seconds * 1_200).contains(&millis), "{millis} ms, about {seconds} s");
}

/// Returns the members, and the added and removed ones, of an attempt's outcome.
fn written(output: &[Out], attempt: AttemptId) -> (&BTreeSet<IpAddr>, &BTreeSet<IpAddr>, &BTreeSet<IpAddr>) {
    let found = outcome(output, attempt);
    let Outcome::Written { members, added, removed, .. } = found else { panic!("{found:?}") };
    (members, added, removed)
}

#[test]
fn w4_arm_errors_are_retried_at_5_15_and_35_s_then_terminal() {
    for kind in [
        FailureKind::Status(408),
        FailureKind::Status(500),
        FailureKind::Status(502),
        FailureKind::Status(503),
        FailureKind::Status(504),
        FailureKind::Connection,
        FailureKind::Timeout,
        FailureKind::Credential,
    ] {
        let mut fixture = Fixture::leading(params());
        let web = pool("lb", "web");
        let (attempt, mut read) = fixture.begin(&web, &[1]);
        for seconds in [5, 15, 35] {
            assert!(fixture.fail(read, failure(kind, "", GONE)).is_empty(), "{kind:?} is not reported");
            let (again, waited) = next_take(&mut fixture);
            assert_eq!(again, attempt, "the same attempt");
            assert_about(waited, seconds);
            read = fixture.take_level(&web, attempt, &[1]);
        }
        let output = fixture.fail(read, failure(kind, "", GONE));
        let found = outcome(&output, attempt);
        assert!(matches!(found, Outcome::Terminal { failure } if failure.kind == kind), "{found:?}");
        assert!(fixture.writer.lanes.is_empty());
    }
}

/// Retries a failed call of the attempt. Returns the GET of the next try.
fn next_read(fixture: &mut Fixture, output: &[Out], (pool, attempt): (&PoolId, AttemptId)) -> CallId {
    assert!(output.is_empty(), "{output:?}");
    assert_eq!(next_take(fixture).0, attempt);
    fixture.take_level(pool, attempt, &[1])
}

#[test]
fn w4_get_and_put_each_have_the_configured_retries() {
    for retries in 0..6 {
        let mut fixture = Fixture::leading(Params { client_retries: retries, ..params() });
        let web = pool("lb", "web");
        let (attempt, mut read) = fixture.begin(&web, &[1]);
        for _ in 0..retries {
            let output = fixture.fail(read, broken());
            read = next_read(&mut fixture, &output, (&web, attempt));
        }
        // The worst case: with the GETs of its retries, the PUT fails each time.
        let mut calls = retries;
        for puts in 0.. {
            let output = fixture.answer(read, read_of(pool_with(&web, &[]), "W/1"));
            let output = fixture.fail(put(&output, &web).0, broken());
            calls += 2;
            if puts == retries {
                let (tries, repeated_reads) = (2 * (1 + retries), retries);
                assert_eq!(calls, tries + repeated_reads);
                assert!(matches!(outcome(&output, attempt), Outcome::Terminal { .. }));
                break;
            }
            read = next_read(&mut fixture, &output, (&web, attempt));
        }
        assert!(fixture.writer.lanes.is_empty());
    }
}

#[test]
fn w4_a_get_that_follows_a_failed_put_belongs_to_its_retry() {
    for retries in 1..6 {
        let mut fixture = Fixture::leading(Params { client_retries: retries, ..params() });
        let web = pool("lb", "web");
        let (attempt, read) = fixture.begin(&web, &[1]);
        let output = fixture.answer(read, read_of(pool_with(&web, &[]), "W/1"));
        let mut output = fixture.fail(put(&output, &web).0, broken());
        for _ in 0..retries {
            let read = next_read(&mut fixture, &output, (&web, attempt));
            output = fixture.fail(read, broken());
        }
        assert!(matches!(outcome(&output, attempt), Outcome::Terminal { .. }));
    }
}

#[test]
fn w4_the_delays_of_the_put_start_over_after_those_of_the_get() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, mut read) = fixture.begin(&web, &[1]);
    for seconds in [5, 15] {
        fixture.fail(read, broken());
        assert_about(next_take(&mut fixture).1, seconds);
        read = fixture.take_level(&web, attempt, &[1]);
    }
    for seconds in [5, 15, 35] {
        let output = fixture.answer(read, read_of(pool_with(&web, &[]), "W/1"));
        fixture.fail(put(&output, &web).0, broken());
        assert_about(next_take(&mut fixture).1, seconds);
        read = fixture.take_level(&web, attempt, &[1]);
    }
}

#[test]
fn w4_a_retry_after_of_up_to_60_s_replaces_the_delay() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (_, mut read) = fixture.begin(&web, &[1]);
    for (asked, kept) in [(2, 2_000), (60, 60_000), (7_200, 60_000)] {
        fixture.fail(read, failed(503, "", RetryAfter::In(Duration::from_secs(asked))));
        let (attempt, waited) = next_take(&mut fixture);
        assert_eq!(waited, kept);
        read = fixture.take_level(&web, attempt, &[1]);
    }
}

#[test]
fn w4_other_pools_are_written_while_a_retry_waits() {
    let mut fixture = Fixture::leading(Params { turns: 1, writes_per_5_minutes: 1, ..params() });
    let (web, sibling) = (pool("lb", "web"), pool("lb", "sibling"));
    let (attempt, read) = fixture.begin(&web, &[1]);
    fixture.due(&sibling, due(0, MembershipUrgency::Remove));
    let output = fixture.fail(read, broken());
    assert_eq!(takes(&output)[0].0, sibling, "with the one turn and the one token that there are");
    let next = takes(&output)[0].1;
    let read = fixture.take_level(&sibling, next, &[1]);
    let output = fixture.answer(read, read_of(pool_with(&sibling, &[]), "W/1"));
    let output = fixture.answer(put(&output, &sibling).0, accepted(Provisioning::Succeeded, GONE));
    assert!(matches!(outcome(&output, next), Outcome::Written { .. }));
    assert_eq!(fixture.writer.busy, 0);
    fixture.until(10_000);
    assert_eq!(fixture.writer.lanes.len(), 1, "it waits for a token now");
    let output = fixture.until(300_000);
    assert!(takes(&output).contains(&(web, attempt)), "{output:?}");
}

#[test]
fn w4_the_next_try_has_the_newest_level_and_begins_with_a_get() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    assert!(fixture.fail(call, broken()).is_empty());
    assert_eq!(next_take(&mut fixture).0, attempt);
    let read = fixture.take_level(&web, attempt, &[2]);
    let (call, edit, if_match) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/8")), &web);
    assert_eq!(edit.add.iter().map(|new| new.ip).collect::<Vec<_>>(), [ip(2)]);
    assert_eq!(if_match, Some(Etag::new("W/8")));
    let output = fixture.answer(call, accepted(Provisioning::Succeeded, GONE));
    assert_eq!(written(&output, attempt), (&set(&[2]), &set(&[2]), &set(&[])));
}

#[test]
fn w4_a_retry_that_is_no_longer_needed_ends() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, read) = fixture.begin(&web, &[1]);
    fixture.fail(read, broken());
    fixture.step(In::Withdraw(web.clone()));
    assert_eq!(next_take(&mut fixture).0, attempt);
    assert!(fixture.step(In::Taken(web, attempt, None)).is_empty());
    assert!(fixture.writer.lanes.is_empty());
}

#[test]
fn w4_the_next_get_finds_a_put_with_a_lost_answer() {
    for lost in [no_answer(), failure(FailureKind::Connection, "", GONE), failed(504, "", GONE)] {
        let mut fixture = Fixture::leading(params());
        let (web, other) = (pool("lb", "web"), pool("lb", "other"));
        let (attempt, read) = fixture.begin(&web, &[1, 2]);
        let output = fixture.answer(read, read_of(pool_with(&web, &[2, 3]), "W/1"));
        assert!(fixture.fail(put(&output, &web).0, lost).is_empty(), "nothing is reported yet");
        assert_eq!(fixture.writer.busy, 0, "the turn is free");
        assert!(fixture.due(&other, due(0, MembershipUrgency::Revive)).is_empty(), "the lane is closed");
        // The probe that opens the lane and the wait of the attempt run at the same time.
        let look = get(&fixture.until(5_000), &web);
        let output = fixture.answer(look, read_of(pool_with(&web, &[1, 2]), "W/2"));
        let mut granted = takes(&output)[0].clone();
        if granted.0 == other {
            nothing_to_do(&mut fixture, &other, granted.1);
            granted.1 = next_take(&mut fixture).0;
        }
        assert_eq!(granted.1, attempt);
        assert!(fixture.now <= 6_000, "{}", fixture.now);
        let read = fixture.take_level(&web, attempt, &[1, 2]);
        let output = fixture.answer(read, read_of(pool_with(&web, &[1, 2]), "W/2"));
        assert_eq!(written(&output, attempt), (&set(&[1, 2]), &set(&[1]), &set(&[3])));
        assert!(calls(&output).iter().all(|call| !matches!(call.request, ArmRequest::PutPool { .. })));
    }
}

#[test]
fn w4_a_put_that_was_never_carried_out_is_repeated() {
    for level in [&[1][..], &[]] {
        let mut fixture = Fixture::leading(params());
        let web = pool("lb", "web");
        let (attempt, call) = fixture.begin_put(&web, &[1]);
        fixture.fail(call, no_answer());
        let look = get(&fixture.until(5_000), &web);
        let output = fixture.answer(look, read_of(pool_with(&web, &[]), "W/1"));
        if takes(&output).is_empty() {
            next_take(&mut fixture);
        }
        let read = fixture.take_level(&web, attempt, level);
        let output = fixture.answer(read, read_of(pool_with(&web, &[]), "W/1"));
        if level.is_empty() {
            assert!(
                matches!(outcome(&output, attempt), Outcome::Unchanged { .. }),
                "we have written nothing"
            );
        } else {
            put(&output, &web);
        }
    }
}

#[test]
fn w4_a_disproved_put_is_not_claimed_after_an_equal_write() {
    for disproved_by_the_look in [true, false] {
        let mut fixture = Fixture::leading(params());
        let web = pool("lb", "web");
        let (attempt, call) = fixture.begin_put(&web, &[1]);
        fixture.fail(call, failed(504, "", RetryAfter::In(Duration::from_secs(30))));
        let look = get(&fixture.until(5_000), &web);
        let seen: &[u8] = if disproved_by_the_look { &[] } else { &[1] };
        assert!(takes(&fixture.answer(look, read_of(pool_with(&web, seen), "W/2"))).is_empty());
        next_take(&mut fixture);
        let read = fixture.take_level(&web, attempt, &[1]);
        let output = fixture.answer(read, read_of(pool_with(&web, &[1]), "W/3"));
        let found = outcome(&output, attempt);
        assert_eq!(matches!(found, Outcome::Unchanged { .. }), disproved_by_the_look, "{found:?}");
        assert_eq!(matches!(found, Outcome::Written { .. }), !disproved_by_the_look, "{found:?}");
    }
}

#[test]
fn w4_the_unanswered_put_that_the_pool_shows_counts() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, read) = fixture.begin(&web, &[1]);
    let mut output = fixture.answer(read, read_of(pool_with(&web, &[]), "W/1"));
    for level in [&[1, 2][..], &[1]] {
        fixture.fail(put(&output, &web).0, no_answer());
        let look = next_call(&mut fixture, 100_000);
        let opened = fixture.answer(look, read_of(pool_with(&web, &[1]), "W/2"));
        if takes(&opened).is_empty() {
            next_take(&mut fixture);
        }
        let read = fixture.take_level(&web, attempt, level);
        output = fixture.answer(read, read_of(pool_with(&web, &[1]), "W/2"));
    }
    assert_eq!(written(&output, attempt), (&set(&[1]), &set(&[1]), &set(&[])), "the first, not the second");
}

#[test]
fn w4_a_found_put_is_reported_before_a_put_of_admin_states() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    fixture.fail(call, no_answer());
    fixture.step(In::Draining(drains(1)));
    let look = get(&fixture.until(5_000), &web);
    let output = fixture.answer(look, read_of(pool_with(&web, &[1]), "W/2"));
    if takes(&output).is_empty() {
        next_take(&mut fixture);
    }
    let read = fixture.take_level(&web, attempt, &[1]);
    let output = fixture.answer(read, read_of(pool_with(&web, &[1]), "W/2"));
    assert_eq!(written(&output, attempt), (&set(&[1]), &set(&[1]), &set(&[])));
    assert_eq!(put(&output, &web).1.set_admin, BTreeMap::from([(0, AdminState::Down)]));
}

#[test]
fn w4_while_the_lane_is_in_doubt_its_reads_count_as_tries() {
    let mut fixture = Fixture::leading(params());
    let (web, other) = (pool("lb", "web"), pool("lb", "other"));
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    fixture.fail(call, no_answer());
    fixture.due(&other, due(0, MembershipUrgency::Revive));
    let mut reads = 0;
    loop {
        let look = next_call(&mut fixture, 180_000);
        reads += 1;
        let output = fixture.fail(look, failure(FailureKind::Connection, "", GONE));
        if !output.is_empty() {
            assert!(matches!(outcome(&output, attempt), Outcome::Terminal { .. }));
            break;
        }
    }
    assert!(reads >= 4 && fixture.now > 50_000, "{reads} looks, {} ms", fixture.now);
    let look = next_call(&mut fixture, 210_000);
    assert_eq!(takes(&fixture.answer(look, read_of(pool_with(&web, &[]), "W/1")))[0].0, other);
}

#[test]
fn w4_a_write_after_an_endless_operation_ends_as_retriable() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    fixture.fail(call, no_answer());
    loop {
        let look = next_call(&mut fixture, 200_000);
        let output = fixture.answer(look, read_of(updating(&web), "W/2"));
        if !output.is_empty() {
            assert!(matches!(outcome(&output, attempt), Outcome::Retriable { eligible_at: None, .. }));
            break;
        }
    }
    assert!(fixture.now >= 120_000, "{}", fixture.now);
}

#[test]
fn w4_after_the_last_retry_the_lane_stays_in_doubt() {
    let mut fixture = Fixture::leading(Params { client_retries: 0, ..params() });
    let (web, other) = (pool("lb", "web"), pool("lb", "other"));
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    assert!(matches!(outcome(&fixture.fail(call, no_answer()), attempt), Outcome::Terminal { .. }));
    assert!(fixture.due(&other, due(0, MembershipUrgency::Revive)).is_empty());
    let look = get(&fixture.until(5_000), &web);
    assert_eq!(takes(&fixture.answer(look, read_of(pool_with(&web, &[]), "W/1")))[0].0, other);
}

#[test]
fn w4_standby_or_shutdown_during_a_wait_interrupts_it() {
    for input in [In::Leadership(Leadership::Standby), In::Shutdown] {
        let mut fixture = Fixture::leading(params());
        let web = pool("lb", "web");
        let (attempt, read) = fixture.begin(&web, &[1]);
        fixture.fail(read, broken());
        let output = fixture.step(input);
        assert!(matches!(outcome(&output, attempt), Outcome::Interrupted));
        assert!(fixture.until(100_000).is_empty() && fixture.writer.lanes.is_empty());
    }
}

#[test]
fn w8_a_failed_put_during_the_shutdown_is_interrupted() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    fixture.step(In::Shutdown);
    let output = fixture.fail(call, broken());
    assert!(matches!(outcome(&output, attempt), Outcome::Interrupted));
    assert!(output.iter().any(|output| matches!(output, Out::Quiet { .. })));
}

#[test]
fn n3_an_admin_part_alone_ends_with_its_first_failure() {
    let mut fixture = Fixture::leading(params());
    let (web, other) = (pool("lb", "web"), pool("lb", "other"));
    fixture.step(In::Draining(drains(1)));
    for n in 0..8 {
        let read =
            get(&fixture.step(In::AdminDue(web.clone(), Some(AdminDue { again: n > 0, ..down(0) }))), &web);
        let output = fixture.fail(read, broken());
        let [only] = &output[..] else { panic!("{output:?}") };
        assert!(admin_end(only).is_some_and(|end| end.result.is_err()), "{output:?}");
    }
    fixture.begin(&other, &[1]);
}

#[test]
fn n3_downs_and_membership_have_independent_retries() {
    let mut fixture = Fixture::leading(params());
    let (web, other) = (pool("a", "web"), pool("b", "other"));
    let (attempt, read) = fixture.begin(&web, &[1]);
    fixture.fail(read, broken());
    fixture.step(In::Draining(drains(1)));
    let restore = AdminDue { urgency: AdminUrgency::Restore, ..down(0) };
    assert!(fixture.step(In::AdminDue(web.clone(), Some(restore))).is_empty(), "a restore has time");
    let read = get(&fixture.step(In::AdminDue(other.clone(), Some(down(0)))), &other);
    fixture.fail(read, broken());
    take(&fixture.due(&other, due(0, MembershipUrgency::Add)));

    let (third, read) = fixture.begin(&pool("c", "third"), &[1]);
    fixture.fail(read, broken());
    assert_eq!(
        take(&fixture.step(In::AdminDue(pool("c", "third"), Some(down(0))))),
        third,
        "with its membership"
    );
    assert_eq!(next_take(&mut fixture).0, attempt);
}

#[test]
fn w4_a_write_that_waits_for_a_retry_is_shown() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (_, read) = fixture.begin(&web, &[1]);
    fixture.fail(read, broken());
    fixture.until(1_000);
    let lane = |output: &Out| if let Out::Lane(view) = output { Some(view.clone()) } else { None };
    let view = fixture.shown.iter().rev().find_map(lane).expect("the lane was shown");
    assert_eq!(view.writing, None);
    let [waiting] = &view.waiting[..] else { panic!("{view:?}") };
    assert_eq!((&waiting.pool, waiting.class, waiting.since), (&web, "waiting to retry", at(0)));
    assert_eq!(waiting.blocked.map(|blocked| blocked.why), Some(Blocked::Interval));
}

#[test]
fn e2_the_wait_for_a_retry_does_not_count_as_lane_wait() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (_, read) = fixture.begin(&web, &[1]);
    fixture.fail(read, broken());
    next_take(&mut fixture);
    let waits = fixture.shown.iter().filter(|output| matches!(output, Out::Metric(Metric::LaneWait { .. })));
    assert_eq!(waits.count(), 1);
}

#[test]
fn w5_a_poll_without_a_usable_answer_reads_the_load_balancer() {
    for kind in [
        FailureKind::Refused,
        FailureKind::Status(400),
        FailureKind::Status(401),
        FailureKind::Status(403),
        FailureKind::Undecodable(200),
    ] {
        let mut fixture = Fixture::leading(params());
        let web = pool("lb", "web");
        let (attempt, call) = fixture.begin_put(&web, &[1]);
        fixture.answer(call, accepted(Provisioning::Updating, GONE));
        let asked = poll(&fixture.until(1_000));
        assert!(fixture.fail(asked, failure(kind, "", GONE)).is_empty());
        let read = lb_read(&fixture.until(1_000), "lb");
        let runs = lb_of("lb", Provisioning::Succeeded, vec![updating(&web)]);
        assert!(fixture.answer(read, runs).is_empty(), "it still runs");
        let read = lb_read(&fixture.until(3_000), "lb");
        let output = fixture.fail(read, failed(403, "", GONE));
        let glance = get(&output, &web);
        assert_eq!(output.len(), 1, "a read that fails is made again, after a glance");
        assert!(fixture.answer(glance, read_of(updating(&web), "W/2")).is_empty());
        let read = lb_read(&fixture.until(7_000), "lb");
        let output = fixture.answer(read, lb_of("lb", Provisioning::Succeeded, vec![pool_with(&web, &[1])]));
        assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }), "{kind:?}");
    }
}

#[test]
fn w6_a_very_long_retry_after_parks_its_pool_for_all_of_it() {
    let mut fixture = Fixture::leading(params());
    let (web, other) = (pool("lb", "web"), pool("lb", "other"));
    let (attempt, read) = fixture.begin(&web, &[1]);
    let ages = Duration::from_secs(99_999_999_999);
    let header = RetryAfter::In(ages);
    let eligible_at = |output: &[Out], attempt: AttemptId| {
        let found = outcome(output, attempt);
        let Outcome::Retriable { eligible_at, .. } = found else { panic!("{found:?}") };
        *eligible_at
    };
    let output = fixture.fail(read, failed(429, "TooManyRequests", header));
    assert_eq!(eligible_at(&output, attempt), Some(at(0).plus(ages)));
    // Other pools wait for at most an hour, because of the gate.
    fixture.due(&other, due(0, MembershipUrgency::Add));
    assert!(takes(&fixture.until(3_599_999)).is_empty());
    let attempt = take(&fixture.until(3_600_000));
    let read = fixture.take_level(&other, attempt, &[1]);
    let output = fixture.fail(read, failed(429, "RetryableError", header));
    assert_eq!(eligible_at(&output, attempt), Some(at(3_600_000).plus(ages)));
    // In a lane, they wait for at most ten minutes.
    fixture.due(&web, due(0, MembershipUrgency::Add));
    assert!(takes(&fixture.until(4_199_999)).is_empty());
    take(&fixture.until(4_200_000));
}

#[test]
fn w8_a_put_may_be_sent_for_60_s_and_none_after_its_watchdog() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.until(7_000);
    let (_, read) = fixture.begin(&web, &[1]);
    let output = fixture.answer(read, read_of(pool_with(&web, &[]), "W/1"));
    let found = &calls(&output)[0].request;
    let ArmRequest::PutPool { permit, .. } = found else { panic!("{found:?}") };
    assert_eq!(permit.send_deadline, at(67_000));
}

#[test]
fn w4_an_unreadable_pool_does_not_close_its_lane_forever() {
    let mut fixture = Fixture::leading(Params { client_retries: 0, ..params() });
    let (web, other) = (pool("lb", "web"), pool("lb", "other"));
    let (_, call) = fixture.begin_put(&web, &[1]);
    fixture.fail(call, no_answer());
    fixture.due(&other, due(0, MembershipUrgency::Revive));
    let mut limit = 60_000;
    let granted = loop {
        let look = next_call(&mut fixture, limit);
        limit += 60_000;
        let output = fixture.fail(look, failure(FailureKind::Undecodable(200), "", GONE));
        if let Some((granted, _)) = takes(&output).first() {
            break granted.clone();
        }
        assert!(fixture.now < 1_200_000, "still closed after {} ms", fixture.now);
    };
    assert_eq!(granted, other);
    assert!(fixture.now > 600_000, "open after {} ms", fixture.now);
}
