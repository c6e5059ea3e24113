//! The metrics of the admin state, emitted when they change (docs/design/reporting.md, E2).

use std::collections::BTreeMap;
use std::time::Duration;

use super::ReportInput;
use super::foreign::ForeignStates;
use crate::Out;
use crate::nodes::NodeStatus;
use mechanisms::work_queue::{Results, WorkQueue};
use model::ids::NodeUid;
use model::machine::Now;
use model::node::NodeState;
use model::sample::Metric;
use model::sample::WorkResult;
use model::signals::Signal;

/// The last emitted values. At first, every series is zero.
#[derive(Debug, Default)]
pub(super) struct NodeGauges {
    states: BTreeMap<NodeState, u64>,
    signals: BTreeMap<Signal, u64>,
    /// Downs that are ours, and others.
    downs: [u64; 2],
    /// In whole seconds.
    oldest: Option<u64>,
    queue: u64,
    /// Stored, unreadable and refused records.
    records: [u64; 3],
    results: Results,
}

impl NodeGauges {
    /// Emits the results of work since the last time (S4).
    pub(super) fn emit_results(&mut self, queue: &WorkQueue<NodeUid>, out: &mut Vec<Out>) {
        let now = queue.results();
        if now == self.results {
            return;
        }
        let before = std::mem::replace(&mut self.results, now);
        for kind in WorkResult::ALL {
            let times = of_kind(&now, kind).saturating_sub(of_kind(&before, kind));
            out.extend((0..times).map(|_| Out::Metric(Metric::Reconciled(kind))));
        }
    }

    /// Emits the number of nodes in each state.
    pub(super) fn emit_nodes(
        &mut self,
        now: Now,
        statuses: &[NodeStatus<'_>],
        input: &ReportInput<'_>,
        out: &mut Vec<Out>,
    ) {
        for state in NodeState::ALL {
            let nodes = count(statuses.iter().filter(|status| status.state == state).count());
            if self.states.insert(state, nodes).unwrap_or_default() != nodes {
                out.push(Out::Metric(Metric::AdminNodes { state, nodes }));
            }
        }
        for signal in Signal::ALL {
            let nodes = count(statuses.iter().filter(|status| status.signals.contains(&signal)).count());
            if self.signals.insert(signal, nodes).unwrap_or_default() != nodes {
                out.push(Out::Metric(Metric::DrainingNodes { signal, nodes }));
            }
        }
        let oldest = statuses.iter().filter_map(waits_since).min().map(|since| now.since(since).as_secs());
        if oldest != self.oldest {
            self.oldest = oldest;
            out.push(Out::Metric(Metric::AdminOldest(oldest.map(Duration::from_secs))));
        }
        let queue = count(statuses.iter().filter(|status| input.queue.requeues(status.uid) > 0).count());
        if queue != self.queue {
            self.queue = queue;
            out.push(Out::Metric(Metric::ReconcileQueue(queue)));
        }
        let kept = &input.records;
        let records = [count(kept.count), count(kept.unreadable.len()), count(kept.refused.len())];
        if records != self.records {
            self.records = records;
            let [kept, unreadable, refused] = records;
            out.push(Out::Metric(Metric::AdminRecords { kept, unreadable, refused }));
        }
    }

    /// Emits the number of Down entries.
    pub(super) fn emit_entries(&mut self, found: &ForeignStates, out: &mut Vec<Out>) {
        let downs = [found.ours, found.downs];
        for (foreign, at) in [(false, 0), (true, 1)] {
            if self.downs[at] != downs[at] {
                out.push(Out::Metric(Metric::DownEntries { foreign, entries: downs[at] }));
            }
        }
        self.downs = downs;
    }
}

/// Returns the time since which a node waits for our work. Held nodes have a count of their own, and deleted nodes
/// wait for others.
fn waits_since(status: &NodeStatus<'_>) -> Option<Now> {
    match status.state {
        NodeState::Recording | NodeState::Draining | NodeState::Restoring => status.since,
        NodeState::Held | NodeState::Down | NodeState::Gone => None,
    }
}

fn of_kind(results: &Results, kind: WorkResult) -> u64 {
    match kind {
        WorkResult::Success => results.success,
        WorkResult::Error => results.error,
        WorkResult::Requeue => results.requeue,
        WorkResult::RequeueAfter => results.requeue_after,
    }
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
