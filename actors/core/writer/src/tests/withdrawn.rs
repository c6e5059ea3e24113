//! Tests of withdrawn admin parts (W1): each withdrawal is answered once, when no admin part is left in the slot or in
//! flight.

use super::*;

/// Returns generation 2 of the draining set, which is empty.
fn nothing_drains() -> In {
    In::Draining(Arc::new(Draining { generation: 2, ..Draining::default() }))
}

/// Returns the pools whose withdrawn admin part has ended at generation 2 of the draining set, each with the generation
/// of its write, if there was one.
fn withdrawn(output: &[Out]) -> Vec<(&PoolId, Option<u64>)> {
    let mut withdrawn = Vec::new();
    for output in output {
        if let Out::AdminStates(pool, states) = output
            && states.withdrawn == Some(2)
        {
            let ended = admin_end(output);
            assert!(ended.is_none_or(|end| end.result.is_ok()), "{ended:?}");
            withdrawn.push((pool, ended.map(|end| end.generation)));
        }
    }
    withdrawn
}

fn failing() -> Arc<Failure> {
    failed(503, "ServiceUnavailable", RetryAfter::Absent)
}

#[test]
fn n3_an_unstarted_admin_part_is_withdrawn_without_a_call() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.step(In::Leadership(Leadership::Standby));
    fixture.step(In::Draining(drains(1)));
    fixture.step(In::AdminDue(web.clone(), Some(down(0))));
    fixture.step(nothing_drains());
    let output = fixture.step(In::AdminDue(web.clone(), None));
    assert_eq!(withdrawn(&output), [(&web, None)], "{output:?}");
    assert!(fixture.lead(2).iter().all(|output| !matches!(output, Out::Call(_))));
    let again = fixture.step(In::AdminDue(web.clone(), None));
    assert_eq!(withdrawn(&again), [(&web, None)], "{again:?}");
}

#[test]
fn n3_a_write_in_flight_ends_before_the_withdrawal_is_answered() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.step(In::Draining(drains(1)));
    let read = get(&fixture.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    let call = put(&fixture.answer(read, read_of(pool_with(&web, &[1, 2]), "W/1")), &web).0;
    fixture.step(nothing_drains());
    assert!(fixture.step(In::AdminDue(web.clone(), None)).is_empty());
    let output = fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    assert_eq!((output.len(), withdrawn(&output)), (1, vec![(&web, Some(1))]), "{output:?}");
}

#[test]
fn n3_a_withdrawn_waiting_write_still_reads_the_pool() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.step(In::Draining(drains(1)));
    let (_, other) = fixture.begin(&pool("lb", "other"), &[9]);
    fixture.due(&web, due(0, MembershipUrgency::Add));
    fixture.step(In::AdminDue(web.clone(), Some(down(0))));
    let output = fixture.answer(other, read_of(pool_with(&pool("lb", "other"), &[9]), "W/1"));
    let attempt = take(&output);
    let read = fixture.take_level(&web, attempt, &[1, 2]);
    fixture.fail(read, failing());
    fixture.step(nothing_drains());
    assert!(fixture.step(In::AdminDue(web.clone(), None)).is_empty());
    let output = fixture.until(6_000);
    assert_eq!(takes(&output)[..], [(web.clone(), attempt)], "{output:?}");
    let read = fixture.take_level(&web, attempt, &[1, 2]);
    let output = fixture.answer(read, read_of(pool_with(&web, &[1, 2]), "W/1"));
    assert_eq!(withdrawn(&output), [(&web, Some(2))], "{output:?}");
}

#[test]
fn n3_an_admin_part_that_is_due_again_is_not_withdrawn() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.step(In::Draining(drains(1)));
    let read = get(&fixture.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    fixture.step(In::AdminDue(web.clone(), None));
    fixture.step(In::AdminDue(web.clone(), Some(down(1))));
    let call = put(&fixture.answer(read, read_of(pool_with(&web, &[1, 2]), "W/1")), &web).0;
    let output = fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    assert!(withdrawn(&output).is_empty(), "{output:?}");
    assert!(output.iter().filter_map(admin_end).any(|end| end.result.is_ok()));
    get(&output, &web);
}
