//! `/livez`, `/readyz`, `/healthz` and `/metrics` (H1): alive while every machine steps, ready once the first lists and
//! the first discovery are in. ARM being away is no reason to be restarted, and so no part of either.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use actors::recorder;
use actors::shell::Ping;
use futures::future::join_all;

use super::problem::Serves;
use super::{Life, get};

/// What the health listener serves.
pub(super) const SERVES: Serves = Serves("/livez, /readyz, /healthz and /metrics");

/// How long a machine may take to answer.
const PULSE_WITHIN: Duration = Duration::from_secs(2);

/// The routes of the health listener.
pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .service(get("/livez", livez))
        .service(get("/healthz", livez))
        .service(get("/readyz", readyz))
        .service(get("/metrics", metrics));
}

/// One thing that is checked, and what is wrong with it.
type Check = (&'static str, Result<(), String>);

async fn livez(request: HttpRequest, life: web::Data<Life>) -> HttpResponse {
    let asked = life.pulse.0.iter().map(|(name, machine)| async move {
        let answered = tokio::time::timeout(PULSE_WITHIN, machine.send(Ping)).await;
        let check = match answered {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("is gone: {error}")),
            Err(_) => Err(format!("did not step within {PULSE_WITHIN:?}")),
        };
        (*name, check)
    });
    answer(&request, &join_all(asked).await)
}

async fn readyz(request: HttpRequest, life: web::Data<Life>) -> HttpResponse {
    let synced = life.about.published.load().synced;
    let wait = |done: bool, what: &str| if done { Ok(()) } else { Err(format!("waiting for {what}")) };
    let leaving = life.leaving.load(Ordering::Relaxed);
    answer(
        &request,
        &[
            ("lists", wait(synced.lists, "the first complete lists of Services, EndpointSlices and Nodes")),
            (
                "discovery",
                wait(synced.discovery, "every managed load balancer to be asked for, and one to be seen"),
            ),
            ("shutdown", if leaving { Err("shutting down".to_owned()) } else { Ok(()) }),
        ],
    )
}

fn answer(request: &HttpRequest, checks: &[Check]) -> HttpResponse {
    let good = checks.iter().all(|(_, check)| check.is_ok());
    let verbose =
        request.query_string().split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose="));
    let mut text = String::new();
    for (name, check) in checks {
        let line = match check {
            Ok(()) if verbose || !good => writeln!(text, "[+]{name} ok"),
            Ok(()) => Ok(()),
            Err(why) => writeln!(text, "[-]{name} {why}"),
        };
        debug_assert!(line.is_ok(), "writing to a String does not fail");
    }
    text.push_str(match (good, verbose) {
        (true, false) => "ok",
        (true, true) => "check passed\n",
        (false, _) => "check failed\n",
    });
    let mut response = if good { HttpResponse::Ok() } else { HttpResponse::ServiceUnavailable() };
    response.content_type("text/plain; charset=utf-8").body(text)
}

async fn metrics(life: web::Data<Life>) -> HttpResponse {
    let about = &life.about;
    let oldest = about.published.load().pools.values().filter_map(|pool| pool.waiting_since).min();
    recorder::oldest_waiting_change(oldest.map(|since| about.clock.now().since(since)));
    HttpResponse::Ok().content_type("text/plain; version=0.0.4").body(life.metrics.render())
}
