//! The metrics of the AdminState machine and their samples (E2).

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge};
use model::node::NodeState;
use model::sample::TaintResult;
use model::sample::WorkResult;
use model::signals::Signal;

use super::{
    ADMIN_NODES, ADMIN_OLDEST, ADMIN_RECORDS, DOWN_ENTRIES, DRAIN_DURATION, DRAINING_NODES, RECONCILE_QUEUE,
    RECONCILED, TAINT_PATCHES, as_f64,
};

/// Name of the controller in the work queue's metrics.
const CONTROLLER: &str = "admin_state";

/// Describes the metrics.
pub(super) fn describe() {
    describe_gauge!(ADMIN_NODES, Unit::Count, "Nodes that leave service or return to it, by state.");
    describe_gauge!(DRAINING_NODES, Unit::Count, "Nodes that leave service, by reason.");
    describe_gauge!(DOWN_ENTRIES, Unit::Count, "Address entries that are Down, by the client that set them.");
    describe_gauge!(
        ADMIN_OLDEST,
        Unit::Seconds,
        "Time that the oldest unfinished node has waited; 0 when all are finished."
    );
    describe_histogram!(
        DRAIN_DURATION,
        Unit::Seconds,
        "From the signal that a node leaves service to the end of the last operation for it."
    );
    describe_counter!(RECONCILED, Unit::Count, "Work on nodes, by result.");
    describe_gauge!(RECONCILE_QUEUE, Unit::Count, "Nodes in the work queue that wait for a retry.");
    describe_counter!(TAINT_PATCHES, Unit::Count, "Patches of nodes' taints, by result.");
    describe_gauge!(ADMIN_RECORDS, Unit::Count, "Records of nodes in the controller's ConfigMap, by state.");
}

/// Creates all series, at zero.
pub(super) fn create_series() {
    for state in NodeState::ALL {
        nodes(state, 0);
    }
    for signal in Signal::ALL {
        draining(signal, 0);
    }
    for foreign in [false, true] {
        down_entries(foreign, 0);
    }
    oldest(None);
    for kind in WorkResult::ALL {
        counter!(RECONCILED, "controller" => CONTROLLER, "result" => kind.as_str()).absolute(0);
    }
    queue(0);
    for result in TaintResult::ALL {
        counter!(TAINT_PATCHES, "result" => result.as_str()).absolute(0);
    }
    records(0, 0, 0);
}

/// Returns the request of an attempt to set admin states, by S1's name.
pub(super) fn request_of(down: bool) -> &'static str {
    if down { "loadbalancer_adminstate_down" } else { "loadbalancer_adminstate_none" }
}

pub(super) fn nodes(state: NodeState, nodes: u64) {
    gauge!(ADMIN_NODES, "state" => state.as_str()).set(as_f64(nodes));
}

pub(super) fn draining(signal: Signal, nodes: u64) {
    gauge!(DRAINING_NODES, "reason" => signal.as_str()).set(as_f64(nodes));
}

pub(super) fn down_entries(foreign: bool, entries: u64) {
    let set_by = if foreign { "other" } else { "controller" };
    gauge!(DOWN_ENTRIES, "set_by" => set_by).set(as_f64(entries));
}

pub(super) fn oldest(waited: Option<Duration>) {
    gauge!(ADMIN_OLDEST).set(waited.unwrap_or_default().as_secs_f64());
}

pub(super) fn reconciled(result: WorkResult) {
    counter!(RECONCILED, "controller" => CONTROLLER, "result" => result.as_str()).increment(1);
}

pub(super) fn queue(nodes: u64) {
    gauge!(RECONCILE_QUEUE).set(as_f64(nodes));
}

pub(super) fn taint_patch(result: TaintResult) {
    counter!(TAINT_PATCHES, "result" => result.as_str()).increment(1);
}

pub(super) fn records(kept: u64, unreadable: u64, refused: u64) {
    for (state, records) in [("kept", kept), ("unreadable", unreadable), ("refused", refused)] {
        gauge!(ADMIN_RECORDS, "state" => state).set(as_f64(records));
    }
}
