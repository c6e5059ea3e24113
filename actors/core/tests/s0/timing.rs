//! The arithmetic of S0 "Retry Timing", and the sentences of "Expected Behavior" and "Retry Model" about time.

use model::ids::Epoch;
use model::leadership::Leadership;
use model::machine::Now;
use pool_core::route::Delivery;
use simulator_models::arm::{FaultTarget, Latency, Settings};

use crate::fixture::{Fixture, Locked, web};
use crate::profile::{Playing, Profile, both};
use crate::texts::{exhausted, retrying, updated};

/// Latency of a GET and of a failing PUT.
const CALLS: i64 = 120;

fn failing(profile: Profile, max_retries: u32, settings: Settings) -> Fixture {
    let mut fixture = Fixture::with(profile, max_retries, settings);
    fixture.fail(FaultTarget::PoolPut, 1_000, 409, "Conflict");
    fixture.mark(0);
    fixture.want("web", &[2]);
    fixture
}

/// "… emits retrying events on the first three failed attempts and emits the final failed event on the fourth failed
/// attempt, roughly 90 seconds after the first observed failure plus ARM call latency."
#[test]
fn s0_timing_the_fourth_failure_comes_after_90_s() {
    both(|profile| {
        let mut fixture = failing(profile, 3, Settings::default());
        fixture.run(150_000);
        let first = i64::try_from(profile.window()).expect("short") + CALLS;
        let events = fixture.events_at();
        let times: Vec<i64> = events.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [0, 1, 2, 3].map(|n| first + n * (30_000 + CALLS)));
        assert_eq!(times[3] - times[0], 90_000 + 3 * CALLS);
        assert_eq!(events[3].1, exhausted("web", 3, "Conflict", &profile.afterwards(60)));
    });
}

/// "… the wall-clock time from the original EndpointSlice change to final failure can be close to or above two
/// minutes."
#[test]
fn s0_timing_upstreams_last_event_comes_after_2_min() {
    let mut fixture = failing(Profile::Upstream, 3, Settings::default());
    fixture.run(150_000);
    assert_eq!(fixture.events_at().last().map(|(at, _)| *at), Some(120_000 + 4 * CALLS));
}

#[test]
fn s0_timing_calls_that_take_long_push_the_next_attempt_back() {
    both(|profile| {
        let put_latency = Latency::Fixed { us: 7_000_000 };
        let mut fixture = failing(profile, 3, Settings { put_latency, ..Settings::default() });
        fixture.run(180_000);
        let times: Vec<i64> = fixture.events_at().iter().map(|(at, _)| *at).collect();
        assert_eq!(times[3] - times[0], 3 * (30_000 + 7_020));
    });
}

/// "`LoadBalancerBackendPoolUpdateMaxRetries` bounds failed processing attempts, not elapsed wall-clock time."
#[test]
fn s0_timing_a_long_retry_after_costs_no_budget() {
    both(|profile| {
        let mut fixture = Fixture::with(profile, 1, Settings::default());
        fixture.lock();
        fixture.mark(0);
        fixture.want("web", &[2]);
        fixture.run(250_000);
        assert_eq!(fixture.events(), [retrying("web", 1, 1, "RetryableError")]);
        fixture.fail(FaultTarget::PoolPut, 1_000, 409, "Conflict");
        fixture.stop_before(|delivery| matches!(delivery, Delivery::Events(_)));
        fixture.run(1_000);
        let events = fixture.events_at();
        assert_eq!(events.len(), 1);
        assert!(events[0].0 > 300_000, "{events:?}");
        assert_eq!(events[0].1, exhausted("web", 1, "Conflict", &profile.afterwards(60)));
        assert_eq!(fixture.failures(), [true]);
    });
}

/// The budget limits the attempts, with any value.
#[test]
fn s0_timing_a_budget_allows_one_attempt_more_than_retries() {
    both(|profile| {
        for max_retries in 0..6 {
            let mut fixture = failing(profile, max_retries, Settings::default());
            fixture.run(i64::from(max_retries).cast_unsigned() * 30_120 + 31_000);
            let events = fixture.events();
            let retries = (1..=max_retries).map(|n| retrying("web", n, max_retries, "Conflict"));
            assert!(events.iter().take(events.len() - 1).cloned().eq(retries), "{events:?}");
            assert!(events.last().is_some_and(|text| text.contains(&format!("after {max_retries} retries"))));
            assert_eq!(fixture.failures(), [true]);
        }
    });
}

/// S0 "Retry Model" 2: an empty queue does nothing.
#[test]
fn s0_model_without_operations_there_is_no_call_and_no_event() {
    both(|profile| {
        let mut fixture = Fixture::new(profile);
        fixture.run(3_600_000);
        assert!(
            fixture.requests().is_empty() && fixture.events().is_empty() && fixture.failures().is_empty()
        );
    });
}

/// S0 "Retry Model" 3: "If the lease lock fails, return without draining. Operations remain in the queue for the next
/// tick."
#[test]
fn s0_model_without_the_lease_nothing_is_drained() {
    for locked in [Locked::Held, Locked::Failing] {
        both(|profile| {
            let _named = Playing(format!("{locked:?}"));
            let mut fixture = Fixture::new(profile);
            fixture.block_shared_lease(locked);
            fixture.want("web", &[2]);
            fixture.run(100_000);
            assert_eq!(fixture.view(&web()).state.as_str(), "due", "it has not been taken");
            fixture.want("web", &[3]);
            fixture.run(500_000);
            assert!(
                fixture.requests().is_empty() && fixture.events().is_empty() && fixture.failures().is_empty()
            );
            assert_eq!(fixture.counts("web"), [0], "nothing is spent");
            assert_eq!(fixture.members(&web()), [1]);
            fixture.unlock();
            fixture.run(40_000);
            assert_eq!(fixture.events(), [updated("web", 1, 1, 1)], "all of it in one write");
            assert_eq!(fixture.members(&web()), [3]);
            assert_eq!(fixture.failures(), [false]);
        });
    }
}

/// A process that does not lead keeps its operations in the queue in the same way.
#[test]
fn s0_model_nothing_is_spent_while_nothing_may_be_written() {
    both(|profile| {
        let mut fixture = Fixture::new(profile);
        fixture.set_standing(Leadership::Standby);
        fixture.want("web", &[2]);
        fixture.run(100_000);
        fixture.want("web", &[3]);
        fixture.run(500_000);
        assert!(fixture.requests().is_empty() && fixture.events().is_empty());
        assert_eq!(fixture.counts("web"), [0]);
        fixture.set_standing(Leadership::Leading { epoch: Epoch(1), until: Now::NEVER });
        fixture.run(1_000);
        assert_eq!(fixture.events(), [updated("web", 1, 1, 1)], "all of it in one write");
        assert_eq!(fixture.members(&web()), [3]);
    });
}

/// S0 "Retry Model" 8: only a new change starts a new budget; a change that waits for its retry keeps its own.
#[test]
fn s0_model_a_fresh_operation_during_retries_starts_at_zero() {
    both(|profile| {
        let mut fixture = failing(profile, 3, Settings::default());
        fixture.run(100_000);
        fixture.events();
        fixture.want("web", &[3]);
        fixture.run(50_000);
        let events = fixture.events();
        match profile {
            Profile::Default => {
                assert_eq!(events[0], retrying("web", 1, 3, "Conflict"), "the first is exhausted")
            }
            Profile::Upstream => {
                let afterwards = "Backend pool lb/shop-web is compared again in 30 s.";
                let first = exhausted("web", 3, "Conflict", afterwards);
                assert_eq!(events, [first, retrying("web", 1, 3, "Conflict")]);
            }
        }
    });
}
