//! The taints of nodes whose machines stop and start again.

use serde_json::{Value, json};
use simulator_models::ccm::{Call, Settings};
use simulator_models::kube::Resource;
use simulator_models::kube::build;

use crate::support::{SECOND, World, quiet};

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

fn watching() -> Settings {
    Settings { lifecycle_us: Some(5 * SECOND), ..quiet() }
}

/// Returns a reconciled world with three nodes.
fn ready(settings: Settings) -> World {
    let mut world = World::new(settings);
    world.begin();
    world.run_until_idle();
    world
}

/// Changes a node like its kubelet or another client.
fn edit(world: &mut World, name: &str, change: impl FnOnce(&mut Value)) {
    let mut node = world.kube.get(Resource::Nodes, "", name).expect("the node is there");
    change(&mut node);
    world.apply(node);
}

fn be_ready(world: &mut World, name: &str, ready: bool) {
    let like = build::node(name, &[], &[], ready, &[]);
    edit(world, name, |node| node["status"]["conditions"] = like["status"]["conditions"].clone());
}

/// Returns key, value and effect of each taint.
fn taints(world: &World, name: &str) -> Vec<[String; 3]> {
    let node = world.kube.get(Resource::Nodes, "", name).expect("the node is there");
    let text = |taint: &Value, key: &str| taint[key].as_str().unwrap_or_default().to_owned();
    let all = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    all.iter().map(|taint| ["key", "value", "effect"].map(|key| text(taint, key))).collect()
}

fn taint(key: &str, effect: &str) -> [String; 3] {
    [key.to_owned(), String::new(), effect.to_owned()]
}

#[test]
fn n1_a_node_with_a_stopped_machine_has_both_taints_until_ready() {
    let mut world = ready(watching());
    world.machine("n1", true);
    world.run(20 * SECOND);
    assert!(taints(&world, "n1").is_empty(), "it still says that it is Ready");
    be_ready(&mut world, "n1", false);
    world.run(6 * SECOND);
    assert_eq!(taints(&world, "n1"), [taint(SHUTDOWN, "NoSchedule"), taint(OUT_OF_SERVICE, "NoExecute")]);
    world.run(60 * SECOND);
    assert_eq!(taints(&world, "n1").len(), 2, "each of them once");
    world.machine("n1", false);
    world.run(20 * SECOND);
    assert_eq!(taints(&world, "n1").len(), 2, "it is not Ready yet");
    be_ready(&mut world, "n1", true);
    world.run(6 * SECOND);
    assert!(taints(&world, "n1").is_empty());
    let about = |node: &str| world.trace.iter().any(|(_, call, _)| call.path_and_query.ends_with(node));
    assert!(about("/nodes/n1") && !about("/nodes/n2") && !about("/nodes/n3"));
}

#[test]
fn n1_a_not_ready_node_on_a_running_machine_gets_no_taint() {
    let mut world = ready(watching());
    be_ready(&mut world, "n2", false);
    world.run(60 * SECOND);
    assert!(taints(&world, "n2").is_empty());
}

#[test]
fn n1_a_foreign_out_of_service_taint_of_a_ready_node_is_removed() {
    let mut world = ready(watching());
    let others = [("maintenance", "NoSchedule"), (OUT_OF_SERVICE, "NoSchedule"), (SHUTDOWN, "NoExecute")];
    let list = |taints: &[(&str, &str)]| -> Value {
        taints.iter().map(|(key, effect)| json!({"key": key, "effect": effect})).collect()
    };
    let mut all = others.to_vec();
    all.insert(1, (OUT_OF_SERVICE, "NoExecute"));
    edit(&mut world, "n3", |node| node["spec"]["taints"] = list(&all));
    world.run(6 * SECOND);
    assert_eq!(taints(&world, "n3"), others.map(|(key, effect)| taint(key, effect)));
}

#[test]
fn n1_a_changed_list_of_taints_is_not_replaced() {
    let mut world = ready(watching());
    world.machine("n1", true);
    be_ready(&mut world, "n1", false);
    // Another client is faster, and its write has not arrived at the check.
    let mut node = world.kube.get(Resource::Nodes, "", "n1").expect("the node is there");
    node["spec"]["taints"] = json!([{"key": "maintenance", "effect": "NoSchedule"}]);
    world.kube.apply(node, world.now).expect("a node");
    world.run(20 * SECOND);
    let refused =
        |(_, call, status): &&(u64, Call, u16)| call.path_and_query.ends_with("/nodes/n1") && *status == 409;
    assert_eq!(world.trace.iter().filter(refused).count(), 1);
    let mut keys: Vec<String> = taints(&world, "n1").into_iter().map(|[key, ..]| key).collect();
    keys.sort();
    assert_eq!(keys, ["maintenance", SHUTDOWN, OUT_OF_SERVICE]);
}

#[test]
fn n1_it_checks_again_after_a_crash_only_if_enabled() {
    let mut world = ready(watching());
    world.ccms[0].kill(30 * SECOND);
    world.machine("n1", true);
    be_ready(&mut world, "n1", false);
    world.run(29 * SECOND);
    assert!(taints(&world, "n1").is_empty(), "it is down");
    world.run(5 * SECOND);
    assert_eq!(taints(&world, "n1").len(), 2);

    let mut world = ready(quiet());
    world.machine("n1", true);
    be_ready(&mut world, "n1", false);
    world.run(60 * SECOND);
    assert!(taints(&world, "n1").is_empty());
}
