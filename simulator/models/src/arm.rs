//! A deterministic, sans-IO model of Azure Resource Manager for load balancers, their backend pools, and the network
//! and compute resources around them (docs/design/surface.md, Z1).
//!
//! The model owns the load balancers, the operations that run on them, the quotas and the planned faults. A caller
//! passes requests with the time, and receives Azure's answer and its latency; the caller waits and speaks HTTP. All
//! times are microseconds and must not go backwards; all randomness comes from [`Settings::seed`].
//!
//! Not modelled: changes of permissions and locks over HTTP (they are [`Settings`]), other resource groups and
//! subscriptions, resource types that the migration does not need, and dates in headers (the HTTP wrapper owns the wall
//! clock).

mod access;
mod actions;
mod addresses;
mod answer;
mod balancer;
mod build;
mod durations;
mod egress;
mod fault;
mod frontend;
mod inspect;
mod interfaces;
mod journal;
mod lock;
mod operation;
mod path;
mod prepare;
pub(crate) mod random;
mod read;
mod references;
mod removal;
mod render;
mod requests;
mod resource_type;
mod resources;
mod rules;
mod scale_set;
mod schedule;
mod seed;
mod settings;
mod show;
mod store;
mod throttle;
pub mod topology;
mod traffic;
mod validate;
mod write;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use answer::Answer;
use fault::{Faults, ResponseFault, SkipReason};
use operation::Operations;
use path::{Route, Target};
use random::Random;
use resources::Resources;
use schedule::Schedule;
use store::LoadBalancer;
use throttle::{Throttle, Verb};

pub use access::{Lock, Permission};
pub use build::{PoolSpec, SyncMode, VirtualNetwork};
pub use durations::{Durations, ScaleSetBlocks};
pub use egress::Egress;
pub use inspect::Member;
pub use journal::{Counters, Kind, LogEntry};
pub use settings::{
    ConcurrentWrite, Fault, FaultAnswer, FaultBody, FaultEffect, FaultTarget, Latency, NicAdminState,
    OperationFailure, Quotas, Settings, UnfinishedWrite, Visibility,
};
pub use store::Sku;
pub use traffic::{Flows, Traffic};

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// PUT.
    Put,
    /// POST.
    Post,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
    /// Any other method.
    Other,
}

impl Method {
    /// Parses the method of a request line; unknown words become [`Method::Other`].
    pub fn parse(word: &str) -> Self {
        match word {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "PUT" => Self::Put,
            "POST" => Self::Post,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            _ => Self::Other,
        }
    }

    fn verb(self) -> Verb {
        match self {
            Self::Get | Self::Head => Verb::Read,
            Self::Delete => Verb::Delete,
            Self::Put | Self::Post | Self::Patch | Self::Other => Verb::Write,
        }
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its method.
    pub method: Method,
    /// Path and query as on the request line; the absolute form is accepted too.
    pub path_and_query: String,
    /// Headers; names compare without case.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// One answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// Headers; the HTTP wrapper adds `Content-Length` and `Date`.
    pub headers: Vec<(&'static str, Cow<'static, str>)>,
    /// The body.
    pub body: Vec<u8>,
    /// Time for which the caller must wait before it delivers the answer, in microseconds.
    pub latency_us: u64,
}

impl Response {
    /// Returns the value of a header; names compare without case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_ref())
    }
}

/// Outcome that the client sees.
#[derive(Clone, Debug)]
pub enum Reply {
    /// An answer.
    Answer(Response),
    /// The request was applied; the connection is dropped without an answer.
    Lost {
        /// Time until it is dropped, in microseconds.
        latency_us: u64,
    },
    /// Nothing was applied; the connection is dropped immediately.
    Refused,
}

/// The model of one subscription in one region.
#[derive(Clone, Debug)]
pub struct ArmModel {
    settings: Settings,
    balancers: BTreeMap<String, LoadBalancer>,
    resources: Resources,
    schedule: Schedule,
    /// Private addresses in cleanup, by the key of their subnet, with the end of the cleanup.
    held_addresses: BTreeMap<(String, IpAddr), u64>,
    /// Time after which another client takes a private address that has become free, by address.
    address_takers: BTreeMap<IpAddr, u64>,
    /// Number of assigned public addresses.
    public_addresses: u32,
    /// Number of instances that were restarted by upgrades.
    restarts: u64,
    /// True if a test is filling the model, which bypasses the rules about new resources.
    is_seeding: bool,
    operations: Operations,
    throttle: Throttle,
    faults: Faults,
    journal: journal::Journal,
    /// Separate streams, so that a setting for one kind of randomness does not affect the others.
    latencies: Random,
    identities: Random,
    outcomes: Random,
    now: u64,
}

/// A request with everything that is known about it before it is answered.
struct Call<'a> {
    request: &'a Request,
    target: Target,
    kind: Kind,
    now: u64,
    answered_at: u64,
}

impl Call<'_> {
    /// Returns whether the cloud-controller-manager sent the request, by its user agent.
    fn is_foreign(&self) -> bool {
        let agent = self.request.header("User-Agent").unwrap_or_default();
        agent.starts_with("kubernetes-cloudprovider")
    }
}

enum Fate {
    Answered(Answer),
    Lost,
    Refused,
}

impl ArmModel {
    /// Creates an empty subscription at time 0.
    pub fn new(settings: Settings) -> Self {
        let mut seeds = Random::new(settings.seed);
        Self {
            balancers: BTreeMap::new(),
            resources: Resources::default(),
            schedule: Schedule::default(),
            held_addresses: BTreeMap::new(),
            address_takers: BTreeMap::new(),
            public_addresses: 0,
            restarts: 0,
            is_seeding: false,
            operations: Operations::default(),
            throttle: Throttle::new(settings.quotas),
            faults: Faults::new(&settings),
            journal: journal::Journal::new(settings.log_capacity),
            latencies: Random::new(seeds.next_u64()),
            identities: Random::new(seeds.next_u64()),
            outcomes: Random::new(seeds.next_u64()),
            now: 0,
            settings,
        }
    }

    /// Answers one request that arrives at `now_us`. The request takes effect immediately; the answer is due later.
    pub fn handle(&mut self, request: &Request, now_us: u64) -> Reply {
        self.tick(now_us);
        let target = Target::parse(&request.path_and_query);
        let kind = Kind::of(request.method, &target.route);
        let verb = request.method.verb();
        let latency = match verb {
            Verb::Read => self.settings.get_latency,
            Verb::Write | Verb::Delete => self.settings.put_latency,
        };
        let now = self.now;
        let answered_at = now.saturating_add(latency.draw(&mut self.latencies));
        let mut call = Call { request, target, kind, now, answered_at };
        let fate = match self.admit(&call, verb) {
            Err(refusal) => Fate::Answered(refusal),
            Ok(remaining) => self.answer(&mut call, verb, remaining),
        };
        self.conclude(&call, fate)
    }

    /// Returns the time of the next change without a request, in microseconds.
    pub fn deadline(&self) -> Option<u64> {
        self.operations.next_end().into_iter().chain(self.schedule.next()).min()
    }

    /// Advances time; due operations end and planned events happen, in order of their times.
    pub fn tick(&mut self, now_us: u64) {
        let target = self.now.max(now_us);
        while let Some(at) = self.deadline().filter(|at| *at <= target) {
            self.now = self.now.max(at);
            if let Some((id, operation)) = self.operations.end_due(at) {
                let (key, end) = (operation.owner.clone(), operation.planned.clone());
                if key.starts_with('/') {
                    self.complete_resource(&key, id, &end);
                } else {
                    self.complete(&key, id, &end);
                }
            } else if let Some(event) = self.schedule.take_due(at) {
                self.happen(event);
            }
        }
        self.now = target;
    }

    /// Applies the gateway's checks before the resource provider sees the request. Returns the remaining quota, or the
    /// refusal.
    fn admit(&mut self, call: &Call, verb: Verb) -> Result<u64, Answer> {
        let bearer = call.request.header("Authorization").and_then(|value| value.get(..7));
        if self.settings.require_bearer && !bearer.is_some_and(|word| word.eq_ignore_ascii_case("Bearer ")) {
            let message = "Authentication failed. The 'Authorization' header is missing.";
            return Err(Answer::gateway(401, "AuthenticationFailed", message));
        }
        match call.target.query("api-version") {
            None | Some("") => {
                let message = "The api-version query parameter (?api-version=) is required for all requests.";
                return Err(Answer::gateway(400, "MissingApiVersionParameter", message));
            }
            Some(version) if !is_api_version(version) => {
                let message = format!("The api-version '{version}' is invalid.");
                return Err(Answer::gateway(400, "InvalidApiVersionParameter", &message));
            }
            Some(_) => {}
        }
        match &call.target.subscription {
            Some(name) if name.eq_ignore_ascii_case(&self.settings.subscription) => {}
            Some(name) => {
                let message = format!("The subscription '{name}' could not be found.");
                return Err(Answer::gateway(404, "SubscriptionNotFound", &message));
            }
            None => {
                return Err(Answer::gateway(
                    404,
                    "InvalidResourceType",
                    "The resource type could not be found.",
                ));
            }
        }
        if let Some(name) = &call.target.resource_group
            && !name.eq_ignore_ascii_case(&self.settings.resource_group)
        {
            let message = format!("Resource group '{name}' could not be found.");
            return Err(Answer::gateway(404, "ResourceGroupNotFound", &message));
        }
        self.authorize(call)?;
        let admitted = self.throttle.admit(verb, call.now, &self.settings.subscription);
        if let Err(refusal) = &admitted {
            self.journal.counters.throttled += 1;
            let by_provider = refusal.code.as_deref() == Some(throttle::BY_PROVIDER);
            self.journal.counters.throttled_by_provider += u64::from(by_provider);
        }
        admitted
    }

    fn answer(&mut self, call: &mut Call, verb: Verb, remaining: u64) -> Fate {
        let combined = self.faults.combined(call.kind, call.target.route.load_balancer());
        call.answered_at = call.answered_at.saturating_add(combined.delay_us);
        let answer = match combined.before {
            Some(SkipReason::Refuse) => return Fate::Refused,
            Some(SkipReason::Answer(fault)) => Answer::fault(&fault),
            None => {
                let planned_failures = self.journal.counters.planned_failures;
                let answer = self.provide(call, combined.planned_failure);
                if let Some(failure_fault) = combined
                    .failure_fault
                    .filter(|_| self.journal.counters.planned_failures > planned_failures)
                {
                    self.faults.took_effect(failure_fault);
                }
                match combined.after {
                    Some(ResponseFault::Lose) => return Fate::Lost,
                    Some(ResponseFault::Answer(fault)) => Answer::fault(&fault),
                    None => answer,
                }
            }
        };
        let from_gateway = answer.headers.iter().any(|(name, _)| *name == "x-ms-failure-cause");
        if from_gateway {
            return Fate::Answered(answer);
        }
        let left = remaining.to_string();
        Fate::Answered(answer.with(verb.remaining_header(), left.clone()).with(verb.global_header(), left))
    }

    /// Handles a request in the resource provider.
    fn provide(
        &mut self,
        call: &Call,
        planned_failure: Option<(OperationFailure, String, String)>,
    ) -> Answer {
        match (call.request.method, &call.target.route) {
            (Method::Get, Route::LoadBalancers) => self.list_load_balancers(call),
            (Method::Get, Route::LoadBalancer { name }) => self.read_load_balancer(name),
            (Method::Get, Route::Pools { load_balancer }) => self.list_pools(call, load_balancer),
            (Method::Get, Route::Pool { load_balancer, pool }) => self.read_pool(load_balancer, pool),
            (Method::Get, Route::Permissions) => self.list_permissions(),
            (Method::Get, Route::Locks { scope }) => self.list_locks(call, scope),
            (Method::Get, Route::Operation { id }) => self.poll(call, *id),
            (Method::Get, Route::OperationResult { id }) => self.operation_result(call, *id),
            (Method::Put, Route::LoadBalancer { name }) => {
                self.put_load_balancer(call, name, planned_failure)
            }
            (Method::Put, Route::Pool { load_balancer, pool }) => {
                self.put_pool(call, load_balancer, pool, planned_failure)
            }
            (Method::Delete, Route::Pool { load_balancer, pool }) => {
                self.delete_pool(call, load_balancer, pool, planned_failure)
            }
            (Method::Delete, Route::LoadBalancer { name }) => {
                self.delete_load_balancer(call, name, planned_failure)
            }
            (Method::Patch, Route::LoadBalancer { name }) => self.patch_load_balancer(call, name),
            (_, Route::LoadBalancerAction { name, action }) => self.act_on_load_balancer(call, name, action),
            (_, Route::Resource(path)) => self.answer_resource(call, path, planned_failure),
            (Method::Get, Route::ResourceGroup) => self.read_group(),
            (Method::Get, Route::Usages) => self.usages(),
            (
                Method::Get
                | Method::Head
                | Method::Put
                | Method::Post
                | Method::Patch
                | Method::Delete
                | Method::Other,
                Route::Elsewhere,
            ) => {
                let message = "The resource type could not be found in the namespace 'Microsoft.Network'.";
                Answer::gateway(404, "InvalidResourceType", message)
            }
            (
                Method::Head | Method::Put | Method::Post | Method::Patch | Method::Delete | Method::Other,
                Route::LoadBalancers
                | Route::LoadBalancer { .. }
                | Route::Pools { .. }
                | Route::Pool { .. }
                | Route::Permissions
                | Route::Locks { .. }
                | Route::Operation { .. }
                | Route::OperationResult { .. }
                | Route::ResourceGroup
                | Route::Usages,
            ) => requests::method_not_supported(),
        }
    }

    fn conclude(&mut self, call: &Call, fate: Fate) -> Reply {
        let route = &call.target.route;
        let load_balancer = route.load_balancer().map(|name| self.interned(name));
        let (status, code) = match &fate {
            Fate::Answered(answer) => (answer.status, answer.code.clone()),
            Fate::Lost | Fate::Refused => (0, None),
        };
        let latency_us = call.answered_at - call.now;
        let entry = LogEntry {
            started_us: call.now,
            ended_us: call.answered_at,
            method: call.request.method,
            kind: if call.is_foreign() { call.kind.of_other_client() } else { call.kind },
            load_balancer,
            pool: route.pool().map(Arc::from),
            status,
            code,
            foreign: call.is_foreign(),
        };
        self.journal.record(entry);
        match fate {
            Fate::Answered(answer) => {
                self.journal.counters.answered += u64::from(!call.is_foreign());
                Reply::Answer(self.finish(call, answer, latency_us))
            }
            Fate::Lost => {
                self.journal.counters.dropped += 1;
                Reply::Lost { latency_us }
            }
            Fate::Refused => {
                self.journal.counters.dropped += 1;
                Reply::Refused
            }
        }
    }

    /// Returns the name in the load balancer's original case, shared with the store if the load balancer exists.
    fn interned(&self, name: &str) -> Arc<str> {
        self.balancers.get(&store::key(name)).map_or_else(|| name.into(), |lb| lb.name.clone())
    }

    /// Adds the headers that every answer has.
    fn finish(&mut self, call: &Call, answer: Answer, latency_us: u64) -> Response {
        let Answer { status, mut headers, body, content_type, operation, .. } = answer;
        let request_id = operation.unwrap_or_else(|| self.identities.guid()).to_string();
        let given = call.request.header("x-ms-correlation-request-id").and_then(random::Guid::parse);
        let correlation = given.unwrap_or_else(|| self.identities.guid());
        headers.extend([
            ("Cache-Control", Cow::from("no-cache")),
            ("Pragma", Cow::from("no-cache")),
            ("Expires", Cow::from("-1")),
            ("Content-Type", Cow::from(content_type)),
            ("Strict-Transport-Security", Cow::from("max-age=31536000; includeSubDomains")),
            ("X-Content-Type-Options", Cow::from("nosniff")),
            ("X-Cache", Cow::from("CONFIG_NOCACHE")),
            ("x-ms-request-id", Cow::from(request_id)),
            ("x-ms-correlation-request-id", Cow::from(correlation.to_string())),
        ]);
        let wants_echo = call.request.header("x-ms-return-client-request-id") == Some("true");
        if let Some(id) = call.request.header("x-ms-client-request-id").filter(|_| wants_echo) {
            headers.push(("x-ms-client-request-id", id.to_owned().into()));
        }
        Response { status, headers, body, latency_us }
    }
}

/// Returns whether a text is `yyyy-mm-dd`, with an optional suffix as in `2024-01-01-preview`.
fn is_api_version(text: &str) -> bool {
    let date = text.as_bytes().get(..10);
    let shaped = date.is_some_and(|date| {
        date.iter().enumerate().all(
            |(at, b)| {
                if at == 4 || at == 7 { *b == b'-' } else { b.is_ascii_digit() }
            },
        )
    });
    shaped && (text.len() == 10 || text.as_bytes()[10] == b'-')
}
