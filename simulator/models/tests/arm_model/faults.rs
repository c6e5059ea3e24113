//! Planned faults.

use serde_json::json;
use simulator_models::arm::{
    ArmModel, Fault, FaultAnswer, FaultBody, FaultEffect, FaultTarget, Latency, Method, OperationFailure,
    Quotas, Reply, Settings,
};

use crate::support::{
    SECOND, asynchronous, get, holding, ips, json_of, model, path, pool_path, put, request,
};

fn fault(target: FaultTarget, every: u64, effect: FaultEffect) -> Vec<Fault> {
    vec![Fault { target, every, limit: None, load_balancer: None, effect }]
}

fn answer(status: u16, body: FaultBody) -> FaultAnswer {
    let retry_after = Some("Wed, 15 Jul 2026 03:13:14 GMT".to_owned());
    FaultAnswer { status, code: "GatewayError".to_owned(), message: "Oops.".to_owned(), retry_after, body }
}

#[test]
fn z1_every_nth_put_is_answered_with_the_fault_and_not_applied() {
    let faults = vec![Fault::every_nth_put(3, 503, "ServiceUnavailable", Some("7"))];
    let mut model = model(Settings { faults, ..Settings::default() });
    let mut statuses = Vec::new();
    for n in 0..6 {
        let answer = put(&mut model, "lb", "a", &holding(&[&format!("10.0.1.{n}")]), n * SECOND);
        if answer.status == 503 {
            assert_eq!(answer.header("retry-after"), Some("7"));
            assert_ne!(ips(&model, "lb", "a"), [format!("10.0.1.{n}")]);
        }
        statuses.push(answer.status);
    }
    assert_eq!(statuses, [200, 200, 503, 200, 200, 503]);
}

#[test]
fn z1_faults_can_be_limited_in_number_and_to_one_load_balancer() {
    let mut planned = Fault::every_nth_put(1, 409, "AnotherOperationInProgress", None);
    planned.limit = Some(1);
    planned.load_balancer = Some("LB".to_owned());
    let mut model = model(Settings { faults: vec![planned], ..Settings::default() });
    assert_eq!(put(&mut model, "other", "a", &holding(&[]), 0).status, 200);
    assert_eq!(put(&mut model, "lb", "a", &holding(&[]), 0).status, 409);
    assert_eq!(put(&mut model, "lb", "a", &holding(&[]), 0).status, 200);
}

#[test]
fn z1_error_bodies_have_all_observed_shapes() {
    let shapes = [
        (FaultBody::Standard, Some("/error/code")),
        (FaultBody::PascalCase, Some("/Error/Details/0/Code")),
        (FaultBody::Bare, Some("/code")),
        (FaultBody::Html, None),
        (FaultBody::Empty, None),
        (FaultBody::Gateway, Some("/error/code")),
    ];
    for (body, pointer) in shapes {
        let effect = FaultEffect::Answer(answer(429, body));
        let mut model = model(Settings { faults: fault(FaultTarget::Any, 1, effect), ..Settings::default() });
        let answer = get(&mut model, &path("lb"), 0);
        assert_eq!(answer.status, 429);
        assert_eq!(answer.header("retry-after"), Some("Wed, 15 Jul 2026 03:13:14 GMT"));
        match pointer {
            Some(pointer) => assert_eq!(json_of(&answer).pointer(pointer), Some(&json!("GatewayError"))),
            None => assert!(serde_json::from_slice::<serde_json::Value>(&answer.body).is_err()),
        }
    }
}

#[test]
fn z1_lost_answers_are_applied_and_refused_ones_are_not() {
    for (effect, expected) in [(FaultEffect::LoseAnswer, "10.0.0.8"), (FaultEffect::Refuse, "10.0.0.1")] {
        let faults = fault(FaultTarget::PoolPut, 1, effect);
        let mut model = model(Settings { faults, ..Settings::default() });
        let body = holding(&["10.0.0.8"]).to_string();
        let reply = model.handle(&request(Method::Put, &pool_path("lb", "a"), &[], &body), 0);
        assert!(matches!(reply, Reply::Lost { latency_us: 100_000 } | Reply::Refused), "{reply:?}");
        assert_eq!(matches!(reply, Reply::Lost { .. }), expected == "10.0.0.8");
        assert_eq!(ips(&model, "lb", "a"), [expected]);
        assert_eq!((model.counters().dropped, model.log()[0].status), (1, 0));
    }
}

#[test]
fn z1_an_error_may_follow_a_write_that_was_applied() {
    let effect = FaultEffect::AnswerAfterApplying(answer(504, FaultBody::Empty));
    let mut model = model(Settings { faults: fault(FaultTarget::PoolPut, 1, effect), ..Settings::default() });
    assert_eq!(put(&mut model, "lb", "a", &holding(&["10.0.0.8"]), 0).status, 504);
    assert_eq!(ips(&model, "lb", "a"), ["10.0.0.8"]);
}

#[test]
fn z1_a_delay_adds_to_the_latency_of_its_target_only() {
    let faults = fault(FaultTarget::LoadBalancerGet, 2, FaultEffect::Delay { us: SECOND });
    let mut model = model(Settings { faults, ..Settings::default() });
    let mut latencies = Vec::new();
    for _ in 0..2 {
        latencies.push(get(&mut model, &pool_path("lb", "a"), 0).latency_us);
        latencies.push(get(&mut model, &path("lb"), 0).latency_us);
    }
    assert_eq!(latencies, [20_000, 20_000, 20_000, SECOND + 20_000]);
}

/// Returns how often each of the faults has taken effect, in their order.
fn effects(model: &ArmModel, faults: &[Fault]) -> Vec<u64> {
    let times = |fault: &Fault| model.fault_effects().iter().find(|(known, _)| known == fault);
    faults.iter().map(|fault| times(fault).map_or(0, |(_, times)| *times)).collect()
}

#[test]
fn z2_a_fault_counts_if_it_determines_the_answer() {
    let planned = |target, effect| Fault { target, every: 1, limit: None, load_balancer: None, effect };
    let faults = [
        planned(FaultTarget::PoolPut, FaultEffect::Answer(answer(429, FaultBody::PascalCase))),
        planned(FaultTarget::Any, FaultEffect::Answer(answer(502, FaultBody::Html))),
        planned(FaultTarget::Any, FaultEffect::LoseAnswer),
        planned(FaultTarget::PoolGet, FaultEffect::Delay { us: 1 }),
    ];
    let mut model = model(Settings { faults: faults.to_vec(), ..Settings::default() });
    assert_eq!(effects(&model, &faults), [0, 0, 0, 0]);
    put(&mut model, "lb", "a", &holding(&[]), 0);
    assert_eq!(effects(&model, &faults), [1, 0, 0, 0], "the first that is listed wins");
    get(&mut model, &path("lb"), 0);
    assert_eq!(
        effects(&model, &faults),
        [1, 1, 0, 0],
        "what was not applied has no answer that could be lost"
    );
    get(&mut model, &pool_path("lb", "a"), 0);
    assert_eq!(effects(&model, &faults), [1, 2, 0, 1]);
    let remaining = faults[2..].to_vec();
    model.reconfigure(|settings| settings.faults = remaining);
    assert_eq!(effects(&model, &faults), [1, 2, 0, 1], "what is no longer planned stays");
    let reply = model.handle(&request(Method::Get, &path("lb"), &[], ""), 0);
    assert!(matches!(reply, Reply::Lost { .. }), "{reply:?}");
    assert_eq!(effects(&model, &faults), [1, 2, 1, 1]);
}

#[test]
fn z2_a_bad_end_counts_if_an_operation_has_it() {
    let effect = FaultEffect::FailOperation {
        end: OperationFailure::Failed,
        code: "Boom".to_owned(),
        message: String::new(),
    };
    let faults = fault(FaultTarget::Any, 1, effect);
    let mut at_once = model(Settings { faults: faults.clone(), ..Settings::default() });
    put(&mut at_once, "lb", "a", &holding(&[]), 0);
    assert_eq!(effects(&at_once, &faults), [0], "there is no operation");
    let mut later = model(Settings { faults: faults.clone(), ..asynchronous() });
    get(&mut later, &path("lb"), 0);
    assert_eq!(effects(&later, &faults), [0]);
    put(&mut later, "lb", "a", &holding(&[]), 0);
    assert_eq!(effects(&later, &faults), [1]);
    assert_eq!(put(&mut later, "lb", "b", &holding(&[]), SECOND).status, 429, "the load balancer is locked");
    assert_eq!(effects(&later, &faults), [1]);
}

#[test]
fn z1_settings_survive_a_scenario_file() {
    let faults = fault(FaultTarget::Poll, 2, FaultEffect::Answer(answer(500, FaultBody::Html)));
    let settings = Settings { faults, quotas: Some(Quotas::default()), ..Settings::default() };
    let text = serde_json::to_string(&settings).expect("settings are plain data");
    assert_eq!(serde_json::from_str::<Settings>(&text).expect("it was just written"), settings);
    let sparse = r#"{"seed": 7, "operation": {"logNormal": {"medianUs": 5000000, "p95Us": 20000000}}}"#;
    let read = serde_json::from_str::<Settings>(sparse).expect("the rest has defaults");
    let operation = Latency::LogNormal { median_us: 5 * SECOND, p95_us: 20 * SECOND };
    assert_eq!(read, Settings { seed: 7, operation: Some(operation), ..Settings::default() });
    assert!(serde_json::from_str::<Settings>(r#"{"sead": 7}"#).is_err());
}

#[test]
fn z1_a_resource_group_or_role_may_be_missing_for_a_time() {
    let planned = |status, code: &str, body| {
        let answer = FaultAnswer { code: code.to_owned(), retry_after: None, ..answer(status, body) };
        let effect = FaultEffect::Answer(answer);
        Fault { target: FaultTarget::Any, every: 1, limit: Some(1), load_balancer: None, effect }
    };
    let cases = [
        (404, "ResourceGroupNotFound", FaultBody::Gateway, true),
        (403, "AuthorizationFailed", FaultBody::Gateway, true),
        (404, "NotFound", FaultBody::Standard, false),
    ];
    for (status, code, body, gateway) in cases {
        let faults = vec![planned(status, code, body)];
        let mut model = model(Settings { faults, ..Settings::default() });
        let hits = get(&mut model, &pool_path("lb", "a"), 0);
        assert_eq!((hits.status, &json_of(&hits)["error"]["code"]), (status, &json!(code)));
        assert_eq!(hits.header("x-ms-failure-cause"), gateway.then_some("gateway"), "{code}");
        let left = hits.header("x-ms-ratelimit-remaining-subscription-reads");
        assert_eq!(left.is_some(), !gateway, "{code}: the gateway names no quota");
        assert_eq!(get(&mut model, &pool_path("lb", "a"), 1).status, 200, "{code} has passed");
    }
}
