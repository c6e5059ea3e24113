//! Token buckets and windows.

use simulator_models::arm::{ArmModel, Method, Quotas, Response, Settings};

use crate::support::{SECOND, code, get, holding, json_of, model, path, pool_path, put, request, send, text};

fn limited(quotas: Quotas) -> ArmModel {
    model(Settings { quotas: Some(quotas), ..Settings::default() })
}

/// Returns the number of requests that are accepted one after another until one is refused for a quota, and the
/// refusal.
fn until_refused(mut ask: impl FnMut() -> Response) -> (u64, Response) {
    let mut let_through = 0;
    loop {
        let answer = ask();
        if answer.status == 429 {
            return (let_through, answer);
        }
        let_through += 1;
        assert!(let_through < 50_000, "there is no quota");
    }
}

/// Makes a request at a time.
type Ask = fn(&mut ArmModel, u64) -> Response;

/// Per verb: the request, the size of ARM's bucket, its refill per second, and the network provider's limit in five
/// minutes, as in reference/arm.md, 10.4 (DELETE: in the description of the buckets).
const DOCUMENTED: [(Ask, u64, u64, u64); 3] =
    [(read, 250, 25, 10_000), (write, 200, 10, 1_000), (delete, 200, 10, 1_000)];

fn read(model: &mut ArmModel, now: u64) -> Response {
    get(model, &path("nobody"), now)
}

fn write(model: &mut ArmModel, now: u64) -> Response {
    put(model, "nobody", "a", &holding(&[]), now)
}

fn delete(model: &mut ArmModel, now: u64) -> Response {
    send(model, &request(Method::Delete, &pool_path("lb", "nobody"), &[], ""), now)
}

#[test]
fn z1_the_default_quotas_are_those_that_azure_documents() {
    let plenty = Quotas {
        read_bucket: 1_000_000,
        write_bucket: 1_000_000,
        delete_bucket: 1_000_000,
        ..Quotas::default()
    };
    for (ask, burst, refill, in_five_minutes) in DOCUMENTED {
        let mut model = limited(Quotas::default());
        let (let_through, refusal) = until_refused(|| ask(&mut model, 0));
        assert_eq!((let_through, code(&refusal).as_str()), (burst, "SubscriptionRequestsThrottled"));
        for second in 1..4 {
            let (let_through, _) = until_refused(|| ask(&mut model, second * SECOND));
            assert_eq!(let_through, refill, "in second {second}");
        }
        let mut model = limited(plenty);
        let (let_through, refusal) = until_refused(|| ask(&mut model, 0));
        assert_eq!((let_through, code(&refusal).as_str()), (in_five_minutes, "ResourceRequestsThrottled"));
        assert_eq!(refusal.header("retry-after"), Some("300"));
        let counters = model.counters();
        assert_eq!((counters.throttled, counters.throttled_by_provider), (1, 1));
    }
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
    assert_eq!(refused.header("x-ms-failure-cause"), Some("gateway"));
    assert_eq!(refused.header("x-ms-ratelimit-remaining-subscription-reads"), Some("0"));
    assert_eq!(put(&mut model, "lb", "a", &holding(&[]), 0).status, 200, "writes have a bucket of their own");
    assert_eq!(get(&mut model, &path("lb"), SECOND - 1).status, 429);
    assert_eq!(get(&mut model, &path("lb"), SECOND).status, 200);
    assert_eq!((model.counters().throttled, model.counters().throttled_by_provider), (2, 0));
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
    assert_eq!(refused.header("x-ms-failure-cause"), None, "it is no refusal of the gateway");
    assert_eq!(
        refused.header("x-ms-ratelimit-remaining-subscription-writes"),
        Some("199"),
        "ARM has some left"
    );
    let message = text(&json_of(&refused), "/error/message");
    let expected = "Number of requests for Microsoft.Network exceeded the limit of '2' for time interval '00:05:00'. Please try again after '290' seconds.";
    assert_eq!(message, expected);
    assert_eq!(put(&mut model, "lb", "a", &holding(&[]), 300 * SECOND).status, 200);
}

#[test]
fn z1_without_quotas_nothing_is_throttled() {
    let mut model = model(Settings::default());
    for _ in 0..2_000 {
        let answer = get(&mut model, &path("lb"), 0);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-ms-ratelimit-remaining-subscription-global-reads"), Some("16499"));
    }
    let written = put(&mut model, "lb", "a", &holding(&[]), 0);
    assert_eq!(written.header("x-ms-ratelimit-remaining-subscription-writes"), Some("11999"));
}
