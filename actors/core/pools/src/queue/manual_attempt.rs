//! An attempt that the operator requests: it waits for no window and no interval, and it reads a pool that is in sync
//! once more (docs/design/pools.md, Q5; H3).

use crate::queue::changes::ChangeOwner;
use crate::queue::{Out, Phase, PoolQueue};
use model::machine::Now;
use model::operator_request::{Answer, Done, Refusal, RequestId};

impl PoolQueue {
    /// Decides about the request, and answers it.
    pub(super) fn on_attempt_requested(&mut self, now: Now, id: RequestId, out: &mut Vec<Out>) {
        let answer = match self.refusal(now) {
            Some(refusal) => Answer::Refused(refusal),
            None => {
                if !self.in_flight() {
                    if self.waiting.changes.is_empty() {
                        self.waiting.add(ChangeOwner::Pool, now);
                    }
                    self.attempt_requested = true;
                    self.status_view.dirty = true;
                }
                Answer::Done(Done::Attempting)
            }
        };
        out.push(Out::Answer(id, answer));
    }

    /// Returns why the request is refused; `None`: it is not.
    fn refusal(&self, now: Now) -> Option<Refusal> {
        match &self.phase {
            Phase::Quarantined(quarantine) => return Some(Refusal::Failed(quarantine.broken.into())),
            Phase::Retiring(_) => return Some(Refusal::Unknown),
            Phase::Quiet | Phase::Open | Phase::Due(_) | Phase::Attempting(_) => {}
        }
        let Some(assignment) = self.assignment.as_ref().filter(|one| !one.services.is_empty()) else {
            return Some(Refusal::Unknown);
        };
        if let Some(by) = assignment.paused.first() {
            return Some(Refusal::Paused(by.clone()));
        }
        // A level of an older term is never written.
        if assignment.epoch < self.epoch {
            return Some(Refusal::NotLeading);
        }
        let eligible = self.waiting.changes.eligible_at().filter(|at| *at > now && !self.in_flight());
        eligible.map(Refusal::NotBefore)
    }
}
