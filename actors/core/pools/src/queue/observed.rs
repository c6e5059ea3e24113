//! Observations of the pool from outside its attempts, and what a difference to its level means (D3, Q8, W2).

use crate::queue::changes::ChangeOwner;
use crate::queue::last_result::{LastResult, LeftDifference};
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
            || self.observed.as_ref().is_some_and(|observed| began < observed.seen);
        if self.in_flight() || outdated {
            return;
        }
        let observed = ObservedPool::observed(facts, began);
        self.losses.last_write_lost &=
            self.assignment.as_ref().is_none_or(|one| !observed.is_in_sync(&one.level));
        self.observed = Some(observed);
        self.status_view.dirty = true;
        self.compare(now, out);
    }

    /// Compares a quiet pool with its level. A difference becomes a fresh change, or waits according to the last
    /// result.
    pub(super) fn compare(&mut self, now: Now, out: &mut Vec<Out>) {
        let (Some(assignment), Some(observed)) = (&self.assignment, &self.observed) else {
            return;
        };
        if self.in_flight() || !self.waiting.changes.is_empty() || observed.is_in_sync(&assignment.level) {
            return;
        }
        let fresh = match &self.last_result {
            LastResult::Unknown => true,
            LastResult::InSync => self.on_drift(now, out),
            LastResult::LeftAlone(left) if left.members != observed.members => self.on_drift(now, out),
            LastResult::LeftAlone(left) => left.until.is_some_and(|at| at <= now),
            LastResult::Failed(failed) => failed.compare_at.is_some_and(|at| at <= now),
            LastResult::Backoff(backoff) => observed.certain && backoff.until <= now,
            LastResult::NotFound => false,
            LastResult::Withheld { members } => *members != observed.members,
        };
        if fresh {
            self.waiting.add(ChangeOwner::Pool, now);
            self.status_view.dirty = true;
        }
    }

    /// Handles a change by another client: always reports it, and corrects it as the parameters and W11 allow. Returns
    /// whether that is at once.
    fn on_drift(&mut self, now: Now, out: &mut Vec<Out>) -> bool {
        let (Some(assignment), Some(observed)) = (&self.assignment, &self.observed) else {
            return false;
        };
        out.push(Out::Metric(Metric::Drift));
        let until = match (self.params.drift, self.params.contention_backoff) {
            (false, _) => None,
            (true, false) => Some(now),
            (true, true) => Some(self.contention.record_drift(&assignment.level, &observed.members)),
        };
        if until.is_some_and(|at| at <= now) {
            self.last_result = LastResult::Unknown;
            return true;
        }
        self.last_result = LastResult::LeftAlone(LeftDifference { members: observed.members.clone(), until });
        self.status_view.dirty = true;
        false
    }

    pub(super) fn on_verified(&mut self, now: Now, verdict: WriteFate, out: &mut Vec<Out>) {
        let (WriteFate::Persisted(attempt)
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
            WriteFate::Persisted(_) => self.losses.last_write_lost = false,
            WriteFate::Lost { facts, began, .. } => {
                out.push(Out::Metric(Metric::LostWrite));
                self.written = None;
                self.losses.total += 1;
                self.losses.last_write_lost = true;
                let delay = self.losses.repeats.count(now).filter(|_| self.params.contention_backoff);
                self.status_view.dirty = true;
                let what = EventKind::WritesLost {
                    pool: self.pool.clone(),
                    writes: self.losses.total,
                    left_for: delay,
                };
                self.report([&ChangeOwner::Pool].into_iter(), what, out);
                // The write never took effect, so the difference is no drift.
                if self.last_result.is_known() {
                    self.last_result = delay.map_or(LastResult::Unknown, |delay| {
                        LastResult::LeftAlone(LeftDifference {
                            members: facts.members(),
                            until: Some(now.plus(delay)),
                        })
                    });
                }
                self.on_observed(now, &facts, began, out);
            }
            WriteFate::Overwritten { facts, began, .. } => self.on_observed(now, &facts, began, out),
        }
    }
}
