//! A88's "Summary of Behavior Changes", row by row, from the stream to the watcher; and its rules for late watchers
//! and for ambient errors that end.

use super::*;

fn c() -> ResourceKey {
    cluster("c")
}

fn x() -> ResourceKey {
    endpoints("x")
}

/// Returns a client that has requested both resources, and has received them if `is_cached`.
fn start(policy: Policy, is_cached: bool) -> Run {
    let mut run = Run::watching_with(policy, &[c(), x()]);
    if is_cached {
        run.respond(ResourceKind::Cluster, "1", "a", vec![good(&c(), 1)]);
        run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    }
    run
}

/// Returns the notices to a late watcher of a resource.
fn late(run: &mut Run, key: &ResourceKey) -> Vec<String> {
    run.step(In::Watch(key.clone(), WatcherId(2)));
    run.notices()
}

fn in_use(run: &Run, key: &ResourceKey) -> bool {
    run.shown(key).is_some_and(|shown| shown.cached.is_some())
}

/// Ends the stream without a response. If the resources must be cached, the previous stream has delivered them.
fn lose(run: &mut Run, is_cached: bool) {
    if is_cached {
        run.fail(0);
        assert_eq!(run.notices(), [""; 0]);
        run.wait();
    }
    run.fail(0);
}

#[test]
fn x1_a88_ads_stream_failed_early_fails_uncached() {
    for policy in [PLAIN, FAILS, PATIENT] {
        let mut run = start(policy, false);
        lose(&mut run, false);
        assert_eq!(run.notices(), ["c fails: UNAVAILABLE", "x fails: UNAVAILABLE"], "{policy:?}");
        assert_eq!((run.state(&c()), run.state(&x())), ("requested", "requested"));
    }
}

#[test]
fn x1_a88_a_stream_failed_early_is_ambient_for_cached() {
    for policy in [PLAIN, FAILS, PATIENT] {
        let mut run = start(policy, true);
        lose(&mut run, true);
        assert_eq!(run.notices(), ["c ambient: UNAVAILABLE", "x ambient: UNAVAILABLE"], "{policy:?}");
        assert_eq!((run.state(&c()), run.state(&x())), ("acked", "acked"));
    }
}

#[test]
fn x1_a88_transient_failure_of_the_channel_is_a_failed_stream() {
    let mut run = Run::with(&[PLAIN]);
    run.watch(&x());
    run.fail(0);
    assert_eq!(run.notices(), ["x fails: UNAVAILABLE"], "no transport was ever connected");
    assert!(run.words().contains("one:1") && run.words().contains("tcp connect error"), "{}", run.words());
}

#[test]
fn x1_a88_nack_fails_an_uncached_resource() {
    for policy in [PLAIN, FAILS] {
        for key in [c(), x()] {
            let mut run = start(policy, false);
            run.respond(key.kind, "2", "b", vec![bad(&key)]);
            assert_eq!(run.notices(), [format!("{} fails: INVALID_ARGUMENT", key.name)]);
            assert_eq!(run.state(&key), "nacked");
        }
    }
}

#[test]
fn x1_a88_nack_is_ambient_for_a_cached_resource() {
    for key in [c(), x()] {
        let mut run = start(PLAIN, true);
        run.respond(key.kind, "2", "b", vec![bad(&key)]);
        assert_eq!(run.notices(), [format!("{} ambient: INVALID_ARGUMENT", key.name)]);
        assert_eq!(run.state(&key), "nacked_but_cached");
    }
}

#[test]
fn x1_a88_nack_drops_a_cached_one_under_fail_on_data_errors() {
    for key in [c(), x()] {
        let mut run = start(FAILS, true);
        run.respond(key.kind, "2", "b", vec![bad(&key)]);
        assert_eq!(run.notices(), [format!("{} fails: INVALID_ARGUMENT", key.name)]);
        assert_eq!((run.state(&key), in_use(&run, &key)), ("nacked", false));
    }
}

#[test]
fn x1_a88_resource_timeout_after_15_s_means_does_not_exist() {
    for policy in [PLAIN, FAILS] {
        let mut run = start(policy, false);
        run.pass(14_999);
        assert_eq!(run.notices(), [""; 0]);
        run.pass(1);
        assert_eq!(run.notices(), ["c fails: NOT_FOUND", "x fails: NOT_FOUND"]);
        assert_eq!((run.state(&c()), run.state(&x())), ("does_not_exist", "does_not_exist"));
    }
}

#[test]
fn x1_a88_a_transient_timeout_is_30_s_and_unavailable() {
    let mut run = start(PATIENT, false);
    run.pass(29_999);
    assert_eq!(run.notices(), [""; 0]);
    run.pass(1);
    assert_eq!(run.notices(), ["c fails: UNAVAILABLE", "x fails: UNAVAILABLE"]);
    assert_eq!((run.state(&c()), run.state(&x())), ("timeout", "timeout"));
}

#[test]
fn x1_a88_a_cached_resource_has_no_timeout() {
    let mut run = start(PLAIN, true);
    assert_eq!(run.waits(), None);
    run.fail(0);
    run.wait();
    run.connect(0);
    assert_eq!(run.waits(), None, "nor on the next stream");
}

#[test]
fn x1_a88_cds_resource_deletion_is_ambient_and_shown() {
    let mut run = start(PLAIN, true);
    run.respond(ResourceKind::Cluster, "2", "b", Vec::new());
    assert_eq!(run.notices(), ["c ambient: NOT_FOUND"]);
    assert_eq!((run.state(&c()), in_use(&run, &c())), ("does_not_exist_but_cached", true));
    assert_eq!(run.requests(), ["cds 2/b c"], "the response is accepted");
    run.respond(ResourceKind::Cluster, "3", "c", Vec::new());
    assert_eq!(run.notices(), [""; 0], "it is told once");
}

#[test]
fn x1_a88_cds_resource_deletion_drops_under_fail_on_data_errors() {
    let mut run = start(FAILS, true);
    run.respond(ResourceKind::Cluster, "2", "b", Vec::new());
    assert_eq!(run.notices(), ["c fails: NOT_FOUND"]);
    assert_eq!((run.state(&c()), in_use(&run, &c())), ("does_not_exist", false));
}

#[test]
fn x1_a88_cds_resource_deletion_ends_with_the_same_cluster() {
    let mut run = start(PLAIN, true);
    run.respond(ResourceKind::Cluster, "2", "b", Vec::new());
    run.respond(ResourceKind::Cluster, "3", "c", vec![good(&c(), 1)]);
    assert_eq!((run.notices(), run.state(&c())), (vec!["c ambient: OK".to_owned()], "acked"));
}

#[test]
fn x1_a88_endpoints_are_not_deleted_by_their_absence() {
    for policy in [PLAIN, FAILS] {
        let mut run = start(policy, true);
        run.respond(ResourceKind::Endpoints, "2", "b", Vec::new());
        assert_eq!((run.notices(), run.state(&x())), (Vec::new(), "acked"));
    }
}

#[test]
fn x1_a88_tp3_data_error_fails_an_uncached_resource() {
    for code in [Code::NotFound, Code::PermissionDenied] {
        for policy in [PLAIN, FAILS, PATIENT] {
            let mut run = start(policy, false);
            run.report(ResourceKind::Endpoints, "2", "b", vec![reported("x", code)]);
            assert_eq!(run.notices(), [format!("x fails: {code}")]);
            assert_eq!(run.state(&x()), "received_error");
        }
    }
}

#[test]
fn x1_a88_tp3_data_error_is_ambient_for_a_cached_resource() {
    for code in [Code::NotFound, Code::PermissionDenied] {
        let mut run = start(PLAIN, true);
        run.report(ResourceKind::Endpoints, "2", "b", vec![reported("x", code)]);
        assert_eq!(run.notices(), [format!("x ambient: {code}")]);
        assert_eq!((run.state(&x()), in_use(&run, &x())), ("received_error_but_cached", true));
    }
}

#[test]
fn x1_a88_tp3_data_error_drops_with_fail_on_data_errors() {
    for code in [Code::NotFound, Code::PermissionDenied] {
        let mut run = start(FAILS, true);
        run.report(ResourceKind::Endpoints, "2", "b", vec![reported("x", code)]);
        assert_eq!(run.notices(), [format!("x fails: {code}")]);
        assert_eq!((run.state(&x()), in_use(&run, &x())), ("received_error", false));
    }
}

#[test]
fn x1_a88_tp3_other_errors_are_ambient_for_cached() {
    let others = Code::ALL.into_iter().filter(|code| !code.is_data_error() && *code != Code::Ok);
    for code in others {
        for policy in [PLAIN, FAILS, PATIENT] {
            let mut run = start(policy, false);
            run.report(ResourceKind::Cluster, "2", "b", vec![reported("c", code)]);
            assert_eq!(
                (run.notices(), run.state(&c())),
                (vec![format!("c fails: {code}")], "received_error")
            );
            let mut run = start(policy, true);
            run.report(ResourceKind::Cluster, "2", "b", vec![reported("c", code)]);
            let notices = vec![format!("c ambient: {code}")];
            assert_eq!((run.notices(), run.state(&c())), (notices, "received_error_but_cached"));
        }
    }
}

#[test]
fn x1_a88_a_late_watcher_gets_resource_and_ambient_error() {
    let mut run = start(PLAIN, true);
    run.respond(ResourceKind::Endpoints, "2", "b", vec![bad(&x())]);
    assert_eq!(late(&mut run, &x()), ["x is 1", "x ambient: INVALID_ARGUMENT"]);
    assert_eq!(late(&mut run, &c()), ["c is 1"]);
}

#[test]
fn x1_a88_a_late_watcher_gets_the_reason_of_absence() {
    let mut run = start(PLAIN, false);
    assert_eq!(late(&mut run, &x()), [""; 0]);
    run.respond(ResourceKind::Cluster, "2", "b", vec![bad(&c())]);
    assert_eq!(late(&mut run, &c()), ["c fails: INVALID_ARGUMENT"]);
}

#[test]
fn x1_a88_a_late_watcher_sees_an_unreachable_server() {
    let mut run = start(PLAIN, true);
    lose(&mut run, true);
    assert_eq!(late(&mut run, &x()), ["x is 1", "x ambient: UNAVAILABLE"]);
    assert_eq!(late(&mut run, &endpoints("y")), ["y fails: UNAVAILABLE"]);
}

#[test]
fn x1_a88_an_ambient_error_ends_with_the_next_good_resource() {
    for (n, notices) in [(1, "x ambient: OK"), (2, "x is 3")] {
        let mut run = start(PLAIN, true);
        run.respond(ResourceKind::Endpoints, "2", "b", vec![bad(&x())]);
        run.respond(ResourceKind::Endpoints, "3", "c", vec![good(&x(), n)]);
        assert_eq!((run.notices(), run.state(&x())), (vec![notices.to_owned()], "acked"));
    }
}

#[test]
fn x1_a88_an_unreachable_server_ends_with_a_response() {
    let mut run = start(PLAIN, true);
    lose(&mut run, true);
    run.wait();
    run.connect(0);
    assert_eq!(run.notices(), [""; 0], "it has not answered yet");
    run.respond(ResourceKind::Endpoints, "2", "b", Vec::new());
    assert_eq!(run.notices(), ["c ambient: OK", "x ambient: OK"], "also of what is not sent again");
}

#[test]
fn x1_a88_a_resources_error_outlasts_the_servers() {
    let mut run = start(PLAIN, true);
    run.respond(ResourceKind::Endpoints, "2", "b", vec![bad(&x())]);
    lose(&mut run, true);
    assert_eq!(run.notices(), ["c ambient: UNAVAILABLE", "x ambient: UNAVAILABLE"]);
    run.wait();
    run.respond(ResourceKind::Endpoints, "2", "b", Vec::new());
    assert_eq!(run.notices(), ["c ambient: OK", "x ambient: INVALID_ARGUMENT"]);
}

#[test]
fn x1_a88_each_update_of_a_resource_is_notified() {
    let mut run = start(PLAIN, true);
    for n in 2..6 {
        run.respond(ResourceKind::Endpoints, &n.to_string(), "n", vec![good(&x(), n)]);
        assert_eq!(run.notices(), [format!("x is {n}")]);
    }
}
