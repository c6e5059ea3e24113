//! Tests of the metrics of grants and admin parts (docs/design/reporting.md, E2).

use super::*;
use model::sample::Caller;

fn failing() -> Arc<Failure> {
    failed(503, "ServiceUnavailable", RetryAfter::Absent)
}

/// The waits for lanes so far, in milliseconds.
fn waits(bench: &Bench) -> Vec<(Caller, u128)> {
    bench.samples(|sample| {
        let Metric::LaneWait { caller, waited } = sample else { return None };
        Some((*caller, waited.as_millis()))
    })
}

/// The ended admin parts so far: whether a Down, the duration in milliseconds, whether it failed.
fn ends(bench: &Bench) -> Vec<(bool, u128, bool)> {
    bench.samples(|sample| {
        let Metric::AdminEnded { down, took, failed } = sample else { return None };
        Some((*down, took.as_millis(), *failed))
    })
}

#[test]
fn e2_each_part_of_a_slot_measures_how_long_it_has_waited_for_its_lane() {
    let mut bench = Bench::leading(params());
    bench.step(In::Leadership(Leadership::Standby));
    let web = pool("lb", "web");
    bench.due(&web, due(500, MembershipUrgency::Add));
    bench.step(In::AdminDue(web.clone(), Some(down(1_000))));
    bench.step(In::AdminDue(pool("other", "web"), Some(down(2_000))));
    bench.until(4_500);
    bench.lead(2);
    let waited = waits(&bench);
    assert_eq!(
        waited,
        [(Caller::Membership, 4_000), (Caller::AdminState, 3_500), (Caller::AdminState, 2_500)],
        "the other pool has no membership that is due"
    );
}

#[test]
fn e2_an_admin_part_measures_its_wait_at_its_first_grant() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    let (attempt, read) = bench.begin(&web, &[1]);
    bench.fail(read, failing());
    bench.until(1_000);
    let output = bench.step(In::AdminDue(web.clone(), Some(down(900))));
    assert_eq!(take(&output), attempt, "it joins the write that waits for its next try");
    let read = bench.take_level(&web, attempt, &[1]);
    bench.fail(read, failing());
    assert_eq!(take(&bench.until(20_000)), attempt);
    assert_eq!(waits(&bench), [(Caller::Membership, 0), (Caller::AdminState, 100)]);
}

#[test]
fn e2_an_attempt_with_an_admin_part_is_measured_once() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    bench.step(In::Draining(drains(1)));
    let read = get(&bench.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    bench.now = 20;
    let call = put(&bench.answer(read, read_of(pool_with(&web, &[1]), "W/1")), &web).0;
    bench.now = 120;
    bench.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    let restore = AdminDue { urgency: AdminUrgency::Restore, ..down(120) };
    let read = get(&bench.step(In::AdminDue(web.clone(), Some(restore))), &web);
    bench.now = 150;
    bench.answer(read, read_of(pool_with(&web, &[2]), "W/2"));
    assert_eq!(ends(&bench), [(true, 120, false), (false, 30, false)]);
}

#[test]
fn e2_each_try_of_an_admin_part_is_one_observation() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    bench.step(In::Draining(drains(1)));
    let read = get(&bench.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    bench.until(700);
    bench.fail(read, failing());
    let read = get(&bench.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    bench.fail(read, failed(404, "NotFound", RetryAfter::Absent));
    assert_eq!(ends(&bench), [(true, 700, true), (true, 0, false)]);
}

#[test]
fn n3_a_404_of_an_admin_write_is_stale_for_the_pool_or_its_parent() {
    let codes = [
        ("ResourceNotFound", false),
        ("ParentResourceNotFound", false),
        ("ResourceGroupNotFound", true),
        ("SubscriptionNotFound", true),
        ("", true),
    ];
    for (code, is_failure) in codes {
        let mut bench = Bench::leading(params());
        let web = pool("lb", "web");
        bench.step(In::Draining(drains(1)));
        let read = get(&bench.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
        let call = put(&bench.answer(read, read_of(pool_with(&web, &[1]), "W/1")), &web).0;
        bench.fail(call, failed(404, code, RetryAfter::Absent));
        assert_eq!(ends(&bench), [(true, 0, is_failure)], "{code}");
    }
}

#[test]
fn e2_an_admin_part_that_stays_due_is_not_measured() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    bench.step(In::Draining(drains(1)));
    get(&bench.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    bench.step(In::Leadership(Leadership::Standby));
    assert!(ends(&bench).is_empty(), "interrupted");
    let read =
        get(&bench.step(In::Leadership(Leadership::Leading { epoch: Epoch(2), until: at(30_000) })), &web);
    bench.until(5_001);
    let output = bench.answer(read, read_of(pool_with(&web, &[1]), "W/1"));
    assert!(calls(&output).is_empty(), "its permit was refused: {output:?}");
    assert!(ends(&bench).is_empty(), "not granted");
    let read = get(&bench.lead(3), &web);
    let call = put(&bench.answer(read, read_of(pool_with(&web, &[1]), "W/1")), &web).0;
    bench.answer(call, ArmAnswer::Withheld);
    assert!(ends(&bench).is_empty(), "nothing was sent");
}
