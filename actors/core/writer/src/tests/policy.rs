//! Tests of the operator's policy and requests for an attempt: no write violates the policy (G6, D1, H3).

use super::*;
use model::assignment::PausedBy;
use model::operator_request::{Answer, Done, Effect, Refusal, RequestId};
use model::policy::{Mode, OperatorPolicy, Pause};

fn policy(fixture: &mut Fixture, policy: OperatorPolicy) -> Vec<Out> {
    fixture.step(In::OperatorPolicy { term: Some(Epoch(1)), policy: Arc::new(policy) })
}

fn paused() -> OperatorPolicy {
    OperatorPolicy { everything: Some(Pause::default()), ..OperatorPolicy::default() }
}

fn observe() -> OperatorPolicy {
    OperatorPolicy { mode: Mode::Observe, ..OperatorPolicy::default() }
}

fn puts(output: &[Out]) -> usize {
    let is_put = |call: &&ArmCall| matches!(call.request, ArmRequest::PutPool { .. });
    calls(output).into_iter().filter(is_put).count()
}

#[test]
fn g6_no_grant_in_a_term_without_a_policy() {
    let mut fixture = Fixture { writer: Writer::new(params()), ..Fixture::new(params()) };
    fixture.step(In::OperatorPolicy { term: None, policy: Arc::default() });
    fixture.lead(2);
    let web = pool("lb", "web");
    assert!(takes(&fixture.due(&web, due(0, MembershipUrgency::Revive))).is_empty());
    fixture.step(In::AdminDue(pool("lb", "y-drained"), Some(down(0))));
    assert!(fixture.until(60_000).is_empty());
    let policy = Arc::default();
    assert!(
        takes(&fixture.step(In::OperatorPolicy { term: Some(Epoch(1)), policy })).is_empty(),
        "of an older term"
    );
    take(&fixture.step(In::OperatorPolicy { term: Some(Epoch(2)), policy: Arc::default() }));
}

#[test]
fn g6_an_answer_about_a_pause_is_passed_on_in_any_role() {
    let answer = Answer::Done(Done::Paused(Effect::WhenRead));
    let effect = |output: &[Out]| match output {
        [Out::Answer(RequestId(7), Answer::Done(Done::Paused(effect)))] => Some(*effect),
        _ => None,
    };
    let mut fixture = Fixture { writer: Writer::new(params()), ..Fixture::new(params()) };
    let output = fixture.step(In::PassOn(RequestId(7), answer.clone()));
    assert_eq!(effect(&output), Some(Effect::WhenRead), "it stands by");
    fixture.lead(2);
    let output = fixture.step(In::PassOn(RequestId(7), answer.clone()));
    assert_eq!(effect(&output), Some(Effect::Now), "it leads");
    let resumed = Answer::Done(Done::Resumed { was: true, effect: Effect::WhenRead });
    let output = fixture.step(In::PassOn(RequestId(7), resumed));
    let now = |output: &[Out]| {
        matches!(output, [Out::Answer(_, Answer::Done(Done::Resumed { was: true, effect: Effect::Now }))])
    };
    assert!(now(&output), "{output:?}");
    let until = Now::from_millis(fixture.now + 1_000);
    fixture.step(In::Leadership(Leadership::Leading { epoch: Epoch(2), until }));
    fixture.until(60_000);
    let output = fixture.step(In::PassOn(RequestId(7), answer.clone()));
    assert_eq!(effect(&output), Some(Effect::WhenRead), "it does not know that it leads any more");
    fixture.step(In::Shutdown);
    assert!(effect(&fixture.step(In::PassOn(RequestId(7), answer))).is_some(), "it ends");
}

#[test]
fn g6_a_pause_of_everything_delays_all_grants() {
    for wish in [paused(), observe()] {
        let mut fixture = Fixture::leading(params());
        policy(&mut fixture, wish);
        let web = pool("lb", "web");
        assert!(fixture.due(&web, due(0, MembershipUrgency::Revive)).is_empty());
        fixture.step(In::Draining(drains(1)));
        assert!(calls(&fixture.step(In::AdminDue(pool("other", "web"), Some(down(0))))).is_empty());
        assert!(fixture.until(600_000).is_empty());
        let output = policy(&mut fixture, OperatorPolicy::default());
        assert_eq!(takes(&output).len(), 1);
        assert_eq!(calls(&output).len(), 1, "and the GET of the Down: {output:?}");
    }
}

#[test]
fn g6_a_pause_after_the_grant_sends_no_put_and_uses_no_retry() {
    let mut fixture = Fixture::leading(params());
    let (asked, reading) = (pool("a", "web"), pool("b", "web"));
    let taking = take(&fixture.due(&asked, due(0, MembershipUrgency::Add)));
    let (attempt, read) = fixture.begin(&reading, &[1]);
    let output = policy(&mut fixture, paused());
    assert!(matches!(outcome(&output, taking), Outcome::NotGranted));
    assert!(matches!(outcome(&output, attempt), Outcome::NotGranted));
    let output = fixture.answer(read, read_of(pool_with(&reading, &[]), "W/1"));
    assert!(calls(&output).is_empty());
    let late = In::Taken(asked.clone(), taking, Some(taken_level(&asked, &[1])));
    assert!(calls(&fixture.step(late)).is_empty());
    assert!(fixture.writer.lanes.values().all(|lane| lane.write.is_none()));
}

#[test]
fn g6_a_pause_cancels_a_write_that_waits_for_its_next_try() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, read) = fixture.begin(&web, &[1]);
    fixture.fail(read, failed(503, "", RetryAfter::Absent));
    let output = policy(&mut fixture, paused());
    assert!(matches!(outcome(&output, attempt), Outcome::Interrupted));
    assert!(calls(&fixture.until(600_000)).is_empty());
}

#[test]
fn g6_a_sent_put_is_polled_to_its_end_in_a_pause() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, put) = fixture.begin_put(&web, &[1]);
    assert!(policy(&mut fixture, paused()).is_empty());
    fixture.due(&pool("lb", "next"), due(0, MembershipUrgency::Revive));
    let output =
        fixture.answer(put, accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(1))));
    assert!(takes(&output).is_empty());
    let poll = poll(&fixture.until(1_000));
    let output = fixture.answer(poll, ArmAnswer::Operation(OperationState::Succeeded));
    assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }));
    assert!(takes(&output).is_empty());
    assert_eq!(puts(&fixture.until(600_000)), 0);
}

#[test]
fn g6_no_put_follows_a_429_or_412_in_a_pause() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, put) = fixture.begin_put(&web, &[1]);
    policy(&mut fixture, paused());
    let output = fixture.fail(put, failed(412, "", RetryAfter::Absent));
    let ended = output
        .iter()
        .any(|output| matches!(output, Out::Finished(_, id, Outcome::NotGranted) if *id == attempt));
    assert!(ended && calls(&output).is_empty(), "{output:?}");
}

#[test]
fn d1_a_pause_after_the_take_stops_members_but_not_downs() {
    let web = pool("lb", "web");
    let (_, key) = owner(&web);
    let by_pool =
        OperatorPolicy { pools: [(web.clone(), Pause::default())].into(), ..OperatorPolicy::default() };
    let by_service =
        OperatorPolicy { services: [(key, Pause::default())].into(), ..OperatorPolicy::default() };
    for wish in [by_pool, by_service] {
        let mut fixture = Fixture::leading(params());
        let (attempt, read) = fixture.begin(&web, &[1]);
        assert!(policy(&mut fixture, wish.clone()).is_empty());
        let output = fixture.answer(read, read_of(pool_with(&web, &[]), "W/1"));
        assert!(matches!(outcome(&output, attempt), Outcome::NotGranted));
        assert_eq!(puts(&output), 0);
        fixture.step(In::Withdraw(web.clone()));

        fixture.step(In::Draining(drains(2)));
        let read = get(&fixture.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
        let (_, edit, _) = put(&fixture.answer(read, read_of(pool_with(&web, &[2]), "W/2")), &web);
        assert!(edit.add.is_empty() && edit.remove.is_empty() && edit.set_admin.len() == 1);
    }
}

#[test]
fn g6_add_only_adds_and_removes_nothing() {
    let mut fixture = Fixture::leading(params());
    policy(&mut fixture, OperatorPolicy { mode: Mode::AddOnly, ..OperatorPolicy::default() });
    let web = pool("lb", "web");
    let (_, read) = fixture.begin(&web, &[1]);
    let (call, edit, _) = put(&fixture.answer(read, read_of(pool_with(&web, &[2]), "W/1")), &web);
    assert!(edit.remove.is_empty() && edit.add.len() == 1, "{edit:?}");
    fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    let (attempt, read) = fixture.begin(&pool("other", "web"), &[1]);
    let output = fixture.answer(read, read_of(pool_with(&pool("other", "web"), &[1, 2]), "W/1"));
    assert!(matches!(outcome(&output, attempt), Outcome::Unchanged { .. }));
}

fn asked(fixture: &mut Fixture, of: &PoolId) -> Result<(), Refusal> {
    let output = fixture.step(In::Attempt(RequestId(5), of.clone()));
    match &output[..] {
        [Out::Attempt(pool, RequestId(5))] if pool == of => Ok(()),
        [Out::Answer(RequestId(5), Answer::Refused(refusal))] => Err(refusal.clone()),
        _ => panic!("neither passed on nor refused: {output:?}"),
    }
}

#[test]
fn h3_a_requested_attempt_is_refused_if_it_cannot_begin() {
    let web = pool("lb", "web");
    let mut fixture = Fixture::new(params());
    assert_eq!(asked(&mut fixture, &web), Err(Refusal::NotLeading));
    fixture.lead(1);
    assert_eq!(asked(&mut fixture, &web), Ok(()));
    policy(&mut fixture, paused());
    assert_eq!(asked(&mut fixture, &web), Err(Refusal::Paused(PausedBy::Everything)));
    policy(
        &mut fixture,
        OperatorPolicy { pools: [(web.clone(), Pause::default())].into(), ..OperatorPolicy::default() },
    );
    assert_eq!(asked(&mut fixture, &web), Err(Refusal::Paused(PausedBy::Pool)));
    let observe = OperatorPolicy {
        mode: Mode::Observe,
        everything: Some(Pause::default()),
        ..OperatorPolicy::default()
    };
    policy(&mut fixture, observe);
    assert_eq!(asked(&mut fixture, &web), Err(Refusal::Paused(PausedBy::Mode)), "resuming would not help");
    policy(&mut fixture, OperatorPolicy::default());

    let until = at(90_000);
    fixture.step(In::RecordedGates(GateTimes { reads_until: None, writes_until: Some(until) }));
    assert_eq!(asked(&mut fixture, &web), Err(Refusal::NotBefore(until)));
    fixture.until(91_000);
    let (_, put) = fixture.begin_put(&pool("lb", "x-other"), &[1]);
    fixture.fail(put, failure(FailureKind::Timeout, "", RetryAfter::Absent));
    assert!(matches!(asked(&mut fixture, &web), Err(Refusal::NotBefore(_))), "the lane is in doubt");
    assert_eq!(asked(&mut fixture, &pool("other", "web")), Ok(()));
}

#[test]
fn c4_a_dry_run_refuses_a_requested_attempt() {
    let mut fixture = Fixture::new(Params { dry_run: true, ..params() });
    fixture.lead(1);
    assert_eq!(asked(&mut fixture, &pool("lb", "web")), Err(Refusal::DryRun));
}
