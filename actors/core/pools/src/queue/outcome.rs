//! What the outcome of an attempt means for its changes, for operators and for the metrics (Q6, Q8; S0).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::queue::changes::{ChangeOwner, Changes, FailedChanges};
use crate::queue::contention::{ContentionBackoff, doubled};
use crate::queue::last_result::{FailureReport, LastResult, ReportedFailure};
use crate::queue::observed_pool::ObservedPool;
use crate::queue::{Attempt, Out, Phase, PoolQueue};
use model::arm::Failure;
use model::assignment::PoolMembers;
use model::attempt::{MembershipDue, Outcome};
use model::error::NotManageable;
use model::ids::{AttemptId, ServiceUid};
use model::level::Level;
use model::machine::Now;
use model::report::{EventKind, Report, Subject};
use model::sample::{AttemptEnd, Metric};
use model::view::LastAttempt;
use model::write_record::WriteRecord;

/// The changes of an attempt: added, removed members.
type AddedAndRemoved = (BTreeSet<IpAddr>, BTreeSet<IpAddr>);

impl PoolQueue {
    pub(super) fn on_finished(&mut self, now: Now, id: AttemptId, outcome: Outcome, out: &mut Vec<Out>) {
        let attempt = match std::mem::replace(&mut self.phase, Phase::Quiet) {
            Phase::Attempting(attempt) if attempt.id == id => attempt,
            Phase::Retiring(attempt) if attempt.id == id => {
                self.end(now, retired_end(&outcome), out);
                return self.retire(out);
            }
            other @ (Phase::Quiet
            | Phase::Open
            | Phase::Due(_)
            | Phase::Attempting(_)
            | Phase::Retiring(_)
            | Phase::Quarantined(_)) => {
                self.phase = other;
                out.push(Out::Metric(Metric::UnmatchedAnswer));
                return;
            }
        };
        let record = record_of(&attempt, &outcome);
        self.status_view.record = Some(Arc::clone(&record));
        match outcome {
            Outcome::Written { members, added, removed, record: _ } => {
                self.written = Some(id);
                self.completed(now, &attempt, members, Some((added, removed)), record, out);
            }
            Outcome::Unchanged { members } => self.completed(now, &attempt, members, None, record, out),
            Outcome::Withheld { members, added, removed } => {
                self.withheld(now, members, (added, removed), out);
            }
            Outcome::NotGranted => self.not_granted(now, attempt, out),
            Outcome::Stale => self.stale(now, out),
            Outcome::NotManageable(reason) => self.not_manageable(now, reason, out),
            Outcome::Retriable { failure, eligible_at } => {
                self.retriable(now, attempt, &failure, eligible_at, out);
            }
            Outcome::Terminal { failure } => self.terminal(now, &attempt, &failure, out),
            Outcome::Interrupted => self.interrupted(now, out),
        }
    }

    /// Records the outcome. The next attempt begins after the interval at the earliest (Q2).
    pub(super) fn end(&mut self, now: Now, how: AttemptEnd, out: &mut Vec<Out>) {
        let interval = match how {
            AttemptEnd::Retried | AttemptEnd::Failed => {
                self.params.retry_interval.max(self.params.min_interval)
            }
            AttemptEnd::NotGranted => Duration::ZERO,
            AttemptEnd::Written
            | AttemptEnd::Unchanged
            | AttemptEnd::Withheld
            | AttemptEnd::Stale
            | AttemptEnd::NotManageable
            | AttemptEnd::Interrupted => self.params.min_interval,
        };
        let paced = std::mem::take(&mut self.pace);
        if how != AttemptEnd::NotGranted {
            self.rewrite_requested = false;
            self.ended = Some(now);
            self.not_before = self.not_before.max(now.plus(interval.max(paced)));
        }
        let record = self.status_view.record.take();
        self.status_view.last_end = Some(LastAttempt { end: how, at: now, record });
        self.status_view.dirty = true;
        out.push(Out::Metric(Metric::AttemptEnded(how)));
    }

    /// Handles Written and Unchanged: the attempt is complete.
    fn completed(
        &mut self,
        now: Now,
        attempt: &Attempt,
        members: BTreeSet<IpAddr>,
        changed: Option<AddedAndRemoved>,
        record: Arc<WriteRecord>,
        out: &mut Vec<Out>,
    ) {
        let how = if changed.is_some() { AttemptEnd::Written } else { AttemptEnd::Unchanged };
        self.end(now, how, out);
        self.measure_programming(now, attempt, changed.is_some(), out);
        let (added, removed) = changed.unwrap_or_default();
        let backoff = self.contention.record_write(now, &added, &removed);
        let what = EventKind::Updated { pool: self.pool.clone(), members: members.len(), record };
        if self.report(attempt.changes.owners(), what, out) {
            let took = now.since(attempt.began);
            out.push(Out::Metric(Metric::Attempt { took, failed: false }));
        }
        if let Some(ContentionBackoff { members, left_for }) =
            backoff.filter(|_| self.params.contention_backoff)
        {
            out.push(Out::Metric(Metric::Contention));
            let what = EventKind::Contested { pool: self.pool.clone(), members, left_for };
            self.report([&ChangeOwner::Pool].into_iter(), what, out);
        }
        out.push(Out::Members(self.pool.clone(), PoolMembers { at: now, members: members.clone() }));
        self.observed =
            Some(ObservedPool::attempted(members, &attempt.assignment.level, self.observed.as_ref(), now));
        self.last_result = LastResult::Unknown;
        self.status_view.last_error = None;
        self.status_view.withheld = None;
        self.rules_in_doubt = false;
        self.reported_reasons.clear();
    }

    /// Measures the latency of each endpoint change in this attempt once, if it needed a write.
    fn measure_programming(&mut self, now: Now, attempt: &Attempt, written: bool, out: &mut Vec<Out>) {
        let Some(newest) = &self.assignment else { return };
        for (uid, share) in &attempt.assignment.services {
            let Some(triggered) = share.triggered.filter(|_| newest.services.contains_key(uid)) else {
                continue;
            };
            if self.programmed.get(uid).is_some_and(|last| *last >= triggered) {
                continue;
            }
            self.programmed.insert(uid.clone(), triggered);
            if written {
                out.push(Out::Metric(Metric::NetworkProgramming(now.since(triggered))));
            }
        }
    }

    /// Handles a dry run: publishes the difference and reports nothing (C4).
    fn withheld(
        &mut self,
        now: Now,
        members: BTreeSet<IpAddr>,
        difference: AddedAndRemoved,
        out: &mut Vec<Out>,
    ) {
        self.end(now, AttemptEnd::Withheld, out);
        self.status_view.withheld = Some(difference);
        self.last_result = LastResult::Withheld { members: members.clone() };
        self.observed =
            Some(ObservedPool::attempted(members, &Level::default(), self.observed.as_ref(), now));
    }

    /// Handles an attempt that sent nothing: spends and reports nothing, and the pool is due as before.
    fn not_granted(&mut self, now: Now, attempt: Attempt, out: &mut Vec<Out>) {
        self.end(now, AttemptEnd::NotGranted, out);
        self.waiting.put_back(attempt.changes);
        self.drop_satisfied_changes(now);
        if self.ready_at().is_some_and(|at| at <= now)
            && let Some(urgency) = self.urgency()
        {
            let due = MembershipDue { since: attempt.due_since, urgency };
            self.phase = Phase::Due(due);
            out.push(Out::Due(self.pool.clone(), due));
        }
    }

    /// Handles a pool that was not found: quietly drops the changes of the attempt. Discovery reads the pool, and
    /// compares it after a back-off. A change that arrived meanwhile is tried once the pool is observed again.
    fn stale(&mut self, now: Now, out: &mut Vec<Out>) {
        self.end(now, AttemptEnd::Stale, out);
        self.observed = None;
        self.last_result = if self.params.compare_after_stale {
            self.last_result.next_backoff(now, self.params.min_interval)
        } else {
            LastResult::NotFound
        };
        out.push(Out::Missing(self.pool.clone()));
    }

    /// Handles missing proof of ownership: drops the changes, and reports it once per reason (D2). If the rules differ
    /// from those of the last discovery, it is reported only if the next discovery still maps the pool (Q4).
    fn not_manageable(&mut self, now: Now, reason: NotManageable, out: &mut Vec<Out>) {
        if reason.is_about_rules() && !std::mem::replace(&mut self.rules_in_doubt, true) {
            return self.stale(now, out);
        }
        self.end(now, AttemptEnd::NotManageable, out);
        self.mark_uncertain();
        self.last_result = self.last_result.next_backoff(now, self.params.min_interval);
        self.status_view.last_error = Some(Arc::from(reason.to_string()));
        if self.may_report() && self.reported_reasons.insert(reason.label()) {
            let what = EventKind::NotManageable { pool: self.pool.clone(), reason, attempted: true };
            self.report([&ChangeOwner::Pool].into_iter(), what, out);
        }
    }

    /// Spends one retry of each change. Changes beyond the budget are dropped and reported, the others requeued and
    /// reported.
    fn retriable(
        &mut self,
        now: Now,
        attempt: Attempt,
        failure: &Arc<Failure>,
        eligible_at: Option<Now>,
        out: &mut Vec<Out>,
    ) {
        let eligible_at = eligible_at.filter(|at| *at > now);
        let Attempt { changes, began, .. } = attempt;
        let repeated = self.is_repeat(&changes, failure);
        let by_service = changes.any_of_a_service();
        let FailedChanges { requeued, exhausted } = changes.spend(self.params.max_retries, eligible_at);
        let given_up = requeued.is_empty();
        self.end(
            now,
            if exhausted.is_empty() && !given_up { AttemptEnd::Retried } else { AttemptEnd::Failed },
            out,
        );
        self.failed(failure);
        let retrying = self.retrying_by_count(&requeued);
        self.waiting.put_back(requeued);
        if self.last_result.failed().is_none() {
            self.last_result = LastResult::Unknown;
        }
        if !exhausted.is_empty() {
            let took = now.since(began);
            out.push(Out::Metric(Metric::Attempt { took, failed: true }));
            let compared_again_in = self.record_failure(now, failure, by_service);
            if !repeated {
                let (pool, failure) = (self.pool.clone(), Arc::clone(failure));
                let retries = self.params.max_retries;
                let what = EventKind::FailedExhausted { pool, retries, failure, compared_again_in };
                self.report(exhausted.iter(), what, out);
            }
        }
        if repeated {
            return;
        }
        for (retry, subjects) in retrying {
            let (pool, failure) = (self.pool.clone(), Arc::clone(failure));
            let what = EventKind::Retrying { pool, retry, max: self.params.max_retries, failure };
            self.report_to(&subjects, what, out);
        }
    }

    /// Returns the Services to report for each retry count: each Service under the highest count of its changes.
    fn retrying_by_count(&self, requeued: &Changes) -> BTreeMap<u32, BTreeSet<ServiceUid>> {
        let mut by_count: BTreeMap<u32, BTreeSet<ServiceUid>> = BTreeMap::new();
        let own = requeued.any_of_a_service();
        for owner in requeued.owners().filter(|owner| !own || **owner != ChangeOwner::Pool) {
            if let Some(count) = requeued.highest(owner) {
                by_count.entry(count).or_default().extend(self.subjects([owner].into_iter()));
            }
        }
        by_count
    }

    /// Drops the changes and reports the failure.
    fn terminal(&mut self, now: Now, attempt: &Attempt, failure: &Arc<Failure>, out: &mut Vec<Out>) {
        self.end(now, AttemptEnd::Failed, out);
        self.failed(failure);
        if attempt.changes.is_empty() {
            self.last_result = LastResult::Unknown;
            return;
        }
        let took = now.since(attempt.began);
        out.push(Out::Metric(Metric::Attempt { took, failed: true }));
        let repeated = self.is_repeat(&attempt.changes, failure);
        let compared_again_in = self.record_failure(now, failure, attempt.changes.any_of_a_service());
        if !repeated {
            let (pool, failure) = (self.pool.clone(), Arc::clone(failure));
            let what = EventKind::FailedTerminal { pool, failure, compared_again_in };
            self.report(attempt.changes.owners(), what, out);
        }
    }

    /// Handles shutdown and lost leadership: silently drops the changes; the next observation is compared.
    pub(super) fn interrupted(&mut self, now: Now, out: &mut Vec<Out>) {
        self.end(now, AttemptEnd::Interrupted, out);
        self.mark_uncertain();
        self.last_result = LastResult::Unknown;
    }

    fn failed(&mut self, failure: &Arc<Failure>) {
        self.mark_uncertain();
        self.status_view.last_error = Some(Arc::from(failure.to_string()));
    }

    pub(super) fn mark_uncertain(&mut self) {
        if let Some(observed) = &mut self.observed {
            observed.certain = false;
        }
    }

    /// Returns whether operators already know this failure and no Service has asked for anything since (Q8).
    fn is_repeat(&self, changes: &Changes, failure: &Failure) -> bool {
        let told = self
            .last_result
            .failed()
            .is_some_and(|failed| failed.report == FailureReport::Reported(failure.cause()));
        told && !changes.any_of_a_service()
    }

    /// Records the reported failure, and sets the time of the next comparison (Q8). Returns how long it takes until the
    /// pool is tried again: at that time, or earlier with the waiting changes.
    fn record_failure(&mut self, now: Now, failure: &Failure, by_service: bool) -> Option<Duration> {
        let comparison =
            self.params.after_failure.filter(|delay| !delay.is_zero() && self.params.max_retries > 0);
        let delay = match (self.last_result.failed(), by_service) {
            (Some(before), false) => doubled(before.delay),
            (Some(_), true) | (None, _) => comparison.unwrap_or_default(),
        };
        let compare_at = comparison.map(|_| now.plus(delay));
        let report = if self.may_report() {
            FailureReport::Reported(failure.cause())
        } else {
            FailureReport::Unreported
        };
        self.last_result = LastResult::Failed(ReportedFailure { report, compare_at, delay });
        let again_at = if self.waiting.changes.is_empty() { compare_at } else { self.ready_at() };
        again_at.map(|at| at.since(now))
    }

    /// Returns the Services that get reports about changes of these owners: their own, or all of the pool when there is
    /// none.
    fn subjects<'a>(&self, owners: impl Iterator<Item = &'a ChangeOwner>) -> BTreeSet<ServiceUid> {
        let mut of_the_pool = false;
        let mut subjects = BTreeSet::new();
        for owner in owners {
            match owner {
                ChangeOwner::Pool => of_the_pool = true,
                ChangeOwner::Service(uid) => {
                    subjects.insert(uid.clone());
                }
            }
        }
        if let (true, true, Some(assignment)) = (of_the_pool, subjects.is_empty(), &self.assignment) {
            subjects.extend(assignment.services.keys().cloned());
        }
        subjects
    }

    /// Returns whether the pool's Services get events: not while it is paused or only observed (G6).
    pub(super) fn may_report(&self) -> bool {
        self.assignment.as_ref().is_some_and(|assignment| !assignment.is_paused())
    }

    /// Ends a pause: lasting conditions are reported again, and unreported failures are retried.
    pub(super) fn pause_ended(&mut self, now: Now) {
        self.last_result.pause_ended(now);
        self.reported_reasons.clear();
    }

    /// Reports to the Services of these owners, unless the pool is paused. Returns whether there is any such Service.
    pub(super) fn report<'a>(
        &self,
        owners: impl Iterator<Item = &'a ChangeOwner>,
        what: EventKind,
        out: &mut Vec<Out>,
    ) -> bool {
        self.report_to(&self.subjects(owners), what, out)
    }

    fn report_to(&self, services: &BTreeSet<ServiceUid>, what: EventKind, out: &mut Vec<Out>) -> bool {
        let Some(assignment) = &self.assignment else {
            return false;
        };
        let relevant =
            services.iter().filter_map(|uid| assignment.services.get(uid).map(|share| (uid, share)));
        let subjects: Vec<Subject> = relevant.map(|(uid, share)| Subject::of(uid, &share.key)).collect();
        let any = !subjects.is_empty();
        if any && self.may_report() {
            let note = assignment.source.note().cloned();
            out.push(Out::Report(Report { subjects, what, note }));
        }
        any
    }
}

/// Returns the record of the changes of an attempt and their reason, for operators.
fn record_of(attempt: &Attempt, outcome: &Outcome) -> Arc<WriteRecord> {
    let correlation_id = match outcome {
        Outcome::Written { record, .. } => return Arc::clone(record),
        Outcome::Retriable { failure, .. } | Outcome::Terminal { failure } => failure.correlation_id.clone(),
        Outcome::Unchanged { .. }
        | Outcome::Withheld { .. }
        | Outcome::NotGranted
        | Outcome::Stale
        | Outcome::NotManageable(_)
        | Outcome::Interrupted => None,
    };
    let services = attempt.assignment.services.values().map(|share| &share.key);
    Arc::new(WriteRecord::of(attempt.trigger, services, correlation_id))
}

/// Returns how an attempt ended if its pool has no owner or is quarantined: a failure of such a pool is not retried.
pub(super) fn retired_end(outcome: &Outcome) -> AttemptEnd {
    match outcome {
        Outcome::Written { .. } => AttemptEnd::Written,
        Outcome::Unchanged { .. } => AttemptEnd::Unchanged,
        Outcome::Withheld { .. } => AttemptEnd::Withheld,
        Outcome::NotGranted => AttemptEnd::NotGranted,
        Outcome::Stale => AttemptEnd::Stale,
        Outcome::NotManageable(_) => AttemptEnd::NotManageable,
        Outcome::Retriable { .. } | Outcome::Terminal { .. } => AttemptEnd::Failed,
        Outcome::Interrupted => AttemptEnd::Interrupted,
    }
}
