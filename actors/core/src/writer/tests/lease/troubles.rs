//! The shared Lease under storage that was restored, watches that end at once, strangers in our name, successors that
//! are not known of yet, and API servers that refuse, rewrite or do not answer (design.md W7, W8).

use super::*;

/// A server whose Lease is nobody's, in one version, until a write that replaces this version succeeds.
struct Server {
    version: u64,
    requests: u32,
    /// Whether it refuses all writes.
    refuses: bool,
}

impl Server {
    /// Answers all that is asked at this moment, and what follows from that, but watches.
    fn serve(&mut self, bench: &mut Bench, mut said: Vec<Out>) -> Vec<Out> {
        let mut all = Vec::new();
        loop {
            let mut next = Vec::new();
            for (id, ask) in asks(&said) {
                let answer = match ask {
                    LeaseAsk::Get => state(self.version, None),
                    LeaseAsk::Replace(facts, edit)
                        if !self.refuses && *facts.version.0 == self.version.to_string() =>
                    {
                        self.version += 1;
                        state(self.version, edit.holder.as_deref())
                    }
                    LeaseAsk::Replace(..) | LeaseAsk::Create(_) => LeaseAnswer::Conflict,
                    LeaseAsk::Await(..) => continue,
                };
                self.requests += 1;
                assert!(self.requests < 1_000, "a storm of requests");
                next.extend(bench.lease(id, answer));
            }
            all.extend(said);
            if next.is_empty() {
                return all;
            }
            said = next;
        }
    }
}

fn last_view(bench: &Bench) -> SharedLeaseView {
    let view = |said: &Out| if let Out::SharedLease(view) = said { Some(view.clone()) } else { None };
    bench.shown.iter().rev().find_map(view).expect("it is shown")
}

#[test]
fn w7_storage_that_was_restored_from_a_backup_is_found_by_a_look_and_writing_goes_on() {
    let (mut bench, _) = Bench::with_lease(leased(), 1_000_000, None);
    bench.now = 1_000;
    let mut server = Server { version: 900_000, requests: 0, refuses: false };
    let said = bench.due(&pool("lb", "web"), due(900, Class::Add));
    take(&server.serve(&mut bench, said));
    assert_eq!((server.version, server.requests), (900_001, 3), "a conflict, a look, and the taking");
}

#[test]
fn w7_a_hold_that_a_restored_storage_does_not_know_ends_with_the_look_that_follows_its_renewal() {
    let (mut bench, _) = Bench::with_lease(leased(), 1_000_000, None);
    let web = pool("lb", "web");
    let (call, ..) = replaces(&bench.due(&web, due(0, Class::Add)));
    let attempt = take(&bench.lease(call, state(1_000_001, Some(OURS))));
    bench.bring(&web, attempt, &[1]);
    let said = bench.until(15_000);
    let said = bench.lease(replaces(&said).0, LeaseAnswer::Conflict);
    bench.lease(look(&said), state(900_000, None));
    assert_eq!(bench.writer.lock_send_before(), None);
    assert!(bench.writer.shared_lease.as_ref().expect("it is used").is_let_go());
}

#[test]
fn w7_an_older_state_from_a_watch_is_late_news_and_one_before_its_beginning_is_looked_at() {
    let (mut bench, watch) = Bench::with_lease(leased(), 1_000_000, Some(CCM));
    bench.due(&pool("lb", "web"), due(0, Class::Add));
    let said = bench.lease(watch, state(900_000, None));
    let (mut server, said) = (Server { version: 900_000, requests: 0, refuses: false }, said);
    take(&server.serve(&mut bench, said));

    let (mut bench, watch) = Bench::with_lease(leased(), 1, None);
    let web = pool("lb", "web");
    let (call, ..) = replaces(&bench.due(&web, due(0, Class::Add)));
    let attempt = take(&bench.lease(call, state(2, Some(OURS))));
    let (call, ..) = replaces(&nothing_to_do(&mut bench, &web, attempt));
    bench.lease(call, state(3, None));
    let said = bench.lease(watch, state(2, Some(OURS)));
    assert!(matches!(asks(&said)[..], [(_, LeaseAsk::Await(..))]), "{said:?}");
}

#[test]
fn w7_writes_that_never_succeed_back_off_though_looks_do() {
    let (mut bench, _) = Bench::with_lease(leased(), 1, None);
    let mut server = Server { version: 7, requests: 0, refuses: true };
    let said = bench.due(&pool("lb", "web"), due(0, Class::Add));
    server.serve(&mut bench, said);
    assert!(server.requests <= 8, "{} at one moment", server.requests);
    while bench.now < 120_000 {
        let next = bench.writer.deadline().expect("it goes on").as_micros().div_ceil(1_000);
        let said = bench.until(next);
        server.serve(&mut bench, said);
    }
    assert!(server.requests <= 40, "{} in two minutes", server.requests);
}

#[test]
fn w7_a_server_that_rewrites_what_we_write_is_not_asked_without_a_pause() {
    // A webhook that gives the Lease to somebody when we take it, and one that does not let us give it back.
    for (first, rewritten) in [(None, None), (Some(OURS), Some(OURS))] {
        let mut bench = Bench::new(leased());
        if first.is_none() {
            bench.due(&pool("lb", "web"), due(0, Class::Add));
        }
        let said = bench.lead(1);
        let (mut version, mut requests) = (1, 0);
        let mut said = bench.lease(look(&said), state(version, first));
        while let Some((call, ask)) =
            asks(&said).into_iter().find(|(_, ask)| !matches!(ask, LeaseAsk::Await(..)))
        {
            requests += 1;
            assert!(requests < 20, "a storm of requests");
            version += u64::from(!matches!(ask, LeaseAsk::Get));
            said = bench.lease(call, state(version, rewritten));
        }
    }
}

#[test]
fn w7_a_watch_that_ends_at_once_is_opened_again_after_a_second() {
    for nothing_new in [LeaseAnswer::Unchanged, state(1, None)] {
        let (mut bench, watch) = Bench::with_lease(leased(), 1, None);
        bench.now = 10;
        assert!(asks(&bench.lease(watch, nothing_new)).is_empty());
        assert!(asks(&bench.until(999)).is_empty());
        awaits(&bench.until(1_000));
    }
}

#[test]
fn w8_a_thawed_loser_leaves_the_hold_of_its_successor_alone() {
    for renewal_open in [false, true] {
        let (mut bench, watch) = Bench::with_lease(leased(), 1, None);
        bench.leads_until(1, 45_000);
        let web = pool("lb", "web");
        bench.now = 19_000;
        let (taking, ..) = replaces(&bench.due(&web, due(0, Class::Add)));
        let attempt = take(&bench.lease(taking, state(2, Some(OURS))));
        bench.bring(&web, attempt, &[1]);
        let renewal = renewal_open.then(|| replaces(&bench.until(34_000)).0);
        // It stands still; the successor has taken the Lease over before it goes on.
        bench.now = 70_000;
        let said = bench.lease(watch, state(3, Some(OURS)));
        assert!(none_replaced(&said), "it gives back what its successor holds: {said:?}");
        if let Some(renewal) = renewal {
            assert!(none_replaced(&bench.lease(renewal, LeaseAnswer::Conflict)));
        }
        assert!(none_replaced(&bench.until(200_000)));
        assert!(bench.writer.shared_lease.as_ref().expect("it is used").is_let_go());
    }
}

#[test]
fn w8_a_state_that_may_be_the_successors_is_not_given_back_once_leadership_is_lost() {
    let (mut bench, watch) = Bench::with_lease(leased(), 1, None);
    let web = pool("lb", "web");
    let (taking, ..) = replaces(&bench.due(&web, due(0, Class::Add)));
    let attempt = take(&bench.lease(taking, state(2, Some(OURS))));
    bench.bring(&web, attempt, &[1]);
    let (renewal, ..) = replaces(&bench.until(15_000));
    // By our renewal, or by a successor: as long as we lead it can only be ours.
    bench.lease(watch, state(3, Some(OURS)));
    bench.hear(In::Standing(Standing::Standby));
    let said = bench.lease(renewal, lost());
    assert!(none_replaced(&said) && none_replaced(&bench.until(100_000)));
}

#[test]
fn w7_another_installation_in_our_name_is_waited_for_until_it_was_still_for_60_seconds() {
    for wanted in [false, true] {
        let (mut bench, watch) = Bench::with_lease(leased(), 1, None);
        bench.now = 1_000;
        let said = bench.lease(watch, state(2, Some(OURS)));
        assert!(none_replaced(&said), "it is not taken away at once");
        let watch = awaits(&said);
        if wanted {
            assert!(none_replaced(&bench.due(&pool("lb", "web"), due(1_000, Class::Add))));
        }
        let view = last_view(&bench);
        assert!(view.last_error.is_some_and(|why| why.contains("another installation")));
        assert_eq!(view.state, if wanted { "waiting" } else { "free" });
        bench.now = 16_000;
        bench.lease(watch, state(3, Some(OURS)));
        assert!(none_replaced(&bench.until(75_999)), "it was renewed");
        let (call, version, edit) = replaces(&bench.until(76_000));
        assert_eq!((version, edit.holder.as_deref()), (3, wanted.then_some(OURS)));
        bench.lease(call, state(4, edit.holder.as_deref()));
        assert_eq!(last_view(&bench).last_error, None);
    }
}

#[test]
fn w7_the_release_of_another_installation_in_our_name_is_a_foreign_one() {
    let (mut bench, watch) = Bench::with_lease(leased(), 1, None);
    let watch = awaits(&bench.lease(watch, state(2, Some(OURS))));
    bench.due(&pool("lb", "web"), due(0, Class::Add));
    let said = bench.lease(watch, state(3, None));
    assert!(said.iter().any(|said| matches!(said, Out::ForeignRelease)));
    assert_eq!(replaces(&said).1, 3, "at once");
}

#[test]
fn w7_a_hold_that_another_installation_took_over_is_neither_relied_on_nor_given_back() {
    for by_renewal in [false, true] {
        let (mut bench, watch) = Bench::with_lease(leased(), 1, None);
        let web = pool("lb", "web");
        let (taking, ..) = replaces(&bench.due(&web, due(0, Class::Add)));
        let attempt = take(&bench.lease(taking, state(2, Some(OURS))));
        let read = bench.bring(&web, attempt, &[1]);
        if by_renewal {
            let (renewal, ..) = replaces(&bench.until(15_000));
            bench.lease(watch, state(3, Some(OURS)));
            bench.lease(renewal, LeaseAnswer::Conflict);
        } else {
            bench.lease(watch, state(3, Some(OURS)));
        }
        let said = bench.answer(read, read_of(holds(&web, &[]), "W/1"));
        assert!(calls(&said).is_empty() && none_replaced(&said), "by renewal: {by_renewal}: {said:?}");
    }
}

#[test]
fn w7_lock_failures_are_counted_once_a_minute_from_the_first_hold_that_was_not_counted() {
    let (mut bench, _) = Bench::with_lease(leased(), 1, None);
    let web = pool("lb", "web");
    let mut server = Server { version: 1, requests: 0, refuses: false };
    let mut counts = Vec::new();
    for second in 1..130 {
        let mut said = bench.until(second * 1_000);
        said.extend(bench.due(&web, due(bench.now, Class::Add)));
        said = server.serve(&mut bench, said);
        if let Some(attempt) = takes(&said).pop() {
            let after = bench.hear(In::Taken(web.clone(), attempt.1, None));
            said.extend(server.serve(&mut bench, after));
        }
        for said in said {
            if let Out::CountLockFailures { call, since } = said {
                counts.push((bench.now / 1_000, since));
                bench.hear(In::LockFailures(call, Some(0)));
            }
        }
    }
    // The second question covers what was told after the first one, too.
    assert_eq!(counts, [(1, at(1_000)), (61, at(1_000)), (121, at(61_000))]);
}

#[test]
fn w7_where_lock_failures_cannot_be_counted_it_is_left_to_others_as_if_there_were_some() {
    for known in [Some(0), None] {
        let (mut bench, web, attempt) = Bench::holding(leased());
        let (call, ..) = replaces(&nothing_to_do(&mut bench, &web, attempt));
        let (count, _) = counted(&bench.lease(call, state(3, None)));
        bench.hear(In::LockFailures(count, known));
        let (call, ..) = replaces(&bench.due(&web, due(0, Class::Add)));
        let attempt = take(&bench.lease(call, state(4, Some(OURS))));
        let (call, ..) = replaces(&nothing_to_do(&mut bench, &web, attempt));
        bench.lease(call, state(5, None));
        let said = bench.due(&web, due(0, Class::Add));
        assert_eq!(none_replaced(&said), known.is_none(), "{known:?}");
    }
}

#[test]
fn w7_a_hold_ends_after_60_seconds_though_a_renewal_is_open() {
    let (mut bench, web, attempt) = Bench::holding(leased());
    let read = bench.bring(&web, attempt, &[1]);
    let (put, ..) = put(&bench.answer(read, read_of(holds(&web, &[]), "W/1")), &web);
    bench.answer(put, accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(90))));
    let mut version = 2;
    let mut open = None;
    for second in [15, 30, 47] {
        let (call, ..) = replaces(&bench.until(second * 1_000));
        if second == 47 {
            open = Some(call);
        } else {
            version += 1;
            bench.lease(call, state(version, Some(OURS)));
        }
    }
    assert!(none_replaced(&bench.until(59_999)));
    let (release, replaced, edit) = replaces(&bench.until(60_000));
    assert_eq!((replaced, edit.holder), (version, None));
    // The renewal was carried out after all: its state is given back as well.
    assert!(asks(&bench.lease(open.expect("it was sent"), state(5, Some(OURS)))).is_empty());
    let said = bench.lease(release, LeaseAnswer::Conflict);
    let (_, replaced, edit) = replaces(&bench.lease(look(&said), state(5, Some(OURS))));
    assert_eq!((replaced, edit.holder), (5, None));
}

#[test]
fn a3_a_request_is_given_up_also_by_an_input_of_that_very_moment() {
    let (mut bench, _) = Bench::with_lease(leased(), 1, None);
    replaces(&bench.due(&pool("lb", "web"), due(0, Class::Add)));
    bench.now = 15_000;
    bench.due(&pool("other", "api"), due(15_000, Class::Add));
    look(&bench.until(16_000));
}

#[test]
fn w7_a_service_that_stays_without_ingress_counts_once() {
    let (mut bench, _) = Bench::with_lease(leased(), 1, None);
    let web = pool("lb", "web");
    let mut server = Server { version: 1, requests: 0, refuses: false };
    let mut hold = |bench: &mut Bench, second: u64| {
        while bench.now < second * 1_000 {
            let said = bench.until(bench.now + 1_000);
            server.serve(bench, said);
        }
        let said = bench.due(&web, due(bench.now, Class::Add));
        let said = server.serve(bench, said);
        let (_, attempt) = takes(&said).pop().expect("it is granted");
        let said = bench.hear(In::Taken(web.clone(), attempt, None));
        let said = server.serve(bench, said);
        let count =
            |said: &Out| if let Out::CountLockFailures { call, .. } = said { Some(*call) } else { None };
        if let Some(call) = said.iter().find_map(count) {
            bench.hear(In::LockFailures(call, Some(0)));
        }
        Some(last_view(bench)).filter(|view| view.state == "off").and_then(|view| view.until)
    };
    bench.hear(In::AwaitingIngress(true));
    assert_eq!(hold(&mut bench, 10), Some(at(70_000)));
    bench.hear(In::AwaitingIngress(true));
    assert_eq!(hold(&mut bench, 400), None, "it is the same one, more than five minutes later");
    bench.hear(In::AwaitingIngress(false));
    bench.hear(In::AwaitingIngress(true));
    assert_eq!(hold(&mut bench, 410), Some(at(470_000)), "another one");
}
