//! Tests of the metrics of grants and admin parts (docs/design/reporting.md, E2).

use super::*;
use model::sample::Caller;

fn failing() -> Arc<Failure> {
    failed(503, "ServiceUnavailable", RetryAfter::Absent)
}

/// Returns the waits for lanes so far, in milliseconds.
fn waits(fixture: &Fixture) -> Vec<(Caller, u128)> {
    fixture.samples(|sample| {
        let Metric::LaneWait { caller, waited } = sample else { return None };
        Some((*caller, waited.as_millis()))
    })
}

/// Returns the ended admin parts so far: whether a Down, the duration in milliseconds, whether it failed.
fn ends(fixture: &Fixture) -> Vec<(bool, u128, bool)> {
    fixture.samples(|sample| {
        let Metric::AdminEnded { down, took, failed } = sample else { return None };
        Some((*down, took.as_millis(), *failed))
    })
}

#[test]
fn e2_each_part_of_a_slot_measures_its_wait_for_the_lane() {
    let mut fixture = Fixture::leading(params());
    fixture.step(In::Leadership(Leadership::Standby));
    let web = pool("lb", "web");
    fixture.due(&web, due(500, MembershipUrgency::Add));
    fixture.step(In::AdminDue(web.clone(), Some(down(1_000))));
    fixture.step(In::AdminDue(pool("other", "web"), Some(down(2_000))));
    fixture.until(4_500);
    fixture.lead(2);
    let waited = waits(&fixture);
    assert_eq!(
        waited,
        [(Caller::Membership, 4_000), (Caller::AdminState, 3_500), (Caller::AdminState, 2_500)],
        "the other pool has no membership that is due"
    );
}

#[test]
fn e2_an_admin_part_measures_its_wait_at_its_first_grant() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, read) = fixture.begin(&web, &[1]);
    fixture.fail(read, failing());
    fixture.until(1_000);
    let output = fixture.step(In::AdminDue(web.clone(), Some(down(900))));
    assert_eq!(take(&output), attempt, "it joins the write that waits for its next try");
    let read = fixture.take_level(&web, attempt, &[1]);
    fixture.fail(read, failing());
    assert_eq!(take(&fixture.until(20_000)), attempt);
    assert_eq!(waits(&fixture), [(Caller::Membership, 0), (Caller::AdminState, 100)]);
}

#[test]
fn e2_an_attempt_with_an_admin_part_is_measured_once() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.step(In::Draining(drains(1)));
    let read = get(&fixture.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    fixture.now = 20;
    let call = put(&fixture.answer(read, read_of(pool_with(&web, &[1]), "W/1")), &web).0;
    fixture.now = 120;
    fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    let restore = AdminDue { urgency: AdminUrgency::Restore, ..down(120) };
    let read = get(&fixture.step(In::AdminDue(web.clone(), Some(restore))), &web);
    fixture.now = 150;
    fixture.answer(read, read_of(pool_with(&web, &[2]), "W/2"));
    assert_eq!(ends(&fixture), [(true, 120, false), (false, 30, false)]);
}

#[test]
fn e2_each_try_of_an_admin_part_is_one_observation() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.step(In::Draining(drains(1)));
    let read = get(&fixture.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    fixture.until(700);
    fixture.fail(read, failing());
    let read = get(&fixture.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    fixture.fail(read, failed(404, "NotFound", RetryAfter::Absent));
    assert_eq!(ends(&fixture), [(true, 700, true), (true, 0, false)]);
}

#[test]
fn n3_a_404_of_an_admin_write_is_stale_for_pool_or_balancer() {
    let codes = [
        ("ResourceNotFound", false),
        ("ParentResourceNotFound", false),
        ("ResourceGroupNotFound", true),
        ("SubscriptionNotFound", true),
        ("", true),
    ];
    for (code, is_failure) in codes {
        let mut fixture = Fixture::leading(params());
        let web = pool("lb", "web");
        fixture.step(In::Draining(drains(1)));
        let read = get(&fixture.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
        let call = put(&fixture.answer(read, read_of(pool_with(&web, &[1]), "W/1")), &web).0;
        fixture.fail(call, failed(404, code, RetryAfter::Absent));
        assert_eq!(ends(&fixture), [(true, 0, is_failure)], "{code}");
    }
}

#[test]
fn e2_an_admin_part_that_stays_due_is_not_measured() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.step(In::Draining(drains(1)));
    get(&fixture.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    fixture.step(In::Leadership(Leadership::Standby));
    assert!(ends(&fixture).is_empty(), "interrupted");
    let read =
        get(&fixture.step(In::Leadership(Leadership::Leading { epoch: Epoch(2), until: at(30_000) })), &web);
    fixture.until(5_001);
    let output = fixture.answer(read, read_of(pool_with(&web, &[1]), "W/1"));
    assert!(calls(&output).is_empty(), "its permit was refused: {output:?}");
    assert!(ends(&fixture).is_empty(), "not granted");
    let read = get(&fixture.lead(3), &web);
    let call = put(&fixture.answer(read, read_of(pool_with(&web, &[1]), "W/1")), &web).0;
    fixture.answer(call, ArmAnswer::Withheld);
    assert!(ends(&fixture).is_empty(), "nothing was sent");
}
