//! Tests of holds of the shared Lease: what keeps and ends them, and requests after failures, changes of leadership
//! and lock failures (docs/design/writer.md, W7; W8).

use super::*;

/// The output after an answer to each renewal until the forced end of the hold, at second 60.
fn renewed_until_its_end(bench: &mut Bench) -> Vec<Out> {
    for (version, second) in [(3, 15), (4, 30), (5, 45)] {
        let (call, ..) = replaces(&bench.until(second * 1_000));
        bench.lease(call, state(version, Some(OURS)));
    }
    bench.until(60_000)
}

/// Advances the clock, with a watch that brings nothing.
fn pass(bench: &mut Bench, watch: &mut CallId, second: u64) {
    while bench.now < second * 1_000 {
        bench.until((second * 1_000).min(bench.now + 30_000));
        *watch = awaits(&bench.lease(*watch, LeaseAnswer::Unchanged));
    }
}

/// The remaining cooldown in seconds.
fn off_for(bench: &Bench) -> u64 {
    let view = |said: &Out| if let Out::SharedLease(view) = said { Some(view.clone()) } else { None };
    let view = bench.shown.iter().rev().find_map(view).expect("it is shown");
    let until = view.until.filter(|_| view.state == "off");
    until.map_or(0, |until| until.since(at(bench.now)).as_secs())
}

#[test]
fn w8_a_new_term_does_not_release_it_while_an_older_put_is_open() {
    let (mut bench, web, attempt) = Bench::holding(leased());
    let read = bench.bring(&web, attempt, &[1]);
    let (put, ..) = put(&bench.answer(read, read_of(holds(&web, &[]), "W/1")), &web);
    bench.hear(In::Standing(Standing::Standby));
    let said = bench.lead(2);
    let said = bench.lease(look(&said), state(2, Some(OURS)));
    assert!(
        none_replaced(&said) && none_replaced(&bench.until(10_000)),
        "nothing wants it, and the PUT is open"
    );
    let said = bench.answer(put, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    let (_, version, edit) = replaces(&said);
    assert_eq!((version, edit.holder, edit.previous_holder.as_deref()), (2, None, Some(OURS)));
}

#[test]
fn w7_a_get_that_waits_for_a_token_lets_it_go() {
    let mut params = leased();
    params.reads_per_5_minutes = 100;
    let (mut bench, web, attempt) = Bench::holding(params);
    let other = pool("other", "api");
    let later = take(&bench.due(&other, due(0, Class::Add)));
    let read = bench.bring(&web, attempt, &[1]);
    let (put, ..) = put(&bench.answer(read, read_of(holds(&web, &[]), "W/1")), &web);
    bench.hear(In::Headroom(GateClass::Reads, 0));
    let said = bench.hear(In::Taken(other.clone(), later, Some(wants(&other, &[1]))));
    assert!(calls(&said).is_empty() && none_replaced(&said), "its GET waits, the PUT keeps the Lease");
    let said = bench.answer(put, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    assert_eq!(replaces(&said).2.holder, None, "the next token comes in three seconds");
    get(&bench.until(3_000), &other);
}

#[test]
fn w7_an_operation_of_an_earlier_hold_does_not_keep_a_later_one() {
    let (mut bench, web, attempt) = Bench::holding(leased());
    let read = bench.bring(&web, attempt, &[1]);
    let (put, ..) = put(&bench.answer(read, read_of(holds(&web, &[]), "W/1")), &web);
    bench.answer(put, accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(90))));
    let (release, ..) = replaces(&renewed_until_its_end(&mut bench));
    let said = bench.lease(release, state(6, None));
    bench.nobody_waited(said);
    let other = pool("other", "api");
    let (call, ..) = replaces(&bench.due(&other, due(60_000, Class::Add)));
    let attempt = take(&bench.lease(call, state(7, Some(OURS))));
    let (_, version, edit) = replaces(&nothing_to_do(&mut bench, &other, attempt));
    assert_eq!((version, edit.holder), (7, None));
    assert!(bench.writer.lanes.values().any(|lane| lane.write.is_some()), "the operation still runs");
}

#[test]
fn w7_a_renewal_overtaken_by_a_namesake_ends_the_hold() {
    let (mut bench, watch, read) = Bench::reading();
    let web = pool("lb", "web");
    let (put, ..) = put(&bench.answer(read, read_of(holds(&web, &[]), "W/1")), &web);
    bench.answer(put, accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(90))));
    let (renewal, ..) = replaces(&bench.until(15_000));
    bench.lease(renewal, state(3, Some(OURS)));
    let (renewal, ..) = replaces(&bench.until(30_000));
    bench.lease(watch, state(4, Some(OURS)));
    let mut said = bench.lease(renewal, LeaseAnswer::Conflict);
    assert_eq!(bench.writer.lock_send_before(), None);
    while bench.now < 100_000 {
        assert!(none_replaced(&said), "what a stranger holds is given back or renewed: {said:?}");
        let open = asks(&said).into_iter().find(|(_, ask)| matches!(ask, LeaseAsk::Get));
        if let Some((call, _)) = open {
            said = bench.lease(call, lost());
            continue;
        }
        said = bench.until(bench.now + 1_000);
    }
}

#[test]
fn w7_a_service_that_comes_while_another_has_no_ingress_counts() {
    let (mut bench, mut watch) = Bench::with_lease(leased(), 1, None);
    let web = pool("lb", "web");
    let mut version = 1;
    // A hold that begins and ends at this time. Returns its cooldown in seconds.
    let mut hold = |bench: &mut Bench, second: u64| {
        pass(bench, &mut watch, second);
        let (call, ..) = replaces(&bench.due(&web, due(bench.now, Class::Add)));
        version += 1;
        let (_, attempt) =
            takes(&bench.lease(call, state(version, Some(OURS)))).pop().expect("it is granted");
        let (call, ..) = replaces(&bench.hear(In::Taken(web.clone(), attempt, None)));
        version += 1;
        let (count, _) = counted(&bench.lease(call, state(version, None)));
        bench.hear(In::LockFailures(count, Some(0)));
        off_for(bench)
    };
    bench.hear(In::AwaitingIngress(Some(1)));
    assert_eq!(hold(&mut bench, 10), 60);
    bench.hear(In::AwaitingIngress(Some(2)));
    assert_eq!(hold(&mut bench, 309), 0, "within five minutes nothing counts");
    assert_eq!(hold(&mut bench, 370), 60, "the second one counts at the next hold's end");
    bench.hear(In::AwaitingIngress(Some(1)));
    assert_eq!(hold(&mut bench, 700), 0, "the second one is served; the first has counted");
    bench.hear(In::AwaitingIngress(Some(3)));
    assert_eq!(hold(&mut bench, 770), 60);
}

#[test]
fn w8_a_shutdown_looks_at_once_though_requests_have_failed_before() {
    let (mut bench, web, attempt) = Bench::holding(leased());
    let read = bench.bring(&web, attempt, &[1]);
    let (put, ..) = put(&bench.answer(read, read_of(holds(&web, &[]), "W/1")), &web);
    let (renewal, ..) = replaces(&bench.until(15_000));
    bench.lease(renewal, lost());
    for second in [16, 18, 23] {
        let said = bench.until(second * 1_000);
        bench.lease(look(&said), lost());
    }
    assert!(asks(&bench.until(24_000)).is_empty(), "the next look waits for ten seconds");
    let said = bench.hear(In::Shutdown);
    let (renewal, ..) = replaces(&bench.lease(look(&said), state(2, Some(OURS))));
    bench.lease(renewal, state(3, Some(OURS)));
    let said = bench.answer(put, accepted(Provisioning::Updating, RetryAfter::Absent));
    let (_, version, edit) = replaces(&said);
    assert_eq!((version, edit.holder), (3, None));
}

#[test]
fn w8_a_new_term_reads_immediately_after_failures_of_the_last_one() {
    let mut bench = Bench::new(leased());
    let mut said = bench.lead(1);
    for second in [1, 3, 8] {
        bench.lease(look(&said), lost());
        said = bench.until(second * 1_000);
    }
    bench.lease(look(&said), lost());
    bench.hear(In::Standing(Standing::Standby));
    look(&bench.lead(2));
}

#[test]
fn w7_a_lease_that_does_not_exist_is_looked_for_every_30_seconds() {
    let mut bench = Bench::new(leased());
    let mut said = bench.lead(1);
    for second in [30, 60, 90] {
        bench.lease(look(&said), LeaseAnswer::Absent);
        assert!(asks(&bench.until(second * 1_000 - 1)).is_empty());
        said = bench.until(second * 1_000);
    }
    let said = bench.lease(look(&said), state(1, None));
    awaits(&said);
}

#[test]
fn w7_a_client_with_lock_failures_counts_as_a_holder_for_an_hour() {
    for (failures, off) in [(2, true), (0, false)] {
        let (mut bench, mut watch) = Bench::with_lease(leased(), 1, None);
        let web = pool("lb", "web");
        let (call, ..) = replaces(&bench.due(&web, due(0, Class::Add)));
        let attempt = take(&bench.lease(call, state(2, Some(OURS))));
        let (call, ..) = replaces(&nothing_to_do(&mut bench, &web, attempt));
        let (count, _) = counted(&bench.lease(call, state(3, None)));
        bench.hear(In::LockFailures(count, Some(failures)));
        pass(&mut bench, &mut watch, 400);
        let (call, ..) = replaces(&bench.due(&web, due(400_000, Class::Add)));
        let attempt = take(&bench.lease(call, state(4, Some(OURS))));
        let (call, ..) = replaces(&nothing_to_do(&mut bench, &web, attempt));
        let said = bench.lease(call, state(5, None));
        bench.nobody_waited(said);
        let said = bench.due(&web, due(400_000, Class::Add));
        assert_eq!(none_replaced(&said), off, "{failures} failures");
        if off {
            assert!(none_replaced(&bench.until(404_999)));
            replaces(&bench.until(405_000));
        }
    }
}

#[test]
fn w7_waiting_clients_are_counted_before_the_lease_is_taken_again() {
    let (mut bench, watch) = Bench::with_lease(leased(), 1, None);
    let web = pool("lb", "web");
    let (call, ..) = replaces(&bench.due(&web, due(0, Class::Add)));
    let attempt = take(&bench.lease(call, state(2, Some(OURS))));
    let (call, ..) = replaces(&nothing_to_do(&mut bench, &web, attempt));
    let said = bench.lease(call, state(3, None));
    counted(&said);
    bench.nobody_waited(said);
    // A long hold follows ten seconds later. The last count is less than a minute ago.
    bench.lease(watch, LeaseAnswer::Unchanged);
    bench.now = 10_000;
    let said = bench.due(&web, due(10_000, Class::Add));
    let (call, ..) = replaces(&said);
    let attempt = take(&bench.lease(call, state(4, Some(OURS))));
    let read = bench.bring(&web, attempt, &[1]);
    let said = bench.until(25_000);
    bench.lease(replaces(&said).0, state(5, Some(OURS)));
    bench.now = 29_000;
    let said = bench.answer(read, read_of(holds(&web, &[1]), "W/1"));
    let said = bench.lease(replaces(&said).0, state(6, None));
    let (count, since) = counted(&said);
    assert!(since <= at(10_000), "{since:?}");
    let said = bench.due(&web, due(29_000, Class::Add));
    assert!(
        none_replaced(&said) && none_replaced(&bench.until(29_500)),
        "another client may have waited all the time"
    );
    assert!(none_replaced(&bench.hear(In::LockFailures(count, Some(1)))));
    let shown = |said: &Out| if let Out::SharedLease(view) = said { Some(view.clone()) } else { None };
    let view = bench.shown.iter().rev().find_map(shown).expect("it is shown");
    assert_eq!((view.state, view.until), ("off", Some(at(89_500))));
}
