//! The beginning of an attempt: what the pool gives to a granted lane (Q3, W4).

use std::sync::Arc;

use crate::queue::{Attempt, Out, Phase, PoolQueue};
use model::assignment::Assignment;
use model::attempt::MembershipWrite;
use model::ids::AttemptId;
use model::machine::Now;
use model::sample::AttemptEnd;
use model::write_record::Trigger;

impl PoolQueue {
    /// Answers a Take exactly once, in every phase. Answers with nothing if the Take is of another term than the
    /// assignment. After a Take of a newer term, the pool waits for that term's assignment. After one of an older term,
    /// which crossed the assignment on its way, the pool is posted again (W8).
    pub(super) fn on_take(&mut self, now: Now, id: AttemptId, out: &mut Vec<Out>) {
        self.epoch = self.epoch.max(id.epoch);
        if self.assignment.as_ref().is_none_or(|assignment| assignment.epoch != id.epoch) {
            if let Phase::Due(_) = self.phase {
                self.phase = Phase::Open;
            }
            out.push(Out::Taken(self.pool.clone(), id, None));
            return;
        }
        let taken = match &self.phase {
            Phase::Due(due) => {
                let due_since = due.since;
                self.begin(now, id, due_since)
            }
            Phase::Attempting(attempt) if attempt.id == id => self.rejoin(now, out),
            Phase::Retiring(attempt) if attempt.id == id => {
                self.end(now, AttemptEnd::Interrupted, out);
                out.push(Out::Taken(self.pool.clone(), id, None));
                return self.retire(out);
            }
            Phase::Quiet
            | Phase::Open
            | Phase::Attempting(_)
            | Phase::Retiring(_)
            | Phase::Quarantined(_) => None,
        };
        out.push(Out::Taken(self.pool.clone(), id, taken));
    }

    /// Begins the attempt: all waiting changes move into it, including those in a window (Q2, Q3).
    fn begin(&mut self, now: Now, id: AttemptId, due_since: Now) -> Option<MembershipWrite> {
        let assignment = Arc::clone(self.assignment.as_ref()?);
        let trigger = self.trigger();
        self.attempt_requested = false;
        let changes = self.waiting.take();
        let taken = self.taken(now, &assignment, trigger);
        self.phase = Phase::Attempting(Attempt { id, began: now, due_since, changes, assignment, trigger });
        Some(taken)
    }

    /// Returns the trigger of an attempt that begins now.
    fn trigger(&self) -> Trigger {
        // A rewrite requests an attempt as an operator does.
        if self.rewrite_requested {
            Trigger::ProvisioningFailed
        } else if self.attempt_requested {
            Trigger::OperatorRequest
        } else if self.waiting.changes.any_of_a_service() {
            Trigger::Endpoints
        } else {
            Trigger::Comparison
        }
    }

    /// Answers a new grant for the running attempt (W4): with the newest level, or with nothing, which ends it
    /// silently.
    fn rejoin(&mut self, now: Now, out: &mut Vec<Out>) -> Option<MembershipWrite> {
        let Phase::Attempting(attempt) = &mut self.phase else {
            return None;
        };
        let newest = Arc::clone(self.assignment.as_ref()?);
        if newest.is_paused() {
            self.waiting.put_back(std::mem::take(&mut attempt.changes));
            self.phase = Phase::Quiet;
            self.interrupted(now, out);
            return None;
        }
        attempt.changes.join(self.waiting.take());
        attempt.assignment = Arc::clone(&newest);
        let trigger = attempt.trigger;
        Some(self.taken(now, &newest, trigger))
    }

    /// Returns the write for the lane: the level, extended by the members that are left alone during a back-off from
    /// contention (W11).
    fn taken(&self, now: Now, assignment: &Assignment, trigger: Trigger) -> MembershipWrite {
        let services = assignment.services.iter();
        MembershipWrite {
            level: self
                .contention
                .relaxed(now, &assignment.level)
                .unwrap_or_else(|| assignment.level.clone()),
            family: assignment.family,
            services: services.map(|(uid, share)| (uid.clone(), share.key.clone())).collect(),
            rewrites: self.rewrite_requested && assignment.held.is_none(),
            trigger,
        }
    }
}
