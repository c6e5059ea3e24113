//! The port to the two Leases over the modelled API server: requests that arrive late or never, answers that arrive
//! late, twice or never, and a watch for the next state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coordination::leader;
use model::arm::Document;
use model::ids::{CallId, LbName, PoolId, PoolName};
use model::lease::{GateTimes, LeaseAnswer, LeaseEdit, LeaseFacts, LeaseName, LeaseRequest, OutOfSyncTimes};
use model::machine::Now;
use model::object::{RequestFailure, ResourceVersion};
use pool_core::route::Delivery;
use serde_json::{Value, json};
use simulator_models::kube::{KubeModel, Reply, Request, WatchId, rfc3339};

use crate::clock::Clock;
use crate::decode::{parse_time, text};
use crate::kubernetes::Effect;
use crate::plant::Plant;
use crate::random::Random;

/// Namespace of both Leases.
pub const NAMESPACE: &str = "kube-system";
/// The controller's holder identity in the shared Lease.
pub const OURS: &str = "azure-backend-pool-controller";
/// Holder identity that the operator writes into a Lease by hand.
pub const AN_OPERATOR: &str = "a-person";
const READS_UNTIL: &str = "azure-backend-pool-controller.io/reads-throttled-until";
const WRITES_UNTIL: &str = "azure-backend-pool-controller.io/writes-throttled-until";
const OUT_OF_SYNC: &str = "azure-backend-pool-controller.io/out-of-sync-since";
const PREVIOUS_HOLDER: &str = "aks-managed-resource-locker-previous-holder";
const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// Timeout of the port.
pub const REQUEST_TIMEOUT_US: u64 = 10_000_000;

/// Returns the name of the object.
pub fn object_name(lease: LeaseName) -> &'static str {
    match lease {
        LeaseName::Own => "azure-backend-pool-controller",
        LeaseName::Shared => "aks-managed-resource-locker",
    }
}

/// Course of a request.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// Its answer arrives after this time.
    Answered(u64),
    /// Its answer arrives twice, the second time after this additional time.
    Twice(u64),
    /// The request is applied, and its answer is lost.
    AnswerLost,
    /// The request reaches the server only after the port's timeout.
    Straggles,
}

impl Fate {
    /// Returns whether an answer arrives before the port's timeout.
    pub fn is_answered(self) -> bool {
        match self {
            Fate::Answered(_) | Fate::Twice(_) => true,
            Fate::AnswerLost | Fate::Straggles => false,
        }
    }
}

/// Returns the latency and the course of a request, which has a fault with a probability of `trouble` thousandths.
pub fn fate(random: &mut Random, trouble: u64) -> (u64, Fate) {
    let trouble = random.per_mille(trouble);
    match random.below(if trouble { 6 } else { 1 }) {
        0 => (random.between(300, 3_000), Fate::Answered(random.between(300, 3_000))),
        1 => (random.between(3_000, 9_000_000), Fate::Answered(random.between(300, 900_000))),
        2 => (random.between(300, 3_000), Fate::Answered(random.between(3_000, 9_000_000))),
        3 => (random.between(300, 3_000), Fate::Twice(random.below(30_000_000))),
        4 => (random.between(300, 3_000), Fate::AnswerLost),
        _ => (REQUEST_TIMEOUT_US + random.below(15_000_000), Fate::Straggles),
    }
}

/// Next step of a request about a Lease.
#[derive(Debug)]
pub enum LeaseStep {
    /// The request reaches the server.
    Land(Request, Fate),
    /// An answer reaches the port.
    Answer(Raw),
    /// A watch may have a new state.
    Poll,
    /// A watch has reached its requested duration.
    Expire,
}

/// An encoded answer.
#[derive(Clone, Debug)]
pub enum Raw {
    /// The object.
    Seen(Value),
    /// Anything else.
    Other(LeaseAnswer),
}

struct Awaiting {
    watch: WatchId,
    poll_at: Option<u64>,
}

/// The port of one process.
pub struct LeasePort {
    random: Random,
    plant: Option<Plant>,
    awaiting: BTreeMap<(LeaseName, CallId), Awaiting>,
    /// Probability, in thousandths, that a request has a fault.
    pub trouble: u64,
    /// Time until which every request about a Lease fails.
    pub refused_until: BTreeMap<LeaseName, u64>,
    /// Time until which the API server is unreachable.
    pub unreachable_until: u64,
}

impl LeasePort {
    /// Creates a port without requests.
    pub fn new(random: Random, plant: Option<Plant>) -> LeasePort {
        let (awaiting, refused_until) = Default::default();
        LeasePort { random, plant, awaiting, trouble: 0, refused_until, unreachable_until: 0 }
    }

    fn is_cut(&self, now: u64, lease: LeaseName) -> bool {
        now < self.unreachable_until || self.refused_until.get(&lease).is_some_and(|until| now < *until)
    }

    /// Handles a machine's request.
    pub fn call(
        &mut self,
        now: u64,
        clock: &Clock,
        lease: LeaseName,
        call: CallId,
        request: &LeaseRequest,
    ) -> Vec<Effect> {
        let http = http_request(now, clock, lease, request);
        let mut effects = Vec::new();
        if let LeaseRequest::Watch(_, within) = request {
            let at = now + u64::try_from(within.as_micros()).unwrap_or(u64::MAX / 2);
            effects.push(Effect::Lease(at, lease, call, LeaseStep::Expire));
        }
        let (transit_time, fate) = fate(&mut self.random, self.trouble);
        if !fate.is_answered() {
            let answer = LeaseStep::Answer(failed("no answer in time"));
            effects.push(Effect::Lease(now + REQUEST_TIMEOUT_US, lease, call, answer));
        }
        effects.push(Effect::Lease(now + transit_time, lease, call, LeaseStep::Land(http, fate)));
        effects
    }

    /// Continues with a request.
    pub fn step(
        &mut self,
        model: &mut KubeModel,
        now: u64,
        clock: &Clock,
        lease: LeaseName,
        call: CallId,
        step: LeaseStep,
    ) -> Vec<Effect> {
        match step {
            LeaseStep::Land(request, fate) => self.land(model, now, lease, call, &request, fate),
            LeaseStep::Answer(raw) => {
                let lost = self.is_cut(now, lease);
                let raw = if lost { failed("connection reset") } else { raw };
                vec![answer_effect(lease, call, self.answer(now, clock, lease, raw))]
            }
            LeaseStep::Poll => {
                let Some(awaiting) =
                    self.awaiting.get_mut(&(lease, call)).filter(|a| a.poll_at.is_some_and(|at| at <= now))
                else {
                    return Vec::new();
                };
                awaiting.poll_at = None;
                self.poll(model, now, clock, lease, call)
            }
            LeaseStep::Expire => {
                let Some(awaiting) = self.awaiting.remove(&(lease, call)) else { return Vec::new() };
                model.close_watch(awaiting.watch);
                vec![answer_effect(lease, call, LeaseAnswer::Unchanged)]
            }
        }
    }

    fn land(
        &mut self,
        model: &mut KubeModel,
        now: u64,
        lease: LeaseName,
        call: CallId,
        request: &Request,
        fate: Fate,
    ) -> Vec<Effect> {
        let answer = |at: u64, raw: Raw| Effect::Lease(at, lease, call, LeaseStep::Answer(raw));
        if self.is_cut(now, lease) {
            let wait_us = if self.random.per_mille(500) { 1_000 } else { REQUEST_TIMEOUT_US };
            return match fate {
                Fate::Answered(_) | Fate::Twice(_) => {
                    vec![answer(now + wait_us, failed("connection refused"))]
                }
                Fate::AnswerLost | Fate::Straggles => Vec::new(),
            };
        }
        let reply = model.handle(request, now);
        let written = request.method != "GET" && matches!(&reply, Reply::Answer { status: 200 | 201, .. });
        let mut effects = if written { vec![Effect::LeaseWritten(lease)] } else { Vec::new() };
        if let (Reply::Watch(watch, lines), Fate::Answered(_) | Fate::Twice(_)) = (&reply, fate) {
            self.awaiting.insert((lease, call), Awaiting { watch: *watch, poll_at: None });
            if let Some(raw) = lines.iter().find_map(|line| event(line)) {
                self.done_waiting(model, lease, call);
                effects.push(answer(now + 1_000, raw));
            } else {
                effects.extend(self.plan_poll(model, now, (lease, call)));
            }
            return effects;
        }
        let (after_us, raw) = match reply {
            Reply::Refused => (0, failed("connection refused")),
            Reply::Watch(watch, _) => {
                model.close_watch(watch);
                return effects;
            }
            Reply::Answer { status, body, after_us, .. } => {
                (after_us, self.plant_raw(request, raw(status, &body)))
            }
        };
        match fate {
            Fate::Answered(after) => effects.push(answer(now + after_us + after, raw)),
            Fate::Twice(gap) => {
                effects.push(answer(now + after_us + 1_000, raw.clone()));
                effects.push(answer(now + after_us + 1_000 + gap, raw));
            }
            Fate::AnswerLost | Fate::Straggles => {}
        }
        effects
    }

    fn answer(&self, now: u64, clock: &Clock, lease: LeaseName, raw: Raw) -> LeaseAnswer {
        match raw {
            Raw::Other(answer) => answer,
            Raw::Seen(object) => {
                let mut facts = facts(now, clock, lease, object);
                match self.plant {
                    Some(Plant::EpochNotRaised) => facts.transitions = 0,
                    Some(Plant::EmptiedIsReleased) if lease == LeaseName::Own && facts.holder.is_none() => {
                        facts.duration = Some(Duration::from_secs(1));
                    }
                    Some(Plant::RenamedIsReleased)
                        if lease == LeaseName::Own && facts.holder.as_deref() == Some(AN_OPERATOR) =>
                    {
                        (facts.holder, facts.duration) = (None, Some(Duration::from_secs(1)));
                    }
                    Some(Plant::ForeignHoldExpired) if lease == LeaseName::Shared => {
                        facts.renewed_ago = Some(Duration::from_secs(2_000));
                        if facts.holder.as_deref() != Some(OURS) {
                            facts.holder = None;
                        }
                    }
                    Some(_) | None => {}
                }
                LeaseAnswer::Seen(Arc::new(facts))
            }
        }
    }

    /// Applies a planted bug to an answer: a conflict counts as success.
    fn plant_raw(&self, request: &Request, raw: Raw) -> Raw {
        let Raw::Other(LeaseAnswer::Conflict) = raw else { return raw };
        if self.plant != Some(Plant::ConflictIsSuccess) {
            return raw;
        }
        serde_json::from_slice(&request.body).map_or(raw, Raw::Seen)
    }

    fn done_waiting(&mut self, model: &mut KubeModel, lease: LeaseName, call: CallId) {
        if let Some(awaiting) = self.awaiting.remove(&(lease, call)) {
            model.close_watch(awaiting.watch);
        }
    }

    fn poll(
        &mut self,
        model: &mut KubeModel,
        now: u64,
        clock: &Clock,
        lease: LeaseName,
        call: CallId,
    ) -> Vec<Effect> {
        if self.is_cut(now, lease) {
            return Vec::new();
        }
        let Some(watch) = self.awaiting.get(&(lease, call)).map(|awaiting| awaiting.watch) else {
            return Vec::new();
        };
        let lines = model.poll_watch(watch, now);
        let broken = model.watch_ended(watch).then(|| failed("connection reset"));
        match lines.iter().find_map(|line| event(line)).or(broken) {
            Some(raw) => {
                self.done_waiting(model, lease, call);
                vec![answer_effect(lease, call, self.answer(now, clock, lease, raw))]
            }
            None => self.plan_poll(model, now, (lease, call)).into_iter().collect(),
        }
    }

    /// Schedules the next poll of each watch after a possible change on the server.
    pub fn wake(&mut self, model: &KubeModel, now: u64) -> Vec<Effect> {
        let waiting: Vec<(LeaseName, CallId)> = self.awaiting.keys().copied().collect();
        waiting.into_iter().filter_map(|key| self.plan_poll(model, now, key)).collect()
    }

    fn plan_poll(&mut self, model: &KubeModel, now: u64, key: (LeaseName, CallId)) -> Option<Effect> {
        let delay = self.random.between(300, 3_000);
        let awaiting = self.awaiting.get_mut(&key)?;
        let due = if model.watch_ended(awaiting.watch) {
            now
        } else {
            model.watch_deadline(awaiting.watch, now)?
        };
        let at = due.max(now).max(self.unreachable_until) + delay;
        if awaiting.poll_at.is_some_and(|planned| planned > now && planned <= at) {
            return None;
        }
        awaiting.poll_at = Some(at);
        Some(Effect::Lease(at, key.0, key.1, LeaseStep::Poll))
    }

    /// Closes all connections, because the process has ended.
    pub fn close(&mut self, model: &mut KubeModel) {
        for (_, awaiting) in std::mem::take(&mut self.awaiting) {
            model.close_watch(awaiting.watch);
        }
    }
}

fn answer_effect(lease: LeaseName, call: CallId, answer: LeaseAnswer) -> Effect {
    Effect::Deliver(match lease {
        LeaseName::Own => Delivery::Leader(leader::In::Lease(call, answer)),
        LeaseName::Shared => Delivery::Writer(writer::In::Lease(call, answer)),
    })
}

fn failed(reason: &str) -> Raw {
    Raw::Other(LeaseAnswer::Failed(RequestFailure::Other(Arc::from(reason))))
}

fn raw(status: u16, body: &[u8]) -> Raw {
    match status {
        200 | 201 => Raw::Seen(serde_json::from_slice(body).expect("the model answers JSON")),
        404 => Raw::Other(LeaseAnswer::Absent),
        409 => Raw::Other(LeaseAnswer::Conflict),
        401 | 403 => Raw::Other(LeaseAnswer::Failed(RequestFailure::Denied(Arc::from("denied")))),
        _ => failed("the server is in trouble"),
    }
}

/// Returns the state in a line of a watch; a bookmark has none.
fn event(line: &[u8]) -> Option<Raw> {
    let mut value: Value = serde_json::from_slice(line).ok()?;
    match text(&value["type"]) {
        "ADDED" | "MODIFIED" => Some(Raw::Seen(value["object"].take())),
        "DELETED" => Some(Raw::Other(LeaseAnswer::Absent)),
        "ERROR" => Some(failed("too old")),
        _ => None,
    }
}

fn http_request(now: u64, clock: &Clock, lease: LeaseName, request: &LeaseRequest) -> Request {
    let name = object_name(lease);
    match request {
        LeaseRequest::Get => Request::new("GET", &format!("{PATH}/{name}")),
        LeaseRequest::Watch(version, within) => {
            let seconds = within.as_secs() + 60;
            let query = format!(
                "watch=true&fieldSelector=metadata.name%3D{name}&resourceVersion={}&timeoutSeconds={seconds}",
                version.0
            );
            Request::new("GET", &format!("{PATH}?{query}"))
        }
        LeaseRequest::Create(edit) => {
            let mut object = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {},
            });
            change(&mut object, now, clock, edit);
            Request::new("POST", PATH).with_body("application/json", &object)
        }
        LeaseRequest::Replace(facts, edit) => {
            let mut object = facts.document.get::<Value>().expect("the document is one of this port").clone();
            object["metadata"]["resourceVersion"] = (*facts.version.0).into();
            change(&mut object, now, clock, edit);
            Request::new("PUT", &format!("{PATH}/{name}")).with_body("application/json", &object)
        }
    }
}

fn change(object: &mut Value, now: u64, clock: &Clock, edit: &LeaseEdit) {
    let time = micro_time(clock.wall(now));
    let spec = &mut object["spec"];
    spec["holderIdentity"] = edit.holder.as_deref().unwrap_or_default().into();
    spec["leaseDurationSeconds"] = edit.duration.as_secs().into();
    if edit.acquired {
        spec["acquireTime"] = time.clone().into();
    }
    spec["renewTime"] = time.into();
    if edit.transition {
        spec["leaseTransitions"] = (spec["leaseTransitions"].as_u64().unwrap_or(0) + 1).into();
    }
    if let Some(holder) = &edit.previous_holder {
        object["metadata"]["annotations"][PREVIOUS_HOLDER] = (**holder).into();
    }
    if let Some(pools) = &edit.out_of_sync {
        record_out_of_sync(object, now, clock, pools);
    }
    if let Some(gates) = &edit.gates {
        for (key, until) in [(READS_UNTIL, gates.reads_until), (WRITES_UNTIL, gates.writes_until)] {
            if let Some(until) = until {
                let noted = milli_time(clock.wall_of_local(now, until));
                object["metadata"]["annotations"][key] = noted.into();
            } else if let Some(notes) =
                object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
            {
                notes.shift_remove(key);
            }
        }
    }
}

/// Records the times since which pools are out of sync, in microseconds of the wall clock.
fn record_out_of_sync(object: &mut Value, now: u64, clock: &Clock, pools: &OutOfSyncTimes) {
    let wall = |since: &Now| {
        let ago = clock.now(now).since(*since).as_micros();
        Value::from(clock.wall(now) - i64::try_from(ago).unwrap_or(0))
    };
    let noted = pools.iter().map(|(pool, since)| (pool.to_string(), wall(since))).collect();
    object["metadata"]["annotations"][OUT_OF_SYNC] = Value::Object(noted).to_string().into();
}

fn out_of_sync(object: &Value, now: u64, clock: &Clock) -> OutOfSyncTimes {
    let noted: Value =
        serde_json::from_str(text(&object["metadata"]["annotations"][OUT_OF_SYNC])).unwrap_or_default();
    let late = noted.as_object().into_iter().flatten().filter_map(|(pool, wall)| {
        let (lb, pool) = pool.split_once('/')?;
        let ago = u64::try_from(clock.wall(now) - wall.as_i64()?).ok()?;
        let since = clock.now(now).minus(Duration::from_micros(ago));
        Some((PoolId::new(LbName::new(lb), PoolName::new(pool)), since))
    });
    Arc::new(late.collect())
}

fn facts(now: u64, clock: &Clock, lease: LeaseName, object: Value) -> LeaseFacts {
    let (meta, spec) = (&object["metadata"], &object["spec"]);
    let renewed = renew_time(&object);
    let gate = |key: &str| {
        let until = parse_time(text(&meta["annotations"][key]))?;
        clock.local_of_wall(now, until)
    };
    let (reads_until, writes_until) = (gate(READS_UNTIL), gate(WRITES_UNTIL));
    LeaseFacts {
        lease,
        holder: Some(text(&spec["holderIdentity"])).filter(|holder| !holder.is_empty()).map(Arc::from),
        duration: spec["leaseDurationSeconds"].as_u64().map(Duration::from_secs),
        renewed_ago: renewed
            .map(|renewed| Duration::from_micros(u64::try_from(clock.wall(now) - renewed).unwrap_or(0))),
        transitions: spec["leaseTransitions"].as_u64().unwrap_or(0),
        version: ResourceVersion(Arc::from(text(&meta["resourceVersion"]))),
        gates: GateTimes { reads_until, writes_until },
        out_of_sync: out_of_sync(&object, now, clock),
        document: Document::new(object),
    }
}

/// Returns `spec.renewTime` of a Lease, in microseconds since 1970.
pub fn renew_time(object: &Value) -> Option<i64> {
    parse_time(text(&object["spec"]["renewTime"]))
}

/// Formats a time as in Leases.
pub fn micro_time(wall: i64) -> String {
    let (seconds, micros) = (wall / 1_000_000, wall % 1_000_000);
    let whole = rfc3339(u64::try_from(seconds).unwrap_or(0));
    format!("{}.{micros:06}Z", whole.trim_end_matches('Z'))
}

/// Formats a time as in the annotations of the controller's Lease.
fn milli_time(wall: i64) -> String {
    let micro = micro_time(wall);
    format!("{}Z", &micro[..micro.len() - 4])
}
