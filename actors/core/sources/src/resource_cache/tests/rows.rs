//! The rows of A88's "Summary of Behavior Changes", one test each, in its order.

use super::*;

#[test]
fn x1_a88_a_failing_channel_fails_uncached_ones() {
    for policy in ALL_POLICIES {
        let mut fixture = Fixture::requested(policy);
        fixture.lose_connection("connection refused");
        assert_eq!(fixture.notices(), ["error UNAVAILABLE connection refused"]);
        assert_eq!((fixture.state(), fixture.error()), ("requested", None));
    }
}

#[test]
fn x1_a88_a_failing_channel_is_ambient_for_cached_ones() {
    for policy in ALL_POLICIES {
        let mut fixture = Fixture::cached(policy);
        fixture.lose_connection("connection refused");
        assert_eq!(fixture.notices(), ["ambient UNAVAILABLE connection refused"]);
        assert_eq!((fixture.state(), fixture.value(), fixture.error()), ("acked", Some(7), None));
    }
}

#[test]
fn x1_a88_a_stream_without_a_response_fails_uncached_ones() {
    for policy in ALL_POLICIES {
        let mut fixture = Fixture::requested(policy);
        fixture.cache.stop_timers();
        fixture.lose_connection("stream ended without a response");
        assert_eq!(fixture.notices(), ["error UNAVAILABLE stream ended without a response"]);
        assert_eq!((fixture.state(), fixture.error()), ("requested", None));
    }
}

#[test]
fn x1_a88_a_stream_without_a_response_is_ambient_for_cached() {
    for policy in ALL_POLICIES {
        let mut fixture = Fixture::cached(policy);
        fixture.cache.stop_timers();
        fixture.lose_connection("stream ended without a response");
        assert_eq!(fixture.notices(), ["ambient UNAVAILABLE stream ended without a response"]);
        assert_eq!((fixture.state(), fixture.value(), fixture.error()), ("acked", Some(7), None));
    }
}

#[test]
fn x1_a88_a_nack_fails_uncached_ones() {
    for policy in ALL_POLICIES {
        let mut fixture = Fixture::requested(policy);
        fixture.nack("no address");
        assert_eq!(fixture.notices(), ["error INVALID_ARGUMENT no address"]);
        assert_eq!((fixture.state(), fixture.error()), ("nacked", Some(nack("no address"))));
    }
}

#[test]
fn x1_a88_a_nack_of_a_cached_resource_is_ambient_by_default() {
    for policy in [KEEP, SLOW] {
        let mut fixture = Fixture::cached(policy);
        fixture.nack("no address");
        assert_eq!(fixture.notices(), ["ambient INVALID_ARGUMENT no address"]);
        assert_eq!((fixture.state(), fixture.value()), ("nacked_but_cached", Some(7)));
        assert_eq!(fixture.error(), Some(nack("no address")));
    }
}

#[test]
fn x1_a88_a_nack_drops_with_fail_on_data_errors() {
    let mut fixture = Fixture::cached(DROP);
    fixture.nack("no address");
    assert_eq!(fixture.notices(), ["error INVALID_ARGUMENT no address"]);
    assert_eq!((fixture.state(), fixture.value()), ("nacked", None));
    assert_eq!(fixture.error(), Some(nack("no address")));
}

#[test]
fn x1_a88_a_resource_that_times_out_is_not_found() {
    for policy in [KEEP, DROP] {
        let mut fixture = Fixture::requested(policy);
        fixture.tick(15_000);
        assert_eq!(fixture.notices(), [format!("error NOT_FOUND {MISSING}")]);
        assert_eq!(fixture.state(), "does_not_exist");
    }
}

#[test]
fn x1_a88_a_time_out_is_unavailable_or_transient() {
    for fail_on_data_errors in [false, true] {
        let mut fixture = Fixture::requested(Policy { fail_on_data_errors, ..SLOW });
        fixture.tick(30_000);
        assert_eq!(fixture.notices(), [format!("error UNAVAILABLE {LATE}")]);
        assert_eq!(fixture.state(), "timeout");
    }
}

#[test]
fn x1_a88_a_deletion_of_a_cached_resource_is_ambient_by_default() {
    for policy in [KEEP, SLOW] {
        let mut fixture = Fixture::cached(policy);
        fixture.delete();
        assert_eq!(fixture.notices(), ["ambient NOT_FOUND was deleted"]);
        assert_eq!((fixture.state(), fixture.value()), ("does_not_exist_but_cached", Some(7)));
        assert_eq!(fixture.error(), Some(deletion()));
    }
}

#[test]
fn x1_a88_a_deletion_drops_with_fail_on_data_errors() {
    let mut fixture = Fixture::cached(DROP);
    fixture.delete();
    assert_eq!(fixture.notices(), ["error NOT_FOUND was deleted"]);
    assert_eq!((fixture.state(), fixture.value()), ("does_not_exist", None));
    assert_eq!(fixture.error(), Some(deletion()));
}

#[test]
fn x1_a88_a_reported_data_error_fails_uncached_ones() {
    for policy in ALL_POLICIES {
        for code in [Code::NotFound, Code::PermissionDenied] {
            let mut fixture = Fixture::requested(policy);
            fixture.report(code, "not yours");
            assert_eq!(fixture.notices(), [format!("error {} not yours", code.as_str())]);
            assert_eq!(
                (fixture.state(), fixture.error()),
                ("received_error", Some(reported(code, "not yours")))
            );
        }
    }
}

#[test]
fn x1_a88_a_data_error_is_ambient_for_cached_by_default() {
    for policy in [KEEP, SLOW] {
        for code in [Code::NotFound, Code::PermissionDenied] {
            let mut fixture = Fixture::cached(policy);
            fixture.report(code, "not yours");
            assert_eq!(fixture.notices(), [format!("ambient {} not yours", code.as_str())]);
            assert_eq!((fixture.state(), fixture.value()), ("received_error_but_cached", Some(7)));
            assert_eq!(fixture.error(), Some(reported(code, "not yours")));
        }
    }
}

#[test]
fn x1_a88_a_data_error_drops_with_fail_on_data_errors() {
    for code in [Code::NotFound, Code::PermissionDenied] {
        let mut fixture = Fixture::cached(DROP);
        fixture.report(code, "not yours");
        assert_eq!(fixture.notices(), [format!("error {} not yours", code.as_str())]);
        assert_eq!((fixture.state(), fixture.value()), ("received_error", None));
        assert_eq!(fixture.error(), Some(reported(code, "not yours")));
    }
}

/// Returns the codes of reported errors that are not data errors.
fn transient_codes() -> Vec<Code> {
    let data = [Code::Ok, Code::NotFound, Code::PermissionDenied];
    Code::ALL.into_iter().filter(|code| !data.contains(code)).collect()
}

#[test]
fn x1_a88_an_error_of_another_status_fails_uncached_ones() {
    for policy in ALL_POLICIES {
        for code in transient_codes() {
            let mut fixture = Fixture::requested(policy);
            fixture.report(code, "later");
            assert_eq!(fixture.notices(), [format!("error {} later", code.as_str())]);
            assert_eq!((fixture.state(), fixture.error()), ("received_error", Some(reported(code, "later"))));
        }
    }
}

#[test]
fn x1_a88_an_error_of_another_status_is_ambient_for_cached() {
    for policy in ALL_POLICIES {
        for code in transient_codes() {
            let mut fixture = Fixture::cached(policy);
            fixture.report(code, "later");
            assert_eq!(fixture.notices(), [format!("ambient {} later", code.as_str())]);
            assert_eq!((fixture.state(), fixture.value()), ("received_error_but_cached", Some(7)));
            assert_eq!(fixture.error(), Some(reported(code, "later")));
        }
    }
}
