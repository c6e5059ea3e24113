//! Tests of polls that do not show the end of an operation: the writer reads its load balancer
//! (docs/design/writer.md, W2, W5).

use super::*;
use model::arm::AdminState;

/// Creates a fixture with a write whose operation has run since 0 s.
fn begun() -> (Fixture, PoolId, AttemptId) {
    begun_with(accepted(Provisioning::Updating, RetryAfter::Absent))
}

fn begun_with(answer: ArmAnswer) -> (Fixture, PoolId, AttemptId) {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    fixture.answer(call, answer);
    (fixture, web, attempt)
}

/// Returns the answer to a PUT that was accepted without a URL for its operation.
fn without_url() -> ArmAnswer {
    let ArmAnswer::Put(accepted) = accepted(Provisioning::Updating, RetryAfter::Absent) else {
        unreachable!("it is the answer to a PUT")
    };
    ArmAnswer::Put(PutAccepted { operation: None, ..accepted })
}

/// Times in milliseconds at which the writer saw the end of the operation, and at which it read the load balancer and
/// the pool.
struct Played {
    ended: u64,
    reads: Vec<u64>,
    pool_reads: Vec<u64>,
    output: Vec<Out>,
}

/// Answers each poll with `poll`, or not at all, fails each read of a pool, and answers each read of the load
/// balancer with `balancer` of the second, until an output satisfies `ends`.
fn play(
    fixture: &mut Fixture,
    poll: Option<&ArmAnswer>,
    balancer: impl Fn(u64) -> ArmAnswer,
    ends: impl Fn(&Out) -> bool,
) -> Played {
    let unreadable = |_| ArmAnswer::Failed(failed(500, "", RetryAfter::Absent));
    play_with(fixture, poll, |second| Some(balancer(second)), unreadable, ends)
}

/// Does the same with `pool` of the second for each read of the pool. Without an answer from `balancer`, the read
/// hangs.
fn play_with(
    fixture: &mut Fixture,
    poll: Option<&ArmAnswer>,
    balancer: impl Fn(u64) -> Option<ArmAnswer>,
    pool: impl Fn(u64) -> ArmAnswer,
    ends: impl Fn(&Out) -> bool,
) -> Played {
    let (mut reads, mut pool_reads) = (Vec::new(), Vec::new());
    while fixture.now < 20 * 60_000 {
        let next = fixture.writer.deadline().expect("it goes on").as_micros().div_ceil(1_000);
        let mut output = fixture.until(next);
        while let Some(call) = calls(&output).first().map(|call| (*call).clone()) {
            output.retain(|output| !matches!(output, Out::Call(other) if other.id == call.id));
            let answer = match (&call.request, poll) {
                (ArmRequest::Poll(_), None) => continue,
                (ArmRequest::Poll(_), Some(answer)) => answer.clone(),
                (ArmRequest::GetLoadBalancer(_), _) => {
                    reads.push(next);
                    let Some(answer) = balancer(next / 1_000) else { continue };
                    answer
                }
                (ArmRequest::GetPool(_), _) => {
                    pool_reads.push(next);
                    pool(next / 1_000)
                }
                (ArmRequest::PutPool { .. }, _) => panic!("a second PUT"),
            };
            output.extend(fixture.answer(call.id, answer));
        }
        if output.iter().any(&ends) {
            return Played { ended: next, reads, pool_reads, output };
        }
    }
    panic!("the lane is never free");
}

/// Does the same until an attempt has ended. Also returns its outcome.
fn play_attempt(
    fixture: &mut Fixture,
    attempt: AttemptId,
    poll: Option<&ArmAnswer>,
    balancer: impl Fn(u64) -> ArmAnswer,
) -> (Played, Outcome) {
    let ends = |output: &Out| matches!(output, Out::Finished(_, id, _) if *id == attempt);
    let played = play(fixture, poll, balancer, ends);
    let found = outcome(&played.output, attempt).clone();
    (played, found)
}

/// Returns all results of a poll without information on its operation. `None`: no answer.
fn problems() -> Vec<Option<ArmAnswer>> {
    let later = RetryAfter::In(Duration::from_secs(60));
    let statuses = [400, 401, 403, 404, 408, 409, 410, 412, 418, 500, 501, 502, 503, 504];
    let statuses = statuses.into_iter().flat_map(|status| {
        [RetryAfter::Absent, later].map(|header| failure(FailureKind::Status(status), "", header))
    });
    let kinds = [
        // Bodies that cannot be decoded, or lack a status.
        FailureKind::Undecodable(200),
        FailureKind::Undecodable(202),
        FailureKind::Connection,
        FailureKind::NotConnected,
        FailureKind::Timeout,
        FailureKind::Credential,
        FailureKind::Refused,
    ];
    let kinds = kinds.map(|kind| failure(kind, "", RetryAfter::Absent));
    let failed = statuses.chain(kinds).map(|failure| Some(ArmAnswer::Failed(failure)));
    failed.chain([Some(done()), None]).collect()
}

/// Returns the answer to another request.
fn done() -> ArmAnswer {
    accepted(Provisioning::Succeeded, RetryAfter::Absent)
}

/// Returns a running operation. Any status that ARM does not define counts as running.
fn runs_endlessly() -> [ArmAnswer; 2] {
    [running(RetryAfter::Absent), running(RetryAfter::In(Duration::from_secs(60)))]
}

#[test]
fn w2_failing_polls_block_no_lane_of_an_idle_balancer() {
    for problem in problems() {
        for (members, written) in [(&[1][..], true), (&[][..], false)] {
            let (mut fixture, web, attempt) = begun();
            let rests = |_| lb_of("lb", Provisioning::Succeeded, vec![pool_with(&web, members)]);
            let (played, found) = play_attempt(&mut fixture, attempt, problem.as_ref(), rests);
            assert!(played.ended <= 31_000, "{problem:?}: {} ms", played.ended);
            assert_eq!(played.reads.len(), 1, "{problem:?}");
            assert_eq!(matches!(found, Outcome::Written { .. }), written, "{problem:?}: {found:?}");
            assert_eq!(matches!(found, Outcome::Retriable { .. }), !written, "{problem:?}: {found:?}");
            fixture.begin(&pool("lb", "next"), &[1]);
        }
    }
}

#[test]
fn w2_the_third_failed_poll_reads_the_balancer() {
    for status in [408, 409, 412, 500, 503] {
        let (mut fixture, ..) = begun();
        let problem = failed(status, "", RetryAfter::Absent);
        for when in [1_000, 3_000] {
            let asked = poll(&fixture.until(when));
            assert!(fixture.fail(asked, Arc::clone(&problem)).is_empty());
        }
        // A successful poll resets the count.
        let asked = poll(&fixture.until(7_000));
        assert!(fixture.answer(asked, running(RetryAfter::Absent)).is_empty());
        for when in [12_000, 17_000] {
            let asked = poll(&fixture.until(when));
            assert!(fixture.fail(asked, Arc::clone(&problem)).is_empty());
        }
        let asked = poll(&fixture.until(22_000));
        fixture.fail(asked, problem);
        lb_read(&fixture.until(22_000), "lb");
    }
}

#[test]
fn w2_a_balancer_that_updates_keeps_its_lane_closed() {
    for problem in problems().into_iter().chain(runs_endlessly().map(Some)) {
        let (mut fixture, web, attempt) = begun();
        // The pool shows the end before the load balancer does.
        let balancer = |seconds| {
            let rests = if seconds < 300 { Provisioning::Updating } else { Provisioning::Succeeded };
            lb_of("lb", rests, vec![pool_with(&web, &[1])])
        };
        let (played, found) = play_attempt(&mut fixture, attempt, problem.as_ref(), balancer);
        assert!(matches!(found, Outcome::Written { .. }), "{problem:?}: {found:?}");
        assert!((300_000..=335_000).contains(&played.ended), "{problem:?}: {} ms", played.ended);
        let reads = played.reads;
        let spans = reads.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(spans.max().is_some_and(|most| most <= 31_000), "{problem:?}: {reads:?}");
        assert!(reads.len() <= 70, "{problem:?}: {} reads", reads.len());
    }
}

#[test]
fn w2_an_endless_operation_is_a_failure_unless_in_sync() {
    for answer in runs_endlessly() {
        let (mut fixture, web, attempt) = begun();
        let in_sync = |_| lb_of("lb", Provisioning::Succeeded, vec![pool_with(&web, &[1])]);
        let (played, found) = play_attempt(&mut fixture, attempt, Some(&answer), in_sync);
        assert!(played.ended <= 31_000 && matches!(found, Outcome::Written { .. }), "{found:?}");
        // The operation may not have begun yet.
        let (mut fixture, web, attempt) = begun();
        let out_of_sync = |_| lb_of("lb", Provisioning::Succeeded, vec![pool_with(&web, &[])]);
        let (played, found) = play_attempt(&mut fixture, attempt, Some(&answer), out_of_sync);
        assert_eq!(played.ended, 15 * 60_000);
        assert!(matches!(found, Outcome::Retriable { .. }), "{found:?}");
    }
}

#[test]
fn w2_a_long_retry_after_does_not_delay_the_read() {
    let (mut fixture, web, _) =
        begun_with(accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(50))));
    let (mut polled, mut read) = (Vec::new(), Vec::new());
    while fixture.now < 70_000 {
        for call in calls(&fixture.until(fixture.now + 500)) {
            let answer = match call.request {
                ArmRequest::Poll(_) => {
                    polled.push(fixture.now);
                    running(RetryAfter::In(Duration::from_secs(50)))
                }
                ArmRequest::GetLoadBalancer(_) => {
                    read.push(fixture.now);
                    lb_of("lb", Provisioning::Updating, vec![pool_with(&web, &[])])
                }
                ArmRequest::GetPool(_) | ArmRequest::PutPool { .. } => {
                    ArmAnswer::Failed(failed(500, "", RetryAfter::Absent))
                }
            };
            fixture.answer(call.id, answer);
        }
    }
    assert_eq!((polled, read), (vec![50_000], vec![30_000, 60_000]));
}

#[test]
fn w2_without_a_url_the_balancer_is_read() {
    let (mut fixture, web, attempt) = begun_with(without_url());
    let rests = |_| lb_of("lb", Provisioning::Succeeded, vec![pool_with(&web, &[1])]);
    let (played, found) = play_attempt(&mut fixture, attempt, None, rests);
    assert!(played.ended <= 31_000 && matches!(found, Outcome::Written { .. }), "{found:?}");
}

#[test]
fn n3_failing_polls_of_an_admin_write_block_no_lane() {
    for problem in problems().into_iter().chain(runs_endlessly().map(Some)) {
        let mut fixture = Fixture::leading(params());
        let web = pool("lb", "web");
        fixture.step(In::Draining(drains(1)));
        let read = get(&fixture.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
        let call = put(&fixture.answer(read, read_of(pool_with(&web, &[1, 2]), "W/1")), &web).0;
        fixture.answer(call, accepted(Provisioning::Updating, RetryAfter::Absent));
        let mut facts = pool_with(&web, &[1, 2]);
        facts.entries[0].admin_state = AdminState::Down;
        let rests = |_| lb_of("lb", Provisioning::Succeeded, vec![facts.clone()]);
        let ends = |output: &Out| admin_end(output).is_some();
        let played = play(&mut fixture, problem.as_ref(), rests, ends);
        assert!(played.ended <= 31_000, "{problem:?}: {} ms", played.ended);
        let went_well = |output: &Out| admin_end(output).is_some_and(|end| end.result.is_ok());
        assert!(played.output.iter().any(went_well), "{problem:?}: {:?}", played.output);
    }
}

#[test]
fn w6_a_throttled_poll_waits_and_is_not_counted() {
    let quota = failed(429, "TooManyRequests", RetryAfter::In(Duration::from_secs(5)));
    let lock = failed(429, "RetryableError", RetryAfter::In(Duration::from_secs(5)));
    for problem in [quota, lock] {
        let (mut fixture, ..) = begun();
        let mut polled = Vec::new();
        while fixture.now < 27_000 {
            for call in calls(&fixture.until(fixture.now + 500)) {
                match call.request {
                    ArmRequest::Poll(_) => {
                        polled.push(fixture.now);
                        fixture.fail(call.id, Arc::clone(&problem));
                    }
                    // A glance.
                    ArmRequest::GetPool(_) => {}
                    ArmRequest::GetLoadBalancer(_) | ArmRequest::PutPool { .. } => panic!("{call:?}"),
                }
            }
        }
        assert_eq!(polled, [1_000, 6_000, 11_000, 16_000, 21_000, 26_000]);
    }
}

#[test]
fn w6_no_balancer_is_read_while_reads_are_throttled() {
    let (mut fixture, ..) = begun();
    let asked = poll(&fixture.until(1_000));
    fixture.fail(asked, failed(429, "TooManyRequests", RetryAfter::In(Duration::from_secs(120))));
    assert!(calls(&fixture.until(120_900)).is_empty());
    lb_read(&fixture.until(121_100), "lb");
}

#[test]
fn w2_a_balancer_that_cannot_be_read_is_read_again() {
    let (mut fixture, web, attempt) = begun();
    let balancer = |seconds| {
        if seconds < 60 {
            return ArmAnswer::Failed(failed(500, "", RetryAfter::In(Duration::from_secs(60))));
        }
        lb_of("lb", Provisioning::Succeeded, vec![pool_with(&web, &[1])])
    };
    let problem = ArmAnswer::Failed(failed(500, "", RetryAfter::Absent));
    let (played, found) = play_attempt(&mut fixture, attempt, Some(&problem), balancer);
    assert!((60_000..=91_000).contains(&played.ended), "{} ms", played.ended);
    assert!(matches!(found, Outcome::Written { .. }), "{found:?}");
}

/// Returns all results of a read of the load balancer without information on it. `None`: no answer.
fn unreadable() -> [Option<ArmAnswer>; 4] {
    let status = |status, header| Some(ArmAnswer::Failed(failed(status, "", header)));
    let later = RetryAfter::In(Duration::from_secs(60));
    [status(500, RetryAfter::Absent), status(503, later), status(403, RetryAfter::Absent), None]
}

#[test]
fn w2_an_unreadable_balancer_blocks_no_lane_of_a_synced_pool() {
    for balancer in unreadable() {
        for problem in problems() {
            for ends in [0, 50, 400] {
                let (mut fixture, web, attempt) = begun();
                let pool = |second| {
                    let updates = Provisioning::Updating;
                    let facts = pool_with(&web, &[1]);
                    let running = PoolFacts { provisioning: updates, ..facts.clone() };
                    read_of(if second < ends { running } else { facts }, "W/2")
                };
                let over = |output: &Out| matches!(output, Out::Finished(_, id, _) if *id == attempt);
                let played = play_with(&mut fixture, problem.as_ref(), |_| balancer.clone(), pool, over);
                let found = outcome(&played.output, attempt);
                assert!(matches!(found, Outcome::Written { .. }), "{problem:?}: {found:?}");
                let late = played.ended.saturating_sub(ends * 1_000);
                assert!(late <= 35_000, "{problem:?}, {balancer:?}: {late} ms after the end");
            }
        }
    }
}

#[test]
fn w2_a_pool_out_of_sync_on_an_unreadable_balancer_is_read() {
    for balancer in unreadable() {
        for problem in problems() {
            let (mut fixture, web, attempt) = begun();
            // The operation may wait behind another one.
            let pool = |_| read_of(pool_with(&web, &[]), "W/1");
            let over = |output: &Out| matches!(output, Out::Finished(_, id, _) if *id == attempt);
            let played = play_with(&mut fixture, problem.as_ref(), |_| balancer.clone(), pool, over);
            assert!(matches!(outcome(&played.output, attempt), Outcome::Retriable { .. }));
            assert_eq!(played.ended, 15 * 60_000, "{problem:?}, {balancer:?}");
            let looks = [&[0], &played.pool_reads[..]].concat();
            let spans = looks.windows(2).map(|pair| pair[1] - pair[0]);
            assert!(spans.max().is_some_and(|most| most <= 35_000), "{problem:?}, {balancer:?}: {looks:?}");
            assert!(looks.len() <= 900, "{problem:?}, {balancer:?}: {} reads", looks.len());
        }
    }
}

#[test]
fn w5_an_absent_pool_or_load_balancer_is_stale() {
    let gone = [
        lb_of("lb", Provisioning::Succeeded, Vec::new()),
        ArmAnswer::Failed(failed(404, "ResourceNotFound", RetryAfter::Absent)),
    ];
    for answer in gone {
        let (mut fixture, _, attempt) = begun();
        let problem = ArmAnswer::Failed(failed(500, "", RetryAfter::Absent));
        let (played, found) = play_attempt(&mut fixture, attempt, Some(&problem), |_| answer.clone());
        assert!(played.ended <= 31_000 && matches!(found, Outcome::Stale), "{found:?}");
    }
}

#[test]
fn w2_a_late_end_of_the_operation_counts() {
    let (mut fixture, _, attempt) = begun();
    let asked = poll(&fixture.until(1_000));
    lb_read(&fixture.until(30_000), "lb");
    assert!(fixture.answer(asked, running(RetryAfter::Absent)).is_empty());
    let (mut fixture, _, attempt_2) = begun();
    assert_eq!(attempt, attempt_2);
    let asked = poll(&fixture.until(1_000));
    lb_read(&fixture.until(30_000), "lb");
    let output = fixture.answer(asked, ArmAnswer::Operation(OperationState::Succeeded));
    assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }));
}

#[test]
fn w2_after_the_deadline_the_lane_waits_for_an_idle_balancer() {
    let (mut fixture, web, attempt) = begun();
    let updates = |_| lb_of("lb", Provisioning::Updating, vec![pool_with(&web, &[])]);
    let problem = ArmAnswer::Failed(failed(500, "", RetryAfter::Absent));
    let ended = play_attempt(&mut fixture, attempt, Some(&problem), updates).0.ended;
    assert_eq!(ended, 15 * 60_000);
    fixture.at_rest = false;
    let next = pool("lb", "next");
    let read = lb_read(&fixture.due(&next, due(ended, MembershipUrgency::Add)), "lb");
    let output = fixture.answer(read, lb_of("lb", Provisioning::Updating, Vec::new()));
    assert!(takes(&output).is_empty(), "the lane stays closed");
    let read = lb_read(&fixture.until(ended + 5_000), "lb");
    take(&fixture.answer(read, lb_of("lb", Provisioning::Succeeded, Vec::new())));
}
