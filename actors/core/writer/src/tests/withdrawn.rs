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
fn n3_what_nobody_has_begun_is_withdrawn_at_once_and_costs_no_call() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    bench.hear(In::Standing(Standing::Standby));
    bench.hear(In::Draining(drains(1)));
    bench.hear(In::AdminDue(web.clone(), down(0)));
    bench.hear(nothing_drains());
    let said = bench.hear(In::AdminWithdraw(web.clone(), 2));
    assert!(matches!(&said[..], [Out::AdminWithdrawn(pool, 2)] if *pool == web), "{said:?}");
    assert!(bench.lead(2).iter().all(|said| !matches!(said, Out::Call(_))));
    let again = bench.hear(In::AdminWithdraw(web.clone(), 3));
    assert!(matches!(&again[..], [Out::AdminWithdrawn(pool, 3)] if *pool == web), "{again:?}");
}

#[test]
fn n3_what_is_under_way_goes_on_before_the_withdrawal_is_answered() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    bench.hear(In::Draining(drains(1)));
    let read = get(&bench.hear(In::AdminDue(web.clone(), down(0))), &web);
    let call = put(&bench.answer(read, read_of(holds(&web, &[1, 2]), "W/1")), &web).0;
    bench.hear(nothing_drains());
    assert!(bench.hear(In::AdminWithdraw(web.clone(), 2)).is_empty());
    let said = bench.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    let ended = matches!(
        &said[..],
        [Out::AdminFinished { generation: 1, result: Ok(_), .. }, Out::AdminWithdrawn(_, 2)]
    );
    assert!(ended, "{said:?}");
}

#[test]
fn n3_what_waits_for_its_next_try_finds_out_what_is_there() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    bench.hear(In::Draining(drains(1)));
    let (_, other) = bench.begin(&pool("lb", "other"), &[9]);
    bench.due(&web, due(0, Class::Add));
    bench.hear(In::AdminDue(web.clone(), down(0)));
    let said = bench.answer(other, read_of(holds(&pool("lb", "other"), &[9]), "W/1"));
    let attempt = take(&said);
    let read = bench.bring(&web, attempt, &[1, 2]);
    bench.fail(read, failing());
    bench.hear(nothing_drains());
    assert!(bench.hear(In::AdminWithdraw(web.clone(), 2)).is_empty());
    let said = bench.until(6_000);
    assert_eq!(takes(&said)[..], [(web.clone(), attempt)], "{said:?}");
    let read = bench.bring(&web, attempt, &[1, 2]);
    let said = bench.answer(read, read_of(holds(&web, &[1, 2]), "W/1"));
    let ended = matches!(
        &said[..],
        [Out::AdminFinished { generation: 2, result: Ok(_), .. }, Out::AdminWithdrawn(_, 2), ..]
    );
    assert!(ended, "{said:?}");
}

#[test]
fn n3_what_is_due_again_is_not_withdrawn() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    bench.hear(In::Draining(drains(1)));
    let read = get(&bench.hear(In::AdminDue(web.clone(), down(0))), &web);
    bench.hear(In::AdminWithdraw(web.clone(), 2));
    bench.hear(In::AdminDue(web.clone(), down(1)));
    let call = put(&bench.answer(read, read_of(holds(&web, &[1, 2]), "W/1")), &web).0;
    let said = bench.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    assert!(said.iter().all(|said| !matches!(said, Out::AdminWithdrawn(..))), "{said:?}");
    assert!(said.iter().any(|said| matches!(said, Out::AdminFinished { result: Ok(_), .. })));
    get(&said, &web);
}
