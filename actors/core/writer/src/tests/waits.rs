//! Tests of waiting writes and concurrent events: a newer Due, the other part of the slot, a read that shows the
//! result of a PUT (W2, W4, W8, N3).

use super::*;

fn no_answer() -> Arc<Failure> {
    failure(FailureKind::Timeout, "", RetryAfter::Absent)
}

/// Advances the clock to the next grant of an attempt.
fn next_take(bench: &mut Bench) -> AttemptId {
    loop {
        let next = bench.writer.deadline().expect("it goes on").as_micros().div_ceil(1_000);
        let output = bench.until(next.max(bench.now));
        if !takes(&output).is_empty() {
            return take(&output);
        }
        for call in calls(&output) {
            if let ArmRequest::GetPool(pool) = &call.request {
                bench.fail(call.id, failed(503, "", RetryAfter::Absent));
                assert!(bench.now < 200_000, "{pool} is read without end");
            }
        }
    }
}

#[test]
fn w8_a_due_posted_while_the_attempt_waited_outlives_the_interruption() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    let (attempt, read) = bench.begin(&web, &[1]);
    bench.fail(read, failed(503, "", RetryAfter::Absent));
    // The pool learned of the new term first: it has ended its attempt, and is due again.
    assert!(bench.due(&web, due(10, MembershipUrgency::Revive)).is_empty());
    let output = bench.lead(2);
    assert!(matches!(outcome(&output, attempt), Outcome::Interrupted));
    let again = take(&output);
    assert_eq!(again.epoch, Epoch(2));
}

#[test]
fn w8_an_attempt_that_waited_and_was_interrupted_is_not_due_by_itself() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    let (_, read) = bench.begin(&web, &[1]);
    bench.fail(read, failed(503, "", RetryAfter::Absent));
    assert!(takes(&bench.lead(2)).is_empty());
    assert!(bench.writer.lanes.is_empty());
}

#[test]
fn w8_a_posted_due_outlives_the_grant_of_the_attempt_that_waited() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    let (attempt, read) = bench.begin(&web, &[1]);
    bench.fail(read, failed(503, "", RetryAfter::Absent));
    bench.due(&web, due(10, MembershipUrgency::Add));
    assert_eq!(next_take(&mut bench), attempt);
    let output = bench.step(In::Taken(web.clone(), attempt, None));
    let again = take(&output);
    assert_ne!(again, attempt, "what was posted is another attempt's");
    // Unless it was withdrawn.
    let read = bench.take_level(&web, again, &[1]);
    bench.fail(read, failed(503, "", RetryAfter::Absent));
    bench.due(&web, due(10, MembershipUrgency::Add));
    bench.step(In::Withdraw(web.clone()));
    assert_eq!(next_take(&mut bench), again, "an attempt that waits cannot be withdrawn");
    assert!(takes(&bench.step(In::Taken(web, again, None))).is_empty());
    assert!(bench.writer.lanes.is_empty());
}

#[test]
fn n3_a_down_during_a_membership_write_does_not_wait_for_its_retry() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    let (attempt, read) = bench.begin(&web, &[1]);
    bench.step(In::Draining(drains(1)));
    bench.step(In::AdminDue(web.clone(), Some(down(0))));
    let output = bench.fail(read, failed(503, "", RetryAfter::Absent));
    assert_eq!(take(&output), attempt, "the next try is at once, with the Down");
    let read = bench.take_level(&web, attempt, &[1]);
    let output = bench.fail(read, failed(503, "", RetryAfter::Absent));
    assert!(takes(&output).is_empty(), "it has had its try");
}

#[test]
fn n3_a_restore_that_comes_while_membership_is_written_waits_with_it() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    let (_, read) = bench.begin(&web, &[1]);
    bench.step(In::AdminDue(web.clone(), Some(AdminDue { urgency: AdminUrgency::Restore, ..down(0) })));
    assert!(takes(&bench.fail(read, failed(503, "", RetryAfter::Absent))).is_empty());
}

#[test]
fn w4_membership_due_during_an_admin_write_does_not_wait_for_its_retry() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    bench.step(In::Draining(drains(1)));
    let read = get(&bench.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    bench.due(&web, due(0, MembershipUrgency::Add));
    take(&bench.fail(read, failed(503, "", RetryAfter::Absent)));
}

#[test]
fn w4_a_put_answered_500_and_carried_out_is_written() {
    for status in [500, 503] {
        let mut bench = Bench::leading(params());
        let web = pool("lb", "web");
        let (attempt, call) = bench.begin_put(&web, &[1]);
        bench.fail(call, failed(status, "", RetryAfter::Absent));
        let other = pool("lb", "other");
        let second = take(&bench.due(&other, due(0, MembershipUrgency::Add)));
        nothing_to_do(&mut bench, &other, second);
        assert_eq!(next_take(&mut bench), attempt);
        let read = bench.take_level(&web, attempt, &[1]);
        let output = bench.answer(read, read_of(pool_with(&web, &[1]), "W/2"));
        assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }), "{status}");
    }
}

/// The answer to a PUT is lost. Discovery reads these members at this time, and then another client writes the level
/// that we need. Returns the end of the attempt.
fn after_a_read(failure: Arc<Failure>, looked: u64, members: &[u8], provisioning: Provisioning) -> bool {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    let (attempt, call) = bench.begin_put(&web, &[1]);
    bench.fail(call, failure);
    // Probes of the lane in doubt are not answered before discovery's read.
    let early = bench.until(looked);
    let probe = calls(&early).first().map(|call| call.id);
    let output = bench.step(In::Read { call: CallId(1), lb: LbName::new("lb") });
    let read = calls(&output).first().expect("discovery reads").id;
    let seen = PoolFacts { provisioning, ..pool_with(&web, members) };
    bench
        .answer(read, lb_of("lb", Provisioning::Succeeded, vec![seen, pool_with(&pool("lb", "other"), &[])]));
    let output = match probe {
        Some(probe) => bench.answer(probe, read_of(pool_with(&web, &[1]), "W/2")),
        None => Vec::new(),
    };
    let again = if takes(&output).is_empty() { next_take_after(&mut bench, &web) } else { take(&output) };
    assert_eq!(again, attempt);
    let read = bench.take_level(&web, attempt, &[1]);
    let output = bench.answer(read, read_of(pool_with(&web, &[1]), "W/2"));
    matches!(outcome(&output, attempt), Outcome::Written { .. })
}

/// The next grant, if all reads meanwhile show the level that we need.
fn next_take_after(bench: &mut Bench, web: &PoolId) -> AttemptId {
    loop {
        let next = bench.writer.deadline().expect("it goes on").as_micros().div_ceil(1_000);
        let mut output = bench.until(next.max(bench.now));
        let reads: Vec<CallId> = calls(&output).iter().map(|call| call.id).collect();
        for lb_read in reads {
            output.extend(bench.answer(lb_read, read_of(pool_with(web, &[1]), "W/2")));
        }
        if !takes(&output).is_empty() {
            return take(&output);
        }
        assert!(bench.now < 200_000);
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
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    let (attempt, call) = bench.begin_put(&web, &[1]);
    bench.fail(call, failure(FailureKind::NotConnected, "", RetryAfter::Absent));
    let other = pool("lb", "other");
    let second = take(&bench.due(&other, due(0, MembershipUrgency::Add)));
    nothing_to_do(&mut bench, &other, second);
    assert_eq!(next_take(&mut bench), attempt);
    let read = bench.take_level(&web, attempt, &[1]);
    let output = bench.answer(read, read_of(pool_with(&web, &[1]), "W/2"));
    assert!(matches!(outcome(&output, attempt), Outcome::Unchanged { .. }), "another client has written it");
}
