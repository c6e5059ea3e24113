//! Operator requests (H3): each goes to the machine that decides about it, whose answer becomes the response. One log
//! line names the user, the action and the status of the response.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use model::assignment::PausedBy;
use model::ids::{LbName, NodeName, PoolId, PoolName};
use model::operator_request::{self, Answer, Done, Effect, OperatorAction, Refusal, ReleaseRefusal, Scope};
use model::sample::GateClass;
use serde::Serialize;
use utoipa::ToSchema;

use super::body::{Body, receive};
use super::problem::{printable, problem, problem_of_leader, problem_until};
use super::query::Query;
use super::show::Show;
use super::{About, Operations, enums, post};
use crate::telemetry::Levels;

/// Keys that name the target of a request, and the reason.
const SCOPED: [&str; 6] = ["scope", "loadBalancer", "backendPool", "namespace", "name", "reason"];

/// The answer to a request for an attempt.
#[derive(Serialize, ToSchema)]
pub(super) struct Attempting {
    answer: enums::AnswerAttempting,
}

/// The answer to a request to read and compare.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Comparing<'a> {
    answer: enums::AnswerComparing,
    /// The load balancers that are being read.
    load_balancers: Vec<&'a str>,
}

/// The answer to a request to open gates.
#[derive(Serialize, ToSchema)]
pub(super) struct GatesOpened {
    answer: enums::AnswerOpened,
    /// The gates that were closed.
    classes: Vec<enums::GateClass>,
}

/// The answer to a request to release.
#[derive(Serialize, ToSchema)]
pub(super) struct Released<'a> {
    answer: enums::AnswerReleased,
    /// The removals that are no longer held back for the same reason.
    released: Vec<ReleasedRemoval>,
    /// The nodes that waited to be taken out of traffic.
    nodes: Vec<&'a str>,
}

/// A removal that is released.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ReleasedRemoval {
    /// The pool.
    pool: String,
    /// The reason of the hold.
    reason: enums::HeldReason,
    /// The reason why the removal is still held; null if none is known.
    still_held_by: Option<enums::HeldReason>,
}

/// The answer to a request to pause.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Paused {
    answer: enums::AnswerPaused,
    /// When the pause takes effect.
    takes_effect: enums::TakesEffect,
    /// Whether there is such a pool or Service.
    known: bool,
}

/// The answer to a request to resume.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resumed {
    answer: enums::AnswerResumed,
    /// Whether it was paused.
    was_paused: bool,
    /// When the end of the pause takes effect.
    takes_effect: enums::TakesEffect,
}

/// The answer to a request for a log level.
#[derive(Serialize, ToSchema)]
pub(super) struct LevelSet {
    answer: enums::AnswerSet,
    /// The level.
    level: enums::LogLevel,
}

/// Adds the routes of operator requests.
pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(post("/api/v1/queues/{lb}/{pool}/attempt", attempt))
        .service(post("/api/v1/held/release", release))
        .service(post("/api/v1/compare", compare))
        .service(post("/api/v1/gates/open", open_gates))
        .service(post("/api/v1/pause", pause))
        .service(post("/api/v1/resume", resume))
        .service(post("/api/v1/log-level", log_level));
}

type Data = (web::Data<About>, web::Data<Operations>);

async fn attempt(
    request: HttpRequest,
    (about, operations): Data,
    path: web::Path<(String, String)>,
    payload: web::Payload,
) -> HttpResponse {
    let (lb, pool) = path.into_inner();
    let pool = PoolId::new(LbName::new(lb), PoolName::new(pool));
    let action =
        |bytes: &web::Bytes, _: &Arc<str>| Body::read(bytes, &[]).map(|_| OperatorAction::Attempt(pool));
    execute(&request, &about, &operations, payload, action).await
}

async fn release(request: HttpRequest, (about, operations): Data, payload: web::Payload) -> HttpResponse {
    let action = |bytes: &web::Bytes, _: &Arc<str>| {
        let body = Body::read(bytes, &SCOPED[..5])?;
        Ok(OperatorAction::Release(body.scope(&["everything", "pool", "service", "node"])?))
    };
    execute(&request, &about, &operations, payload, action).await
}

async fn compare(request: HttpRequest, (about, operations): Data, payload: web::Payload) -> HttpResponse {
    let action = |bytes: &web::Bytes, _: &Arc<str>| {
        Ok(OperatorAction::Compare(Body::read(bytes, &["loadBalancer"])?.load_balancer()?))
    };
    execute(&request, &about, &operations, payload, action).await
}

async fn open_gates(request: HttpRequest, (about, operations): Data, payload: web::Payload) -> HttpResponse {
    let action = |bytes: &web::Bytes, _: &Arc<str>| {
        let body = Body::read(bytes, &["class"])?;
        let named = match body.text("class")? {
            None => None,
            Some(_) => Some(body.one_of("class", &GateClass::ALL.map(GateClass::as_str))?),
        };
        Ok(OperatorAction::OpenGates(GateClass::ALL.into_iter().find(|class| named == Some(class.as_str()))))
    };
    execute(&request, &about, &operations, payload, action).await
}

async fn pause(request: HttpRequest, (about, operations): Data, payload: web::Payload) -> HttpResponse {
    let action = |bytes: &web::Bytes, user: &Arc<str>| {
        let body = Body::read(bytes, &SCOPED)?;
        let scope = body.scope(&["everything", "pool", "service"])?;
        let reason = body.text("reason")?.map(Arc::from);
        Ok(OperatorAction::Pause { scope, by: Some(Arc::clone(user)), reason })
    };
    execute(&request, &about, &operations, payload, action).await
}

async fn resume(request: HttpRequest, (about, operations): Data, payload: web::Payload) -> HttpResponse {
    let action = |bytes: &web::Bytes, _: &Arc<str>| {
        let body = Body::read(bytes, &SCOPED[..5])?;
        Ok(OperatorAction::Resume(body.scope(&["everything", "pool", "service"])?))
    };
    execute(&request, &about, &operations, payload, action).await
}

async fn log_level(request: HttpRequest, (_, operations): Data, payload: web::Payload) -> HttpResponse {
    let user = match authorized_user(&request, &operations).await {
        Ok(user) => user,
        Err(refused) => return refused,
    };
    let bytes = match receive(payload).await {
        Ok(bytes) => bytes,
        Err(refused) => return refused,
    };
    let level = match Body::read(&bytes, &["level"]).and_then(|body| body.one_of("level", &Levels::NAMES)) {
        Ok(level) => level,
        Err(wrong) => return wrong.into(),
    };
    // The line is logged while the level permits it: before or after the change.
    let log_after = matches!(level, "info" | "debug" | "trace");
    if !log_after {
        tracing::info!(%user, level, "the log level was changed by a request");
    }
    if !operations.levels.set(level) {
        let detail = "the log level can no longer be changed; set log.level and restart";
        return problem(StatusCode::SERVICE_UNAVAILABLE, "not done", detail);
    }
    if log_after {
        tracing::info!(%user, level, "the log level was changed by a request");
    }
    ok(&LevelSet { answer: enums::AnswerSet("set"), level: enums::LogLevel(level) })
}

/// Returns the user if the request is allowed and has no query parameters.
async fn authorized_user(request: &HttpRequest, operations: &Operations) -> Result<Arc<str>, HttpResponse> {
    let user = operations.authorizer.user(request).await?;
    Query::of(request, &[])?;
    Ok(user)
}

/// Parses the body with `action`, sends the result to the machines, and responds with their answer.
async fn execute(
    request: &HttpRequest,
    about: &About,
    operations: &Operations,
    payload: web::Payload,
    action: impl FnOnce(&web::Bytes, &Arc<str>) -> Result<OperatorAction, super::body::BodyError>,
) -> HttpResponse {
    let user = match authorized_user(request, operations).await {
        Ok(user) => user,
        Err(refused) => return refused,
    };
    let bytes = match receive(payload).await {
        Ok(bytes) => bytes,
        Err(refused) => return refused,
    };
    let action = match action(&bytes, &user) {
        Ok(action) => action,
        Err(wrong) => return wrong.into(),
    };
    let answer = operations.requests.send(action.clone()).await;
    let response = match &answer {
        Some(Answer::Done(done)) => success(about, &action, done),
        Some(Answer::Refused(refusal)) => refused(about, &action, refusal),
        None => {
            let detail = "the controller did not answer in time, so the request may have taken effect; see GET \
                          /api/v1/status";
            problem(StatusCode::GATEWAY_TIMEOUT, "no answer in time", detail)
        }
    };
    let (path, status) = (request.path(), response.status().as_u16());
    tracing::info!(%user, path, status, %action, "an operator request");
    response
}

fn ok(body: &impl Serialize) -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(printable(body))
}

fn success(about: &About, action: &OperatorAction, done: &Done) -> HttpResponse {
    let snapshot = about.published.load_full();
    let known = match action {
        OperatorAction::Pause { scope: Scope::Pool(pool), .. } => snapshot.pools.contains_key(pool),
        OperatorAction::Pause { scope: Scope::Service(key), .. } => snapshot.services.contains_key(key),
        OperatorAction::Pause { scope: Scope::Everything | Scope::Node(_), .. }
        | OperatorAction::Resume(_)
        | OperatorAction::Attempt(_)
        | OperatorAction::Release(_)
        | OperatorAction::OpenGates(_)
        | OperatorAction::Compare(_) => true,
    };
    match done {
        Done::Attempting => ok(&Attempting { answer: enums::AnswerAttempting("attempting") }),
        Done::Released { pools, nodes } => ok(&Released {
            answer: enums::AnswerReleased("released"),
            released: pools.iter().map(released_removal).collect(),
            nodes: nodes.iter().map(NodeName::as_str).collect(),
        }),
        Done::Comparing(all) => ok(&Comparing {
            answer: enums::AnswerComparing("comparing"),
            load_balancers: all.iter().map(LbName::as_str).collect(),
        }),
        Done::GatesOpened(classes) => ok(&GatesOpened {
            answer: enums::AnswerOpened("opened"),
            classes: classes.iter().map(|class| enums::GateClass(class.as_str())).collect(),
        }),
        Done::Paused(effect) => {
            let takes_effect = enums::TakesEffect(effect_text(*effect));
            ok(&Paused { answer: enums::AnswerPaused("paused"), takes_effect, known })
        }
        Done::Resumed { was, effect } => ok(&Resumed {
            answer: enums::AnswerResumed("resumed"),
            was_paused: *was,
            takes_effect: enums::TakesEffect(effect_text(*effect)),
        }),
    }
}

fn effect_text(effect: Effect) -> &'static str {
    match effect {
        Effect::Now => "now",
        Effect::WhenRead => "within 15 s, when the leader has read it",
    }
}

fn released_removal(released: &operator_request::Released) -> ReleasedRemoval {
    ReleasedRemoval {
        pool: released.pool.to_string(),
        reason: enums::HeldReason(released.reason.as_str()),
        still_held_by: released.still.map(|reason| enums::HeldReason(reason.as_str())),
    }
}

fn refused(about: &About, action: &OperatorAction, refusal: &Refusal) -> HttpResponse {
    let conflict = |title: &str, detail: &str| problem(StatusCode::CONFLICT, title, detail);
    match refusal {
        Refusal::Unknown => problem(StatusCode::NOT_FOUND, "not known here", unknown_target(action)),
        Refusal::NotLeading => not_leading(about),
        Refusal::NotBefore(at) => {
            let show = Show { clock: about.clock, now: about.clock.now() };
            let seconds = std::time::Duration::from_secs_f64(show.until(*at).0.ceil().max(1.0)).as_secs();
            let time = show.time(*at).unwrap_or_default();
            let detail = format!(
                "Azure does not accept this request before {time}; the controller writes the pool then"
            );
            problem_until(StatusCode::CONFLICT, "not yet", &detail, seconds)
        }
        Refusal::Paused(by) => {
            let (title, detail) = paused(by);
            conflict(title, &detail)
        }
        Refusal::NothingReleased(stays) => {
            let (title, detail) = nothing_released(action, *stays);
            conflict(title, &detail)
        }
        Refusal::DryRun => {
            let detail = match action {
                OperatorAction::Pause { .. } | OperatorAction::Resume(_) => {
                    "a dry run stores nothing, so it cannot pause or resume anything"
                }
                OperatorAction::Attempt(_)
                | OperatorAction::Release(_)
                | OperatorAction::OpenGates(_)
                | OperatorAction::Compare(_) => {
                    "a dry run writes nothing, so it attempts and releases nothing; send the request to the leader, or \
                     POST /api/v1/compare to have pools read and compared here"
                }
            };
            conflict("dry run", detail)
        }
        Refusal::Failed(reason) => {
            let detail = format!("the result is unknown: {reason}");
            problem(StatusCode::SERVICE_UNAVAILABLE, "not done", &detail)
        }
    }
}

fn unknown_target(action: &OperatorAction) -> &'static str {
    match action {
        OperatorAction::Compare(_) => {
            "the controller does not manage this load balancer; GET /api/v1/status lists managed load balancers"
        }
        OperatorAction::Release(Scope::Service(_)) => {
            "there is no such Service of type LoadBalancer; GET /api/v1/services lists all"
        }
        OperatorAction::Release(Scope::Node(_)) => {
            "there is no such node; GET /api/v1/nodes lists nodes that leave service, and kubectl get nodes lists all"
        }
        OperatorAction::Attempt(_)
        | OperatorAction::Release(Scope::Everything | Scope::Pool(_))
        | OperatorAction::OpenGates(_)
        | OperatorAction::Pause { .. }
        | OperatorAction::Resume(_) => {
            "the controller does not manage this pool; GET /api/v1/queues lists managed pools"
        }
    }
}

/// Returns the pause that prevents a write, and how to end it.
fn paused(by: &PausedBy) -> (&'static str, String) {
    match by {
        PausedBy::Mode => {
            let detail = "the mode is observe, so nothing is written, and resuming does not change that; set mode: \
                          add-only or mode: enforce in the configuration, and restart";
            ("the mode only observes", detail.to_owned())
        }
        PausedBy::Everything => {
            let detail = "everything is paused: pauses in GET /api/v1/status says who paused it and why, and POST \
                          /api/v1/resume with the scope everything ends it";
            ("paused", detail.to_owned())
        }
        PausedBy::NotInRestore => (
            "paused",
            "other pools are being restored from a snapshot, and nothing else is written".to_owned(),
        ),
        PausedBy::Pool => {
            let detail = "this pool is paused: pauses in GET /api/v1/status says who paused it and why, and POST \
                          /api/v1/resume with the scope pool ends it";
            ("paused", detail.to_owned())
        }
        PausedBy::Service(key) => {
            let detail = format!(
                "Service {key} is paused: pauses in GET /api/v1/status says who paused it and why, and POST \
                 /api/v1/resume with the scope service ends it"
            );
            ("paused", detail)
        }
        PausedBy::Annotation(key) => {
            let (namespace, name) = (&key.namespace, &key.name);
            let detail = format!(
                "Service {key} pauses it by its annotation; kubectl --namespace {namespace} annotate service {name} \
                 azure-backend-pool-controller.io/pause- ends it"
            );
            ("paused", detail)
        }
    }
}

/// Refuses a request that only the leader handles, and names the leader if it is known.
fn not_leading(about: &About) -> HttpResponse {
    let snapshot = about.published.load_full();
    let view = snapshot.leadership.as_ref();
    let leader = view.and_then(|view| view.holder.as_deref());
    let detail = match leader {
        // This process has just acquired the Lease, or is about to lose it.
        Some(leader) if view.is_some_and(|view| *view.identity == *leader) => {
            "only the leader does this, and this replica is not certain to be the leader; try again in a minute"
                .to_owned()
        }
        Some(leader) => format!("only the leader does this: send the request to {leader}"),
        None => "only the leader does this, and no leader is known; try again in a minute".to_owned(),
    };
    problem_of_leader(StatusCode::CONFLICT, "not the leader", &detail, leader)
}

/// Returns why a release had no effect, and what to do instead.
fn nothing_released(action: &OperatorAction, stays: ReleaseRefusal) -> (&'static str, String) {
    match stays {
        ReleaseRefusal::NothingHeld => ("nothing is held", nothing_held(action).to_owned()),
        ReleaseRefusal::AllStopped => {
            let detail = "all removals are stopped, because too many pools would lose most of their members (G4); see \
                          guards in GET /api/v1/held, and release with the scope everything";
            ("all removals are stopped", detail.to_owned())
        }
        ReleaseRefusal::AddOnly => {
            let detail = "the mode add-only holds it, and a release does not change the mode; set mode: enforce in the \
                          configuration, and restart";
            ("the mode removes nothing", detail.to_owned())
        }
        ReleaseRefusal::NodeNotHeld => {
            let detail = "the node does not wait to be taken out of traffic: it does not leave service, or is out of traffic \
                          already; GET /api/v1/nodes?state=held lists the nodes that wait";
            ("the node is not held", detail.to_owned())
        }
    }
}

fn nothing_held(action: &OperatorAction) -> &'static str {
    match action {
        OperatorAction::Release(Scope::Pool(_)) => {
            "no removal is held back in this pool; GET /api/v1/held lists held removals"
        }
        OperatorAction::Release(Scope::Service(_)) => {
            "no removal is held back in the pools of this Service; GET /api/v1/held lists held removals"
        }
        OperatorAction::Release(Scope::Everything | Scope::Node(_))
        | OperatorAction::Attempt(_)
        | OperatorAction::OpenGates(_)
        | OperatorAction::Compare(_)
        | OperatorAction::Pause { .. }
        | OperatorAction::Resume(_) => {
            "no removal and no node is held back; GET /api/v1/held and GET /api/v1/nodes?state=held list those that are"
        }
    }
}
