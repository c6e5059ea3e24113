//! Tests of the lifetime of an error: the events that repeat or clear it, and which of two errors is reported.

use super::*;

#[test]
fn x1_a_repeated_nack_is_sent_once_with_the_newest_version() {
    for (policy, kind) in [(KEEP, "ambient"), (DROP, "error")] {
        let mut fixture = Fixture::cached(policy);
        fixture.cache.invalid(WEB, in_version(nack("no address"), "2", 20), &mut fixture.out);
        assert_eq!(fixture.notices(), [format!("{kind} INVALID_ARGUMENT no address")]);
        fixture.cache.invalid(WEB, in_version(nack("no address"), "3", 30), &mut fixture.out);
        assert_eq!(fixture.notices(), NOTHING);
        assert_eq!(fixture.error(), Some(in_version(nack("no address"), "3", 30)));
    }
}

#[test]
fn x1_a_deletion_in_every_response_is_notified_once() {
    let mut fixture = Fixture::cached(KEEP);
    fixture.cache.deleted(WEB, in_version(deletion(), "2", 20), &mut fixture.out);
    assert_eq!(fixture.notices(), ["ambient NOT_FOUND was deleted"]);
    fixture.cache.deleted(WEB, in_version(deletion(), "3", 30), &mut fixture.out);
    assert_eq!((fixture.notices(), fixture.value()), (Vec::new(), Some(7)));
    assert_eq!(fixture.error(), Some(in_version(deletion(), "3", 30)));
}

#[test]
fn x1_a_resource_that_was_dropped_is_not_deleted_again() {
    let mut fixture = Fixture::cached(DROP);
    fixture.cache.deleted(WEB, in_version(deletion(), "2", 20), &mut fixture.out);
    assert_eq!(fixture.notices(), ["error NOT_FOUND was deleted"]);
    fixture.cache.deleted(WEB, in_version(deletion(), "3", 30), &mut fixture.out);
    assert_eq!(fixture.notices(), NOTHING);
    assert_eq!(fixture.error(), Some(in_version(deletion(), "2", 20)));
}

#[test]
fn x1_an_error_that_differs_in_anything_is_notified() {
    let mut fixture = Fixture::cached(KEEP);
    fixture.report(Code::NotFound, "was deleted");
    fixture.report(Code::PermissionDenied, "was deleted");
    fixture.report(Code::PermissionDenied, "was hidden");
    fixture.report(Code::NotFound, "was deleted");
    fixture.delete();
    let expected = [
        "ambient NOT_FOUND was deleted",
        "ambient PERMISSION_DENIED was deleted",
        "ambient PERMISSION_DENIED was hidden",
        "ambient NOT_FOUND was deleted",
        "ambient NOT_FOUND was deleted",
    ];
    assert_eq!(fixture.notices(), expected, "the last one has another reason");
}

#[test]
fn x1_a88_the_cache_holds_the_most_recent_error() {
    let mut fixture = Fixture::cached(KEEP);
    fixture.delete();
    fixture.nack("no address");
    assert_eq!((fixture.state(), fixture.error()), ("nacked_but_cached", Some(nack("no address"))));
    fixture.report(Code::Internal, "broken");
    assert_eq!(fixture.state(), "received_error_but_cached");
    assert_eq!(fixture.error(), Some(reported(Code::Internal, "broken")));
    fixture.delete();
    assert_eq!((fixture.state(), fixture.error()), ("does_not_exist_but_cached", Some(deletion())));
}

#[test]
fn x1_a88_the_same_resource_with_ok_clears_ambient_errors() {
    let mut fixture = Fixture::cached(KEEP);
    let faults: [fn(&mut Fixture); 2] = [|fixture| fixture.delete(), |fixture| fixture.nack("no address")];
    for fault in faults {
        fault(&mut fixture);
        assert_eq!(fixture.notices().len(), 1);
        fixture.receive(7, "3");
        assert_eq!(fixture.notices(), ["clear"]);
        assert_eq!((fixture.state(), fixture.error()), ("acked", None));
    }
}

#[test]
fn x1_a88_an_ambient_error_is_cleared_by_another_resource() {
    let mut fixture = Fixture::cached(KEEP);
    fixture.nack("no address");
    assert_eq!(fixture.notices().len(), 1);
    fixture.receive(8, "3");
    assert_eq!(fixture.notices(), ["value 8"], "and by nothing else");
    assert_eq!((fixture.state(), fixture.error()), ("acked", None));
}

#[test]
fn x1_an_unchanged_resource_is_not_notified_again() {
    let mut fixture = Fixture::cached(KEEP);
    fixture.cache.received(WEB, good(7, "2", 20), &mut fixture.out);
    assert_eq!(fixture.notices(), NOTHING);
    assert_eq!(fixture.web().cached, Some(&good(7, "2", 20)));
}

#[test]
fn x1_an_unchanged_resource_keeps_its_newest_bytes() {
    let mut fixture = Fixture::cached(KEEP);
    let raw = Raw { type_url: Arc::from("type.googleapis.com/demo"), bytes: Arc::from([1, 2, 3]) };
    let newer = Cached { raw: Some(raw), ..good(7, "2", 20) };
    fixture.cache.received(WEB, newer.clone(), &mut fixture.out);
    assert_eq!(fixture.notices(), NOTHING);
    assert_eq!(fixture.web().cached, Some(&newer));
}

#[test]
fn x1_a88_a_dropped_resource_that_returns_is_notified() {
    let mut fixture = Fixture::cached(DROP);
    fixture.delete();
    assert_eq!(fixture.notices(), ["error NOT_FOUND was deleted"]);
    fixture.receive(7, "3");
    assert_eq!((fixture.notices(), fixture.state()), (vec![String::from("value 7")], "acked"));
}

#[test]
fn x1_an_unreachable_source_is_reported_once_per_message() {
    let mut fixture = Fixture::cached(KEEP);
    for message in ["connection refused", "connection refused", "no such host"] {
        fixture.lose_connection(message);
    }
    assert_eq!(
        fixture.notices(),
        ["ambient UNAVAILABLE connection refused", "ambient UNAVAILABLE no such host"]
    );
    let message = fixture.cache.connectivity_error().map(|error| error.message.to_string());
    assert_eq!(message.as_deref(), Some("no such host"));
}

#[test]
fn x1_a_source_that_answers_again_clears_its_error() {
    let mut fixture = Fixture::cached(KEEP);
    fixture.lose_connection("connection refused");
    assert_eq!(fixture.notices().len(), 1);
    fixture.reconnect();
    assert_eq!(fixture.notices(), ["clear"]);
    fixture.reconnect();
    assert_eq!((fixture.notices(), fixture.cache.connectivity_error()), (Vec::new(), None));
}

#[test]
fn x1_a_watcher_without_a_resource_is_notified_of_a_reconnect() {
    let mut fixture = Fixture::requested(KEEP);
    fixture.lose_connection("connection refused");
    assert_eq!(fixture.notices(), ["error UNAVAILABLE connection refused"]);
    fixture.reconnect();
    assert_eq!((fixture.notices(), fixture.state()), (vec![String::from("clear")], "requested"));
}

#[test]
fn x1_an_answer_of_a_connected_source_changes_nothing() {
    let mut fixture = Fixture::cached(KEEP);
    fixture.nack("no address");
    assert_eq!(fixture.notices().len(), 1);
    fixture.reconnect();
    assert_eq!((fixture.notices(), fixture.state()), (Vec::new(), "nacked_but_cached"));
}

#[test]
fn x1_an_entrys_own_error_returns_when_the_source_answers() {
    for (policy, kind) in [(KEEP, "ambient"), (DROP, "error")] {
        let mut fixture = Fixture::cached(policy);
        fixture.nack("no address");
        fixture.lose_connection("connection refused");
        fixture.reconnect();
        let own = format!("{kind} INVALID_ARGUMENT no address");
        assert_eq!(fixture.notices(), [own.clone(), format!("{kind} UNAVAILABLE connection refused"), own]);
        assert_eq!(fixture.error(), Some(nack("no address")), "it was remembered");
    }
}

#[test]
fn x1_an_own_error_newer_than_the_loss_is_not_repeated() {
    let mut fixture = Fixture::requested(KEEP);
    fixture.lose_connection("connection refused");
    fixture.tick(15_000);
    assert_eq!(
        fixture.notices(),
        ["error UNAVAILABLE connection refused", &format!("error NOT_FOUND {MISSING}")]
    );
    fixture.reconnect();
    assert_eq!(fixture.notices(), NOTHING);
}

#[test]
fn x1_the_loss_of_a_source_is_repeated_after_another_error() {
    let mut fixture = Fixture::cached(KEEP);
    fixture.lose_connection("connection refused");
    fixture.nack("no address");
    fixture.lose_connection("connection refused");
    let lost = "ambient UNAVAILABLE connection refused";
    assert_eq!(fixture.notices(), [lost, "ambient INVALID_ARGUMENT no address", lost]);
}

#[test]
fn x1_a_cached_resource_leaves_a_silent_sources_error_ambient() {
    let mut fixture = Fixture::requested(KEEP);
    fixture.lose_connection("connection refused");
    assert_eq!(fixture.notices().len(), 1);
    fixture.receive(7, "1");
    assert_eq!(fixture.notices(), ["value 7", "ambient UNAVAILABLE connection refused"]);
    fixture.receive(7, "2");
    assert_eq!(fixture.notices(), NOTHING, "that it cannot be reached is known");
    fixture.nack("no address");
    fixture.receive(7, "3");
    let expected = ["ambient INVALID_ARGUMENT no address", "ambient UNAVAILABLE connection refused"];
    assert_eq!(fixture.notices(), expected, "of the two the one that is left");
    fixture.reconnect();
    assert_eq!(fixture.notices(), ["clear"]);
}

#[test]
fn x1_tp3_a_reported_error_lasts_until_a_newer_fact() {
    let mut fixture = Fixture::requested(KEEP);
    fixture.report(Code::NotFound, "no such service");
    fixture.lose_connection("connection refused");
    fixture.cache.stop_timers();
    fixture.reconnect();
    fixture.send(60_000, &[WEB]);
    fixture.tick(74_999);
    assert_eq!(fixture.error(), Some(reported(Code::NotFound, "no such service")));
    fixture.out.clear();
    fixture.report(Code::Internal, "broken");
    assert_eq!(fixture.notices(), ["error INTERNAL broken"]);
    assert_eq!(
        (fixture.state(), fixture.error()),
        ("received_error", Some(reported(Code::Internal, "broken")))
    );
    fixture.nack("no address");
    assert_eq!(fixture.notices(), ["error INVALID_ARGUMENT no address"]);
    assert_eq!((fixture.state(), fixture.error()), ("nacked", Some(nack("no address"))));
    fixture.receive(7, "1");
    assert_eq!((fixture.notices(), fixture.error()), (vec![String::from("value 7")], None));
}

#[test]
fn x1_a71_a_data_error_follows_the_server_in_use() {
    let mut fixture = Fixture::cached(KEEP);
    fixture.nack("no address");
    assert_eq!(fixture.notices(), ["ambient INVALID_ARGUMENT no address"]);
    fixture.cache.set_policy(DROP);
    assert_eq!((fixture.notices(), fixture.value()), (Vec::new(), Some(7)), "what has happened stands");
    fixture.nack("no address");
    assert_eq!(
        fixture.notices(),
        ["error INVALID_ARGUMENT no address"],
        "known, and it means something else now"
    );
    assert_eq!((fixture.state(), fixture.value()), ("nacked", None));
}

#[test]
fn x1_a88_a_transient_error_keeps_an_ignored_data_error() {
    let mut fixture = Fixture::cached(KEEP);
    fixture.report(Code::NotFound, "no such service");
    fixture.report(Code::Unavailable, "try later");
    let expected = ["ambient NOT_FOUND no such service", "ambient UNAVAILABLE try later"];
    assert_eq!((fixture.notices(), fixture.value()), (expected.map(String::from).to_vec(), Some(7)));
}
