//! `/metrics` (H1, E2): a valid format, exactly upstream's names and labels, and no addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::json;
use simulator::models::arm::{Fault, FaultAnswer, FaultBody, FaultEffect, FaultTarget};
use simulator::models::kube::build::Endpoint;

use super::stage::{Prepared, Stage, add_service, node_name, set_endpoints};
use crate::support::{TEST_TIMEOUT, eventually};

/// A sample line.
#[derive(Debug)]
struct Metric {
    /// The name, with a histogram's suffix.
    name: String,
    /// The labels in their order.
    labels: Vec<(String, String)>,
    value: f64,
}

/// A metric with all its samples.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    samples: Vec<Metric>,
}

/// Parses the text format as strictly as promtool: HELP and TYPE before the samples, no metric twice, names and labels
/// of the allowed characters, no series twice.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let mut series = BTreeSet::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help has a text");
            assert!(help.ends_with('.'), "{line}");
            assert!(families.insert(name.to_owned(), Family::default()).is_none(), "twice: {line}");
            name.clone_into(&mut current);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type has a word");
            assert_eq!(name, current, "TYPE follows HELP");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            families.get_mut(name).expect("HELP came before").kind = kind.to_owned();
        } else {
            let sample = sample(line);
            let base = base(&sample.name, families.get(&current).map_or("", |family| &family.kind));
            assert_eq!(base, current, "samples follow their HELP and TYPE: {line}");
            assert!(series.insert(line.rsplit_once(' ').expect("a value").0.to_owned()), "twice: {line}");
            families.get_mut(&current).expect("HELP came before").samples.push(sample);
        }
    }
    families
}

fn base<'a>(name: &'a str, kind: &str) -> &'a str {
    let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[] };
    suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}

fn sample(line: &str) -> Metric {
    let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
    let value = value.parse().unwrap_or_else(|error| panic!("{error}: {line}"));
    let (name, labels) = match series.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}').expect("labels are closed")),
        None => (series, ""),
    };
    let is_name = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && !text.starts_with(|first: char| first.is_ascii_digit())
    };
    assert!(is_name(name), "{line}");
    let labels = labels.split_terminator(',').map(|pair| {
        let (key, value) = pair.split_once('=').expect("a label has a value");
        let value =
            value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).expect("a value is quoted");
        assert!(is_name(key), "{line}");
        (key.to_owned(), value.to_owned())
    });
    Metric { name: name.to_owned(), labels: labels.collect(), value }
}

/// Starts a controller, and waits until it has written one pool and permanently failed to write another.
pub async fn busy() -> Stage {
    let prepared = Prepared::new(2).await;
    add_service(&prepared.fakes, "good", &[0]).await;
    add_service(&prepared.fakes, "bad", &[0]).await;
    let stage = prepared.start(&json!({ "resync": { "afterFailure": "0s" } })).await;
    stage.wait_until_ready().await;
    set_endpoints(&stage.fakes, "good", &[Endpoint::ready(&node_name(1))]).await;
    stage.event("good", "LoadBalancerBackendPoolUpdated").await;
    let answer = FaultAnswer {
        status: 403,
        code: "AuthorizationFailed".to_owned(),
        message: "no write for you".to_owned(),
        retry_after: None,
        body: FaultBody::Standard,
    };
    let effect = FaultEffect::Answer(answer);
    let fault = Fault { target: FaultTarget::PoolPut, every: 1, limit: Some(1), load_balancer: None, effect };
    stage.fakes.tune_arm(|arm| arm.faults = vec![fault]).await;
    set_endpoints(&stage.fakes, "bad", &[Endpoint::ready(&node_name(1))]).await;
    stage.event("bad", "LoadBalancerBackendPoolUpdateFailed").await;
    stage
}

const OP_LABELS: [(&str, &str); 4] = [
    ("request", "services_local_update_backend_pool"),
    ("resource_group", "rg"),
    ("subscription_id", "00000000-0000-0000-0000-000000000000"),
    ("source", "azure_backend_pool_controller"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e2_metrics_are_well_formed_and_hold_no_address() {
    let stage = busy().await;
    let failures = "cloudprovider_azure_op_failure_count";
    let text = eventually("both attempts are counted", TEST_TIMEOUT, || async {
        let answer = stage.health("/metrics").await;
        assert_eq!((answer.status, answer.kind.as_str()), (200, "text/plain; version=0.0.4"));
        let counted = parse(&answer.text).get(failures).is_some_and(|family| family.samples[0].value >= 1.0);
        if counted { Ok(answer.text) } else { Err(answer.text) }
    })
    .await;
    let families = parse(&text);
    for (name, family) in &families {
        assert!(
            name.starts_with("backend_pool_controller_") || name.starts_with("cloudprovider_azure_"),
            "{name}"
        );
        assert!(!family.samples.is_empty(), "{name}");
        for sample in &family.samples {
            let addresses = sample.labels.iter().filter(|(_, value)| value.parse::<IpAddr>().is_ok());
            assert_eq!(addresses.count(), 0, "{sample:?}");
            assert!(sample.labels.iter().all(|(_, value)| !value.contains("10.224.")), "{sample:?}");
            assert!(sample.value.is_finite() && sample.value >= 0.0, "{sample:?}");
        }
        if family.kind == "histogram" {
            check_histogram(name, family);
        }
    }

    let upstreams = &families["cloudprovider_azure_op_duration_seconds"];
    assert_eq!(upstreams.kind, "histogram");
    let expected: Vec<(String, String)> =
        OP_LABELS.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let buckets: Vec<&Metric> =
        upstreams.samples.iter().filter(|sample| sample.name.ends_with("_bucket")).collect();
    let bounds: Vec<&str> = buckets.iter().map(|sample| sample.labels[4].1.as_str()).collect();
    let upstream_bounds = [
        "0.1", "0.2", "0.5", "1", "5", "10", "15", "20", "30", "40", "50", "60", "100", "200", "300", "600",
        "1200", "+Inf",
    ];
    assert_eq!(bounds, upstream_bounds);
    assert!(buckets.iter().all(|sample| sample.labels[..4] == expected[..]), "{buckets:?}");
    let count = |family: &Family| {
        family.samples.iter().find(|sample| sample.name.ends_with("_count")).map(|s| s.value)
    };
    assert_eq!(count(upstreams), Some(2.0), "one observation per terminal outcome");
    let failed = &families[failures];
    assert_eq!((failed.kind.as_str(), failed.samples[0].value), ("counter", 1.0));
    assert_eq!(failed.samples[0].labels, expected);

    let waits = &families["cloudprovider_azure_lock_wait_duration_seconds"];
    let of = ["service_reconcile", "azure_resource_locker"].map(|lock| {
        let labels = [("lock", lock), ("caller", "LocalServiceBackendPoolUpdater")];
        labels.map(|(key, value)| (key.to_owned(), value.to_owned()))
    });
    let known = |sample: &Metric| of.iter().any(|labels| sample.labels.starts_with(labels));
    assert!(waits.samples.iter().all(known), "{waits:?}");
}

/// Asserts that buckets are cumulative, and that the last one equals the count.
fn check_histogram(name: &str, family: &Family) {
    let mut series: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    for sample in &family.samples {
        let others: Vec<_> = sample.labels.iter().filter(|(key, _)| key != "le").collect();
        if sample.name.ends_with("_bucket") {
            series.entry(format!("{others:?}")).or_default().push(sample.value);
        } else if sample.name.ends_with("_count") {
            counts.insert(format!("{others:?}"), sample.value);
        }
    }
    for (labels, buckets) in series {
        assert!(buckets.is_sorted(), "{name}{labels}");
        assert_eq!(buckets.last(), counts.get(&labels), "{name}{labels}");
    }
}

#[test]
fn the_parser_of_this_test_is_as_strict_as_promtool() {
    let good = "# HELP a A thing.\n# TYPE a counter\na{b=\"c\"} 1\n";
    assert_eq!(parse(good)["a"].samples[0].labels, [("b".to_owned(), "c".to_owned())]);
    for bad in [
        "a 1\n",
        "# HELP a A thing.\n# TYPE a counter\na 1\na 1\n",
        "# HELP a A thing.\n# TYPE b counter\nb 1\n",
        "# HELP a A thing.\n# TYPE a counter\na{b=c} 1\n",
        "# HELP a A thing.\n# TYPE a counter\na x\n",
    ] {
        assert!(std::panic::catch_unwind(|| parse(bad)).is_err(), "{bad}");
    }
}
