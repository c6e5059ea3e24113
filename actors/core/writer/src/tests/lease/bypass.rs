//! Tests of Downs without the shared Lease: their cost, and their effect on a hold (docs/design/writer.md, W7, W9).

use super::*;

/// Returns the load balancers with a write.
fn writing(fixture: &Fixture) -> Vec<&str> {
    let lanes = fixture.writer.lanes.iter().filter(|(_, lane)| lane.write.is_some());
    lanes.map(|(lb, _)| lb.as_str()).collect()
}

fn at_rest() -> ArmAnswer {
    lb_with("W/9", Provisioning::Succeeded, Provisioning::Succeeded)
}

#[test]
fn w7_a_down_without_the_lease_does_not_prolong_a_hold() {
    let (mut fixture, watch) = bypassing(true);
    let (web, other) = (pool("lb", "web"), pool("other", "api"));
    fixture.step(In::Draining(drains(2)));
    fixture.step(In::AdminDue(web.clone(), Some(down(0))));
    let output = fixture.until(2_000);
    let read = get(&fixture.answer(super::super::lb_read(&output, "lb"), at_rest()), &web);
    put(&fixture.answer(read, read_of(pool_with(&web, &[2]), "W/9")), &web);
    fixture.due(&other, due(2_000, MembershipUrgency::Add));
    let output = fixture.lease(watch, state(2, None));
    let attempt = take(&fixture.lease(replaces(&output).0, state(3, Some(OURS))));
    let (_, replaced, edit) = replaces(&nothing_to_do(&mut fixture, &other, attempt));
    assert_eq!((replaced, edit.holder), (3, None));
    assert_eq!(writing(&fixture), ["lb"], "its PUT is open");
}

#[test]
fn w9_a_down_without_the_lease_needs_budget_for_its_reads() {
    let mut params = Params { if_match: false, reads_per_5_minutes: 100, ..leased() };
    if let Some(lease) = &mut params.lease {
        lease.bypass_for_drain = true;
    }
    let (mut fixture, _) = Fixture::with_lease(params, 1, Some(CCM));
    // One read is left, and the next one comes three seconds later.
    fixture.step(In::Headroom(GateClass::Reads, 2));
    fixture.step(In::Draining(drains(1)));
    for lb in ["a", "b"] {
        fixture.step(In::AdminDue(pool(lb, "web"), Some(down(0))));
    }
    let output = fixture.until(2_000);
    assert_eq!((calls(&output).len(), writing(&fixture)), (1, vec!["a"]));
}

#[test]
fn w6_a_closing_gate_ends_a_down_that_waits_for_a_read() {
    let (mut fixture, _) = bypassing(true);
    let web = pool("lb", "web");
    fixture.step(In::Draining(drains(1)));
    fixture.step(In::AdminDue(web.clone(), Some(down(0))));
    let output = fixture.until(2_000);
    let read = get(&fixture.answer(super::super::lb_read(&output, "lb"), at_rest()), &web);
    let (put, ..) = put(&fixture.answer(read, read_of(pool_with(&web, &[1]), "W/9")), &web);
    let output = fixture.step(In::Read { call: CallId(7), lb: LbName::new("x") });
    let discovery = super::super::lb_read(&output, "x");
    fixture.step(In::Headroom(GateClass::Reads, 0));
    let output = fixture.fail(put, failed(412, "", RetryAfter::Absent));
    assert!(calls(&output).is_empty(), "its next read waits for a token");
    assert_eq!(writing(&fixture), ["lb"]);
    let throttled = failed(429, "SubscriptionRequestsThrottled", RetryAfter::In(Duration::from_secs(300)));
    fixture.fail(discovery, throttled);
    assert!(writing(&fixture).is_empty(), "it keeps neither its lane nor its turn");
}
