//! Tests of holds of the shared Lease: which events keep and end them, and requests after failures, changes of
//! leadership and lock failures (docs/design/writer.md, W7; W8).

use super::*;

/// Answers each renewal until the forced end of the hold, at second 60. Returns the output.
fn renewed_until_its_end(fixture: &mut Fixture) -> Vec<Out> {
    for (version, second) in [(3, 15), (4, 30), (5, 45)] {
        let (call, ..) = replaces(&fixture.until(second * 1_000));
        fixture.lease(call, state(version, Some(OURS)));
    }
    fixture.until(60_000)
}

/// Advances the clock, with a watch that returns no new state.
fn pass(fixture: &mut Fixture, watch: &mut CallId, second: u64) {
    while fixture.now < second * 1_000 {
        fixture.until((second * 1_000).min(fixture.now + 30_000));
        *watch = lease_watch(&fixture.lease(*watch, LeaseAnswer::Unchanged));
    }
}

/// Returns the remaining cooldown in seconds.
fn cooldown_seconds(fixture: &Fixture) -> u64 {
    let view = |output: &Out| if let Out::SharedLease(view) = output { Some(view.clone()) } else { None };
    let view = fixture.shown.iter().rev().find_map(view).expect("it is shown");
    let until = view.until.filter(|_| view.state == "cooldown");
    until.map_or(0, |until| until.since(at(fixture.now)).as_secs())
}

#[test]
fn w8_a_new_term_keeps_the_lease_while_an_older_put_is_open() {
    let (mut fixture, web, attempt) = Fixture::with_hold(leased());
    let read = fixture.take_level(&web, attempt, &[1]);
    let (put, ..) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    fixture.step(In::Leadership(Leadership::Standby));
    let output = fixture.lead(2);
    let output = fixture.lease(lease_read(&output), state(2, Some(OURS)));
    assert!(
        none_replaced(&output) && none_replaced(&fixture.until(10_000)),
        "nothing wants it, and the PUT is open"
    );
    let output = fixture.answer(put, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    let (_, version, edit) = replaces(&output);
    assert_eq!((version, edit.holder, edit.previous_holder.as_deref()), (2, None, Some(OURS)));
}

#[test]
fn w7_a_get_that_waits_for_a_token_releases_the_lease() {
    let mut params = leased();
    params.reads_per_5_minutes = 100;
    let (mut fixture, web, attempt) = Fixture::with_hold(params);
    let other = pool("other", "api");
    let later = take(&fixture.due(&other, due(0, MembershipUrgency::Add)));
    let read = fixture.take_level(&web, attempt, &[1]);
    let (put, ..) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    fixture.step(In::Headroom(GateClass::Reads, 0));
    let output = fixture.step(In::Taken(other.clone(), later, Some(taken_level(&other, &[1]))));
    assert!(calls(&output).is_empty() && none_replaced(&output), "its GET waits, the PUT keeps the Lease");
    let output = fixture.answer(put, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    assert_eq!(replaces(&output).2.holder, None, "the next token comes in three seconds");
    get(&fixture.until(3_000), &other);
}

#[test]
fn w7_an_operation_of_an_earlier_hold_does_not_keep_a_later_one() {
    let (mut fixture, web, attempt) = Fixture::with_hold(leased());
    let read = fixture.take_level(&web, attempt, &[1]);
    let (put, ..) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    fixture.answer(put, accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(90))));
    let (release, ..) = replaces(&renewed_until_its_end(&mut fixture));
    let output = fixture.lease(release, state(6, None));
    fixture.answer_count_with_zero(output);
    let other = pool("other", "api");
    let (call, ..) = replaces(&fixture.due(&other, due(60_000, MembershipUrgency::Add)));
    let attempt = take(&fixture.lease(call, state(7, Some(OURS))));
    let (_, version, edit) = replaces(&nothing_to_do(&mut fixture, &other, attempt));
    assert_eq!((version, edit.holder), (7, None));
    assert!(fixture.writer.lanes.values().any(|lane| lane.write.is_some()), "the operation still runs");
}

#[test]
fn w7_a_renewal_overtaken_by_another_client_ends_the_hold() {
    let (mut fixture, watch, read) = Fixture::reading();
    let web = pool("lb", "web");
    let (put, ..) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    fixture.answer(put, accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(90))));
    let (renewal, ..) = replaces(&fixture.until(15_000));
    fixture.lease(renewal, state(3, Some(OURS)));
    let (renewal, ..) = replaces(&fixture.until(30_000));
    fixture.lease(watch, state(4, Some(OURS)));
    let mut output = fixture.lease(renewal, LeaseAnswer::Conflict);
    assert_eq!(fixture.writer.lock_send_deadline(), None);
    while fixture.now < 100_000 {
        assert!(none_replaced(&output), "what another client holds is given back or renewed: {output:?}");
        let open =
            lease_requests(&output).into_iter().find(|(_, request)| matches!(request, LeaseRequest::Get));
        if let Some((call, _)) = open {
            output = fixture.lease(call, lost());
            continue;
        }
        output = fixture.until(fixture.now + 1_000);
    }
}

#[test]
fn w7_a_new_service_counts_while_another_has_no_ingress() {
    let (mut fixture, mut watch) = Fixture::with_lease(leased(), 1, None);
    let web = pool("lb", "web");
    let mut version = 1;
    // A hold that begins and ends at this time. Returns its cooldown in seconds.
    let mut hold = |fixture: &mut Fixture, second: u64| {
        pass(fixture, &mut watch, second);
        let (call, ..) = replaces(&fixture.due(&web, due(fixture.now, MembershipUrgency::Add)));
        version += 1;
        let (_, attempt) =
            takes(&fixture.lease(call, state(version, Some(OURS)))).pop().expect("it is granted");
        let (call, ..) = replaces(&fixture.step(In::Taken(web.clone(), attempt, None)));
        version += 1;
        let (count, _) = counted(&fixture.lease(call, state(version, None)));
        fixture.step(In::LockFailures(count, Some(0)));
        cooldown_seconds(fixture)
    };
    fixture.step(In::AwaitingIngress(Some(1)));
    assert_eq!(hold(&mut fixture, 10), 60);
    fixture.step(In::AwaitingIngress(Some(2)));
    assert_eq!(hold(&mut fixture, 309), 0, "within five minutes nothing counts");
    assert_eq!(hold(&mut fixture, 370), 60, "the second one counts at the next hold's end");
    fixture.step(In::AwaitingIngress(Some(1)));
    assert_eq!(hold(&mut fixture, 700), 0, "the second one is served; the first has counted");
    fixture.step(In::AwaitingIngress(Some(3)));
    assert_eq!(hold(&mut fixture, 770), 60);
}

#[test]
fn w8_a_shutdown_reads_immediately_despite_earlier_failures() {
    let (mut fixture, web, attempt) = Fixture::with_hold(leased());
    let read = fixture.take_level(&web, attempt, &[1]);
    let (put, ..) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    let (renewal, ..) = replaces(&fixture.until(15_000));
    fixture.lease(renewal, lost());
    for second in [16, 18, 23] {
        let output = fixture.until(second * 1_000);
        fixture.lease(lease_read(&output), lost());
    }
    assert!(lease_requests(&fixture.until(24_000)).is_empty(), "the next read waits for ten seconds");
    let output = fixture.step(In::Shutdown);
    let (renewal, ..) = replaces(&fixture.lease(lease_read(&output), state(2, Some(OURS))));
    fixture.lease(renewal, state(3, Some(OURS)));
    let output = fixture.answer(put, accepted(Provisioning::Updating, RetryAfter::Absent));
    let (_, version, edit) = replaces(&output);
    assert_eq!((version, edit.holder), (3, None));
}

#[test]
fn w8_a_new_term_reads_immediately_despite_earlier_failures() {
    let mut fixture = Fixture::new(leased());
    let mut output = fixture.lead(1);
    for second in [1, 3, 8] {
        fixture.lease(lease_read(&output), lost());
        output = fixture.until(second * 1_000);
    }
    fixture.lease(lease_read(&output), lost());
    fixture.step(In::Leadership(Leadership::Standby));
    lease_read(&fixture.lead(2));
}

#[test]
fn w7_a_missing_lease_is_read_every_30_seconds() {
    let mut fixture = Fixture::new(leased());
    let mut output = fixture.lead(1);
    for second in [30, 60, 90] {
        fixture.lease(lease_read(&output), LeaseAnswer::Absent);
        assert!(lease_requests(&fixture.until(second * 1_000 - 1)).is_empty());
        output = fixture.until(second * 1_000);
    }
    let output = fixture.lease(lease_read(&output), state(1, None));
    lease_watch(&output);
}

#[test]
fn w7_a_client_with_lock_failures_is_a_holder_for_1_h() {
    for (failures, off) in [(2, true), (0, false)] {
        let (mut fixture, mut watch) = Fixture::with_lease(leased(), 1, None);
        let web = pool("lb", "web");
        let (call, ..) = replaces(&fixture.due(&web, due(0, MembershipUrgency::Add)));
        let attempt = take(&fixture.lease(call, state(2, Some(OURS))));
        let (call, ..) = replaces(&nothing_to_do(&mut fixture, &web, attempt));
        let (count, _) = counted(&fixture.lease(call, state(3, None)));
        fixture.step(In::LockFailures(count, Some(failures)));
        pass(&mut fixture, &mut watch, 400);
        let (call, ..) = replaces(&fixture.due(&web, due(400_000, MembershipUrgency::Add)));
        let attempt = take(&fixture.lease(call, state(4, Some(OURS))));
        let (call, ..) = replaces(&nothing_to_do(&mut fixture, &web, attempt));
        let output = fixture.lease(call, state(5, None));
        fixture.answer_count_with_zero(output);
        let output = fixture.due(&web, due(400_000, MembershipUrgency::Add));
        assert_eq!(none_replaced(&output), off, "{failures} failures");
        if off {
            assert!(none_replaced(&fixture.until(404_999)));
            replaces(&fixture.until(405_000));
        }
    }
}

#[test]
fn w7_waiting_clients_are_counted_before_the_next_take() {
    let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
    let web = pool("lb", "web");
    let (call, ..) = replaces(&fixture.due(&web, due(0, MembershipUrgency::Add)));
    let attempt = take(&fixture.lease(call, state(2, Some(OURS))));
    let (call, ..) = replaces(&nothing_to_do(&mut fixture, &web, attempt));
    let output = fixture.lease(call, state(3, None));
    counted(&output);
    fixture.answer_count_with_zero(output);
    // A long hold follows ten seconds later. The last count is less than a minute ago.
    fixture.lease(watch, LeaseAnswer::Unchanged);
    fixture.now = 10_000;
    let output = fixture.due(&web, due(10_000, MembershipUrgency::Add));
    let (call, ..) = replaces(&output);
    let attempt = take(&fixture.lease(call, state(4, Some(OURS))));
    let read = fixture.take_level(&web, attempt, &[1]);
    let output = fixture.until(25_000);
    fixture.lease(replaces(&output).0, state(5, Some(OURS)));
    fixture.now = 29_000;
    let output = fixture.answer(read, read_of(pool_with(&web, &[1]), "W/1"));
    let output = fixture.lease(replaces(&output).0, state(6, None));
    let (count, since) = counted(&output);
    assert!(since <= at(10_000), "{since:?}");
    let output = fixture.due(&web, due(29_000, MembershipUrgency::Add));
    assert!(
        none_replaced(&output) && none_replaced(&fixture.until(29_500)),
        "another client may have waited all the time"
    );
    assert!(none_replaced(&fixture.step(In::LockFailures(count, Some(1)))));
    let shown = |output: &Out| if let Out::SharedLease(view) = output { Some(view.clone()) } else { None };
    let view = fixture.shown.iter().rev().find_map(shown).expect("it is shown");
    assert_eq!((view.state, view.until), ("cooldown", Some(at(89_500))));
}
