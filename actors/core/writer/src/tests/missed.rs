//! Tests of backends that PUTs of older draining sets have left in their pools, unknown to the admin state
//! (docs/design/nodes.md, N2).

use super::*;
use model::arm::{AdminState, Backend, Entry};

/// Returns a set in which these backends drain.
fn draining(generation: u64, backends: &[u8]) -> Draining {
    let addresses = backends.iter().map(|last| (ip(*last).into(), NodeUid::new("uid"))).collect();
    Draining { generation, addresses, ..Draining::default() }
}

fn drain(fixture: &mut Fixture, generation: u64, backends: &[u8]) {
    assert!(fixture.step(In::Draining(Arc::new(draining(generation, backends)))).is_empty());
}

/// Returns the backends that are, or may be, in service although they must be Down, by message to the admin state.
fn missed(fixture: &Fixture, output: &[Out]) -> Vec<BTreeSet<Backend>> {
    let missed = |output: &Out| {
        let Out::AdminStates(pool, states) = output else { return None };
        let entries = states.facts.iter().flat_map(|facts| &facts.entries);
        let set = &fixture.writer.draining;
        let lacks = entries.filter(|entry| set.wants(pool, entry) == Some(AdminState::Down));
        Some(lacks.filter_map(Entry::backend).chain(states.in_doubt.clone()).collect())
    };
    output.iter().filter_map(missed).filter(|missed: &BTreeSet<Backend>| !missed.is_empty()).collect()
}

fn states(output: &Out) -> Option<&PoolAdminStates> {
    if let Out::AdminStates(_, states) = output { Some(states) } else { None }
}

fn of(backends: &[u8]) -> BTreeSet<Backend> {
    backends.iter().map(|last| ip(*last).into()).collect()
}

fn done() -> ArmAnswer {
    accepted(Provisioning::Succeeded, RetryAfter::Absent)
}

#[test]
fn n2_members_added_by_a_put_that_now_drain_are_missed() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, call) = fixture.begin_put(&web, &[1, 2, 3]);
    drain(&mut fixture, 1, &[1]);
    drain(&mut fixture, 2, &[1, 2, 9]);
    let output = fixture.answer(call, done());
    assert!(matches!(output.first(), Some(Out::AdminStates(pool, ..)) if *pool == web), "{output:?}");
    assert_eq!(missed(&fixture, &output), [of(&[1, 2])]);
    assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }));
}

#[test]
fn n2_members_added_down_or_not_draining_are_not_missed() {
    let web = pool("lb", "web");
    let excluded = Draining { excluded: [web.pool.clone()].into(), ..draining(2, &[1]) };
    for (before, after) in [
        (draining(1, &[1]), draining(2, &[1])),
        (draining(1, &[]), draining(2, &[9])),
        (draining(2, &[]), draining(2, &[])),
        (draining(1, &[]), excluded),
    ] {
        let mut fixture = Fixture::leading(params());
        fixture.step(In::Draining(Arc::new(before.clone())));
        let (attempt, call) = fixture.begin_put(&web, &[1, 2]);
        fixture.step(In::Draining(Arc::new(after.clone())));
        let output = fixture.answer(call, done());
        assert!(missed(&fixture, &output).is_empty(), "{before:?} {after:?}");
        assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }));
    }
}

#[test]
fn n2_a_finished_write_of_members_alone_does_not_send_the_pool() {
    for (newer, in_doubt) in [(&[1][..], None), (&[1, 2][..], Some(of(&[2])))] {
        let mut fixture = Fixture::leading(params());
        let web = pool("lb", "web");
        drain(&mut fixture, 1, &[1]);
        let (_, call) = fixture.begin_put(&web, &[1, 2]);
        fixture.answer(call, accepted(Provisioning::Updating, RetryAfter::Absent));
        drain(&mut fixture, 2, newer);
        let call = poll(&fixture.until(1_000));
        // Another client may have written the pool since the operation ended.
        let output = fixture.answer(call, ArmAnswer::Operation(OperationState::Succeeded));
        let sent: Vec<_> = output.iter().filter_map(states).collect();
        assert!(sent.iter().all(|states| states.facts.is_none() && states.ended.is_none()), "{output:?}");
        assert_eq!(sent.first().map(|states| states.in_doubt.clone()), in_doubt, "{output:?}");
    }
}

#[test]
fn n2_the_state_after_a_put_is_as_old_as_its_acceptance() {
    for (provisioning, known) in [(Provisioning::Succeeded, 100), (Provisioning::Updating, 200)] {
        let mut fixture = Fixture::leading(params());
        let web = pool("lb", "web");
        drain(&mut fixture, 1, &[1]);
        fixture.until(100);
        let read = get(&fixture.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
        let call = put(&fixture.answer(read, read_of(pool_with(&web, &[1]), "W/1")), &web).0;
        fixture.until(200);
        let mut output = fixture.answer(call, accepted(provisioning, RetryAfter::Absent));
        if provisioning == Provisioning::Updating {
            let call = poll(&fixture.until(1_200));
            output = fixture.answer(call, ArmAnswer::Operation(OperationState::Succeeded));
        }
        let states = output.iter().find_map(states).expect("it is sent");
        assert!(states.ended.is_some() && states.facts.is_some(), "{states:?}");
        assert_eq!(states.at, at(known), "a GET that began later may show a later write");
    }
}

#[test]
fn n4_a_read_of_a_pool_is_as_old_as_its_beginning() {
    let web = pool("lb", "web");
    let with_down = || {
        let mut facts = pool_with(&web, &[1, 2]);
        facts.entries[0].admin_state = AdminState::Down;
        facts
    };
    let known = |output: &[Out]| {
        let known = output.iter().filter_map(states).filter(|states| states.facts.is_some());
        known.map(|states| (states.at, states.ended.is_some())).collect::<Vec<_>>()
    };
    let mut fixture = Fixture::leading(params());
    drain(&mut fixture, 1, &[1]);
    fixture.until(100);
    let read = get(&fixture.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    fixture.until(300);
    let output = fixture.answer(read, read_of(with_down(), "W/1"));
    let expected = [(at(100), false), (at(100), true)];
    assert_eq!(known(&output), expected, "the Down before any PUT, and nothing to write");
    // A glance that shows the end also ends the write.
    drain(&mut fixture, 2, &[1, 2]);
    let read = get(&fixture.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    let call = put(&fixture.answer(read, read_of(with_down(), "W/1")), &web).0;
    fixture.answer(call, accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(10))));
    let glance = get(&fixture.until(1_300), &web);
    let mut facts = with_down();
    facts.entries[1].admin_state = AdminState::Down;
    fixture.until(1_400);
    assert_eq!(known(&fixture.answer(glance, read_of(facts, "W/own"))), [(at(1_300), true)]);
}

#[test]
fn n2_an_entry_restored_as_its_node_drains_again_is_missed() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let restored = Draining { restorable: of(&[1]), ..draining(1, &[]) };
    fixture.step(In::Draining(Arc::new(restored)));
    let (_, read) = fixture.begin(&web, &[1, 2]);
    let mut facts = pool_with(&web, &[1]);
    facts.entries[0].admin_state = AdminState::Down;
    let (call, edit, _) = put(&fixture.answer(read, read_of(facts, "W/1")), &web);
    assert_eq!(edit.set_admin, [(0, AdminState::None)].into());
    drain(&mut fixture, 2, &[1]);
    let output = fixture.answer(call, done());
    assert_eq!(missed(&fixture, &output), [of(&[1])]);
}

#[test]
fn n2_missed_backends_are_reported_when_the_admin_part_ends() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.step(In::Leadership(Leadership::Standby));
    drain(&mut fixture, 1, &[9]);
    fixture.step(In::AdminDue(web.clone(), Some(down(0))));
    fixture.due(&web, due(0, MembershipUrgency::Add));
    let attempt = take(&fixture.lead(2));
    let read = fixture.take_level(&web, attempt, &[1, 9]);
    let (call, ..) = put(&fixture.answer(read, read_of(pool_with(&web, &[9]), "W/1")), &web);
    drain(&mut fixture, 2, &[1, 9]);
    let output = fixture.answer(call, done());
    let place = |what: fn(&Out) -> bool| output.iter().position(what).expect("it is said");
    let told = place(|output| admin_end(output).is_some_and(|end| end.generation == 1 && end.result.is_ok()));
    assert!(told < place(|output| matches!(output, Out::Finished(..))));
    assert_eq!(missed(&fixture, &output), [of(&[1])], "the other one went Down with this PUT");
}

#[test]
fn n2_a_failed_put_that_may_have_succeeded_misses_backends() {
    for (kind, may_be_there) in [
        (FailureKind::Status(403), false),
        (FailureKind::Status(409), false),
        (FailureKind::Status(429), false),
        (FailureKind::Status(500), true),
        (FailureKind::Status(504), true),
        (FailureKind::NotConnected, false),
        (FailureKind::Timeout, true),
        (FailureKind::GateClosed, false),
        (FailureKind::PermitExpired, false),
        (FailureKind::Operation, true),
    ] {
        let mut fixture = Fixture::leading(Params { client_retries: 0, ..params() });
        let web = pool("lb", "web");
        let (attempt, mut call) = fixture.begin_put(&web, &[1, 2]);
        drain(&mut fixture, 1, &[1]);
        let why = failure(kind, "", RetryAfter::Absent);
        let mut answer = ArmAnswer::Failed(Arc::clone(&why));
        if kind == FailureKind::Operation {
            fixture.answer(call, accepted(Provisioning::Updating, RetryAfter::Absent));
            call = poll(&fixture.until(1_000));
            answer = ArmAnswer::Operation(OperationState::Failed(why));
        }
        let output = fixture.answer(call, answer);
        outcome(&output, attempt);
        let expected = if may_be_there { vec![of(&[1])] } else { Vec::new() };
        assert_eq!(missed(&fixture, &output), expected, "{kind:?}");
    }
}

#[test]
fn n2_possible_additions_of_an_unanswered_put_are_reported() {
    for newer in [false, true] {
        let mut fixture = Fixture::leading(params());
        let web = pool("lb", "web");
        let (attempt, call) = fixture.begin_put(&web, &[1, 2]);
        drain(&mut fixture, 1, &[1]);
        let output = fixture.fail(call, failed(500, "", RetryAfter::Absent));
        assert_eq!(missed(&fixture, &output), [of(&[1])], "while it waits for its next try");
        assert_eq!(take(&fixture.until(6_000)), attempt);
        if newer {
            drain(&mut fixture, 2, &[1, 2]);
        }
        // The members are not needed any more, so that the pool is not read.
        let output = fixture.step(In::Taken(web.clone(), attempt, None));
        assert_eq!(missed(&fixture, &output), [if newer { of(&[1, 2]) } else { of(&[1]) }]);
    }
}

#[test]
fn n2_an_entry_that_the_next_read_finds_down_is_not_missed() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, call) = fixture.begin_put(&web, &[1, 2]);
    fixture.fail(call, failed(500, "", RetryAfter::Absent));
    assert_eq!(take(&fixture.until(6_000)), attempt);
    drain(&mut fixture, 1, &[1]);
    let read = fixture.take_level(&web, attempt, &[1, 2]);
    let mut facts = pool_with(&web, &[1, 2]);
    facts.entries[0].admin_state = AdminState::Down;
    let output = fixture.answer(read, read_of(facts, "W/2"));
    assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }));
    assert!(missed(&fixture, &output).is_empty(), "{output:?}");
}

#[test]
fn w8_a_put_of_an_earlier_term_reports_missed_backends() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (_, call) = fixture.begin_put(&web, &[1]);
    fixture.step(In::Leadership(Leadership::Standby));
    drain(&mut fixture, 1, &[1]);
    let output = fixture.answer(call, done());
    assert_eq!(missed(&fixture, &output), [of(&[1])]);
}
