//! Tests of the state that CSDS shows (A40, A88), and of the metrics of A78.

use super::*;
use model::xds::cache::Rejected;

fn c() -> ResourceKey {
    cluster("c")
}

fn x() -> ResourceKey {
    endpoints("x")
}

/// Returns the published connection states, as `server connected`, with `-` for a server that is not in use and `!` for
/// a failure.
fn connections(run: &Run) -> Vec<String> {
    let shown = |sample: XdsMetric| match sample {
        XdsMetric::Connected { server, connected } => {
            let how = connected.map_or("-", |connected| if connected { "1" } else { "0" });
            Some(format!("{} {how}", server.0))
        }
        XdsMetric::ServerFailure(server) => Some(format!("{} !", server.0)),
        XdsMetric::Updates { .. } | XdsMetric::Nack { .. } | XdsMetric::Resources { .. } => None,
    };
    run.samples().into_iter().filter_map(shown).collect()
}

/// Returns the published numbers of resources.
fn resources(run: &Run) -> Vec<String> {
    let shown = |sample: XdsMetric| match sample {
        XdsMetric::Resources { kind, state, count } => Some(format!("{kind:?} {} {count}", state.as_str())),
        XdsMetric::Connected { .. }
        | XdsMetric::ServerFailure(_)
        | XdsMetric::Updates { .. }
        | XdsMetric::Nack { .. } => None,
    };
    run.samples().into_iter().filter_map(shown).collect()
}

/// Returns the published results of a response: server, kind, and the numbers of valid and invalid resources.
fn updates(run: &Run) -> Option<(usize, ResourceKind, u64, u64)> {
    run.samples().into_iter().find_map(|sample| match sample {
        XdsMetric::Updates { server, kind, valid, invalid } => Some((server.0, kind, valid, invalid)),
        XdsMetric::Connected { .. }
        | XdsMetric::ServerFailure(_)
        | XdsMetric::Nack { .. }
        | XdsMetric::Resources { .. } => None,
    })
}

fn rejected(version: &str, raw: Option<Raw>) -> Option<Rejected> {
    Some(Rejected { version: Arc::from(version), at: AT, raw })
}

#[test]
fn x2_a78_a_server_counts_as_connected_until_it_fails() {
    let mut run = Run::with(&[PLAIN]);
    run.watch(&x());
    assert_eq!(connections(&run), ["0 1"]);
    run.fail(0);
    assert_eq!(connections(&run), ["0 0", "0 !"]);
    run.wait();
    assert_eq!(connections(&run), [""; 0], "a new stream alone does not count as connected");
    run.connect(0);
    assert_eq!(
        (connections(&run), run.notices()),
        (Vec::new(), Vec::new()),
        "nor does a transport that takes requests"
    );
    assert!(!run.client.dump().servers[0].is_connected, "and CSDS agrees");
    run.fail(0);
    assert_eq!(connections(&run), [""; 0], "one failure is counted once");
    run.wait();
    run.respond(ResourceKind::Endpoints, "1", "a", Vec::new());
    assert_eq!(connections(&run), ["0 1"]);
    run.fail(0);
    assert_eq!(connections(&run), [""; 0]);
    run.wait();
    run.fail(0);
    assert_eq!(connections(&run), ["0 0", "0 !"]);
    run.unwatch(&x());
    assert_eq!(connections(&run), ["0 -"]);
}

#[test]
fn x2_a78_unused_servers_have_no_connection_state() {
    let mut run = Run::with(&[PLAIN, PLAIN]);
    run.watch(&x());
    run.fail(0);
    assert_eq!(connections(&run), ["0 0", "0 !", "1 1"]);
    run.wait();
    run.respond(ResourceKind::Endpoints, "1", "a", Vec::new());
    assert_eq!(connections(&run), ["0 1", "1 -"]);
}

#[test]
fn x2_a78_valid_and_invalid_resources_are_counted() {
    let mut run = Run::watching(&[x(), endpoints("y")]);
    for _ in 0..2 {
        run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1), bad(&endpoints("y"))]);
        assert_eq!(updates(&run), Some((0, ResourceKind::Endpoints, 1, 1)));
    }
    run.report(ResourceKind::Endpoints, "2", "b", vec![reported("x", Code::NotFound)]);
    assert_eq!(
        updates(&run),
        Some((0, ResourceKind::Endpoints, 0, 1)),
        "an error in the place of a resource"
    );
    run.respond(ResourceKind::Endpoints, "3", "c", Vec::new());
    assert_eq!(updates(&run), Some((0, ResourceKind::Endpoints, 0, 0)));
    run.respond(ResourceKind::Endpoints, "4", "d", vec![broken(ResourceKind::Endpoints)]);
    assert_eq!(
        updates(&run),
        Some((0, ResourceKind::Endpoints, 0, 1)),
        "a resource whose name cannot be read"
    );
    run.respond(ResourceKind::Endpoints, "5", "e", vec![good(&x(), 1), good(&x(), 1)]);
    assert_eq!(
        updates(&run),
        Some((0, ResourceKind::Endpoints, 1, 1)),
        "a resource that the response contains twice"
    );
}

#[test]
fn x2_a78_tp3_errors_without_name_or_code_are_invalid() {
    let table = [
        (ReportedError { name: None, ..reported("x", Code::NotFound) }, 1),
        (ReportedError { name: Some(String::new()), ..reported("x", Code::NotFound) }, 1),
        (ReportedError { code: None, ..reported("x", Code::NotFound) }, 1),
        (reported("x", Code::Ok), 1),
        (reported("z", Code::NotFound), 0),
        (reported("z", Code::Ok), 0),
    ];
    for (error, invalid) in table {
        let mut run = Run::watching(&[x()]);
        run.report(ResourceKind::Endpoints, "1", "a", vec![error.clone()]);
        assert_eq!(updates(&run), Some((0, ResourceKind::Endpoints, 0, invalid)), "{error:?}");
    }
}

#[test]
fn x2_a78_counts_belong_to_the_server_of_the_response() {
    let mut run = Run::with(&[PLAIN, PLAIN]);
    run.watch(&x());
    run.watch(&endpoints("y"));
    run.fail(0);
    let resources = vec![good(&x(), 7), bad(&endpoints("y"))];
    run.respond_from(1, response(ResourceKind::Endpoints, "7", "p", resources));
    assert_eq!(updates(&run), Some((1, ResourceKind::Endpoints, 1, 1)));
    let nack = |sample: &XdsMetric| matches!(sample, XdsMetric::Nack { .. });
    let nacks: Vec<XdsMetric> = run.samples().into_iter().filter(nack).collect();
    assert_eq!(nacks, [XdsMetric::Nack { server: ServerId(1), kind: ResourceKind::Endpoints }]);
    run.fail(1);
    run.wait();
    run.fail(1);
    assert_eq!(connections(&run), ["1 0", "1 !"], "its second stream received no response");
    run.wait();
    run.respond_from(1, response(ResourceKind::Endpoints, "7", "q", Vec::new()));
    assert_eq!(connections(&run), ["1 1"]);
}

#[test]
fn x2_rejections_are_counted_when_they_are_sent() {
    let mut run = Run::watching(&[x()]);
    let nack = XdsMetric::Nack { server: ServerId(0), kind: ResourceKind::Endpoints };
    for (nonce, counted) in [("a", true), ("b", false)] {
        run.respond(ResourceKind::Endpoints, "1", nonce, vec![bad(&x())]);
        assert_eq!(run.samples().contains(&nack), counted);
    }
    run.wait();
    assert!(run.samples().contains(&nack));
}

#[test]
fn x2_a78_a88_resources_are_counted_by_kind_and_cache_state() {
    let mut run = Run::with(&[PLAIN]);
    run.watch(&x());
    assert_eq!(resources(&run), ["Endpoints requested 1"]);
    run.watch(&c());
    assert_eq!(resources(&run), ["Cluster requested 1"]);
    run.respond(ResourceKind::Cluster, "1", "a", vec![good(&c(), 1)]);
    assert_eq!(resources(&run), ["Cluster requested 0", "Cluster acked 1"]);
    run.respond(ResourceKind::Cluster, "2", "b", Vec::new());
    assert_eq!(resources(&run), ["Cluster does_not_exist_but_cached 1", "Cluster acked 0"]);
    run.pass(15_000);
    assert_eq!(resources(&run), ["Endpoints requested 0", "Endpoints does_not_exist 1"]);
    run.unwatch(&c());
    assert_eq!(resources(&run), ["Cluster does_not_exist_but_cached 0"]);
}

#[test]
fn x2_a40_each_server_is_shown_with_its_state() {
    let mut run = Run::with(&[PLAIN, PLAIN, PLAIN]);
    run.watch(&x());
    run.fail(0);
    let servers = run.client.dump().servers;
    let shown: Vec<(&str, bool, bool)> =
        servers.iter().map(|server| (&*server.uri, server.is_used, server.is_connected)).collect();
    assert_eq!(shown, [("one:1", true, false), ("two:2", true, true), ("three:3", false, false)]);
    assert!(servers[0].failure.as_ref().is_some_and(|words| words.contains("tcp connect error")));
    assert_eq!((&servers[1].failure, &servers[2].failure), (&None, &None));
}

#[test]
fn x2_a40_an_accepted_resource_is_shown_as_it_was_received() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 4)]);
    let shown = run.shown(&x()).expect("it is watched");
    assert_eq!((shown.state, shown.error, shown.watchers), (ResourceState::Acked, None, 1));
    let cached = shown.cached.expect("it is in use");
    assert_eq!((cached.raw, cached.updated), (Some(raw(&x(), "4")), AT));
    assert_eq!((&*cached.version, cached.value), ("1", value(&x(), 4)));
}

#[test]
fn x2_a40_a_rejected_resource_is_shown_beside_the_one_in_use() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 4)]);
    run.respond(ResourceKind::Endpoints, "2", "b", vec![bad(&x())]);
    let shown = run.shown(&x()).expect("it is watched");
    assert_eq!(shown.state, ResourceState::Nacked);
    let version = shown.cached.map(|cached| cached.version.to_string());
    assert_eq!(version, Some("1".to_owned()));
    let error = shown.error.expect("it was rejected");
    assert_eq!((error.code, error.rejected), (Code::InvalidArgument, rejected("2", Some(raw(&x(), "bad")))));
    assert!(error.message.contains(".pipe"), "{}", error.message);
}

#[test]
fn x2_a88_errors_and_deletions_are_shown_with_their_version() {
    let mut run = Run::watching(&[c(), x()]);
    run.report(ResourceKind::Endpoints, "1", "a", vec![reported("x", Code::PermissionDenied)]);
    let shown = run.shown(&x()).expect("it is watched");
    assert_eq!((shown.state, shown.cached), (ResourceState::ReceivedError, None));
    let error = shown.error.expect("it was reported");
    assert_eq!((&*error.message, error.rejected), ("no x for you", rejected("1", None)));
    run.respond(ResourceKind::Cluster, "1", "a", vec![good(&c(), 1)]);
    run.respond(ResourceKind::Cluster, "2", "b", Vec::new());
    let shown = run.shown(&c()).expect("it is watched");
    assert_eq!((shown.state, shown.cached.is_some()), (ResourceState::DoesNotExist, true));
    let error = shown.error.expect("it was deleted");
    assert_eq!((error.reason, error.rejected), (Reason::Deleted, rejected("2", None)));
}

#[test]
fn x2_a88_resources_not_received_have_no_version() {
    for (policy, state) in [(PLAIN, ResourceState::DoesNotExist), (PATIENT, ResourceState::Timeout)] {
        let mut run = Run::watching_with(policy, &[x()]);
        run.wait();
        let shown = run.shown(&x()).expect("it is watched");
        assert_eq!((shown.state, shown.cached), (state, None));
        assert_eq!(shown.error.map(|error| (error.reason, error.rejected)), Some((Reason::Timer, None)));
    }
    let mut run = Run::watching(&[x()]);
    run.fail(0);
    let shown = run.shown(&x()).expect("it is watched");
    assert_eq!((shown.state, shown.error), (ResourceState::Requested, None));
}

#[test]
fn x2_a40_unwatched_resources_are_not_shown() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1), good(&endpoints("y"), 1)]);
    run.respond(ResourceKind::Cluster, "1", "a", vec![good(&c(), 1)]);
    let keys: Vec<ResourceKey> = run.client.dump().resources.into_iter().map(|shown| shown.key).collect();
    assert_eq!(keys, [x()]);
}
