//! The conditions that a pool has reported, and when each of them ends (E1). Until then the event emitter posts the
//! newest report of each again, until the API server accepts it.

use std::collections::BTreeSet;

use crate::queue::{Out, Phase, PoolQueue};
use model::ids::{ServiceKey, ServiceUid};
use model::machine::Now;
use model::report::{Condition, Ended, Subject};

/// The reported conditions that hold, with the Services that got the report.
#[derive(Default, Debug)]
pub(super) struct ReportedConditions {
    conditions: BTreeSet<Condition>,
    services: BTreeSet<(ServiceUid, ServiceKey)>,
}

impl PoolQueue {
    /// Adds the conditions reported in `out` since `from`, and emits which have ended: for all Services, or for those
    /// that the pool no longer has.
    pub(super) fn end_conditions(&mut self, now: Now, from: usize, out: &mut Vec<Out>) {
        for said in out.iter().skip(from) {
            if let Out::Report(report) = said {
                self.reported.conditions.extend(report.what.condition());
            }
        }
        if self.reported.conditions.is_empty() {
            return;
        }
        let (hold, over): (BTreeSet<Condition>, BTreeSet<Condition>) =
            std::mem::take(&mut self.reported.conditions)
                .into_iter()
                .partition(|condition| self.holds(now, condition));
        out.extend(over.into_iter().map(|condition| Out::Ended(Ended::of(condition))));
        let services = self.assignment.iter().flat_map(|assignment| &assignment.services);
        let services: BTreeSet<(ServiceUid, ServiceKey)> =
            services.map(|(uid, share)| (uid.clone(), share.key.clone())).collect();
        for (uid, key) in self.reported.services.difference(&services) {
            let ended = |condition: &Condition| {
                let subject = Some(Subject::of(uid, key));
                Out::Ended(Ended { condition: condition.clone(), subject })
            };
            out.extend(hold.iter().map(ended));
        }
        self.reported = ReportedConditions { conditions: hold, services };
    }

    /// Ends all conditions, because the pool has no owner.
    pub(super) fn end_all_conditions(&mut self, out: &mut Vec<Out>) {
        let conditions = std::mem::take(&mut self.reported).conditions;
        out.extend(conditions.into_iter().map(|condition| Out::Ended(Ended::of(condition))));
    }

    /// Returns whether a condition of the pool holds. During a pause none is reported (G6).
    pub(super) fn holds(&self, now: Now, condition: &Condition) -> bool {
        self.may_report()
            && match condition {
                Condition::Failed(_) => self.last_result.failed().is_some(),
                Condition::NotManageable { .. } => !self.reported_reasons.is_empty(),
                Condition::WritesLost(_) => self.losses.last_write_lost,
                Condition::Contested(_) => now < self.contention.backoff_until(),
                Condition::Quarantined(_) => matches!(self.phase, Phase::Quarantined(_)),
                Condition::Shared(_)
                | Condition::RemovalHeld(_)
                | Condition::RemovalsStopped
                | Condition::Blocked(..)
                | Condition::LeaseHeld
                | Condition::SourcesFailing(_)
                | Condition::DataError
                | Condition::Undecodable(..)
                | Condition::AdminFailed
                | Condition::AdminHeld
                | Condition::AdminForeign => false,
            }
    }
}
