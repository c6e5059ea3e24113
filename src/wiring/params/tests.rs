//! Tests that the keys of both files reach the parameters of the machines.

use std::collections::{BTreeMap, BTreeSet};

use config::Source;
use model::node::Role;
use nodes::RecordStorage;

use super::*;

const CLOUD: &str = r#"{
    "cloud": "AzurePublicCloud", "resourceManagerEndpoint": "http://127.0.0.1:9", "tenantId": "t-1",
    "subscriptionId": "s-1", "resourceGroup": "rg", "vnetName": "vnet", "loadBalancerSku": "standard",
    "loadBalancerBackendPoolConfigurationType": "nodeIP",
    "multipleStandardLoadBalancerConfigurations": [{ "name": "kubernetes", "primaryVMSet": "vmss" }]
    MORE
}"#;

fn load(cloud: &str, controller: &str) -> Config {
    let cloud = Source::new("azure.json", CLOUD.replace("MORE", cloud));
    let controller = Source::new("controller.yaml", format!("identity: anonymous\n{controller}"));
    Config::load(cloud, controller, &BTreeMap::new()).expect("valid").config
}

fn of(cloud: &str, controller: &str, dry_run: bool) -> (Config, Machines) {
    let config = load(cloud, controller);
    let machines = machines(&config, &Instance { identity: Arc::from("pod_1"), dry_run });
    (config, machines)
}

#[test]
fn c2_compatibility_upstream_reaches_every_machine() {
    let interval = r#", "loadBalancerBackendPoolUpdateIntervalInSeconds": 40"#;
    let (_, machines) = of(interval, "compatibility: upstream\n", false);
    let tick = Duration::from_secs(40);
    assert_eq!(machines.queue, queue::Params::upstream(tick, 3), "what S0's cases run with");
    let writer = machines.writer;
    assert_eq!((writer.etag_rounds, writer.retry_throttled, writer.min_interval), (1, true, tick));
    assert_eq!((writer.gates_delay_grants, writer.breaker), (false, false));
    assert_eq!(writer.throttling, writer::Throttling::Upstream);
    let directory = machines.directory;
    assert_eq!((directory.removal_delay, directory.empty_confirm), (Duration::ZERO, Duration::ZERO));
    assert_eq!(directory.guards, GuardMode::Off);
    assert!(!machines.informer.per_family);
}

#[test]
fn c2_without_compatibility_everything_beyond_upstream_is_on() {
    let (_, machines) = of("", "", false);
    let (queue, writer) = (machines.queue, machines.writer);
    assert_eq!((queue.drift, queue.compare_after_stale, queue.contention_backoff), (true, true, true));
    assert_eq!(queue.after_failure, Some(Duration::from_secs(60)));
    assert_eq!((writer.gates_delay_grants, writer.breaker, writer.retry_throttled), (true, true, false));
    assert_eq!(writer.throttling, writer::Throttling::Bounded);
    assert_eq!((writer.etag_rounds, writer.rate_limit), (3, None));
    assert_eq!((machines.directory.guards, machines.informer.per_family), (GuardMode::Enforce, true));
    assert_eq!(machines.directory.max_removal, Fraction::millionths(500_000));
    let (_, off) = of("", "guards: {mode: \"off\", emptyConfirm: 10s}\n", false);
    assert_eq!((off.directory.guards, off.directory.empty_confirm), (GuardMode::Off, Duration::ZERO));
}

#[test]
fn q8_without_retries_nothing_is_compared_after_a_failure() {
    let (_, machines) = of(r#", "loadBalancerBackendPoolUpdateMaxRetries": 0"#, "", false);
    assert_eq!((machines.queue.max_retries, machines.queue.after_failure), (0, None));
}

#[test]
fn d3_internal_load_balancers_have_only_internal_services() {
    let internal = |pools: &str| of("", pools, false).1.discovery.internal;
    assert_eq!(internal(""), BTreeSet::from([LbName::new("kubernetes-internal")]));
    let pools =
        |lb: &str| format!("pools:\n- {{loadBalancer: {lb}, backendPool: edge, source: \"eds:edge\"}}\n");
    assert_eq!(internal(&pools("other-internal")), internal(""), "it is not managed");
    assert_eq!(internal(&pools("Kubernetes-internal")), BTreeSet::new());
}

#[test]
fn w9_the_rates_of_the_cloud_configuration_become_the_writers() {
    let rates = r#", "cloudProviderRateLimit": true, "cloudProviderRateLimitQPS": 3, "cloudProviderRateLimitBucket": 7,
        "cloudProviderRateLimitQPSWrite": 2, "cloudProviderRateLimitBucketWrite": 4"#;
    let (_, machines) = of(rates, "", false);
    let expected = writer::RateLimit {
        reads_per_second: 10.0,
        reads_at_once: 7,
        writes_per_second: 2.0,
        writes_at_once: 4,
    };
    assert_eq!(machines.writer.rate_limit, Some(expected));
}

#[test]
fn w7_w8_replicas_compete_for_one_lease_and_share_the_other() {
    let keys = "leaderElection: {namespace: pools, name: ours}\nlease: {maxHold: 7s, minCooldown: 9s, bypassForDrain: true}\n";
    let (config, machines) = of("", keys, false);
    assert_eq!(&*machines.leader.identity, "pod_1");
    assert_eq!(machines.leader.election, leader::LeaderElection::Enabled(leader::Times::W8));
    let lease = machines.writer.lease.expect("the shared Lease is used");
    assert_eq!(&*lease.holder, "azure-backend-pool-controller");
    assert_eq!((lease.max_hold, lease.min_cooldown), (Duration::from_secs(7), Duration::from_secs(9)));
    assert!(lease.bypass_for_drain);
    let LeaseNames { own, shared } = leases(&config);
    assert_eq!(own.to_string(), "pools/ours");
    assert_eq!(shared.to_string(), "kube-system/aks-managed-resource-locker");
}

#[test]
fn c4_a_dry_run_leads_alone_and_uses_no_lease() {
    let (_, machines) = of("", "", true);
    assert_eq!(machines.leader.election, leader::LeaderElection::Disabled);
    assert_eq!(machines.writer.lease, None);
}

#[test]
fn n2_n3_the_keys_of_the_admin_state_reach_its_machine() {
    let admin_state = |controller: &str| of("", controller, false).1.admin_state;
    let plain = admin_state("");
    assert_eq!((plain.role, plain.storage), (Role::On, RecordStorage::ConfigMap));
    assert_eq!(plain.load_balancers, [LbName::new("kubernetes"), LbName::new("kubernetes-internal")]);
    assert_eq!(plain.excluded, BTreeSet::from([PoolName::new("aksOutboundBackendPool")]));
    assert_eq!(plain.max_backoff, Duration::from_secs(15));
    let other = admin_state("adminState: {excludePools: [a, b], maxBackoff: 2m}\n");
    assert_eq!(other.excluded, BTreeSet::from(["a", "b"].map(PoolName::new)));
    assert_eq!(other.max_backoff, Duration::from_secs(120));
}

#[test]
fn n4_the_cloud_configuration_switches_the_admin_state_off() {
    let (_, off) = of(r#", "enableLoadBalancerAdminState": false"#, "", false);
    assert_eq!((off.admin_state.role, off.admin_state.storage), (Role::Off, RecordStorage::ConfigMap));
    let (_, dry) = of("", "", true);
    assert_eq!((dry.admin_state.role, dry.admin_state.storage), (Role::On, RecordStorage::Nothing));
    let restoring = Restoring { pins: Arc::new(Pins::default()), pauses: true, named: false };
    for machines in [of("", "", true).1.for_comparison(), of("", "", false).1.restoring(&restoring)] {
        assert_eq!(machines.admin_state.role, Role::Silent);
    }
}

#[test]
fn h3_x2_a_source_has_the_pools_that_list_it_in_any_case() {
    let pools = "pools:\n- {loadBalancer: LB, backendPool: Edge, source: \"eds:edge\"}\n- {loadBalancer: lb, backendPool: other, source: \"eds:edge\"}\n- {loadBalancer: lb, backendPool: last, source: \"cluster:last\"}\n";
    let config = load("", pools);
    let pool = |name: &str| PoolId::new(LbName::new("lb"), PoolName::new(name));
    let name = |text: &str| Name::parse(text).expect("a name");
    let expected = BTreeMap::from([
        (name("cluster:last"), BTreeSet::from([pool("last")])),
        (name("eds:edge"), BTreeSet::from([pool("edge"), pool("other")])),
    ]);
    assert_eq!(pools_by_source(&config), expected);
}
