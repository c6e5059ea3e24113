//! Tests of the shared Lease with restored storage, watches that end early, other clients with the controller's name,
//! unknown successors, and API servers that refuse, rewrite or do not answer (docs/design/writer.md, W7; W8).

use super::*;
use model::object::{GIVE_UP_AFTER, RequestFailure};
use model::report::EventKind;
use model::view::LeaseHolderKind;

/// A server with a Lease without a holder. Its version stays the same until a write that replaces it succeeds.
struct Server {
    version: u64,
    requests: u32,
    /// True if the server refuses all writes.
    refuses: bool,
}

impl Server {
    /// Answers all current requests, and the following ones, but no watches.
    fn serve(&mut self, fixture: &mut Fixture, mut output: Vec<Out>) -> Vec<Out> {
        let mut all = Vec::new();
        loop {
            let mut next = Vec::new();
            for (id, request) in lease_requests(&output) {
                let answer = match request {
                    LeaseRequest::Get => state(self.version, None),
                    LeaseRequest::Replace(facts, edit)
                        if !self.refuses && *facts.version.0 == self.version.to_string() =>
                    {
                        self.version += 1;
                        state(self.version, edit.holder.as_deref())
                    }
                    LeaseRequest::Replace(..) | LeaseRequest::Create(_) => LeaseAnswer::Conflict,
                    LeaseRequest::Watch(..) => continue,
                };
                self.requests += 1;
                assert!(self.requests < 1_000, "a storm of requests");
                next.extend(fixture.lease(id, answer));
            }
            all.extend(output);
            if next.is_empty() {
                return all;
            }
            output = next;
        }
    }
}

fn last_view(fixture: &Fixture) -> SharedLeaseView {
    let view = |output: &Out| if let Out::SharedLease(view) = output { Some(view.clone()) } else { None };
    fixture.shown.iter().rev().find_map(view).expect("it is shown")
}

#[test]
fn w7_a_read_detects_storage_restored_from_a_backup() {
    let (mut fixture, _) = Fixture::with_lease(leased(), 1_000_000, None);
    fixture.now = 1_000;
    let mut server = Server { version: 900_000, requests: 0, refuses: false };
    let output = fixture.due(&pool("lb", "web"), due(900, MembershipUrgency::Add));
    take(&server.serve(&mut fixture, output));
    assert_eq!((server.version, server.requests), (900_001, 3), "a conflict, a read, and the take");
}

#[test]
fn w7_a_hold_lost_by_a_restore_ends_after_its_renewal() {
    let (mut fixture, _) = Fixture::with_lease(leased(), 1_000_000, None);
    let web = pool("lb", "web");
    let (call, ..) = replaces(&fixture.due(&web, due(0, MembershipUrgency::Add)));
    let attempt = take(&fixture.lease(call, state(1_000_001, Some(OURS))));
    fixture.take_level(&web, attempt, &[1]);
    let output = fixture.until(15_000);
    let output = fixture.lease(replaces(&output).0, LeaseAnswer::Conflict);
    fixture.lease(lease_read(&output), state(900_000, None));
    assert_eq!(fixture.writer.lock_send_deadline(), None);
    assert!(fixture.writer.shared_lease.as_ref().expect("it is used").is_released());
}

#[test]
fn w7_an_older_watch_state_is_ignored_or_read_again() {
    let (mut fixture, watch) = Fixture::with_lease(leased(), 1_000_000, Some(CCM));
    fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add));
    let output = fixture.lease(watch, state(900_000, None));
    let (mut server, output) = (Server { version: 900_000, requests: 0, refuses: false }, output);
    take(&server.serve(&mut fixture, output));

    let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
    let web = pool("lb", "web");
    let (call, ..) = replaces(&fixture.due(&web, due(0, MembershipUrgency::Add)));
    let attempt = take(&fixture.lease(call, state(2, Some(OURS))));
    let (call, ..) = replaces(&nothing_to_do(&mut fixture, &web, attempt));
    fixture.lease(call, state(3, None));
    let output = fixture.lease(watch, state(2, Some(OURS)));
    assert!(matches!(lease_requests(&output)[..], [(_, LeaseRequest::Watch(..))]), "{output:?}");
}

#[test]
fn w7_failing_writes_back_off_though_reads_succeed() {
    let (mut fixture, _) = Fixture::with_lease(leased(), 1, None);
    let mut server = Server { version: 7, requests: 0, refuses: true };
    let output = fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add));
    server.serve(&mut fixture, output);
    assert!(server.requests <= 8, "{} at one moment", server.requests);
    while fixture.now < 120_000 {
        let next = fixture.writer.deadline().expect("it goes on").as_micros().div_ceil(1_000);
        let output = fixture.until(next);
        server.serve(&mut fixture, output);
    }
    assert!(server.requests <= 40, "{} in two minutes", server.requests);
}

/// A client that takes and releases the Lease so fast that every other client comes too late.
struct Fast {
    version: u64,
    /// The holder in each read.
    holder: Option<&'static str>,
    /// Times of our takes, in milliseconds.
    takings: Vec<u64>,
}

impl Fast {
    /// Answers current requests, but no watches. Returns all output.
    fn renewals(&mut self, fixture: &mut Fixture, mut output: Vec<Out>) -> Vec<Out> {
        let mut all = Vec::new();
        while !output.is_empty() {
            let mut next = Vec::new();
            for (id, request) in lease_requests(&output) {
                next.extend(match request {
                    LeaseRequest::Get => fixture.lease(id, state(self.version, self.holder)),
                    LeaseRequest::Replace(..) | LeaseRequest::Create(_) => {
                        self.takings.push(fixture.now);
                        self.version += 2;
                        fixture.lease(id, LeaseAnswer::Conflict)
                    }
                    LeaseRequest::Watch(..) => continue,
                });
            }
            all.extend(output);
            output = next;
        }
        all
    }
}

#[test]
fn w7_lost_races_are_no_failures_and_are_retried_within_2_s() {
    let (mut fixture, _) = Fixture::with_lease(leased(), 1, None);
    let mut fast = Fast { version: 7, holder: None, takings: Vec::new() };
    let output = fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add));
    fast.renewals(&mut fixture, output);
    assert_eq!(fast.takings, [0, 0, 0, 0], "at first without a wait");
    while fixture.now < 60_000 {
        let next = fixture.writer.deadline().expect("it goes on").as_micros().div_ceil(1_000);
        let output = fixture.until(next);
        fast.renewals(&mut fixture, output);
    }
    let waits: Vec<u64> = fast.takings[3..].windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(waits[0], 1_000, "{waits:?}");
    assert!(waits.len() >= 30 && waits[1..].iter().all(|wait| *wait == 2_000), "{waits:?}");
}

#[test]
fn w7_a_watched_release_causes_a_try_despite_lost_races() {
    let (mut fixture, mut watch) = Fixture::with_lease(leased(), 1, None);
    let mut fast = Fast { version: 7, holder: Some("cloud-controller-manager"), takings: Vec::new() };
    let output = fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add));
    fast.renewals(&mut fixture, output);
    for released in 1..=15 {
        fixture.until(released * 300);
        fast.version += 1;
        let output = fixture.lease(watch, state(fast.version, None));
        watch = lease_watch(&output);
        fast.renewals(&mut fixture, output);
        assert_eq!(fast.takings.last(), Some(&(released * 300)), "release {released}");
        assert_eq!(fast.takings.len() as u64, 1 + released, "one for each release: {:?}", fast.takings);
    }
}

#[test]
fn w7_a_webhook_that_rewrites_the_lease_causes_no_busy_loop() {
    // The first webhook gives the Lease to another client when the controller takes it. The second one prevents its
    // release.
    for (first, rewritten) in [(None, None), (Some(OURS), Some(OURS))] {
        let mut fixture = Fixture::new(leased());
        if first.is_none() {
            fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add));
        }
        let output = fixture.lead(1);
        let (mut version, mut requests) = (1, 0);
        let mut output = fixture.lease(lease_read(&output), state(version, first));
        while let Some((call, request)) = lease_requests(&output)
            .into_iter()
            .find(|(_, request)| !matches!(request, LeaseRequest::Watch(..)))
        {
            requests += 1;
            assert!(requests < 20, "a storm of requests");
            version += u64::from(!matches!(request, LeaseRequest::Get));
            output = fixture.lease(call, state(version, rewritten));
        }
    }
}

#[test]
fn w7_a_watch_that_ends_immediately_is_reopened_after_1_s() {
    for nothing_new in [LeaseAnswer::Unchanged, state(1, None)] {
        let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
        fixture.now = 10;
        assert!(lease_requests(&fixture.lease(watch, nothing_new)).is_empty());
        assert!(lease_requests(&fixture.until(999)).is_empty());
        lease_watch(&fixture.until(1_000));
    }
}

#[test]
fn w8_a_resumed_process_does_not_release_its_successors_hold() {
    for renewal_open in [false, true] {
        let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
        fixture.leads_until(1, 45_000);
        let web = pool("lb", "web");
        fixture.now = 19_000;
        let (taking, ..) = replaces(&fixture.due(&web, due(0, MembershipUrgency::Add)));
        let attempt = take(&fixture.lease(taking, state(2, Some(OURS))));
        fixture.take_level(&web, attempt, &[1]);
        let renewal = renewal_open.then(|| replaces(&fixture.until(34_000)).0);
        // The process is suspended. Its successor takes over the Lease before it resumes.
        fixture.now = 70_000;
        let output = fixture.lease(watch, state(3, Some(OURS)));
        assert!(none_replaced(&output), "it gives back what its successor holds: {output:?}");
        if let Some(renewal) = renewal {
            assert!(none_replaced(&fixture.lease(renewal, LeaseAnswer::Conflict)));
        }
        assert!(none_replaced(&fixture.until(200_000)));
        assert!(fixture.writer.shared_lease.as_ref().expect("it is used").is_released());
    }
}

#[test]
fn w8_a_state_that_may_be_the_successors_is_not_released() {
    let (mut fixture, watch, _) = Fixture::reading();
    let (renewal, ..) = replaces(&fixture.until(15_000));
    // Made by our renewal, or by a successor: as long as we lead it can only be ours.
    fixture.lease(watch, state(3, Some(OURS)));
    fixture.step(In::Leadership(Leadership::Standby));
    let output = fixture.lease(renewal, lost());
    assert!(none_replaced(&output) && none_replaced(&fixture.until(100_000)));
}

#[test]
fn w7_a_client_in_our_name_must_be_still_for_60_s() {
    for wanted in [false, true] {
        let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
        fixture.now = 1_000;
        let output = fixture.lease(watch, state(2, Some(OURS)));
        assert!(none_replaced(&output), "it is not taken away at once");
        let watch = lease_watch(&output);
        if wanted {
            assert!(none_replaced(&fixture.due(&pool("lb", "web"), due(1_000, MembershipUrgency::Add))));
        }
        let view = last_view(&fixture);
        assert_eq!((view.holder_kind, view.held_since), (LeaseHolderKind::SameName, Some(at(1_000))));
        assert_eq!(view.last_error, None, "no request has failed");
        assert_eq!(view.state, if wanted { "waiting" } else { "free" });
        fixture.now = 16_000;
        fixture.lease(watch, state(3, Some(OURS)));
        assert!(none_replaced(&fixture.until(75_999)), "it was renewed");
        let (call, version, edit) = replaces(&fixture.until(76_000));
        assert_eq!((version, edit.holder.as_deref()), (3, wanted.then_some(OURS)));
        assert_eq!(last_view(&fixture).held_since, Some(at(1_000)), "a renewal is no new hold");
        fixture.lease(call, state(4, edit.holder.as_deref()));
        assert_eq!(
            last_view(&fixture).holder_kind,
            if wanted { LeaseHolderKind::Controller } else { LeaseHolderKind::None }
        );
    }
}

#[test]
fn w7_a_watched_deletion_ends_a_hold_only_after_a_read() {
    for deleted in [false, true] {
        let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
        let web = pool("lb", "web");
        let (taking, ..) = replaces(&fixture.due(&web, due(0, MembershipUrgency::Add)));
        let attempt = take(&fixture.lease(taking, state(2, Some(OURS))));
        fixture.take_level(&web, attempt, &[1]);
        let output = fixture.lease(watch, LeaseAnswer::Absent);
        assert_eq!(fixture.writer.lock_send_deadline(), None, "it may be true");
        let found = if deleted { LeaseAnswer::Absent } else { state(2, Some(OURS)) };
        fixture.lease(lease_read(&output), found);
        assert_eq!(fixture.writer.lock_send_deadline().is_some(), !deleted, "the watch was late");
    }
}

/// Returns the reported unknown holders.
fn other_clients(output: &[Out]) -> Vec<String> {
    let told = |output: &Out| {
        let Out::Report(Report { what: EventKind::LeaseHeld { holder }, .. }) = output else {
            return None;
        };
        Some(holder.to_string())
    };
    output.iter().filter_map(told).collect()
}

#[test]
fn w7_a_client_that_delays_a_write_for_1_min_is_reported() {
    let (mut fixture, watch) = Fixture::with_lease(leased(), 1, Some("aks-rp"));
    assert!(other_clients(&fixture.until(10_000)).is_empty(), "nothing waits");
    assert_eq!(
        (last_view(&fixture).holder_kind, last_view(&fixture).state),
        (LeaseHolderKind::Other, "free")
    );
    fixture.due(&pool("lb", "web"), due(10_000, MembershipUrgency::Add));
    assert_eq!(last_view(&fixture).held_since, Some(at(0)));
    fixture.now = 40_000;
    fixture.lease(watch, state(2, Some("aks-rp")));
    assert!(other_clients(&fixture.until(69_999)).is_empty());
    assert_eq!(other_clients(&fixture.until(70_000)), ["aks-rp"], "a renewal is no new hold");
    assert!(other_clients(&fixture.until(200_000)).is_empty(), "once");
}

#[test]
fn w7_another_client_is_reported_1_min_after_its_take() {
    let (mut fixture, watch) = Fixture::with_lease(leased(), 1, Some(CCM));
    fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add));
    fixture.until(50_000);
    fixture.lease(watch, state(2, Some("aks-rp")));
    assert!(other_clients(&fixture.until(109_999)).is_empty());
    assert_eq!(other_clients(&fixture.until(110_000)), ["aks-rp"]);
}

#[test]
fn w7_no_event_reports_our_name_or_the_ccm_as_holder() {
    let (mut fixture, _) = Fixture::with_lease(leased(), 1, Some(CCM));
    fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add));
    assert!(other_clients(&fixture.until(300_000)).is_empty());
    assert_eq!(last_view(&fixture).holder_kind, LeaseHolderKind::CloudControllerManager);

    let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
    let mut watch = lease_watch(&fixture.lease(watch, state(2, Some(OURS))));
    fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add));
    let mut told = Vec::new();
    for (version, second) in [(3, 30), (4, 59), (5, 80)] {
        told.extend(other_clients(&fixture.until(second * 1_000)));
        let output = fixture.lease(watch, state(version, Some(OURS)));
        told.extend(other_clients(&output));
        watch = lease_watch(&output);
    }
    assert!(told.is_empty(), "{told:?}");
    assert_eq!(last_view(&fixture).holder_kind, LeaseHolderKind::SameName);
}

#[test]
fn w7_a_release_by_a_client_in_our_name_is_foreign() {
    let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
    let watch = lease_watch(&fixture.lease(watch, state(2, Some(OURS))));
    fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add));
    let output = fixture.lease(watch, state(3, None));
    assert!(output.iter().any(|output| matches!(output, Out::ForeignRelease)));
    assert_eq!(replaces(&output).1, 3, "at once");
}

#[test]
fn w7_a_hold_taken_over_by_a_client_is_not_used_or_released() {
    for by_renewal in [false, true] {
        let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
        let web = pool("lb", "web");
        let (taking, ..) = replaces(&fixture.due(&web, due(0, MembershipUrgency::Add)));
        let attempt = take(&fixture.lease(taking, state(2, Some(OURS))));
        let read = fixture.take_level(&web, attempt, &[1]);
        if by_renewal {
            let (renewal, ..) = replaces(&fixture.until(15_000));
            fixture.lease(watch, state(3, Some(OURS)));
            fixture.lease(renewal, LeaseAnswer::Conflict);
        } else {
            fixture.lease(watch, state(3, Some(OURS)));
        }
        let output = fixture.answer(read, read_of(pool_with(&web, &[]), "W/1"));
        assert!(calls(&output).is_empty() && none_replaced(&output), "by renewal: {by_renewal}: {output:?}");
    }
}

#[test]
fn w7_lock_failures_are_counted_once_a_minute() {
    let (mut fixture, _) = Fixture::with_lease(leased(), 1, None);
    let web = pool("lb", "web");
    let mut server = Server { version: 1, requests: 0, refuses: false };
    let mut counts = Vec::new();
    for second in 1..130 {
        let mut output = fixture.until(second * 1_000);
        output.extend(fixture.due(&web, due(fixture.now, MembershipUrgency::Add)));
        output = server.serve(&mut fixture, output);
        if let Some(attempt) = takes(&output).pop() {
            let after = fixture.step(In::Taken(web.clone(), attempt.1, None));
            output.extend(server.serve(&mut fixture, after));
        }
        for output in output {
            if let Out::CountLockFailures { call, since } = output {
                counts.push((fixture.now / 1_000, since));
                fixture.step(In::LockFailures(call, Some(0)));
            }
        }
    }
    // The second count also covers the events that arrived after the first one.
    assert_eq!(counts, [(1, at(1_000)), (61, at(1_000)), (121, at(61_000))]);
}

#[test]
fn w7_lock_failures_that_cannot_be_counted_count_as_some() {
    for known in [Some(0), None] {
        let (mut fixture, web, attempt) = Fixture::with_hold(leased());
        let (call, ..) = replaces(&nothing_to_do(&mut fixture, &web, attempt));
        let (count, _) = counted(&fixture.lease(call, state(3, None)));
        fixture.step(In::LockFailures(count, known));
        let (call, ..) = replaces(&fixture.due(&web, due(0, MembershipUrgency::Add)));
        let attempt = take(&fixture.lease(call, state(4, Some(OURS))));
        let (call, ..) = replaces(&nothing_to_do(&mut fixture, &web, attempt));
        fixture.lease(call, state(5, None));
        let output = fixture.due(&web, due(0, MembershipUrgency::Add));
        assert_eq!(none_replaced(&output), known.is_none(), "{known:?}");
    }
}

#[test]
fn w7_a_hold_ends_after_60_s_during_an_open_renewal() {
    let (mut fixture, web, attempt) = Fixture::with_hold(leased());
    let read = fixture.take_level(&web, attempt, &[1]);
    let (put, ..) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    fixture.answer(put, accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(90))));
    let mut version = 2;
    let mut open = None;
    for second in [15, 30, 47] {
        let (call, ..) = replaces(&fixture.until(second * 1_000));
        if second == 47 {
            open = Some(call);
        } else {
            version += 1;
            fixture.lease(call, state(version, Some(OURS)));
        }
    }
    assert!(none_replaced(&fixture.until(59_999)));
    let (release, replaced, edit) = replaces(&fixture.until(60_000));
    assert_eq!((replaced, edit.holder), (version, None));
    // The renewal was carried out after all: its state is released as well.
    assert!(lease_requests(&fixture.lease(open.expect("it was sent"), state(5, Some(OURS)))).is_empty());
    let output = fixture.lease(release, LeaseAnswer::Conflict);
    let (_, replaced, edit) = replaces(&fixture.lease(lease_read(&output), state(5, Some(OURS))));
    assert_eq!((replaced, edit.holder), (5, None));
}

#[test]
fn a3_an_input_at_the_deadline_gives_up_the_request_too() {
    let (mut fixture, _) = Fixture::with_lease(leased(), 1, None);
    replaces(&fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add)));
    fixture.now = 15_000;
    fixture.due(&pool("other", "api"), due(15_000, MembershipUrgency::Add));
    lease_read(&fixture.until(16_000));
}

#[test]
fn w7_a_service_that_stays_without_ingress_counts_once() {
    let (mut fixture, _) = Fixture::with_lease(leased(), 1, None);
    let web = pool("lb", "web");
    let mut server = Server { version: 1, requests: 0, refuses: false };
    let mut hold = |fixture: &mut Fixture, second: u64| {
        while fixture.now < second * 1_000 {
            let output = fixture.until(fixture.now + 1_000);
            server.serve(fixture, output);
        }
        let output = fixture.due(&web, due(fixture.now, MembershipUrgency::Add));
        let output = server.serve(fixture, output);
        let (_, attempt) = takes(&output).pop().expect("it is granted");
        let output = fixture.step(In::Taken(web.clone(), attempt, None));
        let output = server.serve(fixture, output);
        let count =
            |output: &Out| if let Out::CountLockFailures { call, .. } = output { Some(*call) } else { None };
        if let Some(call) = output.iter().find_map(count) {
            fixture.step(In::LockFailures(call, Some(0)));
        }
        Some(last_view(fixture)).filter(|view| view.state == "cooldown").and_then(|view| view.until)
    };
    fixture.step(In::AwaitingIngress(Some(1)));
    assert_eq!(hold(&mut fixture, 10), Some(at(70_000)));
    fixture.step(In::AwaitingIngress(Some(1)));
    assert_eq!(hold(&mut fixture, 400), None, "it is the same one, more than five minutes later");
    fixture.step(In::AwaitingIngress(None));
    fixture.step(In::AwaitingIngress(Some(2)));
    assert_eq!(hold(&mut fixture, 410), Some(at(470_000)), "another one");
}

#[test]
fn w8_a_watch_with_the_known_state_does_not_end_a_doubt() {
    let (mut fixture, watch, _) = Fixture::reading();
    let output = fixture.until(15_000);
    let output = fixture.lease(replaces(&output).0, LeaseAnswer::Conflict);
    let looking = lease_read(&output);
    assert_eq!(fixture.writer.lock_send_deadline(), None, "another client has written it too");
    fixture.lease(watch, state(2, Some(OURS)));
    assert_eq!(fixture.writer.lock_send_deadline(), None, "an old event proves nothing");
    fixture.lease(looking, state(2, Some(OURS)));
    assert!(fixture.writer.lock_send_deadline().is_some(), "it was read: no other client has written it");
}

#[test]
fn w7_a_watch_of_an_earlier_term_is_no_first_read() {
    let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
    fixture.now = 1_000;
    let looking = lease_read(&fixture.lead(2));
    fixture.lease(looking, lost());
    // The watch has seen the deletion, but not that another client has created the Lease since.
    fixture.lease(watch, LeaseAnswer::Absent);
    let output = fixture.due(&pool("lb", "web"), due(1_000, MembershipUrgency::Add));
    let output: Vec<Out> = output.into_iter().chain(fixture.until(3_000)).collect();
    assert!(
        none_replaced(&output)
            && !lease_requests(&output).iter().any(|(_, request)| matches!(request, LeaseRequest::Create(_)))
    );
    let output = fixture.lease(lease_read(&output), LeaseAnswer::Absent);
    assert!(
        lease_requests(&output).iter().any(|(_, request)| matches!(request, LeaseRequest::Create(_))),
        "now it is known to be free"
    );
}

#[test]
fn w7_a_late_take_leaves_time_in_the_shortest_hold() {
    let shortest = LeaseParams { max_hold: GIVE_UP_AFTER, ..leased().lease.expect("it is used") };
    for (took, starts) in [(0, true), (5_999, true), (6_000, false), (8_000, false)] {
        let params = Params { lease: Some(shortest.clone()), ..leased() };
        let (mut fixture, _) = Fixture::with_lease(params, 1, None);
        let mut output = fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add));
        let (mut version, mut requests, mut granted) = (1, 0, false);
        while fixture.now < 120_000 && !granted {
            let Some((call, request)) = lease_requests(&output)
                .into_iter()
                .find(|(_, request)| !matches!(request, LeaseRequest::Watch(..)))
            else {
                let next = fixture.writer.deadline().expect("it goes on").as_micros().div_ceil(1_000);
                output = fixture.until(next);
                continue;
            };
            requests += 1;
            let holder = match request {
                LeaseRequest::Replace(_, edit) => {
                    version += 1;
                    edit.holder
                }
                LeaseRequest::Get | LeaseRequest::Create(_) | LeaseRequest::Watch(..) => None,
            };
            output = fixture.until(fixture.now + took);
            output.extend(fixture.lease(call, state(version, holder.as_deref())));
            granted = !takes(&output).is_empty();
        }
        assert_eq!(granted, starts, "answered after {took} ms");
        assert!(requests < 20, "{requests} requests, each answered after {took} ms");
    }
}

#[test]
fn w7_a_late_write_of_an_earlier_term_is_not_foreign() {
    for (told, by_watch) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
        let web = pool("lb", "web");
        let (late, ..) = replaces(&fixture.due(&web, due(0, MembershipUrgency::Add)));
        fixture.now = 1_000;
        fixture.step(In::Leadership(Leadership::Standby));
        if told {
            fixture.lease(late, lost());
        }
        fixture.now = 2_000;
        let output = fixture.lead(2);
        let (take, replaced, _) = replaces(&fixture.lease(lease_read(&output), state(1, None)));
        assert_eq!(replaced, 1);
        // The earlier request was faster.
        if by_watch {
            fixture.lease(watch, state(2, Some(OURS)));
        }
        let output = fixture.lease(take, LeaseAnswer::Conflict);
        let (take, replaced, _) = replaces(&fixture.lease(lease_read(&output), state(2, Some(OURS))));
        assert_eq!(replaced, 2, "told {told}, by watch {by_watch}");
        super::take(&fixture.lease(take, state(3, Some(OURS))));
    }
}

#[test]
fn w7_requests_of_an_earlier_term_explain_only_their_writes() {
    // The request replaces version 1, and is carried out within a minute or not at all.
    for (seen, made, later, explained) in
        [(1, 2, 59_999, true), (1, 2, 60_000, false), (5, 6, 10, false), (5, 6, 59_999, false)]
    {
        let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
        let web = pool("lb", "web");
        replaces(&fixture.due(&web, due(0, MembershipUrgency::Add)));
        fixture.step(In::Leadership(Leadership::Standby));
        fixture.step(In::Withdraw(web));
        let output = fixture.lead(2);
        fixture.lease(lease_read(&output), state(seen, None));
        fixture.now = later;
        let output = fixture.lease(watch, state(made, Some(OURS)));
        assert_eq!(none_replaced(&output), !explained, "{seen}, {made}: {output:?}");
        assert_eq!(
            last_view(&fixture).holder_kind == LeaseHolderKind::SameName,
            !explained,
            "{seen}, {made}, {later}"
        );
    }
}

#[test]
fn w8_a_read_sent_before_a_doubt_does_not_end_the_doubt() {
    let (mut fixture, watch, _) = Fixture::reading();
    let output = fixture.until(15_000);
    fixture.lease(replaces(&output).0, lost());
    let early = lease_read(&fixture.until(16_000));
    fixture.lease(watch, LeaseAnswer::Absent);
    assert_eq!(fixture.writer.lock_send_deadline(), None, "it may have been deleted");
    let output = fixture.lease(early, state(2, Some(OURS)));
    assert_eq!(fixture.writer.lock_send_deadline(), None, "as it was before");
    fixture.lease(lease_read(&output), state(2, Some(OURS)));
    assert!(fixture.writer.lock_send_deadline().is_some(), "as it is now");
}

#[test]
fn w7_failing_watches_are_shown_and_the_lease_is_read() {
    let (mut fixture, mut watch) = Fixture::with_lease(leased(), 1, None);
    let failed = || LeaseAnswer::Failed(RequestFailure::Other("the watch ended without a line".into()));
    for n in 1..=2 {
        let read = lease_read(&fixture.lease(watch, failed()));
        fixture.lease(read, state(1, None));
        let shown = last_view(&fixture).last_error;
        assert_eq!(shown.as_deref(), (n > 1).then_some("the watch ended without a line"), "after {n}");
        watch = lease_watch(&fixture.until(fixture.now + 5_000));
    }
    fixture.lease(watch, LeaseAnswer::Unchanged);
    assert_eq!(last_view(&fixture).last_error, None, "it is watched again");
}
