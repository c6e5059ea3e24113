//! Observations of the pool from outside its attempts, and what a difference to its level means (D3, Q8, W2).

use crate::queue::changes::Owner;
use crate::queue::last_result::{LastResult, Left};
use crate::queue::observed_pool::ObservedPool;
use crate::queue::{Out, PoolQueue};
use model::arm::PoolFacts;
use model::assignment::PoolMembers;
use model::attempt::WriteFate;
use model::machine::Now;
use model::report::EventKind;
use model::sample::Metric;

impl PoolQueue {
    pub(super) fn on_observed(&mut self, now: Now, facts: &PoolFacts, began: Now, out: &mut Vec<Out>) {
        let outdated = self.ended.is_some_and(|ended| began < ended)
            || self.assignment.as_ref().is_some_and(|assignment| began < assignment.opened)
            || self.content.as_ref().is_some_and(|content| began < content.seen);
        if self.in_flight() || outdated {
            return;
        }
        let content = ObservedPool::observed(facts, began);
        self.losses.stand &= self.assignment.as_ref().is_none_or(|one| !content.is_right(&one.level));
        self.content = Some(content);
        self.shown.dirty = true;
        self.compare(now, out);
    }

    /// Compares a quiet pool with its level. A difference becomes a fresh change, or waits according to the last
    /// result.
    pub(super) fn compare(&mut self, now: Now, out: &mut Vec<Out>) {
        let (Some(assignment), Some(content)) = (&self.assignment, &self.content) else {
            return;
        };
        if self.in_flight() || !self.waiting.changes.is_empty() || content.is_right(&assignment.level) {
            return;
        }
        let fresh = match &self.rest {
            LastResult::Unknown => true,
            LastResult::Right => self.on_drift(now, out),
            LastResult::Left(left) if left.members != content.members => self.on_drift(now, out),
            LastResult::Left(left) => left.until.is_some_and(|at| at <= now),
            LastResult::Failed(failed) => failed.compare_at.is_some_and(|at| at <= now),
            LastResult::Backoff(backoff) => content.certain && backoff.until <= now,
            LastResult::Gone => false,
            LastResult::Withheld { members } => *members != content.members,
        };
        if fresh {
            self.waiting.add(Owner::Pool, now);
            self.shown.dirty = true;
        }
    }

    /// Handles a change by another client: always reports it, and corrects it as the parameters and W11 allow. Returns
    /// whether that is at once.
    fn on_drift(&mut self, now: Now, out: &mut Vec<Out>) -> bool {
        let (Some(assignment), Some(content)) = (&self.assignment, &self.content) else {
            return false;
        };
        out.push(Out::Metric(Metric::Drift));
        let until = match (self.params.drift, self.params.fights) {
            (false, _) => None,
            (true, false) => Some(now),
            (true, true) => Some(self.fights.found(&assignment.level, &content.members)),
        };
        if until.is_some_and(|at| at <= now) {
            self.rest = LastResult::Unknown;
            return true;
        }
        self.rest = LastResult::Left(Left { members: content.members.clone(), until });
        self.shown.dirty = true;
        false
    }

    pub(super) fn on_verified(&mut self, now: Now, verdict: WriteFate, out: &mut Vec<Out>) {
        let (WriteFate::Held(attempt)
        | WriteFate::Lost { attempt, .. }
        | WriteFate::Overwritten { attempt, .. }) = verdict;
        if self.written != Some(attempt) {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
            return;
        }
        if let WriteFate::Lost { facts, began, .. } | WriteFate::Overwritten { facts, began, .. } = &verdict {
            let members = PoolMembers { at: *began, members: facts.members() };
            out.push(Out::Members(self.pool.clone(), members));
        }
        match verdict {
            WriteFate::Held(_) => self.losses.stand = false,
            WriteFate::Lost { facts, began, .. } => {
                out.push(Out::Metric(Metric::LostWrite));
                self.written = None;
                self.losses.total += 1;
                self.losses.stand = true;
                let delay = self.losses.repeats.count(now).filter(|_| self.params.fights);
                self.shown.dirty = true;
                let what = EventKind::WritesLost {
                    pool: self.pool.clone(),
                    writes: self.losses.total,
                    left_for: delay,
                };
                self.report([&Owner::Pool].into_iter(), what, out);
                // The write never took effect, so the difference is no drift.
                if self.rest.is_known() {
                    self.rest = delay.map_or(LastResult::Unknown, |delay| {
                        LastResult::Left(Left { members: facts.members(), until: Some(now.plus(delay)) })
                    });
                }
                self.on_observed(now, &facts, began, out);
            }
            WriteFate::Overwritten { facts, began, .. } => self.on_observed(now, &facts, began, out),
        }
    }
}
