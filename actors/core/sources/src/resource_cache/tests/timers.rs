//! When the timers of resources run, what stops them, and their errors (A57, A88).

use super::*;

/// Watcher 1 watches `web` and `shop`.
fn two(policy: Policy) -> Bench {
    let mut bench = Bench::new(policy);
    bench.watch(WEB, 1);
    bench.watch("shop", 1);
    bench
}

#[test]
fn x1_a57_no_timer_runs_before_the_request_was_sent() {
    let mut bench = Bench::new(KEEP);
    bench.watch(WEB, 1);
    bench.tick(3_600_000);
    assert_eq!((bench.cache.deadline(), bench.notices(), bench.state()), (None, Vec::new(), "requested"));
}

#[test]
fn x1_a88_the_default_timer_is_15_s_and_means_does_not_exist() {
    let mut bench = Bench::new(KEEP);
    bench.watch(WEB, 1);
    bench.send(4_000, &[WEB]);
    assert_eq!(bench.cache.deadline(), Some(at(19_000)));
    bench.cache.tick(at(19_000).minus(Duration::from_micros(1)), &mut bench.out);
    assert_eq!(bench.notices(), NOTHING, "too early");
    bench.tick(19_000);
    assert_eq!(bench.notices(), [format!("error NOT_FOUND {MISSING}")]);
    assert_eq!(bench.cache.deadline(), None);
}

#[test]
fn x1_a88_the_transient_timer_is_30_s_and_means_a_slow_server() {
    let mut bench = Bench::new(SLOW);
    bench.watch(WEB, 1);
    bench.send(4_000, &[WEB]);
    assert_eq!(bench.cache.deadline(), Some(at(34_000)));
    bench.cache.tick(at(34_000).minus(Duration::from_micros(1)), &mut bench.out);
    assert_eq!(bench.notices(), NOTHING, "too early");
    bench.tick(34_000);
    assert_eq!(bench.notices(), [format!("error UNAVAILABLE {LATE}")]);
    assert_eq!(bench.cache.deadline(), None);
}

#[test]
fn x1_a88_the_error_of_a_timer_rejects_nothing() {
    for policy in ALL_POLICIES {
        let mut bench = Bench::requested(policy);
        bench.tick(30_000);
        assert_eq!(bench.error().map(|error| (error.reason, error.rejected)), Some((Reason::Timer, None)));
    }
}

#[test]
fn x1_a88_a_resource_that_came_is_never_late() {
    let mut bench = Bench::cached(KEEP);
    assert_eq!(bench.cache.deadline(), None);
    bench.tick(3_600_000);
    assert_eq!((bench.notices(), bench.state()), (Vec::new(), "acked"));
}

#[test]
fn x1_a88_an_invalid_resource_stops_the_timer() {
    let mut bench = Bench::requested(KEEP);
    bench.nack("no address");
    assert_eq!(bench.cache.deadline(), None);
}

#[test]
fn x1_a88_a_reported_error_stops_the_timer() {
    for policy in ALL_POLICIES {
        for code in [Code::NotFound, Code::Unavailable] {
            let mut bench = Bench::requested(policy);
            bench.report(code, "not now");
            assert_eq!((bench.cache.deadline(), bench.state()), (None, "received_error"));
        }
    }
}

#[test]
fn x1_a88_absence_before_the_first_response_is_the_timers() {
    for policy in ALL_POLICIES {
        let mut bench = Bench::requested(policy);
        bench.delete();
        assert_eq!((bench.notices(), bench.state()), (Vec::new(), "requested"));
        assert_eq!(bench.cache.deadline(), Some(at(0).plus(policy.patience())));
    }
}

#[test]
fn x1_a57_the_end_of_the_stream_stops_the_timer() {
    let mut bench = Bench::requested(KEEP);
    bench.cache.stop_timers();
    bench.tick(14_000);
    assert_eq!((bench.cache.deadline(), bench.notices()), (None, Vec::new()));
    bench.send(20_000, &[WEB]);
    assert_eq!(bench.cache.deadline(), Some(at(35_000)));
}

#[test]
fn x1_a57_no_timer_runs_for_a_cached_resource_on_a_new_stream() {
    let mut bench = Bench::cached(KEEP);
    bench.cache.stop_timers();
    bench.send(20_000, &[WEB]);
    assert_eq!(bench.cache.deadline(), None);
    bench.delete();
    bench.send(30_000, &[WEB]);
    assert_eq!((bench.cache.deadline(), bench.state()), (None, "does_not_exist_but_cached"));
}

#[test]
fn x1_a57_a_new_stream_starts_the_timer_in_any_state() {
    let faults: [fn(&mut Bench); 4] = [
        |bench| bench.nack("no address"),
        |bench| bench.report(Code::NotFound, "no such service"),
        |bench| bench.report(Code::Unavailable, "not now"),
        |bench| bench.tick(30_000),
    ];
    for policy in ALL_POLICIES {
        for fault in faults {
            let mut bench = Bench::requested(policy);
            fault(&mut bench);
            let (state, error) = (bench.state(), bench.error());
            bench.notices();
            bench.cache.stop_timers();
            assert_eq!(bench.cache.deadline(), None);
            bench.send(40_000, &[WEB]);
            let fires = at(40_000).plus(policy.patience());
            assert_eq!(bench.cache.deadline(), Some(fires), "{state}");
            assert_eq!((bench.state(), bench.error()), (state, error), "what was wrong is known until then");
            assert_eq!(bench.cache.tick(fires, &mut bench.out), [WEB]);
            assert_eq!(bench.error().map(|error| error.reason), Some(Reason::Timer));
            let again = usize::from(!["does_not_exist", "timeout"].contains(&state));
            assert_eq!(bench.notices().len(), again, "{state}: what is known already is not reported again");
        }
    }
}

#[test]
fn x1_a88_only_the_next_stream_times_a_removed_resource() {
    let mut bench = Bench::cached(DROP);
    bench.delete();
    assert_eq!((bench.cache.deadline(), bench.state()), (None, "does_not_exist"));
    bench.cache.stop_timers();
    bench.send(20_000, &[WEB]);
    assert_eq!(bench.cache.deadline(), Some(at(35_000)));
    bench.receive(8, "2");
    assert_eq!(bench.cache.deadline(), None);
}

#[test]
fn x1_a57_a_timer_that_runs_is_not_prolonged_by_another_request() {
    let mut bench = Bench::requested(KEEP);
    bench.send(10_000, &[WEB]);
    assert_eq!(bench.cache.deadline(), Some(at(15_000)));
}

#[test]
fn x1_a57_each_resource_has_a_timer_of_its_own() {
    let mut bench = two(KEEP);
    bench.send(0, &[WEB]);
    bench.send(5_000, &[WEB, "shop"]);
    assert_eq!(bench.cache.deadline(), Some(at(15_000)));
    bench.tick(15_000);
    assert_eq!(bench.notices(), [format!("error NOT_FOUND {MISSING}")]);
    assert_eq!(bench.cache.deadline(), Some(at(20_000)));
    bench.tick(20_000);
    assert_eq!(bench.all_notices(), [format!("shop 1: error NOT_FOUND {MISSING}")]);
    assert_eq!(bench.cache.deadline(), None);
}

#[test]
fn x1_due_timers_fire_together_however_late_the_tick() {
    let mut bench = two(KEEP);
    bench.send(1_000, &["shop"]);
    bench.send(2_000, &[WEB]);
    bench.tick(90_000);
    let expected = ["shop", "web"].map(|key| format!("{key} 1: error NOT_FOUND {MISSING}"));
    assert_eq!(bench.all_notices(), expected, "in the order in which they were due");
    bench.tick(90_000);
    assert_eq!(bench.all_notices(), NOTHING, "once");
}

#[test]
fn x1_an_unwatched_resource_is_not_late() {
    let mut bench = Bench::requested(KEEP);
    assert!(bench.cache.unwatch(&WEB, &1));
    assert_eq!(bench.cache.deadline(), None);
    bench.watch(WEB, 1);
    assert_eq!(bench.cache.deadline(), None, "it has to be asked for again");
    bench.send(8_000, &[WEB]);
    assert_eq!(bench.cache.deadline(), Some(at(23_000)));
}

#[test]
fn x1_a_request_without_watchers_starts_no_timer() {
    let mut bench = Bench::new(KEEP);
    bench.send(0, &[WEB]);
    assert_eq!(bench.cache.deadline(), None);
}

#[test]
fn x1_a71_a_timer_counts_for_the_server_it_was_set_for() {
    let mut bench = two(KEEP);
    bench.send(0, &[WEB]);
    bench.cache.set_policy(SLOW);
    bench.send(1_000, &["shop"]);
    bench.tick(15_000);
    assert_eq!(
        (bench.notices(), bench.state()),
        (vec![format!("error NOT_FOUND {MISSING}")], "does_not_exist")
    );
    assert_eq!(bench.cache.deadline(), Some(at(31_000)));
    bench.cache.set_policy(KEEP);
    bench.tick(31_000);
    assert_eq!(bench.all_notices(), [format!("shop 1: error UNAVAILABLE {LATE}")]);
}

#[test]
fn x1_a88_a_resource_that_comes_after_its_timer_is_used() {
    for policy in ALL_POLICIES {
        let mut bench = Bench::requested(policy);
        bench.tick(30_000);
        assert_eq!(bench.notices().len(), 1);
        bench.receive(7, "1");
        assert_eq!((bench.notices(), bench.state()), (vec![String::from("value 7")], "acked"));
    }
}
