//! Tests that an eviction notice is matched to the right node after a replacement.

use simulator_models::kube::{self, KubeModel, Resource, build};

use super::*;

const NODE: &str = "node-0";

/// Replaces a node after an eviction notice, and returns whether the notice may apply to the replacement.
fn applies_to_replacement(noticed: u64, replaced: u64) -> bool {
    let mut watchdog = Watchdog::new(true, false, 0);
    let mut kube = KubeModel::new(kube::Settings::default());
    let node = |uid| build::with_uid(build::node(NODE, &["10.1.0.4"], &[], false, &[]), uid);
    kube.apply(node("old"), 0).expect("it is a node");
    watchdog.record_nodes(0, &kube);
    watchdog.notices_given(vec![Notice {
        uid: "old".to_owned(),
        at: noticed,
        passes: noticed,
        is_expired: true,
    }]);
    kube.delete(Resource::Nodes, "", NODE, replaced);
    kube.apply(node("new"), replaced).expect("it is a node");
    watchdog.record_nodes(replaced, &kube);
    watchdog.nodes.all["new"].may_be_noticed(replaced, replaced)
}

#[test]
fn n1_a_notice_in_the_creation_second_may_apply_to_the_new_node() {
    assert!(applies_to_replacement(5_052_275, 5_440_867));
    assert!(!applies_to_replacement(4_999_999, 5_440_867), "the notice is older than the new node");
}
