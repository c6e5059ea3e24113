//! Throttling and parking (S0 cases 1-5, 7, 8, 18, 20, 21).
//!
//! In the profile `upstream` the client tries a throttled call four times within the attempt (`client.retryThrottled`);
//! while the gate is closed, only the first of them reaches ARM.

use std::ops::RangeInclusive;

use model::leadership::Leadership;
use pool_core::route::{Delivery, PoolMessage};
use pools::queue;
use simulator_models::arm::{FaultEffect, FaultTarget, Latency, OperationFailure, Settings};

use crate::fixture::{Fixture, Request, pool, web};
use crate::profile::{Playing, Profile, TICK, both};
use crate::texts::{gate_closed_text, retrying, updated};

/// A quota of the subscription: closes the verb's gate.
const QUOTA: &str = "SubscriptionRequestsThrottled";
/// Another operation runs on the load balancer: closes only its lane; in `upstream` the verb's gate, like any 429.
const LOCK: &str = "RetryableError";

/// Returns a fixture whose Service changes from member 1 to member 2; times count from the time at which the change is
/// due.
fn changed(profile: Profile) -> Fixture {
    let mut fixture = Fixture::new(profile);
    fixture.mark(profile.window());
    fixture.want("web", &[2]);
    fixture
}

/// Returns when an attempt ends whose first try is refused at this time by a gate that stays closed.
fn ends(profile: Profile, refused: i64) -> RangeInclusive<i64> {
    match profile {
        Profile::Default => refused..=refused,
        // The client's three delays of 5, 15 and 35 s, each varied by up to a fifth, and the GETs before its tries.
        Profile::Upstream => refused + 44_000..=refused + 66_100,
    }
}

fn puts(fixture: &Fixture) -> Vec<Request> {
    fixture.requests().into_iter().filter(|(_, verb, _)| *verb == "PUT").collect()
}

/// Checks that from the outcome that parked the pool until this time, there is no request, event, observation or
/// retry.
fn stays_parked(fixture: &mut Fixture, until: i64) {
    let sent = fixture.requests().len();
    fixture.observed();
    fixture.at(until - 1);
    assert_eq!(fixture.view(&web()).state.as_str(), "parked");
    assert_eq!(fixture.requests().len(), sent, "no request while parked: {:?}", fixture.requests());
    assert!(fixture.events().is_empty() && fixture.failures().is_empty());
    assert_eq!(fixture.counts("web"), [1], "no retry is spent while parked");
}

#[test]
fn s0_case_01_a_throttled_get_parks_the_pool() {
    both(|profile| {
        let mut fixture = changed(profile);
        fixture.throttle(FaultTarget::PoolGet, 1, QUOTA, Some("300"));
        fixture.at(70_000);
        assert_eq!(fixture.requests(), [(0, "GET", 429)], "the gate blocks other tries");
        let events = fixture.events_at();
        let texts = match profile {
            Profile::Default => retrying("web", 1, 3, QUOTA),
            Profile::Upstream => gate_closed_text("web", 1),
        };
        assert_eq!(events.iter().map(|(_, text)| text).collect::<Vec<_>>(), [&texts]);
        assert!(ends(profile, 20).contains(&events[0].0), "{events:?}");
        assert_eq!(fixture.next_at(), Some(300_020));
        stays_parked(&mut fixture, 300_020);
        fixture.at(310_000);
        assert_eq!(fixture.requests()[1..3], [(300_020, "GET", 200), (300_040, "PUT", 200)]);
        assert_eq!(fixture.events(), [updated("web", 1, 1, 1)]);
        assert_eq!(fixture.failures(), [false]);
    });
}

#[test]
fn s0_case_02_a_throttled_put_parks_the_pool() {
    both(|profile| {
        let mut fixture = changed(profile);
        fixture.throttle(FaultTarget::PoolPut, 1, QUOTA, Some("300"));
        fixture.at(70_000);
        assert_eq!(puts(&fixture), [(20, "PUT", 429)]);
        let events = fixture.events_at();
        assert_eq!(events.len(), 1);
        assert!(ends(profile, 120).contains(&events[0].0), "{events:?}");
        stays_parked(&mut fixture, 300_120);
        fixture.at(310_000);
        assert_eq!(puts(&fixture)[1..], [(300_140, "PUT", 200)]);
        assert_eq!(fixture.events(), [updated("web", 1, 1, 1)]);
        assert_eq!(fixture.failures(), [false]);
    });
}

/// A lock closes the lane; in `upstream` the gate (W6).
#[test]
fn s0_case_02_a_lock_parks_the_pool_like_a_quota() {
    both(|profile| {
        let mut fixture = changed(profile);
        let until = parked_by_a_lock(&mut fixture);
        assert!(ends(profile, 120).contains(&(until - 300_000)), "{until}");
        stays_parked(&mut fixture, until);
        fixture.at(until + 1_000);
        assert_eq!(fixture.events_at(), [(until + 120, updated("web", 1, 1, 1))]);
        assert_eq!(fixture.failures(), [false]);
    });
}

/// Without a time in the future the pool waits for the tick, not for a gate.
#[test]
fn s0_case_03_a_429_without_retry_after_waits_for_the_tick() {
    for header in [None, Some("soon"), Some("0"), Some("-5")] {
        both(|profile| {
            let _named = Playing(format!("Retry-After {header:?}"));
            let mut fixture = changed(profile);
            fixture.throttle(FaultTarget::PoolPut, profile.throttled_tries(), QUOTA, header);
            fixture.stop_before(|delivery| matches!(delivery, Delivery::Events(_)));
            let outcome = fixture.ms();
            assert!(ends(profile, 120).contains(&outcome), "{outcome}");
            fixture.run(0);
            assert_eq!(fixture.events(), [retrying("web", 1, 3, QUOTA)]);
            assert_eq!(fixture.view(&web()).state.as_str(), "waiting", "nothing parks it");
            let sent = fixture.requests().len();
            fixture.at(outcome + 29_999);
            assert_eq!(fixture.requests().len(), sent);
            fixture.at(outcome + 31_000);
            assert_eq!(fixture.requests()[sent..sent + 1], [(outcome + 30_000, "GET", 200)]);
            assert_eq!(fixture.events_at(), [(outcome + 30_120, updated("web", 1, 1, 1))]);
            assert_eq!(fixture.failures(), [false]);
        });
    }
}

/// Selects the Take of `lb/shop-web`.
fn is_take(delivery: &Delivery) -> bool {
    matches!(delivery, Delivery::Pool(id, PoolMessage::In(queue::In::Take(_))) if *id == web())
}

/// Selects the outcome of `lb/shop-web`.
fn is_outcome(delivery: &Delivery) -> bool {
    matches!(delivery, Delivery::Pool(id, PoolMessage::In(queue::In::Finished(..))) if *id == web())
}

/// A pool on another load balancer is throttled while the Take of `lb/shop-web` is in flight: its call meets the gate
/// and never reaches ARM. In the default profile, this is the only way to meet a closed gate (C2).
#[test]
fn s0_case_04_a_gate_that_closes_before_the_call_parks_the_pool() {
    both(|profile| {
        let mut fixture = Fixture::new(profile);
        let api = pool("lb2", "shop-api");
        fixture.open(&api, "api");
        fixture.mark(profile.window());
        fixture.hold_up(is_take, 50);
        fixture.throttle(FaultTarget::PoolGet, 1, QUOTA, Some("300"));
        fixture.require_members(&api, "api", &[2]);
        fixture.want("web", &[2]);
        fixture.at(70_000);
        assert_eq!(fixture.requests_of(&api), [(0, "GET", 429)]);
        assert!(fixture.requests().is_empty(), "no call was made");
        assert!(fixture.events().contains(&gate_closed_text("web", 1)));
        fixture.hold_up(is_take, 0);
        stays_parked(&mut fixture, 300_020);
        fixture.at(310_000);
        assert_eq!(fixture.requests()[0], (300_020, "GET", 200));
        assert!(fixture.events().contains(&updated("web", 1, 1, 1)));
    });
}

/// In the default profile, a known closed gate delays the grant at no cost; in `upstream` the pool meets it at its
/// turn (C2).
#[test]
fn s0_case_04_a_pool_whose_turn_comes_while_the_gate_is_closed() {
    both(|profile| {
        let mut fixture = Fixture::new(profile);
        let api = pool("lb2", "shop-api");
        fixture.open(&api, "api");
        fixture.mark(profile.window());
        fixture.throttle(FaultTarget::PoolGet, 1, QUOTA, Some("300"));
        fixture.require_members(&api, "api", &[2]);
        fixture.at(1_000);
        fixture.want("web", &[2]);
        fixture.at(150_000);
        assert!(fixture.requests().is_empty(), "no call was made");
        let events: Vec<String> =
            fixture.events().into_iter().filter(|text| text.starts_with("web")).collect();
        match profile {
            Profile::Default => {
                assert!(events.is_empty() && fixture.counts("web") == [0]);
                assert_eq!(fixture.view(&web()).state.as_str(), "due", "it waits in its lane");
            }
            Profile::Upstream => {
                assert_eq!(events, [gate_closed_text("web", 1)]);
                stays_parked(&mut fixture, 300_020);
            }
        }
        fixture.at(310_000);
        assert!(fixture.events().contains(&updated("web", 1, 1, 1)));
    });
}

/// The gate has opened when the pool receives the outcome: the pool is not parked and waits for the tick (C2).
#[test]
fn s0_case_05_an_expired_gate_falls_back_to_the_next_tick() {
    both(|profile| {
        let mut fixture = changed(profile);
        fixture.throttle(FaultTarget::PoolGet, 1, QUOTA, Some("80"));
        fixture.hold_up(is_outcome, 100_000);
        fixture.at(99_000);
        fixture.hold_up(is_outcome, 0);
        fixture.stop_before(is_outcome);
        let outcome = fixture.ms();
        assert_eq!(fixture.requests(), [(0, "GET", 429)]);
        fixture.run(0);
        assert_eq!(fixture.events().len(), 1);
        assert_eq!(fixture.view(&web()).state.as_str(), "waiting", "a past time parks nothing");
        assert_eq!(fixture.counts("web"), [1]);
        fixture.at(outcome + 31_000);
        assert_eq!(fixture.requests()[1], (outcome + 30_000, "GET", 200));
        assert_eq!(fixture.events(), [updated("web", 1, 1, 1)]);
    });
}

/// In `upstream`, a gate that opens between the client's tries admits the next one (S0 "ThrottleError").
#[test]
fn s0_case_05_a_short_retry_after_costs_a_try_or_a_tick() {
    both(|profile| {
        let mut fixture = changed(profile);
        fixture.throttle(FaultTarget::PoolPut, 1, QUOTA, Some("2"));
        fixture.at(60_000);
        let events = fixture.events();
        match profile {
            Profile::Default => {
                assert_eq!(events, [retrying("web", 1, 3, QUOTA), updated("web", 1, 1, 1)]);
                assert_eq!(puts(&fixture), [(20, "PUT", 429), (30_140, "PUT", 200)]);
            }
            Profile::Upstream => {
                assert_eq!(events, [updated("web", 1, 1, 1)]);
                let tried = puts(&fixture)[1].0;
                assert!((4_140..=6_140).contains(&tried), "{tried}");
            }
        }
    });
}

/// One parked operation preserves the whole group; pools on other load balancers continue.
#[test]
fn s0_case_07_one_parked_operation_parks_the_whole_group() {
    both(|profile| {
        let mut fixture = changed(profile);
        let other = pool("lb2", "shop-other");
        let until = parked_by_a_lock(&mut fixture);
        fixture.open(&other, "other");
        fixture.want("api", &[3]);
        fixture.require_members(&other, "other", &[2]);
        match profile {
            Profile::Default => {
                fixture.run(60_000);
                assert_eq!(fixture.members(&other), [2], "unrelated groups continue");
                fixture.events();
            }
            Profile::Upstream => {
                fixture.run(120_000);
                let text = gate_closed_text("other", 1);
                assert_eq!(fixture.events(), [text], "the gate that the 429 closed stops it, like any call");
                assert_eq!(fixture.members(&other), [1]);
            }
        }
        assert_eq!(fixture.counts("api"), [0]);
        stays_parked(&mut fixture, until);
        assert_eq!(fixture.counts("api"), [0]);
        fixture.at(until + 1_000);
        let mut events = fixture.events();
        events.retain(|text| !text.starts_with("other"));
        assert_eq!(events, [updated("api", 2, 2, 1), updated("web", 2, 2, 1)]);
        assert_eq!((fixture.members(&web()), fixture.members(&other)), (vec![2, 3], vec![2]));
    });
}

/// Parks `lb/shop-web` for five minutes by a lock of its load balancer; returns the end of the parking.
fn parked_by_a_lock(fixture: &mut Fixture) -> i64 {
    fixture.lock();
    fixture.stop_before(|delivery| matches!(delivery, Delivery::Events(_)));
    let until = fixture.ms() + 300_000;
    fixture.run(0);
    assert_eq!(fixture.events(), [retrying("web", 1, 3, LOCK)]);
    assert_eq!(fixture.view(&web()).state.as_str(), "parked");
    assert_eq!(fixture.next_at(), Some(until));
    until
}

#[test]
fn s0_case_08_new_operations_join_parked_ones() {
    both(|profile| {
        let mut fixture = changed(profile);
        let until = parked_by_a_lock(&mut fixture);
        fixture.run(10_000);
        fixture.want("web", &[2, 3]);
        fixture.run(10_000);
        fixture.want("web", &[3]);
        let before = puts(&fixture).len();
        fixture.at(until - 1);
        assert_eq!(puts(&fixture).len(), before);
        fixture.at(until + 1_000);
        assert_eq!(puts(&fixture)[before..], [(until + 20, "PUT", 200)], "one write has all changes");
        assert_eq!(fixture.members(&web()), [3]);
        assert_eq!(fixture.events(), [updated("web", 1, 1, 1)]);
    });
}

/// A change that reverts the parked one is still an outcome that is reported.
#[test]
fn s0_case_08_undoing_a_parked_change_completes_both() {
    both(|profile| {
        let mut fixture = changed(profile);
        let until = parked_by_a_lock(&mut fixture);
        fixture.want("web", &[1]);
        fixture.at(until + 1_000);
        assert_eq!(fixture.events(), [updated("web", 1, 0, 0)]);
        assert_eq!(fixture.members(&web()), [1]);
        assert_eq!(fixture.failures(), [false]);
    });
}

#[test]
fn s0_case_18_a_service_gone_while_parked_is_dropped() {
    both(|profile| {
        let mut fixture = changed(profile);
        let until = parked_by_a_lock(&mut fixture);
        fixture.observed();
        fixture.run(10_000);
        let sent = fixture.requests().len();
        fixture.leave(&web(), "web");
        assert!(fixture.events().is_empty() && fixture.failures().is_empty());
        fixture.run(0);
        assert!(!fixture.has(&web()), "the pool has no owner and retires");
        fixture.at(until + 100_000);
        assert_eq!(fixture.requests().len(), sent);
        assert!(fixture.events().is_empty() && fixture.failures().is_empty());
    });
}

/// The parked change of a Service that has left no longer parks the pool for the remaining one (Q4); the retry
/// interval still applies.
#[test]
fn s0_case_18_20_a_removed_service_parks_no_others() {
    both(|profile| {
        let mut fixture = Fixture::new(profile);
        fixture.want("api", &[1]);
        fixture.run(100_000);
        fixture.forget();
        fixture.mark(profile.window());
        fixture.want("api", &[3]);
        fixture.lock();
        fixture.stop_before(|delivery| matches!(delivery, Delivery::Events(_)));
        let outcome = fixture.ms();
        fixture.run(5_000);
        fixture.want("web", &[2]);
        assert_eq!((fixture.counts("api"), fixture.counts("web")), (vec![1], vec![0]));
        fixture.events();
        fixture.leave(&web(), "api");
        assert_eq!(fixture.counts("web"), [0]);
        assert_eq!(fixture.view(&web()).state.as_str(), "waiting");
        assert_eq!(fixture.next_at(), Some(outcome + 30_000));
        assert!(fixture.events().is_empty());
    });
}

#[test]
fn s0_case_20_removal_takes_parked_operations_out_of_the_queue() {
    both(|profile| {
        let mut fixture = changed(profile);
        let until = parked_by_a_lock(&mut fixture);
        fixture.leave(&web(), "web");
        fixture.run(1_000);
        assert!(!fixture.has(&web()));
        fixture.want("web", &[2]);
        fixture.discover(&web().lb, 0);
        fixture.run(1_000);
        assert_eq!(fixture.counts("web"), [0], "the parked operation is dropped");
        assert_ne!(fixture.view(&web()).state.as_str(), "parked");
        fixture.at(until + TICK_MS + 1_000);
        let met = match profile {
            Profile::Default => None,
            Profile::Upstream => Some(gate_closed_text("web", 1)),
        };
        assert_eq!(fixture.events(), met.into_iter().chain([updated("web", 1, 1, 1)]).collect::<Vec<_>>());
    });
}

/// [`TICK`] in the unit of times here.
const TICK_MS: i64 = TICK.cast_signed();

#[test]
fn s0_case_21_a_shutdown_with_parked_ones_reports_nothing() {
    both(|profile| {
        let mut fixture = changed(profile);
        let until = parked_by_a_lock(&mut fixture);
        fixture.observed();
        fixture.want("web", &[2, 3]);
        let sent = fixture.requests().len();
        assert_eq!(fixture.counts("web"), [0, 1]);
        fixture.shut_down();
        fixture.at(until + 600_000);
        assert!(fixture.events().is_empty() && fixture.failures().is_empty());
        assert_eq!(fixture.requests().len(), sent);
        assert_eq!(fixture.counts("web"), [0, 1], "nothing is requeued, and no retry is used");
    });
}

/// A process that loses its leadership and leads again begins as another process would.
#[test]
fn s0_case_21_a_new_term_has_no_parked_operations() {
    both(|profile| {
        let mut fixture = changed(profile);
        let until = parked_by_a_lock(&mut fixture);
        fixture.observed();
        fixture.set_standing(Leadership::Standby);
        fixture.run(1_000);
        fixture.end_faults();
        fixture.new_term();
        fixture.run(1_000);
        assert!(!fixture.counts("web").contains(&1), "what was tried is not requeued");
        assert_ne!(fixture.view(&web()).state.as_str(), "parked");
        fixture.at(until + 2 * TICK_MS);
        // The gate or the lane is as closed as before.
        let met = match profile {
            Profile::Default => None,
            Profile::Upstream => Some(gate_closed_text("web", 1)),
        };
        assert_eq!(fixture.events(), met.into_iter().chain([updated("web", 1, 1, 1)]).collect::<Vec<_>>());
        assert_eq!((fixture.failures(), fixture.members(&web())), (vec![false], vec![2]));
    });
}

/// S0 "Cancellation And Shutdown": work in flight is dropped, wherever it is.
#[test]
fn s0_case_21_a_shutdown_during_an_attempt_reports_nothing() {
    both(|profile| {
        for ms in (0..3_500).step_by(20) {
            let settings = Settings {
                operation: Some(Latency::Fixed { us: 2_000_000 }),
                operation_retry_after_s: Some(1),
                ..Settings::default()
            };
            let mut fixture = Fixture::with(profile, 3, settings);
            fixture.mark(profile.window());
            fixture.want("web", &[2]);
            let canceled = FaultEffect::FailOperation {
                end: OperationFailure::Canceled,
                code: "Canceled".to_owned(),
                message: "It did not work.".to_owned(),
            };
            fixture.fault(FaultTarget::PoolPut, 1_000, canceled);
            fixture.at(ms);
            let (events, waiting) = (fixture.events(), fixture.counts("web"));
            fixture.shut_down();
            fixture.at(ms + 300_000);
            assert!(fixture.events().is_empty() && fixture.failures().is_empty(), "{ms}");
            assert_eq!(fixture.counts("web"), waiting, "{ms}: an operation in flight is not requeued");
            assert!(events.is_empty() || ms > 2_000, "{ms}: {events:?}");
        }
    });
}

/// S0 "ThrottleError": a long Retry-After must not exhaust the retries against the local gate without a request to
/// ARM. The pool waits for all of it, while other pools wait for an hour at most.
#[test]
fn s0_expected_a_retry_after_of_hours_is_waited_for() {
    for (target, refused) in [(FaultTarget::PoolGet, 20), (FaultTarget::PoolPut, 120)] {
        for hours in [1, 2, 30] {
            both(|profile| {
                let _named = Playing(format!("{target:?}, {hours} h"));
                let mut fixture = changed(profile);
                fixture.throttle(target, 1, QUOTA, Some(&(hours * 3_600).to_string()));
                fixture.at(70_000);
                let texts = match profile {
                    Profile::Default => retrying("web", 1, 3, QUOTA),
                    Profile::Upstream => gate_closed_text("web", 1),
                };
                assert_eq!(fixture.events(), [texts], "one attempt has failed");
                assert_eq!(fixture.requests().iter().filter(|(_, _, status)| *status == 429).count(), 1);
                let until = refused + hours * 3_600_000;
                assert_eq!(fixture.next_at(), Some(until), "ARM's own time");
                stays_parked(&mut fixture, until);
                let sent = fixture.requests().len();
                fixture.at(until + 10_000);
                let put = (until + 20, "PUT", 200);
                assert!(fixture.requests()[sent..].contains(&put), "{:?}", fixture.requests());
                assert_eq!(fixture.events(), [updated("web", 1, 1, 1)]);
                assert_eq!(fixture.failures(), [false]);
            });
        }
    }
}

/// A lock parks its pool for its whole duration. Others on the load balancer wait for ten minutes at most, in
/// `upstream` for all of it.
#[test]
fn s0_expected_a_lock_of_an_hour_parks_its_pool_for_an_hour() {
    both(|profile| {
        let mut fixture = Fixture::new(profile);
        let near = pool("lb", "shop-near");
        fixture.open(&near, "near");
        fixture.forget();
        fixture.mark(profile.window());
        fixture.want("web", &[2]);
        fixture.lock_for("3600");
        fixture.stop_before(|delivery| matches!(delivery, Delivery::Events(_)));
        let until = fixture.ms() + 3_600_000;
        fixture.run(0);
        assert_eq!(fixture.events(), [retrying("web", 1, 3, LOCK)]);
        assert_eq!(fixture.next_at(), Some(until));
        fixture.require_members(&near, "near", &[2]);
        fixture.run(700_000);
        let others = match profile {
            Profile::Default => [2],
            Profile::Upstream => [1],
        };
        assert_eq!(fixture.members(&near), others);
        fixture.events();
        stays_parked(&mut fixture, until);
        fixture.at(until + 1_000);
        assert_eq!((fixture.members(&web()), fixture.members(&near)), (vec![2], vec![2]));
    });
}
