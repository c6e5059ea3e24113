//! Follows the operation of an accepted PUT to its end (docs/design/writer.md, W2).
//!
//! ARM says when to poll an operation again, and the writer complies. Azure's usual ten seconds are twice the
//! duration of half of the operations. Meanwhile a finished write would keep the load balancer's lane, a turn, and
//! the shared Lease from other writes and from the cloud-controller-manager. Therefore the writer also reads the pool
//! itself between two polls: a glance. Once no operation runs on the pool and the pool is as required, the write is
//! done. A glance that shows anything else has no effect, and polls continue. No glance is made while less than half
//! of the read budget is left.
//!
//! A URL may fail, hang, or report a running operation without end. Therefore the writer reads the load balancer
//! after three failed polls in a row, and every 30 s: that shows the pool and all running operations. While an
//! operation runs there, the lane stays closed and polls continue. If the load balancer cannot be read, the writer
//! glances at the pool instead. A pool that is not as required proves nothing then, because the operation may not have
//! begun.

use std::sync::Arc;

use model::arm::{
    ArmAnswer, FailureKind, LbFacts, OperationState, PoolFacts, PoolRead, Provisioning, RetryAfter,
};
use model::ids::{AttemptId, Etag, LbName, PoolId};
use model::machine::Now;
use model::sample::GateClass;

use super::budget::BudgetPurpose;
use super::classify::{Answered, FailedCall, FailureClass};
use super::completion::WriteEnd;
use super::in_flight::Purpose;
use super::initial_read::shows_rest;
use super::plan::{Plan, plan};
use super::write::{PollStep, PollTarget, Put, Write, WritePhase};
use super::{Out, Writer};

impl Writer {
    /// Polls an operation, or glances at its pool, when that is due.
    pub(super) fn poll_or_glance(&mut self, now: Now, lb: &LbName) {
        let half = usize::try_from(self.params.reads_per_5_minutes / 2).unwrap_or(usize::MAX);
        let ample = self.budget.allows_after(now, BudgetPurpose::Verify, half);
        let Some(write) = self.open_write_mut(lb) else { return };
        let WritePhase::Polling(polling) = &mut write.phase else { return };
        let glance = Purpose::Glance(write.pool.clone(), write.attempt);
        if matches!(polling.step, PollStep::ReadingBack(_)) && !polling.is_overdue(now) {
            polling.wait_for_read_back(now);
            let read_back = Purpose::ReadBack(write.pool.clone(), write.attempt);
            if polling.glances_instead() && self.calls.is_open(&read_back) && !self.calls.is_asked(&glance) {
                self.calls.queue(glance);
            }
            return;
        }
        let operation = match &polling.follow {
            PollTarget::Url(operation) => Some(operation.clone()),
            PollTarget::Pool | PollTarget::LoadBalancer => None,
        };
        let read = if polling.is_overdue(now) {
            polling.step = PollStep::LastRead;
            Purpose::Poll(write.pool.clone(), write.attempt, None)
        } else if polling.is_read_back_due(now) {
            polling.wait_for_read_back(now);
            Purpose::ReadBack(write.pool.clone(), write.attempt)
        } else if polling.is_poll_due(now) {
            polling.begin_poll();
            Purpose::Poll(write.pool.clone(), write.attempt, operation)
        } else if !ample {
            polling.wait_for_poll();
            return;
        } else {
            polling.step = PollStep::Glancing;
            glance
        };
        self.calls.queue(read);
    }

    /// Applies a glance. A failed glance has no effect: the next poll follows. A late answer counts, even while a
    /// poll is in flight.
    pub(super) fn on_glance(
        &mut self,
        now: Now,
        began: Now,
        pool: &PoolId,
        attempt: AttemptId,
        read: Option<PoolRead>,
        out: &mut Vec<Out>,
    ) {
        let Some(write) = self.write_mut(pool, attempt) else { return };
        let WritePhase::Polling(polling) = &write.phase else { return };
        let (put, etag) = (Arc::clone(&polling.put), polling.etag.clone());
        let rests = read.as_ref().filter(|read| read.facts.provisioning == Provisioning::Succeeded);
        if let Some(end @ WriteEnd::Written { .. }) =
            rests.map(|read| Self::evaluate(write, put, etag, (began, &read.facts)))
        {
            self.end(now, &pool.lb, end, out);
            return;
        }
        let WritePhase::Polling(polling) = &mut write.phase else { return };
        match (polling.step, read) {
            (PollStep::Glancing, Some(_)) => polling.wait_for_glance(now),
            (PollStep::Glancing, None) => polling.wait_for_poll(),
            (PollStep::Until(_) | PollStep::Polling | PollStep::ReadingBack(_) | PollStep::LastRead, _) => {}
        }
    }

    /// Applies the status of an operation. A failed poll says nothing about it. A failure that no retry can change, or
    /// a 404, means that the URL is useless, so the load balancer is read instead (W5). A late answer counts only if
    /// the operation has ended.
    pub(super) fn on_poll(
        &mut self,
        now: Now,
        began: Now,
        (pool, attempt): (&PoolId, AttemptId),
        by_url: bool,
        answer: Answered,
        out: &mut Vec<Out>,
    ) {
        let Some(write) = self.write_mut(pool, attempt) else { return };
        let WritePhase::Polling(polling) = &mut write.phase else { return };
        let (late, last) = match polling.step {
            PollStep::Until(_) | PollStep::Glancing | PollStep::ReadingBack(_) => (true, false),
            PollStep::Polling => (false, false),
            PollStep::LastRead => (by_url, !by_url),
        };
        if late && !is_end(&answer) {
            return;
        }
        if last {
            // Whatever the answer shows, it is unknown which operations run on the load balancer.
            self.disturbed(&pool.lb);
        }
        let Some(write) = self.write_mut(pool, attempt) else { return };
        let WritePhase::Polling(polling) = &mut write.phase else { return };
        let end = match answer {
            Ok(ArmAnswer::Operation(OperationState::Running { retry_after })) => {
                polling.on_running(now, retry_after);
                return;
            }
            Ok(ArmAnswer::Operation(OperationState::Succeeded)) => {
                WriteEnd::written(Arc::clone(&polling.put), polling.began, polling.etag.clone())
            }
            Ok(ArmAnswer::Operation(OperationState::Failed(failure))) => {
                self.fail(now, &pool.lb, GateClass::Reads, FailedCall::new(failure), out);
                return;
            }
            Ok(ArmAnswer::Operation(OperationState::Canceled(failure))) => {
                WriteEnd::retriable(FailedCall::new(failure))
            }
            Ok(ArmAnswer::Pool(read)) => {
                if read.facts.provisioning == Provisioning::Updating && !last {
                    polling.on_running(now, RetryAfter::Absent);
                    return;
                }
                let (put, etag) = (Arc::clone(&polling.put), polling.etag.clone());
                Self::evaluate(write, put, etag, (began, &read.facts))
            }
            Err(failed) if last => WriteEnd::retriable(failed),
            Err(failed) => {
                match (failed.class, by_url) {
                    (FailureClass::Absent | FailureClass::Stale | FailureClass::Terminal, true) => {
                        polling.give_up_url(now);
                    }
                    (FailureClass::Absent | FailureClass::Stale, false) => {
                        self.end(now, &pool.lb, WriteEnd::Stale(failed), out);
                    }
                    (
                        FailureClass::EtagRound
                        | FailureClass::Throttled(_)
                        | FailureClass::Retriable
                        | FailureClass::ClientRetry
                        | FailureClass::NotGranted
                        | FailureClass::GateClosed,
                        _,
                    )
                    | (FailureClass::Terminal, false) => {
                        polling.poll_failed(now, failed.failure.retry_after, failed.class.is_throttled());
                    }
                }
                return;
            }
            Ok(_) => {
                polling.poll_failed(now, RetryAfter::Absent, false);
                return;
            }
        };
        self.end(now, &pool.lb, end, out);
    }

    /// Applies the load balancer of an operation. While an operation runs there, polls continue. At rest, the state of
    /// the pool decides. If the read fails, a glance at the pool follows, and polls continue.
    pub(super) fn on_read_back(
        &mut self,
        now: Now,
        began: Now,
        pool: &PoolId,
        attempt: AttemptId,
        read: Result<Arc<LbFacts>, FailedCall>,
        out: &mut Vec<Out>,
    ) {
        let Some(write) = self.write_mut(pool, attempt) else { return };
        let WritePhase::Polling(polling) = &write.phase else { return };
        match polling.step {
            PollStep::ReadingBack(_) => {}
            PollStep::Until(_) | PollStep::Glancing | PollStep::Polling | PollStep::LastRead => return,
        }
        let (put, etag) = (Arc::clone(&polling.put), polling.etag.clone());
        let may_have_ended = polling.may_have_ended();
        let gone = || {
            FailedCall::ours(FailureKind::Status(404), "the load balancer does not have the pool any more")
        };
        let is_read = read.is_ok();
        let end = match read {
            Ok(facts) if shows_rest(&facts) => {
                let facts = facts.pools.iter().find(|facts| facts.id == *pool);
                Some(facts.map_or_else(
                    || WriteEnd::Stale(gone()),
                    |facts| Self::evaluate(write, put, etag, (began, facts)),
                ))
            }
            Err(failed) if failed.class.is_stale() => Some(WriteEnd::Stale(failed)),
            Ok(_) | Err(_) => None,
        };
        let settles = |end: &WriteEnd| may_have_ended || !matches!(end, WriteEnd::Retriable { .. });
        if let Some(end) = end.filter(settles) {
            self.end(now, &pool.lb, end, out);
            return;
        }
        let WritePhase::Polling(polling) = &mut write.phase else { return };
        polling.keep_polling(now);
        if !is_read && polling.glances_instead() {
            polling.glance_before_poll(now);
            let glance = Purpose::Glance(pool.clone(), attempt);
            if !self.calls.is_asked(&glance) {
                self.calls.queue(glance);
            }
        }
    }

    /// Evaluates a pool that was read because its operation could not be followed to its end. In sync means written;
    /// anything else is retriable (W2). Unlike the GET before a write, it is compared with the goal of the PUT, not
    /// with the newest level. `began` is the time at which its GET began. No proof of ownership is needed, because no
    /// PUT follows from it.
    fn evaluate(
        write: &Write,
        put: Arc<Put>,
        etag: Option<Etag>,
        (began, facts): (Now, &Arc<PoolFacts>),
    ) -> WriteEnd {
        let level = write.taken().map(|taken| &taken.level);
        match plan(facts, level, &put.draining, None) {
            Plan::Unchanged => WriteEnd::Written { facts: Arc::clone(facts), put, as_of: began, etag },
            Plan::Edit(_) => {
                let message = "the pool is not as it was written";
                WriteEnd::retriable(FailedCall::ours(FailureKind::Operation, message))
            }
        }
    }
}

/// Returns whether an answer shows that an operation has ended.
fn is_end(answer: &Answered) -> bool {
    match answer {
        Ok(ArmAnswer::Operation(state)) => match state {
            OperationState::Succeeded | OperationState::Failed(_) | OperationState::Canceled(_) => true,
            OperationState::Running { .. } => false,
        },
        Ok(_) | Err(_) => false,
    }
}
