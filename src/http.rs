//! The HTTP listeners: health and metrics, and the admin API (design.md 11). Handlers read the published snapshot, hand
//! people's requests to the machines, and decide nothing.

mod admin;
mod body;
mod health;
mod page;
mod people;
mod post;
mod problem;
mod query;
mod show;
mod verdict;
mod web_page;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::{App, FromRequest, Handler, HttpServer, Resource, Responder, guard, web};
use actors::asks::Asks;
use actors::clock::Clock;
use actors::host::Published;
use actors::kubernetes::Reviewer;
use anyhow::Context as _;
use metrics_exporter_prometheus::PrometheusHandle;

use crate::telemetry::Levels;
use crate::wiring::Pulse;
use problem::Serves;

/// How long open requests may take to end at shutdown, in seconds.
const END_WITHIN: u64 = 5;
/// How long a client may take to send its request's head.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// The most connections of one listener at a time: whoever opens more waits, and leaves the process its memory and its
/// connections to Azure and to the API server.
const CONNECTIONS: usize = 512;

/// What every handler knows.
#[derive(Clone)]
pub struct About {
    /// The process's clock.
    pub clock: Clock,
    /// Whether nothing is written anywhere (C4).
    pub dry_run: bool,
    /// The published snapshot.
    pub published: Published,
}

/// What the handlers of people's requests need besides.
#[derive(Clone)]
pub struct People {
    /// Who asks the machines.
    pub asks: Asks,
    /// Who has the API server judge who asks.
    pub reviewer: Reviewer,
    /// Which log lines are written.
    pub levels: Levels,
}

/// What the health handlers need besides.
#[derive(Clone)]
struct Life {
    about: About,
    pulse: Pulse,
    metrics: PrometheusHandle,
    leaving: Arc<AtomicBool>,
}

/// Both addresses, taken before anything else of the service runs: what cannot be taken ends the start.
pub struct Addresses {
    health: TcpListener,
    admin: TcpListener,
}

/// Both listeners, set up and not yet served.
pub struct Listeners {
    /// Where health and metrics are served.
    pub health: SocketAddr,
    /// Where the admin API is served.
    pub admin: SocketAddr,
    servers: [actix_web::dev::Server; 2],
    leaving: Arc<AtomicBool>,
}

/// Both listeners, being served.
pub struct Served {
    handles: [ServerHandle; 2],
    leaving: Arc<AtomicBool>,
}

impl Addresses {
    /// Takes both addresses.
    ///
    /// # Errors
    /// One of them is taken already, or is none of this machine.
    pub fn take(at: &config::Http) -> anyhow::Result<Addresses> {
        let take = |address: SocketAddr, key: &str| {
            TcpListener::bind(address).with_context(|| {
                format!("{key}: failed to listen on {address}; is the port in use by another process?")
            })
        };
        let health = take(at.health_listen, "http.healthListen")?;
        Ok(Addresses { health, admin: take(at.admin_listen, "http.adminListen")? })
    }
}

impl Listeners {
    /// Sets up what both addresses serve.
    ///
    /// # Errors
    /// The operating system refuses a listener.
    pub fn open(
        at: Addresses,
        about: About,
        people: People,
        pulse: Pulse,
        metrics: PrometheusHandle,
    ) -> anyhow::Result<Listeners> {
        let leaving = Arc::new(AtomicBool::new(false));
        let life = Life { about: about.clone(), pulse, metrics, leaving: Arc::clone(&leaving) };
        let (health_server, health) = listen(at.health, health::SERVES, move |config| {
            config.app_data(web::Data::new(life.clone())).configure(health::routes);
        })?;
        let page = web::Data::new(web_page::WebPage::assembled());
        let (admin_server, admin) = listen(at.admin, admin::SERVES, move |config| {
            let config =
                config.app_data(web::Data::new(about.clone())).app_data(web::Data::new(people.clone()));
            config.app_data(page.clone()).configure(admin::routes).configure(post::routes);
        })?;
        Ok(Listeners { health, admin, servers: [health_server, admin_server], leaving })
    }

    /// Serves both until [`Served::stop`].
    #[must_use]
    pub fn serve(self) -> Served {
        let handles = [self.servers[0].handle(), self.servers[1].handle()];
        for server in self.servers {
            drop(actix::spawn(async move {
                if let Err(error) = server.await {
                    tracing::error!(%error, "an HTTP listener ended");
                }
            }));
        }
        Served { handles, leaving: self.leaving }
    }
}

impl Served {
    /// Turns `/readyz` to 503 so that nobody is sent here any more.
    pub fn refuse(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Ends both listeners; open requests have 5 s to end.
    pub async fn stop(self) {
        for handle in self.handles {
            handle.stop(true).await;
        }
    }
}

/// A path that can be read and nothing else; other methods are told so.
fn get<F, Args>(path: &str, handler: F) -> Resource
where
    F: Handler<Args>,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    let read = web::route().guard(guard::Any(guard::Get()).or(guard::Head()));
    web::resource(path).route(read.to(handler)).default_service(web::to(problem::not_allowed))
}

/// A path that can be posted to and nothing else.
fn post<F, Args>(path: &str, handler: F) -> Resource
where
    F: Handler<Args>,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    web::resource(path).route(web::post().to(handler)).default_service(web::to(problem::not_allowed_but_post))
}

fn listen(
    at: TcpListener,
    serves: Serves,
    routes: impl Fn(&mut web::ServiceConfig) + Clone + Send + 'static,
) -> anyhow::Result<(actix_web::dev::Server, SocketAddr)> {
    let bound = at.local_addr().context("failed to ask for a listener's address")?;
    let server = HttpServer::new(move || {
        let routes = routes.clone();
        App::new()
            .app_data(web::PathConfig::default().error_handler(problem::unreadable_path))
            .app_data(web::Data::new(serves))
            .configure(move |config| routes(config))
            .default_service(web::to(problem::no_such_path))
    })
    .workers(1)
    .max_connections(CONNECTIONS)
    .disable_signals()
    .client_request_timeout(HEAD_WITHIN)
    .shutdown_timeout(END_WITHIN)
    .listen(at)
    .with_context(|| format!("failed to listen on {bound}"))?;
    Ok((server.run(), bound))
}
