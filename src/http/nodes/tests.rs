//! Tests of nodes as JSON, with small snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actors::clock::Clock;
use model::arm::AdminState;
use model::ids::{AddressName, LbName, NodeUid, PoolId, PoolName};
use model::level::{Level, Member};
use model::machine::Now;
use model::object::{ResourceVersion, Taint};
use model::sample::PoolState;
use model::signals::Signal;
use model::view::{NodePool, PoolView, Synced};
use pool_testing::views;
use serde_json::{Value, json};

use super::*;

fn pool(name: &str) -> PoolId {
    PoolId::new(LbName::new("lb"), PoolName::new(name))
}

fn address(last: u8) -> Backend {
    Backend::Address([10, 0, 0, last].into())
}

fn view(name: &str, state: NodeState, pools: &[NodePoolState]) -> NodeView {
    let pools = pools.iter().zip('a'..);
    NodeView {
        name: NodeName::new(name),
        uid: NodeUid::new("u"),
        state,
        signals: [Signal::Notice, Signal::Shutdown].into(),
        since: Some(Now::from_millis(70_000)),
        ready: true,
        backends: vec![address(7)],
        generation: Some(3),
        recorded: true,
        taint_ours: true,
        pools: pools.map(|(state, c)| NodePool { pool: pool(&c.to_string()), state: *state }).collect(),
        retries: 2,
        next: Some(Now::from_millis(101_500)),
        last_error: Some("HTTP 503".into()),
    }
}

fn admin(role: Role) -> AdminView {
    AdminView {
        role,
        switched_off: false,
        generation: 3,
        records: 1,
        unreadable: BTreeMap::new(),
        refused: 0,
        foreign: Vec::new(),
        fresh: true,
        last_error: None,
    }
}

fn foreign(node: &str, last: u8) -> ForeignState {
    ForeignState { pool: pool("a"), backend: address(last), state: AdminState::Up, node: NodeName::new(node) }
}

/// Returns a snapshot with these nodes, and the state that another client has set on an entry of `node-9`.
fn snapshot(nodes: Vec<NodeView>) -> Snapshot {
    let view = AdminView { foreign: vec![foreign("node-8", 8), foreign("node-9", 9)], ..admin(Role::On) };
    Snapshot {
        nodes: nodes.into_iter().map(|node| (node.name.clone(), Arc::new(node))).collect(),
        admin_state: Some(Arc::new(view)),
        ..Snapshot::default()
    }
}

fn show() -> Show {
    Show { clock: Clock::start(), now: Now::ZERO.plus(Duration::from_secs(100)) }
}

#[test]
fn h3_a_node_is_listed_with_its_number_of_pools_per_state() {
    let states = [NodePoolState::Down, NodePoolState::Down, NodePoolState::Waiting, NodePoolState::Foreign];
    let node = view("node-9", NodeState::Draining, &states);
    let shown = json!(line(&node, &snapshot(vec![node.clone()]), &show()));
    let wanted = json!({
        "name": "node-9",
        "uid": "u",
        "state": "draining",
        "reasons": ["shutdown", "notice"],
        "signalSeconds": 30.0,
        "ready": true,
        "addresses": ["10.0.0.7"],
        "instance": null,
        "generation": 3,
        "recorded": true,
        "pools": {
            "total": 4, "down": 2, "waiting": 1, "failed": 0, "foreign": 1, "unknown": 0, "excluded": 0,
        },
        "foreign": [{ "loadBalancer": "lb", "backendPool": "a", "adminState": "Up" }],
        "taint": { "ours": true },
        "retries": 2,
        "nextInSeconds": 1.5,
        "lastError": "HTTP 503",
        "excludedBy": null,
    });
    assert_eq!(shown, wanted);
}

#[test]
fn h3_one_node_alone_names_all_of_its_pools() {
    let node = view("node-1", NodeState::Down, &[NodePoolState::Down, NodePoolState::Excluded]);
    let mut shown = json!(whole(&node, &snapshot(Vec::new()), &show()));
    let pools = json!([
        { "loadBalancer": "lb", "backendPool": "a", "listed": false, "state": "down", "adminState": "Down" },
        { "loadBalancer": "lb", "backendPool": "b", "listed": false, "state": "excluded", "adminState": null },
    ]);
    assert_eq!(shown["inPools"], pools);
    shown.as_object_mut().expect("an object").remove("inPools");
    assert_eq!(shown, json!(line(&node, &snapshot(Vec::new()), &show())), "beside what a list has");
}

#[test]
fn h3_the_sums_have_every_state_and_those_of_other_clients() {
    let nodes = vec![
        view("n1", NodeState::Down, &[]),
        view("n2", NodeState::Down, &[]),
        view("n3", NodeState::Held, &[]),
    ];
    let snapshot = snapshot(nodes);
    let shown = json!(admin_state(&snapshot).expect("it was told"));
    let counts = NodeState::ALL.map(|state| shown[state.as_str()].as_u64().expect("a number"));
    assert_eq!(counts, [1, 0, 0, 2, 0, 0]);
    let foreign = json!({
        "loadBalancer": "lb", "backendPool": "a", "adminState": "Up", "backend": "10.0.0.8", "node": "node-8",
    });
    assert_eq!((&shown["enabled"], &shown["foreign"][0]), (&json!(true), &foreign));
    assert!(admin_state(&Snapshot::default()).is_none(), "nothing was said of it yet");
}

fn fact(name: &str, last: u8) -> NodeFact {
    NodeFact {
        name: NodeName::new(name),
        uid: NodeUid::new("u"),
        ips: [[10, 0, 0, last].into()].into(),
        instance: None,
        ready: true,
        excluded: Some(ExclusionRule::ControlPlane),
        taints: Vec::new(),
        created: None,
        preempt: None,
        version: ResourceVersion::default(),
    }
}

#[test]
fn h3_a_node_that_stays_is_shown_with_its_pools() {
    let observed = |name: &str, down: &[u8]| {
        let ips = |of: &[u8]| of.iter().map(|last| [10, 0, 0, *last].into()).collect();
        let view = requiring("node-1");
        (
            pool(name),
            Arc::new(PoolView {
                pool: pool(name),
                observed: Some(ips(&[1, 2])),
                observed_down: ips(down),
                ..view
            }),
        )
    };
    let known = Snapshot { pools: [observed("a", &[]), observed("b", &[1])].into(), ..snapshot(Vec::new()) };
    let shown = json!(quiet(&fact("node-1", 1), &known));
    let pools = json!([
        { "loadBalancer": "lb", "backendPool": "a", "listed": true, "state": "in_service", "adminState": "None" },
        { "loadBalancer": "lb", "backendPool": "b", "listed": true, "state": "foreign", "adminState": "Down" },
    ]);
    assert_eq!((&shown["inPools"], &shown["state"]), (&pools, &json!("in_service")));
    assert_eq!((&shown["pools"]["total"], &shown["pools"]["foreign"]), (&json!(2), &json!(1)));
    assert_eq!(shown["excludedBy"]["rule"], "control_plane");
    let taint =
        Taint { key: "node.kubernetes.io/out-of-service".into(), value: "".into(), effect: "".into() };
    let shown = json!(quiet(&NodeFact { taints: vec![taint], ..fact("node-3", 3) }, &known));
    assert_eq!((&shown["inPools"], &shown["state"]), (&json!([]), &json!("not_managed")));
    assert_eq!(shown["reasons"], json!(["out-of-service"]));
    let whole = json!(whole(&view("node-1", NodeState::Down, &[]), &known, &show()));
    let fields = |shown: &Value| shown.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(fields(&shown), fields(&whole), "both have the same shape");
}

#[test]
fn h3_a_missing_node_is_not_found() {
    let synced = Synced { lists: true, discovery: true };
    let told = |synced| absent(&NodeName::new("node-1"), &Snapshot { synced, ..snapshot(Vec::new()) });
    assert_eq!(told(Synced::default()).0, "not known yet");
    let (title, detail) = told(synced);
    assert_eq!(title, "no such node");
    assert!(detail.starts_with("there is no node node-1;"), "{detail}");
}

/// Returns a pool that requires a node of this name.
fn requiring(node: &str) -> PoolView {
    let member = Member { name: AddressName::new(node), node_ready: true };
    PoolView {
        level: Level { required: [([10, 0, 0, 1].into(), member)].into(), ..Level::default() },
        ..views::pool(pool("a"), PoolState::InSync)
    }
}
