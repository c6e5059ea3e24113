//! Tests of glances at a pool between two polls of its operation (docs/design/writer.md, W2).

use super::*;

/// A write whose operation runs, and is not polled before 10 s have passed.
fn slow(params: Params) -> (Bench, PoolId, AttemptId) {
    let mut bench = Bench::leading(params);
    let web = pool("lb", "web");
    let (attempt, call) = bench.begin_put(&web, &[1]);
    bench.answer(call, accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(10))));
    (bench, web, attempt)
}

/// The pool during its operation, with its future members.
fn updating(pool: &PoolId) -> PoolFacts {
    PoolFacts { provisioning: Provisioning::Updating, ..pool_with(pool, &[1]) }
}

fn ended(output: &[Out]) -> bool {
    output.iter().any(|output| matches!(output, Out::Finished(..)))
}

#[test]
fn w2_a_write_ends_as_soon_as_its_pool_is_seen_as_written() {
    let (mut bench, web, attempt) = slow(params());
    let read = get(&bench.until(1_000), &web);
    assert!(!ended(&bench.answer(read, read_of(updating(&web), "W/2"))), "it still runs");
    bench.until(1_100);
    let read = get(&bench.until(2_000), &web);
    let output = bench.answer(read, read_of(pool_with(&web, &[1]), "W/3"));
    assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }));
    let next = bench.begin(&web, &[2]);
    assert!(next.0 != attempt, "its lane is free");
}

#[test]
fn w2_a_glance_that_does_not_show_the_end_delays_no_poll() {
    let (mut bench, web, attempt) = slow(params());
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
        let output = bench.until(now);
        for call in calls(&output) {
            match &call.request {
                ArmRequest::GetPool(_) => {
                    let answer = states[glances % states.len()].clone();
                    glances += 1;
                    assert!(!ended(&bench.answer(call.id, answer)), "glance {glances}");
                }
                ArmRequest::Poll(_) => asked = Some((now, call.id)),
                other @ (ArmRequest::GetLoadBalancer(_) | ArmRequest::PutPool { .. }) => panic!("{other:?}"),
            }
        }
    }
    let (when, call) = asked.expect("the operation is polled");
    assert_eq!((when, glances > 0), (10_000, true));
    let output = bench.answer(call, ArmAnswer::Operation(OperationState::Succeeded));
    assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }));
}

#[test]
fn w2_a_failed_glance_is_the_last_one_before_the_next_poll() {
    let (mut bench, web, _) = slow(params());
    let read = get(&bench.until(1_000), &web);
    bench.fail(read, failed(503, "", RetryAfter::Absent));
    assert!(calls(&bench.until(9_999)).is_empty());
    poll(&bench.until(10_000));
}

#[test]
fn w2_a_late_glance_delays_no_poll_and_still_counts() {
    let (mut bench, web, attempt) = slow(params());
    let read = get(&bench.until(1_000), &web);
    let call = poll(&bench.until(10_000));
    bench.answer(call, running(RetryAfter::In(Duration::from_secs(10))));
    let output = bench.answer(read, read_of(pool_with(&web, &[1]), "W/3"));
    assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }));
}

#[test]
fn w9_no_glances_while_less_than_half_of_the_read_budget_is_left() {
    let few = Params { reads_per_5_minutes: 6, ..params() };
    let (mut bench, web, _) = slow(few);
    let mut reads = 0;
    let mut polled = None;
    while polled.is_none() && bench.now < 60_000 {
        let output = bench.until(bench.now + 500);
        for call in calls(&output) {
            match &call.request {
                ArmRequest::GetPool(_) => {
                    reads += 1;
                    bench.answer(call.id, read_of(updating(&web), "W/2"));
                }
                ArmRequest::Poll(_) => polled = Some(bench.now),
                other @ (ArmRequest::GetLoadBalancer(_) | ArmRequest::PutPool { .. }) => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(polled, Some(10_000));
    assert!((1..=2).contains(&reads), "{reads} glances with a budget of 6 reads, one of them spent before");
}

#[test]
fn w9_all_lanes_together_glance_ten_times_a_second_at_most() {
    let mut bench = Bench::leading(params());
    let pools: Vec<PoolId> = (0..40).map(|n| pool(&format!("lb-{n}"), "web")).collect();
    let begun: Vec<CallId> = pools.iter().map(|pool| bench.begin_put(pool, &[1]).1).collect();
    for call in begun {
        bench.answer(call, accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(20))));
    }
    let mut glances = 0;
    for now in (100..20_000).step_by(100) {
        let output = bench.until(now);
        for call in calls(&output) {
            if let ArmRequest::GetPool(read) = &call.request {
                glances += 1;
                bench.answer(call.id, read_of(updating(read), "W/2"));
            }
        }
    }
    assert!((100..=200).contains(&glances), "{glances} glances in 20 s");
}
