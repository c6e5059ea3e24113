//! The port to ARM over the modelled ARM. A call waits for its connection, passes the per-try policy when it is sent,
//! reaches ARM later, and is answered independently: some answers arrive late, twice or never.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::arm::{ArmAnswer, ArmCall, ArmRequest, EntryNetwork, FailureKind, Provisioning, RetryAfter};
use model::ids::{Etag, LbName};
use model::machine::Now;
use model::sample::GateClass;
use serde_json::Value;
use simulator_models::arm::{ArmModel, Reply, Request, Response};

use crate::ccm::FOREIGN;
use crate::codec;
use crate::plant::Plant;
use crate::random::Random;

/// Timeout of the client.
pub const CLIENT_TIMEOUT_US: u64 = 20_000_000;

/// The port of one process.
pub struct ArmPort {
    random: Random,
    plant: Option<Plant>,
    reads_until: Option<Now>,
    writes_until: Option<Now>,
    first_etag: Option<Etag>,
    /// Load balancers to which a PUT was sent.
    written: BTreeSet<LbName>,
    /// Probability, in thousandths, that an answer arrives twice, up to minutes apart.
    pub duplicate_per_mille: u64,
    /// Probability, in thousandths, that an answer arrives after the writer's timeout.
    pub late_per_mille: u64,
    /// Probability, in thousandths, that the preparation or transit of a request takes seconds.
    pub slow_per_mille: u64,
    /// Time until which ARM is unreachable.
    pub unreachable_until: u64,
    /// Time at which the current read of a load balancer ends.
    reading_until: u64,
}

/// A sent request.
#[derive(Debug)]
pub struct Sent {
    /// The request.
    pub request: ArmRequest,
    /// The HTTP request.
    pub http: Request,
    /// The body of a PUT.
    pub body: Option<Value>,
    /// Time of sending.
    pub at: u64,
}

/// Outcome of a request, at ARM or on the network.
pub struct Taken {
    /// The answer.
    pub answer: ArmAnswer,
    /// Arrival times of the answer, one or two.
    pub arrives: Vec<u64>,
    /// Request class that a 429 of the subscription closes, and the duration (W6). Applied at the first arrival.
    pub throttled: Option<Throttled>,
}

/// Returns the class of a request.
pub fn class_of(request: &ArmRequest) -> GateClass {
    match request {
        ArmRequest::PutPool { .. } => GateClass::Writes,
        ArmRequest::GetLoadBalancer(_) | ArmRequest::GetPool(_) | ArmRequest::Poll(_) => GateClass::Reads,
    }
}

impl ArmPort {
    /// Creates a port with open gates.
    pub fn new(random: Random, plant: Option<Plant>) -> ArmPort {
        let (reads_until, writes_until, first_etag, written) = Default::default();
        let (duplicate_per_mille, late_per_mille, slow_per_mille, unreachable_until) = (0, 0, 0, 0);
        let reading_until = 0;
        ArmPort {
            random,
            plant,
            reads_until,
            writes_until,
            first_etag,
            written,
            duplicate_per_mille,
            late_per_mille,
            slow_per_mille,
            unreachable_until,
            reading_until,
        }
    }

    /// Sets the time until which each request class is refused (W6).
    pub fn set_gates(&mut self, reads_until: Option<Now>, writes_until: Option<Now>) {
        (self.reads_until, self.writes_until) = (reads_until, writes_until);
    }

    /// Returns the wait of a call for a token and a connection.
    pub fn preparation(&mut self) -> u64 {
        if self.random.per_mille(self.slow_per_mille) {
            self.random.between(1_000_000, 30_000_000)
        } else {
            self.random.between(50, 2_000)
        }
    }

    /// Returns how long a request takes to reach ARM: less than the client's timeout.
    pub fn transit_time(&mut self) -> u64 {
        if self.random.per_mille(self.slow_per_mille) {
            self.random.between(1_000_000, CLIENT_TIMEOUT_US)
        } else {
            self.random.between(200, 5_000)
        }
    }

    /// Returns the refusal by the per-try policy before anything is sent (W6, W8).
    pub fn refusal(&self, now: Now, request: &ArmRequest) -> Option<ArmAnswer> {
        let until = match class_of(request) {
            GateClass::Writes => self.writes_until,
            GateClass::Reads => self.reads_until,
        };
        if let ArmRequest::PutPool { permit, .. } = request
            && permit.send_deadline < now
            && self.plant != Some(Plant::PermitUnchecked)
        {
            return Some(codec::unanswered(FailureKind::PermitExpired, RetryAfter::Absent));
        }
        let remaining: Duration = until.filter(|until| *until > now)?.since(now);
        Some(codec::unanswered(FailureKind::GateClosed, RetryAfter::In(remaining)))
    }

    /// Returns the time of the next attempt if load balancers are read one after another; `None` if the call is sent
    /// now.
    pub fn retry_at_if_serialized(&mut self, now: u64, request: &ArmRequest) -> Option<u64> {
        let ArmRequest::GetLoadBalancer(_) = request else { return None };
        if self.plant != Some(Plant::ReadsInSeries) {
            return None;
        }
        if self.reading_until > now {
            return Some(now + 20_000);
        }
        self.reading_until = now + CLIENT_TIMEOUT_US;
        None
    }

    /// Sends a call.
    pub fn send(&mut self, model: &ArmModel, now: u64, call: &ArmCall) -> Sent {
        let mut request = call.request.clone();
        if let ArmRequest::PutPool { if_match: Some(etag), pool, .. } = &mut request {
            match self.plant {
                Some(Plant::StaleEtag) => {
                    *etag = self.first_etag.get_or_insert_with(|| etag.clone()).clone();
                }
                Some(Plant::EtagRefreshed) => {
                    if let Some(newest) = model.etag(pool.lb.as_str()) {
                        *etag = Etag::new(newest);
                    }
                }
                Some(_) | None => {}
            }
        }
        if let (ArmRequest::PutPool { edit, .. }, Some(Plant::AdminTakesMembers)) = (&mut request, self.plant)
            && edit.add.is_empty()
            && edit.remove.is_empty()
        {
            edit.remove.insert(0);
        }
        if let (ArmRequest::PutPool { edit, .. }, Some(Plant::SubnetIgnored)) = (&mut request, self.plant) {
            let is_subnet = |named: &Arc<EntryNetwork>| matches!(&**named, EntryNetwork::Subnet(_));
            for new in &mut edit.add {
                new.network.take_if(|named| is_subnet(named));
            }
        }
        if let ArmRequest::PutPool { pool, .. } = &request {
            self.written.insert(pool.lb.clone());
        }
        let (http, body) = codec::request(&request);
        Sent { request, http, body, at: now }
    }

    /// Returns the outcome of a request that could not be sent, or whose answer is lost.
    pub fn unreachable_answer(&mut self, now: u64) -> Taken {
        let at = if self.random.per_mille(500) { now + 1_000 } else { now + CLIENT_TIMEOUT_US };
        let kind = if at == now + 1_000 { FailureKind::Connection } else { FailureKind::Timeout };
        Taken { answer: codec::unanswered(kind, RetryAfter::Absent), arrives: vec![at], throttled: None }
    }

    /// Returns the outcome of a request, with the delay or loss of ARM's reply.
    pub fn deliver(&mut self, now: u64, sent: &Sent, reply: &Reply) -> Taken {
        let mut throttled = None;
        let (at, answer) = match reply {
            Reply::Answer(response) => {
                throttled = parse_throttling(&sent.request, response);
                let answer = codec::answer(&sent.request, response);
                (now + response.latency_us, self.plant_answer(&sent.request, answer, response))
            }
            Reply::Refused => (now + 1_000, codec::unanswered(FailureKind::Connection, RetryAfter::Absent)),
            Reply::Lost { latency_us } => {
                if self.random.per_mille(500) {
                    (now + latency_us, codec::unanswered(FailureKind::Connection, RetryAfter::Absent))
                } else {
                    (u64::MAX, codec::unanswered(FailureKind::Timeout, RetryAfter::Absent))
                }
            }
        };
        let (at, answer) = if at > sent.at + CLIENT_TIMEOUT_US {
            throttled = None;
            (sent.at + CLIENT_TIMEOUT_US, codec::unanswered(FailureKind::Timeout, RetryAfter::Absent))
        } else {
            (at, answer)
        };
        let late = if self.random.per_mille(self.late_per_mille) { 95_000_000 } else { 0 };
        if late > 0 {
            throttled = None; // It is not received.
        }
        if let ArmRequest::GetLoadBalancer(_) = sent.request {
            self.reading_until = at.max(now + 1);
        }
        let mut arrives = vec![at.max(now + 1) + late];
        if self.random.per_mille(self.duplicate_per_mille) {
            let gap = if self.random.per_mille(500) { 100_000_000 } else { 3_000_000 };
            arrives.push(arrives[0] + self.random.below(gap));
        }
        Taken { answer, arrives, throttled }
    }

    fn plant_answer(&self, request: &ArmRequest, mut answer: ArmAnswer, response: &Response) -> ArmAnswer {
        match (self.plant, &mut answer) {
            (Some(Plant::AcceptedIsWritten), ArmAnswer::Put(accepted)) => {
                accepted.provisioning = Provisioning::Succeeded;
                accepted.operation = None;
            }
            (Some(Plant::ProofHidden), ArmAnswer::LoadBalancer(facts)) => {
                let facts = Arc::make_mut(facts);
                facts.rules.retain(|rule| !rule.name.starts_with(FOREIGN));
                for pool in &mut facts.pools {
                    Arc::make_mut(pool).rules.retain(|rule| !rule.starts_with(FOREIGN));
                }
            }
            (Some(Plant::ProofHidden), ArmAnswer::Pool(read)) => {
                let facts = Arc::make_mut(&mut read.facts);
                facts.rules.retain(|rule| !rule.starts_with(FOREIGN));
            }
            (Some(Plant::LanesSeenAtOnce), ArmAnswer::LoadBalancer(facts)) => {
                let facts = Arc::make_mut(facts);
                facts.provisioning = Provisioning::Succeeded;
                for pool in &mut facts.pools {
                    Arc::make_mut(pool).provisioning = Provisioning::Succeeded;
                }
            }
            (Some(Plant::PollsAlone), ArmAnswer::LoadBalancer(facts)) if self.written.contains(&facts.lb) => {
                Arc::make_mut(facts).provisioning = Provisioning::Updating;
            }
            (Some(Plant::CreatedAgainUnseen), ArmAnswer::LoadBalancer(facts)) => {
                Arc::make_mut(facts).guid = None;
            }
            (Some(Plant::LostIsWritten), ArmAnswer::Failed(_)) => {
                if let (ArmRequest::PutPool { .. }, 409 | 429 | 500..) = (request, response.status) {
                    return codec::accepted();
                }
            }
            (Some(Plant::LaneCodeUnread), ArmAnswer::Failed(failure)) => {
                let failure = Arc::make_mut(failure);
                (failure.code, failure.inner_codes) = (None, Vec::new());
            }
            (Some(Plant::QuotaTakenForLane), ArmAnswer::Failed(failure)) if response.status == 429 => {
                let failure = Arc::make_mut(failure);
                failure.code = Some(Arc::from("RetryableErrorDueToAnotherOperation"));
            }
            (_, _) => {}
        }
        answer
    }
}

/// A 429 with a `Retry-After`.
#[derive(Clone, Copy, Debug)]
pub struct Throttled {
    /// Class of the call.
    pub class: GateClass,
    /// Duration.
    pub span: Duration,
    /// True if the cause is another running operation: then only a lane closes, except in the profile of upstream (W6).
    pub is_lock: bool,
}

fn parse_throttling(request: &ArmRequest, response: &Response) -> Option<Throttled> {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or(Value::Null);
    let code = crate::decode::text(&body["error"]["code"]).to_owned();
    let is_lock = code.starts_with("RetryableError") || code == "ReferencedResourceNotProvisioned";
    let seconds: u64 = response.header("Retry-After")?.parse().ok()?;
    let throttled = Throttled { class: class_of(request), span: Duration::from_secs(seconds), is_lock };
    (response.status == 429).then_some(throttled)
}
