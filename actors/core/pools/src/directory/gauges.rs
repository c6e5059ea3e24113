//! Number of pools with held removals, and of pools that are not manageable, by reason; emitted when they change.

use std::collections::BTreeMap;

use super::Out;
use mechanisms::published::Published;
use model::assignment::HeldReason;
use model::error::ReasonLabel;
use model::sample::Metric;

/// The gauges under which one pool counts.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct GaugeReasons {
    /// The reason why a removal is held back.
    pub(super) held: Option<HeldReason>,
    /// The reason why a removal would be held back if guards were enforced.
    pub(super) would_hold: Option<HeldReason>,
    /// The reason why the pool is not manageable.
    pub(super) refused: Option<ReasonLabel>,
}

/// Number of pools by reason.
pub(super) struct DirectoryGauges {
    held: BTreeMap<HeldReason, Gauge>,
    would_hold: BTreeMap<HeldReason, Gauge>,
    refused: BTreeMap<ReasonLabel, Gauge>,
}

#[derive(Default)]
struct Gauge {
    pools: u64,
    emitted: Published<u64>,
}

impl Gauge {
    fn change(&mut self) -> Option<u64> {
        self.emitted.update(self.pools)
    }
}

impl DirectoryGauges {
    /// Creates gauges at zero; the first opportunity emits them.
    pub(super) fn new() -> DirectoryGauges {
        let all = || HeldReason::ALL.into_iter().map(|reason| (reason, Gauge::default())).collect();
        DirectoryGauges { held: all(), would_hold: all(), refused: BTreeMap::new() }
    }

    /// Moves a pool from its former gauges to the present ones.
    pub(super) fn move_pool(&mut self, before: GaugeReasons, after: GaugeReasons) {
        if let Some(gauge) = before.held.and_then(|reason| self.held.get_mut(&reason)) {
            gauge.pools -= 1;
        }
        if let Some(gauge) = before.would_hold.and_then(|reason| self.would_hold.get_mut(&reason)) {
            gauge.pools -= 1;
        }
        if let Some(gauge) = before.refused.and_then(|label| self.refused.get_mut(&label)) {
            gauge.pools -= 1;
        }
        if let Some(reason) = after.held {
            self.held.entry(reason).or_default().pools += 1;
        }
        if let Some(reason) = after.would_hold {
            self.would_hold.entry(reason).or_default().pools += 1;
        }
        if let Some(label) = after.refused {
            self.refused.entry(label).or_default().pools += 1;
        }
    }

    /// Emits the gauges that changed.
    pub(super) fn emit(&mut self, out: &mut Vec<Out>) {
        for (&reason, gauge) in &mut self.held {
            if let Some(pools) = gauge.change() {
                out.push(Out::Metric(Metric::Held { reason, pools }));
            }
        }
        for (&reason, gauge) in &mut self.would_hold {
            if let Some(pools) = gauge.change() {
                out.push(Out::Metric(Metric::WouldHold { reason, pools }));
            }
        }
        for (&reason, gauge) in &mut self.refused {
            if let Some(pools) = gauge.change() {
                out.push(Out::Metric(Metric::NotManageable { reason, pools }));
            }
        }
    }

    /// Returns the number of pools by reason, for checks of invariants.
    #[cfg(test)]
    pub(super) fn counted(&self) -> (BTreeMap<HeldReason, u64>, BTreeMap<ReasonLabel, u64>) {
        let held = self.held.iter().map(|(reason, gauge)| (*reason, gauge.pools)).collect();
        let refused = self.refused.iter().map(|(label, gauge)| (*label, gauge.pools)).collect();
        (held, refused)
    }
}
