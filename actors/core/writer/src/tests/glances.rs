//! Tests of glances at a pool between two polls of its operation (docs/design/writer.md, W2).

use super::*;

/// Creates a write whose operation runs, and is not polled before 10 s have passed.
fn slow(params: Params) -> (Fixture, PoolId, AttemptId) {
    let mut fixture = Fixture::leading(params);
    let web = pool("lb", "web");
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    fixture.answer(call, accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(10))));
    (fixture, web, attempt)
}

/// Returns the pool during its operation, with its future members.
fn updating(pool: &PoolId) -> PoolFacts {
    PoolFacts { provisioning: Provisioning::Updating, ..pool_with(pool, &[1]) }
}

fn ended(output: &[Out]) -> bool {
    output.iter().any(|output| matches!(output, Out::Finished(..)))
}

#[test]
fn w2_a_write_ends_as_soon_as_its_pool_is_seen_as_written() {
    let (mut fixture, web, attempt) = slow(params());
    let read = get(&fixture.until(1_000), &web);
    assert!(!ended(&fixture.answer(read, read_of(updating(&web), "W/2"))), "it still runs");
    fixture.until(1_100);
    let read = get(&fixture.until(2_000), &web);
    let output = fixture.answer(read, read_of(pool_with(&web, &[1]), "W/3"));
    assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }));
    let next = fixture.begin(&web, &[2]);
    assert!(next.0 != attempt, "its lane is free");
}

#[test]
fn w2_a_glance_that_does_not_show_the_end_delays_no_poll() {
    let (mut fixture, web, attempt) = slow(params());
    let states = [
        ArmAnswer::Failed(failed(500, "InternalServerError", RetryAfter::Absent)),
        ArmAnswer::Failed(failed(404, "NotFound", RetryAfter::Absent)),
        read_of(updating(&web), "W/2"),
        read_of(PoolFacts { provisioning: Provisioning::Failed, ..pool_with(&web, &[1]) }, "W/2"),
        read_of(pool_with(&web, &[]), "W/2"),
    ];
    let mut asked = None;
    let mut glances = 0;
    for now in (1_000..=10_000).step_by(500) {
        let output = fixture.until(now);
        for call in calls(&output) {
            match &call.request {
                ArmRequest::GetPool(_) => {
                    let answer = states[glances % states.len()].clone();
                    glances += 1;
                    assert!(!ended(&fixture.answer(call.id, answer)), "glance {glances}");
                }
                ArmRequest::Poll(_) => asked = Some((now, call.id)),
                other @ (ArmRequest::GetLoadBalancer(_) | ArmRequest::PutPool { .. }) => panic!("{other:?}"),
            }
        }
    }
    let (when, call) = asked.expect("the operation is polled");
    assert_eq!((when, glances > 0), (10_000, true));
    let output = fixture.answer(call, ArmAnswer::Operation(OperationState::Succeeded));
    assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }));
}

#[test]
fn w2_a_failed_glance_is_the_last_one_before_the_next_poll() {
    let (mut fixture, web, _) = slow(params());
    let read = get(&fixture.until(1_000), &web);
    fixture.fail(read, failed(503, "", RetryAfter::Absent));
    assert!(calls(&fixture.until(9_999)).is_empty());
    poll(&fixture.until(10_000));
}

#[test]
fn w2_a_late_glance_delays_no_poll_and_still_counts() {
    let (mut fixture, web, attempt) = slow(params());
    let read = get(&fixture.until(1_000), &web);
    let call = poll(&fixture.until(10_000));
    fixture.answer(call, running(RetryAfter::In(Duration::from_secs(10))));
    let output = fixture.answer(read, read_of(pool_with(&web, &[1]), "W/3"));
    assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }));
}

#[test]
fn w9_no_glances_with_less_than_half_of_the_read_budget() {
    let few = Params { reads_per_5_minutes: 6, ..params() };
    let (mut fixture, web, _) = slow(few);
    let mut reads = 0;
    let mut polled = None;
    while polled.is_none() && fixture.now < 60_000 {
        let output = fixture.until(fixture.now + 500);
        for call in calls(&output) {
            match &call.request {
                ArmRequest::GetPool(_) => {
                    reads += 1;
                    fixture.answer(call.id, read_of(updating(&web), "W/2"));
                }
                ArmRequest::Poll(_) => polled = Some(fixture.now),
                other @ (ArmRequest::GetLoadBalancer(_) | ArmRequest::PutPool { .. }) => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(polled, Some(10_000));
    assert!((1..=2).contains(&reads), "{reads} glances with a budget of 6 reads, one of them spent before");
}

#[test]
fn w9_all_lanes_together_make_at_most_ten_glances_a_second() {
    let mut fixture = Fixture::leading(params());
    let pools: Vec<PoolId> = (0..40).map(|n| pool(&format!("lb-{n}"), "web")).collect();
    let begun: Vec<CallId> = pools.iter().map(|pool| fixture.begin_put(pool, &[1]).1).collect();
    for call in begun {
        fixture.answer(call, accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(20))));
    }
    let mut glances = 0;
    for now in (100..20_000).step_by(100) {
        let output = fixture.until(now);
        for call in calls(&output) {
            if let ArmRequest::GetPool(read) = &call.request {
                glances += 1;
                fixture.answer(call.id, read_of(updating(read), "W/2"));
            }
        }
    }
    assert!((100..=200).contains(&glances), "{glances} glances in 20 s");
}
