//! One pool's waiting changes, their retry budgets, and when the pool may next take part (docs/design/pools.md, Q1-Q8).
//!
//! It decides when membership is due and what each outcome means for the changes. Whose turn it is in a lane, and
//! how a level is written, is the writer's business; what the level is, the Directory's.

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

use crate::queue::changes::{Changes, Waiting};
use crate::queue::conditions::Reported;
use crate::queue::contention::Contention;
use crate::queue::last_result::{LastResult, Left, Losses};
use crate::queue::observed_pool::ObservedPool;
use crate::queue::quarantine::Quarantine;
use crate::queue::status::QueueStatus;
use model::assignment::{Assignment, Observation, PoolMembers};
use model::attempt::{Class, Due, Outcome, Taken, WriteFate};
use model::error::ReasonLabel;
use model::ids::{AttemptId, Epoch, PoolId, ServiceUid};
use model::machine::{Machine, Now, earliest};
use model::operator_request::{Answer, RequestId};
use model::report::{Ended, Report};
use model::sample::Metric;
use model::view::{OutOfSync, PoolView};
use model::write_record::Trigger;

/// What every PoolQueue is told once, at start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Params {
    /// `batching.quietPeriod`, 500 ms.
    pub quiet_period: Duration,
    /// `batching.maxDelay`, 2 s.
    pub max_delay: Duration,
    /// `batching.minInterval`, 5 s, since the last attempt's outcome.
    pub min_interval: Duration,
    /// `batching.retryInterval`, 30 s, since a failed attempt's outcome.
    pub retry_interval: Duration,
    /// `loadBalancerBackendPoolUpdateMaxRetries` after Q7: extra tries after the first.
    pub max_retries: u32,
    /// `resync.afterFailure`, 1 min, doubling to 10 min; `None` switches the comparison after failure off (Q8).
    pub after_failure: Option<Duration>,
    /// Whether drift is a change of its own; off in `compatibility: upstream`, where it is only reported (C2).
    pub drift: bool,
    /// Whether a pool that was not there is compared again by itself; off in `compatibility: upstream` (C2).
    pub compare_after_stale: bool,
    /// Whether W11's back-offs are on; off in `compatibility: upstream` (C2).
    pub fights: bool,
}

impl Params {
    /// `compatibility: upstream` (C2): everything waits for the tick, and nothing is done that S0 does not do.
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
            fights: false,
        }
    }
}

/// What a PoolQueue can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// Its level.
    Assigned(Arc<Assignment>),
    /// What a GET outside its own attempts saw.
    Observed(Observation),
    /// The lane was granted: answer with the newest relevant level (Q3).
    Take(AttemptId),
    /// The operator asks for an attempt now (H3).
    Attempt(RequestId),
    /// Write it once more although it is right, because its provisioning state stays `Failed`.
    Rewrite,
    /// The attempts of this pool are to be this far apart at least, from the outcome that follows on (Q2).
    Pace(Duration),
    /// The attempt ended.
    Finished(AttemptId, Outcome),
    /// A write of this pool was verified, or found lost (W2).
    Verified(WriteFate),
}

/// What a PoolQueue can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the writer: membership is due; again when the class changes.
    Due(PoolId, Due),
    /// To the writer: it is no longer due.
    Withdraw(PoolId),
    /// To the writer: the answer to a Take; `None` is `Nothing`.
    Taken(PoolId, AttemptId, Option<Taken>),
    /// To the Directory: an empty assignment was taken in and nothing is in flight.
    Retired(PoolId),
    /// To the Directory: which members the pool has after an attempt or its verification.
    Members(PoolId, PoolMembers),
    /// To Discovery: the pool or its load balancer was not there.
    Missing(PoolId),
    /// To the process: the answer to the operator's request.
    Answer(RequestId, Answer),
    /// To the event emitter.
    Report(Report),
    /// To the event emitter: a condition that was reported holds no longer.
    Ended(Ended),
    /// To the board.
    View(Arc<PoolView>),
    /// To the board: it is gone.
    Gone(PoolId),
    /// To the log: it is quarantined, for this invariant of it does not hold (A4).
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
    /// The newest accepted one; without Services while the pool retires, `None` while it has no owner.
    assignment: Option<Arc<Assignment>>,
    /// The newest term of leadership that it has heard of.
    epoch: Epoch,
    /// `None`: not known yet.
    content: Option<ObservedPool>,
    waiting: Waiting,
    rest: LastResult,
    /// The time of the last outcome, or of the last change if drift is only reported. Earlier observations are outdated
    /// (D3, C2).
    ended: Option<Now>,
    /// The end of the interval since the last outcome, or of a back-off (Q2).
    not_before: Now,
    /// Whether the operator has asked for an attempt that has not begun.
    asked: bool,
    /// Whether the next attempt writes a pool that is right.
    rewrites: bool,
    /// The last write, which verification is about.
    written: Option<AttemptId>,
    losses: Losses,
    fights: Contention,
    /// How far the next outcome is to be from what follows it at least (Q2); the writer says it before each
    /// outcome for which the budget is low.
    pace: Duration,
    /// Reasons of missing proof that were reported and not overcome since.
    told_not_manageable: BTreeSet<ReasonLabel>,
    /// The conditions that were reported and hold (E1).
    reported: Reported,
    /// Whether an attempt found other rules than those of the pool's Services, and Discovery has to read them again.
    rules_in_doubt: bool,
    /// Since when the pool has not matched its level.
    out_of_sync: Option<OutOfSync>,
    /// When the last pause ended.
    resumed: Option<Now>,
    /// The newest endpoint change of each Service whose way into the pool was measured, or not needed.
    programmed: BTreeMap<ServiceUid, Now>,
    shown: QueueStatus,
    /// Whether a test breaks it on purpose, to see it quarantined.
    broken_on_purpose: bool,
}

#[derive(Debug)]
enum Phase {
    /// Nothing waits.
    Quiet,
    /// Changes wait: in their window, for an interval, parked, paused, or for the first observation.
    Open,
    /// Posted to the lane, nothing taken.
    Due(Due),
    /// An attempt is under way.
    Attempting(Attempt),
    /// An attempt is under way and the pool has no owner any more.
    Retiring(Attempt),
    /// An invariant of it was broken: nothing is done any more until it has no owner (A4).
    Quarantined(Quarantine),
}

#[derive(Debug)]
struct Attempt {
    id: AttemptId,
    /// When it was taken.
    began: Now,
    /// Since when it had been due.
    due_since: Now,
    /// The changes that share its outcome.
    changes: Changes,
    /// What it took.
    assignment: Arc<Assignment>,
    /// What started it.
    trigger: Trigger,
}

impl PoolQueue {
    /// The queue of a pool that has no owner yet.
    #[must_use]
    pub fn new(pool: PoolId, params: Params) -> PoolQueue {
        PoolQueue {
            pool,
            params,
            phase: Phase::Quiet,
            assignment: None,
            epoch: Epoch::default(),
            content: None,
            waiting: Waiting::default(),
            rest: LastResult::Unknown,
            ended: None,
            not_before: Now::ZERO,
            asked: false,
            rewrites: false,
            written: None,
            losses: Losses::default(),
            fights: Contention::default(),
            pace: Duration::ZERO,
            told_not_manageable: BTreeSet::new(),
            reported: Reported::default(),
            rules_in_doubt: false,
            out_of_sync: None,
            resumed: None,
            programmed: BTreeMap::new(),
            shown: QueueStatus::default(),
            broken_on_purpose: false,
        }
    }

    fn in_flight(&self) -> bool {
        match &self.phase {
            Phase::Attempting(_) | Phase::Retiring(_) => true,
            Phase::Quiet | Phase::Open | Phase::Due(_) | Phase::Quarantined(_) => false,
        }
    }

    /// Brings the phase in line with what waits and what the time is, and says what changed by that.
    fn advance(&mut self, now: Now, out: &mut Vec<Out>) {
        self.settle_if_right(now);
        match self.phase {
            Phase::Attempting(_) | Phase::Retiring(_) | Phase::Quarantined(_) => {}
            Phase::Due(due) => {
                if self.ready_at().is_none_or(|at| at > now) {
                    self.phase = if self.waiting.changes.is_empty() { Phase::Quiet } else { Phase::Open };
                    out.push(Out::Withdraw(self.pool.clone()));
                } else if let Some(class) = self.class().filter(|class| *class != due.class) {
                    self.post(due.since, class, out);
                }
            }
            Phase::Quiet | Phase::Open => {
                self.phase = if self.waiting.changes.is_empty() { Phase::Quiet } else { Phase::Open };
                if let Some(since) = self.due_at().filter(|at| *at <= now)
                    && let Some(class) = self.class()
                {
                    self.post(since, class, out);
                }
            }
        }
    }

    fn post(&mut self, since: Now, class: Class, out: &mut Vec<Out>) {
        let due = Due { since, class };
        self.phase = Phase::Due(due);
        self.shown.dirty = true;
        out.push(Out::Due(self.pool.clone(), due));
    }

    fn class(&self) -> Option<Class> {
        let level = &self.assignment.as_ref()?.level;
        self.content.as_ref().map(|content| content.class(level))
    }

    /// A level that the verified content satisfies needs no write: untried changes vanish, and it counts as right
    /// (Q2). A change that was tried goes on, so that operators hear how it ended. While we back off from a fight,
    /// what another client has added to the pool makes no write necessary either (W11).
    fn settle_if_right(&mut self, now: Now) {
        let (Some(assignment), Some(content)) = (&self.assignment, &self.content) else {
            return;
        };
        self.fights.keep_current(&assignment.level, &content.members);
        if self.in_flight() || self.asked || self.rewrites || !self.waiting.changes.all_fresh() {
            return;
        }
        // The operation that runs may be a predecessor's, or one whose end we did not see: what it leaves is for the
        // next look to say, unless the pool was known to be right before it (W8).
        if !content.at_rest && !self.rest.is_known() {
            return;
        }
        let rest = if content.is_right(&assignment.level) {
            // The pool is right: what earlier attempts reported is over.
            self.rules_in_doubt = false;
            self.told_not_manageable.clear();
            LastResult::Right
        } else if let Some(level) = self.fights.loosened(now, &assignment.level)
            && content.is_right(&level)
        {
            let until = Some(self.fights.left_until());
            LastResult::Left(Left { members: content.members.clone(), until })
        } else {
            return;
        };
        let stays = matches!((&self.rest, &rest), (LastResult::Right, LastResult::Right))
            || matches!((&self.rest, &rest), (LastResult::Left(old), LastResult::Left(new)) if old == new);
        if !self.waiting.take().is_empty() || !stays {
            self.shown.dirty = true;
        }
        self.rest = rest;
        self.shown.withheld = None;
        for (uid, share) in &assignment.services {
            if let Some(triggered) = share.triggered {
                self.programmed.insert(uid.clone(), triggered);
            }
        }
    }

    /// When what waits may take part, windows apart; `None`: no moment is known (Q2, Q5, D1, D6, W8).
    fn ready_at(&self) -> Option<Now> {
        let assignment = self.assignment.as_ref().filter(|assignment| !assignment.is_paused())?;
        if assignment.epoch < self.epoch {
            return None;
        }
        if self.content.is_none() || assignment.services.is_empty() || self.waiting.changes.is_empty() {
            return None;
        }
        let not_before = if self.asked { Now::ZERO } else { self.not_before };
        Some(not_before.max(self.waiting.changes.eligible_at().unwrap_or(Now::ZERO)))
    }

    /// When what waits becomes due.
    fn due_at(&self) -> Option<Now> {
        if self.asked {
            return self.ready_at();
        }
        let closes = self.waiting.closes(self.params.quiet_period, self.params.max_delay);
        self.ready_at().map(|at| at.max(closes).max(self.waiting.changes.since().unwrap_or(Now::ZERO)))
    }

    /// When a pool at rest is compared by the clock; `None` while it was last seen right: the next look at it at rest
    /// says so for good (Q6, Q8).
    fn compare_at(&self) -> Option<Now> {
        let (Phase::Quiet, Some(content)) = (&self.phase, &self.content) else {
            return None;
        };
        if content.is_right(&self.assignment.as_ref()?.level) {
            return None;
        }
        match &self.rest {
            LastResult::Failed(failed) => failed.compare_at,
            LastResult::Left(left) => left.until,
            LastResult::Backoff(backoff) => content.certain.then_some(backoff.until),
            LastResult::Unknown | LastResult::Right | LastResult::Gone | LastResult::Withheld { .. } => None,
        }
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
            In::Attempt(id) => self.on_attempt_asked(now, id, out),
            In::Rewrite => self.on_rewrite(now),
            In::Pace(interval) => self.pace = interval,
            In::Finished(id, outcome) => self.on_finished(now, id, outcome, out),
            In::Verified(verdict) => self.on_verified(now, verdict, out),
        }
        self.advance(now, out);
        self.note_sync(now, by_level);
        self.conclude(now, sound, from, out);
    }

    fn deadline(&self) -> Option<Now> {
        if let Phase::Quarantined(quarantine) = &self.phase {
            return quarantine.tell_at;
        }
        let due_at = if let Phase::Open = self.phase { self.due_at() } else { None };
        earliest(earliest(due_at, self.compare_at()), self.shown_parked_until())
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        let from = out.len();
        if let Phase::Quarantined(_) = self.phase {
            return self.tell_again(now, out);
        }
        if self.compare_at().is_some_and(|at| at <= now) {
            self.compare(now, out);
        }
        self.advance(now, out);
        self.note_sync(now, false);
        self.conclude(now, true, from, out);
    }
}
