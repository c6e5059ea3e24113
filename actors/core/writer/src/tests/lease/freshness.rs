//! Tests of the freshness of the observed Lease after lost answers, reported deletions, and new terms
//! (docs/design/writer.md, W7; W8).

use super::*;

#[test]
fn w7_a_hold_of_our_predecessor_is_taken_over_immediately() {
    for first_read_is_lost in [false, true] {
        let (mut bench, watch) = Bench::with_lease(leased(), 1, None);
        bench.now = 1_000;
        let mut looking = lease_read(&bench.lead(2));
        assert!(none_replaced(&bench.due(&pool("lb", "web"), due(1_000, MembershipUrgency::Add))));
        if first_read_is_lost {
            bench.lease(looking, lost());
            looking = lease_read(&bench.until(2_000));
        } else {
            // The watch is from the previous term.
            bench.lease(watch, LeaseAnswer::Absent);
        }
        let (take, replaced, _) = replaces(&bench.lease(looking, state(7, Some(OURS))));
        assert_eq!(replaced, 7, "the first read is lost: {first_read_is_lost}");
        super::super::take(&bench.lease(take, state(8, Some(OURS))));
    }
}

#[test]
fn w7_a_renewal_carried_out_after_a_forced_end_is_no_strangers() {
    let (mut bench, web, attempt) = Bench::with_hold(leased());
    let read = bench.take_level(&web, attempt, &[1]);
    let (put, ..) = put(&bench.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    bench.answer(put, accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(90))));
    // Slow answers shift the renewals, so that one is sent less than six seconds before the end.
    let (renewal, ..) = replaces(&bench.until(15_000));
    bench.until(20_000);
    bench.lease(renewal, lost());
    let looking = lease_read(&bench.until(21_000));
    bench.until(26_000);
    let (renewal, ..) = replaces(&bench.lease(looking, state(2, Some(OURS))));
    bench.lease(renewal, state(3, Some(OURS)));
    let (renewal, ..) = replaces(&bench.until(41_000));
    bench.lease(renewal, state(4, Some(OURS)));
    let (_, replaced, edit) = replaces(&bench.until(56_000));
    assert_eq!((replaced, edit.holder.as_deref()), (4, Some(OURS)));
    let (release, replaced, edit) = replaces(&bench.until(60_000));
    assert_eq!((replaced, edit.holder), (4, None), "its answer is not waited for");
    let output = bench.lease(release, LeaseAnswer::Conflict);
    let (_, replaced, edit) = replaces(&bench.lease(lease_read(&output), state(5, Some(OURS))));
    assert_eq!((replaced, edit.holder), (5, None), "what it has made is given back at once");
}

#[test]
fn w8_a_state_first_seen_by_the_watch_is_released_once_it_is_ours() {
    let (mut bench, watch, _) = Bench::reading();
    let (renewal, ..) = replaces(&bench.until(15_000));
    bench.lease(watch, state(3, Some(OURS)));
    bench.lease(renewal, state(3, Some(OURS)));
    let (_, replaced, edit) = replaces(&bench.step(In::Leadership(Leadership::Standby)));
    assert_eq!((replaced, edit.holder), (3, None));
}

#[test]
fn w7_after_a_deletion_the_watch_opens_again_in_five_seconds() {
    let (mut bench, watch) = Bench::with_lease(leased(), 1, None);
    let output = bench.lease(watch, LeaseAnswer::Absent);
    assert_eq!(lease_requests(&output).len(), 1, "a read: {output:?}");
    let output = bench.lease(lease_read(&output), state(1, None));
    assert!(
        lease_requests(&output).is_empty() && lease_requests(&bench.until(4_999)).is_empty(),
        "{output:?}"
    );
    lease_watch(&bench.until(5_000));
}
