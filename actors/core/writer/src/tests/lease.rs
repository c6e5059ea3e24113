//! Tests of the shared Lease in the writer: taking, holding, renewing and releasing it, and the effect on writes
//! (docs/design/writer.md, W7; W8).

use super::*;
use model::arm::AdminState;
use model::lease::{LeaseEdit, LeaseFacts, LeaseName};
use model::object::{RequestFailure, ResourceVersion};
use model::sample::Caller;

mod bypass;
mod freshness;
mod holds;
mod troubles;

const OURS: &str = "azure-backend-pool-controller";
const CCM: &str = "cloud-controller-manager";

pub(super) fn leased() -> Params {
    let lease = LeaseParams {
        holder: OURS.into(),
        max_hold: Duration::from_secs(20),
        min_cooldown: Duration::from_secs(5),
        bypass_for_drain: false,
    };
    Params { lease: Some(lease), ..params() }
}

pub(super) fn state(version: u64, holder: Option<&str>) -> LeaseAnswer {
    LeaseAnswer::Seen(Arc::new(LeaseFacts {
        lease: LeaseName::Shared,
        holder: holder.map(Arc::from),
        duration: None,
        renewed_ago: holder.map(|_| Duration::ZERO),
        transitions: 0,
        version: ResourceVersion(version.to_string().into()),
        gates: GateTimes::default(),
        out_of_sync: Arc::default(),
        document: Document::new(()),
    }))
}

fn lost() -> LeaseAnswer {
    LeaseAnswer::Failed(RequestFailure::Other("no answer".into()))
}

/// Returns the requests about the Lease in the output.
fn lease_requests(output: &[Out]) -> Vec<(CallId, LeaseRequest)> {
    output
        .iter()
        .filter_map(
            |output| if let Out::Lease(id, request) = output { Some((*id, request.clone())) } else { None },
        )
        .collect()
}

fn lease_read(output: &[Out]) -> CallId {
    let found = lease_requests(output).into_iter().find(|(_, request)| matches!(request, LeaseRequest::Get));
    found.unwrap_or_else(|| panic!("no read of the Lease: {output:?}")).0
}

fn lease_watch(output: &[Out]) -> CallId {
    let found =
        lease_requests(output).into_iter().find(|(_, request)| matches!(request, LeaseRequest::Watch(..)));
    found.unwrap_or_else(|| panic!("no watch of the Lease: {output:?}")).0
}

/// Returns the only replacement: its id, the version that it replaces, and the edit.
fn replaces(output: &[Out]) -> (CallId, u64, LeaseEdit) {
    let mut found = lease_requests(output).into_iter().filter_map(|(id, request)| match request {
        LeaseRequest::Replace(facts, edit) => Some((id, facts.version.0.parse().expect("a number"), edit)),
        LeaseRequest::Get | LeaseRequest::Create(_) | LeaseRequest::Watch(..) => None,
    });
    let one = found.next().unwrap_or_else(|| panic!("nothing is replaced: {output:?}"));
    assert!(found.next().is_none());
    one
}

fn none_replaced(output: &[Out]) -> bool {
    lease_requests(output)
        .iter()
        .all(|(_, request)| matches!(request, LeaseRequest::Get | LeaseRequest::Watch(..)))
}

fn counted(output: &[Out]) -> (CallId, Now) {
    let found = output.iter().find_map(|output| {
        if let Out::CountLockFailures { call, since } = output { Some((*call, *since)) } else { None }
    });
    found.unwrap_or_else(|| panic!("no count: {output:?}"))
}

fn send_deadline(output: &[Out]) -> Now {
    let found = calls(output).into_iter().find_map(|call| match &call.request {
        ArmRequest::PutPool { permit, .. } => Some(permit.send_deadline),
        ArmRequest::GetPool(_) | ArmRequest::GetLoadBalancer(_) | ArmRequest::Poll(_) => None,
    });
    found.expect("a PUT")
}

impl Fixture {
    /// Creates a leader that has observed the Lease in this state.
    fn with_lease(params: Params, version: u64, holder: Option<&str>) -> (Fixture, CallId) {
        let mut fixture = Fixture::new(params);
        let output = fixture.lead(1);
        let output = fixture.lease(lease_read(&output), state(version, holder));
        let watch = lease_watch(&output);
        (fixture, watch)
    }

    fn lease(&mut self, call: CallId, answer: LeaseAnswer) -> Vec<Out> {
        self.step(In::Lease(call, answer))
    }

    /// Answers a requested count with zero lock failures. Returns all output.
    fn answer_count_with_zero(&mut self, mut output: Vec<Out>) -> Vec<Out> {
        let count =
            |output: &Out| if let Out::CountLockFailures { call, .. } = output { Some(*call) } else { None };
        if let Some(call) = output.iter().find_map(count) {
            output.extend(self.step(In::LockFailures(call, Some(0))));
        }
        output
    }

    /// Creates a holder, in the state of this version, that has asked a pool for its level.
    fn with_hold(params: Params) -> (Fixture, PoolId, AttemptId) {
        let (mut fixture, _) = Fixture::with_lease(params, 1, None);
        let web = pool("lb", "web");
        let (take, _, _) = replaces(&fixture.due(&web, due(0, MembershipUrgency::Add)));
        let attempt = super::take(&fixture.lease(take, state(2, Some(OURS))));
        (fixture, web, attempt)
    }

    /// Creates a holder, in the state of version 2, with the GET of `lb/web` in flight. Also returns the watch of the
    /// Lease, and that GET.
    fn reading() -> (Fixture, CallId, CallId) {
        let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
        let web = pool("lb", "web");
        let (taking, ..) = replaces(&fixture.due(&web, due(0, MembershipUrgency::Add)));
        let attempt = super::take(&fixture.lease(taking, state(2, Some(OURS))));
        let read = fixture.take_level(&web, attempt, &[1]);
        (fixture, watch, read)
    }

    fn leads_until(&mut self, epoch: u64, until: u64) -> Vec<Out> {
        self.step(In::Leadership(Leadership::Leading { epoch: Epoch(epoch), until: at(until) }))
    }
}

/// Returns the waits for the Lease so far, in milliseconds.
fn waits(fixture: &Fixture) -> Vec<(Caller, u128)> {
    fixture.samples(|sample| {
        let Metric::LeaseWait { caller, waited } = sample else { return None };
        Some((*caller, waited.as_millis()))
    })
}

#[test]
fn w7_a_write_acquires_the_lease_first_and_releases_it_later() {
    let (mut fixture, _) = Fixture::with_lease(leased(), 1, None);
    let web = pool("lb", "web");
    fixture.now = 1_000;
    let output = fixture.due(&web, due(900, MembershipUrgency::Add));
    assert!(takes(&output).is_empty(), "nothing is granted without it");
    let (call, version, edit) = replaces(&output);
    assert_eq!(version, 1);
    assert_eq!((edit.holder.as_deref(), edit.duration), (Some(OURS), Duration::from_secs(60)));
    assert!(edit.acquired && edit.transition && edit.previous_holder.is_none() && edit.gates.is_none());
    fixture.now = 1_010;
    let attempt = take(&fixture.lease(call, state(2, Some(OURS))));
    assert_eq!(waits(&fixture), [(Caller::Membership, 10)]);
    let read = fixture.take_level(&web, attempt, &[1]);
    let (put, ..) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    fixture.now = 1_210;
    let output = fixture.answer(put, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    let (call, version, edit) = replaces(&output);
    assert_eq!((version, edit.holder, edit.duration), (2, None, Duration::from_secs(900)));
    assert_eq!(edit.previous_holder.as_deref(), Some(OURS), "the CCM must read its pools again");
    assert!(!edit.acquired && !edit.transition);
    fixture.now = 1_220;
    let output = fixture.lease(call, state(3, None));
    assert_eq!(counted(&output).1, at(1_000), "lock failures count from the taking on");
    assert_eq!(
        fixture.samples(|s| if let Metric::LeaseHeld(held) = s { Some(held.as_millis()) } else { None }),
        [220]
    );
}

#[test]
fn w7_a_process_without_a_put_leaves_no_name_in_the_lease() {
    let (mut fixture, web, attempt) = Fixture::with_hold(leased());
    let (_, _, edit) = replaces(&nothing_to_do(&mut fixture, &web, attempt));
    assert_eq!((edit.holder, edit.previous_holder), (None, None));
}

#[test]
fn w7_a_lease_that_does_not_exist_is_created() {
    let mut fixture = Fixture::new(leased());
    let call = lease_read(&fixture.lead(1));
    fixture.lease(call, LeaseAnswer::Absent);
    let output = fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add));
    let made: Vec<_> = lease_requests(&output)
        .into_iter()
        .filter(|(_, request)| matches!(request, LeaseRequest::Create(_)))
        .collect();
    assert_eq!(made.len(), 1, "{output:?}");
    let output = fixture.lease(made[0].0, state(1, Some(OURS)));
    take(&output);
    lease_watch(&output);
}

#[test]
fn w7_the_release_of_another_holder_wakes_the_lanes() {
    let (mut fixture, watch) = Fixture::with_lease(leased(), 1, Some(CCM));
    let output = fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add));
    assert!(lease_requests(&output).is_empty() && takes(&output).is_empty());
    assert!(lease_requests(&fixture.until(50_000)).is_empty(), "it is not requested again and again");
    let output = fixture.lease(watch, state(2, None));
    assert!(output.iter().any(|output| matches!(output, Out::ForeignRelease)));
    assert_eq!(replaces(&output).1, 2, "at once");
}

#[test]
fn w7_an_unseen_take_and_release_counts_as_a_foreign_release() {
    let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
    let output = fixture.lease(watch, state(3, None));
    assert!(output.iter().any(|output| matches!(output, Out::ForeignRelease)));
}

#[test]
fn w7_our_release_is_not_foreign_whichever_answer_is_first() {
    for by_watch in [false, true] {
        let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
        let web = pool("lb", "web");
        let (taking, ..) = replaces(&fixture.due(&web, due(0, MembershipUrgency::Add)));
        let output = fixture.lease(watch, state(2, Some(OURS)));
        let watch = lease_watch(&output);
        let attempt = take(&fixture.lease(taking, state(2, Some(OURS))));
        let (release, ..) = replaces(&nothing_to_do(&mut fixture, &web, attempt));
        let mut output = Vec::new();
        if by_watch {
            output.extend(fixture.lease(watch, state(3, None)));
        }
        output.extend(fixture.lease(release, state(3, None)));
        assert!(!output.iter().any(|output| matches!(output, Out::ForeignRelease)), "{output:?}");
        assert!(fixture.writer.shared_lease.as_ref().expect("it is used").is_released());
    }
}

#[test]
fn w7_a_foreign_hold_ends_900_s_after_its_state_was_first_seen() {
    let (mut fixture, mut watch) = Fixture::with_lease(leased(), 1, Some(CCM));
    fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add));
    for second in 1..900 {
        let output = fixture.until(second * 1_000);
        assert!(none_replaced(&output), "after {second} s");
        if second % 60 == 0 {
            watch = lease_watch(&fixture.lease(watch, LeaseAnswer::Unchanged));
        }
    }
    assert_eq!(replaces(&fixture.until(900_000)).1, 1);
}

#[test]
fn w7_a_hold_of_our_predecessor_is_taken_over_immediately() {
    let (mut fixture, _) = Fixture::with_lease(leased(), 1, None);
    let web = pool("lb", "web");
    let mut second = Fixture::new(leased());
    second.due(&web, due(0, MembershipUrgency::Add));
    let call = lease_read(&second.lead(2));
    let output = second.lease(call, state(7, Some("Azure-Backend-Pool-Controller")));
    let (call, version, edit) = replaces(&output);
    assert_eq!((version, edit.acquired, edit.transition), (7, true, false));
    let attempt = take(&second.lease(call, state(8, Some(OURS))));
    let (_, _, edit) = replaces(&nothing_to_do(&mut second, &web, attempt));
    assert_eq!(edit.previous_holder.as_deref(), Some(OURS), "whether it has written is not known");
    fixture.until(10);
}

#[test]
fn w7_an_unused_hold_of_our_predecessor_is_released() {
    let mut fixture = Fixture::new(leased());
    let call = lease_read(&fixture.lead(2));
    let (_, version, edit) = replaces(&fixture.lease(call, state(7, Some(OURS))));
    assert_eq!((version, edit.holder, edit.previous_holder.as_deref()), (7, None, Some(OURS)));
}

#[test]
fn w7_the_lease_is_renewed_every_15_s_and_released_after_60_s() {
    let (mut fixture, web, attempt) = Fixture::with_hold(leased());
    let read = fixture.take_level(&web, attempt, &[1]);
    let (put, ..) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    fixture.answer(put, accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(60))));
    let mut version = 2;
    for second in [15, 30, 45] {
        let output = fixture.until(second * 1_000 - 1);
        assert!(none_replaced(&output), "before {second} s");
        let (call, replaced, edit) = replaces(&fixture.until(second * 1_000));
        assert_eq!((replaced, edit.holder.as_deref(), edit.acquired), (version, Some(OURS), false));
        assert_eq!(edit.duration, Duration::from_secs(60));
        version += 1;
        fixture.lease(call, state(version, Some(OURS)));
    }
    let output = fixture.until(60_000);
    let (_, replaced, edit) = replaces(&output);
    assert_eq!((replaced, edit.holder), (version, None), "the operation still runs");
    assert!(fixture.writer.lanes.values().any(|lane| lane.write.is_some()));
}

#[test]
fn w7_no_write_starts_20_s_after_the_lease_is_acquired() {
    let (mut fixture, web, attempt) = Fixture::with_hold(leased());
    let read = fixture.take_level(&web, attempt, &[1]);
    let (renewal, ..) = replaces(&fixture.until(19_999));
    fixture.lease(renewal, state(3, Some(OURS)));
    let other = pool("other", "api");
    let early = take(&fixture.due(&other, due(19_999, MembershipUrgency::Add)));
    nothing_to_do(&mut fixture, &other, early);
    fixture.until(20_000);
    let output = fixture.due(&other, due(20_000, MembershipUrgency::Add));
    assert!(takes(&output).is_empty() && none_replaced(&output), "the other write goes on under it");
    let output = fixture.answer(read, read_of(pool_with(&web, &[1]), "W/1"));
    assert_eq!(replaces(&output).2.holder, None, "it is released though something waits");
}

#[test]
fn w7_after_a_hold_the_lease_is_off_for_as_long_as_the_hold() {
    for (on_foreign_holder, off) in [(true, 12_000), (false, 0)] {
        let (mut fixture, watch) = Fixture::with_lease(leased(), 1, on_foreign_holder.then_some(CCM));
        let web = pool("lb", "web");
        let output = fixture.due(&web, due(0, MembershipUrgency::Add));
        let output = if on_foreign_holder { fixture.lease(watch, state(2, None)) } else { output };
        let (call, ..) = replaces(&output);
        let attempt = take(&fixture.lease(call, state(3, Some(OURS))));
        fixture.until(9_000);
        let read = fixture.take_level(&web, attempt, &[1]);
        fixture.until(12_000);
        fixture.due(&pool("lb", "api"), due(12_000, MembershipUrgency::Add));
        let output = fixture.answer(read, read_of(pool_with(&web, &[1]), "W/1"));
        // The next write begins in the same hold. No write is left when the hold ends.
        let attempt = take(&output);
        let output = nothing_to_do(&mut fixture, &pool("lb", "api"), attempt);
        let (call, ..) = replaces(&output);
        let output = fixture.lease(call, state(4, None));
        fixture.answer_count_with_zero(output);
        let output = fixture.due(&web, due(12_000, MembershipUrgency::Add));
        if off == 0 {
            assert_eq!(replaces(&output).1, 4);
        } else {
            assert!(none_replaced(&output) && none_replaced(&fixture.until(12_000 + off - 1)));
            assert_eq!(replaces(&fixture.until(12_000 + off)).1, 4);
        }
    }
}

#[test]
fn w7_lock_failures_during_our_hold_add_60_seconds_off() {
    let (mut fixture, web, attempt) = Fixture::with_hold(leased());
    let (call, ..) = replaces(&nothing_to_do(&mut fixture, &web, attempt));
    let (count, _) = counted(&fixture.lease(call, state(3, None)));
    assert!(none_replaced(&fixture.step(In::LockFailures(count, Some(2)))));
    let failures = |s: &Metric| if let Metric::ForeignLockFailures(n) = s { Some(*n) } else { None };
    assert_eq!(fixture.samples(failures), [2]);
    let output = fixture.due(&web, due(0, MembershipUrgency::Add));
    assert!(none_replaced(&output) && none_replaced(&fixture.until(59_999)));
    assert_eq!(replaces(&fixture.until(60_000)).1, 3);
    fixture.step(In::LockFailures(count, Some(2)));
    assert_eq!((fixture.samples(failures), fixture.unmatched()), (vec![2], 1), "an answer counts once");
}

#[test]
fn w7_the_addition_ends_when_another_holder_leaves_it_for_5_s() {
    for (again, off) in [(None, 12_000), (Some(15_000), 20_000)] {
        let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
        let web = pool("lb", "web");
        let (taking, ..) = replaces(&fixture.due(&web, due(0, MembershipUrgency::Add)));
        let attempt = take(&fixture.lease(taking, state(2, Some(OURS))));
        let (call, ..) = replaces(&nothing_to_do(&mut fixture, &web, attempt));
        let (count, _) = counted(&fixture.lease(call, state(3, None)));
        fixture.step(In::LockFailures(count, Some(1)));
        fixture.due(&web, due(0, MembershipUrgency::Add));
        assert!(none_replaced(&fixture.until(7_000)));
        // The cloud-controller-manager takes and releases it. The watch shows only the release.
        let output = fixture.lease(watch, state(5, None));
        assert!(none_replaced(&output));
        let output = match again {
            None => fixture.until(off - 1),
            Some(until) => {
                assert!(none_replaced(&output) && none_replaced(&fixture.until(8_000)));
                let watch = lease_watch(&output);
                let output = fixture.lease(watch, state(6, Some(CCM)));
                assert!(
                    none_replaced(&output) && none_replaced(&fixture.until(until)),
                    "the CCM takes it again"
                );
                let watch = lease_watch(&output);
                let output = fixture.lease(watch, state(7, None));
                assert!(none_replaced(&output));
                fixture.until(off - 1)
            }
        };
        assert!(none_replaced(&output));
        assert!(!none_replaced(&fixture.until(off)), "{again:?}");
    }
}

#[test]
fn w7_a_service_without_ingress_at_the_holds_end_adds_60_s() {
    for (awaiting, off) in [(Some(1), 60_000), (None, 0)] {
        let (mut fixture, web, attempt) = Fixture::with_hold(leased());
        fixture.step(In::AwaitingIngress(Some(1)));
        fixture.step(In::AwaitingIngress(awaiting));
        let (call, ..) = replaces(&nothing_to_do(&mut fixture, &web, attempt));
        let output = fixture.lease(call, state(3, None));
        fixture.answer_count_with_zero(output);
        let output = fixture.due(&web, due(0, MembershipUrgency::Add));
        assert_eq!(none_replaced(&output), off > 0);
        if off > 0 {
            assert!(none_replaced(&fixture.until(off - 1)));
            assert_eq!(replaces(&fixture.until(off)).1, 3);
        }
    }
}

#[test]
fn w8_a_put_needs_25_s_of_leadership_and_of_the_hold() {
    for (leads_until, sent_until) in [(1_000_000, 35_000), (45_000, 20_000), (60_000, 35_000)] {
        let (mut fixture, web, attempt) = Fixture::with_hold(leased());
        fixture.leads_until(1, leads_until);
        let read = fixture.take_level(&web, attempt, &[1]);
        let output = fixture.answer(read, read_of(pool_with(&web, &[]), "W/1"));
        assert_eq!(send_deadline(&output), at(sent_until), "leading until {leads_until}");
    }
}

#[test]
fn w8_a_new_leadership_state_of_the_term_moves_the_permit() {
    let (mut fixture, web, attempt) = Fixture::with_hold(leased());
    fixture.leads_until(1, 30_000);
    fixture.until(4_000);
    let output = fixture.leads_until(1, 49_000);
    assert!(output.iter().all(|output| !matches!(output, Out::Finished(..))));
    let read = fixture.take_level(&web, attempt, &[1]);
    let output = fixture.answer(read, read_of(pool_with(&web, &[]), "W/1"));
    assert_eq!(send_deadline(&output), at(24_000));
}

#[test]
fn w8_a_refused_permit_is_not_granted_and_sends_nothing() {
    for stolen in [false, true] {
        let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
        let web = pool("lb", "web");
        let (call, ..) = replaces(&fixture.due(&web, due(0, MembershipUrgency::Add)));
        let attempt = take(&fixture.lease(call, state(2, Some(OURS))));
        let read = fixture.take_level(&web, attempt, &[1]);
        if stolen {
            fixture.lease(watch, state(3, Some(CCM)));
        } else {
            fixture.until(35_001);
        }
        let output = fixture.answer(read, read_of(pool_with(&web, &[]), "W/1"));
        assert!(calls(&output).is_empty(), "{output:?}");
        assert!(matches!(outcome(&output, attempt), Outcome::NotGranted));
    }
}

#[test]
fn e2_the_wait_for_the_lease_is_measured_for_each_caller() {
    let (mut fixture, _) = Fixture::with_lease(leased(), 1, None);
    let (drained, web) = (pool("a", "drained"), pool("b", "web"));
    fixture.now = 1_000;
    let (call, ..) = replaces(&fixture.step(In::AdminDue(drained, Some(down(900)))));
    fixture.now = 1_004;
    fixture.due(&web, due(1_003, MembershipUrgency::Add));
    fixture.now = 1_010;
    fixture.lease(call, state(2, Some(OURS)));
    assert_eq!(waits(&fixture), [(Caller::Membership, 6), (Caller::AdminState, 10)]);

    let (mut fixture, _) = Fixture::with_lease(leased(), 1, None);
    let (call, ..) = replaces(&fixture.due(&web, due(0, MembershipUrgency::Add)));
    fixture.step(In::Withdraw(web.clone()));
    fixture.now = 5;
    fixture.step(In::AdminDue(web, Some(down(0))));
    fixture.now = 7;
    fixture.lease(call, state(2, Some(OURS)));
    assert_eq!(waits(&fixture), [(Caller::AdminState, 2)], "the other one does not wait any more");
}

#[test]
fn n3_a_down_with_a_refused_permit_is_written_in_the_next_hold() {
    let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
    let web = pool("lb", "web");
    fixture.step(In::Draining(drains(1)));
    let (call, ..) = replaces(&fixture.step(In::AdminDue(web.clone(), Some(down(0)))));
    let read = get(&fixture.lease(call, state(2, Some(OURS))), &web);
    let output = fixture.lease(watch, state(3, Some(CCM)));
    let watch = lease_watch(&fixture.answer_count_with_zero(output));
    let output = fixture.answer(read, read_of(pool_with(&web, &[1]), "W/1"));
    assert!(
        output.iter().all(|output| admin_end(output).is_none() && !matches!(output, Out::Call(_))),
        "{output:?}"
    );
    fixture.until(5_000);
    let (call, ..) = replaces(&fixture.lease(watch, state(4, None)));
    let read = get(&fixture.lease(call, state(5, Some(OURS))), &web);
    put(&fixture.answer(read, read_of(pool_with(&web, &[1]), "W/1")), &web);
}

#[test]
fn w7_a_conflict_on_a_renewal_ends_permits_until_a_read() {
    for holder in [OURS, CCM] {
        let (mut fixture, web, attempt) = Fixture::with_hold(leased());
        let read = fixture.take_level(&web, attempt, &[1]);
        // An unanswered renewal is carried out late. The next renewal gets a conflict with its result.
        let (call, ..) = replaces(&fixture.until(15_000));
        fixture.lease(call, lost());
        let output = fixture.until(16_000);
        let output = fixture.lease(lease_read(&output), state(2, Some(OURS)));
        let output = fixture.lease(replaces(&output).0, LeaseAnswer::Conflict);
        let call = lease_read(&output);
        let other = pool("other", "api");
        assert!(
            takes(&fixture.due(&other, due(16_000, MembershipUrgency::Add))).is_empty(),
            "no write starts in doubt"
        );
        let granted = takes(&fixture.lease(call, state(9, Some(holder))));
        assert_eq!(granted.len(), usize::from(holder == OURS));
        let output = fixture.answer(read, read_of(pool_with(&web, &[]), "W/1"));
        assert_eq!(calls(&output).len(), usize::from(holder == OURS));
    }
}

#[test]
fn w7_a_hold_ends_60_s_after_its_last_successful_renewal() {
    let (mut fixture, web, attempt) = Fixture::with_hold(leased());
    fixture.take_level(&web, attempt, &[1]);
    let mut waits = Vec::new();
    let mut at = 15_000;
    let mut output = fixture.until(at);
    while at < 60_000 {
        let (call, _) = lease_requests(&output).into_iter().next_back().expect("it is asked again");
        fixture.lease(call, lost());
        let next = fixture.writer.deadline().expect("it goes on").as_micros() / 1_000;
        output = fixture.until(next);
        while lease_requests(&output).iter().all(|(_, request)| matches!(request, LeaseRequest::Watch(..)))
            && fixture.now < 60_000
        {
            let next = fixture.writer.deadline().expect("it goes on").as_micros() / 1_000;
            output = fixture.until(next);
        }
        waits.push((fixture.now - at) / 1_000);
        at = fixture.now;
    }
    assert_eq!(waits[..4], [1, 2, 5, 10], "failures back off");
    assert!(!fixture.writer.shared_lease.as_ref().expect("it is used").may_start(super::at(fixture.now)));
    assert_eq!(fixture.writer.lock_send_deadline(), None);
}

#[test]
fn w7_an_unanswered_release_is_repeated_before_any_write() {
    let (mut fixture, web, attempt) = Fixture::with_hold(leased());
    let (call, version, _) = replaces(&nothing_to_do(&mut fixture, &web, attempt));
    assert_eq!(version, 2);
    fixture.lease(call, lost());
    assert!(
        takes(&fixture.due(&web, due(0, MembershipUrgency::Add))).is_empty(),
        "it may have another holder by now"
    );
    let (call, version, edit) = replaces(&fixture.until(1_000));
    assert_eq!((version, edit.holder), (2, None), "the same state is given back");
    let output = fixture.lease(call, LeaseAnswer::Conflict);
    let looking = lease_read(&output);
    fixture.answer_count_with_zero(output);
    let output = fixture.lease(looking, state(3, None));
    let output = fixture.answer_count_with_zero(output);
    assert_eq!(replaces(&output).1, 3, "the first one was carried out");
}

#[test]
fn w7_an_acquisition_with_a_lost_answer_is_found_by_a_read() {
    let (mut fixture, _) = Fixture::with_lease(leased(), 1, None);
    let web = pool("lb", "web");
    let (call, ..) = replaces(&fixture.due(&web, due(0, MembershipUrgency::Add)));
    fixture.lease(call, lost());
    let output = fixture.until(1_000);
    let output = fixture.lease(lease_read(&output), state(2, Some(OURS)));
    let (call, version, _) = replaces(&output);
    assert_eq!(version, 2);
    let late = fixture.lease(CallId(2), state(2, Some(OURS)));
    assert!(takes(&late).is_empty(), "a request that was given up has no answer");
    take(&fixture.lease(call, state(3, Some(OURS))));
    assert_eq!(fixture.writer.lock_send_deadline(), Some(at(36_000)), "it counts from the second request");
}

#[test]
fn w7_an_overtaken_acquisition_is_no_hold() {
    let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
    let (call, ..) = replaces(&fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add)));
    let output = fixture.lease(watch, state(3, Some(CCM)));
    assert!(none_replaced(&output));
    let output = fixture.lease(call, state(2, Some(OURS)));
    assert!(takes(&output).is_empty(), "the newer state has another holder");
}

#[test]
fn a3_late_doubled_and_unknown_lease_answers_are_counted() {
    let (mut fixture, watch) = Fixture::with_lease(leased(), 1, None);
    for (call, answer) in [
        (CallId(99), state(5, Some(OURS))),
        (CallId(1), state(5, Some(OURS))),
        (CallId(99), LeaseAnswer::Conflict),
    ] {
        assert!(fixture.lease(call, answer).is_empty());
    }
    fixture.lease(watch, LeaseAnswer::Unchanged);
    assert!(fixture.lease(watch, state(6, Some(OURS))).is_empty());
    assert!(fixture.step(In::LockFailures(CallId(1), Some(7))).is_empty());
    assert_eq!(fixture.unmatched(), 5);
    let mut dry = Fixture::leading(params());
    assert!(dry.lease(CallId(1), LeaseAnswer::Absent).is_empty());
    assert_eq!(dry.unmatched(), 1);
}

#[test]
fn w7_a_request_without_an_answer_fails_after_6_seconds() {
    let (mut fixture, _) = Fixture::with_lease(leased(), 1, None);
    replaces(&fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add)));
    assert!(lease_requests(&fixture.until(6_999)).is_empty(), "after the failure it waits for a second");
    lease_read(&fixture.until(7_000));
}

#[test]
fn w7_the_lease_is_released_before_waits() {
    // A write waits for a foreign operation, or for a client retry.
    for foreign in [true, false] {
        let (mut fixture, web, attempt) = Fixture::with_hold(leased());
        let read = fixture.take_level(&web, attempt, &[1]);
        let output = if foreign {
            let facts = PoolFacts { provisioning: Provisioning::Updating, ..pool_with(&web, &[]) };
            fixture.answer(read, read_of(facts, "W/1"))
        } else {
            fixture.fail(read, failed(503, "", RetryAfter::Absent))
        };
        assert_eq!(replaces(&output).2.holder, None, "foreign operation: {foreign}");
    }
}

#[test]
fn w7_a_closing_gate_releases_the_lease_during_an_operation() {
    let (mut fixture, web, attempt) = Fixture::with_hold(leased());
    let read = fixture.take_level(&web, attempt, &[1]);
    let (put, ..) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    let output =
        fixture.answer(put, accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(1))));
    assert!(none_replaced(&output), "polling keeps it");
    let poll = poll(&fixture.until(1_000));
    let output = fixture.fail(poll, failed(429, "TooManyRequests", RetryAfter::In(Duration::from_secs(300))));
    assert_eq!(replaces(&output).2.holder, None);
}

#[test]
fn w7_an_exhausted_budget_releases_the_lease() {
    let mut leased = leased();
    leased.reads_per_5_minutes = 2;
    let (mut fixture, web, attempt) = Fixture::with_hold(leased);
    let read = fixture.take_level(&web, attempt, &[1]);
    let (put, ..) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    fixture.answer(put, accepted(Provisioning::Updating, RetryAfter::In(Duration::from_secs(1))));
    let poll = poll(&fixture.until(1_000));
    let output = fixture.answer(poll, running(RetryAfter::In(Duration::from_secs(1))));
    assert_eq!(replaces(&output).2.holder, None, "the next poll waits for minutes");
}

#[test]
fn w8_without_leadership_the_lease_is_released_after_open_puts() {
    let (mut fixture, web, attempt) = Fixture::with_hold(leased());
    let read = fixture.take_level(&web, attempt, &[1]);
    let (put, ..) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    let output = fixture.step(In::Leadership(Leadership::Standby));
    assert!(matches!(outcome(&output, attempt), Outcome::Interrupted));
    assert!(
        none_replaced(&output) && none_replaced(&fixture.until(16_000)),
        "no renewal, and the PUT is open"
    );
    let output = fixture.answer(put, accepted(Provisioning::Updating, RetryAfter::Absent));
    let (call, version, edit) = replaces(&output);
    assert_eq!((version, edit.holder), (2, None));
    assert!(
        lease_requests(&fixture.lease(call, LeaseAnswer::Conflict)).is_empty(),
        "it is the successor's now"
    );
    assert!(lease_requests(&fixture.until(200_000)).is_empty(), "a standby asks for nothing");
}

#[test]
fn w8_a_new_term_relies_on_no_hold_of_the_previous_one() {
    let (mut fixture, web, attempt) = Fixture::with_hold(leased());
    let output = fixture.lead(2);
    assert!(matches!(outcome(&output, attempt), Outcome::Interrupted));
    assert!(takes(&fixture.due(&web, due(0, MembershipUrgency::Add))).is_empty());
    let output = fixture.lease(lease_read(&output), state(4, Some(OURS)));
    let (call, version, _) = replaces(&output);
    assert_eq!(version, 4, "it is taken over from the holder with our name");
    take(&fixture.lease(call, state(5, Some(OURS))));
}

#[test]
fn w8_a_shutdown_releases_the_lease_before_it_is_quiet() {
    let (mut fixture, web, attempt) = Fixture::with_hold(leased());
    let read = fixture.take_level(&web, attempt, &[1]);
    let (put, ..) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")), &web);
    let quiet = |output: &[Out]| output.iter().any(|output| matches!(output, Out::Quiet { .. }));
    let output = fixture.step(In::Shutdown);
    assert!(none_replaced(&output) && !quiet(&output), "the PUT is waited for");
    let (call, ..) = replaces(&fixture.until(15_000));
    fixture.lease(call, state(3, Some(OURS)));
    let output = fixture.answer(put, accepted(Provisioning::Updating, RetryAfter::Absent));
    let (call, version, edit) = replaces(&output);
    assert_eq!((version, edit.holder), (3, None));
    assert!(!quiet(&output));
    let output = fixture.lease(call, state(4, None));
    assert!(output.iter().any(|output| matches!(output, Out::Quiet { shared_is_free: true })));
    assert!(lease_requests(&fixture.until(100_000)).is_empty());
}

#[test]
fn w8_a_shutdown_tries_to_release_the_lease_for_at_most_3_s() {
    let (mut fixture, web, attempt) = Fixture::with_hold(leased());
    let read = fixture.take_level(&web, attempt, &[1]);
    let (call, ..) = replaces(&fixture.step(In::Shutdown));
    fixture.fail(read, failed(503, "", RetryAfter::Absent));
    fixture.lease(call, lost());
    let (call, ..) = replaces(&fixture.until(1_000));
    fixture.lease(call, lost());
    let quiet = |output: &[Out]| output.iter().any(|output| matches!(output, Out::Quiet { .. }));
    assert!(!quiet(&fixture.until(2_999)));
    let output = fixture.until(3_000);
    assert!(output.iter().any(|output| matches!(output, Out::Quiet { shared_is_free: false })), "it lapses");
}

#[test]
fn w8_a_shutdown_without_the_lease_is_quiet_immediately() {
    let (mut fixture, _) = Fixture::with_lease(leased(), 1, None);
    assert!(fixture.step(In::Shutdown).iter().any(|output| matches!(output, Out::Quiet { .. })));
    let (mut fixture, _) = Fixture::with_lease(leased(), 1, None);
    let (call, ..) = replaces(&fixture.due(&pool("lb", "web"), due(0, MembershipUrgency::Add)));
    let quiet = |output: &[Out]| output.iter().any(|output| matches!(output, Out::Quiet { .. }));
    assert!(!quiet(&fixture.step(In::Shutdown)), "it may be ours in a moment");
    let (call, ..) = replaces(&fixture.lease(call, state(2, Some(OURS))));
    assert!(quiet(&fixture.lease(call, state(3, None))));
}

#[test]
fn c4_a_dry_run_sends_no_lease_requests() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (_, call) = fixture.begin_put(&web, &[1]);
    let output = fixture.answer(call, ArmAnswer::Withheld);
    assert!(lease_requests(&output).is_empty() && lease_requests(&fixture.until(100_000)).is_empty());
}

/// Creates a leader while another client holds the Lease. A Down may be written without the Lease. Also returns the
/// watch of the Lease.
fn bypassing(bypass_for_drain: bool) -> (Fixture, CallId) {
    let mut params = Params { if_match: false, ..leased() };
    if let Some(lease) = &mut params.lease {
        lease.bypass_for_drain = bypass_for_drain;
    }
    Fixture::with_lease(params, 1, Some(CCM))
}

/// Returns the load balancer `lb` with two pools, in a GET with this tag.
fn lb_with(tag: &str, lb: Provisioning, neighbour: Provisioning) -> ArmAnswer {
    let other = PoolFacts { provisioning: neighbour, ..pool_with(&pool("lb", "api"), &[5]) };
    let ArmAnswer::LoadBalancer(mut facts) =
        lb_of("lb", lb, vec![pool_with(&pool("lb", "web"), &[1]), other])
    else {
        panic!("it is a load balancer");
    };
    Arc::make_mut(&mut facts).etag = Some(Etag::new(tag));
    ArmAnswer::LoadBalancer(facts)
}

#[test]
fn w7_with_bypass_for_drain_a_down_needs_no_lease_after_2_s() {
    use Provisioning::{Failed, Succeeded, Updating};
    let web = pool("lb", "web");
    // Each case: the load balancer, another pool of it, the pool itself, and the tag of the pool's GET; and whether
    // the Down is written.
    for (balancer, neighbour, own, tag, goes) in [
        (Succeeded, Succeeded, Succeeded, "W/9", true),
        (Updating, Succeeded, Succeeded, "W/9", false),
        (Failed, Succeeded, Succeeded, "W/9", false),
        (Succeeded, Updating, Succeeded, "W/9", false),
        (Succeeded, Succeeded, Updating, "W/9", false),
        (Succeeded, Succeeded, Failed, "W/9", false),
        // Another client has begun to write between the two reads.
        (Succeeded, Succeeded, Succeeded, "W/10", false),
    ] {
        let case = format!("{balancer:?} {neighbour:?} {own:?} {tag}");
        let (mut fixture, _) = bypassing(true);
        fixture.step(In::Draining(drains(1)));
        fixture.due(&web, due(0, MembershipUrgency::Add));
        fixture.step(In::AdminDue(web.clone(), Some(down(0))));
        assert!(calls(&fixture.until(1_999)).is_empty());
        let output = fixture.until(2_000);
        assert!(takes(&output).is_empty(), "membership waits");
        let mut output = fixture.answer(super::lb_read(&output, "lb"), lb_with("W/9", balancer, neighbour));
        if let [ArmCall { id, request: ArmRequest::GetPool(_) }] = calls(&output)[..] {
            let id = *id;
            output =
                fixture.answer(id, read_of(PoolFacts { provisioning: own, ..pool_with(&web, &[1]) }, tag));
        }
        if !goes {
            assert!(calls(&output).is_empty(), "{case}");
            assert!(calls(&fixture.until(6_999)).is_empty(), "{case}: it is not asked again at once");
            // The delays grow, because other Downs need the reads, too.
            for then in [7_000, 17_000, 37_000, 67_000] {
                assert!(calls(&fixture.until(then - 1)).is_empty(), "{case}");
                let again = super::lb_read(&fixture.until(then), "lb");
                assert!(calls(&fixture.answer(again, lb_with("W/9", Updating, Succeeded))).is_empty());
            }
            continue;
        }
        let (call, edit, if_match) = put(&output, &web);
        assert_eq!((edit.set_admin.len(), if_match), (1, Some(Etag::new("W/9"))), "with its tag, always");
        let output = fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
        assert!(output.iter().filter_map(admin_end).any(|end| end.result.is_ok()));
        assert!(takes(&output).is_empty(), "membership still waits");
    }
    let (mut fixture, _) = bypassing(false);
    fixture.step(In::Draining(drains(1)));
    fixture.step(In::AdminDue(web, Some(down(0))));
    assert!(calls(&fixture.until(60_000)).is_empty(), "it is an option");
}

#[test]
fn w7_a_write_without_the_lease_restores_no_node() {
    let web = pool("lb", "web");
    let finished = |output: &[Out]| output.iter().any(|output| admin_end(output).is_some());
    // Whether the second node returns instead of the first one, or in addition to it.
    for both in [true, false] {
        let (mut fixture, watch) = bypassing(true);
        fixture.step(In::Draining(drains(1)));
        fixture.step(In::AdminDue(web.clone(), Some(down(0))));
        let output = fixture.until(2_000);
        let at_rest = lb_with("W/9", Provisioning::Succeeded, Provisioning::Succeeded);
        let output = fixture.answer(super::lb_read(&output, "lb"), at_rest);
        let read = get(&output, &web);
        let restored = Draining { generation: 2, restorable: [ip(2).into()].into(), ..Draining::default() };
        let addresses = if both { drains(1).addresses.clone() } else { BTreeMap::new() };
        fixture.step(In::Draining(Arc::new(Draining { addresses, ..restored })));
        let mut facts = pool_with(&web, &[1, 2]);
        facts.entries[1].admin_state = AdminState::Down;
        let mut output = fixture.answer(read, read_of(facts.clone(), "W/9"));
        if both {
            let (call, edit, _) = put(&output, &web);
            assert_eq!(edit.set_admin, [(0, AdminState::Down)].into());
            output = fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
            facts.entries[0].admin_state = AdminState::Down;
        }
        assert!(calls(&output).is_empty() && !finished(&output), "the restore is not done");
        assert!(calls(&fixture.until(60_000)).is_empty(), "it waits for the Lease");
        let output = fixture.lease(watch, state(2, None));
        let output = fixture.lease(replaces(&output).0, state(3, Some(OURS)));
        let output = fixture.answer(get(&output, &web), read_of(facts, "W/11"));
        let (call, edit, _) = put(&output, &web);
        assert_eq!(edit.set_admin, [(1, AdminState::None)].into());
        assert!(finished(&fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent))));
    }
}

#[test]
fn h3_the_state_of_the_lease_is_shown_as_it_changes() {
    let (mut fixture, watch) = Fixture::with_lease(leased(), 1, Some(CCM));
    let web = pool("lb", "web");
    fixture.due(&web, due(0, MembershipUrgency::Add));
    let output = fixture.lease(watch, state(2, None));
    let output = fixture.lease(replaces(&output).0, state(3, Some(OURS)));
    let output = nothing_to_do(&mut fixture, &web, take(&output));
    fixture.lease(replaces(&output).0, state(4, None));
    fixture.until(5_000);
    let views: Vec<&SharedLeaseView> = fixture
        .shown
        .iter()
        .filter_map(|output| if let Out::SharedLease(view) = output { Some(view) } else { None })
        .collect();
    let mut words: Vec<&str> = views.iter().map(|view| view.state).collect();
    words.dedup();
    assert_eq!(words, ["free", "waiting", "acquiring", "held", "releasing", "cooldown", "free"]);
    assert!(views.iter().any(|view| view.state == "waiting" && view.holder.as_deref() == Some(CCM)));
    assert!(views.iter().any(|view| view.state == "held" && view.until == Some(at(60_000))));
}
