//! Tests of the budget (W9) and of the interval that it stretches (Q2), with property tests.

use proptest::prelude::*;

use super::super::budget::{Budget, BudgetPurpose};
use super::*;
use model::blocked::Blocked;
use model::lease::LeaseRequest;

const READS: GateClass = GateClass::Reads;
const WRITES: GateClass = GateClass::Writes;

/// Returns the number of calls that are allowed one after another at this time.
fn spree(budget: &mut Budget, now: Now, need: BudgetPurpose, class: GateClass) -> u32 {
    let mut made = 0;
    while budget.allows(now, need) {
        budget.spend(now, class);
        made += 1;
    }
    made
}

fn secs(seconds: u64) -> Now {
    Now::from_millis(seconds * 1_000)
}

#[test]
fn w9_a_bucket_holds_5_min_of_calls_and_fills_continuously() {
    let mut budget = Budget::new(300, 2, None);
    let now = at(7);
    assert_eq!(spree(&mut budget, now, BudgetPurpose::Membership, WRITES), 2);
    let ready = budget.ready_at(now, BudgetPurpose::Membership).expect("it fills");
    assert_eq!(ready, now.plus(Duration::from_secs(150)));
    assert!(!budget.allows(ready.minus(Duration::from_micros(1)), BudgetPurpose::Membership));
    assert!(budget.allows(ready, BudgetPurpose::Membership), "exactly then, without rounding");
    let late = now.plus(Duration::from_secs(3_000));
    assert_eq!(budget.shown(late, WRITES), (2.0, 2.0), "it never holds more than its capacity");
}

#[test]
fn d3_discovery_uses_at_most_two_fifths_of_the_read_budget() {
    let mut budget = Budget::new(10, 1, None);
    let mut made = 0;
    while budget.allows(Now::ZERO, BudgetPurpose::Discovery) {
        budget.spend_discovery(Now::ZERO);
        made += 1;
    }
    assert_eq!(made, 4);
    assert!(budget.allows(Now::ZERO, BudgetPurpose::Verify), "the rest is left for writes");
    assert!(
        budget.ready_at(Now::ZERO, BudgetPurpose::Discovery)
            > budget.ready_at(Now::ZERO, BudgetPurpose::Verify)
    );
}

#[test]
fn w9_a_zero_budget_allows_nothing_and_has_no_deadline() {
    let mut budget = Budget::new(0, 0, None);
    budget.throttled(at(1), READS, at(0));
    for need in [
        BudgetPurpose::Membership,
        BudgetPurpose::Admin,
        BudgetPurpose::Begun,
        BudgetPurpose::Verify,
        BudgetPurpose::Discovery,
    ] {
        assert!(!budget.allows(at(1 << 40), need));
        assert_eq!(budget.ready_at(Now::ZERO, need), None);
    }
}

#[test]
fn w9_refunds_never_overfill_and_debts_shrink_with_time() {
    let mut budget = Budget::new(10, 1, None);
    budget.refund(Now::ZERO, WRITES);
    assert_eq!(budget.shown(Now::ZERO, WRITES), (1.0, 1.0));
    budget.spend(Now::ZERO, WRITES);
    budget.spend(Now::ZERO, WRITES);
    assert_eq!(budget.ready_at(Now::ZERO, BudgetPurpose::Membership), Some(at(600_000)));
}

#[test]
fn w9_a_quota_429_halves_the_budget_which_recovers_slowly() {
    let mut budget = Budget::new(5_000, 500, None);
    let mut now = secs(10);
    for allowed in [250.0, 125.0, 62.5, 50.0, 50.0] {
        now = now.plus(Duration::from_secs(1));
        budget.throttled(now, WRITES, now.minus(Duration::from_millis(1)));
        assert_eq!(budget.shown(now, WRITES).1, allowed);
        assert!(budget.shown(now, WRITES).0 <= allowed, "what was saved up goes with it");
    }
    for minute in 1..=20_u16 {
        let end = now.plus(Duration::from_secs(u64::from(minute) * 60));
        let before = (50.0 + 25.0 * f64::from(minute - 1)).min(500.0);
        let after = (50.0 + 25.0 * f64::from(minute)).min(500.0);
        assert_eq!(budget.shown(end.minus(Duration::from_micros(1)), WRITES).1, before);
        assert_eq!(budget.shown(end, WRITES).1, after);
    }
    assert_eq!(budget.shown(now, READS), (5_000.0, 5_000.0), "the other class is not concerned");
}

#[test]
fn w9_a_halved_budget_fills_at_half_its_rate() {
    let mut budget = Budget::new(5_000, 500, None);
    budget.throttled(secs(1), WRITES, Now::ZERO);
    assert_eq!(spree(&mut budget, secs(1), BudgetPurpose::Admin, WRITES), 250);
    let ready = budget.ready_at(secs(1), BudgetPurpose::Admin).expect("it fills");
    assert_eq!(ready, secs(1).plus(Duration::from_millis(1_200)), "250 in five minutes");
}

#[test]
fn w9_429s_of_earlier_calls_do_not_halve_the_budget_again() {
    let mut budget = Budget::new(5_000, 500, None);
    for _ in 0..64 {
        budget.throttled(secs(20), WRITES, secs(19));
    }
    assert_eq!(budget.shown(secs(20), WRITES).1, 250.0);
    budget.throttled(secs(25), WRITES, secs(21));
    assert_eq!(budget.shown(secs(25), WRITES).1, 125.0);
}

#[test]
fn w9_discovery_uses_at_most_two_fifths_of_the_remaining_reads() {
    let of = |lower: fn(&mut Budget)| {
        let mut budget = Budget::new(5_000, 500, None);
        lower(&mut budget);
        let mut made = 0;
        while budget.allows(secs(1), BudgetPurpose::Discovery) {
            budget.spend_discovery(secs(1));
            made += 1;
        }
        made
    };
    assert_eq!(of(|_| {}), 2_000);
    assert_eq!(of(|budget| budget.throttled(secs(1), READS, Now::ZERO)), 1_000);
    assert_eq!(of(|budget| budget.headroom(secs(1), READS, 1_000)), 200);
}

#[test]
fn w9_the_last_fifth_of_the_writes_is_for_admin_state() {
    let mut budget = Budget::new(5_000, 500, None);
    assert_eq!(spree(&mut budget, Now::ZERO, BudgetPurpose::Membership, WRITES), 400);
    assert_eq!(spree(&mut budget, Now::ZERO, BudgetPurpose::Admin, WRITES), 100);
}

#[test]
fn w9_the_last_fifth_of_reads_is_for_admin_and_begun_work() {
    let mut budget = Budget::new(5_000, 500, None);
    assert_eq!(spree(&mut budget, Now::ZERO, BudgetPurpose::Verify, READS), 4_000);
    assert!(
        !budget.allows(Now::ZERO, BudgetPurpose::Membership)
            && !budget.allows(Now::ZERO, BudgetPurpose::Discovery)
    );
    assert!(budget.allows(Now::ZERO, BudgetPurpose::Admin));
    assert_eq!(spree(&mut budget, Now::ZERO, BudgetPurpose::Begun, READS), 1_000);
}

#[test]
fn w9_budgets_too_small_for_a_whole_call_of_reserve_have_none() {
    for writes in 1..=4 {
        let mut budget = Budget::new(5_000, writes, None);
        assert_eq!(spree(&mut budget, Now::ZERO, BudgetPurpose::Membership, WRITES), writes);
    }
    let mut budget = Budget::new(5_000, 5, None);
    assert_eq!(spree(&mut budget, Now::ZERO, BudgetPurpose::Membership, WRITES), 4);
    // At a tenth of five calls, one call at a time is still allowed.
    for second in 1..10 {
        budget.throttled(secs(second), WRITES, secs(second).minus(Duration::from_millis(1)));
    }
    assert_eq!(budget.shown(secs(10), WRITES).1, 1.0);
    let ready = budget.ready_at(secs(10), BudgetPurpose::Membership).expect("it is not starved");
    assert!(ready <= secs(700), "{ready:?}");
}

#[test]
fn w9_a_bucket_holds_at_most_half_of_arms_remaining_calls() {
    let mut budget = Budget::new(5_000, 500, None);
    budget.headroom(secs(1), WRITES, 199);
    assert_eq!(budget.shown(secs(1), WRITES), (99.5, 99.5));
    assert_eq!(
        spree(&mut budget, secs(1), BudgetPurpose::Membership, WRITES),
        80,
        "the reserve is a fifth of that"
    );
    assert_eq!(budget.shown(secs(61), WRITES).1, 199.5, "room grows as the bucket fills");
    assert_eq!(budget.shown(secs(1_000), WRITES), (500.0, 500.0));
    budget.headroom(secs(1_000), WRITES, 4_000_000);
    assert_eq!(budget.shown(secs(1_000), WRITES), (500.0, 500.0), "it never raises anything");
    budget.headroom(secs(1_000), WRITES, 0);
    assert_eq!(budget.shown(secs(1_000), WRITES), (0.0, 0.0));
    let ready = budget.ready_at(secs(1_000), BudgetPurpose::Membership);
    assert_eq!(ready, Some(secs(1_000).plus(Duration::from_millis(600))), "and nothing is closed by it");
}

#[test]
fn w9_rates_of_the_cloud_configuration_are_waited_for_too() {
    let rates =
        RateLimit { reads_per_second: 12.5, reads_at_once: 3, writes_per_second: 0.25, writes_at_once: 2 };
    let mut budget = Budget::new(5_000, 500, Some(rates));
    assert_eq!(spree(&mut budget, secs(1), BudgetPurpose::Begun, READS), 3);
    assert_eq!(
        budget.ready_at(secs(1), BudgetPurpose::Verify),
        Some(secs(1).plus(Duration::from_millis(80))),
        "every read waits for it"
    );
    assert_eq!(spree(&mut budget, secs(2), BudgetPurpose::Admin, WRITES), 2);
    assert_eq!(budget.ready_at(secs(2), BudgetPurpose::Admin), Some(secs(6)));
    budget.throttled(secs(2), WRITES, secs(1));
    assert_eq!(budget.ready_at(secs(2), BudgetPurpose::Admin), Some(secs(6)), "they are what is configured");
}

#[test]
fn w9_invalid_configured_rates_do_not_stop_calls_forever() {
    for rate in [0.0, -1.0, 0.5, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE] {
        let rates = RateLimit {
            reads_per_second: rate,
            reads_at_once: 0,
            writes_per_second: rate,
            writes_at_once: 0,
        };
        let mut budget = Budget::new(5_000, 500, Some(rates));
        assert_eq!(spree(&mut budget, secs(1), BudgetPurpose::Begun, READS), 1);
        let ready = budget.ready_at(secs(1), BudgetPurpose::Begun).expect("reads go on");
        assert!(ready <= secs(1).plus(Duration::from_millis(100)), "at least 10 reads a second: {ready:?}");
        assert_eq!(spree(&mut budget, secs(2), BudgetPurpose::Admin, WRITES), 1);
        assert!(budget.ready_at(secs(2), BudgetPurpose::Admin).expect("writes go on") <= secs(302), "{rate}");
    }
}

#[test]
fn q2_the_interval_grows_to_1_min_as_writes_run_low() {
    let least = Duration::from_secs(5);
    for (left, millis) in [(500, None), (251, None), (250, None), (175, Some(32_500)), (100, Some(60_000))] {
        let mut budget = Budget::new(5_000, 500, None);
        for _ in left..500 {
            budget.spend(Now::ZERO, WRITES);
        }
        let found = budget.stretched(Now::ZERO, least);
        assert_eq!(found, millis.map(Duration::from_millis), "{left} left");
    }
    let mut budget = Budget::new(5_000, 500, None);
    for _ in 0..510 {
        budget.spend(Now::ZERO, WRITES);
    }
    assert_eq!(budget.stretched(Now::ZERO, least), Some(Duration::from_secs(60)), "in debt");
    assert_eq!(budget.stretched(Now::ZERO, Duration::from_secs(60)), None);
    assert_eq!(budget.stretched(Now::ZERO, Duration::from_secs(90)), None, "never less than is configured");
}

#[test]
fn q2_a_full_but_lowered_budget_stretches_no_interval() {
    let mut budget = Budget::new(5_000, 500, None);
    budget.headroom(secs(1), WRITES, 100);
    assert_eq!(budget.stretched(secs(1), Duration::ZERO), None);
    assert_eq!(spree(&mut budget, secs(1), BudgetPurpose::Membership, WRITES), 40);
    assert_eq!(budget.stretched(secs(1), Duration::ZERO), Some(Duration::from_secs(60)));
    budget.headroom(secs(1), WRITES, 0);
    assert_eq!(budget.stretched(secs(1), Duration::ZERO), Some(Duration::from_secs(60)));
}

#[test]
fn q2_a_pool_gets_its_stretched_interval_before_its_outcome() {
    let mut fixture = Fixture::leading(Params { writes_per_5_minutes: 10, ..params() });
    let mut told = Vec::new();
    for number in 0..8 {
        let web = pool("lb", &format!("p{number}"));
        let (attempt, call) = fixture.begin_put(&web, &[1]);
        let output = fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
        outcome(&output, attempt);
        let finished =
            output.iter().position(|output| matches!(output, Out::Finished(..))).expect("it ended");
        told.push(match finished.checked_sub(1).map(|before| &output[before]) {
            Some(Out::Pace(paced, interval)) if *paced == web => Some(interval.as_secs()),
            _ => None,
        });
        assert_eq!(
            output.iter().filter(|output| matches!(output, Out::Pace(..))).count(),
            told.iter().rev().take(1).flatten().count()
        );
    }
    assert_eq!(told, [None, None, None, None, None, Some(23), Some(41), Some(60)]);
    let web = pool("lb", "interrupted");
    fixture.step(In::AdminDue(web.clone(), Some(down(0))));
    fixture.until(60_000);
    take(&fixture.due(&pool("b", "other"), due(0, MembershipUrgency::Add)));
    let output = fixture.step(In::Leadership(Leadership::Standby));
    assert!(output.iter().all(|output| !matches!(output, Out::Pace(..))), "no interval begins: {output:?}");
}

#[test]
fn w9_membership_leaves_the_reserve_to_admin_parts() {
    let mut fixture = Fixture::leading(Params { writes_per_5_minutes: 5, ..params() });
    for number in 0..4 {
        fixture.begin(&pool(&format!("lb{number}"), "web"), &[1]);
    }
    let (plain, mixed) = (pool("x", "plain"), pool("x", "mixed"));
    assert!(fixture.due(&plain, due(0, MembershipUrgency::Revive)).is_empty());
    assert!(fixture.due(&mixed, due(0, MembershipUrgency::Remove)).is_empty());
    let output = fixture
        .step(In::AdminDue(mixed.clone(), Some(AdminDue { urgency: AdminUrgency::Restore, ..down(0) })));
    assert_eq!(takes(&output)[0].0, mixed, "with its membership, before what is more urgent");
    fixture.take_level(&mixed, takes(&output)[0].1, &[1]);
    assert!(
        fixture.step(In::AdminDue(pool("y", "late"), Some(down(0)))).is_empty(),
        "the reserve has an end"
    );
    assert!(fixture.until(59_999).is_empty());
    get(&fixture.until(60_000), &pool("y", "late"));
}

#[test]
fn w9_repeated_requests_leave_the_reserve_to_first_ones() {
    let mut fixture = Fixture::leading(Params { writes_per_5_minutes: 5, ..params() });
    for number in 0..4 {
        fixture.begin(&pool(&format!("lb{number}"), "web"), &[1]);
    }
    let again = |urgency| AdminDue { urgency, again: true, ..down(0) };
    let (failed, back, fresh) = (pool("x", "failed"), pool("x", "back"), pool("x", "fresh"));
    assert!(fixture.step(In::AdminDue(failed.clone(), Some(again(AdminUrgency::Down)))).is_empty());
    assert!(fixture.step(In::AdminDue(back, Some(again(AdminUrgency::Restore)))).is_empty());
    let restore = AdminDue { urgency: AdminUrgency::Restore, ..down(0) };
    let read = get(&fixture.step(In::AdminDue(fresh.clone(), Some(restore))), &fresh);
    // It needs no PUT, and returns its token: one is left, which belongs to the reserve.
    let output = fixture.answer(read, read_of(pool_with(&fresh, &[1]), "W/own"));
    assert!(calls(&output).is_empty(), "{output:?}");
    assert!(fixture.until(59_999).is_empty());
    get(&fixture.until(60_000), &failed);
}

#[test]
fn w9_a_lane_is_granted_only_with_the_read_before_its_put() {
    let mut fixture = Fixture::leading(Params { reads_per_5_minutes: 3, ..params() });
    let (one, two, late) = (pool("a", "one"), pool("b", "two"), pool("c", "late"));
    fixture.begin(&pool("x", "first"), &[1]);
    let first = take(&fixture.due(&one, due(0, MembershipUrgency::Add)));
    let second = take(&fixture.due(&two, due(0, MembershipUrgency::Add)));
    // Two reads are left, and reserved for lanes without their levels.
    assert!(fixture.due(&late, due(0, MembershipUrgency::Add)).is_empty());
    assert!(
        fixture.step(In::AdminDue(late.clone(), Some(down(0)))).is_empty(),
        "nor is a Down granted for them"
    );
    fixture.take_level(&one, first, &[1]);
    let output = fixture.step(In::Taken(two, second, None));
    assert_eq!(takes(&output)[0].0, late, "the second lane did not need its own");
}

#[test]
fn w9_a_token_pays_for_one_of_two_downs_granted_together() {
    let mut fixture = Fixture::leading(Params { reads_per_5_minutes: 100, ..params() });
    fixture.step(In::Headroom(READS, 0));
    for lb in ["a", "b"] {
        assert!(fixture.step(In::AdminDue(pool(lb, "web"), Some(down(0)))).is_empty());
    }
    get(&fixture.until(3_000), &pool("a", "web"));
    assert_eq!(fixture.writer.lanes.values().filter(|lane| lane.write.is_some()).count(), 1);
    get(&fixture.until(6_000), &pool("b", "web"));
}

/// A leader for an hour, with the shared Lease. Each of its pools has its own load balancer, and is due again as soon
/// as it is written. ARM and the API server answer within milliseconds.
struct Hour {
    fixture: Fixture,
    /// Version of the shared Lease.
    version: u64,
    /// Number of writes to each pool.
    written: BTreeMap<PoolId, u32>,
    reads: u32,
}

impl Hour {
    fn spend(lanes: u32, params: Params) -> Hour {
        let mut hour = Hour { fixture: Fixture::new(params), version: 1, written: BTreeMap::new(), reads: 0 };
        let mut output = hour.fixture.lead(1);
        for number in 0..lanes {
            let web = pool(&format!("lb{number:02}"), "web");
            output.extend(hour.fixture.due(&web, due(0, MembershipUrgency::Add)));
            hour.written.insert(web, 0);
        }
        while hour.fixture.now < 3_600_000 {
            output = if output.is_empty() {
                let next = hour.fixture.writer.deadline().expect("it goes on").as_micros().div_ceil(1_000);
                hour.fixture.until(next)
            } else {
                output.into_iter().flat_map(|output| hour.answer(output)).collect()
            };
        }
        hour
    }

    /// Answers one output of the writer, and returns the resulting output.
    fn answer(&mut self, output: Out) -> Vec<Out> {
        match output {
            Out::Lease(id, request) => {
                let holder = match request {
                    LeaseRequest::Watch(..) => return Vec::new(),
                    LeaseRequest::Get => None,
                    LeaseRequest::Create(edit) | LeaseRequest::Replace(_, edit) => {
                        self.version += 1;
                        edit.holder
                    }
                };
                self.fixture.now += 5;
                self.fixture.step(In::Lease(id, super::lease::state(self.version, holder.as_deref())))
            }
            Out::CountLockFailures { call, .. } => self.fixture.step(In::LockFailures(call, Some(0))),
            Out::Take(pool, id) => {
                let level = taken_level(&pool, &[1]);
                self.fixture.step(In::Taken(pool, id, Some(level)))
            }
            Out::Call(ArmCall { id, request }) => {
                let answer = match request {
                    ArmRequest::GetPool(pool) => {
                        self.reads += 1;
                        read_of(pool_with(&pool, &[]), "W/1")
                    }
                    ArmRequest::PutPool { .. } => accepted(Provisioning::Succeeded, RetryAfter::Absent),
                    ArmRequest::GetLoadBalancer(_) | ArmRequest::Poll(_) => panic!("it is not requested"),
                };
                self.fixture.answer(id, answer)
            }
            Out::Finished(pool, _, outcome) => {
                assert!(matches!(outcome, Outcome::Written { .. }), "a grant came to nothing: {outcome:?}");
                *self.written.get_mut(&pool).expect("it is known") += 1;
                let since = self.fixture.now;
                self.fixture.due(&pool, due(since, MembershipUrgency::Add))
            }
            Out::Verified(..)
            | Out::Observed(..)
            | Out::AdminStates(..)
            | Out::Read { .. }
            | Out::Gates { .. }
            | Out::ForeignRelease
            | Out::Sent(_)
            | Out::Pace(..)
            | Out::Report(_)
            | Out::Ended(_)
            | Out::SharedLease(_)
            | Out::Lane(_)
            | Out::Gate(..)
            | Out::Metric(_)
            | Out::Attempt(..)
            | Out::Answer(..)
            | Out::Quiet { .. } => Vec::new(),
        }
    }
}

#[test]
fn w1_w9_a_small_read_budget_is_shared_evenly_by_all_lanes() {
    for lanes in [6, 20, 40] {
        let hour = Hour::spend(lanes, Params { reads_per_5_minutes: 50, ..super::lease::leased() });
        let (least, most) = (hour.written.values().min(), hour.written.values().max());
        let (least, most) = (*least.expect("lanes"), *most.expect("lanes"));
        assert!(least > 0 && most - least <= 1, "{lanes} lanes: {:?}", hour.written);
        assert!((600..=650).contains(&hour.reads), "what is filled in an hour is used: {}", hour.reads);
    }
}

#[test]
fn w9_the_admin_api_shows_the_capacity_of_a_lowered_budget() {
    let mut fixture = Fixture::leading(params());
    let shown = |fixture: &Fixture| {
        let gate =
            |output: &Out| if let Out::Gate(WRITES, view) = output { Some(view.clone()) } else { None };
        fixture.shown.iter().rev().find_map(gate).expect("it was shown")
    };
    assert_eq!(shown(&fixture).capacity, 500.0);
    fixture.step(In::Headroom(WRITES, 300));
    assert_eq!((shown(&fixture).capacity, shown(&fixture).tokens), (150.0, 150.0));
    fixture.until(1_000_000);
    fixture.step(In::Headroom(READS, 1_000_000));
    assert_eq!(shown(&fixture).capacity, 500.0);
    let (_, call) = fixture.begin_put(&pool("lb", "web"), &[1]);
    fixture.until(1_001_000);
    fixture.fail(call, failed(429, "SubscriptionRequestsThrottled", RetryAfter::In(Duration::from_secs(1))));
    assert_eq!(shown(&fixture).capacity, 250.0);
    let left = |output: &&Out| matches!(output, Out::Metric(Metric::BudgetLeft { class: WRITES, .. }));
    assert!(fixture.shown.iter().filter(left).count() > 0);
}

#[test]
fn w9_only_a_quota_429_of_arm_lowers_the_budget() {
    for (problem, capacity) in [
        (failed(429, "RetryableError", RetryAfter::Absent), 500.0),
        (failure(FailureKind::GateClosed, "", RetryAfter::Absent), 500.0),
        (failed(429, "", RetryAfter::Absent), 250.0),
    ] {
        let mut fixture = Fixture::leading(params());
        let (_, call) = fixture.begin_put(&pool("lb", "web"), &[1]);
        fixture.until(1_000);
        fixture.fail(call, problem);
        assert_eq!(fixture.writer.budget.shown(at(1_000), WRITES).1, capacity);
    }
}

/// Returns a rate limit of the cloud configuration: this many calls a second, with a burst of one.
fn one_at_once(reads_per_second: f64, writes_per_second: f64) -> RateLimit {
    RateLimit { reads_per_second, reads_at_once: 1, writes_per_second, writes_at_once: 1 }
}

#[test]
fn w9_a_put_after_a_412_waits_for_the_configured_rate() {
    let rates = RateLimit { writes_at_once: 3, ..one_at_once(100.0, 0.1) };
    let mut fixture =
        Fixture::leading(Params { rate_limit: Some(RateLimit { reads_at_once: 50, ..rates }), ..params() });
    let pools = ["a", "b", "c"].map(|lb| pool(lb, "web"));
    let mut refused: Vec<(PoolId, CallId)> = Vec::new();
    let mut attempts = Vec::new();
    for pool in &pools {
        let (attempt, call) = fixture.begin_put(pool, &[1]);
        attempts.push(attempt);
        refused.push((pool.clone(), call));
    }
    // Each PUT is refused. Records the number of PUTs at each time, and their attempts.
    let mut sent = refused.len();
    let mut continued = std::collections::BTreeSet::new();
    while fixture.now <= 90_000 {
        let mut output: Vec<Out> = Vec::new();
        for (_, call) in std::mem::take(&mut refused) {
            output.extend(fixture.fail(call, failed(412, "PreconditionFailed", RetryAfter::Absent)));
        }
        while !output.is_empty() {
            let mut next = Vec::new();
            for (pool, attempt) in takes(&output) {
                continued.insert(attempt);
                next.extend(fixture.step(In::Taken(pool.clone(), attempt, Some(taken_level(&pool, &[1])))));
            }
            for call in calls(&output) {
                match &call.request {
                    ArmRequest::GetPool(pool) => {
                        next.extend(fixture.answer(call.id, read_of(pool_with(pool, &[]), "W/1")));
                    }
                    ArmRequest::PutPool { pool, .. } => {
                        sent += 1;
                        refused.push((pool.clone(), call.id));
                    }
                    ArmRequest::GetLoadBalancer(_) | ArmRequest::Poll(_) => {}
                }
            }
            output = next;
        }
        let allowed = 3.0 + 0.1 * f64::from(u32::try_from(fixture.now / 1_000).expect("a minute"));
        assert!(f64::from(u32::try_from(sent).expect("few")) <= allowed, "{sent} PUTs by {} ms", fixture.now);
        if refused.is_empty() {
            let next = fixture.now + 500;
            let woken = fixture.until(next);
            for (pool, attempt) in takes(&woken) {
                continued.insert(attempt);
                let read = fixture.take_level(&pool, attempt, &[1]);
                let output = fixture.answer(read, read_of(pool_with(&pool, &[]), "W/1"));
                sent += 1;
                refused.push((pool.clone(), put(&output, &pool).0));
            }
        }
    }
    assert_eq!(sent, 9, "each attempt has its three rounds");
    assert_eq!(continued, attempts.into_iter().collect(), "and continues under its own id");
}

/// Returns the calls that were counted as delayed by a rate limit of the cloud configuration.
fn limited(fixture: &Fixture) -> Vec<ArmVerb> {
    let verb =
        |output: &Out| if let Out::Metric(Metric::RateLimited(verb)) = output { Some(*verb) } else { None };
    fixture.shown.iter().filter_map(verb).collect()
}

#[test]
fn e2_a_read_that_waits_for_a_configured_rate_is_counted_once() {
    let mut fixture = Fixture::leading(Params { rate_limit: Some(one_at_once(10.0, 100.0)), ..params() });
    fixture.begin(&pool("a", "web"), &[1]);
    assert!(limited(&fixture).is_empty(), "it had a token");
    let call = CallId(7);
    fixture.step(In::Read { call, lb: LbName::new("x") });
    for _ in 0..3 {
        fixture.step(In::Headroom(READS, 1_000_000));
    }
    assert_eq!(limited(&fixture), [ArmVerb::GetLoadBalancer]);
    assert_eq!(calls(&fixture.until(100)).len(), 1, "it goes as soon as there is a token");
    fixture.until(1_000);
    assert_eq!(limited(&fixture).len(), 1);
    // The call before it waits as well, and the call after it is not counted again.
    fixture.begin(&pool("b", "web"), &[1]);
    fixture.step(In::Read { call: CallId(8), lb: LbName::new("x") });
    let output = fixture.until(1_150);
    assert_eq!(calls(&output).len(), 1);
    assert_eq!(limited(&fixture), [ArmVerb::GetLoadBalancer; 2]);
}

#[test]
fn e2_a_grant_that_waits_for_a_configured_rate_is_counted_once() {
    for (rates, verb) in [
        (RateLimit { reads_at_once: 50, ..one_at_once(10.0, 1.0) }, ArmVerb::PutPool),
        (RateLimit { writes_at_once: 50, ..one_at_once(10.0, 1.0) }, ArmVerb::GetPool),
        (one_at_once(10.0, 1.0), ArmVerb::PutPool),
    ] {
        let mut fixture = Fixture::leading(Params { rate_limit: Some(rates), ..params() });
        fixture.begin(&pool("a", "web"), &[1]);
        assert!(limited(&fixture).is_empty(), "it had its tokens");
        for lb in ["b", "c"] {
            assert!(fixture.due(&pool(lb, "web"), due(0, MembershipUrgency::Add)).is_empty());
        }
        assert_eq!(limited(&fixture), [verb], "the one that goes first");
        let mut read = 0;
        while read < 2 {
            let next = fixture.writer.deadline().expect("they go on").as_micros().div_ceil(1_000);
            let mut output = fixture.until(next);
            for (pool, attempt) in takes(&output) {
                output.extend(fixture.step(In::Taken(pool.clone(), attempt, Some(taken_level(&pool, &[1])))));
            }
            read += calls(&output).len();
        }
        assert_eq!(
            limited(&fixture),
            [verb; 2],
            "the other as it came to be the first, as a grant or as a read"
        );
    }
}

#[test]
fn e2_waits_for_our_own_budget_alone_are_not_counted() {
    for rate_limit in
        [None, Some(RateLimit { reads_at_once: 50, writes_at_once: 50, ..one_at_once(10.0, 1.0) })]
    {
        let mut fixture = Fixture::leading(Params { writes_per_5_minutes: 1, rate_limit, ..params() });
        fixture.begin(&pool("a", "web"), &[1]);
        assert!(fixture.due(&pool("b", "web"), due(0, MembershipUrgency::Add)).is_empty());
        fixture.step(In::Headroom(READS, 0));
        fixture.step(In::Read { call: CallId(7), lb: LbName::new("x") });
        assert!(calls(&fixture.until(5)).is_empty());
        assert_eq!(limited(&fixture), []);
    }
}

#[test]
fn e2_a_grant_that_waits_for_a_gate_is_not_rate_limited() {
    let mut fixture = Fixture::leading(Params { rate_limit: Some(one_at_once(1_000.0, 0.01)), ..params() });
    let (_, call) = fixture.begin_put(&pool("a", "web"), &[1]);
    fixture.fail(call, failed(429, "SubscriptionRequestsThrottled", RetryAfter::In(Duration::from_secs(30))));
    fixture.due(&pool("b", "web"), due(0, MembershipUrgency::Add));
    assert_eq!(limited(&fixture), []);
    fixture.until(30_000);
    assert_eq!(limited(&fixture), [ArmVerb::PutPool], "once it is open, the rate is what it waits for");
}

/// Something that happens to a budget.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Up to this many calls are made, if they are allowed.
    Make(BudgetPurpose, u32),
    /// This many PUTs are made, with or without tokens.
    Force(u32),
    /// This many of the reserved PUTs are not made.
    Refund(u32),
    Throttled(GateClass, u64),
    Headroom(GateClass, u32),
}

fn any_event() -> impl Strategy<Value = Event> {
    let need = prop::sample::select(vec![
        BudgetPurpose::Membership,
        BudgetPurpose::Membership,
        BudgetPurpose::Admin,
        BudgetPurpose::Begun,
        BudgetPurpose::Verify,
        BudgetPurpose::Discovery,
    ]);
    let class = prop::sample::select(vec![READS, WRITES]);
    prop_oneof![
        8 => (need, 0..80_u32).prop_map(|(need, calls)| Event::Make(need, calls)),
        1 => (0..4_u32).prop_map(Event::Force),
        1 => (0..20_u32).prop_map(Event::Refund),
        2 => (class.clone(), 0..3_000_u64).prop_map(|(class, ago)| Event::Throttled(class, ago)),
        2 => (class, prop_oneof![0..300_u32, Just(100_000)]).prop_map(|(class, left)| Event::Headroom(class, left)),
    ]
}

/// The allowance of one class, computed independently of the buckets: in millionths, minute by minute.
#[derive(Clone, Copy)]
struct Oracle {
    millionths: u64,
    halved: Option<Now>,
}

impl Oracle {
    fn share(&self, now: Now) -> u64 {
        let minutes = self.halved.map_or(0, |at| now.since(at).as_secs() / 60);
        (self.millionths + 50_000 * minutes).min(1_000_000)
    }

    fn throttled(&mut self, now: Now, began: Now) {
        if self.halved.is_none_or(|at| began > at) {
            *self = Oracle { millionths: (self.share(now) / 2).max(100_000), halved: Some(now) };
        }
    }
}

/// The calls of one class at a time.
struct Moment {
    now: Now,
    /// Share allowed up to this time, in millionths.
    share: u64,
    made: i64,
    forced: i64,
    /// Capacity from this time on, in millionths of a call; without a number from ARM, the allowance.
    room: u128,
}

/// Checks that in any five minutes no more calls are made than the bucket could hold and gain. Calls without tokens
/// are a debt that later tokens pay.
fn assert_no_more_than_held_and_filled(moments: &[Moment], calls: u32) {
    for (first, start) in moments.iter().enumerate() {
        let (mut made, mut filled, mut owed) = (0, 0_u128, 0);
        for (number, moment) in moments.iter().enumerate().skip(first) {
            if moment.now.since(start.now) > Duration::from_secs(300) {
                break;
            }
            if number > first {
                let gap = moment.now.since(moments[number - 1].now).as_micros();
                filled += gap * u128::from(calls) * u128::from(moment.share) / 300_000_000 + 1;
            }
            made += moment.made;
            owed += moment.forced;
            let bound = i64::try_from((start.room + filled) / 1_000_000).expect("small") + owed;
            assert!(made <= bound, "{made} calls in {:?}, {bound} allowed", moment.now.since(start.now));
        }
    }
}

proptest! {
    #[test]
    fn w9_calls_in_5_min_never_exceed_capacity_plus_refill(
        reads in 1..700_u32,
        writes in 1..120_u32,
        rated in any::<bool>(),
        story in prop::collection::vec((0..90_000_u64, any_event()), 1..60),
    ) {
        let rates = RateLimit {
            reads_per_second: 10.0,
            reads_at_once: 200,
            writes_per_second: 0.3,
            writes_at_once: 40,
        };
        let mut budget = Budget::new(reads, writes, rated.then_some(rates));
        let mut oracles = [Oracle { millionths: 1_000_000, halved: None }; 2];
        let mut seen = [Vec::new(), Vec::new()];
        let (mut now, mut owed) = (secs(3_600), 0);
        for (pause, event) in story {
            now = now.plus(Duration::from_millis(pause));
            let before = oracles.map(|oracle| oracle.share(now));
            let (mut made, mut forced, mut headroom) = ([0_i64; 2], 0, [None; 2]);
            match event {
                Event::Make(need, count) => {
                    for _ in 0..count {
                        if !budget.allows(now, need) {
                            break;
                        }
                        match need {
                            BudgetPurpose::Discovery => budget.spend_discovery(now),
                            BudgetPurpose::Membership | BudgetPurpose::Admin | BudgetPurpose::Begun | BudgetPurpose::Verify => {
                                budget.spend(now, READS);
                            }
                        }
                        made[0] += 1;
                        if matches!(need, BudgetPurpose::Membership | BudgetPurpose::Admin) {
                            budget.spend(now, WRITES);
                            made[1] += 1;
                        }
                        if need == BudgetPurpose::Membership {
                            let (left, limit) = budget.shown(now, WRITES);
                            prop_assert!(left >= (limit / 5.0).floor() - 1e-6, "{left} of {limit}");
                        }
                    }
                }
                Event::Force(count) => {
                    for _ in 0..count {
                        budget.spend(now, WRITES);
                    }
                    made[1] += i64::from(count);
                    forced = i64::from(count);
                    owed += u64::from(count);
                }
                Event::Refund(count) => {
                    for _ in 0..count {
                        budget.refund(now, WRITES);
                    }
                    made[1] -= i64::from(count);
                }
                Event::Throttled(class, ago) => {
                    let began = now.minus(Duration::from_millis(ago));
                    budget.throttled(now, class, began);
                    oracles[usize::from(class == WRITES)].throttled(now, began);
                }
                Event::Headroom(class, left) => {
                    budget.headroom(now, class, left);
                    headroom[usize::from(class == WRITES)] = Some(left);
                }
            }
            for (number, calls) in [reads, writes].into_iter().enumerate() {
                let allowed = (u128::from(calls) * u128::from(oracles[number].share(now))).max(1_000_000);
                let room = headroom[number].map_or(allowed, |left| allowed.min(u128::from(left) * 500_000));
                let forced = if number == 1 { forced } else { 0 };
                seen[number].push(Moment { now, share: before[number], made: made[number], forced, room });
            }
            for need in [BudgetPurpose::Membership, BudgetPurpose::Admin, BudgetPurpose::Begun, BudgetPurpose::Verify, BudgetPurpose::Discovery] {
                let ready = budget.ready_at(now, need).expect("it is ready some time");
                prop_assert!(budget.allows(ready, need), "{need:?} is not ready when it should be");
                let early = ready.minus(Duration::from_micros(1));
                prop_assert!(ready == now || !budget.allows(early, need), "{need:?} could be ready earlier");
                // The worst case: all forced calls are owed, the reserve is full, and a tenth of the rate is left.
                let calls = u64::from(if matches!(need, BudgetPurpose::Membership | BudgetPurpose::Admin) { writes } else { 1 });
                let calls = calls.min(u64::from(reads) * 2 / 5).max(1);
                let most = u64::from(reads.max(writes)) / 5 + 2;
                let bound = (owed + most) * 3_000 / calls + owed * 4 + 10;
                prop_assert!(ready.since(now) <= Duration::from_secs(bound), "{need:?}");
            }
        }
        assert_no_more_than_held_and_filled(&seen[0], reads);
        assert_no_more_than_held_and_filled(&seen[1], writes);
    }
}

#[test]
fn w9_the_admin_api_shows_when_a_write_is_affordable() {
    let mut fixture = Fixture::leading(Params { writes_per_5_minutes: 1, ..params() });
    let short_until = |fixture: &Fixture| -> Option<Now> {
        let gate =
            |output: &Out| if let Out::Gate(WRITES, view) = output { Some(view.clone()) } else { None };
        let blocked = fixture.shown.iter().rev().find_map(gate).expect("it was shown").blocked?;
        assert_eq!(blocked.why, Blocked::Budget);
        blocked.until
    };
    assert_eq!(short_until(&fixture), None);
    fixture.begin_put(&pool("lb", "web"), &[1]);
    let until = short_until(&fixture).expect("its one write is spent");
    assert!((at(299_000)..=at(310_000)).contains(&until), "{until:?}");
    fixture.until(320_000);
    fixture.step(In::Headroom(READS, 1_000_000));
    assert_eq!(short_until(&fixture), None);
}
