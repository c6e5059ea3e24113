//! Tests of when the timers of resources run, what stops them, and their errors (A57, A88).

use super::*;

/// Creates a fixture in which watcher 1 watches `web` and `shop`.
fn two(policy: Policy) -> Fixture {
    let mut fixture = Fixture::new(policy);
    fixture.watch(WEB, 1);
    fixture.watch("shop", 1);
    fixture
}

#[test]
fn x1_a57_no_timer_runs_before_the_request_was_sent() {
    let mut fixture = Fixture::new(KEEP);
    fixture.watch(WEB, 1);
    fixture.tick(3_600_000);
    assert_eq!(
        (fixture.cache.deadline(), fixture.notices(), fixture.state()),
        (None, Vec::new(), "requested")
    );
}

#[test]
fn x1_a88_the_default_timer_is_15_s_and_means_does_not_exist() {
    let mut fixture = Fixture::new(KEEP);
    fixture.watch(WEB, 1);
    fixture.send(4_000, &[WEB]);
    assert_eq!(fixture.cache.deadline(), Some(at(19_000)));
    fixture.cache.tick(at(19_000).minus(Duration::from_micros(1)), &mut fixture.out);
    assert_eq!(fixture.notices(), NOTHING, "too early");
    fixture.tick(19_000);
    assert_eq!(fixture.notices(), [format!("error NOT_FOUND {MISSING}")]);
    assert_eq!(fixture.cache.deadline(), None);
}

#[test]
fn x1_a88_the_transient_timer_is_30_s_and_means_a_slow_server() {
    let mut fixture = Fixture::new(SLOW);
    fixture.watch(WEB, 1);
    fixture.send(4_000, &[WEB]);
    assert_eq!(fixture.cache.deadline(), Some(at(34_000)));
    fixture.cache.tick(at(34_000).minus(Duration::from_micros(1)), &mut fixture.out);
    assert_eq!(fixture.notices(), NOTHING, "too early");
    fixture.tick(34_000);
    assert_eq!(fixture.notices(), [format!("error UNAVAILABLE {LATE}")]);
    assert_eq!(fixture.cache.deadline(), None);
}

#[test]
fn x1_a88_the_error_of_a_timer_rejects_nothing() {
    for policy in ALL_POLICIES {
        let mut fixture = Fixture::requested(policy);
        fixture.tick(30_000);
        assert_eq!(fixture.error().map(|error| (error.reason, error.rejected)), Some((Reason::Timer, None)));
    }
}

#[test]
fn x1_a88_a_received_resource_never_times_out() {
    let mut fixture = Fixture::cached(KEEP);
    assert_eq!(fixture.cache.deadline(), None);
    fixture.tick(3_600_000);
    assert_eq!((fixture.notices(), fixture.state()), (Vec::new(), "acked"));
}

#[test]
fn x1_a88_an_invalid_resource_stops_the_timer() {
    let mut fixture = Fixture::requested(KEEP);
    fixture.nack("no address");
    assert_eq!(fixture.cache.deadline(), None);
}

#[test]
fn x1_a88_a_reported_error_stops_the_timer() {
    for policy in ALL_POLICIES {
        for code in [Code::NotFound, Code::Unavailable] {
            let mut fixture = Fixture::requested(policy);
            fixture.report(code, "not now");
            assert_eq!((fixture.cache.deadline(), fixture.state()), (None, "received_error"));
        }
    }
}

#[test]
fn x1_a88_absence_before_the_first_response_is_the_timers() {
    for policy in ALL_POLICIES {
        let mut fixture = Fixture::requested(policy);
        fixture.delete();
        assert_eq!((fixture.notices(), fixture.state()), (Vec::new(), "requested"));
        assert_eq!(fixture.cache.deadline(), Some(at(0).plus(policy.resource_timeout())));
    }
}

#[test]
fn x1_a57_the_end_of_the_stream_stops_the_timer() {
    let mut fixture = Fixture::requested(KEEP);
    fixture.cache.stop_timers();
    fixture.tick(14_000);
    assert_eq!((fixture.cache.deadline(), fixture.notices()), (None, Vec::new()));
    fixture.send(20_000, &[WEB]);
    assert_eq!(fixture.cache.deadline(), Some(at(35_000)));
}

#[test]
fn x1_a57_no_timer_runs_for_a_cached_resource_on_a_new_stream() {
    let mut fixture = Fixture::cached(KEEP);
    fixture.cache.stop_timers();
    fixture.send(20_000, &[WEB]);
    assert_eq!(fixture.cache.deadline(), None);
    fixture.delete();
    fixture.send(30_000, &[WEB]);
    assert_eq!((fixture.cache.deadline(), fixture.state()), (None, "does_not_exist_but_cached"));
}

#[test]
fn x1_a57_a_new_stream_starts_the_timer_in_any_state() {
    let faults: [fn(&mut Fixture); 4] = [
        |fixture| fixture.nack("no address"),
        |fixture| fixture.report(Code::NotFound, "no such service"),
        |fixture| fixture.report(Code::Unavailable, "not now"),
        |fixture| fixture.tick(30_000),
    ];
    for policy in ALL_POLICIES {
        for fault in faults {
            let mut fixture = Fixture::requested(policy);
            fault(&mut fixture);
            let (state, error) = (fixture.state(), fixture.error());
            fixture.notices();
            fixture.cache.stop_timers();
            assert_eq!(fixture.cache.deadline(), None);
            fixture.send(40_000, &[WEB]);
            let fires = at(40_000).plus(policy.resource_timeout());
            assert_eq!(fixture.cache.deadline(), Some(fires), "{state}");
            assert_eq!(
                (fixture.state(), fixture.error()),
                (state, error),
                "what was wrong is known until then"
            );
            assert_eq!(fixture.cache.tick(fires, &mut fixture.out), [WEB]);
            assert_eq!(fixture.error().map(|error| error.reason), Some(Reason::Timer));
            let again = usize::from(!["does_not_exist", "timeout"].contains(&state));
            assert_eq!(
                fixture.notices().len(),
                again,
                "{state}: what is known already is not reported again"
            );
        }
    }
}

#[test]
fn x1_a88_only_the_next_stream_times_a_removed_resource() {
    let mut fixture = Fixture::cached(DROP);
    fixture.delete();
    assert_eq!((fixture.cache.deadline(), fixture.state()), (None, "does_not_exist"));
    fixture.cache.stop_timers();
    fixture.send(20_000, &[WEB]);
    assert_eq!(fixture.cache.deadline(), Some(at(35_000)));
    fixture.receive(8, "2");
    assert_eq!(fixture.cache.deadline(), None);
}

#[test]
fn x1_a57_another_request_does_not_restart_a_timer() {
    let mut fixture = Fixture::requested(KEEP);
    fixture.send(10_000, &[WEB]);
    assert_eq!(fixture.cache.deadline(), Some(at(15_000)));
}

#[test]
fn x1_a57_each_resource_has_its_own_timer() {
    let mut fixture = two(KEEP);
    fixture.send(0, &[WEB]);
    fixture.send(5_000, &[WEB, "shop"]);
    assert_eq!(fixture.cache.deadline(), Some(at(15_000)));
    fixture.tick(15_000);
    assert_eq!(fixture.notices(), [format!("error NOT_FOUND {MISSING}")]);
    assert_eq!(fixture.cache.deadline(), Some(at(20_000)));
    fixture.tick(20_000);
    assert_eq!(fixture.all_notices(), [format!("shop 1: error NOT_FOUND {MISSING}")]);
    assert_eq!(fixture.cache.deadline(), None);
}

#[test]
fn x1_due_timers_fire_together_however_late_the_tick() {
    let mut fixture = two(KEEP);
    fixture.send(1_000, &["shop"]);
    fixture.send(2_000, &[WEB]);
    fixture.tick(90_000);
    let expected = ["shop", "web"].map(|key| format!("{key} 1: error NOT_FOUND {MISSING}"));
    assert_eq!(fixture.all_notices(), expected, "in the order in which they were due");
    fixture.tick(90_000);
    assert_eq!(fixture.all_notices(), NOTHING, "once");
}

#[test]
fn x1_an_unwatched_resource_does_not_time_out() {
    let mut fixture = Fixture::requested(KEEP);
    assert!(fixture.cache.unwatch(&WEB, &1));
    assert_eq!(fixture.cache.deadline(), None);
    fixture.watch(WEB, 1);
    assert_eq!(fixture.cache.deadline(), None, "it has to be asked for again");
    fixture.send(8_000, &[WEB]);
    assert_eq!(fixture.cache.deadline(), Some(at(23_000)));
}

#[test]
fn x1_a_request_without_watchers_starts_no_timer() {
    let mut fixture = Fixture::new(KEEP);
    fixture.send(0, &[WEB]);
    assert_eq!(fixture.cache.deadline(), None);
}

#[test]
fn x1_a71_a_timer_counts_for_the_server_it_was_set_for() {
    let mut fixture = two(KEEP);
    fixture.send(0, &[WEB]);
    fixture.cache.set_policy(SLOW);
    fixture.send(1_000, &["shop"]);
    fixture.tick(15_000);
    assert_eq!(
        (fixture.notices(), fixture.state()),
        (vec![format!("error NOT_FOUND {MISSING}")], "does_not_exist")
    );
    assert_eq!(fixture.cache.deadline(), Some(at(31_000)));
    fixture.cache.set_policy(KEEP);
    fixture.tick(31_000);
    assert_eq!(fixture.all_notices(), [format!("shop 1: error UNAVAILABLE {LATE}")]);
}

#[test]
fn x1_a88_a_resource_that_arrives_after_its_timer_is_used() {
    for policy in ALL_POLICIES {
        let mut fixture = Fixture::requested(policy);
        fixture.tick(30_000);
        assert_eq!(fixture.notices().len(), 1);
        fixture.receive(7, "1");
        assert_eq!((fixture.notices(), fixture.state()), (vec![String::from("value 7")], "acked"));
    }
}
