//! Objects that exist and were never decoded: their requirements are unknown, which differs from nothing (D6).

use super::*;

/// Returns an Informer with the Service web and node n1, whose first lists contained these slices and undecodable
/// lines.
fn first_lists(slices: Vec<SliceObject>, bad_slices: Vec<WatchUpdate>, bad_nodes: Vec<WatchUpdate>) -> Run {
    let mut run = Run::of(params());
    run.list(Kind::Services, vec![service("web"), service("api")]);
    let lists = [
        (Kind::EndpointSlices, slices.into_iter().map(Object::from).collect::<Vec<_>>(), bad_slices),
        (Kind::Nodes, vec![node("n1", &["10.0.0.1"]).into()], bad_nodes),
    ];
    for (kind, good, bad) in lists {
        run.observe(kind, WatchUpdate::ListBegan(Provenance::FirstList));
        for object in good {
            run.observe(kind, WatchUpdate::Object(object));
        }
        for event in bad {
            run.observe(kind, event);
        }
        run.list_done(kind, 101, None);
    }
    run
}

/// Returns the last fact about a Service: its members, whether removals are disabled, and its errors.
fn last(run: &Run, name: &str) -> (String, bool, Vec<String>) {
    let entry = &run.informer.cache.entries[&ServiceKey::new("shop", name)];
    let fact = entry.published.as_ref().expect("a fact was said");
    let errors = fact.data_errors.iter().map(ToString::to_string).collect();
    (shown(fact, V4), fact.parts[&V4].unusable, errors)
}

fn right(members: &str) -> (String, bool, Vec<String>) {
    (members.to_owned(), false, Vec::new())
}

fn incomplete(members: &str, error: &str) -> (String, bool, Vec<String>) {
    (members.to_owned(), true, vec![error.to_owned()])
}

#[test]
fn d6_a_slice_that_was_never_decoded_is_unknown() {
    let bad = bad_of(Some(slice_key("web-1")), "web");
    let mut run = first_lists(vec![slice("api-1", "api", &["n1"])], vec![bad], vec![]);
    let out = run.turn();
    assert_eq!(last(&run, "web"), incomplete(" | ", "EndpointSlice shop/web-1 cannot be read"));
    assert_eq!(last(&run, "api"), right("1 | "), "it belongs to no other Service");
    let [report] = &reports(&out)[..] else { panic!("one report: {out:?}") };
    let example = "EndpointSlice shop/web-1 cannot be read".into();
    assert_eq!(report.what, EventKind::DataError { endpoints: 0, example });
    run.put(slice("web-2", "web", &["n1"]));
    run.turn();
    let error = "EndpointSlice shop/web-1 cannot be read";
    assert_eq!(last(&run, "web"), incomplete("1 | ", error), "additions pass");
    run.put(slice("web-1", "web", &["n1"]));
    run.turn();
    assert_eq!(last(&run, "web"), right("1 | "));
    assert_eq!(run.informer.unread.listed(Kind::EndpointSlices, BTreeMap::new(), false), [].into());
}

#[test]
fn d6_it_ends_when_the_slice_is_deleted_missing_or_readable() {
    let start = || {
        let mut run = Run::synced(
            vec![service("web"), service("api")],
            vec![slice("web-1", "web", &["n1"]), slice("api-1", "api", &["n2"])],
        );
        run.observe(Kind::EndpointSlices, bad_of(Some(slice_key("web-2")), "web"));
        let out = run.turn();
        assert_eq!(facts(&out).len(), 1);
        assert_eq!(last(&run, "web"), incomplete("1 | ", "EndpointSlice shop/web-2 cannot be read"));
        run
    };
    let mut deleted = start();
    deleted.gone(slice_key("web-2"));
    deleted.turn();
    assert_eq!(last(&deleted, "web"), right("1 | "));

    let mut listed = start();
    listed.list(Kind::EndpointSlices, vec![slice("web-1", "web", &["n1"]), slice("api-1", "api", &["n2"])]);
    listed.turn();
    assert_eq!(last(&listed, "web"), right("1 | "));

    let mut moved = start();
    moved.put(slice("web-2", "api", &["n3"]));
    moved.turn();
    assert_eq!((last(&moved, "web"), last(&moved, "api")), (right("1 | "), right("2 3 | ")));
}

#[test]
fn d6_it_lasts_through_a_broken_list_or_one_that_has_it_again() {
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    run.observe(Kind::EndpointSlices, bad_of(Some(slice_key("web-2")), "web"));
    run.turn();
    let still = incomplete("1 | ", "EndpointSlice shop/web-2 cannot be read");
    run.observe(Kind::EndpointSlices, WatchUpdate::ListBegan(Provenance::Relist));
    run.observe(Kind::EndpointSlices, WatchUpdate::ListAborted);
    run.turn();
    assert_eq!(last(&run, "web"), still);
    for (n, line) in [bad_of(Some(slice_key("web-2")), "web"), bad(None)].into_iter().enumerate() {
        run.observe(Kind::EndpointSlices, WatchUpdate::ListBegan(Provenance::Relist));
        run.observe(Kind::EndpointSlices, WatchUpdate::Object(slice("web-1", "web", &["n1"]).into()));
        run.observe(Kind::EndpointSlices, line);
        run.list_done(Kind::EndpointSlices, 300, None);
        assert_eq!(facts(&run.turn()).len(), n, "a nameless one is one more error");
        let (members, unusable, errors) = last(&run, "web");
        assert_eq!((members, unusable, &errors[..1]), (still.0.clone(), true, &still.2[..]));
    }
}

#[test]
fn d6_a_slice_with_an_unreadable_service_counts_for_all() {
    let mut elsewhere = service("far");
    elsewhere.key = ServiceKey::new("zoo", "far");
    let mut run = Run::synced(vec![service("web"), service("api"), elsewhere], vec![]);
    run.observe(Kind::EndpointSlices, bad(Some(slice_key("some"))));
    assert_eq!(facts(&run.turn()).len(), 2);
    let error = incomplete(" | ", "EndpointSlice shop/some cannot be read");
    assert_eq!((last(&run, "web"), last(&run, "api")), (error.clone(), error));
    run.observe(Kind::EndpointSlices, bad_of(Some(slice_key("some")), "api"));
    assert_eq!(facts(&run.turn()).len(), 1, "its metadata can be read now");
    assert_eq!(last(&run, "web"), right(" | "));
    run.gone(slice_key("some"));
    run.turn();
    assert_eq!(last(&run, "api"), right(" | "));
}

#[test]
fn d6_an_undecodable_slice_without_a_service_concerns_none() {
    let without_owner = || bad_line(Some(slice_key("some")), Owner::Nobody);
    let mut run = first_lists(vec![slice("web-1", "web", &["n1"])], vec![without_owner()], vec![]);
    run.turn();
    assert_eq!((last(&run, "web"), last(&run, "api")), (right("1 | "), right(" | ")));
    run.observe(Kind::EndpointSlices, without_owner());
    assert!(facts(&run.turn()).is_empty());
    run.observe(Kind::EndpointSlices, bad(Some(slice_key("some"))));
    run.turn();
    assert_eq!(last(&run, "web"), incomplete("1 | ", "EndpointSlice shop/some cannot be read"));
    run.observe(Kind::EndpointSlices, without_owner());
    run.turn();
    assert_eq!((last(&run, "web"), last(&run, "api")), (right("1 | "), right(" | ")), "it says so now");
}

#[test]
fn d6_a_node_that_was_never_decoded_leaves_parts_incomplete() {
    let slices = vec![slice("web-1", "web", &["n1", "n2"]), slice("api-1", "api", &["n1"])];
    let mut run = first_lists(slices, vec![], vec![bad(Some(node_key("n2")))]);
    run.turn();
    assert_eq!(last(&run, "web"), incomplete("1 | ", "node n2 cannot be read"));
    assert_eq!(last(&run, "api"), right("1 | "), "it has no endpoint there");
    run.put(node("n2", &["10.0.0.2"]));
    run.turn();
    assert_eq!(last(&run, "web"), right("1 2 | "));
    run.observe(Kind::Nodes, bad(Some(node_key("n2"))));
    run.turn();
    assert_eq!(last(&run, "web"), right("1 2 | "), "its last good state stays in use");

    run.put(slice("web-1", "web", &["n1", "n5"]));
    run.turn();
    run.observe(Kind::Nodes, bad(Some(node_key("n5"))));
    run.turn();
    assert_eq!(last(&run, "web"), incomplete("1 | ", "node n5 cannot be read"), "a new node as well");
    run.gone(node_key("n5"));
    run.turn();
    let gone = ("1 | ".to_owned(), false, vec!["node n5 is not known".to_owned()]);
    assert_eq!(last(&run, "web"), gone);
}

#[test]
fn d6_an_incomplete_first_list_leaves_endpoints_unknown() {
    let slices = vec![slice("web-1", "web", &["n1", "n2"]), slice("api-1", "api", &["n1"])];
    let mut run = first_lists(slices, vec![], vec![bad(None)]);
    run.turn();
    assert_eq!(last(&run, "web"), incomplete("1 | ", "node n2 is not known"));
    assert_eq!(last(&run, "api"), right("1 | "));
}

#[test]
fn d6_only_families_that_the_service_has_are_incomplete() {
    let mut dual = service("web");
    dual.families = vec![V4, V6];
    let mut run = Run::synced(vec![dual, service("api")], vec![]);
    run.observe(Kind::EndpointSlices, bad(Some(slice_key("some"))));
    let unusable_parts = facts(&run.turn());
    let unusable = |fact: &ServiceFact| (fact.parts[&V4].unusable, fact.parts[&V6].unusable);
    let unusable_parts: Vec<_> =
        unusable_parts.iter().flat_map(|(_, fact)| fact).map(|fact| unusable(fact)).collect();
    assert_eq!(unusable_parts, [(true, false), (true, true)]);
}

#[test]
fn d6_nothing_is_managed_for_a_service_that_was_never_decoded() {
    let mut run = Run::synced(vec![], vec![slice("web-1", "web", &["n1"])]);
    run.observe(Kind::Services, bad(Some(service_key("web"))));
    assert!(run.turn().is_empty());
    run.put(service("web"));
    assert_eq!(shown(&run.fact(), V4), "1 | ");
}

#[test]
fn g2_having_no_slices_counts_only_while_they_are_watched() {
    let mut run = first_lists(vec![slice("api-1", "api", &["n1"])], vec![], vec![]);
    run.turn();
    assert_eq!(last(&run, "web"), right(" | "));
    run.freshness(Kind::EndpointSlices, false);
    run.turn();
    assert_eq!(last(&run, "web"), (" | ".to_owned(), true, Vec::new()), "what its pool holds is held");
    assert_eq!(last(&run, "api"), right("1 | "), "what is known stays in use");
    run.put(service("late"));
    run.turn();
    assert!(last(&run, "late").1, "one that comes meanwhile may have endpoints");
    run.freshness(Kind::EndpointSlices, true);
    run.turn();
    assert_eq!(last(&run, "web"), right(" | "));
    run.freshness(Kind::Nodes, false);
    run.turn();
    assert_eq!(last(&run, "web"), right(" | "), "the other kinds say nothing of endpoints");
}
