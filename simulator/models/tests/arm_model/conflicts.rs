//! Two writes on one load balancer.

use serde_json::json;
use simulator_models::arm::{ArmModel, ConcurrentWrite, Settings, UnfinishedWrite};

use crate::support::{
    SECOND, asynchronous, code, detail, get, holding, ips, json_of, model, operation, put, put_with, text,
};

fn with(concurrent_write: ConcurrentWrite) -> ArmModel {
    model(Settings { concurrent_write, ..asynchronous() })
}

#[test]
fn z1_a_write_during_the_lock_is_refused_and_names_its_holder() {
    let mut model = with(ConcurrentWrite::Refuse);
    let first = put(&mut model, "lb", "a", &holding(&["10.0.0.8"]), 0);
    let second = put(&mut model, "lb", "b", &holding(&["10.0.0.9"]), SECOND);
    assert_eq!((second.status, second.header("retry-after")), (429, Some("11")));
    assert_eq!(
        (code(&second).as_str(), detail(&second).as_str()),
        ("RetryableError", "RetryableErrorDueToAnotherOperation")
    );
    let message = text(&json_of(&second), "/error/details/0/message");
    let id = first.header("x-ms-request-id").expect("there is a request id");
    let start = format!("Operation PutLoadBalancerBackendAddressPoolOperation ({id}) is updating resource /");
    assert!(message.starts_with(&start), "{message}");
    assert!(message.ends_with("/loadBalancers/lb. The call can be retried in 11 seconds."), "{message}");
    assert_eq!(ips(&model, "lb", "b"), ["10.0.0.2"]);
    assert_eq!(put(&mut model, "other", "b", &holding(&[]), SECOND).status, 200, "other locks are free");
    assert_eq!(put(&mut model, "lb", "b", &holding(&[]), 6 * SECOND).status, 200);
    assert_eq!(model.counters().refused_by_lock, 1);
}

#[test]
fn z1_the_header_of_a_lock_refusal_can_be_omitted() {
    let mut model = model(Settings { lock_retry_after_header: false, ..asynchronous() });
    put(&mut model, "lb", "a", &holding(&[]), 0);
    let refused = put(&mut model, "lb", "b", &holding(&[]), 1);
    assert_eq!((refused.status, refused.header("retry-after")), (429, None));
}

#[test]
fn z1_a_lock_refusal_is_not_replayed_to_a_retry() {
    let mut model = with(ConcurrentWrite::Refuse);
    put(&mut model, "lb", "a", &holding(&[]), 0);
    let id = [("x-ms-client-request-id", "one")];
    assert_eq!(put_with(&mut model, "lb", "b", &holding(&[]), &id, SECOND).status, 429);
    assert_eq!(put_with(&mut model, "lb", "b", &holding(&[]), &id, 6 * SECOND).status, 200);
}

#[test]
fn z1_synchronous_writes_hold_the_lock_until_they_are_answered() {
    let mut model = model(Settings::default());
    put(&mut model, "lb", "a", &holding(&[]), 0);
    assert_eq!(put(&mut model, "lb", "b", &holding(&[]), 99_999).status, 429);
    assert_eq!(put(&mut model, "lb", "b", &holding(&[]), 100_000).status, 200);
}

#[test]
fn z1_a_superseded_operation_names_its_successor() {
    for (unfinished_write, left) in
        [(UnfinishedWrite::Reverted, "10.0.0.1"), (UnfinishedWrite::Kept, "10.0.0.8")]
    {
        let concurrent_write = ConcurrentWrite::Supersede;
        let mut model = model(Settings { concurrent_write, unfinished_write, ..asynchronous() });
        let first = put(&mut model, "lb", "a", &holding(&["10.0.0.8"]), 0);
        let second = put(&mut model, "lb", "b", &holding(&["10.0.0.9"]), SECOND);
        assert_eq!(second.status, 200);
        let poll = get(&mut model, &operation(&first), SECOND);
        assert_eq!(poll.status, 200);
        let ids = [&first, &second].map(|answer| answer.header("x-ms-request-id").expect("an id").to_owned());
        let message = format!(
            "Operation PutLoadBalancerBackendAddressPoolOperation ({}) was canceled and superseded by operation PutLoadBalancerBackendAddressPoolOperation ({}).",
            ids[0], ids[1]
        );
        let details = json!([{"code": "CanceledAndSupersededDueToAnotherOperation", "message": message}]);
        let error = json!({"code": "Canceled", "message": "Operation was canceled.", "details": details});
        assert_eq!(json_of(&poll), json!({"status": "Canceled", "error": error}));
        assert_eq!(ips(&model, "lb", "a"), [left]);
        model.tick(20 * SECOND);
        assert_eq!(
            json_of(&get(&mut model, &operation(&second), 20 * SECOND)),
            json!({"status": "Succeeded"})
        );
        assert_eq!(ips(&model, "lb", "b"), ["10.0.0.9"]);
        assert_eq!(model.counters().superseded, 1);
    }
}

#[test]
fn z1_superseding_a_creation_creates_the_pool_again() {
    let mut model = with(ConcurrentWrite::Supersede);
    put(&mut model, "lb", "new", &holding(&["10.0.0.8"]), 0);
    assert_eq!(put(&mut model, "lb", "new", &holding(&["10.0.0.9"]), SECOND).status, 201);
    model.tick(20 * SECOND);
    assert_eq!(ips(&model, "lb", "new"), ["10.0.0.9"]);
}

#[test]
fn z1_a_write_of_the_load_balancer_cancels_a_running_pool_write() {
    let mut model = with(ConcurrentWrite::Refuse);
    let first = put(&mut model, "lb", "a", &holding(&["10.0.0.8"]), 0);
    assert_eq!(model.foreign_load_balancer_put("lb", SECOND), 200);
    let poll = json_of(&get(&mut model, &operation(&first), SECOND));
    assert_eq!(text(&poll, "/status"), "Canceled");
    assert!(text(&poll, "/error/details/0/message").contains("by operation PutLoadBalancerOperation ("));
    assert!(model.is_updating("lb"));
    let etag = model.etag("lb");
    assert_eq!(model.foreign_put("lb", "b", &[], 2 * SECOND), 429, "foreign writes meet the lock too");
    model.tick(20 * SECOND);
    assert!(!model.is_updating("lb"));
    assert_eq!(model.etag("lb"), etag, "the end of such an operation leaves the etag alone, as recorded");
}

#[test]
fn z1_refusing_and_superseding_follow_the_seed() {
    let outcomes = |seed| {
        let settings =
            Settings { seed, concurrent_write: ConcurrentWrite::Mixed { supersede: 0.5 }, ..asynchronous() };
        let mut model = model(settings);
        let mut statuses = Vec::new();
        for round in 0..40_u64 {
            put(&mut model, "lb", "a", &holding(&[&format!("10.1.0.{round}")]), round * 20 * SECOND);
            let later = round * 20 * SECOND + SECOND;
            statuses.push(put(&mut model, "lb", "b", &holding(&[&format!("10.2.0.{round}")]), later).status);
        }
        statuses
    };
    let statuses = outcomes(1);
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert!((8..32).contains(&refused), "{refused} of 40 refused");
    assert_eq!(outcomes(1), statuses);
    assert_ne!(outcomes(2), statuses);
}
