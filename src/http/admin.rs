//! The read-only admin API under `/api/v1` (H3): every answer is made of one published snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use pool_core::ids::{LbName, PoolId, PoolName, ServiceKey};
use pool_core::sample::PoolState;
use pool_core::view::{PoolView, Snapshot};
use serde::Deserialize;
use serde_json::{Value, json};

use super::About;
use super::problem::problem;
use super::show::Show;

/// The most entries of one page, and how many there are when nothing is asked.
const PAGE_MOST: usize = 1_000;
const PAGE: usize = 200;

/// The routes of the admin listener.
pub(super) fn routes(config: &mut web::ServiceConfig) {
    config.service(
        web::scope("/api/v1")
            .route("/status", web::get().to(status))
            .route("/queues", web::get().to(queues))
            .route("/queues/{lb}/{pool}", web::get().to(queue))
            .route("/services", web::get().to(services))
            .route("/services/{namespace}/{name}", web::get().to(service)),
    );
}

/// Which part of a list is wanted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Only pools in this state.
    state: Option<String>,
    /// Only pools of this load balancer.
    lb: Option<String>,
    /// Only Services of this namespace.
    namespace: Option<String>,
    /// How many at most.
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

fn ok(body: &Value) -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(body.to_string())
}

fn look(about: &About) -> (Arc<Snapshot>, Show) {
    let snapshot = about.published.load_full();
    (snapshot, Show { clock: about.clock, now: about.clock.now() })
}

async fn status(about: web::Data<About>) -> HttpResponse {
    let (snapshot, show) = look(&about);
    let mut states: BTreeMap<&str, usize> = PoolState::ALL.into_iter().map(|state| (state.as_str(), 0)).collect();
    for pool in snapshot.pools.values() {
        *states.entry(pool.state.as_str()).or_default() += 1;
    }
    let oldest = snapshot.pools.values().filter_map(|pool| pool.waiting_since).min();
    let held: Vec<Value> = snapshot
        .pools
        .values()
        .filter_map(|pool| Some(json!({ "pool": pool.pool.to_string(), "held": show.held(pool.held.as_ref()?) })))
        .collect();
    ok(&json!({
        "snapshotAgeSeconds": show.age(snapshot.at),
        "version": env!("CARGO_PKG_VERSION"),
        "dryRun": about.dry_run,
        "synced": { "lists": snapshot.synced.lists, "discovery": snapshot.synced.discovery },
        "pools": { "total": snapshot.pools.len(), "byState": states },
        "services": snapshot.services.len(),
        "oldestWaitingChangeSeconds": oldest.map(|at| show.age(at)),
        "held": held,
        "sources": snapshot.sources.values().map(|source| show.source(source)).collect::<Vec<_>>(),
        "loadBalancers": snapshot.load_balancers.values().map(|lb| show.lb(lb)).collect::<Vec<_>>(),
        "lanes": snapshot.lanes.values().map(|lane| show.lane(lane)).collect::<Vec<_>>(),
        "gates": snapshot.gates.iter().map(|(class, gate)| show.gate(*class, gate)).collect::<Vec<_>>(),
    }))
}

async fn queues(about: web::Data<About>, wanted: web::Query<Wanted>) -> HttpResponse {
    let (snapshot, show) = look(&about);
    if let Some(state) = &wanted.state
        && !PoolState::ALL.iter().any(|known| known.as_str() == state)
    {
        let known: Vec<&str> = PoolState::ALL.iter().map(|known| known.as_str()).collect();
        let detail = format!("state: {state:?} is none of {}", known.join(", "));
        return problem(StatusCode::BAD_REQUEST, "invalid query", &detail);
    }
    let lb = wanted.lb.as_deref().map(LbName::new);
    let matching = snapshot.pools.values().filter(|pool| {
        lb.as_ref().is_none_or(|lb| *lb == pool.pool.lb)
            && wanted.state.as_deref().is_none_or(|state| state == pool.state.as_str())
    });
    let name = |pool: &PoolView| format!("{}/{}", pool.pool.lb.folded(), pool.pool.pool.folded());
    let page = page(matching, |pool| name(pool), &wanted);
    let items: Vec<Value> = page.items.iter().map(|pool| show.pool_line(pool)).collect();
    ok(&json!({ "snapshotAgeSeconds": show.age(snapshot.at), "items": items, "next": page.next }))
}

async fn queue(about: web::Data<About>, path: web::Path<(String, String)>) -> HttpResponse {
    let (lb, pool) = path.into_inner();
    let (snapshot, show) = look(&about);
    let id = PoolId::new(LbName::new(lb), PoolName::new(pool));
    match snapshot.pools.get(&id) {
        Some(pool) => ok(&json!({ "snapshotAgeSeconds": show.age(snapshot.at), "pool": show.pool(pool) })),
        None => problem(
            StatusCode::NOT_FOUND,
            "no such pool",
            &format!("{id} is no pool of a managed Service; GET /api/v1/queues lists those that are"),
        ),
    }
}

async fn services(about: web::Data<About>, wanted: web::Query<Wanted>) -> HttpResponse {
    let (snapshot, show) = look(&about);
    let matching = snapshot
        .services
        .values()
        .filter(|service| wanted.namespace.as_deref().is_none_or(|namespace| namespace == &*service.key.namespace));
    let page = page(matching, |service| service.key.to_string(), &wanted);
    let items: Vec<Value> = page.items.iter().map(|service| show.service(service)).collect();
    ok(&json!({ "snapshotAgeSeconds": show.age(snapshot.at), "items": items, "next": page.next }))
}

async fn service(about: web::Data<About>, path: web::Path<(String, String)>) -> HttpResponse {
    let (namespace, name) = path.into_inner();
    let (snapshot, show) = look(&about);
    let key = ServiceKey::new(namespace, name);
    let Some(service) = snapshot.services.get(&key) else {
        return problem(
            StatusCode::NOT_FOUND,
            "no such Service",
            &format!("{key} is unknown here: it does not exist, or its type is not LoadBalancer"),
        );
    };
    let pools: Vec<Value> = service
        .pools
        .iter()
        .map(|id| snapshot.pools.get(id).map_or_else(|| json!({ "pool": id.to_string() }), |pool| show.pool(pool)))
        .collect();
    let verdict = show.verdict(service, &snapshot);
    ok(&json!({
        "snapshotAgeSeconds": show.age(snapshot.at), "service": show.service(service),
        "verdict": verdict, "pools": pools,
    }))
}

struct Page<'a, T> {
    items: Vec<&'a Arc<T>>,
    next: Option<String>,
}

fn page<'a, T>(
    all: impl Iterator<Item = &'a Arc<T>>,
    name: impl Fn(&T) -> String,
    wanted: &Wanted,
) -> Page<'a, T> {
    let limit = wanted.limit.unwrap_or(PAGE).clamp(1, PAGE_MOST);
    let mut later: Vec<(String, &Arc<T>)> = all
        .map(|item| (name(item), item))
        .filter(|(name, _)| wanted.after.as_ref().is_none_or(|after| name > after))
        .collect();
    later.sort_by(|(one, _), (other, _)| one.cmp(other));
    let more = later.len() > limit;
    later.truncate(limit);
    let next = if more { later.last().map(|(name, _)| name.clone()) } else { None };
    Page { items: later.into_iter().map(|(_, item)| item).collect(), next }
}
