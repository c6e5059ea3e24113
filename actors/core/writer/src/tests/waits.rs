//! Tests of waiting writes and concurrent events: a newer Due, the other part of the slot, a read that shows the
//! result of a PUT (W2, W4, W8, N3).

use super::*;

fn no_answer() -> Arc<Failure> {
    failure(FailureKind::Timeout, "", RetryAfter::Absent)
}

/// Advances the clock to the next grant of an attempt.
fn next_take(fixture: &mut Fixture) -> AttemptId {
    loop {
        let next = fixture.writer.deadline().expect("it goes on").as_micros().div_ceil(1_000);
        let output = fixture.until(next.max(fixture.now));
        if !takes(&output).is_empty() {
            return take(&output);
        }
        for call in calls(&output) {
            if let ArmRequest::GetPool(pool) = &call.request {
                fixture.fail(call.id, failed(503, "", RetryAfter::Absent));
                assert!(fixture.now < 200_000, "{pool} is read without end");
            }
        }
    }
}

#[test]
fn w8_a_due_during_a_wait_survives_the_interruption() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, read) = fixture.begin(&web, &[1]);
    fixture.fail(read, failed(503, "", RetryAfter::Absent));
    // The pool was informed of the new term first: it has ended its attempt, and is due again.
    assert!(fixture.due(&web, due(10, MembershipUrgency::Revive)).is_empty());
    let output = fixture.lead(2);
    assert!(matches!(outcome(&output, attempt), Outcome::Interrupted));
    let again = take(&output);
    assert_eq!(again.epoch, Epoch(2));
}

#[test]
fn w8_an_interrupted_waiting_attempt_is_not_due_again() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (_, read) = fixture.begin(&web, &[1]);
    fixture.fail(read, failed(503, "", RetryAfter::Absent));
    assert!(takes(&fixture.lead(2)).is_empty());
    assert!(fixture.writer.lanes.is_empty());
}

#[test]
fn w8_a_due_during_a_wait_survives_the_next_grant() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, read) = fixture.begin(&web, &[1]);
    fixture.fail(read, failed(503, "", RetryAfter::Absent));
    fixture.due(&web, due(10, MembershipUrgency::Add));
    assert_eq!(next_take(&mut fixture), attempt);
    let output = fixture.step(In::Taken(web.clone(), attempt, None));
    let again = take(&output);
    assert_ne!(again, attempt, "what was posted is another attempt's");
    // This does not apply if the due attempt was withdrawn.
    let read = fixture.take_level(&web, again, &[1]);
    fixture.fail(read, failed(503, "", RetryAfter::Absent));
    fixture.due(&web, due(10, MembershipUrgency::Add));
    fixture.step(In::Withdraw(web.clone()));
    assert_eq!(next_take(&mut fixture), again, "an attempt that waits cannot be withdrawn");
    assert!(takes(&fixture.step(In::Taken(web, again, None))).is_empty());
    assert!(fixture.writer.lanes.is_empty());
}

#[test]
fn n3_a_down_does_not_wait_for_the_retry_of_membership() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, read) = fixture.begin(&web, &[1]);
    fixture.step(In::Draining(drains(1)));
    fixture.step(In::AdminDue(web.clone(), Some(down(0))));
    let output = fixture.fail(read, failed(503, "", RetryAfter::Absent));
    assert_eq!(take(&output), attempt, "the next try is at once, with the Down");
    let read = fixture.take_level(&web, attempt, &[1]);
    let output = fixture.fail(read, failed(503, "", RetryAfter::Absent));
    assert!(takes(&output).is_empty(), "it has had its try");
}

#[test]
fn n3_a_restore_waits_for_the_retry_of_membership() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (_, read) = fixture.begin(&web, &[1]);
    fixture.step(In::AdminDue(web.clone(), Some(AdminDue { urgency: AdminUrgency::Restore, ..down(0) })));
    assert!(takes(&fixture.fail(read, failed(503, "", RetryAfter::Absent))).is_empty());
}

#[test]
fn w4_membership_does_not_wait_for_the_retry_of_an_admin_part() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.step(In::Draining(drains(1)));
    let read = get(&fixture.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    fixture.due(&web, due(0, MembershipUrgency::Add));
    take(&fixture.fail(read, failed(503, "", RetryAfter::Absent)));
}

#[test]
fn w4_a_put_that_is_carried_out_with_status_500_is_written() {
    for status in [500, 503] {
        let mut fixture = Fixture::leading(params());
        let web = pool("lb", "web");
        let (attempt, call) = fixture.begin_put(&web, &[1]);
        fixture.fail(call, failed(status, "", RetryAfter::Absent));
        let other = pool("lb", "other");
        let second = take(&fixture.due(&other, due(0, MembershipUrgency::Add)));
        nothing_to_do(&mut fixture, &other, second);
        assert_eq!(next_take(&mut fixture), attempt);
        let read = fixture.take_level(&web, attempt, &[1]);
        let output = fixture.answer(read, read_of(pool_with(&web, &[1]), "W/2"));
        assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }), "{status}");
    }
}

/// Loses the answer to the PUT. Discovery reads these members at this time, and then another client writes the
/// required level. Returns the end of the attempt.
fn after_a_read(failure: Arc<Failure>, looked: u64, members: &[u8], provisioning: Provisioning) -> bool {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    fixture.fail(call, failure);
    // Probes of the lane in doubt get no answer before discovery's read.
    let early = fixture.until(looked);
    let probe = calls(&early).first().map(|call| call.id);
    let output = fixture.step(In::Read { call: CallId(1), lb: LbName::new("lb") });
    let read = calls(&output).first().expect("discovery reads").id;
    let seen = PoolFacts { provisioning, ..pool_with(&web, members) };
    fixture
        .answer(read, lb_of("lb", Provisioning::Succeeded, vec![seen, pool_with(&pool("lb", "other"), &[])]));
    let output = match probe {
        Some(probe) => fixture.answer(probe, read_of(pool_with(&web, &[1]), "W/2")),
        None => Vec::new(),
    };
    let again = if takes(&output).is_empty() { next_take_after(&mut fixture, &web) } else { take(&output) };
    assert_eq!(again, attempt);
    let read = fixture.take_level(&web, attempt, &[1]);
    let output = fixture.answer(read, read_of(pool_with(&web, &[1]), "W/2"));
    matches!(outcome(&output, attempt), Outcome::Written { .. })
}

/// Returns the next grant, if all reads in the meantime show the required level.
fn next_take_after(fixture: &mut Fixture, web: &PoolId) -> AttemptId {
    loop {
        let next = fixture.writer.deadline().expect("it goes on").as_micros().div_ceil(1_000);
        let mut output = fixture.until(next.max(fixture.now));
        let reads: Vec<CallId> = calls(&output).iter().map(|call| call.id).collect();
        for lb_read in reads {
            output.extend(fixture.answer(lb_read, read_of(pool_with(web, &[1]), "W/2")));
        }
        if !takes(&output).is_empty() {
            return take(&output);
        }
        assert!(fixture.now < 200_000);
    }
}

#[test]
fn w4_a_discovery_read_disproves_a_put_whose_answer_was_lost() {
    let rest = Provisioning::Succeeded;
    assert!(!after_a_read(no_answer(), 5_000, &[], rest), "what is there later comes from another client");
    assert!(after_a_read(no_answer(), 5_000, &[1], rest), "it shows the PUT's work");
    assert!(after_a_read(no_answer(), 4_999, &[], rest), "the PUT may still be on its way");
    assert!(after_a_read(no_answer(), 5_000, &[], Provisioning::Updating), "its operation may run");
}

#[test]
fn w4_a_put_without_a_connection_was_not_carried_out() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    fixture.fail(call, failure(FailureKind::NotConnected, "", RetryAfter::Absent));
    let other = pool("lb", "other");
    let second = take(&fixture.due(&other, due(0, MembershipUrgency::Add)));
    nothing_to_do(&mut fixture, &other, second);
    assert_eq!(next_take(&mut fixture), attempt);
    let read = fixture.take_level(&web, attempt, &[1]);
    let output = fixture.answer(read, read_of(pool_with(&web, &[1]), "W/2"));
    assert!(matches!(outcome(&output, attempt), Outcome::Unchanged { .. }), "another client has written it");
}
