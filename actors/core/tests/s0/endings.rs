//! Ends of attempts: conflicts, exhaustion, terminal failures, missing pools (S0 cases 6, 11-14, 22, 23).

use model::ids::LbName;
use simulator_models::arm::{FaultTarget, Settings};

use crate::fixture::{Fixture, Request, web};
use crate::profile::{NOT_COMPARED, Playing, Profile, TICK, both};
use crate::texts::{exhausted, failed, retrying, updated};

/// Returns a fixture whose Service changes from member 1 to member 2; times count from the moment at which the change
/// is due.
fn changed(profile: Profile, max_retries: u32) -> Fixture {
    let mut fixture = Fixture::with(profile, max_retries, Settings::default());
    fixture.mark(profile.window());
    fixture.want("web", &[2]);
    fixture
}

/// Returns the requests of an attempt that starts at this time and whose PUT is answered with this status.
fn attempt(at: i64, status: u16) -> [Request; 2] {
    [(at, "GET", 200), (at + 20, "PUT", status)]
}

/// Returns the read that verifies a write whose attempt started at this time (W2).
fn verified(at: i64) -> Request {
    (at + 1_120, "GET", 200)
}

#[test]
fn s0_case_06_a_conflict_succeeds_after_a_fresh_get() {
    both(|profile| {
        let mut fixture = changed(profile, 3);
        fixture.fail(FaultTarget::PoolPut, 1, 409, "Conflict");
        fixture.at(30_119);
        assert_eq!(fixture.requests(), attempt(0, 409));
        assert_eq!(fixture.events_at(), [(120, retrying("web", 1, 3, "Conflict"))]);
        assert_eq!(fixture.counts("web"), [1]);
        fixture.at(40_000);
        let all = [&attempt(0, 409)[..], &attempt(30_120, 200), &[verified(30_120)]].concat();
        assert_eq!(fixture.requests(), all);
        assert_eq!(fixture.events_at(), [(30_240, updated("web", 1, 1, 1))]);
        assert_eq!(fixture.members(&web()), [2]);
    });
}

/// In the default profile, a 412 costs a round within the attempt; only a 412 in every round is an outcome (C2, W2).
#[test]
fn s0_case_06_a_failed_precondition_succeeds_after_a_get() {
    both(|profile| {
        let rounds = match profile {
            Profile::Default => 3,
            Profile::Upstream => 1,
        };
        let mut fixture = changed(profile, 3);
        fixture.fail(FaultTarget::PoolPut, rounds, 412, "PreconditionFailed");
        let ended = 120 * i64::try_from(rounds).expect("few");
        fixture.at(ended + 29_999);
        let mut first: Vec<Request> = (0..ended / 120).flat_map(|round| attempt(round * 120, 412)).collect();
        assert_eq!(fixture.requests(), first);
        assert_eq!(fixture.events_at(), [(ended, retrying("web", 1, 3, "PreconditionFailed"))]);
        fixture.at(ended + 40_000);
        first.extend(attempt(ended + 30_000, 200));
        first.push(verified(ended + 30_000));
        assert_eq!(fixture.requests(), first);
        assert_eq!(fixture.events(), [updated("web", 1, 1, 1)]);
        assert_eq!(fixture.failures(), [false]);
    });
}

#[test]
fn s0_case_06_the_second_try_reads_foreign_writes() {
    both(|profile| {
        let mut fixture = changed(profile, 3);
        fixture.fail(FaultTarget::PoolPut, 1, 409, "Conflict");
        fixture.at(10_000);
        assert!(fixture.foreign_put(&[1, 9]) < 300);
        fixture.at(40_000);
        assert_eq!(fixture.members(&web()), [2]);
        assert_eq!(
            fixture.events(),
            [retrying("web", 1, 3, "Conflict"), updated("web", 1, 1, 2)],
            "members 1 and 9 were removed"
        );
    });
}

/// Also S0's "Expected Behavior": three attempts that emit Retrying, the fourth emits Failed and drops.
#[test]
fn s0_case_11_an_exhausted_budget_is_reported() {
    both(|profile| {
        let mut fixture = changed(profile, 3);
        fixture.fail(FaultTarget::PoolPut, 1_000, 409, "Conflict");
        fixture.at(90_359);
        assert_eq!(fixture.counts("web"), [3]);
        fixture.at(90_480);
        let retries = (1..=3).map(|n| retrying("web", n, 3, "Conflict"));
        let last = exhausted("web", 3, "Conflict", &profile.afterwards(60));
        assert_eq!(fixture.events(), retries.chain([last]).collect::<Vec<String>>());
        assert_eq!(fixture.requests().iter().filter(|(_, verb, _)| *verb == "PUT").count(), 4);
        assert!(fixture.counts("web").is_empty());
        assert_eq!(fixture.view(&web()).state.as_str(), "failed");
        assert_eq!(fixture.failures(), [true]);
    });
}

/// Each status of `GetRetriableStatusCode()`, of GETs and of PUTs, after four tries of the client.
#[test]
fn s0_case_12_retried_statuses_are_terminal_afterwards() {
    for status in [408, 500, 502, 503, 504] {
        for (target, verb) in [(FaultTarget::PoolPut, "PUT"), (FaultTarget::PoolGet, "GET")] {
            both(|profile| {
                let _named = Playing(format!("{verb} {status}"));
                let mut fixture = changed(profile, 3);
                fixture.fail(target, 4, status, "ServerTrouble");
                fixture.at(30_000);
                assert!(fixture.events().is_empty(), "the client still tries");
                fixture.at(100_000);
                assert_eq!(fixture.events(), [failed(profile, "ServerTrouble")]);
                assert_eq!(fixture.failures(), [true]);
                assert!(fixture.counts("web").is_empty(), "nothing is requeued");
                let requests = fixture.requests();
                let refused = requests.iter().filter(|(_, _, answered)| *answered == status);
                let times: Vec<i64> = refused.map(|(at, _, _)| *at).collect();
                let gaps: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
                let latency = if verb == "PUT" { 120 } else { 20 };
                assert_eq!(gaps.len(), 3, "four tries: {requests:?}");
                for (gap, delay) in gaps.iter().zip([5_000, 15_000, 35_000]) {
                    let within = delay * 4 / 5 + latency..=delay * 6 / 5 + latency;
                    assert!(within.contains(gap), "{gaps:?}");
                }
            });
        }
    }
}

#[test]
fn s0_case_12_a_retry_of_the_client_is_the_same_attempt() {
    both(|profile| {
        let mut fixture = changed(profile, 3);
        fixture.fail(FaultTarget::PoolPut, 3, 503, "ServerTrouble");
        fixture.at(120_000);
        assert_eq!(fixture.events(), [updated("web", 1, 1, 1)]);
        assert_eq!(fixture.failures(), [false]);
    });
}

/// The client counts its tries for each ARM call, as the Azure SDK does.
#[test]
fn s0_case_12_get_and_put_have_four_tries_each() {
    for (puts, events) in [(3, None), (4, Some("ServerTrouble"))] {
        both(|profile| {
            let mut fixture = changed(profile, 3);
            fixture.fail_each(
                &[(FaultTarget::PoolGet, 3), (FaultTarget::PoolPut, puts)],
                503,
                "ServerTrouble",
            );
            fixture.at(140_000);
            let expected = events.map_or_else(|| updated("web", 1, 1, 1), |code| failed(profile, code));
            assert_eq!(fixture.events(), [expected]);
            assert_eq!(fixture.failures(), [events.is_some()], "one attempt");
            let count = |verb: &str, status: u16| {
                fixture
                    .requests()
                    .iter()
                    .filter(|(_, method, code)| (*method, *code) == (verb, status))
                    .count()
            };
            assert_eq!((count("GET", 503), count("PUT", 503)), (3, usize::try_from(puts).expect("few")));
        });
    }
}

#[test]
fn s0_case_13_other_failures_are_reported_at_once() {
    for (status, code) in [
        (400, "InvalidRequestFormat"),
        (401, "InvalidAuthenticationToken"),
        (403, "AuthorizationFailed"),
        (405, "MethodNotAllowed"),
        (410, "Gone"),
        (413, "RequestEntityTooLarge"),
        (501, "NotImplemented"),
        (505, "HttpVersionNotSupported"),
    ] {
        for (target, requests) in [
            (FaultTarget::PoolPut, attempt(0, status).to_vec()),
            (FaultTarget::PoolGet, vec![(0, "GET", status)]),
        ] {
            both(|profile| {
                let mut fixture = changed(profile, 3);
                fixture.fail(target, 1_000, status, code);
                fixture.at(59_000);
                assert_eq!(fixture.events(), [failed(profile, code)]);
                assert_eq!(fixture.failures(), [true]);
                assert!(fixture.counts("web").is_empty());
                assert_eq!(fixture.requests(), requests);
            });
        }
    }
}

/// S0 has no comparison after a failure; Q8's belongs to the default profile, and does not report a repeated failure.
#[test]
fn s0_case_13_a_slice_event_or_time_restarts_a_failed_pool() {
    both(|profile| {
        let mut fixture = changed(profile, 3);
        fixture.fail(FaultTarget::PoolPut, 1_000, 403, "AuthorizationFailed");
        fixture.at(600_000);
        let attempts = fixture.requests().iter().filter(|(_, verb, _)| *verb == "PUT").count();
        match profile {
            Profile::Default => assert_eq!(attempts, 4, "after 1, 2 and 4 minutes"),
            Profile::Upstream => assert_eq!(attempts, 1),
        }
        assert_eq!(fixture.events(), [failed(profile, "AuthorizationFailed")], "told once");
        fixture.end_faults();
        fixture.slice_event("web");
        fixture.run(TICK + 1_000);
        assert_eq!(fixture.events(), [updated("web", 1, 1, 1)]);
    });
}

#[test]
fn s0_case_14_a_missing_pool_is_dropped_without_an_event() {
    both(|profile| {
        let mut fixture = changed(profile, 3);
        fixture.model.remove_pool("lb", "shop-web");
        fixture.at(900_000);
        assert_eq!(fixture.requests(), [(0, "GET", 404)]);
        assert!(fixture.events().is_empty() && fixture.failures().is_empty());
        assert!(fixture.counts("web").is_empty());
    });
}

#[test]
fn s0_case_14_a_missing_load_balancer_is_dropped() {
    both(|profile| {
        let mut fixture = changed(profile, 3);
        fixture.model.remove_load_balancer("lb");
        fixture.at(900_000);
        assert_eq!(fixture.requests(), [(0, "GET", 404)]);
        assert!(fixture.events().is_empty() && fixture.failures().is_empty());
    });
}

/// Q6 defines what follows a 404: where discovery still maps the pool, the default profile compares it again.
#[test]
fn s0_case_14_a_404_of_the_put_is_dropped_without_an_event() {
    both(|profile| {
        let mut fixture = changed(profile, 3);
        fixture.fail(FaultTarget::PoolPut, 1, 404, "NotFound");
        fixture.at(121);
        assert_eq!(fixture.requests(), attempt(0, 404));
        assert!(fixture.events().is_empty() && fixture.failures().is_empty());
        assert!(fixture.counts("web").is_empty(), "the entry was removed");
        fixture.at(300_000);
        fixture.discover(&LbName::new("lb"), 0);
        fixture.at(400_000);
        match profile {
            Profile::Default => assert_eq!(fixture.events_at(), [(5_740, updated("web", 1, 1, 1))]),
            Profile::Upstream => {
                assert!(fixture.events().is_empty() && fixture.requests().len() == 2);
                fixture.want("web", &[3]);
                fixture.at(440_000);
                assert_eq!(fixture.events_at(), [(430_120, updated("web", 1, 1, 1))]);
            }
        }
    });
}

/// Only the changes of the attempt are dropped (S0 "Stale"): in both profiles, later changes are tried after the
/// interval.
#[test]
fn s0_case_14_a_change_during_a_404_is_not_lost() {
    both(|profile| {
        let mut fixture = changed(profile, 3);
        fixture.fail(FaultTarget::PoolPut, 1, 404, "NotFound");
        fixture.at(60);
        fixture.want("web", &[3]);
        fixture.at(121);
        assert_eq!(fixture.requests(), attempt(0, 404));
        assert_eq!(fixture.counts("web"), [0], "the untried change that arrived during the attempt");
        let next = match profile {
            Profile::Default => 5_120,
            Profile::Upstream => 30_120,
        };
        fixture.at(next - 1);
        assert!(fixture.events().is_empty());
        assert_eq!(fixture.requests(), attempt(0, 404), "only discovery has read");
        fixture.at(400_000);
        assert_eq!(fixture.events_at(), [(next + 120, updated("web", 1, 1, 1))]);
        assert_eq!(fixture.members(&web()), [3]);
        assert_eq!(fixture.failures(), [false]);
    });
}

#[test]
fn s0_case_14_a_change_for_a_missing_pool_writes_nothing() {
    both(|profile| {
        let mut fixture = changed(profile, 3);
        fixture.model.remove_pool("lb", "shop-web");
        fixture.at(10);
        fixture.want("web", &[3]);
        // The model has created the pool again for the Service's rule.
        fixture.model.remove_pool("lb", "shop-web");
        fixture.at(900_000);
        assert_eq!(fixture.requests(), [(0, "GET", 404)]);
        assert!(fixture.events().is_empty() && fixture.failures().is_empty());
    });
}

/// The config load of this case is tested in the `config` crate.
#[test]
fn s0_case_22_zero_retries_make_the_first_failure_final() {
    both(|profile| {
        let mut fixture = changed(profile, 0);
        fixture.fail(FaultTarget::PoolPut, 1_000, 409, "Conflict");
        fixture.at(900_000);
        assert_eq!(fixture.events_at(), [(120, exhausted("web", 0, "Conflict", NOT_COMPARED))]);
        assert_eq!(fixture.requests(), attempt(0, 409));
        assert_eq!(fixture.failures(), [true]);
        assert!(fixture.counts("web").is_empty());
    });
}

#[test]
fn s0_case_23_a_retried_success_is_one_successful_observation() {
    both(|profile| {
        let mut fixture = changed(profile, 3);
        fixture.fail(FaultTarget::PoolPut, 3, 409, "Conflict");
        fixture.at(120_000);
        let observed = fixture.observed();
        assert_eq!(observed.iter().map(|(failed, _)| *failed).collect::<Vec<bool>>(), [false]);
        assert_eq!(observed[0].1.as_millis(), 120, "from Take to outcome of the attempt that succeeded");
        let retries = (1..=3).map(|n| retrying("web", n, 3, "Conflict"));
        assert_eq!(fixture.events(), retries.chain([updated("web", 1, 1, 1)]).collect::<Vec<String>>());
    });
}

/// S0 "Expected Behavior": completed operations are dropped, and later ones have a new budget.
#[test]
fn s0_expected_a_later_retry_that_succeeds_drops_the_operation() {
    both(|profile| {
        let mut fixture = changed(profile, 3);
        fixture.fail(FaultTarget::PoolPut, 2, 409, "Conflict");
        fixture.at(100_000);
        assert_eq!(fixture.events().last(), Some(&updated("web", 1, 1, 1)));
        assert!(fixture.counts("web").is_empty());
        let count = fixture.requests().len();
        fixture.at(900_000);
        assert_eq!(fixture.requests().len(), count, "nothing is left to do");
        fixture.fail(FaultTarget::PoolPut, 1, 409, "Conflict");
        fixture.want("web", &[3]);
        fixture.run(profile.window() + 1_000);
        assert_eq!(fixture.events(), [retrying("web", 1, 3, "Conflict")], "a fresh budget");
    });
}
