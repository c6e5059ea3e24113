//! Fallback from one server of the list to the next, and back (A71).

use super::*;

fn x() -> ResourceKey {
    endpoints("x")
}

fn y() -> ResourceKey {
    endpoints("y")
}

fn eds(version: &str, nonce: &str, resources: Vec<Received>) -> Response {
    response(ResourceKind::Endpoints, version, nonce, resources)
}

/// Creates a client with two servers. The first has sent `x`, and then its stream has ended.
fn cached() -> Run {
    let mut run = Run::with(&[PLAIN, PLAIN]);
    run.watch(&x());
    run.respond_from(0, eds("1", "a", vec![good(&x(), 1)]));
    run.fail(0);
    run.wait();
    run
}

/// Creates a client with two servers. The first is unreachable, and the second has sent `x`.
fn fallen(policies: [Policy; 2]) -> Run {
    let mut run = Run::with(&policies);
    run.watch(&x());
    run.fail(0);
    run.respond_from(1, eds("7", "p", vec![good(&x(), 7)]));
    run
}

#[test]
fn x2_a71_only_the_first_server_is_used_while_it_answers() {
    let mut run = Run::with(&[PLAIN, PLAIN, PLAIN]);
    run.watch(&x());
    run.watch(&y());
    run.connect(0);
    assert_eq!(run.open.keys().copied().collect::<Vec<usize>>(), [0]);
}

#[test]
fn x2_a71_the_next_server_is_used_when_the_first_fails() {
    let mut run = Run::with(&[PLAIN, PLAIN]);
    run.watch(&x());
    run.watch(&cluster("c"));
    run.fail(0);
    assert_eq!(run.requests(), ["cds / c node", "eds / x"]);
    assert_eq!(run.notices(), [""; 0], "watchers hear of it when all servers fail");
    run.respond_from(1, eds("7", "p", vec![good(&x(), 7)]));
    assert_eq!((run.notices(), run.requests()), (vec!["x is 7".to_owned()], vec!["eds 7/p x".to_owned()]));
}

#[test]
fn x2_a71_watchers_get_the_last_servers_failure() {
    let mut run = Run::with(&[PLAIN, PLAIN, PLAIN]);
    run.watch(&x());
    run.fail(0);
    run.fail(1);
    assert_eq!(run.notices(), [""; 0]);
    run.fail(2);
    assert_eq!(run.notices(), ["x fails: UNAVAILABLE"]);
    assert!(run.words().contains("three:3"), "{}", run.words());
    run.wait();
    run.fail(0);
    assert_eq!(run.notices(), [""; 0], "the others' failures were known");
}

#[test]
fn x2_a71_cached_resources_need_no_next_server() {
    let mut run = cached();
    run.fail(0);
    assert_eq!((run.notices(), run.requests()), (vec!["x ambient: UNAVAILABLE".to_owned()], Vec::new()));
}

#[test]
fn x2_a71_a_new_watch_may_need_the_next_server() {
    let mut run = cached();
    run.fail(0);
    run.watch(&y());
    assert_eq!(run.requests(), ["eds / x y node"]);
    run.respond_from(1, eds("7", "p", vec![good(&y(), 1)]));
    assert_eq!(run.notices(), ["x ambient: OK", "y ambient: OK", "y is 7"]);
    let cached = run.shown(&x()).and_then(|shown| shown.cached).expect("it is in use");
    assert_eq!(&*cached.version, "1", "what is cached stays");
}

#[test]
fn x2_a71_errors_of_resources_cause_no_fallback() {
    let mut run = Run::with(&[PLAIN, PLAIN]);
    for name in ["late", "bad", "none", "good"] {
        run.watch(&endpoints(name));
    }
    run.connect(0);
    let errors = vec![reported("none", Code::NotFound)];
    let resources = vec![bad(&endpoints("bad")), good(&endpoints("good"), 1)];
    run.respond_from(0, Response { errors, ..eds("1", "a", resources) });
    run.pass(15_000);
    assert_eq!((run.notices(), run.requests()), (vec!["late fails: NOT_FOUND".to_owned()], Vec::new()));
    run.fail(0);
    run.wait();
    run.fail(0);
    assert_eq!(run.requests(), [""; 0], "what is known not to exist counts as cached");
    assert_eq!(run.notices().len(), 4);
}

#[test]
fn x2_a71_a_silent_stream_leads_to_the_next_server() {
    let mut run = Run::with(&[PLAIN, PLAIN]);
    run.watch(&x());
    run.connect(0);
    run.report(ResourceKind::Endpoints, "1", "a", vec![reported("x", Code::NotFound)]);
    run.fail(0);
    run.wait();
    run.connect(0);
    run.pass(15_000);
    assert_eq!((run.state(&x()), run.requests()), ("does_not_exist", Vec::new()));
    run.fail(0);
    assert_eq!(run.requests(), ["eds / x node"]);
}

#[test]
fn x2_a71_a_timeout_at_a_failing_server_falls_back() {
    let mut run = Run::with(&[PLAIN, PLAIN]);
    run.watch(&x());
    run.connect(0);
    run.report(ResourceKind::Endpoints, "1", "a", vec![reported("x", Code::NotFound)]);
    for _ in 0..2 {
        run.fail(0);
        run.wait();
    }
    run.requests();
    run.connect(0);
    run.pass(15_000);
    assert_eq!(run.requests(), ["eds / x node"], "of the second one");
    run.respond_from(1, eds("1", "a", vec![good(&x(), 1)]));
    assert_eq!(run.state(&x()), "acked");
}

#[test]
fn x2_a71_a_silent_servers_resource_comes_from_the_next() {
    for (policy, millis) in [(PLAIN, 15_000), (PATIENT, 30_000)] {
        let mut run = Run::with(&[policy, PLAIN]);
        run.watch(&x());
        run.connect(0);
        run.pass(millis);
        assert_eq!((run.notices().len(), run.requests()), (1, Vec::new()), "the server is not known to fail");
        run.fail(0);
        assert_eq!(run.requests(), ["eds / x node"]);
        run.respond_from(1, eds("1", "a", vec![good(&x(), 1)]));
        assert_eq!(run.notices(), ["x is 1"]);
    }
}

#[test]
fn x2_a71_a_slow_servers_resource_comes_from_the_next() {
    for (policy, asks) in [(PLAIN, vec![]), (PATIENT, vec!["eds / late x node".to_owned()])] {
        let mut run = Run::with(&[policy, PLAIN]);
        run.watch(&x());
        run.watch(&endpoints("late"));
        run.connect(0);
        run.respond_from(0, eds("1", "a", vec![good(&x(), 1)]));
        run.pass(30_000);
        run.fail(0);
        run.wait();
        run.fail(0);
        assert_eq!(run.requests(), asks);
    }
}

#[test]
fn x2_a71_no_version_is_claimed_from_a_returned_server() {
    let mut run = Run::with(&[PLAIN, PLAIN]);
    run.watch(&x());
    run.respond_from(0, eds("1", "a", vec![good(&x(), 1)]));
    run.fail(0);
    assert_eq!(run.wait(), 1_000);
    assert_eq!(run.requests(), ["eds 1/ x node"], "a stream that ended after a response is not a failure");
    run.fail(0);
    assert_eq!(run.notices(), ["x ambient: UNAVAILABLE"]);
    run.wait();
    assert_eq!(
        run.requests(),
        ["eds / x node"],
        "a server that is told of a version may rightly say nothing"
    );
    run.respond_from(0, eds("1", "a", vec![good(&x(), 1)]));
    assert_eq!(run.notices(), ["x ambient: OK"]);
}

#[test]
fn x2_a71_a_stream_that_ends_after_a_response_stays_first() {
    let mut run = Run::with(&[PLAIN, PLAIN]);
    run.watch(&x());
    run.respond_from(0, eds("1", "a", Vec::new()));
    run.fail(0);
    assert_eq!((run.notices(), run.requests()), (Vec::new(), Vec::new()));
}

#[test]
fn x2_a71_the_first_servers_response_closes_the_others() {
    let mut run = Run::with(&[PLAIN, PLAIN, PLAIN]);
    run.watch(&x());
    run.fail(0);
    run.fail(1);
    run.respond_from(2, eds("7", "p", vec![good(&x(), 7)]));
    assert_eq!(run.wait(), 1_000);
    assert_eq!(run.open.keys().copied().collect::<Vec<usize>>(), [0, 1, 2], "both are tried");
    let lower = [run.stream(1), run.stream(2)];
    run.respond_from(0, eds("1", "a", vec![good(&x(), 1)]));
    assert_eq!((run.closed(), run.notices()), (lower.to_vec(), vec!["x is 1".to_owned()]));
    assert_eq!(run.waits(), None);
}

#[test]
fn x2_a71_a_middle_server_takes_over_from_those_behind_it() {
    let mut run = Run::with(&[PLAIN, PLAIN, PLAIN]);
    run.watch(&x());
    run.fail(0);
    run.fail(1);
    run.respond_from(2, eds("7", "p", vec![good(&x(), 7)]));
    run.wait();
    let third = run.stream(2);
    run.respond_from(1, eds("1", "a", vec![good(&x(), 1)]));
    assert_eq!(run.closed(), [third]);
    assert_eq!(run.open.keys().copied().collect::<Vec<usize>>(), [0, 1], "the first is tried on");
}

#[test]
fn x2_a71_the_next_servers_resources_stay_until_replaced() {
    let mut run = fallen([PLAIN, PLAIN]);
    run.wait();
    run.respond_from(0, eds("1", "a", Vec::new()));
    assert_eq!((run.notices(), run.state(&x())), (Vec::new(), "acked"));
    let used = |run: &Run| run.shown(&x()).and_then(|shown| shown.cached).expect("it is in use");
    assert_eq!((&*used(&run).version, used(&run).value), ("7", value(&x(), 7)));
    run.respond_from(0, eds("2", "b", vec![good(&x(), 1)]));
    assert_eq!((run.notices(), run.state(&x())), (vec!["x is 2".to_owned()], "acked"));
    assert_eq!((&*used(&run).version, used(&run).value), ("2", value(&x(), 1)));
}

#[test]
fn x2_a71_no_version_is_claimed_with_another_servers_data() {
    let mut run = cached();
    run.watch(&y());
    run.fail(0);
    assert_eq!(run.requests(), ["eds / x y node"]);
    run.respond_from(1, eds("7", "p", vec![good(&x(), 7), good(&y(), 7)]));
    run.wait();
    assert_eq!(run.requests(), ["eds / x y node"], "the first server has to send x again");
    run.respond_from(0, eds("1", "a", vec![good(&x(), 1), good(&y(), 1)]));
    run.fail(0);
    run.wait();
    assert_eq!(run.requests(), ["eds 1/ x y node"]);
}

#[test]
fn x2_a71_the_first_server_deletes_clusters_of_the_next() {
    let mut run = Run::with(&[PLAIN, PLAIN]);
    let (c, d) = (cluster("c"), cluster("d"));
    run.watch(&c);
    run.fail(0);
    run.respond_from(1, response(ResourceKind::Cluster, "7", "p", vec![good(&c, 7)]));
    run.wait();
    run.watch(&d);
    run.respond_from(1, response(ResourceKind::Cluster, "8", "q", vec![good(&c, 7), good(&d, 7)]));
    run.respond_from(0, response(ResourceKind::Cluster, "1", "a", Vec::new()));
    assert_eq!(run.notices(), ["c ambient: NOT_FOUND"], "of d the server may not have heard by then");
    assert_eq!(run.state(&d), "acked");
}

#[test]
fn x2_a71_the_features_are_those_of_the_server_that_is_in_use() {
    let mut run = fallen([PLAIN, FAILS]);
    run.respond_from(1, eds("8", "q", vec![bad(&x())]));
    assert_eq!((run.notices(), run.state(&x())), (vec!["x fails: INVALID_ARGUMENT".to_owned()], "nacked"));
    run.wait();
    run.respond_from(0, eds("1", "a", vec![good(&x(), 1)]));
    run.respond_from(0, eds("2", "b", vec![bad(&x())]));
    assert_eq!(run.state(&x()), "nacked_but_cached");
}

#[test]
fn x2_a71_the_timers_are_those_of_the_server_that_is_in_use() {
    let mut run = Run::with(&[PLAIN, PATIENT]);
    run.watch(&x());
    run.connect(0);
    run.pass(14_000);
    run.fail(0);
    assert_eq!(run.wait(), 1_000, "only the first server is tried again");
    run.connect(0);
    assert_eq!(run.waits(), None, "its silence says nothing");
    run.connect(1);
    assert_eq!(run.waits(), Some(30_000));
    run.pass(20_000);
    run.fail(0);
    assert_eq!(run.wait(), 1_600, "the end of its stream stops no timer of the other's");
    assert_eq!(run.wait(), 8_400);
    assert_eq!(run.notices(), ["x fails: UNAVAILABLE"]);
    assert_eq!(run.state(&x()), "timeout");
}

#[test]
fn x2_a71_pending_resources_get_new_timers_at_the_first() {
    let mut run = Run::with(&[PLAIN, PATIENT]);
    run.watch(&x());
    run.watch(&y());
    run.fail(0);
    run.connect(1);
    run.wait();
    run.connect(0);
    run.pass(5_000);
    run.respond_from(0, eds("1", "a", vec![good(&x(), 1)]));
    assert_eq!((run.state(&y()), run.waits()), ("requested", Some(15_000)));
}

#[test]
fn x2_a71_the_next_server_is_left_when_nothing_is_watched() {
    let mut run = fallen([PLAIN, PLAIN]);
    let second = run.stream(1);
    run.unwatch(&x());
    assert_eq!((run.closed(), run.waits()), (vec![second], None));
    run.watch(&x());
    assert_eq!(run.wait(), 1_000, "the first server is the first again");
    assert_eq!(run.open.keys().copied().collect::<Vec<usize>>(), [0]);
}

#[test]
fn x2_a71_changed_names_go_to_every_server_in_use() {
    let mut run = fallen([PLAIN, PLAIN]);
    run.wait();
    run.connect(0);
    run.watch(&y());
    assert_eq!(run.requests(), ["eds / x y", "eds 7/p x y"]);
}
