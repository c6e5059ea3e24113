//! The contents and times of requests.

use super::*;

#[test]
fn x2_a_stream_is_opened_for_the_first_resource_that_is_watched() {
    let mut run = Run::with(&[PLAIN]);
    assert_eq!((run.waits(), run.client.dump().resources.len()), (None, 0));
    run.watch(&endpoints("x"));
    assert_eq!(run.requests(), ["eds / x node"]);
    assert_eq!(run.reads(), [run.stream(0)], "the first message may be read");
    assert_eq!(run.notices(), [""; 0]);
    assert_eq!(run.state(&endpoints("x")), "requested");
}

#[test]
fn x2_resources_watched_at_open_are_in_the_first_requests() {
    let mut run = Run::with(&[PLAIN]);
    for key in [endpoints("x"), endpoints("y"), cluster("c")] {
        run.client.step(run.now, In::Watch(key, WATCHER), &mut run.out);
    }
    assert_eq!((run.requests(), run.waits()), (Vec::new(), Some(0)), "it is opened at once, and not before");
    run.pass(0);
    assert_eq!(run.requests(), ["cds / c node", "eds / x y"]);
}

#[test]
fn x2_only_the_first_request_of_each_stream_has_the_node() {
    let mut run = Run::watching(&[endpoints("x")]);
    run.watch(&cluster("c"));
    assert_eq!(run.requests(), ["cds / c"]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&endpoints("x"), 1)]);
    assert_eq!(run.requests(), ["eds 1/a x"]);
    run.fail(0);
    run.wait();
    assert_eq!(run.requests(), ["cds / c node", "eds 1/ x"]);
}

#[test]
fn x2_an_unwatched_kind_is_not_requested() {
    let mut run = Run::watching(&[cluster("c")]);
    run.respond(ResourceKind::Cluster, "1", "a", vec![good(&cluster("c"), 1)]);
    assert_eq!(run.requests(), ["cds 1/a c"], "the first request of a kind without names would ask for all");
    run.watch(&endpoints("x"));
    assert_eq!(run.requests(), ["eds / x"]);
}

#[test]
fn x2_each_request_names_all_watched_of_its_kind() {
    let mut run = Run::watching(&[endpoints("m")]);
    run.watch(&endpoints("z"));
    assert_eq!(run.requests(), ["eds / m z"]);
    run.watch(&endpoints("a"));
    assert_eq!(run.requests(), ["eds / a m z"]);
    run.unwatch(&endpoints("m"));
    assert_eq!(run.requests(), ["eds / a z"]);
}

#[test]
fn x2_only_the_first_and_last_watcher_cause_requests() {
    let mut run = Run::watching(&[endpoints("x"), endpoints("y")]);
    run.step(In::Watch(endpoints("x"), WatcherId(2)));
    assert_eq!(run.requests(), [""; 0]);
    run.unwatch(&endpoints("x"));
    assert_eq!(run.requests(), [""; 0]);
    run.step(In::Unwatch(endpoints("x"), WatcherId(2)));
    assert_eq!(run.requests(), ["eds / y"]);
    run.step(In::Unwatch(endpoints("x"), WatcherId(2)));
    assert!(run.out.is_empty(), "it has no watcher");
}

#[test]
fn x2_a_request_without_names_ends_its_subscriptions() {
    let mut run = Run::watching(&[cluster("c"), endpoints("x")]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&endpoints("x"), 1)]);
    run.unwatch(&endpoints("x"));
    assert_eq!(run.requests(), ["eds 1/a "]);
    run.watch(&endpoints("x"));
    assert_eq!(run.requests(), ["eds 1/a x"]);
}

#[test]
fn x2_the_stream_is_closed_when_nothing_is_watched_any_more() {
    let mut run = Run::watching(&[cluster("c"), endpoints("x")]);
    let stream = run.stream(0);
    run.unwatch(&cluster("c"));
    run.unwatch(&endpoints("x"));
    assert_eq!((run.closed(), run.requests()), (vec![stream], Vec::new()));
    assert_eq!((run.waits(), run.open.len()), (None, 0));
    run.step(StreamEvent::Ended { stream, ended: unavailable(), jitter: 500 });
    assert!(run.out.is_empty(), "nothing more of it is heard");
    run.watch(&endpoints("y"));
    assert_eq!(run.requests(), ["eds / y node"]);
}

#[test]
fn x2_changes_before_a_request_was_pulled_go_into_one_more() {
    let mut run = Run::with(&[PLAIN]);
    run.pulls = false;
    for name in ["a", "b", "c", "d"] {
        run.watch(&endpoints(name));
    }
    run.unwatch(&endpoints("c"));
    assert_eq!(run.requests(), [""; 0]);
    run.connect(0);
    assert_eq!(run.requests(), ["eds / a b d"]);
    run.watch(&endpoints("e"));
    run.watch(&endpoints("f"));
    assert_eq!(run.requests(), [""; 0]);
    run.step(StreamEvent::Sent(run.stream(0), ResourceKind::Endpoints));
    assert_eq!(run.requests(), ["eds / a b d e f"]);
    run.watch(&cluster("g"));
    assert_eq!(run.requests(), ["cds / g"], "kinds do not wait for one another");
}

#[test]
fn x2_an_answer_waits_for_the_unpulled_request() {
    let mut run = Run::watching(&[endpoints("x")]);
    run.pulls = false;
    run.watch(&endpoints("y"));
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&endpoints("x"), 1)]);
    assert_eq!(run.requests(), [""; 0]);
    run.watch(&endpoints("z"));
    run.step(StreamEvent::Sent(run.stream(0), ResourceKind::Endpoints));
    assert_eq!(run.requests(), ["eds 1/a x y z"]);
}

#[test]
fn x2_an_early_rewatch_is_requested_again() {
    let mut run = Run::watching(&[endpoints("x"), endpoints("y")]);
    let resources = vec![good(&endpoints("x"), 1), good(&endpoints("y"), 1)];
    run.respond(ResourceKind::Endpoints, "1", "a", resources);
    run.pulls = false;
    run.watch(&endpoints("z"));
    run.unwatch(&endpoints("x"));
    run.watch(&endpoints("x"));
    assert_eq!(run.state(&endpoints("x")), "requested", "what was known of it is forgotten");
    run.pulls = true;
    run.step(StreamEvent::Sent(run.stream(0), ResourceKind::Endpoints));
    assert_eq!(run.requests(), ["eds 1/a y z", "eds 1/a x y z"], "a server sends again what is new to it");
    assert_eq!(run.waits(), Some(15_000), "and that in time");
}

#[test]
fn x2_a_watch_that_ends_early_costs_no_request() {
    let mut run = Run::with(&[PLAIN]);
    run.pulls = false;
    run.watch(&endpoints("x"));
    run.watch(&endpoints("y"));
    run.unwatch(&endpoints("y"));
    run.connect(0);
    assert_eq!(run.requests(), [""; 0]);
}

#[test]
fn x2_after_shutdown_everything_is_closed_and_nothing_follows() {
    let mut run = Run::watching(&[endpoints("x")]);
    let stream = run.stream(0);
    run.step(In::Shutdown);
    assert_eq!((run.closed(), run.notices(), run.waits()), (vec![stream], Vec::new(), None));
    run.watch(&endpoints("y"));
    assert!(run.out.is_empty(), "{:?}", run.out);
    run.pass(1_000_000);
    assert!(run.out.is_empty(), "{:?}", run.out);
}

#[test]
fn without_a_server_nothing_is_requested() {
    let mut run = Run::with(&[]);
    run.watch(&endpoints("x"));
    assert_eq!((run.requests(), run.notices(), run.waits()), (Vec::new(), Vec::new(), None));
    run.unwatch(&endpoints("x"));
    assert_eq!(run.notices(), [""; 0]);
}
