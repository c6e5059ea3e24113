//! What is seen of the pool from outside its attempts, and what a difference to its level means (D3, Q8, W2).

use crate::arm::PoolFacts;
use crate::machine::Now;
use crate::queue::changes::Owner;
use crate::queue::content::Content;
use crate::queue::rest::Rest;
use crate::queue::{Out, PoolQueue, Verdict};
use crate::sample::Sample;

impl PoolQueue {
    pub(super) fn on_observed(&mut self, now: Now, facts: &PoolFacts, began: Now, out: &mut Vec<Out>) {
        let outdated = self.ended.is_some_and(|ended| began < ended)
            || self.content.as_ref().is_some_and(|content| began < content.seen);
        if self.in_flight() || outdated {
            return;
        }
        self.content = Some(Content::observed(facts, began));
        self.shown.dirty = true;
        self.compare(now, out);
    }

    /// Looks whether a pool at rest is right. A difference becomes a fresh change, or waits as its rest says.
    pub(super) fn compare(&mut self, now: Now, out: &mut Vec<Out>) {
        let (Some(assignment), Some(content)) = (&self.assignment, &self.content) else {
            return;
        };
        if self.in_flight() || !self.waiting.changes.is_empty() || content.is_right(&assignment.level) {
            return;
        }
        let fresh = match &self.rest {
            Rest::Unknown => true,
            Rest::Right => {
                out.push(Out::Sample(Sample::Drift));
                self.rest = Rest::Unknown;
                true
            }
            Rest::Failed(failed) => failed.compare_at.is_some_and(|at| at <= now),
            Rest::Backoff(backoff) => content.certain && backoff.until <= now,
            Rest::Withheld { members } => *members != content.members,
        };
        if fresh {
            self.waiting.add(Owner::Pool, now);
            self.shown.dirty = true;
        }
    }

    pub(super) fn on_verified(&mut self, now: Now, verdict: Verdict, out: &mut Vec<Out>) {
        let (Verdict::Held(attempt) | Verdict::Lost { attempt, .. } | Verdict::Overwritten { attempt, .. }) =
            verdict;
        if self.written != Some(attempt) {
            out.push(Out::Sample(Sample::UnmatchedAnswer));
            return;
        }
        match verdict {
            Verdict::Held(_) => {}
            Verdict::Lost { facts, began, .. } => {
                out.push(Out::Sample(Sample::LostWrite));
                self.written = None;
                if let Some(until) = self.losses.count(now) {
                    self.not_before = self.not_before.max(until);
                }
                self.shown.dirty = true;
                // It was never there: that is no drift.
                if let Rest::Right = self.rest {
                    self.rest = Rest::Unknown;
                }
                self.on_observed(now, &facts, began, out);
            }
            Verdict::Overwritten { facts, began, .. } => self.on_observed(now, &facts, began, out),
        }
    }
}
