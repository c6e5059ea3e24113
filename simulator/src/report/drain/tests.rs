//! Nodes that are drained in time, late, or never.

use serde_json::json;
use simulator_models::arm::{ArmModel, Latency, Method, PoolSpec, Request, Settings, VirtualNetwork};
use simulator_models::kube::build;
use simulator_models::kube::{self, KubeModel, Resource};

use super::*;
use crate::azure::Azure;

const SECOND: u64 = 1_000_000;
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Two nodes in the pools `a` and `b`, whose load balancer answers without latency.
struct Fixture {
    azure: Azure,
    cluster: KubeModel,
    signals: Signals,
}

impl Fixture {
    fn new() -> Self {
        let mut azure =
            ArmModel::new(Settings { put_latency: Latency::Fixed { us: 0 }, ..Settings::default() });
        let network = VirtualNetwork::Pool(crate::vnet_id());
        let members = [1, 2].map(|last| (format!("n{last}"), format!("10.0.0.{last}"))).to_vec();
        let spec = PoolSpec { virtual_network: network, members, ..PoolSpec::default() };
        for pool in ["a", "b"] {
            azure.add_pool("lb", pool, &spec);
        }
        let mut azure = Azure::new(azure);
        azure.track_admin_states();
        let cluster = KubeModel::new(kube::Settings::default());
        let mut fixture = Self { azure, cluster, signals: Signals::default() };
        fixture.taint(1, false, 0);
        fixture.taint(2, false, 0);
        fixture
    }

    fn taint(&mut self, last: u8, tainted: bool, at_us: u64) {
        let taints: &[(&str, &str, &str)] = if tainted { &[(OUT_OF_SERVICE, "", "NoExecute")] } else { &[] };
        let node = build::node(&format!("n{last}"), &[&format!("10.0.0.{last}")], &[], true, taints);
        self.cluster.apply(node, at_us).expect("a node");
        self.signals.observe(&self.cluster, &format!("n{last}"), at_us);
    }

    /// Writes both members into a pool, those with these last bytes Down.
    fn put(&mut self, pool: &str, down: &[u8], at_us: u64) {
        let member = |last: u8| {
            let state = if down.contains(&last) { "Down" } else { "None" };
            json!({"name": format!("n{last}"),
                "properties": {"ipAddress": format!("10.0.0.{last}"), "adminState": state}})
        };
        let body = json!({"properties": {"loadBalancerBackendAddresses": [member(1), member(2)],
            "virtualNetwork": {"id": crate::vnet_id()}}});
        let subscription = Settings::default().subscription;
        let request = Request {
            method: Method::Put,
            path_and_query: format!(
                "/subscriptions/{subscription}/resourceGroups/rg/providers/Microsoft.Network/loadBalancers/lb/\
                 backendAddressPools/{pool}?api-version=2025-05-01"
            ),
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
        };
        self.azure.handle(&request, at_us);
    }

    fn report(&self) -> DrainReport {
        let (downs, writes) = (&self.azure.downs, self.azure.lanes.writes());
        let inputs = DrainInputs { signals: &self.signals, downs, writes, read_us: SECOND, began_us: 0 };
        DrainReport::of(&inputs, Vec::new(), Some(1))
    }
}

#[test]
fn n2_a_node_is_drained_when_its_last_pool_has_it_down() {
    let mut fixture = Fixture::new();
    fixture.taint(1, true, 10 * SECOND);
    fixture.put("a", &[1], 11 * SECOND);
    let half = fixture.report();
    assert_eq!((half.nodes, half.reached_in_time, half.late, half.never), (1, 0, 0, 1));
    assert!(!half.is_as_expected());
    fixture.put("b", &[1], 14 * SECOND);
    let whole = fixture.report();
    assert_eq!((whole.reached_in_time, whole.never, whole.is_as_expected()), (1, 0, true));
    assert_eq!((whole.drained_seconds.p50, whole.sent_seconds.max), (Some(4.0), Some(1.0)));
    assert_eq!((whole.puts, whole.puts_per_pool_max, whole.set_down, whole.restored), (2, 1, 2, 0));
    fixture.taint(1, false, 20 * SECOND);
    fixture.put("a", &[], 21 * SECOND);
    let back = fixture.report();
    assert_eq!((back.reached_in_time, back.puts_per_pool_max, back.restored), (1, 2, 1));

    fixture.taint(2, true, 30 * SECOND);
    fixture.taint(2, false, 31 * SECOND);
    fixture.put("a", &[2], 33 * SECOND);
    let late_put = fixture.report();
    assert_eq!((late_put.nodes, late_put.never, late_put.puts_without_effect), (2, 1, 1));
    let [_, second] = &late_put.by_node[..] else { panic!("two nodes") };
    assert_eq!((second.node.as_str(), second.pools, second.drained_seconds), ("n2", 2, None));
    assert_eq!((second.sent_seconds, second.in_time), (None, false), "that was later");
}

#[test]
fn n1_a_node_whose_machine_went_before_is_late() {
    let mut fixture = Fixture::new();
    for last in [1, 2] {
        fixture.signals.notice(&fixture.cluster, &format!("n{last}"), 32 * SECOND, 30 * SECOND);
    }
    fixture.put("a", &[1, 2], 31 * SECOND);
    fixture.put("b", &[1], 32 * SECOND);
    fixture.put("b", &[1, 2], 33 * SECOND);
    let report = fixture.report();
    assert_eq!((report.nodes, report.reached_in_time, report.late), (2, 1, 1));
    assert_eq!(report.best_possible, 2, "a read of a second for each pool, for both nodes at once");
    assert_eq!(report.by_node[1].due_seconds, Some(2.0));
    fixture.cluster.delete(Resource::Nodes, "", "n2", 34 * SECOND);
    fixture.signals.observe(&fixture.cluster, "n2", 34 * SECOND);
    assert_eq!(fixture.report().late, 1, "it was drained before its node went");
}

#[test]
fn b_the_oracle_serves_the_earliest_deadline_that_can_be_met() {
    let job = |node, pool, from_us, due_us| Job { node, pool, from_us, due_us };
    let jobs = vec![job(0, 7, 0, 90), job(1, 8, 0, 12), job(2, 7, 5, 60), job(3, 9, 0, 5)];
    // Node 3 cannot be in time, so it comes last; the write of pool 7 includes nodes 0 and 2.
    assert_eq!(earliest_deadline_first(jobs, &[10, 20]), [(1, 10), (0, 30), (2, 30), (3, 45)]);
    assert_eq!(earliest_deadline_first(vec![job(0, 1, 40, 50)], &[]), [(0, 40)], "nothing was written there");
    assert_eq!(earliest_deadline_first(Vec::new(), &[10]), []);
}
