//! Token buckets and windows.

use simulator_models::arm::{Quotas, Settings};

use crate::support::{SECOND, code, get, holding, json_of, model, path, put, text};

fn limited(quotas: Quotas) -> simulator_models::arm::ArmModel {
    model(Settings { quotas: Some(quotas), ..Settings::default() })
}

#[test]
fn z1_token_buckets_empty_per_verb_and_refill_with_time() {
    let mut model = limited(Quotas { read_bucket: 3, read_refill_per_s: 1, ..Quotas::default() });
    for left in ["2", "1", "0"] {
        let answer = get(&mut model, &path("lb"), 0);
        assert_eq!(answer.header("x-ms-ratelimit-remaining-subscription-reads"), Some(left));
    }
    let refused = get(&mut model, &path("lb"), 0);
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(code(&refused), "SubscriptionRequestsThrottled");
    assert_eq!(put(&mut model, "lb", "a", &holding(&[]), 0).status, 200, "writes have a bucket of their own");
    assert_eq!(get(&mut model, &path("lb"), SECOND - 1).status, 429);
    assert_eq!(get(&mut model, &path("lb"), SECOND).status, 200);
    assert_eq!(model.counters().throttled, 2);
}

#[test]
fn z1_the_network_provider_counts_in_windows() {
    let mut model = limited(Quotas { provider_writes: 2, ..Quotas::default() });
    for n in 0..2 {
        assert_eq!(put(&mut model, "lb", "a", &holding(&[&format!("10.0.0.{n}")]), n * SECOND).status, 200);
    }
    let refused = put(&mut model, "lb", "a", &holding(&[]), 10 * SECOND);
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("290")));
    assert_eq!(code(&refused), "ResourceRequestsThrottled");
    let message = text(&json_of(&refused), "/error/message");
    let expected = "Number of requests for Microsoft.Network exceeded the limit of '2' for time interval '00:05:00'. Please try again after '290' seconds.";
    assert_eq!(message, expected);
    assert_eq!(put(&mut model, "lb", "a", &holding(&[]), 300 * SECOND).status, 200);
}

#[test]
fn z1_without_quotas_nothing_is_throttled_and_the_headers_say_plenty() {
    let mut model = model(Settings::default());
    for _ in 0..2_000 {
        let answer = get(&mut model, &path("lb"), 0);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-ms-ratelimit-remaining-subscription-global-reads"), Some("16499"));
    }
    let written = put(&mut model, "lb", "a", &holding(&[]), 0);
    assert_eq!(written.header("x-ms-ratelimit-remaining-subscription-writes"), Some("11999"));
}
