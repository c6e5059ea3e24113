//! One pool's waiting changes, their retry budgets, and when the pool may next take part (docs/design/pools.md, Q1-Q8).
//!
//! Decides when membership is due and what each outcome means for the changes. The Directory decides the level; the
//! writer decides whose turn it is in a lane, and how a level is written.

mod assigned;
mod attempt;
mod changes;
mod conditions;
mod contention;
mod last_result;
mod manual_attempt;
mod observed;
mod observed_pool;
mod outcome;
mod quarantine;
mod rewrite;
mod status;
mod sync;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::queue::changes::{Changes, WaitingChanges};
use crate::queue::conditions::ReportedConditions;
use crate::queue::contention::Contention;
use crate::queue::last_result::{LastResult, LeftDifference, LostWrites};
use crate::queue::observed_pool::ObservedPool;
use crate::queue::quarantine::Quarantine;
use crate::queue::status::QueueStatus;
use model::assignment::{Assignment, Observation, PoolMembers};
use model::attempt::{MembershipDue, MembershipUrgency, MembershipWrite, Outcome, WriteFate};
use model::blocked::{Blocked, BlockedUntil};
use model::error::ReasonLabel;
use model::ids::{AttemptId, Epoch, PoolId, ServiceUid};
use model::machine::{Machine, Now, earliest};
use model::operator_request::{Answer, RequestId};
use model::report::{Ended, Report};
use model::sample::Metric;
use model::view::{OutOfSync, PoolView};
use model::write_record::Trigger;

/// Settings of every PoolQueue, fixed at start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Params {
    /// `batching.quietPeriod`, 500 ms.
    pub quiet_period: Duration,
    /// `batching.maxDelay`, 2 s.
    pub max_delay: Duration,
    /// `batching.minInterval`, 5 s since the last attempt's outcome.
    pub min_interval: Duration,
    /// `batching.retryInterval`, 30 s since a failed attempt's outcome.
    pub retry_interval: Duration,
    /// `loadBalancerBackendPoolUpdateMaxRetries` after Q7: tries after the first one.
    pub max_retries: u32,
    /// `resync.afterFailure`, 1 min, doubling to 10 min. `None` switches the comparison after a failure off (Q8).
    pub after_failure: Option<Duration>,
    /// Whether drift is a change that must be written; off in `compatibility: upstream`, which only reports drift
    /// (C2).
    pub drift: bool,
    /// Whether a pool that was not found is compared again by time alone; off in `compatibility: upstream` (C2).
    pub compare_after_stale: bool,
    /// Whether the back-offs of W11 are on; off in `compatibility: upstream` (C2).
    pub contention_backoff: bool,
}

impl Params {
    /// Returns the settings of `compatibility: upstream` (C2): everything waits for the tick, and the queue does
    /// nothing that S0 does not do.
    #[must_use]
    pub fn upstream(tick: Duration, max_retries: u32) -> Params {
        Params {
            quiet_period: tick,
            max_delay: tick,
            min_interval: tick,
            retry_interval: tick,
            max_retries,
            after_failure: None,
            drift: false,
            compare_after_stale: false,
            contention_backoff: false,
        }
    }
}

/// Inputs of a PoolQueue.
#[derive(Clone, Debug)]
pub enum In {
    /// The pool's level.
    Assigned(Arc<Assignment>),
    /// The result of a GET outside of the pool's own attempts.
    Observed(Observation),
    /// The writer granted the lane: answer with the newest relevant level (Q3).
    Take(AttemptId),
    /// The operator requests an attempt now (H3).
    Attempt(RequestId),
    /// Write the pool once more although it is in sync, because its provisioning state stays `Failed`.
    Rewrite,
    /// The minimum interval between attempts of this pool, from the next outcome on (Q2).
    Pace(Duration),
    /// The attempt ended.
    Finished(AttemptId, Outcome),
    /// A write of this pool was verified, or found lost (W2).
    Verified(WriteFate),
}

/// Outputs of a PoolQueue.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the writer: membership is due. Sent again when the urgency changes.
    Due(PoolId, MembershipDue),
    /// To the writer: the pool is no longer due.
    Withdraw(PoolId),
    /// To the writer: the answer to a Take; `None` if there is nothing to write.
    Taken(PoolId, AttemptId, Option<MembershipWrite>),
    /// To the Directory: the queue processed an empty assignment, and nothing is in flight.
    Retired(PoolId),
    /// To the Directory: the members of the pool after an attempt or its verification.
    Members(PoolId, PoolMembers),
    /// To Discovery: the pool or its load balancer was not found.
    Missing(PoolId),
    /// To the Directory: the requested rewrite of the pool is skipped, because the pool is out of sync, waits, or is
    /// left alone.
    RewriteSkipped(PoolId),
    /// To the process: the answer to the operator's request.
    Answer(RequestId, Answer),
    /// To the event emitter.
    Report(Report),
    /// To the event emitter: a reported condition no longer holds.
    Ended(Ended),
    /// To the snapshot.
    View(Arc<PoolView>),
    /// To the snapshot: the pool is gone.
    Gone(PoolId),
    /// To the log: the pool is quarantined because this invariant of it does not hold (A4).
    Quarantined(PoolId, &'static str),
    /// To the metrics.
    Metric(Metric),
}

/// One pool's waiting changes, their retry budgets, and when the pool may next take part (Q1-Q8).
#[derive(Debug)]
pub struct PoolQueue {
    pool: PoolId,
    params: Params,
    phase: Phase,
    /// The newest accepted assignment; without Services while the pool retires, `None` while it has no owner.
    assignment: Option<Arc<Assignment>>,
    /// The newest known term of leadership.
    epoch: Epoch,
    /// The members as last observed; `None` while they are not known.
    observed: Option<ObservedPool>,
    waiting: WaitingChanges,
    last_result: LastResult,
    /// The time of the last outcome, or of the last change if drift is only reported. Earlier observations are outdated
    /// (D3, C2).
    ended: Option<Now>,
    /// The end of the interval since the last outcome, or of a back-off (Q2).
    not_before: Now,
    /// Whether the operator requested an attempt that has not begun.
    attempt_requested: bool,
    /// Whether the next attempt writes a pool that is in sync.
    rewrite_requested: bool,
    /// The last write, to which a verification refers.
    written: Option<AttemptId>,
    losses: LostWrites,
    contention: Contention,
    /// The minimum interval between the next outcome and the attempt after it (Q2). The writer sends it before each
    /// outcome while the budget is low.
    pace: Duration,
    /// Reasons of missing proof that were reported and still apply.
    reported_reasons: BTreeSet<ReasonLabel>,
    /// The reported conditions that still hold (E1).
    reported: ReportedConditions,
    /// Whether an attempt found other rules than those of the pool's Services, so that Discovery has to read them
    /// again.
    rules_in_doubt: bool,
    /// Since when the pool is out of sync.
    out_of_sync: Option<OutOfSync>,
    /// When the last pause ended.
    resumed: Option<Now>,
    /// The newest endpoint change of each Service whose latency to the pool was measured, or needs no measurement.
    programmed: BTreeMap<ServiceUid, Now>,
    status_view: QueueStatus,
    /// Whether a test broke an invariant on purpose, to see the quarantine.
    broken_on_purpose: bool,
}

#[derive(Debug)]
enum Phase {
    /// No changes wait.
    Quiet,
    /// Changes wait: in their window, for an interval, parked, paused, or for the first observation.
    Open,
    /// Posted to the lane; the writer has not sent Take.
    Due(MembershipDue),
    /// An attempt is in flight.
    Attempting(Attempt),
    /// An attempt is in flight, and the pool has no owner any more.
    Retiring(Attempt),
    /// An invariant of the pool is broken: the queue does nothing until the pool has no owner (A4).
    Quarantined(Quarantine),
}

#[derive(Debug)]
struct Attempt {
    id: AttemptId,
    /// When the attempt began, at Take.
    began: Now,
    /// Since when the pool had been due.
    due_since: Now,
    /// The changes that share its outcome.
    changes: Changes,
    /// The assignment that the attempt writes.
    assignment: Arc<Assignment>,
    /// The reason of the attempt.
    trigger: Trigger,
}

impl PoolQueue {
    /// Creates the queue of a pool that has no owner yet.
    #[must_use]
    pub fn new(pool: PoolId, params: Params) -> PoolQueue {
        PoolQueue {
            pool,
            params,
            phase: Phase::Quiet,
            assignment: None,
            epoch: Epoch::default(),
            observed: None,
            waiting: WaitingChanges::default(),
            last_result: LastResult::Unknown,
            ended: None,
            not_before: Now::ZERO,
            attempt_requested: false,
            rewrite_requested: false,
            written: None,
            losses: LostWrites::default(),
            contention: Contention::default(),
            pace: Duration::ZERO,
            reported_reasons: BTreeSet::new(),
            reported: ReportedConditions::default(),
            rules_in_doubt: false,
            out_of_sync: None,
            resumed: None,
            programmed: BTreeMap::new(),
            status_view: QueueStatus::default(),
            broken_on_purpose: false,
        }
    }

    fn in_flight(&self) -> bool {
        match &self.phase {
            Phase::Attempting(_) | Phase::Retiring(_) => true,
            Phase::Quiet | Phase::Open | Phase::Due(_) | Phase::Quarantined(_) => false,
        }
    }

    /// Updates the phase from the waiting changes and the time, and sends the result if it changed.
    fn update_phase(&mut self, now: Now, out: &mut Vec<Out>) {
        self.drop_satisfied_changes(now);
        match self.phase {
            Phase::Attempting(_) | Phase::Retiring(_) | Phase::Quarantined(_) => {}
            Phase::Due(due) => {
                if self.ready_at().is_none_or(|at| at > now) {
                    self.phase = if self.waiting.changes.is_empty() { Phase::Quiet } else { Phase::Open };
                    out.push(Out::Withdraw(self.pool.clone()));
                } else if let Some(urgency) = self.urgency().filter(|urgency| *urgency != due.urgency) {
                    self.post(due.since, urgency, out);
                }
            }
            Phase::Quiet | Phase::Open => {
                self.phase = if self.waiting.changes.is_empty() { Phase::Quiet } else { Phase::Open };
                if let Some(since) = self.due_at().filter(|at| *at <= now)
                    && let Some(urgency) = self.urgency()
                {
                    self.post(since, urgency, out);
                }
            }
        }
    }

    fn post(&mut self, since: Now, urgency: MembershipUrgency, out: &mut Vec<Out>) {
        let due = MembershipDue { since, urgency };
        self.phase = Phase::Due(due);
        self.status_view.dirty = true;
        out.push(Out::Due(self.pool.clone(), due));
    }

    fn urgency(&self) -> Option<MembershipUrgency> {
        let level = &self.assignment.as_ref()?.level;
        self.observed.as_ref().map(|observed| observed.urgency(level))
    }

    /// Drops untried changes when the verified content satisfies the level; the pool is then in sync (Q2). A change
    /// that was tried stays, so that its result is reported. During a back-off from contention, members that another
    /// client added do not make a write necessary either (W11).
    fn drop_satisfied_changes(&mut self, now: Now) {
        let (Some(assignment), Some(observed)) = (&self.assignment, &self.observed) else {
            return;
        };
        self.contention.keep_current(&assignment.level, &observed.members);
        if self.in_flight()
            || self.attempt_requested
            || self.rewrite_requested
            || !self.waiting.changes.all_fresh()
        {
            return;
        }
        // The running operation may be a predecessor's, or one whose end we did not see. The next observation shows its
        // result, unless the pool was known to be in sync before it (W8).
        if !observed.at_rest && !self.last_result.is_known() {
            return;
        }
        let last_result = if observed.is_in_sync(&assignment.level) {
            // The pool is in sync, so the conditions that earlier attempts reported have ended.
            self.rules_in_doubt = false;
            self.reported_reasons.clear();
            LastResult::InSync
        } else if let Some(level) = self.contention.relaxed(now, &assignment.level)
            && observed.is_in_sync(&level)
        {
            let until = Some(self.contention.backoff_until());
            LastResult::LeftAlone(LeftDifference { members: observed.members.clone(), until })
        } else {
            return;
        };
        let results = (&self.last_result, &last_result);
        let stays = matches!(results, (LastResult::InSync, LastResult::InSync))
            || matches!(results, (LastResult::LeftAlone(old), LastResult::LeftAlone(new)) if old == new);
        if !self.waiting.take().is_empty() || !stays {
            self.status_view.dirty = true;
        }
        self.last_result = last_result;
        self.status_view.withheld = None;
        for (uid, share) in &assignment.services {
            if let Some(triggered) = share.triggered {
                self.programmed.insert(uid.clone(), triggered);
            }
        }
    }

    /// Returns when the waiting changes may take part, apart from their window; `None` while no moment is known (Q2,
    /// Q5, D1, D6, W8).
    fn ready_at(&self) -> Option<Now> {
        let assignment = self.assignment.as_ref().filter(|assignment| !assignment.is_paused())?;
        if assignment.epoch < self.epoch {
            return None;
        }
        if self.observed.is_none() || assignment.services.is_empty() || self.waiting.changes.is_empty() {
            return None;
        }
        let not_before = if self.attempt_requested { Now::ZERO } else { self.not_before };
        Some(not_before.max(self.waiting.changes.eligible_at().unwrap_or(Now::ZERO)))
    }

    /// Returns when the waiting changes become due.
    fn due_at(&self) -> Option<Now> {
        if self.attempt_requested {
            return self.ready_at();
        }
        let closes = self.waiting.closes(self.params.quiet_period, self.params.max_delay);
        self.ready_at().map(|at| at.max(closes).max(self.waiting.changes.since().unwrap_or(Now::ZERO)))
    }

    /// Returns when a quiet pool is compared by time alone.
    fn compare_at(&self) -> Option<Now> {
        self.comparison_blocked()?.until
    }

    /// Returns why a quiet pool that is out of sync is left so, and when it is compared by time alone. Returns `None`
    /// while it was last observed in sync: the next observation without a running operation confirms that (Q6, Q8).
    fn comparison_blocked(&self) -> Option<BlockedUntil> {
        let (Phase::Quiet, Some(observed)) = (&self.phase, &self.observed) else {
            return None;
        };
        if observed.is_in_sync(&self.assignment.as_ref()?.level) {
            return None;
        }
        let (why, until) = match &self.last_result {
            LastResult::Failed(failed) => (Blocked::AfterFailure, failed.compare_at),
            LastResult::LeftAlone(left) => (Blocked::Contention, left.until),
            LastResult::Backoff(backoff) => {
                (Blocked::AfterFailure, observed.certain.then_some(backoff.until))
            }
            LastResult::NotFound => (Blocked::AfterFailure, None),
            LastResult::Unknown | LastResult::InSync | LastResult::Withheld { .. } => return None,
        };
        Some(BlockedUntil { why, until })
    }
}

impl Machine for PoolQueue {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        let from = out.len();
        if let Phase::Quarantined(_) = self.phase {
            return self.step_quarantined(now, input, out);
        }
        let (sound, by_level) =
            if let In::Assigned(assignment) = &input { (assignment.is_sound(), true) } else { (true, false) };
        match input {
            In::Assigned(assignment) => self.on_assigned(now, assignment, out),
            In::Observed(seen) => self.on_observed(now, &seen.facts, seen.began, out),
            In::Take(id) => self.on_take(now, id, out),
            In::Attempt(id) => self.on_attempt_requested(now, id, out),
            In::Rewrite => self.on_rewrite(now, out),
            In::Pace(interval) => self.pace = interval,
            In::Finished(id, outcome) => self.on_finished(now, id, outcome, out),
            In::Verified(verdict) => self.on_verified(now, verdict, out),
        }
        self.update_phase(now, out);
        self.record_sync(now, by_level);
        self.finish_step(now, sound, from, out);
    }

    fn deadline(&self) -> Option<Now> {
        if let Phase::Quarantined(quarantine) = &self.phase {
            return quarantine.report_at;
        }
        let due_at = if let Phase::Open = self.phase { self.due_at() } else { None };
        earliest(earliest(due_at, self.compare_at()), self.parked_state_until())
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        let from = out.len();
        if let Phase::Quarantined(_) = self.phase {
            return self.report_again(now, out);
        }
        if self.compare_at().is_some_and(|at| at <= now) {
            self.compare(now, out);
        }
        self.update_phase(now, out);
        self.record_sync(now, false);
        self.finish_step(now, true, from, out);
    }
}
