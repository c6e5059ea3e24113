//! Publishes the writer's views and metrics: gates at once, lanes and totals at most four times a second (E2, H3).

use std::collections::BTreeSet;
use std::time::Duration;

use model::ids::LbName;
use model::machine::{Now, earliest};
use model::sample::{GateClass, Metric};
use model::view::{GateView, LaneView};

use super::{Out, Writer};

/// Shortest interval between two updates of the lanes.
const PACE: Duration = Duration::from_millis(250);

/// Smallest published change of a budget's share or capacity.
const VISIBLE_SHARE: f64 = 0.01;

/// The last published state, and the changes since.
#[derive(Clone, Debug, Default)]
pub(super) struct WriterStatus {
    changed: BTreeSet<LbName>,
    /// Earliest time of the next update.
    next: Now,
    lanes: (usize, usize),
    reads: ShownGate,
    writes: ShownGate,
}

/// The last published state of a class.
#[derive(Clone, Copy, Debug, Default)]
struct ShownGate {
    closed_until: Option<Now>,
    share: Option<f64>,
    capacity: f64,
    is_short: bool,
}

impl WriterStatus {
    /// Marks a lane as changed.
    pub(super) fn lane_changed(&mut self, lb: &LbName) {
        if !self.changed.contains(lb) {
            self.changed.insert(lb.clone());
        }
    }

    /// Returns the time of the next update: for changed lanes, or a gate that opens.
    pub(super) fn deadline(&self) -> Option<Now> {
        let lanes = (!self.changed.is_empty()).then_some(self.next);
        earliest(lanes, earliest(self.reads.closed_until, self.writes.closed_until))
    }

    fn gate(&mut self, class: GateClass) -> &mut ShownGate {
        match class {
            GateClass::Reads => &mut self.reads,
            GateClass::Writes => &mut self.writes,
        }
    }
}

impl Writer {
    /// Publishes what has changed.
    pub(super) fn publish(&mut self, now: Now, out: &mut Vec<Out>) {
        self.publish_gates(now, out);
        if self.status.changed.is_empty() || now < self.status.next {
            return;
        }
        self.status.next = now.plus(PACE);
        for lb in std::mem::take(&mut self.status.changed) {
            let view = self.lanes.get(&lb).map(|lane| lane.view(&lb, now, self.breaker.fault(&lb)));
            let idle =
                || LaneView { lb: lb.clone(), writing: None, waiting: Vec::new(), closed: None, fault: None };
            out.push(Out::Lane(view.unwrap_or_else(idle)));
        }
        let lanes = (self.busy, self.waiting);
        if self.status.lanes != lanes {
            self.status.lanes = lanes;
            let (busy, waiting) = (count(lanes.0), count(lanes.1));
            out.push(Out::Metric(Metric::Lanes { busy, waiting }));
        }
    }

    fn publish_gates(&mut self, now: Now, out: &mut Vec<Out>) {
        let mut etag_changes = false;
        for class in GateClass::ALL {
            let closed_until = self.gates.closed(now, class);
            let (tokens, capacity) = self.budget.shown(now, class);
            let short = self.budget.blocked(now, class);
            let share = if capacity > 0.0 { tokens / capacity } else { 0.0 };
            let shown = self.status.gate(class);
            let gate_moved = shown.closed_until != closed_until;
            let share_moved = shown.share.is_none_or(|before| (before - share).abs() >= VISIBLE_SHARE);
            if gate_moved && shown.closed_until.is_some() != closed_until.is_some() {
                out.push(Out::Metric(Metric::Gate { class, closed: closed_until.is_some() }));
            }
            shown.closed_until = closed_until;
            if share_moved {
                shown.share = Some(share);
                out.push(Out::Metric(Metric::BudgetLeft { class, share }));
            }
            let capacity_moved = (shown.capacity - capacity).abs() > shown.capacity * VISIBLE_SHARE;
            let short_moved = shown.is_short != short.is_some();
            if gate_moved || share_moved || capacity_moved || short_moved {
                (shown.capacity, shown.is_short) = (capacity, short.is_some());
                let blocked = self.gates.blocked(now, class).or(short);
                out.push(Out::Gate(class, GateView { blocked, tokens, capacity }));
            }
            etag_changes |= gate_moved;
        }
        if etag_changes {
            let reads_until = self.status.reads.closed_until;
            let writes_until = self.status.writes.closed_until;
            out.push(Out::Gates { reads_until, writes_until });
        }
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
