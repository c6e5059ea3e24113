//! Draining nodes in the API server.

use std::collections::BTreeSet;

use simulator_models::kube;

use super::super::Disruption;
use super::*;
use crate::cluster::Cluster;
use crate::scenario::Scenario;

const TIME: &str = "2026-11-22T16:30:35.75Z";
const KEY: &str = "node.kubernetes.io/out-of-service";

/// Returns four Services of three pods each on four nodes.
fn stage() -> (World, Cluster) {
    let scenario = Scenario::read("services 4\nload-balancers 1\nnodes 4\n").expect("a scenario");
    let world = World::new(scenario.size, 1);
    let mut cluster = Cluster::new(KubeModel::new(kube::Settings::default()));
    world.fill_cluster(&mut cluster.model, TIME, 0);
    (world, cluster)
}

fn action((world, cluster): &mut (World, Cluster), action: NodeDisruption, now_us: u64) {
    Disruption::NodeDisruption(action).begin(world, TIME).on_cluster(cluster, now_us);
}

fn node_of(cluster: &Cluster, number: usize) -> Value {
    cluster.model.get(Resource::Nodes, "", &format!("node-{number:04}")).expect("the node is there")
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().expect("conditions");
    let ready: Vec<&Value> = conditions.iter().filter(|one| one["type"] == "Ready").collect();
    assert_eq!(ready.len(), 1);
    ready[0]["status"] == "True"
}

/// Returns start, eviction time and end of each node's signal.
fn signals(cluster: &Cluster) -> Vec<(&str, u64, Option<u64>, Option<u64>)> {
    let all = cluster.signals.all().iter();
    all.map(|one| (one.node.as_str(), one.from_us, one.due_us, one.until_us)).collect()
}

#[test]
fn z2_the_oldest_nodes_are_tainted_once_and_a_key_untaints_all() {
    let mut stage = stage();
    let taint = |key: &str, value: &str| NodeDisruption::Taint {
        count: 2,
        key: key.to_owned(),
        value: value.to_owned(),
    };
    action(&mut stage, taint("other/key", "value"), 1);
    action(&mut stage, taint(KEY, ""), 2);
    action(&mut stage, taint(KEY, "again"), 3);
    let other = json!({"key": "other/key", "value": "value", "effect": "NoSchedule"});
    let expected = json!([other, {"key": KEY, "effect": "NoExecute"}]);
    for number in [0, 1] {
        assert_eq!(node_of(&stage.1, number)["spec"]["taints"], expected);
    }
    assert!(node_of(&stage.1, 2)["spec"].get("taints").is_none());
    assert_eq!(signals(&stage.1), [("node-0000", 2, None, None), ("node-0001", 2, None, None)]);
    action(&mut stage, NodeDisruption::Untaint(KEY.to_owned()), 4);
    assert_eq!(node_of(&stage.1, 1)["spec"]["taints"], json!([other]));
    assert_eq!(signals(&stage.1), [("node-0000", 2, None, Some(4)), ("node-0001", 2, None, Some(4))]);
    action(&mut stage, NodeDisruption::Untaint("other/key".to_owned()), 5);
    assert_eq!(node_of(&stage.1, 0)["spec"]["taints"], Value::Null);
}

#[test]
fn n1_an_eviction_has_notice_then_not_ready_then_deletion() {
    let message = "Preempt Scheduled: Sun, 22 Nov 2026 16:31:05 GMT. DurationInSeconds: -1.  For more \
                   information, see https://aka.ms/aks/scheduledevents.";
    for form in [NoticeForm::Event, NoticeForm::EventV1, NoticeForm::Condition] {
        let mut stage = stage();
        let evict = |step| NodeDisruption::Evict(7, step);
        action(&mut stage, evict(Step::Notice { form, notice_us: 30_000_000 }), 10);
        let events: Vec<Value> = [Resource::Events, Resource::EventsV1]
            .into_iter()
            .flat_map(|resource| stage.1.model.list(resource).collect::<Vec<_>>())
            .collect();
        let node = node_of(&stage.1, 0);
        let announced = match form {
            NoticeForm::Event => &events[0]["message"],
            NoticeForm::EventV1 => events.last().map_or(&Value::Null, |event| &event["note"]),
            NoticeForm::Condition => &node["status"]["conditions"][1]["message"],
        };
        assert_eq!(announced, message, "{form:?}");
        assert_eq!(events.is_empty(), form == NoticeForm::Condition);
        assert_eq!(signals(&stage.1), [("node-0000", 10, Some(30_000_010), None)]);
        assert!(is_ready(&node));

        action(&mut stage, evict(Step::NotReady), 30);
        assert!(!is_ready(&node_of(&stage.1, 0)) && is_ready(&node_of(&stage.1, 1)));
        let before = stage.0.services().to_vec();
        action(&mut stage, evict(Step::Gone), 45);
        assert!(stage.1.model.get(Resource::Nodes, "", "node-0000").is_none());
        assert_eq!(signals(&stage.1), [("node-0000", 10, Some(30_000_010), Some(45))]);
        for (old, new) in before.iter().zip(stage.0.services()) {
            assert_eq!(old.pods.len(), new.pods.len());
            let there: BTreeSet<usize> = new.pods.iter().map(|pod| pod.node).collect();
            assert!(!there.contains(&0), "{there:?}");
        }
        assert_eq!(stage.0.oldest_nodes(9), ["node-0001", "node-0002", "node-0003"]);
        // The eviction has ended, and a repeated step has no effect.
        action(&mut stage, evict(Step::Gone), 46);
        assert_eq!(stage.1.model.list(Resource::Nodes).count(), 3);
    }
}

#[test]
fn n1_evictions_remove_nodes_one_by_one_except_the_last() {
    let mut stage = stage();
    let notice = Step::Notice { form: NoticeForm::Event, notice_us: 1 };
    for number in 0..9 {
        action(&mut stage, NodeDisruption::Evict(number, notice), number as u64);
    }
    let evicted: Vec<&str> = signals(&stage.1).into_iter().map(|(node, ..)| node).collect();
    assert_eq!(evicted, ["node-0000", "node-0001", "node-0002"], "one stays");
    for number in [1, 2, 0] {
        action(&mut stage, NodeDisruption::Evict(number, Step::Gone), 20 + number as u64);
        let there = stage.0.oldest_nodes(9);
        assert_eq!(stage.1.model.list(Resource::Nodes).count(), there.len(), "{there:?}");
    }
    assert_eq!(stage.0.oldest_nodes(9), ["node-0003"]);
    let pods = stage.0.services().iter().flat_map(|service| &service.pods);
    assert!(pods.map(|pod| pod.node).all(|node| node == 3), "all pods are on existing nodes");
}

#[test]
fn n2_a_recreated_node_has_its_name_another_uid_and_no_taints() {
    for same_addresses in [true, false] {
        let mut stage = stage();
        action(&mut stage, NodeDisruption::Taint { count: 1, key: KEY.to_owned(), value: String::new() }, 1);
        let before = node_of(&stage.1, 0);
        action(&mut stage, NodeDisruption::Recreate { count: 1, same_addresses }, 2);
        let after = node_of(&stage.1, 0);
        assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
        assert!(after["spec"].get("taints").is_none() && is_ready(&after));
        assert_eq!(before["status"]["addresses"] == after["status"]["addresses"], same_addresses);
        assert_eq!(signals(&stage.1), [("node-0000", 1, None, Some(2))]);
        action(&mut stage, NodeDisruption::Recreate { count: 1, same_addresses: true }, 3);
        let again = node_of(&stage.1, 0);
        assert_ne!(again["metadata"]["uid"], after["metadata"]["uid"]);
        assert_eq!(again["status"]["addresses"], after["status"]["addresses"], "its last addresses");
    }
}

#[test]
fn z2_nodes_with_stopped_machines_are_not_ready() {
    let mut stage = stage();
    action(&mut stage, NodeDisruption::Stop(2), 1);
    let ready = |cluster: &Cluster| [0, 1, 2].map(|number| is_ready(&node_of(cluster, number)));
    assert_eq!(ready(&stage.1), [false, false, true]);
    assert_eq!(stage.1.stopped.len(), 2);
    action(&mut stage, NodeDisruption::Stop(1), 2);
    assert_eq!(ready(&stage.1), [false, true, true], "the others run again");
    action(&mut stage, NodeDisruption::Start, 3);
    assert_eq!((ready(&stage.1), stage.1.stopped.len()), ([true; 3], 0));
    assert_eq!(signals(&stage.1), [], "they have no taints");
}
