//! The read-only paths of the admin API under `/api/v1` (H3). Each response is built from one published snapshot. The
//! configuration is the one loaded at startup, and events are streamed as they are published.

use std::collections::BTreeMap;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use model::assignment::HeldReason;
use model::ids::{LbName, PoolId, PoolName, ServiceKey};
use model::sample::PoolState;
use model::view::{PoolView, ServiceView, Snapshot};
use serde::Serialize;
use utoipa::ToSchema;

use super::effective::Setting;
use super::events::events;
use super::nodes::{node, nodes};
use super::openapi::openapi;
use super::page::{Listing, Page, page};
use super::problem::{ServedPaths, printable, problem_as_of};
use super::query::{Query, QueryError, one_of};
use super::resources::resources;
use super::show::{Guards, HeldLine, Lane, Pool, PoolLine, ServiceLine, Show, Status, differs};
use super::values::SnapshotAge;
use super::verdict::{VerdictReason, verdict_reason};
use super::web_page::web_page;
use super::{About, get};

/// Paths that the admin listener serves, for its 404 responses.
pub(super) const SERVES: ServedPaths = ServedPaths(
    "/ (a page for operators), /api/v1/status, /api/v1/queues, /api/v1/held, /api/v1/lanes, /api/v1/services, \
     /api/v1/nodes, /api/v1/resources, /api/v1/config, /api/v1/events, operators' requests (POST) at /api/v1/pause, \
     /api/v1/resume, /api/v1/compare, /api/v1/gates/open, /api/v1/held/release, /api/v1/log-level and /api/v1/queues/{lb}/{pool}/attempt, and \
     /openapi.json, which describes all of them",
);

/// Pools with removals that are held back, or would be held back by a guard that only observes.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct HeldPools<'a> {
    snapshot_age_seconds: SnapshotAge,
    /// The guards. Null: they are not known yet.
    guards: Option<Guards>,
    /// The entries of this page.
    items: Vec<HeldLine<'a>>,
    /// The parameter `after` of the next page. Null: there is none.
    next: Option<String>,
    /// The number of entries of all pages.
    total: usize,
}

/// One pool with all details.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct OnePool<'a> {
    snapshot_age_seconds: SnapshotAge,
    /// The pool.
    pool: Pool<'a>,
}

/// The configuration in force with the origin of each value; secrets are redacted.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Config)]
pub(super) struct EffectiveConfig<'a> {
    snapshot_age_seconds: SnapshotAge,
    /// The cloud configuration.
    cloud_config: &'a [Setting],
    /// controller.yaml.
    controller_config: &'a [Setting],
    /// The identity by which the controller signs in, from both files and the environment.
    identity: &'a [Setting],
}

/// Adds the read-only routes of the admin listener.
pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(get("/", web_page))
        .service(get("/api/v1/status", status))
        .service(get("/api/v1/queues", queues))
        .service(get("/api/v1/queues/{lb}/{pool}", queue))
        .service(get("/api/v1/held", held))
        .service(get("/api/v1/lanes", lanes))
        .service(get("/api/v1/services", services))
        .service(get("/api/v1/services/{namespace}/{name}", service))
        .service(get("/api/v1/nodes", nodes))
        .service(get("/api/v1/nodes/{name}", node))
        .service(get("/api/v1/resources", resources))
        .service(get("/api/v1/config", effective_config))
        .service(get("/api/v1/events", events))
        .service(get("/openapi.json", openapi));
}

/// Returns the response with this body as JSON, or the problem.
pub(super) fn json_response<T: Serialize>(answer: Result<T, QueryError>) -> HttpResponse {
    match answer {
        Ok(body) => HttpResponse::Ok().content_type("application/json").body(printable(&body)),
        Err(wrong) => wrong.into(),
    }
}

/// Returns the latest published snapshot, and the formatter of its times.
pub(super) fn load_snapshot(about: &About) -> (Arc<Snapshot>, Show) {
    let snapshot = about.published.load_full();
    (snapshot, Show { clock: about.clock, now: about.clock.now() })
}

async fn status(request: HttpRequest, about: web::Data<About>) -> HttpResponse {
    let (snapshot, show) = load_snapshot(&about);
    json_response(Query::of(&request, &[]).map(|_| Status::of(&about, &snapshot, &show)))
}

async fn queues(request: HttpRequest, about: web::Data<About>) -> HttpResponse {
    let (snapshot, show) = load_snapshot(&about);
    json_response(list_queues(&request, &snapshot, &show))
}

fn list_queues<'a>(
    request: &HttpRequest,
    snapshot: &'a Snapshot,
    show: &Show,
) -> Result<Listing<PoolLine<'a>>, QueryError> {
    let query = Query::of(request, &["state", "outOfSync", "lb", "contains", "limit", "after"])?;
    let state = query.text("state").map(state).transpose()?;
    let out_of_sync = query.flag("outOfSync")?;
    let lb = query.text("lb").map(LbName::new);
    let part = query.text("contains").map(str::to_lowercase);
    let after = query.after()?.map(|(lb, pool)| PoolId::new(LbName::new(lb), PoolName::new(pool)));
    let limit = query.limit()?;
    let named = |pool: &PoolView, part: &str| {
        let mut services = pool.services.values();
        pool.pool.to_string().to_lowercase().contains(part)
            || services.any(|key| key.to_string().contains(part))
    };
    let page = page(&snapshot.pools, after.as_ref(), limit, |pool| {
        lb.as_ref().is_none_or(|lb| *lb == pool.pool.lb)
            && state.is_none_or(|state| state == pool.state)
            && out_of_sync.is_none_or(|expected| expected == differs(pool))
            && part.as_ref().is_none_or(|part| named(pool, part))
    });
    Ok(Listing {
        snapshot_age_seconds: show.snapshot_age(snapshot),
        items: page.items.into_iter().map(|pool| show.pool_line(pool, snapshot)).collect(),
        next: page.next.map(ToString::to_string),
        total: page.total,
    })
}

async fn held(request: HttpRequest, about: web::Data<About>) -> HttpResponse {
    let (snapshot, show) = load_snapshot(&about);
    json_response(list_held(&request, &snapshot, &show))
}

/// Lists the pools with removals that are, or would be, held back.
fn list_held<'a>(
    request: &HttpRequest,
    snapshot: &'a Snapshot,
    show: &Show,
) -> Result<HeldPools<'a>, QueryError> {
    let query = Query::of(request, &["reason", "lb", "limit", "after"])?;
    let reason = query.text("reason").map(reason).transpose()?;
    let lb = query.text("lb").map(LbName::new);
    let after = query.after()?.map(|(lb, pool)| PoolId::new(LbName::new(lb), PoolName::new(pool)));
    let limit = query.limit()?;
    let page = page(&snapshot.pools, after.as_ref(), limit, |pool| {
        let mut all = pool.held.iter().chain(&pool.would_hold);
        all.any(|held| reason.is_none_or(|reason| reason == held.reason))
            && lb.as_ref().is_none_or(|lb| *lb == pool.pool.lb)
    });
    Ok(HeldPools {
        snapshot_age_seconds: show.snapshot_age(snapshot),
        guards: snapshot.guards.as_ref().map(|view| show.guards(view)),
        items: page.items.into_iter().map(|pool| show.held_line(pool)).collect(),
        next: page.next.map(ToString::to_string),
        total: page.total,
    })
}

async fn lanes(request: HttpRequest, about: web::Data<About>) -> HttpResponse {
    let (snapshot, show) = load_snapshot(&about);
    json_response(list_lanes(&request, &snapshot, &show))
}

fn list_lanes<'a>(
    request: &HttpRequest,
    snapshot: &'a Snapshot,
    show: &Show,
) -> Result<Listing<Lane<'a>>, QueryError> {
    let query = Query::of(request, &["lb", "limit", "after"])?;
    let lb = query.text("lb").map(LbName::new);
    let after = query.text("after").map(LbName::new);
    let limit = query.limit()?;
    let page =
        page(&snapshot.lanes, after.as_ref(), limit, |lane| lb.as_ref().is_none_or(|lb| *lb == lane.lb));
    Ok(Listing {
        snapshot_age_seconds: show.snapshot_age(snapshot),
        items: page.items.into_iter().map(|lane| show.lane(lane)).collect(),
        next: page.next.map(|lb| lb.as_str().to_owned()),
        total: page.total,
    })
}

async fn effective_config(request: HttpRequest, about: web::Data<About>) -> HttpResponse {
    json_response(Query::of(&request, &[]).map(|_| {
        let (snapshot, show) = load_snapshot(&about);
        EffectiveConfig {
            snapshot_age_seconds: show.snapshot_age(&snapshot),
            cloud_config: &about.effective.cloud,
            controller_config: &about.effective.controller,
            identity: &about.effective.identity,
        }
    }))
}

fn reason(text: &str) -> Result<HeldReason, QueryError> {
    one_of("reason", text, HeldReason::ALL, HeldReason::as_str)
}

fn state(text: &str) -> Result<PoolState, QueryError> {
    one_of("state", text, PoolState::ALL, PoolState::as_str)
}

async fn queue(
    request: HttpRequest,
    about: web::Data<About>,
    path: web::Path<(String, String)>,
) -> HttpResponse {
    if let Err(wrong) = Query::of(&request, &[]) {
        return wrong.into();
    }
    let (lb, pool) = path.into_inner();
    let (snapshot, show) = load_snapshot(&about);
    let id = PoolId::new(LbName::new(lb), PoolName::new(pool));
    let age = show.snapshot_age(&snapshot);
    match snapshot.pools.get(&id) {
        Some(pool) => {
            json_response(Ok(OnePool { snapshot_age_seconds: age, pool: show.pool(pool, &snapshot) }))
        }
        None => {
            let refused = snapshot.services.values().flat_map(|service| &service.not_manageable);
            let detail = match refused.into_iter().find(|(refused, _)| *refused == id) {
                Some((_, reason)) => {
                    format!("{id} is not manageable, so the controller does not write it: {reason}")
                }
                None => format!(
                    "{id} is not a pool of a managed Service, and no control plane has sent its endpoints; GET \
                     /api/v1/queues lists known pools, and GET /api/v1/resources all pools that are filled from control \
                     planes"
                ),
            };
            problem_as_of(age, StatusCode::NOT_FOUND, "no such pool", &detail)
        }
    }
}

async fn services(request: HttpRequest, about: web::Data<About>) -> HttpResponse {
    let (snapshot, show) = load_snapshot(&about);
    json_response(list_services(&request, &snapshot, &show))
}

fn list_services<'a>(
    request: &HttpRequest,
    snapshot: &'a Snapshot,
    show: &Show,
) -> Result<Listing<ServiceLine<'a>>, QueryError> {
    let query = Query::of(request, &["namespace", "contains", "verdict", "sort", "limit", "after"])?;
    let namespace = query.text("namespace");
    let part = query.text("contains").map(str::to_lowercase);
    let verdict = query.text("verdict").map(|text| parse_verdict("verdict", text)).transpose()?;
    let order = query.text("sort").map(|text| one_of("sort", text, Order::ALL, Order::as_str)).transpose()?;
    let limit = query.limit()?;
    let matches = |service: &ServiceView| {
        namespace.is_none_or(|namespace| namespace == &*service.key.namespace)
            && part.as_ref().is_none_or(|part| service.key.to_string().contains(part))
            && verdict.is_none_or(|verdict| verdict == verdict_reason(service, snapshot))
    };
    let (items, next, total) = match order.unwrap_or(Order::Name) {
        Order::Name => {
            let after = query.after()?.map(|(namespace, name)| ServiceKey::new(namespace, name));
            let Page { items, next, total } = page(&snapshot.services, after.as_ref(), limit, matches);
            (items, next.map(ToString::to_string), total)
        }
        Order::Verdict => {
            let after = query.after()?.map(|(reason, key)| parse_verdict_key(reason, key)).transpose()?;
            let ordered: BTreeMap<(VerdictReason, &ServiceKey), Arc<ServiceView>> = snapshot
                .services
                .iter()
                .map(|(key, service)| ((verdict_reason(service, snapshot), key), Arc::clone(service)))
                .collect();
            let after = after.as_ref().map(|(reason, key)| (*reason, key));
            let Page { items, next, total } = page(&ordered, after.as_ref(), limit, matches);
            let items = items.into_iter().filter_map(|item| snapshot.services.get(&item.key)).collect();
            (items, next.map(|(reason, key)| format!("{}/{key}", reason.as_str())), total)
        }
    };
    Ok(Listing {
        snapshot_age_seconds: show.snapshot_age(snapshot),
        items: items.into_iter().map(|service| show.service_line(service, snapshot)).collect(),
        next,
        total,
    })
}

/// The order in which Services are listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// By namespace and name.
    Name,
    /// By verdict, the most severe first.
    Verdict,
}

impl Order {
    const ALL: [Order; 2] = [Order::Name, Order::Verdict];

    fn as_str(self) -> &'static str {
        match self {
            Order::Name => "name",
            Order::Verdict => "verdict",
        }
    }
}

fn parse_verdict(parameter: &str, text: &str) -> Result<VerdictReason, QueryError> {
    one_of(parameter, text, VerdictReason::ALL, VerdictReason::as_str)
}

/// Parses the last Service of the previous page, in the order of verdicts.
fn parse_verdict_key(reason: &str, key: &str) -> Result<(VerdictReason, ServiceKey), QueryError> {
    let halves = key.split_once('/').ok_or_else(|| QueryError::new("after", key, "the `next` of a page"))?;
    Ok((parse_verdict("after", reason)?, ServiceKey::new(halves.0, halves.1)))
}

async fn service(
    request: HttpRequest,
    about: web::Data<About>,
    path: web::Path<(String, String)>,
) -> HttpResponse {
    if let Err(wrong) = Query::of(&request, &[]) {
        return wrong.into();
    }
    let (namespace, name) = path.into_inner();
    let (snapshot, show) = load_snapshot(&about);
    let key = ServiceKey::new(namespace, name);
    let age = show.snapshot_age(&snapshot);
    let Some(service) = snapshot.services.get(&key) else {
        let detail = format!("Service {key} does not exist, or its type is not LoadBalancer");
        return problem_as_of(age, StatusCode::NOT_FOUND, "no such Service", &detail);
    };
    json_response(Ok(show.one_service(service, &snapshot)))
}
