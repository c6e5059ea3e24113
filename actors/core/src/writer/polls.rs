//! How the operation of an accepted PUT is followed to its end (design.md W2).
//!
//! ARM says when it wants to be asked for an operation again, and that is kept to. Azure's usual ten seconds are twice
//! what half of the operations take; all that time the load balancer's lane, a turn, and the shared Lease would be kept,
//! from other writes and from the cloud-controller-manager, for a write that is done. So between two polls the pool
//! itself is glanced at, as anybody may read it: once nothing runs on it any more and it is as it was to become, the
//! write is done. A glance that shows anything else says nothing, and polls go on. Nothing is glanced at while less than
//! half of the read budget is left.

use std::sync::Arc;

use crate::arm::{ArmAnswer, FailureKind, OperationState, PoolRead, Provisioning, RetryAfter};
use crate::ids::{AttemptId, Etag, LbName, PoolId};
use crate::machine::Now;

use super::budget::Need;
use super::calls::Purpose;
use super::classify::{Class, Stage, classify};
use super::ending::End;
use super::plan::{Plan, plan};
use super::write::{Phase, PollStep, Put, Write};
use super::{Out, Writer, our_failure};

impl Writer {
    /// The time has come to ask for an operation, or to glance at its pool.
    pub(super) fn ask_on(&mut self, now: Now, lb: &LbName) {
        let half = usize::try_from(self.params.reads_per_5_minutes / 2).unwrap_or(usize::MAX);
        let ample = self.budget.allows_after(now, Need::Verify, half);
        let Some(write) = self.open_write_mut(lb) else { return };
        let Phase::Polling(polling) = &mut write.phase else { return };
        if polling.is_overdue(now) {
            polling.operation = None;
            polling.step = PollStep::LastLook;
        } else if polling.is_to_be_asked(now) {
            polling.step = PollStep::Asked;
        } else if !ample {
            polling.wait_for_poll();
            return;
        } else {
            polling.step = PollStep::Glancing;
            let glance = Purpose::Glance(write.pool.clone(), write.attempt);
            self.calls.queue(glance);
            return;
        }
        let poll = Purpose::Poll(write.pool.clone(), write.attempt, polling.operation.clone());
        self.calls.queue(poll);
    }

    /// Takes in what a glance has seen; nothing, where it failed: then the next poll is waited for. One that comes late,
    /// while a poll is under way, counts all the same.
    pub(super) fn on_glance(
        &mut self,
        now: Now,
        pool: &PoolId,
        attempt: AttemptId,
        read: Option<PoolRead>,
        out: &mut Vec<Out>,
    ) {
        let Some(write) = self.write_mut(pool, attempt) else { return };
        let Phase::Polling(polling) = &write.phase else { return };
        let (put, etag) = (Arc::clone(&polling.put), polling.etag.clone());
        let rests = read.as_ref().filter(|read| read.facts.provisioning == Provisioning::Succeeded);
        if let Some(end @ End::Written { .. }) = rests.map(|read| Self::read_back(write, put, etag, read)) {
            self.end(now, &pool.lb, end, out);
            return;
        }
        let Phase::Polling(polling) = &mut write.phase else { return };
        match (polling.step, read) {
            (PollStep::Glancing, Some(_)) => polling.wait_for_glance(now),
            (PollStep::Glancing, None) => polling.wait_for_poll(),
            (PollStep::Until(_) | PollStep::Asked | PollStep::LastLook, _) => {}
        }
    }

    /// Takes in how an operation stands. A poll that failed says nothing about it and only delays the next one;
    /// one that can never succeed, or a 404, means that the URL says nothing, so the pool is read instead (W5).
    pub(super) fn on_poll(
        &mut self,
        now: Now,
        pool: &PoolId,
        attempt: AttemptId,
        answer: ArmAnswer,
        out: &mut Vec<Out>,
    ) {
        let Some(write) = self.write_mut(pool, attempt) else { return };
        let Phase::Polling(polling) = &mut write.phase else { return };
        let last = match polling.step {
            PollStep::Until(_) | PollStep::Glancing => return,
            PollStep::Asked => false,
            PollStep::LastLook => true,
        };
        let end = match answer {
            ArmAnswer::Operation(OperationState::Running { retry_after }) => {
                polling.wait(now, retry_after);
                return;
            }
            ArmAnswer::Operation(OperationState::Succeeded) => {
                End::written(Arc::clone(&polling.put), polling.etag.clone())
            }
            ArmAnswer::Operation(OperationState::Failed(failure)) => {
                self.fail(now, &pool.lb, Stage::Poll, failure, out);
                return;
            }
            ArmAnswer::Operation(OperationState::Canceled(failure)) => {
                End::Retriable { failure, eligible_at: None }
            }
            ArmAnswer::Pool(read) => {
                if read.facts.provisioning == Provisioning::Updating && !last {
                    polling.wait(now, RetryAfter::Absent);
                    return;
                }
                let (put, etag) = (Arc::clone(&polling.put), polling.etag.clone());
                Self::read_back(write, put, etag, &read)
            }
            ArmAnswer::Failed(failure) if last => End::Retriable { failure, eligible_at: None },
            ArmAnswer::Failed(failure) => {
                match (classify(&failure, Stage::Poll), &polling.operation) {
                    (Class::Stale | Class::Terminal, Some(_)) => polling.read_back(now),
                    (Class::Stale, None) => self.end(now, &pool.lb, End::Stale(failure), out),
                    (
                        Class::EtagRound
                        | Class::Throttled(_)
                        | Class::Retriable
                        | Class::ClientRetry
                        | Class::NotGranted
                        | Class::GateClosed,
                        _,
                    )
                    | (Class::Terminal, None) => polling.wait(now, failure.retry_after),
                }
                return;
            }
            ArmAnswer::LoadBalancer(_) | ArmAnswer::Put(_) | ArmAnswer::Withheld => {
                polling.wait(now, RetryAfter::Absent);
                return;
            }
        };
        self.end(now, &pool.lb, end, out);
    }

    /// Judges a pool that was read back after its operation could not be followed to its end: right is written,
    /// all else is worth another try (W2). Unlike the GET before a write it is judged by what the PUT set out to do, not
    /// by what is wished meanwhile, and asks for no proof: nothing follows from it that would be written.
    fn read_back(write: &Write, put: Arc<Put>, etag: Option<Etag>, read: &PoolRead) -> End {
        let level = write.taken().map(|taken| &taken.level);
        match plan(&read.facts, level, &put.draining, None) {
            Plan::Unchanged => End::Written { members: read.facts.members(), put, etag },
            Plan::Edit(_) => {
                let failure = our_failure(FailureKind::Operation, "the pool is not as it was written");
                End::Retriable { failure, eligible_at: None }
            }
        }
    }
}
