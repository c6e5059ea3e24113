//! What the admin state is told of nodes.

use super::*;
use crate::informer::NodeFact;

fn told(out: &[Out]) -> Vec<(NodeName, Option<Arc<NodeFact>>)> {
    let told = |said: &Out| match said {
        Out::Node(name, fact) => Some((name.clone(), fact.clone())),
        Out::Service(..)
        | Out::Synced
        | Out::Confirmed(_)
        | Out::Reread(_)
        | Out::AwaitingIngress(_)
        | Out::Cached(..)
        | Out::Relist(..)
        | Out::Report(_)
        | Out::Sample(_) => None,
    };
    out.iter().filter_map(told).collect()
}

fn tainted(node: &NodeObject, key: &str) -> NodeObject {
    let taint = Taint { key: key.into(), value: "".into(), effect: "NoExecute".into() };
    NodeObject { taints: vec![taint], ..node.clone() }
}

#[test]
fn n1_a_taint_is_told_in_the_turn_in_which_it_comes() {
    let mut run = Run::synced(Vec::new(), Vec::new());
    let plain = node("n1", &["10.0.0.1", "fd00::1"]);
    run.put(plain.clone());
    run.turn();
    run.put(tainted(&plain, "node.kubernetes.io/out-of-service"));
    let [(name, Some(fact))] = &told(&run.turn())[..] else { panic!("one node") };
    assert_eq!((name, &fact.name, &fact.uid), (&plain.name, &plain.name, &plain.uid));
    assert_eq!((fact.ips.len(), fact.taints.len(), fact.left_out), (2, 1, false));
    run.put(tainted(&plain, "node.kubernetes.io/out-of-service"));
    assert!(told(&run.turn()).is_empty(), "what has changed otherwise is nothing new");
    run.gone(node_key("n1"));
    assert_eq!(told(&run.turn()), [(plain.name, None)]);
}

#[test]
fn n2_a_node_that_is_created_again_between_two_turns_is_told_as_what_it_is_then() {
    let mut run = Run::synced(Vec::new(), Vec::new());
    run.gone(node_key("n2"));
    run.put(NodeObject { uid: NodeUid::new("another"), ..node("n2", &["10.0.0.2"]) });
    let [(_, Some(fact))] = &told(&run.turn())[..] else { panic!("one node") };
    assert_eq!(fact.uid, NodeUid::new("another"));
}

#[test]
fn w8_nodes_are_told_before_the_lists_that_hold_them_are_said_to_be_in() {
    let mut run = Run::of(params());
    run.list(Kind::Services, Vec::<ServiceObject>::new());
    run.list(Kind::EndpointSlices, Vec::<SliceObject>::new());
    run.list(Kind::Nodes, vec![node("n1", &["10.0.0.1"])]);
    let said = run.turn();
    let place = |what: fn(&Out) -> bool| said.iter().position(what).expect("said");
    assert!(place(|said| matches!(said, Out::Node(..))) < place(|said| matches!(said, Out::Synced)));
}
