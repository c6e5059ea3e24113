//! Sends calls through gates and budget, and routes their answers (docs/design/writer.md, W6, W9; A3).

use std::sync::Arc;

use model::arm::{ArmAnswer, ArmCall, FailureKind, LbFacts, PoolRead, Provisioning};
use model::assignment::Observation;
use model::ids::{CallId, LbName, PoolId};
use model::load_balancers::OurPuts;
use model::machine::Now;
use model::sample::{GateClass, Metric};

use super::classify::{Answered, FailedCall, FailureClass, ThrottleScope};
use super::gate::{gate_closed, lock_delay};
use super::in_flight::{InFlightCall, Purpose, result_of};
use super::lane::LaneState;
use super::verify::Verdict;
use super::write::{PollStep, WritePhase};
use super::{Out, Writer, WriterPhase};

impl Writer {
    pub(super) fn on_discovery_read(&mut self, now: Now, call: CallId, lb: LbName, out: &mut Vec<Out>) {
        if self.phase == WriterPhase::Running {
            // Discovery has at most one read per load balancer. It has abandoned an earlier one that was not sent.
            let same = |waiting: &Purpose| matches!(waiting, Purpose::Discovery(_, other) if *other == lb);
            for given_up in self.calls.take_out(same) {
                answer_unsent(now, given_up, "a newer read took its place", out);
            }
            self.calls.queue(Purpose::Discovery(call, lb));
        } else {
            self.answer_unsent_read(now, Purpose::Discovery(call, lb), out);
        }
    }

    /// Answers a read that is not sent because of the shutdown.
    pub(super) fn answer_unsent_read(&self, now: Now, purpose: Purpose, out: &mut Vec<Out>) {
        answer_unsent(now, purpose, "the process is shutting down", out);
    }

    /// Sends waiting reads in order while the gate is open and tokens are left (W9).
    pub(super) fn send_reads(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.gates.closed(now, GateClass::Reads).is_some() {
            return;
        }
        while let Some(first) = self.calls.first() {
            if !self.is_needed(first) {
                self.calls.take_first();
                continue;
            }
            let need = first.need();
            if !self.budget.allows(now, need) {
                if self.budget.limited_by_rate(now, need).is_some()
                    && let Some(verb) = self.calls.limit_first()
                {
                    out.push(Out::Metric(Metric::RateLimited(verb)));
                }
                return;
            }
            let Some(purpose) = self.calls.take_first() else { return };
            let Some(request) = purpose.read_request() else { continue };
            match purpose {
                Purpose::Discovery(call, _) => {
                    self.budget.spend_discovery(now);
                    out.push(Out::Sent(call));
                }
                Purpose::RestCheck(..)
                | Purpose::PreWrite(..)
                | Purpose::Put(..)
                | Purpose::Poll(..)
                | Purpose::ReadBack(..)
                | Purpose::Glance(..)
                | Purpose::Probe(_)
                | Purpose::InitialRead(_)
                | Purpose::Verify(..)
                | Purpose::Confirm(..) => self.budget.spend(now, GateClass::Reads),
            }
            let id = self.calls.open(now, purpose);
            out.push(Out::Call(ArmCall { id, request }));
        }
    }

    /// Returns the time at which a token admits the first waiting read. `None`: no read waits, or it waits for the
    /// gate.
    pub(super) fn read_refill(&self, now: Now) -> Option<Now> {
        if self.gates.closed(now, GateClass::Reads).is_some() {
            return None;
        }
        self.budget.ready_at(now, self.calls.first()?.need())
    }

    fn is_needed(&self, purpose: &Purpose) -> bool {
        let phase = |pool: &PoolId, attempt| {
            let write = self.open_write(&pool.lb);
            write.filter(|write| write.attempt == attempt).map(|write| &write.phase)
        };
        match purpose {
            Purpose::RestCheck(pool, attempt) | Purpose::PreWrite(pool, attempt) => {
                matches!(phase(pool, *attempt), Some(WritePhase::Reading))
            }
            Purpose::Put(..) => false,
            Purpose::Poll(pool, attempt, _) => match phase(pool, *attempt) {
                Some(WritePhase::Polling(polling)) => {
                    matches!(polling.step, PollStep::Polling | PollStep::LastRead)
                }
                Some(WritePhase::Taking | WritePhase::Reading | WritePhase::Putting(_)) | None => false,
            },
            Purpose::ReadBack(pool, attempt) => match phase(pool, *attempt) {
                Some(WritePhase::Polling(polling)) => matches!(polling.step, PollStep::ReadingBack(_)),
                Some(WritePhase::Taking | WritePhase::Reading | WritePhase::Putting(_)) | None => false,
            },
            Purpose::Glance(pool, attempt) => match phase(pool, *attempt) {
                Some(WritePhase::Polling(polling)) => {
                    matches!(polling.step, PollStep::Glancing | PollStep::ReadingBack(_))
                }
                Some(WritePhase::Taking | WritePhase::Reading | WritePhase::Putting(_)) | None => false,
            },
            Purpose::Probe(pool) => self
                .lanes
                .get(&pool.lb)
                .is_some_and(|lane| matches!(lane.closed, LaneState::InDoubt { next: None, .. })),
            Purpose::InitialRead(lb) => self.lanes.get(lb).is_some_and(|lane| lane.initial_read.is_reading()),
            Purpose::Verify(pool, attempt) | Purpose::Confirm(pool, attempt) => {
                self.verifications.needs(pool, *attempt)
            }
            Purpose::Discovery(..) => true,
        }
    }

    pub(super) fn on_answered(&mut self, now: Now, id: CallId, answer: Answered, out: &mut Vec<Out>) {
        let Some(call) = self.calls.close(id) else {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
            return;
        };
        let (verb, took) = (call.verb(), now.since(call.began));
        out.push(Out::Metric(Metric::ArmCall { verb, took, result: result_of(verb, &answer) }));
        match &answer {
            Ok(answer) => self.record_tags(now, &call, answer),
            Err(failed) => self.apply_throttle(now, &call, failed, out),
        }
        let InFlightCall { purpose, began } = call;
        let lb = purpose.lb().clone();
        match purpose {
            Purpose::RestCheck(pool, attempt) => {
                self.on_rest_check(now, &pool, attempt, lb_read(answer), out);
            }
            Purpose::PreWrite(pool, attempt) => match pool_read(answer) {
                Ok(read) => self.on_pre_write(now, began, &pool, attempt, read, out),
                Err(failed) => self.on_pre_write_failed(now, &pool, attempt, failed, out),
            },
            Purpose::Put(pool, attempt) => self.on_put(now, began, &pool, attempt, answer, out),
            Purpose::Poll(pool, attempt, operation) => {
                self.on_poll(now, began, (&pool, attempt), operation.is_some(), answer, out);
            }
            Purpose::ReadBack(pool, attempt) => {
                self.on_read_back(now, began, &pool, attempt, lb_read(answer), out);
            }
            Purpose::Glance(pool, attempt) => {
                self.on_glance(now, began, &pool, attempt, pool_read(answer).ok(), out);
            }
            Purpose::Probe(pool) => self.on_probe(now, began, &pool, pool_read(answer), out),
            Purpose::InitialRead(_) => self.apply_initial_read(now, id, &lb, true, &lb_read(answer)),
            Purpose::Verify(pool, attempt) => {
                let seen = pool_read(answer).ok().map(|read| (read.facts, began));
                match self.verifications.answered(now, &pool, attempt, seen) {
                    Some(Verdict::Fate(fate)) => out.push(Out::Verified(pool, fate)),
                    Some(Verdict::SeemsLost) => self.calls.queue(Purpose::Confirm(pool, attempt)),
                    None => {}
                }
            }
            Purpose::Confirm(pool, attempt) => {
                let seen = lb_read(answer).ok().map(|facts| (facts, began));
                if let Some(fate) = self.verifications.confirmed(&pool, attempt, seen) {
                    out.push(Out::Verified(pool, fate));
                }
            }
            Purpose::Discovery(call, _) => {
                let read = lb_read(answer);
                self.apply_initial_read(now, id, &lb, false, &read);
                if let Ok(facts) = &read {
                    self.forget_puts(began, facts);
                    if let Some(lane) = self.lanes.get_mut(&lb) {
                        lane.apply_read(began, facts);
                    }
                }
                let result = match read {
                    Ok(facts) => Ok(Some(facts)),
                    Err(failed) if failed.class == FailureClass::Absent => Ok(None),
                    Err(failed) => Err(failed.failure),
                };
                let puts = self.our_puts(&lb, began);
                out.push(Out::Read { call, began, result, puts });
            }
        }
        self.touch(&lb);
    }

    /// Closes a gate, or one lane, after a 429 (W6). A quota 429 also lowers the budget (W9). Writes that wait for
    /// their first read behind a gate that closes have met it.
    fn apply_throttle(&mut self, now: Now, call: &InFlightCall, failed: &FailedCall, out: &mut Vec<Out>) {
        let InFlightCall { purpose, began } = call;
        let FailureClass::Throttled(scope) = failed.class else { return };
        if !self.params.throttling.closes_gate(scope) {
            let lane = self.lane(purpose.lb());
            let until = now.plus(lock_delay(&failed.failure));
            match &mut lane.closed {
                LaneState::Open => lane.closed = LaneState::Until(until),
                LaneState::Until(earlier) => *earlier = until.max(*earlier),
                LaneState::InDoubt { .. } => {}
            }
            return;
        }
        self.gates.throttled(now, purpose.class(), failed.failure.retry_after);
        if scope == ThrottleScope::Subscription {
            self.budget.throttled(now, purpose.class(), *began);
        }
        if self.gates.closed(now, GateClass::Reads).is_none() {
            return;
        }
        let reads = |purpose: &Purpose| matches!(purpose, Purpose::RestCheck(..) | Purpose::PreWrite(..));
        for met in self.calls.take_out(reads) {
            if let Purpose::RestCheck(pool, attempt) | Purpose::PreWrite(pool, attempt) = met {
                self.on_pre_write_failed(now, &pool, attempt, gate_closed(), out);
                self.touch(&pool.lb);
            }
        }
    }

    fn record_tags(&mut self, now: Now, call: &InFlightCall, answer: &ArmAnswer) {
        let lb = call.purpose.lb();
        match answer {
            ArmAnswer::Put(accepted) => self.verifications.add_own_tag(now, lb, accepted.etag.as_ref()),
            ArmAnswer::Pool(read) => self.verifications.observe_tag(call.began, lb, read.etag.as_ref()),
            ArmAnswer::LoadBalancer(facts) => {
                self.verifications.observe_tag(call.began, lb, facts.etag.as_ref());
                self.verifications.observe_guid(call.began, lb, facts.guid.as_ref());
            }
            ArmAnswer::Operation(_) | ArmAnswer::Withheld | ArmAnswer::Failed(_) => {}
        }
    }

    /// Applies a probe of a lane in doubt. The lane opens when a GET shows that nothing runs, or that the pool does
    /// not exist (W4).
    fn on_probe(
        &mut self,
        now: Now,
        began: Now,
        pool: &PoolId,
        read: Result<PoolRead, FailedCall>,
        out: &mut Vec<Out>,
    ) {
        let Some(lane) = self.lanes.get_mut(&pool.lb) else { return };
        let settled = match &read {
            Ok(read) => match read.facts.provisioning {
                Provisioning::Updating => false,
                Provisioning::Succeeded | Provisioning::Failed | Provisioning::Unknown => true,
            },
            Err(failed) => failed.class.is_stale(),
        };
        if !matches!(lane.closed, LaneState::InDoubt { next: None, .. }) {
            return;
        }
        if settled || lane.closed.probes_are_used_up() {
            lane.closed = LaneState::Open;
            if let (true, Ok(read)) = (settled, read) {
                let members = read.facts.members();
                lane.edit(&pool.pool, |slot| {
                    if let Some(resume) = &mut slot.resume {
                        resume.history.seen(&members);
                    }
                });
                out.push(Out::Observed(pool.clone(), Observation { began, facts: read.facts }));
            }
        } else {
            lane.closed.schedule_probe(now);
            self.count_probe_as_try(now, pool, read, out);
        }
    }
}

/// Returns the load balancer in the answer to a GET.
fn lb_read(answer: Answered) -> Result<Arc<LbFacts>, FailedCall> {
    if let ArmAnswer::LoadBalancer(facts) = answer? { Ok(facts) } else { Err(unexpected()) }
}

/// Returns the pool in the answer to a GET.
fn pool_read(answer: Answered) -> Result<PoolRead, FailedCall> {
    if let ArmAnswer::Pool(read) = answer? { Ok(read) } else { Err(unexpected()) }
}

/// Returns the failure for an answer of the wrong kind.
pub(super) fn unexpected() -> FailedCall {
    FailedCall::ours(FailureKind::Undecodable(200), "the answer is of another kind than the request")
}

/// Answers a read that will not be sent, if its caller would wait forever.
fn answer_unsent(now: Now, purpose: Purpose, why: &str, out: &mut Vec<Out>) {
    match purpose {
        Purpose::Discovery(call, _) => {
            let result = Err(FailedCall::ours(FailureKind::Refused, why).failure);
            out.push(Out::Read { call, began: now, result, puts: OurPuts::default() });
        }
        Purpose::RestCheck(..)
        | Purpose::PreWrite(..)
        | Purpose::Put(..)
        | Purpose::Poll(..)
        | Purpose::ReadBack(..)
        | Purpose::Glance(..)
        | Purpose::Probe(_)
        | Purpose::InitialRead(_)
        | Purpose::Verify(..)
        | Purpose::Confirm(..) => {}
    }
}
