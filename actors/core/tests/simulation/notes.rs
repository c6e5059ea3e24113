//! The port to the controller's ConfigMap over the modelled API server: requests that arrive late or never, answers
//! that arrive late, twice or never, and writes of another client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coordination::pauses;
use model::arm::Document;
use model::config_map::{
    ConfigMapAnswer, ConfigMapEdit, ConfigMapFacts, ConfigMapRequest, ConfigMapRequester, Text,
    Value as Noted,
};
use model::ids::{CallId, LbName, PoolId, PoolName, ServiceKey};
use model::machine::{Now, Wall};
use model::object::{RequestFailure, ResourceVersion};
use model::operator_request::Scope;
use pool_core::route::Delivery;
use serde_json::{Value, json};
use simulator_models::kube::{KubeModel, Reply, Request, Resource};

use crate::clock::Clock;
use crate::decode::{parse_time, text};
use crate::kubernetes::Effect;
use crate::leases::{Fate, NAMESPACE, REQUEST_TIMEOUT_US, fate, micro_time};
use crate::plant::Plant;
use crate::random::Random;

/// The name of the controller's ConfigMap.
pub const NAME: &str = "azure-backend-pool-controller";
/// Prefix of the keys of records.
pub const RECORD: &str = "down.";
/// Prefix of the keys of pauses.
const PAUSE: &str = "pause.";
const EVERYTHING: &str = "pause.everything";
/// Key that disables the admin state (N4).
pub const ADMIN_STATE_OFF: &str = "admin-state.off";
const PATH: &str = "/api/v1/namespaces/kube-system/configmaps";

/// Next step of a request about the ConfigMap.
#[derive(Debug)]
pub enum NotesStep {
    /// The request reaches the server.
    Land(Request, Fate),
    /// An answer reaches the port.
    Answer(Result<Value, ConfigMapAnswer>),
}

/// The port of one process.
pub struct NotesPort {
    random: Random,
    plant: Option<Plant>,
    /// Probability, in thousandths, that a request has a fault.
    pub trouble: u64,
    /// Time until which the API server is unreachable.
    pub unreachable_until: u64,
    /// True if a record was sent, for a planted bug.
    has_written: bool,
}

impl NotesPort {
    /// Creates a port without requests.
    pub fn new(random: Random, plant: Option<Plant>) -> NotesPort {
        NotesPort { random, plant, trouble: 0, unreachable_until: 0, has_written: false }
    }

    /// Handles a machine's request.
    pub fn call(
        &mut self,
        now: u64,
        clock: &Clock,
        (requester, call): (ConfigMapRequester, CallId),
        request: &ConfigMapRequest,
    ) -> Vec<Effect> {
        let http = http_request(now, clock, request);
        let (transit_time, fate) = fate(&mut self.random, self.trouble);
        let mut effects =
            vec![Effect::Notes(now + transit_time, requester, call, NotesStep::Land(http, fate))];
        if !fate.is_answered() {
            effects.push(Effect::Notes(
                now + REQUEST_TIMEOUT_US,
                requester,
                call,
                NotesStep::Answer(Err(failed())),
            ));
        }
        effects
    }

    /// Continues with a request; `cut`: the API server is unreachable.
    pub fn step(
        &mut self,
        model: &mut KubeModel,
        now: u64,
        clock: &Clock,
        cut: bool,
        (requester, call): (ConfigMapRequester, CallId),
        step: NotesStep,
    ) -> Vec<Effect> {
        match step {
            NotesStep::Land(_, fate) if cut => {
                let lost = Effect::Notes(now + 1_000, requester, call, NotesStep::Answer(Err(failed())));
                if fate.is_answered() { vec![lost] } else { Vec::new() }
            }
            NotesStep::Land(request, fate) => self.land(model, now, (requester, call), &request, fate),
            NotesStep::Answer(raw) => {
                let answer = match raw {
                    _ if cut => failed(),
                    Ok(object) => ConfigMapAnswer::Seen(Arc::new(self.facts(now, clock, requester, object))),
                    Err(answer) => answer,
                };
                vec![Effect::Deliver(match requester {
                    ConfigMapRequester::Pauses => Delivery::Pauses(pauses::In::ConfigMap(call, answer)),
                    ConfigMapRequester::AdminState => {
                        Delivery::AdminState(nodes::In::ConfigMap(call, answer))
                    }
                })]
            }
        }
    }

    fn land(
        &mut self,
        model: &mut KubeModel,
        now: u64,
        (requester, call): (ConfigMapRequester, CallId),
        request: &Request,
        fate: Fate,
    ) -> Vec<Effect> {
        self.has_written |= requester == ConfigMapRequester::AdminState && request.method != "GET";
        if request.method == "PUT" && self.random.per_mille(self.trouble) {
            touch(model, now);
        }
        let unsent = self.plant == Some(Plant::RecordUnwritten)
            && requester == ConfigMapRequester::AdminState
            && request.method != "GET";
        let reply = if unsent { Reply::Refused } else { model.handle(request, now) };
        let (after_us, raw) = match reply {
            Reply::Refused if unsent => (0, Ok(sent(request))),
            Reply::Answer { status: 200 | 201, body, after_us, .. } => {
                (after_us, Ok(serde_json::from_slice(&body).expect("the model answers JSON")))
            }
            Reply::Answer { status: 409, after_us, .. }
                if requester == ConfigMapRequester::Pauses && self.plant == Some(Plant::PauseNotWritten) =>
            {
                (after_us, Ok(sent(request)))
            }
            Reply::Answer { status, after_us, .. } => (after_us, Err(refusal(status))),
            Reply::Refused | Reply::Watch(..) => (0, Err(failed())),
        };
        let mut effects = Vec::new();
        if request.method != "GET" && raw.is_ok() {
            effects.push(Effect::NotesWritten);
        }
        let again = if let Fate::Twice(gap) = fate { Some(gap) } else { None };
        if fate.is_answered() {
            let after = if let Fate::Answered(after) = fate { after } else { 1_000 };
            let at = now + after_us + after;
            effects.push(Effect::Notes(at, requester, call, NotesStep::Answer(raw.clone())));
            effects.extend(again.map(|gap| Effect::Notes(at + gap, requester, call, NotesStep::Answer(raw))));
        }
        effects
    }

    fn facts(&self, now: u64, clock: &Clock, requester: ConfigMapRequester, object: Value) -> ConfigMapFacts {
        let wall = |time: &str| parse_time(time).map(Wall::from_micros);
        let data = object["data"].as_object().into_iter().flatten().filter_map(|(key, value)| {
            let text = value.as_str()?;
            let since = text.lines().find_map(|line| line.strip_prefix("since: "));
            let time = wall(text).or_else(|| wall(since?));
            Some((Arc::from(key.as_str()), Text { text: Arc::from(text), time }))
        });
        let mut data: BTreeMap<Arc<str>, Text> = data.collect();
        if self.plant == Some(Plant::PausesUnread) {
            data.retain(|key, _| !key.starts_with(PAUSE));
        }
        // This process sees its own writes.
        if self.plant == Some(Plant::RecordsUnread)
            && requester == ConfigMapRequester::AdminState
            && !self.has_written
        {
            data.retain(|key, _| !key.starts_with(RECORD));
        }
        ConfigMapFacts {
            data,
            binary: Default::default(),
            read: Wall::from_micros(clock.wall(now)),
            version: ResourceVersion(Arc::from(text(&object["metadata"]["resourceVersion"]))),
            document: Document::new(object),
        }
    }
}

/// Returns the ConfigMap, if it exists.
pub fn stored(model: &KubeModel) -> Option<Value> {
    model.get(Resource::ConfigMaps, NAMESPACE, NAME)
}

/// Returns the paused scopes in the ConfigMap.
pub fn paused(model: &KubeModel) -> BTreeSet<Scope> {
    let object = stored(model).unwrap_or(Value::Null);
    let data = object["data"].as_object().into_iter().flatten();
    let scope = |(key, value): (&String, &Value)| {
        let target = value.as_str()?.lines().next().unwrap_or_default().split_once('/');
        match key.as_str() {
            EVERYTHING => Some(Scope::Everything),
            key if key.starts_with("pause.pool.") => {
                let (lb, pool) = target?;
                Some(Scope::Pool(PoolId::new(LbName::new(lb), PoolName::new(pool))))
            }
            key if key.starts_with("pause.service.") => {
                let (namespace, name) = target?;
                Some(Scope::Service(ServiceKey::new(namespace, name)))
            }
            _ => None,
        }
    };
    data.filter_map(scope).collect()
}

/// Pauses everything, or ends that pause, by editing the ConfigMap as the operator.
pub fn pause_by_hand(model: &mut KubeModel, now: u64, paused: bool) {
    let mut object = stored(model).unwrap_or_else(fresh);
    if paused {
        object["data"][EVERYTHING] = "".into();
    } else if let Some(data) = object["data"].as_object_mut() {
        data.retain(|key, _| key != EVERYTHING);
    }
    model.apply(object, now).expect("it is a ConfigMap");
}

/// Returns whether the admin state is disabled (N4).
pub fn is_switched_off(model: &KubeModel) -> bool {
    stored(model).is_some_and(|object| !object["data"][ADMIN_STATE_OFF].is_null())
}

/// Disables the admin state, or enables it, as the operator.
pub fn switch_off(model: &mut KubeModel, now: u64, off: bool) {
    let mut object = stored(model).unwrap_or_else(fresh);
    if off {
        object["data"][ADMIN_STATE_OFF] = format!("since: {}", micro_time(crate::clock::wall(now))).into();
    } else if let Some(data) = object["data"].as_object_mut() {
        data.retain(|key, _| key != ADMIN_STATE_OFF);
    }
    model.apply(object, now).expect("it is a ConfigMap");
}

/// Removes all pauses, as the operator.
pub fn resume_all(model: &mut KubeModel, now: u64) {
    let Some(mut object) = stored(model) else { return };
    if let Some(data) = object["data"].as_object_mut() {
        data.retain(|key, _| !key.starts_with(PAUSE));
    }
    model.apply(object, now).expect("it is a ConfigMap");
}

/// A foreign key that must survive.
pub const KEPT: &str = "kept";

/// Writes another key as another client, and creates the ConfigMap if it does not exist.
pub fn touch(model: &mut KubeModel, now: u64) {
    let mut object = stored(model).unwrap_or_else(fresh);
    object["data"][KEPT] = format!("at {now}").into();
    model.apply(object, now).expect("it is a ConfigMap");
}

fn fresh() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": NAMESPACE}, "data": {}})
}

/// Returns the state that a write would have created.
fn sent(request: &Request) -> Value {
    let mut object: Value = serde_json::from_slice(&request.body).expect("a write has a body");
    object["metadata"]["resourceVersion"] = "1000000".into();
    object
}

fn failed() -> ConfigMapAnswer {
    ConfigMapAnswer::Failed(RequestFailure::Other(Arc::from("no answer")))
}

fn refusal(status: u16) -> ConfigMapAnswer {
    match status {
        404 => ConfigMapAnswer::Absent,
        409 => ConfigMapAnswer::Conflict,
        401 | 403 => ConfigMapAnswer::Failed(RequestFailure::Denied(Arc::from("denied"))),
        _ => failed(),
    }
}

fn http_request(now: u64, clock: &Clock, request: &ConfigMapRequest) -> Request {
    match request {
        ConfigMapRequest::Get | ConfigMapRequest::Watch(..) => Request::new("GET", &format!("{PATH}/{NAME}")),
        ConfigMapRequest::Create(edit) => {
            let mut object = fresh();
            change(&mut object, now, clock, edit);
            Request::new("POST", PATH).with_body("application/json", &object)
        }
        ConfigMapRequest::Replace(facts, edit) => {
            let mut object = facts.document.get::<Value>().expect("the document is one of this port").clone();
            object["metadata"]["resourceVersion"] = (*facts.version.0).into();
            change(&mut object, now, clock, edit);
            Request::new("PUT", &format!("{PATH}/{NAME}")).with_body("application/json", &object)
        }
    }
}

fn change(object: &mut Value, now: u64, clock: &Clock, edit: &ConfigMapEdit) {
    for (key, noted) in &edit.set {
        let time = |at: &Now| {
            let ago = i64::try_from(clock.now(now).since(*at).as_micros()).unwrap_or(0);
            micro_time(clock.wall(now) - ago)
        };
        object["data"][&**key] = match noted {
            Noted::Text(text) => (**text).into(),
            Noted::Time(at) => time(at).into(),
            Noted::Since { head, at, tail } => format!("{head}\nsince: {}\n{tail}", time(at)).into(),
        };
    }
    if let Some(data) = object["data"].as_object_mut() {
        data.retain(|key, _| !edit.remove.contains(key.as_str()));
    }
}
