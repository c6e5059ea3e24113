//! Operators' requests (H3): each is handed to the machine that decides about it, and answered by what that says. One
//! line of the log tells who has asked for what, and what came of it.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use model::assignment::PausedBy;
use model::ids::{LbName, NodeName, PoolId, PoolName};
use model::operator_request::{self, Answer, Done, Effect, Refusal, Scope, Stays, Wanted};
use model::sample::GateClass;
use serde::Serialize;
use utoipa::ToSchema;

use super::body::{Body, received};
use super::people::allowed;
use super::problem::{printable, problem, problem_of_leader, problem_until};
use super::query::Query;
use super::show::Show;
use super::{About, People, post, words};
use crate::telemetry::Levels;

/// The keys by which a request names what it is about.
const SCOPED: [&str; 6] = ["scope", "loadBalancer", "backendPool", "namespace", "name", "reason"];

/// The answer to a request for an attempt.
#[derive(Serialize, ToSchema)]
pub(super) struct Attempting {
    answer: words::AnswerAttempting,
}

/// The answer to a request to read and compare.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Comparing<'a> {
    answer: words::AnswerComparing,
    /// The load balancers that are being read.
    load_balancers: Vec<&'a str>,
}

/// The answer to a request to open gates.
#[derive(Serialize, ToSchema)]
pub(super) struct GatesOpened {
    answer: words::AnswerOpened,
    /// The gates that were closed.
    classes: Vec<words::GateClass>,
}

/// The answer to a request to release.
#[derive(Serialize, ToSchema)]
pub(super) struct Released<'a> {
    answer: words::AnswerReleased,
    /// The removals that are no longer held back for what held them.
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
    /// Why it was held back.
    reason: words::HeldReason,
    /// Why it is held back still. Null: it is not, as far as that is known.
    still_held_by: Option<words::HeldReason>,
}

/// The answer to a request to pause.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Paused {
    answer: words::AnswerPaused,
    /// From when on it counts.
    takes_effect: words::TakesEffect,
    /// Whether there is such a pool or Service.
    known: bool,
}

/// The answer to a request to resume.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resumed {
    answer: words::AnswerResumed,
    /// Whether it was paused.
    was_paused: bool,
    /// From when on it counts.
    takes_effect: words::TakesEffect,
}

/// The answer to a request for a log level.
#[derive(Serialize, ToSchema)]
pub(super) struct LevelSet {
    answer: words::AnswerSet,
    /// The level.
    level: words::LogLevel,
}

/// The routes of operators' requests.
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

type Data = (web::Data<About>, web::Data<People>);

async fn attempt(
    request: HttpRequest,
    (about, people): Data,
    path: web::Path<(String, String)>,
    payload: web::Payload,
) -> HttpResponse {
    let (lb, pool) = path.into_inner();
    let pool = PoolId::new(LbName::new(lb), PoolName::new(pool));
    let wanted = |bytes: &web::Bytes, _: &Arc<str>| Body::read(bytes, &[]).map(|_| Wanted::Attempt(pool));
    carry_out(&request, &about, &people, payload, wanted).await
}

async fn release(request: HttpRequest, (about, people): Data, payload: web::Payload) -> HttpResponse {
    let wanted = |bytes: &web::Bytes, _: &Arc<str>| {
        let body = Body::read(bytes, &SCOPED[..5])?;
        Ok(Wanted::Release(body.scope(&["everything", "pool", "service", "node"])?))
    };
    carry_out(&request, &about, &people, payload, wanted).await
}

async fn compare(request: HttpRequest, (about, people): Data, payload: web::Payload) -> HttpResponse {
    let wanted = |bytes: &web::Bytes, _: &Arc<str>| {
        Ok(Wanted::Compare(Body::read(bytes, &["loadBalancer"])?.load_balancer()?))
    };
    carry_out(&request, &about, &people, payload, wanted).await
}

async fn open_gates(request: HttpRequest, (about, people): Data, payload: web::Payload) -> HttpResponse {
    let wanted = |bytes: &web::Bytes, _: &Arc<str>| {
        let body = Body::read(bytes, &["class"])?;
        let named = match body.text("class")? {
            None => None,
            Some(_) => Some(body.word("class", &GateClass::ALL.map(GateClass::as_str))?),
        };
        Ok(Wanted::OpenGates(GateClass::ALL.into_iter().find(|class| named == Some(class.as_str()))))
    };
    carry_out(&request, &about, &people, payload, wanted).await
}

async fn pause(request: HttpRequest, (about, people): Data, payload: web::Payload) -> HttpResponse {
    let wanted = |bytes: &web::Bytes, user: &Arc<str>| {
        let body = Body::read(bytes, &SCOPED)?;
        let scope = body.scope(&["everything", "pool", "service"])?;
        let reason = body.text("reason")?.map(Arc::from);
        Ok(Wanted::Pause { scope, by: Some(Arc::clone(user)), reason })
    };
    carry_out(&request, &about, &people, payload, wanted).await
}

async fn resume(request: HttpRequest, (about, people): Data, payload: web::Payload) -> HttpResponse {
    let wanted = |bytes: &web::Bytes, _: &Arc<str>| {
        let body = Body::read(bytes, &SCOPED[..5])?;
        Ok(Wanted::Resume(body.scope(&["everything", "pool", "service"])?))
    };
    carry_out(&request, &about, &people, payload, wanted).await
}

async fn log_level(request: HttpRequest, (_, people): Data, payload: web::Payload) -> HttpResponse {
    let user = match admitted(&request, &people).await {
        Ok(user) => user,
        Err(refused) => return refused,
    };
    let bytes = match received(payload).await {
        Ok(bytes) => bytes,
        Err(refused) => return refused,
    };
    let level = match Body::read(&bytes, &["level"]).and_then(|body| body.word("level", &Levels::WORDS)) {
        Ok(level) => level,
        Err(wrong) => return wrong.into(),
    };
    // The line is written while lines of its level are.
    let shown_after = matches!(level, "info" | "debug" | "trace");
    if !shown_after {
        tracing::info!(%user, level, "the log level was changed by a request");
    }
    if !people.levels.set(level) {
        let detail = "the level of the log cannot be changed any more; restart with log.level";
        return problem(StatusCode::SERVICE_UNAVAILABLE, "not done", detail);
    }
    if shown_after {
        tracing::info!(%user, level, "the log level was changed by a request");
    }
    told(&LevelSet { answer: words::AnswerSet("set"), level: words::LogLevel(level) })
}

/// Who asks, if they may ask this, and the address has no parameters.
async fn admitted(request: &HttpRequest, people: &People) -> Result<Arc<str>, HttpResponse> {
    let user = allowed(&people.door, request).await?;
    Query::of(request, &[])?;
    Ok(user)
}

async fn carry_out(
    request: &HttpRequest,
    about: &About,
    people: &People,
    payload: web::Payload,
    wanted: impl FnOnce(&web::Bytes, &Arc<str>) -> Result<Wanted, super::body::Wrong>,
) -> HttpResponse {
    let user = match admitted(request, people).await {
        Ok(user) => user,
        Err(refused) => return refused,
    };
    let bytes = match received(payload).await {
        Ok(bytes) => bytes,
        Err(refused) => return refused,
    };
    let wanted = match wanted(&bytes, &user) {
        Ok(wanted) => wanted,
        Err(wrong) => return wrong.into(),
    };
    let answer = people.asks.ask(wanted.clone()).await;
    let response = match &answer {
        Some(Answer::Done(done)) => of_done(about, &wanted, done),
        Some(Answer::Refused(refusal)) => of_refusal(about, &wanted, refusal),
        None => {
            let detail =
                "the controller did not say in time whether it is done; GET /api/v1/status shows how it is";
            problem(StatusCode::GATEWAY_TIMEOUT, "no answer in time", detail)
        }
    };
    let (path, status) = (request.path(), response.status().as_u16());
    tracing::info!(%user, path, status, %wanted, "an operator request");
    response
}

fn told(body: &impl Serialize) -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(printable(body))
}

fn of_done(about: &About, wanted: &Wanted, done: &Done) -> HttpResponse {
    let snapshot = about.published.load_full();
    let known = match wanted {
        Wanted::Pause { scope: Scope::Pool(pool), .. } => snapshot.pools.contains_key(pool),
        Wanted::Pause { scope: Scope::Service(key), .. } => snapshot.services.contains_key(key),
        Wanted::Pause { scope: Scope::Everything | Scope::Node(_), .. }
        | Wanted::Resume(_)
        | Wanted::Attempt(_)
        | Wanted::Release(_)
        | Wanted::OpenGates(_)
        | Wanted::Compare(_) => true,
    };
    match done {
        Done::Attempting => told(&Attempting { answer: words::AnswerAttempting("attempting") }),
        Done::Released { pools, nodes } => told(&Released {
            answer: words::AnswerReleased("released"),
            released: pools.iter().map(of_released).collect(),
            nodes: nodes.iter().map(NodeName::as_str).collect(),
        }),
        Done::Comparing(all) => told(&Comparing {
            answer: words::AnswerComparing("comparing"),
            load_balancers: all.iter().map(LbName::as_str).collect(),
        }),
        Done::GatesOpened(classes) => told(&GatesOpened {
            answer: words::AnswerOpened("opened"),
            classes: classes.iter().map(|class| words::GateClass(class.as_str())).collect(),
        }),
        Done::Paused(effect) => {
            let takes_effect = words::TakesEffect(of_effect(*effect));
            told(&Paused { answer: words::AnswerPaused("paused"), takes_effect, known })
        }
        Done::Resumed { was, effect } => told(&Resumed {
            answer: words::AnswerResumed("resumed"),
            was_paused: *was,
            takes_effect: words::TakesEffect(of_effect(*effect)),
        }),
    }
}

fn of_effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Now => "now",
        Effect::WhenRead => "within 15 s, when the leader has read it",
    }
}

fn of_released(released: &operator_request::Released) -> ReleasedRemoval {
    ReleasedRemoval {
        pool: released.pool.to_string(),
        reason: words::HeldReason(released.reason.as_str()),
        still_held_by: released.still.map(|reason| words::HeldReason(reason.as_str())),
    }
}

fn of_refusal(about: &About, wanted: &Wanted, refusal: &Refusal) -> HttpResponse {
    let conflict = |title: &str, detail: &str| problem(StatusCode::CONFLICT, title, detail);
    match refusal {
        Refusal::Unknown => problem(StatusCode::NOT_FOUND, "not known here", unknown(wanted)),
        Refusal::NotLeading => not_leading(about),
        Refusal::NotBefore(at) => {
            let show = Show { clock: about.clock, now: about.clock.now() };
            let seconds = std::time::Duration::from_secs_f64(show.until(*at).0.ceil().max(1.0)).as_secs();
            let time = show.time(*at).unwrap_or_default();
            let detail =
                format!("Azure may not be asked for this before {time}; the pool is written by itself then");
            problem_until(StatusCode::CONFLICT, "not yet", &detail, seconds)
        }
        Refusal::Paused(by) => {
            let (title, detail) = paused(by);
            conflict(title, &detail)
        }
        Refusal::NothingReleased(stays) => {
            let (title, detail) = nothing_released(wanted, *stays);
            conflict(title, &detail)
        }
        Refusal::DryRun => {
            let detail = match wanted {
                Wanted::Pause { .. } | Wanted::Resume(_) => {
                    "a dry run notes nothing, so nothing can be paused or resumed in it"
                }
                Wanted::Attempt(_) | Wanted::Release(_) | Wanted::OpenGates(_) | Wanted::Compare(_) => {
                    "a dry run writes nothing, so nothing is attempted or released in it; ask the controller that \
                     leads, or POST /api/v1/compare to have pools read and compared here"
                }
            };
            conflict("dry run", detail)
        }
        Refusal::Failed(why) => {
            let detail = format!("it is not known to be done: {why}");
            problem(StatusCode::SERVICE_UNAVAILABLE, "not done", &detail)
        }
    }
}

fn unknown(wanted: &Wanted) -> &'static str {
    match wanted {
        Wanted::Compare(_) => {
            "no such load balancer is managed here; GET /api/v1/status lists those that are"
        }
        Wanted::Release(Scope::Service(_)) => {
            "no such Service is known here; GET /api/v1/services lists those that are"
        }
        Wanted::Release(Scope::Node(_)) => {
            "no such node is known here; GET /api/v1/nodes lists those that leave service, and kubectl get nodes all"
        }
        Wanted::Attempt(_)
        | Wanted::Release(Scope::Everything | Scope::Pool(_))
        | Wanted::OpenGates(_)
        | Wanted::Pause { .. }
        | Wanted::Resume(_) => {
            "it is not a pool of a managed Service; GET /api/v1/queues lists those that are"
        }
    }
}

/// What keeps it from being written, and what ends that.
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
        PausedBy::NoPin => {
            ("paused", "pre-images of other pools are restored, and nothing else is written".to_owned())
        }
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

/// Who does it instead, as far as that is seen here.
fn not_leading(about: &About) -> HttpResponse {
    let snapshot = about.published.load_full();
    let view = snapshot.leadership.as_ref();
    let leader = view.and_then(|view| view.holder.as_deref());
    let detail = match leader {
        // It has just won, or is about to lose.
        Some(leader) if view.is_some_and(|view| *view.identity == *leader) => {
            "only the leader does this, and this replica does not lead for certain; try again in a minute"
                .to_owned()
        }
        Some(leader) => format!("only the leader does this: ask {leader}"),
        None => "only the leader does this, and no leader is known; try again in a minute".to_owned(),
    };
    problem_of_leader(StatusCode::CONFLICT, "not the leader", &detail, leader)
}

/// Why a release has released nothing, and what does.
fn nothing_released(wanted: &Wanted, stays: Stays) -> (&'static str, String) {
    match stays {
        Stays::NothingHeld => ("nothing is held", nothing_held(wanted).to_owned()),
        Stays::AllStopped => {
            let detail = "all removals are stopped, because too many pools would lose most of their members (G4); see \
                          guards in GET /api/v1/held, and release with the scope everything";
            ("all removals are stopped", detail.to_owned())
        }
        Stays::AddOnly => {
            let detail = "the mode add-only holds it, and a release does not change the mode; set mode: enforce in the \
                          configuration, and restart";
            ("the mode removes nothing", detail.to_owned())
        }
        Stays::NodeNotHeld => {
            let detail = "the node does not wait to be taken out of traffic: nothing says that it leaves service, or it has been \
                          taken out already; GET /api/v1/nodes?state=held lists those that wait";
            ("the node is not held", detail.to_owned())
        }
    }
}

fn nothing_held(wanted: &Wanted) -> &'static str {
    match wanted {
        Wanted::Release(Scope::Pool(_)) => {
            "no removal is held back in this pool; GET /api/v1/held lists those that are"
        }
        Wanted::Release(Scope::Service(_)) => {
            "no removal is held back in the pools of this Service; GET /api/v1/held lists those that are"
        }
        Wanted::Release(Scope::Everything | Scope::Node(_))
        | Wanted::Attempt(_)
        | Wanted::OpenGates(_)
        | Wanted::Compare(_)
        | Wanted::Pause { .. }
        | Wanted::Resume(_) => {
            "no removal is held back, and no node; GET /api/v1/held and GET /api/v1/nodes?state=held list those that are"
        }
    }
}
