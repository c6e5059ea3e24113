//! The notices to several watchers, to late ones, and to those that leave.

use super::*;

/// Returns the notices to a watcher that starts to watch `web` now.
fn notices_to_late_watcher(fixture: &mut Fixture) -> Vec<String> {
    fixture.out.clear();
    fixture.watch(WEB, 9);
    let notices = fixture.all_notices();
    fixture.cache.unwatch(&WEB, &9);
    notices
}

#[test]
fn x1_a88_a_late_watcher_gets_resource_and_ambient_error() {
    let mut fixture = Fixture::cached(KEEP);
    fixture.nack("no address");
    assert_eq!(
        notices_to_late_watcher(&mut fixture),
        ["web 9: value 7", "web 9: ambient INVALID_ARGUMENT no address"]
    );
}

#[test]
fn x1_a88_a_late_watcher_of_a_good_resource_gets_it() {
    assert_eq!(notices_to_late_watcher(&mut Fixture::cached(KEEP)), ["web 9: value 7"]);
}

#[test]
fn x1_a88_a_late_watcher_without_a_resource_gets_the_error() {
    let mut fixture = Fixture::requested(KEEP);
    fixture.nack("no address");
    assert_eq!(notices_to_late_watcher(&mut fixture), ["web 9: error INVALID_ARGUMENT no address"]);
    let mut fixture = Fixture::cached(DROP);
    fixture.delete();
    assert_eq!(
        notices_to_late_watcher(&mut fixture),
        ["web 9: error NOT_FOUND was deleted"],
        "the dropped one is not shown"
    );
}

#[test]
fn x1_a88_a_late_watcher_of_a_pending_resource_gets_nothing() {
    assert_eq!(notices_to_late_watcher(&mut Fixture::requested(KEEP)), NOTHING);
}

#[test]
fn x1_a88_a_late_watcher_sees_that_the_source_cannot_be_reached() {
    let mut fixture = Fixture::requested(KEEP);
    fixture.lose_connection("connection refused");
    assert_eq!(notices_to_late_watcher(&mut fixture), ["web 9: error UNAVAILABLE connection refused"]);
    let mut fixture = Fixture::cached(KEEP);
    fixture.lose_connection("connection refused");
    assert_eq!(
        notices_to_late_watcher(&mut fixture),
        ["web 9: value 7", "web 9: ambient UNAVAILABLE connection refused"]
    );
}

#[test]
fn x1_a88_a_first_watcher_sees_that_the_source_is_unreachable() {
    let mut fixture = Fixture::new(KEEP);
    fixture.lose_connection("connection refused");
    fixture.watch(WEB, 1);
    assert_eq!(fixture.notices(), ["error UNAVAILABLE connection refused"]);
    assert_eq!(fixture.state(), "requested");
    fixture.reconnect();
    assert_eq!(notices_to_late_watcher(&mut fixture), NOTHING);
}

#[test]
fn x1_a_late_watcher_gets_the_newest_of_two_errors() {
    let mut fixture = Fixture::cached(KEEP);
    fixture.nack("no address");
    fixture.lose_connection("connection refused");
    assert_eq!(fixture.notices().last().map(String::as_str), Some("ambient UNAVAILABLE connection refused"));
    assert_eq!(notices_to_late_watcher(&mut fixture)[1..], ["web 9: ambient UNAVAILABLE connection refused"]);
    fixture.reconnect();
    assert_eq!(fixture.notices(), ["ambient INVALID_ARGUMENT no address"]);
    assert_eq!(notices_to_late_watcher(&mut fixture)[1..], ["web 9: ambient INVALID_ARGUMENT no address"]);
}

#[test]
fn x1_a_late_watcher_sees_the_received_and_the_rejected_version() {
    let mut fixture = Fixture::cached(KEEP);
    fixture.receive(7, "2");
    for (version, at) in [("3", 30), ("4", 40)] {
        fixture.cache.invalid(WEB, in_version(nack("no address"), version, at), &mut fixture.out);
    }
    fixture.out.clear();
    fixture.watch(WEB, 9);
    let changes: Vec<ResourceChange<u32>> =
        std::mem::take(&mut fixture.out).into_iter().map(|notice| notice.change).collect();
    let rejected = in_version(nack("no address"), "4", 40);
    assert_eq!(
        changes,
        [ResourceChange::Changed(Ok(good(7, "2", 0))), ResourceChange::Ambient(Some(rejected))]
    );
}

#[test]
fn x1_a88_watchers_are_notified_in_their_order() {
    let mut fixture = Fixture::requested(KEEP);
    fixture.watch(WEB, 3);
    fixture.watch(WEB, 2);
    fixture.receive(7, "1");
    assert_eq!(fixture.all_notices(), ["web 1: value 7", "web 2: value 7", "web 3: value 7"]);
    fixture.nack("no address");
    let expected = [1, 2, 3].map(|watcher| format!("web {watcher}: ambient INVALID_ARGUMENT no address"));
    assert_eq!(fixture.all_notices(), expected);
}

#[test]
fn x1_a88_watchers_get_no_changes_of_other_resources() {
    let mut fixture = Fixture::requested(KEEP);
    fixture.watch("shop", 1);
    fixture.cache.received("shop", good(5, "1", 0), &mut fixture.out);
    assert_eq!(fixture.all_notices(), ["shop 1: value 5"]);
    fixture.nack("no address");
    assert_eq!(fixture.all_notices(), ["web 1: error INVALID_ARGUMENT no address"]);
    fixture.lose_connection("connection refused");
    let lost = "UNAVAILABLE connection refused";
    assert_eq!(fixture.all_notices(), [format!("shop 1: ambient {lost}"), format!("web 1: error {lost}")]);
}

#[test]
fn x1_a_present_watcher_is_not_notified_again() {
    let mut fixture = Fixture::cached(KEEP);
    fixture.nack("no address");
    fixture.out.clear();
    fixture.watch(WEB, 1);
    assert_eq!((fixture.notices(), fixture.web().watchers), (Vec::new(), 1));
}

#[test]
fn x1_an_entry_is_removed_with_its_last_watcher() {
    let mut fixture = Fixture::cached(KEEP);
    fixture.watch(WEB, 2);
    fixture.out.clear();
    assert!(!fixture.cache.unwatch(&WEB, &1), "another one watches it");
    assert!(!fixture.cache.unwatch(&WEB, &1), "it does not watch it any more");
    assert!(!fixture.cache.unwatch(&"shop", &2), "it has no watcher");
    assert_eq!(fixture.value(), Some(7));
    assert!(fixture.cache.unwatch(&WEB, &2));
    assert_eq!(fixture.cache.get(&WEB), None);
    fixture.watch(WEB, 1);
    assert_eq!((fixture.notices(), fixture.state()), (Vec::new(), "requested"));
}

#[test]
fn x1_a_former_watcher_is_not_notified() {
    let mut fixture = Fixture::cached(KEEP);
    fixture.watch(WEB, 2);
    fixture.out.clear();
    fixture.cache.unwatch(&WEB, &2);
    fixture.nack("no address");
    assert_eq!(fixture.notices(), ["ambient INVALID_ARGUMENT no address"]);
}

#[test]
fn x1_a_response_without_watchers_is_ignored() {
    let mut fixture = Fixture::new(KEEP);
    fixture.receive(7, "1");
    fixture.nack("no address");
    fixture.report(Code::NotFound, "no such service");
    fixture.delete();
    assert_eq!((fixture.notices(), fixture.cache.entries().count()), (Vec::new(), 0));
}

#[test]
fn x1_entries_are_listed_by_key_with_all_that_csds_shows() {
    let mut fixture = Fixture::new(KEEP);
    for (key, watcher) in [("web", 1), ("shop", 1), ("web", 2)] {
        fixture.watch(key, watcher);
    }
    fixture.cache.received(WEB, good(7, "1", 10), &mut fixture.out);
    let rejected = in_version(nack("no address"), "2", 20);
    fixture.cache.invalid(WEB, rejected.clone(), &mut fixture.out);
    let cached = good(7, "1", 10);
    let expected = [
        Listed { key: &"shop", state: ResourceState::Requested, cached: None, error: None, watchers: 1 },
        Listed {
            key: &"web",
            state: ResourceState::Nacked,
            cached: Some(&cached),
            error: Some(&rejected),
            watchers: 2,
        },
    ];
    assert_eq!(fixture.cache.entries().collect::<Vec<_>>(), expected);
}
