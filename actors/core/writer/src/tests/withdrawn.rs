//! Tests of withdrawals of admin parts: each is answered once, when nothing is left in a slot or in flight.

use super::*;

/// The next generation of the set, in which nothing drains.
fn nothing_drains() -> In {
    In::Draining(Arc::new(Draining { generation: 2, ..Draining::default() }))
}

fn failing() -> Arc<Failure> {
    failed(503, "ServiceUnavailable", RetryAfter::Absent)
}

#[test]
fn n3_a_part_that_has_not_begun_is_withdrawn_without_a_call() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    bench.step(In::Standing(Standing::Standby));
    bench.step(In::Draining(drains(1)));
    bench.step(In::AdminDue(web.clone(), Some(down(0))));
    bench.step(nothing_drains());
    let output = bench.step(In::AdminDue(web.clone(), None));
    assert!(matches!(&output[..], [Out::AdminWithdrawn(pool, 2)] if *pool == web), "{output:?}");
    assert!(bench.lead(2).iter().all(|output| !matches!(output, Out::Call(_))));
    let again = bench.step(In::AdminDue(web.clone(), None));
    assert!(matches!(&again[..], [Out::AdminWithdrawn(pool, 2)] if *pool == web), "{again:?}");
}

#[test]
fn n3_a_write_in_flight_ends_before_the_withdrawal_is_answered() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    bench.step(In::Draining(drains(1)));
    let read = get(&bench.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    let call = put(&bench.answer(read, read_of(pool_with(&web, &[1, 2]), "W/1")), &web).0;
    bench.step(nothing_drains());
    assert!(bench.step(In::AdminDue(web.clone(), None)).is_empty());
    let output = bench.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    let ended = matches!(
        &output[..],
        [Out::AdminFinished { generation: 1, result: Ok(_), .. }, Out::AdminWithdrawn(_, 2)]
    );
    assert!(ended, "{output:?}");
}

#[test]
fn n3_a_waiting_write_still_reads_the_pool_after_its_withdrawal() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    bench.step(In::Draining(drains(1)));
    let (_, other) = bench.begin(&pool("lb", "other"), &[9]);
    bench.due(&web, due(0, Class::Add));
    bench.step(In::AdminDue(web.clone(), Some(down(0))));
    let output = bench.answer(other, read_of(pool_with(&pool("lb", "other"), &[9]), "W/1"));
    let attempt = take(&output);
    let read = bench.take_level(&web, attempt, &[1, 2]);
    bench.fail(read, failing());
    bench.step(nothing_drains());
    assert!(bench.step(In::AdminDue(web.clone(), None)).is_empty());
    let output = bench.until(6_000);
    assert_eq!(takes(&output)[..], [(web.clone(), attempt)], "{output:?}");
    let read = bench.take_level(&web, attempt, &[1, 2]);
    let output = bench.answer(read, read_of(pool_with(&web, &[1, 2]), "W/1"));
    let ended = matches!(
        &output[..],
        [Out::AdminFinished { generation: 2, result: Ok(_), .. }, Out::AdminWithdrawn(_, 2), ..]
    );
    assert!(ended, "{output:?}");
}

#[test]
fn n3_a_part_that_is_due_again_is_not_withdrawn() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    bench.step(In::Draining(drains(1)));
    let read = get(&bench.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    bench.step(In::AdminDue(web.clone(), None));
    bench.step(In::AdminDue(web.clone(), Some(down(1))));
    let call = put(&bench.answer(read, read_of(pool_with(&web, &[1, 2]), "W/1")), &web).0;
    let output = bench.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    assert!(output.iter().all(|output| !matches!(output, Out::AdminWithdrawn(..))), "{output:?}");
    assert!(output.iter().any(|output| matches!(output, Out::AdminFinished { result: Ok(_), .. })));
    get(&output, &web);
}
