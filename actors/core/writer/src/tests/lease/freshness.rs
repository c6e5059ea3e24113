//! Tests of the freshness of the observed Lease after lost answers, reported deletions, and new terms
//! (docs/design/writer.md, W7; W8).

use super::*;

#[test]
fn w7_a_hold_of_our_predecessor_is_taken_over_immediately() {
    for first_read_is_lost in [false, true] {
        let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
        fixture.now = 1_000;
        let mut looking = lease_read(&fixture.lead(2));
        assert!(none_replaced(&fixture.due(&pool("lb", "web"), due(1_000, MembershipUrgency::Add))));
        if first_read_is_lost {
            fixture.lease(looking, lost());
            looking = lease_read(&fixture.until(2_000));
        } else {
            // The watch is from the previous term.
            fixture.lease(watch, LeaseAnswer::Absent);
        }
        let (take, replaced, _) = replaces(&fixture.lease(looking, state(7, Some(OURS))));
        assert_eq!(replaced, 7, "the first read is lost: {first_read_is_lost}");
        super::super::take(&fixture.lease(take, state(8, Some(OURS))));
    }
}

#[test]
fn w7_a_renewal_carried_out_after_a_forced_end_is_not_foreign() {
    let (mut fixture, web, attempt) = Fixture::with_hold(leased());
    let read = fixture.take_level(&web, attempt, &[1]);
    let (put, ..) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    fixture.answer(put, accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(90))));
    // Slow answers shift the renewals, so that one is sent less than six seconds before the end.
    let (renewal, ..) = replaces(&fixture.until(15_000));
    fixture.until(20_000);
    fixture.lease(renewal, lost());
    let looking = lease_read(&fixture.until(21_000));
    fixture.until(26_000);
    let (renewal, ..) = replaces(&fixture.lease(looking, state(2, Some(OURS))));
    fixture.lease(renewal, state(3, Some(OURS)));
    let (renewal, ..) = replaces(&fixture.until(41_000));
    fixture.lease(renewal, state(4, Some(OURS)));
    let (_, replaced, edit) = replaces(&fixture.until(56_000));
    assert_eq!((replaced, edit.holder.as_deref()), (4, Some(OURS)));
    let (release, replaced, edit) = replaces(&fixture.until(60_000));
    assert_eq!((replaced, edit.holder), (4, None), "its answer is not waited for");
    let output = fixture.lease(release, LeaseAnswer::Conflict);
    let (_, replaced, edit) = replaces(&fixture.lease(lease_read(&output), state(5, Some(OURS))));
    assert_eq!((replaced, edit.holder), (5, None), "what it has made is given back at once");
}

#[test]
fn w8_a_state_first_watched_is_released_once_it_is_ours() {
    let (mut fixture, watch, _) = Fixture::reading();
    let (renewal, ..) = replaces(&fixture.until(15_000));
    fixture.lease(watch, state(3, Some(OURS)));
    fixture.lease(renewal, state(3, Some(OURS)));
    let (_, replaced, edit) = replaces(&fixture.step(In::Leadership(Leadership::Standby)));
    assert_eq!((replaced, edit.holder), (3, None));
}

#[test]
fn w7_after_a_deletion_the_watch_opens_again_in_five_seconds() {
    let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
    let output = fixture.lease(watch, LeaseAnswer::Absent);
    assert_eq!(lease_requests(&output).len(), 1, "a read: {output:?}");
    let output = fixture.lease(lease_read(&output), state(1, None));
    assert!(
        lease_requests(&output).is_empty() && lease_requests(&fixture.until(4_999)).is_empty(),
        "{output:?}"
    );
    lease_watch(&fixture.until(5_000));
}
