//! The fixture's ARM: its faults, and the port to it.

use model::arm::{ArmAnswer, ArmCall, ArmRequest, FailureKind, RetryAfter};
use model::machine::Now;
use pool_core::route::Delivery;

use simulator_models::arm::{Fault, FaultAnswer, FaultBody, FaultEffect, FaultTarget, Reply};

use crate::codec;
use crate::fixture::{Fixture, ip};

impl Fixture {
    /// Makes the next `times` requests of this kind fail with this error. They change nothing.
    pub fn fail(&mut self, target: FaultTarget, times: u64, status: u16, code: &str) {
        self.fault(target, times, FaultEffect::Answer(answer(status, code, None)));
    }

    /// Makes the next requests of several kinds fail with this error.
    pub fn fail_each(&mut self, targets: &[(FaultTarget, u64)], status: u16, code: &str) {
        let fault = |(target, times): &(FaultTarget, u64)| Fault {
            target: *target,
            every: 1,
            limit: Some(*times),
            load_balancer: None,
            effect: FaultEffect::Answer(answer(status, code, None)),
        };
        let faults = targets.iter().map(fault).collect();
        self.model.reconfigure(|settings| settings.faults = faults);
    }

    /// Throttles the next `times` requests of this kind with this code and this `Retry-After`.
    pub fn throttle(&mut self, target: FaultTarget, times: u64, code: &str, retry_after: Option<&str>) {
        self.fault(target, times, FaultEffect::Answer(answer(429, code, retry_after)));
    }

    /// Refuses every try of the next attempt's PUT because another operation runs on the load balancer: the last one
    /// for five minutes, the earlier ones for a second.
    pub fn lock(&mut self) {
        self.lock_for("300");
    }

    /// Locks the load balancer as `lock` does, with this `Retry-After` in the last refusal.
    pub fn lock_for(&mut self, seconds: &str) {
        let tries = self.profile.throttled_tries();
        let refusal = |every, limit, retry_after| Fault {
            target: FaultTarget::PoolPut,
            every,
            limit: Some(limit),
            load_balancer: Some("lb".to_owned()),
            effect: FaultEffect::Answer(answer(429, "RetryableError", Some(retry_after))),
        };
        let faults = vec![refusal(1, tries - 1, "1"), refusal(tries, 1, seconds)];
        self.model.reconfigure(|settings| settings.faults = faults);
    }

    /// Makes this the only fault of ARM from now on.
    pub fn fault(&mut self, target: FaultTarget, times: u64, effect: FaultEffect) {
        let fault = Fault { target, every: 1, limit: Some(times), load_balancer: None, effect };
        self.model.reconfigure(|settings| settings.faults = vec![fault]);
    }

    /// Makes this the only fault of ARM from now on, for one load balancer.
    pub fn fault_of(&mut self, lb: &str, target: FaultTarget, times: u64, effect: FaultEffect) {
        let load_balancer = Some(lb.to_owned());
        let fault = Fault { target, every: 1, limit: Some(times), load_balancer, effect };
        self.model.reconfigure(|settings| settings.faults = vec![fault]);
    }

    /// Ends all faults of ARM.
    pub fn end_faults(&mut self) {
        self.model.reconfigure(|settings| settings.faults.clear());
    }

    /// Writes the members of `lb/shop-web` as another client. Returns the status of the answer.
    pub fn foreign_put(&mut self, members: &[u8]) -> u16 {
        let members: Vec<(String, String)> =
            members.iter().map(|n| (format!("node-{n}"), ip(*n).to_string())).collect();
        let members: Vec<(&str, &str)> = members.iter().map(|(name, ip)| (&**name, &**ip)).collect();
        self.model.foreign_put("lb", "shop-web", &members, self.now)
    }

    /// Handles a call as the arm port does: the gate policy first, then the request.
    pub(super) fn call(&mut self, call: &ArmCall) {
        let writes = matches!(call.request, ArmRequest::PutPool { .. });
        let now = Now::from_micros(self.now);
        let closed = self.gates[usize::from(writes)].filter(|until| *until > now);
        let (after, answer) = match closed {
            Some(until) => (0, codec::unanswered(FailureKind::GateClosed, RetryAfter::In(until.since(now)))),
            None => self.send(&call.request),
        };
        self.push(self.now + after, Delivery::Writer(writer::In::Answered(call.id, answer)));
    }

    fn send(&mut self, request: &ArmRequest) -> (u64, ArmAnswer) {
        let (http, _) = codec::request(request);
        match self.model.handle(&http, self.now) {
            Reply::Answer(response) => (response.latency_us, codec::answer(request, &response)),
            Reply::Lost { latency_us } => {
                (latency_us, codec::unanswered(FailureKind::Connection, RetryAfter::Absent))
            }
            Reply::Refused => (1_000, codec::unanswered(FailureKind::Connection, RetryAfter::Absent)),
        }
    }
}

/// Returns an error answer of ARM.
fn answer(status: u16, code: &str, retry_after: Option<&str>) -> FaultAnswer {
    FaultAnswer {
        status,
        code: code.to_owned(),
        message: "It did not work.".to_owned(),
        retry_after: retry_after.map(str::to_owned),
        body: FaultBody::Standard,
    }
}
