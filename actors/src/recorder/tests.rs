//! The exposition of each sample, identical to upstream's if upstream has the same series (upstream's handler, S1).

use metrics_exporter_prometheus::PrometheusRecorder;
use model::assignment::HeldReason;
use model::node::NodeState;
use model::sample::WorkResult;
use model::sample::{AttemptEnd, TaintResult};
use model::signals::Signal;
use model::xds::cache::CacheState;
use model::xds::facts;
use model::xds::stream::ServerId;

use super::*;

/// Builds a recorder for a test, with the production buckets.
pub(crate) fn own() -> PrometheusRecorder {
    builder().expect("buckets are not empty").build_recorder()
}

fn page_of(samples: Vec<Metric>) -> String {
    page_with(&[], samples)
}

/// Renders the exposition of a process with these xDS servers.
fn page_with(servers: &[&str], samples: Vec<Metric>) -> String {
    let labels = CloudLabels { resource_group: "rg".into(), subscription_id: "sub".into() };
    page_labelled(labels, servers, samples)
}

fn page_labelled(labels: CloudLabels, servers: &[&str], samples: Vec<Metric>) -> String {
    let own = own();
    let servers = servers.iter().map(|server| Arc::from(*server)).collect();
    let mut recorder = Recorder::new(own.handle(), labels, servers);
    metrics::with_local_recorder(&own, || {
        recorder.create_series();
        for sample in samples {
            recorder.record(sample);
        }
    });
    own.handle().render()
}

#[test]
fn e2_labels_from_the_configuration_are_printable_text() {
    let hostile = "a\u{1b}[2j\u{7}\r\n\u{202e}b";
    let labels = CloudLabels { resource_group: hostile.into(), subscription_id: hostile.into() };
    let call = Metric::ArmCall {
        verb: ArmVerb::PutPool,
        took: Duration::from_secs(1),
        result: ArmResult::Throttled,
    };
    let page = page_labelled(labels, &[hostile], vec![call]);
    let label = r#"="a\\u{1b}[2j\\u{7}\\u{d}\\u{a}\\u{202e}b""#;
    for name in ["resource_group", "subscription_id", "grpc_xds_server"] {
        assert!(page.contains(&format!("{name}{label}")), "{name}: {page}");
    }
    assert!(page.chars().all(|c| c == '\n' || (' '..='~').contains(&c)), "{page:?}");
}

fn bounds<'a>(page: &'a str, metric: &str, labels: &str) -> Vec<&'a str> {
    let start = format!("{metric}_bucket{{{labels},le=\"");
    page.lines()
        .filter_map(|line| line.strip_prefix(start.as_str())?.split_once('"'))
        .map(|(le, _)| le)
        .collect()
}

#[test]
fn e2_upstreams_series_have_upstreams_names_labels_and_buckets() {
    let took = Duration::from_secs(2);
    let page = page_of(vec![
        Metric::Attempt { took, failed: true },
        Metric::ArmCall { verb: ArmVerb::PutPool, took, result: ArmResult::Throttled },
        Metric::ArmCall { verb: ArmVerb::GetLoadBalancer, took, result: ArmResult::NotFound },
        Metric::RateLimited(ArmVerb::PutPool),
        Metric::AdminEnded { down: true, took, failed: true },
        Metric::AdminEnded { down: true, took, failed: false },
        Metric::AdminEnded { down: false, took, failed: true },
    ]);
    let common = "resource_group=\"rg\",subscription_id=\"sub\",source=\"azure_backend_pool_controller\"";
    let buckets = "0.1 0.2 0.5 1 5 10 15 20 30 40 50 60 100 200 300 600 1200 +Inf";
    for (request, ended) in [
        ("services_local_update_backend_pool", 1),
        ("loadbalancer_adminstate_down", 2),
        ("loadbalancer_adminstate_none", 1),
    ] {
        let operation = format!("request=\"{request}\",{common}");
        let found = bounds(&page, "cloudprovider_azure_op_duration_seconds", &operation);
        assert_eq!(found.join(" "), buckets, "{page}");
        let count = format!("\ncloudprovider_azure_op_duration_seconds_count{{{operation}}} {ended}\n");
        assert!(page.contains(&count), "{page}");
        let failures = format!("\ncloudprovider_azure_op_failure_count{{{operation}}} 1\n");
        assert!(page.contains(&failures), "{page}");
    }

    let get = format!("request=\"load_balancers_get\",{common}");
    assert!(
        page.contains(&format!("cloudprovider_azure_api_request_duration_seconds_count{{{get}}} 1\n")),
        "{page}"
    );
    assert!(!page.contains(&format!("cloudprovider_azure_api_request_errors{{{get}}}")), "{page}");

    let call = format!("request=\"backend_address_pools_create_or_update\",{common}");
    let buckets = "0.1 0.25 0.5 1 2.5 5 10 15 25 50 120 300 600 1200 +Inf";
    let found = bounds(&page, "cloudprovider_azure_api_request_duration_seconds", &call);
    assert_eq!(found.join(" "), buckets, "{page}");
    for counter in ["errors", "throttled_count", "ratelimited_count"] {
        let line = format!("\ncloudprovider_azure_api_request_{counter}{{{call}}} 1\n");
        assert!(page.contains(&line), "{page}");
    }
}

#[test]
fn s1_waits_for_both_locks_have_the_series_of_their_callers() {
    let waited = Duration::from_secs(2);
    let waits = |caller| [Metric::LaneWait { caller, waited }, Metric::LeaseWait { caller, waited }];
    let page = page_of(Caller::ALL.into_iter().flat_map(waits).collect());
    let buckets = "0.001 0.002 0.004 0.008 0.016 0.032 0.064 0.128 0.256 0.512 1.024 2.048 4.096 8.192 +Inf";
    for lock in ["service_reconcile", "azure_resource_locker"] {
        for caller in ["LocalServiceBackendPoolUpdater", "AdminStateController"] {
            let labels = format!("lock=\"{lock}\",caller=\"{caller}\"");
            let metric = "cloudprovider_azure_lock_wait_duration_seconds";
            assert_eq!(bounds(&page, metric, &labels).join(" "), buckets, "{page}");
            assert!(page.contains(&format!("\n{metric}_sum{{{labels}}} 2\n")), "{page}");
        }
    }
}

#[test]
fn e2_lock_leader_and_contention_samples_have_their_series() {
    let page = page_of(vec![
        Metric::LeaseHeld(Duration::from_secs(12)),
        Metric::LeaseHeld(Duration::from_millis(500)),
        Metric::ForeignLockFailures(3),
        Metric::Leading(true),
        Metric::Contention,
        Metric::OperatorPolicy {
            mode: Mode::AddOnly,
            everything: true,
            pools: 3,
            services: 2,
            unreadable: 1,
            fresh: true,
            leader_waits: true,
        },
        Metric::Blocked { scopes: 2 },
        Metric::Blocked { scopes: 1 },
        Metric::AttemptEnded(AttemptEnd::Written),
        Metric::Held { reason: HeldReason::EmptyConfirm, pools: 4 },
        Metric::WouldHold { reason: HeldReason::Fraction, pools: 2 },
        Metric::RemovalBreaker(true),
        Metric::SecondRead,
        Metric::EventPosted,
        Metric::EventDropped,
    ]);
    for line in [
        "lease_held_seconds_sum 12.5",
        "lease_held_seconds_count 2",
        "foreign_lock_failures_total 3",
        "leading 1",
        "contentions_total 1",
        "mode{mode=\"add-only\"} 1",
        "mode{mode=\"enforce\"} 0",
        "pauses{scope=\"everything\"} 1",
        "pauses{scope=\"pool\"} 3",
        "pauses{scope=\"service\"} 2",
        "pauses_unreadable 1",
        "pauses_fresh 1",
        "leader_waits_for_pauses 1",
        "write_breakers_open 1",
        "attempts_total{outcome=\"written\"} 1",
        "held_pools{reason=\"empty_confirm\"} 4",
        "would_hold_pools{reason=\"fraction\"} 2",
        "removals_stopped 1",
        "second_reads_total 1",
        "events_total{result=\"posted\"} 1",
        "events_total{result=\"dropped\"} 1",
    ] {
        assert!(page.contains(&format!("\nbackend_pool_controller_{line}\n")), "{line}: {page}");
    }
}

#[test]
fn e2_each_sample_of_the_admin_state_has_its_series() {
    let page = page_of(vec![
        Metric::AdminNodes { state: NodeState::Held, nodes: 3 },
        Metric::AdminNodes { state: NodeState::Draining, nodes: 2 },
        Metric::DrainingNodes { signal: Signal::SpotEviction, nodes: 4 },
        Metric::DownEntries { foreign: false, entries: 40 },
        Metric::DownEntries { foreign: true, entries: 1 },
        Metric::AdminOldest(Some(Duration::from_millis(2_500))),
        Metric::Drained(Duration::from_millis(1_500)),
        Metric::Drained(Duration::from_millis(500)),
        Metric::Reconciled(WorkResult::Success),
        Metric::Reconciled(WorkResult::Error),
        Metric::Reconciled(WorkResult::Error),
        Metric::ReconcileQueue(7),
        Metric::TaintPatch(TaintResult::Done),
        Metric::TaintPatch(TaintResult::Overtaken),
        Metric::AdminRecords { kept: 5, unreadable: 1, refused: 2 },
    ]);
    for line in [
        "admin_state_nodes{state=\"held\"} 3",
        "admin_state_nodes{state=\"draining\"} 2",
        "admin_state_nodes{state=\"down\"} 0",
        "draining_nodes{reason=\"spot-eviction\"} 4",
        "down_entries{set_by=\"controller\"} 40",
        "down_entries{set_by=\"other\"} 1",
        "admin_state_oldest_seconds 2.5",
        "drain_duration_seconds_sum 2",
        "drain_duration_seconds_bucket{le=\"0.5\"} 1",
        "drain_duration_seconds_bucket{le=\"30\"} 2",
        "reconcile_total{controller=\"admin_state\",result=\"success\"} 1",
        "reconcile_total{controller=\"admin_state\",result=\"error\"} 2",
        "reconcile_total{controller=\"admin_state\",result=\"requeue_after\"} 0",
        "reconcile_queue_length 7",
        "taint_patches_total{result=\"done\"} 1",
        "taint_patches_total{result=\"overtaken\"} 1",
        "admin_state_records{state=\"kept\"} 5",
        "admin_state_records{state=\"unreadable\"} 1",
        "admin_state_records{state=\"refused\"} 2",
    ] {
        assert!(page.contains(&format!("\nbackend_pool_controller_{line}\n")), "{line}: {page}");
    }
    let done = page_of(vec![Metric::AdminOldest(Some(Duration::from_secs(9))), Metric::AdminOldest(None)]);
    assert!(done.contains("\nbackend_pool_controller_admin_state_oldest_seconds 0\n"), "{done}");
}

#[test]
fn e2_series_that_alerts_query_start_at_zero() {
    let page = page_of(Vec::new());
    for line in [
        "leading 0",
        "contentions_total 0",
        "pauses{scope=\"everything\"} 0",
        "pauses_unreadable 0",
        "pauses_fresh 0",
        "leader_waits_for_pauses 0",
        "write_breakers_open 0",
        "foreign_lock_failures_total 0",
        "lost_writes_total 0",
        "removals_stopped 0",
        "second_reads_total 0",
        "events_total{result=\"dropped\"} 0",
        "throttle_gate_closed{class=\"writes\"} 0",
        "pools{state=\"failed\"} 0",
        "admin_state_nodes{state=\"held\"} 0",
        "admin_state_oldest_seconds 0",
        "admin_state_records{state=\"refused\"} 0",
        "admin_state_records{state=\"unreadable\"} 0",
        "down_entries{set_by=\"other\"} 0",
        "draining_nodes{reason=\"notice\"} 0",
        "reconcile_queue_length 0",
        "taint_patches_total{result=\"failed\"} 0",
        "mailbox_waiting{actor=\"writer\"} 0",
    ] {
        assert!(page.contains(&format!("\nbackend_pool_controller_{line}\n")), "{line}: {page}");
    }
}

/// Returns gRPC's series, and the controller's about xDS, without HELP and TYPE.
fn xds_series(page: &str) -> Vec<&str> {
    let named = |line: &&str| line.starts_with("grpc_") || line.contains("_xds_nacks_total{");
    page.lines().filter(named).collect()
}

const TYPES: [&str; 2] =
    ["envoy.config.cluster.v3.Cluster", "envoy.config.endpoint.v3.ClusterLoadAssignment"];

#[test]
fn e2_a78_samples_of_the_xds_client_have_grpcs_series() {
    let (one, two) = (ServerId(0), ServerId(1));
    let updates = |server, valid, invalid| model::xds::stream::XdsMetric::Updates {
        server,
        kind: facts::ResourceKind::Endpoints,
        valid,
        invalid,
    };
    let resources = |kind, state, count| model::xds::stream::XdsMetric::Resources { kind, state, count };
    let samples = [
        model::xds::stream::XdsMetric::Connected { server: one, connected: Some(true) },
        model::xds::stream::XdsMetric::Connected { server: one, connected: Some(false) },
        model::xds::stream::XdsMetric::ServerFailure(one),
        model::xds::stream::XdsMetric::ServerFailure(one),
        model::xds::stream::XdsMetric::Connected { server: two, connected: Some(true) },
        updates(two, 3, 1),
        updates(two, 4, 0),
        model::xds::stream::XdsMetric::Nack { server: two, kind: facts::ResourceKind::Cluster },
        resources(facts::ResourceKind::Endpoints, CacheState::Requested, 2),
        resources(facts::ResourceKind::Endpoints, CacheState::Requested, 0),
        resources(facts::ResourceKind::Endpoints, CacheState::NackedButCached, 2),
        resources(facts::ResourceKind::Cluster, CacheState::Acked, 5),
    ];
    let page = page_with(&["one:18000", "dns:///two:443"], samples.into_iter().map(Metric::Xds).collect());
    let [cluster, endpoints] = TYPES;
    let of = |server: &str| format!("grpc_target=\"#backend-pools\",grpc_xds_server=\"{server}\"");
    let (one, two) = (of("one:18000"), of("dns:///two:443"));
    let state = |state: &str, kind: &str| {
        format!(
            "grpc_xds_client_resources{{grpc_target=\"#backend-pools\",grpc_xds_authority=\"#old\",\
             grpc_xds_cache_state=\"{state}\",grpc_xds_resource_type=\"{kind}\"}}"
        )
    };
    for line in [
        format!("grpc_xds_client_connected{{{one}}} 0"),
        format!("grpc_xds_client_connected{{{two}}} 1"),
        format!("grpc_xds_client_server_failure_total{{{one}}} 2"),
        format!("grpc_xds_client_server_failure_total{{{two}}} 0"),
        format!(
            "grpc_xds_client_resource_updates_valid_total{{{two},grpc_xds_resource_type=\"{endpoints}\"}} 7"
        ),
        format!(
            "grpc_xds_client_resource_updates_invalid_total{{{two},grpc_xds_resource_type=\"{endpoints}\"}} 1"
        ),
        format!("{} 0", state("requested", endpoints)),
        format!("{} 2", state("nacked_but_cached", endpoints)),
        format!("{} 5", state("acked", cluster)),
        format!(
            "backend_pool_controller_xds_nacks_total{{grpc_xds_server=\"dns:///two:443\",\
             grpc_xds_resource_type=\"{cluster}\"}} 1"
        ),
    ] {
        assert!(page.contains(&format!("\n{line}\n")), "{line}: {page}");
    }
    let released = model::xds::stream::XdsMetric::Connected { server: ServerId(1), connected: None };
    let connected = model::xds::stream::XdsMetric::Connected { server: ServerId(1), connected: Some(true) };
    let page =
        page_with(&["one:18000", "dns:///two:443"], vec![Metric::Xds(connected), Metric::Xds(released)]);
    assert!(page.contains(&format!("\ngrpc_xds_client_connected{{{two}}} 0\n")), "no longer in use: {page}");
    assert!(!page.contains(&format!("grpc_xds_client_connected{{{one}}}")), "never in use: {page}");
}

#[test]
fn e2_a78_series_of_each_configured_server_start_at_zero() {
    let servers = ["one:18000", "two:18000"];
    let page = page_with(&servers, Vec::new());
    let series = xds_series(&page);
    assert!(series.iter().all(|line| line.ends_with(" 0")), "{series:#?}");
    let count = |name: &str, label: &str, value: &str| {
        let value = format!("{label}=\"{value}\"");
        series.iter().filter(|line| line.starts_with(name) && line.contains(&value)).count()
    };
    for server in servers {
        let of = |name: &str| count(name, "grpc_xds_server", server);
        assert_eq!(of("grpc_xds_client_server_failure_total{"), 1, "{series:#?}");
        assert_eq!(of("grpc_xds_client_resource_updates_valid_total{"), TYPES.len(), "{series:#?}");
        assert_eq!(of("grpc_xds_client_resource_updates_invalid_total{"), TYPES.len(), "{series:#?}");
        assert_eq!(of("backend_pool_controller_xds_nacks_total{"), TYPES.len(), "{series:#?}");
    }
    let states = [
        "requested",
        "does_not_exist",
        "does_not_exist_but_cached",
        "acked",
        "nacked",
        "nacked_but_cached",
        "received_error",
        "received_error_but_cached",
        "timeout",
    ];
    for state in states {
        let found = count("grpc_xds_client_resources{", "grpc_xds_cache_state", state);
        assert_eq!(found, TYPES.len(), "{state}: {series:#?}");
    }
    let expected = servers.len() * (1 + 3 * TYPES.len()) + states.len() * TYPES.len();
    assert_eq!(series.len(), expected, "no other series: {series:#?}");

    let without = page_of(Vec::new());
    assert!(!without.contains("grpc_") && !without.contains("xds_nacks"), "{without}");
}
