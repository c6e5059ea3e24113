//! Throttling and parking (S0 cases 1-5, 7, 8, 18, 20, 21).
//!
//! In the profile `upstream` the client tries a throttled call four times within the attempt (`client.retryThrottled`);
//! while the gate is closed, only the first of them reaches ARM.

use std::ops::RangeInclusive;

use model::leadership::Leadership;
use pool_core::route::{Delivery, PoolMessage};
use pools::queue;
use simulator_models::arm::{FaultEffect, FaultTarget, Latency, OperationFailure, Settings};

use crate::bench::{Bench, Request, pool, web};
use crate::profile::{Playing, Profile, TICK, both};
use crate::texts::{gate_closed_text, retrying, updated};

/// A quota of the subscription: closes the verb's gate.
const QUOTA: &str = "SubscriptionRequestsThrottled";
/// Another operation runs on the load balancer: closes only its lane; in `upstream` the verb's gate, like any 429.
const LOCK: &str = "RetryableError";

/// Returns a bench whose Service changes from member 1 to member 2; times count from the time at which the change is
/// due.
fn changed(profile: Profile) -> Bench {
    let mut bench = Bench::new(profile);
    bench.mark(profile.window());
    bench.want("web", &[2]);
    bench
}

/// Returns when an attempt ends whose first try is refused at this time by a gate that stays closed.
fn ends(profile: Profile, refused: i64) -> RangeInclusive<i64> {
    match profile {
        Profile::Default => refused..=refused,
        // The client's three delays of 5, 15 and 35 s, each varied by up to a fifth, and the GETs before its tries.
        Profile::Upstream => refused + 44_000..=refused + 66_100,
    }
}

fn puts(bench: &Bench) -> Vec<Request> {
    bench.requests().into_iter().filter(|(_, verb, _)| *verb == "PUT").collect()
}

/// Checks that from the outcome that parked the pool until this time, there is no request, event, observation or
/// retry.
fn stays_parked(bench: &mut Bench, until: i64) {
    let sent = bench.requests().len();
    bench.observed();
    bench.at(until - 1);
    assert_eq!(bench.view(&web()).state.as_str(), "parked");
    assert_eq!(bench.requests().len(), sent, "no request while parked: {:?}", bench.requests());
    assert!(bench.events().is_empty() && bench.failures().is_empty());
    assert_eq!(bench.counts("web"), [1], "no retry is spent while parked");
}

#[test]
fn s0_case_01_a_throttled_get_parks_the_pool() {
    both(|profile| {
        let mut bench = changed(profile);
        bench.throttle(FaultTarget::PoolGet, 1, QUOTA, Some("300"));
        bench.at(70_000);
        assert_eq!(bench.requests(), [(0, "GET", 429)], "the gate blocks other tries");
        let events = bench.events_at();
        let texts = match profile {
            Profile::Default => retrying("web", 1, 3, QUOTA),
            Profile::Upstream => gate_closed_text("web", 1),
        };
        assert_eq!(events.iter().map(|(_, text)| text).collect::<Vec<_>>(), [&texts]);
        assert!(ends(profile, 20).contains(&events[0].0), "{events:?}");
        assert_eq!(bench.next_at(), Some(300_020));
        stays_parked(&mut bench, 300_020);
        bench.at(310_000);
        assert_eq!(bench.requests()[1..3], [(300_020, "GET", 200), (300_040, "PUT", 200)]);
        assert_eq!(bench.events(), [updated("web", 1, 1, 1)]);
        assert_eq!(bench.failures(), [false]);
    });
}

#[test]
fn s0_case_02_a_throttled_put_parks_the_pool() {
    both(|profile| {
        let mut bench = changed(profile);
        bench.throttle(FaultTarget::PoolPut, 1, QUOTA, Some("300"));
        bench.at(70_000);
        assert_eq!(puts(&bench), [(20, "PUT", 429)]);
        let events = bench.events_at();
        assert_eq!(events.len(), 1);
        assert!(ends(profile, 120).contains(&events[0].0), "{events:?}");
        stays_parked(&mut bench, 300_120);
        bench.at(310_000);
        assert_eq!(puts(&bench)[1..], [(300_140, "PUT", 200)]);
        assert_eq!(bench.events(), [updated("web", 1, 1, 1)]);
        assert_eq!(bench.failures(), [false]);
    });
}

/// A lock closes the lane; in `upstream` the gate (W6).
#[test]
fn s0_case_02_a_lock_parks_the_pool_like_a_quota() {
    both(|profile| {
        let mut bench = changed(profile);
        let until = parked_by_a_lock(&mut bench);
        assert!(ends(profile, 120).contains(&(until - 300_000)), "{until}");
        stays_parked(&mut bench, until);
        bench.at(until + 1_000);
        assert_eq!(bench.events_at(), [(until + 120, updated("web", 1, 1, 1))]);
        assert_eq!(bench.failures(), [false]);
    });
}

/// Without a time in the future the pool waits for the tick, not for a gate.
#[test]
fn s0_case_03_a_429_without_retry_after_waits_for_the_tick() {
    for header in [None, Some("soon"), Some("0"), Some("-5")] {
        both(|profile| {
            let _named = Playing(format!("Retry-After {header:?}"));
            let mut bench = changed(profile);
            bench.throttle(FaultTarget::PoolPut, profile.throttled_tries(), QUOTA, header);
            bench.stop_before(|delivery| matches!(delivery, Delivery::Events(_)));
            let outcome = bench.ms();
            assert!(ends(profile, 120).contains(&outcome), "{outcome}");
            bench.run(0);
            assert_eq!(bench.events(), [retrying("web", 1, 3, QUOTA)]);
            assert_eq!(bench.view(&web()).state.as_str(), "waiting", "nothing parks it");
            let sent = bench.requests().len();
            bench.at(outcome + 29_999);
            assert_eq!(bench.requests().len(), sent);
            bench.at(outcome + 31_000);
            assert_eq!(bench.requests()[sent..sent + 1], [(outcome + 30_000, "GET", 200)]);
            assert_eq!(bench.events_at(), [(outcome + 30_120, updated("web", 1, 1, 1))]);
            assert_eq!(bench.failures(), [false]);
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
        let mut bench = Bench::new(profile);
        let api = pool("lb2", "shop-api");
        bench.open(&api, "api");
        bench.mark(profile.window());
        bench.hold_up(is_take, 50);
        bench.throttle(FaultTarget::PoolGet, 1, QUOTA, Some("300"));
        bench.require_members(&api, "api", &[2]);
        bench.want("web", &[2]);
        bench.at(70_000);
        assert_eq!(bench.requests_of(&api), [(0, "GET", 429)]);
        assert!(bench.requests().is_empty(), "no call was made");
        assert!(bench.events().contains(&gate_closed_text("web", 1)));
        bench.hold_up(is_take, 0);
        stays_parked(&mut bench, 300_020);
        bench.at(310_000);
        assert_eq!(bench.requests()[0], (300_020, "GET", 200));
        assert!(bench.events().contains(&updated("web", 1, 1, 1)));
    });
}

/// In the default profile, a known closed gate delays the grant at no cost; in `upstream` the pool meets it at its
/// turn (C2).
#[test]
fn s0_case_04_a_pool_whose_turn_comes_while_the_gate_is_closed() {
    both(|profile| {
        let mut bench = Bench::new(profile);
        let api = pool("lb2", "shop-api");
        bench.open(&api, "api");
        bench.mark(profile.window());
        bench.throttle(FaultTarget::PoolGet, 1, QUOTA, Some("300"));
        bench.require_members(&api, "api", &[2]);
        bench.at(1_000);
        bench.want("web", &[2]);
        bench.at(150_000);
        assert!(bench.requests().is_empty(), "no call was made");
        let events: Vec<String> = bench.events().into_iter().filter(|text| text.starts_with("web")).collect();
        match profile {
            Profile::Default => {
                assert!(events.is_empty() && bench.counts("web") == [0]);
                assert_eq!(bench.view(&web()).state.as_str(), "due", "it waits in its lane");
            }
            Profile::Upstream => {
                assert_eq!(events, [gate_closed_text("web", 1)]);
                stays_parked(&mut bench, 300_020);
            }
        }
        bench.at(310_000);
        assert!(bench.events().contains(&updated("web", 1, 1, 1)));
    });
}

/// The gate has opened when the pool receives the outcome: the pool is not parked and waits for the tick (C2).
#[test]
fn s0_case_05_an_expired_gate_falls_back_to_the_next_tick() {
    both(|profile| {
        let mut bench = changed(profile);
        bench.throttle(FaultTarget::PoolGet, 1, QUOTA, Some("80"));
        bench.hold_up(is_outcome, 100_000);
        bench.at(99_000);
        bench.hold_up(is_outcome, 0);
        bench.stop_before(is_outcome);
        let outcome = bench.ms();
        assert_eq!(bench.requests(), [(0, "GET", 429)]);
        bench.run(0);
        assert_eq!(bench.events().len(), 1);
        assert_eq!(bench.view(&web()).state.as_str(), "waiting", "a past time parks nothing");
        assert_eq!(bench.counts("web"), [1]);
        bench.at(outcome + 31_000);
        assert_eq!(bench.requests()[1], (outcome + 30_000, "GET", 200));
        assert_eq!(bench.events(), [updated("web", 1, 1, 1)]);
    });
}

/// In `upstream`, a gate that opens between the client's tries admits the next one (S0 "ThrottleError").
#[test]
fn s0_case_05_a_short_retry_after_costs_a_try_or_a_tick() {
    both(|profile| {
        let mut bench = changed(profile);
        bench.throttle(FaultTarget::PoolPut, 1, QUOTA, Some("2"));
        bench.at(60_000);
        let events = bench.events();
        match profile {
            Profile::Default => {
                assert_eq!(events, [retrying("web", 1, 3, QUOTA), updated("web", 1, 1, 1)]);
                assert_eq!(puts(&bench), [(20, "PUT", 429), (30_140, "PUT", 200)]);
            }
            Profile::Upstream => {
                assert_eq!(events, [updated("web", 1, 1, 1)]);
                let tried = puts(&bench)[1].0;
                assert!((4_140..=6_140).contains(&tried), "{tried}");
            }
        }
    });
}

/// One parked operation preserves the whole group; pools on other load balancers continue.
#[test]
fn s0_case_07_one_parked_operation_parks_the_whole_group() {
    both(|profile| {
        let mut bench = changed(profile);
        let other = pool("lb2", "shop-other");
        let until = parked_by_a_lock(&mut bench);
        bench.open(&other, "other");
        bench.want("api", &[3]);
        bench.require_members(&other, "other", &[2]);
        match profile {
            Profile::Default => {
                bench.run(60_000);
                assert_eq!(bench.members(&other), [2], "unrelated groups continue");
                bench.events();
            }
            Profile::Upstream => {
                bench.run(120_000);
                let text = gate_closed_text("other", 1);
                assert_eq!(bench.events(), [text], "the gate that the 429 closed stops it, like any call");
                assert_eq!(bench.members(&other), [1]);
            }
        }
        assert_eq!(bench.counts("api"), [0]);
        stays_parked(&mut bench, until);
        assert_eq!(bench.counts("api"), [0]);
        bench.at(until + 1_000);
        let mut events = bench.events();
        events.retain(|text| !text.starts_with("other"));
        assert_eq!(events, [updated("api", 2, 2, 1), updated("web", 2, 2, 1)]);
        assert_eq!((bench.members(&web()), bench.members(&other)), (vec![2, 3], vec![2]));
    });
}

/// Parks `lb/shop-web` for five minutes by a lock of its load balancer; returns the end of the parking.
fn parked_by_a_lock(bench: &mut Bench) -> i64 {
    bench.lock();
    bench.stop_before(|delivery| matches!(delivery, Delivery::Events(_)));
    let until = bench.ms() + 300_000;
    bench.run(0);
    assert_eq!(bench.events(), [retrying("web", 1, 3, LOCK)]);
    assert_eq!(bench.view(&web()).state.as_str(), "parked");
    assert_eq!(bench.next_at(), Some(until));
    until
}

#[test]
fn s0_case_08_new_operations_join_parked_ones() {
    both(|profile| {
        let mut bench = changed(profile);
        let until = parked_by_a_lock(&mut bench);
        bench.run(10_000);
        bench.want("web", &[2, 3]);
        bench.run(10_000);
        bench.want("web", &[3]);
        let before = puts(&bench).len();
        bench.at(until - 1);
        assert_eq!(puts(&bench).len(), before);
        bench.at(until + 1_000);
        assert_eq!(puts(&bench)[before..], [(until + 20, "PUT", 200)], "one write has all changes");
        assert_eq!(bench.members(&web()), [3]);
        assert_eq!(bench.events(), [updated("web", 1, 1, 1)]);
    });
}

/// A change that reverts the parked one is still an outcome that is reported.
#[test]
fn s0_case_08_undoing_a_parked_change_completes_both() {
    both(|profile| {
        let mut bench = changed(profile);
        let until = parked_by_a_lock(&mut bench);
        bench.want("web", &[1]);
        bench.at(until + 1_000);
        assert_eq!(bench.events(), [updated("web", 1, 0, 0)]);
        assert_eq!(bench.members(&web()), [1]);
        assert_eq!(bench.failures(), [false]);
    });
}

#[test]
fn s0_case_18_a_service_gone_while_parked_is_dropped() {
    both(|profile| {
        let mut bench = changed(profile);
        let until = parked_by_a_lock(&mut bench);
        bench.observed();
        bench.run(10_000);
        let sent = bench.requests().len();
        bench.leave(&web(), "web");
        assert!(bench.events().is_empty() && bench.failures().is_empty());
        bench.run(0);
        assert!(!bench.has(&web()), "the pool has no owner and retires");
        bench.at(until + 100_000);
        assert_eq!(bench.requests().len(), sent);
        assert!(bench.events().is_empty() && bench.failures().is_empty());
    });
}

/// The parked change of a Service that has left no longer parks the pool for the remaining one (Q4); the retry
/// interval still applies.
#[test]
fn s0_case_18_20_a_removed_service_parks_no_others() {
    both(|profile| {
        let mut bench = Bench::new(profile);
        bench.want("api", &[1]);
        bench.run(100_000);
        bench.forget();
        bench.mark(profile.window());
        bench.want("api", &[3]);
        bench.lock();
        bench.stop_before(|delivery| matches!(delivery, Delivery::Events(_)));
        let outcome = bench.ms();
        bench.run(5_000);
        bench.want("web", &[2]);
        assert_eq!((bench.counts("api"), bench.counts("web")), (vec![1], vec![0]));
        bench.events();
        bench.leave(&web(), "api");
        assert_eq!(bench.counts("web"), [0]);
        assert_eq!(bench.view(&web()).state.as_str(), "waiting");
        assert_eq!(bench.next_at(), Some(outcome + 30_000));
        assert!(bench.events().is_empty());
    });
}

#[test]
fn s0_case_20_removal_takes_parked_operations_out_of_the_queue() {
    both(|profile| {
        let mut bench = changed(profile);
        let until = parked_by_a_lock(&mut bench);
        bench.leave(&web(), "web");
        bench.run(1_000);
        assert!(!bench.has(&web()));
        bench.want("web", &[2]);
        bench.discover(&web().lb, 0);
        bench.run(1_000);
        assert_eq!(bench.counts("web"), [0], "the parked operation is dropped");
        assert_ne!(bench.view(&web()).state.as_str(), "parked");
        bench.at(until + TICK_MS + 1_000);
        let met = match profile {
            Profile::Default => None,
            Profile::Upstream => Some(gate_closed_text("web", 1)),
        };
        assert_eq!(bench.events(), met.into_iter().chain([updated("web", 1, 1, 1)]).collect::<Vec<_>>());
    });
}

/// [`TICK`] in the unit of times here.
const TICK_MS: i64 = TICK.cast_signed();

#[test]
fn s0_case_21_a_shutdown_with_parked_ones_reports_nothing() {
    both(|profile| {
        let mut bench = changed(profile);
        let until = parked_by_a_lock(&mut bench);
        bench.observed();
        bench.want("web", &[2, 3]);
        let sent = bench.requests().len();
        assert_eq!(bench.counts("web"), [0, 1]);
        bench.shut_down();
        bench.at(until + 600_000);
        assert!(bench.events().is_empty() && bench.failures().is_empty());
        assert_eq!(bench.requests().len(), sent);
        assert_eq!(bench.counts("web"), [0, 1], "nothing is requeued, and no retry is used");
    });
}

/// A process that loses its leadership and leads again begins as another process would.
#[test]
fn s0_case_21_a_new_term_has_no_parked_operations() {
    both(|profile| {
        let mut bench = changed(profile);
        let until = parked_by_a_lock(&mut bench);
        bench.observed();
        bench.set_standing(Leadership::Standby);
        bench.run(1_000);
        bench.end_faults();
        bench.new_term();
        bench.run(1_000);
        assert!(!bench.counts("web").contains(&1), "what was tried is not requeued");
        assert_ne!(bench.view(&web()).state.as_str(), "parked");
        bench.at(until + 2 * TICK_MS);
        // The gate or the lane is as closed as before.
        let met = match profile {
            Profile::Default => None,
            Profile::Upstream => Some(gate_closed_text("web", 1)),
        };
        assert_eq!(bench.events(), met.into_iter().chain([updated("web", 1, 1, 1)]).collect::<Vec<_>>());
        assert_eq!((bench.failures(), bench.members(&web())), (vec![false], vec![2]));
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
            let mut bench = Bench::with(profile, 3, settings);
            bench.mark(profile.window());
            bench.want("web", &[2]);
            let canceled = FaultEffect::FailOperation {
                end: OperationFailure::Canceled,
                code: "Canceled".to_owned(),
                message: "It did not work.".to_owned(),
            };
            bench.fault(FaultTarget::PoolPut, 1_000, canceled);
            bench.at(ms);
            let (events, waiting) = (bench.events(), bench.counts("web"));
            bench.shut_down();
            bench.at(ms + 300_000);
            assert!(bench.events().is_empty() && bench.failures().is_empty(), "{ms}");
            assert_eq!(bench.counts("web"), waiting, "{ms}: an operation in flight is not requeued");
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
                let mut bench = changed(profile);
                bench.throttle(target, 1, QUOTA, Some(&(hours * 3_600).to_string()));
                bench.at(70_000);
                let texts = match profile {
                    Profile::Default => retrying("web", 1, 3, QUOTA),
                    Profile::Upstream => gate_closed_text("web", 1),
                };
                assert_eq!(bench.events(), [texts], "one attempt has failed");
                assert_eq!(bench.requests().iter().filter(|(_, _, status)| *status == 429).count(), 1);
                let until = refused + hours * 3_600_000;
                assert_eq!(bench.next_at(), Some(until), "ARM's own time");
                stays_parked(&mut bench, until);
                let sent = bench.requests().len();
                bench.at(until + 10_000);
                let put = (until + 20, "PUT", 200);
                assert!(bench.requests()[sent..].contains(&put), "{:?}", bench.requests());
                assert_eq!(bench.events(), [updated("web", 1, 1, 1)]);
                assert_eq!(bench.failures(), [false]);
            });
        }
    }
}

/// A lock parks its pool for its whole duration. Others on the load balancer wait for ten minutes at most, in
/// `upstream` for all of it.
#[test]
fn s0_expected_a_lock_of_an_hour_parks_its_pool_for_an_hour() {
    both(|profile| {
        let mut bench = Bench::new(profile);
        let near = pool("lb", "shop-near");
        bench.open(&near, "near");
        bench.forget();
        bench.mark(profile.window());
        bench.want("web", &[2]);
        bench.lock_for("3600");
        bench.stop_before(|delivery| matches!(delivery, Delivery::Events(_)));
        let until = bench.ms() + 3_600_000;
        bench.run(0);
        assert_eq!(bench.events(), [retrying("web", 1, 3, LOCK)]);
        assert_eq!(bench.next_at(), Some(until));
        bench.require_members(&near, "near", &[2]);
        bench.run(700_000);
        let others = match profile {
            Profile::Default => [2],
            Profile::Upstream => [1],
        };
        assert_eq!(bench.members(&near), others);
        bench.events();
        stays_parked(&mut bench, until);
        bench.at(until + 1_000);
        assert_eq!((bench.members(&web()), bench.members(&near)), (vec![2], vec![2]));
    });
}
