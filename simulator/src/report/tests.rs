//! Reports of small runs.

use serde_json::{Value, json};
use simulator_models::kube;

use super::*;

fn report() -> Report {
    Report {
        converged: true,
        wrong_pools: 0,
        pools: 3,
        services: 3,
        load_balancers: 1,
        nodes: 2,
        changes: 9,
        changing_seconds: 1.0,
        arm_gets: 4,
        arm_puts: 5,
        arm_polls: 6,
        arm_throttled: 0,
        arm_etag_mismatches: 0,
        arm_refused_by_lock: 0,
        arm_superseded: 0,
        max_concurrent_puts_per_lb: 1,
        first_event_to_converged_seconds: Some(1.5),
        converged_seconds_by_load_balancer: BTreeMap::from([("lb-0".to_owned(), Some(1.5))]),
        convergence_seconds: Convergence::of(&[1_000_000], 0),
        retries: 0,
        events: BTreeMap::from([("LoadBalancerBackendPoolUpdated".to_owned(), 5)]),
        cpu_seconds: Some(0.25),
        max_rss_bytes: Some(1 << 20),
        seed: 7,
        duration_seconds: 2.0,
        wrong_pool_details: Vec::new(),
        warnings: Vec::new(),
    }
}

#[test]
fn z2_the_json_report_has_every_promised_key() {
    let value: Value = serde_json::from_str(&report().json()).expect("JSON");
    for key in [
        "converged",
        "wrong_pools",
        "pools",
        "services",
        "load_balancers",
        "changes",
        "arm_gets",
        "arm_puts",
        "arm_polls",
        "arm_throttled",
        "max_concurrent_puts_per_lb",
        "first_event_to_converged_seconds",
        "convergence_seconds",
        "retries",
        "events",
        "cpu_seconds",
        "max_rss_bytes",
        "seed",
        "duration_seconds",
    ] {
        assert!(value.get(key).is_some_and(|value| !value.is_null()), "{key}");
    }
    for key in ["p50", "p99", "max"] {
        assert_eq!(value["convergence_seconds"][key], 1.0, "{key}");
    }
}

#[test]
fn z2_the_verdict_fails_for_wrong_pools_and_for_overlapping_writes() {
    assert!(report().passed() && report().text().contains("PASSED: all 3 pools are right."));
    let wrong = Report { converged: false, wrong_pools: 2, ..report() };
    assert!(!wrong.passed() && wrong.text().contains("FAILED: 2 of 3 pools are wrong."));
    let overlapped = Report { max_concurrent_puts_per_lb: 2, ..report() };
    assert!(!overlapped.passed() && overlapped.text().contains("FAILED: 2 PUTs ran at once"));
}

#[test]
fn percentiles_are_the_smallest_time_that_so_many_did_not_exceed() {
    let waits: Vec<u64> = (1..=200).map(|ms| ms * 1_000).collect();
    let took = Convergence::of(&waits, 3);
    assert_eq!((took.p50, took.p99, took.max), (Some(0.1), Some(0.198), Some(0.2)));
    assert_eq!((took.count, took.waiting), (200, 3));
    let none = Convergence::of(&[], 0);
    assert_eq!((none.p50, none.p99, none.max), (None, None, None));
}

#[test]
fn e1_events_of_both_groups_are_counted_with_their_repetitions() {
    let mut cluster = KubeModel::new(kube::Settings::default());
    let event = |version: &str, name: &str, rest: Value| {
        let mut event = json!({"apiVersion": version, "kind": "Event", "reason": "Updated",
            "metadata": {"namespace": "shop", "name": name}});
        for (key, value) in rest.as_object().expect("a map") {
            event[key] = value.clone();
        }
        event
    };
    for object in [
        event("v1", "a", json!({"count": 3, "type": "Warning", "message": "throttled"})),
        event("v1", "b", json!({"count": null})),
        event(
            "events.k8s.io/v1",
            "c",
            json!({"series": {"count": 4}, "type": "Warning", "note": "throttled"}),
        ),
        event("events.k8s.io/v1", "d", json!({"reason": "Failed", "type": "Warning", "note": "refused"})),
    ] {
        cluster.apply(object, 0).expect("an event");
    }
    let expected = BTreeMap::from([("Updated".to_owned(), 8), ("Failed".to_owned(), 1)]);
    assert_eq!(events_by_reason(&cluster), expected);
    assert_eq!(warnings(&cluster), ["throttled", "refused"]);
}
