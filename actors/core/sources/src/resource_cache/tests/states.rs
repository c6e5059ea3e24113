//! The states of a cache entry: the contents of each (A88), their names in CSDS, and the labels of A78.

use super::*;

/// Returns the state, and whether a resource and an error are present.
fn present(fixture: &Fixture) -> (ResourceState, bool, bool) {
    let web = fixture.web();
    (web.state, web.cached.is_some(), web.error.is_some())
}

#[test]
fn x1_a88_requested_has_neither_the_resource_nor_an_error() {
    let mut fixture = Fixture::new(KEEP);
    fixture.watch(WEB, 1);
    assert_eq!(present(&fixture), (ResourceState::Requested, false, false));
    fixture.send(0, &[WEB]);
    assert_eq!(present(&fixture), (ResourceState::Requested, false, false), "also once it was asked for");
    fixture.lose_connection("connection refused");
    assert_eq!(present(&fixture), (ResourceState::Requested, false, false), "its source is not part of it");
}

#[test]
fn x1_a88_acked_has_the_resource_and_no_error() {
    let mut fixture = Fixture::cached(KEEP);
    assert_eq!(present(&fixture), (ResourceState::Acked, true, false));
    fixture.nack("no address");
    fixture.receive(8, "3");
    assert_eq!(present(&fixture), (ResourceState::Acked, true, false), "whatever was wrong before");
}

#[test]
fn x1_a88_a_timer_makes_does_not_exist_without_a_resource() {
    let mut fixture = Fixture::requested(KEEP);
    fixture.tick(15_000);
    assert_eq!(present(&fixture), (ResourceState::DoesNotExist, false, true));
    assert_eq!(fixture.error(), Some(error(Reason::Timer, Code::NotFound, MISSING)));
}

#[test]
fn x1_a88_a_deletion_keeps_the_resource_by_default() {
    for (policy, is_cached) in [(KEEP, true), (DROP, false)] {
        let mut fixture = Fixture::cached(policy);
        fixture.delete();
        assert_eq!(present(&fixture), (ResourceState::DoesNotExist, is_cached, true));
        assert_eq!(fixture.error(), Some(deletion()), "it says how the deletion occurred");
    }
}

#[test]
fn x1_a88_a_nack_keeps_the_resource_by_default() {
    for (policy, is_cached) in [(KEEP, true), (DROP, false)] {
        let mut fixture = Fixture::cached(policy);
        fixture.nack("no address");
        assert_eq!(present(&fixture), (ResourceState::Nacked, is_cached, true));
        assert_eq!(fixture.error(), Some(nack("no address")));
    }
}

#[test]
fn x1_a88_received_error_keeps_the_resource_by_default() {
    for (policy, is_cached) in [(KEEP, true), (DROP, false)] {
        let mut fixture = Fixture::cached(policy);
        fixture.report(Code::PermissionDenied, "not yours");
        assert_eq!(present(&fixture), (ResourceState::ReceivedError, is_cached, true));
        assert_eq!(fixture.error(), Some(reported(Code::PermissionDenied, "not yours")));
    }
}

#[test]
fn x1_a88_timeout_has_an_error_and_no_resource() {
    let mut fixture = Fixture::requested(SLOW);
    fixture.tick(30_000);
    assert_eq!(present(&fixture), (ResourceState::Timeout, false, true));
    assert_eq!(fixture.error(), Some(error(Reason::Timer, Code::Unavailable, LATE)));
}

#[test]
fn x1_a88_the_states_have_their_names_in_csds() {
    let names = ResourceState::ALL.map(ResourceState::as_str);
    assert_eq!(names, ["REQUESTED", "DOES_NOT_EXIST", "ACKED", "NACKED", "RECEIVED_ERROR", "TIMEOUT"]);
}

#[test]
fn x1_a88_the_cache_states_are_those_of_a78_and_four_more() {
    let a78 = ["requested", "does_not_exist", "acked", "nacked", "nacked_but_cached"];
    let a88 = ["timeout", "does_not_exist_but_cached", "received_error", "received_error_but_cached"];
    let expected: BTreeSet<&str> = a78.into_iter().chain(a88).collect();
    let labels: BTreeSet<&str> = CacheState::ALL.map(CacheState::as_str).into_iter().collect();
    assert_eq!(labels, expected);
}

#[test]
fn x1_a88_each_state_has_its_cache_state() {
    let table = [
        (ResourceState::Requested, "requested", "requested"),
        (ResourceState::DoesNotExist, "does_not_exist", "does_not_exist_but_cached"),
        (ResourceState::Acked, "acked", "acked"),
        (ResourceState::Nacked, "nacked", "nacked_but_cached"),
        (ResourceState::ReceivedError, "received_error", "received_error_but_cached"),
        (ResourceState::Timeout, "timeout", "timeout"),
    ];
    assert_eq!(table.map(|(state, _, _)| state), ResourceState::ALL);
    for (state, without, with) in table {
        assert_eq!(state.cache_state(false).as_str(), without);
        assert_eq!(state.cache_state(true).as_str(), with);
    }
}

#[test]
fn x1_a88_watched_resources_are_counted_by_their_cache_state() {
    let mut fixture = Fixture::new(KEEP);
    assert!(fixture.cache.states_count().into_values().eq([0_u64; 9]), "all labels are there from the start");
    for key in ["gone", "asked", "also asked", "bad", "bad from the start", "fine"] {
        fixture.watch(key, 1);
    }
    for key in ["gone", "bad", "fine"] {
        fixture.cache.received(key, good(7, "1", 0), &mut fixture.out);
    }
    fixture.cache.deleted("gone", deletion(), &mut fixture.out);
    fixture.cache.invalid("bad", nack("no address"), &mut fixture.out);
    fixture.cache.invalid("bad from the start", nack("no address"), &mut fixture.out);
    let counts = fixture.cache.states_count().into_iter();
    let counts: BTreeMap<&str, u64> = counts.map(|(state, count)| (state.as_str(), count)).collect();
    let expected = [
        ("requested", 2),
        ("does_not_exist", 0),
        ("does_not_exist_but_cached", 1),
        ("acked", 1),
        ("nacked", 1),
        ("nacked_but_cached", 1),
        ("received_error", 0),
        ("received_error_but_cached", 0),
        ("timeout", 0),
    ];
    assert_eq!(counts, BTreeMap::from(expected));
}

#[test]
fn x1_the_reasons_have_names_of_their_own() {
    let all = [Reason::Connectivity, Reason::Nack, Reason::Deleted, Reason::Timer, Reason::Reported];
    assert_eq!(all.map(Reason::as_str), ["connectivity", "nack", "deleted", "timer", "reported"]);
}

#[test]
fn x1_a88_data_errors_are_nacks_deletions_and_two_statuses() {
    assert!(nack("no address").is_data_error() && deletion().is_data_error());
    for code in Code::ALL {
        let is_data = code == Code::NotFound || code == Code::PermissionDenied;
        assert_eq!(reported(code, "").is_data_error(), is_data, "{code:?}");
        assert!(!error(Reason::Connectivity, code, "").is_data_error(), "{code:?}");
        assert!(!error(Reason::Timer, code, "").is_data_error(), "{code:?}");
    }
}
