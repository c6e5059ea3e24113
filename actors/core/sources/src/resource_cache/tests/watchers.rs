//! The notices to several watchers, to late ones, and to those that leave.

use super::*;

/// Returns the notices to a watcher that starts to watch `web` now.
fn notices_to_late_watcher(bench: &mut Bench) -> Vec<String> {
    bench.out.clear();
    bench.watch(WEB, 9);
    let notices = bench.all_notices();
    bench.cache.unwatch(&WEB, &9);
    notices
}

#[test]
fn x1_a88_a_late_watcher_gets_resource_and_ambient_error() {
    let mut bench = Bench::cached(KEEP);
    bench.nack("no address");
    assert_eq!(
        notices_to_late_watcher(&mut bench),
        ["web 9: value 7", "web 9: ambient INVALID_ARGUMENT no address"]
    );
}

#[test]
fn x1_a88_a_late_watcher_of_a_good_resource_sees_just_that() {
    assert_eq!(notices_to_late_watcher(&mut Bench::cached(KEEP)), ["web 9: value 7"]);
}

#[test]
fn x1_a88_a_late_watcher_without_a_resource_gets_the_error() {
    let mut bench = Bench::requested(KEEP);
    bench.nack("no address");
    assert_eq!(notices_to_late_watcher(&mut bench), ["web 9: error INVALID_ARGUMENT no address"]);
    let mut bench = Bench::cached(DROP);
    bench.delete();
    assert_eq!(
        notices_to_late_watcher(&mut bench),
        ["web 9: error NOT_FOUND was deleted"],
        "the dropped one is not shown"
    );
}

#[test]
fn x1_a88_a_late_watcher_of_a_pending_resource_gets_nothing() {
    assert_eq!(notices_to_late_watcher(&mut Bench::requested(KEEP)), NOTHING);
}

#[test]
fn x1_a88_a_late_watcher_sees_that_the_source_cannot_be_reached() {
    let mut bench = Bench::requested(KEEP);
    bench.lose_connection("connection refused");
    assert_eq!(notices_to_late_watcher(&mut bench), ["web 9: error UNAVAILABLE connection refused"]);
    let mut bench = Bench::cached(KEEP);
    bench.lose_connection("connection refused");
    assert_eq!(
        notices_to_late_watcher(&mut bench),
        ["web 9: value 7", "web 9: ambient UNAVAILABLE connection refused"]
    );
}

#[test]
fn x1_a88_the_first_watcher_of_an_unreachable_source_sees_that() {
    let mut bench = Bench::new(KEEP);
    bench.lose_connection("connection refused");
    bench.watch(WEB, 1);
    assert_eq!(bench.notices(), ["error UNAVAILABLE connection refused"]);
    assert_eq!(bench.state(), "requested");
    bench.reconnect();
    assert_eq!(notices_to_late_watcher(&mut bench), NOTHING);
}

#[test]
fn x1_a_late_watcher_gets_the_newest_of_two_errors() {
    let mut bench = Bench::cached(KEEP);
    bench.nack("no address");
    bench.lose_connection("connection refused");
    assert_eq!(bench.notices().last().map(String::as_str), Some("ambient UNAVAILABLE connection refused"));
    assert_eq!(notices_to_late_watcher(&mut bench)[1..], ["web 9: ambient UNAVAILABLE connection refused"]);
    bench.reconnect();
    assert_eq!(bench.notices(), ["ambient INVALID_ARGUMENT no address"]);
    assert_eq!(notices_to_late_watcher(&mut bench)[1..], ["web 9: ambient INVALID_ARGUMENT no address"]);
}

#[test]
fn x1_a_late_watcher_sees_the_received_and_the_rejected_version() {
    let mut bench = Bench::cached(KEEP);
    bench.receive(7, "2");
    for (version, at) in [("3", 30), ("4", 40)] {
        bench.cache.invalid(WEB, in_version(nack("no address"), version, at), &mut bench.out);
    }
    bench.out.clear();
    bench.watch(WEB, 9);
    let changes: Vec<ResourceChange<u32>> =
        std::mem::take(&mut bench.out).into_iter().map(|notice| notice.change).collect();
    let rejected = in_version(nack("no address"), "4", 40);
    assert_eq!(
        changes,
        [ResourceChange::Changed(Ok(good(7, "2", 0))), ResourceChange::Ambient(Some(rejected))]
    );
}

#[test]
fn x1_a88_watchers_are_notified_in_their_order() {
    let mut bench = Bench::requested(KEEP);
    bench.watch(WEB, 3);
    bench.watch(WEB, 2);
    bench.receive(7, "1");
    assert_eq!(bench.all_notices(), ["web 1: value 7", "web 2: value 7", "web 3: value 7"]);
    bench.nack("no address");
    let expected = [1, 2, 3].map(|watcher| format!("web {watcher}: ambient INVALID_ARGUMENT no address"));
    assert_eq!(bench.all_notices(), expected);
}

#[test]
fn x1_a88_watchers_get_no_changes_of_other_resources() {
    let mut bench = Bench::requested(KEEP);
    bench.watch("shop", 1);
    bench.cache.received("shop", good(5, "1", 0), &mut bench.out);
    assert_eq!(bench.all_notices(), ["shop 1: value 5"]);
    bench.nack("no address");
    assert_eq!(bench.all_notices(), ["web 1: error INVALID_ARGUMENT no address"]);
    bench.lose_connection("connection refused");
    let lost = "UNAVAILABLE connection refused";
    assert_eq!(bench.all_notices(), [format!("shop 1: ambient {lost}"), format!("web 1: error {lost}")]);
}

#[test]
fn x1_a_present_watcher_is_not_notified_again() {
    let mut bench = Bench::cached(KEEP);
    bench.nack("no address");
    bench.out.clear();
    bench.watch(WEB, 1);
    assert_eq!((bench.notices(), bench.web().watchers), (Vec::new(), 1));
}

#[test]
fn x1_an_entry_goes_with_its_last_watcher() {
    let mut bench = Bench::cached(KEEP);
    bench.watch(WEB, 2);
    bench.out.clear();
    assert!(!bench.cache.unwatch(&WEB, &1), "another one watches it");
    assert!(!bench.cache.unwatch(&WEB, &1), "it does not watch it any more");
    assert!(!bench.cache.unwatch(&"shop", &2), "it has no watcher");
    assert_eq!(bench.value(), Some(7));
    assert!(bench.cache.unwatch(&WEB, &2));
    assert_eq!(bench.cache.get(&WEB), None);
    bench.watch(WEB, 1);
    assert_eq!((bench.notices(), bench.state()), (Vec::new(), "requested"));
}

#[test]
fn x1_a_former_watcher_is_not_notified() {
    let mut bench = Bench::cached(KEEP);
    bench.watch(WEB, 2);
    bench.out.clear();
    bench.cache.unwatch(&WEB, &2);
    bench.nack("no address");
    assert_eq!(bench.notices(), ["ambient INVALID_ARGUMENT no address"]);
}

#[test]
fn x1_a_response_without_watchers_is_ignored() {
    let mut bench = Bench::new(KEEP);
    bench.receive(7, "1");
    bench.nack("no address");
    bench.report(Code::NotFound, "no such service");
    bench.delete();
    assert_eq!((bench.notices(), bench.cache.entries().count()), (Vec::new(), 0));
}

#[test]
fn x1_entries_are_listed_by_key_with_all_that_csds_shows() {
    let mut bench = Bench::new(KEEP);
    for (key, watcher) in [("web", 1), ("shop", 1), ("web", 2)] {
        bench.watch(key, watcher);
    }
    bench.cache.received(WEB, good(7, "1", 10), &mut bench.out);
    let rejected = in_version(nack("no address"), "2", 20);
    bench.cache.invalid(WEB, rejected.clone(), &mut bench.out);
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
    assert_eq!(bench.cache.entries().collect::<Vec<_>>(), expected);
}
