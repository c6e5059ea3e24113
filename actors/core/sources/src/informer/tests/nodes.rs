//! The facts about nodes for the admin state.

use super::*;
use model::ids::EventKey;
use model::machine::Wall;
use model::node::NodeFact;
use model::object::{Preempt, PreemptionObject};
use model::signals::{DRAINING, OUT_OF_SERVICE, SPOT_EVICTION};

pub(super) fn node_facts(out: &[Out]) -> Vec<(NodeName, Option<Arc<NodeFact>>)> {
    let node_facts = |said: &Out| match said {
        Out::Node(name, fact) => Some((name.clone(), fact.clone())),
        Out::Service(..)
        | Out::Synced
        | Out::Confirmed(_)
        | Out::Reread(_)
        | Out::ReadUpTo(_)
        | Out::AwaitingIngress(_)
        | Out::Cached(..)
        | Out::Relist(..)
        | Out::Report(_)
        | Out::Ended(_)
        | Out::Metric(_) => None,
    };
    out.iter().filter_map(node_facts).collect()
}

fn tainted(node: &NodeObject, key: &str) -> NodeObject {
    let taint = Taint { key: key.into(), value: "".into(), effect: "NoExecute".into() };
    NodeObject { taints: vec![taint], ..node.clone() }
}

#[test]
fn n1_a_taint_is_published_in_its_turn() {
    let mut run = Run::synced(Vec::new(), Vec::new());
    let plain = node("n1", &["10.0.0.1", "fd00::1"]);
    run.put(plain.clone());
    run.turn();
    run.put(tainted(&plain, "node.kubernetes.io/out-of-service"));
    let [(name, Some(fact))] = &node_facts(&run.turn())[..] else { panic!("one node") };
    assert_eq!((name, &fact.name, &fact.uid), (&plain.name, &plain.name, &plain.uid));
    assert_eq!((fact.ips.len(), fact.taints.len(), fact.excluded), (2, 1, None));
    run.put(tainted(&plain, "node.kubernetes.io/out-of-service"));
    assert!(node_facts(&run.turn()).is_empty(), "what has changed otherwise is nothing new");
    run.gone(node_key("n1"));
    assert_eq!(node_facts(&run.turn()), [(plain.name, None)]);
}

#[test]
fn n2_a_recreated_node_is_published_as_it_is() {
    let mut run = Run::synced(Vec::new(), Vec::new());
    run.gone(node_key("n2"));
    run.put(NodeObject { uid: NodeUid::new("another"), ..node("n2", &["10.0.0.2"]) });
    let [(_, Some(fact))] = &node_facts(&run.turn())[..] else { panic!("one node") };
    assert_eq!(fact.uid, NodeUid::new("another"));
}

#[test]
fn w8_nodes_are_published_before_their_lists_count() {
    let mut run = Run::of(params());
    run.list(Kind::Services, Vec::<ServiceObject>::new());
    run.list(Kind::EndpointSlices, Vec::<SliceObject>::new());
    run.list(Kind::Nodes, vec![node("n1", &["10.0.0.1"])]);
    let said = run.turn();
    let place = |what: fn(&Out) -> bool| said.iter().position(what).expect("said");
    assert!(place(|said| matches!(said, Out::Node(..))) < place(|said| matches!(said, Out::Synced)));
}

fn preempted(node: &NodeObject, at: i64, age: u64) -> NodeObject {
    let (at, age) = (Some(Wall::from_micros(at)), Some(Duration::from_secs(age)));
    let message = "Preempt Scheduled".into();
    NodeObject { preempt: Some(Preempt { at, age, not_before: None, message }), ..node.clone() }
}

#[test]
fn n1_only_a_newer_eviction_condition_is_published() {
    let mut run = Run::synced(Vec::new(), Vec::new());
    let plain = node("n1", &["10.0.0.1"]);
    let facts_after = |run: &mut Run, object: NodeObject| {
        run.observe(Kind::Nodes, WatchUpdate::Object(object.into()));
        node_facts(&run.turn()).len()
    };
    let of = |at, age| NodeObject { resource_version: version(500), ..preempted(&plain, at, age) };
    assert_eq!(facts_after(&mut run, of(1, 0)), 1);
    assert_eq!(facts_after(&mut run, of(1, 9)), 0);
    assert_eq!(facts_after(&mut run, of(2, 0)), 1);
    assert_eq!(facts_after(&mut run, NodeObject { preempt: None, ..of(2, 0) }), 1);
}

#[test]
fn n1_a_newer_version_alone_is_not_published() {
    let plain = node("n1", &["10.0.0.1"]);
    let mut marked = tainted(&plain, DRAINING);
    marked.taints[0].value = SPOT_EVICTION.into();
    for object in [tainted(&plain, OUT_OF_SERVICE), marked, preempted(&plain, 1, 0)] {
        let mut run = Run::synced(Vec::new(), Vec::new());
        run.put(object.clone());
        assert_eq!(node_facts(&run.turn()).len(), 1, "{object:?}");
        run.put(object.clone());
        assert_eq!(node_facts(&run.turn()), [], "{object:?}");
    }
}

#[test]
fn d6_levels_wait_for_no_list_of_events() {
    let mut run = Run::of(params());
    let event = PreemptionObject {
        key: EventKey { namespace: "default".into(), name: "n1.1".into() },
        resource_version: version(1),
        node: NodeName::new("n1"),
        uid: None,
        at: None,
        age: None,
        not_before: None,
        message: "Preempt Scheduled".into(),
    };
    run.list(Kind::Services, Vec::<ServiceObject>::new());
    run.list(Kind::EndpointSlices, Vec::<SliceObject>::new());
    run.observe(Kind::Preemptions, WatchUpdate::ListBegan(Provenance::FirstList));
    run.observe(Kind::Preemptions, WatchUpdate::Object(Object::Preemption(Arc::new(event))));
    run.list(Kind::Nodes, vec![node("n1", &["10.0.0.1"])]);
    let said = run.turn();
    assert!(said.iter().any(|said| matches!(said, Out::Synced)));
    assert!(!said.iter().any(|said| matches!(said, Out::Cached(Kind::Preemptions, _))));
}
