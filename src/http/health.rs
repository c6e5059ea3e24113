//! `/livez`, `/readyz`, `/healthz` and `/metrics` (H1). The process is live while every machine handles messages. It is
//! ready once the first lists and the first discovery are complete, and while every kind has a watch. An outage of ARM
//! affects neither, because a restart would not help.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use actors::recorder::{self, LISTED, OutOfSyncPool};
use actors::shell::Ping;
use futures::future::join_all;
use model::machine::Now;
use model::object::Kind;
use model::view::{PolicyView, PoolView, SourceView};
use tokio::time::Instant;

use super::answers::Renderings;
use super::problem::ServedPaths;
use super::{Health, get};
use crate::wiring::LivenessTargets;

/// Paths that the health listener serves, for its 404 responses.
pub(super) const SERVES: ServedPaths = ServedPaths("/livez, /readyz, /healthz and /metrics");

/// Text of a check that passes.
const OK: &str = "ok";
/// Time without a working watch after which a kind counts as not watched.
const MAX_STALE: Duration = Duration::from_secs(60);
/// Timeout of a machine for its answer.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// Adds the routes of the health listener.
pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(get("/livez", livez))
        .service(get("/healthz", livez))
        .service(get("/readyz", readyz))
        .service(get("/metrics", metrics));
}

/// Name and result of a check: its state, or the description of a failure.
type Check = (&'static str, Result<String, String>);

async fn livez(request: HttpRequest, health: web::Data<Health>) -> HttpResponse {
    answer(&request, &check_machines(&health.liveness_targets).await)
}

/// Checks that each machine still handles messages.
async fn check_machines(liveness_targets: &LivenessTargets) -> Vec<Check> {
    let checks = liveness_targets.0.iter().map(|(name, machine)| async move {
        let answered = tokio::time::timeout(PING_TIMEOUT, machine.send(Ping)).await;
        let check = match answered {
            Ok(Ok(())) => Ok(OK.to_owned()),
            Ok(Err(error)) => Err(format!("is gone: {error}")),
            Err(_) => Err(format!("did not step within {PING_TIMEOUT:?}")),
        };
        (*name, check)
    });
    join_all(checks).await
}

async fn readyz(request: HttpRequest, health: web::Data<Health>) -> HttpResponse {
    let snapshot = health.about.published.load();
    let synced = snapshot.synced;
    let wait =
        |done: bool, what: &str| if done { Ok(OK.to_owned()) } else { Err(format!("waiting for {what}")) };
    let shutting_down = health.shutting_down.load(Ordering::Relaxed);
    answer(
        &request,
        &[
            ("lists", wait(synced.lists, "the first complete lists of Services, EndpointSlices and Nodes")),
            ("discovery", wait(synced.discovery, "a managed load balancer to be seen")),
            ("pauses", Ok(describe_pauses(snapshot.policy.as_ref()))),
            ("watches", check_watches(&snapshot.sources, health.about.clock.now())),
            ("shutdown", if shutting_down { Err("shutting down".to_owned()) } else { Ok(OK.to_owned()) }),
        ],
    )
}

/// Describes whether the pauses can be read. Fails no check, because a replica that cannot read them is as ready as a
/// standby. Omits the error, which is foreign text: this listener answers every client.
fn describe_pauses(view: Option<&PolicyView>) -> String {
    match view {
        Some(PolicyView { last_error: Some(_), leader_waits, .. }) => {
            let effect = if *leader_waits { "; nothing is written until they can be" } else { "" };
            format!("cannot be read{effect}; see the log and pauses in /api/v1/status of the admin API")
        }
        Some(_) | None => OK.to_owned(),
    }
}

/// Checks that every kind is watched. A broken watch is opened again within seconds, so a short gap is not a failure.
fn check_watches(sources: &BTreeMap<Kind, SourceView>, now: Now) -> Result<String, String> {
    let mut stale = String::new();
    for source in sources.values() {
        if let Some(since) = source.stale_since.map(|at| now.since(at)).filter(|since| *since >= MAX_STALE) {
            let separator = if stale.is_empty() { "" } else { ", " };
            let (kind, seconds) = (source.kind.resource(), since.as_secs());
            let written = write!(stale, "{separator}{kind} not followed for {seconds} s");
            debug_assert!(written.is_ok(), "writing to a String does not fail");
        }
    }
    if stale.is_empty() {
        return Ok(OK.to_owned());
    }
    Err(format!("{stale}; see the log and sources in /api/v1/status of the admin API"))
}

fn answer(request: &HttpRequest, checks: &[Check]) -> HttpResponse {
    let is_healthy = checks.iter().all(|(_, check)| check.is_ok());
    let verbose =
        request.query_string().split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose="));
    let mut text = String::new();
    for (name, check) in checks {
        let line = match check {
            Ok(state) if verbose || !is_healthy => writeln!(text, "[+]{name} {state}"),
            Ok(_) => Ok(()),
            Err(detail) => writeln!(text, "[-]{name} {detail}"),
        };
        debug_assert!(line.is_ok(), "writing to a String does not fail");
    }
    text.push_str(match (is_healthy, verbose) {
        (true, false) => "ok",
        (true, true) => "check passed\n",
        (false, _) => "check failed\n",
    });
    let mut response = if is_healthy { HttpResponse::Ok() } else { HttpResponse::ServiceUnavailable() };
    response.content_type("text/plain; charset=utf-8").body(text)
}

async fn metrics(health: web::Data<Health>, renderings: web::Data<Renderings>) -> HttpResponse {
    let about = &health.about;
    let body = renderings.body(Instant::now(), || {
        let snapshot = about.published.load();
        let now = about.clock.now();
        let age = |since: Option<Now>| since.map(|since| now.since(since));
        let pools = || snapshot.pools.values();
        recorder::blocked_pools(pools().filter_map(|pool| Some(snapshot.blocked(now, pool)?.why)));
        recorder::oldest_waiting_change(age(pools().filter_map(|pool| pool.waiting_since).min()));
        recorder::longest_out_of_sync(age(pools().filter_map(|pool| pool.late_since()).min()));
        let since = |(since, pool)| out_of_sync(pool, now.since(since));
        let pools: Vec<_> = snapshot.longest_out_of_sync(LISTED).into_iter().map(since).collect();
        health.metrics.render() + &recorder::pools_out_of_sync(&pools)
    });
    HttpResponse::Ok().content_type("text/plain; version=0.0.4").body(body)
}

fn out_of_sync(view: &PoolView, age: Duration) -> OutOfSyncPool<'_> {
    OutOfSyncPool { pool: &view.pool, services: view.services.values().collect(), age }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use actix::{Actor, Context, Handler, ResponseFuture};
    use actix_web::test::TestRequest;

    use super::*;

    /// An actor that never finishes its first step, or finishes immediately.
    struct Machine {
        is_stuck: bool,
    }

    impl Actor for Machine {
        type Context = Context<Self>;
    }

    impl Handler<Ping> for Machine {
        type Result = ResponseFuture<()>;

        fn handle(&mut self, _: Ping, _: &mut Context<Self>) -> ResponseFuture<()> {
            if self.is_stuck { Box::pin(std::future::pending()) } else { Box::pin(std::future::ready(())) }
        }
    }

    #[test]
    fn h1_a_kind_without_a_watch_for_a_minute_is_named() {
        let source = |kind, stale_since| SourceView {
            kind,
            phase: "watching",
            synced: true,
            objects: 1,
            heard_at: None,
            stale_since,
            last_error: Some("foreign text".into()),
        };
        let at = |seconds: u64| Now::from_millis(seconds * 1_000);
        let mut sources = BTreeMap::from([(Kind::Nodes, source(Kind::Nodes, Some(at(10))))]);
        sources.insert(Kind::Services, source(Kind::Services, None));
        sources.insert(Kind::Preemptions, source(Kind::Preemptions, Some(at(20))));
        assert_eq!(check_watches(&sources, at(69)), Ok(OK.to_owned()));
        let detail = "see the log and sources in /api/v1/status of the admin API";
        assert_eq!(check_watches(&sources, at(70)), Err(format!("nodes not followed for 60 s; {detail}")));
        let both = check_watches(&sources, at(80)).expect_err("two are away");
        assert!(both.starts_with("nodes not followed for 70 s, events not followed for 60 s; "), "{both}");
    }

    #[actix::test]
    async fn h1_a_stuck_machine_is_named_and_the_process_is_not_live() {
        tokio::time::pause();
        let machine = |is_stuck| Machine { is_stuck }.start().recipient();
        let request = TestRequest::default().to_http_request();
        let steps_on = check_machines(&LivenessTargets(Arc::new([("writer", machine(false))]))).await;
        assert_eq!(answer(&request, &steps_on).status(), 200);
        let checks = check_machines(&LivenessTargets(Arc::new([
            ("writer", machine(false)),
            ("leader", machine(true)),
        ])))
        .await;
        let named =
            |check: &Check| matches!(check, ("leader", Err(detail)) if detail == "did not step within 2s");
        assert!(checks[0].1.is_ok() && named(&checks[1]), "{checks:?}");
        assert_eq!(answer(&request, &checks).status(), 503);
    }
}
