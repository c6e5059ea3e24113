//! Log lines about draining nodes and their records.

use model::ids::NodeName;
use model::view::{AdminView, NodePoolState, NodeView, Snapshot};
use nodes::IgnoredNotice;

use crate::kubernetes::NamespacedName;

/// Logs changes in the state of nodes, and what blocks their records (N4).
pub(super) fn log(config_map: &NamespacedName, before: &Snapshot, after: &Snapshot) {
    log_nodes(before, after);
    if let Some(now) = &after.admin_state {
        log_records(config_map, before.admin_state.as_deref(), now);
    }
}

/// Logs an eviction notice that has no effect.
pub(super) fn log_ignored(node: &NodeName, reason: IgnoredNotice) {
    match reason {
        IgnoredNotice::Old(ago) => {
            let overdue_s = ago.as_secs();
            tracing::info!(%node, overdue_s, "ignored an eviction notice: it is overdue and the node is Ready");
        }
        IgnoredNotice::Undated => {
            tracing::info!(%node, "ignored an eviction notice: it has no time and the node is Ready");
        }
        IgnoredNotice::UnknownNode => {
            let remedy = "check that the sender puts the Node's name and UID into involvedObject";
            tracing::warn!(%node, remedy, "ignored an eviction notice: there is no such node");
        }
    }
}

fn log_nodes(before: &Snapshot, after: &Snapshot) {
    for (name, node) in &after.nodes {
        if before.nodes.get(name).is_some_and(|was| was.uid == node.uid && was.state == node.state) {
            continue;
        }
        let NodeView { uid, state, signals, pools, last_error, .. } = &**node;
        let reasons: Vec<&str> = signals.iter().map(|signal| signal.as_str()).collect();
        let (state, down, last_error) =
            (state.as_str(), node.count(NodePoolState::Down), last_error.as_deref());
        tracing::info!(node = %name, %uid, state, ?reasons, pools = pools.len(), down, last_error, "admin state");
    }
    for (name, was) in before.nodes.iter().filter(|(name, _)| !after.nodes.contains_key(*name)) {
        tracing::info!(node = %name, uid = %was.uid, state = "none", was = was.state.as_str(), "admin state");
    }
}

fn log_records(config_map: &NamespacedName, was: Option<&AdminView>, now: &AdminView) {
    if was.is_some_and(|was| was.switched_off) != now.switched_off {
        tracing::info!(off = now.switched_off, "the ConfigMap switched the admin state off or on");
    }
    for (key, reason) in &now.unreadable {
        if was.is_none_or(|was| was.unreadable.get(key) != Some(reason)) {
            let effect = "the Down entries of its node stay, and the node is not taken out of traffic again";
            let remedy = "correct or remove this key of the ConfigMap";
            tracing::warn!(%config_map, %key, reason, effect, remedy, "failed to read a node record");
        }
    }
    if let Some(reason) = &now.last_error
        && was.is_none_or(|was| was.last_error.is_none())
    {
        let records = now.records;
        let effect = "until the write succeeds, no further node is taken out of traffic";
        let remedy = "for HTTP 401 or 403, let the service account get, create and update this ConfigMap; otherwise \
                      check that the API server is reachable";
        tracing::warn!(%config_map, %reason, records, effect, remedy, "failed to write node records");
    }
}
