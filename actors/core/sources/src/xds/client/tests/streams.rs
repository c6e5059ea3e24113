//! Start and end of streams, and late resources (A57).

use super::*;

fn x() -> ResourceKey {
    endpoints("x")
}

fn y() -> ResourceKey {
    endpoints("y")
}

/// Returns the delays after streams without a response, in milliseconds.
fn waits(run: &mut Run, count: usize) -> Vec<u128> {
    let mut waits = Vec::new();
    for _ in 0..count {
        run.fail(0);
        waits.push(run.wait());
    }
    waits
}

#[test]
fn x2_a57_a_stream_without_a_response_is_a_connectivity_error() {
    let mut run = Run::with(&[PLAIN]);
    run.watch(&x());
    run.fail(0);
    assert_eq!(run.notices(), ["x fails: UNAVAILABLE"]);
    let words = "xDS server one:1: the stream ended without a response: tcp connect error";
    assert_eq!(run.words(), words);
}

#[test]
fn x2_a57_every_end_without_a_response_is_unavailable() {
    let table = [
        (Code::Ok, "", "it closed the stream without a response"),
        (
            Code::Cancelled,
            "operation was canceled",
            "the stream ended without a response: operation was canceled",
        ),
        (Code::Unauthenticated, "", "without a response: the server rejected the credentials"),
        (Code::Internal, "", "without a response: no reason is given"),
    ];
    for (code, message, words) in table {
        let mut run = Run::watching(&[x()]);
        run.end(0, StreamEnd { code, message: message.to_owned() });
        assert_eq!(run.notices(), ["x fails: UNAVAILABLE"]);
        assert!(run.words().ends_with(words), "{}", run.words());
        assert!(Code::ALL.iter().all(|code| !run.words().contains(code.as_str())), "X4: {}", run.words());
    }
}

#[test]
fn x2_a57_a_stream_that_ends_after_a_response_is_no_error() {
    let mut run = Run::watching(&[x(), y()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    run.fail(0);
    assert_eq!((run.notices(), run.samples()), (Vec::new(), Vec::new()));
    assert_eq!(run.waits(), Some(1_000), "the next stream opens after a delay, to spare the server");
    run.wait();
    assert_eq!(run.requests(), ["eds / x y node"]);
}

#[test]
fn x2_a57_streams_cut_soon_after_a_response_are_shown() {
    let cut = |code| StreamEnd { code, message: "decoded message length too large".to_owned() };
    let mut run = Run::watching(&[x(), y()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    for (times, code, millis, words) in [
        (1, Code::OutOfRange, 59_999, "the last stream was cut soon after a response: decoded message"),
        (2, Code::OutOfRange, 0, "the last 2 streams were cut soon after a response: decoded message"),
        (0, Code::Unavailable, 60_000, ""),
        (1, Code::Unavailable, 10, "the last stream was cut soon after a response"),
        (0, Code::Ok, 10, ""),
    ] {
        run.pass(millis);
        run.end(0, cut(code));
        let server = run.client.dump().servers.remove(0);
        assert_eq!((run.notices(), server.is_connected), (Vec::new(), true), "it is no error");
        assert_eq!(server.cut.is_some(), times > 0, "{code:?} {millis}");
        assert!(server.cut.unwrap_or_default().contains(words), "{times}");
        run.wait();
        run.connect(0);
        run.respond(ResourceKind::Endpoints, "1", "b", vec![good(&x(), 1)]);
        run.notices();
    }
}

#[test]
fn x2_a57_streams_cut_every_minute_are_no_error() {
    let mut run = Run::with(&[PLAIN, PLAIN]);
    run.watch(&x());
    for n in 1..=60 {
        run.connect(0);
        run.respond(ResourceKind::Endpoints, &n.to_string(), "a", vec![good(&x(), n)]);
        assert_eq!(run.notices(), [format!("x is {n}")], "changes arrive with the next stream");
        run.pass(60_000);
        run.fail(0);
        assert_eq!((run.notices(), run.samples(), run.waits()), (Vec::new(), Vec::new(), Some(1_000)));
        run.wait();
        assert_eq!(run.open.keys().collect::<Vec<_>>(), [&0], "there is no fallback to the next server");
    }
}

#[test]
fn x2_a57_a_response_without_resources_is_a_response() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "", "a", Vec::new());
    run.fail(0);
    assert_eq!(run.notices(), [""; 0]);
}

#[test]
fn x2_a57_the_backoff_grows_until_a_response() {
    let mut run = Run::with(&[PLAIN]);
    run.watch(&x());
    assert_eq!(waits(&mut run, 5), [1_000, 1_600, 2_560, 4_096, 6_553]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    assert_eq!(waits(&mut run, 3), [1_000, 1_600, 2_560]);
}

#[test]
fn x2_a57_the_backoff_ends_at_120_s_with_20_percent_jitter() {
    let mut run = Run::with(&[PLAIN]);
    run.watch(&x());
    waits(&mut run, 12);
    for (jitter, wait) in [(500, 120_000), (0, 96_000), (1_000, 144_000), (60_000, 144_000)] {
        run.end_with(0, unavailable(), jitter);
        assert_eq!(run.wait(), wait);
    }
}

#[test]
fn x2_a57_each_stream_requests_all_types_again() {
    let mut run = Run::watching(&[cluster("c"), x()]);
    run.fail(0);
    run.watch(&y());
    assert_eq!(run.requests(), [""; 0], "there is no stream for a request");
    run.wait();
    assert_eq!(run.requests(), ["cds / c node", "eds / x y"]);
}

#[test]
fn x2_a57_the_same_failure_is_reported_once() {
    let mut run = Run::with(&[PLAIN]);
    run.watch(&x());
    run.fail(0);
    run.wait();
    run.fail(0);
    assert_eq!(run.notices(), [""; 0]);
    run.wait();
    run.end(0, StreamEnd { code: Code::Unavailable, message: "dns error".to_owned() });
    assert_eq!(run.notices(), ["x fails: UNAVAILABLE"]);
}

#[test]
fn x2_a57_the_first_response_ends_the_connectivity_error() {
    let mut run = Run::with(&[PLAIN]);
    run.watch(&x());
    run.watch(&y());
    run.fail(0);
    run.wait();
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    assert_eq!(run.notices(), ["x ambient: OK", "y ambient: OK", "x is 1"]);
}

#[test]
fn x2_a57_timers_start_when_the_stream_is_connected() {
    let mut run = Run::with(&[PLAIN]);
    run.watch(&x());
    run.pass(100_000);
    assert_eq!((run.notices(), run.waits()), (Vec::new(), None));
    run.connect(0);
    assert_eq!(run.waits(), Some(15_000));
    run.wait();
    assert_eq!(run.notices(), ["x fails: NOT_FOUND"]);
}

#[test]
fn x2_a57_each_resource_has_its_own_timer() {
    let mut run = Run::watching(&[x()]);
    run.pass(10_000);
    run.pulls = false;
    run.watch(&y());
    run.pass(2_000);
    run.step(StreamEvent::Sent(run.stream(0), ResourceKind::Endpoints));
    assert_eq!(run.wait(), 3_000);
    assert_eq!(run.notices(), ["x fails: NOT_FOUND"], "the request for y does not restart the timer of x");
    assert_eq!(run.wait(), 12_000);
    assert_eq!(run.notices(), ["y fails: NOT_FOUND"]);
}

#[test]
fn x2_a57_no_timer_runs_without_a_connected_stream() {
    let mut run = Run::watching(&[x()]);
    run.pass(14_000);
    run.fail(0);
    assert_eq!(run.wait(), 1_000);
    run.pass(60_000);
    assert_eq!(run.notices(), [""; 0]);
    run.connect(0);
    assert_eq!(run.waits(), Some(15_000));
}

#[test]
fn x2_a57_a_response_implies_a_connected_stream() {
    let mut run = Run::with(&[PLAIN]);
    run.watch(&x());
    run.respond(ResourceKind::Endpoints, "1", "a", Vec::new());
    assert_eq!((run.requests(), run.waits()), (vec!["eds 1/a x".to_owned()], Some(15_000)));
}

#[test]
fn x2_a57_even_an_invalid_resource_stops_its_timer() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![bad(&x())]);
    assert_eq!(run.waits(), None);
    run.pass(60_000);
    assert_eq!((run.notices(), run.state(&x())), (Vec::new(), "nacked"));
}

/// An event of a client.
type Happens = fn(&mut Run);

/// Applies an event for `x` on one stream, and then opens the next stream, which requests `x` again.
fn after(policy: Policy, happens: impl Fn(&mut Run)) -> Run {
    let mut run = Run::watching_with(policy, &[x()]);
    happens(&mut run);
    run.fail(0);
    run.wait();
    run.connect(0);
    run
}

#[test]
fn x2_a57_uncached_names_time_out_on_each_new_stream() {
    let happens: [(&str, Happens); 4] = [
        ("nacked", |run| run.respond(ResourceKind::Endpoints, "1", "a", vec![bad(&x())])),
        ("received_error", |run| {
            run.report(ResourceKind::Endpoints, "1", "a", vec![reported("x", Code::NotFound)])
        }),
        ("received_error", |run| {
            run.report(ResourceKind::Endpoints, "1", "a", vec![reported("x", Code::Internal)])
        }),
        ("does_not_exist", |run| run.pass(15_000)),
    ];
    for (state, happens) in happens {
        let mut run = after(PLAIN, happens);
        assert_eq!((run.state(&x()), run.waits()), (state, Some(15_000)));
        run.wait();
        assert_eq!(run.state(&x()), "does_not_exist", "it was {state}");
        assert_eq!(run.waits(), None, "it was {state}");
    }
    let run = after(PATIENT, |run| run.respond(ResourceKind::Endpoints, "1", "a", vec![bad(&x())]));
    assert_eq!(run.waits(), Some(30_000));
    let run = after(PLAIN, |run| run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]));
    assert_eq!((run.state(&x()), run.waits()), ("acked", None));
}

#[test]
fn x2_a57_a_name_times_out_at_most_once_per_stream() {
    let happens: [Happens; 3] = [
        |run| run.respond(ResourceKind::Endpoints, "1", "a", vec![bad(&x())]),
        |run| run.report(ResourceKind::Endpoints, "1", "a", vec![reported("x", Code::NotFound)]),
        |run| run.pass(15_000),
    ];
    for happens in happens {
        let mut run = Run::watching(&[x()]);
        happens(&mut run);
        let state = run.state(&x());
        run.watch(&y());
        assert_eq!(run.waits(), Some(15_000), "{state}: only the timer of y runs");
        run.wait();
        assert_eq!((run.state(&x()), run.waits()), (state, None));
        run.unwatch(&x());
        run.watch(&x());
        assert_eq!((run.state(&x()), run.waits()), ("requested", Some(15_000)), "it is requested again");
    }
}

#[test]
fn x2_a88_a_deleted_cluster_times_out_on_the_next_stream() {
    let c = cluster("c");
    let mut run = Run::watching_with(FAILS, std::slice::from_ref(&c));
    run.respond(ResourceKind::Cluster, "1", "a", vec![good(&c, 1)]);
    run.respond(ResourceKind::Cluster, "2", "b", Vec::new());
    assert_eq!((run.state(&c), run.waits()), ("does_not_exist", None));
    run.watch(&cluster("d"));
    run.wait();
    assert_eq!(run.notices(), ["d fails: NOT_FOUND"]);
    run.fail(0);
    run.wait();
    run.connect(0);
    assert_eq!(run.waits(), Some(15_000));
}

#[test]
fn x2_a57_a_resource_after_its_timeout_is_used() {
    let mut run = Run::watching(&[x()]);
    run.pass(15_000);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    assert_eq!((run.notices(), run.state(&x())), (vec!["x is 1".to_owned()], "acked"));
}

#[test]
fn x2_watching_again_does_not_shorten_the_backoff() {
    let mut run = Run::with(&[PLAIN]);
    run.watch(&x());
    waits(&mut run, 6);
    run.fail(0);
    run.unwatch(&x());
    run.watch(&x());
    assert_eq!((run.requests(), run.notices()), (Vec::new(), Vec::new()));
    assert_eq!(run.wait(), 1_000);
    assert_eq!(run.requests(), ["eds / x node"]);
}
