//! Tests of which notices may be about a node.

use simulator_models::kube::{self, KubeModel, Resource, build};

use super::*;

const NODE: &str = "node-0";

/// Gives a notice about a node, replaces the node, and returns whether the notice may count for its successor.
fn counts_for_successor(given: u64, replaced: u64) -> bool {
    let mut watchdog = Watchdog::new(true, false, 0);
    let mut kube = KubeModel::new(kube::Settings::default());
    let node = |uid| build::with_uid(build::node(NODE, &["10.1.0.4"], &[], false, &[]), uid);
    kube.apply(node("old"), 0).expect("it is a node");
    watchdog.record_nodes(0, &kube);
    watchdog.notices_given(vec![Notice {
        uid: "old".to_owned(),
        at: given,
        passes: given,
        is_expired: true,
    }]);
    kube.delete(Resource::Nodes, "", NODE, replaced);
    kube.apply(node("new"), replaced).expect("it is a node");
    watchdog.record_nodes(replaced, &kube);
    watchdog.nodes.all["new"].may_be_noticed(replaced, replaced)
}

#[test]
fn n1_a_notice_of_the_second_of_creation_may_be_about_the_new_node() {
    assert!(counts_for_successor(5_052_275, 5_440_867));
    assert!(!counts_for_successor(4_999_999, 5_440_867), "its time is before the time of creation");
}
