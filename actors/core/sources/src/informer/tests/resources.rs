//! Tests of X5: the slice sets of candidates have A88's states, and a data error has the configured effect.

use super::*;
use model::view::ResourceView;
use model::xds::cache::{CacheState, Reason, ResourceState};

/// Returns the resource of `web` in its last fact.
fn view_of(run: &Run) -> ResourceView {
    let entry = &run.informer.cache.entries[&service_key_of("web")];
    entry
        .published
        .as_ref()
        .and_then(|fact| fact.resource.clone())
        .expect("it is a candidate, of which something was said")
}

fn service_key_of(name: &str) -> ServiceKey {
    ServiceKey::new("shop", name)
}

fn dropped(run: &Run) -> bool {
    let output = run.informer.cache.entries[&service_key_of("web")].published.as_ref();
    output.is_some_and(|fact| fact.parts[&V4].is_dropped)
}

fn state(run: &Run) -> (ResourceState, bool) {
    let view = view_of(run);
    (view.state, view.is_cached)
}

/// Returns an Informer with `web` on n1 and n2 in two slices; with `failOnDataErrors` or without.
fn with(fail_on_data_errors: bool) -> Run {
    let mut run = Run::of(Params { fail_on_data_errors, ..params() });
    run.list(Kind::Services, vec![service("web")]);
    run.list(Kind::EndpointSlices, vec![slice("web-1", "web", &["n1"]), slice("web-2", "web", &["n2"])]);
    let ips = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
    run.list(Kind::Nodes, (1..).zip(ips).map(|(n, ip)| node(&format!("n{n}"), &[ip])).collect());
    run.turn();
    run
}

fn required(run: &Run) -> Vec<String> {
    let fact =
        run.informer.cache.entries[&service_key_of("web")].published.clone().expect("something was said");
    fact.parts[&Family::V4].required.keys().map(ToString::to_string).collect()
}

#[test]
fn x5_a_candidates_slices_are_acked_with_every_change() {
    let mut run = with(false);
    assert_eq!(view_of(&run), ResourceView { state: ResourceState::Acked, is_cached: true, error: None });
    run.put(slice("web-1", "web", &["n3"]));
    run.turn();
    assert_eq!(state(&run), (ResourceState::Acked, true));
    let counts = run.informer.resources.samples(run.now);
    assert!(counts.is_empty(), "they were told: {counts:?}");
}

#[test]
fn x5_a_list_that_does_not_arrive_in_time_is_a_timeout() {
    let mut run = Run::of(params());
    run.list(Kind::Services, vec![service("web")]);
    let states = |out: &[Out]| {
        let state = |output: &Out| match output {
            Out::Metric(Metric::ServiceResources { state, count: 1 }) => Some(*state),
            Out::Metric(_)
            | Out::Service(..)
            | Out::Synced
            | Out::Confirmed(_)
            | Out::Reread(_)
            | Out::ReadUpTo(_)
            | Out::AwaitingIngress(_)
            | Out::Node(..)
            | Out::Cached(..)
            | Out::Relist(..)
            | Out::Report(_)
            | Out::Ended(_) => None,
        };
        out.iter().filter_map(state).collect::<Vec<_>>()
    };
    assert_eq!(states(&run.turn()), [CacheState::Requested]);
    assert!(states(&run.pass(29)).is_empty());
    let out = run.pass(1);
    assert_eq!(states(&out), [CacheState::Timeout]);
    assert!(facts(&out).is_empty(), "nothing is said before all lists are complete (D6)");
    run.list(Kind::EndpointSlices, vec![slice("web-1", "web", &["n1"])]);
    run.list(Kind::Nodes, vec![node("n1", &["10.0.0.1"])]);
    run.turn();
    assert_eq!(state(&run), (ResourceState::Acked, true));
}

#[test]
fn x5_an_undecodable_slice_is_a_nack() {
    let mut run = with(false);
    run.observe(Kind::EndpointSlices, bad(Some(slice_key("web-1"))));
    run.turn();
    let view = view_of(&run);
    assert_eq!((view.state, view.is_cached), (ResourceState::Nacked, true));
    let (reason, words) = view.error.expect("it says why");
    assert!(reason == Reason::Nack && words.contains("shop/web-1"), "{words}");
    assert_eq!(required(&run), ["10.0.0.1", "10.0.0.2"]);
    assert!(!dropped(&run));
    run.put(slice("web-1", "web", &["n3"]));
    run.turn();
    assert_eq!(
        (state(&run), required(&run)),
        ((ResourceState::Acked, true), vec!["10.0.0.2".into(), "10.0.0.3".into()])
    );
}

#[test]
fn x5_fail_on_data_errors_drops_only_that_slices_endpoints() {
    let mut run = with(true);
    run.observe(Kind::EndpointSlices, bad(Some(slice_key("web-1"))));
    run.turn();
    assert_eq!(state(&run), (ResourceState::Nacked, true), "the rest of the set is in use");
    assert_eq!(required(&run), ["10.0.0.2"]);
    assert!(!dropped(&run));
    run.observe(Kind::EndpointSlices, bad(Some(slice_key("web-2"))));
    run.turn();
    assert_eq!(state(&run), (ResourceState::Nacked, false));
    assert!(required(&run).is_empty() && dropped(&run));
    run.put(slice("web-2", "web", &["n2"]));
    run.turn();
    assert_eq!(state(&run), (ResourceState::Nacked, true));
    assert!(required(&run) == ["10.0.0.2"] && !dropped(&run));
}

#[test]
fn x5_a_slice_that_was_never_decodable_drops_nothing() {
    for fails in [false, true] {
        let mut run = with(fails);
        run.observe(Kind::EndpointSlices, bad_of(Some(slice_key("web-3")), "web"));
        run.turn();
        assert_eq!(state(&run), (ResourceState::Nacked, true), "the others are in use");
        assert_eq!((required(&run).len(), dropped(&run)), (2, false));
        let mut run = Run::of(Params { fail_on_data_errors: fails, ..params() });
        run.list(Kind::Services, vec![service("web")]);
        run.list::<SliceObject>(Kind::EndpointSlices, vec![]);
        run.list(Kind::Nodes, vec![node("n1", &["10.0.0.1"])]);
        run.turn();
        run.observe(Kind::EndpointSlices, bad_of(Some(slice_key("web-1")), "web"));
        run.turn();
        assert_eq!((state(&run), dropped(&run)), ((ResourceState::Nacked, false), false));
    }
}

#[test]
fn x5_a_service_without_slices_is_shown_as_such_after_30_s() {
    let mut run = Run::synced(vec![service("web")], vec![]);
    assert_eq!(state(&run), (ResourceState::Requested, false));
    run.pass(30);
    assert_eq!((state(&run), dropped(&run)), ((ResourceState::Timeout, false), false));
}

#[test]
fn x5_vanished_slices_are_dropped_only_if_configured() {
    for fails in [false, true] {
        let mut run = with(fails);
        run.gone(slice_key("web-1"));
        run.turn();
        assert_eq!(state(&run), (ResourceState::Acked, true), "others are left");
        run.gone(slice_key("web-2"));
        run.turn();
        assert_eq!(state(&run), (ResourceState::DoesNotExist, !fails));
        assert_eq!(dropped(&run), fails);
        run.put(slice("web-3", "web", &["n1"]));
        run.turn();
        assert_eq!((state(&run), dropped(&run)), ((ResourceState::Acked, true), false));
    }
}

#[test]
fn x5_a_broken_watch_republishes_no_service() {
    for fails in [false, true] {
        let mut run = with(fails);
        run.freshness(Kind::EndpointSlices, false);
        run.turn();
        assert!(facts(&run.turn()).is_empty());
        assert_eq!(view_of(&run), ResourceView { state: ResourceState::Acked, is_cached: true, error: None });
        assert_eq!(required(&run), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(run.informer.resources.lost().map(|error| error.reason), Some(Reason::Connectivity));
        run.freshness(Kind::EndpointSlices, true);
        assert!(facts(&run.turn()).is_empty(), "no Service is said again for it");
        assert!(run.informer.resources.lost().is_none());
    }
}

/// Delivers a denial of EndpointSlices by the API server.
fn denied(run: &mut Run) {
    let freshness = WatchFreshness::Denied("denied: endpointslices is forbidden".into());
    run.informer.step(run.now, In::Freshness(Kind::EndpointSlices, freshness), &mut run.out);
    run.turn();
}

#[test]
fn x5_a_denial_that_ends_within_a_minute_does_not_count() {
    for fails in [false, true] {
        let mut run = with(fails);
        let is_in_use = |run: &mut Run, seconds: u64| {
            run.pass(seconds);
            assert_eq!(
                (state(run), required(run).len(), dropped(run)),
                ((ResourceState::Acked, true), 2, false),
                "after {seconds} s"
            );
        };
        denied(&mut run);
        is_in_use(&mut run, 1);
        run.freshness(Kind::EndpointSlices, false);
        is_in_use(&mut run, 600);
        // The denial counts from the next one on.
        denied(&mut run);
        is_in_use(&mut run, 59);
        run.freshness(Kind::EndpointSlices, true);
        is_in_use(&mut run, 600);
        denied(&mut run);
        is_in_use(&mut run, 59);
        run.pass(1);
        assert_eq!((state(&run), dropped(&run)), ((ResourceState::ReceivedError, !fails), fails));
    }
}

#[test]
fn x3_x5_a_lasting_denial_does_not_affect_unknown_services() {
    let mut run = Run::of(Params { fail_on_data_errors: true, ..params() });
    run.list(Kind::Services, vec![service("web"), service("api")]);
    run.list(Kind::EndpointSlices, vec![slice("api-1", "api", &["n1"])]);
    run.list(Kind::Nodes, vec![node("n1", &["10.0.0.1"])]);
    run.turn();
    let unusable = |run: &Run, name: &str| {
        let fact =
            run.informer.cache.entries[&service_key_of(name)].published.clone().expect("something was said");
        [V4, V6].map(|family| fact.parts[&family].unusable)
    };
    assert_eq!(unusable(&run, "web"), [false, false], "the list says that it has none");
    denied(&mut run);
    run.pass(60);
    assert_eq!((state(&run), dropped(&run)), ((ResourceState::ReceivedError, false), false));
    assert_eq!(unusable(&run, "web"), [true, false], "what its pools hold is held");
    let api =
        run.informer.cache.entries[&service_key_of("api")].published.clone().expect("something was said");
    assert!(api.parts[&V4].is_dropped && api.parts[&V4].required.is_empty());
    assert_eq!(unusable(&run, "api"), [false, false], "what was known of it is not used any more");
    run.freshness(Kind::EndpointSlices, true);
    run.turn();
    assert_eq!((dropped(&run), unusable(&run, "web")), (false, [false, false]));
}

#[test]
fn x5_a_denial_is_transient_for_a_minute() {
    for fails in [false, true] {
        let mut run = with(fails);
        denied(&mut run);
        run.pass(59);
        denied(&mut run);
        assert_eq!(
            (state(&run), required(&run).len()),
            ((ResourceState::Acked, true), 2),
            "flaps are no word"
        );
        run.pass(1);
        run.turn();
        assert_eq!(state(&run), (ResourceState::ReceivedError, !fails));
        let expected = if fails { 0 } else { 2 };
        assert_eq!((required(&run).len(), dropped(&run)), (expected, fails));
        run.freshness(Kind::EndpointSlices, false);
        run.turn();
        assert_eq!(
            state(&run),
            (ResourceState::ReceivedError, !fails),
            "its word stands until it sends them again"
        );
        assert_eq!(required(&run).len(), expected);
        run.freshness(Kind::EndpointSlices, true);
        run.turn();
        assert_eq!(
            (state(&run), required(&run).len(), dropped(&run)),
            ((ResourceState::Acked, true), 2, false)
        );
    }
}

#[test]
fn x5_a_service_that_is_no_longer_a_candidate_has_no_resource() {
    let mut run = with(false);
    run.gone(service_key("web"));
    run.turn();
    let out = run.pass(1);
    let is_gone = |output: &Out| {
        matches!(output, Out::Metric(Metric::ServiceResources { state: CacheState::Acked, count: 0 }))
    };
    assert!(out.iter().any(is_gone), "{out:?}");
}
