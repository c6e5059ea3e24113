//! Answers to responses: ACKs and NACKs, versions and nonces.

use super::*;
use model::level::Provenance;

fn x() -> ResourceKey {
    endpoints("x")
}

fn y() -> ResourceKey {
    endpoints("y")
}

/// Returns the rejection in the last request.
fn detail(run: &Run) -> String {
    let detail = |output: &Out| match output {
        Out::Call(DriverCall::Send(_, request)) => {
            request.error.as_ref().map(|nack| nack.message.to_string())
        }
        Out::Call(DriverCall::Open { .. } | DriverCall::Read(_) | DriverCall::Close(_))
        | Out::Notice(..)
        | Out::Metric(_) => None,
    };
    run.out.iter().rev().find_map(detail).expect("something was rejected")
}

#[test]
fn x2_a_good_response_is_acked_with_version_and_nonce() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    assert_eq!(run.requests(), ["eds 1/a x"]);
    run.respond(ResourceKind::Endpoints, "2", "b", vec![good(&x(), 2)]);
    assert_eq!(run.requests(), ["eds 2/b x"]);
    assert_eq!(run.notices(), ["x is 2"]);
}

#[test]
fn x2_a_bad_response_is_nacked_with_the_earlier_version() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![bad(&x())]);
    assert_eq!(run.requests(), ["eds /a x !"], "none was accepted yet");
    run.respond(ResourceKind::Endpoints, "2", "b", vec![good(&x(), 1)]);
    assert_eq!(run.requests(), ["eds 2/b x"]);
    run.respond(ResourceKind::Endpoints, "3", "c", vec![bad(&x())]);
    assert_eq!(run.requests(), ["eds 2/c x !"]);
}

#[test]
fn x2_a_nack_lists_each_invalid_resource() {
    let mut run = Run::watching(&[x(), y()]);
    let resources = vec![bad(&y()), good(&endpoints("z"), 1), broken(ResourceKind::Endpoints), bad(&x())];
    let errors = vec![ReportedError { name: None, ..reported("x", Code::Internal) }];
    let response = Response { errors, ..response(ResourceKind::Endpoints, "1", "a", resources) };
    run.respond_from(0, response);
    let detail = detail(&run);
    let parts = ["resource index 2: ", "resource_errors index 0: ", "x: ", "y: "];
    let complaints: Vec<&str> = detail.split("; ").collect();
    assert!(complaints.len() >= parts.len(), "{detail}");
    assert!(
        parts.iter().all(|part| complaints.iter().any(|complaint| complaint.starts_with(part))),
        "{detail}"
    );
    assert!(detail.contains(".pipe"), "{detail}");
}

#[test]
fn x2_the_same_nack_is_recognised_in_any_order() {
    let mut run = Run::watching(&[x(), y()]);
    let there = |resources| response(ResourceKind::Endpoints, "1", "a", resources);
    run.respond_from(0, there(vec![bad(&y()), bad(&x())]));
    let before = detail(&run);
    let mut run = Run::watching(&[x(), y()]);
    run.respond_from(0, there(vec![bad(&x()), bad(&y())]));
    assert_eq!(detail(&run), before);
}

#[test]
fn x2_a46_valid_resources_of_a_rejected_response_are_used() {
    let mut run = Run::watching(&[x(), y()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![bad(&x()), good(&y(), 1)]);
    assert_eq!(run.notices(), ["x fails: INVALID_ARGUMENT", "y is 1"]);
    assert_eq!(run.requests(), ["eds /a x y !"]);
    assert_eq!((run.state(&x()), run.state(&y())), ("nacked", "acked"));
}

#[test]
fn x2_a_partly_valid_response_keeps_the_accepted_version() {
    let mut run = Run::watching(&[x(), y()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1), good(&y(), 1)]);
    run.respond(ResourceKind::Endpoints, "2", "b", vec![good(&x(), 2), bad(&y())]);
    assert_eq!(run.requests(), ["eds 1/b x y !"]);
    run.watch(&endpoints("z"));
    assert_eq!(run.requests(), ["eds 1/b x y z"], "what was rejected is rejected once");
    let shown = run.shown(&x()).and_then(|shown| shown.cached).expect("it is in use");
    assert_eq!((&*shown.version, shown.value), ("2", value(&x(), 2)));
}

#[test]
fn x2_versions_and_nonces_are_those_of_their_kind() {
    let mut run = Run::watching(&[cluster("c"), x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    run.respond(ResourceKind::Cluster, "9", "b", vec![good(&cluster("c"), 1)]);
    assert_eq!(run.requests(), ["cds 9/b c"]);
    run.watch(&y());
    assert_eq!(run.requests(), ["eds 1/a x y"]);
    run.watch(&cluster("d"));
    assert_eq!(run.requests(), ["cds 9/b c d"]);
}

#[test]
fn x2_a57_versions_survive_streams_and_nonces_do_not() {
    let mut run = Run::watching(&[cluster("c"), x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    run.respond(ResourceKind::Cluster, "9", "b", vec![good(&cluster("c"), 1)]);
    run.fail(0);
    run.wait();
    assert_eq!(run.requests(), ["cds 9/ c node", "eds 1/ x"]);
}

#[test]
fn x2_a_version_is_claimed_on_a_new_stream_only_without_errors() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    run.respond(ResourceKind::Endpoints, "2", "b", vec![bad(&x())]);
    run.fail(0);
    run.wait();
    assert_eq!(run.requests(), ["eds / x node"], "a server that went back to version 1 has to send it");
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    assert_eq!((run.notices(), run.state(&x())), (vec!["x ambient: OK".to_owned()], "acked"));
}

#[test]
fn x2_an_answer_due_at_a_streams_end_is_dropped() {
    let mut run = Run::watching(&[x()]);
    run.pulls = false;
    run.watch(&y());
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1), good(&y(), 1)]);
    assert_eq!(run.requests(), [""; 0]);
    run.fail(0);
    run.wait();
    assert_eq!(run.requests(), ["eds 1/ x y node"]);
    run.connect(0);
    assert_eq!(run.requests(), [""; 0]);
}

#[test]
fn x2_no_version_is_sent_while_a_resource_is_missing() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    run.watch(&y());
    assert_eq!(run.requests(), ["eds 1/a x y"], "on the same stream the server knows what is new");
    run.fail(0);
    run.wait();
    assert_eq!(run.requests(), ["eds / x y node"], "on another one it does not");
    run.respond(ResourceKind::Endpoints, "2", "b", vec![bad(&y())]);
    assert_eq!(run.requests(), ["eds /b x y !"], "none was accepted on this stream");
}

#[test]
fn x2_an_unsent_version_is_not_sent_before_a_response() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    run.fail(0);
    run.wait();
    run.fail(0);
    run.wait();
    run.connect(0);
    assert_eq!(run.requests(), [""; 0]);
    run.watch(&y());
    assert_eq!(run.requests(), ["eds / x y"], "the server may not have answered the first request");
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1), good(&y(), 1)]);
    assert_eq!(run.requests(), ["eds 1/a x y"]);
}

#[test]
fn x2_no_version_is_sent_if_a_later_one_was_rejected() {
    let mut run = Run::watching(&[x(), y()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1), good(&y(), 1)]);
    run.respond(ResourceKind::Endpoints, "2", "b", vec![good(&x(), 2), bad(&y())]);
    run.unwatch(&y());
    run.fail(0);
    run.wait();
    assert_eq!(run.requests(), ["eds / x node"], "of version 1 it has nothing any more");
}

#[test]
fn x2_no_version_is_sent_after_a_watch_has_ended() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    run.unwatch(&x());
    run.watch(&x());
    assert_eq!(run.requests(), ["eds / x node"]);
}

#[test]
fn x2_a_response_of_an_unrequested_type_is_ignored() {
    let mut run = Run::watching(&[x()]);
    let other = "type.googleapis.com/envoy.config.listener.v3.Listener".to_owned();
    let response =
        Response { type_url: other, ..response(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]) };
    run.respond_from(0, response);
    assert_eq!((run.requests(), run.notices(), run.samples()), (Vec::new(), Vec::new(), Vec::new()));
    assert_eq!(run.reads(), [run.stream(0)], "the next one may be read");
    run.fail(0);
    assert_eq!(run.notices(), ["x fails: UNAVAILABLE"], "it says nothing of the server either");
}

#[test]
fn x2_an_unrequested_kind_is_not_answered() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Cluster, "1", "a", vec![good(&cluster("c"), 1)]);
    assert_eq!(run.requests(), [""; 0], "that would be a first request without names");
    run.watch(&cluster("c"));
    assert_eq!(run.requests(), ["cds / c"]);
}

#[test]
fn x2_a_response_after_unsubscribing_is_answered() {
    let mut run = Run::watching(&[cluster("c"), x()]);
    run.unwatch(&x());
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    assert_eq!((run.requests(), run.notices()), (vec!["eds 1/a ".to_owned()], Vec::new()));
}

#[test]
fn x2_an_unwatched_resource_is_ignored_valid_or_not() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&y(), 1), bad(&endpoints("z")), good(&x(), 1)]);
    assert_eq!((run.requests(), run.notices()), (vec!["eds 1/a x".to_owned()], vec!["x is 1".to_owned()]));
    let counted = run.samples().into_iter().find_map(|sample| match sample {
        XdsMetric::Updates { valid, invalid, .. } => Some((valid, invalid)),
        XdsMetric::Connected { .. }
        | XdsMetric::ServerFailure(_)
        | XdsMetric::Nack { .. }
        | XdsMetric::Resources { .. } => None,
    });
    assert_eq!(counted, Some((1, 0)));
}

#[test]
fn x2_a_resource_with_an_unreadable_name_harms_no_other() {
    let mut run = Run::watching(&[x(), y()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1), good(&y(), 1)]);
    run.respond(ResourceKind::Endpoints, "2", "b", vec![broken(ResourceKind::Endpoints), good(&x(), 2)]);
    assert_eq!(run.requests(), ["eds 1/b x y !"]);
    assert_eq!(run.notices(), ["x is 2"]);
}

#[test]
fn x2_a_broken_resource_in_a_named_wrapper_has_its_name() {
    let mut run = Run::watching(&[x()]);
    let wrapped = Received { wrapper: Some("x".to_owned()), ..broken(ResourceKind::Endpoints) };
    run.respond(ResourceKind::Endpoints, "1", "a", vec![wrapped]);
    assert_eq!(run.notices(), ["x fails: INVALID_ARGUMENT"]);
    assert_eq!(run.state(&x()), "nacked");
}

#[test]
fn x2_a_resource_of_another_kind_is_invalid() {
    let mut run = Run::watching(&[cluster("x"), x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&cluster("x"), 1)]);
    assert_eq!((run.requests(), run.notices()), (vec!["eds /a x !".to_owned()], Vec::new()));
}

#[test]
fn x2_an_empty_response_of_endpoints_is_acked() {
    let mut run = Run::watching(&[x(), y()]);
    run.pass(5_000);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    run.respond(ResourceKind::Endpoints, "2", "b", Vec::new());
    assert_eq!((run.requests(), run.notices()), (vec!["eds 2/b x y".to_owned()], Vec::new()));
    assert_eq!((run.state(&x()), run.waits()), ("acked", Some(10_000)), "the timer of the other one runs on");
}

#[test]
fn x2_an_identical_resource_is_acked_and_not_notified() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    run.respond(ResourceKind::Endpoints, "2", "b", vec![good(&x(), 1)]);
    assert_eq!((run.requests(), run.notices()), (vec!["eds 2/b x".to_owned()], Vec::new()));
    let cached = run.shown(&x()).and_then(|shown| shown.cached).expect("it is in use");
    assert_eq!(&*cached.version, "2", "though it is shown as of the newest version");
}

#[test]
fn x2_events_of_a_closed_stream_are_ignored() {
    let mut run = Run::watching(&[x()]);
    let old = run.stream(0);
    run.fail(0);
    run.wait();
    for input in [
        StreamEvent::Response(old, response(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]), AT),
        StreamEvent::Dispatched(old),
        StreamEvent::Sent(old, ResourceKind::Endpoints),
        StreamEvent::Ended { stream: old, ended: unavailable(), jitter: 500 },
        StreamEvent::Dispatched(StreamId(99)),
    ] {
        run.step(input.clone());
        assert!(run.out.is_empty(), "{input:?}: {:?}", run.out);
    }
    assert_eq!((run.state(&x()), run.waits()), ("requested", None));
}

/// Returns the provenance of the last resource.
fn provenance(run: &Run) -> Option<Provenance> {
    let changed = |output: &Out| match output {
        Out::Notice(_, WatcherNotice { change: ResourceChange::Changed(Ok(cached)), .. }) => {
            Some(cached.provenance)
        }
        Out::Notice(..) | Out::Call(_) | Out::Metric(_) => None,
    };
    run.out.iter().rev().find_map(changed)
}

#[test]
fn g1_the_first_response_is_a_list_and_others_are_changes() {
    let mut run = Run::watching(&[x(), y()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    assert_eq!(provenance(&run), Some(Provenance::Relist));
    run.respond(ResourceKind::Endpoints, "2", "b", vec![good(&x(), 2)]);
    assert_eq!(provenance(&run), Some(Provenance::Watch));
    run.respond(ResourceKind::Endpoints, "3", "c", vec![good(&y(), 1)]);
    assert_eq!(provenance(&run), Some(Provenance::Relist), "each resource for itself");
    run.fail(0);
    run.wait();
    run.connect(0);
    run.respond(ResourceKind::Endpoints, "3", "a", vec![good(&x(), 2)]);
    assert_eq!(provenance(&run), None, "nothing has changed");
    run.respond(ResourceKind::Endpoints, "4", "b", vec![good(&x(), 3)]);
    assert_eq!(provenance(&run), Some(Provenance::Watch));
    run.fail(0);
    run.wait();
    run.connect(0);
    run.respond(ResourceKind::Endpoints, "5", "a", vec![bad(&x())]);
    run.respond(ResourceKind::Endpoints, "6", "b", vec![good(&x(), 4)]);
    assert_eq!(
        provenance(&run),
        Some(Provenance::Relist),
        "the first that can be used, as on every new stream"
    );
}

/// Returns the complaint of the last NACK.
fn complaint(run: &Run) -> String {
    let mut errors = run.out.iter().filter_map(|output| match output {
        Out::Call(DriverCall::Send(_, request)) => request.error.as_ref(),
        Out::Call(DriverCall::Open { .. } | DriverCall::Read(_) | DriverCall::Close(_))
        | Out::Notice(..)
        | Out::Metric(_) => None,
    });
    errors.next_back().expect("a response was rejected").message.to_string()
}

#[test]
fn x2_a_response_with_too_much_is_rejected_but_used() {
    let mut run = Run::watching(&[cluster("c"), cluster("d")]);
    run.respond(ResourceKind::Cluster, "1", "a", vec![good(&cluster("c"), 1), good(&cluster("d"), 1)]);
    let excess = Some("resources: are too many".to_owned());
    let resources = vec![good(&cluster("c"), 2)];
    run.respond_from(0, Response { excess, ..response(ResourceKind::Cluster, "2", "b", resources) });
    assert_eq!(complaint(&run), "resources: are too many");
    assert_eq!(run.shown(&cluster("c")).unwrap().cached.unwrap().value, value(&cluster("c"), 2));
    assert_eq!(run.state(&cluster("d")), "acked", "it may be in what was not read");
}

#[test]
fn x2_an_assignment_with_more_than_is_read_is_invalid() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    let body = Body::TooLarge { name: "x".to_owned(), fault: "are too many".to_owned() };
    let large = Received { body: Ok(body), ..good(&x(), 2) };
    run.respond(ResourceKind::Endpoints, "2", "b", vec![large.clone()]);
    assert_eq!(
        (complaint(&run).as_str(), run.state(&x())),
        ("x: endpoints: are too many", "nacked_but_cached")
    );
    run.watch(&cluster("c"));
    run.connect(0);
    run.respond(ResourceKind::Cluster, "1", "c", vec![large]);
    assert!(complaint(&run).contains("does not belong in this response"), "{}", complaint(&run));
}

#[test]
fn x2_a_nack_has_the_first_complaints_and_counts_the_others() {
    let names: Vec<ResourceKey> = (0..30).map(|n| endpoints(&format!("n{n:02}"))).collect();
    let words = |resources: Vec<Received>| {
        let mut run = Run::watching(&names);
        run.respond(ResourceKind::Endpoints, "1", "a", resources);
        complaint(&run)
    };
    let complaint = words(names.iter().map(bad).collect());
    assert!(
        complaint.starts_with("n00: ") && complaint.contains("; n19: ") && !complaint.contains("n20"),
        "{complaint}"
    );
    assert!(complaint.ends_with("; and 10 more"), "{complaint}");
    assert_eq!(complaint, words(names.iter().rev().map(bad).collect()));
}

#[test]
fn x2_an_excess_is_named_before_other_complaints() {
    let mut run = Run::watching(&[cluster("c")]);
    let excess = Some("resources: are too many".to_owned());
    let resources = (0..30).map(|_| broken(ResourceKind::Cluster)).collect();
    run.respond_from(0, Response { excess, ..response(ResourceKind::Cluster, "1", "a", resources) });
    assert!(
        complaint(&run).starts_with("resources: are too many; resource index 0: "),
        "{}",
        complaint(&run)
    );
    assert!(complaint(&run).ends_with("; and 10 more"), "{}", complaint(&run));
}

#[test]
fn h5_the_bytes_of_a_rejected_resource_are_kept_up_to_1_mib() {
    for (length, is_stored) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        let mut run = Run::watching(&[x()]);
        let raw = Raw { bytes: vec![0; length].into(), ..raw(&x(), "") };
        run.respond(ResourceKind::Endpoints, "1", "a", vec![Received { raw, ..bad(&x()) }]);
        let rejected = run.shown(&x()).unwrap().error.unwrap().rejected.unwrap();
        assert_eq!((rejected.raw.is_some(), &*rejected.version), (is_stored, "1"));
    }
}
