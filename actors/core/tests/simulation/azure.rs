//! The port to ARM over the modelled ARM: each call is one request; answers come back on their own, some late,
//! some twice, some never.

use std::time::Duration;

use pool_core::arm::{ArmAnswer, ArmCall, ArmRequest, FailureKind, Provisioning, RetryAfter};
use pool_core::ids::{CallId, Etag};
use pool_core::machine::Now;
use simulator_models::arm::{ArmModel, Reply, Response};

use crate::codec;
use crate::plant::Plant;
use crate::random::Random;
use crate::watchdog::{Put, Watchdog};

/// How long the client waits for an answer.
const CLIENT_TIMEOUT_US: u64 = 20_000_000;

/// The port of one process.
pub struct ArmPort {
    random: Random,
    plant: Option<Plant>,
    reads_until: Option<Now>,
    writes_until: Option<Now>,
    first_etag: Option<Etag>,
    /// In how many of a thousand cases an answer comes twice, up to minutes apart.
    pub twice: u64,
    /// In how many of a thousand cases an answer comes only after the writer has given up waiting.
    pub late: u64,
}

impl ArmPort {
    /// A port with open gates.
    pub fn new(random: Random, plant: Option<Plant>) -> ArmPort {
        let (reads_until, writes_until, first_etag) = (None, None, None);
        ArmPort { random, plant, reads_until, writes_until, first_etag, twice: 0, late: 0 }
    }

    /// Until when each verb class is refused here (W6).
    pub fn set_gates(&mut self, reads_until: Option<Now>, writes_until: Option<Now>) {
        (self.reads_until, self.writes_until) = (reads_until, writes_until);
    }

    /// Makes a call; gives its answers and when they arrive.
    ///
    /// # Errors
    /// What the watchdog finds wrong with it.
    pub fn call(
        &mut self,
        model: &mut ArmModel,
        watchdog: &mut Watchdog,
        now: u64,
        call: &ArmCall,
    ) -> Result<Vec<(u64, CallId, ArmAnswer)>, String> {
        let (at, answer) = match self.refusal(now, &call.request) {
            Some(refusal) => (now, refusal),
            None => self.send(model, watchdog, now, &call.request)?,
        };
        let late = if self.random.per_mille(self.late) { 95_000_000 } else { 0 };
        let at = at.max(now + 1) + late;
        let mut answers = vec![(at, call.id, answer.clone())];
        if self.random.per_mille(self.twice) {
            let gap = if self.random.per_mille(500) { 100_000_000 } else { 3_000_000 };
            answers.push((at + self.random.below(gap), call.id, answer));
        }
        Ok(answers)
    }

    /// What the per-try policy refuses before anything is sent (W6, W8).
    fn refusal(&self, now: u64, request: &ArmRequest) -> Option<ArmAnswer> {
        let now = Now::from_micros(now);
        let until = match request {
            ArmRequest::PutPool { permit, .. } => {
                if permit.send_before < now {
                    return Some(codec::unanswered(FailureKind::PermitExpired, RetryAfter::Absent));
                }
                self.writes_until
            }
            ArmRequest::GetLoadBalancer(_) | ArmRequest::GetPool(_) | ArmRequest::Poll(_) => self.reads_until,
        };
        let remaining: Duration = until.filter(|until| *until > now)?.since(now);
        Some(codec::unanswered(FailureKind::GateClosed, RetryAfter::In(remaining)))
    }

    fn send(
        &mut self,
        model: &mut ArmModel,
        watchdog: &mut Watchdog,
        now: u64,
        request: &ArmRequest,
    ) -> Result<(u64, ArmAnswer), String> {
        let request = self.plant_request(request);
        let (http, body) = codec::request(&request);
        let put = match (&request, &body) {
            (ArmRequest::PutPool { pool, if_match, .. }, Some(body)) => {
                let put = Put { pool, if_match: if_match.as_ref(), body };
                watchdog.before_put(model, now, &put)?;
                Some(put)
            }
            (_, _) => None,
        };
        let reply = model.handle(&http, now);
        if let Some(put) = &put {
            watchdog.after_put(model, now, put, &reply);
        }
        Ok(match reply {
            Reply::Answer(response) => (
                now + response.latency_us,
                self.plant_answer(&request, codec::answer(&request, &response), &response),
            ),
            Reply::Refused => (now + 1_000, codec::unanswered(FailureKind::Connection, RetryAfter::Absent)),
            Reply::Lost { latency_us } => {
                if self.random.per_mille(500) {
                    (now + latency_us, codec::unanswered(FailureKind::Connection, RetryAfter::Absent))
                } else {
                    (now + CLIENT_TIMEOUT_US, codec::unanswered(FailureKind::Timeout, RetryAfter::Absent))
                }
            }
        })
    }

    fn plant_request(&mut self, request: &ArmRequest) -> ArmRequest {
        let mut request = request.clone();
        if let (Some(Plant::StaleEtag), ArmRequest::PutPool { if_match: Some(etag), .. }) =
            (self.plant, &mut request)
        {
            *etag = self.first_etag.get_or_insert_with(|| etag.clone()).clone();
        }
        request
    }

    fn plant_answer(&self, request: &ArmRequest, mut answer: ArmAnswer, response: &Response) -> ArmAnswer {
        match (self.plant, &mut answer) {
            (Some(Plant::AcceptedIsWritten), ArmAnswer::Put(accepted)) => {
                accepted.provisioning = Provisioning::Succeeded;
                accepted.operation = None;
            }
            (Some(Plant::ProofHidden), ArmAnswer::LoadBalancer(facts)) => {
                let facts = std::sync::Arc::make_mut(facts);
                for pool in &mut facts.pools {
                    std::sync::Arc::make_mut(pool).outbound_rule = false;
                }
            }
            (Some(Plant::ProofHidden), ArmAnswer::Pool(read)) => {
                std::sync::Arc::make_mut(&mut read.facts).outbound_rule = false;
            }
            (Some(Plant::LostIsWritten), ArmAnswer::Failed(_)) => {
                if let (ArmRequest::PutPool { .. }, 409 | 429 | 500..) = (request, response.status) {
                    return codec::accepted();
                }
            }
            (_, _) => {}
        }
        answer
    }
}
