//! The end of a write: answers to its parts, and the effect on its lane (docs/design/writer.md, W2, W5; Q6, N3).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use model::arm::Failure;
use model::attempt::Outcome;
use model::ids::{AttemptId, Etag, LbName, PoolId};
use model::machine::Now;
use model::sample::GateClass;

use super::classify::{Class, Scope, Stage, classify, may_be_carried_out};
use super::gate::named_until;
use super::lane::Closed;
use super::plan::Change;
use super::slot::Why;
use super::verify::Written;
use super::write::{Membership, Phase, Put, Write};
use super::{Out, Writer};

/// The end of a write.
#[derive(Debug)]
pub(super) enum End {
    /// The operation has succeeded.
    Written { put: Arc<Put>, members: BTreeSet<IpAddr>, etag: Option<Etag> },
    /// Nothing had to change.
    Unchanged(BTreeSet<IpAddr>),
    /// A dry run did not send the PUT (C4).
    Withheld(Arc<Put>),
    /// A permit was refused before anything was sent.
    NotGranted,
    /// The pool or its load balancer does not exist.
    Stale(Arc<Failure>),
    /// Another try may succeed, not before `eligible_at`.
    Retriable { failure: Arc<Failure>, eligible_at: Option<Now> },
    /// Another try would not succeed.
    Terminal(Arc<Failure>),
    /// Shutdown, or lost leadership.
    Interrupted,
    /// The result is not needed any more.
    Left,
}

impl End {
    /// The end for a PUT that ARM reports as carried out in full.
    pub(super) fn written(put: Arc<Put>, etag: Option<Etag>) -> End {
        End::Written { members: put.change.members.clone(), put, etag }
    }
}

impl Writer {
    /// Handles a failure by its class (W5).
    pub(super) fn fail(
        &mut self,
        now: Now,
        lb: &LbName,
        stage: Stage,
        failure: Arc<Failure>,
        out: &mut Vec<Out>,
    ) {
        let gate = match stage {
            Stage::Read => self.gates.closed(now, GateClass::Reads),
            Stage::Put => self.gates.closed(now, GateClass::Writes),
            Stage::Poll => None,
        };
        let class = self.params.throttling.class(classify(&failure, stage));
        let named = self.note_throttle(now, lb, class, &failure);
        if self.params.retry_throttled && class.is_throttled() && self.wait_for_throttle(now, lb, stage) {
            return;
        }
        let end = match class {
            Class::Stale => End::Stale(failure),
            Class::EtagRound => {
                if self.begin_round(now, lb) {
                    return;
                }
                End::Retriable { failure, eligible_at: None }
            }
            Class::Throttled(Scope::Lane) => End::Retriable { failure, eligible_at: named },
            Class::Throttled(Scope::Subscription) => End::Retriable { failure, eligible_at: gate.max(named) },
            // The time of our own gate is more accurate than that of the ARM port.
            Class::GateClosed => {
                let eligible_at = gate.max(named).or_else(|| named_until(now, &failure));
                End::Retriable { failure, eligible_at }
            }
            Class::Retriable => End::Retriable { failure, eligible_at: None },
            Class::ClientRetry => return self.try_again_later(now, lb, stage, failure, out),
            Class::Terminal => End::Terminal(failure),
            Class::NotGranted => End::NotGranted,
        };
        self.end(now, lb, end, out);
    }

    /// Records the time before which ARM wants no calls of this write, and returns the latest such time. It binds
    /// this write even when the gate opens earlier for others (W6).
    fn note_throttle(&mut self, now: Now, lb: &LbName, class: Class, failure: &Failure) -> Option<Now> {
        let write = self.open_write_mut(lb)?;
        if let Class::Throttled(_) = class {
            write.course.named = write.course.named.max(named_until(now, failure));
        }
        write.course.named
    }

    /// Begins another round from GET after an entity tag has changed, if the attempt has one left (W2). A closed gate
    /// ends the write, as it would end any read. The PUT of that round needs another token of the cloud
    /// configuration's rate limit (W9): without one, the write gives back lane and turn, and the next grant continues
    /// the attempt.
    fn begin_round(&mut self, now: Now, lb: &LbName) -> bool {
        let Some(write) = self.open_write(lb) else { return false };
        let moved = write.course.moved.saturating_add(1);
        let goes_on = moved < self.params.etag_rounds
            && write.is_wanted()
            && self.is_current(write.attempt)
            && self.gates.closed(now, GateClass::Reads).is_none();
        if !goes_on {
            return false;
        }
        let has_token = !self.budget.lacks_rate(now, GateClass::Writes);
        let Some(write) = self.open_write_mut(lb) else { return false };
        write.course.moved = moved;
        if has_token {
            write.token = true;
            self.budget.spend(now, GateClass::Writes);
            self.queue_read(lb);
        } else {
            self.set_aside(now, lb, now, Why::Rate);
        }
        true
    }

    /// Ends the write of a lane: answers its parts, frees lane and turn, and starts verification.
    pub(super) fn end(&mut self, now: Now, lb: &LbName, end: End, out: &mut Vec<Out>) {
        let Some(write) = self.take_write(now, lb) else { return };
        self.note_puts(now, &write);
        self.tell_missed(&write.pool, write.course.told, &left_behind(&write, &end), out);
        self.note_end(now, &write, &end, out);
        let pool = write.pool.clone();
        self.end_admin(now, &write, &end, out);
        if let (Some(taken), End::Written { put, etag, .. }) = (write.taken(), &end)
            && self.is_current(write.attempt)
        {
            let written = Written {
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
        if matches!(write.phase, Phase::Polling(_)) {
            self.verifications.operation_ended(now, lb);
        }
        match write.membership {
            Membership::Not => {}
            Membership::Asked(_) | Membership::Taken(..) => {
                if let Some(outcome) = outcome_of(end) {
                    tell_outcome(self.pace(now), pool, write.attempt, outcome, out);
                }
            }
        }
    }

    /// Shortest interval between a pool's attempts. `None`: the configured interval (Q2).
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
                Some(write) if matches!(write.phase, Phase::Putting(_)) => {
                    let admin = write.admin.take();
                    let membership = std::mem::replace(&mut write.membership, Membership::Not);
                    let (pool, attempt) = (write.pool.clone(), write.attempt);
                    if let Some(due) = admin {
                        lane.edit(&pool.pool, |slot| slot.return_admin(due));
                    }
                    match membership {
                        Membership::Not => {}
                        Membership::Asked(_) | Membership::Taken(..) => {
                            out.push(Out::Finished(pool, attempt, Outcome::Interrupted));
                        }
                    }
                }
                Some(_) => self.end(now, &lb, End::Interrupted, out),
                None => {}
            }
            self.touch(&lb);
        }
    }

    /// Interrupts all attempts whose PUT was not sent, because the process is shutting down. Polls are left to the
    /// next process.
    pub(super) fn abandon_lanes(&mut self, now: Now, out: &mut Vec<Out>) {
        let lbs: Vec<LbName> = self.lanes.keys().cloned().collect();
        for lb in lbs {
            self.interrupt_resumes(&lb, out);
            let sent = self.open_write(&lb);
            if !sent.is_some_and(|write| matches!(write.phase, Phase::Putting(_))) {
                self.end(now, &lb, End::Interrupted, out);
            }
            if let Some(lane) = self.lanes.get_mut(&lb) {
                lane.clear_slots();
                lane.closed = Closed::Open;
            }
            self.touch(&lb);
        }
    }
}

/// Reports the outcome of an attempt to its pool. While the write budget is low, first reports the interval between
/// attempts (Q2).
pub(super) fn tell_outcome(
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

/// PUTs of an ended write whose result may be in the pool, unless a later GET has shown the pool in sync.
fn left_behind<'a>(write: &'a Write, end: &'a End) -> Vec<&'a Put> {
    let unsure = write.course.unsure.iter().map(|put| &**put);
    let sent = match (end, &write.phase) {
        (End::Written { put, .. }, _) => return vec![&**put],
        (End::Unchanged(_) | End::Withheld(_) | End::Stale(_), _) => return Vec::new(),
        (End::Retriable { failure, .. } | End::Terminal(failure), Phase::Putting(put)) => {
            may_be_carried_out(failure).then_some(put)
        }
        (End::Interrupted | End::Left, Phase::Putting(put)) => Some(put),
        (
            End::Retriable { .. } | End::Terminal(_) | End::Interrupted | End::Left | End::NotGranted,
            Phase::Polling(polling),
        ) => Some(&polling.put),
        (End::NotGranted, Phase::Putting(_))
        | (
            End::Retriable { .. } | End::Terminal(_) | End::Interrupted | End::Left | End::NotGranted,
            Phase::Taking | Phase::Reading,
        ) => None,
    };
    unsure.chain(sent.map(|put| &**put)).collect()
}

/// The outcome for the pool. `None`: the pool has no open attempt.
fn outcome_of(end: End) -> Option<Outcome> {
    Some(match end {
        End::Written { put, members, .. } => {
            let Change { added, removed, .. } = put.change.clone();
            Outcome::Written { members, added, removed, record: Arc::clone(&put.record) }
        }
        End::Unchanged(members) => Outcome::Unchanged { members },
        End::Withheld(put) => {
            let Change { added, removed, .. } = put.change.clone();
            // A dry run leaves the members as they are: the planned members without the added ones, and with the
            // removed ones.
            let members = put.change.members.difference(&added).chain(&removed).copied().collect();
            Outcome::Withheld { members, added, removed }
        }
        End::NotGranted => Outcome::NotGranted,
        End::Stale(_) => Outcome::Stale,
        End::Retriable { failure, eligible_at } => Outcome::Retriable { failure, eligible_at },
        End::Terminal(failure) => Outcome::Terminal { failure },
        End::Interrupted => Outcome::Interrupted,
        End::Left => return None,
    })
}
