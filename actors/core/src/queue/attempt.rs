//! The beginning of an attempt: what a granted lane gets (Q3, W4).

use std::sync::Arc;

use crate::assignment::Assignment;
use crate::ids::AttemptId;
use crate::machine::Now;
use crate::queue::{Attempt, Out, Phase, PoolQueue, Taken};
use crate::sample::AttemptEnd;

impl PoolQueue {
    /// Answers a Take, exactly once, in every phase.
    pub(super) fn on_take(&mut self, now: Now, id: AttemptId, out: &mut Vec<Out>) {
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
            Phase::Quiet | Phase::Open | Phase::Attempting(_) | Phase::Retiring(_) => None,
        };
        out.push(Out::Taken(self.pool.clone(), id, taken));
    }

    /// The attempt begins: all waiting changes move into it, those in a window too (Q2, Q3).
    fn begin(&mut self, now: Now, id: AttemptId, due_since: Now) -> Option<Taken> {
        let assignment = Arc::clone(self.assignment.as_ref()?);
        let changes = self.waiting.take();
        let taken = taken(&assignment);
        self.phase = Phase::Attempting(Attempt { id, began: now, due_since, changes, assignment });
        Some(taken)
    }

    /// A new grant for the running attempt (W4): the newest level, or nothing, which ends it silently.
    fn rejoin(&mut self, now: Now, out: &mut Vec<Out>) -> Option<Taken> {
        let Phase::Attempting(attempt) = &mut self.phase else {
            return None;
        };
        let newest = Arc::clone(self.assignment.as_ref()?);
        if newest.paused {
            self.waiting.put_back(std::mem::take(&mut attempt.changes));
            self.phase = Phase::Quiet;
            self.interrupted(now, out);
            return None;
        }
        attempt.changes.join(self.waiting.take());
        let taken = taken(&newest);
        attempt.assignment = newest;
        Some(taken)
    }
}

fn taken(assignment: &Assignment) -> Taken {
    Taken {
        level: assignment.level.clone(),
        family: assignment.family,
        services: assignment.services.iter().map(|(uid, share)| (uid.clone(), share.key.clone())).collect(),
    }
}
