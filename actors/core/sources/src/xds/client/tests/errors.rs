//! Reported errors of resources (TP3), deletions, and cases that are neither.

use super::*;

fn c() -> ResourceKey {
    cluster("c")
}

fn d() -> ResourceKey {
    cluster("d")
}

fn x() -> ResourceKey {
    endpoints("x")
}

#[test]
fn x1_tp3_an_error_ends_the_wait_and_is_accepted_as_a_response() {
    let mut run = Run::watching(&[x()]);
    assert_eq!(run.waits(), Some(15_000));
    run.report(ResourceKind::Endpoints, "1", "a", vec![reported("x", Code::NotFound)]);
    assert_eq!((run.waits(), run.requests()), (None, vec!["eds 1/a x".to_owned()]));
    assert_eq!(run.words(), "no x for you");
}

#[test]
fn x1_tp3_errors_need_no_feature_of_the_server() {
    for policy in [PLAIN, FAILS, PATIENT] {
        let mut run = Run::watching_with(policy, &[x()]);
        run.report(ResourceKind::Endpoints, "1", "a", vec![reported("x", Code::NotFound)]);
        assert_eq!((run.notices(), run.waits()), (vec!["x fails: NOT_FOUND".to_owned()], None));
    }
}

#[test]
fn x1_tp3_an_error_lasts_until_a_newer_one_or_the_resource() {
    let mut run = Run::watching(&[x(), endpoints("y")]);
    run.report(ResourceKind::Endpoints, "1", "a", vec![reported("x", Code::NotFound)]);
    run.respond(ResourceKind::Endpoints, "2", "b", vec![good(&endpoints("y"), 1)]);
    assert_eq!((run.notices(), run.state(&x())), (vec!["y is 2".to_owned()], "received_error"));
    run.report(ResourceKind::Endpoints, "3", "c", vec![reported("x", Code::Internal)]);
    assert_eq!(run.notices(), ["x fails: INTERNAL"]);
    run.respond(ResourceKind::Endpoints, "4", "d", vec![good(&x(), 1)]);
    assert_eq!((run.notices(), run.state(&x())), (vec!["x is 4".to_owned()], "acked"));
}

#[test]
fn x1_tp3_a_cluster_with_an_error_is_not_deleted_by_absence() {
    for policy in [PLAIN, FAILS] {
        let mut run = Run::watching_with(policy, &[c(), d()]);
        run.respond(ResourceKind::Cluster, "1", "a", vec![good(&c(), 1), good(&d(), 1)]);
        let errors = vec![reported("c", Code::Unavailable)];
        let response = Response { errors, ..response(ResourceKind::Cluster, "2", "b", vec![good(&d(), 1)]) };
        run.respond_from(0, response);
        assert_eq!(run.notices(), ["c ambient: UNAVAILABLE"], "it is not deleted by this one");
        run.respond(ResourceKind::Cluster, "3", "c", vec![good(&d(), 2)]);
        assert_eq!(run.notices(), ["d is 3"], "an error is said once");
        assert_eq!(run.state(&c()), "received_error_but_cached");
        run.respond(ResourceKind::Cluster, "4", "d", vec![good(&c(), 1), good(&d(), 2)]);
        assert_eq!(run.notices(), ["c ambient: OK"]);
        run.respond(ResourceKind::Cluster, "5", "e", vec![good(&d(), 2)]);
        assert_eq!(run.notices().len(), 1, "what was sent since is deleted by its absence");
    }
}

#[test]
fn x1_tp3_no_version_is_claimed_so_that_errors_are_repeated() {
    let mut run = Run::watching(&[c()]);
    run.respond(ResourceKind::Cluster, "1", "a", vec![good(&c(), 1)]);
    run.report(ResourceKind::Cluster, "2", "b", vec![reported("c", Code::Unavailable)]);
    run.fail(0);
    run.wait();
    assert_eq!(
        run.requests(),
        ["cds / c node"],
        "a server that is told of version 2 would say no error again"
    );
    run.report(ResourceKind::Cluster, "2", "c", vec![reported("c", Code::Unavailable)]);
    assert_eq!((run.notices().len(), run.state(&c())), (0, "received_error_but_cached"));
    run.fail(0);
    run.wait();
    run.respond(ResourceKind::Cluster, "3", "d", Vec::new());
    assert_eq!(run.notices(), ["c ambient: NOT_FOUND"]);
    assert_eq!(run.state(&c()), "does_not_exist_but_cached");
}

#[test]
fn x1_tp3_an_empty_error_deletes_no_cluster() {
    let unclear = [
        ReportedError { name: None, ..reported("c", Code::NotFound) },
        ReportedError { name: Some(String::new()), ..reported("c", Code::NotFound) },
        ReportedError { code: None, ..reported("c", Code::NotFound) },
        reported("c", Code::Ok),
    ];
    for error in unclear {
        for policy in [PLAIN, FAILS] {
            let mut run = Run::watching_with(policy, &[c(), d()]);
            run.respond(ResourceKind::Cluster, "1", "a", vec![good(&c(), 1), good(&d(), 1)]);
            let errors = vec![error.clone()];
            let response =
                Response { errors, ..response(ResourceKind::Cluster, "2", "b", vec![good(&d(), 2)]) };
            run.respond_from(0, response);
            assert_eq!((run.notices(), run.state(&c())), (vec!["d is 2".to_owned()], "acked"), "{error:?}");
            assert_eq!(run.requests(), ["cds 1/b c d !"]);
            if error.name.as_deref() == Some("c") {
                run.respond(ResourceKind::Cluster, "3", "c", vec![good(&d(), 3)]);
                assert_eq!(run.notices(), ["d is 3"], "an error is said once: {error:?}");
            }
        }
    }
}

#[test]
fn x2_the_second_of_two_resources_with_one_name_is_rejected() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1), good(&x(), 2)]);
    assert_eq!((run.notices(), run.requests()), (vec!["x is 1".to_owned()], vec!["eds /a x !".to_owned()]));
    assert_eq!(
        run.shown(&x()).and_then(|shown| shown.cached).map(|cached| cached.value),
        Some(value(&x(), 1))
    );
    run.respond(ResourceKind::Endpoints, "2", "b", vec![good(&x(), 2), bad(&x())]);
    assert_eq!((run.notices(), run.requests()), (vec!["x is 2".to_owned()], vec!["eds /b x !".to_owned()]));
    assert_eq!(run.state(&x()), "acked");
    let unwatched = vec![good(&x(), 2), good(&endpoints("z"), 1), good(&endpoints("z"), 2)];
    run.respond(ResourceKind::Endpoints, "3", "c", unwatched);
    assert_eq!(run.requests(), ["eds 3/c x"], "what is not watched is ignored");
}

#[test]
fn x1_tp3_an_error_overrides_the_resource_in_one_response() {
    let mut run = Run::watching(&[x()]);
    let errors = vec![reported("x", Code::Internal)];
    let response = Response { errors, ..response(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]) };
    run.respond_from(0, response);
    assert_eq!(run.notices(), ["x is 1", "x ambient: INTERNAL"]);
    assert_eq!(run.requests(), ["eds 1/a x"]);
}

#[test]
fn x1_tp3_an_error_without_name_or_status_is_rejected() {
    let table = [
        ReportedError { name: None, ..reported("x", Code::NotFound) },
        ReportedError { name: Some(String::new()), ..reported("x", Code::NotFound) },
        ReportedError { code: None, ..reported("x", Code::NotFound) },
        reported("x", Code::Ok),
    ];
    for error in table {
        let mut run = Run::watching(&[x()]);
        run.report(ResourceKind::Endpoints, "1", "a", vec![error.clone()]);
        assert_eq!((run.requests(), run.notices()), (vec!["eds /a x !".to_owned()], Vec::new()), "{error:?}");
        assert_eq!((run.state(&x()), run.waits()), ("requested", Some(15_000)), "{error:?}");
    }
}

#[test]
fn x1_a46_tp3_an_error_beside_a_rejected_one_counts() {
    let malformed = [
        ReportedError { name: None, ..reported("y", Code::NotFound) },
        ReportedError { code: None, ..reported("y", Code::NotFound) },
        reported("y", Code::Ok),
    ];
    for bad in malformed {
        let errors = vec![reported("x", Code::NotFound), bad];
        for errors in [errors.clone(), errors.into_iter().rev().collect()] {
            let mut run = Run::watching(&[x(), endpoints("y")]);
            run.report(ResourceKind::Endpoints, "1", "a", errors.clone());
            assert_eq!(run.notices(), ["x fails: NOT_FOUND"], "{errors:?}");
            assert_eq!(run.requests(), ["eds /a x y !"], "{errors:?}");
        }
    }
}

#[test]
fn x1_tp3_an_error_for_an_unwatched_resource_is_ignored() {
    let mut run = Run::watching(&[x()]);
    run.report(
        ResourceKind::Endpoints,
        "1",
        "a",
        vec![reported("z", Code::NotFound), reported("z", Code::Ok)],
    );
    assert_eq!((run.requests(), run.notices()), (vec!["eds 1/a x".to_owned()], Vec::new()));
}

#[test]
fn x1_tp3_a_number_that_is_no_code_is_a_transient_error() {
    let mut run = Run::watching_with(FAILS, &[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![good(&x(), 1)]);
    let error = ReportedError { code: Some(99), message: String::new(), ..reported("x", Code::NotFound) };
    run.report(ResourceKind::Endpoints, "2", "b", vec![error]);
    assert_eq!((run.notices(), run.words()), (vec!["x ambient: UNKNOWN".to_owned()], "UNKNOWN".to_owned()));
}

#[test]
fn x1_a88_a_new_cluster_is_not_deleted_by_an_older_response() {
    let mut run = Run::watching_with(FAILS, &[c()]);
    run.respond(ResourceKind::Cluster, "1", "a", vec![good(&c(), 1)]);
    run.watch(&d());
    run.respond(ResourceKind::Cluster, "2", "b", vec![good(&c(), 2)]);
    assert_eq!((run.notices(), run.state(&d())), (vec!["c is 2".to_owned()], "requested"));
    assert_eq!(run.waits(), Some(15_000), "the timer decides");
}

#[test]
fn x1_a88_a_rewatched_cluster_survives_an_older_response() {
    let mut run = Run::watching_with(FAILS, &[c(), d()]);
    run.respond(ResourceKind::Cluster, "1", "a", vec![good(&c(), 1), good(&d(), 1)]);
    run.unwatch(&d());
    run.watch(&d());
    run.respond(ResourceKind::Cluster, "2", "b", vec![good(&c(), 2)]);
    assert_eq!((run.notices(), run.state(&d())), (vec!["c is 2".to_owned()], "requested"));
}

#[test]
fn x1_a88_a_cluster_sent_before_its_removal_is_not_deleted() {
    let e = cluster("e");
    let mut run = Run::watching_with(FAILS, &[c(), d()]);
    run.respond(ResourceKind::Cluster, "1", "a", vec![good(&c(), 1), good(&d(), 1)]);
    run.pulls = false;
    run.watch(&e);
    run.unwatch(&d());
    run.watch(&d());
    run.respond(ResourceKind::Cluster, "2", "b", vec![good(&c(), 2), good(&d(), 2)]);
    run.pulls = true;
    run.step(StreamEvent::Sent(run.stream(0), ResourceKind::Cluster));
    assert_eq!(run.requests(), ["cds 2/b c e", "cds 2/b c d e"]);
    run.respond(ResourceKind::Cluster, "2", "c", vec![good(&c(), 2), good(&e, 2)]);
    assert_eq!((run.notices(), run.state(&d())), (vec!["e is 2".to_owned()], "acked"));
    run.respond(ResourceKind::Cluster, "2", "d", vec![good(&c(), 2), good(&d(), 2), good(&e, 2)]);
    run.respond(ResourceKind::Cluster, "3", "e", vec![good(&c(), 2), good(&e, 2)]);
    assert_eq!(run.notices(), ["d fails: NOT_FOUND"], "what was sent since is deleted by its absence");
}

#[test]
fn x1_a88_an_invalid_cluster_counts_as_present() {
    let mut run = Run::watching(&[c(), d()]);
    run.respond(ResourceKind::Cluster, "1", "a", vec![good(&c(), 1), good(&d(), 1)]);
    run.respond(ResourceKind::Cluster, "2", "b", vec![bad(&c())]);
    assert_eq!(run.notices(), ["c ambient: INVALID_ARGUMENT", "d ambient: NOT_FOUND"]);
    assert_eq!(run.requests(), ["cds 1/b c d !"]);
}

#[test]
fn x1_a88_an_unreadable_name_proves_no_cluster_absent() {
    let mut run = Run::watching_with(FAILS, &[c(), d()]);
    run.respond(ResourceKind::Cluster, "1", "a", vec![good(&c(), 1), good(&d(), 1)]);
    run.respond(ResourceKind::Cluster, "2", "b", vec![good(&c(), 2), broken(ResourceKind::Cluster)]);
    assert_eq!((run.notices(), run.state(&d())), (vec!["c is 2".to_owned()], "acked"));
}

#[test]
fn x1_a88_a_dropped_cluster_is_not_deleted_twice() {
    let mut run = Run::watching_with(FAILS, &[c()]);
    run.respond(ResourceKind::Cluster, "1", "a", vec![good(&c(), 1)]);
    run.respond(ResourceKind::Cluster, "2", "b", Vec::new());
    run.respond(ResourceKind::Cluster, "3", "c", Vec::new());
    assert_eq!((run.notices(), run.state(&c())), (Vec::new(), "does_not_exist"));
    run.respond(ResourceKind::Cluster, "4", "d", vec![good(&c(), 1)]);
    assert_eq!((run.notices(), run.state(&c())), (vec!["c is 4".to_owned()], "acked"));
}

#[test]
fn x1_a88_a_repeated_nack_is_published_with_its_version() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![bad(&x())]);
    assert_eq!(run.notices(), ["x fails: INVALID_ARGUMENT"]);
    run.respond(ResourceKind::Endpoints, "2", "b", vec![bad(&x())]);
    assert_eq!(run.notices(), [""; 0]);
    let rejected = run.shown(&x()).and_then(|shown| shown.error).and_then(|error| error.rejected);
    assert_eq!(rejected.map(|rejected| rejected.version.to_string()), Some("2".to_owned()));
}
