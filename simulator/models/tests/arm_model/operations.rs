//! Asynchronous writes and their operations.

use serde_json::json;
use simulator_models::arm::{
    ArmModel, Fault, FaultEffect, FaultTarget, Method, OperationFailure, Settings, UnfinishedWrite,
    Visibility,
};

use crate::support::{
    SECOND, asynchronous, code, get, holding, ips, json_of, model, operation, path, pool_path, put, request,
    send, text,
};

/// End of an operation that starts at 0: latency and five seconds.
const END: u64 = 5 * SECOND + 100_000;

fn state(model: &mut ArmModel, path: &str, now: u64) -> String {
    text(&json_of(&get(model, path, now)), "/properties/provisioningState")
}

#[test]
fn z1_a_real_change_is_updating_until_its_operation_ends() {
    let mut model = model(asynchronous());
    let answer = put(&mut model, "lb", "a", &holding(&["10.0.0.8"]), 0);
    assert_eq!((answer.status, answer.header("retry-after")), (200, Some("10")));
    assert_eq!(answer.header("azure-asyncnotification"), Some("Enabled"));
    assert_eq!(answer.header("location"), None);
    assert_eq!(text(&json_of(&answer), "/properties/provisioningState"), "Updating");
    let poll = operation(&answer);
    assert!(poll.contains(answer.header("x-ms-request-id").expect("there is a request id")));

    let running = get(&mut model, &poll, END - 1);
    assert_eq!((running.status, running.body.as_slice()), (200, br#"{"status":"InProgress"}"#.as_slice()));
    assert_eq!(running.header("retry-after"), Some("10"));
    for path in [path("lb"), pool_path("lb", "a")] {
        assert_eq!(state(&mut model, &path, END - 1), "Updating");
    }
    assert_eq!(state(&mut model, &pool_path("lb", "b"), END - 1), "Succeeded");
    assert_eq!(model.deadline(), Some(END));

    let ended = get(&mut model, &poll, END);
    assert_eq!((ended.status, ended.body.as_slice()), (200, br#"{"status":"Succeeded"}"#.as_slice()));
    assert_eq!(ended.header("retry-after"), None);
    for path in [path("lb"), pool_path("lb", "a")] {
        assert_eq!(state(&mut model, &path, END), "Succeeded");
    }
    assert_eq!((model.deadline(), model.counters().polls), (None, 2));
}

#[test]
fn z1_a_new_pool_gets_201_and_a_changed_one_the_set_status() {
    let mut settings = asynchronous();
    settings.update_status = 201;
    for settings in [asynchronous(), settings] {
        let expected = settings.update_status;
        let mut model = model(settings);
        assert_eq!(put(&mut model, "lb", "new", &holding(&[]), 0).status, 201);
        assert_eq!(put(&mut model, "other", "a", &holding(&[]), 0).status, expected);
    }
}

#[test]
fn z1_an_unchanged_write_is_done_immediately_with_an_operation() {
    let mut model = model(asynchronous());
    let shown = model.pool_json("lb", "a").expect("a is there");
    let answer = put(&mut model, "lb", "a", &shown, 0);
    assert_eq!(text(&json_of(&answer), "/properties/provisioningState"), "Succeeded");
    assert_eq!(json_of(&get(&mut model, &operation(&answer), 0)), json!({"status": "Succeeded"}));
    assert!(!model.is_updating("lb"));
}

#[test]
fn z1_poll_urls_are_opaque_and_signed() {
    let mut model = model(asynchronous());
    let poll = operation(&put(&mut model, "lb", "a", &holding(&[]), 0));
    assert!((800..4_096).contains(&poll.len()), "{}", poll.len());
    let (bare, query) = poll.split_once('?').expect("there is a query");
    for dropped in ["t=", "c=", "s=", "h="] {
        let remaining: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with(dropped)).collect();
        let answer = get(&mut model, &format!("{bare}?{}", remaining.join("&")), 0);
        assert_eq!(
            (answer.status, code(&answer).as_str()),
            (403, "AuthorizationFailed"),
            "without {dropped}"
        );
    }
    let other = poll.replace("/operations/", "/operations/0");
    assert_eq!(get(&mut model, &other, 0).status, 404);
    assert_eq!(get(&mut model, &poll, 0).status, 200);
}

#[test]
fn z1_visibility_decides_when_reads_show_the_new_members() {
    for (visibility, during) in [(Visibility::AtOnce, "10.0.0.8"), (Visibility::AtEnd, "10.0.0.1")] {
        let mut model = model(Settings { visibility, ..asynchronous() });
        let answer = put(&mut model, "lb", "a", &holding(&["10.0.0.8"]), 0);
        let written = "/properties/loadBalancerBackendAddresses/0/properties/ipAddress";
        assert_eq!(text(&json_of(&answer), written), "10.0.0.8", "the answer shows what was asked for");
        assert_eq!(ips(&model, "lb", "a"), [during]);
        model.tick(END);
        assert_eq!(ips(&model, "lb", "a"), ["10.0.0.8"]);
    }
}

#[test]
fn z1_the_etag_changes_at_start_and_end_of_an_operation() {
    for etag_changes_at_end in [true, false] {
        let mut model = model(Settings { etag_changes_at_end, ..asynchronous() });
        let before = model.etag("lb");
        put(&mut model, "lb", "a", &holding(&[]), 0);
        let during = model.etag("lb");
        assert_ne!(before, during);
        model.tick(END);
        assert_eq!(model.etag("lb") != during, etag_changes_at_end);
    }
}

#[test]
fn z1_a_lost_write_looks_like_a_success_until_it_is_read_back() {
    for visibility in [Visibility::AtOnce, Visibility::AtEnd] {
        let mut model = model(Settings { visibility, silent_loss: 1.0, ..asynchronous() });
        let poll = operation(&put(&mut model, "lb", "a", &holding(&["10.0.0.8"]), 0));
        assert_eq!(json_of(&get(&mut model, &poll, END)), json!({"status": "Succeeded"}));
        assert_eq!(ips(&model, "lb", "a"), ["10.0.0.1"]);
    }
}

#[test]
fn z1_failed_operations_poll_as_200_and_leave_the_pool_as_set() {
    for (unfinished_write, left) in
        [(UnfinishedWrite::Reverted, "10.0.0.1"), (UnfinishedWrite::Kept, "10.0.0.8")]
    {
        for visibility in [Visibility::AtOnce, Visibility::AtEnd] {
            let effect = FaultEffect::FailOperation {
                end: OperationFailure::Failed,
                code: "AnotherOperationInProgress".to_owned(),
                message: "Another operation is in progress.".to_owned(),
            };
            let target = FaultTarget::PoolPut;
            let faults = vec![Fault { target, every: 1, limit: Some(1), load_balancer: None, effect }];
            let mut model = model(Settings { faults, unfinished_write, visibility, ..asynchronous() });
            let poll = operation(&put(&mut model, "lb", "a", &holding(&["10.0.0.8"]), 0));
            let ended = get(&mut model, &poll, END);
            let error = json!({
                "code": "AnotherOperationInProgress",
                "message": "Another operation is in progress.",
                "details": []
            });
            assert_eq!(ended.status, 200);
            assert_eq!(json_of(&ended), json!({"status": "Failed", "error": error}));
            assert_eq!(ips(&model, "lb", "a"), [left]);
            assert_eq!(state(&mut model, &pool_path("lb", "a"), END), "Failed");
            let repaired = put(&mut model, "lb", "a", &holding(&[left]), END);
            assert_eq!(text(&json_of(&repaired), "/properties/provisioningState"), "Updating");
            assert_eq!(state(&mut model, &pool_path("lb", "a"), 2 * END), "Succeeded");
        }
    }
}

#[test]
fn z1_a_delete_is_accepted_and_ends_with_its_operation() {
    let mut model = model(asynchronous());
    let answer = send(&mut model, &request(Method::Delete, &pool_path("lb", "a"), &[], ""), 0);
    assert_eq!((answer.status, answer.body.len()), (202, 0));
    let result = answer.header("location").expect("there is a location").to_owned();
    assert!(result.contains("/operationResults/"));
    assert_eq!(state(&mut model, &pool_path("lb", "a"), END - 1), "Deleting");
    assert_eq!(get(&mut model, &result, END - 1).status, 202);
    assert_eq!(json_of(&get(&mut model, &operation(&answer), END)), json!({"status": "Succeeded"}));
    assert_eq!(get(&mut model, &result, END).status, 204);
    assert_eq!(code(&get(&mut model, &pool_path("lb", "a"), END)), "NotFound");
}
