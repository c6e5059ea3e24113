//! Nodes as JSON, of small snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actors::clock::Clock;
use pool_core::admin_state::signals::Signal;
use pool_core::arm::AdminState;
use pool_core::ids::{AddressName, Family, LbName, NodeUid, PoolId, PoolName};
use pool_core::level::{Level, Member, Provenance, Source};
use pool_core::machine::Now;
use pool_core::sample::PoolState;
use pool_core::view::{NodePool, PoolView};

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

/// A snapshot with these nodes, and what somebody else has set on an entry of `node-9`.
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
fn h3_a_node_is_listed_with_how_many_of_its_pools_are_in_each_state() {
    let states = [NodePoolState::Down, NodePoolState::Down, NodePoolState::Waiting, NodePoolState::Foreign];
    let node = view("node-9", NodeState::Draining, &states);
    let shown = line(&node, &snapshot(vec![node.clone()]), &show());
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
    });
    assert_eq!(shown, wanted);
}

#[test]
fn h3_one_node_alone_names_all_of_its_pools() {
    let node = view("node-1", NodeState::Down, &[NodePoolState::Down, NodePoolState::Excluded]);
    let mut shown = whole(&node, &snapshot(Vec::new()), &show());
    let pools = json!([
        { "loadBalancer": "lb", "backendPool": "a", "state": "down" },
        { "loadBalancer": "lb", "backendPool": "b", "state": "excluded" },
    ]);
    assert_eq!(shown["inPools"], pools);
    shown.as_object_mut().expect("an object").remove("inPools");
    assert_eq!(shown, line(&node, &snapshot(Vec::new()), &show()), "beside what a list has");
}

#[test]
fn h3_the_sums_have_every_state_and_what_others_have_set() {
    let nodes = vec![
        view("n1", NodeState::Down, &[]),
        view("n2", NodeState::Down, &[]),
        view("n3", NodeState::Held, &[]),
    ];
    let shown = admin_state(&snapshot(nodes)).expect("it was told");
    let counts = NodeState::ALL.map(|state| shown[state.as_str()].as_u64().expect("a number"));
    assert_eq!(counts, [1, 0, 0, 2, 0, 0]);
    let foreign = json!({
        "loadBalancer": "lb", "backendPool": "a", "adminState": "Up", "backend": "10.0.0.8", "node": "node-8",
    });
    assert_eq!((&shown["enabled"], &shown["foreign"][0]), (&json!(true), &foreign));
    assert_eq!(admin_state(&Snapshot::default()), None, "nothing was said of it yet");
}

#[test]
fn h3_who_asks_for_a_node_with_nothing_of_it_is_told_as_far_as_it_is_known_why() {
    let told = |name: &str, snapshot: &Snapshot| absent(&NodeName::new(name), snapshot);
    let mut known = snapshot(Vec::new());
    let (title, detail) = told("node-9", &known);
    assert_eq!(title, "nothing of the admin state");
    assert!(detail.contains("somebody else has set the admin state of 1 of its entries"), "{detail}");

    assert_eq!(told("node-1", &known).0, "no such node");
    known.pools = [(pool("a"), Arc::new(requiring("node-1")))].into();
    let (title, detail) = told("node-1", &known);
    assert_eq!(title, "nothing of the admin state");
    assert!(detail.starts_with("node node-1 is there, and nothing says that it leaves service"), "{detail}");
    assert!(detail.ends_with("nothing of it is Down by us"), "{detail}");
    let foreign = foreign("node-8", 8);
    let view = AdminView { foreign: vec![foreign; AdminView::MOST_FOREIGN], ..admin(Role::On) };
    let more = Snapshot { admin_state: Some(Arc::new(view)), ..known };
    let (_, detail) = told("node-1", &more);
    assert!(detail.ends_with("for 100 entries only: the node may have others"), "{detail}");

    let off = |view: AdminView| Snapshot { admin_state: Some(Arc::new(view)), ..snapshot(Vec::new()) };
    let (title, detail) = told("node-1", &off(admin(Role::Off)));
    assert_eq!(title, "the admin state is off");
    assert!(detail.ends_with("enableLoadBalancerAdminState is false in the cloud configuration"), "{detail}");
    let (_, detail) = told("node-1", &off(AdminView { switched_off: true, ..admin(Role::On) }));
    assert!(detail.contains("the key admin-state.off of the ConfigMap"), "{detail}");
    assert_eq!(told("node-1", &Snapshot::default()).0, "not known yet");
}

/// A pool that requires a node of this name.
fn requiring(node: &str) -> PoolView {
    let member = Member { name: AddressName::new(node), node_ready: true };
    PoolView {
        pool: pool("a"),
        family: Family::V4,
        source: Source::Kubernetes,
        services: BTreeMap::new(),
        state: PoolState::Right,
        since: Now::ZERO,
        level: Level { required: [([10, 0, 0, 1].into(), member)].into(), ..Level::default() },
        provenance: Provenance::Watch,
        observed: None,
        observed_down: [].into(),
        observed_at: None,
        waiting_since: None,
        next_at: None,
        retries: BTreeMap::new(),
        attempt: None,
        last_end: None,
        last_error: None,
        held: None,
        would_hold: None,
        overruled: None,
        paused: [].into(),
        withheld: None,
        lost_writes: 0,
    }
}
