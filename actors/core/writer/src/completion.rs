//! The end of a write: answers to its parts, and the effect on its lane (docs/design/writer.md, W2, W5; Q6, N3).

use std::sync::Arc;
use std::time::Duration;

use model::arm::PoolFacts;
use model::attempt::Outcome;
use model::ids::{AttemptId, Etag, LbName, PoolId};
use model::machine::Now;
use model::sample::GateClass;

use super::classify::{FailedCall, FailedPut, FailureClass};
use super::gate::named_until;
use super::lane::LaneState;
use super::plan::PoolChange;
use super::slot::WaitReason;
use super::verify::WrittenPool;
use super::write::{MembershipPart, Put, Write, WritePhase};
use super::{Out, Writer};

/// The end of a write.
#[derive(Debug)]
pub(super) enum WriteEnd {
    /// The operation has succeeded.
    Written { put: Arc<Put>, facts: Arc<PoolFacts>, as_of: Now, etag: Option<Etag> },
    /// Nothing had to change.
    Unchanged { facts: Arc<PoolFacts>, as_of: Now },
    /// A dry run did not send the PUT (C4).
    Withheld(Arc<Put>),
    /// A permit was refused before anything was sent.
    NotGranted,
    /// The pool or its load balancer does not exist.
    Stale(FailedCall),
    /// Another try may succeed, not before `eligible_at`.
    Retriable { failed: FailedCall, eligible_at: Option<Now> },
    /// Another try would not succeed.
    Terminal(FailedCall),
    /// Shutdown, or lost leadership.
    Interrupted,
    /// The result is not needed any more.
    Abandoned,
}

impl WriteEnd {
    /// Returns the end for a PUT that ARM reports as carried out in full. No other client can have written the pool
    /// before `as_of`, at which the PUT was sent or its operation ran.
    pub(super) fn written(put: Arc<Put>, as_of: Now, etag: Option<Etag>) -> WriteEnd {
        WriteEnd::Written { facts: Arc::clone(&put.leaves), put, as_of, etag }
    }

    /// Returns the end for a failure after which another try may succeed at any time.
    pub(super) fn retriable(failed: FailedCall) -> WriteEnd {
        WriteEnd::Retriable { failed, eligible_at: None }
    }
}

impl Writer {
    /// Handles a failed read or PUT by its class (W5).
    pub(super) fn fail(
        &mut self,
        now: Now,
        lb: &LbName,
        verb: GateClass,
        failed: FailedCall,
        out: &mut Vec<Out>,
    ) {
        let class = failed.class;
        let gate = self.gates.closed(now, verb);
        let named = self.record_throttle(now, lb, &failed);
        if self.params.retry_throttled && class.is_throttled() && self.wait_for_throttle(now, lb, verb) {
            return;
        }
        let end = match class {
            FailureClass::Absent | FailureClass::Stale => WriteEnd::Stale(failed),
            FailureClass::EtagRound => {
                if self.begin_round(now, lb) {
                    return;
                }
                WriteEnd::retriable(failed)
            }
            FailureClass::Throttled(scope) => {
                let gate = gate.filter(|_| self.params.throttling.closes_gate(scope));
                WriteEnd::Retriable { failed, eligible_at: gate.max(named) }
            }
            // The time of our own gate is more accurate than that of the ARM port.
            FailureClass::GateClosed => {
                let eligible_at = gate.max(named).or_else(|| named_until(now, &failed.failure));
                WriteEnd::Retriable { failed, eligible_at }
            }
            FailureClass::Retriable => WriteEnd::retriable(failed),
            FailureClass::ClientRetry => return self.retry_later(now, lb, verb, failed, out),
            FailureClass::Terminal => WriteEnd::Terminal(failed),
            FailureClass::NotGranted => WriteEnd::NotGranted,
        };
        self.end(now, lb, end, out);
    }

    /// Records the time before which ARM wants no calls of this write, and returns the latest such time. It binds
    /// this write even when the gate opens earlier for others (W6).
    fn record_throttle(&mut self, now: Now, lb: &LbName, failed: &FailedCall) -> Option<Now> {
        let write = self.open_write_mut(lb)?;
        if let FailureClass::Throttled(_) = failed.class {
            write.history.named = write.history.named.max(named_until(now, &failed.failure));
        }
        write.history.named
    }

    /// Begins another round from GET after an entity tag has changed, if the attempt has one left (W2). A closed gate
    /// ends the write, as it would end any read. The PUT of that round needs another token of the cloud
    /// configuration's rate limit (W9): without one, the write gives back lane and turn, and the next grant continues
    /// the attempt.
    fn begin_round(&mut self, now: Now, lb: &LbName) -> bool {
        let Some(write) = self.open_write(lb) else { return false };
        let etag_changes = write.history.etag_changes.saturating_add(1);
        let has_round = etag_changes < self.params.etag_rounds
            && write.has_parts()
            && self.is_current(write.attempt)
            && self.gates.closed(now, GateClass::Reads).is_none();
        if !has_round {
            return false;
        }
        let has_token = !self.budget.lacks_rate(now, GateClass::Writes);
        let Some(write) = self.open_write_mut(lb) else { return false };
        write.history.etag_changes = etag_changes;
        if has_token {
            write.token = true;
            self.budget.spend(now, GateClass::Writes);
            self.queue_read(lb);
        } else {
            self.set_aside(now, lb, now, WaitReason::Rate);
        }
        true
    }

    /// Ends the write of a lane: answers its parts, frees lane and turn, and starts verification.
    pub(super) fn end(&mut self, now: Now, lb: &LbName, end: WriteEnd, out: &mut Vec<Out>) {
        let Some(write) = self.take_write(now, lb) else { return };
        self.record_puts(now, &write);
        self.record_end(now, &write, &end, out);
        let pool = write.pool.clone();
        self.end_admin(now, &write, &end, out);
        if let (Some(taken), WriteEnd::Written { put, etag, .. }) = (write.taken(), &end)
            && self.is_current(write.attempt)
        {
            let written = WrittenPool {
                attempt: write.attempt,
                required: taken.level.required.keys().copied().collect(),
                removed: put.change.removed.clone(),
                before: put
                    .change
                    .members
                    .difference(&put.change.added)
                    .chain(&put.change.removed)
                    .copied()
                    .collect(),
                etag: etag.clone(),
                began: write.granted,
            };
            self.verifications.start(now, pool.clone(), written);
        }
        if matches!(write.phase, WritePhase::Polling(_)) {
            self.verifications.operation_ended(now, lb);
        }
        match write.membership {
            MembershipPart::Absent => {}
            MembershipPart::Requested(_) | MembershipPart::Taken(..) => {
                if let Some(outcome) = outcome_of(end) {
                    report_outcome(self.pace(now), pool, write.attempt, outcome, out);
                }
            }
        }
    }

    /// Returns the shortest interval between a pool's attempts. `None`: the configured interval (Q2).
    pub(super) fn pace(&self, now: Now) -> Option<Duration> {
        self.budget.stretched(now, self.params.min_interval)
    }

    /// Takes the write out of its lane, and returns its token if no PUT was sent.
    pub(super) fn take_write(&mut self, now: Now, lb: &LbName) -> Option<Write> {
        let write = self.lanes.get_mut(lb)?.write.take()?;
        if write.token {
            self.budget.refund(now, GateClass::Writes);
        }
        Some(write)
    }

    /// Ends all writes after leadership is lost. Only PUTs in flight keep their lanes until they are answered (W8).
    pub(super) fn interrupt_all(&mut self, now: Now, out: &mut Vec<Out>) {
        let lbs: Vec<LbName> = self.lanes.keys().cloned().collect();
        for lb in lbs {
            self.interrupt_resumes(&lb, out);
            let Some(lane) = self.lanes.get_mut(&lb) else { continue };
            match &mut lane.write {
                Some(write) if matches!(write.phase, WritePhase::Putting(_)) => {
                    let admin = write.admin.take();
                    let membership = std::mem::replace(&mut write.membership, MembershipPart::Absent);
                    let (pool, attempt) = (write.pool.clone(), write.attempt);
                    if let Some(due) = admin {
                        lane.edit(&pool.pool, |slot| slot.return_admin(due));
                    }
                    match membership {
                        MembershipPart::Absent => {}
                        MembershipPart::Requested(_) | MembershipPart::Taken(..) => {
                            out.push(Out::Finished(pool, attempt, Outcome::Interrupted));
                        }
                    }
                }
                Some(_) => self.end(now, &lb, WriteEnd::Interrupted, out),
                None => {}
            }
            self.touch(&lb);
        }
    }

    /// Interrupts all attempts whose PUT was not sent, because the process is shutting down. Polling stops: the next
    /// process reads the load balancer before its first write.
    pub(super) fn abandon_lanes(&mut self, now: Now, out: &mut Vec<Out>) {
        let lbs: Vec<LbName> = self.lanes.keys().cloned().collect();
        for lb in lbs {
            self.interrupt_resumes(&lb, out);
            let sent = self.open_write(&lb);
            if !sent.is_some_and(|write| matches!(write.phase, WritePhase::Putting(_))) {
                self.end(now, &lb, WriteEnd::Interrupted, out);
            }
            if let Some(lane) = self.lanes.get_mut(&lb) {
                lane.clear_slots();
                lane.closed = LaneState::Open;
            }
            self.touch(&lb);
        }
    }
}

/// Reports the outcome of an attempt to its pool. While the write budget is low, first reports the interval between
/// attempts (Q2).
pub(super) fn report_outcome(
    pace: Option<Duration>,
    pool: PoolId,
    attempt: AttemptId,
    outcome: Outcome,
    out: &mut Vec<Out>,
) {
    let paced = match &outcome {
        Outcome::Written { .. }
        | Outcome::Unchanged { .. }
        | Outcome::Withheld { .. }
        | Outcome::Stale
        | Outcome::NotManageable(_)
        | Outcome::Retriable { .. }
        | Outcome::Terminal { .. } => pace,
        Outcome::NotGranted | Outcome::Interrupted => None,
    };
    if let Some(interval) = paced {
        out.push(Out::Pace(pool.clone(), interval));
    }
    out.push(Out::Finished(pool, attempt, outcome));
}

/// Returns the PUTs of an ended write that may have changed the pool; none if a GET has shown the pool.
pub(super) fn left_behind<'a>(write: &'a Write, end: &'a WriteEnd) -> Vec<&'a Put> {
    let unconfirmed_puts = write.history.unconfirmed_puts.iter().map(|put| &**put);
    let sent = match (end, &write.phase) {
        (WriteEnd::Written { put, .. }, _) => return vec![&**put],
        (WriteEnd::Unchanged { .. } | WriteEnd::Withheld(_) | WriteEnd::Stale(_), _) => return Vec::new(),
        (WriteEnd::Retriable { failed, .. } | WriteEnd::Terminal(failed), WritePhase::Putting(put)) => {
            (failed.put != FailedPut::Refused).then_some(put)
        }
        (WriteEnd::Interrupted | WriteEnd::Abandoned, WritePhase::Putting(put)) => Some(put),
        (
            WriteEnd::Retriable { .. }
            | WriteEnd::Terminal(_)
            | WriteEnd::Interrupted
            | WriteEnd::Abandoned
            | WriteEnd::NotGranted,
            WritePhase::Polling(polling),
        ) => Some(&polling.put),
        (WriteEnd::NotGranted, WritePhase::Putting(_))
        | (
            WriteEnd::Retriable { .. }
            | WriteEnd::Terminal(_)
            | WriteEnd::Interrupted
            | WriteEnd::Abandoned
            | WriteEnd::NotGranted,
            WritePhase::Taking | WritePhase::Reading,
        ) => None,
    };
    unconfirmed_puts.chain(sent.map(|put| &**put)).collect()
}

/// Returns the outcome for the pool. `None`: the pool has no open attempt.
fn outcome_of(end: WriteEnd) -> Option<Outcome> {
    Some(match end {
        WriteEnd::Written { put, facts, .. } => {
            let PoolChange { added, removed, .. } = put.change.clone();
            let record = Arc::clone(&put.record);
            Outcome::Written { members: facts.members(), added, removed, record }
        }
        WriteEnd::Unchanged { facts, .. } => Outcome::Unchanged { members: facts.members() },
        WriteEnd::Withheld(put) => {
            let PoolChange { added, removed, .. } = put.change.clone();
            // A dry run leaves the members as they are: the planned members without the added ones, and with the
            // removed ones.
            let members = put.change.members.difference(&added).chain(&removed).copied().collect();
            Outcome::Withheld { members, added, removed }
        }
        WriteEnd::NotGranted => Outcome::NotGranted,
        WriteEnd::Stale(_) => Outcome::Stale,
        WriteEnd::Retriable { failed, eligible_at } => {
            Outcome::Retriable { failure: failed.failure, eligible_at }
        }
        WriteEnd::Terminal(failed) => Outcome::Terminal { failure: failed.failure },
        WriteEnd::Interrupted => Outcome::Interrupted,
        WriteEnd::Abandoned => return None,
    })
}
